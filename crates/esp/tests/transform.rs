//! The transform against an independent one, and against everything that can be wrong with a
//! packet.

mod oracle;

use esp::{Algorithm, InboundSa, OpenError, OpenJob, OutboundSa, SealError, SealJob, WindowSize};
use oracle::{Content, Sa};
use proptest::prelude::*;
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::SeedableRng;
use types::{Protocol, Spi};

/// Where payloads begin in a test's buffer.
const FRONT: usize = 64;

fn randomness() -> ChaCha20Rng {
    ChaCha20Rng::seed_from_u64(4303)
}

fn sa(algorithm: Algorithm) -> Sa {
    let integrity =
        if matches!(algorithm, Algorithm::Separate { .. }) { vec![0x5a; 20] } else { vec![] };
    Sa {
        algorithm,
        spi: 0x1234_5678,
        encryption: vec![0xa5; algorithm.encryption_key_length()],
        integrity,
    }
}

fn outbound(sa: &Sa, sequence: u32) -> OutboundSa {
    OutboundSa::new(Spi(sa.spi), &sa.keys(), sequence, &mut randomness())
}

fn inbound(sa: &Sa) -> InboundSa {
    InboundSa::new(Spi(sa.spi), &sa.keys(), WindowSize::MAX, 0)
}

fn seal_one(sa: &OutboundSa, payload: &[u8], next_header: Protocol) -> Result<Vec<u8>, SealError> {
    let mut buffer = vec![0xee; FRONT + payload.len() + 64];
    buffer[FRONT..FRONT + payload.len()].copy_from_slice(payload);
    let mut jobs = [SealJob::new(&mut buffer, FRONT, payload.len(), next_header)];
    sa.seal(&mut jobs, &mut randomness());
    let [job] = jobs;
    job.result.map(|()| job.buffer[job.start..job.start + job.length].to_vec())
}

fn open_one(sa: &InboundSa, packet: &[u8]) -> Result<(Vec<u8>, Protocol, u32), OpenError> {
    let mut buffer = [&[0xee; FRONT], packet].concat();
    let mut jobs = [OpenJob::new(&mut buffer, FRONT, packet.len())];
    sa.open(&mut jobs);
    let [job] = jobs;
    job.result.map(|()| {
        (job.buffer[job.start..job.start + job.length].to_vec(), job.next_header, job.sequence)
    })
}

fn any_sa() -> impl Strategy<Value = Sa> {
    let algorithm = prop::sample::select(Algorithm::ALL.to_vec());
    (
        algorithm,
        any::<u32>(),
        prop::collection::vec(any::<u8>(), 36),
        prop::collection::vec(any::<u8>(), 1..=64),
    )
        .prop_map(|(algorithm, spi, mut encryption, mut integrity)| {
            encryption.truncate(algorithm.encryption_key_length());
            if !matches!(algorithm, Algorithm::Separate { .. }) {
                integrity.clear();
            }
            Sa { algorithm, spi, encryption, integrity }
        })
}

fn any_payload() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..40),
        prop::collection::vec(any::<u8>(), 0..1500)
    ]
}

proptest! {
    #[test]
    fn the_oracle_opens_what_we_seal(
        sa in any_sa(),
        payloads in prop::collection::vec((any_payload(), any::<u8>()), 1..100),
        sequence in 0..u32::MAX - 100,
    ) {
        let ours = outbound(&sa, sequence);
        let mut buffers: Vec<_> = payloads
            .iter()
            .map(|(payload, _)| [&[0; FRONT], &payload[..], &[0; 64]].concat())
            .collect();
        let mut jobs: Vec<_> = buffers
            .iter_mut()
            .zip(&payloads)
            .map(|(buffer, (payload, next))| SealJob::new(buffer, FRONT, payload.len(), Protocol(*next)))
            .collect();
        ours.seal(&mut jobs, &mut randomness());
        let mut ivs = std::collections::HashSet::new();
        for ((job, (payload, next_header)), sequence) in jobs.iter().zip(&payloads).zip(sequence + 1..) {
            prop_assert_eq!(job.result, Ok(()));
            prop_assert_eq!(job.length, sa.algorithm.sealed_length(payload.len()));
            let packet = &job.buffer[job.start..job.start + job.length];
            prop_assert_eq!(&packet[..4], sa.spi.to_be_bytes());
            let padding = sa.padding_for(payload.len());
            let content = Content { sequence, payload: payload.clone(), padding, next_header: *next_header };
            prop_assert_eq!(sa.open(packet), Some(content));
            prop_assert!(sa.iv_length() == 0 || ivs.insert(packet[8..8 + sa.iv_length()].to_vec()), "an IV came twice");
        }
        prop_assert_eq!(ours.sequence(), sequence + payloads.len() as u32);
    }

    #[test]
    fn we_open_what_the_oracle_seals(
        sa in any_sa(),
        payloads in prop::collection::vec((any_payload(), any::<u8>(), 0usize..16), 1..100),
        first in 1..u32::MAX - 100,
    ) {
        let iv = vec![0x11; sa.iv_length()];
        let contents: Vec<_> = payloads.iter().zip(first..).map(|((payload, next_header, blocks), sequence)| {
            // Any amount of padding is right as long as it fills whole blocks.
            let shortest = sa.padding_for(payload.len()).len();
            let padding = (1..=(shortest + blocks * 16).min(255 / 16 * 16 - 16 + shortest) as u8).collect();
            Content { sequence, payload: payload.clone(), padding, next_header: *next_header }
        }).collect();
        let mut packets: Vec<_> = contents.iter().map(|content| sa.seal(content, &iv)).collect();
        let mut jobs: Vec<_> = packets.iter_mut().map(|packet| {
            let length = packet.len();
            OpenJob::new(packet, 0, length)
        }).collect();
        let ours = inbound(&sa);
        ours.open(&mut jobs);
        for (job, content) in jobs.iter().zip(&contents) {
            prop_assert_eq!((job.result, job.sequence, job.next_header.0), (Ok(()), content.sequence, content.next_header));
            prop_assert_eq!(&job.buffer[job.start..job.start + job.length], &content.payload[..]);
        }
        let is_kept = sa.algorithm.icv_length() > 0;
        let top = if is_kept { first + payloads.len() as u32 - 1 } else { 0 };
        prop_assert_eq!(ours.sequence(), top);
    }

    /// Whatever comes, nothing panics, and nothing but the whole of an authentic packet is taken
    /// for one.
    #[test]
    fn garbage_is_refused(
        algorithm in prop::sample::select(Algorithm::ALL[..10].to_vec()),
        mut bytes in prop::collection::vec(any::<u8>(), 0..200),
        start in prop_oneof![4 => 0usize..220, 1 => Just(usize::MAX)],
        length in prop_oneof![4 => 0usize..220, 1 => Just(usize::MAX)],
    ) {
        let mut jobs = [OpenJob::new(&mut bytes, start, length)];
        inbound(&sa(algorithm)).open(&mut jobs);
        prop_assert!(jobs[0].result.is_err());
        prop_assert_eq!((jobs[0].start, jobs[0].length), (start, length));
    }

    #[test]
    fn a_part_of_a_buffer_that_is_not_there_has_no_room(
        algorithm in prop::sample::select(Algorithm::ALL.to_vec()),
        size in 0usize..200,
        start in prop_oneof![4 => 0usize..220, 1 => Just(usize::MAX)],
        length in prop_oneof![4 => 0usize..220, 1 => Just(usize::MAX)],
    ) {
        let mut buffer = vec![0; size];
        let mut jobs = [SealJob::new(&mut buffer, start, length, Protocol::IPV4)];
        let ours = outbound(&sa(algorithm), 0);
        ours.seal(&mut jobs, &mut randomness());
        let back = algorithm.sealed_length(length.min(1000)) - algorithm.overhead_front();
        let fits = start >= algorithm.overhead_front() && start <= size && back <= size - start;
        prop_assert_eq!(jobs[0].result, if fits { Ok(()) } else { Err(SealError::NoRoom) });
        prop_assert_eq!(ours.sequence(), u32::from(fits), "a packet that does not fit uses no \
            number");
    }
}

#[test]
fn every_flipped_bit_is_noticed() {
    for algorithm in Algorithm::ALL.into_iter().filter(|algorithm| algorithm.icv_length() > 0) {
        let sa = sa(algorithm);
        let packet =
            seal_one(&outbound(&sa, 41), b"a payload of thirty-three bytes..", Protocol::UDP)
                .unwrap();
        let ours = inbound(&sa);
        for bit in 0..packet.len() * 8 {
            let mut flipped = packet.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(open_one(&ours, &flipped), Err(OpenError::BadIcv), "{algorithm}, bit {bit}");
        }
        assert_eq!(ours.sequence(), 0, "nothing that is not authentic moves the window");
        assert!(open_one(&ours, &packet).is_ok());
    }
}

#[test]
fn every_cut_is_noticed() {
    for algorithm in Algorithm::ALL.into_iter().filter(|algorithm| algorithm.icv_length() > 0) {
        let sa = sa(algorithm);
        let packet = seal_one(&outbound(&sa, 0), &[7; 100], Protocol::UDP).unwrap();
        for length in 0..packet.len() {
            let blocks = length.checked_sub(algorithm.sealed_length(0));
            let whole = blocks.is_some_and(|more| more % algorithm.alignment() == 0);
            let expected = if whole { OpenError::BadIcv } else { OpenError::Truncated };
            assert_eq!(
                open_one(&inbound(&sa), &packet[..length]),
                Err(expected),
                "{algorithm}, {length} bytes"
            );
        }
    }
}

#[test]
fn what_is_not_authentic_is_not_released() {
    for algorithm in
        Algorithm::ALL.into_iter().filter(|algorithm| algorithm.encryption_key_length() > 0)
    {
        let sa = sa(algorithm);
        let secret = [0x77; 64];
        let mut packet = seal_one(&outbound(&sa, 0), &secret, Protocol::UDP).unwrap();
        *packet.last_mut().unwrap() ^= 0x80;
        let length = packet.len();
        let mut jobs = [OpenJob::new(&mut packet, 0, length)];
        inbound(&sa).open(&mut jobs);
        assert_eq!(jobs[0].result, Err(OpenError::BadIcv));
        assert_eq!(
            (jobs[0].start, jobs[0].length, jobs[0].next_header),
            (0, length, Protocol::NONE)
        );
        assert!(
            !packet.windows(8).any(|window| window == &secret[..8]),
            "{algorithm} left plaintext behind"
        );
    }
}

#[test]
fn authentic_packets_with_wrong_padding_are_refused() {
    for algorithm in Algorithm::ALL {
        let sa = sa(algorithm);
        let iv = vec![9; sa.iv_length()];
        let content = |padding: Vec<u8>| Content {
            sequence: 1,
            payload: vec![1; 14],
            padding,
            next_header: 17,
        };
        let right: Vec<u8> = (1..=16).collect();
        assert!(open_one(&inbound(&sa), &sa.seal(&content(right.clone()), &iv)).is_ok());
        for at in 0..16 {
            let mut wrong = right.clone();
            wrong[at] ^= 1;
            let packet = sa.seal(&content(wrong), &iv);
            assert_eq!(
                open_one(&inbound(&sa), &packet),
                Err(OpenError::BadPadding),
                "{algorithm}, byte {at}"
            );
        }
        // The longest that there is room for, and one more.
        let all_padding =
            Content { sequence: 1, payload: vec![], padding: (1..=14).collect(), next_header: 17 };
        assert_eq!(
            open_one(&inbound(&sa), &sa.seal(&all_padding, &iv)),
            Ok((vec![], Protocol::UDP, 1))
        );
        let packet = sa.seal_saying(15, &all_padding, &iv);
        assert_eq!(open_one(&inbound(&sa), &packet), Err(OpenError::BadPadding), "{algorithm}");
    }
}

#[test]
fn of_equal_numbers_in_a_batch_only_the_first_passes() {
    for algorithm in Algorithm::ALL {
        let sa = sa(algorithm);
        let ours = outbound(&sa, 0);
        let one = seal_one(&ours, &[1; 60], Protocol::UDP).unwrap();
        let two = seal_one(&ours, &[2; 60], Protocol::UDP).unwrap();
        let mut packets = [two.clone(), one.clone(), two, one];
        let mut jobs: Vec<_> = packets
            .iter_mut()
            .map(|packet| {
                let length = packet.len();
                OpenJob::new(packet, 0, length)
            })
            .collect();
        inbound(&sa).open(&mut jobs);
        let results: Vec<_> = jobs.iter().map(|job| (job.sequence, job.result)).collect();
        // Without integrity anybody could move the window, and there is none (RFC 4303 section
        // 3.4.3).
        let replayed = match algorithm.icv_length() {
            0 => Ok(()),
            _ => Err(OpenError::Replayed),
        };
        assert_eq!(
            results,
            [(2, Ok(())), (1, Ok(())), (2, replayed), (1, replayed)],
            "{algorithm}"
        );
    }
}

#[test]
fn packets_beside_bad_ones_pass() {
    for algorithm in Algorithm::ALL.into_iter().filter(|algorithm| algorithm.icv_length() > 0) {
        let sa = sa(algorithm);
        let ours = outbound(&sa, 0);
        let mut buffers: Vec<_> = (0..200)
            .map(|i| vec![i as u8; if i % 3 == 0 { FRONT + 80 } else { FRONT + 200 }])
            .collect();
        let mut jobs: Vec<_> = buffers
            .iter_mut()
            .map(|buffer| SealJob::new(buffer, FRONT, 80, Protocol::IPV4))
            .collect();
        ours.seal(&mut jobs, &mut randomness());
        let mut sequence = 0;
        let mut packets = Vec::new();
        for (i, job) in jobs.iter().enumerate() {
            if i % 3 == 0 {
                assert_eq!(job.result, Err(SealError::NoRoom));
            } else {
                sequence += 1;
                let packet = job.buffer[job.start..job.start + job.length].to_vec();
                assert_eq!(sa.open(&packet).map(|content| content.sequence), Some(sequence));
                packets.push(packet);
            }
        }
        for packet in packets.iter_mut().step_by(7) {
            packet[10] ^= 1;
        }
        let mut jobs: Vec<_> = packets
            .iter_mut()
            .map(|packet| {
                let length = packet.len();
                OpenJob::new(packet, 0, length)
            })
            .collect();
        inbound(&sa).open(&mut jobs);
        for (i, job) in jobs.iter().enumerate() {
            assert_eq!(
                job.result,
                if i % 7 == 0 { Err(OpenError::BadIcv) } else { Ok(()) },
                "{algorithm}, {i}"
            );
        }
    }
}

#[test]
fn the_last_number_is_the_last() {
    for algorithm in Algorithm::ALL {
        let sa = sa(algorithm);
        let ours = outbound(&sa, u32::MAX - 2);
        let mut buffers = vec![vec![0; 200]; 4];
        let mut jobs: Vec<_> = buffers
            .iter_mut()
            .map(|buffer| SealJob::new(buffer, FRONT, 20, Protocol::IPV4))
            .collect();
        ours.seal(&mut jobs, &mut randomness());
        let results: Vec<_> = jobs.iter().map(|job| job.result).collect();
        let over = Err(SealError::SequenceExhausted);
        assert_eq!(results, [Ok(()), Ok(()), over, over], "{algorithm}");
        assert_eq!((jobs[2].start, jobs[2].length), (FRONT, 20));
        assert_eq!(ours.sequence(), u32::MAX);
        assert_eq!(seal_one(&ours, &[0; 20], Protocol::IPV4), Err(SealError::SequenceExhausted));
        assert_eq!(ours.sequence(), u32::MAX);
    }
}

#[test]
fn workers_never_share_a_number() {
    const WORKERS: usize = 4;
    const EACH: u32 = 2000;
    let sa = sa(Algorithm::AesGcm128);
    let (sender, receiver) = (outbound(&sa, 0), inbound(&sa));
    let sequences: Vec<_> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS)
            .map(|_| {
                scope.spawn(|| {
                    (0..EACH)
                        .map(|_| seal_one(&sender, &[3; 40], Protocol::IPV4).unwrap())
                        .collect::<Vec<_>>()
                })
            })
            .collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    let mut numbers: Vec<_> = sequences
        .iter()
        .map(|packet| u32::from_be_bytes(packet[4..8].try_into().unwrap()))
        .collect();
    numbers.sort_unstable();
    assert!(numbers.into_iter().eq(1..=WORKERS as u32 * EACH));
    assert!(open_one(&receiver, &sequences[0]).is_ok());
}

#[test]
fn without_a_window_everything_authentic_passes_again() {
    let sa = sa(Algorithm::AesGcm128);
    let packet = seal_one(&outbound(&sa, 7), &[3; 40], Protocol::IPV4).unwrap();
    let ours = InboundSa::new(Spi(sa.spi), &sa.keys(), WindowSize::OFF, 0);
    for _ in 0..3 {
        assert_eq!(open_one(&ours, &packet), Ok((vec![3; 40], Protocol::IPV4, 8)));
    }
}

#[test]
fn number_zero_is_refused() {
    let sa = sa(Algorithm::AesGcm256);
    let content =
        Content { sequence: 0, payload: vec![1; 20], padding: vec![1, 2], next_header: 4 };
    assert_eq!(open_one(&inbound(&sa), &sa.seal(&content, &[5; 8])), Err(OpenError::Replayed));
}

#[test]
fn a_window_that_goes_on_where_another_left_off_takes_the_past_as_seen() {
    let sa = sa(Algorithm::AesGcm128);
    let ours = outbound(&sa, 99);
    let packets: Vec<_> =
        (0..3).map(|_| seal_one(&ours, &[1; 30], Protocol::IPV4).unwrap()).collect();
    let window = InboundSa::new(Spi(sa.spi), &sa.keys(), WindowSize::new(64).unwrap(), 101);
    let results: Vec<_> =
        packets.iter().map(|packet| open_one(&window, packet).map(|opened| opened.2)).collect();
    assert_eq!(results, [Err(OpenError::Replayed), Err(OpenError::Replayed), Ok(102)]);
}

#[test]
fn two_sas_with_one_key_use_different_ivs() {
    let sa = sa(Algorithm::AesGcm128);
    let mut randomness = randomness();
    let mut iv = || {
        let ours = OutboundSa::new(Spi(1), &sa.keys(), 0, &mut randomness);
        seal_one(&ours, &[0; 20], Protocol::IPV4).unwrap()[8..16].to_vec()
    };
    assert_ne!(iv(), iv());
}

#[test]
fn raw_calls_do_the_same_work() {
    for algorithm in Algorithm::ALL {
        let sa = sa(algorithm);
        let raw = esp::bench::Raw::new(&sa.keys());
        let sealed = seal_one(&outbound(&sa, 0), &[6; 75], Protocol::UDP).unwrap();
        let mut packet = sealed.clone();
        assert!(raw.unprotect(&mut packet), "{algorithm}");
        let front = algorithm.overhead_front();
        assert_eq!(packet[front..front + 75], [6; 75], "{algorithm}");
        raw.protect(&mut packet);
        assert_eq!(packet, sealed, "{algorithm}");
        packet[20] ^= 1;
        assert_eq!(raw.unprotect(&mut packet), algorithm.icv_length() == 0, "{algorithm}");
    }
}

#[test]
fn debug_says_what_it_is_and_shows_no_key() {
    let sa = sa(Algorithm::AesGcm128);
    let shown = format!("{:?} {:?}", outbound(&sa, 5), inbound(&sa));
    assert!(
        shown.contains("0x12345678")
            && shown.contains("aes-gcm-128")
            && shown.contains("sequence: 5"),
        "{shown}"
    );
    assert!(!shown.contains("165") && !shown.to_lowercase().contains("a5a5"), "{shown}");
}
