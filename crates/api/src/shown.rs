//! How errors and logs show what a user has written: no key, no control character, and not all of a
//! long word.

use std::borrow::Cow;

/// What stands in place of what is not shown.
const HIDDEN: &str = "...";

/// As many characters of a word are shown.
const SHOWN: usize = 40;

/// The fewest characters of a word that may be a key, or be left of one, where keys are taken. Those of
/// all algorithms are longer, or empty.
const SHORTEST: usize = 12;

/// The fewest hexadecimal digits in a row that may be a key wherever they stand: names of interfaces,
/// Ethernet addresses and numbers have fewer, and keys at least 32.
const SHORTEST_ANYWHERE: usize = 24;

/// A word as errors show it: nothing that could confuse a terminal, not all of a long one, and
/// nothing of it that looks like a key.
pub fn shown(word: &str) -> String {
    let word = without_keys(word);
    let start: String = word.chars().take(SHOWN).flat_map(char::escape_debug).collect();
    if word.chars().nth(SHOWN).is_some() { format!("{start}{HIDDEN}") } else { start }
}

/// A text without what looks like a key wherever it is written: hexadecimal, with `0x` in front or
/// not.
pub fn without_keys(text: &str) -> Cow<'_, str> {
    let mut kept = String::new();
    let (mut rest, mut is_changed) = (text, false);
    while let Some(start) = rest.find(|it: char| it.is_ascii_alphanumeric()) {
        let run = &rest[start..];
        let end = run.find(|it: char| !it.is_ascii_alphanumeric()).unwrap_or(run.len());
        let run = &run[..end];
        kept.push_str(&rest[..start]);
        if looks_like_key(run) {
            is_changed = true;
            kept.push_str(if has_prefix(run) { "0x" } else { "" });
            kept.push_str(HIDDEN);
        } else {
            kept.push_str(run);
        }
        rest = &rest[start + end..];
    }
    kept.push_str(rest);
    if is_changed { Cow::Owned(kept) } else { Cow::Borrowed(text) }
}

/// Whether a word may be a key, where a command or a section takes keys: also one that is no
/// hexadecimal, as commands take the bytes of any other word. An address is none, however wrong.
pub fn may_be_key(word: &str) -> bool {
    word.len() >= SHORTEST && (looks_like_key(word) || !is_like_address(word))
}

/// Letters and digits that are a key, or hold one. A mask is none.
fn looks_like_key(run: &str) -> bool {
    let is_mask = |digits: &str| digits.bytes().all(|it| it == digits.as_bytes()[0]);
    run.split(|it: char| !it.is_ascii_hexdigit())
        .any(|digits| digits.len() >= SHORTEST_ANYWHERE && !is_mask(digits))
}

fn has_prefix(word: &str) -> bool {
    word.starts_with("0x") || word.starts_with("0X")
}

/// Whether a word is short pieces with dots, colons, slashes or a hyphen between them, and no more
/// than an address and its length has, or two of them.
fn is_like_address(word: &str) -> bool {
    // ::ffff:192.0.2.1/128, with all of its zeroes.
    const MOST_PIECES: usize = 11;
    const LONGEST: usize = 4;
    let separators = ['.', ':', '/'];
    let is_piece =
        |it: &str| it.len() <= LONGEST && it.bytes().all(|it| it.is_ascii_alphanumeric());
    word.split('-').all(|end| {
        end.contains(separators)
            && end.split(separators).count() <= MOST_PIECES
            && end.split(separators).all(is_piece)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "d3076cbe98f1a54e207b6dc98e13fa556fe0a4d9";

    #[test]
    fn keys_are_not_shown_wherever_they_stand() {
        for (word, told) in [
            (KEY.to_owned(), "..."),
            (KEY.to_uppercase(), "..."),
            (format!("0x{KEY}"), "0x..."),
            (format!("0X{KEY}zz"), "0x..."),
            (format!("--{KEY}"), "--..."),
            (format!("in_port=0x{KEY},ip"), "in_port=0x...,ip"),
            (format!("enc aes 0x{KEY} 128"), "enc aes 0x... 128"),
            (format!("{KEY}zz"), "..."),
            (KEY[..24].to_owned(), "..."),
            ("12345678".repeat(4), "..."),
        ] {
            assert_eq!(shown(&word), told, "{word}");
        }
    }

    #[test]
    fn other_words_are_shown() {
        for word in [
            "192.0.2.1000",
            "2001:db8:aaaa:bbbb:cccc::1/129",
            "02:00:00:00:00:01:02",
            "0xffffffff",
            "18446744073709551616",
            "fifteen-letters",
            "replay-window",
            "rfc4106(gcm(aes))",
            "authentication-none",
            "enx001122aabbcc",
            "br-1a2b3c4d5e6f",
            "deadbeefcafebabe",
            "0x0102030405060708",
            "0xffffffffffffffffffffffffffffffff",
        ] {
            assert_eq!(shown(word), word);
        }
    }

    #[test]
    fn long_words_are_cut_and_control_characters_escaped() {
        assert_eq!(shown("a\u{1b}[31m"), "a\\u{1b}[31m");
        assert_eq!(shown(&"w".repeat(100_000)), format!("{}...", "w".repeat(40)));
    }

    #[test]
    fn where_keys_are_taken_any_long_word_may_be_one() {
        let in_pieces = KEY.as_bytes().chunks(2).map(|it| str::from_utf8(it).unwrap());
        let in_pieces = in_pieces.collect::<Vec<_>>().join(":");
        for word in [
            KEY,
            "correct horse",
            "mysecretmysecret1234",
            &in_pieces,
            "Zm9v/YmFyYmF6cXV4",
            "S3cr3t/Pa55.w0rd",
            "d3076cbe:98f1a54e:207b6dc9:8e13fa55:6fe0a4d9",
            "deadbeefcafe",
        ] {
            assert!(may_be_key(word), "{word}");
        }
        for word in [
            "192.0.2.1000",
            "192.0.2.1-192.0.2.x",
            "2001:db8:aaaa:bbbb:cccc:dddd:192.0.2.1/129",
            "transport",
        ] {
            assert!(!may_be_key(word), "{word}");
        }
    }
}
