//! What handles requests: the control model, and what ports and workers have counted.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::{CounterView, DropView, PortStatistics, Refusal, Reply, Request, WorkerView};
use control::Control;
use packet::{DropReason, Time};
use path::WorkerStatistics;
use tables::Tables;
use wire::PortId;

use crate::explain;
use crate::gateway::caches;

/// Returns every request but a reload.
pub(crate) struct RequestHandler {
    /// The single writer of the tables.
    pub(crate) control: Control,
    ports: BTreeMap<PortId, Vec<Arc<packet::PortStatistics>>>,
    workers: Vec<Counted>,
}

/// A worker's counters, and the processor it is pinned to.
struct Counted {
    processor: Option<usize>,
    statistics: Arc<WorkerStatistics>,
}

impl RequestHandler {
    /// A handler that changes `control`, with no ports and workers yet.
    pub(crate) fn new(control: Control) -> Self {
        Self { control, ports: BTreeMap::new(), workers: Vec::new() }
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

    /// Counts for the queues of a port from now on.
    pub(crate) fn add_port(&mut self, id: PortId, queues: Vec<Arc<packet::PortStatistics>>) {
        self.ports.insert(id, queues);
    }

    /// Forgets the counters of a port.
    pub(crate) fn remove_port(&mut self, id: PortId) {
        self.ports.remove(&id);
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
            Request::Workers => Ok(Reply::Workers(self.workers())),
            Request::Drops => Ok(Reply::Drops(self.drops())),
            Request::Caches => {
                Ok(Reply::Caches(caches::report(&self.control.gateway().ipsec, &self.caches())))
            }
            Request::Explain { packet } => {
                Ok(Reply::Steps(explain::explain(&packet, &self.control)?))
            }
            request => {
                let mut reply = self.control.handle(request, now)?;
                match &mut reply {
                    Reply::Ports(ports) => {
                        for port in ports {
                            if let Some(queues) = self.ports.get(&PortId(port.id)) {
                                port.statistics = Some(total(queues));
                            }
                        }
                    }
                    Reply::Spd(report) => report.flow_cache = caches::live(&self.caches()),
                    _ => {}
                }
                Ok(reply)
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

    fn drops(&self) -> Vec<DropView> {
        let view = |&reason: &DropReason| DropView {
            reason: reason.name().to_owned(),
            meaning: reason.meaning().to_owned(),
            packets: self.workers.iter().map(|worker| worker.statistics.drops.read(reason)).sum(),
        };
        DropReason::ALL.iter().map(view).collect()
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
        rx_missed: sum(|queue| &queue.rx_missed),
        rx_errors: sum(|queue| &queue.rx_errors),
        tx_packets: sum(|queue| &queue.tx_packets),
        tx_bytes: sum(|queue| &queue.tx_bytes),
        tx_dropped: sum(|queue| &queue.tx_dropped),
        tx_errors: sum(|queue| &queue.tx_errors),
        rx_segmented: sum(|queue| &queue.rx_segmented),
        rx_checksummed: sum(|queue| &queue.rx_checksummed),
    }
}
