//! VRFs.

use std::collections::HashMap;

use api::{
    FilterTarget, LinkChange, MAIN_VRF, Origin, PolicySpec, Refusal, RefusalCode, StateSpec,
    VrfChange, VrfView,
};
use pipeline::Owner;
use tables::{FilterPlace, QdiscDevice, TableId, TableRef, Tables};
use types::{FilterHook, Ike, IpPrefix, Ipsec, Share, VrfId};

use super::Draft;
use super::desired::{Desired, DesiredRoute, DesiredVrf, defaults_in_force};
use super::qdiscs::Device;
use super::refuse::refusal;
use super::routes::{places, settle};
use super::security::place_of_index;
use crate::describe;
use crate::grammar::{DOWN_WITH_PORTS, VRF_IS_UP};

/// Commands that an error names, or ports.
const COMMANDS: usize = 4;

/// What [`Draft::dropping_in`] calls flows.
const FLOWS: &str = "flows";

impl Draft<'_> {
    /// Adds a VRF, with the routing table `table` or one that the gateway chooses. Routes that the
    /// table had are the VRF's from now on; those by ports that are not in it wait for them.
    pub(super) fn add_vrf(
        &mut self,
        name: &str,
        table: Option<u32>,
        origin: Origin,
    ) -> Result<VrfId, Refusal> {
        self.add_vrf_beside(name, table, origin, |_| false)
    }

    /// The same. The gateway chooses no table that `is_meant` for another VRF.
    pub(super) fn add_vrf_beside(
        &mut self,
        name: &str,
        table: Option<u32>,
        origin: Origin,
        is_meant: impl Fn(TableId) -> bool,
    ) -> Result<VrfId, Refusal> {
        // What was said before some name was refused stays.
        match self.is_restoring {
            true => crate::check::name("name", name)?,
            false => crate::check::vrf_name("name", name)?,
        }
        if origin == Origin::Runtime && self.desired.ports.contains_key(name) {
            let message = format!("a port '{name}' exists, and both are links");
            return Err(Refusal::new(RefusalCode::Exists, message).with_hint("another name"));
        }
        let number = match table {
            Some(number) => {
                crate::check::table("table", number)?;
                TableId(number)
            }
            None => self.tables.free_table(is_meant),
        };
        if self.tables.vrf_named(name).is_some() {
            return Err(refusal(&tables::TableError::VrfExists(name.to_owned())));
        }
        let had = self.withdraw_table(number)?;
        let id = self.tables.add_vrf_with_table(name, number).map_err(|error| refusal(&error))?;
        let entry = DesiredVrf { table: table.map(TableId), ..DesiredVrf::new(id, origin) };
        self.desired.touch_vrf(name);
        self.desired.vrfs.insert(name.to_owned(), entry);
        if let Err(error) = self.adopt_routes(name, id, &had) {
            // What is desired is as it was; the caller drops the tables.
            self.desired.vrfs.remove(name);
            return Err(error);
        }
        // Routes into its table are used from now on, and rules about it.
        self.settle_far_routes().map_err(|error| refusal(&error))?;
        self.settle_rules_naming(name)?;
        self.note(|journal| journal.add_vrf(origin, name, table));
        Ok(id)
    }

    /// Makes routes that were of no VRF those of the VRF whose table they are in. If that is
    /// refused, what is desired stays as it was.
    fn adopt_routes(
        &mut self,
        name: &str,
        id: VrfId,
        places: &[(TableRef, IpPrefix)],
    ) -> Result<(), Refusal> {
        let own = |prefix: IpPrefix| (TableRef::Vrf(id), prefix);
        let routes = &self.desired.routes;
        let before: Vec<_> =
            places.iter().map(|(_, prefix)| routes.get(&own(*prefix)).cloned()).collect();
        // All of them before any is chosen: recursive ones depend on others.
        for (place, before) in places.iter().zip(&before) {
            let mut all = before.clone().unwrap_or_default();
            for mut entry in self.desired.routes.get(place).cloned().unwrap_or_default() {
                (entry.spec.vrf, entry.spec.table) = (name.to_owned(), None);
                let metric = entry.spec.metric;
                let at = all.partition_point(|other| other.spec.metric < metric);
                if all.get(at).is_none_or(|other| other.spec.metric != metric) {
                    all.insert(at, entry);
                }
            }
            self.desired.put_routes(own(place.1), all);
        }
        let mut settled = Ok(());
        for (_, prefix) in places {
            let routes = &self.desired.routes;
            let all = routes.get(&own(*prefix)).map_or(&[][..], Vec::as_slice);
            settled = settled.and_then(|()| settle(&mut self.tables, routes, own(*prefix), all));
        }
        for (place, before) in places.iter().zip(before) {
            match &settled {
                Ok(()) => self.desired.put_routes(*place, Vec::new()),
                Err(_) => self.desired.put_routes(own(place.1), before.unwrap_or_default()),
            }
        }
        settled.map_err(|error| refusal(&error))
    }

    /// Gives the routing tables of VRFs these numbers, all at once: VRFs may exchange theirs. Routes
    /// stay with their VRF. Those that a table of such a number had are the VRF's from now on; one
    /// that a command has added there gives way to none.
    pub(super) fn renumber_vrfs(&mut self, wanted: &[(&str, TableId)]) -> Result<(), Refusal> {
        let mut numbers = Vec::with_capacity(wanted.len());
        for (name, table) in wanted {
            crate::check::table("table", table.0)?;
            let id = self.desired.vrf(name)?;
            self.check_adoption(name, id, *table)?;
            numbers.push((id, *table));
        }
        let mut had = Vec::with_capacity(wanted.len());
        for (name, table) in wanted {
            self.desired.touch_vrf(name);
            had.push(self.withdraw_table(*table)?);
        }
        self.tables.renumber_tables(&numbers).map_err(|error| refusal(&error))?;
        let mut all = wanted.iter().zip(numbers).zip(had);
        all.try_for_each(|(((name, _), (id, _)), had)| self.adopt_routes(name, id, &had))?;
        // Routes into these tables are others now.
        self.settle_far_routes().map_err(|error| refusal(&error))
    }

    /// Refuses a table that a command has given a route which the VRF has already.
    fn check_adoption(&self, name: &str, id: VrfId, table: TableId) -> Result<(), Refusal> {
        for place in places(self.desired, TableRef::Number(table)) {
            let own = self.desired.routes.get(&(TableRef::Vrf(id), place.1));
            let own = own.map_or(&[][..], Vec::as_slice);
            let is_taken = |entry: &&DesiredRoute| {
                entry.origin != Origin::Configuration
                    && own.iter().any(|own| own.spec.metric == entry.spec.metric)
            };
            let theirs = self.desired.routes.get(&place).map_or(&[][..], Vec::as_slice);
            if let Some(taken) = theirs.iter().find(is_taken) {
                let route = describe::route(&taken.spec);
                let message = format!(
                    "VRF {name} cannot have table {table}: a command has added the route {route}, \
                    and the VRF has one of that prefix and metric"
                );
                let hint = format!("hitpath route del {route}");
                return Err(Refusal::new(RefusalCode::InUse, message).with_hint(hint));
            }
        }
        Ok(())
    }

    /// Takes the routes of a table that no VRF has out of the tables. Returns their places.
    fn withdraw_table(&mut self, number: TableId) -> Result<Vec<(TableRef, IpPrefix)>, Refusal> {
        let table = TableRef::Number(number);
        let places = places(self.desired, table);
        for (_, prefix) in &places {
            let is_there = self.tables.routing_table(table).and_then(|it| it.route_of(*prefix));
            if is_there.is_some() {
                self.tables.remove_route(table, *prefix).map_err(|error| refusal(&error))?;
            }
        }
        Ok(places)
    }

    /// Removes a VRF, unless what protects its ports would go with it.
    pub(super) fn delete_vrf_by_command(&mut self, name: &str) -> Result<(), Refusal> {
        self.check_no_zone_is_in(name)?;
        self.check_no_port_is_bared(name)?;
        self.delete_vrf(name)
    }

    /// Refuses that a VRF goes whose ports would leave flows or filters behind: they go to `main`, and
    /// whoever puts them up there has to know that nothing drops what these have dropped. What was kept of
    /// former commands is done all the same.
    fn check_no_port_is_bared(&self, name: &str) -> Result<(), Refusal> {
        let mut ports = self.desired.ports.of_vrf(name);
        let Some(first) = ports.next().filter(|_| !self.is_restoring) else { return Ok(()) };
        let lacking = self.lacking_in(MAIN_VRF, self.dropping_in(name)?)?;
        if lacking.is_empty() {
            return Ok(());
        }
        let what = lacking.join(" and ");
        let named: Vec<_> = ports.by_ref().take(COMMANDS - 1).collect();
        let named: Vec<_> = core::iter::once(first).chain(named).map(String::as_str).collect();
        let more = match ports.count() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let (ports, go) = match named.len() {
            1 => ("port", "goes"),
            _ => ("ports", "go"),
        };
        let named = named.join(", ");
        let message = format!(
            "VRF {name} has {what}, and {MAIN_VRF}, to which {ports} {named}{more} {go}, has none: nothing \
             would drop there what these drop"
        );
        let mut removed = Vec::new();
        for what in &lacking {
            match *what {
                FLOWS if self.has_flows_by_hand(self.desired.vrf(name)?) => {
                    removed.push(format!("`hitpath flow del vrf={name}`"));
                }
                FLOWS => removed.push("`hitpath firewall replace` without the VRF".to_owned()),
                _ => {
                    let hooks = self.hooks_filtered(self.desired.vrf(name)?);
                    removed.extend(
                        hooks.map(|hook| format!("`hitpath filter del vrf {name} {hook}`")),
                    );
                }
            }
        }
        let hint = format!(
            "move each port first, `hitpath link set {first} nomaster`, or remove the {what}, {}",
            removed.join(" and ")
        );
        Err(Refusal::new(RefusalCode::InUse, message).with_hint(hint))
    }

    /// What a port is told that leaves flows or filters behind, and comes to a VRF that has none.
    pub(super) fn doubt_move(&self, change: &LinkChange) -> Result<Option<String>, Refusal> {
        let port = self.desired.ports.get(&change.port);
        let (Some(port), Some(to)) = (port, change.vrf.as_deref()) else { return Ok(None) };
        let from = &port.vrf;
        let mut lacking = self.lacking_in(to, self.dropping_in(from)?)?;
        // The firewall goes with a port of its own.
        lacking.retain(|what| *what != FLOWS || self.tables.firewall_zone(port.id).is_none());
        let (what, port) = (lacking.join(" and "), &change.port);
        Ok((!lacking.is_empty()).then(|| {
            format!(
                "port {port} leaves the {what} of VRF {from}, and VRF {to} has none: nothing drops there \
                 what these have dropped"
            )
        }))
    }

    /// What packets of a VRF meet that may drop them.
    fn dropping_in(&self, vrf: &str) -> Result<Vec<&'static str>, Refusal> {
        let vrf = self.desired.vrf(vrf)?;
        let mut dropping = Vec::new();
        if self.tables.pipeline().has(vrf) {
            dropping.push(FLOWS);
        }
        if self.hooks_filtered(vrf).next().is_some() {
            dropping.push("filters");
        }
        Ok(dropping)
    }

    /// Of that, what packets of another VRF do not meet.
    fn lacking_in(
        &self,
        vrf: &str,
        mut dropping: Vec<&'static str>,
    ) -> Result<Vec<&'static str>, Refusal> {
        let there = self.dropping_in(vrf)?;
        dropping.retain(|what| !there.contains(what));
        Ok(dropping)
    }

    /// Whether a VRF has flows that the firewall has not made.
    fn has_flows_by_hand(&self, vrf: VrfId) -> bool {
        let mut flows = self.tables.pipeline().entries();
        flows.any(|entry| entry.flow.vrf == vrf && entry.owner == Owner::User)
    }

    /// Where a VRF has filters.
    fn hooks_filtered(&self, vrf: VrfId) -> impl Iterator<Item = FilterHook> {
        let target = tables::FilterTarget::Vrf(vrf);
        let is_filtered = move |hook: &FilterHook| {
            self.tables.filter(FilterPlace { target, hook: *hook }).is_some()
        };
        FilterHook::ALL.into_iter().filter(is_filtered)
    }

    /// Removes a VRF that has no policies and no SAs. Its ports go back to `main`, as with Linux,
    /// but down and without addresses: what was one tenant's is not routed among others before
    /// somebody says so. Its routes go with it.
    pub(super) fn delete_vrf(&mut self, name: &str) -> Result<(), Refusal> {
        let id = self.desired.vrf(name)?;
        self.tables.check_vrf_removal(id).map_err(|error| {
            let refused = refusal(&error);
            match refused.code {
                RefusalCode::InUse => refused.with_hint(emptied_by(self.desired, name)),
                _ => refused,
            }
        })?;
        for port in self.desired.ports.of_vrf(name).cloned().collect::<Vec<_>>() {
            self.send_back(&port)?;
        }
        self.drop_flows_of_vrf(id)?;
        self.desired.touch_vrf(name);
        self.tables.remove_vrf(id).map_err(|error| refusal(&error))?;
        // No worker runs yet that could have made connections.
        if !self.is_restoring && self.tables.connections().is_some() {
            self.tables.rest_vrf_number(id);
            self.desired.vrfs_ending.insert(id);
        }
        self.desired.vrfs.remove(name);
        self.settle_rules_naming(name)?;
        self.desired.forget_qdisc(&Device::Vrf(name.to_owned()));
        self.desired.forget_filters(&FilterTarget::Vrf(name.to_owned()));
        for place in places(self.desired, id.into()) {
            self.desired.put_routes(place, Vec::new());
        }
        // Another route to the same destinations may be used in place of one into the VRF.
        self.settle_far_routes().map_err(|error| refusal(&error))?;
        self.note(|journal| journal.note(Origin::Runtime, format_args!("vrf delete {name}")));
        Ok(())
    }

    /// Moves a port to `main`, down and without addresses.
    fn send_back(&mut self, name: &str) -> Result<(), Refusal> {
        let mut port = self.desired.port(name)?.clone();
        for (own, _) in core::mem::take(&mut port.addresses) {
            self.note(|journal| journal.delete_address(own, name));
        }
        port.vrf = MAIN_VRF.to_owned();
        port.up = false;
        let change = LinkChange {
            port: name.to_owned(),
            up: Some(false),
            vrf: Some(MAIN_VRF.to_owned()),
            ..LinkChange::default()
        };
        self.note(|journal| journal.change_link(&change));
        self.change_port(name, port)
    }

    pub(super) fn change_vrf(&mut self, change: &VrfChange) -> Result<(), Refusal> {
        let vrf = self.desired.vrf(&change.name)?;
        // Before anything changes.
        let share = change.highest_share.map(crate::check::highest_share).transpose()?;
        if let Some(ipsec) = change.ipsec {
            self.set_ipsec(&change.name, vrf, ipsec, self.origin)?;
        }
        if let Some(ike) = change.ike {
            self.set_ike(&change.name, vrf, ike, self.origin)?;
        }
        match share {
            Some(share) => self.set_highest_share(&change.name, vrf, share, self.origin),
            None => Ok(()),
        }
    }

    pub(super) fn set_highest_share(
        &mut self,
        name: &str,
        vrf: VrfId,
        share: Share,
        origin: Origin,
    ) -> Result<(), Refusal> {
        self.tables.set_highest_share(vrf, share).map_err(|error| refusal(&error))?;
        if let Some(entry) = self.desired.vrfs.get_mut(name) {
            entry.highest_share = origin;
        }
        self.note(|journal| journal.set_highest_share(origin, name, share));
        Ok(())
    }

    pub(super) fn set_ike(
        &mut self,
        name: &str,
        vrf: VrfId,
        ike: Ike,
        origin: Origin,
    ) -> Result<(), Refusal> {
        self.tables.set_ike(vrf, ike).map_err(|error| refusal(&error))?;
        if let Some(entry) = self.desired.vrfs.get_mut(name) {
            entry.ike = origin;
        }
        self.note(|journal| journal.set_ike(origin, name, ike));
        Ok(())
    }

    pub(super) fn set_ipsec(
        &mut self,
        name: &str,
        vrf: VrfId,
        ipsec: Ipsec,
        origin: Origin,
    ) -> Result<(), Refusal> {
        self.tables.set_ipsec(vrf, ipsec).map_err(|error| refusal(&error))?;
        if let Some(entry) = self.desired.vrfs.get_mut(name) {
            entry.ipsec = origin;
        }
        // With policies `auto` is `required`, also after a restart that has lost them.
        let ipsec = self.ipsec_of(vrf).unwrap_or(ipsec);
        self.note(|journal| journal.set_ipsec(name, ipsec));
        Ok(())
    }
}

/// The commands that take out what keeps a VRF from being removed: its policies and SAs, and those of
/// tunnels whose outer packets are in another VRF.
fn emptied_by(desired: &Desired, name: &str) -> String {
    let policies = || desired.policies.iter().map(|(index, entry)| (*index, &entry.spec));
    let states = || desired.states.values().map(|entry| &entry.spec);
    let is_own = |spec: &PolicySpec| spec.if_id == 0 && spec.vrf == name;
    let mut commands = Vec::new();
    if policies().any(|(_, spec)| is_own(spec)) {
        commands.push(format!("hitpath xfrm policy flush vrf {name}"));
    }
    if states().any(|spec| spec.vrf == name) {
        commands.push(format!("hitpath xfrm state flush vrf {name}"));
    }
    let inside = states().filter(|spec| spec.vrf != name && spec.clear_vrf() == name);
    commands.extend(inside.map(|StateSpec { vrf, destination, spi, .. }| {
        format!("hitpath xfrm state delete dst {destination} spi {spi:#x} vrf {vrf}")
    }));
    let tunnels = policies().filter(|(_, spec)| {
        let vrf = spec.template.as_ref().and_then(|template| template.vrf.as_deref());
        !is_own(spec) && vrf == Some(name)
    });
    commands.extend(tunnels.map(|(index, spec)| {
        format!("hitpath xfrm policy delete {}", place_of_index(index, spec))
    }));
    let more = match commands.len().checked_sub(COMMANDS) {
        None | Some(0) => String::new(),
        Some(more) => format!(", and {more} more like these"),
    };
    commands.truncate(COMMANDS);
    commands.join(", ") + &more
}

/// Changes a VRF as a link. It is up from the beginning, so that setting it up, as has to be done
/// with Linux, changes nothing.
pub(super) fn change_as_link(change: &LinkChange) -> Result<(), Refusal> {
    let LinkChange { port, up, mtu, vrf, side, rpf, mss } = change;
    let what = match () {
        () if *up == Some(false) => return Err(unsupported(VRF_IS_UP, DOWN_WITH_PORTS)),
        () if mtu.is_some() => "MTU",
        () if side.is_some() => "side",
        () if rpf.is_some() => "rpf",
        () if mss.is_some() => "mss",
        () if vrf.is_some() => {
            return Err(unsupported("a VRF is not in another one", "its ports can be moved"));
        }
        () => return Ok(()),
    };
    Err(unsupported(&format!("{port} is a VRF, which has no {what}"), "that of its ports"))
}

fn unsupported(message: &str, hint: &str) -> Refusal {
    Refusal::new(RefusalCode::Unsupported, message).with_hint(hint)
}

/// A VRF without what is counted of it, which takes a look at all ports and SAs.
pub(super) fn uncounted(tables: &Tables, desired: &Desired, name: &str) -> Option<VrfView> {
    let vrf = desired.vrfs.get(name)?;
    let view = view(tables, name, vrf, (Vec::new(), 0));
    Some(VrfView { features: Vec::new(), ..view })
}

pub(super) fn vrfs(tables: &Tables, desired: &Desired) -> Vec<VrfView> {
    let (mut ports, mut states) = (HashMap::<_, Vec<_>>::new(), HashMap::<_, u64>::new());
    for (name, port) in &desired.ports {
        ports.entry(port.vrf.as_str()).or_default().push(name.clone());
    }
    for (vrf, ..) in desired.states.keys() {
        *states.entry(*vrf).or_default() += 1;
    }
    let mut views: Vec<_> = desired
        .vrfs
        .iter()
        .map(|(name, vrf)| {
            let ports = ports.remove(name.as_str()).unwrap_or_default();
            view(tables, name, vrf, (ports, states.get(&vrf.id).copied().unwrap_or(0)))
        })
        .collect();
    views.sort_by_key(|view| view.id);
    views
}

/// What packets of a VRF may meet beside its routes and policies.
fn features(tables: &Tables, vrf: &tables::Vrf) -> Vec<String> {
    let is_of_vrf = |port| tables.port(port).is_some_and(|port| port.spec.vrf == vrf.id);
    // Frames of a VLAN pass the disciplines of its parents as well; filters and taps of these they
    // do not.
    let is_queued = tables.qdiscs().on(QdiscDevice::Vrf(vrf.id)).is_some()
        || tables.ports_of(vrf.id).any(|port| port.is_queued);
    let is_tapped = tables.taps().any(|tap| match tap.spec.target {
        tables::FilterTarget::Vrf(id) => id == vrf.id,
        tables::FilterTarget::Port(port) => is_of_vrf(port),
    });
    let on = &vrf.features;
    named_features([
        on.is_filtered,
        on.has_flows,
        on.has_links,
        on.is_ruled,
        on.is_leaking,
        on.is_clamped,
        is_queued,
        is_tapped,
    ])
}

/// The names of features that are on.
pub(super) fn named_features(on: [bool; 8]) -> Vec<String> {
    let names = ["filter", "flow", "xfrm", "rule", "leak", "mss", "qdisc", "tap"];
    let named = names.into_iter().zip(on);
    named.filter(|(_, is_on)| *is_on).map(|(name, _)| name.to_owned()).collect()
}

fn view(
    tables: &Tables,
    name: &str,
    vrf: &DesiredVrf,
    (ports, states): (Vec<String>, u64),
) -> VrfView {
    let count = |count: usize| count as u64;
    let is = tables.vrf(vrf.id);
    VrfView {
        name: name.to_owned(),
        id: vrf.id.0,
        table: is.map_or(0, |vrf| vrf.table.0),
        ports,
        routes: count(is.map_or(0, tables::Vrf::route_count)),
        policies: count(is.map_or(0, |vrf| {
            let all = tables::Direction::ALL.iter();
            all.map(|direction| vrf.spd.policies(*direction).len()).sum()
        })),
        states,
        ipsec: is.map_or(Ipsec::Auto, |vrf| vrf.ipsec),
        ike: is.map_or(Ike::Bypass, |vrf| vrf.ike),
        highest_share: tables.highest_share(vrf.id).percent(),
        closed: is.is_some_and(|vrf| vrf.is_closed()),
        features: is.map_or_else(Vec::new, |vrf| features(tables, vrf)),
        defaults: defaults_in_force(tables, name, vrf.id),
        origin: vrf.origin,
    }
}
