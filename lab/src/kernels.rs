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
    /// Kernels, oldest first.
    #[serde(rename = "kernel")]
    pub kernels: Vec<Kernel>,
    /// Kernels that are booted only by benchmarks, for features that only they have: our modules
    /// are not built for them.
    #[serde(default, rename = "peer")]
    pub peers: Vec<Kernel>,
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

/// One kernel.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kernel {
    /// Short name, as in `--kernel 6.12`.
    pub name: String,
    /// Short description.
    pub about: String,
    /// Debian meta package of the image.
    pub image: String,
    /// Debian meta package of the headers; None: no modules are built.
    #[serde(default)]
    pub headers: Option<String>,
    /// Suite of Debian's archive that contains the packages, if not this machine's own.
    #[serde(default)]
    pub suite: Option<String>,
    /// Whether it has each feature, by key of [`Matrix::features`].
    #[serde(default)]
    pub features: BTreeMap<String, bool>,
}

impl Matrix {
    /// Reads `lab/kernels.toml`.
    pub fn load() -> Result<Self> {
        let path = paths::lab().join("kernels.toml");
        Self::parse(&std::fs::read_to_string(&path).at(path.display())?)
    }

    /// Parses a table and checks that every kernel has an entry for every feature.
    pub fn parse(text: &str) -> Result<Self> {
        let matrix: Matrix =
            toml::from_str(text).map_err(|e| bad(e.to_string().replace('\n', " ")))?;
        for kernel in &matrix.kernels {
            if kernel.headers.is_none() {
                return Err(bad(format!(
                    "kernel {} has no headers to build modules with",
                    kernel.name
                )));
            }
            if !kernel.features.keys().eq(matrix.features.keys()) {
                return Err(bad(format!(
                    "kernel {} does not answer for exactly the features listed",
                    kernel.name
                )));
            }
        }
        Ok(matrix)
    }

    /// The kernel called `name`.
    ///
    /// # Errors
    /// Unknown kernel; the error lists the known ones.
    pub fn kernel(&self, name: &str) -> Result<&Kernel> {
        self.kernels.iter().chain(&self.peers).find(|k| k.name == name).ok_or_else(|| {
            Error::new(Kind::Usage, format!("kernel {name}"), "not in kernels.toml")
                .remedy(format!("one of: {}", self.names().join(", ")))
        })
    }

    /// All short names, excluding peers.
    pub fn names(&self) -> Vec<&str> {
        self.kernels.iter().map(|k| k.name.as_str()).collect()
    }

    /// Features for which the table disagrees with a kernel's configuration file.
    pub fn wrong_features(&self, kernel: &Kernel, config: &str) -> Vec<String> {
        let set = |symbol: &String| {
            config.lines().any(|l| l == format!("{symbol}=y") || l == format!("{symbol}=m"))
        };
        let differs =
            |declared: &bool, feature: &Feature| feature.symbols.iter().all(set) != *declared;
        let wrong = self.features.iter().filter(|(key, feature)| {
            kernel.features.get(*key).is_some_and(|declared| differs(declared, feature))
        });
        wrong.map(|(key, _)| key.clone()).collect()
    }
}

fn bad(cause: String) -> Error {
    Error::new(Kind::Usage, "lab/kernels.toml", cause)
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
        features = { damon = true }
    "#;

    #[test]
    fn the_table_in_the_tree_is_sound() {
        assert_eq!(Matrix::load().unwrap().names(), ["6.1", "6.12"]);
    }

    #[test]
    fn a_feature_holds_when_all_its_symbols_are_set() {
        let matrix = Matrix::parse(TOY).unwrap();
        let kernel = matrix.kernel("6.1").unwrap();
        let both = "CONFIG_DAMON_VADDR=y\nCONFIG_DAMON_SYSFS=m\n";
        let one = "CONFIG_DAMON_VADDR=y\n# CONFIG_DAMON_SYSFS is not set\n";
        assert!(matrix.wrong_features(kernel, both).is_empty());
        assert_eq!(matrix.wrong_features(kernel, one), ["damon"]);
    }

    #[test]
    fn unknown_kernels_and_silent_features_are_refused() {
        let matrix = Matrix::parse(TOY).unwrap();
        assert_eq!(
            matrix.kernel("5.4").unwrap_err().to_string(),
            "kernel 5.4: not in kernels.toml (one of: 6.1)"
        );
        assert!(Matrix::parse(&TOY.replace("damon = true", "")).is_err());
        assert!(Matrix::parse(&TOY.replace("about", "abuot")).is_err());
    }

    #[test]
    fn a_peer_needs_no_headers_a_kernel_of_the_matrix_does() {
        let peer = format!("{TOY}\n[[peer]]\nname = \"new\"\nabout = \"toy\"\nimage = \"i\"\n");
        let matrix = Matrix::parse(&peer).unwrap();
        assert_eq!(
            (matrix.names(), matrix.kernel("new").unwrap().name.as_str()),
            (vec!["6.1"], "new")
        );
        let headless = TOY.replace("headers = \"linux-headers-amd64\"", "");
        assert!(Matrix::parse(&headless).unwrap_err().to_string().contains("no headers"));
    }
}
