use api::{Family, PolicyAction, QdiscFilter, Request, RouteKind, SaFlag};
use proptest::prelude::*;

use super::{parse, parse_with};
use crate::describe;

/// Splits as a shell would, with single quotes.
fn split(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (at, part) in line.split('\'').enumerate() {
        if at % 2 == 1 {
            words.push(part.to_owned());
        } else {
            words.extend(part.split_whitespace().map(str::to_owned));
        }
    }
    words
}

#[track_caller]
fn accepted(line: &str) -> Request {
    parse(&split(line)).unwrap_or_else(|refusal| panic!("{line}: {refusal}"))
}

#[test]
fn no_error_shows_what_may_be_a_key() {
    let sa = ["xfrm", "state", "add", "src", "192.0.2.1", "dst", "192.0.2.2", "spi", "9"];
    let cases: [&[&str]; 8] = [
        &["enc", "cbc(aes)", "sesame"],
        &["enc", "cbc(aes)", "open", "sesame"],
        &["aead", "rfc4106(gcm(aes))", "sesame"],
        &["aead", "rfc4106(gcm(aes))", "open", "sesame", "128"],
        &["auth", "hmac(sha1)", "open", "sesame", "mode", "tunnel"],
        &["auth-trunc", "hmac(sha1)", "open", "sesame"],
        &["enc", "sesame", "cbc(aes)"],
        &["mode", "tunnel", "enc", "aes", "0x0102030405060708090a0b0c0d0e0fzz", "sesame"],
    ];
    for case in cases {
        let refusal = parse(&[&sa, case].concat()).unwrap_err().to_string();
        for part in ["sesame", "open", "0102"] {
            assert!(!refusal.contains(part), "{case:?}: {refusal}");
        }
    }
}

#[test]
fn no_error_shows_a_key_however_a_command_is_cut_or_mistyped() {
    const KEYS: [&str; 4] = [
        "open-sesame-open-20b",
        "0x00112233445566778899aabbccddeeff01020304",
        "0123456789abcdef0123",
        "correct horse battery",
    ];
    const ALGORITHMS: [&str; 5] = [
        "aead rfc4106(gcm(aes)) KEY 128",
        "enc cbc(aes) KEY auth sha1 KEY",
        "auth-trunc hmac(sha256) KEY 128 enc cbc(aes) KEY",
        "enc cbc(aes) KEY auth-trunc hmac(sha256) KEY 128 reqid 7",
        "aead rfc4106(gcm(aes)) KEY 128 flag noecn replay-window 64",
    ];
    let hides = |words: &[&str]| {
        // It may be right as well.
        let Err(refusal) = parse(words) else { return };
        let said = refusal.to_string();
        let shown = KEYS.iter().find(|key| said.contains(&key[..6]));
        assert!(shown.is_none(), "{words:?}: {said}");
    };
    for (key, algorithms) in KEYS.iter().flat_map(|key| ALGORITHMS.map(|it| (key, it))) {
        for verb in ["add", "update", "ad", "frobnicate", "delete", "list"] {
            let line = format!(
                "xfrm state {verb} src 192.0.2.1 dst 192.0.2.2 proto esp spi 9 mode tunnel \
                {algorithms}"
            );
            let words: Vec<&str> =
                line.split(' ').map(|word| if word == "KEY" { key } else { word }).collect();
            // In place of a word that names what follows.
            let head = words.iter().position(|word| *word == "tunnel").unwrap() + 1;
            hides(&[&words[..head], &[*key][..], &words[head..]].concat());
            for at in 0..words.len() {
                hides(&words[..at]);
                let (before, behind) = words.split_at(at);
                let others: [&[&str]; 3] = [&[], &["frobnicate"], &[words[at], words[at]]];
                for instead in others {
                    let changed = [before, instead, &behind[1..]].concat();
                    (at..=changed.len()).for_each(|end| hides(&changed[..end]));
                }
            }
        }
    }
}

#[test]
fn the_lines_that_linux_users_type_are_accepted_as_they_stand() {
    let lines = "\
        xfrm state add src 192.168.11.2 dst 192.168.11.1 spi 1 proto esp mode tunnel reqid 1 auth sha1 0x1c0cf2bb72ce67ba245b593076dfb27a enc 'cbc(aes)' 0x1c0cf2bb72ce67ba245b593076dfb27a
        xfrm state add dst 192.168.11.2 src 192.168.11.1 spi 1 proto esp mode tunnel reqid 1 auth sha1 0x1c0cf2bb72ce67ba245b593076dfb27a enc 'cbc(aes)' 0x1c0cf2bb72ce67ba245b593076dfb27a
        xfrm policy add src 192.168.13.0/24 dst 192.168.12.0/24 dir out tmpl dst 192.168.11.1 proto esp mode tunnel reqid 1
        xfrm policy add src 192.168.12.0/24 dst 192.168.13.0/24 dir in tmpl dst 192.168.11.2 proto esp mode tunnel reqid 1";
    let requests: Vec<_> = lines.lines().map(accepted).collect();
    let Request::StateAdd(state) = &requests[0] else { panic!() };
    assert_eq!((state.spi, state.reqid, state.replay_window), (1, 1, 0));
    assert_eq!(state.authentication.as_ref().unwrap().key.bytes().len(), 16);
    let Request::PolicyAdd(policy) = &requests[3] else { panic!() };
    assert_eq!(policy.action, PolicyAction::Protect);
    assert_eq!(policy.template.as_ref().unwrap().destination.to_string(), "192.168.11.2");
}

#[test]
fn what_is_accepted() {
    let good = [
        "xfrm state",
        "xfrm state list",
        "x s ls",
        "xfrm state show src 192.0.2.1 dst 192.0.2.2 spi 0x10 reqid 3 mode tunnel nokeys",
        "xfrm state get dst 192.0.2.2 proto esp spi 16",
        "xfrm state delete src 192.0.2.1 dst 192.0.2.2 proto esp spi 16 vrf red",
        "xfrm state deleteall reqid 1",
        "xfrm state flush proto esp",
        "xfrm state count",
        "xfrm s a src 2001:db8::1 dst 2001:db8::2 spi 0x1000 mode tunnel aead 'rfc4106(gcm(aes))' \
        0x000102030405060708090a0b0c0d0e0f10111213 128 replay-window 64 flag noecn nopmtudisc",
        "xfrm state add src 192.0.2.1 dst 192.0.2.2 spi 1 mode tunnel enc cipher_null '' \
        auth-trunc sha256 'some text of mine' 128",
        "xfrm state add src 192.0.2.1 dst 192.0.2.2 spi 1 mode tunnel enc ecb(cipher_null) '' auth \
        digest_null ''",
        "xfrm state update src 192.0.2.1 dst 192.0.2.2 spi 1 mode tunnel enc aes \
        0x000102030405060708090a0b0c0d0e0f auth sha1 0x00 replay-oseq 7 replay-seq 010",
        "xfrm policy add src 10.0.0.1-10.0.0.9 dst 10/8 proto tcp sport 1000-2000 dport 80 dir fwd \
        priority 0x10 action block",
        "xfrm policy add dst 2001:db8::/32 proto ipv6-icmp type 128-129 code 0 dir in",
        "xfrm policy add dst 10/8 dscp EF dir out",
        "xfrm policy add dst 10/8 proto tcp dport 22 dscp 0x28/0x38 tcp-flags syn/syn,ack ttl 0xff \
        dir fwd",
        "xfrm policy delete dst 2001:db8::/32 proto tcp tcp-flags 0x02/0x17 hoplimit 255 dir in",
        "xfrm policy list dscp af11",
        "xfrm policy add dir out action allow ptype main src any dst 10.0.0.0/8",
        "xfrm policy update src 10.0.0.0/8 dst 10.1.0.0/16 dir out tmpl src 192.0.2.1 dst \
        192.0.2.2 proto esp spi 0x5 reqid 1 mode tunnel level required priority 4",
        "xfrm policy add src 10/8 dst 11/8 dir out tmpl dst 192.0.2.2 mode tunnel reqid 1 name a/b",
        "xfrm policy list name berlin-1 dir in",
        "xfrm policy deleteall name berlin-1",
        "xfrm policy delete index 9 dir out",
        "xfrm policy d src 10.0.0.0/8 dst 10.1.0.0/16 dir out",
        "xfrm policy get src 10.0.0.0/8 dst 10.1.0.0/16 dir out",
        "xfrm policy",
        "xfrm policy list dir in nosock action block",
        "xfrm policy deleteall dir in",
        "xfrm policy flush",
        "xfrm policy count",
        "xfrm policy setdefault in block fwd accept out block",
        "xfrm policy setdefault out accept vrf red",
        "xfrm policy getdefault",
        "route",
        "rule add tos 0x10 lookup 100",
        "rule del dsfield b8 lookup 100",
        "route show vrf red",
        "route list table all",
        "r s root 10/8",
        "route add 10.2.0.0/16 via 192.0.2.2",
        "route add default via 192.0.2.254 dev wan vrf blue metric 5",
        "route add 10.2/16 dev wan scope link",
        "route add default metric 5 vrf blue nexthop via 192.0.2.1 dev wan weight 256 nexthop via \
        192.0.2.2",
        "route del default nexthop via 192.0.2.1 nexthop via 192.0.2.2 dev wan",
        "route add blackhole 10.9.0.0/16",
        "route replace unreachable 2001:db8:1::/48 vrf red",
        "route change to 10.2.0.0/16 via inet 192.0.2.3",
        "route del 10.2.0.0/16",
        "route get 10.2.3.4 vrf red",
        "route flush dev wan",
        "route show all",
        "r s t all",
        "ro add 10.2.0.0/16 via 192.0.2.2 tab 100 prio 5",
        "route show proto bgp",
        "route add 10.2.0.0/16 via 192.0.2.2 proto static pref medium",
        "neigh",
        "neighbour show dev wan nud permanent",
        "n add 192.0.2.2 lladdr 02:00:00:00:00:02 dev wan nud permanent",
        "neigh replace to 192.0.2.2 dev wan lladdr 2:0:0:0:0:2",
        "neigh del 192.0.2.2 dev wan",
        "neigh flush dev wan",
        "addr",
        "a",
        "addr add 192.0.2.1/24 brd + dev wan",
        "addr add 192.0.2.1/24 broadcast 192.0.2.255 dev wan label wan scope global nodad",
        "addr add fe80::1/64 dev wan scope link valid_lft forever preferred_lft forever",
        "address del 192.0.2.1/24 dev wan",
        "addr show dev wan",
        "addr show wan",
        "addr flush dev wan",
        "link",
        "l show up",
        "link set wan down",
        "link set dev wan up mtu 1400",
        "link set lan master blue",
        "link set mtu 1400 dev wan up",
        "link set lan nomaster",
        "link add link wan name wan.100 type vlan id 100",
        "link add link wan wan.100 mtu 1400 up vrf blue type vlan protocol 802.1q id 0x64",
        "link add name wan.100 link wan type vlan proto 802.1Q id 4094",
        "link add link wan name wan.10 type vlan proto 802.1ad id 10",
        "link add link wan name wan.10 type vlan id 10 protocol 802.1AD",
        "link del wan.100",
        "link delete dev wan.100 type vlan",
        "link add ipsec7 type xfrm dev wan if_id 7",
        "link add name ipsec7 up mtu 1400 vrf blue type xfrm if_id 0xffffffff dev wan",
        "link add link wan name ipsec7 type xfrm if_id 7",
        "link del ipsec7 type xfrm",
        "link show type xfrm",
        "vrf",
        "vrf show",
        "vrf add blue",
        "vrf set blue ipsec required",
        "vrf set blue ike policy",
        "vrf set blue ike bypass ipsec auto",
        "vrf add blue table 10",
        "vrf show blue",
        "link add blue type vrf table 10",
        "link add dev blue up type vrf table 0x10",
        "link del blue type vrf",
        "link show type vrf",
        "link show master blue",
        "link set blue up",
        "route add 10.0.0.0/8 dev lan table 10",
        "route add blackhole 10.0.0.0/8 table 10",
        "route show table 10",
        "route get 10.0.0.1 table 10",
        "route delete 10.0.0.0/8 table 10",
        "route flush table 10",
        "vrf del blue",
        "filter",
        "filter show dev lan ingress pref 10 protocol ip",
        "filter ls vrf red",
        "filter add dev lan ingress action drop",
        "filter add dev lan ingress protocol ip pref 10 flower src_ip 10/8 dst_ip \
        10.0.0.1-10.0.0.9 ip_proto tcp src_port 5 dst_port 5-9 tcp_flags syn/syn,ack ip_tos \
        0xb8/0xfc ip_ttl 5 mark 1/3 action reject with tcp-reset set-mark 0x10/0xff log",
        "filter replace vrf red egress prio 0x10 ip_proto icmp type 8 code 0 action ok",
        "filter add dev lan egress ip_proto icmpv6 type 128-129 action reject with \
        icmp-port-unreachable",
        "filter change dev lan egress preference 1 src 10/8 proto udp sport 5 dport 6 dscp ef ttl \
        9 action shot",
        "filter add dev lan ingress protocol ipv6 ip_proto sctp dst_port 9 action skbedit mark 5 \
        pipe action pass",
        "filter add dev lan ingress protocol all ip_proto 47 action pass skbedit mark 5",
        "filter del dev lan ingress",
        "filter delete dev lan ingress protocol ip pref 10 flower",
    ];
    for line in good {
        accepted(line);
    }
}

#[test]
fn what_is_refused_and_why() {
    let sa = "xfrm state add src 192.0.2.1 dst 192.0.2.2 spi 1 mode tunnel enc aes \
        0x000102030405060708090a0b0c0d0e0f auth sha1 0x00";
    let policy = "xfrm policy add src 10.0.0.0/8 dst 10.1.0.0/16 dir out";
    let tmpl = "tmpl dst 192.0.2.2 proto esp mode tunnel";
    let rule = "filter add dev lan ingress";
    let cases = [
        ("", "not complete"),
        ("frobnicate", "'frobnicate' is not expected here"),
        ("ruote", "did you mean route?"),
        ("rule save", "this is not supported yet"),
        ("link set lan ra on", "link set: hitpath neither sends router advertisements"),
        ("link set lan accept_ra 2", "nor takes any (radvd or dnsmasq on the interface"),
        ("link set lan dhcp-relay 192.0.2.1", "hitpath is no DHCP server, relay or client"),
        ("vrf set red dhcp on", "hitpath is no DHCP server, relay or client (dnsmasq"),
        ("rule add tos 0x11 lookup 100", "tos '0x11' (hexadecimal without the two bits of ECN"),
        ("rule add dsfield 0x100 lookup 100", "dsfield '0x100'"),
        ("rule add tos 0x+4 lookup 100", "tos '0x+4'"),
        ("rule add tos 0x10 dscp 4 lookup 100", "'dscp' is given twice"),
        ("rule add not from 10.0.0.0/8 lookup 100", "'not' is not supported yet"),
        ("xfrm", "not complete"),
        ("xfrm monitor", "xfrm monitor is not supported"),
        ("xfrm state frobnicate", "'frobnicate' is not expected"),
        ("xfrm state allocspi dst 192.0.2.1", "allocspi is not supported"),
        (
            "xfrm state add src 192.0.2.1 dst 192.0.2.2 spi 1 mode tunnel dir out",
            "'dir' is not supported yet",
        ),
        (
            "xfrm state add src 192.0.2.1 dst 192.0.2.2 spi 1 mode transport",
            "mode transport is not supported yet (mode tunnel: hitpath protects in tunnel mode)",
        ),
        ("xfrm state add src 192.0.2.1 dst 192.0.2.2 spi 1 enc aes 0x00", "'mode' is missing"),
        ("xfrm state add src 192.0.2.1 spi 1 mode tunnel", "'dst' is missing"),
        ("xfrm state add src 192.0.2.1 dst 192.0.2.2 mode tunnel", "'spi' is missing"),
        ("xfrm state add src 192.0.2.1 dst 192.0.2.2 spi 1 mode tunnel", "needs its algorithms"),
        (
            "xfrm state add src 192.0.2.1 dst 192.0.2.2 spi 1 mode tunnel proto ah",
            "proto ah is not supported",
        ),
        ("xfrm state add src", "the command ends after 'src'"),
        ("xfrm state add src 192.0.2.1 src 192.0.2.1", "'src' is given twice"),
        ("xfrm state add src 192.0.2.300", "'192.0.2.300' is not an IPv4 or IPv6 address"),
        ("xfrm state add spi banana", "spi 'banana'"),
        ("xfrm state add auth sha1 0x123", "odd number"),
        (
            "xfrm state add aead 'rfc4106(gcm(aes))' 0x00 banana",
            "what follows the key is no number",
        ),
        ("xfrm state add flag esn", "flag esn is not supported"),
        ("xfrm state add flag banana", "'banana'"),
        ("xfrm state get dst 192.0.2.1", "'spi' is missing"),
        (&format!("{sa} encap espinudp 4500 4500 0.0.0.0"), "'encap' is not supported yet"),
        (&format!("{sa} sel src 10.0.0.0/8"), "'sel' of some packets is not supported"),
        (&format!("{sa} limit byte-hard 5"), "'limit' is not supported yet"),
        (&format!("{sa} mark 5"), "'mark' is not supported yet"),
        (&format!("{sa} output-mark 5"), "'output-mark' is not supported yet"),
        (&format!("{sa} offload dev lan dir in"), "'offload' is not supported yet"),
        (&format!("{sa} extra-flag oseq-may-wrap"), "'extra-flag' is not supported yet"),
        (&format!("{sa} coa 192.0.2.1"), "'coa' is not supported yet"),
        (&format!("{sa} ctx x"), "'ctx' is not supported yet"),
        (&format!("{sa} comp deflate"), "'comp' is not supported yet"),
        (&format!("{sa} replay-windw 5"), "did you mean replay-window?"),
        (&format!("{sa} aead 'rfc4106(gcm(aes))' 0x00 128"), "neither can be given besides"),
        ("xfrm state add enc sesame cbc(aes)", "enc: the key stands in front of the algorithm"),
        ("xfrm policy add src 10.0.0.0/8 dst 11.0.0.0/8", "'dir' is missing"),
        (
            "xfrm policy add src 10.0.0.0/8 dst 11.0.0.0/8 dir sideways",
            "dir 'sideways' (expected: in, out, fwd)",
        ),
        ("xfrm policy add src 10.0.0.0/8 dst 2001:db8::/32 dir out", "two address families"),
        ("xfrm policy add src 10.0.0.9-10.0.0.1 dir out", "must not be greater"),
        (&format!("{policy} name a name b"), "name"),
        (&format!("{policy} name -a"), "name '-a': not a name of a policy: 1 to 63 letters"),
        (&format!("{policy} name"), "a name"),
        ("xfrm policy delete dir out name a", "several policies may have one name"),
        (&format!("{policy} sport 5"), "has no ports"),
        (&format!("{policy} proto tcp sport 9-5"), "must not be greater"),
        (&format!("{policy} proto tcp type 5"), "only ICMP"),
        (
            &format!("{policy} dscp gold"),
            "dscp 'gold': expected a number from 0 to 63, or cs0 to cs7, af11 to af43, ef, va or \
            le; or VALUE/MASK (as in ef, 46 or 0x28/0x38)",
        ),
        (&format!("{policy} dscp ef/0x38"), "the value 0x2e has bits that the mask 0x38 has not"),
        (&format!("{policy} dscp ef dscp cs1"), "dscp"),
        (&format!("{policy} proto tcp tcp-flags syn"), "expected FLAGS/MASK"),
        (&format!("{policy} proto tcp tcp-flags syn/ack"), "flags syn are not in the mask"),
        (&format!("{policy} proto tcp tcp-flags sin/syn"), "fin, syn, rst"),
        (
            &format!("{policy} proto udp tcp-flags syn/syn"),
            "only TCP has flags to select by, not protocol udp (protocol tcp)",
        ),
        (&format!("{policy} tcp-flags syn/syn"), "only TCP has flags to select by"),
        (&format!("{policy} ttl 256"), "ttl '256' (a number from 0 to 255)"),
        (&format!("{policy} ttl 5 hoplimit 6"), "hoplimit"),
        (&format!("{policy} hoplmit 6"), "did you mean hoplimit?"),
        (&format!("{policy} proto gre key 5"), "'key' is not supported yet"),
        (&format!("{policy} proto frobnicate"), "no protocol 'frobnicate'"),
        (&format!("{policy} dev lan"), "'dev' is not supported yet"),
        (&format!("{policy} ptype sub"), "ptype sub is not supported"),
        (&format!("{policy} index 8"), "index"),
        (&format!("{policy} flag localok"), "'flag' is not supported yet"),
        (&format!("{policy} limit byte-hard 5"), "'limit' is not supported yet"),
        (&format!("{policy} action block {tmpl}"), "no use for a tmpl"),
        (&format!("{policy} {tmpl} {tmpl}"), "more than one tmpl"),
        (&format!("{policy} {tmpl} level use"), "level use is not supported"),
        (&format!("{policy} tmpl dst 192.0.2.2 proto esp"), "'mode' is missing"),
        (
            &format!("{policy} tmpl dst 192.0.2.2 proto comp mode tunnel"),
            "proto comp is not supported",
        ),
        (&format!("{policy} tmpl proto esp mode tunnel"), "'dst' is missing"),
        (&format!("{policy} tmpl dst 192.0.2.2 proto esp mode beet"), "mode beet is not supported"),
        ("xfrm policy delete dir out", "which policy?"),
        ("xfrm policy delete index 9 src 10.0.0.0/8 dir out", "not by both"),
        ("xfrm policy set hthresh4 1 2", "nothing to set"),
        ("xfrm policy setdefault", "nothing to set"),
        ("xfrm policy setdefault in maybe", "in 'maybe'"),
        ("xfrm policy count now", "one word too many"),
        ("route add 10.0.0.0/33 via 192.0.2.1", "10.0.0.0/33"),
        ("route add 10.0.0.1/8 via 192.0.2.1", "bits are set beyond"),
        ("route add 10.0.0.0/8", "leads nowhere"),
        ("route add 10.0.0.0/8 via 192.0.2.1 flavour sweet", "'flavour' is not expected"),
        ("route add 10.0.0.0/8 via 192.0.2.1 onlink", "one next hop is on the link of a port"),
        ("route add 10.0.0.0/8 via 192.0.2.1 src 192.0.2.2/24", "src '192.0.2.2/24'"),
        ("route add 10.0.0.0/8 nexthop weight 2", "'via' is missing"),
        ("route get 10.0.0.1 from 2001:db8::1", "two address families"),
        ("route get 10.0.0.1 from 10.0.0.2 from 10.0.0.3", "'from' is given twice"),
        ("route get 10.0.0.1 from", "'from'"),
        ("route get 10.0.0.1 iif", "the name of a port or VRF"),
        ("route get 10.0.0.1 mark x", "mark 'x'"),
        ("route get 10.0.0.1 oif lan", "'oif' is not supported"),
        ("route get 10.0.0.1 table 7 mark 1", "a table is asked for the destination alone"),
        ("route get 10.0.0.1 10.0.0.2", "10.0.0.2"),
        ("route get", "the destination"),
        ("route add 10.0.0.0/8 nhid 7", "'nhid' is not supported"),
        ("route add 10.0.0.0/8 nexthop", "'via' is missing"),
        ("route add 10.0.0.0/8 nexthop id 7", "'via' is missing"),
        ("route add 10.0.0.0/8 nexthop vrf", "the name of a VRF"),
        ("route add 10.0.0.0/8 nexthop dev lan weight", "weight"),
        ("route add 10.0.0.0/8 nexthop dev lan port-vrf", "the name of a VRF"),
        ("route add 10.0.0.0/8 nexthop dev lan dev wan", "'dev' is given twice"),
        ("route add 10.0.0.0/8 nexthop dev lan nexthop dev lan", "port lan is given twice"),
        ("route add 10.0.0.0/8 nexthop dev lan onlink", "onlink says that one next hop is"),
        ("route add 10.0.0.0/8 nexthop via 192.0.2.1 onlink", "onlink says that one next hop is"),
        (
            "route add 10.0.0.0/8 table 7 nexthop via 192.0.2.1 dev lan port-vrf blue",
            "a table that no VRF has may have routes by ports of any VRF",
        ),
        ("route add 10.0.0.0/8 nexthop via 192.0.2.1 weight 0", "weight '0' (1 to 256)"),
        ("route add 10.0.0.0/8 nexthop via 192.0.2.1 weight 257", "weight '257' (1 to 256)"),
        ("route add 10.0.0.0/8 nexthop via 192.0.2.1 via 192.0.2.2", "'via' is given twice"),
        ("route add 10.0.0.0/8 nexthop via 192.0.2.1 encap", "'encap' is not supported yet"),
        ("route add 10.0.0.0/8 nexthop via 192.0.2.1 nexthop via 192.0.2.1", "is given twice"),
        ("route add 10.0.0.0/8 via 192.0.2.9 nexthop via 192.0.2.1", "one next hop or several"),
        ("route add 10.0.0.0/8 nexthop via 2001:db8::1", "two address families"),
        ("route add blackhole 10.0.0.0/8 nexthop via 192.0.2.1", "sends nowhere"),
        ("route add 10.0.0.0/8 via 2001:db8::1", "two address families"),
        ("route add 10.0.0.0/8 via inet6 192.0.2.1", "is not an IPv6 address"),
        ("route add blackhole 10.0.0.0/8 dev lan", "sends nowhere"),
        ("route add local 10.0.0.0/8 dev lan", "follow from the addresses"),
        ("route add throw 10.0.0.0/8", "'throw' is not supported yet"),
        ("route add 224.0.0.0/4 dev lan", "not routed"),
        ("route add fe80::/64 via fe80::1", "not routed"),
        ("route add 2001:db8::/32 via fe80::1", "name the port too"),
        ("route add 10.0.0.0/8 dev lan table 255", "table 255 is Linux's table local"),
        ("route add 10.0.0.0/8 dev lan table 0", "table 0 is no table"),
        ("route add 10.0.0.0/8 dev lan table 10 vrf red", "'vrf or table' is given twice"),
        ("route show table local", "a VRF has one table for all"),
        ("link add red type vrf", "'table' is missing"),
        ("link add red type vrf table 254", "the table of VRF main"),
        ("link add red type vrf table x", "table 'x'"),
        ("link add red type vrf table 1 table 2", "given twice"),
        ("link add red link wan type vrf table 1", "a VRF has no 'link'"),
        ("link add red mtu 1500 type vrf table 1", "a VRF has no 'mtu'"),
        ("link add red down type vrf table 1", "a VRF is always up"),
        ("link show type bridge", "type 'bridge'"),
        ("vrf add red table", "a number is needed"),
        ("vrf add red blue", "'blue' is not expected here"),
        ("route add 10.0.0.0/8 dev lan scope host", "scope 'host'"),
        ("route append 10.0.0.0/8 dev lan", "of a prefix there is one route of each metric"),
        ("route flush", "which routes?"),
        ("route get", "'ADDRESS' is missing"),
        ("route get 10.0.0.1 ipproto tcp", "'ipproto' is not supported yet"),
        ("neigh add 192.0.2.2 dev wan", "'lladdr' is missing"),
        ("neigh add 192.0.2.2 lladdr 03:00:00:00:00:02 dev wan", "not the address of one station"),
        ("neigh add 224.0.0.1 lladdr 02:00:00:00:00:02 dev wan", "not the address of one station"),
        ("neigh add 192.0.2.2 lladdr 02:00:00:00:00 dev wan", "six hexadecimal octets"),
        ("neigh add 192.0.2.2 lladdr 02:00:00:00:00:02 dev wan nud stale", "nud stale"),
        ("neigh add proxy 192.0.2.2 dev wan", "'proxy' is not supported yet"),
        ("neigh flush", "which neighbours?"),
        ("addr add 192.0.2.1/24", "'dev' is missing"),
        ("addr add 192.0.2.0/24 dev wan", "network address"),
        ("addr add 192.0.2.1/24 dev wan label wan:1", "label: an address of wan has no name"),
        ("addr add 192.0.2.1/24 dev wan brd 192.0.2.127", "broadcast address of one's own choice"),
        ("addr flush", "which addresses?"),
        ("link set wan", "nothing to set"),
        ("link set wan mtu 65536", "an MTU of 65536 bytes (68 to 9216 bytes)"),
        ("link set dev wan dev lan up", "'dev' is given twice"),
        ("link set mtu 1400", "'dev' is missing"),
        ("link set wan mtu 20", "an MTU of 20 bytes (68 to 9216 bytes)"),
        ("link set wan promisc on", "'promisc' is not supported yet"),
        ("link set 'a b' up", "not allowed here in a name"),
        ("link add red type bridge", "links of type 'bridge' cannot be added"),
        ("link add link wan name wan.1 type vlan", "'id' is missing (1 to 4094)"),
        ("link add name wan.1 type vlan id 1", "'link' is missing"),
        ("link add link wan type vlan id 1", "'name' is missing"),
        ("link add link wan wan.1 type vlan id 0", "id 0 (1 to 4094)"),
        ("link add link wan wan.1 type vlan id 4095", "id 4095 (1 to 4094)"),
        ("link add link wan wan.1 type vlan id 65537", "id 65537 (1 to 4094)"),
        (
            "link add link wan wan.1 type vlan id 1 protocol 802.1p",
            "protocol '802.1p' (802.1Q or 802.1ad)",
        ),
        ("link add link wan wan.1 type vlan id 1 proto 802.1q proto 802.1ad", "protocol"),
        ("link add link wan wan.1 type vlan id 1 protocol", "802.1Q or 802.1ad"),
        ("link add link wan wan.1 type vlan id 1 gvrp on", "'gvrp' is not supported yet"),
        ("link add link wan wan.1 txqueuelen 5 type vlan id 1", "'txqueuelen' is not supported"),
        ("link add link wan wan.1 mtu 20 type vlan id 1", "an MTU of 20 bytes"),
        ("link add x type xfrm dev wan", "'if_id' is missing (1 to 4294967295)"),
        ("link add x type xfrm dev wan if_id 0", "if_id 0 is none (1 to 4294967295)"),
        ("link add x type xfrm dev wan if_id 4294967296", "if_id '4294967296'"),
        ("link add x type xfrm dev wan if_id seven", "if_id 'seven'"),
        ("link add x type xfrm dev wan if_id 7 if_id 7", "'if_id' is given twice"),
        ("link add x type xfrm dev wan dev lan if_id 7", "'dev' is given twice"),
        ("link add x link wan type xfrm dev lan if_id 7", "'dev' is given twice"),
        ("link add x type xfrm if_id 7", "'dev' is missing"),
        ("link add type xfrm dev wan if_id 7", "'name' is missing"),
        ("link add x type xfrm external", "'external' is not supported yet"),
        ("link add x type xfrm dev wan if_id 7 id 5", "'id' is not expected here"),
        (&format!("{sa} if_id 5 if_id 5"), "'if_id' is given twice"),
        (&format!("{sa} if_id"), "the command ends after 'if_id'"),
        (
            "xfrm policy add src 10/8 dst 10/8 dir in action block if_id 7 vrf red",
            "for the packets of an xfrm link and not for those of VRF red",
        ),
        (
            &format!("{} if_id 7 vrf red", sa.replacen(" spi", " vrf blue spi", 1)),
            "what an SA with an if_id decrypts is in the VRF of its xfrm link, and not in red",
        ),
        (
            "link add link wan wan.1",
            "the command ends after 'wan.1' (type vlan, type xfrm, or type vrf is needed)",
        ),
        ("link del", "the command ends"),
        ("link del wan.1 type bridge", "type 'bridge' (expected: vlan, xfrm, vrf)"),
        ("link set wan up down", "given twice"),
        ("vrf exec red ping", "programs do not run in VRFs here"),
        ("vrf add", "the VRF's name"),
        ("vrf set main", "nothing to set (ipsec auto, ipsec off, ipsec required, ike bypass, ike"),
        ("vrf set main ike", "the command ends after 'ike'"),
        ("vrf set main ike off", "ike 'off'"),
        ("vrf set main ike policy ike bypass", "given twice"),
        ("vrf set main esp policy", "'esp'"),
        ("filter frob", "'frob' is not expected here"),
        ("filter get dev lan ingress pref 1", "filter get is not supported"),
        ("filter add ingress action drop", "'dev' is missing (dev PORT, or vrf NAME)"),
        ("filter add dev lan action drop", "'ingress' is missing"),
        ("filter add dev lan ingress egress action drop", "one hook too many"),
        ("filter add dev lan vrf red ingress action drop", "one port or VRF too many"),
        ("filter add dev lan ingress", "'action' is missing (action pass, drop or reject"),
        ("filter add dev lan ingress action", "the command ends after 'action'"),
        ("filter add dev lan root action drop", "'root' is not supported yet"),
        ("filter add dev lan ingress chain 5 action drop", "'chain' is not supported yet"),
        ("filter add dev lan ingress handle 1 action drop", "'handle' is not supported yet"),
        ("filter add dev lan ingress u32 match", "'u32' is not supported yet"),
        ("filter add dev lan ingress flower vlan_id 5", "'vlan_id' is not supported yet"),
        ("filter add dev lan ingress flower flower", "'flower' is given twice"),
        (&format!("{rule} pref 0 action drop"), "pref '0' (1 to 65535)"),
        (&format!("{rule} prio 65536 action drop"), "prio '65536' (1 to 65535)"),
        (&format!("{rule} pref 5 pref 5 action drop"), "'pref' is given twice"),
        (&format!("{rule} protocol arp action drop"), "protocol 'arp' (expected: ip, ipv6, all"),
        (&format!("{rule} protocol ip protocol ip"), "'protocol' is given twice"),
        (
            &format!("{rule} dst_port 80 action drop"),
            "has no ports to select by (ip_proto tcp, udp, sctp, dccp or udplite)",
        ),
        (&format!("{rule} ip_proto esp src_port 80 action drop"), "has no ports"),
        (&format!("{rule} ip_proto tcp dst_port 9-5 action drop"), "must not be greater"),
        (&format!("{rule} ip_proto tcp dst_port x action drop"), "dst_port 'x'"),
        (&format!("{rule} ip_proto tpc action drop"), "there is no protocol 'tpc'"),
        (&format!("{rule} ip_proto tcp type 8 action drop"), "only ICMP"),
        (&format!("{rule} protocol ipv6 ip_proto icmp type 8 action drop"), "protocol"),
        (&format!("{rule} tcp_flags syn/syn action drop"), "(ip_proto tcp)"),
        (&format!("{rule} ip_proto tcp tcp_flags syn action drop"), "expected FLAGS/MASK"),
        (&format!("{rule} src_ip banana action drop"), "src_ip 'banana'"),
        (&format!("{rule} src_ip 10/8 src_ip 10/8 action drop"), "'src_ip' is given twice"),
        (
            &format!("{rule} src_ip 10/8 dst_ip 2001:db8::/32 action drop"),
            "source and destination are of two address families",
        ),
        (
            &format!("{rule} protocol ipv6 src_ip 10/8 action drop"),
            "the source is of IPv4, and the rule for IPv6 (protocol ip, or source addresses of \
            IPv6)",
        ),
        (
            &format!("{rule} protocol all dst_ip ::1 action drop"),
            "the destination is of IPv6, and the rule for both families (protocol ipv6",
        ),
        (&format!("{rule} ip_tos 0xb8 action drop"), "without a mask it means ECN too"),
        (&format!("{rule} ip_tos 0xb8/0xff action drop"), "it means ECN too"),
        (&format!("{rule} ip_tos 0x1b8/0xfc action drop"), "a number from 0 to 0xff"),
        (&format!("{rule} ip_tos 0xb8/0x00 action drop"), "mask"),
        (&format!("{rule} dscp ef ip_tos 0xb8/0xfc action drop"), "'ip_tos' is given twice"),
        (&format!("{rule} ip_ttl 256 action drop"), "ip_ttl '256' (a number from 0 to 255)"),
        (&format!("{rule} mark 5/0 action drop"), "the mask is 0"),
        (&format!("{rule} mark 5/2 action drop"), "has bits that the mask 0x2 has not"),
        (&format!("{rule} mark -1 action drop"), "mark '-1': expected a number"),
        (&format!("{rule} mark 1 mark 1 action drop"), "'mark' is given twice"),
        (&format!("{rule} action frob"), "'frob' is not expected here"),
        (&format!("{rule} action mirred egress"), "'mirred' is not supported yet"),
        (&format!("{rule} action continue"), "'continue' is not supported yet"),
        (&format!("{rule} action drop action pass"), "action pass behind action drop"),
        (&format!("{rule} action drop with tcp-reset"), "tcp-reset goes with reject"),
        (&format!("{rule} action reject with frob"), "with 'frob' (expected: icmp-admin"),
        (&format!("{rule} action reject with"), "the command ends after 'with'"),
        (
            &format!("{rule} ip_proto udp action reject with tcp-reset"),
            "udp knows no resets (ip_proto tcp, or an ICMP message",
        ),
        (&format!("{rule} action skbedit priority 5"), "'priority' is not supported yet"),
        (&format!("{rule} action skbedit"), "the command ends after 'skbedit'"),
        (&format!("{rule} action pass set-mark 1 set-mark 2"), "'set-mark' is given twice"),
        (&format!("{rule} action drop log log"), "'log' is given twice"),
        (&format!("{rule} action drop index 5"), "'index' is not supported yet"),
        (&format!("{rule} action drop ip_proto tcp"), "'ip_proto' is not expected here"),
        (&format!("{rule} src_pi 10/8 action drop"), "did you mean src_ip?"),
        ("filter del dev lan", "'ingress' is missing"),
        ("filter del dev lan ingress src_ip 10/8", "a rule is named by its preference"),
        ("filter del dev lan ingress parent 1:", "'parent' is not supported yet"),
        ("filter show lan", "'lan' is not expected here"),
    ];
    for (line, why) in cases {
        let refusal = parse(&split(line)).expect_err(line).to_string();
        assert!(
            refusal.contains(why),
            "{line}\n  should be refused with '{why}'\n  but was with '{refusal}'"
        );
    }
}

#[test]
fn errors_name_the_command_and_never_a_key() {
    let key = "0x1c0cf2bb72ce67ba245b593076dfb27a";
    let lines = [
        format!("xfrm state add auth {key} sha1"),
        format!("xfrm state add {key}"),
        format!("xfrm state add enc aes {key}0"),
        format!("xfrm state add src {key}"),
        format!(
            "xfrm state add src 192.0.2.1 dst 192.0.2.2 spi 1 mode tunnel aead 'rfc4106(gcm(aes))' \
            {key} 128"
        ),
        format!(
            "xfrm state add src 192.0.2.1 dst 192.0.2.2 spi 1 mode tunnel enc {key} aes auth sha1 \
            0x00"
        ),
    ];
    for line in lines {
        let refusal = parse(&split(&line)).unwrap_err().to_string();
        assert!(refusal.starts_with("xfrm state add: "), "{refusal}");
        assert!(!refusal.contains("1c0cf2bb"), "{refusal}");
    }
}

#[test]
fn meanings() {
    let Request::StateAdd(state) = accepted(
        "xfrm state add src 192.0.2.1 dst 192.0.2.2 spi 1 mode tunnel enc cipher_null '' \
        auth-trunc sha256 abc 128 flag nopmtudisc noecn",
    ) else {
        panic!()
    };
    assert_eq!(state.authentication.unwrap().key.bytes(), b"abc");
    assert_eq!(state.flags, [SaFlag::NoEcn, SaFlag::NoPmtuDisc]);
    let Request::RouteAdd(route) = accepted("route add default via 2001:db8::1") else { panic!() };
    assert_eq!(route.destination.to_string(), "::/0");
    let line = "route add default nexthop via 2001:db8::1 nexthop via 2001:db8::2 weight 7";
    let Request::RouteAdd(route) = accepted(line) else { panic!() };
    assert_eq!(route.destination.to_string(), "::/0");
    let weights: Vec<_> = route.nexthops.iter().map(|one| one.weight).collect();
    assert_eq!(weights, [1, 7]);
    let many = |count| {
        let one = |number| format!(" nexthop via 10.0.{number}.1");
        format!("route add default{}", (0..count).map(one).collect::<String>())
    };
    accepted(&many(64));
    let refusal = parse(&split(&many(65))).unwrap_err().to_string();
    assert!(refusal.contains("65 next hops of one route (1 to 64)"), "{refusal}");
    let Request::RouteAdd(route) = accepted("route add prohibit 10.0.0.0/8 metric 9 table blue")
    else {
        panic!()
    };
    assert_eq!((route.kind, route.metric, route.vrf.as_str()), (RouteKind::Prohibit, 9, "blue"));
    let Request::PolicyAdd(policy) = accepted("xfrm policy add src 10.0.0.0/8 dir out") else {
        panic!()
    };
    assert_eq!((policy.action, policy.selector.destination), (PolicyAction::Bypass, None));
    let Request::PolicyAdd(policy) = accepted("xfrm policy add dir out action block") else {
        panic!()
    };
    assert_eq!(policy.action, PolicyAction::Discard);
}

#[test]
fn what_is_described_can_be_typed() {
    for line in [
        "xfrm policy add src 10.0.0.1-10.0.0.9 dst 10.0.0.0/8 proto tcp sport 1000-2000 dport 80 \
        dir fwd priority 16 action block vrf red",
        "xfrm policy add src ::/0 dst 2001:db8::/32 proto ipv6-icmp type 128-129 code 0 dir in",
        "xfrm policy add src 10.0.0.0/8 dst 10.0.0.0/8 proto tcp dport 22 dscp 0x28/0x38 tcp-flags \
        syn/syn,ack ttl 255 dir out",
        "xfrm policy add src ::/0 dst 2001:db8::/32 dscp ef hoplimit 64 dir in",
        "xfrm policy add src 0.0.0.0/0 dst 10.0.0.0/8 dir out tmpl src 192.0.2.1 dst 192.0.2.2 \
        proto esp spi 0x5 mode tunnel reqid 4",
    ] {
        let Request::PolicyAdd(policy) = accepted(line) else { panic!() };
        assert_eq!(format!("xfrm policy add {}", describe::policy(&policy)), line);
    }
    for line in [
        "route add 10.0.0.0/8 via 192.0.2.1 dev wan metric 5 vrf red",
        "route add 10.0.0.0/8 via 192.0.2.1 dev wan port-vrf blue vrf red",
        "route add 10.0.0.0/8 via 192.0.2.1 dev wan onlink src 10.9.0.1 vrf red",
        "route add 10.0.0.0/8 nexthop vrf blue metric 5 vrf red",
        "route add blackhole ::/0",
        "route add ::/0 metric 5 vrf red nexthop via fe80::1 dev wan weight 2 nexthop via fd00::1 \
        weight 1",
        "route add 10.0.0.0/8 vrf red nexthop via 192.0.2.1 dev blue0 port-vrf blue onlink weight 1 \
        nexthop dev wan weight 2",
    ] {
        let Request::RouteAdd(route) = accepted(line) else { panic!() };
        assert_eq!(format!("route add {}", describe::route(&route)), line);
    }
}

const VOCABULARY: &[&str] = &[
    "nexthop",
    "weight",
    "xfrm",
    "state",
    "policy",
    "route",
    "neigh",
    "addr",
    "link",
    "vrf",
    "add",
    "del",
    "update",
    "get",
    "list",
    "flush",
    "set",
    "src",
    "dst",
    "proto",
    "spi",
    "mode",
    "tunnel",
    "reqid",
    "enc",
    "auth",
    "auth-trunc",
    "aead",
    "flag",
    "tmpl",
    "dir",
    "in",
    "out",
    "fwd",
    "via",
    "dev",
    "table",
    "metric",
    "lladdr",
    "nud",
    "mtu",
    "up",
    "10.0.0.0/8",
    "192.0.2.1",
    "2001:db8::1",
    "0x10",
    "7",
    "esp",
    "udp",
    "sport",
    "5-9",
    "dscp",
    "ef",
    "tcp-flags",
    "syn/syn,ack",
    "ttl",
    "rfc4106(gcm(aes))",
    "cbc(aes)",
    "sha1",
    "",
    "\u{1b}[0m",
    "é",
    "default",
    "to",
    "noecn",
    "setdefault",
    "filter",
    "ingress",
    "pref",
    "protocol",
    "src_ip",
    "ip_proto",
    "dst_port",
    "ip_tos",
    "mark",
    "drop",
    "reject",
    "with",
    "skbedit",
    "log",
    "accept",
    "block",
    "action",
    "index",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_words_are_accepted_or_refused(words in prop::collection::vec(prop::sample::select(VOCABULARY), 0..14)) {
        let _ = parse(&words);
    }

    #[test]
    fn any_text_is_accepted_or_refused(words in prop::collection::vec("\\PC{0,12}", 0..8)) {
        let _ = parse(&words);
    }
}

#[test]
fn what_is_removed_is_of_the_vrf_main_unless_another_one_is_said() {
    let main = Some("main".to_owned());
    for line in ["xfrm policy flush", "xfrm policy deleteall", "xfrm policy deleteall dir in"] {
        let Request::PolicyFlush(filter) = accepted(line) else { panic!("{line}") };
        assert_eq!((filter.vrf, filter.if_id), (main.clone(), None), "{line}");
    }
    let Request::PolicyFlush(filter) = accepted("xfrm policy flush if_id 7") else { panic!() };
    assert_eq!((filter.vrf, filter.if_id), (None, Some(7)));
    let Request::PolicyFlush(filter) = accepted("xfrm policy deleteall vrf red") else { panic!() };
    assert_eq!(filter.vrf.as_deref(), Some("red"));
    for line in ["xfrm state flush", "xfrm state deleteall", "xfrm state deleteall reqid 1"] {
        let Request::StateFlush(flush) = accepted(line) else { panic!("{line}") };
        assert_eq!(flush.filter.vrf, main, "{line}");
    }
    for (line, vrf) in [
        ("neigh flush all", Some("main")),
        ("neigh flush to 10.0.0.0/8", Some("main")),
        ("neigh flush dev lan", None),
        ("neigh flush vrf red", Some("red")),
    ] {
        let Request::NeighbourFlush(filter) = accepted(line) else { panic!("{line}") };
        assert_eq!(filter.vrf.as_deref(), vrf, "{line}");
    }
    for (line, vrf) in [("addr flush to 10/8", Some("main")), ("addr flush dev lan", None)] {
        let Request::AddressFlush(filter) = accepted(line) else { panic!("{line}") };
        assert_eq!(filter.vrf.as_deref(), vrf, "{line}");
    }
    for (line, vrf, family) in [
        ("route flush root 10/8", Some("main"), Some(Family::V4)),
        ("route flush fd00::/8", Some("main"), Some(Family::V6)),
        ("route flush table 10", None, Some(Family::V4)),
        ("route flush vrf red", Some("red"), Some(Family::V4)),
        ("route flush table all", None, None),
    ] {
        let Request::RouteFlush(filter) = accepted(line) else { panic!("{line}") };
        assert_eq!((filter.vrf.as_deref(), filter.family), (vrf, family), "{line}");
    }
}

#[test]
fn routes_are_shown_as_ip_shows_them() {
    for (line, vrf, table, family) in [
        ("route", Some("main"), None, Some(Family::V4)),
        ("route show dev lan", Some("main"), None, Some(Family::V4)),
        ("route show all", Some("main"), None, Some(Family::V4)),
        ("route show fd00::/8", Some("main"), None, Some(Family::V6)),
        ("route show table 10", None, Some(10), Some(Family::V4)),
        ("route show table all", None, None, None),
    ] {
        let Request::RouteList(filter) = accepted(line) else { panic!("{line}") };
        assert_eq!((filter.vrf.as_deref(), filter.table), (vrf, table), "{line}");
        assert_eq!(filter.family, family, "{line}");
    }
    let words = ["route", "show"];
    let Ok(Request::RouteList(filter)) = parse_with(&words, Some(Family::V6)) else { panic!() };
    assert_eq!(filter.family, Some(Family::V6));
}

#[test]
fn a_port_of_0_is_any_port_of_a_policy_and_of_nothing_else() {
    let line = "xfrm policy add dst 10/8 proto udp sport 0 dport 0x0 dir out";
    let Request::PolicyAdd(spec) = accepted(line) else { panic!() };
    assert_eq!((spec.selector.source_ports, spec.selector.destination_ports), (None, None));
    let line = "xfrm policy add dst 10/8 proto udp sport 0-0 dport 53 dir out";
    let Request::PolicyAdd(spec) = accepted(line) else { panic!() };
    assert_eq!(spec.selector.source_ports, "0".parse().ok());
    let line = "filter add dev lan ingress proto udp dport 0 action drop";
    let Request::FilterAdd(spec) = accepted(line) else { panic!() };
    assert_eq!(spec.selector.destination_ports, "0".parse().ok());
}

#[test]
fn rules_are_said_as_with_iproute2() {
    for word in ["priority", "prio", "pref", "preference", "order", "pri"] {
        let Request::RuleAdd(spec) = accepted(&format!("rule add {word} 7 from 10/8")) else {
            panic!("{word}")
        };
        assert_eq!(spec.priority, Some(7));
        // Without an action it is the table main.
        assert_eq!(spec.action, Some(api::RuleAction::Vrf("main".to_owned())));
    }
}

#[test]
fn a_selector_of_an_sa_may_say_everything_and_nothing_less() {
    let state = "xfrm state add src 192.0.2.1 dst 192.0.2.2 spi 1 mode tunnel enc cipher_null '' auth \
        digest_null ''";
    for all in ["sel src 0.0.0.0/0 dst 0.0.0.0/0", "sel src ::/0 dst ::/0 reqid 5", "sel src any"] {
        assert!(matches!(accepted(&format!("{state} {all}")), Request::StateAdd(_)), "{all}");
    }
    for some in ["sel src 10.0.0.0/8", "sel src 0.0.0.0/0 dst 0.0.0.0/0 proto gre"] {
        let refusal = parse(&split(&format!("{state} {some}"))).unwrap_err().to_string();
        assert!(refusal.contains("'sel' of some packets is not supported"), "{refusal}");
    }
}

#[test]
fn lists_of_queueing_disciplines_are_filtered_as_by_tc() {
    let read = |line: &str| match accepted(line) {
        Request::QdiscList(filter) => filter,
        other => panic!("{other:?}"),
    };
    let dev = || Some("wan".to_owned());
    let all = QdiscFilter::default();
    for (line, filter) in [
        ("dev wan root", QdiscFilter { dev: dev(), root: true, ..all.clone() }),
        ("root", QdiscFilter { root: true, ..all.clone() }),
        (
            "dev wan handle 10:",
            QdiscFilter { dev: dev(), handle: "10:".parse().ok(), ..all.clone() },
        ),
        ("parent 1: dev wan", QdiscFilter { dev: dev(), parent: "1:".parse().ok(), ..all.clone() }),
        ("parent 1:1", QdiscFilter { parent: "1:".parse().ok(), ..all.clone() }),
        ("dev wan ingress", QdiscFilter { dev: dev(), ingress: true, ..all.clone() }),
        ("clsact", QdiscFilter { ingress: true, ..all.clone() }),
        ("dev wan invisible", QdiscFilter { dev: dev(), ..all.clone() }),
    ] {
        assert_eq!(read(&format!("qdisc show {line}")), filter, "{line}");
    }
    for wrong in ["root parent 1:", "stab", "root root", "dev"] {
        assert!(parse(&split(&format!("qdisc show {wrong}"))).is_err(), "{wrong}");
    }
    let tbf = |words: &str| accepted(&format!("qdisc add dev lan root tbf rate 1mbit {words}"));
    assert_eq!(tbf("bur 32kb lat 50ms"), tbf("burst 32kb latency 50ms"));
    assert_eq!(tbf("b 32kb l 64kb"), tbf("burst 32kb limit 64kb"));
    assert!(parse(&split("qdisc add dev lan root fq_codel lim 5")).is_err(), "tc has it in full");
}

#[test]
fn what_is_no_object_is_held_against_those_that_there_are() {
    let refusal = parse(&["frobnicate", "add"]).unwrap_err().to_string();
    assert!(refusal.contains("xfrm, route, rule, neigh"), "{refusal}");
    assert!(!refusal.contains("ioam") && !refusal.contains("addrlabel"), "{refusal}");
    let near = parse(&["ruote", "add"]).unwrap_err().to_string();
    assert!(near.contains("did you mean route?"), "{near}");
}

#[test]
fn what_is_not_here_is_refused_with_what_to_say_instead() {
    for (line, says) in [
        ("route add 10/8 via 10.0.0.1 mtu 1400", "link set PORT mtu BYTES"),
        ("route add 10/8 via 10.0.0.1 tos 4", "rule add dscp"),
        ("route flush cache", "'cache': there is no cache of routes"),
        ("addr add 10.0.0.1/8 dev lan peer 10.0.0.2", "a route to the other end"),
        ("addr add 10.0.0.1/8 dev lan scope host", "that of 10.0.0.1/8 is global"),
        ("netns list", "'netns' is not here"),
        ("nexthop add id 1 blackhole", "next hops are parts of routes"),
        ("mon", "'mon' is not here"),
        ("qdisc add dev wan clsact", "which needs no qdisc"),
        ("neigh flush dev lan nud all", "nud permanent, and again"),
    ] {
        let refusal = parse(&split(line)).unwrap_err().to_string();
        assert!(refusal.contains(says), "{line}: {refusal}");
    }
}

#[test]
fn the_port_of_link_set_stands_anywhere() {
    let lines =
        ["lan up mtu 1400", "dev lan up mtu 1400", "up lan mtu 1400", "mtu 1400 up dev lan"];
    let all = lines.map(|line| accepted(&format!("link set {line}")));
    assert!(all.iter().all(|one| *one == all[0]), "{all:?}");
    for wrong in ["up lan wan", "lan up dev wan", "up", "multicast lan up"] {
        assert!(parse(&split(&format!("link set {wrong}"))).is_err(), "{wrong}");
    }
    let rule = accepted("rule add type prohibit from 10.0.0.0/8");
    assert_eq!(rule, accepted("rule add from 10.0.0.0/8 prohibit"));
    let described = accepted("neigh del 10.0.0.2 dev lan lladdr 02:00:00:00:00:01");
    assert_eq!(described, accepted("neigh del 10.0.0.2 dev lan"));
}

#[test]
fn families_in_front_of_a_command() {
    let read =
        |line: &str, family| parse_with(&line.split_whitespace().collect::<Vec<_>>(), Some(family));
    let Ok(Request::RouteAdd(spec)) = read("route add default dev lan", Family::V6) else {
        panic!("a route")
    };
    assert_eq!(spec.destination.to_string(), "::/0");
    let Ok(Request::NeighbourList(filter)) = read("neigh show", Family::V4) else {
        panic!("a list")
    };
    assert_eq!(filter.family, Some(Family::V4));
    assert!(read("link show", Family::V4).is_ok(), "links have no family");
    for (line, says) in [
        ("route add 10.0.0.0/8 dev lan", "10.0.0.0 is not of the family that -6 says"),
        ("addr add 10.0.0.1/8 dev lan", "not of the family"),
        ("qdisc show", "-4 and -6 are for"),
        ("xfrm policy add src 10.0.0.0/8 dir in", "10.0.0.0 is not of the family that -6 says"),
        ("xfrm state get dst 10.0.0.1 spi 5", "not of the family"),
    ] {
        let refusal = read(line, Family::V6).unwrap_err().to_string();
        assert!(refusal.contains(says), "{line}: {refusal}");
    }
}
