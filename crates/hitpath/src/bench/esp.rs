//! `hitpath bench esp`: sealing and opening, beside what the library alone costs for the same bytes.

use esp::bench::Raw;
use esp::{Algorithm, InboundSa, KeyMaterial, OpenJob, OutboundSa, SealJob, WindowSize};
use packet::BATCH;
use rand::SeedableRng;
use rand::rngs::StdRng;
use serde_json::json;
use wire::{Protocol, Spi};

use super::measure::{self, Effort, Series, Watch};
use super::{Progress, Row};
use crate::view::table;

/// Where a payload stands in its buffer, and how large the buffer is.
const FRONT: usize = 64;
const ROOM: usize = 2048;

/// For every algorithm and size: seal, the library's part of it, open, the library's part of it.
pub(super) fn run(effort: Effort, sizes: &[usize], progress: &Progress) -> anyhow::Result<Vec<Row>> {
    let mut rows = Vec::new();
    for algorithm in Algorithm::ALL {
        for &size in sizes {
            let keys = keys(algorithm)?;
            let mut series: Vec<Box<dyn Series>> = vec![
                Box::new(Seal::new(&keys, size)),
                Box::new(Library::new(&keys, size, false)),
                Box::new(Open::new(&keys, size)?),
                Box::new(Library::new(&keys, size, true)),
            ];
            let what = format!("esp {algorithm}, {size} bytes");
            let done = progress.over(measure::steps(series.len(), effort), &what);
            let costs = measure::measure(&mut series, effort, done);
            for (series, cost) in series.iter().zip(costs) {
                let parameters = json!({ "algorithm": algorithm.to_string(), "payload_bytes": size });
                rows.push(Row::new("esp", series.name(), parameters, size, cost));
            }
        }
    }
    Ok(rows)
}

/// One line for each algorithm and size: what the SA costs, the library alone, and by how much they differ.
pub(super) fn render(rows: &[&Row]) -> String {
    let cells: Vec<Vec<String>> = rows
        .chunks_exact(4)
        .map(|rows| {
            let cycles = |at: usize| rows[at].cost.cycles_per_packet;
            let pair = |at: usize| {
                let ratio = format!("{:.2}", cycles(at) / cycles(at + 1));
                let spread = format!("{:.0}-{:.0}", rows[at].cost.cycles_min, rows[at].cost.cycles_max);
                [
                    format!("{:.0}", cycles(at)),
                    spread,
                    format!("{:.0}", cycles(at + 1)),
                    ratio,
                    format!("{:.2}", rows[at].gbps),
                ]
            };
            let parameters = &rows[0].parameters;
            let algorithm = parameters["algorithm"].as_str().unwrap_or_default().to_owned();
            let what = [algorithm, parameters["payload_bytes"].to_string()];
            what.into_iter().chain(pair(0)).chain(pair(2)).collect()
        })
        .collect();
    let heading = [
        "ALGORITHM",
        "BYTES",
        "SEAL",
        "MIN-MAX",
        "LIBRARY",
        "RATIO",
        "GBIT/S",
        "OPEN",
        "MIN-MAX",
        "LIBRARY",
        "RATIO",
        "GBIT/S",
    ];
    table(&heading, &cells)
}

fn keys(algorithm: Algorithm) -> anyhow::Result<KeyMaterial> {
    let bytes = [0x5a; 64];
    let integrity = match algorithm {
        Algorithm::Separate { integrity, .. } => integrity.usual_key_length(),
        Algorithm::AesGcm128 | Algorithm::AesGcm256 | Algorithm::NullWithoutIntegrity => 0,
    };
    Ok(KeyMaterial::new(algorithm, &bytes[..algorithm.encryption_key_length()], &bytes[..integrity])?)
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

impl Series for Seal {
    fn name(&self) -> String {
        "seal".to_owned()
    }

    fn batch(&mut self, watch: &mut Watch<'_>) -> u64 {
        if self.sa.sequence() > u32::MAX / 2 {
            self.sa = OutboundSa::new(Spi(1), &self.keys, 0, &mut self.randomness);
        }
        let mut jobs: Vec<_> =
            self.buffers.iter_mut().map(|buffer| SealJob::new(buffer, FRONT, self.size, Protocol::IPV4)).collect();
        watch.start();
        self.sa.seal(&mut jobs, &mut self.randomness);
        watch.stop();
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

impl Series for Open {
    fn name(&self) -> String {
        "open".to_owned()
    }

    fn batch(&mut self, watch: &mut Watch<'_>) -> u64 {
        if self.outbound.sequence() > u32::MAX / 2 {
            self.outbound = OutboundSa::new(Spi(1), &self.keys, 0, &mut self.randomness);
            self.inbound = InboundSa::new(Spi(1), &self.keys, self.inbound.window(), 0);
        }
        let mut sealing: Vec<_> =
            self.buffers.iter_mut().map(|buffer| SealJob::new(buffer, FRONT, self.size, Protocol::IPV4)).collect();
        self.outbound.seal(&mut sealing, &mut self.randomness);
        let mut jobs: Vec<_> = sealing.into_iter().map(|job| OpenJob::new(job.buffer, job.start, job.length)).collect();
        watch.start();
        self.inbound.open(&mut jobs);
        watch.stop();
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
        let mut packets: Vec<Vec<u8>> = buffers(size).into_iter().map(|buffer| buffer[..length].to_vec()).collect();
        packets.iter_mut().for_each(|packet| raw.protect(packet));
        Self { raw, sealed: packets.clone(), packets, open }
    }
}

impl Series for Library {
    fn name(&self) -> String {
        if self.open { "library, open".to_owned() } else { "library, seal".to_owned() }
    }

    fn batch(&mut self, watch: &mut Watch<'_>) -> u64 {
        let mut right = self.packets.len() as u64;
        if self.open {
            for (packet, sealed) in self.packets.iter_mut().zip(&self.sealed) {
                packet.copy_from_slice(sealed);
            }
            right = 0;
            watch.start();
            for packet in &mut self.packets {
                right += u64::from(self.raw.unprotect(packet));
            }
            watch.stop();
        } else {
            watch.start();
            for packet in &mut self.packets {
                self.raw.protect(packet);
            }
            watch.stop();
        }
        right
    }
}
