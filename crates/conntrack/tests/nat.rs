//! NAT: pools beside the table, as a gateway uses them.

mod gate;

use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, Ipv4Addr};

use conntrack::nat::{BadPool, Lease, NotLent, Pool, PoolSettings, PortBlocks, PortChoice};
use conntrack::{CtState, Direction, Handle, New, Packet, Refused, Tuple};
use gate::{Gate, addresses, segment, settings, tcp, udp};
use proptest::prelude::*;
use types::{IpRange, Protocol};

const DATAGRAM: Packet = Packet::Datagram;

fn pool(first: &str, last: &str, change: impl FnOnce(&mut PoolSettings)) -> Pool {
    let range = IpRange::new(first.parse().unwrap(), last.parse().unwrap()).unwrap();
    let mut settings = PoolSettings::new(range);
    change(&mut settings);
    Pool::new(settings, [8, 9]).unwrap()
}

struct Nat {
    gate: Gate,
    pool: Pool,
}

impl Nat {
    fn new(connections: u32, pool: Pool) -> Self {
        Self { gate: Gate::new(&settings(connections)), pool }
    }

    /// Opens a connection with a translated source.
    fn open(&mut self, original: Tuple) -> Result<(Handle, Tuple), NotLent> {
        let (table, now) = (&self.gate.table, self.gate.now);
        let is_taken = |tuple: &Tuple| table.lookup(0, &tuple.reversed(), now).is_some();
        let is_closed = |tuple: &Tuple| table.closed(0, tuple, now).is_some();
        let before = self.pool.counts();
        let foretold = self.pool.would_lend(0, &original, None, is_taken, is_closed);
        assert_eq!(self.pool.counts(), before);
        let pool = &self.pool;
        let give = |ended: &[conntrack::Ended]| ended.iter().for_each(|end| pool.give(end.binding));
        let first = match original.protocol {
            Protocol::TCP => segment("S", 1, 0, 0),
            _ => DATAGRAM,
        };
        let attempt = |lease: &Lease| {
            let to = Lease { binding: lease.binding | 0x1abc << 48, ..*lease };
            let new = New::plain(0, original);
            let made = table.commit_translated(&new, &to, (&first, 60), now, &mut &give);
            made.map(|handle| (handle, lease.translated))
        };
        let made = pool.lend_making_way(0, &original, attempt, |translated| {
            table.end_closed(0, translated, now, &mut &give)
        });
        assert_eq!(foretold, made.map(|(_, translated)| translated));
        made
    }

    /// Opens a connection anew, and says whether what it becomes was foretold while it was there.
    fn open_anew(&mut self, handle: Handle, original: Tuple, was: &Tuple) -> bool {
        let (table, now) = (&self.gate.table, self.gate.now);
        let is_taken = |tuple: &Tuple| {
            let found = table.lookup(0, &tuple.reversed(), now);
            found.is_some_and(|(found, _)| found.index != handle.index)
        };
        let foretold = self.pool.would_lend(0, &original, Some(was), is_taken, |_| false);
        self.close(handle);
        foretold == self.open(original).map(|(_, translated)| translated)
    }

    fn close(&mut self, handle: Handle) {
        let pool = &self.pool;
        let give =
            &mut |ended: &[conntrack::Ended]| ended.iter().for_each(|end| pool.give(end.binding));
        assert!(self.gate.table.remove(handle, self.gate.now, give));
    }
}

fn flow(source: u32, port: u16, destination: u32) -> Tuple {
    Tuple::new(addresses(source, destination), Protocol::UDP, port, 53)
}

#[test]
fn a_connection_that_is_opened_anew_keeps_its_port_if_it_had_it() {
    for last in ["192.0.2.1", "192.0.2.4"] {
        let mut nat = Nat::new(1 << 10, pool("192.0.2.1", last, |_| ()));
        // Two hosts with the same port: one keeps it.
        let flows = [flow(0x0a00_0001, 2000, 0x0808_0808), flow(0x0a00_0002, 2000, 0x0808_0808)];
        let opened = flows.map(|flow| nat.open(flow).unwrap());
        for ((handle, was), flow) in opened.into_iter().zip(flows) {
            if was.source == flow.source {
                assert!(nat.open_anew(handle, flow, &was), "{was:?}");
            }
        }
    }
}

#[test]
fn all_ports_of_an_address_serve_one_destination() {
    let mut nat = Nat::new(1 << 17, pool("192.0.2.1", "192.0.2.1", |_| ()));
    let mut seen = BTreeSet::new();
    let mut last = None;
    for at in 0..64_512u32 {
        // Many hosts, with ports that clash.
        let flow = flow(0x0a00_0000 + at, 2000 + (at % 7) as u16, 0x0808_0808);
        let (handle, translated) = nat.open(flow).unwrap();
        assert!(translated.source >= 1024);
        assert!(seen.insert(translated.source));
        last = Some((handle, translated));
    }
    // The next one is refused and counted; to another destination there are ports.
    let more = flow(0x0b00_0000, 5000, 0x0808_0808);
    assert_eq!(nat.open(more), Err(NotLent::Exhausted));
    assert_eq!(nat.pool.counts().exhausted, 1);
    assert_eq!(nat.gate.table.counts().connections, 64_512);
    nat.open(flow(0x0b00_0000, 5000, 0x0808_0404)).unwrap();
    let (handle, translated) = last.unwrap();
    nat.close(handle);
    assert_eq!(nat.open(more).unwrap().1.source, translated.source);
}

#[test]
fn ports_are_shared_by_destinations() {
    let one_group = |settings: &mut PoolSettings| settings.ports = Some(2000..=2099);
    let mut nat = Nat::new(1 << 14, pool("192.0.2.1", "192.0.2.1", one_group));
    // A hundred ports serve ten thousand flows to a hundred destinations, whatever their groups.
    for destination in 0..100 {
        for at in 0..100 {
            let made = nat.open(flow(0x0a00_0000 + at, 5000, 0x0800_0000 + destination));
            assert!(made.is_ok(), "{destination} {at}");
        }
    }
    assert_eq!(nat.open(flow(0x0b00_0000, 5, 0x0800_0000)), Err(NotLent::Exhausted));
}

#[test]
fn a_port_is_kept_if_it_is_free_and_in_its_class_otherwise() {
    let mut nat = Nat::new(1024, pool("192.0.2.1", "192.0.2.1", |_| ()));
    let port = |nat: &mut Nat, source, port| nat.open(flow(source, port, 8)).unwrap().1.source;
    assert_eq!(port(&mut nat, 1, 5353), 5353);
    let other = port(&mut nat, 2, 5353);
    assert!(other != 5353 && other >= 1024);
    assert_eq!(port(&mut nat, 1, 123), 123);
    assert!((1..512).contains(&port(&mut nat, 2, 123)));
    assert_eq!(port(&mut nat, 1, 700), 700);
    assert!((600..1024).contains(&port(&mut nat, 2, 700)));
    let random = |settings: &mut PoolSettings| settings.choice = Some(PortChoice::Random);
    let mut nat = Nat::new(1024, pool("192.0.2.1", "192.0.2.1", random));
    let kept = (0..50).filter(|at| port(&mut nat, *at, 9999) == 9999).count();
    assert!(kept < 2);
}

/// Ports that connections get which come one after the other, each gone before the next.
fn ports_of(choice: PortChoice, range: Option<(u16, u16)>, connections: &[Tuple]) -> Vec<u16> {
    let chosen = |settings: &mut PoolSettings| {
        settings.choice = Some(choice);
        settings.ports = range.map(|(first, last)| first..=last);
    };
    let mut nat = Nat::new(1024, pool("192.0.2.1", "192.0.2.1", chosen));
    let port = |tuple: &Tuple| {
        let (handle, translated) = nat.open(*tuple).unwrap();
        nat.close(handle);
        translated.source
    };
    connections.iter().map(port).collect()
}

#[test]
fn a_port_by_a_hash_is_the_connections_and_one_at_random_is_not() {
    // Each twice, with others between. Their own port is of the range, and is not kept.
    let of = |at: u32| flow(at % 200, 9999, 8 + at / 100 % 2);
    let connections: Vec<Tuple> = (0..400).map(of).collect();
    for range in [None, Some((9000, 9999))] {
        let ports = ports_of(PortChoice::Hash, range, &connections);
        assert_eq!(ports[..200], ports[200..], "{range:?}");
        assert!(ports.iter().all(|port| (9000..=9999).contains(port)) || range.is_none());
        assert!(ports.iter().filter(|port| **port == 9999).count() < 10, "{range:?}");
        assert!(ports.iter().collect::<BTreeSet<_>>().len() > 150, "{range:?}");
        let ports = ports_of(PortChoice::Random, range, &connections);
        let same = ports[..200].iter().zip(&ports[200..]).filter(|(one, other)| one == other);
        assert!(same.count() < 10, "{range:?}");
    }
}

#[test]
fn a_port_by_a_hash_follows_from_all_of_the_connection() {
    let to = |port| Tuple::new(addresses(1, 8), Protocol::UDP, 5000, port);
    let lite = Tuple::new(addresses(1, 8), Protocol::UDP_LITE, 5000, 53);
    let connections =
        [flow(1, 5000, 8), flow(2, 5000, 8), flow(1, 5001, 8), flow(1, 5000, 9), to(54), lite];
    let ports = ports_of(PortChoice::Hash, None, &connections);
    assert_eq!(ports.iter().collect::<BTreeSet<_>>().len(), 6, "{ports:?}");
}

#[test]
fn who_finds_the_port_of_its_hash_taken_gets_another() {
    let few = |settings: &mut PoolSettings| {
        settings.choice = Some(PortChoice::Hash);
        settings.ports = Some(2000..=2049);
    };
    let mut nat = Nat::new(1024, pool("192.0.2.1", "192.0.2.1", few));
    let ports: BTreeSet<u16> =
        (0..50).map(|at| nat.open(flow(at, 1, 8)).unwrap().1.source).collect();
    assert_eq!(ports, (2000..=2049).collect());
    assert_eq!(nat.open(flow(50, 1, 8)), Err(NotLent::Exhausted));
}

#[test]
fn a_port_is_kept_if_nobody_has_it_to_the_same_destination() {
    for groups in [2, 16] {
        let few = |settings: &mut PoolSettings| settings.groups = groups;
        let mut nat = Nat::new(1024, pool("192.0.2.1", "192.0.2.1", few));
        for host in 0..100 {
            // 512 is in no class that others are chosen from.
            for port in [100, 512, 5353] {
                let opened = nat.open(flow(host, port, 0x0800_0000 + host)).unwrap();
                assert_eq!(opened.1.source, port, "{host}");
            }
        }
        let other = nat.open(flow(200, 5353, 0x0800_0000)).unwrap().1.source;
        assert!(other != 5353 && other >= 1024);
    }
}

#[test]
fn identifiers_of_pings_are_translated() {
    let mut nat = Nat::new(1024, pool("192.0.2.1", "192.0.2.1", |_| ()));
    let ping = |source| Tuple::icmp(addresses(source, 8), 8, 0, 77).unwrap();
    let (_, first) = nat.open(ping(1)).unwrap();
    let (handle, second) = nat.open(ping(2)).unwrap();
    assert_eq!(first.source, 77);
    assert_ne!(second.source, 77);
    let answer = second.reversed();
    assert_eq!(nat.gate.lookup(&answer), Some((handle, Direction::Reply)));
    let back = nat.gate.table.translation(handle, Direction::Reply).unwrap();
    assert_eq!(back.tuple, ping(2).reversed());
}

#[test]
fn a_source_keeps_its_address_if_it_is_persistent() {
    let persistent = |settings: &mut PoolSettings| settings.persistent = true;
    let mut nat = Nat::new(1 << 14, pool("192.0.2.1", "192.0.2.64", persistent));
    let mut used = BTreeSet::new();
    for source in 0..40 {
        let mut of_source = BTreeSet::new();
        for destination in 0..20 {
            let (_, translated) = nat.open(flow(source, 5000, destination)).unwrap();
            of_source.insert(translated.addresses.source());
        }
        assert_eq!(of_source.len(), 1);
        used.extend(of_source);
    }
    assert!(used.len() > 20);
}

#[test]
fn a_mapping_is_one_for_all_destinations_if_that_is_wanted() {
    let alike = |settings: &mut PoolSettings| {
        settings.groups = 1;
        settings.endpoint_independent = true;
    };
    let mut nat = Nat::new(1 << 12, pool("192.0.2.1", "192.0.2.2", alike));
    let mut of = HashMap::new();
    let mut handles = Vec::new();
    for source in 0..50u32 {
        for destination in 0..20 {
            let (handle, translated) = nat.open(flow(source, 5000, destination)).unwrap();
            let outside = translated.source;
            let address = translated.addresses.source();
            let mapped = of.entry(source).or_insert((address, outside));
            assert_eq!(*mapped, (address, outside));
            handles.push(handle);
        }
    }
    let distinct: BTreeSet<_> = of.values().collect();
    assert_eq!(distinct.len(), 50);
    for (source, (address, port)) in &of {
        let inside = nat.pool.inside(Protocol::UDP, *address, *port);
        assert_eq!(inside, Some((0, IpAddr::V4(Ipv4Addr::from_bits(*source)), 5000)));
    }
    for handle in handles {
        nat.close(handle);
    }
    for (address, port) in of.values() {
        assert_eq!(nat.pool.inside(Protocol::UDP, *address, *port), None);
    }
    let counts = nat.pool.counts();
    assert_eq!((counts.lent, counts.returned), (1000, 1000));
}

/// Where others share a port by their destinations, each mapping has one of its own.
#[test]
fn mappings_end_with_the_ports() {
    let alike = |settings: &mut PoolSettings| {
        settings.groups = 1;
        settings.endpoint_independent = true;
        settings.ports = Some(2000..=2003);
    };
    let mut nat = Nat::new(64, pool("192.0.2.1", "192.0.2.1", alike));
    let of = |source, destination| flow(source, 2000, destination);
    let handles: Vec<_> = (0..4).map(|source| nat.open(of(source, 1)).unwrap().0).collect();
    assert_eq!(nat.open(of(4, 2)).err(), Some(NotLent::Exhausted));
    // Those that there are take more connections.
    nat.open(of(3, 2)).unwrap();
    nat.close(handles[1]);
    nat.open(of(4, 2)).unwrap();
    assert_eq!(nat.open(of(1, 1)).err(), Some(NotLent::Exhausted));
}

/// A connection that came from outside to the port that a mapping has, or would have.
#[test]
fn a_mapping_is_one_for_a_destination_that_has_come_too() {
    let alike = |settings: &mut PoolSettings| {
        settings.groups = 1;
        settings.endpoint_independent = true;
    };
    let mut nat = Nat::new(64, pool("192.0.2.1", "192.0.2.1", alike));
    let comes = |nat: &mut Nat, source: u32, port: u16| {
        let to = Tuple::new(addresses(source, 0xc000_0201), Protocol::UDP, 53, port);
        nat.gate.packet(to, &DATAGRAM);
    };
    comes(&mut nat, 1, 2000);
    assert_eq!(nat.open(flow(7, 2000, 1)).err(), Some(NotLent::Exhausted));
    nat.open(flow(7, 2000, 2)).unwrap();
    comes(&mut nat, 3, 2000);
    assert_eq!(nat.open(flow(7, 2000, 3)).err(), Some(NotLent::Exhausted));
}

#[test]
fn a_subscriber_has_its_block_and_no_more() {
    let blocks = |settings: &mut PoolSettings| {
        let range = 1024..=65_535;
        let first = "0.0.0.100".parse().unwrap();
        settings.blocks = Some(PortBlocks::new(first, 1000, &range, 128, 2).unwrap());
        settings.ports = Some(range);
    };
    let mut nat = Nat::new(1 << 12, pool("192.0.2.1", "192.0.2.2", blocks));
    let mut ports = BTreeSet::new();
    for at in 0..128 {
        let (_, translated) = nat.open(flow(101, 9000 + at, 8)).unwrap();
        assert_eq!(translated.addresses.source(), "192.0.2.1".parse::<IpAddr>().unwrap());
        ports.insert(translated.source);
    }
    assert_eq!(ports, (1152..1280).collect());
    assert_eq!(nat.open(flow(101, 8000, 8)), Err(NotLent::Block));
    assert_eq!(nat.open(flow(99, 8000, 8)), Err(NotLent::NoSubscriber));
    nat.open(flow(102, 8000, 8)).unwrap();
    // The pool has ports for others, which is told apart.
    let counts = nat.pool.counts();
    assert_eq!((counts.exhausted, counts.block_full, counts.no_subscriber), (0, 1, 1));
    let subscriber = "0.0.0.101".parse().unwrap();
    assert_eq!(nat.pool.take_full_blocks().named, [((0, subscriber), 1)]);
    assert_eq!(nat.pool.take_full_blocks().named, []);
}

/// A port of another address would be one of somebody else's block.
#[test]
fn a_block_is_of_one_address() {
    let blocks = |settings: &mut PoolSettings| {
        settings.ports = Some(1024..=65_535);
        settings.block_size = Some(64_512);
    };
    let mut nat = Nat::new(1 << 12, pool("192.0.2.1", "192.0.2.2", blocks));
    let (_, first) = nat.open(flow(1, 5000, 8)).unwrap();
    let (other_handle, other) = nat.open(flow(2, 5000, 8)).unwrap();
    let [own, others] = [first, other].map(|translated| translated.addresses.source());
    assert_ne!(own, others);
    let lend_at = |address| nat.pool.lend_at(0, address, &flow(1, 7000, 8), |lease| Ok(*lease));
    assert_eq!(lend_at(others), Err(NotLent::Block));
    let lease = lend_at(own).unwrap();
    nat.pool.give(lease.binding);
    let (mut assigned, more) = nat.pool.assigned_blocks(10);
    assigned.sort_by_key(|(_, event)| event.source);
    let whose: Vec<_> = assigned.iter().map(|(at, event)| (*at, event.source)).collect();
    let [one, two] = ["0.0.0.1", "0.0.0.2"].map(|source| source.parse().unwrap());
    assert_eq!((whose, more), (vec![(own, one), (others, two)], 0));
    // Who has the other block loses it with its last connection and not before.
    nat.close(other_handle);
    let (events, _) = nat.pool.take_block_events();
    let told: Vec<_> = events.iter().map(|(at, event)| (*at, event.is_assigned)).collect();
    assert_eq!(told, [(own, true), (others, true), (others, false)]);
    assert!(!nat.pool.is_idle());
}

#[test]
fn a_hairpin_is_translated_at_both_ends() {
    // Two hosts inside; one reaches the other by the outside address.
    let mut nat = Nat::new(64, pool("192.0.2.1", "192.0.2.1", |_| ()));
    let original = tcp(0x0a00_0005, 4000).with_destination("192.0.2.1".parse().unwrap(), 8080);
    let original = original.unwrap();
    let inside = original.with_destination("10.0.0.6".parse().unwrap(), 80).unwrap();
    let (table, now) = (&nat.gate.table, nat.gate.now);
    let made = nat.pool.lend(0, &inside, |lease| {
        let (new, syn) = (New::plain(0, original), segment("S", 1, 0, 0));
        table.commit_translated(&new, lease, (&syn, 60), now, &mut |_| {})
    });
    let handle = made.unwrap();
    let there = table.translation(handle, Direction::Original).unwrap().tuple;
    assert_eq!(there.addresses, addresses(0xc000_0201, 0x0a00_0006));
    assert_eq!((there.source, there.destination), (4000, 80));
    let reply = nat.gate.packet(there.reversed(), &segment("SA", 7, 2, 0));
    assert_eq!(reply, CtState(0xea));
    let back = nat.gate.table.translation(handle, Direction::Reply).unwrap().tuple;
    assert_eq!(back, original.reversed());
}

/// Packets on their way while a mark changes are translated as before, and none once the connection has
/// ended.
#[test]
fn a_connection_translates_by_every_name_that_it_has_had() {
    let mut nat = Nat::new(1, pool("192.0.2.1", "192.0.2.1", |_| ()));
    let (first, _) = nat.open(flow(1, 1, 8)).unwrap();
    let mut names = vec![first];
    for mark in 1..300 {
        names.push(nat.gate.table.set_mark(*names.last().unwrap(), mark, u32::MAX).unwrap());
    }
    let last = *names.last().unwrap();
    // As it is.
    assert_eq!(nat.gate.table.set_mark(last, 299, u32::MAX), Some(last));
    for direction in [Direction::Original, Direction::Reply] {
        let translated = |name: Handle| {
            nat.gate.table.translation(name, direction).map(|translation| translation.tuple)
        };
        assert!(translated(first).is_some());
        assert!(names.iter().all(|name| translated(*name) == translated(first)));
        for generation in [first.generation.wrapping_sub(1), last.generation.wrapping_add(1)] {
            assert_eq!(translated(Handle { generation, ..first }), None);
        }
    }
    nat.close(last);
    let are_gone = |nat: &Nat| {
        let gone = |name: &Handle| nat.gate.table.translation(*name, Direction::Original).is_none();
        names.iter().all(gone)
    };
    assert!(are_gone(&nat));
    let (other, _) = nat.open(flow(2, 1, 8)).unwrap();
    assert_eq!(other.index, first.index);
    let marked = nat.gate.table.set_mark(other, 1, 1).unwrap();
    assert!(are_gone(&nat));
    assert!(nat.gate.table.translation(other, Direction::Original).is_some());
    assert!(nat.gate.table.translation(marked, Direction::Original).is_some());
}

/// Another thread may change the mark while a packet is tracked and translated.
#[test]
fn a_connection_is_found_while_its_mark_changes() {
    let mut nat = Nat::new(1, pool("192.0.2.1", "192.0.2.1", |_| ()));
    let (first, _) = nat.open(flow(1, 1, 8)).unwrap();
    let (table, is_over) = (&nat.gate.table, std::sync::atomic::AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut name, mut mark) = (first, 0);
            while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                mark += 1;
                name = table.set_mark(name, mark, u32::MAX).unwrap();
            }
        });
        let now = nat.gate.now;
        let mut lost = [0; 4];
        for _ in 0..200_000 {
            let tracked = table.track(0, &flow(1, 1, 8), &Packet::Datagram, now);
            let found = [
                table.translation(first, Direction::Original).is_some(),
                table.lookup(0, &flow(1, 1, 8), now).is_some(),
                table.named(first, now).is_some(),
                tracked.connection.is_some_and(|(handle, _)| handle.index == first.index),
            ];
            lost.iter_mut().zip(found).for_each(|(lost, found)| *lost += u32::from(!found));
        }
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(lost, [0; 4], "translation, lookup, named, track");
    });
    // Its first name is good for all that is not about what has changed.
    assert!(table.set_mark(first, 7, u32::MAX).is_some());
    assert!(table.remove(first, nat.gate.now, &mut |_| ()));
    assert_eq!(table.named(first, nat.gate.now), None);
    assert_eq!(table.set_mark(first, 8, u32::MAX), None);
}

#[test]
fn exhaustion_leaves_established_connections_alone() {
    let few = |settings: &mut PoolSettings| settings.ports = Some(2000..=2009);
    let mut nat = Nat::new(1024, pool("192.0.2.1", "192.0.2.1", few));
    let open: Vec<_> = (0..10).map(|at| (at, nat.open(flow(at, 1, 8)).unwrap())).collect();
    for at in 10..1000 {
        assert_eq!(nat.open(flow(at, 1, 8)), Err(NotLent::Exhausted));
    }
    assert_eq!(nat.pool.counts().exhausted, 990);
    for (at, (handle, _)) in open {
        assert_eq!(nat.gate.lookup(&flow(at, 1, 8)), Some((handle, Direction::Original)));
    }
}

/// Networks of several tenants may leave by one address, each by a link of its own.
#[test]
fn a_zone_without_a_port_left_leaves_others_theirs() {
    let few = |settings: &mut PoolSettings| settings.ports = Some(2000..=2009);
    let pool = pool("192.0.2.1", "192.0.2.1", few);
    let mut taken = BTreeSet::new();
    let mut lend = |zone: u16, at: u32| {
        pool.lend(zone, &flow(at, 1, 8), |lease| {
            match taken.insert((zone, lease.translated.source)) {
                true => Ok(()),
                false => Err(Refused::TupleTaken),
            }
        })
    };
    for at in 0..10 {
        lend(1, at).unwrap();
    }
    for at in 10..14 {
        assert_eq!(lend(1, at), Err(NotLent::Exhausted));
    }
    for at in 0..10 {
        lend(2, at).unwrap();
        assert_eq!(lend(1, 20 + at), Err(NotLent::Exhausted));
    }
    assert_eq!(lend(2, 30), Err(NotLent::Exhausted));
}

/// Where many ports are shared with other destinations, the one that comes free is tried, and not some.
#[test]
fn who_gets_the_port_of_a_closed_connection_gets_that_one() {
    let change = |settings: &mut PoolSettings| {
        (settings.ports, settings.groups) = (Some(2000..=2999), 2);
    };
    let mut nat = Nat::new(8192, pool("192.0.2.1", "192.0.2.1", change));
    let to = |host: u8, port: u16| {
        tcp(0x0a00_0005, port).with_destination([10, 9, 9, host].into(), 80).unwrap()
    };
    for host in 1..=3 {
        let fill = (4000..6000).map_while(|port| Some((port, nat.open(to(host, port)).ok()?.1)));
        let open: Vec<_> = fill.collect();
        assert!(open.len() > 800, "{host}: {}", open.len());
        let closed = [1, 400, 700].map(|at: usize| open[at]);
        for (port, translated) in closed {
            nat.gate.packet(translated.reversed(), &segment("SA", 7, 2, 0));
            nat.gate.packet(to(host, port), &segment("R", 2, 0, 0));
        }
        let (mut ended, mut port) = (0, 8000);
        for _ in 0..4000 {
            let before = nat.gate.table.counts().early_drop;
            let made = nat.open(to(host, port)).ok();
            let has_ended = nat.gate.table.counts().early_drop - before;
            // Others get a port that nobody has closed, and then nothing ends.
            let is_closed = |source| closed.iter().any(|(_, was)| was.source == source);
            assert_eq!(
                has_ended == 1,
                made.is_some_and(|(_, it)| is_closed(it.source)),
                "{made:?}"
            );
            (ended, port) = (ended + has_ended, port + u16::from(made.is_some()));
        }
        assert_eq!(ended, 3, "{host}");
    }
}

/// Whatever of a pool the connections have, and however many addresses it has.
#[test]
fn closed_connections_make_way_and_no_others_do() {
    let few = |settings: &mut PoolSettings| settings.ports = Some(2000..=2009);
    let own_block = |settings: &mut PoolSettings| {
        settings.ports = Some(2000..=2009);
        settings.block_size = Some(10);
    };
    type Change = fn(&mut PoolSettings);
    let ways: [(&str, Change, u16); 3] =
        [("192.0.2.1", few, 10), ("192.0.2.2", few, 20), ("192.0.2.1", own_block, 10)];
    for (last, change, most) in ways {
        let mut nat = Nat::new(1024, pool("192.0.2.1", last, change));
        let syn =
            |port: u16| tcp(0x0a00_0005, port).with_destination([10, 9, 9, 9].into(), 80).unwrap();
        let open: Vec<_> = (0..most).map(|at| nat.open(syn(4000 + at)).unwrap()).collect();
        assert!(nat.open(syn(5000)).is_err(), "{last} {most}");
        let exhausted = nat.pool.counts();
        // One is reset.
        let (closed, translated) = open[usize::from(most) / 2];
        nat.gate.packet(translated.reversed(), &segment("SA", 7, 2, 0));
        nat.gate.packet(syn(4000 + most / 2), &segment("R", 2, 0, 0));
        let (_, becomes) = nat.open(syn(5001)).unwrap();
        assert_eq!(becomes.addresses.source(), translated.addresses.source());
        assert_eq!(becomes.source, translated.source);
        let counts = nat.gate.table.counts();
        assert_eq!((counts.early_drop, counts.connections), (1, most.into()));
        for (at, (handle, _)) in (0..most).zip(&open) {
            let found = nat.gate.lookup(&syn(4000 + at));
            assert_eq!(found.is_some(), *handle != closed, "{at}");
        }
        assert!(nat.open(syn(5002)).is_err());
        let counts = nat.pool.counts();
        let refused = |counts: &conntrack::nat::PoolCounts| counts.exhausted + counts.block_full;
        assert_eq!(refused(&counts), refused(&exhausted) + 1, "what found a port is not counted");
        assert_eq!(counts.lent - counts.returned, u64::from(most));
    }
}

#[test]
fn an_attempt_that_fails_gives_its_port_back() {
    let pool = pool("192.0.2.1", "192.0.2.1", |settings| settings.ports = Some(2000..=2000));
    let full = pool.lend(0, &udp(1, 1), |_| Err::<(), _>(Refused::Full));
    assert_eq!(full, Err(NotLent::Refused(Refused::Full)));
    let mut attempts = 0;
    let taken = pool.lend(0, &udp(1, 1), |_| {
        attempts += 1;
        Err::<(), _>(Refused::TupleTaken)
    });
    assert_eq!(taken, Err(NotLent::Exhausted));
    assert!(attempts < 200, "{attempts}");
    assert!(pool.lend(0, &udp(1, 1), |lease| Ok(lease.translated.source)) == Ok(2000));
}

#[test]
fn settings_that_contradict_each_other_are_refused() {
    let range = IpRange::new("10.0.0.0".parse().unwrap(), "10.0.0.9".parse().unwrap()).unwrap();
    let bad = |change: fn(&mut PoolSettings)| {
        let mut settings = PoolSettings::new(range);
        change(&mut settings);
        Pool::new(settings, [0; 2]).err()
    };
    assert_eq!(bad(|settings| settings.groups = 3), Some(BadPool::Groups(3)));
    assert_eq!(bad(|settings| settings.groups = 512), Some(BadPool::Groups(512)));
    assert_eq!(bad(|settings| settings.endpoint_independent = true), Some(BadPool::Shared(16)));
    #[allow(clippy::reversed_empty_ranges)]
    let empty = bad(|settings| settings.ports = Some(9..=8));
    assert_eq!(empty, Some(BadPool::Ports));
    let v6 = Tuple::new(
        types::Addresses::V6 { source: 1u128.to_be_bytes().into(), destination: [0; 16].into() },
        Protocol::UDP,
        1,
        2,
    );
    let pool = pool("10.0.0.1", "10.0.0.1", |_| ());
    assert_eq!(pool.lend(0, &v6, |_| Ok(())), Err(NotLent::Family));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Beside a plain map of who has which outside tuple: no two connections share one, and what is
    /// given back can be lent again, so a pool never refuses while a port is free.
    #[test]
    fn no_tuple_is_lent_twice(
        steps in proptest::collection::vec((0u32..20, 0u16..3, 0u32..3, any::<bool>()), 1..300),
        groups in prop_oneof![Just(1u32), Just(4)],
    ) {
        let few = |settings: &mut PoolSettings| {
            settings.ports = Some(3000..=3015);
            settings.groups = groups;
        };
        let mut nat = Nat::new(1024, pool("192.0.2.1", "192.0.2.1", few));
        let mut open: HashMap<Tuple, (Handle, Tuple)> = HashMap::new();
        for (source, port, destination, closes) in steps {
            let flow = flow(source, 3000 + port, destination);
            if let Some((handle, _)) = open.get(&flow).copied() {
                if closes {
                    nat.close(handle);
                    open.remove(&flow);
                }
                continue;
            }
            match nat.open(flow) {
                Ok((handle, translated)) => {
                    let outside = open.values().any(|(_, other)| *other == translated);
                    prop_assert!(!outside, "{translated:?}");
                    open.insert(flow, (handle, translated));
                }
                Err(why) => {
                    prop_assert_eq!(why, NotLent::Exhausted);
                    let to = flow.addresses.destination();
                    let of_destination =
                        open.keys().filter(|other| other.addresses.destination() == to);
                    let used = if groups == 1 { open.len() } else { of_destination.count() };
                    prop_assert_eq!(used, 16);
                }
            }
        }
    }

    /// Who knows the likely source is lent the same as who does not, after the same attempts, and both
    /// pools have done the same then.
    #[test]
    fn the_likely_source_is_lent_as_any_other(
        steps in proptest::collection::vec((0u32..20, 0u16..3, 0u32..3, 0u8..8), 1..200),
        (has_range, groups, persistent) in (any::<bool>(), prop_oneof![Just(1u32), Just(4)], any::<bool>()),
        choice in prop_oneof![3 => Just(None), 1 => Just(Some(PortChoice::Hash))],
    ) {
        let table = Gate::new(&settings(16)).table;
        let change = |settings: &mut PoolSettings| {
            settings.ports = has_range.then_some(3001..=3008);
            (settings.groups, settings.persistent, settings.choice) = (groups, persistent, choice);
        };
        let pools = [(); 2].map(|()| pool("192.0.2.1", "192.0.2.2", change));
        let mut open: HashMap<Tuple, Lease> = HashMap::new();
        let mut foreign = BTreeSet::new();
        for (source, port, destination, what) in steps {
            let flow = flow(source, 3000 + port, destination);
            if let Some(lease) = open.get(&flow).filter(|_| what < 3) {
                pools.iter().for_each(|pool| pool.give(lease.binding));
                open.remove(&flow);
                continue;
            }
            if open.contains_key(&flow) {
                continue;
            }
            let likely = pools[1].likely(0, &flow, &table);
            prop_assert_eq!(likely.is_some(), choice.is_none() && (!has_range || port > 0));
            let mut tried = [vec![], vec![]];
            let [one, other] = &mut tried;
            let attempt = |tried: &mut Vec<(Tuple, u64)>, lease: &Lease| {
                tried.push((lease.translated, lease.binding));
                let is_foreign = foreign.contains(&lease.translated.source)
                    && lease.translated.addresses.source() == IpAddr::from([192, 0, 2, 1]);
                let is_taken = open.values().any(|it| it.translated == lease.translated);
                match () {
                    () if is_foreign || is_taken => Err(Refused::TupleTaken),
                    () if what == 3 => Err(Refused::Full),
                    () => Ok(Lease { hash: None, ..*lease }),
                }
            };
            let known = |lease: &Lease| {
                let hash = table.hash_of(0, &lease.translated);
                assert!(lease.hash.is_none_or(|known| known == hash));
            };
            let plain = pools[0].lend(0, &flow, |lease| attempt(one, lease));
            let lent = match &likely {
                None => pools[1].lend(0, &flow, |lease| attempt(other, lease)),
                Some(likely) => {
                    let attempt = |lease: &Lease| {
                        known(lease);
                        attempt(other, lease)
                    };
                    pools[1].lend_likely((0, likely), &flow, attempt, |_| None)
                }
            };
            prop_assert_eq!(&tried[0], &tried[1]);
            prop_assert_eq!(&plain, &lent);
            prop_assert_eq!(pools[0].counts(), pools[1].counts());
            if let Ok(lease) = lent {
                open.insert(flow, lease);
            }
            // Somebody else has a port of the first address.
            if what == 4 {
                foreign.insert(3000 + port);
            }
        }
        for pool in &pools {
            open.values().for_each(|lease| pool.give(lease.binding));
            prop_assert!(pool.is_idle());
        }
    }
}
