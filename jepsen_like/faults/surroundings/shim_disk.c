/* The calls on files that can be broken, in all variants in which libc has them. shim_fate.c decides. */

#include "shim_fate.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define HOOKS(EACH)                                                                                          \
    EACH(write) EACH(writev) EACH(pwrite) EACH(pwritev) EACH(pwritev2)                                       \
    EACH(read) EACH(readv) EACH(pread) EACH(preadv) EACH(preadv2)                                            \
    EACH(sendfile) EACH(copy_file_range)                                                                     \
    EACH(fsync) EACH(fdatasync) EACH(sync_file_range) EACH(msync)                                            \
    EACH(ftruncate) EACH(truncate) EACH(fallocate) EACH(posix_fallocate)                                     \
    EACH(openat) EACH(mkdirat) EACH(unlinkat) EACH(renameat2)
HOOKS(DECLARE_REAL)

static void find_real(void)
{
    HOOKS(FIND_REAL)
}

__attribute__((constructor)) static void attach_disk(void)
{
    find_real();
}

static inline struct fate file_fate(int64_t kind, enum need need, int descriptor)
{
    return is_broken(kind) ? shim_file_fate(kind, need, descriptor) : UNHURT;
}

static inline bool file_fails(int64_t kind, enum need need, int descriptor)
{
    return file_fate(kind, need, descriptor).error != 0;
}

static inline bool path_fails(enum need need, int directory, const char *path)
{
    return is_broken(WRITES) && shim_path_fate(WRITES, need, directory, path).error != 0;
}

/* --- writes ----------------------------------------------------------------------------------------------- */

static size_t part_of(size_t bytes)
{
    return bytes > 1 ? 1 + shim_draw() % (bytes - 1) : bytes;
}

/* A part of the first buffer that is not empty. */
static struct iovec start_of(const struct iovec *buffers, int count)
{
    while (count > 1 && buffers->iov_len == 0)
        buffers++, count--;
    return (struct iovec){buffers->iov_base, part_of(buffers->iov_len)};
}

ssize_t write(int file, const void *data, size_t bytes)
{
    struct fate fate = file_fate(WRITES, DATA, file);
    return fate.error ? -1 : REAL(write)(file, data, fate.is_short ? part_of(bytes) : bytes);
}

ssize_t pwrite(int file, const void *data, size_t bytes, off_t position)
{
    struct fate fate = file_fate(WRITES, DATA, file);
    return fate.error ? -1 : REAL(pwrite)(file, data, fate.is_short ? part_of(bytes) : bytes, position);
}

#define WRITE_BUFFERS(name, ...)                                                                             \
    struct fate fate = file_fate(WRITES, DATA, file);                                                        \
    if (fate.error)                                                                                          \
        return -1;                                                                                           \
    if (!fate.is_short || count < 1)                                                                         \
        return REAL(name)(file, buffers, count, ##__VA_ARGS__);                                              \
    struct iovec start = start_of(buffers, count);                                                           \
    return REAL(name)(file, &start, 1, ##__VA_ARGS__)

ssize_t writev(int file, const struct iovec *buffers, int count)
{
    WRITE_BUFFERS(writev);
}

ssize_t pwritev(int file, const struct iovec *buffers, int count, off_t position)
{
    WRITE_BUFFERS(pwritev, position);
}

ssize_t pwritev2(int file, const struct iovec *buffers, int count, off_t position, int flags)
{
    WRITE_BUFFERS(pwritev2, position, flags);
}

int fallocate(int file, int mode, off_t position, off_t bytes)
{
    return file_fails(WRITES, ROOM, file) ? -1 : REAL(fallocate)(file, mode, position, bytes);
}

/* The error is the result; errno is left alone. */
int posix_fallocate(int file, off_t position, off_t bytes)
{
    int before = errno, error = file_fate(WRITES, ROOM, file).error;
    errno = before;
    return error ? error : REAL(posix_fallocate)(file, position, bytes);
}

int ftruncate(int file, off_t bytes)
{
    return file_fails(WRITES, CHANGE, file) ? -1 : REAL(ftruncate)(file, bytes);
}

int truncate(const char *path, off_t bytes)
{
    return path_fails(CHANGE, AT_FDCWD, path) ? -1 : REAL(truncate)(path, bytes);
}

/* --- names ------------------------------------------------------------------------------------------------ */

static bool is_new(int directory, const char *path)
{
    int before = errno;
    bool is_there = faccessat(directory, path, F_OK, 0) == 0;
    errno = before;
    return !is_there;
}

/* A file that is opened only to be read, and is there, needs nothing. */
static bool opening_fails(int directory, const char *path, int flags)
{
    bool creates = (flags & O_CREAT) && is_new(directory, path);
    if (creates || (flags & O_TMPFILE) == O_TMPFILE)
        return path_fails(ROOM, directory, path);
    if (flags & O_TRUNC)
        return path_fails(CHANGE, directory, path);
    return (flags & O_ACCMODE) != O_RDONLY && path_fails(WRITABLE, directory, path);
}

static int open_file(int directory, const char *path, int flags, mode_t mode)
{
    if (is_broken(WRITES) && opening_fails(directory, path, flags))
        return -1;
    return REAL(openat)(directory, path, flags, mode);
}

/* The mode follows the flags only if a file may be created. */
#define MODE_AFTER(flags)                                                                                    \
    mode_t mode = 0;                                                                                         \
    if ((flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE) {                                             \
        va_list list;                                                                                        \
        va_start(list, flags);                                                                               \
        mode = va_arg(list, mode_t);                                                                         \
        va_end(list);                                                                                        \
    }

int open(const char *path, int flags, ...)
{
    MODE_AFTER(flags)
    return open_file(AT_FDCWD, path, flags, mode);
}

int openat(int directory, const char *path, int flags, ...)
{
    MODE_AFTER(flags)
    return open_file(directory, path, flags, mode);
}

int creat(const char *path, mode_t mode)
{
    return open_file(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode);
}

/* Of one that is there the kernel says so, whatever the disk is like. */
int mkdirat(int directory, const char *path, mode_t mode)
{
    if (is_broken(WRITES) && is_new(directory, path) && path_fails(ROOM, directory, path))
        return -1;
    return REAL(mkdirat)(directory, path, mode);
}

int mkdir(const char *path, mode_t mode)
{
    return mkdirat(AT_FDCWD, path, mode);
}

int unlinkat(int directory, const char *path, int flags)
{
    return path_fails(CHANGE, directory, path) ? -1 : REAL(unlinkat)(directory, path, flags);
}

int unlink(const char *path)
{
    return unlinkat(AT_FDCWD, path, 0);
}

int rmdir(const char *path)
{
    return unlinkat(AT_FDCWD, path, AT_REMOVEDIR);
}

int remove(const char *path)
{
    int result = unlink(path);
    return result < 0 && errno == EISDIR ? rmdir(path) : result;
}

int renameat2(int from, const char *source, int to, const char *target, unsigned int flags)
{
    return path_fails(CHANGE, to, target) ? -1 : REAL(renameat2)(from, source, to, target, flags);
}

int renameat(int from, const char *source, int to, const char *target)
{
    return renameat2(from, source, to, target, 0);
}

int rename(const char *source, const char *target)
{
    return renameat2(AT_FDCWD, source, AT_FDCWD, target, 0);
}

/* --- flushes ---------------------------------------------------------------------------------------------- */

int fsync(int file)
{
    return file_fails(FSYNCS, DATA, file) ? -1 : REAL(fsync)(file);
}

int fdatasync(int file)
{
    return file_fails(FSYNCS, DATA, file) ? -1 : REAL(fdatasync)(file);
}

int sync_file_range(int file, off_t position, off_t bytes, unsigned int flags)
{
    return file_fails(FSYNCS, DATA, file) ? -1 : REAL(sync_file_range)(file, position, bytes, flags);
}

int msync(void *address, size_t bytes, int flags)
{
    if (is_broken(FSYNCS) && shim_memory_fate(FSYNCS, DATA, address).error)
        return -1;
    return REAL(msync)(address, bytes, flags);
}

/* --- reads ------------------------------------------------------------------------------------------------ */

ssize_t read(int file, void *data, size_t bytes)
{
    return file_fails(READS, DATA, file) ? -1 : REAL(read)(file, data, bytes);
}

ssize_t pread(int file, void *data, size_t bytes, off_t position)
{
    return file_fails(READS, DATA, file) ? -1 : REAL(pread)(file, data, bytes, position);
}

ssize_t readv(int file, const struct iovec *buffers, int count)
{
    return file_fails(READS, DATA, file) ? -1 : REAL(readv)(file, buffers, count);
}

ssize_t preadv(int file, const struct iovec *buffers, int count, off_t position)
{
    return file_fails(READS, DATA, file) ? -1 : REAL(preadv)(file, buffers, count, position);
}

ssize_t preadv2(int file, const struct iovec *buffers, int count, off_t position, int flags)
{
    return file_fails(READS, DATA, file) ? -1 : REAL(preadv2)(file, buffers, count, position, flags);
}

ssize_t sendfile(int target, int source, off_t *position, size_t bytes)
{
    if (file_fails(READS, DATA, source) || file_fails(WRITES, DATA, target))
        return -1;
    return REAL(sendfile)(target, source, position, bytes);
}

ssize_t copy_file_range(int source, off_t *from, int target, off_t *to, size_t bytes, unsigned int flags)
{
    if (file_fails(READS, DATA, source) || file_fails(WRITES, DATA, target))
        return -1;
    return REAL(copy_file_range)(source, from, target, to, bytes, flags);
}

/* --- other names of the same ------------------------------------------------------------------------------ */

/* What programs are linked to that were compiled for large files, which all are here. */
#define ALIAS(name, same) extern __typeof__(same) name __attribute__((alias(#same)));
ALIAS(open64, open)
ALIAS(openat64, openat)
ALIAS(creat64, creat)
ALIAS(pwrite64, pwrite)
ALIAS(pwritev64, pwritev)
ALIAS(pwritev64v2, pwritev2)
ALIAS(pread64, pread)
ALIAS(preadv64, preadv)
ALIAS(preadv64v2, preadv2)
ALIAS(sendfile64, sendfile)
ALIAS(ftruncate64, ftruncate)
ALIAS(truncate64, truncate)
ALIAS(fallocate64, fallocate)
ALIAS(posix_fallocate64, posix_fallocate)

/* What programs are linked to that were compiled with _FORTIFY_SOURCE. */

int __open_2(const char *path, int flags)
{
    return open_file(AT_FDCWD, path, flags, 0);
}
ALIAS(__open64_2, __open_2)

int __openat_2(int directory, const char *path, int flags)
{
    return open_file(directory, path, flags, 0);
}
ALIAS(__openat64_2, __openat_2)

ssize_t __read_chk(int file, void *data, size_t bytes, size_t room)
{
    if (bytes > room)
        abort();
    return read(file, data, bytes);
}

ssize_t __pread_chk(int file, void *data, size_t bytes, off_t position, size_t room)
{
    if (bytes > room)
        abort();
    return pread(file, data, bytes, position);
}
ALIAS(__pread64_chk, __pread_chk)
