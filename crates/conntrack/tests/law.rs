//! The law, with random packets: what was decided before and is held to be valid is what would be
//! decided now. [`gate::Gate`] checks it at each packet.

mod gate;

use conntrack::{Chunks, Packet, Settings, Tuple};
use gate::{Gate, segment, settings, tcp, udp};
use proptest::prelude::*;

/// Both ends of a TCP connection as they number.
#[derive(Clone, Copy)]
struct Numbers {
    client: u32,
    server: u32,
}

fn packet(numbers: &mut Numbers, from_client: bool, flags: &str, wild: u32, length: u32) -> Packet {
    let (own, peer) = match from_client {
        true => (&mut numbers.client, numbers.server),
        false => (&mut numbers.server, numbers.client),
    };
    // Right, a little off, sent again, or wild.
    let (sequence, acknowledgment) = match wild {
        0..12 => (*own, peer),
        12 => (own.wrapping_sub(100), peer),
        13 => (own.wrapping_add(5000), peer),
        14 => (*own, peer.wrapping_add(20_000)),
        _ => (own.wrapping_mul(0x9e37_79b9), peer.wrapping_mul(0x85eb_ca6b)),
    };
    if wild < 12 {
        let one = u32::from(flags.contains('S') || flags.contains('F'));
        *own = own.wrapping_add(length + one);
    }
    let acknowledgment = if flags.contains('A') { acknowledgment } else { 0 };
    segment(flags, sequence, acknowledgment, length)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn what_is_kept_is_what_would_be_decided(
        connections in 1u32..6,
        pick_up: bool,
        workers in 1u32..3,
        steps in proptest::collection::vec(
            (0u16..4, any::<bool>(), 0usize..14, 0u32..16, 0u32..500, 0u32..40),
            1..120,
        ),
    ) {
        let settings = Settings { pick_up, workers, ..settings(connections) };
        let mut gate = Gate::new(&settings);
        let mut numbers = [Numbers { client: u32::MAX - 300, server: 77_000 }; 4];
        for (port, from_client, flags, wild, length, event) in steps {
            let all = ["S", "SA", "A", "A", "PA", "FA", "R", "RA", "F", "", "SF", "A", "S", "SA"];
            let tuple = tcp(1, port);
            let way = |tuple: Tuple| if from_client { tuple } else { tuple.reversed() };
            match event {
                0 => {
                    if let Some((handle, _)) = gate.lookup(&tuple) {
                        let is_gone = gate.table.remove(handle, gate.now, &mut |_| {});
                        prop_assert!(is_gone);
                    }
                }
                1 => {
                    if let Some((handle, _)) = gate.lookup(&tuple) {
                        prop_assert!(gate.table.set_mark(handle, length, u32::MAX).is_some());
                    }
                }
                2 => gate.wait(u64::from(length) * 3),
                3 => { gate.expire(); }
                4 => gate.commits = !gate.commits,
                6..9 => {
                    let sctp = Tuple { protocol: types::Protocol::SCTP, ..tuple };
                    let kinds = 1 << flags | if length % 5 == 0 { 1 } else { 0 };
                    let (tag, initiate) = (length % 3, length % 4);
                    let reflected = wild == 3;
                    let chunks = Chunks { tag, initiate, kinds, reflected };
                    gate.packet(way(sctp), &Packet::Sctp(chunks));
                }
                5 => {
                    // Some with a wrong checksum.
                    let packet = if wild < 4 { Packet::Malformed } else { Packet::Datagram };
                    gate.packet(way(udp(1, port)), &packet);
                }
                _ => {
                    let number = &mut numbers[usize::from(port)];
                    let flags = all[flags];
                    let length = if flags.contains('S') { 0 } else { length };
                    let packet = packet(number, from_client, flags, wild, length);
                    gate.packet(way(tuple), &packet);
                }
            }
            prop_assert!(gate.table.counts().connections <= connections);
        }
        // What is left is whole, and all places come back.
        let counted = gate.table.counts().connections as usize;
        let shown: Vec<_> =
            (0..connections).filter_map(|at| gate.table.connection(at, gate.now)).collect();
        prop_assert_eq!(shown.len(), counted);
        gate.wait(1_000_000);
        gate.expire();
        prop_assert_eq!(gate.table.counts().connections, 0);
    }
}
