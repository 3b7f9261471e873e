//! No error shows a key.

use super::*;

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
