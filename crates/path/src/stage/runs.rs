//! Runs: packets one after the other that leave alike, in clear or as the frames that they came in.
//!
//! What they have in common is done once. Which flows count them may differ from packet to packet.

use packet::Packet;
use tables::{NextHop, NextHopState};
use wire::common::Facts;
use wire::{PortId, ethernet, ipv4};

use crate::batch::{DEFRAGMENTED, FOREIGN, Record};
use crate::decision::Decision;
use crate::outputs::Objects;
use crate::stage::translate;

/// Length of an Ethernet header, of one with a VLAN tag, and of one with two.
pub(super) const ETHERNET: usize = ethernet::HEADER_LENGTH;
const TAGGED: usize = ETHERNET + ethernet::VLAN_TAG_LENGTH;
const TWICE_TAGGED: usize = TAGGED + ethernet::VLAN_TAG_LENGTH;

/// Length of an IPv4 header without options.
const IP: usize = ipv4::HEADER_LENGTH;

/// The packets of a run.
#[derive(Default)]
pub(super) struct Run {
    pub(super) packets: usize,
    /// Without link headers.
    pub(super) bytes: u64,
}

/// How packets leave in clear by an Ethernet next hop that is resolved: what a run has in common.
pub(super) struct ClearWay<'t> {
    way: u64,
    policies: u64,
    pub(super) next_hop: &'t NextHop,
}

impl<'t> ClearWay<'t> {
    /// `None` if the packet leaves otherwise, or not at all.
    #[inline(always)]
    pub(super) fn of(decision: &Decision, objects: Objects<'t>) -> Option<Self> {
        if !decision.is_plain_forward() {
            return None;
        }
        let next_hop = objects.next_hop(decision.next_hop_id())?;
        // One that is resolved has a header, unless its link has none.
        let is_plain =
            next_hop.state == NextHopState::Resolved && next_hop.link.length() >= ETHERNET;
        let (way, policies) = (decision.way()[0], decision.policies());
        is_plain.then_some(Self { way, policies, next_hop })
    }

    /// Makes frames of packets, up to the first that does not go this way or is not common.
    #[inline(always)]
    pub(super) fn send<const NAT: bool>(
        &self,
        packets: &mut [Packet],
        records: &[Record],
        objects: Objects<'_>,
    ) -> Run {
        match self.next_hop.link.length() {
            ETHERNET => self.run::<NAT, ETHERNET, { ETHERNET + IP }>(packets, records, objects),
            TAGGED => self.run::<NAT, TAGGED, { TAGGED + IP }>(packets, records, objects),
            TWICE_TAGGED => {
                self.run::<NAT, TWICE_TAGGED, { TWICE_TAGGED + IP }>(packets, records, objects)
            }
            _ => Run::default(),
        }
    }

    /// [`ClearWay::send`] with a link header of `LINK` bytes; `ALL` is that and an IPv4 header.
    #[inline(never)]
    fn run<const NAT: bool, const LINK: usize, const ALL: usize>(
        &self,
        packets: &mut [Packet],
        records: &[Record],
        objects: Objects<'_>,
    ) -> Run {
        /// Bits of the hop limit but the lowest, and what makes a packet uncommon.
        const CHECKED: u64 = 0xfe << 32 | Facts::OPTIONS | Facts::OWN | FOREIGN | DEFRAGMENTED;
        let mtu = self.next_hop.mtu;
        // A copy of its own, which stays in registers.
        let mut header = [0; LINK];
        header.copy_from_slice(&self.next_hop.link.padded()[..LINK]);
        let mut run = Run::default();
        for (packet, record) in packets.iter_mut().zip(records) {
            let facts = record.facts;
            let is_other_way = (record.decision.way()[0] ^ self.way)
                | (record.decision.policies() ^ self.policies);
            // More than one hop is left, and no flag set.
            let is_common = ((facts.0 & CHECKED).wrapping_sub(1)) < 1 << 40;
            if is_other_way != 0 || !is_common || facts.total_length() > mtu {
                break;
            }
            // Of a connection that has ended since, packets are dropped elsewhere.
            if NAT && !translate::whole(packet, record, objects) {
                break;
            }
            let Some(frame) = packet.grow_front(LINK) else { break };
            let Some(front) = frame.first_chunk_mut::<ALL>() else { break };
            front[..LINK].copy_from_slice(&header);
            if facts.is(Facts::V6) {
                front[LINK + 7] = front[LINK + 7].wrapping_sub(1);
            } else if let Some(header) = front.last_chunk_mut() {
                wire::checksum::decrement_ttl_of_20(header);
            }
            run.bytes += u64::from(facts.total_length());
            run.packets += 1;
        }
        run
    }
}

/// How frames leave as they came: what a run has in common.
pub(super) struct FrameWay {
    way: u64,
    policies: u64,
    pub(super) queue: PortId,
    mtu: u16,
}

impl FrameWay {
    /// `None` if the packet leaves otherwise, or not at all.
    pub(super) fn of(decision: &Decision, objects: Objects<'_>) -> Option<Self> {
        if !decision.is_plain_output() {
            return None;
        }
        let queue = decision.output_port();
        let port = objects.port(queue).filter(|port| port.spec.up && !port.is_queued)?;
        // Each of its frames gets tags.
        if port.spec.vlan.is_some() {
            return None;
        }
        let (way, policies) = (decision.way()[0], decision.policies());
        Some(Self { way, policies, queue, mtu: port.spec.mtu })
    }

    /// Makes frames of packets again, up to the first that does not go this way. Parse has taken the
    /// link header off, and nothing has written there since.
    #[inline(never)]
    pub(super) fn send(&self, packets: &mut [Packet], records: &[Record]) -> Run {
        let mut run = Run::default();
        for (packet, record) in packets.iter_mut().zip(records) {
            let length = record.facts.total_length();
            let is_other_way = (record.decision.way()[0] ^ self.way)
                | (record.decision.policies() ^ self.policies);
            let is_frame = !record.facts.is(DEFRAGMENTED);
            if is_other_way != 0
                || length > self.mtu
                || !is_frame
                || packet.grow_front(ETHERNET).is_none()
            {
                break;
            }
            run.bytes += u64::from(length);
            run.packets += 1;
        }
        run
    }
}
