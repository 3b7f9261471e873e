"""Every wrong word of the commands: a clear error, and nothing half applied."""

import json

import pytest

from harness.config import Config, Port
from harness.gateway import Gateway, Here

GIVEN = """\
link add blue type vrf table 10
link add red type vrf table 20
link set far master red
addr add 10.1.0.1/24 dev lan
addr add fd01::1/64 dev lan
addr add 10.2.0.1/24 dev wan
addr add 10.3.0.1/24 dev far
link add link lan name lan.7 type vlan id 7
link add link lan.7 name lan.7.8 type vlan id 8
link add name ipsec4 type xfrm dev wan if_id 4
route add 10.5.0.0/16 via 10.1.0.2
route add 10.8.0.0/16 via 10.1.0.2
route add 10.3.0.0/16 dev blue vrf red
rule add priority 100 lookup 100
neigh add 10.1.0.8 lladdr 02:00:00:00:00:08 dev lan
qdisc add dev wan root pfifo
filter add dev lan ingress pref 1 action pass
"""
"""What is there before."""

WRONG = [
    # link
    ("link add blue type vrf table 11", "a VRF 'blue' exists"),
    ("link add green type vrf", "'table' is missing"),
    ("link add green type vrf table", "the command ends after 'table'"),
    ("link add green type vrf table 0", "table 0 is no table"),
    ("link add green type vrf table 10", "table 10 is that of VRF 'blue'"),
    ("link add green type vrf table 253", "table 253 is Linux's table default, which nothing leads to here"),
    ("link add green type vrf table 255", "table 255 is Linux's table local: local routes stand in the table of"),
    ("link add green type vrf table 4294967296", "table '4294967296'"),
    ("link add green type vrf table ten", "table 'ten'"),
    ("link add green type vrf table 11 table 12", "'table' is given twice"),
    ("link add green mtu 1400 type vrf table 11", "a VRF has no 'mtu'"),
    ("link add green up down type vrf table 11", "'up or down' is given twice"),
    ("link add green type bridge", "links of type 'bridge' cannot be added"),
    ("link add lan type vrf table 11", "a port 'lan' exists, and both are links"),
    ("link add averyveryverylongname type vrf table 11", "name 'averyveryverylongname': a name of 21 bytes"),
    ("link add a/b type vrf table 11", "name 'a/b': '/' is not allowed here in a name"),
    ("link add . type vrf table 11", "name '.': '.' is not allowed here in a name"),
    ("link add main type vrf table 11", "a VRF 'main' exists"),
    ("addr add fe80::1/64 dev ipsec4", "fe80::1/64 cannot be the address of an xfrm link"),
    ("link del main", "VRF 'main' cannot be removed"),
    ("link del grey", "there is no port, VLAN, xfrm link or VRF 'grey'"),
    ("link del lan", "port lan is not a VLAN or xfrm link, and comes and goes with the"),
    ("link set blue down", "a VRF is always up"),
    ("link set blue mtu 1400", "blue is a VRF, which has no MTU"),
    ("link set blue master red", "a VRF is not in another one"),
    ("link set lan master grey", "there is no VRF 'grey'"),
    ("link set lan master", "the command ends after 'master'"),
    ("link set lan mtu 67", "an MTU of 67 bytes"),
    ("link set lan mtu 1400 mtu 1400", "'mtu' is given twice"),
    ("link set lan side left", "side 'left'"),
    ("link set lan rpf on", "rpf 'on'"),
    ("link set lan promisc on", "'promisc' is not supported yet"),
    ("link set nothing up", "there is no port, VLAN, xfrm link or VRF 'nothing'"),
    ("link set lan", "nothing to set"),
    ("link add link lan name lan.0 type vlan id 0", "id 0"),
    ("link add link lan name lan.0 type vlan id 4095", "id 4095"),
    ("link add link lan name lan.0 type vlan id x", "id 'x'"),
    ("link add link lan name lan.0 type vlan", "'id' is missing"),
    ("link add link lan name lan.9 type vlan id 9 id 9", "'id' is given twice"),
    ("link add link lan name lan.9 type vlan id 9 proto 802.1x", "protocol '802.1x'"),
    (
        "link add link lan name lan.9 type vlan id 7",
        "port 'lan.9' cannot be VLAN 7 of port 'lan': port 'lan.7' is that",
    ),
    ("link add link lan name lan.7 type vlan id 9", "a port 'lan.7' exists"),
    ("link add link nothing name lan.9 type vlan id 9", "there is no port 'nothing'"),
    ("link add link lan name lan.9 mtu 9000 type vlan id 9", "port lan.9 is a VLAN of port lan, whose MTU is 1500"),
    (
        "link add link lan.7.8 name q type vlan id 9",
        "port 'q' cannot be VLAN 9 of port 'lan.7.8': that is a VLAN of a VLAN",
    ),
    ("link add name x type xfrm dev lan", "'if_id' is missing"),
    ("link add name x type xfrm dev lan if_id 4294967296", "if_id '4294967296'"),
    ("link add name x type xfrm if_id 5", "'dev' is missing"),
    ("link add name x type xfrm dev blue if_id 5", "'blue' is a VRF, and this is about a port"),
    ("link add name x type xfrm dev lan if_id 4", "port 'x' cannot have if_id 0x4: xfrm link 'ipsec4' has it"),
    ("link show type bridge", "type 'bridge'"),
    ("link show nothing", "there is no port, VLAN, xfrm link or VRF 'nothing'"),
    # vrf
    ("vrf add", "the command ends after 'add'"),
    ("vrf add blue", "a VRF 'blue' exists"),
    ("vrf add green table 10", "table 10 is that of VRF 'blue'"),
    ("vrf set blue", "nothing to set"),
    ("vrf set blue ipsec maybe", "ipsec 'maybe'"),
    ("vrf set grey ike bypass", "there is no VRF 'grey'"),
    ("vrf show grey", "there is no VRF 'grey'"),
    ("vrf del grey", "there is no VRF 'grey'"),
    ("vrf exec blue ping 10.0.0.1", "programs do not run in VRFs here: their sockets are the kernel's, and"),
    # addr
    ("addr add 10.9.0.1/33 dev lan", "address '10.9.0.1/33': the prefix length must be 0 to 32 for IPv4, 0"),
    ("addr add 10.9.0.1/24", "'dev' is missing"),
    ("addr add 10.9.0.1/24 dev nothing", "there is no port 'nothing'"),
    ("addr add 10.9.0.1/24 dev blue", "'blue' is a VRF, and this is about a port"),
    ("addr add 10.1.0.1/24 dev lan", "port lan has the address 10.1.0.1/24"),
    ("addr add 10.1.0.1/16 dev wan", "port 'wan' cannot have the address 10.1.0.1: port 'lan' of the same"),
    ("addr add 224.0.0.1/24 dev lan", "224.0.0.1/24 cannot be the address of a port: it is a multicast group"),
    ("addr add 127.0.0.1/8 dev lan", "127.0.0.1/8 cannot be the address of a port: it is a loopback address"),
    ("addr add 0.0.0.0/0 dev lan", "0.0.0.0/0 cannot be the address of a port: it is unspecified"),
    ("addr add ff02::1/64 dev lan", "ff02::1/64 cannot be the address of a port: it is a multicast group"),
    ("addr del 10.9.9.9/24 dev lan", "port lan has no address 10.9.9.9/24"),
    # route
    ("route add 10.9.0.1/16 via 10.1.0.2", "10.9.0.1/16: bits are set beyond the prefix length"),
    ("route add 10.9.0.0/16", "the route to 10.9.0.0/16 leads nowhere"),
    ("route add 10.9.0.0/16 via", "the command ends after 'via'"),
    ("route add 10.9.0.0/16 via 10.1.0.2 via 10.1.0.3", "'via' is given twice"),
    ("route add 10.9.0.0/16 via 2001:db8::1", "next hop 2001:db8::1 and destination 10.9.0.0/16 are of two address"),
    (
        "route add 10.9.0.0/16 via inet6 2001:db8::1 dev lan",
        "next hop 2001:db8::1 and destination 10.9.0.0/16 are of two address",
    ),
    ("route add 10.9.0.0/16 via 10.77.0.2", "next hop 10.77.0.2 is not on the link of any port of VRF 'main'"),
    ("route add 10.9.0.0/16 via 10.1.0.1", "next hop 10.1.0.1 is one of the gateway's own addresses"),
    ("route add 10.9.0.0/16 via 10.8.0.1", "next hop 10.8.0.1 is not on the link of any port of VRF 'main'"),
    ("route add 10.9.0.0/16 via 10.1.0.2 dev wan", "next hop 10.1.0.2 is not on any prefix of port 'wan'"),
    ("route add 10.9.0.0/16 via 10.1.0.2 dev nothing", "there is no port 'nothing'"),
    ("route add 10.9.0.0/16 via 10.1.0.2 metric 4294967296", "metric '4294967296'"),
    ("route add 10.9.0.0/16 via 10.1.0.2 table 0", "table 0 is no table"),
    (
        "route add 10.9.0.0/16 via 10.1.0.2 table 255",
        "table 255 is Linux's table local: local routes stand in the table of",
    ),
    ("route add 10.9.0.0/16 via 10.1.0.2 vrf grey", "there is no VRF 'grey'"),
    ("route add 10.9.0.0/16 via 10.1.0.2 vrf blue table 10", "'vrf or table' is given twice"),
    (
        "route add 10.9.0.0/16 via 10.1.0.2 src 10.99.0.1",
        "10.99.0.1 is not an address of VRF 'main' and of the route's family",
    ),
    (
        "route add 10.9.0.0/16 via 10.1.0.2 src 2001:db8::1",
        "src 2001:db8::1 and destination 10.9.0.0/16 are of two address",
    ),
    ("route add 10.9.0.0/16 via 10.1.0.2 onlink", "onlink says that one next hop is on the link of a port"),
    ("route add 10.9.0.0/16 via 10.1.0.2 tos 0x10", "'tos' is not supported yet"),
    ("route add 10.9.0.0/16 via 10.1.0.2 nhid 5", "'nhid' is not supported yet"),
    ("route add 10.9.0.0/16 via 10.1.0.2 encap mpls 10", "'encap' is not supported yet"),
    ("route add 10.9.0.0/16 nexthop via 10.1.0.2 weight 0 nexthop via 10.1.0.3", "weight '0'"),
    ("route add 10.9.0.0/16 nexthop via 10.1.0.2 weight 257 nexthop via 10.1.0.3", "weight '257'"),
    ("route add 10.9.0.0/16 nexthop via 10.1.0.2 nexthop via 10.1.0.2", "next hop 10.1.0.2 is given twice"),
    (
        "route add 10.9.0.0/16 nexthop via 10.1.0.2 nexthop via 2001:db8::1",
        "next hop 2001:db8::1 and destination 10.9.0.0/16 are of two address",
    ),
    (
        "route add 10.9.0.0/16 nexthop via 10.1.0.2 nexthop via 10.77.0.1",
        "next hop 10.77.0.1 is not on the link of any port of VRF 'main'",
    ),
    ("route add 10.9.0.0/16 nexthop", "'via' is missing"),
    ("route add 10.9.0.0/16 via 10.1.0.2 nexthop via 10.1.0.3", "a route has one next hop or several, and not both"),
    ("route add 10.9.0.0/16 dev blue vrf blue", "a route of VRF blue cannot lead into the same VRF's table"),
    ("route add 10.9.0.0/16 nexthop vrf grey", "there is no VRF 'grey'"),
    ("route add blackhole 10.9.0.0/16 via 10.1.0.2", "a route of kind blackhole sends nowhere"),
    ("route add throw 10.9.0.0/16", "'throw' is not supported yet"),
    ("route add local 10.9.0.1", "routes of kind local follow from the addresses of ports"),
    ("route add multicast 224.0.0.0/4 dev lan", "'multicast' is not supported yet"),
    ("route add 224.0.0.0/4 via 10.1.0.2", "224.0.0.0/4 is not routed: it is multicast"),
    ("route add 10.5.0.0/16 via 10.1.0.2", "there is a route to 10.5.0.0/16 with metric 0"),
    ("route change 10.9.0.0/16 via 10.1.0.2", "there is no route to 10.9.0.0/16 with metric 0"),
    ("route del 10.9.0.0/16", "there is no such route to 10.9.0.0/16 in VRF main"),
    ("route del 10.1.0.0/24", "the route to 10.1.0.0/24 comes with an address of a port"),
    ("route append 10.9.0.0/16 via 10.1.0.2", "of a prefix there is one route of each metric"),
    ("route get", "'ADDRESS' is missing"),
    ("route get 10.1.0.5 vrf grey", "there is no VRF 'grey'"),
    ("route get 10.0.0.0/8", "destination '10.0.0.0/8' is not an IPv4 or IPv6 address"),
    ("route flush", "which routes?"),
    # rule
    ("rule add from 10.0.0.1/8 lookup 100", "10.0.0.1/8 has bits beyond its length"),
    ("rule add from 10.0.0.0/8 from 10.0.0.0/8 lookup 100", "'from' is given twice"),
    ("rule add from 10.0.0.0/8 to fd00::/8 lookup 100", "to fd00::/8 is of another address family"),
    ("rule add from 10.0.0.0/8 vrf blue", "a rule stands in no VRF"),
    ("rule add from 10.0.0.0/33 lookup 100", "from '10.0.0.0/33': the prefix length must be 0 to 32 for IPv4, 0 to"),
    ("rule add fwmark 4294967296 lookup 100", "fwmark '4294967296'"),
    ("rule add fwmark 0x10/0xf lookup 100", "fwmark 0x10 has bits that its mask 0xf has not"),
    ("rule add fwmark x lookup 100", "fwmark 'x'"),
    ("rule add ipproto 256 lookup 100", "ipproto '256'"),
    ("rule add ipproto nothing lookup 100", "ipproto 'nothing'"),
    ("rule add ipproto icmp dport 80 lookup 100", "the protocol has no ports"),
    ("rule add dport 65536 lookup 100", "dport '65536': a port is a number from 0 to 65535"),
    ("rule add dport 90-80 lookup 100", "dport '90-80': the first of a range must not be greater than the last"),
    ("rule add dport x lookup 100", "dport 'x': a port is a number from 0 to 65535"),
    ("rule add priority 4294967296 lookup 100", "priority '4294967296'"),
    ("rule add priority 0 lookup 100", "priority 0 is the rule for own addresses, which come first"),
    ("rule add priority 100 lookup 100", "there is the rule priority 100 from 0.0.0.0/0 lookup 100"),
    ("rule add lookup 0", "table 0 is no table"),
    ("rule add lookup 253", "table 253 is Linux's table default, which nothing leads to here"),
    ("rule add lookup 255", "table 255 is Linux's table local: local routes stand in the table of"),
    ("rule add lookup grey", "there is no VRF 'grey'"),
    ("rule add lookup 4294967296", "table '4294967296' is no number of a table (1 to 4294967295, but not 253 to 255"),
    ("rule add lookup 100 lookup 101", "'lookup, goto or what else is done' is given twice"),
    ("rule add lookup 100 prohibit", "'lookup, goto or what else is done' is given twice"),
    ("rule add goto 5 priority 5", "rule 5 goes to 5, which is not behind it"),
    ("rule add goto 4 priority 5", "rule 5 goes to 4, which is not behind it"),
    ("rule add iif nothing lookup 100", "there is no port or VRF 'nothing'"),
    ("rule show iif nothing", "there is no port or VRF 'nothing'"),
    ("rule flush lookup 77", "there is no routing table 77"),
    ("rule show lookup nothing", "there is no VRF 'nothing'"),
    ("rule add oif lan lookup 100", "oif lan: no program sends by a port of the gateway's"),
    ("rule add suppress_prefixlength 129 lookup 100", "129 is no prefix length"),
    ("rule add suppress_prefixlength 8 prohibit", "suppress_prefixlength belongs to a lookup in a table"),
    ("rule add uidrange 0-5 lookup 100", "'uidrange' is not supported yet"),
    ("rule add not from 10.0.0.0/8 lookup 100", "'not' is not supported yet"),
    ("rule del", "which rule?"),
    ("rule del priority 1000", "rule 1000 is the gateway's own"),
    ("rule del priority 77", "there is no such rule"),
    # neigh
    ("neigh add 10.1.0.9", "'lladdr' is missing"),
    ("neigh add 10.1.0.9 lladdr 02:00:00:00:00:09", "'dev' is missing"),
    (
        "neigh add 10.1.0.9 lladdr 02:00:00:00:00 dev lan",
        "lladdr '02:00:00:00:00': a MAC address is six hexadecimal octets, as",
    ),
    (
        "neigh add 10.1.0.9 lladdr ff:ff:ff:ff:ff:ff dev lan",
        "ff:ff:ff:ff:ff:ff is not the address of one station: it is the",
    ),
    (
        "neigh add 10.1.0.9 lladdr 01:00:5e:00:00:09 dev lan",
        "01:00:5e:00:00:09 is not the address of one station: it is a group",
    ),
    ("neigh add 10.1.0.9 lladdr 02:00:00:00:00:09 dev nothing", "there is no port 'nothing'"),
    ("neigh add 10.1.0.9 lladdr 02:00:00:00:00:09 dev blue", "'blue' is a VRF, and this is about a port"),
    (
        "neigh add 10.1.0.1 lladdr 02:00:00:00:00:09 dev lan",
        "10.1.0.1 cannot be a neighbour: it is one of the gateway's own",
    ),
    (
        "neigh add 224.0.0.9 lladdr 02:00:00:00:00:09 dev lan",
        "224.0.0.9 is not the address of one station: it is a multicast group",
    ),
    ("neigh add 10.1.0.9 lladdr 02:00:00:00:00:09 dev lan nud stale", "nud stale is not for commands to set"),
    ("neigh add 10.1.0.8 lladdr 02:00:00:00:00:09 dev lan", "10.1.0.8 is known on port lan"),
    ("neigh del 10.1.0.99 dev lan", "port lan has no neighbour 10.1.0.99"),
    ("neigh add proxy 10.1.0.9 dev lan", "'proxy' is not supported yet"),
    # qdisc
    ("qdisc add dev nothing root pfifo", "there is no port or VRF 'nothing'"),
    ("qdisc add dev lan root htb", "qdisc 'htb' is not supported"),
    ("qdisc add dev lan root tbf", "tbf without rate"),
    ("qdisc add dev lan root tbf rate 0 burst 10k latency 10ms", "rate of 0 bytes in a second"),
    ("qdisc add dev lan root tbf rate 1mbit burst 0 latency 10ms", "burst of 0 bytes"),
    ("qdisc add dev lan root tbf rate 1mbit burst 10k", "tbf without limit"),
    ("qdisc add dev lan root tbf rate 1mbit burst 10k latency 10ms limit 10k", "limit and latency are both given"),
    (
        "qdisc add dev lan root tbf rate 99999999gbit burst 10k latency 10ms",
        "rate of 12499999875000000 bytes in a second",
    ),
    ("qdisc add dev lan root tbf rate -1mbit burst 10k latency 10ms", "rate '-1mbit'"),
    ("qdisc add dev lan root pfifo limit -5", "limit '-5'"),
    ("qdisc add dev lan root pfifo limit 0", "limit of 0 packets"),
    ("qdisc add dev lan root pfifo limit 4294967296", "limit of 4294967296"),
    ("qdisc add dev lan root pfifo limit x", "limit 'x'"),
    ("qdisc add dev lan root fq_codel flows 0", "flows of 0"),
    ("qdisc add dev lan root fq_codel flows 65537", "flows of 65537"),
    ("qdisc add dev lan root fq_codel quantum 0", "quantum of 0 bytes (256 to 1048576 bytes)"),
    ("qdisc add dev lan root fq_codel quantum 4294967296", "quantum of 4294967296 bytes (256 to 1048576 bytes)"),
    ("qdisc add dev lan root fq_codel target 0", "target of 0 microseconds"),
    ("qdisc add dev lan root fq_codel interval 0", "interval of 0 microseconds"),
    ("qdisc add dev wan root pfifo", "wan root has the qdisc pfifo 8001:"),
    ("qdisc add dev lan parent 9:1 fq_codel", "lan has no qdisc 9:"),
    ("qdisc del dev lan root", "lan has no qdisc"),
    # filter
    ("filter add dev lan ingress", "'action' is missing"),
    ("filter add dev nothing ingress action drop", "there is no port or VRF 'nothing'"),
    ("filter add dev lan sideways action drop", "'sideways' is not expected here"),
    ("filter add dev lan ingress pref 0 action drop", "pref '0'"),
    ("filter add dev lan ingress pref 65536 action drop", "pref '65536'"),
    ("filter add dev lan ingress pref 1 action drop", "there is a rule of this preference: dev lan ingress pref 1"),
    (
        "filter add dev lan ingress src_ip 10.0.0.9-10.0.0.1 action drop",
        "src_ip '10.0.0.9-10.0.0.1': the first of a range must not be greater",
    ),
    (
        "filter add dev lan ingress src_ip 10.0.0.0/8 dst_ip fd00::/8 action drop",
        "source and destination are of two address families",
    ),
    ("filter add dev lan ingress dst_port 80 action drop", "any protocol has no ports to select by"),
    (
        "filter add dev lan ingress ip_proto tcp dst_port 65536 action drop",
        "dst_port '65536': a port is a number from 0 to 65535",
    ),
    (
        "filter add dev lan ingress ip_proto udp tcp_flags syn/syn action drop",
        "only TCP has flags to select by, not protocol udp",
    ),
    (
        "filter add dev lan ingress ip_proto tcp type 8 action drop",
        "only ICMP messages have types and codes: icmp here, not protocol tcp",
    ),
    ("filter add dev lan ingress ip_ttl 256 action drop", "ip_ttl '256'"),
    (
        "filter add dev lan ingress dscp 64 action drop",
        "dscp '64': expected a number from 0 to 63, or cs0 to cs7, af11 to",
    ),
    ("filter add dev lan ingress action reject with tcp-fin", "with 'tcp-fin'"),
    ("filter add dev lan ingress action mirred egress redirect dev wan", "'mirred' is not supported yet"),
    ("filter add dev lan ingress action drop action pass", "action pass behind action drop"),
    ("filter add vrf grey ingress action drop", "there is no VRF 'grey'"),
    ("filter del dev lan ingress pref 77", "there is no such rule: dev lan ingress pref 77"),
    # xfrm
    ("xfrm policy add src 10.0.0.0/8 dst 10.1.0.0/16 dir sideways", "dir 'sideways'"),
    (
        "xfrm policy add src 10.0.0.0/8 dst fd00::/8 dir out",
        "source 10.0.0.0/8 and destination fd00::/8 are of two address families",
    ),
    ("xfrm policy add src 10.0.0.0/8 dst 10.1.0.0/16 dir out vrf grey", "there is no VRF 'grey'"),
    (
        "xfrm policy add src 10.0.0.0/8 dst 10.1.0.0/16 dir out vrf blue if_id 4",
        "a policy with an if_id is for the packets of an xfrm link and not for",
    ),
    (
        "xfrm policy add src 10.0.0.0/8 dst 10.1.0.0/16 dir out "
        "tmpl src 192.0.2.1 dst 192.0.2.2 vrf grey proto esp mode tunnel",
        "there is no VRF 'grey'",
    ),
    # tap
    ("tap add vrf grey -", "there is no VRF grey"),
    ("tap add port nothing -", "there is no port nothing"),
    ("tap add port lan - tcp port eighty eight", "the filter `tcp port eighty eight` is not understood: tcpdump:"),
    # trace
    ("trace add count 0", "`count 0` is not possible; it is 1 to 10000"),
    ("trace add count 10001", "`count 10001` is not possible; it is 1 to 10000"),
    ("trace add tcp port", "the filter `tcp port` is not understood: tcpdump: can't parse filter"),
]
"""Lines, and what the error says."""

SHOWN = [
    ["save"],
    ["route", "show", "table", "all"],
    ["-d", "link", "show"],
    ["addr", "show"],
    ["neigh", "show"],
    ["rule", "show"],
    ["-6", "rule", "show"],
    ["qdisc", "show"],
    ["filter", "show"],
    ["vrf", "show"],
    ["tap", "show"],
]


def state(gateway):
    """All that commands can change."""
    return [gateway.run(*words).stdout for words in SHOWN]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory):
    config = Config(ports=[Port(name, []) for name in ("lan", "wan", "far")])
    with Gateway(Here, config, tmp_path_factory.mktemp("gw")) as running:
        for line in GIVEN.splitlines():
            running.run(*line.split())
        yield running


@pytest.mark.parametrize("verb", sorted({line.split()[0] for line, _ in WRONG}))
def test_wrong_words(gateway, verb):
    """Those of each verb: exit code 1 or 2, one line of error, and everything as before."""
    before = state(gateway)
    for line, message in [wrong for wrong in WRONG if wrong[0].split()[0] == verb]:
        done = gateway.run(*line.split(), check=False, timeout=5)
        assert done.returncode in (1, 2) and not done.stdout, (line, done)
        assert message in done.stderr and len(done.stderr.splitlines()) == 1, (line, done.stderr)
        saved = gateway.run("save").stdout
        assert saved == before[0], line
    assert state(gateway) == before


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("nosuch", "unrecognized subcommand 'nosuch'"),
        ("show foo", "invalid value 'foo'"),
        ("show", "<WHAT>"),
        ("explain", "<PACKET>"),
        ("replay", "--config <FILE>"),
        ("conntrack -L -p foo", "there is no such IP protocol"),
        ("flow add xx", "column 1: there is no field `xx`"),
        ("ip route", "hitpath has no verb `ip`"),
        ("", "a verb is missing"),
    ],
)
def test_errors_are_json_where_json_is_asked_for(gateway, line, says):
    done = gateway.run("-j", *line.split(), check=False)
    assert done.returncode in (1, 2) and not done.stdout, done
    assert says in json.loads(done.stderr)["error"], done
    assert "\n" not in json.loads(done.stderr)["error"], done


@pytest.mark.parametrize(
    "words",
    [[], ["show"], ["show", "ports"], ["monitor"], ["conntrack", "-L", "-s"], ["tap"], ["trace"], ["explain"], ["flow", "add"]]
    + [["route", "add"], ["link", "show"], ["help"], ["xfrm", "monitor"]],
)
def test_long_words_are_cut_and_escapes_are_not_sent_to_the_terminal(gateway, words):
    long = gateway.run(*words, "W" * 100_000, check=False)
    assert long.returncode != 0 and "W" * 61 not in long.stdout + long.stderr, long.stderr[:1000]
    for word in ("\x1b[2Jx", "udp \x1b[2J"):
        escaped = gateway.run(*words, word, check=False)
        assert escaped.returncode != 0 and "\x1b" not in escaped.stdout + escaped.stderr, escaped


FULL = {
    "vrfs": ([f"link add v{number} type vrf table {number + 1000}" for number in range(4096)], "4096"),
    "addresses": ([f"addr add 10.77.{n >> 6}.{(n & 63) + 1}/24 dev lan" for n in range(257)], "256"),
    "alternatives": ([f"route add 10.9.0.0/16 via 10.1.0.2 metric {n}" for n in range(17)], "16"),
    "next-hops": (
        ["route add 10.9.0.0/16 " + " ".join(f"nexthop via 10.1.0.{n}" for n in range(100, 165))],
        "64",
    ),
}
"""Table -> lines, the last of which is one too many, and the number that the error has."""


@pytest.mark.parametrize("name", FULL)
def test_full_tables(gateway, tmp_path, name):
    """As a whole or not at all."""
    lines, number = FULL[name]
    before = state(gateway)
    path = tmp_path / "lines.txt"
    path.write_text("\n".join(lines) + "\n")
    done = gateway.run("batch", "--atomic", path, check=False, timeout=60)
    assert done.returncode in (1, 2), done
    assert number in done.stderr, done.stderr
    assert state(gateway) == before
