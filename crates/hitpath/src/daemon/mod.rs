//! The daemon: worker threads that move packets, the control thread that owns the tables, a thread
//! that compiles policies, the server on the control socket.
//!
//! ```text
//! clients --HTTP--> server --PendingRequest--> control (main thread) --snapshot, commands, probes--> workers
//!          signals, netlink --Message-->                     <--events, Lost, Events-------
//! ```

mod alarm;
mod asking;
pub(crate) mod audit;
pub(crate) mod bearer;
mod compiler;
mod conflict_log;
mod connection_events;
mod connection_log;
mod connections;
mod control;
mod http;
mod interfaces;
mod metrics_server;
mod monitors;
mod nat_log;
mod packet_log;
mod page_server;
mod ports;
mod processors;
mod protection;
mod reply_to;
mod scrape;
pub(crate) mod sequences;
mod server;
mod signals;
mod socket;
mod state;
mod supervisor;
mod taps;
mod traces;
mod worker;
mod worker_pool;

use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::time::SystemTime;

use anyhow::{Context, bail};
use tables::{Compiled, CompiledFilter, Direction, FilterPlace, Scope};
use tokio::sync::oneshot;
use wire::PortId;

use crate::gateway::{self, Protection, RequestHandler};
use crate::kernel::{own, seen};
use crate::metrics::Measured;
use ::control::{GatewaySettings, Plan, StateDirectory, wipe_stack};
use asking::PendingRequest;
use audit::Audit;
use control::{Absent, ControlThread};
use interfaces::Interfaces;
pub(crate) use ports::{claim_interfaces, keeper_of_claims};
use runtime::clock::Clock;
use runtime::exit::Exit;
use runtime::{heap, log};
use scrape::Scrapes;
use socket::SocketFile;
use worker_pool::WorkerPool;

/// Messages that may wait for the control thread at once.
const QUEUE: usize = 1024;

/// What wakes the control thread.
#[derive(Debug)]
pub(crate) enum Message {
    /// A client asks.
    Request(Box<PendingRequest>),
    /// A worker has put events into its ring.
    Events,
    /// A worker has lost a port for good.
    Lost {
        /// The port.
        port: PortId,
        /// Which of its openings, by [`WorkerPool::attach`].
        opening: u64,
        /// What happened to it.
        error: String,
    },
    /// Somebody wants to know what is counted.
    Metrics(oneshot::Sender<Measured>),
    /// Somebody follows what changes; said once it is noted.
    Watch(oneshot::Sender<()>),
    /// An interface of the system, or an address of one, has changed.
    Interfaces,
    /// Policies were compiled.
    Compiled {
        /// Whose packets they are for.
        scope: Scope,
        /// Their direction.
        direction: Direction,
        /// What they became.
        compiled: Arc<Compiled>,
    },
    /// A filter was compiled.
    CompiledFilter {
        /// Which.
        place: FilterPlace,
        /// What it became.
        compiled: Arc<CompiledFilter>,
    },
    /// Policies could not be compiled, and are looked up as before.
    CompileFailed {
        /// Whose packets they are for.
        scope: Scope,
        /// Their direction.
        direction: Direction,
        /// What happened.
        why: String,
    },
    /// No policies are compiled any more.
    CompilerEnded {
        /// What happened.
        why: String,
    },
    /// SIGHUP: read the configuration again.
    Reload {
        /// Whether sequence numbers are reserved for the SAs that it adds.
        is_prepared: bool,
    },
    /// SIGTERM or SIGINT.
    Stop,
}

/// What the command line says of a run.
pub(crate) struct Options<'o> {
    /// The configuration file.
    pub(crate) file: &'o Path,
    /// In place of the configuration's control socket.
    pub(crate) socket: Option<&'o Path>,
    /// In place of the configuration's state directory.
    pub(crate) state: Option<&'o Path>,
    /// Whether interfaces are taken over from the kernel.
    pub(crate) own_interfaces: bool,
}

/// Runs the gateway of a configuration until it is told to stop.
///
/// # Errors
/// If the configuration is wrong, a port cannot be opened though its interface is there, another daemon listens on the control
/// socket, the state directory cannot be used, or interfaces cannot be taken over.
pub(crate) fn run(options: &Options<'_>) -> anyhow::Result<Exit> {
    let &Options { file, socket, state, own_interfaces } = options;
    let (config, digest) = gateway::load_with_digest(file)?;
    wipe_stack();
    gateway::warn_of(file, &config);
    let mut settings = config.gateway.clone();
    match state {
        None => {}
        Some(off) if off.as_os_str() == "off" => settings.state = StateDirectory::Off,
        Some(path) => settings.state = StateDirectory::At(path.to_owned()),
    }
    if config.ports.is_empty() {
        bail!("{}: the configuration has no port (add a [[port]] section)", file.display());
    }
    let clock = Clock::start();

    // First of all, so that a second daemon touches no port of the first one's.
    let socket = socket.unwrap_or(&settings.socket).to_owned();
    let (listener, socket_file) = socket::listen(&socket, socket::CONTROL, socket::PRIVATE)?;
    let opened = state::Opened::of(&settings, &socket)?;
    let audit = audit::Opened::of(&settings.audit)?;
    let metrics = metrics_server::open(&settings.metrics, file)?;
    let page = page_server::open(&settings.page, file)?;

    // Whatever can be refused is, before anything of the system is changed.
    let mut handler =
        RequestHandler::new(::control::Control::new(settings.workers, rand::random()));
    handler.daemon.config = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    handler.daemon.socket.clone_from(&socket);
    handler.daemon.started = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0.0, |since| since.as_secs_f64());
    handler.daemon.objects = settings.metrics.objects;
    handler.daemon.claims = protection::claims(file);
    let directory = opened.as_ref().map(|opened| (opened.path(), opened.is_first()));
    let sequences = sequences::open(&mut handler.control, directory, &settings)?;
    let plan = handler.control.plan(config);
    if let Some(refusal) = plan.refusal() {
        return Err(refusal.clone().into());
    }
    let (owned, taken_over) = if own_interfaces {
        let Some(opened) = &opened else {
            bail!(
                "--own-interfaces needs a state directory, where it is recorded what to put back: \
                say --state-directory PATH, or state-directory in [gateway]"
            );
        };
        ports::claim(plan.ports_to_open(), &mut handler.daemon.claims)?;
        // Before the rights that it takes are given up.
        let owned = own::take_over(plan.ports_to_open(), opened.directory())?;
        (Some(owned), Some(opened.path().to_owned()))
    } else {
        (None, None)
    };
    let prepared = Prepared {
        file,
        settings,
        digest,
        clock,
        listener,
        socket_file,
        metrics,
        page,
        opened,
        handler,
        sequences,
        plan,
        owned,
    };
    let outcome = run_prepared(prepared, audit);
    match taken_over {
        None => outcome,
        Some(path) => outcome.with_context(|| {
            format!(
                "the interfaces stay taken over; `hitpath release-interfaces {}` puts them back",
                path.display()
            )
        }),
    }
}

/// What a start has read and checked, before anything runs.
struct Prepared<'o> {
    file: &'o Path,
    settings: GatewaySettings,
    digest: String,
    clock: Clock,
    listener: UnixListener,
    socket_file: SocketFile,
    metrics: Option<metrics_server::Opened>,
    page: Option<page_server::Opened>,
    opened: Option<state::Opened>,
    handler: RequestHandler,
    sequences: Option<sequences::Opened>,
    plan: Plan,
    owned: Option<own::Owned>,
}

/// Starts everything, and runs until told to stop.
fn run_prepared(mut prepared: Prepared<'_>, audit: audit::Opened) -> anyhow::Result<Exit> {
    seen::warn(prepared.plan.ports_to_open());
    // Before there are other threads, which have what this one has.
    let protection = protection::give_up(prepared.file)?;

    let audit = audit.start().context("starting the thread of the audit log")?;
    let handler = &mut prepared.handler;
    handler.daemon.audit = audit.clone();
    if audit.is_on() {
        handler.control.follow_sas();
    }
    audit.started(&handler.daemon.config, &prepared.digest);
    let outcome = run_audited(prepared, protection, &audit);
    audit.stopping(match outcome {
        Ok(Exit::Done) => "asked to",
        Ok(_) => "failed",
        Err(_) => "could not start",
    });
    audit.stop();
    outcome
}

/// As [`run_prepared`], with a record of the start, and of the end when it returns.
fn run_audited(
    prepared: Prepared<'_>,
    mut protection: Protection,
    audit: &Audit,
) -> anyhow::Result<Exit> {
    let Prepared { file, settings, digest, clock, listener, socket_file, metrics, .. } = prepared;
    let Prepared { page, opened, mut handler, sequences, plan, owned, .. } = prepared;
    let socket = handler.daemon.socket.clone();

    let (sender, messages) = mpsc::sync_channel(QUEUE);
    signals::forward(sender.clone())?;
    let sequences = sequences.map(sequences::Opened::start).transpose()?;
    // Before the workers start, as the ports decide what buffers they need.
    let (absent, now) = (Absent::Awaited, clock.now());
    let (_, ports) = control::open_and_apply(&mut handler, plan, absent, settings.workers, now)?;
    // What commands had changed is there before the first packet is.
    let keeper = match opened {
        Some(opened) => {
            Some(opened.restore(&mut handler.control, &settings, digest, audit, clock.now())?)
        }
        None => None,
    };
    if let Some(writer) = &sequences {
        writer.prepare(&mut handler.control, clock.now());
        sequences::warn_of_crash(&handler.control);
    }
    wipe_stack();
    let mut pool = WorkerPool::start(&settings, &mut handler, clock, &sender)
        .context("starting the workers")?;
    let readers = (taps::Taps::default(), traces::Traces::default());
    taps::start(pool.take_taps(), readers.clone(), clock).context("starting the thread of taps")?;
    let events = connection_events::ConnectionEvents::default();
    connection_events::start(events.clone(), handler.control.shared().reader(), clock)
        .context("starting the thread of connections")?;
    compiler::start(handler.control.shared().reader(), pool.processors(), sender.clone())?;
    let interfaces = Interfaces::new()?;
    protection::filter(&mut protection, settings.seccomp)?;
    handler.daemon.protection = protection;
    let sequences = sequences.map(|writer| (writer, sender.clone()));
    let monitors = monitors::Monitors::default();
    let served = (pool, (readers.clone(), monitors.clone()));
    let mut control =
        ControlThread::new(file, handler, served, clock, (interfaces, owned), keeper, sequences);
    // Before the interfaces are looked at, so that no change is missed.
    interfaces::watch(sender.clone())?;
    control.look_at_addresses();
    for (settings, id, queues) in ports {
        control.attach(&settings, id, queues);
    }
    let scrapes = Scrapes::new(sender.clone());
    if let Some(metrics) = metrics {
        metrics.start(scrapes.clone(), audit.clone())?;
    }
    // Its socket is removed when the gateway ends.
    let _page =
        page.map(|page| page.start(scrapes.clone(), sender.clone(), audit.clone())).transpose()?;
    let server = server::start(
        listener,
        sender,
        (readers, events.clone(), monitors.clone()),
        scrapes,
        audit.clone(),
    )?;
    if heap::could_be_huge() {
        tracing::info!(
            "the heap is in ordinary pages, which costs speed with thousands of VRFs and ports: \
            GLIBC_TUNABLES=glibc.malloc.hugetlb=1 in the environment asks for huge ones"
        );
    }
    tracing::info!(socket = %socket.display(), workers = settings.workers, "running");
    log::announce("ready");
    supervisor::ready(settings.workers);

    let exit = control.run(&messages);
    supervisor::stopping();
    events.end_all();
    monitors.end_all();
    // Who is still in the queue is told that nothing was done.
    drop(messages);
    drop(socket_file);
    server.stop();
    Ok(exit)
}
