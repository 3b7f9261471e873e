//! What was decided about a flow, in the form in which it is kept and applied.

use core::fmt;

use conntrack::Reference;
use packet::DropReason;
use tables::{NextHopId, PolicySlot};
use wire::{PortId, SaSlot};

/// What happens to every packet of a flow.
///
/// Plain data of four words: it names a next hop, an SA slot and policies, and holds none of them.
/// The same words stand in the cache.
///
/// | word | bits | what |
/// |---|---|---|
/// | 0 | 0-7 | verdict, never 0 |
/// | 0 | 8-15 | drop reason |
/// | 0 | 16-18 | what the sender is told |
/// | 0 | 19 | whether it has an extension |
/// | 0 | 20 | whether its packets are translated as their connection says |
/// | 0 | 21 | whether it is for one packet alone |
/// | 0 | 22 | whether its extension does nothing but count flows |
/// | 0 | 23 | whether its extension says what is written into its packets |
/// | 0 | 24 | whether a helper reads its packets |
/// | 0 | 25 | whether its extension names further connections |
/// | 0 | 26 | whether copies of its packet go other ways |
/// | 0 | 27 | whether it was made for two connections, the second of which is in the worker's table of pairs |
/// | 0 | 28 | whether that one translates its packets, and not the first |
/// | 0 | 29 | whether its connections stay as they are, as the packet is refused behind the flows |
/// | 0 | 30-31 | free: a set of actions |
/// | 0 | 32-63 | next hop |
/// | 1 | 0-31 | SA slot |
/// | 1 | 32-63 | the number of its extension, 0 if it has none |
/// | 2 | 0-31 | inbound policy and one, 0 if none |
/// | 2 | 32-63 | outbound policy and one, 0 if none |
/// | 3 | 0-63 | the connection that it was made for: a [`conntrack::Reference`] |
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Decision {
    // Fields, not an array: the compiler keeps them in registers until they are written.
    way: u64,
    sa: u64,
    policies: u64,
    connection: u64,
}

/// What happens to a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Dropped in silence.
    Drop(DropReason),
    /// Dropped, and the sender is told, within the rate limit.
    Refuse(DropReason, Refusal),
    /// Sent on in clear.
    Forward(NextHopId),
    /// Encrypted by the newest SA of the slot, and the outer packet sent on.
    Protect(SaSlot, NextHopId),
    /// ESP for the gateway: decrypted by the SA of the slot that has the packet's SPI, and the
    /// inner packet handled anew.
    Decrypt(SaSlot),
    /// A fragment for the gateway: kept until its datagram is whole, which is then handled anew.
    Reassemble,
    /// For the gateway's own ICMP, or nobody there.
    Deliver,
    /// Sent as the frame that it came in, unchanged.
    Output(PortId),
    /// Sent so by all ports that flows join with its own.
    Flood,
}

impl Verdict {
    /// Whether a router or a host does this, to packets alone whose frames were for it.
    pub(crate) fn is_routed(self) -> bool {
        match self {
            Self::Refuse(..)
            | Self::Forward(_)
            | Self::Protect(..)
            | Self::Decrypt(_)
            | Self::Deliver => true,
            Self::Drop(_) | Self::Reassemble | Self::Output(_) | Self::Flood => false,
        }
    }
}

/// What the sender of a refused packet is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// No route: network unreachable (ICMP), no route to destination (ICMPv6).
    NoRoute,
    /// Host unreachable (ICMP), address unreachable (ICMPv6).
    HostUnreachable,
    /// Communication administratively prohibited.
    Prohibited,
    /// Port unreachable.
    Port,
    /// A TCP reset, or [`Refusal::Prohibited`] if the packet is not TCP.
    TcpReset,
}

impl Refusal {
    const ALL: [Self; 5] =
        [Self::NoRoute, Self::HostUnreachable, Self::Prohibited, Self::Port, Self::TcpReset];
}

/// Whether a decision has an extension that apply must look at.
const EXTENDED: u64 = 1 << 19;
/// Whether packets are translated.
const TRANSLATED: u64 = 1 << 20;
/// Whether it is for one packet.
const PASSING: u64 = 1 << 21;
/// Whether it has an extension that only says which flows count the packet.
const COUNTED: u64 = 1 << 22;

/// Whether flows write into its packets.
const REWRITTEN: u64 = 1 << 23;

/// Whether a helper reads its packets.
const HELPED: u64 = 1 << 24;

/// Whether it was made for further connections, which its extension names.
const SEVERAL: u64 = 1 << 25;

/// Whether copies of its packet go other ways.
const COPIED: u64 = 1 << 26;

/// Whether it was made for two connections.
const PAIRED: u64 = 1 << 27;

/// Whether the second of them translates its packets.
const BY_SECOND: u64 = 1 << 28;

/// Whether its connections stay as they are.
const HOLDING: u64 = 1 << 29;

/// What asks for more in confirm than updating the connection.
const MORE: u64 = PASSING | HELPED | SEVERAL | PAIRED | HOLDING;

/// The verdicts as numbers. Those of packets that leave by a next hop come first.
pub(crate) mod code {
    pub(crate) const FORWARD: u8 = 1;
    pub(crate) const PROTECT: u8 = 2;
    pub(crate) const DROP: u8 = 3;
    pub(crate) const REFUSE: u8 = 4;
    pub(crate) const DECRYPT: u8 = 5;
    pub(crate) const REASSEMBLE: u8 = 6;
    pub(crate) const DELIVER: u8 = 7;
    pub(crate) const OUTPUT: u8 = 8;
    pub(crate) const FLOOD: u8 = 9;
}

impl Decision {
    /// No packet's: what a place holds before it is filled.
    pub(crate) const NONE: Self = Self { way: 0, sa: 0, policies: 0, connection: 0 };

    /// A decision with the policies that let the packet in, or refused it, and let it out, or
    /// refused that; they count it.
    #[inline(always)]
    pub fn new(
        verdict: Verdict,
        inbound: Option<PolicySlot>,
        outbound: Option<PolicySlot>,
    ) -> Self {
        let number = |code: u8| u64::from(code);
        let reason = |why: DropReason| (why as u64) << 8;
        let to = |NextHopId(id): NextHopId| u64::from(id) << 32;
        let (way, sa) = match verdict {
            Verdict::Drop(why) => (number(code::DROP) | reason(why), 0),
            Verdict::Refuse(why, refusal) => {
                (number(code::REFUSE) | reason(why) | (refusal as u64) << 16, 0)
            }
            Verdict::Forward(next_hop) => (number(code::FORWARD) | to(next_hop), 0),
            Verdict::Protect(slot, next_hop) => {
                (number(code::PROTECT) | to(next_hop), u64::from(slot.0))
            }
            Verdict::Decrypt(slot) => (number(code::DECRYPT), u64::from(slot.0)),
            Verdict::Reassemble => (number(code::REASSEMBLE), 0),
            Verdict::Deliver => (number(code::DELIVER), 0),
            Verdict::Flood => (number(code::FLOOD), 0),
            Verdict::Output(PortId(port)) => (number(code::OUTPUT) | u64::from(port) << 32, 0),
        };
        let policies = slot_word(inbound) | slot_word(outbound) << 32;
        Self { way, sa, policies, connection: 0 }
    }

    /// Dropped in silence before any policy was consulted.
    pub fn drop(reason: DropReason) -> Self {
        Self::new(Verdict::Drop(reason), None, None)
    }

    /// What happens.
    #[inline]
    pub fn verdict(&self) -> Verdict {
        match self.code() {
            code::FORWARD => Verdict::Forward(self.next_hop_id()),
            code::PROTECT => Verdict::Protect(self.slot(), self.next_hop_id()),
            code::REFUSE => {
                let told = Refusal::ALL.get((self.way >> 16 & 7) as usize).copied();
                Verdict::Refuse(self.reason(), told.unwrap_or(Refusal::Prohibited))
            }
            code::DECRYPT => Verdict::Decrypt(self.slot()),
            code::REASSEMBLE => Verdict::Reassemble,
            code::DELIVER => Verdict::Deliver,
            code::FLOOD => Verdict::Flood,
            code::OUTPUT => Verdict::Output(self.output_port()),
            _ => Verdict::Drop(self.reason()),
        }
    }

    /// The `in` or `fwd` policy that admitted or refused the packet.
    #[inline(always)]
    pub fn inbound(&self) -> Option<PolicySlot> {
        slot_of(self.policies as u32)
    }

    /// The `out` policy that let it leave or refused it.
    #[inline(always)]
    pub fn outbound(&self) -> Option<PolicySlot> {
        slot_of((self.policies >> 32) as u32)
    }

    /// Where a packet that is sent on leaves.
    pub fn next_hop(&self) -> Option<NextHopId> {
        self.is_sent_on().then(|| self.next_hop_id())
    }

    /// The same with an extension, which has no number yet.
    pub(crate) fn extended(mut self) -> Self {
        self.way |= EXTENDED;
        self
    }

    /// The same with an extension that only says which flows count the packet.
    pub(crate) fn counted(mut self) -> Self {
        self.way |= COUNTED;
        self
    }

    /// The same, made for the connection that `reference` names.
    pub(crate) fn of_connection(mut self, reference: Reference) -> Self {
        self.connection = reference.0;
        self
    }

    /// The same, whose connections stay as they are: what is said of them by who may not send it counts for
    /// nothing.
    pub(crate) fn holding(mut self) -> Self {
        self.way |= HOLDING;
        self
    }

    /// Whether the packet is dropped by what comes behind the flows.
    pub(crate) fn is_refused_behind(&self) -> bool {
        self.is_dropped() && !is_of_flows(self.reason())
    }

    /// Whether its connections stay as they are, unless a copy of the packet leaves.
    pub(crate) fn is_holding(&self) -> bool {
        self.way & HOLDING != 0
    }

    /// The same, whose packets are translated as their connection says.
    pub(crate) fn translated(mut self) -> Self {
        self.way |= TRANSLATED;
        self
    }

    /// Another end of the packet, for which flows count it all the same.
    pub(crate) fn instead_of(mut self, before: &Self) -> Self {
        self.way |= before.way & (EXTENDED | COUNTED | PASSING);
        self.sa |= before.sa & !0xffff_ffff;
        self
    }

    /// The same, whose extension says what is written into its packets.
    pub(crate) fn rewritten(mut self) -> Self {
        self.way |= REWRITTEN;
        self
    }

    /// Whether its extension says what is written into its packets.
    #[inline(always)]
    pub(crate) fn is_rewritten(&self) -> bool {
        self.way & REWRITTEN != 0
    }

    /// The same, for one packet alone.
    pub(crate) fn passing(mut self) -> Self {
        self.way |= PASSING;
        self
    }

    /// Whether the packet is dropped, in silence or not.
    pub(crate) fn is_dropped(&self) -> bool {
        matches!(self.code(), code::DROP | code::REFUSE)
    }

    /// The connection that it was made for.
    #[inline(always)]
    pub fn reference(&self) -> Reference {
        Reference(self.connection)
    }

    /// Whether packets are translated as their connection says.
    #[inline(always)]
    pub fn is_translated(&self) -> bool {
        self.way & TRANSLATED != 0
    }

    /// Whether it is for one packet alone, and must not be kept.
    #[inline(always)]
    pub(crate) fn is_passing(&self) -> bool {
        self.way & PASSING != 0
    }

    /// What it asks of connections is done: it is applied as one that may be kept.
    pub(crate) fn confirmed(&mut self) {
        self.way &= !PASSING;
    }

    /// The same, whose packets the helper of their connection reads.
    pub(crate) fn helped(mut self) -> Self {
        self.way |= HELPED;
        self
    }

    /// Whether the helper of the connection reads its packets.
    #[inline(always)]
    pub(crate) fn is_helped(&self) -> bool {
        self.way & HELPED != 0
    }

    /// Whether more is to be done in confirm than updating the connection.
    #[inline(always)]
    pub(crate) fn wants_more(&self) -> bool {
        self.way & MORE != 0
    }

    /// What concerns confirm, of several decisions together: nothing if it is 0.
    #[inline(always)]
    pub(crate) fn concern<'d>(decisions: impl Iterator<Item = &'d Self>) -> u64 {
        let both =
            |[way, connection]: [u64; 2], it: &Self| [way | it.way, connection | it.connection];
        let [way, connection] = decisions.fold([0; 2], both);
        way & MORE | connection
    }

    /// Whether all that is more is a second connection.
    #[inline(always)]
    pub(crate) fn wants_second(&self) -> bool {
        self.way & MORE == PAIRED
    }

    /// The same, whose packet is copied for other ways.
    pub(crate) fn copied(mut self) -> Self {
        self.way |= COPIED;
        self
    }

    /// Whether copies of its packet go other ways.
    pub(crate) fn is_copied(&self) -> bool {
        self.way & COPIED != 0
    }

    /// The same, whose extension names further connections.
    pub(crate) fn of_several(mut self) -> Self {
        self.way |= SEVERAL;
        self
    }

    /// Whether its extension names further connections.
    #[inline(always)]
    pub(crate) fn has_further(&self) -> bool {
        self.way & SEVERAL != 0
    }

    /// Of a decision that names further connections: the same, made for two, which translates its packets
    /// by the second or not. Its extension says `only_counts`, or nothing at all.
    pub(crate) fn paired(mut self, by_second: bool, only_counts: bool, is_none: bool) -> Self {
        self.way &= !SEVERAL;
        self.way |= PAIRED | if by_second { BY_SECOND } else { 0 };
        if only_counts {
            self.way = self.way & !(EXTENDED | COUNTED) | if is_none { 0 } else { COUNTED };
        }
        self
    }

    /// Whether it was made for two connections, the second of which is with the worker's pairs.
    #[inline(always)]
    pub(crate) fn is_paired(&self) -> bool {
        self.way & PAIRED != 0
    }

    /// The same, for one packet whose second connection is this, naming the one that translates it.
    pub(crate) fn by(self, second: Reference) -> Self {
        match self.way & BY_SECOND != 0 {
            true => self.of_connection(second),
            false => self,
        }
    }

    /// Whether it was made for more than one connection.
    #[inline(always)]
    pub(crate) fn is_of_several(&self) -> bool {
        self.way & (SEVERAL | PAIRED) != 0
    }

    /// Whether it has an extension.
    #[inline(always)]
    pub fn is_extended(&self) -> bool {
        self.way & (EXTENDED | COUNTED) != 0
    }

    /// Whether its extension only says which flows count the packet.
    #[inline(always)]
    pub(crate) fn is_counted(&self) -> bool {
        self.way & COUNTED != 0
    }

    /// Says which extension it is.
    #[inline]
    pub(crate) fn set_extension(&mut self, number: u32) {
        self.sa = self.sa & 0xffff_ffff | u64::from(number) << 32;
    }

    /// The number of its extension, if it has one.
    #[inline(always)]
    pub(crate) fn extension(&self) -> Option<u32> {
        self.is_extended().then_some((self.sa >> 32) as u32)
    }

    /// Whether its packets leave in clear, and no more is done with them than translating them.
    #[inline(always)]
    pub(crate) fn is_plain_forward(&self) -> bool {
        self.way & (0xff | EXTENDED) == u64::from(code::FORWARD)
    }

    /// Whether its packets leave as the frames that they came in, and nothing else is done with them.
    #[inline(always)]
    pub(crate) fn is_plain_output(&self) -> bool {
        self.way & (0xff | EXTENDED | TRANSLATED) == u64::from(code::OUTPUT)
    }

    /// The port of [`Verdict::Output`].
    #[inline(always)]
    pub(crate) fn output_port(&self) -> PortId {
        PortId((self.way >> 32) as u16)
    }

    /// What stands in the cache.
    #[inline(always)]
    pub(crate) fn words(&self) -> [u64; 4] {
        [self.way, self.sa, self.policies, self.connection]
    }

    /// The decision that stands in the cache.
    #[inline(always)]
    pub(crate) fn from_words([way, sa, policies, connection]: [u64; 4]) -> Self {
        Self { way, sa, policies, connection }
    }

    /// One of [`code`].
    #[inline(always)]
    pub(crate) fn code(&self) -> u8 {
        self.way as u8
    }

    /// Whether the packet leaves by a next hop.
    #[inline(always)]
    pub(crate) fn is_sent_on(&self) -> bool {
        matches!(self.code(), code::FORWARD | code::PROTECT)
    }

    #[inline(always)]
    pub(crate) fn next_hop_id(&self) -> NextHopId {
        NextHopId((self.way >> 32) as u32)
    }

    /// The verdict, the next hop and the actions, then the SA and the extension: equal for packets that
    /// are handled alike. What leaves in clear has no SA.
    #[inline(always)]
    pub(crate) fn way(&self) -> [u64; 2] {
        [self.way, self.sa]
    }

    /// Both policies: equal for packets that count for the same.
    #[inline(always)]
    pub(crate) fn policies(&self) -> u64 {
        self.policies
    }

    /// The two of [`Decision::policies`], inbound first.
    pub(crate) fn policies_of(word: u64) -> [Option<PolicySlot>; 2] {
        [slot_of(word as u32), slot_of((word >> 32) as u32)]
    }

    fn slot(&self) -> SaSlot {
        SaSlot(self.sa as u32)
    }

    fn reason(&self) -> DropReason {
        let number = usize::from((self.way >> 8) as u8);
        DropReason::ALL.get(number).copied().unwrap_or(DropReason::NoRoute)
    }
}

/// The parts by name.
impl fmt::Debug for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decision")
            .field("verdict", &self.verdict())
            .field("inbound", &self.inbound())
            .field("outbound", &self.outbound())
            .field("extension", &self.extension())
            .field("connection", &self.reference().named())
            .field("is_translated", &self.is_translated())
            .field("is_passing", &self.is_passing())
            .finish()
    }
}

/// Whether flows say so themselves, and not what comes behind them.
const fn is_of_flows(why: DropReason) -> bool {
    use DropReason as Why;
    matches!(
        why,
        Why::FlowDrop | Why::FlowMiss | Why::FlowResubmits | Why::FlowUnsupported | Why::FlowZones
    )
}

/// Slots are far fewer than 2^32 - 1: one more than the number, so that zero is none.
#[inline(always)]
fn slot_word(slot: Option<PolicySlot>) -> u64 {
    slot.map_or(0, |slot| u64::from(slot.0) + 1)
}

#[inline(always)]
fn slot_of(word: u32) -> Option<PolicySlot> {
    word.checked_sub(1).map(PolicySlot)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn verdict() -> impl Strategy<Value = Verdict> {
        let reason = || (0..DropReason::ALL.len()).prop_map(|at| DropReason::ALL[at]);
        let next_hop = || any::<u32>().prop_map(NextHopId);
        let refusal = (0..Refusal::ALL.len()).prop_map(|at| Refusal::ALL[at]);
        prop_oneof![
            reason().prop_map(Verdict::Drop),
            (reason(), refusal).prop_map(|(reason, refusal)| Verdict::Refuse(reason, refusal)),
            next_hop().prop_map(Verdict::Forward),
            (any::<u32>(), next_hop()).prop_map(|(slot, to)| Verdict::Protect(SaSlot(slot), to)),
            any::<u32>().prop_map(|slot| Verdict::Decrypt(SaSlot(slot))),
            any::<u16>().prop_map(|port| Verdict::Output(PortId(port))),
            Just(Verdict::Reassemble),
            Just(Verdict::Deliver),
            Just(Verdict::Flood),
        ]
    }

    proptest! {
        #[test]
        fn what_was_put_in_comes_out(
            verdict in verdict(),
            inbound in proptest::option::of(0..u32::MAX),
            outbound in proptest::option::of(0..u32::MAX),
            extension in proptest::option::of(any::<u32>()),
        ) {
            let (inbound, outbound) = (inbound.map(PolicySlot), outbound.map(PolicySlot));
            let mut decision = Decision::new(verdict, inbound, outbound);
            if let Some(number) = extension {
                decision = decision.extended();
                decision.set_extension(number);
            }
            let again = Decision::from_words(decision.words());
            prop_assert_ne!(decision.words()[0], 0);
            prop_assert_eq!(again.verdict(), verdict);
            prop_assert_eq!(again.extension(), extension);
            let is_plain = matches!(verdict, Verdict::Forward(_)) && extension.is_none();
            prop_assert_eq!(again.is_plain_forward(), is_plain);
            prop_assert_eq!((again.inbound(), again.outbound()), (inbound, outbound));
            prop_assert_eq!(Decision::policies_of(again.policies()), [inbound, outbound]);
        }
    }
}
