//! Tests of whole recordings.

mod common;
mod corpus;
mod damage;
mod full_disk;
mod heat;
mod power;
mod power_cut;
mod round_trip;
mod series;
mod split;
