//! A whole gateway on the caller's thread, driven by the caller's clock: one worker, and control
//! between its rounds.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::Context;
use control::{Config, Control, OpenedPort, PortSettings};
use packet::{Port, Time};
use path::{Worker, WorkerSettings};
use rtrb::{Consumer, Producer, RingBuffer};
use tables::{Event, Probe};
use wire::PortId;

use crate::gateway::{RequestHandler, cache_settings, twin};

/// How often control looks after neighbours.
pub(crate) const TICK: Duration = Duration::from_millis(100);

/// News and questions between worker and control at once.
pub(crate) const RING: usize = 4096;

/// A gateway without threads and without a clock: the same packets at the same times, with the same
/// seed, give the same bytes.
pub(crate) struct Gateway {
    handler: RequestHandler,
    worker: Worker,
    events: Consumer<Event>,
    probes: Producer<Probe>,
    next_tick: Option<Time>,
}

impl Gateway {
    /// The gateway of `config`. `open` opens each of its ports; `seed` is all of its randomness.
    ///
    /// # Errors
    /// If a port cannot be opened, or the tables refuse the configuration.
    pub(crate) fn new(
        config: Config,
        seed: [u8; 32],
        now: Time,
        mut open: impl FnMut(&PortSettings, PortId) -> anyhow::Result<Box<dyn Port>>,
    ) -> anyhow::Result<Self> {
        let (buffers, caches) = (config.gateway.buffers, cache_settings(&config.gateway.ipsec));
        let mut handler = RequestHandler::new(Control::new(1, seed));
        let plan = handler.control.plan(config);

        let (mut opened, mut ports) = (Vec::new(), Vec::new());
        for (settings, id) in plan.ports_to_open().iter().zip(handler.free_port_ids()) {
            let port =
                open(settings, id).with_context(|| format!("opening port {}", settings.name))?;
            opened.push(OpenedPort {
                name: settings.name.clone(),
                id,
                mac: port.mac(),
                mtu: port.mtu(),
                link: port.link(),
            });
            ports.push((id, port));
        }
        handler.control.apply(plan, &opened, now).context("applying the configuration")?;

        let (event_sender, events) = RingBuffer::new(RING);
        let (probes, probe_receiver) = RingBuffer::new(RING);
        let settings = WorkerSettings {
            index: 0,
            buffers,
            seed,
            caches,
            ticks: runtime::clock::ticks,
            large_buffers: handler.control.large_buffers(),
        };
        let mut worker = Worker::new(
            &settings,
            handler.control.shared().reader(),
            event_sender,
            probe_receiver,
        )?;
        handler.add_worker(None, worker.statistics().clone());
        for (id, port) in ports {
            handler.add_port(id, vec![port.statistics().clone()], port.ring());
            worker.attach(id, port);
        }
        Ok(Self { handler, worker, events, probes, next_tick: None })
    }

    /// The gateway of `config` with ports that no packet ever comes to, to ask questions of.
    ///
    /// # Errors
    /// If the tables refuse the configuration.
    pub(crate) fn without_packets(mut config: Config) -> anyhow::Result<Self> {
        config.gateway.buffers = 0;
        config.gateway.large_buffers = None;
        for cache in &mut config.gateway.ipsec.caches {
            cache.mode = api::CacheMode::Off;
        }
        let presumed = config.presumed_mtus();
        let presumed: HashMap<_, _> =
            presumed.into_iter().map(|(name, mtu)| (name.to_owned(), mtu)).collect();
        Self::new(config, [0; 32], Time(0), |settings, id| {
            let mut options = twin::options(settings, id);
            options.mtu = presumed.get(&settings.name).copied().unwrap_or(options.mtu);
            let (port, _) = io::memory::port(options, 1);
            Ok(Box::new(port))
        })
    }

    /// One round at `now`: the worker's, then control's. Returns how many packets came in.
    ///
    /// # Errors
    /// A port that is lost for good.
    pub(crate) fn step(&mut self, now: Time) -> anyhow::Result<usize> {
        let received = self.worker.poll(now).map_err(|(_, error)| error)?;
        while let Ok(event) = self.events.pop() {
            self.handler.control.event(event, now);
        }
        if self.next_tick.is_none_or(|due| due <= now) {
            self.next_tick = Some(now + TICK);
            for probe in self.handler.control.tick(now) {
                // A full ring loses a question that the next tick asks again.
                let _ = self.probes.push(probe);
            }
        }
        Ok(received)
    }

    /// When a round is wanted though no packet comes.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        [self.worker.next_deadline(), self.next_tick].into_iter().flatten().min()
    }

    /// Packets inside that wait for a neighbour or for more fragments.
    pub(crate) fn held(&self) -> usize {
        self.worker.held()
    }

    /// What handles requests.
    pub(crate) fn handler(&self) -> &RequestHandler {
        &self.handler
    }

    /// What handles requests.
    pub(crate) fn handler_mut(&mut self) -> &mut RequestHandler {
        &mut self.handler
    }
}
