//! Packets described in words: `udp 192.168.13.5:5000 > 192.168.12.7:53 in lan`.

use std::net::{IpAddr, Ipv6Addr};

use api::shown;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use wire::{
    Addresses, Dscp, FragmentClass, PacketFields, Protocol, Spi, TcpFlags, TcpFlagsError, Upper,
};

use super::ends::{Ends, endpoint, is_protocol, number};

/// The words that [`Description::parse`] understands.
pub(crate) const GRAMMAR: &str = "\
PROTO SRC[:PORT] > DST[:PORT] [type N] [code N] [id N] [spi N] [tcp-flags FLAGS] [dscp DSCP] \
[ttl N] [fragment first|later] [size BYTES] [df] [about PEER spi N | about QUOTED] \
in PORT|sa REQID [vrf NAME | if_id ID]|host";

/// What an error is about, in [`GRAMMAR`].
pub(crate) const QUOTED: &str =
    "PROTO SRC[:PORT] > DST[:PORT] [type N] [code N] [id N] [spi N] [seq N]";

/// A packet as a user describes it, before names are looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Description {
    /// Source and destination.
    pub(crate) addresses: Addresses,
    /// Upper-layer protocol.
    pub(crate) protocol: Protocol,
    /// Whole, first or later fragment.
    pub(crate) fragment: FragmentClass,
    /// Ports, ICMP fields or SPI.
    pub(crate) upper: Upper,
    /// TCP flags, DSCP, TTL or hop limit.
    pub(crate) fields: PacketFields,
    /// Whether its TCP flags were said.
    pub(crate) has_tcp_flags: bool,
    /// Whether no router may cut it. Of IPv6 none may.
    pub(crate) dont_fragment: bool,
    /// Length of the IP packet in bytes, if it was given.
    pub(crate) size: Option<u16>,
    /// Sequence number, if it is TCP and that was said.
    pub(crate) sequence: Option<u32>,
    /// What it quotes, if it is an ICMP error.
    pub(crate) about: Option<About>,
    /// Of a neighbour solicitation to a group: the address that it asks for.
    pub(crate) target: Option<Ipv6Addr>,
    /// Where it comes from.
    pub(crate) origin: OriginName,
}

/// What an ICMP error quotes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum About {
    /// An ESP packet to this peer, with this SPI, from who gets the error.
    Esp(IpAddr, Spi),
    /// This packet, wherever that is said to come from.
    Packet(Box<Description>),
}

/// Where a packet comes from, in the user's words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum OriginName {
    /// Received on the port of that name.
    Port(String),
    /// Decrypted by an SA.
    Sa(SaName),
    /// Built by the gateway itself.
    Host,
}

/// Which SA has decrypted a packet, as far as it is said.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SaName {
    pub(crate) reqid: u32,
    /// The VRF of what it decrypts.
    pub(crate) vrf: Option<String>,
    /// Of the xfrm link that what it decrypts comes by; 0 is none.
    pub(crate) if_id: Option<u32>,
}

/// What of a description was not understood, and what would be.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{wrong}; {right}")]
pub(crate) struct DescriptionError {
    pub(super) wrong: String,
    pub(super) right: String,
}

impl DescriptionError {
    pub(super) fn new(wrong: impl Into<String>, right: impl Into<String>) -> Self {
        Self { wrong: wrong.into(), right: right.into() }
    }
}

impl Description {
    /// Understands [`GRAMMAR`].
    pub(crate) fn parse(text: &str) -> Result<Self, DescriptionError> {
        // `>` may stand without spaces around it.
        let spaced = text.replace('>', " > ");
        let mut words = spaced.split_whitespace();
        let mut next = |what: &str| {
            words.next().ok_or_else(|| {
                DescriptionError::new(
                    format!("the description ends where {what} should be"),
                    format!("say `{GRAMMAR}`"),
                )
            })
        };

        let protocol = next("a protocol")?;
        let Ends { addresses, protocol, ports } = Ends::parse(protocol, &mut next)?;

        let mut fields = Fields::default();
        let mut quoted: Option<(Ends, Fields)> = None;
        let mut origin = None;
        let mut fragment = FragmentClass::Whole;
        while let Ok(word) = next("") {
            if word == "about" {
                let word = next("the quoted packet, or the address that it was for")?;
                match endpoint(word) {
                    Ok((peer, _)) => fields.about = Some(peer),
                    Err(_) if is_protocol(word) => {
                        quoted = Some((Ends::parse(word, &mut next)?, Fields::default()));
                    }
                    Err(_) => {
                        return Err(DescriptionError::new(
                            format!("`{}` is neither an address nor a protocol", shown(word)),
                            format!("say `about PEER spi N` or `about {QUOTED}`"),
                        ));
                    }
                }
                continue;
            }
            let mut value = |what: &str| next(what).map(str::to_owned);
            // Behind a quoted packet stand its own.
            let of_upper = quoted.as_mut().map_or(&mut fields, |(_, fields)| fields);
            match word {
                "in" | "from" => {
                    origin = Some(match value("a port, `sa REQID` or `host`")?.as_str() {
                        "host" => OriginName::Host,
                        "sa" => OriginName::Sa(SaName {
                            reqid: number("reqid", &value("a reqid")?, u32::MAX)?,
                            vrf: None,
                            if_id: None,
                        }),
                        port => OriginName::Port(port.to_owned()),
                    });
                }
                "vrf" | "if_id" => {
                    let said = value("a VRF or an if_id")?;
                    let Some(OriginName::Sa(sa)) = &mut origin else {
                        return Err(DescriptionError::new(
                            format!("`{word}` is of no SA"),
                            "say it behind `in sa REQID`; a port says its VRF itself",
                        ));
                    };
                    match word {
                        "vrf" => sa.vrf = Some(said),
                        _ => sa.if_id = Some(number("if_id", &said, u32::MAX)?),
                    }
                }
                "type" => {
                    of_upper.kind =
                        Some(number("type", &value("an ICMP type")?, u8::MAX.into())? as u8);
                }
                "code" => {
                    of_upper.code =
                        Some(number("code", &value("an ICMP code")?, u8::MAX.into())? as u8);
                }
                "id" => {
                    of_upper.identifier =
                        Some(number("id", &value("an echo id")?, u16::MAX.into())? as u16);
                }
                "tcp-flags" => {
                    let word = value("TCP flags")?;
                    fields.tcp_flags = Some(word.parse().map_err(|why: TcpFlagsError| {
                        DescriptionError::new(
                            format!("`{}` is no TCP flags", shown(&word)),
                            why.to_string(),
                        )
                    })?);
                }
                "dscp" => {
                    let word = value("a DSCP")?;
                    fields.dscp = word.parse().map_err(|_| {
                        DescriptionError::new(
                            format!("`{}` is not a DSCP", shown(&word)),
                            "it is cs0 to cs7, af11 to af43, ef, va, le, or a number from 0 to 63",
                        )
                    })?;
                }
                "ttl" | "hoplimit" => {
                    let limit = number("TTL", &value("a TTL")?, u8::MAX.into())?;
                    fields.hop_limit = Some(limit as u8);
                }
                "spi" => of_upper.spi = Some(Spi(number("spi", &value("an SPI")?, u32::MAX)?)),
                "seq" => {
                    of_upper.sequence =
                        Some(number("sequence number", &value("a sequence number")?, u32::MAX)?);
                }
                "df" => fields.dont_fragment = true,
                "size" => {
                    fields.size =
                        Some(number("size", &value("a size in bytes")?, u16::MAX.into())? as u16);
                }
                "fragment" => {
                    fragment = match value("`first` or `later`")?.as_str() {
                        "first" => FragmentClass::First,
                        "later" => FragmentClass::Later,
                        other => {
                            return Err(DescriptionError::new(
                                format!("`fragment {}` is not known", shown(other)),
                                "say `fragment first` or `fragment later`",
                            ));
                        }
                    };
                }
                other => {
                    return Err(DescriptionError::new(
                        format!("`{}` is not known here", shown(other)),
                        "known are `in`, `vrf`, `if_id`, `type`, `code`, `id`, `spi`, `tcp-flags`, `dscp`, `ttl`, \
                        `fragment`, `size`, `df`, `about` and, behind that, `seq`",
                    ));
                }
            }
        }
        let Some(origin) = origin else {
            return Err(DescriptionError::new(
                "where the packet comes from is missing",
                "end with `in PORT`, `in sa REQID` or `in host`",
            ));
        };
        let about = fields.take_about(protocol, fragment, quoted)?;
        let upper = fields.upper(protocol, fragment, ports)?;
        if fields.sequence.is_some() {
            return Err(DescriptionError::new(
                "the sequence number is of no quoted packet",
                format!("leave it out, or say it behind `about {QUOTED}`"),
            ));
        }
        let (size, dont_fragment) = (fields.size, fields.dont_fragment);
        if dont_fragment && (addresses.is_v6() || fragment != FragmentClass::Whole) {
            return Err(match addresses.is_v6() {
                true => DescriptionError::new(
                    "IPv6 has no `df`",
                    "leave it out: no router cuts packets of IPv6",
                ),
                false => DescriptionError::new("a fragment with `df`", "leave one of them out"),
            });
        }
        let has_tcp_flags = fields.tcp_flags.is_some();
        let fields = fields.optional(protocol, fragment)?;
        let described = Self {
            addresses,
            protocol,
            fragment,
            upper,
            fields,
            has_tcp_flags,
            dont_fragment,
            size,
            sequence: None,
            about,
            target: None,
            origin,
        };
        if let Some(About::Packet(quoted)) = &described.about
            && quoted.addresses.is_v6() != addresses.is_v6()
        {
            return Err(DescriptionError::new(
                "the error and the packet that it quotes are of different families",
                "both must be IPv4 or both IPv6",
            ));
        }
        // It can be what it is said to be.
        described.packet()?;
        Ok(described)
    }
}

/// What was said besides the addresses.
#[derive(Default)]
pub(super) struct Fields {
    kind: Option<u8>,
    code: Option<u8>,
    identifier: Option<u16>,
    spi: Option<Spi>,
    tcp_flags: Option<TcpFlags>,
    dscp: Dscp,
    hop_limit: Option<u8>,
    size: Option<u16>,
    dont_fragment: bool,
    pub(super) sequence: Option<u32>,
    about: Option<IpAddr>,
}

/// What is not said of a packet is as most systems send it (RFC 1700).
pub(super) const TTL: u8 = 64;

impl Fields {
    /// The optional fields of the key. TCP flags of a packet that does not show any are refused.
    fn optional(
        &self,
        protocol: Protocol,
        fragment: FragmentClass,
    ) -> Result<PacketFields, DescriptionError> {
        let has_flags = protocol == Protocol::TCP && fragment != FragmentClass::Later;
        if self.tcp_flags.is_some() && !has_flags {
            let wrong = match fragment {
                FragmentClass::Later => "a later fragment does not show its TCP flags".to_owned(),
                FragmentClass::Whole | FragmentClass::First => format!("{protocol} has no flags"),
            };
            return Err(DescriptionError::new(wrong, "leave them out: TCP has them"));
        }
        let flags = self.tcp_flags.unwrap_or_default();
        // Neighbour discovery is of the link alone (RFC 4861 sections 6.1 and 7.1).
        let is_of_link = protocol == Protocol::ICMPV6 && matches!(self.kind, Some(133..=137));
        let usual = if is_of_link { u8::MAX } else { TTL };
        Ok(PacketFields::new(flags, self.dscp, self.hop_limit.unwrap_or(usual)))
    }

    /// What an ICMP error is about. The SPI of an ESP packet to a peer is none of the error's own
    /// fields.
    fn take_about(
        &mut self,
        protocol: Protocol,
        fragment: FragmentClass,
        quoted: Option<(Ends, Self)>,
    ) -> Result<Option<About>, DescriptionError> {
        if self.about.is_none() && quoted.is_none() {
            return Ok(None);
        }
        let is_error = self.kind.is_some_and(|kind| wire::quoted::is_error(protocol, kind));
        if !is_error || fragment != FragmentClass::Whole {
            let wrong = "only an ICMP error is about another packet";
            let right = "say its type before: `icmp A > B type 3 code 4 about udp C:1 > D:2`";
            return Err(DescriptionError::new(wrong, right));
        }
        let Some(peer) = self.about else {
            let quoted = quoted.map(|(ends, fields)| ends.quoted(&fields)).transpose()?;
            return Ok(quoted.map(|quoted| About::Packet(Box::new(quoted))));
        };
        if quoted.is_some() {
            return Err(DescriptionError::new(
                "the error is about two packets",
                format!("say `about {peer} spi N` or `about {QUOTED}`"),
            ));
        }
        let spi = self.spi.take().ok_or_else(|| {
            DescriptionError::new(
                format!("the SPI of the ESP packet to {peer} is missing"),
                format!("say `about {peer} spi N`"),
            )
        })?;
        Ok(Some(About::Esp(peer, spi)))
    }

    /// The upper-layer fields of the key. A field that the protocol does not have, or that the
    /// packet cannot show, is refused.
    pub(super) fn upper(
        &self,
        protocol: Protocol,
        fragment: FragmentClass,
        [source, destination]: [Option<u16>; 2],
    ) -> Result<Upper, DescriptionError> {
        let later = fragment == FragmentClass::Later;
        let icmp = matches!(protocol, Protocol::ICMP | Protocol::ICMPV6);
        let refuse = |field: &str, belongs: &str| {
            let wrong = match later {
                true => format!("a later fragment does not show its {field}"),
                false => format!("{protocol} has no {field}"),
            };
            Err(DescriptionError::new(wrong, format!("leave it out: {belongs}")))
        };
        if (source.is_some() || destination.is_some()) && (later || !protocol.has_ports()) {
            return refuse("ports", "TCP, UDP, UDP-Lite, SCTP and DCCP have ports");
        }
        if (self.kind.is_some() || self.code.is_some() || self.identifier.is_some())
            && (later || !icmp)
        {
            return refuse("type, code or id", "ICMP and ICMPv6 have them");
        }
        if self.spi.is_some() && (later || protocol != Protocol::ESP) {
            return refuse("SPI", "ESP has one");
        }
        if later {
            return Ok(Upper::None);
        }
        Ok(match protocol {
            _ if protocol.has_ports() => Upper::Ports {
                source: source.unwrap_or_default(),
                destination: destination.unwrap_or_default(),
            },
            Protocol::ICMP | Protocol::ICMPV6 => Upper::Icmp {
                // What people mean by "icmp A > B" is a ping.
                kind: self.kind.unwrap_or(if protocol == Protocol::ICMP { 8 } else { 128 }),
                code: self.code.unwrap_or_default(),
                identifier: self.identifier.unwrap_or_default(),
            },
            Protocol::ESP => Upper::Spi(self.spi.unwrap_or_default()),
            _ => Upper::None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Description {
        Description::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn udp_with_ports() {
        let described = parse("udp 192.168.13.5:5000 > 192.168.12.7:53 in lan");
        assert_eq!(described.protocol, Protocol::UDP);
        assert_eq!(described.upper, Upper::Ports { source: 5000, destination: 53 });
        assert_eq!(described.addresses.source(), "192.168.13.5".parse::<IpAddr>().unwrap());
        assert_eq!(described.addresses.destination(), "192.168.12.7".parse::<IpAddr>().unwrap());
        assert_eq!(described.origin, OriginName::Port("lan".into()));
        assert_eq!(parse("udp 192.168.13.5:5000>192.168.12.7:53 in lan"), described);
    }

    #[test]
    fn ipv6_with_and_without_ports() {
        let described = parse("tcp [fd00::1]:1234 > [fd00::2]:443 in lan size 1500");
        assert_eq!(described.upper, Upper::Ports { source: 1234, destination: 443 });
        assert_eq!(described.size, Some(1500));
        assert_eq!(parse("icmp fd00::1 > fd00::2 in host").protocol, Protocol::ICMPV6);
        assert_eq!(
            parse("tcp [fd00::1] > fd00::2 in host").upper,
            Upper::Ports { source: 0, destination: 0 }
        );
    }

    #[test]
    fn icmp_esp_and_fragments() {
        let echo = parse("icmp 10.0.0.1 > 10.0.0.2 type 8 code 0 id 7 in lan");
        assert_eq!(echo.upper, Upper::Icmp { kind: 8, code: 0, identifier: 7 });
        assert_eq!(
            parse("icmp 10.0.0.1 > 10.0.0.2 in lan").upper,
            Upper::Icmp { kind: 8, code: 0, identifier: 0 }
        );
        assert_eq!(
            parse("esp 10.0.0.1 > 10.0.0.2 spi 0x1001 in wan").upper,
            Upper::Spi(Spi(0x1001))
        );
        let about =
            parse("icmp 10.0.0.1 > 10.0.0.2 type 3 code 4 about 10.0.0.9 spi 0x1001 in wan");
        let esp = About::Esp("10.0.0.9".parse().unwrap(), Spi(0x1001));
        assert_eq!(about.about, Some(esp));
        assert_eq!(about.upper, Upper::Icmp { kind: 3, code: 4, identifier: 0 });
        let later = parse("udp 10.0.0.1 > 10.0.0.2 in lan fragment later");
        assert_eq!((later.fragment, later.upper), (FragmentClass::Later, Upper::None));
        let of_sa = |vrf: Option<&str>, if_id| {
            OriginName::Sa(SaName { reqid: 7, vrf: vrf.map(str::to_owned), if_id })
        };
        assert_eq!(parse("47 10.0.0.1 > 10.0.0.2 in sa 7").origin, of_sa(None, None));
        let of_red = parse("47 10.0.0.1 > 10.0.0.2 in sa 7 vrf red if_id 0x1f ttl 9");
        assert_eq!(of_red.origin, of_sa(Some("red"), Some(31)));
    }

    #[test]
    fn what_an_error_quotes() {
        let quoted = |text: &str| match parse(text).about {
            Some(About::Packet(quoted)) => *quoted,
            other => panic!("{text}: {other:?}"),
        };
        let udp = "icmp 10.0.0.9 > 10.0.0.1 type 3 code 4 about udp 10.0.0.1:5>10.0.0.2:53 in wan";
        assert_eq!(parse(udp).upper, Upper::Icmp { kind: 3, code: 4, identifier: 0 });
        assert_eq!(quoted(udp).addresses, parse("udp 10.0.0.1 > 10.0.0.2 in host").addresses);
        assert_eq!(quoted(udp).upper, Upper::Ports { source: 5, destination: 53 });
        let tcp = "icmp fd00::9 > fd00::1 type 2 about tcp [fd00::1]:5 > [fd00::2]:53";
        assert_eq!(quoted(&format!("{tcp} size 1280 in wan")).sequence, None);
        let with_size = parse(&format!("{tcp} seq 0x10 size 1280 in wan"));
        assert_eq!(with_size.size, Some(1280));
        assert_eq!(quoted(&format!("{tcp} seq 0x10 in wan")).sequence, Some(16));
        let ping = "icmp 10.0.0.9 > 10.0.0.1 type 11 about icmp 10.0.0.1 > 10.0.0.2 id 7 in wan";
        assert_eq!(quoted(ping).upper, Upper::Icmp { kind: 8, code: 0, identifier: 7 });
        let esp = "icmp 10.0.0.9 > 10.0.0.1 type 11 about esp 10.0.0.1 > 10.0.0.2 spi 7 in wan";
        assert_eq!(quoted(esp).upper, Upper::Spi(Spi(7)));
    }

    #[test]
    fn optional_fields() {
        let plain = parse("tcp 10.0.0.1 > 10.0.0.2 in lan").fields;
        assert_eq!(plain, PacketFields::new(TcpFlags(0), Dscp::default(), 64));
        let described = parse("tcp 10.0.0.1 > 10.0.0.2 dscp EF tcp-flags syn,ack ttl 1 in lan");
        let fields = PacketFields::new(TcpFlags(0x12), Dscp::try_from(46).unwrap(), 1);
        assert_eq!(described.fields, fields);
        assert_eq!(parse("udp fd00::1 > fd00::2 hoplimit 9 in lan").fields.hop_limit(), 9);
    }

    #[test]
    fn errors_say_what_would_be_right() {
        for (text, wrong, right) in [
            ("", "ends where a protocol", "say `PROTO"),
            ("udp 10.0.0.1 10.0.0.2 in lan", "`10.0.0.2` stands where `>`", "SRC > DST"),
            ("udp 10.0.0.1 > fd00::1 in lan", "different families", "both IPv6"),
            ("udp 10.0.0.1:99999 > 10.0.0.2 in lan", "`99999` is not a port", "0 to 65535"),
            ("icmp 10.0.0.1 > 10.0.0.2 type 3 about 10.0.0.9 in wan", "the SPI", "spi N"),
            ("icmp 10.0.0.1 > 10.0.0.2 about 10.0.0.9 spi 1 in wan", "only an ICMP", "its type"),
            ("udp 10.0.0.1 > 10.0.0.2 about 10.0.0.9 spi 1 in wan", "only an ICMP", "its type"),
            ("icmp 10.0.0.1 > 10.0.0.2 type 3 about", "ends where the quoted", "about QUOTED"),
            ("icmp 10.0.0.1 > 10.0.0.2 type 3 about gold in wan", "`gold` is neither", "PEER"),
            (
                "icmp 10.0.0.1 > 10.0.0.2 about udp 10.0.0.2 > 10.0.0.3 type 3 in wan",
                "only an ICMP",
                "its type before",
            ),
            (
                "icmp 10.0.0.1 > 10.0.0.2 type 3 about udp 10.0.0.2 > 10.0.0.3 code 3 in wan",
                "of the quoted packet: udp has no type, code or id",
                "stands before `about`",
            ),
            (
                "icmp 10.0.0.1 > 10.0.0.2 type 3 about udp 10.0.0.2 > 10.0.0.3 seq 3 in wan",
                "udp has no sequence number",
                "TCP has one",
            ),
            (
                "icmp 10.0.0.1 > 10.0.0.2 type 3 about udp fd00::2 > fd00::3 in wan",
                "different families",
                "both IPv6",
            ),
            ("tcp 10.0.0.1 > 10.0.0.2 seq 3 in wan", "no quoted packet", "behind `about"),
            ("udp 10.0.0.1 > 10.0.0.2", "where the packet comes from", "in PORT"),
            ("icmp 10.0.0.1:1 > 10.0.0.2 in lan", "icmp has no ports", "leave it out"),
            (
                "udp 10.0.0.1:1 > 10.0.0.2 fragment later in lan",
                "later fragment does not show its ports",
                "leave it out",
            ),
            ("udp 10.0.0.1 > 10.0.0.2 tcp-flags syn in lan", "udp has no flags", "TCP has them"),
            (
                "tcp 10.0.0.1 > 10.0.0.2 tcp-flags syn fragment later in lan",
                "later fragment does not show its TCP flags",
                "leave them out",
            ),
            ("tcp 10.0.0.1 > 10.0.0.2 tcp-flags sin in lan", "`sin` is no TCP flags", "fin, syn"),
            ("udp 10.0.0.1 > 10.0.0.2 dscp gold in lan", "`gold` is not a DSCP", "af11 to af43"),
            ("udp 10.0.0.1 > 10.0.0.2 ttl 256 in lan", "`256` is not a TTL", "0 to 255"),
            ("udp 10.0.0.1 > 10.0.0.2 in lan loudly", "`loudly` is not known", "`fragment`"),
            ("frob 10.0.0.1 > 10.0.0.2 in lan", "`frob` is not a protocol", "tcp, udp"),
            ("udp fd00::1 > fd00::2 df in lan", "IPv6 has no `df`", "leave it out"),
            ("udp 10.0.0.1 > 10.0.0.2 df fragment first in lan", "fragment with `df`", "leave one"),
            ("udp 10.0.0.1 > 10.0.0.2 size 20 in lan", "less than the headers", "28 bytes"),
            ("udp 10.0.0.1 > 10.0.0.2 fragment first size 99 in lan", "multiple of 8", "say size"),
            ("udp 10.0.0.1 > 10.0.0.2 size 70000 in lan", "`70000` is not a size", "0 to 65535"),
            ("udp 10.0.0 > 10.0.0.2 in lan", "`10.0.0` is not an address", "192.0.2.1:53"),
            ("udp [fd00::1]x > fd00::2 in lan", "is not an address", "[2001:db8::1]:53"),
        ] {
            let error = Description::parse(text).unwrap_err().to_string();
            assert!(error.contains(wrong) && error.contains(right), "{text}: {error}");
        }
    }
}
