//! Takes words one after the other.

use core::cell::RefCell;
use std::net::{IpAddr, Ipv4Addr};

use api::{Family, Key, MAIN_VRF, Refusal, RefusalCode};
use types::{IpPrefix, IpRange, Mac};

use super::complete::{Name, Offers};

use super::instead::instead;
use crate::config::nearest;
use crate::elsewhere::elsewhere;

/// A routing table as commands name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TableWord {
    /// That of a VRF.
    Vrf(String),
    /// By its number.
    Number(u32),
}

impl TableWord {
    /// The VRF, `main` if there is none, and the number.
    pub(super) fn parts(table: Option<Self>) -> (String, Option<u32>) {
        match table {
            None => (MAIN_VRF.to_owned(), None),
            Some(Self::Vrf(vrf)) => (vrf, None),
            Some(Self::Number(number)) => (MAIN_VRF.to_owned(), Some(number)),
        }
    }
}

/// The words of a command, and how far they are read.
#[derive(Debug)]
pub(super) struct Words<'w> {
    all: Vec<&'w str>,
    at: usize,
    /// How many words name the command.
    command: usize,
    /// The family of what is meant, if it was said in front of the command.
    family: Option<Family>,
    /// Where the last key stands. What follows may be the rest of one that was not put in quotes.
    key: Option<usize>,
    /// Whether there may be keys among them, in the wrong place as well.
    may_have_keys: bool,
    /// What is right, and perhaps not what was meant.
    warnings: Vec<String>,
    /// What could stand behind the last word, if that is wanted.
    offers: Option<RefCell<Offers>>,
}

impl<'w> Words<'w> {
    pub(super) fn new(all: Vec<&'w str>, family: Option<Family>) -> Self {
        Self {
            all,
            at: 0,
            command: 0,
            family,
            key: None,
            may_have_keys: false,
            warnings: Vec::new(),
            offers: None,
        }
    }

    /// The same, to find out what could stand behind the last word.
    pub(super) fn to_complete(all: Vec<&'w str>, family: Option<Family>) -> Self {
        Self { offers: Some(RefCell::default()), ..Self::new(all, family) }
    }

    /// What could stand behind the last word; `None` if the parser did not come to its end or found
    /// fault with a word.
    pub(super) fn into_offers(self) -> Option<Offers> {
        let is_at_end = self.at == self.all.len();
        self.offers.map(RefCell::into_inner).filter(|offers| is_at_end && !offers.is_wrong)
    }

    /// What is right, and perhaps not what was meant.
    pub(super) fn into_warnings(self) -> Vec<String> {
        self.warnings
    }

    /// Notes what the next word may be, if there is none.
    fn offer(&self, add: impl FnOnce(&mut Offers)) {
        if let Some(offers) = self.offers.as_ref().filter(|_| self.at == self.all.len()) {
            add(&mut offers.borrow_mut());
        }
    }

    /// Says that the next word may be one of these. One in capitals stands for a value.
    pub(super) fn offers(&self, known: &[&str]) {
        self.offer(|offers| offers.words(known.iter().copied()));
    }

    /// Says that the next word may be a name of something that is there.
    pub(super) fn offers_name(&self, name: Name) {
        self.offer(|offers| offers.name(name));
    }

    /// A word is wrong where it stands: it completes nothing.
    pub(super) fn is_wrong(&self) {
        if let Some(offers) = &self.offers {
            offers.borrow_mut().is_wrong = true;
        }
    }

    /// The next word, which is one of those known if it is right.
    pub(super) fn next_of(&mut self, known: &[&str]) -> Option<&'w str> {
        self.offers(known);
        self.next()
    }

    /// As [`next_of`](Self::next_of); the word stays.
    pub(super) fn peek_of(&self, known: &[&str]) -> Option<&'w str> {
        self.offers(known);
        self.peek()
    }

    /// The family of what is meant, if it was said in front of the command.
    pub(super) fn family(&self) -> Option<Family> {
        self.family
    }

    /// The command takes keys: words that may be one are not shown, wherever they stand.
    pub(super) fn expect_keys(&mut self) {
        self.may_have_keys = true;
    }

    /// The words read so far name the command; errors say it.
    pub(super) fn end_of_command(&mut self) {
        self.command = self.at;
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn peek(&self) -> Option<&'w str> {
        self.all.get(self.at).copied()
    }

    /// The word behind the next one.
    pub(super) fn after_next(&self) -> Option<&'w str> {
        self.all.get(self.at + 1).copied()
    }

    pub(super) fn next(&mut self) -> Option<&'w str> {
        let word = self.peek()?;
        self.at += 1;
        Some(word)
    }

    /// The next word, which has to be there.
    pub(super) fn need(&mut self, what: &str) -> Result<&'w str, Refusal> {
        self.offer(|offers| offers.value(what));
        match self.next() {
            Some(word) => Ok(word),
            None => {
                let after = self
                    .all
                    .last()
                    .filter(|_| self.key.is_none_or(|key| key + 1 < self.all.len()))
                    .map(|word| match super::is_known(word) {
                        true => format!(" after '{word}'"),
                        false => format!(" after '{}'", self.shown(word)),
                    })
                    .unwrap_or_default();
                Err(self
                    .invalid(format!("the command ends{after}"))
                    .with_hint(format!("{what} is needed")))
            }
        }
    }

    /// Goes back over the last word, and returns it.
    pub(super) fn back_to(&mut self) -> Option<&'w str> {
        self.back();
        self.peek()
    }

    /// Goes back over the last word.
    pub(super) fn back(&mut self) {
        self.at -= 1;
    }

    /// Which of `commands` the next word is, or the beginning of: the first that fits, as with
    /// iproute2.
    pub(super) fn command<T: Copy>(
        &mut self,
        commands: &[(&str, T)],
        default: Option<T>,
    ) -> Result<T, Refusal> {
        self.offer(|offers| offers.words(commands.iter().map(|(name, _)| *name)));
        let Some(word) = self.next() else {
            return default.ok_or_else(|| {
                self.invalid("the command is not complete").with_hint(names(commands))
            });
        };
        let known = commands.iter().find(|(name, _)| name.starts_with(word) && !word.is_empty());
        match known {
            Some((_, command)) => Ok(*command),
            None => {
                self.back();
                Err(self.unexpected(commands.iter().map(|(name, _)| *name)))
            }
        }
    }

    /// What the next word, after `key`, means.
    pub(super) fn choice<T: Clone>(
        &mut self,
        key: &str,
        choices: &[(&str, T)],
    ) -> Result<T, Refusal> {
        self.offer(|offers| offers.words(choices.iter().map(|(name, _)| *name)));
        let word = self.need(&names(choices))?;
        match choices.iter().find(|(name, _)| *name == word) {
            Some((_, value)) => Ok(value.clone()),
            None => {
                Err(self.invalid(format!("{key} '{}'", self.shown(word))).with_hint(names(choices)))
            }
        }
    }

    pub(super) fn number(&mut self, key: &str) -> Result<u32, Refusal> {
        let word = self.need("a number")?;
        number(word).ok_or_else(|| {
            let message = match self.key.is_some() {
                true => format!("{key}: what follows the key is no number"),
                false => format!("{key} '{}'", self.shown(word)),
            };
            self.invalid(message).with_hint("a number from 0 to 4294967295")
        })
    }

    pub(super) fn address(&mut self, key: &str) -> Result<IpAddr, Refusal> {
        let word = self.need("an address")?;
        word.parse().map_err(|_| {
            self.invalid(format!("{key} '{}' is not an IPv4 or IPv6 address", self.shown(word)))
                .with_hint("as in 192.0.2.1 or 2001:db8::1")
        })
    }

    pub(super) fn prefix(&mut self, key: &str) -> Result<IpPrefix, Refusal> {
        let word = self.need("a prefix")?;
        prefix(word).map_err(|why| {
            self.invalid(format!("{key} '{}': {why}", self.shown(word)))
                .with_hint("as in 192.0.2.0/24 or 2001:db8::/32")
        })
    }

    /// A network, or nothing for `all`, `any` and `default`.
    pub(super) fn prefix_or_all(&mut self, key: &str) -> Result<Option<IpPrefix>, Refusal> {
        if matches!(self.peek(), Some("all" | "any" | "default")) {
            self.next();
            return Ok(None);
        }
        Ok(Some(self.prefix(key)?.network()))
    }

    /// Addresses to match: one, a prefix, or a range; nothing for `all`, `any` and `default`. All
    /// addresses of a prefix match, whatever bits stand beyond its length; `ip xfrm` and nft take
    /// such a prefix too. What was typed may be meant to be less, so there is a warning.
    pub(super) fn range_or_all(&mut self, key: &str) -> Result<Option<IpRange>, Refusal> {
        self.offers(&["any", "ADDRESSES"]);
        let word = self.need("addresses")?;
        if matches!(word, "any" | "all" | "default") {
            return Ok(None);
        }
        // A prefix first: it may be a short one, as in 10/8.
        if let Ok(given) = prefix(word) {
            let network = given.network();
            if network != given {
                self.warnings.push(format!("{key} {given} matches all of {network}"));
            }
            return Ok(Some(network.range()));
        }
        word.parse().map(Some).map_err(|why| {
            self.invalid(format!("{key} '{}': {why}", self.shown(word)))
                .with_hint("an address, a prefix, or a range as in 192.0.2.1-192.0.2.9")
        })
    }

    pub(super) fn mac(&mut self, key: &str) -> Result<Mac, Refusal> {
        let word = self.need("an Ethernet address")?;
        word.parse().map_err(|why| self.invalid(format!("{key} '{}': {why}", self.shown(word))))
    }

    /// The name of an algorithm, behind which stands its key. A word that is no such name may be the
    /// key itself.
    pub(super) fn algorithm<T>(
        &mut self,
        known: &[esp::LinuxName<T>],
        what: &str,
    ) -> Result<String, Refusal> {
        let supported = known.iter().filter(|known| !known.variants.is_empty());
        // Linux has them in full.
        self.offers(&supported.map(|known| known.name).collect::<Vec<_>>());
        let word = self.need(what)?;
        if !crate::check::is_algorithm(word) {
            self.key = Some(self.at - 1);
        }
        Ok(word.to_owned())
    }

    /// A key: hexadecimal with 0x in front, otherwise the bytes of the word itself, as with
    /// iproute2. No error shows it.
    pub(super) fn key(&mut self, of: &str) -> Result<Key, Refusal> {
        let word = self.need("a key")?;
        self.key = Some(self.at - 1);
        if crate::check::is_algorithm(word) {
            return Err(self
                .invalid(format!("{of}: the key stands in front of the algorithm"))
                .with_hint("the algorithm, and then the key"));
        }
        if word.starts_with("0x") {
            word.parse().map_err(|why: api::KeyTextError| {
                self.invalid(format!("the key after {of}: {why}"))
            })
        } else {
            Ok(Key::new(word.as_bytes().to_vec()))
        }
    }

    /// A VRF, after `vrf` or `master`.
    pub(super) fn vrf(&mut self) -> Result<String, Refusal> {
        self.offers_name(Name::Vrf);
        let word = self.need("the name of a VRF")?;
        self.name(word)
    }

    /// A routing table, after `table` or `vrf`.
    pub(super) fn table(&mut self, key: &str) -> Result<TableWord, Refusal> {
        self.offers_name(Name::Vrf);
        if key != "vrf" {
            self.offers_name(Name::Table);
        }
        let word = self.need("a table, or the name of a VRF")?;
        if key == "vrf" {
            return self.name(word).map(TableWord::Vrf);
        }
        match number(word) {
            Some(254) => Ok(TableWord::Vrf(MAIN_VRF.to_owned())),
            Some(number) => match crate::check::table("table", number) {
                Ok(()) => Ok(TableWord::Number(number)),
                Err(fault) => Err(self.fault(fault)),
            },
            None if word == "local" => Err(self
                .unsupported("there is no table local: a VRF has one table for all")
                .with_hint("table all, or type local")),
            None if crate::check::is_number(word) => Err(self
                .invalid(format!("table '{}' is no number of a table", self.shown(word)))
                .with_hint("1 to 4294967295, but not 253 to 255, or the name of a VRF")),
            None => self.name(word).map(TableWord::Vrf),
        }
    }

    /// A port, after `dev`.
    pub(super) fn port(&mut self) -> Result<String, Refusal> {
        self.offers_name(Name::Port);
        let word = self.need("the name of a port")?;
        self.name(word)
    }

    /// A port or VRF, after `dev` or `iif`.
    pub(super) fn link(&mut self) -> Result<String, Refusal> {
        self.offers_name(Name::Vrf);
        self.port()
    }

    /// The last word as a name of a port or VRF.
    pub(super) fn name(&self, word: &str) -> Result<String, Refusal> {
        match crate::check::name("name", word) {
            Ok(()) => Ok(word.to_owned()),
            Err(fault) => {
                let mut refusal = Refusal::from(fault);
                refusal.message = format!(
                    "{}name '{}': {}",
                    self.prefix_of_errors(),
                    self.shown(word),
                    refusal.message
                );
                Err(refusal)
            }
        }
    }

    /// Refuses words that are left.
    pub(super) fn end(&self) -> Result<(), Refusal> {
        match self.peek() {
            None => Ok(()),
            Some(word) => {
                self.is_wrong();
                Err(self.invalid(format!("{} is one word too many", self.quoted(word))))
            }
        }
    }

    /// Refuses the next word: something of `expected` should be there. `later` are words of
    /// iproute2's that are not supported.
    pub(super) fn refuse(&self, expected: &[&str], later: &[&str]) -> Refusal {
        self.is_wrong();
        let word = self.peek();
        if let Some((message, hint)) = word.and_then(elsewhere) {
            return self.unsupported(message).with_hint(hint);
        }
        match word {
            Some(word) if later.contains(&word) => {
                let object = self.all.first().copied().unwrap_or_default();
                let hint = instead(object, word).map(str::to_owned);
                self.unsupported(format!("'{word}' is not supported yet")).with_hint(
                    hint.unwrap_or_else(|| format!("known words: {}", expected.join(", "))),
                )
            }
            _ => self.unexpected(expected.iter().copied()),
        }
    }

    pub(super) fn invalid(&self, message: impl AsRef<str>) -> Refusal {
        Refusal::new(
            RefusalCode::Invalid,
            format!("{}{}", self.prefix_of_errors(), message.as_ref()),
        )
    }

    pub(super) fn unsupported(&self, message: impl AsRef<str>) -> Refusal {
        self.is_wrong();
        Refusal::new(
            RefusalCode::Unsupported,
            format!("{}{}", self.prefix_of_errors(), message.as_ref()),
        )
    }

    /// A fault, with the command in front.
    pub(super) fn fault(&self, fault: crate::check::Fault) -> Refusal {
        let mut refusal = Refusal::from(fault);
        refusal.message = format!("{}{}", self.prefix_of_errors(), refusal.message);
        refusal
    }

    /// Refuses a key that was given before.
    pub(super) fn once<T>(&self, key: &str, before: &Option<T>) -> Result<(), Refusal> {
        if before.is_none() {
            return Ok(());
        }
        self.is_wrong();
        Err(self.invalid(format!("'{key}' is given twice")))
    }

    /// The value of a key that has to be given.
    pub(super) fn given<T>(&self, key: &str, value: Option<T>, hint: &str) -> Result<T, Refusal> {
        value.ok_or_else(|| self.invalid(format!("'{key}' is missing")).with_hint(hint.to_owned()))
    }

    fn unexpected<'n>(&self, expected: impl Iterator<Item = &'n str> + Clone) -> Refusal {
        let Some(word) = self.peek() else { return self.invalid("the command is not complete") };
        let (word, hint) = match nearest(word, expected.clone()) {
            Some(near) => (format!("'{}'", api::shown(word)), format!("did you mean {near}?")),
            None => {
                let expected = expected.collect::<Vec<_>>().join(", ");
                (self.quoted(word), format!("expected: {expected}"))
            }
        };
        self.invalid(format!("{word} is not expected here")).with_hint(hint)
    }

    /// A word as errors show it, which nothing is that may be a key, or the rest of one.
    pub(super) fn shown(&self, word: &str) -> String {
        match self.key.is_some() || self.may_have_keys && api::may_be_key(word) {
            true => "...".to_owned(),
            false => api::shown(word),
        }
    }

    /// A word that is not expected, as errors show it.
    fn quoted(&self, word: &str) -> String {
        match (self.key, self.may_have_keys && api::may_be_key(word)) {
            (Some(_), _) => "a word that is not shown, as it follows a key,".to_owned(),
            (None, true) => "a word that is not shown, as it may be a key,".to_owned(),
            (None, false) => format!("'{}'", api::shown(word)),
        }
    }

    fn prefix_of_errors(&self) -> String {
        match self.command {
            0 => String::new(),
            count => format!("{}: ", self.all[..count].join(" ")),
        }
    }
}

/// A number as C reads it: decimal, hexadecimal with 0x, octal with 0.
pub(super) fn number(word: &str) -> Option<u32> {
    let all =
        |digits: &str, radix: u32| !digits.is_empty() && digits.chars().all(|c| c.is_digit(radix));
    let (digits, radix) = match word.strip_prefix("0x").or_else(|| word.strip_prefix("0X")) {
        Some(digits) => (digits, 16),
        None if word.len() > 1 && word.starts_with('0') => (&word[1..], 8),
        None => (word, 10),
    };
    if all(digits, radix) { u32::from_str_radix(digits, radix).ok() } else { None }
}

/// A prefix as iproute2 reads it: `10/8` is 10.0.0.0/8, and an address alone is one host.
pub(crate) fn prefix(word: &str) -> Result<IpPrefix, types::AddressError> {
    let error = match word.parse() {
        Ok(prefix) => return Ok(prefix),
        Err(error) => error,
    };
    let Some((address, length)) = word.split_once('/') else { return Err(error) };
    let mut octets = [0; 4];
    let parts: Vec<&str> = address.split('.').collect();
    if parts.len() > octets.len() {
        return Err(error);
    }
    for (octet, part) in octets.iter_mut().zip(parts) {
        if part.is_empty() || !part.bytes().all(|b| b.is_ascii_digit()) {
            return Err(error);
        }
        *octet = part.parse().map_err(|_| error)?;
    }
    format!("{}/{length}", Ipv4Addr::from(octets)).parse()
}

fn names<T>(choices: &[(&str, T)]) -> String {
    let names: Vec<_> = choices.iter().map(|(name, _)| *name).collect();
    format!("expected: {}", names.join(", "))
}

/// Of what is removed without being named, that of VRF `main` is meant, and never that of all VRFs.
pub(super) fn main_unless_said(vrf: &mut Option<String>) {
    vrf.get_or_insert_with(|| MAIN_VRF.to_owned());
}

/// The number after `if_id`, of which 0 is none.
pub(super) fn if_id(words: &mut Words<'_>, before: &Option<u32>) -> Result<u32, Refusal> {
    words.once("if_id", before)?;
    words.number("if_id")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_c_reads_them() {
        assert_eq!(number("10"), Some(10));
        assert_eq!(number("0x10"), Some(16));
        assert_eq!(number("010"), Some(8));
        assert_eq!(number("0"), Some(0));
        assert_eq!(number("4294967295"), Some(u32::MAX));
        for wrong in ["", "0x", "4294967296", "-1", "+1", "1k", "09"] {
            assert_eq!(number(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn short_prefixes_are_filled_with_zeros() {
        let read = |word: &str| prefix(word).map(|prefix| prefix.to_string());
        assert_eq!(read("10/8").unwrap(), "10.0.0.0/8");
        assert_eq!(read("192.168/16").unwrap(), "192.168.0.0/16");
        assert_eq!(read("::1").unwrap(), "::1/128");
        for wrong in ["10", "10./8", "1.2.3.4.5/8", "256/8", "10/33", "/8", "x/8"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
