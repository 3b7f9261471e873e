//! Connections as conntrack-tools print them.

use std::fmt::Write;

use api::{
    ConnectionChangeKind, ConnectionStatistics, ConnectionStatus, ConnectionView, ExpectationView,
    NatPoolView, TimeoutPolicyView, TupleView,
};
use wire::Protocol;

/// What is shown beside what is always shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Output {
    /// The family in front.
    pub(crate) extended: bool,
    /// The id at the end.
    pub(crate) id: bool,
    /// When an event was seen.
    pub(crate) timestamp: bool,
    /// How old the connection is.
    pub(crate) age: bool,
    /// Its label.
    pub(crate) labels: bool,
}

/// The line of a connection.
pub(crate) fn connection(view: &ConnectionView, output: Output) -> String {
    line(view, output, None)
}

/// The line of a connection, or of what has happened to it. Events say less.
fn line(view: &ConnectionView, output: Output, event: Option<ConnectionChangeKind>) -> String {
    let mut text = String::new();
    let mut word = |word: std::fmt::Arguments<'_>| _ = text.write_fmt(word);
    if output.extended {
        match view.original.source.is_ipv4() {
            true => word(format_args!("ipv4     2 ")),
            false => word(format_args!("ipv6     10 ")),
        }
    }
    word(format_args!("{:<8} {} ", protocol(view.protocol), view.protocol.0));
    if event != Some(ConnectionChangeKind::Destroy) {
        word(format_args!("{} ", view.timeout));
        if let Some(state) = &view.state {
            word(format_args!("{state} "));
        }
    }
    let is = |status: ConnectionStatus| view.status.contains(&status);
    word(format_args!("{}", tuple(&view.original)));
    if !is(ConnectionStatus::SeenReply) {
        word(format_args!("[UNREPLIED] "));
    }
    word(format_args!("{}", tuple(&view.reply)));
    if is(ConnectionStatus::Assured) {
        word(format_args!("[ASSURED] "));
    }
    if event.is_none() || view.mark != 0 {
        word(format_args!("mark={} ", view.mark));
    }
    if view.zone != 0 {
        word(format_args!("zone={} ", view.zone));
    }
    if output.age {
        word(format_args!("delta-time={} ", view.age));
    }
    if let Some(policy) = &view.timeout_policy {
        word(format_args!("timeout-policy={policy} "));
    }
    if let Some(helper) = &view.helper {
        word(format_args!("helper={helper} "));
    }
    if event.is_none() {
        word(format_args!("use=1 "));
    }
    if output.id {
        word(format_args!("id={} ", view.id));
    }
    if output.labels
        && let Some(label) = &view.label
    {
        word(format_args!("labels={label} "));
    }
    text.truncate(text.trim_end().len());
    text
}

/// The name that conntrack-tools have for a protocol.
fn protocol(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::TCP => "tcp",
        Protocol::UDP => "udp",
        Protocol::UDP_LITE => "udplite",
        Protocol::SCTP => "sctp",
        Protocol::DCCP => "dccp",
        Protocol::ICMP => "icmp",
        Protocol::ICMPV6 => "icmpv6",
        Protocol(47) => "gre",
        _ => "unknown",
    }
}

fn tuple(view: &TupleView) -> String {
    let mut text = format!("src={} dst={} ", view.source, view.destination);
    let mut number = |name: &str, value: Option<u64>| {
        if let Some(value) = value {
            let _ = write!(text, "{name}={value} ");
        }
    };
    number("sport", view.source_port.map(u64::from));
    number("dport", view.destination_port.map(u64::from));
    number("type", view.icmp_type.map(u64::from));
    number("code", view.icmp_code.map(u64::from));
    number("id", view.icmp_id.map(u64::from));
    number("packets", view.packets);
    number("bytes", view.bytes);
    text
}

/// The line of an event.
pub(crate) fn event(
    kind: ConnectionChangeKind,
    time: u64,
    view: &ConnectionView,
    output: Output,
) -> String {
    stamped(kind, time, &line(view, output, Some(kind)), output)
}

fn stamped(kind: ConnectionChangeKind, time: u64, line: &str, output: Output) -> String {
    let name = match kind {
        ConnectionChangeKind::New => "[NEW]",
        ConnectionChangeKind::Update => "[UPDATE]",
        ConnectionChangeKind::Destroy => "[DESTROY]",
    };
    match output.timestamp {
        true => {
            let (seconds, micros) = (time / 1_000_000_000, time % 1_000_000_000 / 1000);
            format!("[{seconds}.{micros:06}]\t{name:>9} {line}")
        }
        false => format!("{name:>9} {line}"),
    }
}

/// The line of a timeout policy.
pub(crate) fn timeout_policy(view: &TimeoutPolicyView) -> String {
    let mut text = match &view.name {
        Some(name) => {
            let zones: Vec<_> = view.zones.iter().map(u16::to_string).collect();
            format!("{name} zones={}", zones.join(","))
        }
        None => "(all other zones)".to_owned(),
    };
    for (name, seconds) in &view.timeouts {
        let _ = write!(text, " {name}={seconds}");
    }
    text
}

/// The line of an expectation.
pub(crate) fn expectation(view: &ExpectationView) -> String {
    let none = |is_v4: bool| match is_v4 {
        true => "0.0.0.0",
        false => "::",
    };
    let all = |is_v4: bool| match is_v4 {
        true => "255.255.255.255",
        false => "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
    };
    let is_v4 = view.destination.is_ipv4();
    let source = view.source.map_or_else(|| none(is_v4).to_owned(), |it| it.to_string());
    let source_mask = if view.source.is_some() { all(is_v4) } else { none(is_v4) };
    let (port, port_mask) = view.source_port.map_or((0, 0), |port| (port, u16::MAX));
    let mut text = format!(
        "{} proto={} src={source} dst={} sport={port} dport={} mask-src={source_mask} \
        mask-dst={} sport={port_mask} dport=65535 ",
        view.timeout,
        view.protocol.0,
        view.destination,
        view.destination_port,
        all(is_v4),
    );
    if let Some(master) = &view.master {
        let tuple = tuple(&TupleView { packets: None, bytes: None, ..master.clone() });
        let tuple = tuple.replacen("src=", "master-src=", 1);
        text += &tuple.replacen(" dst=", " master-dst=", 1);
    }
    if view.zone != 0 {
        let _ = write!(text, "zone={} ", view.zone);
    }
    text += "class=0";
    if let Some(helper) = &view.helper {
        let _ = write!(text, " helper={helper}");
    }
    text
}

/// The line of what has happened to an expectation.
pub(crate) fn expectation_event(
    kind: ConnectionChangeKind,
    time: u64,
    view: &ExpectationView,
    output: Output,
) -> String {
    stamped(kind, time, &expectation(view), output)
}

/// Counters, as `conntrack -S` has them; behind them those that Linux has not.
pub(crate) fn statistics(counted: &ConnectionStatistics) -> String {
    let ConnectionStatistics {
        connections,
        most,
        most_ipv6,
        bytes,
        expectations,
        made,
        invalid,
        expired,
        early_drop,
        reused,
        deleted,
        not_new,
        exists,
        tuple_taken,
        full,
        bucket_full,
        limit,
        followed,
        distrusted,
        expect_failed,
    } = counted;
    // A tuple that is another's is a port that was tried; others may have been free.
    let failed = not_new + exists + full + bucket_full + limit;
    format!(
        "entries={connections} max={most} max_ipv6={most_ipv6} bytes={bytes} \
        expectations={expectations}\n\
        insert={made} insert_failed={failed} invalid={invalid} early_drop={early_drop} \
        clash_resolve={exists} nat_clash={tuple_taken} table_full={full} \
        bucket_full={bucket_full} limit={limit}\n\
        expired={expired} reused={reused} deleted={deleted}\n\
        expect_create={followed} expect_failed={expect_failed} expect_distrusted={distrusted}\n"
    )
}

/// Pools, a row for each.
pub(crate) fn pools(views: &[NatPoolView]) -> String {
    let row = |view: &NatPoolView| {
        let ports = view.ports.map(|(first, last)| format!("{first}-{last}"));
        vec![
            view.addresses.clone(),
            ports.unwrap_or_else(|| "-".to_owned()),
            view.in_use.to_string(),
            view.lent.to_string(),
            view.exhausted.to_string(),
            view.block_full.to_string(),
            view.no_subscriber.to_string(),
        ]
    };
    let heading =
        ["ADDRESSES", "PORTS", "IN USE", "LENT", "EXHAUSTED", "BLOCK FULL", "NO SUBSCRIBER"];
    super::table(&heading, &views.iter().map(row).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `conntrack -L expect` of conntrack-tools, which prints no counters there.
    #[test]
    fn an_expectation_has_no_counters() {
        let counted = TupleView { packets: Some(9), bytes: Some(500), ..view().original };
        let view = ExpectationView {
            zone: 0,
            protocol: Protocol::TCP,
            timeout: 299,
            source: Some("10.0.0.2".parse().unwrap()),
            source_port: None,
            destination: "10.0.0.1".parse().unwrap(),
            destination_port: 4661,
            translated: None,
            master: Some(counted),
            helper: Some("ftp".into()),
        };
        assert_eq!(
            expectation(&view),
            "299 proto=6 src=10.0.0.2 dst=10.0.0.1 sport=0 dport=4661 mask-src=255.255.255.255 \
             mask-dst=255.255.255.255 sport=0 dport=65535 master-src=10.0.0.1 \
             master-dst=10.0.0.2 sport=1000 dport=80 class=0 helper=ftp"
        );
    }

    fn view() -> ConnectionView {
        let tuple = |source: &str, destination: &str, ports: (u16, u16)| TupleView {
            source: source.parse().unwrap(),
            destination: destination.parse().unwrap(),
            source_port: Some(ports.0),
            destination_port: Some(ports.1),
            icmp_type: None,
            icmp_code: None,
            icmp_id: None,
            packets: None,
            bytes: None,
        };
        ConnectionView {
            id: 77,
            zone: 5,
            protocol: Protocol::TCP,
            state: Some("ESTABLISHED".into()),
            timeout: 99,
            age: 3,
            original: tuple("10.0.0.1", "10.0.0.2", (1000, 80)),
            reply: tuple("10.0.0.2", "10.0.0.1", (80, 1000)),
            status: vec![ConnectionStatus::SeenReply, ConnectionStatus::Assured],
            mark: 7,
            label: None,
            timeout_policy: None,
            helper: None,
            master: None,
        }
    }

    /// What conntrack 1.4.7 prints of such connections of Linux.
    #[test]
    fn a_connection_is_a_line_as_conntrack_prints_it() {
        let line = "tcp      6 99 ESTABLISHED src=10.0.0.1 dst=10.0.0.2 sport=1000 dport=80 \
            src=10.0.0.2 dst=10.0.0.1 sport=80 dport=1000 [ASSURED] mark=7 zone=5 use=1";
        assert_eq!(connection(&view(), Output::default()), line);
        let output = Output { extended: true, id: true, ..Output::default() };
        assert_eq!(connection(&view(), output), format!("ipv4     2 {line} id=77"));
        let icmp = |kind| TupleView {
            source_port: None,
            destination_port: None,
            icmp_type: Some(kind),
            icmp_code: Some(0),
            icmp_id: Some(77),
            ..view().original
        };
        let (source, destination) = (view().original.source, view().original.destination);
        let reply = TupleView { source: destination, destination: source, ..icmp(0) };
        let ping = ConnectionView {
            zone: 0,
            protocol: Protocol::ICMP,
            state: None,
            timeout: 29,
            original: icmp(8),
            reply,
            status: vec![],
            mark: 0,
            ..view()
        };
        assert_eq!(
            connection(&ping, Output::default()),
            "icmp     1 29 src=10.0.0.1 dst=10.0.0.2 type=8 code=0 id=77 [UNREPLIED] src=10.0.0.2 \
            dst=10.0.0.1 type=0 code=0 id=77 mark=0 use=1"
        );
        let line = event(ConnectionChangeKind::New, 1_500_000_000, &ping, Output::default());
        assert!(line.starts_with("    [NEW] icmp     1 29 src="), "{line}");
        assert!(line.ends_with("code=0 id=77"), "{line}");
        let line = event(ConnectionChangeKind::Destroy, 0, &ping, Output::default());
        assert!(line.starts_with("[DESTROY] icmp     1 src="), "{line}");
    }
}
