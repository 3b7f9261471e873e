//! No frame of one VRF leaves by, or is counted by, a port or a tunnel of another one, unless a rule
//! or a route says so, whatever becomes of VRFs, ports and xfrm links.

mod fixture;

use std::time::Duration;

use esp::{InboundSa, OutboundSa, WindowSize};
use fixture::*;
use io::memory::MemoryOptions;
use proptest::prelude::*;
use rand::SeedableRng;
use rand::rngs::StdRng;
use tables::{
    Action, Direction, IfId, MarkBits, MssClamp, PolicySpec, PortSpec, ReversePath, RouteSpec,
    Rule, RuleAction, RuleEntry, RuleSelector, SaIdentity, SaSpec, Side, Tables, Vlan, VlanId,
    VlanTag,
};
use wire::ethernet::{self, EtherType};
use wire::{Mac, PortId, Protocol, Spi, VrfId};

/// Sub-ports of the LAN, one for each number from 1 on.
const PORTS: u16 = 6;
/// Further ports, which are xfrm links over the WAN, with numbers behind.
const LINKS: u16 = 2;
const ALL: u16 = PORTS + LINKS;
/// VRFs beside `main`.
const VRFS: u16 = 3;

#[derive(Clone, Debug)]
enum Step {
    /// A packet from the host behind a port to that behind another one.
    Send(u16, u16),
    /// The first or the second half of a datagram for the gateway.
    Half(u16, bool),
    /// A port moves.
    Move(u16, u16),
    /// A VRF goes, and another one gets its number. Its ports are in `main` then.
    Remake(u16),
    /// The hosts behind a port answer.
    Resolve(u16),
    /// Seconds pass.
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let port = || 1..=ALL;
    prop_oneof![
        6 => (port(), port()).prop_map(|(from, to)| Step::Send(from, to)),
        3 => (port(), any::<bool>()).prop_map(|(port, first)| Step::Half(port, first)),
        4 => (port(), 0..=VRFS).prop_map(|(port, vrf)| Step::Move(port, vrf)),
        2 => (1..=VRFS).prop_map(Step::Remake),
        2 => (1..=PORTS).prop_map(Step::Resolve),
        2 => (1..=2u64).prop_map(Step::Wait),
    ]
}

fn leak() -> impl Strategy<Value = Leak> {
    prop_oneof![Just(Leak::Rule), Just(Leak::Table), Just(Leak::Ports)]
}

fn id(number: u16) -> PortId {
    PortId(2000 + number)
}

fn is_link(number: u16) -> bool {
    number > PORTS
}

fn spec(number: u16, vrf: u16) -> PortSpec {
    let vlan = || Vlan::new(LAN, VlanTag::customer(VlanId::new(number).unwrap()));
    PortSpec {
        name: format!("lan.{number}").into(),
        vrf: VrfId(vrf),
        link: match is_link(number) {
            true => packet::LinkKind::Ip,
            false => packet::LinkKind::Ethernet,
        },
        mac: Mac::default(),
        mtu: 1500,
        addresses: vec![prefix(&format!("10.0.{number}.1/24"))],
        up: true,
        vlan: (!is_link(number)).then(vlan),
        if_id: IfId::new(number.into()).filter(|_| is_link(number)),
        side: Side::Unset,
        reverse_path: ReversePath::Off,
        mss: MssClamp::Off,
    }
}

const ME: &str = "192.168.11.2";
const PEER: &str = "192.168.11.1";

/// The SPI of what leaves by a link, or of what comes by it.
fn spi(link: u16, out: bool) -> Spi {
    Spi(0x1000 * u32::from(link) + u32::from(!out))
}

/// Everything by a link is protected, over the WAN, which is in `main`. The tunnels have the same
/// ends and selectors.
fn add_tunnel(tables: &mut Tables, link: u16) {
    let if_id = IfId::new(link.into());
    for (out, from, to) in [(true, ME, PEER), (false, PEER, ME)] {
        let (source, destination) = (ip(from), ip(to));
        let (vrf, inner) = (VrfId::MAIN, VrfId::MAIN);
        let identity = SaIdentity { vrf, inner, if_id, source, destination, reqid: 1 };
        let spi = spi(link, out);
        let spec = SaSpec { identity, spi, no_ecn: false, no_pmtu_discovery: false };
        let outbound = OutboundSa::new(spi, &keys(false), 0, &mut StdRng::from_seed([3; 32]));
        let inbound = InboundSa::new(spi, &keys(false), WindowSize::new(64).unwrap(), 0);
        tables.add_sa(spec, outbound, inbound).unwrap();
    }
    for (direction, from, to) in
        [(Direction::Out, ME, PEER), (Direction::In, PEER, ME), (Direction::Fwd, PEER, ME)]
    {
        let action = Action::Protect(template(from, to));
        let spec = policy(direction, "0.0.0.0/0", "0.0.0.0/0", action);
        tables.add_policy(PolicySpec { if_id, ..spec }).unwrap();
    }
}

/// What leads from one VRF into another.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Leak {
    /// A policy rule that names the number of its table.
    Rule,
    /// A route into its table.
    Table,
    /// Routes by the ports that were in it at the beginning.
    Ports,
}

/// The gateway, and what is expected of it.
struct World {
    gateway: Gateway,
    /// By port.
    vrfs: Vec<u16>,
    /// By VRF: another number each time that it is made anew.
    lives: Vec<u8>,
    /// By the source port of each packet: the VRF that it came in, as it was then.
    sent: Vec<(u16, u8)>,
    /// Packets of the first VRF, as it was at the beginning, may leave by the second one.
    leak: Option<(u16, u16, Leak)>,
    /// How many have left so.
    leaked: usize,
    /// By port, packets and bytes that came and that left, with link headers.
    counts: Vec<[(u64, u64); 2]>,
    /// How many packets the peer has sealed.
    sealed: u32,
    /// By link, what opens what leaves by it.
    peers: Vec<InboundSa>,
}

impl World {
    fn new(leak: Option<(u16, u16, Leak)>) -> Self {
        let mut tables = plain_tables();
        for vrf in 1..=VRFS {
            assert_eq!(tables.add_vrf(&format!("tenant{vrf}")), Ok(VrfId(vrf)));
        }
        let vrfs: Vec<_> = (0..=ALL).map(|number| number % (VRFS + 1)).collect();
        for number in 1..=ALL {
            tables.add_port(id(number), spec(number, vrfs[usize::from(number)])).unwrap();
        }
        (1..=ALL).filter(|number| is_link(*number)).for_each(|link| add_tunnel(&mut tables, link));
        let table = |prefix: &str, vrf, spec| (self::prefix(prefix), VrfId(vrf), spec);
        let leaks = match leak {
            Some((from, into, Leak::Table)) => {
                vec![table("10.0.0.0/16", from, RouteSpec::Vrf { vrf: VrfId(into) })]
            }
            Some((from, into, Leak::Ports)) => (1..=ALL)
                .filter(|port| vrfs[usize::from(*port)] == into)
                .map(|port| {
                    let spec = RouteSpec::Connected { port: id(port) };
                    table(&format!("10.0.{port}.0/25"), from, spec)
                })
                .collect(),
            _ => Vec::new(),
        };
        for (prefix, vrf, spec) in leaks {
            tables.set_route(vrf, prefix, spec).unwrap();
        }
        if let Some((from, into, Leak::Rule)) = leak {
            let table = tables.vrf(VrfId(into)).unwrap().table;
            let everywhere = prefix("0.0.0.0/0");
            let selects = RuleSelector {
                source: everywhere,
                destination: everywhere,
                entry: Some(RuleEntry::Vrf(VrfId(from))),
                sent_in: None,
                mark: MarkBits::default(),
                protocol: None,
                source_ports: None,
                destination_ports: None,
                dscp: None,
            };
            let action = RuleAction::Table { table, suppress: None };
            tables.set_rule(0, Rule { priority: 40_000, selects, action }).unwrap();
        }
        let lives = (0..=VRFS as u8).collect();
        let peer =
            |link| InboundSa::new(spi(link, true), &keys(false), WindowSize::new(64).unwrap(), 0);
        Self {
            gateway: Gateway::new(tables),
            vrfs,
            lives,
            sent: Vec::new(),
            leak,
            leaked: 0,
            counts: vec![Default::default(); usize::from(ALL) + 1],
            sealed: 0,
            peers: (1..=ALL).filter(|number| is_link(*number)).map(peer).collect(),
        }
    }

    /// The VRF that a port is in, and which of those that have had its number.
    fn tenant(&self, port: u16) -> (u16, u8) {
        let vrf = self.vrfs[usize::from(port)];
        (vrf, self.lives[usize::from(vrf)])
    }

    fn push(&mut self, port: u16, packet: &[u8]) {
        let [came, _] = &mut self.counts[usize::from(port)];
        let header = if is_link(port) { 0 } else { 18 };
        *came = (came.0 + 1, came.1 + header + packet.len() as u64);
        if is_link(port) {
            let seed = StdRng::from_seed([9; 32]);
            let peer = OutboundSa::new(spi(port, false), &keys(false), self.sealed, &mut { seed });
            self.sealed += 1;
            return self.gateway.receive(WAN, &seal(&peer, PEER, ME, packet));
        }
        let mut bytes = frame(MemoryOptions::ethernet("lan", LAN).mac, HOST_MAC, packet);
        bytes.splice(12..12, [0x81, 0x00, 0x00, port as u8]);
        assert!(self.gateway.lan.push(&bytes));
        self.gateway.poll();
    }

    fn take(&mut self, step: &Step) {
        match *step {
            Step::Send(from, to) => {
                let ports = (self.sent.len() as u16, 7);
                self.sent.push(self.tenant(from));
                let packet = udp(&format!("10.0.{from}.5"), &format!("10.0.{to}.5"), ports, 20);
                self.push(from, &packet);
            }
            Step::Half(port, first) => {
                let life = self.tenant(port).1;
                let mut whole = echo(&format!("10.0.{port}.5"), &format!("10.0.{port}.1"), 24);
                whole[28..].fill(life);
                whole[22..24].fill(0);
                let sum: u32 = whole[20..]
                    .chunks(2)
                    .map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]))
                    .sum();
                let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
                whole[22..24].copy_from_slice(&sum.to_be_bytes());
                let mut half = whole[..20].to_vec();
                half.extend_from_slice(if first { &whole[20..36] } else { &whole[36..] });
                let length = half.len() as u16;
                half[2..4].copy_from_slice(&length.to_be_bytes());
                half[4..6].copy_from_slice(&[0x12, 0x34]);
                half[6..8].copy_from_slice(if first { &[0x20, 0] } else { &[0, 2] });
                wire::ipv4::fill_checksum(&mut half);
                self.push(port, &half);
            }
            Step::Move(port, vrf) => {
                self.gateway
                    .change(|tables| tables.update_port(id(port), spec(port, vrf)).unwrap());
                self.vrfs[usize::from(port)] = vrf;
            }
            Step::Remake(vrf) => {
                let ports: Vec<_> =
                    (1..=ALL).filter(|port| self.vrfs[usize::from(*port)] == vrf).collect();
                self.gateway.change(|tables| remake(tables, vrf, &ports));
                ports.iter().for_each(|port| self.vrfs[usize::from(*port)] = 0);
                self.lives[usize::from(vrf)] += VRFS as u8 + 1;
            }
            Step::Resolve(port) => self.gateway.change(|tables| {
                let host = ip(&format!("10.0.{port}.5"));
                tables.set_neighbour(id(port), host, HOST_MAC).unwrap();
            }),
            Step::Wait(seconds) => self.gateway.wait(Duration::from_secs(seconds)),
        }
        self.gateway.poll();
    }

    /// Whether a packet that came in one VRF may leave by the other.
    fn may_pass(&self, sent: (u16, u8), out: (u16, u8)) -> bool {
        let (from, life) = sent;
        sent == out
            || self.leak.is_some_and(|(source, into, leak)| {
                // Another VRF may get the number of the table that a rule names.
                let into_same = leak == Leak::Rule || out.1 == into as u8;
                (source, into) == (from, out.0) && life == from as u8 && into_same
            })
    }

    /// Looks at what has left, and at what was counted. Returns how many packets left by ports of
    /// tenants.
    fn judge(&mut self) -> Result<usize, TestCaseError> {
        let mut count = 0;
        while let Some(bytes) = self.gateway.lan.pop() {
            let header = ethernet::Header::parse(&bytes).unwrap();
            if header.ether_type != EtherType::VLAN {
                continue;
            }
            let tag = ethernet::Tag::parse(&bytes, 14).unwrap();
            self.left(tag.vlan, bytes.len());
            if tag.ether_type == EtherType::IPV4 {
                count += 1;
                self.judge_packet(tag.vlan, &bytes[18..])?;
            }
        }
        // The WAN is in main, which has a default route by it.
        while let Some(bytes) = self.gateway.wan.pop() {
            let packet = &bytes[14..];
            if ethernet::Header::parse(&bytes).unwrap().ether_type != EtherType::IPV4 {
                continue;
            }
            if Protocol(packet[9]) == Protocol::ESP {
                let sealed_by = Spi(u32::from_be_bytes(packet[20..24].try_into().unwrap()));
                let link = (1..=ALL).find(|link| spi(*link, true) == sealed_by).unwrap();
                let inner = open(&self.peers[usize::from(link - PORTS - 1)], packet);
                count += 1;
                self.left(link, inner.len());
                self.judge_packet(link, &inner)?;
            } else if let Some(stamp) = stamp(packet) {
                prop_assert!(self.may_pass(self.sent[stamp], (0, 0)), "packet {}", stamp);
            }
        }
        let tables = self.gateway.publisher.current();
        for number in 1..=ALL {
            let counters = tables.port_counters(id(number)).unwrap();
            let counted = [counters.received(), counters.sent()];
            prop_assert_eq!(counted, self.counts[usize::from(number)], "port {}", number);
        }
        Ok(count)
    }

    /// A frame has left by a port.
    fn left(&mut self, port: u16, length: usize) {
        let [_, left] = &mut self.counts[usize::from(port)];
        *left = (left.0 + 1, left.1 + length as u64);
    }

    /// Whether a packet may leave by a port.
    fn judge_packet(&mut self, port: u16, packet: &[u8]) -> Result<(), TestCaseError> {
        let tenant = self.tenant(port);
        if let Some(stamp) = stamp(packet) {
            let sent = self.sent[stamp];
            self.leaked += usize::from(sent != tenant);
            prop_assert!(self.may_pass(sent, tenant), "packet {}: {:?}", stamp, tenant);
        } else {
            // An echo reply: all of it is of one tenant.
            prop_assert!(packet[28..].iter().all(|life| *life == tenant.1), "{:?}", packet);
        }
        Ok(())
    }
}

/// Which packet was forwarded, or is quoted by an ICMP error.
fn stamp(packet: &[u8]) -> Option<usize> {
    let udp = match (packet[9], packet[20]) {
        (17, _) => &packet[20..],
        (1, 3 | 11) => &packet[48..],
        _ => return None,
    };
    Some(u16::from_be_bytes([udp[0], udp[1]]).into())
}

fn remake(tables: &mut Tables, vrf: u16, ports: &[u16]) {
    for port in ports {
        tables.update_port(id(*port), spec(*port, 0)).unwrap();
    }
    tables.remove_vrf(VrfId(vrf)).unwrap();
    assert_eq!(tables.add_vrf(&format!("tenant{vrf}")), Ok(VrfId(vrf)));
}

proptest! {
    #[test]
    fn nothing_leaves_by_a_port_of_another_vrf(
        steps in proptest::collection::vec(step(), 1..80),
        leak in proptest::option::of((0..=VRFS, 0..=VRFS, leak())),
    ) {
        let mut world = World::new(leak.filter(|(from, into, _)| from != into));
        for step in &steps {
            world.take(step);
            world.judge()?;
        }
        // What still waits is answered, or given up.
        for number in 1..=PORTS {
            world.take(&Step::Resolve(number));
            world.judge()?;
        }
        world.take(&Step::Wait(4));
        world.judge()?;
        world.gateway.assert_nothing_lost();
    }
}

/// Also if the VRF was there from the beginning.
#[test]
fn a_sender_goes_with_its_vrf() {
    let mut world = World::new(Some((3, 0, Leak::Rule)));
    let steps = [Step::Send(7, 4), Step::Remake(3), Step::Move(7, 3), Step::Wait(1), Step::Wait(1)];
    for step in steps.into_iter().chain([Step::Wait(1)]) {
        world.take(&step);
        world.judge().unwrap();
    }
    world.gateway.assert_nothing_lost();
}

#[test]
fn something_leads_from_one_tenant_to_another() {
    for leak in [Leak::Rule, Leak::Table, Leak::Ports] {
        let mut world = World::new(Some((1, 2, leak)));
        // Port 5 is in the first VRF, 2 and 6 are in the second.
        for step in [Step::Resolve(2), Step::Send(1, 2), Step::Resolve(1), Step::Send(2, 1)] {
            world.take(&step);
        }
        // The packet, and an error about the one that found no way back.
        assert_eq!((world.judge().unwrap(), world.leaked), (2, 1), "{leak:?}");
        // The first VRF goes, and what leads from it.
        for step in [Step::Remake(1), Step::Move(1, 1), Step::Send(1, 2)] {
            world.take(&step);
        }
        world.judge().unwrap();
        assert_eq!(world.leaked, 1, "{leak:?}");
        world.gateway.assert_nothing_lost();
    }
}

#[test]
fn a_route_does_not_follow_a_port_or_a_number() {
    for leak in [Leak::Table, Leak::Ports] {
        let mut world = World::new(Some((1, 2, leak)));
        // The second VRF is another one now, with the same ports.
        for step in [Step::Remake(2), Step::Move(2, 2), Step::Resolve(2), Step::Send(1, 2)] {
            world.take(&step);
        }
        world.judge().unwrap();
        assert_eq!(world.leaked, 0, "{leak:?}");
        assert_eq!(world.gateway.dropped(packet::DropReason::NoRoute), 1, "{leak:?}");
        world.gateway.assert_nothing_lost();
    }
}

#[test]
fn what_waits_does_not_move_along() {
    let mut world = World::new(None);
    // Ports 1 and 5 are in one VRF.
    for step in [Step::Send(1, 5), Step::Move(5, 2), Step::Resolve(5), Step::Wait(1)] {
        world.take(&step);
        assert_eq!(world.judge().unwrap(), 0);
    }
    for step in [Step::Move(5, 1), Step::Resolve(5), Step::Send(1, 5)] {
        world.take(&step);
    }
    assert_eq!(world.judge().unwrap(), 1, "and what comes then passes");
    world.gateway.assert_nothing_lost();
}

#[test]
fn halves_of_two_tenants_are_no_datagram() {
    let mut world = World::new(None);
    for step in [Step::Resolve(1), Step::Half(1, true), Step::Half(1, false)] {
        world.take(&step);
    }
    assert_eq!(world.judge().unwrap(), 1, "{:?}", world.gateway.drops());
    world.take(&Step::Half(1, true));
    assert_eq!(world.gateway.worker.held(), 1);
    // The VRF of its number is another tenant's.
    world.take(&Step::Remake(1));
    assert_eq!(world.gateway.worker.held(), 0);
    for step in [Step::Move(1, 1), Step::Resolve(1), Step::Half(1, false)] {
        world.take(&step);
    }
    assert_eq!((world.judge().unwrap(), world.gateway.worker.held()), (0, 1));
    world.gateway.assert_nothing_lost();
}

/// Tunnels with the same ends, one of each tenant.
#[test]
fn a_tunnel_belongs_to_the_vrf_of_its_link() {
    let mut world = World::new(None);
    // Port 3 and the first link are in the third VRF, and so no others.
    for step in [Step::Resolve(3), Step::Resolve(1)] {
        world.take(&step);
    }
    for step in [Step::Send(3, 7), Step::Send(1, 7), Step::Send(3, 8)] {
        world.take(&step);
    }
    assert_eq!(world.judge().unwrap(), 3, "one by the link, two told: {:?}", world.gateway.drops());
    for step in [Step::Send(7, 3), Step::Send(7, 1), Step::Send(8, 3)] {
        world.take(&step);
    }
    // What came by the second link is in main, and leaves by its default route.
    assert_eq!(world.judge().unwrap(), 2, "one to port 3, one told: {:?}", world.gateway.drops());
    // The link is another tenant's, at once and in both ways.
    for step in [Step::Move(7, 1), Step::Send(1, 7), Step::Send(7, 1)] {
        world.take(&step);
    }
    assert_eq!(world.judge().unwrap(), 2, "{:?}", world.gateway.drops());
    assert_eq!(world.leaked, 0);
    world.gateway.assert_nothing_lost();
}
