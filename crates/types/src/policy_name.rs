//! Names of policies.

use core::fmt;
use core::str::FromStr;

use thiserror::Error;

/// The longest name, in bytes.
const LONGEST: usize = 63;

/// What an operator calls a policy: a label, which changes nothing of what the policy does.
///
/// Letters, digits, `.`, `_`, `-`, `:`, `/`, `@` and `+` of ASCII, 1 to 63, of which the first is a
/// letter or a digit: one word in every command, log line and label.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct PolicyName {
    length: u8,
    /// Zero behind the name.
    bytes: [u8; LONGEST],
}

/// A text is no name of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "not a name of a policy: 1 to {LONGEST} letters, digits or any of . _ - : / @ +, beginning \
    with a letter or a digit"
)]
pub struct PolicyNameError;

impl PolicyName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        // They came from a text, all of ASCII.
        core::str::from_utf8(&self.bytes[..usize::from(self.length)]).unwrap_or_default()
    }
}

impl FromStr for PolicyName {
    type Err = PolicyNameError;

    fn from_str(text: &str) -> Result<Self, PolicyNameError> {
        let is_fit = |byte: &u8| byte.is_ascii_alphanumeric() || b"._-:/@+".contains(byte);
        let begins = text.as_bytes().first().is_some_and(u8::is_ascii_alphanumeric);
        if text.len() > LONGEST || !begins || !text.as_bytes().iter().all(is_fit) {
            return Err(PolicyNameError);
        }
        let mut bytes = [0; LONGEST];
        bytes[..text.len()].copy_from_slice(text.as_bytes());
        Ok(Self { length: text.len() as u8, bytes })
    }
}

impl fmt::Display for PolicyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for PolicyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_short_word() {
        let long = "n".repeat(LONGEST);
        for text in ["a", "9", "berlin-1", "child:net-net", "a/b@c+d._", &long] {
            let name: PolicyName = text.parse().unwrap();
            assert_eq!((name.as_str(), name.to_string().as_str()), (text, text));
        }
        let longer = "n".repeat(LONGEST + 1);
        for text in
            ["", " ", "a b", "-a", "_a", "a\n", "a\"", "a=b", "a{", "ö", "aö", "a\0", &longer]
        {
            assert_eq!(text.parse::<PolicyName>(), Err(PolicyNameError), "{text}");
        }
    }
}
