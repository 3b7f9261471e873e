//! Addresses, routes and neighbours of the kernel, by rtnetlink(7), in the network namespace of the thread that
//! opens the socket: read, removed, and put back as they were.
//!
//! An address and a route are kept as the message that the kernel describes them with, as
//! `ip route save` does. So nothing is lost of them that this program does not know.

mod neighbours;

use core::fmt;
use core::ops::Range;
use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;

use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

pub use neighbours::KernelNeighbour;

const NLMSG_HEADER: usize = 16;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLM_F_REQUEST: u16 = 0x1;
const NLM_F_ACK: u16 = 0x4;
const NLM_F_DUMP_INTR: u16 = 0x10;
const NLM_F_EXCL: u16 = 0x200;
const NLM_F_DUMP: u16 = 0x300;
const NLM_F_CREATE: u16 = 0x400;

const RTM_NEWADDR: u16 = 20;
const RTM_DELADDR: u16 = 21;
const RTM_GETADDR: u16 = 22;
const RTM_NEWROUTE: u16 = 24;
const RTM_DELROUTE: u16 = 25;
const RTM_GETROUTE: u16 = 26;

/// The length of an `ifaddrmsg`.
const ADDRESS_HEADER: usize = 8;
/// The length of an `rtmsg`.
const ROUTE_HEADER: usize = 12;

/// The longest part of an answer: the kernel's own limit is 32 KiB.
const LONGEST_PART: usize = 64 << 10;

/// How often a list is asked for that changes while it is read.
const ATTEMPTS: usize = 10;

/// Asks for addresses and routes, and changes them.
pub struct Rtnetlink {
    socket: Socket,
    buffer: Vec<u8>,
    sequence: u32,
}

/// An address that the kernel has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelAddress {
    /// The address.
    pub address: IpAddr,
    /// The length of its prefix.
    pub prefix: u8,
    /// Its interface.
    pub index: u32,
    /// Its scope: 0 is global, 253 the link, 254 the host itself.
    pub scope: u8,
    /// For how many seconds more the kernel has it, unless it is for good.
    pub valid: Option<u32>,
    message: Vec<u8>,
}

/// A route that the kernel has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelRoute {
    /// Where to; `None` is everywhere.
    pub destination: Option<(IpAddr, u8)>,
    /// The next hop; of several, none.
    pub gateway: Option<IpAddr>,
    /// The source address that it suggests.
    pub source: Option<IpAddr>,
    /// The interfaces by which it leaves.
    pub interfaces: Vec<u32>,
    /// Who made it, by rtnetlink(7): 2 is the kernel itself.
    pub protocol: u8,
    /// The nexthop object that it goes by (ip-nexthop(8)). Such a route cannot be removed or made
    /// anew by the message that describes it: the kernel takes the object or its next hops, not
    /// both.
    pub nexthop: Option<u32>,
    /// What it does with packets, by rtnetlink(7): 1 is to forward them.
    pub kind: u8,
    /// Its table.
    pub table: u32,
    /// Its metric.
    pub priority: u32,
    message: Vec<u8>,
}

impl Rtnetlink {
    /// A socket to ask by. It takes `CAP_NET_ADMIN` to change something.
    ///
    /// # Errors
    /// If the system gives no netlink socket.
    pub fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        // The kernel has answered when the question has been sent.
        socket.set_non_blocking(true)?;
        Ok(Self { socket, buffer: vec![0; LONGEST_PART], sequence: 0 })
    }

    /// All addresses of all interfaces, in the kernel's order.
    ///
    /// # Errors
    /// What the kernel refuses, and an answer that cannot be read.
    pub fn addresses(&mut self) -> io::Result<Vec<KernelAddress>> {
        self.dump(RTM_GETADDR, RTM_NEWADDR, &question(libc::AF_UNSPEC), |message| {
            // Other families than IP have addresses too.
            KernelAddress::from_message(message)
        })
    }

    /// The routes of all tables that `wanted` is true of, in the kernel's order.
    ///
    /// # Errors
    /// What the kernel refuses, and an answer that cannot be read.
    pub fn routes(
        &mut self,
        wanted: impl Fn(&KernelRoute) -> bool,
    ) -> io::Result<Vec<KernelRoute>> {
        let mut all = Vec::new();
        for family in [libc::AF_INET, libc::AF_INET6] {
            all.extend(self.dump(RTM_GETROUTE, RTM_NEWROUTE, &question(family), |message| {
                KernelRoute::from_message(message).filter(&wanted)
            })?);
        }
        Ok(all)
    }

    /// Removes an address.
    ///
    /// # Errors
    /// What the kernel refuses: `EADDRNOTAVAIL` if it is not there.
    pub fn remove_address(&mut self, address: &KernelAddress) -> io::Result<()> {
        self.change(RTM_DELADDR, 0, &address.message)
    }

    /// Puts an address back on the interface `index`, `seconds` after it was read.
    ///
    /// # Errors
    /// What the kernel refuses: `EEXIST` if it is there; and [`io::ErrorKind::TimedOut`] if its
    /// lifetime is over.
    pub fn restore_address(
        &mut self,
        address: &KernelAddress,
        index: u32,
        seconds: u32,
    ) -> io::Result<()> {
        let message = address.later(index, seconds).ok_or(io::ErrorKind::TimedOut)?;
        self.change(RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, &message)
    }

    /// Removes a route.
    ///
    /// # Errors
    /// What the kernel refuses: `ESRCH` if it is not there.
    pub fn remove_route(&mut self, route: &KernelRoute) -> io::Result<()> {
        self.change(RTM_DELROUTE, 0, &route.message)
    }

    /// Puts a route back. Interfaces that `indices` knows by the index that they had when it was
    /// read have another one now.
    ///
    /// # Errors
    /// What the kernel refuses: `EEXIST` if it is there.
    pub fn restore_route(
        &mut self,
        route: &KernelRoute,
        indices: &BTreeMap<u32, u32>,
    ) -> io::Result<()> {
        self.change(RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL, &route.moved(indices))
    }

    fn send(&mut self, kind: u16, flags: u16, body: &[u8]) -> io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        let length = u32::try_from(NLMSG_HEADER + body.len()).map_err(|_| broken("too long"))?;
        let mut message = Vec::with_capacity(NLMSG_HEADER + body.len());
        message.extend(length.to_ne_bytes());
        message.extend(kind.to_ne_bytes());
        message.extend((flags | NLM_F_REQUEST).to_ne_bytes());
        message.extend(self.sequence.to_ne_bytes());
        message.extend([0; 4]);
        message.extend(body);
        self.socket.send(&message, 0).map(drop)
    }

    fn change(&mut self, kind: u16, flags: u16, body: &[u8]) -> io::Result<()> {
        self.send(kind, flags | NLM_F_ACK, body)?;
        loop {
            let length = self.socket.recv(&mut &mut self.buffer[..], 0)?;
            for message in Messages(&self.buffer[..length]) {
                let message = message?;
                if message.sequence == self.sequence && message.kind == NLMSG_ERROR {
                    return message.outcome();
                }
            }
        }
    }

    fn dump<T>(
        &mut self,
        question: u16,
        answer: u16,
        body: &[u8],
        mut read: impl FnMut(&[u8]) -> Option<T>,
    ) -> io::Result<Vec<T>> {
        for _ in 0..ATTEMPTS {
            self.send(question, NLM_F_DUMP, body)?;
            let (mut found, mut is_whole) = (Vec::new(), true);
            'answer: loop {
                let length = self.socket.recv(&mut &mut self.buffer[..], 0)?;
                for message in Messages(&self.buffer[..length]) {
                    let message = message?;
                    if message.sequence != self.sequence {
                        continue;
                    }
                    is_whole &= message.flags & NLM_F_DUMP_INTR == 0;
                    match message.kind {
                        NLMSG_DONE => break 'answer,
                        NLMSG_ERROR => message.outcome()?,
                        kind if kind == answer => found.extend(read(message.body)),
                        _ => {}
                    }
                }
            }
            if is_whole {
                return Ok(found);
            }
        }
        Err(io::Error::new(io::ErrorKind::ResourceBusy, "addresses or routes change all the time"))
    }
}

/// What to ask for a list by. It is as long as the longer of the headers: the kernel reads what it
/// needs.
fn question(family: i32) -> [u8; ROUTE_HEADER] {
    let mut body = [0; ROUTE_HEADER];
    body[0] = family as u8;
    body
}

fn broken(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// The messages of a part of an answer.
struct Messages<'b>(&'b [u8]);

struct Message<'b> {
    kind: u16,
    flags: u16,
    sequence: u32,
    body: &'b [u8],
}

impl<'b> Iterator for Messages<'b> {
    type Item = io::Result<Message<'b>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let bytes = std::mem::take(&mut self.0);
        let read = || {
            let length = usize::try_from(word(bytes, 0)?).ok()?;
            let body = bytes.get(NLMSG_HEADER..length)?;
            let message = Message {
                kind: half(bytes, 4)?,
                flags: half(bytes, 6)?,
                sequence: word(bytes, 8)?,
                body,
            };
            Some((message, bytes.get(length.next_multiple_of(4)..).unwrap_or_default()))
        };
        let Some((message, rest)) = read() else {
            return Some(Err(broken("a netlink message that is cut")));
        };
        self.0 = rest;
        Some(Ok(message))
    }
}

impl Message<'_> {
    /// What an NLMSG_ERROR says: the negative number of an error, or 0.
    fn outcome(&self) -> io::Result<()> {
        match word(self.body, 0).map(u32::cast_signed) {
            Some(0) => Ok(()),
            Some(code) => Err(io::Error::from_raw_os_error(code.wrapping_neg())),
            None => Err(broken("a netlink error that is cut")),
        }
    }
}

impl KernelAddress {
    /// Reads the message that describes an IP address.
    pub fn from_message(message: &[u8]) -> Option<Self> {
        const IFA_ADDRESS: u16 = 1;
        const IFA_LOCAL: u16 = 2;
        let family = *message.first()?;
        let (mut address, mut local, mut valid) = (None, None, None);
        for (kind, place) in attributes(message, ADDRESS_HEADER) {
            match kind {
                // Of a link to one peer, this is the peer's.
                IFA_ADDRESS => address = ip(family, &message[place]),
                IFA_LOCAL => local = ip(family, &message[place]),
                IFA_CACHEINFO => valid = word(message, place.start + 4),
                _ => {}
            }
        }
        Some(Self {
            address: local.or(address)?,
            prefix: *message.get(1)?,
            scope: *message.get(3)?,
            index: word(message, 4)?,
            valid: valid.filter(|seconds| *seconds != FOREVER),
            message: message.to_vec(),
        })
    }

    /// The message that describes it.
    pub fn message(&self) -> &[u8] {
        &self.message
    }

    /// The message as it is to be on the interface `index` after some seconds, unless the lifetime
    /// is over then.
    fn later(&self, index: u32, seconds: u32) -> Option<Vec<u8>> {
        let mut message = self.message.clone();
        set_word(&mut message, 4, index);
        for (kind, place) in attributes(&self.message, ADDRESS_HEADER) {
            if kind != IFA_CACHEINFO {
                continue;
            }
            for (at, may_be_over) in [(place.start, true), (place.start + 4, false)] {
                match word(&message, at)? {
                    FOREVER => {}
                    left if left > seconds => set_word(&mut message, at, left - seconds),
                    _ if may_be_over => set_word(&mut message, at, 0),
                    _ => return None,
                }
            }
        }
        Some(message)
    }
}

/// `ifa_cacheinfo`: for how many seconds an address is preferred, and valid.
const IFA_CACHEINFO: u16 = 6;

/// A lifetime without an end.
const FOREVER: u32 = u32::MAX;

impl fmt::Display for KernelAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

const RTA_OIF: u16 = 4;
const RTA_MULTIPATH: u16 = 9;

impl KernelRoute {
    /// Reads the message that describes an IP route.
    pub fn from_message(message: &[u8]) -> Option<Self> {
        const RTA_DST: u16 = 1;
        const RTA_GATEWAY: u16 = 5;
        const RTA_PRIORITY: u16 = 6;
        const RTA_PREFSRC: u16 = 7;
        const RTA_TABLE: u16 = 15;
        const RTA_NH_ID: u16 = 30;
        let family = *message.first()?;
        let mut route = Self {
            destination: None,
            gateway: None,
            source: None,
            interfaces: Vec::new(),
            protocol: *message.get(5)?,
            nexthop: None,
            kind: *message.get(7)?,
            table: u32::from(*message.get(4)?),
            priority: 0,
            message: message.to_vec(),
        };
        for (kind, place) in attributes(message, ROUTE_HEADER) {
            match kind {
                RTA_DST => {
                    route.destination = Some((ip(family, &message[place])?, *message.get(1)?));
                }
                RTA_GATEWAY => route.gateway = ip(family, &message[place]),
                RTA_PREFSRC => route.source = ip(family, &message[place]),
                RTA_PRIORITY => route.priority = word(message, place.start)?,
                RTA_TABLE => route.table = word(message, place.start)?,
                RTA_NH_ID => route.nexthop = word(message, place.start),
                RTA_OIF => route.interfaces.extend(word(message, place.start)),
                RTA_MULTIPATH => {
                    let hops = next_hops(message, place);
                    route.interfaces.extend(hops.iter().filter_map(|at| word(message, at + 4)));
                }
                _ => {}
            }
        }
        Some(route)
    }

    /// The message that describes it.
    pub fn message(&self) -> &[u8] {
        &self.message
    }

    /// What follows `ip` to remove it.
    pub fn removal(&self) -> String {
        let family = match self.message.first() {
            Some(family) if i32::from(*family) == libc::AF_INET6 => "-6",
            _ => "-4",
        };
        let to = match self.destination {
            None => "default".to_owned(),
            Some((address, length)) => format!("{address}/{length}"),
        };
        let by = self.nexthop.map_or_else(String::new, |id| format!(" nhid {id}"));
        format!("{family} route del {to}{by} table {} metric {}", self.table, self.priority)
    }

    /// The message to make it anew by, with other indices of its interfaces. Flags that say how the
    /// route is at the moment are no part of it.
    fn moved(&self, indices: &BTreeMap<u32, u32>) -> Vec<u8> {
        const RTNH_F_PERVASIVE: u8 = 2;
        const RTNH_F_ONLINK: u8 = 4;
        let mut message = self.message.clone();
        let flags = word(&message, 8).unwrap_or(0);
        set_word(&mut message, 8, flags & u32::from(RTNH_F_PERVASIVE | RTNH_F_ONLINK));
        let mut places = Vec::new();
        for (kind, place) in attributes(&self.message, ROUTE_HEADER) {
            match kind {
                RTA_OIF => places.push(place.start),
                RTA_MULTIPATH => {
                    for at in next_hops(&self.message, place) {
                        message[at + 2] &= RTNH_F_PERVASIVE | RTNH_F_ONLINK;
                        places.push(at + 4);
                    }
                }
                _ => {}
            }
        }
        for at in places {
            if let Some(index) = word(&message, at).and_then(|index| indices.get(&index)) {
                set_word(&mut message, at, *index);
            }
        }
        message
    }
}

impl fmt::Display for KernelRoute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.destination {
            None => f.write_str("default")?,
            Some((address, length)) => write!(f, "{address}/{length}")?,
        }
        self.gateway.map_or(Ok(()), |gateway| write!(f, " via {gateway}"))
    }
}

/// The kinds of the attributes behind a header of `header` bytes, and the places of their values.
/// Ends at the first one that is cut.
fn attributes(message: &[u8], header: usize) -> Vec<(u16, Range<usize>)> {
    const HEADER: usize = 4;
    const TYPE_MASK: u16 = 0x3fff;
    let mut found = Vec::new();
    let mut at = header;
    while let (Some(length), Some(kind)) = (half(message, at), half(message, at + 2)) {
        let length = usize::from(length);
        if length < HEADER || message.len() < at + length {
            break;
        }
        found.push((kind & TYPE_MASK, at + HEADER..at + length));
        at += length.next_multiple_of(4);
    }
    found
}

/// Where each `rtnexthop` of an attribute begins. Each has its 8 bytes.
fn next_hops(message: &[u8], place: Range<usize>) -> Vec<usize> {
    const HEADER: usize = 8;
    let mut found = Vec::new();
    let mut at = place.start;
    while at + HEADER <= place.end {
        let length = half(message, at).map_or(0, usize::from);
        if length < HEADER {
            break;
        }
        found.push(at);
        at += length.next_multiple_of(4);
    }
    found
}

fn ip(family: u8, octets: &[u8]) -> Option<IpAddr> {
    match i32::from(family) {
        libc::AF_INET => <[u8; 4]>::try_from(octets).ok().map(IpAddr::from),
        libc::AF_INET6 => <[u8; 16]>::try_from(octets).ok().map(IpAddr::from),
        _ => None,
    }
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|half| u16::from_ne_bytes(*half))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|word| u32::from_ne_bytes(*word))
}

fn set_word(bytes: &mut [u8], at: usize, value: u32) {
    if let Some(place) = bytes.get_mut(at..).and_then(|rest| rest.first_chunk_mut()) {
        *place = value.to_ne_bytes();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let length = 4 + value.len();
        let mut bytes = [(length as u16).to_ne_bytes(), kind.to_ne_bytes()].concat();
        bytes.extend(value);
        bytes.resize(length.next_multiple_of(4), 0);
        bytes
    }

    /// 192.0.2.1/24 on interface 3, preferred and valid for so many seconds.
    fn address(preferred: u32, valid: u32) -> KernelAddress {
        let mut message = vec![libc::AF_INET as u8, 24, 0, 0, 3, 0, 0, 0];
        message.extend(attribute(1, &[192, 0, 2, 1]));
        message.extend(attribute(2, &[192, 0, 2, 1]));
        let lifetimes = [preferred.to_ne_bytes(), valid.to_ne_bytes(), [0; 4], [0; 4]].concat();
        message.extend(attribute(IFA_CACHEINFO, &lifetimes));
        KernelAddress::from_message(&message).unwrap()
    }

    #[test]
    fn loopback_has_its_address_and_routes() {
        let mut netlink = Rtnetlink::open().unwrap();
        let addresses = netlink.addresses().unwrap();
        let lo = addresses.iter().find(|found| found.to_string() == "127.0.0.1/8").unwrap();
        assert_eq!((lo.scope, lo.valid), (254, None));
        let routes = netlink.routes(|route| route.interfaces.contains(&lo.index)).unwrap();
        assert!(routes.iter().any(|route| route.to_string() == "127.0.0.0/8"), "{routes:?}");
        assert_eq!(netlink.routes(|_| false).unwrap(), []);
    }

    #[test]
    fn a_lifetime_goes_on_meanwhile() {
        assert_eq!(address(FOREVER, FOREVER).valid, None);
        let lasting = address(FOREVER, FOREVER).later(9, 1_000_000).unwrap();
        assert_eq!(KernelAddress::from_message(&lasting).unwrap().valid, None);
        let leased = address(100, 300);
        assert_eq!(leased.valid, Some(300));
        let later = KernelAddress::from_message(&leased.later(9, 200).unwrap()).unwrap();
        assert_eq!((later.index, later.valid), (9, Some(100)));
        assert_eq!(leased.later(9, 300), None);
    }

    #[test]
    fn a_route_is_moved_to_the_interface_that_took_the_place() {
        let mut message = vec![libc::AF_INET as u8, 8, 0, 0, 254, 3, 0, 1];
        // As the kernel says of a route whose link is down.
        message.extend((1_u32 | 4 | 16).to_ne_bytes());
        message.extend(attribute(1, &[10, 0, 0, 0]));
        let hop = |flags: u8, index: u32| {
            [&8_u16.to_ne_bytes()[..], &[flags, 0], &index.to_ne_bytes()].concat()
        };
        message.extend(attribute(RTA_MULTIPATH, &[hop(1, 3), hop(4, 5)].concat()));
        let route = KernelRoute::from_message(&message).unwrap();
        assert_eq!((route.interfaces.as_slice(), route.protocol), (&[3, 5][..], 3));
        assert_eq!(route.to_string(), "10.0.0.0/8");
        let moved = route.moved(&BTreeMap::from([(3, 7)]));
        assert_eq!(KernelRoute::from_message(&moved).unwrap().interfaces, [7, 5]);
        assert_eq!(word(&moved, 8), Some(4));
        assert!(moved.windows(8).any(|window| window == hop(0, 7)), "a flag of the moment stays");
    }

    #[test]
    fn a_route_by_a_nexthop_object_is_known_as_one() {
        let mut message = vec![libc::AF_INET as u8, 16, 0, 0, 252, 3, 0, 1, 0, 0, 0, 0];
        message.extend(attribute(15, &1000_u32.to_ne_bytes()));
        message.extend(attribute(1, &[10, 95, 0, 0]));
        message.extend(attribute(6, &20_u32.to_ne_bytes()));
        message.extend(attribute(30, &7_u32.to_ne_bytes()));
        let route = KernelRoute::from_message(&message).unwrap();
        assert_eq!((route.nexthop, route.kind), (Some(7), 1));
        assert_eq!(route.removal(), "-4 route del 10.95.0.0/16 nhid 7 table 1000 metric 20");
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(
            family in prop::sample::select(vec![2_u8, 10, 7]),
            bytes in prop::collection::vec(any::<u8>(), 0..120),
        ) {
            let message = [&[family], &bytes[..]].concat();
            if let Some(address) = KernelAddress::from_message(&message) {
                let _ = address.later(1, 1);
            }
            if let Some(route) = KernelRoute::from_message(&message) {
                let _ = (route.moved(&BTreeMap::new()), route.to_string());
            }
            Messages(&bytes).for_each(drop);
        }
    }
}
