//! The stages and what leads from one to another, for drawings and for readers.

/// One stage of a packet's way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stage {
    /// Its name, which is also the name of the function that is called for it.
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
            does: "takes a batch of frames from a port",
            next: &["parse", "drop"],
        },
        Stage {
            name: "parse",
            does: "checks and strips the link header, judges the IP packet, makes its flow's key",
            next: &["decide", "arp", "neighbour discovery", "drop"],
        },
        Stage {
            name: "decide",
            does: "finds the flow's decision in the cache, or decides and keeps it; changes no \
                packet",
            next: &["confirm"],
        },
        Stage {
            name: "confirm",
            does: "holds decisions that were made for a connection against it, updates the connection \
                or makes it, and has decided again what is out of date",
            next: &["apply"],
        },
        Stage {
            name: "apply",
            does: "does what was decided: counts, hop limit, size, translation, link header",
            next: &["seal", "open", "transmit", "queue", "waiting", "reassembly", "host", "drop"],
        },
        Stage {
            name: "seal",
            does: "encrypts, the packets of one SA together, and adds the outer header",
            next: &["transmit", "queue", "waiting", "drop"],
        },
        Stage {
            name: "open",
            does: "decrypts, the packets of one SA together; the inner packets start again, those \
                above the edge of the replay window once that is moved",
            next: &["parse", "drop"],
        },
        Stage {
            name: "waiting",
            does: "sends what waited for a neighbour that is resolved now, gives up what waited \
                too long",
            next: &["transmit", "queue", "parse", "drop"],
        },
        Stage {
            name: "queue",
            does: "holds what leaves by ports and VRFs with a queueing discipline, and sends it when \
                it may leave",
            next: &["transmit", "drop"],
        },
        Stage {
            name: "transmit",
            does: "hands each port its outgoing batch",
            next: &["port", "drop"],
        },
    ]
}
