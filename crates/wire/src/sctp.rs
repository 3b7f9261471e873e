//! SCTP's checksum (RFC 9260 section 6.8): CRC32c of the whole packet, with zeros in its own place.

/// Where it stands in the common header.
const PLACE: core::ops::Range<usize> = 8..12;

/// The checksum of an SCTP packet as it stands in the header. `None` if there is no whole header.
pub fn checksum(packet: &[u8]) -> Option<[u8; 4]> {
    let (before, after) = (packet.get(..PLACE.start)?, packet.get(PLACE.end..)?);
    let crc = crc32c::crc32c_append(crc32c::crc32c(before), &[0; 4]);
    Some(crc32c::crc32c_append(crc, after).to_le_bytes())
}

/// Whether an SCTP packet has its right checksum.
pub fn is_right(packet: &[u8]) -> bool {
    checksum(packet).is_some_and(|right| packet.get(PLACE) == Some(&right))
}

/// Writes the checksum into an SCTP packet. False if there is no whole header.
pub fn complete(packet: &mut [u8]) -> bool {
    match (checksum(packet), packet.get_mut(PLACE)) {
        (Some(right), Some(place)) => {
            place.copy_from_slice(&right);
            true
        }
        _ => false,
    }
}

/// Changes an SCTP packet, and its checksum as much as the change does: a packet that was right is
/// right again, and one that was wrong is not made right.
pub fn rewrite(packet: &mut [u8], change: impl FnOnce(&mut [u8])) {
    let before = checksum(packet);
    change(packet);
    if let (Some(before), Some(after)) = (before, checksum(packet)) {
        let place = packet.get_mut(PLACE).into_iter().flatten();
        for ((byte, before), after) in place.zip(before).zip(after) {
            *byte ^= before ^ after;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An INIT chunk alone; the checksum is scapy's.
    const INIT: [u8; 32] = [
        0x13, 0x88, 0x17, 0x70, 0, 0, 0, 0, 0x86, 0x2b, 0x59, 0x77, 1, 0, 0, 20, 0, 0, 0, 7, 0, 0,
        0xff, 0xff, 0, 1, 0, 1, 0, 0, 0, 1,
    ];

    #[test]
    fn a_packet_of_somebody_else_is_right_and_a_changed_one_is_not() {
        assert!(is_right(&INIT));
        for at in 0..INIT.len() {
            let mut changed = INIT;
            changed[at] ^= 1;
            assert!(!is_right(&changed), "{at}");
            assert!(complete(&mut changed) && is_right(&changed));
        }
        for wrong in [0, 1] {
            let mut changed = INIT;
            changed[20] ^= wrong;
            rewrite(&mut changed, |packet| packet[..2].copy_from_slice(&[9, 9]));
            assert_eq!((changed[0], is_right(&changed)), (9, wrong == 0));
        }
        rewrite(&mut [1, 2, 3], |packet| packet[0] = 2);
        assert!((0..12).all(|length| !is_right(&INIT[..length])));
        assert!((0..12).all(|length| !complete(&mut INIT.to_vec()[..length])));
    }
}
