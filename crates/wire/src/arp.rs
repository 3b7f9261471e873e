//! ARP for IPv4 over Ethernet (RFC 826).

use core::net::Ipv4Addr;

use thiserror::Error;

use crate::bytes::{array_at, put, u16_at};
use types::Mac;

/// Length of an Ethernet/IPv4 ARP packet in bytes, without the Ethernet header.
pub const LENGTH: usize = 28;

/// Why bytes are not an ARP packet that may be acted on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Invalid {
    /// Fewer than [`LENGTH`] bytes.
    #[error("the packet is shorter than 28 bytes")]
    Truncated,
    /// The hardware is not Ethernet with 6-octet addresses.
    #[error("the hardware type is not Ethernet")]
    Hardware,
    /// The protocol is not IPv4 with 4-octet addresses.
    #[error("the protocol type is not IPv4")]
    Protocol,
    /// Neither a request nor a reply.
    #[error("the operation is neither request nor reply")]
    Operation,
    /// The sender's MAC is a group address or zero, or its IP address is multicast, broadcast or
    /// loopback: no sender has these, and caching them would send traffic to everyone.
    #[error("the sender claims an address that no sender can have")]
    Sender,
}

/// Asking or answering.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Who has the target address?
    Request,
    /// The sender has it.
    Reply,
}

/// An ARP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Request or reply.
    pub operation: Operation,
    /// The sender's MAC address.
    pub sender_mac: Mac,
    /// The sender's IPv4 address; 0.0.0.0 in a probe (RFC 5227 section 1.1).
    pub sender_ip: Ipv4Addr,
    /// The target's MAC address; of no meaning in a request.
    pub target_mac: Mac,
    /// The target's IPv4 address.
    pub target_ip: Ipv4Addr,
}

impl Packet {
    /// Reads the ARP packet at the start of `bytes`, which may be padded.
    ///
    /// # Errors
    /// The first of [`Invalid`] that is wrong.
    pub fn parse(bytes: &[u8]) -> Result<Self, Invalid> {
        let packet: &[u8; LENGTH] = bytes.first_chunk().ok_or(Invalid::Truncated)?;
        if u16_at(packet, 0) != 1 || packet[4] != 6 {
            return Err(Invalid::Hardware);
        }
        if u16_at(packet, 2) != 0x0800 || packet[5] != 4 {
            return Err(Invalid::Protocol);
        }
        let operation = match u16_at(packet, 6) {
            1 => Operation::Request,
            2 => Operation::Reply,
            _ => return Err(Invalid::Operation),
        };
        let sender_mac = Mac(array_at(packet, 8));
        let sender_ip = Ipv4Addr::from(array_at::<4, _>(packet, 14));
        let no_mac = sender_mac.is_group() || sender_mac == Mac::default();
        if no_mac || sender_ip.is_multicast() || sender_ip.is_broadcast() || sender_ip.is_loopback()
        {
            return Err(Invalid::Sender);
        }
        Ok(Self {
            operation,
            sender_mac,
            sender_ip,
            target_mac: Mac(array_at(packet, 18)),
            target_ip: Ipv4Addr::from(array_at::<4, _>(packet, 24)),
        })
    }

    /// The packet's bytes.
    pub fn to_bytes(&self) -> [u8; LENGTH] {
        // Ethernet, IPv4, their address lengths.
        let mut packet = [0; LENGTH];
        put(&mut packet, 0, &[0, 1, 8, 0, 6, 4, 0]);
        packet[7] = match self.operation {
            Operation::Request => 1,
            Operation::Reply => 2,
        };
        put(&mut packet, 8, &self.sender_mac.0);
        put(&mut packet, 14, &self.sender_ip.octets());
        put(&mut packet, 18, &self.target_mac.0);
        put(&mut packet, 24, &self.target_ip.octets());
        packet
    }

    /// The question for `target`'s MAC address.
    pub const fn request(sender_mac: Mac, sender_ip: Ipv4Addr, target: Ipv4Addr) -> Self {
        Self {
            operation: Operation::Request,
            sender_mac,
            sender_ip,
            target_mac: Mac([0; 6]),
            target_ip: target,
        }
    }

    /// The answer to this request from `mac`, which has the target address.
    pub const fn reply(&self, mac: Mac) -> Self {
        Self {
            operation: Operation::Reply,
            sender_mac: mac,
            sender_ip: self.target_ip,
            target_mac: self.sender_mac,
            target_ip: self.sender_ip,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const REQUEST: [u8; LENGTH] = [
        0, 1, 8, 0, 6, 4, 0, 1, // Ethernet, IPv4, request
        2, 0, 0, 0, 0, 1, 192, 0, 2, 1, // sender
        0, 0, 0, 0, 0, 0, 192, 0, 2, 2, // target
    ];

    #[test]
    fn asks_and_answers() {
        let request = Packet::parse(&REQUEST).unwrap();
        let ours = Packet::request(
            Mac([2, 0, 0, 0, 0, 1]),
            Ipv4Addr::new(192, 0, 2, 1),
            Ipv4Addr::new(192, 0, 2, 2),
        );
        assert_eq!(request, ours);
        assert_eq!(ours.to_bytes(), REQUEST);
        let reply = request.reply(Mac([2, 0, 0, 0, 0, 2]));
        let expected = [
            0, 1, 8, 0, 6, 4, 0, 2, 2, 0, 0, 0, 0, 2, 192, 0, 2, 2, 2, 0, 0, 0, 0, 1, 192, 0, 2, 1,
        ];
        assert_eq!(reply.to_bytes(), expected);
    }

    #[test]
    fn a_frame_padded_to_the_least_length_is_read() {
        let mut padded = REQUEST.to_vec();
        padded.resize(46, 0);
        assert_eq!(Packet::parse(&padded), Packet::parse(&REQUEST));
    }

    #[test]
    fn each_wrong_field_has_its_name() {
        let broken = |at: usize, value: u8| {
            let mut packet = REQUEST;
            packet[at] = value;
            Packet::parse(&packet).unwrap_err()
        };
        assert_eq!(Packet::parse(&REQUEST[..27]), Err(Invalid::Truncated));
        assert_eq!(broken(1, 6), Invalid::Hardware);
        assert_eq!(broken(4, 8), Invalid::Hardware);
        assert_eq!(broken(3, 6), Invalid::Protocol);
        assert_eq!(broken(5, 16), Invalid::Protocol);
        assert_eq!(broken(7, 3), Invalid::Operation);
        assert_eq!(broken(7, 0), Invalid::Operation);
        assert_eq!(broken(8, 3), Invalid::Sender);
        assert_eq!(broken(14, 224), Invalid::Sender);
        assert_eq!(broken(14, 127), Invalid::Sender);
        let claims = |mac: [u8; 6], ip: [u8; 4]| {
            let claim = Packet::request(Mac(mac), ip.into(), Ipv4Addr::new(192, 0, 2, 2));
            Packet::parse(&claim.to_bytes())
        };
        assert_eq!(claims([0; 6], [192, 0, 2, 1]), Err(Invalid::Sender));
        assert_eq!(claims([2, 0, 0, 0, 0, 1], [255; 4]), Err(Invalid::Sender));
    }

    #[test]
    fn a_probe_has_no_sender_address() {
        let probe = Packet::request(
            Mac([2, 0, 0, 0, 0, 1]),
            Ipv4Addr::UNSPECIFIED,
            Ipv4Addr::new(192, 0, 2, 2),
        );
        assert_eq!(Packet::parse(&probe.to_bytes()), Ok(probe));
    }

    proptest! {
        #[test]
        fn what_parses_round_trips(tail: [u8; 20], reply: bool) {
            let mut bytes = REQUEST;
            bytes[7] = 1 + u8::from(reply);
            bytes[8..].copy_from_slice(&tail);
            if let Ok(packet) = Packet::parse(&bytes) {
                prop_assert_eq!(packet.to_bytes(), bytes);
            }
        }
    }
}
