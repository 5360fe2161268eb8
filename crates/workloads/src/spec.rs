//! Parser of lines `NAME:key=value,…`, which name a generator or a program.

use std::collections::BTreeMap;
use std::time::Duration;
use tierscope_core::{names, units};

/// A value, or the column and description of a fault.
pub(crate) type Parsed<T> = std::result::Result<T, (usize, String)>;

/// The keys of a line.
pub(crate) struct Keys<'a> {
    /// Keys not taken yet, with column and value.
    left: BTreeMap<String, (usize, &'a str)>,
    /// Names of all keys that were requested: the valid keys of the line.
    known: Vec<String>,
}

impl<'a> Keys<'a> {
    /// Parses `key=value,…`, which begins at `column`.
    pub(crate) fn read(text: &'a str, mut column: usize) -> Parsed<Self> {
        let mut keys = BTreeMap::new();
        for word in text.split(',').filter(|_| !text.is_empty()) {
            let (key, value) = word
                .split_once('=')
                .ok_or_else(|| (column, format!("`{word}` is not key=value")))?;
            if keys.insert(names::kebab(key.trim()), (column, value.trim())).is_some() {
                return Err((column, format!("`{key}` is given twice")));
            }
            column += word.chars().count() + 1;
        }
        Ok(Self { left: keys, known: Vec::new() })
    }

    /// Takes the value of a key, parsed by `read`.
    pub(crate) fn take<T>(
        &mut self,
        key: &str,
        default: T,
        read: impl Fn(&str) -> std::result::Result<T, String>,
    ) -> Parsed<T> {
        if !self.known.iter().any(|known| known == key) {
            self.known.push(key.into());
        }
        let Some((column, text)) = self.left.remove(key) else { return Ok(default) };
        read(text).map_err(|what| (column, format!("{key}: {what}")))
    }

    /// Takes a key whose value is a size.
    pub(crate) fn bytes(&mut self, key: &str, default: u64) -> Parsed<u64> {
        self.take(key, default, units::size)
    }

    /// Takes a key whose value is a time.
    pub(crate) fn time(&mut self, key: &str, default: Duration) -> Parsed<Duration> {
        self.take(key, default, units::time)
    }

    /// Takes a key whose value is a number, or a word that parses as one.
    pub(crate) fn number<T: std::str::FromStr>(&mut self, key: &str, default: T) -> Parsed<T> {
        self.take(key, default, |text| {
            text.parse().map_err(|_| format!("`{text}` is not a number or a word for one"))
        })
    }

    /// Takes a key whose value is a number within bounds.
    pub(crate) fn within<T>(
        &mut self,
        key: &str,
        default: T,
        bounds: std::ops::RangeInclusive<T>,
    ) -> Parsed<T>
    where
        T: std::str::FromStr + PartialOrd + std::fmt::Display,
    {
        self.take(key, default, |text| match text.parse() {
            Ok(number) if bounds.contains(&number) => Ok(number),
            _ => Err(format!("`{text}` is no number from {} to {}", bounds.start(), bounds.end())),
        })
    }

    /// Takes a key whose value is one of the given words.
    pub(crate) fn word<T: Copy>(
        &mut self,
        key: &str,
        default: T,
        words: &[(&str, T)],
    ) -> Parsed<T> {
        self.take(key, default, |text| {
            let found = words.iter().find(|(word, _)| *word == text);
            found.map(|(_, meaning)| *meaning).ok_or_else(|| {
                let words: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
                format!("`{text}` is none of {}", words.join(", "))
            })
        })
    }

    /// Checks that no key is left that `name` does not know.
    pub(crate) fn all_used(&self, name: &str) -> Parsed<()> {
        match self.left.iter().next() {
            Some((key, (column, _))) => {
                let known = self.known.join(", ");
                Err((*column, format!("`{name}` has no key `{key}`, only {known}")))
            }
            None => Ok(()),
        }
    }
}
