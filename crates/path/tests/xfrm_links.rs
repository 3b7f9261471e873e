//! Route-based tunnels: xfrm links, each a boundary of its own.

mod fixture;

use esp::{InboundSa, OutboundSa, WindowSize};
use fixture::*;
use packet::DropReason;
use rand::SeedableRng;
use rand::rngs::StdRng;
use tables::{
    Action, Direction, FilterAction, FilterHook, FilterMatch, FilterPlace, FilterSpec,
    FilterTarget, FilterVerdict, IfId, MarkBits, PolicySpec, PortSpec, RejectWith, ReversePath,
    RouteSpec, Rule, RuleAction, RuleEntry, RuleSelector, SaIdentity, SaSpec, Selector, Side,
    TableError, Tables, Template, UpperSelector, Vlan, VlanId, VlanTag,
};
use types::Ipsec;
use wire::ethernet::{self, EtherType};
use wire::{
    Addresses, FlowKey, FragmentClass, Mac, Origin, PacketFields, PortId, PortRange, Protocol, Spi,
    Upper, VrfId,
};

const ME: &str = "192.168.11.2";
const PEER: &str = "192.168.11.1";

/// A tenant: its VRF, its VLAN on the LAN, and its link, which has the SPIs of its tunnel. Nothing
/// else differs.
#[derive(Clone, Copy)]
struct Tenant {
    vrf: VrfId,
    port: PortId,
    vlan: u16,
    link: PortId,
    if_id: u32,
    spis: [u32; 2],
}

const RED: Tenant = Tenant {
    vrf: VrfId(1),
    port: PortId(1100),
    vlan: 10,
    link: PortId(1200),
    if_id: 7,
    spis: [0x1001, 0x1002],
};
const BLUE: Tenant = Tenant {
    vrf: VrfId(2),
    port: PortId(1101),
    vlan: 20,
    link: PortId(1201),
    if_id: 8,
    spis: [0x2001, 0x2002],
};

fn port(name: &str, vrf: VrfId, addresses: &[&str]) -> PortSpec {
    PortSpec {
        vrf,
        link: packet::LinkKind::Ip,
        addresses: addresses.iter().map(|text| prefix(text)).collect(),
        ..PortSpec::new(name, Mac::default())
    }
}

fn add_link_sa(tables: &mut Tables, if_id: u32, spi: u32, from: &str, to: &str) {
    let identity = SaIdentity {
        vrf: VrfId::MAIN,
        // Says nothing: it is the link's.
        inner: VrfId(u16::from(if_id == 7)),
        if_id: IfId::new(if_id),
        source: ip(from),
        destination: ip(to),
        reqid: 1,
    };
    let spi = Spi(spi);
    let spec = SaSpec { identity, spi, no_ecn: false, no_pmtu_discovery: false };
    let mut randomness = StdRng::from_seed([3; 32]);
    let outbound = OutboundSa::new(spi, &keys(false), 0, &mut randomness);
    let inbound = InboundSa::new(spi, &keys(false), WindowSize::new(64).unwrap(), 0);
    tables.add_sa(spec, outbound, inbound).unwrap();
}

fn link_policy(if_id: u32, direction: Direction, range: &str, action: Action) -> PolicySpec {
    PolicySpec { if_id: IfId::new(if_id), priority: 5, ..policy(direction, range, range, action) }
}

/// Everything by the link is protected.
fn add_tunnel(tables: &mut Tables, if_id: u32, spis: [u32; 2]) {
    for (spi, from, to) in [(spis[0], ME, PEER), (spis[1], PEER, ME)] {
        add_link_sa(tables, if_id, spi, from, to);
    }
    for all in ["0.0.0.0/0", "::/0"] {
        for (direction, from, to) in
            [(Direction::Out, ME, PEER), (Direction::In, PEER, ME), (Direction::Fwd, PEER, ME)]
        {
            let action = Action::Protect(template(from, to));
            tables.add_policy(link_policy(if_id, direction, all, action)).unwrap();
        }
    }
}

/// A hub: the WAN in `main`, and two tenants with the same addresses, selectors and reqids, each
/// with a link of its own.
fn hub() -> Tables {
    let mut tables = plain_tables();
    for (name, tenant) in [("red", RED), ("blue", BLUE)] {
        assert_eq!(tables.add_vrf(name), Ok(tenant.vrf));
        let vlan = Vlan::new(LAN, VlanTag::customer(VlanId::new(tenant.vlan).unwrap()));
        let spec =
            PortSpec { vlan: Some(vlan), ..port(name, tenant.vrf, &["10.1.0.1/24", "fd01::1/64"]) };
        tables.add_port(tenant.port, spec).unwrap();
        for host in ["10.1.0.5", "fd01::5"] {
            tables.set_neighbour(tenant.port, ip(host), HOST_MAC).unwrap();
        }
        let name = format!("ipsec{}", tenant.if_id);
        let spec = PortSpec {
            if_id: IfId::new(tenant.if_id),
            ..port(&name, tenant.vrf, &["10.9.0.1/30", "fd09::1/64"])
        };
        tables.add_port(tenant.link, spec).unwrap();
        for remote in ["10.2.0.0/16", "fd02::/64"] {
            let by = RouteSpec::Connected { port: tenant.link };
            tables.set_route(tenant.vrf, prefix(remote), by).unwrap();
        }
        add_tunnel(&mut tables, tenant.if_id, tenant.spis);
    }
    tables
}

fn tagged(gateway: &mut Gateway, tenant: Tenant, packet: &[u8]) {
    let to = io::memory::MemoryOptions::ethernet("lan", LAN).mac;
    let mut bytes = frame(to, HOST_MAC, packet);
    let [high, low] = tenant.vlan.to_be_bytes();
    bytes.splice(12..12, [0x81, 0x00, high, low]);
    assert!(gateway.lan.push(&bytes));
    gateway.poll();
}

/// The VLAN and the packet of each frame that left by the LAN.
fn to_tenants(gateway: &mut Gateway) -> Vec<(u16, Vec<u8>)> {
    let frames = std::iter::from_fn(|| gateway.lan.pop());
    frames
        .map(|frame| {
            assert_eq!(ethernet::Header::parse(&frame).unwrap().ether_type, EtherType::VLAN);
            (ethernet::Tag::parse(&frame, 14).unwrap().vlan, frame[18..].to_vec())
        })
        .collect()
}

/// The peer sends a packet into a tenant's tunnel.
fn from_peer(gateway: &mut Gateway, tenant: Tenant, number: u32, packet: &[u8]) {
    let seed = StdRng::from_seed([9; 32]);
    let peer = OutboundSa::new(Spi(tenant.spis[1]), &keys(false), number, &mut { seed });
    gateway.receive(WAN, &seal(&peer, PEER, ME, packet));
}

fn counts(gateway: &Gateway, port: PortId) -> [(u64, u64); 2] {
    let tables = gateway.publisher.current();
    let counters = tables.port_counters(port).unwrap();
    [counters.received(), counters.sent()]
}

const INNER: [(&str, &str); 2] = [("10.1.0.5", "10.2.0.7"), ("fd01::5", "fd02::7")];

#[test]
fn each_link_has_its_own_tunnel_by_the_same_selectors() {
    for (host, remote) in INNER {
        let mut gateway = Gateway::new(hub());
        for (number, tenant) in [RED, BLUE, RED].into_iter().enumerate() {
            let out = udp(host, remote, (1, 2), 100 + number);
            tagged(&mut gateway, tenant, &out);
            let (mac, sent) = gateway.sent_one(WAN);
            assert_eq!(mac, PEER_MAC, "{:?}", gateway.drops());
            let opened = open(&peer_inbound(tenant.spis[0], false), &sent);
            assert_eq!(opened.len(), out.len());

            let back = udp(remote, host, (2, 1), 200 + number);
            from_peer(&mut gateway, tenant, number as u32, &back);
            let came = to_tenants(&mut gateway);
            assert_eq!(came.len(), 1, "{:?}", gateway.drops());
            assert_eq!((came[0].0, came[0].1.len()), (tenant.vlan, back.len()));
        }
        gateway.assert_nothing_lost();
        for (tenant, packets) in [(RED, 2), (BLUE, 1)] {
            let [received, sent] = counts(&gateway, tenant.link);
            assert_eq!((received.0, sent.0), (packets, packets));
        }
    }
}

/// The gateway's own address on the link answers, through the tunnel.
#[test]
fn the_links_own_address_answers() {
    let mut gateway = Gateway::new(hub());
    for (remote, own) in [("10.9.0.2", "10.9.0.1"), ("fd09::2", "fd09::1")] {
        let number = 10 + u32::from(own.contains(':'));
        from_peer(&mut gateway, BLUE, number, &echo(remote, own, 8));
        let (_, sent) = gateway.sent_one(WAN);
        let opened = open(&peer_inbound(BLUE.spis[0], false), &sent);
        let headers = wire::headers::parse(&opened).unwrap();
        assert_eq!(headers.addresses.source(), ip(own));
    }
    gateway.assert_nothing_lost();
}

/// What the peer may send that the gateway itself answers: to its own address, too old, and to a
/// station that does not answer.
fn asking(remote: &str, [own, silent, beyond]: [&str; 3]) -> [(&'static str, Vec<u8>); 4] {
    let mut aged = udp(remote, beyond, (1, 2), 10);
    if remote.contains(':') {
        aged[7] = 1;
    } else {
        aged[8] = 1;
        wire::ipv4::fill_checksum(&mut aged);
    }
    [
        ("echo request", echo(remote, own, 8)),
        ("closed port", udp(remote, own, (1, 2), 10)),
        ("no hop left", aged),
        ("silent station", udp(remote, silent, (1, 2), 10)),
    ]
}

/// What the gateway sends about what a link brought quotes it, and so stays inside whatever the
/// routes say.
#[test]
fn what_is_said_of_a_links_packets_leaves_by_no_port_in_clear() {
    let of = [
        ("10.2.0.9", ["10.9.0.1", "10.1.0.77", "10.1.0.5"], "10.2.0.0/16"),
        ("fd02::9", ["fd09::1", "fd01::77", "fd01::5"], "fd02::/64"),
    ];
    for (remote, to, network) in of {
        for (what, packet) in asking(remote, to) {
            for has_route in [true, false] {
                let mut tables = hub();
                if !has_route {
                    tables.remove_route(RED.vrf, prefix(network)).unwrap();
                    let by = RouteSpec::Connected { port: RED.port };
                    tables.set_route(RED.vrf, prefix(network), by).unwrap();
                    tables.set_neighbour(RED.port, ip(remote), HOST_MAC).unwrap();
                }
                let mut gateway = Gateway::new(tables);
                from_peer(&mut gateway, RED, 0, &packet);
                for _ in 0..5 {
                    gateway.wait(core::time::Duration::from_secs(1));
                }
                let clear = to_tenants(&mut gateway).into_iter();
                let to_remote = clear.filter(|(_, packet)| {
                    let parsed = wire::headers::parse(packet);
                    parsed.is_ok_and(|headers| headers.addresses.destination() == ip(remote))
                });
                assert_eq!(to_remote.count(), 0, "{what} of {remote}");
                let by_tunnel = gateway.sent(WAN).len();
                let refused = gateway.dropped(DropReason::PolicyNoMatch);
                let expected = if has_route { (1, 0) } else { (0, 1) };
                assert_eq!((by_tunnel, refused), expected, "{what} of {remote}");
            }
        }
    }
}

/// What leaves by a link is encrypted or dropped, and its policies are for nothing else.
#[test]
fn nothing_leaves_a_link_in_clear() {
    let mut gateway = Gateway::new(hub());
    gateway.change(|tables| {
        let all: Vec<_> = tables
            .spd(tables::Scope::Link(IfId::new(7).unwrap()))
            .unwrap()
            .policies(Direction::Out)
            .map(|policy| policy.index)
            .collect();
        all.into_iter().for_each(|index| _ = tables.remove_policy(index).unwrap());
    });
    let out = udp("10.1.0.5", "10.2.0.7", (1, 2), 10);
    tagged(&mut gateway, RED, &out);
    assert!(gateway.sent(WAN).is_empty());
    assert_eq!(gateway.dropped(DropReason::PolicyNoMatch), 1, "{:?}", gateway.drops());
    // One that lets pass in clear protects nothing.
    gateway.change(|tables| {
        let allow = link_policy(7, Direction::Out, "0.0.0.0/0", Action::Bypass);
        tables.add_policy(allow).unwrap();
    });
    tagged(&mut gateway, RED, &out);
    assert!(gateway.sent(WAN).is_empty());
    assert_eq!(gateway.dropped(DropReason::PolicyNoMatch), 2, "{:?}", gateway.drops());
    // Another link's are not touched.
    tagged(&mut gateway, BLUE, &out);
    assert_eq!(gateway.sent(WAN).len(), 1);
    // What leaves by no link meets no policy of one: `main` and the tenants are plain routers.
    gateway.receive(LAN, &udp("192.168.13.5", "10.2.0.7", (1, 2), 10));
    assert_eq!(gateway.sent_one(WAN).1[9], 17, "in clear");
    assert_eq!(gateway.publisher.current().vrf(RED.vrf).unwrap().ipsec, Ipsec::Auto);
}

/// What was decrypted must match a policy of the link that it enters by.
#[test]
fn what_enters_by_a_link_meets_its_policies() {
    let mut gateway = Gateway::new(hub());
    let back = udp("10.2.0.7", "10.1.0.5", (2, 1), 20);
    from_peer(&mut gateway, BLUE, 0, &back);
    assert_eq!(to_tenants(&mut gateway).len(), 1);
    gateway.change(|tables| {
        let policies = tables.spd(tables::Scope::Link(IfId::new(8).unwrap())).unwrap();
        let all: Vec<_> = policies.policies(Direction::Fwd).map(|policy| policy.index).collect();
        all.into_iter().for_each(|index| _ = tables.remove_policy(index).unwrap());
        let other = Action::Protect(template("192.168.11.77", ME));
        tables.add_policy(link_policy(8, Direction::Fwd, "0.0.0.0/0", other)).unwrap();
    });
    from_peer(&mut gateway, BLUE, 1, &back);
    assert!(to_tenants(&mut gateway).is_empty());
    assert_eq!(gateway.dropped(DropReason::PolicyWrongSelector), 1, "{:?}", gateway.drops());
}

/// In clear nobody reaches what is behind a link's tenant, nor pretends to be behind the link.
#[test]
fn a_link_counts_as_a_protected_port() {
    let mut gateway = Gateway::new(hub());
    let side = |port| gateway.publisher.current().port(port).unwrap().side;
    assert_eq!((side(RED.link), side(WAN)), (Side::Protected, Side::Unprotected));
    // A source of the gateway's own, out of the tunnel.
    from_peer(&mut gateway, RED, 0, &udp("10.1.0.1", "10.1.0.5", (2, 1), 20));
    assert_eq!(gateway.dropped(DropReason::SourceOwn), 1, "{:?}", gateway.drops());
    gateway.change(|tables| {
        let spec = tables.port(RED.link).unwrap().spec.clone();
        let spec = PortSpec { reverse_path: ReversePath::Strict, ..spec };
        tables.update_port(RED.link, spec).unwrap();
        set_side(tables, RED.port, Side::Unprotected);
    });
    // From where no route leads back by the link.
    from_peer(&mut gateway, RED, 1, &udp("172.16.0.1", "10.1.0.5", (2, 1), 20));
    assert_eq!(gateway.dropped(DropReason::ReversePath), 1, "{:?}", gateway.drops());
    // By an unprotected port, from an address that is behind the link.
    tagged(&mut gateway, RED, &udp("10.2.0.7", "10.2.0.8", (1, 2), 10));
    assert_eq!(gateway.dropped(DropReason::SourceProtected), 1, "{:?}", gateway.drops());
}

#[test]
fn a_link_that_is_down_or_gone_passes_nothing() {
    let mut gateway = Gateway::new(hub());
    let up = |tables: &mut Tables, up| {
        let spec = tables.port(RED.link).unwrap().spec.clone();
        tables.update_port(RED.link, PortSpec { up, ..spec }).unwrap();
    };
    let out = udp("10.1.0.5", "10.2.0.7", (1, 2), 10);
    let back = udp("10.2.0.7", "10.1.0.5", (2, 1), 20);
    for (number, is_up) in [true, false, true].into_iter().enumerate() {
        gateway.change(|tables| up(tables, is_up));
        tagged(&mut gateway, RED, &out);
        assert_eq!(gateway.sent(WAN).len(), usize::from(is_up), "{:?}", gateway.drops());
        from_peer(&mut gateway, RED, number as u32, &back);
        assert_eq!(to_tenants(&mut gateway).len(), usize::from(is_up), "{:?}", gateway.drops());
    }
    assert_eq!(gateway.dropped(DropReason::XfrmLinkDown), 1);
    assert_eq!(gateway.dropped(DropReason::PortDown), 1);

    gateway.change(|tables| tables.remove_port(RED.link).unwrap());
    from_peer(&mut gateway, RED, 7, &back);
    assert_eq!(gateway.dropped(DropReason::XfrmLinkDown), 2);
    tagged(&mut gateway, RED, &out);
    assert!(gateway.sent(WAN).is_empty());
    assert_eq!(gateway.dropped(DropReason::NoRoute), 1, "{:?}", gateway.drops());
}

/// What its SAs decrypt is in the VRF that the link is in now.
#[test]
fn a_link_moves_to_another_vrf() {
    let mut gateway = Gateway::new(hub());
    let back = udp("10.2.0.7", "10.1.0.5", (2, 1), 20);
    from_peer(&mut gateway, RED, 0, &back);
    assert_eq!(to_tenants(&mut gateway)[0].0, RED.vlan);
    gateway.change(|tables| {
        let spec = tables.port(RED.link).unwrap().spec.clone();
        let spec = PortSpec { vrf: BLUE.vrf, addresses: Vec::new(), ..spec };
        tables.update_port(RED.link, spec).unwrap();
    });
    from_peer(&mut gateway, RED, 1, &back);
    assert_eq!(to_tenants(&mut gateway)[0].0, BLUE.vlan);
}

/// The MTU of the link holds where it is less than what the tunnel takes.
#[test]
fn a_link_has_an_mtu() {
    let mut gateway = Gateway::new(hub());
    let whole = udp("10.1.0.5", "10.2.0.7", (1, 2), 1250);
    tagged(&mut gateway, RED, &whole);
    assert_eq!(gateway.sent(WAN).len(), 1);
    gateway.change(|tables| {
        let spec = tables.port(RED.link).unwrap().spec.clone();
        tables.update_port(RED.link, PortSpec { mtu: 1280, ..spec }).unwrap();
    });
    tagged(&mut gateway, RED, &whole);
    assert_eq!(gateway.sent(WAN).len(), 1, "1278 bytes fit");
    tagged(&mut gateway, RED, &udp("10.1.0.5", "10.2.0.7", (1, 2), 1260));
    let pieces = gateway.sent(WAN).len();
    assert_eq!(pieces, 2, "{:?}", gateway.drops());
}

/// Filters of a link see what is inside.
#[test]
fn filters_of_a_link_see_what_is_inside() {
    let mut gateway = Gateway::new(hub());
    let out = udp("10.1.0.5", "10.2.0.7", (1, 2), 10);
    let back = udp("10.2.0.7", "10.1.0.5", (2, 1), 20);
    let drop = |hook| {
        let selector = policy(Direction::Out, "0.0.0.0/0", "0.0.0.0/0", Action::Bypass).selector;
        let mark = MarkBits::default();
        let action = FilterAction {
            verdict: FilterVerdict::Drop,
            reject_with: RejectWith::AdminProhibited,
            set_mark: None,
            log: false,
        };
        FilterSpec {
            place: FilterPlace { target: FilterTarget::Port(RED.link), hook },
            preference: 1,
            selects: FilterMatch { v4: Some(selector), v6: None, mark },
            action,
        }
    };
    tagged(&mut gateway, RED, &out);
    from_peer(&mut gateway, RED, 0, &back);
    assert_eq!((gateway.sent(WAN).len(), to_tenants(&mut gateway).len()), (1, 1));
    gateway.change(|tables| {
        FilterHook::ALL.into_iter().for_each(|hook| tables.set_filter_rule(drop(hook)).unwrap());
    });
    tagged(&mut gateway, RED, &out);
    from_peer(&mut gateway, RED, 1, &back);
    assert_eq!((gateway.sent(WAN).len(), to_tenants(&mut gateway).len()), (0, 0));
    assert_eq!(gateway.dropped(DropReason::FilterEgress), 1, "{:?}", gateway.drops());
    assert_eq!(gateway.dropped(DropReason::FilterIngress), 1, "{:?}", gateway.drops());
    tagged(&mut gateway, BLUE, &out);
    assert_eq!(gateway.sent(WAN).len(), 1);
}

/// Outer packets do not go into a tunnel by a link.
#[test]
fn outer_packets_do_not_leave_by_a_link() {
    let mut tables = hub();
    let spec = PortSpec { if_id: IfId::new(9), ..port("ipsec9", VrfId::MAIN, &[]) };
    tables.add_port(PortId(1202), spec).unwrap();
    add_tunnel(&mut tables, 9, [0x3001, 0x3002]);
    let by = RouteSpec::Connected { port: PortId(1202) };
    tables.set_route(VrfId::MAIN, prefix("192.168.11.1/32"), by).unwrap();
    let mut gateway = Gateway::new(tables);
    tagged(&mut gateway, RED, &udp("10.1.0.5", "10.2.0.7", (1, 2), 10));
    assert!(gateway.sent(WAN).is_empty());
    assert_eq!(gateway.dropped(DropReason::NoRoute), 1, "{:?}", gateway.drops());
}

#[test]
fn an_if_id_has_one_link() {
    let mut tables = hub();
    let spec = PortSpec { if_id: IfId::new(7), ..port("other", VrfId::MAIN, &[]) };
    let refused = tables.add_port(PortId(1300), spec.clone()).unwrap_err();
    assert!(matches!(refused, TableError::IfIdTaken { .. }), "{refused}");
    tables.add_port(PortId(1300), PortSpec { if_id: IfId::new(70), ..spec.clone() }).unwrap();
    let refused = tables.update_port(PortId(1300), spec).unwrap_err();
    assert!(matches!(refused, TableError::IfIdStays(_)), "{refused}");
    let all = |tables: &Tables| tables.spds().count();
    assert_eq!(all(&tables), 5);
}

/// The VRF of outer packets stays while a link's policy names it.
#[test]
fn templates_name_the_outer_vrf() {
    let mut tables = hub();
    let wan = tables.add_vrf("wan").unwrap();
    let by = |vrf| Action::Protect(Template { vrf, ..template(ME, PEER) });
    let spec = link_policy(7, Direction::Out, "10.77.0.0/16", by(Some(wan)));
    let index = tables.add_policy(spec).unwrap();
    let error = tables.remove_vrf(wan).unwrap_err().to_string();
    assert!(error.contains("tunnels"), "{error}");
    tables.remove_policy(index).unwrap();
    tables.remove_vrf(wan).unwrap();
}

/// Part of a datagram.
fn fragment(whole: &[u8], start: usize, end: usize) -> Vec<u8> {
    let mut part = whole[..20].to_vec();
    part.extend_from_slice(&whole[20 + start..20 + end]);
    let length = part.len() as u16;
    part[2..4].copy_from_slice(&length.to_be_bytes());
    let more = if 20 + end < whole.len() { 0x2000 } else { 0 };
    part[6..8].copy_from_slice(&(more | (start / 8) as u16).to_be_bytes());
    wire::ipv4::fill_checksum(&mut part);
    part
}

/// The first policy of a link that selects by ports has later fragments follow their first, although
/// neither the VRF nor a policy before it reads ports.
#[test]
fn later_fragments_meet_the_policy_of_their_first() {
    let mut gateway = Gateway::new(hub());
    gateway.change(|tables| {
        let spec = link_policy(7, Direction::Out, "10.0.0.0/8", Action::Discard);
        let upper = UpperSelector::Ports {
            source: PortRange::ALL,
            destination: PortRange::new(99, 99).unwrap(),
        };
        let selector = Selector { protocol: Some(Protocol::UDP), upper, ..spec.selector };
        tables.add_policy(PolicySpec { priority: 0, selector, ..spec }).unwrap();
    });
    for (to, sent) in [(99, 0), (98, 2)] {
        let mut whole = udp("10.1.0.5", "10.2.0.7", (5000, to), 72);
        whole[4..6].copy_from_slice(&to.to_be_bytes());
        for (start, end) in [(0, 40), (40, 80)] {
            tagged(&mut gateway, RED, &fragment(&whole, start, end));
        }
        assert_eq!(gateway.sent(WAN).len(), sent, "port {to}: {:?}", gateway.drops());
    }
    assert_eq!(gateway.dropped(DropReason::PolicyDiscard), 2);
}

fn rule(entry: RuleEntry, action: RuleAction) -> Rule {
    let selects = RuleSelector {
        source: prefix("0.0.0.0/0"),
        destination: prefix("0.0.0.0/0"),
        entry: Some(entry),
        sent_in: None,
        mark: MarkBits::default(),
        protocol: None,
        source_ports: None,
        destination_ports: None,
        dscp: None,
    };
    Rule { priority: 100, selects, action }
}

/// Rules may lead to the link of another VRF. The packet meets that link's policies and filters.
#[test]
fn rules_lead_to_links_of_other_vrfs() {
    let mut gateway = Gateway::new(hub());
    gateway.change(|tables| {
        let table = tables.vrf(RED.vrf).unwrap().table;
        let to_red = RuleAction::Table { table, suppress: None };
        tables.set_rule(0, rule(RuleEntry::Port(BLUE.port), to_red)).unwrap();
    });
    let out = udp("10.1.0.5", "10.2.0.7", (1, 2), 10);
    let open_by = |sent: &[u8], tenant: Tenant| {
        assert_eq!(sent[20..24], tenant.spis[0].to_be_bytes());
    };
    tagged(&mut gateway, BLUE, &out);
    open_by(&gateway.sent_one(WAN).1, RED);
    assert_eq!(counts(&gateway, RED.link)[1].0, 1);
    // That link's policies change under the flow.
    gateway.change(|tables| {
        let host = link_policy(7, Direction::Out, "10.0.0.0/8", Action::Discard);
        tables.add_policy(PolicySpec { priority: 0, ..host }).unwrap();
    });
    tagged(&mut gateway, BLUE, &out);
    assert!(gateway.sent(WAN).is_empty());
    assert_eq!(gateway.dropped(DropReason::PolicyDiscard), 1, "{:?}", gateway.drops());
    // Without the rule the flow is its own VRF's again.
    gateway.change(|tables| tables.set_rules([]).unwrap());
    tagged(&mut gateway, BLUE, &out);
    open_by(&gateway.sent_one(WAN).1, BLUE);
}

/// For rules, what was decrypted comes by its link.
#[test]
fn rules_name_the_link_that_a_packet_came_by() {
    let mut gateway = Gateway::new(hub());
    let back = udp("10.2.0.7", "10.1.0.5", (2, 1), 20);
    for (number, tenant) in [RED, BLUE].into_iter().enumerate() {
        from_peer(&mut gateway, tenant, number as u32, &back);
        assert_eq!(to_tenants(&mut gateway).len(), 1);
    }
    let rule = rule(RuleEntry::Port(RED.link), RuleAction::Blackhole);
    gateway.change(|tables| tables.set_rule(0, rule).unwrap());
    from_peer(&mut gateway, RED, 2, &back);
    assert!(to_tenants(&mut gateway).is_empty());
    assert_eq!(gateway.dropped(DropReason::RouteBlackhole), 1, "{:?}", gateway.drops());
    from_peer(&mut gateway, BLUE, 3, &back);
    assert_eq!(to_tenants(&mut gateway).len(), 1);
}

#[test]
fn a_next_hop_on_a_link_says_no_more_than_the_link() {
    let mut gateway = Gateway::new(hub());
    gateway.change(|tables| {
        for (to, via) in [("10.2.0.0/16", "10.9.0.2"), ("fd02::/64", "fe80::2")] {
            let by = RouteSpec::Via { port: RED.link, address: ip(via) };
            tables.set_route(RED.vrf, prefix(to), by).unwrap();
        }
    });
    for (from, to) in [("10.1.0.5", "10.2.0.5"), ("fd01::5", "fd02::5")] {
        tagged(&mut gateway, RED, &udp(from, to, (1000, 2000), 40));
        assert_eq!(gateway.sent(WAN).len(), 1, "{to}");
    }
}

/// The steps of a decision, a line each.
struct Told(Vec<String>);

impl path::Trace for Told {
    fn step<'a>(&mut self, step: impl FnOnce() -> path::Step<'a>) {
        self.0.push(step().to_string());
    }
}

/// What is told of policies to a packet of the red tenant.
fn told(tables: &Tables, origin: Origin) -> Vec<String> {
    let v4 = |text: &str| text.parse().unwrap();
    let key = FlowKey {
        vrf: RED.vrf,
        origin,
        addresses: Addresses::V4 { source: v4("10.1.0.5"), destination: v4("10.2.0.5") },
        protocol: Protocol::UDP,
        fragment: FragmentClass::Whole,
        upper: Upper::Ports { source: 1000, destination: 2000 },
        fields: PacketFields::NONE,
    };
    let mut told = Told(Vec::new());
    path::decide(&key, tables, None, &mut told);
    let is_about = |line: &String| line.contains("polic") || line.starts_with("dir ");
    told.0.into_iter().filter(is_about).map(|line| line.chars().take(70).collect()).collect()
}

#[test]
fn whose_policies_are_asked_and_why_none_is_told() {
    let mut tables = hub();
    let asked =
        ["leaves by ipsec7; the policies with if_id 0x7 are asked", "dir out: number 1, index "];
    let begins = |told: &[String], begins: &[&str]| {
        assert_eq!(told.len(), begins.len(), "{told:?}");
        assert!(told.iter().zip(begins).all(|(line, begin)| line.starts_with(begin)), "{told:?}");
    };
    let by_port = told(&tables, Origin::Port(RED.port));
    begins(&by_port[..1], &["VRF red has no policies of its own; no inbound policy asked"]);
    begins(&told(&tables, Origin::Host)[..], &asked);
    assert!(by_port[1].starts_with(asked[0]) && by_port[2].starts_with(asked[1]), "{by_port:?}");
    // Once it has had policies, nothing leaves an unprotected port for the link.
    tables.set_ipsec(RED.vrf, Ipsec::Required).unwrap();
    begins(
        &told(&tables, Origin::Port(RED.port))[..1],
        &["VRF red is an IPsec gateway and has no policies; nothing crosses"],
    );
    // Nor into another VRF that is closed.
    let mut tables = hub();
    tables.set_ipsec(BLUE.vrf, Ipsec::Required).unwrap();
    tables.set_route(RED.vrf, prefix("10.2.0.0/16"), RouteSpec::Vrf { vrf: BLUE.vrf }).unwrap();
    tables
        .set_route(BLUE.vrf, prefix("10.2.0.0/16"), RouteSpec::Connected { port: BLUE.port })
        .unwrap();
    begins(
        &told(&tables, Origin::Port(RED.port))[..2],
        &[
            "the VRF has no policies; IPsec does not touch it",
            "VRF blue is an IPsec gateway and has no policies; nothing crosses",
        ],
    );
}
