//! The seeds of the corpus `grammar`: commands with what becomes of them.

/// One file of the corpus.
#[derive(Clone, Debug)]
pub struct Seed {
    /// The file's name.
    pub name: &'static str,
    /// Its contents.
    pub bytes: Vec<u8>,
    /// How many commands are accepted, and how many of these carried out.
    pub verdict: (usize, usize),
}

/// Every seed, by object and then the nasty ones.
pub fn all() -> Vec<Seed> {
    let seed = |name, verdict, text: &str| Seed { name, bytes: text.as_bytes().to_vec(), verdict };
    vec![
        seed(
            "state",
            (7, 7),
            "xfrm state add src 192.0.2.1 dst 192.0.2.2 proto esp spi 1 mode tunnel reqid 1 auth \
            sha1 0x1c0cf2bb72ce67ba245b593076dfb27a enc 'cbc(aes)' \
            0x1c0cf2bb72ce67ba245b593076dfb27a\n\
            xfrm state add src 192.0.2.2 dst 192.0.2.1 proto esp spi 0x2 mode tunnel aead \
            'rfc4106(gcm(aes))' 0x000102030405060708090a0b0c0d0e0f10111213 128 replay-window 64 \
            flag noecn\n\
            xfrm state list\nx s get dst 192.0.2.2 proto esp spi 1\nxfrm state count\n\
            xfrm state delete dst 192.0.2.2 proto esp spi 1\nxfrm state flush\n",
        ),
        seed(
            "policy",
            (6, 6),
            "xfrm policy add src 192.0.2.0/24 dst 10.0.0.1-10.0.0.9 proto udp dport 53 dir out \
            tmpl dst 192.0.2.2 proto esp mode tunnel reqid 1\n\
            xfrm policy add src ::/0 dst 2001:db8::/32 proto ipv6-icmp type 128 code 0 dir in \
            action block priority 7\n\
            xfrm policy setdefault out accept\nxfrm policy getdefault\nxfrm policy show\n\
            xfrm policy flush name berlin-1\n",
        ),
        seed(
            "route",
            (5, 5),
            "route add 10.0.0.0/8 via 192.0.2.9 metric 7\nr replace default via 192.0.2.8\n\
            route get 10.1.2.3\nroute add blackhole 172.16.0.0/12\nroute flush type blackhole\n",
        ),
        seed(
            "neighbour",
            (3, 3),
            "neigh add 192.0.2.9 lladdr 02:00:00:00:00:09 dev lan\nneighbor show\n\
            neigh del 192.0.2.9 dev lan\n",
        ),
        seed(
            "address-and-link",
            (6, 6),
            "addr add 2001:db8::1/64 dev lan\nvrf add red\nlink set lan mtu 1400\nlink set lan vrf \
            red\nlink set dev lan down\naddress flush dev lan\n",
        ),
        // A third level, and a number that is taken, are refused by the model.
        seed(
            "vlans-of-vlans",
            (6, 4),
            "link add link lan name s up type vlan proto 802.1ad id 10\n\
            link add link s name s.c mtu 1400 type vlan id 20\n\
            link add link s.c name x type vlan id 30\n\
            link add link lan name x type vlan protocol 802.1AD id 10\n\
            link add link lan name x type vlan proto 802.1p id 11\n\
            link add link lan name x type vlan proto 802.1ad id 4095\n\
            link show s.c\nlink del s\n",
        ),
        seed("refused-by-the-model", (2, 0), "link set wan up\nroute del 10.0.0.0/8\n"),
        seed("abbreviations", (3, 3), "a\nx p ls\nn sh\n"),
        seed("nothing", (0, 0), ""),
        seed("empty-words", (0, 0), "'' ''\nxfrm '' add\n"),
        seed("open-quote", (0, 0), "xfrm state add 'cbc(aes)\n"),
        seed("ends-early", (0, 0), "xfrm state add src\nroute add\nlink set\n"),
        seed(
            "numbers-out-of-range",
            (0, 0),
            "route add 10.0.0.0/8 via 192.0.2.9 metric 4294967296\nxfrm state get dst 192.0.2.2 \
            proto esp spi 0x100000000\nlink set lan mtu 65536\n",
        ),
        seed(
            "not-supported",
            (0, 0),
            "rule add nonsense\nxfrm monitor\nroute add 10.0.0.0/8 dev lan mtu 1400\n",
        ),
        Seed { name: "not-text", bytes: vec![b'r', 0xff, b' ', 0, b'\n', 0xc3], verdict: (0, 0) },
        seed("too-many-words", (0, 0), &"x ".repeat(300)),
    ]
}
