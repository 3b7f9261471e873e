//! Decisions in VRFs where packets meet filters, flows, policy rules or xfrm links, or where
//! the MSS of TCP connections may be lowered: what filters say of a
//! packet, before and after the rest of its decision, in which rules may ask for the mark that they
//! have given it; and which taps want it.

use conntrack::Reference;
use packet::DropReason;
use tables::{
    FilterHook, FilterPlace, FilterRule, FilterTarget, FilterVerdict, Port, RejectWith, Side,
    Tables, TapSet, Vrf, Wall,
};
use wire::{FlowKey, Origin, Protocol};

use super::features::Taps;
use super::flows::{Answer, Said, Seen, Turn};
use super::question::Question;
use super::quoted::AsQuoted;
use super::trace::{Exit, Step, Trace, WithoutPolicies};
use super::{Beside, Deciding, KeyView, LookedUp, Translated, links, mss};
use crate::batch::AS_QUOTED;
use crate::decision::{Decision, Refusal, Verdict};
use crate::extension::{Copied, Extension};
use crate::stage::apply::{is_judged_by_quote, is_own};

/// As [`Deciding::decide`], in a VRF where packets meet filters, policy rules, xfrm links or routes
/// into other VRFs, or if there are taps.
///
/// A packet that rules or routes lead to a port of another VRF meets the filters of that VRF after
/// routing, and no longer those of its own. If that VRF is an IPsec gateway without policies, nothing
/// comes into it in this way that would cross its boundary.
///
/// The port's filter is asked before the VRF's on the way in, and after it on the way out. What is
/// encrypted meets no filter of the port that it leaves by, as the packet outside is the gateway's
/// own, but that of the xfrm link if it leaves by one.
#[cold]
#[inline(never)]
pub(super) fn decide<'a>(
    (key, tables, vrf): (impl KeyView, &'a Tables, &'a Vrf),
    looked_up: &LookedUp<'a>,
    trace: &mut impl Trace,
    (decision, beside): (&mut Decision, &mut Beside<'_>),
) {
    let Beside { seen, extension, change, copies } = beside;
    extension.clear();
    copies.clear();
    *change = None;
    trace.asks(|| Question::Filters(vrf.id));
    let flow = key.flow();
    let mut passing = Passing { flow: &flow, tables, mark: 0, matched: extension };
    let of_vrf = FilterTarget::Vrf(vrf.id);
    let entry = match key.origin() {
        Origin::Port(port) => [Some(FilterTarget::Port(port)), Some(of_vrf)],
        Origin::Sa(_) => {
            let link = links::entry(key, tables);
            if let Some((if_id, port)) = link {
                trace.step(|| Step::Link { port, if_id, is_exit: false });
                if !port.spec.up {
                    *decision = Decision::drop(DropReason::XfrmLinkDown);
                    return;
                }
            }
            [link.map(|(_, port)| FilterTarget::Port(port.id)), Some(of_vrf)]
        }
        Origin::Host | Origin::HostError(_) | Origin::HostProtected => [None, None],
    };
    let mut said: Option<Said> = None;
    match passing.ask(FilterHook::Ingress, entry, trace) {
        Some(end) => *decision = Decision::new(end, None, None),
        None => {
            let trace = &mut *trace;
            let has_flows = vrf.features.has_flows && !is_own(key.origin());
            if has_flows {
                let mark = passing.mark;
                let asked = Deciding { key, tables, vrf, looked_up, trace: &mut *trace, mark };
                let flows = &mut passing.matched.flows;
                let told = said.insert(Said::NOTHING);
                let answer = Answer { said: &mut *told, flows, change };
                match asked.ask_flows(&flow, seen.as_ref(), answer) {
                    Ok(()) => {
                        passing.mark = told.turn.mark;
                        passing.matched.logs = told.logs;
                    }
                    Err(refused) => {
                        *decision = refused;
                        said = None;
                    }
                }
            }
            let reference = said.as_ref().map_or(Reference::NONE, |said| said.reference);
            let seen = seen.as_ref();
            let leaving = Leaving { key, flow: &flow, tables, vrf, looked_up, seen, reference };
            if let Some(said) = said.as_ref().filter(|said| !said.copies.is_empty()) {
                *copies = leaving.copies(&said.copies, trace);
            }
            // What flows were not asked about, as its source is wrong, is dropped already.
            if said.is_some() || !has_flows {
                let turn = said.as_ref().map(|said| &said.turn);
                leaving.leave(turn, &mut passing, trace, decision);
            }
        }
    }
    if vrf.features.is_clamped {
        passing.matched.mss = mss::way((&flow, tables, vrf), decision, trace);
    }
    if tables.is_tapped() {
        passing.matched.taps = taps(&key, decision, tables, trace);
    }
    if let Some(said) = &mut said {
        // What it quotes is in no key, and it has to come here again.
        let is_quoted = seen.as_ref().is_some_and(|seen| seen.facts.is(AS_QUOTED));
        said.stays &= !is_quoted && !is_judged_by_quote(&flow, decision);
        said.is_refused_behind(decision, copies, change);
        for (copy, turn) in copies.iter_mut().zip(&said.copies) {
            copy.decision = turn.put_into(copy.decision.of_connection(said.reference));
        }
        *decision = said.put_into(*decision, change.as_ref());
    }
    if !passing.matched.is_none() || !copies.is_empty() {
        *decision = match passing.matched.only_counts() && copies.is_empty() {
            true => decision.counted(),
            false => decision.extended(),
        };
    }
}

/// A packet that filters and flows let go on.
struct Leaving<'k, 'a, K> {
    key: K,
    flow: &'k FlowKey,
    tables: &'a Tables,
    vrf: &'a Vrf,
    looked_up: &'k LookedUp<'a>,
    seen: Option<&'k Seen<'k>>,
    /// Its first connection.
    reference: Reference,
}

impl<'a, K: KeyView> Leaving<'_, 'a, K> {
    /// Decides where it goes, as flows say if there are any, and asks the filters there.
    #[inline(always)]
    fn leave(
        &self,
        turn: Option<&Turn>,
        passing: &mut Passing<'_, 'a>,
        trace: &mut impl Trace,
        decision: &mut Decision,
    ) {
        let Self { key, flow, tables, vrf, looked_up, .. } = *self;
        let after = turn.and_then(|turn| turn.after);
        if let Some(turn) = turn {
            passing.matched.rewrite = turn.rewrite;
            passing.matched.further = turn.further;
        }
        let mark = passing.mark;
        let quoted = turn.and_then(|turn| self.quoted(turn));
        let end = turn.and_then(|turn| turn.end);
        let trace = &mut *trace;
        match (end, after) {
            (Some(end), _) if !matches!(end, Verdict::Output(_)) => {
                *decision = Decision::new(end, None, None);
            }
            (end, after) if after.is_some() || quoted.is_some() => {
                let (key, looked_up) = (after.unwrap_or(*flow), &LookedUp::NOTHING);
                let mark = Translated { mark, received: *flow, quoted: quoted.as_ref() };
                let deciding = Deciding { key, tables, vrf, looked_up, trace, mark };
                match end {
                    Some(Verdict::Output(port)) => *decision = deciding.output(port),
                    _ => deciding.decide(decision),
                }
            }
            (Some(Verdict::Output(port)), _) => {
                *decision = Deciding { key, tables, vrf, looked_up, trace, mark }.output(port);
            }
            _ => Deciding { key, tables, vrf, looked_up, trace, mark }.decide(decision),
        }
        // A policy may protect what no route leads anywhere. The decision depends on it all the same.
        if let Some(why) = turn.and_then(|turn| turn.astray).filter(|_| !decision.is_dropped()) {
            let end = Verdict::Drop(why);
            *decision = Decision::new(end, decision.inbound(), decision.outbound());
        }
        let exit = exit((key, tables, vrf), trace, decision);
        if let Some(end) = passing.ask_as(after.as_ref(), FilterHook::Egress, exit, trace) {
            *decision = Decision::new(end, decision.inbound(), decision.outbound());
        }
    }
}

impl<'a, K: KeyView> Leaving<'_, 'a, K> {
    /// What policies are asked about in place of an ICMP error that they let pass as itself no more. One
    /// for the gateway itself stays what it is.
    fn quoted(&self, turn: &Turn) -> Option<AsQuoted> {
        let seen = self.seen.filter(|seen| seen.facts.is(AS_QUOTED))?;
        let after = turn.after.as_ref().unwrap_or(self.flow);
        let is_ours = self.vrf.is_local(after.addresses.destination());
        let read = || AsQuoted::read(self.flow, self.tables, seen, (turn, self.reference));
        // An error answers a packet only if it goes to who has sent that.
        let goes_to =
            |leaving: &FlowKey| leaving.addresses.destination() == after.addresses.destination();
        (!is_ours).then(read).flatten().filter(|quoted| goes_to(&quoted.leaving))
    }

    /// Decides where copies go.
    #[cold]
    #[inline(never)]
    fn copies(&self, turns: &[Turn], trace: &mut impl Trace) -> Vec<Copied> {
        let Self { key, flow, tables, vrf, .. } = *self;
        let decide = |turn: &Turn| {
            let mut copy = Copied { decision: Decision::NONE, extension: Extension::NONE };
            let (mark, matched) = (turn.mark, &mut copy.extension);
            let mut passing = Passing { flow, tables, mark, matched };
            self.leave(Some(turn), &mut passing, trace, &mut copy.decision);
            if vrf.features.is_clamped {
                copy.extension.mss = mss::way((flow, tables, vrf), &copy.decision, trace);
            }
            if tables.is_tapped() {
                copy.extension.taps = taps(&key, &copy.decision, tables, trace);
            }
            let decision = &copy.decision;
            trace.step(|| Step::Verdict { decision, exit: Exit::of(decision, tables) });
            copy
        };
        turns.iter().map(decide).collect()
    }
}

/// The filters after routing that a packet meets with this decision. If it would leave by another VRF
/// that is closed, or that has a firewall while its own has no flows, it is dropped.
fn exit(
    (key, tables, vrf): (impl KeyView, &Tables, &Vrf),
    trace: &mut impl Trace,
    decision: &mut Decision,
) -> [Option<FilterTarget>; 2] {
    let of_vrf = FilterTarget::Vrf(vrf.id);
    // What is encrypted leaves by a link, or as a packet of the gateway's own.
    let (port, is_link) = match decision.verdict() {
        Verdict::Forward(next_hop) => {
            (tables.next_hop(next_hop).and_then(|hop| tables.port(hop.port)), false)
        }
        Verdict::Output(port) => (tables.port(port), false),
        Verdict::Protect(..) => match links::exit(decision.outbound(), tables) {
            Some(link) => (Some(link), true),
            None => return [Some(of_vrf), None],
        },
        _ => return [None, None],
    };
    let other = port.map(|port| port.spec.vrf).filter(|other| *other != vrf.id);
    let into = other.and_then(|other| tables.vrf(other)).unwrap_or(vrf);
    if into.id != key.vrf() && !vrf.features.is_ruled {
        trace.asks(|| Question::Vrf(into.id));
    }
    if into.id != vrf.id
        && let Some(refused) = refused_by((key, tables, vrf), into, (port, is_link), trace)
    {
        *decision = Decision::new(refused, decision.inbound(), decision.outbound());
        return [None, None];
    }
    let port = port.map(|port| FilterTarget::Port(port.id));
    [Some(FilterTarget::Vrf(into.id)), port]
}

/// What ends a packet that would leave by a port of another VRF than its own.
fn refused_by(
    (key, tables, vrf): (impl KeyView, &Tables, &Vrf),
    into: &Vrf,
    (port, is_link): (Option<&Port>, bool),
    trace: &mut impl Trace,
) -> Option<Verdict> {
    let leaves_inside =
        || port.is_some_and(|port| tables.boundary(port.id).side == Side::Protected);
    if into.is_closed() && !is_link && !leaves_inside() {
        let then = WithoutPolicies::Closed;
        trace.step(|| Step::NoPolicies { vrf: into, then });
        return Some(Verdict::Drop(DropReason::IpsecClosed));
    }
    // What flows of its own say is said.
    if vrf.features.has_flows || is_own(key.origin()) {
        return None;
    }
    let wall = tables.wall(into.id)?;
    trace.step(|| Step::Wall(into));
    let why = DropReason::FirewallOtherVrf;
    Some(match (wall, key.flow().protocol) {
        (Wall::Drop, _) => Verdict::Drop(why),
        (Wall::Reject, Protocol::TCP) => Verdict::Refuse(why, Refusal::TcpReset),
        (Wall::Reject, _) => Verdict::Refuse(why, Refusal::Prohibited),
    })
}

/// The taps that want copies of the flow's packets.
fn taps(
    key: &impl KeyView,
    decision: &Decision,
    tables: &Tables,
    trace: &mut impl Trace,
) -> TapSet {
    let port = |next_hop| tables.next_hop(next_hop).map(|next_hop| next_hop.port);
    let exits = match decision.verdict() {
        Verdict::Forward(next_hop) => (port(next_hop), None),
        Verdict::Output(port) => (Some(port), None),
        Verdict::Protect(_, next_hop) => {
            let link = links::exit(decision.outbound(), tables);
            (link.map(|link| link.id), port(next_hop))
        }
        _ => (None, None),
    };
    let set = tables.tap_set((key.vrf(), key.origin()), exits);
    if set != TapSet::NONE {
        trace.step(|| Step::Taps(Taps { set, tables }));
    }
    set
}

/// A packet on its way through filters.
struct Passing<'k, 'a> {
    flow: &'k FlowKey,
    tables: &'a Tables,
    mark: u32,
    /// The rules that decided so far.
    matched: &'k mut Extension,
}

impl Passing<'_, '_> {
    /// Asks the filters in these places one after the other. Returns the verdict if the packet ends
    /// there.
    fn ask(
        &mut self,
        hook: FilterHook,
        targets: [Option<FilterTarget>; 2],
        trace: &mut impl Trace,
    ) -> Option<Verdict> {
        self.ask_as(None, hook, targets, trace)
    }

    /// The same of a packet that looks otherwise by now.
    fn ask_as(
        &mut self,
        after: Option<&FlowKey>,
        hook: FilterHook,
        targets: [Option<FilterTarget>; 2],
        trace: &mut impl Trace,
    ) -> Option<Verdict> {
        if !self.tables.has_filters() {
            return None;
        }
        for (number, target) in targets.into_iter().enumerate() {
            let Some(place) = target.map(|target| FilterPlace { target, hook }) else { continue };
            let Some(filter) = self.tables.filter(place) else { continue };
            let rule = filter.lookup(after.unwrap_or(self.flow), self.mark).map(|rule| &**rule);
            trace.step(|| Step::Filter { place, rule, tables: self.tables });
            let Some(rule) = rule else { continue };
            self.matched.note_rule(2 * hook as usize + number, rule.slot);
            self.mark = rule.spec.action.set_mark.map_or(self.mark, |set| set.apply(self.mark));
            if let Some(end) = end(hook, rule) {
                return Some(end);
            }
        }
        None
    }
}

/// What becomes of a packet that ends at a rule.
fn end(hook: FilterHook, rule: &FilterRule) -> Option<Verdict> {
    let reason = match hook {
        FilterHook::Ingress => DropReason::FilterIngress,
        FilterHook::Egress => DropReason::FilterEgress,
    };
    match rule.spec.action.verdict {
        FilterVerdict::Pass => None,
        FilterVerdict::Drop => Some(Verdict::Drop(reason)),
        FilterVerdict::Reject => {
            Some(Verdict::Refuse(reason, refusal(rule.spec.action.reject_with)))
        }
    }
}

/// What the sender of a rejected packet is told.
pub(super) const fn refusal(with: RejectWith) -> Refusal {
    match with {
        RejectWith::AdminProhibited => Refusal::Prohibited,
        RejectWith::Port => Refusal::Port,
        RejectWith::Host => Refusal::HostUnreachable,
        RejectWith::Net => Refusal::NoRoute,
        RejectWith::TcpReset => Refusal::TcpReset,
    }
}
