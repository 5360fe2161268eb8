//! Parsers of ranges and places for the command line; sizes, rates, times and shares are parsed and
//! written by [`tierscope_core::units`].

use std::time::Duration;

pub use tierscope_core::units::{about_size, address, exact_time, range, rate, share, time};

/// Parses `2s..10s`: times since the recording began.
///
/// # Errors
/// A description of the problem.
pub fn time_range(text: &str) -> Result<std::ops::Range<Duration>, String> {
    range(text, time, Duration::ZERO..Duration::MAX)
}

/// Parses a range of addresses: `0x7f0000000000..0x7f8000000000`.
///
/// # Errors
/// A description of the problem.
pub fn address_range(text: &str) -> Result<std::ops::Range<u64>, String> {
    range(text, address, 0..u64::MAX)
}

/// A range of addresses, or the name of a mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A range of addresses, in every space.
    Addresses(std::ops::Range<u64>),
    /// The name of a mapping, or of its backing.
    Named(String),
}

/// Parses `0x7f0000000000..0x7f8000000000`, `heap`, `libc.so.6`. Text that contains two dots and
/// begins or ends like a number is a range of addresses.
///
/// # Errors
/// A description of the problem.
pub fn place(text: &str) -> Result<Place, String> {
    let is_number = |end: &str| end.is_empty() || end.starts_with(|c: char| c.is_ascii_digit());
    match text.split_once("..") {
        Some((from, to)) if is_number(from) && is_number(to) => {
            address_range(text).map(Place::Addresses)
        }
        _ if text.is_empty() => Err("give addresses or a name".into()),
        _ => Ok(Place::Named(text.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_addresses_or_names() {
        assert_eq!(place("0x1000..8K"), Ok(Place::Addresses(4096..8192)));
        assert_eq!(place("4K.."), Ok(Place::Addresses(4096..u64::MAX)));
        assert!(place("2..1").is_err() && place("").is_err());
        for name in ["heap", "[heap]", "libc.so.6", "/a..b", "a..b"] {
            assert_eq!(place(name), Ok(Place::Named(name.into())));
        }
    }
}
