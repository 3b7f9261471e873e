//! The prepared translation: which addresses and ports a packet gets, and by how much its checksums
//! change (RFC 1624).

use types::{Addresses, Protocol};

use crate::tuple::{Role, Tuple};

/// What becomes of the packets of one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Translation {
    /// The packet's tuple afterwards.
    pub tuple: Tuple,
    /// What the sum of the addresses grows by: for the checksum of an IPv4 header.
    pub addresses_delta: u16,
    /// What the sum of the pseudo header and the ports grows by: for the upper layer's checksum.
    pub upper_delta: u16,
    /// Whether the source address or port becomes another one.
    pub is_source: bool,
}

/// Why a packet was not translated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotTranslated {
    /// There are fewer bytes than the headers have.
    #[error("the packet is shorter than its headers")]
    Short,
    /// IPv4 where the translation is IPv6, or the reverse.
    #[error("the packet is of another IP version than the translation")]
    Version,
}

/// The sum of the halves of this, of 16 bits each, in ones' complement.
fn fold(sum: u64) -> u16 {
    let sum = (sum >> 32) + (sum & 0xffff_ffff);
    let sum = (sum >> 32) + (sum & 0xffff_ffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    ((sum >> 16) + (sum & 0xffff)) as u16
}

/// What the addresses sum to, in words of 32 bits.
fn sum_of(addresses: &Addresses) -> u64 {
    match *addresses {
        Addresses::V4 { source, destination } => {
            u64::from(source.to_bits()) + u64::from(destination.to_bits())
        }
        Addresses::V6 { source, destination } => {
            let words = [source.to_bits(), destination.to_bits()];
            let halves = words.into_iter().flat_map(|bits| [(bits >> 64) as u64, bits as u64]);
            halves.map(|word| (word >> 32) + (word & 0xffff_ffff)).sum()
        }
    }
}

/// The sum of `new` less that of `old`, in ones' complement. Nothing is all ones.
pub(crate) fn difference(new: u64, old: u64) -> u16 {
    // 2^64 - 1 is a multiple of 2^16 - 1: what is added to it is as good as added to nothing.
    let (sum, carry) = new.overflowing_add(!old);
    fold(sum + u64::from(carry))
}

/// Both differences as they stand in the lower half of a line's word.
pub(crate) fn deltas(before: &Tuple, after: &Tuple) -> u64 {
    let [old, new] = [before, after].map(|tuple| sum_of(&tuple.addresses));
    let addresses = difference(new, old);
    let ports = |tuple: &Tuple| match tuple.role {
        Role::None => u64::from(tuple.source) + u64::from(tuple.destination),
        // The same of both where there is no identifier.
        Role::Query | Role::Answer => tuple.source.into(),
    };
    // ICMP for IPv4 is the one that has no pseudo header (RFC 792).
    let covered = match before.protocol {
        Protocol::ICMP => 0,
        _ => u64::from(addresses),
    };
    let upper = difference(covered + ports(after), ports(before));
    u64::from(addresses) << 16 | u64::from(upper)
}

/// The same of packets that become what the others were.
pub(crate) fn inverse(deltas: u64) -> u64 {
    // Nothing is all ones, in both directions.
    let of = |delta: u16| if delta == u16::MAX { delta } else { !delta };
    u64::from(of((deltas >> 16) as u16)) << 16 | u64::from(of(deltas as u16))
}

/// Adds a difference to a checksum (RFC 1624, equation 3).
#[inline]
pub(crate) fn update(field: &mut [u8], delta: u16) {
    if let [high, low] = field {
        let old = u16::from_be_bytes([*high, *low]);
        let sum = u32::from(!old) + u32::from(delta);
        // A carry of two such numbers makes no second one.
        let new = !((sum & 0xffff) + (sum >> 16)) as u16;
        [*high, *low] = new.to_be_bytes();
    }
}

impl Translation {
    /// What makes packets that look like `before` look like `after`, which are of one protocol and
    /// family.
    pub fn between(before: &Tuple, after: &Tuple) -> Self {
        Self::new(*after, deltas(before, after) as u32, false)
    }

    pub(crate) fn new(tuple: Tuple, deltas: u32, is_source: bool) -> Self {
        let (addresses_delta, upper_delta) = ((deltas >> 16) as u16, deltas as u16);
        Self { tuple, addresses_delta, upper_delta, is_source }
    }

    /// Whether it changes no checksum of the upper layer, as the translation of prefixes (RFC 6296).
    pub const fn is_neutral(&self) -> bool {
        matches!(self.upper_delta, 0 | 0xffff)
    }

    /// Translates an IP packet whose upper-layer header begins at `upper`. `has_ports` is false for
    /// a later fragment: then the addresses alone are translated, as the first one has the ports
    /// and the checksum of all.
    ///
    /// # Errors
    /// The packet is not what the connection has; it is left as it was.
    pub fn apply(
        &self,
        packet: &mut [u8],
        upper: usize,
        has_ports: bool,
    ) -> Result<(), NotTranslated> {
        let version = packet.first().ok_or(NotTranslated::Short)? >> 4;
        let least = match (self.tuple.addresses, version) {
            (Addresses::V4 { .. }, 4) => 20,
            (Addresses::V6 { .. }, 6) => 40,
            _ => return Err(NotTranslated::Version),
        };
        let protocol = self.tuple.protocol;
        let checksum = checksum_place(protocol);
        let end = match (has_ports, protocol) {
            (false, _) => upper,
            (true, Protocol::TCP) => upper + 20,
            (true, _) if protocol.has_ports() || checksum.is_some() => upper + 8,
            (true, _) => upper,
        };
        if upper < least || packet.len() < end {
            return Err(NotTranslated::Short);
        }
        match self.tuple.addresses {
            Addresses::V4 { source, destination } => {
                packet[12..16].copy_from_slice(&source.octets());
                packet[16..20].copy_from_slice(&destination.octets());
                update(&mut packet[10..12], self.addresses_delta);
            }
            Addresses::V6 { source, destination } => {
                packet[8..24].copy_from_slice(&source.octets());
                packet[24..40].copy_from_slice(&destination.octets());
            }
        }
        if !has_ports {
            return Ok(());
        }
        match protocol {
            Protocol::SCTP => self.write_sctp(packet, upper),
            _ => self.write_upper(&mut packet[upper..], &self.tuple),
        }
        Ok(())
    }

    /// Writes the ports of a whole SCTP packet, and the checksum, which is no sum, if they are others
    /// than before. A packet whose checksum was wrong keeps a wrong one.
    #[cold]
    fn write_sctp(&self, packet: &mut [u8], upper: usize) {
        let length = |at: usize| match packet.get(at..at + 2) {
            Some(&[high, low]) => usize::from(u16::from_be_bytes([high, low])),
            _ => 0,
        };
        let end = match self.tuple.addresses {
            Addresses::V4 { .. } => length(2),
            Addresses::V6 { .. } => 40 + length(4),
        };
        let Some(segment) = packet.get_mut(upper..end) else { return };
        let before = segment.first_chunk::<4>().copied();
        let ports = u32::from(self.tuple.source) << 16 | u32::from(self.tuple.destination);
        if before != Some(ports.to_be_bytes()) {
            wire::sctp::rewrite(segment, |segment| self.write_upper(segment, &self.tuple));
        }
    }

    /// Writes ports or identifier, and the checksum, as far as the header is there.
    pub(crate) fn write_upper(&self, header: &mut [u8], tuple: &Tuple) {
        let protocol = tuple.protocol;
        if tuple.has_ports() {
            match tuple.role {
                Role::None => {
                    let ports = u32::from(tuple.source) << 16 | u32::from(tuple.destination);
                    if let Some(place) = header.first_chunk_mut() {
                        *place = ports.to_be_bytes();
                    }
                }
                Role::Query | Role::Answer => {
                    if let Some(place) = header.get_mut(4..6) {
                        place.copy_from_slice(&tuple.source.to_be_bytes());
                    }
                }
            }
        }
        let Some(field) = checksum_place(protocol).and_then(|at| header.get_mut(at..at + 2)) else {
            return;
        };
        let is_udp = protocol == Protocol::UDP;
        // Zero says that there is none (RFC 768), and stays.
        if !(is_udp && *field == [0, 0]) {
            update(field, self.upper_delta);
            if is_udp && *field == [0, 0] {
                field.fill(0xff);
            }
        }
    }
}

/// As [`Translation::apply`] does, for a whole IPv4 packet of TCP or UDP, by the words of its direction's
/// line. False if it is another one; it is as it was then.
#[inline(always)]
pub(crate) fn apply_usual(
    packet: &mut [u8],
    upper: usize,
    is_tcp: bool,
    [addresses, ports]: [u64; 2],
) -> bool {
    let Some((header, upper)) = packet.split_at_mut_checked(upper) else { return false };
    let Some(header) = header.first_chunk_mut::<{ wire::ipv4::HEADER_LENGTH }>() else {
        return false;
    };
    let least = if is_tcp { wire::tcp::HEADER_LENGTH } else { wire::udp::HEADER_LENGTH };
    let Some(upper) = upper.get_mut(..least) else { return false };
    header[12..20].copy_from_slice(&addresses.to_be_bytes());
    update(&mut header[10..12], (ports >> 16) as u16);
    upper[..4].copy_from_slice(&((ports >> 32) as u32).to_be_bytes());
    let field = if is_tcp { &mut upper[16..18] } else { &mut upper[6..8] };
    // See Translation::write_upper.
    if is_tcp || *field != [0, 0] {
        update(field, ports as u16);
        if !is_tcp && *field == [0, 0] {
            field.fill(0xff);
        }
    }
    true
}

/// Where the checksum stands that covers the ports, and in most protocols the addresses.
fn checksum_place(protocol: Protocol) -> Option<usize> {
    match protocol {
        Protocol::TCP => Some(16),
        Protocol::UDP | Protocol::UDP_LITE | Protocol::DCCP => Some(6),
        Protocol::ICMP | Protocol::ICMPV6 => Some(2),
        // SCTP's CRC covers its ports, but no addresses; it is no sum.
        _ => None,
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use core::net::{Ipv4Addr, Ipv6Addr};

    use proptest::prelude::*;
    use wire::checksum;

    use super::*;

    fn addresses(bits: [u128; 2], is_v6: bool) -> Addresses {
        match is_v6 {
            true => Addresses::V6 {
                source: Ipv6Addr::from_bits(bits[0]),
                destination: Ipv6Addr::from_bits(bits[1]),
            },
            false => Addresses::V4 {
                source: Ipv4Addr::from_bits(bits[0] as u32),
                destination: Ipv4Addr::from_bits(bits[1] as u32),
            },
        }
    }

    /// A whole packet with right checksums.
    fn packet(tuple: &Tuple, payload: &[u8], zero_udp: bool) -> (Vec<u8>, usize) {
        let mut upper = vec![0; 20];
        upper.extend(payload);
        match tuple.role {
            Role::None => {
                upper[..2].copy_from_slice(&tuple.source.to_be_bytes());
                upper[2..4].copy_from_slice(&tuple.destination.to_be_bytes());
            }
            _ => {
                upper[0] = tuple.destination as u8;
                upper[4..6].copy_from_slice(&tuple.source.to_be_bytes());
            }
        }
        let at = match tuple.protocol {
            Protocol::TCP => 16,
            Protocol::UDP => 6,
            _ => 2,
        };
        if !zero_udp {
            let sum = match tuple.protocol {
                Protocol::ICMP => checksum::checksum(&upper),
                protocol => checksum::upper(&tuple.addresses, protocol, &upper),
            };
            let sum = if tuple.protocol == Protocol::UDP && sum == 0 { 0xffff } else { sum };
            upper[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        }
        let mut header = match tuple.addresses {
            Addresses::V4 { source, destination } => {
                let mut header = vec![0; 20];
                header[0] = 0x45;
                header[9] = tuple.protocol.0;
                header[12..16].copy_from_slice(&source.octets());
                header[16..20].copy_from_slice(&destination.octets());
                let sum = checksum::checksum(&header);
                header[10..12].copy_from_slice(&sum.to_be_bytes());
                header
            }
            Addresses::V6 { source, destination } => {
                let mut header = vec![0; 40];
                header[0] = 0x60;
                header[8..24].copy_from_slice(&source.octets());
                header[24..40].copy_from_slice(&destination.octets());
                header
            }
        };
        let offset = header.len();
        header.extend(upper);
        (header, offset)
    }

    proptest! {
        /// The translated packet is the packet that somebody would have built with the new tuple.
        /// Sums of zero have two forms, so both sides are compared as sums.
        #[test]
        fn a_translated_packet_is_one_built_so(
            bits: [u128; 4],
            ports: [u16; 4],
            is_v6: bool,
            kind in 0..3,
            payload: Vec<u8>,
            zero_udp: bool,
        ) {
            let [a, b, c, d] = bits;
            let (first, second) = (addresses([a, b], is_v6), addresses([c, d], is_v6));
            let zero_udp = zero_udp && kind == 1 && !is_v6;
            let tuple = |addresses, source, destination| match kind {
                0 => Tuple::new(addresses, Protocol::TCP, source, destination),
                1 => Tuple::new(addresses, Protocol::UDP, source, destination),
                _ => Tuple::icmp(addresses, if is_v6 { 128 } else { 8 }, 0, source).unwrap(),
            };
            let before = tuple(first, ports[0], ports[1]);
            let after = tuple(second, ports[2], ports[3]);
            let (mut translated, upper) = packet(&before, &payload, zero_udp);
            let (built, _) = packet(&after, &payload, zero_udp);
            let (there, back) = (deltas(&before, &after), deltas(&after, &before));
            // Nothing is all zeros too, where all that was summed up was zero.
            let halves = |word: u64| [word >> 16, word & 0xffff].map(|half| half % 0xffff);
            prop_assert_eq!(halves(inverse(there)), halves(back));
            let translation = Translation::new(after, there as u32, true);
            translation.apply(&mut translated, upper, true).unwrap();
            let at = upper + match kind { 0 => 16, 1 => 6, _ => 2 };
            let field = |bytes: &[u8], at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
            let same = |a: u16, b: u16| a == b || a.min(b) == 0 && a.max(b) == 0xffff;
            prop_assert!(same(field(&translated, at), field(&built, at)));
            if kind == 1 {
                prop_assert_eq!(field(&translated, at) == 0, zero_udp);
            }
            if !is_v6 {
                prop_assert!(same(field(&translated, 10), field(&built, 10)));
                translated[10..12].copy_from_slice(&built[10..12]);
            }
            translated[at..at + 2].copy_from_slice(&built[at..at + 2]);
            prop_assert_eq!(translated, built);
        }

        /// A usual packet is translated as any is, however many bytes of it there are.
        #[test]
        fn a_usual_packet_is_translated_as_any(
            bits: [u32; 4],
            ports: [u16; 4],
            is_tcp: bool,
            payload: Vec<u8>,
            zero_udp: bool,
            (length, upper) in (0usize..80, prop_oneof![4 => Just(20usize), 1 => 0usize..60]),
        ) {
            let [a, b, c, d] = bits.map(u128::from);
            let protocol = if is_tcp { Protocol::TCP } else { Protocol::UDP };
            let before = Tuple::new(addresses([a, b], false), protocol, ports[0], ports[1]);
            let after = Tuple::new(addresses([c, d], false), protocol, ports[2], ports[3]);
            let (mut packet, _) = packet(&before, &payload, zero_udp && !is_tcp);
            packet.truncate(length);
            let (mut any, mut usual) = (packet.clone(), packet);
            let words = [after.address_words()[0], after.port_word() | deltas(&before, &after)];
            let is_any =
                Translation::new(after, words[1] as u32, true).apply(&mut any, upper, true).is_ok();
            prop_assert_eq!(apply_usual(&mut usual, upper, is_tcp, words), is_any);
            prop_assert_eq!(usual, any);
        }

        #[test]
        fn no_bytes_are_too_short(mut bytes: Vec<u8>, upper in 0usize..80, has_ports: bool) {
            let before = Tuple::new(addresses([1, 2], false), Protocol::TCP, 3, 4);
            let translation = Translation::new(before, 0x1234_5678, true);
            let copy = bytes.clone();
            if translation.apply(&mut bytes, upper, has_ports).is_err() {
                prop_assert_eq!(bytes, copy);
            }
        }
    }
}
