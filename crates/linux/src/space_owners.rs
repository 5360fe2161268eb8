//! The current owner of each space, and the memory that they share, known to all threads.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tierscope_core::{Addr, Range, SpaceId};

use crate::shared_memory::Translation;

/// A watched process: the owner of a space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) space: SpaceId,
    pub(crate) pid: u32,
    /// Start time; distinguishes a reused pid.
    pub(crate) started: u64,
}

/// A process that maps a part of a range, and can be asked about it or made to move it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) owner: Owner,
    /// The part of the range.
    pub(crate) range: Range,
    /// Address of its first byte in the process.
    pub(crate) at: u64,
    /// Whether its pages may move although other processes map them: memory that they share on
    /// purpose. A library's pages are hot or cold for processes outside of the target, too.
    pub(crate) with_others: bool,
}

#[derive(Debug, Default)]
struct Known {
    owners: Vec<Owner>,
    memory: Arc<Translation>,
}

/// The owners of all spaces; written by the machine, read by the mover, the page-tier map and the
/// sampler.
#[derive(Clone, Debug, Default)]
pub(crate) struct SpaceOwners(Arc<Mutex<Known>>);

impl SpaceOwners {
    /// Replaces all owners, and what they share.
    pub(crate) fn set(&self, owners: &[Owner], memory: Arc<Translation>) {
        let mut known = self.lock();
        known.owners.clear();
        known.owners.extend_from_slice(owners);
        known.memory = memory;
    }

    /// A copy of all owners.
    pub(crate) fn all(&self) -> Vec<Owner> {
        self.lock().owners.clone()
    }

    /// The memory that the owners share.
    pub(crate) fn memory(&self) -> Arc<Translation> {
        Arc::clone(&self.lock().memory)
    }

    /// The processes that map parts of `range`: the owner of its space, if it is a process's, and
    /// those with views of it, in the order of the memory.
    pub(crate) fn users(&self, range: &Range) -> Vec<User> {
        let known = self.lock();
        let owner = |space: SpaceId| known.owners.iter().find(|owner| owner.space == space);
        let others = known.memory.users(range).filter_map(|piece| {
            Some(User {
                owner: *owner(piece.range.space)?,
                range: piece.listed(),
                at: piece.range.start,
                with_others: piece.writable,
            })
        });
        let mut users: Vec<User> = others.collect();
        if let Some(owner) = owner(range.space) {
            let with_others = users.iter().any(|user| user.with_others);
            users.insert(0, User { owner: *owner, range: *range, at: range.start, with_others });
        }
        users
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl User {
    /// The address in the process of an address of [`User::range`].
    pub(crate) fn address(&self, at: u64) -> u64 {
        self.at + (at - self.range.start)
    }
}

/// The address at which memory is listed: that of another space for a view of it.
pub(crate) fn listed(memory: &Translation, at: Addr) -> Addr {
    memory.shared_address(at).unwrap_or(at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared_memory::tests::one_object;

    const PAGE: u64 = 4096;

    // Two pages of an object, at pages 8 and 32 of two processes; a third process has no view.
    #[test]
    fn shared_memory_has_a_user_for_each_process_that_maps_it() {
        let mappings = one_object(2 * PAGE, &[8 * PAGE, 32 * PAGE]);
        let memory = mappings.mappings[0].range;
        let owners = SpaceOwners::default();
        let owner = |space| Owner { space: SpaceId(space), pid: 10 + space, started: 0 };
        let all = [owner(0), owner(1), owner(2)];
        owners.set(&all, Arc::new(Translation::of(&mappings)));
        let second = Range { start: memory.start + PAGE, ..memory };
        let user = |space, at| User { owner: owner(space), range: second, at, with_others: true };
        assert_eq!(owners.users(&second), [user(0, 9 * PAGE), user(1, 33 * PAGE)]);
        let own = Range::new(SpaceId(2), 5 * PAGE, 6 * PAGE);
        let expected = User { owner: owner(2), range: own, at: 5 * PAGE, with_others: false };
        assert_eq!(owners.users(&own), [expected]);
        assert_eq!(expected.address(5 * PAGE + 7), 5 * PAGE + 7);
        assert_eq!(owners.users(&Range { space: SpaceId(7), ..own }), []);
        let translated = listed(&owners.memory(), Addr { space: SpaceId(1), at: 33 * PAGE + 7 });
        assert_eq!(translated, second.at(7));
    }
}
