//! Enums whose values have a word each, in commands, configuration and JSON.

use core::fmt;

use thiserror::Error;

/// An enum whose values have a word each.
pub trait Word: Copy + 'static {
    /// Every value with its word.
    const WORDS: &'static [(&'static str, Self)];
}

/// A text is none of an enum's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("expected {}", Listed(expected))]
pub struct UnknownWord {
    /// The enum's words.
    pub expected: &'static [&'static str],
}

/// `a, b or c`.
struct Listed<'w>(&'w [&'w str]);

impl fmt::Display for Listed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, word) in self.0.iter().enumerate() {
            let before = match at {
                0 => "",
                _ if at + 1 == self.0.len() => " or ",
                _ => ", ",
            };
            write!(f, "{before}{word}")?;
        }
        Ok(())
    }
}

/// Gives an enum its words: `ALL`, `name`, [`Word`], `Display`, `FromStr`, and serde strings.
macro_rules! words {
    ($type:ident { $($value:ident = $word:literal),+ $(,)? }) => {
        impl $type {
            /// Every value.
            pub const ALL: [Self; [$($word),+].len()] = [$(Self::$value),+];

            /// Its word in commands, configuration and JSON.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$value => $word),+
                }
            }
        }

        impl $crate::word::Word for $type {
            const WORDS: &'static [(&'static str, Self)] = &[$(($word, Self::$value)),+];
        }

        impl core::fmt::Display for $type {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.write_str(self.name())
            }
        }

        impl core::str::FromStr for $type {
            type Err = $crate::word::UnknownWord;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                match text {
                    $($word => Ok(Self::$value),)+
                    _ => Err($crate::word::UnknownWord { expected: &[$($word),+] }),
                }
            }
        }

        #[cfg(feature = "serde")]
        $crate::serde::as_word!($type);
    };
}
pub(crate) use words;

#[cfg(test)]
mod tests {
    use crate::{CacheTable, Direction, SaMode};

    #[test]
    fn words_are_read_as_written_and_others_refused() {
        for direction in Direction::ALL {
            assert_eq!(direction.to_string().parse(), Ok(direction));
        }
        let error = |text: &str| text.parse::<Direction>().unwrap_err().to_string();
        assert_eq!(error("In"), "expected in, out or fwd");
        assert_eq!("".parse::<SaMode>().unwrap_err().to_string(), "expected tunnel");
        assert_eq!(CacheTable::ALL.map(|table| table as usize), [0, 1, 2, 3]);
    }
}
