//! The current owner of each space, shared between threads.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tierscope_core::SpaceId;

/// A watched process: the owner of a space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) space: SpaceId,
    pub(crate) pid: u32,
    /// Start time; distinguishes a reused pid.
    pub(crate) started: u64,
}

/// The owners of all spaces; written by the machine, read by the mover, the page-tier map and the
/// sampler.
#[derive(Clone, Debug, Default)]
pub(crate) struct SpaceOwners(Arc<Mutex<Vec<Owner>>>);

impl SpaceOwners {
    /// Replaces all owners.
    pub(crate) fn set(&self, owners: &[Owner]) {
        let mut known = self.lock();
        known.clear();
        known.extend_from_slice(owners);
    }

    /// A copy of all owners.
    pub(crate) fn all(&self) -> Vec<Owner> {
        self.lock().clone()
    }

    /// The owner of a space.
    pub(crate) fn of(&self, space: SpaceId) -> Option<Owner> {
        self.lock().iter().find(|owner| owner.space == space).copied()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Owner>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
