//! How many connections a zone, a source and a source prefix may have.

use core::fmt;
use core::net::IpAddr;
use std::collections::HashMap;

use siphasher::sip::SipHasher13;
use std::hash::BuildHasher;

use types::IpPrefix;

use crate::refused::{RefusedOnes, RefusedSince};
use crate::sync::{AtomicU32, Mutex, Ordering, lock};

/// Which limit is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LimitKind {
    /// The class's.
    Class,
    /// Of one source address in its class.
    ClassSource,
    /// The zone's.
    Zone,
    /// Of one source address.
    Source,
    /// Of one source prefix.
    Prefix,
}

impl fmt::Display for LimitKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Class => "class",
            Self::ClassSource => "source address in its class",
            Self::Zone => "zone",
            Self::Source => "source address",
            Self::Prefix => "source prefix",
        })
    }
}

/// A limit that has refused connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReachedLimit {
    /// Which.
    pub kind: LimitKind,
    /// Of which class, or else of which zone.
    pub of: u16,
    /// Whose connections it counts; everybody's if there is none.
    pub source: Option<IpPrefix>,
    /// How many there may be.
    pub connections: u32,
}

/// Limits by source, of every zone by itself. 0 is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourceLimits {
    /// Connections of one address.
    pub source: u32,
    /// Connections of one prefix.
    pub prefix: u32,
    /// Length of the IPv4 prefixes that are counted, at most 32.
    pub ipv4_length: u8,
    /// Length of the IPv6 prefixes that are counted, at most 128.
    pub ipv6_length: u8,
}

/// How many connections of a class there may be. 0 is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassLimits {
    /// In all.
    pub connections: u32,
    /// Of one source address.
    pub source: u32,
}

/// A secret hash, as sources choose their addresses.
#[derive(Clone, Copy)]
pub(crate) struct Keyed(pub(crate) [u64; 2]);

impl BuildHasher for Keyed {
    type Hasher = SipHasher13;

    fn build_hasher(&self) -> SipHasher13 {
        SipHasher13::new_with_keys(self.0[0], self.0[1])
    }
}

/// Zone or class, first address of the prefix, its length, or one of these.
type Group = (u16, IpAddr, u8);
/// An address by itself.
const ADDRESS: u8 = 255;
/// A whole class, and an address in it.
const CLASS: u8 = 253;
const CLASS_ADDRESS: u8 = 252;

const SHARDS: usize = 16;

/// The length of the prefix that a connection counts for, which is kept with it: other prefixes may be
/// counted when it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counted(pub(crate) u8);

impl Counted {
    /// Of a connection from this address that is made now.
    fn of(source: IpAddr, limits: &SourceLimits) -> Self {
        Self(match source {
            IpAddr::V4(_) => limits.ipv4_length.min(32),
            IpAddr::V6(_) => limits.ipv6_length.min(128),
        })
    }
}

pub(crate) struct Limits {
    zones: Mutex<HashMap<u16, u32, Keyed>>,
    /// Whether any zone has a limit.
    any_zone: AtomicU32,
    sources: Mutex<SourceLimits>,
    any_source: AtomicU32,
    classes: Mutex<HashMap<u16, ClassLimits, Keyed>>,
    /// Connections of zones, addresses and prefixes. As many entries as connections at most, two
    /// for each, and only while there are limits.
    counts: [Mutex<HashMap<Group, u32, Keyed>>; SHARDS],
    refused: RefusedSince<ReachedLimit>,
    keyed: Keyed,
}

/// The limits of a zone, of a source address, and of its prefix.
type OfSource = [(LimitKind, u32); 3];

/// Stands for a whole zone in `counts`.
const ZONE: Group = (0, IpAddr::V4(core::net::Ipv4Addr::UNSPECIFIED), 254);

impl Limits {
    pub(crate) fn new(secret: [u64; 2]) -> Self {
        let keyed = Keyed(secret.map(|word| word ^ 0x006c_696d_6974_7321));
        Self {
            zones: Mutex::new(HashMap::with_hasher(keyed)),
            any_zone: AtomicU32::new(0),
            sources: Mutex::default(),
            any_source: AtomicU32::new(0),
            classes: Mutex::new(HashMap::with_hasher(keyed)),
            counts: core::array::from_fn(|_| Mutex::new(HashMap::with_hasher(keyed))),
            refused: RefusedSince::new(),
            keyed,
        }
    }

    pub(crate) fn set_zone(&self, zone: u16, limit: u32) {
        let mut zones = lock(&self.zones);
        match limit {
            0 => zones.remove(&zone),
            limit => zones.insert(zone, limit),
        };
        self.any_zone.store(zones.len() as u32, Ordering::Release);
    }

    /// Connections that there are go on to count for the prefixes that they were counted for.
    pub(crate) fn set_source(&self, limits: SourceLimits) {
        *lock(&self.sources) = limits;
        let any = u32::from(limits.source != 0 || limits.prefix != 0);
        self.any_source.store(any, Ordering::Release);
    }

    pub(crate) fn set_classes(&self, limits: impl IntoIterator<Item = (u16, ClassLimits)>) {
        let mut classes = lock(&self.classes);
        classes.clear();
        classes.extend(limits);
    }

    /// How many connections of a class there are.
    pub(crate) fn of_class(&self, class: u16) -> u32 {
        let group = class_groups(class, ZONE.1)[0];
        self.shard(&group).get(&group).copied().unwrap_or(0)
    }

    /// Counts a connection of a class, or says which limit is reached. Class 0 is none.
    #[inline(always)]
    pub(crate) fn take_class(&self, class: u16, source: IpAddr) -> Result<(), LimitKind> {
        if class == 0 { Ok(()) } else { self.take_one_class(class, source) }
    }

    #[inline(never)]
    fn take_one_class(&self, class: u16, source: IpAddr) -> Result<(), LimitKind> {
        self.take_all(self.kinds_of_class(class), class_groups(class, source))
    }

    fn kinds_of_class(&self, class: u16) -> [(LimitKind, u32); 2] {
        let ClassLimits { connections, source } =
            lock(&self.classes).get(&class).copied().unwrap_or_default();
        [(LimitKind::Class, connections), (LimitKind::ClassSource, source)]
    }

    /// Which limit one more connection would be over, if any.
    pub(crate) fn reached(&self, zone: u16, source: IpAddr, class: u16) -> Option<LimitKind> {
        let of_zone = self.kinds(zone).and_then(|(kinds, limits)| {
            self.first_reached(kinds, groups(zone, source, Counted::of(source, &limits)))
        });
        of_zone.or_else(|| match class {
            0 => None,
            _ => self.first_reached(self.kinds_of_class(class), class_groups(class, source)),
        })
    }

    fn first_reached<const N: usize>(
        &self,
        kinds: [(LimitKind, u32); N],
        groups: [Group; N],
    ) -> Option<LimitKind> {
        let is_reached = |((_, limit), group): &((_, u32), Group)| {
            *limit != 0 && self.shard(group).get(group).copied().unwrap_or(0) >= *limit
        };
        kinds.into_iter().zip(groups).find(is_reached).map(|((kind, _), _)| kind)
    }

    /// Notes that a connection was refused.
    #[cold]
    pub(crate) fn note(&self, kind: LimitKind, zone: u16, source: IpAddr, class: u16) {
        let of_source = *lock(&self.sources);
        let of_zone = || lock(&self.zones).get(&zone).copied().unwrap_or(0);
        let of_class = || lock(&self.classes).get(&class).copied().unwrap_or_default();
        let host = IpPrefix::host(source);
        let (_, network, length) = groups(zone, source, Counted::of(source, &of_source))[2];
        let (of, source, connections) = match kind {
            LimitKind::Class => (class, None, of_class().connections),
            LimitKind::ClassSource => (class, Some(host), of_class().source),
            LimitKind::Zone => (zone, None, of_zone()),
            LimitKind::Source => (zone, Some(host), of_source.source),
            LimitKind::Prefix => (zone, IpPrefix::new(network, length).ok(), of_source.prefix),
        };
        self.refused.note(ReachedLimit { kind, of, source, connections });
    }

    /// Which limits have refused connections since this was last asked.
    pub(crate) fn take_refused(&self) -> RefusedOnes<ReachedLimit> {
        self.refused.take()
    }

    /// The same, whatever the limits.
    pub(crate) fn count_class(&self, class: u16, source: IpAddr) {
        if class != 0 {
            for group in class_groups(class, source) {
                *self.shard(&group).entry(group).or_insert(0) += 1;
            }
        }
    }

    /// The connection has ended, or is of another class now.
    pub(crate) fn give_class(&self, class: u16, source: IpAddr) {
        if class != 0 {
            class_groups(class, source).iter().for_each(|group| self.give_one(group));
        }
    }

    /// Counts a connection, or says which limit is reached. What it returns is to be given back; `None` if
    /// there are no limits.
    #[inline(always)]
    pub(crate) fn take(&self, zone: u16, source: IpAddr) -> Result<Option<Counted>, LimitKind> {
        if self.are_none() { Ok(None) } else { self.take_in_zone(zone, source) }
    }

    #[inline(never)]
    fn take_in_zone(&self, zone: u16, source: IpAddr) -> Result<Option<Counted>, LimitKind> {
        let Some((kinds, limits)) = self.kinds(zone) else { return Ok(None) };
        let counted = Counted::of(source, &limits);
        self.take_all(kinds, groups(zone, source, counted)).map(|()| Some(counted))
    }

    /// Whether no zone has a limit, nor has a source.
    #[inline(always)]
    fn are_none(&self) -> bool {
        self.any_zone.load(Ordering::Acquire) == 0 && self.any_source.load(Ordering::Acquire) == 0
    }

    /// The limits of a zone and of sources, if there are any.
    fn kinds(&self, zone: u16) -> Option<(OfSource, SourceLimits)> {
        if self.are_none() {
            return None;
        }
        let limits = *lock(&self.sources);
        let of_zone = lock(&self.zones).get(&zone).copied().unwrap_or(0);
        let kinds = [
            (LimitKind::Zone, of_zone),
            (LimitKind::Source, limits.source),
            (LimitKind::Prefix, limits.prefix),
        ];
        Some((kinds, limits))
    }

    /// Counts a connection in all of these, or in none.
    fn take_all<const N: usize>(
        &self,
        kinds: [(LimitKind, u32); N],
        groups: [Group; N],
    ) -> Result<(), LimitKind> {
        for (at, ((kind, limit), group)) in kinds.into_iter().zip(groups).enumerate() {
            let mut shard = self.shard(&group);
            let count = shard.entry(group).or_insert(0);
            if limit != 0 && *count >= limit {
                if *count == 0 {
                    shard.remove(&group);
                }
                drop(shard);
                for group in &groups[..at] {
                    self.give_one(group);
                }
                return Err(kind);
            }
            *count += 1;
        }
        Ok(())
    }

    /// A connection has ended that was counted so.
    pub(crate) fn give(&self, zone: u16, source: IpAddr, counted: Counted) {
        groups(zone, source, counted).iter().for_each(|group| self.give_one(group));
    }

    fn give_one(&self, group: &Group) {
        let mut shard = self.shard(group);
        if let Some(count) = shard.get_mut(group) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                shard.remove(group);
            }
        }
    }

    fn shard(&self, group: &Group) -> crate::sync::MutexGuard<'_, HashMap<Group, u32, Keyed>> {
        lock(&self.counts[self.keyed.hash_one(group) as usize >> 8 & (SHARDS - 1)])
    }
}

fn class_groups(class: u16, source: IpAddr) -> [Group; 2] {
    [(class, ZONE.1, CLASS), (class, source, CLASS_ADDRESS)]
}

/// What a connection counts for.
fn groups(zone: u16, source: IpAddr, Counted(length): Counted) -> [Group; 3] {
    let network = match source {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0);
            IpAddr::V4((address.to_bits() & mask).into())
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0);
            IpAddr::V6((address.to_bits() & mask).into())
        }
    };
    [(zone, ZONE.1, ZONE.2), (zone, source, ADDRESS), (zone, network, length)]
}
