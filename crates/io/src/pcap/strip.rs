//! What stands in front of a captured packet and is none of the port's: link headers that only
//! captures have, and VLAN tags.

use super::LinkType;

/// Ethernet protocol numbers.
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;

/// Bytes of two Ethernet addresses, and of a tag.
const ADDRESSES: usize = 12;
const TAG: usize = 4;

/// Tags that are taken out of one frame: more than two are in no network, and a frame of tags alone
/// is none that anybody sends.
const MAX_TAGS: usize = 8;

/// Whether a protocol number is one of a VLAN tag: 802.1Q, 802.1ad, and what was used for that
/// before.
const fn is_tag(protocol: u16) -> bool {
    matches!(protocol, 0x8100 | 0x88a8 | 0x9100)
}

/// The IP packet behind the header of a capture that is no link's, or the frame of a link as it is.
/// `None` if it is no IP packet, or the header is cut short. With `skip_vlan`, tags between the
/// header and the packet are passed over.
pub(super) fn payload(link: LinkType, bytes: &[u8], skip_vlan: bool) -> Option<&[u8]> {
    let (protocol, rest) = match link {
        LinkType::Ethernet | LinkType::Raw | LinkType::Ipv4 | LinkType::Ipv6 => return Some(bytes),
        LinkType::Null | LinkType::Loop => {
            let (family, rest) = bytes.split_first_chunk()?;
            return is_family(link, *family).then_some(rest);
        }
        // Packet type, ARPHRD, length and address (8), protocol.
        LinkType::LinuxSll => (*bytes.get(14..16)?.first_chunk()?, bytes.get(16..)?),
        // Protocol first, then reserved, interface, ARPHRD, packet type, length and address (8).
        LinkType::LinuxSll2 => (*bytes.get(..2)?.first_chunk()?, bytes.get(20..)?),
        LinkType::Unsupported(_) => return None,
    };
    let (mut protocol, mut rest) = (u16::from_be_bytes(protocol), rest);
    for _ in 0..MAX_TAGS {
        match protocol {
            IPV4 | IPV6 => return Some(rest),
            tag if skip_vlan && is_tag(tag) => {
                let (&[_, _, high, low], behind) = rest.split_first_chunk()?;
                (protocol, rest) = (u16::from_be_bytes([high, low]), behind);
            }
            _ => return None,
        }
    }
    None
}

/// Whether the four bytes in front of a packet say that it is of IP. BSD loopback has them in the
/// byte order of the machine that has captured, which may be any; what OpenBSD calls loop, in the
/// network's.
const fn is_family(link: LinkType, bytes: [u8; 4]) -> bool {
    /// AF_INET everywhere, and AF_INET6 of Linux, NetBSD and OpenBSD, FreeBSD, and macOS.
    const fn is_ip(family: u32) -> bool {
        matches!(family, 2 | 10 | 24 | 28 | 30)
    }
    let big = is_ip(u32::from_be_bytes(bytes));
    match link {
        LinkType::Null => big || is_ip(u32::from_le_bytes(bytes)),
        _ => big,
    }
}

/// Takes the VLAN tags out of an Ethernet frame, which is the first `length` bytes of `frame`.
/// Returns its length without.
pub(super) fn untag(frame: &mut [u8], length: usize) -> usize {
    let mut tags = 0;
    let protocol_at = |tags: usize| {
        let at = ADDRESSES + TAG * tags;
        frame.get(at..length.min(frame.len())).and_then(<[u8]>::first_chunk::<2>)
    };
    while tags < MAX_TAGS
        && protocol_at(tags).is_some_and(|bytes| is_tag(u16::from_be_bytes(*bytes)))
        // The protocol behind the tag.
        && protocol_at(tags + 1).is_some()
    {
        tags += 1;
    }
    if tags == 0 {
        return length;
    }
    frame.copy_within(ADDRESSES + TAG * tags..length, ADDRESSES);
    length - TAG * tags
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_headers_are_taken_off_in_the_byte_order_of_any_machine() {
        for family in [[2, 0, 0, 0], [0, 0, 0, 2], [30, 0, 0, 0], [0, 0, 0, 24], [28, 0, 0, 0]] {
            let bytes = [&family[..], b"packet"].concat();
            assert_eq!(payload(LinkType::Null, &bytes, false), Some(&b"packet"[..]), "{family:?}");
            let is_network_order = family[0] == 0;
            assert_eq!(payload(LinkType::Loop, &bytes, false).is_some(), is_network_order);
        }
        assert_eq!(payload(LinkType::Null, &[7, 0, 0, 0, 1], false), None);
        assert_eq!(payload(LinkType::Null, &[2, 0, 0], false), None);
    }

    #[test]
    fn cooked_headers_are_taken_off_and_tags_if_asked() {
        let sll = |protocol: [u8; 2], rest: &[u8]| [&[0; 14][..], &protocol, rest].concat();
        let sll2 = |protocol: [u8; 2], rest: &[u8]| [&protocol[..], &[0; 18], rest].concat();
        for (link, make) in [
            (LinkType::LinuxSll, &sll as &dyn Fn([u8; 2], &[u8]) -> Vec<u8>),
            (LinkType::LinuxSll2, &sll2),
        ] {
            for protocol in [[8, 0], [0x86, 0xdd]] {
                let bytes = make(protocol, b"packet");
                assert_eq!(payload(link, &bytes, false), Some(&b"packet"[..]));
                for end in 0..bytes.len() - 6 {
                    assert_eq!(payload(link, &bytes[..end], true), None);
                }
            }
            assert_eq!(payload(link, &make([8, 6], b"arp"), true), None);
            let tagged = make([0x81, 0], &[0, 5, 8, 0, b'x']);
            assert_eq!(payload(link, &tagged, false), None);
            assert_eq!(payload(link, &tagged, true), Some(&b"x"[..]));
            let tags = [0x81, 0, 0x81, 0].repeat(20);
            assert_eq!(payload(link, &make([0x81, 0], &tags), true), None);
        }
    }

    #[test]
    fn tags_are_taken_out_of_a_frame_and_nothing_else_is() {
        let frame = |tags: &[u8]| [&[1; 12][..], tags, &[8, 0], b"packet"].concat();
        let plain = frame(&[]);
        for tags in [
            &[][..],
            &[0x81, 0, 0, 5],
            &[0x88, 0xa8, 0, 7, 0x81, 0, 0, 5],
            &[0x91, 0, 0, 1, 0x81, 0, 0, 2, 0x81, 0, 0, 3],
        ] {
            let mut bytes = frame(tags);
            let length = untag(&mut bytes.clone(), 13);
            assert_eq!(length, 13, "a frame that is cut short stays");
            let whole = bytes.len();
            let length = untag(&mut bytes, whole);
            assert_eq!(&bytes[..length], plain, "{tags:?}");
        }
        for length in 0..20 {
            // Whatever is behind its end.
            let mut short = [0x81, 0].repeat(20);
            assert!(untag(&mut short, length) <= length);
        }
        let mut tags_alone = [&[1; 12][..], &[0x81, 0, 0, 1].repeat(40)].concat();
        let whole = tags_alone.len();
        assert_eq!(untag(&mut tags_alone, whole), whole - TAG * MAX_TAGS);
    }
}
