//! iproute2's grammar, and what the model does with what it accepts, on one input.

use api::Request;
use control::{Control, OpenedPort};
use packet::{LinkKind, Time};
use types::{Mac, PortId};

const CONFIG: &str =
    "[[port]]\nname = \"lan\"\nkind = \"memory\"\naddresses = [\"192.0.2.1/24\"]\n";

/// Reads each line of `bytes` as a command, words between white space or single quotes, and carries
/// out what is accepted. Returns how many commands were accepted and how many carried out.
///
/// # Panics
/// If the crates break a promise.
pub fn examine(bytes: &[u8]) -> (usize, usize) {
    let text = String::from_utf8_lossy(bytes);
    let (mut accepted, mut done, mut control) = (0, 0, None);
    for line in text.lines() {
        match control::grammar::parse(&split(line)) {
            Ok(request) => {
                accepted += 1;
                let json = serde_json::to_string(&request).expect("every request has a JSON form");
                let read: Request = serde_json::from_str(&json)
                    .unwrap_or_else(|error| panic!("{error}: {json}, from {line:?}"));
                assert_eq!(read, request, "{json}");
                let reply = control.get_or_insert_with(gateway).handle(request, Time(1));
                match reply {
                    Ok(_) => done += 1,
                    Err(refusal) => assert!(!refusal.message.is_empty()),
                }
            }
            Err(refusal) => assert!(!refusal.message.is_empty()),
        }
    }
    (accepted, done)
}

/// Splits as a shell would, with single quotes.
fn split(line: &str) -> Vec<&str> {
    let mut words = Vec::new();
    for (at, part) in line.split('\'').enumerate() {
        if at % 2 == 1 {
            words.push(part);
        } else {
            words.extend(part.split_whitespace());
        }
    }
    words
}

/// A gateway with one port.
fn gateway() -> Control {
    let mut control = Control::new(1, [7; 32]);
    let plan = control.plan(control::load("fuzz.toml", CONFIG).expect("a good file"));
    let port = OpenedPort {
        name: "lan".to_owned(),
        id: PortId(0),
        mac: Mac([2, 0, 0, 0, 0, 1]),
        mtu: 1500,
        link: LinkKind::Ethernet,
    };
    control.apply(plan, &[port], Time(0)).expect("a gateway");
    control
}
