//! Eight rules, compared at once.

use crate::rule::{Header, Rule};

/// Rules in a group.
pub(crate) const LANES: usize = 8;

/// What a group finds if no rule matches.
pub(crate) const NONE: u32 = u32::MAX;

/// Eight rules side by side. Where there are fewer, the last one stands again.
#[derive(Clone, Debug)]
#[repr(align(32))]
pub(crate) struct Group<const WORDS: usize> {
    /// As [`Rule::value`] and [`Rule::mask`].
    value: [[u32; LANES]; WORDS],
    mask: [[u32; LANES]; WORDS],
    /// Twice the rule's number, and 1 more if it is to be confirmed.
    mark: [u32; LANES],
}

impl<const WORDS: usize> Group<WORDS> {
    /// Of one to eight rules, in order, with their numbers.
    pub(crate) fn of(rules: &[Rule<WORDS>], numbers: &[u32]) -> Self {
        let mut group =
            Self { value: [[0; LANES]; WORDS], mask: [[0; LANES]; WORDS], mark: [NONE; LANES] };
        for lane in 0..LANES {
            let at = lane.min(rules.len() - 1);
            let rule = &rules[at];
            for word in 0..WORDS {
                group.value[word][lane] = rule.value[word];
                group.mask[word][lane] = rule.mask[word];
            }
            group.mark[lane] = numbers[at] << 1 | u32::from(rule.is_partial);
        }
        group
    }

    /// The mark of the first rule that matches, or [`NONE`].
    #[inline(always)]
    pub(crate) fn first(&self, header: &Header<WORDS>, with: impl Compare) -> u32 {
        let lane = with.matching(self, header).trailing_zeros();
        self.mark.get(lane as usize).copied().unwrap_or(NONE)
    }

    /// How many rules there are.
    pub(crate) fn rules(&self) -> u32 {
        1 + self.mark.windows(2).filter(|marks| marks[0] != marks[1]).count() as u32
    }

    /// A bit for each rule that matches.
    #[inline(always)]
    fn all(&self, header: &Header<WORDS>, with: impl Compare) -> u32 {
        let mut matching = with.matching(self, header);
        for lane in 1..LANES {
            // The last rule of a group that is not full stands in several lanes.
            matching &= !(u32::from(self.mark[lane] == self.mark[lane - 1]) << lane);
        }
        matching
    }

    /// The least mark, from `first` on, of a rule that matches and is confirmed if it must be.
    #[cold]
    pub(crate) fn confirmed(
        &self,
        header: &Header<WORDS>,
        first: u32,
        confirms: &mut impl FnMut(u32) -> bool,
    ) -> u32 {
        let matching = Portable.matching(self, header);
        let lanes = (0..LANES).filter(|lane| matching >> lane & 1 != 0);
        let mut marks = lanes.map(|lane| self.mark[lane]).filter(|mark| *mark >= first);
        marks.find(|mark| mark & 1 == 0 || confirms(mark >> 1)).unwrap_or(NONE)
    }
}

/// Where in groups that follow each other a search for all matches is.
#[derive(Clone, Copy)]
pub(crate) struct Cursor {
    /// The group that is compared next, and the one that no longer is.
    next: usize,
    end: usize,
    /// The lanes of matching rules that are not told yet, of the group before.
    matching: u32,
}

impl Cursor {
    /// Before so many groups from `begin` on.
    pub(crate) fn of(begin: usize, count: usize) -> Self {
        Self { next: begin, end: begin + count, matching: 0 }
    }
}

/// The mark of the next rule that matches, or [`NONE`].
pub(crate) struct Next<'a, const WORDS: usize>(
    pub(crate) &'a mut Cursor,
    pub(crate) &'a [Group<WORDS>],
    pub(crate) &'a Header<WORDS>,
);

impl<const WORDS: usize> Work for Next<'_, WORDS> {
    type Output = u32;

    #[inline(always)]
    fn run(self, with: impl Compare) -> u32 {
        let Self(cursor, groups, header) = self;
        while cursor.matching == 0 {
            if cursor.next == cursor.end {
                return NONE;
            }
            cursor.matching = groups[cursor.next].all(header, with);
            cursor.next += 1;
        }
        let lane = cursor.matching.trailing_zeros() as usize % LANES;
        cursor.matching &= cursor.matching - 1;
        groups[cursor.next - 1].mark[lane]
    }
}

/// What is done with the best way of comparing that the processor has.
pub(crate) trait Work {
    type Output;

    fn run(self, with: impl Compare) -> Self::Output;
}

#[cfg(target_arch = "x86_64")]
pub(crate) fn run<W: Work>(work: W) -> W::Output {
    use pulp::x86::V3;

    struct WithV3<W>(W, V3);

    impl<W: Work> pulp::NullaryFnOnce for WithV3<W> {
        type Output = W::Output;

        #[inline(always)]
        fn call(self) -> W::Output {
            self.0.run(self.1)
        }
    }

    match V3::try_new() {
        Some(with) => with.vectorize(WithV3(work, with)),
        None => work.run(Portable),
    }
}

#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn run<W: Work>(work: W) -> W::Output {
    work.run(Portable)
}

/// How a header is compared with a group.
pub(crate) trait Compare: Copy {
    /// A bit for each lane: whether its rule matches by the header's words.
    fn matching<const WORDS: usize>(self, group: &Group<WORDS>, header: &Header<WORDS>) -> u32;
}

/// On any processor.
#[derive(Clone, Copy)]
pub(crate) struct Portable;

impl Compare for Portable {
    #[inline(always)]
    fn matching<const WORDS: usize>(self, group: &Group<WORDS>, header: &Header<WORDS>) -> u32 {
        let mut matching = 0;
        for lane in 0..LANES {
            let mut wrong = 0;
            for word in 0..WORDS {
                let (value, mask) = (group.value[word][lane], group.mask[word][lane]);
                wrong |= Rule::<WORDS>::differs(word, header.0[word], value, mask);
            }
            matching |= u32::from(wrong == 0) << lane;
        }
        matching
    }
}

/// With the registers of AVX2, of which one holds a word of all lanes.
#[cfg(target_arch = "x86_64")]
impl Compare for pulp::x86::V3 {
    #[inline(always)]
    fn matching<const WORDS: usize>(self, group: &Group<WORDS>, header: &Header<WORDS>) -> u32 {
        let Self { avx, avx2, .. } = self;
        let mut wrong = avx._mm256_setzero_si256();
        for word in 0..WORDS {
            let field = avx._mm256_set1_epi32(header.0[word] as i32);
            let (value, mask) = (pulp::cast(group.value[word]), pulp::cast(group.mask[word]));
            let differs = if word == Header::<WORDS>::PAIR {
                // Both fields of a lane are halves of it.
                let after = avx2._mm256_sub_epi16(field, value);
                avx2._mm256_xor_si256(avx2._mm256_max_epu16(after, mask), mask)
            } else {
                avx2._mm256_and_si256(avx2._mm256_xor_si256(field, value), mask)
            };
            wrong = avx2._mm256_or_si256(wrong, differs);
        }
        let matching = avx2._mm256_cmpeq_epi32(wrong, avx._mm256_setzero_si256());
        avx._mm256_movemask_ps(avx._mm256_castsi256_ps(matching)) as u32
    }
}
