//! What a flow matches.

use core::fmt;
use core::ops::BitOr;

use types::{PacketFields, VrfId};

use crate::field::{Field, Needs, ones};
use crate::fields::{Fields, IPV4, IPV6, WORDS, bits, wide, word};

/// A range that bits do not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Range {
    /// The field.
    pub field: Field,
    /// The lowest value.
    pub first: u128,
    /// The highest value.
    pub last: u128,
}

/// Conditions on [`Fields`]. Equal conditions are equal values.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Match {
    /// Bits that do not count are zero.
    pub(crate) value: [u32; WORDS],
    pub(crate) mask: [u32; WORDS],
    /// In the order of fields, one for each at most. The bits that all values of a range share are
    /// in `value` and `mask` as well.
    pub(crate) ranges: Vec<Range>,
}

impl Match {
    /// Matches every packet.
    pub const ANY: Self = Self { value: [0; WORDS], mask: [0; WORDS], ranges: Vec::new() };

    /// Whether a packet matches.
    #[inline]
    pub fn matches(&self, fields: &Fields) -> bool {
        let mut wrong = 0;
        for at in 0..WORDS {
            wrong |= (fields.words[at] ^ self.value[at]) & self.mask[at];
        }
        wrong == 0 && self.in_ranges(fields)
    }

    /// Whether a packet is within the ranges.
    #[inline]
    pub(crate) fn in_ranges(&self, fields: &Fields) -> bool {
        self.ranges.iter().all(|range| {
            let value = range.field.get(&fields.words);
            range.first <= value && value <= range.last
        })
    }

    /// Asks that a field have these bits.
    pub fn set(&mut self, field: Field, value: u128, mask: u128) {
        field.set(&mut self.value, value & mask, field.max());
        field.set(&mut self.mask, mask, field.max());
        self.ranges.retain(|range| range.field != field);
    }

    /// Asks that a field be within a range.
    pub fn set_range(&mut self, field: Field, first: u128, last: u128) {
        let differing = 128 - (first ^ last).leading_zeros();
        let mask = field.max() & !ones(differing as u8);
        self.set(field, first, mask);
        let is_prefix = first & !mask == 0 && last & !mask == field.max() & !mask;
        if !is_prefix {
            let at = self.ranges.partition_point(|range| range.field < field);
            self.ranges.insert(at, Range { field, first, last });
        }
    }

    /// Asks that an SA of this reqid have decrypted the packet; with `None` that none has.
    pub fn set_sa(&mut self, reqid: Option<u32>) {
        self.set_decrypted(reqid.is_some());
        if let Some(reqid) = reqid {
            self.set(Field::Sa, reqid.into(), Field::Sa.max());
        }
    }

    /// Asks that some SA have decrypted the packet, or that none has.
    pub fn set_decrypted(&mut self, decrypted: bool) {
        self.set(Field::Decrypted, decrypted.into(), 1);
    }

    /// The bits of a field that count, and what these are.
    pub fn get(&self, field: Field) -> (u128, u128) {
        (field.get(&self.value), field.get(&self.mask))
    }

    /// The range of a field, if it is given by one.
    pub fn range(&self, field: Field) -> Option<Range> {
        self.ranges.iter().find(|range| range.field == field).copied()
    }

    /// Whether every packet that matches has what a field needs.
    pub fn has(&self, needs: Needs) -> bool {
        let dl_type = self.get(Field::DlType).0 as u16;
        let protocol = self.get(Field::NwProto).0;
        let is_ip = matches!(dl_type, IPV4 | IPV6);
        // A fragment that is known not to be the first has no ports.
        let is_first = self.get(Field::IpFrag).0 & u128::from(bits::LATER) == 0;
        match needs {
            Needs::Nothing => true,
            Needs::Ip => is_ip,
            Needs::Ipv4 => dl_type == IPV4,
            Needs::Ipv6 => dl_type == IPV6,
            Needs::Tcp => is_ip && protocol == 6 && is_first,
            Needs::Udp => is_ip && protocol == 17 && is_first,
            Needs::Sctp => is_ip && protocol == 132 && is_first,
            Needs::Icmp => dl_type == IPV4 && protocol == 1,
            Needs::Icmpv6 => dl_type == IPV6 && protocol == 58,
        }
    }

    /// A packet that matches by its bits, and is zero in everything else. Ranges are not looked at.
    pub fn example(&self, vrf: VrfId) -> Fields {
        Fields::from_words(vrf, self.value)
    }

    /// Whether every packet that matches another one matches this.
    pub fn covers(&self, other: &Self) -> bool {
        let bits = (0..WORDS).all(|at| {
            self.mask[at] & !other.mask[at] == 0
                && (self.value[at] ^ other.value[at]) & self.mask[at] == 0
        });
        bits && self.ranges.iter().all(|range| {
            let (first, last) = other.ends(range.field);
            range.first <= first && last <= range.last
        })
    }

    /// Whether a packet may match both.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.and(other).is_some()
    }

    /// What matches both; `None` if nothing can. Of two ranges the bits that a value of both has
    /// are taken.
    pub(crate) fn and(&self, other: &Self) -> Option<Self> {
        let mut both = self.clone();
        for at in 0..WORDS {
            if (self.value[at] ^ other.value[at]) & self.mask[at] & other.mask[at] != 0 {
                return None;
            }
            both.value[at] |= other.value[at];
            both.mask[at] |= other.mask[at];
        }
        both.ranges.clear();
        for range in self.ranges.iter().chain(&other.ranges) {
            let field = range.field;
            let (mine, theirs) = (self.range(field), other.range(field));
            let of = |range: Option<Range>| range.map_or((0, field.max()), |r| (r.first, r.last));
            let ((a, b), (c, d)) = (of(mine), of(theirs));
            let (value, mask) = both.get(field);
            let within = lowest_at_least(a.max(c), value, mask, field.max())?;
            if within > b.min(d) {
                return None;
            }
            both.set(field, within, field.max());
        }
        Some(both)
    }

    /// The lowest and the highest value of a field that may match.
    pub(crate) fn ends(&self, field: Field) -> (u128, u128) {
        let (value, mask) = self.get(field);
        match self.range(field) {
            Some(range) => (range.first, range.last),
            None => (value, value | field.max() & !mask),
        }
    }

    /// The optional fields that it reads.
    pub fn reads(&self) -> PacketFields {
        let ranges = self.ranges.iter().map(|range| reads_of_field(range.field));
        ranges.fold(reads(&self.mask), |all, reads| all | reads)
    }

    /// Whether it reads the mark or the label of a connection.
    pub(crate) fn reads_marks(&self) -> bool {
        let fields = [Field::CtMark, Field::CtLabel];
        fields.into_iter().any(|field| self.get(field).1 != 0 || self.range(field).is_some())
    }

    /// What it reads of packets' ends.
    pub(crate) fn end_reads(&self) -> EndReads {
        let ranges = self.ranges.iter().map(|range| EndReads::of_field(range.field));
        ranges.fold(EndReads::of(&self.mask), |all, reads| all | reads)
    }
}

/// What is read of the two ends of packets, which is what most packets differ in that are alike to
/// flows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct EndReads {
    /// The bits of the source address; of IPv4 the lowest 32.
    pub source: u128,
    /// The same of the destination address.
    pub destination: u128,
    /// The bits of the source port, and below them those of the destination port.
    pub ports: u32,
    /// Whether a connection's tuple is read besides.
    pub connection: bool,
    /// Whether it is asked where packets are routed to, or packets are routed.
    pub routes: bool,
}

impl BitOr for EndReads {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self {
            source: self.source | other.source,
            destination: self.destination | other.destination,
            ports: self.ports | other.ports,
            connection: self.connection | other.connection,
            routes: self.routes | other.routes,
        }
    }
}

impl EndReads {
    /// Of bits that are read.
    fn of(mask: &[u32; WORDS]) -> Self {
        let connection =
            [&mask[word::CT_TP..=word::CT_TP], &mask[word::CT_SOURCE..word::CT_DESTINATION + 4]];
        Self {
            source: wide(mask, word::SOURCE),
            destination: wide(mask, word::DESTINATION),
            ports: mask[word::TP],
            connection: connection.into_iter().flatten().any(|mask| *mask != 0),
            routes: mask[word::OUT] != 0,
        }
    }

    /// Of a field that is read.
    pub(crate) fn of_field(field: Field) -> Self {
        Self::of(&mask_of(field))
    }
}

/// The lowest number from `from` to `max` that has the bits of `value` where `mask` has bits.
fn lowest_at_least(from: u128, value: u128, mask: u128, max: u128) -> Option<u128> {
    let free = max & !mask;
    if from & mask == value {
        return Some(from);
    }
    // Up to the highest bit that is wrong, the number is that of `from`. If it must be more there,
    // the free bits below are zero; if less, the lowest free bit above that is zero goes up.
    let differing = 127 - ((from ^ value) & mask).leading_zeros();
    let below = (1 << differing) - 1;
    if value >> differing & 1 == 1 {
        return Some((from & !mask & !below | value) & !(free & below));
    }
    let above = free & !from & !below;
    let up = above & above.wrapping_neg();
    if up == 0 {
        return None;
    }
    Some(from & free & !(up - 1) | up | value)
}

/// The optional fields among bits that are read.
pub(crate) fn reads(mask: &[u32; WORDS]) -> PacketFields {
    let (ip, state) = (mask[word::IP], mask[word::STATE]);
    let dscp = ip >> 18 & 0x3f;
    PacketFields::from_bits((state >> 16 & 0xff) | dscp << 8 | (ip >> 8 & 0xff) << 14)
}

/// The optional field that a field is.
pub(crate) fn reads_of_field(field: Field) -> PacketFields {
    reads(&mask_of(field))
}

/// All bits of a field.
fn mask_of(field: Field) -> [u32; WORDS] {
    let mut mask = [0; WORDS];
    field.set(&mut mask, field.max(), field.max());
    mask
}

/// The fields that it asks for, by number.
impl fmt::Debug for Match {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut map = f.debug_map();
        for field in Field::ALL {
            let (value, mask) = self.get(*field);
            match self.range(*field) {
                Some(range) => _ = map.entry(field, &(range.first..=range.last)),
                None if mask != 0 => _ = map.entry(field, &format_args!("{value:#x}/{mask:#x}")),
                None => {}
            }
        }
        map.finish()
    }
}
