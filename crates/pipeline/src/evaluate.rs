//! Takes a packet through the tables.

use arrayvec::ArrayVec;
use smallvec::SmallVec;
use types::{PacketFields, RejectWith};

use crate::action::{Action, Prefixes};
use crate::ct::{Commit, Ct, Track, Zone};
use crate::field::Field;
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
        self.walk(0, fields, false, connections, trace)
    }

    /// As [`Pipeline::evaluate`], from another table on. If it is only about the way through the
    /// tables, copies and connections are not noted, and so do not end it.
    pub(crate) fn walk(
        &self,
        table: u8,
        fields: &Fields,
        way_only: bool,
        connections: &mut impl Track,
        trace: &mut impl Trace,
    ) -> Outcome<'_> {
        let mut outcome = Outcome {
            ends: SmallVec::new(),
            drop: None,
            fields: fields.clone(),
            commits: SmallVec::new(),
            matched: ArrayVec::new(),
            matched_more: false,
            ttl_exceeded: false,
            logs: false,
            reads: PacketFields::NONE,
            writes: PacketFields::NONE,
        };
        let mut walk = Walk {
            tables: self.tables(fields.vrf()),
            frames: SmallVec::new(),
            resubmits: 0,
            levels: 0,
            missed: false,
            way_only,
            outcome: &mut outcome,
            connections,
            trace,
        };
        walk.lookup(table, None, false, None);
        while walk.outcome.drop.is_none() && walk.step() {}
        walk.end();
        outcome
    }
}

/// A flow whose actions are not done yet. More frames than a few are kept in a vector, so that what a
/// packet costs the stack does not depend on the flows.
struct Frame<'a> {
    actions: &'a [Action],
    table: u8,
    deepens: bool,
    /// The packet as it goes on when this flow's actions are done: the one that `ct` forked from.
    restore: Option<(Fields, PacketFields)>,
}

/// Frames that need no allocation.
const FEW: usize = 3;

struct Walk<'a, 't, C, T> {
    tables: Option<&'a Tables>,
    frames: SmallVec<[Frame<'a>; FEW]>,
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
                self.levels -= usize::from(frame.deepens);
                self.restore(frame.restore);
            }
            return true;
        };
        frame.actions = rest;
        self.trace.step(&Step::Action { table, action, fields: &self.outcome.fields });
        match action {
            Action::Output(port) => self.output(To::Port(*port)),
            Action::InPort => self.output(To::InPort),
            Action::Normal => self.output(To::Normal),
            Action::Ct(ct) => self.ct(ct, table),
            Action::CtClear => self.outcome.fields.clear_ct(),
            Action::Resubmit { in_port, table: next } => {
                let in_port = in_port.map(|port| port.0);
                self.go(next.unwrap_or(table), table, in_port, None);
            }
            Action::GotoTable(next) => self.go(*next, table, None, None),
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

    fn restore(&mut self, before: Option<(Fields, PacketFields)>) {
        if let Some((fields, writes)) = before {
            (self.outcome.fields, self.outcome.writes) = (fields, writes);
        }
    }

    fn set(&mut self, field: Field, value: u128, mask: u128) {
        if field.is_in(&self.outcome.fields) {
            self.outcome.writes = self.outcome.writes | reads_of_field(field);
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
                let (fields, writes) = (fields.clone(), self.outcome.writes);
                self.outcome.ends.push(End { to, fields, writes });
            }
        }
    }

    fn ct(&mut self, ct: &'a Ct, table: u8) {
        let zone = match ct.zone {
            Zone::Vrf => self.outcome.fields.vrf().0,
            Zone::Number(zone) => zone,
            Zone::Field(part) => {
                self.outcome.reads = self.outcome.reads | reads_of_field(part.field);
                part.get(&self.outcome.fields) as u16
            }
        };
        let nat = ct.nat.as_ref();
        let said = self.connections.track(zone, ct.commit, &self.outcome.fields, nat);
        // The packet itself is translated, whether it goes on as tracked or not.
        self.outcome.fields.set_ct(&said, zone);
        if ct.commit {
            self.commit(ct, zone);
        }
        self.trace.step(&Step::Tracked { table, zone, ct: &said, fields: &self.outcome.fields });
        match ct.table {
            Some(next) => {
                let mut untracked = self.outcome.fields.clone();
                untracked.clear_ct();
                self.go(next, table, None, Some((untracked, self.outcome.writes)));
            }
            None => self.outcome.fields.clear_ct(),
        }
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
        let fields = &self.outcome.fields;
        self.outcome.commits.push(Commit {
            zone,
            ct,
            mark: (fields.ct_mark() & mark, mark),
            label: (fields.ct_label() & label, label),
        });
    }

    /// Goes to a table, unless that is too deep or too much.
    fn go(
        &mut self,
        next: u8,
        from: u8,
        in_port: Option<u16>,
        restore: Option<(Fields, PacketFields)>,
    ) {
        // As in Open vSwitch, only what leads back can go on for ever, and counts as a level.
        let deepens = next <= from;
        if deepens && self.levels == MOST_LEVELS {
            self.outcome.drop = Some(DropReason::TooDeep);
        } else if self.resubmits == MOST_RESUBMITS {
            self.outcome.drop = Some(DropReason::TooManyResubmits);
        } else {
            self.resubmits += 1;
            self.lookup(next, in_port, deepens, restore);
        }
    }

    fn lookup(
        &mut self,
        table: u8,
        in_port: Option<u16>,
        deepens: bool,
        restore: Option<(Fields, PacketFields)>,
    ) {
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
        self.trace.step(&Step::Lookup { table, fields, found });
        fields.words[word::PORT] = port;
        self.missed = found.is_none();
        match found {
            None => self.restore(restore),
            Some(entry) => {
                self.levels += usize::from(deepens);
                self.matched(entry);
                let actions = &entry.flow.actions;
                self.frames.push(Frame { actions, table, deepens, restore });
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
