//! Accesses of a thread, as they are queued.

/// An access: the address, and whether it is a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Op(u64);

impl Op {
    /// A load from the address.
    #[inline(always)]
    pub(super) fn load(linear: u64) -> Self {
        Self(linear << 1)
    }

    /// A store to the address.
    #[inline(always)]
    pub(super) fn store(linear: u64) -> Self {
        Self(linear << 1 | 1)
    }

    #[inline(always)]
    pub(super) fn linear(self) -> u64 {
        self.0 >> 1
    }

    #[inline(always)]
    pub(super) fn stores(self) -> bool {
        self.0 & 1 == 1
    }
}
