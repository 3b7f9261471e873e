/*
 * A preload library for a user-mode-linux that is older than the processor it runs on.
 *
 * Linux takes the extended register state of a traced process (PTRACE_SETREGSET of NT_X86_XSTATE)
 * only as a whole: all components that the kernel has enabled, in the standard format of XSAVE
 * (Intel SDM volume 1, section 13.4). Anything shorter is refused with EFAULT. User-mode-linux 6.1
 * gives 2,696 bytes, which end after PKRU. With AMX the area has 11,008.
 *
 * The library reads the whole area, replaces the components that the caller gives, and writes the
 * whole back. Components that the caller does not give keep their content and their bit in
 * XSTATE_BV. No program in the guest can use them: the guest's kernel does not know of them.
 */
#define _GNU_SOURCE
#include <cpuid.h>
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum {
    XSTATE_BV = 512,   /* where the bitmap of the components in use is */
    EXTENDED = 576,    /* where the legacy area and the header end and the components begin */
    LARGEST = 1 << 16, /* more than any processor has */
    COMPONENTS = 63,
};

typedef long ptrace_function(enum __ptrace_request, ...);

static ptrace_function *next_ptrace;

/* Where each component begins and ends. Both are zero if there is no such component. */
static struct {
    unsigned begin, end;
} components[COMPONENTS];

/* One is enough: user-mode-linux calls ptrace from one thread and from no signal handler. It is not
 * on the stack, which has 16 KiB there. */
static unsigned char area[LARGEST] __attribute__((aligned(64)));

__attribute__((constructor)) static void prepare(void)
{
    unsigned highest_leaf, size, offset, flags, unused;

    next_ptrace = (ptrace_function *)dlsym(RTLD_NEXT, "ptrace");
    __cpuid(0, highest_leaf, unused, unused, unused);
    if (highest_leaf < 0xd)
        return;
    /* Asked once: in a virtual machine each CPUID is a call of the hypervisor. */
    for (int component = 2; component < COMPONENTS; component++) {
        __cpuid_count(0xd, component, size, offset, flags, unused);
        /* Bit 0 of the flags: a supervisor component, which the standard format does not have. */
        if (size == 0 || flags & 1)
            continue;
        components[component].begin = offset;
        components[component].end = offset + size;
    }
}

/* Says once that the library is at work, and on what. */
static void announce(size_t given, size_t whole)
{
    static int announced;
    char line[80];

    if (announced)
        return;
    announced = 1;
    int length = snprintf(line, sizeof line, "xstate: %zu bytes of %zu given\n", given, whole);
    if (write(STDERR_FILENO, line, length) < 0) {
        /* Without a standard error there is nobody to tell. */
    }
}

/*
 * Returns the bits of the components that are not wholly in the first `given` bytes, and lowers
 * `given` to where the first of them begins.
 */
static uint64_t components_behind(size_t *given)
{
    uint64_t behind = 0;
    size_t first = *given;

    for (int component = 2; component < COMPONENTS; component++) {
        if (components[component].end <= *given)
            continue;
        behind |= UINT64_C(1) << component;
        if (components[component].begin < first)
            first = components[component].begin;
    }
    *given = first;
    return behind;
}

static long set_xstate(pid_t pid, const struct iovec *caller)
{
    void *type = (void *)(uintptr_t)NT_X86_XSTATE;
    struct iovec io = {area, sizeof area};
    uint64_t had, has;

    if (syscall(SYS_ptrace, PTRACE_GETREGSET, pid, type, &io) != 0)
        return -1;
    if (io.iov_len == sizeof area) {
        errno = E2BIG;
        return -1;
    }
    size_t given = caller->iov_len < io.iov_len ? caller->iov_len : io.iov_len;
    if (given < EXTENDED) {
        errno = EFAULT;
        return -1;
    }
    announce(caller->iov_len, io.iov_len);
    uint64_t behind = components_behind(&given);
    memcpy(&had, area + XSTATE_BV, sizeof had);
    memcpy(area, caller->iov_base, given);
    memcpy(&has, area + XSTATE_BV, sizeof has);
    has = (has & ~behind) | (had & behind);
    memcpy(area + XSTATE_BV, &has, sizeof has);
    return syscall(SYS_ptrace, PTRACE_SETREGSET, pid, type, &io);
}

long ptrace(enum __ptrace_request request, ...)
{
    va_list arguments;

    va_start(arguments, request);
    pid_t pid = va_arg(arguments, pid_t);
    void *address = va_arg(arguments, void *);
    void *data = va_arg(arguments, void *);
    va_end(arguments);
    if (request == PTRACE_SETREGSET && (uintptr_t)address == NT_X86_XSTATE)
        return set_xstate(pid, data);
    return next_ptrace(request, pid, address, data);
}
