//! The control thread: it alone changes the tables.

mod interfaces;
mod kept;
mod watched;

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};

use anyhow::Context;
use api::{Difference, PortView, Refusal, RefusalCode, Reply, Request, SavedConfiguration};
use control::{Boundary, Config, OpenedPort, Plan, PortSettings, wipe_stack};
use packet::{Port, Time};
use tables::{Event, Reader};
use wire::{Mac, PortId};

use crate::daemon::audit::Audit;
use crate::daemon::conflict_log::{Conflict, ConflictLog};
use crate::daemon::connection_log::ConnectionLog;
use crate::daemon::interfaces::{GONE, Interfaces};
use crate::daemon::monitors::Monitors;
use crate::daemon::nat_log::NatLog;
use crate::daemon::packet_log::PacketLog;
use crate::daemon::state::{self, Keeper};
use crate::daemon::supervisor::Watchdog;
use crate::daemon::taps::Taps;
use crate::daemon::traces::Traces;
use crate::daemon::worker_pool::WorkerPool;
use crate::daemon::{Message, PendingRequest, QUEUE, ports, sequences};
use crate::gateway::{self, RequestHandler, TICK};
use crate::kernel::own::Owned;
use crate::kernel::seen;
use crate::metrics::Measured;
use runtime::clock::Clock;
use runtime::exit::Exit;

/// The queues of ports that were opened.
pub(crate) type OpenedQueues = Vec<(PortSettings, PortId, Vec<Box<dyn Port>>)>;

/// What becomes of a plan if the interface of a port is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Absent {
    /// It is refused: who asks for it can correct it.
    Refused,
    /// The port is down, and has no queues. It is opened when its interface comes.
    Awaited,
}

/// Opens the ports that `plan` asks for, with a queue for each of `workers` workers, and carries
/// the plan out on the tables: all of it or, if that fails, nothing.
///
/// # Errors
/// A port that cannot be opened, or what the tables refuse.
#[inline(never)]
pub(crate) fn open_and_apply(
    handler: &mut RequestHandler,
    plan: Plan,
    absent: Absent,
    workers: usize,
    now: Time,
) -> anyhow::Result<(Difference, OpenedQueues)> {
    let claimed = ports::claim(plan.ports_to_open(), &mut handler.daemon.claims)?;
    let result = open_and_apply_claimed(handler, plan, absent, workers, now);
    if result.is_err() {
        claimed.iter().for_each(|name| handler.daemon.claims.release(name));
    }
    result
}

fn open_and_apply_claimed(
    handler: &mut RequestHandler,
    plan: Plan,
    absent: Absent,
    workers: usize,
    now: Time,
) -> anyhow::Result<(Difference, OpenedQueues)> {
    let ids: Vec<PortId> = handler.free_port_ids().take(plan.ports_to_open().len()).collect();
    let mut opened = Vec::with_capacity(ids.len());
    let mut ports = Vec::with_capacity(ids.len());
    for (settings, id) in plan.ports_to_open().iter().zip(ids) {
        let queues = match absent {
            Absent::Refused => ports::open(settings, id, workers)?,
            Absent::Awaited => ports::open_if_there(settings, id, workers)?,
        };
        let name = settings.name.clone();
        opened.push(match queues.first() {
            Some(queue) => {
                let (mac, mtu, link) = (queue.mac(), queue.mtu(), queue.link());
                OpenedPort { name, id, mac, mtu, link }
            }
            None => plan.imagined_port(settings, id),
        });
        ports.push((settings.clone(), id, queues));
    }
    let difference = handler.control.apply(plan, &opened, now)?;
    // Before any packet is routed.
    for (settings, id, _) in ports.iter().filter(|(.., queues)| queues.is_empty()) {
        let gone = handler.control.interface(*id, &GONE);
        gone.with_context(|| format!("port {}: its interface is not there", settings.name))?;
    }
    Ok((difference, ports))
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
    interfaces: Interfaces,
    /// The interfaces that were taken over from the kernel, if they were.
    owned: Option<Owned>,
    /// Those that were taken over again a moment ago, and when to look at them once more.
    settling: BTreeMap<PortId, Time>,
    /// The boundaries as they were last logged, and the snapshot that they are of.
    boundaries: (u64, Vec<Boundary>),
    /// What keeps changes by command, if they are kept.
    keeper: Option<Keeper>,
    /// What keeps sequence numbers, if they are kept, and where messages to this thread go.
    sequences: Option<(sequences::Writer, SyncSender<Message>)>,
    packet_log: PacketLog,
    conflict_log: ConflictLog,
    nat_log: NatLog,
    connection_log: ConnectionLog,
    taps: Taps,
    traces: Traces,
    monitors: Monitors,
    /// Whether it is noted what changes.
    is_watched: bool,
    watchdog: Option<Watchdog>,
    /// How often each worker had gone round when all were last seen to have done so.
    rounds: Vec<u64>,
}

impl ControlThread {
    /// Control over `pool`. `file` is what a reload reads.
    pub(crate) fn new(
        file: &Path,
        handler: RequestHandler,
        (pool, ((taps, traces), monitors)): (WorkerPool, ((Taps, Traces), Monitors)),
        clock: Clock,
        (interfaces, owned): (Interfaces, Option<Owned>),
        keeper: Option<Keeper>,
        sequences: Option<(sequences::Writer, SyncSender<Message>)>,
    ) -> Self {
        let mut reader = handler.control.shared().reader();
        let announced = reader.load().generation();
        let file = file.to_owned();
        let boundaries = (u64::MAX, Vec::new());
        Self {
            file,
            handler,
            pool,
            clock,
            reader,
            announced,
            interfaces,
            owned,
            settling: BTreeMap::new(),
            boundaries,
            keeper,
            sequences,
            packet_log: PacketLog::default(),
            conflict_log: ConflictLog::default(),
            nat_log: NatLog::default(),
            connection_log: ConnectionLog::default(),
            taps,
            traces,
            monitors,
            is_watched: false,
            watchdog: Watchdog::asked_for(),
            rounds: Vec::new(),
        }
    }

    /// Handles requests, events and ticks until told to stop. Then nothing runs any more.
    pub(crate) fn run(&mut self, messages: &Receiver<Message>) -> Exit {
        let mut due = self.clock.now();
        let mut queue = VecDeque::new();
        let exit = loop {
            let next = match queue.pop_front() {
                Some(message) => Ok(message),
                None => messages.recv_timeout(due.since(self.clock.now())),
            };
            match next {
                Ok(Message::Request(mut pending)) => {
                    join_reloads(&mut pending, messages, &mut queue);
                    let has_keys = has_keys(&pending.request);
                    self.reply(*pending);
                    if has_keys {
                        wipe_stack();
                    }
                }
                Ok(Message::Events) | Err(RecvTimeoutError::Timeout) => {}
                Ok(Message::Compiled { scope, direction, compiled }) => {
                    if !self.handler.control.install_compiled(scope, direction, &compiled) {
                        tracing::debug!(?scope, ?direction, "compiled too late");
                    }
                }
                Ok(Message::CompiledFilter { place, compiled }) => {
                    if !self.handler.control.install_compiled_filter(place, &compiled) {
                        tracing::debug!(?place, "compiled too late");
                    }
                }
                Ok(Message::CompileFailed { scope, direction, why }) => {
                    self.handler.control.compile_failed(scope, direction, &why);
                }
                Ok(Message::CompilerEnded { why }) => self.handler.control.compiler_ended(&why),
                // What was opened anew meanwhile is not lost.
                Ok(Message::Lost { port, opening, error }) if self.pool.is_open(port, opening) => {
                    self.lose(port, &error);
                }
                Ok(Message::Lost { .. }) => {}
                Ok(Message::Metrics(reply)) => {
                    match self.metrics() {
                        // A client that has gone away wants none.
                        Ok(measured) => drop(reply.send(measured)),
                        Err(refusal) => tracing::error!("no metrics: {refusal}"),
                    }
                }
                Ok(Message::Watch(begun)) => {
                    self.watch();
                    // A client that has gone away is none.
                    let _ = begun.send(());
                }
                Ok(Message::Interfaces) => {
                    self.look_at_addresses();
                    self.look_at_interfaces(self.interfaces.ports());
                }
                Ok(Message::Reload { is_prepared }) => {
                    self.reload_by_signal(is_prepared);
                    wipe_stack();
                }
                Ok(Message::Stop) | Err(RecvTimeoutError::Disconnected) => {
                    tracing::info!("stopping");
                    break Exit::Done;
                }
            }
            let now = self.clock.now();
            self.pool.events(|event| match event {
                Event::Logged(packet) => {
                    let tables = self.reader.load();
                    if let Some(line) = self.packet_log.line(&packet, tables, now) {
                        tracing::info!("{line}");
                    }
                }
                Event::AddressConflict { port, since, address, mac } => {
                    let conflict = Conflict { port: (port, since), address, mac };
                    let tables = self.reader.load();
                    if let Some((vrf, line)) = self.conflict_log.line(&conflict, tables, now) {
                        tracing::warn!(vrf, "{line}");
                    }
                }
                event => self.handler.control.event(event, now),
            });
            if now >= due {
                due = now + TICK;
                self.tick(now);
                if !self.pool.is_alive() {
                    tracing::error!("a worker is gone: stopping");
                    break Exit::Refused;
                }
            }
            self.interfaces.receive_all(self.reader.load().all_joined());
            self.audit_sas();
            self.tell_changes(now);
            self.announce();
            if let Some((writer, _)) = &self.sequences {
                writer.write(self.handler.control.take_reservations(), None);
            }
        };
        self.stop();
        exit
    }

    /// Ends the workers and closes their ports. What was changed is written, and replied to.
    pub(crate) fn stop(&mut self) {
        self.pool.stop();
        self.taps.end_all("the gateway has stopped");
        self.traces.end_all("the gateway has stopped");
        if let Some((writer, _)) = self.sequences.take() {
            writer.stop(&mut self.handler.control);
        }
        if let Some(mut keeper) = self.keeper.take() {
            keeper.try_again(&mut self.handler.control, self.clock.now());
        }
        // There may be many, and whoever reads them slow: what must not be lost is on the disk.
        let (tables, now) = (self.reader.load(), self.clock.now());
        for (line, is_warning) in self.nat_log.last_lines(tables, now) {
            self.say("nat", &line, is_warning);
        }
    }

    /// Gives the workers the queues of a port that the tables have already, and follows its
    /// interface.
    pub(crate) fn attach(
        &mut self,
        settings: &PortSettings,
        id: PortId,
        queues: Vec<Box<dyn Port>>,
    ) {
        if queues.is_empty() {
            return self.await_interface(settings, id);
        }
        let ring = queues.first().and_then(|queue| queue.ring());
        let statistics = queues.iter().map(|queue| queue.statistics().clone()).collect();
        self.handler.add_port(id, statistics, ring);
        let is = queues.first().map_or((Mac([0; 6]), 0), |queue| (queue.mac(), queue.mtu()));
        self.pool.attach(id, queues);
        if let Some(seen) = self.interfaces.follow(id, settings, is) {
            self.see(id, &settings.name, &seen);
        }
    }

    /// Has a port be opened when its interface comes, which is not there.
    fn await_interface(&mut self, settings: &PortSettings, id: PortId) {
        self.handler.add_port(id, Vec::new(), None);
        self.interfaces.follow_absent(id, settings);
        let (port, interface) = (&settings.name, settings.kind.interface().unwrap_or_default());
        let why = format!("there is no interface {interface}");
        tracing::warn!(port, "the port is down: {why}; it is opened when the interface comes");
        self.audit().link(port, "down", Some(why));
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
        let size = self.pool.size();
        let (difference, mut queues) =
            open_and_apply(&mut self.handler, plan, Absent::Refused, size, self.clock.now())?;
        // Until now the former port of an interface had its frames, which may have been in another VRF.
        for queue in queues.iter_mut().flat_map(|(.., queues)| queues) {
            queue.forget_waiting();
        }
        for id in closed {
            self.pool.detach(id);
            self.handler.remove_port(id);
            self.interfaces.forget(id);
        }
        let opened: Vec<PortSettings> =
            queues.iter().map(|(settings, ..)| settings.clone()).collect();
        seen::warn(&opened);
        for (settings, id, queues) in queues {
            self.attach(&settings, id, queues);
        }
        configured.iter().for_each(|settings| self.interfaces.set(settings));
        self.look_at_interfaces(self.interfaces.due());
        if let Err(error) = ports::release_others(&configured, &mut self.handler.daemon.claims) {
            tracing::warn!("interfaces that are not used any more stay claimed: {error:#}");
        }
        self.announce();
        Ok(difference)
    }

    /// A frame of its own, which is wiped when it is left.
    #[inline(never)]
    fn reply(&mut self, pending: PendingRequest) {
        if !pending.is_prepared && self.must_reserve(&pending.request) {
            return self.reserve_before(move |result| match result {
                Ok(()) => Some(Message::Request(Box::new(PendingRequest {
                    is_prepared: true,
                    ..pending
                }))),
                Err(why) => {
                    let message = format!("sequence numbers cannot be reserved: {why}");
                    let refusal = Refusal::new(RefusalCode::System, message)
                        .with_hint("make room on the disk of the state directory, and try again");
                    let mut waiting = pending.reply;
                    if waiting.begin() {
                        waiting.send(Err(refusal));
                    }
                    None
                }
            });
        }
        let PendingRequest { request, sync, reply: mut waiting, .. } = pending;
        if !waiting.begin() {
            return;
        }
        // They are not kept.
        if let Request::TapAdd(_) | Request::TapDelete { .. } | Request::TapList = request {
            waiting.send(self.tap(&request));
            return;
        }
        if let Request::TraceAdd(_) | Request::TraceDelete { .. } | Request::TraceList = request {
            waiting.send(self.trace(&request));
            return;
        }
        // Connections are not kept.
        if let Request::ConnectionDelete(_) | Request::ConnectionUpdate(_) = request {
            waiting.send(self.handler.handle(request, self.clock.now()));
            return;
        }
        let is_change = !request.only_reads();
        // A key whose SA is over must not be used on, though the disk takes nothing.
        let may_be_refused = is_change && !kept::only_ends_sas(&request);
        if may_be_refused && let Some(refusal) = self.keeper.as_ref().and_then(Keeper::refusal) {
            waiting.send(Err(refusal));
            return;
        }
        let reply = match request {
            Request::Reload { dry_run: false } => {
                return match self.reload() {
                    Ok((difference, digest)) => {
                        let done = state::replies(Ok(Reply::Difference(difference)), waiting);
                        self.note_reload(digest, Some(done));
                    }
                    Err(refusal) => waiting.send(Err(refusal)),
                };
            }
            Request::Reload { dry_run: true } => self.would_reload().map(Reply::Difference),
            Request::Diff => self
                .load()
                .map(|(config, _)| Reply::Difference(self.handler.control.difference(&config))),
            Request::Save { keys_file } => {
                let saved = self.handler.control.save(keys_file.as_deref());
                saved.map(|control::Written { text, keys, keys_id, left_out }| {
                    Reply::Saved(SavedConfiguration { text, keys, keys_id, left_out })
                })
            }
            request => self.handler.handle(request, self.clock.now()),
        };
        let reply = reply.map(|reply| self.with_devices(reply));
        match &mut self.keeper {
            Some(keeper) if is_change => {
                keeper.keep(&mut self.handler.control, reply, waiting, sync);
            }
            // A client that has gone away wants no answer.
            _ => waiting.send(reply),
        }
    }

    /// Adds what the ports' interfaces have counted themselves.
    fn with_devices(&mut self, mut reply: Reply) -> Reply {
        if let Reply::Ports(ports) = &mut reply {
            self.count_devices(ports);
        }
        reply
    }

    fn count_devices(&mut self, ports: &mut [PortView]) {
        for port in ports {
            port.device = self.interfaces.counters(PortId(port.id));
        }
    }

    /// Everything that is counted.
    fn metrics(&mut self) -> Result<Measured, Refusal> {
        let mut measured = self.handler.metrics(self.clock.now())?;
        self.count_devices(&mut measured.ports);
        Ok(measured)
    }

    /// The configuration file as it is now, and its digest.
    fn load(&self) -> Result<(Config, String), Refusal> {
        let loaded = gateway::load_with_digest(&self.file).map_err(|error| refuse(&error.into()));
        wipe_stack();
        loaded
    }

    fn would_reload(&self) -> Result<Difference, Refusal> {
        let (config, _) = self.load()?;
        let plan = self.handler.control.plan(config);
        match plan.refusal() {
            Some(refusal) => Err(refusal.clone()),
            None => Ok(plan.difference().clone()),
        }
    }

    /// Returns what has changed, and the digest of the file.
    fn reload(&mut self) -> Result<(Difference, String), Refusal> {
        self.audit().reopen();
        let (config, digest) = self.load()?;
        self.handler.daemon.reloads += 1;
        gateway::warn_of(&self.file, &config);
        let now = self.clock.now();
        self.handler.see_vrfs(now)?;
        let applied = self.apply(config);
        self.handler.see_vrfs(now)?;
        match applied {
            Ok(difference) => Ok((difference, digest)),
            Err(error) => Err(match error.downcast::<Refusal>() {
                Ok(refusal) => refusal,
                Err(error) => refuse(&error.context("nothing was changed")),
            }),
        }
    }

    /// Changes are kept with respect to another file from now on.
    fn note_reload(&mut self, digest: String, done: Option<store::Done>) {
        match &mut self.keeper {
            Some(keeper) => {
                let (control, now) = (&mut self.handler.control, self.clock.now());
                keeper.reloaded(control, digest, done, now);
            }
            None => {
                if let Some(done) = done {
                    done(Ok(()));
                }
            }
        }
    }

    /// Reserves sequence numbers for SAs that a request adds. Returns whether it has to wait for
    /// them: carried out now, it could put SAs that cannot send in place of some that can.
    fn must_reserve(&mut self, request: &Request) -> bool {
        let control = &mut self.handler.control;
        self.sequences.is_some()
            && match request {
                // A file that is wrong is refused when it is applied.
                Request::Reload { dry_run: false } => {
                    let loaded = gateway::load(&self.file);
                    wipe_stack();
                    loaded.is_ok_and(|config| control.prepare_config(&config))
                }
                request => control.prepare(request),
            }
    }

    /// Has what is reserved written, and then sends this thread a message, if there is one to send.
    fn reserve_before(
        &mut self,
        message: impl FnOnce(Result<(), String>) -> Option<Message> + Send + 'static,
    ) {
        if let Some((writer, sender)) = &self.sequences {
            let sender = sender.clone();
            let done: sequences::Done = Box::new(move |result| {
                if let Some(message) = message(result) {
                    // Control may have ended.
                    let _ = sender.send(message);
                }
            });
            writer.write(self.handler.control.take_reservations(), Some(done));
        }
    }

    #[inline(never)]
    fn reload_by_signal(&mut self, is_prepared: bool) {
        if !is_prepared && self.must_reserve(&Request::Reload { dry_run: false }) {
            return self.reserve_before(|result| match result {
                Ok(()) => Some(Message::Reload { is_prepared: true }),
                Err(why) => {
                    tracing::error!("not reloaded: sequence numbers cannot be reserved: {why}");
                    None
                }
            });
        }
        let refusal = self.keeper.as_ref().and_then(Keeper::refusal);
        match refusal.map_or_else(|| self.reload(), Err) {
            Ok((difference, digest)) => {
                if difference.is_empty() {
                    tracing::info!("reloaded: nothing is different");
                } else {
                    tracing::info!(changes = difference.changes.len(), "reloaded");
                    difference.changes.iter().for_each(|change| tracing::info!("{change}"));
                }
                self.audit().reloaded("SIGHUP", Ok((&difference, &digest)));
                self.note_reload(digest, None);
            }
            Err(refusal) => {
                tracing::error!("not reloaded: {refusal}");
                self.audit().reloaded("SIGHUP", Err(&refusal));
            }
        }
    }

    fn audit(&self) -> &Audit {
        &self.handler.daemon.audit
    }

    /// Notes what changes while somebody follows it.
    fn watch(&mut self) {
        let is_watched = self.monitors.are_there();
        if is_watched != self.is_watched {
            self.is_watched = is_watched;
            self.handler.control.watch(is_watched);
        }
    }

    /// Tells those who follow what has changed.
    fn tell_changes(&mut self, now: Time) {
        if self.is_watched {
            self.monitors.tell(self.handler.control.take_object_changes(now));
        }
    }

    /// Writes down what has become of SAs.
    fn audit_sas(&mut self) {
        for event in self.handler.control.take_sa_events() {
            self.audit().sa(event);
        }
    }

    fn name_of(&mut self, id: PortId) -> Option<String> {
        self.reader.load().port(id).map(|port| port.spec.name.to_string())
    }

    fn tick(&mut self, now: Time) {
        self.handler.measure(now);
        if let Some(watchdog) = &mut self.watchdog {
            watchdog.tick(now, self.handler.rounds());
        }
        self.look_at_rounds();
        self.look_at_interfaces(self.interfaces.due());
        self.look_at_settling(now);
        if let Some(keeper) = &mut self.keeper {
            keeper.tick(&mut self.handler.control, now);
        }
        self.look_at_kept();
        let probes = self.handler.control.tick(now);
        for vrf in self.handler.control.take_vrfs_without_flows() {
            tracing::warn!(
                "the last flow of VRF {vrf} has gone by its timeout: without flows, the VRF routes all \
                 packets again"
            );
        }
        if let Some(keeper) = &mut self.keeper {
            keeper.keep_aged(&mut self.handler.control);
        }
        if !probes.is_empty() {
            probes.into_iter().for_each(|probe| self.pool.probe(probe));
            self.pool.wake();
        }
        self.log_boundaries();
        self.log_connections(now);
        self.look_at_taps();
        self.look_at_traces();
        self.monitors.look_after();
        self.watch();
    }

    /// What connections and NAT run out of, and whose blocks of ports are.
    fn log_connections(&mut self, now: Time) {
        let (tables, control) = (self.reader.load(), &self.handler.control);
        let zone = |class: u16| control.firewall_zone(class).map(str::to_owned);
        let connections = self.connection_log.lines(tables, &zone, now);
        for (line, is_warning) in self.nat_log.lines(tables, now) {
            self.say("nat", &line, is_warning);
        }
        for (line, is_warning) in connections {
            self.say("connections", &line, is_warning);
        }
    }

    /// A line for the log, and for the audit log but for blocks of ports: they are what a pool is for,
    /// and the daemon's log has them.
    fn say(&self, event: &'static str, line: &str, is_warning: bool) {
        if is_warning || !line.starts_with("port block") {
            self.audit().by_traffic(event, line, is_warning);
        }
        match is_warning {
            true => tracing::warn!("{line}"),
            false => tracing::info!("{line}"),
        }
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

fn refuse(error: &anyhow::Error) -> Refusal {
    Refusal::new(RefusalCode::Invalid, format!("{error:#}"))
}

/// Whether keys are handled when the request is.
const fn has_keys(request: &Request) -> bool {
    matches!(
        request,
        Request::StateAdd(_) | Request::StateUpdate(_) | Request::Batch(_) | Request::Reload { .. }
    )
}

/// If `pending` asks for a reload, adds everybody who asks for the same by now: the file is read
/// once for all of them. Who asks later may have changed the file meanwhile, and waits for the next
/// reload. Other messages go into `queue`, in their order.
fn join_reloads(
    pending: &mut PendingRequest,
    messages: &Receiver<Message>,
    queue: &mut VecDeque<Message>,
) {
    if !matches!(pending.request, Request::Reload { .. }) {
        return;
    }
    let waiting = messages.try_iter().take(QUEUE.saturating_sub(queue.len()));
    for message in queue.drain(..).chain(waiting).collect::<Vec<_>>() {
        match message {
            Message::Request(other)
                if other.request == pending.request && other.sync == pending.sync =>
            {
                pending.reply.join(other.reply);
            }
            message => queue.push_back(message),
        }
    }
}
