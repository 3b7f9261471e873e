//! What apply does: the connection of a packet whose decision was kept is updated, if the decision
//! is still right.

use packet::Time;

use crate::ct_state::{CtState, Direction, Named, Reference};
use crate::datagram;
use crate::entry::{Control, Entry, Flags, Line, Outcome, Side, word};
use crate::packet::{Packet, Segment};
use crate::places::time_of;
use crate::rewrite;
use crate::sync::Ordering;
use crate::table::{Connections, Hit, MOST_CONNECTIONS, STAMPS};
use crate::tcp;
use crate::timeout::{State, tick};

impl Connections {
    /// Whether a decision that was made for `reference` is right for a packet of its flow; if so,
    /// its connection is updated. `length` is of the IP packet, in bytes.
    #[inline]
    pub fn hit(&self, reference: Reference, packet: &Packet, length: u32, now: Time) -> Hit {
        match reference.0 >> 62 {
            1 if matches!(packet, Packet::Datagram) => {
                self.hit_datagram_in_full(reference, length, now)
            }
            1 => self.hit_connection(reference, packet, length, now),
            3 => self.hit_nothing(reference, packet),
            0 => Hit::Valid { translated: false },
            _ if self.holds(reference, packet, now) => Hit::Valid { translated: false },
            _ => Hit::Stale,
        }
    }

    /// The same of a usual segment, whose reference is a connection's: of an established connection, and
    /// it changes no state, only what its sender has sent, and when. `None` if it is another one, or
    /// somebody else has written meanwhile; nothing is said of it then.
    #[inline(always)]
    pub fn hit_segment(
        &self,
        reference: Reference,
        segment: &Segment,
        length: u32,
        now: Time,
    ) -> Option<Hit> {
        let usual = self.usual(reference, now)?;
        let flags = Flags::LIVE.with(Flags::REPLIED).with(Flags::ASSURED);
        let of = flags.with(Flags::LIBERAL);
        let is_established = usual.is(reference, flags, of, State::Established, CtState::EST)
            && self.is_fresh(&usual, [State::Established, State::Unacknowledged]);
        let next = is_established.then(|| tcp::usual(usual.own, usual.peer, segment))??;
        self.update(reference, &usual, next, length)
    }

    /// The same of a datagram: of UDP that has gone both ways, or one way alone so far.
    #[inline(always)]
    pub fn hit_datagram(&self, reference: Reference, length: u32, now: Time) -> Option<Hit> {
        let usual = self.usual(reference, now)?;
        let of = Flags::LIVE.with(Flags::REPLIED);
        let is_replied = |state| usual.is(reference, of, of, state, CtState::EST);
        let (state, is_usual) = if is_replied(State::UdpStream) {
            (State::UdpStream, true)
        } else if is_replied(State::UdpReplied) {
            let original = match reference.direction() {
                Direction::Original => &usual.own,
                Direction::Reply => &usual.peer,
            };
            (State::UdpReplied, !datagram::is_stream(original, usual.tick))
        } else {
            let is_new = reference.direction() == Direction::Original
                && usual.is(reference, Flags::LIVE, of, State::UdpUnreplied, CtState::NEW);
            (State::UdpUnreplied, is_new)
        };
        let is_usual = is_usual && self.is_fresh(&usual, [state; 2]);
        is_usual.then(|| self.update(reference, &usual, usual.own, length))?
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

    /// Translates a usual packet as [`Connections::translation`] says: a whole one of IPv4 and of TCP or
    /// UDP, whose upper-layer header begins at `upper`. False if it is another one, or its connection has
    /// ended; it is as it was then.
    #[inline(always)]
    pub fn translate_usual(
        &self,
        reference: Reference,
        packet: &mut [u8],
        upper: usize,
        is_tcp: bool,
    ) -> bool {
        let index = (reference.0 >> 32) as u32 & (MOST_CONNECTIONS - 1);
        let Some(entry) = self.entries.get(index as usize) else { return false };
        let line = &entry.lines[reference.direction().at()];
        let control = || Control(entry.lines[0].0[word::CONTROL].load(Ordering::Acquire));
        let is_same = |control: Control| {
            let flags = control.flags();
            let is_ours = flags.has(Flags::LIVE) && !flags.has(Flags::V6);
            is_ours && control.generation() == reference.0 as u32
        };
        let before = control();
        let words = [word::ADDRESSES, word::PORTS].map(|at| line.0[at].load(Ordering::Acquire));
        let is_usual = reference.is_connection() && is_same(before) && is_same(control());
        is_usual && rewrite::apply_usual(packet, upper, is_tcp, words)
    }

    #[inline(always)]
    fn usual(&self, reference: Reference, now: Time) -> Option<Usual<'_>> {
        let index = (reference.0 >> 32) as u32 & (MOST_CONNECTIONS - 1);
        let entry = self.entries.get(index as usize)?;
        let (control, own, peer) = Self::view(entry, reference.direction());
        Some(Usual { entry, control, own, peer, tick: tick(now) })
    }

    /// Whether a connection has not come to its deadline by any of these timeouts.
    #[inline(always)]
    fn is_fresh(&self, usual: &Usual<'_>, states: [State; 2]) -> bool {
        let [own, peer] = [usual.own.tick(), usual.peer.tick()];
        let unused = [own, peer].map(|seen| usual.tick.wrapping_sub(seen) as i32);
        let unused = unused[0].min(unused[1]);
        let policy = usual.control.policy();
        unused <= 0
            || (unused as u32) < self.timeouts.ticks(policy, states[0])
                && (unused as u32) < self.timeouts.ticks(policy, states[1])
    }

    /// Writes what a usual packet has changed. `None` if somebody else has written meanwhile.
    #[inline(always)]
    fn update(
        &self,
        reference: Reference,
        usual: &Usual<'_>,
        next: Side,
        length: u32,
    ) -> Option<Hit> {
        let Usual { entry, control, own, tick, .. } = usual;
        debug_assert_eq!(control.ct_state(reference.direction()), reference.ct_state());
        let line = &entry.lines[reference.direction().at()];
        if !self.write_side(line, [*own, next], *tick) {
            return None;
        }
        if self.settings.accounting {
            self.count(line, length);
        }
        Some(Hit::Valid { translated: control.is_translated() })
    }

    /// As [`Connections::hit_connection`]. By itself, as little of that is about datagrams.
    #[inline(never)]
    fn hit_datagram_in_full(&self, reference: Reference, length: u32, now: Time) -> Hit {
        self.hit_in_full(reference, &Packet::Datagram, length, now)
    }

    #[inline(never)]
    fn hit_connection(&self, reference: Reference, packet: &Packet, length: u32, now: Time) -> Hit {
        self.hit_in_full(reference, packet, length, now)
    }

    #[inline(always)]
    fn hit_in_full(&self, reference: Reference, packet: &Packet, length: u32, now: Time) -> Hit {
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
                let is_written = self.write(index, [control, to], line, [own, next], tick);
                // Datagrams have no states that end sooner. The state may be there also if another worker
                // has written the side meanwhile, and looking too soon does no harm.
                if !matches!(packet, Packet::Datagram) && to.state() != control.state() {
                    self.look_sooner(index, [control, to], now);
                }
                if !is_written {
                    continue;
                }
                if self.settings.accounting {
                    self.count(line, length);
                }
            }
            return Hit::Valid { translated: control.is_translated() };
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
            Named::Connection(handle, direction, expected)
            | Named::Renewed(handle, direction, expected) => {
                let Some(entry) = self.entries.get(handle.index as usize) else { return false };
                let (control, own, peer) = Self::view(entry, direction);
                let is_another = control.generation() != handle.generation;
                let tick = tick(now);
                if is_another || !control.is_live() || self.is_dead(control, &own, &peer, tick) {
                    return false;
                }
                let is_renewed = matches!(reference.named(), Named::Renewed(..));
                match self.judge(control, own, peer, direction, packet, tick) {
                    Outcome::Renew => is_renewed,
                    _ if is_renewed => false,
                    Outcome::Update(..) | Outcome::Unrenewed(_) | Outcome::Pass => {
                        control.ct_state(direction) == expected
                    }
                    Outcome::Invalid => expected == CtState::INVALID,
                }
            }
        }
    }

    /// Counts an invalid packet that was held against connections by [`Connections::holds`] alone.
    #[cold]
    pub fn note_invalid(&self) {
        self.counters.invalid.fetch_add(1, Ordering::Relaxed);
    }

    fn hit_nothing(&self, reference: Reference, packet: &Packet) -> Hit {
        let Some(state) = self.has_nothing(reference, packet) else { return Hit::Stale };
        if state == CtState::INVALID {
            self.note_invalid();
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
        (to == from || self.change(index, from, to)) && self.write_side(line, [own, next], tick)
    }

    /// The same of the words of a direction alone.
    #[inline(always)]
    fn write_side(&self, line: &Line, [own, next]: [Side; 2], tick: u32) -> bool {
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

    /// Counts a packet of a direction. Where others may have ended the connection meanwhile, and another
    /// one begins to count at its place, a packet is added, and what was counted so far never written.
    #[inline(always)]
    fn count(&self, line: &Line, length: u32) {
        let is_shared = self.settings.workers > 1;
        for (word, more) in [(word::PACKETS, 1), (word::BYTES, u64::from(length))] {
            let place = &line.0[word];
            if is_shared {
                place.fetch_add(more, Ordering::Relaxed);
            } else {
                let sum = place.load(Ordering::Relaxed).wrapping_add(more);
                place.store(sum, Ordering::Relaxed);
            }
        }
    }

    /// Has the wheel look at a connection sooner that lasts much less long than before: it may be minutes until
    /// that would look by itself, and so long a place, its limits and its port would be held. What is only
    /// somewhat less is left: most connections end within the time of their first state.
    #[cold]
    #[inline(never)]
    fn look_sooner(&self, index: u32, states: [Control; 2], now: Time) {
        let ticks = |control: Control| self.timeouts.ticks(control.policy(), control.state());
        let [before, after] = states.map(ticks);
        if after < before / 4 {
            self.places.schedule(index, time_of(tick(now).wrapping_add(after), now), now);
        }
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
            (true, false) => self.clear_evictable(index),
            _ => {}
        }
        true
    }

    /// Notes that a connection makes no room. Another thread may have changed it meanwhile, or the next
    /// one may live at its place: it is looked at again behind that, so that its note is not lost.
    pub(crate) fn clear_evictable(&self, index: u32) {
        self.evictable.clear(index);
        if self.control(index).may_go() {
            self.evictable.set(index);
        }
    }
}

/// What there is to know of a connection whose packet may be a usual one.
struct Usual<'a> {
    entry: &'a Entry,
    control: Control,
    own: Side,
    peer: Side,
    tick: u32,
}

impl Usual<'_> {
    /// Whether the connection is the one that is named, has exactly these of the flags that are looked
    /// at and this state, and the reference this bit of ct_state. Within a generation, the other bits
    /// stay.
    #[inline(always)]
    fn is(
        &self,
        reference: Reference,
        flags: Flags,
        of: Flags,
        state: State,
        bit: CtState,
    ) -> bool {
        self.control.is_exactly(reference.0 as u32, flags, of, state) & reference.is_for(bit)
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use proptest::prelude::*;
    use types::TcpFlags;

    use super::*;
    use crate::ct_state::Handle;
    use crate::entry::mark;
    use crate::table::Settings;

    /// All words of the only connection.
    fn words(table: &Connections) -> [[u64; 8]; 2] {
        let entry = &table.entries[0];
        entry
            .lines
            .each_ref()
            .map(|line| line.0.each_ref().map(|word| word.load(Ordering::Relaxed)))
    }

    fn set(table: &Connections, words: [[u64; 8]; 2]) {
        for (line, words) in table.entries[0].lines.iter().zip(words) {
            for (place, word) in line.0.iter().zip(words) {
                place.store(word, Ordering::Relaxed);
            }
        }
    }

    /// What a side has said: not much is wrong with most.
    fn side() -> impl Strategy<Value = Side> {
        let marks = prop_oneof![
            8 => Just(mark::SENT | mark::ACKNOWLEDGED | mark::SCALES),
            1 => Just(mark::SENT),
            1 => Just(0),
        ];
        let numbers = (0u32..400, 0u32..400, 0u32..400, 0u32..400);
        (numbers, marks, 0u64..15, 0u64..4000).prop_map(|(numbers, marks, scale, tick)| {
            let (end, acknowledged, window, most) = numbers;
            Side {
                seen: tick << 32 | marks | scale,
                sent: u64::from(end.wrapping_sub(200)) << 32
                    | u64::from(acknowledged.wrapping_sub(200)),
                window: u64::from(window) << 32 | u64::from(most),
            }
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]

        /// What is said of a usual packet, and what is written for it, is what is said and written for
        /// any packet.
        #[test]
        fn a_usual_packet_is_a_packet(
            (own, peer) in (side(), side()),
            state in prop_oneof![
                Just(State::Established), Just(State::Established), Just(State::UdpStream),
                Just(State::UdpReplied), Just(State::UdpUnreplied), proptest::sample::select(State::ALL),
            ],
            (flags, earlier) in (0u16..1 << 13, any::<bool>()),
            (likely, is_reply, is_invalid) in (0..4, any::<bool>(), 0..8),
            (is_tcp, kind, window, sacked) in (any::<bool>(), 0usize..8, any::<u16>(), 0u32..300),
            (sequence, acknowledgment, length) in (0u32..400, 0u32..400, 0u32..200),
            (tick, accounting, generation) in (0u64..8000, any::<bool>(), 1u32..3),
        ) {
            let settings = Settings { connections: 1, accounting, ..Settings::default() };
            let table = Connections::new(&settings, [1, 2], Time(0)).unwrap();
            let usual = Flags::LIVE.with(Flags::REPLIED).with(Flags::ASSURED);
            let flags = match likely {
                0 => Flags(flags),
                1 => usual.with(Flags(flags & (Flags::SNAT.0 | Flags::EXPECTED.0))),
                2 => Flags::LIVE,
                _ => usual,
            };
            let control = Control::new(1, 0, flags, state);
            // Of this or of an earlier moment of the same connection.
            let then = if earlier { Flags(flags.0 & !Flags::REPLIED.0) } else { flags };
            let direction = if is_reply { Direction::Reply } else { Direction::Original };
            let said = match is_invalid {
                0 => CtState::INVALID,
                _ => Control::new(1, 0, then, state).ct_state(direction),
            };
            let named = Named::Connection(Handle { index: 0, generation }, direction, said);
            let reference = Reference::new(named);
            let mut before = [[0; 8]; 2];
            for (at, side) in [(direction, own), (direction.opposite(), peer)] {
                before[at.at()][1..4].copy_from_slice(&[side.seen, side.sent, side.window]);
            }
            before[0][word::CONTROL] = control.0;
            set(&table, before);
            let kinds = ["A", "A", "A", "PA", "FA", "S", "R", "UA"];
            let bit = |letter| match letter {
                'A' => TcpFlags::ACK.0, 'P' => TcpFlags::PSH.0, 'F' => TcpFlags::FIN.0,
                'S' => TcpFlags::SYN.0, 'R' => TcpFlags::RST.0, _ => TcpFlags::URG.0,
            };
            let segment = Segment {
                sequence: sequence.wrapping_sub(200),
                acknowledgment: acknowledgment.wrapping_sub(200),
                window,
                flags: TcpFlags(kinds[kind].chars().fold(0, |all, letter| all | bit(letter))),
                length,
                scale: None,
                sacked: if sacked < 100 { sacked } else { 0 },
            };
            let now = Time(tick << crate::timeout::TICK_BITS);
            let usual = match is_tcp {
                true => table.hit_segment(reference, &segment, 100, now),
                false => table.hit_datagram(reference, 100, now),
            };
            let after = words(&table);
            set(&table, before);
            let packet = if is_tcp { Packet::Tcp(segment) } else { Packet::Datagram };
            let full = table.hit(reference, &packet, 100, now);
            match usual {
                None => prop_assert_eq!(after, before),
                Some(usual) => {
                    prop_assert_eq!(usual, full);
                    prop_assert_eq!(after, words(&table));
                }
            }
        }
    }

    #[test]
    fn most_packets_are_usual() {
        let settings = Settings { connections: 1, ..Settings::default() };
        let table = Connections::new(&settings, [1, 2], Time(0)).unwrap();
        let flags = Flags::LIVE.with(Flags::REPLIED).with(Flags::ASSURED);
        let handle = Handle { index: 0, generation: 1 };
        // A moment after it began, if it is UDP.
        let now = Time(5 << crate::timeout::TICK_BITS);
        let is_usual = |state, packet: Option<Segment>| {
            let control = Control::new(1, 0, flags, state);
            let heard = mark::SENT | mark::ACKNOWLEDGED;
            let line = [control.0, heard, 5 << 32 | 5, 100 << 32 | 100, 0, 0, 0, 0];
            set(&table, [line; 2]);
            let said = control.ct_state(Direction::Original);
            let reference = Reference::new(Named::Connection(handle, Direction::Original, said));
            match packet {
                Some(segment) => table.hit_segment(reference, &segment, 100, now),
                None => table.hit_datagram(reference, 100, now),
            }
            .is_some()
        };
        let segment =
            Segment { sequence: 5, acknowledgment: 5, flags: TcpFlags::ACK, ..Segment::default() };
        assert!(is_usual(State::Established, Some(segment)));
        assert!(is_usual(State::UdpStream, None));
        assert!(!is_usual(State::FinWait, Some(segment)));
        assert!(is_usual(State::UdpReplied, None));
        assert!(!is_usual(State::Icmp, None));
    }
}
