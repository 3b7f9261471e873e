//! How connections are made.

use packet::Time;
use types::Protocol;

use crate::buckets;
use crate::connection::{Ended, Reason};
use crate::ct_state::{Direction, Handle};
use crate::entry::{Control, Entry, Flags, Kept, Master, Outcome, Side, cold, mark, word};
use crate::nat::Lease;
use crate::packet::Packet;
use crate::rewrite;
use crate::sync::{Ordering, store};
use crate::table::{Connections, New, Refused, stamp_place};
use crate::timeout::{State, tick};
use crate::tuple::{Role, Tuple};

impl Connections {
    /// Makes a connection of the packet that opens it, or counts why not. A connection that has
    /// ended or makes room for it is told to `ended`.
    ///
    /// # Errors
    /// Why there is no new connection; see [`Refused`].
    pub fn commit(
        &self,
        new: &New,
        packet: &Packet,
        length: u32,
        now: Time,
        ended: &mut dyn FnMut(&[Ended]),
    ) -> Result<Handle, Refused> {
        self.commit_any(new, None, (packet, length), now, ended)
    }

    /// As [`Connections::commit`], of a connection that is translated: packets that look like its first
    /// become the tuple that was lent. The same tuple is no translation.
    ///
    /// # Errors
    /// As [`Connections::commit`].
    pub fn commit_translated(
        &self,
        new: &New,
        lease: &Lease,
        (packet, length): (&Packet, u32),
        now: Time,
        ended: &mut dyn FnMut(&[Ended]),
    ) -> Result<Handle, Refused> {
        self.commit_any(new, Some(lease), (packet, length), now, ended)
    }

    fn commit_any(
        &self,
        new: &New,
        lease: Option<&Lease>,
        packet: (&Packet, u32),
        now: Time,
        ended: &mut dyn FnMut(&[Ended]),
    ) -> Result<Handle, Refused> {
        let result = self.try_commit(new, lease, packet, now, ended);
        if let Err(why) = result {
            let which = match why {
                Refused::NotNew | Refused::Tuples => 0,
                Refused::Exists | Refused::NotExpected => 1,
                Refused::TupleTaken => 2,
                Refused::Full => 3,
                Refused::BucketFull => 4,
                Refused::Limit(_) => 5,
            };
            self.counters.refused[which].fetch_add(1, Ordering::Relaxed);
            if let Refused::Limit(kind) = why {
                let source = new.original.addresses.source();
                self.limits.note(kind, new.zone, source, new.class);
            }
        }
        result
    }

    /// Whether [`Connections::commit`] would find no room for it or a limit reached, and which. Nothing is
    /// counted, and nobody makes room. Reads all connections if the table is full.
    pub fn would_refuse(&self, new: &New, now: Time) -> Option<Refused> {
        let addresses = &new.original.addresses;
        let limit = self.limits.reached(new.zone, addresses.source(), new.class);
        let full = || self.is_full(addresses.is_v6(), new.master, now).then_some(Refused::Full);
        limit.map(Refused::Limit).or_else(full)
    }

    fn try_commit(
        &self,
        new: &New,
        lease: Option<&Lease>,
        (packet, length): (&Packet, u32),
        now: Time,
        ended: &mut dyn FnMut(&[Ended]),
    ) -> Result<Handle, Refused> {
        let original = &new.original;
        // Without translation both directions have one hash, and one lookup finds either.
        let translated = lease.map(|lease| &lease.translated).filter(|to| *to != original);
        let belong = translated.is_none_or(|to| {
            original.protocol == to.protocol
                && original.addresses.is_v6() == to.addresses.is_v6()
                && original.role == to.role
        });
        if !belong || original.role == Role::Answer {
            return Err(Refused::Tuples);
        }
        let mut own = Side::default();
        let opened = self.open(original, packet, tick(now), &mut own);
        let (state, flags) = opened.ok_or(Refused::NotNew)?;
        own.seen = own.seen & 0xffff_ffff | u64::from(tick(now)) << 32;
        let is_wide = original.addresses.is_v6();
        let hash = new.hash.unwrap_or_else(|| self.hash_of(new.zone, original));
        let hash_of = |to: &Tuple| self.hash_of(new.zone, to);
        let known = lease.and_then(|lease| lease.hash);
        debug_assert!(lease.is_none_or(|it| known.is_none_or(|is| is == hash_of(&it.translated))));
        let hashes = [hash, translated.map_or(hash, |to| known.unwrap_or_else(|| hash_of(to)))];
        if new.vacant.is_none() {
            self.buckets.prefetch(hash);
        }
        // A place first, outside of the locks of the buckets: making room takes such locks.
        let policy = self.timeouts.of_zone(new.zone);
        let due = self.deadline(Control::new(0, policy.0, flags, state), &own, &own, now);
        let wanted = (hashes[0] as u32, is_wide);
        let source = original.addresses.source();
        let index = match self.free_place(wanted, due, now) {
            Some(index) => index,
            // Nobody makes room for one that is refused for another reason.
            None => match self.refusal(new, (hashes, translated), packet, now) {
                Some(why) => return Err(why),
                // Who has announced it stays: without its master nobody expects it.
                None => {
                    let place = self.make_place(wanted, new.master, due, now, ended);
                    place.ok_or(Refused::Full)?
                }
            },
        };
        let counted = match self.limits.take(new.zone, source) {
            Ok(counted) => counted,
            Err(which) => {
                self.places.give(index);
                return Err(Refused::Limit(which));
            }
        };
        let uncount = || {
            if let Some(counted) = counted {
                self.limits.give(new.zone, source, counted);
            }
        };
        if let Err(which) = self.limits.take_class(new.class, source) {
            uncount();
            self.places.give(index);
            return Err(Refused::Limit(which));
        }
        let kept = Kept::new(new.helper, new.class, counted);
        let (first, binding) = ((state, flags, own), lease.map_or(0, |lease| lease.binding));
        let kept = (kept, binding);
        let mut result = Err(Refused::Exists);
        for _ in 0..4 {
            let locked = self.buckets.lock(hashes);
            let Some((other, direction, is_original)) = self.in_the_way(new, hashes, translated)
            else {
                result = self.insert((index, kept), new, (hashes, translated), first, length, now);
                break;
            };
            // The lock goes before another connection does, which may be in other shards.
            drop(locked);
            match self.gives_way((other, direction, is_original), packet, now) {
                Ok(reason) => _ = self.end(other, reason, now, ended),
                Err(why) => {
                    result = Err(why);
                    break;
                }
            }
        }
        if result.is_err() {
            uncount();
            self.limits.give_class(new.class, source);
            self.places.give(index);
        }
        result
    }

    /// A connection that has a tuple of a new one, in which direction, and whether it is the tuple of the
    /// packet that opens it. The shards are locked.
    #[inline(always)]
    fn in_the_way(
        &self,
        new: &New,
        hashes: [u64; 2],
        translated: Option<&Tuple>,
    ) -> Option<(Handle, Direction, bool)> {
        let of_packet = || self.find_any(hashes[0], new.zone, &new.original);
        // Who has come since has raised the stamp under this lock.
        let is_vacant = new.vacant.is_some_and(|stamp| stamp == self.stamp(hashes[0]));
        debug_assert!(!is_vacant || of_packet().is_none());
        if !is_vacant && let Some((other, way)) = of_packet() {
            return Some((other, way, true));
        }
        // The reply's is looked for as well if it is the original reversed: it may be the original of a
        // connection that is translated.
        if translated.is_none() && is_vacant {
            return None;
        }
        let reply = translated.unwrap_or(&new.original).reversed();
        let (other, way) = self.find_any(hashes[1], new.zone, &reply)?;
        Some((other, way, false))
    }

    /// Why a connection that has a tuple of a new one ends for it, or why there is no new one.
    fn gives_way(
        &self,
        (other, direction, is_original): (Handle, Direction, bool),
        packet: &Packet,
        now: Time,
    ) -> Result<Reason, Refused> {
        let (control, own, peer) = Self::view(&self.entries[other.index as usize], direction);
        let outcome = || self.judge(control, own, peer, direction, packet, tick(now));
        match is_original {
            _ if self.is_dead(control, &own, &peer, tick(now)) => Ok(Reason::Expired),
            true if outcome() == Outcome::Renew => Ok(Reason::Reused),
            true => Err(Refused::Exists),
            false => Err(Refused::TupleTaken),
        }
    }

    /// Whether a new connection is still expected by its master; if not, it is counted as
    /// [`Refused::NotExpected`]. One without a master is.
    pub fn is_expected(&self, new: &New, now: Time) -> bool {
        let is_expected = self.expects(new, now);
        if !is_expected {
            self.counters.refused[1].fetch_add(1, Ordering::Relaxed);
        }
        is_expected
    }

    fn expects(&self, new: &New, now: Time) -> bool {
        let expects = |master| self.expectations.expects(master, new.zone, &new.original, now);
        new.master.is_none_or(expects)
    }

    /// Why there is no new connection, whatever room there may be. Others may change that meanwhile.
    #[cold]
    #[inline(never)]
    fn refusal(
        &self,
        new: &New,
        (hashes, translated): ([u64; 2], Option<&Tuple>),
        packet: &Packet,
        now: Time,
    ) -> Option<Refused> {
        let locked = self.buckets.lock(hashes);
        let reply = translated.unwrap_or(&new.original).reversed();
        let find = |tuple, hash| self.find_any(hash, new.zone, tuple);
        let found = [find(&new.original, hashes[0]), find(&reply, hashes[1])];
        drop(locked);
        let judged = |found: Option<(Handle, Direction)>, is_original| {
            let (other, direction) = found?;
            self.gives_way((other, direction, is_original), packet, now).err()
        };
        let [first, second] = found;
        // Who gives way has the other tuple as well, if nothing is translated.
        let second = second.filter(|(other, _)| first.is_none_or(|(first, _)| first != *other));
        let taken = judged(first, true).or_else(|| judged(second, false));
        let limit = || self.limits.reached(new.zone, new.original.addresses.source(), new.class);
        let late = || (!self.expects(new, now)).then_some(Refused::NotExpected);
        taken.or_else(|| limit().map(Refused::Limit)).or_else(late)
    }

    /// Writes a connection whose tuples are nobody's. The shards are locked.
    fn insert(
        &self,
        (index, (kept, binding)): (u32, (Kept, u64)),
        new: &New,
        (hashes, translated): ([u64; 2], Option<&Tuple>),
        (state, mut flags, own): (State, Flags, Side),
        length: u32,
        now: Time,
    ) -> Result<Handle, Refused> {
        let entry = &self.entries[index as usize];
        let is_v6 = new.original.addresses.is_v6();
        // Packets of the original direction become this, and those of the reply direction that.
        let there = translated.unwrap_or(&new.original);
        let addresses = [there.address_words()[0], new.original.reversed_address_word()];
        let mut ports = [there.port_word(), new.original.reversed_port_word()];
        if let Some(translated) = translated {
            flags = flags.with(Flags::PAIRED);
            let [is_source, is_destination] = translated.differs(&new.original);
            if is_source {
                flags = flags.with(Flags::SNAT);
            }
            if is_destination {
                flags = flags.with(Flags::DNAT);
            }
            let deltas = rewrite::deltas(&new.original, translated);
            ports[0] |= deltas;
            ports[1] |= rewrite::inverse(deltas);
        }
        if new.master.is_some() {
            flags = flags.with(Flags::EXPECTED);
        }
        if is_v6 {
            flags = flags.with(Flags::V6);
            for (at, tuple) in [there, &new.original.reversed()].into_iter().enumerate() {
                let line = &self.wide[index as usize];
                for (place, word) in line.0[at * 4..].iter().zip(tuple.address_words()) {
                    place.store(word, Ordering::Release);
                }
            }
        }
        // Nobody reads how far a side has come before it has sent: it is the generation, of which both
        // sides have a few bits beside their marks as well. So a late write of a packet of the place's
        // former connection does not take them for that one's. Tags of SCTP are read: a side has said none yet.
        let generation = self.control(index).generation();
        let lowest = u64::from(generation) << mark::GENERATION_SHIFT & mark::GENERATION;
        let sent = match new.original.protocol {
            Protocol::SCTP => 0,
            _ => generation.into(),
        };
        let unseen = Side { seen: own.seen & !0xffff_ffff, sent, window: sent << 32 };
        for at in 0..2 {
            let store =
                |word: usize, value| store(&entry.lines[at].0[word], value, Ordering::Release);
            let side = if at == 0 { own } else { unseen };
            store(word::SEEN, side.seen | lowest);
            store(word::SENT, side.sent);
            store(word::WINDOW, side.window);
            store(word::ADDRESSES, addresses[at]);
            store(word::PORTS, ports[at]);
            let first = self.settings.accounting && at == 0;
            store(word::PACKETS, first.into());
            store(word::BYTES, if first { length.into() } else { 0 });
        }
        let is_icmp = u64::from(new.original.role != Role::None);
        let identity = u64::from(new.zone) << 48
            | u64::from(new.original.protocol.0) << 40
            | is_icmp << 32
            | u64::from(new.mark);
        entry.lines[1].0[word::IDENTITY].store(identity, Ordering::Release);
        let store = |word: usize, value| entry.cold.0[word].store(value, Ordering::Release);
        store(cold::LABEL_LOW, new.label as u64);
        store(cold::LABEL_HIGH, (new.label >> 64) as u64);
        store(cold::CREATED, now.0);
        store(cold::BINDING, binding);
        // If it has ended meanwhile, that is found below.
        let master = new.master.map(|master| (master, self.entries.get(master as usize)));
        let created = |entry: &Entry| entry.cold.0[cold::CREATED].load(Ordering::Acquire);
        let master = master.map(|(index, entry)| Master::new(index, entry.map_or(0, created)));
        store(cold::MASTER, master.unwrap_or(Master::NONE).0);
        store(cold::KEPT, kept.born(generation).0);

        for (word, hash) in cold::HASHES.into_iter().zip(hashes) {
            store(word, hash);
        }

        // The slots lead nowhere until the entry is live, so both directions come at once.
        let is_paired = translated.is_some();
        let directions = match is_paired {
            true => [buckets::ORIGINAL, buckets::REPLY],
            false => [buckets::ORIGINAL | buckets::REPLY, 0],
        };
        if !self.buckets.insert(hashes[0], index, directions[0]) {
            return Err(Refused::BucketFull);
        }
        if is_paired && !self.buckets.insert(hashes[1], index, directions[1]) {
            self.buckets.remove(hashes[0], index, directions[0]);
            return Err(Refused::BucketFull);
        }
        // At the end, when nothing else refuses it: another packet may have come in its stead, or the
        // master has ended.
        if let Some(master) = new.master
            && !self.expectations.fulfil(master, new.zone, &new.original, now)
        {
            self.buckets.remove(hashes[0], index, directions[0]);
            if is_paired {
                self.buckets.remove(hashes[1], index, directions[1]);
            }
            return Err(Refused::NotExpected);
        }
        let flags = flags.with(Flags::LIVE);
        // Read under the lock, for `set_timeouts`.
        let policy = self.timeouts.of_zone(new.zone);
        let control = Control::new(generation, policy.0, flags, state);
        entry.lines[0].0[word::CONTROL].store(control.0, Ordering::Release);
        if control.may_go() {
            self.evictable.set(index);
        }
        for hash in hashes.iter().take(1 + usize::from(is_paired)) {
            let stamp = &self.stamps[stamp_place(*hash)];
            stamp.store(stamp.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
        }
        self.counters.made.fetch_add(1, Ordering::Relaxed);
        Ok(Handle { index, generation })
    }
}
