//! What the configuration says, in the simplest words: which port is in which VRF, and what leads
//! from one to another. The law asks this and nothing of the gateway's own tables.

use std::collections::BTreeSet;
use std::net::IpAddr;

use tables::{FilterHook, TableId, VlanProtocol};
use wire::IpPrefix;

/// VRFs beside `main`.
pub(crate) const VRFS: u16 = 3;
/// Places where a port may be: see [`PLACES`].
pub(crate) const COUNT: usize = 14;
pub(crate) const LAN_PLACE: usize = 0;
pub(crate) const WAN_PLACE: usize = 1;

/// Where a port is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Place {
    /// A port with frames of its own.
    Physical,
    /// A VLAN of the port in another place.
    Vlan(usize, VlanProtocol, u16),
    /// An xfrm link with this `if_id`.
    Link(u32),
}

use Place::{Link, Physical, Vlan};
use VlanProtocol::{Customer, Service};

/// The same VLANs on two ports, and the same again behind one tag.
pub(crate) const PLACES: [Place; COUNT] = [
    Physical,
    Physical,
    Vlan(LAN_PLACE, Customer, 1),
    Vlan(LAN_PLACE, Customer, 2),
    Vlan(WAN_PLACE, Customer, 1),
    Vlan(WAN_PLACE, Customer, 2),
    Vlan(LAN_PLACE, Service, 1),
    Vlan(6, Customer, 1),
    Vlan(6, Customer, 2),
    Vlan(4, Customer, 1),
    Vlan(2, Customer, 1),
    Vlan(2, Customer, 2),
    Link(1),
    Link(2),
];

/// VRF and site of each port at the beginning. Site 0 is without addresses.
pub(crate) const BEGINNING: [(u16, u8); COUNT] = [
    (0, 0),
    (0, 0),
    (1, 1),
    (2, 1),
    (2, 2),
    (1, 2),
    (0, 1),
    (3, 1),
    (1, 3),
    (3, 2),
    (2, 3),
    (3, 3),
    (3, 4),
    (0, 4),
];

pub(crate) fn is_link(place: usize) -> bool {
    matches!(PLACES[place], Link(_))
}

/// The tags of a port's frames, and the port by whose cable they go.
pub(crate) fn cable(place: usize) -> (usize, Vec<(VlanProtocol, u16)>) {
    match PLACES[place] {
        Vlan(parent, protocol, number) => {
            let (cable, mut tags) = cable(parent);
            tags.push((protocol, number));
            (cable, tags)
        }
        Physical | Link(_) => (place, Vec::new()),
    }
}

/// The place and all around it by whose cable its frames go.
pub(crate) fn with_parents(place: usize) -> Vec<usize> {
    match PLACES[place] {
        Vlan(parent, ..) => [vec![place], with_parents(parent)].concat(),
        Physical | Link(_) => vec![place],
    }
}

/// A VRF, and how many had its number before.
pub(crate) type Tenant = (u16, u32);

/// A port, and how many were in its place before.
pub(crate) type Ident = (usize, u32);

/// A port as it is now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Port {
    pub(crate) life: u32,
    pub(crate) vrf: u16,
    pub(crate) site: u8,
    pub(crate) mtu: u16,
}

/// Whose packets a leak is for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum From {
    /// Those of a VRF: by a route of its table, or by a rule that names it.
    Tenant(Tenant),
    /// Those that came by a port: by a rule.
    Port(Ident),
    /// Those that the gateway itself sends: by a rule.
    Own,
    /// All: by a rule without `iif`.
    All,
    /// Those that rules have led to the table of no VRF.
    Loose,
}

/// Where it leads them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Into {
    /// A VRF, by a route.
    Tenant(Tenant),
    /// Whatever VRF has the table of this number, by a rule.
    Table(TableId),
    /// The table of no VRF, by a rule.
    Loose,
    /// A port, while it is in the VRF in which it was when the route was made.
    Port(Ident, Tenant),
}

/// A rule or a route that leads from one VRF to another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Leak {
    pub(crate) from: From,
    pub(crate) into: Into,
    pub(crate) prefix: IpPrefix,
    /// Of a rule: its number.
    pub(crate) rule: Option<u64>,
}

/// Whose a filter, a tap or a queue is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Target {
    Port(usize),
    Vrf(u16),
}

/// A filter of one rule that drops all of a family.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Filter {
    pub(crate) target: Target,
    pub(crate) hook: FilterHook,
    pub(crate) is_v6: bool,
    pub(crate) drops: bool,
}

/// A way out: a port, and the VRF that it is in.
pub(crate) type Way = (Ident, Tenant);

/// How a packet begins its way.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Origin {
    /// It came by a port, in clear.
    Port(Ident),
    /// It was decrypted.
    Decrypted,
    /// The gateway itself sends it.
    Own,
}

/// Everything that is configured at some time.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) ports: [Option<Port>; COUNT],
    /// By VRF.
    pub(crate) lives: [u32; VRFS as usize + 1],
    pub(crate) tables: [TableId; VRFS as usize + 1],
    pub(crate) leaks: Vec<Leak>,
    pub(crate) filters: Vec<Filter>,
    pub(crate) queues: BTreeSet<Target>,
}

impl Config {
    pub(crate) fn tenant(&self, vrf: u16) -> Tenant {
        (vrf, self.lives[usize::from(vrf)])
    }

    /// The VRF that a port is in.
    pub(crate) fn tenant_of(&self, place: usize) -> Option<Tenant> {
        self.ports[place].map(|port| self.tenant(port.vrf))
    }

    pub(crate) fn way(&self, place: usize) -> Option<Way> {
        let port = self.ports[place]?;
        Some(((place, port.life), self.tenant(port.vrf)))
    }

    /// The port of a cable's frames with these tags, in which those without a number say nothing.
    pub(crate) fn owner(&self, cable: usize, tags: &[(VlanProtocol, u16)]) -> Option<usize> {
        let of_vlans: Vec<_> = tags.iter().copied().filter(|(_, number)| *number > 0).collect();
        (0..COUNT)
            .filter(|place| !is_link(*place) && self.ports[*place].is_some())
            .find(|place| self::cable(*place) == (cable, of_vlans.clone()))
    }

    fn drops(&self, target: Target, hook: FilterHook, is_v6: bool) -> bool {
        let is_meant =
            |filter: &&Filter| (filter.target, filter.hook, filter.is_v6) == (target, hook, is_v6);
        self.filters.iter().find(is_meant).is_some_and(|filter| filter.drops)
    }

    /// Whether filters let a packet in, by a port or decrypted into a VRF.
    pub(crate) fn admits(&self, place: Option<usize>, tenant: Tenant, is_v6: bool) -> bool {
        let hook = FilterHook::Ingress;
        let dropped = |target| self.drops(target, hook, is_v6);
        !place.is_some_and(|place| dropped(Target::Port(place))) && !dropped(Target::Vrf(tenant.0))
    }

    /// Whether filters let a packet out in clear.
    pub(crate) fn emits(&self, place: usize, is_v6: bool) -> bool {
        let dropped = |target| self.drops(target, FilterHook::Egress, is_v6);
        let vrf = self.ports[place].map(|port| port.vrf);
        !dropped(Target::Port(place)) && !vrf.is_some_and(|vrf| dropped(Target::Vrf(vrf)))
    }

    /// All ports by which a packet of a VRF may leave: those of the VRF, and those to which rules and
    /// routes lead that are about it.
    pub(crate) fn ways(&self, tenant: Tenant, to: IpAddr, origin: Origin) -> Vec<Way> {
        let mut ways = Vec::new();
        let mut tenants = vec![tenant];
        let mut is_loose = false;
        for leak in self.leaks.iter().filter(|leak| leak.prefix.contains(to)) {
            let is_ruled = match (leak.from, origin) {
                (From::All, _) | (From::Own, Origin::Own) => true,
                (From::Port(ident), Origin::Port(by)) => ident == by,
                (From::Tenant(from), Origin::Port(_) | Origin::Decrypted) => from == tenant,
                _ => false,
            };
            if leak.rule.is_some() && is_ruled {
                match leak.into {
                    Into::Table(table) => {
                        let whose = (0..=VRFS).find(|vrf| self.tables[usize::from(*vrf)] == table);
                        tenants.extend(whose.map(|vrf| self.tenant(vrf)));
                    }
                    Into::Loose => is_loose = true,
                    Into::Tenant(_) | Into::Port(..) => unreachable!("rules name tables"),
                }
            }
        }
        let routes = |from: From| {
            let all = self.leaks.iter().filter(|leak| leak.rule.is_none());
            all.filter(move |leak| leak.from == from && leak.prefix.contains(to))
        };
        let mut done = 0;
        while done < tenants.len() || is_loose {
            let from = match core::mem::take(&mut is_loose) {
                true => From::Loose,
                false => {
                    done += 1;
                    let tenant = tenants[done - 1];
                    let ports = (0..COUNT).filter_map(|place| self.way(place));
                    ways.extend(ports.filter(|(_, of)| *of == tenant));
                    From::Tenant(tenant)
                }
            };
            for leak in routes(from) {
                match leak.into {
                    // Another VRF may have the number by now.
                    Into::Tenant(into)
                        if into == self.tenant(into.0) && !tenants.contains(&into) =>
                    {
                        tenants.push(into);
                    }
                    Into::Port((place, life), was_in) => {
                        ways.extend(self.way(place).filter(|way| *way == ((place, life), was_in)));
                    }
                    _ => {}
                }
            }
        }
        ways
    }
}
