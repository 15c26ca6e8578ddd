/* What a call on a file suffers: whether it concerns the directory in which something is broken, whether it is
 * hit, and what happens to it then.
 *
 * Where a call goes is found out only while something is broken: of a descriptor by its link in /proc, which
 * is no path for sockets and pipes; of a path by that of its directory, so that relative paths and links are
 * seen through; of mapped memory by the process's map.
 */

#include "shim_fate.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* --- where a call goes ------------------------------------------------------------------------------------ */

static bool is_below(const char *path, const char *prefix)
{
    size_t length = strlen(prefix);
    return path[0] == '/' && strncmp(path, prefix, length) == 0 && (path[length] == '/' || !path[length]);
}

static int open_unhooked(int directory, const char *path, int flags)
{
    return (int)syscall(SYS_openat, directory, path, flags | O_CLOEXEC);
}

/* The path of a descriptor; false if there is none. */
static bool path_of(int descriptor, char path[PATH_MAX])
{
    char link[32];
    snprintf(link, sizeof(link), "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, PATH_MAX - 1);
    if (length < 0)
        return false;
    path[length] = '\0';
    return true;
}

static bool is_file_below(int descriptor, const char *prefix)
{
    char path[PATH_MAX];
    return path_of(descriptor, path) && is_below(path, prefix);
}

static bool is_path_below(int directory, const char *path, const char *prefix)
{
    char parent[PATH_MAX], found[2 * PATH_MAX];
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/')
        length--;
    if (length == 0 || length >= sizeof(parent) - 1)
        return false;
    const char *slash = memrchr(path, '/', length);
    size_t name = slash ? (size_t)(slash + 1 - path) : 0;
    snprintf(parent, sizeof(parent), "%.*s.", (int)name, path);
    int descriptor = open_unhooked(directory, parent, O_PATH | O_DIRECTORY);
    if (descriptor < 0)
        return false;
    bool is_known = path_of(descriptor, found);
    close(descriptor);
    if (!is_known)
        return false;
    size_t end = strlen(found);
    if (end == 1) /* the root: the only path that ends with a slash */
        end = 0;
    snprintf(found + end, sizeof(found) - end, "/%.*s", (int)(length - name), path + name);
    return is_below(found, prefix);
}

/* Whether a line of /proc/self/maps (from-to rights offset device inode path) is that of the address. */
static bool is_line_below(char *line, const void *address, const char *prefix)
{
    char *dash, *rights;
    uintptr_t from = strtoul(line, &dash, 16), to = strtoul(dash + 1, &rights, 16);
    const char *path = strchr(rights, '/');
    return from <= (uintptr_t)address && (uintptr_t)address < to && path && is_below(path, prefix);
}

static bool is_mapped_from_below(const void *address, const char *prefix)
{
    char buffer[PATH_MAX + 128]; /* a line at least */
    size_t filled = 0;
    bool is_found = false;
    int descriptor = open_unhooked(AT_FDCWD, "/proc/self/maps", O_RDONLY);
    while (descriptor >= 0 && !is_found) {
        long more = syscall(SYS_read, descriptor, buffer + filled, sizeof(buffer) - 1 - filled);
        if (more <= 0)
            break;
        char *line = buffer, *end;
        filled += (size_t)more;
        buffer[filled] = '\0';
        for (; !is_found && (end = strchr(line, '\n')); line = end + 1) {
            *end = '\0';
            is_found = is_line_below(line, address, prefix);
        }
        filled -= (size_t)(line - buffer);
        memmove(buffer, line, filled);
    }
    if (descriptor >= 0)
        close(descriptor);
    return is_found;
}

/* --- what a call suffers ---------------------------------------------------------------------------------- */

INTERNAL uint64_t shim_draw(void)
{
    /* splitmix64 over a counter that all processes share */
    uint64_t mixed = (uint64_t)__atomic_add_fetch(&shim_control->draws, 1, __ATOMIC_RELAXED);
    mixed *= 0x9E3779B97F4A7C15;
    mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9;
    mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB;
    return mixed ^ mixed >> 31;
}

static bool is_hit(int64_t kind, struct slot *disk)
{
    return read_slot(kind, disk) && (int64_t)(shim_draw() % 1000000) < disk->probability_ppm;
}

static void delay(int64_t ns)
{
    struct timespec left = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
    while (ns && nanosleep(&left, &left) < 0 && errno == EINTR)
        ;
}

/* A full disk still lets files be removed and truncated; only a read-only one lets nothing be opened for
 * writing. */
static bool refuses(int64_t error, enum need need)
{
    return error && (need <= ROOM || (need == CHANGE && error != ENOSPC) || error == EROFS);
}

static struct fate suffer(const struct slot *disk, int64_t kind, enum need need)
{
    int64_t error = disk->read_errno, delay_ns = disk->read_delay_ns;
    if (kind == WRITES)
        error = disk->write_errno, delay_ns = disk->write_delay_ns;
    else if (kind == FSYNCS)
        error = disk->fsync_errno, delay_ns = disk->fsync_delay_ns;
    struct fate fate = {refuses(error, need) ? (int)error : 0, false};
    if (kind == WRITES && need == DATA && disk->short_writes && (!error || shim_draw() % 2))
        fate = (struct fate){0, true};
    if (fate.error || fate.is_short || delay_ns)
        __atomic_fetch_add(&shim_control->hits, 1, __ATOMIC_RELAXED);
    delay(delay_ns);
    return fate;
}

static struct fate leave(struct fate fate, int errno_before)
{
    errno = fate.error ? fate.error : errno_before;
    return fate;
}

INTERNAL struct fate shim_file_fate(int64_t kind, enum need need, int descriptor)
{
    int before = errno;
    struct slot disk;
    bool hit = is_hit(kind, &disk) && is_file_below(descriptor, disk.prefix);
    return leave(hit ? suffer(&disk, kind, need) : UNHURT, before);
}

INTERNAL struct fate shim_path_fate(int64_t kind, enum need need, int directory, const char *path)
{
    int before = errno;
    struct slot disk;
    bool hit = is_hit(kind, &disk) && is_path_below(directory, path, disk.prefix);
    return leave(hit ? suffer(&disk, kind, need) : UNHURT, before);
}

INTERNAL struct fate shim_memory_fate(int64_t kind, enum need need, const void *address)
{
    int before = errno;
    struct slot disk;
    bool hit = is_hit(kind, &disk) && is_mapped_from_below(address, disk.prefix);
    return leave(hit ? suffer(&disk, kind, need) : UNHURT, before);
}
