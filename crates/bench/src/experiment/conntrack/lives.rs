//! Connections from their beginning to their end, alone or among others that stay.

use anyhow::{Context as _, ensure};
use flow::{CacheMode, CacheSettings};
use io::memory::MemoryHandle;
use packet::{BATCH, Time};
use path::Worker;
use wire::{TcpFlags, ethernet, ipv4};

use super::gateway::{tables, worker};
use super::sender::Sender;
use super::{Cache, Carried, DATA, Flows, START, time_to_judge};
use crate::dut::{dropped, lookups};
use crate::measure::{Effort, Lookups, Meter, Sample, Series, Stopwatch};
use crate::traffic::{Spread, Traffic};

/// Which packets a connection has from its beginning to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Life {
    /// SYN, SYN-ACK, ACK, FIN, FIN-ACK, ACK.
    Tcp,
    /// A request and its answer.
    Request,
}

impl Life {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "TCP, six packets",
            Self::Request => "UDP, request and answer",
        }
    }

    /// What each side sends: whether it is an answer, and the flags.
    pub(super) fn packets(self) -> Vec<(bool, TcpFlags)> {
        let (syn, ack, fin) = (TcpFlags::SYN, TcpFlags::ACK, TcpFlags::FIN);
        let and_ack = |flags: TcpFlags| TcpFlags(flags.0 | ack.0);
        match self {
            Self::Request => vec![(false, syn), (true, syn)],
            Self::Tcp => vec![
                (false, syn),
                (true, and_ack(syn)),
                (false, ack),
                (false, and_ack(fin)),
                (true, and_ack(fin)),
                (false, ack),
            ],
        }
    }
}

/// Connections that are opened, used and ended, while others are there that stay.
pub(super) struct Lives {
    name: String,
    life: Life,
    worker: Worker,
    ports: [MemoryHandle; 2],
    /// Of those that begin and end, and how many packets of a batch are theirs.
    sender: Sender,
    each: usize,
    next: u64,
    /// Of those that stay, whose packets the others are.
    staying: Sender,
    traffic: Traffic,
    alive: u32,
    now: Time,
    caches: [CacheSettings; 4],
}

impl Lives {
    /// All packets are of connections that begin and end.
    pub(super) fn alone(life: Life, alive: u32) -> anyhow::Result<Self> {
        Self::new(life, alive, Cache::Auto, BATCH)
    }

    /// One packet in ten is.
    pub(super) fn mixed(cache: Cache, alive: u32) -> anyhow::Result<Self> {
        let mixed = Self::new(Life::Tcp, alive, cache, BATCH / 10)?;
        Ok(Self { name: format!("mixed, cache {}", cache.name()), ..mixed })
    }

    fn new(life: Life, alive: u32, cache: Cache, each: usize) -> anyhow::Result<Self> {
        let carried = if life == Life::Tcp { Carried::Tcp } else { Carried::Udp };
        let caches = cache.settings(alive);
        let tables = tables(Flows::Firewall, alive + alive / 4 + 4096)?;
        let (worker, ports) = worker(tables, caches)?;
        Ok(Self {
            name: format!("{}, firewall", life.name()),
            life,
            worker,
            ports,
            sender: Sender::new(carried, BATCH as u32),
            each,
            next: alive.into(),
            staying: Sender::new(Carried::Tcp, alive),
            traffic: Traffic::new(alive.into(), Spread::UNIFORM, 1),
            alive,
            now: START,
            caches,
        })
    }

    /// Opens those that stay, which last for days.
    fn open(&mut self) -> anyhow::Result<()> {
        let all: Vec<u64> = (0..self.alive.into()).collect();
        for part in all.chunks(BATCH) {
            for (is_answer, flags) in &Life::Tcp.packets()[..3] {
                for &number in part {
                    let frame = self.staying.frame(number, *is_answer, *flags, 0);
                    ensure!(self.ports[usize::from(*is_answer)].push(frame), "the port is full");
                }
                self.poll(part.len())?;
                for &number in part {
                    let seen = self.sent(!is_answer)?;
                    if !is_answer {
                        self.staying.ends[number as usize].answered = seen;
                    }
                }
            }
        }
        Ok(())
    }

    fn poll(&mut self, count: usize) -> anyhow::Result<()> {
        let received = self.worker.poll(self.now);
        ensure!(received.ok() == Some(count), "not every packet was received");
        Ok(())
    }

    /// The source of the next frame that has left, which must be there.
    fn sent(&mut self, by_out: bool) -> anyhow::Result<([u8; 4], [u8; 2])> {
        let source = self.ports[usize::from(by_out)].pop_with(|frame| {
            let (mut address, mut port) = ([0; 4], [0; 2]);
            address.copy_from_slice(&frame[ethernet::HEADER_LENGTH + 12..][..4]);
            port.copy_from_slice(&frame[ethernet::HEADER_LENGTH + ipv4::HEADER_LENGTH..][..2]);
            (address, port)
        });
        source.with_context(|| format!("{}: {}", self.name, dropped(&self.worker)))
    }

    fn round(&mut self, stopwatch: &mut Stopwatch<'_>) -> anyhow::Result<u64> {
        let packets = self.life.packets();
        // Those that have ended are remembered for two minutes, and are an eighth of the others.
        self.now =
            Time(self.now.0 + 120_000_000_000 * self.each as u64 * 8 / u64::from(self.alive));
        for (is_answer, flags) in &packets {
            let port = &mut self.ports[usize::from(*is_answer)];
            for number in (self.next..).take(self.each) {
                let frame = self.sender.frame(number, *is_answer, *flags, 0);
                ensure!(port.push(frame), "the port is full");
            }
            for _ in self.each..BATCH {
                let number = self.traffic.next_flow();
                let frame = self.staying.frame(number, *is_answer, TcpFlags::ACK, DATA);
                ensure!(port.push(frame), "the port is full");
            }
            stopwatch.start();
            let received = self.poll(BATCH);
            stopwatch.stop();
            received?;
            for place in 0..BATCH {
                let seen = self.sent(!is_answer)?;
                if !is_answer && place < self.each {
                    let number = self.next + place as u64;
                    self.sender.ends[number as usize % BATCH].answered = seen;
                }
            }
        }
        self.next += self.each as u64;
        Ok((packets.len() * BATCH) as u64)
    }
}

impl Series for Lives {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn warm_up(&mut self, meter: &Meter, effort: Effort) -> anyhow::Result<()> {
        self.open()?;
        // Until as many end as begin, every flow that stays has come by, and the cache has had its time.
        let packets = 2 * self.life.packets().len() as u64 * u64::from(self.alive) / 6;
        let packets = packets.max(time_to_judge(&self.caches));
        let all = Effort { packets, longest: std::time::Duration::MAX, ..effort };
        meter.run(all, |stopwatch| self.round(stopwatch)).map(drop)
    }

    fn run(&mut self, meter: &Meter, effort: Effort) -> anyhow::Result<Sample> {
        meter.run(effort, |stopwatch| self.round(stopwatch))
    }

    fn lookups(&self) -> Lookups {
        lookups(&self.worker, self.caches.map(|cache| cache.mode != CacheMode::Off))
    }
}
