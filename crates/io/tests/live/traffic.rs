//! Traffic of ordinary sockets between two namespaces.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use crate::namespaces::Namespace;

/// Sends `bytes` bytes over TCP from one namespace to `address` in the other, which checks every
/// one of them. Returns Mbit/s.
pub(crate) fn tcp(from: &Namespace, to: &Namespace, address: IpAddr, bytes: usize) -> f64 {
    let listener = to.enter(|| TcpListener::bind((address, 0)).unwrap());
    let target = listener.local_addr().unwrap();
    let receiving = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let (mut buffer, mut received) = (vec![0; 1 << 16], 0);
        loop {
            let count = stream.read(&mut buffer).unwrap();
            if count == 0 {
                stream.write_all(b"done").unwrap();
                return received;
            }
            for (index, byte) in buffer[..count].iter().enumerate() {
                assert_eq!(*byte, pattern(received + index));
            }
            received += count;
        }
    });
    let mut stream =
        from.enter(|| TcpStream::connect_timeout(&target, Duration::from_secs(5)).unwrap());
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.set_write_timeout(Some(Duration::from_secs(10))).unwrap();
    let started = Instant::now();
    let mut sent = 0;
    while sent < bytes {
        let chunk: Vec<u8> = (sent..(sent + (1 << 16)).min(bytes)).map(pattern).collect();
        stream.write_all(&chunk).unwrap();
        sent += chunk.len();
    }
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut answer = [0; 4];
    stream.read_exact(&mut answer).unwrap();
    let seconds = started.elapsed().as_secs_f64();
    assert_eq!(receiving.join().unwrap(), bytes);
    bytes as f64 * 8.0 / seconds / 1e6
}

/// Has the kernel send one buffer of `count` datagrams of `size` bytes (the last one shorter by
/// `less`) by UDP segmentation offload, and checks that exactly those arrive.
pub(crate) fn udp_segments(
    from: &Namespace,
    to: &Namespace,
    address: IpAddr,
    size: usize,
    count: usize,
    less: usize,
) {
    let receiver = to.enter(|| UdpSocket::bind((address, 0)).unwrap());
    receiver.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let target = receiver.local_addr().unwrap();
    let any = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let sender = from.enter(|| UdpSocket::bind(any.parse::<SocketAddr>().unwrap()).unwrap());
    // One plain datagram first: it fills in the neighbour, behind which a burst would queue and be
    // dropped.
    sender.send_to(b"hello", target).unwrap();
    let mut buffer = [0; 1 << 14];
    assert_eq!(receiver.recv(&mut buffer).unwrap(), 5);
    let segment = size as libc::c_int;
    // SAFETY: the option's value lives across the call and has the length told.
    let set = unsafe {
        const UDP_SEGMENT: libc::c_int = 103;
        let length = size_of::<libc::c_int>() as libc::socklen_t;
        libc::setsockopt(
            sender.as_raw_fd(),
            libc::SOL_UDP,
            UDP_SEGMENT,
            (&raw const segment).cast(),
            length,
        )
    };
    assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
    let data: Vec<u8> = (0..size * count - less).map(pattern).collect();
    assert_eq!(sender.send_to(&data, target).unwrap(), data.len());
    for expected in data.chunks(size) {
        let length = receiver.recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..length], expected);
    }
}

fn pattern(index: usize) -> u8 {
    (index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()[0]
}
