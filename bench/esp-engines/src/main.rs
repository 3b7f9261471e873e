//! Cycles per packet of crypto libraries and of ESP over them, all in one run, in turn, as medians.
//!
//! Every library works on the same ESP packets with the same keys, and every one must open what
//! hitpath sealed. docs/esp-engines.md has the results and what was decided by them.

mod aead;
mod separate;

use std::arch::x86_64::{_mm_lfence, _rdtsc};

use esp::{
    Algorithm, Cipher, InboundSa, Integrity, KeyMaterial, OpenJob, OutboundSa, SealJob, WindowSize,
};
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::SeedableRng;
use wire::{Protocol, Spi};

/// Packets in a batch, as a worker has them at most.
const BATCH: usize = 256;

/// How often each contender has its turn.
const ROUNDS: usize = 300;

/// Payload bytes: a small packet and a large one of a tunnel in Ethernet.
const PAYLOADS: [usize; 2] = [66, 1402];

const FRONT: usize = 64;
pub(crate) const ENCRYPTION_KEY: [u8; 36] = [0x42; 36];
pub(crate) const INTEGRITY_KEY: [u8; 32] = [0x24; 32];

/// Works on whole ESP packets in place. False means that one was not authentic.
pub(crate) type Work = Box<dyn FnMut(&mut [Packet]) -> bool>;

/// A buffer and the ESP packet (or, before sealing, the payload) in it.
#[derive(Clone)]
pub(crate) struct Packet {
    buffer: Vec<u8>,
    start: usize,
    length: usize,
}

impl Packet {
    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        &mut self.buffer[self.start..self.start + self.length]
    }
}

pub(crate) struct Contender {
    pub(crate) name: &'static str,
    pub(crate) seal: Work,
    pub(crate) open: Work,
}

fn main() {
    println!(
        "| algorithm | who | seal {} B | open {} B | seal {} B | open {} B |",
        PAYLOADS[0], PAYLOADS[0], PAYLOADS[1], PAYLOADS[1]
    );
    println!("|---|---|---|---|---|---|");
    for algorithm in [Algorithm::AesGcm128, Algorithm::AesGcm256] {
        race(algorithm, || aead::contenders(algorithm));
    }
    for integrity in [Integrity::HmacSha1_96, Integrity::HmacSha256_128] {
        let algorithm = Algorithm::separate(Cipher::Null, integrity);
        race(algorithm, || separate::hmacs(integrity));
    }
    for cipher in [Cipher::AesCbc128, Cipher::AesCbc256] {
        let algorithm = Algorithm::separate(cipher, Integrity::HmacSha1_96);
        race(algorithm, || separate::cbcs(cipher));
    }
    for cipher in [Cipher::AesCbc128, Cipher::AesCbc256] {
        race(Algorithm::separate(cipher, Integrity::HmacSha256_128), Vec::new);
    }
    race(Algorithm::NullWithoutIntegrity, Vec::new);
}

/// Prints one line for each contender and one for hitpath.
fn race(algorithm: Algorithm, contenders: impl Fn() -> Vec<Contender>) {
    let cycles = PAYLOADS.map(|payload| measure(algorithm, payload, contenders()));
    for (small, large) in cycles[0].iter().zip(&cycles[1]) {
        println!(
            "| {algorithm} | {} | {} | {} | {} | {} |",
            small.0, small.1, small.2, large.1, large.2
        );
    }
}

/// Name, median cycles per packet to seal, and to open.
fn measure(
    algorithm: Algorithm,
    payload: usize,
    mut contenders: Vec<Contender>,
) -> Vec<(&'static str, u64, u64)> {
    let clear =
        vec![
            Packet { buffer: vec![0xc5; FRONT + payload + 64], start: FRONT, length: payload };
            BATCH
        ];
    let mut hitpath = hitpath(algorithm);
    let mut sealed = clear.clone();
    assert!((hitpath.seal)(&mut sealed));
    contenders.insert(0, hitpath);

    let mut times = vec![(Vec::new(), Vec::new()); contenders.len()];
    let mut packets = clear.clone();
    for _ in 0..ROUNDS {
        for (contender, (sealing, opening)) in contenders.iter_mut().zip(&mut times) {
            packets.clone_from(if contender.name == HITPATH { &clear } else { &sealed });
            sealing.push(cycles(|| assert!((contender.seal)(&mut packets))));
            packets.clone_from(&sealed);
            opening.push(cycles(|| {
                assert!((contender.open)(&mut packets), "{} opens {algorithm}", contender.name)
            }));
        }
    }
    let median = |times: &mut Vec<u64>| {
        times.sort_unstable();
        times[times.len() / 2] / BATCH as u64
    };
    contenders
        .iter()
        .zip(&mut times)
        .map(|(who, (seal, open))| (who.name, median(seal), median(open)))
        .collect()
}

const HITPATH: &str = "**hitpath, all of ESP**";

/// ESP through the public interface: framing, numbers, replay window and all.
fn hitpath(algorithm: Algorithm) -> Contender {
    let hash: &[u8] =
        if matches!(algorithm, Algorithm::Separate { .. }) { &INTEGRITY_KEY } else { &[] };
    let keys =
        KeyMaterial::new(algorithm, &ENCRYPTION_KEY[..algorithm.encryption_key_length()], hash)
            .expect("right lengths");
    let mut randomness = ChaCha20Rng::seed_from_u64(1);
    let outbound = OutboundSa::new(Spi(1), &keys, 0, &mut randomness);
    // The same packets are opened again and again, each time by an SA that has not seen them.
    let mut fresh: Vec<_> =
        (0..ROUNDS).map(|_| InboundSa::new(Spi(1), &keys, WindowSize::MAX, 0)).collect();
    Contender {
        name: HITPATH,
        seal: Box::new(move |packets| {
            let mut jobs: Vec<_> = packets
                .iter_mut()
                .map(|packet| {
                    SealJob::new(&mut packet.buffer, packet.start, packet.length, Protocol::IPV4)
                })
                .collect();
            outbound.seal(&mut jobs, &mut randomness);
            let ranges: Vec<_> =
                jobs.iter().map(|job| (job.start, job.length, job.result)).collect();
            packets.iter_mut().zip(ranges).all(|(packet, (start, length, result))| {
                (packet.start, packet.length) = (start, length);
                result.is_ok()
            })
        }),
        open: Box::new(move |packets| {
            let mut jobs: Vec<_> = packets
                .iter_mut()
                .map(|packet| OpenJob::new(&mut packet.buffer, packet.start, packet.length))
                .collect();
            fresh.pop().expect("one for each round").open(&mut jobs);
            jobs.iter().all(|job| job.result.is_ok())
        }),
    }
}

fn cycles(work: impl FnOnce()) -> u64 {
    let before = now();
    work();
    now() - before
}

/// The time stamp counter, with everything before it done.
fn now() -> u64 {
    // SAFETY: both instructions are in every x86-64.
    // JUSTIFICATION: there is no safe way to read the counter.
    unsafe {
        _mm_lfence();
        let now = _rdtsc();
        _mm_lfence();
        now
    }
}
