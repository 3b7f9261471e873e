//! One packet's part in a batch.

use thiserror::Error;
use types::Protocol;

/// A payload to be sealed, within the buffer that the ESP packet is to stand in.
#[derive(Debug)]
pub struct SealJob<'a> {
    /// The whole buffer, with room in front of and behind the payload.
    pub buffer: &'a mut [u8],
    /// Where the payload begins; where the ESP header begins once sealed.
    pub start: usize,
    /// Length of the payload in bytes; of the ESP packet, header to ICV, once sealed.
    pub length: usize,
    /// What the payload is: [`Protocol::IPV4`] or [`Protocol::IPV6`] in tunnel mode, the upper
    /// layer in transport mode.
    pub next_header: Protocol,
    /// What came of it. Meaningful once [`seal`](crate::OutboundSa::seal) has returned.
    pub result: Result<(), SealError>,
}

/// An ESP packet to be opened, within its buffer.
#[derive(Debug)]
pub struct OpenJob<'a> {
    /// The whole buffer.
    pub buffer: &'a mut [u8],
    /// Where the ESP header begins; where the payload begins once opened.
    pub start: usize,
    /// Length of the ESP packet in bytes, header to ICV; of the payload once opened.
    pub length: usize,
    /// What the payload is, once opened. [`Protocol::NONE`] is a dummy to be discarded (RFC 4303
    /// section 2.6).
    pub next_header: Protocol,
    /// The packet's sequence number, once its header has been read (0 before that), whatever the
    /// result.
    pub sequence: u32,
    /// What came of it. Meaningful once [`open`](crate::InboundSa::open) has returned.
    pub result: Result<(), OpenError>,
}

/// Why a payload was not sealed. Its start and length are as they were, and the buffer is not to be
/// sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SealError {
    /// The SA's sequence numbers are used up (RFC 4303 section 3.3.3).
    #[error("the SA's sequence numbers are used up")]
    SequenceExhausted,
    /// No sequence number may be used before more are allowed.
    #[error("no sequence number of the SA's key is reserved")]
    SequenceUnreserved,
    /// The buffer has too little room in front of or behind the payload, or the payload is not
    /// inside the buffer.
    #[error("the buffer has no room for the ESP packet")]
    NoRoom,
}

/// Why an ESP packet was not opened. Its start and length are as they were, and what the buffer
/// holds is not to be used, but for [`OpenError::Unstored`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum OpenError {
    /// Too short for header, IV, trailer and ICV, or not a whole number of blocks (RFC 4303 section
    /// 2.4).
    #[error("the packet is too short, or not a whole number of blocks")]
    Truncated,
    /// The sequence number was seen before (RFC 4303 section 3.4.3).
    #[error("the sequence number was seen before")]
    Replayed,
    /// The sequence number is left of the replay window (RFC 4303 section 3.4.3).
    #[error("the sequence number is left of the replay window")]
    TooOld,
    /// The sequence number is above what is on the disk of the replay window: accepted, it could be
    /// accepted again after a crash. The packet is authentic, and opened like one that is accepted.
    #[error("the sequence number is above what is stored of the replay window")]
    Unstored,
    /// The integrity check value is wrong (RFC 4303 section 3.4.4).
    #[error("the integrity check value is wrong")]
    BadIcv,
    /// The pad length is more than there is, or the padding is not 1, 2, 3, ... (RFC 4303 section
    /// 2.4).
    #[error("the padding is wrong")]
    BadPadding,
}

impl<'a> SealJob<'a> {
    /// Seals `length` bytes from `start` of `buffer`.
    pub fn new(buffer: &'a mut [u8], start: usize, length: usize, next_header: Protocol) -> Self {
        Self { buffer, start, length, next_header, result: Ok(()) }
    }
}

impl<'a> OpenJob<'a> {
    /// Opens the ESP packet in `length` bytes from `start` of `buffer`.
    pub fn new(buffer: &'a mut [u8], start: usize, length: usize) -> Self {
        Self { buffer, start, length, next_header: Protocol::NONE, sequence: 0, result: Ok(()) }
    }
}
