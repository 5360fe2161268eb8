//! A fake kernel for tests: pages of one process on two nodes; time advances as pages move.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use tierscope_core::{Node, Range, SpaceId, Time};

use super::brakes::Switch;
use super::kernel::{Kernel, NodeMemory};
use super::paging::Paged;
use crate::space_owners::{Owner, User};

pub(crate) const PID: u32 = 77;
/// Address of page 0, aligned to 2 MiB.
const BASE: u64 = 1 << 30;

pub(crate) fn page(number: u64) -> u64 {
    BASE + number * 4096
}

/// The fake kernel, with nodes 0 and 1.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fake {
    pub(crate) now: u64,
    /// Node of every resident page.
    pages: BTreeMap<u64, i32>,
    pinned: BTreeSet<u64>,
    shared: BTreeSet<u64>,
    /// Addresses of huge pages.
    pub(crate) huge: BTreeSet<u64>,
    /// Free pages of each node.
    pub(crate) room: [u64; 2],
    pub(crate) gone: bool,
    /// The process ends after this number of further pages has moved.
    pub(crate) dies_after: Option<u64>,
    pub(crate) offline: Option<u32>,
    /// PSI; `None` for a kernel without.
    pub(crate) stalled: Option<f64>,
    pub(crate) files: BTreeSet<PathBuf>,
    /// Files in directories that may not be searched.
    pub(crate) hidden: BTreeSet<PathBuf>,
    /// Time that moving a page takes, in ns.
    pub(crate) page_ns: u64,
    /// Start, end and moved bytes of each call.
    pub(crate) moves: Vec<(u64, u64, u64)>,
    /// Number of pages whose location was queried.
    pub(crate) located: u64,
    /// Pages in swap, with the node that they were on.
    swapped: BTreeMap<u64, i32>,
    /// Free pages of swap.
    swap_room: u64,
    /// Processes that share memory, in a space of its own.
    sharing: Vec<User>,
    /// Pages that a process has not mapped, although they are in memory.
    unmapped: BTreeSet<(u32, u64)>,
}

/// The space of the memory that processes [`PID`] and its successor share.
pub(crate) const SHARED: SpaceId = SpaceId(9);

/// Lets two processes share the first `pages` pages, each without having mapped some of them. The
/// shared space has the addresses plus 64 MiB.
pub(crate) fn sharing(fake: &mut Fake, pages: u64, first: &[u64], second: &[u64]) -> Vec<User> {
    let start = page(0) + (64 << 20);
    let range = Range::new(SHARED, start, start + pages * 4096);
    let user = |number: u32| User {
        owner: Owner { space: SpaceId(number), pid: PID + number, started: 0 },
        range,
        at: page(0),
        with_others: true,
    };
    fake.sharing = vec![user(0), user(1)];
    fake.unmapped.extend(first.iter().map(|number| (PID, page(*number))));
    fake.unmapped.extend(second.iter().map(|number| (PID + 1, page(*number))));
    fake.sharing.clone()
}

impl Fake {
    /// A process of `pages` pages, all on one node; each node has room for all of them.
    pub(crate) fn with_pages(pages: u64, node: i32) -> Self {
        let pages: BTreeMap<u64, i32> = (0..pages).map(|number| (page(number), node)).collect();
        let room = [pages.len() as u64; 2];
        Self { pages, room, page_ns: 2000, stalled: Some(0.0), ..Self::default() }
    }

    /// Sets the number of pages that are free in swap.
    pub(crate) fn swap(&mut self, pages: u64) {
        self.swap_room = pages;
    }

    pub(crate) fn swap_out(&mut self, number: u64) {
        if let Some(node) = self.pages.remove(&page(number)) {
            self.swapped.insert(page(number), node);
            self.swap_room -= 1;
        }
    }

    pub(crate) fn swap_in(&mut self, number: u64) {
        if let Some(node) = self.swapped.remove(&page(number)) {
            self.pages.insert(page(number), node);
            self.swap_room += 1;
        }
    }

    pub(crate) fn pin(&mut self, number: u64) {
        self.pinned.insert(page(number));
    }

    pub(crate) fn share(&mut self, number: u64) {
        self.shared.insert(page(number));
    }

    pub(crate) fn free_page(&mut self, number: u64) {
        self.pages.remove(&page(number));
    }

    pub(crate) fn put(&mut self, number: u64, node: i32) {
        self.pages.insert(page(number), node);
    }

    pub(crate) fn node_of(&self, number: u64) -> Option<i32> {
        self.pages.get(&page(number)).copied()
    }

    pub(crate) fn on(&self, node: i32) -> u64 {
        self.pages.values().filter(|on| **on == node).count() as u64
    }

    fn check(&mut self, pid: u32) -> io::Result<()> {
        let known = pid == PID || self.sharing.iter().any(|user| user.owner.pid == pid);
        if !known || self.gone {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        Ok(())
    }

    /// Address and number of 4 KiB pages of the page that contains an address.
    fn head(&self, at: u64) -> (u64, u64) {
        let head = at >> 21 << 21;
        if self.huge.contains(&head) { (head, 512) } else { (at, 1) }
    }
}

impl Kernel for Fake {
    fn now(&self) -> Time {
        Time(self.now)
    }

    fn users(&mut self, range: &Range) -> Vec<User> {
        if self.gone {
            return Vec::new();
        }
        if range.space == SHARED {
            let part = |user: &User| {
                let range = user.range.intersect(range)?;
                Some(User { range, at: user.address(range.start), ..*user })
            };
            return self.sharing.iter().filter_map(part).collect();
        }
        let owner = Owner { space: SpaceId(0), pid: PID, started: 0 };
        let user = User { owner, range: *range, at: range.start, with_others: false };
        if range.space == SpaceId(0) { vec![user] } else { Vec::new() }
    }

    fn locate(&mut self, pid: u32, pages: &[u64], nodes: &mut [i32]) -> io::Result<()> {
        self.check(pid)?;
        self.located += pages.len() as u64;
        for (at, node) in pages.iter().zip(nodes) {
            let mapped = !self.unmapped.contains(&(pid, *at));
            *node = self.pages.get(at).copied().filter(|_| mapped).unwrap_or(-libc::ENOENT);
        }
        Ok(())
    }

    /// Like mm/migrate.c: pages are put on a list of four, which is moved as a whole; a page that
    /// cannot be isolated gets its status immediately, one that cannot be moved ends the call.
    fn move_pages(
        &mut self,
        (pid, with_others): (u32, bool),
        pages: &[u64],
        node: Node,
        status: &mut [i32],
    ) -> io::Result<u64> {
        self.check(pid)?;
        if node.0 > 1 || self.offline == Some(node.0) {
            return Err(io::Error::from_raw_os_error(libc::ENODEV));
        }
        let began = self.now;
        let (to, mut bytes, mut left) = (node.0 as usize, 0, None);
        for (list, statuses) in pages.chunks(4).zip(status.chunks_mut(4)) {
            let mut queued = Vec::new();
            for (slot, at) in list.iter().enumerate() {
                let status = &mut statuses[slot];
                match self.pages.get(at) {
                    None => *status = -libc::ENOENT,
                    Some(_) if self.unmapped.contains(&(pid, *at)) => *status = -libc::ENOENT,
                    Some(on) if *on == node.0 as i32 => *status = *on,
                    Some(_) if self.shared.contains(at) && !with_others => *status = -libc::EACCES,
                    Some(from) => {
                        let (from, (head, count)) = (*from as usize, self.head(*at));
                        if self.dies_after == Some(0) {
                            self.gone = true;
                            return Err(io::Error::from_raw_os_error(libc::ESRCH));
                        }
                        if self.pinned.contains(at) {
                            left = Some(pages.len() as u64);
                            continue;
                        }
                        if self.room[to] < count {
                            self.moves.push((began, self.now, bytes));
                            return Err(io::Error::from_raw_os_error(libc::ENOMEM));
                        }
                        (0..count).for_each(|n| {
                            self.pages.insert(head + n * 4096, node.0 as i32);
                        });
                        self.room[to] -= count;
                        self.room[from] += count;
                        self.now += self.page_ns * count;
                        bytes += count * 4096;
                        self.dies_after = self.dies_after.map(|left| left - 1);
                        queued.push(slot);
                    }
                }
            }
            if left.is_some() {
                break;
            }
            queued.iter().for_each(|slot| statuses[*slot] = node.0 as i32);
        }
        self.moves.push((began, self.now, bytes));
        Ok(left.unwrap_or(0))
    }

    fn is_huge(&mut self, _: u32, page: u64) -> bool {
        self.huge.contains(&(page >> 21 << 21))
    }

    fn memory(&mut self, node: Node) -> Option<NodeMemory> {
        if self.offline == Some(node.0) {
            return None;
        }
        let free = self.room.get(node.0 as usize)? * 4096;
        let used = self.pages.values().filter(|on| **on == node.0 as i32).count() as u64 * 4096;
        Some(NodeMemory { total: free + used, free })
    }

    fn stalled(&mut self) -> Option<f64> {
        self.stalled
    }

    fn paged(&mut self, pid: u32, first: u64, pages: &mut [Paged]) -> io::Result<()> {
        self.check(pid)?;
        for (at, paged) in (first..).step_by(4096).zip(pages) {
            let mapped = !self.unmapped.contains(&(pid, at));
            *paged = match self.pages.contains_key(&at) && mapped {
                true if self.shared.contains(&at) => Paged::Shared,
                true => Paged::Own,
                false if self.swapped.contains_key(&at) => Paged::Swapped,
                false => Paged::Absent,
            };
        }
        Ok(())
    }

    /// Like mm/vmscan.c: pages that are shared, pinned, or find swap full remain resident, without
    /// an error.
    fn page_out(&mut self, pid: u32, at: u64, bytes: u64) -> io::Result<()> {
        self.check(pid)?;
        let began = self.now;
        let mut done = 0;
        for at in (at..at + bytes).step_by(4096) {
            let stays = self.shared.contains(&at) || self.pinned.contains(&at);
            if !stays && self.swap_room > 0 && self.pages.contains_key(&at) {
                self.swap_out((at - BASE) / 4096);
                self.now += self.page_ns;
                done += 4096;
            }
        }
        self.moves.push((began, self.now, done));
        Ok(())
    }

    fn swap_free(&mut self) -> Option<u64> {
        Some(self.swap_room * 4096)
    }

    fn switch(&mut self, path: &Path) -> Switch {
        match self.files.contains(path) {
            _ if self.hidden.contains(path) => Switch::Unreadable(libc::EACCES),
            true => Switch::On,
            false => Switch::Off,
        }
    }
}
