//! Which packets a flow may concern, as far as their keys say that.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use types::{FlowKey, FragmentClass, IpRange, Origin, PortId, Protocol, Upper};

use crate::field::Field;
use crate::fields::{IPV4, IPV6, NO_PORT};
use crate::matches::Match;

/// Packets that a flow may match, by what stands in their keys and is not rewritten: see
/// [`crate::Pipeline::rewrites`]. There may be more of them than the flow matches, never fewer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowPackets {
    in_port: Option<PortId>,
    dl_type: Option<u16>,
    protocol: Option<Protocol>,
    source: Option<IpRange>,
    destination: Option<IpRange>,
    /// Source and destination port, or ICMP type and code: the lowest and the highest.
    upper: [(u16, u16); 2],
}

impl FlowPackets {
    /// Of a flow with this match.
    pub fn of(matches: &Match) -> Self {
        let exactly = |field: Field| {
            let (value, mask) = matches.get(field);
            (mask == field.max()).then_some(value)
        };
        let dl_type = exactly(Field::DlType).map(|dl_type| dl_type as u16);
        let protocol = exactly(Field::NwProto).map(|protocol| Protocol(protocol as u8));
        let addresses = |fields: [Field; 2]| match dl_type {
            Some(IPV4) => range(matches, fields[0]),
            Some(IPV6) => range(matches, fields[1]),
            _ => None,
        };
        let upper = match (protocol, dl_type) {
            (Some(Protocol::TCP), _) => Some([Field::TcpSrc, Field::TcpDst]),
            (Some(Protocol::UDP), _) => Some([Field::UdpSrc, Field::UdpDst]),
            (Some(Protocol::SCTP), _) => Some([Field::SctpSrc, Field::SctpDst]),
            (Some(Protocol::ICMP), Some(IPV4)) => Some([Field::IcmpType, Field::IcmpCode]),
            (Some(Protocol::ICMPV6), Some(IPV6)) => Some([Field::Icmpv6Type, Field::Icmpv6Code]),
            _ => None,
        };
        let ends = |field| {
            let (first, last) = matches.ends(field);
            (first as u16, last as u16)
        };
        Self {
            in_port: exactly(Field::InPort)
                .map(|port| PortId(port as u16))
                .filter(|port| port.0 != NO_PORT),
            dl_type,
            protocol,
            source: addresses([Field::NwSrc, Field::Ipv6Src]),
            destination: addresses([Field::NwDst, Field::Ipv6Dst]),
            upper: upper.map_or([(0, u16::MAX); 2], |fields| fields.map(ends)),
        }
    }

    /// Whether a packet with this key may be one of them.
    pub fn may_have(&self, key: &FlowKey) -> bool {
        let dl_type = if key.addresses.is_v6() { IPV6 } else { IPV4 };
        let is_by = |port| match key.origin {
            Origin::Port(by) => by == port,
            // What an xfrm link brings has come by that.
            _ => true,
        };
        let within = |range: Option<IpRange>, address: IpAddr| {
            range.is_none_or(|range| range.contains(address))
        };
        let upper = match (key.fragment, key.upper) {
            (FragmentClass::Whole, Upper::Ports { source, destination }) => {
                Some([source, destination])
            }
            (FragmentClass::Whole, Upper::Icmp { kind, code, .. }) => {
                Some([kind.into(), code.into()])
            }
            _ => None,
        };
        let is_upper = |values: [u16; 2]| {
            let mut both = self.upper.iter().zip(values);
            both.all(|((first, last), value)| *first <= value && value <= *last)
        };
        self.dl_type.is_none_or(|wanted| wanted == dl_type)
            && self.in_port.is_none_or(is_by)
            && self.protocol.is_none_or(|protocol| protocol == key.protocol)
            && within(self.source, key.addresses.source())
            && within(self.destination, key.addresses.destination())
            && upper.is_none_or(is_upper)
    }
}

/// The addresses that a flow may match, if it does not match all.
fn range(matches: &Match, field: Field) -> Option<IpRange> {
    let (first, last) = matches.ends(field);
    let address = |bits: u128| match field.max() {
        u128::MAX => IpAddr::V6(Ipv6Addr::from_bits(bits)),
        _ => IpAddr::V4(Ipv4Addr::from_bits(bits as u32)),
    };
    let is_any = first == 0 && last == field.max();
    IpRange::new(address(first), address(last)).ok().filter(|_| !is_any)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use types::{Addresses, PacketFields, VrfId};

    use super::*;
    use crate::fields::Fields;

    fn key() -> impl Strategy<Value = FlowKey> {
        let v4 = (0u32..8, 0u32..8).prop_map(|(source, destination)| Addresses::V4 {
            source: source.into(),
            destination: destination.into(),
        });
        let v6 = (0u128..8, 0u128..8).prop_map(|(source, destination)| Addresses::V6 {
            source: source.into(),
            destination: destination.into(),
        });
        let origin = prop_oneof![
            (0u16..3).prop_map(|port| Origin::Port(PortId(port))),
            Just(Origin::Sa(types::SaSlot(1))),
        ];
        let fragment = proptest::sample::select(vec![
            FragmentClass::Whole,
            FragmentClass::Whole,
            FragmentClass::First,
            FragmentClass::Later,
        ]);
        let protocol = proptest::sample::select(vec![6u8, 17, 132, 1, 58, 50, 99]);
        (prop_oneof![v4, v6], origin, fragment, protocol, (0u16..6, 0u16..6)).prop_map(
            |(addresses, origin, fragment, protocol, (source, destination))| {
                let upper = match (fragment, protocol) {
                    (FragmentClass::Later, _) => Upper::None,
                    (_, 6 | 17 | 132) => Upper::Ports { source, destination },
                    (_, 1 | 58) => {
                        let (kind, code) = (source as u8, destination as u8);
                        Upper::Icmp { kind, code, identifier: 7 }
                    }
                    _ => Upper::None,
                };
                let (vrf, protocol) = (VrfId(0), Protocol(protocol));
                let fields = PacketFields::NONE;
                FlowKey { vrf, origin, addresses, protocol, fragment, upper, fields }
            },
        )
    }

    /// What grammars let through: fields that a packet needs stand beside what asks for it.
    fn matches() -> impl Strategy<Value = Match> {
        let protocol =
            proptest::sample::select(vec![None, Some(6u8), Some(17), Some(132), Some(1)]);
        let bits = (0u128..8, 0u128..8);
        let port = prop_oneof![Just(None), (0u128..6, 0u128..6).prop_map(Some)];
        (any::<Option<bool>>(), protocol, any::<[bool; 5]>(), bits, port, 0u16..3).prop_map(
            |(v6, protocol, has, (value, mask), port, in_port)| {
                let mut matches = Match::ANY;
                let set = |matches: &mut Match, field: Field, value: u128| {
                    matches.set(field, value, field.max());
                };
                if has[0] {
                    set(&mut matches, Field::InPort, in_port.into());
                }
                let Some(v6) = v6 else { return matches };
                set(&mut matches, Field::DlType, if v6 { IPV6 } else { IPV4 }.into());
                let of_family = |fields: [Field; 2]| fields[usize::from(v6)];
                let source = of_family([Field::NwSrc, Field::Ipv6Src]);
                let destination = of_family([Field::NwDst, Field::Ipv6Dst]);
                if has[1] {
                    matches.set(source, value, mask | source.max() & !7);
                }
                if has[2] {
                    matches.set_range(destination, value.min(mask), value.max(mask));
                }
                let Some(protocol) = protocol else { return matches };
                let protocol = if v6 && protocol == 1 { 58 } else { protocol };
                set(&mut matches, Field::NwProto, protocol.into());
                let fields = match protocol {
                    6 => [Field::TcpSrc, Field::TcpDst],
                    17 => [Field::UdpSrc, Field::UdpDst],
                    132 => [Field::SctpSrc, Field::SctpDst],
                    1 => [Field::IcmpType, Field::IcmpCode],
                    _ => [Field::Icmpv6Type, Field::Icmpv6Code],
                };
                if let Some((a, b)) = port {
                    match has[3] {
                        true => matches.set_range(fields[1], a.min(b), a.max(b)),
                        false => matches.set(fields[0], a & b, b),
                    }
                }
                if has[4] {
                    set(&mut matches, Field::CtMark, 3);
                }
                matches
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]

        /// Whatever else is true of a packet.
        #[test]
        fn what_a_flow_matches_is_of_its_packets(
            key in key(), matches in matches(), link in 0u16..3, mark in 0u128..4,
        ) {
            let mut fields = Fields::of(&key, 0);
            if matches!(key.origin, Origin::Sa(_)) {
                fields.set_in_port(Some(PortId(link)));
            }
            Field::CtMark.set(&mut fields.words, mark, Field::CtMark.max());
            prop_assert!(!matches.matches(&fields) || FlowPackets::of(&matches).may_have(&key));
        }
    }

    #[test]
    fn others_are_told_apart() {
        let mut matches = Match::ANY;
        matches.set(Field::InPort, 2, 0xffff);
        matches.set(Field::DlType, IPV4.into(), 0xffff);
        matches.set(Field::NwProto, 17, 0xff);
        matches.set(Field::NwSrc, 0x0a00_0000, 0xff00_0000);
        matches.set_range(Field::UdpDst, 53, 55);
        let packets = FlowPackets::of(&matches);
        let key = FlowKey {
            vrf: VrfId(0),
            origin: Origin::Port(PortId(2)),
            addresses: Addresses::V4 { source: [10, 1, 2, 3].into(), destination: 1.into() },
            protocol: Protocol::UDP,
            fragment: FragmentClass::Whole,
            upper: Upper::Ports { source: 9, destination: 55 },
            fields: PacketFields::NONE,
        };
        assert!(packets.may_have(&key));
        let from = |source: [u8; 4]| Addresses::V4 { source: source.into(), destination: 1.into() };
        let others = [
            FlowKey { origin: Origin::Port(PortId(3)), ..key },
            FlowKey { addresses: from([11, 1, 2, 3]), ..key },
            FlowKey { addresses: Addresses::V6 { source: 1.into(), destination: 1.into() }, ..key },
            FlowKey { protocol: Protocol::TCP, ..key },
            FlowKey { upper: Upper::Ports { source: 9, destination: 56 }, ..key },
        ];
        for other in others {
            assert!(!packets.may_have(&other), "{other:?}");
        }
        // It has no ports, and other packets of it may have these.
        let later = FlowKey { fragment: FragmentClass::Later, upper: Upper::None, ..key };
        assert!(packets.may_have(&later));
        assert!(FlowPackets::of(&Match::ANY).may_have(&others[0]));
    }
}
