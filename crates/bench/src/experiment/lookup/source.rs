//! Where rules and headers come from: made, or out of files.

use core::fmt;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::str::FromStr;

use anyhow::{Context, bail, ensure};
use tables::Selector;
use wire::FlowKey;
use workload::classbench;
use workload::rules::{self, Kind};
use workload::trace::{self, Locality};

use crate::experiment::spd_out::Kind as Family;
use crate::text;

/// The longest file that is read, in bytes.
const MAX_FILE: u64 = 1 << 30;

/// A kind of rule set, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Named(Kind);

impl FromStr for Named {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        match Kind::ALL.into_iter().find(|kind| kind.name() == text) {
            Some(kind) => Ok(Self(kind)),
            None => bail!("rule sets are {}, not '{text}'", Kind::ALL.map(Kind::name).join(", ")),
        }
    }
}

/// A rule set to be made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    kind: Kind,
    v6: bool,
    count: usize,
}

/// A rule set with headers.
pub(crate) struct Set {
    /// For progress and errors.
    pub name: String,
    /// What it is like, or the file's name.
    pub kind: String,
    pub family: &'static str,
    /// How many rules were asked for, or are in the file.
    pub rules_shown: usize,
    /// In priority order.
    pub rules: Vec<Selector>,
    pub headers: Vec<FlowKey>,
}

/// Which sets are measured: those named, or a choice.
pub(crate) fn choose(
    quick: bool,
    sets: Option<&[Named]>,
    sizes: Option<&[u32]>,
    families: Option<&[Family]>,
) -> Vec<Wanted> {
    let usual = [Kind::Acl, Kind::Fw, Kind::Ipc, Kind::Nested, Kind::Spd].map(Named);
    let sets = sets.unwrap_or(if quick { &usual[..4] } else { &usual });
    let usual = [10, 100, 1000, 10_000, 100_000];
    let sizes = sizes.unwrap_or(if quick { &usual[..4] } else { &usual });
    let families =
        families.unwrap_or(if quick { &[Family::Ipv4] } else { &[Family::Ipv4, Family::Ipv6] });
    let mut wanted = Vec::new();
    for family in families {
        for set in sets {
            let v6 = *family == Family::Ipv6;
            wanted.extend(sizes.iter().map(|&count| Wanted {
                kind: set.0,
                v6,
                count: count as usize,
            }));
        }
    }
    wanted
}

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}, {} {} rules",
            self.kind.name(),
            text::grouped(&self.count.to_string()),
            self.family()
        )
    }
}

impl Wanted {
    const fn family(&self) -> &'static str {
        if self.v6 { "ipv6" } else { "ipv4" }
    }

    /// The rules, and headers that they are matched with: distinct ones, shuffled, one in twenty of
    /// which nothing matches.
    pub(crate) fn make(&self, headers: usize) -> Set {
        let rules = rules::generate(&rules::Options {
            kind: self.kind,
            v6: self.v6,
            count: self.count,
            seed: 1,
            misaligned: None,
        });
        Set {
            name: self.to_string(),
            kind: self.kind.name().to_owned(),
            family: self.family(),
            rules_shown: self.count,
            headers: headers_for(&rules, headers),
            rules,
        }
    }
}

fn headers_for(rules: &[Selector], headers: usize) -> Vec<FlowKey> {
    trace::headers(
        rules,
        &trace::Options { headers, seed: 2, locality: Locality::None, unmatched: 0.05 },
    )
}

/// A set in ClassBench's format; with headers made for it if there is no trace.
pub(crate) fn read(
    rules_file: &Path,
    trace_file: Option<&Path>,
    headers: usize,
) -> anyhow::Result<Set> {
    let read = classbench::read_rules(&text_of(rules_file)?)
        .with_context(|| rules_file.display().to_string())?;
    let rules = read.selectors;
    ensure!(
        !rules.is_empty(),
        "{}: there is no rule that a packet can match",
        rules_file.display()
    );
    let headers = match trace_file {
        None => headers_for(&rules, headers),
        Some(file) => {
            let mut headers = classbench::read_trace(&text_of(file)?)
                .with_context(|| file.display().to_string())?;
            trace::draw_fields(&rules, &mut headers, 3);
            headers
        }
    };
    ensure!(!headers.is_empty(), "there are no headers to look up");
    let v6 = rules.iter().filter(|rule| rule.source.is_v6()).count();
    let kind =
        rules_file.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    Ok(Set {
        name: kind.clone(),
        kind,
        family: if v6 == 0 {
            "ipv4"
        } else if v6 == rules.len() {
            "ipv6"
        } else {
            "both"
        },
        rules_shown: read.rules,
        rules,
        headers,
    })
}

fn text_of(file: &Path) -> anyhow::Result<String> {
    let read = || {
        let mut text = String::new();
        // By what comes, not by what the system says of it: a device has no length, and no end.
        File::open(file)?.take(MAX_FILE + 1).read_to_string(&mut text)?;
        ensure!(text.len() as u64 <= MAX_FILE, "it has more than {MAX_FILE} bytes");
        Ok(text)
    };
    read().with_context(|| file.display().to_string())
}
