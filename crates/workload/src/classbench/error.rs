//! What is wrong with a file.

use thiserror::Error;
use types::AddressError;

use super::MAX_LINE;

/// A line that is not in the format.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("line {line}, column {column}: {problem}")]
pub struct ParseError {
    /// The line, from 1.
    pub line: usize,
    /// The character in the line, from 1; one more than it has if it ends too early.
    pub column: usize,
    /// What is wrong, and what would be right.
    pub problem: Problem,
}

/// What is wrong with a line. Texts are shortened if they are long.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Problem {
    /// Something else should be there.
    #[error("found '{found}' instead of {expected}")]
    Unexpected {
        /// What is there.
        found: String,
        /// What should be.
        expected: &'static str,
    },
    /// The line is too short.
    #[error("the line ends where {expected} should be")]
    End {
        /// What should follow.
        expected: &'static str,
    },
    /// Not a prefix.
    #[error("{what} '{text}': {why}")]
    Prefix {
        /// Which.
        what: &'static str,
        /// What is there.
        text: String,
        /// Why it is none.
        why: AddressError,
    },
    /// An address in place of a prefix.
    #[error("{what} '{text}' has no length; write {text}/{host} for one address")]
    NoLength {
        /// Which.
        what: &'static str,
        /// What is there.
        text: String,
        /// The length of a prefix of one address.
        host: u8,
    },
    /// Not an address.
    #[error("{what} '{text}': not an IPv4 or IPv6 address, nor a number of 32 bits")]
    Address {
        /// Which.
        what: &'static str,
        /// What is there.
        text: String,
    },
    /// One address is IPv4 and the other IPv6.
    #[error("source and destination must be of one address family")]
    Families,
    /// The lower port comes last.
    #[error("the port range {first} : {last} is reversed; the lower port comes first")]
    Reversed {
        /// The port written first.
        first: u16,
        /// The port written last.
        last: u16,
    },
    /// A mask that selects part of the protocol's bits.
    #[error("the protocol's mask is {0:#04x}; it must be 0xFF for this protocol or 0x00 for any")]
    Mask(u8),
    /// More than [`MAX_LINE`] bytes.
    #[error("the line is longer than {MAX_LINE} bytes")]
    Long,
    /// More than is read.
    #[error("there are more than {limit} {what}")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many are read.
        limit: usize,
    },
}
