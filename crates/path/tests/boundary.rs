//! Nothing but `decide` consults policy, held by looking at the sources.

use std::fs;
use std::path::Path;

/// What asks the tables a question whose answer a cached decision depends on. Whatever is asked
/// outside `decide` is not held against changes, so an entry of the cache would outlive it.
const FORBIDDEN: [(&str, &str); 14] = [
    (".spd", "a policy database"),
    (".vrf(", "a VRF's tables"),
    (".vrfs(", "all VRFs' tables"),
    (".route(", "the FIB"),
    (".routes(", "the FIB"),
    (".route_of(", "the FIB"),
    (".inbound(vrf", "the SAD by SPI"),
    (".sad().inbound(", "the SAD by SPI"),
    (".resolve(", "which SA serves a template"),
    (".outbound_sa(", "which SA serves a template"),
    (".lookup(", "a policy database"),
    (".lookup_linear(", "a policy database"),
    (".lookup_batch(", "a policy database"),
    (".policy_in(", "a policy by its place"),
];

fn sources(folder: &Path, all: &mut Vec<(String, String)>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, all);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let name = path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned();
            all.push((name, fs::read_to_string(&path).unwrap()));
        }
    }
}

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src"))
}

/// The code of a file: without comments, tests, and the blanks that formatting puts into calls.
fn code(text: &str) -> String {
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
    let lines = text.lines().map(|line| line.split("//").next().unwrap_or_default().trim());
    let mut code = String::new();
    for line in lines {
        // A call's chain goes on in the next line.
        if !line.starts_with('.') {
            code.push('\n');
        }
        code.push_str(line);
    }
    code
}

/// What a file names that it must not, with the line of code.
fn faults(name: &str, text: &str) -> Vec<String> {
    let code = code(text);
    let mut faults = Vec::new();
    for line in code.lines() {
        for (pattern, what) in FORBIDDEN {
            // A port's neighbours are no policy: ARP and ND keep them up to date.
            let line = line.replace(".neighbours.lookup(", "");
            if line.contains(pattern) {
                faults.push(format!("{name} asks {what} ({pattern}): {line}"));
            }
        }
    }
    faults
}

#[test]
fn nothing_but_decide_consults_policy() {
    let mut all = Vec::new();
    sources(root(), &mut all);
    let (decide, others): (Vec<_>, Vec<_>) =
        all.iter().partition(|(name, _)| name.starts_with("decide/"));
    assert!(others.len() > 20 && decide.len() > 4, "the sources are where they are looked for");
    // Tests of decide's neighbours may ask what they like, and so may what only explains: no packet
    // goes that way.
    let others = others.into_iter().filter(|(name, _)| !name.ends_with("tests.rs"));
    let others = others.filter(|(name, _)| !name.starts_with("foretell/"));
    let faults: Vec<_> = others.flat_map(|(name, text)| faults(name, text)).collect();
    assert!(
        faults.is_empty(),
        "\n{}\n\nOnly decide/ may do that: what is asked elsewhere is not part of a decision, and no \
        change makes the cached decision invalid. Ask in decide/mod.rs, with a Question that \
        decide/question.rs lists, and let the Decision say what came of it. An object that a \
        decision names (a next hop, an SA slot, a policy's counters) is found by \
        outputs::Objects; what parse must know before there is a key is in decide/locality.rs.",
        faults.join("\n")
    );
    // The patterns are what decide really says, so that a function that was renamed is noticed.
    let decide: String = decide.iter().map(|(_, text)| code(text)).collect();
    for pattern in [".spd", ".vrf(", ".route(", ".sad().inbound(", ".resolve(", ".lookup("] {
        assert!(decide.contains(pattern), "decide no longer says {pattern}");
    }
}

/// The tables themselves are handed to those only that give a part of them on.
#[test]
fn no_stage_is_given_the_tables() {
    let mut all = Vec::new();
    sources(root(), &mut all);
    for (name, text) in &all {
        let is_stage = name.starts_with("stage/") || name.starts_with("host/");
        let names_tables =
            code(text).split(|c: char| !c.is_alphanumeric() && c != '_').any(|w| w == "Tables");
        assert!(
            !(is_stage && names_tables),
            "{name} names Tables: a stage is given Objects, Locality or a Decider, so that its \
            signature says what it may ask"
        );
    }
}

#[test]
fn the_search_finds_what_it_should() {
    for text in [
        "fn f() {\n    let a = self.tables\n        .sad()\n        .inbound(x, y, z);\n}",
        "fn f() { vrf.spd.lookup(direction, key) }",
        "fn f() { vrf.route(destination) }",
        "fn f() { tables.resolve(vrf, &template) }",
    ] {
        assert!(!faults("stage/new.rs", text).is_empty(), "{text}");
    }
    assert_eq!(faults("stage/new.rs", "// vrf.route(to) is not asked\nfn f() {}"), [""; 0]);
}
