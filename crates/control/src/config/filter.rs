//! Rules of filters, each by itself.

use api::{FilterSpec, FilterTarget};
use types::{FilterHook, FilterProtocol, FilterVerdict, MarkBits, RejectWith, Word};

use super::diagnostic::Errors;
use super::reader::Table;
use super::sections::vrf_name;
use super::security::selector;
use crate::check::{self, Fault, MAX_PREFERENCE};

const MARK: &str = "\"0x10/0xff\" or 16";

pub(super) fn filter(table: &Table<'_>, errors: &mut Errors<'_>) -> Option<FilterSpec> {
    let before = errors.count();
    let target = target(table, errors);
    let hook = table.required_word("hook", FilterHook::WORDS, errors);
    if !table.has("preference") {
        table.missing("preference", errors);
    }
    let pref = table.number("preference", 1..=MAX_PREFERENCE.into(), errors);
    let protocol = table.word("family", FilterProtocol::WORDS, errors);
    let selector = selector(table, errors);
    let mark = table.parsed_or_number::<MarkBits>("mark", MARK, errors);
    let action = table.required_word("action", FilterVerdict::WORDS, errors);
    let reject_with = table.word("reject-with", RejectWith::WORDS, errors);
    let set_mark = table.parsed_or_number::<MarkBits>("set-mark", MARK, errors);
    let log = table.flag("log", errors);
    if errors.count() > before {
        return None;
    }
    let spec = FilterSpec {
        target: target?,
        hook: hook?.value,
        pref: Some(pref?.value),
        protocol: protocol.map(|found| found.value),
        selector,
        mark: mark.map(|found| found.value),
        action: action?.value,
        reject_with: reject_with.map(|found| found.value),
        set_mark: set_mark.map(|found| found.value),
        log: log.is_some_and(|found| found.value),
    };
    match check::filter(&spec) {
        Ok(_) => Some(spec),
        Err(fault) => {
            table.fault(fault, errors);
            None
        }
    }
}

/// The port or the VRF, of which one is said.
fn target(table: &Table<'_>, errors: &mut Errors<'_>) -> Option<FilterTarget> {
    match (table.has("port"), table.has("vrf")) {
        (true, false) => {
            let name = table.text("port", errors)?;
            Some(FilterTarget::Dev(name.value.to_owned()))
        }
        (false, true) => vrf_name(table, errors).map(FilterTarget::Vrf),
        (true, true) => {
            let fault = Fault::invalid("vrf", "a filter is of a port or of a VRF, not of both");
            table.fault(fault.hint("port or vrf"), errors);
            None
        }
        (false, false) => {
            let fault = Fault::invalid("port", "a filter without port and vrf");
            table.fault(fault.hint("port = name, or vrf = name"), errors);
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::config::{check, load};

    const PORT: &str = "[[port]]\nname = \"lan\"\nkind = \"memory\"\n";

    fn file(rules: &[&str]) -> String {
        let rules: Vec<_> = rules.iter().map(|rule| format!("[[filter]]\n{rule}")).collect();
        format!("{PORT}{}", rules.concat())
    }

    #[test]
    fn a_rule_is_read() {
        let text = file(&["port = \"lan\"\nhook = \"ingress\"\npreference = 10\nsource = \
            \"10.0.0.0/8\"\nprotocol = 6\ndestination-ports = \"5-9\"\nmark = \"1/3\"\naction = \
            \"reject\"\nreject-with = \"tcp-reset\"\nset-mark = 5\nlog = true\n"]);
        let config = load("gw.toml", &text).unwrap();
        assert_eq!(
            crate::describe::filter(&config.filters[0]),
            "dev lan ingress pref 10 flower ip_proto tcp src_ip 10.0.0.0/8 dst_port 5-9 mark \
            0x1/0x3 action skbedit mark 0x5 action reject with tcp-reset log"
        );
    }

    #[test]
    fn what_is_wrong_is_said_with_what_would_be_right() {
        const REST: &str = "hook = \"ingress\"\npreference = 1\naction = \"drop\"\n";
        const LAN: &str = "port = \"lan\"\n";
        let rule = |more: &str| format!("{LAN}{REST}{more}");
        for (rule, told) in [
            (REST.to_owned(), "a filter without port and vrf (port = name, or vrf = name)"),
            (rule("vrf = \"main\"\n"), "a filter is of a port or of a VRF, not of both"),
            (rule("").replace("lan", "lam"), "there is no port \"lam\" (did you mean lan?)"),
            (format!("vrf = \"red\"\n{REST}"), "there is no VRF \"red\""),
            (rule("").replace("preference = 1\n", ""), "filter without preference"),
            (rule("").replace("= 1\n", "= 0\n"), "preference = 0 (1 to 65535)"),
            (rule("").replace("= 1\n", "= 65536\n"), "preference = 65536 (1 to 65535)"),
            (rule("").replace("ingress", "input"), "hook = \"input\" (\"ingress\" or \"egress\")"),
            (rule("").replace("drop", "deny"), "action = \"deny\""),
            (rule("source-ports = 5\n"), "has no ports"),
            (rule("family = \"ipv6\"\nsource = \"10.0.0.0/8\"\n"), "the rule for IPv6 (family ip,"),
            (rule("mark = \"1/0\"\n"), "the mask is 0"),
            (rule("reject-with = \"tcp-reset\"\n"), "tcp-reset goes with reject"),
            (rule("direction = \"in\"\n"), "direction"),
            (format!("{}[[filter]]\n{}", rule(""), rule("")), "is given twice"),
        ] {
            let wrong = load("gw.toml", &file(&[&rule])).expect_err(&rule).to_string();
            assert!(wrong.contains(told), "{rule}: {wrong}");
        }
    }

    /// What nft and ovs-ofctl mask is masked, and noted.
    #[test]
    fn bits_beyond_a_prefix_are_noted() {
        let rule = |preference: usize, source: &str| {
            format!(
                "port = \"lan\"\nhook = \"ingress\"\npreference = {preference}\naction = \"drop\"\n\
                source = \"{source}\"\n"
            )
        };
        let read = |rules: &[String]| {
            let rules: Vec<_> = rules.iter().map(String::as_str).collect();
            load("gw.toml", &file(&rules)).unwrap()
        };
        let config = read(&[rule(1, "1.2.3.4/8")]);
        assert_eq!(config.filters[0].selector.source.unwrap().to_string(), "1.0.0.0/8");
        let told: Vec<_> = config.notes.iter().map(|note| &*note.message).collect();
        assert_eq!(told, ["1.2.3.4/8 matches all of 1.0.0.0/8"]);
        assert_eq!(read(&[rule(1, "1.0.0.0/8"), rule(2, "1.2.3.4-1.2.3.9")]).notes, []);
        let many: Vec<_> = (1..99).map(|preference| rule(preference, "2001:db8::1/32")).collect();
        let notes = read(&many).notes;
        assert_eq!(notes.len(), 50);
        assert!(notes[49].message.ends_with("2001:db8::/32; others are not noted"), "{notes:?}");
    }

    #[test]
    fn rules_that_never_match_are_found() {
        let rule = |pref: u32, more: &str| {
            format!(
                "port = \"lan\"\nhook = \"ingress\"\npreference = {pref}\naction = \"drop\"\n{more}"
            )
        };
        let rules = [
            // Covered by the last one, which comes before it.
            rule(30, "source = \"10.1.0.0/16\"\nprotocol = \"tcp\"\n"),
            // Of both families, and IPv4 alone is covered.
            rule(40, "protocol = \"tcp\"\n"),
            // Covered, whatever the mark.
            rule(50, "source = \"10.2.0.0/16\"\nmark = 1\n"),
            // Covers nothing, as it asks for a mark.
            rule(5, "mark = 2\n"),
            rule(60, "source = \"2001:db8::/32\"\n").replace("ingress", "egress"),
            rule(20, "source = \"10.0.0.0/8\"\n"),
        ];
        let text = file(&rules.each_ref().map(String::as_str));
        let config = check("gw.toml", &text, &|_, _| Ok(Vec::new()), &|_, _| Ok(())).unwrap();
        let notes: Vec<_> = config.notes.iter().map(|note| (note.line, &*note.message)).collect();
        let line = |pref: u32| {
            let at = text.find(&format!("preference = {pref}\n")).unwrap();
            text[..at].matches('\n').count() - 2
        };
        let told = format!(
            "this rule never matches a packet: the one on line {} comes first and matches all that \
            it does",
            line(20)
        );
        assert_eq!(notes, [(line(30), told.as_str()), (line(50), told.as_str())]);
    }
}
