//! Copies of packets for taps.
//!
//! A worker writes records into a ring of bytes, and another thread takes them out. A record that
//! finds no room is lost, and its tap counts it.

use core::fmt;

use packet::{DropReason, Time};
use rtrb::{Consumer, Producer, RingBuffer};
use tables::TapSet;
use wire::Origin;

use crate::batch::{Known, Sealing};
use crate::stage::apply::Applier;

/// Which way a copied packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum TapDirection {
    /// It came in, or was decrypted.
    Inbound = 1,
    /// It leaves.
    Outbound = 2,
    /// Neither: the record is no copy. Its comment is the trace of a packet, and `tap` the number of
    /// the trace that wants it. Its bytes are the tickets of what still waits of the packet, as
    /// little-endian numbers of 64 bits: see [`TapRecord::tickets`].
    Traced = 3,
    /// The record is no copy. Its comment is what became of a traced packet that waited, and `tap` its
    /// ticket. Where packets are handed to other workers, it may come before the packet's trace.
    Ended = 4,
}

/// A copy of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TapRecord<'a> {
    /// [`tables::TapSpec::id`] of the tap that wants it.
    pub tap: u64,
    /// When its batch was handled.
    pub time: Time,
    /// Which way it goes.
    pub direction: TapDirection,
    /// The port that it came or leaves by, or `vrf` and its name.
    pub interface: &'a str,
    /// The VRF and what was decided, for people.
    pub comment: &'a str,
    /// Length of the packet in bytes.
    pub length: u32,
    /// Its beginning, from the IP header on.
    pub bytes: &'a [u8],
}

impl TapRecord<'_> {
    /// Of a trace: the tickets of what still waits.
    pub fn tickets(&self) -> impl Iterator<Item = u64> {
        let tickets = self.bytes.chunks_exact(8);
        tickets.map(|ticket| u64::from_le_bytes(*ticket.first_chunk().unwrap_or(&[0; 8])))
    }
}

/// A worker's end of a ring of copies.
#[derive(Debug)]
pub struct TapWriter(Producer<u8>);

/// The other end.
#[derive(Debug)]
pub struct TapReader {
    ring: Consumer<u8>,
    record: Vec<u8>,
}

/// A ring of this many bytes.
pub fn tap_ring(bytes: usize) -> (TapWriter, TapReader) {
    let (producer, ring) = RingBuffer::new(bytes);
    (TapWriter(producer), TapReader { ring, record: Vec::new() })
}

/// Bytes of a record before the names: its length, the tap, the time, the packet's length, the
/// lengths of interface and comment, the direction.
const HEADER: usize = 4 + 8 + 8 + 4 + 2 + 2 + 1;

impl TapWriter {
    /// Whether there was room.
    pub(crate) fn push(&mut self, record: &TapRecord<'_>) -> bool {
        let parts = [record.interface.as_bytes(), record.comment.as_bytes(), record.bytes];
        let total = HEADER + parts.iter().map(|part| part.len()).sum::<usize>();
        if self.0.slots() < total {
            return false;
        }
        let mut header = [0; HEADER];
        header[..4].copy_from_slice(&(total as u32).to_le_bytes());
        header[4..12].copy_from_slice(&record.tap.to_le_bytes());
        header[12..20].copy_from_slice(&record.time.0.to_le_bytes());
        header[20..24].copy_from_slice(&record.length.to_le_bytes());
        header[24..26].copy_from_slice(&(parts[0].len() as u16).to_le_bytes());
        header[26..28].copy_from_slice(&(parts[1].len() as u16).to_le_bytes());
        header[28] = record.direction as u8;
        // There is room for all of them.
        let mut all = [&header[..], parts[0], parts[1], parts[2]].into_iter();
        all.all(|part| self.0.push_entire_slice(part).is_ok())
    }
}

impl TapReader {
    /// The next copy, if one is there.
    pub fn read(&mut self) -> Option<TapRecord<'_>> {
        let total = {
            let chunk = self.ring.read_chunk(4).ok()?;
            let (first, second) = chunk.as_slices();
            let mut length = [0; 4];
            let bytes = first.iter().chain(second);
            length.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
            u32::from_le_bytes(length) as usize
        };
        // Its parts come one after the other.
        if self.ring.slots() < total {
            return None;
        }
        self.record.resize(total, 0);
        self.ring.pop_entire_slice(&mut self.record).ok()?;
        let (header, rest) = self.record.split_first_chunk::<HEADER>()?;
        let number = |at: usize| u64::from_le_bytes(*header[at..].first_chunk().unwrap_or(&[0; 8]));
        let (interface, rest) = rest.split_at_checked((number(20) >> 32) as u16 as usize)?;
        let (comment, bytes) = rest.split_at_checked((number(20) >> 48) as usize)?;
        Some(TapRecord {
            tap: number(4),
            time: Time(number(12)),
            direction: match header[28] {
                2 => TapDirection::Outbound,
                3 => TapDirection::Traced,
                4 => TapDirection::Ended,
                _ => TapDirection::Inbound,
            },
            interface: str::from_utf8(interface).unwrap_or("?"),
            comment: str::from_utf8(comment).unwrap_or("?"),
            length: number(20) as u32,
            bytes,
        })
    }
}

/// What is seen of a packet.
#[derive(Clone, Copy)]
enum Seen {
    Ingress,
    Egress,
    /// Encrypted.
    Encrypted,
    Dropped(DropReason),
}

impl Applier<'_, '_> {
    fn tap_set(&self, known: &Known) -> TapSet {
        known.decision.extension().map_or(TapSet::NONE, |number| self.extensions.get(number).taps)
    }

    /// A packet as it came.
    #[cold]
    pub(crate) fn tap_ingress(&mut self, packet: &[u8], known: &Known) {
        self.tap(self.tap_set(known).ingress, packet, known, Seen::Ingress);
    }

    /// A packet that leaves, or is to be encrypted.
    #[cold]
    pub(crate) fn tap_egress(&mut self, packet: &[u8], known: &Known) {
        self.tap(self.tap_set(known).egress, packet, known, Seen::Egress);
    }

    /// A packet that is dropped, for whatever reason.
    #[cold]
    pub(crate) fn tap_drop(&mut self, packet: &[u8], known: &Known, reason: DropReason) {
        self.tap(self.tap_set(known).drop, packet, known, Seen::Dropped(reason));
    }

    /// Whether somebody wants the packets after they were encrypted.
    pub(crate) fn taps_encrypted(&self, known: &Known) -> bool {
        self.tap_set(known).encrypted != 0
    }

    /// Packets of one flow that were encrypted.
    #[cold]
    pub(crate) fn tap_encrypted(&mut self, sealed: &[Sealing], known: &Known) {
        let set = self.tap_set(known).encrypted;
        // One that could not be encrypted was emptied.
        for item in sealed.iter().filter(|item| !item.packet.is_empty()) {
            self.tap(set, item.packet.bytes(), known, Seen::Encrypted);
        }
    }

    /// Copies a packet for the taps of a set.
    #[cold]
    fn tap(&mut self, set: u32, packet: &[u8], known: &Known, seen: Seen) {
        if set == 0 {
            return;
        }
        let (objects, now) = (self.neighbours.outputs.objects, self.neighbours.outputs.now);
        // Made once, if somebody wants it.
        let mut texts = None;
        for tap in objects.taps_in(set).filter(|tap| tap.wants(packet, now)) {
            let (interface, comment) = texts.get_or_insert_with(|| {
                let (mut interface, mut comment) = (Text::<80>::new(), Text::<320>::new());
                let (vrf, verdict) = objects.words(known.key.vrf, &known.decision);
                // What is inside of a tunnel is on no port but an xfrm link.
                let port = match (seen, known.key.origin) {
                    (Seen::Ingress | Seen::Dropped(_), Origin::Port(port)) => objects.port(port),
                    (Seen::Ingress | Seen::Dropped(_), _) => objects.entry_link(&known.key),
                    (Seen::Egress, _) if is_inner(seen, known) => {
                        objects.exit_link(&known.decision)
                    }
                    (Seen::Egress | Seen::Encrypted, _) => objects.exit_port(&known.decision),
                };
                // What is too long is cut off.
                let _ = match port {
                    Some(port) => fmt::write(&mut interface, format_args!("{}", port.spec.name)),
                    None => fmt::write(&mut interface, format_args!("vrf {vrf}")),
                };
                let _ = fmt::write(&mut comment, format_args!("vrf {vrf}; {verdict}"));
                if let Seen::Dropped(reason) = seen {
                    let reason = reason.name();
                    let _ = fmt::write(&mut comment, format_args!("; dropped: {reason}"));
                }
                (interface, comment)
            });
            let kept = packet.len().min(tap.spec.snaplen as usize);
            let direction = match seen {
                Seen::Ingress | Seen::Dropped(_) => TapDirection::Inbound,
                Seen::Egress | Seen::Encrypted => TapDirection::Outbound,
            };
            let record = TapRecord {
                tap: tap.spec.id,
                time: now,
                direction,
                interface: interface.as_str(),
                comment: comment.as_str(),
                length: packet.len() as u32,
                bytes: &packet[..kept],
            };
            if !self.taps.as_mut().is_some_and(|writer| writer.push(&record)) {
                tap.meter.count_lost();
            }
        }
    }
}

/// Whether it is the packet inside of a tunnel, which is on no port.
fn is_inner(seen: Seen, known: &Known) -> bool {
    use crate::decision::Verdict;
    matches!(seen, Seen::Egress) && matches!(known.decision.verdict(), Verdict::Protect(..))
}

/// A text of bounded length.
struct Text<const MOST: usize> {
    bytes: [u8; MOST],
    length: usize,
}

impl<const MOST: usize> Text<MOST> {
    const fn new() -> Self {
        Self { bytes: [0; MOST], length: 0 }
    }

    fn as_str(&self) -> &str {
        str::from_utf8(&self.bytes[..self.length]).unwrap_or("?")
    }
}

impl<const MOST: usize> fmt::Write for Text<MOST> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = floor_char_boundary(text, MOST - self.length);
        self.bytes[self.length..self.length + end].copy_from_slice(&text.as_bytes()[..end]);
        self.length += end;
        if end == text.len() { Ok(()) } else { Err(fmt::Error) }
    }
}

/// The last place up to `most` where a text may be cut.
pub(crate) fn floor_char_boundary(text: &str, most: usize) -> usize {
    (0..=most.min(text.len())).rfind(|end| text.is_char_boundary(*end)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::fmt::Write;

    #[test]
    fn what_was_written_is_read_and_what_finds_no_room_is_not() {
        let (mut writer, mut reader) = tap_ring(300);
        let bytes: Vec<u8> = (0..100).collect();
        let record = |tap| TapRecord {
            tap,
            time: Time(u64::MAX - tap),
            direction: TapDirection::Outbound,
            interface: "wan.100",
            comment: "vrf blue; drop",
            length: 1500,
            bytes: &bytes,
        };
        assert_eq!(reader.read(), None);
        // Around the end of the ring many times.
        for tap in 0..100 {
            assert!(writer.push(&record(tap)));
            assert!(writer.push(&record(tap + 1)));
            assert!(!writer.push(&record(9)));
            assert_eq!(reader.read(), Some(record(tap)));
            assert_eq!(reader.read(), Some(record(tap + 1)));
            assert_eq!(reader.read(), None);
        }
    }

    #[test]
    fn a_text_is_cut_between_characters() {
        let mut text = Text::<5>::new();
        assert!(text.write_str("abc").is_ok());
        assert!(text.write_str("dé").is_err());
        assert_eq!(text.as_str(), "abcd");
    }
}
