//! A worker's thread: rounds while packets come, sleep while none do.

use std::collections::BTreeMap;
use std::io::Read;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError};
use std::time::Duration;

use control::Idle;
use packet::Port;
use path::Worker;
use rtrb::{Consumer, Producer};
use tables::{Event, Probe};
use wire::PortId;

use crate::daemon::Message;
use runtime::clock::Clock;

/// Rounds without a packet before the worker sleeps. Waking costs more than a few empty rounds.
const IDLE_ROUNDS: u32 = 16;

/// The longest sleep.
const LONGEST_SLEEP: Duration = Duration::from_millis(500);

/// The longest sleep while a port cannot wake the worker, or waits for buffers that its last round
/// may have given back.
const SHORT_SLEEP: Duration = Duration::from_millis(1);

/// How long a worker goes on with what has come in, once it is told to end.
const LAST_ROUNDS: Duration = Duration::from_millis(50);

/// What the control thread tells a worker.
pub(crate) enum Command {
    /// Take over a queue of a port, of this opening of it.
    Attach(PortId, u64, Box<dyn Port>),
    /// The MTU of a port's interface is another now.
    SetMtu(PortId, u16),
    /// Close the queue of a port.
    Detach(PortId),
    /// Ask after a neighbour.
    Probe(Probe),
    /// End.
    Stop,
}

/// Wakes a worker that sleeps. The control thread has one end, the worker the other.
#[derive(Debug)]
pub(crate) struct Waker {
    sleeping: AtomicBool,
    sender: UnixStream,
}

impl Waker {
    /// A waker, and the socket that becomes readable when it wakes the worker.
    ///
    /// # Errors
    /// If the system gives no descriptors.
    pub(crate) fn new() -> std::io::Result<(Arc<Self>, UnixStream)> {
        let (sender, wakeup) = UnixStream::pair()?;
        sender.set_nonblocking(true)?;
        wakeup.set_nonblocking(true)?;
        Ok((Arc::new(Self { sleeping: AtomicBool::new(false), sender }), wakeup))
    }

    /// Wakes the worker if it sleeps or is about to.
    pub(crate) fn wake(&self) {
        use std::io::Write;
        if self.sleeping.swap(false, Ordering::SeqCst) {
            // A full pipe means that it has been woken already.
            let _ = (&self.sender).write(&[1]);
        }
    }
}

/// What a worker's loop knows of a port.
pub(crate) struct Attached {
    opening: u64,
    /// Whether it can wake the worker.
    wakes: bool,
}

/// What runs on a worker's thread.
pub(crate) struct WorkerLoop {
    /// The worker.
    pub(crate) worker: Worker,
    /// Commands of the control thread.
    pub(crate) commands: Consumer<Command>,
    /// What the worker reports, to be passed on. The worker cannot wake the control thread itself:
    /// it knows of no threads.
    pub(crate) reported: Consumer<Event>,
    /// Where its reports go.
    pub(crate) events: Producer<Event>,
    /// Where questions go that the worker is to ask.
    pub(crate) probes: Producer<Probe>,
    /// Whether the control thread has been told that events wait.
    pub(crate) notified: Arc<AtomicBool>,
    /// The control thread.
    pub(crate) control: SyncSender<Message>,
    /// Says that the worker sleeps.
    pub(crate) waker: Arc<Waker>,
    /// Wake all workers, by number: frames are handed to those whose queueing disciplines they are
    /// for.
    pub(crate) wakers: Arc<[Arc<Waker>]>,
    /// Becomes readable when the worker is to wake up.
    pub(crate) wakeup: UnixStream,
    /// The clock.
    pub(crate) clock: Clock,
    /// What to do while no packet comes.
    pub(crate) idle: Idle,
    /// The ports.
    pub(crate) ports: BTreeMap<PortId, Attached>,
    /// Ports that were lost and that the control thread does not know of yet.
    pub(crate) lost: Vec<(PortId, u64, String)>,
}

impl WorkerLoop {
    /// Works until told to stop.
    pub(crate) fn run(mut self) {
        let mut idle_rounds = 0;
        let mut descriptors = Vec::new();
        while self.run_commands() {
            if self.round() > 0 {
                idle_rounds = 0;
            } else if self.idle == Idle::Sleep {
                idle_rounds += 1;
                if idle_rounds >= IDLE_ROUNDS {
                    self.sleep(&mut descriptors);
                    idle_rounds = 0;
                }
            }
        }
        self.finish();
    }

    /// Sends on what came in before the end.
    fn finish(&mut self) {
        let begin = self.clock.now();
        while self.round() > 0 && self.clock.now().since(begin) < LAST_ROUNDS {}
    }

    /// Runs what the control thread commands. Returns false if the worker is to end.
    fn run_commands(&mut self) -> bool {
        while let Ok(command) = self.commands.pop() {
            match command {
                Command::Attach(id, opening, port) => {
                    let attached = Attached { opening, wakes: port.descriptor().is_some() };
                    self.ports.insert(id, attached);
                    self.worker.attach(id, port);
                }
                Command::SetMtu(id, mtu) => {
                    if let Some(port) = self.worker.port_mut(id) {
                        port.set_mtu(mtu);
                    }
                }
                Command::Detach(id) => {
                    self.ports.remove(&id);
                    drop(self.worker.detach(id));
                }
                // A full ring loses a question that is asked again.
                Command::Probe(probe) => _ = self.probes.push(probe),
                Command::Stop => return false,
            }
        }
        true
    }

    fn round(&mut self) -> usize {
        let received = match self.worker.poll(self.clock.now()) {
            Ok(received) => received,
            Err((id, error)) => {
                let attached = self.ports.remove(&id);
                drop(self.worker.detach(id));
                let opening = attached.map_or(0, |attached| attached.opening);
                self.lost.push((id, opening, error.to_string()));
                1
            }
        };
        self.worker.take_handed_over(|worker| self.wakers[worker].wake());
        // Never waits for the control thread, which may be waiting for this one.
        while let Some((port, opening, error)) = self.lost.pop() {
            let message = Message::Lost { port, opening, error };
            if let Err(TrySendError::Full(Message::Lost { port, opening, error })) =
                self.control.try_send(message)
            {
                self.lost.push((port, opening, error));
                break;
            }
        }
        let mut has_events = false;
        // What finds no room stays with the worker, which counts what it loses.
        while self.events.slots() > 0
            && let Ok(event) = self.reported.pop()
        {
            let _ = self.events.push(event);
            has_events = true;
        }
        if has_events
            && !self.notified.swap(true, Ordering::AcqRel)
            && self.control.try_send(Message::Events).is_err()
        {
            // The control thread is awake, or looks at its next tick.
            self.notified.store(false, Ordering::Release);
        }
        received
    }

    /// Sleeps until a port or the control thread has something, or the worker's next deadline.
    fn sleep(&mut self, descriptors: &mut Vec<RawFd>) {
        self.waker.sleeping.store(true, Ordering::SeqCst);
        // What was published or commanded before the line above did not wake this thread: look
        // once more.
        if self.round() > 0 || !self.commands.is_empty() {
            self.waker.sleeping.store(false, Ordering::SeqCst);
            return;
        }
        let wakes = self.ports.values().all(|port| port.wakes);
        let waits = self.worker.waits_for_buffers();
        let longest = if wakes && !waits { LONGEST_SLEEP } else { SHORT_SLEEP };
        let timeout = match self.worker.next_deadline() {
            Some(deadline) => deadline.since(self.clock.now()).min(longest),
            None => longest,
        };
        descriptors.clear();
        descriptors.push(self.wakeup.as_raw_fd());
        descriptors.extend(self.worker.descriptors());
        if io::wait(descriptors, timeout).is_err() {
            // Out of memory in the kernel; packets go on, at the price of not sleeping.
            std::thread::yield_now();
        }
        self.waker.sleeping.store(false, Ordering::SeqCst);
        let mut heard = [0; 16];
        while matches!(self.wakeup.read(&mut heard), Ok(count) if count > 0) {}
    }
}
