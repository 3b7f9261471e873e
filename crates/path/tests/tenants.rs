//! No frame of one VRF leaves by a port of another one, unless a rule or a route says so, whatever
//! becomes of VRFs and ports.

mod fixture;

use std::time::Duration;

use fixture::*;
use io::memory::MemoryOptions;
use proptest::prelude::*;
use tables::{
    MarkBits, MssClamp, PortSpec, ReversePath, RouteSpec, Rule, RuleAction, RuleEntry,
    RuleSelector, Side, Tables, Vlan, VlanId, VlanTag,
};
use wire::ethernet::{self, EtherType};
use wire::{Mac, PortId, VrfId};

/// Sub-ports of the LAN, one for each number from 1 on.
const PORTS: u16 = 6;
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
    let port = || 1..=PORTS;
    prop_oneof![
        6 => (port(), port()).prop_map(|(from, to)| Step::Send(from, to)),
        3 => (port(), any::<bool>()).prop_map(|(port, first)| Step::Half(port, first)),
        4 => (port(), 0..=VRFS).prop_map(|(port, vrf)| Step::Move(port, vrf)),
        2 => (1..=VRFS).prop_map(Step::Remake),
        2 => port().prop_map(Step::Resolve),
        2 => (1..=2u64).prop_map(Step::Wait),
    ]
}

fn leak() -> impl Strategy<Value = Leak> {
    prop_oneof![Just(Leak::Rule), Just(Leak::Table), Just(Leak::Ports)]
}

fn id(number: u16) -> PortId {
    PortId(2000 + number)
}

fn spec(number: u16, vrf: u16) -> PortSpec {
    PortSpec {
        name: format!("lan.{number}").into(),
        vrf: VrfId(vrf),
        link: packet::LinkKind::Ethernet,
        mac: Mac::default(),
        mtu: 1500,
        addresses: vec![prefix(&format!("10.0.{number}.1/24"))],
        up: true,
        vlan: Some(Vlan::new(LAN, VlanTag::customer(VlanId::new(number).unwrap()))),
        if_id: None,
        side: Side::Unset,
        reverse_path: ReversePath::Off,
        mss: MssClamp::Off,
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
}

impl World {
    fn new(leak: Option<(u16, u16, Leak)>) -> Self {
        let mut tables = plain_tables();
        for vrf in 1..=VRFS {
            assert_eq!(tables.add_vrf(&format!("tenant{vrf}")), Ok(VrfId(vrf)));
        }
        let vrfs: Vec<_> = (0..=PORTS).map(|number| number % (VRFS + 1)).collect();
        for number in 1..=PORTS {
            tables.add_port(id(number), spec(number, vrfs[usize::from(number)])).unwrap();
        }
        let table = |prefix: &str, vrf, spec| (self::prefix(prefix), VrfId(vrf), spec);
        let leaks = match leak {
            Some((from, into, Leak::Table)) => {
                vec![table("10.0.0.0/16", from, RouteSpec::Vrf { vrf: VrfId(into) })]
            }
            Some((from, into, Leak::Ports)) => (1..=PORTS)
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
            tables.set_rules(vec![Rule { priority: 40_000, selects, action }]).unwrap();
        }
        let lives = (0..=VRFS as u8).collect();
        Self { gateway: Gateway::new(tables), vrfs, lives, sent: Vec::new(), leak, leaked: 0 }
    }

    /// The VRF that a port is in, and which of those that have had its number.
    fn tenant(&self, port: u16) -> (u16, u8) {
        let vrf = self.vrfs[usize::from(port)];
        (vrf, self.lives[usize::from(vrf)])
    }

    fn push(&mut self, port: u16, packet: &[u8]) {
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
                    (1..=PORTS).filter(|port| self.vrfs[usize::from(*port)] == vrf).collect();
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

    /// Looks at what has left.
    fn judge(&mut self) -> Result<usize, TestCaseError> {
        let mut count = 0;
        while let Some(bytes) = self.gateway.lan.pop() {
            let header = ethernet::Header::parse(&bytes).unwrap();
            if header.ether_type != EtherType::VLAN {
                continue;
            }
            let tag = ethernet::Tag::parse(&bytes, 14).unwrap();
            if tag.ether_type != EtherType::IPV4 {
                continue;
            }
            let (tenant, packet) = (self.tenant(tag.vlan), &bytes[18..]);
            count += 1;
            if let Some(stamp) = stamp(packet) {
                let sent = self.sent[stamp];
                self.leaked += usize::from(sent != tenant);
                prop_assert!(self.may_pass(sent, tenant), "packet {}: {:?}", stamp, tenant);
            } else {
                // An echo reply: all of it is of one tenant.
                prop_assert!(packet[28..].iter().all(|life| *life == tenant.1), "{:?}", packet);
            }
        }
        // The WAN is in main, which has a default route by it.
        while let Some(bytes) = self.gateway.wan.pop() {
            if ethernet::Header::parse(&bytes).unwrap().ether_type == EtherType::IPV4
                && let Some(stamp) = stamp(&bytes[14..])
            {
                prop_assert!(self.may_pass(self.sent[stamp], (0, 0)), "packet {}", stamp);
            }
        }
        Ok(count)
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
