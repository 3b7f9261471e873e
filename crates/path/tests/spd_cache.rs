//! What users of the published SPD flow caches rely on, of both directions and families, with exact
//! counts; and what those left open.

mod fixture;

use fixture::*;
use flow::{Associativity, CacheMode, CacheSettings, CacheTable};
use packet::DropReason;
use tables::{
    Action, DefaultAction, Direction, FieldsSelector, PolicySpec, SaIdentity, SaSpec, Selector,
    Tables, Template, UpperSelector,
};
use wire::{IpRange, Mac, PortId, PortRange, Protocol, Spi, VrfId, fragment, headers, ipv6};

const OUTER: (&str, &str) = ("192.168.11.2", "192.168.11.1");

const fn on(buckets: u32, associativity: Associativity) -> CacheSettings {
    CacheSettings { mode: CacheMode::On, buckets, associativity }
}

const SHAPES: [CacheSettings; 4] = [
    on(1, Associativity::Direct),
    on(1024, Associativity::Direct),
    on(4, Associativity::Four),
    on(1024, Associativity::Four),
];

/// A direction and a family: one of the four caches, and the traffic that it is for.
#[derive(Clone, Copy, Debug)]
struct Side {
    table: CacheTable,
    direction: Direction,
    from: PortId,
    source: &'static str,
    destination: &'static str,
}

impl Side {
    /// Clear packets of a VRF that has `out` policies are the outbound SPD's, and of one with `in`
    /// policies alone the inbound one's.
    const ALL: [Self; 4] = [
        Self::new(CacheTable::V4Outbound, Direction::Out, LAN, "192.168.13.5", "192.168.12.7"),
        Self::new(CacheTable::V4Inbound, Direction::In, WAN, "192.168.12.7", "192.168.13.5"),
        Self::new(CacheTable::V6Outbound, Direction::Out, LAN, "fd13::5", "fd12::7"),
        Self::new(CacheTable::V6Inbound, Direction::In, WAN, "fd12::7", "fd13::5"),
    ];

    const fn new(
        table: CacheTable,
        direction: Direction,
        from: PortId,
        source: &'static str,
        destination: &'static str,
    ) -> Self {
        Self { table, direction, from, source, destination }
    }

    fn is_v6(&self) -> bool {
        self.source.contains(':')
    }

    /// A gateway with the SAs of a tunnel and no policies.
    fn gateway(&self, caches: CacheSettings) -> Gateway {
        let mut tables = plain_tables();
        add_sa(&mut tables, OUTER.0, OUTER.1, 0x1001, false);
        add_sa(&mut tables, OUTER.1, OUTER.0, 0x1002, false);
        Gateway::with_caches(tables, [caches; 4], 7)
    }

    fn packet(&self, ports: (u16, u16)) -> Vec<u8> {
        udp(self.source, self.destination, ports, 40)
    }

    /// Sends so many packets of a flow, one by one.
    fn send(&self, gateway: &mut Gateway, ports: (u16, u16), count: usize) {
        for _ in 0..count {
            gateway.receive(self.from, &self.packet(ports));
        }
    }

    fn bytes(&self) -> u64 {
        self.packet((1, 1)).len() as u64
    }

    fn policy(&self, selector: Selector, action: Action) -> PolicySpec {
        PolicySpec {
            vrf: VrfId::MAIN,
            direction: self.direction,
            if_id: None,
            priority: 5,
            selector,
            action,
        }
    }

    /// What discards everything of the family that no policy before it takes.
    fn rest(&self) -> PolicySpec {
        let all = if self.is_v6() { IpRange::ALL_V6 } else { IpRange::ALL_V4 };
        let (upper, fields) = (UpperSelector::Any, FieldsSelector::ANY);
        let selector = Selector { source: all, destination: all, protocol: None, upper, fields };
        PolicySpec { priority: 100, ..self.policy(selector, Action::Discard) }
    }

    /// One address and port, ranges, and anything; each selects the flow of ports 1000 and 2000.
    fn selectors(&self) -> [Selector; 3] {
        let ports = |text: &str| text.parse::<PortRange>().unwrap();
        let (source, destination) = (range(self.source), range(self.destination));
        let exact = Selector {
            source,
            destination,
            protocol: Some(Protocol::UDP),
            upper: UpperSelector::Ports { source: ports("1000"), destination: ports("2000") },
            fields: FieldsSelector::ANY,
        };
        let around = |text: &str| match text.rsplit_once(['.', ':']) {
            Some((start, _)) if self.is_v6() => range(&format!("{start}:3-{start}:8")),
            Some((start, _)) => range(&format!("{start}.3-{start}.8")),
            None => unreachable!("an address"),
        };
        let ranges = Selector {
            source: around(self.source),
            destination: around(self.destination),
            protocol: Some(Protocol::UDP),
            upper: UpperSelector::Ports { source: ports("999-1001"), destination: ports("1-2000") },
            fields: FieldsSelector::ANY,
        };
        let all = self.rest().selector;
        [exact, ranges, all]
    }

    /// Selects the flow of such ports.
    fn exactly(&self, ports: (u16, u16)) -> Selector {
        let only = |port| PortRange::new(port, port).unwrap();
        let upper = UpperSelector::Ports { source: only(ports.0), destination: only(ports.1) };
        Selector { upper, ..self.selectors()[0] }
    }

    fn actions(&self) -> [Action; 3] {
        let ends = if self.direction == Direction::Out { OUTER } else { (OUTER.1, OUTER.0) };
        [Action::Bypass, Action::Discard, Action::Protect(template(ends.0, ends.1))]
    }

    /// How many packets so far had the end that the action has for clear ones of this direction.
    fn ended(&self, gateway: &Gateway, action: Action) -> u64 {
        match (action, self.direction) {
            (Action::Bypass, _) => gateway.worker.statistics().forwarded.read(),
            (Action::Discard, _) => gateway.dropped(DropReason::PolicyDiscard),
            (Action::Protect(_), Direction::Out) => gateway.worker.statistics().encrypted.read(),
            (Action::Protect(_), _) => gateway.dropped(DropReason::PolicyClear),
        }
    }
}

fn add(gateway: &mut Gateway, spec: PolicySpec) -> u32 {
    let mut index = 0;
    gateway.change(|tables| index = tables.add_policy(spec).unwrap());
    gateway.poll();
    index
}

fn remove(gateway: &mut Gateway, index: u32) {
    gateway.change(|tables| _ = tables.remove_policy(index).unwrap());
    gateway.poll();
}

/// Packets and bytes that a policy has counted.
fn counted(gateway: &Gateway, index: u32) -> (u64, u64) {
    gateway.publisher.current().policy_of_index(index).unwrap().counters.read()
}

fn live(gateway: &Gateway, side: &Side) -> u64 {
    gateway.cache(side.table).live.read()
}

/// For every cache, in every shape, every action and every kind of selector.
#[test]
fn added_removed_and_added_again() {
    for side in Side::ALL {
        for shape in SHAPES {
            for action in side.actions() {
                for selector in side.selectors() {
                    let mut gateway = side.gateway(shape);
                    let rest = side.rest();
                    // Another selector than the one that takes everything, which there is only
                    // once.
                    let rest = match selector == rest.selector {
                        true => PolicySpec {
                            selector: Selector { protocol: Some(Protocol::UDP), ..rest.selector },
                            ..rest
                        },
                        false => rest,
                    };
                    let (rest, spec) = (add(&mut gateway, rest), side.policy(selector, action));
                    let first = add(&mut gateway, spec);
                    assert_eq!(live(&gateway, &side), 0);
                    side.send(&mut gateway, (1000, 2000), 5);
                    let case = format!("{side:?} {shape:?} {spec:?}");
                    assert_eq!(counted(&gateway, first), (5, 5 * side.bytes()), "{case}");
                    assert_eq!(side.ended(&gateway, action), 5, "{case}");
                    let cache = gateway.cache(side.table);
                    assert_eq!((cache.missed_new.read(), cache.hits.read()), (1, 4), "{case}");
                    assert_eq!(live(&gateway, &side), 1, "{case}");

                    remove(&mut gateway, first);
                    assert_eq!(live(&gateway, &side), 0, "{case}");
                    let discarded = gateway.dropped(DropReason::PolicyDiscard);
                    side.send(&mut gateway, (1000, 2000), 3);
                    assert_eq!(counted(&gateway, rest), (3, 3 * side.bytes()), "{case}");
                    assert_eq!(gateway.dropped(DropReason::PolicyDiscard), discarded + 3, "{case}");
                    let cache = gateway.cache(side.table);
                    assert_eq!((cache.missed_stale.read(), cache.hits.read()), (1, 6), "{case}");
                    assert_eq!(live(&gateway, &side), 1, "{case}");

                    let ended = side.ended(&gateway, action);
                    let second = add(&mut gateway, spec);
                    assert_ne!(second, first);
                    side.send(&mut gateway, (1000, 2000), 2);
                    assert_eq!(counted(&gateway, second), (2, 2 * side.bytes()), "{case}");
                    assert_eq!(counted(&gateway, rest).0, 3, "{case}");
                    assert_eq!(side.ended(&gateway, action), ended + 2, "{case}");
                    let cache = gateway.cache(side.table);
                    assert_eq!((live(&gateway, &side), cache.occupied.read()), (1, 1), "{case}");
                    gateway.assert_nothing_lost();
                }
            }
        }
    }
}

#[test]
fn ports_of_one_vrf_share_its_policies() {
    for side in Side::ALL {
        let mut gateway = side.gateway(on(1024, Associativity::Direct));
        gateway.change(|tables| {
            set_side(tables, LAN, tables::Side::Unset);
            let others = Direction::ALL.into_iter().filter(|other| *other != side.direction);
            others.for_each(|other| accept(tables, other));
        });
        let rest = add(&mut gateway, side.rest());
        let other = Side { from: if side.from == LAN { WAN } else { LAN }, ..side };
        for _ in 0..3 {
            side.send(&mut gateway, (1000, 2000), 1);
            other.send(&mut gateway, (1000, 2000), 1);
        }
        assert_eq!(counted(&gateway, rest), (6, 6 * side.bytes()), "{side:?}");
        assert_eq!(live(&gateway, &side), 2, "{side:?}: one flow by each port");
        let index = add(&mut gateway, side.policy(side.selectors()[0], Action::Bypass));
        side.send(&mut gateway, (1000, 2000), 1);
        assert_eq!(live(&gateway, &side), 1);
        other.send(&mut gateway, (1000, 2000), 2);
        assert_eq!((counted(&gateway, index).0, counted(&gateway, rest).0), (3, 6), "{side:?}");
        assert_eq!(live(&gateway, &side), 2, "{side:?}");
    }
}

/// As published, a change of a policy makes every entry old; unlike there, those that it does not
/// concern are live again with their next packet, without being decided.
#[test]
fn a_stale_entry_is_overwritten() {
    for side in Side::ALL {
        for shape in [on(1024, Associativity::Direct), on(1024, Associativity::Four)] {
            let mut gateway = side.gateway(shape);
            let rest = add(&mut gateway, side.rest());
            let flows = [(1000, 2000), (1001, 2000), (1002, 2000)];
            flows.iter().for_each(|ports| side.send(&mut gateway, *ports, 2));
            assert_eq!(live(&gateway, &side), 3);
            let index = add(&mut gateway, side.policy(side.exactly((1000, 2000)), Action::Bypass));
            assert_eq!(live(&gateway, &side), 0, "{side:?}");
            for (number, ports) in (1..).zip(flows) {
                side.send(&mut gateway, ports, 2);
                assert_eq!(live(&gateway, &side), number, "{side:?} {shape:?}");
            }
            let cache = gateway.cache(side.table);
            assert_eq!((cache.missed_new.read(), cache.missed_stale.read()), (3, 1));
            assert_eq!(
                (cache.restamped.read(), cache.hits.read(), cache.occupied.read()),
                (2, 8, 3)
            );
            assert_eq!((cache.inserted.read(), cache.evicted.read()), (4, 0));
            assert_eq!((counted(&gateway, index).0, counted(&gateway, rest).0), (2, 10));
        }
    }
}

/// One bucket, no chain: as published, the later flow overwrites, and either is decided rightly.
#[test]
fn two_flows_in_one_bucket() {
    for side in Side::ALL {
        let mut gateway = side.gateway(on(1, Associativity::Direct));
        add(&mut gateway, side.rest());
        let one = add(&mut gateway, side.policy(side.exactly((1000, 2000)), Action::Bypass));
        let other = add(&mut gateway, side.policy(side.exactly((1001, 2000)), Action::Discard));
        for _ in 0..4 {
            side.send(&mut gateway, (1000, 2000), 1);
            assert_eq!(live(&gateway, &side), 1, "{side:?}");
            side.send(&mut gateway, (1001, 2000), 1);
            assert_eq!(live(&gateway, &side), 1, "{side:?}");
        }
        let cache = gateway.cache(side.table);
        let missed = cache.missed_new.read() + cache.missed_evicted.read();
        assert_eq!((cache.hits.read(), missed, cache.missed_stale.read()), (0, 8, 0), "{side:?}");
        assert_eq!(
            (cache.inserted.read(), cache.evicted.read(), cache.occupied.read()),
            (8, 7, 1),
            "{side:?}"
        );
        side.send(&mut gateway, (1001, 2000), 3);
        assert_eq!(gateway.cache(side.table).hits.read(), 3, "{side:?}");
        assert_eq!(
            (counted(&gateway, one), counted(&gateway, other)),
            ((4, 4 * side.bytes()), (7, 7 * side.bytes()))
        );
        assert_eq!(gateway.worker.statistics().forwarded.read(), 4);
        assert_eq!(gateway.dropped(DropReason::PolicyDiscard), 7);
    }
}

/// Each of the four is switched on by itself; without it, everything is decided each time, and
/// counted alike.
#[test]
fn each_cache_is_switched_on_by_itself() {
    for switched in CacheTable::ALL {
        for side in Side::ALL {
            let mut caches = [CacheSettings::OFF; 4];
            caches[switched as usize] = on(64, Associativity::Four);
            let mut gateway = Gateway::with_caches(plain_tables(), caches, 7);
            let index = add(&mut gateway, side.policy(side.selectors()[1], Action::Bypass));
            side.send(&mut gateway, (1000, 2000), 6);
            assert_eq!(counted(&gateway, index), (6, 6 * side.bytes()));
            let cache = gateway.cache(side.table);
            let (hits, entries, buckets) =
                if switched == side.table { (5, 1, 64) } else { (0, 0, 0) };
            assert_eq!(
                (cache.hits.read(), cache.live.read(), cache.buckets.read()),
                (hits, entries, buckets),
                "{side:?}"
            );
            assert_eq!(gateway.worker.statistics().decided.read(), 6 - hits);
            let others = CacheTable::ALL.into_iter().filter(|table| *table != side.table);
            assert!(
                others
                    .map(|table| gateway.cache(table))
                    .all(|cache| cache.hits.read() + cache.inserted.read() == 0)
            );
        }
    }
}

/// A packet that no policy matches is dropped and counted, and it is remembered that none does.
#[test]
fn no_match_is_remembered() {
    for side in Side::ALL {
        let mut gateway = side.gateway(on(64, Associativity::Direct));
        let index = add(&mut gateway, side.policy(side.exactly((9, 9)), Action::Bypass));
        side.send(&mut gateway, (1000, 2000), 5);
        assert_eq!(gateway.dropped(DropReason::PolicyNoMatch), 5, "{side:?}");
        assert_eq!(counted(&gateway, index), (0, 0));
        let cache = gateway.cache(side.table);
        assert_eq!(
            (cache.missed_new.read(), cache.hits.read(), cache.live.read()),
            (1, 4, 1),
            "{side:?}"
        );
        // Until there is one that does.
        let index = add(&mut gateway, side.policy(side.exactly((1000, 2000)), Action::Bypass));
        side.send(&mut gateway, (1000, 2000), 2);
        assert_eq!(
            (gateway.dropped(DropReason::PolicyNoMatch), counted(&gateway, index).0),
            (5, 2)
        );
    }
}

/// Bytes are ports where the protocol has ports, and payload where it has not.
#[test]
fn ports_are_of_protocols_that_have_them() {
    for side in Side::ALL {
        let (source, destination) = (ip(side.source), ip(side.destination));
        for protocol in [6, 17, 132, 33, 136, 47, 253].map(Protocol) {
            let mut gateway = side.gateway(on(1024, Associativity::Direct));
            let spec =
                PolicySpec { priority: 0, ..side.policy(side.selectors()[2], Action::Bypass) };
            let index = add(&mut gateway, spec);
            for number in 0..6u8 {
                // Whatever the header, it begins with these four bytes.
                let upper = [&[4, number, 5, number][..], &[0x50; 40]].concat();
                gateway.receive(side.from, &packet(source, destination, protocol, 64, &upper));
            }
            let flows = if protocol.has_ports() { 6 } else { 1 };
            assert_eq!(
                (live(&gateway, &side), counted(&gateway, index).0),
                (flows, 6),
                "{side:?} {protocol}"
            );
        }
    }
}

/// One 5-tuple in two VRFs, with opposite policies, in a cache of one place and in a large one.
#[test]
fn one_flow_in_two_vrfs_is_two_flows() {
    for shape in SHAPES {
        let mut tables = plain_tables();
        let red = tables.add_vrf("red").unwrap();
        let mut spec = tables.port(WAN).unwrap().spec.clone();
        tables.remove_port(WAN).unwrap();
        spec.vrf = red;
        spec.addresses = vec![prefix("192.168.13.1/24")];
        tables.add_port(WAN, spec).unwrap();
        for port in [LAN, WAN] {
            tables.set_neighbour(port, ip("192.168.13.6"), Mac([2, 0xaa, 0, 0, 0, 6])).unwrap();
        }
        let all = policy(Direction::Out, "0.0.0.0/0", "0.0.0.0/0", Action::Bypass);
        set_side(&mut tables, LAN, tables::Side::Unset);
        accept(&mut tables, Direction::In);
        tables.set_default_action(red, Direction::In, DefaultAction::Accept).unwrap();
        let pass = tables.add_policy(all).unwrap();
        let discard =
            tables.add_policy(PolicySpec { vrf: red, action: Action::Discard, ..all }).unwrap();
        let mut gateway = Gateway::with_caches(tables, [shape; 4], 7);
        let flow = udp("192.168.13.5", "192.168.13.6", (1000, 2000), 40);
        for _ in 0..5 {
            gateway.receive(LAN, &flow);
            gateway.receive(WAN, &flow);
        }
        assert_eq!((gateway.sent(LAN).len(), gateway.sent(WAN).len()), (5, 0), "{shape:?}");
        assert_eq!((counted(&gateway, pass).0, counted(&gateway, discard).0), (5, 5), "{shape:?}");
        assert_eq!(gateway.dropped(DropReason::PolicyDiscard), 5);
    }
}

/// Two SAs from one peer, each for another net: what comes by the wrong one is refused, however
/// often, and each counts its own.
#[test]
fn two_sas_between_one_pair_of_ends() {
    for shape in SHAPES {
        let mut tables = plain_tables();
        let mut policies = Vec::new();
        for (spi, reqid, net) in [(0x1002, 1, "192.168.12.0/25"), (0x1003, 2, "192.168.12.128/25")]
        {
            let identity = SaIdentity {
                vrf: VrfId::MAIN,
                inner: VrfId::MAIN,
                if_id: None,
                source: ip(OUTER.1),
                destination: ip(OUTER.0),
                reqid,
            };
            let spec = SaSpec { identity, spi: Spi(spi), no_ecn: false, no_pmtu_discovery: false };
            tables.add_sa(spec, peer_outbound(spi, false), peer_inbound(spi, false)).unwrap();
            let template = Template { reqid, ..template(OUTER.1, OUTER.0) };
            let inbound = policy(Direction::In, net, "192.168.13.0/24", Action::Protect(template));
            policies.push(tables.add_policy(inbound).unwrap());
        }
        let mut gateway = Gateway::with_caches(tables, [shape; 4], 7);
        let peers = [0x1002, 0x1003].map(|spi| peer_outbound(spi, false));
        let inner = ["192.168.12.7", "192.168.12.200"]
            .map(|from| udp(from, "192.168.13.5", (1000, 2000), 40));
        for _ in 0..4 {
            for peer in &peers {
                for inner in &inner {
                    gateway.receive(WAN, &seal(peer, OUTER.1, OUTER.0, inner));
                }
            }
        }
        assert_eq!(gateway.sent(LAN).len(), 8, "{shape:?}");
        assert_eq!(gateway.dropped(DropReason::PolicyWrongSelector), 8, "{shape:?}");
        assert_eq!(gateway.worker.statistics().decrypted.read(), 16);
        // Those that were refused were refused by a policy, which counts them.
        assert_eq!(
            policies.iter().map(|index| counted(&gateway, *index).0).collect::<Vec<_>>(),
            [8, 8]
        );
        let tables = gateway.publisher.current();
        assert!(tables.sad().iter().all(|sa| sa.counters.read().0 == 8));
        gateway.assert_nothing_lost();
    }
}

/// Payload is never read as ports: every fragment of a flow's datagrams falls to the flow's policy.
#[test]
fn fragments_fall_to_their_flows_policy() {
    for side in Side::ALL {
        for shape in SHAPES {
            let mut gateway = side.gateway(shape);
            let rest = add(&mut gateway, side.rest());
            let own = add(&mut gateway, side.policy(side.exactly((1000, 2000)), Action::Bypass));
            let decoy =
                add(&mut gateway, side.policy(side.exactly((0x0708, 0x090a)), Action::Bypass));
            let mut pieces = 0;
            for number in 0..50u16 {
                let mut whole = udp(side.source, side.destination, (1000, 2000), 2000 - 8);
                let start = whole.len() - 2000;
                // Wherever it is cut, the payload begins as another flow's header would.
                whole[start + 8..]
                    .chunks_mut(4)
                    .for_each(|bytes| bytes.copy_from_slice(&[7, 8, 9, 10][..bytes.len()]));
                if !side.is_v6() {
                    whole[4..6].copy_from_slice(&number.to_be_bytes());
                    wire::ipv4::fill_checksum(&mut whole);
                }
                let plan = if side.is_v6() {
                    fragment::plan_v6(&whole, 700)
                } else {
                    fragment::plan(&whole, 700)
                };
                for piece in plan.unwrap() {
                    let mut out = vec![0; piece.total_length()];
                    let written = match side.is_v6() {
                        true => fragment::write_v6(&whole, &piece, number.into(), &mut out),
                        false => fragment::write(&whole, &piece, &mut out),
                    };
                    assert_eq!(written, Some(out.len()));
                    gateway.receive(side.from, &out);
                    pieces += 1;
                }
            }
            let counts = [own, decoy, rest].map(|index| counted(&gateway, index).0);
            assert_eq!(counts, [pieces, 0, 0], "{side:?} {shape:?}");
            // First and later fragments are two classes of one flow.
            assert_eq!(
                live(&gateway, &side),
                gateway.cache(side.table).buckets.read().min(2),
                "{side:?}"
            );
        }
    }
}

/// Ports behind IPv6 extension headers are ports.
#[test]
fn extension_headers_hide_nothing() {
    for side in Side::ALL.into_iter().filter(Side::is_v6) {
        let mut gateway = side.gateway(on(64, Associativity::Four));
        let rest = add(&mut gateway, side.rest());
        let own = add(&mut gateway, side.policy(side.exactly((1000, 2000)), Action::Bypass));
        for ports in [(1000, 2000), (1001, 2000)] {
            for options in 0..4 {
                let mut whole = side.packet(ports);
                for _ in 0..options {
                    let next = std::mem::replace(&mut whole[6], Protocol::DESTINATION_OPTIONS.0);
                    whole.splice(40..40, [next, 0, 1, 4, 0, 0, 0, 0]);
                }
                let length = (whole.len() - ipv6::HEADER_LENGTH) as u16;
                ipv6::set_payload_length(&mut whole, length);
                assert_eq!(headers::parse(&whole).unwrap().protocol, Protocol::UDP);
                gateway.receive(side.from, &whole);
            }
        }
        assert_eq!((counted(&gateway, own).0, counted(&gateway, rest).0), (4, 4), "{side:?}");
        assert_eq!(
            (live(&gateway, &side), gateway.cache(side.table).hits.read()),
            (2, 6),
            "{side:?}"
        );
    }
}

/// Inbound policies look at protocol and ports, of clear packets and of what was decrypted; and
/// what came out of a tunnel must be what the tunnel is for (RFC 4301 section 5.2).
#[test]
fn selectors_are_checked_after_decryption() {
    for shape in SHAPES {
        let mut tables = plain_tables();
        add_sa(&mut tables, OUTER.1, OUTER.0, 0x1002, false);
        let only = |port| PortRange::new(port, port).unwrap();
        let mut protect = policy(
            Direction::In,
            "192.168.12.0/24",
            "192.168.13.0/24",
            Action::Protect(template(OUTER.1, OUTER.0)),
        );
        protect.selector.protocol = Some(Protocol::UDP);
        protect.selector.upper =
            UpperSelector::Ports { source: PortRange::ALL, destination: only(2000) };
        let protect = tables.add_policy(protect).unwrap();
        let discard = PolicySpec {
            priority: 100,
            ..policy(Direction::In, "0.0.0.0/0", "0.0.0.0/0", Action::Discard)
        };
        let discard = tables.add_policy(discard).unwrap();
        let mut gateway = Gateway::with_caches(tables, [shape; 4], 7);
        let peer = peer_outbound(0x1002, false);
        let right = udp("192.168.12.7", "192.168.13.5", (1000, 2000), 40);
        let wrong_port = udp("192.168.12.7", "192.168.13.5", (1000, 2001), 40);
        let wrong_source = udp("192.168.99.7", "192.168.13.5", (1000, 2000), 40);
        let wrong_protocol =
            packet(ip("192.168.12.7"), ip("192.168.13.5"), Protocol::TCP, 64, &right[20..]);
        let wrong_protocol = {
            let mut bytes = wrong_protocol;
            bytes[32] = 0x50;
            wire::ipv4::fill_checksum(&mut bytes);
            bytes
        };
        for _ in 0..3 {
            for inner in [&right, &wrong_port, &wrong_source, &wrong_protocol] {
                gateway.receive(WAN, &seal(&peer, OUTER.1, OUTER.0, inner));
            }
            // Plain, what is protected never passes, and what is discarded neither.
            gateway.receive(WAN, &right);
            gateway.receive(WAN, &wrong_port);
        }
        let arrived = gateway.sent(LAN);
        assert_eq!(arrived.len(), 3, "{shape:?} {:?}", gateway.drops());
        assert_eq!(gateway.dropped(DropReason::PolicyDiscard), 12, "{shape:?}");
        assert_eq!(gateway.dropped(DropReason::PolicyClear), 3, "{shape:?}");
        assert_eq!(
            (counted(&gateway, protect).0, counted(&gateway, discard).0),
            (6, 12),
            "{shape:?}"
        );
        gateway.assert_nothing_lost();
    }
}

/// A policy's ends at the highest and lowest priority, and ties: whichever wins is found again in
/// the cache.
#[test]
fn ties_and_the_ends_of_priority() {
    for side in Side::ALL {
        let mut gateway = side.gateway(on(64, Associativity::Four));
        let [exact, ranges, all] = side.selectors();
        let at =
            |selector, priority, action| PolicySpec { priority, ..side.policy(selector, action) };
        let last = add(&mut gateway, at(all, u32::MAX, Action::Discard));
        side.send(&mut gateway, (1000, 2000), 2);
        let tied = add(&mut gateway, at(ranges, u32::MAX, Action::Bypass));
        side.send(&mut gateway, (1000, 2000), 2);
        assert_eq!(
            (counted(&gateway, last).0, counted(&gateway, tied).0),
            (4, 0),
            "{side:?}: the one added first"
        );
        let first = add(&mut gateway, at(exact, 0, Action::Bypass));
        side.send(&mut gateway, (1000, 2000), 2);
        assert_eq!(counted(&gateway, first).0, 2, "{side:?}");
        remove(&mut gateway, first);
        remove(&mut gateway, last);
        side.send(&mut gateway, (1000, 2000), 2);
        assert_eq!(counted(&gateway, tied).0, 2, "{side:?}");
    }
}

/// With the first of two equal, and with one that differs in a single field, in turn.
#[test]
fn policies_that_differ_in_one_field() {
    for side in Side::ALL {
        let mut gateway = side.gateway(on(64, Associativity::Four));
        add(&mut gateway, side.rest());
        let own = side.exactly((1000, 2000));
        let only = |port| PortRange::new(port, port).unwrap();
        let upper = |source, destination| UpperSelector::Ports {
            source: only(source),
            destination: only(destination),
        };
        let expedited = FieldsSelector::new(None, "ef".parse().ok(), None);
        let others = [
            Selector {
                source: if side.is_v6() { range("fd77::1") } else { range("10.7.7.7") },
                ..own
            },
            Selector {
                destination: if side.is_v6() { range("fd77::1") } else { range("10.7.7.7") },
                ..own
            },
            Selector { protocol: Some(Protocol::TCP), ..own },
            Selector { upper: upper(1001, 2000), ..own },
            Selector { upper: upper(1000, 2001), ..own },
            Selector { fields: expedited, ..own },
        ];
        // Another that reads the DSCP, which so remains a part of the key.
        let reader = Selector { fields: expedited, ..others[0] };
        add(&mut gateway, side.policy(reader, Action::Discard));
        let indexes =
            others.map(|selector| add(&mut gateway, side.policy(selector, Action::Discard)));
        let own = add(&mut gateway, side.policy(own, Action::Bypass));
        side.send(&mut gateway, (1000, 2000), 3);
        for index in indexes {
            assert_eq!(counted(&gateway, index).0, 0, "{side:?}");
            remove(&mut gateway, index);
            side.send(&mut gateway, (1000, 2000), 1);
        }
        assert_eq!(counted(&gateway, own).0, 3 + indexes.len() as u64, "{side:?}");
        assert_eq!(
            gateway.cache(side.table).missed_stale.read(),
            0,
            "{side:?}: none of them concerned the flow"
        );
    }
}

/// What is asked for is rounded up, and what it takes is told.
#[test]
fn sizes_are_told() {
    let tables = || Tables::clone(&plain_tables());
    for (asked, buckets) in [(1, 1), (2, 2), (3, 4), (1000, 1024)] {
        let gateway = Gateway::with_caches(tables(), [on(asked, Associativity::Direct); 4], 7);
        for table in CacheTable::ALL {
            let cache = gateway.cache(table);
            assert_eq!(cache.buckets.read(), buckets);
            assert!(cache.bytes.read() >= buckets * 64);
        }
    }
}
