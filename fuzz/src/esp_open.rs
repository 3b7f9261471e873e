//! The ESP transform of every algorithm on one input.

use esp::{Algorithm, InboundSa, KeyMaterial, OpenError, OpenJob, OutboundSa, SealJob, WindowSize};
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::SeedableRng;
use types::{Protocol, Spi};

/// Bytes around a packet: in front as many as any algorithm puts there, and more behind.
const AROUND: usize = 64;
/// What these bytes are, so that a write outside of the packet is seen.
const UNTOUCHED: u8 = 0xee;
/// As long as the longest packet that a port carries.
const LONGEST: usize = 9216;

/// Opens `bytes` as an ESP packet, and seals and opens them as a payload, with each algorithm.
///
/// # Panics
/// If the crate breaks a promise.
pub fn examine(bytes: &[u8]) {
    let bytes = &bytes[..bytes.len().min(LONGEST)];
    for algorithm in Algorithm::ALL {
        let _ = open(algorithm, bytes);
        examine_sealed(algorithm, bytes);
    }
}

/// Opens `packet` with the keys that the corpus is sealed with, and returns its payload.
///
/// # Errors
/// Why it is refused.
///
/// # Panics
/// If the crate breaks a promise.
pub fn open(algorithm: Algorithm, packet: &[u8]) -> Result<Vec<u8>, OpenError> {
    open_with(&inbound(algorithm), packet).map(|(payload, _)| payload)
}

/// Seals `payload` with the keys that the corpus is sealed with.
///
/// # Panics
/// If the crate breaks a promise.
pub fn seal(algorithm: Algorithm, payload: &[u8], next_header: Protocol) -> Vec<u8> {
    let mut randomness = ChaCha20Rng::from_seed([7; 32]);
    let sa = OutboundSa::new(Spi(0x1000), &keys(algorithm), 0, &mut randomness);
    let mut buffer = vec![UNTOUCHED; AROUND + payload.len() + AROUND];
    buffer[AROUND..AROUND + payload.len()].copy_from_slice(payload);
    let mut jobs = [SealJob::new(&mut buffer, AROUND, payload.len(), next_header)];
    sa.seal(&mut jobs, &mut randomness);
    let [SealJob { start, length, result, .. }] = jobs;
    assert_eq!(result, Ok(()), "{algorithm}: there is room");
    assert_eq!(start, AROUND - algorithm.overhead_front());
    assert_eq!(length, algorithm.sealed_length(payload.len()));
    let (before, after) = (&buffer[..start], &buffer[start + length..]);
    assert!(before.iter().chain(after).all(|byte| *byte == UNTOUCHED), "{algorithm}");
    buffer[start..start + length].to_vec()
}

fn keys(algorithm: Algorithm) -> KeyMaterial {
    // No two algorithms have a key in common: none opens what another has sealed.
    let number = Algorithm::ALL.iter().position(|other| *other == algorithm).expect("one of all");
    let byte = number as u8 + 1;
    let encryption = vec![byte; algorithm.encryption_key_length()];
    let integrity = algorithm.integrity().map_or(0, |integrity| integrity.usual_key_length());
    KeyMaterial::new(algorithm, &encryption, &vec![byte; integrity]).expect("keys that fit")
}

fn inbound(algorithm: Algorithm) -> InboundSa {
    let window = WindowSize::new(64).expect("a size that may be");
    InboundSa::new(Spi(0x1000), &keys(algorithm), window, 0)
}

fn open_with(sa: &InboundSa, packet: &[u8]) -> Result<(Vec<u8>, Protocol), OpenError> {
    let algorithm = sa.algorithm();
    let mut buffer = vec![UNTOUCHED; AROUND + packet.len() + AROUND];
    buffer[AROUND..AROUND + packet.len()].copy_from_slice(packet);
    let mut jobs = [OpenJob::new(&mut buffer, AROUND, packet.len())];
    sa.open(&mut jobs);
    let [OpenJob { start, length, next_header, sequence, result, .. }] = jobs;
    let (before, rest) = buffer.split_at(AROUND);
    let (inside, after) = rest.split_at(packet.len());
    assert!(before.iter().chain(after).all(|byte| *byte == UNTOUCHED), "{algorithm}");
    if result.is_err() {
        assert_eq!((start, length), (AROUND, packet.len()), "{algorithm}");
    }
    result?;
    assert_eq!(sequence.to_be_bytes(), packet[4..8], "{algorithm}");
    assert_eq!(start, AROUND + algorithm.overhead_front(), "{algorithm}");
    let behind = esp::TRAILER_LENGTH + algorithm.icv_length();
    assert!(algorithm.overhead_front() + length + behind <= packet.len(), "{algorithm}");
    Ok((inside[start - AROUND..][..length].to_vec(), next_header))
}

/// What was sealed opens to the same, once, and not if one of its bits is another.
fn examine_sealed(algorithm: Algorithm, payload: &[u8]) {
    let next_header = Protocol(payload.first().copied().unwrap_or(4));
    let sealed = seal(algorithm, payload, next_header);
    let sa = inbound(algorithm);
    if algorithm.icv_length() > 0 {
        let mut forged = sealed.clone();
        let bit =
            payload.iter().fold(payload.len(), |sum, byte| sum * 31 % 1_000_003 + *byte as usize);
        // The SPI is not looked at again, but it is authenticated.
        let at = bit / 8 % forged.len();
        forged[at] ^= 1 << (bit % 8);
        let why = open_with(&sa, &forged).expect_err("forged");
        // A number that is 0, or far ahead, is judged before the ICV.
        let is_number = (4..8).contains(&at);
        assert!(why == OpenError::BadIcv || is_number && why != OpenError::BadPadding, "{why}");
    }
    let opened = open_with(&sa, &sealed);
    assert_eq!(opened, Ok((payload.to_vec(), next_header)), "{algorithm}");
    // Without integrity there is no window.
    let again = match algorithm.icv_length() {
        0 => opened,
        _ => Err(OpenError::Replayed),
    };
    assert_eq!(open_with(&sa, &sealed), again, "{algorithm}");
}
