//! RAM of KVM guests, which access it through second-level tables: their accesses set no bit in the
//! page table of the process that runs them.
//!
//! A process that maps a vCPU runs a guest: no virtual machine monitor can run a vCPU without
//! mapping its `struct kvm_run` (Documentation/virt/kvm/api.rst, `KVM_RUN`). Which of its mappings
//! back the memory slots of the guest is visible to that process only. Its large writable mappings
//! are taken for them: RAM is at least that large, and what monitors map for themselves (heaps,
//! stacks, buffers of devices) is mostly smaller. Both errors are possible: a small guest is then
//! judged by its monitor's accesses, and a large cache of the monitor is called guest memory.

use std::collections::BTreeSet;

use tierscope_core::{Backing, Mappings, Range, RangeSet, SpaceId};

/// Start of the name of a mapped vCPU (virt/kvm/kvm_main.c: `create_vcpu_fd`).
const VCPU: &str = "anon_inode:kvm-vcpu";
/// Smallest mapping that is taken for RAM of a guest.
const GUEST_RAM: u64 = 64 << 20;

/// Whether any process runs a guest: has a vCPU mapped.
pub(crate) fn runs_guest(mappings: &Mappings) -> bool {
    mappings.mappings.iter().any(|mapping| mapping.name.starts_with(VCPU))
}

/// Memory that is taken for RAM of KVM guests.
pub(crate) fn guest_ram(mappings: &Mappings) -> RangeSet {
    let vcpus = mappings.mappings.iter().filter(|mapping| mapping.name.starts_with(VCPU));
    let monitors: BTreeSet<SpaceId> = vcpus.map(|mapping| mapping.range.space).collect();
    let is_ram = |range: &Range| range.bytes() >= GUEST_RAM && monitors.contains(&range.space);
    let own = mappings.mappings.iter().filter(|mapping| {
        let memory = matches!(mapping.backing, Backing::Anonymous | Backing::File);
        memory && mapping.writable && is_ram(&mapping.range)
    });
    // Also used by processes that serve the guest's devices.
    let shared = mappings.views.iter().filter(|view| is_ram(&view.range)).filter_map(|view| {
        let start = view.memory.at;
        let range = Range::new(view.memory.space, start, start + view.range.bytes());
        mappings.find(&range)?.writable.then_some(range)
    });
    own.map(|mapping| mapping.range).chain(shared).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierscope_core::{Addr, Mapping, SharedView};

    const MIB: u64 = 1 << 20;

    fn r(space: u32, from: u64, to: u64) -> Range {
        Range::new(SpaceId(space), from * MIB, to * MIB)
    }

    fn mapping(range: Range, name: &str) -> Mapping {
        let backing = if name.is_empty() { Backing::Anonymous } else { Backing::File };
        Mapping { range, backing, name: name.into(), writable: true, object: None }
    }

    // Space 0 runs a guest: 512 MiB of RAM, a heap of 63 MiB, and a file that it only reads. Space
    // 1 has as large a mapping and no vCPU.
    #[test]
    fn large_writable_mappings_of_a_process_with_vcpus_are_guest_memory() {
        let firmware = Mapping { writable: false, ..mapping(r(0, 1000, 1100), "/usr/firmware") };
        let mut mappings = Mappings {
            mappings: vec![
                mapping(r(0, 0, 512), ""),
                mapping(r(0, 600, 663), ""),
                firmware,
                mapping(r(0, 2000, 2001), "anon_inode:kvm-vcpu:0"),
                mapping(r(1, 0, 512), ""),
            ],
            ..Mappings::default()
        };
        assert_eq!(guest_ram(&mappings).as_slice(), [r(0, 0, 512)]);
        mappings.mappings[3].name = "anon_inode:[perf_event]".into();
        assert!(guest_ram(&mappings).is_empty());
    }

    // The RAM is a memfd that a device server, space 1, maps as well: space 2 lists it.
    #[test]
    fn shared_guest_memory_is_recognised_by_the_view_of_the_monitor() {
        let view = |space, at| SharedView {
            range: r(space, at, at + 128),
            memory: Addr { space: SpaceId(2), at: 1024 * MIB },
            name: "/memfd:ram".into(),
        };
        let mappings = Mappings {
            mappings: vec![
                mapping(r(0, 2000, 2001), "anon_inode:kvm-vcpu:0"),
                mapping(r(2, 1024, 1152), "/memfd:ram"),
            ],
            shared: Some(SpaceId(2)),
            views: vec![view(0, 0), view(1, 512)],
            ..Mappings::default()
        };
        assert_eq!(guest_ram(&mappings).as_slice(), [r(2, 1024, 1152)]);
    }
}
