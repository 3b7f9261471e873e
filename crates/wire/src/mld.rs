//! Multicast listener discovery (RFC 2710, RFC 3810).

use types::{Addresses, FragmentClass, Protocol, Upper};

use crate::headers::Headers;
use crate::ipv6;

/// Which groups have listeners?
pub const QUERY: u8 = 130;
/// A group has a listener (version 1).
pub const REPORT: u8 = 131;
/// A group may have lost its last listener (version 1).
pub const DONE: u8 = 132;
/// What a station listens to (version 2).
pub const REPORT_V2: u8 = 143;

/// No router sends it on (RFC 3810 section 5).
const HOP_LIMIT: u8 = 1;
/// The router alert option, and its value for these messages (RFC 2711 section 2.1).
const ROUTER_ALERT: [u8; 4] = [5, 2, 0, 0];
/// An option of one byte (RFC 8200 section 4.2).
const PAD_1: u8 = 0;

/// Whether a packet is a message of multicast listener discovery of the link that it came by: with
/// hop limit 1, a router alert, and a link-local source; the source of a report may be unspecified
/// while the station has no address yet (RFC 3590 section 4).
pub fn is_of_link(packet: &[u8], headers: &Headers) -> bool {
    let (Addresses::V6 { source, .. }, Upper::Icmp { kind, .. }) =
        (headers.addresses, headers.upper)
    else {
        return false;
    };
    let may_be_from = match kind {
        QUERY => source.is_unicast_link_local(),
        REPORT | DONE | REPORT_V2 => source.is_unicast_link_local() || source.is_unspecified(),
        _ => false,
    };
    may_be_from
        && headers.protocol == Protocol::ICMPV6
        && headers.hop_limit == HOP_LIMIT
        && headers.fragment.class == FragmentClass::Whole
        && has_router_alert(packet)
}

fn has_router_alert(packet: &[u8]) -> bool {
    const NEXT_HEADER: usize = 6;
    let Some(chain) = packet.get(ipv6::HEADER_LENGTH..) else { return false };
    let (Some(&length), true) = (chain.get(1), packet[NEXT_HEADER] == Protocol::HOP_BY_HOP.0)
    else {
        return false;
    };
    let mut options = chain.get(2..(usize::from(length) + 1) * 8).unwrap_or_default();
    while let Some(&kind) = options.first() {
        let size = match options.get(1) {
            _ if kind == PAD_1 => 1,
            Some(&length) => usize::from(length) + 2,
            None => return false,
        };
        if options.starts_with(&ROUTER_ALERT) {
            return true;
        }
        options = options.get(size..).unwrap_or_default();
    }
    false
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::headers;

    /// A message of this type from `source`, with these options before it.
    fn message(kind: u8, source: [u8; 16], hop_limit: u8, options: &[u8]) -> Vec<u8> {
        let mut packet = vec![0x60, 0, 0, 0, 0, 0, Protocol::HOP_BY_HOP.0, hop_limit];
        packet.extend(source);
        packet.extend([0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x16]);
        packet.extend([Protocol::ICMPV6.0, (options.len() / 8) as u8]);
        packet.extend(options);
        packet.extend([kind, 0, 0, 0, 0, 0, 0, 0]);
        let length = (packet.len() - ipv6::HEADER_LENGTH) as u16;
        packet[4..6].copy_from_slice(&length.to_be_bytes());
        packet
    }

    const LINK_LOCAL: [u8; 16] = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5];
    const GLOBAL: [u8; 16] = [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5];
    const ALERT: [u8; 6] = [5, 2, 0, 0, 1, 0];

    fn is(packet: &[u8]) -> bool {
        is_of_link(packet, &headers::parse(packet).unwrap())
    }

    #[test]
    fn messages_of_the_link() {
        for kind in [QUERY, REPORT, DONE, REPORT_V2] {
            assert!(is(&message(kind, LINK_LOCAL, 1, &ALERT)), "{kind}");
            assert!(!is(&message(kind, GLOBAL, 1, &ALERT)), "{kind}");
            assert!(!is(&message(kind, LINK_LOCAL, 64, &ALERT)), "{kind}");
            assert!(!is(&message(kind, LINK_LOCAL, 1, &[1, 4, 0, 0, 0, 0])), "{kind}");
            assert_eq!(is(&message(kind, [0; 16], 1, &ALERT)), kind != QUERY);
        }
        assert!(!is(&message(128, LINK_LOCAL, 1, &ALERT)));
        assert!(!is(&message(133, LINK_LOCAL, 1, &ALERT)));
        // Behind padding, of a value that is another's, and cut off.
        let padded = [0, 1, 1, 0, 5, 2, 0, 0, 1, 4, 0, 0, 0, 0];
        assert!(is(&message(QUERY, LINK_LOCAL, 1, &padded)));
        assert!(!is(&message(QUERY, LINK_LOCAL, 1, &[5, 2, 0, 1, 1, 0])));
        assert!(!is(&message(QUERY, LINK_LOCAL, 1, &[1, 0, 1, 0, 5, 2])));
    }

    proptest! {
        #[test]
        fn any_options(kind: u8, hop_limit: u8, options: [u8; 14]) {
            let packet = message(kind, LINK_LOCAL, hop_limit, &options);
            if let Ok(headers) = headers::parse(&packet) {
                is_of_link(&packet, &headers);
            }
        }
    }
}
