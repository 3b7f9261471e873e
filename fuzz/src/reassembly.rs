//! Reassembly on a sequence of fragments.

use flow::{Group, Reassembled, Reassembly};
use packet::{Pool, Time};
use wire::{Origin, PacketFields, PortId, Protocol, VrfId, headers, ipv4, ipv6};

/// Bytes of input for each fragment.
pub const STEP: usize = 5;

/// A protocol that nothing looks into.
const PROTOCOL: Protocol = Protocol(253);

/// Sends fragments as `bytes` say, [`STEP`] bytes for each: its datagram, flags, offset in units of
/// 64 bytes, length in units of 8, and the time since the last one in units of 200 ms. Returns how
/// many datagrams were completed and how many fragments dropped.
///
/// # Panics
/// If the crate breaks a promise.
pub fn examine(bytes: &[u8]) -> (u64, u64) {
    let mut reassembly = Reassembly::new(7);
    let mut pool = Pool::with_large(300, 20);
    let (mut now, mut completed, mut dropped, mut sent) = (Time(0), 0, 0, 0);
    let mut altered = [false; 256];
    for step in bytes.as_chunks::<STEP>().0 {
        let [datagram, flags, offset, units, wait] = *step;
        now = Time(now.0 + u64::from(wait) * 200_000_000);
        reassembly.expire(now, &mut pool, |fragments| dropped += fragments);
        let fragment = Fragment {
            datagram,
            is_v6: datagram % 2 == 1,
            more: flags & 1 != 0,
            is_altered: flags & 2 != 0,
            short_by: usize::from(flags >> 2 & 7),
            offset: usize::from(offset) * 64,
            length: usize::from(units) * 8,
        };
        altered[usize::from(datagram)] |= fragment.is_altered;
        let packet_bytes = fragment.packet();
        let Ok(headers) = headers::parse(&packet_bytes) else { continue };
        let Some(packet) = pool.take_copy(&packet_bytes) else { continue };
        sent += 1;
        let key = headers.key(VrfId(1), Origin::Port(PortId(1)), PacketFields::NONE);
        let group = Group::Origin(key.origin);
        match reassembly.push(now, (&key, group), &headers, packet, &mut pool) {
            Reassembled::Complete { packet, .. } => {
                completed += 1;
                let whole = headers::parse(packet.bytes()).expect("a packet that is right");
                assert_eq!(usize::from(whole.total_length), packet.len());
                assert_eq!((whole.addresses, whole.protocol), (headers.addresses, PROTOCOL));
                if !altered[usize::from(datagram)] {
                    let content = whole.upper_bytes(packet.bytes()).iter().enumerate();
                    content.for_each(|(at, byte)| assert_eq!(*byte, pattern(datagram, at)));
                }
                pool.give(packet);
            }
            Reassembled::Held => {}
            Reassembled::Dropped { fragments, .. } => dropped += fragments,
        }
        let (datagrams, fragments) = reassembly.waiting();
        assert!(datagrams <= fragments && fragments as u64 + dropped + completed <= sent);
        assert_eq!(pool.available() + datagrams, pool.size(), "each holds one buffer");
    }
    let (_, fragments) = reassembly.waiting();
    let mut expired = 0;
    reassembly.expire(Time(u64::MAX), &mut pool, |fragments| expired += fragments);
    assert_eq!((expired, reassembly.waiting()), (fragments as u64, (0, 0)));
    assert_eq!((pool.available(), pool.small_available()), (320, 300));
    (completed, dropped)
}

struct Fragment {
    datagram: u8,
    is_v6: bool,
    more: bool,
    is_altered: bool,
    short_by: usize,
    offset: usize,
    length: usize,
}

impl Fragment {
    fn packet(&self) -> Vec<u8> {
        let length = self.length.saturating_sub(self.short_by);
        let change = if self.is_altered { 0x80 } else { 0 };
        let payload =
            (self.offset..self.offset + length).map(|at| pattern(self.datagram, at) ^ change);
        if self.is_v6 {
            let header = ipv6::Header {
                payload_length: (8 + length) as u16,
                next_header: Protocol::FRAGMENT,
                source: "2001:db8::1".parse().expect("an address"),
                destination: "2001:db8::2".parse().expect("an address"),
                ..ipv6::Header::default()
            };
            let word = self.offset as u16 | u16::from(self.more);
            let mut packet = header.to_bytes().to_vec();
            packet.extend([PROTOCOL.0, 0]);
            packet.extend(word.to_be_bytes());
            packet.extend([0, 0, 0, self.datagram]);
            packet.extend(payload);
            return packet;
        }
        let header = ipv4::Header {
            total_length: (20 + length) as u16,
            identification: self.datagram.into(),
            more_fragments: self.more,
            fragment_offset: self.offset as u16,
            protocol: PROTOCOL,
            source: [192, 0, 2, 1].into(),
            destination: [192, 0, 2, 2].into(),
            ..ipv4::Header::default()
        };
        header.to_bytes().into_iter().chain(payload).collect()
    }
}

/// What a datagram's byte at an offset is.
fn pattern(datagram: u8, at: usize) -> u8 {
    (at as u64 * 31 + u64::from(datagram)).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()[0]
}
