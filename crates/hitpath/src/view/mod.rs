//! How replies look: JSON with stable names for programs, iproute2's words or tables for people.

mod cache;
pub(crate) mod conntrack;
mod cost;
mod spd;
mod table;

use std::fmt::Write;

use api::{
    CounterView, DaemonView, DeviceStatistics, DropView, InterfaceState, LinkView, NextHopView,
    PolicyView, PortView, Reply, Request, Selector, Stage, StateView, WorkerView,
};

use control::render::Options;
use runtime::output;

use crate::ip_options::Look;

pub(crate) use spd::{bound, head, tail};
pub(crate) use table::{Columns, LONG, table};

/// Prints the answer to `request`.
pub(crate) fn print(request: &Request, reply: &Reply, as_json: bool) -> anyhow::Result<()> {
    print_with(request, reply, as_json, Options::default())
}

/// The same, with iproute2's options. JSON has everything in any case.
pub(crate) fn print_with(
    request: &Request,
    reply: &Reply,
    as_json: bool,
    options: Options,
) -> anyhow::Result<()> {
    match (reply, as_json) {
        (Reply::Explained(stages), true) => output::json(&explained(stages)),
        (_, true) => output::json(&control::render::plain(reply)?),
        (_, false) => output::text(&text(request, reply, options)),
    }
}

/// Prints the answer to a command in iproute2's words, in its ways: those of `ip -j`, too. `links`
/// are those of an answer with addresses.
pub(crate) fn print_as_ip(
    request: &Request,
    reply: &Reply,
    links: &[LinkView],
    as_json: bool,
    look: Look,
) -> anyhow::Result<()> {
    if as_json {
        return output::json(&control::render::json(request, reply, links, look.options)?);
    }
    let text = control::render::reply_with_links(request, reply, links, look.options);
    output::text(&if look.colour { control::render::coloured(&text) } else { text })
}

/// Prints the answer to `hitpath show`: tables if there are any, iproute2's words for the rest.
/// `all` shows also drop reasons that no packet was dropped for.
pub(crate) fn show(
    request: &Request,
    reply: &Reply,
    as_json: bool,
    all: bool,
) -> anyhow::Result<()> {
    match reply {
        _ if as_json => print(request, reply, true)?,
        Reply::Drops(views) => output::text(&drops(views, all))?,
        Reply::States(views) => output::text(&states(views))?,
        Reply::NextHops(views) => output::text(&next_hops(views))?,
        _ => print(request, reply, false)?,
    }
    match summary(reply).filter(|_| !as_json) {
        Some(line) => output::text(&line),
        None => Ok(()),
    }
}

fn text(request: &Request, reply: &Reply, options: Options) -> String {
    match reply {
        Reply::Ports(views) if matches!(request, Request::Ports) => ports(views),
        Reply::Daemon(view) => daemon(view),
        Reply::Workers(views) => workers(views),
        Reply::Drops(views) => drops(views, false),
        Reply::Caches(report) => cache::caches(report),
        Reply::Costs(report) => cost::costs(report),
        Reply::Spd(report) => spd::spd(report),
        Reply::Explained(stages) => explanation(stages),
        Reply::ConnectionStatistics(counted) => conntrack::statistics(counted),
        Reply::NatPools(views) => conntrack::pools(views),
        _ => control::render::reply_with(request, reply, options),
    }
}

/// Whether a port sends and receives, or what is the matter with its interface.
pub(crate) fn state(port: &PortView) -> &'static str {
    match (port.up, port.interface_state) {
        (true, _) => "up",
        (false, Some(state @ (InterfaceState::NoCarrier | InterfaceState::Gone))) => state.name(),
        (false, Some(InterfaceState::Down)) => "interface-down",
        (false, Some(InterfaceState::Up) | None) => "down",
    }
}

/// Ports and what passed them.
pub(crate) fn ports(views: &[PortView]) -> String {
    let row = |port: &PortView| {
        let counted = port.statistics.unwrap_or_default();
        let addresses =
            port.addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        vec![
            port.name.clone(),
            port.kind.clone(),
            port.vrf.clone(),
            state(port).to_owned(),
            port.side.to_string(),
            port.mtu.to_string(),
            match port.link {
                packet::LinkKind::Ethernet => port.mac.to_string(),
                packet::LinkKind::Ip => "-".to_owned(),
            },
            counted.rx_packets.to_string(),
            counted.rx_bytes.to_string(),
            (counted.rx_lost() + unread(port)).to_string(),
            counted.tx_packets.to_string(),
            counted.tx_bytes.to_string(),
            counted.unsent().to_string(),
            if addresses.is_empty() { "-".to_owned() } else { addresses },
        ]
    };
    let heading = [
        "PORT",
        "KIND",
        "VRF",
        "STATE",
        "SIDE",
        "MTU",
        "MAC",
        "RX",
        "RX BYTES",
        "RX LOST",
        "TX",
        "TX BYTES",
        "TX LOST",
        "ADDRESSES",
    ];
    let ports = table(&heading, &views.iter().map(row).collect::<Vec<_>>());
    let devices: Vec<_> = views.iter().filter_map(device).collect();
    if devices.is_empty() {
        return ports;
    }
    let heading = [
        "PORT",
        "INTERFACE",
        "STATE",
        "RX",
        "RX DROPPED",
        "RX MISSED",
        "RX ERRORS",
        "TX",
        "TX DROPPED",
        "TX ERRORS",
        "RING FRAMES",
        "RATE",
        "HOLDS MS",
    ];
    format!("{ports}\n{}", table(&heading, &devices))
}

/// Frames that a TAP device's queue had no room for. Only the device counts them.
fn unread(port: &PortView) -> u64 {
    port.device.filter(|_| port.kind == "tap").map_or(0, |device| device.tx_dropped)
}

/// What the system's interface of a port has counted, and how much waits for its workers at most.
fn device(port: &PortView) -> Option<Vec<String>> {
    let number = |number: Option<u64>| number.map_or_else(|| "-".to_owned(), |it| it.to_string());
    let device = |counter: fn(&DeviceStatistics) -> u64| number(port.device.as_ref().map(counter));
    let ring = port.ring;
    Some(vec![
        port.name.clone(),
        port.interface.clone()?,
        port.interface_state?.name().to_owned(),
        device(|device| device.rx_packets),
        device(|device| device.rx_dropped),
        device(|device| device.rx_missed),
        device(|device| device.rx_errors),
        device(|device| device.tx_packets),
        device(|device| device.tx_dropped),
        device(|device| device.tx_errors),
        number(ring.map(|ring| ring.frames)),
        number(ring.map(|ring| ring.rate)),
        number(ring.and_then(|ring| ring.holds_ms)),
    ])
}

/// Next hops and what was sent by them.
fn next_hops(views: &[NextHopView]) -> String {
    let row = |view: &NextHopView| {
        vec![
            view.id.to_string(),
            view.vrf.clone(),
            view.port.clone(),
            view.address.map_or_else(|| "-".to_owned(), |address| address.to_string()),
            view.state.clone(),
            view.mtu.to_string(),
            view.packets.to_string(),
            view.bytes.to_string(),
        ]
    };
    let heading = ["ID", "VRF", "PORT", "ADDRESS", "STATE", "MTU", "PACKETS", "BYTES"];
    table(&heading, &views.iter().map(row).collect::<Vec<_>>())
}

/// What there is to say of the daemon's process.
fn daemon(view: &DaemonView) -> String {
    let rows: Vec<_> =
        view.rows().into_iter().map(|(name, value)| vec![name.into(), value]).collect();
    table(&["DAEMON", ""], &rows)
}

/// Workers, then everything that they have counted, with a column for each of them.
fn workers(views: &[WorkerView]) -> String {
    let row = |worker: &WorkerView| {
        vec![
            worker.index.to_string(),
            worker.processor.map_or_else(|| "-".to_owned(), |processor| processor.to_string()),
            worker.packets.to_string(),
            worker.batches.to_string(),
            worker.drops.to_string(),
            worker.rounds.to_string(),
        ]
    };
    let heading = ["WORKER", "PROCESSOR", "PACKETS", "BATCHES", "DROPS", "ROUNDS"];
    let workers = table(&heading, &views.iter().map(row).collect::<Vec<_>>());
    let Some(first) = views.first() else { return workers };
    let row = |counter: &CounterView| {
        // By name, as the daemon may be another version than the client.
        let of = |worker: &WorkerView| {
            let same = worker.counters.iter().find(|other| other.name == counter.name);
            same.map_or_else(|| "-".to_owned(), |same| same.value.to_string())
        };
        let values = views.iter().map(of);
        [counter.name.clone()].into_iter().chain(values).chain([counter.meaning.clone()]).collect()
    };
    let names: Vec<String> =
        views.iter().map(|worker| format!("WORKER {}", worker.index)).collect();
    let heading: Vec<&str> = ["COUNTER"]
        .into_iter()
        .chain(names.iter().map(String::as_str))
        .chain(["MEANING"])
        .collect();
    let counters = table(&heading, &first.counters.iter().map(row).collect::<Vec<_>>());
    format!("{workers}\n{counters}")
}

/// Drops by reason: those that happened, or `all` there are.
pub(crate) fn drops(views: &[DropView], all: bool) -> String {
    let rows: Vec<_> = views
        .iter()
        .filter(|drop| all || drop.packets > 0)
        .map(|drop| vec![drop.packets.to_string(), drop.reason.clone(), drop.meaning.clone()])
        .collect();
    if rows.is_empty() {
        return "no packet was dropped\n".to_owned();
    }
    table(&["PACKETS", "REASON", "MEANING"], &rows)
}

/// What workers have counted, if it happened at least once.
pub(crate) fn counters(counters: &[CounterView]) -> String {
    let rows: Vec<_> = counters
        .iter()
        .filter(|counter| counter.value > 0)
        .map(|counter| {
            vec![counter.value.to_string(), counter.name.clone(), counter.meaning.clone()]
        })
        .collect();
    table(&["COUNT", "COUNTER", "MEANING"], &rows)
}

/// Policies, in the order in which they are tried.
pub(crate) fn policies(views: &[PolicyView]) -> String {
    table(&POLICY_HEADING, &views.iter().map(policy_row).collect::<Vec<_>>())
}

/// The columns of [`policy_row`].
pub(crate) const POLICY_HEADING: [&str; 13] = [
    "VRF",
    "DIR",
    "NO",
    "INDEX",
    "NAME",
    "PRIORITY",
    "ACTION",
    "SOURCE",
    "DESTINATION",
    "UPPER",
    "TUNNEL",
    "PACKETS",
    "BYTES",
];

/// A policy in a row.
pub(crate) fn policy_row(policy: &PolicyView) -> Vec<String> {
    let spec = &policy.spec;
    let any = || "any".to_owned();
    let template = spec.template.as_ref().map_or_else(
        || "-".to_owned(),
        |template| {
            // That of the policy, if it is not said; that of a link's is not shown otherwise.
            let vrf = template.vrf.as_ref().unwrap_or(&spec.vrf);
            let vrf = Some(vrf).filter(|vrf| spec.if_id != 0 || **vrf != spec.vrf);
            format!(
                "{} > {} reqid {}{}",
                template.source.map_or_else(any, |a| a.to_string()),
                template.destination,
                template.reqid,
                vrf.map_or_else(String::new, |vrf| format!(" vrf {vrf}"))
            )
        },
    );
    vec![
        // Those of a link are no VRF's.
        if spec.if_id == 0 { spec.vrf.clone() } else { format!("if_id {:#x}", spec.if_id) },
        spec.direction.to_string(),
        policy.position.to_string(),
        policy.index.to_string(),
        spec.name.map_or_else(|| "-".to_owned(), |name| name.to_string()),
        spec.priority.to_string(),
        spec.action.to_string(),
        spec.selector.source.map_or_else(any, |range| range.to_string()),
        spec.selector.destination.map_or_else(any, |range| range.to_string()),
        upper(&spec.selector),
        template,
        policy.traffic.packets.to_string(),
        policy.traffic.bytes.to_string(),
    ]
}

/// The last line of a long list: how many there are; nothing of a short one.
fn summary(reply: &Reply) -> Option<String> {
    let (count, noun, more) = match reply {
        Reply::Ports(views) => {
            let up = views.iter().filter(|port| port.up).count();
            (views.len(), "ports", format!(", {up} up"))
        }
        Reply::States(views) => {
            let all = |of: fn(&StateView) -> u64| views.iter().map(of).sum::<u64>();
            let (packets, bytes) = (all(|sa| sa.traffic.packets), all(|sa| sa.traffic.bytes));
            let errors = all(|sa| sa.errors.packets);
            let more = format!(": {packets} packets, {bytes} bytes, {errors} errors");
            (views.len(), "SAs", more)
        }
        Reply::Routes(views) => (views.len(), "routes", String::new()),
        Reply::Neighbours(views) => (views.len(), "neighbours", String::new()),
        Reply::Vrfs(views) => (views.len(), "VRFs", String::new()),
        Reply::NextHops(views) => {
            let packets: u64 = views.iter().map(|hop| hop.packets).sum();
            (views.len(), "next hops", format!(": {packets} packets"))
        }
        _ => return None,
    };
    (count as u64 > LONG).then(|| format!("\n{count} {noun}{more}\n"))
}

/// What a selector says besides addresses, in iproute2's words.
fn upper(selector: &Selector) -> String {
    let mut words = Vec::new();
    words.extend(selector.protocol.map(|protocol| protocol.to_string()));
    words.extend(selector.source_ports.map(|ports| format!("sport {ports}")));
    words.extend(selector.destination_ports.map(|ports| format!("dport {ports}")));
    words.extend(selector.icmp_type.map(|range| format!("type {range}")));
    words.extend(selector.icmp_code.map(|range| format!("code {range}")));
    words.extend(selector.dscp.map(|dscp| format!("dscp {dscp}")));
    words.extend(selector.tcp_flags.map(|flags| format!("tcp-flags {flags}")));
    words.extend(selector.ttl.map(|ttl| format!("ttl {ttl}")));
    if words.is_empty() { "any".to_owned() } else { words.join(" ") }
}

/// SAs and what passed them.
pub(crate) fn states(views: &[StateView]) -> String {
    let row = |state: &StateView| {
        let algorithms: Vec<&str> = [&state.aead, &state.encryption, &state.authentication]
            .into_iter()
            .flatten()
            .map(|algorithm| algorithm.name.as_str())
            .collect();
        vec![
            state.vrf.clone(),
            format!("{:#010x}", state.spi),
            state.source.to_string(),
            state.destination.to_string(),
            state.reqid.to_string(),
            algorithms.join("+"),
            state.sent_sequence.to_string(),
            match state.awaited_sequence {
                Some(awaited) => format!("awaits {awaited}"),
                None => state.received_sequence.to_string(),
            },
            state.traffic.packets.to_string(),
            state.traffic.bytes.to_string(),
            state.errors.packets.to_string(),
            state.age_seconds.map_or_else(|| "-".to_owned(), |age| age.to_string()),
        ]
    };
    let heading = [
        "VRF",
        "SPI",
        "SOURCE",
        "DESTINATION",
        "REQID",
        "ALGORITHM",
        "SENT",
        "RECEIVED",
        "PACKETS",
        "BYTES",
        "ERRORS",
        "AGE S",
    ];
    table(&heading, &views.iter().map(row).collect::<Vec<_>>())
}

fn explanation(stages: &[Stage]) -> String {
    let width = stages.iter().map(|stage| stage.stage.len()).max().unwrap_or_default();
    stages.iter().fold(String::new(), |mut text, stage| {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{:width$}  {}", stage.stage, stage.text);
        text
    })
}

/// Stages by their members: the sentences are for people.
fn explained(stages: &[Stage]) -> serde_json::Value {
    stages.iter().map(Stage::as_object).collect()
}

#[cfg(test)]
mod tests {
    use control::render::plain;

    use super::*;

    #[test]
    fn json_has_lists_without_an_envelope() {
        let drops = Reply::Drops(vec![DropView {
            reason: "no_route".into(),
            meaning: "none".into(),
            packets: 3,
        }]);
        assert_eq!(
            plain(&drops).unwrap(),
            serde_json::json!([{ "reason": "no_route", "meaning": "none", "packets": 3 }])
        );
        assert_eq!(plain(&Reply::Count(8)).unwrap(), serde_json::json!({ "is": "count", "of": 8 }));
        assert_eq!(plain(&Reply::Done).unwrap(), serde_json::json!({ "is": "done" }));
    }

    #[test]
    fn each_worker_has_a_column_of_counters() {
        let worker = |index, value| WorkerView {
            index,
            counters: vec![CounterView { name: "decided".into(), meaning: "Why.".into(), value }],
            ..WorkerView::default()
        };
        let shown = workers(&[worker(0, 3), worker(1, 14)]);
        assert!(
            shown.ends_with(
                "\nCOUNTER  WORKER 0  WORKER 1  MEANING\ndecided         3        14  Why.\n"
            ),
            "{shown}"
        );
    }

    #[test]
    fn only_drops_that_happened_are_shown_unless_all_are_wanted() {
        let view = |reason: &str, packets| DropView {
            reason: reason.into(),
            meaning: "why".into(),
            packets,
        };
        let views = [view("no_route", 3), view("hop_limit", 0)];
        assert_eq!(drops(&views, false), "PACKETS  REASON    MEANING\n      3  no_route  why\n");
        assert!(drops(&views, true).contains("hop_limit"));
        assert_eq!(drops(&views[1..], false), "no packet was dropped\n");
    }
}
