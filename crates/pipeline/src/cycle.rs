//! Finds flows that send packets round for ever.

use conntrack::CtState;

use crate::ct::{CtFields, NatSpec, Track};
use crate::fields::{Fields, WORDS};
use crate::flow::{Entry, Flow};
use crate::matches::Match;
use crate::outcome::{DropReason, Step, Trace};
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
    core::iter::once(flow.matches.clone()).chain(both).find_map(|matches| {
        [0, u32::MAX].into_iter().find_map(|fill| goes_round(pipeline, flow, &matches, fill))
    })
}

/// Other flows of a table that are tried.
const MOST_TRIED: usize = 64;

/// The tables that one packet goes round. It has what a match asks for, and `fill` in all else.
fn goes_round(pipeline: &Pipeline, flow: &Flow, matches: &Match, fill: u32) -> Option<Vec<u8>> {
    let mut words = [0; WORDS];
    for (at, word) in words.iter_mut().enumerate() {
        *word = matches.value[at] | fill & !matches.mask[at];
    }
    let fields = Fields::from_words(flow.vrf, words);
    let states = [
        CtState::NEW | CtState::TRK,
        CtState::EST | CtState::TRK,
        CtState::EST | CtState::RPL | CtState::TRK,
        CtState::INVALID,
    ];
    let mut tables = Vec::new();
    for state in states {
        let mut trace = Visited { flow, seen: false, tables: Vec::new(), tracked: false };
        let outcome = pipeline.walk(flow.table, &fields, true, &mut Says(state), &mut trace);
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
}

/// Notes which tables a packet comes to, and whether it matches the new flow.
struct Visited<'a> {
    flow: &'a Flow,
    seen: bool,
    tables: Vec<u8>,
    tracked: bool,
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
