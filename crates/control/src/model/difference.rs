//! What is in force and not in a configuration: as commands that lead from one to the other, and
//! in words.

mod security;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::IpAddr;

use api::{
    Change, ChangeKind, Difference, FilterSpec, FilterTarget, FilterVerdict, LinkChange, LinkSpec,
    Origin, RouteSpec,
};
use pipeline::text::parse_flow;
use pipeline::{Flow, Owner};
use tables::Tables;
use types::{IpPrefix, Mac, MssClamp, PortId, ReversePath, Side, VlanProtocol};

use super::Control;
use super::desired::{Desired, DesiredPort, Found};
use super::filters::FilterKey;
use super::flows::{self, KnownNames};
use super::journal::Journal;
use super::qdiscs::{DesiredQdisc, node_at};
use super::reload::ports::{desired_port, port_changes};
use super::routes::is_as_said;
use crate::config::{Config, VrfSettings, qdisc_spec};
use crate::describe;
use crate::settings::{PortKind, PortSettings};

impl Control {
    /// How the gateway differs from one that was started with `config`.
    pub fn difference(&self, config: &Config) -> Difference {
        let mut journal = Journal::new(false);
        let (tables, desired) = (self.publisher.current(), &self.desired);
        difference(&tables, desired, config, &mut journal)
    }
}

/// Notes the commands that lead from `config` to what is in force, and returns the difference.
pub(super) fn difference(
    tables: &Tables,
    desired: &Desired,
    config: &Config,
    journal: &mut Journal,
) -> Difference {
    let said_ports = config.ports.iter().map(|said| (said.name.as_str(), said)).collect();
    let said_vrfs = config.vrfs.iter().map(|said| (said.name.as_str(), said)).collect();
    let changes = Vec::new();
    let mut differ = Differ { tables, desired, config, said_ports, said_vrfs, journal, changes };
    differ.gateway();
    differ.conntrack();
    differ.free_tables();
    differ.add_vrfs();
    differ.ports();
    differ.qdiscs();
    differ.neighbours();
    differ.filters();
    differ.flows();
    differ.firewall();
    differ.routes();
    differ.rules();
    differ.states();
    differ.ipsec(true);
    differ.policies();
    differ.ipsec(false);
    differ.ike();
    differ.highest_shares();
    differ.defaults();
    differ.delete_vrfs();
    Difference { changes: differ.changes }
}

struct Differ<'a> {
    tables: &'a Tables,
    desired: &'a Desired,
    config: &'a Config,
    /// Those of the file, by name.
    said_ports: HashMap<&'a str, &'a PortSettings>,
    said_vrfs: HashMap<&'a str, &'a VrfSettings>,
    journal: &'a mut Journal,
    changes: Vec<Change>,
}

/// A port that the file names and that is there as the file asked for it.
type Kept<'a> = (&'a PortSettings, &'a DesiredPort);

impl<'a> Differ<'a> {
    fn say(&mut self, change: ChangeKind, object: &str, text: impl Into<String>) {
        self.changes.push(Change { change, object: object.to_owned(), text: text.into() });
    }

    fn command(&mut self, origin: Origin, command: std::fmt::Arguments<'_>) {
        self.journal.note(origin, command);
    }

    fn conntrack(&mut self) {
        let said = self.config.conntrack.clone().unwrap_or_default();
        let is = self.desired.conntrack.clone().unwrap_or_default();
        for change in said.table_changes(&is).into_iter().chain(said.other_changes(&is)) {
            self.say(ChangeKind::Modified, "conntrack", change);
        }
    }

    fn gateway(&mut self) {
        let Some(is) = &self.desired.gateway else { return };
        for (object, change) in self.config.gateway.changes_to(is) {
            self.say(ChangeKind::Modified, object, change);
        }
    }

    /// VRFs of the file whose table another one has now give it up first: those that are gone go
    /// last, when nothing is in them.
    fn free_tables(&mut self) {
        let (config, tables) = (self.config, self.tables);
        let said: HashSet<_> = config.vrfs.iter().filter_map(|said| said.table).collect();
        let mut free = tables.free_tables(|table| said.contains(&table.0));
        let owners: HashMap<_, _> = self
            .desired
            .vrfs
            .iter()
            .filter_map(|(name, vrf)| Some((vrf.table?.0, name.as_str())))
            .collect();
        for said in &config.vrfs {
            let owner = said.table.and_then(|table| owners.get(&table));
            if owner.is_some_and(|owner| *owner != said.name)
                && let Some(free) = free.next()
            {
                self.journal.add_vrf(Origin::Runtime, &said.name, Some(free.0));
            }
        }
    }

    fn add_vrfs(&mut self) {
        for (name, vrf) in &self.desired.vrfs {
            let said = self.said_vrfs.get(name.as_str()).copied();
            let is_said = said.is_some();
            let of_file = said.and_then(|said| said.table);
            match vrf.table.map(|table| table.0) {
                _ if name == api::MAIN_VRF => {}
                None if !is_said => self.say(ChangeKind::Added, "vrf", name),
                Some(table) if !is_said => {
                    self.say(ChangeKind::Added, "vrf", format!("{name} table {table}"));
                }
                is if is != of_file => {
                    let text = |table: Option<u32>| {
                        table.map_or_else(
                            || "of the gateway's choice".to_owned(),
                            |it| it.to_string(),
                        )
                    };
                    let change = format!("{name}: table {} -> {}", text(of_file), text(is));
                    self.say(ChangeKind::Modified, "vrf", change);
                }
                _ => {}
            }
            if name != api::MAIN_VRF && (!is_said || vrf.origin == Origin::Runtime) {
                self.journal.add_vrf(vrf.origin, name, vrf.table.map(|table| table.0));
            }
        }
    }

    fn delete_vrfs(&mut self) {
        for said in &self.config.vrfs {
            if !self.desired.vrfs.contains_key(&said.name) {
                self.say(ChangeKind::Removed, "vrf", &said.name);
                self.command(Origin::Runtime, format_args!("vrf delete {}", said.name));
            }
        }
    }

    /// The port that the file asks for under this name, if it is still the file's.
    fn kept(&self, name: &str) -> Option<Kept<'a>> {
        let said = *self.said_ports.get(name)?;
        let port = self.desired.ports.get(name)?;
        let is_same = port.settings.kind == said.kind && port.origin == Origin::Configuration;
        // A VLAN goes with its parent.
        let stays = || said.kind.vlan().is_none_or(|(parent, _)| self.kept(parent).is_some());
        (is_same && stays()).then_some((said, port))
    }

    /// What the VLANs, xfrm links and ports in VRFs are that the file names. Started with another
    /// file, the gateway leaves out what commands have put on those that are others there.
    fn describe_ports(&mut self) {
        for said in &self.config.ports {
            if let Some(spec) = link_spec(said, Some(said.vrf.clone())) {
                self.journal.add_link(Origin::Configuration, &spec);
            } else if said.vrf != api::MAIN_VRF {
                let (name, vrf) = (&said.name, &said.vrf);
                self.command(Origin::Configuration, format_args!("link set dev {name} vrf {vrf}"));
            }
        }
    }

    fn ports(&mut self) {
        self.describe_ports();
        let (config, desired) = (self.config, self.desired);
        // What goes makes room for what comes.
        for said in config.parents_first().into_iter().rev() {
            let name = &said.name;
            match self.kept(name) {
                Some((said, port)) => {
                    let moves = port.vrf != said.vrf;
                    let stays = |own: &IpPrefix| {
                        !moves && port.addresses.contains(&(*own, Origin::Configuration))
                    };
                    for own in said.addresses.iter().filter(|own| !stays(own)) {
                        self.journal.delete_address(*own, name);
                    }
                }
                None => {
                    if !desired.ports.contains_key(name) {
                        self.say(ChangeKind::Removed, "port", describe::port(said));
                    }
                    if !said.kind.is_opened() {
                        self.command(Origin::Runtime, format_args!("link delete dev {name}"));
                    }
                }
            }
        }
        for (name, port) in desired.parents_first() {
            match self.kept(name) {
                Some((said, port)) => self.change_link(name, said, port),
                None => self.add_link(name, port),
            }
        }
        for (name, port) in &desired.ports {
            let stays = |own: &IpPrefix, origin: Origin| {
                self.kept(name).is_some_and(|(said, port)| {
                    port.vrf == said.vrf
                        && origin == Origin::Configuration
                        && said.addresses.contains(own)
                })
            };
            let added: Vec<_> =
                port.addresses.iter().filter(|(own, origin)| !stays(own, *origin)).collect();
            for (own, origin) in added {
                self.journal.add_address(*origin, *own, name);
            }
        }
    }

    fn change_link(&mut self, name: &str, said: &PortSettings, port: &DesiredPort) {
        let up = port.up;
        let mtu = mtu_said(said, port);
        let change = LinkChange {
            port: name.to_owned(),
            up: (up != said.up).then_some(up),
            mtu: (port.mtu != mtu).then_some(port.mtu),
            vrf: (port.vrf != said.vrf).then(|| port.vrf.clone()),
            side: (port.side != said.side).then_some(port.side),
            rpf: (port.reverse_path != said.reverse_path).then_some(port.reverse_path),
            mss: (port.mss != said.mss).then_some(port.mss),
        };
        if change != nothing(name) {
            self.journal.change_link(&change);
        }
        self.say_what_changed(name, said, port);
    }

    /// Says how a port differs from what the file says of it.
    fn say_what_changed(&mut self, name: &str, said: &PortSettings, port: &DesiredPort) {
        // That of a VLAN is at most its parent's, whatever was said.
        let most = self.desired.most_mtu(port);
        let found = Found { mtu: mtu_said(said, port), ..port.found };
        let of_file = desired_port(said, said.vrf.clone(), port.id, found);
        let mut words = port_changes(&of_file, port, most);
        if said.kind != port.settings.kind {
            words.insert(0, format!("{} -> {}", said.kind.name(), port.settings.kind.name()));
        }
        if !words.is_empty() {
            self.say(ChangeKind::Modified, "port", format!("{name}: {}", words.join(", ")));
        }
    }

    fn add_link(&mut self, name: &str, port: &DesiredPort) {
        match self.said_ports.get(name).copied() {
            None => {
                let settings = PortSettings {
                    addresses: port.addresses.iter().map(|(own, _)| *own).collect(),
                    vrf: port.vrf.clone(),
                    ..port.settings.clone()
                };
                self.say(ChangeKind::Added, "port", describe::port(&settings));
            }
            Some(said) => self.say_what_changed(name, said, port),
        }
        // Other ports come and go with the file alone.
        if let Some(spec) = link_spec(&port.settings, Some(port.vrf.clone())) {
            let usual = match spec.if_id {
                0 => port.found.mtu,
                _ => Found::XFRM_MTU,
            };
            let mtu = (port.mtu != usual).then_some(port.mtu);
            self.journal.add_link(port.origin, &LinkSpec { mtu, up: port.up, ..spec });
        }
        if !port.settings.kind.is_opened() {
            let side = (port.side != Side::Unset).then_some(port.side);
            let side = side.filter(|_| port.settings.kind.xfrm().is_none());
            let change = LinkChange {
                side,
                rpf: (port.reverse_path != ReversePath::Off).then_some(port.reverse_path),
                mss: (port.mss != MssClamp::Off).then_some(port.mss),
                ..nothing(name)
            };
            if change != nothing(name) {
                self.journal.change_link(&change);
            }
        }
    }

    /// How much of what VRFs share each may have.
    fn highest_shares(&mut self) {
        for (name, vrf) in &self.desired.vrfs {
            let is = self.tables.highest_share(vrf.id);
            let said = self.said_vrfs.get(name.as_str()).copied();
            let said = said.and_then(|said| said.highest_share);
            let before = said.unwrap_or_default();
            if is != before {
                let (before, is) = (before.percent(), is.percent());
                let text = format!("{name}: highest-share {before} -> {is}");
                self.say(ChangeKind::Modified, "vrf", text);
            }
            let is_said = said.is_some() == (vrf.highest_share == Origin::Configuration);
            if is != before || !is_said || vrf.highest_share == Origin::Runtime {
                self.journal.set_highest_share(Origin::Runtime, name, is);
            }
        }
    }

    fn qdiscs(&mut self) {
        let (said, desired) = (super::qdiscs::said(self.config), self.desired);
        // What was on a VLAN that went, went with it.
        let is_kept =
            |differ: &Self, dev: &str| differ.kept(dev).is_some() || desired.vrfs.contains_key(dev);
        for (dev, tree) in &said {
            let is = desired.qdiscs.iter().find(|(device, _)| device.name() == *dev);
            for (parent, node) in tree.nodes().rev() {
                if is.is_some_and(|(_, is)| node_at(is, parent).is_some()) {
                    continue;
                }
                let text = describe::qdisc(&qdisc_spec(dev, parent, node.handle, &node.qdisc));
                self.say(ChangeKind::Removed, "qdisc", text);
                if is_kept(self, dev) {
                    let place =
                        parent.map_or("root".to_owned(), |parent| format!("parent {parent}"));
                    let command = format_args!("qdisc delete dev {dev} {place}");
                    self.command(Origin::Runtime, command);
                }
            }
        }
        for (device, tree) in &desired.qdiscs {
            let dev = device.name();
            // Another root takes what stands under it along.
            let mut is_new = !is_kept(self, dev);
            for (parent, node) in tree.nodes() {
                let text = describe::qdisc(&qdisc_spec(dev, parent, node.handle, &node.qdisc));
                let before = said.get(dev).and_then(|tree| node_at(tree, parent));
                let is_same = |before: &&DesiredQdisc| {
                    (before.qdisc, before.handle) == (node.qdisc, node.handle)
                };
                match before {
                    Some(_) if before.filter(is_same).is_some() => {
                        if node.origin == Origin::Configuration && !is_new {
                            continue;
                        }
                    }
                    Some(_) => self.say(ChangeKind::Modified, "qdisc", &text),
                    None => self.say(ChangeKind::Added, "qdisc", &text),
                }
                is_new = true;
                self.command(node.origin, format_args!("qdisc replace {text}"));
            }
        }
    }

    fn neighbours(&mut self) {
        let text =
            |address: IpAddr, port: &str, mac: Mac| format!("{address} dev {port} lladdr {mac}");
        let mut is: BTreeMap<(&str, IpAddr), (Mac, Origin)> = BTreeMap::new();
        let of_port: HashMap<PortId, &str> =
            self.desired.ports.iter().map(|(name, port)| (port.id, name.as_str())).collect();
        for (port, address, neighbour) in self.desired.neighbours.iter() {
            if let (Some(name), true) = (of_port.get(&port), neighbour.origin() != Origin::Gateway)
            {
                is.insert((name, address), (neighbour.mac, neighbour.origin()));
            }
        }
        for said in &self.config.neighbours {
            let (port, address) = (said.port.as_str(), said.address);
            // What was on a VLAN that went, went with it.
            let is_kept = self.kept(port).is_some();
            let Some((mac, origin)) = is.get(&(port, address)).copied() else {
                self.say(ChangeKind::Removed, "neighbour", text(address, port, said.mac));
                if is_kept {
                    let command = format_args!("neigh delete {address} dev {port}");
                    self.command(Origin::Runtime, command);
                }
                continue;
            };
            is.remove(&(port, address));
            if mac != said.mac {
                let before = text(address, port, said.mac);
                self.say(ChangeKind::Modified, "neighbour", format!("{before} -> lladdr {mac}"));
            } else if is_kept && origin == Origin::Configuration {
                continue;
            }
            if is_kept && origin != Origin::Configuration {
                self.command(Origin::Runtime, format_args!("neigh delete {address} dev {port}"));
            }
            self.journal.put_neighbour(origin, address, mac, port);
        }
        for ((port, address), (mac, origin)) in is {
            self.say(ChangeKind::Added, "neighbour", text(address, port, mac));
            self.journal.put_neighbour(origin, address, mac, port);
        }
    }

    fn flows(&mut self) {
        let names = KnownNames(self.desired);
        let mut said: BTreeMap<String, Flow> = BTreeMap::new();
        for text in &self.config.flows {
            match parse_flow(text, &names) {
                Ok(flow) => _ = said.insert(flows::shown_strictly(&flow, self.desired), flow),
                // It names a VRF that is gone, and went with that.
                Err(_) => self.say(ChangeKind::Removed, "flow", text),
            }
        }
        for entry in self.tables.pipeline().sorted() {
            if entry.owner != Owner::User {
                continue;
            }
            let origin = self.desired.flows.get(&entry.id).copied().unwrap_or(Origin::Runtime);
            let text = flows::shown(&entry.flow, self.desired);
            let place = flows::shown_strictly(&entry.flow, self.desired);
            match said.remove(&place) {
                None => self.say(ChangeKind::Added, "flow", text.clone()),
                Some(same) if same != entry.flow => {
                    let same = flows::shown(&same, self.desired);
                    self.say(ChangeKind::Modified, "flow", format!("{same} -> {text}"));
                }
                Some(_) if origin == Origin::Configuration => continue,
                Some(_) => self.journal.delete_flow(&place),
            }
            self.journal.put_flow(origin, &text);
        }
        for (place, flow) in said {
            self.say(ChangeKind::Removed, "flow", flows::shown(&flow, self.desired));
            self.journal.delete_flow(&place);
        }
    }

    fn firewall(&mut self) {
        let is = self.desired.firewall.as_ref();
        match (is.map(|is| (is.spec(), is.origin)), self.config.firewall.as_ref()) {
            (Some((spec, origin)), said) if said != Some(spec) || origin == Origin::Runtime => {
                let kind = if said.is_some() { ChangeKind::Modified } else { ChangeKind::Added };
                if said != Some(spec) {
                    self.say(kind, "firewall", super::firewall::changes(said, spec));
                }
                self.journal.put_firewall(origin, spec);
            }
            (None, Some(said)) => {
                self.say(ChangeKind::Removed, "firewall", describe::extent(said));
                self.journal.delete_firewall();
            }
            _ => {}
        }
    }

    fn filters(&mut self) {
        // With everything said, as what is in force is.
        let mut said: BTreeMap<FilterKey, FilterSpec> = BTreeMap::new();
        for spec in &self.config.filters {
            let Ok(checked) = crate::check::filter(spec) else { continue };
            let reject_with =
                (spec.action == FilterVerdict::Reject).then_some(checked.action.reject_with);
            let spec = FilterSpec { protocol: Some(checked.protocol), reject_with, ..spec.clone() };
            said.insert(FilterKey::of(&spec), spec);
        }
        for (key, entry) in &self.desired.filters {
            let (spec, origin) = (&entry.spec, entry.origin);
            // What was on a VLAN that went, went with it.
            let is_kept = match &key.target {
                FilterTarget::Dev(port) => self.kept(port).is_some(),
                FilterTarget::Vrf(_) => true,
            };
            let Some(same) = said.remove(key) else {
                self.say(ChangeKind::Added, "filter", describe::filter(spec));
                self.journal.put_filter(origin, spec);
                continue;
            };
            if same != *spec {
                let change = format!("{} -> {}", describe::filter(&same), describe::filter(spec));
                self.say(ChangeKind::Modified, "filter", change);
            } else if is_kept && origin == Origin::Configuration {
                continue;
            }
            if is_kept && origin != Origin::Configuration {
                self.journal.delete_filter(&key.target, key.hook, key.pref);
            }
            self.journal.put_filter(origin, spec);
        }
        for (key, spec) in said {
            self.say(ChangeKind::Removed, "filter", describe::filter(&spec));
            let is_there = match &key.target {
                FilterTarget::Dev(port) => self.kept(port).is_some(),
                FilterTarget::Vrf(_) => true,
            };
            if is_there {
                self.journal.delete_filter(&key.target, key.hook, key.pref);
            }
        }
    }

    fn routes(&mut self) {
        type Place<'s> = (&'s str, Option<u32>, IpPrefix, u32);
        let place = |spec: &'a RouteSpec| -> Place<'a> {
            (spec.vrf.as_str(), spec.table, spec.destination, spec.metric)
        };
        let mut said: HashMap<Place<'a>, &RouteSpec> =
            self.config.routes.iter().map(|spec| (place(spec), spec)).collect();
        let desired = self.desired;
        for entry in desired.routes.values().flatten() {
            let (spec, text) = (&entry.spec, || describe::route(&entry.spec));
            match said.remove(&place(spec)) {
                Some(same) if same == spec && entry.origin == Origin::Configuration => continue,
                Some(same) => {
                    if !is_as_said(entry, same) {
                        let change = format!("{} -> {}", describe::route(same), text());
                        self.say(ChangeKind::Modified, "route", change);
                    }
                    if entry.origin != Origin::Configuration {
                        self.journal.delete_route(spec);
                    }
                }
                None => self.say(ChangeKind::Added, "route", text()),
            }
            self.journal.put_route(entry.origin, spec);
        }
        let config = self.config;
        for spec in config.routes.iter().filter(|spec| said.contains_key(&place(spec))) {
            self.say(ChangeKind::Removed, "route", describe::route(spec));
            self.journal.delete_route(spec);
        }
    }

    /// Rules of the same priority are asked in the order in which they were added.
    fn rules(&mut self) {
        let (desired, config) = (self.desired, self.config);
        let said: HashSet<_> = config.rules.iter().collect();
        for spec in &config.rules {
            if desired.rules.id_of(spec).is_none() {
                self.say(ChangeKind::Removed, "rule", describe::rule(spec));
                self.journal.delete_rule(spec);
            }
        }
        for (_, rule) in desired.rules.iter() {
            let is_said = said.contains(&rule.spec);
            if !is_said {
                self.say(ChangeKind::Added, "rule", describe::rule(&rule.spec));
            } else if rule.origin == Origin::Configuration {
                continue;
            } else {
                self.journal.delete_rule(&rule.spec);
            }
            self.journal.add_rule(rule.origin, &rule.spec);
        }
    }
}

/// The command's words for a VLAN or an xfrm link.
fn link_spec(settings: &PortSettings, vrf: Option<String>) -> Option<LinkSpec> {
    let (parent, vlan, protocol, if_id) = match &settings.kind {
        PortKind::Vlan { parent, tag } => (parent, tag.id.number(), tag.protocol, 0),
        PortKind::Xfrm { dev, if_id } => (dev, 0, VlanProtocol::default(), if_id.number()),
        _ => return None,
    };
    let (name, parent) = (settings.name.clone(), parent.clone());
    Some(LinkSpec { name, parent, vlan, if_id, protocol, mtu: settings.mtu, vrf, up: settings.up })
}

/// The MTU that the file asks for, with what a port has if the file says none.
fn mtu_said(said: &PortSettings, port: &DesiredPort) -> u16 {
    said.mtu.unwrap_or(match said.kind.xfrm() {
        Some(_) => Found::XFRM_MTU,
        None => port.found.mtu,
    })
}

/// A change of nothing about a port.
fn nothing(port: &str) -> LinkChange {
    LinkChange {
        port: port.to_owned(),
        up: None,
        mtu: None,
        vrf: None,
        side: None,
        rpf: None,
        mss: None,
    }
}
