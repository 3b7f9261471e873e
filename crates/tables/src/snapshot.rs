//! The snapshot.

mod filters;
mod flows;
#[cfg(test)]
mod full;
mod leaks;
#[cfg(test)]
mod many;
mod next_hops;
mod policies;
mod ports;
mod qdiscs;
mod routes;
mod rules;
mod sas;
mod shares;
mod sides;
mod taps;
mod vrfs;
mod xfrm_links;

use core::fmt;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use types::{HighestShares, Ipsec, PacketFields, PolicyName, TableId};
use wire::{PortId, SaSlot, Spi, VrfId};

use crate::cells::{Cells, WorkerCells};
use crate::counters::FlowCounters;
use crate::error::TableError;
use crate::filter::{Filter, FilterPlace, FilterRules};
use crate::flows::Flows;
use crate::group::Groups;
use crate::log::{Change, ChangeLog};
use crate::map::Map;
use crate::names::Names;
use crate::neighbour::Neighbours;
use crate::next_hop::NextHops;
use crate::numbers::Numbers;
use crate::policy::{
    Direction, IfId, Policy, PolicyHandle, PolicySlot, Scope, Selector, SelectorKey, Template,
};
use crate::port::Port;
use crate::qdisc::Qdiscs;
use crate::registry::Registry;
use crate::route::RouteKind;
use crate::routing_table::RoutingTable;
use crate::rule::Rules;
use crate::sad::{Sa, Sad};
use crate::slots::Slots;
use crate::sorted::Sorted;
use crate::sought::Sought;
use crate::spans::RouteSpans;
use crate::spd::{LookupEngine, Spd};
use crate::system::SystemAddresses;
use crate::tap::Taps;
use crate::trace::{Trace, TracedWaiting};
use crate::tunnel_ends::TunnelEnds;
use crate::vlan::VlanCounters;
use crate::vrf::{Vrf, VrfParsing};
use crate::xfrm_link::XfrmLink;

pub use filters::VrfFeatures;
pub use rules::Ruled;
use shares::Shares;
pub use sides::Boundary;

/// What packets read of so many VRFs stays in the processor's caches.
const FEW_VRFS: usize = 256;

/// How many VRFs, or ports, are copied together when one of them changes: pointers to them. For each
/// such chunk a copy of all has a pointer.
const VRF_CHUNK: usize = 64;
const PORT_CHUNK: usize = 128;
/// The same of counters.
const COUNTER_CHUNK: usize = 32;

/// The snapshot.
///
/// Its methods that change it each check first and either do what is asked or refuse, with nothing
/// changed. What they touch is copied once after a clone, so many changes to one clone cost little
/// more than one.
#[derive(Clone)]
pub struct Tables {
    /// Counts publications.
    pub(crate) generation: u64,
    /// The generation that last changed a policy.
    pub(crate) policy_generation: u64,
    /// The same in all that descend from what one publisher published.
    pub(crate) lineage: Arc<()>,
    pub(crate) log: ChangeLog,
    secret: u64,
    workers: usize,
    /// Of every VRF.
    lookup_engine: LookupEngine,
    /// The generation that last took a port out of its VRF, or removed a VRF.
    parted: u64,
    /// By number; the numbers of removed ones are used again.
    vrfs: Slots<Arc<Vrf>, VRF_CHUNK>,
    /// More places for them are many.
    few_vrfs: usize,
    vrf_numbers: Numbers,
    vrf_names: Names,
    /// Of each of them, by number, as of the last publication.
    parsing: Arc<[VrfParsing]>,
    /// Where VRFs are many, the routes of each as they were when they were laid out last, by number. Not
    /// of one that has too many.
    spans: RouteSpans,
    /// Whose each routing table is.
    table_owners: Map<TableId, VrfId>,
    /// Routing tables that no VRF has. None is empty.
    loose_tables: Arc<BTreeMap<TableId, Arc<RoutingTable>>>,
    /// What VRFs begin with. They share it, so that an empty one costs next to nothing.
    no_policies: Arc<Spd>,
    no_routes: RoutingTable,
    /// By number, which the caller of `add_port` chooses.
    ports: Slots<Arc<Port>, PORT_CHUNK>,
    port_numbers: Numbers,
    port_names: Names,
    /// How many ports have queues, and how many have none.
    port_counts: [usize; 2],
    /// What sub-ports and next hops count in.
    cells: Cells,
    /// Of each port that has no queue, by its number. Beside the ports, so that a packet is counted without
    /// reading its port.
    port_counters: Slots<VlanCounters, COUNTER_CHUNK>,
    /// The same in all snapshots.
    sought: Arc<Sought>,
    /// Those that are there or have policies.
    xfrm_links: Map<IfId, XfrmLink>,
    next_hops: NextHops,
    groups: Groups,
    qdiscs: Arc<Qdiscs>,
    policies: Arc<Registry>,
    /// Those that have rules.
    filters: Map<FilterPlace, Arc<Filter>>,
    filter_rules: Arc<FilterRules>,
    flows: Arc<Flows>,
    /// Policy rules.
    rules: Arc<Rules>,
    highest_shares: HighestShares,
    /// The VRFs that have routes into others.
    leaking: Arc<BTreeSet<VrfId>>,
    /// What ports and VRFs add to the features of VRFs.
    shares: Arc<Shares>,
    /// Whether a port lowers the MSS of TCP connections.
    clamps: bool,
    /// What filters after routing read, while there are rules or routes from VRF to VRF.
    egress_reads: (PacketFields, bool),
    taps: Arc<Taps>,
    tap_count: usize,
    /// The VRFs whose packets, or those of whose ports, taps want: a bit for each number modulo 64.
    tapped_vrfs: u64,
    /// How many VRFs have features, see [`VrfFeatures::any`].
    featured: usize,
    pub(crate) traces: Arc<Vec<Arc<Trace>>>,
    pub(crate) traced_waiting: Option<Arc<TracedWaiting>>,
    pub(crate) system_addresses: Arc<SystemAddresses>,
    sad: Arc<Sad>,
    /// Where tunnels end, from which the sides of ports follow.
    tunnel_ends: Arc<TunnelEnds>,
    /// How many ports are on the protected side.
    protected_ports: usize,
    /// What decisions ask of ports most often, by number.
    boundary: Arc<[Boundary]>,
}

impl Tables {
    /// The VRF `main` and nothing else; counters for `workers` workers. `secret` keys the hash
    /// tables, so that a sender cannot aim at a bucket.
    pub fn new(workers: usize, secret: u64) -> Self {
        let no_policies = Arc::new(Spd::new(LookupEngine::default(), secret));
        let no_routes = RoutingTable::new();
        let cells = Cells::new(workers);
        let main = Vrf {
            id: VrfId::MAIN,
            name: "main".into(),
            table: TableId::MAIN,
            spd: Arc::clone(&no_policies),
            ipsec: Ipsec::default(),
            features: VrfFeatures::default(),
            ike: types::Ike::default(),
            routes: no_routes.clone(),
            since: 0,
            ports: Sorted::default(),
        };
        let (mut vrfs, mut vrf_numbers) = (Slots::new(), Numbers::default());
        let mut vrf_names = Names::new(secret);
        vrf_numbers.add(VrfId::MAIN.0);
        vrf_names.add(&main.name, VrfId::MAIN.0);
        vrfs.set(VrfId::MAIN.0.into(), Arc::new(main));
        let mut table_owners = Map::new(secret);
        table_owners.insert(TableId::MAIN, VrfId::MAIN);
        Self {
            generation: 0,
            policy_generation: 0,
            lineage: Arc::default(),
            log: ChangeLog::default(),
            secret,
            workers,
            lookup_engine: LookupEngine::default(),
            parted: 0,
            vrfs,
            few_vrfs: FEW_VRFS,
            vrf_numbers,
            vrf_names,
            parsing: Arc::default(),
            spans: RouteSpans::new(),
            table_owners,
            loose_tables: Arc::default(),
            no_policies,
            no_routes,
            ports: Slots::new(),
            port_numbers: Numbers::default(),
            port_names: Names::new(secret),
            port_counts: [0; 2],
            next_hops: NextHops::new(cells.clone()),
            cells,
            port_counters: Slots::new(),
            sought: Arc::new(Sought::new(workers, secret)),
            xfrm_links: Map::new(secret),
            groups: Groups::new(secret),
            qdiscs: Arc::default(),
            policies: Arc::new(Registry::new(secret)),
            filters: Map::new(secret),
            filter_rules: Arc::new(FilterRules::new()),
            rules: Arc::new(Rules::new(secret)),
            flows: Arc::new(Flows::new(secret)),
            highest_shares: HighestShares::default(),
            leaking: Arc::default(),
            shares: Arc::new(Shares::new(secret)),
            clamps: false,
            egress_reads: (PacketFields::NONE, false),
            taps: Arc::default(),
            tap_count: 0,
            tapped_vrfs: 0,
            featured: 0,
            traces: Arc::default(),
            traced_waiting: None,
            system_addresses: Arc::default(),
            sad: Arc::new(Sad::new(secret)),
            tunnel_ends: Arc::default(),
            protected_ports: 0,
            boundary: Arc::default(),
        }
    }

    /// Neighbours that were asked for and have not answered yet.
    pub fn sought(&self) -> &Sought {
        &self.sought
    }

    /// Counts publications; two snapshots with one generation are the same.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The generation that last changed the policies of any VRF.
    pub fn policy_generation(&self) -> u64 {
        self.policy_generation
    }

    /// What changed after `generation` up to this snapshot, the latest first; `None` if that is no
    /// longer known.
    ///
    /// A decision made from a snapshot of `generation` is what this snapshot would decide, if none
    /// of these changes concerns it.
    #[inline]
    pub fn changes_since(&self, generation: u64) -> Option<impl Iterator<Item = &Change>> {
        self.log.since(generation)
    }

    /// All changes that are known, with the generation that published each, the latest first.
    pub fn latest_changes(&self) -> impl Iterator<Item = (u64, &Change)> {
        self.log.latest()
    }

    /// The generation after which all changes are known.
    pub fn changes_known_since(&self) -> u64 {
        self.log.known_since()
    }

    /// A VRF.
    #[inline]
    pub fn vrf(&self, id: VrfId) -> Option<&Vrf> {
        self.vrfs.get(id.0.into()).map(|vrf| &**vrf)
    }

    /// What a VRF is called.
    pub fn vrf_name(&self, id: VrfId) -> Option<&str> {
        self.vrf(id).map(|vrf| &*vrf.name)
    }

    /// Whether there are so many VRFs that one of them is far away when its next packet comes.
    #[inline(always)]
    pub fn has_many_vrfs(&self) -> bool {
        self.vrfs.places() > self.few_vrfs
    }

    /// VRFs are many if their numbers go beyond this, rounded up to a multiple of 64; beyond 256
    /// unless it is set. No result depends on it: what is done for many VRFs can be tried with few.
    pub fn set_few_vrfs(&mut self, most: usize) {
        self.few_vrfs = most;
    }

    /// Asks for the memory in which routes of packets of several VRFs are found, step by step, so
    /// that the waits overlap. `packets` are the VRFs and destinations of [`crate::fib::TOGETHER`] at most.
    #[inline(always)]
    pub fn prefetch_routes(&self, packets: impl Iterator<Item = (VrfId, IpAddr)> + Clone) {
        packets.clone().filter_map(|(vrf, _)| self.vrf(vrf)).for_each(packet::prefetch);
        self.spans.prefetch(packets.clone());
        let others = packets.filter(|(vrf, to)| !self.has_spans(*vrf, *to));
        let tables = others.filter_map(|(vrf, to)| Some((&self.vrf(vrf)?.routes, to)));
        RoutingTable::prefetch(tables);
    }

    /// What the route to `destination` in the table of `vrf` does, whose number is `id`: as
    /// [`Vrf::route`] says. Where VRFs are many, what it reads first does not depend on the VRF,
    /// so that it is waited for meanwhile.
    #[inline(always)]
    pub fn route_kind(&self, (id, vrf): (VrfId, &Vrf), destination: IpAddr) -> Option<RouteKind> {
        if !self.spans.any() {
            return vrf.route(destination).map(|route| route.kind);
        }
        let kind = self.spans.kind((id, &vrf.routes), destination);
        debug_assert_eq!(kind, vrf.route(destination).map(|route| route.kind), "{destination}");
        kind
    }

    /// Whether the route to `destination` in the table of a VRF is found in spans, which no result
    /// depends on.
    pub fn has_spans(&self, vrf: VrfId, destination: IpAddr) -> bool {
        self.vrf(vrf).is_some_and(|found| self.spans.has((vrf, &found.routes), destination))
    }

    /// What parsing a packet takes of its VRF, of a snapshot that was published. Of a VRF that is
    /// not there, it is that of an empty one.
    #[inline]
    pub fn parsing(&self, id: VrfId) -> VrfParsing {
        self.parsing.get(usize::from(id.0)).copied().unwrap_or_default()
    }

    /// Every VRF, by number.
    pub fn vrfs(&self) -> impl Iterator<Item = &Vrf> {
        let all = self.vrfs.iter();
        #[cfg(test)]
        let all = all.inspect(|_| many::look_at_one());
        all.map(|vrf| &**vrf)
    }

    /// The VRF of this name.
    pub fn vrf_named(&self, name: &str) -> Option<&Vrf> {
        let mut alike = self.vrf_names.of(name).filter_map(|number| self.vrf(VrfId(number)));
        alike.find(|vrf| &*vrf.name == name)
    }

    /// A port.
    #[inline]
    pub fn port(&self, id: PortId) -> Option<&Port> {
        self.ports.get(id.0.into()).map(|port| &**port)
    }

    /// Every port, by number.
    pub fn ports(&self) -> impl Iterator<Item = &Port> {
        let all = self.ports.iter();
        #[cfg(test)]
        let all = all.inspect(|_| many::look_at_one());
        all.map(|port| &**port)
    }

    /// How many ports there are.
    pub fn port_count(&self) -> usize {
        self.port_counts.iter().sum()
    }

    /// The ports of a VRF, by number.
    pub fn ports_of(&self, vrf: VrfId) -> impl Iterator<Item = &Port> {
        let ids = self.vrf(vrf).into_iter().flat_map(|vrf| vrf.ports.iter());
        ids.filter_map(|id| self.port(*id))
    }

    /// The lowest number from `first` on that no port has, if there is one.
    pub fn free_port_id(&self, first: PortId) -> Option<PortId> {
        self.port_numbers.lowest_free(first.0).map(PortId)
    }

    /// The port of this name.
    pub fn port_named(&self, name: &str) -> Option<&Port> {
        let mut alike = self.port_names.of(name).filter_map(|number| self.port(PortId(number)));
        alike.find(|port| &*port.spec.name == name)
    }

    /// What a sub-port or an xfrm link has done. What other ports have done, their queues count.
    #[inline]
    pub fn port_counters(&self, id: PortId) -> Option<&VlanCounters> {
        self.port_counters.get(id.0.into())
    }

    /// Where a worker counts.
    pub fn cells_of(&self, worker: usize) -> Option<&WorkerCells> {
        self.cells.of(worker)
    }

    /// The SAD.
    #[inline]
    pub fn sad(&self) -> &Sad {
        &self.sad
    }

    /// Whether ESP packets from `source` to `destination` with this SPI are such as the gateway sends:
    /// an SA says so.
    pub fn sends_esp(&self, vrf: VrfId, source: IpAddr, destination: IpAddr, spi: Spi) -> bool {
        let sa = self.sad.inbound(vrf, destination, spi);
        sa.is_some_and(|sa| sa.spec.identity.source == source)
    }

    /// Whether a packet of `vrf` to `address` that came in by `port` is for the gateway itself: an
    /// address or a broadcast address of any port of the VRF, or something that `port` alone
    /// listens to, such as its link-local address and multicast groups.
    #[inline]
    pub fn is_local(&self, vrf: VrfId, port: PortId, address: IpAddr) -> bool {
        self.vrf(vrf).is_some_and(|vrf| vrf.is_local(address))
            || self.port(port).is_some_and(|port| port.spec.vrf == vrf && port.listens_to(address))
    }

    /// The policy that `handle` names, unless it was removed. Constant work.
    #[inline]
    pub fn policy(&self, handle: PolicyHandle) -> Option<&Policy> {
        self.policies.of_handle(handle).map(|policy| &**policy)
    }

    /// The policy in this slot. Constant work: workers count each packet through this.
    #[inline(always)]
    pub fn policy_in(&self, slot: PolicySlot) -> Option<&Policy> {
        self.policies.in_slot(slot).map(|policy| &**policy)
    }

    /// The counters of the policy in this slot: what a worker needs for each packet, and no more.
    #[inline(always)]
    pub fn counters_in(&self, slot: PolicySlot) -> Option<&FlowCounters> {
        self.policies.counters_in(slot)
    }

    /// Asks for the memory that [`Tables::counters_in`] will read.
    #[inline]
    pub fn prefetch_policy(&self, slot: PolicySlot) {
        self.policies.prefetch(slot);
    }

    /// The policy of this index.
    pub fn policy_of_index(&self, index: u32) -> Option<&Arc<Policy>> {
        self.policies.of_index(index).ok()
    }

    /// The policy of exactly this selector, of which a scope and direction have at most one.
    pub fn policy_of_selector(
        &self,
        scope: impl Into<Scope>,
        direction: Direction,
        selector: &Selector,
    ) -> Option<&Arc<Policy>> {
        let scope = scope.into();
        let key = SelectorKey { scope, direction, selector: *selector };
        self.policy_of_index(self.policies.of_selector(&key)?)
    }

    /// What a policy is called, if it has a name.
    pub fn policy_name(&self, index: u32) -> Option<&PolicyName> {
        self.policies.name_of(index)
    }

    /// How packets' policies are found, in every VRF.
    pub fn lookup_engine(&self) -> LookupEngine {
        self.lookup_engine
    }

    /// Changes how packets' policies are found. To [`LookupEngine::Fast`], every VRF's index is
    /// built, which takes as long as adding its policies did.
    pub fn set_lookup_engine(&mut self, engine: LookupEngine) {
        if self.lookup_engine == engine {
            return;
        }
        self.lookup_engine = engine;
        let none =
            core::mem::replace(&mut self.no_policies, Arc::new(Spd::new(engine, self.secret)));
        for vrf in self.vrfs.iter_mut().map(Arc::make_mut) {
            match Arc::ptr_eq(&vrf.spd, &none) {
                true => vrf.spd = Arc::clone(&self.no_policies),
                false => Arc::make_mut(&mut vrf.spd).set_engine(engine),
            }
        }
        self.set_engine_of_links(engine);
    }

    /// How many policies all VRFs have.
    pub fn policy_count(&self) -> usize {
        self.policies.len()
    }

    /// The slot whose SA serves `template` for outbound packets of `scope` now: of all slots that it
    /// admits, the one with the newest SA.
    ///
    /// A template that names an SPI is served by that SA's slot, but only while that SA is the
    /// newest there, as a slot's packets use its newest SA; [`Tables::outbound_sa`] returns that SA
    /// itself. Constant work.
    #[inline]
    pub fn resolve(&self, scope: impl Into<Scope>, template: &Template) -> Option<SaSlot> {
        self.sad.resolve(scope.into(), template)
    }

    /// The SA that serves `template` for outbound packets of `scope` now: the one whose SPI it names,
    /// or else the newest of all that it admits. Constant work.
    #[inline]
    pub fn outbound_sa(&self, scope: impl Into<Scope>, template: &Template) -> Option<&Arc<Sa>> {
        self.sad.outbound_sa(scope.into(), template)
    }

    /// Notes a change, which will be published with the next generation.
    fn changed(&mut self, change: Change) {
        self.log.record(self.generation + 1, change);
    }

    fn policies_changed(&mut self, change: Change) {
        self.policy_generation = self.generation + 1;
        self.changed(change);
    }

    fn existing_vrf(&self, id: VrfId) -> Result<&Vrf, TableError> {
        self.vrf(id).ok_or(TableError::NoVrf(id))
    }

    fn existing_port(&self, id: PortId) -> Result<&Port, TableError> {
        self.port(id).ok_or(TableError::NoPort(id))
    }

    fn vrf_mut(&mut self, id: VrfId) -> Result<&mut Vrf, TableError> {
        self.vrfs.get_mut(id.0.into()).map(Arc::make_mut).ok_or(TableError::NoVrf(id))
    }

    fn port_mut(&mut self, id: PortId) -> Result<&mut Port, TableError> {
        self.ports.get_mut(id.0.into()).map(Arc::make_mut).ok_or(TableError::NoPort(id))
    }

    fn no_neighbours(&self) -> Arc<Neighbours> {
        Arc::new(Neighbours::new(self.secret))
    }
}

/// Everything, in an order that does not depend on the secret.
impl fmt::Debug for Tables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tables")
            .field("generation", &self.generation)
            .field("vrfs", &self.vrfs().collect::<Vec<_>>())
            .field("ports", &self.ports.iter().collect::<Vec<_>>())
            .field("next_hops", &self.next_hops)
            .field("policies", &self.policies)
            .field("sad", &self.sad)
            .finish_non_exhaustive()
    }
}
