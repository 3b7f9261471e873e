//! Sums over packet bytes: the Internet checksum (RFC 1071) and SCTP's CRC32c (RFC 9260 appendix A).

/// The one's complement sum of `bytes` as 16-bit words, on top of `sum`, not folded. An odd last byte counts as the high
/// byte of a word.
#[inline]
pub(crate) fn add(sum: u64, bytes: &[u8]) -> u64 {
    // Up to 2^17 words of 32 bits fit 64 bits with room to spare; 2^32 = 1 modulo 2^16 - 1, so the word size is free.
    let mut sum = sum;
    let (words, rest) = bytes.as_chunks::<4>();
    for word in words {
        sum += u64::from(u32::from_be_bytes(*word));
    }
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    sum + u64::from(u32::from_be_bytes(last))
}

/// Folds a sum into 16 bits, not complemented.
#[inline]
pub(crate) fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// The checksum field for a sum that goes into a TCP or UDP header. Zero is written as 0xffff, which is the same number in
/// one's complement and does not mean "none" in UDP.
#[inline]
pub(crate) fn finish(sum: u64) -> u16 {
    match !fold(sum) {
        0 => 0xffff,
        checksum => checksum,
    }
}

/// CRC32c, as SCTP puts it into its header: least significant byte first.
pub(crate) fn crc32c(parts: &[&[u8]]) -> [u8; 4] {
    let mut crc = u32::MAX;
    for byte in parts.iter().copied().flatten() {
        crc = (crc >> 8) ^ CRC32C[usize::from(crc as u8 ^ byte)];
    }
    (!crc).to_le_bytes()
}

const CRC32C: [u32; 256] = {
    let mut table = [0; 256];
    let mut index = 0;
    while index < 256 {
        let mut crc = index as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ 0x82f6_3b78 } else { crc >> 1 };
            bit += 1;
        }
        table[index] = crc;
        index += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_example_of_rfc_1071_section_3() {
        assert_eq!(fold(add(0, &[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7])), 0xddf2);
    }

    #[test]
    fn the_vectors_of_rfc_3720_appendix_b_4() {
        assert_eq!(crc32c(&[&[0; 32]]), [0xaa, 0x36, 0x91, 0x8a]);
        assert_eq!(crc32c(&[&[0xff; 16], &[0xff; 16]]), [0x43, 0xab, 0xa8, 0x62]);
    }

    #[test]
    fn zero_is_never_written() {
        assert_eq!(finish(0xffff), 0xffff);
        assert_eq!(finish(0), 0xffff);
        assert_eq!(finish(1), 0xfffe);
    }

    proptest! {
        #[test]
        fn adding_equals_the_definition(bytes in prop::collection::vec(any::<u8>(), 0..200), start in any::<u16>()) {
            let mut expected = u32::from(start);
            for pair in bytes.chunks(2) {
                expected += u32::from(u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)]));
                expected = (expected & 0xffff) + (expected >> 16);
            }
            prop_assert_eq!(fold(add(start.into(), &bytes)), expected as u16);
        }
    }
}
