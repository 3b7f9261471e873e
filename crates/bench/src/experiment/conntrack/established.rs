//! A gateway, and established connections through it.

use anyhow::ensure;
use flow::CacheMode;
use io::memory::MemoryHandle;
use packet::{BATCH, Time};
use path::Worker;
use tables::Tables;
use wire::{TcpFlags, ethernet};

use super::gateway::worker;
use super::sender::Sender;
use super::{Cache, Carried, DATA, START};
use crate::dut::{SETTLING, dropped, lookups};
use crate::measure::{Effort, Lookups, Meter, Sample, Series, Stopwatch};
use crate::traffic::{Spread, Traffic};

/// So much time passes with a batch.
const BATCH_TIME: u64 = 25_600;

/// A worker between two ports, with packets both ways, or one way alone.
pub(super) struct Established {
    name: String,
    pub(super) worker: Worker,
    pub(super) ports: [MemoryHandle; 2],
    pub(super) sender: Sender,
    traffic: Traffic,
    /// How many are opened.
    connections: u32,
    is_answer: bool,
    now: Time,
    cached: [bool; 4],
}

impl Established {
    /// Through a gateway with these tables.
    pub(super) fn new(
        name: String,
        tables: Tables,
        carried: Carried,
        cache: Cache,
        connections: u32,
    ) -> anyhow::Result<Self> {
        let caches = cache.settings(connections);
        let (mut worker, ports) = worker(tables, caches)?;
        if cache == Cache::Published {
            worker.decide_each();
        }
        let cached = caches.map(|cache| cache.mode != CacheMode::Off);
        let traffic = Traffic::new(connections.into(), Spread::UNIFORM, 1);
        let (sender, is_answer, now) = (Sender::new(carried, connections), false, START);
        Ok(Self { name, worker, ports, sender, traffic, connections, is_answer, now, cached })
    }

    /// Has packets of the first `drawn` connections alone, all of which come by first.
    pub(super) fn draw(&mut self, drawn: u32) {
        self.traffic = Traffic::new(drawn.into(), Spread::UNIFORM, 1);
    }

    /// Opens the connections.
    pub(super) fn open(&mut self) -> anyhow::Result<()> {
        let all: Vec<u64> = (0..self.connections.into()).collect();
        let (syn, ack) = (TcpFlags::SYN, TcpFlags::ACK);
        let rounds = match self.sender.carried {
            Carried::Udp => vec![(false, syn), (true, syn), (false, syn)],
            Carried::UdpOneWay => vec![(false, syn)],
            Carried::Tcp => vec![(false, syn), (true, TcpFlags(syn.0 | ack.0)), (false, ack)],
        };
        for part in all.chunks(BATCH) {
            for &(is_answer, flags) in &rounds {
                for &number in part {
                    let frame = self.sender.frame(number, is_answer, flags, 0);
                    ensure!(self.ports[usize::from(is_answer)].push(frame), "the port is full");
                }
                ensure!(self.poll(None)? == part.len(), "not every packet was received");
                for &number in part {
                    let (ends, out) =
                        (&mut self.sender.ends, &mut self.ports[usize::from(!is_answer)]);
                    let seen = out.pop_with(|frame| {
                        let answered = &frame[ethernet::HEADER_LENGTH..];
                        let mut address = [0; 4];
                        address.copy_from_slice(&answered[12..16]);
                        (address, [answered[20], answered[21]])
                    });
                    ensure!(seen.is_some(), "{}: {}", self.name, dropped(&self.worker));
                    if let Some(seen) = seen.filter(|_| !is_answer) {
                        ends[number as usize].answered = seen;
                    }
                }
            }
        }
        Ok(())
    }

    /// The worker's round, which alone is measured. Returns how many packets it has received.
    pub(super) fn poll(
        &mut self,
        mut stopwatch: Option<&mut Stopwatch<'_>>,
    ) -> anyhow::Result<usize> {
        self.now = Time(self.now.0 + BATCH_TIME);
        if let Some(stopwatch) = &mut stopwatch {
            stopwatch.start();
        }
        let received = self.worker.poll(self.now);
        if let Some(stopwatch) = &mut stopwatch {
            stopwatch.stop();
        }
        received.map_err(|(port, error)| anyhow::anyhow!("port {}: {error}", port.0))
    }

    /// Puts in the next packet of a connection, of the one or the other side.
    pub(super) fn push(&mut self, is_answer: bool) -> anyhow::Result<()> {
        let number = self.traffic.next_flow();
        self.push_of(number, is_answer)
    }

    /// The same of connection `number`.
    pub(super) fn push_of(&mut self, number: u64, is_answer: bool) -> anyhow::Result<()> {
        let frame = self.sender.frame(number, is_answer, TcpFlags::ACK, DATA);
        ensure!(self.ports[usize::from(is_answer)].push(frame), "the port is full");
        Ok(())
    }

    /// A batch of the one side, or of the other by turns.
    pub(super) fn round(&mut self, stopwatch: &mut Stopwatch<'_>) -> anyhow::Result<u64> {
        let is_answer = self.is_answer;
        self.is_answer = !is_answer && self.sender.carried != Carried::UdpOneWay;
        for _ in 0..BATCH {
            self.push(is_answer)?;
        }
        let received = self.poll(Some(stopwatch))?;
        ensure!(received == BATCH, "not every packet was received");
        let mut sent = 0;
        while self.ports[usize::from(!is_answer)].pop_with(|_| ()).is_some() {
            sent += 1;
        }
        ensure!(sent == BATCH, "{}: {sent} of {BATCH} sent; {}", self.name, dropped(&self.worker));
        Ok(BATCH as u64)
    }

    /// Every packet of the connections twice, and then on until a cache that adapts can have done so.
    pub(super) fn settle(&mut self, meter: &Meter, effort: Effort) -> anyhow::Result<()> {
        let all = Effort {
            packets: 2 * u64::from(self.connections),
            longest: std::time::Duration::MAX,
            ..effort
        };
        meter.run(all, |stopwatch| self.round(stopwatch))?;
        let long = Effort {
            packets: SETTLING * effort.packets,
            longest: SETTLING as u32 * effort.longest,
            ..effort
        };
        meter.run(long, |stopwatch| self.round(stopwatch)).map(drop)
    }
}

impl Series for Established {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn warm_up(&mut self, meter: &Meter, effort: Effort) -> anyhow::Result<()> {
        self.open()?;
        self.settle(meter, effort)
    }

    fn run(&mut self, meter: &Meter, effort: Effort) -> anyhow::Result<Sample> {
        meter.run(effort, |stopwatch| self.round(stopwatch))
    }

    fn lookups(&self) -> Lookups {
        lookups(&self.worker, self.cached)
    }
}
