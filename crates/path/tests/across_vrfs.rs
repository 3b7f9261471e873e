//! Tunnels whose packets outside and inside are in different VRFs: one WAN for all tenants.

mod fixture;

use esp::{InboundSa, OutboundSa, WindowSize};
use fixture::*;
use packet::DropReason;
use rand::SeedableRng;
use rand::rngs::StdRng;
use tables::{
    Action, Direction, PolicySpec, PortSpec, SaIdentity, SaSpec, Side, Tables, Template, Vlan,
    VlanId, VlanTag,
};
use wire::ethernet::{self, EtherType};
use wire::{Mac, PortId, Spi, VrfId};

const ME: &str = "192.168.11.2";
const PEER: &str = "192.168.11.1";

/// A tenant: its VRF, its VLAN on the LAN, and the SPIs of its tunnel. Nothing else differs.
#[derive(Clone, Copy)]
struct Tenant {
    vrf: VrfId,
    port: PortId,
    vlan: u16,
    spis: [u32; 2],
}

const RED: Tenant = Tenant { vrf: VrfId(1), port: PortId(1100), vlan: 10, spis: [0x1001, 0x1002] };
const BLUE: Tenant = Tenant { vrf: VrfId(2), port: PortId(1101), vlan: 20, spis: [0x2001, 0x2002] };

/// A hub: the WAN in `main`, and two tenants with the same addresses, policies and reqids.
fn hub() -> Tables {
    let mut tables = plain_tables();
    for (name, tenant) in [("red", RED), ("blue", BLUE)] {
        assert_eq!(tables.add_vrf(name), Ok(tenant.vrf));
        let spec = PortSpec {
            vrf: tenant.vrf,
            addresses: vec![prefix("10.1.0.1/24"), prefix("fd01::1/64")],
            vlan: Some(Vlan::new(LAN, VlanTag::customer(VlanId::new(tenant.vlan).unwrap()))),
            ..PortSpec::new(name, Mac::default())
        };
        tables.add_port(tenant.port, spec).unwrap();
        for host in ["10.1.0.5", "fd01::5"] {
            tables.set_neighbour(tenant.port, ip(host), HOST_MAC).unwrap();
        }
        for (spi, from, to) in [(tenant.spis[0], ME, PEER), (tenant.spis[1], PEER, ME)] {
            let (vrf, inner) = (VrfId::MAIN, tenant.vrf);
            let identity = SaIdentity {
                vrf,
                inner,
                if_id: None,
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
        for (here, there) in [("10.1.0.0/24", "10.2.0.0/24"), ("fd01::/64", "fd02::/64")] {
            let by = |from, to| {
                Action::Protect(Template { vrf: Some(VrfId::MAIN), ..template(from, to) })
            };
            for (direction, source, destination, action) in [
                (Direction::Out, here, there, by(ME, PEER)),
                (Direction::In, there, here, by(PEER, ME)),
            ] {
                let spec = policy(direction, source, destination, action);
                tables.add_policy(PolicySpec { vrf: tenant.vrf, ..spec }).unwrap();
            }
        }
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

const INNER: [(&str, &str); 2] = [("10.1.0.5", "10.2.0.7"), ("fd01::5", "fd02::7")];

#[test]
fn each_tenant_has_its_own_tunnel_by_one_wan() {
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
            let peer = OutboundSa::new(
                Spi(tenant.spis[1]),
                &keys(false),
                number as u32,
                &mut StdRng::from_seed([9; 32]),
            );
            gateway.receive(WAN, &seal(&peer, PEER, ME, &back));
            let came = to_tenants(&mut gateway);
            assert_eq!(came.len(), 1, "{:?}", gateway.drops());
            assert_eq!((came[0].0, came[0].1.len()), (tenant.vlan, back.len()));
        }
        gateway.assert_nothing_lost();
    }
}

/// The WAN is unprotected for what ends in another VRF, too; a tenant's clear packets do not get
/// there, and nobody reaches a tenant in clear.
#[test]
fn nothing_crosses_in_clear() {
    let mut gateway = Gateway::new(hub());
    let tables = gateway.publisher.current();
    assert_eq!(tables.port(WAN).unwrap().side, Side::Unprotected);
    // Not what the tenant's policies are about.
    tagged(&mut gateway, RED, &udp("10.1.0.5", "8.8.8.8", (1, 2), 10));
    assert!(gateway.sent(WAN).is_empty());
    // Of `main`, which is a plain router.
    gateway.receive(WAN, &udp("10.2.0.7", "10.1.0.5", (1, 2), 10));
    assert_eq!(gateway.sent(WAN).len(), 1);
    assert!(to_tenants(&mut gateway).is_empty());
}

/// What an SA of another tenant decrypts meets that tenant's policies.
#[test]
fn an_sa_is_its_tenants_alone() {
    let mut gateway = Gateway::new(hub());
    gateway.change(|tables| {
        let inbound = tables.vrf(BLUE.vrf).unwrap().spd.policies(Direction::In);
        let inbound: Vec<_> = inbound.map(|policy| policy.index).collect();
        inbound.into_iter().for_each(|index| _ = tables.remove_policy(index).unwrap());
    });
    let back = udp("10.2.0.7", "10.1.0.5", (2, 1), 20);
    let peer = peer_outbound(BLUE.spis[1], false);
    gateway.receive(WAN, &seal(&peer, PEER, ME, &back));
    assert!(to_tenants(&mut gateway).is_empty());
    assert_eq!(gateway.dropped(DropReason::PolicyWrongSelector), 1, "{:?}", gateway.drops());
}

/// A VRF stays while tunnels of others are in it.
#[test]
fn a_vrf_in_which_tunnels_are_is_in_use() {
    let mut tables = hub();
    let wan = tables.add_vrf("wan").unwrap();
    let index = tables
        .add_policy(PolicySpec {
            vrf: RED.vrf,
            ..policy(
                Direction::Out,
                "10.1.0.0/24",
                "10.9.0.0/24",
                Action::Protect(Template { vrf: Some(wan), ..template(ME, PEER) }),
            )
        })
        .unwrap();
    let error = tables.remove_vrf(wan).unwrap_err().to_string();
    assert!(error.contains("tunnels of another VRF's policies"), "{error}");
    tables.remove_policy(index).unwrap();
    tables.remove_vrf(wan).unwrap();
}
