//! Queueing disciplines on a packet's way.

mod fixture;

use std::time::Duration;

use fixture::*;
use flow::{CacheSettings, CacheTable};
use io::memory::{self, MemoryOptions};
use packet::{DropReason, Time};
use path::{Worker, WorkerSettings, handovers};
use tables::{
    Direction, NextHopState, PlacedQdisc, PortSpec, Publisher, Qdisc, QdiscCounters, QdiscDevice,
    QdiscHandle, RouteSpec, Tables, Vlan, VlanId, VlanTag,
};
use types::qdisc::{FqCodel, Pfifo, Tbf};
use wire::{PortId, VrfId, checksum};

const ON_WAN: QdiscDevice = QdiscDevice::Port(WAN);
/// With its link header, what [`datagram`] makes is 1000 bytes on the link.
const FRAME: u64 = 1000;

fn handle(text: &str) -> QdiscHandle {
    text.parse().unwrap()
}

/// 1,000 frames in a second, two at once.
fn tbf() -> (QdiscHandle, Qdisc) {
    let tbf = Tbf { rate: 1000 * FRAME, burst: 2 * FRAME as u32, limit: 50 * FRAME as u32 };
    (handle("1:"), Qdisc::Tbf(tbf))
}

fn pfifo(limit: u32) -> (QdiscHandle, Qdisc) {
    (handle("10:"), Qdisc::Pfifo(Pfifo { limit }))
}

fn datagram(flow: u16) -> Vec<u8> {
    udp("192.168.13.5", "8.8.8.8", (flow, 53), FRAME as usize - 14 - 28)
}

fn shaped(child: Option<(QdiscHandle, Qdisc)>) -> Gateway {
    let mut tables = plain_tables();
    tables.set_qdisc(ON_WAN, tbf(), child).unwrap();
    Gateway::new(tables)
}

fn on(gateway: &Gateway, device: QdiscDevice) -> PlacedQdisc {
    gateway.publisher.current().qdiscs().on(device).unwrap().clone()
}

/// `came` is what is sent, dropped or waits, by the discipline's own count.
#[track_caller]
fn assert_adds_up(placed: &PlacedQdisc, came: u64) {
    let counters = &placed.root.counters;
    let sum = counters.packets.read() + counters.drops.read() + counters.queued.read();
    assert_eq!(sum, came, "{counters:?}");
}

#[test]
fn a_rate_is_kept_and_nothing_is_lost_unseen() {
    let mut gateway = shaped(None);
    (0..100).for_each(|flow| gateway.receive(LAN, &datagram(flow)));
    // A burst leaves at once, 50 wait, and there is no room for the others.
    assert_eq!(gateway.sent(WAN).len(), 2);
    assert_eq!((gateway.worker.held(), gateway.dropped(DropReason::QdiscOverlimit)), (51, 47));
    gateway.assert_nothing_lost();
    // Handed to their next hop, whatever becomes of them there.
    assert_eq!(gateway.worker.statistics().forwarded.read(), 100);
    assert_adds_up(&on(&gateway, ON_WAN), 100);
    // One leaves each millisecond, without traffic, at the very time that was asked for.
    for _ in 0..51 {
        let due = gateway.worker.next_deadline().unwrap();
        assert_eq!(due.since(gateway.now), Duration::from_millis(1));
        gateway.wait(Duration::from_micros(999));
        assert!(gateway.sent(WAN).is_empty());
        gateway.wait(Duration::from_micros(1));
        assert_eq!(gateway.sent(WAN).len(), 1);
    }
    assert_eq!((gateway.worker.held(), gateway.worker.next_deadline()), (0, None));
    gateway.assert_nothing_lost();
    let placed = on(&gateway, ON_WAN);
    assert_adds_up(&placed, 100);
    assert_eq!(placed.root.counters.bytes.read(), 53 * FRAME);
    assert!(placed.root.counters.overlimits.read() >= 51);
}

/// Switching it on and off invalidates no decision, and other ports' packets do not pass it.
#[test]
fn decisions_stay_and_other_ports_are_not_concerned() {
    let mut gateway = Gateway::new(plain_tables());
    gateway.receive(LAN, &datagram(1));
    gateway.receive(WAN, &udp("8.8.8.8", "192.168.13.5", (53, 1), 100));
    let decided = gateway.worker.statistics().decided.read();
    gateway.change(|tables| tables.set_qdisc(ON_WAN, tbf(), None).unwrap());
    for _ in 0..10 {
        gateway.receive(LAN, &datagram(1));
        gateway.receive(WAN, &udp("8.8.8.8", "192.168.13.5", (53, 1), 100));
    }
    assert_eq!((gateway.sent(WAN).len(), gateway.sent(LAN).len()), (1 + 2, 1 + 10));
    assert_eq!(gateway.worker.statistics().decided.read(), decided);
    assert!(gateway.cache(CacheTable::V4Outbound).hits.read() > 0);
    assert!(
        gateway.publisher.current().changes_since(0).is_some_and(|mut all| all.next().is_none())
    );
    assert_adds_up(&on(&gateway, ON_WAN), 10);
    gateway.change(|tables| assert_eq!(tables.remove_qdisc(ON_WAN), Ok(true)));
    gateway.receive(LAN, &datagram(1));
    assert_eq!(gateway.sent(WAN).len(), 1);
    assert_eq!(gateway.dropped(DropReason::QdiscFlushed), 8, "what waited");
    assert_eq!(gateway.worker.statistics().decided.read(), decided);
    gateway.assert_nothing_lost();
}

#[test]
fn what_waits_goes_with_its_port_and_stays_with_a_change() {
    let mut gateway = shaped(Some(pfifo(40)));
    (0..30).for_each(|flow| gateway.receive(LAN, &datagram(flow)));
    assert_eq!((gateway.sent(WAN).len(), gateway.worker.held()), (2, 28));
    // fq_codel in the place of the FIFO takes over what waits, one of ten packets as far as it can.
    let codel = (handle("20:"), Qdisc::FqCodel(FqCodel::default()));
    gateway.change(|tables| tables.set_qdisc(ON_WAN, tbf(), Some(codel)).unwrap());
    gateway.poll();
    assert_eq!(gateway.worker.held(), 28);
    gateway.change(|tables| tables.set_qdisc(ON_WAN, tbf(), Some(pfifo(10))).unwrap());
    gateway.poll();
    assert_eq!((gateway.worker.held(), gateway.dropped(DropReason::QdiscOverlimit)), (11, 17));
    assert_adds_up(&on(&gateway, ON_WAN), 30);
    let down = |gateway: &mut Gateway, up| {
        gateway.change(|tables| {
            let spec = PortSpec { up, ..tables.port(WAN).unwrap().spec.clone() };
            tables.update_port(WAN, spec).unwrap();
        });
        gateway.poll();
    };
    down(&mut gateway, false);
    assert_eq!((gateway.worker.held(), gateway.dropped(DropReason::QdiscFlushed)), (0, 11));
    assert_adds_up(&on(&gateway, ON_WAN), 30);
    gateway.receive(LAN, &datagram(1));
    assert_eq!(gateway.dropped(DropReason::PortDown), 1);
    down(&mut gateway, true);
    let peer = ip("192.168.11.1");
    gateway.change(|tables| tables.set_neighbour(WAN, peer, PEER_MAC).unwrap());
    gateway.wait(Duration::from_secs(1));
    (0..5).for_each(|flow| gateway.receive(LAN, &datagram(flow)));
    assert_eq!((gateway.sent(WAN).len(), gateway.worker.held()), (2, 3));
    gateway.assert_nothing_lost();
    // A port that is removed takes its discipline along.
    gateway.change(|tables| tables.remove_port(WAN).unwrap());
    gateway.poll();
    assert_eq!((gateway.worker.held(), gateway.dropped(DropReason::QdiscFlushed)), (0, 14));
    assert_eq!(gateway.publisher.current().qdiscs().iter().len(), 0);
}

/// What waits for a port that moves to another VRF leaves neither here nor there, and costs what comes
/// behind it no time.
#[test]
fn what_waits_for_a_port_that_moves_takes_nothing_of_the_rate() {
    let mut gateway = shaped(Some(pfifo(40)));
    (0..30).for_each(|flow| gateway.receive(LAN, &datagram(flow)));
    assert_eq!((gateway.sent(WAN).len(), gateway.worker.held()), (2, 28));
    let moved = |gateway: &mut Gateway, vrf| {
        gateway.change(|tables| {
            let spec = PortSpec { vrf, ..tables.port(WAN).unwrap().spec.clone() };
            tables.update_port(WAN, spec).unwrap();
        });
    };
    let mut red = VrfId::MAIN;
    gateway.change(|tables| red = tables.add_vrf("red").unwrap());
    moved(&mut gateway, red);
    moved(&mut gateway, VrfId::MAIN);
    gateway.change(|tables| {
        let via = RouteSpec::Via { port: WAN, address: ip("192.168.11.1") };
        tables.set_route(VrfId::MAIN, prefix("0.0.0.0/0"), via).unwrap();
        tables.set_neighbour(WAN, ip("192.168.11.1"), PEER_MAC).unwrap();
    });
    gateway.receive(LAN, &datagram(77));
    gateway.wait(Duration::from_millis(2));
    assert_eq!(gateway.dropped(DropReason::QdiscFlushed), 28);
    assert_eq!((gateway.sent(WAN).len(), gateway.worker.held()), (1, 0));
    let counters = on(&gateway, ON_WAN).root.counters;
    assert_eq!((counters.packets.read(), counters.drops.read()), (3, 28));
    gateway.assert_nothing_lost();
}

/// Packets that waited for a neighbour, ESP packets, and what the gateway says itself.
#[test]
fn all_that_leaves_passes() {
    let mut tables = tunnel_tables(("192.168.11.2", "192.168.11.1"), false);
    accept(&mut tables, Direction::Out);
    accept(&mut tables, Direction::In);
    tables.set_qdisc(ON_WAN, tbf(), Some(pfifo(100))).unwrap();
    tables.remove_neighbour(WAN, ip("192.168.11.1")).unwrap();
    let mut gateway = Gateway::new(tables);
    gateway.receive(LAN, &udp("192.168.13.5", "192.168.12.5", (1, 2), 900));
    // The question for the neighbour, and the packet that waits for the answer.
    assert_eq!(on(&gateway, ON_WAN).root.counters.packets.read(), 1);
    gateway.change(|tables| {
        tables.set_neighbour(WAN, ip("192.168.11.1"), PEER_MAC).unwrap();
    });
    gateway.poll();
    (0..4).for_each(|_| {
        gateway.receive(LAN, &udp("192.168.13.5", "192.168.12.5", (1, 2), 900));
    });
    gateway.receive(WAN, &echo("192.168.11.1", "192.168.11.2", 50));
    let placed = on(&gateway, ON_WAN);
    assert_adds_up(&placed, 1 + 5 + 1);
    assert_eq!(placed.root.counters.queued.read(), 5);
    let peer = peer_inbound(0x1001, false);
    gateway.wait(Duration::from_secs(1));
    while gateway.worker.held() > 0 {
        gateway.wait(Duration::from_secs(1));
    }
    let sent = gateway.sent(WAN);
    assert_eq!(sent.len(), 1 + 5 + 1);
    for (_, outer) in &sent[1..6] {
        assert_eq!(open(&peer, outer).len(), 900 + 28);
    }
    gateway.assert_nothing_lost();
}

/// Above the target for an interval: senders that understand it are told by a mark, the outer
/// header's in a tunnel, and others by a loss.
#[test]
fn congestion_is_marked_or_dropped() {
    let fq_codel = (handle("10:"), Qdisc::FqCodel(FqCodel::default()));
    let mut tables = tunnel_tables(("192.168.11.2", "192.168.11.1"), false);
    accept(&mut tables, Direction::Out);
    tables.set_qdisc(ON_WAN, tbf(), Some(fq_codel)).unwrap();
    let mut gateway = Gateway::new(tables);
    let with_class = |mut packet: Vec<u8>, class: u8| {
        match packet[0] >> 4 {
            4 => wire::ipv4::set_traffic_class(&mut packet, class),
            _ => wire::ipv6::set_traffic_class(&mut packet, class),
        }
        packet
    };
    let flows = [
        with_class(datagram(1), 0b1010_0010),
        with_class(udp("fd13::5", "2001:db8::1", (1, 2), 900), 0b1010_0001),
        with_class(udp("192.168.13.5", "192.168.12.5", (1, 2), 900), 2),
        with_class(udp("192.168.13.5", "9.9.9.9", (1, 2), 900), 0b1010_0000),
    ];
    let mut sent = Vec::new();
    for _ in 0..2000 {
        flows.iter().for_each(|packet| gateway.receive(LAN, packet));
        gateway.wait(Duration::from_millis(1));
        sent.extend(gateway.sent(WAN));
    }
    let (mut marked, mut plain) = ([0; 4], [0; 4]);
    for (_, packet) in &sent {
        let (at, class) = match (packet[0] >> 4, packet[9]) {
            (6, _) => (1, packet[0] << 4 | packet[1] >> 4),
            (_, 50) => (2, packet[1]),
            _ if packet[16..20] == [9; 4] => (3, packet[1]),
            _ => (0, packet[1]),
        };
        assert!(at == 1 || checksum::sum(&packet[..20]) == 0xffff);
        assert!(at == 2 || class >> 2 == 0b10_1000, "DSCP stays");
        *if class & 3 == 3 { &mut marked[at] } else { &mut plain[at] } += 1;
    }
    assert!(marked[..3].iter().all(|count| *count > 5) && marked[3] == 0, "{marked:?}");
    assert!(plain.iter().all(|count| *count > 100), "{plain:?}");
    let placed = on(&gateway, ON_WAN);
    let child = placed.child.as_ref().unwrap();
    // The head of the queue may be marked and not sent yet.
    let all = u64::from(marked.iter().sum::<u32>());
    assert!((all..=all + 1).contains(&child.counters.ecn_mark.read()));
    assert!(gateway.dropped(DropReason::QdiscCodel) > 0);
    assert_adds_up(&placed, 8000);
    gateway.assert_nothing_lost();
}

/// One flow that sends too much does not delay another, which a FIFO cannot help.
#[test]
fn a_flood_delays_others_behind_a_fifo_and_not_behind_fq_codel() {
    let waited = |child| {
        let mut gateway = shaped(Some(child));
        for _ in 0..100 {
            gateway.receive(LAN, &datagram(1));
        }
        gateway.sent(WAN);
        gateway.receive(LAN, &udp("192.168.13.6", "8.8.8.8", (7, 8), 20));
        for milliseconds in 1.. {
            gateway.wait(Duration::from_millis(1));
            if gateway.sent(WAN).iter().any(|(_, packet)| packet[15] == 6) {
                return milliseconds;
            }
        }
        unreachable!()
    };
    let codel = (handle("10:"), Qdisc::FqCodel(FqCodel::default()));
    assert!((99..=101).contains(&waited(pfifo(1000))));
    assert!(waited(codel) <= 3);
}

#[test]
fn what_waits_leaves_buffers_for_others() {
    let mut tables = plain_tables();
    let slow = Tbf { rate: 1000, burst: 2000, limit: u32::MAX };
    tables.set_qdisc(ON_WAN, (handle("1:"), Qdisc::Tbf(slow)), None).unwrap();
    tables.set_qdisc(QdiscDevice::Port(LAN), (handle("1:"), Qdisc::Tbf(slow)), None).unwrap();
    let mut gateway = Gateway::new(tables);
    for _ in 0..BUFFERS {
        gateway.receive(LAN, &datagram(1));
    }
    // A quarter of all buffers: as many as are left to the others of the half that may wait.
    let most = (BUFFERS + 64) / 4;
    assert!(gateway.worker.held().abs_diff(most) <= 1, "{}", gateway.worker.held());
    for _ in 0..BUFFERS {
        gateway.receive(WAN, &udp("8.8.8.8", "192.168.13.5", (53, 1), 900));
    }
    assert!(gateway.worker.held() > most * 5 / 4 && gateway.worker.held() <= 2 * most);
    assert_eq!(gateway.dropped(DropReason::NoBuffer), 0);
    gateway.assert_nothing_lost();
}

/// A VLAN's frames pass its VRF's discipline, its own, and its parent's.
#[test]
fn disciplines_stand_one_behind_the_other() {
    const BLUE: VrfId = VrfId(1);
    let (mut tables, spec) = with_sub_port(plain_tables());
    let next_hop = ip("172.16.0.2");
    assert_eq!(tables.add_vrf("blue"), Ok(BLUE));
    let devices = [QdiscDevice::Vrf(VrfId::MAIN), QdiscDevice::Port(SUB_PORT), ON_WAN];
    for device in devices {
        tables.set_qdisc(device, tbf(), Some(pfifo(1000))).unwrap();
    }
    let mut gateway = Gateway::new(tables);
    (0..20).for_each(|flow| gateway.receive(LAN, &datagram(flow)));
    (0..10).for_each(|flow| {
        gateway.receive(LAN, &udp("192.168.13.5", "7.7.7.7", (flow, 53), 900));
    });
    while gateway.worker.held() > 0 {
        gateway.wait(Duration::from_millis(1));
    }
    let count = |device| on(&gateway, device).root.counters.packets.read();
    assert_eq!(devices.map(count), [30, 20, 30]);
    let tagged = gateway.sent(WAN).iter().filter(|(_, rest)| rest[..2] == [0, 100]).count();
    assert_eq!(tagged, 20);
    let tables = gateway.publisher.current();
    assert_eq!(tables.port_counters(SUB_PORT).unwrap().sent().0, 20, "counted when it has left");
    gateway.assert_nothing_lost();
    // Next hops follow where a port goes.
    let state = |gateway: &Gateway, port| {
        let tables = gateway.publisher.current();
        tables.next_hop(tables.on_link_next_hop(port, next_hop).unwrap()).unwrap().state
    };
    assert_eq!(state(&gateway, SUB_PORT), NextHopState::Queued);
    gateway.change(|tables| {
        devices[1..].iter().for_each(|device| assert_eq!(tables.remove_qdisc(*device), Ok(true)));
    });
    assert_eq!(state(&gateway, SUB_PORT), NextHopState::Queued);
    gateway.change(|tables| {
        tables.update_port(SUB_PORT, PortSpec { vrf: BLUE, ..spec }).unwrap();
        tables.set_neighbour(SUB_PORT, next_hop, PEER_MAC).unwrap();
    });
    assert_eq!(state(&gateway, SUB_PORT), NextHopState::Resolved);
    gateway.change(|tables| {
        tables.set_qdisc(QdiscDevice::Vrf(BLUE), tbf(), None).unwrap();
    });
    assert_eq!(state(&gateway, SUB_PORT), NextHopState::Queued);
    gateway.change(|tables| tables.remove_port(SUB_PORT).unwrap());
    gateway.change(|tables| tables.remove_vrf(BLUE).unwrap());
    assert_eq!(gateway.publisher.current().qdiscs().iter().len(), 1);
}

/// A port on VLAN 100 of the WAN, with a station behind it that has the route to 8.8.8.0/24.
fn with_sub_port(mut tables: Tables) -> (Tables, PortSpec) {
    let spec = PortSpec {
        addresses: vec![prefix("172.16.0.1/24")],
        vlan: Some(Vlan::new(WAN, VlanTag::customer(VlanId::new(100).unwrap()))),
        ..PortSpec::new("wan.100", tables.port(WAN).unwrap().spec.mac)
    };
    tables.add_port(SUB_PORT, spec.clone()).unwrap();
    let next_hop = ip("172.16.0.2");
    tables.set_neighbour(SUB_PORT, next_hop, PEER_MAC).unwrap();
    let via = RouteSpec::Via { port: SUB_PORT, address: next_hop };
    tables.set_route(VrfId::MAIN, prefix("8.8.8.0/24"), via).unwrap();
    (tables, spec)
}

const SUB_PORT: PortId = PortId(1100);

/// What may not leave any more is not counted as sent, and what comes behind it has the whole rate
/// at once, whatever stands under the token bucket.
#[test]
fn what_may_not_leave_any_more_delays_nothing() {
    #[derive(Clone, Copy, Debug)]
    enum Change {
        OtherVrf,
        OtherPort,
        Down,
    }
    let codel = || (handle("10:"), Qdisc::FqCodel(FqCodel::default()));
    for child in [None, Some(pfifo(200)), Some(codel())] {
        for change in [Change::OtherVrf, Change::OtherPort, Change::Down] {
            let (mut tables, spec) = with_sub_port(plain_tables());
            let blue = tables.add_vrf("blue").unwrap();
            let bytes = Tbf { rate: 1000 * FRAME, burst: 2 * FRAME as u32, limit: 1_000_000 };
            tables.set_qdisc(ON_MAIN, (handle("1:"), Qdisc::Tbf(bytes)), child).unwrap();
            let mut gateway = Gateway::new(tables);
            // The first change comes in the generation in which the ports came.
            gateway.change(|_| {});
            (0..152).for_each(|_| gateway.receive(LAN, &datagram(1)));
            // Frames of the VLAN are four bytes longer.
            assert_eq!((gateway.sent(WAN).len(), gateway.worker.held()), (1, 151));
            gateway.change(|tables| match change {
                Change::OtherVrf => {
                    tables.update_port(SUB_PORT, PortSpec { vrf: blue, ..spec.clone() }).unwrap();
                }
                Change::OtherPort => {
                    tables.remove_port(SUB_PORT).unwrap();
                    tables.add_port(SUB_PORT, spec.clone()).unwrap();
                }
                Change::Down => {
                    let down = PortSpec { up: false, ..spec.clone() };
                    tables.update_port(SUB_PORT, down).unwrap();
                }
            });
            // Not all in one round.
            gateway.poll();
            assert_eq!(gateway.dropped(DropReason::QdiscFlushed), 64, "{change:?} {child:?}");
            assert_eq!(gateway.worker.next_deadline(), Some(Time(0)));
            // A packet by another port of the VRF, while others are flushed.
            let other = udp("192.168.13.5", "7.7.7.7", (1, 53), FRAME as usize - 14 - 28);
            (0..10).for_each(|_| gateway.receive(LAN, &other));
            assert_eq!(gateway.dropped(DropReason::QdiscFlushed), 151);
            assert_eq!(gateway.worker.held(), 10);
            for _ in 0..10 {
                gateway.wait(Duration::from_millis(1));
                assert_eq!(gateway.sent(WAN).len(), 1);
            }
            assert_eq!((gateway.worker.held(), gateway.worker.next_deadline()), (0, None));
            let placed = on(&gateway, ON_MAIN);
            for node in [Some(&placed.root), placed.child.as_ref()].into_iter().flatten() {
                let QdiscCounters { packets, bytes, drops, queued, .. } = &*node.counters;
                let counted = (packets.read(), drops.read(), queued.read());
                assert_eq!(counted, (1 + 10, 151, 0), "{:?}", node.handle);
                assert_eq!(bytes.read(), FRAME + 4 + 10 * FRAME);
            }
            assert_eq!(gateway.dropped(DropReason::PortDown), 0);
            gateway.assert_nothing_lost();
        }
    }
}

const WORKERS: usize = 3;
const ON_MAIN: QdiscDevice = QdiscDevice::Vrf(VrfId::MAIN);

/// Traffic of all workers by disciplines on these devices; the WAN has a queue at so many workers.
/// Returns by how many frames each worker's WAN queue was left, and how many were not handed over.
fn spread(devices: &[QdiscDevice], queues: usize) -> (Vec<usize>, u64) {
    let publisher = {
        let mut tables = Tables::new(WORKERS, 7);
        let plain = plain_tables();
        plain.ports().for_each(|port| tables.add_port(port.id, port.spec.clone()).unwrap());
        let via = RouteSpec::Via { port: WAN, address: ip("192.168.11.1") };
        tables.set_route(VrfId::MAIN, prefix("0.0.0.0/0"), via).unwrap();
        tables.set_neighbour(WAN, ip("192.168.11.1"), PEER_MAC).unwrap();
        let fast = Tbf { rate: 100_000 * FRAME, burst: 100_000, limit: u32::MAX };
        for device in devices {
            tables.set_qdisc(*device, (handle("1:"), Qdisc::Tbf(fast)), None).unwrap();
        }
        Publisher::new(tables)
    };
    let mut ends = handovers(WORKERS, 64).into_iter();
    let mut made: Vec<_> = (0..WORKERS)
        .map(|index| {
            let (events, _) = rtrb::RingBuffer::new(16);
            let (_, probes) = rtrb::RingBuffer::new(16);
            let settings = WorkerSettings {
                index,
                buffers: 1024,
                seed: [index as u8; 32],
                caches: [CacheSettings::default(); 4],
                ticks: || 0,
                large_buffers: 16,
            };
            let reader = publisher.shared().reader();
            let mut worker = Worker::new(&settings, reader, events, probes).unwrap();
            let (lan_port, lan) = memory::port(MemoryOptions::ethernet("lan", LAN), 2048);
            let (wan_port, wan) = memory::port(MemoryOptions::ethernet("wan", WAN), 4096);
            worker.attach(LAN, Box::new(lan_port));
            if index < queues {
                worker.attach(WAN, Box::new(wan_port));
            }
            worker.join(ends.next().unwrap());
            (worker, lan, wan)
        })
        .collect();
    let mac = MemoryOptions::ethernet("lan", LAN).mac;
    let (mut now, mut next) = (Time(0), [[0_u32; 2]; WORKERS]);
    let (mut sent, mut left_by) = (Vec::new(), vec![0; WORKERS]);
    let owners: Vec<_> =
        publisher.current().qdiscs().iter().map(|(_, placed)| placed.worker).collect();
    for round in 0..600 {
        now = now + Duration::from_micros(300);
        for (worker, next) in next.iter_mut().enumerate() {
            for (flow, number) in next.iter_mut().enumerate() {
                // In the middle, more than may be under way.
                for _ in 0..if round == 300 { 100 } else { 5 } {
                    let flow = (worker * 2 + flow) as u16 + 1;
                    let mut packet = datagram(flow);
                    packet[28..32].copy_from_slice(&number.to_be_bytes());
                    assert!(made[worker].1.push(&frame(mac, HOST_MAC, &packet)));
                    *number += 1;
                }
            }
        }
        for (number, (worker, ..)) in made.iter_mut().enumerate() {
            worker.poll(now).unwrap();
            let mut woken = Vec::new();
            worker.take_handed_over(|other| woken.push(other));
            assert!(!woken.contains(&number) && woken.len() < WORKERS);
            // Each has traffic of its own for the first discipline.
            assert!(
                woken.contains(&owners[owners.len() - 1]) || number == owners[owners.len() - 1]
            );
            worker.take_handed_over(|_| panic!("told twice"));
        }
        for (count, (.., wan)) in left_by.iter_mut().zip(&mut made) {
            let before = sent.len();
            sent.extend(core::iter::from_fn(|| wan.pop()));
            *count += sent.len() - before;
        }
    }
    while made.iter().any(|(worker, ..)| worker.held() > 0) {
        now = now + Duration::from_millis(1);
        for (count, (worker, _, wan)) in left_by.iter_mut().zip(&mut made) {
            worker.poll(now).unwrap();
            let before = sent.len();
            sent.extend(core::iter::from_fn(|| wan.pop()));
            *count += sent.len() - before;
        }
    }
    let mut last = [None; 1 + 2 * WORKERS];
    for bytes in &sent {
        let flow = usize::from(u16::from_be_bytes([bytes[34], bytes[35]]));
        let number = u32::from_be_bytes(bytes[42..46].try_into().unwrap());
        assert!(last[flow].replace(number) < Some(number), "flow {flow} in order");
    }
    // Each came back to a pool: none of the workers has fewer buffers than it had.
    let came: u64 = next.iter().flatten().map(|count| u64::from(*count)).sum();
    let drops = |reason| {
        made.iter().map(|(worker, ..)| worker.statistics().drops.read(reason)).sum::<u64>()
    };
    let not_handed_over = drops(DropReason::QdiscHandover);
    let overlimit = drops(DropReason::QdiscOverlimit);
    assert_eq!(came, sent.len() as u64 + not_handed_over + overlimit);
    let tables = publisher.current();
    let counted: u64 =
        tables.qdiscs().iter().map(|(_, placed)| placed.not_handed_over.read().0).sum();
    // On the way to a port, no discipline counts it.
    assert!(counted == not_handed_over || queues < WORKERS && counted < not_handed_over);
    if let [device] = devices {
        assert_adds_up(tables.qdiscs().on(*device).unwrap(), came - counted);
    }
    (left_by, not_handed_over)
}

/// Workers hand frames to the one that a discipline belongs to, get buffers in exchange, and keep
/// flows in order.
#[test]
fn frames_are_handed_to_the_worker_of_their_discipline() {
    // The WAN's number is 1. Of a burst of 200, as many as the rings hold are handed over.
    let (left_by, not_handed_over) = spread(&[ON_WAN], WORKERS);
    assert_eq!((left_by[0], left_by[2], not_handed_over), (0, 0, 2 * (200 - 64)));
}

/// From the discipline of the VRF, which is the first worker's, to that of the port.
#[test]
fn a_discipline_hands_over_what_the_next_one_is_to_hold() {
    let (left_by, not_handed_over) = spread(&[ON_WAN, ON_MAIN], WORKERS);
    assert_eq!((left_by[0], left_by[2]), (0, 0));
    assert!(left_by[1] > 15_000 && not_handed_over < 1000, "{left_by:?} {not_handed_over}");
}

/// A port that the discipline's worker has no queue of is sent by the first.
#[test]
fn a_worker_without_a_queue_of_the_port_hands_over_to_the_first() {
    let (left_by, _) = spread(&[ON_WAN], 1);
    assert_eq!((left_by[1], left_by[2]), (0, 0));
    assert!(left_by[0] > 15_000);
}
