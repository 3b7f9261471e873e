//! Changes of flows, with the meaning that they have for ovs-ofctl.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use thiserror::Error;
use types::{PortId, VrfId};

use crate::action::Action;
use crate::cycle::{self, Budget, Cycle};
use crate::flow::{Entry, Flow, FlowId, Owner};
use crate::matches::Match;
use crate::pipeline::Pipeline;
use crate::table::MOST_MASKS;

/// The most flows of a [`Pipeline`].
pub const MOST_FLOWS: usize = 262_144;

/// Which flows are meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Criteria {
    /// Of this VRF; of all if none is given.
    pub vrf: Option<VrfId>,
    /// Of this table; of all if none is given.
    pub table: Option<u8>,
    /// With exactly this match, and this priority. Otherwise those with this match or one that
    /// asks for more.
    pub strict: Option<u16>,
    /// Cookie and mask.
    pub cookie: Option<(u64, u64)>,
    /// Those that send to this port.
    pub out_port: Option<PortId>,
    /// The match.
    pub matches: Match,
}

/// A change of the flows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Adds a flow, in place of one with the same match and priority.
    Add {
        /// The flow.
        flow: Flow,
        /// Whether it is refused if a packet may match it and another one of the same priority.
        check_overlap: bool,
    },
    /// Changes actions, and perhaps cookies. Adds a flow if none is meant.
    Modify {
        /// Which flows.
        criteria: Box<Criteria>,
        /// Its actions; and what is added if no flow is meant.
        flow: Flow,
        /// The new cookie.
        cookie: Option<u64>,
        /// Whether counters begin anew: the flows have new numbers.
        reset_counts: bool,
    },
    /// Removes flows.
    Delete {
        /// Which flows.
        criteria: Criteria,
    },
}

/// What a change has done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changed {
    /// New flows. One that replaces another of the same match and priority has a new number.
    pub added: Vec<FlowId>,
    /// Flows that were changed and keep their numbers and counters.
    pub modified: Vec<FlowId>,
    /// Flows that are gone.
    pub removed: Vec<Arc<Entry>>,
}

/// Why flows were not changed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Refused {
    /// Too many flows.
    #[error("there are {MOST_FLOWS} flows, and more are not possible; remove some")]
    TooManyFlows,
    /// Too many ways to match in one table.
    #[error(
        "table {0} has {MOST_MASKS} different sets of fields and masks that its flows match; \
         spread the flows over tables, or let them match the same fields"
    )]
    TooManyMasks(u8),
    /// Another flow of the same priority may match the same packet.
    #[error("flow {} of table {table} has the same priority and may match the same packets", .id.0)]
    Overlaps {
        /// The table.
        table: u8,
        /// The other flow.
        id: FlowId,
    },
    /// Made by the compiler of `[firewall]`.
    #[error("flow {} of table {table} was made by [firewall], where it is changed", .id.0)]
    NotYours {
        /// The table.
        table: u8,
        /// The flow.
        id: FlowId,
    },
    /// Leads back.
    #[error("goto_table:{next} leads from table {table} to an earlier one; resubmit leads to any")]
    GotoBack {
        /// The table of the flow.
        table: u8,
        /// Where it leads.
        next: u8,
    },
    /// Names a class of connections, whose limits `[firewall]` sets.
    #[error(
        "ct(limit=...) is for flows that [firewall] makes; limits of zones and of sources are set \
         in [conntrack], and those of a zone of the firewall are its max-connections"
    )]
    Limit,
    /// Goes in a circle.
    #[error("packets would go round by the {}, and never come to an end", Tables(.0))]
    Cycle(Vec<u8>),
}

struct Tables<'a>(&'a [u8]);

impl core::fmt::Display for Tables<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(if self.0.len() == 1 { "table " } else { "tables " })?;
        for (at, table) in self.0.iter().enumerate() {
            write!(f, "{}{table}", if at == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

/// What became of a flow that was put into its table.
enum Added {
    /// It is new, perhaps in the place of another one.
    New(Arc<Entry>, Option<Arc<Entry>>),
    /// It was there.
    There,
}

impl Changed {
    fn note(&mut self, added: Added) {
        if let Added::New(entry, old) = added {
            self.removed.extend(old);
            self.added.push(entry.id);
        }
    }
}

impl Criteria {
    /// Every flow of a VRF, or of all.
    pub const fn all(vrf: Option<VrfId>) -> Self {
        let (table, strict, cookie, out_port) = (None, None, None, None);
        Self { vrf, table, strict, cookie, out_port, matches: Match::ANY }
    }

    /// Whether a flow is meant.
    pub fn includes(&self, flow: &Flow) -> bool {
        self.vrf.is_none_or(|vrf| vrf == flow.vrf)
            && self.table.is_none_or(|table| table == flow.table)
            && self.cookie.is_none_or(|(value, mask)| flow.cookie & mask == value & mask)
            && self.out_port.is_none_or(|port| flow.sends_to(port))
            && match self.strict {
                Some(priority) => flow.priority == priority && flow.matches == self.matches,
                None => self.matches.covers(&flow.matches),
            }
    }
}

impl Pipeline {
    /// Makes a change. Nothing is changed if it is refused.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn apply(&mut self, change: Change, owner: Owner) -> Result<Changed, Refused> {
        match change {
            Change::Add { flow, check_overlap } => {
                let mut changed = Changed::default();
                self.add(flow, owner, check_overlap, &mut changed)?;
                Ok(changed)
            }
            Change::Delete { criteria } => self.delete(&criteria, owner),
            Change::Modify { criteria, flow, cookie, reset_counts } => {
                self.modify(&criteria, flow, cookie, reset_counts, owner)
            }
        }
    }

    /// Makes all flows of an owner these, with one change: flows that are the same stay, with their
    /// numbers. Of several with one match and priority, the last counts.
    ///
    /// # Errors
    /// [`Refused`], with the position of the flow that is. Nothing is changed then.
    pub fn replace(&mut self, flows: Vec<Flow>, owner: Owner) -> Result<Changed, (usize, Refused)> {
        let place = |flow: &Flow| (flow.vrf, flow.table, flow.priority, flow.matches.clone());
        let last: HashMap<_, _> =
            flows.iter().enumerate().map(|(at, flow)| (place(flow), at)).collect();
        let mut kept = HashSet::new();
        let mut new = Vec::new();
        for (at, flow) in flows.into_iter().enumerate() {
            if last.get(&place(&flow)) != Some(&at) {
                continue;
            }
            match self.find(&flow) {
                Some(old) if old.owner == owner && old.flow == flow => _ = kept.insert(old.id),
                _ => new.push((at, flow)),
            }
        }
        let own = self.entries().filter(|entry| entry.owner == owner);
        let gone: Vec<_> = own.map(|entry| entry.id).filter(|id| !kept.contains(id)).collect();
        let (places, new): (Vec<_>, Vec<_>) = new.into_iter().unzip();
        self.exchange(&gone, &new, owner).map_err(|(at, why)| (places[at], why))
    }

    /// Removes flows by their numbers, whoever made them, and adds others. What is there in the end is
    /// judged, and not what would be on the way there.
    ///
    /// # Errors
    /// [`Refused`], with the position of the flow that is. Nothing is changed then.
    pub fn exchange(
        &mut self,
        gone: &[FlowId],
        flows: &[Flow],
        owner: Owner,
    ) -> Result<Changed, (usize, Refused)> {
        let mut new = self.clone();
        let mut changed = new.remove(gone);
        for (at, flow) in flows.iter().enumerate() {
            let added = new.insert(flow.clone(), owner, false).map_err(|why| (at, why))?;
            changed.note(added);
        }
        if let Some((at, cycle)) = first_cycle(&new, flows) {
            return Err((at, Refused::Cycle(cycle.tables)));
        }
        // Of several for one place the last is there, and the others never were.
        let gone: HashSet<_> = changed.removed.iter().map(|old| old.id).collect();
        changed.removed.retain(|old| self.find(&old.flow).is_some_and(|was| was.id == old.id));
        changed.added.retain(|id| !gone.contains(id));
        *self = new;
        Ok(changed)
    }

    /// Removes flows by their numbers, whoever made them: those whose time is over.
    pub fn remove(&mut self, ids: &[FlowId]) -> Changed {
        let ids: HashSet<_> = ids.iter().copied().collect();
        let mut changed = Changed::default();
        self.remove_if(|entry| ids.contains(&entry.id), &mut changed);
        changed
    }

    /// Adds a flow, unless packets would go round by it.
    fn add(
        &mut self,
        flow: Flow,
        owner: Owner,
        check_overlap: bool,
        changed: &mut Changed,
    ) -> Result<(), Refused> {
        let (vrf, table) = (flow.vrf, flow.table);
        let added = self.insert(flow, owner, check_overlap)?;
        if let Added::New(entry, old) = &added
            && let Some(cycle) = cycle::find(self, &entry.flow, &mut Budget::of_one())
        {
            let tables = self.table_mut(vrf, table);
            tables.remove(entry);
            old.iter().for_each(|old| tables.insert(old));
            self.recount(vrf);
            return Err(Refused::Cycle(cycle.tables));
        }
        changed.note(added);
        Ok(())
    }

    /// Puts a flow into its table. One that `[firewall]` has made is there already, so that what was dumped
    /// can be read again.
    fn insert(&mut self, flow: Flow, owner: Owner, check_overlap: bool) -> Result<Added, Refused> {
        let (vrf, table) = (flow.vrf, flow.table);
        let old = self.find(&flow).cloned();
        if let Some(old) = &old
            && (owner == Owner::User && old.owner != owner && old.flow == flow)
        {
            return Ok(Added::There);
        }
        check_actions(&flow.actions, table, owner)?;
        match &old {
            Some(old) if old.owner != owner => {
                return Err(Refused::NotYours { table, id: old.id });
            }
            None if self.len() >= MOST_FLOWS => return Err(Refused::TooManyFlows),
            _ => {}
        }
        if let Some(flows) = self.table(vrf, table) {
            if check_overlap && let Some(other) = flows.overlapping(&flow) {
                return Err(Refused::Overlaps { table, id: other.id });
            }
            if old.is_none() && !flows.has_room(&flow.matches) {
                return Err(Refused::TooManyMasks(table));
            }
        }
        let (id, order) = (self.next_id(), self.order_of(&flow));
        let entry = Arc::new(Entry { id, owner, order, flow });
        let tables = self.table_mut(vrf, table);
        if let Some(old) = &old {
            tables.remove(old);
        }
        tables.insert(&entry);
        self.recount(vrf);
        Ok(Added::New(entry, old))
    }

    fn delete(&mut self, criteria: &Criteria, owner: Owner) -> Result<Changed, Refused> {
        // `flow del` without a match removes what a user may remove; what [firewall] made is
        // refused if it is named.
        let Criteria { table, cookie, out_port, matches, strict, vrf: _ } = criteria;
        let is_wide = *matches == Match::ANY && strict.is_none();
        let is_narrowed = table.is_some() || cookie.is_some() || out_port.is_some();
        let own = self.selected(criteria).filter(|old| old.owner == owner);
        let gone: Vec<_> = own.cloned().collect();
        let names_others = !is_wide || is_narrowed && gone.is_empty();
        if names_others && let Some(other) = self.selected(criteria).find(|old| old.owner != owner)
        {
            return Err(Refused::NotYours { table: other.flow.table, id: other.id });
        }
        let mut changed = Changed::default();
        self.remove_all(gone, &mut changed);
        Ok(changed)
    }

    fn modify(
        &mut self,
        criteria: &Criteria,
        flow: Flow,
        cookie: Option<u64>,
        reset_counts: bool,
        owner: Owner,
    ) -> Result<Changed, Refused> {
        let olds: Vec<_> = self.selected(criteria).cloned().collect();
        let mut changed = Changed::default();
        if olds.is_empty() {
            // As in Open vSwitch, one that looks for a cookie adds nothing.
            if criteria.cookie.is_none() {
                self.add(flow, owner, false, &mut changed)?;
            }
            return Ok(changed);
        }
        for old in &olds {
            if old.owner != owner {
                return Err(Refused::NotYours { table: old.flow.table, id: old.id });
            }
            check_actions(&flow.actions, old.flow.table, owner)?;
        }
        let before = self.clone();
        let mut vrfs = Vec::new();
        for old in &olds {
            let mut new = Entry::clone(old);
            new.flow.actions.clone_from(&flow.actions);
            new.flow.cookie = cookie.unwrap_or(new.flow.cookie);
            if old.flow.drops_all() != new.flow.drops_all() {
                new.order = self.order_of(&new.flow);
            }
            if reset_counts {
                new.id = self.next_id();
                changed.added.push(new.id);
                changed.removed.push(old.clone());
            } else {
                changed.modified.push(new.id);
            }
            let vrf = new.flow.vrf;
            let table = self.table_mut(vrf, new.flow.table);
            table.remove(old);
            table.insert(&Arc::new(new));
            vrfs.push(vrf);
        }
        vrfs.sort_unstable();
        vrfs.dedup();
        vrfs.into_iter().for_each(|vrf| self.recount(vrf));
        let news =
            olds.iter().map(|old| Flow { actions: flow.actions.clone(), ..old.flow.clone() });
        if let Some((_, cycle)) = first_cycle(self, &news.collect::<Vec<_>>()) {
            *self = before;
            return Err(Refused::Cycle(cycle.tables));
        }
        Ok(changed)
    }

    /// Which flows are meant.
    pub fn selected<'a>(&'a self, criteria: &'a Criteria) -> impl Iterator<Item = &'a Arc<Entry>> {
        let Criteria { vrf, table, strict, matches, .. } = criteria;
        // All that is strict names one flow, which is found without a look at the others.
        let (named, all) = match (vrf, table, strict) {
            (Some(vrf), Some(table), Some(priority)) => {
                (self.table(*vrf, *table).and_then(|table| table.find(matches, *priority)), None)
            }
            _ => (None, Some(self.entries())),
        };
        let meant = named.into_iter().chain(all.into_iter().flatten());
        meant.filter(|entry| criteria.includes(&entry.flow))
    }

    fn remove_if(&mut self, goes: impl Fn(&Entry) -> bool, changed: &mut Changed) {
        let gone = self.entries().filter(|entry| goes(entry)).cloned().collect();
        self.remove_all(gone, changed);
    }

    fn remove_all(&mut self, gone: Vec<Arc<Entry>>, changed: &mut Changed) {
        for entry in &gone {
            self.table_mut(entry.flow.vrf, entry.flow.table).remove(entry);
        }
        let mut vrfs: Vec<_> = gone.iter().map(|entry| entry.flow.vrf).collect();
        vrfs.sort_unstable();
        vrfs.dedup();
        vrfs.into_iter().for_each(|vrf| self.recount(vrf));
        changed.removed.extend(gone);
    }
}

/// The first of some flows that is in a cycle; if none is, the first that leads to one.
fn first_cycle(pipeline: &Pipeline, flows: &[Flow]) -> Option<(usize, Cycle)> {
    let mut budget = Budget::of_many();
    let mut leading = None;
    for (at, flow) in flows.iter().enumerate() {
        match cycle::find(pipeline, flow, &mut budget) {
            Some(cycle) if cycle.has_flow => return Some((at, cycle)),
            Some(cycle) => leading = leading.or(Some((at, cycle))),
            None => {}
        }
    }
    leading
}

fn check_actions(actions: &[Action], table: u8, owner: Owner) -> Result<(), Refused> {
    actions.iter().try_for_each(|action| match action {
        Action::GotoTable(next) if *next <= table => Err(Refused::GotoBack { table, next: *next }),
        Action::Ct(ct) if ct.limit.is_some() && owner == Owner::User => Err(Refused::Limit),
        _ => Ok(()),
    })
}
