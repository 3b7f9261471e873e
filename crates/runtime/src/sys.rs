//! The one system call that no library makes as it is needed here.
#![allow(unsafe_code)]

use std::io;

use seccompiler::BpfProgramRef;

/// Filters the system calls of all threads of the process, now and later, and has the system log
/// those that are refused (`SECCOMP_FILTER_FLAG_LOG`, seccomp(2)). [`seccompiler::apply_filter`]
/// asks for no log.
pub(crate) fn filter_all_threads(program: BpfProgramRef<'_>) -> io::Result<()> {
    install(program, libc::SECCOMP_FILTER_FLAG_TSYNC | libc::SECCOMP_FILTER_FLAG_LOG)
}

/// Filters the system calls of the calling thread alone.
#[cfg(test)]
pub(crate) fn filter_this_thread(program: BpfProgramRef<'_>) -> io::Result<()> {
    install(program, libc::SECCOMP_FILTER_FLAG_LOG)
}

fn install(program: BpfProgramRef<'_>, flags: libc::c_ulong) -> io::Result<()> {
    let length = u16::try_from(program.len())
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "the filter is too long"))?;
    let described = libc::sock_fprog {
        len: length,
        // The kernel only reads. seccompiler's sock_filter is declared as libc's is (BPF's layout).
        filter: program.as_ptr().cast_mut().cast(),
    };
    // SAFETY: the program lives across the call, and its length is its own. The kernel copies it.
    // JUSTIFICATION: neither libc nor seccompiler has a safe function that sets this flag.
    let result = unsafe {
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const described)
    };
    match result {
        0 => Ok(()),
        -1 => Err(io::Error::last_os_error()),
        // With TSYNC, the number of a thread that cannot follow.
        thread => Err(io::Error::other(format!("thread {thread} has a filter of its own"))),
    }
}
