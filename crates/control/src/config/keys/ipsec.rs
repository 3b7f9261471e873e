//! Keys of IPsec: caches and lookup, SAs, policies.

use super::{Key, Section, key};

/// Whether the decisions of one cache are remembered: which cache, and of what.
macro_rules! remembers {
    ($cache:literal, $packets:literal) => {
        key(
            concat!($cache, "-spd-flow-cache"),
            "\"on\", \"off\" or \"auto\"",
            "",
            "\"auto\"",
            concat!(
                "Whether decisions about ",
                $packets,
                ", are remembered: always, never, or while that pays, which each worker measures. \
                 `true` is on, `false` is off.",
            ),
        )
    };
}

/// How many decisions a cache holds.
macro_rules! flows {
    ($cache:literal) => {
        flows(
            concat!($cache, "-spd-flow-cache-hash-buckets"),
            "How many of those flows each worker's table holds. Rounded up to a power of two.",
        )
    };
}

/// The same by VPP's name.
macro_rules! flows_as_vpp {
    ($cache:literal) => {
        flows(
            concat!($cache, "-spd-hash-buckets"),
            concat!("The same as `", $cache, "-spd-flow-cache-hash-buckets`, under VPP's name."),
        )
    };
}

const fn flows(name: &'static str, meaning: &'static str) -> Key {
    key(name, "1 to 1073741824", "flows", "1048576", meaning)
}

pub(super) const IPSEC: Section = Section {
    name: "ipsec",
    many: false,
    keys: &[
        remembers!("ipv4-outbound", "IPv4 packets that leave, and those forwarded in clear"),
        remembers!("ipv4-inbound", "IPv4 packets that were decrypted, and those to be decrypted"),
        remembers!("ipv6-outbound", "IPv6 packets that leave, and those forwarded in clear"),
        remembers!("ipv6-inbound", "IPv6 packets that were decrypted, and those to be decrypted"),
        flows!("ipv4-outbound"),
        flows!("ipv4-inbound"),
        flows!("ipv6-outbound"),
        flows!("ipv6-inbound"),
        flows_as_vpp!("ipv4-outbound"),
        flows_as_vpp!("ipv4-inbound"),
        flows_as_vpp!("ipv6-outbound"),
        flows_as_vpp!("ipv6-inbound"),
        key(
            "spd-flow-cache-associativity",
            "1 or 4",
            "places",
            "4",
            "How many places a flow may have in a set of a table, and in a second set if these are \
            taken. With 1, flows that meet in a bucket overwrite each other, as in VPP's caches.",
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
};

pub(super) const SA: Section = Section {
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
};

pub(super) const POLICY: Section = Section {
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
        key(
            "name",
            "name",
            "",
            "none",
            "What it is called where it is shown: 1 to 63 letters, digits or any of `._-:/@+`, \
            beginning with a letter or a digit. Several may have the same name.",
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
};
