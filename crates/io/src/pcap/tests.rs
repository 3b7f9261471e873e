use std::io::{Cursor, Write};
use std::sync::{Arc, Mutex};

use packet::{Batch, MAX_LARGE_FRAME, Pool, Port, PortError, Time};
use pcap_parser::traits::{PcapNGPacketBlock, PcapReaderIterator};
use pcap_parser::{Block, PcapBlockOwned, PcapError, PcapNGReader};
use proptest::prelude::*;
use wire::{Mac, PortId};

use super::*;

/// What a reader says of a packet: time, bytes, original length, link type, interface.
type Seen = (u64, Vec<u8>, u32, LinkType, u32);

fn read(bytes: &[u8]) -> (Vec<Seen>, Option<CaptureError>) {
    let mut seen = Vec::new();
    let total = Some(bytes.len() as u64);
    let mut reader =
        match PcapReader::new("test".to_owned(), Box::new(Cursor::new(bytes.to_vec())), total) {
            Ok(reader) => reader,
            Err(error) => return (seen, Some(error)),
        };
    loop {
        match reader.next_record() {
            Ok(Some(record)) => {
                assert!(record.bytes.len() <= MAX_RECORD as usize);
                assert_eq!(record.number, seen.len() as u64 + 1);
                let Record { time, bytes, original_length, link, interface, .. } = record;
                seen.push((time.0, bytes.to_vec(), original_length, link, interface));
            }
            Ok(None) => {
                assert_eq!(reader.progress(), (bytes.len() as u64, total));
                return (seen, None);
            }
            Err(error) => {
                assert_eq!(error.packets, seen.len() as u64);
                assert!(matches!(reader.next_record(), Ok(None)), "nothing follows an error");
                return (seen, Some(error));
            }
        }
    }
}

/// Numbers in the byte order of the file that is being made.
#[derive(Clone, Copy)]
struct Maker {
    big: bool,
}

const BOTH: [Maker; 2] = [Maker { big: false }, Maker { big: true }];

impl Maker {
    fn u16(self, value: u16) -> [u8; 2] {
        if self.big { value.to_be_bytes() } else { value.to_le_bytes() }
    }

    fn u32(self, value: u32) -> [u8; 4] {
        if self.big { value.to_be_bytes() } else { value.to_le_bytes() }
    }

    fn words(self, words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| self.u32(*word)).collect()
    }

    fn pcap(self, magic: u32, link: u32) -> Vec<u8> {
        let version = [self.u16(2), self.u16(4)].concat();
        [self.words(&[magic]), version, self.words(&[0, 0, 65_535, link])].concat()
    }

    fn record(self, seconds: u32, fraction: u32, data: &[u8], original: u32) -> Vec<u8> {
        [self.words(&[seconds, fraction, data.len() as u32, original]), data.to_vec()].concat()
    }

    fn block(self, kind: u32, body: &[u8]) -> Vec<u8> {
        let padding = vec![0; body.len().next_multiple_of(4) - body.len()];
        let length = (12 + body.len() + padding.len()) as u32;
        [self.words(&[kind, length]), body.to_vec(), padding, self.words(&[length])].concat()
    }

    fn section(self) -> Vec<u8> {
        let version = [self.u16(1), self.u16(0)].concat();
        self.block(0x0a0d_0d0a, &[self.words(&[0x1a2b_3c4d]), version, vec![0xff; 8]].concat())
    }

    fn option(self, code: u16, value: &[u8]) -> Vec<u8> {
        let padding = vec![0; value.len().next_multiple_of(4) - value.len()];
        [&self.u16(code)[..], &self.u16(value.len() as u16), value, &padding].concat()
    }

    fn interface(self, link: u16, snapshot: u32, options: &[Vec<u8>]) -> Vec<u8> {
        let head = [&self.u16(link)[..], &[0, 0], &self.u32(snapshot)].concat();
        self.block(1, &[head, options.concat()].concat())
    }

    fn packet(self, interface: u32, time: u64, data: &[u8], original: u32) -> Vec<u8> {
        let head =
            self.words(&[interface, (time >> 32) as u32, time as u32, data.len() as u32, original]);
        let padding = vec![0; data.len().next_multiple_of(4) - data.len()];
        // A comment behind, which is to be read over.
        self.block(
            6,
            &[head, data.to_vec(), padding, self.option(1, b"a comment"), self.option(0, b"")]
                .concat(),
        )
    }
}

#[test]
fn pcap_of_every_kind_is_read() {
    for maker in BOTH {
        for (magic, unit) in [(0xa1b2_c3d4, 1000), (0xa1b2_3c4d, 1)] {
            for (number, link) in [
                (1, LinkType::Ethernet),
                (101, LinkType::Raw),
                (12, LinkType::Raw),
                (14, LinkType::Raw),
                (228, LinkType::Ipv4),
                (229, LinkType::Ipv6),
                (0, LinkType::Null),
                (108, LinkType::Loop),
                (113, LinkType::LinuxSll),
                (276, LinkType::LinuxSll2),
            ] {
                // With a frame check sequence length in the upper half.
                let file = [
                    maker.pcap(magic, number | 0x5000_0000),
                    maker.record(1_700_000_000, 123_456, b"first", 5),
                    maker.record(1_700_000_000, 5, b"", 0),
                    maker.record(u32::MAX, 999_999, b"cut", 1500),
                ]
                .concat();
                let (seen, error) = read(&file);
                assert!(error.is_none(), "{error:?}");
                let times =
                    [(1_700_000_000, 123_456), (1_700_000_000, 5), (u64::from(u32::MAX), 999_999)]
                        .map(|(seconds, fraction)| seconds * 1_000_000_000 + fraction * unit);
                assert_eq!(
                    seen,
                    [
                        (times[0], b"first".to_vec(), 5, link, 0),
                        (times[1], vec![], 0, link, 0),
                        (times[2], b"cut".to_vec(), 1500, link, 0)
                    ]
                );
            }
        }
    }
}

#[test]
fn pcapng_with_several_sections_interfaces_and_clocks_is_read() {
    let mut file = Vec::new();
    let mut expected: Vec<Seen> = Vec::new();
    for maker in BOTH {
        let offset = if maker.big { 100_i64.to_be_bytes() } else { 100_i64.to_le_bytes() };
        file.extend(
            [
                maker.section(),
                maker.block(0x0bad, &[1; 4096]),
                maker.interface(1, 4, &[maker.option(2, b"eth0"), maker.option(0, b"")]),
                maker.interface(101, 0, &[maker.option(9, &[9]), maker.option(14, &offset)]),
                maker.packet(0, 1_500_000, b"micro", 5),
                maker.packet(1, 1_500_000, b"nano", 4),
                // The simple packet block: its snapshot length is the first interface's, its time
                // the last packet's.
                maker.block(3, &[maker.words(&[5]), b"simple..".to_vec()].concat()),
                maker.interface(229, 0, &[maker.option(9, &[0x8a])]),
                maker.packet(2, 2048, b"binary", 60),
                maker.block(
                    2,
                    &[&maker.u16(1)[..], &maker.u16(0), &maker.words(&[0, 7, 3, 3]), b"old\0"]
                        .concat(),
                ),
            ]
            .concat(),
        );
        expected.extend([
            (1_500_000_000, b"micro".to_vec(), 5, LinkType::Ethernet, 0),
            (100_001_500_000, b"nano".to_vec(), 4, LinkType::Raw, 1),
            (100_001_500_000, b"simp".to_vec(), 5, LinkType::Ethernet, 0),
            (2_000_000_000, b"binary".to_vec(), 60, LinkType::Ipv6, 2),
            (100_000_000_007, b"old".to_vec(), 3, LinkType::Raw, 1),
        ]);
    }
    let (seen, error) = read(&file);
    assert!(error.is_none(), "{error:?}");
    assert_eq!(seen, expected);
}

/// What pcap-parser, an independent reader, sees in a pcapng file: timestamp, bytes, original
/// length, interface.
fn oracle(file: &[u8]) -> Vec<(u64, Vec<u8>, u32, u32)> {
    let mut reader = PcapNGReader::new(1 << 20, file).unwrap();
    let mut seen = Vec::new();
    loop {
        match reader.next() {
            Ok((length, block)) => {
                if let PcapBlockOwned::NG(Block::EnhancedPacket(packet)) = block {
                    let time = u64::from(packet.ts_high) << 32 | u64::from(packet.ts_low);
                    seen.push((time, packet.packet_data().to_vec(), packet.origlen, packet.if_id));
                }
                reader.consume(length);
            }
            Err(PcapError::Incomplete(_)) => reader.refill().unwrap(),
            Err(PcapError::Eof) => return seen,
            Err(error) => panic!("{error}"),
        }
    }
}

/// Packets at times, in order.
fn packets() -> impl Strategy<Value = Vec<(u64, Vec<u8>)>> {
    let one = (0..u64::from(u32::MAX) * 1_000_000_000, prop::collection::vec(any::<u8>(), 0..2000));
    prop::collection::vec(one, 0..20).prop_map(|mut packets| {
        packets.sort();
        packets
    })
}

/// A file that is written to from a [`PcapWriter`] and read here.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Shared {
    fn bytes(&self) -> Vec<u8> {
        self.0.lock().unwrap().clone()
    }
}

fn written(packets: &[(u64, Vec<u8>)]) -> Vec<u8> {
    let file = Shared::default();
    let mut writer = PcapWriter::new(Box::new(file.clone()), LinkKind::Ethernet).unwrap();
    for (time, bytes) in packets {
        writer.write(Time(*time), bytes).unwrap();
    }
    writer.finish().unwrap();
    file.bytes()
}

proptest! {
    #[test]
    fn what_is_written_is_read(packets in packets()) {
        let file = written(&packets);
        prop_assert_eq!(&file, &written(&packets), "the same packets make the same bytes");
        let (seen, error) = read(&file);
        prop_assert!(error.is_none());
        let expected: Vec<Seen> = packets
            .into_iter()
            .map(|(time, bytes)| (time, bytes.clone(), bytes.len() as u32, LinkType::Ethernet, 0))
            .collect();
        prop_assert_eq!(seen, expected);
    }

    #[test]
    fn pcapng_is_read_as_another_reader_reads_it(big in any::<bool>(), packets in packets()) {
        let maker = Maker { big };
        let mut file = [maker.section(), maker.interface(1, 0, &[maker.option(9, &[9])]), maker.interface(1, 0, &[maker.option(9, &[9])])].concat();
        for (index, (time, bytes)) in packets.iter().enumerate() {
            file.extend(maker.packet(index as u32 % 2, *time, bytes, 3000));
        }
        let (seen, error) = read(&file);
        prop_assert!(error.is_none());
        let seen: Vec<_> = seen.into_iter().map(|(time, bytes, length, _, interface)| (time, bytes, length, interface)).collect();
        prop_assert_eq!(seen, oracle(&file));
    }

    #[test]
    fn a_damaged_file_never_panics(
        ng in any::<bool>(),
        big in any::<bool>(),
        packets in packets(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        end in any::<prop::sample::Index>(),
    ) {
        let maker = Maker { big };
        let mut file = if ng { [maker.section(), maker.interface(1, 0, &[])].concat() } else { maker.pcap(0xa1b2_3c4d, 1) };
        for (time, bytes) in &packets {
            file.extend(if ng { maker.packet(0, *time, bytes, 9) } else { maker.record(*time as u32, 0, bytes, 9) });
        }
        // Most damage into the headers, where it hurts.
        for (at, byte) in changes {
            let at = at.index(file.len()).min(at.index(80));
            file[at] = byte;
        }
        file.truncate(end.index(file.len()) + 1);
        let (_, error) = read(&file);
        if let Some(error) = error {
            prop_assert!(error.offset <= file.len() as u64);
            prop_assert!(error.to_string().starts_with("test: at byte "));
        }
    }
}

#[test]
fn a_file_cut_off_anywhere_gives_what_came_before_and_says_where() {
    let maker = Maker { big: false };
    let pcap =
        [maker.pcap(0xa1b2_c3d4, 1), maker.record(1, 2, b"one", 3), maker.record(1, 3, b"two", 3)]
            .concat();
    let ng = [
        maker.section(),
        maker.interface(1, 0, &[]),
        maker.packet(0, 1, b"one", 3),
        maker.packet(0, 2, b"two", 3),
    ]
    .concat();
    for (file, ends) in [(&pcap, vec![24, 43, 62]), (&ng, vec![28, 48, 104, 160])] {
        assert_eq!(file.len(), *ends.last().unwrap());
        for length in 0..file.len() {
            let (seen, error) = read(&file[..length]);
            let whole = ends.iter().filter(|end| **end <= length).count();
            let headers = ends.len() - 2;
            assert_eq!(seen.len(), whole.saturating_sub(headers), "{length}");
            if ends.contains(&length) {
                assert!(error.is_none(), "{length}: {error:?}");
            } else {
                let error = error.unwrap();
                let begin = ends.iter().copied().filter(|end| *end < length).max().unwrap_or(0);
                assert!(matches!(error.problem, Problem::End(_)), "{length}: {error}");
                assert_eq!(error.offset, begin as u64, "{length}");
            }
        }
    }
}

#[test]
fn what_cannot_be_is_refused_with_its_place_and_reason() {
    let maker = Maker { big: false };
    let begin = [maker.section(), maker.interface(1, 0, &[])].concat();
    let with = |rest: Vec<u8>| [begin.clone(), rest].concat();
    let wrong_end = {
        let mut block = maker.packet(0, 1, b"data", 4);
        *block.last_mut().unwrap() = 9;
        block
    };
    let cases: Vec<(Vec<u8>, &str)> = vec![
        (
            b"GIF89a..".to_vec(),
            "test: at byte 0, after packet 0: neither pcap nor pcapng: it begins with [47, 49, 46, \
            38]",
        ),
        (
            b"\x28\xb5\x2f\xfd....".to_vec(),
            "test: at byte 0, after packet 0: neither pcap nor pcapng: it begins with [28, b5, 2f, \
            fd], as what zstd compresses does; zstd -d expands it",
        ),
        (
            maker.pcap(0xa1b2_cd34, 1),
            "test: at byte 0, after packet 0: neither pcap nor pcapng: it begins with [34, cd, b2, \
            a1]",
        ),
        (
            maker.pcap(0xa1b2_c3d4, 127),
            "test: at byte 0, after packet 0: link type 802.11 with radiotap (127) is not \
            supported: Ethernet (1), raw IP (101), BSD loopback (0) and Linux cooked (113, 276) \
            are",
        ),
        (
            [
                maker.pcap(0xa1b2_c3d4, 1),
                maker.record(1, 1, b"ok", 2),
                maker.words(&[1, 1, 262_145, 60]),
            ]
            .concat(),
            "test: at byte 42, after packet 1: a record of 262145 bytes is longer than any packet \
            (262144 bytes): the file is damaged",
        ),
        (
            with(maker.words(&[6, u32::MAX - 3, 0])),
            "test: at byte 48, after packet 0: the file ends inside this packet block: it was cut \
            off",
        ),
        (
            with(maker.words(&[6, 28, 0])),
            "test: at byte 48, after packet 0: a block of type 0x00000006 says it is 28 bytes \
            long, which it cannot be",
        ),
        (
            with(maker.words(&[99, 13])),
            "test: at byte 48, after packet 0: a block of type 0x00000063 says it is 13 bytes \
            long, which it cannot be",
        ),
        (
            with(maker.block(6, &maker.words(&[0, 0, 0, 5, 5, 0]))),
            "test: at byte 48, after packet 0: a packet of 5 bytes in a block with room for 4",
        ),
        (
            with(maker.packet(3, 0, b"", 0)),
            "test: at byte 48, after packet 0: a packet of interface 3, and 1 are described",
        ),
        (
            [maker.section(), maker.packet(0, 0, b"", 0)].concat(),
            "test: at byte 28, after packet 0: a packet of interface 0, and 0 are described",
        ),
        (
            with(wrong_end),
            "test: at byte 48, after packet 0: a block says at its begin that it is 56 bytes long \
            and at its end 150995000",
        ),
        (
            with(maker.interface(1, 0, &[vec![9, 0, 9, 0, 0, 0, 0, 0]])),
            "test: at byte 48, after packet 0: option 9 runs past the end of its block",
        ),
        (
            with(maker.words(&[0x0a0d_0d0a, 28, 0x1234_5678, 1, 0, 0, 28])),
            "test: at byte 48, after packet 0: the section's byte-order magic is 0x12345678",
        ),
        (
            with(maker.words(&[0x0a0d_0d0a, 28, 0x1a2b_3c4d, 2, 0, 0, 28])),
            "test: at byte 48, after packet 0: format version 2.0 is not supported",
        ),
        (
            vec![],
            "test: at byte 0, after packet 0: the file ends inside this file header: it was cut \
            off",
        ),
    ];
    for (file, message) in cases {
        let (_, error) = read(&file);
        let error = error.unwrap_or_else(|| panic!("accepted: {message}"));
        assert_eq!(error.to_string(), message);
    }
    let missing = PcapReader::open(std::path::Path::new("/no/such.pcap")).unwrap_err().to_string();
    assert!(
        missing.starts_with("/no/such.pcap: at byte 0, after packet 0: cannot read: No such file"),
        "{missing}"
    );
}

#[test]
fn a_file_without_packets_is_no_error() {
    let maker = Maker { big: true };
    for file in [
        maker.pcap(0xa1b2_3c4d, 1),
        maker.section(),
        [maker.section(), maker.interface(1, 0, &[])].concat(),
    ] {
        let (seen, error) = read(&file);
        assert!(seen.is_empty() && error.is_none());
    }
}

#[test]
fn the_writer_writes_exactly_this() {
    let file = written(&[(1_700_000_000_000_000_007, b"abc".to_vec())]);
    let mut expected =
        vec![0x4d, 0x3c, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 1, 0, 0, 0];
    expected.extend([0x00, 0xf1, 0x53, 0x65, 7, 0, 0, 0, 3, 0, 0, 0, 3, 0, 0, 0]);
    expected.extend(b"abc");
    assert_eq!(file, expected);
    let mut writer = PcapWriter::new(Box::new(Shared::default()), LinkKind::Ip).unwrap();
    assert!(writer.write(Time(u64::MAX), b"").unwrap_err().to_string().contains("2106"));
    assert!(writer.write(Time(0), &vec![0; MAX_RECORD as usize + 1]).is_err());
    assert!(writer.write(Time(0), &vec![0; MAX_RECORD as usize]).is_ok());
}

fn options() -> PcapOptions {
    PcapOptions {
        name: "p".to_owned(),
        id: PortId(4),
        link: LinkKind::Ethernet,
        mac: Mac([2; 6]),
        mtu: 1500,
        any_mac: false,
        skip_vlan: false,
    }
}

fn port(input: Option<Vec<u8>>, output: Option<&Shared>) -> PcapPort {
    let reader = input
        .map(|bytes| PcapReader::new("in".to_owned(), Box::new(Cursor::new(bytes)), None).unwrap());
    let writer =
        output.map(|file| PcapWriter::new(Box::new(file.clone()), LinkKind::Ethernet).unwrap());
    PcapPort::new(options(), reader, writer).unwrap()
}

/// Receives what is due at `now`.
fn due(port: &mut PcapPort, now: u64) -> Result<Vec<Vec<u8>>, PortError> {
    let (mut pool, mut batch) = (Pool::new(300), Batch::new());
    port.receive(Time(now), &mut pool, &mut batch)?;
    assert!(batch.iter().all(|packet| packet.port() == PortId(4)));
    Ok(batch.iter().map(|packet| packet.bytes().to_vec()).collect())
}

#[test]
fn packets_are_received_when_they_are_due() {
    let packets =
        [(100, b"a".to_vec()), (200, b"b".to_vec()), (150, b"c".to_vec()), (300, b"d".to_vec())];
    let mut port = port(Some(written(&packets)), None);
    assert_eq!(port.next_time(), Some(Time(100)));
    assert_eq!(due(&mut port, 99).unwrap(), [b""; 0]);
    assert_eq!(due(&mut port, 100).unwrap(), [b"a"]);
    assert_eq!(port.next_time(), Some(Time(200)));
    assert_eq!(due(&mut port, 199).unwrap(), [b""; 0], "time never runs backwards");
    assert_eq!(due(&mut port, 250).unwrap(), [b"b", b"c"]);
    assert_eq!(due(&mut port, 300).unwrap(), [b"d"]);
    assert_eq!((port.next_time(), due(&mut port, u64::MAX).unwrap()), (None, Vec::new()));
    assert_eq!((port.statistics().rx_packets.read(), port.statistics().rx_bytes.read()), (4, 4));
}

#[test]
fn more_than_a_batch_comes_in_batches_and_waits_for_buffers() {
    let packets: Vec<_> = (0..600_u64).map(|time| (time, vec![1; 60])).collect();
    let mut port = port(Some(written(&packets)), None);
    let (mut pool, mut batch) = (Pool::new(300), Batch::new());
    assert_eq!(port.receive(Time(1000), &mut pool, &mut batch).unwrap(), 256);
    assert_eq!(port.receive(Time(1000), &mut pool, &mut Batch::new()).unwrap(), 44);
    assert_eq!(port.receive(Time(1000), &mut pool, &mut Batch::new()).unwrap(), 0);
    assert_eq!(port.next_time(), Some(Time(300)));
}

#[test]
fn packets_that_cannot_be_replayed_are_skipped_and_counted() {
    let maker = Maker { big: false };
    let file = [
        maker.section(),
        maker.interface(1, 0, &[]),
        maker.interface(101, 0, &[]),
        maker.interface(113, 0, &[]),
        maker.packet(0, 1, b"cut", 60),
        maker.packet(1, 2, b"ip", 2),
        maker.packet(2, 3, b"cooked", 6),
        maker.packet(0, 4, &vec![0; MAX_LARGE_FRAME + 1], MAX_LARGE_FRAME as u32 + 1),
        maker.packet(0, 5, b"good", 4),
        maker.packet(0, 6, b"cut", 4),
    ]
    .concat();
    let mut port = port(Some(file), None);
    assert_eq!(due(&mut port, u64::MAX).unwrap(), [b"good"]);
    assert_eq!(port.skipped(), Skipped { truncated: 2, too_long: 1, link_type: 2, not_ip: 0 });
    assert_eq!((port.statistics().rx_errors.read(), port.next_time()), (5, None));
}

#[test]
fn jumbo_frames_need_large_buffers() {
    let packets = [(1, vec![1; 9230]), (2, vec![2; 60]), (3, vec![3; 2049]), (4, vec![4; 60])];
    let mut port = port(Some(written(&packets)), None);
    // One large buffer: the third packet waits for the first to be sent.
    let (mut pool, mut batch) = (Pool::with_large(9, 1), Batch::new());
    assert_eq!(port.receive(Time(9), &mut pool, &mut batch).unwrap(), 2);
    assert_eq!((batch[0].bytes(), batch[1].bytes()), (&[1; 9230][..], &[2; 60][..]));
    // If the large buffer does not come back, it is missed.
    let mut kept = std::mem::take(&mut batch);
    assert_eq!(port.receive(Time(9), &mut pool, &mut batch).unwrap(), 1);
    assert_eq!((batch[0].bytes(), port.statistics().rx_missed.read()), (&[4; 60][..], 1));
    assert_eq!(port.statistics().rx_bytes.read(), 9230 + 60 + 60);

    // What is sent is bounded by the port's MTU alone.
    let file = Shared::default();
    let options = PcapOptions { mtu: packet::MAX_MTU, ..options() };
    let writer = PcapWriter::new(Box::new(file.clone()), LinkKind::Ethernet).unwrap();
    let mut wide = PcapPort::new(options, None, Some(writer)).unwrap();
    wide.transmit(Time(7), &mut pool, &mut kept).unwrap();
    wide.finish().unwrap();
    assert_eq!(file.bytes(), written(&[(7, vec![1; 9230]), (7, vec![2; 60])]));
    assert_eq!((pool.available(), pool.small_available()), (9, 8));
}

#[test]
fn a_damaged_capture_is_told_of_after_its_good_packets() {
    let mut file = written(&[(100, b"a".to_vec()), (200, b"b".to_vec())]);
    file.extend([0; 5]);
    let mut port = port(Some(file), None);
    assert_eq!(due(&mut port, 100).unwrap().len(), 1);
    assert_eq!(due(&mut port, 200).unwrap().len(), 1);
    assert_eq!(port.next_time(), Some(Time(200)));
    let error = due(&mut port, 200).unwrap_err().to_string();
    assert_eq!(
        error,
        "port p: cannot read the capture: in: at byte 58, after packet 2: the file ends inside \
        this record header: it was cut off"
    );
    assert_eq!((port.next_time(), due(&mut port, 300).unwrap()), (None, Vec::new()));
}

#[test]
fn what_is_sent_is_written_at_its_time() {
    let file = Shared::default();
    let mut port = port(None, Some(&file));
    let (mut pool, mut batch) = (Pool::new(3), Batch::new());
    for length in [60, 1515, 1514] {
        let mut packet = pool.take().unwrap();
        assert!(packet.fill(&vec![length as u8; length]));
        batch.push(packet);
    }
    port.transmit(Time(77), &mut pool, &mut batch).unwrap();
    assert_eq!((pool.available(), batch.len()), (3, 0));
    assert_eq!((port.statistics().tx_packets.read(), port.statistics().tx_too_long.read()), (2, 1));
    port.finish().unwrap();
    assert_eq!(file.bytes(), written(&[(77, vec![60; 60]), (77, vec![234; 1514])]));
}

#[test]
fn a_full_disk_loses_the_port() {
    struct Full;
    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::Error::from_raw_os_error(libc::ENOSPC))
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let writer = PcapWriter::new(Box::new(Full), LinkKind::Ethernet).unwrap();
    let port = PcapPort::new(options(), None, Some(writer)).unwrap();
    let error = port.finish().unwrap_err().to_string();
    assert!(error.starts_with("port p: cannot write the capture: No space left"), "{error}");
}

#[test]
fn a_capture_of_another_link_type_is_refused() {
    let options = PcapOptions { link: LinkKind::Ip, ..options() };
    let reader =
        PcapReader::new("in".to_owned(), Box::new(Cursor::new(written(&[]))), None).unwrap();
    let error = PcapPort::new(options, Some(reader), None).unwrap_err().to_string();
    assert_eq!(
        error,
        "port p: the capture to read is of another link type; the port is Ip, the file Ethernet"
    );
}

#[test]
fn what_only_captures_have_is_taken_off() {
    let maker = Maker { big: true };
    let file = [
        maker.pcap(0xa1b2_c3d4, 113),
        maker.record(1, 0, &[&[0; 14][..], &[8, 0], b"ip"].concat(), 18),
        maker.record(1, 1, &[&[0; 14][..], &[8, 6], b"arp"].concat(), 19),
        maker.record(1, 2, &[&[0; 14][..], &[0x81, 0, 0, 9, 0x86, 0xdd], b"tagged"].concat(), 26),
    ]
    .concat();
    for (skip_vlan, received) in [(false, &[&b"ip"[..]][..]), (true, &[b"ip", b"tagged"])] {
        let options = PcapOptions { link: LinkKind::Ip, skip_vlan, ..options() };
        let reader =
            PcapReader::new("t".into(), Box::new(Cursor::new(file.clone())), None).unwrap();
        let mut port = PcapPort::new(options, Some(reader), None).unwrap();
        assert_eq!(due(&mut port, u64::MAX).unwrap(), received);
        assert_eq!(port.skipped().not_ip, 3 - received.len() as u64);
    }
}

#[test]
fn frames_for_others_are_taken_if_asked_and_those_for_groups_stay() {
    let own = [2; 6];
    let frame = |destination: [u8; 6], tags: &[u8]| {
        [&destination[..], &[4; 6], tags, &[8, 0], &[0x45; 30]].concat()
    };
    let other = [0, 1, 2, 3, 4, 5];
    let group = [0x33, 0x33, 0, 0, 0, 1];
    let tags = [0x88, 0xa8, 0, 7, 0x81, 0, 0, 5];
    let packets: Vec<_> = [frame(other, &[]), frame(group, &[]), frame(other, &tags), vec![7; 3]]
        .into_iter()
        .enumerate()
        .map(|(at, bytes)| (at as u64, bytes))
        .collect();
    let file = written(&packets);
    for (any_mac, skip_vlan) in [(false, false), (true, false), (false, true), (true, true)] {
        let options = PcapOptions { any_mac, skip_vlan, ..options() };
        let reader =
            PcapReader::new("t".into(), Box::new(Cursor::new(file.clone())), None).unwrap();
        let mut port = PcapPort::new(options, Some(reader), None).unwrap();
        let to = if any_mac { own } else { other };
        let left: &[u8] = if skip_vlan { &[] } else { &tags };
        let expected = [frame(to, &[]), frame(group, &[]), frame(to, left), vec![7; 3]];
        assert_eq!(due(&mut port, u64::MAX).unwrap(), expected, "{any_mac} {skip_vlan}");
    }
}

#[test]
fn a_compressed_capture_is_read_and_progress_is_the_files() {
    use flate2::Compression;
    use flate2::write::GzEncoder;
    let compress = |bytes: &[u8]| {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    };
    let packets: Vec<_> = (0..500_u64).map(|at| (at, vec![at as u8; 100])).collect();
    let plain = written(&packets);
    let file = compress(&plain);
    let (seen, error) = read(&file);
    assert!(error.is_none(), "{error:?}");
    assert_eq!(seen.len(), 500);
    assert_eq!(seen[7].1, vec![7; 100]);
    // What was cut off is said with its place in what is compressed.
    let cut = file[..file.len() / 2].to_vec();
    let (seen, error) = read(&cut);
    let error = error.unwrap();
    assert!(seen.len() < 500 && error.offset < plain.len() as u64, "{error}");
    let (seen, error) = read(&compress(&file));
    assert!(seen.is_empty() && error.unwrap().to_string().contains("neither pcap nor pcapng"));
}
