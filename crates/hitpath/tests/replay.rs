//! Capture files through the gateway, without root.

mod harness;

use std::fs;
use std::net::Ipv4Addr;
use std::path::PathBuf;

use harness::{Folder, GATEWAY, hitpath};
use io::pcap::{PcapReader, PcapWriter};
use packet::{LinkKind, Time};
use serde_json::Value;
use wire::ethernet::{self, EtherType};
use wire::{Mac, Protocol, ipv4};

const BEGIN: u64 = 1_700_000_000_000_000_000;
const MILLISECOND: u64 = 1_000_000;
const HOST: Mac = Mac([2, 0, 0, 0, 0, 0x55]);
const LAN: Mac = Mac([2, 0, 0, 0, 0, 1]);

/// A UDP datagram of the host's, `number` in its payload.
fn datagram(destination: [u8; 4], number: u32) -> Vec<u8> {
    let mut udp = vec![0x13, 0x88, 0, 53, 0, 12, 0, 0];
    udp.extend(number.to_be_bytes());
    let header = ipv4::Header {
        total_length: (ipv4::HEADER_LENGTH + udp.len()) as u16,
        protocol: Protocol::UDP,
        source: Ipv4Addr::new(10, 1, 0, 5),
        destination: destination.into(),
        ..ipv4::Header::default()
    };
    [&header.to_bytes()[..], &udp].concat()
}

fn framed(packet: &[u8]) -> Vec<u8> {
    let header = ethernet::Header { destination: LAN, source: HOST, ether_type: EtherType::IPV4 };
    [&header.to_bytes()[..], packet].concat()
}

fn capture(folder: &Folder, name: &str, link: LinkKind, packets: &[Vec<u8>]) -> PathBuf {
    let path = folder.path(name);
    let mut writer = PcapWriter::create(&path, link).unwrap();
    for (at, packet) in packets.iter().enumerate() {
        writer.write(Time(BEGIN + at as u64 * MILLISECOND), packet).unwrap();
    }
    writer.finish().unwrap();
    path
}

/// Replays with `-j` and returns the report and what was sent by wan.
fn replay(folder: &Folder, lan: &str, options: &[&str], code: i32) -> (Value, Vec<(u64, Vec<u8>)>) {
    let neighbour =
        "[[neighbour]]\nport = \"lan\"\naddress = \"10.1.0.9\"\nmac = \"02:00:00:00:00:99\"\n";
    let config = folder.write("gw.toml", format!("{GATEWAY}\n{neighbour}"));
    let out = folder.path("wan.pcap");
    let (lan, wan) =
        (format!("lan={}", folder.path(lan).display()), format!("wan={}", out.display()));
    let words = ["replay", "-j", "--config", config.to_str().unwrap(), "--in", &lan, "--out", &wan];
    let report = hitpath(&[&words, options].concat()).with(code).json();
    (report, read(&out))
}

fn read(path: &std::path::Path) -> Vec<(u64, Vec<u8>)> {
    let mut reader = PcapReader::open(path).unwrap();
    let mut packets = Vec::new();
    while let Some(record) = reader.next_record().unwrap() {
        packets.push((record.time.0, record.bytes.to_vec()));
    }
    packets
}

fn dropped(report: &Value) -> Vec<(String, u64)> {
    let drops = report["drops"].as_array().unwrap().iter();
    drops
        .map(|drop| {
            (drop["reason"].as_str().unwrap().to_owned(), drop["packets"].as_u64().unwrap())
        })
        .filter(|(_, packets)| *packets > 0)
        .collect()
}

#[test]
fn every_packet_is_encrypted_in_its_captures_time() {
    let folder = Folder::new();
    let packets: Vec<_> = (0..20).map(|number| framed(&datagram([10, 2, 0, 7], number))).collect();
    capture(&folder, "lan.pcap", LinkKind::Ethernet, &packets);
    let (report, sent) = replay(&folder, "lan.pcap", &["--assume-neighbours"], 0);
    assert_eq!(sent.len(), 20, "{report}");
    for (at, (time, frame)) in sent.iter().enumerate() {
        assert_eq!(*time, BEGIN + at as u64 * MILLISECOND);
        assert_eq!(frame[..6], [2, 0, 192, 0, 2, 2], "the made-up neighbour's address");
        assert_eq!(frame[23], Protocol::ESP.0);
        assert_eq!(frame[38..42], (at as u32 + 1).to_be_bytes(), "the sequence number");
    }
    assert_eq!(dropped(&report), []);
    let sa = report["sas"].as_array().unwrap().iter().find(|sa| sa["spi"] == 0x1001).unwrap();
    assert_eq!(sa["packets"], 20);
    let policies = report["policies"].as_array().unwrap();
    let out = policies
        .iter()
        .find(|policy| policy["direction"] == "out" && policy["action"] == "protect")
        .unwrap();
    assert_eq!(out["packets"], 20);
    assert_eq!(report["ports"][0]["statistics"]["rx_packets"], 20);
    let counter = |name: &str| {
        let all = report["counters"].as_array().unwrap();
        all.iter().find(|counter| counter["name"] == name).unwrap()["value"].clone()
    };
    assert_eq!((counter("encrypted"), counter("received")), (20.into(), 20.into()));
    assert_eq!((&report["begin_ns"], &report["held"]), (&BEGIN.into(), &0.into()));
}

#[test]
fn one_seed_gives_one_output_and_another_seed_another() {
    let folder = Folder::new();
    let packets: Vec<_> =
        (0..300).map(|number| framed(&datagram([10, 2, 0, number as u8], number))).collect();
    capture(&folder, "lan.pcap", LinkKind::Ethernet, &packets);
    let run = |seed: &str| {
        let (report, sent) =
            replay(&folder, "lan.pcap", &["--assume-neighbours", "--seed", seed], 0);
        assert_eq!(sent.len(), 300);
        (report, fs::read(folder.path("wan.pcap")).unwrap())
    };
    let first = run("7");
    assert!(first == run("7"));
    let (report, bytes) = run("8");
    assert!(report["drops"] == first.0["drops"] && bytes != first.1);
}

#[test]
fn raw_ip_comes_in_without_a_link_header() {
    let folder = Folder::new();
    capture(&folder, "lan.pcap", LinkKind::Ip, &[datagram([203, 0, 113, 7], 1)]);
    let (report, sent) = replay(&folder, "lan.pcap", &["--assume-neighbours"], 0);
    assert_eq!((sent.len(), &report["ports"][0]["link"]), (1, &"ip".into()), "{report}");
    assert_eq!(sent[0].1[22], 63, "the hop limit is one less");
}

#[test]
fn jumbo_frames_find_large_buffers_if_a_port_asks_for_them() {
    let folder = Folder::new();
    let udp = [&[0x13, 0x88, 0, 53, 0x1f, 0x40, 0, 0][..], &[7; 7992]].concat();
    let header = ipv4::Header {
        total_length: (ipv4::HEADER_LENGTH + udp.len()) as u16,
        protocol: Protocol::UDP,
        source: Ipv4Addr::new(10, 1, 0, 5),
        destination: Ipv4Addr::new(203, 0, 113, 7),
        ..ipv4::Header::default()
    };
    let jumbo = framed(&[&header.to_bytes()[..], &udp].concat());
    let input = capture(&folder, "lan.pcap", LinkKind::Ethernet, std::slice::from_ref(&jumbo));
    let run = |config: &str| {
        let config = folder.write("gw.toml", config);
        let lan = format!("lan={}", input.display());
        let wan = format!("wan={}", folder.path("wan.pcap").display());
        let words = ["replay", "-j", "--assume-neighbours", "--config", config.to_str().unwrap()];
        let report = hitpath(&[&words[..], &["--in", &lan, "--out", &wan]].concat()).with(0).json();
        (report["ports"][0]["statistics"].clone(), read(&folder.path("wan.pcap")))
    };
    let (counted, sent) = run(&format!("[gateway]\nlarge-buffers = 0\n{GATEWAY}"));
    assert_eq!((&counted["rx_errors"], sent.len()), (&1.into(), 0), "{counted}");
    let (counted, sent) =
        run(&GATEWAY.replace("kind = \"memory\"", "kind = \"memory\"\nmtu = 9000"));
    assert_eq!((&counted["rx_packets"], sent.len()), (&1.into(), 1), "{counted}");
    assert_eq!(sent[0].1[ethernet::HEADER_LENGTH + 20..], jumbo[ethernet::HEADER_LENGTH + 20..]);
}

#[test]
fn without_an_answer_packets_wait_and_are_then_dropped() {
    let folder = Folder::new();
    capture(&folder, "lan.pcap", LinkKind::Ethernet, &[framed(&datagram([203, 0, 113, 7], 1))]);
    let (report, sent) = replay(&folder, "lan.pcap", &[], 0);
    assert!(
        !sent.is_empty() && sent.iter().all(|(_, frame)| frame[12..14] == [8, 6]),
        "only ARP is sent"
    );
    // The second is the ICMP error to the host, which does not answer either.
    assert_eq!(dropped(&report), [("neighbour_unresolved".to_owned(), 2)]);
    assert!(report["afterwards_ns"].as_u64().unwrap() >= 1000 * MILLISECOND);
}

#[test]
fn a_damaged_capture_is_replayed_up_to_the_damage() {
    let folder = Folder::new();
    let packets: Vec<_> =
        (0..5).map(|number| framed(&datagram([203, 0, 113, 7], number))).collect();
    let path = capture(&folder, "lan.pcap", LinkKind::Ethernet, &packets);
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() - 3]).unwrap();
    let (report, sent) = replay(&folder, "lan.pcap", &["--assume-neighbours"], 1);
    assert_eq!(sent.len(), 4);
    let damage = report["captures"][0]["damage"].as_str().unwrap();
    assert!(damage.contains("lan.pcap") && damage.contains("at byte"), "{damage}");
}

#[test]
fn years_of_silence_take_no_years() {
    let folder = Folder::new();
    let path = folder.path("lan.pcap");
    let mut writer = PcapWriter::create(&path, LinkKind::Ethernet).unwrap();
    for year in 0..50 {
        writer
            .write(
                Time(year * 365 * 86_400_000 * MILLISECOND),
                &framed(&datagram([203, 0, 113, 7], 1)),
            )
            .unwrap();
    }
    writer.finish().unwrap();
    let (_, sent) = replay(&folder, "lan.pcap", &["--assume-neighbours"], 0);
    assert_eq!(sent.len(), 50);
}

#[test]
fn names_and_files_that_cannot_be_are_refused_before_anything_is_written() {
    let folder = Folder::new();
    let config = folder.write("gw.toml", GATEWAY);
    let config = config.to_str().unwrap();
    let capture =
        capture(&folder, "lan.pcap", LinkKind::Ethernet, &[framed(&datagram([203, 0, 113, 7], 1))]);
    let capture = capture.to_str().unwrap();
    let garbage = folder.write("garbage.pcap", "this is no capture");
    let out = folder.path("out.pcap");
    let out = format!("wan={}", out.display());
    let lan = format!("lan={capture}");
    for (words, code, why) in [
        (vec!["--in", "attic=x.pcap"], 2, "it has: lan, wan"),
        (vec!["--in", &lan, "--in", &lan], 2, "has a file already"),
        (vec!["--in", &lan, "--out", &format!("wan={capture}")], 2, "in use"),
        (vec!["--in", &lan, "--out", &format!("wan={config}")], 2, "is the configuration"),
        (vec!["--in", "lan"], 2, "PORT=FILE"),
        (vec!["--in", "lan=/nonexistent/x.pcap", "--out", &out], 1, "/nonexistent/x.pcap"),
        (vec!["--in", &format!("lan={}", garbage.display()), "--out", &out], 1, "garbage.pcap"),
    ] {
        let ended = hitpath(&[&["replay", "--config", config], &words[..]].concat()).with(code);
        assert!(ended.err.contains(why), "{why}: {}", ended.err);
    }
    assert!(!folder.path("out.pcap").exists());
    assert!(fs::metadata(capture).unwrap().len() > 24);
}

#[test]
fn the_report_for_people_ends_with_tables() {
    let folder = Folder::new();
    let config = folder.write("gw.toml", GATEWAY);
    let mut stranger = framed(&datagram([203, 0, 113, 7], 1));
    stranger[5] = 0x99;
    let path = capture(&folder, "lan.pcap", LinkKind::Ethernet, &[stranger]);
    let out = hitpath(&[
        "replay",
        "--config",
        config.to_str().unwrap(),
        "--in",
        &format!("lan={}", path.display()),
    ])
    .with(0)
    .out;
    for part in ["PORT", "link_not_for_us", "0x00001001", "10.2.0.0/16", "give the port the `mac`"]
    {
        assert!(out.contains(part), "{part}: {out}");
    }
}
