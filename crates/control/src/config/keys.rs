//! Every key that a configuration file may have. The reader refuses all others, and
//! docs/configuration.md is held against this list.

use crate::settings::{PORT_KIND_MEANING, PORT_KIND_NAMES};

/// A table or array of tables.
#[derive(Debug)]
pub struct Section {
    /// Its name.
    pub name: &'static str,
    /// Whether there may be several, written `[[name]]`.
    pub many: bool,
    /// What it may hold.
    pub keys: &'static [Key],
}

/// A key.
#[derive(Debug)]
pub struct Key {
    /// Its name; a key of an inline table has the table's name and a dot in front.
    pub name: &'static str,
    /// What its value looks like.
    pub value: &'static str,
    /// What the value counts, where it counts something.
    pub unit: &'static str,
    /// What holds where the key is absent.
    pub default: &'static str,
    /// What it means.
    pub meaning: &'static str,
}

const fn key(
    name: &'static str,
    value: &'static str,
    unit: &'static str,
    default: &'static str,
    meaning: &'static str,
) -> Key {
    Key { name, value, unit, default, meaning }
}

/// What a timeout may be.
const TIMEOUT: &str = "1 to 31536000";

/// Every section, in the order of the documentation.
pub const SECTIONS: &[Section] = &[
    Section {
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
                "seccomp",
                "\"on\", \"log\" or \"off\"",
                "",
                "\"on\"",
                "What happens to system calls that a gateway has no use for: they fail and the \
                system logs them; they are made and logged; nothing.",
            ),
        ],
    },
    Section {
        name: "metrics",
        many: false,
        keys: &[
            key(
                "address",
                "ADDRESS:PORT",
                "",
                "none",
                "Where `GET /metrics` is served beside the control socket, as in \
                `127.0.0.1:9464` or `[::1]:9464`: an address of this machine's own, not one of \
                the gateway's ports.",
            ),
            key(
                "token-file",
                "path",
                "",
                "none",
                "A file with one line of 16 to 256 printable characters: who asks at `address` \
                has to send `Authorization: Bearer` and this line. A path that does not begin \
                with `/` is looked up beside this file.",
            ),
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
                NAT pools) that have metrics of their own. If there are more, none of the kind \
                has, and `hitpath_objects_left_out` says how many.",
            ),
        ],
    },
    Section {
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
    },
    Section {
        name: "ipsec",
        many: false,
        keys: &[
            key(
                "ipv4-outbound-spd-flow-cache",
                "\"on\", \"off\" or \"auto\"",
                "",
                "\"auto\"",
                "Whether decisions about IPv4 packets that leave, and those forwarded in clear, \
                are remembered: always, never, or while that pays, which each worker measures. \
                `true` is on, `false` is off.",
            ),
            key(
                "ipv4-inbound-spd-flow-cache",
                "\"on\", \"off\" or \"auto\"",
                "",
                "\"auto\"",
                "Whether decisions about IPv4 packets that were decrypted, and those to be \
                decrypted, are remembered: always, never, or while that pays, which each worker \
                measures. `true` is on, `false` is off.",
            ),
            key(
                "ipv6-outbound-spd-flow-cache",
                "\"on\", \"off\" or \"auto\"",
                "",
                "\"auto\"",
                "Whether decisions about IPv6 packets that leave, and those forwarded in clear, \
                are remembered: always, never, or while that pays, which each worker measures. \
                `true` is on, `false` is off.",
            ),
            key(
                "ipv6-inbound-spd-flow-cache",
                "\"on\", \"off\" or \"auto\"",
                "",
                "\"auto\"",
                "Whether decisions about IPv6 packets that were decrypted, and those to be \
                decrypted, are remembered: always, never, or while that pays, which each worker \
                measures. `true` is on, `false` is off.",
            ),
            key(
                "ipv4-outbound-spd-flow-cache-hash-buckets",
                "1 to 1073741824",
                "flows",
                "1048576",
                "How many of those flows each worker's table holds. Rounded up to a power of two.",
            ),
            key(
                "ipv4-inbound-spd-flow-cache-hash-buckets",
                "1 to 1073741824",
                "flows",
                "1048576",
                "How many of those flows each worker's table holds. Rounded up to a power of two.",
            ),
            key(
                "ipv6-outbound-spd-flow-cache-hash-buckets",
                "1 to 1073741824",
                "flows",
                "1048576",
                "How many of those flows each worker's table holds. Rounded up to a power of two.",
            ),
            key(
                "ipv6-inbound-spd-flow-cache-hash-buckets",
                "1 to 1073741824",
                "flows",
                "1048576",
                "How many of those flows each worker's table holds. Rounded up to a power of two.",
            ),
            key(
                "ipv4-outbound-spd-hash-buckets",
                "1 to 1073741824",
                "flows",
                "1048576",
                "The same as `ipv4-outbound-spd-flow-cache-hash-buckets`, under VPP's name.",
            ),
            key(
                "ipv4-inbound-spd-hash-buckets",
                "1 to 1073741824",
                "flows",
                "1048576",
                "The same as `ipv4-inbound-spd-flow-cache-hash-buckets`, under VPP's name.",
            ),
            key(
                "ipv6-outbound-spd-hash-buckets",
                "1 to 1073741824",
                "flows",
                "1048576",
                "The same as `ipv6-outbound-spd-flow-cache-hash-buckets`, under VPP's name.",
            ),
            key(
                "ipv6-inbound-spd-hash-buckets",
                "1 to 1073741824",
                "flows",
                "1048576",
                "The same as `ipv6-inbound-spd-flow-cache-hash-buckets`, under VPP's name.",
            ),
            key(
                "spd-flow-cache-associativity",
                "1 or 4",
                "places",
                "4",
                "How many places a flow may have in a table. With 1, flows that meet in a bucket \
                overwrite each other, as in VPP's caches.",
            ),
            key(
                "policy-lookup",
                "\"fast\" or \"linear\"",
                "",
                "\"fast\"",
                "How the policy of a packet is found whose decision is not remembered: by trees or \
                an index of their fields, or by trying them in order, eight at a time.",
            ),
        ],
    },
    Section {
        name: "conntrack",
        many: false,
        keys: &[
            key(
                "connections",
                "1 to 4194304",
                "connections",
                "262144",
                "Connections that there may be at once. Their memory is taken when the table is \
                made: about 310 bytes for each, and 64 more for each of IPv6.",
            ),
            key(
                "ipv6-connections",
                "0 to 4194304",
                "connections",
                "as `connections`",
                "How many of them may be of IPv6.",
            ),
            key(
                "accounting",
                "true or false",
                "",
                "false",
                "Whether packets and bytes of each direction are counted, as \
                nf_conntrack_acct does.",
            ),
            key(
                "loose",
                "true or false",
                "",
                "false",
                "Whether a TCP connection may be picked up in the middle, as \
                nf_conntrack_tcp_loose does.",
            ),
            key(
                "limits",
                "list of inline tables",
                "",
                "none",
                "Limits of connections, each of one zone, as in \
                `[{ zone = 5, connections = 1000 }]`.",
            ),
            key("limits.zone", "0 to 65535", "", "required", "The zone."),
            key(
                "limits.connections",
                "1 to 4194304",
                "connections",
                "required",
                "Connections that it may have.",
            ),
            key(
                "source-limits",
                "inline table",
                "",
                "none",
                "Limits of the connections that one source opens, in each zone by itself, as in \
                `{ connections = 500 }`.",
            ),
            key(
                "source-limits.connections",
                "1 to 4194304",
                "connections",
                "none",
                "Connections of one source address.",
            ),
            key(
                "source-limits.prefix-connections",
                "1 to 4194304",
                "connections",
                "none",
                "Connections of all addresses of one prefix.",
            ),
            key(
                "source-limits.ipv4-prefix",
                "0 to 32",
                "bits",
                "24",
                "Length of an IPv4 prefix. Connections that were there when it changes count no \
                more.",
            ),
            key("source-limits.ipv6-prefix", "0 to 128", "bits", "64", "The same of IPv6."),
            key(
                "timeouts",
                "inline table",
                "",
                "nf_conntrack's",
                "How long a connection may be unused, by its state. A change concerns also \
                connections that there are.",
            ),
            key("timeouts.generic", TIMEOUT, "s", "600", "A protocol without states."),
            key("timeouts.tcp-syn-sent", TIMEOUT, "s", "120", "A SYN was seen, or SYNs crossed."),
            key("timeouts.tcp-syn-recv", TIMEOUT, "s", "60", "SYN and SYN-ACK were seen."),
            key("timeouts.tcp-established", TIMEOUT, "s", "432000", "Both SYNs are acknowledged."),
            key(
                "timeouts.tcp-unacknowledged",
                TIMEOUT,
                "s",
                "300",
                "Established, and data is not acknowledged, or picked up (`loose`) and not answered \
                 yet.",
            ),
            key("timeouts.tcp-fin-wait", TIMEOUT, "s", "120", "One side has sent a FIN."),
            key("timeouts.tcp-close-wait", TIMEOUT, "s", "60", "This FIN is acknowledged."),
            key("timeouts.tcp-last-ack", TIMEOUT, "s", "30", "Both sides have sent a FIN."),
            key("timeouts.tcp-time-wait", TIMEOUT, "s", "120", "Both FINs are acknowledged."),
            key("timeouts.tcp-close", TIMEOUT, "s", "10", "Reset."),
            key("timeouts.udp", TIMEOUT, "s", "30", "UDP and UDP-Lite, one way or not for long."),
            key(
                "timeouts.udp-stream",
                TIMEOUT,
                "s",
                "120",
                "UDP both ways for more than two seconds.",
            ),
            key("timeouts.sctp-closed", TIMEOUT, "s", "10", "Aborted or shut down."),
            key("timeouts.sctp-cookie-wait", TIMEOUT, "s", "3", "An INIT was seen."),
            key("timeouts.sctp-cookie-echoed", TIMEOUT, "s", "3", "A COOKIE ECHO was seen."),
            key("timeouts.sctp-established", TIMEOUT, "s", "210", "The association is up."),
            key(
                "timeouts.sctp-shutdown-sent",
                TIMEOUT,
                "s",
                "3",
                "A SHUTDOWN was seen in the original direction.",
            ),
            key(
                "timeouts.sctp-shutdown-recd",
                TIMEOUT,
                "s",
                "3",
                "A SHUTDOWN was seen in the reply direction.",
            ),
            key("timeouts.sctp-shutdown-ack-sent", TIMEOUT, "s", "3", "A SHUTDOWN ACK was seen."),
            key(
                "timeouts.sctp-heartbeat-sent",
                TIMEOUT,
                "s",
                "30",
                "A heartbeat on another path was seen.",
            ),
            key("timeouts.icmp", TIMEOUT, "s", "30", "ICMP queries."),
            key("timeouts.icmpv6", TIMEOUT, "s", "30", "ICMPv6 queries."),
        ],
    },
    Section {
        name: "vrf",
        many: true,
        keys: &[
            key(
                "name",
                "name",
                "",
                "required",
                "Its name. The VRF `main` exists in any case, and may be named to set its default \
                actions.",
            ),
            key(
                "table",
                "number",
                "",
                "one from 1000001 on",
                "The number of its routing table, as with Linux. That of `main` is 254.",
            ),
            key(
                "ipsec",
                "\"auto\", \"off\" or \"required\"",
                "",
                "\"auto\"",
                "Whether the VRF is an IPsec gateway. `required`: while it has no policies, nothing \
                crosses its boundary. `auto`: a plain router until its first policy, or an SA in \
                this file, makes it `required`. `off`: a plain router, which takes no policies.",
            ),
            key(
                "ike",
                "\"bypass\" or \"policy\"",
                "",
                "\"bypass\"",
                "Whether IKE (UDP 500 and 4500) for the gateway's own addresses is asked policies. \
                `bypass`: it never is, so that a key daemon is reached before there are policies. \
                `policy`: it is judged as other packets for the gateway are.",
            ),
            key(
                "highest-share",
                "number",
                "",
                "100",
                "The most in percent, from 1 to 100, that the VRF may have of what VRFs share: \
                memory for fragments and for packets that wait, and ICMP errors.",
            ),
            key(
                "default-in",
                "\"block\" or \"accept\"",
                "",
                "\"block\"",
                "What happens to packets for the gateway itself that no policy matches, where the \
                VRF has policies; and to forwarded ones, where it has no `fwd` policy.",
            ),
            key(
                "default-out",
                "\"block\" or \"accept\"",
                "",
                "\"block\"",
                "What happens to packets that leave and that no policy matches, where the VRF has \
                policies.",
            ),
            key(
                "default-fwd",
                "\"block\" or \"accept\"",
                "",
                "\"block\"",
                "What happens to forwarded packets that no policy matches, where the VRF has `fwd` \
                policies. Without, `in` policies and `default-in` decide.",
            ),
        ],
    },
    Section {
        name: "port",
        many: true,
        keys: &[
            key("name", "name", "", "required", "Its name, which all else calls it by."),
            key("kind", PORT_KIND_NAMES, "", "required", PORT_KIND_MEANING),
            key(
                "interface",
                "interface name",
                "",
                "the port's name",
                "The system's interface, of kinds that are on one.",
            ),
            key(
                "receive-ring",
                "65536 to 1073741824",
                "bytes",
                "33554432",
                "Memory for received frames that wait for a worker, for each worker, of kinds that \
                are on an interface. A frame of an MTU of 1500 takes 2048.",
            ),
            key(
                "input",
                "path",
                "",
                "none",
                "The capture file that packets come from, of kind `pcap`.",
            ),
            key(
                "output",
                "path",
                "",
                "none",
                "The capture file that packets go to, of kind `pcap`.",
            ),
            key(
                "link",
                "\"ethernet\" or \"ip\"",
                "",
                "\"ethernet\"",
                "What frames begin with, of kind `memory` and `pcap`. An input file says it \
                itself.",
            ),
            key(
                "parent",
                "port name",
                "",
                "required",
                "The port whose VLAN it is, of kind `vlan`.",
            ),
            key(
                "id",
                "1 to 4094",
                "",
                "required",
                "The number in the tags of its frames, of kind `vlan`.",
            ),
            key(
                "protocol",
                "\"802.1Q\" or \"802.1ad\"",
                "",
                "\"802.1Q\"",
                "What kind of tag they have, of kind `vlan`.",
            ),
            key(
                "dev",
                "port name",
                "",
                "required",
                "The port that outer packets are to leave by, of kind `xfrm`. Shown only: they are \
                routed.",
            ),
            key(
                "if-id",
                "1 to 4294967295",
                "",
                "required",
                "Links it with SAs and policies, of kind `xfrm`.",
            ),
            key("vrf", "name", "", "\"main\"", "The VRF that its packets are routed in."),
            key(
                "mac",
                "MAC address",
                "",
                "the interface's own, one made from the name, or the parent's",
                "Its Ethernet address. A VLAN has its parent's.",
            ),
            key(
                "side",
                "\"protected\", \"unprotected\" or \"unset\"",
                "",
                "\"unset\"",
                "On which side of the IPsec boundary it is (RFC 4301 section 3.1). Packets from \
                protected ports owe no `in` or `fwd` policy, packets that leave by one no `out` \
                policy. A port that holds a tunnel's own address, or by which a tunnel leaves, is \
                unprotected unless it is said to be protected.",
            ),
            key(
                "rpf",
                "\"off\", \"loose\", \"feasible\" or \"strict\"",
                "",
                "\"off\"",
                "How the source of clear packets is held against the routes (RFC 3704): not at \
                all; some route leads there; a next hop of the route is by this port; every one \
                is. Others are dropped as `reverse_path`.",
            ),
            key(
                "mss-clamp",
                "\"off\", \"pmtu\" or 48 to 65535",
                "bytes",
                "\"off\"",
                "The largest MSS that TCP connections may announce in SYNs that come or leave by \
                this port: what fits the way there and back, or a number. It is only ever made \
                smaller.",
            ),
            key(
                "mtu",
                "68 to 9216",
                "bytes",
                "the interface's own, 1500, or the parent's",
                "The largest IP packet. With an IPv6 address, 1280 at least. That of a VLAN is at \
                most its parent's.",
            ),
            key(
                "addresses",
                "list of addresses with prefix lengths",
                "",
                "none",
                "Its own addresses. Each makes the prefix reachable on the link.",
            ),
            key(
                "up",
                "true or false",
                "",
                "true",
                "Whether it may send and receive. A VLAN is down while its parent is.",
            ),
        ],
    },
    Section {
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
    },
    Section {
        name: "route",
        many: true,
        keys: &[
            key(
                "to",
                "prefix, or \"default\"",
                "",
                "required",
                "The destinations. `default` is 0.0.0.0/0, or ::/0 where the next hop is an IPv6 \
                address.",
            ),
            key("vrf", "name", "", "\"main\"", "The VRF whose packets it is for."),
            key(
                "table",
                "number",
                "",
                "that of `vrf`",
                "Its routing table, in place of `vrf`. The routes of one that no VRF has are taken if a \
                policy rule leads there.",
            ),
            key(
                "kind",
                "\"unicast\", \"blackhole\", \"unreachable\" or \"prohibit\"",
                "",
                "\"unicast\"",
                "Send on; drop silently; drop and answer unreachable; drop and answer prohibited.",
            ),
            key(
                "via",
                "address",
                "",
                "none: the destinations are on the link",
                "The next hop, of the destinations' family.",
            ),
            key(
                "port",
                "port name",
                "",
                "the one whose link the next hop is on",
                "The port to send by. Needed where there is no next hop, or a link-local one.",
            ),
            key(
                "port-vrf",
                "name",
                "",
                "that of the route",
                "The VRF of the port, if it is another one than the route's: packets leave there. \
                While the port is in any other VRF, the route is not used.",
            ),
            key(
                "onlink",
                "true or false",
                "",
                "false",
                "Whether `via` is on the link of `port` though no prefix of the port holds it.",
            ),
            key(
                "recursive",
                "true or false",
                "",
                "false",
                "Whether `via` is on no link, and is reached by another route of the same table.",
            ),
            key(
                "src",
                "address",
                "",
                "of the port, or as RFC 6724 says",
                "The own address in the VRF from which the gateway speaks to the destinations.",
            ),
            key(
                "nexthop-vrf",
                "name",
                "",
                "none",
                "The VRF whose table says where packets go, in place of `via` and `port`.",
            ),
            key(
                "next-hops",
                "list of tables",
                "",
                "none",
                "Several next hops in place of `via` and `port`, up to 64: each flow goes by one \
                of them.",
            ),
            key(
                "next-hops.via",
                "address",
                "",
                "none",
                "Its address. Without one, the destinations themselves are on the port's link.",
            ),
            key(
                "next-hops.port",
                "port name",
                "",
                "the one whose link it is on",
                "The port to send by. Needed where the next hop is link-local or has no address.",
            ),
            key(
                "next-hops.port-vrf",
                "VRF name",
                "",
                "the route's",
                "The VRF of that port, if it is another one: packets leave there.",
            ),
            key(
                "next-hops.onlink",
                "bool",
                "",
                "false",
                "Whether it is on the port's link though no prefix of the port holds it.",
            ),
            key(
                "next-hops.weight",
                "1 to 256",
                "",
                "1",
                "Its share of the flows is this much of the sum of all weights.",
            ),
            key(
                "metric",
                "0 to 4294967295",
                "",
                "0",
                "Of several routes of one prefix, the one with the lowest is used.",
            ),
            key(
                "proto",
                "name or number",
                "",
                "\"static\"",
                "Who made it, by iproute2's name, as in \"bgp\": it is shown, and changes nothing.",
            ),
        ],
    },
    Section {
        name: "rule",
        many: true,
        keys: &[
            key(
                "priority",
                "1 to 4294967295",
                "",
                "required",
                "Its place in the order. Rules of the same priority are asked in the file's order.",
            ),
            key("from", "prefix", "", "any IPv4 address", "The sources. It says the family."),
            key("to", "prefix", "", "any address", "The destinations."),
            key(
                "iif",
                "port name, VRF name or \"lo\"",
                "",
                "any",
                "Where packets come by; `lo` is the gateway itself.",
            ),
            key("oif", "VRF name", "", "any", "The VRF in which the gateway itself sends."),
            key(
                "fwmark",
                "\"MARK\" or \"MARK/MASK\"",
                "",
                "any",
                "The mark that filters have given.",
            ),
            key("ipproto", "protocol", "", "any", "The protocol, as in `\"tcp\"`."),
            key("sport", "\"PORT\" or \"FIRST-LAST\"", "", "any", "The source ports."),
            key("dport", "\"PORT\" or \"FIRST-LAST\"", "", "any", "The destination ports."),
            key("dscp", "DSCP", "", "any", "The DSCP, as in `\"ef\"`."),
            key("table", "number", "", "none", "The routing table to ask."),
            key("vrf", "VRF name", "", "none", "The VRF whose routing table is asked."),
            key("goto", "number", "", "none", "The priority of the next rule, behind this one."),
            key(
                "action",
                "\"l3mdev\", \"unreachable\", \"prohibit\" or \"blackhole\"",
                "",
                "none",
                "Ask the table of the packet's own VRF, if that is not main; or what becomes of \
                the packet. One of `table`, `vrf`, `goto` and `action` is needed.",
            ),
            key(
                "suppress-prefixlength",
                "0 to 128",
                "",
                "none",
                "Routes of the table with prefixes of this length and shorter ones do not count.",
            ),
        ],
    },
    Section {
        name: "neighbour",
        many: true,
        keys: &[
            key("port", "port name", "", "required", "The port whose link it is on."),
            key("address", "address", "", "required", "Its IP address."),
            key(
                "mac",
                "MAC address",
                "",
                "required",
                "Its Ethernet address. Nothing heard on the link changes it.",
            ),
        ],
    },
    Section {
        name: "sa",
        many: true,
        keys: &[
            key("source", "address", "", "required", "The tunnel's source."),
            key("destination", "address", "", "required", "The tunnel's destination."),
            key(
                "spi",
                "1 to 4294967295",
                "",
                "required",
                "The security parameters index, unique with VRF and destination.",
            ),
            key("vrf", "name", "", "\"main\"", "The VRF of the outer packets."),
            key(
                "inner-vrf",
                "name",
                "",
                "`vrf`",
                "The VRF of the packets inside, and of the policies that they meet.",
            ),
            key("reqid", "0 to 4294967295", "", "0", "Links SAs and policies; 0 is none."),
            key(
                "if-id",
                "0 to 4294967295",
                "",
                "0",
                "Links it with an xfrm link, by which the packets inside leave and enter; 0 is none.",
            ),
            key("mode", "\"tunnel\"", "", "\"tunnel\"", "How packets are wrapped."),
            key(
                "aead",
                "inline table",
                "",
                "none",
                "Encryption and integrity in one. Either this, or `encryption` with \
                `authentication`.",
            ),
            key(
                "aead.name",
                "algorithm",
                "",
                "required",
                "Linux's name of it: see [algorithms](iproute2.md#algorithms).",
            ),
            key(
                "aead.key",
                "key",
                "",
                "required",
                "The key, with the salt at its end. Its length says which strength is meant.",
            ),
            key("aead.icv-bits", "128", "bits", "128", "Length of the integrity check value."),
            key("encryption", "inline table", "", "none", "Encryption."),
            key(
                "encryption.name",
                "algorithm",
                "",
                "required",
                "Linux's name of it: see [algorithms](iproute2.md#algorithms).",
            ),
            key(
                "encryption.key",
                "key",
                "",
                "empty",
                "The key. Its length says which strength is meant.",
            ),
            key("authentication", "inline table", "", "none", "Integrity."),
            key(
                "authentication.name",
                "algorithm",
                "",
                "required",
                "Linux's name of it: see [algorithms](iproute2.md#algorithms). None only if \
                nothing is encrypted.",
            ),
            key(
                "authentication.key",
                "key",
                "",
                "empty",
                "The key: 1 to 64 bytes; the algorithm's RFC asks for a certain length.",
            ),
            key(
                "authentication.truncate-bits",
                "96 or 128",
                "bits",
                "96, as with Linux",
                "Length that the integrity check value is cut to. Where the algorithm's RFC asks \
                for another than Linux's 96, it has to be given.",
            ),
            key(
                "replay-window",
                "0 to 4096",
                "packets",
                "64",
                "How late a packet may come. 0 switches the check against replays off.",
            ),
            key(
                "flags",
                "list of \"noecn\", \"nopmtudisc\", \"af-unspec\"",
                "",
                "none",
                "iproute2's flags: leave ECN alone; never set DF outside; carry the other family \
                too, which is so in any case.",
            ),
        ],
    },
    Section {
        name: "policy",
        many: true,
        keys: &[
            key(
                "direction",
                "\"in\", \"out\" or \"fwd\"",
                "",
                "required",
                "Which packets are looked up: to the gateway, leaving, or forwarded. `in` also \
                decides forwarded packets where the VRF has no `fwd` policy.",
            ),
            key("vrf", "name", "", "\"main\"", "The VRF whose packets it is for."),
            key(
                "priority",
                "0 to 4294967295",
                "",
                "0",
                "The smaller number wins; ties go to the policy that stands first.",
            ),
            key(
                "if-id",
                "0 to 4294967295",
                "",
                "0",
                "The xfrm link whose packets it is for, instead of those of a VRF; 0 is none.",
            ),
            key(
                "source",
                "address, prefix or FIRST-LAST",
                "",
                "every address of the family",
                "Source addresses.",
            ),
            key(
                "destination",
                "address, prefix or FIRST-LAST",
                "",
                "every address of the family",
                "Destination addresses.",
            ),
            key("protocol", "name or number", "", "any", "Upper-layer protocol."),
            key(
                "source-ports",
                "port or FIRST-LAST",
                "",
                "any",
                "Source ports, of a protocol that has ports.",
            ),
            key(
                "destination-ports",
                "port or FIRST-LAST",
                "",
                "any",
                "Destination ports, of a protocol that has ports.",
            ),
            key("icmp-type", "number or FIRST-LAST", "", "any", "ICMP or ICMPv6 types."),
            key("icmp-code", "number or FIRST-LAST", "", "any", "ICMP or ICMPv6 codes."),
            key(
                "dscp",
                "name, number or VALUE/MASK",
                "",
                "any",
                "DSCP of the packet: `cs0` to `cs7`, `af11` to `af43`, `ef`, `va`, `le`, or 0 to \
                63; with a mask, only its bits are compared.",
            ),
            key(
                "tcp-flags",
                "FLAGS/MASK",
                "",
                "any",
                "TCP flags, of protocol TCP: of the flags in the mask, exactly these are set. \
                `fin`, `syn`, `rst`, `psh`, `ack`, `urg`, `ece` and `cwr` with commas between, \
                `none`, `all`, or a number.",
            ),
            key(
                "ttl",
                "0 to 255",
                "",
                "any",
                "TTL of IPv4 or hop limit of IPv6, as the packet came in.",
            ),
            key(
                "action",
                "\"protect\", \"bypass\" or \"discard\"",
                "",
                "required",
                "Outbound, protect encrypts; inbound, it demands that the packet was encrypted. \
                Bypass lets pass in clear, discard drops.",
            ),
            key(
                "template",
                "inline table",
                "",
                "none",
                "Which SAs protect: required with `protect`, and with it alone.",
            ),
            key(
                "template.vrf",
                "name",
                "",
                "the policy's",
                "The VRF of the outer packets, which may be another than the policy's.",
            ),
            key("template.source", "address", "", "any", "The tunnel's source."),
            key("template.destination", "address", "", "required", "The tunnel's destination."),
            key(
                "template.reqid",
                "0 to 4294967295",
                "",
                "0",
                "The reqid that SAs must have; 0 is any.",
            ),
            key("template.spi", "0 to 4294967295", "", "0", "The one SA, by its SPI; 0 is any."),
            key("template.mode", "\"tunnel\"", "", "\"tunnel\"", "How packets are wrapped."),
        ],
    },
    Section {
        name: "filter",
        many: true,
        keys: &[
            key("port", "name", "", "this or `vrf` is required", "The port whose filter it is."),
            key("vrf", "name", "", "this or `port` is required", "The VRF whose filter it is."),
            key(
                "hook",
                "\"ingress\" or \"egress\"",
                "",
                "required",
                "When the filter sees packets: before routing or after it.",
            ),
            key(
                "preference",
                "1 to 65535",
                "",
                "required",
                "The place of the rule in its filter: the smaller number comes first. The first \
                rule that matches decides, and a packet that matches none passes.",
            ),
            key(
                "family",
                "\"ip\", \"ipv6\" or \"all\"",
                "",
                "that of the addresses or of ICMP, else \"all\"",
                "Packets of which family.",
            ),
            key("source", "address, prefix or FIRST-LAST", "", "any", "Source addresses."),
            key(
                "destination",
                "address, prefix or FIRST-LAST",
                "",
                "any",
                "Destination addresses.",
            ),
            key("protocol", "name or number", "", "any", "Upper-layer protocol."),
            key(
                "source-ports",
                "port or FIRST-LAST",
                "",
                "any",
                "Source ports, of a protocol that has ports.",
            ),
            key(
                "destination-ports",
                "port or FIRST-LAST",
                "",
                "any",
                "Destination ports, of a protocol that has ports.",
            ),
            key("icmp-type", "number or FIRST-LAST", "", "any", "ICMP or ICMPv6 types."),
            key("icmp-code", "number or FIRST-LAST", "", "any", "ICMP or ICMPv6 codes."),
            key("dscp", "name, number or VALUE/MASK", "", "any", "DSCP, as of a policy."),
            key("tcp-flags", "FLAGS/MASK", "", "any", "TCP flags, as of a policy."),
            key("ttl", "0 to 255", "", "any", "TTL of IPv4 or hop limit of IPv6."),
            key(
                "mark",
                "number or \"VALUE/MASK\"",
                "",
                "any",
                "The mark that filters before have given the packet; it begins with 0.",
            ),
            key(
                "action",
                "\"pass\", \"drop\" or \"reject\"",
                "",
                "required",
                "What becomes of the packet. Reject drops it and tells its sender.",
            ),
            key(
                "reject-with",
                "\"icmp-admin-prohibited\", \"icmp-port-unreachable\", \
                \"icmp-host-unreachable\", \"icmp-net-unreachable\" or \"tcp-reset\"",
                "",
                "\"icmp-admin-prohibited\"",
                "How the sender is told, of either family. What is not TCP is told of a reset by \
                `icmp-admin-prohibited`.",
            ),
            key(
                "set-mark",
                "number or \"VALUE/MASK\"",
                "",
                "none",
                "What the packet's mark becomes: with a mask, those bits of it.",
            ),
            key(
                "log",
                "true or false",
                "",
                "false",
                "Whether packets are logged, at most ten a second of each rule.",
            ),
        ],
    },
    Section {
        name: "flow",
        many: true,
        keys: &[key(
            "flow",
            "flow",
            "",
            "required",
            "A flow in ovs-ofctl's words, as `hitpath flow add` takes it.",
        )],
    },
    Section {
        name: "firewall",
        many: false,
        keys: &[
            key(
                "default",
                "\"drop\" or \"reject\"",
                "",
                "\"drop\"",
                "What becomes of packets between zones that no policy names.",
            ),
            key(
                "log",
                "text",
                "",
                "none",
                "Such packets are logged with this prefix, at most ten a second.",
            ),
            key(
                "log-invalid",
                "text",
                "",
                "none",
                "Packets that belong to no connection and can open none are logged with this \
                prefix.",
            ),
            key(
                "zone",
                "list of tables, `[[firewall.zone]]`",
                "",
                "required",
                "Zones: what is treated alike. The zone `gateway` is there always: the \
                gateway's own addresses.",
            ),
            key("zone.name", "name", "", "required", "Its name."),
            key(
                "zone.ports",
                "list of ports",
                "",
                "none",
                "Ports, VLANs and xfrm links among them.",
            ),
            key(
                "zone.vrfs",
                "list of VRFs",
                "",
                "none",
                "VRFs: all of their ports that are in no other zone, and what was decrypted \
                there.",
            ),
            key(
                "zone.networks",
                "list of prefixes",
                "",
                "none",
                "Networks behind tunnels that are no xfrm links: what comes from there was \
                decrypted.",
            ),
            key("zone.networks-vrf", "VRF", "", "\"main\"", "The VRF in which these networks are."),
            key(
                "zone.masquerade",
                "\"ipv4\", \"ipv6\" or \"both\"",
                "",
                "none",
                "Packets of this family that leave by a port of the zone get that port's \
                address as source.",
            ),
            key(
                "service",
                "list of tables, `[[firewall.service]]`",
                "",
                "none",
                "Services with names of your own.",
            ),
            key("service.name", "name", "", "required", "Its name."),
            key(
                "service.services",
                "list of services",
                "",
                "required",
                "What it is: `tcp/8000-8010`, or other services.",
            ),
            key(
                "policy",
                "list of tables, `[[firewall.policy]]`",
                "",
                "none",
                "What may pass from zones to zones; of two zones one policy at most.",
            ),
            key(
                "policy.from",
                "list of zones",
                "",
                "required",
                "Where connections are opened from.",
            ),
            key(
                "policy.to",
                "list of zones",
                "",
                "required",
                "Where they go; `gateway` for the gateway itself.",
            ),
            key(
                "policy.rules",
                "list of tables",
                "",
                "none",
                "Rules, tried in order; the first that matches counts.",
            ),
            key(
                "policy.rules.services",
                "list of services",
                "",
                "all",
                "Names such as `ssh`, or `tcp/8000-8010`, `icmp/8`, `icmp6/128`, `proto/47`.",
            ),
            key(
                "policy.rules.sources",
                "list of prefixes or ranges",
                "",
                "all",
                "Addresses that connections are opened from.",
            ),
            key(
                "policy.rules.destinations",
                "list of prefixes or ranges",
                "",
                "all",
                "Addresses that connections go to.",
            ),
            key(
                "policy.rules.action",
                "\"accept\", \"drop\" or \"reject\"",
                "",
                "required",
                "What becomes of the packets. A sender who is rejected is told: by a RST, or an \
                ICMP error.",
            ),
            key(
                "policy.rules.log",
                "text",
                "",
                "none",
                "They are logged with this prefix, at most ten a second.",
            ),
            key(
                "policy.action",
                "\"accept\", \"drop\" or \"reject\"",
                "",
                "\"drop\"",
                "What becomes of packets that no rule matches.",
            ),
            key(
                "policy.log",
                "text",
                "",
                "none",
                "Such packets are logged with this prefix, at most ten a second.",
            ),
            key(
                "forward",
                "list of tables, `[[firewall.forward]]`",
                "",
                "none",
                "Ports that are forwarded to a host; what is forwarded passes without a policy.",
            ),
            key(
                "forward.from",
                "list of zones",
                "",
                "required",
                "Zones from which the port is reached.",
            ),
            key(
                "forward.hairpin",
                "list of zones",
                "",
                "none",
                "Zones inside from which the port is reached under the same address.",
            ),
            key(
                "forward.addresses",
                "list of addresses",
                "",
                "those of the ports of `from`",
                "The addresses under which it is reached.",
            ),
            key("forward.service", "service", "", "required", "Its ports, as in `tcp/8080`."),
            key(
                "forward.sources",
                "list of prefixes or ranges",
                "",
                "all",
                "Addresses outside that may reach it.",
            ),
            key("forward.to", "address", "", "required", "The host."),
            key("forward.to-port", "1 to 65535", "", "the same", "Its port there."),
            key(
                "forward.log",
                "text",
                "",
                "none",
                "New connections are logged with this prefix, at most ten a second.",
            ),
            key(
                "snat",
                "list of tables, `[[firewall.snat]]`",
                "",
                "none",
                "Sources that get fixed addresses, or none; tried in order, before masquerade.",
            ),
            key("snat.from", "list of zones", "", "required", "Where connections are opened from."),
            key("snat.to", "list of zones", "", "required", "Where they go."),
            key(
                "snat.sources",
                "list of prefixes or ranges",
                "",
                "all",
                "Addresses that connections are opened from.",
            ),
            key(
                "snat.destinations",
                "list of prefixes or ranges",
                "",
                "all",
                "Addresses that connections go to.",
            ),
            key(
                "snat.addresses",
                "address, prefix or range",
                "",
                "none: not translated",
                "What sources become.",
            ),
            key(
                "snat.ports",
                "`FIRST-LAST`",
                "",
                "1024-65535 or the same",
                "The ports to choose from.",
            ),
        ],
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    /// The tables of docs/configuration.md, made from the list above.
    fn documentation() -> Vec<String> {
        let cell = |text: &str| if text.is_empty() { String::new() } else { format!(" {text}") };
        SECTIONS
            .iter()
            .map(|section| {
                let mut table = String::from(
                    "| Key | Value | Unit | Default | Meaning |\n| --- | --- | --- | --- | --- |\n",
                );
                for key in section.keys {
                    table += &format!(
                        "| `{}` |{} |{} |{} |{} |\n",
                        key.name,
                        cell(key.value),
                        cell(key.unit),
                        cell(key.default),
                        cell(key.meaning)
                    );
                }
                table
            })
            .collect()
    }

    #[test]
    fn the_documentation_has_every_key_and_no_other() {
        let page = include_str!("../../../../docs/configuration.md");
        for (section, table) in SECTIONS.iter().zip(documentation()) {
            let header = if section.many {
                format!("`[[{}]]`", section.name)
            } else {
                format!("`[{}]`", section.name)
            };
            assert!(
                page.contains(&format!("## {header}")),
                "docs/configuration.md has no section {header}"
            );
            assert!(
                page.contains(&table),
                "docs/configuration.md should have this table for {header}:\n{table}"
            );
        }
        let rows = page.lines().filter(|line| line.starts_with("| `")).count();
        assert_eq!(rows, SECTIONS.iter().map(|section| section.keys.len()).sum::<usize>());
    }
}
