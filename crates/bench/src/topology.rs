//! The gateway of the benches: two ports, 256 routes that lead from one to the other, and a tunnel
//! if one is wanted.

use std::net::{IpAddr, Ipv4Addr};

use esp::{Algorithm, InboundSa, KeyMaterial, OutboundSa, WindowSize};
use io::memory::MemoryOptions;
use rand::SeedableRng;
use rand::rngs::StdRng;
use tables::{
    Action, Direction, FieldsSelector, PolicySpec, PortSpec, RouteSpec, SaIdentity, SaSpec,
    Selector, Side, Tables, Template, UpperSelector,
};
use wire::{IpPrefix, IpRange, Mac, PortId, Spi, VrfId};

/// Where frames come in.
pub(crate) const IN: PortId = PortId(0);
/// Where they leave.
pub(crate) const OUT: PortId = PortId(1);
/// The station at the other end of either port.
pub(crate) const STATION: Mac = Mac([2, 0xbb, 0, 0, 0, 1]);
/// The gateway's address on [`IN`]: where tunnels from the peer end.
pub(crate) const OWN_IN: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
/// The gateway's address on [`OUT`]: where tunnels to the peer begin.
pub(crate) const OWN_OUT: Ipv4Addr = Ipv4Addr::new(10, 0, 1, 1);
/// The peer behind [`IN`], whose tunnels end here.
pub(crate) const PEER_IN: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
/// The next hop behind [`OUT`], and the peer of tunnels that begin here.
pub(crate) const PEER_OUT: Ipv4Addr = Ipv4Addr::new(10, 0, 1, 2);
const PEER_OUT_V6: &str = "fd01::2";

/// The Ethernet address of a port.
pub(crate) fn mac(id: PortId) -> Mac {
    MemoryOptions::ethernet("", id).mac
}

/// [`IN`] on the protected side and [`OUT`], routes and neighbours of both families, and neither policies nor SAs. Counters for
/// `workers`.
pub(crate) fn tables(workers: usize) -> anyhow::Result<Tables> {
    let mut tables = Tables::new(workers, 1);
    for (id, name, address, v6_address) in
        [(IN, "in", "10.0.0.1/24", "fd00::1/64"), (OUT, "out", "10.0.1.1/24", "fd01::1/64")]
    {
        let spec = PortSpec {
            addresses: vec![address.parse()?, v6_address.parse()?],
            side: if id == IN { Side::Protected } else { Side::Unset },
            ..PortSpec::new(name, mac(id))
        };
        tables.add_port(id, spec)?;
    }
    for next_hop in [PEER_OUT.into(), PEER_OUT_V6.parse()?] {
        tables.set_neighbour(OUT, next_hop, STATION)?;
        // Destinations are spread over 256 prefixes, so that the FIB is not one entry.
        for i in 0..=255_u8 {
            let prefix: IpPrefix = if next_hop.is_ipv6() {
                format!("2001:db8:{i:x}::/48")
            } else {
                format!("198.18.{i}.0/24")
            }
            .parse()?;
            tables.set_route(
                VrfId::MAIN,
                prefix,
                RouteSpec::Via { port: OUT, address: next_hop },
            )?;
        }
    }
    Ok(tables)
}

/// A policy that selects every flow of the benches.
pub(crate) fn policy_for_all(
    direction: Direction,
    v6: bool,
    priority: u32,
    action: Action,
) -> anyhow::Result<PolicySpec> {
    let (source, destination) = match v6 {
        false => ("10.128.0.0/9", "198.18.0.0/15"),
        true => ("fd00:0:0:1::/64", "2001:db8::/32"),
    };
    let range = |text: &str| anyhow::Ok(text.parse::<IpPrefix>()?.range());
    let selector = Selector {
        source: range(source)?,
        destination: range(destination)?,
        protocol: None,
        upper: UpperSelector::Any,
        fields: FieldsSelector::ANY,
    };
    Ok(PolicySpec { vrf: VrfId::MAIN, direction, if_id: None, priority, selector, action })
}

/// Adds `count` policies that select no flow of the benches: between networks that none of it comes
/// from or goes to, each its own. Returns their indexes.
pub(crate) fn add_unmatched_policies(
    tables: &mut Tables,
    direction: Direction,
    v6: bool,
    count: usize,
    action: Action,
) -> anyhow::Result<Vec<u32>> {
    (0..count as u32)
        .map(|number| {
            let selector = Selector {
                source: network(v6, 20, number),
                destination: network(v6, 30, number),
                protocol: None,
                upper: UpperSelector::Any,
                fields: FieldsSelector::ANY,
            };
            let priority = 1;
            Ok(tables.add_policy(PolicySpec {
                vrf: VrfId::MAIN,
                direction,
                if_id: None,
                priority,
                selector,
                action,
            })?)
        })
        .collect()
}

/// Network `number` of 2^18 that begin with `first`: a /26, or a /64.
fn network(v6: bool, first: u8, number: u32) -> IpRange {
    let (address, length) = if v6 {
        let address = u128::from(first) << 120 | 0x00fd << 112 | u128::from(number) << 64;
        (IpAddr::V6(address.into()), 64)
    } else {
        let address = u32::from(first) << 24 | number << 6;
        (IpAddr::V4(address.into()), 26)
    };
    // Neither is longer than its family's addresses.
    IpPrefix::new(address, length).map_or(IpRange::ALL_V4, |prefix| prefix.range())
}

/// The keys of every tunnel here: nobody is to be kept out.
pub(crate) fn keys(algorithm: Algorithm) -> anyhow::Result<KeyMaterial> {
    let bytes = [0x5a; 64];
    let integrity = algorithm.integrity().map_or(0, |integrity| integrity.usual_key_length());
    Ok(KeyMaterial::new(
        algorithm,
        &bytes[..algorithm.encryption_key_length()],
        &bytes[..integrity],
    )?)
}

/// One way of a tunnel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tunnel {
    /// Where its packets come from.
    pub source: Ipv4Addr,
    /// Where they go to.
    pub destination: Ipv4Addr,
    /// Links policies and SAs.
    pub reqid: u32,
    /// How its packets are protected.
    pub algorithm: Algorithm,
}

impl Tunnel {
    /// From the gateway to the peer behind [`OUT`].
    pub(crate) fn out(algorithm: Algorithm) -> Self {
        Self { source: OWN_OUT, destination: PEER_OUT, reqid: 1, algorithm }
    }

    /// From the peer behind [`IN`] to the gateway.
    pub(crate) fn inward(algorithm: Algorithm) -> Self {
        Self { source: PEER_IN, destination: OWN_IN, reqid: 2, algorithm }
    }

    /// What a policy says to have packets go this way.
    pub(crate) fn protect(&self) -> Action {
        Action::Protect(Template {
            vrf: None,
            source: Some(self.source.into()),
            destination: self.destination.into(),
            reqid: self.reqid,
            spi: None,
        })
    }

    /// Adds an SA for this way.
    pub(crate) fn add_sa(&self, tables: &mut Tables, spi: Spi) -> anyhow::Result<()> {
        let identity = SaIdentity {
            vrf: VrfId::MAIN,
            inner: VrfId::MAIN,
            if_id: None,
            source: self.source.into(),
            destination: self.destination.into(),
            reqid: self.reqid,
        };
        let spec = SaSpec { identity, spi, no_ecn: false, no_pmtu_discovery: false };
        let keys = keys(self.algorithm)?;
        let inbound = InboundSa::new(spi, &keys, WindowSize::new(1024)?, 0);
        tables.add_sa(spec, self.sealer(spi)?, inbound)?;
        Ok(())
    }

    /// The sending half of such an SA.
    pub(crate) fn sealer(&self, spi: Spi) -> anyhow::Result<OutboundSa> {
        let mut randomness = StdRng::from_seed([3; 32]);
        Ok(OutboundSa::new(spi, &keys(self.algorithm)?, 0, &mut randomness))
    }
}
