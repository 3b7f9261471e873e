//! What a flow matches.

use core::fmt;

use types::PacketFields;

use crate::field::{Field, ones};
use crate::fields::{Fields, WORDS, word};

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

    /// The bits of a field that count, and what these are.
    pub fn get(&self, field: Field) -> (u128, u128) {
        (field.get(&self.value), field.get(&self.mask))
    }

    /// The range of a field, if it is given by one.
    pub fn range(&self, field: Field) -> Option<Range> {
        self.ranges.iter().find(|range| range.field == field).copied()
    }

    /// The optional fields that it reads.
    pub fn reads(&self) -> PacketFields {
        let ranges = self.ranges.iter().map(|range| reads_of_field(range.field));
        ranges.fold(reads(&self.mask), |all, reads| all | reads)
    }
}

/// The optional fields among bits that are read.
pub(crate) fn reads(mask: &[u32; WORDS]) -> PacketFields {
    let (ip, state) = (mask[word::IP], mask[word::STATE]);
    let dscp = ip >> 18 & 0x3f;
    PacketFields::from_bits((state >> 16 & 0xff) | dscp << 8 | (ip >> 8 & 0xff) << 14)
}

/// The optional field that a field is.
pub(crate) fn reads_of_field(field: Field) -> PacketFields {
    let mut mask = [0; WORDS];
    field.set(&mut mask, field.max(), field.max());
    reads(&mask)
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
