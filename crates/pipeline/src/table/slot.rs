//! A flow in a group, with what its group's key does not say in reach.

use core::cmp::Reverse;
use std::sync::Arc;

use crate::fields::{Fields, WORDS, word};
use crate::flow::Entry;

/// A flow in a group.
#[derive(Clone)]
pub(super) struct Slot {
    pub(super) rank: (Reverse<u16>, u64),
    /// Whether the group's key says all that the flow matches.
    is_whole: bool,
    /// Whether key, bits and ports together do.
    is_exact: bool,
    /// Of source and destination: the word with the bits that the key lacks.
    words: [u8; 2],
    masks: [u32; 2],
    values: [u32; 2],
    /// The lowest and the highest source port and destination port.
    ports: [(u16, u16); 2],
    pub(super) entry: Arc<Entry>,
}

impl Slot {
    /// Of a flow in a group with this mask.
    pub(super) fn new(mask: &[u32; WORDS], entry: &Arc<Entry>) -> Self {
        let matches = &entry.flow.matches;
        // What neither the key nor the slot says of the flow's bits.
        let mut rest: [u32; WORDS] = core::array::from_fn(|at| matches.mask[at] & !mask[at]);
        let is_whole = rest == [0; WORDS] && matches.ranges.is_empty();
        let (mut words, mut masks, mut values) = ([0; 2], [0; 2], [0; 2]);
        for (side, first) in [word::SOURCE, word::DESTINATION].into_iter().enumerate() {
            let at = (first..first + 4).rfind(|at| rest[*at] != 0).unwrap_or(first + 3);
            words[side] = at as u8;
            masks[side] = rest[at];
            values[side] = matches.value[at] & rest[at];
            rest[at] = 0;
        }
        let (value, bits) = (matches.value[word::TP], rest[word::TP]);
        let mut ports = [16, 0].map(|shift| {
            let (value, bits) = ((value >> shift) as u16, (bits >> shift) as u16);
            // A prefix, as the bits are that all ports of a range share.
            match bits.count_zeros() == bits.trailing_zeros() {
                true => (value & bits, value & bits | !bits),
                false => (0, u16::MAX),
            }
        });
        for (half, (first, last)) in [0xffff_0000, 0xffff].into_iter().zip(ports) {
            if (first, last) != (0, u16::MAX) {
                rest[word::TP] &= !half;
            }
        }
        let mut is_exact = rest == [0; WORDS];
        for range in &matches.ranges {
            let Some(side) = range.field.port_side() else {
                is_exact = false;
                continue;
            };
            let (first, last) = &mut ports[side];
            *first = (*first).max(range.first as u16);
            *last = (*last).min(range.last as u16);
        }
        let (rank, entry) = (entry.rank(), entry.clone());
        Self { rank, is_whole, is_exact, words, masks, values, ports, entry }
    }

    /// Whether a packet may match. Of one that matches it is always true.
    #[inline]
    pub(super) fn may_match(&self, fields: &Fields) -> bool {
        let differs = |side: usize| {
            let word = fields.words[usize::from(self.words[side])];
            (word ^ self.values[side]) & self.masks[side]
        };
        let ports = fields.words[word::TP];
        let is_port = |side: usize, port: u16| {
            let (first, last) = self.ports[side];
            first <= port && port <= last
        };
        differs(0) | differs(1) == 0 && is_port(0, (ports >> 16) as u16) && is_port(1, ports as u16)
    }

    /// Whether a packet that may match does.
    #[inline]
    pub(super) fn confirms(&self, mask: &[(u8, u32)], fields: &Fields) -> bool {
        match self.is_exact {
            true => self.has_key(mask, fields),
            false => self.entry.flow.matches.matches(fields),
        }
    }

    /// Whether a packet matches.
    #[inline]
    pub(super) fn matches(&self, mask: &[(u8, u32)], fields: &Fields) -> bool {
        self.has_key(mask, fields)
            && (self.is_whole
                || self.may_match(fields)
                    && (self.is_exact || self.entry.flow.matches.matches(fields)))
    }

    #[inline]
    fn has_key(&self, mask: &[(u8, u32)], fields: &Fields) -> bool {
        let value = &self.entry.flow.matches.value;
        mask.iter().all(|(word, mask)| {
            let word = usize::from(*word);
            (fields.words[word] ^ value[word]) & mask == 0
        })
    }
}
