//! The workers, as the control thread sees them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, SyncSender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, bail};
use control::GatewaySettings;
use packet::Port;
use path::{Worker, WorkerSettings, WorkerStatistics};
use rtrb::{Consumer, Producer, PushError, RingBuffer};
use tables::{Event, Probe};
use wire::PortId;

use crate::daemon::Message;
use crate::daemon::worker::{Bell, Command, WorkerLoop};
use crate::gateway::{Desk, RING, cache_settings};
use runtime::affinity;
use runtime::clock::Clock;

/// Commands to a worker at once.
const COMMANDS: usize = 1024;

/// Events taken from one worker before the others have their turn.
const EVENTS_AT_ONCE: usize = 1024;

/// All workers.
pub(crate) struct Crew(Vec<Member>);

struct Member {
    thread: Option<JoinHandle<()>>,
    commands: Producer<Command>,
    events: Consumer<Event>,
    probes: Producer<Probe>,
    told: Arc<AtomicBool>,
    bell: Arc<Bell>,
}

impl Crew {
    /// Starts the workers and tells `desk` of their counters.
    ///
    /// # Errors
    /// Where processors that were asked for are not to be had, or the system gives no threads.
    pub(crate) fn start(
        settings: &GatewaySettings,
        desk: &mut Desk,
        clock: Clock,
        control: &SyncSender<Message>,
    ) -> anyhow::Result<Self> {
        let processors = affinity::processors(settings.workers, &settings.processors)?;
        let mut crew = Self(Vec::with_capacity(processors.len()));
        for (index, processor) in processors.into_iter().enumerate() {
            match Member::start(index, processor, settings, desk, clock, control) {
                Ok((member, statistics)) => {
                    desk.add_worker(processor, statistics);
                    crew.0.push(member);
                }
                Err(error) => {
                    crew.stop();
                    return Err(error);
                }
            }
        }
        Ok(crew)
    }

    /// How many there are.
    pub(crate) fn size(&self) -> usize {
        self.0.len()
    }

    /// Gives each worker its queue of port `id`; a port with fewer queues goes to the first
    /// workers.
    pub(crate) fn attach(&mut self, id: PortId, queues: Vec<Box<dyn Port>>) {
        for (member, queue) in self.0.iter_mut().zip(queues) {
            member.command(Command::Attach(id, queue));
        }
    }

    /// Has every worker close its queue of port `id`.
    pub(crate) fn detach(&mut self, id: PortId) {
        for member in &mut self.0 {
            member.command(Command::Detach(id));
        }
    }

    /// Takes what the workers have reported.
    pub(crate) fn events(&mut self, mut take: impl FnMut(Event)) {
        for member in &mut self.0 {
            member.told.store(false, Ordering::Release);
            for _ in 0..EVENTS_AT_ONCE {
                let Ok(event) = member.events.pop() else { break };
                take(event);
            }
        }
    }

    /// Has the first worker ask after a neighbour.
    pub(crate) fn probe(&mut self, probe: Probe) {
        if let Some(member) = self.0.first_mut() {
            // A full ring loses a question that the next tick asks again.
            let _ = member.probes.push(probe);
        }
    }

    /// Wakes those who sleep: the tables have changed.
    pub(crate) fn wake(&self) {
        self.0.iter().for_each(|member| member.bell.ring());
    }

    /// Whether all are alive.
    pub(crate) fn is_alive(&self) -> bool {
        self.0
            .iter()
            .all(|member| member.thread.as_ref().is_some_and(|thread| !thread.is_finished()))
    }

    /// Ends all of them.
    pub(crate) fn stop(&mut self) {
        for member in &mut self.0 {
            member.command(Command::Stop);
        }
        for member in &mut self.0 {
            if let Some(thread) = member.thread.take()
                && thread.join().is_err()
            {
                tracing::error!("a worker ended in a panic; please report it");
            }
        }
    }
}

impl Member {
    fn start(
        index: usize,
        processor: Option<usize>,
        settings: &GatewaySettings,
        desk: &Desk,
        clock: Clock,
        control: &SyncSender<Message>,
    ) -> anyhow::Result<(Self, Arc<WorkerStatistics>)> {
        let (commands, command_receiver) = RingBuffer::new(COMMANDS);
        let (reporter, reported) = RingBuffer::new(RING);
        let (event_sender, events) = RingBuffer::new(RING);
        let (probes, probe_receiver) = RingBuffer::new(RING);
        let (bell, ear) = Bell::new().context("making a worker's bell")?;
        let told = Arc::new(AtomicBool::new(false));
        let reader = desk.control.shared().reader();
        let worker = WorkerSettings {
            index,
            buffers: settings.buffers,
            seed: rand::random(),
            caches: cache_settings(&settings.ipsec),
            ticks: runtime::clock::ticks,
        };
        let idle = settings.idle;

        let (started, start) = mpsc::sync_channel(1);
        let thread = thread::Builder::new().name(format!("worker-{index}")).spawn({
            let (bell, told, control) = (Arc::clone(&bell), Arc::clone(&told), control.clone());
            move || {
                if let Some(processor) = processor
                    && let Err(error) = affinity::pin(processor)
                {
                    let _ = started.send(Err(error));
                    return;
                }
                // Made here, so that its memory is near the processor that uses it.
                let worker = match Worker::new(&worker, reader, reporter, probe_receiver) {
                    Ok(worker) => worker,
                    Err(error) => {
                        let _ = started.send(Err(error.into()));
                        return;
                    }
                };
                let _ = started.send(Ok(Arc::clone(worker.statistics())));
                let (ports, lost) = (BTreeMap::new(), Vec::new());
                let commands = command_receiver;
                let events = event_sender;
                WorkerLoop {
                    worker,
                    commands,
                    reported,
                    events,
                    told,
                    control,
                    bell,
                    ear,
                    clock,
                    idle,
                    ports,
                    lost,
                }
                .run();
            }
        });
        let thread = thread.context("starting a worker's thread")?;
        let statistics = match start.recv() {
            Ok(statistics) => statistics?,
            Err(_) => bail!(
                "a worker's thread ended while it started: not enough memory for its buffers?"
            ),
        };
        Ok((Self { thread: Some(thread), commands, events, probes, told, bell }, statistics))
    }

    fn command(&mut self, command: Command) {
        let mut next = Some(command);
        while let Some(command) = next.take() {
            if let Err(PushError::Full(command)) = self.commands.push(command) {
                if self.thread.as_ref().is_none_or(JoinHandle::is_finished) {
                    return;
                }
                next = Some(command);
                self.bell.ring();
                thread::sleep(Duration::from_millis(1));
            }
        }
        self.bell.ring();
    }
}
