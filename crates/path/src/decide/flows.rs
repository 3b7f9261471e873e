//! Decisions in VRFs with match-action tables: what the flows say of a packet, and for which
//! connection.

use conntrack::{CtState, Direction, Handle, New, Reference, Segment};
use packet::{DropReason, LinkKind, Time};
use pipeline::{Commit, CtFields, Fields, NatSpec, To, Track};
use tables::{Direction as PolicyDirection, FlowId, Scope, Side, Tables, Vrf};
use wire::common::Facts;
use wire::quoted::{self, Quoted};
use wire::{FlowKey, FragmentClass, Origin, PacketFields, PortId, Protocol, TcpFlags, Upper};

use super::question::Question;
use super::trace::{Step, Trace};
use super::{Admission, Deciding, KeyView, Mark};
use crate::connection::{self, Change};
use crate::decision::{Decision, Verdict};
use crate::extension::{MatchedFlows, Rewrite};

/// What decide may read of a packet beside its key, if connections are tracked: whether it belongs to
/// a connection depends on its sequence numbers. What it was told is compared when a kept decision
/// is used.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'p> {
    /// The IP packet.
    pub packet: &'p [u8],
    /// Where its headers are.
    pub facts: Facts,
    /// Connections are dead from their deadlines on.
    pub now: Time,
}

/// What the flows say.
pub(super) struct Said {
    /// How the packet ends, if it does not go the way of a packet without flows.
    pub end: Option<Verdict>,
    /// What it is like when it leaves, if that is not what it is like now.
    pub after: Option<FlowKey>,
    pub mark: u32,
    pub reference: Reference,
    pub is_translated: bool,
    /// What is written into the packet besides.
    pub rewrite: Option<Rewrite>,
    /// Whether that is for other packets of the flow too.
    pub stays: bool,
    pub change: Option<Change>,
}

impl Said {
    /// The decision, with what it was made for.
    pub(super) fn put_into(&self, decision: Decision) -> Decision {
        let mut decision = decision.of_connection(self.reference);
        if self.is_translated {
            decision = decision.translated();
        }
        if self.rewrite.is_some() {
            decision = decision.rewritten();
        }
        if self.stays { decision } else { decision.passing() }
    }
}

/// Asks the flows of a packet's VRF.
fn ask(
    (key, tables, vrf): (&FlowKey, &Tables, &Vrf),
    mark: u32,
    seen: Option<&Seen<'_>>,
    trace: &mut impl Trace,
    flows: &mut MatchedFlows,
) -> Said {
    trace.asks(|| Question::Flows(vrf.id));
    let mut tracking =
        Tracking { key, tables, seen, said: None, has_second: false, wants_whole: false };
    let fields = Fields::of(key, mark);
    let mut teller = Teller(&mut *trace, tables);
    let outcome = tables.pipeline().evaluate(&fields, &mut tracking, &mut teller);
    outcome.matched.iter().for_each(|id| _ = flows.push(*id));
    let tracked = tracking.said.take();
    let (reference, keep, is_translated) = match &tracked {
        None => (Reference::NONE, true, false),
        Some(said) => (said.reference, said.keep, said.is_translated),
    };
    let mut said = Said {
        end: None,
        after: None,
        mark: outcome.fields.pkt_mark(),
        reference,
        is_translated,
        rewrite: None,
        stays: keep && !outcome.matched_more,
        change: None,
    };
    if tracking.wants_whole {
        said.end = Some(Verdict::Reassemble);
        return said;
    }
    // What it has there may be asked for behind the flows.
    let is_known = key.upper != Upper::None || !key.protocol.has_ports();
    if key.fragment == FragmentClass::Later && !is_known {
        said.end = Some(Verdict::Drop(DropReason::FragmentUnknown));
        return said;
    }
    if tracking.has_second || outcome.commits.len() > 1 {
        said.end = Some(Verdict::Drop(DropReason::FlowUnsupported));
        return said;
    }
    if let Some(commit) = outcome.commits.first() {
        said.change = tracked.as_ref().and_then(|tracked| change(commit, tracked, key));
    }
    said.stays &= said.change.is_none();
    let fields = match outcome.ends.as_slice() {
        [] => {
            said.end = Some(Verdict::Drop(reason(outcome.drop)));
            &outcome.fields
        }
        [end] => {
            match end.to {
                To::Normal if is_neighbour_discovery(key) => {
                    said.end = flooded(key, tables);
                }
                To::Normal => {}
                To::Port(port) => said.end = Some(Verdict::Output(port)),
                To::InPort => said.end = end.fields.in_port().map(Verdict::Output),
            }
            &end.fields
        }
        [..] => {
            said.end = Some(Verdict::Drop(DropReason::FlowUnsupported));
            return said;
        }
    };
    said.mark = fields.pkt_mark();
    let translated = tracked.and_then(|tracked| tracked.translated);
    let translated = translated.map_or(*key, |tuple| connection::translated(key, &tuple));
    match written(key, &translated, fields, outcome.writes | counted_hops(key, fields)) {
        Some((after, rewrite)) => {
            if after != *key {
                said.after = Some(after);
            }
            // What a connection translates and nobody else writes is its own.
            let is_ours = rewrite.dscp.is_some() || rewrite.hop_limit.is_some();
            if is_ours || after != translated {
                said.rewrite = Some(rewrite);
                said.is_translated = false;
            }
        }
        None => said.end = Some(Verdict::Drop(DropReason::FlowUnsupported)),
    }
    said
}

/// How a frame ends that is no IP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameEnd {
    Normal,
    Output(PortId),
    Drop(DropReason),
}

/// What flows say of an ARP packet that came by a port.
#[cold]
pub(super) fn decide_arp(
    tables: &Tables,
    port: &tables::Port,
    mut matched: impl FnMut(FlowId),
) -> FrameEnd {
    let fields = Fields::new(port.spec.vrf, Some(port.id), pipeline::ARP);
    let outcome = tables.pipeline().evaluate(&fields, &mut Untracked, &mut ());
    outcome.matched.iter().for_each(|id| matched(*id));
    match outcome.ends.as_slice() {
        [] => FrameEnd::Drop(reason(outcome.drop)),
        [end] => match end.to {
            To::Normal => FrameEnd::Normal,
            To::Port(port) => FrameEnd::Output(port),
            To::InPort => FrameEnd::Output(port.id),
        },
        [..] => FrameEnd::Drop(DropReason::FlowUnsupported),
    }
}

/// Of packets that no connection has.
struct Untracked;

impl Track for Untracked {
    fn track(&mut self, _: u16, _: bool, _: &Fields, _: Option<&NatSpec>) -> CtFields {
        CtFields { state: CtState::INVALID, ..CtFields::default() }
    }
}

/// Neighbour discovery that concerns other stations goes to all of them.
fn is_neighbour_discovery(key: &FlowKey) -> bool {
    let Upper::Icmp { kind: 133..=137, code: 0, .. } = key.upper else { return false };
    key.protocol == Protocol::ICMPV6
}

/// Where neighbour discovery goes that is not for us: to the stations of the ports that are joined with
/// its own.
fn flooded(key: &FlowKey, tables: &Tables) -> Option<Verdict> {
    let Origin::Port(port) = key.origin else { return None };
    let is_ours = tables.is_local(key.vrf, port, key.addresses.destination());
    (!is_ours && tables.joined(key.vrf).contains(&port)).then_some(Verdict::Flood)
}

fn reason(why: Option<pipeline::DropReason>) -> DropReason {
    use pipeline::DropReason as Why;
    match why {
        Some(Why::TableMiss) => DropReason::FlowMiss,
        Some(Why::TooDeep | Why::TooManyResubmits) => DropReason::FlowResubmits,
        Some(Why::TooManyOutputs | Why::TooManyCommits) => DropReason::FlowUnsupported,
        Some(Why::TtlExceeded) => DropReason::HopLimit,
        Some(Why::Explicit) | None => DropReason::FlowDrop,
    }
}

/// The hop limit, if flows have counted a hop.
fn counted_hops(key: &FlowKey, after: &Fields) -> PacketFields {
    match after.packet_fields().hop_limit() == key.fields.hop_limit() {
        true => PacketFields::NONE,
        false => PacketFields::HOP_LIMIT,
    }
}

/// What a packet looks like afterwards, with these optional fields written, and what is to be written
/// for that. `None` if that cannot be done.
fn written(
    key: &FlowKey,
    translated: &FlowKey,
    after: &Fields,
    writes: PacketFields,
) -> Option<(FlowKey, Rewrite)> {
    let addresses = after.addresses()?;
    let upper = match (key.upper, after.ports()) {
        (Upper::Ports { .. }, (source, destination)) => Upper::Ports { source, destination },
        (Upper::Icmp { kind, code, .. }, ports) if ports != (kind.into(), code.into()) => {
            return None;
        }
        // Flows know no identifier.
        _ => translated.upper,
    };
    let fields = after.packet_fields();
    let is_written = |field: PacketFields| !(writes & field).is_empty();
    let after = FlowKey { addresses, upper, ..*key };
    let ports = match upper {
        Upper::Ports { source, destination } => [source, destination],
        _ => [0; 2],
    };
    let ends = (after != *key)
        .then(|| [(addresses.source(), ports[0]), (addresses.destination(), ports[1])]);
    let dscp = is_written(PacketFields::DSCP).then(|| fields.dscp().bits());
    let hop_limit = is_written(PacketFields::HOP_LIMIT).then(|| fields.hop_limit());
    let is_ours = dscp.is_some() || hop_limit.is_some() || after != *translated;
    // An identifier is translated by the connection alone.
    if is_ours && matches!(upper, Upper::Icmp { .. }) && upper != key.upper {
        return None;
    }
    Some((after, Rewrite { ends, dscp, hop_limit }))
}

/// What a `ct(commit)` asks for, if it is not so already.
fn change(commit: &Commit, tracked: &Tracked, key: &FlowKey) -> Option<Change> {
    let helper = match commit.alg {
        None => 0,
        Some(alg) => 1 + alg as u16,
    };
    match tracked.connection {
        Some((handle, direction)) => {
            if commit.force && direction == Direction::Reply {
                return make(commit, tracked, key, helper, Some(handle));
            }
            let ((mark, mark_bits), (label, label_bits)) = (commit.mark, commit.label);
            let is_so = (tracked.mark ^ mark) & mark_bits == 0
                && (tracked.label ^ label) & label_bits == 0
                && (helper == 0 || tracked.helper == helper);
            (!is_so).then_some(Change::Write {
                handle,
                mark: commit.mark,
                label: commit.label,
                helper,
            })
        }
        None if tracked.state.contains(CtState::NEW) => make(commit, tracked, key, helper, None),
        None => None,
    }
}

fn make(
    commit: &Commit,
    tracked: &Tracked,
    key: &FlowKey,
    helper: u16,
    instead_of: Option<Handle>,
) -> Option<Change> {
    let original = connection::tuple(key)?;
    let new = New {
        mark: commit.mark.0 & commit.mark.1,
        label: commit.label.0 & commit.label.1,
        helper,
        master: tracked.master,
        ..New::plain(commit.zone, original)
    };
    let nat = commit.nat.as_ref().and_then(|nat| nat.new.clone());
    Some(Change::Make { new, nat, instead_of })
}

/// What connection tracking has said of a packet.
#[derive(Clone, Debug)]
struct Tracked {
    zone: u16,
    state: CtState,
    mark: u32,
    label: u128,
    helper: u16,
    original: Option<conntrack::Tuple>,
    connection: Option<(Handle, Direction)>,
    /// What its packets become, if the connection is translated.
    translation: Option<conntrack::Tuple>,
    /// The same, once a `ct` has asked for it.
    translated: Option<conntrack::Tuple>,
    is_translated: bool,
    reference: Reference,
    keep: bool,
    master: Option<u32>,
}

impl Tracked {
    fn invalid(zone: u16, keep: bool) -> Self {
        Self {
            zone,
            state: CtState::INVALID,
            mark: 0,
            label: 0,
            helper: 0,
            original: None,
            connection: None,
            translation: None,
            translated: None,
            is_translated: false,
            reference: Reference::NONE,
            keep,
            master: None,
        }
    }

    /// As flows see it. As in Open vSwitch, `nat` without addresses translates no packet that may open
    /// the connection: that is done by the `nat` with addresses that has made it.
    fn fields(&mut self, nat: Option<&NatSpec>) -> CtFields {
        let is_asked =
            nat.is_some_and(|nat| nat.new.is_some() || !self.state.contains(CtState::NEW));
        if is_asked && let Some(tuple) = self.translation {
            self.translated = Some(tuple);
            self.is_translated = true;
        }
        let hidden = if self.is_translated { 0 } else { CtState::SNAT.0 | CtState::DNAT.0 };
        CtFields {
            state: CtState(self.state.0 & !hidden),
            mark: self.mark,
            label: self.label,
            original: self.original,
            translated: self.translated,
        }
    }
}

/// Tells the steps through the tables among those of the decision.
struct Teller<'a, T>(&'a mut T, &'a Tables);

impl<T: Trace> pipeline::Trace for Teller<'_, T> {
    #[inline(always)]
    fn step(&mut self, step: &pipeline::Step<'_>) {
        let Self(trace, tables) = self;
        trace.step(|| Step::Flow(*step, tables));
    }
}

/// Asks the connection table for the flows.
struct Tracking<'a> {
    key: &'a FlowKey,
    tables: &'a Tables,
    seen: Option<&'a Seen<'a>>,
    /// Of the zone that was asked first.
    said: Option<Tracked>,
    /// Whether a second zone was asked: a decision names one connection.
    has_second: bool,
    wants_whole: bool,
}

impl Track for Tracking<'_> {
    fn track(
        &mut self,
        zone: u16,
        _force: bool,
        _fields: &Fields,
        nat: Option<&NatSpec>,
    ) -> CtFields {
        if self.key.fragment != FragmentClass::Whole {
            self.wants_whole = true;
            return Tracked::invalid(zone, true).fields(None);
        }
        if self.said.as_ref().is_some_and(|said| said.zone != zone) {
            self.has_second = true;
            return Tracked::invalid(zone, true).fields(None);
        }
        if self.said.is_none() {
            self.said = Some(self.look(zone));
        }
        let said = self.said.as_mut();
        said.map(|said| said.fields(nat)).unwrap_or_default()
    }
}

impl Tracking<'_> {
    fn look(&self, zone: u16) -> Tracked {
        let Some(connections) = self.tables.connections() else {
            return Tracked::invalid(zone, true);
        };
        let now = self.seen.map_or(Time(0), |seen| seen.now);
        if let Upper::Icmp { kind, .. } = self.key.upper
            && quoted::is_error(self.key.protocol, kind)
        {
            return self.related(zone);
        }
        let Some(tuple) = connection::tuple(self.key) else { return Tracked::invalid(zone, true) };
        let packet = match self.seen {
            Some(seen) => connection::read(seen.packet, seen.facts, self.key),
            None => unseen(self.key),
        };
        let found = connections.track(zone, &tuple, &packet, now);
        let mut tracked = Tracked {
            state: found.ct_state,
            connection: found.connection,
            reference: found.reference,
            keep: found.keep,
            master: found.expected.map(|expected| expected.master.index),
            ..Tracked::invalid(zone, found.keep)
        };
        tracked.note_connection(connections, now);
        tracked
    }

    /// What is said of an ICMP error. It is said for this packet alone, as the packet that it quotes
    /// is in no key.
    fn related(&self, zone: u16) -> Tracked {
        let none = Tracked::invalid(zone, false);
        let (Some(seen), Some(connections)) = (self.seen, self.tables.connections()) else {
            return none;
        };
        let read = connection::read(seen.packet, seen.facts, self.key);
        let headers = wire::headers::parse(seen.packet);
        let quoted = headers.ok().and_then(|headers| Quoted::read(seen.packet, &headers));
        let tuple = quoted.as_ref().and_then(quoted_tuple);
        let (Some(quoted), Some(tuple)) = (quoted, tuple) else { return none };
        if read == conntrack::Packet::Malformed {
            return none;
        }
        let found =
            connections.related(zone, &self.key.addresses, &tuple, quoted.sequence, seen.now);
        let mut tracked = Tracked { state: found.ct_state, connection: found.connection, ..none };
        if let Some((handle, direction)) = found.connection {
            let named = conntrack::Named::Related(handle, direction, found.ct_state);
            tracked.reference = Reference::new(named);
        }
        tracked.note_connection(connections, seen.now);
        // Its own addresses: the destination always, as it goes to who has sent the packet.
        if let (Some((handle, direction)), Some(own)) =
            (found.connection, Some(connection::addresses(self.key)))
        {
            tracked.translation = tracked.translation.and_then(|_| {
                let translation = connections.translation(handle, direction)?;
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

impl Tracked {
    /// What there is to know of the connection, if there is one.
    fn note_connection(&mut self, connections: &conntrack::Connections, now: Time) {
        let Some((handle, direction)) = self.connection else { return };
        let found = connections.connection(handle.index, now);
        let Some(found) = found.filter(|found| found.handle == handle) else {
            // It has ended since.
            self.keep = false;
            return;
        };
        (self.mark, self.label, self.helper) = (found.mark, found.label, found.helper);
        self.original = Some(found.original);
        if found.is_snat || found.is_dnat {
            let translation = connections.translation(handle, direction);
            self.translation = translation.map(|translation| translation.tuple);
            self.keep &= self.translation.is_some();
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

impl<'a, K: KeyView, T: Trace, M: Mark> Deciding<'_, 'a, K, T, M> {
    /// Asks the flows, of a packet whose source its port may receive from. `Err` is the end of others.
    pub(super) fn ask_flows(
        mut self,
        flow: &FlowKey,
        seen: Option<&Seen<'_>>,
        flows: &mut MatchedFlows,
    ) -> Result<Said, Decision> {
        if let Some(reason) = self.wrong_source() {
            return Err(Decision::drop(reason));
        }
        let mark = self.mark.mark().unwrap_or_default();
        Ok(ask((flow, self.tables, self.vrf), mark, seen, self.trace, flows))
    }

    /// The frame leaves by a port as it came, if the boundary lets it: as a routed packet that leaves
    /// there would be, unless that is encrypted.
    pub(super) fn output(mut self, port: PortId) -> Decision {
        // Frames that are there as they came, and a port that sends them so.
        let is_frame = |id| {
            let port = self.tables.port(id);
            port.is_some_and(|port| {
                port.spec.link == LinkKind::Ethernet
                    && port.spec.vlan.is_none()
                    && port.spec.if_id.is_none()
            })
        };
        let came = matches!(self.key.origin(), Origin::Port(by) if is_frame(by));
        if !came || !is_frame(port) {
            return Decision::drop(DropReason::FlowUnsupported);
        }
        if self.vrf.spd.is_empty() && !self.vrf.is_closed() {
            self.trace.asks(|| Question::Policies(self.key.vrf()));
            return Decision::new(Verdict::Output(port), None, None);
        }
        if self.vrf.is_closed() {
            self.trace.asks(|| Question::Policies(self.key.vrf()));
            return Decision::drop(DropReason::IpsecClosed);
        }
        let admission = match self.admit_forwarded() {
            Ok(Admission::Admitted(policy)) => policy,
            Ok(Admission::Unmatched) => return Decision::drop(DropReason::PolicyNoMatch),
            Err(refused) => return refused,
        };
        if self.tables.boundary(port).side == Side::Protected {
            return Decision::new(Verdict::Output(port), admission, None);
        }
        let policy = self.policy(Scope::Vrf(self.key.vrf()), PolicyDirection::Out);
        let outbound = policy.map(|policy| policy.handle.place());
        let verdict = match policy.map(|policy| policy.spec.action) {
            Some(tables::Action::Bypass) => Verdict::Output(port),
            Some(tables::Action::Protect(template)) => {
                self.protect(Scope::Vrf(self.key.vrf()), &template)
            }
            Some(tables::Action::Discard) => Verdict::Drop(DropReason::PolicyDiscard),
            None if self.accepts_unmatched() => Verdict::Output(port),
            None => Verdict::Drop(DropReason::PolicyNoMatch),
        };
        Decision::new(verdict, admission, outbound)
    }
}
