//! The state and the counters of network interfaces, by rtnetlink(7), in the network namespace of
//! the thread that opens the socket.
//!
//! [`LinkChanges`] says that something has changed, and [`Links`] what an interface is like now. So
//! nothing is missed if the kernel drops notifications: whoever is woken reads the present state.

use std::io;

use netlink_packet_core::{
    Emitable, NLM_F_REQUEST, NLMSG_ERROR, NetlinkBuffer, NetlinkHeader, NetlinkMessage,
    NetlinkPayload, NlasIterator, ParseableParametrized,
};
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkHeader, LinkMessage, Stats64};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use wire::Mac;

/// An interface, as it was when asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// Its index, which no later interface of this name has.
    pub index: u32,
    /// Its Ethernet address; zeros if it has another kind of address.
    pub mac: Mac,
    /// The Ethernet address that its hardware has, whatever name and address it was given. Devices
    /// that the kernel makes have none.
    pub permanent: Option<Mac>,
    /// The largest IP packet in bytes.
    pub mtu: u32,
    /// Whether it is set up (`ip link set dev ... up`).
    pub is_up: bool,
    /// Whether it has a carrier: the cable is in, the other end is up, and the kernel has put the
    /// interface into operation (RFC 2863's `ifOperStatus`).
    pub has_carrier: bool,
    /// How often it has gained or lost its carrier.
    pub carrier_changes: u32,
    /// What it has counted since it was made.
    pub counters: LinkCounters,
}

/// An interface's own counters: a part of the kernel's `rtnl_link_stats64`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounters {
    /// Frames received.
    pub rx_packets: u64,
    /// Their bytes.
    pub rx_bytes: u64,
    /// Frames with errors.
    pub rx_errors: u64,
    /// Frames that the kernel dropped, as its own queue was full or nobody wanted them.
    pub rx_dropped: u64,
    /// Frames that the device dropped, as the kernel was too slow.
    pub rx_missed: u64,
    /// Frames sent.
    pub tx_packets: u64,
    /// Their bytes.
    pub tx_bytes: u64,
    /// Frames that the device could not send.
    pub tx_errors: u64,
    /// Frames that the device dropped instead of sending them. Of a TAP device these are frames
    /// that its reader was too slow for.
    pub tx_dropped: u64,
}

/// Asks for interfaces.
pub struct Links {
    socket: Socket,
    buffer: Vec<u8>,
    sequence: u32,
}

/// Longer than any answer: without details of virtual functions these are a few KiB.
const LONGEST_ANSWER: usize = 64 << 10;

impl Links {
    /// A socket to ask by. It needs no capability.
    ///
    /// # Errors
    /// If the system gives no netlink socket.
    pub fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        // The kernel has answered when the question has been sent.
        socket.set_non_blocking(true)?;
        Ok(Self { socket, buffer: vec![0; LONGEST_ANSWER], sequence: 0 })
    }

    /// The interface called `name`, or `None` if there is none.
    ///
    /// # Errors
    /// What the kernel refuses, and an answer that cannot be read.
    pub fn named(&mut self, name: &str) -> io::Result<Option<Link>> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut question = LinkMessage::default();
        question.attributes.push(LinkAttribute::IfName(name.to_owned()));
        let mut message = NetlinkMessage::new(
            NetlinkHeader::default(),
            NetlinkPayload::from(RouteNetlinkMessage::GetLink(question)),
        );
        message.header.flags = NLM_F_REQUEST;
        message.header.sequence_number = self.sequence;
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.emit(&mut bytes);
        self.socket.send(&bytes, 0)?;
        loop {
            let length = self.socket.recv(&mut &mut self.buffer[..], 0)?;
            // An answer to an earlier question, whose reading failed, is passed over.
            if let Some(answer) = answer(&self.buffer[..length], self.sequence)? {
                return answer;
            }
        }
    }
}

/// What an answer says, unless it is one to another question.
fn answer(bytes: &[u8], sequence: u32) -> io::Result<Option<io::Result<Option<Link>>>> {
    const RTM_NEWLINK: u16 = 16;
    let broken = |what| io::Error::new(io::ErrorKind::InvalidData, what);
    let message =
        NetlinkBuffer::new_checked(bytes).map_err(|_| broken("a netlink message that is cut"))?;
    if message.sequence_number() != sequence {
        return Ok(None);
    }
    Ok(Some(match message.message_type() {
        RTM_NEWLINK => Ok(Some(link(message.payload()).ok_or_else(|| broken("a link message"))?)),
        NLMSG_ERROR => {
            let code = message.payload().first_chunk().map_or(0, |code| i32::from_ne_bytes(*code));
            match -code {
                libc::ENODEV => Ok(None),
                code => Err(io::Error::from_raw_os_error(code)),
            }
        }
        _ => Err(broken("a netlink message of another type")),
    }))
}

/// Reads a link message. Attributes that are not looked for are not parsed, so that a kernel newer
/// than the parser cannot make the message unreadable.
fn link(message: &[u8]) -> Option<Link> {
    const IFLA_ADDRESS: u16 = 1;
    const IFLA_MTU: u16 = 4;
    const IFLA_STATS64: u16 = 23;
    const IFLA_CARRIER: u16 = 33;
    const IFLA_CARRIER_CHANGES: u16 = 35;
    const IFLA_PERM_ADDRESS: u16 = 54;
    const HEADER: usize = 16;
    let header = LinkHeader::parse(message).ok()?;
    let mut link = Link {
        index: header.index,
        mac: Mac([0; 6]),
        permanent: None,
        mtu: 0,
        is_up: header.flags.contains(LinkFlags::Up),
        has_carrier: header.flags.contains(LinkFlags::Running),
        carrier_changes: 0,
        counters: LinkCounters::default(),
    };
    for attribute in NlasIterator::new(message.get(HEADER..)?) {
        let attribute = attribute.ok()?;
        if attribute.kind() == IFLA_PERM_ADDRESS {
            link.permanent = attribute.value().try_into().ok().map(Mac);
        }
        if ![IFLA_ADDRESS, IFLA_MTU, IFLA_STATS64, IFLA_CARRIER, IFLA_CARRIER_CHANGES]
            .contains(&attribute.kind())
        {
            continue;
        }
        match LinkAttribute::parse_with_param(&attribute, AddressFamily::Unspec).ok()? {
            LinkAttribute::Address(octets) => {
                link.mac = octets.try_into().map_or(link.mac, Mac);
            }
            LinkAttribute::Mtu(mtu) => link.mtu = mtu,
            LinkAttribute::Stats64(counted) => link.counters = counters(&counted),
            LinkAttribute::Carrier(carrier) => link.has_carrier &= carrier != 0,
            LinkAttribute::CarrierChanges(changes) => link.carrier_changes = changes,
            _ => {}
        }
    }
    Some(link)
}

fn counters(counted: &Stats64) -> LinkCounters {
    LinkCounters {
        rx_packets: counted.rx_packets,
        rx_bytes: counted.rx_bytes,
        rx_errors: counted.rx_errors,
        rx_dropped: counted.rx_dropped,
        rx_missed: counted.rx_missed_errors,
        tx_packets: counted.tx_packets,
        tx_bytes: counted.tx_bytes,
        tx_errors: counted.tx_errors,
        tx_dropped: counted.tx_dropped,
    }
}

/// Says when interfaces or their addresses change.
pub struct LinkChanges(Socket);

impl LinkChanges {
    /// Listens from now on. Needs no capability.
    ///
    /// # Errors
    /// If the system gives no netlink socket.
    pub fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        for group in [libc::RTNLGRP_LINK, libc::RTNLGRP_IPV4_IFADDR, libc::RTNLGRP_IPV6_IFADDR] {
            socket.add_membership(group)?;
        }
        Ok(Self(socket))
    }

    /// Waits until an interface or an address has changed since the last call. Many changes are one.
    ///
    /// # Errors
    /// What the system says; there is no reason known why it should.
    pub fn wait(&mut self) -> io::Result<()> {
        self.heard(0)?;
        while self.heard(libc::MSG_DONTWAIT)? {}
        Ok(())
    }

    /// Takes a notification. Returns false if none waits.
    fn heard(&self, flags: libc::c_int) -> io::Result<bool> {
        // What it says is asked for afterwards; what does not fit is cut off.
        let mut begin = [0; 16];
        match self.0.recv(&mut &mut begin[..], flags) {
            Ok(_) => Ok(true),
            // The kernel had no room for notifications: there were some.
            Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_known_and_nonsense_is_not() {
        let mut links = Links::open().unwrap();
        let lo = links.named("lo").unwrap().unwrap();
        assert!(lo.index > 0 && lo.mtu > 0 && lo.mac == Mac([0; 6]), "{lo:?}");
        assert_eq!(links.named("no-such-if").unwrap(), None);
        assert!(links.named("a-name-that-no-interface-can-have").is_err());
        assert_eq!(links.named("lo").unwrap().unwrap().index, lo.index);
    }

    #[test]
    fn a_broken_answer_is_an_error_and_one_to_another_question_is_none() {
        let error = |code: i32| {
            let mut bytes = vec![36, 0, 0, 0, 2, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0];
            bytes.extend(code.to_ne_bytes());
            bytes.extend([0; 16]);
            bytes
        };
        assert!(matches!(answer(&error(-libc::ENODEV), 7), Ok(Some(Ok(None)))));
        assert!(matches!(answer(&error(-libc::EPERM), 7), Ok(Some(Err(_)))));
        assert!(matches!(answer(&error(-libc::EPERM), 8), Ok(None)));
        assert!(answer(&error(0)[..20], 7).is_err() && answer(&[], 7).is_err());
        assert_eq!(link(&[0; 15]), None);
        assert_eq!(link(&[&[0; 16][..], &[3, 0, 1, 0]].concat()), None);
    }
}
