//! The match-action tables of a snapshot.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use conntrack::{Connections, Ended};
use packet::Time;
use pipeline::{Entry, FlowId, FlowPackets, NatNew, Pipeline};
use wire::{PortId, VrfId};

use super::Tables;
use crate::counters::FlowCounters;
use crate::error::TableError;
use crate::flows::{FlowLog, FlowMeter, NatPool, PoolId, Wall};
use crate::log::Change;

impl Tables {
    /// The flows of all VRFs.
    #[inline(always)]
    pub fn pipeline(&self) -> &Pipeline {
        &self.flows.pipeline
    }

    /// Whether any VRF has flows.
    #[inline(always)]
    pub fn has_flows(&self) -> bool {
        !self.flows.pipeline.is_empty()
    }

    /// The zone of the firewall that a port is in. No decision depends on it.
    pub fn firewall_zone(&self, port: PortId) -> Option<u16> {
        self.flows.zones.get(&port).copied()
    }

    /// What a VRF's firewall makes of packets of other VRFs, if it has one.
    pub fn wall(&self, vrf: VrfId) -> Option<Wall> {
        self.flows.walls.get(&vrf).copied()
    }

    /// What the firewalls of all VRFs make of such packets.
    pub fn walls(&self) -> &BTreeMap<VrfId, Wall> {
        &self.flows.walls
    }

    /// These VRFs have a firewall from now on, and no others. One ends with the last flow of its VRF.
    pub fn set_walls(&mut self, walls: BTreeMap<VrfId, Wall>) {
        let before = Arc::clone(&self.flows.walls);
        if *before == walls {
            return;
        }
        let all: BTreeSet<_> = before.keys().chain(walls.keys()).copied().collect();
        Arc::make_mut(&mut self.flows).walls = Arc::new(walls);
        for vrf in all {
            if before.get(&vrf).copied() != self.wall(vrf) {
                self.changed(Change::Vrf(vrf));
            }
        }
    }

    /// These ports are in zones of the firewall from now on, and no others.
    pub fn set_firewall_zones(&mut self, zones: BTreeMap<PortId, u16>) {
        Arc::make_mut(&mut self.flows).zones = Arc::new(zones);
    }

    /// The ports that the flows of a VRF send frames by, in order: frames for all stations go from one to the
    /// others.
    pub fn joined(&self, vrf: VrfId) -> &[PortId] {
        self.flows.joined.get(&vrf).map_or(&[], |ports| ports)
    }

    /// The ports whose frames those of all VRFs are: a VLAN's are those of the port below it.
    pub fn all_joined(&self) -> impl Iterator<Item = PortId> {
        let all = self.flows.joined.values().flat_map(|ports| ports.iter());
        all.filter_map(|port| Some(self.port(*port)?.queue()))
    }

    /// The connection table, if there is one.
    #[inline(always)]
    pub fn connections(&self) -> Option<&Arc<Connections>> {
        self.flows.connections.as_ref()
    }

    /// What a flow has counted.
    pub fn flow_meter(&self, id: FlowId) -> Option<&FlowMeter> {
        self.flows.meters.get(&id).map(|meter| &**meter)
    }

    /// What a flow logs of packets, if it does.
    pub fn flow_log(&self, id: FlowId) -> Option<&FlowLog> {
        self.flows.logs.get(&id)
    }

    /// The pool for a translation of sources.
    pub fn nat_pool_of(&self, new: &NatNew) -> Option<PoolId> {
        self.flows.pool_of(new)
    }

    /// A pool.
    pub fn nat_pool(&self, id: PoolId) -> Option<&NatPool> {
        self.flows.pool(id)
    }

    /// The pool that has lent what a connection's binding says.
    pub fn nat_pool_of_binding(&self, binding: u64) -> Option<PoolId> {
        self.flows.pool_of_binding(binding)
    }

    /// Every pool, with those that no flow asks for any more and that have not all their ports back.
    /// The number of one that is gone may be another one's later.
    pub fn nat_pools(&self) -> impl Iterator<Item = (PoolId, &Arc<NatPool>)> {
        self.flows.pools()
    }

    /// Whether there are pools that no flow asks for and that have all their ports back.
    pub fn has_idle_nat_pools(&self) -> bool {
        self.flows.has_idle_pools()
    }

    /// Drops pools of which [`Tables::has_idle_nat_pools`] tells. No earlier snapshot may be
    /// in use any more, whose flows could ask for more.
    pub fn drop_idle_nat_pools(&mut self) {
        Arc::make_mut(&mut self.flows).drop_idle_pools();
    }

    /// A connection has ended: what it had of a pool is given back.
    pub fn connection_ended(&self, ended: &[Ended]) {
        self.flows.ended(ended);
    }

    /// Connections are tracked in this table from now on.
    pub fn set_connections(&mut self, connections: Arc<Connections>) {
        Arc::make_mut(&mut self.flows).connections = Some(connections);
        let all: Vec<_> = self.vrfs().map(|vrf| vrf.id).collect();
        all.into_iter().for_each(|vrf| self.changed(Change::Flows { vrf, packets: None }));
    }

    /// Takes other flows than before. Those that stay, which is known by their ids, keep what they
    /// have counted.
    ///
    /// # Errors
    /// [`TableError::NoVrf`], [`TableError::Flow`].
    pub fn set_pipeline(&mut self, pipeline: Pipeline, now: Time) -> Result<(), TableError> {
        let mut flows = self.flows.clone();
        let changed = Arc::make_mut(&mut flows);
        let before = &self.flows.pipeline;
        let (old, new) = (by_id(before.unshared(&pipeline)), by_id(pipeline.unshared(before)));
        for (id, entry) in &new {
            let made = changed.make_pools(core::iter::once(&entry.flow));
            made.map_err(|why| TableError::Flow { id: *id, why })?;
        }
        changed.leave_pools(old.values().map(|entry| &entry.flow));
        let mut differing = Vec::new();
        for (id, entry) in &old {
            if !new.contains_key(id) {
                changed.meters.remove(id);
                Arc::make_mut(&mut changed.logs).remove(id);
                differing.push(*entry);
            }
        }
        for (id, entry) in &new {
            self.existing_vrf(entry.flow.vrf)?;
            let before = old.get(id);
            if before.is_none() {
                let counters = FlowCounters::new(self.workers);
                let meter = FlowMeter { counters, created: now };
                changed.meters.insert(*id, Arc::new(meter));
            }
            if before.is_none_or(|before| !core::ptr::eq(*before, *entry) && before != entry) {
                differing.push(entry);
                differing.extend(before);
                let logs = Arc::make_mut(&mut changed.logs);
                match FlowLog::of(&entry.flow) {
                    Some(log) => _ = logs.insert(*id, log),
                    None => _ = logs.remove(id),
                }
            }
        }
        let mut concerned = BTreeMap::<VrfId, Vec<FlowPackets>>::new();
        for entry in differing {
            let told = concerned.entry(entry.flow.vrf).or_default();
            let packets = FlowPackets::of(&entry.flow.matches);
            if told.len() <= MOST_TOLD && !told.contains(&packets) {
                told.push(packets);
            }
        }
        let joined = Arc::make_mut(&mut changed.joined);
        for (vrf, packets) in &mut concerned {
            let ports = pipeline.outputs(*vrf);
            let is_of_all = packets.len() > MOST_TOLD
                || before.has(*vrf) != pipeline.has(*vrf)
                || before.rewrites(*vrf)
                || pipeline.rewrites(*vrf)
                || ports != joined.get(vrf).map_or(&[][..], |ports| ports);
            if is_of_all {
                packets.clear();
            }
            match ports {
                ports if ports.is_empty() => _ = joined.remove(vrf),
                ports => _ = joined.insert(*vrf, ports.into()),
            }
        }
        changed.pipeline = pipeline;
        self.flows = flows;
        for (vrf, packets) in concerned {
            if packets.is_empty() {
                self.changed(Change::Flows { vrf, packets: None });
            }
            for packets in packets {
                self.changed(Change::Flows { vrf, packets: Some(packets) });
            }
            if self.vrf(vrf).is_some() {
                self.judge_features(vrf)?;
            }
        }
        // Whoever takes all flows of a VRF away takes its firewall away.
        let walls = self.flows.walls.iter().filter(|(vrf, _)| self.flows.pipeline.has(**vrf));
        let walls = walls.map(|(vrf, wall)| (*vrf, *wall)).collect();
        self.set_walls(walls);
        Ok(())
    }
}

/// More flows of a VRF than this, if they change at once, concern all its packets.
const MOST_TOLD: usize = 16;

fn by_id<'a>(entries: impl Iterator<Item = &'a Arc<Entry>>) -> BTreeMap<FlowId, &'a Entry> {
    entries.map(|entry| (entry.id, &**entry)).collect()
}
