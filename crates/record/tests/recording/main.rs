//! Tests of whole recordings.

mod common;
mod corpus;
mod damage;
mod heat;
mod round_trip;
mod series;
mod split;
