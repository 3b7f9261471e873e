/* Preloaded into a gateway, makes the disk that keeps its sequence numbers slow, hang or full.
 *
 * The file that SLOW_DISK names says how, whenever the disk is used: `N` is a delay of so many
 * milliseconds for each synchronization, `hang` is one without end, and `full` refuses all that is
 * written at an offset. It is read each time, so that it can change while the gateway runs.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static void read_mode(char mode[16])
{
    const char *path = getenv("SLOW_DISK");
    memset(mode, 0, 16);
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0)
        return;
    if (read(file, mode, 15) < 0)
        mode[0] = 0;
    close(file);
}

int fdatasync(int file)
{
    char mode[16];
    for (read_mode(mode); strncmp(mode, "hang", 4) == 0; read_mode(mode))
        usleep(1000);
    usleep(1000 * (useconds_t)atoi(mode));
    return syscall(SYS_fdatasync, file);
}

ssize_t pwrite64(int file, const void *bytes, size_t length, off64_t offset)
{
    char mode[16];
    read_mode(mode);
    if (strncmp(mode, "full", 4) == 0) {
        errno = ENOSPC;
        return -1;
    }
    return syscall(SYS_pwrite64, file, bytes, length, offset);
}
