//! Tenants of a machine, a cgroup each: what memory is theirs, what traffic they make, and what CPU time they get.
//!
//! Traffic comes from programmable memory controllers ([`ByController`]), which count by frame and tell when somebody
//! has had enough, or from the processor's bandwidth monitoring through resctrl ([`ByMonitoring`]), which has to be
//! asked.

mod bell;
mod controllers;
mod frames;
mod monitoring;
mod quota;

pub use bell::Bell;
pub use controllers::ByController;
pub use frames::frames_of;
pub use monitoring::ByMonitoring;
pub use quota::CpuQuota;

use tierscope_core::Result;

/// Who tells what traffic tenants make.
pub trait Traffic {
    /// Learns what memory or which processes are whose now. Tenants are named by their place.
    ///
    /// # Errors
    /// It cannot be found out.
    fn refresh(&mut self) -> Result<()>;

    /// Bytes that each tenant moved since the last call.
    ///
    /// # Errors
    /// Whoever counts does not answer.
    fn take(&mut self, out: &mut [u64]) -> Result<()>;

    /// Bytes that each tenant moved since the last [`Traffic::take`], which go on; nothing where only taking tells.
    ///
    /// # Errors
    /// As [`Traffic::take`].
    fn peek(&mut self, out: &mut [u64]) -> Result<bool>;

    /// Whoever exceeds from now on is told of again, before the next [`Traffic::take`].
    ///
    /// # Errors
    /// As [`Traffic::take`].
    fn listen(&mut self) -> Result<()>;
}
