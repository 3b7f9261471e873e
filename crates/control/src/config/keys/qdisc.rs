//! Keys of queueing disciplines.

use super::{Section, key};

pub(super) const QDISC: Section = Section {
    name: "qdisc",
    many: true,
    keys: &[
        key(
            "dev",
            "name of a port or VRF",
            "",
            "required",
            "Where it stands: before a port and its VLANs, or before all ports of a VRF \
            together.",
        ),
        key(
            "kind",
            "\"tbf\", \"fq_codel\" or \"pfifo\"",
            "",
            "required",
            "What it is, by tc's names: a token bucket, flow queues with controlled delay, or \
            first in, first out. See [queueing disciplines](qdisc.md).",
        ),
        key(
            "handle",
            "\"1:\" to \"ffff:\", hexadecimal",
            "",
            "\"8001:\", or the next one",
            "Its name on `dev`.",
        ),
        key(
            "parent",
            "handle",
            "",
            "none: it is the root",
            "The `tbf` of the same `dev` that it stands under.",
        ),
        key(
            "rate",
            "rate as with tc, as in \"100mbit\"",
            "bits a second without unit",
            "required",
            "What may leave in the long run, link headers included, of kind `tbf`.",
        ),
        key(
            "burst",
            "size as with tc, as in \"32kb\"",
            "bytes",
            "required",
            "What may leave at once after a pause, of kind `tbf`: one frame at least.",
        ),
        key(
            "latency",
            "time as with tc, as in \"50ms\"",
            "microseconds without unit",
            "none",
            "How long a packet may wait, of kind `tbf` with nothing under it: a `limit` of \
            `rate` times this, and `burst`.",
        ),
        key(
            "limit",
            "1 to 1000000, or of kind `tbf` a size",
            "packets, or of kind `tbf` bytes",
            "10240 of kind `fq_codel`, 1000 of kind `pfifo`",
            "What may wait. Kind `tbf` needs this or `latency`.",
        ),
        key(
            "flows",
            "1 to 65536",
            "",
            "1024",
            "Queues that flows are hashed to, of kind `fq_codel`.",
        ),
        key(
            "target",
            "time",
            "microseconds without unit",
            "\"5ms\"",
            "How long packets of a flow may wait all the time, of kind `fq_codel`.",
        ),
        key(
            "interval",
            "time",
            "microseconds without unit",
            "\"100ms\"",
            "How long they may wait longer before one is dropped or marked, of kind `fq_codel`.",
        ),
        key(
            "quantum",
            "256 to 1048576",
            "bytes",
            "1514",
            "What a flow may send before it is another one's turn, of kind `fq_codel`.",
        ),
        key(
            "ecn",
            "true or false",
            "",
            "true",
            "Whether packets whose sender understands it are marked instead of dropped (RFC \
            3168), of kind `fq_codel`.",
        ),
        key(
            "ce-threshold",
            "time",
            "microseconds without unit",
            "none",
            "Such packets are marked whenever they have waited longer, of kind `fq_codel`.",
        ),
        key(
            "memory-limit",
            "size, 16384 at least",
            "bytes",
            "\"32mb\"",
            "Memory of what may wait, of kind `fq_codel`. A frame takes 2368 bytes, one of more \
            than 2048 takes 9536.",
        ),
    ],
};
