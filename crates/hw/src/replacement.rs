//! Replacement policies that need no more than a word of state a set.

/// The tree's bits after `way` was used: every node on the way to it points to the other side.
///
/// Node 1 is the root, node n has the children 2n and 2n + 1; a bit that is set points right.
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

/// The way that the tree points to.
pub(crate) fn plru_victim(bits: u64, ways: usize) -> usize {
    let mut node = 1;
    while node < ways {
        node = 2 * node + (bits >> node & 1) as usize;
    }
    node - ways
}

/// The next number (Marsaglia 2003, xorshift64); `state` is never zero.
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
    fn the_tree_points_away_from_what_was_used() {
        let bits = plru_touch(0, 4, 0);
        assert_eq!(plru_victim(bits, 4), 2);
        let bits = plru_touch(bits, 4, 2);
        assert_eq!(plru_victim(bits, 4), 1);
        let bits = plru_touch(bits, 4, 1);
        assert_eq!(plru_victim(bits, 4), 3);
    }

    #[test]
    fn the_last_used_way_never_goes() {
        let mut bits = 0;
        for step in 0..1000 {
            let way = step * 7 % 16;
            bits = plru_touch(bits, 16, way);
            assert_ne!(plru_victim(bits, 16), way);
        }
    }
}
