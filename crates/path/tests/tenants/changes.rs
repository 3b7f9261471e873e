//! What is done to the tables. What they take is noted in the [`Config`]; what they refuse is not.

use esp::{InboundSa, OutboundSa, WindowSize};
use rand::SeedableRng;
use rand::rngs::StdRng;
use tables::{
    Action, DefaultAction, Direction, FieldsSelector, FilterAction, FilterHook, FilterMatch,
    FilterPlace, FilterSpec, FilterTarget, FilterVerdict, IfId, MarkBits, PolicySpec, PortSpec,
    Qdisc, QdiscDevice, RejectWith, RouteSpec, Rule, RuleAction, RuleEntry, RuleId, RuleSelector,
    SaIdentity, SaSpec, Selector, TableError, TableId, TableRef, Tables, TapPoints, TapSpec,
    Template, UpperSelector, Vlan, VlanId, VlanTag,
};
use types::qdisc::{FqCodel, Tbf};
use wire::{IpPrefix, Mac, PortId, Spi, VrfId};

use crate::fixture::*;
use crate::model::*;
use crate::packets::{ends, host};
use crate::world::{
    ME, NewFrom, NewInto, NewLeak, PEER, SPIS, Seals, Step, Verdict, World, link_spi, mac,
};

/// The table of no VRF.
const LOOSE: TableId = TableId(100);

/// A prefix: a site's, all sites', the tunnels' far sides, or everything. None is one of an address
/// of a port.
pub(crate) fn leak_prefix((is_v6, number): (bool, u8)) -> IpPrefix {
    let text = match (is_v6, number) {
        (false, 0) => "0.0.0.0/0",
        (true, 0) => "::/0",
        (false, 1) => "10.0.0.0/16",
        (true, 1) => "fd00::/16",
        (false, 2) => "10.9.0.0/16",
        (true, 2) => "fd09::/16",
        (false, site) => return prefix(&format!("10.0.{}.0/25", site - 2)),
        (true, site) => return prefix(&format!("fd00:{}::/112", site - 2)),
    };
    prefix(text)
}

impl World {
    /// Does what can be done.
    pub(crate) fn change(&mut self, step: &Step) {
        match *step {
            Step::Batch(_) | Step::Again | Step::Wait(_) => {}
            Step::Move(place, vrf, site, mtu) => self.move_port(place, vrf, site, mtu),
            Step::Delete(place) => self.delete(place),
            Step::Create(place, vrf, site) => self.create(place, vrf, site),
            Step::Remake(vrf) => self.remake(vrf),
            Step::Resolve(place) => self.resolve(place),
            Step::Leak(new) => self.leak(new),
            Step::Unleak(which) => {
                if !self.config.leaks.is_empty() {
                    let leak = self.config.leaks.remove(which.index(self.config.leaks.len()));
                    self.gateway.change(|tables| unleak(tables, &leak));
                }
            }
            Step::Filter(target, hook, is_v6, verdict) => {
                self.filter(target, hook, is_v6, verdict);
            }
            Step::Queue(target, is_there) => self.queue(target, is_there),
            Step::Tap(target, points) => self.tap(target, points),
            Step::Tunnel(vrf, is_there) => self.set_tunnel(vrf, is_there),
        }
    }

    fn move_port(&mut self, place: usize, vrf: u16, site: u8, mtu: u16) {
        let (Some(old), Some(id)) = (self.config.ports[place], self.ids[place]) else { return };
        // The WAN stays in main, with the links' tunnels, and the cables have addresses of their own.
        if place == WAN_PLACE {
            return;
        }
        let is_cable = place == LAN_PLACE;
        let port = Port { vrf, site: if is_cable { 0 } else { site }, mtu, ..old };
        let mut spec = self.spec(place, port);
        if is_cable {
            let was = self.gateway.publisher.current().port(id).unwrap().spec.clone();
            spec = PortSpec { vrf: spec.vrf, ..was };
        }
        if self.try_change(|tables| tables.update_port(id, spec)) {
            self.config.ports[place] = Some(port);
            if vrf != old.vrf {
                self.forget_routes_by(place);
            }
        }
    }

    /// A port is in another VRF: routes by it are no more. It is control's to make them again.
    fn forget_routes_by(&mut self, place: usize) {
        let is_by = |leak: &Leak| matches!(leak.into, Into::Port(ident, _) if ident.0 == place);
        self.config.leaks.retain(|leak| !is_by(leak));
    }

    fn delete(&mut self, place: usize) {
        let Some(id) = self.ids[place].filter(|_| place > WAN_PLACE) else { return };
        if self.try_change(|tables| tables.remove_port(id)) {
            (self.config.ports[place], self.ids[place]) = (None, None);
            self.tapped.retain(|_, (target, ..)| *target != Target::Port(place));
            self.config.filters.retain(|filter| filter.target != Target::Port(place));
            self.config.queues.remove(&Target::Port(place));
            let is_about = |ident: Ident| ident.0 == place;
            self.config.leaks.retain(|leak| match (leak.from, leak.into) {
                (From::Port(ident), _) => !is_about(ident),
                (_, Into::Port(ident, _)) => !is_about(ident),
                _ => true,
            });
        }
    }

    fn create(&mut self, place: usize, vrf: u16, site: u8) {
        if self.ids[place].is_some() {
            return;
        }
        // As control gives numbers to sub-ports.
        let used = |id: &PortId| self.ids.contains(&Some(*id));
        let id = (2000..).map(PortId).find(|id| !used(id)).unwrap();
        let port = Port { life: self.lives + 1, vrf, site, mtu: 1500 };
        let spec = self.spec(place, port);
        if self.try_change(|tables| tables.add_port(id, spec)) {
            (self.config.ports[place], self.ids[place]) = (Some(port), Some(id));
            self.lives += 1;
        }
    }

    fn remake(&mut self, vrf: u16) {
        let mut tables = (*self.gateway.publisher.current()).clone();
        clear_tunnel(&mut tables, VrfId(vrf));
        for place in 0..COUNT {
            let Some(port) = self.config.ports[place].filter(|port| port.vrf == vrf) else {
                continue;
            };
            let mut spec = self.spec(place, Port { vrf: 0, site: 0, ..port });
            let id = self.ids[place].unwrap();
            if place == LAN_PLACE {
                spec = PortSpec { vrf: VrfId::MAIN, ..tables.port(id).unwrap().spec.clone() };
            }
            tables.update_port(id, spec).unwrap();
            self.config.ports[place] = Some(Port { vrf: 0, site: 0, ..port });
            self.forget_routes_by(place);
        }
        tables.remove_vrf(VrfId(vrf)).unwrap();
        assert_eq!(tables.add_vrf(&format!("tenant{vrf}")), Ok(VrfId(vrf)));
        for direction in Direction::ALL {
            tables.set_default_action(VrfId(vrf), direction, DefaultAction::Accept).unwrap();
        }
        let gone = self.config.tenant(vrf);
        self.config.tables[usize::from(vrf)] = tables.vrf(VrfId(vrf)).unwrap().table;
        self.gateway.publisher.publish(tables);
        self.config.lives[usize::from(vrf)] += 1;
        self.tapped.retain(|_, (target, ..)| *target != Target::Vrf(vrf));
        self.config.filters.retain(|filter| filter.target != Target::Vrf(vrf));
        self.config.queues.remove(&Target::Vrf(vrf));
        let is_gone =
            |leak: &Leak| leak.from == From::Tenant(gone) || leak.into == Into::Tenant(gone);
        self.config.leaks.retain(|leak| !is_gone(leak));
    }

    fn resolve(&mut self, place: usize) {
        let (Some(port), Some(id)) = (self.config.ports[place], self.ids[place]) else { return };
        if place <= WAN_PLACE || is_link(place) || port.site == 0 {
            return;
        }
        self.gateway.change(|tables| {
            for is_v6 in [false, true] {
                for number in [5, 9] {
                    let address = host(is_v6, port.site, number);
                    tables.set_neighbour(id, address, mac(place, number)).unwrap();
                }
            }
            tables.set_neighbour(id, ip("fe80::5"), mac(place, 5)).unwrap();
        });
    }

    fn leak(&mut self, new: NewLeak) {
        let prefix = leak_prefix(new.prefix);
        let rule = new.rule.map(|_| self.rules + 1);
        let way = |place: usize| self.config.way(place);
        let from = match new.from {
            NewFrom::Vrf(vrf) => Some(From::Tenant(self.config.tenant(vrf))),
            NewFrom::Port(place) => way(place).map(|(ident, _)| From::Port(ident)),
            NewFrom::Own => Some(From::Own),
            NewFrom::All => Some(From::All),
            NewFrom::Loose => Some(From::Loose),
        };
        let into = match (new.into, rule) {
            (NewInto::Vrf(vrf), Some(_)) => Some(Into::Table(self.config.tables[usize::from(vrf)])),
            (NewInto::Vrf(vrf), None) => Some(Into::Tenant(self.config.tenant(vrf))),
            (NewInto::Port(place), None) => {
                way(place).map(|(ident, is_in)| Into::Port(ident, is_in))
            }
            (NewInto::Loose, Some(_)) => Some(Into::Loose),
            _ => None,
        };
        let (Some(from), Some(into)) = (from, into) else { return };
        let leak = Leak { from, into, prefix, rule };
        let is_done = match (rule, from) {
            (Some(number), _) if from != From::Loose && self.config.leaks.len() < 8 => {
                let rule = self.rule(new, &leak);
                self.try_change(|tables| tables.set_rule(number, rule))
            }
            (None, From::Tenant(_) | From::Loose) => self.set_route(&leak),
            _ => false,
        };
        if is_done {
            self.rules += 1;
            self.config.leaks.push(leak);
        }
    }

    fn rule(&self, new: NewLeak, leak: &Leak) -> Rule {
        let everywhere = leak_prefix((new.prefix.0, 0));
        let entry = match new.from {
            NewFrom::Vrf(vrf) => Some(RuleEntry::Vrf(VrfId(vrf))),
            NewFrom::Port(place) => self.ids[place].map(RuleEntry::Port),
            NewFrom::Own => Some(RuleEntry::Own),
            NewFrom::All | NewFrom::Loose => None,
        };
        let selects = RuleSelector {
            source: everywhere,
            destination: leak.prefix,
            entry,
            sent_in: None,
            mark: MarkBits::default(),
            protocol: None,
            source_ports: None,
            destination_ports: None,
            dscp: None,
        };
        let table = match leak.into {
            Into::Table(table) => table,
            _ => LOOSE,
        };
        let action = RuleAction::Table { table, suppress: None };
        // The number of a rule is in its order.
        Rule { priority: new.rule.unwrap_or_default(), selects, action }
    }

    /// A route takes the place of another one to the same prefix.
    fn set_route(&mut self, leak: &Leak) -> bool {
        let spec = match leak.into {
            Into::Tenant((vrf, _)) => RouteSpec::Vrf { vrf: VrfId(vrf) },
            Into::Port((place, _), _) => match self.ids[place] {
                Some(port) if place != WAN_PLACE => RouteSpec::Connected { port },
                _ => return false,
            },
            _ => return false,
        };
        let table = table_of(leak.from);
        let (leak, prefix) = (*leak, leak.prefix);
        // The default routes of main are the fixture's.
        if leak.from == From::Tenant((0, 0)) && prefix.length() == 0 {
            return false;
        }
        let is_done = self.try_change(|tables| tables.set_route(table, prefix, spec));
        if is_done {
            let is_same = |other: &Leak| {
                other.rule.is_none() && (other.from, other.prefix) == (leak.from, leak.prefix)
            };
            self.config.leaks.retain(|other| !is_same(other));
        }
        is_done
    }

    fn target(&self, target: Target) -> Option<FilterTarget> {
        Some(match target {
            Target::Port(place) => FilterTarget::Port(self.ids[place]?),
            Target::Vrf(vrf) => FilterTarget::Vrf(VrfId(vrf)),
        })
    }

    fn filter(&mut self, target: Target, hook: FilterHook, is_v6: bool, verdict: Option<Verdict>) {
        let Some(of) = self.target(target) else { return };
        let place = FilterPlace { target: of, hook };
        let preference = u32::from(is_v6) + 1;
        let everywhere = range(if is_v6 { "::/0" } else { "0.0.0.0/0" });
        let all = Selector {
            source: everywhere,
            destination: everywhere,
            protocol: None,
            upper: UpperSelector::Any,
            fields: FieldsSelector::ANY,
        };
        let selects = FilterMatch {
            v4: (!is_v6).then_some(all),
            v6: is_v6.then_some(all),
            mark: MarkBits::default(),
        };
        let is_done = match verdict {
            None => {
                self.try_change(|tables| tables.remove_filter_rule(place, preference).map(drop))
            }
            Some(verdict) => {
                let action = FilterAction {
                    verdict: match verdict {
                        Verdict::Pass => FilterVerdict::Pass,
                        Verdict::Drop => FilterVerdict::Drop,
                        Verdict::Reject => FilterVerdict::Reject,
                    },
                    reject_with: RejectWith::ALL[0],
                    set_mark: None,
                    log: false,
                };
                let spec = FilterSpec { place, preference, selects, action };
                self.try_change(|tables| tables.set_filter_rule(spec))
            }
        };
        if is_done {
            let is_same = |filter: &Filter| {
                (filter.target, filter.hook, filter.is_v6) == (target, hook, is_v6)
            };
            self.config.filters.retain(|filter| !is_same(filter));
            if let Some(verdict) = verdict {
                let drops = verdict != Verdict::Pass;
                self.config.filters.push(Filter { target, hook, is_v6, drops });
            }
        }
    }

    fn queue(&mut self, target: Target, is_there: bool) {
        let device = match self.target(target) {
            Some(FilterTarget::Port(port)) => QdiscDevice::Port(port),
            Some(FilterTarget::Vrf(vrf)) => QdiscDevice::Vrf(vrf),
            None => return,
        };
        if matches!(target, Target::Port(place) if is_link(place)) {
            return;
        }
        let root = Qdisc::Tbf(Tbf { rate: 20_000, burst: 3_000, limit: 20_000 });
        let child = Qdisc::FqCodel(FqCodel::default());
        let handle = |text: &str| text.parse().unwrap();
        let is_done = self.try_change(|tables| match is_there {
            true => tables.set_qdisc(device, (handle("1:"), root), Some((handle("2:"), child))),
            false => tables.remove_qdisc(device).map(drop),
        });
        match is_there {
            _ if !is_done => {}
            true => _ = self.config.queues.insert(target),
            false => _ = self.config.queues.remove(&target),
        }
    }

    fn tap(&mut self, target: Target, [ingress, egress, drop]: [bool; 3]) {
        let Some(of) = self.target(target) else { return };
        let id = self.epochs.len() as u64;
        let points = TapPoints { ingress, egress, drop };
        let spec = TapSpec { id, target: of, points, snaplen: 65_535, rate: None, program: None };
        if self.tapped.len() >= 4 {
            let (gone, _) = self.tapped.pop_first().unwrap();
            self.gateway.change(|tables| _ = tables.remove_taps(|tap| tap.id == gone));
        }
        self.gateway.change(|tables| tables.add_tap(spec).unwrap());
        let (way, tenant) = match target {
            Target::Port(place) => (self.config.way(place), (0, 0)),
            Target::Vrf(vrf) => (None, self.config.tenant(vrf)),
        };
        self.tapped.insert(id, (target, way, tenant));
    }

    /// Changes the tables, if they take it.
    pub(crate) fn try_change(
        &mut self,
        change: impl FnOnce(&mut Tables) -> Result<(), TableError>,
    ) -> bool {
        let mut tables = (*self.gateway.publisher.current()).clone();
        let is_done = change(&mut tables).is_ok();
        if is_done {
            self.gateway.publisher.publish(tables);
        }
        is_done
    }

    fn spec(&self, place: usize, port: Port) -> PortSpec {
        let vlan = match PLACES[place] {
            Place::Vlan(parent, protocol, number) => {
                let id = VlanId::new(number).unwrap();
                // Where the parent is not there, the port is refused.
                let parent = self.ids[parent].unwrap_or(PortId(u16::MAX));
                Some(Vlan::new(parent, VlanTag { protocol, id }))
            }
            _ => None,
        };
        let if_id = match PLACES[place] {
            Place::Link(number) => IfId::new(number),
            _ => None,
        };
        let mut addresses = Vec::new();
        if port.site > 0 {
            let of = |is_v6, length| prefix(&format!("{}/{length}", host(is_v6, port.site, 1)));
            addresses.extend([of(false, 24), of(true, 64)]);
            addresses.extend((!is_link(place)).then(|| prefix("fe80::1/64")));
        }
        PortSpec {
            vrf: VrfId(port.vrf),
            link: match is_link(place) {
                true => packet::LinkKind::Ip,
                false => packet::LinkKind::Ethernet,
            },
            mtu: port.mtu,
            addresses,
            vlan,
            if_id,
            ..PortSpec::new(format!("port{place}"), Mac::default())
        }
    }

    fn add_sas(
        &mut self,
        identity: SaIdentity,
        [out, inward]: [Spi; 2],
        seals: Seals,
    ) -> Result<(), TableError> {
        self.seals.push(seals);
        let number = (self.seals.len() as u32) << 16;
        let SaIdentity { source, destination, .. } = identity;
        let back = SaIdentity { source: destination, destination: source, ..identity };
        let mut tables = (*self.gateway.publisher.current()).clone();
        for (identity, spi) in [(identity, out), (back, inward)] {
            let spec = SaSpec { identity, spi, no_ecn: false, no_pmtu_discovery: false };
            let seed = &mut StdRng::from_seed([3; 32]);
            let outbound = OutboundSa::new(spi, &keys(false), number, seed);
            let inbound = InboundSa::new(spi, &keys(false), WindowSize::new(64).unwrap(), 0);
            tables.add_sa(spec, outbound, inbound)?;
        }
        self.gateway.publisher.publish(tables);
        Ok(())
    }

    /// Everything by a link is protected, over the WAN. The tunnels have the same ends and selectors.
    pub(crate) fn add_tunnel_of_link(&mut self, place: usize) {
        let Place::Link(number) = PLACES[place] else { panic!("no link") };
        let if_id = IfId::new(number);
        let (vrf, inner) = (VrfId::MAIN, VrfId::MAIN);
        let (source, destination) = (ip(ME), ip(PEER));
        let identity = SaIdentity { vrf, inner, if_id, source, destination, reqid: 1 };
        let seals = Seals { link: Some(place), outer: (0, 0), is_v6: false };
        let spis = [true, false].map(|out| link_spi(number, out));
        self.add_sas(identity, spis, seals).unwrap();
        self.gateway.change(|tables| {
            for any in ["0.0.0.0/0", "::/0"] {
                for (direction, from, to) in [(Direction::Out, ME, PEER), (Direction::In, PEER, ME)]
                {
                    let spec = policy(direction, any, any, Action::Protect(template(from, to)));
                    tables.add_policy(PolicySpec { if_id, ..spec }).unwrap();
                }
            }
        });
    }

    /// IPv4 in IPv6, and IPv6 in IPv4, between the same ends and with the same SPIs in every VRF.
    fn set_tunnel(&mut self, vrf: u16, is_there: bool) {
        self.gateway.change(|tables| clear_tunnel(tables, VrfId(vrf)));
        if !is_there {
            return;
        }
        let outer = self.config.tenant(vrf);
        let id = VrfId(vrf);
        for is_v6 in [false, true] {
            let (source, destination) = ends(is_v6);
            let identity =
                SaIdentity { vrf: id, inner: id, if_id: None, source, destination, reqid: 1 };
            self.add_sas(identity, SPIS, Seals { link: None, outer, is_v6 }).unwrap();
            self.gateway.change(|tables| {
                let (any, far) =
                    if is_v6 { ("0.0.0.0/0", "10.9.0.0/16") } else { ("::/0", "fd09::/16") };
                for (direction, from, to, here, there) in [
                    (Direction::Out, any, far, source, destination),
                    (Direction::In, far, any, destination, source),
                ] {
                    let template = Template {
                        vrf: None,
                        source: Some(here),
                        destination: there,
                        reqid: 1,
                        spi: None,
                    };
                    let spec = policy(direction, from, to, Action::Protect(template));
                    tables.add_policy(PolicySpec { vrf: id, ..spec }).unwrap();
                }
            });
        }
    }
}

fn table_of(from: From) -> TableRef {
    match from {
        From::Tenant((vrf, _)) => TableRef::Vrf(VrfId(vrf)),
        _ => TableRef::Number(LOOSE),
    }
}

fn unleak(tables: &mut Tables, leak: &Leak) {
    match leak.rule {
        Some(number) => {
            let ids: Vec<RuleId> = tables.rules().map(|(id, _)| id).collect();
            ids.into_iter().filter(|id| id.number == number).for_each(|id| tables.remove_rule(id));
        }
        // It went with its port if that is gone.
        None => _ = tables.remove_route(table_of(leak.from), leak.prefix),
    }
}

/// Removes a VRF's policies and SAs.
fn clear_tunnel(tables: &mut Tables, vrf: VrfId) {
    for direction in Direction::ALL {
        let spd = &tables.vrf(vrf).unwrap().spd;
        let indices: Vec<_> = spd.policies(direction).map(|policy| policy.index).collect();
        indices.into_iter().for_each(|index| _ = tables.remove_policy(index).unwrap());
    }
    let specs: Vec<_> = tables.sad().iter().map(|sa| sa.spec).collect();
    for SaSpec { identity, spi, .. } in specs {
        if identity.vrf == vrf && identity.if_id.is_none() {
            tables.remove_sa(vrf, identity.destination, spi).unwrap();
        }
    }
}
