//! Decodes from the bytes of an instruction whether its stores are non-temporal.
//!
//! Source: Intel SDM volume 2, appendix A (opcode maps) and section 2.3.5 (VEX).

const TWO_BYTES: u8 = 0x0f;
const VEX2: u8 = 0xc5;
const VEX3: u8 = 0xc4;

fn is_prefix(byte: u8) -> bool {
    matches!(byte, 0x26 | 0x2e | 0x36 | 0x3e | 0x64 | 0x65 | 0x66 | 0x67 | 0xf0 | 0xf2 | 0xf3)
}

/// Whether a ModRM byte has a memory operand.
fn in_memory(modrm: u8) -> bool {
    modrm >> 6 != 3
}

/// Whether a 64-bit mode instruction is a non-temporal store: MOVNTI, MOVNTPS, MOVNTPD, MOVNTDQ,
/// MOVNTQ and their VEX forms.
#[must_use]
pub fn is_non_temporal(bytes: &[u8]) -> bool {
    let prefixes = bytes.iter().take_while(|byte| is_prefix(**byte)).count();
    let rest = match &bytes[prefixes..] {
        [0x40..=0x4f, rest @ ..] => rest,
        rest => rest,
    };
    match rest {
        [TWO_BYTES, 0x2b | 0xc3 | 0xe7, modrm, ..] => in_memory(*modrm),
        [VEX2, _, 0x2b | 0xe7, modrm, ..] => in_memory(*modrm),
        [VEX3, map, _, 0x2b | 0xe7, modrm, ..] => map & 0x1f == 1 && in_memory(*modrm),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Machine code as emitted by the GNU assembler.
    #[test]
    fn known_instructions_are_distinguished() {
        let cases: &[(&[u8], bool)] = &[
            (&[0x48, 0x0f, 0xc3, 0x07], true),        // movnti %rax,(%rdi)
            (&[0x0f, 0xc3, 0x07], true),              // movnti %eax,(%rdi)
            (&[0x0f, 0x2b, 0x07], true),              // movntps %xmm0,(%rdi)
            (&[0x66, 0x0f, 0x2b, 0x07], true),        // movntpd %xmm0,(%rdi)
            (&[0x66, 0x0f, 0xe7, 0x07], true),        // movntdq %xmm0,(%rdi)
            (&[0x66, 0x44, 0x0f, 0xe7, 0x07], true),  // movntdq %xmm8,(%rdi)
            (&[0xc5, 0xfd, 0xe7, 0x07], true),        // vmovntdq %ymm0,(%rdi)
            (&[0xc5, 0xfc, 0x2b, 0x07], true),        // vmovntps %ymm0,(%rdi)
            (&[0xc4, 0xc1, 0x7d, 0xe7, 0x00], true),  // vmovntdq %ymm0,(%r8)
            (&[0xc5, 0xfd, 0x7f, 0x07], false),       // vmovdqa %ymm0,(%rdi)
            (&[0xc4, 0xe2, 0x7d, 0x2a, 0x07], false), // vmovntdqa (%rdi),%ymm0: a load
            (&[0x48, 0x89, 0x07], false),             // mov %rax,(%rdi)
            (&[0x0f, 0xe7], false),
            (&[0x66, 0x66], false),
            (&[], false),
        ];
        for (bytes, expected) in cases {
            assert_eq!(is_non_temporal(bytes), *expected, "{bytes:x?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_are_too_strange(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..16)) {
            let _ = is_non_temporal(&bytes);
        }
    }
}
