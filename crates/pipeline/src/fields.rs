//! What flows may match of a packet, as words.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use conntrack::{CtState, Role, Tuple};
use types::{
    Addresses, Dscp, FlowKey, FragmentClass, Origin, PacketFields, PortId, Protocol, TcpFlags,
    Upper, VrfId,
};

use crate::ct::CtFields;

/// How many words [`Fields`] has.
pub(crate) const WORDS: usize = 38;

/// Where the fields are. An address has four words; IPv4 uses the last of them, and the
/// `dl_type` tells which it is.
pub(crate) mod word {
    /// `dl_type` and the number of the port.
    pub(crate) const PORT: usize = 0;
    pub(crate) const SA: usize = 1;
    /// Protocol, type of service, TTL, and bits: see [`super::bits`].
    pub(crate) const IP: usize = 2;
    /// TCP flags (16 bits), ct_state, protocol of the connection.
    pub(crate) const STATE: usize = 3;
    pub(crate) const TP: usize = 4;
    pub(crate) const CT_ZONE: usize = 5;
    pub(crate) const CT_MARK: usize = 6;
    pub(crate) const CT_LABEL: usize = 7;
    pub(crate) const CT_TP: usize = 11;
    pub(crate) const REG: usize = 12;
    pub(crate) const PKT_MARK: usize = 20;
    pub(crate) const SOURCE: usize = 21;
    pub(crate) const DESTINATION: usize = 25;
    pub(crate) const CT_SOURCE: usize = 29;
    pub(crate) const CT_DESTINATION: usize = 33;
    /// The port that the packet would be routed to.
    pub(crate) const OUT: usize = 37;
}

/// Bits of the word [`word::IP`].
pub(crate) mod bits {
    /// A fragment.
    pub(crate) const FRAGMENT: u32 = 1;
    /// A fragment that is not the first.
    pub(crate) const LATER: u32 = 2;
    /// Decrypted: [`super::word::SA`] is the reqid of the SA.
    pub(crate) const DECRYPTED: u32 = 4;
}

/// `in_port` of a packet that came by no port: Open vSwitch's `NONE`.
pub(crate) const NO_PORT: u16 = 0xffff;

/// `oif` of a packet for the gateway itself: Open vSwitch's number of `LOCAL`.
pub(crate) const LOCAL: u16 = 0xfffe;

/// Where a packet would go that is routed as it stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Exit {
    /// Nowhere.
    #[default]
    None,
    /// To the gateway itself.
    Local,
    /// Out of a port.
    Port(PortId),
}

/// EtherType of IPv4.
pub const IPV4: u16 = 0x0800;
/// EtherType of ARP.
pub const ARP: u16 = 0x0806;
/// EtherType of IPv6.
pub const IPV6: u16 = 0x86dd;

/// Everything that flows may match of a packet, registers included.
#[derive(Clone, Debug)]
pub struct Fields {
    vrf: VrfId,
    /// See [`Fields::is_as_received`].
    is_changed: bool,
    pub(crate) words: [u32; WORDS],
}

/// By what flows match.
impl PartialEq for Fields {
    fn eq(&self, other: &Self) -> bool {
        (self.vrf, self.words) == (other.vrf, other.words)
    }
}

impl Eq for Fields {}

impl Fields {
    /// Of a packet of which no more is known than its EtherType.
    pub fn new(vrf: VrfId, in_port: Option<PortId>, dl_type: u16) -> Self {
        let mut fields = Self { vrf, is_changed: false, words: [0; WORDS] };
        fields.words[word::PORT] = u32::from(dl_type) << 16;
        fields.set_in_port(in_port);
        fields
    }

    pub(crate) const fn from_words(vrf: VrfId, words: [u32; WORDS]) -> Self {
        Self { vrf, is_changed: false, words }
    }

    /// Whether neither an action nor a translation has written to the packet.
    #[inline]
    pub const fn is_as_received(&self) -> bool {
        !self.is_changed
    }

    /// An action writes to the packet.
    pub(crate) const fn change(&mut self) {
        self.is_changed = true;
    }

    /// Of an IP packet. One that was decrypted came by no port unless [`Fields::set_in_port`] says one, and
    /// its SA's reqid is 0 unless [`Fields::set_sa`] says another. The optional fields that the key does
    /// not have are zero.
    pub fn of(key: &FlowKey, pkt_mark: u32) -> Self {
        let port = match key.origin {
            Origin::Port(port) => Some(port),
            _ => None,
        };
        let dl_type = if key.addresses.is_v6() { IPV6 } else { IPV4 };
        let mut fields = Self::new(key.vrf, port, dl_type);
        if let Origin::Sa(_) = key.origin {
            fields.set_sa(Some(0));
        }
        fields.set_addresses(&key.addresses);
        fields.words[word::IP] |= u32::from(key.protocol.0) << 24
            | match key.fragment {
                FragmentClass::Whole => 0,
                FragmentClass::First => bits::FRAGMENT,
                FragmentClass::Later => bits::FRAGMENT | bits::LATER,
            };
        match key.upper {
            Upper::Ports { source, destination } => fields.set_ports(source, destination),
            Upper::Icmp { kind, code, .. } => fields.set_ports(kind.into(), code.into()),
            Upper::Spi(_) | Upper::None => {}
        }
        fields.set_packet_fields(key.fields);
        fields.words[word::PKT_MARK] = pkt_mark;
        fields
    }

    /// Sets TCP flags, DSCP and TTL or hop limit.
    pub fn set_packet_fields(&mut self, fields: PacketFields) {
        let ip = &mut self.words[word::IP];
        *ip = *ip & 0xff00_00ff
            | u32::from(fields.dscp().bits()) << 18
            | u32::from(fields.hop_limit()) << 8;
        let state = &mut self.words[word::STATE];
        *state = *state & 0xffff | u32::from(fields.tcp_flags().0) << 16;
    }

    /// Sets the port that the packet came by.
    pub fn set_in_port(&mut self, port: Option<PortId>) {
        let number = port.map_or(NO_PORT, |port| port.0);
        self.words[word::PORT] = self.words[word::PORT] & 0xffff_0000 | u32::from(number);
    }

    /// Sets where it would be routed to.
    pub fn set_exit(&mut self, exit: Exit) {
        self.words[word::OUT] = match exit {
            Exit::None => NO_PORT.into(),
            Exit::Local => LOCAL.into(),
            Exit::Port(port) => port.0.into(),
        };
    }

    /// Sets the reqid of the SA that decrypted the packet, if one has.
    pub fn set_sa(&mut self, reqid: Option<u32>) {
        self.words[word::SA] = reqid.unwrap_or(0);
        self.words[word::IP] &= !bits::DECRYPTED;
        self.words[word::IP] |= if reqid.is_some() { bits::DECRYPTED } else { 0 };
    }

    /// Sets source and destination address.
    pub fn set_addresses(&mut self, addresses: &Addresses) {
        set_address(&mut self.words, word::SOURCE, addresses.source());
        set_address(&mut self.words, word::DESTINATION, addresses.destination());
    }

    /// Sets the ports, or type and code of ICMP.
    pub fn set_ports(&mut self, source: u16, destination: u16) {
        self.words[word::TP] = u32::from(source) << 16 | u32::from(destination);
    }

    /// Sets what connection tracking says, and what it made of addresses and ports.
    pub(crate) fn set_ct(&mut self, ct: &CtFields, zone: u16) {
        self.clear_ct();
        let words = &mut self.words;
        words[word::STATE] |= u32::from(ct.state.0) << 8;
        words[word::CT_ZONE] = zone.into();
        words[word::CT_MARK] = ct.mark;
        set_wide(words, word::CT_LABEL, ct.label);
        if let Some(original) = &ct.original {
            let (source, destination) = match original.role {
                Role::None => (original.source, original.destination),
                // Type and code.
                Role::Query | Role::Answer => (original.destination, 0),
            };
            words[word::STATE] |= u32::from(original.protocol.0);
            words[word::CT_TP] = u32::from(source) << 16 | u32::from(destination);
            set_address(words, word::CT_SOURCE, original.addresses.source());
            set_address(words, word::CT_DESTINATION, original.addresses.destination());
        }
        if let Some(translated) = &ct.translated {
            self.change();
            self.set_addresses(&translated.addresses);
            if translated.role == Role::None && self.has_ports() {
                self.set_ports(translated.source, translated.destination);
            }
        }
    }

    /// As of a packet that was not tracked.
    pub(crate) fn clear_ct(&mut self) {
        self.words[word::STATE] &= 0xffff_0000;
        self.words[word::CT_ZONE..=word::CT_TP].fill(0);
        self.words[word::CT_SOURCE..word::OUT].fill(0);
    }

    /// The VRF, whose tables apply.
    pub const fn vrf(&self) -> VrfId {
        self.vrf
    }

    /// The port that the packet came by.
    pub fn in_port(&self) -> Option<PortId> {
        let number = self.words[word::PORT] as u16;
        (number != NO_PORT).then_some(PortId(number))
    }

    /// What decrypted the packet.
    pub fn sa(&self) -> Option<u32> {
        (self.words[word::IP] & bits::DECRYPTED != 0).then_some(self.words[word::SA])
    }

    /// Where it would be routed to, when that was asked last. It must have been asked.
    pub const fn exit(&self) -> Exit {
        match self.words[word::OUT] as u16 {
            NO_PORT => Exit::None,
            LOCAL => Exit::Local,
            port => Exit::Port(PortId(port)),
        }
    }

    /// EtherType.
    pub const fn dl_type(&self) -> u16 {
        (self.words[word::PORT] >> 16) as u16
    }

    /// Source and destination, if it is IP.
    pub fn addresses(&self) -> Option<Addresses> {
        self.addresses_at(word::SOURCE, word::DESTINATION)
    }

    /// Upper-layer protocol.
    pub const fn protocol(&self) -> Protocol {
        Protocol((self.words[word::IP] >> 24) as u8)
    }

    /// Whole, first or later fragment.
    pub const fn fragment(&self) -> FragmentClass {
        match self.words[word::IP] & (bits::FRAGMENT | bits::LATER) {
            0 => FragmentClass::Whole,
            bits::FRAGMENT => FragmentClass::First,
            _ => FragmentClass::Later,
        }
    }

    /// Source and destination port; type and code of ICMP. Zero if it has neither.
    pub const fn ports(&self) -> (u16, u16) {
        ((self.words[word::TP] >> 16) as u16, self.words[word::TP] as u16)
    }

    /// TCP flags, DSCP, and TTL or hop limit.
    pub fn packet_fields(&self) -> PacketFields {
        let ip = self.words[word::IP];
        PacketFields::new(
            TcpFlags((self.words[word::STATE] >> 16) as u8),
            Dscp::from_traffic_class((ip >> 16) as u8),
            (ip >> 8) as u8,
        )
    }

    /// What connection tracking has said.
    pub const fn ct_state(&self) -> CtState {
        CtState((self.words[word::STATE] >> 8) as u8)
    }

    /// Zone of the connection.
    pub const fn ct_zone(&self) -> u16 {
        self.words[word::CT_ZONE] as u16
    }

    /// Mark of the connection.
    pub const fn ct_mark(&self) -> u32 {
        self.words[word::CT_MARK]
    }

    /// Label of the connection.
    pub fn ct_label(&self) -> u128 {
        wide(&self.words, word::CT_LABEL)
    }

    /// Addresses of the original direction of the connection.
    pub fn ct_addresses(&self) -> Option<Addresses> {
        self.addresses_at(word::CT_SOURCE, word::CT_DESTINATION)
            .filter(|_| self.ct_state().contains(CtState::TRK))
    }

    /// A register.
    pub const fn reg(&self, number: usize) -> u32 {
        self.words[word::REG + number % 8]
    }

    /// Mark of the packet.
    pub const fn pkt_mark(&self) -> u32 {
        self.words[word::PKT_MARK]
    }

    /// The tuple that connection tracking looks a packet with ports up by.
    pub fn tuple(&self) -> Option<Tuple> {
        let (source, destination) = if self.has_ports() { self.ports() } else { (0, 0) };
        Some(Tuple::new(self.addresses()?, self.protocol(), source, destination))
    }

    /// Whether the ports are there: a whole packet or the first fragment of a protocol that has
    /// any.
    pub(crate) fn has_ports(&self) -> bool {
        self.protocol().has_ports() && self.fragment() != FragmentClass::Later
    }

    fn addresses_at(&self, source: usize, destination: usize) -> Option<Addresses> {
        let v4 = |at: usize| Ipv4Addr::from_bits(self.words[at + 3]);
        let v6 = |at: usize| Ipv6Addr::from_bits(wide(&self.words, at));
        match self.dl_type() {
            IPV4 => Some(Addresses::V4 { source: v4(source), destination: v4(destination) }),
            IPV6 => Some(Addresses::V6 { source: v6(source), destination: v6(destination) }),
            _ => None,
        }
    }
}

pub(crate) fn wide(words: &[u32; WORDS], at: usize) -> u128 {
    words[at..at + 4].iter().fold(0, |wide, word| wide << 32 | u128::from(*word))
}

pub(crate) fn set_wide(words: &mut [u32; WORDS], at: usize, value: u128) {
    for (place, word) in words[at..at + 4].iter_mut().rev().enumerate() {
        *word = (value >> (32 * place)) as u32;
    }
}

fn set_address(words: &mut [u32; WORDS], at: usize, address: IpAddr) {
    let value = match address {
        IpAddr::V4(address) => address.to_bits().into(),
        IpAddr::V6(address) => address.to_bits(),
    };
    set_wide(words, at, value);
}
