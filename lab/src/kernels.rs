//! `kernels.toml`: the kernel matrix.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::error::{Context, Error, Kind, Result};
use crate::paths;

/// Contents of `kernels.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Matrix {
    /// Features by key.
    pub features: BTreeMap<String, Feature>,
    /// Kernels of `make test`, oldest first.
    #[serde(rename = "kernel")]
    pub kernels: Vec<Kernel>,
    /// Kernels of `make test-kernels` only.
    #[serde(default)]
    pub further: Vec<Kernel>,
    /// Kernels of `make test-debug-kernel`, built here.
    #[serde(default)]
    pub built: Vec<Kernel>,
}

/// An optional feature of kernels.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Feature {
    /// Readable name of the feature.
    pub title: String,
    /// Configuration symbols, all of which must be enabled.
    pub symbols: Vec<String>,
}

impl Feature {
    /// Whether the kernel with this configuration file has it.
    #[must_use]
    pub fn in_config(&self, config: &str) -> bool {
        let set = |symbol: &String| {
            config.lines().any(|l| l == format!("{symbol}=y") || l == format!("{symbol}=m"))
        };
        self.symbols.iter().all(set)
    }
}

/// One kernel.
#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "Entry")]
pub struct Kernel {
    /// Short name, as in `--kernel 6.12`.
    pub name: String,
    /// Short description.
    pub about: String,
    /// Place of its packages.
    pub source: Source,
    /// Suite with the libraries of its build tools, where this machine's are too old.
    pub libraries: Option<String>,
    /// Whether the lab can boot it; if not, our modules are only built for it.
    pub boots: bool,
}

/// Place of a kernel's packages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// The newest that apt's package lists name.
    Lists {
        /// Meta package of the image.
        image: String,
        /// Meta package of the headers.
        headers: String,
        /// Suite of Debian's archive, if not this machine's own.
        suite: Option<String>,
    },
    /// The pool of the archive.
    Pool(Pinned),
    /// Built here.
    Built(Built),
}

/// A kernel that is built here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Built {
    /// Package with the source.
    pub package: String,
    /// Suite of Debian's archive, if not this machine's own.
    pub suite: Option<String>,
    /// Fragments of its configuration in `lab/built`.
    pub configs: Vec<String>,
    /// Directory of patches to its source, in `patches`.
    pub patches: Option<String>,
}

impl Built {
    /// What ends its release: the name of the last fragment, which makes it what it is.
    #[must_use]
    pub fn flavour(&self) -> &str {
        self.configs.last().map_or("", String::as_str)
    }
}

/// One version of a kernel.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pinned {
    /// Version of its packages.
    pub version: String,
    /// Release without the flavour.
    pub release: String,
}

impl Kernel {
    /// Suite of Debian's archive, if not this machine's own.
    #[must_use]
    pub fn suite(&self) -> Option<&str> {
        match &self.source {
            Source::Lists { suite, .. } => suite.as_deref(),
            Source::Pool(_) => None,
            Source::Built(built) => built.suite.as_deref(),
        }
    }
}

/// A kernel as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    about: String,
    image: Option<String>,
    headers: Option<String>,
    suite: Option<String>,
    pinned: Option<Pinned>,
    source: Option<String>,
    #[serde(default)]
    configs: Vec<String>,
    patches: Option<String>,
    libraries: Option<String>,
    boots: Option<bool>,
}

impl TryFrom<Entry> for Kernel {
    type Error = String;

    fn try_from(entry: Entry) -> std::result::Result<Self, String> {
        let Entry { name, about, libraries, boots, .. } = entry;
        let (suite, configs, patches) = (entry.suite, entry.configs, entry.patches);
        let source = match (entry.image, entry.headers, entry.pinned, entry.source) {
            (Some(image), Some(headers), None, None) if configs.is_empty() => {
                Source::Lists { image, headers, suite }
            }
            (None, None, Some(pinned), None) if suite.is_none() && configs.is_empty() => {
                Source::Pool(pinned)
            }
            (None, None, None, Some(package)) if !configs.is_empty() => {
                Source::Built(Built { package, suite, configs, patches })
            }
            _ => {
                let ways = "image and headers, or pinned, or source and configs";
                return Err(format!("kernel {name}: either {ways}"));
            }
        };
        Ok(Kernel { name, about, source, libraries, boots: boots.unwrap_or(true) })
    }
}

impl Matrix {
    /// Reads `lab/kernels.toml`.
    pub fn load() -> Result<Self> {
        let path = paths::lab().join("kernels.toml");
        Self::parse(&std::fs::read_to_string(&path).at(path.display())?)
    }

    /// Parses a table.
    pub fn parse(text: &str) -> Result<Self> {
        toml::from_str(text).map_err(|e| {
            Error::new(Kind::Usage, "lab/kernels.toml", e.to_string().replace('\n', " "))
        })
    }

    /// All kernels of Debian, those of `make test` first.
    pub fn all(&self) -> impl Iterator<Item = &Kernel> {
        self.kernels.iter().chain(&self.further)
    }

    /// All kernels of Debian, then those built here.
    pub fn every(&self) -> impl Iterator<Item = &Kernel> {
        self.all().chain(&self.built)
    }

    /// The kernel called `name`.
    ///
    /// # Errors
    /// Unknown kernel; the error lists the known ones.
    pub fn kernel(&self, name: &str) -> Result<&Kernel> {
        self.every().find(|k| k.name == name).ok_or_else(|| {
            let known: Vec<&str> = self.every().map(|k| k.name.as_str()).collect();
            Error::new(Kind::Usage, format!("kernel {name}"), "not in kernels.toml")
                .remedy(format!("one of: {}", known.join(", ")))
        })
    }

    /// Short names of the kernels of `make test`.
    pub fn names(&self) -> Vec<&str> {
        self.kernels.iter().map(|k| k.name.as_str()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOY: &str = r#"
        [features]
        damon = { title = "DAMON", symbols = ["CONFIG_DAMON_VADDR", "CONFIG_DAMON_SYSFS"] }
        [[kernel]]
        name = "6.1"
        about = "toy"
        image = "linux-image-amd64"
        headers = "linux-headers-amd64"
        [[further]]
        name = "6.16"
        about = "toy"
        pinned = { version = "6.16-1", release = "6.16" }
    "#;

    #[test]
    fn the_table_in_the_tree_is_sound() {
        let matrix = Matrix::load().unwrap();
        assert_eq!(matrix.names(), ["6.1", "6.12", "newest"]);
        let mut names: Vec<&str> = matrix.every().map(|k| k.name.as_str()).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count, "each kernel has a name of its own");
    }

    #[test]
    fn a_feature_is_there_when_all_its_symbols_are_set() {
        let matrix = Matrix::parse(TOY).unwrap();
        let both = "CONFIG_DAMON_VADDR=y\nCONFIG_DAMON_SYSFS=m\n";
        let one = "CONFIG_DAMON_VADDR=y\n# CONFIG_DAMON_SYSFS is not set\n";
        assert!(matrix.features["damon"].in_config(both));
        assert!(!matrix.features["damon"].in_config(one));
    }

    #[test]
    fn a_kernel_comes_from_lists_or_from_the_pool() {
        let matrix = Matrix::parse(TOY).unwrap();
        assert_eq!(matrix.names(), ["6.1"]);
        assert!(matches!(matrix.kernel("6.16").unwrap().source, Source::Pool(_)));
        let both = TOY.replace("image = \"linux-image-amd64\"", "");
        let error = Matrix::parse(&both).unwrap_err().to_string();
        assert!(
            error.contains("kernel 6.1: either image and headers, or pinned, or source"),
            "{error}"
        );
    }

    #[test]
    fn a_kernel_may_be_built_here_of_source_and_fragments() {
        let built = "[[built]]\nname = '6.12-x'\nabout = ''\nsource = 's'\nconfigs = ['a', 'b']\n";
        let matrix = Matrix::parse(&(TOY.to_owned() + built)).unwrap();
        let Source::Built(built) = &matrix.kernel("6.12-x").unwrap().source else { panic!() };
        assert_eq!(built.flavour(), "b");
        assert!(matrix.all().all(|kernel| kernel.name != "6.12-x"), "no kernel of Debian");
        assert!(Matrix::parse(&TOY.replace("pinned", "configs = ['a']\npinned")).is_err());
    }

    #[test]
    fn unknown_kernels_and_fields_are_refused() {
        assert_eq!(
            Matrix::parse(TOY).unwrap().kernel("5.4").unwrap_err().to_string(),
            "kernel 5.4: not in kernels.toml (one of: 6.1, 6.16)"
        );
        assert!(Matrix::parse(&TOY.replace("about", "abuot")).is_err());
    }
}
