use std::fs::{self, File, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{
    DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown, lchown, symlink,
};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::libc::O_NONBLOCK;
use nix::unistd::{geteuid, mkfifo};
use rustix::fs::{CWD, RenameFlags, XattrFlags, fgetxattr, fsetxattr, renameat_with};
use tempfile::TempDir;

use super::file::{Target, configuration, keys};

/// A user who is neither root nor we, if we are root.
const NOBODY: u32 = 65534;

/// How long a race is run.
const RACE: Duration = Duration::from_secs(1);

fn save(path: &Path, bytes: &[u8]) -> anyhow::Result<Vec<String>> {
    match configuration(path)? {
        Target::File(file) => file.write(bytes),
        Target::Stream(mut stream) => Ok(stream.write_all(bytes).map(|()| Vec::new())?),
    }
}

fn save_keys(path: &Path, bytes: &[u8]) -> anyhow::Result<Vec<String>> {
    keys(path, None)?.write(bytes)
}

fn refusal<T>(done: anyhow::Result<T>) -> String {
    format!("{:#}", done.err().expect("it is refused"))
}

fn folder() -> (TempDir, impl Fn(&str) -> PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_owned();
    (folder, move |name: &str| path.join(name))
}

fn names(folder: &TempDir) -> Vec<String> {
    let entries = fs::read_dir(folder.path()).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Runs both at the same time, again and again.
fn race(mut attack: impl FnMut() + Send, mut attacked: impl FnMut()) {
    let end = Instant::now() + RACE;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while Instant::now() < end {
                attack();
            }
        });
        while Instant::now() < end {
            attacked();
        }
    });
}

#[test]
fn what_is_there_stays_what_it_is() {
    let (folder, at) = folder();
    let mode = |name: &str| fs::metadata(at(name)).unwrap().mode() & 0o777;
    // A new file, and one that is there with a mode of its own.
    save_keys(&at("new"), b"one").unwrap();
    assert_eq!((fs::read(at("new")).unwrap(), mode("new")), (b"one".to_vec(), 0o600));
    fs::write(at("old"), "before").unwrap();
    fs::set_permissions(at("old"), Permissions::from_mode(0o640)).unwrap();
    save(&at("old"), b"two").unwrap();
    assert_eq!((fs::read(at("old")).unwrap(), mode("old")), (b"two".to_vec(), 0o640));
    // Keys are for their owner alone.
    save_keys(&at("old"), b"key").unwrap();
    assert_eq!(mode("old"), 0o600);
    symlink("old", at("link")).unwrap();
    save(&at("link"), b"three").unwrap();
    assert!(fs::symlink_metadata(at("link")).unwrap().is_symlink());
    assert_eq!(fs::read(at("old")).unwrap(), b"three");
    // A link that leads to nothing yet stays as well.
    symlink("later", at("dangling")).unwrap();
    save(&at("dangling"), b"made").unwrap();
    assert_eq!(fs::read(at("later")).unwrap(), b"made");
    assert!(fs::symlink_metadata(at("dangling")).unwrap().is_symlink());
    // A user's own file of any name stays, and nothing is left beside them.
    fs::write(at("old.new"), "mine").unwrap();
    save(&at("old"), b"four").unwrap();
    assert_eq!(fs::read(at("old.new")).unwrap(), b"mine");
    assert_eq!(names(&folder), ["dangling", "later", "link", "new", "old", "old.new"]);
    // No device is replaced, and what it says is said.
    save(Path::new("/dev/null"), b"four").unwrap();
    let full = refusal(save(Path::new("/dev/full"), b"five"));
    assert!(full.contains("No space left"), "{full}");
    for device in ["/dev/null", "/dev/full"] {
        assert!(fs::metadata(device).unwrap().file_type().is_char_device(), "{device}");
    }
}

#[test]
fn what_is_no_file_is_refused_before_anything_is_written() {
    let (folder, at) = folder();
    fs::create_dir(at("folder")).unwrap();
    fs::write(at("file"), "").unwrap();
    symlink("loop", at("loop")).unwrap();
    symlink("folder", at("to-folder")).unwrap();
    for (name, why) in [
        ("folder", "is a folder: give the name of a file"),
        ("to-folder", "is a folder: give the name of a file"),
        ("folder/..", "is a folder: give the name of a file"),
        ("new/", "this names no file"),
        ("", "this names no file"),
        ("no/file", "no: No such file"),
        ("file/x", "is a file, and no folder"),
        ("loop", "more than 40 links lead to one another"),
    ] {
        let path = if name.is_empty() { PathBuf::new() } else { at(name) };
        for told in [refusal(configuration(&path)), refusal(keys(&path, None))] {
            assert!(told.contains(why), "{name}: {told}");
        }
    }
    let elsewhere = refusal(configuration(Path::new("/proc/self/cwd/x")));
    assert!(elsewhere.contains("give a name outside of /proc"), "{elsewhere}");
    assert_eq!(names(&folder), ["file", "folder", "loop", "to-folder"]);
}

#[test]
fn keys_are_written_to_files_alone() {
    let (folder, at) = folder();
    mkfifo(&at("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    symlink("/dev/stdout", at("out")).unwrap();
    for (path, why) in [
        (at("fifo"), "is a FIFO, and keys are written to files alone"),
        (PathBuf::from("/dev/null"), "is a character device, and keys are written to files alone"),
        (at("out"), "is an open file, and keys are written to new ones"),
    ] {
        let told = refusal(keys(&path, None));
        assert!(told.contains(why), "{told}");
    }
    let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
    let told = refusal(configuration(&at("socket")));
    assert!(told.contains("is a socket, and a configuration is written to none"), "{told}");
    fs::remove_file(at("socket")).unwrap();
    let told = refusal(configuration(&at("fifo")));
    assert!(told.contains("nobody reads the FIFO"), "{told}");
    assert_eq!(names(&folder), ["fifo", "out"]);
}

#[test]
fn keys_and_their_configuration_are_two_files() {
    let (_folder, at) = folder();
    let is_same = |keys_name: &str, name: &str| {
        let Ok(Target::File(file)) = configuration(&at(name)) else { panic!("{name} is a file") };
        keys(&at(keys_name), None).unwrap().is_same(&file).unwrap()
    };
    symlink("gw.toml", at("gw.toml.keys")).unwrap();
    assert!(is_same("gw.toml.keys", "gw.toml"), "none is there yet");
    fs::write(at("gw.toml"), "").unwrap();
    assert!(is_same("gw.toml.keys", "gw.toml"));
    fs::hard_link(at("gw.toml"), at("other")).unwrap();
    assert!(is_same("other", "gw.toml"));
    assert!(!is_same("new", "gw.toml"));
}

#[test]
fn keys_stay_as_they_were_if_their_configuration_does() {
    let (folder, at) = folder();
    for former in [Some("former"), None] {
        match former {
            Some(text) => fs::write(at("gw.keys"), text).unwrap(),
            None => fs::remove_file(at("gw.keys")).unwrap(),
        }
        let keys = keys(&at("gw.keys"), None).unwrap();
        let Ok(Target::File(file)) = configuration(&at("gw")) else { panic!("it is a file") };
        // What cannot be replaced.
        fs::create_dir(at("gw")).unwrap();
        let told = refusal(file.write_with_keys(b"new", &keys, b"new"));
        assert!(told.contains("directory"), "{told}");
        assert_eq!(fs::read_to_string(at("gw.keys")).ok().as_deref(), former);
        fs::remove_dir(at("gw")).unwrap();
        assert_eq!(names(&folder), former.map(|_| "gw.keys").as_slice());
    }
    let keys = keys(&at("gw.keys"), None).unwrap();
    let Ok(Target::File(file)) = configuration(&at("gw")) else { panic!("it is a file") };
    file.write_with_keys(b"new", &keys, b"new keys").unwrap();
    assert_eq!(fs::read(at("gw.keys")).unwrap(), b"new keys");
    assert_eq!(names(&folder), ["gw", "gw.keys"]);
}

/// Someone who may exchange names while root saves: a link of root's, which leads to what may be
/// written to, against a FIFO.
#[test]
fn a_fifo_that_is_exchanged_with_a_link_gets_no_keys() {
    let (_folder, at) = folder();
    let (planted, name) = (at("fifo"), at("gw.keys"));
    mkfifo(&planted, nix::sys::stat::Mode::S_IRWXU).unwrap();
    symlink("/dev/null", &name).unwrap();
    if geteuid().is_root() {
        chown(&planted, Some(NOBODY), None).unwrap();
    }
    let mut reader = File::options().read(true).custom_flags(O_NONBLOCK).open(&planted).unwrap();
    let attack = || {
        renameat_with(CWD, &planted, CWD, &name, RenameFlags::EXCHANGE).unwrap();
    };
    race(attack, || assert!(save_keys(&name, b"secret").is_err()));
    let mut got = Vec::new();
    match reader.read_to_end(&mut got) {
        Err(error) if error.kind() != io::ErrorKind::WouldBlock => panic!("{error}"),
        _ => assert_eq!(got, b""),
    }
}

/// A link of somebody else that comes and goes in a folder that everybody may write to.
#[test]
fn no_link_of_others_is_followed_that_comes_and_goes() {
    if !geteuid().is_root() {
        return;
    }
    let (_folder, at) = folder();
    fs::create_dir(at("shared")).unwrap();
    fs::set_permissions(at("shared"), Permissions::from_mode(0o1777)).unwrap();
    fs::write(at("victim"), "before").unwrap();
    let (aside, name) = (at("aside"), at("shared/gw.toml"));
    symlink(at("victim"), &aside).unwrap();
    lchown(&aside, Some(NOBODY), None).unwrap();
    let attack = || {
        fs::rename(&aside, &name).unwrap();
        std::thread::yield_now();
        // We may have replaced it.
        let _ = fs::rename(&name, &aside);
        if !fs::symlink_metadata(&aside).is_ok_and(|it| it.is_symlink()) {
            let _ = fs::remove_file(&aside);
            symlink(at("victim"), &aside).unwrap();
            lchown(&aside, Some(NOBODY), None).unwrap();
        }
    };
    race(attack, || {
        let _ = save(&name, b"saved");
        let _ = save_keys(&name, b"saved");
        assert_eq!(fs::read(at("victim")).unwrap(), b"before");
    });
}

#[test]
fn what_others_have_planted_is_refused() {
    if !geteuid().is_root() {
        return;
    }
    let (_folder, at) = folder();
    fs::DirBuilder::new().mode(0o755).create(at("own")).unwrap();
    fs::create_dir(at("shared")).unwrap();
    fs::set_permissions(at("shared"), Permissions::from_mode(0o777)).unwrap();
    for (name, to) in [("own/link", "/dev/null"), ("own/up", "/dev")] {
        symlink(to, at(name)).unwrap();
        lchown(at(name), Some(NOBODY), None).unwrap();
    }
    fs::write(at("shared/file"), "").unwrap();
    chown(at("shared/file"), Some(NOBODY), None).unwrap();
    for (name, why) in [
        ("own/link", "own/link is a link that belongs to user 65534"),
        ("own/up/null", "own/up is a link that belongs to user 65534"),
        ("shared/file", "belongs to user 65534, in a folder that everybody may write to"),
    ] {
        for told in [refusal(configuration(&at(name))), refusal(keys(&at(name), None))] {
            assert!(told.contains(why), "{told}");
        }
    }
    // A file in a folder of theirs keeps its owner, who is to have no keys.
    fs::write(at("file"), "").unwrap();
    chown(at("file"), Some(NOBODY), None).unwrap();
    save(&at("file"), b"saved").unwrap();
    assert_eq!(fs::metadata(at("file")).unwrap().uid(), NOBODY);
    let told = refusal(keys(&at("file"), None));
    assert!(told.contains("belongs to user 65534, who would read the keys"), "{told}");
    keys(&at("file"), Some((NOBODY, NOBODY))).unwrap().write(b"its own").unwrap();
}

#[test]
fn who_else_may_read_a_configuration_may_read_the_next_one() {
    const ACL: &str = "system.posix_acl_access";
    // Its owner, user 65534, its group, the mask, all others (acl(5), linux/posix_acl_xattr.h).
    let entries = [(1, 6, !0), (2, 4, NOBODY), (4, 0, !0), (16, 4, !0), (32, 0, !0)];
    let mut acl = 2_u32.to_le_bytes().to_vec();
    for (tag, rights, id) in entries {
        acl.extend([tag, 0, rights, 0]);
        acl.extend(id.to_le_bytes());
    }
    let (_folder, at) = folder();
    let file = File::create(at("gw")).unwrap();
    if fsetxattr(&file, ACL, &acl, XattrFlags::empty()).is_err() {
        return;
    }
    let acl_of = |name: &str| {
        let mut found = [0; 256];
        let length = fgetxattr(File::open(at(name)).unwrap(), ACL, &mut found)?;
        Ok::<_, rustix::io::Errno>(found[..length].to_vec())
    };
    save(&at("gw"), b"saved").unwrap();
    assert_eq!(acl_of("gw").unwrap(), acl);
    // But nobody else keys.
    save_keys(&at("gw"), b"keys").unwrap();
    assert!(acl_of("gw").is_err());
    assert_eq!(fs::metadata(at("gw")).unwrap().mode() & 0o777, 0o600);
}
