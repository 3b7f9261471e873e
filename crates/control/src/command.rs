//! Requests as the commands that ask for them, in iproute2's words, and never with a key.
//!
//! This is for logs: who reads one knows what to type to do the same, but for keys.

use core::fmt::Write;

use api::{
    AddressFilter, ConnectionFilter, FilterId, FlowChange, FlowCommand, LinkChange, LinkSpec,
    MAIN_VRF, NeighbourFilter, PolicyFilter, PolicyId, Request, RouteFilter, RouteId, RouteSpec,
    RuleSpec, Selector, StateFilter, StateSpec, TapTarget, TupleFilter, VrfChange,
};
use types::{Family, VlanProtocol};

use crate::config::firewall_text;
use crate::{check, describe};

/// What stands in place of a key.
const HIDDEN: &str = "HIDDEN";

/// The command that asks for `request`. Names are as users gave them, unescaped: whoever writes a
/// line of it escapes control characters. A batch, and several flows, are said by their number;
/// [`commands`] has each.
pub fn command(request: &Request) -> String {
    let mut said = without_family(request);
    if said.starts_with("xfrm ") {
        // A key may stand where a name should.
        said = api::without_keys(&said).into_owned();
    }
    match family(request) {
        Some(Family::V4) => format!("-4 {said}"),
        Some(Family::V6) => format!("-6 {said}"),
        None => said,
    }
}

/// The family that a request is about, where no word but an option in front says it.
fn family(request: &Request) -> Option<Family> {
    use Request as R;
    match request {
        R::StateList(list) => list.filter.family,
        R::StateFlush(flush) => flush.filter.family,
        R::PolicyList(filter) | R::PolicyFlush(filter) => filter.family,
        // Without a word they are about IPv4.
        R::RouteList(filter) | R::RouteFlush(filter) => {
            let is_said =
                [filter.destination, filter.within, filter.holding].iter().any(Option::is_some);
            filter.family.filter(|family| *family == Family::V6 && !is_said)
        }
        R::NeighbourList(filter) | R::NeighbourFlush(filter) => filter.family,
        R::AddressList(filter) | R::AddressFlush(filter) => filter.family,
        R::RuleAdd(spec) | R::RuleDelete(spec) | R::RuleList(spec) | R::RuleFlush(spec) => {
            spec.family.filter(|_| spec.from.is_none() && spec.to.is_none())
        }
        _ => None,
    }
}

fn without_family(request: &Request) -> String {
    use Request as R;
    match request {
        R::Version => "version".to_owned(),
        R::Ports => "show ports".to_owned(),
        R::Daemon => "show daemon".to_owned(),
        R::Workers => "show workers".to_owned(),
        R::Drops => "show drops".to_owned(),
        R::Caches => "show cache".to_owned(),
        R::Costs => "show cost".to_owned(),
        R::Spd(_) => "show spd".to_owned(),
        R::Batch(batch) => format!("batch of {} commands", batch.requests.len()),
        R::Reload { dry_run: false } => "reload".to_owned(),
        R::Reload { dry_run: true } => "reload --dry-run".to_owned(),
        R::Diff => "diff".to_owned(),
        R::Save { keys_file: None } => "save".to_owned(),
        R::Save { keys_file: Some(file) } => format!("save --keys {file}"),
        R::Explain { packet } => format!("explain {packet}"),

        R::StateAdd(spec) => format!("xfrm state add {}", state(spec)),
        R::StateUpdate(spec) => format!("xfrm state update {}", state(spec)),
        R::StateDelete(id) => {
            let mut text = format!("xfrm state delete dst {} spi {:#x}", id.destination, id.spi);
            word(&mut text, "src", id.source);
            in_vrf(text, &id.vrf)
        }
        R::StateGet(id) => {
            let text = format!("xfrm state get dst {} spi {:#x}", id.destination, id.spi);
            with_keys(in_vrf(text, &id.vrf), id.show_keys)
        }
        R::StateList(list) => with_keys(states("xfrm state list", &list.filter), list.show_keys),
        R::StateFlush(flush) => states("xfrm state flush", &flush.filter),
        R::StateCount => "xfrm state count".to_owned(),

        R::PolicyAdd(spec) => format!("xfrm policy add {}", describe::policy(spec)),
        R::PolicyUpdate(spec) => format!("xfrm policy update {}", describe::policy(spec)),
        R::PolicyDelete(id) => policy("xfrm policy delete", id),
        R::PolicyGet(id) => policy("xfrm policy get", id),
        R::PolicyList(filter) => policies("xfrm policy list", filter),
        R::PolicyPage(_) => "show policies".to_owned(),
        R::PolicyFlush(filter) => policies("xfrm policy flush", filter),
        R::PolicyCount | R::PolicyCountByDirection => "xfrm policy count".to_owned(),
        R::PolicySetDefault(defaults) => {
            let mut text = "xfrm policy setdefault".to_owned();
            word(&mut text, "in", defaults.inbound);
            word(&mut text, "fwd", defaults.forward);
            word(&mut text, "out", defaults.outbound);
            in_vrf(text, &defaults.vrf)
        }
        R::PolicyGetDefault(vrf) => in_vrf("xfrm policy getdefault".to_owned(), &vrf.name),

        R::RouteAdd(spec) => route("route add", spec),
        R::RouteReplace(spec) => route("route replace", spec),
        R::RouteChange(spec) => route("route change", spec),
        R::RouteDelete(id) => route_id(id),
        R::RouteGet(query) => format!("route get {}", query.destination),
        R::RouteList(filter) => routes("route list", filter),
        R::RouteFlush(filter) => routes("route flush", filter),

        R::RuleAdd(spec) => rule("rule add", spec),
        R::RuleDelete(spec) => rule("rule delete", spec),
        R::RuleList(spec) => rule("rule list", spec),
        R::RuleFlush(spec) => rule("rule flush", spec),

        R::NextHopList => "show next-hops".to_owned(),

        R::NeighbourAdd(spec) => {
            format!("neigh add {} lladdr {} dev {}", spec.address, spec.mac, spec.port)
        }
        R::NeighbourReplace(spec) => {
            format!("neigh replace {} lladdr {} dev {}", spec.address, spec.mac, spec.port)
        }
        R::NeighbourDelete(id) => format!("neigh delete {} dev {}", id.address, id.port),
        R::NeighbourGet(id) => format!("neigh get {} dev {}", id.address, id.port),
        R::NeighbourList(filter) => neighbours("neigh list", filter),
        R::NeighbourFlush(filter) => neighbours("neigh flush", filter),

        R::AddressAdd(spec) => format!("addr add {} dev {}", spec.address, spec.port),
        R::AddressReplace(spec) => format!("addr replace {} dev {}", spec.address, spec.port),
        R::AddressDelete(id) if id.any_length => {
            format!("addr delete {} dev {}", id.address.address(), id.port)
        }
        R::AddressDelete(id) => format!("addr delete {} dev {}", id.address, id.port),
        R::AddressList(filter) => addresses("addr list", filter),
        R::AddressFlush(filter) => addresses("addr flush", filter),

        R::LinkAdd(spec) => link_add(spec),
        R::LinkDelete(link) => format!("link delete dev {}", link.port),
        R::LinkSet(change) => link_set(change),
        R::LinkList(_) => "link list".to_owned(),

        R::QdiscAdd(spec) => format!("qdisc add {}", describe::qdisc(spec)),
        R::QdiscReplace(spec) => format!("qdisc replace {}", describe::qdisc(spec)),
        R::QdiscChange(spec) => format!("qdisc change {}", describe::qdisc(spec)),
        R::QdiscDelete(id) => {
            let mut text = format!("qdisc delete dev {}", id.dev);
            match id.parent {
                None => text.push_str(" root"),
                parent => word(&mut text, "parent", parent),
            }
            word(&mut text, "handle", id.handle);
            text
        }
        R::QdiscList(filter) => {
            let mut text = "qdisc list".to_owned();
            word(&mut text, "dev", filter.dev.as_ref());
            text.push_str(if filter.root { " root" } else { "" });
            text.push_str(if filter.ingress { " ingress" } else { "" });
            word(&mut text, "handle", filter.handle);
            word(&mut text, "parent", filter.parent);
            text
        }

        R::VrfAdd(vrf) => {
            let mut text = format!("vrf add {}", vrf.name);
            word(&mut text, "table", vrf.table);
            text
        }
        R::VrfDelete(vrf) => format!("vrf delete {}", vrf.name),
        R::VrfSet(change) => vrf_set(change),
        R::VrfGet(vrf) => format!("vrf show {}", vrf.name),
        R::VrfList => "vrf list".to_owned(),

        R::FilterAdd(spec) => format!("filter add {}", describe::filter(spec)),
        R::FilterReplace(spec) => format!("filter replace {}", describe::filter(spec)),
        R::FilterChange(spec) => format!("filter change {}", describe::filter(spec)),
        R::FilterDelete(id) => filter_delete(id),
        R::FilterList(_) => "filter list".to_owned(),

        R::FlowChange(changes) => match &*changes.changes {
            [change] if !changes.replace => flow(change),
            [] if changes.replace => "flow del-all".to_owned(),
            all if changes.replace => format!("flow replace of {} flows", all.len()),
            all => format!("flow add-flows of {} changes", all.len()),
        },
        R::FlowList(_) => "flow list".to_owned(),

        R::FirewallReplace(spec) => format!("firewall replace of {}", describe::extent(spec)),
        R::FirewallDelete => "firewall delete".to_owned(),
        R::FirewallGet => "firewall show".to_owned(),

        R::ConnectionList(query) => connections("conntrack -L", &query.filter),
        R::ConnectionGet(filter) => connections("conntrack -G", filter),
        R::ConnectionDelete(query) if query.filter == ConnectionFilter::default() => {
            "conntrack -F".to_owned()
        }
        R::ConnectionDelete(query) => connections("conntrack -D", &query.filter),
        R::ConnectionUpdate(change) => {
            let mut text = connections("conntrack -U", &change.filter);
            word(&mut text, "-m", change.mark);
            word(&mut text, "-t", change.timeout);
            text
        }
        R::ConnectionCount => "conntrack -C".to_owned(),
        R::ConnectionStatistics => "conntrack -S".to_owned(),
        R::TimeoutList => "conntrack -L timeout".to_owned(),
        R::ExpectationList => "conntrack -L expect".to_owned(),
        R::ExpectationFlush => "conntrack -F expect".to_owned(),
        R::NatPools => "show nat".to_owned(),

        R::TapAdd(spec) => match &spec.target {
            TapTarget::Port(port) => format!("tap add port {port}"),
            TapTarget::Vrf(vrf) => format!("tap add vrf {vrf}"),
        },
        R::TapDelete { id } => format!("tap del {id}"),
        R::TapList => "tap show".to_owned(),
        R::TraceAdd(_) => "trace add".to_owned(),
        R::TraceDelete { id } => format!("trace del {id}"),
        R::TraceList => "trace show".to_owned(),
    }
}

/// Each of many changes that one request makes, in their order; none if it makes one.
pub fn commands(request: &Request) -> Vec<String> {
    match request {
        Request::Batch(batch) => batch.requests.iter().map(command).collect(),
        Request::FlowChange(changes) if changes.replace || changes.changes.len() != 1 => {
            changes.changes.iter().map(flow).collect()
        }
        // As a file has it, a part a line.
        Request::FirewallReplace(spec) => {
            let text = firewall_text(spec);
            let parts = text.split("\n\n").map(|part| part.trim().replace('\n', " "));
            parts.filter(|part| !part.is_empty()).collect()
        }
        _ => Vec::new(),
    }
}

/// Adds `KEY VALUE` if there is a value.
fn word<T: core::fmt::Display>(text: &mut String, key: &str, value: Option<T>) {
    if let Some(value) = value {
        // A string takes everything that is written to it.
        let _ = write!(text, " {key} {value}");
    }
}

fn flag(text: &mut String, is_said: bool, word: &str) {
    if is_said {
        text.push(' ');
        text.push_str(word);
    }
}

fn in_vrf(mut text: String, vrf: &str) -> String {
    if vrf != MAIN_VRF {
        word(&mut text, "vrf", Some(vrf));
    }
    text
}

fn with_keys(mut text: String, show_keys: bool) -> String {
    flag(&mut text, show_keys, "with keys");
    text
}

fn state(spec: &StateSpec) -> String {
    let mut text = describe::state(spec);
    if let Some(aead) = &spec.aead {
        let _ = write!(text, " aead {} {HIDDEN} {}", algorithm(&aead.name), aead.icv_bits);
    }
    if let Some(encryption) = &spec.encryption {
        let _ = write!(text, " enc {} {HIDDEN}", algorithm(&encryption.name));
    }
    if let Some(authentication) = &spec.authentication {
        let name = algorithm(&authentication.name);
        let _ = match authentication.truncate_bits {
            Some(bits) => write!(text, " auth-trunc {name} {HIDDEN} {bits}"),
            None => write!(text, " auth {name} {HIDDEN}"),
        };
    }
    let some = |number: u32| (number != 0).then_some(number);
    word(&mut text, "replay-window", some(spec.replay_window));
    word(&mut text, "replay-oseq", some(spec.sent_sequence));
    word(&mut text, "replay-seq", some(spec.received_sequence));
    if !spec.flags.is_empty() {
        text.push_str(" flag");
        spec.flags.iter().for_each(|it| flag(&mut text, true, it.name()));
    }
    text
}

/// A name of an algorithm as names look; hidden if it may be a key in the wrong place.
fn algorithm(name: &str) -> &str {
    let is_name = check::is_algorithm(name);
    if is_name { name } else { HIDDEN }
}

fn states(verb: &str, filter: &StateFilter) -> String {
    let StateFilter { vrf, family: _, source, destination, spi, reqid } = filter;
    let mut text = verb.to_owned();
    word(&mut text, "src", *source);
    word(&mut text, "dst", *destination);
    if let Some(spi) = spi {
        let _ = write!(text, " spi {spi:#x}");
    }
    word(&mut text, "reqid", *reqid);
    word(&mut text, "vrf", vrf.as_ref());
    text
}

fn selector(text: &mut String, is: &Selector) {
    let words = describe::selector(is);
    flag(text, !words.is_empty(), &words);
}

fn policy(verb: &str, id: &PolicyId) -> String {
    let mut text = verb.to_owned();
    selector(&mut text, &id.selector);
    word(&mut text, "dir", Some(id.direction));
    word(&mut text, "index", id.index);
    match id.if_id {
        0 => in_vrf(text, &id.vrf),
        if_id => format!("{text} if_id {if_id:#x}"),
    }
}

fn policies(verb: &str, filter: &PolicyFilter) -> String {
    let PolicyFilter {
        vrf,
        if_id,
        family: _,
        direction,
        index,
        action,
        priority,
        name,
        selector: is,
    } = filter;
    let mut text = verb.to_owned();
    selector(&mut text, is);
    word(&mut text, "dir", *direction);
    word(&mut text, "index", *index);
    word(&mut text, "action", *action);
    word(&mut text, "priority", *priority);
    word(&mut text, "if_id", *if_id);
    word(&mut text, "name", *name);
    word(&mut text, "vrf", vrf.as_ref());
    text
}

fn route(verb: &str, spec: &RouteSpec) -> String {
    format!("{verb} {}", describe::route(spec))
}

fn route_id(id: &RouteId) -> String {
    let mut text = "route delete".to_owned();
    if let Some(kind) = id.kind {
        let _ = write!(text, " {kind}");
    }
    let _ = write!(text, " {}", id.destination);
    word(&mut text, "via", id.via);
    word(&mut text, "dev", id.port.as_ref());
    if let Some(vrf) = &id.nexthop_vrf {
        let _ = write!(text, " nexthop vrf {vrf}");
    }
    word(&mut text, "metric", id.metric);
    word(&mut text, "proto", id.protocol);
    match id.table {
        Some(table) => format!("{text} table {table}"),
        None => in_vrf(text, &id.vrf),
    }
}

fn routes(verb: &str, filter: &RouteFilter) -> String {
    let RouteFilter {
        vrf,
        table,
        family: _,
        destination,
        within,
        holding,
        kind,
        port,
        via,
        all,
        protocol,
    } = filter;
    let mut text = verb.to_owned();
    word(&mut text, "exact", *destination);
    word(&mut text, "root", *within);
    word(&mut text, "match", *holding);
    word(&mut text, "type", *kind);
    word(&mut text, "proto", *protocol);
    word(&mut text, "dev", port.as_ref());
    word(&mut text, "via", *via);
    word(&mut text, "vrf", vrf.as_ref());
    word(&mut text, "table", *table);
    flag(&mut text, *all && vrf.is_none() && table.is_none(), "table all");
    text
}

fn rule(verb: &str, spec: &RuleSpec) -> String {
    let mut text = verb.to_owned();
    word(&mut text, "priority", spec.priority);
    word(&mut text, "from", spec.from);
    text + &describe::rule_rest(spec)
}

fn neighbours(verb: &str, filter: &NeighbourFilter) -> String {
    let NeighbourFilter { port, vrf, family: _, within, state } = filter;
    let mut text = verb.to_owned();
    word(&mut text, "to", *within);
    word(&mut text, "dev", port.as_ref());
    word(&mut text, "vrf", vrf.as_ref());
    word(&mut text, "nud", state.map(|state| state.name()));
    text
}

fn addresses(verb: &str, filter: &AddressFilter) -> String {
    let AddressFilter { port, vrf, family: _, within } = filter;
    let mut text = verb.to_owned();
    word(&mut text, "to", *within);
    word(&mut text, "dev", port.as_ref());
    word(&mut text, "vrf", vrf.as_ref());
    text
}

fn link_add(spec: &LinkSpec) -> String {
    let LinkSpec { name, parent, vlan, if_id, protocol, mtu, vrf, up } = spec;
    let mut text = match if_id {
        0 => format!("link add link {parent} name {name}"),
        _ => format!("link add name {name}"),
    };
    word(&mut text, "mtu", *mtu);
    word(&mut text, "vrf", vrf.as_ref());
    flag(&mut text, *up, "up");
    if *if_id != 0 {
        let _ = write!(text, " type xfrm dev {parent} if_id {if_id:#x}");
        return text;
    }
    text.push_str(" type vlan");
    word(&mut text, "protocol", (*protocol != VlanProtocol::Customer).then_some(protocol));
    word(&mut text, "id", Some(vlan));
    text
}

fn link_set(change: &LinkChange) -> String {
    let LinkChange { port, up, mtu, vrf, side, rpf, mss } = change;
    let mut text = format!("link set dev {port}");
    word(&mut text, "vrf", vrf.as_ref());
    word(&mut text, "mtu", *mtu);
    if let Some(up) = up {
        flag(&mut text, true, if *up { "up" } else { "down" });
    }
    word(&mut text, "side", *side);
    word(&mut text, "rpf", *rpf);
    word(&mut text, "mss", *mss);
    text
}

fn vrf_set(change: &VrfChange) -> String {
    let VrfChange { name, ipsec, ike, highest_share } = change;
    let mut text = format!("vrf set {name}");
    word(&mut text, "ipsec", *ipsec);
    word(&mut text, "ike", *ike);
    word(&mut text, "highest-share", *highest_share);
    text
}

fn filter_delete(id: &FilterId) -> String {
    let mut text = format!("filter delete {}", describe::filter_id(&id.target, id.hook, id.pref));
    word(&mut text, "protocol", id.protocol);
    text
}

fn flow(change: &FlowChange) -> String {
    let command = match change.command {
        FlowCommand::Add => "add",
        FlowCommand::Modify => "mod",
        FlowCommand::ModifyStrict => "mod --strict",
        FlowCommand::Delete => "del",
        FlowCommand::DeleteStrict => "del --strict",
    };
    format!("flow {command} {}", change.flow)
}

fn tuple(text: &mut String, names: [&str; 4], is: &TupleFilter) {
    word(text, names[0], is.source);
    word(text, names[1], is.destination);
    word(text, names[2], is.source_port);
    word(text, names[3], is.destination_port);
}

fn connections(verb: &str, filter: &ConnectionFilter) -> String {
    let mut text = verb.to_owned();
    word(&mut text, "-p", filter.protocol);
    word(&mut text, "-w", filter.zone);
    tuple(&mut text, ["-s", "-d", "--sport", "--dport"], &filter.original);
    tuple(&mut text, ["-r", "-q", "--reply-port-src", "--reply-port-dst"], &filter.reply);
    word(&mut text, "--state", filter.state.as_ref());
    word(&mut text, "-m", filter.mark);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Request {
        let (family, line) = match line.split_at_checked(3) {
            Some(("-4 ", line)) => (Some(Family::V4), line),
            Some(("-6 ", line)) => (Some(Family::V6), line),
            _ => (None, line),
        };
        let words: Vec<_> = line.split_whitespace().collect();
        crate::grammar::parse_with(&words, family)
            .unwrap_or_else(|refusal| panic!("{line}: {refusal}"))
    }

    #[test]
    fn what_is_said_of_a_change_asks_for_it() {
        for line in [
            "xfrm policy add src 10.1.0.0/16 dst 10.2.0.0/16 dir out priority 5 vrf red",
            "xfrm policy update src 10.1.0.0/16 dst 10.2.0.0/16 dir in action block if_id 7",
            "xfrm policy add src 10.1.0.0/16 dst 10.2.0.0/16 dir out vrf red name berlin",
            "xfrm policy flush dir out name berlin vrf red",
            "xfrm policy delete src 10.1.0.0/16 dst 10.2.0.0/16 dir out vrf red",
            "xfrm policy delete dir in index 9",
            "xfrm policy flush dir out vrf red",
            "xfrm policy setdefault in block out accept vrf red",
            "xfrm state delete src 192.0.2.1 dst 192.0.2.2 proto esp spi 0x100 vrf red",
            "xfrm state flush",
            "route add 10.0.0.0/8 via 192.0.2.1 dev wan metric 5 vrf red",
            "route replace blackhole 10.0.0.0/8",
            "route change 10.0.0.0/8 nexthop vrf blue metric 5",
            "route delete 10.0.0.0/8 via 192.0.2.1 dev wan metric 7 table 9",
            "route delete blackhole 10.0.0.0/8",
            "route flush root 10.0.0.0/8 vrf red",
            "rule add from 10.0.0.0/8 iif lan lookup 10 priority 100",
            "rule delete from 10.0.0.0/8 lookup 10 priority 100",
            "rule add lookup 10",
            "-6 rule add lookup 10 priority 5",
            "rule flush",
            "-6 rule flush iif lan",
            "-4 rule flush priority 7",
            "-6 route flush dev lan",
            "-6 route add default via 2001:db8::1",
            "-4 neigh flush dev lan",
            "-6 addr flush dev lan",
            "-6 xfrm policy flush",
            "-4 xfrm state flush",
            "neigh add 192.0.2.9 lladdr 02:00:00:00:00:09 dev lan",
            "neigh replace fe80::9 lladdr 02:00:00:00:00:09 dev lan",
            "neigh delete 192.0.2.9 dev lan",
            "neigh flush dev lan nud permanent",
            "addr add 192.0.2.1/24 dev lan",
            "addr replace 2001:db8::1/64 dev lan",
            "addr delete 192.0.2.1/24 dev lan",
            "addr delete 192.0.2.1 dev lan",
            "addr flush dev lan to 192.0.2.0/24",
            "link add link lan name lan.5 mtu 1400 up type vlan protocol 802.1ad id 5",
            "link add name ipsec0 vrf red type xfrm dev wan if_id 0x2a",
            "link delete dev lan.5",
            "link set dev lan vrf red mtu 1400 down side protected rpf strict mss pmtu",
            "vrf add red table 100",
            "vrf delete red",
            "vrf set red ipsec required",
            "vrf set red ike bypass",
            "vrf set red highest-share 30",
            "qdisc add dev wan root handle 1: tbf rate 100mbit burst 32kb limit 1mb",
            "qdisc replace dev wan parent 1: fq_codel limit 100 flows 64 target 5ms ecn",
            "qdisc change dev wan root pfifo limit 100",
            "qdisc delete dev wan root",
            "filter add dev lan ingress pref 10 protocol ip flower ip_proto tcp dst_port 22 \
             action drop log",
            "filter delete vrf red ingress pref 10",
            "filter delete dev lan ingress",
            "flow add table=0,priority=5,ip,actions=drop",
            "flow del --strict table=0,priority=5,ip",
        ] {
            let request = parsed(line);
            assert!(!request.only_reads(), "{line}");
            let said = command(&request);
            assert_eq!(parsed(&said), request, "{line} is said as {said}");
        }
    }

    #[test]
    fn a_key_is_not_said() {
        for line in [
            "xfrm state add src 192.0.2.1 dst 192.0.2.2 proto esp spi 0x100 reqid 7 mode tunnel \
             aead rfc4106(gcm(aes)) 0x000102030405060708090a0b0c0d0e0f10111213 128 \
             replay-window 64 flag noecn",
            "xfrm state update src 192.0.2.1 dst 192.0.2.2 proto esp spi 0x100 mode tunnel \
             enc cbc(aes) 0x000102030405060708090a0b0c0d0e0f \
             auth-trunc hmac(sha256) \
             0x000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f 128",
        ] {
            let said = command(&parsed(line));
            assert!(said.contains(HIDDEN) && said.contains("spi 0x00000100"), "{said}");
            assert!(!said.contains("01020304"), "{said}");
        }
    }

    #[test]
    fn each_command_of_a_batch_is_said() {
        let requests = ["route add 10.0.0.0/8 dev lan", "vrf add red"].map(parsed).to_vec();
        let batch = Request::Batch(api::Batch { on_refusal: api::OnRefusal::Stop, requests });
        assert_eq!(command(&batch), "batch of 2 commands");
        assert_eq!(commands(&batch), ["route add 10.0.0.0/8 dev lan", "vrf add red"]);
        assert!(commands(&parsed("vrf add red")).is_empty());

        let text =
            "[firewall]\nlog = \"rest\"\n\n[[firewall.zone]]\nname = \"in\"\nports = [\"lan\"]\n";
        let (spec, _) = crate::config::load_firewall("fw.toml", text).unwrap();
        let firewall = Request::FirewallReplace(Box::new(spec.unwrap()));
        assert_eq!(command(&firewall), "firewall replace of 1 zone, 0 policies");
        let parts =
            ["[firewall] log = \"rest\"", "[[firewall.zone]] name = \"in\" ports = [\"lan\"]"];
        assert_eq!(commands(&firewall), parts);
    }
}
