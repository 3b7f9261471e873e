//! Rules and headers as words.

/// A packet's header, as rules see it.
///
/// | word | what |
/// |---|---|
/// | up to the last but two | fields that rules compare by bits, addresses for example |
/// | last but one | two fields of 16 bits that rules compare by ranges: [`Header::pair`] |
/// | last | fields that rules compare by bits |
///
/// `WORDS` is 4 for IPv4 (two addresses) and 10 for IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header<const WORDS: usize>(pub [u32; WORDS]);

impl<const WORDS: usize> Header<WORDS> {
    /// The position of the word with the fields that are compared by ranges.
    pub const PAIR: usize = WORDS - 2;

    /// The word with the fields that are compared by ranges.
    pub const fn pair(first: u16, second: u16) -> u32 {
        (first as u32) << 16 | second as u32
    }
}

/// What a header must be for a rule to match.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rule<const WORDS: usize> {
    /// By word: the bits that count, and what they must be. Bits that do not count are zero in
    /// `value`. Of [`Header::PAIR`]: the first values of both ranges here, and how much more the
    /// last ones are in `mask`.
    pub value: [u32; WORDS],
    /// See `value`.
    pub mask: [u32; WORDS],
    /// Whether there are headers that match by these words and not by all that the rule asks for. A
    /// range of addresses that is no prefix is such a case.
    pub is_partial: bool,
}

impl<const WORDS: usize> Rule<WORDS> {
    /// Matches everything.
    pub const ANY: Self = {
        let mut mask = [0; WORDS];
        mask[WORDS - 2] = u32::MAX;
        Self { value: [0; WORDS], mask, is_partial: false }
    };

    /// Whether a header's words match.
    #[inline]
    pub fn matches(&self, header: &Header<WORDS>) -> bool {
        let mut wrong = 0;
        for word in 0..WORDS {
            wrong |= Self::differs(word, header.0[word], self.value[word], self.mask[word]);
        }
        wrong == 0
    }

    /// Whether every header that matches another rule by its words matches this one by its words.
    pub fn covers(&self, other: &Self) -> bool {
        (0..WORDS).all(|word| {
            let (value, mask) = (self.value[word], self.mask[word]);
            let (other_value, other_mask) = (other.value[word], other.mask[word]);
            if word != Header::<WORDS>::PAIR {
                return mask & !other_mask == 0 && (value ^ other_value) & mask == 0;
            }
            [16, 0].into_iter().all(|shift| {
                let field = |word: u32| word >> shift & 0xffff;
                let ends = |value, mask| (field(value), field(value) + field(mask));
                let ((first, last), (other_first, other_last)) =
                    (ends(value, mask), ends(other_value, other_mask));
                first <= other_first && other_last <= last
            })
        })
    }

    /// Zero if a word of a header is as a rule's value and mask say.
    #[inline(always)]
    pub(crate) fn differs(word: usize, header: u32, value: u32, mask: u32) -> u32 {
        if word != Header::<WORDS>::PAIR {
            return (header ^ value) & mask;
        }
        let half = |shift: u32| {
            let field = |word: u32| (word >> shift) as u16;
            // More than the first, by at most the width.
            let after = field(header).wrapping_sub(field(value));
            u32::from(after.max(field(mask)) ^ field(mask))
        };
        half(16) | half(0)
    }

    /// A header that matches by its words.
    pub(crate) fn header(&self) -> Header<WORDS> {
        // The bits that do not count are other ones in each rule, so that headers spread.
        let seed = self
            .value
            .iter()
            .fold(0_u32, |seed, value| (seed ^ value).wrapping_mul(0x9e37_79b1).rotate_left(13));
        let mut header = Header([0; WORDS]);
        for word in 0..WORDS {
            let noise = seed.wrapping_mul(2 * word as u32 + 0x85eb_ca6b);
            let (value, mask) = (self.value[word], self.mask[word]);
            header.0[word] = if word == Header::<WORDS>::PAIR {
                let within = |shift: u32| {
                    let width = mask >> shift & 0xffff;
                    (value >> shift & 0xffff) + (noise >> 16) % (width + 1)
                };
                within(16) << 16 | within(0)
            } else {
                value | noise & !mask
            };
        }
        header
    }

    /// The bits of a word that all matching headers have alike, and what these are.
    pub(crate) fn fixed(&self, word: usize) -> (u32, u32) {
        if word != Header::<WORDS>::PAIR {
            return (self.mask[word], self.value[word]);
        }
        let half = |shift: u32| {
            let (first, width) =
                (self.value[word] >> shift & 0xffff, self.mask[word] >> shift & 0xffff);
            let differing =
                16 - (first ^ (first + width)).leading_zeros().saturating_sub(16).min(16);
            let mask = 0xffff_u32 << differing & 0xffff;
            (mask << shift, (first & mask) << shift)
        };
        let ((high_mask, high), (low_mask, low)) = (half(16), half(0));
        (high_mask | low_mask, high | low)
    }
}

/// The position of the first rule that matches. `confirms` is asked about rules that match
/// [partly](Rule::is_partial).
pub fn linear<const WORDS: usize>(
    rules: &[Rule<WORDS>],
    header: &Header<WORDS>,
    mut confirms: impl FnMut(usize) -> bool,
) -> Option<usize> {
    (0..rules.len()).find(|&number| {
        let rule = &rules[number];
        rule.matches(header) && (!rule.is_partial || confirms(number))
    })
}
