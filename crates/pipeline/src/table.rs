//! A table, and how the best flow that a packet matches is found.
//!
//! Flows that look at the same bits of the same fields are together in a [`Group`], a hash table over
//! these bits: a lookup is one probe for each group (tuple space search, as in Open vSwitch's
//! classifier; Srinivasan, Suri and Varghese, SIGCOMM 1999). Groups are in the order of their
//! highest priority, so that it ends as soon as no other group can have a better flow.
//!
//! An access list of a thousand rules has hundreds of masks. Two things keep the probes few:
//!
//! - [`Shape`]: masks are cut, so that flows with masks that are nearly the same share a group, and what
//!   was cut off is compared (as in TupleMerge; Daly and others, INFOCOM 2018).
//! - [`Ends`]: of each address it is known which groups can have a flow for it, and a packet passes over
//!   the groups that either of its addresses rules out.
//!
//! The decision trees of `classifier` look at fewer flows still. But they know addresses, ports and
//! protocol alone, while flows tell each other apart by ct_state, registers and ports of the gateway;
//! and they are compiled as a whole, while flows come and go one by one.

mod ends;
mod group;
mod seen;
mod shape;
mod slot;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use types::{PacketFields, PortId};

use crate::action::Action;
use crate::fields::{Fields, word};
use crate::flow::{Entry, Flow};
use crate::matches::{EndReads, Match};
use ends::Ends;
use group::Group;
use shape::Shape;
use slot::Slot;

/// The most groups of a table, and so the most probes of a lookup.
pub(crate) const MOST_MASKS: usize = 4_096;

/// The flows of a table.
#[derive(Clone, Default)]
pub(crate) struct Table {
    /// The highest priority first.
    groups: Vec<Arc<Group>>,
    /// Which groups can have a flow for a packet, if there are many.
    ends: Option<Ends>,
    /// Whether groups have come, gone or changed places since that was arranged.
    is_disarranged: bool,
    len: usize,
    /// How many flows have actions that read TCP flags, DSCP, TTL.
    reading: [usize; 3],
    /// How many flows lead to this table or an earlier one.
    leading_back: usize,
    /// How many flows write what keys of packets say.
    rewriting: usize,
    /// How many flows ask for connections.
    tracking: usize,
    /// How often flows send frames by each port.
    outputs: BTreeMap<PortId, usize>,
    /// How many flows match where the packet would be routed to.
    asking_for_exit: usize,
    /// How many flows may read the mark or the label of a connection of the packet that has opened it.
    reading_opened: usize,
    /// How many flows have actions that read packets' ends, or ask for connections in another zone than
    /// that of the VRF.
    reading_ends: usize,
    /// How many flows have packets routed.
    routing: usize,
}

const KINDS: [PacketFields; 3] =
    [PacketFields::TCP_FLAGS, PacketFields::DSCP, PacketFields::HOP_LIMIT];

/// With at most so many groups, all are looked at.
const FEW_GROUPS: usize = 8;

impl Table {
    /// How many flows there are.
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// How many groups there are.
    pub(crate) const fn masks(&self) -> usize {
        self.groups.len()
    }

    /// The optional fields that flows read.
    pub(crate) fn reads(&self) -> PacketFields {
        let matched = self.groups.iter().map(|group| group.shape.reads);
        let read = KINDS.into_iter().zip(self.reading);
        let read = read.filter(|(_, count)| *count > 0).map(|(kind, _)| kind);
        matched.chain(read).fold(PacketFields::NONE, |all, reads| all | reads)
    }

    /// What flows match of packets' ends. `None` if actions read of them too, or connections are asked
    /// for in another zone than that of the VRF.
    pub(crate) fn end_reads(&self) -> Option<EndReads> {
        let groups = self.groups.iter().map(|group| group.ends);
        let routes = self.routing > 0;
        let none = EndReads { routes, ..EndReads::default() };
        let matched = groups.fold(none, |all, reads| all | reads);
        (self.reading_ends == 0).then_some(matched)
    }

    /// Whether a flow leads to this table or an earlier one.
    pub(crate) const fn leads_back(&self) -> bool {
        self.leading_back > 0
    }

    /// Whether a flow matches where the packet would be routed to.
    pub(crate) const fn asks_for_exit(&self) -> bool {
        self.asking_for_exit > 0
    }

    /// Whether a flow may read the mark or the label of a connection of the packet that has opened it.
    pub(crate) const fn reads_opened(&self) -> bool {
        self.reading_opened > 0
    }

    fn count(&mut self, flow: &Flow, change: impl Fn(&mut usize)) {
        let reads = flow.actions_read();
        for (kind, count) in KINDS.into_iter().zip(&mut self.reading) {
            if !(reads & kind).is_empty() {
                change(count);
            }
        }
        if flow.leads_back() {
            change(&mut self.leading_back);
        }
        if flow.rewrites() {
            change(&mut self.rewriting);
        }
        if flow.actions.iter().any(|action| matches!(action, Action::Ct(_))) {
            change(&mut self.tracking);
        }
        for action in &flow.actions {
            let Action::Output(port) = action else { continue };
            let count = self.outputs.entry(*port).or_default();
            change(count);
            if *count == 0 {
                self.outputs.remove(port);
            }
        }
        if flow.matches.mask[word::OUT] != 0 {
            change(&mut self.asking_for_exit);
        }
        if flow.reads_opened() {
            change(&mut self.reading_opened);
        }
        let is_about_more =
            |action: &Action| action.asks_elsewhere() || action.end_reads() != EndReads::default();
        if flow.actions.iter().any(is_about_more) {
            change(&mut self.reading_ends);
        }
        let routes = |action: &Action| {
            matches!(action, Action::Normal | Action::Unrouted | Action::Rerouted { .. })
        };
        if flow.actions.iter().any(routes) {
            change(&mut self.routing);
        }
        change(&mut self.len);
    }

    /// Whether a flow writes what keys of packets say.
    pub(crate) const fn rewrites(&self) -> bool {
        self.rewriting > 0
    }

    /// Whether a flow asks for connections.
    pub(crate) const fn tracks(&self) -> bool {
        self.tracking > 0
    }

    /// The ports that flows send frames by.
    pub(crate) fn outputs(&self) -> impl Iterator<Item = PortId> {
        self.outputs.keys().copied()
    }

    /// The flows that are not another table's too.
    pub(crate) fn unshared<'a>(
        &'a self,
        other: Option<&'a Self>,
    ) -> impl Iterator<Item = &'a Arc<Entry>> {
        let others = other.map_or(&[][..], |other| &other.groups);
        let of_shape: HashMap<_, _> = others.iter().map(|group| (&group.shape, group)).collect();
        let differing = self.groups.iter().filter_map(move |group| {
            let other = of_shape.get(&group.shape).copied();
            let is_same = other.is_some_and(|other| Arc::ptr_eq(group, other));
            (!is_same).then_some((group, other))
        });
        differing.flat_map(|(group, other)| {
            let other = other.map(|other| &**other);
            let theirs = other.into_iter().flat_map(|other| other.uncopied(Some(group)));
            let theirs: HashSet<_> = theirs.map(Arc::as_ptr).collect();
            group.uncopied(other).filter(move |entry| !theirs.contains(&Arc::as_ptr(entry)))
        })
    }

    /// All flows, in no order.
    pub(crate) fn entries(&self) -> impl Iterator<Item = &Arc<Entry>> {
        self.groups.iter().flat_map(|group| group.entries())
    }

    /// The best flow that a packet matches. The optional fields that decide about it are added to
    /// `reads`: packets that differ in others have the same addresses, and so look at the same groups.
    pub(crate) fn lookup(&self, fields: &Fields, reads: &mut PacketFields) -> Option<&Entry> {
        match self.ends.as_ref().filter(|_| !self.is_disarranged) {
            None => best(self.groups.iter(), fields, reads),
            Some(ends) => best(ends.groups(fields).map(|at| &self.groups[at]), fields, reads),
        }
    }

    /// The flow with this match and priority.
    pub(crate) fn find(&self, matches: &Match, priority: u16) -> Option<&Arc<Entry>> {
        self.group(&Shape::of(matches))?.find(matches, priority)
    }

    fn group(&self, shape: &Shape) -> Option<&Arc<Group>> {
        self.groups.iter().find(|group| group.shape == *shape)
    }

    /// A flow of the same priority that may match the same packet, and is not the same.
    pub(crate) fn overlapping(&self, flow: &Flow) -> Option<&Arc<Entry>> {
        self.entries().find(|old| {
            old.flow.priority == flow.priority
                && old.flow.matches != flow.matches
                && old.flow.matches.overlaps(&flow.matches)
        })
    }

    /// Whether a flow with this match has a group, or can have one.
    pub(crate) fn has_room(&self, matches: &Match) -> bool {
        self.groups.len() < MOST_MASKS || self.group(&Shape::of(matches)).is_some()
    }

    pub(crate) fn insert(&mut self, entry: &Arc<Entry>) {
        let shape = Shape::of(&entry.flow.matches);
        let at = self.groups.iter().position(|group| group.shape == shape);
        let is_new = at.is_none();
        let at = at.unwrap_or_else(|| {
            self.groups.push(Arc::new(Group::new(shape)));
            self.groups.len() - 1
        });
        Arc::make_mut(&mut self.groups[at]).insert(entry);
        self.count(&entry.flow, |count| *count += 1);
        if let Some(ends) = &mut self.ends {
            ends.note(&self.groups[at], &entry.flow.matches.value, &self.groups);
        }
        self.settle(at, is_new);
    }

    /// Removes a flow, which must be there.
    pub(crate) fn remove(&mut self, entry: &Entry) {
        let shape = Shape::of(&entry.flow.matches);
        let Some(at) = self.groups.iter().position(|group| group.shape == shape) else { return };
        Arc::make_mut(&mut self.groups[at]).remove(entry);
        self.count(&entry.flow, |count| *count -= 1);
        self.settle(at, false);
    }

    /// Puts a group that has changed where its highest priority wants it, or away.
    fn settle(&mut self, at: usize, is_new: bool) {
        let group = self.groups.remove(at);
        let mut is_moved = is_new || group.len == 0;
        if group.len > 0 {
            let to = self.groups.partition_point(|other| other.highest >= group.highest);
            is_moved |= to != at;
            self.groups.insert(to, group);
        }
        self.is_disarranged |= is_moved;
    }

    /// Whether [`Table::arrange`] has something to do.
    pub(crate) const fn is_disarranged(&self) -> bool {
        self.is_disarranged
    }

    /// Puts right which groups a lookup passes over, after changes: until then it looks at all.
    pub(crate) fn arrange(&mut self) {
        self.is_disarranged = false;
        match &mut self.ends {
            _ if self.groups.len() <= FEW_GROUPS => self.ends = None,
            Some(ends) => ends.arrange(&self.groups),
            None => self.ends = Some(Ends::new(&self.groups)),
        }
    }
}

/// The best flow of groups that a packet matches. The highest priority comes first.
#[inline]
fn best<'a>(
    groups: impl Iterator<Item = &'a Arc<Group>>,
    fields: &Fields,
    reads: &mut PacketFields,
) -> Option<&'a Entry> {
    let mut best: Option<&Slot> = None;
    for group in groups {
        if best.is_some_and(|best| best.rank.0.0 > group.highest) {
            break;
        }
        *reads = *reads | group.shape.reads;
        let Some(found) = group.lookup(fields) else { continue };
        if best.is_none_or(|best| found.rank < best.rank) {
            best = Some(found);
        }
    }
    best.map(|slot| &*slot.entry)
}
