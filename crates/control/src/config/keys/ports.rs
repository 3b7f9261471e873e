//! Keys of VRFs, ports, and neighbours on their links.

use super::{Section, key};
use crate::settings::{PORT_KIND_MEANING, PORT_KIND_NAMES};

pub(super) const VRF: Section = Section {
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
            this file whose clear packets are in it (`inner-vrf`), makes it `required`; policies \
            and SAs with `if-id` do not. `off`: a plain router, which takes no policies.",
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
};

pub(super) const PORT: Section = Section {
    name: "port",
    many: true,
    keys: &[
        key(
            "name",
            "name",
            "",
            "required",
            "Its name, which all else calls it by; policy rules cannot name one that is called `lo`, which is the gateway itself there.",
        ),
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
        key("output", "path", "", "none", "The capture file that packets go to, of kind `pcap`."),
        key(
            "link",
            "\"ethernet\" or \"ip\"",
            "",
            "\"ethernet\"",
            "What frames begin with, of kind `memory` and `pcap`. An input file says it \
            itself.",
        ),
        key("parent", "port name", "", "required", "The port whose VLAN it is, of kind `vlan`."),
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
};

pub(super) const NEIGHBOUR: Section = Section {
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
};
