//! Takes typed values out of TOML tables, and notes everything that is not as it should be.

use core::ops::RangeInclusive;
use core::str::FromStr;
use std::fmt::Display;

use toml::Spanned;
use toml::de::{DeArray, DeInteger, DeTable, DeValue};

use super::diagnostic::{Errors, nearest};
use super::ipsec::hint_for_key;
use super::keys::Section;
use crate::check::Fault;
use crate::elsewhere::{feature, of_sa};

/// A value, and where in the text it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found<T> {
    pub(super) value: T,
    pub(super) at: usize,
}

/// A table of the file, and what it may hold.
#[derive(Clone, Copy, Debug)]
pub(super) struct Table<'t> {
    entries: &'t DeTable<'t>,
    /// Where it begins.
    pub(super) at: usize,
    /// What errors call it.
    name: &'static str,
    section: &'static Section,
    /// What stands before the names of its keys in `section`: nothing, or the inline table's name
    /// and a dot.
    prefix: &'static str,
}

impl<'t> Table<'t> {
    /// A table of `section`. Keys that it may not hold are errors.
    pub(super) fn new(
        entries: &'t DeTable<'t>,
        at: usize,
        section: &'static Section,
        errors: &mut Errors<'_>,
    ) -> Self {
        let table = Self { entries, at, name: section.name, section, prefix: "" };
        table.refuse_unknown(errors);
        table
    }

    /// The inline table `key`, whose keys have `prefix` before their names.
    pub(super) fn table(
        &self,
        key: &'static str,
        prefix: &'static str,
        errors: &mut Errors<'_>,
    ) -> Option<Table<'t>> {
        let found = self.value(key)?;
        let DeValue::Table(entries) = found.get_ref() else {
            self.mistyped(key, found, "an inline table, as in { name = \"...\" }", errors);
            return None;
        };
        let table =
            Self { entries, at: found.span().start, name: key, section: self.section, prefix };
        table.refuse_unknown(errors);
        Some(table)
    }

    /// The inline tables in the list `key`, whose keys have `prefix` before their names.
    pub(super) fn tables(
        &self,
        key: &'static str,
        prefix: &'static str,
        errors: &mut Errors<'_>,
    ) -> Vec<Table<'t>> {
        let read = |element: &'t Spanned<DeValue<'t>>, errors: &mut Errors<'_>| {
            let at = element.span().start;
            let DeValue::Table(entries) = element.get_ref() else {
                let message = format!("the list holds {}", kind(element.get_ref()));
                errors.add(at, message, Some("inline tables, as in [{ name = \"...\" }]".into()));
                return None;
            };
            let table = Self { entries, at, name: key, section: self.section, prefix };
            table.refuse_unknown(errors);
            Some(table)
        };
        self.list(key, errors, read).into_iter().map(|found| found.value).collect()
    }

    /// Whether it has `key`.
    pub(super) fn has(&self, key: &str) -> bool {
        self.value(key).is_some()
    }

    /// Where `key` is, or the table where it has none.
    pub(super) fn place(&self, key: &str) -> usize {
        self.value(key).map_or(self.at, |value| value.span().start)
    }

    /// Notes what is wrong with the whole of it.
    pub(super) fn fault(&self, fault: Fault, errors: &mut Errors<'_>) {
        errors.add(self.place(fault.part), fault.message, fault.hint);
    }

    /// Notes that `key` is missing.
    pub(super) fn missing(&self, key: &str, errors: &mut Errors<'_>) {
        let value = self
            .section
            .keys
            .iter()
            .find(|known| known.name.strip_prefix(self.prefix) == Some(key));
        errors.add(
            self.at,
            format!("{} without {key}", self.name),
            value.map(|known| example(key, known.value)),
        );
    }

    /// Text.
    pub(super) fn text(
        &self,
        key: &'static str,
        errors: &mut Errors<'_>,
    ) -> Option<Found<&'t str>> {
        self.text_of(key, "a text in quotes", errors)
    }

    /// Text that is `right`, in words.
    pub(super) fn text_of(
        &self,
        key: &'static str,
        right: &str,
        errors: &mut Errors<'_>,
    ) -> Option<Found<&'t str>> {
        let found = self.value(key)?;
        match found.get_ref() {
            DeValue::String(text) => Some(Found { value: text.as_ref(), at: found.span().start }),
            _ => {
                self.mistyped(key, found, right, errors);
                None
            }
        }
    }

    /// Text that must be there.
    pub(super) fn required_text(
        &self,
        key: &'static str,
        errors: &mut Errors<'_>,
    ) -> Option<Found<&'t str>> {
        if !self.has(key) {
            self.missing(key, errors);
        }
        self.text(key, errors)
    }

    /// Text that stands for something else.
    pub(super) fn parsed<T>(
        &self,
        key: &'static str,
        example: &str,
        errors: &mut Errors<'_>,
    ) -> Option<Found<T>>
    where
        T: FromStr<Err: Display>,
    {
        let text = self.text(key, errors)?;
        match text.value.parse() {
            Ok(value) => Some(Found { value, at: text.at }),
            Err(why) => {
                errors.add(
                    text.at,
                    format!("{key} = {}: {why}", self.quoted(text.value)),
                    Some(format!("as in {example}")),
                );
                None
            }
        }
    }

    /// Text that stands for something else and must be there.
    pub(super) fn required<T>(
        &self,
        key: &'static str,
        example: &str,
        errors: &mut Errors<'_>,
    ) -> Option<Found<T>>
    where
        T: FromStr<Err: Display>,
    {
        if !self.has(key) {
            self.missing(key, errors);
        }
        self.parsed(key, example, errors)
    }

    /// Text that stands for something else, or a number that does when it is written as text.
    pub(super) fn parsed_or_number<T>(
        &self,
        key: &'static str,
        example: &str,
        errors: &mut Errors<'_>,
    ) -> Option<Found<T>>
    where
        T: FromStr<Err: Display>,
    {
        let found = self.value(key)?;
        let DeValue::Integer(number) = found.get_ref() else {
            return self.parsed(key, example, errors);
        };
        let at = found.span().start;
        let text =
            integer(number).map_or_else(|| number.as_str().to_owned(), |number| number.to_string());
        match text.parse() {
            Ok(value) => Some(Found { value, at }),
            Err(why) => {
                errors.add(at, format!("{key} = {text}: {why}"), Some(format!("as in {example}")));
                None
            }
        }
    }

    /// One of several words.
    pub(super) fn word<T: Copy>(
        &self,
        key: &'static str,
        words: &[(&str, T)],
        errors: &mut Errors<'_>,
    ) -> Option<Found<T>> {
        let right = one_of(words.iter().map(|(word, _)| *word));
        let text = self.text_of(key, &right, errors)?;
        if let Some((_, value)) = words.iter().find(|(word, _)| *word == text.value) {
            return Some(Found { value: *value, at: text.at });
        }
        errors.add(text.at, format!("{key} = {}", self.quoted(text.value)), Some(right));
        None
    }

    /// One of several words, which must be there.
    pub(super) fn required_word<T: Copy>(
        &self,
        key: &'static str,
        words: &[(&str, T)],
        errors: &mut Errors<'_>,
    ) -> Option<Found<T>> {
        if !self.has(key) {
            self.missing(key, errors);
        }
        self.word(key, words, errors)
    }

    /// A number.
    pub(super) fn number<T: TryFrom<i128>>(
        &self,
        key: &'static str,
        range: RangeInclusive<i128>,
        errors: &mut Errors<'_>,
    ) -> Option<Found<T>> {
        let found = self.value(key)?;
        let DeValue::Integer(number) = found.get_ref() else {
            self.mistyped(key, found, "a number without quotes", errors);
            return None;
        };
        let at = found.span().start;
        let value = integer(number)
            .filter(|number| range.contains(number))
            .and_then(|number| T::try_from(number).ok());
        if value.is_none() {
            errors.add(
                at,
                format!("{key} = {}", number.as_str()),
                Some(format!("{} to {}", range.start(), range.end())),
            );
        }
        Some(Found { value: value?, at })
    }

    /// True or false.
    pub(super) fn flag(&self, key: &'static str, errors: &mut Errors<'_>) -> Option<Found<bool>> {
        let found = self.value(key)?;
        match found.get_ref() {
            DeValue::Boolean(value) => Some(Found { value: *value, at: found.span().start }),
            _ => {
                self.mistyped(key, found, "true or false", errors);
                None
            }
        }
    }

    /// Text, where it is one.
    pub(super) fn said(&self, key: &'static str) -> Option<Found<&'t str>> {
        let found = self.value(key)?;
        match found.get_ref() {
            DeValue::String(text) => Some(Found { value: text.as_ref(), at: found.span().start }),
            _ => None,
        }
    }

    /// True or false, where it is one of them.
    pub(super) fn boolean(&self, key: &'static str) -> Option<bool> {
        match self.value(key)?.get_ref() {
            DeValue::Boolean(value) => Some(*value),
            _ => None,
        }
    }

    /// A list; `read` takes one element.
    pub(super) fn list<T>(
        &self,
        key: &'static str,
        errors: &mut Errors<'_>,
        mut read: impl FnMut(&'t Spanned<DeValue<'t>>, &mut Errors<'_>) -> Option<T>,
    ) -> Vec<Found<T>> {
        let Some(found) = self.value(key) else { return Vec::new() };
        let DeValue::Array(elements) = found.get_ref() else {
            self.mistyped(key, found, "a list in brackets, as in [\"...\"]", errors);
            return Vec::new();
        };
        let elements: &'t DeArray<'t> = elements;
        elements
            .iter()
            .filter_map(|element| {
                Some(Found { value: read(element, errors)?, at: element.span().start })
            })
            .collect()
    }

    /// Whether there is such a list, with nothing in it.
    pub(super) fn is_empty_list(&self, key: &str) -> bool {
        let found = self.value(key).map(Spanned::get_ref);
        matches!(found, Some(DeValue::Array(elements)) if elements.is_empty())
    }

    fn value(&self, key: &str) -> Option<&'t Spanned<DeValue<'t>>> {
        self.entries.get(key)
    }

    fn mistyped(
        &self,
        key: &str,
        found: &Spanned<DeValue<'_>>,
        right: &str,
        errors: &mut Errors<'_>,
    ) {
        // What stands there is not said: it may be a key.
        errors.add(
            found.span().start,
            format!("{key} is {}", kind(found.get_ref())),
            Some(right.to_owned()),
        );
    }

    /// As [`quoted`]; where keys are taken, nothing that may be one.
    fn quoted(&self, text: &str) -> String {
        match self.section.name == "sa" && api::may_be_key(text) {
            true => quoted("..."),
            false => quoted(text),
        }
    }

    fn refuse_unknown(&self, errors: &mut Errors<'_>) {
        let known = || {
            self.section
                .keys
                .iter()
                .filter_map(|key| key.name.strip_prefix(self.prefix))
                .filter(|key| !key.contains('.'))
        };
        for key in
            self.entries.keys().filter(|key| !known().any(|known| known == key.get_ref().as_ref()))
        {
            let name = key.get_ref().as_ref();
            let is_sa = self.section.name == "sa";
            let of_sa = is_sa.then(|| of_sa(name)).flatten();
            if let Some((message, hint)) = of_sa.or_else(|| feature(name)) {
                let message = format!("{} has no key {}: {message}", self.name, quoted(name));
                errors.add(key.span().start, message, Some(hint.to_owned()));
                continue;
            }
            let known_elsewhere = (self.name == "ipsec").then(|| hint_for_key(name)).flatten();
            let hint = known_elsewhere.unwrap_or_else(|| match nearest(name, known()) {
                Some(near) => format!("did you mean {near}?"),
                None => format!("known keys: {}", known().collect::<Vec<_>>().join(", ")),
            });
            errors.add(
                key.span().start,
                format!("{} has no key {}", self.name, self.quoted(name)),
                Some(hint),
            );
        }
    }
}

/// An element of a list that is text and stands for something else.
pub(super) fn parsed_element<T>(
    element: &Spanned<DeValue<'_>>,
    example: &str,
    errors: &mut Errors<'_>,
) -> Option<T>
where
    T: FromStr<Err: Display>,
{
    let at = element.span().start;
    let DeValue::String(text) = element.get_ref() else {
        errors.add(
            at,
            format!("the list holds {}", kind(element.get_ref())),
            Some(format!("a text in quotes, as in {example}")),
        );
        return None;
    };
    match text.parse() {
        Ok(value) => Some(value),
        Err(why) => {
            errors.add(at, format!("{}: {why}", quoted(text)), Some(format!("as in {example}")));
            None
        }
    }
}

/// An element of a list that is one of several words, beside which there may be keys.
pub(super) fn word_element<T: Copy>(
    element: &Spanned<DeValue<'_>>,
    words: &[(&str, T)],
    errors: &mut Errors<'_>,
) -> Option<T> {
    let given = match element.get_ref() {
        DeValue::String(text) => text.as_ref(),
        _ => "",
    };
    let value = words.iter().find(|(word, _)| *word == given).map(|(_, value)| *value);
    if value.is_none() {
        let what = match given {
            "" => kind(element.get_ref()).to_owned(),
            given if api::may_be_key(given) => quoted("..."),
            given => quoted(given),
        };
        errors.add(
            element.span().start,
            format!("the list holds {what}"),
            Some(one_of(words.iter().map(|(word, _)| *word))),
        );
    }
    value
}

/// An element of a list that is a number.
pub(super) fn number_element(
    element: &Spanned<DeValue<'_>>,
    range: RangeInclusive<i128>,
    errors: &mut Errors<'_>,
) -> Option<usize> {
    let number = match element.get_ref() {
        DeValue::Integer(number) => integer(number).filter(|number| range.contains(number)),
        _ => None,
    };
    if number.is_none() {
        let hint = format!("numbers from {} to {}", range.start(), range.end());
        errors.add(element.span().start, "not such a number", Some(hint));
    }
    usize::try_from(number?).ok()
}

/// What a key that is missing looks like: its values, or what they are if that is said in words.
fn example(key: &str, value: &str) -> String {
    let is_said = value.starts_with(|c: char| c == '"' || c == '[' || c.is_ascii_digit());
    match value.strip_prefix("list of ") {
        _ if is_said => format!("{key} = {value}"),
        Some(_) => format!("{key} = [...], a {value}"),
        None => {
            let article = if value.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" };
            format!("{key} = \"...\", {article} {value}")
        }
    }
}

/// `"a", "b" or "c"`.
fn one_of<'w>(words: impl Iterator<Item = &'w str>) -> String {
    let words: Vec<_> = words.map(|word| format!("\"{word}\"")).collect();
    match words.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, rest)) => format!("{} or {last}", rest.join(", ")),
        None => String::new(),
    }
}

/// `text` in quotes, with nothing in it that could confuse a terminal, and not all of it where it
/// is long.
pub(super) fn quoted(text: &str) -> String {
    const SHOWN: usize = 60;
    let text = api::without_keys(text);
    let shown: String = text.chars().take(SHOWN).flat_map(char::escape_debug).collect();
    let more = if text.chars().nth(SHOWN).is_some() { "..." } else { "" };
    format!("\"{shown}{more}\"")
}

fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) => "a number",
        DeValue::Float(_) => "a number with a fraction",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date or time",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

fn integer(number: &DeInteger<'_>) -> Option<i128> {
    i128::from_str_radix(number.as_str(), number.radix()).ok()
}
