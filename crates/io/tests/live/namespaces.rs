//! Network namespaces that live as long as the test.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};

/// Whether the test may make namespaces. Prints a line if it may not.
pub(crate) fn allowed(test: &str) -> bool {
    // SAFETY: takes nothing and cannot fail.
    let root = unsafe { libc::geteuid() } == 0;
    if !root {
        println!("{test} SKIPPED: needs root");
    }
    root
}

/// A network namespace, deleted when dropped, also by a failing test.
pub(crate) struct Namespace(String);

impl Namespace {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name =
            format!("hitpath-io-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        run(Command::new("ip").args(["netns", "add", &name]));
        let namespace = Self(name);
        namespace.ip("link set lo up");
        namespace
    }

    /// Runs `ip` with these words inside.
    pub(crate) fn ip(&self, words: &str) -> String {
        let output = run(Command::new("ip").args(["-n", &self.0]).args(words.split(' ')));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Runs a program inside, which must succeed.
    pub(crate) fn exec(&self, words: &str) -> String {
        let output =
            run(Command::new("ip").args(["netns", "exec", &self.0]).args(words.split(' ')));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Runs `work` on a thread inside. Sockets that it makes stay inside wherever they go.
    pub(crate) fn enter<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        let namespace = File::open(format!("/run/netns/{}", self.0)).unwrap();
        std::thread::scope(|scope| {
            let inside = scope.spawn(move || {
                // SAFETY: an open descriptor of a network namespace; only this thread moves, and it
                // ends here.
                let moved = unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) };
                assert_eq!(moved, 0, "{}", std::io::Error::last_os_error());
                work()
            });
            inside.join().unwrap()
        })
    }

    /// Makes a veth from `name` here to `other_name` in `other`, and sets both up.
    pub(crate) fn connect(&self, name: &str, other: &Self, other_name: &str) {
        self.ip(&format!(
            "link add name {name} type veth peer name {other_name} netns {}",
            other.0
        ));
        // No neighbour discovery of the kernel's own, so that the tests see their own frames only.
        for (namespace, name) in [(self, name), (other, other_name)] {
            namespace.ip(&format!("link set dev {name} addrgenmode none"));
            namespace.ip(&format!("link set dev {name} up"));
        }
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.0]).output();
    }
}

fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}
