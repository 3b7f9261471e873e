//! The desired state, and who asked for each part of it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use api::{
    Direction, FilterSpec, InterfaceState, MAIN_VRF, Origin, PolicySpec, Refusal, RefusalCode,
    Request, RouteSpec, RuleSpec, StateSpec, VrfName,
};
use packet::Time;
use pipeline::FlowId;
use tables::{MssClamp, PortSpec, ReversePath, Scope, Side, TableId, TableRef, Tables, Vlan};
use types::{IfId, IpPrefix, LinkKind, Mac, PortId, Spi, VlanId, VlanProtocol, VlanTag, VrfId};

use super::filters::FilterKey;
use super::firewall::DesiredFirewall;
use super::neighbours::Neighbours;
use super::port_list::PortList;
use super::qdiscs::{DesiredTree, Device};
use super::recursive::Routes;
use super::refuse::{missing, no_link, no_port, no_vrf};
use super::rule_list::RuleList;
use super::shared::Shared;
use super::tree::Tree;
use super::watch::Watch;
use crate::check::KeyUses;
use crate::conntrack_settings::ConntrackSettings;
use crate::settings::{GatewaySettings, PortSettings};

/// The desired state. The tables follow from it. Of a copy, what a request does not change is not
/// copied.
#[derive(Clone, Debug)]
pub(super) struct Desired {
    pub(super) gateway: Option<GatewaySettings>,
    /// Where the file says something of it.
    pub(super) conntrack: Option<ConntrackSettings>,
    pub(super) vrfs: Tree<String, DesiredVrf>,
    pub(super) ports: PortList,
    /// Large buffers of each worker, once the first configuration has decided it.
    pub(super) large_buffers: Option<usize>,
    /// By table and prefix, the lowest metric first; never empty.
    pub(super) routes: Routes,
    /// Those of them with a route that leads into another VRF, by prefix.
    pub(super) far_routes: Shared<BTreeSet<(IpPrefix, TableRef)>>,
    /// By table and next hop: the prefixes with a route by this recursive next hop.
    pub(super) recursive: Tree<(TableRef, IpAddr), Tree<IpPrefix, ()>>,
    pub(super) rules: Shared<RuleList>,
    pub(super) neighbours: Neighbours,
    pub(super) qdiscs: Shared<BTreeMap<Device, DesiredTree>>,
    pub(super) states: Shared<BTreeMap<StateKey, DesiredSa>>,
    /// Of the SAs.
    pub(super) keys: Shared<KeyUses>,
    /// By index.
    pub(super) policies: Shared<BTreeMap<u32, DesiredPolicy>>,
    pub(super) filters: Tree<FilterKey, DesiredFilter>,
    /// Who asked for each flow. The tables have the flows.
    pub(super) flows: Shared<BTreeMap<FlowId, Origin>>,
    pub(super) firewall: Option<DesiredFirewall>,
    /// How often the firewall became other flows.
    pub(super) firewall_changes: u64,
    /// VRFs that are gone, whose connections have not ended all.
    pub(super) vrfs_ending: BTreeSet<VrfId>,
    /// Why policies of xfrm links could not be compiled, by `if_id` and direction.
    pub(super) links_not_compiled: BTreeMap<(IfId, u8), Arc<str>>,
    /// Why policies are compiled no more, if that is so.
    pub(super) compiler_ended: Option<Arc<str>>,
    /// What is about to change, if somebody follows.
    pub(super) watch: Watch,
}

/// What is unique about an SA.
pub(super) type StateKey = (VrfId, IpAddr, Spi);

#[derive(Clone, Debug)]
pub(super) struct DesiredVrf {
    pub(super) id: VrfId,
    pub(super) origin: Origin,
    /// The number of its routing table, unless the gateway has chosen it.
    pub(super) table: Option<TableId>,
    /// Who set the default action of each direction.
    pub(super) defaults: [Origin; 3],
    /// Who said whether it is an IPsec gateway.
    pub(super) ipsec: Origin,
    /// Who said whether IKE is asked policies.
    pub(super) ike: Origin,
    /// Who said how much it may have of what VRFs share.
    pub(super) highest_share: Origin,
    /// Why the policies of each direction could not be compiled.
    pub(super) not_compiled: [Option<Arc<str>>; 3],
}

#[derive(Clone, Debug)]
pub(super) struct DesiredPort {
    pub(super) id: PortId,
    /// As the configuration file last asked for it, or a command did.
    pub(super) settings: PortSettings,
    /// Who asked for it: a command for a VLAN alone.
    pub(super) origin: Origin,
    /// What was found when it was opened; of a VLAN, what follows from what was found of its parent.
    pub(super) found: Found,
    pub(super) vrf: String,
    /// That of a VLAN is at most its parent's, whatever is said here.
    pub(super) mtu: u16,
    pub(super) up: bool,
    pub(super) side: Side,
    pub(super) reverse_path: ReversePath,
    pub(super) mss: MssClamp,
    /// What it was opened on is like. Of a VLAN, its parent's counts.
    pub(super) interface: InterfaceState,
    pub(super) addresses: Vec<(IpPrefix, Origin)>,
}

/// What an opened port says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) mac: Mac,
    pub(super) mtu: u16,
    pub(super) link: LinkKind,
    /// Whether VLAN tags take from the MTU, but for a customer tag in front: the kernel lets no
    /// program send longer frames by an interface (`packet_snd` in its net/packet/af_packet.c).
    pub(super) counts_tags: bool,
}

impl Found {
    /// What an xfrm link is like. It may be as large as a packet; what its tunnels take at most
    /// follows from their ways.
    pub(super) const XFRM: Self =
        Self { mac: Mac([0; 6]), mtu: u16::MAX, link: LinkKind::Ip, counts_tags: false };
    /// The MTU that an xfrm link has if nobody says another, as in Linux.
    pub(super) const XFRM_MTU: u16 = 1500;

    /// What is found of a VLAN of this tag; `is_inner` if this is a VLAN already.
    pub(super) fn of_vlan(self, tag: VlanTag, is_inner: bool) -> Self {
        let is_free = tag.protocol == VlanProtocol::Customer && !is_inner;
        let taken = if self.counts_tags && !is_free { VlanId::TAG_LENGTH as u16 } else { 0 };
        Self { mtu: self.mtu.saturating_sub(taken), ..self }
    }
}

impl DesiredPort {
    /// The MTU that it would have by itself.
    pub(super) fn own_mtu(&self) -> u16 {
        self.mtu.min(self.found.mtu)
    }

    /// What is found of a VLAN of it.
    pub(super) fn found_of_vlan(&self, tag: VlanTag) -> Found {
        self.found.of_vlan(tag, self.settings.kind.vlan().is_some())
    }
}

/// A port, its parent if it is a VLAN, and that one's.
pub(super) fn family<'p>(
    port: &'p DesiredPort,
    named: impl Fn(&str) -> Option<&'p DesiredPort>,
) -> impl Iterator<Item = &'p DesiredPort> {
    let parent = move |port: &&'p DesiredPort| named(port.settings.kind.vlan()?.0);
    core::iter::successors(Some(port), parent)
}

/// Where routes stand: in a table, to these destinations.
pub(super) type Place = (TableRef, IpPrefix);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DesiredRoute {
    pub(super) spec: RouteSpec,
    pub(super) origin: Origin,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DesiredRule {
    pub(super) spec: RuleSpec,
    pub(super) origin: Origin,
}

#[derive(Clone, Debug)]
pub(super) struct DesiredSa {
    pub(super) spec: StateSpec,
    /// When it came.
    pub(super) added: Time,
    pub(super) origin: Origin,
}

#[derive(Clone, Debug)]
pub(super) struct DesiredPolicy {
    /// With all addresses said.
    pub(super) spec: PolicySpec,
    pub(super) origin: Origin,
}

#[derive(Clone, Debug)]
pub(super) struct DesiredFilter {
    /// With everything said.
    pub(super) spec: FilterSpec,
    pub(super) origin: Origin,
}

impl Desired {
    /// Nothing but the VRF `main`. `secret` keys the digests of keys.
    pub(super) fn new(secret: [u8; 16]) -> Self {
        let main = DesiredVrf::new(VrfId::MAIN, Origin::Gateway);
        Self {
            gateway: None,
            conntrack: None,
            large_buffers: None,
            vrfs: [(MAIN_VRF.to_owned(), main)].into_iter().collect(),
            ports: PortList::default(),
            routes: Routes::default(),
            far_routes: Shared::default(),
            recursive: Tree::default(),
            rules: Shared::default(),
            neighbours: Neighbours::default(),
            qdiscs: Shared::default(),
            states: Shared::default(),
            keys: KeyUses::new(secret).into(),
            policies: Shared::default(),
            filters: Tree::default(),
            flows: Shared::default(),
            firewall: None,
            firewall_changes: 0,
            vrfs_ending: BTreeSet::new(),
            links_not_compiled: BTreeMap::new(),
            compiler_ended: None,
            watch: Watch::default(),
        }
    }

    /// Makes these the routes of a prefix.
    pub(super) fn put_routes(&mut self, place: Place, alternatives: Vec<DesiredRoute>) {
        self.touch_routes(place);
        let is_far = |entry: &DesiredRoute| {
            let spec = &entry.spec;
            spec.port_vrf.is_some()
                || spec.nexthop_vrf.is_some()
                || spec.nexthops.iter().any(|one| one.port_vrf.is_some())
        };
        let far = (place.1, place.0);
        match alternatives.iter().any(is_far) {
            true => _ = self.far_routes.insert(far),
            false if self.far_routes.contains(&far) => _ = self.far_routes.remove(&far),
            false => {}
        }
        let vias = |all: &[DesiredRoute]| -> BTreeSet<IpAddr> {
            let recursive = all.iter().filter(|entry| entry.spec.recursive);
            recursive.filter_map(|entry| entry.spec.via).collect()
        };
        let before = self.routes.get(&place).map(|all| vias(all)).unwrap_or_default();
        let after = vias(&alternatives);
        for via in before.difference(&after) {
            let key = (place.0, *via);
            if let Some(prefixes) = self.recursive.get_mut(&key) {
                prefixes.remove(&place.1);
                if prefixes.is_empty() {
                    self.recursive.remove(&key);
                }
            }
        }
        for via in after {
            self.recursive.change_or_add((place.0, via), |all| all.insert(place.1, ()));
        }
        match alternatives.is_empty() {
            true => _ = self.routes.remove(&place),
            false => self.routes.insert(place, alternatives),
        }
    }

    /// Policies were compiled, or could not be: `why`.
    pub(super) fn note_compiled(
        &mut self,
        tables: &Tables,
        scope: Scope,
        direction: Direction,
        why: Option<&str>,
    ) {
        match scope {
            Scope::Vrf(vrf) => {
                let name = tables.vrf_name(vrf);
                if let Some(vrf) = name.and_then(|name| self.vrfs.get_mut(name)) {
                    vrf.not_compiled[direction as usize] = why.map(Into::into);
                }
            }
            Scope::Link(if_id) => {
                let all = &mut self.links_not_compiled;
                all.retain(|(if_id, _), _| tables.spd(Scope::Link(*if_id)).is_some());
                let key = (if_id, direction as u8);
                match why {
                    Some(why) => _ = all.insert(key, why.into()),
                    None => _ = all.remove(&key),
                }
            }
        }
    }

    /// The request as it is meant: a link that is removed may be a VRF.
    pub(super) fn as_meant(&self, request: Request) -> Request {
        match request {
            Request::LinkDelete(link)
                if !self.ports.contains_key(&link.port) && self.vrfs.contains_key(&link.port) =>
            {
                Request::VrfDelete(VrfName { name: link.port })
            }
            other => other,
        }
    }

    pub(super) fn vrf(&self, name: &str) -> Result<VrfId, Refusal> {
        self.vrfs
            .get(name)
            .map(|vrf| vrf.id)
            .ok_or_else(|| no_vrf(name, self.vrfs.keys().map(String::as_str)))
    }

    /// Whose packets a policy is for that names a VRF and an `if_id`, which may be 0.
    pub(super) fn scope(&self, vrf: &str, if_id: u32) -> Result<Scope, Refusal> {
        match IfId::new(if_id) {
            Some(if_id) => Ok(Scope::Link(if_id)),
            None => self.vrf(vrf).map(Scope::Vrf),
        }
    }

    /// The routing table of a VRF, or of this number if there is one.
    pub(super) fn table(
        &self,
        tables: &Tables,
        vrf: &str,
        number: Option<u32>,
    ) -> Result<TableRef, Refusal> {
        let number = number.map(TableId);
        match number.map(|number| (number, tables.vrf_of_table(number))) {
            None => self.vrf(vrf).map(TableRef::Vrf),
            Some((_, Some(owner))) => Ok(TableRef::Vrf(owner)),
            Some((number, None)) => {
                crate::check::table("table", number.0)?;
                Ok(TableRef::Number(number))
            }
        }
    }

    /// There is no link of this name: no port and, but for `main`, which is none, no VRF.
    pub(super) fn no_link(&self, name: &str) -> Refusal {
        let vrfs = self.vrfs.keys().filter(|name| *name != MAIN_VRF);
        no_link(name, self.ports.keys().chain(vrfs).map(String::as_str))
    }

    pub(super) fn port(&self, name: &str) -> Result<&DesiredPort, Refusal> {
        self.ports.get(name).ok_or_else(|| match self.vrfs.get(name) {
            Some(_) => {
                let message = format!("'{name}' is a VRF, and this is about a port");
                let mut ports = self.ports.of_vrf(name);
                let port = ports.next().map(|port| format!("as in {port}"));
                Refusal::new(RefusalCode::Invalid, message)
                    .with_hint(port.unwrap_or_else(|| "no port is in it".to_owned()))
            }
            None => no_port(name, self.ports.keys().map(String::as_str)),
        })
    }

    /// Refuses a name that is neither a port's nor a VRF's.
    pub(super) fn link(&self, name: &str) -> Result<(), Refusal> {
        if self.ports.contains_key(name) || self.vrfs.contains_key(name) {
            return Ok(());
        }
        let known = self.ports.keys().chain(self.vrfs.keys()).map(String::as_str);
        Err(missing("port or VRF", name, known))
    }

    pub(super) fn port_name(&self, id: PortId) -> &str {
        self.ports.name_of(id).unwrap_or("")
    }

    /// The port whose VLAN a port is, if it is one.
    pub(super) fn parent(&self, port: &DesiredPort) -> Option<&DesiredPort> {
        self.ports.get(port.settings.kind.vlan()?.0)
    }

    /// A port and its parents, itself first.
    pub(super) fn family<'p>(
        &'p self,
        port: &'p DesiredPort,
    ) -> impl Iterator<Item = &'p DesiredPort> {
        family(port, |name| self.ports.get(name))
    }

    /// The most that a port's MTU can be for its parents.
    pub(super) fn most_mtu(&self, port: &DesiredPort) -> u16 {
        self.family(port).skip(1).map(DesiredPort::own_mtu).min().unwrap_or(u16::MAX)
    }

    /// Every port, parents before their VLANs, and xfrm links behind them all.
    pub(super) fn parents_first(&self) -> Vec<(&String, &DesiredPort)> {
        let mut all: Vec<_> = self.ports.iter().collect();
        let is_xfrm = |port: &DesiredPort| port.settings.kind.xfrm().is_some();
        all.sort_by_key(|(_, port)| (is_xfrm(port), self.family(port).count()));
        all
    }

    /// The names of a port's VLANs, and of theirs behind them.
    pub(super) fn vlans_of(&self, parent: &str) -> Vec<String> {
        let mut all: Vec<_> = self.ports.vlans_of(parent).cloned().collect();
        let inner = all.iter().flat_map(|vlan| self.ports.vlans_of(vlan).cloned());
        let inner: BTreeSet<_> = inner.collect();
        all.extend(inner);
        all
    }

    /// The most VLAN tags that frames of a port and of its VLANs have.
    pub(super) fn most_tags(&self, name: &str) -> usize {
        let vlans = self.vlans_of(name);
        let all = vlans.iter().map(String::as_str).chain([name]);
        let tags = |name| Some(self.family(self.ports.get(name)?).count() - 1);
        all.filter_map(tags).max().unwrap_or(0)
    }

    /// The port as the tables are to have it.
    pub(super) fn port_spec(&self, name: &str, port: &DesiredPort) -> Result<PortSpec, Refusal> {
        Ok(PortSpec {
            name: Arc::from(name),
            vrf: self.vrf(&port.vrf)?,
            link: port.found.link,
            mac: port.found.mac,
            mtu: port.mtu.min(port.found.mtu),
            addresses: port.addresses.iter().map(|(address, _)| *address).collect(),
            up: port.up && port.interface == InterfaceState::Up,
            vlan: match port.settings.kind.vlan() {
                None => None,
                Some((parent, tag)) => Some(Vlan::new(self.port(parent)?.id, tag)),
            },
            if_id: port.settings.kind.xfrm().map(|(_, if_id)| if_id),
            side: port.side,
            reverse_path: port.reverse_path,
            mss: port.mss,
        })
    }
}

impl DesiredVrf {
    pub(super) fn new(id: VrfId, origin: Origin) -> Self {
        let nobody = Origin::Gateway;
        let not_compiled = Default::default();
        let (defaults, ipsec, ike, highest_share) = ([nobody; 3], nobody, nobody, nobody);
        Self { id, origin, table: None, defaults, ipsec, ike, highest_share, not_compiled }
    }
}

/// The default actions of a VRF in the tables.
pub(super) fn defaults_in_force(tables: &Tables, name: &str, id: VrfId) -> api::DefaultActionView {
    let action =
        |direction| tables.vrf(id).map(|vrf| vrf.spd.default_action(direction)).unwrap_or_default();
    api::DefaultActionView {
        vrf: name.to_owned(),
        inbound: action(Direction::In),
        outbound: action(Direction::Out),
        forward: action(Direction::Fwd),
    }
}
