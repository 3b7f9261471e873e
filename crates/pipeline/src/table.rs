//! A table, and how the best flow that a packet matches is found.
//!
//! Flows that match the same bits of the same fields are together in a [`Group`], a hash table over
//! these bits: a lookup is one probe for each group (tuple space search, as in Open vSwitch's
//! classifier; Srinivasan, Suri and Varghese, SIGCOMM 1999). Groups are in the order of their
//! highest priority, so that it ends as soon as no other group can have a better flow.
//!
//! The decision trees of `classifier` would look at fewer flows where there are many masks. But
//! they know addresses, ports and protocol alone, while flows tell each other apart by ct_state,
//! registers and ports of the gateway; and they are compiled as a whole, while flows come and go
//! one by one.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use arrayvec::ArrayVec;
use types::{PacketFields, PortId};

use crate::action::Action;
use crate::fields::{Fields, WORDS, word};
use crate::flow::{Entry, Flow};
use crate::matches::{EndReads, Match};

/// The most groups of a table, and so the most probes of a lookup.
pub(crate) const MOST_MASKS: usize = 4_096;

/// The flows of a table.
#[derive(Clone, Default)]
pub(crate) struct Table {
    /// The highest priority first.
    groups: Vec<Arc<Group>>,
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
    /// How many flows have actions that read packets' ends, or ask for connections in another zone than
    /// that of the VRF.
    reading_ends: usize,
    /// How many flows have packets routed.
    routing: usize,
}

const KINDS: [PacketFields; 3] =
    [PacketFields::TCP_FLAGS, PacketFields::DSCP, PacketFields::HOP_LIMIT];

/// Flows with the same mask.
#[derive(Clone)]
struct Group {
    /// The words that count, and which of their bits.
    mask: Vec<(u8, u32)>,
    highest: u16,
    reads: PacketFields,
    /// What is or was read of packets' ends.
    ends: EndReads,
    /// By the words that count. Flows of one key are in order; ranges tell them apart, or nothing.
    flows: HashMap<Box<[u32]>, Vec<Arc<Entry>>, BuildHasherDefault<Fold>>,
    /// How many flows have each priority.
    priorities: BTreeMap<u16, usize>,
    /// How many flows there are.
    len: usize,
    /// All of them by rank, if they are few: faster to compare than to look up.
    few: ArrayVec<Arc<Entry>, FEW>,
}

/// As many flows of one mask are compared one after the other.
const FEW: usize = 4;

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
        let matched = self.groups.iter().map(|group| group.reads);
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
        let is_about_more =
            |action: &Action| action.asks_elsewhere() || action.end_reads() != EndReads::default();
        if flow.actions.iter().any(is_about_more) {
            change(&mut self.reading_ends);
        }
        if flow.actions.contains(&Action::Normal) {
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
        let groups = other.map_or(&[][..], |other| &other.groups);
        let of_mask: HashMap<_, _> = groups.iter().map(|group| (&group.mask, group)).collect();
        let groups =
            self.groups.iter().map(move |group| (group, of_mask.get(&group.mask).copied()));
        let differing =
            groups.filter(|(group, other)| other.is_none_or(|other| !Arc::ptr_eq(group, other)));
        differing.flat_map(|(group, other)| {
            group.flows.iter().flat_map(move |(key, flows)| {
                let others = other.and_then(|other| other.flows.get(key));
                let others = others.map_or(&[][..], |others| others);
                flows.iter().filter(|flow| !others.iter().any(|other| Arc::ptr_eq(flow, other)))
            })
        })
    }

    /// All flows, in no order.
    pub(crate) fn entries(&self) -> impl Iterator<Item = &Arc<Entry>> {
        self.groups.iter().flat_map(|group| group.flows.values().flatten())
    }

    /// The best flow that a packet matches. The optional fields that decide about it are added to
    /// `reads`.
    pub(crate) fn lookup(&self, fields: &Fields, reads: &mut PacketFields) -> Option<&Entry> {
        let mut best: Option<&Entry> = None;
        for group in &self.groups {
            if best.is_some_and(|best| best.flow.priority > group.highest) {
                break;
            }
            *reads = *reads | group.reads;
            let Some(found) = group.lookup(fields) else { continue };
            if best.is_none_or(|best| found.rank() < best.rank()) {
                best = Some(found);
            }
        }
        best
    }

    /// The flow with this match and priority.
    pub(crate) fn find(&self, matches: &Match, priority: u16) -> Option<&Arc<Entry>> {
        let mask = sparse(matches);
        let group = self.groups.iter().find(|group| group.mask == mask)?;
        let same = group.flows.get(&*key(&mask, &matches.value))?;
        same.iter().find(|old| old.flow.priority == priority && old.flow.matches == *matches)
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
        let mask = sparse(matches);
        self.groups.len() < MOST_MASKS || self.groups.iter().any(|group| group.mask == mask)
    }

    pub(crate) fn insert(&mut self, entry: &Arc<Entry>) {
        let matches = &entry.flow.matches;
        let mask = sparse(matches);
        let at = match self.groups.iter().position(|group| group.mask == mask) {
            Some(at) => at,
            None => {
                self.groups.push(Arc::new(Group::new(mask.clone())));
                self.groups.len() - 1
            }
        };
        let group = Arc::make_mut(&mut self.groups[at]);
        group.reads = group.reads | matches.reads();
        group.ends = group.ends | matches.end_reads();
        *group.priorities.entry(entry.flow.priority).or_default() += 1;
        let flows = group.flows.entry(key(&mask, &matches.value)).or_default();
        let place = flows.partition_point(|old| old.rank() < entry.rank());
        flows.insert(place, entry.clone());
        group.len += 1;
        group.note_few();
        self.count(&entry.flow, |count| *count += 1);
        self.settle(at);
    }

    /// Removes a flow, which must be there.
    pub(crate) fn remove(&mut self, entry: &Entry) {
        let mask = sparse(&entry.flow.matches);
        let Some(at) = self.groups.iter().position(|group| group.mask == mask) else { return };
        let group = Arc::make_mut(&mut self.groups[at]);
        let key = key(&mask, &entry.flow.matches.value);
        let Some(flows) = group.flows.get_mut(&key) else { return };
        let Some(place) = flows.iter().position(|old| old.id == entry.id) else { return };
        flows.remove(place);
        if flows.is_empty() {
            group.flows.remove(&key);
        }
        group.len -= 1;
        group.note_few();
        if let Some(count) = group.priorities.get_mut(&entry.flow.priority) {
            *count -= 1;
            if *count == 0 {
                group.priorities.remove(&entry.flow.priority);
            }
        }
        self.count(&entry.flow, |count| *count -= 1);
        self.settle(at);
    }

    /// Puts a group that has changed where its highest priority wants it, or away.
    fn settle(&mut self, at: usize) {
        let group = Arc::make_mut(&mut self.groups[at]);
        match group.priorities.last_key_value() {
            None => _ = self.groups.remove(at),
            Some((highest, _)) => {
                group.highest = *highest;
                let group = self.groups.remove(at);
                let at = self.groups.partition_point(|other| other.highest >= group.highest);
                self.groups.insert(at, group);
            }
        }
    }
}

impl Group {
    fn new(mask: Vec<(u8, u32)>) -> Self {
        let reads = PacketFields::NONE;
        let priorities = BTreeMap::new();
        let (flows, few) = (HashMap::default(), ArrayVec::new());
        let ends = EndReads::default();
        Self { mask, highest: 0, reads, ends, flows, priorities, len: 0, few }
    }

    fn note_few(&mut self) {
        self.few.clear();
        if self.len <= FEW {
            self.few.extend(self.flows.values().flatten().cloned());
            self.few.sort_unstable_by_key(|entry| entry.rank());
        }
    }

    #[inline]
    fn lookup(&self, fields: &Fields) -> Option<&Entry> {
        if self.len <= FEW {
            let is_of = |entry: &&Arc<Entry>| {
                let value = &entry.flow.matches.value;
                self.mask.iter().all(|(word, mask)| {
                    let word = usize::from(*word);
                    (fields.words[word] ^ value[word]) & mask == 0
                }) && entry.flow.matches.in_ranges(fields)
            };
            return self.few.iter().find(is_of).map(|entry| &**entry);
        }
        let mut key = [0; WORDS];
        for (place, (word, mask)) in key.iter_mut().zip(&self.mask) {
            *place = fields.words[usize::from(*word)] & mask;
        }
        let flows = self.flows.get(&key[..self.mask.len()])?;
        flows.iter().find(|entry| entry.flow.matches.in_ranges(fields)).map(|entry| &**entry)
    }
}

/// The words of a mask that have bits.
fn sparse(matches: &Match) -> Vec<(u8, u32)> {
    let words = (0..).zip(matches.mask);
    words.filter(|(_, mask)| *mask != 0).collect()
}

fn key(mask: &[(u8, u32)], value: &[u32; WORDS]) -> Box<[u32]> {
    mask.iter().map(|(word, mask)| value[usize::from(*word)] & mask).collect()
}

/// Hashes the words of a key. It is not keyed: packets only look keys up, and what keys there are
/// users decide.
#[derive(Default)]
struct Fold(u64);

impl Hasher for Fold {
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        let mut chunks = bytes.chunks_exact(8);
        for chunk in &mut chunks {
            self.write_u64(u64::from_le_bytes(chunk.try_into().unwrap_or_default()));
        }
        for chunk in chunks.remainder().chunks(4) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    #[inline]
    fn write_u64(&mut self, word: u64) {
        let product = u128::from(self.0 ^ word) * 0x9e37_79b9_7f4a_7c15;
        self.0 = (product >> 64) as u64 ^ product as u64;
    }

    #[inline]
    fn write_usize(&mut self, _: usize) {
        // The length is that of the group's mask.
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
