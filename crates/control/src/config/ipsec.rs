//! How packets are decided, and what of it is remembered.

use types::{CacheMode, CacheTable, LookupEngine, Word};

use super::diagnostic::Errors;
use super::keys::SECTIONS;
use super::reader::{Found, Table, quoted};
use crate::settings::{CacheSettings, IpsecSettings};

/// The keys of one table of the cache: when it is used; its buckets; its buckets as VPP says it.
pub(super) type Keys = (CacheTable, &'static str, &'static str, &'static str);

pub(super) const TABLES: [Keys; 4] = [
    (
        CacheTable::V4Outbound,
        "ipv4-outbound-spd-flow-cache",
        "ipv4-outbound-spd-flow-cache-hash-buckets",
        "ipv4-outbound-spd-hash-buckets",
    ),
    (
        CacheTable::V4Inbound,
        "ipv4-inbound-spd-flow-cache",
        "ipv4-inbound-spd-flow-cache-hash-buckets",
        "ipv4-inbound-spd-hash-buckets",
    ),
    (
        CacheTable::V6Outbound,
        "ipv6-outbound-spd-flow-cache",
        "ipv6-outbound-spd-flow-cache-hash-buckets",
        "ipv6-outbound-spd-hash-buckets",
    ),
    (
        CacheTable::V6Inbound,
        "ipv6-inbound-spd-flow-cache",
        "ipv6-inbound-spd-flow-cache-hash-buckets",
        "ipv6-inbound-spd-hash-buckets",
    ),
];

/// What other programs call what `policy-lookup` says.
const FAST_PATH: &str = "-spd-fast-path";

pub(super) fn ipsec(table: Table<'_>, errors: &mut Errors<'_>) -> IpsecSettings {
    let mut settings = IpsecSettings::default();
    for (cache, mode_key, buckets_key, other_key) in TABLES {
        let usual = settings.cache(cache);
        let mode = mode(&table, mode_key, errors).unwrap_or(usual.mode);
        let said = buckets(&table, buckets_key, errors);
        let other = buckets(&table, other_key, errors);
        if table.has(buckets_key) && table.has(other_key) {
            errors.add(
                table.place(other_key),
                format!("{other_key} and {buckets_key} are the same"),
                Some("one of them".to_owned()),
            );
        }
        settings.caches[cache as usize] = CacheSettings {
            mode,
            buckets: said.or(other).map_or(usual.buckets, |found| found.value),
        };
    }
    settings.associativity =
        table.number("spd-flow-cache-associativity", 1..=4, errors).map_or(4, |found| {
            if ![1, 4].contains(&found.value) {
                errors.add(
                    found.at,
                    format!("spd-flow-cache-associativity = {}", found.value),
                    Some("1 or 4".to_owned()),
                );
            }
            found.value
        });
    settings.lookup = table
        .word("policy-lookup", LookupEngine::WORDS, errors)
        .map_or(settings.lookup, |found| found.value);
    settings
}

/// What to write instead of what stands at byte `at`, where TOML cannot be read there: `KEY on` as
/// in VPP's startup.conf, or a word without quotes.
pub(super) fn hint_for_line(text: &str, at: usize) -> Option<String> {
    // What the parser complains of may be the end of the line.
    let before = text.get(..at)?.trim_end_matches('\n');
    let start = before.rfind('\n').map_or(0, |end| end + 1);
    let line = text.get(start..)?.lines().next()?.trim();
    if line.strip_prefix("ipsec").is_some_and(|rest| rest.trim_start().starts_with('{')) {
        return Some("[ipsec], and a line for each key".to_owned());
    }
    let end = line
        .find(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '-'))
        .unwrap_or(line.len());
    let (name, rest) = line.split_at(end);
    let section = SECTIONS.iter().find(|section| section.name == "ipsec")?;
    if name.contains(FAST_PATH) {
        return Some("policy-lookup = \"fast\"".to_owned());
    }
    let key = section.keys.iter().find(|key| key.name == name)?;
    let value = rest.trim().trim_start_matches('=').trim();
    let right = match value {
        "" => key.default.to_owned(),
        number if number.bytes().all(|digit| digit.is_ascii_digit()) => number.to_owned(),
        word if key.value.contains(&format!("\"{word}\"")) => format!("\"{word}\""),
        _ => key.value.to_owned(),
    };
    Some(format!("{name} = {right}"))
}

/// What to write instead of the unknown key `name` of `[ipsec]`, where it is known from elsewhere.
pub(super) fn hint_for_key(name: &str) -> Option<String> {
    name.contains(FAST_PATH)
        .then(|| "policy-lookup = \"fast\", which is so unless told otherwise".to_owned())
}

fn mode(table: &Table<'_>, key: &'static str, errors: &mut Errors<'_>) -> Option<CacheMode> {
    if let Some(flag) = table.boolean(key) {
        return Some(if flag { CacheMode::On } else { CacheMode::Off });
    }
    let text = table.text_of(key, "\"on\", \"off\" or \"auto\"", errors)?;
    if let Ok(mode) = text.value.parse() {
        return Some(mode);
    }
    let right = match text.value.trim().to_ascii_lowercase().as_str() {
        "yes" | "true" | "enable" | "enabled" | "always" | "1" | "on" => "\"on\"",
        "no" | "false" | "disable" | "disabled" | "never" | "0" | "off" | "none" => "\"off\"",
        "automatic" | "adaptive" | "default" | "auto" => "\"auto\"",
        _ => "\"on\", \"off\" or \"auto\"",
    };
    errors.add(text.at, format!("{key} = {}", quoted(text.value)), Some(right.to_owned()));
    None
}

fn buckets(table: &Table<'_>, key: &'static str, errors: &mut Errors<'_>) -> Option<Found<u32>> {
    let found: Found<u32> = table.number(key, 1..=CacheSettings::MAX_BUCKETS.into(), errors)?;
    // In range, so that there is a power of two above.
    let rounded = found.value.next_power_of_two();
    if rounded != found.value {
        errors.note(found.at, format!("{key} = {} is rounded up to {rounded}", found.value));
    }
    Some(Found { value: rounded, at: found.at })
}

#[cfg(test)]
mod tests {
    use crate::config::load;

    use super::*;

    const PORT: &str = "[[port]]\nname = \"lan\"\nkind = \"memory\"\n";

    #[track_caller]
    fn good(keys: &str) -> (IpsecSettings, String) {
        let config = load("gw.toml", &format!("[ipsec]\n{keys}\n{PORT}"))
            .unwrap_or_else(|told| panic!("{told}"));
        let notes: Vec<_> = config.notes.iter().map(ToString::to_string).collect();
        (config.gateway.ipsec, notes.join("\n"))
    }

    #[track_caller]
    fn refused(keys: &str) -> String {
        load("gw.toml", &format!("[ipsec]\n{keys}\n{PORT}")).expect_err(keys).to_string()
    }

    #[test]
    fn nothing_said_is_auto_with_a_million_flows_and_the_fast_lookup() {
        let (settings, notes) = good("");
        assert_eq!(settings, IpsecSettings::default());
        assert_eq!(settings.caches[0], CacheSettings { mode: CacheMode::Auto, buckets: 1_048_576 });
        assert_eq!((settings.associativity, settings.lookup), (4, LookupEngine::Fast));
        assert_eq!(notes, "");
    }

    #[test]
    fn each_key_is_for_its_own_table() {
        for (cache, mode, buckets, other) in TABLES {
            for (value, wanted) in [
                ("\"on\"", CacheMode::On),
                ("\"off\"", CacheMode::Off),
                ("\"auto\"", CacheMode::Auto),
                ("true", CacheMode::On),
                ("false", CacheMode::Off),
            ] {
                let mut expected = IpsecSettings::default();
                expected.caches[cache as usize] = CacheSettings { mode: wanted, buckets: 4096 };
                for key in [buckets, other] {
                    let (settings, notes) = good(&format!("{mode} = {value}\n{key} = 4096"));
                    assert_eq!((settings, notes.as_str()), (expected, ""), "{mode} = {value}");
                }
            }
            assert!(
                mode.starts_with(cache.name())
                    && buckets.starts_with(mode)
                    && other.starts_with(cache.name())
            );
        }
        let (settings, _) = good("spd-flow-cache-associativity = 1\npolicy-lookup = \"linear\"");
        assert_eq!((settings.associativity, settings.lookup), (1, LookupEngine::Linear));
    }

    #[test]
    fn buckets_are_rounded_up_and_that_is_said() {
        for (said, rounded) in
            [(1, 1), (3, 4), (1000, 1024), (1_048_577, 2_097_152), (1_073_741_823, 1_073_741_824)]
        {
            let (settings, notes) =
                good(&format!("ipv6-inbound-spd-flow-cache-hash-buckets = {said}"));
            assert_eq!(settings.cache(CacheTable::V6Inbound).buckets, rounded);
            let note = format!(
                "gw.toml:2:44: ipv6-inbound-spd-flow-cache-hash-buckets = {said} is rounded up to \
                {rounded}"
            );
            assert_eq!(notes, if said == rounded { String::new() } else { note });
        }
    }

    #[test]
    fn policies_that_defeat_their_lookup_are_worth_a_word() {
        let policies = |count: u32| -> String {
            let policy = |at| {
                format!(
                    "[[policy]]\ndirection = \"in\"\nsource = \"10.0.{}.{}\"\naction = \
                    \"discard\"\n",
                    at >> 8,
                    at & 255
                )
            };
            (0..count).map(policy).collect()
        };
        let most = tables::LookupBound::POLICIES_LIMIT;
        let (_, notes) = good(&format!("policy-lookup = \"linear\"\n{}", policies(most + 1)));
        assert!(
            notes.starts_with(&format!(
                "gw.toml:1:1: of the {} policies of vrf main, direction in",
                most + 1
            )) && notes.contains("policy-lookup = \"fast\""),
            "{notes}"
        );
        assert_eq!(good(&format!("policy-lookup = \"linear\"\n{}", policies(most))).1, "");
        assert_eq!(good(&policies(most + 1)).1, "");
    }

    #[test]
    fn numbers_that_no_table_can_have_are_refused() {
        for wrong in ["0", "-1", "1073741825", "99999999999999999999"] {
            let told = refused(&format!("ipv4-outbound-spd-flow-cache-hash-buckets = {wrong}"));
            assert_eq!(
                told,
                format!(
                    "gw.toml:2:45: ipv4-outbound-spd-flow-cache-hash-buckets = {wrong} (1 to \
                    1073741824)"
                )
            );
        }
        let told = refused("ipv4-outbound-spd-flow-cache-hash-buckets = \"4096\"");
        assert!(told.contains("is a text (a number without quotes)"), "{told}");
        for wrong in ["0", "2", "3", "8"] {
            let told = refused(&format!("spd-flow-cache-associativity = {wrong}"));
            assert!(told.contains(&format!("spd-flow-cache-associativity = {wrong} (1")), "{told}");
        }
        let told = refused(
            "ipv4-inbound-spd-hash-buckets = 8\nipv4-inbound-spd-flow-cache-hash-buckets = 8",
        );
        assert!(told.contains("are the same (one of them)"), "{told}");
    }

    #[test]
    fn wrong_spellings_are_told_the_right_one() {
        for (keys, told) in [
            ("ipv4-outbound-spd-flow-cache = \"yes\"", "= \"yes\" (\"on\")"),
            ("ipv4-outbound-spd-flow-cache = \"true\"", "= \"true\" (\"on\")"),
            ("ipv4-outbound-spd-flow-cache = \"ON\"", "= \"ON\" (\"on\")"),
            ("ipv4-outbound-spd-flow-cache = \"no\"", "= \"no\" (\"off\")"),
            ("ipv4-outbound-spd-flow-cache = \"maybe\"", "(\"on\", \"off\" or \"auto\")"),
            ("ipv4-outbound-spd-flow-cache = 1", "is a number (\"on\", \"off\" or \"auto\")"),
            ("ipv4-outbound-spd-flow-cache on", "(ipv4-outbound-spd-flow-cache = \"on\")"),
            ("ipv4-outbound-spd-flow-cache = on", "(ipv4-outbound-spd-flow-cache = \"on\")"),
            (
                "ipv4-outbound-spd-hash-buckets 4194304",
                "(ipv4-outbound-spd-hash-buckets = 4194304)",
            ),
            ("ipsec { ipv4-outbound-spd-flow-cache on }", "([ipsec], and a line for each key)"),
            ("ipv4-outbound-spd-fast-path on", "(policy-lookup = \"fast\")"),
            (
                "ipv4-outbound-spd-fast-path = true",
                "(policy-lookup = \"fast\", which is so unless told otherwise)",
            ),
            ("policy-lookup = \"quick\"", "(\"fast\" or \"linear\")"),
            (
                "ipv4-outbond-spd-flow-cache = \"on\"",
                "(did you mean ipv4-outbound-spd-flow-cache?)",
            ),
        ] {
            let all = refused(keys);
            assert!(
                all.lines().any(|line| line.starts_with("gw.toml:2:") && line.contains(told)),
                "{keys}: {all}"
            );
        }
    }
}
