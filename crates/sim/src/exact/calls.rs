//! System calls of programs.

use tierscope_core::{Access, BusObserver, PageEvent, PageEventKind, Range, Result, SpaceId, Time};
use tierscope_workloads::Call;

use super::machine::Machine;
use super::os::{Denied, Os};
use super::tier::NS;

impl<B: BusObserver> Machine<B> {
    /// A thread of `space` on core `at` calls.
    ///
    /// # Errors
    /// The host has no memory.
    pub(super) fn call(
        &mut self,
        at: usize,
        space: SpaceId,
        call: Call,
    ) -> Result<Result<(), Denied>> {
        let now = Time(self.cpus[at].time / NS);
        let range = |at: u64, bytes: u64| Range::new(space, at, at.saturating_add(bytes));
        match call {
            Call::File { at, bytes, writes } => {
                let access = if writes { Access::Store } else { Access::Load };
                self.os.reach_pages(range(at, bytes), PageEventKind::FileAccess(access), now)
            }
            Call::Lock { at, bytes, on: true } => {
                self.os.reach_pages(range(at, bytes), PageEventKind::Locked, now)
            }
            Call::Lock { at, bytes, on: false } => {
                self.os.tell(range(at, bytes), PageEventKind::Unlocked, now);
                Ok(Ok(()))
            }
            Call::Free { at, bytes } => {
                let stale = self.os.give_back(range(at, bytes), now)?;
                self.shoot_for_kernel(stale);
                Ok(Ok(()))
            }
        }
    }
}

impl Os {
    /// The kernel itself reaches for pages: they are there then, no younger than before.
    fn reach_pages(
        &mut self,
        range: Range,
        kind: PageEventKind,
        now: Time,
    ) -> Result<Result<(), Denied>> {
        let reached = self.fill_holes(range)?;
        if reached.is_ok() {
            self.tell(range, kind, now);
        }
        Ok(reached)
    }

    fn tell(&mut self, range: Range, kind: PageEventKind, time: Time) {
        self.events.push(PageEvent { time, range, kind });
    }
}
