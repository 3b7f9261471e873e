//! Rule sets of any size that are like real ones.
//!
//! What they are like is in [`Kind`]: the statistics of published sets, which tests hold generated
//! ones against. How a set is made:
//!
//! 1. The pairs of a source and a destination prefix length that the kind has, and how many rules
//!    each holds (`lengths`).
//! 2. For each of those rules, addresses out of two tries, one for sources and one for
//!    destinations, so that prefixes lie in one another as subnets of subnets do (`trie`); in
//!    [`Kind::Nested`] and [`Kind::Chains`] out of few (`around`). Sometimes several rules get the
//!    same two addresses.
//! 3. Protocol and ports (`upper`).
//! 4. An order in which no rule hides behind one that covers it (`order`).

mod around;
mod generator;
mod lengths;
mod order;
mod profile;
mod statistics;
mod trie;
mod upper;

use core::net::IpAddr;

use tables::Selector;
use types::IpRange;

pub use statistics::{Statistics, nested_pairs, statistics};

/// What a rule set is like. All but [`Kind::Spd`] hold prefixes only. All but that and
/// [`Kind::Chains`] have the statistics of published sets; those were measured at about 1,000,
/// 10,000 and 60,000 rules ([`Kind::Nested`] at 24,000 and 33,000), and between and beyond them the
/// generator interpolates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Access control list: long prefixes on both sides, few pairs of lengths.
    Acl,
    /// Access control list with many pairs of lengths, nearly half of its rules for any protocol.
    Acl2,
    /// Firewall: four in ten rules for any source, two in ten for any destination.
    Fw,
    /// Firewall with port ranges in six of ten rules, and hundreds of rules on one pair of
    /// prefixes.
    Fw4,
    /// IP chain: many pairs of lengths, a third of its rules for any protocol.
    Ipc,
    /// Security policies: as [`Kind::Ipc`], but with what only selectors of RFC 4301 may have
    /// (section 4.4.1.1). In two of a hundred rules one side is a range that is no prefix, and half
    /// of the ICMP rules name types and codes.
    Spd,
    /// IP chain with every prefix length and few addresses of each, as ClassBench makes it from the
    /// seed `ipc1` with a smoothness of 16: a thousand pairs of lengths, up to 17 pairs of prefixes
    /// around one pair of addresses, and up to 78 rules on one pair.
    Nested,
    /// As [`Kind::Nested`], but with prefixes of all lengths around each pair of hosts, so that they
    /// lie in one another thirty deep on both sides. No published set is that deep.
    Chains,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Acl,
        Self::Acl2,
        Self::Fw,
        Self::Fw4,
        Self::Ipc,
        Self::Spd,
        Self::Nested,
        Self::Chains,
    ];

    /// A short name in lower case.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Acl => "acl",
            Self::Acl2 => "acl2",
            Self::Fw => "fw",
            Self::Fw4 => "fw4",
            Self::Ipc => "ipc",
            Self::Spd => "spd",
            Self::Nested => "nested",
            Self::Chains => "chains",
        }
    }
}

/// Which rule set to make.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// What it is like.
    pub kind: Kind,
    /// Whether addresses are IPv6. As many pairs of prefix lengths occur as with IPv4, and the
    /// lengths themselves are those of IPv6: half as common as in the global routing table, half
    /// longer ones, as subnets and hosts have.
    pub v6: bool,
    /// How many rules.
    pub count: usize,
    /// Other seeds give other addresses and rules, with the same statistics.
    pub seed: u64,
    /// The share of rules with an address range that is no prefix, from 0 to 1, instead of the
    /// kind's. Any address, and fewer than eight, stay a prefix, so that a large share may not be
    /// reached.
    pub misaligned: Option<f64>,
}

/// Makes a rule set, in priority order: of the rules that match a packet, the first decides. No two
/// are equal, each is one that [`tables::Tables::add_policy`] takes, and none lies wholly behind a
/// single earlier one.
pub fn generate(options: &Options) -> Vec<Selector> {
    let rules = generator::Generator::new(options).rules(options.count);
    order::specific_first(rules, options.seed)
}

/// The length of the shortest prefix that covers a range, and that prefix's bits in a word, lowest
/// bits cleared.
fn covering_prefix(range: &IpRange) -> (u32, u128) {
    let [first, last] = [range.first(), range.last()].map(bits);
    let width = if range.is_v6() { 128 } else { 32 };
    let length = (first ^ last).leading_zeros() + width - 128;
    (length, first & !low_bits(width - length))
}

/// An address as a number.
fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_bits().into(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

/// A word whose lowest `count` bits are set.
fn low_bits(count: u32) -> u128 {
    1u128.checked_shl(count).unwrap_or(0).wrapping_sub(1)
}
