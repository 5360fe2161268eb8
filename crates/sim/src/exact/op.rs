//! Accesses of a thread, as they are queued.

/// An access: the address, and whether it is a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Op(u64);

impl Op {
    /// A load from the address.
    #[inline(always)]
    pub(super) fn load(linear: u64) -> Self {
        Self(linear << 2)
    }

    /// A store to the address.
    #[inline(always)]
    pub(super) fn store(linear: u64) -> Self {
        Self(linear << 2 | 1)
    }

    /// The same, at an address that depends on the data of the access before.
    #[inline(always)]
    pub(super) fn depending(self, depends: bool) -> Self {
        Self(self.0 | u64::from(depends) << 1)
    }

    #[inline(always)]
    pub(super) fn depends(self) -> bool {
        self.0 & 2 != 0
    }

    #[inline(always)]
    pub(super) fn linear(self) -> u64 {
        self.0 >> 2
    }

    #[inline(always)]
    pub(super) fn stores(self) -> bool {
        self.0 & 1 == 1
    }
}
