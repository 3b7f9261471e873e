use std::collections::BTreeMap;

use wire::Mac;

use packet::Pool;
use proptest::prelude::*;

use super::*;

const SECOND: u64 = 1_000_000_000;
const PORT: PortId = PortId(2);
/// More than can wait.
const PACKETS: usize = MAX_NEXT_HOPS * MAX_PACKETS;

/// Of one VRF.
fn hold(
    queue: &mut NeighbourQueue,
    now: Time,
    port: PortId,
    next_hop: IpAddr,
    packet: Packet,
) -> Held {
    queue.hold(now, (VrfId(1), port), next_hop, (packet, None), |_, _| {
        panic!("there is no other VRF")
    })
}

/// However empty the queue is.
#[test]
fn one_vrf_holds_no_more_than_its_highest_share() {
    let mut pool = Pool::with_large(2048, 64);
    let mut queue = NeighbourQueue::new(400, 16);
    queue.limit(&crate::shares::limited_to(25));
    let mut hold = |queue: &mut NeighbourQueue, vrf: u16, to: u32, is_large| {
        let packet = if is_large { pool.take_large() } else { pool.take() };
        let mut packet = packet.unwrap();
        assert!(packet.fill(&to.to_be_bytes()));
        let mut refused = Vec::new();
        let give_way = |packet: Packet, _| refused.push(packet);
        let place = (VrfId(vrf), PortId(vrf));
        let held = queue.hold(Time(0), place, hop(to), (packet, None), give_way);
        if let Held::Refused(packet, _) = held {
            refused.push(packet);
        }
        let count = refused.len();
        refused.into_iter().for_each(|packet| pool.give(packet));
        count
    };
    // 200 next hops and 200 packets behind others; 16 large ones.
    let refused: usize = (0..70).map(|to| hold(&mut queue, 1, to, false)).sum();
    assert_eq!((refused, queue.sought.of(VrfId(1))), (20, 50));
    let again = (0..50).flat_map(|to| [to; 2]).map(|to| hold(&mut queue, 1, to, false));
    assert_eq!((again.sum::<usize>(), queue.totals.behind), (50, 50));
    (0..50).for_each(|to| _ = hold(&mut queue, 1, to, true));
    let behind = queue.totals.behind;
    assert!(behind <= 50);
    assert_eq!(queue.totals.large.len(), 4);
    // Nobody else is held to that.
    let refused: usize = (0..70).map(|to| hold(&mut queue, 2, to, false)).sum();
    assert_eq!(refused, 0);
    let mut left = Vec::new();
    queue.forget(|_| true, |packet| left.push(packet));
    assert_eq!((left.len(), queue.totals.behind), (120 + behind, 0));
    left.into_iter().for_each(|packet| pool.give(packet));
}

#[test]
fn a_flood_in_one_vrf_leaves_another_its_share() {
    let mut pool = Pool::new(4 * MAX_NEXT_HOPS);
    let mut queue = NeighbourQueue::new(2 * MAX_NEXT_HOPS, 0);
    let given = std::cell::RefCell::new(Vec::new());
    let give_way = |packet: Packet, _| given.borrow_mut().push(packet);
    let mut hold = |vrf: u16, port: u16, to: u32| {
        let packet = numbered(&mut pool, u32::from(vrf));
        let held =
            queue.hold(Time(0), (VrfId(vrf), PortId(port)), hop(to), (packet, None), give_way);
        let held = match held {
            Held::Refused(packet, _) => {
                pool.give(packet);
                false
            }
            Held::Ask | Held::Waiting => true,
        };
        for packet in given.borrow_mut().drain(..) {
            assert_eq!(number(&packet), 1, "the flood gives way");
            pool.give(packet);
        }
        held
    };
    // By many ports, until nothing more is taken; and the first of them with long lines.
    for port in 0..40 {
        (0..1024).for_each(|to| _ = hold(1, port, to));
    }
    (0..40).for_each(|to| (0..100).for_each(|_| _ = hold(1, 0, to)));
    // The other VRF seeks as many as the flood is left with, and has lines of its own.
    let sought = (0..1024).filter(|to| hold(2, 100, *to)).count();
    assert!((500..=512).contains(&sought), "{sought}");
    assert!((0..400).all(|to| hold(2, 100, to)), "behind others");
    let moved = |port: PortId| port == PortId(100);
    queue.forget(moved, |packet| {
        assert_eq!(number(&packet), 2);
        pool.give(packet);
    });
    queue.forget(|_| true, |packet| pool.give(packet));
    assert_eq!((queue.totals.behind, pool.available()), (0, pool.size()));
    assert!(queue.is_empty() && queue.next_deadline().is_none());
}

#[test]
fn large_packets_of_one_vrf_leave_another_its_share() {
    let mut pool = Pool::with_large(64, 64);
    let mut queue = NeighbourQueue::new(256, 8);
    let mut given: Vec<(VrfId, u32)> = Vec::new();
    let mut hold = |queue: &mut NeighbourQueue, vrf: u16, to: u32, is_large: bool| {
        let mut packet = if is_large { pool.take_large() } else { pool.take() }.unwrap();
        assert!(packet.fill(&(u32::from(vrf) << 16 | to).to_be_bytes()));
        let mut give = |packet: Packet, reason| {
            assert_eq!((reason, packet.is_large()), (DropReason::NeighbourQueueFull, true));
            given.push((VrfId((number(&packet) >> 16) as u16), number(&packet) & 0xffff));
            pool.give(packet);
        };
        let place = (VrfId(vrf), PortId(vrf));
        let held = match queue.hold(Time(0), place, hop(to), (packet, None), &mut give) {
            Held::Refused(packet, reason) => {
                give(packet, reason);
                "refused"
            }
            Held::Ask => "ask",
            Held::Waiting => "waiting",
        };
        (held, std::mem::take(&mut given))
    };
    // To absent stations, and to one of them several: the oldest of its own give way.
    for to in 0..8 {
        assert_eq!(hold(&mut queue, 1, to, true), ("ask", vec![]));
    }
    assert_eq!(hold(&mut queue, 1, 8, true), ("ask", vec![(VrfId(1), 0)]));
    assert_eq!(hold(&mut queue, 1, 8, true), ("waiting", vec![(VrfId(1), 1)]));
    // What is left of these lines is sought on, and has room for a small packet.
    assert_eq!(hold(&mut queue, 1, 0, false), ("waiting", vec![]));
    assert_eq!((queue.order.len(), queue.totals.behind), (9, 1));
    // Another VRF gets half of them.
    for (to, gives_way) in (0..4).zip(2..) {
        assert_eq!(hold(&mut queue, 2, to, true), ("ask", vec![(VrfId(1), gives_way)]));
    }
    assert_eq!(hold(&mut queue, 2, 0, true), ("waiting", vec![(VrfId(2), 0)]));
    assert_eq!(hold(&mut queue, 1, 9, true), ("ask", vec![(VrfId(1), 6)]));
    let shares = |queue: &NeighbourQueue| {
        let of = &queue.totals.large_of;
        (queue.totals.large.len(), of.of(VrfId(1)), of.of(VrfId(2)))
    };
    assert_eq!(shares(&queue), (8, 4, 4));
    // The lines with large packets or without any are delivered, given up and forgotten.
    let mut told = Vec::new();
    let is_known = |port, to| (port == PortId(1) && to == hop(8)).then_some(());
    queue.take_resolved(is_known, |_, _, (), packet| {
        told.push(number(&packet) & 0xffff);
        pool.give(packet);
    });
    assert_eq!(told, [8, 8]);
    assert_eq!(shares(&queue), (6, 2, 4));
    queue.forget(|port| port == PortId(2), |packet| pool.give(packet));
    assert_eq!(shares(&queue), (2, 2, 0));
    let mut silent = Vec::new();
    for second in 1..=3 {
        queue.advance(
            Time(second * SECOND),
            |_, _| true,
            |_, to, all| silent.push((to, all.map(|(packet, _)| pool.give(packet)).count())),
        );
    }
    let waited = |to: u32| usize::from([0, 7, 9].contains(&to));
    let rest = (0..10).filter(|to| *to != 8).map(|to| (hop(to), waited(to)));
    assert_eq!(silent, rest.collect::<Vec<_>>());
    assert_eq!((shares(&queue), queue.totals.behind), ((0, 0, 0), 0));
    assert!(queue.is_empty() && pool.available() == pool.size());
    // Without room for any.
    let mut queue = NeighbourQueue::new(256, 0);
    let packet = pool.take_large().unwrap();
    let held = queue.hold(Time(0), (VrfId(1), PORT), hop(1), (packet, None), |_, _| {});
    assert!(matches!(held, Held::Refused(_, DropReason::NeighbourQueueFull)));
    assert!(queue.is_empty());
}

/// A worker may get a packet for a port before it gets its queue of the port.
#[test]
fn what_could_not_be_asked_is_asked_as_soon_as_it_can_be() {
    let mut pool = Pool::new(3);
    let mut queue = NeighbourQueue::new(PACKETS, 0);
    for to in [1, 2, 3] {
        let held = hold(&mut queue, Time(0), PORT, hop(to), numbered(&mut pool, to));
        assert!(matches!(held, Held::Ask));
    }
    queue.put_off(PORT, hop(1));
    let mut advance = |queue: &mut NeighbourQueue, now, can_send| {
        let (mut asked, mut given_up) = (Vec::new(), Vec::new());
        let ask = |_, to| {
            asked.push(to);
            can_send
        };
        queue.advance(Time(now), ask, |_, to, all| {
            given_up.push(to);
            all.for_each(|(packet, _)| pool.give(packet));
        });
        (asked, given_up)
    };
    // Also when it is asked again, and as often as others then.
    for now in [1, SECOND] {
        queue.ask_put_off();
        let asked = if now == 1 { vec![hop(1)] } else { vec![hop(2), hop(3)] };
        assert_eq!(advance(&mut queue, now, now == 1), (asked, vec![]), "{now}");
    }
    assert_eq!(advance(&mut queue, SECOND + 2, true), (vec![hop(1)], vec![]));
    queue.ask_put_off();
    assert_eq!(queue.next_deadline(), Some(Time(0)));
    assert_eq!(advance(&mut queue, SECOND + 3, true), (vec![hop(2), hop(3)], vec![]));
    queue.ask_put_off();
    assert_eq!(advance(&mut queue, SECOND + 4, true), (vec![], vec![]), "all were asked");
    let all = (0..9).map(|second| advance(&mut queue, second * SECOND + 9, true));
    let (asked, given_up): (Vec<_>, Vec<_>) = all.unzip();
    assert_eq!((asked.concat().len(), given_up.concat().len()), (5, 3));
    assert!(queue.is_empty());
}

fn hop(number: u32) -> IpAddr {
    std::net::Ipv4Addr::from_bits(0x0a00_0000 + number).into()
}

fn numbered(pool: &mut Pool, number: u32) -> Packet {
    let mut packet = pool.take().unwrap();
    assert!(packet.fill(&number.to_be_bytes()));
    packet
}

fn number(packet: &Packet) -> u32 {
    u32::from_be_bytes(packet.bytes().try_into().unwrap())
}

#[test]
fn asks_three_times_a_second_apart_and_then_gives_up() {
    let mut pool = Pool::new(2);
    let mut queue = NeighbourQueue::new(PACKETS, 0);
    let start = Time(5 * SECOND);
    assert!(matches!(hold(&mut queue, start, PORT, hop(1), numbered(&mut pool, 1)), Held::Ask));
    assert!(matches!(hold(&mut queue, start, PORT, hop(1), numbered(&mut pool, 2)), Held::Waiting));
    let mut told = Vec::new();
    let mut advance = |queue: &mut NeighbourQueue, now| {
        let log = std::cell::RefCell::new(Vec::new());
        queue.advance(
            Time(now),
            |port, to| {
                log.borrow_mut().push((port, to, None));
                true
            },
            |port, to, all| {
                let all = all.map(|(packet, _)| (port, to, Some(number(&packet))));
                log.borrow_mut().extend(all);
            },
        );
        told.push((now, log.into_inner()));
    };
    for now in
        [6 * SECOND - 1, 6 * SECOND, 6 * SECOND, 7 * SECOND, 8 * SECOND - 1, 8 * SECOND, 9 * SECOND]
    {
        advance(&mut queue, now);
    }
    let asked = vec![(PORT, hop(1), None)];
    assert_eq!(
        told,
        [
            (6 * SECOND - 1, vec![]),
            (6 * SECOND, asked.clone()),
            (6 * SECOND, vec![]),
            (7 * SECOND, asked),
            (8 * SECOND - 1, vec![]),
            (8 * SECOND, vec![(PORT, hop(1), Some(1)), (PORT, hop(1), Some(2))]),
            (9 * SECOND, vec![]),
        ]
    );
    assert!(queue.is_empty() && queue.next_deadline().is_none());
}

#[test]
fn a_full_queue_gives_back_the_packet_that_waited_longest() {
    let mut pool = Pool::new(MAX_PACKETS + 1);
    let mut queue = NeighbourQueue::new(PACKETS, 0);
    for count in 0..MAX_PACKETS as u32 {
        let packet = numbered(&mut pool, count);
        assert!(matches!(
            hold(&mut queue, Time(0), PORT, hop(1), packet),
            Held::Ask | Held::Waiting
        ));
    }
    match hold(&mut queue, Time(0), PORT, hop(1), numbered(&mut pool, 99)) {
        Held::Refused(packet, DropReason::NeighbourQueueFull) => assert_eq!(number(&packet), 0),
        other => panic!("{other:?}"),
    }
    let mut delivered = Vec::new();
    queue
        .take_resolved(|_, _| Some(Mac([2; 6])), |_, _, _, packet| delivered.push(number(&packet)));
    assert_eq!(delivered, (1..MAX_PACKETS as u32).chain([99]).collect::<Vec<_>>());
}

#[test]
fn only_so_many_next_hops() {
    let mut pool = Pool::new(MAX_NEXT_HOPS + 5);
    let mut queue = NeighbourQueue::new(PACKETS, 0);
    let is_refused = |held| matches!(held, Held::Refused(packet, DropReason::NeighbourTableFull) if number(&packet) == 7);
    // A port has half of the places, another half of the rest, and so on.
    for (port, share) in [(PORT, 512), (PortId(1), 256), (PortId(9), 128), (PortId(7), 64)] {
        for count in 0..share {
            assert!(matches!(
                hold(&mut queue, Time(0), port, hop(count), numbered(&mut pool, count)),
                Held::Ask
            ));
        }
        assert!(is_refused(hold(&mut queue, Time(0), port, hop(5000), numbered(&mut pool, 7))));
    }
    let v6 = |number: u128| IpAddr::from(std::net::Ipv6Addr::from_bits(number));
    for count in 0..32 {
        let held = hold(&mut queue, Time(0), PORT, v6(count), numbered(&mut pool, 0));
        assert!(matches!(held, Held::Ask), "the other family of the port");
    }
    assert!(is_refused(hold(&mut queue, Time(0), PORT, v6(5000), numbered(&mut pool, 7))));
    queue.take_resolved(
        |port, to| ((port, to) == (PORT, hop(3))).then_some(Mac([2; 6])),
        |_, _, _, _| {},
    );
    assert!(is_refused(hold(&mut queue, Time(0), PORT, hop(5000), numbered(&mut pool, 7))));
    let other = hold(&mut queue, Time(0), PortId(3), hop(5000), numbered(&mut pool, 8));
    assert!(matches!(other, Held::Ask), "room for the others");
}

#[test]
fn only_so_many_packets_and_one_for_each_next_hop() {
    let mut pool = Pool::new(200);
    // Eight next hops, eight packets behind others.
    let mut queue = NeighbourQueue::new(16, 0);
    let mut waiting = 0;
    for count in 0..100 {
        match hold(&mut queue, Time(0), PORT, hop(count % 3), numbered(&mut pool, count)) {
            Held::Ask | Held::Waiting => waiting += 1,
            Held::Refused(packet, reason) => {
                assert_eq!(reason, DropReason::NeighbourQueueFull);
                assert_eq!(number(&packet) % 3, count % 3, "it makes room in its own line");
                pool.give(packet);
            }
        }
    }
    assert_eq!(waiting, 3 + 8);
    assert!(matches!(hold(&mut queue, Time(0), PORT, hop(3), numbered(&mut pool, 100)), Held::Ask));
    assert!(matches!(
        hold(&mut queue, Time(0), PortId(1), hop(3), numbered(&mut pool, 100)),
        Held::Ask
    ));
    // Given up or delivered, they make room.
    queue.take_resolved(
        |_, to| (to == hop(0)).then_some(Mac([2; 6])),
        |_, _, _, packet| pool.give(packet),
    );
    assert!(matches!(
        hold(&mut queue, Time(0), PORT, hop(1), numbered(&mut pool, 101)),
        Held::Waiting
    ));
    for second in 1..=3 {
        queue.advance(
            Time(second * SECOND),
            |_, _| true,
            |_, _, all| all.for_each(|(packet, _)| pool.give(packet)),
        );
    }
    assert!(queue.is_empty());
    assert_eq!((queue.totals.behind, pool.available()), (0, pool.size()));
}

#[derive(Clone, Debug)]
enum Step {
    Hold(u16, u32),
    Resolve(u16, u32),
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0u16..3, 0u32..4).prop_map(|(port, to)| Step::Hold(port, to)),
        1 => (0u16..3, 0u32..4).prop_map(|(port, to)| Step::Resolve(port, to)),
        2 => (0..SECOND * 3 / 2).prop_map(Step::Wait),
    ]
}

proptest! {
    #[test]
    fn is_a_map_of_queues(steps in proptest::collection::vec(step(), 0..200)) {
        let mut pool = Pool::new(1000);
        let mut queue = NeighbourQueue::new(PACKETS, 0);
        // By port and next hop: asked how often, due when, and the packets.
        let mut naive: BTreeMap<(PortId, IpAddr), (u8, Time, Vec<u32>)> = BTreeMap::new();
        let mut now = Time(0);
        for (count, step) in (0..).zip(steps) {
            match step {
                Step::Hold(port, to) => {
                    let key = (PortId(port), hop(to));
                    let held = hold(&mut queue, now, key.0, key.1, numbered(&mut pool, count));
                    let new = !naive.contains_key(&key);
                    let (_, _, packets) = naive.entry(key).or_insert((1, now + RETRANSMIT, Vec::new()));
                    packets.push(count);
                    match held {
                        Held::Ask => prop_assert!(new),
                        Held::Waiting => prop_assert!(!new),
                        Held::Refused(packet, reason) => {
                            prop_assert_eq!(reason, DropReason::NeighbourQueueFull);
                            prop_assert_eq!(packets.len(), MAX_PACKETS + 1);
                            prop_assert_eq!(number(&packet), packets.remove(0));
                            pool.give(packet);
                        }
                    }
                }
                Step::Resolve(port, to) => {
                    let key = (PortId(port), hop(to));
                    let mut delivered = Vec::new();
                    let lookup = |port, to| ((port, to) == key).then_some(Mac([2; 6]));
                    queue.take_resolved(lookup, |port, to, _, packet| {
                        assert_eq!((port, to), key);
                        delivered.push(number(&packet));
                        pool.give(packet);
                    });
                    prop_assert_eq!(delivered, naive.remove(&key).map(|(_, _, packets)| packets).unwrap_or_default());
                }
                Step::Wait(time) => {
                    now = now + Duration::from_nanos(time);
                    let mut asked = Vec::new();
                    let mut given_up = Vec::new();
                    queue.advance(now, |port, to| { asked.push((port, to)); true }, |port, to, all| all.for_each(|(packet, _)| {
                        given_up.push(((port, to), number(&packet)));
                        pool.give(packet);
                    }));
                    let mut expect_asked = Vec::new();
                    let mut expect_given_up = Vec::new();
                    naive.retain(|key, (asked, due, packets)| {
                        if *due > now {
                            return true;
                        }
                        if *asked == MAX_ASKED {
                            expect_given_up.extend(packets.iter().map(|packet| (*key, *packet)));
                            return false;
                        }
                        *asked += 1;
                        *due = now + RETRANSMIT;
                        expect_asked.push(*key);
                        true
                    });
                    prop_assert_eq!(asked, expect_asked);
                    prop_assert_eq!(given_up, expect_given_up);
                }
            }
            prop_assert_eq!(queue.next_deadline(), naive.values().map(|(_, due, _)| *due).min());
            prop_assert_eq!(queue.is_empty(), naive.is_empty());
            let waiting: usize = naive.values().map(|(_, _, packets)| packets.len()).sum();
            prop_assert_eq!(pool.available() + waiting, pool.size(), "no packet is lost");
        }
    }
}
