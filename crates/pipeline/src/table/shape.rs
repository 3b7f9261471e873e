//! Which flows are looked up together.

use types::PacketFields;

use crate::fields::{WORDS, word};
use crate::matches::Match;

/// What the flows of a group are found by: their masks, cut so that many have the same.
///
/// Prefixes of the packet's addresses are cut to one of few lengths, and a range of ports is left out.
/// What is cut off is compared flow by flow.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Shape {
    /// All words.
    pub(super) mask: [u32; WORDS],
    /// The optional fields that flows read: what some read is not asked of packets for others.
    pub(super) reads: PacketFields,
}

impl Shape {
    pub(super) fn of(matches: &Match) -> Self {
        let mut mask = matches.mask;
        for at in [word::SOURCE, word::DESTINATION] {
            cut_address(&mut mask[at..at + 4]);
        }
        for (side, half) in [0xffff_0000, 0x0000_ffff].into_iter().enumerate() {
            if matches.ranges.iter().any(|range| range.field.port_side() == Some(side)) {
                mask[word::TP] &= !half;
            }
        }
        Self { mask, reads: matches.reads() }
    }

    /// The words that have bits, and these.
    pub(super) fn sparse(&self) -> Vec<(u8, u32)> {
        (0..).zip(self.mask).filter(|(_, mask)| *mask != 0).collect()
    }
}

/// Cuts a prefix of IPv4 to a multiple of 4 bits, one of IPv6 to a multiple of 8, of which 32 is one.
/// Masks that are no prefix stay.
fn cut_address(mask: &mut [u32]) {
    let is_v4 = mask[..3] == [0; 3];
    let Some(last) = mask.iter().rposition(|word| *word != 0) else { return };
    let is_prefix = mask[last].count_zeros() == mask[last].trailing_zeros();
    let is_whole = |word: &u32| *word == u32::MAX;
    if is_prefix && (is_v4 || mask[..last].iter().all(is_whole)) {
        let step = if is_v4 { 4 } else { 8 };
        let length = mask[last].count_ones() / step * step;
        mask[last] = u32::MAX.checked_shl(32 - length).unwrap_or(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field::Field;
    use crate::matches::Range;

    #[test]
    fn prefixes_are_cut_and_ranges_of_ports_left_out() {
        let mut matches = Match::ANY;
        matches.set(Field::NwSrc, 0x0a01_0200, 0xffff_fe00);
        matches.set(Field::NwDst, 0x0a01_0203, 0xffff_ffff);
        matches.set(Field::TcpSrc, 1024, 0xfc00);
        matches.set(Field::TcpDst, 22, 0xffff);
        let mask = Shape::of(&matches).mask;
        assert_eq!(mask[word::SOURCE + 3], 0xffff_f000);
        assert_eq!(mask[word::DESTINATION + 3], 0xffff_ffff);
        assert_eq!(mask[word::TP], 0xfc00_ffff);
        let (field, first, last) = (Field::TcpSrc, 1000, 2000);
        matches.ranges.push(Range { field, first, last });
        assert_eq!(Shape::of(&matches).mask[word::TP], 0xffff);
    }

    #[test]
    fn a_cut_prefix_is_a_shorter_one() {
        let cut = |mask: u128| {
            let mut words = [96, 64, 32, 0].map(|by| (mask >> by) as u32);
            cut_address(&mut words);
            words.iter().fold(0, |wide, word| wide << 32 | u128::from(*word))
        };
        for length in 0..=128 {
            let mask = u128::MAX.checked_shl(128 - length).unwrap_or(0);
            assert_eq!(cut(mask), u128::MAX.checked_shl(128 - length / 8 * 8).unwrap_or(0));
        }
        // Every other bit: not a prefix.
        assert_eq!(cut(0x5555), 0x5555);
    }
}
