//! The workers, as the control thread sees them.

use std::collections::BTreeMap;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, SyncSender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, bail};
use control::GatewaySettings;
use packet::{Pages, Port};
use path::{Handover, TapReader, Worker, WorkerSettings, WorkerStatistics, handovers};
use rtrb::{Consumer, Producer, PushError, RingBuffer};
use tables::{Event, Probe};
use wire::PortId;

use crate::daemon::Message;
use crate::daemon::worker::{Command, Waker, WorkerLoop};
use crate::daemon::{processors, taps};
use crate::gateway::{RING, RequestHandler, cache_settings};
use runtime::affinity;
use runtime::clock::Clock;

/// Commands to a worker at once.
const COMMANDS: usize = 1024;

/// Frames of each worker on the way to the queueing disciplines of another one, and the share of its
/// buffers that those on the way to all others may be.
const HANDED_OVER: usize = 1024;
const HANDED_OVER_SHARE: usize = 4;

/// Events taken from one worker before the others have their turn.
const EVENTS_AT_ONCE: usize = 1024;

/// All workers.
pub(crate) struct WorkerPool {
    workers: Vec<WorkerHandle>,
    /// What each is pinned to.
    processors: Vec<Option<usize>>,
    /// The ports that are open, and which opening of them that is.
    openings: BTreeMap<PortId, u64>,
    opened: u64,
    /// Of each worker, until somebody takes them.
    taps: Vec<TapReader>,
}

/// What a worker needs to hand frames over, and to be woken.
struct HandoverEnds {
    end: Handover,
    wakeup: UnixStream,
    /// Wake all workers.
    wakers: Arc<[Arc<Waker>]>,
}

struct WorkerHandle {
    thread: Option<JoinHandle<()>>,
    commands: Producer<Command>,
    events: Consumer<Event>,
    notified: Arc<AtomicBool>,
    waker: Arc<Waker>,
}

impl WorkerPool {
    /// Starts the workers and tells `handler` of their counters.
    ///
    /// # Errors
    /// If processors that were asked for are not to be had, or the system gives no threads.
    pub(crate) fn start(
        settings: &GatewaySettings,
        handler: &mut RequestHandler,
        clock: Clock,
        control: &SyncSender<Message>,
    ) -> anyhow::Result<Self> {
        let processors =
            processors::choose(settings.workers, &settings.processors, &mut handler.daemon.claims)?;
        let workers = Vec::with_capacity(processors.len());
        let openings = BTreeMap::new();
        let (processors_of, taps) = (processors.clone(), Vec::new());
        let mut pool = Self { workers, processors: processors_of, openings, opened: 0, taps };
        let others = processors.len().saturating_sub(1).max(1);
        let capacity = HANDED_OVER.min(settings.buffers / HANDED_OVER_SHARE / others);
        let ends = handovers(processors.len(), capacity);
        let wakers: Result<Vec<_>, _> = processors.iter().map(|_| Waker::new()).collect();
        let (wakers, wakeups): (Vec<_>, Vec<_>) =
            wakers.context("making the workers' wakers")?.into_iter().unzip();
        let wakers: Arc<[_]> = wakers.into();
        let ends = ends.into_iter().zip(wakeups);
        for ((index, processor), (end, wakeup)) in processors.into_iter().enumerate().zip(ends) {
            let ends = HandoverEnds { end, wakeup, wakers: Arc::clone(&wakers) };
            match WorkerHandle::start(index, processor, settings, handler, clock, control, ends) {
                Ok((worker, statistics, taps)) => {
                    handler.add_worker(processor, statistics);
                    pool.taps.push(taps);
                    pool.workers.push(worker);
                }
                Err(error) => {
                    pool.stop();
                    return Err(error);
                }
            }
        }
        Ok(pool)
    }

    /// The processors that the workers are pinned to.
    pub(crate) fn processors(&self) -> &[Option<usize>] {
        &self.processors
    }

    /// Where the workers put copies of packets.
    pub(crate) fn take_taps(&mut self) -> Vec<TapReader> {
        std::mem::take(&mut self.taps)
    }

    /// How many there are.
    pub(crate) fn size(&self) -> usize {
        self.workers.len()
    }

    /// Gives each worker its queue of port `id`; a port with fewer queues goes to the first
    /// workers.
    pub(crate) fn attach(&mut self, id: PortId, queues: Vec<Box<dyn Port>>) {
        self.opened += 1;
        self.openings.insert(id, self.opened);
        for (worker, queue) in self.workers.iter_mut().zip(queues) {
            worker.command(Command::Attach(id, self.opened, queue));
        }
    }

    /// Whether a port is open, and this is its present opening.
    pub(crate) fn is_open(&self, id: PortId, opening: u64) -> bool {
        self.openings.get(&id) == Some(&opening)
    }

    /// Tells every worker the MTU of a port's interface.
    pub(crate) fn set_mtu(&mut self, id: PortId, mtu: u16) {
        for worker in &mut self.workers {
            worker.command(Command::SetMtu(id, mtu));
        }
    }

    /// Has every worker close its queue of port `id`.
    pub(crate) fn detach(&mut self, id: PortId) {
        self.openings.remove(&id);
        for worker in &mut self.workers {
            worker.command(Command::Detach(id));
        }
    }

    /// Takes what the workers have reported.
    pub(crate) fn events(&mut self, mut take: impl FnMut(Event)) {
        for worker in &mut self.workers {
            worker.notified.store(false, Ordering::Release);
            for _ in 0..EVENTS_AT_ONCE {
                let Ok(event) = worker.events.pop() else { break };
                take(event);
            }
        }
    }

    /// Has the first worker ask after a neighbour: it has a queue of every port that is open. The
    /// question goes behind the command that gives it the queue.
    pub(crate) fn probe(&mut self, probe: Probe) {
        if let Some(worker) = self.workers.first_mut() {
            // A full ring loses a question that the next tick asks again.
            let _ = worker.commands.push(Command::Probe(probe));
        }
    }

    /// Wakes those who sleep: the tables have changed.
    pub(crate) fn wake(&self) {
        self.workers.iter().for_each(|worker| worker.waker.wake());
    }

    /// Whether all are alive.
    pub(crate) fn is_alive(&self) -> bool {
        self.workers
            .iter()
            .all(|worker| worker.thread.as_ref().is_some_and(|thread| !thread.is_finished()))
    }

    /// Ends all of them.
    pub(crate) fn stop(&mut self) {
        for worker in &mut self.workers {
            worker.command(Command::Stop);
        }
        for worker in &mut self.workers {
            if let Some(thread) = worker.thread.take()
                && thread.join().is_err()
            {
                tracing::error!("a worker ended in a panic; please report it");
            }
        }
    }
}

impl WorkerHandle {
    fn start(
        index: usize,
        processor: Option<usize>,
        settings: &GatewaySettings,
        handler: &RequestHandler,
        clock: Clock,
        control: &SyncSender<Message>,
        HandoverEnds { end, wakeup, wakers }: HandoverEnds,
    ) -> anyhow::Result<(Self, Arc<WorkerStatistics>, TapReader)> {
        let (commands, command_receiver) = RingBuffer::new(COMMANDS);
        let (reporter, reported) = RingBuffer::new(RING);
        let (event_sender, events) = RingBuffer::new(RING);
        let (probes, probe_receiver) = RingBuffer::new(RING);
        let (tap_writer, tap_reader) = path::tap_ring(taps::RING);
        let waker = Arc::clone(&wakers[index]);
        let notified = Arc::new(AtomicBool::new(false));
        let reader = handler.control.shared().reader();
        let worker = WorkerSettings {
            index,
            buffers: settings.buffers,
            seed: rand::random(),
            caches: cache_settings(&settings.ipsec),
            ticks: runtime::clock::ticks,
            large_buffers: handler.control.large_buffers(),
        };
        let idle = settings.idle;

        let (started, start) = mpsc::sync_channel(1);
        let thread = thread::Builder::new().name(format!("worker-{index}")).spawn({
            let (waker, notified, control) =
                (Arc::clone(&waker), Arc::clone(&notified), control.clone());
            move || {
                if let Some(processor) = processor
                    && let Err(error) = affinity::pin(processor)
                {
                    let _ = started.send(Err(error));
                    return;
                }
                // Made here, so that its memory is near the processor that uses it.
                let mut worker = match Worker::new(&worker, reader, reporter, probe_receiver) {
                    Ok(worker) => worker,
                    Err(error) => {
                        let _ = started.send(Err(error.into()));
                        return;
                    }
                };
                worker.join(end);
                worker.set_taps(tap_writer);
                let _ = started.send(Ok((Arc::clone(worker.statistics()), worker.pages())));
                let (ports, lost) = (BTreeMap::new(), Vec::new());
                let commands = command_receiver;
                let events = event_sender;
                WorkerLoop {
                    worker,
                    commands,
                    reported,
                    events,
                    probes,
                    notified,
                    control,
                    waker,
                    wakers,
                    wakeup,
                    clock,
                    idle,
                    ports,
                    lost,
                }
                .run();
            }
        });
        let thread = thread.context("starting a worker's thread")?;
        let (statistics, pages) = match start.recv() {
            Ok(started) => started?,
            Err(_) => bail!(
                "a worker's thread ended while it started: not enough memory for its buffers?"
            ),
        };
        log_pages(index, pages);
        let worker = Self { thread: Some(thread), commands, events, notified, waker };
        Ok((worker, statistics, tap_reader))
    }

    fn command(&mut self, command: Command) {
        let mut next = Some(command);
        while let Some(command) = next.take() {
            if let Err(PushError::Full(command)) = self.commands.push(command) {
                if self.thread.as_ref().is_none_or(JoinHandle::is_finished) {
                    return;
                }
                next = Some(command);
                self.waker.wake();
                thread::sleep(Duration::from_millis(1));
            }
        }
        self.waker.wake();
    }
}

/// Says what pages the memory of a worker's packets is made of: huge ones spare the processor most
/// of its misses in the TLB.
fn log_pages(worker: usize, pages: Pages) {
    match pages {
        Pages::Huge => tracing::info!(worker, "packets are in reserved huge pages"),
        Pages::Transparent => tracing::info!(
            worker,
            "packets are in pages that the system was asked to make huge ones (transparent huge \
            pages)"
        ),
        Pages::Ordinary => tracing::warn!(
            worker,
            "packets are in ordinary pages, which costs speed: reserve huge pages with sysctl \
            vm.nr_hugepages, or switch transparent ones on (echo madvise > \
            /sys/kernel/mm/transparent_hugepage/enabled), and start the gateway again"
        ),
    }
}
