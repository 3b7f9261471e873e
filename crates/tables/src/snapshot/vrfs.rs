//! Adding and removing VRFs and their routing tables.

use std::collections::BTreeSet;
use std::sync::Arc;

use types::{HighestShares, Ipsec, Share, TableId};
use wire::{IpPrefix, PortId, VrfId};

use super::{Tables, VrfFeatures};
use crate::error::TableError;
use crate::filter::FilterTarget;
use crate::limit::{MAX_TABLES, MAX_VRF_NUMBERS, MAX_VRFS};
use crate::log::Change;
use crate::map::MapKey;
use crate::policy::{Action, Direction};
use crate::qdisc::QdiscDevice;
use crate::routing_table::{RoutingTable, TableRef};
use crate::slots::Slots;
use crate::sorted::Sorted;
use crate::vrf::{Vrf, VrfParsing};

/// The longest name, in bytes.
const MAX_NAME: usize = 64;

/// VRFs for which nobody has chosen a table get those from this number on. It is far above those
/// that people choose.
const FIRST_CHOSEN: u32 = 1_000_001;

impl Tables {
    /// Adds a VRF with the first routing table from 1,000,001 on that is free. It gets the lowest
    /// number that is free.
    ///
    /// # Errors
    /// As [`Tables::add_vrf_with_table`].
    pub fn add_vrf(&mut self, name: &str) -> Result<VrfId, TableError> {
        self.add_vrf_with_table(name, self.free_table(|_| false))
    }

    /// The first number from 1,000,001 on that names no routing table, and that `is_meant` for none.
    pub fn free_table(&self, is_meant: impl Fn(TableId) -> bool) -> TableId {
        self.free_tables(is_meant).next().unwrap_or(TableId(FIRST_CHOSEN))
    }

    /// Every such number, in order.
    pub fn free_tables(&self, is_meant: impl Fn(TableId) -> bool) -> impl Iterator<Item = TableId> {
        let is_used = move |table: &TableId| {
            self.table_owners.get(table).is_some()
                || self.loose_tables.contains_key(table)
                || is_meant(*table)
        };
        (FIRST_CHOSEN..).map(TableId).filter(move |table| !is_used(table))
    }

    /// Adds a VRF with this routing table. It gets the lowest number that is free.
    ///
    /// # Errors
    /// [`TableError::VrfName`], [`TableError::VrfExists`], [`TableError::TableTaken`],
    /// [`TableError::TableInUse`] if the table has routes, [`TableError::Limit`].
    pub fn add_vrf_with_table(&mut self, name: &str, table: TableId) -> Result<VrfId, TableError> {
        let unfit = |character: char| character.is_whitespace() || character.is_control();
        if name.is_empty() || name.len() > MAX_NAME || name.contains(unfit) {
            return Err(TableError::VrfName(name.into()));
        }
        if self.vrf_named(name).is_some() {
            return Err(TableError::VrfExists(name.into()));
        }
        self.check_table(table)?;
        if self.table_owners.len() >= MAX_VRFS {
            return Err(TableError::Limit { what: "VRFs", limit: MAX_VRFS });
        }
        let free = self.vrf_numbers.lowest_free(0);
        let Some(free) = free.filter(|free| usize::from(*free) < MAX_VRF_NUMBERS) else {
            let what = "VRFs, with those whose connections are about to end,";
            return Err(TableError::Limit { what, limit: MAX_VRF_NUMBERS });
        };
        let id = VrfId(free);
        let vrf = Vrf {
            id,
            name: name.into(),
            table,
            spd: Arc::clone(&self.no_policies),
            ipsec: Ipsec::default(),
            features: VrfFeatures::default(),
            ike: types::Ike::default(),
            routes: self.no_routes.clone(),
            since: self.generation + 1,
            ports: Sorted::default(),
        };
        self.vrfs.set(free.into(), Arc::new(vrf));
        self.vrf_numbers.add(free);
        self.vrf_names.add(name, free);
        self.table_owners.insert(table, id);
        self.changed(Change::Vrf(id));
        self.judge_rules(id);
        Ok(id)
    }

    /// Finds out what parsing takes of VRFs, before the snapshot is published after `before`. Only
    /// those that have changed are read.
    pub(crate) fn judge_parsing(&mut self, before: Option<&Self>) {
        let none = Slots::new();
        let (vrfs, parsing) = match before {
            Some(before) => (&before.vrfs, Arc::clone(&before.parsing)),
            None => (&none, Arc::default()),
        };
        let mut changed = self.vrfs.changed_since(vrfs).peekable();
        if changed.peek().is_none() {
            self.parsing = parsing;
            return;
        }
        let mut all = Vec::with_capacity(self.vrfs.places());
        all.extend_from_slice(&parsing);
        all.resize(self.vrfs.places(), VrfParsing::default());
        for number in changed {
            let vrf = self.vrfs.get(number);
            let old = vrfs.get(number);
            if let (Some(old), Some(vrf)) = (old, vrf)
                && Arc::ptr_eq(old, vrf)
            {
                continue;
            }
            all[number as usize] = vrf.map_or_else(VrfParsing::default, |vrf| VrfParsing::of(vrf));
        }
        self.parsing = all.into();
    }

    /// The VRFs without the spans that they should have, by number, if VRFs are many: of those that
    /// have changed since `before`, from which these tables descend. Only they are read.
    pub(crate) fn without_spans(&self, before: Option<&Self>) -> BTreeSet<u32> {
        if !self.has_many_vrfs() {
            return BTreeSet::new();
        }
        let none = Slots::new();
        let vrfs =
            before.filter(|before| before.has_many_vrfs()).map_or(&none, |before| &before.vrfs);
        let changed = self.vrfs.changed_since(vrfs);
        let routes = |number: u32| self.vrfs.get(number).map(|vrf| &vrf.routes);
        changed.filter(|number| !self.spans.are_of(*number, routes(*number))).collect()
    }

    /// Makes the spans that VRFs of these numbers should have.
    pub(crate) fn make_spans(&mut self, vrfs: impl IntoIterator<Item = u32>) {
        for number in vrfs {
            let routes = self.vrfs.get(number).map(|vrf| &vrf.routes);
            self.spans.follow(number, routes);
        }
    }

    /// The VRFs that may not have the whole of what VRFs share; the same until one changes.
    pub fn highest_shares(&self) -> &HighestShares {
        &self.highest_shares
    }

    /// The most that a VRF may have of what VRFs share.
    pub fn highest_share(&self, vrf: VrfId) -> Share {
        self.highest_shares.get(&vrf).copied().unwrap_or_default()
    }

    /// Sets the most that a VRF may have of what VRFs share. No decision follows from it.
    ///
    /// # Errors
    /// [`TableError::NoVrf`].
    pub fn set_highest_share(&mut self, vrf: VrfId, share: Share) -> Result<(), TableError> {
        self.existing_vrf(vrf)?;
        if self.highest_share(vrf) != share {
            let shares = Arc::make_mut(&mut self.highest_shares);
            match share {
                Share::WHOLE => _ = shares.remove(&vrf),
                share => _ = shares.insert(vrf, share),
            }
        }
        Ok(())
    }

    /// Whether an SA's outer packets are in a VRF, or the packets inside.
    fn has_sas(&self, id: VrfId) -> bool {
        let is_outside = || self.sad.iter().any(|sa| sa.spec.identity.vrf == id);
        self.sad.are_inside(id) || self.has_tunnel_ends(id) && is_outside()
    }

    /// Whether an SA, or the template of a policy, names ends of a tunnel in a VRF.
    fn has_tunnel_ends(&self, id: VrfId) -> bool {
        self.tunnel_ends.within(id, None).next().is_some()
    }

    /// Whether a policy of another VRF or of an xfrm link has a tunnel whose outer packets are in this one.
    fn has_tunnels_of_others(&self, id: VrfId) -> bool {
        if !self.has_tunnel_ends(id) {
            return false;
        }
        let directions = Direction::ALL.into_iter();
        let mut policies = directions
            .flat_map(|direction| self.spds().flat_map(move |(_, spd)| spd.policies(direction)));
        policies.any(|policy| match policy.spec.action {
            Action::Protect(template) => template.vrf == Some(id),
            Action::Bypass | Action::Discard => false,
        })
    }

    /// Gives the routing tables of VRFs other numbers, all at once: they may exchange theirs.
    ///
    /// # Errors
    /// [`TableError::NoVrf`], [`TableError::TableTaken`], [`TableError::TableInUse`]. Nothing has
    /// changed.
    pub fn renumber_tables(&mut self, wanted: &[(VrfId, TableId)]) -> Result<(), TableError> {
        let mut owners = self.table_owners.clone();
        let mut moved = Vec::new();
        for (vrf, table) in wanted {
            let old = self.existing_vrf(*vrf)?.table;
            if old != *table {
                owners.remove(&old);
                moved.push((*vrf, *table));
            }
        }
        for (vrf, table) in &moved {
            if let Some(other) = owners.insert(*table, *vrf) {
                let vrf = Arc::clone(&self.existing_vrf(other)?.name);
                return Err(TableError::TableTaken { table: *table, vrf });
            }
            if self.loose_tables.contains_key(table) {
                return Err(TableError::TableInUse(*table));
            }
        }
        if moved.is_empty() {
            return Ok(());
        }
        self.table_owners = owners;
        for (vrf, table) in moved {
            self.vrf_mut(vrf)?.table = table;
            // Rules name tables by number.
            if self.has_rules() {
                self.changed(Change::Vrf(vrf));
            }
        }
        Ok(())
    }

    /// The VRF whose routing table this is.
    pub fn vrf_of_table(&self, table: TableId) -> Option<VrfId> {
        self.table_owners.get(&table).copied()
    }

    /// A routing table, whether a VRF has it or none. `None` if it does not exist.
    pub fn routing_table(&self, table: TableRef) -> Option<&RoutingTable> {
        match self.table_ref(table).ok()? {
            TableRef::Vrf(vrf) => self.vrf(vrf).map(Vrf::routing_table),
            TableRef::Number(number) => self.loose_tables.get(&number).map(|table| &**table),
        }
    }

    /// The routing tables that no VRF has, by number. None is empty.
    pub fn loose_tables(&self) -> impl Iterator<Item = (TableId, &RoutingTable)> {
        self.loose_tables.iter().map(|(number, table)| (*number, &**table))
    }

    /// All VRFs are of `generation`, whichever they were added for: observers know none that was before
    /// in this line of snapshots, and one that is made later is another one.
    pub(crate) fn restart_vrfs(&mut self, generation: u64) {
        self.parted = generation;
        self.vrfs.iter_mut().for_each(|vrf| Arc::make_mut(vrf).since = generation);
    }

    /// The VRFs whose packets an observer of `before`, an earlier snapshot of the same publisher,
    /// may still have and that are gone, whether another VRF has the number now or none.
    pub fn vrfs_gone_since(&self, before: &Self) -> BTreeSet<VrfId> {
        if self.parted <= before.generation {
            return BTreeSet::new();
        }
        let is_there = |old: &&Vrf| self.vrf(old.id).is_some_and(|vrf| vrf.since == old.since);
        let changed = before.vrfs.changed_since(&self.vrfs);
        let old = changed.filter_map(|number| before.vrfs.get(number).map(|vrf| &**vrf));
        old.filter(|old| !is_there(old)).map(|vrf| vrf.id).collect()
    }

    /// The ports that an observer of `before`, an earlier snapshot of the same publisher, knows in
    /// another VRF than they are in now, or that are gone. One whose VRF is gone is among them.
    pub fn ports_moved_since(&self, before: &Self) -> BTreeSet<PortId> {
        if self.parted <= before.generation {
            return BTreeSet::new();
        }
        let since = |tables: &Self, vrf| tables.vrf(vrf).map(|vrf| vrf.since);
        let stays = |old: &&crate::port::Port| {
            self.port(old.id).is_some_and(|port| {
                let (vrf, was) = (port.spec.vrf, old.spec.vrf);
                vrf == was
                    && port.spec.vlan == old.spec.vlan
                    && since(self, vrf) == since(before, was)
            })
        };
        let changed = before.ports.changed_since(&self.ports);
        let changed = changed.filter_map(|number| before.ports.get(number).map(|port| &**port));
        let gone = self.vrfs_gone_since(before);
        let all = changed.chain(gone.iter().flat_map(|vrf| before.ports_of(*vrf)));
        all.filter(|old| !stays(old)).map(|port| port.id).collect()
    }

    /// Refuses the number of a routing table that a VRF has or that has routes.
    fn check_table(&self, table: TableId) -> Result<(), TableError> {
        if let Some(vrf) = self.vrf_of_table(table).and_then(|vrf| self.vrf(vrf)) {
            return Err(TableError::TableTaken { table, vrf: Arc::clone(&vrf.name) });
        }
        match self.loose_tables.contains_key(&table) {
            true => Err(TableError::TableInUse(table)),
            false => Ok(()),
        }
    }

    /// The same table; a VRF's by its VRF.
    pub(super) fn table_ref(&self, table: TableRef) -> Result<TableRef, TableError> {
        let vrf = match table {
            TableRef::Vrf(vrf) => Some(self.existing_vrf(vrf)?.id),
            TableRef::Number(number) => self.vrf_of_table(number),
        };
        Ok(vrf.map_or(table, TableRef::Vrf))
    }

    /// The routes of a VRF, to change.
    pub(super) fn own_routes(&mut self, vrf: VrfId) -> Result<&mut RoutingTable, TableError> {
        Ok(&mut self.vrf_mut(vrf)?.routes)
    }

    /// The routes of a table, to change. One that no VRF has is made if it does not exist:
    /// [`Tables::drop_empty_table`] removes it again.
    pub(super) fn routing_table_mut(
        &mut self,
        table: TableRef,
    ) -> Result<&mut RoutingTable, TableError> {
        match table {
            TableRef::Vrf(vrf) => self.own_routes(vrf),
            TableRef::Number(number) => {
                let none = &self.no_routes;
                let tables = Arc::make_mut(&mut self.loose_tables);
                let found = tables.entry(number).or_insert_with(|| Arc::new(none.clone()));
                Ok(Arc::make_mut(found))
            }
        }
    }

    /// Removes a table that no VRF has and that has no routes.
    pub(super) fn drop_empty_table(&mut self, table: TableRef) {
        if let TableRef::Number(number) = table
            && self.loose_tables.get(&number).is_some_and(|table| table.route_count() == 0)
        {
            Arc::make_mut(&mut self.loose_tables).remove(&number);
        }
    }

    /// Refuses a route of `prefix` if the table may have no more routes, or there may be no more
    /// tables.
    pub(super) fn check_table_room(
        &self,
        table: TableRef,
        prefix: IpPrefix,
    ) -> Result<(), TableError> {
        match self.routing_table(table) {
            Some(table) => table.check_room(prefix),
            None if self.loose_tables.len() >= MAX_TABLES => {
                Err(TableError::Limit { what: "routing tables without a VRF", limit: MAX_TABLES })
            }
            None => Ok(()),
        }
    }

    /// Removes a VRF that has no port, policy or SA. Routes that are left, such as blackholes, go
    /// with it.
    ///
    /// # Errors
    /// [`TableError::NoVrf`], [`TableError::VrfMain`], [`TableError::VrfInUse`].
    pub fn remove_vrf(&mut self, id: VrfId) -> Result<(), TableError> {
        self.check_vrf_removal(id)?;
        let vrf = self.existing_vrf(id)?;
        if !vrf.ports.is_empty() {
            return Err(TableError::VrfInUse { vrf: Arc::clone(&vrf.name), what: "ports" });
        }
        if self.pipeline().has(id) {
            return Err(TableError::VrfInUse { vrf: Arc::clone(&vrf.name), what: "flows" });
        }
        let (table, name) = (vrf.table, Arc::clone(&vrf.name));
        self.remove_leaks(id)?;
        self.remove_filters(FilterTarget::Vrf(id));
        self.remove_taps(|tap| tap.target == FilterTarget::Vrf(id));
        let gone = self.vrfs.remove(id.0.into());
        self.vrf_numbers.remove(id.0);
        self.vrf_names.remove(&name, id.0);
        self.count_featured(gone.is_some_and(|vrf| vrf.features.any()), false);
        self.table_owners.remove(&table);
        self.remove_qdisc(QdiscDevice::Vrf(id))?;
        if self.highest_shares.contains_key(&id) {
            Arc::make_mut(&mut self.highest_shares).remove(&id);
        }
        if self.flows.walls.contains_key(&id) {
            Arc::make_mut(&mut Arc::make_mut(&mut self.flows).walls).remove(&id);
        }
        self.parted = self.generation + 1;
        self.changed(Change::Vrf(id));
        self.judge_share(FilterTarget::Vrf(id))?;
        self.rules_follow_vrf(id);
        Ok(())
    }

    /// Gives the number of a removed VRF to no other one, until [`Tables::free_vrf_number`]: connections are
    /// known by it, and may be there yet.
    pub fn rest_vrf_number(&mut self, id: VrfId) {
        self.vrf_numbers.add(id.0);
    }

    /// The number of a removed VRF may be another one's.
    pub fn free_vrf_number(&mut self, id: VrfId) {
        if self.vrf(id).is_none() {
            self.vrf_numbers.remove(id.0);
        }
    }

    /// Whether a VRF could be removed if it had no ports.
    ///
    /// # Errors
    /// [`TableError::NoVrf`], [`TableError::VrfMain`], [`TableError::VrfInUse`].
    pub fn check_vrf_removal(&self, id: VrfId) -> Result<(), TableError> {
        let vrf = self.existing_vrf(id)?;
        if id == VrfId::MAIN {
            return Err(TableError::VrfMain);
        }
        let what = if !vrf.spd.is_empty() {
            Some("policies")
        } else if self.has_sas(id) {
            Some("SAs")
        } else if self.has_tunnels_of_others(id) {
            Some("tunnels of another VRF's policies")
        } else {
            None
        };
        match what {
            Some(what) => Err(TableError::VrfInUse { vrf: Arc::clone(&vrf.name), what }),
            None => Ok(()),
        }
    }
}

impl MapKey for TableId {
    type Words = [u64; 1];

    fn to_words(&self) -> [u64; 1] {
        [self.0.into()]
    }
}
