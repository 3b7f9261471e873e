//! Neighbours that a replay makes up, if the captures have none that would answer.

use std::net::IpAddr;

use wire::ethernet::{self, EtherType};
use wire::{Mac, Protocol, arp, headers, ndp};

use crate::gateway::twin::fnv1a;

/// Who is asked for.
pub(crate) type Question = IpAddr;

/// Whom an Ethernet frame of the gateway's own asks for, if it is an ARP request or a neighbour
/// solicitation.
pub(crate) fn question(frame: &[u8]) -> Option<Question> {
    let payload = frame.get(ethernet::HEADER_LENGTH..)?;
    match ethernet::Header::parse(frame)?.ether_type {
        EtherType::ARP => {
            let packet = arp::Packet::parse(payload).ok()?;
            // Whoever asks for its own address announces it.
            let asks =
                packet.operation == arp::Operation::Request && packet.sender_ip != packet.target_ip;
            asks.then_some(packet.target_ip.into())
        }
        EtherType::IPV6 => {
            // No router lets a solicitation's hop limit through, so a valid one is not somebody
            // else's that is passing.
            let headers = headers::parse(payload)
                .ok()
                .filter(|headers| headers.protocol == Protocol::ICMPV6)?;
            match ndp::parse(&headers, headers.upper_bytes(payload)) {
                Ok(ndp::Message::NeighbourSolicitation { target, .. }) => Some(target.into()),
                _ => None,
            }
        }
        _ => None,
    }
}

/// The Ethernet address of the neighbour that is made up for `address`: 02:00, then an IPv4
/// address's four bytes, or the last four bytes of an IPv6 address's hash.
pub(crate) fn mac(address: IpAddr) -> Mac {
    let [a, b, c, d] = match address {
        IpAddr::V4(address) => address.octets(),
        IpAddr::V6(address) => (fnv1a(&address.octets()) as u32).to_be_bytes(),
    };
    Mac([0x02, 0x00, a, b, c, d])
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    const ASKER: Mac = Mac([2, 0, 0, 0, 0, 1]);

    fn frame(ether_type: EtherType, payload: &[u8]) -> Vec<u8> {
        let header = ethernet::Header { destination: Mac::BROADCAST, source: ASKER, ether_type };
        [&header.to_bytes()[..], payload].concat()
    }

    #[test]
    fn an_arp_request_asks_and_nothing_else_does() {
        let (own, other) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
        let request = arp::Packet::request(ASKER, own, other);
        let asked = frame(EtherType::ARP, &request.to_bytes());
        assert_eq!(question(&asked), Some(other.into()));
        assert_eq!(question(&frame(EtherType::ARP, &request.reply(ASKER).to_bytes())), None);
        assert_eq!(
            question(&frame(EtherType::ARP, &arp::Packet::request(ASKER, own, own).to_bytes())),
            None
        );
        for length in 0..asked.len() {
            assert_eq!(question(&asked[..length]), None);
        }
    }

    #[test]
    fn a_neighbour_solicitation_asks_and_one_from_elsewhere_does_not() {
        let (source, target): (Ipv6Addr, Ipv6Addr) =
            ("fd00::1".parse().unwrap(), "fd00::2".parse().unwrap());
        let message = ndp::Message::NeighbourSolicitation { target, source_link: Some(ASKER) };
        let mut packet = [0; ndp::MAX_PACKET];
        let length =
            message.write_packet(source, ndp::solicited_node(target), &mut packet).unwrap();
        assert_eq!(question(&frame(EtherType::IPV6, &packet[..length])), Some(target.into()));
        packet[7] = 254;
        assert_eq!(question(&frame(EtherType::IPV6, &packet[..length])), None);
    }

    #[test]
    fn a_made_up_address_tells_which_neighbour_it_is() {
        assert_eq!(mac("10.1.2.3".parse().unwrap()), Mac([2, 0, 10, 1, 2, 3]));
        let mac = mac("fd00::2".parse().unwrap());
        assert_eq!(mac.0[..2], [2, 0]);
    }
}
