//! What has to be true of one object by itself, whether it comes from the configuration file or as
//! a command.
//!
//! Checks that the tables make too are made by the same functions, in [`types::station`] and in
//! `tables`; what is added here is which part of the object is wrong, and what would be right.

mod algorithm;
pub(crate) mod circle;
mod filter;
mod policy;
pub(crate) mod qdisc;
mod state;
mod weak_keys;

pub(crate) use algorithm::{default_truncation, encryption_name, integrity_name, is_algorithm};
pub(crate) use filter::{MAX_PREFERENCE, filter};
pub(crate) use policy::{action, link_policy, policy, selector};
pub(crate) use state::{idle_sa, in_vrf, state};
pub(crate) use weak_keys::{KeyUses, SHARED, doubts};

use std::net::IpAddr;

use api::{
    MemberSpec, NeighbourSpec, Refusal, RefusalCode, RouteKind, RouteSpec, RuleAction, RuleSpec,
};
use tables::limit::check_mtu;
use tables::{MAX_MEMBERS, MAX_WEIGHT};
use types::station::{
    NotAPortAddress, NotRoutable, check_port_address, check_routable, check_station,
    check_station_mac, is_v6_link_local,
};
use types::{Family, IpPrefix, Mac, Protocol, Share, VlanProtocol};

/// The longest name of a port or VRF, in bytes: as long as Linux lets interface names be.
pub(crate) const MAX_NAME: usize = 15;

/// What is wrong with an object, and with which part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// The part, by its name in the configuration file.
    pub(crate) part: &'static str,
    /// What kind of reason.
    pub(crate) code: RefusalCode,
    /// What is wrong.
    pub(crate) message: String,
    /// What would be right.
    pub(crate) hint: Option<String>,
}

impl Fault {
    pub(crate) fn invalid(part: &'static str, message: impl Into<String>) -> Self {
        Self { part, code: RefusalCode::Invalid, message: message.into(), hint: None }
    }

    pub(crate) fn unsupported(part: &'static str, message: impl Into<String>) -> Self {
        Self { part, code: RefusalCode::Unsupported, message: message.into(), hint: None }
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl From<Fault> for Refusal {
    fn from(fault: Fault) -> Self {
        Self { code: fault.code, message: fault.message, hint: fault.hint }
    }
}

/// A name of a VRF: as of a port, but no word that means something else where commands name VRFs and
/// tables.
pub(crate) fn vrf_name(part: &'static str, name: &str) -> Result<(), Fault> {
    self::name(part, name)?;
    let means = match name {
        "lo" => "the gateway itself in policy rules",
        "all" => "all routing tables",
        "local" | "default" | "unspec" => "a routing table of Linux",
        "l3mdev" => "the table of a packet's own VRF in policy rules",
        name if is_number(name) => "a number, as routing tables have",
        _ => return Ok(()),
    };
    Err(Fault::invalid(part, format!("'{name}' is {means}")).hint("another name, as in blue"))
}

/// What is said of a rule with `iif lo` where there is a port of that name.
pub(crate) const LO_IS_NO_PORT: &str =
    "iif lo is the gateway itself, and not the port lo, which no rule can name";

/// Whether commands that name tables take a word for a number, of whatever size.
pub(crate) fn is_number(word: &str) -> bool {
    let hexadecimal = word.strip_prefix("0x").or_else(|| word.strip_prefix("0X"));
    let (digits, radix) = hexadecimal.map_or((word, 10), |digits| (digits, 16));
    !digits.is_empty() && digits.chars().all(|digit| digit.is_digit(radix))
}

/// A name of a port or VRF: 1 to 15 letters, digits, `-`, `_` and `.`.
pub(crate) fn name(part: &'static str, name: &str) -> Result<(), Fault> {
    const HINT: &str = "1 to 15 letters, digits, '-', '_' or '.', the first a letter or digit";
    if name.is_empty() || name.len() > MAX_NAME {
        return Err(Fault::invalid(part, format!("a name of {} bytes", name.len())).hint(HINT));
    }
    let wrong =
        |(at, c): &(usize, char)| !(c.is_ascii_alphanumeric() || *at > 0 && "-_.".contains(*c));
    if let Some((_, c)) = name.char_indices().find(wrong) {
        return Err(Fault::invalid(
            part,
            format!("'{}' is not allowed here in a name", c.escape_default()),
        )
        .hint(HINT));
    }
    Ok(())
}

/// Whether a VRF or a route can have the routing table of this number.
pub(crate) fn table(part: &'static str, number: u32) -> Result<(), Fault> {
    let means = match number {
        0 => "no table",
        253 => "Linux's table default, which nothing leads to here",
        254 => "the table of VRF main",
        255 => "Linux's table local: local routes stand in the table of their VRF here",
        _ => return Ok(()),
    };
    Err(Fault::invalid(part, format!("table {number} is {means}"))
        .hint("another number, as in table 10"))
}

/// How much a VRF may have of what VRFs share.
pub(crate) fn highest_share(percent: u8) -> Result<Share, Fault> {
    let fault = || {
        let message = format!("highest-share {percent}");
        Fault::invalid("highest-share", message).hint("1 to 100, in percent")
    };
    Share::new(percent).ok_or_else(fault)
}

/// An address that a port may have.
pub(crate) fn own_address(part: &'static str, prefix: IpPrefix) -> Result<(), Fault> {
    check_port_address(prefix).map_err(|why| {
        let hint = match why {
            NotAPortAddress::Network | NotAPortAddress::Broadcast => {
                "the address of one host on the link, as in 192.0.2.1/24"
            }
            _ => "a unicast address with the prefix length of its link, as in 192.0.2.1/24",
        };
        Fault::invalid(part, format!("{prefix} cannot be the address of a port: it is {why}"))
            .hint(hint)
    })
}

/// An address that an xfrm link may have, of those of ports.
pub(crate) fn xfrm_address(part: &'static str, prefix: IpPrefix) -> Result<(), Fault> {
    if !is_v6_link_local(prefix.address()) {
        return Ok(());
    }
    let message = format!(
        "{prefix} cannot be the address of an xfrm link: what was decrypted came by no link that \
        its scope could be"
    );
    Err(Fault::invalid(part, message).hint("a global or unique local address, as in fd00::1/64"))
}

/// An address that a station on a link may have.
pub(crate) fn station(part: &'static str, address: IpAddr) -> Result<(), Fault> {
    check_station(address).map_err(|why| {
        Fault::invalid(part, format!("{address} is not the address of one station: it is {why}"))
            .hint("a unicast address")
    })
}

/// An Ethernet address that a station may have.
pub(crate) fn station_mac(part: &'static str, mac: Mac) -> Result<(), Fault> {
    check_station_mac(mac).map_err(|why| {
        Fault::invalid(part, format!("{mac} is not the address of one station: it is {why}"))
            .hint("an address whose first octet is even, and not all zeros")
    })
}

/// A permanent neighbour.
pub(crate) fn neighbour(spec: &NeighbourSpec) -> Result<(), Fault> {
    station("address", spec.address)?;
    station_mac("mac", spec.mac)
}

/// The protocol of a VLAN's tags, in iproute2's words.
pub(crate) fn vlan_protocol(word: &str) -> Result<VlanProtocol, Fault> {
    let found = VlanProtocol::ALL.into_iter().find(|it| it.name().eq_ignore_ascii_case(word));
    found.ok_or_else(|| {
        Fault::invalid("protocol", format!("protocol '{}'", api::shown(word)))
            .hint("802.1Q or 802.1ad")
    })
}

/// An MTU that a port may have, `v6` if it has an IPv6 address.
pub(crate) fn mtu(part: &'static str, mtu: u16, v6: bool) -> Result<(), Fault> {
    check_mtu(mtu, v6).map_err(|why| {
        let rfc = if v6 { " (RFC 8200 section 5)" } else { "" };
        Fault::invalid(part, why.to_string())
            .hint(format!("{} to {} bytes{rfc}", why.least, why.most))
    })
}

/// Destinations that a route may have.
pub(crate) fn destination(part: &'static str, prefix: IpPrefix) -> Result<(), Fault> {
    prefix.without_host_bits().map_err(|why| {
        Fault::invalid(part, format!("{prefix}: {why}")).hint(prefix.network().to_string())
    })?;
    check_routable(prefix).map_err(|why| {
        let message = format!("{prefix} is not routed: it is {why}");
        match why {
            NotRoutable::Multicast => Fault::unsupported(part, message),
            NotRoutable::LinkLocal => Fault::invalid(part, message),
        }
    })
}

/// A rule with its family, without what every packet has, and with the main table by its name: one
/// rule is said in one way.
pub(crate) fn normal_rule(mut spec: RuleSpec) -> RuleSpec {
    let of = |prefix: Option<IpPrefix>| prefix.map(|prefix| Family::of(prefix.address()));
    let said = spec.family.or(of(spec.from)).or(of(spec.to));
    spec.family = Some(said.unwrap_or(Family::V4));
    spec.from = spec.from.filter(|from| from.length() > 0);
    spec.to = spec.to.filter(|to| to.length() > 0);
    if spec.action == Some(RuleAction::Table(254)) {
        spec.action = Some(RuleAction::Vrf(api::MAIN_VRF.to_owned()));
    }
    spec
}

/// A rule with what it does: one that a command does not say it of asks the table of VRF main, as
/// with iproute2.
pub(crate) fn whole_rule(mut spec: RuleSpec) -> RuleSpec {
    spec.action.get_or_insert_with(|| RuleAction::Vrf(api::MAIN_VRF.to_owned()));
    spec
}

/// A policy rule by itself.
pub(crate) fn rule(spec: &RuleSpec) -> Result<(), Fault> {
    for (part, prefix) in [("from", spec.from), ("to", spec.to)] {
        let Some(prefix) = prefix else { continue };
        if spec.family != Some(Family::of(prefix.address())) {
            let message = format!("{prefix} is of another address family than the rule");
            return Err(Fault::invalid(part, message));
        }
        if prefix.network() != prefix {
            let message = format!("{prefix} has bits beyond its length");
            return Err(Fault::invalid(part, message).hint(format!("{}", prefix.network())));
        }
    }
    if spec.priority == Some(0) {
        let message = "priority 0 is the rule for own addresses, which come first";
        return Err(Fault::invalid("priority", message).hint("1 to 4294967295"));
    }
    if spec.dscp.is_some_and(|dscp| dscp.mask() != DSCP_BITS) {
        let message = "a rule asks for all bits of the DSCP";
        return Err(Fault::invalid("dscp", message).hint("as in ef, af11, or 0 to 63"));
    }
    if let Some((value, mask)) = spec.fwmark
        && value & !mask != 0
    {
        let message = format!("fwmark {value:#x} has bits that its mask {mask:#x} has not");
        return Err(Fault::invalid("fwmark", message).hint("no packet would match"));
    }
    let has_ports = spec.ipproto.is_none_or(|protocol| {
        [Protocol::TCP, Protocol::UDP, Protocol::SCTP, Protocol::DCCP].contains(&protocol)
    });
    if let Some(part) = spec.sport.map(|_| "sport").or(spec.dport.map(|_| "dport"))
        && !has_ports
    {
        return Err(Fault::invalid(part, "the protocol has no ports")
            .hint("ipproto tcp, udp, sctp or dccp, or none"));
    }
    let Some(action) = &spec.action else {
        return Err(Fault::invalid("table", "the rule does nothing")
            .hint("lookup TABLE, goto PRIORITY, unreachable, prohibit, blackhole or l3mdev"));
    };
    let is_lookup = matches!(action, RuleAction::Table(_) | RuleAction::Vrf(_));
    if let Some(length) = spec.suppress_prefixlength {
        if !is_lookup {
            let message = "suppress_prefixlength belongs to a lookup in a table";
            return Err(Fault::invalid("suppress-prefixlength", message));
        }
        if length > 128 {
            let message = format!("{length} is no prefix length");
            return Err(Fault::invalid("suppress-prefixlength", message).hint("0 to 128"));
        }
    }
    match *action {
        RuleAction::Table(254) => Ok(()),
        RuleAction::Table(number) => table("table", number),
        RuleAction::Goto(to) if spec.priority.is_none_or(|from| to <= from) => {
            let message = match spec.priority {
                Some(from) => format!("rule {from} goes to {to}, which is not behind it"),
                None => "a rule that goes to another one needs its own priority".to_owned(),
            };
            Err(Fault::invalid("goto", message).hint("a higher priority number than its own"))
        }
        _ => Ok(()),
    }
}

/// All bits of a DSCP.
const DSCP_BITS: u8 = 0x3f;

/// A route that someone may ask for.
pub(crate) fn route(spec: &RouteSpec) -> Result<(), Fault> {
    destination("to", spec.destination)?;
    match spec.kind {
        RouteKind::Unicast => {}
        RouteKind::Local | RouteKind::Broadcast => {
            return Err(Fault::invalid(
                "kind",
                format!("routes of kind {} follow from the addresses of ports", spec.kind),
            )
            .hint("add an address to a port"));
        }
        RouteKind::Blackhole | RouteKind::Unreachable | RouteKind::Prohibit => {
            let several = (!spec.nexthops.is_empty()).then_some("next-hops");
            let part = part_of(spec).or(several).or(spec.prefsrc.map(|_| "src"));
            return match part {
                Some(part) => Err(Fault::invalid(
                    part,
                    format!("a route of kind {} sends nowhere", spec.kind),
                )
                .hint("leave out next hop and port, or make it unicast")),
                None => Ok(()),
            };
        }
    }
    if let Some(source) = spec.prefsrc {
        if spec.table.is_some() {
            let message = "a table that no VRF has is of no VRF's addresses";
            return Err(Fault::invalid("src", message).hint("leave src out"));
        }
        if source.is_ipv4() != spec.destination.address().is_ipv4() {
            let to = spec.destination;
            let message = format!("src {source} and destination {to} are of two address families");
            return Err(Fault::invalid("src", message).hint("an address of the family"));
        }
    }
    if spec.onlink && (spec.via.is_none() || spec.port.is_none()) {
        let message = "onlink says that one next hop is on the link of a port";
        return Err(Fault::invalid("onlink", message).hint("via ADDRESS dev PORT onlink"));
    }
    if spec.recursive && (spec.via.is_none() || spec.port.is_some() || spec.onlink) {
        let message = "recursive says that another route leads to one next hop, by whatever port";
        return Err(Fault::invalid("recursive", message).hint("via ADDRESS recursive"));
    }
    if let Some(into) = &spec.nexthop_vrf {
        let part = spec.via.map(|_| "via").or(spec.port.as_ref().map(|_| "port"));
        let several = (!spec.nexthops.is_empty()).then_some("next-hops");
        let part = part.or(spec.port_vrf.as_ref().map(|_| "port-vrf")).or(several);
        if let Some(part) = part {
            let message = format!("the table of VRF {into} says where the route leads");
            return Err(
                Fault::invalid(part, message).hint("leave out next hop and port, or nexthop-vrf")
            );
        }
        if spec.table.is_none() && *into == spec.vrf {
            let message = format!("a route of VRF {into} cannot lead into the same VRF's table");
            return Err(Fault::invalid("nexthop-vrf", message).hint("another VRF"));
        }
        return Ok(());
    }
    if spec.port_vrf.is_some() && spec.table.is_some() {
        return Err(any_port());
    }
    if !spec.nexthops.is_empty() {
        if let Some(part) = part_of(spec) {
            return Err(Fault::invalid(part, "a route has one next hop or several, and not both")
                .hint("what is said of each next hop stands with it"));
        }
        members(&spec.nexthops)?;
        if spec.table.is_some() && spec.nexthops.iter().any(|one| one.port_vrf.is_some()) {
            return Err(any_port());
        }
        return spec.nexthops.iter().try_for_each(|one| member(spec.destination, one));
    }
    let Some(via) = spec.via else {
        if spec.port.is_none() {
            return Err(Fault::invalid(
                "to",
                format!("the route to {} leads nowhere", spec.destination),
            )
            .hint("a next hop, a port, or both; or kind blackhole, unreachable or prohibit"));
        }
        return Ok(());
    };
    next_hop(spec.destination, via, spec.port.as_deref())
}

fn any_port() -> Fault {
    let message = "a table that no VRF has may have routes by ports of any VRF";
    Fault::invalid("port-vrf", message).hint("leave it out")
}

/// What is said of where a route leads, several next hops aside.
fn part_of(spec: &RouteSpec) -> Option<&'static str> {
    let said = [
        (spec.via.is_some(), "via"),
        (spec.port.is_some(), "port"),
        (spec.port_vrf.is_some(), "port-vrf"),
        (spec.nexthop_vrf.is_some(), "nexthop-vrf"),
        (spec.onlink, "onlink"),
        (spec.recursive, "recursive"),
    ];
    said.into_iter().find_map(|(is_said, part)| is_said.then_some(part))
}

/// The next hop of a route, and the port if that is said.
fn next_hop(destination: IpPrefix, via: IpAddr, port: Option<&str>) -> Result<(), Fault> {
    if via.is_ipv4() != destination.address().is_ipv4() {
        return Err(Fault::unsupported(
            "via",
            format!("next hop {via} and destination {destination} are of two address families"),
        )
        .hint("a next hop of the destination's family"));
    }
    station("via", via)?;
    if port.is_none() && is_v6_link_local(via) {
        return Err(Fault::invalid("via", "a link-local next hop does not say on which link")
            .hint("name the port too"));
    }
    Ok(())
}

/// One of several next hops of a route.
pub(crate) fn member(destination: IpPrefix, spec: &MemberSpec) -> Result<(), Fault> {
    match (spec.gateway, &spec.dev) {
        (Some(gateway), dev) => next_hop(destination, gateway, dev.as_deref())?,
        (None, Some(_)) => {}
        (None, None) => {
            let message = "one of several next hops leads nowhere";
            return Err(Fault::invalid("next-hops", message)
                .hint("its address, as in via 192.0.2.1; a port; or both"));
        }
    }
    if spec.onlink && (spec.gateway.is_none() || spec.dev.is_none()) {
        let message = "onlink says that one next hop is on the link of a port";
        return Err(Fault::invalid("onlink", message).hint("via ADDRESS dev PORT onlink"));
    }
    if spec.weight == 0 || spec.weight > MAX_WEIGHT {
        let message = format!("{} has a weight of {}", named(spec), spec.weight);
        return Err(Fault::invalid("weight", message).hint(format!("1 to {MAX_WEIGHT}")));
    }
    Ok(())
}

/// `next hop 192.0.2.1`, or `port wan`
fn named(one: &MemberSpec) -> String {
    match (one.gateway, &one.dev) {
        (Some(gateway), _) => format!("next hop {gateway}"),
        (None, dev) => format!("port {}", dev.as_deref().unwrap_or_default()),
    }
}

/// Several next hops of a route, beside what each of them has to be.
fn members(all: &[MemberSpec]) -> Result<(), Fault> {
    if all.len() > MAX_MEMBERS {
        let message = format!("{} next hops of one route", all.len());
        return Err(Fault::invalid("next-hops", message).hint(format!("1 to {MAX_MEMBERS}")));
    }
    for (at, one) in all.iter().enumerate() {
        let is_same = |other: &MemberSpec| (other.gateway, &other.dev) == (one.gateway, &one.dev);
        if all[..at].iter().any(is_same) {
            let message = format!("{} is given twice", named(one));
            return Err(Fault::invalid("next-hops", message)
                .hint("once, with the weights of both together"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for good in ["lan", "eth0", "0", "a.b-c_d", "fifteen-letters"] {
            assert_eq!(name("name", good), Ok(()), "{good}");
        }
        for bad in ["", "-a", "a b", "a/b", "sixteen-letters-", "é", "a\n"] {
            assert!(name("name", bad).is_err(), "{bad}");
        }
    }
}
