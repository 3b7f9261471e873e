//! The control thread: it alone changes the tables.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError};

use anyhow::Context;
use api::{Difference, LinkChange, Refusal, RefusalCode, Reply, Request};
use control::{Boundary, Config, OpenedPort, Plan, PortSettings};
use packet::{Port, Time};
use tables::Reader;
use wire::PortId;

use crate::daemon::worker_pool::WorkerPool;
use crate::daemon::{Message, PendingRequest, ports};
use crate::gateway::{self, RequestHandler, TICK};
use runtime::clock::Clock;
use runtime::exit::Exit;

/// The queues of ports that were opened.
pub(crate) type OpenedQueues = Vec<(PortId, Vec<Box<dyn Port>>)>;

/// Opens the ports that `plan` asks for, with a queue for each of `workers` workers, and carries
/// the plan out on the tables: all of it or, if that fails, nothing.
///
/// # Errors
/// A port that cannot be opened, or what the tables refuse.
pub(crate) fn open_and_apply(
    handler: &mut RequestHandler,
    plan: Plan,
    workers: usize,
    now: Time,
) -> anyhow::Result<(Difference, OpenedQueues)> {
    let ids: Vec<PortId> = handler.free_port_ids().take(plan.ports_to_open().len()).collect();
    let mut opened = Vec::with_capacity(ids.len());
    let mut ports = Vec::with_capacity(ids.len());
    for (settings, id) in plan.ports_to_open().iter().zip(ids) {
        let queues = ports::open(settings, id, workers)?;
        let first = queues.first().context("a port without queues")?;
        opened.push(OpenedPort {
            name: settings.name.clone(),
            id,
            mac: first.mac(),
            mtu: first.mtu(),
            link: first.link(),
        });
        ports.push((id, queues));
    }
    Ok((handler.control.apply(plan, &opened, now)?, ports))
}

/// What the control thread owns.
pub(crate) struct ControlThread {
    file: PathBuf,
    handler: RequestHandler,
    pool: WorkerPool,
    clock: Clock,
    reader: Reader,
    /// The snapshot that the workers were last woken for.
    announced: u64,
    /// Ports whose interface disappeared.
    lost: BTreeSet<PortId>,
    /// The boundaries as they were last logged, and the snapshot that they are of.
    boundaries: (u64, Vec<Boundary>),
}

impl ControlThread {
    /// Control over `pool`. `file` is what a reload reads.
    pub(crate) fn new(
        file: &Path,
        handler: RequestHandler,
        pool: WorkerPool,
        clock: Clock,
    ) -> Self {
        let mut reader = handler.control.shared().reader();
        let announced = reader.load().generation();
        Self {
            file: file.to_owned(),
            handler,
            pool,
            clock,
            reader,
            announced,
            lost: BTreeSet::new(),
            boundaries: (u64::MAX, Vec::new()),
        }
    }

    /// Handles requests, events and ticks until told to stop. Then nothing runs any more.
    pub(crate) fn run(&mut self, messages: &Receiver<Message>) -> Exit {
        let mut due = self.clock.now();
        let exit = loop {
            match messages.recv_timeout(due.since(self.clock.now())) {
                Ok(Message::Request(pending)) => self.reply(*pending),
                Ok(Message::Events) | Err(RecvTimeoutError::Timeout) => {}
                Ok(Message::Compiled { vrf, direction, compiled }) => {
                    if !self.handler.control.install_compiled(vrf, direction, &compiled) {
                        tracing::debug!(vrf = vrf.0, ?direction, "compiled too late");
                    }
                }
                Ok(Message::CompileFailed { vrf, direction, why }) => {
                    self.handler.control.compile_failed(vrf, direction, &why);
                }
                Ok(Message::CompilerEnded { why }) => self.handler.control.compiler_ended(&why),
                Ok(Message::Lost { port, error }) => self.lose(port, &error),
                Ok(Message::Reload) => self.reload_by_signal(),
                Ok(Message::Stop) | Err(RecvTimeoutError::Disconnected) => {
                    tracing::info!("stopping");
                    break Exit::Done;
                }
            }
            let now = self.clock.now();
            self.pool.events(|event| self.handler.control.event(event, now));
            if now >= due {
                due = now + TICK;
                self.tick(now);
                if !self.pool.is_alive() {
                    tracing::error!("a worker is gone: stopping");
                    break Exit::Refused;
                }
            }
            self.announce();
        };
        self.stop();
        exit
    }

    /// Ends the workers and closes their ports.
    pub(crate) fn stop(&mut self) {
        self.pool.stop();
    }

    /// Gives the workers the queues of a port that the tables have already.
    pub(crate) fn attach(&mut self, id: PortId, queues: Vec<Box<dyn Port>>) {
        self.handler.add_port(id, queues.iter().map(|queue| queue.statistics().clone()).collect());
        self.pool.attach(id, queues);
    }

    /// Makes the gateway what `config` says: all of it or, if that fails, nothing. Ports are
    /// opened first.
    ///
    /// # Errors
    /// A port that cannot be opened, or what the tables refuse.
    fn apply(&mut self, config: Config) -> anyhow::Result<Difference> {
        let configured = config.ports.clone();
        let plan = self.handler.control.plan(config);
        let closed = plan.ports_to_close().to_vec();
        let (difference, queues) =
            open_and_apply(&mut self.handler, plan, self.pool.size(), self.clock.now())?;
        for id in closed {
            self.pool.detach(id);
            self.handler.remove_port(id);
            self.lost.remove(&id);
        }
        for (id, queues) in queues {
            self.attach(id, queues);
        }
        for settings in &configured {
            self.find_again(settings);
        }
        self.announce();
        Ok(difference)
    }

    /// Opens a lost port again, if its interface is back as it was. If it is not, the port
    /// stays down.
    fn find_again(&mut self, settings: &PortSettings) {
        let tables = self.handler.tables();
        let Some(port) = self
            .lost
            .iter()
            .find_map(|&id| tables.port(id).filter(|port| *port.spec.name == *settings.name))
        else {
            return;
        };
        let queues = match ports::open(settings, port.id, self.pool.size()) {
            Ok(queues) => queues,
            Err(error) => return tracing::warn!(port = %settings.name, "still lost: {error:#}"),
        };
        if queues.iter().any(|queue| queue.mac() != port.spec.mac) {
            return tracing::warn!(port = %settings.name, "back with another Ethernet address: \
                start the gateway again");
        }
        self.lost.remove(&port.id);
        self.attach(port.id, queues);
        self.set_up(&settings.name, settings.up);
        tracing::info!(port = %settings.name, "found again");
    }

    fn reply(&mut self, pending: PendingRequest) {
        let reply = match pending.request {
            Request::Reload { dry_run } => self.reload(dry_run).map(Reply::Difference),
            request => self.handler.handle(request, self.clock.now()),
        };
        // A client that has gone away wants no answer.
        let _ = pending.reply.send(reply);
    }

    fn reload(&mut self, dry_run: bool) -> Result<Difference, Refusal> {
        let refuse =
            |error: anyhow::Error| Refusal::new(RefusalCode::Invalid, format!("{error:#}"));
        let config = gateway::load(&self.file).map_err(|error| refuse(error.into()))?;
        if dry_run {
            return Ok(self.handler.control.plan(config).difference().clone());
        }
        config.notes.iter().for_each(|note| tracing::warn!("{note}"));
        self.apply(config).map_err(|error| match error.downcast::<Refusal>() {
            Ok(refusal) => refusal,
            Err(error) => refuse(error.context("nothing was changed")),
        })
    }

    fn reload_by_signal(&mut self) {
        match self.reload(false) {
            Ok(difference) if difference.is_empty() => {
                tracing::info!("reloaded: nothing is different");
            }
            Ok(difference) => {
                tracing::info!(changes = difference.changes.len(), "reloaded");
                difference.changes.iter().for_each(|change| tracing::info!("{change}"));
            }
            Err(refusal) => tracing::error!("not reloaded: {refusal}"),
        }
    }

    /// A port's interface is gone: no worker uses it any more, and routes over it are no longer
    /// taken.
    fn lose(&mut self, port: PortId, error: &str) {
        self.pool.detach(port);
        self.lost.insert(port);
        let Some(name) = self.reader.load().port(port).map(|port| port.spec.name.to_string())
        else {
            return;
        };
        tracing::error!("{error}; it is down until a reload finds it again");
        self.set_up(&name, false);
    }

    fn set_up(&mut self, port: &str, up: bool) {
        let change = LinkChange { port: port.to_owned(), up: Some(up), ..LinkChange::default() };
        if let Err(refusal) =
            self.handler.control.handle(Request::LinkSet(change), self.clock.now())
        {
            tracing::error!(port, up, "the port's state cannot be changed: {refusal}");
        }
    }

    fn tick(&mut self, now: Time) {
        let probes = self.handler.control.tick(now);
        if !probes.is_empty() {
            probes.into_iter().for_each(|probe| self.pool.probe(probe));
            self.pool.wake();
        }
        self.log_boundaries();
    }

    /// Says which ports are on which side of the IPsec boundary, and which VRF is closed, if that
    /// is not what was said last.
    fn log_boundaries(&mut self) {
        let generation = self.reader.load().generation();
        if generation == self.boundaries.0 {
            return;
        }
        let boundaries = self.handler.control.boundaries();
        for boundary in boundaries.iter().filter(|is| !self.boundaries.1.contains(is)) {
            match boundary.closed {
                true => tracing::warn!("{}", boundary.text),
                false => tracing::info!("{}", boundary.text),
            }
        }
        self.boundaries = (generation, boundaries);
    }

    /// Wakes the workers if the tables have changed since they were last woken: packets may be
    /// waiting for just that.
    fn announce(&mut self) {
        let generation = self.reader.load().generation();
        if generation != self.announced {
            self.announced = generation;
            self.pool.wake();
        }
    }
}
