//! Finds flows that send packets round for ever.

use conntrack::CtState;

use crate::ct::{CtFields, NatSpec, Track};
use crate::fields::{Exit, Fields, WORDS};
use crate::flow::{Entry, Flow};
use crate::matches::Match;
use crate::outcome::{DropReason, Outcome, Step, Trace};
use crate::pipeline::Pipeline;

/// The tables that a packet would go round, if there is a packet that matches a new flow and never
/// leaves, whatever connection tracking says.
///
/// Packets that match the flow, and perhaps one other flow as well, are tried. So what is found is
/// a cycle indeed; what is not found ends at the limits of levels and tables.
pub(crate) fn find(pipeline: &Pipeline, flow: &Flow) -> Option<Vec<u8>> {
    let mut nexts: Vec<u8> = flow.nexts().collect();
    if nexts.is_empty() || !pipeline.leads_back(flow.vrf) {
        return None;
    }
    nexts.sort_unstable();
    nexts.dedup();
    let others = nexts.into_iter().filter_map(|table| pipeline.table(flow.vrf, table));
    let both = others
        .flat_map(|table| table.entries().take(MOST_TRIED))
        .filter_map(|entry| flow.matches.and(&entry.flow.matches));
    let mut budget = MOST_LOOKUPS;
    let tried = core::iter::once(flow.matches.clone()).chain(both).take(MOST_TRIED);
    tried.flat_map(|matches| [0, u32::MAX].map(|fill| example(flow, &matches, fill))).find_map(
        |fields| match budget {
            0 => None,
            _ => goes_round(pipeline, flow, &fields, &mut budget),
        },
    )
}

/// A packet that has what a match asks for, and `fill` in all else.
fn example(flow: &Flow, matches: &Match, fill: u32) -> Fields {
    let mut words = [0; WORDS];
    for (at, word) in words.iter_mut().enumerate() {
        *word = matches.value[at] | fill & !matches.mask[at];
    }
    Fields::from_words(flow.vrf, words)
}

/// Kinds of packets that are tried, and other flows of a table that are looked at.
const MOST_TRIED: usize = 64;
/// Lookups after which no other packet is tried.
const MOST_LOOKUPS: usize = 65_536;

/// The tables that one packet goes round.
fn goes_round(
    pipeline: &Pipeline,
    flow: &Flow,
    fields: &Fields,
    budget: &mut usize,
) -> Option<Vec<u8>> {
    let states = [
        CtState::NEW | CtState::TRK,
        CtState::EST | CtState::TRK,
        CtState::EST | CtState::RPL | CtState::TRK,
        CtState::INVALID,
    ];
    let mut tables = Vec::new();
    for state in states {
        let mut trace =
            Visited { flow, seen: false, tables: Vec::new(), tracked: false, lookups: 0 };
        let mut outcome = Outcome::new(fields.clone());
        pipeline.walk(flow.table, true, &mut Says(state), &mut trace, &mut outcome);
        *budget = budget.saturating_sub(trace.lookups);
        if outcome.drop != Some(DropReason::TooDeep) || !trace.seen {
            return None;
        }
        tables = trace.tables;
        if !trace.tracked {
            break;
        }
    }
    Some(tables)
}

/// Connection tracking that says one thing.
struct Says(CtState);

impl Track for Says {
    fn track(&mut self, _: u16, _: bool, _: &Fields, _: Option<&NatSpec>) -> CtFields {
        CtFields { state: self.0, ..CtFields::default() }
    }

    fn exit(&mut self, fields: &Fields) -> Exit {
        fields.exit()
    }
}

/// Notes which tables a packet comes to, and whether it matches the new flow.
struct Visited<'a> {
    flow: &'a Flow,
    seen: bool,
    tables: Vec<u8>,
    tracked: bool,
    lookups: usize,
}

impl Trace for Visited<'_> {
    fn step(&mut self, step: &Step<'_>) {
        match step {
            Step::Lookup { table, found, .. } => {
                let is_it = |entry: &&Entry| {
                    entry.flow.table == self.flow.table
                        && entry.flow.priority == self.flow.priority
                        && entry.flow.matches == self.flow.matches
                };
                self.lookups += 1;
                self.seen |= found.filter(is_it).is_some();
                if !self.tables.contains(table) {
                    self.tables.push(*table);
                }
            }
            Step::Tracked { .. } => self.tracked = true,
            _ => {}
        }
    }
}
