//! Frames: how files of the state directory are written, so that what a power loss tore apart is
//! told from what was damaged.
//!
//! A frame is written by one write and one fsync, and the next one not before that has returned.
//! So at most the last frame of a file can be torn.
//!
//! | Bytes | What |
//! | --- | --- |
//! | 4 | `HPL1` |
//! | 4 | number of the frame in its file, from 0 |
//! | 4 | length of the contents |
//! | 4 | CRC-32 of the contents |
//! | 4 | CRC-32 of the 16 bytes before |
//!
//! Numbers are little-endian. The contents follow.

use core::fmt;
use core::ops::Range;

const MAGIC: &[u8; 4] = b"HPL1";

/// The length of what stands before the contents.
pub(crate) const HEADER: usize = 20;

/// What is in a file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Frames<'b> {
    /// The contents of whole frames, in their order.
    pub(crate) contents: Vec<&'b [u8]>,
    /// Bytes at the end that are no whole frame.
    pub(crate) torn: Range<usize>,
}

/// Bytes inside a file that are not what was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Damage {
    /// Where they begin.
    pub(crate) at: usize,
    what: &'static str,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at byte {}", self.what, self.at)
    }
}

/// A frame with these contents.
///
/// # Errors
/// If they are too long for one: 4 GiB.
pub(crate) fn header(number: u32, contents: &[u8]) -> Option<[u8; HEADER]> {
    let mut bytes = [0; HEADER];
    bytes[..4].copy_from_slice(MAGIC);
    bytes[4..8].copy_from_slice(&number.to_le_bytes());
    bytes[8..12].copy_from_slice(&u32::try_from(contents.len()).ok()?.to_le_bytes());
    bytes[12..16].copy_from_slice(&crc32fast::hash(contents).to_le_bytes());
    let check = crc32fast::hash(&bytes[..16]);
    bytes[16..].copy_from_slice(&check.to_le_bytes());
    Some(bytes)
}

/// What a frame's header says.
struct Header {
    number: u32,
    length: usize,
    check: u32,
}

impl Header {
    fn read(bytes: &[u8]) -> Option<Self> {
        let word = |at: usize| {
            let word = bytes.get(at..at + 4)?;
            Some(u32::from_le_bytes(word.try_into().ok()?))
        };
        let is_whole = bytes.get(..4)? == MAGIC && crc32fast::hash(bytes.get(..16)?) == word(16)?;
        if !is_whole {
            return None;
        }
        Some(Self { number: word(4)?, length: usize::try_from(word(8)?).ok()?, check: word(12)? })
    }

    fn contents<'b>(&self, bytes: &'b [u8]) -> Option<&'b [u8]> {
        let contents = bytes.get(HEADER..HEADER.checked_add(self.length)?)?;
        (crc32fast::hash(contents) == self.check).then_some(contents)
    }
}

/// Reads a file.
///
/// # Errors
/// If something before the last frame is not what was written.
pub(crate) fn read(bytes: &[u8]) -> Result<Frames<'_>, Damage> {
    let mut contents = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        let whole = Header::read(rest).and_then(|header| Some((header.contents(rest)?, header)));
        let Some((found, header)) = whole else {
            // Nothing can follow a torn frame.
            return match next(bytes, at + 1) {
                None => Ok(Frames { contents, torn: at..bytes.len() }),
                Some(_) => Err(Damage { at, what: "damaged bytes" }),
            };
        };
        if usize::try_from(header.number).ok() != Some(contents.len()) {
            return Err(Damage { at, what: "a part is missing before the one" });
        }
        at += HEADER + found.len();
        contents.push(found);
    }
    Ok(Frames { contents, torn: at..at })
}

/// Every whole frame of a damaged file, and the bytes between them.
pub(crate) fn salvage(bytes: &[u8]) -> (Vec<&[u8]>, Vec<Range<usize>>) {
    let (mut contents, mut skipped) = (Vec::new(), Vec::new());
    let mut at = 0;
    while at < bytes.len() {
        let (from, found) = next(bytes, at).unwrap_or((bytes.len(), &[]));
        if from > at {
            skipped.push(at..from);
        }
        if from == bytes.len() {
            break;
        }
        at = from + HEADER + found.len();
        contents.push(found);
    }
    (contents, skipped)
}

/// The first whole frame at byte `from` or behind.
fn next(bytes: &[u8], from: usize) -> Option<(usize, &[u8])> {
    let mut at = from;
    loop {
        let rest = bytes.get(at..)?;
        at += rest.windows(MAGIC.len()).position(|window| window == MAGIC)?;
        let rest = &bytes[at..];
        if let Some(found) = Header::read(rest).and_then(|header| header.contents(rest)) {
            return Some((at, found));
        }
        at += 1;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn file(all: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (number, contents) in all.iter().enumerate() {
            bytes.extend(header(number as u32, contents).unwrap());
            bytes.extend(contents);
        }
        bytes
    }

    fn contents() -> impl Strategy<Value = Vec<Vec<u8>>> {
        prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 1..8)
    }

    proptest! {
        #[test]
        fn what_was_written_is_read(all in contents()) {
            let bytes = file(&all);
            let frames = read(&bytes).unwrap();
            prop_assert_eq!(&frames.contents, &all.iter().map(Vec::as_slice).collect::<Vec<_>>());
            prop_assert!(frames.torn.is_empty());
            prop_assert_eq!(salvage(&bytes), (frames.contents, Vec::new()));
        }

        /// However much of the last frame came to the disk, with zeros in place of the rest or
        /// not: all others are read.
        #[test]
        fn a_torn_last_frame_is_told(all in contents(), cut in any::<prop::sample::Index>(), zeros: bool) {
            let bytes = file(&all);
            let begin = bytes.len() - HEADER - all.last().unwrap().len();
            let cut = begin + cut.index(bytes.len() - begin);
            let mut torn = bytes[..cut].to_vec();
            if zeros {
                torn.resize(bytes.len(), 0);
                prop_assume!(torn != bytes);
            }
            let frames = read(&torn).unwrap();
            prop_assert_eq!(frames.contents.len(), all.len() - 1);
            prop_assert_eq!(frames.torn, begin..torn.len());
        }

        /// One bit that is not as it was is found, wherever it is: what stands before is read,
        /// and what was lost is no more than the frame that it is in.
        #[test]
        fn a_flipped_bit_is_found(all in contents(), at in any::<prop::sample::Index>(), bit in 0..8_u32) {
            let mut bytes = file(&all);
            let at = at.index(bytes.len());
            bytes[at] ^= 1_u8 << bit;
            let begin = bytes.len() - HEADER - all.last().unwrap().len();
            match read(&bytes) {
                Ok(frames) => {
                    prop_assert!(at >= begin, "only the last frame can be torn");
                    prop_assert_eq!(frames.contents.len(), all.len() - 1);
                }
                Err(damage) => prop_assert!(damage.at <= at && at < begin),
            }
            let (found, skipped) = salvage(&bytes);
            prop_assert_eq!(found.len(), all.len() - 1);
            prop_assert_eq!(skipped.len(), 1);
            prop_assert!(skipped[0].contains(&at));
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = (read(&bytes), salvage(&bytes));
        }
    }

    #[test]
    fn a_missing_frame_is_damage() {
        let bytes = file(&[b"one".to_vec(), b"two".to_vec(), b"three".to_vec()]);
        let (first, second) = (HEADER + 3, 2 * (HEADER + 3));
        let without = [&bytes[..first], &bytes[second..]].concat();
        let damage = read(&without).unwrap_err();
        assert_eq!(damage.at, first);
        assert!(damage.to_string().contains("missing"), "{damage}");
    }
}
