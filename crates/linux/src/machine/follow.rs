//! Follows the target: the processes that it has, and what they map.

use std::os::fd::{AsFd as _, AsRawFd as _};
use std::sync::Arc;
use std::time::Duration;

use tierscope_core::{Clock as _, Error, ErrorKind, Mappings, Result, Space, SpaceId};

use super::LiveMachine;
use crate::clock;
use crate::left_out::check_room;
use crate::pidfd;
use crate::proc::ProcessMaps;
use crate::process::{Process, share_memory};
use crate::shared_memory::Translation;

/// Maximum share of one CPU for reading mappings: 1/100. [`READING_LATE`] takes precedence.
const READING_SHARE: u32 = 100;
/// Maximum age of mappings, as a multiple of the requested age, if reading them takes long.
const READING_LATE: u32 = 10;
/// Part of the requested age after which mappings are read again if a process maps more or less.
const GROWN: u32 = 64;

impl LiveMachine {
    /// Updates the spaces: processes that ended, executed another program, or joined.
    pub(super) fn refresh(&mut self) -> Result<()> {
        self.left.clear();
        self.end_lost()?;
        self.update_members()
    }

    /// Ends the spaces of processes that exited or executed another program. Processes join here
    /// only in place of these; others wait for the next refresh: with many processes, a refresh for
    /// each exit would cost more than the observation.
    pub(super) fn end_exited(&mut self) -> Result<()> {
        self.left.clear();
        let exited = pidfd::exited(self.watched.iter().map(|w| &w.pidfd));
        let ended = self.watched.iter().zip(exited);
        let ended = ended.filter(|(w, exited)| *exited || !self.is_attached(w.space));
        let ended: Vec<SpaceId> = ended.map(|(w, _)| w.space).collect();
        self.leave(|w| ended.binary_search(&w.space).is_ok());
        let mut runs_on = self.watched.is_empty();
        for pid in &self.left {
            runs_on |= self.proc.is_user_process(*pid)?;
        }
        if runs_on { self.update_members() } else { Ok(()) }
    }

    fn is_attached(&self, space: SpaceId) -> bool {
        self.bits.as_ref().map_or(true, |bits| bits.is_attached(space))
    }

    fn end_lost(&mut self) -> Result<()> {
        let mut lost = Vec::new();
        for watched in &self.watched {
            let attached = match &mut self.bits {
                Ok(bits) => bits.is_here(watched.space)?,
                Err(_) => true,
            };
            if !watched.lives(&self.proc)? || !attached {
                lost.push(watched.space);
            }
        }
        self.leave(|w| lost.binary_search(&w.space).is_ok());
        Ok(())
    }

    fn update_members(&mut self) -> Result<()> {
        let known: Vec<u32> = self.watched.iter().map(|w| w.pid).collect();
        let members = self.roots.members(&self.proc, &known)?;
        self.leave(|w| members.binary_search(&w.pid).is_err());
        for pid in members {
            if !self.watched.iter().any(|w| w.pid == pid)
                && let Err(why) = self.join(pid)
            {
                self.left_out.add(pid, why);
            }
        }
        self.left_out.settle();
        Ok(())
    }

    /// Stops watching the processes that `gone` selects.
    fn leave(&mut self, gone: impl Fn(&Process) -> bool) {
        for watched in self.watched.extract_if(.., |w| gone(w)) {
            self.ended_cpu += watched.cpu_time();
            if let Ok(bits) = &mut self.bits {
                bits.detach(watched.space);
            }
            // What others inherited from it is listed in the space of another process from now on.
            self.stale |= self.translation.has_views_of(watched.space);
            self.left.push(watched.pid);
            self.ended = true;
            self.announce = true;
        }
    }

    /// Watches a process as a new space, unless it has ended or shares its parent's memory. After
    /// an error it is not watched.
    fn join(&mut self, pid: u32) -> Result<()> {
        let space = SpaceId(self.next_space);
        let had_a_space = self.left.contains(&pid);
        let born_here = |started| started > self.opened_ticks && !had_a_space;
        let found = Process::look_up(&self.proc, pid, space, |stat| born_here(stat.started))?;
        let Some(watched) = found.filter(|found| !self.shares_memory_of_parent(found)) else {
            return Ok(());
        };
        check_room(pid, watched.pidfd.as_fd().as_raw_fd())?;
        self.alarm.watch_exit(&watched.pidfd).map_err(|e| {
            Error::new(ErrorKind::Other, format!("cannot wait for process {pid}"))
                .cause(e)
                .remedy("watch fewer processes")
        })?;
        if let Ok(bits) = &mut self.bits {
            match bits.attach(space, pid, &watched.pidfd) {
                Err(error) if error.kind() == ErrorKind::NoTarget => return Ok(()),
                attached => attached?,
            }
        }
        self.watched.push(watched);
        self.next_space += 1;
        self.stale = true;
        self.announce = true;
        Ok(())
    }

    /// Between vfork and exec a child uses the memory of its parent, which is watched already: two
    /// spaces would clear each other's ACCESSED bits.
    fn shares_memory_of_parent(&self, child: &Process) -> bool {
        let parent = self.watched.iter().find(|w| w.pid == child.parent);
        parent.is_some_and(|parent| share_memory(parent.pid, child.pid))
    }

    /// Updates the spaces, and reads the mappings of all of them. If they are not due, only those
    /// of new processes, and of processes that grew, are read: of hundreds of processes, some do
    /// all the time.
    pub(super) fn update(&mut self, max_age: Duration) -> Result<()> {
        let before = clock::thread_cpu();
        let all = self.is_old(max_age) || self.known.spaces.is_empty() || self.has_new_program()?;
        if all {
            self.refresh()?;
        }
        self.read_mappings(all)?;
        (self.stale, self.ended) = (false, false);
        (self.read, self.reading) = (self.now(), clock::thread_cpu().saturating_sub(before));
        if all {
            (self.checked, self.checking, self.compared) = (self.read, self.reading, self.read);
        }
        Ok(())
    }

    /// Whether a process of those whose mappings are not known has executed another program.
    fn has_new_program(&mut self) -> Result<bool> {
        let Ok(bits) = &mut self.bits else { return Ok(false) };
        for watched in self.watched.iter().filter(|w| w.maps.is_none()) {
            if !bits.is_here(watched.space)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Reads the mappings of all spaces, or of those whose mappings are not known; keeps the same
    /// `Arc` if the layout is unchanged.
    fn read_mappings(&mut self, all: bool) -> Result<()> {
        let mut fresh = Mappings { taken: self.now(), ..Mappings::default() };
        let (mut processes, mut unreadable) = (Vec::new(), Vec::new());
        let keep = self.watched.len() > 1;
        for watched in &mut self.watched {
            fresh.spaces.push(Space { id: watched.space, name: Arc::clone(&watched.name) });
            let maps = match watched.maps.take().filter(|_| !all) {
                Some(known) => known,
                None => {
                    watched.mapped = self.proc.mapped_pages(watched.pid);
                    // A process that is ending has no mappings; the next refresh ends its space.
                    let read = self.proc.maps(watched.pid, watched.space, &mut self.names);
                    read.map(Option::unwrap_or_default).unwrap_or_else(|why| {
                        unreadable.push((watched.pid, why));
                        ProcessMaps::default()
                    })
                }
            };
            watched.maps = keep.then(|| maps.clone());
            processes.push(maps);
        }
        self.leave_out_unreadable(unreadable)?;
        let copied = self.numa_usage.copied();
        self.shared_memory.list(processes, &copied, &mut self.next_space, &mut fresh);
        if !fresh.same_layout(&self.known) {
            self.publish(fresh);
        }
        Ok(())
    }

    /// Counts processes whose mappings cannot be read as left out; an error if there are no others.
    fn leave_out_unreadable(&mut self, unreadable: Vec<(u32, Error)>) -> Result<()> {
        let all = unreadable.len() == self.watched.len();
        for (pid, why) in unreadable {
            if all {
                return Err(why);
            }
            self.left_out.add(pid, why);
        }
        Ok(())
    }

    /// Takes the spaces that ended out of the mappings, without reading the others again.
    pub(super) fn take_out_ended(&mut self) {
        if !std::mem::take(&mut self.ended) {
            return;
        }
        let mut rest = Mappings::clone(&self.known);
        let lives = |id: SpaceId| self.watched.binary_search_by_key(&id, |w| w.space).is_ok();
        rest.views.retain(|view| lives(view.range.space));
        let is_used = |space: &SpaceId| rest.views.iter().any(|view| view.memory.space == *space);
        rest.shared = rest.shared.filter(is_used);
        let stays = |id: SpaceId| rest.shared == Some(id) || lives(id);
        rest.spaces.retain(|space| stays(space.id));
        rest.mappings.retain(|mapping| stays(mapping.range.space));
        self.publish(rest);
    }

    /// Makes new mappings known to all parts that use them.
    fn publish(&mut self, mappings: Mappings) {
        self.known = Arc::new(mappings);
        self.names.tidy();
        self.translation = Arc::new(Translation::of(&self.known));
        if let Ok(bits) = &mut self.bits {
            bits.share(Arc::clone(&self.translation));
        }
        let owners = self.publish_owners();
        let heirs = self.shared_memory.heirs().collect();
        self.numa_usage.set(owners, Arc::clone(&self.known), heirs);
        if let Some(tiering) = &mut self.tiering {
            tiering.map(&self.known);
        }
    }

    /// Whether the mappings may be used at this maximum age.
    pub(super) fn is_fresh(&mut self, max_age: Duration) -> bool {
        if self.stale || self.is_old(max_age) {
            return false;
        }
        let (age, rest) = (self.now().since(self.read), self.reading * READING_SHARE);
        let soon = max_age / GROWN;
        age < soon.max(rest) || !self.has_grown(soon.max(self.comparing * READING_SHARE))
    }

    /// Whether all mappings have to be read again.
    fn is_old(&self, max_age: Duration) -> bool {
        let (age, rest) = (self.now().since(self.checked), self.checking * READING_SHARE);
        age > max_age.max(rest.min(max_age.saturating_mul(READING_LATE)))
    }

    /// Whether processes map more or less memory than when their mappings were read, which are read
    /// again then; `false` if that was compared less than `pause` ago.
    fn has_grown(&mut self, pause: Duration) -> bool {
        if self.now().since(self.compared) < pause {
            return false;
        }
        let (before, mut any) = (clock::thread_cpu(), false);
        for watched in &mut self.watched {
            if self.proc.mapped_pages(watched.pid) != watched.mapped {
                watched.maps = None;
                any = true;
            }
        }
        self.compared = self.now();
        self.comparing = clock::thread_cpu().saturating_sub(before);
        any
    }
}
