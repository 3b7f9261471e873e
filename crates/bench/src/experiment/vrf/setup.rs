//! The gateways that are compared: tables without a VRF, with one, with what is switched on for it,
//! and with many.

use std::sync::Arc;

use clap::ValueEnum;
use io::memory::MemoryOptions;
use tables::limit::MAX_ROUTES;
use tables::{
    FieldsSelector, FilterAction, FilterHook, FilterMatch, FilterPlace, FilterSpec, FilterTarget,
    FilterVerdict, MAX_SNAPLEN, MarkBits, PortSpec, Publisher, Qdisc, QdiscDevice, RejectWith,
    RouteSpec, Selector, Tables, TapPoints, TapSpec, UpperSelector, Vlan, VlanId, VlanTag,
};
use types::qdisc::{FqCodel, Tbf};
use wire::{IpPrefix, IpRange, PortId, VrfId};

use super::layout::{self, Layout, Links, Side};
use crate::frame::Family;
use crate::topology::STATION;

/// The ends of the cable by which packets take the detour: in the VRF of the clients, and in that
/// of the servers.
pub(crate) const LOOP: [PortId; 2] = [PortId(2), PortId(3)];

/// Rules of each filter: the last one lets everything pass, those before it match nothing.
const RULES: u32 = 10;

/// What is switched on for a VRF, in the order of the table's columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Configuration {
    /// No VRF again: what two measurements of the same differ by
    Again,
    /// A VRF and nothing else
    Defaults,
    /// Two VRFs with a cable between two ports of theirs: each packet is looked up twice
    Detour,
    /// A queueing discipline: tbf, which is never short of tokens, with fq_codel
    Qdisc,
    /// Ten rules before routing and ten after it
    Filter,
    /// A tap: each packet is copied as it comes and as it leaves
    Tap,
    /// All features at once
    All,
    /// A VRF without features, beside another one that has all of them, with traffic
    Others,
    /// The same, where the one that has all of them is silent, and the traffic beside is that of a
    /// third one without: as much is done beside as without a VRF
    OthersSilent,
}

/// One feature of a VRF. To measure another one takes a name in [`Configuration`] and a line here,
/// by which it is in `all` and `others` too.
type Feature = fn(&mut Tables, VrfId) -> anyhow::Result<()>;

const FEATURES: [(Configuration, Feature); 3] = [
    (Configuration::Qdisc, add_qdisc),
    (Configuration::Filter, add_filters),
    (Configuration::Tap, add_tap),
];

impl Configuration {
    /// As in `--configurations`.
    pub(crate) fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// How many VRFs there are beside `main`.
    pub(crate) const fn vrfs(self) -> u16 {
        match self {
            Self::Again => 0,
            Self::Detour | Self::Others => 2,
            Self::OthersSilent => 3,
            _ => 1,
        }
    }

    /// Whether another tenant has traffic beside that which is measured.
    pub(crate) const fn has_other(self) -> bool {
        matches!(self, Self::Others | Self::OthersSilent)
    }

    /// Least speed of that without a VRF. Features cost what they cost those who have them.
    pub(crate) const fn wanted(self) -> Option<f64> {
        match self {
            Self::Defaults | Self::Others | Self::OthersSilent => Some(0.99),
            _ => None,
        }
    }
}

/// A gateway.
#[derive(Clone)]
pub(crate) struct Setup {
    pub tables: Tables,
    pub layout: Layout,
    /// Whether the cable is plugged in.
    pub has_loop: bool,
    /// Whether the second tenant has traffic as well, which is not measured.
    pub has_other: bool,
}

/// The gateway without a VRF that `configuration` is held against, and the one with it.
pub(crate) fn pair(
    family: Family,
    configuration: Configuration,
    routes: u32,
) -> anyhow::Result<[Setup; 2]> {
    let half = (routes / 2).max(1);
    let has_other = configuration.has_other();
    let tenants = if has_other { configuration.vrfs().into() } else { 1 };
    let layout = Layout { tenants, links: Links::Untagged, overlap: false, half };
    let setup = |tables, has_loop| Setup { tables, layout, has_loop, has_other };
    let without = setup(build(family, &layout, |_| VrfId::MAIN, Tables::new(1, 1))?, false);
    let mut tables = Tables::new(1, 1);
    let with = match configuration {
        Configuration::Again => without.clone(),
        Configuration::Detour => setup(detour(family, &layout)?, true),
        Configuration::Others | Configuration::OthersSilent => {
            let names = ["blue", "green", "red"].into_iter().take(tenants as usize);
            let vrfs: Vec<VrfId> =
                names.map(|name| tables.add_vrf(name)).collect::<Result<_, _>>()?;
            let mut tables = build(family, &layout, |tenant| vrfs[tenant as usize], tables)?;
            // The second tenant's traffic is beside the first one's; a third one has none.
            let &featured = vrfs.last().unwrap_or(&VrfId::MAIN);
            for (_, add) in FEATURES {
                add(&mut tables, featured)?;
            }
            setup(tables, false)
        }
        _ => {
            let vrf = tables.add_vrf("blue")?;
            let mut tables = build(family, &layout, |_| vrf, tables)?;
            for (of, add) in FEATURES {
                if configuration == of || configuration == Configuration::All {
                    add(&mut tables, vrf)?;
                }
            }
            setup(tables, false)
        }
    };
    Ok([without, with])
}

/// One VRF with the links of `count` tenants, and as many VRFs with one tenant each, who have the
/// same prefixes. The one VRF has at most as many routes as a table may have.
pub(crate) fn one_and_many(family: Family, count: u16, routes: u32) -> anyhow::Result<[Setup; 2]> {
    let half = (routes / 2).max(1);
    let tenants = u32::from(count);
    // Each link has a few of its own.
    let most = (MAX_ROUTES as u32 - 16 * tenants) / (2 * tenants);
    let links = Links::Vlans(count);
    let layout = Layout { tenants, links, overlap: false, half: half.min(most) };
    let mut one = Tables::new(1, 1);
    let vrf = one.add_vrf("blue")?;
    let one = simple(build(family, &layout, |_| vrf, one)?, layout);
    let layout = Layout { overlap: true, half, ..layout };
    let mut many = Tables::new(1, 1);
    let vrfs: Vec<VrfId> = (0..count)
        .map(|number| many.add_vrf(&format!("tenant{number}")))
        .collect::<Result<_, _>>()?;
    let many = simple(build(family, &layout, |tenant| vrfs[tenant as usize], many)?, layout);
    Ok([one, many])
}

/// `count` tenants of one VRF in one VLAN of each port, and in one VLAN each. Each has a station of
/// its own, and so a next hop, in both.
pub(crate) fn vlans(family: Family, count: u16) -> anyhow::Result<[Setup; 2]> {
    let [one, many] = [1, count].map(|vlans| {
        let (tenants, links) = (u32::from(count), Links::Vlans(vlans));
        let layout = Layout { tenants, links, overlap: false, half: 1 };
        let mut tables = Tables::new(1, 1);
        let vrf = tables.add_vrf("blue")?;
        anyhow::Ok(simple(build(family, &layout, |_| vrf, tables)?, layout))
    });
    Ok([one?, many?])
}

/// The tables are published once, so that what a publication makes of them is there when gateways
/// are exchanged.
fn simple(tables: Tables, layout: Layout) -> Setup {
    let tables = Tables::clone(&Publisher::new(tables).current());
    Setup { tables, layout, has_loop: false, has_other: false }
}

/// The tenants' links, neighbours and routes, in the VRF that `vrf_of` says. Tenants who share a
/// link share its VRF. Where routes are many, two next to each other lead to two stations, so that
/// they cannot be taken for one.
fn build(
    family: Family,
    layout: &Layout,
    vrf_of: impl Fn(u32) -> VrfId,
    mut tables: Tables,
) -> anyhow::Result<Tables> {
    let links = match layout.links {
        Links::Untagged => layout.tenants,
        Links::Vlans(count) => count.into(),
    };
    for side in Side::BOTH {
        let is_a_link = layout.vlan(0).is_none();
        let own = is_a_link.then(|| Layout::link(family, side, None).0);
        let vrf = if is_a_link { vrf_of(0) } else { VrfId::MAIN };
        add_port(&mut tables, side.port(), vrf, own, None)?;
        for tenant in 0..links {
            if let Some(number) = layout.vlan(tenant) {
                let tag = VlanTag::customer(VlanId::new(number)?);
                let vlan = Vlan::new(side.port(), tag);
                let (own, _) = layout.ends(family, side, tenant);
                let port = Layout::port(side, Some(number));
                add_port(&mut tables, port, vrf_of(tenant), Some(own), Some(vlan))?;
            }
        }
        for tenant in 0..layout.tenants {
            let port = Layout::port(side, layout.vlan(tenant));
            let (_, address) = layout.ends(family, side, tenant);
            tables.set_neighbour(port, address, STATION)?;
            let mut ways = vec![RouteSpec::Via { port, address }];
            if layout.half > 1 {
                let address = layout::behind(address);
                tables.set_neighbour(port, address, STATION)?;
                ways.push(RouteSpec::Onlink { port, address });
            }
            add_routes(&mut tables, family, layout, (side, tenant), (vrf_of(tenant), &ways))?;
        }
    }
    Ok(tables)
}

/// The clients in one VRF, the servers in another, and a cable between a port of each.
fn detour(family: Family, layout: &Layout) -> anyhow::Result<Tables> {
    let mut tables = Tables::new(1, 1);
    let vrfs = [tables.add_vrf("blue")?, tables.add_vrf("red")?];
    // The cable is a link behind those of the tenants: the one end's own address is the other's
    // station.
    let (own, far) = layout::link_of(family, 1 << 14);
    let ends = [(own, far), (IpPrefix::new(far, own.length())?, own.address())];
    for (at, side) in Side::BOTH.into_iter().enumerate() {
        let (own, station) = Layout::link(family, side, None);
        add_port(&mut tables, side.port(), vrfs[at], Some(own), None)?;
        tables.set_neighbour(side.port(), station, STATION)?;
        let (own, other) = ends[at];
        add_port(&mut tables, LOOP[at], vrfs[at], Some(own), None)?;
        tables.set_neighbour(LOOP[at], other, mac(LOOP[1 - at]))?;
    }
    for (at, side) in Side::BOTH.into_iter().enumerate() {
        let (_, address) = Layout::link(family, side, None);
        let via = RouteSpec::Via { port: side.port(), address };
        add_routes(&mut tables, family, layout, (side, 0), (vrfs[at], &[via]))?;
        let via = RouteSpec::Via { port: LOOP[1 - at], address: ends[1 - at].1 };
        add_routes(&mut tables, family, layout, (side, 0), (vrfs[1 - at], &[via]))?;
    }
    Ok(tables)
}

/// The tenant's routes go one of the ways after the other.
fn add_routes(
    tables: &mut Tables,
    family: Family,
    layout: &Layout,
    (side, tenant): (Side, u32),
    (vrf, ways): (VrfId, &[RouteSpec]),
) -> anyhow::Result<()> {
    for (number, way) in (0..layout.half).zip(ways.iter().cycle()) {
        let prefix = layout.prefix(family, side, tenant, number);
        tables.set_route(vrf, prefix, way.clone())?;
    }
    Ok(())
}

/// The Ethernet address of a port with a queue.
pub(crate) fn mac(id: PortId) -> wire::Mac {
    MemoryOptions::ethernet("", id).mac
}

fn add_port(
    tables: &mut Tables,
    id: PortId,
    vrf: VrfId,
    own: Option<IpPrefix>,
    vlan: Option<Vlan>,
) -> anyhow::Result<()> {
    let name: Arc<str> = format!("port{}", id.0).into();
    let parent = vlan.map_or(id, |vlan| vlan.parent);
    let spec = PortSpec {
        vrf,
        addresses: own.into_iter().collect(),
        vlan,
        ..PortSpec::new(name, mac(parent))
    };
    Ok(tables.add_port(id, spec)?)
}

fn add_qdisc(tables: &mut Tables, vrf: VrfId) -> anyhow::Result<()> {
    // More than a round of full frames in the time that a round is given.
    let root = Qdisc::Tbf(Tbf { rate: 1_250_000_000, burst: 16 << 20, limit: 16 << 20 });
    let child = Qdisc::FqCodel(FqCodel::default());
    tables.set_qdisc(QdiscDevice::Vrf(vrf), ("1:".parse()?, root), Some(("2:".parse()?, child)))?;
    Ok(())
}

fn add_tap(tables: &mut Tables, vrf: VrfId) -> anyhow::Result<()> {
    let spec = TapSpec {
        id: 1,
        target: FilterTarget::Vrf(vrf),
        points: TapPoints { ingress: true, egress: true, drop: true },
        snaplen: MAX_SNAPLEN,
        rate: None,
        program: None,
    };
    Ok(tables.add_tap(spec)?)
}

fn add_filters(tables: &mut Tables, vrf: VrfId) -> anyhow::Result<()> {
    for hook in [FilterHook::Ingress, FilterHook::Egress] {
        for preference in 1..=RULES {
            let verdict =
                if preference == RULES { FilterVerdict::Pass } else { FilterVerdict::Drop };
            // Networks that no packet comes from, each rule its own.
            let elsewhere = |v6| {
                let (address, length): (std::net::IpAddr, u8) = match v6 {
                    false => ((192_u32 << 24 | preference << 8).to_be_bytes().into(), 24),
                    true => (
                        (0x3fff_u128 << 112 | u128::from(preference) << 80).to_be_bytes().into(),
                        48,
                    ),
                };
                IpPrefix::new(address, length).map(|prefix| prefix.range())
            };
            let selector = |all: IpRange, source: IpRange| Selector {
                source: if preference == RULES { all } else { source },
                destination: all,
                protocol: None,
                upper: UpperSelector::Any,
                fields: FieldsSelector::ANY,
            };
            let place = FilterPlace { target: FilterTarget::Vrf(vrf), hook };
            let selects = FilterMatch {
                v4: Some(selector(IpRange::ALL_V4, elsewhere(false)?)),
                v6: Some(selector(IpRange::ALL_V6, elsewhere(true)?)),
                mark: MarkBits::default(),
            };
            let reject_with = RejectWith::default();
            let action = FilterAction { verdict, reject_with, set_mark: None, log: false };
            tables.set_filter_rule(FilterSpec { place, preference, selects, action })?;
        }
    }
    Ok(())
}
