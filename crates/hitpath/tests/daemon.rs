//! The daemon and its clients, on memory ports and so without root.

mod harness;

use std::fs;
use std::os::unix::fs::PermissionsExt;

use harness::{Daemon, Folder, GATEWAY, eventually, hitpath};
use nix::sys::signal::Signal;

fn gateway(folder: &Folder) -> (std::path::PathBuf, Daemon) {
    let config = folder.write("gw.toml", GATEWAY);
    let daemon = Daemon::start(folder, &config);
    (config, daemon)
}

#[test]
fn the_daemon_shows_what_is_configured() {
    let folder = Folder::new();
    let (_, daemon) = gateway(&folder);
    let ports = daemon.json("show ports");
    assert_eq!(ports[0]["name"], "lan");
    assert_eq!(ports[1]["addresses"][0], "192.0.2.1/24");
    assert_eq!(ports[0]["statistics"]["rx_packets"], 0);
    let workers = daemon.json("show workers");
    assert_eq!(workers[0]["index"], 0);
    let counters = workers[0]["counters"].as_array().unwrap();
    let shown = daemon.line("show workers").with(0).out;
    for name in ["received", "encrypted", "icmp_errors_limited", "reassembled", "events_lost"] {
        let counter = counters.iter().find(|counter| counter["name"] == name).unwrap();
        assert_eq!(counter["value"], 0, "{name}");
        let meaning = counter["meaning"].as_str().unwrap();
        let line = shown.lines().find(|line| line.starts_with(name)).unwrap();
        assert!(line.ends_with(meaning), "{line}");
    }
    assert_eq!(daemon.json("show sas").as_array().unwrap().len(), 2);
    assert_eq!(daemon.json("show policies").as_array().unwrap().len(), 3);
    assert_eq!(daemon.json("show neighbours").as_array().unwrap().len(), 0);
    assert_eq!(daemon.json("show vrfs")[0]["name"], "main");
    let drops = daemon.json("show drops");
    assert!(
        drops
            .as_array()
            .unwrap()
            .iter()
            .any(|drop| drop["reason"] == "esp_bad_icv" && drop["packets"] == 0)
    );
    for what in ["ports", "workers", "drops", "drops --all", "policies", "sas", "routes", "vrfs"] {
        assert!(!daemon.line(&format!("show {what}")).with(0).out.is_empty(), "{what}");
    }
    let shown = daemon.line("show sas").with(0).out + &daemon.line("-j show sas").with(0).out;
    assert!(!shown.contains("00112233445566778899"), "keys are never shown: {shown}");
}

#[test]
fn the_memory_of_packets_is_told_and_its_large_buffers_are_decided_at_the_start() {
    let folder = Folder::new();
    let config = folder.path("gateway.toml");
    fs::write(&config, format!("[gateway]\nlarge-buffers = 0\n{GATEWAY}")).unwrap();
    let daemon = Daemon::start(&folder, &config);
    assert!(daemon.log().contains("packets are in "), "{}", daemon.log());
    fs::write(&config, GATEWAY.replace("kind = \"memory\"", "kind = \"memory\"\nmtu = 9000"))
        .unwrap();
    let refused = daemon.line("reload").with(1).err;
    assert!(refused.contains("port lan: frames of an MTU of 9000"), "{refused}");
    assert!(refused.contains("large-buffers = 1024 in [gateway]"), "{refused}");
    drop(daemon);
    let daemon = Daemon::start(&folder, &config);
    assert_eq!(daemon.json("show ports")[0]["mtu"], 9000);
}

#[test]
fn commands_in_iproute2s_words_change_the_tables() {
    let folder = Folder::new();
    let (_, daemon) = gateway(&folder);
    let routes = |daemon: &Daemon| daemon.json("show routes").as_array().unwrap().len();
    let before = routes(&daemon);
    daemon.line("route add 10.9.0.0/16 via 192.0.2.9").with(0);
    assert_eq!(routes(&daemon), before + 1);
    let refused = daemon.line("route add 10.9.0.0/16 via 192.0.2.9").with(1);
    assert!(refused.err.contains("10.9.0.0/16"), "{}", refused.err);
    daemon.line("neigh add 192.0.2.9 lladdr 02:00:00:00:00:09 dev wan").with(0);
    assert_eq!(daemon.json("n show")[0]["lladdr"], "02:00:00:00:00:09");
    let explained =
        daemon.run(&["explain", "udp 203.0.113.1:1 > 203.0.113.2:2 in host"]).with(0).out;
    assert!(explained.contains("outcome"), "{explained}");
    daemon.line("route del 10.9.0.0/16").with(0);
    assert_eq!(routes(&daemon), before);
    let unknown = daemon.line("route add 10.9.0.0/16 via 192.0.2.9 flavour sweet").with(2);
    assert!(unknown.err.contains("flavour"), "{}", unknown.err);
}

#[test]
fn a_reload_is_whole_or_nothing() {
    let folder = Folder::new();
    let (config, daemon) = gateway(&folder);
    let more = format!(
        "{GATEWAY}\n[[port]]\nname = \"dmz\"\nkind = \"memory\"\naddresses = \
        [\"10.3.0.1/24\"]\n\n[[route]]\nto = \"10.4.0.0/16\"\nvia = \"10.3.0.2\"\n"
    );
    fs::write(&config, &more).unwrap();
    let dry = daemon.line("reload --dry-run").with(0).out;
    assert!(dry.contains("+ port") && dry.contains("10.4.0.0/16"), "{dry}");
    assert_eq!(daemon.json("show ports").as_array().unwrap().len(), 2);
    assert_eq!(daemon.line("reload").with(0).out, dry);
    assert_eq!(daemon.json("show ports").as_array().unwrap().len(), 3);
    assert!(daemon.line("reload").with(0).out.contains("nothing is different"));

    // A port that cannot be opened refuses everything, what could be done included.
    let wrong = format!(
        "{GATEWAY}\n[[port]]\nname = \"no\"\nkind = \"af-packet\"\ninterface = \
        \"nowhere0\"\n\n[[route]]\nto = \"10.5.0.0/16\"\nvia = \"192.0.2.5\"\n"
    );
    fs::write(&config, wrong).unwrap();
    let refused = daemon.line("reload").with(1);
    assert!(refused.err.contains("nowhere0"), "{}", refused.err);
    fs::write(&config, "[[port]]\nname = 7\n").unwrap();
    let refused = daemon.line("reload").with(1);
    assert!(refused.err.contains("gw.toml:2:"), "{}", refused.err);
    assert_eq!(daemon.json("show ports").as_array().unwrap().len(), 3);

    fs::write(&config, GATEWAY).unwrap();
    daemon.signal(Signal::SIGHUP);
    eventually("the reload", || daemon.json("show ports").as_array().unwrap().len() == 2);
    assert!(daemon.log().contains("- port dmz"), "{}", daemon.log());
}

#[test]
fn only_the_owner_may_open_the_socket_and_it_goes_with_the_daemon() {
    let folder = Folder::new();
    let (_, mut daemon) = gateway(&folder);
    assert_eq!(fs::metadata(&daemon.socket).unwrap().permissions().mode() & 0o777, 0o600);
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.end(), Some(0));
    assert!(!daemon.socket.exists());
}

#[test]
fn a_second_daemon_leaves_the_first_alone_and_a_killed_ones_socket_is_replaced() {
    let folder = Folder::new();
    let (config, mut daemon) = gateway(&folder);
    let (config, socket) = (config.to_str().unwrap(), daemon.socket.to_str().unwrap().to_owned());
    let second = hitpath(&["run", "--config", config, "--socket", &socket]).with(1);
    assert!(
        second.err.contains("already listens") && second.err.contains(&socket),
        "{}",
        second.err
    );
    daemon.line("show ports").with(0);

    daemon.signal(Signal::SIGKILL);
    daemon.end();
    assert!(daemon.socket.exists());
    let next = Daemon::start(&folder, config.as_ref());
    next.line("show ports").with(0);
}

#[test]
fn a_daemon_that_cannot_run_says_why() {
    let folder = Folder::new();
    let socket = folder.path("control.sock");
    for (config, why) in [
        ("", "no port"),
        // One that is absent is waited for; this is none of Ethernet.
        ("[[port]]\nname = 'a'\nkind = 'af-packet'\ninterface = 'lo'\n", "port lo: "),
        ("[[port]]\nname = 'a'\nkind = 'pcap'\ninput = 'x.pcap'\n", "hitpath replay"),
        (
            "[gateway]\nprocessors = [4095]\n[[port]]\nname = 'a'\nkind = 'memory'\n",
            "processor 4095",
        ),
        ("nonsense", "gw.toml:1:"),
    ] {
        let file = folder.write("gw.toml", config);
        let ended = hitpath(&[
            "run".as_ref(),
            "--config".as_ref(),
            file.as_os_str(),
            "--socket".as_ref(),
            socket.as_os_str(),
            "--state-directory".as_ref(),
            "off".as_ref(),
        ])
        .with(1);
        assert!(ended.err.contains(why), "{why}: {}", ended.err);
        assert!(!socket.exists(), "{why}");
    }
}

#[test]
fn workers_share_the_ports_and_sleep_or_poll() {
    for idle in ["sleep", "poll"] {
        let folder = Folder::new();
        let config = folder.write(
            "gw.toml",
            format!("[gateway]\nworkers = 3\nbuffers = 1024\nidle = \"{idle}\"\n{GATEWAY}"),
        );
        let daemon = Daemon::start(&folder, &config);
        let rounds = |daemon: &Daemon| daemon.json("show workers")[2]["rounds"].as_u64().unwrap();
        let before = rounds(&daemon);
        eventually("the last worker to go round", || rounds(&daemon) > before);
        assert_eq!(daemon.json("show workers").as_array().unwrap().len(), 3);
    }
}
