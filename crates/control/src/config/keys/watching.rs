//! Keys of what tells about the gateway: metrics, the page and the audit log.

use super::{Section, key};

/// The address of something that is served: what, a port for example, and what it needs.
macro_rules! address {
    ($served:literal, $port:literal, $needs:literal) => {
        key(
            "address",
            "ADDRESS:PORT",
            "",
            "none",
            concat!(
                $served,
                ", as in `127.0.0.1:",
                $port,
                "` or `[::1]:",
                $port,
                "`: an address of this machine's own, not one of the gateway's ports.",
                $needs,
            ),
        )
    };
}

/// The file with the token that is asked for there: for what.
macro_rules! token_file {
    ($for:literal) => {
        key(
            "token-file",
            "path",
            "",
            "none",
            concat!(
                "A file with one line of 16 to 256 printable characters",
                $for,
                ". A path that does not begin with `/` is looked up beside this file.",
            ),
        )
    };
}

pub(super) const METRICS: Section = Section {
    name: "metrics",
    many: false,
    keys: &[
        address!("Where `GET /metrics` is served beside the control socket", "9464", ""),
        token_file!(": who asks at `address` has to send `Authorization: Bearer` and this line"),
        key(
            "anyone",
            "true or false",
            "",
            "false",
            "Whether whoever reaches `address` may read, without a token. An address that is \
            not of the loopback interface needs this or `token-file`.",
        ),
        key(
            "objects",
            "0 to 10000",
            "objects",
            "1000",
            "Objects of one kind (ports, VRFs, SAs, policies, next hops, queueing disciplines, \
            NAT pools, rules of filters, flows, rules of the firewall) that have metrics of \
            their own. If there are more, none of the kind has, and `hitpath_objects_left_out` says \
            how many.",
        ),
    ],
};

pub(super) const PAGE: Section = Section {
    name: "page",
    many: false,
    keys: &[
        address!("Where the page is served", "8080", " It needs `token-file`."),
        token_file!(", which the page asks for at `address`"),
        key(
            "socket",
            "path",
            "",
            "none",
            "A Unix socket where the page is served without a token, for ssh or a proxy in \
            front of it. It is made with mode 0600.",
        ),
        key(
            "socket-group",
            "true or false",
            "",
            "false",
            "Whether the group of the daemon may connect to `socket` as well: mode 0660.",
        ),
    ],
};

pub(super) const AUDIT: Section = Section {
    name: "audit",
    many: false,
    keys: &[key(
        "log",
        "\"auto\", \"stderr\", \"journal\", \"off\" or a path",
        "",
        "\"auto\"",
        "Where it is written who changed what, and what became of it (docs/audit.md): in \
        the systemd journal with a field for each part, on standard error, nowhere, or in a \
        file, whose path begins with `/`. `auto` is the journal if standard error is connected \
        to it, as in a service, and standard error otherwise.",
    )],
};
