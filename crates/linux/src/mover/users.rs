//! The process through which pages are found, moved or reclaimed. Memory of a process's own space
//! has one; of processes that share memory, each may have mapped other pages of it.

use std::io;

use super::kernel::Kernel;
use super::paging::Paged;
use crate::space_owners::User;

/// Where pages are.
#[derive(Debug)]
pub(crate) struct Found {
    /// Node of each page, or a negative error number.
    pub(crate) nodes: Vec<i32>,
    /// Index of the user that has mapped the page.
    through: Vec<Option<usize>>,
    /// The error of the last call, if no call succeeded.
    pub(crate) failed: Option<io::Error>,
}

/// Pages that are handled by one call, with the process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lead {
    pub(crate) user: User,
    /// Number of pages, from the first one on: up to one that another process has mapped, or that
    /// lies in another 2 MiB of the process.
    pub(crate) pages: usize,
}

/// Queries the nodes of pages: every user is asked about pages that no user before has mapped.
pub(crate) fn locate(kernel: &mut dyn Kernel, users: &[User], pages: &[u64]) -> Found {
    ask(users, pages, |user, addresses, nodes| kernel.locate(user.owner.pid, addresses, nodes))
}

/// Finds out by pagemaps which user has mapped which of the pages, which are consecutive. Nodes are
/// not queried: that of a page in memory or in swap is 0.
pub(crate) fn mapped(kernel: &mut dyn Kernel, users: &[User], pages: &[u64]) -> Found {
    ask(users, pages, |user, addresses, nodes| {
        let (Some(first), Some(last)) = (addresses.first(), addresses.last()) else {
            return Ok(());
        };
        let mut paged = vec![Paged::Absent; ((last - first) / 4096 + 1) as usize];
        kernel.paged(user.owner.pid, *first, &mut paged)?;
        for (address, node) in addresses.iter().zip(nodes) {
            if paged[((address - first) / 4096) as usize] != Paged::Absent {
                *node = 0;
            }
        }
        Ok(())
    })
}

fn ask(
    users: &[User],
    pages: &[u64],
    mut query: impl FnMut(&User, &[u64], &mut [i32]) -> io::Result<()>,
) -> Found {
    let mut found = Found {
        nodes: vec![-libc::ENOENT; pages.len()],
        through: vec![None; pages.len()],
        failed: None,
    };
    let mut answered = false;
    for (number, user) in users.iter().enumerate() {
        let missing = |index: &usize| {
            let at = pages[*index];
            found.nodes[*index] < 0 && user.range.start <= at && at < user.range.end
        };
        let missing: Vec<usize> = (0..pages.len()).filter(missing).collect();
        if missing.is_empty() {
            continue;
        }
        let addresses: Vec<u64> = missing.iter().map(|index| user.address(pages[*index])).collect();
        let mut nodes = vec![-libc::ENOENT; addresses.len()];
        match query(user, &addresses, &mut nodes) {
            Ok(()) => answered = true,
            Err(error) => {
                found.failed = Some(error);
                continue;
            }
        }
        for (index, node) in missing.into_iter().zip(nodes) {
            found.nodes[index] = node;
            found.through[index] = (node >= 0).then_some(number);
        }
    }
    found.failed = found.failed.filter(|_| !answered);
    found
}

impl Found {
    /// The process of the first page that any process has mapped; the first user, for all pages, if
    /// none has. `None` without users.
    pub(crate) fn lead(&self, users: &[User], pages: &[u64]) -> Option<Lead> {
        let Some(first) = self.through.iter().position(Option::is_some) else {
            return users.first().map(|user| Lead { user: *user, pages: pages.len() });
        };
        let through = self.through[first];
        let user = *users.get(through?)?;
        let block = |index: usize| user.address(pages[index]) >> 21;
        let is_other = |index: &usize| match self.through[*index] {
            None => false,
            other => other != through || block(*index) != block(first),
        };
        let end = (first..pages.len()).find(is_other).unwrap_or(pages.len());
        Some(Lead { user, pages: end })
    }
}

#[cfg(test)]
mod tests {
    use super::super::fake::{Fake, PID, page, sharing};
    use super::*;
    use tierscope_core::{Range, SpaceId};

    // Eight pages: the first process has mapped pages 0 to 2, the second one all but page 7.
    #[test]
    fn pages_are_found_through_the_process_that_has_mapped_them() {
        let mut fake = Fake::with_pages(8, 1);
        let users = sharing(&mut fake, 8, &[3, 4, 5, 6, 7], &[7]);
        let pages: Vec<u64> = (0..8).map(|number| users[0].range.start + number * 4096).collect();
        let found = locate(&mut fake, &users, &pages);
        assert_eq!(found.nodes, [1, 1, 1, 1, 1, 1, 1, -libc::ENOENT]);
        let lead = found.lead(&users, &pages).unwrap();
        assert_eq!((lead.user.owner.pid, lead.pages), (PID, 3));
        let rest = &pages[3..];
        let lead = locate(&mut fake, &users, rest).lead(&users, rest).unwrap();
        assert_eq!((lead.user.owner.pid, lead.pages), (PID + 1, 5), "an absent page is no border");
        let found = mapped(&mut fake, &users, &pages);
        assert_eq!(found.lead(&users, &pages).unwrap().pages, 3);
    }

    #[test]
    fn a_process_that_ended_hides_no_page_of_the_others() {
        let mut fake = Fake::with_pages(2, 1);
        let mut users = sharing(&mut fake, 2, &[], &[]);
        users[0].owner.pid = 5;
        let pages = [users[0].range.start, users[0].range.start + 4096];
        let found = locate(&mut fake, &users, &pages);
        assert!(found.failed.is_none() && found.nodes == [1, 1]);
        let found = locate(&mut fake, &users[..1], &pages);
        assert!(found.failed.is_some());
    }

    // Pages 510 to 513 of the memory are the last two and the first two of 2 MiB of the process.
    #[test]
    fn a_call_does_not_cross_two_mebibytes_of_the_process() {
        let mut fake = Fake::with_pages(600, 1);
        let owner = crate::space_owners::Owner { space: SpaceId(0), pid: PID, started: 0 };
        let range = Range::new(SpaceId(1), 0, 4 * 4096);
        let user = User { owner, range, at: page(510), with_others: true };
        let pages = [0, 4096, 2 * 4096, 3 * 4096];
        let lead = locate(&mut fake, &[user], &pages).lead(&[user], &pages).unwrap();
        assert_eq!(lead.pages, 2);
    }
}
