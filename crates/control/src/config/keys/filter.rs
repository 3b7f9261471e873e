//! Keys of filters and flows.

use super::{Section, key};

pub(super) const FILTER: Section = Section {
    name: "filter",
    many: true,
    keys: &[
        key("port", "name", "", "this or `vrf` is required", "The port whose filter it is."),
        key("vrf", "name", "", "this or `port` is required", "The VRF whose filter it is."),
        key(
            "hook",
            "\"ingress\" or \"egress\"",
            "",
            "required",
            "When the filter sees packets: before routing or after it.",
        ),
        key(
            "preference",
            "1 to 65535",
            "",
            "required",
            "The place of the rule in its filter: the smaller number comes first. The first \
            rule that matches decides, and a packet that matches none passes.",
        ),
        key(
            "family",
            "\"ip\", \"ipv6\" or \"all\"",
            "",
            "that of the addresses or of ICMP, else \"all\"",
            "Packets of which family.",
        ),
        key("source", "address, prefix or FIRST-LAST", "", "any", "Source addresses."),
        key("destination", "address, prefix or FIRST-LAST", "", "any", "Destination addresses."),
        key("protocol", "name or number", "", "any", "Upper-layer protocol."),
        key(
            "source-ports",
            "port or FIRST-LAST",
            "",
            "any",
            "Source ports, of a protocol that has ports.",
        ),
        key(
            "destination-ports",
            "port or FIRST-LAST",
            "",
            "any",
            "Destination ports, of a protocol that has ports.",
        ),
        key("icmp-type", "number or FIRST-LAST", "", "any", "ICMP or ICMPv6 types."),
        key("icmp-code", "number or FIRST-LAST", "", "any", "ICMP or ICMPv6 codes."),
        key("dscp", "name, number or VALUE/MASK", "", "any", "DSCP, as of a policy."),
        key("tcp-flags", "FLAGS/MASK", "", "any", "TCP flags, as of a policy."),
        key("ttl", "0 to 255", "", "any", "TTL of IPv4 or hop limit of IPv6."),
        key(
            "mark",
            "number or \"VALUE/MASK\"",
            "",
            "any",
            "The mark that filters before have given the packet; it begins with 0.",
        ),
        key(
            "action",
            "\"pass\", \"drop\" or \"reject\"",
            "",
            "required",
            "What becomes of the packet. Reject drops it and tells its sender.",
        ),
        key(
            "reject-with",
            "\"icmp-admin-prohibited\", \"icmp-port-unreachable\", \
            \"icmp-host-unreachable\", \"icmp-net-unreachable\" or \"tcp-reset\"",
            "",
            "\"icmp-admin-prohibited\"",
            "How the sender is told, of either family. What is not TCP is told of a reset by \
            `icmp-admin-prohibited`.",
        ),
        key(
            "set-mark",
            "number or \"VALUE/MASK\"",
            "",
            "none",
            "What the packet's mark becomes: with a mask, those bits of it.",
        ),
        key(
            "log",
            "true or false",
            "",
            "false",
            "Whether packets are logged, at most ten a second of each rule.",
        ),
    ],
};

pub(super) const FLOW: Section = Section {
    name: "flow",
    many: true,
    keys: &[key(
        "flow",
        "flow",
        "",
        "required",
        "A flow in ovs-ofctl's words, as `hitpath flow add` takes it.",
    )],
};
