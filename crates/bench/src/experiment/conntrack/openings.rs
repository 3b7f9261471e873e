//! What it costs that connections begin, and that they begin and end.

use anyhow::ensure;
use flow::CacheSettings;
use io::memory::MemoryHandle;
use packet::{BATCH, Time};
use path::Worker;
use wire::TcpFlags;

use super::gateway::{tables, worker};
use super::lives::{Life, Lives};
use super::sender::Sender;
use super::{Cache, Carried, Flows, START, time_to_judge};
use crate::dut::dropped;
use crate::measure::{Effort, Meter, Sample, Series, Stopwatch};

/// What begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Opened {
    /// A datagram, which opens a connection
    Firewall,
    /// The same, and its source is translated
    Nat,
    /// As firewall, but each packet is decided, and nothing is taken from megaflows
    FirewallEach,
    /// As nat, the same
    NatEach,
    /// A connection of six segments
    Tcp,
    /// A request and its answer
    Udp,
}

impl Opened {
    pub(super) const fn flows(self) -> Flows {
        match self {
            Self::Nat | Self::NatEach => Flows::Nat,
            Self::Firewall | Self::FirewallEach | Self::Tcp | Self::Udp => Flows::Firewall,
        }
    }

    fn life(self) -> Option<Life> {
        match self {
            Self::Tcp => Some(Life::Tcp),
            Self::Udp => Some(Life::Request),
            _ => None,
        }
    }

    /// How many packets each has.
    pub(super) fn packets(self) -> usize {
        self.life().map_or(1, |life| life.packets().len())
    }

    pub(super) fn name(self) -> String {
        let flows = self.flows().name();
        match (self, self.life()) {
            (_, Some(life)) => format!("{}, {flows}", life.name()),
            (Self::FirewallEach | Self::NatEach, _) => format!("opening, {flows}, each decided"),
            _ => format!("opening, {flows}"),
        }
    }

    /// While so many others are alive.
    pub(super) fn series(self, alive: u32) -> anyhow::Result<Box<dyn Series>> {
        Ok(match self.life() {
            Some(life) => Box::new(Lives::alone(life, alive)?),
            None => Box::new(Opening::new(self, alive)?),
        })
    }
}

/// Packets each of which opens a connection, while as many end as are opened.
struct Opening {
    name: String,
    worker: Worker,
    ports: [MemoryHandle; 2],
    sender: Sender,
    next: u64,
    alive: u32,
    step: u64,
    now: Time,
    caches: [CacheSettings; 4],
}

impl Opening {
    fn new(kind: Opened, alive: u32) -> anyhow::Result<Self> {
        let tables = tables(kind.flows(), alive + alive / 4 + 1024)?;
        let caches = Cache::Auto.settings(0);
        let (mut worker, ports) = worker(tables, caches)?;
        // Nobody answers, so each connection lives as long as one without an answer does.
        let lives = 30_000_000_000_u64;
        let step = lives * BATCH as u64 / u64::from(alive.max(1));
        let sender = Sender::new(Carried::Udp, 0);
        let name = kind.name();
        if matches!(kind, Opened::FirewallEach | Opened::NatEach) {
            worker.decide_each();
        }
        Ok(Self { name, worker, ports, sender, next: 0, alive, step, now: START, caches })
    }

    fn round(&mut self, stopwatch: &mut Stopwatch<'_>) -> anyhow::Result<u64> {
        for _ in 0..BATCH {
            let frame = self.sender.frame(self.next, false, TcpFlags::SYN, 0);
            self.next += 1;
            ensure!(self.ports[0].push(frame), "the port is full");
        }
        self.now = Time(self.now.0 + self.step);
        stopwatch.start();
        let received = self.worker.poll(self.now);
        stopwatch.stop();
        ensure!(received.ok() == Some(BATCH), "not every packet was received");
        let mut sent = 0;
        while self.ports[1].pop_with(|_| ()).is_some() {
            sent += 1;
        }
        ensure!(sent == BATCH, "{}: {sent} of {BATCH} sent; {}", self.name, dropped(&self.worker));
        Ok(BATCH as u64)
    }
}

impl Series for Opening {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn warm_up(&mut self, meter: &Meter, effort: Effort) -> anyhow::Result<()> {
        let packets = u64::from(self.alive) + u64::from(self.alive) / 4;
        let packets = packets.max(time_to_judge(&self.caches));
        let all = Effort { packets, longest: std::time::Duration::MAX, ..effort };
        meter.run(all, |stopwatch| self.round(stopwatch)).map(drop)
    }

    fn run(&mut self, meter: &Meter, effort: Effort) -> anyhow::Result<Sample> {
        meter.run(effort, |stopwatch| self.round(stopwatch))
    }
}
