//! The file that lines are remembered in.

use std::borrow::Cow;
use std::ffi::OsString;
use std::fs::{self, DirBuilder};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::PathBuf;

/// Words that have a key behind them.
const BEFORE_KEYS: [&str; 4] = ["aead", "enc", "auth", "auth-trunc"];

/// Where lines are remembered, in the folder of the XDG Base Directory Specification for what is
/// worth keeping and no configuration. `None` if there is no such folder and none can be made.
pub(super) fn path() -> Option<PathBuf> {
    let folder = folder(std::env::var_os("XDG_STATE_HOME"), std::env::var_os("HOME"))?;
    DirBuilder::new().recursive(true).mode(0o700).create(&folder).ok()?;
    let file = folder.join("history");
    // One that others may read was not made by this program.
    if let Ok(found) = fs::metadata(&file)
        && found.permissions().mode() & 0o077 != 0
    {
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).ok()?;
    }
    Some(file)
}

fn folder(state: Option<OsString>, home: Option<OsString>) -> Option<PathBuf> {
    // As the specification has it, a path that is not absolute is as none.
    let absolute =
        |path: Option<OsString>| path.map(PathBuf::from).filter(|path| path.is_absolute());
    let base = absolute(state).or_else(|| Some(absolute(home)?.join(".local/state")))?;
    Some(base.join("hitpath"))
}

/// Whether a line may be remembered, and its words stand in the list of processes: none with a key,
/// whether it is right or not, and nothing that adds an SA, however it is abbreviated.
pub(super) fn may_keep(line: &str) -> bool {
    let is_quote = |character| character == '\'' || character == '"';
    let words = line.split(|character: char| character.is_whitespace() || is_quote(character));
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    let adds_sa = words.windows(2).enumerate().any(|(at, pair)| {
        let next = words.get(at + 2).map_or("", |next| *next);
        "xfrm".starts_with(pair[0]) && "state".starts_with(pair[1]) && next.starts_with(['a', 'u'])
    });
    let has_key = matches!(api::without_keys(line), Cow::Owned(_));
    !adds_sa && !has_key && !words.iter().any(|word| BEFORE_KEYS.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_with_keys_are_not_kept() {
        let key = "0x00112233445566778899aabbccddeeff01020304";
        for line in [
            &format!("xfrm state add src 192.0.2.1 aead 'rfc4106(gcm(aes))' {key} 128"),
            "xfrm state add enc aes secret",
            "xfrm state add\tauth sha1 secret",
            "xfrm state add 'auth-trunc' sha256 secret 128",
            &format!("xfrm state ad {key}"),
            "xfrm state 00112233445566778899aabb",
            "x s a aed 'rfc4106(gcm(aes))' mysecretmysecret1234 128",
            "hitpath -j xfr st upd 0X00112233445566778899aabb",
        ] {
            assert!(!may_keep(line), "{line}");
        }
        // Cut off anywhere, from where the key begins.
        let line = "x s a src 192.0.2.1 spi 9 aead 'rfc4106(gcm(aes))' open-sesame 128 mode tunnel";
        let key = line.find("open").unwrap();
        (key + 1..=line.len()).for_each(|end| assert!(!may_keep(&line[..end]), "{}", &line[..end]));
        for line in [
            "show ports",
            "route add 2001:db8::/32 via fe80::1",
            "rule add fwmark 0xff",
            "x s s",
            "xfrm monitor",
        ] {
            assert!(may_keep(line), "{line}");
        }
    }

    #[test]
    fn the_file_stands_where_the_specification_says() {
        let folder = |state: Option<&str>, home: Option<&str>| {
            folder(state.map(Into::into), home.map(Into::into))
        };
        assert_eq!(folder(Some("/s"), Some("/h")), Some("/s/hitpath".into()));
        assert_eq!(folder(Some("s"), Some("/h")), Some("/h/.local/state/hitpath".into()));
        assert_eq!(folder(None, Some("/h")), Some("/h/.local/state/hitpath".into()));
        assert_eq!(folder(None, None), None);
    }
}
