//! SAs and policies, each by itself.

use std::collections::HashSet;
use std::net::IpAddr;

use api::{Aead, Authentication, Encryption, Key, PolicySpec, Selector, StateSpec, Template};
use types::{
    Direction, DscpSelector, OctetRange, PolicyAction, PolicyName, PortRange, Protocol, SaFlag,
    SaMode, TcpFlagsSelector, Word,
};

use super::diagnostic::Errors;
use super::reader::{Found, Table, quoted, word_element};
use super::sections::{vrf_name, vrf_named};
use crate::check;

const ADDRESS: &str = "\"192.0.2.1\"";

pub(super) fn state(
    table: &Table<'_>,
    keys: Option<&[Key]>,
    errors: &mut Errors<'_>,
) -> Option<StateSpec> {
    let before = errors.count();
    let source = table.required::<IpAddr>("source", ADDRESS, errors);
    let destination = table.required::<IpAddr>("destination", ADDRESS, errors);
    if !table.has("spi") {
        table.missing("spi", errors);
    }
    let spi = table.number("spi", 1..=u32::MAX.into(), errors);
    let reqid = table.number("reqid", 0..=u32::MAX.into(), errors);
    let if_id = table.number("if-id", 0..=u32::MAX.into(), errors);
    let mode = mode(table, errors);
    let window = table.number("replay-window", 0..=4096, errors);
    let flags =
        table.list("flags", errors, |element, errors| word_element(element, SaFlag::WORDS, errors));
    let aead = table.table("aead", "aead.", errors).and_then(|table| aead(&table, keys, errors));
    let encryption = table
        .table("encryption", "encryption.", errors)
        .and_then(|table| encryption(&table, keys, errors));
    let authentication = table
        .table("authentication", "authentication.", errors)
        .and_then(|table| authentication(&table, keys, errors));
    let vrf = vrf_name(table, errors);
    let inner_vrf = vrf_named(table, "inner-vrf", errors);
    let is_unread = |key, is_none: bool| table.has(key) && is_none;
    if errors.count() > before
        || is_unread("aead", aead.is_none())
        || is_unread("encryption", encryption.is_none())
        || is_unread("authentication", authentication.is_none())
    {
        return None;
    }
    let vrf = vrf?;
    let spec = StateSpec {
        inner_vrf: inner_vrf.filter(|inner| *inner != vrf),
        vrf,
        source: source?.value,
        destination: destination?.value,
        spi: spi?.value,
        reqid: reqid.map_or(0, |found| found.value),
        if_id: if_id.map_or(0, |found| found.value),
        mode: mode.map_or(SaMode::Tunnel, |found| found.value),
        aead,
        encryption,
        authentication,
        replay_window: window.map_or(64, |found| found.value),
        flags: sorted(flags.into_iter().map(|found| found.value).collect()),
        sent_sequence: 0,
        received_sequence: 0,
    };
    match check::state(&spec) {
        Ok(_) => Some(spec),
        Err(fault) => {
            table.fault(fault, errors);
            None
        }
    }
}

/// The selector of a policy or of a filter's rule.
pub(super) fn selector(table: &Table<'_>, errors: &mut Errors<'_>) -> Selector {
    const RANGE: &str = "\"192.0.2.0/24\" or \"192.0.2.1-192.0.2.9\"";
    const PORTS: &str = "\"53\" or \"5000-5999\"";
    const OCTETS: &str = "\"8\" or \"0-8\"";
    Selector {
        source: table.addresses("source", RANGE, errors),
        destination: table.addresses("destination", RANGE, errors),
        protocol: table
            .parsed_or_number::<Protocol>("protocol", "\"tcp\" or 6", errors)
            .map(|found| found.value),
        source_ports: table
            .parsed_or_number::<PortRange>("source-ports", PORTS, errors)
            .map(|found| found.value),
        destination_ports: table
            .parsed_or_number::<PortRange>("destination-ports", PORTS, errors)
            .map(|found| found.value),
        icmp_type: table
            .parsed_or_number::<OctetRange>("icmp-type", OCTETS, errors)
            .map(|found| found.value),
        icmp_code: table
            .parsed_or_number::<OctetRange>("icmp-code", OCTETS, errors)
            .map(|found| found.value),
        dscp: table
            .parsed_or_number::<DscpSelector>("dscp", "\"ef\", 46 or \"0x28/0x38\"", errors)
            .map(|found| found.value),
        tcp_flags: table
            .parsed::<TcpFlagsSelector>("tcp-flags", "\"syn/syn,ack\"", errors)
            .map(|found| found.value),
        ttl: table.number("ttl", 0..=u8::MAX.into(), errors).map(|found| found.value),
    }
}

pub(super) fn policy(table: &Table<'_>, errors: &mut Errors<'_>) -> Option<PolicySpec> {
    let before = errors.count();
    let direction = table.required_word("direction", Direction::WORDS, errors);
    let action = table.required_word("action", PolicyAction::WORDS, errors);
    let priority = table.number("priority", 0..=u32::MAX.into(), errors);
    let if_id = table.number("if-id", 0..=u32::MAX.into(), errors);
    let name = table.parsed::<PolicyName>("name", "\"berlin-1\"", errors);
    let selector = selector(table, errors);
    let template =
        table.table("template", "template.", errors).and_then(|table| template(&table, errors));
    let vrf = vrf_name(table, errors);
    if errors.count() > before {
        return None;
    }
    let spec = PolicySpec {
        vrf: vrf?,
        if_id: if_id.map_or(0, |found| found.value),
        direction: direction?.value,
        selector,
        priority: priority.map_or(0, |found| found.value),
        action: action?.value,
        template,
        name: name.map(|found| found.value),
    };
    // Both halves may be wrong at once.
    let faults = [
        check::selector(&spec.selector).err(),
        check::action(&spec).err(),
        check::link_policy(&spec).err(),
    ];
    let mut good = true;
    for fault in faults.into_iter().flatten() {
        table.fault(fault, errors);
        good = false;
    }
    good.then_some(spec)
}

fn aead(table: &Table<'_>, keys: Option<&[Key]>, errors: &mut Errors<'_>) -> Option<Aead> {
    let name = table.required_text("name", errors);
    if !table.has("key") {
        table.missing("key", errors);
    }
    let key = key(table, keys, errors);
    let icv_bits = table.number("icv-bits", 0..=1024, errors).map_or(128, |found| found.value);
    Some(Aead { name: name?.value.to_owned(), key: key?, icv_bits })
}

fn encryption(
    table: &Table<'_>,
    keys: Option<&[Key]>,
    errors: &mut Errors<'_>,
) -> Option<Encryption> {
    let name = table.required_text("name", errors);
    Some(Encryption { key: key(table, keys, errors)?, name: name?.value.to_owned() })
}

fn authentication(
    table: &Table<'_>,
    keys: Option<&[Key]>,
    errors: &mut Errors<'_>,
) -> Option<Authentication> {
    let name = table.required_text("name", errors);
    let truncate_bits = table.number("truncate-bits", 0..=1024, errors).map(|found| found.value);
    Some(Authentication {
        key: key(table, keys, errors)?,
        name: name?.value.to_owned(),
        truncate_bits,
    })
}

fn template(table: &Table<'_>, errors: &mut Errors<'_>) -> Option<Template> {
    let source = table.parsed::<IpAddr>("source", ADDRESS, errors);
    let destination = table.required::<IpAddr>("destination", ADDRESS, errors);
    let spi = table.number::<u32>("spi", 0..=u32::MAX.into(), errors);
    let reqid = table.number("reqid", 0..=u32::MAX.into(), errors);
    let mode = mode(table, errors);
    Some(Template {
        vrf: vrf_named(table, "vrf", errors),
        source: source.map(|found| found.value),
        destination: destination?.value,
        spi: spi.map(|found| found.value),
        reqid: reqid.map_or(0, |found| found.value),
        mode: mode.map_or(SaMode::Tunnel, |found| found.value),
    })
}

/// The mode of an SA or a template.
fn mode(table: &Table<'_>, errors: &mut Errors<'_>) -> Option<Found<SaMode>> {
    if let Some(found) = table.said("mode")
        && ["transport", "beet", "ro", "in_trigger", "iptfs"].contains(&found.value)
    {
        let message = format!("mode = {} is not supported yet", quoted(found.value));
        let hint = "\"tunnel\": hitpath protects in tunnel mode";
        errors.add(found.at, message, Some(hint.to_owned()));
        return None;
    }
    table.word("mode", SaMode::WORDS, errors)
}

/// Whether a key of an SA stands in the file itself.
pub(super) fn has_own_key(table: &Table<'_>) -> bool {
    // What is wrong was told when the SA was read.
    let told = &mut Errors::new("");
    let parts =
        [("aead", "aead."), ("encryption", "encryption."), ("authentication", "authentication.")];
    parts.into_iter().any(|(key, prefix)| {
        let key = table.table(key, prefix, told).and_then(|part| part.said("key"));
        key.is_some_and(|key| !key.value.starts_with("key:"))
    })
}

/// A key. Where there is none, it is empty; what does not read as one is never shown.
fn key(table: &Table<'_>, keys: Option<&[Key]>, errors: &mut Errors<'_>) -> Option<Key> {
    let Some(text) = table.text("key", errors) else { return Some(Key::new(Vec::new())) };
    if let Some(number) = text.value.strip_prefix("key:") {
        // Of a file that cannot be read it is said that it cannot.
        let keys = keys?;
        let found =
            number.parse::<usize>().ok().and_then(|number| keys.get(number.checked_sub(1)?));
        if found.is_none() {
            // It may be a key that begins so.
            let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
            let message = match is_number {
                true => format!("there is no {}", quoted(text.value)),
                false => "what follows `key:` is no number of a line".to_owned(),
            };
            let hint = match keys.len() {
                0 => "keys-file in [gateway], or the key itself, with 0x in front".to_owned(),
                count => format!("key:1 to key:{count}, as in the file that keys-file names"),
            };
            errors.add(text.at, message, Some(hint));
        }
        return found.cloned();
    }
    text.value
        .parse()
        .map_err(|why: api::KeyTextError| errors.add(text.at, format!("key: {why}"), None))
        .ok()
}

fn sorted(mut flags: Vec<SaFlag>) -> Vec<SaFlag> {
    flags.sort_unstable();
    flags.dedup();
    flags
}

/// The VRFs that policies and SAs make IPsec gateways. Those of xfrm links make none.
pub(crate) fn gateways<'a>(
    policies: impl IntoIterator<Item = &'a PolicySpec>,
    states: impl IntoIterator<Item = &'a StateSpec>,
) -> HashSet<&'a str> {
    let of_policies = policies.into_iter().filter(|spec| spec.if_id == 0);
    let of_states = states.into_iter().filter(|spec| spec.if_id == 0);
    of_policies.map(|spec| spec.vrf.as_str()).chain(of_states.map(StateSpec::clear_vrf)).collect()
}
