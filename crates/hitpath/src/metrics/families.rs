//! Every family of metrics: its name, what it means, and where its value is.

mod workers;

use api::{
    ConnectionStatistics, DropView, FilterStatistics, FilterTarget, FilterView,
    FlowQueueStatistics, FlowView, NatPoolView, NextHopView, PolicyView, PortView, QdiscView,
    StateView, VrfView,
};

use prometheus_client::metrics::MetricType;

pub(super) use self::workers::{
    CACHES, COST_CLOCK, COSTS, MISSES, STAGES, WORKER_GAUGE, WORKERS, misses, worker_family,
    worker_value,
};
use super::{FirewallRow, GatewayIs, ObjectCount};

/// Families with the same labels, of one kind of object.
pub(super) struct Group<T: 'static> {
    pub(super) labels: &'static [&'static str],
    /// The labels' values.
    pub(super) of: fn(&T) -> Vec<String>,
    pub(super) families: &'static [Family<T>],
}

/// A family.
pub(super) struct Family<T: 'static> {
    /// Its name, without `hitpath_` in front and `_total` behind.
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    pub(super) value: Value<T>,
}

/// How a value is read. Without one, the object has no such metric.
pub(super) enum Value<T: 'static> {
    /// It only grows.
    Counter(fn(&T) -> Option<u64>),
    /// It goes up and down.
    Gauge(fn(&T) -> Option<f64>),
}

const fn counter<T>(
    name: &'static str,
    value: fn(&T) -> Option<u64>,
    help: &'static str,
) -> Family<T> {
    Family { name, help, value: Value::Counter(value) }
}

const fn gauge<T>(
    name: &'static str,
    value: fn(&T) -> Option<f64>,
    help: &'static str,
) -> Family<T> {
    Family { name, help, value: Value::Gauge(value) }
}

/// A value.
pub(super) enum Number {
    /// Of a counter.
    Count(u64),
    /// Of a gauge.
    Amount(f64),
}

impl Number {
    /// A count as a gauge. Beyond 2^53 it is rounded, as every value of Prometheus is.
    #[allow(clippy::cast_precision_loss)]
    pub(super) fn of(value: u64) -> Self {
        Self::Amount(value as f64)
    }
}

impl<T> Value<T> {
    /// The value of `object`, if it has one.
    pub(super) fn read(&self, object: &T) -> Option<Number> {
        match self {
            Self::Counter(read) => read(object).map(Number::Count),
            Self::Gauge(read) => read(object).map(Number::Amount),
        }
    }

    pub(super) fn kind(&self) -> MetricType {
        match self {
            Self::Counter(_) => MetricType::Counter,
            Self::Gauge(_) => MetricType::Gauge,
        }
    }
}

/// Beyond 2^53 a gauge is rounded, as every value of Prometheus is.
#[allow(clippy::cast_precision_loss)]
fn number(value: u64) -> Option<f64> {
    Some(value as f64)
}

fn flag(value: bool) -> Option<f64> {
    Some(f64::from(u8::from(value)))
}

pub(super) static GATEWAY: Group<GatewayIs> = Group {
    labels: &[],
    of: |_| Vec::new(),
    families: &[
        gauge("start_time_seconds", |it| Some(it.started), "When the gateway was started."),
        counter(
            "reloads",
            |it| Some(it.daemon.reloads),
            "How often the configuration file was read again to apply it.",
        ),
        counter(
            "log_lines_dropped",
            |it| Some(it.daemon.log_lines_dropped),
            "Log lines that could not be written.",
        ),
        counter(
            "audit_records_written",
            |it| it.daemon.audit.as_ref().map(|audit| audit.written),
            "Records of the audit log that were written.",
        ),
        counter(
            "audit_records_lost",
            |it| it.daemon.audit.as_ref().map(|audit| audit.lost),
            "Records of the audit log that could not be written.",
        ),
        counter(
            "audit_records_suppressed",
            |it| it.daemon.audit.as_ref().map(|audit| audit.suppressed),
            "Records of what traffic causes that were left out of the audit log, as they were too \
            many in a second.",
        ),
        gauge(
            "memory_locked",
            |it| flag(it.daemon.memory_locked),
            "Whether memory is kept from swap.",
        ),
        gauge(
            "changes_kept",
            |it| it.daemon.kept.as_ref().and_then(|kept| flag(kept.changes_failure.is_none())),
            "Whether the state directory takes what commands change.",
        ),
        gauge(
            "sequence_numbers_kept",
            |it| it.daemon.kept.as_ref().and_then(|kept| flag(kept.sequences_failure.is_none())),
            "Whether the state directory takes sequence numbers, those of new keys too.",
        ),
    ],
};

pub(super) static BUILD: Group<GatewayIs> = Group {
    labels: &["version"],
    of: |_| vec![env!("CARGO_PKG_VERSION").to_owned()],
    families: &[gauge("build_info", |_| Some(1.0), "Always 1; the label says what is running.")],
};

pub(super) static OBJECTS: Group<ObjectCount> = Group {
    labels: &["kind"],
    of: |it| vec![it.kind.to_owned()],
    families: &[
        gauge("objects", |it| number(it.count), "Objects that there are."),
        gauge(
            "objects_left_out",
            |it| number(it.left_out),
            "Objects without metrics of their own, as there are more of the kind than the \
            configuration's objects key allows.",
        ),
    ],
};

pub(super) static DROPS: Group<DropView> = Group {
    labels: &["reason"],
    of: |it| vec![it.reason.clone()],
    families: &[counter("dropped_packets", |it| Some(it.packets), "Packets dropped, by reason.")],
};

pub(super) static PORT_INFO: Group<PortView> = Group {
    labels: &["port", "kind", "interface", "parent", "vrf", "side"],
    of: |it| {
        vec![
            it.name.clone(),
            it.kind.clone(),
            it.interface.clone().unwrap_or_default(),
            it.parent.clone().unwrap_or_default(),
            it.vrf.clone(),
            it.side.to_string(),
        ]
    },
    families: &[gauge("port_info", |_| Some(1.0), "Always 1; the labels say what the port is.")],
};

pub(super) static PORTS: Group<PortView> = Group {
    labels: &["port"],
    of: |it| vec![it.name.clone()],
    families: &[
        gauge(
            "port_up",
            |it| flag(it.up),
            "Whether the port sends and receives: it may, and its interface can.",
        ),
        gauge("port_mtu_bytes", |it| Some(f64::from(it.mtu)), "The largest IP packet."),
        counter(
            "port_receive_packets",
            |it| Some(it.statistics?.rx_packets),
            "Packets handed to the gateway.",
        ),
        counter(
            "port_receive_bytes",
            |it| Some(it.statistics?.rx_bytes),
            "Their bytes, link header included.",
        ),
        counter(
            "port_receive_ring_full_packets",
            |it| Some(it.statistics?.rx_ring_full),
            "Packets for which the kernel had no room in the ring that it shares with the port.",
        ),
        counter(
            "port_receive_missed_packets",
            |it| Some(it.statistics?.rx_missed),
            "Packets lost before the gateway saw them, because it had no buffer or closed the port.",
        ),
        counter(
            "port_receive_errors",
            |it| Some(it.statistics?.rx_errors),
            "Frames refused: longer than a buffer, or with an offload that cannot be undone.",
        ),
        counter(
            "port_receive_segmented_frames",
            |it| Some(it.statistics?.rx_segmented),
            "Frames larger than the MTU that were cut into segments on receipt.",
        ),
        counter(
            "port_receive_completed_checksums",
            |it| Some(it.statistics?.rx_checksummed),
            "Checksums that the sender had left to offload and that were completed on receipt.",
        ),
        counter("port_transmit_packets", |it| Some(it.statistics?.tx_packets), "Packets sent."),
        counter(
            "port_transmit_bytes",
            |it| Some(it.statistics?.tx_bytes),
            "Their bytes, link header included.",
        ),
        counter(
            "port_transmit_queue_full_packets",
            |it| Some(it.statistics?.tx_dropped),
            "Packets not sent because the queue was full.",
        ),
        counter(
            "port_transmit_too_long_packets",
            |it| Some(it.statistics?.tx_too_long),
            "Packets not sent because they were longer than the link takes.",
        ),
        counter(
            "port_transmit_down_packets",
            |it| Some(it.statistics?.tx_down),
            "Packets not sent because the interface was down.",
        ),
        counter(
            "port_transmit_errors",
            |it| Some(it.statistics?.tx_errors),
            "Packets the system refused to send for another reason.",
        ),
        counter(
            "port_device_receive_packets",
            |it| Some(it.device?.rx_packets),
            "Frames received, as the system's interface counts them.",
        ),
        counter(
            "port_device_receive_bytes",
            |it| Some(it.device?.rx_bytes),
            "Bytes received, as the system's interface counts them.",
        ),
        counter(
            "port_device_receive_errors",
            |it| Some(it.device?.rx_errors),
            "Frames with errors, as the system's interface counts them.",
        ),
        counter(
            "port_device_receive_dropped",
            |it| Some(it.device?.rx_dropped),
            "Frames that the kernel dropped before or beside the gateway.",
        ),
        counter(
            "port_device_receive_missed",
            |it| Some(it.device?.rx_missed),
            "Frames that the device dropped, as the kernel was too slow.",
        ),
        counter(
            "port_device_transmit_packets",
            |it| Some(it.device?.tx_packets),
            "Frames sent, as the system's interface counts them.",
        ),
        counter(
            "port_device_transmit_bytes",
            |it| Some(it.device?.tx_bytes),
            "Bytes sent, as the system's interface counts them.",
        ),
        counter(
            "port_device_transmit_errors",
            |it| Some(it.device?.tx_errors),
            "Frames that the device could not send.",
        ),
        counter(
            "port_device_transmit_dropped",
            |it| Some(it.device?.tx_dropped),
            "Frames that the device dropped instead of sending them; of a TAP device, frames that \
            the gateway was too slow to read.",
        ),
        gauge(
            "port_ring_frames",
            |it| number(it.ring?.frames),
            "Frames that the ring of each worker holds.",
        ),
        gauge("port_ring_bytes", |it| number(it.ring?.bytes), "Memory of each worker's ring."),
        counter(
            "port_neighbours_refused",
            |it| Some(it.neighbours.refused),
            "Answers of neighbours that were not remembered as there was no room.",
        ),
        gauge(
            "port_neighbours_limit",
            |it| number(it.neighbours.limit),
            "The most neighbours of each family that may be learned.",
        ),
        gauge(
            "port_ipv4_neighbours",
            |it| number(it.neighbours.ipv4),
            "IPv4 neighbours that were learned.",
        ),
        gauge(
            "port_ipv6_neighbours",
            |it| number(it.neighbours.ipv6),
            "IPv6 neighbours that were learned.",
        ),
    ],
};

pub(super) static VRFS: Group<VrfView> = Group {
    labels: &["vrf"],
    of: |it| vec![it.name.clone()],
    families: &[
        gauge("vrf_ports", |it| number(it.ports.len() as u64), "Ports in the VRF."),
        gauge(
            "vrf_routes",
            |it| number(it.routes),
            "Routes of the VRF, those that follow from addresses included.",
        ),
        gauge("vrf_policies", |it| number(it.policies), "Policies of the VRF."),
        gauge("vrf_sas", |it| number(it.states), "SAs of the VRF."),
        gauge(
            "vrf_closed",
            |it| flag(it.closed),
            "Whether nothing crosses the IPsec boundary, as the VRF has lost its policies.",
        ),
    ],
};

pub(super) static STATES: Group<StateView> = Group {
    labels: &["vrf", "source", "destination", "spi", "reqid", "if_id"],
    of: |it| {
        vec![
            it.vrf.clone(),
            it.source.to_string(),
            it.destination.to_string(),
            format!("{:#010x}", it.spi),
            it.reqid.to_string(),
            it.if_id.to_string(),
        ]
    },
    families: &[
        counter("sa_packets", |it| Some(it.traffic.packets), "Packets encrypted or decrypted."),
        counter("sa_bytes", |it| Some(it.traffic.bytes), "Bytes of the inner packets."),
        counter(
            "sa_error_packets",
            |it| Some(it.errors.packets),
            "Packets for the SA that were refused: replayed, or not authentic.",
        ),
        gauge(
            "sa_sent_sequence_number",
            |it| Some(f64::from(it.sent_sequence)),
            "The last sequence number sent. At 4294967295 the SA sends no more.",
        ),
        gauge(
            "sa_received_sequence_number",
            |it| Some(f64::from(it.received_sequence)),
            "The highest sequence number received.",
        ),
        gauge(
            "sa_awaited_sequence_number",
            |it| it.awaited_sequence.map(f64::from),
            "The lowest sequence number that the SA accepts, if the gateway was killed and its peer \
            has not got so far since.",
        ),
        gauge(
            "sa_newest",
            |it| flag(it.newest),
            "Whether the SA is the one of its tunnel that packets leave by.",
        ),
    ],
};

pub(super) static POLICIES: Group<PolicyView> = Group {
    labels: &["vrf", "if_id", "direction", "index", "action", "selector", "name"],
    of: |it| {
        vec![
            it.spec.vrf.clone(),
            it.spec.if_id.to_string(),
            it.spec.direction.to_string(),
            it.index.to_string(),
            it.spec.action.to_string(),
            control::selector_words(&it.spec.selector),
            it.spec.name.map(|name| name.to_string()).unwrap_or_default(),
        ]
    },
    families: &[
        counter("policy_packets", |it| Some(it.traffic.packets), "Packets that it decided."),
        counter("policy_bytes", |it| Some(it.traffic.bytes), "Bytes of them."),
    ],
};

pub(super) static NEXT_HOPS: Group<NextHopView> = Group {
    labels: &["id", "vrf", "port", "address"],
    of: |it| {
        vec![
            it.id.to_string(),
            it.vrf.clone(),
            it.port.clone(),
            it.address.map(|address| address.to_string()).unwrap_or_default(),
        ]
    },
    families: &[
        counter("next_hop_packets", |it| Some(it.packets), "IP packets sent to the next hop."),
        counter("next_hop_bytes", |it| Some(it.bytes), "Their bytes, without link headers."),
        gauge(
            "next_hop_resolved",
            |it| flag(it.state == "resolved"),
            "Whether its Ethernet address is known and its port is up.",
        ),
    ],
};

pub(super) static QDISCS: Group<QdiscView> = Group {
    labels: &["dev", "handle", "parent", "kind"],
    of: |it| {
        vec![
            it.dev.clone(),
            it.handle.to_string(),
            it.parent.clone().unwrap_or_default(),
            it.kind.clone(),
        ]
    },
    families: &[
        counter("qdisc_packets", |it| Some(it.packets), "Packets sent."),
        counter("qdisc_bytes", |it| Some(it.bytes), "Bytes sent."),
        counter("qdisc_dropped_packets", |it| Some(it.drops), "Packets dropped."),
        counter(
            "qdisc_not_handed_over_packets",
            |it| Some(it.not_handed_over),
            "Packets that a worker dropped as it could not hand them to the discipline's own.",
        ),
        counter("qdisc_overlimits", |it| Some(it.overlimits), "Waits for the rate."),
        gauge("qdisc_backlog_bytes", |it| number(it.backlog), "Bytes that wait."),
        gauge("qdisc_backlog_packets", |it| number(it.qlen), "Packets that wait."),
        counter(
            "qdisc_overlimit_dropped_packets",
            |it| flows(it, |flows| flows.drop_overlimit),
            "fq_codel: packets dropped as there was no room.",
        ),
        counter(
            "qdisc_overmemory_dropped_packets",
            |it| flows(it, |flows| flows.drop_overmemory),
            "fq_codel: packets dropped as their memory was too much.",
        ),
        counter(
            "qdisc_new_flows",
            |it| flows(it, |flows| flows.new_flow_count),
            "fq_codel: how often a queue became one of a new flow.",
        ),
        counter(
            "qdisc_ecn_marked_packets",
            |it| flows(it, |flows| flows.ecn_mark),
            "fq_codel: packets marked instead of dropped.",
        ),
        counter(
            "qdisc_ce_marked_packets",
            |it| flows(it, |flows| flows.ce_mark),
            "fq_codel: packets marked for their waiting alone.",
        ),
        gauge(
            "qdisc_memory_bytes",
            |it| flows(it, |flows| flows.memory_used).and_then(number),
            "fq_codel: memory of what waits.",
        ),
    ],
};

fn flows(qdisc: &QdiscView, of: fn(&FlowQueueStatistics) -> u64) -> Option<u64> {
    qdisc.flows.as_ref().map(of)
}

pub(super) static CONNECTIONS: Group<ConnectionStatistics> = Group {
    labels: &[],
    of: |_| Vec::new(),
    families: &[
        gauge("connections", |it| number(it.connections.into()), "Connections that there are."),
        gauge(
            "connections_limit",
            |it| number(it.most.into()),
            "Connections that there may be; 0 if none are tracked.",
        ),
        gauge(
            "connections_ipv6_limit",
            |it| number(it.most_ipv6.into()),
            "How many of these may be of IPv6.",
        ),
        gauge("connection_table_bytes", |it| number(it.bytes), "Memory of the connection table."),
        gauge("expectations", |it| number(it.expectations), "Connections that are expected."),
        counter("connections_made", |it| Some(it.made), "Connections that were made."),
        counter(
            "connections_expired",
            |it| Some(it.expired),
            "Connections that were not used for the timeout of their state.",
        ),
        counter(
            "connections_early_dropped",
            |it| Some(it.early_drop),
            "Connections that have made room for others.",
        ),
        counter(
            "connections_reused",
            |it| Some(it.reused),
            "Connections whose tuple was used anew.",
        ),
        counter("connections_deleted", |it| Some(it.deleted), "Connections that were deleted."),
        counter("connections_invalid_packets", |it| Some(it.invalid), "Packets found invalid."),
        counter(
            "connections_not_new_packets",
            |it| Some(it.not_new),
            "Packets that open no connection.",
        ),
        counter(
            "connections_clashed",
            |it| Some(it.exists),
            "Connections that another packet had made.",
        ),
        counter(
            "connections_tuple_taken",
            |it| Some(it.tuple_taken),
            "Translations whose tuple another connection had.",
        ),
        counter(
            "connections_table_full",
            |it| Some(it.full),
            "Connections for which there was no place.",
        ),
        counter(
            "connections_bucket_full",
            |it| Some(it.bucket_full),
            "Connections whose buckets were full.",
        ),
        counter("connections_limited", |it| Some(it.limit), "Connections beyond a limit."),
        counter(
            "expectations_followed",
            |it| Some(it.followed),
            "Announcements of data connections that helpers have followed.",
        ),
        counter(
            "expectations_distrusted",
            |it| Some(it.distrusted),
            "Announcements that were not followed: of another host, of a well-known port, malformed.",
        ),
        counter(
            "expectations_failed",
            |it| Some(it.expect_failed),
            "Announcements for which there was no place or no port.",
        ),
    ],
};

pub(super) static POOLS: Group<NatPoolView> = Group {
    labels: &["addresses", "ports"],
    of: |it| {
        let ports = it.ports.map(|(first, last)| format!("{first}-{last}"));
        vec![it.addresses.clone(), ports.unwrap_or_default()]
    },
    families: &[
        gauge("nat_ports_in_use", |it| number(it.in_use), "Ports of the pool that are lent now."),
        counter("nat_ports_lent", |it| Some(it.lent), "Ports of the pool that were lent."),
        counter(
            "nat_exhausted",
            |it| Some(it.exhausted),
            "Connections that got no port, as all of the pool were lent.",
        ),
        counter(
            "nat_block_full",
            |it| Some(it.block_full),
            "Connections that got no port, as all of their source's block were lent.",
        ),
        counter(
            "nat_no_subscriber",
            |it| Some(it.no_subscriber),
            "Connections that got no port, as their source is none of the pool's subscribers.",
        ),
    ],
};

pub(super) static FILTERS: Group<FilterView> = Group {
    labels: &["dev", "vrf", "hook", "protocol", "pref"],
    of: |it| {
        let (dev, vrf) = match &it.target {
            FilterTarget::Dev(name) => (name.clone(), String::new()),
            FilterTarget::Vrf(name) => (String::new(), name.clone()),
        };
        vec![dev, vrf, it.hook.to_string(), it.protocol.to_string(), it.pref.to_string()]
    },
    families: &[
        counter(
            "filter_packets",
            |it| decided(it, |it| it.packets),
            "Packets that the rule decided.",
        ),
        counter("filter_bytes", |it| decided(it, |it| it.bytes), "Bytes of them."),
        counter(
            "filter_dropped_packets",
            |it| decided(it, |it| it.drops),
            "How many of them it dropped.",
        ),
    ],
};

fn decided(rule: &FilterView, of: fn(&FilterStatistics) -> u64) -> Option<u64> {
    rule.options.actions.iter().find_map(|action| action.stats.as_ref()).map(of)
}

pub(super) static FLOWS: Group<FlowView> = Group {
    labels: &["vrf", "table", "priority", "match", "cookie"],
    of: |it| {
        vec![
            it.vrf.clone(),
            it.table.to_string(),
            it.priority.to_string(),
            it.matches.clone(),
            format!("{:#x}", it.cookie),
        ]
    },
    families: &[
        counter("flow_packets", |it| Some(it.n_packets), "Packets that have matched the flow."),
        counter("flow_bytes", |it| Some(it.n_bytes), "Bytes of them."),
    ],
};

pub(super) static FIREWALL: Group<FirewallRow> = Group {
    labels: &["kind", "number", "rule", "from", "to"],
    of: |it| {
        let number = |number: Option<usize>| number.map(|it| it.to_string()).unwrap_or_default();
        vec![it.kind.to_owned(), number(it.number), number(it.rule), it.from.clone(), it.to.clone()]
    },
    families: &[
        counter(
            "firewall_packets",
            |it| Some(it.count.packets),
            "Packets that open connections, or try, and those of connections that nobody has answered \
             yet.",
        ),
        counter("firewall_bytes", |it| Some(it.count.bytes), "Bytes of them."),
    ],
};

#[cfg(test)]
mod tests {
    use super::*;

    /// The table of docs/metrics.md for a group.
    fn table<T>(group: &Group<T>) -> String {
        let labels: Vec<_> = group.labels.iter().map(|label| format!("`{label}`")).collect();
        let row = |family: &Family<T>| {
            row(family.name, matches!(family.value, Value::Counter(_)), family.help)
        };
        let rows: String = group.families.iter().map(row).collect();
        let labels = match &*labels.join(", ") {
            "" => "none".to_owned(),
            labels => labels.to_owned(),
        };
        format!("Labels: {labels}.\n\n{HEAD}{rows}")
    }

    const HEAD: &str = "| Metric | Type | Meaning |\n| --- | --- | --- |\n";

    fn row(name: &str, is_counter: bool, help: &str) -> String {
        match is_counter {
            true => format!("| `hitpath_{name}_total` | counter | {help} |\n"),
            false => format!("| `hitpath_{name}` | gauge | {help} |\n"),
        }
    }

    fn tables() -> Vec<String> {
        let statistics = path::WorkerStatistics::default();
        let counters = statistics
            .entries()
            .map(|(name, help, _)| row(&worker_family(name), name != WORKER_GAUGE, help));
        vec![
            table(&BUILD),
            table(&GATEWAY),
            table(&OBJECTS),
            table(&DROPS),
            table(&PORT_INFO),
            table(&PORTS),
            table(&WORKERS) + &counters.collect::<String>(),
            table(&CACHES),
            table(&MISSES),
            table(&COST_CLOCK),
            table(&COSTS),
            table(&STAGES),
            table(&VRFS),
            table(&STATES),
            table(&POLICIES),
            table(&NEXT_HOPS),
            table(&QDISCS),
            table(&CONNECTIONS),
            table(&POOLS),
            table(&FILTERS),
            table(&FLOWS),
            table(&FIREWALL),
        ]
    }

    #[test]
    fn the_documentation_has_every_metric_and_no_other() {
        let page = include_str!("../../../../docs/metrics.md");
        for table in tables() {
            assert!(page.contains(&table), "docs/metrics.md should have this table:\n{table}");
        }
        let rows = |text: &str| text.lines().filter(|line| line.starts_with("| `hitpath_")).count();
        assert_eq!(rows(page), tables().iter().map(|table| rows(table)).sum::<usize>());
    }
}
