//! NUMA nodes of a process's ranges, queried from the kernel (move_pages(2) without target nodes).

use std::collections::BTreeMap;

use tierscope_core::{Error, ErrorKind, PAGE_SIZE, Range, Result};

/// Pages per call of move_pages(2).
const BATCH: usize = 4096;

/// Bytes of whole pages per node; pages that are not resident are left out.
///
/// # Errors
/// The process has exited or may not be queried, or the kernel has no NUMA support.
pub fn bytes_by_node(pid: u32, ranges: &[Range]) -> Result<BTreeMap<u32, u64>> {
    let pages = ranges
        .iter()
        .flat_map(|range| (range.start & !(PAGE_SIZE - 1)..range.end).step_by(PAGE_SIZE as usize));
    let mut pages: Vec<u64> = pages.collect();
    pages.sort_unstable();
    pages.dedup();
    let mut sums = BTreeMap::new();
    for batch in pages.chunks(BATCH) {
        let mut nodes = vec![-1; batch.len()];
        query(pid, batch, &mut nodes)?;
        for node in nodes.iter().filter_map(|node| u32::try_from(*node).ok()) {
            *sums.entry(node).or_default() += PAGE_SIZE;
        }
    }
    Ok(sums)
}

fn query(pid: u32, pages: &[u64], nodes: &mut [i32]) -> Result<()> {
    let nowhere = std::ptr::null::<i32>();
    // SAFETY: the kernel reads `pages.len()` addresses, only queries them as there are no target
    // nodes, and writes as many numbers to `nodes`.
    let done = unsafe {
        libc::syscall(
            libc::SYS_move_pages,
            pid as libc::pid_t,
            pages.len(),
            pages.as_ptr(),
            nowhere,
            nodes.as_mut_ptr(),
            0,
        )
    };
    if done == 0 {
        return Ok(());
    }
    let what = format!("cannot query the nodes of pages of process {pid}");
    Err(Error::new(ErrorKind::Gone, what)
        .cause(std::io::Error::last_os_error())
        .remedy("check that it runs, and be root"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierscope_core::SpaceId;

    #[test]
    fn our_own_pages_are_somewhere() {
        let data = vec![1u8; 10 * 4096];
        let start = (data.as_ptr() as u64 + 4095) & !4095;
        let range = |from: u64, to: u64| Range::new(SpaceId(0), start + from, start + to);
        let overlapping = [range(0, 5000), range(4096, 12288)];
        match bytes_by_node(std::process::id(), &overlapping) {
            Ok(found) => assert_eq!(found.values().sum::<u64>(), 3 * 4096),
            Err(error) => assert!(error.to_string().contains("not implemented"), "{error}"),
        }
    }
}
