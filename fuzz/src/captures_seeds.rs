//! The seeds of the corpus `captures`: files with what is to be read of each.

/// One file of the corpus.
#[derive(Clone, Debug)]
pub struct Seed {
    /// The file's name.
    pub name: &'static str,
    /// Its contents.
    pub bytes: Vec<u8>,
    /// How many packets it has, and whether it is damaged behind them; `None` if it is no capture.
    pub verdict: Option<(u64, bool)>,
}

/// Every seed, from plain to nasty.
pub fn all() -> Vec<Seed> {
    let seed = |name, verdict, parts: &[&[u8]]| Seed { name, bytes: parts.concat(), verdict };
    let (good, damaged) = (|packets| Some((packets, false)), |packets| Some((packets, true)));
    let header = pcap_header(0xa1b2_c3d4, 1);
    let frame = record(1_700_000_000, 5, 60, &[7; 60]);
    let jumbo = record(1_700_000_001, 6, 9230, &[8; 9230]);
    let section = section();
    let interface = block(1, &[&words(&[1, 0])]);
    let packet = enhanced(0, 60, &[7; 60]);
    let picoseconds = block(1, &[&words(&[1, 0]), &[9, 0, 1, 0, 12, 0, 0, 0], &words(&[0])]);
    let big = |word: u32| word.to_be_bytes();
    let big_endian: Vec<u8> =
        [0xa1b2_c3d4, 0x0002_0004, 0, 0, 262_144, 1, 1, 999_999, 4, 4].map(big).concat();
    vec![
        seed("pcap", good(2), &[&header, &frame, &frame]),
        seed("pcap-nanoseconds", good(1), &[&pcap_header(0xa1b2_3c4d, 1), &frame]),
        seed("pcap-big-endian", good(1), &[&big_endian, b"data"]),
        seed("pcap-raw-ip", good(1), &[&pcap_header(0xa1b2_c3d4, 101), &frame]),
        seed("pcap-without-packets", good(0), &[&header]),
        seed("pcap-jumbo", good(2), &[&header, &jumbo, &frame]),
        seed("pcap-longer-than-a-buffer", good(1), &[&header, &record(1, 1, 9281, &[1; 9281])]),
        seed("pcap-truncated-by-snapshot", good(1), &[&header, &record(1, 1, 1500, &[7; 60])]),
        seed("pcap-time-runs-backwards", good(2), &[&header, &jumbo, &frame]),
        seed("pcap-cut-in-header", damaged(1), &[&header, &frame, &frame[..7]]),
        seed("pcap-cut-in-record", damaged(1), &[&header, &frame, &frame[..30]]),
        seed("pcap-record-too-long", damaged(0), &[&header, &words(&[1, 1, 262_145, 60])]),
        seed("pcap-802.11", None, &[&pcap_header(0xa1b2_c3d4, 127), &frame]),
        seed("pcap-linux-cooked", good(1), &[&pcap_header(0xa1b2_c3d4, 113), &frame]),
        seed("pcapng", good(2), &[&section, &interface, &packet, &packet]),
        seed("pcapng-picoseconds", good(1), &[&section, &picoseconds, &packet]),
        seed(
            "pcapng-simple-packet",
            good(1),
            &[&section, &interface, &block(3, &[&words(&[4]), b"data"])],
        ),
        seed(
            "pcapng-two-sections",
            good(2),
            &[&section, &interface, &packet, &section, &interface, &packet],
        ),
        seed(
            "pcapng-other-link-type",
            good(1),
            &[&section, &interface, &block(1, &[&words(&[113, 0])]), &enhanced(1, 4, b"data")],
        ),
        seed(
            "pcapng-unknown-interface",
            damaged(0),
            &[&section, &interface, &enhanced(7, 4, b"data")],
        ),
        seed("pcapng-block-length-0", damaged(0), &[&section, &interface, &words(&[6, 0, 0])]),
        seed(
            "pcapng-block-length-huge",
            damaged(0),
            &[&section, &interface, &words(&[99, u32::MAX - 3])],
        ),
        seed(
            "pcapng-packet-past-block",
            damaged(0),
            &[&section, &interface, &block(6, &[&words(&[0, 0, 0, 5, 5, 0])])],
        ),
        seed(
            "pcapng-option-past-block",
            damaged(0),
            &[&section, &interface, &block(1, &[&words(&[1, 0]), &[9, 0, 9, 0, 0, 0, 0, 0]])],
        ),
        seed("gif", None, &[b"GIF89a.."]),
        seed("empty", None, &[]),
    ]
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn pcap_header(magic: u32, link: u32) -> Vec<u8> {
    words(&[magic, 0x0004_0002, 0, 0, 262_144, link])
}

fn record(seconds: u32, fraction: u32, original: u32, bytes: &[u8]) -> Vec<u8> {
    [words(&[seconds, fraction, bytes.len() as u32, original]), bytes.to_vec()].concat()
}

fn section() -> Vec<u8> {
    block(0x0a0d_0d0a, &[&words(&[0x1a2b_3c4d, 1, u32::MAX, u32::MAX])])
}

/// A pcapng block of bodies that are whole words together.
fn block(kind: u32, bodies: &[&[u8]]) -> Vec<u8> {
    let body = bodies.concat();
    let length = body.len() as u32 + 12;
    [words(&[kind, length]), body, words(&[length])].concat()
}

fn enhanced(interface: u32, original: u32, bytes: &[u8]) -> Vec<u8> {
    let header = words(&[interface, 0, 1000, bytes.len() as u32, original]);
    block(6, &[&header, bytes])
}
