//! What was decided about a flow, in the form in which it is kept and applied.

use core::fmt;

use packet::DropReason;
use tables::{NextHopId, PolicySlot};
use wire::SaSlot;

/// What happens to every packet of a flow.
///
/// Plain data of four words: it names a next hop, an SA slot and policies, and holds none of them.
/// The same words stand in the cache.
///
/// | word | bits | what |
/// |---|---|---|
/// | 0 | 0-7 | verdict, never 0 |
/// | 0 | 8-15 | drop reason |
/// | 0 | 16-17 | what the sender is told |
/// | 0 | 18-31 | free: a set of actions |
/// | 0 | 32-63 | next hop |
/// | 1 | 0-31 | SA slot |
/// | 1 | 32-63 | free: operands of actions (VLAN), or an extension for features that few flows use |
/// | 2 | 0-31 | inbound policy and one, 0 if none |
/// | 2 | 32-63 | outbound policy and one, 0 if none |
/// | 3 | 0-63 | free: the connection |
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
}

/// The verdicts as numbers. Those of packets that leave by a next hop come first.
pub(crate) mod code {
    pub(crate) const FORWARD: u8 = 1;
    pub(crate) const PROTECT: u8 = 2;
    pub(crate) const DROP: u8 = 3;
    pub(crate) const REFUSE: u8 = 4;
    pub(crate) const DECRYPT: u8 = 5;
    pub(crate) const REASSEMBLE: u8 = 6;
    pub(crate) const DELIVER: u8 = 7;
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
                let told = match refusal {
                    Refusal::NoRoute => 0,
                    Refusal::HostUnreachable => 1,
                    Refusal::Prohibited => 2,
                };
                (number(code::REFUSE) | reason(why) | told << 16, 0)
            }
            Verdict::Forward(next_hop) => (number(code::FORWARD) | to(next_hop), 0),
            Verdict::Protect(slot, next_hop) => {
                (number(code::PROTECT) | to(next_hop), u64::from(slot.0))
            }
            Verdict::Decrypt(slot) => (number(code::DECRYPT), u64::from(slot.0)),
            Verdict::Reassemble => (number(code::REASSEMBLE), 0),
            Verdict::Deliver => (number(code::DELIVER), 0),
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
                let refusal = match self.way >> 16 & 3 {
                    0 => Refusal::NoRoute,
                    1 => Refusal::HostUnreachable,
                    _ => Refusal::Prohibited,
                };
                Verdict::Refuse(self.reason(), refusal)
            }
            code::DECRYPT => Verdict::Decrypt(self.slot()),
            code::REASSEMBLE => Verdict::Reassemble,
            code::DELIVER => Verdict::Deliver,
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

    /// The verdict, the next hop, the SA and the actions: equal for packets that are handled alike.
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
            .finish()
    }
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
        let refusal = prop_oneof![
            Just(Refusal::NoRoute),
            Just(Refusal::HostUnreachable),
            Just(Refusal::Prohibited)
        ];
        prop_oneof![
            reason().prop_map(Verdict::Drop),
            (reason(), refusal).prop_map(|(reason, refusal)| Verdict::Refuse(reason, refusal)),
            next_hop().prop_map(Verdict::Forward),
            (any::<u32>(), next_hop()).prop_map(|(slot, to)| Verdict::Protect(SaSlot(slot), to)),
            any::<u32>().prop_map(|slot| Verdict::Decrypt(SaSlot(slot))),
            Just(Verdict::Reassemble),
            Just(Verdict::Deliver),
        ]
    }

    proptest! {
        #[test]
        fn what_was_put_in_comes_out(
            verdict in verdict(),
            inbound in proptest::option::of(0..u32::MAX),
            outbound in proptest::option::of(0..u32::MAX),
        ) {
            let (inbound, outbound) = (inbound.map(PolicySlot), outbound.map(PolicySlot));
            let decision = Decision::new(verdict, inbound, outbound);
            let again = Decision::from_words(decision.words());
            prop_assert_ne!(decision.words()[0], 0);
            prop_assert_eq!(again.verdict(), verdict);
            prop_assert_eq!((again.inbound(), again.outbound()), (inbound, outbound));
            prop_assert_eq!(Decision::policies_of(again.policies()), [inbound, outbound]);
        }
    }
}
