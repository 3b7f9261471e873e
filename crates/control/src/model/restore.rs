//! What commands had made of the gateway, made anew after a restart.
//!
//! The configuration file is applied first. If it is the one that ran before, every command is
//! carried out again. If it is another one, what it names stays as it says: commands about its
//! objects, and those about objects of the former file, are left out; what commands had added and
//! the file does not name comes back. So a restart with another file comes to the same as a reload
//! of it.

mod filters;
mod flows;
mod former;

use std::collections::{BTreeMap, BTreeSet};

use api::{Key, LinkChange, Origin, Refusal, RefusalCode, Request, VrfChange};
use packet::Time;
use tables::{TableId, TableRef, Tables};
use types::{Ipsec, Spi, VrfId};
use zeroize::Zeroizing;

use self::filters::LostFilters;
use self::flows::Flows;
use self::former::FormerPorts;
use super::desired::Desired;
use super::journal::{KEY, OF_FILE};
use super::qdiscs::node_at;
use super::security::find_policy;
use super::unprotected::closed;
use super::{Changes, Control, Draft, Journal};

/// How a line begins that says what a port of the file is, and is no command.
const LINK: &str = "link ";

/// The most lines of [`Restored::refused`].
const MAX_REFUSED: usize = 100;

/// How much of a refused command is told.
const MAX_SHOWN: usize = 400;

/// What became of changes that were to be made anew.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// Commands that were carried out.
    pub done: u64,
    /// Commands that were left out, as the configuration file changed since and says otherwise.
    pub left: u64,
    /// Commands that were refused, of very many the first, and why.
    pub refused: Vec<String>,
    /// How many were refused.
    pub refusals: u64,
    /// SAs that do not come back, as their keys were not kept.
    pub without_keys: u64,
    /// VRFs that forward nothing, as they have no policies now that one was left out or refused.
    pub closed: Vec<String>,
    /// VRFs that drop everything, as the firewall was left out or refused, or one of their flows, and they
    /// have no others; and the priority of the flow that does it.
    pub dropping: Vec<(String, u16)>,
    /// VRFs that may let more pass than before, as a flow or the firewall was left out or refused and they
    /// have others.
    pub lacking: Vec<String>,
    /// Ports and VRFs whose filters lack a rule that was refused, so that they may let more pass than
    /// before: `dev lan`, `vrf blue`.
    pub unfiltered: Vec<String>,
    /// VRFs that were to drop everything and do not, as the flow that does it finds no place.
    pub open: Vec<String>,
}

/// An SA as commands name it: VRF, destination, SPI.
type StateName = (String, std::net::IpAddr, u32);

impl Control {
    /// Notes changes by command from now on: [`Control::take_changes`] returns them. SAs are
    /// noted, with their keys, if `keeps_keys`.
    pub fn keep_changes(&mut self, keeps_keys: bool) {
        self.journal = Some(Journal::new(keeps_keys));
    }

    /// What commands have changed since it was last called.
    pub fn take_changes(&mut self) -> Changes {
        self.journal.as_mut().map(Journal::take).unwrap_or_default()
    }

    /// All that is in force and not in the configuration that was applied last. Changes that were
    /// noted before are in it.
    pub fn all_changes(&mut self) -> Changes {
        let Some(journal) = &mut self.journal else { return Changes::default() };
        *journal = journal.anew();
        let tables = self.publisher.current();
        super::difference::difference(&tables, &self.desired, &self.applied, journal);
        journal.take()
    }

    /// Makes changes anew: the commands in `texts`, with their `keys`. The configuration has to be
    /// applied. `is_same_file` says that it is the one that ran when the changes were made.
    pub fn restore<'t>(
        &mut self,
        texts: impl Iterator<Item = &'t str>,
        keys: &BTreeMap<u64, Key>,
        is_same_file: bool,
        now: Time,
    ) -> Restored {
        let mut restored = Restored::default();
        let mut without_keys = BTreeSet::new();
        let mut without_policies = BTreeSet::new();
        let mut has_unknown_policies = false;
        // Whether something was refused that others may need.
        let mut has_lost = false;
        let mut former = FormerPorts::default();
        let tables = self.tables();
        let (randomness, sequences) = (&mut self.randomness, &mut self.sequences);
        let mut draft =
            Draft::new(tables, &mut self.desired, randomness, sequences, Origin::Runtime);
        draft.is_restoring = true;
        draft.now = now;
        draft.connections = Some(self.connections);
        draft.sa_events = Some(&mut self.sa_events);
        let mut flows = Flows::default();
        let mut filters = LostFilters::default();
        for line in texts.flat_map(str::lines) {
            let (command, origin) = match line.strip_prefix(OF_FILE) {
                Some(rest) if rest.starts_with(LINK) => {
                    match parse(rest, keys) {
                        Ok(Parsed::Request(request)) => former.note(&request),
                        Ok(Parsed::WithoutKey(_)) => {}
                        Err(refusal) => {
                            restored.refuse(rest, &refusal);
                            former.note_unread();
                        }
                    }
                    continue;
                }
                Some(rest) => (rest, Origin::Configuration),
                None => (line, Origin::Runtime),
            };
            // What was of the former file, in whose place another says what is so.
            let is_former = !is_same_file && origin == Origin::Configuration;
            if is_former && !is_policy(command) && !command.starts_with("firewall ") {
                restored.left += 1;
                continue;
            }
            let request = match parse(command, keys) {
                Ok(Parsed::Request(request)) => *request,
                Ok(Parsed::WithoutKey(name)) => {
                    without_keys.insert(name);
                    continue;
                }
                Err(refusal) => {
                    restored.refuse(command, &refusal);
                    // Nobody knows of which VRF it was.
                    flows.lost.note_unread(command);
                    filters.note_unread(command);
                    let may_have_had = command.starts_with("vrf set ");
                    let requires = is_policy(command) && !has_unknown_policies || may_have_had;
                    if requires {
                        has_unknown_policies = true;
                        without_policies.extend(draft.require_policies(None, may_have_had));
                    }
                    continue;
                }
            };
            if is_former {
                restored.left += 1;
                flows.lost.note_left(&request, &former, draft.desired);
                if let Some(vrf) = vrf_of_policy(&request) {
                    without_policies.extend(draft.require_policies(Some(vrf), true));
                }
                continue;
            }
            let is_flow = matches!(&request, Request::FlowChange(changes) if !changes.replace);
            if !is_flow || flows.origin != Some(origin) {
                flows.make(&mut draft, is_same_file, &mut has_lost, &mut restored);
            }
            if let Request::StateDelete(id) = &request {
                let name = (id.vrf.clone(), id.destination, id.spi);
                if without_keys.remove(&name) {
                    continue;
                }
            }
            let mut request = draft.desired.as_meant(request);
            former.note(&request);
            if !is_same_file && let Err(refusal) = former.check(&request, draft.desired) {
                restored.refuse(command, &refusal);
                filters.note(&request, false);
                continue;
            }
            if !is_same_file && is_of_file(&draft.tables, draft.desired, &request) {
                // As a reload does.
                let Some(change) = vrf_alone(&request, draft.desired) else {
                    if let Request::VrfDelete(vrf) = &request {
                        flows.lost.forget_vrf(&vrf.name);
                    }
                    flows.lost.note_left(&request, &former, draft.desired);
                    restored.left += 1;
                    continue;
                };
                request = Request::LinkSet(change);
            }
            if is_flow && let Request::FlowChange(changes) = request {
                flows.origin = Some(origin);
                flows.lines.extend(changes.changes.into_iter().map(|change| (command, change)));
                continue;
            }
            // One that the file names too, deleted and added by commands.
            if let Request::VrfAdd(vrf) = &request
                && is_same_file
                && let Some(known) = draft.desired.vrfs.get_mut(&vrf.name)
            {
                known.origin = origin;
                known.table = vrf.table.map(TableId);
                let wanted = known.table.map(|table| (vrf.name.as_str(), table));
                match draft.renumber_vrfs(wanted.as_slice()) {
                    Err(refusal) => restored.refuse(command, &refusal),
                    Ok(()) => restored.done += 1,
                }
                continue;
            }
            draft.origin = origin;
            let added = match &request {
                Request::VrfAdd(vrf) => Some(vrf.name.clone()),
                _ => None,
            };
            let vrf_of_policy = vrf_of_policy(&request).map(str::to_owned);
            let firewall = match &request {
                Request::FirewallReplace(spec) => Some(spec.clone()),
                _ => None,
            };
            // What a port of the file goes back for, is in nobody's way but its own.
            let goes_back =
                command.starts_with("link delete ") && matches!(request, Request::LinkSet(_));
            let ends_firewall = matches!(request, Request::FirewallDelete);
            let ended = match &request {
                Request::VrfDelete(vrf) => Some(vrf.name.clone()),
                _ => None,
            };
            let filtering = is_about_filters(&request).then(|| request.clone());
            let done = draft.carry_out_or_leave(request, now);
            filtering.iter().for_each(|request| filters.note(request, done.is_ok()));
            match &done {
                // Whether it was there or refused before: there is none.
                _ if ends_firewall => flows.lost.forget_firewall(),
                Ok(_) if firewall.is_some() => flows.lost.forget_firewall(),
                Ok(_) => ended.iter().for_each(|vrf| flows.lost.forget_vrf(vrf)),
                Err(_) => {
                    let refused = firewall.into_iter();
                    refused.for_each(|it| flows.lost.note_firewall(it, &former, draft.desired));
                }
            }
            match done {
                Ok(_) => {
                    restored.done += 1;
                    // It was not there when others were closed.
                    has_unknown_policies &= added.is_none();
                }
                Err(refusal) if goes_back => restored.refuse(command, &refusal),
                // The file names it, or what it is about is gone with the former file.
                Err(refusal)
                    if !is_same_file && is_left(&refusal, &added, draft.desired, has_lost) =>
                {
                    restored.left += 1;
                    if let Some(vrf) = vrf_of_policy {
                        without_policies.extend(draft.require_policies(Some(&vrf), true));
                    }
                }
                // An SA that was not kept.
                Err(refusal)
                    if refusal.code == RefusalCode::NotFound
                        && command.starts_with("xfrm state delete") => {}
                Err(refusal) => {
                    has_lost = true;
                    restored.refuse(command, &refusal);
                    if let Some(vrf) = vrf_of_policy {
                        without_policies.extend(draft.require_policies(Some(&vrf), true));
                    }
                }
            }
        }
        flows.make(&mut draft, is_same_file, &mut has_lost, &mut restored);
        restored.without_keys = without_keys.len() as u64;
        restored.unfiltered = filters.targets(draft.desired);
        let closed = closed(&draft.tables).map(|vrf| vrf.name.to_string());
        restored.closed = closed.filter(|name| without_policies.contains(name)).collect();
        flows.lost.settle_firewall(&former, draft.desired);
        draft.drop_without_flows(&flows.lost, &mut restored);
        let tables = draft.tables;
        self.publisher.publish(tables);
        self.settle_sa_events();
        restored
    }

    /// Has no VRF forward without policies, but for those of which the configuration file says
    /// `off`: for a log of which a part is lost, so that nobody knows which VRFs had policies.
    /// Returns those that forward nothing now.
    pub fn require_policies(&mut self) -> Vec<String> {
        let tables = self.tables();
        let (randomness, sequences) = (&mut self.randomness, &mut self.sequences);
        let mut draft =
            Draft::new(tables, &mut self.desired, randomness, sequences, Origin::Runtime);
        draft.journal = self.journal.as_mut();
        draft.require_policies(None, true);
        let tables = draft.tables;
        let closed = closed(&tables).map(|vrf| vrf.name.to_string()).collect();
        self.publisher.publish(tables);
        closed
    }
}

impl Draft<'_> {
    pub(super) fn ipsec_of(&self, vrf: VrfId) -> Option<Ipsec> {
        self.tables.vrf(vrf).map(|vrf| vrf.ipsec)
    }

    /// Has a VRF of which a policy does not come back, or all of them, forward nothing without
    /// policies. One that takes none at all by the configuration file stays so, and one by a command too
    /// unless a line that `may_have_had` it take some is lost. Returns which they are.
    fn require_policies(&mut self, vrf: Option<&str>, may_have_had: bool) -> Vec<String> {
        let all = self.desired.vrfs.iter();
        let meant = all.filter(|(name, _)| vrf.is_none_or(|vrf| vrf == *name));
        let meant: Vec<_> = meant.map(|(name, vrf)| (name.clone(), vrf.id, vrf.ipsec)).collect();
        for (name, id, origin) in &meant {
            let is_open = match self.ipsec_of(*id) {
                Some(Ipsec::Auto) => true,
                Some(Ipsec::Off) => may_have_had && *origin != Origin::Configuration,
                _ => false,
            };
            if is_open {
                // There are such tables, and what requires policies is never refused.
                let _ = self.set_ipsec(name, *id, Ipsec::Required, Origin::Runtime);
            }
        }
        meant.into_iter().map(|(name, ..)| name).collect()
    }
}

/// What a command about a port of the file says of its VRF, if the file has the port in `main`, as it
/// does if it says no VRF. One that deletes the port says that it is no longer where commands had
/// put it: a VRF that goes later must not take it along.
fn vrf_alone(request: &Request, desired: &Desired) -> Option<LinkChange> {
    let (port, vrf) = match request {
        Request::LinkSet(LinkChange { port, vrf: Some(vrf), .. }) => (port, vrf.as_str()),
        Request::LinkDelete(link) => (&link.port, api::MAIN_VRF),
        _ => return None,
    };
    let known = desired.ports.get(port)?;
    let says_none = known.settings.vrf == api::MAIN_VRF;
    let is_there = matches!(request, Request::LinkDelete(_)) && known.vrf == vrf;
    (says_none && !is_there).then(|| LinkChange {
        port: port.clone(),
        vrf: Some(vrf.to_owned()),
        ..LinkChange::default()
    })
}

/// Whether a command that another file refuses is left out for that: the file names what it adds, or
/// what it is about is gone with the former file, and not `has_lost` since. A VRF that is `added` is
/// named only if there is one of this name.
fn is_left(refusal: &Refusal, added: &Option<String>, desired: &Desired, has_lost: bool) -> bool {
    match refusal.code {
        RefusalCode::Exists => added.as_ref().is_none_or(|name| desired.vrfs.contains_key(name)),
        RefusalCode::NotFound => !has_lost,
        _ => false,
    }
}

/// Whether a command changes what filters there are.
const fn is_about_filters(request: &Request) -> bool {
    matches!(
        request,
        Request::FilterAdd(_)
            | Request::FilterReplace(_)
            | Request::FilterDelete(_)
            | Request::LinkDelete(_)
            | Request::VrfDelete(_)
    )
}

/// Whether a command is about policies: one that was deleted may have let packets pass, and a default
/// may have blocked them.
fn is_policy(command: &str) -> bool {
    command.starts_with("xfrm policy ")
}

/// The VRF that becomes an IPsec gateway by a request. Policies of an xfrm link make none.
fn vrf_of_policy(request: &Request) -> Option<&str> {
    match request {
        Request::PolicyAdd(spec) | Request::PolicyUpdate(spec) if spec.if_id == 0 => {
            Some(&spec.vrf)
        }
        _ => None,
    }
}

impl Restored {
    fn refuse(&mut self, command: &str, refusal: &Refusal) {
        self.refusals += 1;
        if self.refused.len() < MAX_REFUSED {
            // A firewall is one long line.
            let shown: String = command.chars().take(MAX_SHOWN).collect();
            self.refused.push(format!("{shown}: {refusal}"));
        }
    }
}

enum Parsed {
    Request(Box<Request>),
    WithoutKey(StateName),
}

/// Reads a line of the journal's text.
fn parse(command: &str, keys: &BTreeMap<u64, Key>) -> Result<Parsed, Refusal> {
    let mut with_keys = Vec::new();
    let mut is_missing = false;
    for word in command.split_ascii_whitespace() {
        let key = word.strip_prefix(KEY).and_then(|number| number.parse::<u64>().ok());
        with_keys.push(match key {
            None => Zeroizing::new(word.to_owned()),
            Some(number) => match keys.get(&number) {
                Some(key) => key.to_hex(),
                None => {
                    is_missing = true;
                    Zeroizing::new(String::new())
                }
            },
        });
    }
    if is_missing {
        return name_of_state(&with_keys).map(Parsed::WithoutKey).ok_or_else(|| {
            Refusal::new(
                RefusalCode::Invalid,
                "a key that is not there, of something else than an SA",
            )
        });
    }
    let mut words: Vec<&str> = with_keys.iter().map(|word| word.as_str()).collect();
    put_outer_vrf_first(&mut words);
    crate::grammar::parse(&words).map(|request| Parsed::Request(Box::new(request)))
}

/// Logs had the VRF of an SA's outer packets behind `if_id`, where it is refused.
fn put_outer_vrf_first(words: &mut [&str]) {
    if let ["xfrm", "state", "add", command @ ..] = words
        && let Some(if_id) = command.iter().position(|word| *word == "if_id")
        && command.get(if_id + 2) == Some(&"vrf")
        && let Some(proto) = command.iter().position(|word| *word == "proto")
        && let Some(between) = command.get_mut(proto..if_id + 4)
    {
        between.rotate_right(2);
    }
}

/// Which SA a command adds whose key is not there.
fn name_of_state(words: &[Zeroizing<String>]) -> Option<StateName> {
    let after = |key: &str| {
        let at = words.iter().position(|word| word.as_str() == key)?;
        words.get(at + 1).map(|word| word.as_str())
    };
    let spi = after("spi")?;
    let spi = u32::from_str_radix(spi.strip_prefix("0x")?, 16).ok()?;
    let vrf = after("vrf").unwrap_or(api::MAIN_VRF);
    Some((vrf.to_owned(), after("dst")?.parse().ok()?, spi))
}

/// Whether a command would change or remove what the configuration file names.
fn is_of_file(tables: &Tables, desired: &Desired, request: &Request) -> bool {
    let origin = match request {
        Request::StateDelete(id) => desired
            .vrf(&id.vrf)
            .ok()
            .and_then(|vrf| Some(desired.states.get(&(vrf, id.destination, Spi(id.spi)))?.origin)),
        Request::PolicyDelete(id) => find_policy(tables, desired, id)
            .ok()
            .and_then(|index| Some(desired.policies.get(&index)?.origin)),
        Request::PolicyUpdate(spec) => {
            let id = api::PolicyId {
                vrf: spec.vrf.clone(),
                if_id: spec.if_id,
                direction: spec.direction,
                index: None,
                selector: spec.selector,
            };
            find_policy(tables, desired, &id)
                .ok()
                .and_then(|index| Some(desired.policies.get(&index)?.origin))
        }
        Request::PolicySetDefault(defaults) => desired.vrfs.get(&defaults.vrf).and_then(|vrf| {
            let said = [defaults.inbound, defaults.outbound, defaults.forward];
            let at = [api::Direction::In, api::Direction::Out, api::Direction::Fwd];
            let mut said = at.into_iter().zip(said).filter(|(_, action)| action.is_some());
            said.next().map(|(at, _)| vrf.defaults[at as usize])
        }),
        Request::RouteReplace(spec) => {
            let table = desired.table(tables, &spec.vrf, spec.table);
            origin_of_route(desired, table, spec.destination, spec.metric)
        }
        Request::RouteDelete(id) => {
            let table = desired.table(tables, &id.vrf, id.table);
            origin_of_route(desired, table, id.destination, id.metric.unwrap_or(0))
        }
        Request::RuleDelete(spec) => {
            let spec = crate::check::normal_rule(spec.clone());
            desired.rules.find(&spec).map(|rule| rule.origin)
        }
        Request::NeighbourReplace(spec) => origin_of_neighbour(desired, &spec.port, spec.address),
        Request::NeighbourDelete(id) => origin_of_neighbour(desired, &id.port, id.address),
        Request::AddressDelete(id) => desired.ports.get(&id.port).and_then(|port| {
            let own = port.addresses.iter().find(|(own, _)| *own == id.address);
            own.map(|(_, origin)| *origin)
        }),
        Request::QdiscReplace(spec) | Request::QdiscChange(spec) => {
            origin_of_qdisc(desired, &spec.dev, spec.parent)
        }
        Request::QdiscDelete(id) => origin_of_qdisc(desired, &id.dev, id.parent),
        Request::LinkSet(change) => desired.ports.get(&change.port).map(|port| port.origin),
        Request::LinkDelete(link) => desired.ports.get(&link.port).map(|port| port.origin),
        // A VRF that had policies stays closed without, unless the file opens it.
        Request::VrfSet(VrfChange { name, highest_share: Some(_), .. }) => {
            desired.vrfs.get(name).map(|vrf| vrf.highest_share)
        }
        Request::VrfSet(VrfChange { name, ipsec: None, .. }) => {
            desired.vrfs.get(name).map(|vrf| vrf.ike)
        }
        Request::VrfSet(change) => desired.vrfs.get(&change.name).and_then(|vrf| {
            let asked = change.ipsec?;
            let is = tables.vrf(vrf.id).map_or(Ipsec::Auto, |vrf| vrf.ipsec);
            let closes = asked == Ipsec::Required && is == Ipsec::Auto;
            let opens = is == Ipsec::Required && asked != is;
            let by_file = || {
                // Those of xfrm links make no VRF a gateway.
                let states = desired.states.values().filter(|entry| entry.spec.if_id == 0);
                let states = states.filter(|entry| entry.spec.clear_vrf() == change.name);
                let mut states = states.map(|entry| entry.origin);
                let policies = desired.policies.values().filter(|entry| entry.spec.if_id == 0);
                let policies = policies.filter(|entry| entry.spec.vrf == change.name);
                let mut policies = policies.map(|entry| entry.origin);
                let is_of_file = |origin| origin == Origin::Configuration;
                states.any(is_of_file) || policies.any(is_of_file)
            };
            if opens && by_file() {
                return Some(Origin::Configuration);
            }
            (!closes).then_some(vrf.ipsec)
        }),
        Request::FilterReplace(spec) => {
            desired.origin_of_filter(&spec.target, spec.hook, spec.pref)
        }
        Request::FilterDelete(id) => desired.origin_of_filter(&id.target, id.hook, id.pref),
        Request::FirewallReplace(_) | Request::FirewallDelete => {
            desired.firewall.as_ref().map(|is| is.origin)
        }
        Request::FlowChange(changes) => super::flows::origin_of(tables, desired, changes),
        Request::VrfDelete(vrf) => desired.vrfs.get(&vrf.name).map(|vrf| vrf.origin),
        _ => None,
    };
    origin == Some(Origin::Configuration)
}

fn origin_of_route(
    desired: &Desired,
    table: Result<TableRef, Refusal>,
    destination: types::IpPrefix,
    metric: u32,
) -> Option<Origin> {
    let all = desired.routes.get(&(table.ok()?, destination))?;
    all.iter().find(|entry| entry.spec.metric == metric).map(|entry| entry.origin)
}

fn origin_of_qdisc(
    desired: &Desired,
    dev: &str,
    parent: Option<types::qdisc::QdiscHandle>,
) -> Option<Origin> {
    let mut trees = desired.qdiscs.iter();
    let (_, tree) = trees.find(|(device, _)| device.name() == dev)?;
    node_at(tree, parent).map(|node| node.origin)
}

fn origin_of_neighbour(desired: &Desired, port: &str, address: std::net::IpAddr) -> Option<Origin> {
    let port = desired.ports.get(port)?.id;
    desired.neighbours.get(port, address).map(|known| known.origin())
}
