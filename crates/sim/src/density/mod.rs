//! The machine that draws a bit when asked for it: its cost grows with what an instrument looks at,
//! not with what the workload does.
