//! Sockets of the machine's programs, by `/proc/net`: what they lose with the addresses of an
//! interface.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// A socket that is bound to an address, or to all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Socket {
    protocol: &'static str,
    local: SocketAddr,
    /// The other end of a connection.
    remote: Option<SocketAddr>,
    inode: u64,
}

/// The lists, and what their sockets are.
const LISTS: [(&str, &str); 6] = [
    ("tcp", "tcp"),
    ("tcp6", "tcp"),
    ("udp", "udp"),
    ("udp6", "udp"),
    ("raw", "raw"),
    ("raw6", "raw"),
];

/// The sockets of the calling thread's network namespace that `wanted` is true of.
///
/// # Errors
/// A list cannot be read.
pub(super) fn all(wanted: impl Fn(&Socket) -> bool) -> io::Result<Vec<Socket>> {
    let mut found = Vec::new();
    for (list, protocol) in LISTS {
        let file = match File::open(format!("/proc/thread-self/net/{list}")) {
            Ok(file) => file,
            // A kernel without IPv6.
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        for line in BufReader::new(file).lines().skip(1) {
            found.extend(socket(protocol, &line?).filter(&wanted));
        }
    }
    Ok(found)
}

/// Reads a line: number, local and remote address, state, and at the tenth place the inode.
fn socket(protocol: &'static str, line: &str) -> Option<Socket> {
    const TIME_WAIT: &str = "06";
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    let (&local, &remote, &state) = (words.get(1)?, words.get(2)?, words.get(3)?);
    // Nobody has a connection any more that is over.
    if protocol == "tcp" && state == TIME_WAIT {
        return None;
    }
    let remote = address(remote)?;
    Some(Socket {
        protocol,
        local: address(local)?,
        remote: (!remote.ip().is_unspecified()).then_some(remote),
        inode: words.get(9)?.parse().ok()?,
    })
}

/// Reads an address: words of the machine's own byte order, and the port.
fn address(text: &str) -> Option<SocketAddr> {
    let (address, port) = text.split_once(':')?;
    let word = |at: usize| {
        let word = u32::from_str_radix(address.get(at..at + 8)?, 16).ok()?;
        Some(word.to_ne_bytes())
    };
    let ip = match address.len() {
        8 => IpAddr::V4(Ipv4Addr::from(word(0)?)),
        32 => {
            let mut octets = [0; 16];
            for (place, octets) in octets.chunks_exact_mut(4).enumerate() {
                octets.copy_from_slice(&word(8 * place)?);
            }
            Ipv6Addr::from(octets).to_canonical()
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, u16::from_str_radix(port, 16).ok()?))
}

impl Socket {
    /// Whether it loses something if these addresses are removed: it is bound to one of them, or
    /// listens on all.
    pub(super) fn needs(&self, addresses: &BTreeSet<IpAddr>) -> bool {
        let local = self.local.ip();
        addresses.contains(&local) || self.is_of_all() && self.remote.is_none()
    }

    /// Whether it is bound to all addresses.
    pub(super) fn is_of_all(&self) -> bool {
        self.local.ip().is_unspecified()
    }

    /// What it loses. `programs` knows whose it is.
    pub(super) fn describe(&self, programs: &BTreeMap<u64, String>) -> String {
        let Self { protocol, local, remote, inode } = self;
        let of = match programs.get(inode) {
            Some(program) => format!(" of {program}"),
            None => String::new(),
        };
        match remote {
            Some(remote) => format!("the {protocol} connection {local} to {remote}{of}"),
            None if self.is_of_all() => {
                let port = local.port();
                format!("{protocol} port {port} of all addresses{of}, on these addresses")
            }
            None => format!("{protocol} {local}{of}"),
        }
    }
}

/// The programs that have these sockets, as far as this process may see it.
pub(super) fn programs(sockets: &[Socket]) -> BTreeMap<u64, String> {
    let wanted: BTreeSet<u64> = sockets.iter().map(|socket| socket.inode).collect();
    let mut found = BTreeMap::new();
    let Ok(processes) = fs::read_dir("/proc") else { return found };
    for process in processes.flatten() {
        let name = process.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        // Those of other users, and those that have ended meanwhile, are passed over.
        let Ok(descriptors) = fs::read_dir(process.path().join("fd")) else { continue };
        for descriptor in descriptors.flatten() {
            let Some(inode) = fs::read_link(descriptor.path()).ok().and_then(|target| {
                let name = target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?;
                name.parse::<u64>().ok().filter(|inode| wanted.contains(inode))
            }) else {
                continue;
            };
            // A program may have any name, and a program that others start inherits its sockets.
            let name = fs::read(process.path().join("comm")).unwrap_or_default();
            let name = String::from_utf8_lossy(&name).trim_end().escape_debug().to_string();
            found.entry(inode).or_insert_with(|| format!("{name} (pid {pid})"));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream, UdpSocket};

    use super::*;

    fn described(addresses: &[&str], port: u16) -> Vec<String> {
        let addresses = addresses.iter().map(|address| address.parse().unwrap()).collect();
        let found = all(|socket| socket.needs(&addresses) && socket.local.port() == port).unwrap();
        let programs = programs(&found);
        found.iter().map(|socket| socket.describe(&programs)).collect()
    }

    #[test]
    fn own_sockets_are_found_by_their_address_and_named() {
        let comm = fs::read_to_string("/proc/self/comm").unwrap();
        let own = format!("{} (pid {})", comm.trim(), std::process::id());

        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let client = TcpStream::connect(at).unwrap();
        let (_server, _) = listener.accept().unwrap();
        let mut told = described(&["127.0.0.1", "::1"], at.port());
        told.sort();
        let connection =
            format!("the tcp connection {at} to {} of {own}", client.local_addr().unwrap());
        assert_eq!(told, [format!("tcp {at} of {own}"), connection]);
        assert_eq!(described(&["127.0.0.2"], at.port()), [""; 0]);

        let everywhere = UdpSocket::bind("0.0.0.0:0").unwrap();
        let port = everywhere.local_addr().unwrap().port();
        let told = described(&["192.0.2.1"], port);
        let expected = format!("udp port {port} of all addresses of {own}, on these addresses");
        assert_eq!(told, [expected]);
    }

    #[test]
    fn addresses_are_read_as_the_kernel_writes_them() {
        let kernel = |words: &[[u8; 4]]| {
            let hex = |word: &[u8; 4]| format!("{:08X}", u32::from_ne_bytes(*word));
            words.iter().map(hex).collect::<String>() + ":01F4"
        };
        assert_eq!(address(&kernel(&[[192, 0, 2, 1]])), "192.0.2.1:500".parse().ok());
        let v6 = [[0x20, 1, 0x0d, 0xb8], [0; 4], [0; 4], [0, 0, 0, 1]];
        assert_eq!(address(&kernel(&v6)), "[2001:db8::1]:500".parse().ok());
        let mapped = [[0; 4], [0; 4], [0, 0, 255, 255], [192, 0, 2, 1]];
        assert_eq!(address(&kernel(&mapped)), "192.0.2.1:500".parse().ok());
        for wrong in ["", ":", "0:0", "0100007F:", "0100007F:10000", "x100007F:0001", "ä€:1"] {
            assert_eq!(address(wrong), None, "{wrong}");
        }
        assert_eq!(socket("tcp", "sl local"), None);
    }
}
