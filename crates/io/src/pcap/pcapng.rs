//! Blocks of a pcapng file (draft-ietf-opsawg-pcapng), little-endian, with nanoseconds.

/// An enhanced packet block, before it is written.
#[derive(Clone, Copy, Debug)]
pub struct EnhancedPacket<'a> {
    /// Which of the section's interfaces, from 0.
    pub interface: u32,
    /// Nanoseconds since 1970.
    pub time: u64,
    /// Length of the packet on the link, in bytes.
    pub length: u32,
    /// As much of it as there is.
    pub bytes: &'a [u8],
    /// Whether it leaves; otherwise it came in.
    pub is_outbound: bool,
    /// Packets that were lost since the one before.
    pub dropped: u64,
    /// What there is to say.
    pub comment: &'a str,
}

const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const STATISTICS: u32 = 5;
const PACKET: u32 = 6;

/// The link type of packets that begin with an IP header, as libpcap's DLT_RAW has it.
///
/// The registered number is 101, which libpcap (1.10.3) takes for the first interface of a file alone: it
/// compares those of further ones with 12, and refuses the file. It reads 12, and so does Wireshark.
const RAW: u32 = 12;

/// Options of every block.
const END: u16 = 0;
const COMMENT: u16 = 1;

/// Adds a section header block.
pub fn section(out: &mut Vec<u8>, application: &str) {
    const USER_APPLICATION: u16 = 4;
    block(out, SECTION, |out| {
        out.extend(0x1a2b_3c4d_u32.to_le_bytes());
        out.extend([1, 0, 0, 0]);
        // The section's length is not known.
        out.extend(u64::MAX.to_le_bytes());
        option(out, USER_APPLICATION, application.as_bytes());
        option(out, END, &[]);
    });
}

/// Adds an interface description block, of packets that begin with an IP header.
pub fn interface(out: &mut Vec<u8>, name: &str, snaplen: u32) {
    const NAME: u16 = 2;
    const RESOLUTION: u16 = 9;
    block(out, INTERFACE, |out| {
        out.extend(RAW.to_le_bytes());
        out.extend(snaplen.to_le_bytes());
        option(out, NAME, name.as_bytes());
        option(out, RESOLUTION, &[9]);
        option(out, END, &[]);
    });
}

/// Adds an enhanced packet block.
pub fn packet(out: &mut Vec<u8>, packet: &EnhancedPacket<'_>) {
    const FLAGS: u16 = 2;
    const DROPPED: u16 = 4;
    block(out, PACKET, |out| {
        out.extend(packet.interface.to_le_bytes());
        out.extend(((packet.time >> 32) as u32).to_le_bytes());
        out.extend((packet.time as u32).to_le_bytes());
        out.extend((packet.bytes.len() as u32).to_le_bytes());
        out.extend(packet.length.to_le_bytes());
        padded(out, packet.bytes);
        let direction: u32 = if packet.is_outbound { 2 } else { 1 };
        option(out, FLAGS, &direction.to_le_bytes());
        if packet.dropped > 0 {
            option(out, DROPPED, &packet.dropped.to_le_bytes());
        }
        option(out, COMMENT, packet.comment.as_bytes());
        option(out, END, &[]);
    });
}

/// Adds an interface statistics block: packets that were received, and those of them that were
/// lost.
pub fn statistics(
    out: &mut Vec<u8>,
    interface: u32,
    time: u64,
    (received, lost): (u64, u64),
    comment: Option<&str>,
) {
    const RECEIVED: u16 = 4;
    const LOST: u16 = 5;
    block(out, STATISTICS, |out| {
        out.extend(interface.to_le_bytes());
        out.extend(((time >> 32) as u32).to_le_bytes());
        out.extend((time as u32).to_le_bytes());
        if let Some(comment) = comment {
            option(out, COMMENT, comment.as_bytes());
        }
        option(out, RECEIVED, &received.to_le_bytes());
        option(out, LOST, &lost.to_le_bytes());
        option(out, END, &[]);
    });
}

/// A block has its length in front of and behind what is in it.
fn block(out: &mut Vec<u8>, kind: u32, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend(kind.to_le_bytes());
    out.extend([0; 4]);
    body(out);
    let length = ((out.len() - start + 4) as u32).to_le_bytes();
    out.extend(length);
    out[start + 4..start + 8].copy_from_slice(&length);
}

/// What is longer than an option may be is cut off.
fn option(out: &mut Vec<u8>, code: u16, value: &[u8]) {
    let value = &value[..value.len().min(usize::from(u16::MAX))];
    out.extend(code.to_le_bytes());
    out.extend((value.len() as u16).to_le_bytes());
    padded(out, value);
}

fn padded(out: &mut Vec<u8>, value: &[u8]) {
    out.extend(value);
    out.resize(out.len().next_multiple_of(4), 0);
}
