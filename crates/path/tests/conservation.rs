//! Whatever comes in, every packet is accounted for, and good packets beside bad ones get through.

mod fixture;

use std::time::Duration;

use fixture::*;
use proptest::prelude::*;
use rand::SeedableRng;
use rand::rngs::StdRng;
use wire::{PortId, Spi, fragment};

/// Frames that are right, or were before something was done to them.
fn frames() -> impl Strategy<Value = (PortId, Vec<u8>)> {
    let addresses = prop::sample::select(vec![
        ("192.168.13.5", "192.168.12.7"),
        ("192.168.12.7", "192.168.13.5"),
        ("192.168.13.5", "192.168.13.1"),
        ("192.168.13.5", "192.168.13.99"),
        ("192.168.13.5", "192.168.11.2"),
        ("192.168.13.5", "224.0.0.5"),
        ("10.0.0.1", "172.16.5.4"),
        ("fd13::5", "fd12::7"),
        ("fd12::7", "fd13::5"),
        ("fd13::5", "fd13::1"),
        ("fd13::5", "fd13::99"),
        ("fe80::5", "ff02::1"),
        // As if from the gateway itself.
        ("192.168.13.1", "192.168.11.2"),
        ("192.168.11.2", "192.168.12.7"),
        ("fd13::1", "fd12::7"),
    ]);
    // Sealed that often with these sequence numbers, then a fragment of it.
    let sealed = prop::collection::vec(1..5000u32, 0..3);
    let piece = prop::option::weighted(0.3, (60..1500u16, any::<prop::sample::Index>()));
    let damage = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4);
    let cut = prop::option::weighted(0.1, any::<prop::sample::Index>());
    (any::<bool>(), addresses, any::<bool>(), 0..1600usize, (sealed, piece), damage, cut).prop_map(
        |(wan, (from, to), ping, payload, (sealed, piece), damage, cut)| {
            let port = if wan { WAN } else { LAN };
            let mut packet =
                if ping { echo(from, to, payload) } else { udp(from, to, (1000, 2000), payload) };
            for sequence in sealed {
                let peer = esp::OutboundSa::new(
                    Spi(0x1002),
                    &keys(false),
                    sequence,
                    &mut StdRng::from_seed([5; 32]),
                );
                packet = seal(&peer, "192.168.11.1", "192.168.11.2", &packet);
            }
            if let Some((mtu, index)) = piece {
                packet = fragment(&packet, mtu, index);
            }
            let own = io::memory::MemoryOptions::ethernet("", port).mac;
            let mut bytes = frame(own, if wan { PEER_MAC } else { HOST_MAC }, &packet);
            for (index, value) in damage {
                // Mostly headers: a payload byte changes nothing here.
                let place = index.index(bytes.len().min(70));
                bytes[place] = value;
            }
            if let Some(cut) = cut {
                bytes.truncate(cut.index(bytes.len()));
            }
            (port, bytes)
        },
    )
}

/// One of the fragments of a packet.
fn fragment(packet: &[u8], mtu: u16, index: prop::sample::Index) -> Vec<u8> {
    let v6 = packet[0] >> 4 == 6;
    let plan = if v6 { fragment::plan_v6(packet, mtu) } else { fragment::plan(packet, mtu) };
    let pieces: Vec<_> = plan.unwrap().collect();
    let piece = &pieces[index.index(pieces.len())];
    let mut out = vec![0; piece.total_length()];
    let written = if v6 {
        fragment::write_v6(packet, piece, 3, &mut out)
    } else {
        fragment::write(packet, piece, &mut out)
    };
    assert_eq!(written, Some(out.len()));
    out
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn every_packet_is_accounted_for(batches in prop::collection::vec((prop::collection::vec(frames(), 1..60), 0..2000u64), 1..8), tunnel: bool) {
        let tables = if tunnel { tunnel_tables(("192.168.11.2", "192.168.11.1"), false) } else { plain_tables() };
        let mut gateway = Gateway::new(tables);
        for (batch, delay) in batches {
            for (port, bytes) in batch {
                let handle = if port == LAN { &mut gateway.lan } else { &mut gateway.wan };
                prop_assert!(handle.push(&bytes));
            }
            // A good packet behind the bad ones.
            let good = udp("192.168.13.5", "192.168.12.7", (7777, 7777), 10);
            gateway.receive(LAN, &good);
            let is_there = gateway.sent(WAN).iter().any(|(_, packet)| packet.len() >= 38);
            prop_assert!(is_there);
            gateway.sent(LAN);
            gateway.wait(Duration::from_millis(delay));
            gateway.assert_nothing_lost();
        }
        for _ in 0..100 {
            gateway.wait(Duration::from_secs(1));
            gateway.sent(LAN);
            gateway.sent(WAN);
        }
        prop_assert_eq!(gateway.worker.held(), 0);
        gateway.assert_nothing_lost();
    }
}
