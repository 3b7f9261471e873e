//! Runs the program as a user would.
#![allow(dead_code, reason = "every test file uses a part of it")]

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;

/// A gateway between two networks, on memory ports, with a tunnel for 10.1.0.0/16 to 10.2.0.0/16.
pub(crate) const GATEWAY: &str = r#"
[[port]]
name = "lan"
kind = "memory"
side = "protected"
mac = "02:00:00:00:00:01"
addresses = ["10.1.0.1/16", "fd01::1/64"]

[[port]]
name = "wan"
kind = "memory"
mac = "02:00:00:00:00:02"
addresses = ["192.0.2.1/24"]

[[route]]
to = "default"
via = "192.0.2.2"

[[sa]]
source = "192.0.2.1"
destination = "192.0.2.2"
spi = 0x1001
reqid = 1
aead = { name = "rfc4106(gcm(aes))", key = "0x00112233445566778899aabbccddeeff01020304", icv-bits = 128 }

[[sa]]
source = "192.0.2.2"
destination = "192.0.2.1"
spi = 0x1002
reqid = 1
aead = { name = "rfc4106(gcm(aes))", key = "0xffeeddccbbaa9988776655443322110004030201", icv-bits = 128 }

[[policy]]
direction = "out"
source = "10.1.0.0/16"
destination = "10.2.0.0/16"
action = "protect"
template = { source = "192.0.2.1", destination = "192.0.2.2", reqid = 1 }

[[policy]]
direction = "in"
source = "10.2.0.0/16"
destination = "10.1.0.0/16"
action = "protect"
template = { source = "192.0.2.2", destination = "192.0.2.1", reqid = 1 }

[[policy]]
direction = "out"
source = "0.0.0.0/0"
destination = "203.0.113.0/24"
priority = 10
action = "bypass"
"#;

/// A folder of a test's own, gone with it.
pub(crate) struct Folder(TempDir);

impl Folder {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes a file and answers where.
    pub(crate) fn write(&self, name: &str, contents: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, contents).unwrap();
        // Configurations have keys.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        path
    }
}

/// What a run of the program ended in.
pub(crate) struct Ended {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ended {
    fn new(output: &Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self {
            code: output.status.code().unwrap_or(-1),
            out: text(&output.stdout),
            err: text(&output.stderr),
        }
    }

    /// Demands an exit code.
    #[track_caller]
    pub(crate) fn with(self, code: i32) -> Self {
        assert_eq!(self.code, code, "\n--- stdout\n{}\n--- stderr\n{}", self.out, self.err);
        assert!(!self.err.contains("panicked"), "{}", self.err);
        self
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {}", self.out))
    }
}

/// The program with these words, and without the environment's socket.
pub(crate) fn hitpath<S: AsRef<std::ffi::OsStr>>(words: &[S]) -> Ended {
    Ended::new(&command().args(words).output().unwrap())
}

/// The same, with words that stand in one line.
pub(crate) fn line(words: &str) -> Ended {
    hitpath(&words.split_whitespace().collect::<Vec<_>>())
}

fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hitpath"));
    command.env_remove("HITPATH_SOCKET").stdin(Stdio::null());
    command
}

/// A running daemon, stopped with the test.
pub(crate) struct Daemon {
    child: Child,
    pub(crate) socket: PathBuf,
    log: PathBuf,
}

impl Daemon {
    /// Starts one on `config` and waits until it is ready.
    pub(crate) fn start(folder: &Folder, config: &Path) -> Self {
        let (socket, log) = (folder.path("control.sock"), folder.path("log"));
        let mut child = command()
            .args(["run", "--config"])
            .arg(config)
            .arg("--socket")
            .arg(&socket)
            .arg("--state-directory")
            .arg(folder.path("state"))
            .stdout(Stdio::piped())
            .stderr(fs::File::create(&log).unwrap())
            .spawn()
            .unwrap();
        let mut said = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut said).unwrap();
        let daemon = Self { child, socket, log };
        assert_eq!(said, "ready\n", "{}", daemon.log());
        daemon
    }

    /// Runs a client command.
    pub(crate) fn run(&self, words: &[&str]) -> Ended {
        Ended::new(&command().env("HITPATH_SOCKET", &self.socket).args(words).output().unwrap())
    }

    /// Runs a client command whose words stand in one line.
    pub(crate) fn line(&self, words: &str) -> Ended {
        self.run(&words.split_whitespace().collect::<Vec<_>>())
    }

    /// What `hitpath -j` says to these words.
    #[track_caller]
    pub(crate) fn json(&self, words: &str) -> Value {
        self.line(&format!("-j {words}")).with(0).json()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(i32::try_from(self.child.id()).unwrap()), signal).unwrap();
    }

    /// What it has logged.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    /// Waits for its end and returns its exit code.
    pub(crate) fn end(&mut self) -> Option<i32> {
        let mut code = None;
        eventually("the daemon to end", || {
            code = self.child.try_wait().unwrap();
            code.is_some()
        });
        code.unwrap().code()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until `true`, for a few seconds.
#[track_caller]
pub(crate) fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !done() {
        assert!(begin.elapsed() < Duration::from_secs(10), "waited in vain for {what}");
        thread::sleep(Duration::from_millis(10));
    }
}
