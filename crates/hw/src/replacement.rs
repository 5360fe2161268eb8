//! Replacement policies that need at most one word of state per set.

/// Maximum number of ways whose order fits into a word.
pub(crate) const MAX_ORDERED: usize = 16;
const EACH: u64 = 0x1111_1111_1111_1111;

/// The ways of a set in the order of use, one nibble each, the most recently used in the lowest.
/// Each way occurs once; the nibbles above the last are zero.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Order(u64);

impl Order {
    pub(crate) fn new(ways: usize) -> Self {
        debug_assert!(ways <= MAX_ORDERED);
        Self((0..ways as u64).map(|way| way << (4 * way)).sum())
    }

    /// Bit position of the way's nibble: after an XOR with the way in every nibble, it is the
    /// lowest zero nibble (Warren, Hacker's Delight, section 6-1: the lowest match is exact).
    #[inline(always)]
    fn find(self, way: usize) -> u32 {
        let others = self.0 ^ (way as u64).wrapping_mul(EACH);
        let zeros = others.wrapping_sub(EACH) & !others & (EACH << 3);
        zeros.trailing_zeros() & !3
    }

    /// Makes the way the most recently used.
    #[inline(always)]
    pub(crate) fn touch(&mut self, way: usize) {
        // One bit above the way's nibble; zero if that is the highest nibble.
        let end = 0x10u64 << self.find(way);
        let moved = (self.0 << 4 | way as u64) & end.wrapping_sub(1);
        self.0 = self.0 & end.wrapping_neg() | moved;
    }

    /// Makes the least recently used way the most recently used, and returns it.
    #[inline(always)]
    pub(crate) fn reuse_last(&mut self, ways: usize) -> usize {
        let end = 4 * (ways as u32 - 1);
        let last = self.0 >> end;
        self.0 = (self.0 ^ last << end) << 4 | last;
        last as usize
    }

    /// The least recently used way.
    #[inline(always)]
    pub(crate) fn last(self, ways: usize) -> usize {
        (self.0 >> (4 * (ways - 1)) & 0xf) as usize
    }

    /// Makes the way the least recently used.
    pub(crate) fn retire(&mut self, way: usize, ways: usize) {
        let at = self.find(way);
        let (before, end) = ((1 << at) - 1, 4 * (ways - 1));
        let moved = self.0 >> 4 & !before & ((1 << end) - 1);
        self.0 = self.0 & before | moved | (way as u64) << end;
    }
}

/// The tree's bits after an access to `way`: every node on the path to it points away from it.
///
/// Node 1 is the root, node n has the children 2n and 2n + 1; a set bit points right.
#[inline(always)]
pub(crate) fn plru_touch(mut bits: u64, ways: usize, way: usize) -> u64 {
    let mut node = ways + way;
    while node > 1 {
        let right = node & 1;
        node >>= 1;
        bits = if right == 1 { bits & !(1 << node) } else { bits | (1 << node) };
    }
    bits
}

/// The way to which the tree points.
pub(crate) fn plru_victim(bits: u64, ways: usize) -> usize {
    let mut node = 1;
    while node < ways {
        node = 2 * node + (bits >> node & 1) as usize;
    }
    node - ways
}

/// The next random number (Marsaglia 2003, xorshift64); `state` is never zero.
#[inline(always)]
pub(crate) fn xorshift(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

#[cfg(test)]
mod tests {
    use super::*;

    //        1              use 0: root and node 2 point away from way 0
    //      /   \            victim: right half, node 3 still left: way 2
    //     2     3
    //    0 1   2 3
    #[test]
    fn the_tree_points_away_from_the_used_way() {
        let bits = plru_touch(0, 4, 0);
        assert_eq!(plru_victim(bits, 4), 2);
        let bits = plru_touch(bits, 4, 2);
        assert_eq!(plru_victim(bits, 4), 1);
        let bits = plru_touch(bits, 4, 1);
        assert_eq!(plru_victim(bits, 4), 3);
    }

    //   0 1 2 3   touch 2: 2 0 1 3   touch 3: 3 2 0 1   retire 2: 3 0 1 2
    #[test]
    fn an_order_fits_a_word() {
        let mut order = Order::new(4);
        assert_eq!(order.0, 0x3210);
        order.touch(2);
        assert_eq!(order.0, 0x3102);
        order.touch(3);
        assert_eq!(order.0, 0x1023);
        order.retire(2, 4);
        assert_eq!((order.0, order.last(4)), (0x2103, 2));
        assert_eq!((order.reuse_last(4), order.0), (2, 0x1032));
    }

    #[test]
    fn every_order_of_sixteen_is_a_permutation() {
        let (mut order, mut plain) = (Order::new(16), (0..16).collect::<Vec<usize>>());
        for step in 0..1000 {
            let way = step * step % 16;
            plain.retain(|other| *other != way);
            if step % 5 == 0 {
                order.retire(way, 16);
                plain.push(way);
            } else {
                order.touch(way);
                plain.insert(0, way);
            }
            let ways = (0..16).map(|at| (order.0 >> (4 * at) & 15) as usize);
            assert!(ways.eq(plain.iter().copied()), "step {step}: {:x}", order.0);
        }
    }

    #[test]
    fn the_last_used_way_is_never_evicted() {
        let mut bits = 0;
        for step in 0..1000 {
            let way = step * 7 % 16;
            bits = plru_touch(bits, 16, way);
            assert_ne!(plru_victim(bits, 16), way);
        }
    }
}
