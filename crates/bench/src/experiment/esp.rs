//! `hitpath bench esp`: sealing and opening, beside what the library alone costs for the same
//! bytes.

use esp::bench::Raw;
use esp::{Algorithm, InboundSa, KeyMaterial, OpenJob, OutboundSa, SealJob, WindowSize};
use packet::BATCH;
use rand::SeedableRng;
use rand::rngs::StdRng;
use serde_json::json;
use wire::{Protocol, Spi};

use crate::context::Context;
use crate::measure::{Batches, Series, Stopwatch};
use crate::row::Row;
use crate::text;
use crate::topology::keys;

/// Where a payload stands in its buffer, and how large the buffer is.
const FRONT: usize = 64;
const ROOM: usize = 2048;

/// What is to be measured.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Options {
    /// Payload (inner packet) sizes in bytes
    #[arg(long, value_delimiter = ',', default_value = "64,1400", value_parser = clap::value_parser!(u16).range(1..=1800))]
    sizes: Vec<u16>,
}

/// For every algorithm and size: seal, the library's part of it, open, the library's part of it.
pub(crate) fn run(context: &Context, options: &Options) -> anyhow::Result<Vec<Row>> {
    let mut rows = Vec::new();
    for algorithm in Algorithm::ALL {
        for size in options.sizes.iter().map(|&size| usize::from(size)) {
            let keys = keys(algorithm)?;
            let mut series: Vec<Box<dyn Series>> = vec![
                Box::new(Seal::new(&keys, size)),
                Box::new(Library::new(&keys, size, false)),
                Box::new(Open::new(&keys, size)?),
                Box::new(Library::new(&keys, size, true)),
            ];
            let costs = context.measure(&format!("esp {algorithm}, {size} bytes"), &mut series)?;
            for (series, cost) in series.iter().zip(costs) {
                let parameters =
                    json!({ "algorithm": algorithm.to_string(), "payload_bytes": size });
                rows.push(Row::new("esp", series.name(), parameters, Some(size), cost));
            }
        }
    }
    Ok(rows)
}

/// One line for each algorithm and size: what the SA costs, the library alone, and by how much they
/// differ.
pub(crate) fn render(rows: &[&Row]) -> String {
    let cells: Vec<Vec<String>> = rows
        .chunks_exact(4)
        .map(|rows| {
            let cycles = |at: usize| rows[at].cost.cycles_per_packet;
            let cell = |at: usize| format!("{:.0}{}", cycles(at), rows[at].mark());
            let pair = |at: usize| {
                let ratio = format!("{:.2}", cycles(at) / cycles(at + 1));
                let spread =
                    format!("{:.0}-{:.0}", rows[at].cost.cycles_min, rows[at].cost.cycles_max);
                [
                    cell(at),
                    spread,
                    cell(at + 1),
                    ratio,
                    format!("{:.2}", rows[at].gbps.unwrap_or_default()),
                ]
            };
            let what = [rows[0].text("algorithm"), rows[0].text("payload_bytes")];
            what.into_iter().chain(pair(0)).chain(pair(2)).collect()
        })
        .collect();
    let heading = [
        "algorithm",
        "bytes",
        "seal",
        "least-most",
        "library",
        "ratio",
        "Gbit/s",
        "open",
        "least-most",
        "library",
        "ratio",
        "Gbit/s",
    ];
    text::title("ESP: cycles per packet, beside the library alone") + &text::table(&heading, &cells)
}

fn buffers(size: usize) -> Vec<Vec<u8>> {
    (0..BATCH).map(|i| (0..ROOM).map(|at| (i + at + size) as u8).collect()).collect()
}

struct Seal {
    sa: OutboundSa,
    keys: KeyMaterial,
    buffers: Vec<Vec<u8>>,
    size: usize,
    randomness: StdRng,
}

impl Seal {
    fn new(keys: &KeyMaterial, size: usize) -> Self {
        let mut randomness = StdRng::from_seed([1; 32]);
        let sa = OutboundSa::new(Spi(1), keys, 0, &mut randomness);
        Self { sa, keys: keys.clone(), buffers: buffers(size), size, randomness }
    }
}

impl Batches for Seal {
    fn name(&self) -> String {
        "seal".to_owned()
    }

    fn batch(&mut self, stopwatch: &mut Stopwatch<'_>) -> u64 {
        if self.sa.sequence() > u32::MAX / 2 {
            self.sa = OutboundSa::new(Spi(1), &self.keys, 0, &mut self.randomness);
        }
        let mut jobs: Vec<_> = self
            .buffers
            .iter_mut()
            .map(|buffer| SealJob::new(buffer, FRONT, self.size, Protocol::IPV4))
            .collect();
        stopwatch.start();
        self.sa.seal(&mut jobs, &mut self.randomness);
        stopwatch.stop();
        jobs.iter().filter(|job| job.result.is_ok()).count() as u64
    }
}

struct Open {
    inbound: InboundSa,
    outbound: OutboundSa,
    keys: KeyMaterial,
    buffers: Vec<Vec<u8>>,
    size: usize,
    randomness: StdRng,
}

impl Open {
    fn new(keys: &KeyMaterial, size: usize) -> anyhow::Result<Self> {
        let mut randomness = StdRng::from_seed([2; 32]);
        let outbound = OutboundSa::new(Spi(1), keys, 0, &mut randomness);
        let inbound = InboundSa::new(Spi(1), keys, WindowSize::new(1024)?, 0);
        Ok(Self { inbound, outbound, keys: keys.clone(), buffers: buffers(size), size, randomness })
    }
}

impl Batches for Open {
    fn name(&self) -> String {
        "open".to_owned()
    }

    fn batch(&mut self, stopwatch: &mut Stopwatch<'_>) -> u64 {
        if self.outbound.sequence() > u32::MAX / 2 {
            self.outbound = OutboundSa::new(Spi(1), &self.keys, 0, &mut self.randomness);
            self.inbound = InboundSa::new(Spi(1), &self.keys, self.inbound.window(), 0);
        }
        let mut sealing: Vec<_> = self
            .buffers
            .iter_mut()
            .map(|buffer| SealJob::new(buffer, FRONT, self.size, Protocol::IPV4))
            .collect();
        self.outbound.seal(&mut sealing, &mut self.randomness);
        let mut jobs: Vec<_> = sealing
            .into_iter()
            .map(|job| OpenJob::new(job.buffer, job.start, job.length))
            .collect();
        stopwatch.start();
        self.inbound.open(&mut jobs);
        stopwatch.stop();
        jobs.iter().filter(|job| job.result.is_ok()).count() as u64
    }
}

/// The same bytes through the same library, without ESP around them.
struct Library {
    raw: Raw,
    packets: Vec<Vec<u8>>,
    sealed: Vec<Vec<u8>>,
    open: bool,
}

impl Library {
    fn new(keys: &KeyMaterial, size: usize, open: bool) -> Self {
        let raw = Raw::new(keys);
        let length = keys.algorithm().sealed_length(size);
        let mut packets: Vec<Vec<u8>> =
            buffers(size).into_iter().map(|buffer| buffer[..length].to_vec()).collect();
        packets.iter_mut().for_each(|packet| raw.protect(packet));
        Self { raw, sealed: packets.clone(), packets, open }
    }
}

impl Batches for Library {
    fn name(&self) -> String {
        if self.open { "library, open".to_owned() } else { "library, seal".to_owned() }
    }

    fn batch(&mut self, stopwatch: &mut Stopwatch<'_>) -> u64 {
        let mut right = self.packets.len() as u64;
        if self.open {
            for (packet, sealed) in self.packets.iter_mut().zip(&self.sealed) {
                packet.copy_from_slice(sealed);
            }
            right = 0;
            stopwatch.start();
            for packet in &mut self.packets {
                right += u64::from(self.raw.unprotect(packet));
            }
            stopwatch.stop();
        } else {
            stopwatch.start();
            for packet in &mut self.packets {
                self.raw.protect(packet);
            }
            stopwatch.stop();
        }
        right
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_packet_is_sealed_and_opened() {
        let keys = keys(Algorithm::AesGcm128).unwrap();
        let context = Context::tiny();
        let mut series: [Box<dyn Batches>; 4] = [
            Box::new(Seal::new(&keys, 64)),
            Box::new(Library::new(&keys, 64, false)),
            Box::new(Open::new(&keys, 64).unwrap()),
            Box::new(Library::new(&keys, 64, true)),
        ];
        for series in &mut series {
            let mut packets = 0;
            let batch = |stopwatch: &mut Stopwatch<'_>| {
                packets = series.batch(stopwatch);
                Ok(packets)
            };
            context.meter.run(context.effort, batch).unwrap();
            assert_eq!(packets, BATCH as u64);
        }
    }
}
