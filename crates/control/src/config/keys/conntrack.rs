//! Keys of connection tracking.

use super::{Section, key};

/// What a timeout may be.
const TIMEOUT: &str = "1 to 31536000";

pub(super) const CONNTRACK: Section = Section {
    name: "conntrack",
    many: false,
    keys: &[
        key(
            "connections",
            "1 to 4194304",
            "connections",
            "262144",
            "Connections that there may be at once. Their memory is taken when the table is \
            made: about 232 bytes for each, and 64 more for each that may be of IPv6.",
        ),
        key(
            "ipv6-connections",
            "0 to 4194304",
            "connections",
            "as `connections`",
            "How many of them may be of IPv6.",
        ),
        key(
            "accounting",
            "true or false",
            "",
            "false",
            "Whether packets and bytes of each direction are counted, as \
            nf_conntrack_acct does.",
        ),
        key(
            "loose",
            "true or false",
            "",
            "false",
            "Whether a TCP connection may be picked up in the middle, as \
            nf_conntrack_tcp_loose does.",
        ),
        key(
            "limits",
            "list of inline tables",
            "",
            "none",
            "Limits of connections, each of one zone, as in \
            `[{ zone = 5, connections = 1000 }]`.",
        ),
        key("limits.zone", "0 to 65535", "", "required", "The zone."),
        key(
            "limits.connections",
            "1 to 4194304",
            "connections",
            "required",
            "Connections that it may have.",
        ),
        key(
            "source-limits",
            "inline table",
            "",
            "none",
            "Limits of the connections that one source opens, in each zone by itself, as in \
            `{ connections = 500 }`.",
        ),
        key(
            "source-limits.connections",
            "1 to 4194304",
            "connections",
            "none",
            "Connections of one source address.",
        ),
        key(
            "source-limits.prefix-connections",
            "1 to 4194304",
            "connections",
            "none",
            "Connections of all addresses of one prefix.",
        ),
        key(
            "source-limits.ipv4-prefix",
            "0 to 32",
            "bits",
            "24",
            "Length of an IPv4 prefix. Connections that were there when it changes count for \
            no prefix any more.",
        ),
        key("source-limits.ipv6-prefix", "0 to 128", "bits", "64", "The same of IPv6."),
        key(
            "timeouts",
            "inline table",
            "",
            "nf_conntrack's",
            "How long a connection may be unused, by its state. A change concerns also \
            connections that there are.",
        ),
        key("timeouts.generic", TIMEOUT, "s", "600", "A protocol without states."),
        key("timeouts.tcp-syn-sent", TIMEOUT, "s", "120", "A SYN was seen, or SYNs crossed."),
        key("timeouts.tcp-syn-recv", TIMEOUT, "s", "60", "SYN and SYN-ACK were seen."),
        key("timeouts.tcp-established", TIMEOUT, "s", "432000", "Both SYNs are acknowledged."),
        key(
            "timeouts.tcp-unacknowledged",
            TIMEOUT,
            "s",
            "300",
            "Established, and data is not acknowledged, or picked up (`loose`) and not answered \
             yet.",
        ),
        key("timeouts.tcp-fin-wait", TIMEOUT, "s", "120", "One side has sent a FIN."),
        key("timeouts.tcp-close-wait", TIMEOUT, "s", "60", "This FIN is acknowledged."),
        key("timeouts.tcp-last-ack", TIMEOUT, "s", "30", "Both sides have sent a FIN."),
        key("timeouts.tcp-time-wait", TIMEOUT, "s", "120", "Both FINs are acknowledged."),
        key("timeouts.tcp-close", TIMEOUT, "s", "10", "Reset."),
        key("timeouts.udp", TIMEOUT, "s", "30", "UDP and UDP-Lite, one way or not for long."),
        key("timeouts.udp-stream", TIMEOUT, "s", "120", "UDP both ways for more than two seconds."),
        key("timeouts.sctp-closed", TIMEOUT, "s", "10", "Aborted or shut down."),
        key("timeouts.sctp-cookie-wait", TIMEOUT, "s", "3", "An INIT was seen."),
        key("timeouts.sctp-cookie-echoed", TIMEOUT, "s", "3", "A COOKIE ECHO was seen."),
        key("timeouts.sctp-established", TIMEOUT, "s", "210", "The association is up."),
        key(
            "timeouts.sctp-shutdown-sent",
            TIMEOUT,
            "s",
            "3",
            "A SHUTDOWN was seen in the original direction.",
        ),
        key(
            "timeouts.sctp-shutdown-recd",
            TIMEOUT,
            "s",
            "3",
            "A SHUTDOWN was seen in the reply direction.",
        ),
        key("timeouts.sctp-shutdown-ack-sent", TIMEOUT, "s", "3", "A SHUTDOWN ACK was seen."),
        key(
            "timeouts.sctp-heartbeat-sent",
            TIMEOUT,
            "s",
            "30",
            "A heartbeat on another path was seen.",
        ),
        key("timeouts.icmp", TIMEOUT, "s", "30", "ICMP queries."),
        key("timeouts.icmpv6", TIMEOUT, "s", "30", "ICMPv6 queries."),
        key(
            "timeout-policy",
            "list of tables, `[[conntrack.timeout-policy]]`",
            "",
            "none",
            "Timeouts of zones, at most 127 policies. A change concerns also connections that \
            there are.",
        ),
        key("timeout-policy.name", "name", "", "required", "Its name."),
        key(
            "timeout-policy.zones",
            "list of 0 to 65535",
            "",
            "required",
            "The zones whose connections have these timeouts.",
        ),
        key(
            "timeout-policy.timeouts",
            "inline table",
            "",
            "as `timeouts`",
            "Its timeouts, by the same keys. One that is not said is that of `timeouts`.",
        ),
    ],
};
