//! How connections end, and what is read and changed of them by others than packets.

use std::collections::VecDeque;

use arrayvec::ArrayVec;
use packet::Time;

use crate::buckets;
use crate::connection::{Connection, DirectionCounters, Ended, Reason};
use crate::ct_state::{Direction, Handle};
use crate::entry::{Control, Entry, Flags, Kept, Master, Side, cold, word};
use crate::places::{Due, time_of};
use crate::sync::{AtomicU64, Ordering};
use crate::table::Connections;
use crate::tcp;
use crate::timeout::{LONGEST, PolicyId, State, TICK_BITS, tick};
use crate::tuple::{Role, Tuple};
use types::Protocol;

/// Connections that may make room, of which the one used longest ago does.
const CANDIDATES: usize = 8;

/// A connection is read so often at most: others may change it meanwhile, but not for ever.
const READS: usize = 64;

/// The most that is said to have been made since somebody asked: more than a round can.
const MOST_SINCE: u64 = 4096;

/// Places looked at under one lock of their pool.
const AT_ONCE: u32 = 32;

/// What has come of taking a connection out.
enum TakenOut {
    Yes(Ended),
    /// It was used meanwhile, and is in the wheel again.
    Later,
    /// It is not there, or makes no room any more.
    Other,
}

impl Connections {
    /// Whether a connection's deadline has come.
    #[inline(always)]
    pub(crate) fn is_dead(&self, control: Control, own: &Side, peer: &Side, tick: u32) -> bool {
        let unused = |side: &Side| tick.wrapping_sub(side.tick()) as i32;
        let unused = unused(own).min(unused(peer)).max(0) as u32;
        let (policy, state) = (control.policy(), control.state());
        unused >= self.timeouts.ticks(policy, state)
            || state == State::Established
                && unused >= self.timeouts.ticks(policy, State::Unacknowledged)
                && is_uncertain(control, &[*own, *peer])
    }

    /// When a connection is dead, if it is not used until then.
    pub(crate) fn deadline(&self, control: Control, own: &Side, peer: &Side, now: Time) -> Time {
        let timeout = self.timeout(control, own, peer);
        let is_later = own.tick().wrapping_sub(peer.tick()) as i32 > 0;
        let seen = if is_later { own.tick() } else { peer.tick() };
        time_of(seen.wrapping_add(timeout), now)
    }

    /// How many ticks it may be unused.
    fn timeout(&self, control: Control, own: &Side, peer: &Side) -> u32 {
        let (policy, state) = (control.policy(), control.state());
        let timeout = self.timeouts.ticks(policy, state);
        if state == State::Established && is_uncertain(control, &[*own, *peer]) {
            return timeout.min(self.timeouts.ticks(policy, State::Unacknowledged));
        }
        timeout
    }

    /// How many connections were made since this was asked last, by whatever worker.
    pub fn made_since(&self) -> u32 {
        let made = self.counters.made.load(Ordering::Relaxed);
        let mut before = self.made_before.load(Ordering::Relaxed);
        if before != made {
            before = self.made_before.swap(made, Ordering::Relaxed);
        }
        made.saturating_sub(before).min(MOST_SINCE) as u32
    }

    /// Takes connections out whose deadline has come, in a bounded step: looks at `budget` places at
    /// most, and goes on there the next time. Returns how many it has
    /// looked at; fewer than `budget` says that nothing more is due. Each worker may call it once a
    /// round.
    pub fn expire(&self, now: Time, budget: u32, ended: &mut dyn FnMut(&[Ended])) -> u32 {
        let pools = self.places.pools();
        let mut done = 0;
        for _ in 0..pools {
            let pool = self.turn.fetch_add(1, Ordering::Relaxed);
            loop {
                let most = (budget - done).min(AT_ONCE);
                let mut dead = [0; AT_ONCE as usize];
                let mut count = 0;
                let coming = |index| self.prefetch_entry(index);
                let looked = self.places.look(pool, now, most, coming, |index| {
                    let (control, own, peer) =
                        Self::view(&self.entries[index as usize], Direction::Original);
                    if !control.is_live() {
                        // It is being made, or whoever ends it gives its place back.
                        return Due::At(now);
                    }
                    if !self.is_dead(control, &own, &peer, tick(now)) {
                        return Due::At(self.deadline(control, &own, &peer, now));
                    }
                    if let Some(place) = dead.get_mut(count) {
                        *place = index;
                        count += 1;
                    }
                    Due::Ended
                });
                let dead = &dead[..count];
                for hash in dead.iter().flat_map(|&index| self.hashes(index)) {
                    self.buckets.prefetch(hash);
                }
                let mut gone = ArrayVec::<_, { AT_ONCE as usize }>::new();
                let mut given = ArrayVec::<_, { AT_ONCE as usize }>::new();
                for &index in dead {
                    if let Some(end) = self.expire_one(index, now) {
                        given.push(index);
                        gone.push(end);
                    }
                }
                if !gone.is_empty() {
                    self.places.give_all(pool, &given);
                    self.count_ended(Reason::Expired, gone.len() as u64);
                    ended(&gone);
                }
                done += looked;
                if looked < most || done >= budget {
                    break;
                }
            }
            if done >= budget {
                break;
            }
        }
        done
    }

    /// Asks for the memory of a place.
    fn prefetch_entry(&self, index: u32) {
        let entry = &self.entries[index as usize];
        entry.lines.iter().chain([&entry.cold]).for_each(packet::prefetch);
    }

    /// The hashes of the tuples of the connection at a place.
    fn hashes(&self, index: u32) -> [u64; 2] {
        let cold = &self.entries[index as usize].cold;
        cold::HASHES.map(|word| cold.0[word].load(Ordering::Acquire))
    }

    /// Ends a connection that the wheel has handed out, or gives it back to the wheel. Its place is not
    /// given back yet.
    fn expire_one(&self, index: u32, now: Time) -> Option<Ended> {
        let control = self.control(index);
        if !control.is_live() {
            return None;
        }
        let handle = Handle { index, generation: control.generation() };
        match self.take_out(handle, Reason::Expired, now) {
            TakenOut::Yes(ended) => Some(ended),
            TakenOut::Later => None,
            TakenOut::Other => {
                // Another one may be there, which may be in the wheel twice.
                if self.control(index).is_live() {
                    self.places.schedule(index, now, now);
                }
                None
            }
        }
    }

    /// Ends a connection. False if it has ended before.
    pub fn remove(&self, handle: Handle, now: Time, ended: &mut dyn FnMut(&[Ended])) -> bool {
        self.end(handle, Reason::Deleted, now, ended)
    }

    /// A free place for a connection with this deadline, if there is one.
    pub(crate) fn free_place(&self, wanted: (u32, bool), due: Time, now: Time) -> Option<u32> {
        self.places.take(wanted, due, now, |next| self.prefetch_entry(next))
    }

    /// The same where there is none: somebody makes room, but for the connection at `spared`.
    pub(crate) fn make_place(
        &self,
        wanted: (u32, bool),
        spared: Option<u32>,
        due: Time,
        now: Time,
        ended: &mut dyn FnMut(&[Ended]),
    ) -> Option<u32> {
        let (_, is_wide) = wanted;
        let counter = match is_wide && self.places.has_free(false) {
            true => &self.counters.ipv6_full,
            false => &self.counters.without_place,
        };
        let take = || self.free_place(wanted, due, now);
        // Two tries: another worker may take the place that was made.
        let made = (0..2).find_map(|_| {
            if self.make_room(is_wide, spared, now, ended) {
                counter.fetch_add(1, Ordering::Relaxed);
            }
            take()
        });
        if made.is_some() {
            return made;
        }
        // All are assured; some are dead perhaps, and nobody has taken them out yet.
        self.expire(now, AT_ONCE, ended);
        let place = take();
        if place.is_none() {
            counter.fetch_add(1, Ordering::Relaxed);
        }
        place
    }

    /// Whether there is no free place, and nobody but `spared` who may make room for it or is dead.
    pub(crate) fn is_full(&self, is_wide: bool, spared: Option<u32>, now: Time) -> bool {
        let goes = |index: u32| {
            let (control, own, peer) =
                Self::view(&self.entries[index as usize], Direction::Original);
            control.is_live() && (control.may_go() || self.is_dead(control, &own, &peer, tick(now)))
        };
        !self.places.has_free(is_wide)
            && !(0..self.most(is_wide)).any(|index| Some(index) != spared && goes(index))
    }

    /// How many places there are.
    fn most(&self, is_wide: bool) -> u32 {
        match is_wide {
            true => self.settings.ipv6_connections,
            false => self.settings.connections,
        }
    }

    /// Whether somebody has.
    fn make_room(
        &self,
        is_wide: bool,
        spared: Option<u32>,
        now: Time,
        ended: &mut dyn FnMut(&[Ended]),
    ) -> bool {
        let limit = self.most(is_wide);
        let mut from = self.hand.load(Ordering::Relaxed);
        let mut best: Option<(u32, Handle)> = None;
        for _ in 0..CANDIDATES {
            let Some(index) = self.evictable.next(from, limit) else { break };
            from = index + 1;
            if Some(index) == spared {
                continue;
            }
            let (control, own, peer) =
                Self::view(&self.entries[index as usize], Direction::Original);
            if !control.may_go() {
                // A bit that came late.
                self.clear_evictable(index);
                continue;
            }
            let now = tick(now);
            let unused = |side: &Side| (now.wrapping_sub(side.tick()) as i32).max(0) as u32;
            let unused = unused(&own).min(unused(&peer));
            let handle = Handle { index, generation: control.generation() };
            if best.is_none_or(|(longest, _)| unused > longest) {
                best = Some((unused, handle));
            }
        }
        self.hand.store(from, Ordering::Relaxed);
        best.is_some_and(|(_, handle)| self.end(handle, Reason::EarlyDrop, now, ended))
    }

    /// Ends the first closed connection whose packets have become one of these. Returns which that is.
    pub fn end_closed(
        &self,
        zone: u16,
        translated: &mut dyn Iterator<Item = Tuple>,
        now: Time,
        ended: &mut dyn FnMut(&[Ended]),
    ) -> Option<Tuple> {
        let mut ended = translated.filter(|it| {
            let closed = self.closed(zone, it, now);
            closed.is_some_and(|handle| self.end(handle, Reason::EarlyDrop, now, ended))
        });
        ended.next()
    }

    /// The connection whose packets have become this, if it is closed.
    pub fn closed(&self, zone: u16, translated: &Tuple, now: Time) -> Option<Handle> {
        let (handle, direction) = self.lookup(zone, &translated.reversed(), now)?;
        let control = self.control(handle.index);
        let is_it = self.is_named(handle, control) && direction == Direction::Reply;
        (is_it && control.state().is_closed()).then_some(handle)
    }

    pub(crate) fn end(
        &self,
        handle: Handle,
        reason: Reason,
        now: Time,
        ended: &mut dyn FnMut(&[Ended]),
    ) -> bool {
        let TakenOut::Yes(end) = self.take_out(handle, reason, now) else {
            return false;
        };
        self.places.give(handle.index);
        self.count_ended(reason, 1);
        ended(&[end]);
        true
    }

    fn count_ended(&self, reason: Reason, count: u64) {
        self.counters.ended[reason as usize].fetch_add(count, Ordering::Relaxed);
    }

    /// Takes a connection out of the table. Its place is the caller's then, to be given back.
    fn take_out(&self, handle: Handle, reason: Reason, now: Time) -> TakenOut {
        let index = handle.index;
        let Some(entry) = self.entries.get(index as usize) else { return TakenOut::Other };
        // Those of another one, if this has ended since.
        let hashes = self.hashes(index);
        let locked = self.buckets.lock(hashes);
        // Tuples of a connection do not change, so these are its own if it still lives.
        let from = loop {
            let from = self.control(index);
            if !self.is_named(handle, from) {
                return TakenOut::Other;
            }
            // An answer that came before has assured it.
            if reason == Reason::EarlyDrop && !from.may_go() {
                return TakenOut::Other;
            }
            // A hit that came before has moved the deadline.
            if reason == Reason::Expired {
                let (_, own, peer) = Self::view(entry, Direction::Original);
                if !self.is_dead(from, &own, &peer, tick(now)) {
                    let due = self.deadline(from, &own, &peer, now);
                    self.places.schedule(index, due, now);
                    return TakenOut::Later;
                }
            }
            if self.change(index, from, from.ended()) {
                break from;
            }
        };
        if from.flags().has(Flags::PAIRED) {
            self.buckets.remove(hashes[0], index, buckets::ORIGINAL);
            self.buckets.remove(hashes[1], index, buckets::REPLY);
        } else {
            self.buckets.remove(hashes[0], index, buckets::ORIGINAL | buckets::REPLY);
        }
        let cold = |word: usize| entry.cold.0[word].load(Ordering::Acquire);
        let kept = Kept(cold(cold::KEPT));
        drop(locked);
        // Nobody else writes what a place had, before it is given back.
        if self.endings.are_followed() {
            self.endings.push(self.read(index, from, now));
        }
        let original = self.tuple(index, from.flags(), Direction::Original);
        let (counted, class) = (kept.counted(), kept.class());
        if counted.is_some() || class != 0 {
            let source = original.addresses.source();
            if let Some(counted) = counted {
                let identity = entry.lines[1].0[word::IDENTITY].load(Ordering::Acquire);
                self.limits.give((identity >> 48) as u16, source, counted);
            }
            self.limits.give_class(class, source);
        }
        self.expectations.forget(index);
        self.helpers.forget(index);
        TakenOut::Yes(Ended { reason, original, binding: cold(cold::BINDING) })
    }

    /// Has connections remembered as they were when they ended, or no longer: the last 16,384 that nobody
    /// has taken. One that ends while another worker handles a packet of it may lack that packet.
    pub fn follow_ended(&self, is_wanted: bool) {
        self.endings.follow(is_wanted);
    }

    /// Connections that have ended since this was asked last, the oldest first, whatever ended them. Each
    /// is here before its place is another one's. And how many were forgotten that had begun since as
    /// well, so that nobody can have seen them.
    pub fn take_ended(&self, now: Time) -> (VecDeque<Connection>, u64) {
        self.endings.take(now)
    }

    /// What there is to know of the connection at a place, if one lives there. Going through all
    /// places shows each connection that is there all the while.
    pub fn connection(&self, index: u32, now: Time) -> Option<Connection> {
        self.read_if(index, now, |_| true)
    }

    /// What there is to know of a connection now, whatever was changed of it since it was named so.
    /// `None` if it has ended.
    pub fn named(&self, handle: Handle, now: Time) -> Option<Connection> {
        self.read_if(handle.index, now, |control| self.is_named(handle, control))
    }

    fn read_if(
        &self,
        index: u32,
        now: Time,
        is_wanted: impl Fn(Control) -> bool,
    ) -> Option<Connection> {
        self.entries.get(index as usize)?;
        // Read again if it is changed meanwhile, or ends and another one comes.
        (0..READS).find_map(|_| {
            let control = self.control(index);
            if !control.is_live() {
                return Some(None);
            }
            let read = is_wanted(control).then(|| self.read(index, control, now));
            (self.control(index).generation() == control.generation()).then_some(read)
        })?
    }

    /// Whether a connection that is as `control` has it is the one that was named so.
    pub(crate) fn is_named(&self, handle: Handle, control: Control) -> bool {
        let kept =
            || self.entries[handle.index as usize].cold.0[cold::KEPT].load(Ordering::Acquire);
        let mut control = control;
        for _ in 0..READS {
            let present = control.generation();
            if !control.is_live() || present == handle.generation {
                return control.is_live();
            }
            let has_been = Kept(kept()).has_been(handle.generation, present);
            let now = self.control(handle.index);
            if now.generation() == present {
                return has_been;
            }
            // What was read may be another one's.
            control = now;
        }
        false
    }

    fn read(&self, index: u32, control: Control, now: Time) -> Connection {
        let entry = &self.entries[index as usize];
        let (_, own, peer) = Self::view(entry, Direction::Original);
        let load = |at: usize, word: usize| entry.lines[at].0[word].load(Ordering::Acquire);
        let cold = |word: usize| entry.cold.0[word].load(Ordering::Acquire);
        let identity = load(1, word::IDENTITY);
        let flags = control.flags();
        let counters = |at: usize| DirectionCounters {
            packets: load(at, word::PACKETS),
            bytes: load(at, word::BYTES),
        };
        let kept = Kept(cold(cold::KEPT));
        Connection {
            handle: Handle { index, generation: control.generation() },
            zone: (identity >> 48) as u16,
            original: self.tuple(index, flags, Direction::Original),
            reply: self.tuple(index, flags, Direction::Reply),
            state: control.state(),
            is_replied: flags.has(Flags::REPLIED),
            is_assured: flags.has(Flags::ASSURED),
            is_snat: flags.has(Flags::SNAT),
            is_dnat: flags.has(Flags::DNAT),
            master: self.master(Master(cold(cold::MASTER))),
            policy: PolicyId(control.policy()),
            mark: identity as u32,
            label: u128::from(cold(cold::LABEL_HIGH)) << 64 | u128::from(cold(cold::LABEL_LOW)),
            helper: kept.helper(),
            class: kept.class(),
            binding: cold(cold::BINDING),
            created: Time(cold(cold::CREATED)),
            deadline: self.deadline(control, &own, &peer, now),
            counters: [counters(0), counters(1)],
        }
    }

    /// Its place, if another connection has not come there since.
    fn master(&self, master: Master) -> Option<u32> {
        let index = master.index()?;
        let created =
            self.entries.get(index as usize)?.cold.0[cold::CREATED].load(Ordering::Acquire);
        (Master::new(index, created) == master).then_some(index)
    }

    /// What packets of a direction look like when they arrive.
    fn tuple(&self, index: u32, flags: Flags, direction: Direction) -> Tuple {
        let entry = &self.entries[index as usize];
        let load = |at: usize, word: usize| entry.lines[at].0[word].load(Ordering::Acquire);
        let identity = load(1, word::IDENTITY);
        // What packets of the other direction become, reversed.
        let other = direction.opposite();
        let ports = load(other.at(), word::PORTS);
        let words = match flags.has(Flags::V6) {
            true => self.wide_words(index, other),
            false => [load(other.at(), word::ADDRESSES), 0, 0, 0],
        };
        let role = match (identity >> 32 & 1, other) {
            (0, _) => Role::None,
            (_, Direction::Original) => Role::Query,
            (_, Direction::Reply) => Role::Answer,
        };
        let addresses = Tuple::addresses_of(words, flags.has(Flags::V6));
        let protocol = Protocol((identity >> 40) as u8);
        let (source, destination) = ((ports >> 48) as u16, (ports >> 32) as u16);
        Tuple { addresses, protocol, source, destination, role }.reversed()
    }

    /// Changes the mark, of which bits outside `mask` stay, and the connection's generation with
    /// it, unless it is so already. Returns the new name; `None` if the connection is not there.
    pub fn set_mark(&self, handle: Handle, mark: u32, mask: u32) -> Option<Handle> {
        let entry = self.entries.get(handle.index as usize)?;
        self.amend(handle, |_| put_mark(entry, (mark, mask)))
    }

    /// As [`Connections::set_mark`], of the label.
    pub fn set_label(&self, handle: Handle, label: u128, mask: u128) -> Option<Handle> {
        let entry = self.entries.get(handle.index as usize)?;
        self.amend(handle, |_| put_label(entry, (label, mask)))
    }

    /// As [`Connections::set_mark`], of the helper.
    pub fn set_helper(&self, handle: Handle, helper: u16) -> Option<Handle> {
        let entry = self.entries.get(handle.index as usize)?;
        self.amend(handle, |_| put_helper(entry, helper))
    }

    /// Changes the mark and the label, each in the bits of its mask, and the helper if that is not 0, of a
    /// connection of which nothing was changed since it was named so: for who has decided on that.
    /// Returns the new name; `None` if something was, or it is not there.
    pub fn set_all(
        &self,
        handle: Handle,
        mark: (u32, u32),
        label: (u128, u128),
        helper: u16,
    ) -> Option<Handle> {
        let entry = self.entries.get(handle.index as usize)?;
        let mut is_it = false;
        let written = self.amend(handle, |control| {
            is_it = control.generation() == handle.generation;
            is_it
                && put_mark(entry, mark)
                    | put_label(entry, label)
                    | (helper != 0 && put_helper(entry, helper))
        });
        written.filter(|_| is_it)
    }

    /// Has a connection count for another class, whatever that one's limits. Decisions about it stay.
    /// False if it is not there.
    pub fn set_class(&self, handle: Handle, class: u16) -> bool {
        let Some(connection) = self.connection(handle.index, Time(0)) else { return false };
        let source = connection.original.addresses.source();
        let change = || {
            let word = &self.entries[handle.index as usize].cold.0[cold::KEPT];
            let change = |old: u64| Some(Kept(old).with_class(class).0);
            let before = word.fetch_update(Ordering::AcqRel, Ordering::Acquire, change);
            let before = Kept(before.unwrap_or_else(|same| same)).class();
            if before != class {
                self.limits.count_class(class, source);
                self.limits.give_class(before, source);
            }
        };
        self.under_locks(handle, change).is_some()
    }

    /// Changes a live connection, and its generation if it is another then. The shards of its tuples are
    /// locked, so that it does not end meanwhile.
    fn amend(&self, handle: Handle, change: impl FnOnce(Control) -> bool) -> Option<Handle> {
        let change = || {
            // Nobody else changes it while the locks are held.
            let is_other = change(self.control(handle.index));
            if is_other {
                self.keep_named(handle.index);
            }
            loop {
                let from = self.control(handle.index);
                let to = if is_other { from.changed() } else { from };
                if !is_other || self.change(handle.index, from, to) {
                    return Handle { generation: to.generation(), ..handle };
                }
            }
        };
        self.under_locks(handle, change)
    }

    /// Before a connection's generation changes: names of late stay its own however often it has changed.
    fn keep_named(&self, index: u32) {
        let word = &self.entries[index as usize].cold.0[cold::KEPT];
        let present = self.control(index).generation();
        let later = |old: u64| Some(Kept(old).before_wrap(present)?.0);
        _ = word.fetch_update(Ordering::AcqRel, Ordering::Acquire, later);
    }

    /// Does something while the shards of a live connection's tuples are locked.
    pub(crate) fn under_locks<T>(&self, handle: Handle, change: impl FnOnce() -> T) -> Option<T> {
        // Those of another one, if this has ended since.
        let _locked = self.buckets.lock(self.hashes(handle.index));
        let control = self.control(handle.index);
        self.is_named(handle, control).then(change)
    }

    /// Sets the deadline to `deadline`, or to the latest there is, two years ahead, until a packet moves it
    /// again; if that is later than usual, one of each direction, as a packet writes for its own alone.
    /// False if the connection is not there, or is dead: decisions may have been kept that say so.
    pub fn set_deadline(&self, handle: Handle, deadline: Time, now: Time) -> bool {
        let Some(entry) = self.entries.get(handle.index as usize) else { return false };
        let latest = (now.0 >> TICK_BITS) + u64::from(LONGEST);
        let deadline = deadline.min(Time(latest << TICK_BITS));
        let set = || {
            let (control, own, peer) = Self::view(entry, Direction::Original);
            if self.is_dead(control, &own, &peer, tick(now)) {
                return false;
            }
            let seen = tick(deadline).wrapping_sub(self.timeout(control, &own, &peer));
            for line in &entry.lines {
                let change = |old: u64| Some(old & 0xffff_ffff | u64::from(seen) << 32);
                let place = &line.0[word::SEEN];
                let _ = place.fetch_update(Ordering::AcqRel, Ordering::Acquire, change);
            }
            self.places.schedule(handle.index, deadline, now);
            true
        };
        self.under_locks(handle, set) == Some(true)
    }
}

/// Changes bits of the mark. Returns whether it is another one then.
fn put_mark(entry: &Entry, (mark, mask): (u32, u32)) -> bool {
    let (mark, mask) = (u64::from(mark), u64::from(mask));
    put(&entry.lines[1].0[word::IDENTITY], |old| old & !mask | mark & mask)
}

/// The same of the label.
fn put_label(entry: &Entry, (label, mask): (u128, u128)) -> bool {
    let words = [(cold::LABEL_LOW, 0), (cold::LABEL_HIGH, 64)];
    words.into_iter().fold(false, |is_other, (word, shift)| {
        let (label, mask) = ((label >> shift) as u64, (mask >> shift) as u64);
        put(&entry.cold.0[word], |old| old & !mask | label & mask) | is_other
    })
}

/// Changes the helper. Returns whether it is another one then.
fn put_helper(entry: &Entry, helper: u16) -> bool {
    put(&entry.cold.0[cold::KEPT], |old| Kept(old).with_helper(helper).0)
}

/// Changes a word. Returns whether it is another one then.
fn put(word: &AtomicU64, change: impl Fn(u64) -> u64) -> bool {
    let before = word.fetch_update(Ordering::AcqRel, Ordering::Acquire, |old| Some(change(old)));
    before.is_ok_and(|before| before != change(before))
}

/// Whether an established connection has the timeout of one that waits for an answer: what one side
/// has sent is not acknowledged, or the connection was picked up and not answered yet.
fn is_uncertain(control: Control, sides: &[Side; 2]) -> bool {
    !control.flags().has(Flags::REPLIED) || tcp::is_unacknowledged(sides)
}
