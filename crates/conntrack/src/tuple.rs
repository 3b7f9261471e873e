//! What names a connection in one direction.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use packet::KeyHasher;
use types::{Addresses, Protocol};

/// Whether a tuple is of an ICMP query or of its answer. Other protocols have no such thing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Role {
    /// Not ICMP: either direction may have opened the connection.
    #[default]
    None,
    /// A query, which alone may open a connection.
    Query,
    /// The answer to a query.
    Answer,
}

/// The fields that a connection is looked up by, as one packet has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tuple {
    /// Source and destination.
    pub addresses: Addresses,
    /// Upper-layer protocol.
    pub protocol: Protocol,
    /// Source port; the identifier of an ICMP query or answer.
    pub source: u16,
    /// Destination port; the type of an ICMP query, in its answer too.
    pub destination: u16,
    /// Query or answer, if it is ICMP.
    pub role: Role,
}

/// Queries of ICMP (RFC 792, RFC 950) and the types of their answers.
const ICMP_QUERIES: [(u8, u8); 4] = [(8, 0), (13, 14), (15, 16), (17, 18)];

/// Queries of ICMPv6 (RFC 4443, RFC 4620) and the types of their answers.
const ICMPV6_QUERIES: [(u8, u8); 2] = [(128, 129), (NODE_INFORMATION as u8, 140)];

/// No query of ICMP for IPv4 has this type.
const NODE_INFORMATION: u16 = 139;

impl Tuple {
    /// The tuple of a packet with ports, or of a protocol without.
    pub const fn new(
        addresses: Addresses,
        protocol: Protocol,
        source: u16,
        destination: u16,
    ) -> Self {
        Self { addresses, protocol, source, destination, role: Role::None }
    }

    /// The tuple of an ICMP or ICMPv6 query or answer. `None` if the type is neither: an error, or
    /// one that is not tracked.
    pub fn icmp(addresses: Addresses, kind: u8, code: u8, identifier: u16) -> Option<Self> {
        let (protocol, queries) = match addresses.is_v6() {
            false => (Protocol::ICMP, &ICMP_QUERIES[..]),
            true => (Protocol::ICMPV6, &ICMPV6_QUERIES[..]),
        };
        // Node information queries and answers use their code; the others have none.
        if code != 0 && !matches!(kind, 139 | 140) {
            return None;
        }
        let of = |&(query, answer): &(u8, u8)| match kind {
            _ if kind == query => Some((query, Role::Query)),
            _ if kind == answer => Some((query, Role::Answer)),
            _ => None,
        };
        let (query, role) = queries.iter().find_map(of)?;
        Some(Self { addresses, protocol, source: identifier, destination: query.into(), role })
    }

    /// Whether there is a port, or an identifier, that can be translated. Node information queries have
    /// none (RFC 4620 section 4).
    pub(crate) const fn has_ports(&self) -> bool {
        match self.role {
            Role::None => self.protocol.has_ports(),
            Role::Query | Role::Answer => self.destination != NODE_INFORMATION,
        }
    }

    /// The tuple of a packet in the other direction, without translation.
    #[must_use]
    pub const fn reversed(&self) -> Self {
        let addresses = match self.addresses {
            Addresses::V4 { source, destination } => {
                Addresses::V4 { source: destination, destination: source }
            }
            Addresses::V6 { source, destination } => {
                Addresses::V6 { source: destination, destination: source }
            }
        };
        let protocol = self.protocol;
        let (source, destination) = (self.source, self.destination);
        match self.role {
            Role::None => {
                Self { addresses, protocol, source: destination, destination: source, ..*self }
            }
            Role::Query => Self { addresses, role: Role::Answer, ..*self },
            Role::Answer => Self { addresses, role: Role::Query, ..*self },
        }
    }

    /// The same with another source address, if that is of the same family.
    #[must_use]
    pub fn with_source(&self, address: IpAddr, port: u16) -> Option<Self> {
        let addresses = match (self.addresses, address) {
            (Addresses::V4 { destination, .. }, IpAddr::V4(source)) => {
                Addresses::V4 { source, destination }
            }
            (Addresses::V6 { destination, .. }, IpAddr::V6(source)) => {
                Addresses::V6 { source, destination }
            }
            _ => return None,
        };
        Some(Self { addresses, source: port, ..*self })
    }

    /// The same with another destination address, if that is of the same family. ICMP has no
    /// destination port: the type stays.
    #[must_use]
    pub fn with_destination(&self, address: IpAddr, port: u16) -> Option<Self> {
        let addresses = match (self.addresses, address) {
            (Addresses::V4 { source, .. }, IpAddr::V4(destination)) => {
                Addresses::V4 { source, destination }
            }
            (Addresses::V6 { source, .. }, IpAddr::V6(destination)) => {
                Addresses::V6 { source, destination }
            }
            _ => return None,
        };
        let destination = if self.role == Role::None { port } else { self.destination };
        Some(Self { addresses, destination, ..*self })
    }

    /// Destination address and port.
    pub(crate) fn destination_end(&self) -> (IpAddr, u16) {
        (self.addresses.destination(), self.destination)
    }

    /// The addresses as words: one is used for IPv4, four for IPv6.
    #[inline]
    pub(crate) fn address_words(&self) -> [u64; 4] {
        match self.addresses {
            Addresses::V4 { source, destination } => {
                [u64::from(source.to_bits()) << 32 | u64::from(destination.to_bits()), 0, 0, 0]
            }
            Addresses::V6 { source, destination } => {
                let (from, to) = (source.to_bits(), destination.to_bits());
                [(from >> 64) as u64, from as u64, (to >> 64) as u64, to as u64]
            }
        }
    }

    #[inline]
    pub(crate) fn addresses_of(words: [u64; 4], is_v6: bool) -> Addresses {
        let long = |at: usize| u128::from(words[at]) << 64 | u128::from(words[at + 1]);
        match is_v6 {
            false => Addresses::V4 {
                source: Ipv4Addr::from_bits((words[0] >> 32) as u32),
                destination: Ipv4Addr::from_bits(words[0] as u32),
            },
            true => Addresses::V6 {
                source: Ipv6Addr::from_bits(long(0)),
                destination: Ipv6Addr::from_bits(long(2)),
            },
        }
    }

    /// The ports as they stand in a line: in its upper half.
    #[inline]
    pub(crate) fn port_word(&self) -> u64 {
        u64::from(self.source) << 48 | u64::from(self.destination) << 32
    }

    /// The word of the addresses of IPv4 as the other direction has it.
    #[inline]
    pub(crate) fn reversed_address_word(&self) -> u64 {
        self.address_words()[0].rotate_left(32)
    }

    /// [`Tuple::port_word`] of the other direction.
    #[inline]
    pub(crate) fn reversed_port_word(&self) -> u64 {
        match self.role {
            Role::None => u64::from(self.destination) << 48 | u64::from(self.source) << 32,
            Role::Query | Role::Answer => self.port_word(),
        }
    }

    /// Whether another tuple of the same family has another source, address or port, and whether it has
    /// another destination.
    #[inline]
    pub(crate) fn differs(&self, other: &Self) -> [bool; 2] {
        let words = (self.address_words(), other.address_words());
        let addresses: [u64; 4] = core::array::from_fn(|at| words.0[at] ^ words.1[at]);
        let [source, destination] = match self.addresses {
            Addresses::V4 { .. } => [addresses[0] >> 32, addresses[0] & 0xffff_ffff],
            Addresses::V6 { .. } => [addresses[0] | addresses[1], addresses[2] | addresses[3]],
        };
        let ports = [self.source ^ other.source, self.destination ^ other.destination];
        [source | u64::from(ports[0]) != 0, destination | u64::from(ports[1]) != 0]
    }

    /// A keyed hash that is the same in both directions, so that a connection without translation
    /// is found by one slot.
    #[inline]
    pub(crate) fn hash(&self, hasher: &KeyHasher, zone: u16) -> u64 {
        let ports = match self.role {
            Role::None => [self.source, self.destination],
            Role::Query | Role::Answer => [0; 2],
        };
        let class = u64::from(zone) << 16
            | u64::from(self.protocol.0) << 8
            | match self.role {
                Role::None => 0,
                _ => u64::from(self.source) << 32 | u64::from(self.destination) << 48,
            };
        match self.addresses {
            Addresses::V4 { source, destination } => {
                let one = u64::from(source.to_bits()) << 16 | u64::from(ports[0]);
                let other = u64::from(destination.to_bits()) << 16 | u64::from(ports[1]);
                hasher.hash(&[one.min(other), one.max(other), class])
            }
            Addresses::V6 { source, destination } => {
                let one = (source.to_bits(), ports[0]);
                let other = (destination.to_bits(), ports[1]);
                let ((low, first), (high, second)) = (one.min(other), one.max(other));
                let ends = u64::from(first) << 16 | u64::from(second);
                let words = [low >> 64, low, high >> 64, high].map(|word| word as u64);
                let [a, b, c, d] = words;
                hasher.hash(&[a, b, c, d, ends, class | 1])
            }
        }
    }
}

#[cfg(all(test, not(feature = "loom")))]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    pub(crate) fn v4(source: [u8; 4], from: u16, destination: [u8; 4], to: u16) -> Tuple {
        let addresses = Addresses::V4 { source: source.into(), destination: destination.into() };
        Tuple::new(addresses, Protocol::TCP, from, to)
    }

    proptest! {
        #[test]
        fn both_directions_have_one_hash_and_words_hold_the_addresses(
            bits: [u128; 2],
            ports: [u16; 2],
            is_v6: bool,
            zone: u16,
        ) {
            let addresses = match is_v6 {
                true => Addresses::V6 {
                    source: Ipv6Addr::from_bits(bits[0]),
                    destination: Ipv6Addr::from_bits(bits[1]),
                },
                false => Addresses::V4 {
                    source: Ipv4Addr::from_bits(bits[0] as u32),
                    destination: Ipv4Addr::from_bits(bits[1] as u32),
                },
            };
            let tuple = Tuple::new(addresses, Protocol::UDP, ports[0], ports[1]);
            let hasher = KeyHasher::new([3, 4]);
            prop_assert_eq!(tuple.hash(&hasher, zone), tuple.reversed().hash(&hasher, zone));
            prop_assert_eq!(tuple.reversed().reversed(), tuple);
            prop_assert_eq!(Tuple::addresses_of(tuple.address_words(), is_v6), addresses);
            prop_assert_ne!(tuple.hash(&hasher, zone), tuple.hash(&hasher, zone.wrapping_add(1)));
        }
    }

    /// Tuples that somebody found to share a bucket share none under another secret.
    #[test]
    fn nobody_aims_at_a_bucket() {
        let [one, other] = [1, 2].map(|secret| KeyHasher::new([secret, 9]));
        let bucket = |hasher: &KeyHasher, tuple: &Tuple| tuple.hash(hasher, 0) >> 8 & 1023;
        let aimed: Vec<Tuple> = (0..1_000_000u32)
            .map(|at| v4((at << 3).to_be_bytes(), 7, [10, 0, 0, 1], 80))
            .filter(|tuple| bucket(&one, tuple) == 5)
            .collect();
        assert!(aimed.len() > 800);
        let mut counts = [0; 1024];
        for tuple in &aimed {
            counts[bucket(&other, tuple) as usize] += 1;
        }
        assert!(counts.into_iter().max() < Some(12));
    }

    #[test]
    fn only_queries_and_answers_of_icmp_have_tuples() {
        let addresses = v4([10, 0, 0, 1], 0, [10, 0, 0, 2], 0).addresses;
        let tuple = |kind, code| Tuple::icmp(addresses, kind, code, 7);
        let tracked: Vec<u8> = (0..=255).filter(|kind| tuple(*kind, 0).is_some()).collect();
        // Types from 64 on are nobody's echo, whatever a shift makes of them.
        assert_eq!(tracked, [0, 8, 13, 14, 15, 16, 17, 18]);
        assert_eq!(tuple(8, 1), None);
        let (echo, answer) = (tuple(8, 0).unwrap(), tuple(0, 0).unwrap());
        assert_eq!((echo.role, answer.role), (Role::Query, Role::Answer));
        assert_eq!(echo.reversed().role, Role::Answer);
        assert_eq!(echo.reversed().reversed(), echo);
        assert_eq!((answer.source, answer.destination), (7, 8));
    }

    #[test]
    fn queries_have_identifiers_but_those_for_node_information() {
        let v4 = v4([10, 0, 0, 1], 0, [10, 0, 0, 2], 0).addresses;
        let any = Ipv6Addr::LOCALHOST;
        let v6 = Addresses::V6 { source: any, destination: any };
        let has = |addresses, kind| Tuple::icmp(addresses, kind, 0, 7).unwrap().has_ports();
        assert!([0, 8, 13, 14, 15, 16, 17, 18].into_iter().all(|kind| has(v4, kind)));
        assert_eq!([128, 129, 139, 140].map(|kind| has(v6, kind)), [true, true, false, false]);
    }
}
