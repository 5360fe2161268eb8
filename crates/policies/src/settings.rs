//! Settings of a policy: one description to parse them from a line, to store them in a recording,
//! and to list them with their meaning.

use std::time::Duration;

use tierscope_core::{Error, ErrorKind, Result, Setting, names, units};

/// A policy's settings, enumerable by name.
pub(crate) trait Settings {
    /// Passes every setting to `each`, with its name and meaning.
    fn visit(&mut self, each: &mut dyn Visit);

    /// Checks that the settings make sense together.
    ///
    /// # Errors
    /// Names the setting that is wrong.
    fn check(&self) -> Result<(), String> {
        Ok(())
    }
}

/// Visitor of a policy's settings.
pub(crate) trait Visit {
    /// Called for each setting, with its name and meaning.
    fn value(&mut self, name: &'static str, about: &'static str, value: &mut dyn Value);
}

/// A setting's value, convertible from and to text.
pub(crate) trait Value {
    /// Parses the text and replaces the value; an error leaves it unchanged.
    fn read(&mut self, text: &str) -> Result<(), String>;
    fn write(&self) -> String;
}

impl Value for Duration {
    fn read(&mut self, text: &str) -> Result<(), String> {
        *self = units::time(text)?;
        Ok(())
    }

    fn write(&self) -> String {
        units::exact_time(*self)
    }
}

/// A size in bytes, with units in text form.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(pub u64);

impl Value for Bytes {
    fn read(&mut self, text: &str) -> Result<(), String> {
        *self = Bytes(units::size(text)?);
        Ok(())
    }

    fn write(&self) -> String {
        self.0.to_string()
    }
}

macro_rules! plain_values {
    ($($kind:ty: $what:literal),*) => {$(
        impl Value for $kind {
            fn read(&mut self, text: &str) -> Result<(), String> {
                *self = text.parse().map_err(|_| format!(concat!("`{}` is not ", $what), text))?;
                Ok(())
            }

            fn write(&self) -> String {
                self.to_string()
            }
        }
    )*};
}

plain_values!(u32: "a whole number", u64: "a whole number", u8: "a whole number below 256", bool: "true or false");

/// A finite number, 0 or above; also used for shares from 0 to 1.
impl Value for f64 {
    fn read(&mut self, text: &str) -> Result<(), String> {
        let number = text.parse().ok().filter(|number: &f64| number.is_finite() && *number >= 0.0);
        *self = number.ok_or_else(|| format!("`{text}` is not a number from 0 on"))?;
        Ok(())
    }

    fn write(&self) -> String {
        self.to_string()
    }
}

/// An optional value; `none` in text form is its absence.
impl<T: Value + Default> Value for Option<T> {
    fn read(&mut self, text: &str) -> Result<(), String> {
        *self = match text {
            "none" => None,
            _ => {
                let mut value = T::default();
                value.read(text)?;
                Some(value)
            }
        };
        Ok(())
    }

    fn write(&self) -> String {
        self.as_ref().map_or("none".into(), Value::write)
    }
}

/// Parses `key=value,…` into the settings of policy `name`.
///
/// # Errors
/// [`ErrorKind::Usage`], with the column, and with the known keys if a key is unknown.
pub(crate) fn read(name: &str, line: &str, settings: &mut dyn Settings) -> Result<()> {
    let refuse = |column: usize, cause: String, remedy: String| {
        let what = format!("policy `{name}:{line}`, column {column}");
        Err(Error::new(ErrorKind::Usage, what).cause(cause).remedy(remedy))
    };
    let mut column = name.chars().count() + 2;
    let mut seen: Vec<&str> = Vec::new();
    for word in line.split(',').filter(|_| !line.is_empty()) {
        let Some((key, value)) = word.split_once('=') else {
            return refuse(column, format!("`{word}` is not key=value"), keys(settings));
        };
        let (key, value) = (key.trim(), value.trim());
        if seen.iter().any(|known| names::same(known, key)) {
            return refuse(column, format!("`{key}` is given twice"), "give it once".into());
        }
        seen.push(key);
        let mut reader = Reader { key, value, found: None };
        settings.visit(&mut reader);
        match reader.found {
            None => {
                return refuse(column, format!("`{name}` has no setting `{key}`"), keys(settings));
            }
            Some(Err(what)) => {
                return refuse(
                    column,
                    format!("{key}: {what}"),
                    "see `tierscope list policies`".into(),
                );
            }
            Some(Ok(())) => column += word.chars().count() + 1,
        }
    }
    let refused = |cause: String| {
        let what = format!("policy `{name}` cannot be set so");
        Error::new(ErrorKind::Usage, what).cause(cause).remedy("see `tierscope list policies`")
    };
    settings.check().map_err(refused)
}

/// Remedy in errors: the list of known keys.
fn keys(settings: &mut dyn Settings) -> String {
    let names: Vec<&str> = described(settings).into_iter().map(|(name, ..)| name).collect();
    if names.is_empty() {
        "it has no settings".into()
    } else {
        format!("choose from {}", names.join(", "))
    }
}

struct Reader<'a> {
    key: &'a str,
    value: &'a str,
    found: Option<Result<(), String>>,
}

impl Visit for Reader<'_> {
    fn value(&mut self, name: &'static str, _: &'static str, value: &mut dyn Value) {
        if names::same(name, self.key) {
            self.found = Some(value.read(self.value));
        }
    }
}

#[derive(Default)]
struct Writer(Vec<(&'static str, &'static str, String)>);

impl Visit for Writer {
    fn value(&mut self, name: &'static str, about: &'static str, value: &mut dyn Value) {
        self.0.push((name, about, value.write()));
    }
}

/// Name, meaning and value of every setting.
pub(crate) fn described(settings: &mut dyn Settings) -> Vec<(&'static str, &'static str, String)> {
    let mut writer = Writer::default();
    settings.visit(&mut writer);
    writer.0
}

/// The settings as stored in a recording.
pub(crate) fn recorded(settings: &(impl Settings + Clone)) -> Vec<Setting> {
    let of = |(name, _, value)| Setting { name, value };
    described(&mut settings.clone()).into_iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Debug, PartialEq)]
    struct Some3 {
        every: Duration,
        most: Bytes,
        share: Option<f64>,
    }

    impl Settings for Some3 {
        fn visit(&mut self, each: &mut dyn Visit) {
            each.value("every", "time between two runs", &mut self.every);
            each.value("most", "bytes at most", &mut self.most);
            each.value("share", "share to hold", &mut self.share);
        }

        fn check(&self) -> Result<(), String> {
            if self.every.is_zero() { Err("`every` is zero".into()) } else { Ok(()) }
        }
    }

    fn some() -> Some3 {
        Some3 { every: Duration::from_secs(1), most: Bytes(10 << 30), share: None }
    }

    fn refused(line: &str) -> String {
        read("toy", line, &mut some()).expect_err(line).to_string()
    }

    #[test]
    fn a_line_sets_the_settings_that_it_names() {
        let mut set = some();
        read("toy", "every=200ms, most=1.5GiB,share=0.25", &mut set).unwrap();
        let wanted =
            Some3 { every: Duration::from_millis(200), most: Bytes(3 << 29), share: Some(0.25) };
        assert_eq!(set, wanted);
        read("toy", "share=none", &mut set).unwrap();
        assert_eq!(set.share, None);
        read("toy", "", &mut set).unwrap();
    }

    #[test]
    fn written_settings_are_read_again() {
        let mut set = some();
        let line: Vec<String> =
            recorded(&set).iter().map(|s| format!("{}={}", s.name, s.value)).collect();
        assert_eq!(line.join(","), "every=1s,most=10737418240,share=none");
        read("toy", &line.join(","), &mut set).unwrap();
        assert_eq!(set, some());
    }

    #[test]
    fn errors_name_column_cause_and_remedy() {
        assert_eq!(
            refused("every=1s,colour=red"),
            "policy `toy:every=1s,colour=red`, column 14: `toy` has no setting `colour`; choose from \
             every, most, share"
        );
        assert!(refused("every=5").contains("column 5: every: `5` is not a time"));
        assert!(refused("most=-1").contains("`-1` is not a size"));
        assert!(refused("share=NaN").contains("`NaN` is not a number"));
        assert!(refused("every").contains("`every` is not key=value"));
        assert!(refused("every=1s,every=2s").contains("`every` is given twice"));
        assert!(refused("every=0s").contains("policy `toy` cannot be set so: `every` is zero"));
        assert!(refused("most=1e30").contains("is not a size"));
    }
}
