//! The exact machine, from outside.

mod apps;
mod calls;
mod conformance;
mod costs;
mod counters;
mod hot_lists;
mod names;
mod quota;
mod stage;
mod stores;
mod telemetry;
mod work;
