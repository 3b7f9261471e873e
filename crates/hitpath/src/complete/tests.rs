use super::*;

fn complete_line(line: &str) -> Completion {
    let mut words: Vec<String> = line.split(' ').map(str::to_owned).collect();
    let last = words.pop().unwrap();
    complete(&words, &last, Path::new("/nonexistent/hitpath.sock"))
}

fn words(line: &str) -> Vec<String> {
    complete_line(line).candidates.into_iter().map(|candidate| candidate.word).collect()
}

#[test]
fn verbs_options_and_values_come_from_claps_definitions() {
    assert!(words("").contains(&"route".to_owned()));
    assert!(!words("").contains(&"complete".to_owned()), "it is hidden");
    assert_eq!(words("relea"), ["release-interfaces"]);
    assert_eq!(words("show dro"), ["drops"]);
    assert_eq!(words("firewall ch"), ["check"]);
    assert!(words("route show --").contains(&"--brief".to_owned()));
    assert!(words("--").contains(&"--socket".to_owned()));
    assert!(!words("-j --").contains(&"--json".to_owned()), "it was given");
    assert_eq!(words("completions z"), ["zsh"]);
    assert_eq!(words("help xfrm sta"), ["state"]);
    assert!(complete_line("check ").files);
    assert!(complete_line("run --config ").files);
    assert!(complete_line("firewall replace ").files);
    assert!(!complete_line("show ").files);
}

#[test]
fn words_of_commands_come_from_their_parsers() {
    assert_eq!(words("route add default via 192.0.2.1 w"), Vec::<String>::new());
    assert_eq!(words("route add default v"), ["via", "vrf"]);
    assert_eq!(words("-j --socket /x -6 route add default vi"), ["via"]);
    assert_eq!(words("neighbour add 192.0.2.1 ll"), ["lladdr"]);
    assert_eq!(words("xfrm policy add dir "), ["in", "out", "fwd"]);
    assert_eq!(words("xfrm state add src 192.0.2.1 ds"), ["dst"]);
    assert_eq!(words("flow del --st"), ["--strict"]);
    assert_eq!(words("flow add table=0,in_p"), ["table=0,in_port="]);
    assert!(complete_line("flow add in_p").candidates[0].goes_on);
    assert_eq!(words("flow add ip,actions=ct(com"), ["ip,actions=ct(commit"]);
    assert!(complete_line("flow replace ").files);
    let hint = complete_line("link set lan mtu ").hint;
    assert_eq!(hint.as_deref(), Some("a number"));
    // Other names of a word are told if nothing else fits.
    assert!(!words("route ").contains(&"lst".to_owned()));
    assert_eq!(words("route ls"), ["ls", "lst"]);
}

#[test]
fn monitor_stands_alone_and_behind_objects() {
    let objects = ["all", "link", "address", "route", "neigh", "rule", "SA", "policy", "label"];
    assert_eq!(words("monitor "), objects);
    assert_eq!(words("monitor link ru"), ["rule"]);
    assert_eq!(words("xfrm m"), ["monitor"]);
    assert_eq!(words("xfrm monitor S"), ["SA"]);
    assert_eq!(words("help route mon"), ["monitor"]);
    assert_eq!(words("r mon "), ["all", "label"]);
    assert!(!words("vrf ").contains(&"monitor".to_owned()));
}

#[test]
fn behind_an_abbreviated_verb_the_same_comes() {
    for (short, long) in
        [("x ", "xfrm "), ("x s ", "xfrm state "), ("rou add 10/8 v", "route add 10/8 v")]
    {
        assert!(!words(short).is_empty());
        assert_eq!(words(short), words(long), "{short}");
    }
    assert_eq!(words("ne ad"), ["add"]);
    assert_eq!(words("li set lan up nom"), ["nomaster"]);
}

#[test]
fn what_is_always_refused_is_not_offered() {
    assert!(words("route add ").contains(&"blackhole".to_owned()));
    assert_eq!(words("route add loc"), Vec::<String>::new());
    assert_eq!(words("route show type loc"), ["local"]);
    let table = complete_line("flow add tab").candidates;
    assert!(table[0].meaning.contains("that the flow is in"), "{table:?}");
}

#[test]
fn words_of_other_verbs_are_known() {
    assert_eq!(words("bench spd-"), ["spd-out", "spd-in"]);
    assert_eq!(words("tap add port wan f sna"), ["snaplen"]);
    assert_eq!(words("trace add cou"), ["count"]);
    assert_eq!(words("show spd di"), ["dir"]);
    assert_eq!(words("show spd dir f"), ["fwd"]);
    assert_eq!(words("explain udp 10.0.0.1 > 10.0.0.2 frag"), ["fragment"]);
    assert_eq!(words("conntrack -L -o extended,ti"), ["extended,timestamp"]);
    assert_eq!(words("conntrack -L --state ESTA"), ["ESTABLISHED"]);
    assert_eq!(words("conntrack -L exp"), ["expect"]);
    assert!(words("conntrack -").contains(&"-L".to_owned()));
    let quoted = vec!["explain".to_owned()];
    let completion = complete(&quoted, "udp 10.0.0.1 > 10.0.0.2 siz", Path::new("/x"));
    assert_eq!(completion.candidates[0].word, "udp 10.0.0.1 > 10.0.0.2 size");
}

#[test]
fn no_line_is_too_much() {
    for line in ["route \u{fffd} ", "--socket", "--socket= ", "-- -j", "- -", "explain > > > "] {
        complete_line(line);
    }
    assert_eq!(
        complete(&vec!["x".to_owned(); 100_000], "", Path::new("/x")),
        Completion::default()
    );
    let long = "in_port=lan,".repeat(100_000);
    complete(&["flow".to_owned(), "add".to_owned()], &long, Path::new("/x"));
}
