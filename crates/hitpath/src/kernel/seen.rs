//! Whether the kernel handles the packets of the gateway's interfaces too.

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;

use ::io::links::Links;
use ::io::rtnetlink::{KernelAddress, Rtnetlink};
use control::PortSettings;
use serde::Serialize;
use wire::IpRange;

use super::sysctl::{ARP_IGNORE, DISABLE_IPV6, FORWARDING, RP_FILTER, Sysctls};

/// The most addresses that are named in a line.
const NAMED: usize = 4;

/// An interface whose packets the kernel handles too.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Seen {
    port: String,
    interface: String,
    /// What the kernel does.
    problems: Vec<String>,
    /// What ends that.
    commands: Vec<String>,
}

impl Seen {
    /// In one line.
    pub(crate) fn describe(&self) -> String {
        let commands: Vec<_> = self.commands.iter().map(|command| format!("`{command}`")).collect();
        format!(
            "interface {} of port {}: the kernel handles its packets too: {} (mended by {}, or by \
            `hitpath run --own-interfaces`)",
            self.interface,
            self.port,
            self.problems.join("; "),
            commands.join(" and ")
        )
    }
}

/// Logs what [`look`] finds.
pub(crate) fn warn(ports: &[PortSettings]) {
    match look(ports) {
        Ok(found) => found.iter().for_each(|seen| tracing::warn!("{}", seen.describe())),
        Err(error) => {
            tracing::warn!(
                "whether the kernel handles the ports' packets too is not known: {error}"
            );
        }
    }
}

/// The interfaces of `ports` that are not there, with their ports.
///
/// # Errors
/// If the kernel does not say it.
pub(crate) fn missing(ports: &[PortSettings]) -> io::Result<Vec<(&str, &str)>> {
    let mut links = Links::open()?;
    let mut missing = Vec::new();
    for (port, interface) in super::shared(ports) {
        if links.named(interface)?.is_none() {
            missing.push((port.name.as_str(), interface));
        }
    }
    Ok(missing)
}

/// The interfaces of `ports` whose packets the kernel handles too. One that is not there is passed
/// over.
///
/// # Errors
/// If the kernel does not say it.
pub(crate) fn look(ports: &[PortSettings]) -> io::Result<Vec<Seen>> {
    let (mut links, mut netlink) = (Links::open()?, Rtnetlink::open()?);
    let sysctls = Sysctls::of_system();
    let addresses = netlink.addresses()?;
    let gateway = ports.iter().flat_map(|port| &port.addresses).map(|own| own.address()).collect();
    let mut found = Vec::new();
    for (port, interface) in super::shared(ports) {
        let Some(link) = links.named(interface)? else { continue };
        let (here, elsewhere): (_, Vec<_>) =
            addresses.iter().partition(|address| address.index == link.index);
        let facts = Facts::read(&sysctls, interface, here, &elsewhere, &gateway)?;
        let (problems, commands) = facts.problems(interface);
        if !problems.is_empty() {
            let (port, interface) = (port.name.clone(), interface.to_owned());
            found.push(Seen { port, interface, problems, commands });
        }
    }
    Ok(found)
}

/// The addresses of the kernel to which the gateway translates sources, in words, with what mends it.
/// Answers come to both, and the kernel knows nothing of their connections.
///
/// # Errors
/// If the kernel does not say which addresses it has.
pub(crate) fn translated(pools: &[IpRange]) -> io::Result<Vec<String>> {
    let mut both = Rtnetlink::open()?.addresses()?;
    both.retain(|own| pools.iter().any(|pool| holds(pool, own.address)));
    let interfaces = nix::net::if_::if_nameindex()?;
    let name = |index: u32| {
        let interface = interfaces.iter().find(|interface| interface.index() == index);
        interface.map_or_else(|| "?".into(), |interface| interface.name().to_string_lossy())
    };
    let line = |own: &KernelAddress| {
        let KernelAddress { address, prefix, index, .. } = own;
        let interface = name(*index);
        format!(
            "sources are translated to {address}, which the kernel has on {interface} as well: it \
            ends their TCP connections by resets, as it knows nothing of them (mended by `ip address \
            del {address}/{prefix} dev {interface}`, or, where a daemon needs the address, by an \
            nftables table that drops what comes for the kernel but for what the daemon needs: \
            docs/interfaces.md, \"Translation to an address that both have\")"
        )
    };
    Ok(both.iter().map(line).collect())
}

fn holds(pool: &IpRange, address: IpAddr) -> bool {
    match (pool.first(), pool.last(), address) {
        (IpAddr::V4(first), IpAddr::V4(last), IpAddr::V4(own)) => (first..=last).contains(&own),
        (IpAddr::V6(first), IpAddr::V6(last), IpAddr::V6(own)) => (first..=last).contains(&own),
        _ => false,
    }
}

/// How the kernel treats the packets of an interface.
#[derive(Default)]
struct Facts<'a> {
    here: Vec<&'a KernelAddress>,
    /// IPv4 addresses of other interfaces, and whether the gateway has them too.
    elsewhere: Vec<(IpAddr, bool)>,
    forwards: bool,
    forwards_6: bool,
    has_ipv6: bool,
    /// Whether IPv4 packets of an interface without addresses are taken.
    takes_others: bool,
    /// Whether ARP requests for addresses of other interfaces are answered.
    answers_others: bool,
}

impl<'a> Facts<'a> {
    fn read(
        sysctls: &Sysctls,
        interface: &str,
        here: Vec<&'a KernelAddress>,
        elsewhere: &[&KernelAddress],
        gateway: &BTreeSet<IpAddr>,
    ) -> io::Result<Self> {
        let elsewhere: BTreeSet<IpAddr> = elsewhere
            .iter()
            .map(|found| found.address)
            // A packet for one of 127/8 is dropped wherever it comes from.
            .filter(|address| address.is_ipv4() && !address.is_loopback())
            .collect();
        let disabled = sysctls.read(DISABLE_IPV6, interface)?;
        Ok(Self {
            here,
            elsewhere: elsewhere.iter().map(|own| (*own, gateway.contains(own))).collect(),
            forwards: sysctls.number(FORWARDING, interface)? != 0,
            forwards_6: sysctls.forwards_6(interface)?,
            has_ipv6: disabled.is_some_and(|value| value == "0"),
            takes_others: sysctls.larger(RP_FILTER, interface)? == 0,
            answers_others: !matches!(sysctls.larger(ARP_IGNORE, interface)?, 1 | 2 | 8),
        })
    }

    /// What the kernel does, and the commands that end it.
    fn problems(&self, interface: &str) -> (Vec<String>, Vec<String>) {
        let (mut problems, mut settings) = (Vec::new(), Vec::new());
        let mut commands = Vec::new();
        let of = |ipv4: bool| {
            let addresses = self.here.iter().filter(|own| own.address.is_ipv4() == ipv4);
            named(addresses.map(ToString::to_string))
        };
        if let Some(addresses) = of(true) {
            problems.push(format!("it answers for {addresses} (ARP, ICMP, TCP resets)"));
            commands.push(format!("ip -4 address flush dev {interface}"));
        }
        if self.forwards {
            problems.push("it forwards IPv4 packets that come by it, past all policies".to_owned());
            settings.push(format!("{}=0", FORWARDING.name(interface)));
        }
        if (self.takes_others || self.answers_others) && !self.elsewhere.is_empty() {
            let others = self.elsewhere.iter().map(|(address, is_gateways)| {
                format!("{address}{}", if *is_gateways { ", which the gateway has" } else { "" })
            });
            let others = named(others).unwrap_or_default();
            problems.push(format!("it answers on it for addresses of other interfaces: {others}"));
            settings.push(format!("{}=1", RP_FILTER.name(interface)));
            settings.push(format!("{}=8", ARP_IGNORE.name(interface)));
        }
        if self.has_ipv6 {
            problems.push(match of(false) {
                Some(addresses) => {
                    format!("it answers for {addresses} (neighbour discovery, ICMP, TCP resets)")
                }
                None => "IPv6 is on, so that it takes a link-local address".to_owned(),
            });
            if self.forwards_6 {
                let what = "it forwards IPv6 packets that come by it, past all policies";
                problems.push(what.to_owned());
            }
            settings.push(format!("{}=1", DISABLE_IPV6.name(interface)));
        }
        if !settings.is_empty() {
            commands.push(format!("sysctl -w {}", settings.join(" ")));
        }
        (problems, commands)
    }
}

/// The first few, and how many more there are; `None` of none.
fn named(all: impl Iterator<Item = String>) -> Option<String> {
    let all: Vec<String> = all.collect();
    let (first, more) = all.split_at(all.len().min(NAMED));
    match (first, more.len()) {
        ([], _) => None,
        (_, 0) => Some(first.join(", ")),
        (_, more) => Some(format!("{} and {more} more", first.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(octet: u8) -> KernelAddress {
        let message = [2, 24, 0, 0, 3, 0, 0, 0, 8, 0, 2, 0, 192, 0, 2, octet];
        KernelAddress::from_message(&message).unwrap()
    }

    #[test]
    fn each_problem_has_the_command_that_mends_it() {
        let (one, two) = (address(1), address(2));
        let facts = Facts { here: vec![&one, &two], forwards: true, ..Facts::default() };
        let (problems, commands) = facts.problems("eth0.7");
        assert_eq!(problems.len(), 2, "{problems:?}");
        assert!(problems[0].contains("192.0.2.1/24, 192.0.2.2/24 (ARP"), "{problems:?}");
        assert_eq!(
            commands,
            ["ip -4 address flush dev eth0.7", "sysctl -w net.ipv4.conf.eth0/7.forwarding=0"]
        );

        let facts = Facts { has_ipv6: true, forwards_6: true, ..Facts::default() };
        let (problems, commands) = facts.problems("eth0");
        assert!(problems[0].contains("link-local") && problems[1].contains("IPv6 packets"));
        assert_eq!(commands, ["sysctl -w net.ipv6.conf.eth0.disable_ipv6=1"]);

        let elsewhere = vec![(one.address, true), (two.address, false)];
        let facts = Facts { elsewhere, answers_others: true, ..Facts::default() };
        let (problems, commands) = facts.problems("eth0");
        assert!(problems[0].ends_with("192.0.2.1, which the gateway has, 192.0.2.2"));
        assert_eq!(
            commands,
            ["sysctl -w net.ipv4.conf.eth0.rp_filter=1 net.ipv4.conf.eth0.arp_ignore=8"]
        );
    }

    #[test]
    fn an_interface_that_is_the_gateways_alone_has_no_problem() {
        let deaf = Facts { elsewhere: vec![(address(1).address, true)], ..Facts::default() };
        assert_eq!(deaf.problems("eth0"), Default::default());
        // IPv6 is forwarded by others, and this one has none.
        let without_ipv6 = Facts { forwards_6: true, ..Facts::default() };
        assert_eq!(without_ipv6.problems("eth0"), Default::default());
    }

    #[test]
    fn a_pool_holds_its_addresses_alone() {
        let pool: IpRange = "192.0.2.1-192.0.2.2".parse().unwrap();
        assert!(holds(&pool, address(1).address) && !holds(&pool, address(3).address));
        assert!(!holds(&pool, "::".parse().unwrap()));
    }

    #[test]
    fn long_lists_are_cut() {
        let told = named((1..=9).map(|number| number.to_string())).unwrap();
        assert_eq!(told, "1, 2, 3, 4 and 5 more");
        assert_eq!(named(std::iter::empty()), None);
    }
}
