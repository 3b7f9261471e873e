//! Flow keys and decisions as the words that the cache keeps.

use std::net::Ipv6Addr;

use flow::Value;
use packet::DropReason;
use tables::PolicySlot;
use wire::{Addresses, FragmentClass, Headers, Origin, PortId, SaSlot, Upper};

use crate::decision::{Decision, EthernetHeader, Exit, LinkHeader, Refusal, Verdict};
use crate::lane::Arrival;

/// The key of an IPv4 packet: the same words for equal [`wire::FlowKey`]s, others for others.
#[inline(always)]
pub(crate) fn key_v4(headers: &Headers, arrival: Arrival) -> [u64; 3] {
    let [class, origin] = rest(headers, arrival);
    match headers.addresses {
        Addresses::V4 { source, destination } => {
            [u64::from(source.to_bits()) << 32 | u64::from(destination.to_bits()), class, origin]
        }
        // Not asked: packets are sorted by family.
        Addresses::V6 { .. } => [0; 3],
    }
}

/// The key of an IPv6 packet.
#[inline(always)]
pub(crate) fn key_v6(headers: &Headers, arrival: Arrival) -> [u64; 6] {
    let [class, origin] = rest(headers, arrival);
    match headers.addresses {
        Addresses::V6 { source, destination } => {
            let ([a, b], [c, d]) = (halves(source), halves(destination));
            [a, b, c, d, class, origin]
        }
        Addresses::V4 { .. } => [0; 6],
    }
}

/// All but the addresses.
#[inline(always)]
fn rest(headers: &Headers, arrival: Arrival) -> [u64; 2] {
    let (kind, upper) = match headers.upper {
        Upper::None => (0, 0),
        Upper::Ports { source, destination } => {
            (1, u32::from(source) << 16 | u32::from(destination))
        }
        Upper::Icmp { kind, code, identifier } => {
            (2, u32::from(kind) << 24 | u32::from(code) << 16 | u32::from(identifier))
        }
        Upper::Spi(spi) => (3, spi.0),
    };
    let fragment = match headers.fragment.class {
        FragmentClass::Whole => 0,
        FragmentClass::First => 1,
        FragmentClass::Later => 2,
    };
    let (from, origin) = match arrival.origin {
        Origin::Port(port) => (0, u32::from(port.0)),
        Origin::Sa(slot) => (1, slot.0),
        Origin::Host => (2, 0),
        Origin::HostProtected => (3, 0),
    };
    let class = kind | fragment << 2 | from << 4;
    let class = u64::from(upper) << 32
        | u64::from(arrival.vrf.0) << 16
        | u64::from(headers.protocol.0) << 8
        | class;
    [class, u64::from(origin)]
}

fn halves(address: Ipv6Addr) -> [u64; 2] {
    let bits = address.to_bits();
    [(bits >> 64) as u64, bits as u64]
}

// The last word of a value, from the lowest bit: verdict 3, link 1, refusal 2, reason 8 (and 2 that
// are zero), port 16, SA slot 32.
const DROP: u64 = 1;
const REFUSE: u64 = 2;
const FORWARD: u64 = 3;
const PROTECT: u64 = 4;
const DECRYPT: u64 = 5;
const REASSEMBLE: u64 = 6;
const DELIVER: u64 = 7;
const VERDICT: u64 = 7;
const ETHERNET: u64 = 1 << 3;

/// A decision as words; `None` for one that is not worth keeping, as it waits for a neighbour and
/// changes when that answers.
#[inline]
pub(crate) fn pack(decision: &Decision) -> Option<Value> {
    let policies = slot_word(decision.inbound) << 32 | slot_word(decision.outbound);
    let exit_words = |exit: &Exit, tag: u64| {
        let tag = tag | u64::from(exit.port.0) << 16;
        let limit = u64::from(exit.limit);
        match exit.link {
            LinkHeader::None => Some((0, limit << 48, tag)),
            LinkHeader::Ethernet(EthernetHeader { first, second }) => {
                Some((first, second | limit << 48, tag | ETHERNET))
            }
            LinkHeader::Unresolved(_) => None,
        }
    };
    let reason = |reason: DropReason| (reason as u64) << 6;
    let (first, second, last) = match decision.verdict {
        Verdict::Drop(why) => (0, 0, DROP | reason(why)),
        Verdict::Refuse(why, refusal) => {
            let refusal = match refusal {
                Refusal::NoRoute => 0,
                Refusal::HostUnreachable => 1,
                Refusal::Prohibited => 2,
            };
            (0, 0, REFUSE | refusal << 4 | reason(why))
        }
        Verdict::Forward(exit) => exit_words(&exit, FORWARD)?,
        Verdict::Protect(slot, exit) => exit_words(&exit, PROTECT | u64::from(slot.0) << 32)?,
        // The SPI is the key's.
        Verdict::Decrypt(slot, _) => (0, 0, DECRYPT | u64::from(slot.0) << 32),
        Verdict::Reassemble => (0, 0, REASSEMBLE),
        Verdict::Deliver => (0, 0, DELIVER),
    };
    Some([policies, first, second, last])
}

/// The decision that was packed, for a packet with this upper-layer part.
#[inline(always)]
pub(crate) fn unpack(value: &Value, upper: Upper) -> Decision {
    let [policies, first, second, last] = *value;
    let exit = || Exit {
        port: PortId((last >> 16) as u16),
        limit: (second >> 48) as u16,
        link: match last & ETHERNET {
            0 => LinkHeader::None,
            _ => LinkHeader::Ethernet(EthernetHeader { first, second: second & 0xffff_ffff_ffff }),
        },
    };
    let slot = SaSlot((last >> 32) as u32);
    let reason =
        || DropReason::ALL.get((last >> 6 & 0xff) as usize).copied().unwrap_or(DropReason::NoRoute);
    let verdict = match last & VERDICT {
        FORWARD => Verdict::Forward(exit()),
        PROTECT => Verdict::Protect(slot, exit()),
        DECRYPT => match upper {
            Upper::Spi(spi) => Verdict::Decrypt(slot, spi),
            // Only a key with an SPI leads here.
            _ => Verdict::Drop(DropReason::EspNoSa),
        },
        REASSEMBLE => Verdict::Reassemble,
        DELIVER => Verdict::Deliver,
        REFUSE => {
            let refusal = match last >> 4 & 3 {
                0 => Refusal::NoRoute,
                1 => Refusal::HostUnreachable,
                _ => Refusal::Prohibited,
            };
            Verdict::Refuse(reason(), refusal)
        }
        _ => Verdict::Drop(reason()),
    };
    Decision {
        verdict,
        inbound: slot_of((policies >> 32) as u32),
        outbound: slot_of(policies as u32),
    }
}

/// Slots are far fewer than 2^32 - 1: one more than the number, so that zero is none.
fn slot_word(slot: Option<PolicySlot>) -> u64 {
    slot.map_or(0, |slot| u64::from(slot.0) + 1)
}

fn slot_of(word: u32) -> Option<PolicySlot> {
    word.checked_sub(1).map(PolicySlot)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use wire::{FlowKey, Mac, Protocol, Spi, VrfId};

    use super::*;

    fn exit() -> impl Strategy<Value = Exit> {
        let link = prop_oneof![
            Just(LinkHeader::None),
            (any::<[u8; 6]>(), any::<[u8; 6]>(), any::<bool>()).prop_map(|(to, from, v6)| {
                LinkHeader::Ethernet(EthernetHeader::new(Mac(to), Mac(from), v6))
            })
        ];
        (any::<u16>(), any::<u16>(), link).prop_map(|(port, limit, link)| Exit {
            port: PortId(port),
            limit,
            link,
        })
    }

    fn verdict() -> impl Strategy<Value = Verdict> {
        let reason = || (0..DropReason::ALL.len()).prop_map(|at| DropReason::ALL[at]);
        let refusal = prop_oneof![
            Just(Refusal::NoRoute),
            Just(Refusal::HostUnreachable),
            Just(Refusal::Prohibited)
        ];
        prop_oneof![
            reason().prop_map(Verdict::Drop),
            (reason(), refusal).prop_map(|(reason, refusal)| Verdict::Refuse(reason, refusal)),
            exit().prop_map(Verdict::Forward),
            (any::<u32>(), exit()).prop_map(|(slot, exit)| Verdict::Protect(SaSlot(slot), exit)),
            any::<u32>().prop_map(|slot| Verdict::Decrypt(SaSlot(slot), Spi(77))),
            Just(Verdict::Reassemble),
            Just(Verdict::Deliver),
        ]
    }

    fn few<T: Clone + core::fmt::Debug + 'static>(
        values: &[T],
    ) -> impl Strategy<Value = T> + use<T> {
        proptest::sample::select(values.to_vec())
    }

    fn flow() -> impl Strategy<Value = (Headers, Arrival)> {
        let upper = few(&[
            Upper::None,
            Upper::Ports { source: 1, destination: 2 },
            Upper::Ports { source: 0, destination: 258 },
            Upper::Icmp { kind: 0, code: 1, identifier: 2 },
            Upper::Spi(Spi(65_538)),
        ]);
        let addresses = few(&[
            Addresses::V4 { source: [0, 0, 0, 1].into(), destination: [0, 0, 0, 2].into() },
            Addresses::V4 { source: [0, 0, 0, 2].into(), destination: [0, 0, 0, 1].into() },
            Addresses::V6 { source: 1.into(), destination: 2.into() },
            Addresses::V6 { source: (1 << 64).into(), destination: 2.into() },
        ]);
        let origin = few(&[
            Origin::Port(PortId(0)),
            Origin::Port(PortId(1)),
            Origin::Sa(SaSlot(0)),
            Origin::Sa(SaSlot(1)),
            Origin::Host,
            Origin::HostProtected,
        ]);
        let fragment = few(&[FragmentClass::Whole, FragmentClass::First, FragmentClass::Later]);
        (addresses, upper, origin, fragment, 0u16..2, 0u8..2).prop_map(
            |(addresses, upper, origin, class, vrf, protocol)| {
                let mut headers =
                    Headers { addresses, upper, protocol: Protocol(protocol), ..Headers::NONE };
                headers.fragment.class = class;
                (headers, Arrival { vrf: VrfId(vrf), origin })
            },
        )
    }

    proptest! {
        #[test]
        fn a_decision_survives(verdict in verdict(), policies in proptest::option::of((0u32..u32::MAX, 0u32..u32::MAX))) {
            let (inbound, outbound) = policies.map_or((None, Some(PolicySlot(3))), |(a, b)| (Some(PolicySlot(a)), Some(PolicySlot(b))));
            let decision = Decision { verdict, inbound, outbound };
            let value = pack(&decision).unwrap();
            prop_assert_ne!(value[3], 0);
            prop_assert_eq!(unpack(&value, Upper::Spi(Spi(77))), decision);
        }

        #[test]
        fn words_are_equal_where_keys_are(one in flow(), other in flow(), part in 0usize..7) {
            let key = |(headers, arrival): (Headers, Arrival)| -> FlowKey { headers.key(arrival.vrf, arrival.origin) };
            let words = |(headers, arrival): (Headers, Arrival)| match headers.addresses.is_v6() {
                true => key_v6(&headers, arrival).to_vec(),
                false => key_v4(&headers, arrival).to_vec(),
            };
            // Another in all parts, or in one.
            let (mut headers, mut arrival) = one;
            match part {
                0 => arrival.vrf = other.1.vrf,
                1 => arrival.origin = other.1.origin,
                2 => headers.addresses = other.0.addresses,
                3 => headers.protocol = other.0.protocol,
                4 => headers.upper = other.0.upper,
                5 => headers.fragment = other.0.fragment,
                _ => (headers, arrival) = other,
            }
            let other = (headers, arrival);
            prop_assert_eq!(key(one) == key(other), words(one) == words(other));
        }
    }

    #[test]
    fn what_waits_is_not_kept() {
        let exit = Exit {
            port: PortId(1),
            limit: 1500,
            link: LinkHeader::Unresolved([192, 0, 2, 1].into()),
        };
        assert_eq!(
            pack(&Decision { verdict: Verdict::Forward(exit), inbound: None, outbound: None }),
            None
        );
    }
}
