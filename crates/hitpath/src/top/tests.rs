use std::time::{Duration, Instant};

use api::{Counters, DropView, PortStatistics, PortView, StateView, WorkerView};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::sample::Sample;
use super::screen::{Asked, Screen, text};
use super::view::{Table, Used, View, duration, short};

fn port(name: &str, packets: u64) -> PortView {
    let json = serde_json::json!({
        "name": name, "id": 0, "kind": "memory", "vrf": "main", "link": "ethernet",
        "mac": "02:00:00:00:00:01", "mtu": 1500, "up": true, "addresses": [],
    });
    let mut port: PortView = serde_json::from_value(json).expect("a port");
    port.statistics = Some(PortStatistics {
        rx_packets: packets,
        rx_bytes: 100 * packets,
        tx_dropped: packets / 100,
        ..PortStatistics::default()
    });
    port
}

fn sample(at: Instant, packets: u64) -> Sample {
    let drop = |reason: &str, packets| DropView {
        reason: reason.to_owned(),
        meaning: "Why, in a sentence that is longer than a narrow screen has room for.".to_owned(),
        packets,
    };
    Sample {
        at,
        ports: vec![port("lan", packets), port("wan", 0)],
        drops: vec![drop("no_route", packets / 10), drop("policy", 7), drop("hop_limit", 0)],
        workers: vec![WorkerView {
            packets,
            batches: packets / 4,
            rounds: packets,
            ..WorkerView::default()
        }],
        qdiscs: Vec::new(),
        sas: None,
        caches: None,
        statistics: None,
        connections: None,
        sa_count: 2,
    }
}

/// A screen of two samples, a second apart.
fn screen(view: View) -> Screen {
    let mut screen = Screen::new(view, Duration::from_secs(1), false);
    let begun = Instant::now();
    screen.take(Ok(sample(begun, 1000)));
    screen.take(Ok(sample(begun + Duration::from_secs(1), 3000)));
    screen
}

fn drawn(screen: &Screen, width: u16, height: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| screen.draw(frame)).unwrap();
    let buffer = terminal.backend().buffer();
    (0..height)
        .map(|y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>())
        .map(|line| line.trim_end().to_owned())
        .collect()
}

fn key(code: KeyCode) -> KeyEvent {
    KeyEvent::new(code, KeyModifiers::NONE)
}

#[test]
fn a_screen_of_80_by_24_has_everything() {
    let lines = drawn(&screen(View::Ports), 80, 24);
    assert!(
        lines[0].starts_with("hitpath top - 2 ports, 1 worker, 2 SAs, 307 drops"),
        "{lines:#?}"
    );
    assert!(lines[1].contains("1:ports") && lines[1].contains("6:workers"), "{lines:#?}");
    assert_eq!(lines[2], "2.0k packets/s in, 0 out");
    assert!(lines[3].starts_with("PORT^"), "{lines:#?}");
    let lan: Vec<&str> = lines[4].split_whitespace().collect();
    assert_eq!(lan, ["lan", "up", "main", "2.0k", "1.6Mb", "0", "0", "20", "30", "0"]);
    assert!(lines[23].contains("q quit") && lines[23].contains("h help"), "{lines:#?}");
}

#[test]
fn no_size_is_too_small() {
    for view in View::ALL {
        let screen = screen(view);
        for (width, height) in [(1, 1), (2, 3), (20, 5), (40, 10), (79, 23), (300, 100)] {
            assert_eq!(drawn(&screen, width, height).len(), usize::from(height));
        }
    }
    let lines = drawn(&screen(View::Drops), 40, 8);
    assert!(lines[1].contains("2:drops") && lines[1].trim_end().ends_with('6'), "{lines:#?}");
    assert!(lines[4].starts_with("no_route"), "{lines:#?}");
}

#[test]
fn a_column_is_shown_whole_or_not_at_all() {
    for view in View::ALL {
        let mut screen = screen(view);
        let wide = drawn(&screen, 300, 24)[3].clone();
        let all: Vec<&str> = wide.trim_end_matches(['^', 'v']).split_whitespace().collect();
        for _ in 0..all.len() {
            screen.key(key(KeyCode::Char('s')));
            let wide = drawn(&screen, 300, 24)[3].clone();
            let mark = wide.split_whitespace().find(|name| name.ends_with(['^', 'v'])).unwrap();
            for width in [30, 60, 80, 120] {
                let shown = drawn(&screen, width, 24)[3].clone();
                assert!(shown.contains(mark), "{view:?}, {width}: {shown}");
                let wrong =
                    shown.split_whitespace().find(|name| !wide.contains(&format!("{name} ")));
                let is_last = |name: &str| wide.trim_end().ends_with(name);
                assert!(wrong.is_none_or(is_last), "{view:?}, {width}: {shown}");
            }
        }
    }
}

#[test]
fn keys_sort_filter_pause_and_change_the_view() {
    let mut screen = screen(View::Drops);
    assert!(drawn(&screen, 80, 24)[4].starts_with("no_route"));
    assert!(!drawn(&screen, 80, 24).iter().any(|line| line.starts_with("hop_limit")));
    assert_eq!(screen.key(key(KeyCode::Char('r'))), Asked::Nothing);
    assert!(drawn(&screen, 80, 24)[4].starts_with("policy"));
    for character in "/polic".chars() {
        screen.key(key(KeyCode::Char(character)));
    }
    assert!(drawn(&screen, 80, 24)[23].starts_with("/polic_"));
    screen.key(key(KeyCode::Enter));
    let lines = drawn(&screen, 80, 24);
    assert!(lines[4].starts_with("policy") && lines[5].is_empty(), "{lines:#?}");
    screen.key(key(KeyCode::Esc));
    assert!(!drawn(&screen, 80, 24)[5].is_empty());
    screen.key(key(KeyCode::Char('p')));
    assert!(drawn(&screen, 80, 24)[0].contains("PAUSED"));
    assert_eq!(screen.key(key(KeyCode::Char('6'))), Asked::Sample);
    let lines = drawn(&screen, 100, 24);
    let worker: Vec<&str> = lines[4].split_whitespace().collect();
    assert_eq!(worker, ["0", "-", "2.0k", "500", "4.0", "25.0%", "0", "0", "3.0k"], "{lines:#?}");
    screen.key(key(KeyCode::Tab));
    assert!(drawn(&screen, 80, 24)[2].contains("packets/s"));
    screen.key(key(KeyCode::Char('?')));
    assert!(drawn(&screen, 80, 24).iter().any(|line| line.contains("another view")));
    screen.key(key(KeyCode::Char('q')));
    assert_eq!(screen.key(key(KeyCode::Char('q'))), Asked::Leave, "the first has closed the help");
    assert_eq!(screen.key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)), Asked::Leave);
}

#[test]
fn a_daemon_that_stops_is_told_and_its_numbers_begin_anew() {
    let mut screen = screen(View::Ports);
    screen.take(Err(anyhow::anyhow!("no daemon at\u{1b} x")));
    let lines = drawn(&screen, 80, 24);
    assert!(lines[0].starts_with("no answer: no daemon at"), "{lines:#?}");
    assert!(lines[4].starts_with("lan"), "what was known stays");
    screen.take(Ok(sample(Instant::now() + Duration::from_secs(9), 5)));
    let lines = drawn(&screen, 80, 24);
    assert!(lines[2].starts_with("rates come"), "{lines:#?}");
    screen.take(Ok(sample(Instant::now() + Duration::from_secs(10), 4)));
    let lan: Vec<String> =
        drawn(&screen, 80, 24)[4].split_whitespace().map(str::to_owned).collect();
    assert_eq!(lan[3], "-", "a count that fell has no rate");
}

#[test]
fn security_associations_say_when_they_were_used() {
    let mut now = sample(Instant::now(), 0);
    let json = serde_json::json!({
        "vrf": "main", "source": "192.0.2.1", "destination": "192.0.2.2", "spi": 0x1001,
        "reqid": 1, "mode": "tunnel", "replay_window": 64, "flags": [], "sent_sequence": 0,
        "received_sequence": 0, "newest": true, "origin": "runtime", "packets": 0, "bytes": 0,
        "errors": { "packets": 0, "bytes": 0 },
    });
    let mut sa: StateView = serde_json::from_value(json).expect("an SA");
    now.sas = Some(vec![sa.clone()]);
    let mut later = sample(now.at + Duration::from_secs(2), 0);
    sa.traffic = Counters { packets: 10, bytes: 1000 };
    later.sas = Some(vec![sa]);
    let mut used = Used::new();
    let cells = |table: &Table| {
        table.rows[0].iter().map(|cell| cell.text.clone()).collect::<Vec<_>>().join(" ")
    };
    let table = Table::new(View::Sas, &now, None, &mut used);
    assert_eq!(cells(&table), "0x00001001 192.0.2.1 > 192.0.2.2 1 newest - - 0 - 0 - main");
    let table = Table::new(View::Sas, &later, Some(&now), &mut used);
    assert_eq!(cells(&table), "0x00001001 192.0.2.1 > 192.0.2.2 1 newest 5 4.0kb 10 0 0 0s main");
    assert!(text(&table).starts_with("1 security associations\nSPI"));
    // What the daemon says is not carried out by a terminal.
    let mut drops = sample(Instant::now(), 0);
    drops.drops[1].reason = "a\u{1b}[31mb".to_owned();
    let table = Table::new(View::Drops, &drops, None, &mut used);
    assert!(!text(&table).contains('\u{1b}'));
}

#[test]
fn numbers_are_short() {
    for (number, shown) in [
        (0.0, "0"),
        (0.25, "0.2"),
        (7.0, "7"),
        (999.0, "999"),
        (999.9, "1.0k"),
        (1500.0, "1.5k"),
        (12_345.0, "12k"),
        (99_000_000.0, "99M"),
        (1.5e9, "1.5G"),
        (1e30, "1000000000000000P"),
    ] {
        assert_eq!(short(number, ""), shown);
    }
    let all = [(5, "5s"), (65, "1m05s"), (3_700, "1h01m"), (90_000, "1d01h")];
    for (seconds, shown) in all {
        assert_eq!(duration(seconds), shown);
    }
}
