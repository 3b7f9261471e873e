//! The stages and what leads from one to another, for drawings and for readers.

/// One stage of a packet's way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stage {
    /// Its name: the function, and the file of [`crate`]'s `stage` folder.
    pub name: &'static str,
    /// What it does, in a sentence.
    pub does: &'static str,
    /// The stages, or ends, that a packet may go to from here.
    pub next: &'static [&'static str],
}

/// The stages in the order in which a batch goes through them.
pub const fn graph() -> &'static [Stage] {
    &[
        Stage {
            name: "receive",
            does: "takes a batch from a port, checks and strips the link header",
            next: &["parse", "arp", "drop"],
        },
        Stage {
            name: "parse",
            does: "judges the IP packet and names its flow",
            next: &["decide", "neighbour discovery", "drop"],
        },
        Stage {
            name: "decide",
            does: "finds in its cache what happens to the flow, or decides and keeps that; changes \
                no packet",
            next: &["apply"],
        },
        Stage {
            name: "apply",
            does: "does it: counts, hop limit, size, link header",
            next: &["seal", "open", "transmit", "reassemble", "host", "drop"],
        },
        Stage {
            name: "seal",
            does: "encrypts, the packets of one SA together, and adds the outer header",
            next: &["transmit", "drop"],
        },
        Stage {
            name: "open",
            does: "decrypts, the packets of one SA together; what was inside starts again",
            next: &["parse", "drop"],
        },
        Stage {
            name: "transmit",
            does: "hands the port its batch; packets without a known neighbour wait",
            next: &["port", "neighbour queue", "drop"],
        },
    ]
}
