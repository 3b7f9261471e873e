//! A port over capture files.

use std::io;
use std::sync::Arc;

use packet::{Batch, LinkKind, MAX_LARGE_FRAME, Pool, Port, PortError, PortStatistics, Time};
use wire::{Mac, PortId, ethernet};

use super::{CaptureError, LinkType, PcapReader, PcapWriter, strip};
use crate::error::OpenError;
use crate::interface::is_too_long;
use crate::room::Room;

/// What a [`PcapPort`] says of itself.
#[derive(Clone, Debug)]
pub struct PcapOptions {
    /// The name users know it by.
    pub name: String,
    /// What its packets are stamped with.
    pub id: PortId,
    /// What frames begin with.
    pub link: LinkKind,
    /// Its Ethernet address.
    pub mac: Mac,
    /// The largest IP packet in bytes that it sends. Longer ones are refused and counted, as an
    /// interface would.
    pub mtu: u16,
    /// Whether it takes unicast frames for whatever Ethernet address, as if they were for its own.
    pub any_mac: bool,
    /// Whether it passes over the VLAN tags of frames.
    pub skip_vlan: bool,
}

/// Captured packets that were not handed to the gateway, by reason. Together they are the port's
/// `rx_errors`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Skipped {
    /// The capture has only the packet's first bytes.
    pub truncated: u64,
    /// The packet is longer than [`MAX_LARGE_FRAME`].
    pub too_long: u64,
    /// The packet's link type is not the port's.
    pub link_type: u64,
    /// It is no IP packet, behind a link header that only captures have.
    pub not_ip: u64,
}

/// Receives the packets of a capture file, each when its time has come, and writes what is sent to
/// another.
///
/// Time never runs backwards on a port: a packet that the capture puts before its predecessor is
/// received at its predecessor's time.
#[derive(Debug)]
pub struct PcapPort {
    options: PcapOptions,
    reader: Option<PcapReader>,
    writer: Option<PcapWriter>,
    next: Box<[u8]>,
    /// Length of the packet in `next`, if there is one.
    next_length: Option<usize>,
    /// The next packet's time, or that of the last one.
    time: Time,
    failure: Option<CaptureError>,
    skipped: Skipped,
    statistics: Arc<PortStatistics>,
}

impl PcapPort {
    /// A port that receives what `reader` reads, or nothing, and writes what it sends to `writer`,
    /// or nowhere.
    ///
    /// # Errors
    /// If the files' link type is not the port's.
    pub fn new(
        options: PcapOptions,
        reader: Option<PcapReader>,
        writer: Option<PcapWriter>,
    ) -> Result<Self, OpenError> {
        let read = reader.as_ref().and_then(PcapReader::link).and_then(LinkType::kind);
        let written = writer.as_ref().map(PcapWriter::link);
        for (kind, what) in [
            (read, "the capture to read is of another link type"),
            (written, "the capture to write is of another link type"),
        ] {
            if let Some(kind) = kind.filter(|kind| *kind != options.link) {
                let advice = format!("the port is {:?}, the file {kind:?}", options.link);
                return Err(OpenError::refused(&options.name, what, advice));
            }
        }
        let mut port = Self {
            options,
            reader,
            writer,
            next: vec![0; MAX_LARGE_FRAME].into(),
            next_length: None,
            time: Time::default(),
            failure: None,
            skipped: Skipped::default(),
            statistics: Arc::default(),
        };
        port.advance();
        Ok(port)
    }

    /// When the next packet is due, or `None` if there are no more. With several ports, the
    /// replay gives each its packets in the order of these times.
    ///
    /// A capture that turns out to be damaged is due once more, at its last packet's time, and
    /// [`receive`](Port::receive) returns the error.
    pub fn next_time(&self) -> Option<Time> {
        (self.next_length.is_some() || self.failure.is_some()).then_some(self.time)
    }

    /// Packets are said to have come by this port from now on. Captures may be opened before the
    /// ports have their numbers.
    pub fn set_id(&mut self, id: PortId) {
        self.options.id = id;
    }

    /// Bytes of the input read so far, and its size if that is known.
    pub fn progress(&self) -> (u64, Option<u64>) {
        self.reader.as_ref().map_or((0, Some(0)), PcapReader::progress)
    }

    /// Packets that were not handed to the gateway so far.
    pub fn skipped(&self) -> Skipped {
        self.skipped
    }

    /// Writes what is buffered and closes both files.
    ///
    /// # Errors
    /// If writing fails.
    pub fn finish(mut self) -> Result<(), PortError> {
        let result = self.writer.take().map_or(Ok(()), PcapWriter::finish);
        result.map_err(|source| self.write_error(source))
    }

    /// Reads on to the next packet that can be received.
    fn advance(&mut self) {
        self.next_length = None;
        let Some(reader) = &mut self.reader else { return };
        loop {
            let record = match reader.next_record() {
                Ok(Some(record)) => record,
                Ok(None) => return,
                Err(error) => {
                    self.failure = Some(error);
                    return;
                }
            };
            let reason = if record.is_truncated() {
                self.skipped.truncated += 1;
                "truncated by the capture"
            } else if record.link.kind() != Some(self.options.link) {
                self.skipped.link_type += 1;
                "of another link type"
            } else if let Some(bytes) = record.link.payload(record.bytes, self.options.skip_vlan) {
                if let Some(room) = self.next.get_mut(..bytes.len()) {
                    room.copy_from_slice(bytes);
                    self.time = self.time.max(record.time);
                    self.next_length = Some(address(&mut self.next, bytes.len(), &self.options));
                    return;
                }
                self.skipped.too_long += 1;
                "longer than a buffer"
            } else {
                self.skipped.not_ip += 1;
                "no IP packet"
            };
            self.statistics.rx_errors.add(1);
            tracing::debug!(
                port = self.options.name,
                packet = record.number,
                reason,
                "captured packet skipped"
            );
        }
    }

    fn write_error(&self, source: io::Error) -> PortError {
        PortError { port: self.options.name.clone(), what: "cannot write the capture", source }
    }
}

/// Makes a captured frame, which is the first `length` bytes of `frame`, one that the port takes, as
/// far as `options` say so. Returns its length.
fn address(frame: &mut [u8], length: usize, options: &PcapOptions) -> usize {
    if options.link != LinkKind::Ethernet {
        return length;
    }
    let length = if options.skip_vlan { strip::untag(frame, length) } else { length };
    // The lowest bit of the first byte tells of a group (IEEE 802).
    if options.any_mac
        && length >= ethernet::HEADER_LENGTH
        && frame[0] & 1 == 0
        && let Some(destination) = frame.first_chunk_mut()
    {
        *destination = options.mac.0;
    }
    length
}

impl Port for PcapPort {
    fn name(&self) -> &str {
        &self.options.name
    }

    fn link(&self) -> LinkKind {
        self.options.link
    }

    fn mac(&self) -> Mac {
        self.options.mac
    }

    fn mtu(&self) -> u16 {
        self.options.mtu
    }

    /// Receives the packets that were captured up to `now`.
    fn receive(
        &mut self,
        now: Time,
        pool: &mut Pool,
        batch: &mut Batch,
    ) -> Result<usize, PortError> {
        let (before, mut bytes) = (batch.len(), 0);
        while let Some(length) = self.next_length.filter(|_| self.time <= now && !batch.is_full()) {
            match Room::of(pool, batch, length) {
                Room::Buffer(mut packet) => {
                    // It is long enough.
                    let _ = packet.fill(&self.next[..length]);
                    packet.set_port(self.options.id);
                    bytes += length as u64;
                    batch.push(packet);
                }
                Room::Later => break,
                Room::Missed => self.statistics.rx_missed.add(1),
                Room::TooLong => {
                    self.skipped.too_long += 1;
                    self.statistics.rx_errors.add(1);
                }
            }
            self.advance();
        }
        let received = batch.len() - before;
        self.statistics.rx_packets.add(received as u64);
        self.statistics.rx_bytes.add(bytes);
        // What came before the damage is handed over first.
        if received == 0
            && self.next_length.is_none()
            && let Some(failure) = self.failure.take()
        {
            let source = io::Error::new(io::ErrorKind::InvalidData, failure);
            return Err(PortError {
                port: self.options.name.clone(),
                what: "cannot read the capture",
                source,
            });
        }
        Ok(received)
    }

    fn transmit(&mut self, now: Time, pool: &mut Pool, batch: &mut Batch) -> Result<(), PortError> {
        let (mut packets, mut bytes, mut errors) = (0, 0, 0);
        let (link, mtu) = (self.options.link, self.options.mtu);
        let mut result = Ok(());
        for packet in batch.drain(..) {
            if is_too_long(link, mtu, packet.bytes()) {
                self.statistics.tx_too_long.add(1);
                pool.give(packet);
                continue;
            }
            let written = match &mut self.writer {
                Some(writer) if result.is_ok() => writer.write(now, packet.bytes()).map(|()| true),
                Some(_) => Ok(false),
                None => Ok(true),
            };
            match written {
                Ok(true) => {
                    packets += 1;
                    bytes += packet.len() as u64;
                }
                Ok(false) => errors += 1,
                Err(error) => {
                    errors += 1;
                    result = Err(error);
                }
            }
            pool.give(packet);
        }
        self.statistics.tx_packets.add(packets);
        self.statistics.tx_bytes.add(bytes);
        self.statistics.tx_errors.add(errors);
        result.map_err(|source| self.write_error(source))
    }

    fn statistics(&self) -> &Arc<PortStatistics> {
        &self.statistics
    }
}
