//! `topologies.toml`: descriptions of NUMA machines, and their translation to QEMU's arguments.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;

use tierscope_hw::config::Machine;

use crate::error::{Context, Error, Kind, Result};
use crate::paths;

/// Contents of `topologies.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Topologies {
    /// NUMA machines by name.
    pub topology: BTreeMap<String, Topology>,
}

/// A NUMA machine.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Topology {
    /// Short description.
    pub about: String,
    /// Its nodes.
    pub nodes: Vec<Node>,
    /// The ready-made machine (crates/hw/machines) whose tiers correspond to the nodes, in the same
    /// order: the HMAT reports their latency and bandwidth. None: no HMAT.
    pub machine: Option<String>,
    /// SLIT distances, row by row; empty: no SLIT.
    #[serde(default)]
    pub distances: Vec<Vec<u8>>,
}

/// A NUMA node of a machine.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Node {
    /// Share of the machine's memory, 0..1.
    pub memory: f64,
    /// Share of the machine's CPUs, 0..1.
    pub cpus: f64,
    /// Whether its memory is a DIMM that can be removed from the running machine.
    #[serde(default)]
    pub removable: bool,
    /// The node's entries in the HMAT.
    #[serde(skip)]
    pub hmat: Option<Hmat>,
}

/// HMAT entries of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hmat {
    /// Read latency in ns.
    pub latency_ns: u32,
    /// Read bandwidth in MiB/s. QEMU requires that every node's is at most 65535 times the greatest
    /// common divisor of all.
    pub mib_s: u64,
}

impl Topologies {
    /// Reads `lab/topologies.toml`.
    pub fn load() -> Result<Self> {
        let path = paths::lab().join("topologies.toml");
        Self::parse(&std::fs::read_to_string(&path).at(path.display())?)
    }

    /// Parses a table and checks every machine in it.
    pub fn parse(text: &str) -> Result<Self> {
        let mut all: Topologies =
            toml::from_str(text).map_err(|e| bad(e.to_string().replace('\n', " ")))?;
        for (name, topology) in &mut all.topology {
            topology.check().map_err(|cause| bad(format!("{name}: {cause}")))?;
            topology.state_tiers().map_err(|cause| bad(format!("{name}: {cause}")))?;
        }
        Ok(all)
    }

    /// The NUMA machine called `name`.
    pub fn get(&self, name: &str) -> Result<&Topology> {
        let names: Vec<&str> = self.topology.keys().map(String::as_str).collect();
        self.topology.get(name).ok_or_else(|| {
            Error::new(Kind::Usage, format!("topology {name}"), "not in topologies.toml")
                .remedy(format!("one of: {}", names.join(", ")))
        })
    }
}

fn bad(cause: String) -> Error {
    Error::new(Kind::Usage, "lab/topologies.toml", cause)
}

impl Topology {
    fn check(&self) -> std::result::Result<(), &'static str> {
        let whole = |share: fn(&Node) -> f64| {
            (self.nodes.iter().map(share).sum::<f64>() - 1.0).abs() < 1e-9
        };
        let stays = self.nodes.iter().any(|node| !node.removable);
        let square = self.distances.is_empty()
            || (self.distances.len() == self.nodes.len()
                && self.distances.iter().all(|row| row.len() == self.nodes.len()));
        match () {
            () if !whole(|n| n.memory) => Err("the nodes' shares of memory do not add up to 1"),
            () if !whole(|n| n.cpus) => Err("the nodes' shares of CPUs do not add up to 1"),
            () if !stays => Err("all nodes are removable"),
            () if !square => Err("distances want one row and one column a node"),
            () => Ok(()),
        }
    }

    /// Fills in the HMAT entries of all nodes.
    fn state_tiers(&mut self) -> std::result::Result<(), String> {
        let Some(name) = &self.machine else { return Ok(()) };
        let machine = Machine::ready_made(name).map_err(|error| error.to_string())?;
        if machine.tiers.len() != self.nodes.len() {
            let (tiers, nodes) = (machine.tiers.len(), self.nodes.len());
            return Err(format!("{name} has {tiers} tiers for {nodes} nodes"));
        }
        for (node, tier) in self.nodes.iter_mut().zip(&machine.tiers) {
            let (latency_ns, mib_s) = (tier.read_ns, tier.read_mib_s);
            node.hmat = Some(Hmat { latency_ns, mib_s });
        }
        Ok(())
    }

    /// QEMU's arguments for a machine of `memory_mb` MiB and `cpus` CPUs. With `files` the memory
    /// of node N is the shared file `ram-N` in that directory.
    pub fn qemu_args(&self, memory_mb: u64, cpus: u32, files: Option<&Path>) -> Vec<String> {
        let hmat = self.nodes.iter().all(|n| n.hmat.is_some());
        let mut machine = if hmat { "q35,hmat=on" } else { "q35" }.to_owned();
        let numa = self.nodes.len() > 1;
        if files.is_some() && !numa {
            machine += ",memory-backend=m0";
        }
        let mut args = Vec::from(pair("-machine", machine));
        args.extend(pair("-smp", format!("{cpus},sockets={}", self.sockets(cpus))));
        args.extend(pair("-m", self.size(memory_mb)));
        if files.is_some() || numa {
            args.extend(self.memory_args(memory_mb, files));
        }
        if numa {
            args.extend(self.node_args(cpus));
            args.extend(self.distance_args());
        }
        if hmat {
            args.extend(self.hmat_args());
        }
        args
    }

    /// Number of sockets. No socket may span two nodes: the kernel would warn.
    fn sockets(&self, cpus: u32) -> u32 {
        let nodes = self.nodes.iter().filter(|n| n.cpus > 0.0).count() as u32;
        if cpus.is_multiple_of(nodes) { nodes } else { cpus }
    }

    /// Memory of each node in MiB.
    #[must_use]
    pub fn node_mb(&self, memory_mb: u64) -> Vec<u64> {
        let mut left = memory_mb;
        let last = self.nodes.len() - 1;
        let share = |(number, node): (usize, &Node)| {
            let share = if number == last { left } else { (memory_mb as f64 * node.memory) as u64 };
            left -= share;
            share
        };
        self.nodes.iter().enumerate().map(share).collect()
    }

    /// Size of the memory that the machine starts with, and of all that it may have.
    fn size(&self, memory_mb: u64) -> String {
        let of = self.nodes.iter().zip(self.node_mb(memory_mb));
        let removable = of.filter(|(node, _)| node.removable).map(|(_, size)| size);
        let (dimms, size) = removable.fold((0, 0), |(dimms, sum), size| (dimms + 1, sum + size));
        match dimms {
            0 => format!("{memory_mb}M"),
            _ => format!("{}M,slots={dimms},maxmem={}M", memory_mb - size, memory_mb + size),
        }
    }

    fn memory_args(&self, memory_mb: u64, files: Option<&Path>) -> Vec<String> {
        let backend = |(node, size): (usize, u64)| {
            let object = match files {
                None => format!("memory-backend-ram,id=m{node},size={size}M"),
                Some(files) => {
                    let path = files.join(format!("ram-{node}"));
                    let path = path.display();
                    format!("memory-backend-file,id=m{node},size={size}M,mem-path={path},share=on")
                }
            };
            pair("-object", object)
        };
        self.node_mb(memory_mb).into_iter().enumerate().flat_map(backend).collect()
    }

    fn node_args(&self, cpus: u32) -> Vec<String> {
        let (mut args, mut next_cpu) = (Vec::new(), 0);
        for (i, node) in self.nodes.iter().enumerate() {
            let count = (f64::from(cpus) * node.cpus).round() as u32;
            let cpus_arg = match count {
                0 => String::new(),
                n => format!(",cpus={}-{}", next_cpu, next_cpu + n - 1),
            };
            next_cpu += count;
            let memory = if node.removable { String::new() } else { format!(",memdev=m{i}") };
            args.extend(pair(
                "-numa",
                format!("node,nodeid={i}{memory}{cpus_arg}{}", self.initiator(node)),
            ));
            if node.removable {
                args.extend(pair("-device", format!("pc-dimm,id=dimm{i},memdev=m{i},node={i}")));
            }
        }
        args
    }

    /// Argument for a node without CPUs: with an HMAT it has to name its initiator node.
    fn initiator(&self, node: &Node) -> String {
        match self.nodes.iter().position(|n| n.cpus > 0.0) {
            Some(first) if node.cpus == 0.0 && node.hmat.is_some() => {
                format!(",initiator={first}")
            }
            _ => String::new(),
        }
    }

    fn distance_args(&self) -> Vec<String> {
        let all = self.distances.iter().enumerate();
        let cells = all.flat_map(|(src, row)| {
            row.iter().enumerate().map(move |(dst, value)| (src, dst, value))
        });
        cells
            .flat_map(|(src, dst, value)| {
                pair("-numa", format!("dist,src={src},dst={dst},val={value}"))
            })
            .collect()
    }

    fn hmat_args(&self) -> Vec<String> {
        let mut args = Vec::new();
        for (initiator, _) in self.nodes.iter().enumerate().filter(|(_, n)| n.cpus > 0.0) {
            let stated =
                self.nodes.iter().enumerate().filter_map(|(at, node)| Some((at, node.hmat?)));
            for (target, Hmat { latency_ns: latency, mib_s: bandwidth }) in stated {
                let lb = format!("hmat-lb,initiator={initiator},target={target},hierarchy=memory");
                args.extend(pair(
                    "-numa",
                    format!("{lb},data-type=access-latency,latency={latency}"),
                ));
                args.extend(pair(
                    "-numa",
                    format!("{lb},data-type=access-bandwidth,bandwidth={bandwidth}M"),
                ));
            }
        }
        args
    }
}

fn pair(option: &str, value: String) -> [String; 2] {
    [option.to_owned(), value]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_in_the_tree_is_sound() {
        let all = Topologies::load().unwrap();
        assert!(all.topology.contains_key("flat") && all.topology.contains_key("two-tiers"));
    }

    #[test]
    fn a_flat_machine_needs_no_numa_arguments() {
        let all = Topologies::load().unwrap();
        assert_eq!(
            all.get("flat").unwrap().qemu_args(1024, 2, None),
            ["-machine", "q35", "-smp", "2,sockets=1", "-m", "1024M"]
        );
    }

    #[test]
    fn tiers_share_memory_and_state_their_latency() {
        let args = Topologies::load()
            .unwrap()
            .get("two-tiers")
            .unwrap()
            .qemu_args(1025, 2, None)
            .join(" ");
        assert!(args.contains("memory-backend-ram,id=m0,size=512M"), "{args}");
        assert!(args.contains("memory-backend-ram,id=m1,size=513M"), "{args}");
        assert!(args.contains("node,nodeid=0,memdev=m0,cpus=0-1 "), "{args}");
        assert!(args.contains("node,nodeid=1,memdev=m1,initiator=0"), "{args}");
        assert!(args.contains("dist,src=1,dst=0,val=20"), "{args}");
        assert!(
            args.contains(
                "initiator=0,target=1,hierarchy=memory,data-type=access-latency,latency=250"
            ),
            "{args}"
        );
    }

    // Of 1280 MiB, 512 are a DIMM: the machine starts with 768, and may have one more as large.
    #[test]
    fn memory_that_can_be_removed_is_a_dimm() {
        let args = Topologies::load()
            .unwrap()
            .get("removable")
            .unwrap()
            .qemu_args(1280, 2, None)
            .join(" ");
        assert!(args.contains("-m 768M,slots=1,maxmem=1792M"), "{args}");
        assert!(args.contains("-numa node,nodeid=1 -device pc-dimm,id=dimm1,memdev=m1,node=1"));
        let toy = "[topology.t]\nabout = 'x'\nnodes = [{ memory = 1, cpus = 1, removable = true }]";
        let error = Topologies::parse(toy).unwrap_err().to_string();
        assert_eq!(error, "lab/topologies.toml: t: all nodes are removable");
    }

    #[test]
    fn files_hold_the_memory_of_every_node() {
        let all = Topologies::load().unwrap();
        let flat = all.get("flat").unwrap().qemu_args(1024, 2, Some(Path::new("/run"))).join(" ");
        assert!(flat.contains("q35,memory-backend=m0"), "{flat}");
        assert!(flat.contains("size=1024M,mem-path=/run/ram-0,share=on"), "{flat}");
        let two = all.get("two-tiers").unwrap();
        assert_eq!(two.node_mb(1025), [512, 513]);
        let args = two.qemu_args(1025, 2, Some(Path::new("/run"))).join(" ");
        assert!(args.contains("id=m1,size=513M,mem-path=/run/ram-1"), "{args}");
    }

    #[test]
    fn shares_that_do_not_add_up_are_refused() {
        let toy = "[topology.t]\nabout = 'x'\nnodes = [{ memory = 0.5, cpus = 1.0 }]\n";
        let error = |text: &str| Topologies::parse(text).unwrap_err().to_string();
        assert_eq!(
            error(toy),
            "lab/topologies.toml: t: the nodes' shares of memory do not add up to 1"
        );
        let one =
            "[topology.t]\nabout = 'x'\nmachine = 'MACHINE'\nnodes = [{ memory = 1, cpus = 1 }]\n";
        assert!(error(&one.replace("MACHINE", "abacus")).contains("no ready-made machine abacus"));
        let two = error(&one.replace("MACHINE", "qemu-two-tiers"));
        assert!(two.contains("qemu-two-tiers has 2 tiers for 1 nodes"), "{two}");
    }
}
