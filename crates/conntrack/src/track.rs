//! What decide asks: which connection a packet belongs to, and what the trackers say of it.

use packet::Time;
use types::Protocol;

use crate::buckets::{self, Slot};
use crate::ct_state::{CtState, Direction, Handle, Named, Reference, Stamp};
use crate::entry::{Control, Flags, Kept, Outcome, Side, cold, word};
use crate::packet::Packet;
use crate::rewrite::Translation;
use crate::sync::Ordering;
use crate::table::{Connections, Plain, Tracked, stamp_place};
use crate::timeout::{State, tick};
use crate::tuple::{Role, Tuple};
use crate::{datagram, sctp, tcp};

/// Why a packet is of no connection.
#[derive(Clone, Copy)]
enum Without {
    /// There is none, as a stamp says.
    Any(Stamp),
    /// It opens this one anew.
    Renewed(Handle, Direction),
}

impl Connections {
    /// What connection tracking says of a packet. Changes nothing: decide asks this.
    pub fn track(&self, zone: u16, tuple: &Tuple, packet: &Packet, now: Time) -> Tracked {
        self.track_by(self.hash_of(zone, tuple), zone, tuple, packet, now)
    }

    /// The hash of a tuple in a zone. It is the same for both directions.
    #[inline]
    pub fn hash_of(&self, zone: u16, tuple: &Tuple) -> u64 {
        tuple.hash(&self.hasher, zone)
    }

    /// Which buckets of the table a hash has: for who wants to see what comes of tuples that are aimed at
    /// some.
    pub fn buckets_of(&self, hash: u64) -> [usize; 2] {
        self.buckets.places(hash)
    }

    /// Asks for the memory that the connection of a hash is found in, for packets that are tracked
    /// soon.
    #[inline]
    pub fn prefetch_hash(&self, hash: u64) {
        self.buckets.prefetch(hash);
    }

    /// As [`Connections::track`], with the tuple's hash.
    pub fn track_by(
        &self,
        hash: u64,
        zone: u16,
        tuple: &Tuple,
        packet: &Packet,
        now: Time,
    ) -> Tracked {
        // Before the lookup: a connection that comes afterwards makes the stamp another one.
        let stamp = self.stamp(hash);
        let mut is_vacant = true;
        let found = self.buckets.find(hash, |slot| {
            is_vacant = false;
            self.find_at(slot, zone, tuple)
        });
        let Some((handle, direction)) = found else {
            let tracked = self.untracked(zone, tuple, packet, Without::Any(stamp), now);
            return Tracked { vacant: is_vacant.then_some(stamp), ..tracked };
        };
        let (entry, tick) = (&self.entries[handle.index as usize], tick(now));
        let (control, own, peer) = Self::view(entry, direction);
        if self.is_dead(control, &own, &peer, tick) {
            return self.untracked(zone, tuple, packet, Without::Any(stamp), now);
        }
        self.judge_found(handle, direction, (control, own, peer), packet, tick).unwrap_or_else(
            || self.untracked(zone, tuple, packet, Without::Renewed(handle, direction), now),
        )
    }

    /// As [`Connections::track`], of a packet whose connection and direction are known. `None` if the
    /// connection has ended since, or the packet opens one anew.
    #[inline]
    pub fn track_found(
        &self,
        handle: Handle,
        direction: Direction,
        packet: &Packet,
        now: Time,
    ) -> Option<Tracked> {
        let entry = self.entries.get(handle.index as usize)?;
        self.judge_found(handle, direction, Self::view(entry, direction), packet, tick(now))
    }

    /// The same, where this was read of the place of the connection.
    #[inline(always)]
    fn judge_found(
        &self,
        handle: Handle,
        direction: Direction,
        (control, own, peer): (Control, Side, Side),
        packet: &Packet,
        tick: u32,
    ) -> Option<Tracked> {
        if !self.is_named(handle, control) {
            return None;
        }
        let handle = Handle { generation: control.generation(), ..handle };
        let ct_state = match self.judge(control, own, peer, direction, packet, tick) {
            Outcome::Invalid => CtState::INVALID,
            Outcome::Renew => return None,
            Outcome::Pass | Outcome::Update(..) | Outcome::Unrenewed(_) => {
                control.ct_state(direction)
            }
        };
        let reference = Reference::new(Named::Connection(handle, direction, ct_state));
        let connection = Some((handle, direction));
        let (expected, vacant) = (None, None);
        Some(Tracked { ct_state, connection, reference, keep: true, expected, vacant })
    }

    /// What is said of a packet that belongs to no connection, or opens one anew.
    fn untracked(
        &self,
        zone: u16,
        tuple: &Tuple,
        packet: &Packet,
        without: Without,
        now: Time,
    ) -> Tracked {
        let opens = self.open(tuple, packet, 0, &mut Side::default()).is_some();
        let expected = match opens {
            true => self.expectations.find(zone, tuple, now),
            false => None,
        };
        let ct_state = match (opens, &expected) {
            (false, _) => CtState::INVALID,
            (true, None) => CtState::NEW | CtState::TRK,
            (true, Some(_)) => CtState::NEW | CtState::REL | CtState::TRK,
        };
        // An expectation ends by time, which no stamp says. And a datagram whose checksum is wrong
        // has the tuple of others that are right: what is said of it holds for no other.
        let is_for_all = *packet != Packet::Malformed;
        let (keep, named) = match without {
            Without::Any(_) if expected.is_some() => (false, Named::Untracked),
            Without::Any(stamp) => (is_for_all, Named::Absent(stamp, ct_state)),
            Without::Renewed(handle, direction) => {
                (false, Named::Renewed(handle, direction, ct_state))
            }
        };
        let reference = Reference::new(named);
        Tracked { ct_state, connection: None, reference, keep, expected, vacant: None }
    }

    /// The connection of a tuple, and the direction, if it lives.
    pub fn lookup(&self, zone: u16, tuple: &Tuple, now: Time) -> Option<(Handle, Direction)> {
        self.find(tuple.hash(&self.hasher, zone), zone, tuple, now)
    }

    #[inline]
    fn find(&self, hash: u64, zone: u16, tuple: &Tuple, now: Time) -> Option<(Handle, Direction)> {
        let (handle, direction) = self.find_any(hash, zone, tuple)?;
        (!self.is_over(handle, direction, now)).then_some((handle, direction))
    }

    /// Whether the deadline of a connection that was found has come.
    #[inline(always)]
    fn is_over(&self, handle: Handle, direction: Direction, now: Time) -> bool {
        let (control, own, peer) = Self::view(&self.entries[handle.index as usize], direction);
        self.is_dead(control, &own, &peer, tick(now))
    }

    /// As [`Connections::find`], also if the connection is dead and was not taken out yet.
    #[inline]
    pub(crate) fn find_any(
        &self,
        hash: u64,
        zone: u16,
        tuple: &Tuple,
    ) -> Option<(Handle, Direction)> {
        // Most tuples that nobody has meet no slot.
        self.buckets.find(hash, |slot| self.find_at(slot, zone, tuple))
    }

    /// The connection of a slot, if it has this tuple.
    #[inline(never)]
    fn find_at(&self, slot: Slot, zone: u16, tuple: &Tuple) -> Option<(Handle, Direction)> {
        // What a direction's packets become is what the other's look like, reversed.
        let wanted = tuple.reversed();
        let (addresses, ports) = (wanted.address_words(), wanted.port_word());
        let is_icmp = u64::from(tuple.role != Role::None);
        let identity = u64::from(zone) << 48 | u64::from(tuple.protocol.0) << 40 | is_icmp << 32;
        let is_v6 = tuple.addresses.is_v6();
        let index = slot.index();
        let entry = self.entries.get(index as usize)?;
        packet::prefetch(&entry.lines[1]);
        let control = self.control(index);
        if !control.is_live() || control.flags().has(Flags::V6) != is_v6 {
            return None;
        }
        let load = |at: usize, word: usize| entry.lines[at].0[word].load(Ordering::Acquire);
        let is_of = |direction: Direction| {
            let other = direction.opposite().at();
            load(other, word::PORTS) >> 32 == ports >> 32
                && match is_v6 {
                    false => load(other, word::ADDRESSES) == addresses[0],
                    true => self.wide_words(index, direction.opposite()) == addresses,
                }
        };
        let can_be = |direction| match (tuple.role, direction) {
            (Role::None, _) => true,
            (role, Direction::Original) => role == Role::Query,
            (role, Direction::Reply) => role == Role::Answer,
        };
        let direction =
            [(Direction::Original, buckets::ORIGINAL), (Direction::Reply, buckets::REPLY)]
                .into_iter()
                .find(|(way, bit)| slot.is_for(*bit) && can_be(*way) && is_of(*way))?
                .0;
        let is_of_zone = load(1, word::IDENTITY) & !0xffff_ffff == identity;
        // The same connection as before, whatever was changed of it meanwhile: what was read is of one.
        let before = Handle { index, generation: control.generation() };
        let control = self.control(index);
        let handle = Handle { index, generation: control.generation() };
        (is_of_zone && self.is_named(before, control)).then_some((handle, direction))
    }

    #[inline(always)]
    pub(crate) fn judge(
        &self,
        control: Control,
        own: Side,
        peer: Side,
        direction: Direction,
        packet: &Packet,
        tick: u32,
    ) -> Outcome {
        match packet {
            Packet::Tcp(segment) => tcp::judge(control, own, peer, direction, segment),
            Packet::Datagram => {
                let original = if direction == Direction::Original { &own } else { &peer };
                datagram::judge(control, own, original, direction, tick)
            }
            Packet::Sctp(chunks) => sctp::judge(control, own, peer, direction, chunks),
            Packet::Malformed => Outcome::Invalid,
        }
    }

    /// The first state of a connection that a packet opens. What it says of its sender is written in
    /// place.
    #[inline(always)]
    pub(crate) fn open(
        &self,
        tuple: &Tuple,
        packet: &Packet,
        tick: u32,
        own: &mut Side,
    ) -> Option<(State, Flags)> {
        match packet {
            Packet::Tcp(segment) if tuple.protocol == Protocol::TCP => {
                let (state, flags, side) = tcp::open(segment, self.settings.pick_up)?;
                *own = side;
                Some((state, flags))
            }
            Packet::Sctp(chunks) if tuple.protocol == Protocol::SCTP => {
                let (state, side) = sctp::open(chunks)?;
                *own = side;
                Some((state, Flags::default()))
            }
            Packet::Datagram if !matches!(tuple.protocol, Protocol::TCP | Protocol::SCTP) => {
                own.sent = tick.into();
                let may_open = tuple.role != Role::Answer;
                may_open.then(|| (datagram::first(tuple.protocol), Flags::default()))
            }
            _ => None,
        }
    }

    pub(crate) fn ct_state_of_new_packet(&self, packet: &Packet) -> CtState {
        let opens = match packet {
            Packet::Tcp(segment) => tcp::open(segment, self.settings.pick_up).is_some(),
            Packet::Sctp(chunks) => sctp::open(chunks).is_some(),
            Packet::Datagram => true,
            Packet::Malformed => false,
        };
        if opens { CtState::NEW | CtState::TRK } else { CtState::INVALID }
    }

    /// What becomes of packets of a direction of a connection. `None` if it is not there.
    #[inline]
    pub fn translation(&self, handle: Handle, direction: Direction) -> Option<Translation> {
        let entry = self.entries.get(handle.index as usize)?;
        let line = &entry.lines[direction.at()];
        let control = self.control(handle.index);
        let is_v6 = control.flags().has(Flags::V6);
        let words = match is_v6 {
            true => self.wide_words(handle.index, direction),
            false => [line.0[word::ADDRESSES].load(Ordering::Acquire), 0, 0, 0],
        };
        let ports = line.0[word::PORTS].load(Ordering::Acquire);
        let identity = entry.lines[1].0[word::IDENTITY].load(Ordering::Acquire);
        let role = match (identity >> 32 & 1, direction) {
            (0, _) => Role::None,
            (_, Direction::Original) => Role::Query,
            (_, Direction::Reply) => Role::Answer,
        };
        let tuple = Tuple {
            addresses: Tuple::addresses_of(words, is_v6),
            protocol: Protocol((identity >> 40) as u8),
            source: (ports >> 48) as u16,
            destination: (ports >> 32) as u16,
            role,
        };
        let is_source = match direction {
            Direction::Original => control.flags().has(Flags::SNAT),
            Direction::Reply => control.flags().has(Flags::DNAT),
        };
        // It has lived all the while, and its tuples do not change. Its mark, label or helper may: its
        // packets on their way are translated as before.
        let is_it = self.is_named(handle, self.control(handle.index));
        is_it.then(|| Translation::new(tuple, ports as u32, is_source))
    }

    /// What a decision about packets of a direction may depend on of a connection without a helper, beside
    /// its state. `None` of one with a helper, and if it is not there.
    #[inline]
    pub fn plain(&self, handle: Handle, direction: Direction) -> Option<Plain> {
        let mut plain = Plain::default();
        self.read_plain(handle, direction, &mut plain).map(|()| plain)
    }

    /// As [`Connections::plain`], written in place. If it is `None`, what is there means nothing.
    #[inline(always)]
    pub fn read_plain(
        &self,
        handle: Handle,
        direction: Direction,
        plain: &mut Plain,
    ) -> Option<()> {
        let entry = self.entries.get(handle.index as usize)?;
        let control = || Control(entry.lines[0].0[word::CONTROL].load(Ordering::Acquire));
        plain.translated = match control().is_translated() {
            true => Some(self.translation(handle, direction)?.tuple),
            false => None,
        };
        let cold = |word: usize| entry.cold.0[word].load(Ordering::Acquire);
        plain.label = [cold(cold::LABEL_LOW), cold(cold::LABEL_HIGH)];
        let has_helper = Kept(cold(cold::KEPT)).helper() != 0;
        plain.mark = entry.lines[1].0[word::IDENTITY].load(Ordering::Acquire) as u32;
        // What was read is of this connection.
        let control = control();
        let is_it = control.is_live() && control.generation() == handle.generation;
        (is_it && !has_helper).then_some(())
    }

    /// For a packet that is invalid and belongs to no connection, whatever its tuple: it is counted.
    pub fn invalid(&self) -> Reference {
        Reference::new(Named::Absent(self.stamp(0), CtState::INVALID))
    }

    /// What stands for "no connection has a tuple with this hash".
    #[inline]
    pub(crate) fn stamp(&self, hash: u64) -> Stamp {
        let place = stamp_place(hash);
        let number = self.stamps[place].load(Ordering::Acquire);
        let of_all = self.stamp_of_all.load(Ordering::Acquire);
        Stamp { place: place as u32, number: number.wrapping_add(of_all) }
    }
}
