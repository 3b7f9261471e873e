use super::*;

fn with(settings: &str) -> String {
    format!("[conntrack]\n{settings}\n{BASE}")
}

#[test]
fn the_table_is_made_at_the_start_and_stays() {
    let mut control = running(BASE);
    assert!(control.tables().connections().is_none());
    let told = reload(&mut control, &with("connections = 1000")).unwrap();
    assert_eq!(
        told,
        "~ conntrack connections 262144 -> 1000\n~ conntrack ipv6-connections 262144 -> 1000"
    );
    let table = control.tables().connections().cloned().unwrap();
    let told = reload(&mut control, &with("connections = 2000\naccounting = true")).unwrap();
    let told: Vec<_> = told.lines().collect();
    assert_eq!(
        told,
        [
            "! conntrack connections 1000 -> 2000 (when the gateway is started again)",
            "! conntrack ipv6-connections 1000 -> 2000 (when the gateway is started again)",
            "! conntrack accounting false -> true (when the gateway is started again)",
        ]
    );
    let still = control.tables().connections().cloned().unwrap();
    assert!(std::sync::Arc::ptr_eq(&table, &still));
}

#[test]
fn timeouts_and_limits_change_at_once_and_are_saved() {
    let first = with(
        "connections = 1000\nlimits = [{ zone = 3, connections = 5 }]\n\
        source-limits = { connections = 9, prefix-connections = 99 }\n\
        timeouts = { tcp-established = 3600 }",
    );
    let mut control = running(&first);
    let text = control.save(Some("keys")).unwrap().text;
    assert!(text.contains("limits = [{ zone = 3, connections = 5 }]"), "{text}");
    let sources = "connections = 9, prefix-connections = 99, ipv4-prefix = 24, ipv6-prefix = 64";
    assert!(text.contains(sources), "{text}");
    assert!(text.contains("timeouts = { tcp-established = 3600 }"), "{text}");
    let second = with("connections = 1000\ntimeouts = { icmp = 7 }");
    let told = reload(&mut control, &second).unwrap();
    let told: Vec<_> = told.lines().collect();
    assert_eq!(
        told,
        [
            "~ conntrack tcp-established 3600 -> 432000",
            "~ conntrack icmp 30 -> 7",
            "~ conntrack limit of zone 3 5 -> none",
            "~ conntrack source-limits.connections 9 -> none",
            "~ conntrack source-limits.prefix-connections 99 -> none",
        ]
    );
    let config = load("test.toml", &first).unwrap();
    let differs = control.difference(&config).to_string();
    assert!(differs.contains("~ conntrack icmp 30 -> 7"), "{differs}");
    assert_eq!(reload(&mut control, &second).unwrap(), "");
}

#[test]
fn timeout_policies_change_at_once_and_are_saved() {
    let policy = |name: &str, zones: &str, timeouts: &str| {
        format!(
            "[[conntrack.timeout-policy]]\nname = \"{name}\"\nzones = {zones}\n\
            timeouts = {{ {timeouts} }}\n"
        )
    };
    let file = |policies: &str| with(&format!("timeouts = {{ icmp = 9 }}\n{policies}"));
    let first = file(&(policy("voice", "[5, 6]", "udp = 60") + &policy("games", "[1]", "")));
    let mut control = running(&first);
    let text = control.save(Some("keys")).unwrap().text;
    let saved =
        "[[conntrack.timeout-policy]]\nname = \"voice\"\nzones = [5, 6]\ntimeouts = { udp = 60 }";
    assert!(text.contains(saved), "{text}");
    let shown = |control: &mut Control, place: usize| {
        let tables = control.tables();
        let reply = crate::connections::handle(&tables, &Request::TimeoutList, Time(0));
        let Some(Ok(Reply::TimeoutPolicies(all))) = reply else { panic!("{reply:?}") };
        let view = &all[place];
        let [udp, icmp] = ["udp", "icmp"].map(|name| view.timeouts[name]);
        (view.name.clone(), view.zones.clone(), udp, icmp)
    };
    assert_eq!(shown(&mut control, 0), (None, vec![], 30, 9));
    assert_eq!(shown(&mut control, 2), (Some("voice".to_owned()), vec![5, 6], 60, 9));

    let second = file(&policy("voice", "[6]", "udp = 61"));
    let told = reload(&mut control, &second).unwrap();
    let told: Vec<_> = told.lines().collect();
    assert_eq!(
        told,
        [
            "~ conntrack timeout-policy games: zones 1; none -> none",
            "~ conntrack timeout-policy voice: zones 5, 6; udp 60 -> zones 6; udp 61",
        ]
    );
    assert_eq!(shown(&mut control, 1), (Some("voice".to_owned()), vec![6], 61, 9));
    assert_eq!(reload(&mut control, &second).unwrap(), "");
}

#[test]
fn what_is_wrong_is_said_with_its_place() {
    let policy = "[[conntrack.timeout-policy]]\nname =";
    let many: String =
        (0..128).map(|zone| format!("{policy} \"p{zone}\"\nzones = [{zone}]\n")).collect();
    let twice = format!("{policy} \"a\"\nzones = []\n{policy} \"a\"\nzones = []");
    let taken = format!("{policy} \"a\"\nzones = [5]\n{policy} \"b\"\nzones = [4, 5]");
    for (text, says) in [
        (many.as_str(), "more than 127 timeout policies"),
        (&twice, "timeout policy a is given twice"),
        (&taken, "test.toml:7:13: zone 5 has the timeout policy a already"),
        (&format!("{policy} \"a b\"\nzones = []"), "has the name \"a b\""),
        (&format!("{policy} \"a\""), "without zones"),
        (&format!("{policy} \"a\"\nzones = [65536]"), "not the number of a zone"),
        (&format!("{policy} \"a\"\nzones = []\ntimeouts = {{ udp = 0 }}"), "udp = 0"),
        ("connections = 0", "test.toml:2:15: connections = 0"),
        ("connections = 9\nipv6-connections = 10", "there may be fewer connections"),
        ("timeouts = { tcp-open = 5 }", "no key"),
        ("timeouts = { icmp = 0 }", "icmp = 0"),
        ("limits = [{ zone = 1 }]", "without connections"),
        (
            "limits = [{ zone = 1, connections = 5 }, { zone = 1, connections = 6 }]",
            "zone 1 has a limit already",
        ),
    ] {
        let errors = load("test.toml", &with(text)).unwrap_err().to_string();
        assert!(errors.contains(says), "{text}: {errors}");
    }
}
