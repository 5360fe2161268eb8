//! SIMD comparison of a few tags with a wanted one. The result has one bit per tag; all tags are
//! compared without an early exit, because the position of a hit is unpredictable and a branch on
//! it would be mispredicted.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{
    _mm_castsi128_ps, _mm_cmpeq_epi16, _mm_cmpeq_epi32, _mm_loadu_si128, _mm_movemask_epi8,
    _mm_movemask_ps, _mm_or_si128, _mm_packs_epi16, _mm_set1_epi16, _mm_set1_epi32,
    _mm_setzero_si128,
};

/// Bit mask of matches among sixteen tags of 16 bits.
#[inline(always)]
pub(crate) fn of_sixteen(tags: &[u16; 16], wanted: u16) -> u32 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 has SSE2, and both loads lie within the tags.
    unsafe {
        let (wanted, half) = (_mm_set1_epi16(wanted as i16), tags.as_ptr().cast());
        let low = _mm_cmpeq_epi16(_mm_loadu_si128(half), wanted);
        let high = _mm_cmpeq_epi16(_mm_loadu_si128(half.add(1)), wanted);
        _mm_movemask_epi8(_mm_packs_epi16(low, high)) as u32
    }
    #[cfg(not(target_arch = "x86_64"))]
    bits(tags, wanted)
}

/// Bit mask of matches among four tags of 32 bits.
#[inline(always)]
pub(crate) fn of_four(tags: &[u32; 4], wanted: u32) -> u32 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 has SSE2, and the load covers exactly the four tags.
    unsafe {
        let tags = _mm_loadu_si128(tags.as_ptr().cast());
        let same = _mm_cmpeq_epi32(tags, _mm_set1_epi32(wanted as i32));
        _mm_movemask_ps(_mm_castsi128_ps(same)) as u32
    }
    #[cfg(not(target_arch = "x86_64"))]
    bits(tags, wanted)
}

/// Whether any of many tags, in groups of four, matches.
#[inline(always)]
pub(crate) fn any(tags: &[[u32; 4]], wanted: u32) -> bool {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 has SSE2, and each load covers exactly one group of four tags.
    unsafe {
        let wanted = _mm_set1_epi32(wanted as i32);
        let mut same = _mm_setzero_si128();
        for four in tags {
            let four = _mm_loadu_si128(four.as_ptr().cast());
            same = _mm_or_si128(same, _mm_cmpeq_epi32(four, wanted));
        }
        _mm_movemask_epi8(same) != 0
    }
    #[cfg(not(target_arch = "x86_64"))]
    tags.iter().any(|four| bits(four, wanted) != 0)
}

#[cfg(any(test, not(target_arch = "x86_64")))]
fn bits<T: PartialEq, const N: usize>(tags: &[T; N], wanted: T) -> u32 {
    (0..N).map(|at| u32::from(tags[at] == wanted) << at).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bit_for_each_equal_tag() {
        let mut rng = tierscope_core::Rng::seeded(2);
        for _ in 0..1000 {
            let tags = [(); 16].map(|()| rng.below(5) as u16 * 0x3001);
            let wanted = rng.below(5) as u16 * 0x3001;
            assert_eq!(of_sixteen(&tags, wanted), bits(&tags, wanted));
            let tags = [(); 4].map(|()| rng.below(3) as u32 * 0x4000_0001);
            let wanted = rng.below(3) as u32 * 0x4000_0001;
            assert_eq!(of_four(&tags, wanted), bits(&tags, wanted));
        }
        assert_eq!(of_four(&[7, 8, 7, 7], 7), 0b1101);
        assert!(any(&[[1, 2, 3, 4], [5, 6, 7, 8]], 7) && any(&[[1, 2, 3, 4]], 1));
        assert!(!any(&[[1, 2, 3, 4], [5, 6, 7, 8]], 9) && !any(&[], 0));
    }
}
