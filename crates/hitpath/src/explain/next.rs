//! What may come next in a packet described in words.

use crate::complete::Next;

/// What may come behind the words of a description.
pub(crate) fn next(words: &[&str]) -> Vec<Next> {
    const FIELDS: &[Next] = &[
        Next::Word("in", "where it comes from: a port, sa REQID or host"),
        Next::Word("from", "= in"),
        Next::Word("type", "ICMP type"),
        Next::Word("code", "ICMP code"),
        Next::Word("id", "id of an ICMP echo"),
        Next::Word("spi", "SPI of ESP"),
        Next::Word("tcp-flags", "as in syn,ack"),
        Next::Word("dscp", "as in ef"),
        Next::Word("ttl", "TTL or hop limit"),
        Next::Word("hoplimit", "= ttl"),
        Next::Word("fragment", "first or later"),
        Next::Word("size", "length in bytes"),
        Next::Word("df", "no router may cut it"),
        Next::Word("about", "what an ICMP error quotes: a packet, or whom ESP was for"),
    ];
    const OF_SA: [Next; 2] = [
        Next::Word("vrf", "of what the SA has decrypted"),
        Next::Word("if_id", "of the xfrm link by which that comes"),
    ];
    const SEQUENCE: Next = Next::Word("seq", "sequence number of quoted TCP");
    let protocols = ["tcp", "udp", "icmp", "ipv6-icmp", "sctp", "esp", "gre"];
    match words {
        [] => protocols.map(|protocol| Next::Word(protocol, "")).to_vec(),
        [_] => vec![Next::Value("SOURCE[:PORT]")],
        [_, _] => vec![Next::Word(">", "the destination follows")],
        [_, _, ">"] => vec![Next::Value("DESTINATION[:PORT]")],
        [_, _, ">", _, rest @ ..] => match rest {
            [.., "in" | "from"] => vec![
                Next::Port,
                Next::Word("host", "the gateway itself sends it"),
                Next::Word("sa", "decrypted by an SA of this reqid"),
            ],
            [.., "in" | "from", "sa"] => vec![Next::Reqid],
            [.., "vrf" | "if_id"] => vec![Next::Value("a value")],
            [.., "fragment"] => vec![Next::Word("first", ""), Next::Word("later", "")],
            [.., "about"] => {
                let quoted = protocols.map(|protocol| Next::Word(protocol, "a packet of it"));
                [&[Next::Value("PEER")], &quoted[..]].concat()
            }
            [.., "about", protocol] if !is_address(protocol) => vec![Next::Value("SOURCE[:PORT]")],
            [.., "about", protocol, _] if !is_address(protocol) => {
                vec![Next::Word(">", "the destination follows")]
            }
            [.., "about", _, _, ">"] => vec![Next::Value("DESTINATION[:PORT]")],
            [.., word] if !["host", "df"].contains(word) && is_field(FIELDS, word) => {
                vec![Next::Value("a value")]
            }
            [.., "seq"] => vec![Next::Value("a value")],
            rest => {
                // The quoted packet has some fields of its own.
                let quoted = rest.iter().position(|word| *word == ">").map(|at| &rest[at..]);
                let is_open = |next: &&Next| {
                    let Next::Word(word, _) = next else { return true };
                    let is_of_quoted = ["type", "code", "id", "spi"].contains(word);
                    !quoted.filter(|_| is_of_quoted).unwrap_or(rest).contains(word)
                };
                let own = FIELDS.iter().filter(is_open).copied();
                let is_tcp = quoted.is_some() && rest.contains(&"tcp") && !rest.contains(&"seq");
                let of_sa = matches!(rest, [.., "sa", _]).then_some(OF_SA);
                own.chain(is_tcp.then_some(SEQUENCE)).chain(of_sa.into_iter().flatten()).collect()
            }
        },
        _ => Vec::new(),
    }
}

fn is_address(word: &str) -> bool {
    word.parse::<std::net::IpAddr>().is_ok()
}

fn is_field(fields: &[Next], word: &str) -> bool {
    fields.iter().any(|next| matches!(next, Next::Word(name, _) if *name == word))
}

#[cfg(test)]
mod tests {
    use super::super::Description;
    use super::*;

    fn offered(line: &str) -> Vec<&'static str> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let word = |next| if let Next::Word(word, _) = next { Some(word) } else { None };
        next(&words).into_iter().filter_map(word).collect()
    }

    #[test]
    fn what_is_offered_is_understood_and_all_of_it_is_offered() {
        let values = ["", "lan", "1", "syn", "ef", "later", "192.0.2.1", "192.0.2.1 spi 1"];
        for word in offered("udp 10.0.0.1 > 10.0.0.2") {
            let known = values.iter().any(|value| {
                let line = format!("udp 10.0.0.1 > 10.0.0.2 {word} {value} in lan");
                // Fields of other protocols are understood, and then refused.
                let refused = Description::parse(&line).err().map(|error| error.to_string());
                refused.is_none_or(|why| !why.contains("not known") && !why.contains("is no"))
            });
            assert!(known, "{word}");
        }
        for protocol in offered("") {
            let line = format!("{protocol} 10.0.0.1 > 10.0.0.2 in lan");
            let error = Description::parse(&line).err().map(|error| error.to_string());
            assert!(error.is_none_or(|error| !error.contains("no protocol")), "{protocol}");
        }
        let source = [include_str!("description.rs"), include_str!("ends.rs")];
        let source = source.map(|file| file.split("#[cfg(test)]").next().unwrap()).concat();
        let mut all = offered("udp 10.0.0.1 > 10.0.0.2");
        all.extend(offered(""));
        all.extend(offered("udp 10.0.0.1 > 10.0.0.2 fragment"));
        all.extend(offered("udp 10.0.0.1 > 10.0.0.2 in"));
        all.extend(offered("udp 10.0.0.1 > 10.0.0.2 in sa 7"));
        all.extend(offered("icmp 10.0.0.1 > 10.0.0.2 type 3 about tcp 10.0.0.2 > 10.0.0.3"));
        let arms = source.lines().map(str::trim).filter(|line| line.contains(" => "));
        let arms = arms.filter_map(|line| line.split(" => ").next());
        let words = arms.flat_map(|arm| arm.split(" | "));
        let words: Vec<_> =
            words.filter_map(|part| part.strip_prefix('"')?.strip_suffix('"')).collect();
        assert!(words.len() > 12, "{words:?}");
        for word in words {
            // Other names of protocols.
            let is_other = [
                "ping",
                "icmp6",
                "icmpv6",
                "ipv6-icmp",
                "esp",
                "ah",
                "sctp",
                "dccp",
                "udplite",
                "udp-lite",
                "ipencap",
                "ipip",
                "ipv6",
                "gre",
                "ospf",
            ]
            .contains(&word);
            assert!(all.contains(&word) || is_other, "{word}");
        }
    }

    #[test]
    fn each_place_has_its_words() {
        assert_eq!(offered("udp 10.0.0.1"), [">"]);
        assert_eq!(next(&["udp"]), [Next::Value("SOURCE[:PORT]")]);
        assert!(next(&["udp", "10.0.0.1", ">", "10.0.0.2", "in"]).contains(&Next::Port));
        assert_eq!(next(&["udp", "10.0.0.1", ">", "10.0.0.2", "in", "sa"]), [Next::Reqid]);
        assert!(!offered("udp 10.0.0.1 > 10.0.0.2 size 100").contains(&"size"));
        assert!(offered("udp 10.0.0.1 x y z").is_empty());
        let error = "icmp 10.0.0.1 > 10.0.0.2 type 3 id 1 about";
        assert!(offered(error).contains(&"tcp"));
        assert!(offered(&format!("{error} 192.0.2.1")).contains(&"spi"));
        assert_eq!(offered(&format!("{error} tcp 10.0.0.2:5")), [">"]);
        let quoted = offered(&format!("{error} tcp 10.0.0.2:5 > 10.0.0.3:6 id 1"));
        assert!(quoted.contains(&"type") && quoted.contains(&"seq") && !quoted.contains(&"id"));
        let quoted = offered(&format!("{error} udp 10.0.0.2:5 > 10.0.0.3:6"));
        assert!(!quoted.contains(&"seq"));
    }
}
