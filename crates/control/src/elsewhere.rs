//! What users look for in a router and hitpath leaves to other programs. It is refused by name.

/// Says that hitpath does not do what `word` is about, and what does, if it is such a word.
pub(crate) fn elsewhere(word: &str) -> Option<(&'static str, &'static str)> {
    let word = word.to_ascii_lowercase().replace('_', "-");
    let of = |words: &[&str]| words.contains(&word.as_str());
    if of(ROUTER_ADVERTISEMENTS) {
        Some((
            "hitpath neither sends router advertisements nor takes any",
            "radvd or dnsmasq on the interface of the port; docs/interfaces.md says how",
        ))
    } else if of(DHCP) {
        Some((
            "hitpath is no DHCP server, relay or client",
            "dnsmasq or dhcrelay as a station of the link; docs/interfaces.md says how",
        ))
    } else {
        None
    }
}

const ROUTER_ADVERTISEMENTS: &[&str] = &[
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
];

const DHCP: &[&str] = &[
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
];
