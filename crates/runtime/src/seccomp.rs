//! The system calls that a running gateway may make (seccomp(2)).
//!
//! Everything that is not listed is refused with `EPERM`, and the system logs it. The process is
//! not killed: a call that was forgotten here must not stop the traffic of a gateway.

use std::collections::BTreeMap;
use std::env::consts::ARCH;
use std::io;

use anyhow::Context;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};

use crate::sys;

/// What happens to a system call that is not listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unlisted {
    /// It fails with `EPERM`, and is logged.
    Refuse,
    /// It is made, and logged.
    Log,
}

/// Filters the system calls of all threads of the process from now on, those to come included.
///
/// # Errors
/// The system knows no such filter, or refuses.
pub fn filter(unlisted: Unlisted) -> anyhow::Result<()> {
    let program = program(unlisted)?;
    sys::filter_all_threads(&program).context("filtering system calls")
}

fn program(unlisted: Unlisted) -> anyhow::Result<BpfProgram> {
    let action = match unlisted {
        Unlisted::Refuse => SeccompAction::Errno(libc::EPERM as u32),
        Unlisted::Log => SeccompAction::Log,
    };
    let architecture = TargetArch::try_from(ARCH).context("filtering system calls")?;
    let filter = SeccompFilter::new(rules()?, action, SeccompAction::Allow, architecture)?;
    Ok(BpfProgram::try_from(filter)?)
}

fn rules() -> io::Result<BTreeMap<i64, Vec<SeccompRule>>> {
    let lists = [
        MEMORY,
        THREADS,
        TIME,
        EVENTS,
        SOCKETS,
        FILES,
        #[cfg(target_arch = "x86_64")]
        OLD,
    ];
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        lists.into_iter().flatten().map(|&call| (call, Vec::new())).collect();
    let one_of = |argument, values: &[u64]| -> io::Result<Vec<SeccompRule>> {
        let rule = |&value| rule(argument, SeccompCmpOp::Eq, value);
        values.iter().map(rule).collect()
    };
    rules.insert(libc::SYS_socket, one_of(0, &FAMILIES.map(|family| family as u64))?);
    rules.insert(libc::SYS_prctl, one_of(0, &[libc::PR_SET_NAME, PR_SET_VMA].map(|of| of as u64))?);
    // No memory becomes code.
    let executable = SeccompCmpOp::MaskedEq(libc::PROT_EXEC as u64);
    for call in [libc::SYS_mmap, libc::SYS_mprotect] {
        rules.insert(call, vec![rule(2, executable.clone(), 0)?]);
    }
    Ok(rules)
}

fn rule(argument: u8, operator: SeccompCmpOp, value: u64) -> io::Result<SeccompRule> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value)
        .and_then(|condition| SeccompRule::new(vec![condition]))
        .map_err(io::Error::other)
}

/// Families of sockets: the control socket, interfaces, ports.
const FAMILIES: [libc::c_int; 5] =
    [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK, libc::AF_PACKET];

/// Names for memory, which allocators give. Not in libc (linux/prctl.h).
const PR_SET_VMA: libc::c_int = 0x5356_4d41;

const MEMORY: &[i64] =
    &[libc::SYS_brk, libc::SYS_madvise, libc::SYS_membarrier, libc::SYS_mremap, libc::SYS_munmap];

const THREADS: &[i64] = &[
    libc::SYS_clone,
    libc::SYS_clone3,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_futex,
    libc::SYS_getcpu,
    libc::SYS_getegid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_getrusage,
    libc::SYS_gettid,
    libc::SYS_getuid,
    libc::SYS_prlimit64,
    libc::SYS_restart_syscall,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_yield,
    libc::SYS_set_robust_list,
    libc::SYS_set_tid_address,
    libc::SYS_setpriority,
    libc::SYS_sigaltstack,
    libc::SYS_sysinfo,
    // To itself alone: abort(3).
    libc::SYS_tgkill,
    libc::SYS_uname,
];

const TIME: &[i64] = &[
    libc::SYS_clock_getres,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_gettimeofday,
    libc::SYS_nanosleep,
];

const EVENTS: &[i64] = &[
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_eventfd2,
    libc::SYS_getrandom,
    libc::SYS_pipe2,
    libc::SYS_ppoll,
];

const SOCKETS: &[i64] = &[
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_bind,
    libc::SYS_connect,
    libc::SYS_getpeername,
    libc::SYS_getsockname,
    libc::SYS_getsockopt,
    libc::SYS_ioctl,
    libc::SYS_listen,
    libc::SYS_recvfrom,
    libc::SYS_recvmmsg,
    libc::SYS_recvmsg,
    libc::SYS_sendmmsg,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_setsockopt,
    libc::SYS_shutdown,
    libc::SYS_socketpair,
];

/// The configuration at a reload, the state directory, the system's own files, the log.
const FILES: &[i64] = &[
    libc::SYS_close,
    libc::SYS_copy_file_range,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_fallocate,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_fcntl,
    libc::SYS_fdatasync,
    libc::SYS_flock,
    libc::SYS_fstat,
    libc::SYS_fstatfs,
    libc::SYS_fsync,
    libc::SYS_ftruncate,
    libc::SYS_getcwd,
    libc::SYS_getdents64,
    libc::SYS_linkat,
    libc::SYS_lseek,
    libc::SYS_mkdirat,
    libc::SYS_newfstatat,
    libc::SYS_openat,
    libc::SYS_pread64,
    libc::SYS_preadv,
    libc::SYS_pwrite64,
    libc::SYS_pwritev,
    libc::SYS_read,
    libc::SYS_readlinkat,
    libc::SYS_readv,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_statfs,
    libc::SYS_statx,
    libc::SYS_sync_file_range,
    libc::SYS_unlinkat,
    libc::SYS_write,
    libc::SYS_writev,
];

/// Calls that newer architectures have under newer names alone.
#[cfg(target_arch = "x86_64")]
const OLD: &[i64] = &[
    libc::SYS_access,
    libc::SYS_dup2,
    libc::SYS_epoll_create,
    libc::SYS_epoll_wait,
    libc::SYS_getrlimit,
    libc::SYS_link,
    libc::SYS_lstat,
    libc::SYS_mkdir,
    libc::SYS_open,
    libc::SYS_pipe,
    libc::SYS_poll,
    libc::SYS_readlink,
    libc::SYS_rename,
    libc::SYS_rmdir,
    libc::SYS_select,
    libc::SYS_stat,
    libc::SYS_time,
    libc::SYS_unlink,
];

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, UdpSocket};
    use std::process::Command;
    use std::thread;

    use super::*;
    use crate::privileges;

    /// Runs `work` in a thread whose system calls are filtered.
    fn filtered(unlisted: Unlisted, work: impl FnOnce() + Send + 'static) {
        thread::spawn(move || {
            privileges::give_up().unwrap();
            sys::filter_this_thread(&program(unlisted).unwrap()).unwrap();
            work();
        })
        .join()
        .unwrap();
    }

    #[test]
    fn what_is_not_listed_is_refused_and_nothing_is_killed() {
        filtered(Unlisted::Refuse, || {
            let refused = |result: io::Result<()>| {
                assert_eq!(result.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
            };
            refused(Command::new("/bin/true").spawn().map(drop));
            refused(nix::unistd::chroot("/").map_err(io::Error::from));
            refused(nix::sched::unshare(nix::sched::CloneFlags::empty()).map_err(io::Error::from));
            // What would make the process visible again.
            let visible = rustix::process::DumpableBehavior::Dumpable;
            refused(rustix::process::set_dumpable_behavior(visible).map_err(io::Error::from));
        });
    }

    #[test]
    fn what_a_gateway_does_is_allowed() {
        filtered(Unlisted::Refuse, || {
            UdpSocket::bind("127.0.0.1:0").unwrap();
            TcpListener::bind("[::1]:0").unwrap();
            let folder = tempfile::tempdir().unwrap();
            std::fs::write(folder.path().join("a"), "text").unwrap();
            std::fs::rename(folder.path().join("a"), folder.path().join("b")).unwrap();
            assert_eq!(std::fs::read_to_string(folder.path().join("b")).unwrap(), "text");
            thread::Builder::new().name("named".into()).spawn(|| {}).unwrap().join().unwrap();
        });
    }

    #[test]
    fn a_filter_that_logs_refuses_nothing() {
        filtered(Unlisted::Log, || {
            assert!(Command::new("/bin/true").status().unwrap().success());
        });
    }
}
