//! Keys of routes and policy rules.

use super::{Section, key};

pub(super) const ROUTE: Section = Section {
    name: "route",
    many: true,
    keys: &[
        key(
            "to",
            "prefix, or \"default\"",
            "",
            "required",
            "The destinations. `default` is 0.0.0.0/0, or ::/0 where the next hop is an IPv6 \
            address.",
        ),
        key("vrf", "name", "", "\"main\"", "The VRF whose packets it is for."),
        key(
            "table",
            "number",
            "",
            "that of `vrf`",
            "Its routing table, in place of `vrf`. The routes of one that no VRF has are taken if a \
            policy rule leads there.",
        ),
        key(
            "kind",
            "\"unicast\", \"blackhole\", \"unreachable\" or \"prohibit\"",
            "",
            "\"unicast\"",
            "Send on; drop silently; drop and answer unreachable; drop and answer prohibited.",
        ),
        key(
            "via",
            "address",
            "",
            "none: the destinations are on the link",
            "The next hop, of the destinations' family.",
        ),
        key(
            "port",
            "port name",
            "",
            "the one whose link the next hop is on",
            "The port to send by. Needed where there is no next hop, or a link-local one.",
        ),
        key(
            "port-vrf",
            "name",
            "",
            "that of the route",
            "The VRF of the port, if it is another one than the route's: packets leave there. \
            While the port is in any other VRF, the route is not used.",
        ),
        key(
            "onlink",
            "true or false",
            "",
            "false",
            "Whether `via` is on the link of `port` though no prefix of the port holds it.",
        ),
        key(
            "recursive",
            "true or false",
            "",
            "false",
            "Whether `via` is on no link, and is reached by another route of the same table.",
        ),
        key(
            "src",
            "address",
            "",
            "of the port, or as RFC 6724 says",
            "The own address in the VRF from which the gateway speaks to the destinations.",
        ),
        key(
            "nexthop-vrf",
            "name",
            "",
            "none",
            "The VRF whose table says where packets go, in place of `via` and `port`.",
        ),
        key(
            "next-hops",
            "list of tables",
            "",
            "none",
            "Several next hops in place of `via` and `port`, up to 64: each flow goes by one \
            of them.",
        ),
        key(
            "next-hops.via",
            "address",
            "",
            "none",
            "Its address. Without one, the destinations themselves are on the port's link.",
        ),
        key(
            "next-hops.port",
            "port name",
            "",
            "the one whose link it is on",
            "The port to send by. Needed where the next hop is link-local or has no address.",
        ),
        key(
            "next-hops.port-vrf",
            "VRF name",
            "",
            "the route's",
            "The VRF of that port, if it is another one: packets leave there.",
        ),
        key(
            "next-hops.onlink",
            "bool",
            "",
            "false",
            "Whether it is on the port's link though no prefix of the port holds it.",
        ),
        key(
            "next-hops.weight",
            "1 to 256",
            "",
            "1",
            "Its share of the flows is this much of the sum of all weights.",
        ),
        key(
            "metric",
            "0 to 4294967295",
            "",
            "0",
            "Of several routes of one prefix, the one with the lowest is used.",
        ),
        key(
            "proto",
            "name or number",
            "",
            "\"static\"",
            "Who made it, by iproute2's name, as in \"bgp\": it is shown, and changes nothing.",
        ),
    ],
};

pub(super) const RULE: Section = Section {
    name: "rule",
    many: true,
    keys: &[
        key(
            "priority",
            "1 to 4294967295",
            "",
            "required",
            "Its place in the order. Rules of the same priority are asked in the file's order.",
        ),
        key("from", "prefix", "", "any IPv4 address", "The sources. It says the family."),
        key("to", "prefix", "", "any address", "The destinations."),
        key(
            "iif",
            "port name, VRF name or \"lo\"",
            "",
            "any",
            "Where packets come by; `lo` is the gateway itself.",
        ),
        key("oif", "VRF name", "", "any", "The VRF in which the gateway itself sends."),
        key("fwmark", "\"MARK\" or \"MARK/MASK\"", "", "any", "The mark that filters have given."),
        key("ipproto", "protocol", "", "any", "The protocol, as in `\"tcp\"`."),
        key("sport", "\"PORT\" or \"FIRST-LAST\"", "", "any", "The source ports."),
        key("dport", "\"PORT\" or \"FIRST-LAST\"", "", "any", "The destination ports."),
        key("dscp", "DSCP", "", "any", "The DSCP, as in `\"ef\"`."),
        key("table", "number", "", "none", "The routing table to ask."),
        key("vrf", "VRF name", "", "none", "The VRF whose routing table is asked."),
        key("goto", "number", "", "none", "The priority of the next rule, behind this one."),
        key(
            "action",
            "\"l3mdev\", \"unreachable\", \"prohibit\" or \"blackhole\"",
            "",
            "none",
            "Ask the table of the packet's own VRF, if that is not main; or what becomes of \
            the packet. One of `table`, `vrf`, `goto` and `action` is needed.",
        ),
        key(
            "suppress-prefixlength",
            "0 to 128",
            "",
            "none",
            "Routes of the table with prefixes of this length and shorter ones do not count.",
        ),
    ],
};
