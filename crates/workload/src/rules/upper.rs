//! Protocols and ports of rules.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use tables::UpperSelector;
use types::{PortRange, Protocol};

use super::Kind;

/// What a rule says above addresses.
pub(super) type Layer = (Option<Protocol>, UpperSelector);

/// Which of the three a rule is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// Any protocol, and so any port.
    AnyProtocol,
    /// A port range that is neither one port nor all.
    Range,
    /// Single ports, or none named.
    Plain,
}

impl Class {
    pub(super) fn of((protocol, upper): &Layer) -> Self {
        match upper {
            UpperSelector::Ports { source, destination }
                if is_true_range(source) || is_true_range(destination) =>
            {
                Self::Range
            }
            _ if protocol.is_none() => Self::AnyProtocol,
            _ => Self::Plain,
        }
    }
}

/// Whether a port range is neither one port nor all.
pub(super) fn is_true_range(range: &PortRange) -> bool {
    range.first() != range.last() && !range.is_all()
}

/// Draws a layer of the class.
pub(super) fn draw(kind: Kind, class: Class, v6: bool, random: &mut ChaCha8Rng) -> Layer {
    match class {
        Class::AnyProtocol => (None, UpperSelector::Any),
        Class::Range => {
            let common = match kind {
                Kind::Acl | Kind::Acl2 => 0.1,
                Kind::Fw | Kind::Ipc | Kind::Spd | Kind::Nested | Kind::Chains => 0.4,
                Kind::Fw4 => 0.7,
            };
            // Either side, or both, has the range: clients' ports at the source, a service's at the
            // destination.
            let at_source = random.random_bool(common);
            let at_destination = !at_source || random.random_bool(0.2);
            let source = if at_source { pick(&SOURCE_RANGES, random) } else { PortRange::ALL };
            let destination = match at_destination {
                true => pick(&DESTINATION_RANGES, random),
                false => service(random),
            };
            (Some(with_ports(random)), UpperSelector::Ports { source, destination })
        }
        Class::Plain if random.random_bool(0.08) => {
            let icmp = if v6 { Protocol::ICMPV6 } else { Protocol::ICMP };
            let protocols =
                [icmp, icmp, icmp, Protocol(47), Protocol::ESP, Protocol::AH, Protocol(89)];
            let protocol = protocols[random.random_range(0..protocols.len())];
            let upper = match kind {
                Kind::Spd if protocol == icmp && random.random() => {
                    let messages = if v6 { &ICMPV6_MESSAGES } else { &ICMP_MESSAGES };
                    let (kind, code) = messages[random.random_range(0..messages.len())];
                    UpperSelector::Icmp { kind, code }
                }
                _ => UpperSelector::Any,
            };
            (Some(protocol), upper)
        }
        Class::Plain => {
            let source = if random.random_bool(0.1) {
                single(&SOURCE_PORTS, random)
            } else {
                PortRange::ALL
            };
            let destination =
                if random.random_bool(0.8) { service(random) } else { PortRange::ALL };
            let upper = match source.is_all() && destination.is_all() {
                true => UpperSelector::Any,
                false => UpperSelector::Ports { source, destination },
            };
            (Some(with_ports(random)), upper)
        }
    }
}

/// Any layer with ports, evenly: what remains when the likely ones are taken.
pub(super) fn draw_rare(class: Class, random: &mut ChaCha8Rng) -> Layer {
    let protocol = [Protocol::TCP, Protocol::UDP, Protocol::SCTP, Protocol::UDP_LITE]
        [random.random_range(0..4)];
    let even =
        |ports: &[u16], random: &mut ChaCha8Rng| one(ports[random.random_range(0..ports.len())]);
    let source = match class {
        Class::Range => {
            let (first, last) = SOURCE_RANGES[random.random_range(0..SOURCE_RANGES.len())];
            range(first, last)
        }
        _ => even(&SOURCE_PORTS, random),
    };
    (Some(protocol), UpperSelector::Ports { source, destination: even(&DESTINATION_PORTS, random) })
}

fn with_ports(random: &mut ChaCha8Rng) -> Protocol {
    if random.random_bool(0.7) { Protocol::TCP } else { Protocol::UDP }
}

/// A well-known port; the first of the list are the likeliest.
fn service(random: &mut ChaCha8Rng) -> PortRange {
    single(&DESTINATION_PORTS, random)
}

fn single(ports: &[u16], random: &mut ChaCha8Rng) -> PortRange {
    one(ports[early(ports.len(), random)])
}

fn pick(ranges: &[(u16, u16)], random: &mut ChaCha8Rng) -> PortRange {
    let (first, last) = ranges[early(ranges.len(), random)];
    range(first, last)
}

/// A place in a list of `length`, half of the time in its first quarter.
fn early(length: usize, random: &mut ChaCha8Rng) -> usize {
    ((random.random::<f64>().powi(2) * length as f64) as usize).min(length - 1)
}

fn one(port: u16) -> PortRange {
    range(port, port)
}

fn range(first: u16, last: u16) -> PortRange {
    PortRange::new(first, last).expect("the lists below are in order")
}

/// With [`SOURCE_PORTS`] and "any", the source port ranges of all sets: no published set has more
/// than 34.
const SOURCE_RANGES: [(u16, u16); 7] =
    [(1024, 65535), (0, 1023), (32768, 61000), (49152, 65535), (137, 139), (20, 21), (6000, 6063)];

const SOURCE_PORTS: [u16; 26] = [
    53, 80, 123, 443, 25, 22, 20, 67, 68, 161, 21, 23, 110, 137, 138, 139, 143, 389, 445, 500, 514,
    1433, 1521, 1812, 3306, 5060,
];

/// With [`DESTINATION_PORTS`] and "any", the destination port ranges of all sets: no published set
/// has more than 108.
const DESTINATION_RANGES: [(u16, u16); 24] = [
    (1024, 65535),
    (0, 1023),
    (137, 139),
    (6000, 6063),
    (20, 21),
    (33434, 33534),
    (135, 139),
    (5060, 5061),
    (161, 162),
    (67, 68),
    (8000, 8999),
    (3268, 3269),
    (1645, 1646),
    (1812, 1813),
    (5900, 5910),
    (2000, 2002),
    (1718, 1720),
    (1024, 5000),
    (49152, 65535),
    (32768, 65535),
    (9100, 9102),
    (5631, 5632),
    (7000, 7009),
    (27000, 27009),
];

const DESTINATION_PORTS: [u16; 83] = [
    80, 443, 25, 53, 22, 21, 23, 110, 143, 123, 161, 389, 445, 139, 1433, 3306, 1521, 3389, 8080,
    514, 162, 88, 135, 137, 138, 636, 993, 995, 465, 587, 69, 111, 113, 119, 179, 500, 515, 520,
    554, 631, 873, 990, 1080, 1194, 1352, 1494, 1503, 1645, 1646, 1701, 1720, 1723, 1755, 1812,
    1813, 2049, 2222, 2401, 2427, 2598, 3128, 3268, 3690, 4500, 4662, 5000, 5060, 5190, 5222, 5432,
    5631, 5900, 6000, 6379, 6667, 7001, 8000, 8443, 8888, 9000, 9100, 11211, 27017,
];

/// Ranges of types and of codes: echo, unreachable, fragmentation needed, time exceeded, all up to
/// redirects.
const ICMP_MESSAGES: [((u8, u8), (u8, u8)); 6] = [
    ((8, 8), (0, 0)),
    ((0, 0), (0, 0)),
    ((3, 3), (0, 255)),
    ((3, 3), (4, 4)),
    ((11, 11), (0, 1)),
    ((0, 5), (0, 255)),
];

/// The same for ICMPv6: echo, errors, packet too big, neighbour discovery.
const ICMPV6_MESSAGES: [((u8, u8), (u8, u8)); 6] = [
    ((128, 128), (0, 0)),
    ((129, 129), (0, 0)),
    ((1, 4), (0, 255)),
    ((2, 2), (0, 0)),
    ((3, 3), (0, 1)),
    ((133, 137), (0, 0)),
];

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn the_lists_are_as_long_as_the_longest_published() {
        let distinct = |ports: &[u16], ranges: &[(u16, u16)]| {
            let ports = ports.iter().map(|&port| (port, port));
            1 + ranges.iter().copied().chain(ports).collect::<HashSet<_>>().len()
        };
        assert_eq!(distinct(&SOURCE_PORTS, &SOURCE_RANGES), 34);
        assert_eq!(distinct(&DESTINATION_PORTS, &DESTINATION_RANGES), 108);
    }
}
