//! Reads capture files.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use packet::Time;

use super::blocks::{Interface, Order, Source};
use super::gzip::{self, Consumed};
use super::{CaptureError, LinkType, MAX_RECORD, Problem};

/// One captured packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// When it was captured: nanoseconds since 1970.
    pub time: Time,
    /// What was captured of it.
    pub bytes: &'a [u8],
    /// How long it was on the wire. More than `bytes` has means that the capture cut it off.
    pub original_length: u32,
    /// What it begins with.
    pub link: LinkType,
    /// Which of the section's interfaces it was captured on; 0 in pcap.
    pub interface: u32,
    /// Its place in the file; the first is 1.
    pub number: u64,
}

impl Record<'_> {
    /// Whether the capture cut it off.
    pub fn is_truncated(&self) -> bool {
        (self.bytes.len() as u64) < self.original_length.into()
    }
}

/// Reads a capture file packet by packet, from its begin to its end.
pub struct PcapReader {
    name: String,
    total: Option<u64>,
    /// Bytes read of a compressed file.
    consumed: Option<Consumed>,
    source: Source,
    format: Format,
    link: Option<LinkType>,
    /// If the record or block begins that is being read.
    begin: u64,
    packets: u64,
    /// The last packet's time, for pcapng's simple packet blocks, which have none.
    time: Time,
    bytes: Vec<u8>,
    /// Nothing follows: the file has ended or could not be read on.
    ended: bool,
}

enum Format {
    Pcap { order: Order, unit: u32, link: LinkType },
    Pcapng { order: Order, interfaces: Vec<Interface> },
}

/// What was read of a packet, besides its bytes.
struct Packet {
    original_length: u32,
    link: LinkType,
    interface: u32,
}

/// What a pcapng block was.
enum Block {
    Packet(Packet),
    Interface,
    Other,
}

/// Interfaces that one section may describe.
const MAX_INTERFACES: usize = 65_536;
/// Bytes that an interface's description may have.
const MAX_DESCRIPTION: u32 = 65_536;

const PCAP_MICROSECONDS: u32 = 0xa1b2_c3d4;
const PCAP_NANOSECONDS: u32 = 0xa1b2_3c4d;
const BYTE_ORDER: u32 = 0x1a2b_3c4d;

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE_DESCRIPTION: u32 = 1;
const OBSOLETE_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const ENHANCED_PACKET: u32 = 6;

impl PcapReader {
    /// Opens a file.
    ///
    /// # Errors
    /// If it cannot be opened or does not begin like a capture of a supported link type.
    pub fn open(path: &Path) -> Result<Self, CaptureError> {
        let name = path.display().to_string();
        match File::open(path).and_then(|file| Ok((file.metadata()?, file))) {
            Ok((metadata, file)) => {
                Self::new(name, Box::new(file), metadata.is_file().then_some(metadata.len()))
            }
            Err(error) => Err(CaptureError {
                file: name,
                offset: 0,
                packets: 0,
                problem: Problem::Read(error),
            }),
        }
    }

    /// Reads a capture called `name` from `input`, which has `total` bytes if that is known. It may be
    /// compressed by gzip; then offsets in errors are those of what is in it.
    ///
    /// # Errors
    /// If it does not begin like a capture of a supported link type.
    pub fn new(
        name: String,
        mut input: Box<dyn Read + Send>,
        total: Option<u64>,
    ) -> Result<Self, CaptureError> {
        let mut begin = Vec::new();
        let looked = input.by_ref().take(gzip::MAGIC.len() as u64).read_to_end(&mut begin);
        let (input, consumed) = gzip::expanded(begin, input);
        let mut reader = Self {
            name,
            total,
            consumed,
            source: Source::new(input),
            format: Format::Pcapng { order: Order::Little, interfaces: Vec::new() },
            link: None,
            begin: 0,
            packets: 0,
            time: Time::default(),
            bytes: Vec::new(),
            ended: false,
        };
        match looked.map_err(Problem::Read).and_then(|_| reader.read_begin()) {
            Ok(()) => Ok(reader),
            Err(problem) => Err(reader.error(problem)),
        }
    }

    /// The next packet, or `None` at the end of the file.
    ///
    /// # Errors
    /// If the file is damaged. There is no next packet after that.
    pub fn next_record(&mut self) -> Result<Option<Record<'_>>, CaptureError> {
        if self.ended {
            return Ok(None);
        }
        let packet = match &self.format {
            Format::Pcap { .. } => self.read_pcap_record(),
            Format::Pcapng { .. } => self.read_packet_block(),
        };
        match packet {
            Ok(Some(Packet { original_length, link, interface })) => {
                self.packets += 1;
                let (time, number) = (self.time, self.packets);
                Ok(Some(Record {
                    time,
                    bytes: &self.bytes,
                    original_length,
                    link,
                    interface,
                    number,
                }))
            }
            Ok(None) => {
                self.ended = true;
                Ok(None)
            }
            Err(problem) => {
                self.ended = true;
                Err(self.error(problem))
            }
        }
    }

    /// The link type: of the first interface, in pcapng. `None` if the file describes no
    /// interface, and so has no packets.
    pub fn link(&self) -> Option<LinkType> {
        self.link
    }

    /// The file's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Bytes read so far, and the file's size if that is known.
    pub fn progress(&self) -> (u64, Option<u64>) {
        (self.consumed.as_ref().map_or(self.source.offset, Consumed::read), self.total)
    }

    /// Reads up to where the first packet may come.
    fn read_begin(&mut self) -> Result<(), Problem> {
        let mut magic = [0; 4];
        self.source.fill(&mut magic, "file header")?;
        if u32::from_le_bytes(magic) == SECTION_HEADER {
            let order = self.read_section_header()?;
            self.format = Format::Pcapng { order, interfaces: Vec::new() };
            while self.link.is_none() {
                match self.read_block()? {
                    Some(Block::Packet(_) | Block::Interface | Block::Other) => {}
                    None => return Ok(()),
                }
            }
        } else {
            self.read_pcap_header(magic)?;
        }
        match self.link {
            Some(link) if link.kind().is_none() => Err(Problem::LinkType(link)),
            _ => Ok(()),
        }
    }

    fn read_pcap_header(&mut self, magic: [u8; 4]) -> Result<(), Problem> {
        let (order, unit) = match (u32::from_le_bytes(magic), u32::from_be_bytes(magic)) {
            (PCAP_MICROSECONDS, _) => (Order::Little, 1000),
            (_, PCAP_MICROSECONDS) => (Order::Big, 1000),
            (PCAP_NANOSECONDS, _) => (Order::Little, 1),
            (_, PCAP_NANOSECONDS) => (Order::Big, 1),
            _ => return Err(Problem::Magic(magic)),
        };
        let [[a, b, c, d], _zone, _accuracy, _snapshot, network] =
            self.source.words("file header")?;
        let (major, minor) = (order.u16([a, b]), order.u16([c, d]));
        // Before 2.3 a record's two lengths stood the other way round.
        if major != 2 || minor < 3 {
            return Err(Problem::Version(major, minor));
        }
        // The upper half tells of frame check sequences, which IP's own length makes harmless.
        let link = LinkType::from_number(order.u32(network) as u16);
        self.format = Format::Pcap { order, unit, link };
        self.link = Some(link);
        Ok(())
    }

    fn read_pcap_record(&mut self) -> Result<Option<Packet>, Problem> {
        let Format::Pcap { order, unit, link } = self.format else { return Ok(None) };
        self.begin = self.source.offset;
        let mut header = [[0; 4]; 4];
        if !self.source.fill_or_end(header.as_flattened_mut(), "record header")? {
            return Ok(None);
        }
        let [seconds, fraction, captured, original_length] = order.words(header);
        if captured > MAX_RECORD {
            return Err(Problem::RecordLength(captured));
        }
        self.source.read(&mut self.bytes, captured, "record")?;
        self.time =
            Time(u64::from(seconds) * 1_000_000_000 + u64::from(fraction) * u64::from(unit));
        Ok(Some(Packet { original_length, link, interface: 0 }))
    }

    /// Reads blocks up to the next with a packet.
    fn read_packet_block(&mut self) -> Result<Option<Packet>, Problem> {
        loop {
            match self.read_block()? {
                Some(Block::Packet(packet)) => return Ok(Some(packet)),
                Some(Block::Interface | Block::Other) => {}
                None => return Ok(None),
            }
        }
    }

    /// Reads a block, or `None` at the end of the file.
    fn read_block(&mut self) -> Result<Option<Block>, Problem> {
        self.begin = self.source.offset;
        let mut kind = [0; 4];
        if !self.source.fill_or_end(&mut kind, "block header")? {
            return Ok(None);
        }
        if u32::from_le_bytes(kind) == SECTION_HEADER {
            let order = self.read_section_header()?;
            self.format = Format::Pcapng { order, interfaces: Vec::new() };
            return Ok(Some(Block::Other));
        }
        let Format::Pcapng { order, .. } = self.format else { return Ok(None) };
        let kind = order.u32(kind);
        let [length] = order.words(self.source.words("block header")?);
        let least = 12
            + match kind {
                INTERFACE_DESCRIPTION => 8,
                OBSOLETE_PACKET | ENHANCED_PACKET => 20,
                SIMPLE_PACKET => 4,
                _ => 0,
            };
        if length < least || length % 4 != 0 {
            return Err(Problem::BlockLength { kind, length });
        }
        let body = length - 12;
        let block = match kind {
            INTERFACE_DESCRIPTION => self.read_interface(order, body)?,
            OBSOLETE_PACKET | ENHANCED_PACKET => {
                Block::Packet(self.read_stamped(kind, order, body)?)
            }
            SIMPLE_PACKET => Block::Packet(self.read_simple(order, body)?),
            _ => {
                self.source.skip(body.into(), "block")?;
                Block::Other
            }
        };
        self.read_block_end(order, length)?;
        Ok(Some(block))
    }

    /// Reads a section header behind its block type. Returns the section's byte order.
    fn read_section_header(&mut self) -> Result<Order, Problem> {
        let [length, magic, version] = self.source.words("section header")?;
        let order = match (u32::from_le_bytes(magic), u32::from_be_bytes(magic)) {
            (BYTE_ORDER, _) => Order::Little,
            (_, BYTE_ORDER) => Order::Big,
            (other, _) => return Err(Problem::ByteOrder(other)),
        };
        let [a, b, c, d] = version;
        let (major, minor) = (order.u16([a, b]), order.u16([c, d]));
        if major != 1 {
            return Err(Problem::Version(major, minor));
        }
        let length = order.u32(length);
        if length < 28 || length % 4 != 0 {
            return Err(Problem::BlockLength { kind: SECTION_HEADER, length });
        }
        self.source.skip(u64::from(length) - 20, "section header")?;
        self.read_block_end(order, length)?;
        Ok(order)
    }

    fn read_interface(&mut self, order: Order, body: u32) -> Result<Block, Problem> {
        if body > MAX_DESCRIPTION {
            return Err(Problem::BlockLength { kind: INTERFACE_DESCRIPTION, length: body + 12 });
        }
        self.source.read(&mut self.bytes, body, "interface description")?;
        let interface = Interface::parse(order, &self.bytes)?;
        self.link.get_or_insert(interface.link);
        let Format::Pcapng { interfaces, .. } = &mut self.format else { return Ok(Block::Other) };
        if interfaces.len() >= MAX_INTERFACES {
            return Err(Problem::Interfaces(MAX_INTERFACES));
        }
        interfaces.push(interface);
        Ok(Block::Interface)
    }

    /// Reads an enhanced packet block or the obsolete packet block, which differ in their first
    /// word.
    fn read_stamped(&mut self, kind: u32, order: Order, body: u32) -> Result<Packet, Problem> {
        let header: [[u8; 4]; 5] = self.source.words("packet block")?;
        let [whole, high, low, captured, original_length] = order.words(header);
        let [a, b, _, _] = header[0];
        let id = if kind == ENHANCED_PACKET { whole } else { order.u16([a, b]).into() };
        let interface = self.interface(id)?;
        self.time = interface.clock.time(u64::from(high) << 32 | u64::from(low));
        self.read_data(captured, body - 20)?;
        Ok(Packet { original_length, link: interface.link, interface: id })
    }

    fn read_simple(&mut self, order: Order, body: u32) -> Result<Packet, Problem> {
        let [original_length] = order.words(self.source.words("packet block")?);
        let interface = self.interface(0)?;
        let most =
            if interface.snapshot_length == 0 { u32::MAX } else { interface.snapshot_length };
        self.read_data(original_length.min(most).min(body - 4), body - 4)?;
        Ok(Packet { original_length, link: interface.link, interface: 0 })
    }

    /// Reads the `captured` bytes of a packet, and over the padding and options behind, `room`
    /// bytes together.
    fn read_data(&mut self, captured: u32, room: u32) -> Result<(), Problem> {
        if captured > MAX_RECORD {
            return Err(Problem::RecordLength(captured));
        }
        if captured > room {
            return Err(Problem::PacketLength(captured, room));
        }
        self.source.read(&mut self.bytes, captured, "packet block")?;
        self.source.skip((room - captured).into(), "packet block")
    }

    fn read_block_end(&mut self, order: Order, length: u32) -> Result<(), Problem> {
        let [end] = order.words(self.source.words("block")?);
        if end == length { Ok(()) } else { Err(Problem::BlockEnd(length, end)) }
    }

    fn interface(&self, id: u32) -> Result<Interface, Problem> {
        let Format::Pcapng { interfaces, .. } = &self.format else {
            return Err(Problem::Interface(id, 0));
        };
        interfaces.get(id as usize).copied().ok_or(Problem::Interface(id, interfaces.len()))
    }

    fn error(&self, problem: Problem) -> CaptureError {
        CaptureError { file: self.name.clone(), offset: self.begin, packets: self.packets, problem }
    }
}

impl fmt::Debug for PcapReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PcapReader")
            .field("name", &self.name)
            .field("packets", &self.packets)
            .finish_non_exhaustive()
    }
}
