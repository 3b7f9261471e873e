//! Rule sets of any size that are like real ones.
//!
//! What they are like is in [`Kind`]: the statistics of published sets, which tests hold generated
//! ones against. How a set is made:
//!
//! 1. The pairs of a source and a destination prefix length that the kind has, and how many rules
//!    each holds (`lengths`).
//! 2. For each of those rules, addresses out of two tries, one for sources and one for
//!    destinations, so that prefixes lie in one another as subnets of subnets do (`trie`);
//!    sometimes several rules get the same two addresses.
//! 3. Protocol and ports (`upper`).
//! 4. An order in which no rule hides behind one that covers it (`order`).

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

pub use statistics::{Statistics, statistics};

/// What a rule set is like. All but [`Kind::Spd`] hold prefixes only and are named after the
/// published sets whose statistics they have; those were measured at about 1,000, 10,000 and 60,000
/// rules, and between and beyond them the generator interpolates.
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
    /// (section 4.4.1.1). In a fifth of the address pairs one side is a range that is no prefix,
    /// and half of the ICMP rules name types and codes.
    Spd,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 6] = [Self::Acl, Self::Acl2, Self::Fw, Self::Fw4, Self::Ipc, Self::Spd];

    /// A short name in lower case.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Acl => "acl",
            Self::Acl2 => "acl2",
            Self::Fw => "fw",
            Self::Fw4 => "fw4",
            Self::Ipc => "ipc",
            Self::Spd => "spd",
        }
    }
}

/// Which rule set to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// What it is like.
    pub kind: Kind,
    /// Whether addresses are IPv6. Prefix lengths are then stretched so that 8, 16, 24 and 32
    /// become 32, 48, 64 and 128, the usual sizes of a provider, a site, a subnet and a host.
    pub v6: bool,
    /// How many rules.
    pub count: usize,
    /// Other seeds give other addresses and rules, with the same statistics.
    pub seed: u64,
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
