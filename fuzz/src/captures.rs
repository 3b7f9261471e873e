//! The reader of capture files and the port over it on one input.

use std::io::Cursor;
use std::sync::{Arc, Mutex};

use io::pcap::{LinkType, MAX_RECORD, PcapOptions, PcapPort, PcapReader, PcapWriter};
use packet::{Batch, LinkKind, MAX_LARGE_FRAME, Pool, Port, Time};
use wire::{Mac, PortId};

/// Reads `bytes` as a capture file, and returns how many packets it has and whether it is damaged
/// behind them; `None` if it is no capture at all.
///
/// # Panics
/// If the crate breaks a promise.
pub fn examine(bytes: &[u8]) -> Option<(u64, bool)> {
    let mut reader = open(bytes)?;
    let (mut packets, mut copy, mut receivable) = (0, Vec::new(), 0);
    let link = reader.link().and_then(LinkType::kind).unwrap_or(LinkKind::Ethernet);
    let damage = loop {
        match reader.next_record() {
            Ok(Some(record)) => {
                packets += 1;
                assert_eq!(record.number, packets);
                assert!(record.bytes.len() <= MAX_RECORD as usize);
                let is_whole = !record.is_truncated() && record.link.kind() == Some(link);
                let payload = record.link.payload(record.bytes, false).filter(|_| is_whole);
                if let Some(payload) = payload.filter(|bytes| bytes.len() <= MAX_LARGE_FRAME) {
                    receivable += 1;
                    copy.push((record.time, payload.to_vec()));
                }
                // Longer than the record in no case.
                let skipped = record.link.payload(record.bytes, true);
                assert!(skipped.is_none_or(|rest| rest.len() <= record.bytes.len()));
            }
            Ok(None) => break None,
            Err(error) => break Some(error),
        }
    };
    assert!(matches!(reader.next_record(), Ok(None)), "nothing follows the end");
    assert!(reader.progress().0 <= bytes.len() as u64);
    if let Some(error) = &damage {
        let is_compressed = bytes.starts_with(&[0x1f, 0x8b]);
        assert!(is_compressed || error.offset <= bytes.len() as u64);
        assert_eq!(error.packets, packets);
    }
    examine_port(bytes, link, packets, receivable, damage.is_some());
    examine_writer(link, &copy);
    Some((packets, damage.is_some()))
}

fn open(bytes: &[u8]) -> Option<PcapReader> {
    let input = Box::new(Cursor::new(bytes.to_vec()));
    PcapReader::new("fuzz".to_owned(), input, Some(bytes.len() as u64)).ok()
}

fn port(reader: Option<PcapReader>, writer: Option<PcapWriter>, link: LinkKind) -> PcapPort {
    let (name, id, mac) = ("fuzz".to_owned(), PortId(1), Mac([2; 6]));
    let (mtu, any_mac, skip_vlan) = (packet::MAX_MTU, false, false);
    let options = PcapOptions { name, id, link, mac, mtu, any_mac, skip_vlan };
    PcapPort::new(options, reader, writer).expect("the link type is the file's")
}

/// Each packet is received, at no time before its predecessor, or counted.
fn examine_port(bytes: &[u8], link: LinkKind, packets: u64, receivable: u64, damaged: bool) {
    let mut port = port(open(bytes), None, link);
    let (mut pool, mut last, mut failed) = (Pool::with_large(4, 2), Time(0), false);
    let mut received = 0;
    while let Some(now) = port.next_time() {
        assert!(now >= last, "time runs backwards");
        last = now;
        let mut batch = Batch::new();
        match port.receive(now, &mut pool, &mut batch) {
            Ok(count) => received += count as u64,
            Err(_) => failed = true,
        }
        pool.give_all(batch);
    }
    let statistics = port.statistics();
    assert_eq!((received, statistics.rx_packets.read()), (receivable, receivable));
    assert_eq!(received + statistics.rx_errors.read(), packets);
    assert_eq!((failed, statistics.rx_missed.read()), (damaged, 0));
    assert_eq!((pool.available(), pool.small_available()), (6, 4));
}

/// What is written is read as it was.
fn examine_writer(link: LinkKind, packets: &[(Time, Vec<u8>)]) {
    let file = Shared::default();
    let mut writer =
        PcapWriter::new(Box::new(file.clone()), link).expect("memory can be written to");
    let mut written = Vec::new();
    for (time, bytes) in packets {
        // Later than 2106 is refused.
        if writer.write(*time, bytes).is_ok() {
            written.push((*time, bytes.as_slice()));
        }
    }
    writer.finish().expect("memory can be written to");
    let bytes = file.0.lock().expect("nobody panicked").clone();
    let mut reader = open(&bytes).expect("what the writer wrote");
    for (time, bytes) in written {
        let record = reader.next_record().expect("what the writer wrote").expect("as many");
        assert_eq!((record.time, record.bytes), (time, bytes));
    }
    assert!(matches!(reader.next_record(), Ok(None)));
}

/// A file in memory.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("nobody panicked").extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
