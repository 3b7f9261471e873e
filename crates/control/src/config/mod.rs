//! The configuration file.
//!
//! [`load`] reads it in three steps: TOML, which recovers from errors; each table by itself; and
//! what the tables say of each other. Every step notes all that is wrong, with its place, and a
//! file with anything wrong is refused whole.

mod addresses;
mod circles;
mod conntrack;
mod cross;
mod diagnostic;
mod filter;
mod firewall;
mod flows;
mod ipsec;
pub mod keys;
mod qdisc;
mod reader;
mod rule;
mod sections;
mod security;
mod shadow;
mod tunnels;
mod write;
mod write_firewall;

use std::collections::{HashMap, HashSet};
use std::path::Path;
use types::{Ike, Ipsec, Share, VlanId};

use api::{
    DefaultAction, Direction, FilterSpec, FirewallSpec, Key, NeighbourSpec, PolicySpec, QdiscSpec,
    RouteSpec, RuleSpec, StateSpec,
};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use self::diagnostic::Errors;
pub use self::diagnostic::near;
pub(crate) use self::diagnostic::nearest;
pub use self::diagnostic::{Diagnostic, Diagnostics};
pub use self::flows::FlowPlaces;
pub(crate) use self::flows::WrongFlow;
use self::keys::{SECTIONS, Section};
pub(crate) use self::qdisc::qdisc_spec;
use self::reader::{Table, quoted};
pub(crate) use self::security::gateways;
pub use self::write::Written;
pub(crate) use self::write::write;
use self::write_firewall::write_firewall;
use crate::conntrack_settings::ConntrackSettings;
use crate::elsewhere;
use crate::settings::{GatewaySettings, PortSettings};

/// A port, its VLAN, and that one's.
const MAX_FAMILY: usize = 1 + VlanId::MAX_TAGS;

/// The largest configuration file in bytes.
pub const MAX_FILE: usize = 64 << 20;

/// A checked configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// What concerns the gateway as a whole.
    pub gateway: GatewaySettings,
    /// How connections are tracked, where the file says it.
    pub conntrack: Option<ConntrackSettings>,
    /// The VRFs, in the file's order. `main` is among them only where the file names it.
    pub vrfs: Vec<VrfSettings>,
    /// The ports, in the file's order.
    pub ports: Vec<PortSettings>,
    /// The queueing disciplines, in the file's order.
    pub qdiscs: Vec<QdiscSpec>,
    /// The routes, in the file's order.
    pub routes: Vec<RouteSpec>,
    /// The policy rules, in the file's order.
    pub rules: Vec<RuleSpec>,
    /// The neighbours, in the file's order.
    pub neighbours: Vec<NeighbourSpec>,
    /// The SAs, in the file's order.
    pub states: Vec<StateSpec>,
    /// Whether keys of them stand in the file itself, and not in the one that `keys-file` names.
    pub has_keys: bool,
    /// The policies, in the file's order.
    pub policies: Vec<PolicySpec>,
    /// The rules of filters, in the file's order, each with its preference.
    pub filters: Vec<FilterSpec>,
    /// The flows, in the file's order.
    pub flows: Vec<String>,
    /// Where they are.
    pub flow_places: FlowPlaces,
    /// The firewall, where the file has one.
    pub firewall: Option<FirewallSpec>,
    /// What is right, and worth a note, with its place: a number that was rounded, policies that
    /// defeat their lookup; of [`check`] also policies that never match.
    pub notes: Vec<Diagnostic>,
}

/// Bytes of an interface's MTU that the tags of a VLAN of a VLAN take at most.
const MOST_TAGS: u16 = 8;

/// The largest MTU of a port.
const MAX_MTU: u16 = 9216;

impl Config {
    /// The MTU of each interface whose port has VLANs with an `mtu`, by the port's name, as long as
    /// the interface is not opened: it is unknown, and taken to be enough for the port, its VLANs,
    /// and theirs. It may be larger than the `mtu` of the port, to have room for tags.
    pub fn presumed_mtus(&self) -> HashMap<&str, u16> {
        let by_name: HashMap<&str, &PortSettings> =
            self.ports.iter().map(|port| (port.name.as_str(), port)).collect();
        let above = |port: &PortSettings| by_name.get(port.kind.vlan()?.0).copied();
        let mut presumed = HashMap::new();
        for port in &self.ports {
            let Some(mtu) = port.mtu else { continue };
            // Two levels, whatever the file says.
            let parent = above(port);
            let opened = parent.and_then(above).or(parent);
            let Some(opened) = opened else { continue };
            if matches!(opened.kind, crate::PortKind::AfPacket { .. }) {
                let own = opened.mtu.unwrap_or(1500);
                let most = presumed.entry(opened.name.as_str()).or_insert(own);
                *most = mtu.saturating_add(MOST_TAGS).min(MAX_MTU).max(*most);
            }
        }
        presumed
    }

    /// The ports, parents before their VLANs, and xfrm links behind them all.
    pub(crate) fn parents_first(&self) -> Vec<&PortSettings> {
        let parents: HashMap<_, _> = self
            .ports
            .iter()
            .filter_map(|port| Some((port.name.as_str(), port.kind.vlan()?.0)))
            .collect();
        let depth = |port: &&PortSettings| {
            let above = |name: &&str| parents.get(name).copied();
            core::iter::successors(Some(port.name.as_str()), above).take(MAX_FAMILY).count()
        };
        let mut all: Vec<_> = self.ports.iter().collect();
        all.sort_by_key(|port| (port.kind.xfrm().is_some(), depth(port)));
        all
    }
}

/// A VRF as the configuration file asks for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VrfSettings {
    /// Its name.
    pub name: String,
    /// The number of its routing table, where the file says it.
    pub table: Option<u32>,
    /// Its default actions, where the file says them.
    pub defaults: Vec<(Direction, DefaultAction)>,
    /// Whether it is an IPsec gateway, where the file says so.
    pub ipsec: Option<Ipsec>,
    /// Whether IKE is asked policies, where the file says so.
    pub ike: Option<Ike>,
    /// The most that it may have of what VRFs share, where the file says it.
    pub highest_share: Option<Share>,
}

/// Something that the file says, with the table that says it.
#[derive(Debug)]
struct Said<'t, T> {
    value: T,
    table: Table<'t>,
}

/// Reads and checks a configuration file whose contents are `text`. `name` is what errors call it.
///
/// # Errors
/// Everything that is wrong with it, at once.
pub fn load(name: &str, text: &str) -> Result<Config, Diagnostics> {
    load_with_keys(name, text, &|path, _| Err(format!("{} is not read here", path.display())))
}

/// Reads the keys of a file: those that `key:1`, `key:2` and so on stand for. The file has to say
/// the same as `keys-id`, if either says something.
pub type ReadKeys<'r> = &'r dyn Fn(&Path, Option<&str>) -> Result<Vec<Key>, String>;

/// The same for a file whose keys may be in another one, which `read_keys` reads.
///
/// # Errors
/// As [`load`].
pub fn load_with_keys(
    name: &str,
    text: &str,
    read_keys: ReadKeys<'_>,
) -> Result<Config, Diagnostics> {
    load_with(name, text, Notes::Quick, read_keys, &|_, _| Ok(()))
}

/// Says what is wrong with the file that `token-file` of a section names, if something is.
pub type CheckToken<'r> = &'r dyn Fn(&Path, &str) -> Result<(), String>;

/// As [`load_with_keys`], with notes that may take seconds to find: policies that never match a
/// packet. Files with tokens are looked at too.
///
/// # Errors
/// As [`load`].
pub fn check(
    name: &str,
    text: &str,
    read_keys: ReadKeys<'_>,
    check_token: CheckToken<'_>,
) -> Result<Config, Diagnostics> {
    load_with(name, text, Notes::All, read_keys, check_token)
}

/// Reads and checks the `[firewall]` of a file that may have nothing else: of ports and VRFs nothing
/// is known. Returns it with what is worth a note.
///
/// # Errors
/// Everything that is wrong with it, at once.
pub fn load_firewall(
    name: &str,
    text: &str,
) -> Result<(Option<FirewallSpec>, Vec<Diagnostic>), Diagnostics> {
    let mut errors = Errors::new(text);
    if text.len() > MAX_FILE {
        errors.add(0, format!("the file has {} bytes", text.len()), None);
        return Err(errors.into_diagnostics(name));
    }
    let (document, broken) = DeTable::parse_recoverable(text);
    for error in &broken {
        let at = error.span().map_or(0, |span| span.start);
        errors.add(at, error.message().trim_end(), None);
    }
    let mut spec = None;
    if broken.is_empty() {
        refuse_unknown_sections(document.get_ref(), &mut errors);
        let table = single(document.get_ref(), "firewall", &mut errors);
        let said = table.and_then(|table| firewall::firewall(table, &mut errors));
        if let Some(said) = said {
            said.check(&mut errors);
            said.note_shadowed(&mut errors);
            spec = Some(said.spec);
        }
    }
    if errors.count() > 0 {
        return Err(errors.into_diagnostics(name));
    }
    Ok((spec, errors.into_notes(name).0))
}

/// The firewall as a configuration file has it.
pub fn firewall_text(spec: &FirewallSpec) -> String {
    let mut text = String::new();
    write_firewall(&mut text, spec);
    text
}

/// Which notes are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Notes {
    /// Those that take no time.
    Quick,
    /// Those that take long as well.
    All,
}

fn load_with(
    name: &str,
    text: &str,
    notes: Notes,
    read_keys: ReadKeys<'_>,
    check_token: CheckToken<'_>,
) -> Result<Config, Diagnostics> {
    let mut errors = Errors::new(text);
    let (mut config, values) = read(text, notes, (read_keys, check_token), &mut errors);
    if errors.count() > 0 {
        return Err(errors.into_diagnostics(name));
    }
    config.flow_places = FlowPlaces::new(name, text, &values);
    config.notes = errors.into_notes(name).0;
    Ok(config)
}

/// How other files are read.
type Readers<'r> = (ReadKeys<'r>, CheckToken<'r>);

/// Returns the configuration, and where its flows are.
fn read(
    text: &str,
    notes: Notes,
    readers: Readers<'_>,
    errors: &mut Errors<'_>,
) -> (Config, Vec<usize>) {
    if text.len() > MAX_FILE {
        errors.add(
            0,
            format!("the file has {} bytes", text.len()),
            Some(format!("{MAX_FILE} bytes at most")),
        );
        return <_>::default();
    }
    let (document, broken) = DeTable::parse_recoverable(text);
    let broken: Vec<_> = broken
        .iter()
        .map(|error| (error.span().map_or(0, |span| span.start), error.message().trim_end()))
        .collect();
    let config = interpret(&document, broken.is_empty(), notes, readers, errors);
    // What the parser makes up where it could not read on is not what the file says.
    errors.forget_lines(broken.iter().map(|(at, _)| *at));
    for (at, message) in broken {
        errors.add(at, message, ipsec::hint_for_line(text, at));
    }
    config
}

/// Returns the configuration, and where its flows are. `whole` says that all of the file was TOML.
fn interpret(
    document: &Spanned<DeTable<'_>>,
    whole: bool,
    notes: Notes,
    (read_keys, check_token): Readers<'_>,
    errors: &mut Errors<'_>,
) -> (Config, Vec<usize>) {
    let document = document.get_ref();
    refuse_unknown_sections(document, errors);
    let whole = whole && errors.count() == 0;

    let table = single(document, "gateway", errors);
    let keys = table.map_or(Some(Vec::new()), |table| sections::keys(&table, read_keys, errors));
    let mut gateway = table.map(|table| sections::gateway(table, errors)).unwrap_or_default();
    gateway.metrics = single(document, "metrics", errors)
        .map(|table| sections::metrics(table, errors))
        .unwrap_or_default();
    gateway.page = single(document, "page", errors)
        .map(|table| sections::page(&table, errors))
        .unwrap_or_default();
    gateway.audit = single(document, "audit", errors)
        .map(|table| sections::audit(&table, errors))
        .unwrap_or_default();
    for (name, file) in
        [("metrics", &gateway.metrics.token_file), ("page", &gateway.page.token_file)]
    {
        let wrong = file.as_ref().and_then(|file| check_token(file, name).err());
        if let (Some(wrong), Some(table)) = (wrong, single(document, name, &mut Errors::new(""))) {
            errors.add(table.place("token-file"), wrong, None);
        }
    }
    if let Some(address) = gateway.page.address.filter(|it| Some(*it) == gateway.metrics.address)
        && let Some(page) = single(document, "page", &mut Errors::new(""))
    {
        let message =
            format!("{address} is the address in [metrics], and only one can listen there");
        let hint = "another port, as in 8080".to_owned();
        errors.add(page.place("address"), message, Some(hint));
    }
    gateway.ipsec = single(document, "ipsec", errors)
        .map(|table| ipsec::ipsec(table, errors))
        .unwrap_or_default();
    let conntrack =
        single(document, "conntrack", errors).map(|table| conntrack::conntrack(table, errors));
    let before = errors.count();
    let vrfs = each(document, "vrf", errors, sections::vrf);
    let ports = each(document, "port", errors, sections::port);
    // Then nothing is unknown of what others say of them.
    let is_read = errors.count() == before;
    let read = cross::Read {
        vrfs,
        ports,
        qdiscs: each(document, "qdisc", errors, qdisc::qdisc),
        routes: each(document, "route", errors, sections::route),
        rules: each(document, "rule", errors, rule::rule),
        neighbours: each(document, "neighbour", errors, sections::neighbour),
        states: each(document, "sa", errors, |table, errors| {
            security::state(table, keys.as_deref(), errors)
        }),
        policies: each(document, "policy", errors, security::policy),
        filters: each(document, "filter", errors, filter::filter),
        flows: each(document, "flow", errors, |table, errors| {
            table.required_text("flow", errors).map(|found| found.value.to_owned())
        }),
    };

    let fire = single(document, "firewall", errors);
    let fire = fire.and_then(|table| firewall::firewall(table, errors));

    // What is said of something that could not be read would be refused for that alone, which helps
    // nobody.
    if errors.count() == 0 {
        cross::check(&read, None, errors);
        cross::check_buffers(&gateway, &read.ports, errors);
        cross::note_keys(&read.states, errors);
        tunnels::note(&read, errors);
        fire.iter().for_each(|fire| fire.check_with(&read, errors));
        // A file that was emptied by mistake must not empty the gateway.
        if read.ports.is_empty() {
            errors.add(
                0,
                "the file asks for no port",
                Some("[[port]] with name and kind".to_owned()),
            );
        }
    } else if whole {
        if let (Some(vrfs), Some(ports)) = (names(document, "vrf"), names(document, "port")) {
            cross::check(&read, Some(cross::Unread { vrfs, ports, is_read }), errors);
        }
        cross::check_buffers(&gateway, &read.ports, errors);
        fire.iter().for_each(|fire| _ = fire.check(errors));
    }
    if notes == Notes::All && errors.count() == 0 {
        shadow::note(&read.policies, errors);
        shadow::note_filters(&read.filters, errors);
        fire.iter().for_each(|fire| fire.note_shadowed(errors));
    }
    let has_keys = read.states.iter().any(|state| security::has_own_key(&state.table));
    let flow_values: Vec<_> = read.flows.iter().map(|flow| flow.table.place("flow")).collect();
    let config = Config {
        gateway,
        conntrack,
        vrfs: values(read.vrfs),
        ports: values(read.ports),
        qdiscs: values(read.qdiscs),
        routes: values(read.routes).into_iter().map(RouteSpec::with_own_way).collect(),
        rules: values(read.rules),
        neighbours: values(read.neighbours),
        states: values(read.states),
        has_keys,
        policies: values(read.policies),
        filters: values(read.filters),
        flows: values(read.flows),
        flow_places: FlowPlaces::default(),
        firewall: fire.map(|fire| fire.spec),
        notes: Vec::new(),
    };
    // The tables have the last word. What they alone refuse is rare, and but for flows no one place in
    // the file is to blame for it.
    if errors.count() == 0 {
        let plan = crate::Control::new(1, [0; 32]).plan(config.clone());
        if let Some(refusal) = plan.refusal() {
            let wrong = plan.wrong_flow();
            let at = wrong.map(|wrong| wrong.byte(flow_values[wrong.at], &config.flows[wrong.at]));
            errors.add(at.unwrap_or(0), refusal.message.clone(), refusal.hint.clone());
        }
        plan.warnings().iter().for_each(|warning| errors.note(0, warning));
        if notes == Notes::All {
            plan.boundaries().iter().for_each(|boundary| errors.note(0, &boundary.text));
        }
    }
    (config, flow_values)
}

fn values<T>(said: Vec<Said<'_, T>>) -> Vec<T> {
    said.into_iter().map(|said| said.value).collect()
}

fn refuse_unknown_sections(document: &DeTable<'_>, errors: &mut Errors<'_>) {
    let names = || SECTIONS.iter().map(|section| section.name);
    for key in document.keys().filter(|key| !names().any(|name| name == key.get_ref().as_ref())) {
        let name = key.get_ref().as_ref();
        if let Some((message, hint)) = elsewhere::section(name) {
            let message = format!("there is no section {}: {message}", quoted(name));
            errors.add(key.span().start, message, Some(hint.to_owned()));
            continue;
        }
        let hint = match nearest(name, names()) {
            Some(near) => format!("did you mean {near}?"),
            None => format!("known sections: {}", names().collect::<Vec<_>>().join(", ")),
        };
        errors.add(key.span().start, format!("there is no section {}", quoted(name)), Some(hint));
    }
}

fn section(name: &str) -> &'static Section {
    SECTIONS.iter().find(|section| section.name == name).expect("every section read is in the list")
}

fn single<'t>(document: &'t DeTable<'t>, name: &str, errors: &mut Errors<'_>) -> Option<Table<'t>> {
    let (key, value) = document.get_key_value(name)?;
    match value.get_ref() {
        DeValue::Table(entries) => {
            Some(Table::new(entries, key.span().start, section(name), errors))
        }
        _ => {
            errors.add(
                key.span().start,
                format!("{name} is not a table"),
                Some(format!("[{name}]")),
            );
            None
        }
    }
}

fn each<'t, T>(
    document: &'t DeTable<'t>,
    name: &str,
    errors: &mut Errors<'_>,
    mut read: impl FnMut(&Table<'t>, &mut Errors<'_>) -> Option<T>,
) -> Vec<Said<'t, T>> {
    let Some((key, value)) = document.get_key_value(name) else { return Vec::new() };
    let DeValue::Array(elements) = value.get_ref() else {
        errors.add(
            key.span().start,
            format!("there can be several of {name}"),
            Some(format!("[[{name}]]")),
        );
        return Vec::new();
    };
    let mut said = Vec::with_capacity(elements.len());
    for element in elements.iter() {
        let Some(entries) = element.get_ref().as_table() else {
            errors.add(
                element.span().start,
                format!("{name} is not a table"),
                Some(format!("[[{name}]]")),
            );
            continue;
        };
        let table = Table::new(entries, header(element), section(name), errors);
        said.extend(read(&table, errors).map(|value| Said { value, table }));
    }
    said
}

/// The names that the elements of a section give themselves, whatever else may be wrong with them.
/// None where one gives none that can be read.
fn names<'t>(document: &'t DeTable<'t>, section: &str) -> Option<HashSet<&'t str>> {
    let Some(elements) = document.get(section) else { return Some(HashSet::new()) };
    let name = |element: &'t Spanned<DeValue<'t>>| {
        element.get_ref().as_table()?.get("name")?.get_ref().as_str()
    };
    elements.get_ref().as_array()?.iter().map(name).collect()
}

/// Where the `[[name]]` of an element is.
fn header(element: &Spanned<DeValue<'_>>) -> usize {
    element.span().start
}

#[cfg(test)]
mod tests;
