//! What handles requests: the control model, and what ports and workers have counted.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use api::{
    CostReport, CounterView, DaemonView, DropView, FilterList, FlowFilter, KeptView, PolicyFilter,
    PortStatistics, PortView, Refusal, Reply, Request, RingView, StateList, VrfView, WorkerView,
};
use control::{Control, Seccomp, VrfCounts};
use packet::{DropReason, ReceiveRing, Time};
use path::WorkerStatistics;
use runtime::claims::Claims;
use tables::Tables;
use wire::PortId;

use crate::daemon::audit::Audit;
use crate::explain;
use crate::gateway::{caches, costs};
use crate::metrics::{GatewayIs, Measured, ObjectCount, firewall_rows};

/// Returns every request but a reload.
pub(crate) struct RequestHandler {
    /// The single writer of the tables.
    pub(crate) control: Control,
    ports: BTreeMap<PortId, PortCounts>,
    /// Of ports that are no more.
    closed: PortStatistics,
    /// What passed each VRF.
    vrfs: VrfCounts,
    workers: Vec<Counted>,
    /// What there is to say of the process.
    pub(crate) daemon: DaemonState,
}

/// A worker's counters, and the processor it is pinned to.
struct Counted {
    processor: Option<usize>,
    statistics: Arc<WorkerStatistics>,
}

/// Whether a request may take a port out of its VRF.
fn may_part(request: &Request) -> bool {
    match request {
        Request::LinkSet(change) => change.vrf.is_some(),
        Request::LinkDelete(_) | Request::VrfDelete(_) => true,
        Request::Batch(batch) => batch.requests.iter().any(may_part),
        _ => false,
    }
}

impl RequestHandler {
    /// A handler that changes `control`, with no ports and workers yet.
    pub(crate) fn new(control: Control) -> Self {
        Self {
            control,
            ports: BTreeMap::new(),
            closed: PortStatistics::default(),
            vrfs: VrfCounts::default(),
            workers: Vec::new(),
            daemon: DaemonState::default(),
        }
    }

    /// The snapshot in force.
    pub(crate) fn tables(&self) -> Arc<Tables> {
        Arc::clone(self.control.shared().reader().load())
    }

    /// Counts for a worker from now on.
    pub(crate) fn add_worker(
        &mut self,
        processor: Option<usize>,
        statistics: Arc<WorkerStatistics>,
    ) {
        self.workers.push(Counted { processor, statistics });
    }

    /// Counts for the queues of a port from now on. If it had others before, what they have counted
    /// stays.
    pub(crate) fn add_port(
        &mut self,
        id: PortId,
        queues: Vec<Arc<packet::PortStatistics>>,
        ring: Option<ReceiveRing>,
    ) {
        let before = self.ports.remove(&id).map_or_else(Default::default, |port| port.total());
        self.ports.insert(id, PortCounts { before, queues, ring, measured: None, rate: 0 });
    }

    /// Forgets the counters of a port.
    pub(crate) fn remove_port(&mut self, id: PortId) {
        if let Some(port) = self.ports.remove(&id) {
            self.closed = self.closed.plus(&port.total());
        }
    }

    /// Measures how many frames the ports receive. To be called several times a second.
    pub(crate) fn measure(&mut self, now: Time) {
        self.ports.values_mut().for_each(|port| port.measure(now));
    }

    /// A number that no open port has.
    ///
    /// # Errors
    /// If all numbers are in use.
    pub(crate) fn free_port_ids(&self) -> impl Iterator<Item = PortId> + '_ {
        // VLANs are not opened, and have numbers too.
        let tables = self.tables();
        let is_free = move |id: &PortId| !self.ports.contains_key(id) && tables.port(*id).is_none();
        (0..=u16::MAX).map(PortId).filter(is_free)
    }

    /// Handles a request.
    ///
    /// # Errors
    /// Why it was refused. Nothing was changed.
    pub(crate) fn handle(&mut self, request: Request, now: Time) -> Result<Reply, Refusal> {
        match request {
            Request::Version => Ok(Reply::Version {
                gateway: env!("CARGO_PKG_VERSION").to_owned(),
                interface: api::VERSION,
            }),
            Request::Daemon => Ok(Reply::Daemon(self.daemon.view())),
            Request::Workers => Ok(Reply::Workers(self.workers())),
            Request::Drops => Ok(Reply::Drops(self.drops())),
            Request::Caches => {
                Ok(Reply::Caches(caches::report(&self.control.gateway().ipsec, &self.caches())))
            }
            Request::Costs => Ok(Reply::Costs(self.costs())),
            Request::Explain { packet } => {
                Ok(Reply::Explained(explain::explain(&packet, &self.control, now)?))
            }
            Request::LinkList(filter) => {
                self.see_vrfs(now)?;
                let (ports, vrfs) = self.ports_and_vrfs(now)?;
                Ok(Reply::Links(control::links(&ports, &vrfs, &filter, &self.vrfs)?))
            }
            Request::ConnectionList(_)
            | Request::ConnectionGet(_)
            | Request::ConnectionDelete(_)
            | Request::ConnectionUpdate(_)
            | Request::ConnectionCount
            | Request::ConnectionStatistics
            | Request::TimeoutList
            | Request::ExpectationList
            | Request::ExpectationFlush
            | Request::NatPools => {
                let reply = control::connections::handle(&self.tables(), &request, now);
                reply.unwrap_or(Ok(Reply::Done))
            }
            request if may_part(&request) => {
                // What ports have counted belongs to the VRF that they are in until now.
                let parted = self.control.parted_by(&request);
                self.see_parted(parted.as_ref(), now)?;
                let vrf = match &request {
                    Request::VrfDelete(vrf) => Some(vrf.name.clone()),
                    Request::LinkDelete(link) => Some(link.port.clone()),
                    _ => None,
                };
                let reply = self.control.handle(request, now);
                self.see_parted(parted.as_ref(), now)?;
                if let Some(vrf) = vrf.filter(|vrf| !self.control.has_vrf(vrf)) {
                    self.vrfs.forget_vrf(&vrf);
                }
                reply
            }
            request => {
                let mut reply = self.control.handle(request, now)?;
                match &mut reply {
                    Reply::Ports(ports) => self.count_ports(ports),
                    Reply::Spd(report) => report.flow_cache = caches::live(&self.caches()),
                    _ => {}
                }
                Ok(reply)
            }
        }
    }

    /// Everything that is counted, but for what the system's interfaces count themselves. Objects
    /// of which there are too many are counted and not listed.
    ///
    /// # Errors
    /// None that is known: what is asked can always be answered.
    pub(crate) fn metrics(&mut self, now: Time) -> Result<Measured, Refusal> {
        let limit = self.daemon.objects;
        let mut measured = Measured {
            gateway: GatewayIs {
                daemon: self.daemon.view(),
                started: self.daemon.started,
                measured: Duration::from_nanos(now.0).as_secs_f64(),
            },
            drops: self.drops(),
            workers: self.workers(),
            caches: caches::report(&self.control.gateway().ipsec, &self.caches()),
            costs: self.costs(),
            ..Measured::default()
        };
        let mut counts = Vec::new();
        let mut is_listed = |kind, count| {
            let (count, is_listed) = ObjectCount::of(kind, count, limit);
            counts.push(count);
            is_listed
        };
        let count = |control: &mut Control, request| match control.handle(request, now)? {
            Reply::Count(count) => Ok::<_, Refusal>(count),
            _ => Ok(0),
        };
        let control = &mut self.control;
        let tables = Arc::clone(control.shared().reader().load());
        let mut requests = Vec::new();
        if is_listed("vrf", tables.vrfs().count() as u64) {
            requests.push(Request::VrfList);
        }
        if is_listed("port", tables.port_count() as u64) {
            requests.push(Request::Ports);
        }
        if is_listed("sa", count(control, Request::StateCount)?) {
            requests.push(Request::StateList(StateList::default()));
        }
        if is_listed("policy", count(control, Request::PolicyCount)?) {
            requests.push(Request::PolicyList(PolicyFilter::default()));
        }
        if is_listed("next_hop", tables.next_hop_count() as u64) {
            requests.push(Request::NextHopList);
        }
        let rules = tables.filters().map(|(_, filter)| filter.len() as u64).sum();
        if is_listed("filter_rule", rules) {
            requests.push(Request::FilterList(FilterList::default()));
        }
        if is_listed("flow", tables.pipeline().len() as u64) {
            requests.push(Request::FlowList(FlowFilter::default()));
        }
        requests.push(Request::FirewallGet);
        for request in requests {
            match control.handle(request, now)? {
                Reply::Filters(views) => measured.filters = views,
                Reply::Flows(views) => measured.flows = views,
                Reply::Firewall(Some(view)) => {
                    let rows = firewall_rows(&view);
                    if is_listed("firewall_rule", rows.len() as u64) {
                        measured.firewall = rows;
                    }
                }
                Reply::Vrfs(views) => measured.vrfs = views,
                Reply::Ports(views) => measured.ports = views,
                Reply::States(views) => measured.states = views,
                Reply::Policies(views) => measured.policies = views,
                Reply::NextHops(views) => measured.next_hops = views,
                _ => {}
            }
        }
        // Of these there are no more than of ports, VRFs and flows.
        if let Reply::Qdiscs(views) = control.handle(Request::QdiscList(<_>::default()), now)?
            && is_listed("qdisc", views.len() as u64)
        {
            measured.qdiscs = views;
        }
        let of_tables = |request| control::connections::handle(&tables, &request, now);
        if let Some(Ok(Reply::NatPools(views))) = of_tables(Request::NatPools)
            && is_listed("nat_pool", views.len() as u64)
        {
            measured.pools = views;
        }
        if let Some(Ok(Reply::ConnectionStatistics(counted))) =
            of_tables(Request::ConnectionStatistics)
        {
            measured.connections = counted;
        }
        measured.objects = counts;
        self.count_ports(&mut measured.ports);
        Ok(measured)
    }

    /// How often each worker went round its ports.
    pub(crate) fn rounds(&self) -> impl Iterator<Item = u64> {
        self.workers.iter().map(|worker| worker.statistics.rounds.read())
    }

    /// Takes note of which port is in which VRF, and of what it has counted there. To be called
    /// before and after ports move by other ways than a request.
    ///
    /// # Errors
    /// None that is known: ports and VRFs can always be listed.
    pub(crate) fn see_vrfs(&mut self, now: Time) -> Result<(), Refusal> {
        let (ports, vrfs) = self.ports_and_vrfs(now)?;
        self.vrfs.see(&ports, &vrfs);
        Ok(())
    }

    /// The same for ports that alone may move: with thousands of them, all would take long.
    fn see_parted(&mut self, parted: Option<&BTreeSet<String>>, now: Time) -> Result<(), Refusal> {
        let Some(names) = parted else { return self.see_vrfs(now) };
        let mut ports = self.control.ports_and_vlans(names);
        self.count_ports(&mut ports);
        self.vrfs.see_some(names, &ports);
        Ok(())
    }

    fn ports_and_vrfs(&mut self, now: Time) -> Result<(Vec<PortView>, Vec<VrfView>), Refusal> {
        let mut all = (Vec::new(), Vec::new());
        for request in [Request::Ports, Request::VrfList] {
            match self.control.handle(request, now)? {
                Reply::Ports(ports) => all.0 = ports,
                Reply::Vrfs(vrfs) => all.1 = vrfs,
                _ => {}
            }
        }
        self.count_ports(&mut all.0);
        Ok(all)
    }

    /// Adds what the ports' queues have counted.
    fn count_ports(&self, ports: &mut [PortView]) {
        for port in ports {
            if let Some(counts) = self.ports.get(&PortId(port.id)) {
                port.statistics = Some(counts.total());
                port.ring = counts.ring_view();
            }
        }
    }

    fn workers(&self) -> Vec<WorkerView> {
        let view = |(index, worker): (usize, &Counted)| WorkerView {
            index,
            processor: worker.processor,
            rounds: worker.statistics.rounds.read(),
            batches: worker.statistics.batches.read(),
            packets: worker.statistics.received.read(),
            drops: worker.statistics.drops.total(),
            counters: counters(&worker.statistics),
        };
        self.workers.iter().enumerate().map(view).collect()
    }

    /// The tables of each worker's decision cache.
    fn caches(&self) -> Vec<&[flow::CacheStatistics; 4]> {
        self.workers.iter().map(|worker| &worker.statistics.caches).collect()
    }

    fn costs(&self) -> CostReport {
        costs::report(self.workers.iter().map(|worker| &worker.statistics.costs))
    }

    fn drops(&self) -> Vec<DropView> {
        let ports = self.ports.values().map(PortCounts::total);
        let ports = ports.fold(self.closed, |sum, port| sum.plus(&port));
        let view = |&reason: &DropReason| {
            let dropped = self.workers.iter().map(|worker| worker.statistics.drops.read(reason));
            // What ports did not send they have counted themselves.
            let unsent = match reason {
                DropReason::TransmitFull => ports.tx_dropped,
                DropReason::TransmitTooLong => ports.tx_too_long,
                DropReason::TransmitDown => ports.tx_down,
                DropReason::TransmitError => ports.tx_errors,
                _ => 0,
            };
            DropView {
                reason: reason.name().to_owned(),
                meaning: reason.meaning().to_owned(),
                packets: dropped.sum::<u64>() + unsent,
            }
        };
        DropReason::ALL.iter().map(view).collect()
    }
}

/// What is counted for a port.
struct PortCounts {
    /// By queues that it had before.
    before: PortStatistics,
    queues: Vec<Arc<packet::PortStatistics>>,
    /// Of each queue.
    ring: Option<ReceiveRing>,
    /// When the rate was measured last, and what each queue had received then.
    measured: Option<(Time, Vec<u64>)>,
    /// Frames in a second, of the busiest queue.
    rate: u64,
}

/// The time over which rates are measured.
const MEASURED: Duration = Duration::from_secs(1);

impl PortCounts {
    fn total(&self) -> PortStatistics {
        self.before.plus(&total(&self.queues))
    }

    fn measure(&mut self, now: Time) {
        if self.measured.as_ref().is_some_and(|(at, _)| now.since(*at) < MEASURED) {
            return;
        }
        let came = |queue: &Arc<packet::PortStatistics>| {
            queue.rx_packets.read() + queue.rx_ring_full.read()
        };
        let counts: Vec<u64> = self.queues.iter().map(came).collect();
        if let Some((at, before)) = self.measured.replace((now, counts.clone())) {
            let most = counts.iter().zip(before).map(|(now, before)| now - before).max();
            let milliseconds = now.since(at).as_millis().max(1) as u64;
            self.rate = most.unwrap_or(0) * 1000 / milliseconds;
        }
    }

    fn ring_view(&self) -> Option<RingView> {
        let ring = self.ring?;
        Some(RingView {
            queues: self.queues.len() as u64,
            frames: ring.frames as u64,
            bytes: ring.bytes as u64,
            rate: self.rate,
            holds_ms: (ring.frames as u64 * 1000).checked_div(self.rate),
        })
    }
}

/// What the process is run with.
#[derive(Debug, Default)]
pub(crate) struct DaemonState {
    /// The configuration file.
    pub(crate) config: PathBuf,
    /// The control socket.
    pub(crate) socket: PathBuf,
    /// How often the configuration file was read again.
    pub(crate) reloads: u64,
    /// When the process was started, in seconds since 1970.
    pub(crate) started: f64,
    /// Objects of one kind that have metrics of their own.
    pub(crate) objects: usize,
    /// What no other daemon may use meanwhile.
    pub(crate) claims: Claims,
    /// How the process is protected.
    pub(crate) protection: Protection,
    /// Where it is written who changes what.
    pub(crate) audit: Audit,
    /// What the state directory keeps, if there is one.
    pub(crate) kept: Option<KeptView>,
}

/// How the daemon's process is protected from others, and others from it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Protection {
    /// The capabilities that it has kept.
    pub(crate) capabilities: Vec<String>,
    /// Whether its memory is kept from swap.
    pub(crate) memory_locked: bool,
    /// Whether its system calls are filtered.
    pub(crate) seccomp: Seccomp,
}

impl DaemonState {
    fn view(&self) -> DaemonView {
        DaemonView {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            config: self.config.display().to_string(),
            socket: self.socket.display().to_string(),
            reloads: self.reloads,
            capabilities: self.protection.capabilities.clone(),
            memory_locked: self.protection.memory_locked,
            seccomp: self.protection.seccomp,
            log_lines_dropped: runtime::log::dropped(),
            audit: self.audit.view(),
            kept: self.kept.clone(),
        }
    }
}

fn counters(statistics: &WorkerStatistics) -> Vec<CounterView> {
    let view = |(name, meaning, value): (&str, &str, u64)| CounterView {
        name: name.to_owned(),
        meaning: meaning.to_owned(),
        value,
    };
    statistics.entries().map(view).collect()
}

fn total(queues: &[Arc<packet::PortStatistics>]) -> PortStatistics {
    let sum = |counter: fn(&packet::PortStatistics) -> &packet::Counter| {
        queues.iter().map(|queue| counter(queue).read()).sum()
    };
    PortStatistics {
        rx_packets: sum(|queue| &queue.rx_packets),
        rx_bytes: sum(|queue| &queue.rx_bytes),
        rx_ring_full: sum(|queue| &queue.rx_ring_full),
        rx_missed: sum(|queue| &queue.rx_missed),
        rx_errors: sum(|queue| &queue.rx_errors),
        tx_packets: sum(|queue| &queue.tx_packets),
        tx_bytes: sum(|queue| &queue.tx_bytes),
        tx_dropped: sum(|queue| &queue.tx_dropped),
        tx_too_long: sum(|queue| &queue.tx_too_long),
        tx_down: sum(|queue| &queue.tx_down),
        tx_errors: sum(|queue| &queue.tx_errors),
        rx_segmented: sum(|queue| &queue.rx_segmented),
        rx_checksummed: sum(|queue| &queue.rx_checksummed),
    }
}
