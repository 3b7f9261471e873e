//! The verbs that need no daemon: help, check, explain from a file, graph, manual pages,
//! completions.

mod harness;

use harness::{Folder, GATEWAY, hitpath, line};
use serde_json::json;

#[test]
fn help_lists_every_verb_and_the_exit_codes() {
    let help = line("--help").with(0).out;
    for word in [
        "run", "check", "reload", "show", "xfrm", "route", "neigh", "addr", "link", "vrf",
        "filter", "batch", "explain", "replay", "graph", "bench", "demo",
    ] {
        assert!(
            help.lines().any(|line| line.trim_start().starts_with(&format!("{word} "))),
            "{word}: {help}"
        );
    }
    assert!(help.contains("3  no daemon could be reached"), "{help}");
}

#[test]
fn unknown_words_are_a_usage_error() {
    for words in [
        "",
        "frobnicate",
        "show",
        "show nothing",
        "check",
        "replay",
        "explain",
        "run",
        "graph --purple",
    ] {
        assert!(!line(words).with(2).err.is_empty(), "{words}");
    }
    let error = line("xfrm frobnicate").with(2).err;
    assert!(error.contains("frobnicate"), "{error}");
}

#[test]
fn without_a_daemon_clients_say_so() {
    let folder = Folder::new();
    let socket = folder.path("nobody.sock");
    let ended =
        hitpath(&["--socket".as_ref(), socket.as_os_str(), "show".as_ref(), "ports".as_ref()])
            .with(3);
    assert!(
        ended.err.contains("nobody.sock") && ended.err.contains("hitpath run"),
        "{}",
        ended.err
    );
    let ended =
        hitpath(&["-j".as_ref(), "--socket".as_ref(), socket.as_os_str(), "reload".as_ref()])
            .with(3);
    let error: serde_json::Value = serde_json::from_str(&ended.err).unwrap();
    assert!(error["error"].as_str().unwrap().contains("nobody.sock"));
}

#[test]
fn a_batch_whose_errors_nobody_reads_ends_as_it_would_have() {
    let folder = Folder::new();
    let file = folder.write("commands.txt", "no command\n".repeat(3));
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_hitpath"));
    let ended = command.args(["batch", "--force"]).arg(file).stderr(full).output().unwrap();
    assert_eq!(ended.status.code(), Some(1));
    assert_eq!(String::from_utf8_lossy(&ended.stdout), "0 commands carried out, 3 refused\n");
}

#[test]
fn a_right_configuration_passes_the_check() {
    let folder = Folder::new();
    let file = folder.write("gw.toml", GATEWAY);
    let file = file.to_str().unwrap();
    assert!(hitpath(&["check", file]).with(0).out.contains("gw.toml"));
    let told = hitpath(&["-j", "check", file]).with(0).json();
    assert_eq!((&told["files"], &told["wrong"]), (&json!(1), &json!(0)));
    assert_eq!(told["diagnostics"], json!([]));
    let sides = "VRF main: protected: lan; unprotected: wan (tunnel end 192.0.2.1)";
    assert_eq!(told["notes"][0]["message"], json!(sides));
    assert_eq!(told["notes"].as_array().unwrap().len(), 1);
}

#[test]
fn a_check_says_what_is_rounded() {
    let folder = Folder::new();
    let text = format!("[ipsec]\nipv4-inbound-spd-flow-cache-hash-buckets = 1000\n{GATEWAY}");
    let file = folder.write("gw.toml", text);
    let file = file.to_str().unwrap();
    let note = "ipv4-inbound-spd-flow-cache-hash-buckets = 1000 is rounded up to 1024";
    let out = hitpath(&["check", file]).with(0).out;
    assert!(
        out.contains(&format!("gw.toml:2:44: {note}\n")) && out.contains("right, 2 ports"),
        "{out}"
    );
    let told = hitpath(&["-j", "check", file]).with(0).json();
    let notes = told["notes"].as_array().unwrap();
    assert_eq!(told["wrong"], json!(0));
    assert!(notes.iter().any(|said| said["message"] == note), "{notes:?}");
}

#[test]
fn all_errors_of_all_files_are_told_with_their_places() {
    let folder = Folder::new();
    let first = folder.write(
        "first.toml",
        "[[port]]\nname = \"a\"\nkind = \"telepathy\"\naddresses = [\"10.0.0.1/33\"]\n",
    );
    let second = folder.write("second.toml", "[gateway]\nworkerz = 1\n");
    let missing = folder.path("missing.toml");
    let files = [first.to_str().unwrap(), second.to_str().unwrap(), missing.to_str().unwrap()];
    let out = hitpath(&[&["check"], &files[..]].concat()).with(1).out;
    for part in [
        "first.toml:3:",
        "telepathy",
        "first.toml:4:",
        "10.0.0.1/33",
        "second.toml:2:1",
        "workerz",
        "missing.toml",
    ] {
        assert!(out.contains(part), "{part}: {out}");
    }
    let told = hitpath(&[&["-j", "check"], &files[..]].concat()).with(1).json();
    assert_eq!(told["wrong"], 3);
    let lines: Vec<_> =
        told["diagnostics"].as_array().unwrap().iter().map(|told| told["line"].clone()).collect();
    assert_eq!(lines, [json!(3), json!(4), json!(2), json!(null)]);
}

#[test]
fn a_file_that_is_no_text_or_never_ends_is_refused() {
    let folder = Folder::new();
    let file = folder.write("gw.toml", b"[gateway]\n# \xc3\xa9\xff\n");
    let out = hitpath(&["check", file.to_str().unwrap()]).with(1).out;
    assert!(out.contains("gw.toml:2:4: this is not text"), "{out}");
    let out = hitpath(&["-j", "check", "/dev/zero"]).with(1).json();
    assert_eq!(out["diagnostics"][0]["file"], "/dev/zero");
    let message = out["diagnostics"][0]["message"].as_str().unwrap();
    assert!(message.contains("this is a device"), "{out}");
}

#[test]
fn help_is_a_word_where_iproute2_has_it() {
    for words in ["route help", "neigh help", "addr help", "link help", "vrf help", "xfrm help"] {
        assert!(line(words).with(0).out.contains("Usage: hitpath "), "{words}");
    }
    for words in ["xfrm state help", "xfrm policy help"] {
        assert!(line(words).with(0).out.contains("xfrm policy setdefault"), "{words}");
    }
}

#[test]
fn explain_follows_a_packet_into_the_tunnel() {
    let folder = Folder::new();
    let file = folder.write("gw.toml", GATEWAY);
    let explain =
        |packet: &str| hitpath(&["-j", "explain", "--config", file.to_str().unwrap(), packet]);
    // What stages of this name say by a member.
    let said = |stages: &serde_json::Value, name: &str, member: &str| {
        let stages = stages.as_array().unwrap().iter();
        let of = stages.filter(|stage| stage["stage"] == name);
        of.map(|stage| stage[member].clone()).collect::<serde_json::Value>()
    };

    let stages = explain("udp 10.1.0.5:5000 > 10.2.0.7:53 in lan size 1500").with(0).json();
    assert_eq!(said(&stages, "sa", "spi"), json!(["0x00001001"]));
    assert!(said(&stages, "policy", "action").to_string().contains("protect"), "{stages}");
    assert_eq!(said(&stages, "size", "fit"), json!(["cut"]));
    assert_eq!(said(&stages, "outcome", "fate"), json!(["sent-once-resolved"]));
    let text = hitpath(&[
        "explain",
        "--config",
        file.to_str().unwrap(),
        "udp 10.1.0.5:5000 > 10.2.0.7:53 in lan size 1500",
    ]);
    assert!(text.with(0).out.contains("cut before it is encrypted into 2 fragments"));

    let stages = explain("esp 192.0.2.2 > 192.0.2.1 spi 0x1002 in wan").with(0).json();
    assert_eq!(said(&stages, "next", "describe"), json!(["in sa 1"]));
    assert_eq!(said(&stages, "outcome", "fate"), json!(["decrypted"]));

    let stages = explain("udp 10.2.0.7:53 > 10.1.0.5:5000 in sa 1").with(0).json();
    assert_eq!(said(&stages, "outcome", "fate"), json!(["sent-once-resolved"]));

    let stages = explain("udp 10.2.0.7:53 > 10.1.0.5:5000 in wan").with(1).json();
    assert_eq!(said(&stages, "verdict", "reason"), json!(["policy_clear"]));
    assert_eq!(said(&stages, "outcome", "reason"), json!(["policy_clear"]));

    let stages = explain("icmp 10.1.0.5 > 203.0.113.9 in lan").with(0).json();
    assert_eq!(said(&stages, "outcome", "fate"), json!(["sent-once-resolved"]));
    assert!(explain("udp 10.1.0.5 > 10.2.0.7 size 20 in lan").with(2).err.contains("28 bytes"));
    assert!(explain("udp fd01::5 > fd02::7 df in lan").with(2).err.contains("IPv6 has no `df`"));
    assert!(explain("udp 10.1.0.5 > 10.2.0.7 in attic").with(1).err.contains("lan, wan"));
    assert!(explain("udp 10.1.0.5 > 10.2.0.7 in sa 99").with(1).err.contains("reqid 99"));
    assert!(explain("udp 10.1.0.5").with(2).err.contains("PROTO SRC[:PORT]"));
}

/// The example of the documentation: each class of traffic by an SA of its own.
#[test]
fn explain_knows_classes_of_traffic() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/examples/classes.toml");
    line(&format!("check {file}")).with(0);
    let explain = |packet: &str, code| {
        let run = hitpath(&["explain", "--config", file, packet]);
        run.with(code).out
    };
    let voice = explain("udp 192.168.13.5:5000 > 192.168.12.7:5000 dscp ef in lan", 0);
    assert!(voice.contains("spi 0x00002001") && voice.contains("dscp ef"), "{voice}");
    assert!(voice.contains("its policies read DSCP"), "{voice}");
    let other = explain("tcp 192.168.13.5:5000 > 192.168.12.7:22 dscp af11 ttl 9 in lan", 0);
    assert!(other.contains("spi 0x00001001") && !other.contains("ttl 9"), "{other}");
    let back = "udp 192.168.12.7:5000 > 192.168.13.5:5000";
    assert!(explain(&format!("{back} dscp ef in sa 2"), 0).contains("sent-"));
    let wrong = explain(&format!("{back} in sa 2"), 1);
    assert!(wrong.contains("policy_wrong_selector"), "{wrong}");
    let word = hitpath(&["explain", "--config", file, &format!("{back} dscp gold in sa 2")]);
    assert!(word.with(2).err.contains("af11 to af43"));
}

#[test]
fn explain_knows_addresses_that_never_pass() {
    let folder = Folder::new();
    let file = folder.write("gw.toml", GATEWAY);
    let explain = |packet: &str, code| {
        hitpath(&["explain", "--config", file.to_str().unwrap(), packet]).with(code).out
    };
    for packet in [
        "udp 127.0.0.1:1 > 10.2.0.1:2 in lan",
        "udp 10.1.0.5:1 > 127.0.0.1:2 in lan",
        "tcp :: > fd01::1 in lan",
    ] {
        let out = explain(packet, 1);
        assert!(out.contains("drop, ip_") && out.contains("dropped"), "{packet}: {out}");
    }
    assert!(explain("icmp :: > ff02::1:ff00:1 type 135 in lan", 0).contains("delivered"));
    assert!(explain("icmp :: > ff02::1:ff00:1 type 135 ttl 64 in lan", 1).contains("nd_malformed"));
    assert!(explain("udp 10.1.0.5:1 > 10.2.0.5:2 in lan", 0).contains("sent-"));
}

#[test]
fn the_graph_is_a_graph() {
    let stages = line("graph -j").with(0).json();
    let names: Vec<_> =
        stages.as_array().unwrap().iter().map(|stage| stage["name"].as_str().unwrap()).collect();
    let text = line("graph").with(0).out;
    assert!(names.contains(&"decide") && names.iter().all(|name| text.contains(name)));
    assert!(line("graph --dot").with(0).out.starts_with("digraph hitpath {"));
}

#[test]
fn every_verb_has_a_manual_page() {
    let folder = Folder::new();
    let pages = folder.path("man");
    hitpath(&["man", pages.to_str().unwrap()]).with(0);
    for name in
        ["hitpath.1", "hitpath-run.1", "hitpath-xfrm.1", "hitpath-replay.1", "hitpath-explain.1"]
    {
        let page = std::fs::read_to_string(pages.join(name)).unwrap();
        assert!(
            page.contains(".SH NAME") && (page.contains("Start with") || page.contains("Examples")),
            "{name}"
        );
    }
    assert!(line("man").with(0).out.contains(".TH hitpath 1"));
}

#[test]
fn shells_complete_verbs() {
    for shell in ["bash", "zsh", "fish"] {
        let script = line(&format!("completions {shell}")).with(0).out;
        assert!(script.contains("complete --stdin"), "{shell}: {script}");
    }
    for shell in ["elvish", "powershell"] {
        assert!(line(&format!("completions {shell}")).with(0).out.contains("explain"), "{shell}");
    }
    assert!(line("complete -- expl").with(0).out.starts_with("w\texplain\t"));
    line("completions tcsh").with(2);
}

#[test]
fn the_demonstration_shows_a_tunnel() {
    let folder = Folder::new();
    let capture = folder.path("esp.pcap");
    let words = ["demo", "--memory", "--packets", "300", "--pcap", capture.to_str().unwrap()];
    let out = hitpath(&words).with(0).out;
    assert!(out.contains("301 echo requests were sent and 301 answered"), "{out}");
    assert!(
        out.contains("602 ESP packets") && out.contains("nothing passed in the clear"),
        "{out}"
    );
    assert!(capture.metadata().unwrap().len() > 602 * 100);
    assert_eq!(line("demo -j --packets 10").with(0).json()["between"]["clear"], 0);
}

#[test]
fn bench_is_the_program_beside_this_one_with_its_arguments_and_exit_code() {
    let folder = Folder::new();
    let copy = folder.path("hitpath");
    std::fs::copy(env!("CARGO_BIN_EXE_hitpath"), &copy).unwrap();
    let run = |arguments: &[&str]| {
        let mut command = std::process::Command::new(&copy);
        command.args(arguments).env("PATH", folder.path("")).output().unwrap()
    };

    let ended = run(&["bench", "esp"]);
    let error = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(1), "{error}");
    let place = folder.path("hitpath-bench");
    for part in ["cargo build --release -p hitpath-bench", place.to_str().unwrap(), "PATH"] {
        assert!(error.contains(part), "{part}: {error}");
    }

    let script = "#!/bin/sh\nprintf '%s|' \"$@\"\nexit 7\n";
    let file = folder.write("hitpath-bench", script);
    std::fs::set_permissions(file, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let ended = run(&["-j", "bench", "--json", "rows of it.json", "esp", "--help"]);
    assert_eq!(String::from_utf8_lossy(&ended.stdout), "-j|--json|rows of it.json|esp|--help|");
    assert_eq!(ended.status.code(), Some(7));
}
