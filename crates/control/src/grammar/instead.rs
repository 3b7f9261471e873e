//! What to say in place of iproute2's words that are refused.

/// What does what `word` would do in a command about `object`, if something does.
pub(super) fn instead(object: &str, word: &str) -> Option<&'static str> {
    let of = |name: &str| !object.is_empty() && name.starts_with(object);
    let known = match () {
        () if of("address") => ADDRESS,
        () if of("route") => ROUTE,
        () if of("rule") => RULE,
        () if of("neighbour") || of("neighbor") => NEIGHBOUR,
        () if of("link") => LINK,
        () if of("xfrm") => XFRM,
        () if of("qdisc") => QDISC,
        () => return None,
    };
    known.iter().find(|(words, _)| words.contains(&word)).map(|(_, hint)| *hint)
}

type Instead = (&'static [&'static str], &'static str);

const ADDRESS: &[Instead] = &[
    (&["peer", "remote"], "an address with the prefix of the link, and a route to the other end"),
    (&["label"], "leave it out: an address is its port's, and has no name of its own"),
    (&["metric"], "leave it out: the route of an address goes before all others of its prefix"),
    (&["scope"], "leave it out: scope global of all but link-local addresses, scope link of those"),
    (&["valid_lft", "preferred_lft"], "forever, or leave it out: addresses stay until deleted"),
    (&["noprefixroute"], "a prefix of one host (/32 or /128), which brings no route to a link"),
    (&["home", "mngtmpaddr", "autojoin"], "leave it out"),
    (&["anycast"], "the address as one of the port"),
];

const ROUTE: &[Instead] = &[
    (&["mtu"], "link set PORT mtu BYTES"),
    (&["advmss"], "link set PORT mss BYTES, which lowers the MSS of TCP connections through it"),
    (
        &["throw"],
        "rule add ... lookup N suppress_prefixlength LENGTH, or a table without the route",
    ),
    (&["nat"], "hitpath firewall, or flow add with ct(nat(...))"),
    (&["tos", "dsfield"], "rule add dscp DSCP lookup N, and the route in table N"),
    (&["from"], "rule add from PREFIX lookup N, and the route in table N"),
    (&["iif"], "rule add iif PORT lookup N, and the route in table N"),
    (&["realm", "realms"], "a mark by filter, and rule add fwmark"),
    (&["nhid"], "nexthop via ADDRESS, as often as there are next hops"),
    (&["oif", "ipproto", "sport", "dport", "uid"], "hitpath explain, which knows all of a packet"),
    (&["fibmatch"], "route show match ADDRESS"),
    (&["scope"], "type KIND, or proto NAME"),
    (
        &[
            "hoplimit",
            "window",
            "rtt",
            "rttvar",
            "reordering",
            "cwnd",
            "initcwnd",
            "initrwnd",
            "ssthresh",
            "rto_min",
            "quickack",
            "congctl",
            "features",
            "fastopen_no_cookie",
        ],
        "leave it out: it is for TCP connections of a host, and the gateway has none",
    ),
    (&["expires"], "leave it out: a route stays until it is deleted"),
    (&["multicast", "anycast"], "hitpath routes unicast alone"),
];

const QDISC: &[Instead] = &[
    (&["clsact", "ingress"], "filter add dev NAME ingress, which needs no qdisc"),
    (&["peakrate", "mtu", "minburst"], "leave it out, and a burst of one frame: burst 1540"),
    (&["mpu", "overhead", "linklayer", "stab"], "a rate that is lower by what the link adds"),
];

const RULE: &[Instead] = &[
    (&["not"], "a rule in front of it that says the opposite, with goto"),
    (&["uidrange"], "leave it out: packets of the network have no user"),
    (&["realms", "tun_id"], "fwmark, after a mark by filter"),
    (&["nat", "map-to"], "hitpath firewall, or flow add with ct(nat(...))"),
    (&["protocol"], "leave it out: commands make rules of no routing protocol"),
    (&["suppress_ifgroup", "sup_group"], "suppress_prefixlength LENGTH"),
];

const NEIGHBOUR: &[Instead] = &[
    (
        &["proxy"],
        "the address as one of the port, or a route to it: the gateway answers for its own",
    ),
    (
        &["router", "extern_learn", "managed", "use", "protocol"],
        "leave it out: a neighbour by command is permanent",
    ),
    (&["nomaster"], "vrf main"),
];

const LINK: &[Instead] = &[
    (&["address", "broadcast", "brd"], "mac of [[port]], and hitpath reload"),
    (&["name"], "link del and link add of a VLAN; name of [[port]], and hitpath reload"),
    (&["txqueuelen", "qlen", "txqlen"], "hitpath qdisc add dev PORT root pfifo limit N"),
    (&["netns", "link-netnsid"], "link set PORT vrf NAME: what separates tenants here are VRFs"),
    (
        &["arp", "multicast", "allmulticast", "promisc", "carrier", "trailers", "protodown"],
        "ip link set of the system's interface",
    ),
    (&["alias", "group", "addrgenmode", "mode"], "leave it out: it is nothing to the gateway"),
    (&["xdp", "xdpgeneric", "xdpdrv", "xdpoffload"], "ip link set of the system's interface"),
    (&["vf"], "ip link set of the system's interface"),
];

const XFRM: &[Instead] = &[
    (&["sel"], "xfrm policy, which says the packets of a tunnel; or sel of all packets"),
    (&["encap"], "leave it out: ESP goes over IP, and there is no NAT traversal"),
    (&["mark", "output-mark"], "if_id ID, or vrf NAME"),
    (&["offload"], "leave it out: the gateway encrypts itself"),
    (&["limit"], "leave it out: who makes SAs replaces them"),
    (&["ctx"], "leave it out: there are no security contexts"),
    (&["dev"], "vrf NAME, or if_id ID of an xfrm link on the port"),
    (&["key"], "proto gre without a key"),
    (&["seq", "coa", "tfcpad", "comp", "pcpu-num", "nat_keepalive_interval"], "leave it out"),
    (&["replay-seq-hi", "replay-oseq-hi", "extra-flag"], "an SA without extended sequence numbers"),
    (&["dir"], "leave it out: the template of a policy says which SAs send"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_to_say_instead_depends_on_the_object() {
        assert!(instead("route", "mtu").unwrap().contains("link set"));
        assert_eq!(instead("ro", "mtu"), instead("route", "mtu"));
        assert_eq!(instead("link", "mtu"), None);
        assert_eq!(instead("vrf", "mtu"), None);
        assert_eq!(instead("", "mtu"), None);
    }
}
