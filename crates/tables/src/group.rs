//! Next hops of multipath routes, and which of them a flow takes.
//!
//! A flow takes the member with the best score, and a member's score follows from the flow and the
//! member alone: weighted rendezvous hashing (Thaler and Ravishankar, "Using Name-Based Mappings to
//! Increase Hit Rates", 1998; the weights as in Schindelhauer and Schomaker, "Weighted Distributed
//! Hash Tables", 2005). So if a member goes down or is taken out, its flows alone move, each to the
//! member with its second best score; if it comes back, the same flows return. There is no table
//! that would have to be kept from one change to the next, and the shares are as exact as the
//! hash.

use std::net::IpAddr;
use std::sync::Arc;

use siphasher::sip::SipHasher13;
use wire::{FlowKey, FragmentClass, IpPrefix, Protocol, Upper};

use crate::error::TableError;
use crate::limit::MAX_GROUPS;
use crate::map::MapKey;
use crate::next_hop::NextHopId;
use crate::route::MemberSpec;
use crate::routing_table::TableRef;
use crate::slots::Slots;

/// The most next hops of one multipath route.
pub const MAX_MEMBERS: usize = 64;
/// The largest weight of one, as with Linux, where `rtnh_hops` has eight bits for one less.
pub const MAX_WEIGHT: u16 = 256;

/// Names the next hops of one multipath route for as long as they stay the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub(crate) u32);

/// The next hops of one multipath route.
#[derive(Clone, Debug)]
pub struct Group {
    /// Whose route.
    pub(crate) table: TableRef,
    /// Its destinations.
    pub(crate) prefix: IpPrefix,
    members: Box<[Member]>,
    /// One bit for each member, by position: its port is up.
    up: u64,
}

const _: () = assert!(MAX_MEMBERS <= u64::BITS as usize);

/// One of several next hops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// Which one. It exists as long as the route does. A port's own, which has no address, says that
    /// the destination is on the port's link.
    pub next_hop: NextHopId,
    /// Of all flows, its share is this much of the sum of all weights.
    pub weight: u16,
    /// What its scores are drawn from: its port and address, hashed.
    seed: u64,
}

impl Group {
    /// The members, in the order in which they were given.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// Whether the port of the member at this position is up.
    pub fn is_up(&self, position: usize) -> bool {
        self.up >> (position % MAX_MEMBERS) & 1 != 0
    }

    /// The position of the member that a flow takes, by the flow's hash: of those that are up, or
    /// of all if none is.
    pub fn choose(&self, hash: FlowHash) -> usize {
        let candidates = if self.up == 0 { u64::MAX } else { self.up };
        let (mut best, mut chosen) = (f64::INFINITY, 0);
        for (position, member) in self.members.iter().enumerate() {
            if candidates >> position & 1 == 0 {
                continue;
            }
            let score = member.score(hash);
            if score < best {
                (best, chosen) = (score, position);
            }
        }
        chosen
    }

    /// Says which members are up. Returns those of which it was said otherwise before.
    pub(crate) fn set_up(&mut self, is_up: impl Fn(NextHopId) -> bool) -> Vec<(NextHopId, bool)> {
        let mut changed = Vec::new();
        for (position, member) in self.members.iter().enumerate() {
            let (was, is) = (self.is_up(position), is_up(member.next_hop));
            if was != is {
                self.up ^= 1 << position;
                changed.push((member.next_hop, is));
            }
        }
        changed
    }
}

impl Member {
    /// An exponentially distributed number, with the weight as its rate. Of several such numbers,
    /// each is the least with a probability of its share of the sum of the rates.
    fn score(&self, hash: FlowHash) -> f64 {
        let bits = mix(hash.0 ^ self.seed) >> 12;
        // Between 0 and 1 and neither of them: 52 bits and a half fit exactly.
        let uniform = (bits as f64 + 0.5) / (1u64 << 52) as f64;
        -uniform.ln() / f64::from(self.weight)
    }
}

/// The finalizer of splitmix64 (Steele, Lea, Flood, "Fast Splittable Pseudorandom Number
/// Generators", 2014).
fn mix(bits: u64) -> u64 {
    let bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ bits >> 31
}

/// What a flow's member is chosen by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowHash(pub u64);

/// What packets that must not overtake one another have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathKey {
    source: IpAddr,
    destination: IpAddr,
    protocol: Protocol,
    ports: u32,
}

impl PathKey {
    /// Of a flow: its addresses and protocol, and its ports, which the fragments of a datagram are
    /// not asked for, since only the first has them. Fields that are not the same in all packets
    /// of a connection, such as TCP flags and the DSCP, are left out.
    pub fn of(key: &FlowKey) -> Self {
        let ports = match (key.fragment, key.upper) {
            (FragmentClass::Whole, Upper::Ports { source, destination }) => {
                u32::from(source) << 16 | u32::from(destination)
            }
            _ => 0,
        };
        Self {
            source: key.addresses.source(),
            destination: key.addresses.destination(),
            protocol: key.protocol,
            ports,
        }
    }

    /// Of all packets of a tunnel. They are numbered, and the peer's replay window (RFC 4303
    /// section 3.4.3) lets them overtake one another only so far.
    pub fn of_tunnel(source: IpAddr, destination: IpAddr) -> Self {
        Self { source, destination, protocol: Protocol::ESP, ports: 0 }
    }
}

/// Hashes flows and members with a secret, so that no sender can choose the member for its flows.
#[derive(Clone, Debug)]
pub(crate) struct PathHasher(SipHasher13);

impl PathHasher {
    pub(crate) fn new(secret: u64) -> Self {
        Self(SipHasher13::new_with_keys(secret, 0x6d75_6c74_6970_6174))
    }

    pub(crate) fn flow(&self, key: &PathKey) -> FlowHash {
        let upper = u64::from(key.protocol.0) << 32 | u64::from(key.ports);
        let ([a, b], [c, d]) = (key.source.to_words(), key.destination.to_words());
        FlowHash(self.hash([a, b, c, d, upper]))
    }

    /// The same for the same next hop, whatever its id and its place in the route are.
    fn member(&self, spec: &MemberSpec) -> u64 {
        // No station has the address of all zeros.
        let [a, b] = spec.address.map_or([0; 2], |address| address.to_words());
        self.hash([a, b, u64::from(spec.port.0)])
    }

    fn hash<const WORDS: usize>(&self, words: [u64; WORDS]) -> u64 {
        self.0.hash(words.map(u64::to_le_bytes).as_flattened())
    }
}

/// Refuses what no multipath route can have for members, whatever ports and routes there are.
///
/// # Errors
/// [`TableError::Members`], [`TableError::MemberWeight`], [`TableError::MemberTwice`].
pub(crate) fn check_members(members: &[MemberSpec]) -> Result<(), TableError> {
    if members.is_empty() || members.len() > MAX_MEMBERS {
        return Err(TableError::Members(members.len()));
    }
    for (position, &MemberSpec { port, address, weight, .. }) in members.iter().enumerate() {
        if weight == 0 || weight > MAX_WEIGHT {
            return Err(TableError::MemberWeight { weight });
        }
        let is_same = |other: &MemberSpec| (other.port, other.address) == (port, address);
        if members[..position].iter().any(is_same) {
            return Err(match address {
                Some(address) => TableError::MemberTwice(address),
                None => TableError::MemberPortTwice,
            });
        }
    }
    Ok(())
}

/// Every group, by id.
#[derive(Clone)]
pub(crate) struct Groups {
    slots: Slots<Arc<Group>>,
    /// Slots without a group, numbered from 0.
    free: Slots<u32>,
    free_count: u32,
    length: usize,
    hasher: PathHasher,
}

impl Groups {
    pub(crate) fn new(secret: u64) -> Self {
        let (slots, free) = (Slots::new(), Slots::new());
        Self { slots, free, free_count: 0, length: 0, hasher: PathHasher::new(secret) }
    }

    pub(crate) fn hasher(&self) -> &PathHasher {
        &self.hasher
    }

    pub(crate) fn get(&self, GroupId(id): GroupId) -> Option<&Group> {
        self.slots.get(id).map(|group| &**group)
    }

    /// Whether there may be one more.
    pub(crate) fn check_room(&self) -> Result<(), TableError> {
        if self.length >= MAX_GROUPS {
            return Err(TableError::Limit { what: "multipath routes", limit: MAX_GROUPS });
        }
        Ok(())
    }

    /// Adds the group of a route. `next_hops` are those of `members`, which are in order.
    pub(crate) fn add(
        &mut self,
        (table, prefix): (TableRef, IpPrefix),
        members: &[MemberSpec],
        next_hops: &[NextHopId],
    ) -> GroupId {
        let member = |(spec, &next_hop): (&MemberSpec, &NextHopId)| Member {
            next_hop,
            weight: spec.weight,
            seed: self.hasher.member(spec),
        };
        let members = members.iter().zip(next_hops).map(member).collect();
        let last = self.free_count.checked_sub(1).and_then(|last| self.free.get(last));
        let id = last.copied().unwrap_or(self.length as u32);
        self.free_count = self.free_count.saturating_sub(1);
        self.free.remove(self.free_count);
        self.length += 1;
        self.slots.set(id, Arc::new(Group { table, prefix, members, up: 0 }));
        GroupId(id)
    }

    pub(crate) fn get_mut(&mut self, GroupId(id): GroupId) -> Option<&mut Group> {
        self.slots.get_mut(id).map(Arc::make_mut)
    }

    pub(crate) fn remove(&mut self, GroupId(id): GroupId) -> Option<Arc<Group>> {
        let removed = self.slots.remove(id)?;
        self.free.set(self.free_count, id);
        self.free_count += 1;
        self.length -= 1;
        Some(removed)
    }

    /// Those with a member that `which` picks.
    pub(crate) fn with(&self, which: impl Fn(NextHopId) -> bool) -> Vec<GroupId> {
        let has = |group: &Group| group.members.iter().any(|member| which(member.next_hop));
        let all = self.slots.numbered().filter(|(_, group)| has(group));
        all.map(|(id, _)| GroupId(id)).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECRET: u64 = 7;

    fn spec(number: u8, weight: u16) -> MemberSpec {
        let address = Some([10, 0, 0, number].into());
        MemberSpec { port: wire::PortId(0), address, onlink: false, weight }
    }

    /// Of members, with the ids of their last octets, all up.
    fn group(members: &[MemberSpec]) -> Group {
        let mut groups = Groups::new(SECRET);
        let id = |spec: &MemberSpec| NextHopId(spec.address.unwrap().to_words()[1] as u32 & 0xff);
        let next_hops: Vec<_> = members.iter().map(id).collect();
        let prefix = "10.1.0.0/16".parse().unwrap();
        let id = groups.add((wire::VrfId::MAIN.into(), prefix), members, &next_hops);
        let group = groups.get_mut(id).unwrap();
        group.set_up(|_| true);
        group.clone()
    }

    fn chosen(group: &Group, flow: u32) -> NextHopId {
        let hash = PathHasher::new(SECRET).flow(&PathKey {
            source: [192, 0, 2, 1].into(),
            destination: [10, 1, 2, 3].into(),
            protocol: Protocol::UDP,
            ports: flow,
        });
        group.members()[group.choose(hash)].next_hop
    }

    /// Within five standard deviations of the binomial distribution.
    #[test]
    fn flows_are_shared_out_by_weight() {
        const FLOWS: u32 = 40_000;
        for weights in [&[1, 1][..], &[3, 1], &[256, 1], &[1; 64], &[1, 2, 3, 4, 5], &[256; 16]] {
            let members: Vec<_> = (0..).zip(weights).map(|(n, w)| spec(n, *w)).collect();
            let group = group(&members);
            let mut counts = vec![0u32; weights.len()];
            (0..FLOWS).for_each(|flow| counts[chosen(&group, flow).0 as usize] += 1);
            let sum: f64 = weights.iter().map(|weight| f64::from(*weight)).sum();
            for (count, weight) in counts.iter().zip(weights) {
                let share = f64::from(*weight) / sum;
                let expected = f64::from(FLOWS) * share;
                let deviation = (expected * (1.0 - share)).sqrt();
                let off = (f64::from(*count) - expected).abs();
                assert!(off < 5.0 * deviation, "{weights:?}: {counts:?}");
            }
        }
    }

    proptest! {
        /// Whatever becomes of some members, flows of the others stay where they are.
        #[test]
        fn only_the_flows_of_what_goes_move(
            weights in proptest::collection::vec(1..=MAX_WEIGHT, 2..=MAX_MEMBERS),
            gone in any::<u64>(),
            flows in proptest::collection::vec(any::<u32>(), 200),
        ) {
            let members: Vec<_> = (0..).zip(&weights).map(|(n, w)| spec(n, *w)).collect();
            let before = group(&members);
            let goes = |id: NextHopId| gone >> id.0 & 1 != 0;
            let mut down = before.clone();
            let changed = down.set_up(|id| !goes(id));
            prop_assert!(changed.iter().all(|(id, up)| goes(*id) && !up));
            let there = (0..).zip(&members).filter(|(number, _)| !goes(NextHopId(*number)));
            let mut left: Vec<_> = there.map(|(_, member)| *member).collect();
            // The order does not matter.
            left.reverse();
            for flow in flows {
                let first = chosen(&before, flow);
                let then = chosen(&down, flow);
                match left.is_empty() {
                    true => prop_assert_eq!(then, first, "as good as any"),
                    false => {
                        prop_assert!(!goes(then));
                        prop_assert!(goes(first) || then == first);
                        let without = chosen(&group(&left), flow);
                        prop_assert_eq!(without, then, "down is as good as gone");
                    }
                }
            }
        }
    }

    #[test]
    fn what_must_not_be_overtaken_takes_one_path() {
        use wire::{Addresses, Origin, PacketFields, PortId, VrfId};
        let key = |fragment, upper| FlowKey {
            vrf: VrfId::MAIN,
            origin: Origin::Port(PortId(0)),
            addresses: Addresses::V4 {
                source: [1, 1, 1, 1].into(),
                destination: [2, 2, 2, 2].into(),
            },
            protocol: Protocol::UDP,
            fragment,
            upper,
            fields: PacketFields::NONE,
        };
        let ports = |source| Upper::Ports { source, destination: 2 };
        let of = |fragment, upper| PathKey::of(&key(fragment, upper));
        assert_eq!(of(FragmentClass::First, ports(1)), of(FragmentClass::Later, Upper::None));
        assert_eq!(of(FragmentClass::First, ports(1)), of(FragmentClass::Later, ports(1)));
        assert_ne!(of(FragmentClass::Whole, ports(1)), of(FragmentClass::Whole, ports(2)));
        // Nor does a connection leave its path for another flag or DSCP, if policies read these.
        let plain = key(FragmentClass::Whole, ports(1));
        let marked = FlowKey { fields: PacketFields::DSCP, ..plain };
        assert_eq!(PathKey::of(&marked), PathKey::of(&plain));
    }

    #[test]
    fn members_that_cannot_be() {
        let two = [spec(1, 1), spec(1, 2)];
        assert_eq!(check_members(&two), Err(TableError::MemberTwice(two[0].address.unwrap())));
        let alone = two.map(|one| MemberSpec { address: None, ..one });
        assert_eq!(check_members(&alone), Err(TableError::MemberPortTwice));
        assert_eq!(check_members(&[]), Err(TableError::Members(0)));
        let many: Vec<_> = (0..65).map(|number| spec(number, 256)).collect();
        assert_eq!(check_members(&many), Err(TableError::Members(65)));
        assert_eq!(check_members(&many[1..]), Ok(()));
        for weight in [0, 257] {
            let wrong = Err(TableError::MemberWeight { weight });
            assert_eq!(check_members(&[spec(1, weight)]), wrong);
        }
    }
}
