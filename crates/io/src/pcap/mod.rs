//! Capture files, as input and as output.
//!
//! [`PcapReader`] reads pcap (micro- and nanoseconds, both byte orders) and pcapng (several
//! sections and interfaces, any clock resolution), compressed by gzip or not. [`PcapWriter`] writes
//! pcap with nanoseconds, and writes the same bytes for the same packets and times. [`PcapPort`]
//! makes a [`packet::Port`] of a reader and a writer.
//!
//! Formats: draft-ietf-opsawg-pcap and draft-ietf-opsawg-pcapng. Memory is bounded whatever a file
//! claims: at most one record of [`MAX_RECORD`] bytes and the interfaces of one section are held.

mod blocks;
mod gzip;
pub mod pcapng;
mod port;
mod reader;
mod strip;
mod writer;

use std::fmt;
use std::io;

use packet::LinkKind;
use thiserror::Error;

pub use port::{PcapOptions, PcapPort, Skipped};
pub use reader::{PcapReader, Record};
pub use writer::PcapWriter;

/// The most bytes a captured packet may have: the largest snapshot length of libpcap.
pub const MAX_RECORD: u32 = 262_144;

/// What a captured packet begins with: those of IANA's link types (LINKTYPE_*) that a gateway has a
/// use for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkType {
    /// 1: an Ethernet header.
    Ethernet,
    /// 101, and 12 and 14 as some systems write it: an IPv4 or IPv6 header.
    Raw,
    /// 228: an IPv4 header.
    Ipv4,
    /// 229: an IPv6 header.
    Ipv6,
    /// 0: BSD loopback, the address family in the byte order of the machine that has captured.
    Null,
    /// 108: OpenBSD's loopback, the address family in the network's byte order.
    Loop,
    /// 113: Linux cooked, as captured on all interfaces together.
    LinuxSll,
    /// 276: Linux cooked, version 2.
    LinuxSll2,
    /// Any other.
    Unsupported(u16),
}

impl LinkType {
    /// The link type with this number.
    pub const fn from_number(number: u16) -> Self {
        match number {
            1 => Self::Ethernet,
            12 | 14 | 101 => Self::Raw,
            228 => Self::Ipv4,
            229 => Self::Ipv6,
            0 => Self::Null,
            108 => Self::Loop,
            113 => Self::LinuxSll,
            276 => Self::LinuxSll2,
            other => Self::Unsupported(other),
        }
    }

    /// The kind of port whose frames these are, or `None` if the link type is not supported. What only
    /// captures have in front of an IP packet is taken off.
    pub const fn kind(self) -> Option<LinkKind> {
        match self {
            Self::Ethernet => Some(LinkKind::Ethernet),
            Self::Raw
            | Self::Ipv4
            | Self::Ipv6
            | Self::Null
            | Self::Loop
            | Self::LinuxSll
            | Self::LinuxSll2 => Some(LinkKind::Ip),
            Self::Unsupported(_) => None,
        }
    }
}

impl LinkType {
    /// The IP packet behind the header that only captures have, or the frame as it is if it has none.
    /// `None` if it is no IP packet. With `skip_vlan`, VLAN tags in front of the packet are passed
    /// over; those of an Ethernet frame stay.
    pub fn payload(self, bytes: &[u8], skip_vlan: bool) -> Option<&[u8]> {
        strip::payload(self, bytes, skip_vlan)
    }
}

impl fmt::Display for LinkType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ethernet => f.write_str("Ethernet (1)"),
            Self::Raw => f.write_str("raw IP (101)"),
            Self::Ipv4 => f.write_str("raw IPv4 (228)"),
            Self::Ipv6 => f.write_str("raw IPv6 (229)"),
            Self::Null => f.write_str("BSD loopback (0)"),
            Self::Loop => f.write_str("OpenBSD loopback (108)"),
            Self::LinuxSll => f.write_str("Linux cooked (113)"),
            Self::LinuxSll2 => f.write_str("Linux cooked v2 (276)"),
            Self::Unsupported(105) => f.write_str("802.11 (105)"),
            Self::Unsupported(127) => f.write_str("802.11 with radiotap (127)"),
            Self::Unsupported(other) => write!(f, "{other}"),
        }
    }
}

/// A capture file cannot be read on, where and why.
#[derive(Debug, Error)]
#[error("{file}: at byte {offset}, after packet {packets}: {problem}")]
pub struct CaptureError {
    /// The file's name.
    pub file: String,
    /// If the header, record or block begins that is wrong.
    pub offset: u64,
    /// Packets that came before it.
    pub packets: u64,
    /// What is wrong.
    #[source]
    pub problem: Problem,
}

/// What is said of a file that is compressed, otherwise than by gzip.
fn compressed(begin: &[u8; 4]) -> String {
    let by = match begin {
        [0x28, 0xb5, 0x2f, 0xfd] => "zstd",
        [0xfd, b'7', b'z', b'X'] => "xz",
        [b'B', b'Z', b'h', _] => "bzip2",
        [0x04, 0x22, 0x4d, 0x18] => "lz4",
        _ => return String::new(),
    };
    format!(", as what {by} compresses does; {by} -d expands it")
}

/// What is wrong with a capture file.
#[derive(Debug, Error)]
pub enum Problem {
    /// The system could not read it.
    #[error("cannot read: {0}")]
    Read(#[source] io::Error),
    /// It does not begin like a capture.
    #[error("neither pcap nor pcapng: it begins with {0:02x?}{by}", by = compressed(.0))]
    Magic([u8; 4]),
    /// A version that is not known.
    #[error("format version {0}.{1} is not supported")]
    Version(u16, u16),
    /// It ends inside a header, record or block.
    #[error("the file ends inside this {0}: it was cut off")]
    End(&'static str),
    /// A link type that is not supported.
    #[error(
        "link type {0} is not supported: Ethernet (1), raw IP (101), BSD loopback (0) and Linux cooked \
        (113, 276) are"
    )]
    LinkType(LinkType),
    /// A record longer than any that may be.
    #[error(
        "a record of {0} bytes is longer than any packet ({MAX_RECORD} bytes): the file is damaged"
    )]
    RecordLength(u32),
    /// A pcapng packet that is longer than its block.
    #[error("a packet of {0} bytes in a block with room for {1}")]
    PacketLength(u32, u32),
    /// A pcapng block whose length cannot be.
    #[error("a block of type {kind:#010x} says it is {length} bytes long, which it cannot be")]
    BlockLength {
        /// The block's type.
        kind: u32,
        /// Its length.
        length: u32,
    },
    /// A pcapng block whose two lengths differ.
    #[error("a block says at its begin that it is {0} bytes long and at its end {1}")]
    BlockEnd(u32, u32),
    /// The byte-order magic of a section is neither way round.
    #[error("the section's byte-order magic is {0:#010x}")]
    ByteOrder(u32),
    /// A packet of an interface that was not described.
    #[error("a packet of interface {0}, and {1} are described")]
    Interface(u32, usize),
    /// More interfaces than there is memory for.
    #[error("more than {0} interfaces in one section")]
    Interfaces(usize),
    /// An option runs past its block.
    #[error("option {0} runs past the end of its block")]
    Option(u16),
}

#[cfg(test)]
mod tests;
