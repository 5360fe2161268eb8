//! The machine through which every single access goes.
