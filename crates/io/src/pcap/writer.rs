//! Writes capture files.

use std::fmt;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use packet::{LinkKind, Time};

use super::MAX_RECORD;

/// Writes a pcap file with nanoseconds, little-endian. The same packets at the same times make the
/// same bytes.
///
/// Writing is buffered: [`PcapWriter::finish`] or [`PcapWriter::flush`] writes the rest and says
/// whether that worked; dropping the writer writes it and cannot say.
pub struct PcapWriter {
    output: BufWriter<Box<dyn Write + Send>>,
    link: LinkKind,
}

impl PcapWriter {
    /// Makes a file, or empties the one that is there.
    ///
    /// # Errors
    /// If that, or writing the header, fails.
    pub fn create(path: &Path, link: LinkKind) -> io::Result<Self> {
        Self::new(Box::new(File::create(path)?), link)
    }

    /// Writes to `output`.
    ///
    /// # Errors
    /// If writing the header fails.
    pub fn new(output: Box<dyn Write + Send>, link: LinkKind) -> io::Result<Self> {
        let mut output = BufWriter::with_capacity(1 << 18, output);
        let network: u32 = match link {
            LinkKind::Ethernet => 1,
            LinkKind::Ip => 101,
        };
        output.write_all(&0xa1b2_3c4d_u32.to_le_bytes())?;
        output.write_all(&[2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0])?;
        output.write_all(&MAX_RECORD.to_le_bytes())?;
        output.write_all(&network.to_le_bytes())?;
        Ok(Self { output, link })
    }

    /// What the packets begin with.
    pub fn link(&self) -> LinkKind {
        self.link
    }

    /// Writes one packet, captured at `time` (nanoseconds since 1970).
    ///
    /// # Errors
    /// If writing fails, the time is after 2106 (the format's seconds have 32 bits), or the
    /// packet is longer than [`MAX_RECORD`].
    pub fn write(&mut self, time: Time, packet: &[u8]) -> io::Result<()> {
        const SECOND: u64 = 1_000_000_000;
        let invalid = |what| io::Error::new(io::ErrorKind::InvalidInput, what);
        let seconds = u32::try_from(time.0 / SECOND)
            .map_err(|_| invalid("a pcap file cannot hold times after the year 2106"))?;
        let length = u32::try_from(packet.len())
            .ok()
            .filter(|length| *length <= MAX_RECORD)
            .ok_or_else(|| invalid("the packet is longer than a pcap record may be"))?;
        let header = [seconds, (time.0 % SECOND) as u32, length, length].map(u32::to_le_bytes);
        self.output.write_all(header.as_flattened())?;
        self.output.write_all(packet)
    }

    /// Writes what is buffered.
    ///
    /// # Errors
    /// If writing fails.
    pub fn flush(&mut self) -> io::Result<()> {
        self.output.flush()
    }

    /// Writes what is buffered and closes the file.
    ///
    /// # Errors
    /// If writing fails.
    pub fn finish(mut self) -> io::Result<()> {
        self.flush()
    }
}

impl fmt::Debug for PcapWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PcapWriter").field("link", &self.link).finish_non_exhaustive()
    }
}
