//! The firewall, by itself and beside ports and VRFs.

use std::collections::{BTreeMap, BTreeSet};

use api::{
    FirewallAction, FirewallRuleSpec, FirewallSpec, ForwardSpec, Masquerade, PolicySpec,
    ServiceSpec, SnatSpec, ZonePolicySpec, ZoneSpec,
};
use toml::Spanned;
use toml::de::DeValue;
use types::{DefaultAction, Direction, IpPrefix, IpRange, Ipsec, PolicyAction};

use super::Said;
use super::addresses::Addresses;
use super::cross::Read;
use super::diagnostic::Errors;
use super::reader::{Table, parsed_element};
use super::security::gateways;
use crate::firewall::shadow::{Shadowed, matching_all, shadowed};
use crate::firewall::{
    Compiled, Firewall, Place, SitePort, Wrong, doubt_flows, doubt_leak, doubt_networks,
    doubt_unprotected,
};

/// How many pieces of rules may be compared to find those that never match: about a second.
const WORK: usize = 1 << 26;

/// More notes than these help nobody.
const MOST_NOTES: usize = 50;

/// What a file says of the firewall, and where.
pub(super) struct SaidFirewall<'t> {
    pub(super) spec: FirewallSpec,
    whole: Table<'t>,
    places: BTreeMap<Place, Table<'t>>,
}

/// Reads `[firewall]`. `None` if a part cannot be read.
pub(super) fn firewall<'t>(table: Table<'t>, errors: &mut Errors<'_>) -> Option<SaidFirewall<'t>> {
    let before = errors.count();
    let mut places = BTreeMap::new();
    let default = table.word("default", FirewallAction::WORDS, errors);
    let mut spec = FirewallSpec {
        default: default.map_or(FirewallAction::Drop, |found| found.value),
        log: text(&table, "log", errors),
        log_invalid: text(&table, "log-invalid", errors),
        log_rerouted: text(&table, "log-rerouted", errors),
        ..FirewallSpec::default()
    };
    for (at, zone) in table.tables("zone", "zone.", errors).into_iter().enumerate() {
        places.insert(Place::Zone(at), zone);
        spec.zones.push(ZoneSpec {
            name: required_text(&zone, "name", errors),
            ports: texts(&zone, "ports", errors),
            vrfs: texts(&zone, "vrfs", errors),
            networks: networks(&zone, errors),
            networks_vrf: text(&zone, "networks-vrf", errors),
            masquerade: zone.word("masquerade", Masquerade::WORDS, errors).map(|found| found.value),
            max_connections: limit(&zone, "max-connections", errors),
            max_connections_per_source: limit(&zone, "max-connections-per-source", errors),
        });
    }
    for (at, service) in table.tables("service", "service.", errors).into_iter().enumerate() {
        places.insert(Place::Service(at), service);
        spec.services.push(ServiceSpec {
            name: required_text(&service, "name", errors),
            services: texts(&service, "services", errors),
        });
    }
    for (at, policy) in table.tables("policy", "policy.", errors).into_iter().enumerate() {
        places.insert(Place::Policy(at), policy);
        let mut rules = Vec::new();
        for (number, rule) in
            policy.tables("rules", "policy.rules.", errors).into_iter().enumerate()
        {
            places.insert(Place::Rule(at, number), rule);
            let action = rule.required_word("action", FirewallAction::WORDS, errors);
            rules.push(FirewallRuleSpec {
                services: texts(&rule, "services", errors),
                sources: ranges(&rule, "sources", errors),
                destinations: ranges(&rule, "destinations", errors),
                action: action.map_or(FirewallAction::Drop, |found| found.value),
                log: text(&rule, "log", errors),
            });
        }
        let action = policy.word("action", FirewallAction::WORDS, errors);
        spec.policies.push(ZonePolicySpec {
            from: required_texts(&policy, "from", errors),
            to: required_texts(&policy, "to", errors),
            rules,
            action: action.map_or(FirewallAction::Drop, |found| found.value),
            log: text(&policy, "log", errors),
        });
    }
    for (at, forward) in table.tables("forward", "forward.", errors).into_iter().enumerate() {
        places.insert(Place::Forward(at), forward);
        let from = required_texts(&forward, "from", errors);
        let service = required_text(&forward, "service", errors);
        let to = forward.required("to", "\"10.1.0.2\"", errors);
        of_some(&forward, "addresses", errors);
        let addresses = forward.list("addresses", errors, |element, errors| {
            parsed_element(element, "\"192.0.2.1\"", errors)
        });
        spec.forwards.extend(to.map(|to| ForwardSpec {
            from,
            hairpin: texts(&forward, "hairpin", errors),
            addresses: addresses.into_iter().map(|found| found.value).collect(),
            service,
            sources: ranges(&forward, "sources", errors),
            to: to.value,
            to_port: forward.number("to-port", 1..=65_535, errors).map(|found| found.value),
            log: text(&forward, "log", errors),
        }));
    }
    for (at, snat) in table.tables("snat", "snat.", errors).into_iter().enumerate() {
        places.insert(Place::Snat(at), snat);
        spec.snats.push(SnatSpec {
            from: required_texts(&snat, "from", errors),
            to: required_texts(&snat, "to", errors),
            sources: ranges(&snat, "sources", errors),
            destinations: ranges(&snat, "destinations", errors),
            addresses: snat
                .parsed::<IpRange>("addresses", "\"192.0.2.8-192.0.2.15\"", errors)
                .map(|found| found.value),
            ports: ports(&snat, errors),
        });
    }
    (errors.count() == before).then_some(SaidFirewall { spec, whole: table, places })
}

/// Notes the routes that lead from VRFs without flows into those with a firewall, once for two VRFs.
fn note_leaks(compiled: &Compiled, read: &Read<'_>, errors: &mut Errors<'_>) {
    let mut leaks = BTreeMap::new();
    for Said { value: route, table } in &read.routes {
        let members = route.nexthops.iter().filter_map(|member| member.port_vrf.as_ref());
        let into = route.nexthop_vrf.iter().chain(&route.port_vrf).chain(members);
        for into in into.filter(|into| compiled.vrf(into).is_some()) {
            if route.table.is_none() && compiled.vrf(&route.vrf).is_none() {
                leaks.entry((&*route.vrf, &**into)).or_insert(table.at);
            }
        }
    }
    if leaks.is_empty() {
        return;
    }
    let with_flows = super::flows::vrfs(read);
    for ((from, into), at) in leaks.into_iter().filter(|((from, _), _)| !with_flows.contains(from))
    {
        errors.note(at, doubt_leak(from, into));
    }
}

/// Whether a VRF is an IPsec gateway by the file: as it says, or by its policies or SAs.
fn is_gateway(vrf: &str, read: &Read<'_>) -> bool {
    let says = read.vrfs.iter().find(|it| it.value.name == vrf).and_then(|it| it.value.ipsec);
    match says {
        Some(Ipsec::Required) => true,
        Some(Ipsec::Off) => false,
        Some(Ipsec::Auto) | None => {
            let policies = read.policies.iter().map(|it| &it.value);
            gateways(policies, read.states.iter().map(|it| &it.value)).contains(vrf)
        }
    }
}

/// What is said of the networks of zones in an IPsec gateway that nothing keeps packets to in.
fn unprotected(compiled: &Compiled, vrf: &str, read: &Read<'_>) -> Option<String> {
    let settings = read.vrfs.iter().map(|it| &it.value).find(|it| it.name == vrf)?;
    if !settings.defaults.contains(&(Direction::Out, DefaultAction::Accept)) {
        return None;
    }
    let is_of_it = |policy: &&PolicySpec| policy.vrf == vrf && policy.if_id == 0;
    let mut policies = read.policies.iter().map(|it| &it.value).filter(is_of_it).peekable();
    // Without any it is closed.
    policies.peek()?;
    let keeps_in = |policy: &&PolicySpec| {
        policy.direction == Direction::Out && policy.action != PolicyAction::Bypass
    };
    let kept_in = policies.filter(keeps_in);
    let kept_in = kept_in.filter_map(|policy| crate::check::selector(&policy.selector).ok());
    let kept_in = kept_in.filter_map(|selector| selector.all_to());
    doubt_unprotected(vrf, compiled.networks_in(vrf), kept_in)
}

impl SaidFirewall<'_> {
    /// Notes what is wrong with the firewall by itself.
    pub(super) fn check(&self, errors: &mut Errors<'_>) -> Option<Firewall> {
        match Firewall::new(&self.spec) {
            Ok(firewall) => Some(firewall),
            Err(all) => {
                all.into_iter().for_each(|wrong| self.add(wrong, errors));
                None
            }
        }
    }

    /// Notes what is wrong with it beside the ports and VRFs of the file.
    pub(super) fn check_with(&self, read: &Read<'_>, errors: &mut Errors<'_>) {
        let Some(firewall) = self.check(errors) else { return };
        let ports: Vec<_> = (0..)
            .zip(&read.ports)
            .map(|(id, port)| SitePort {
                name: port.value.name.clone(),
                id,
                vrf: port.value.vrf.clone(),
                addresses: port.value.addresses.clone(),
                is_tunnel: port.value.kind.xfrm().is_some(),
            })
            .collect();
        let vrfs = read.vrfs.iter().map(|vrf| vrf.value.name.clone());
        let vrfs: BTreeSet<_> = vrfs.chain([api::MAIN_VRF.to_owned()]).collect();
        // A port in a VRF that is not there is refused for that alone.
        if !ports.iter().all(|port| vrfs.contains(&port.vrf)) {
            return;
        }
        match firewall.compile(&ports, &vrfs) {
            Ok(compiled) => {
                compiled.doubts.iter().for_each(|doubt| errors.note(self.whole.at, doubt));
                for (vrf, (count, at)) in super::flows::in_tables_of_firewall(read) {
                    if compiled.vrf(&vrf).is_some() {
                        errors.note(at, doubt_flows(&vrf, count));
                    }
                }
                let open = compiled.vrfs_of_networks().filter(|vrf| !is_gateway(vrf, read));
                open.for_each(|vrf| errors.note(self.whole.at, doubt_networks(vrf)));
                let gateways = compiled.vrfs_of_networks().filter(|vrf| is_gateway(vrf, read));
                let unprotected = gateways.filter_map(|vrf| unprotected(&compiled, vrf, read));
                unprotected.for_each(|doubt| errors.note(self.whole.at, doubt));
                note_leaks(&compiled, read, errors);
            }
            Err(wrong) => self.add(wrong, errors),
        }
    }

    fn add(&self, wrong: Wrong, errors: &mut Errors<'_>) {
        let table = self.places.get(&wrong.place).unwrap_or(&self.whole);
        errors.add(table.place(wrong.key), wrong.message, wrong.hint);
    }

    /// Notes the rules, forwards and translations that never match.
    pub(super) fn note_shadowed(&self, errors: &mut Errors<'_>) {
        let Ok(firewall) = Firewall::new(&self.spec) else { return };
        let (mut work, mut unchecked, mut notes) = (WORK, 0, Vec::new());
        let mut note = |what: &str, found: Shadowed, place: &dyn Fn(usize) -> Place| {
            unchecked += found.unchecked;
            for (at, by) in found.rules {
                let table = self.places.get(&place(at));
                let at_table = table.map(|table| table.at);
                notes.extend(at_table.zip(self.shadowed_text(what, (at, &by), place, errors)));
            }
        };
        for policy in 0..self.spec.policies.len() {
            let found = shadowed(firewall.rules(policy), &mut work);
            note("rule", found, &|rule| Place::Rule(policy, rule));
        }
        let unreached = self.note_unreached(&firewall, &mut work, errors);
        note("forward", firewall.shadowed_forwards(&mut work), &Place::Forward);
        note("snat", firewall.shadowed_snats(&mut work), &Place::Snat);
        notes.extend(unreached);
        let more = notes.len().saturating_sub(MOST_NOTES);
        notes.truncate(MOST_NOTES);
        notes.into_iter().for_each(|(at, text)| errors.note(at, text));
        if more > 0 {
            let text = format!("{more} more parts of the firewall are of no packet");
            errors.note(self.whole.at, text);
        }
        if unchecked > 0 {
            let text = format!(
                "{unchecked} rules of the firewall overlap too much to find out whether they ever \
                 match a packet"
            );
            errors.note(self.whole.at, text);
        }
    }

    /// Notes what policies do with packets of no rule, if there are none: rules match all.
    fn note_unreached(
        &self,
        firewall: &Firewall,
        work: &mut usize,
        errors: &Errors<'_>,
    ) -> Vec<(usize, String)> {
        let note = |policy: usize| {
            let table = self.places.get(&Place::Policy(policy))?;
            let ZonePolicySpec { rules, action, log, .. } = &self.spec.policies[policy];
            // Who says it twice is understood.
            if log.is_none() && rules.last().is_some_and(|last| last.action == *action) {
                return None;
            }
            let key = ["action", "log"].into_iter().find(|key| table.has(key))?;
            let by = matching_all(firewall.rules(policy), work)?;
            let (at, place) = (table.place(key), |rule| Place::Rule(policy, rule));
            let by = match self.places_text((at, &by), &place, errors) {
                (_, None) => return None,
                (one, Some((last, rest))) if rest.is_empty() => {
                    format!("the rule {one} {last} matches every packet")
                }
                (several, Some((last, rest))) => {
                    format!("the rules {several} {rest} and {last} together match every packet")
                }
            };
            Some((at, format!("this `{key}` is of no packet: {by}")))
        };
        (0..self.spec.policies.len()).filter_map(note).collect()
    }

    /// Why what is shadowed by these never matches.
    fn shadowed_text(
        &self,
        what: &str,
        (own, by): (usize, &[usize]),
        place: &dyn Fn(usize) -> Place,
        errors: &Errors<'_>,
    ) -> Option<String> {
        let own = self.places.get(&place(own)).map_or(0, |table| table.at);
        let earlier = match self.places_text((own, by), place, errors) {
            (_, None) => return None,
            (one, Some((last, rest))) if rest.is_empty() => {
                format!("the one {one} {last} comes first and matches")
            }
            (several, Some((last, rest))) => {
                format!("those {several} {rest} and {last} come first and together match")
            }
        };
        Some(format!("this {what} never matches a packet: {earlier} all that it does"))
    }

    /// Where these are, in words: `on lines`, and the last and the others. They are told by their lines,
    /// if these are others than that of `own`.
    fn places_text(
        &self,
        (own, by): (usize, &[usize]),
        place: &dyn Fn(usize) -> Place,
        errors: &Errors<'_>,
    ) -> (&'static str, Option<(String, String)>) {
        let at = |number: &usize| self.places.get(&place(*number)).map_or(0, |table| table.at);
        let places: Vec<_> = by.iter().map(|by| errors.place(at(by))).collect();
        let own = errors.place(own);
        let lines: BTreeSet<_> = places.iter().chain([&own]).map(|(line, _)| *line).collect();
        // Rules may stand side by side.
        let has_lines = lines.len() > places.len();
        let shown = |(line, column): &(usize, usize)| match has_lines {
            true => line.to_string(),
            false => format!("{line}:{column}"),
        };
        let mut places: Vec<_> = places.iter().map(shown).collect();
        let word = match (has_lines, places.len()) {
            (false, _) => "at",
            (true, 1) => "on line",
            (true, _) => "on lines",
        };
        (word, places.pop().map(|last| (last, places.join(", "))))
    }
}

fn limit(table: &Table<'_>, key: &'static str, errors: &mut Errors<'_>) -> Option<u32> {
    table.number(key, 1..=u32::MAX.into(), errors).map(|found| found.value)
}

fn text(table: &Table<'_>, key: &'static str, errors: &mut Errors<'_>) -> Option<String> {
    table.text(key, errors).map(|found| found.value.to_owned())
}

fn required_text(table: &Table<'_>, key: &'static str, errors: &mut Errors<'_>) -> String {
    table.required_text(key, errors).map(|found| found.value.to_owned()).unwrap_or_default()
}

fn texts(table: &Table<'_>, key: &'static str, errors: &mut Errors<'_>) -> Vec<String> {
    let read = |element: &Spanned<DeValue<'_>>, errors: &mut Errors<'_>| {
        parsed_element(element, "\"name\"", errors)
    };
    of_some(table, key, errors);
    table.list(key, errors, read).into_iter().map(|found| found.value).collect()
}

/// A list that is there and empty is refused: without the key, all is meant.
fn of_some(table: &Table<'_>, key: &'static str, errors: &mut Errors<'_>) {
    if table.is_empty_list(key) {
        let right = format!("at least one, or no `{key}`");
        errors.add(table.place(key), format!("{key} = [] has nothing in it"), Some(right));
    }
}

fn required_texts(table: &Table<'_>, key: &'static str, errors: &mut Errors<'_>) -> Vec<String> {
    if !table.has(key) {
        table.missing(key, errors);
    }
    texts(table, key, errors)
}

fn networks(table: &Table<'_>, errors: &mut Errors<'_>) -> Vec<IpPrefix> {
    of_some(table, "networks", errors);
    let found = table.list("networks", errors, |element, errors| {
        parsed_element::<IpPrefix>(element, "\"10.2.0.0/16\"", errors)
    });
    let mut networks = Vec::new();
    for found in found {
        match found.value.without_host_bits() {
            Ok(network) => networks.push(network),
            Err(why) => {
                let right = found.value.network().to_string();
                errors.add(found.at, format!("{}: {why}", found.value), Some(right));
            }
        }
    }
    networks
}

fn ranges(table: &Table<'_>, key: &'static str, errors: &mut Errors<'_>) -> Vec<IpRange> {
    let read = |element: &Spanned<DeValue<'_>>, errors: &mut Errors<'_>| {
        let example = "\"10.1.0.0/24\" or \"10.1.0.5-10.1.0.9\"";
        let addresses = parsed_element::<Addresses>(element, example, errors)?;
        Some(addresses.noted(element.span().start, errors))
    };
    of_some(table, key, errors);
    table.list(key, errors, read).into_iter().map(|found| found.value).collect()
}

/// `FIRST-LAST`.
fn ports(table: &Table<'_>, errors: &mut Errors<'_>) -> Option<(u16, u16)> {
    let found = table.text("ports", errors)?;
    let (first, last) = found.value.split_once('-').unwrap_or((found.value, found.value));
    match (first.parse(), last.parse()) {
        (Ok(first), Ok(last)) => Some((first, last)),
        _ => {
            let right = Some("as in \"1024-65535\"".to_owned());
            errors.add(found.at, format!("ports = {}", super::quoted(found.value)), right);
            None
        }
    }
}
