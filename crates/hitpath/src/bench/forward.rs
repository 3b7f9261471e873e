//! `hitpath bench forward`: plain forwarding, from memory port to memory port, by the worker that live traffic goes through.

use std::net::Ipv4Addr;

use io::memory::{self, MemoryHandle, MemoryOptions, MemoryPort};
use packet::{BATCH, Batch, LinkKind, Pool, Port, Time};
use path::{Worker, WorkerSettings};
use serde_json::json;
use tables::{PortSpec, Publisher, RouteKind, Tables};
use wire::ethernet::{self, EtherType};
use wire::{IpPrefix, Mac, PortId, Protocol, VrfId, ipv4, ipv6};

use super::measure::{self, Effort, Series, Watch};
use super::{Progress, Row};

const IN: PortId = PortId(0);
const OUT: PortId = PortId(1);
const PEER: Mac = Mac([2, 0xbb, 0, 0, 0, 1]);
const FRAME: usize = 64;

/// The series: the ports alone, then forwarding with one flow and with many.
pub(super) fn run(effort: Effort, flows: &[u32], progress: &Progress) -> anyhow::Result<Vec<Row>> {
    let mut series: Vec<Box<dyn Series>> = vec![Box::new(PortsAlone::new())];
    let mut parameters = vec![json!({ "family": "ipv4", "flows": 1, "frame_bytes": FRAME })];
    for (v6, family) in [(false, "ipv4"), (true, "ipv6")] {
        for &flows in flows {
            series.push(Box::new(Forward::new(v6, flows)?));
            parameters.push(json!({ "family": family, "flows": flows, "frame_bytes": FRAME }));
        }
    }
    let done = progress.over(measure::steps(series.len(), effort), "forward");
    let costs = measure::measure(&mut series, effort, done);
    let rows = series.iter().zip(parameters).zip(costs);
    Ok(rows.map(|((series, parameters), cost)| Row::new("forward", series.name(), parameters, FRAME, cost)).collect())
}

/// What the memory ports themselves cost: receive a batch, transmit it, and nothing between.
struct PortsAlone {
    input: Input,
    receiver: MemoryPort,
    sender: MemoryPort,
    pool: Pool,
    out: MemoryHandle,
}

impl PortsAlone {
    fn new() -> Self {
        let (receiver, handle) = memory::port(MemoryOptions::ethernet("in", IN), 2 * BATCH);
        let (sender, out) = memory::port(MemoryOptions::ethernet("out", OUT), 2 * BATCH);
        Self { input: Input::new(handle, frames(false, 1)), receiver, sender, pool: Pool::new(4 * BATCH), out }
    }
}

impl Series for PortsAlone {
    fn name(&self) -> String {
        "ports alone".to_owned()
    }

    fn batch(&mut self, watch: &mut Watch<'_>) -> u64 {
        self.input.fill();
        let mut batch = Batch::new();
        watch.start();
        let received = self.receiver.receive(Time(0), &mut self.pool, &mut batch).unwrap_or(0);
        let sent = self.sender.transmit(Time(0), &mut self.pool, &mut batch);
        watch.stop();
        drain(&mut self.out);
        if sent.is_err() { 0 } else { received as u64 }
    }
}

/// The whole way: receive, parse, decide, apply, transmit.
struct Forward {
    name: String,
    input: Input,
    worker: Worker,
    out: MemoryHandle,
    /// Publishes the tables that the worker reads.
    _publisher: Publisher,
}

impl Forward {
    fn new(v6: bool, flows: u32) -> anyhow::Result<Self> {
        let publisher = Publisher::new(tables(v6)?);
        let (receiver, handle) = memory::port(MemoryOptions::ethernet("in", IN), 2 * BATCH);
        let (sender, out) = memory::port(MemoryOptions::ethernet("out", OUT), 2 * BATCH);
        let (events, _) = rtrb::RingBuffer::new(16);
        let (_, probes) = rtrb::RingBuffer::new(16);
        let settings = WorkerSettings {
            index: 0,
            buffers: 4 * BATCH,
            seed: [1; 32],
            caches: [flow::CacheSettings::default(); 4],
            ticks: crate::clock::ticks,
        };
        let mut worker = Worker::new(&settings, publisher.shared().reader(), events, probes);
        worker.attach(IN, Box::new(receiver));
        worker.attach(OUT, Box::new(sender));
        let family = if v6 { "IPv6" } else { "IPv4" };
        let plural = if flows == 1 { "" } else { "s" };
        let name = format!("{family}, {flows} flow{plural}");
        Ok(Self { name, input: Input::new(handle, frames(v6, flows)), worker, out, _publisher: publisher })
    }
}

impl Series for Forward {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn batch(&mut self, watch: &mut Watch<'_>) -> u64 {
        self.input.fill();
        watch.start();
        let received = self.worker.poll(Time(0)).unwrap_or(0);
        watch.stop();
        // What did not come out was not forwarded, and does not count.
        drain(&mut self.out).min(received as u64)
    }
}

/// Frames that go in over and over, in turn.
struct Input {
    handle: MemoryHandle,
    frames: Vec<Vec<u8>>,
    next: usize,
}

impl Input {
    fn new(handle: MemoryHandle, frames: Vec<Vec<u8>>) -> Self {
        Self { handle, frames, next: 0 }
    }

    fn fill(&mut self) {
        for _ in 0..BATCH {
            if !self.handle.push(&self.frames[self.next]) {
                break;
            }
            self.next = (self.next + 1) % self.frames.len();
        }
    }
}

fn drain(out: &mut MemoryHandle) -> u64 {
    let mut count = 0;
    while out.pop_with(|_| ()).is_some() {
        count += 1;
    }
    count
}

fn tables(v6: bool) -> anyhow::Result<Tables> {
    let mut tables = Tables::new(1, 1);
    for (id, name, address) in [(IN, "in", "10.0.0.1/24"), (OUT, "out", "10.0.1.1/24")] {
        let v6_address = if id == IN { "fd00::1/64" } else { "fd01::1/64" };
        let spec = PortSpec {
            name: name.into(),
            vrf: VrfId::MAIN,
            link: LinkKind::Ethernet,
            mac: MemoryOptions::ethernet(name, id).mac,
            mtu: 1500,
            addresses: vec![address.parse()?, v6_address.parse()?],
            up: true,
        };
        tables.add_port(id, spec)?;
    }
    let next_hop = if v6 { "fd01::2" } else { "10.0.1.2" }.parse()?;
    tables.set_neighbour(OUT, next_hop, PEER)?;
    // Destinations are spread over 256 prefixes, so that the FIB is not one entry.
    for i in 0..=255_u8 {
        let prefix: IpPrefix =
            if v6 { format!("2001:db8:{i:x}::/48").parse()? } else { format!("198.18.{i}.0/24").parse()? };
        tables.set_route(VrfId::MAIN, prefix, RouteKind::Via { port: OUT, next_hop })?;
    }
    Ok(tables)
}

/// One frame of [`FRAME`] bytes for each flow: flows differ in source, destination and ports.
fn frames(v6: bool, flows: u32) -> Vec<Vec<u8>> {
    (0..flows)
        .map(|flow| {
            let to = MemoryOptions::ethernet("in", IN).mac;
            let ether_type = if v6 { EtherType::IPV6 } else { EtherType::IPV4 };
            let mut frame = ethernet::Header { destination: to, source: PEER, ether_type }.to_bytes().to_vec();
            let [a, b, c, d] = flow.wrapping_mul(0x9e37_79b1).to_be_bytes();
            let upper_length = FRAME - 14 - if v6 { 40 } else { 20 };
            if v6 {
                let header = ipv6::Header {
                    payload_length: upper_length as u16,
                    next_header: Protocol::UDP,
                    source: [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, a, b, c, d].into(),
                    destination: [0x20, 0x01, 0x0d, 0xb8, 0, a, 0, 0, 0, 0, 0, 0, 0, b, c, d].into(),
                    ..ipv6::Header::default()
                };
                frame.extend(header.to_bytes());
            } else {
                let header = ipv4::Header {
                    total_length: (FRAME - 14) as u16,
                    protocol: Protocol::UDP,
                    source: Ipv4Addr::new(10, b, c, d | 1),
                    destination: Ipv4Addr::new(198, 18, a, b),
                    ..ipv4::Header::default()
                };
                frame.extend(header.to_bytes());
            }
            let ports = [c, d, a, b];
            frame.extend(ports);
            frame.extend((upper_length as u16).to_be_bytes());
            frame.resize(FRAME, 0);
            frame
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A bench that drops its packets would be fast, and measure nothing.
    #[test]
    fn every_packet_of_the_bench_is_forwarded() {
        for v6 in [false, true] {
            let mut series = Forward::new(v6, 1000).unwrap();
            for _ in 0..8 {
                series.input.fill();
                assert_eq!(series.worker.poll(Time(0)).unwrap(), BATCH);
                assert_eq!(drain(&mut series.out), BATCH as u64);
            }
            assert_eq!(series.worker.statistics().drops.total(), 0);
        }
    }
}
