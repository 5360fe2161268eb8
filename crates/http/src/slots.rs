//! Counts connections, and limits them: in total, of each client, and so that no client can keep
//! another one from the reserved resources.
//!
//! A new connection is in the *lobby* until its request is there. If the lobby is full, the oldest
//! connection of the client with most of them is cut: clients that send nothing only displace each
//! other. Then the request takes a *slot*, or is refused with a 503.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::net::{Shutdown, shutdown};

use crate::listener::Peer;

/// Limits on the number of connections.
#[derive(Clone, Copy, Debug)]
pub struct Most {
    /// Connections whose request is not there yet.
    pub lobby: usize,
    /// Requests in progress.
    pub requests: usize,
    /// Of them, of one client.
    pub of_a_peer: usize,
    /// Requests for reserved resources in progress, in addition.
    pub reserved: usize,
}

/// The open connections.
#[derive(Debug, Default)]
pub(super) struct Slots(Mutex<Open>);

#[derive(Debug, Default)]
struct Open {
    /// Number of the next connection.
    next: u64,
    lobby: BTreeMap<u64, (Peer, Arc<OwnedFd>)>,
    requests: Vec<Peer>,
    reserved: usize,
}

impl Slots {
    fn lock(&self) -> MutexGuard<'_, Open> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Admits a connection to the lobby.
    pub(super) fn enter(&self, most: &Most, peer: Peer, client: &Arc<OwnedFd>) -> Ticket<'_> {
        let mut open = self.lock();
        if open.lobby.len() >= most.lobby {
            open.cut_one();
        }
        let number = open.next;
        open.next += 1;
        open.lobby.insert(number, (peer, Arc::clone(client)));
        Ticket { slots: self, number, peer }
    }
}

impl Open {
    /// Cuts the oldest connection of the client that has most connections in the lobby.
    fn cut_one(&mut self) {
        let mut of = BTreeMap::<Peer, (usize, u64)>::new();
        for (number, (peer, _)) in self.lobby.iter().rev() {
            let (count, oldest) = of.entry(*peer).or_default();
            (*count, *oldest) = (*count + 1, *number);
        }
        let cut = of.into_values().max_by_key(|(count, oldest)| (*count, u64::MAX - oldest));
        if let Some((_, client)) = cut.and_then(|(_, oldest)| self.lobby.remove(&oldest)) {
            // Its thread is waiting for the request, and reads the end of it now.
            let _ = shutdown(&*client, Shutdown::Both);
        }
    }

    fn may_take(&self, most: &Most, peer: Peer) -> bool {
        let own = self.requests.iter().filter(|other| **other == peer).count();
        self.requests.len() < most.requests && own < most.of_a_peer
    }
}

/// A place in the lobby, left on drop.
#[derive(Debug)]
pub(super) struct Ticket<'a> {
    slots: &'a Slots,
    number: u64,
    peer: Peer,
}

impl<'a> Ticket<'a> {
    /// A slot for the request of this connection, if one is free.
    pub(super) fn slot(&self, most: &Most, reserved: bool) -> Option<Slot<'a>> {
        let mut open = self.slots.lock();
        let of = if reserved && open.reserved < most.reserved {
            open.reserved += 1;
            None
        } else if open.may_take(most, self.peer) {
            open.requests.push(self.peer);
            Some(self.peer)
        } else {
            return None;
        };
        open.lobby.remove(&self.number);
        Some(Slot { slots: self.slots, of })
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        self.slots.lock().lobby.remove(&self.number);
    }
}

/// The slot of a request, released on drop.
#[derive(Debug)]
pub(super) struct Slot<'a> {
    slots: &'a Slots,
    /// The client; `None` for a reserved slot.
    of: Option<Peer>,
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        let mut open = self.slots.lock();
        match self.of {
            None => open.reserved -= 1,
            Some(peer) => {
                let at = open.requests.iter().position(|other| *other == peer);
                at.into_iter().for_each(|at| _ = open.requests.swap_remove(at));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{ErrorKind, Read};
    use std::os::unix::net::UnixStream;

    const MOST: Most = Most { lobby: 3, requests: 3, of_a_peer: 2, reserved: 1 };
    const ONE: Peer = Peer::User(1);
    const OTHER: Peer = Peer::User(2);

    /// A connection as the server has it, and the client's end.
    fn pair() -> (Arc<OwnedFd>, UnixStream) {
        let (server, client) = UnixStream::pair().unwrap();
        client.set_nonblocking(true).unwrap();
        (Arc::new(server.into()), client)
    }

    fn is_cut(mut client: &UnixStream) -> bool {
        match client.read(&mut [0]) {
            Ok(bytes) => bytes == 0,
            Err(error) => error.kind() != ErrorKind::WouldBlock,
        }
    }

    // One client has two connections without a request, the other one. A second one of the other
    // client displaces the first client's older one; then the other client has most.
    #[test]
    fn a_full_lobby_cuts_the_oldest_of_the_busiest_client() {
        let slots = Slots::default();
        let ends: Vec<_> = (0..5).map(|_| pair()).collect();
        let enter = |peer, at: usize| slots.enter(&MOST, peer, &ends[at].0);
        let cut = || (0..5).filter(|at| is_cut(&ends[*at].1)).collect::<Vec<_>>();
        let _first = [enter(OTHER, 0), enter(ONE, 1), enter(ONE, 2)];
        assert!(cut().is_empty());
        let _fourth = enter(OTHER, 3);
        assert_eq!(cut(), [1]);
        let _fifth = enter(ONE, 4);
        assert_eq!(cut(), [0, 1]);
    }

    #[test]
    fn a_left_place_is_free_again() {
        let slots = Slots::default();
        let (server, client) = pair();
        for _ in 0..9 {
            drop(slots.enter(&MOST, ONE, &server));
        }
        assert!(slots.lock().lobby.is_empty() && !is_cut(&client));
    }

    // Three requests in progress, two of a client, and one for a reserved resource.
    #[test]
    fn slots_are_limited_in_total_and_of_each_client() {
        let slots = Slots::default();
        let (server, _client) = pair();
        let [one, other] = [ONE, OTHER].map(|peer| slots.enter(&MOST, peer, &server));
        let first = one.slot(&MOST, false).unwrap();
        let _second = one.slot(&MOST, false).unwrap();
        assert!(one.slot(&MOST, false).is_none(), "it has two");
        let _third = other.slot(&MOST, false).unwrap();
        assert!(other.slot(&MOST, false).is_none(), "all are taken");
        let reserved = one.slot(&MOST, true).unwrap();
        assert!(
            other.slot(&MOST, true).is_none(),
            "neither a reserved slot nor another one is free"
        );
        drop(reserved);
        assert!(other.slot(&MOST, true).is_some());
        drop(first);
        assert!(one.slot(&MOST, false).is_some());
    }
}
