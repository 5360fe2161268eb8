//! Windows that took longer than configured.

use std::time::Duration;

use tierscope_record::Commit;

/// A window is late if it took longer than the configured length times this.
const LATE: f64 = 1.5;

/// Whether a window is late; `window` is the configured length.
pub(crate) fn is_late(row: &Commit, window: Duration) -> bool {
    row.end.since(row.start) > window.mul_f64(LATE)
}
