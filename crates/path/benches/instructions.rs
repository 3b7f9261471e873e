//! Instructions per packet on the ways that matter, to be counted by callgrind:
//! `tests/instructions` runs this, and holds the counts against those that were written down.
//!
//! Called with the name of a way, it warms a worker up and then lets it handle batches. Only what
//! happens in [`measured`] counts. Nothing here is left to chance: no clock, no thread, no
//! randomness but from seeds.
#![forbid(unsafe_code)]

use std::cell::Cell;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use conntrack::{Connections, CtState};
use flow::{Associativity, CacheMode, CacheSettings};
use io::memory::{self, MemoryHandle, MemoryOptions};
use packet::{BATCH, DropReason, Time};
use path::{Worker, WorkerSettings};
use pipeline::{
    Action as FlowAction, Change, Ct, Field, Flow, Match, NatEnd, NatNew, NatSpec, Owner, Pipeline,
    SetWord,
};
use tables::{
    Action, Direction, FieldsSelector, FilterAction, FilterHook, FilterMatch, FilterPlace,
    FilterSpec, FilterTarget, FilterVerdict, MarkBits, MemberSpec, PolicySpec, PortSpec, Publisher,
    RejectWith, RouteSpec, Selector, Side, Tables, UpperSelector, Vlan, VlanId, VlanTag,
};
use wire::ethernet::{self, EtherType};
use wire::{
    Addresses, IpPrefix, Mac, PortId, Protocol, TcpFlags, VrfId, checksum, ipv4, ipv6, tcp,
};

const IN: PortId = PortId(0);
const OUT: PortId = PortId(1);
const STATION: Mac = Mac([2, 0xbb, 0, 0, 0, 1]);

/// Batches that count, behind as many that do not.
const ROUNDS: u64 = 64;

/// One way through the gateway.
struct Way {
    name: &'static str,
    v6: bool,
    /// Outbound policies, of which the last matches.
    policies: u32,
    cache: CacheMode,
    /// Whether every packet begins a flow; otherwise there are `flows`.
    flood: bool,
    flows: u32,
    /// Next hops of the IPv4 route.
    next_hops: u8,
    /// VLANs that packets come by, one after the other; none if 0.
    vlans: u16,
    /// Whether these are VLANs of VLANs: [`INNER`] of each.
    stacked: bool,
    /// Rules of the VRF's filter before routing, of which the last matches.
    rules: u32,
    beside: Beside,
    tracking: Tracking,
    /// Whether what is counted are answers to the packets.
    answers: bool,
    /// What every fourth packet is instead.
    attack: Attack,
}

/// What another VRF has, which is nothing to these packets.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Beside {
    Nothing,
    Filter,
    /// Flows that track connections and translate their sources.
    Nat,
}

/// What is sent by who would have established connections suffer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Attack {
    None,
    /// A SYN from inside, of another source each time: the table is full of them.
    SynFlood,
    /// A SYN from outside, which opens nothing, to another port each time.
    PortScan,
    /// Data from inside of no connection, which is dropped between what is forwarded.
    Stray,
    /// An ICMP error from inside about an established connection, which quotes what was never sent.
    Errors,
}

/// Whether packets have connections.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tracking {
    Off,
    /// By flows, as of a firewall.
    On,
    /// And their sources are translated.
    Nat,
    /// Of TCP: segments whose sequence numbers go on, of connections that were opened before.
    Tcp,
}

/// VLANs of one VLAN, where frames have two tags.
const INNER: u16 = 64;

/// So many connections find a place beside those that are attacked.
const FLOODED: u32 = 1024;

const WAYS: [Way; 28] = [
    way("forward-ipv4", false, 0, CacheMode::Off, false),
    Way { beside: Beside::Filter, ..way("beside-ipv4", false, 0, CacheMode::Off, false) },
    Way { beside: Beside::Nat, ..way("beside-nat-ipv4", false, 0, CacheMode::Off, false) },
    Way { next_hops: 8, ..way("multipath-ipv4", false, 0, CacheMode::Off, false) },
    way("forward-ipv6", true, 0, CacheMode::Off, false),
    way("hit-ipv4", false, 1000, CacheMode::On, false),
    Way { beside: Beside::Nat, ..way("hit-beside-nat", false, 1000, CacheMode::On, false) },
    way("hit-ipv6", true, 1000, CacheMode::On, false),
    way("miss-ipv4", false, 1000, CacheMode::On, true),
    way("decide-ipv4", false, 1000, CacheMode::Off, false),
    way("decide-ipv6", true, 1000, CacheMode::Off, false),
    Way { vlans: 1, ..way("hit-1-vlan", false, 1000, CacheMode::On, false) },
    Way { vlans: 256, ..way("hit-256-vlans", false, 1000, CacheMode::On, false) },
    Way { vlans: 4000, flows: 4000, ..way("hit-4000-vlans", false, 1000, CacheMode::On, false) },
    Way { vlans: 1, stacked: true, ..way("hit-1-qinq", false, 1000, CacheMode::On, false) },
    Way {
        vlans: 4000,
        flows: 4000,
        stacked: true,
        ..way("hit-4000-qinq", false, 1000, CacheMode::On, false)
    },
    Way { tracking: Tracking::On, ..way("connection-udp", false, 0, CacheMode::On, false) },
    Way { tracking: Tracking::Tcp, ..way("connection-tcp", false, 0, CacheMode::On, false) },
    Way {
        attack: Attack::SynFlood,
        tracking: Tracking::Tcp,
        ..way("attacked-syn-flood", false, 0, CacheMode::On, false)
    },
    Way {
        attack: Attack::PortScan,
        tracking: Tracking::Tcp,
        ..way("attacked-port-scan", false, 0, CacheMode::On, false)
    },
    Way {
        attack: Attack::Stray,
        tracking: Tracking::Tcp,
        ..way("attacked-stray-data", false, 0, CacheMode::On, false)
    },
    Way {
        attack: Attack::Errors,
        tracking: Tracking::Tcp,
        ..way("attacked-icmp-errors", false, 0, CacheMode::On, false)
    },
    Way { tracking: Tracking::On, ..way("open-udp", false, 0, CacheMode::On, true) },
    Way { tracking: Tracking::Nat, ..way("open-nat-udp", false, 0, CacheMode::On, true) },
    Way {
        tracking: Tracking::On,
        answers: true,
        ..way("answer-udp", false, 0, CacheMode::On, true)
    },
    Way { rules: 10, ..way("filter-10", false, 0, CacheMode::Off, false) },
    Way { rules: 1000, ..way("filter-1000", false, 0, CacheMode::Off, false) },
    Way { rules: 10_000, ..way("filter-10000", false, 0, CacheMode::Off, false) },
];

const fn way(name: &'static str, v6: bool, policies: u32, cache: CacheMode, flood: bool) -> Way {
    let (rules, beside, answers) = (0, Beside::Nothing, false);
    let (flows, next_hops, vlans, stacked, tracking) = (256, 1, 0, false, Tracking::Off);
    Way {
        name,
        v6,
        policies,
        cache,
        flood,
        flows,
        next_hops,
        vlans,
        stacked,
        rules,
        beside,
        tracking,
        answers,
        attack: Attack::None,
    }
}

fn main() {
    // Cargo adds an argument of its own.
    let wanted = std::env::args().skip(1).find(|argument| !argument.starts_with("--"));
    let Some(wanted) = wanted else {
        // What there is, and over how many packets a count goes.
        WAYS.iter().for_each(|way| println!("{} {}", way.name, ROUNDS * BATCH as u64));
        return;
    };
    let way = WAYS
        .iter()
        .find(|way| way.name == wanted)
        .expect("one of the names that are listed without arguments");
    let mut rig = Rig::new(way);
    if way.tracking == Tracking::Tcp {
        rig.open_connections();
    }
    for round in 0..2 * ROUNDS {
        rig.fill();
        if way.answers {
            rig.answer();
        }
        match round < ROUNDS {
            true => _ = rig.worker.poll(Time(0)).expect("a memory port is never lost"),
            false => measured(&mut rig.worker),
        }
        rig.drain();
    }
    rig.check(way);
}

/// What is counted, with everything that it calls.
#[inline(never)]
fn measured(worker: &mut Worker) {
    worker.poll(Time(0)).expect("a memory port is never lost");
}

/// A worker between two memory ports.
struct Rig {
    worker: Worker,
    input: MemoryHandle,
    out: MemoryHandle,
    v6: bool,
    flood: bool,
    flows: u32,
    vlans: u16,
    stacked: bool,
    is_tcp: bool,
    attack: Attack,
    next: u32,
    sent: u64,
}

impl Rig {
    fn new(way: &Way) -> Self {
        let publisher = Publisher::new(tables(way));
        let (receiver, input) = memory::port(MemoryOptions::ethernet("in", IN), 2 * BATCH);
        let (sender, out) = memory::port(MemoryOptions::ethernet("out", OUT), 2 * BATCH);
        let (events, _) = rtrb::RingBuffer::new(16);
        let (_, probes) = rtrb::RingBuffer::new(16);
        let cache =
            CacheSettings { mode: way.cache, buckets: 1 << 16, associativity: Associativity::Four };
        let settings = WorkerSettings {
            index: 0,
            buffers: 4 * BATCH,
            seed: [1; 32],
            caches: [cache; 4],
            ticks: steady_ticks,
            large_buffers: 64,
        };
        let mut worker = Worker::new(&settings, publisher.shared().reader(), events, probes)
            .expect("there is memory for it");
        worker.attach(IN, Box::new(receiver));
        worker.attach(OUT, Box::new(sender));
        Self {
            worker,
            input,
            out,
            v6: way.v6,
            flood: way.flood,
            flows: way.flows,
            vlans: way.vlans,
            stacked: way.stacked,
            is_tcp: way.tracking == Tracking::Tcp,
            attack: way.attack,
            next: 0,
            sent: 0,
        }
    }

    fn fill(&mut self) {
        for _ in 0..BATCH {
            let flow = if self.flood { self.next } else { self.next % self.flows };
            self.next += 1;
            if self.attack != Attack::None && self.next.is_multiple_of(4) {
                self.attack();
                continue;
            }
            let mut bytes = match self.is_tcp {
                true => segment(flow, Segment::Data(self.next / self.flows)),
                false => frame(self.v6, flow),
            };
            if self.vlans > 0 {
                let vlan = flow as u16 % self.vlans;
                let number = if self.stacked { vlan % INNER } else { vlan };
                let [high, low] = (1 + number).to_be_bytes();
                bytes.splice(12..12, [0x81, 0x00, high, low]);
                if self.stacked {
                    let [high, low] = (1 + vlan / INNER).to_be_bytes();
                    bytes.splice(12..12, [0x88, 0xa8, high, low]);
                }
            }
            assert!(self.input.push(&bytes));
        }
    }

    /// A packet of the attack, as there was none before.
    fn attack(&mut self) {
        let flow = self.flows + self.next;
        let is_taken = match self.attack {
            Attack::None => false,
            Attack::SynFlood => self.input.push(&segment(flow, Segment::Syn)),
            Attack::PortScan => self.out.push(&segment(flow, Segment::Scan)),
            Attack::Stray => self.input.push(&segment(flow, Segment::Data(0))),
            Attack::Errors => self.input.push(&forged_error(self.next % self.flows)),
        };
        assert!(is_taken);
    }

    /// The handshake of every connection.
    fn open_connections(&mut self) {
        for flow in 0..self.flows {
            for part in [Segment::Syn, Segment::SynAck, Segment::Data(0)] {
                let port = if part == Segment::SynAck { &mut self.out } else { &mut self.input };
                assert!(port.push(&segment(flow, part)));
                self.worker.poll(Time(0)).expect("a memory port is never lost");
                let port = if part == Segment::SynAck { &mut self.input } else { &mut self.out };
                assert!(port.pop_with(|_| ()).is_some(), "{part:?}");
            }
        }
    }

    /// Lets the packets go through, and answers each: with the ends swapped, the checksums stay.
    fn answer(&mut self) {
        self.worker.poll(Time(0)).expect("a memory port is never lost");
        let port = MemoryOptions::ethernet("out", OUT).mac;
        while let Some(mut frame) = self.out.pop() {
            frame[..6].copy_from_slice(&port.0);
            frame[6..12].copy_from_slice(&STATION.0);
            let (source, destination) = frame[26..34].split_at_mut(4);
            source.swap_with_slice(destination);
            let (source, destination) = frame[34..38].split_at_mut(2);
            source.swap_with_slice(destination);
            assert!(self.out.push(&frame));
        }
    }

    fn drain(&mut self) {
        for port in [&mut self.out, &mut self.input] {
            while port.pop_with(|_| ()).is_some() {
                self.sent += 1;
            }
        }
    }

    /// A way on which packets are lost, or that is another than it says, would be counted for
    /// nothing.
    fn check(&self, way: &Way) {
        let statistics = self.worker.statistics();
        let all = 2 * ROUNDS * BATCH as u64;
        let dropped = match way.attack {
            Attack::PortScan | Attack::Stray | Attack::Errors => all / 4,
            Attack::None | Attack::SynFlood => 0,
        };
        let drops = &statistics.drops;
        let seen = (self.sent, drops.total(), drops.read(DropReason::FlowMiss));
        assert_eq!(seen, (all - dropped, dropped, dropped), "{}", way.name);
        let hits: u64 = statistics.caches.iter().map(|cache| cache.hits.read()).sum();
        let expected = way.cache == CacheMode::On && !way.flood;
        assert_eq!(hits * 2 > self.sent, expected, "{}: {hits} hits", way.name);
    }
}

/// Time for a worker that must do the same each time.
fn steady_ticks() -> u64 {
    thread_local!(static TICKS: Cell<u64> = const { Cell::new(0) });
    TICKS.with(|ticks| {
        ticks.set(ticks.get() + 1000);
        ticks.get()
    })
}

fn tables(way: &Way) -> Tables {
    let prefix = |text: &str| text.parse::<IpPrefix>().expect("a prefix");
    let mut tables = Tables::new(1, 1);
    for (id, name, v4, v6) in
        [(IN, "in", "10.0.0.1/24", "fd00::1/64"), (OUT, "out", "10.0.1.1/24", "fd01::1/64")]
    {
        let spec = PortSpec {
            addresses: vec![prefix(v4), prefix(v6)],
            side: if id == IN { Side::Protected } else { Side::Unset },
            ..PortSpec::new(name, MemoryOptions::ethernet(name, id).mac)
        };
        tables.add_port(id, spec.clone()).expect("a port");
        let mut add = |parent: PortId, tag: fn(VlanId) -> VlanTag, number, id: PortId| {
            let vlan = Vlan::new(parent, tag(VlanId::new(number).expect("a VLAN")));
            let name = format!("{}.{number}", parent.0).into();
            let spec = PortSpec { name, vlan: Some(vlan), addresses: Vec::new(), ..spec.clone() };
            tables.add_port(id, spec).expect("a VLAN");
        };
        for vlan in (0..way.vlans).filter(|_| id == IN) {
            let id = PortId(1024 + vlan);
            if !way.stacked {
                add(IN, VlanTag::customer, 1 + vlan, id);
                continue;
            }
            let outer = PortId(8192 + vlan / INNER);
            if vlan.is_multiple_of(INNER) {
                add(IN, VlanTag::service, 1 + vlan / INNER, outer);
            }
            add(outer, VlanTag::customer, 1 + vlan % INNER, id);
        }
    }
    for (next_hop, to) in [("10.0.1.2", "198.18.0.0/15"), ("fd01::2", "2001:db8::/32")] {
        let next_hop = next_hop.parse().expect("an address");
        tables.set_neighbour(OUT, next_hop, STATION).expect("a neighbour");
        tables
            .set_route(VrfId::MAIN, prefix(to), RouteSpec::Via { port: OUT, address: next_hop })
            .expect("a route");
    }
    if way.tracking == Tracking::Tcp || way.answers {
        let address = Ipv4Addr::new(10, 0, 0, 2).into();
        tables.set_neighbour(IN, address, STATION).expect("a neighbour");
        let back = RouteSpec::Via { port: IN, address };
        tables.set_route(VrfId::MAIN, prefix("10.128.0.0/9"), back).expect("a route");
    }
    if way.next_hops > 1 {
        let members = (0..way.next_hops).map(|number| {
            let address = Ipv4Addr::new(10, 0, 1, 2 + number).into();
            tables.set_neighbour(OUT, address, STATION).expect("a neighbour");
            let weight = 1 + u16::from(number);
            MemberSpec { port: OUT, address: Some(address), onlink: false, weight }
        });
        let members = RouteSpec::Multipath(members.collect());
        tables.set_route(VrfId::MAIN, prefix("198.18.0.0/15"), members).expect("a route");
    }
    let mut add = |source: IpPrefix, destination: IpPrefix, priority| {
        let selector = Selector {
            source: source.range(),
            destination: destination.range(),
            protocol: None,
            upper: UpperSelector::Any,
            fields: FieldsSelector::ANY,
        };
        let (direction, action) = (Direction::Out, Action::Bypass);
        let spec =
            PolicySpec { vrf: VrfId::MAIN, direction, if_id: None, priority, selector, action };
        tables.add_policy(spec).expect("a policy");
    };
    for number in 1..way.policies {
        let network = |first: u32| match way.v6 {
            true => IpPrefix::new(
                Ipv6Addr::from_bits(
                    u128::from(first << 8 | 0xfd) << 112 | u128::from(number) << 64,
                )
                .into(),
                64,
            ),
            false => IpPrefix::new(Ipv4Addr::from_bits(first << 24 | number << 6).into(), 26),
        };
        add(network(20).expect("a prefix"), network(30).expect("a prefix"), 1);
    }
    match (way.policies, way.v6) {
        (0, _) => {}
        (_, false) => add(prefix("10.128.0.0/9"), prefix("198.18.0.0/15"), 2),
        (_, true) => add(prefix("fd00:0:0:1::/64"), prefix("2001:db8::/32"), 2),
    }
    for number in 1..=way.rules {
        add_rule(&mut tables, VrfId::MAIN, number, number == way.rules);
    }
    if way.beside != Beside::Nothing {
        let other = tables.add_vrf("other").expect("a VRF");
        match way.beside {
            Beside::Nat => track(&mut tables, other, true, 1024),
            _ => add_rule(&mut tables, other, 1, true),
        }
    }
    tables.compile();
    if way.tracking != Tracking::Off {
        let connections = match way.attack {
            Attack::SynFlood => way.flows + FLOODED,
            _ => 4 * ROUNDS as u32 * BATCH as u32,
        };
        track(&mut tables, VrfId::MAIN, way.tracking == Tracking::Nat, connections);
    }
    tables
}

/// Tracks connections, which may begin at the first port.
fn track(tables: &mut Tables, vrf: VrfId, is_translated: bool, connections: u32) {
    let settings = conntrack::Settings { connections, ..conntrack::Settings::default() };
    let connections = Connections::new(&settings, [1, 2], Time(0)).expect("there is memory for it");
    tables.set_connections(Arc::new(connections));
    let source = "203.0.113.1-203.0.113.4".parse().expect("a range");
    let nat = NatNew {
        end: NatEnd::Source,
        addresses: Some(source),
        ports: None,
        choice: None,
        persistent: false,
        endpoint_independent: false,
        blocks: None,
    };
    let ct = |commit, table| Ct {
        commit,
        table,
        nat: (is_translated && !commit).then(NatSpec::default),
        ..Ct::default()
    };
    // Connections have a label, as those that `[firewall]` makes.
    let label =
        FlowAction::Set { word: SetWord::SetField, field: Field::CtLabel, value: 1, mask: 1 };
    let commit = Ct {
        exec: vec![label],
        nat: is_translated.then_some(NatSpec { new: Some(Arc::new(nat)), twice: false }),
        ..ct(true, None)
    };
    let (new, est) = (CtState::NEW | CtState::TRK, CtState::EST | CtState::TRK);
    let mut pipeline = Pipeline::new();
    let mut add = |table, (value, mask): (CtState, CtState), port: Option<PortId>, actions| {
        let mut matches = Match::ANY;
        matches.set(Field::CtState, value.0.into(), mask.0.into());
        if let Some(port) = port {
            matches.set(Field::InPort, port.0.into(), Field::InPort.max());
        }
        let (priority, cookie, idle_timeout, hard_timeout) = (10, 0, 0, 0);
        let flow =
            Flow { vrf, table, priority, matches, actions, cookie, idle_timeout, hard_timeout };
        let change = Change::Add { flow, check_overlap: false };
        pipeline.apply(change, Owner::User).expect("a flow");
    };
    add(0, (CtState(0), CtState::TRK), None, vec![FlowAction::Ct(Box::new(ct(false, Some(1))))]);
    let commit = FlowAction::Ct(Box::new(commit));
    add(1, (new, new), Some(IN), vec![commit, FlowAction::Normal]);
    add(1, (est, est), None, vec![FlowAction::Normal]);
    tables.set_pipeline(pipeline, Time(0)).expect("flows");
}

/// A rule of the filter that a VRF has before routing: for IPv4 packets that there are none of, or
/// for all.
fn add_rule(tables: &mut Tables, vrf: VrfId, preference: u32, is_for_all: bool) {
    let network = |first: u32| {
        let address = Ipv4Addr::from_bits(first << 24 | preference << 6);
        let prefix = IpPrefix::new(address.into(), 26).expect("a prefix");
        if is_for_all { "0.0.0.0/0".parse().expect("a prefix") } else { prefix }
    };
    let selector = Selector {
        source: network(20).range(),
        destination: network(30).range(),
        protocol: None,
        upper: UpperSelector::Any,
        fields: FieldsSelector::ANY,
    };
    let verdict = if is_for_all { FilterVerdict::Pass } else { FilterVerdict::Drop };
    let (reject_with, set_mark) = (RejectWith::AdminProhibited, None);
    let place = FilterPlace { target: FilterTarget::Vrf(vrf), hook: FilterHook::Ingress };
    let mark = MarkBits { value: 0, mask: 0 };
    let selects = FilterMatch { v4: Some(selector), v6: None, mark };
    let action = FilterAction { verdict, reject_with, set_mark, log: false };
    let spec = FilterSpec { place, preference, selects, action };
    tables.set_filter_rule(spec).expect("a rule");
}

/// A segment of a TCP connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Segment {
    Syn,
    /// From the other side.
    SynAck,
    /// From there too, and opens a connection.
    Scan,
    /// The segment of this number behind the handshake.
    Data(u32),
}

/// A frame of 64 bytes, or of more if it opens a connection, with a segment of TCP.
fn segment(flow: u32, part: Segment) -> Vec<u8> {
    const DATA: u32 = 6;
    let [_, b, c, d] = flow.wrapping_mul(0x9e37_79b1).to_be_bytes();
    let ends = (Ipv4Addr::new(10, 128 | b, c, d), Ipv4Addr::new(198, 18, c, d));
    let ports = (u16::from_be_bytes([c, d]), 443);
    let (ends, ports, at) = match part {
        Segment::SynAck | Segment::Scan => ((ends.1, ends.0), (ports.1, ports.0), (OUT, "out")),
        _ => (ends, ports, (IN, "in")),
    };
    let (flags, sequence, acknowledgment) = match part {
        Segment::Syn | Segment::Scan => (TcpFlags::SYN.0, 0, 0),
        Segment::SynAck => (TcpFlags::SYN.0 | TcpFlags::ACK.0, 0, 1),
        Segment::Data(number) => (TcpFlags::ACK.0, 1 + number * DATA, 1),
    };
    // A window scale, and no operation.
    let rest: &[u8] = match part {
        Segment::Data(_) => &[0; DATA as usize],
        _ => &[3, 3, 14, 1],
    };
    let header = tcp::Header {
        source: ports.0,
        destination: ports.1,
        sequence,
        acknowledgment,
        header_length: if matches!(part, Segment::Data(_)) { 20 } else { 24 },
        flags: TcpFlags(flags),
        window: u16::MAX,
        ..tcp::Header::default()
    };
    let mut upper = header.to_bytes().to_vec();
    upper.extend(rest);
    let addresses = Addresses::V4 { source: ends.0, destination: ends.1 };
    let sum = checksum::upper(&addresses, Protocol::TCP, &upper);
    upper[16..18].copy_from_slice(&sum.to_be_bytes());
    let header = ipv4::Header {
        total_length: 20 + upper.len() as u16,
        protocol: Protocol::TCP,
        source: ends.0,
        destination: ends.1,
        ..ipv4::Header::default()
    };
    let destination = MemoryOptions::ethernet(at.1, at.0).mac;
    let ethernet = ethernet::Header { destination, source: STATION, ether_type: EtherType::IPV4 };
    let mut frame = [&ethernet.to_bytes()[..], &header.to_bytes(), &upper].concat();
    frame.resize(frame.len().max(64), 0);
    frame
}

/// An ICMP error from inside, "host unreachable", about what the other side of a connection never sent.
fn forged_error(flow: u32) -> Vec<u8> {
    const QUOTED: usize = ipv4::HEADER_LENGTH + 8;
    let about = segment(flow, Segment::SynAck);
    let mut icmp = vec![3, 1, 0, 0, 0, 0, 0, 0];
    icmp.extend(&about[ethernet::HEADER_LENGTH..][..QUOTED]);
    let sequence = icmp.last_chunk_mut::<4>().expect("it quotes so many");
    *sequence = (1_u32 << 30).to_be_bytes();
    let sum = checksum::checksum(&icmp);
    icmp[2..4].copy_from_slice(&sum.to_be_bytes());
    let [_, b, c, d] = flow.wrapping_mul(0x9e37_79b1).to_be_bytes();
    let header = ipv4::Header {
        total_length: (ipv4::HEADER_LENGTH + icmp.len()) as u16,
        protocol: Protocol::ICMP,
        source: Ipv4Addr::new(10, 128 | b, c, d),
        destination: Ipv4Addr::new(198, 18, c, d),
        ..ipv4::Header::default()
    };
    let destination = MemoryOptions::ethernet("in", IN).mac;
    let ethernet = ethernet::Header { destination, source: STATION, ether_type: EtherType::IPV4 };
    [&ethernet.to_bytes()[..], &header.to_bytes(), &icmp].concat()
}

/// A frame of 64 bytes with UDP.
fn frame(v6: bool, flow: u32) -> Vec<u8> {
    let [a, b, c, d] = flow.wrapping_mul(0x9e37_79b1).to_be_bytes();
    let ether_type = if v6 { EtherType::IPV6 } else { EtherType::IPV4 };
    let to = MemoryOptions::ethernet("in", IN).mac;
    let mut frame =
        ethernet::Header { destination: to, source: STATION, ether_type }.to_bytes().to_vec();
    let upper = if v6 { 10_u16 } else { 30 };
    if v6 {
        let header = ipv6::Header {
            payload_length: upper,
            next_header: Protocol::UDP,
            source: Ipv6Addr::new(
                0xfd00,
                0,
                0,
                1,
                0,
                0,
                u16::from_be_bytes([a, b]),
                u16::from_be_bytes([c, d]),
            ),
            destination: Ipv6Addr::new(
                0x2001,
                0xdb8,
                a.into(),
                0,
                0,
                0,
                b.into(),
                u16::from_be_bytes([c, d]),
            ),
            ..ipv6::Header::default()
        };
        frame.extend(header.to_bytes());
    } else {
        let header = ipv4::Header {
            total_length: 20 + upper,
            protocol: Protocol::UDP,
            source: Ipv4Addr::new(10, 128 | b, c, d),
            destination: Ipv4Addr::new(198, 18, a, b),
            ..ipv4::Header::default()
        };
        frame.extend(header.to_bytes());
    }
    frame.extend([c, d, a, b]);
    frame.extend(upper.to_be_bytes());
    frame.resize(64, 0);
    frame
}
