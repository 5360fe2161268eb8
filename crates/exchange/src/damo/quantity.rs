//! Numbers as damo writes them (src/_damo_fmt_str.py): plain, with commas, or with units.

/// `4,096` or `4.5`: digit-group commas, no unit.
pub(crate) fn number(text: &str) -> Option<f64> {
    let plain: String = text.trim().chars().filter(|c| *c != ',').collect();
    plain.parse().ok().filter(|value: &f64| value.is_finite())
}

/// An address or size: `94,253,027,950,592`, `4.000 KiB`, `max`.
pub(crate) fn bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    if text == "max" {
        return Some(u64::MAX);
    }
    let plain: String = text.chars().filter(|c| *c != ',').collect();
    if let Ok(exact) = plain.parse() {
        return Some(exact);
    }
    let split = plain.find(|c: char| c.is_ascii_alphabetic())?;
    let (value, unit) = plain.split_at(split);
    let power = match unit.strip_suffix("iB").or(unit.strip_suffix('B')).unwrap_or(unit) {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        "P" => 50,
        "E" => 60,
        _ => return None,
    };
    let value = number(value)? * (1u64 << power) as f64;
    (0.0..u64::MAX as f64).contains(&value).then_some(value as u64)
}

/// A time in nanoseconds: `82 s 877 ms`, `100000`. A plain number is in units of `unit` ns.
pub(crate) fn nanos(text: &str, unit: f64) -> Option<f64> {
    if text == "max" {
        return Some(u64::MAX as f64);
    }
    if let Some(value) = number(text) {
        return Some(value * unit);
    }
    let text = text.trim();
    let (sign, text) = text.strip_prefix('-').map_or((1.0, text), |rest| (-1.0, rest));
    let spaced: String = text.chars().filter(|c| *c != ',').collect();
    let mut sum = 0.0;
    let mut rest = spaced.as_str();
    while !rest.trim().is_empty() {
        let split = rest.find(|c: char| c.is_ascii_alphabetic())?;
        let (value, after) = rest.split_at(split);
        let end = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
        let scale = match &after[..end] {
            "ns" => 1.0,
            "us" => 1e3,
            "ms" => 1e6,
            "s" => 1e9,
            "m" => 60e9,
            "h" => 3600e9,
            "d" => 86_400e9,
            _ => return None,
        };
        sum += number(value)? * scale;
        rest = &after[end..];
    }
    (!spaced.trim().is_empty()).then_some(sign * sum)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes_as_damo_writes_them() {
        assert_eq!(bytes("94,253,027,950,592"), Some(94_253_027_950_592));
        assert_eq!(bytes("18446744073709551615"), Some(u64::MAX));
        assert_eq!(bytes("4.000 KiB"), Some(4096));
        assert_eq!(bytes("1.5G"), Some(3 << 29));
        assert_eq!((bytes("-1"), bytes("4 x"), bytes("")), (None, None, None));
    }

    #[test]
    fn times_as_damo_writes_them() {
        assert_eq!(nanos("100000", 1e3), Some(1e8));
        assert_eq!(nanos("1 s 200 ms", 1.0), Some(1.2e9));
        assert_eq!(nanos("5 ms", 1e3), Some(5e6));
        assert_eq!(nanos("-2 us", 1.0), Some(-2000.0));
        assert_eq!((nanos("", 1.0), nanos("5 weeks", 1.0)), (None, None));
    }

    proptest! {
        #[test]
        fn any_text_does_no_harm(text in ".{0,30}") {
            let _ = (number(&text), bytes(&text), nanos(&text, 1.0));
        }
    }
}
