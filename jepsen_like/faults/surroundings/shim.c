/* A library that is loaded before the others (LD_PRELOAD) into the processes of a node under test. It stands
 * between them and libc, and does what the node's control file says: fails or delays calls on files
 * (shim_disk.c, shim_fate.c), moves the wall clock (shim_clock.c), and here, opens connections to other ports.
 *
 * While nothing is broken a hooked call costs a load and a branch. Nothing here allocates or locks, so that
 * it may be called from anywhere. Children inherit both the library and the file.
 *
 * Not hooked, and so never broken: system calls of libc itself (stdio), those made without libc (Go, or
 * io_uring), memory that is mapped, the times of files, and timers of the kernel (timerfd) on the wall clock.
 */

#include "shim.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define VARIABLE "PYKRAFT_SHIM"
#define MAGIC 0x324D4948534B5950

static struct control nothing_broken;
INTERNAL struct control *shim_control = &nothing_broken;

#define HOOKS(EACH) EACH(connect)
HOOKS(DECLARE_REAL)

static void find_real(void)
{
    HOOKS(FIND_REAL)
}

/* A node whose faults silently do nothing would pass every test. */
static void give_up(const char *file, const char *what)
{
    dprintf(STDERR_FILENO, "shim: %s: %s\n", file, what);
    _exit(127);
}

__attribute__((constructor)) static void attach(void)
{
    find_real();
    const char *file = getenv(VARIABLE);
    if (!file)
        return;
    /* Not open(), which is hooked. */
    int descriptor = (int)syscall(SYS_openat, AT_FDCWD, file, O_RDWR | O_CLOEXEC);
    struct stat status;
    if (descriptor < 0 || fstat(descriptor, &status) < 0)
        give_up(file, strerror(errno));
    if (status.st_size != sizeof(struct control))
        give_up(file, "is no control file");
    struct control *control =
        mmap(NULL, sizeof(struct control), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    if (control == MAP_FAILED)
        give_up(file, strerror(errno));
    if (control->magic != MAGIC)
        give_up(file, "is no control file");
    close(descriptor);
    __atomic_fetch_add(&control->loaded, 1, __ATOMIC_RELAXED);
    shim_control = control;
}

INTERNAL bool read_slot(int64_t what, struct slot *slot)
{
    int64_t state;
    do {
        state = __atomic_load_n(&shim_control->state, __ATOMIC_ACQUIRE);
        if (!(state & what))
            return false;
        memcpy(slot, &shim_control->slots[state >> 8 & 1], sizeof(*slot));
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
    } while (__atomic_load_n(&shim_control->state, __ATOMIC_RELAXED) != state);
    slot->prefix[SLOT_PREFIX_BYTES - 1] = '\0';
    return true;
}

/* Where a connection to this port of loopback goes; the same port if the table does not name it. */
static in_port_t redirected(in_port_t port)
{
    for (int index = 0; index < MOST_PORTS; index++) {
        int64_t entry = __atomic_load_n(&shim_control->ports[index], __ATOMIC_RELAXED);
        if (entry >> 16 == ntohs(port))
            return htons(entry & 0xFFFF);
    }
    return port;
}

/* The JVM connects to IPv4 through sockets of IPv6, as ::ffff:127.0.0.1. */
int connect(int descriptor, const struct sockaddr *address, socklen_t bytes)
{
    if (is_broken(PORTS) && bytes >= sizeof(struct sockaddr_in) && address->sa_family == AF_INET) {
        struct sockaddr_in to;
        memcpy(&to, address, sizeof(to));
        if (ntohl(to.sin_addr.s_addr) >> 24 == IN_LOOPBACKNET) {
            to.sin_port = redirected(to.sin_port);
            return REAL(connect)(descriptor, (struct sockaddr *)&to, sizeof(to));
        }
    }
    if (is_broken(PORTS) && bytes >= sizeof(struct sockaddr_in6) && address->sa_family == AF_INET6) {
        struct sockaddr_in6 to;
        memcpy(&to, address, sizeof(to));
        if (IN6_IS_ADDR_V4MAPPED(&to.sin6_addr) && to.sin6_addr.s6_addr[12] == IN_LOOPBACKNET) {
            to.sin6_port = redirected(to.sin6_port);
            return REAL(connect)(descriptor, (struct sockaddr *)&to, sizeof(to));
        }
    }
    return REAL(connect)(descriptor, address, bytes);
}
