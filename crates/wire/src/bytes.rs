//! Big-endian numbers in fixed-size headers.
//!
//! Offsets are constants at every call, so the bounds checks fold away.

#[inline(always)]
pub(crate) const fn u16_at<const N: usize>(bytes: &[u8; N], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

#[inline(always)]
pub(crate) const fn u32_at<const N: usize>(bytes: &[u8; N], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[inline(always)]
pub(crate) fn array_at<const M: usize, const N: usize>(bytes: &[u8; N], at: usize) -> [u8; M] {
    let mut out = [0; M];
    out.copy_from_slice(&bytes[at..at + M]);
    out
}

#[inline(always)]
pub(crate) fn put<const N: usize>(bytes: &mut [u8; N], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}
