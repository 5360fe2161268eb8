//! Dependencies between kernel modules, from depmod's `modules.dep` (modules.dep(5)).

use std::collections::HashMap;

use crate::error::{Error, Kind, Result};

/// The dependencies of one kernel's modules.
pub struct ModulesDep {
    by_name: HashMap<String, Entry>,
}

struct Entry {
    path: String,
    needs: Vec<String>,
}

impl ModulesDep {
    /// Parses `modules.dep` and `modules.builtin`; the latter lists built-in modules.
    pub fn parse(dep: &str, builtin: &str) -> Self {
        let mut by_name = HashMap::new();
        for (path, needs) in dep.lines().filter_map(|line| line.split_once(':')) {
            let needs = needs.split_whitespace().map(str::to_owned).collect();
            by_name.insert(name_of(path), Entry { path: path.to_owned(), needs });
        }
        for path in builtin.lines() {
            by_name.insert(name_of(path), Entry { path: String::new(), needs: Vec::new() });
        }
        ModulesDep { by_name }
    }

    /// Paths below /lib/modules/VERSION of `names` and all their dependencies, each once and after
    /// its own dependencies. Built-in modules have no path.
    ///
    /// # Errors
    /// A name that is neither a module nor built in.
    pub fn closure<S: AsRef<str>>(&self, names: &[S]) -> Result<Vec<String>> {
        let mut order: Vec<String> = Vec::new();
        for name in names {
            let entry = self.find(name.as_ref())?;
            // modules.dep lists dependencies in unloading order.
            let paths = entry.needs.iter().rev().chain(std::iter::once(&entry.path));
            for path in paths.filter(|path| !path.is_empty()) {
                if !order.contains(path) {
                    order.push(path.clone());
                }
            }
        }
        Ok(order)
    }

    fn find(&self, name: &str) -> Result<&Entry> {
        self.by_name.get(&name.replace('-', "_")).ok_or_else(|| {
            Error::new(
                Kind::Usage,
                format!("kernel module {name}"),
                "not in modules.dep of this kernel",
            )
            .remedy("correct `kernel_modules` of the scenario")
        })
    }
}

/// Module name for a path: `kernel/net/9p/9pnet-x.ko.xz` is called `9pnet_x`.
fn name_of(path: &str) -> String {
    let file = path.rsplit('/').next().unwrap_or(path);
    file.split('.').next().unwrap_or(file).replace('-', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEP: &str = "\
kernel/fs/9p/9p.ko.xz: kernel/net/9p/9pnet.ko.xz kernel/fs/netfs/netfs.ko.xz
kernel/net/9p/9pnet.ko.xz:
kernel/fs/netfs/netfs.ko.xz:
kernel/net/9p/9pnet_virtio.ko.xz: kernel/net/9p/9pnet.ko.xz
";
    const BUILTIN: &str = "kernel/drivers/virtio/virtio-pci.ko\n";

    #[test]
    fn needs_come_first_and_once() {
        let modules = ModulesDep::parse(DEP, BUILTIN);
        let order = modules.closure(&["9pnet_virtio", "9p", "virtio_pci"]).unwrap();
        assert_eq!(
            order,
            [
                "kernel/net/9p/9pnet.ko.xz",
                "kernel/net/9p/9pnet_virtio.ko.xz",
                "kernel/fs/netfs/netfs.ko.xz",
                "kernel/fs/9p/9p.ko.xz"
            ]
        );
    }

    #[test]
    fn dash_and_underscore_are_the_same() {
        let modules = ModulesDep::parse("kernel/a-b.ko: \n", "");
        assert_eq!(modules.closure(&["a_b"]).unwrap(), ["kernel/a-b.ko"]);
        assert_eq!(modules.closure(&["a-b"]).unwrap(), ["kernel/a-b.ko"]);
    }

    #[test]
    fn an_unknown_module_is_an_error_that_names_it() {
        let error = ModulesDep::parse(DEP, BUILTIN).closure(&["nosuch"]).unwrap_err();
        assert!(error.to_string().starts_with("kernel module nosuch: not in modules.dep"));
    }
}
