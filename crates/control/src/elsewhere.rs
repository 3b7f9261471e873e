//! What users look for in a router and hitpath leaves to other programs. It is refused by name.

/// What is not here, and what does it instead.
type Elsewhere = (&'static str, &'static str);

/// Says that hitpath does not do what `word` is about, and what does, if it is such a word.
pub fn elsewhere(word: &str) -> Option<Elsewhere> {
    find(word, &WORDS)
}

/// The same of the name of a section or key of a configuration file, which may be that of a whole
/// feature: in commands, words such as `bridge` or `gre` have answers of their own.
pub(crate) fn feature(name: &str) -> Option<Elsewhere> {
    elsewhere(name).or_else(|| find(name, &FEATURES))
}

/// The same of the name of a section, which others call otherwise than hitpath.
pub(crate) fn section(name: &str) -> Option<Elsewhere> {
    feature(name).or_else(|| find(name, &SECTIONS))
}

/// The same of a key of an SA.
pub(crate) fn of_sa(key: &str) -> Option<Elsewhere> {
    find(key, &OF_SA)
}

fn find(word: &str, all: &[(&[&str], Elsewhere)]) -> Option<Elsewhere> {
    let word = word.to_ascii_lowercase().replace('_', "-");
    all.iter().find(|(words, _)| words.contains(&word.as_str())).map(|(_, found)| *found)
}

const WORDS: [(&[&str], Elsewhere); 2] = [
    (
        &[
            "ra",
            "accept-ra",
            "send-ra",
            "router-advertisement",
            "router-advertisements",
            "router-advert",
            "radv",
            "radvd",
            "rtadv",
            "rdnss",
            "dnssl",
        ],
        (
            "hitpath neither sends router advertisements nor takes any",
            "radvd or dnsmasq on the interface of the port; docs/interfaces.md says how",
        ),
    ),
    (
        &[
            "dhcp",
            "dhcp4",
            "dhcp6",
            "dhcpv4",
            "dhcpv6",
            "dhcp-relay",
            "dhcp4-relay",
            "dhcp6-relay",
            "dhcpv4-relay",
            "dhcpv6-relay",
            "dhcp-server",
            "dhcp-client",
            "dhcp-helper",
            "helper-address",
            "dhcrelay",
        ],
        (
            "hitpath is no DHCP server, relay or client",
            "dnsmasq or dhcrelay as a station of the link; docs/interfaces.md says how",
        ),
    ),
];

const FEATURES: [(&[&str], Elsewhere); 18] = [
    (
        &[
            "ike",
            "ikev1",
            "ikev2",
            "isakmp",
            "strongswan",
            "swanctl",
            "libreswan",
            "racoon",
            "conn",
            "connection",
            "connections",
            "psk",
            "pre-shared-key",
            "pre-shared-keys",
            "secret",
            "secrets",
            "certificate",
            "certificates",
            "phase1",
            "phase2",
            "proposal",
            "proposals",
            "dpd",
            "rekey",
            "road-warrior",
        ],
        (
            "hitpath negotiates no keys",
            "strongSwan or another IKE daemon, whose keys go to `hitpath xfrm state add`; or \
            [[sa]] with keys of your own",
        ),
    ),
    (
        &[
            "bgp",
            "ospf",
            "ospf6",
            "ospfv3",
            "isis",
            "is-is",
            "rip",
            "ripng",
            "eigrp",
            "babel",
            "ldp",
            "routing-protocol",
            "routing-protocols",
            "protocols",
            "router",
            "frr",
            "bird",
            "quagga",
        ],
        (
            "hitpath speaks no routing protocol",
            "FRR or BIRD, whose routes go to `hitpath route` or `hitpath batch`; or [[route]]",
        ),
    ),
    (&["bfd"], ("hitpath does not speak BFD", "bfdd of FRR, and routes by its word")),
    (
        &[
            "ha",
            "high-availability",
            "failover",
            "cluster",
            "redundancy",
            "vrrp",
            "hsrp",
            "carp",
            "keepalived",
            "conntrack-sync",
            "conntrackd",
            "state-sync",
            "sync",
            "peer-gateway",
        ],
        (
            "hitpath hands neither addresses nor connections over to another gateway",
            "keepalived, whose scripts call `hitpath addr` and `hitpath route`",
        ),
    ),
    (
        &["nat64", "dns64", "nat46", "siit", "clat", "464xlat", "map-e", "map-t", "ds-lite"],
        (
            "hitpath translates no IPv6 to IPv4",
            "Jool or TAYGA as a station of a link; NAT within a family is [firewall] and flows",
        ),
    ),
    (
        &["dns", "dnsmasq", "resolver", "nameserver", "name-server", "dns-forwarder", "dyndns"],
        ("hitpath resolves no names", "unbound or dnsmasq as a station of a link"),
    ),
    (&["ntp", "ptp", "chrony", "timezone"], ("hitpath sets no clock", "chrony")),
    (
        &["snmp", "snmpd", "monitoring", "prometheus"],
        ("hitpath speaks no SNMP", "[metrics], which Prometheus reads; docs/metrics.md says how"),
    ),
    (
        &["netflow", "ipfix", "sflow", "flow-export", "flow-exporter"],
        (
            "hitpath exports no flows",
            "pmacct or softflowd on what `hitpath tap` copies; `hitpath conntrack -E` tells of \
            connections",
        ),
    ),
    (
        &[
            "wireguard",
            "wg",
            "openvpn",
            "ovpn",
            "l2tp",
            "pptp",
            "sstp",
            "ssl-vpn",
            "sslvpn",
            "anyconnect",
            "remote-access",
        ],
        (
            "hitpath has no tunnels but those of IPsec",
            "the program itself as a station of a link; or [[sa]] and [[policy]]",
        ),
    ),
    (
        &["pppoe", "ppp", "dialer", "wwan", "wifi", "wlan"],
        ("hitpath dials nowhere", "a modem or access point as a station of a link"),
    ),
    (
        &["bridge", "bridges", "bond", "bonds", "bonding", "lag", "lacp", "team", "stp", "rstp"],
        (
            "hitpath joins no interfaces",
            "ip link add type bond or bridge, and that interface as `interface` of a [[port]]; \
            frames between ports are flows",
        ),
    ),
    (
        &[
            "vxlan", "geneve", "gre", "gretap", "ipip", "sit", "6in4", "6rd", "mpls", "evpn",
            "macsec",
        ],
        (
            "hitpath has no tunnels but those of IPsec",
            "ip link add, and a tunnel interface with Ethernet frames as `interface` of a [[port]]",
        ),
    ),
    (
        &["multicast", "pim", "igmp", "igmp-proxy", "mld", "mroute", "mrouted"],
        ("hitpath forwards no multicast", "pimd or smcroute on a router beside it"),
    ),
    (
        &["ids", "ips", "suricata", "snort", "dpi", "proxy", "squid", "web-filter", "antivirus"],
        (
            "hitpath does not look into payloads",
            "Suricata or a proxy as a station of a link, to which flows send packets or copies",
        ),
    ),
    (
        &["sr", "srv6", "seg6", "segment-routing"],
        ("hitpath does no segment routing", "[[route]] with next hops, and [[sa]] for tunnels"),
    ),
    (&["lldp", "cdp", "lldpd"], ("hitpath speaks no LLDP", "lldpd on the interface of the port")),
    (
        &["upnp", "nat-pmp", "pcp", "radius", "tacacs", "captive-portal", "user", "users", "ssh"],
        (
            "hitpath knows no users and lets none open ports",
            "forwards of [firewall]; who may use the control socket is docs/security.md",
        ),
    ),
];

const SECTIONS: [(&[&str], Elsewhere); 11] = [
    (
        &["nat", "snat", "dnat", "masquerade", "port-forward", "port-forwards", "forwards"],
        (
            "addresses are translated by the firewall, or by flows",
            "masquerade, snat and forwards of [firewall]; or ct(nat(...)) in a [[flow]]",
        ),
    ),
    (
        &["qos", "tc", "shaper", "shaping", "traffic-control", "queue", "queues", "queueing"],
        ("rates and queues are queueing disciplines", "[[qdisc]]; docs/qdisc.md says how"),
    ),
    (
        &["acl", "acls", "access-list", "access-lists", "nftables", "iptables"],
        (
            "packets are let through by several sections, each of which has its own",
            "[firewall] between zones, [[filter]] of a port or VRF, [[flow]] for anything else",
        ),
    ),
    (
        &["syslog", "log", "logs", "logging", "journal"],
        (
            "the daemon logs to standard error, more with -v",
            "[audit] for who changed what, log = true in a [[filter]] for packets",
        ),
    ),
    (
        &["vti", "xfrm", "xfrmi", "tunnel", "tunnels", "ipsec-interface"],
        (
            "a tunnel is an SA and policies, and may be a port",
            "[[sa]] and [[policy]]; [[port]] with kind = \"xfrm\" for routes into it",
        ),
    ),
    (
        &["vlan", "vlans", "subinterface", "subinterfaces"],
        ("a VLAN is a port", "[[port]] with kind = \"vlan\", parent and id"),
    ),
    (
        &["interface", "interfaces", "ifaces", "ports", "link", "links", "ethernet", "ethernets"],
        ("an interface is a port", "[[port]] with kind = \"af-packet\" and interface = \"eth0\""),
    ),
    (
        &["routing", "routes", "static", "static-routes", "static-route", "fib"],
        ("each route is a section", "[[route]] with to and via"),
    ),
    (
        &["policies", "spd", "ipsec-policy", "ipsec-policies", "security-policy"],
        ("each IPsec policy is a section", "[[policy]]; policies between zones are in [firewall]"),
    ),
    (
        &["sas", "sad", "states", "security-association", "security-associations"],
        ("each SA is a section", "[[sa]]"),
    ),
    (
        &["address", "addresses", "ip"],
        ("an address is its port's", "addresses = [\"192.0.2.1/24\"] in a [[port]]"),
    ),
];

const OF_SA: [(&[&str], Elsewhere); 4] = [
    (
        &["esn", "extended-sequence-numbers", "seq-hi", "replay-seq-hi", "replay-oseq-hi"],
        ("there are no extended sequence numbers", "leave it out: a rekey before 2^32 packets"),
    ),
    (
        &[
            "encap",
            "encapsulation",
            "udp-encap",
            "espinudp",
            "nat-traversal",
            "nat-t",
            "natt",
            "forceencaps",
            "nat-keepalive-interval",
        ],
        ("there is no NAT traversal", "leave it out: ESP goes in IP itself"),
    ),
    (
        &[
            "lifetime",
            "life-time",
            "lifetimes",
            "limit",
            "limits",
            "hard-limit",
            "soft-limit",
            "expires",
            "expire",
            "rekey-time",
            "rekeymargin",
        ],
        (
            "SAs have no lifetimes here",
            "leave it out: who has the keys replaces the SA, `hitpath xfrm state update`",
        ),
    ),
    (
        &["transport", "transport-mode", "beet"],
        ("SAs are in tunnel mode", "leave it out, or mode = \"tunnel\""),
    ),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_name_stands_twice_and_all_are_as_they_are_looked_for() {
        let mut seen = BTreeSet::new();
        let all = WORDS.iter().chain(&FEATURES).chain(&SECTIONS);
        for word in all.flat_map(|(words, _)| words.iter()) {
            assert!(seen.insert(word), "{word}");
            assert_eq!(word.to_ascii_lowercase().replace('_', "-"), **word);
            assert!(section(&word.to_uppercase().replace('-', "_")).is_some(), "{word}");
        }
        assert!(of_sa("NAT_Traversal").is_some() && of_sa("spi").is_none());
        assert_eq!(elsewhere("bgp"), None);
        assert_eq!(feature("port"), None);
    }
}
