//! Services: protocols and ports by name.

use std::collections::BTreeMap;

use api::ServiceSpec;

use super::Wrong;
use crate::config::nearest;

/// What packets of a service are like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Service {
    /// TCP, UDP or SCTP to these ports.
    Ports { protocol: u8, first: u16, last: u16 },
    /// ICMP of IPv4 and of IPv6, each of this type if one is given; `None` is no packet of that
    /// family.
    Icmp { v4: Option<Type>, v6: Option<Type> },
    /// Another protocol.
    Protocol(u8),
    /// Control connections that a helper reads, for the data connections that they announce.
    Helped(Helper),
}

/// What reads control connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Helper {
    Ftp,
    Tftp,
}

impl Helper {
    /// As flows name it.
    pub(crate) const fn alg(self) -> &'static str {
        match self {
            Self::Ftp => "ftp",
            Self::Tftp => "tftp",
        }
    }
}

/// Which types of ICMP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Type {
    Any,
    This(u8),
}

impl Service {
    const fn tcp(port: u16) -> Self {
        Self::Ports { protocol: TCP, first: port, last: port }
    }

    const fn udp(port: u16) -> Self {
        Self::Ports { protocol: UDP, first: port, last: port }
    }

    /// The same without its helper.
    pub(crate) const fn plain(self) -> Self {
        match self {
            Self::Helped(Helper::Ftp) => Self::tcp(21),
            Self::Helped(Helper::Tftp) => Self::udp(69),
            other => other,
        }
    }
}

const TCP: u8 = 6;
const UDP: u8 = 17;

/// Protocols with ports.
const WITH_PORTS: &[(&str, u8)] = &[("tcp", TCP), ("udp", UDP), ("sctp", 132)];

const PING: Service = Service::Icmp { v4: Some(Type::This(8)), v6: Some(Type::This(128)) };

/// The services that have names, as IANA and nftables know them.
const NAMED: &[(&str, &[Service])] = &[
    ("ah", &[Service::Protocol(51)]),
    ("bgp", &[Service::tcp(179)]),
    ("dhcp", &[Service::udp(67), Service::udp(68)]),
    ("dhcpv6", &[Service::udp(546), Service::udp(547)]),
    ("dns", &[Service::udp(53), Service::tcp(53)]),
    ("dns-over-tls", &[Service::tcp(853)]),
    ("esp", &[Service::Protocol(50)]),
    ("ftp", &[Service::Helped(Helper::Ftp)]),
    ("gre", &[Service::Protocol(47)]),
    ("http", &[Service::tcp(80)]),
    ("http3", &[Service::udp(443)]),
    ("https", &[Service::tcp(443)]),
    ("icmp", &[Service::Icmp { v4: Some(Type::Any), v6: Some(Type::Any) }]),
    ("ike", &[Service::udp(500), Service::udp(4500)]),
    ("imap", &[Service::tcp(143)]),
    ("imaps", &[Service::tcp(993)]),
    ("kerberos", &[Service::tcp(88), Service::udp(88)]),
    ("ldap", &[Service::tcp(389)]),
    ("ldaps", &[Service::tcp(636)]),
    ("mysql", &[Service::tcp(3306)]),
    ("ntp", &[Service::udp(123)]),
    ("openvpn", &[Service::udp(1194)]),
    ("ospf", &[Service::Protocol(89)]),
    ("ping", &[PING]),
    ("pop3", &[Service::tcp(110)]),
    ("pop3s", &[Service::tcp(995)]),
    ("postgresql", &[Service::tcp(5432)]),
    ("rdp", &[Service::tcp(3389), Service::udp(3389)]),
    ("sip", &[Service::tcp(5060), Service::udp(5060)]),
    ("smb", &[Service::tcp(445)]),
    ("smtp", &[Service::tcp(25)]),
    ("smtps", &[Service::tcp(465)]),
    ("snmp", &[Service::udp(161)]),
    ("ssh", &[Service::tcp(22)]),
    ("submission", &[Service::tcp(587)]),
    ("syslog", &[Service::udp(514)]),
    ("telnet", &[Service::tcp(23)]),
    ("tftp", &[Service::Helped(Helper::Tftp)]),
    ("vnc", &[Service::Ports { protocol: TCP, first: 5900, last: 5903 }]),
    ("wireguard", &[Service::udp(51820)]),
];

/// Levels of services that name services.
const MAX_DEPTH: usize = 8;

/// The services of the user by name.
#[derive(Debug, Default)]
pub(crate) struct Services<'s>(BTreeMap<&'s str, &'s ServiceSpec>);

impl<'s> Services<'s> {
    pub(crate) fn new(own: &'s [ServiceSpec]) -> Self {
        Self(own.iter().map(|service| (service.name.as_str(), service)).collect())
    }

    /// What a word stands for.
    pub(crate) fn read(&self, word: &str) -> Result<Vec<Service>, Wrong> {
        let mut all = Vec::new();
        self.add(word, 0, &mut all)?;
        all.sort_unstable();
        all.dedup();
        Ok(all)
    }

    fn add(&self, word: &str, depth: usize, all: &mut Vec<Service>) -> Result<(), Wrong> {
        if let Some(own) = self.0.get(word) {
            if depth == MAX_DEPTH {
                return Err(Wrong::new(format!(
                    "service {word} names others over more than {MAX_DEPTH} levels, or itself"
                )));
            }
            return own.services.iter().try_for_each(|word| self.add(word, depth + 1, all));
        }
        all.extend(match NAMED.iter().find(|(name, _)| *name == word) {
            Some((_, services)) => services.to_vec(),
            None => vec![self.protocol(word)?],
        });
        Ok(())
    }

    /// `tcp/22`, `udp/5000-5010`, `tcp`, `icmp/13`, `icmp6/128`, `proto/47`.
    fn protocol(&self, word: &str) -> Result<Service, Wrong> {
        let (name, value) = match word.split_once('/') {
            Some((name, value)) => (name, Some(value)),
            None => (word, None),
        };
        let wrong = |what: &str| Wrong::new(format!("service \"{}\": {what}", api::shown(word)));
        let octet = |value: &str| value.parse::<u8>().ok();
        if let Some((_, protocol)) = WITH_PORTS.iter().find(|(known, _)| *known == name) {
            let (first, last) = match value {
                None => (0, u16::MAX),
                Some(ports) => port_range(ports).ok_or_else(|| {
                    wrong("a port is a number from 1 to 65535, and a range FIRST-LAST")
                })?,
            };
            return Ok(Service::Ports { protocol: *protocol, first, last });
        }
        match (name, value) {
            ("icmp", Some(value)) => {
                let kind = octet(value).ok_or_else(|| wrong("a type of ICMP is 0 to 255"))?;
                Ok(Service::Icmp { v4: Some(Type::This(kind)), v6: None })
            }
            ("icmp6", None) => Ok(Service::Icmp { v4: None, v6: Some(Type::Any) }),
            ("icmp6", Some(value)) => {
                let kind = octet(value).ok_or_else(|| wrong("a type of ICMPv6 is 0 to 255"))?;
                Ok(Service::Icmp { v4: None, v6: Some(Type::This(kind)) })
            }
            ("proto", Some(value)) => {
                match octet(value).ok_or_else(|| wrong("a protocol is 0 to 255"))? {
                    protocol @ (6 | 17 | 132) => {
                        Ok(Service::Ports { protocol, first: 0, last: u16::MAX })
                    }
                    1 => Ok(Service::Icmp { v4: Some(Type::Any), v6: None }),
                    58 => Ok(Service::Icmp { v4: None, v6: Some(Type::Any) }),
                    protocol => Ok(Service::Protocol(protocol)),
                }
            }
            _ => {
                let known = NAMED.iter().map(|(name, _)| *name).chain(self.0.keys().copied());
                let wrong = Wrong::new(format!("there is no service \"{}\"", api::shown(word)));
                Err(wrong.right(match nearest(word, known) {
                    Some(near) => format!("did you mean {near}?"),
                    None => "a name such as ssh, https or ping; tcp/22, udp/5000-5010, icmp/8, \
                         icmp6/128 or proto/47; or [[firewall.service]] with this name"
                        .to_owned(),
                }))
            }
        }
    }
}

/// The names of services.
#[cfg(test)]
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    NAMED.iter().map(|(name, _)| *name)
}

/// Whether a service has this name already.
pub(crate) fn is_known(name: &str) -> bool {
    NAMED.iter().any(|(known, _)| *known == name)
        || WITH_PORTS.iter().any(|(known, _)| *known == name)
        || matches!(name, "icmp6" | "proto")
}

/// `PORT` or `FIRST-LAST`.
fn port_range(text: &str) -> Option<(u16, u16)> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let port = |text: &str| text.parse::<u16>().ok().filter(|port| *port > 0);
    let (first, last) = (port(first)?, port(last)?);
    (first <= last).then_some((first, last))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_stand_for_protocols_and_ports() {
        let own = [
            ServiceSpec { name: "web".into(), services: vec!["http".into(), "https".into()] },
            ServiceSpec { name: "circle".into(), services: vec!["circle".into()] },
        ];
        let services = Services::new(&own);
        let read = |word| services.read(word);
        assert_eq!(read("ssh").unwrap(), [Service::tcp(22)]);
        assert_eq!(read("dns").unwrap(), [Service::tcp(53), Service::udp(53)]);
        assert_eq!(read("web").unwrap(), [Service::tcp(80), Service::tcp(443)]);
        let range = Service::Ports { protocol: 17, first: 5000, last: 5010 };
        assert_eq!(read("udp/5000-5010").unwrap(), [range]);
        assert_eq!(read("proto/47").unwrap(), read("gre").unwrap());
        for wrong in ["tcp/0", "tcp/5-4", "tcp/x", "icmp/256", "proto/", "", "shh", "circle"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
        assert_eq!(read("htps").unwrap_err().hint.unwrap(), "did you mean https?");
        assert_eq!(read("ftp").unwrap()[0].plain(), Service::tcp(21));
        assert_ne!(read("ftp").unwrap(), read("tcp/21").unwrap());
        // No name hides another.
        assert!(NAMED.is_sorted_by(|a, b| a.0 < b.0));
    }
}
