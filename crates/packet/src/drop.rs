//! Every way a packet can end without leaving.

use core::fmt;

use wire::Malformed;

use crate::counter::Counter;

macro_rules! reasons {
    ($($(#[doc = $doc:literal])+ $variant:ident = $name:literal,)+) => {
        /// Why a packet was dropped. Each reason has a name that users see, a sentence, and a
        /// counter.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum DropReason {
            $($(#[doc = $doc])+ $variant,)+
        }

        impl DropReason {
            /// Every reason, in the order of a packet's way.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The name in counters, JSON and documentation.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }

            /// What it means, in a sentence.
            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$variant => concat!($($doc),+).trim_ascii_start(),)+ }
            }
        }
    };
}

reasons! {
    // Link
    /// The frame is shorter than its link header.
    LinkTruncated = "link_truncated",
    /// The frame is addressed to another station.
    LinkNotForUs = "link_not_for_us",
    /// The source MAC is a group address, which no station may send from.
    LinkSource = "link_source",
    /// The EtherType is not one the gateway handles (IPv4, IPv6, ARP).
    LinkProtocol = "link_protocol",
    /// The frame has more than two VLAN tags.
    LinkVlan = "link_vlan",
    /// The frame is of a VLAN that the port has no sub-port for, or of one that its sub-port has
    /// none for.
    VlanUnknown = "vlan_unknown",
    // ARP and ND
    /// The ARP packet is malformed, or claims addresses its sender cannot have (RFC 826, RFC 5227).
    ArpMalformed = "arp_malformed",
    /// The ARP packet asks for an address that is not ours.
    ArpNotForUs = "arp_not_for_us",
    /// The neighbour discovery message fails the checks of RFC 4861 sections 6.1 and 7.1.
    NdMalformed = "nd_malformed",
    /// The neighbour discovery message asks for or tells of an address that does not concern us, or
    /// is between hosts and routers: the gateway sends no router advertisements and takes none.
    NdNotForUs = "nd_not_for_us",
    /// ARP or neighbour discovery of another station that has one of the port's own addresses (RFC
    /// 5227 section 2.4, RFC 4862 section 5.4.4). The address is kept and defended, and the log
    /// names the station.
    AddressConflict = "address_conflict",
    /// Multicast listener discovery of a link (RFC 3810): the gateway forwards no multicast.
    MldIgnored = "mld_ignored",
    // IP
    /// The packet ends inside its IP header.
    IpTruncated = "ip_truncated",
    /// The IP version is neither 4 nor 6, or not what the link or the ESP trailer said.
    IpVersion = "ip_version",
    /// The IPv4 header length is wrong.
    IpHeaderLength = "ip_header_length",
    /// The length in the IP header is smaller than the headers or larger than what arrived.
    IpTotalLength = "ip_total_length",
    /// The IPv4 header checksum is wrong.
    IpHeaderChecksum = "ip_header_checksum",
    /// An IPv4 option is malformed.
    IpOption = "ip_option",
    /// The source address is one that no packet may have.
    IpSource = "ip_source",
    /// The destination address may not appear on the wire.
    IpDestination = "ip_destination",
    /// The IPv6 extension header chain is too long or out of order.
    IpExtensionChain = "ip_extension_chain",
    /// An IPv6 extension header runs past the packet.
    IpExtensionTruncated = "ip_extension_truncated",
    /// The fragment fields are inconsistent.
    IpFragment = "ip_fragment",
    /// The packet ends inside its upper-layer header.
    UpperTruncated = "upper_truncated",
    /// A later fragment that came before its datagram's first, so that no policy with ports can be
    /// applied to it.
    FragmentUnknown = "fragment_unknown",
    /// A fragment of a datagram of which two first fragments came that contradict each other: one of
    /// them is forged, and nobody knows which.
    FragmentContradicted = "fragment_contradicted",
    // Reassembly, for packets to the gateway itself
    /// The fragment overlaps another of its datagram (RFC 5722).
    ReassemblyOverlap = "reassembly_overlap",
    /// The fragments did not all arrive in time.
    ReassemblyTimeout = "reassembly_timeout",
    /// The reassembled packet would not fit a buffer.
    ReassemblyTooBig = "reassembly_too_big",
    /// The reassembly table is full.
    ReassemblyFull = "reassembly_full",
    // Sources
    /// The source is one of our own addresses or a broadcast address of our subnets.
    SourceOwn = "source_own",
    /// A clear packet from an unprotected port whose source is on the protected side.
    SourceProtected = "source_protected",
    /// The route to the source does not lead back to the port, as the port's `rpf` asks for (RFC
    /// 3704).
    ReversePath = "reverse_path",
    // Routing
    /// No route to the destination.
    NoRoute = "no_route",
    /// A blackhole route.
    RouteBlackhole = "route_blackhole",
    /// An unreachable route: the sender is told.
    RouteUnreachable = "route_unreachable",
    /// A prohibit route: the sender is told.
    RouteProhibit = "route_prohibit",
    /// Routes that lead from VRF to VRF in a circle, or through more than four: the sender is told.
    RouteLoop = "route_loop",
    /// The port that it comes or leaves by does not exist, is down, or its interface has no carrier.
    PortDown = "port_down",
    /// An SA with an if_id decrypted it, and no xfrm link with that if_id is there and up.
    XfrmLinkDown = "xfrm_link_down",
    /// TTL or hop limit ran out.
    HopLimit = "hop_limit",
    /// Larger than the way's MTU and not to be fragmented.
    TooBig = "too_big",
    /// Multicast and broadcast packets are not forwarded.
    NotUnicast = "not_unicast",
    /// A link-local address may not be forwarded (RFC 4291 section 2.5.6, RFC 3927 section 7).
    LinkLocal = "link_local",
    /// IPv4 source routing is refused (RFC 7126 section 4.3).
    SourceRoute = "source_route",
    // Match-action tables and connections
    /// A flow of the match-action tables drops the packet.
    FlowDrop = "flow_drop",
    /// Flows drop the packet if no route leads on (`unrouted`), and it would leave, as by a tunnel.
    FlowUnrouted = "flow_unrouted",
    /// No flow of a match-action table matches.
    FlowMiss = "flow_miss",
    /// The packet went through more than 64 levels or 4096 resubmits of the match-action tables.
    FlowResubmits = "flow_resubmits",
    /// The flows ask for what is not done, such as sending a frame by a port that has none.
    FlowUnsupported = "flow_unsupported",
    /// The flows ask for more than four connections of one packet.
    FlowZones = "flow_zones",
    /// The connection table is full, and all connections in it are assured.
    ConnectionFull = "connection_full",
    /// A zone or a source has as many connections as it may.
    ConnectionLimit = "connection_limit",
    /// The answers to a new connection would look like packets of another connection, which is
    /// translated.
    ConnectionTaken = "connection_taken",
    /// All ports of a NAT pool are in use, or all of the source's block.
    NatExhausted = "nat_exhausted",
    /// The connection ended while its packet was handled.
    ConnectionGone = "connection_gone",
    /// The route leads to another zone of the firewall than when the connection began, or by another
    /// port whose address is not that of the connection (`rerouted`).
    ConnectionRerouted = "connection_rerouted",
    /// Routed from a VRF without flows to a port of one that has a firewall, none of whose policies
    /// is about it, or that drops everything by a flow.
    FirewallOtherVrf = "firewall_other_vrf",
    // Filters
    /// A rule of a filter before routing says drop or reject.
    FilterIngress = "filter_ingress",
    /// A rule of a filter after routing says drop or reject.
    FilterEgress = "filter_egress",
    // SPD
    /// The VRF is an IPsec gateway and has no policies now: nothing crosses its boundary.
    IpsecClosed = "ipsec_closed",
    /// A policy says discard.
    PolicyDiscard = "policy_discard",
    /// The VRF has policies and none of them matches.
    PolicyNoMatch = "policy_no_match",
    /// A clear packet that an inbound protect policy covers (RFC 4301 section 5.2).
    PolicyClear = "policy_clear",
    /// A decrypted packet outside the selectors of its SA's policy (RFC 4301 section 5.2).
    PolicyWrongSelector = "policy_wrong_selector",
    // ESP, inbound
    /// The ESP packet is too short for its header, IV, trailer and ICV, or not a whole number of
    /// blocks.
    EspTruncated = "esp_truncated",
    /// No SA has the packet's SPI and destination.
    EspNoSa = "esp_no_sa",
    /// The sequence number was seen before.
    EspReplayed = "esp_replayed",
    /// The sequence number is left of the replay window.
    EspTooOld = "esp_too_old",
    /// The sequence number is above what is on the disk of the SA's replay window, so that a crash
    /// could make the packet acceptable again; and it could not wait for the disk any longer, or
    /// too many did.
    EspSequenceUnstored = "esp_sequence_unstored",
    /// The integrity check value is wrong.
    EspBadIcv = "esp_bad_icv",
    /// The padding or the pad length is wrong.
    EspBadPadding = "esp_bad_padding",
    /// The next header of the decrypted payload is neither IPv4 nor IPv6.
    EspNextHeader = "esp_next_header",
    /// A dummy packet of traffic flow confidentiality (RFC 4303 section 2.6).
    EspDummy = "esp_dummy",
    /// Congestion was marked on the way and the decrypted packet cannot tell its receiver (RFC 6040
    /// section 4.2).
    EspCongestion = "esp_congestion",
    /// An ESP packet within an ESP packet within ... deeper than the gateway follows.
    EspNested = "esp_nested",
    // ESP, outbound
    /// A protect policy matched, and no SA exists for it.
    EspNoOutboundSa = "esp_no_outbound_sa",
    /// The SA's sequence numbers are used up (RFC 4303 section 3.3.3).
    EspSequenceExhausted = "esp_sequence_exhausted",
    /// The key's reserved sequence numbers are used up, and more are not on the disk yet.
    EspSequenceUnreserved = "esp_sequence_unreserved",
    /// The encrypted packet would not fit a buffer.
    EspNoRoom = "esp_no_room",
    // Neighbours
    /// The next hop did not answer.
    NeighbourUnresolved = "neighbour_unresolved",
    /// Too many packets wait for this next hop already.
    NeighbourQueueFull = "neighbour_queue_full",
    /// Too many next hops are being resolved already.
    NeighbourTableFull = "neighbour_table_full",
    // Local
    /// For the gateway itself, and nothing there listens.
    LocalNoListener = "local_no_listener",
    /// For an address of the gateway that the system's own stack has too: left to that.
    LocalLeftToSystem = "local_left_to_system",
    /// IKE to the gateway itself: left to the key daemon behind the system's own stack.
    LocalIke = "local_ike",
    /// The upper-layer checksum of a packet to the gateway itself is wrong.
    LocalChecksum = "local_checksum",
    /// An ICMP error about an ESP packet that the gateway has sent: tunnels have no path MTU of their
    /// own that it could change.
    LocalEspError = "local_esp_error",
    /// An ICMP message to the gateway itself that it has no use for.
    LocalIcmp = "local_icmp",
    /// The gateway's own answer is over the rate limit.
    RateLimited = "rate_limited",
    // Queueing disciplines
    /// The port's or VRF's queueing discipline had no room.
    QdiscOverlimit = "qdisc_overlimit",
    /// Packets had waited in the queueing discipline for longer than its target, all of them for an
    /// interval (RFC 8289).
    QdiscCodel = "qdisc_codel",
    /// The packet is longer than the burst of the queueing discipline.
    QdiscTooLong = "qdisc_too_long",
    /// The worker could not hand the packet to that of the queueing discipline: the ring between
    /// them was full, or that one had no buffer in exchange.
    QdiscHandover = "qdisc_handover",
    /// While the packet waited in a queueing discipline, that was removed, or its port went down, or
    /// the port by which the packet was to leave moved to another VRF.
    QdiscFlushed = "qdisc_flushed",
    // Resources and ends
    /// No free buffer.
    NoBuffer = "no_buffer",
    /// The port's transmit queue was full.
    TransmitFull = "transmit_full",
    /// The packet is longer than the port's interface takes.
    TransmitTooLong = "transmit_too_long",
    /// The port's interface was down when the packet was to be sent.
    TransmitDown = "transmit_down",
    /// The system refused to send the packet.
    TransmitError = "transmit_error",
}

impl fmt::Display for DropReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl From<Malformed> for DropReason {
    fn from(why: Malformed) -> Self {
        match why {
            Malformed::Truncated => Self::IpTruncated,
            Malformed::Version => Self::IpVersion,
            Malformed::HeaderLength => Self::IpHeaderLength,
            Malformed::TotalLength => Self::IpTotalLength,
            Malformed::HeaderChecksum => Self::IpHeaderChecksum,
            Malformed::Option => Self::IpOption,
            Malformed::Source => Self::IpSource,
            Malformed::Destination => Self::IpDestination,
            Malformed::ExtensionChain => Self::IpExtensionChain,
            Malformed::ExtensionTruncated => Self::IpExtensionTruncated,
            Malformed::Fragment => Self::IpFragment,
            Malformed::UpperTruncated => Self::UpperTruncated,
        }
    }
}

/// One counter for each [`DropReason`].
#[derive(Debug)]
pub struct DropCounters([Counter; DropReason::ALL.len()]);

impl Default for DropCounters {
    fn default() -> Self {
        Self([const { Counter::new() }; DropReason::ALL.len()])
    }
}

impl DropCounters {
    /// Counts `packets` dropped for `reason`.
    #[inline]
    pub fn add(&self, reason: DropReason, packets: u64) {
        self.0[reason as usize].add(packets);
    }

    /// Packets dropped for `reason` so far.
    pub fn read(&self, reason: DropReason) -> u64 {
        self.0[reason as usize].read()
    }

    /// Packets dropped so far, for all reasons.
    pub fn total(&self) -> u64 {
        self.0.iter().map(Counter::read).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_in_counter_style() {
        let mut names: Vec<_> = DropReason::ALL.iter().map(|reason| reason.name()).collect();
        assert!(names.iter().all(|name| name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_')));
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), DropReason::ALL.len());
    }

    #[test]
    fn every_reason_says_what_it_means() {
        for reason in DropReason::ALL {
            let meaning = reason.meaning();
            assert!(meaning.len() > 10 && !meaning.starts_with(' '), "{reason}: '{meaning}'");
        }
    }
}
