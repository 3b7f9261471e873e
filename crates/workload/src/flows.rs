//! Which flow the next packet belongs to, and what the packets of a flow carry.

mod zipf;

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use thiserror::Error;
use types::{Addresses, IpPrefix};

use crate::splitmix::scrambled;
use zipf::Zipf;

/// How packets are spread over flows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Popularity {
    /// One after another, from the first again after the last.
    RoundRobin,
    /// Each flow as likely as every other.
    Uniform,
    /// The n-th flow with a probability in proportion to `n` to the minus this power, which is
    /// greater than 0. About 1 for the popularity of destinations in the Internet.
    Zipf(f64),
    /// Every packet is the first of a new flow; the number of flows is of no matter.
    Flood,
}

/// The flow numbers of an endless sequence of packets, from 0. A number costs constant time,
/// whatever the number of flows, and no memory. Popular flows of [`Popularity::Zipf`] have low
/// numbers.
#[derive(Clone, Debug)]
pub struct Traffic {
    source: Source,
    random: ChaCha8Rng,
}

#[derive(Clone, Debug)]
enum Source {
    RoundRobin { next: u64, flows: u64 },
    Uniform { flows: u64 },
    Zipf(Zipf),
    Flood { next: u64 },
}

impl Traffic {
    /// Packets of `flows` flows, of one if it is 0.
    ///
    /// # Panics
    /// Where the power of [`Popularity::Zipf`] is not a finite number greater than 0.
    pub fn new(popularity: Popularity, flows: u64, seed: u64) -> Self {
        let flows = flows.max(1);
        let source = match popularity {
            Popularity::RoundRobin => Source::RoundRobin { next: 0, flows },
            Popularity::Uniform => Source::Uniform { flows },
            Popularity::Zipf(power) => Source::Zipf(Zipf::new(flows, power)),
            Popularity::Flood => Source::Flood { next: 0 },
        };
        Self { source, random: ChaCha8Rng::seed_from_u64(seed) }
    }
}

impl Iterator for Traffic {
    type Item = u64;

    #[inline]
    fn next(&mut self) -> Option<u64> {
        Some(match &mut self.source {
            Source::RoundRobin { next, flows } => {
                let flow = *next;
                *next = if flow + 1 == *flows { 0 } else { flow + 1 };
                flow
            }
            Source::Uniform { flows } => self.random.random_range(0..*flows),
            Source::Zipf(zipf) => zipf.sample(&mut self.random) - 1,
            Source::Flood { next } => {
                let flow = *next;
                *next = flow.wrapping_add(1);
                flow
            }
        })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (usize::MAX, None)
    }
}

/// Addresses, source port and destination port of a flow, in the networks that are set aside for
/// benchmarks: 198.18.0.0/16 and 198.19.0.0/16 (RFC 2544), or 2001:2:0:1::/64 and 2001:2:0:2::/64
/// (RFC 5180). No two flows below 2^32 have the same.
pub fn tuple(flow: u64, v6: bool) -> (Addresses, u16, u16) {
    let space = if v6 { Space::BENCHMARK_V6 } else { Space::BENCHMARK_V4 };
    space.tuple(flow)
}

/// The lowest port that flows have.
const FIRST_PORT: u16 = 1024;
/// How many ports flows have, at either end.
const PORTS: u64 = 65_536 - FIRST_PORT as u64;

/// The networks between which flows go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    source: IpPrefix,
    destination: IpPrefix,
}

/// The networks of a [`Space`] are of two families.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("flows from {0} to {1}: both networks must be of one address family")]
pub struct Families(pub IpPrefix, pub IpPrefix);

impl Space {
    const BENCHMARK_V4: Self = Self {
        source: prefix(IpAddr::V4(Ipv4Addr::new(198, 18, 0, 0)), 16),
        destination: prefix(IpAddr::V4(Ipv4Addr::new(198, 19, 0, 0)), 16),
    };
    const BENCHMARK_V6: Self = Self {
        source: prefix(IpAddr::V6(Ipv6Addr::new(0x2001, 2, 0, 1, 0, 0, 0, 0)), 64),
        destination: prefix(IpAddr::V6(Ipv6Addr::new(0x2001, 2, 0, 2, 0, 0, 0, 0)), 64),
    };

    /// Flows from one network to another.
    ///
    /// # Errors
    /// [`Families`].
    pub fn new(source: IpPrefix, destination: IpPrefix) -> Result<Self, Families> {
        if source.address().is_ipv4() != destination.address().is_ipv4() {
            return Err(Families(source, destination));
        }
        Ok(Self { source: source.network(), destination: destination.network() })
    }

    /// How many flows differ; greater numbers begin anew.
    pub fn capacity(&self) -> u128 {
        u128::from(hosts(&self.source))
            * u128::from(hosts(&self.destination))
            * u128::from(PORTS)
            * u128::from(PORTS)
    }

    /// Addresses, source port and destination port of a flow. Ports are 1024 and above; a network's
    /// lowest and highest address are left out if it has others.
    ///
    /// The number is taken apart into four digits, and each digit is then turned by a hash of the
    /// ones before it. Digits can be recovered in the same order, so that no two flows are equal,
    /// and yet neighbouring flows share no field in a regular way.
    pub fn tuple(&self, flow: u64) -> (Addresses, u16, u16) {
        let mut rest = flow;
        let mut before = 0u64;
        let mut digit = |radix: u64| {
            let turned = rest % radix + turn(before, radix);
            let digit = if turned < radix { turned } else { turned - radix };
            rest /= radix;
            before = scrambled(before ^ digit);
            digit
        };
        let source = host(&self.source, digit(hosts(&self.source)));
        let destination = host(&self.destination, digit(hosts(&self.destination)));
        let ports = [digit(PORTS), digit(PORTS)].map(|port| FIRST_PORT + port as u16);
        let addresses = crate::trace::addresses(source, destination);
        (addresses, ports[0], ports[1])
    }
}

/// By how much the digit that follows `before` is turned: less than `radix`, which is 2^32 at most.
fn turn(before: u64, radix: u64) -> u64 {
    ((scrambled(before) >> 32) * radix) >> 32
}

const fn prefix(address: IpAddr, length: u8) -> IpPrefix {
    match IpPrefix::new(address, length) {
        Ok(prefix) => prefix,
        Err(_) => panic!("the constants above are right"),
    }
}

/// How many addresses of a network flows have: at most 2^32, so that radices and digits fit a word.
fn hosts(network: &IpPrefix) -> u64 {
    let width = if network.address().is_ipv4() { 32 } else { 128 };
    match width - u32::from(network.length()) {
        bits @ (0 | 1) => 1 << bits,
        bits => (1 << bits.min(32)) - 2,
    }
}

/// The number of a network's first address that flows have: not the network's own, if it has
/// more than two.
fn first_host(network: &IpPrefix) -> u64 {
    let width = if network.address().is_ipv4() { 32 } else { 128 };
    u64::from(network.length() + 2 <= width)
}

fn host(network: &IpPrefix, number: u64) -> IpAddr {
    let number = number + first_host(network);
    match network.address() {
        // A network of `hosts` addresses ends that many after its first, so that no carry leaves
        // it.
        IpAddr::V4(address) => Ipv4Addr::from_bits(address.to_bits() + number as u32).into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() + u128::from(number)).into(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    fn counted(popularity: Popularity, flows: u64, packets: usize) -> Vec<f64> {
        let mut counts = vec![0.0; flows as usize];
        for flow in Traffic::new(popularity, flows, 11).take(packets) {
            counts[flow as usize] += 1.0;
        }
        counts
    }

    #[test]
    fn round_robin_and_flood_count() {
        let packets: Vec<_> = Traffic::new(Popularity::RoundRobin, 3, 0).take(7).collect();
        assert_eq!(packets, [0, 1, 2, 0, 1, 2, 0]);
        assert!(Traffic::new(Popularity::Flood, 3, 0).take(1000).eq(0..1000));
        assert!(Traffic::new(Popularity::RoundRobin, 0, 0).take(9).all(|flow| flow == 0));
    }

    #[test]
    fn uniform_is_level() {
        // 10,000 expected of each, so that a standard deviation is 100.
        assert!(
            counted(Popularity::Uniform, 50, 500_000)
                .iter()
                .all(|&count| (count - 10_000.0).abs() < 600.0)
        );
    }

    #[test]
    fn zipf_follows_its_law() {
        for power in [0.5, 0.9, 0.99, 1.0, 1.1, 2.0] {
            let (flows, packets) = (1000u64, 1_000_000);
            let counts = counted(Popularity::Zipf(power), flows, packets);
            let sum: f64 = (1..=flows).map(|rank| (rank as f64).powf(-power)).sum();
            for (rank, &count) in (1..).zip(&counts) {
                let expected = packets as f64 * f64::from(rank).powf(-power) / sum;
                // Six standard deviations of a Poisson count, and one packet.
                assert!(
                    (count - expected).abs() < 6.0 * expected.sqrt() + 1.0,
                    "power {power} rank {rank}: {count} for {expected}"
                );
            }
        }
    }

    #[test]
    fn zipf_serves_ten_million_flows() {
        let flows = 10_000_000;
        let mut highest = 0;
        let mut first = 0;
        for flow in Traffic::new(Popularity::Zipf(0.99), flows, 1).take(200_000) {
            assert!(flow < flows);
            highest = highest.max(flow);
            first += u64::from(flow == 0);
        }
        // The sum of the law over ten million ranks is about 18.2, so that the first has 5.5 %.
        assert!((10_000..12_000).contains(&first), "{first}");
        assert!(highest > flows / 2);
        assert!(Traffic::new(Popularity::Zipf(1.1), 1, 1).take(100).all(|flow| flow == 0));
    }

    /// What a number costs is what it draws: a word of 64 bits is two of the generator's, and few
    /// are rejected.
    #[test]
    fn zipf_takes_constant_time() {
        for power in [0.5, 0.9, 1.0, 1.1, 3.0] {
            for flows in [1, 10, 1000, 10_000_000, u64::MAX] {
                let mut traffic = Traffic::new(Popularity::Zipf(power), flows, 5);
                assert!(traffic.by_ref().take(10_000).all(|flow| flow < flows));
                let draws = traffic.random.get_word_pos() / 2;
                assert!(
                    (10_000..13_000).contains(&draws),
                    "power {power}, {flows} flows: {draws} draws for 10,000 numbers"
                );
            }
        }
    }

    #[test]
    #[should_panic(expected = "greater than 0")]
    fn zipf_without_a_power_is_refused() {
        Traffic::new(Popularity::Zipf(0.0), 10, 0);
    }

    #[test]
    fn equal_seeds_give_equal_traffic() {
        let take =
            |seed| Traffic::new(Popularity::Zipf(0.9), 1000, seed).take(100).collect::<Vec<_>>();
        assert_eq!(take(1), take(1));
        assert_ne!(take(1), take(2));
    }

    #[test]
    fn a_small_space_is_used_up_exactly() {
        let space =
            Space::new("192.0.2.0/30".parse().unwrap(), "192.0.2.9/32".parse().unwrap()).unwrap();
        assert_eq!(space.capacity(), 2 * 64_512 * 64_512);
        let seen: HashSet<_> = (0..300_000).map(|flow| space.tuple(flow)).collect();
        assert_eq!(seen.len(), 300_000);
        let sources: HashSet<_> = seen.iter().map(|(addresses, ..)| addresses.source()).collect();
        assert_eq!(sources, HashSet::from([[192, 0, 2, 1].into(), [192, 0, 2, 2].into()]));
        assert!(seen.iter().all(|&(_, source, destination)| source >= 1024 && destination >= 1024));
        let mixed = Space::new("192.0.2.0/30".parse().unwrap(), "2001:db8::/32".parse().unwrap())
            .unwrap_err();
        assert_eq!(
            mixed.to_string(),
            "flows from 192.0.2.0/30 to 2001:db8::/32: both networks must be of one address family"
        );
    }

    /// Finds the number of a flow from its tuple, which shows that no two numbers have the same.
    fn number(
        space: &Space,
        (addresses, source_port, destination_port): (Addresses, u16, u16),
    ) -> u128 {
        let offset = |network: &IpPrefix, address: IpAddr| {
            let difference = match (network.address(), address) {
                (IpAddr::V4(first), IpAddr::V4(address)) => {
                    u64::from(address.to_bits() - first.to_bits())
                }
                (IpAddr::V6(first), IpAddr::V6(address)) => {
                    u64::try_from(address.to_bits() - first.to_bits()).unwrap()
                }
                _ => unreachable!("of the network's family"),
            };
            (difference - first_host(network), hosts(network))
        };
        let digits = [
            offset(&space.source, addresses.source()),
            offset(&space.destination, addresses.destination()),
            (u64::from(source_port - FIRST_PORT), PORTS),
            (u64::from(destination_port - FIRST_PORT), PORTS),
        ];
        let (mut before, mut value, mut number) = (0, 1u128, 0u128);
        for (digit, radix) in digits {
            number += value * u128::from((digit + radix - turn(before, radix)) % radix);
            value *= u128::from(radix);
            before = scrambled(before ^ digit);
        }
        number
    }

    proptest! {
        #[test]
        fn flows_have_tuples_of_their_own(flow in 0u64..1 << 32, source in 0u8..=32, destination in 0u8..=32) {
            for space in [Space::BENCHMARK_V4, Space::BENCHMARK_V6] {
                prop_assert!(space.capacity() >= 1 << 32);
                prop_assert_eq!(number(&space, space.tuple(flow)), u128::from(flow));
            }
            let prefix = |length| IpPrefix::new([10, 1, 2, 3].into(), length).unwrap();
            let space = Space::new(prefix(source), prefix(destination)).unwrap();
            prop_assert_eq!(number(&space, space.tuple(flow)), u128::from(flow) % space.capacity());
            let (addresses, ..) = space.tuple(flow);
            prop_assert!(prefix(source).contains(addresses.source()) && prefix(destination).contains(addresses.destination()));
        }
    }
}
