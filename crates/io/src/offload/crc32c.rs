//! SCTP's checksum, CRC32c (RFC 9260 appendix A).

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
    use super::*;

    #[test]
    fn the_vectors_of_rfc_3720_appendix_b_4() {
        assert_eq!(crc32c(&[&[0; 32]]), [0xaa, 0x36, 0x91, 0x8a]);
        assert_eq!(crc32c(&[&[0xff; 16], &[0xff; 16]]), [0x43, 0xab, 0xa8, 0x62]);
    }
}
