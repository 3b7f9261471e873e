//! What the stages cost: which rounds are timed, and to which stage their time belongs.

mod fixture;

use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::time::Instant;

use fixture::*;
use flow::CacheSettings;
use packet::BATCH;
use tables::Tables;

const ROUNDS: u64 = 3000;

/// A gateway with a clock: nanoseconds.
fn timed(tables: Tables) -> Gateway {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    let ticks = || START.elapsed().as_nanos() as u64;
    Gateway::with_clock(tables, [CacheSettings::default(); 4], 7, ticks)
}

/// Calls, packets and ticks by stage.
fn found(gateway: &Gateway) -> BTreeMap<&'static str, [u64; 3]> {
    let costs = &gateway.worker.statistics().costs;
    costs
        .stages()
        .map(|(name, cost)| (name, [cost.calls.read(), cost.packets.read(), cost.ticks.read()]))
        .collect()
}

/// Rounds with such packets of the host on the LAN, each in a batch of `size`.
fn run(gateway: &mut Gateway, packet: &[u8], size: usize) {
    let mac = gateway.publisher.current().port(LAN).unwrap().spec.mac;
    let frame = frame(mac, HOST_MAC, packet);
    for _ in 0..ROUNDS {
        (0..size).for_each(|_| assert!(gateway.lan.push(&frame)));
        assert_eq!(gateway.poll(), size);
        while gateway.wan.pop_with(|_| ()).is_some() {}
    }
}

#[test]
fn one_round_in_about_256_is_timed_and_every_stage_has_its_packets() {
    let mut gateway = timed(plain_tables());
    run(&mut gateway, &udp("192.168.13.5", "8.8.8.8", (1, 2), 100), 4);
    let timed = gateway.worker.statistics().costs.rounds.read();
    assert!((ROUNDS / 512..ROUNDS / 128).contains(&timed), "{timed}");
    let found = found(&gateway);
    for stage in ["receive", "parse", "decide", "apply", "transmit"] {
        let [calls, packets, ticks] = found[stage];
        assert_eq!((calls, packets), (timed, 4 * timed), "{stage}");
        assert!(ticks > 0, "{stage}");
    }
    for stage in ["confirm", "seal", "open", "queue"] {
        assert_eq!(found[stage][..2], [0, 0], "{stage}");
    }
    assert!(found[path::BESIDE][2] > 0);
    assert_eq!(found.len(), path::graph().len() + 1);
}

#[test]
fn a_batch_that_fills_the_outgoing_one_is_sent_by_transmit_all_the_same() {
    let mut gateway = timed(plain_tables());
    run(&mut gateway, &udp("192.168.13.5", "8.8.8.8", (1, 2), 100), BATCH);
    let timed = gateway.worker.statistics().costs.rounds.read();
    let [calls, packets, ticks] = found(&gateway)["transmit"];
    assert_eq!((calls, packets), (timed, timed * BATCH as u64));
    assert!(ticks > 0);
}

#[test]
fn what_is_encrypted_is_timed_by_itself() {
    let mut gateway = timed(tunnel_tables(("192.168.11.2", "192.168.11.1"), false));
    run(&mut gateway, &udp("192.168.13.5", "192.168.12.7", (1, 2), 1000), 8);
    let timed = gateway.worker.statistics().costs.rounds.read();
    let found = found(&gateway);
    assert_eq!(found["seal"][..2], [timed, 8 * timed]);
    let all: u64 = found.values().map(|[.., ticks]| ticks).sum();
    let [.., seal] = found["seal"];
    assert!(seal * 5 > all, "{seal} of {all} ticks for AES of 1000 bytes a packet");
}

#[test]
fn rounds_without_packets_are_told_apart() {
    let mut gateway = timed(plain_tables());
    let mac = gateway.publisher.current().port(LAN).unwrap().spec.mac;
    let frame = frame(mac, HOST_MAC, &udp("192.168.13.5", "8.8.8.8", (1, 2), 100));
    for _ in 0..ROUNDS {
        assert!(gateway.lan.push(&frame));
        assert_eq!(gateway.poll(), 1);
        while gateway.wan.pop_with(|_| ()).is_some() {}
        for _ in 0..17 {
            assert_eq!(gateway.poll(), 0);
        }
    }
    let costs = &gateway.worker.statistics().costs;
    // However many rounds have none, one in about 256 of those that have some is timed.
    assert!((ROUNDS / 512..ROUNDS / 128).contains(&costs.rounds.read()));
    assert_eq!(found(&gateway)["receive"][1], costs.rounds.read());
    assert!(costs.idle_rounds.read() > 0 && costs.idle_ticks.read() > 0);
    assert!(costs.idle_rounds.read() <= 18 * costs.rounds.read());
}
