//! Keys of the gateway as a whole.

use super::{Section, key};

pub(super) const GATEWAY: Section = Section {
    name: "gateway",
    many: false,
    keys: &[
        key(
            "workers",
            "1 to 64",
            "threads",
            "1",
            "Worker threads. Each has its own queue of every port. What several of them \
            encrypt with one SA may overtake by a batch of 256 packets each: give the peer a \
            replay window of 512 for each worker.",
        ),
        key(
            "processors",
            "list of numbers",
            "",
            "free ones that the process may use",
            "The processors that the workers are pinned to, one for each worker.",
        ),
        key(
            "idle",
            "\"sleep\" or \"poll\"",
            "",
            "\"sleep\"",
            "What a worker does while no packet comes: wait in the kernel, or keep asking, \
            which costs a whole processor and answers sooner.",
        ),
        key(
            "buffers",
            "1024 to 4194304",
            "packets",
            "16384",
            "Packet buffers of each worker, of 2368 bytes each.",
        ),
        key(
            "large-buffers",
            "0, or 256 to 65536",
            "packets",
            "1024 if a port's frames need them at the start, else 256",
            "Packet buffers of each worker for frames of more than 2048 bytes, of 9536 bytes \
            each, and for fragments that make more than 2034 bytes together. Without them no \
            port can have an MTU above 2034 (2048 of kind `memory` or `pcap` without link \
            header).",
        ),
        key(
            "socket",
            "path",
            "",
            "\"/run/hitpath/control.sock\"",
            "The control socket. It is made with mode 0600.",
        ),
        key(
            "state-directory",
            "path, or \"off\"",
            "",
            "\"/var/lib/hitpath\" if the gateway runs as root, else \"off\"",
            "Where changes by command are kept, and the sequence numbers of SAs, so that they \
            survive a restart: see [state](state.md) and \
            [sequence numbers](sequence-numbers.md). Each gateway needs a directory of its \
            own. It is made with mode 0700.",
        ),
        key(
            "allow-sequence-reuse",
            "true or false",
            "",
            "false",
            "Whether SAs of AES-GCM are taken where `state-directory` is off. After a restart \
            their keys send the same sequence numbers again, which a peer refuses as replays, \
            and IVs that are new by chance alone: for keys that end with the gateway.",
        ),
        key(
            "keep-keys",
            "true or false",
            "",
            "true",
            "Whether SAs that commands add are kept there too, with their keys, in a file of \
            mode 0600.",
        ),
        key(
            "keys-file",
            "path",
            "",
            "none",
            "A file with keys, one in each line, that SAs name by `key:1`, `key:2` and so on. \
            A path that does not begin with `/` is looked up beside this file.",
        ),
        key(
            "keys-id",
            "text",
            "",
            "none",
            "What the first line of that file says behind `# keys-id `, which is no key then and \
            does not count; it is refused if it says something else. `hitpath save` writes it, so \
            that no SA gets the key of another one from the file of another configuration.",
        ),
        key(
            "seccomp",
            "\"on\", \"log\" or \"off\"",
            "",
            "\"on\"",
            "What happens to system calls that a gateway has no use for: they fail and the \
            system logs them; they are made and logged; nothing.",
        ),
    ],
};
