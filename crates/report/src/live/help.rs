//! Help text: keys, and the marks in the heatmap.

/// Keys and their meaning.
pub(crate) const KEYS: [(&str, &str); 15] = [
    ("↑ ↓ k j PgUp PgDn", "select a row; in the heatmap: move by addresses"),
    ("← → h l H L", "move the heatmap by time"),
    ("Tab", "arrows move in the table, or in the heatmap"),
    ("+ -", "zoom addresses"),
    ("z Z", "zoom time in, out"),
    ("0", "all addresses, one window a column"),
    ("Enter Esc", "narrow to the selected row, widen again"),
    ("p m r", "tabulate processes, mappings, regions"),
    ("s", "sort by heat, hot bytes, size, age, address"),
    ("Space", "pause, go on"),
    ("< >", "a column back, forth"),
    ("Home End", "first window, newest window"),
    ("[ ]", "replay slower, faster"),
    ("q", "quit"),
    ("u ? in the map", "unknown: too little evidence; not looked at, or not resident"),
];
