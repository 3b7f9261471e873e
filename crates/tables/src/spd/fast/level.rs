//! The lengths to which prefixes are cut, and how ranges of addresses are covered at them.

use siphasher::sip::SipHasher13;

use crate::spd::selector::Address;

/// An address family's levels.
pub(super) trait Family: Address + Eq + Ord {
    /// Prefix lengths, shortest first: from 0 to the whole address; 16 at most.
    const LENGTHS: &'static [u8];
    /// Whether there are more than eight.
    const WIDE: bool = Self::LENGTHS.len() > 8;
    /// Levels 1 to this are decided by the first 16 bits, and told by a
    /// [`Direct`](super::direct::Direct).
    const DIRECT: u8;
    /// A set of [pairs](super::pairs) of levels.
    type Pairs: Copy + Default + AsRef<[u64]> + AsMut<[u64]>;

    /// The first 16 bits.
    fn first(self) -> u16;
    /// The first and last address that agree with `self` where the mask has ones.
    fn prefix(self, mask: Self) -> (Self, Self);

    /// The first bits, as many as the mask has.
    fn masked(self, mask: Self) -> Self;
    /// Whether the range is exactly one prefix.
    fn is_prefix(first: Self, last: Self) -> bool;
    /// The mask of the first `length` bits.
    fn mask(length: u8) -> Self;
    /// How many prefixes of this length the range touches, less one; at most 255.
    fn span(first: Self, last: Self, length: u8) -> u8;
    /// The `step`th prefix of this length after the one that holds `self`.
    fn next(self, length: u8, step: u8) -> Self;
    /// A keyed hash.
    fn hash(self, key: &[u64; 2]) -> u64;
}

macro_rules! family {
    ($type:ty, $lengths:expr, $direct:expr, $blocks:expr, |$address:ident, $key:ident| $words:expr) => {
        impl Family for $type {
            const LENGTHS: &'static [u8] = &$lengths;
            const DIRECT: u8 = $direct;
            type Pairs = [u64; $blocks];

            #[inline(always)]
            fn first(self) -> u16 {
                (self >> (Self::BITS - 16)) as u16
            }

            fn prefix(self, mask: Self) -> (Self, Self) {
                (self & mask, self | !mask)
            }

            #[inline(always)]
            fn masked(self, mask: Self) -> Self {
                self & mask
            }

            fn is_prefix(first: Self, last: Self) -> bool {
                let width = last - first;
                width & width.wrapping_add(1) == 0 && first & width == 0
            }

            fn mask(length: u8) -> Self {
                Self::MAX.checked_shl(Self::BITS - u32::from(length)).unwrap_or(0)
            }

            fn span(first: Self, last: Self, length: u8) -> u8 {
                let number = |address: Self| {
                    address.checked_shr(Self::BITS - u32::from(length)).unwrap_or(0)
                };
                (number(last) - number(first)).try_into().unwrap_or(u8::MAX)
            }

            fn next(self, length: u8, step: u8) -> Self {
                let step =
                    Self::from(step).checked_shl(Self::BITS - u32::from(length)).unwrap_or(0);
                self.wrapping_add(step)
            }

            #[inline(always)]
            fn hash(self, key: &[u64; 2]) -> u64 {
                let ($address, $key) = (self, key);
                let (a, b): (u64, u64) = $words;
                let product = u128::from(a) * u128::from(b);
                (product >> 64) as u64 ^ product as u64
            }
        }
    };
}

family!(u32, [0, 8, 12, 16, 20, 24, 28, 32], 3, 1, |address, key| (
    u64::from(address) ^ key[0],
    key[1]
));
family!(
    u128,
    [0, 20, 28, 32, 36, 40, 44, 48, 52, 56, 60, 64, 80, 96, 112, 128],
    0,
    4,
    |address, key| ((address >> 64) as u64 ^ key[0], address as u64 ^ key[1])
);

/// The most levels of an address.
pub(super) const LEVELS: usize = 16;

/// One level of one address, source or destination.
#[derive(Clone, Copy)]
pub(super) struct Level<A> {
    pub(super) mask: A,
    key: [u64; 2],
}

impl<A: Family> Level<A> {
    /// The levels of the address that is number `which`, in a table with this secret.
    pub(super) fn all(secret: u64, which: u64) -> [Self; LEVELS] {
        let expand = SipHasher13::new_with_keys(secret, 1 + which);
        let level = |number: usize| {
            let word = |half: usize| expand.hash(&(2 * number + half).to_le_bytes()) | 1;
            Self {
                mask: A::mask(A::LENGTHS.get(number).copied().unwrap_or(0)),
                key: [word(0), word(1)],
            }
        };
        core::array::from_fn(level)
    }

    /// The hash of the prefix that holds `address`.
    #[inline(always)]
    pub(super) fn hash(&self, address: A) -> u64 {
        address.masked(self.mask).hash(&self.key)
    }
}

/// The hash of a pair of prefixes with these hashes.
#[inline(always)]
pub(super) fn pair(source: u64, destination: u64) -> u64 {
    source ^ destination.rotate_left(32)
}

/// The prefixes of one level that cover a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cover<A> {
    pub(super) level: u8,
    first: A,
    /// Less one.
    span: u8,
}

/// A prefix is covered by this many prefixes of a level at most: a few more entries, and finer
/// ones.
const PREFIX_SPAN: u8 = 2;
/// Any other range is covered by this many.
const RANGE_SPAN: u8 = 8;
/// A selector has at most this many pairs of prefixes.
pub(super) const PAIRS: usize = 16;

impl<A: Family> Cover<A> {
    /// The finest level at which no more than `most` prefixes cover the range.
    fn new((first, last): (A, A), most: u8) -> Self {
        let fits = |level: &usize| A::span(first, last, A::LENGTHS[*level]) < most;
        let level = (0..A::LENGTHS.len()).rev().find(fits).unwrap_or(0);
        Self { level: level as u8, first, span: A::span(first, last, A::LENGTHS[level]) }
    }

    /// How both addresses' ranges are covered. It follows from the ranges alone.
    pub(super) fn both(source: (A, A), destination: (A, A)) -> [Self; 2] {
        let cover = |range: (A, A), most: u8| {
            Self::new(
                range,
                if A::is_prefix(range.0, range.1) { most.min(PREFIX_SPAN) } else { most },
            )
        };
        let both = [cover(source, RANGE_SPAN), cover(destination, RANGE_SPAN)];
        let pairs = both.iter().map(|cover| usize::from(cover.span) + 1).product::<usize>();
        if pairs <= PAIRS {
            both
        } else {
            [cover(source, RANGE_SPAN / 2), cover(destination, RANGE_SPAN / 2)]
        }
    }

    /// The prefixes' length.
    pub(super) fn length(&self) -> u8 {
        A::LENGTHS[usize::from(self.level)]
    }

    /// An address of each prefix.
    pub(super) fn addresses(self) -> impl Iterator<Item = A> {
        let length = self.length();
        (0..=self.span).map(move |step| self.first.next(length, step))
    }
}
