//! The seeds of the corpus `configuration`: files with what is to be said of each.

/// One file of the corpus.
#[derive(Clone, Debug)]
pub struct Seed {
    /// The file's name.
    pub name: &'static str,
    /// Its contents.
    pub bytes: Vec<u8>,
    /// How many ports it asks for, or the lines that are wrong.
    pub verdict: Result<usize, Vec<usize>>,
}

/// A port alone, which is all that a file needs.
const PORT: &str = "[[port]]\nname = \"lan\"\nkind = \"memory\"\naddresses = [\"192.0.2.1/24\"]\n";

/// Every section, with every form that a value can have.
const WHOLE: &str = "\
[gateway]
workers = 2
processors = [0, 1]
idle = \"poll\"
buffers = 2048
large-buffers = 512
socket = \"/tmp/x\"
[ipsec]
ipv4-outbound-spd-flow-cache = \"on\"
ipv6-inbound-spd-flow-cache = false
ipv4-inbound-spd-hash-buckets = 1000
policy-lookup = \"linear\"
[[vrf]]
name = \"red\"
default-out = \"accept\"
[[port]]
name = \"lan\"
kind = \"memory\"
link = \"ethernet\"
mac = \"02:00:00:00:00:01\"
mtu = 9000
addresses = [\"192.0.2.1/24\", \"2001:db8::1/64\"]
[[port]]
name = \"wan\"
kind = \"tap\"
interface = \"tap0\"
vrf = \"red\"
up = false
addresses = [\"198.51.100.1/24\"]
[[port]]
name = \"dump\"
kind = \"pcap\"
output = \"/tmp/dump.pcap\"
[[port]]
name = \"eth\"
kind = \"af-packet\"
[[route]]
to = \"default\"
via = \"192.0.2.9\"
metric = 7
[[route]]
to = \"10.0.0.0/8\"
kind = \"blackhole\"
[[neighbour]]
port = \"lan\"
address = \"192.0.2.9\"
mac = \"02:00:00:00:00:09\"
[[sa]]
source = \"192.0.2.1\"
destination = \"192.0.2.2\"
spi = 0x1001
reqid = 1
aead = { name = \"rfc4106(gcm(aes))\", key = \"0x000102030405060708090a0b0c0d0e0f10111213\" }
[[policy]]
direction = \"out\"
source = \"192.0.2.0/24\"
destination = \"10.0.0.0-10.0.0.99\"
protocol = \"udp\"
destination-ports = \"53-99\"
action = \"protect\"
template = { destination = \"192.0.2.2\", reqid = 1 }
";

/// Every seed, from plain to nasty.
pub fn all() -> Vec<Seed> {
    let seed = |name, verdict: Result<usize, &[usize]>, text: &str| Seed {
        name,
        bytes: text.as_bytes().to_vec(),
        verdict: verdict.map_err(<[usize]>::to_vec),
    };
    let with = |more: &str| format!("{PORT}{more}");
    vec![
        seed("port-alone", Ok(1), PORT),
        seed("whole", Ok(4), WHOLE),
        seed("nothing", Err(&[1]), ""),
        seed("unknown-section", Err(&[5]), &with("[[prot]]\n")),
        seed("unknown-key", Err(&[5]), &with("adress = 1\n")),
        seed("table-for-array", Err(&[1]), "[port]\nname = \"lan\"\n"),
        seed("value-for-section", Err(&[1]), "port = 7\n"),
        seed("number-too-large", Err(&[5]), &with("mtu = 99999999999999999999999999999999\n")),
        seed("number-below-0", Err(&[5]), &with("mtu = -1\n")),
        seed("text-with-end-of-line-inside", Err(&[2]), &PORT.replace("lan", "a\\nb")),
        seed("broken-toml", Err(&[5, 5]), &with("mtu = = 2\n")),
        seed("open-bracket", Err(&[5]), &with("[[route")),
        seed("twice", Err(&[6, 8]), &with(PORT)),
        seed(
            "no-next-hop",
            Err(&[7]),
            &with("[[route]]\nto = \"10.0.0.0/8\"\nvia = \"10.9.9.9\"\n"),
        ),
        seed("small-buffers-alone", Err(&[5]), &with("mtu = 9000\n[gateway]\nlarge-buffers = 0\n")),
        seed("nested", Err(&[5, 5]), &with(&format!("up = {}", "[".repeat(500)))),
        Seed { name: "not-text", bytes: vec![0xff, 0xfe, b'\n', 0], verdict: Err(vec![1, 1, 2]) },
    ]
}
