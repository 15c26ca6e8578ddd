/* What the parts of the shim share: the control file, and how the real functions are found.
 *
 * The control file is memory that the runner and one node's processes share. shim.py writes it and has the
 * same layout; all numbers are 64 bits wide.
 */

#pragma once
#define _GNU_SOURCE

#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>

#if !defined(__linux__) || __SIZEOF_POINTER__ != 8
#error "the shim is for 64-bit Linux, where off_t and off64_t are the same"
#endif

#define INTERNAL __attribute__((visibility("hidden")))

/* What is broken: the low byte of control.state. A hooked call looks only at the bits that concern it. */
enum { CLOCK = 1, WRITES = 2, FSYNCS = 4, READS = 8, PORTS = 16 };

enum { MOST_PORTS = 256, SLOT_NUMBERS = 11, SLOT_PREFIX_BYTES = 1024 };

struct slot {
    int64_t clock_base_ns, clock_offset_ns, clock_rate_ppm;
    int64_t write_errno, fsync_errno, read_errno, short_writes;
    int64_t probability_ppm;
    int64_t write_delay_ns, fsync_delay_ns, read_delay_ns;
    char prefix[SLOT_PREFIX_BYTES];
};

struct control {
    int64_t magic;
    /* A version, which grows with each change, and in the low byte what is broken. The version's last bit
     * says which slot holds. The other one is filled before this word is written, so that a reader never
     * waits for a writer, and knows by an unchanged word that what it has read belongs together. */
    int64_t state;
    int64_t loaded, hits, draws;
    int64_t ports[MOST_PORTS]; /* from << 16 | to; zero after the last */
    struct slot slots[2];
};

_Static_assert(sizeof(struct slot) == 8 * SLOT_NUMBERS + SLOT_PREFIX_BYTES, "no padding");

/* Never NULL: until it is attached, memory in which nothing is broken. */
extern INTERNAL struct control *shim_control;

static inline bool is_broken(int64_t what)
{
    return __builtin_expect(__atomic_load_n(&shim_control->state, __ATOMIC_RELAXED) & what, 0);
}

/* A copy of what holds now; false if nothing of `what` is broken any more. */
INTERNAL bool read_slot(int64_t what, struct slot *slot);

/* The real functions. They are looked up when the library is loaded, not at the first call, which may come
 * from a signal handler or from the child of a fork. Constructors of other libraries may still call earlier.
 */
#define DECLARE_REAL(name) static __typeof__(&name) real_##name;
#define FIND_REAL(name) real_##name = (__typeof__(&name))dlsym(RTLD_NEXT, #name);
#define REAL(name) (real_##name ? real_##name : (find_real(), real_##name))
