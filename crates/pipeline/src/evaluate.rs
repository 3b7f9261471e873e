//! Takes a packet through the tables.

use smallvec::SmallVec;
use types::{PacketFields, RejectWith};

use crate::action::{Action, Prefixes};
use crate::ct::{Commit, Ct, Number, Track, Zone};
use crate::field::{Field, Needs};
use crate::fields::{Fields, word};
use crate::flow::Entry;
use crate::matches::reads_of_field;
use crate::outcome::{DropReason, End, Outcome, Step, To, Trace};
use crate::pipeline::{Pipeline, Tables};

/// Actions that lead back to the same or an earlier table, one inside the other: as in Open
/// vSwitch.
pub const MOST_LEVELS: usize = 64;
/// Tables that one packet may go through: as in Open vSwitch.
pub const MOST_RESUBMITS: usize = 4_096;
/// Copies of one packet that may be sent.
pub const MOST_ENDS: usize = 64;
/// Connections that one packet may commit.
pub const MOST_COMMITS: usize = 16;
/// Flows that an [`Outcome`] names.
pub const MOST_MATCHED: usize = 64;

impl Pipeline {
    /// What becomes of a packet by the flows of its VRF. Changes nothing. A VRF without flows has
    /// no tables, and the packet misses: see [`Pipeline::has`].
    pub fn evaluate(
        &self,
        fields: &Fields,
        connections: &mut impl Track,
        trace: &mut impl Trace,
    ) -> Outcome<'_> {
        let mut outcome = Outcome::new(fields.clone());
        self.walk(0, false, connections, trace, &mut outcome);
        outcome
    }

    /// As [`Pipeline::evaluate`], of the packet that `outcome` has the fields of, and into that.
    pub fn evaluate_into<'a>(
        &'a self,
        connections: &mut impl Track,
        trace: &mut impl Trace,
        outcome: &mut Outcome<'a>,
    ) {
        self.walk(0, false, connections, trace, outcome);
    }

    /// As [`Pipeline::evaluate`], from another table on. If it is only about the way through the
    /// tables, copies and connections are not noted, and so do not end it.
    pub(crate) fn walk<'a>(
        &'a self,
        table: u8,
        way_only: bool,
        connections: &mut impl Track,
        trace: &mut impl Trace,
        outcome: &mut Outcome<'a>,
    ) {
        let mut walk = Walk {
            tables: self.tables(outcome.fields.vrf()),
            frames: SmallVec::new(),
            forks: SmallVec::new(),
            resubmits: 0,
            levels: 0,
            missed: false,
            way_only,
            outcome,
            connections,
            trace,
        };
        walk.lookup(table, None, Then::default());
        while walk.outcome.drop.is_none() && walk.step() {}
        walk.end();
    }
}

/// A flow whose actions are not done yet. More frames than a few are kept in a vector, so that what a
/// packet costs the stack does not depend on the flows.
struct Frame<'a> {
    actions: &'a [Action],
    table: u8,
    then: Then,
}

/// What is done when a flow's actions are done.
#[derive(Clone, Copy, Default)]
struct Then {
    /// So many levels end.
    levels: u8,
    /// Whether the packet goes on as the last of the forks.
    restores: bool,
}

/// Frames that need no allocation.
const FEW: usize = 3;

struct Walk<'a, 't, C, T> {
    tables: Option<&'a Tables>,
    frames: SmallVec<[Frame<'a>; FEW]>,
    /// The packet as it goes on behind each `ct` with a table, and what was written of it.
    forks: SmallVec<[(Fields, PacketFields); 1]>,
    resubmits: usize,
    levels: usize,
    /// Whether the last lookup found no flow.
    missed: bool,
    way_only: bool,
    /// Its fields are those of the packet at this moment.
    outcome: &'t mut Outcome<'a>,
    connections: &'t mut C,
    trace: &'t mut T,
}

impl<'a, C: Track, T: Trace> Walk<'a, '_, C, T> {
    /// Does the next action. Returns whether there was one.
    fn step(&mut self) -> bool {
        let Some(frame) = self.frames.last_mut() else { return false };
        let table = frame.table;
        let Some((action, rest)) = frame.actions.split_first() else {
            let done = self.frames.pop();
            if let Some(frame) = done {
                self.end_of(frame.then);
            }
            return true;
        };
        frame.actions = rest;
        self.trace.step(&Step::Action { table, action, fields: &self.outcome.fields });
        match action {
            Action::Output(port) => self.output(To::Port(*port)),
            Action::InPort => self.output(To::InPort),
            Action::Normal => self.output(To::Normal),
            Action::Unrouted => self.output(To::Unrouted),
            Action::Rerouted { ends } => self.output(To::Rerouted { ends: *ends }),
            Action::Ct(ct) => self.ct(ct, table),
            Action::CtClear => self.outcome.fields.clear_ct(),
            Action::Resubmit { in_port, table: next } => {
                let in_port = in_port.map(|port| port.0);
                self.go(next.unwrap_or(table), table, in_port, Then::default());
            }
            Action::GotoTable(next) => self.go(*next, table, None, Then::default()),
            Action::Set { field, value, mask, .. } => self.set(*field, *value, *mask),
            Action::Move { from, to } => {
                self.outcome.reads = self.outcome.reads | reads_of_field(from.field);
                let value = from.get(&self.outcome.fields) << to.first;
                self.set(to.field, value, to.mask());
            }
            Action::Nptv6(prefixes) => self.translate(prefixes),
            Action::DecTtl => self.dec_ttl(),
            Action::Reject(with) => self.outcome.drop = Some(DropReason::Rejected(*with)),
            Action::Log(_) => self.outcome.logs = true,
            Action::Note(_) => {}
        }
        true
    }

    /// Does what is to be done when a flow's actions are done.
    #[inline(always)]
    fn end_of(&mut self, then: Then) {
        self.levels -= usize::from(then.levels);
        if !then.restores {
            return;
        }
        let Some((fields, writes)) = self.forks.pop() else { return };
        // Where nothing is done behind it, what was sent last is as the packet is now.
        if self.outcome.ends.last().is_none_or(|end| end.then.is_some()) {
            (self.outcome.fields, self.outcome.writes) = (fields, writes);
        }
    }

    fn set(&mut self, field: Field, value: u128, mask: u128) {
        if field.is_in(&self.outcome.fields) {
            self.outcome.writes = self.outcome.writes | reads_of_field(field);
            if field.needs() != Needs::Nothing {
                self.outcome.fields.change();
            }
            field.set(&mut self.outcome.fields.words, value, mask);
        }
    }

    fn translate(&mut self, prefixes: &Prefixes) {
        let field = prefixes.field();
        if !field.is_in(&self.outcome.fields) {
            return;
        }
        match prefixes.of(field.get(&self.outcome.fields.words)) {
            None => {}
            Some(Some(address)) => self.set(field, address, field.max()),
            Some(None) => self.outcome.drop = Some(DropReason::Rejected(RejectWith::Host)),
        }
    }

    fn dec_ttl(&mut self) {
        if !Field::NwTtl.is_in(&self.outcome.fields) {
            return;
        }
        self.outcome.reads = self.outcome.reads | PacketFields::HOP_LIMIT;
        let ttl = Field::NwTtl.get(&self.outcome.fields.words);
        if ttl > 1 {
            self.set(Field::NwTtl, ttl - 1, Field::NwTtl.max());
            return;
        }
        self.outcome.ttl_exceeded = true;
        if let Some(frame) = self.frames.last_mut() {
            frame.actions = &[];
        }
    }

    fn output(&mut self, to: To) {
        let fields = &self.outcome.fields;
        match to {
            To::Port(port) if fields.in_port() == Some(port) => {
                return self.trace.step(&Step::SameAsInPort(port));
            }
            To::InPort if fields.in_port().is_none() => return,
            _ => {}
        }
        match self.outcome.ends.len() {
            _ if self.way_only => {}
            MOST_ENDS => self.outcome.drop = Some(DropReason::TooManyOutputs),
            _ => {
                let now = || Box::new((self.outcome.fields.clone(), self.outcome.writes));
                let then = self.has_more().then(now);
                self.outcome.ends.push(End { to, then });
            }
        }
    }

    fn ct(&mut self, ct: &'a Ct, table: u8) {
        let zone = match ct.zone {
            Zone::Vrf => self.outcome.fields.vrf().0,
            Zone::Number(zone) => self.number(zone),
        };
        let nat = ct.nat.as_ref();
        let said = self.connections.track(zone, ct.commit, &self.outcome.fields, nat);
        if self.connections.waits() {
            return self.wait();
        }
        // The packet itself is translated, whether it goes on as tracked or not.
        self.outcome.fields.set_ct(&said, zone);
        if ct.commit {
            self.commit(ct, zone);
        }
        self.trace.step(&Step::Tracked { table, zone, ct: &said, fields: &self.outcome.fields });
        match ct.table {
            Some(next) => {
                self.forks.push((self.outcome.fields.clone(), self.outcome.writes));
                if let Some((untracked, _)) = self.forks.last_mut() {
                    untracked.clear_ct();
                }
                self.go(next, table, None, Then { levels: 0, restores: true });
            }
            None => self.outcome.fields.clear_ct(),
        }
    }

    /// The packet goes no further, and is asked for again when more of it has come: it is counted then.
    #[cold]
    fn wait(&mut self) {
        self.frames.clear();
        let outcome = &mut *self.outcome;
        outcome.ends.clear();
        outcome.commits.clear();
        outcome.matched.clear();
        outcome.logs = false;
    }

    /// Notes a connection to be made, and sets mark and label.
    fn commit(&mut self, ct: &'a Ct, zone: u16) {
        if self.outcome.commits.len() == MOST_COMMITS {
            self.outcome.drop = Some(DropReason::TooManyCommits);
            return;
        }
        let (mut mark, mut label) = (0, 0);
        for action in &ct.exec {
            let (field, value, bits) = match action {
                Action::Set { field, value, mask, .. } => (*field, *value, *mask),
                Action::Move { from, to } => {
                    self.outcome.reads = self.outcome.reads | reads_of_field(from.field);
                    (to.field, from.get(&self.outcome.fields) << to.first, to.mask())
                }
                _ => continue,
            };
            field.set(&mut self.outcome.fields.words, value, bits);
            match field {
                Field::CtMark => mark |= bits as u32,
                Field::CtLabel => label |= bits,
                _ => {}
            }
        }
        if self.way_only {
            return;
        }
        let class = ct.limit.map_or(0, |limit| self.number(limit));
        let fields = &self.outcome.fields;
        self.outcome.commits.push(Commit {
            zone,
            ct,
            class,
            mark: (fields.ct_mark() & mark, mark),
            label: (fields.ct_label() & label, label),
        });
    }

    fn number(&mut self, number: Number) -> u16 {
        self.outcome.reads = self.outcome.reads | number.reads();
        number.of(&self.outcome.fields)
    }

    /// Whether some flow has actions that are not done yet.
    fn has_more(&self) -> bool {
        self.frames.iter().any(|frame| !frame.actions.is_empty())
    }

    /// Goes to a table, unless that is too deep or too much.
    fn go(&mut self, next: u8, from: u8, in_port: Option<u16>, mut then: Then) {
        // As in Open vSwitch, only what leads back can go on for ever, and counts as a level.
        let deepens = next <= from;
        if deepens && self.levels == MOST_LEVELS {
            self.outcome.drop = Some(DropReason::TooDeep);
        } else if self.resubmits == MOST_RESUBMITS {
            self.outcome.drop = Some(DropReason::TooManyResubmits);
        } else {
            self.resubmits += 1;
            then.levels = deepens.into();
            self.lookup(next, in_port, then);
        }
    }

    fn lookup(&mut self, table: u8, in_port: Option<u16>, then: Then) {
        if self.tables.is_some_and(|tables| tables.asks_for_exit(table)) {
            let exit = self.connections.exit(&self.outcome.fields);
            self.outcome.fields.set_exit(exit);
        }
        let fields = &mut self.outcome.fields;
        let port = fields.words[word::PORT];
        if let Some(in_port) = in_port {
            fields.words[word::PORT] = port & 0xffff_0000 | u32::from(in_port);
        }
        let found =
            self.tables.and_then(|tables| tables.lookup(table, fields, &mut self.outcome.reads));
        self.trace.step(&Step::Lookup { depth: self.frames.len(), table, fields, found });
        fields.words[word::PORT] = port;
        self.missed = found.is_none();
        match found {
            None => self.end_of(Then { levels: 0, ..then }),
            Some(entry) => {
                self.levels += usize::from(then.levels);
                self.matched(entry);
                let actions = &entry.flow.actions;
                self.frames.push(Frame { actions, table, then });
            }
        }
    }

    fn matched(&mut self, entry: &Entry) {
        self.outcome.matched_more |= self.outcome.matched.try_push(entry.id).is_err();
    }

    fn end(self) {
        let outcome = self.outcome;
        if outcome.drop.is_some() {
            outcome.ends.clear();
            outcome.commits.clear();
        } else if outcome.ends.is_empty() {
            outcome.drop = Some(match self.missed {
                true => DropReason::TableMiss,
                false if outcome.ttl_exceeded => DropReason::TtlExceeded,
                false => DropReason::Explicit,
            });
        }
    }
}
