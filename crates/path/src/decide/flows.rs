//! Decisions in VRFs with match-action tables: what the flows say of a packet, and for which
//! connection.

use core::cell::RefCell;

use arrayvec::ArrayVec;
use conntrack::{CtState, Direction, Handle, Reference, Stamp};
use packet::{DropReason, LinkKind, Time};
use pipeline::{CtFields, End, Exit, Fields, MOST_ENDS, NatSpec, Outcome, To, Track};
use tables::{Direction as PolicyDirection, FlowId, RouteKind, Scope, Side, Tables, Vrf};
use wire::common::Facts;
use wire::{FlowKey, FragmentClass, Origin, PacketFields, PortId, Protocol, Upper};

use super::filters::refusal;
use super::links;
use super::question::Question;
use super::trace::{Step, Trace, WithoutPolicies};
use super::tracking::{Tracked, Tracking, Wanted, changed};
use super::way::{Way, exit_port};
use super::{Admission, Deciding, KeyView, Mark, is_link_local_v6};
use crate::connection::{self, Before, Change, Imagined};
use crate::decision::{Decision, Verdict};
use crate::extension::{Copied, Further, MatchedFlows, Rewrite};

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
    /// The hash of its tuple in the zone of its VRF, if that was asked for before.
    pub hash: Option<u64>,
    /// What was said of it in that zone, the same.
    pub(super) looked: Option<Looked>,
    /// What connections were like before it has changed them.
    pub(super) before: &'p [Before],
    /// The connections that it would have opened. Empty but for what is foretold.
    pub(super) imagined: &'p [Imagined],
}

impl<'p> Seen<'p> {
    /// A packet of which nothing was asked before.
    pub fn new(packet: &'p [u8], facts: Facts, now: Time) -> Self {
        Self { packet, facts, now, hash: None, looked: None, before: &[], imagined: &[] }
    }

    /// As if it had opened these connections.
    pub(crate) fn having_opened(self, imagined: &'p [Imagined]) -> Self {
        Self { imagined, ..self }
    }
}

/// What connection tracking has said of a packet as it came, in the zone of its VRF.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Looked {
    pub(super) hash: u64,
    pub(super) packet: conntrack::Packet,
    pub(super) ct_state: CtState,
    pub(super) connection: Option<(Handle, Direction)>,
    pub(super) reference: Reference,
    pub(super) keep: bool,
    pub(super) vacant: Option<Stamp>,
}

impl Looked {
    /// Nothing was asked.
    pub(super) const NOTHING: Self = Self {
        hash: 0,
        packet: conntrack::Packet::Malformed,
        ct_state: CtState(0),
        connection: None,
        reference: Reference::NONE,
        keep: false,
        vacant: None,
    };

    /// As connection tracking says it of a packet with this hash. `None` if it was announced.
    pub(crate) fn new(
        hash: u64,
        packet: conntrack::Packet,
        tracked: conntrack::Tracked,
    ) -> Option<Self> {
        let mut it = Self { hash, packet, ..Self::NOTHING };
        it.say(tracked).map(|()| it)
    }

    /// Connection tracking says this. `None` if the packet was announced.
    #[inline(always)]
    pub(super) fn say(&mut self, tracked: conntrack::Tracked) -> Option<()> {
        let conntrack::Tracked { ct_state, connection, reference, keep, expected, vacant } =
            tracked;
        (self.ct_state, self.connection, self.reference) = (ct_state, connection, reference);
        (self.keep, self.vacant) = (keep, vacant);
        expected.is_none().then_some(())
    }

    /// As connection tracking has said it. Nothing has announced the packet.
    pub(super) fn found(&self) -> conntrack::Tracked {
        let Self { ct_state, connection, reference, keep, vacant, .. } = *self;
        conntrack::Tracked { ct_state, connection, reference, keep, expected: None, vacant }
    }
}

/// What the flows say. What they ask of connections is beside it.
pub(super) struct Said {
    /// Where the packet goes.
    pub turn: Turn,
    /// Where copies of it go, in order.
    pub copies: Vec<Turn>,
    pub reference: Reference,
    /// Whether a connection that is to be made may translate the packet in a way that is not known yet.
    may_turn: bool,
    /// Whether flows log the packet.
    pub logs: bool,
    /// Whether that is for other packets of the flow too, if it asks for no change.
    pub stays: bool,
    /// Whether the helper of its connection reads it.
    pub is_helped: bool,
}

/// Where a packet goes, and as what.
#[derive(Clone)]
pub(super) struct Turn {
    /// How the packet ends, if it does not go the way of a packet without flows.
    pub end: Option<Verdict>,
    /// Why it is dropped if that way would lead it anywhere.
    pub astray: Option<DropReason>,
    /// What it is like when it leaves, if that is not what it is like now.
    pub after: Option<FlowKey>,
    pub mark: u32,
    pub is_translated: bool,
    /// The connections behind the first.
    pub further: Further,
    /// What is written into the packet besides.
    pub rewrite: Option<Rewrite>,
}

impl Turn {
    /// That of a packet without flows.
    const NONE: Self = Self {
        end: None,
        astray: None,
        after: None,
        mark: 0,
        is_translated: false,
        further: Further::NONE,
        rewrite: None,
    };

    /// The decision, with what becomes of the packet's bytes.
    pub(super) fn put_into(&self, mut decision: Decision) -> Decision {
        if self.is_translated {
            decision = decision.translated();
        }
        if self.rewrite.is_some() {
            decision = decision.rewritten();
        }
        if !self.further.is_none() {
            decision = decision.of_several();
        }
        decision
    }
}

impl Said {
    pub(super) const NOTHING: Self = Self {
        turn: Turn::NONE,
        copies: Vec::new(),
        reference: Reference::NONE,
        may_turn: false,
        logs: false,
        stays: false,
        is_helped: false,
    };

    /// The decision, with what it was made for.
    pub(super) fn put_into(&self, decision: Decision, change: Option<&Change>) -> Decision {
        let mut decision = self.turn.put_into(decision.of_connection(self.reference));
        if self.is_helped {
            decision = decision.helped();
        }
        if !self.copies.is_empty() {
            decision = decision.copied();
        }
        // What becomes of the packet once it is translated is not known yet.
        let is_ending = matches!(change, Some(Change::End { .. }));
        if decision.is_refused_behind()
            && !self.may_turn
            && !is_ending
            && self.reference != Reference::NONE
        {
            decision = decision.holding();
        }
        match self.stays && change.is_none() {
            true => decision,
            false => decision.passing(),
        }
    }

    /// No connection is made of a packet that its route, a policy or a filter ends behind the flows: it
    /// would only fill the table. Nor does a connection end by a packet that these end. What a new source
    /// would be, and so what becomes of the packet then, is known when the connection is there, and then it
    /// goes again.
    pub(super) fn is_refused_behind(
        &self,
        decision: &Decision,
        copies: &[Copied],
        change: &mut Option<Change>,
    ) {
        let is_refused =
            decision.is_dropped() && copies.iter().all(|copy| copy.decision.is_dropped());
        // What flows cannot send is their own end.
        let unsupported = Verdict::Drop(DropReason::FlowUnsupported);
        let is_sent = match self.turn.end {
            None => true,
            Some(Verdict::Output(_)) => decision.verdict() != unsupported,
            Some(_) => false,
        };
        // Routes do not ask for the source, and what is expected comes once.
        let is_astray = self.turn.astray == Some(DropReason::ConnectionRerouted)
            && matches!(change, Some(Change::Make { expected: Some(_), has_more: false, .. }));
        if is_refused && is_sent && (!self.may_turn || is_astray) {
            let rerouted = Verdict::Drop(DropReason::ConnectionRerouted);
            change.take_if(|change| match change {
                Change::Make { .. } => true,
                Change::End { .. } => decision.verdict() != rerouted,
                Change::Write { .. } => false,
            });
        }
    }
}

/// Where the answer of [`ask`] goes, of which nothing is known yet.
pub(super) struct Answer<'b> {
    pub(super) said: &'b mut Said,
    /// The flows that matched.
    pub(super) flows: &'b mut MatchedFlows,
    /// What is asked of connections.
    pub(super) change: &'b mut Option<Change>,
}

/// Asks the flows of a packet's VRF.
fn ask(
    (key, tables, vrf): (&FlowKey, &Tables, &Vrf),
    mark: u32,
    seen: Option<&Seen<'_>>,
    trace: &mut impl Trace,
    answer: Answer<'_>,
) {
    let Answer { said, flows, change } = answer;
    trace.asks(|| Question::Flows(vrf.id));
    let trace = RefCell::new(trace);
    let mut tracking = Tracking {
        key,
        tables,
        vrf,
        seen,
        trace: &trace,
        said: ArrayVec::new(),
        last: 0,
        has_too_many: false,
        commits: ArrayVec::new(),
        wants_whole: false,
        known_exit: None,
        asked: None,
    };
    let mut outcome = Outcome::new(Fields::of(key, mark));
    // A slot keeps its reqid as long as it is there, which is asked for anyway.
    if let Origin::Sa(slot) = key.origin {
        let reqid = tables.sad().slot(slot).map(|slot| slot.identity.reqid);
        outcome.fields.set_sa(Some(reqid.unwrap_or(0)));
    }
    // What an xfrm link brings has come by that port.
    if let Some((_, link)) = links::entry(*key, tables) {
        outcome.fields.set_in_port(Some(link.id));
    }
    let mut teller = Teller(&trace, tables);
    tables.pipeline().evaluate_into(&mut tracking, &mut teller, &mut outcome);
    outcome.matched.iter().for_each(|id| _ = flows.push(*id));
    let tracked = &*tracking.said;
    said.turn.mark = outcome.fields.pkt_mark();
    said.logs = outcome.logs;
    said.stays = tracked.iter().all(|tracked| tracked.keep) && !outcome.matched_more;
    said.is_helped = tracked.iter().any(Tracked::is_helped);
    said.reference = tracked.first().map_or(Reference::NONE, |tracked| tracked.reference);
    said.turn.is_translated = tracked.iter().any(|tracked| tracked.is_translated);
    if tracked.len() > 1 {
        let named = tracked.iter().map(|tracked| (tracked.reference, tracked.is_translated));
        said.turn.further = Further::of(named);
    }
    if tracking.wants_whole {
        said.turn.end = Some(Verdict::Reassemble);
        return;
    }
    // What it has there may be asked for behind the flows. What is for the gateway itself is made
    // whole behind them.
    if key.fragment == FragmentClass::Later
        && key.upper == Upper::None
        && key.protocol.has_ports()
        && !vrf.is_local(key.addresses.destination())
    {
        said.turn.end = Some(Verdict::Drop(DropReason::FragmentUnknown));
        return;
    }
    if tracking.has_too_many {
        said.turn.end = Some(Verdict::Drop(DropReason::FlowZones));
        return;
    }
    let mut is_helped = said.is_helped;
    if !outcome.commits.is_empty() {
        is_helped |= wants(&outcome, &tracking, said, change);
    }
    // A helper shifts sequence numbers, which other zones would have to know. And a connection that is begun
    // anew is that of the packet as it was received.
    if is_helped && tracked.len() > 1 || begins_translated(&outcome, &tracking) {
        said.is_helped = false;
        *change = None;
        said.turn.end = Some(Verdict::Drop(DropReason::FlowUnsupported));
        return;
    }
    let after;
    let (translated, is_chain) = match said.turn.is_translated {
        false => (key, true),
        true => {
            let (translated, is_chain) = translated(key, tracked);
            after = translated;
            (&after, is_chain)
        }
    };
    let destinations = || [key, translated].map(|key| key.addresses.destination());
    said.stays &= tracking.asked.is_none_or(|address| destinations().contains(&address));
    let turning = Turning { key, translated, is_chain };
    match outcome.ends.as_slice() {
        [] => {
            said.turn.end = Some(match outcome.drop {
                Some(pipeline::DropReason::Rejected(with)) => {
                    Verdict::Refuse(DropReason::FlowDrop, refusal(with))
                }
                why => Verdict::Drop(reason(why)),
            });
            turning.turn(&mut said.turn, &outcome.fields, outcome.writes);
        }
        [end] => {
            let (fields, writes) = outcome.fields_of(end);
            said.turn.end = ending(end, fields, key, tables);
            said.turn.astray = astray(end.to);
            if end.to == (To::Rerouted { ends: true }) && change.is_none() {
                let found = tracked.get(tracking.last).and_then(|tracked| tracked.connection);
                *change = found.map(|(handle, _)| Change::End { handle });
            }
            turning.turn(&mut said.turn, fields, writes);
        }
        ends => {
            // What is not for a router to copy goes the way of a packet without flows.
            let is_normal = |end: &End| end.to == To::Normal;
            let own = ends.iter().position(is_normal).unwrap_or(ends.len() - 1);
            let turns = ends.iter().map(|end| {
                let (fields, writes) = outcome.fields_of(end);
                let astray = astray(end.to);
                let end = ending(end, fields, key, tables);
                let mut turn = Turn { end, astray, ..said.turn.clone() };
                turning.turn(&mut turn, fields, writes);
                turn
            });
            let mut turns: Vec<Turn> = turns.collect();
            said.turn = turns.remove(own);
            said.copies = turns;
            said.stays = false;
        }
    }
}

/// Notes what the `ct(commit)` of a packet want of its connections. Returns whether one wants a helper.
fn wants<T>(
    outcome: &Outcome<'_>,
    tracking: &Tracking<'_, '_, T>,
    said: &mut Said,
    change: &mut Option<Change>,
) -> bool {
    let mut is_helped = false;
    for (number, tracked) in tracking.said.iter().enumerate() {
        let Some(wanted) = Wanted::of(&outcome.commits, &tracking.commits, number) else {
            continue;
        };
        is_helped |= wanted.has_helper();
        match change {
            None => *change = changed(&wanted, tracked, tracking.tables),
            // One after the other: what one makes of the packet is known when it is done.
            Some(Change::Make { has_more, .. }) => {
                let more = changed(&wanted, tracked, tracking.tables);
                *has_more |= more.is_some();
                said.may_turn |= more.is_some_and(|more| !is_plain(&more));
                continue;
            }
            Some(Change::Write { .. } | Change::End { .. }) => {
                said.may_turn |=
                    changed(&wanted, tracked, tracking.tables).is_some_and(|more| !is_plain(&more));
                continue;
            }
        }
        said.may_turn |= change.as_ref().is_some_and(|change| !is_plain(change));
    }
    is_helped
}

/// Whether a `ct(commit,force)` is to begin a connection anew for an answer which that has translated.
fn begins_translated<T>(outcome: &Outcome<'_>, tracking: &Tracking<'_, '_, T>) -> bool {
    let forced =
        outcome.commits.iter().zip(&tracking.commits).filter(|(commit, _)| commit.ct.force);
    forced.filter_map(|(_, number)| tracking.said.get(usize::from(*number))).any(Tracked::is_undone)
}

/// Whether packets are translated no further by it.
fn is_plain(change: &Change) -> bool {
    match change {
        Change::Make { source, expected, .. } => source.is_none() && expected.is_none(),
        Change::Write { .. } | Change::End { .. } => true,
    }
}

/// How a packet ends that flows send somewhere, if it does not go the way of a packet without flows.
fn ending(end: &End, fields: &Fields, key: &FlowKey, tables: &Tables) -> Option<Verdict> {
    match end.to {
        To::Normal if is_neighbour_discovery(key) => flooded(key, tables),
        To::Normal | To::Unrouted | To::Rerouted { .. } => None,
        To::Port(port) => Some(Verdict::Output(port)),
        To::InPort => fields.in_port().map(Verdict::Output),
    }
}

/// Why a packet is dropped that flows send there, and that would leave.
const fn astray(to: To) -> Option<DropReason> {
    match to {
        To::Unrouted => Some(DropReason::FlowUnrouted),
        To::Rerouted { .. } => Some(DropReason::ConnectionRerouted),
        To::Normal | To::Port(_) | To::InPort => None,
    }
}

/// What is known of a packet whose ways are looked for.
struct Turning<'k> {
    key: &'k FlowKey,
    /// What its connections make of it.
    translated: &'k FlowKey,
    /// Whether they can, one after the other.
    is_chain: bool,
}

impl Turning<'_> {
    /// Notes what the packet is like where it has these fields, of which flows have written some.
    fn turn(&self, turn: &mut Turn, fields: &Fields, writes: PacketFields) {
        let Self { key, translated, is_chain } = *self;
        turn.mark = fields.pkt_mark();
        // As nearly all are. One that was translated may go on as it was before.
        if fields.is_as_received() && !turn.is_translated {
            return;
        }
        match written(key, translated, fields, writes | counted_hops(key, fields)) {
            Some((after, rewrite)) => {
                if after != *key {
                    turn.after = Some(after);
                }
                let writes_fields = rewrite.dscp.is_some() || rewrite.hop_limit.is_some();
                // What connections translate is their own, with what an ICMP error quotes.
                if after == *translated && is_chain && turn.is_translated {
                    turn.rewrite = writes_fields.then_some(Rewrite { ends: None, ..rewrite });
                } else if writes_fields || after != *translated || !is_chain {
                    // An identifier is translated by the connection alone.
                    if matches!(after.upper, Upper::Icmp { .. }) && after.upper != key.upper {
                        turn.end = Some(Verdict::Drop(DropReason::FlowUnsupported));
                    }
                    turn.rewrite = Some(rewrite);
                    turn.is_translated = false;
                    turn.further = turn.further.untranslated();
                }
            }
            None => turn.end = Some(Verdict::Drop(DropReason::FlowUnsupported)),
        }
    }
}

/// What the connections make of a packet, one after the other, and whether each finds it as the one
/// before has left it.
fn translated(key: &FlowKey, tracked: &[Tracked]) -> (FlowKey, bool) {
    let (mut now, mut is_chain) = (*key, true);
    for tracked in tracked.iter().filter(|tracked| tracked.is_translated) {
        is_chain &= tracked.at == now;
        if let Some(tuple) = tracked.translation {
            now = connection::translated(&now, &tuple);
        }
    }
    (now, is_chain)
}

/// How a frame ends that is no IP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameEnd {
    Normal,
    Output(PortId),
}

/// The ends of a frame, in order; at least one.
pub(crate) type FrameEnds = ArrayVec<FrameEnd, MOST_ENDS>;

/// What flows say of an ARP packet that came by a port: its ends, or why it has none.
#[cold]
pub(super) fn decide_arp(
    tables: &Tables,
    port: &tables::Port,
    mut matched: impl FnMut(FlowId),
) -> Result<FrameEnds, DropReason> {
    let fields = Fields::new(port.spec.vrf, Some(port.id), pipeline::ARP);
    let outcome = tables.pipeline().evaluate(&fields, &mut Untracked, &mut ());
    outcome.matched.iter().for_each(|id| matched(*id));
    let end = |end: &End| match end.to {
        To::Normal => Some(FrameEnd::Normal),
        To::Port(port) => Some(FrameEnd::Output(port)),
        To::InPort => Some(FrameEnd::Output(port.id)),
        // It is no packet that could be routed.
        To::Unrouted | To::Rerouted { .. } => None,
    };
    let ends: FrameEnds = outcome.ends.iter().filter_map(end).collect();
    match ends.is_empty() {
        true => Err(reason(outcome.drop)),
        false => Ok(ends),
    }
}

/// Of packets that no connection has.
struct Untracked;

impl Track for Untracked {
    fn track(&mut self, _: u16, _: bool, _: &Fields, _: Option<&NatSpec>) -> CtFields {
        CtFields { state: CtState::INVALID, ..CtFields::default() }
    }

    /// It is not routed.
    fn exit(&mut self, _: &Fields) -> Exit {
        Exit::None
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
        Some(Why::Explicit | Why::Rejected(_)) | None => DropReason::FlowDrop,
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
    Some((after, Rewrite { ends, dscp, hop_limit }))
}

/// Tells the steps through the tables among those of the decision.
struct Teller<'r, 'a, T>(&'r RefCell<&'a mut T>, &'a Tables);

impl<T: Trace> pipeline::Trace for Teller<'_, '_, T> {
    #[inline(always)]
    fn step(&mut self, step: &pipeline::Step<'_>) {
        let Self(trace, tables) = self;
        trace.borrow_mut().step(|| Step::Flow(*step, tables));
    }
}

impl<'a, K: KeyView, T: Trace, M: Mark> Deciding<'_, 'a, K, T, M> {
    /// Asks the flows, of a packet whose source its port may receive from. `Err` is the end of others.
    pub(super) fn ask_flows(
        mut self,
        flow: &FlowKey,
        seen: Option<&Seen<'_>>,
        answer: Answer<'_>,
    ) -> Result<(), Decision> {
        if let Some(reason) = self.wrong_source() {
            return Err(Decision::drop(reason));
        }
        let mark = self.mark.mark().unwrap_or_default();
        ask((flow, self.tables, self.vrf), mark, seen, self.trace, answer);
        Ok(())
    }

    /// Where the route of a packet leads.
    pub(super) fn exit(mut self) -> Exit {
        let destination = self.key.destination();
        if is_link_local_v6(destination) || destination.is_multicast() {
            return match self.on_link(destination).verdict() {
                Verdict::Drop(_) => Exit::None,
                _ => Exit::Local,
            };
        }
        if self.unroutable().is_some() {
            return Exit::None;
        }
        let way = match self.route((self.vrf.id, self.vrf), destination, None) {
            Some(RouteKind::Connected { port }) => return Exit::Port(port),
            Some(RouteKind::Via { next_hop }) => Way::NextHop(next_hop),
            Some(RouteKind::Multipath { group }) => self.member(group, destination),
            Some(RouteKind::Vrf { vrf }) => self.led_on(vrf, destination).unwrap_or(Way::None),
            Some(RouteKind::Local) => return Exit::Local,
            Some(_) | None => Way::None,
        };
        exit_port(way, self.tables).map_or(Exit::None, Exit::Port)
    }

    /// The frame leaves by a port as it came, if the boundary lets it: as a routed packet that leaves
    /// there would be, unless that is encrypted.
    pub(super) fn output(mut self, port: PortId) -> Decision {
        // Frames that are there as they came, and a port that sends them so.
        let is_frame = |id| {
            let port = self.tables.port(id);
            port.is_some_and(|port| {
                port.spec.link == LinkKind::Ethernet && port.spec.if_id.is_none()
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
            let then = WithoutPolicies::Closed;
            self.trace.step(|| Step::NoPolicies { vrf: self.vrf, then });
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
