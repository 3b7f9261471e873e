//! Keys of SAs.

use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use thiserror::Error;
use zeroize::Zeroizing;

/// A key. Wiped from memory when dropped, and shown by nothing but [`Key::bytes`], [`Key::to_hex`]
/// and serialisation.
#[derive(Clone, PartialEq, Eq)]
pub struct Key(Zeroizing<Vec<u8>>);

/// Why a text is not a key. Says nothing of the text itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum KeyTextError {
    /// No `0x` in front.
    #[error("a key is written in hexadecimal, with 0x in front")]
    Prefix,
    /// An odd number of digits.
    #[error(
        "a key in hexadecimal has two digits for each byte, and this one has an odd number of them"
    )]
    Odd,
    /// Something other than a digit.
    #[error("a key in hexadecimal has the digits 0-9 and a-f only")]
    Digit,
}

impl Key {
    /// Takes the bytes over.
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// The key's bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// The key in hexadecimal, with `0x` in front; nothing at all for an empty key.
    pub fn to_hex(&self) -> Zeroizing<String> {
        let mut text = Zeroizing::new(String::with_capacity(2 + 2 * self.0.len()));
        if !self.0.is_empty() {
            text.push_str("0x");
        }
        for byte in self.0.iter() {
            for nibble in [byte >> 4, byte & 15] {
                text.push(char::from_digit(u32::from(nibble), 16).unwrap_or('0'));
            }
        }
        text
    }
}

/// Reads hexadecimal with `0x` in front, or nothing for an empty key.
impl FromStr for Key {
    type Err = KeyTextError;

    fn from_str(text: &str) -> Result<Self, KeyTextError> {
        if text.is_empty() {
            return Ok(Self::new(Vec::new()));
        }
        let digits = text
            .strip_prefix("0x")
            .or_else(|| text.strip_prefix("0X"))
            .ok_or(KeyTextError::Prefix)?;
        if !digits.len().is_multiple_of(2) {
            return Err(KeyTextError::Odd);
        }
        let mut bytes = Zeroizing::new(Vec::with_capacity(digits.len() / 2));
        for pair in digits.as_bytes().chunks_exact(2) {
            let digit = |at: usize| char::from(pair[at]).to_digit(16).ok_or(KeyTextError::Digit);
            bytes.push((digit(0)? << 4 | digit(1)?) as u8);
        }
        Ok(Self(bytes))
    }
}

/// Says how long it is, and nothing more.
impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({} bytes)", self.0.len())
    }
}

impl Serialize for Key {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.to_hex())
    }
}

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Key;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a key in hexadecimal, with 0x in front")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Key, E> {
                text.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_str(Visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hexadecimal_is_read_and_written() {
        let key: Key = "0x00fF10".parse().unwrap();
        assert_eq!(key.bytes(), [0, 255, 16]);
        assert_eq!(key.to_hex().as_str(), "0x00ff10");
        assert_eq!("".parse::<Key>().unwrap().to_hex().as_str(), "");
        assert_eq!("00ff".parse::<Key>(), Err(KeyTextError::Prefix));
        assert_eq!("0x0".parse::<Key>(), Err(KeyTextError::Odd));
        assert_eq!("0x0g".parse::<Key>(), Err(KeyTextError::Digit));
        assert_eq!("0xé".parse::<Key>(), Err(KeyTextError::Digit));
    }

    #[test]
    fn debug_shows_the_length_only() {
        assert_eq!(format!("{:?}", "0xabcdef".parse::<Key>().unwrap()), "Key(3 bytes)");
    }
}
