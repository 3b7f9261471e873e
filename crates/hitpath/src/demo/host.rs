//! The host that pings: it asks for its gateway's Ethernet address, answers requests for its own,
//! and sends echo requests.

use std::net::Ipv4Addr;

use io::memory::MemoryHandle;
use wire::ethernet::{self, EtherType};
use wire::{Mac, Protocol, arp, icmpv4, ipv4};

/// The text that every echo request carries, to be looked for where it must not be seen.
pub(super) const SECRET: &[u8] = b"this-text-is-secret";

/// Where an ICMP message begins in a frame.
const ICMP: usize = ethernet::HEADER_LENGTH + ipv4::HEADER_LENGTH;

/// A host at the end of a link.
pub(super) struct Host {
    pub(super) mac: Mac,
    pub(super) address: Ipv4Addr,
    pub(super) gateway: Ipv4Addr,
    /// Known once the gateway has answered.
    gateway_mac: Option<Mac>,
    pub(super) cable: MemoryHandle,
    pub(super) sent: u64,
    pub(super) answered: u64,
}

impl Host {
    /// A host that does not know its gateway's Ethernet address yet.
    pub(super) fn new(mac: Mac, address: Ipv4Addr, gateway: Ipv4Addr, cable: MemoryHandle) -> Self {
        Self { mac, address, gateway, gateway_mac: None, cable, sent: 0, answered: 0 }
    }

    /// Whether it knows its gateway's Ethernet address.
    pub(super) fn is_ready(&self) -> bool {
        self.gateway_mac.is_some()
    }

    /// Asks who has the gateway's address.
    pub(super) fn ask_for_gateway(&mut self) {
        let question = arp::Packet::request(self.mac, self.address, self.gateway);
        self.send(Mac::BROADCAST, EtherType::ARP, &question.to_bytes());
    }

    /// Sends the next echo request to `destination`, `size` bytes of payload long. Returns false
    /// if the cable is full.
    pub(super) fn ping(&mut self, destination: Ipv4Addr, size: usize) -> bool {
        let Some(gateway) = self.gateway_mac.filter(|_| self.cable.room() > 0) else {
            return false;
        };
        let mut message = vec![icmpv4::ECHO_REQUEST, 0, 0, 0];
        message.extend((self.sent as u32).to_be_bytes());
        message.extend(SECRET.iter().cycle().take(size));
        icmpv4::fill_checksum(&mut message);
        let header = ipv4::Header {
            total_length: (ipv4::HEADER_LENGTH + message.len()) as u16,
            protocol: Protocol::ICMP,
            source: self.address,
            destination,
            ..ipv4::Header::default()
        };
        let packet = [&header.to_bytes()[..], &message].concat();
        self.sent += 1;
        self.send(gateway, EtherType::IPV4, &packet);
        true
    }

    /// Takes what has come.
    pub(super) fn listen(&mut self) {
        while let Some(frame) = self.cable.pop() {
            let Some(header) = ethernet::Header::parse(&frame) else { continue };
            match header.ether_type {
                EtherType::ARP => self.hear_arp(&frame[ethernet::HEADER_LENGTH..]),
                EtherType::IPV4 if frame.get(ICMP) == Some(&icmpv4::ECHO_REPLY) => {
                    self.answered += 1;
                }
                _ => {}
            }
        }
    }

    fn hear_arp(&mut self, bytes: &[u8]) {
        let Ok(heard) = arp::Packet::parse(bytes) else { return };
        match heard.operation {
            arp::Operation::Reply if heard.sender_ip == self.gateway => {
                self.gateway_mac = Some(heard.sender_mac);
            }
            arp::Operation::Request if heard.target_ip == self.address => {
                let answer = heard.reply(self.mac);
                self.send(heard.sender_mac, EtherType::ARP, &answer.to_bytes());
            }
            _ => {}
        }
    }

    fn send(&mut self, destination: Mac, ether_type: EtherType, payload: &[u8]) {
        let header = ethernet::Header { destination, source: self.mac, ether_type };
        // A frame that finds no room is lost, as on any cable.
        let _ = self.cable.push(&[&header.to_bytes()[..], payload].concat());
    }
}
