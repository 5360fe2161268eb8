//! Intrusive page lists in one flat array.
//!
//! A page is on at most one list, so two links suffice, whatever the number of lists. With its list
//! number, its size and a policy's payload, a page takes at most [`Node`]'s 16 bytes: 0.4 % of 4
//! KiB, 8 GiB for 2 TiB. Lists with trails use 12 of them for the node and 4 for
//! the trail.

use super::hint_ring::HintRing;

/// Null link: no page.
const NIL: u32 = u32::MAX;

/// Number of a list; its meaning is up to the policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ListId(pub(crate) u8);

impl ListId {
    /// List number of tracked pages on no list: being moved, or not sorted yet.
    const LOOSE: ListId = ListId(254);
    /// List number of untracked pages.
    const UNKNOWN: ListId = ListId(255);
}

/// Links and payload of a page.
#[derive(Clone, Copy, Debug)]
struct Node<P> {
    /// Link to the neighbour towards the tail.
    next: u32,
    /// Link to the neighbour towards the head.
    prev: u32,
    /// The policy's per-page data.
    payload: P,
    list: ListId,
    /// log2 of the number of 4 KiB pages in it.
    order: u8,
}

impl<P: Default> Default for Node<P> {
    fn default() -> Self {
        Self { next: NIL, prev: NIL, payload: P::default(), list: ListId::UNKNOWN, order: 0 }
    }
}

/// Head, tail and size of a list.
#[derive(Clone, Debug)]
struct List {
    head: u32,
    tail: u32,
    /// Number of pages on the list, of any size.
    count: u32,
    /// Total size of the pages on the list, in units of 4 KiB.
    small: u64,
    /// Hints at the pages next to the tail.
    trail: HintRing,
}

impl Default for List {
    fn default() -> Self {
        Self { head: NIL, tail: NIL, count: 0, small: 0, trail: HintRing::default() }
    }
}

/// All pages that a policy tracks, and its lists.
#[derive(Clone, Debug)]
pub(crate) struct Lists<P> {
    nodes: Vec<Node<P>>,
    lists: Vec<List>,
    known: u64,
    /// Whether lists record prefetch hints.
    trails: bool,
}

impl<P: Copy + Default> Lists<P> {
    /// Bytes per tracked 4 KiB page, without trails.
    pub(crate) const PAGE_BYTES: usize = size_of::<Node<P>>();

    /// Bytes per tracked 4 KiB page, with trails.
    pub(crate) const TRAILED_BYTES: usize = size_of::<Node<P>>() + size_of::<u32>();

    /// Creates `lists` empty lists.
    pub(crate) fn new(lists: usize) -> Self {
        const { assert!(size_of::<Node<P>>() <= 16, "at most 16 bytes a page") };
        assert!(lists <= usize::from(ListId::LOOSE.0), "lists have small numbers");
        Self { nodes: Vec::new(), lists: vec![List::default(); lists], known: 0, trails: false }
    }

    /// Creates `lists` empty lists with trails: four more bytes per page, but scans of long lists
    /// have fewer cache misses in sequence.
    pub(crate) fn with_trails(lists: usize) -> Self {
        Self { trails: true, ..Self::new(lists) }
    }

    /// Reserves memory for pages below `pages`.
    pub(crate) fn reserve(&mut self, pages: u32) {
        let more = (pages as usize).saturating_sub(self.nodes.len());
        self.nodes.reserve_exact(more);
    }

    /// Begins to track a page; it is on no list yet.
    pub(crate) fn add(&mut self, page: u32, order: u8) {
        let index = page as usize;
        if index >= self.nodes.len() {
            self.nodes.resize(index + 1, Node::default());
        }
        debug_assert!(!self.knows(page), "{page} is known");
        self.nodes[index] = Node { order, list: ListId::LOOSE, ..Node::default() };
        self.known += 1;
    }

    /// Stops tracking a page.
    pub(crate) fn forget(&mut self, page: u32) {
        self.take(page);
        self.nodes[page as usize] = Node::default();
        self.known -= 1;
    }

    pub(crate) fn knows(&self, page: u32) -> bool {
        self.nodes.get(page as usize).is_some_and(|node| node.list != ListId::UNKNOWN)
    }

    /// Payload of a page, if it is tracked.
    #[inline]
    pub(crate) fn known_mut(&mut self, page: u32) -> Option<&mut P> {
        let node = self.nodes.get_mut(page as usize)?;
        (node.list != ListId::UNKNOWN).then_some(&mut node.payload)
    }

    /// Number of tracked pages, of any size.
    pub(crate) fn known(&self) -> u64 {
        self.known
    }

    /// The list that the page is on, and its payload.
    #[inline]
    pub(crate) fn on(&self, page: u32) -> Option<(ListId, &P)> {
        let node = self.nodes.get(page as usize)?;
        (node.list < ListId::LOOSE).then_some((node.list, &node.payload))
    }

    /// The list that the page is on.
    #[inline]
    pub(crate) fn list_of(&self, page: u32) -> Option<ListId> {
        let list = self.nodes.get(page as usize)?.list;
        (list < ListId::LOOSE).then_some(list)
    }

    #[inline]
    pub(crate) fn order(&self, page: u32) -> u8 {
        self.nodes[page as usize].order
    }

    #[inline]
    pub(crate) fn bytes(&self, page: u32) -> u64 {
        tierscope_core::PAGE_SIZE << self.order(page)
    }

    #[inline]
    pub(crate) fn payload(&self, page: u32) -> &P {
        &self.nodes[page as usize].payload
    }

    #[inline]
    pub(crate) fn payload_mut(&mut self, page: u32) -> &mut P {
        &mut self.nodes[page as usize].payload
    }

    /// Extends the array to all page numbers of a huge page, whose payloads hold subpage data.
    pub(crate) fn cover(&mut self, page: u32, pages: u32) {
        let end = page as usize + pages as usize;
        if end > self.nodes.len() {
            self.nodes.resize(end, Node::default());
        }
    }

    /// Payload slot of a subpage, which is not tracked as a page of its own.
    pub(crate) fn extra(&self, subpage: u32) -> &P {
        debug_assert!(!self.knows(subpage), "{subpage} is a page");
        &self.nodes[subpage as usize].payload
    }

    /// Mutable payload slot of a subpage.
    pub(crate) fn extra_mut(&mut self, subpage: u32) -> &mut P {
        debug_assert!(!self.knows(subpage), "{subpage} is a page");
        &mut self.nodes[subpage as usize].payload
    }

    /// Four more bytes in a subpage's slot, in place of an unused link.
    pub(crate) fn spare(&self, subpage: u32) -> u32 {
        debug_assert!(!self.knows(subpage), "{subpage} is a page");
        self.nodes[subpage as usize].next
    }

    /// Sets the four bytes of [`Lists::spare`].
    pub(crate) fn set_spare(&mut self, subpage: u32, value: u32) {
        debug_assert!(!self.knows(subpage), "{subpage} is a page");
        self.nodes[subpage as usize].next = value;
    }

    /// Number of pages on the list, of any size.
    pub(crate) fn count(&self, list: ListId) -> u32 {
        self.lists[usize::from(list.0)].count
    }

    /// Total bytes of the pages on the list.
    pub(crate) fn list_bytes(&self, list: ListId) -> u64 {
        self.lists[usize::from(list.0)].small * tierscope_core::PAGE_SIZE
    }

    /// Removes a page from its list, if it is on one.
    #[inline]
    pub(crate) fn take(&mut self, page: u32) {
        let Node { next, prev, list, order, .. } = self.nodes[page as usize];
        if list >= ListId::LOOSE {
            return;
        }
        self.link(list, prev, next);
        let ends = &mut self.lists[usize::from(list.0)];
        ends.count -= 1;
        ends.small -= 1 << order;
        let node = &mut self.nodes[page as usize];
        (node.next, node.prev, node.list) = (NIL, NIL, ListId::LOOSE);
    }

    /// Links two adjacent pages of a list; `NIL` means the list's end.
    #[inline]
    fn link(&mut self, list: ListId, before: u32, after: u32) {
        let ends = &mut self.lists[usize::from(list.0)];
        match before {
            NIL => ends.head = after,
            page => self.nodes[page as usize].next = after,
        }
        match after {
            NIL => ends.tail = before,
            page => self.nodes[page as usize].prev = before,
        }
    }

    /// Moves a page to the head of a list.
    #[inline]
    pub(crate) fn push_head(&mut self, list: ListId, page: u32) {
        let List { head, tail, .. } = &self.lists[usize::from(list.0)];
        if *head == page {
            return;
        }
        if *tail == page {
            return self.rotate(list);
        }
        self.take(page);
        let head = self.lists[usize::from(list.0)].head;
        self.put(list, (NIL, page, head));
        self.leave_trail(list, page);
    }

    #[inline]
    fn leave_trail(&mut self, list: ListId, page: u32) {
        if self.trails {
            let ends = &mut self.lists[usize::from(list.0)];
            ends.trail.push(page, ends.count as usize);
        }
    }

    /// Visits up to `most` pages from the tail on, with number, order and payload. With trails, the
    /// pages that are likely to be among them are prefetched together.
    pub(crate) fn meet_tail(
        &mut self,
        list: ListId,
        most: u32,
        mut meet: impl FnMut(u32, u8, &mut P),
    ) -> u32 {
        self.warm(list, most as usize);
        let List { tail, trail, .. } = &mut self.lists[usize::from(list.0)];
        let (mut page, mut met) = (*tail, 0);
        while page != NIL && met < most {
            let node = &mut self.nodes[page as usize];
            meet(page, node.order, &mut node.payload);
            if self.trails {
                trail.met(page);
            }
            (page, met) = (node.prev, met + 1);
        }
        met
    }

    /// Loads the pages that the visit is about to meet, as independent cache misses.
    fn warm(&self, list: ListId, most: usize) {
        let trail = &self.lists[usize::from(list.0)].trail;
        let hints = (0..most).map_while(|index| trail.get(index));
        let read = hints.fold(0, |sum: u32, page| {
            sum ^ self.nodes.get(page as usize).map_or(0, |node| node.prev)
        });
        std::hint::black_box(read);
    }

    /// Moves the tail to the head of a list of at least two pages: the usual step of a clock's
    /// hand.
    #[inline]
    fn rotate(&mut self, list: ListId) {
        let ends = &mut self.lists[usize::from(list.0)];
        let (head, page) = (ends.head, ends.tail);
        let tail = std::mem::replace(&mut self.nodes[page as usize].prev, NIL);
        (ends.head, ends.tail) = (page, tail);
        self.nodes[page as usize].next = head;
        self.nodes[tail as usize].next = NIL;
        self.nodes[head as usize].prev = page;
        self.leave_trail(list, page);
    }

    /// Moves a page to the tail of a list.
    #[inline]
    pub(crate) fn push_tail(&mut self, list: ListId, page: u32) {
        self.take(page);
        let tail = self.lists[usize::from(list.0)].tail;
        self.put(list, (tail, page, NIL));
    }

    #[inline]
    fn put(&mut self, list: ListId, (before, page, after): (u32, u32, u32)) {
        self.link(list, before, page);
        self.link(list, page, after);
        let node = &mut self.nodes[page as usize];
        (node.prev, node.next, node.list) = (before, after, list);
        let ends = &mut self.lists[usize::from(list.0)];
        ends.count += 1;
        ends.small += 1 << node.order;
    }

    pub(crate) fn head(&self, list: ListId) -> Option<u32> {
        some(self.lists[usize::from(list.0)].head)
    }

    pub(crate) fn tail(&self, list: ListId) -> Option<u32> {
        some(self.lists[usize::from(list.0)].tail)
    }

    /// The list's pages, from tail to head.
    pub(crate) fn tail_first(&self, list: ListId) -> impl Iterator<Item = u32> + '_ {
        let tail = self.tail(list);
        std::iter::successors(tail, |page| some(self.nodes[*page as usize].prev))
    }

    /// The list's pages, from head to tail.
    pub(crate) fn head_first(&self, list: ListId) -> impl Iterator<Item = u32> + '_ {
        let head = self.head(list);
        std::iter::successors(head, |page| some(self.nodes[*page as usize].next))
    }

    /// The first tracked page with at least this number.
    pub(crate) fn next_known(&self, from: u32) -> Option<u32> {
        let rest = self.nodes.get(from as usize..)?;
        let ahead = rest.iter().position(|node| node.list != ListId::UNKNOWN)?;
        Some(from + ahead as u32)
    }
}

#[inline]
fn some(page: u32) -> Option<u32> {
    (page != NIL).then_some(page)
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    const A: ListId = ListId(0);
    const B: ListId = ListId(1);

    fn on(lists: &Lists<u8>, list: ListId) -> Vec<u32> {
        let forth: Vec<u32> = lists.head_first(list).collect();
        let mut back: Vec<u32> = lists.tail_first(list).collect();
        back.reverse();
        assert_eq!(forth, back);
        forth
    }

    #[test]
    fn pages_go_from_list_to_list() {
        let mut lists = Lists::<u8>::new(2);
        for page in [3, 1, 7] {
            lists.add(page, 0);
            lists.push_head(A, page);
        }
        assert_eq!(on(&lists, A), [7, 1, 3]);
        lists.push_head(B, 1);
        lists.push_tail(B, 3);
        assert_eq!((on(&lists, A), on(&lists, B)), (vec![7], vec![1, 3]));
        lists.forget(1);
        assert_eq!((on(&lists, B), lists.known(), lists.knows(1)), (vec![3], 2, false));
    }

    // A huge page counts as one page, and as 512 of 4 KiB in bytes.
    #[test]
    fn sizes_count() {
        let mut lists = Lists::<u8>::new(1);
        lists.add(0, 9);
        lists.add(512, 0);
        lists.push_head(A, 0);
        lists.push_head(A, 512);
        assert_eq!((lists.count(A), lists.list_bytes(A)), (2, 513 << 12));
        lists.take(0);
        assert_eq!((lists.count(A), lists.list_bytes(A), lists.list_of(0)), (1, 1 << 12, None));
    }

    #[test]
    fn sixteen_bytes_hold_a_page_and_its_payload() {
        assert_eq!((Lists::<u8>::PAGE_BYTES, Lists::<u32>::PAGE_BYTES), (12, 16));
    }

    proptest! {
        #[test]
        fn lists_equal_queues(steps in prop::collection::vec((0u8..4, 0u32..8, 0u8..2), 0..200)) {
            let mut lists = Lists::<u8>::with_trails(2);
            let mut naive = [VecDeque::new(), VecDeque::new()];
            for (what, page, list) in steps {
                naive.iter_mut().for_each(|queue| queue.retain(|known| *known != page));
                if !lists.knows(page) {
                    lists.add(page, 0);
                }
                match what {
                    0 => { lists.push_head(ListId(list), page); naive[usize::from(list)].push_front(page); }
                    1 => { lists.push_tail(ListId(list), page); naive[usize::from(list)].push_back(page); }
                    2 => lists.take(page),
                    _ => lists.forget(page),
                }
                for list in 0..2u8 {
                    prop_assert_eq!(on(&lists, ListId(list)), Vec::from(naive[usize::from(list)].clone()));
                    prop_assert_eq!(lists.count(ListId(list)) as usize, naive[usize::from(list)].len());
                    let mut tail = Vec::new();
                    let met = lists.meet_tail(ListId(list), 3, |page, _, _| tail.push(page));
                    prop_assert_eq!(met as usize, tail.len());
                    let wanted: Vec<u32> = naive[usize::from(list)].iter().rev().take(3).copied().collect();
                    prop_assert_eq!(tail, wanted);
                }
            }
        }
    }
}
