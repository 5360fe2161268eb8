//! Layout of a guest's RAM: physical addresses, and offsets in the files that back its nodes. A
//! program that maps those files can walk the guest's page tables from outside.

/// Physical address at which RAM continues above the hole for devices.
const ABOVE_HOLE: u64 = 1 << 32;

/// A part of RAM that is contiguous both in guest-physical memory and in its node's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RamPart {
    /// The node that it belongs to.
    pub node: usize,
    /// Its offset in the node's file.
    pub offset: u64,
    /// Its first guest-physical address.
    pub physical: u64,
    /// Its length in bytes.
    pub bytes: u64,
}

impl RamPart {
    /// Offset of a physical address within the piece; `None` if it lies outside.
    #[inline(always)]
    #[must_use]
    pub fn offset_of(&self, physical: u64) -> Option<u64> {
        let offset = physical.wrapping_sub(self.physical);
        (offset < self.bytes).then_some(offset)
    }
}

/// Bytes of RAM below the hole: hw/i386/pc_q35.c of QEMU, pc_q35_init.
fn below_hole(ram: u64) -> u64 {
    if ram >= 0xb000_0000 { 0x8000_0000 } else { 0xb000_0000 }
}

/// RAM layout of QEMU's q35 machine, given the bytes of each node.
#[must_use]
pub fn q35(nodes: &[u64]) -> Vec<RamPart> {
    let low = below_hole(nodes.iter().sum());
    let (mut first, mut pieces) = (0, Vec::new());
    for (node, bytes) in nodes.iter().enumerate() {
        let end = first + bytes;
        for (from, to) in [(first, end.min(low)), (first.max(low), end)] {
            if from < to {
                let physical = if from < low { from } else { ABOVE_HOLE + (from - low) };
                pieces.push(RamPart { node, offset: from - first, physical, bytes: to - from });
            }
        }
        first = end;
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn a_small_machine_has_no_hole() {
        let piece = |node, physical| RamPart { node, offset: 0, physical, bytes: GIB };
        assert_eq!(q35(&[GIB, GIB]), [piece(0, 0), piece(1, GIB)]);
    }

    #[test]
    fn an_address_is_in_one_part() {
        let piece = RamPart { node: 1, offset: 0, physical: GIB, bytes: GIB };
        let of = [GIB - 1, GIB, 2 * GIB - 1, 2 * GIB].map(|at| piece.offset_of(at));
        assert_eq!(of, [None, Some(0), Some(GIB - 1), None]);
    }

    #[test]
    fn beyond_2816_mib_ram_continues_above_4_gib() {
        // 3 GiB of RAM: 2 GiB of it lie below the hole, so that node 1 lies on both sides of it.
        assert_eq!(
            q35(&[GIB, 2 * GIB]),
            [
                RamPart { node: 0, offset: 0, physical: 0, bytes: GIB },
                RamPart { node: 1, offset: 0, physical: GIB, bytes: GIB },
                RamPart { node: 1, offset: GIB, physical: 4 * GIB, bytes: GIB },
            ]
        );
    }
}
