//! What connection tracking and routes say to flows that ask, and what flows want of connections.

use core::cell::RefCell;
use core::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use arrayvec::ArrayVec;
use conntrack::{
    CtState, Direction, Expectation, Handle, New, QuotedSequence, Reference, Segment, Stamp,
};
use packet::Time;
use pipeline::{Commit, CtFields, Exit, Fields, MOST_COMMITS, NatEnd, NatNew, NatSpec, Track};
use tables::{Tables, Vrf};
use wire::quoted::{self, Quoted};
use wire::{FlowKey, FragmentClass, Protocol, TcpFlags, Upper};

use super::flows::Seen;
use super::trace::Trace;
use super::way::routed;
use super::{Deciding, LookedUp, Translated};
use crate::batch::ANY_SEQUENCE;
use crate::connection::{self, Before, Change, Imagined, NewSource};
use crate::extension::MOST_CONNECTIONS;

/// A connection is looked for so often at most, if it ends while it is read.
const LOOKS: usize = 8;

/// What the `ct(commit)` of a packet ask for together of one connection.
pub(super) struct Wanted<'c> {
    zone: u16,
    force: bool,
    mark: (u32, u32),
    label: (u128, u128),
    helper: u16,
    class: u16,
    /// Whether what is expected is translated.
    has_nat: bool,
    /// Whether a connection with another source is made anew.
    anew: bool,
    /// Bits of the label that say whose it is.
    owner: u128,
    /// As the first `ct(commit)` says, or a later one that says `twice`.
    destination: Option<&'c Arc<NatNew>>,
    source: Option<&'c Arc<NatNew>>,
}

impl<'c> Wanted<'c> {
    /// Of the connection with this number among those of the packet; `whose` has the numbers of those
    /// that `commits` are about.
    pub(super) fn of(commits: &[Commit<'c>], whose: &[u8], number: usize) -> Option<Self> {
        let commits = commits.iter().zip(whose);
        let mut commits =
            commits.filter(|(_, whose)| usize::from(**whose) == number).map(|(commit, _)| commit);
        let mut next = commits.next();
        let mut wanted = Self {
            zone: next?.zone,
            force: false,
            mark: (0, 0),
            label: (0, 0),
            helper: 0,
            class: 0,
            has_nat: false,
            anew: false,
            owner: 0,
            destination: None,
            source: None,
        };
        let mut is_first = true;
        while let Some(commit) = core::mem::replace(&mut next, commits.next()) {
            let ((mark, bits), (label, label_bits)) = (commit.mark, commit.label);
            wanted.force |= commit.ct.force;
            wanted.anew |= commit.ct.anew;
            wanted.owner |= commit.ct.owner;
            wanted.mark = (wanted.mark.0 & !bits | mark & bits, wanted.mark.1 | bits);
            wanted.label =
                (wanted.label.0 & !label_bits | label & label_bits, wanted.label.1 | label_bits);
            wanted.class = if commit.class == 0 { wanted.class } else { commit.class };
            wanted.has_nat |= commit.ct.nat.is_some();
            wanted.helper = commit.ct.alg.map_or(wanted.helper, |alg| 1 + alg as u16);
            let nat = commit.ct.nat.as_ref().filter(|nat| is_first || nat.twice);
            let nat = nat.and_then(|nat| nat.new.as_ref());
            is_first = false;
            let end = match nat.map(|nat| nat.end) {
                Some(NatEnd::Source) => &mut wanted.source,
                Some(NatEnd::Destination) => &mut wanted.destination,
                None => continue,
            };
            *end = end.or(nat);
        }
        Some(wanted)
    }
}

impl Wanted<'_> {
    /// Whether a helper is asked for.
    pub(super) fn has_helper(&self) -> bool {
        self.helper != 0
    }

    /// Whether a connection that is there has another source than it would get, and is to have that.
    fn is_of_another_source(&self, tracked: &Tracked) -> bool {
        let source = |tuple: conntrack::Tuple| tuple.addresses.source();
        let Some(own) = tracked.own.map(source) else { return false };
        let is = tracked.translation.map_or(own, source);
        let fits = match self.source.and_then(|nat| nat.addresses) {
            Some(wanted) => wanted.contains(is),
            None => is == own,
        };
        self.anew && tracked.state.contains(CtState::NEW) && !fits
    }
}

/// What is to be done for that, if it is not so already.
pub(super) fn changed(wanted: &Wanted<'_>, tracked: &Tracked, tables: &Tables) -> Option<Change> {
    match tracked.connection {
        Some((handle, direction)) => {
            let ((mark, mark_bits), (label, label_bits)) = (wanted.mark, wanted.label);
            if (tracked.label ^ label) & label_bits & wanted.owner != 0 && !tracked.is_changed {
                return None;
            }
            let is_anew = match direction {
                Direction::Original => wanted.is_of_another_source(tracked),
                Direction::Reply => wanted.force,
            };
            if is_anew && !tracked.is_changed {
                return make(wanted, tracked, Some(handle), tables);
            }
            let is_so = tracked.is_changed
                || (tracked.mark ^ mark) & mark_bits == 0
                    && (tracked.label ^ label) & label_bits == 0
                    && (wanted.helper == 0 || tracked.helper == wanted.helper);
            (!is_so).then_some(Change::Write {
                handle,
                mark: wanted.mark,
                label: wanted.label,
                helper: wanted.helper,
            })
        }
        None if tracked.is_imagined => None,
        None if tracked.state.contains(CtState::NEW) => make(wanted, tracked, None, tables),
        None => None,
    }
}

fn make(
    wanted: &Wanted<'_>,
    tracked: &Tracked,
    instead_of: Option<Handle>,
    tables: &Tables,
) -> Option<Change> {
    let original = tracked.own?;
    // What was expected has the mark and the label of the connection that has announced it, but for
    // what is written here.
    let ((mark, mark_bits), (label, label_bits)) = (wanted.mark, wanted.label);
    let new = New {
        mark: tracked.mark & !mark_bits | mark & mark_bits,
        label: tracked.label & !label_bits | label & label_bits,
        helper: wanted.helper,
        class: wanted.class,
        hash: tracked.hash,
        vacant: tracked.vacant,
        master: tracked.expected.as_ref().map(|expected| expected.master.index),
        ..New::plain(wanted.zone, original)
    };
    let destination = wanted.destination.cloned();
    let source = wanted.source.map(|nat| NewSource {
        nat: Arc::clone(nat),
        pool: tables.nat_pool_of(nat),
        likely: None,
    });
    let expected = tracked.expected.as_ref();
    let expected = expected.filter(|expected| wanted.has_nat && expected.is_translated()).cloned();
    Some(Change::Make { new, destination, source, expected, instead_of, has_more: false })
}

/// What connection tracking has said of a packet.
#[derive(Clone, Debug)]
pub(super) struct Tracked {
    pub(super) zone: u16,
    pub(super) state: CtState,
    pub(super) mark: u32,
    pub(super) label: u128,
    pub(super) helper: u16,
    pub(super) hash: Option<u64>,
    pub(super) vacant: Option<Stamp>,
    /// What the packet was like when it was tracked.
    pub(super) at: FlowKey,
    /// The packet's own, if it may open the connection.
    pub(super) own: Option<conntrack::Tuple>,
    pub(super) original: Option<conntrack::Tuple>,
    pub(super) connection: Option<(Handle, Direction)>,
    /// What its packets become, if the connection is translated.
    pub(super) translation: Option<conntrack::Tuple>,
    /// The same, once a `ct` has asked for it.
    pub(super) translated: Option<conntrack::Tuple>,
    pub(super) is_translated: bool,
    pub(super) reference: Reference,
    pub(super) keep: bool,
    /// Few are.
    pub(super) expected: Option<Box<Expectation>>,
    /// Whether a `ct(commit)` has asked for it: only the first one's `nat` counts.
    is_committed: bool,
    /// Whether the packet has changed it already, as its flows have asked for.
    is_changed: bool,
    /// Whether it is there only as what is foretold has it.
    is_imagined: bool,
}

impl Tracked {
    fn invalid(zone: u16, at: FlowKey, keep: bool) -> Self {
        Self {
            zone,
            state: CtState::INVALID,
            mark: 0,
            label: 0,
            helper: 0,
            hash: None,
            vacant: None,
            at,
            own: None,
            original: None,
            connection: None,
            translation: None,
            translated: None,
            is_translated: false,
            reference: Reference::NONE,
            keep,
            expected: None,
            is_committed: false,
            is_changed: false,
            is_imagined: false,
        }
    }

    /// Whether it is an answer that is translated back, as its connection is, which it has not changed yet.
    pub(super) fn is_undone(&self) -> bool {
        let is_answer = matches!(self.connection, Some((_, Direction::Reply)));
        is_answer && self.is_translated && !self.is_changed
    }

    /// Whether it is of a connection with a helper. Also if it is invalid: the next one of its flow
    /// may be so for the tracker alone that does not know how the helper has shifted the numbers.
    pub(super) fn is_helped(&self) -> bool {
        self.helper != 0 && self.reference.is_connection()
    }

    /// As flows see it. As in Open vSwitch, `nat` without addresses translates no packet that may open
    /// the connection: that is done by the `nat` with addresses that has made it, or by one of a
    /// `ct(commit)` if the connection was expected.
    fn fields(&mut self, commit: bool, nat: Option<&NatSpec>) -> CtFields {
        let is_first = commit && !self.is_committed;
        self.is_committed |= commit;
        if let Some(nat) = nat {
            self.translate(nat, is_first || nat.twice, commit);
        }
        self.is_translated = self.translated.is_some();
        let hidden = if self.is_translated { 0 } else { CtState::SNAT.0 | CtState::DNAT.0 };
        CtFields {
            state: CtState(self.state.0 & !hidden),
            mark: self.mark,
            label: self.label,
            original: self.original,
            translated: self.translated,
        }
    }

    /// As a `nat` asks for, that may choose what a new connection becomes, or may not.
    fn translate(&mut self, nat: &NatSpec, may_choose: bool, commit: bool) {
        let new = nat.new.as_ref();
        let may_open = self.state.contains(CtState::NEW);
        let is_expected = commit && self.state.contains(CtState::REL);
        self.translated = match (self.own, self.translation) {
            (_, Some(tuple)) if !may_open || is_expected => {
                if self.expected.is_some() {
                    self.state.0 |= CtState::DNAT.0;
                }
                Some(tuple)
            }
            (Some(own), Some(tuple)) if may_open && let Some(new) = new => {
                let now = self.translated.unwrap_or(own);
                let addresses = tuple.addresses;
                match new.end {
                    NatEnd::Source => now.with_source(addresses.source(), tuple.source),
                    NatEnd::Destination => {
                        now.with_destination(addresses.destination(), tuple.destination)
                    }
                }
            }
            // It is not there yet. What its source becomes is known when it is.
            (Some(own), None)
                if self.connection.is_none()
                    && self.expected.is_none()
                    && may_open
                    && may_choose
                    && let Some(new) = new =>
            {
                self.translation = match new.end {
                    NatEnd::Source => None,
                    NatEnd::Destination => connection::destinations(new, &own).next(),
                };
                self.state.0 |= self.translation.map_or(0, |_| CtState::DNAT.0);
                self.translation
            }
            _ => self.translated,
        };
    }
}

/// Asks the connection table and the routes for the flows.
pub(super) struct Tracking<'r, 'a, T> {
    pub(super) key: &'a FlowKey,
    pub(super) tables: &'a Tables,
    pub(super) vrf: &'a Vrf,
    pub(super) seen: Option<&'a Seen<'a>>,
    pub(super) trace: &'r RefCell<&'a mut T>,
    /// The packet's connections, in the order in which they were asked for.
    pub(super) said: ArrayVec<Tracked, MOST_CONNECTIONS>,
    /// The last of them that was asked for.
    pub(super) last: usize,
    /// Whether more were asked for.
    pub(super) has_too_many: bool,
    /// Of each `ct(commit)` in order, the number of its connection.
    pub(super) commits: ArrayVec<u8, MOST_COMMITS>,
    pub(super) wants_whole: bool,
    /// Where the packet would be routed to, as it was when that was asked for last.
    pub(super) known_exit: Option<(FlowKey, u32, Exit)>,
    /// A destination that a route was looked up for, if it was another one than the packet's: a
    /// second such one makes it unspecified.
    pub(super) asked: Option<IpAddr>,
}

impl<T: Trace> Track for Tracking<'_, '_, T> {
    fn track(
        &mut self,
        zone: u16,
        commit: bool,
        fields: &Fields,
        nat: Option<&NatSpec>,
    ) -> CtFields {
        if self.key.fragment != FragmentClass::Whole {
            self.wants_whole = true;
            return CtFields::default();
        }
        // As in Open vSwitch, a packet that is in the zone already is looked up there no more.
        let is_last = self.said.get(self.last).is_some_and(|said| said.zone == zone);
        if !is_last {
            let now = self.now(fields);
            match self.said.iter().position(|said| said.zone == zone && said.is_of(&now)) {
                Some(known) => self.last = known,
                None if self.said.is_full() => {
                    self.has_too_many = true;
                    return Tracked::invalid(zone, now, true).fields(commit, None);
                }
                None => {
                    let said = self.look(zone, now);
                    self.last = self.said.len();
                    self.said.push(said);
                }
            }
        }
        if commit {
            // Too many end the packet elsewhere.
            _ = self.commits.try_push(self.last as u8);
        }
        self.said.get_mut(self.last).map(|said| said.fields(commit, nat)).unwrap_or_default()
    }

    fn waits(&self) -> bool {
        self.wants_whole
    }

    fn exit(&mut self, fields: &Fields) -> Exit {
        let (source, destination) = fields.ports();
        let ports = match self.key.upper {
            Upper::Ports { .. } => Upper::Ports { source, destination },
            upper => upper,
        };
        let Some(addresses) = fields.addresses() else { return Exit::None };
        let after = FlowKey { addresses, upper: ports, ..*self.key };
        let to = addresses.destination();
        if to != self.key.addresses.destination() {
            self.asked = match self.asked {
                None => Some(to),
                Some(before) if before == to => Some(to),
                Some(_) => Some(IpAddr::V6(Ipv6Addr::UNSPECIFIED)),
            };
        }
        let pkt_mark = fields.pkt_mark();
        if let Some((known, mark, exit)) = self.known_exit
            && known == after
            && mark == pkt_mark
        {
            return exit;
        }
        let mark = Translated { mark: pkt_mark, received: *self.key, quoted: None };
        let mut trace = self.trace.borrow_mut();
        let deciding = Deciding {
            key: routed(&after, self.key),
            tables: self.tables,
            vrf: self.vrf,
            looked_up: &LookedUp::NOTHING,
            trace: &mut **trace,
            mark,
        };
        let exit = deciding.exit();
        self.known_exit = Some((after, pkt_mark, exit));
        exit
    }
}

impl<T> Tracking<'_, '_, T> {
    /// The packet as flows and other zones have left it.
    fn now(&self, fields: &Fields) -> FlowKey {
        if fields.is_as_received() {
            return *self.key;
        }
        let upper = match (self.key.upper, fields.ports()) {
            (Upper::Ports { .. }, (source, destination)) => Upper::Ports { source, destination },
            // Flows know no identifier; connections may translate it.
            (Upper::Icmp { kind, code, .. }, _) => {
                let mut translated = self.said.iter().rev().filter_map(|said| said.translated);
                match translated.next() {
                    Some(tuple) if tuple.role != conntrack::Role::None => {
                        Upper::Icmp { kind, code, identifier: tuple.source }
                    }
                    _ => self.key.upper,
                }
            }
            (upper, _) => upper,
        };
        let addresses = fields.addresses().unwrap_or(self.key.addresses);
        FlowKey { addresses, upper, ..*self.key }
    }

    fn look(&self, zone: u16, key: FlowKey) -> Tracked {
        let Some(connections) = self.tables.connections() else {
            return Tracked::invalid(zone, key, true);
        };
        let now = self.seen.map_or(Time(0), |seen| seen.now);
        if let Upper::Icmp { kind, .. } = self.key.upper
            && quoted::is_error(self.key.protocol, kind)
        {
            return self.related(zone, key);
        }
        let Some(tuple) = connection::tuple(&key) else {
            return Tracked::invalid(zone, key, true);
        };
        let own = self.seen.filter(|_| zone == self.key.vrf.0 && key == *self.key);
        let looked = own.and_then(|seen| seen.looked);
        let packet = match (looked, self.seen) {
            (Some(looked), _) => looked.packet,
            (None, Some(seen)) => connection::read(seen.packet, seen.facts, self.key),
            (None, None) => unseen(self.key),
        };
        let hash = looked.map(|looked| looked.hash).or(own.and_then(|seen| seen.hash));
        let hash = hash.unwrap_or_else(|| connections.hash_of(zone, &tuple));
        let find = |known: Option<conntrack::Tracked>| {
            let track = |packet| connections.track_by(hash, zone, &tuple, packet, now);
            let mut found = known.unwrap_or_else(|| track(&packet));
            if let Some((handle, direction)) = found.connection
                && let Some(packet) = connections.acknowledging(handle.index, direction, &packet)
            {
                found = track(&packet);
            }
            let mut tracked = Tracked {
                own: Some(tuple),
                hash: Some(hash),
                vacant: found.vacant,
                state: found.ct_state,
                connection: found.connection,
                reference: found.reference,
                keep: found.keep,
                expected: found.expected,
                // Of a new one, what its packet is.
                original: found.ct_state.contains(CtState::NEW).then_some(tuple),
                ..Tracked::invalid(zone, key, found.keep)
            };
            tracked.note_connection(connections, now).then_some(tracked)
        };
        let found = find(looked.map(|looked| looked.found()));
        // Its connection has ended since. If others end as fast, again and again, it is of none.
        let tracked = found.or_else(|| (1..LOOKS).find_map(|_| find(None)));
        let Some(mut tracked) = tracked else {
            let reference = connections.invalid();
            return Tracked { reference, ..Tracked::invalid(zone, key, false) };
        };
        tracked.note_master(connections, now);
        tracked.note_before(self.seen.map_or(&[], |seen| seen.before));
        tracked.note_imagined(self.seen.map_or(&[], |seen| seen.imagined));
        tracked
    }

    /// What is said of an ICMP error. It is said for this packet alone, as the packet that it quotes
    /// is in no key.
    fn related(&self, zone: u16, key: FlowKey) -> Tracked {
        let none = Tracked::invalid(zone, key, false);
        let (Some(seen), Some(connections)) = (self.seen, self.tables.connections()) else {
            return none;
        };
        let read = connection::read(seen.packet, seen.facts, self.key);
        let headers = wire::headers::parse(seen.packet);
        let quoted = headers.ok().and_then(|headers| Quoted::read(seen.packet, &headers));
        let tuple = self.quoted().or_else(|| quoted.as_ref().and_then(quoted_tuple));
        let none = Tracked { reference: connections.invalid(), ..none };
        let (Some(quoted), Some(tuple)) = (quoted, tuple) else { return none };
        if read == conntrack::Packet::Malformed {
            return none;
        }
        let sequence = match seen.facts.is(ANY_SEQUENCE) {
            true => QuotedSequence::OnItsWay,
            false => quoted.sequence.into(),
        };
        let found = connections.related(zone, &key.addresses, &tuple, sequence, seen.now);
        let (ct_state, connection) = (found.ct_state, found.connection);
        let mut tracked = Tracked { state: ct_state, connection, ..none.clone() };
        if let Some((handle, direction)) = found.connection {
            let named = conntrack::Named::Related(handle, direction, found.ct_state);
            tracked.reference = Reference::new(named);
        }
        if !tracked.note_connection(connections, seen.now) {
            return none;
        }
        tracked.note_before(seen.before);
        // Its own addresses: the destination always, as it goes to who has sent the packet.
        if let (Some((handle, direction)), Some(own)) =
            (found.connection, Some(connection::addresses(&key)))
        {
            let known = tracked.translation.map(|_| connections.translation(handle, direction));
            if matches!(known, Some(None)) {
                // It has ended in between.
                return none;
            }
            tracked.translation = known.flatten().and_then(|translation| {
                let to = translation.tuple.addresses;
                let translated = own.with_destination(to.destination(), own.destination)?;
                match translation.is_source {
                    true => translated.with_source(to.source(), own.source),
                    false => Some(translated),
                }
            });
        }
        tracked
    }
}

impl<T> Tracking<'_, '_, T> {
    /// The tuple of the packet that an ICMP error quotes, as the last zone has left it that has translated
    /// the error: what packets of the other direction look like there.
    fn quoted(&self) -> Option<conntrack::Tuple> {
        let translated = self.said.iter().rev().find(|said| said.is_translated)?;
        let (handle, direction) = translated.connection?;
        let translation = self.tables.connections()?.translation(handle, direction)?;
        Some(translation.tuple.reversed())
    }
}

impl Tracked {
    /// Whether a packet that looks like this now is the same one: as it was tracked, or as it was then
    /// translated.
    fn is_of(&self, now: &FlowKey) -> bool {
        let translated = || self.translated.map(|tuple| connection::translated(&self.at, &tuple));
        self.at == *now || translated().is_some_and(|after| after == *now)
    }

    /// What there is to know of the connection, if there is one. False if it has ended since: what is
    /// known of it would let the packet leave untranslated.
    fn note_connection(&mut self, connections: &conntrack::Connections, now: Time) -> bool {
        let Some((handle, direction)) = self.connection else { return true };
        // Its mark may be another one since. Then the decision is for what was found, and not kept.
        let Some(found) = connections.named(handle, now) else { return false };
        (self.mark, self.label, self.helper) = (found.mark, found.label, found.helper);
        self.original = Some(found.original);
        if found.is_snat || found.is_dnat {
            let translation = connections.translation(handle, direction);
            self.translation = translation.map(|translation| translation.tuple);
            return self.translation.is_some();
        }
        true
    }
}

impl Tracked {
    /// What it was like before the packet has changed it. What flows say of that is for this packet alone.
    fn note_before(&mut self, before: &[Before]) {
        let Some((handle, _)) = self.connection else { return };
        let Some(before) = before.iter().find(|before| before.index == handle.index) else {
            return;
        };
        (self.mark, self.label) = (before.mark, before.label);
        self.state = before.state.unwrap_or(self.state);
        (self.keep, self.is_changed) = (false, true);
    }

    /// The connection that the packet would have opened, as its packets see it: what flows saw of it
    /// before is unchanged, and its translation is known.
    fn note_imagined(&mut self, imagined: &[Imagined]) {
        let Some(own) = self.own else { return };
        let is_own = |it: &&Imagined| it.zone == self.zone && it.original == own;
        let Some(Imagined { translated, .. }) = imagined.iter().find(is_own) else { return };
        (self.connection, self.is_imagined, self.keep) = (None, true, false);
        self.translation = (*translated != own).then_some(*translated);
        let end = |tuple: &conntrack::Tuple, is_source: bool| match is_source {
            true => (tuple.addresses.source(), tuple.source),
            false => (tuple.addresses.destination(), tuple.destination),
        };
        for (is_source, bit) in [(true, CtState::SNAT), (false, CtState::DNAT)] {
            let is_same = end(translated, is_source) == end(&own, is_source);
            self.state.0 |= if is_same { 0 } else { bit.0 };
        }
    }

    /// What there is to know of the connection that has announced this one.
    fn note_master(&mut self, connections: &conntrack::Connections, now: Time) {
        let Some(expected) = &self.expected else { return };
        // An expectation ends before its master's place is another connection's.
        if let Some(master) = connections.connection(expected.master.index, now) {
            (self.mark, self.label) = (master.mark, master.label);
        }
        // What its source becomes is known when it is there.
        if let (Some((address, port)), Some(own)) = (expected.translated, self.own) {
            self.translation = own.with_destination(address, port);
        }
    }
}

/// The tuple of the packet that an ICMP error quotes.
fn quoted_tuple(quoted: &Quoted) -> Option<conntrack::Tuple> {
    let Quoted { addresses, protocol, .. } = *quoted;
    match quoted.upper {
        Upper::Ports { source, destination } => {
            Some(conntrack::Tuple::new(addresses, protocol, source, destination))
        }
        Upper::Icmp { kind, code, identifier } => {
            conntrack::Tuple::icmp(addresses, kind, code, identifier)
        }
        Upper::Spi(_) | Upper::None => Some(conntrack::Tuple::new(addresses, protocol, 0, 0)),
    }
}

/// A packet of which only the key is known: of TCP, one that opens a connection.
fn unseen(key: &FlowKey) -> conntrack::Packet {
    let flags = match key.fields.tcp_flags() {
        TcpFlags(0) => TcpFlags::SYN,
        flags => flags,
    };
    match key.protocol {
        Protocol::TCP => conntrack::Packet::Tcp(Segment { flags, ..Segment::default() }),
        _ => conntrack::Packet::Datagram,
    }
}
