//! What the trackers look at in a packet, read once.

use types::{Protocol, TcpFlags};

/// What a tracker needs of a packet beside its tuple.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packet {
    /// TCP.
    Tcp(Segment),
    /// SCTP.
    Sctp(Chunks),
    /// Another protocol: the tuple says it all.
    Datagram,
    /// The header is malformed, or its checksum is wrong.
    Malformed,
}

impl Packet {
    /// Reads the upper-layer header and what follows. Whether checksums are right is for the caller
    /// to say, who knows which the hardware has checked.
    // In the loop over a batch's packets a call would cost a packet 20 instructions.
    #[inline(always)]
    pub fn parse(protocol: Protocol, bytes: &[u8]) -> Self {
        match protocol {
            Protocol::TCP => Segment::parse(bytes).map_or(Self::Malformed, Self::Tcp),
            Protocol::SCTP => Chunks::parse(bytes).map_or(Self::Malformed, Self::Sctp),
            // RFC 768 and RFC 3828: eight bytes.
            Protocol::UDP | Protocol::UDP_LITE if bytes.len() < 8 => Self::Malformed,
            _ => Self::Datagram,
        }
    }
}

/// A TCP segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// Sequence number of the first byte, or of the SYN.
    pub sequence: u32,
    /// The next sequence number that the sender expects.
    pub acknowledgment: u32,
    /// Receive window as it stands in the header.
    pub window: u16,
    /// The control bits.
    pub flags: TcpFlags,
    /// Bytes of data.
    pub length: u32,
    /// The window scale that a SYN offers (RFC 7323), at most 14.
    pub scale: Option<u8>,
    /// How far beyond the acknowledgment the last SACK block reaches (RFC 2018), 0 if there is
    /// none.
    pub sacked: u32,
}

/// No operation, twice, and a timestamp option: all that most segments have.
const TIMESTAMP: u32 = 0x0101_080a;

/// The largest shift (RFC 7323 section 2.3).
const MOST_SCALE: u8 = 14;

impl Segment {
    /// Reads a segment. `None` if its header is malformed.
    #[inline(always)]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let header = wire::tcp::Header::parse(bytes)?;
        let end = usize::from(header.header_length);
        let options = &bytes[wire::tcp::HEADER_LENGTH..end];
        let has_timestamp_alone = options.len() == 12
            && options.first_chunk().is_some_and(|word| u32::from_be_bytes(*word) == TIMESTAMP);
        let Options { scale, sacked } = match options.is_empty() || has_timestamp_alone {
            true => Options::default(),
            false => Options::parse(options, header.flags, header.acknowledgment)?,
        };
        Some(Self {
            sequence: header.sequence,
            acknowledgment: header.acknowledgment,
            window: header.window,
            flags: header.flags,
            length: (bytes.len() - end) as u32,
            scale,
            sacked,
        })
    }
}

/// What a segment's options say: see [`Segment`].
#[derive(Default)]
struct Options {
    scale: Option<u8>,
    sacked: u32,
}

impl Options {
    /// `None` if an option reaches beyond the header.
    #[inline(never)]
    fn parse(mut options: &[u8], flags: TcpFlags, acknowledgment: u32) -> Option<Self> {
        let mut read = Self::default();
        while let [kind, rest @ ..] = options {
            match kind {
                0 => break,
                1 => options = rest,
                _ => {
                    let length = usize::from(*rest.first()?);
                    let value = options.get(2..length)?;
                    match (kind, value) {
                        (3, [shift]) if flags.contains(TcpFlags::SYN) => {
                            read.scale = Some((*shift).min(MOST_SCALE));
                        }
                        (5, blocks) => read.read_sack(blocks, acknowledgment),
                        _ => {}
                    }
                    options = &options[length..];
                }
            }
        }
        Some(read)
    }

    fn read_sack(&mut self, blocks: &[u8], acknowledgment: u32) {
        for block in blocks.as_chunks::<8>().0 {
            let right = u32::from_be_bytes([block[4], block[5], block[6], block[7]]);
            let beyond = right.wrapping_sub(acknowledgment);
            // A block below the acknowledgment is a duplicate SACK (RFC 2883).
            if beyond as i32 > 0 {
                self.sacked = self.sacked.max(beyond);
            }
        }
    }
}

/// The chunks of an SCTP packet that change an association's state, in the order in which they
/// stand in the packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Chunks {
    /// The verification tag of the packet.
    pub tag: u32,
    /// The initiate tag of an INIT or INIT ACK.
    pub initiate: u32,
    /// One bit for each chunk type up to 14.
    pub kinds: u16,
    /// Whether the T bit of an ABORT or SHUTDOWN COMPLETE is set: the tag is the receiver's own.
    pub reflected: bool,
}

impl Chunks {
    pub(crate) const INIT: u16 = 1 << 1;
    pub(crate) const INIT_ACK: u16 = 1 << 2;
    pub(crate) const HEARTBEAT: u16 = 1 << 4;
    pub(crate) const HEARTBEAT_ACK: u16 = 1 << 5;
    pub(crate) const ABORT: u16 = 1 << 6;
    pub(crate) const SHUTDOWN: u16 = 1 << 7;
    pub(crate) const SHUTDOWN_ACK: u16 = 1 << 8;
    pub(crate) const COOKIE_ECHO: u16 = 1 << 10;
    pub(crate) const COOKIE_ACK: u16 = 1 << 11;
    pub(crate) const SHUTDOWN_COMPLETE: u16 = 1 << 14;

    /// Chunks that are looked at. RFC 9260 bundles what changes the state at the front.
    const MOST: usize = 32;

    /// Reads a packet. `None` if it is malformed: no chunk, a length that is wrong, or a chunk that
    /// must be alone and is not (RFC 9260 section 6.10).
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let header: &[u8; 12] = bytes.first_chunk()?;
        let word = |bytes: &[u8], at: usize| {
            bytes
                .get(at..at + 4)
                .map(|word| u32::from_be_bytes([word[0], word[1], word[2], word[3]]))
        };
        let mut chunks = Self { tag: word(header, 4)?, ..Self::default() };
        let (mut rest, mut count) = (&bytes[12..], 0);
        while !rest.is_empty() && count < Self::MOST {
            let first: &[u8; 4] = rest.first_chunk()?;
            let length = usize::from(u16::from_be_bytes([first[2], first[3]]));
            if length < 4 || length > rest.len() {
                return None;
            }
            let kind = first[0];
            if kind < 16 {
                chunks.kinds |= 1 << kind;
            }
            match kind {
                1 | 2 => chunks.initiate = word(&rest[..length], 4)?,
                6 | 14 => chunks.reflected = first[1] & 1 != 0,
                _ => {}
            }
            count += 1;
            rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        }
        let alone = Self::INIT | Self::INIT_ACK | Self::SHUTDOWN_COMPLETE;
        let is_bundled_wrongly = chunks.kinds & alone != 0 && count != 1;
        (count > 0 && !is_bundled_wrongly).then_some(chunks)
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn segment(flags: u8, options: &[u8], data: usize) -> Vec<u8> {
        let header = wire::tcp::Header {
            sequence: 1000,
            acknowledgment: 2000,
            header_length: 20 + options.len() as u8,
            flags: TcpFlags(flags),
            window: 300,
            ..Default::default()
        };
        [&header.to_bytes()[..], options, &vec![0; data]].concat()
    }

    #[test]
    fn options_are_read() {
        let syn = segment(2, &[2, 4, 5, 180, 4, 2, 3, 3, 99, 1, 1, 0], 0);
        let read = Segment::parse(&syn).unwrap();
        assert_eq!((read.scale, read.length, read.window), (Some(14), 0, 300));
        let mut sack = vec![1, 1, 5, 18];
        for edge in [2100u32, 2200, 1500, 1900] {
            sack.extend(edge.to_be_bytes());
        }
        let read = Segment::parse(&segment(0x10, &sack, 5)).unwrap();
        assert_eq!((read.scale, read.sacked, read.length), (None, 200, 5));
        // Only a SYN has a scale.
        assert_eq!(Segment::parse(&segment(0x10, &[3, 3, 7, 0], 0)).unwrap().scale, None);
        for wrong in [&[8u8, 0, 0, 0][..], &[8, 1, 0, 0], &[8, 9, 0, 0], &[1, 1, 1, 8]] {
            assert_eq!(Segment::parse(&segment(0x10, wrong, 0)), None, "{wrong:?}");
        }
    }

    #[test]
    fn chunks_are_read() {
        let header = [0, 1, 0, 2, 0, 0, 0, 9, 0, 0, 0, 0];
        let packet = |chunks: &[u8]| Chunks::parse(&[&header[..], chunks].concat());
        let init = [1, 0, 0, 20, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let read = packet(&init).unwrap();
        assert_eq!((read.kinds, read.initiate, read.tag), (Chunks::INIT, 256, 9));
        assert_eq!(packet(&[&init[..], &[0, 0, 0, 4]].concat()), None);
        assert_eq!(packet(&[]), None);
        assert_eq!(packet(&[0, 0, 0, 3]), None);
        assert!(packet(&[6, 1, 0, 4]).unwrap().reflected);
        let read = packet(&[10, 0, 0, 5, 1, 0, 0, 0, 0, 0, 0, 4]).unwrap();
        assert_eq!(read.kinds, Chunks::COOKIE_ECHO | 1);
    }

    proptest! {
        #[test]
        fn no_bytes_are_too_strange(bytes: Vec<u8>, flags: u8, options: Vec<u8>) {
            for protocol in [6, 17, 132, 136, 1, 47] {
                Packet::parse(Protocol(protocol), &bytes);
            }
            let length = options.len().min(40) / 4 * 4;
            Packet::parse(Protocol::TCP, &segment(flags, &options[..length], 0));
        }
    }
}
