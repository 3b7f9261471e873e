use packet::{Batch, CAPACITY, MAX_LARGE_FRAME, Packet, Pool, PortStatistics};
use proptest::prelude::*;
use wire::headers::parse;
use wire::{Addresses, PortId, Protocol, checksum};

use super::*;

/// A frame as a host hands it to a card: headers, payload, and the pseudo-header's sum where the
/// checksum goes.
#[derive(Clone, Debug)]
struct Host {
    is_ipv6: bool,
    is_tcp: bool,
    vlan_tags: usize,
    /// IPv4 or TCP options, IPv6 destination options: words of each.
    ip_options: usize,
    tcp_options: usize,
    identification: u16,
    sequence: u32,
    flags: u8,
    payload: Vec<u8>,
}

impl Host {
    fn addresses(&self) -> Addresses {
        if self.is_ipv6 {
            Addresses::V6 {
                source: "fd00::1".parse().unwrap(),
                destination: "2001:db8::2".parse().unwrap(),
            }
        } else {
            Addresses::V4 {
                source: "10.1.2.3".parse().unwrap(),
                destination: "192.0.2.9".parse().unwrap(),
            }
        }
    }

    fn protocol(&self) -> Protocol {
        if self.is_tcp { Protocol::TCP } else { Protocol::UDP }
    }

    /// The frame, and where its IP and its transport headers begin.
    fn frame(&self) -> (Vec<u8>, usize, usize) {
        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
        for tag in 0..self.vlan_tags {
            frame.extend(if tag == 0 && self.vlan_tags == 2 {
                [0x88, 0xa8, 0, 5]
            } else {
                [0x81, 0, 0, 7]
            });
        }
        frame.extend(if self.is_ipv6 { [0x86, 0xdd] } else { [8, 0] });
        let network = frame.len();
        let upper = self.upper();
        match self.addresses() {
            Addresses::V4 { source, destination } => {
                let header = 20 + 4 * self.ip_options;
                frame.extend([0x40 | (header / 4) as u8, 0]);
                frame.extend(((header + upper.len()) as u16).to_be_bytes());
                frame.extend(self.identification.to_be_bytes());
                frame.extend([0x40, 0, 64, self.protocol().0, 0, 0]);
                frame.extend(source.octets());
                frame.extend(destination.octets());
                frame.extend(vec![1; 4 * self.ip_options]);
                let sum = checksum::checksum(&frame[network..]);
                frame[network + 10..network + 12].copy_from_slice(&sum.to_be_bytes());
            }
            Addresses::V6 { source, destination } => {
                let extension = if self.ip_options > 0 { 8 } else { 0 };
                let next =
                    if extension > 0 { Protocol::DESTINATION_OPTIONS } else { self.protocol() };
                frame.extend([0x60, 0, 0, 0]);
                frame.extend(((extension + upper.len()) as u16).to_be_bytes());
                frame.extend([next.0, 64]);
                frame.extend(source.octets());
                frame.extend(destination.octets());
                if extension > 0 {
                    frame.extend([self.protocol().0, 0, 1, 4, 0, 0, 0, 0]);
                }
            }
        }
        let upper_at = frame.len();
        frame.extend(upper);
        (frame, network, upper_at)
    }

    fn upper(&self) -> Vec<u8> {
        let mut upper = vec![0x13, 0x88, 0, 80];
        if self.is_tcp {
            upper.extend(self.sequence.to_be_bytes());
            upper.extend([
                0,
                0,
                0,
                9,
                ((5 + self.tcp_options) << 4) as u8,
                self.flags,
                1,
                2,
                0,
                0,
                0,
                0,
            ]);
            upper.extend(vec![1; 4 * self.tcp_options]);
        } else {
            upper.extend([0, 0, 0, 0]);
            let length = (8 + self.payload.len()) as u16;
            upper[4..6].copy_from_slice(&length.to_be_bytes());
        }
        upper.extend(&self.payload);
        let partial =
            checksum::pseudo_header(&self.addresses(), self.protocol(), upper.len() as u32);
        let field = self.field();
        upper[field..field + 2].copy_from_slice(&partial.to_be_bytes());
        upper
    }

    fn field(&self) -> usize {
        if self.is_tcp { 16 } else { 6 }
    }

    fn upper_header(&self) -> usize {
        if self.is_tcp { 20 + 4 * self.tcp_options } else { 8 }
    }

    fn header(&self, upper_at: usize, gso_size: u16) -> VnetHeader {
        let gso_type = match (gso_size > 0, self.is_tcp, self.is_ipv6) {
            (false, ..) => 0,
            (_, false, _) => 5,
            (_, true, false) => 1,
            (_, true, true) => 4,
        };
        VnetHeader {
            flags: 1,
            gso_type,
            gso_size,
            csum_start: upper_at as u16,
            csum_offset: self.field() as u16,
        }
    }
}

fn host() -> impl Strategy<Value = Host> {
    let shape = (any::<bool>(), any::<bool>(), 0..3_usize, 0..3_usize, 0..4_usize);
    let payload = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..5000),
        (50_000..65_000_usize, any::<u8>())
            .prop_map(|(length, first)| (0..length).map(|n| n as u8 ^ first).collect()),
    ];
    let numbers = (any::<u16>(), any::<u32>(), any::<u8>());
    (shape, numbers, payload).prop_map(
        |(
            (is_ipv6, is_tcp, vlan_tags, ip_options, tcp_options),
            (identification, sequence, flags),
            payload,
        )| Host {
            is_ipv6,
            is_tcp,
            vlan_tags,
            ip_options,
            tcp_options,
            identification,
            sequence,
            flags,
            payload,
        },
    )
}

fn cut(frame: &[u8], header: &VnetHeader) -> Result<Vec<Vec<u8>>, Refused> {
    let mut packet = Pool::with_large(0, 1).take_large().unwrap();
    let mut segmenter = Segmenter::new(frame, header)?;
    let mut segments = Vec::new();
    while !segmenter.is_finished() {
        let length = segmenter.next_length();
        assert!(segmenter.next_segment(frame, &mut packet));
        assert_eq!(packet.len(), length);
        assert!(packet.len() <= segmenter.longest() && packet.len() <= MAX_LARGE_FRAME);
        segments.push(packet.bytes().to_vec());
    }
    assert!(!segmenter.next_segment(frame, &mut packet));
    Ok(segments)
}

proptest! {
    #[test]
    fn segments_are_whole_packets_and_make_up_the_stream(host in host(), gso_size in 500..9000_u16) {
        let (frame, network, upper_at) = host.frame();
        let segments = cut(&frame, &host.header(upper_at, gso_size)).unwrap();
        prop_assert_eq!(segments.len(), host.payload.len().div_ceil(gso_size.into()).max(1));
        let mut stream: Vec<u8> = Vec::new();
        for (index, segment) in segments.iter().enumerate() {
            let is_last = index + 1 == segments.len();
            prop_assert_eq!(&segment[..network], &frame[..network], "the link header is the \
                frame's");
            let ip = &segment[network..];
            let headers = parse(ip).unwrap();
            prop_assert_eq!(usize::from(headers.total_length), ip.len());
            prop_assert_eq!((headers.addresses, headers.protocol), (host.addresses(), host.protocol()));
            let upper = &ip[headers.upper_offset.into()..];
            prop_assert!(checksum::upper_is_right(&host.addresses(), host.protocol(), upper));
            if !host.is_ipv6 {
                let identification = u16::from_be_bytes([ip[4], ip[5]]);
                prop_assert_eq!(identification, host.identification.wrapping_add(index as u16));
            }
            if host.is_tcp {
                let sequence = u32::from_be_bytes(upper[4..8].try_into().unwrap());
                prop_assert_eq!(sequence, host.sequence.wrapping_add(stream.len() as u32));
                let mut flags = host.flags;
                flags &= if is_last { 0xff } else { !0x09 };
                flags &= if index == 0 { 0xff } else { !0x80 };
                prop_assert_eq!(upper[13], flags);
                prop_assert_eq!(&upper[20..host.upper_header()], vec![1; 4 * host.tcp_options]);
            } else {
                prop_assert_eq!(usize::from(u16::from_be_bytes([upper[4], upper[5]])), upper.len());
            }
            let data = &upper[host.upper_header()..];
            prop_assert!(is_last || data.len() == usize::from(gso_size));
            stream.extend(data);
        }
        prop_assert_eq!(stream, host.payload);
    }

    #[test]
    fn segments_are_the_same_without_a_partial_checksum(host in host()) {
        let (frame, _, upper_at) = host.frame();
        let header = host.header(upper_at, 1000);
        let bare = VnetHeader { flags: 0, ..header };
        prop_assert_eq!(cut(&frame, &header), cut(&frame, &bare));
    }

    #[test]
    fn a_completed_checksum_is_right(host in host()) {
        let (mut frame, network, upper_at) = host.frame();
        complete_checksum(&mut frame, &host.header(upper_at, 0)).unwrap();
        let headers = parse(&frame[network..]).unwrap();
        let upper = &frame[network + usize::from(headers.upper_offset)..];
        prop_assert!(checksum::upper_is_right(&host.addresses(), host.protocol(), upper));
        prop_assert_ne!(&upper[host.field()..host.field() + 2], &[0, 0]);
    }

    #[test]
    fn nothing_panics_whatever_the_bytes(
        host in host(),
        changes in prop::collection::vec((0..120_usize, any::<u8>()), 0..8),
        header in any::<[u8; 10]>(),
        keep_type in any::<bool>(),
        length in 0..3000_usize,
    ) {
        let (mut frame, _, upper_at) = host.frame();
        for (at, byte) in changes {
            if let Some(place) = frame.get_mut(at) {
                *place = byte;
            }
        }
        frame.truncate(length);
        let mut header = VnetHeader::parse(header);
        if keep_type {
            header.gso_type = host.header(upper_at, 1).gso_type;
        }
        if let Ok(segments) = cut(&frame, &header) {
            prop_assert!(segments.len() <= frame.len().max(1));
        }
        let _ = complete_checksum(&mut frame, &header);
    }
}

fn tcp4(payload: usize) -> Host {
    Host {
        is_ipv6: false,
        is_tcp: true,
        vlan_tags: 0,
        ip_options: 0,
        tcp_options: 0,
        identification: 0xffff,
        sequence: u32::MAX - 100,
        flags: 0x99,
        payload: vec![7; payload],
    }
}

#[test]
fn unknown_types_and_contradictions_are_refused() {
    let (frame, network, upper_at) = tcp4(3000).frame();
    let good = tcp4(0).header(upper_at, 1000);
    assert!(cut(&frame, &good).is_ok());
    assert!(cut(&frame, &VnetHeader { gso_type: 0x81, ..good }).is_ok(), "TCP with ECN");
    for gso_type in [2, 3, 6, 0x40, 0x85, 0x83] {
        assert_eq!(
            cut(&frame, &VnetHeader { gso_type, ..good }),
            Err(Refused::Type),
            "{gso_type:#x}"
        );
    }
    for gso_type in [4, 5] {
        assert_eq!(
            cut(&frame, &VnetHeader { gso_type, ..good }),
            Err(Refused::Headers),
            "{gso_type:#x}"
        );
    }
    assert_eq!(cut(&frame, &VnetHeader { gso_size: 0, ..good }), Err(Refused::Headers));
    let longest = (MAX_LARGE_FRAME - upper_at - 20) as u16;
    let (long, ..) = tcp4(10_000).frame();
    assert_eq!(cut(&long, &VnetHeader { gso_size: longest + 1, ..good }), Err(Refused::Length));
    let segments = cut(&long, &VnetHeader { gso_size: longest, ..good }).unwrap();
    assert_eq!(segments[0].len(), MAX_LARGE_FRAME);
    assert_eq!(cut(&frame, &VnetHeader { csum_start: 30, ..good }), Err(Refused::Headers));
    assert_eq!(cut(&frame, &VnetHeader { csum_offset: 6, ..good }), Err(Refused::Headers));
    let mut tunnel = frame.clone();
    tunnel[network + 9] = 47;
    assert_eq!(cut(&tunnel, &good), Err(Refused::Headers), "GRE with TCP inside");
    let mut fragment = frame.clone();
    fragment[network + 6] = 0x20;
    assert_eq!(cut(&fragment, &good), Err(Refused::Headers));
    let mut longer = frame;
    longer[network + 2..network + 4].copy_from_slice(&4000_u16.to_be_bytes());
    assert_eq!(cut(&longer, &good), Err(Refused::Headers));
}

/// Segments of 3000 bytes and one of 1000: each has a buffer of its size, waits for one while the
/// batch has packets, and is missed if the batch has none.
#[test]
fn segments_without_a_buffer_wait_or_are_missed() {
    let (frame, _, upper_at) = tcp4(10_000).frame();
    let header = tcp4(0).header(upper_at, 3000);
    let (mut pool, mut batch) = (Pool::with_large(1, 2), Batch::new());
    let statistics = PortStatistics::default();
    let mut cutter = Cutter::new();
    cutter.load(&frame).unwrap();
    cutter.start(frame.len(), &header, None).unwrap();
    let headers = upper_at as u64 + 20;
    assert_eq!(cutter.cut(PortId(3), &mut pool, &mut batch, &statistics), 2 * (headers + 3000));
    assert_eq!(cutter.cut(PortId(3), &mut pool, &mut batch, &statistics), 0);
    assert!(cutter.is_busy() && statistics.rx_missed.read() == 0);
    // The large buffers are kept elsewhere now.
    let kept: Vec<Packet> = batch.drain(..).collect();
    assert_eq!(cutter.cut(PortId(3), &mut pool, &mut batch, &statistics), headers + 1000);
    assert!(!cutter.is_busy() && !batch[0].is_large() && batch[0].port() == PortId(3));
    assert_eq!((statistics.rx_missed.read(), statistics.rx_errors.read()), (1, 0));
    let sequence = |packet: &Packet| {
        let at = upper_at + 4;
        u32::from_be_bytes(packet.bytes()[at..at + 4].try_into().unwrap())
    };
    let first = sequence(&kept[0]);
    assert_eq!(sequence(&batch[0]).wrapping_sub(first), 9000, "the missed one left its gap");
}

#[test]
fn a_udp_checksum_of_none_stays_none() {
    let host = Host { is_tcp: false, ..tcp4(2500) };
    let (mut frame, _, upper_at) = host.frame();
    frame[upper_at + 6..upper_at + 8].fill(0);
    let segments = cut(&frame, &VnetHeader { flags: 0, ..host.header(upper_at, 1000) }).unwrap();
    assert_eq!(segments.len(), 3);
    assert!(segments.iter().all(|segment| segment[upper_at + 6..upper_at + 8] == [0, 0]));
}

#[test]
fn the_field_decides_where_a_routing_header_makes_the_addresses_wrong() {
    let host = Host { is_ipv6: true, ..tcp4(2500) };
    let (frame, network, upper_at) = host.frame();
    // A type 2 routing header between, whose address is the final destination.
    let last_hop: std::net::Ipv6Addr = "2001:db8::77".parse().unwrap();
    let mut routed = frame[..upper_at].to_vec();
    routed[network + 6] = 43;
    routed[network + 4..network + 6]
        .copy_from_slice(&((24 + frame.len() - upper_at) as u16).to_be_bytes());
    routed.extend([6, 2, 2, 1, 0, 0, 0, 0]);
    routed.extend(last_hop.octets());
    let upper_at = routed.len();
    routed.extend(host.upper());
    let finally = Addresses::V6 { source: "fd00::1".parse().unwrap(), destination: last_hop };
    let partial =
        checksum::pseudo_header(&finally, Protocol::TCP, (routed.len() - upper_at) as u32);
    routed[upper_at + 16..upper_at + 18].copy_from_slice(&partial.to_be_bytes());
    let header = host.header(upper_at, 1000);
    for segment in cut(&routed, &header).unwrap() {
        assert!(checksum::upper_is_right(&finally, Protocol::TCP, &segment[upper_at..]));
    }
    assert_eq!(cut(&routed, &VnetHeader { flags: 0, ..header }), Err(Refused::Headers));
}

#[test]
fn sctp_gets_its_crc() {
    // An SCTP common header and a HEARTBEAT chunk, from port 1 to port 2.
    let mut frame = tcp4(0).frame().0[..34].to_vec();
    frame[14 + 9] = Protocol::SCTP.0;
    frame[14 + 2..14 + 4].copy_from_slice(&32_u16.to_be_bytes());
    frame.extend([0, 1, 0, 2, 0, 0, 0, 3, 0xde, 0xad, 0xbe, 0xef]);
    let header = VnetHeader { flags: 1, csum_start: 34, csum_offset: 8, ..VnetHeader::default() };
    complete_checksum(&mut frame, &header).unwrap();
    // The same bit by bit, after RFC 9260 appendix A.
    let mut crc = u32::MAX;
    for byte in [0, 1, 0, 2, 0, 0, 0, 3, 0, 0, 0, 0_u8] {
        for bit in 0..8 {
            let odd = (crc ^ u32::from(byte >> bit)) & 1 == 1;
            crc = (crc >> 1) ^ if odd { 0x82f6_3b78 } else { 0 };
        }
    }
    assert_eq!(frame[42..46], (!crc).to_le_bytes());
}

#[test]
fn a_checksum_outside_the_frame_is_refused() {
    let (mut frame, _, upper_at) = tcp4(0).frame();
    for (csum_start, csum_offset) in
        [(upper_at as u16, 19), (u16::MAX, u16::MAX), (frame.len() as u16, 0)]
    {
        let header = VnetHeader { flags: 1, csum_start, csum_offset, ..VnetHeader::default() };
        assert_eq!(complete_checksum(&mut frame, &header), Err(Refused::Headers));
    }
}

#[test]
fn a_vlan_tag_goes_behind_the_addresses() {
    let mut packet: Packet = Pool::new(1).take().unwrap();
    assert!(packet.fill(&tcp4(10).frame().0));
    assert!(insert_vlan(&mut packet, 0x8100, 0x2064));
    assert_eq!(
        packet.bytes()[..18],
        [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x81, 0, 0x20, 0x64, 8, 0]
    );
    assert_eq!(packet.len(), tcp4(10).frame().0.len() + 4);
    packet.truncate(11);
    assert!(!insert_vlan(&mut packet, 0x8100, 1));
    packet.clear();
    assert!(packet.append(CAPACITY - packet.headroom()).is_some());
    assert!(!insert_vlan(&mut packet, 0x8100, 1));
}

#[test]
fn the_virtio_header_is_read_as_the_kernel_writes_it() {
    let mut bytes = [1, 0x81, 0, 54, 0, 0, 0, 0, 0, 0];
    for (at, value) in [(4, 1448_u16), (6, 34), (8, 16)] {
        bytes[at..at + 2].copy_from_slice(&value.to_ne_bytes());
    }
    let header = VnetHeader::parse(bytes);
    assert_eq!(
        header,
        VnetHeader { flags: 1, gso_type: 0x81, gso_size: 1448, csum_start: 34, csum_offset: 16 }
    );
    assert!(header.is_segmented() && header.lacks_checksum() && !header.is_whole());
    assert!(VnetHeader { flags: 2, ..VnetHeader::default() }.is_whole());
}
