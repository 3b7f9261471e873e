//! The rule and trace formats of ClassBench, which most published rule sets are in; and the same
//! with IPv6 addresses.
//!
//! A rule is a line, the first decides, and columns are parted by blanks or tabs. The last column,
//! flags and their mask, may be missing. Of its 16 bits, the upper eight are the flags of TCP, as
//! the values in published sets show: `0x1000/0x1000` has ACK, as `established` asks, and
//! `0x0200/0x1200` has SYN and no ACK. What the lower eight are is not documented.
//!
//! ```text
//! @192.0.2.0/24   198.51.100.7/32   0 : 65535   1024 : 65535   0x06/0xFF   0x0000/0x0000
//! @2001:db8::/32  ::/0              0 : 65535   53 : 53        0x11/0xFF
//! ```
//!
//! A header of a trace is a line too: source, destination, source port, destination port and
//! protocol, IPv4 addresses as decimal numbers (or in dotted form) and IPv6 addresses in their text
//! form. Of what ClassBench's generator adds, the flags are read if there are some, and the number
//! of a rule behind them is ignored. A number alone is that of the rule.
//!
//! ```text
//! 3221225985      3325256711        40000       443            6           0   0
//! 2001:db8::1     2001:db8::2       40000       53             17
//! ```

mod cursor;
mod error;

use std::collections::HashSet;
use std::fmt::Write as _;

use tables::{FieldsSelector, Selector, UpperSelector};
use thiserror::Error;
use types::{
    Addresses, Dscp, FlowKey, IpRange, PacketFields, PortRange, Protocol, TcpFlags,
    TcpFlagsSelector, Upper,
};

pub use error::{ParseError, Problem};

use cursor::Cursor;

/// The most bytes of a line.
pub const MAX_LINE: usize = 512;
/// The most rules of a file, and the most selectors that they may become: as many as the tables
/// hold.
pub const MAX_RULES: usize = tables::limit::MAX_POLICIES;
/// The most headers of a trace.
pub const MAX_HEADERS: usize = 1 << 24;

/// A rule set that was read, as selectors that [`tables::Tables::add_policy`] takes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// In priority order.
    pub selectors: Vec<Selector>,
    /// Rules in the file.
    pub rules: usize,
    /// Rules that name ports and no protocol. A selector has ports only with a protocol that has
    /// them, so that such a rule became one selector for each of TCP, UDP, DCCP, SCTP and UDP-Lite,
    /// all in the rule's place. Packets of other protocols have no ports and do not match, whatever
    /// numbers a trace has for them.
    pub expanded: usize,
    /// Rules left out because no packet can match: they name ports with a protocol that has none.
    pub impossible: usize,
    /// Selectors left out because an earlier one is equal and decides instead. Rules that differ by
    /// flags that are not read alone are among them.
    pub duplicates: usize,
    /// Rules whose flags are not read, or not all of them: they are not those of TCP. The rest of
    /// the rule holds.
    pub unread: usize,
}

/// Reads a rule set.
///
/// # Errors
/// [`ParseError`]: the first line that is not in the format, and where; or that there are too many.
pub fn read_rules(text: &str) -> Result<Rules, ParseError> {
    let mut rules = Rules::default();
    let mut seen = HashSet::new();
    for mut line in lines(text) {
        let (rule, is_unread) = read_rule(&mut line)?;
        if rules.rules == MAX_RULES {
            return Err(line.error_at_start(Problem::TooMany { what: "rules", limit: MAX_RULES }));
        }
        rules.rules += 1;
        rules.unread += usize::from(is_unread);
        match rule.upper {
            UpperSelector::Ports { .. } if rule.protocol.is_none() => rules.expanded += 1,
            UpperSelector::Ports { .. } if !rule.protocol.is_some_and(Protocol::has_ports) => {
                rules.impossible += 1;
                continue;
            }
            _ => {}
        }
        for selector in as_selectors(rule) {
            if !seen.insert(selector) {
                rules.duplicates += 1;
            } else if rules.selectors.len() == MAX_RULES {
                return Err(
                    line.error_at_start(Problem::TooMany { what: "selectors", limit: MAX_RULES })
                );
            } else {
                rules.selectors.push(selector);
            }
        }
    }
    Ok(rules)
}

/// Reads a trace. Headers are whole packets of the VRF `main` and of the gateway itself
/// ([`types::Origin::Host`]). Ports are kept for protocols that have them; for ICMP they are read as
/// type and code where they can be, and have no meaning for other protocols.
///
/// # Errors
/// [`ParseError`]: the first line that is not in the format, and where; or that there are too many.
pub fn read_trace(text: &str) -> Result<Vec<FlowKey>, ParseError> {
    let mut headers = Vec::new();
    for mut line in lines(text) {
        let header = read_header(&mut line)?;
        if headers.len() == MAX_HEADERS {
            return Err(
                line.error_at_start(Problem::TooMany { what: "headers", limit: MAX_HEADERS })
            );
        }
        headers.push(header);
    }
    Ok(headers)
}

/// A selector that ClassBench's format cannot hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Unwritable {
    /// An address range that is no prefix.
    #[error(
        "rule {rule}: the range {range} is no prefix, and ClassBench's format holds prefixes only"
    )]
    Range {
        /// The rule's number, from 1.
        rule: usize,
        /// Its range.
        range: IpRange,
    },
    /// ICMP types and codes.
    #[error("rule {rule}: ClassBench's format has no ICMP types and codes")]
    Icmp {
        /// The rule's number, from 1.
        rule: usize,
    },
    /// DSCP, TTL or hop limit.
    #[error("rule {rule}: ClassBench's format has no DSCP and no TTL")]
    Fields {
        /// The rule's number, from 1.
        rule: usize,
    },
}

/// Writes a rule set. A selector with ports, all of which it allows, is written as one without.
///
/// # Errors
/// [`Unwritable`], for the first selector that the format cannot hold.
pub fn write_rules(selectors: &[Selector]) -> Result<String, Unwritable> {
    let mut text = String::new();
    for (rule, selector) in (1..).zip(selectors) {
        let prefix = |range: IpRange| range.as_prefix().ok_or(Unwritable::Range { rule, range });
        let (source, destination) = (prefix(selector.source)?, prefix(selector.destination)?);
        let ports = match selector.upper {
            UpperSelector::Any => [PortRange::ALL; 2],
            UpperSelector::Ports { source, destination } => [source, destination],
            UpperSelector::Icmp { .. } => return Err(Unwritable::Icmp { rule }),
        };
        let [source_ports, destination_ports] =
            ports.map(|ports| format!("{} : {}", ports.first(), ports.last()));
        let (protocol, mask) = selector.protocol.map_or((0, 0), |protocol| (protocol.0, 0xff));
        let [flags, flags_mask] = [selector.fields.value(), selector.fields.mask()]
            .map(|fields| u16::from(fields.tcp_flags().0) << 8);
        if selector.fields.mask() & PacketFields::TCP_FLAGS != selector.fields.mask() {
            return Err(Unwritable::Fields { rule });
        }
        writeln!(
            text,
            "@{source}\t{destination}\t{source_ports}\t{destination_ports}\t0x{protocol:02x}/0x{mask:02X}\t0x{flags:04x}/0x{flags_mask:04x}"
        )
        .expect("a string takes everything");
    }
    Ok(text)
}

/// Writes a trace of five columns, or seven where a header has TCP flags. ICMP types and codes stand in the columns of ports, other
/// protocols without ports have zeros there, and whatever else the keys say is left out.
pub fn write_trace(headers: &[FlowKey]) -> String {
    let mut text = String::new();
    for header in headers {
        let (source_port, destination_port) = match header.upper {
            Upper::Ports { source, destination } => (source, destination),
            Upper::Icmp { kind, code, .. } => (kind.into(), code.into()),
            Upper::None | Upper::Spi(_) => (0, 0),
        };
        match header.addresses {
            Addresses::V4 { source, destination } => {
                write!(text, "{}\t{}", source.to_bits(), destination.to_bits())
            }
            Addresses::V6 { source, destination } => write!(text, "{source}\t{destination}"),
        }
        .and_then(|()| write!(text, "\t{source_port}\t{destination_port}\t{}", header.protocol.0))
        .and_then(|()| match header.fields.tcp_flags().0 {
            0 => writeln!(text),
            flags => writeln!(text, "\t{}\t0", u16::from(flags) << 8),
        })
        .expect("a string takes everything");
    }
    text
}

/// The lines that are not blank.
fn lines(text: &str) -> impl Iterator<Item = Cursor<'_>> {
    (1..)
        .zip(text.lines())
        .map(|(number, line)| Cursor::new(number, line))
        .filter(|line| !line.is_blank())
}

/// A rule, and whether it has flags that are not read.
fn read_rule(line: &mut Cursor<'_>) -> Result<(Selector, bool), ParseError> {
    line.check_length()?;
    line.mark('@', "'@' and the source prefix, as in @192.0.2.0/24")?;
    let source = line.prefix("the source prefix")?;
    let destination = line.prefix("the destination prefix")?;
    if source.is_v6() != destination.is_v6() {
        return Err(line.error(Problem::Families));
    }
    let source_ports =
        line.ports("the lowest source port, 0 to 65535", "the highest source port, 0 to 65535")?;
    let destination_ports = line.ports(
        "the lowest destination port, 0 to 65535",
        "the highest destination port, 0 to 65535",
    )?;
    let protocol = line.protocol()?;
    let (flags, mask) = line.flags()?;
    // Only TCP has flags: a rule for any protocol that asks for them is one for TCP.
    let may_be_tcp = protocol.is_none_or(|protocol| protocol == Protocol::TCP);
    let wanted = Some(TcpFlags((mask >> 8) as u8)).filter(|_| may_be_tcp);
    let tcp_flags = wanted
        .and_then(|mask| TcpFlagsSelector::new(TcpFlags((flags >> 8) as u8) & mask, mask).ok());
    let protocol = if tcp_flags.is_some() { Some(Protocol::TCP) } else { protocol };
    let fields = FieldsSelector::new(tcp_flags, None, None);
    let is_unread = if tcp_flags.is_some() { mask & 0xff != 0 } else { mask != 0 };
    let upper = match source_ports.is_all() && destination_ports.is_all() {
        true => UpperSelector::Any,
        false => UpperSelector::Ports { source: source_ports, destination: destination_ports },
    };
    Ok((Selector { source, destination, protocol, upper, fields }, is_unread))
}

/// A rule as what the tables take: itself, unless it names ports and no protocol.
fn as_selectors(rule: Selector) -> impl Iterator<Item = Selector> {
    let each = matches!(rule.upper, UpperSelector::Ports { .. }) && rule.protocol.is_none();
    let protocols: &[_] = if each { &WITH_PORTS } else { &[None] };
    protocols.iter().map(move |&protocol| Selector { protocol: protocol.or(rule.protocol), ..rule })
}

/// Every protocol that [`Protocol::has_ports`].
const WITH_PORTS: [Option<Protocol>; 5] = [
    Some(Protocol::TCP),
    Some(Protocol::UDP),
    Some(Protocol::DCCP),
    Some(Protocol::SCTP),
    Some(Protocol::UDP_LITE),
];

fn read_header(line: &mut Cursor<'_>) -> Result<FlowKey, ParseError> {
    line.check_length()?;
    let source = line.address("the source address")?;
    let destination = line.address("the destination address")?;
    if source.is_ipv6() != destination.is_ipv6() {
        return Err(line.error(Problem::Families));
    }
    let source_port = line.decimal("the source port, 0 to 65535")?;
    let destination_port = line.decimal("the destination port, 0 to 65535")?;
    let protocol = Protocol(line.decimal("the protocol, 0 to 255")?);
    let flags = line.flags_of_header()?;
    let flags = TcpFlags(if protocol == Protocol::TCP { (flags >> 8) as u8 } else { 0 });
    let icmp = if source.is_ipv6() { Protocol::ICMPV6 } else { Protocol::ICMP };
    let upper = match (u8::try_from(source_port), u8::try_from(destination_port)) {
        _ if protocol.has_ports() => {
            Upper::Ports { source: source_port, destination: destination_port }
        }
        (Ok(kind), Ok(code)) if protocol == icmp => Upper::Icmp { kind, code, identifier: 0 },
        _ => Upper::None,
    };
    let fields = PacketFields::new(flags, Dscp::default(), 0);
    Ok(crate::trace::key(source, destination, protocol, upper, fields))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::rules::{self, Kind};
    use crate::trace;

    fn rule(text: &str) -> Selector {
        let rules = read_rules(text).unwrap();
        assert_eq!((rules.rules, rules.selectors.len()), (1, 1), "{rules:?}");
        rules.selectors[0]
    }

    #[test]
    fn rules_are_read_as_they_are_published() {
        let plain = rule(
            "@192.0.2.0/24\t198.51.100.7/32\t0 : 65535\t1024 : 65535\t0x06/0xFF\t0x0000/0x0200\t\n",
        );
        assert_eq!(plain.source.to_string(), "192.0.2.0/24");
        assert_eq!(plain.destination.to_string(), "198.51.100.7/32");
        assert_eq!(plain.protocol, Some(Protocol::TCP));
        let destination = PortRange::new(1024, 65_535).unwrap();
        assert_eq!(plain.upper, UpperSelector::Ports { source: PortRange::ALL, destination });
        assert_eq!(plain.fields, FieldsSelector::new("none/syn".parse().ok(), None, None));
        let any = rule("  @192.0.2.9/24  198.51.100.7/32 0:65535 1024 :65535  6/255\r\n");
        assert_eq!(any, Selector { fields: FieldsSelector::ANY, ..plain });
        let all = "@10.0.0.0/8 10.0.0.0/8 0 : 65535 0 : 65535 ";
        let established = rule(&format!("{all} 0x00/0x00 0x1000/0x1000"));
        assert_eq!(established.protocol, Some(Protocol::TCP), "only it has flags");
        assert_eq!(established.fields, FieldsSelector::new("ack/ack".parse().ok(), None, None));
        for text in ["0x01/0xff 0x0800/0xff00", "0x06/0xff 0x1001/0x10ff", "0x00/0x00 1/1"] {
            let rules = read_rules(&format!("{all} {text}")).unwrap();
            let is_tcp = rules.selectors[0].protocol == Some(Protocol::TCP);
            assert_eq!((rules.unread, rules.selectors[0].fields.asks_tcp_flags()), (1, is_tcp));
        }
        let wide = rule("@2001:db8::/32 ::/0 0 : 65535 0 : 65535 0x00/0x00");
        assert_eq!(
            (wide.destination, wide.protocol, wide.upper),
            (IpRange::ALL_V6, None, UpperSelector::Any)
        );
        assert_eq!(
            rule("@0.0.0.0/0 0.0.0.0/0 0 : 65535 0 : 65535 0x01/0xFF").protocol,
            Some(Protocol::ICMP)
        );
    }

    #[test]
    fn what_a_policy_cannot_say_is_counted() {
        let addresses = "@10.0.0.0/8 10.0.0.0/8";
        let text = format!(
            "{addresses} 0 : 65535 53 : 53 0x11/0xff\n\n{addresses} 0 : 65535 53 : 53 0x00/0x00\n\
             {addresses} 0 : 65535 1 : 2 0x01/0xff\n{addresses} 0 : 65535 0 : 65535 0/0\n{addresses} 0 : 65535 0 : 65535 0/0 1/1\n"
        );
        let rules = read_rules(&text).unwrap();
        // UDP's part of the second equals the first, and the last equals the one before.
        assert_eq!((rules.rules, rules.expanded, rules.impossible, rules.duplicates), (5, 1, 1, 2));
        let protocols: Vec<_> = rules
            .selectors
            .iter()
            .map(|selector| selector.protocol.map(|protocol| protocol.0))
            .collect();
        assert_eq!(protocols, [Some(17), Some(6), Some(33), Some(132), Some(136), None]);
        assert!(
            (0..=255)
                .map(Protocol)
                .filter(|protocol| protocol.has_ports())
                .all(|protocol| WITH_PORTS.contains(&Some(protocol)))
        );
    }

    #[test]
    fn wrong_rules_are_refused_with_place_and_remedy() {
        let good = "@10.0.0.0/8 10.0.0.0/8 0 : 65535 0 : 65535 0x06/0xff\n";
        for (text, message) in [
            (
                "10.0.0.0/8",
                "line 2, column 1: found '10.0.0.0/8' instead of '@' and the source prefix, as in \
                @192.0.2.0/24",
            ),
            (
                "@10.0.0/8",
                "line 2, column 2: the source prefix '10.0.0/8': not an IPv4 or IPv6 address",
            ),
            (
                "@10.0.0.0",
                "line 2, column 2: the source prefix '10.0.0.0' has no length; write 10.0.0.0/32 \
                for one address",
            ),
            (
                "@10.0.0.0/8  10.0.0.0/33",
                "line 2, column 14: the destination prefix '10.0.0.0/33': the prefix length must \
                be 0 to 32 for IPv4, 0 to 128 for IPv6",
            ),
            (
                "@10.0.0.0/8",
                "line 2, column 12: the line ends where the destination prefix should be",
            ),
            (
                "@10.0.0.0/8 ::/0 ",
                "line 2, column 13: source and destination must be of one address family",
            ),
            (
                "@10.0.0.0/8 10.0.0.0/8 0 65535",
                "line 2, column 26: found '65535' instead of ':' between the ends of a port range",
            ),
            (
                "@10.0.0.0/8 10.0.0.0/8 0 : 65536",
                "line 2, column 28: found '65536' instead of the highest source port, 0 to 65535",
            ),
            (
                "@10.0.0.0/8 10.0.0.0/8 0 : 1 5 : 4",
                "line 2, column 34: the port range 5 : 4 is reversed; the lower port comes first",
            ),
            (
                "@10.0.0.0/8 10.0.0.0/8 0 : 1 4 : 5 tcp",
                "line 2, column 36: found 'tcp' instead of the protocol and its mask, as in \
                0x06/0xFF",
            ),
            (
                "@10.0.0.0/8 10.0.0.0/8 0 : 1 4 : 5 0x06/0x0F",
                "line 2, column 36: the protocol's mask is 0x0f; it must be 0xFF for this protocol \
                or 0x00 for any",
            ),
            (
                "@10.0.0.0/8 10.0.0.0/8 0 : 1 4 : 5 0x06/0xFF accept",
                "line 2, column 46: found 'accept' instead of TCP flags and their mask, as in \
                0x0000/0x0000, or the line's end",
            ),
            (
                "@10.0.0.0/8 10.0.0.0/8 0 : 1 4 : 5 0x06/0xFF 0/0 1",
                "line 2, column 50: found '1' instead of the line's end",
            ),
        ] {
            assert_eq!(read_rules(&format!("{good}{text}")).unwrap_err().to_string(), message);
        }
        let long = format!("@10.0.0.0/8{}", " ".repeat(MAX_LINE));
        assert_eq!(
            read_rules(&long).unwrap_err().to_string(),
            "line 1, column 513: the line is longer than 512 bytes"
        );
    }

    #[test]
    fn headers_are_read_as_they_are_published() {
        let trace = read_trace(
            "3221225985\t3325256711\t40000\t443\t6\t4608\t17\n192.0.2.1 198.51.100.7 40000 443 \
            6\n2001:db8::1 ::2 128 0 58\n1 2 3 4 47 0x0000\n",
        )
        .unwrap();
        assert_eq!(trace[0].fields.tcp_flags(), TcpFlags::SYN | TcpFlags::ACK);
        assert_eq!(FlowKey { fields: PacketFields::NONE, ..trace[0] }, trace[1]);
        assert_eq!(trace[0].addresses.source().to_string(), "192.0.2.1");
        assert_eq!(trace[0].upper, Upper::Ports { source: 40_000, destination: 443 });
        assert_eq!(trace[2].upper, Upper::Icmp { kind: 128, code: 0, identifier: 0 });
        assert_eq!((trace[3].protocol, trace[3].upper), (Protocol(47), Upper::None));
    }

    #[test]
    fn wrong_headers_are_refused_with_place_and_remedy() {
        for (text, message) in [
            (
                "4294967296",
                "line 1, column 1: the source address '4294967296': not an IPv4 or IPv6 address, \
                nor a number of 32 bits",
            ),
            (
                "1 ::1 1 1 6",
                "line 1, column 3: source and destination must be of one address family",
            ),
            (
                "1 2 70000 1 6",
                "line 1, column 5: found '70000' instead of the source port, 0 to 65535",
            ),
            ("1 2 3 4 256", "line 1, column 9: found '256' instead of the protocol, 0 to 255"),
            ("1 2 3 4", "line 1, column 8: the line ends where the protocol, 0 to 255 should be"),
            ("1 2 3 4 6 é", "line 1, column 11: found 'é' instead of a number, or the line's end"),
        ] {
            assert_eq!(read_trace(text).unwrap_err().to_string(), message);
        }
    }

    #[test]
    fn what_the_format_cannot_hold_is_not_written() {
        let mut selector = rule("@10.0.0.0/8 10.0.0.0/8 0 : 65535 0 : 65535 0x01/0xff");
        selector.upper = UpperSelector::Icmp { kind: (8, 8), code: (0, 0) };
        assert_eq!(write_rules(&[selector]), Err(Unwritable::Icmp { rule: 1 }));
        selector.upper = UpperSelector::Any;
        selector.fields = FieldsSelector::new(None, "ef".parse().ok(), None);
        assert_eq!(write_rules(&[selector]), Err(Unwritable::Fields { rule: 1 }));
        selector.source = "10.0.0.1-10.0.0.9".parse().unwrap();
        let message = "rule 1: the range 10.0.0.1-10.0.0.9 is no prefix, and ClassBench's format \
            holds prefixes only";
        assert_eq!(write_rules(&[selector]).unwrap_err().to_string(), message);
    }

    #[test]
    fn sets_and_traces_come_back_as_written() {
        for kind in Kind::ALL.into_iter().filter(|kind| *kind != Kind::Spd) {
            for v6 in [false, true] {
                let options = rules::Options { kind, v6, count: 1000, seed: 5, misaligned: None };
                let mut selectors = rules::generate(&options);
                let flags = FieldsSelector::new("ack/syn,ack".parse().ok(), None, None);
                for rule in selectors.iter_mut().step_by(3) {
                    let is_tcp = rule.protocol == Some(Protocol::TCP);
                    rule.fields = if is_tcp { flags } else { FieldsSelector::ANY };
                }
                let read = read_rules(&write_rules(&selectors).unwrap()).unwrap();
                assert_eq!(read, Rules { selectors, rules: 1000, ..Rules::default() });
                let options = trace::Options {
                    headers: 1000,
                    seed: 1,
                    locality: trace::Locality::None,
                    unmatched: 0.1,
                };
                let mut headers = trace::headers(&read.selectors, &options);
                for header in &mut headers {
                    match &mut header.upper {
                        Upper::Icmp { identifier, .. } => *identifier = 0,
                        upper @ Upper::Spi(_) => *upper = Upper::None,
                        _ => {}
                    }
                }
                assert_eq!(read_trace(&write_trace(&headers)).unwrap(), headers);
            }
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_a_reader_panic(text in "\\PC*", bytes: Vec<u8>, pieces in proptest::collection::vec(piece(), 0..24)) {
            for text in [text, String::from_utf8_lossy(&bytes).into_owned(), pieces.concat()] {
                for error in [read_rules(&text).err(), read_trace(&text).err()].into_iter().flatten() {
                    let line = text.lines().nth(error.line - 1).unwrap();
                    prop_assert!((1..=line.chars().count() + 1).contains(&error.column), "{error} in {line:?}");
                    prop_assert!(error.to_string().len() < 700);
                }
            }
        }
    }

    /// Parts of lines, so that random ones come far.
    fn piece() -> impl Strategy<Value = &'static str> {
        proptest::sample::select(vec![
            "@",
            "10.0.0.0/8",
            "::/0",
            "/",
            " ",
            "\t",
            "\n",
            "\r",
            ":",
            "0",
            "65535",
            "70000",
            "0x06",
            "0xff",
            "é",
            "0 : 65535 ",
            "0x06/0xFF",
            "@10.0.0.0/8 10.0.0.0/8 ",
            "3221225985 1 2 3 ",
            "-1",
            "99999999999999999999",
            "0x",
            "0xfffffffffffffffff",
        ])
    }
}
