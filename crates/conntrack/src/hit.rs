//! What apply does: the connection of a packet whose decision was kept is updated, if the decision
//! is still right.

use packet::Time;

use crate::ct_state::{CtState, Named, Reference};
use crate::entry::{Control, Flags, Line, Outcome, Side, word};
use crate::packet::Packet;
use crate::sync::Ordering;
use crate::table::{Connections, Hit, MOST_CONNECTIONS, STAMPS};
use crate::timeout::tick;

impl Connections {
    /// Whether a decision that was made for `reference` is right for a packet of its flow; if so,
    /// its connection is updated. `length` is of the IP packet, in bytes.
    #[inline]
    pub fn hit(&self, reference: Reference, packet: &Packet, length: u32, now: Time) -> Hit {
        match reference.0 >> 62 {
            1 => self.hit_connection(reference, packet, length, now),
            3 => self.hit_nothing(reference, packet),
            0 => Hit::Valid { translated: false },
            _ => Hit::Stale,
        }
    }

    /// Asks for the memory that [`Connections::hit`] will read.
    #[inline(always)]
    pub fn prefetch(&self, reference: Reference) {
        if reference.0 >> 62 == 1 {
            let index = (reference.0 >> 32) as u32 & (MOST_CONNECTIONS - 1);
            if let Some(entry) = self.entries.get(index as usize) {
                packet::prefetch(&entry.lines[0]);
                packet::prefetch(&entry.lines[1]);
            }
        }
    }

    #[inline]
    fn hit_connection(&self, reference: Reference, packet: &Packet, length: u32, now: Time) -> Hit {
        let index = (reference.0 >> 32) as u32 & (MOST_CONNECTIONS - 1);
        let Some(entry) = self.entries.get(index as usize) else { return Hit::Stale };
        let (direction, tick) = (reference.direction(), tick(now));
        // Again if somebody else has written meanwhile, which is rare, and not for ever.
        for _ in 0..8 {
            let (control, own, peer) = Self::view(entry, direction);
            let is_another = control.generation() != reference.0 as u32;
            if is_another || !control.is_live() || self.is_dead(control, &own, &peer, tick) {
                return Hit::Stale;
            }
            let (state, written) = match self.judge(control, own, peer, direction, packet, tick) {
                Outcome::Update(to, next) => (control.ct_state(direction), Some((to, next, tick))),
                Outcome::Unrenewed(next) => {
                    (control.ct_state(direction), Some((control, next, own.tick())))
                }
                Outcome::Pass => (control.ct_state(direction), None),
                Outcome::Invalid if reference.ct_state() != CtState::INVALID => return Hit::Stale,
                Outcome::Invalid => {
                    self.counters.invalid.fetch_add(1, Ordering::Relaxed);
                    (CtState::INVALID, None)
                }
                Outcome::Renew => return Hit::Stale,
            };
            if state != reference.ct_state() {
                return Hit::Stale;
            }
            if let Some((to, next, tick)) = written {
                let line = &entry.lines[direction.at()];
                if !self.write(index, [control, to], line, [own, next], tick) {
                    continue;
                }
                if self.settings.accounting {
                    count(line, length);
                }
            }
            let nat = Flags::SNAT.0 | Flags::DNAT.0;
            return Hit::Valid { translated: control.flags().0 & nat != 0 };
        }
        Hit::Stale
    }

    /// Whether [`Connections::hit`] would be valid now. Changes nothing: for decisions that were made for
    /// several connections, of which none is to be updated if one has become another.
    #[cold]
    #[inline(never)]
    pub fn holds(&self, reference: Reference, packet: &Packet, now: Time) -> bool {
        match reference.named() {
            Named::Untracked => true,
            Named::Related(..) => false,
            Named::Absent(..) => self.has_nothing(reference, packet).is_some(),
            Named::Connection(handle, direction, expected) => {
                let Some(entry) = self.entries.get(handle.index as usize) else { return false };
                let (control, own, peer) = Self::view(entry, direction);
                let is_another = control.generation() != handle.generation;
                let tick = tick(now);
                if is_another || !control.is_live() || self.is_dead(control, &own, &peer, tick) {
                    return false;
                }
                match self.judge(control, own, peer, direction, packet, tick) {
                    Outcome::Update(..) | Outcome::Unrenewed(_) | Outcome::Pass => {
                        control.ct_state(direction) == expected
                    }
                    Outcome::Invalid => expected == CtState::INVALID,
                    Outcome::Renew => false,
                }
            }
        }
    }

    fn hit_nothing(&self, reference: Reference, packet: &Packet) -> Hit {
        let Some(state) = self.has_nothing(reference, packet) else { return Hit::Stale };
        if state == CtState::INVALID {
            self.counters.invalid.fetch_add(1, Ordering::Relaxed);
        }
        Hit::Valid { translated: false }
    }

    /// What was said of a packet of no connection, if that may still be said of this one.
    fn has_nothing(&self, reference: Reference, packet: &Packet) -> Option<CtState> {
        let Named::Absent(stamp, expected) = reference.named() else { return None };
        let place = &self.stamps[stamp.place as usize % STAMPS];
        let number = place.load(Ordering::Acquire);
        let number = number.wrapping_add(self.stamp_of_all.load(Ordering::Acquire));
        let is_same = match packet {
            Packet::Tcp(_) | Packet::Sctp(_) | Packet::Malformed => {
                self.ct_state_of_new_packet(packet) == expected
            }
            // The tuple says it, and is the same.
            Packet::Datagram => true,
        };
        (number == stamp.number && is_same).then_some(expected)
    }

    /// Writes what a packet has changed. False if somebody else has written since it was read; then
    /// what was written is no more than a packet that came before.
    #[inline(always)]
    fn write(
        &self,
        index: u32,
        [from, to]: [Control; 2],
        line: &Line,
        [own, next]: [Side; 2],
        tick: u32,
    ) -> bool {
        if to != from && !self.change(index, from, to) {
            return false;
        }
        let seen = next.seen & 0xffff_ffff | u64::from(tick) << 32;
        let is_shared = self.settings.workers > 1;
        let exchange = |word: usize, old: u64, new: u64| {
            let place = &line.0[word];
            if old == new {
                return true;
            }
            if is_shared {
                return place
                    .compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire)
                    .is_ok();
            }
            place.store(new, Ordering::Release);
            true
        };
        exchange(word::SENT, own.sent, next.sent)
            && exchange(word::WINDOW, own.window, next.window)
            && exchange(word::SEEN, own.seen, seen)
    }

    /// Exchanges the control word, and notes whether the connection may still make room.
    #[cold]
    pub(crate) fn change(&self, index: u32, from: Control, to: Control) -> bool {
        let place = &self.entries[index as usize].lines[0].0[word::CONTROL];
        let exchanged = place.compare_exchange(from.0, to.0, Ordering::AcqRel, Ordering::Acquire);
        if exchanged.is_err() {
            return false;
        }
        match (from.may_go(), to.may_go()) {
            (false, true) => self.evictable.set(index),
            (true, false) => self.evictable.clear(index),
            _ => {}
        }
        true
    }
}

/// Counts a packet of a direction.
#[inline(always)]
fn count(line: &Line, length: u32) {
    let add = |word: usize, more: u64| {
        let place = &line.0[word];
        place.store(place.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
    };
    add(word::PACKETS, 1);
    add(word::BYTES, length.into());
}
