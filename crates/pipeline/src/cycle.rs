//! Finds flows that send packets round for ever.

use core::net::IpAddr;
use std::collections::VecDeque;

use conntrack::{CtState, Tuple};
use types::Addresses;

use crate::ct::{CtFields, NatEnd, NatNew, NatSpec, Track};
use crate::field::Field;
use crate::fields::{Exit, Fields, bits, word};
use crate::flow::{Entry, Flow};
use crate::matches::Match;
use crate::outcome::{Outcome, Step, Trace};
use crate::pipeline::Pipeline;

/// How many lookups may be made to find cycles. What would take more ends at the limits of levels and
/// tables.
pub(crate) struct Budget(usize);

impl Budget {
    /// For one flow.
    pub(crate) const fn of_one() -> Self {
        Self(65_536)
    }

    /// For many.
    pub(crate) const fn of_many() -> Self {
        Self(1_048_576)
    }
}

/// A cycle.
pub(crate) struct Cycle {
    /// The tables that a packet goes round.
    pub(crate) tables: Vec<u8>,
    /// Whether the flow that was looked for is in it, and does not only lead to it.
    pub(crate) has_flow: bool,
}

impl Cycle {
    /// From the flow that was looked for, if it is in it.
    fn of(round: &[Lookup]) -> Self {
        let flow = round.iter().position(|open| open.is_flow);
        let (end, begin) = round.split_at(flow.unwrap_or(0));
        let mut tables = Vec::new();
        for open in begin.iter().chain(end) {
            if !tables.contains(&open.table) {
                tables.push(open.table);
            }
        }
        Self { tables, has_flow: flow.is_some() }
    }
}

/// The cycle that a packet comes to by a new flow and never leaves, whatever connection tracking says.
///
/// Packets that match the flow, and perhaps one other flow of the tables behind it as well, are tried. A
/// cycle is one that a packet has gone round once, and that it begins anew with all fields as they were:
/// one that loses a hop or moves a register on comes to an end.
pub(crate) fn find(pipeline: &Pipeline, flow: &Flow, budget: &mut Budget) -> Option<Cycle> {
    if flow.nexts().next().is_none() || !pipeline.leads_back(flow.vrf) {
        return None;
    }
    let both = behind(pipeline, flow).filter_map(|other| flow.matches.and(&other.matches));
    let tried = core::iter::once(flow.matches.clone()).chain(both).take(MOST_TRIED);
    let fills = [0, u128::MAX];
    let packets = tried.flat_map(|matches| fills.map(|fill| example(flow, &matches, fill)));
    packets.flatten().find_map(|packet| goes_round(pipeline, flow, &packet, budget))
}

/// Flows of the tables that a flow leads to, the nearest first: some of each.
fn behind<'a>(pipeline: &'a Pipeline, flow: &Flow) -> impl Iterator<Item = &'a Flow> {
    let vrf = flow.vrf;
    let mut is_known = [false; 256];
    let mut tables: VecDeque<u8> = VecDeque::new();
    let mut come = move |nexts: &mut dyn Iterator<Item = u8>, tables: &mut VecDeque<u8>| {
        for next in nexts {
            if !core::mem::replace(&mut is_known[usize::from(next)], true) {
                tables.push_back(next);
            }
        }
    };
    come(&mut flow.nexts(), &mut tables);
    let of_tables = core::iter::from_fn(move || {
        let table = pipeline.table(vrf, tables.pop_front()?);
        let flows: Vec<_> = table
            .into_iter()
            .flat_map(|table| table.entries())
            .take(MOST_TRIED)
            .map(|entry| &entry.flow)
            .collect();
        flows.iter().for_each(|flow| come(&mut flow.nexts(), &mut tables));
        Some(flows)
    });
    of_tables.flatten()
}

/// Kinds of packets that are tried, and other flows of a table that are looked at.
const MOST_TRIED: usize = 64;

/// A packet that has what a match asks for, and the bits of `fill` in other fields that it has. `None`
/// if there is none: a later fragment has no ports, and a new connection is not established.
fn example(flow: &Flow, matches: &Match, fill: u128) -> Option<Fields> {
    let mut packet = matches.example(flow.vrf);
    for range in &matches.ranges {
        let value = if fill == 0 { range.first } else { range.last };
        range.field.set(&mut packet.words, value, range.field.max());
    }
    if packet.words[word::IP] & bits::LATER != 0 {
        let (_, asked) = matches.get(Field::IpFrag);
        let fragment = u128::from(bits::FRAGMENT);
        if packet.words[word::IP] & bits::FRAGMENT == 0 && asked & fragment != 0 {
            return None;
        }
        packet.words[word::IP] |= bits::FRAGMENT;
    }
    let has_upper = UPPER.iter().any(|field| field.is_in(&packet));
    if !has_upper && packet.words[word::TP] != 0 {
        return None;
    }
    let state = ct_state(&packet, matches)?;
    Field::CtState.set(&mut packet.words, state.0.into(), Field::CtState.max());
    for field in FREE {
        let (_, asked) = matches.get(*field);
        if field.is_in(&packet) && matches.range(*field).is_none() {
            field.set(&mut packet.words, fill, !asked);
        }
    }
    Some(packet)
}

/// Fields of which one at least is in a packet with ports, or with type and code.
const UPPER: &[Field] =
    &[Field::TcpSrc, Field::UdpSrc, Field::SctpSrc, Field::IcmpType, Field::Icmpv6Type];

/// Fields that may have any value, where a packet has them.
#[rustfmt::skip]
const FREE: &[Field] = &[
    Field::IpDscp, Field::NwTtl, Field::NwSrc, Field::NwDst, Field::Ipv6Src, Field::Ipv6Dst,
    Field::TcpSrc, Field::TcpDst, Field::UdpSrc, Field::UdpDst, Field::SctpSrc, Field::SctpDst,
    Field::IcmpType, Field::IcmpCode, Field::Icmpv6Type, Field::Icmpv6Code, Field::TcpFlags,
    Field::Reg0, Field::Reg1, Field::Reg2, Field::Reg3, Field::Reg4, Field::Reg5, Field::Reg6,
    Field::Reg7, Field::PktMark,
];

/// What connection tracking may have said of a packet that has come to a flow.
const STATES: [CtState; 4] = [
    CtState(CtState::NEW.0 | CtState::TRK.0),
    CtState(CtState::EST.0 | CtState::TRK.0),
    CtState(CtState::EST.0 | CtState::RPL.0 | CtState::TRK.0),
    CtState::INVALID,
];

/// The first state that a match allows, if it allows one.
fn ct_state(packet: &Fields, matches: &Match) -> Option<CtState> {
    let (value, mask) = matches.get(Field::CtState);
    let words = &packet.words;
    let of_connection = [&words[word::CT_ZONE..=word::CT_TP], &words[word::CT_SOURCE..word::OUT]];
    let is_tracked =
        of_connection.into_iter().flatten().any(|word| *word != 0) || words[word::STATE] as u8 != 0;
    let besides = (CtState::REL | CtState::SNAT | CtState::DNAT).0 & value as u8;
    let untracked = (!is_tracked).then_some(CtState::default());
    let tracked = STATES.into_iter().map(|state| match state {
        CtState::INVALID => state,
        _ => CtState(state.0 | besides),
    });
    let mut states = untracked.into_iter().chain(tracked);
    states.find(|state| u128::from(state.0) & mask == value)
}

/// The cycle that one packet comes to.
fn goes_round(
    pipeline: &Pipeline,
    flow: &Flow,
    packet: &Fields,
    budget: &mut Budget,
) -> Option<Cycle> {
    let mut cycle = None;
    for state in STATES {
        if budget.0 == 0 {
            return None;
        }
        let mut says = Says { state, is_sure: true };
        let mut way = Way { flow, open: Vec::new(), is_tracked: false, lookups: 0, cycle: None };
        let mut outcome = Outcome::new(packet.clone());
        pipeline.walk(flow.table, true, &mut says, &mut way, &mut outcome);
        budget.0 = budget.0.saturating_sub(way.lookups);
        if !says.is_sure {
            return None;
        }
        cycle = Some(way.cycle?);
        if !way.is_tracked {
            break;
        }
    }
    cycle
}

/// Connection tracking that says one thing.
struct Says {
    state: CtState,
    /// Whether what it has said is so.
    is_sure: bool,
}

impl Track for Says {
    fn track(&mut self, _: u16, commit: bool, fields: &Fields, nat: Option<&NatSpec>) -> CtFields {
        let is_new = commit && self.state.contains(CtState::NEW);
        let new = nat.and_then(|nat| nat.new.as_ref()).filter(|_| is_new);
        let translated = new.and_then(|new| Some(translated(new, fields.tuple()?)));
        CtFields { state: self.state, translated, ..CtFields::default() }
    }

    /// The same port as before, which it may not be once addresses are others.
    fn exit(&mut self, fields: &Fields) -> Exit {
        self.is_sure &= fields.is_as_received();
        fields.exit()
    }
}

/// The first of the tuples that a new connection may get.
fn translated(new: &NatNew, mut tuple: Tuple) -> Tuple {
    let (port, first) = (new.ports.map(|ports| ports.0), new.addresses.map(|range| range.first()));
    let own = match new.end {
        NatEnd::Source => &mut tuple.source,
        NatEnd::Destination => &mut tuple.destination,
    };
    *own = port.unwrap_or(*own);
    match (&mut tuple.addresses, new.end, first) {
        (Addresses::V4 { source, .. }, NatEnd::Source, Some(IpAddr::V4(first))) => *source = first,
        (Addresses::V4 { destination, .. }, NatEnd::Destination, Some(IpAddr::V4(first))) => {
            *destination = first;
        }
        (Addresses::V6 { source, .. }, NatEnd::Source, Some(IpAddr::V6(first))) => *source = first,
        (Addresses::V6 { destination, .. }, NatEnd::Destination, Some(IpAddr::V6(first))) => {
            *destination = first;
        }
        _ => {}
    }
    tuple
}

/// The way of a packet, until it goes round.
struct Way<'a> {
    flow: &'a Flow,
    /// The lookups whose flows have led to where it is.
    open: Vec<Lookup>,
    is_tracked: bool,
    lookups: usize,
    cycle: Option<Cycle>,
}

struct Lookup {
    table: u8,
    /// What was looked up, if it had come from this table or a later one. Each cycle has such a lookup.
    back: Option<Fields>,
    is_flow: bool,
}

impl Way<'_> {
    fn lookup(&mut self, depth: usize, table: u8, fields: &Fields, found: Option<&Entry>) {
        self.open.truncate(depth);
        let leads_back = self.open.last().is_none_or(|last| table <= last.table);
        let is_same = |open: &Lookup| {
            open.table == table && open.back.as_ref().is_some_and(|at| at == fields)
        };
        let before = self.open.iter().position(is_same).filter(|_| leads_back);
        let is_led = self.open.iter().any(|open| open.is_flow);
        if let Some(first) = before.filter(|_| is_led) {
            self.cycle = Some(Cycle::of(&self.open[first..]));
            return;
        }
        let is_it = |entry: &Entry| {
            entry.flow.table == self.flow.table
                && entry.flow.priority == self.flow.priority
                && entry.flow.matches == self.flow.matches
        };
        let is_flow = found.is_some_and(is_it);
        self.open.push(Lookup { table, back: leads_back.then(|| fields.clone()), is_flow });
    }
}

impl Trace for Way<'_> {
    fn step(&mut self, step: &Step<'_>) {
        match step {
            Step::Lookup { depth, table, fields, found } => {
                self.lookups += 1;
                if self.cycle.is_none() {
                    self.lookup(*depth, *table, fields, *found);
                }
            }
            Step::Tracked { .. } => self.is_tracked = true,
            _ => {}
        }
    }
}
