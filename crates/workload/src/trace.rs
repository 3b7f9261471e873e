//! Headers for a rule set: the first packets of flows, as a lookup sees them.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use tables::{Selector, UpperSelector};
use types::{
    Addresses, Dscp, FlowKey, FragmentClass, IpRange, Origin, PacketFields, Protocol, Spi,
    TcpFlags, Upper, VrfId,
};

/// How often a header comes again at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Locality {
    /// Each header is drawn anew.
    #[default]
    None,
    /// Each header comes `n` times in a row, where `n` is Pareto distributed with a = 1 and b =
    /// 0.1, rounded up: ClassBench's usual model. Nine of ten headers then come once; runs of more
    /// than `k` have a probability of `0.1 / k`.
    Pareto,
}

/// Which headers to make.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// How many.
    pub headers: usize,
    /// Other seeds give other headers.
    pub seed: u64,
    /// Whether headers come again.
    pub locality: Locality,
    /// Share of headers that match no rule, from 0 to 1. A rule set may leave no such header; then
    /// they are drawn from anywhere.
    pub unmatched: f64,
}

/// Headers for a rule set, shuffled: each is a uniform point of a rule that was drawn uniformly, or
/// matches nothing. Fields that the rule leaves open are drawn from what traffic has: TCP, UDP and
/// ICMP, all ports. Of the optional fields, headers have what some rule reads, and the others are
/// zero as in the gateway's keys.
///
/// A point of a rule may lie in an earlier rule too, which then decides. All are whole packets of
/// the VRF `main` and of the gateway itself ([`Origin::Host`]), so that only what selectors name
/// differs.
pub fn headers(rules: &[Selector], options: &Options) -> Vec<FlowKey> {
    let mut random = ChaCha8Rng::seed_from_u64(options.seed);
    let (outside, reads) = (Outside::of(rules), reads(rules));
    let mut headers = Vec::with_capacity(options.headers);
    while headers.len() < options.headers {
        let header = match rules.len() {
            0 => outside.draw(reads, &mut random),
            _ if random.random_bool(options.unmatched.clamp(0.0, 1.0)) => {
                outside.draw(reads, &mut random)
            }
            count => point(&rules[random.random_range(0..count)], reads, &mut random),
        };
        let times = match options.locality {
            Locality::None => 1,
            // 1 - u is never 0. What exceeds the rest of the trace is cut.
            Locality::Pareto => (0.1 / (1.0 - random.random::<f64>())).ceil() as usize,
        };
        headers.extend(core::iter::repeat_n(header, times.min(options.headers - headers.len())));
    }
    headers
}

/// Headers that one of the last `last` rules decides, because no earlier rule matches: a linear
/// search's longest way. At most `count`, and fewer if such headers are rare: as many points are
/// drawn as eight times `count`, and each is compared with all rules.
pub fn headers_of_last(rules: &[Selector], last: usize, count: usize, seed: u64) -> Vec<FlowKey> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let (before, candidates) = rules.split_at(rules.len().saturating_sub(last));
    if candidates.is_empty() {
        return Vec::new();
    }
    let reads = reads(rules);
    core::iter::repeat_with(|| {
        point(&candidates[random.random_range(0..candidates.len())], reads, &mut random)
    })
    .take(count.saturating_mul(8))
    .filter(|header| !before.iter().any(|rule| rule.matches(header)))
    .take(count)
    .collect()
}

/// Gives headers without optional fields those that the rules read, as traffic has them.
pub fn draw_fields(rules: &[Selector], headers: &mut [FlowKey], seed: u64) {
    let (reads, mut random) = (reads(rules), ChaCha8Rng::seed_from_u64(seed));
    for header in headers.iter_mut().filter(|header| header.fields.is_empty()) {
        header.fields = any_fields(header.protocol, reads, &mut random);
    }
}

/// The bits of the optional fields that some rule reads.
fn reads(rules: &[Selector]) -> PacketFields {
    rules.iter().fold(PacketFields::NONE, |all, rule| all | rule.fields.mask())
}

/// The optional fields of a packet, of those that are read: one in eight TCP packets opens or ends
/// a connection. Draws nothing if nothing is read.
fn any_fields(protocol: Protocol, reads: PacketFields, random: &mut ChaCha8Rng) -> PacketFields {
    if reads.is_empty() {
        return PacketFields::NONE;
    }
    let flags = match random.random_range(0..32) {
        _ if protocol != Protocol::TCP => TcpFlags::default(),
        0 => TcpFlags::SYN,
        1 => TcpFlags::SYN | TcpFlags::ACK,
        2 => TcpFlags::FIN | TcpFlags::ACK,
        3 => TcpFlags::RST,
        4..16 => TcpFlags::PSH | TcpFlags::ACK,
        _ => TcpFlags::ACK,
    };
    PacketFields::new(flags, Dscp::default(), 64) & reads
}

/// A uniform point of a rule, whose optional fields are read as far as `reads` says.
fn point(rule: &Selector, reads: PacketFields, random: &mut ChaCha8Rng) -> FlowKey {
    let v6 = rule.source.is_v6();
    let protocol = rule.protocol.unwrap_or_else(|| any_protocol(v6, random));
    let upper = match rule.upper {
        UpperSelector::Any => any_upper(protocol, v6, random),
        UpperSelector::Ports { source, destination } => Upper::Ports {
            source: random.random_range(source.first()..=source.last()),
            destination: random.random_range(destination.first()..=destination.last()),
        },
        UpperSelector::Icmp { kind, code } => Upper::Icmp {
            kind: random.random_range(kind.0..=kind.1),
            code: random.random_range(code.0..=code.1),
            identifier: random.random(),
        },
    };
    let (source, destination) = (address(&rule.source, random), address(&rule.destination, random));
    let fields = rule.fields.applied(any_fields(protocol, reads, random));
    key(source, destination, protocol, upper, fields)
}

/// Six in ten TCP, three UDP, one ICMP.
fn any_protocol(v6: bool, random: &mut ChaCha8Rng) -> Protocol {
    match random.random_range(0..10) {
        0..6 => Protocol::TCP,
        6..9 => Protocol::UDP,
        _ if v6 => Protocol::ICMPV6,
        _ => Protocol::ICMP,
    }
}

/// Fields that packets of the protocol have.
fn any_upper(protocol: Protocol, v6: bool, random: &mut ChaCha8Rng) -> Upper {
    match protocol {
        Protocol::ICMP if !v6 => Upper::Icmp { kind: 8, code: 0, identifier: random.random() },
        Protocol::ICMPV6 if v6 => Upper::Icmp { kind: 128, code: 0, identifier: random.random() },
        Protocol::ESP => Upper::Spi(Spi(random.random_range(256..=u32::MAX))),
        protocol if protocol.has_ports() => {
            Upper::Ports { source: random.random(), destination: random.random() }
        }
        _ => Upper::None,
    }
}

fn address(range: &IpRange, random: &mut ChaCha8Rng) -> IpAddr {
    match (range.first(), range.last()) {
        (IpAddr::V4(first), IpAddr::V4(last)) => {
            Ipv4Addr::from_bits(random.random_range(first.to_bits()..=last.to_bits())).into()
        }
        (IpAddr::V6(first), IpAddr::V6(last)) => {
            Ipv6Addr::from_bits(random.random_range(first.to_bits()..=last.to_bits())).into()
        }
        (first, _) => first,
    }
}

pub(crate) fn key(
    source: IpAddr,
    destination: IpAddr,
    protocol: Protocol,
    upper: Upper,
    fields: PacketFields,
) -> FlowKey {
    let addresses = addresses(source, destination);
    FlowKey {
        vrf: VrfId::MAIN,
        origin: Origin::Host,
        addresses,
        protocol,
        fragment: FragmentClass::Whole,
        upper,
        fields,
    }
}

/// Both addresses, which are of one family; otherwise the IPv4 one becomes IPv4-mapped.
pub(crate) fn addresses(source: IpAddr, destination: IpAddr) -> Addresses {
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => Addresses::V4 { source, destination },
        (source, destination) => {
            Addresses::V6 { source: as_v6(source), destination: as_v6(destination) }
        }
    }
}

fn as_v6(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}

/// Headers that no rule matches: from a source that no rule names, to a destination that no rule
/// for any source names, of a protocol that no rule for any addresses names.
struct Outside {
    v6: bool,
    sources: Vec<IpRange>,
    destinations: Vec<IpRange>,
    protocols: Vec<Protocol>,
}

impl Outside {
    fn of(rules: &[Selector]) -> Self {
        let v6 = rules.first().is_some_and(|rule| rule.source.is_v6());
        let all = if v6 { IpRange::ALL_V6 } else { IpRange::ALL_V4 };
        let family = || rules.iter().filter(|rule| rule.source.is_v6() == v6);
        let (from_any, specific): (Vec<&Selector>, Vec<&Selector>) =
            family().partition(|rule| rule.source == all);
        let (anywhere, to_specific): (Vec<&Selector>, Vec<&Selector>) =
            from_any.into_iter().partition(|rule| rule.destination == all);
        let named = |protocol: Protocol| {
            anywhere.iter().any(|rule| rule.protocol.is_none_or(|named| named == protocol))
        };
        // 253 is for experiments (RFC 3692), and no rule set of ours names it.
        let mut protocols = vec![Protocol::TCP, Protocol::UDP, Protocol(253)];
        protocols.retain(|&protocol| !named(protocol));
        if protocols.is_empty() {
            protocols.push(Protocol::TCP);
        }
        Self {
            v6,
            sources: gaps(all, specific.iter().map(|rule| rule.source).collect()),
            destinations: gaps(all, to_specific.iter().map(|rule| rule.destination).collect()),
            protocols,
        }
    }

    fn draw(&self, reads: PacketFields, random: &mut ChaCha8Rng) -> FlowKey {
        let [source, destination] = [&self.sources, &self.destinations].map(|gaps| {
            let gap = gaps[random.random_range(0..gaps.len())];
            address(&gap, random)
        });
        let protocol = self.protocols[random.random_range(0..self.protocols.len())];
        let upper = any_upper(protocol, self.v6, random);
        key(source, destination, protocol, upper, any_fields(protocol, reads, random))
    }
}

/// What `ranges` leave of `all`; all of it if they leave nothing.
fn gaps(all: IpRange, mut ranges: Vec<IpRange>) -> Vec<IpRange> {
    ranges.sort_unstable();
    let mut gaps = Vec::new();
    // The lowest address that may be outside; none when the last range reaches the highest.
    let mut from = Some(all.first());
    for range in ranges {
        let Some(start) = from else { break };
        if let Some(end) = before(range.first())
            && let Ok(gap) = IpRange::new(start, end)
        {
            gaps.push(gap);
        }
        from = if range.last() < start { Some(start) } else { after(range.last()) };
    }
    if let Some(start) = from
        && let Ok(gap) = IpRange::new(start, all.last())
    {
        gaps.push(gap);
    }
    if gaps.is_empty() { vec![all] } else { gaps }
}

fn before(address: IpAddr) -> Option<IpAddr> {
    match address {
        IpAddr::V4(address) => Some(Ipv4Addr::from_bits(address.to_bits().checked_sub(1)?).into()),
        IpAddr::V6(address) => Some(Ipv6Addr::from_bits(address.to_bits().checked_sub(1)?).into()),
    }
}

fn after(address: IpAddr) -> Option<IpAddr> {
    match address {
        IpAddr::V4(address) => Some(Ipv4Addr::from_bits(address.to_bits().checked_add(1)?).into()),
        IpAddr::V6(address) => Some(Ipv6Addr::from_bits(address.to_bits().checked_add(1)?).into()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use tables::FieldsSelector;

    use super::*;
    use crate::rules::{self, Kind};

    fn set(kind: Kind, v6: bool) -> Vec<Selector> {
        rules::generate(&rules::Options { kind, v6, count: 500, seed: 3, misaligned: None })
    }

    fn options() -> Options {
        Options { headers: 2000, seed: 1, locality: Locality::None, unmatched: 0.0 }
    }

    #[test]
    fn headers_match_rules_or_nothing() {
        for (kind, v6) in [
            (Kind::Acl, false),
            (Kind::Fw, true),
            (Kind::Fw4, false),
            (Kind::Spd, true),
            (Kind::Ipc, false),
        ] {
            let rules = set(kind, v6);
            let matched = |header: &FlowKey| rules.iter().any(|rule| rule.matches(header));
            assert!(headers(&rules, &options()).iter().all(matched), "{kind:?}");
            let none = headers(&rules, &Options { unmatched: 1.0, ..options() });
            assert_eq!(none.iter().filter(|header| matched(header)).count(), 0, "{kind:?}");
            let mixed = headers(&rules, &Options { unmatched: 0.25, ..options() });
            let share = mixed.iter().filter(|header| !matched(header)).count();
            assert!((400..600).contains(&share), "{share} of 2000 match nothing");
        }
    }

    /// Rules for TCP that ask for flags, as those of firewalls for connections that exist.
    #[test]
    fn headers_have_the_fields_that_rules_read() {
        let mut rules = set(Kind::Fw, false);
        let plain = headers(&rules, &options());
        assert!(plain.iter().all(|header| header.fields.is_empty()));
        for rule in rules.iter_mut().filter(|rule| rule.protocol == Some(Protocol::TCP)) {
            rule.fields = FieldsSelector::new("ack/syn,ack".parse().ok(), None, None);
        }
        let asked = headers(&rules, &options());
        let matched = |header: &FlowKey| rules.iter().any(|rule| rule.matches(header));
        assert!(asked.iter().all(matched));
        assert!(asked.iter().any(|header| header.fields.tcp_flags() == TcpFlags::ACK));
        let others = |header: &FlowKey| header.fields.tcp_flags().0 & !0x12;
        assert!(asked.iter().all(|header| others(header) == 0 && header.fields.hop_limit() == 0));
        let mut drawn = plain;
        draw_fields(&rules, &mut drawn, 1);
        let is_tcp = |header: &&FlowKey| header.protocol == Protocol::TCP;
        let acknowledges = |header: &&FlowKey| header.fields.tcp_flags() == TcpFlags::ACK;
        let all = drawn.iter().filter(is_tcp).count();
        let share = drawn.iter().filter(is_tcp).filter(acknowledges).count() as f64 / all as f64;
        assert!((0.85..0.95).contains(&share), "{share}");
        assert!(drawn.iter().filter(|header| !is_tcp(header)).all(|h| h.fields.is_empty()));
    }

    #[test]
    fn the_last_rules_decide_their_headers() {
        let rules = set(Kind::Fw, false);
        let headers = headers_of_last(&rules, 20, 100, 5);
        assert!(!headers.is_empty());
        for header in headers {
            assert!(
                rules.iter().position(|rule| rule.matches(&header)).is_some_and(|at| at >= 480)
            );
        }
        assert!(
            headers_of_last(&rules, 0, 10, 5).is_empty()
                && headers_of_last(&[], 9, 10, 5).is_empty()
        );
    }

    #[test]
    fn runs_follow_pareto() {
        let rules = set(Kind::Acl, false);
        let headers =
            headers(&rules, &Options { headers: 20_000, locality: Locality::Pareto, ..options() });
        assert_eq!(headers.len(), 20_000);
        let runs: Vec<_> = headers.chunk_by(|a, b| a == b).map(<[_]>::len).collect();
        let single = runs.iter().filter(|&&length| length == 1).count() as f64 / runs.len() as f64;
        assert!((0.88..0.92).contains(&single), "{single}");
        assert!(runs.iter().any(|&length| length > 50));
    }

    #[test]
    fn no_rules_and_rules_for_everything_still_give_headers() {
        assert_eq!(headers(&[], &options()).len(), 2000);
        let all = Selector {
            source: IpRange::ALL_V4,
            destination: IpRange::ALL_V4,
            protocol: None,
            upper: UpperSelector::Any,
            fields: FieldsSelector::ANY,
        };
        assert_eq!(headers(&[all], &Options { unmatched: 1.0, ..options() }).len(), 2000);
    }

    #[test]
    fn equal_seeds_give_equal_headers() {
        let rules = set(Kind::Ipc, true);
        assert_eq!(headers(&rules, &options()), headers(&rules, &options()));
        assert_ne!(headers(&rules, &options()), headers(&rules, &Options { seed: 2, ..options() }));
        let distinct: HashSet<_> = headers(&rules, &options()).into_iter().collect();
        assert!(distinct.len() > 1900);
    }

    #[test]
    fn gaps_are_what_ranges_leave() {
        let range = |text: &str| text.parse::<IpRange>().unwrap();
        let found = gaps(
            IpRange::ALL_V4,
            vec![
                range("10.0.0.0/8"),
                range("10.1.0.0/16"),
                range("0.0.0.0/8"),
                range("128.0.0.0/1"),
            ],
        );
        assert_eq!(found, [range("1.0.0.0-9.255.255.255"), range("11.0.0.0-127.255.255.255")]);
        assert_eq!(gaps(IpRange::ALL_V6, vec![IpRange::ALL_V6]), [IpRange::ALL_V6]);
        assert_eq!(gaps(IpRange::ALL_V6, vec![]), [IpRange::ALL_V6]);
    }
}
