//! The ESP header (RFC 4303 section 2): the part of it that is in clear.

use crate::bytes::{put, u32_at};
use types::Spi;

/// Length of SPI and sequence number in bytes.
pub const HEADER_LENGTH: usize = 8;

/// SPI and sequence number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// Names the SA at the receiver.
    pub spi: Spi,
    /// The sequence number, or its low 32 bits where the SA has extended ones.
    pub sequence: u32,
}

impl Header {
    /// Reads the header at the start of `payload`; nothing where there are fewer bytes.
    #[inline]
    pub fn parse(payload: &[u8]) -> Option<Self> {
        let header: &[u8; HEADER_LENGTH] = payload.first_chunk()?;
        Some(Self { spi: Spi(u32_at(header, 0)), sequence: u32_at(header, 4) })
    }

    /// The header's bytes.
    #[inline]
    pub fn to_bytes(self) -> [u8; HEADER_LENGTH] {
        let mut header = [0; HEADER_LENGTH];
        put(&mut header, 0, &self.spi.0.to_be_bytes());
        put(&mut header, 4, &self.sequence.to_be_bytes());
        header
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_where_rfc_4303_puts_them() {
        let bytes = [0, 0, 0x10, 0, 0, 0, 0, 7, 0xaa];
        let header = Header::parse(&bytes).unwrap();
        assert_eq!(header, Header { spi: Spi(0x1000), sequence: 7 });
        assert_eq!(header.to_bytes(), bytes[..8]);
        assert_eq!(Header::parse(&bytes[..7]), None);
    }
}
