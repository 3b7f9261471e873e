//! If an Ethernet frame's headers are.

use wire::Protocol;

use super::MAX_VLAN_TAGS;

const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86dd;
const ETHERTYPE_VLAN: u16 = 0x8100;
const ETHERTYPE_SERVICE_VLAN: u16 = 0x88a8;

/// IPv6 extension headers that are walked.
const MAX_EXTENSIONS: usize = 8;

/// An unfragmented IP packet in an Ethernet frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// If the IP header begins.
    pub(super) network: usize,
    /// If the transport header begins.
    pub(super) upper: usize,
    /// If the IP packet ends.
    pub(super) end: usize,
    /// The transport.
    pub(super) protocol: Protocol,
    pub(super) is_ipv6: bool,
    /// Whether an IPv6 routing header makes the final destination another than the header's.
    pub(super) has_routing: bool,
}

impl Layout {
    pub(super) fn find(frame: &[u8]) -> Option<Self> {
        let mut ethertype_at = 12;
        let mut ethertype = word(frame, ethertype_at)?;
        for _ in 0..MAX_VLAN_TAGS {
            if matches!(ethertype, ETHERTYPE_VLAN | ETHERTYPE_SERVICE_VLAN) {
                ethertype_at += 4;
                ethertype = word(frame, ethertype_at)?;
            }
        }
        let network = ethertype_at + 2;
        let layout = match ethertype {
            ETHERTYPE_IPV4 => Self::ipv4(frame, network)?,
            ETHERTYPE_IPV6 => Self::ipv6(frame, network)?,
            _ => return None,
        };
        (layout.upper <= layout.end && layout.end <= frame.len()).then_some(layout)
    }

    fn ipv4(frame: &[u8], network: usize) -> Option<Self> {
        let first = *frame.get(network)?;
        let header = usize::from(first & 15) * 4;
        // More fragments, or an offset.
        let fragment = word(frame, network + 6)? & 0x3fff != 0;
        if first >> 4 != 4 || header < 20 || fragment {
            return None;
        }
        Some(Self {
            network,
            upper: network + header,
            end: network + usize::from(word(frame, network + 2)?),
            protocol: Protocol(*frame.get(network + 9)?),
            is_ipv6: false,
            has_routing: false,
        })
    }

    fn ipv6(frame: &[u8], network: usize) -> Option<Self> {
        if *frame.get(network)? >> 4 != 6 {
            return None;
        }
        let end = network + 40 + usize::from(word(frame, network + 4)?);
        let (mut protocol, mut upper) = (Protocol(*frame.get(network + 6)?), network + 40);
        let mut has_routing = false;
        for _ in 0..=MAX_EXTENSIONS {
            match protocol {
                Protocol::HOP_BY_HOP | Protocol::ROUTING | Protocol::DESTINATION_OPTIONS => {
                    has_routing |= protocol == Protocol::ROUTING;
                    protocol = Protocol(*frame.get(upper)?);
                    upper += (usize::from(*frame.get(upper + 1)?) + 1) * 8;
                }
                Protocol::FRAGMENT => return None,
                _ => {
                    return Some(Self {
                        network,
                        upper,
                        end,
                        protocol,
                        is_ipv6: true,
                        has_routing,
                    });
                }
            }
        }
        None
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}
