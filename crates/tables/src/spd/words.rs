//! Selectors and packets as the classifier's rules and headers.
//!
//! The address words come first, then the ports or ICMP type and code, then a word of:
//!
//! | bits | what |
//! |---|---|
//! | 0-21 | [`wire::PacketFields`] |
//! | 22-23 | which fields the word before has: none, ports, ICMP type and code |
//! | 24-31 | protocol |

/// A packet as the policies of its family see it: words of addresses, then [`upper_words`].
pub use classifier::Header;
use classifier::{Chain, Rule};
use wire::{Addresses, FlowKey, PacketFields, Upper};

use super::compiled::{Compiled, Half, Layer, Removed};
use super::linear::Chunk;
use super::selector::{v4_bounds, v6_bounds};
use crate::policy::{Selector, UpperSelector};

/// Words of an IPv4 header.
pub const V4_WORDS: usize = 4;
/// Words of an IPv6 header.
pub const V6_WORDS: usize = 10;

use {V4_WORDS as V4, V6_WORDS as V6};

const KIND: u32 = 22;
const PROTOCOL: u32 = 24;

// A field of more bits needs another word.
const _: () = assert!(PacketFields::ALL.bits() >> KIND == 0);

/// Which fields a packet shows of what follows its IP header, for [`upper_words`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Shown {
    /// Neither ports nor ICMP type and code.
    Nothing = 0,
    /// Ports.
    Ports = 1,
    /// ICMP type and code.
    Icmp = 2,
}

/// The last two words: what is shown, the ports or ICMP type and code, the protocol, and the
/// optional fields.
#[inline(always)]
pub const fn upper_words(shown: Shown, pair: (u16, u16), protocol: u8, fields: u32) -> [u32; 2] {
    let kind = (shown as u32) << KIND;
    [Header::<V4>::pair(pair.0, pair.1), fields | kind | (protocol as u32) << PROTOCOL]
}

/// An address family, as lookups are generic over it.
pub(super) trait Family<const WORDS: usize> {
    /// The header of a packet of this family.
    fn header(key: &FlowKey) -> Option<Header<WORDS>>;
    /// This family's compiled policies.
    fn half(compiled: &Compiled) -> &Half<WORDS>;
    /// This family's policies that are no longer there.
    fn removed(layer: &Layer) -> &Removed;
    /// This family's policies of a chunk.
    fn chain(chunk: &Chunk) -> &Chain<WORDS>;
}

pub(super) struct Four;
pub(super) struct Six;

impl Family<V4> for Four {
    #[inline(always)]
    fn header(key: &FlowKey) -> Option<Header<V4>> {
        let Addresses::V4 { source, destination } = key.addresses else { return None };
        let [pair, rest] = upper(key);
        Some(Header([source.to_bits(), destination.to_bits(), pair, rest]))
    }

    #[inline(always)]
    fn half(compiled: &Compiled) -> &Half<V4> {
        &compiled.v4
    }

    #[inline(always)]
    fn removed(layer: &Layer) -> &Removed {
        &layer.removed_v4
    }

    #[inline(always)]
    fn chain(chunk: &Chunk) -> &Chain<V4> {
        &chunk.chain_v4
    }
}

impl Family<V6> for Six {
    #[inline(always)]
    fn header(key: &FlowKey) -> Option<Header<V6>> {
        let Addresses::V6 { source, destination } = key.addresses else { return None };
        let ([a, b, c, d], [e, f, g, h]) = (words(source.to_bits()), words(destination.to_bits()));
        let [pair, rest] = upper(key);
        Some(Header([a, b, c, d, e, f, g, h, pair, rest]))
    }

    #[inline(always)]
    fn half(compiled: &Compiled) -> &Half<V6> {
        &compiled.v6
    }

    #[inline(always)]
    fn removed(layer: &Layer) -> &Removed {
        &layer.removed_v6
    }

    #[inline(always)]
    fn chain(chunk: &Chunk) -> &Chain<V6> {
        &chunk.chain_v6
    }
}

#[inline(always)]
fn upper(key: &FlowKey) -> [u32; 2] {
    let (shown, pair) = match key.upper {
        Upper::Ports { source, destination } => (Shown::Ports, (source, destination)),
        Upper::Icmp { kind, code, .. } => (Shown::Icmp, (kind.into(), code.into())),
        Upper::None | Upper::Spi(_) => (Shown::Nothing, (0, 0)),
    };
    upper_words(shown, pair, key.protocol.0, key.fields.bits())
}

fn words(address: u128) -> [u32; 4] {
    core::array::from_fn(|word| (address >> (96 - 32 * word)) as u32)
}

/// A selector as a rule of its family.
pub(crate) enum SelectorRule {
    V4(Rule<V4>),
    V6(Rule<V6>),
}

impl SelectorRule {
    pub(crate) fn of(selector: &Selector) -> Self {
        match (v4_bounds(&selector.source), v4_bounds(&selector.destination)) {
            (Some(source), Some(destination)) => {
                let mut rule = Rule::ANY;
                for (word, bounds) in [source, destination].into_iter().enumerate() {
                    let (first, last) = (bounds.0.into(), bounds.1.into());
                    let (value, mask, is_prefix) = prefix(first, last, 32);
                    (rule.value[word], rule.mask[word]) = (value as u32, mask as u32);
                    rule.is_partial |= !is_prefix;
                }
                add_upper(&mut rule, selector);
                Self::V4(rule)
            }
            _ => {
                let mut rule = Rule::ANY;
                for (which, range) in [selector.source, selector.destination].iter().enumerate() {
                    let (first, last) = v6_bounds(range);
                    let (value, mask, is_prefix) = prefix(first, last, 128);
                    rule.value[4 * which..][..4].copy_from_slice(&words(value));
                    rule.mask[4 * which..][..4].copy_from_slice(&words(mask));
                    rule.is_partial |= !is_prefix;
                }
                add_upper(&mut rule, selector);
                Self::V6(rule)
            }
        }
    }
}

fn add_upper<const WORDS: usize>(rule: &mut Rule<WORDS>, selector: &Selector) {
    let (pair, rest) = (Header::<WORDS>::PAIR, WORDS - 1);
    let mut ask = |bits: u32, value: u32| {
        rule.mask[rest] |= bits;
        rule.value[rest] |= value & bits;
    };
    ask(selector.fields.mask().bits(), selector.fields.value().bits());
    if let Some(protocol) = selector.protocol {
        ask(0xff << PROTOCOL, u32::from(protocol.0) << PROTOCOL);
    }
    let shown = match selector.upper {
        // If a TCP packet's ports are known, its flags are.
        UpperSelector::Any if selector.fields.asks_tcp_flags() => Some(Shown::Ports),
        UpperSelector::Any => None,
        UpperSelector::Ports { .. } => Some(Shown::Ports),
        UpperSelector::Icmp { .. } => Some(Shown::Icmp),
    };
    if let Some(shown) = shown {
        ask(3 << KIND, (shown as u32) << KIND);
    }
    let (a, b): ((u16, u16), (u16, u16)) = match selector.upper {
        UpperSelector::Any => return,
        UpperSelector::Ports { source, destination } => {
            ((source.first(), source.last()), (destination.first(), destination.last()))
        }
        UpperSelector::Icmp { kind, code } => {
            ((kind.0.into(), kind.1.into()), (code.0.into(), code.1.into()))
        }
    };
    rule.value[pair] = Header::<WORDS>::pair(a.0, b.0);
    rule.mask[pair] = Header::<WORDS>::pair(a.1 - a.0, b.1 - b.0);
}

/// The longest prefix that has all of a range of addresses of so many bits, as value and mask, and
/// whether it has no others.
fn prefix(first: u128, last: u128, bits: u32) -> (u128, u128, bool) {
    let all = u128::MAX >> (128 - bits);
    let open = u128::MAX.checked_shr((first ^ last).leading_zeros()).unwrap_or(0);
    let mask = all & !open;
    (first & mask, mask, first & open == 0 && last & open == open)
}
