/* The wall clock: what a process reads, and the points in time on it until which it waits.
 *
 * Every function that tells the wall time shows a clock that may be off and may be too fast or too slow. A
 * deadline that a process has computed from it is translated back before the kernel sees it: a wait of a
 * second ends after a second (of that clock). The monotonic clock is never touched.
 */

#include "shim.h"

#include <linux/futex.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdarg.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define HOOKS(EACH)                                                                                          \
    EACH(clock_gettime)                                                                                      \
    EACH(clock_nanosleep)                                                                                    \
    EACH(pthread_cond_timedwait)                                                                             \
    EACH(pthread_mutex_timedlock)                                                                            \
    EACH(sem_timedwait)                                                                                      \
    EACH(syscall)
HOOKS(DECLARE_REAL)

static void find_real(void)
{
    HOOKS(FIND_REAL)
#ifdef __x86_64__
    /* Of this one there are two with incompatible conditions; programs of this century use the newer. */
    real_pthread_cond_timedwait =
        (__typeof__(real_pthread_cond_timedwait))dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2");
    if (!real_pthread_cond_timedwait)
        FIND_REAL(pthread_cond_timedwait)
#endif
}

__attribute__((constructor)) static void attach_clock(void)
{
    find_real();
}

enum { SECOND_NS = 1000000000, MILLION = 1000000 };

static int64_t to_ns(const struct timespec *time)
{
    return time->tv_sec * SECOND_NS + time->tv_nsec;
}

static struct timespec from_ns(int64_t ns)
{
    return (struct timespec){.tv_sec = ns / SECOND_NS, .tv_nsec = ns % SECOND_NS};
}

static struct timespec shown(const struct slot *clock, struct timespec true_time)
{
    __int128 since_base = to_ns(&true_time) - clock->clock_base_ns;
    return from_ns(clock->clock_base_ns + clock->clock_offset_ns
                   + (int64_t)(since_base * clock->clock_rate_ppm / MILLION));
}

/* The deadline for the kernel: itself, or in `true_time` what it is on the true clock. Some functions do not
 * say on which clock a deadline is. One below 2001 is on the monotonic clock, since no machine runs for 31
 * years; and one beyond 2255 stands for ever. */
static const struct timespec *deadline(const struct timespec *time, struct timespec *true_time)
{
    struct slot clock;
    if (!time || time->tv_sec < 1000000000 || time->tv_sec > 9000000000 || !read_slot(CLOCK, &clock))
        return time;
    __int128 since_base = to_ns(time) - clock.clock_base_ns - clock.clock_offset_ns;
    *true_time = from_ns(clock.clock_base_ns + (int64_t)(since_base * MILLION / clock.clock_rate_ppm));
    return true_time;
}

int clock_gettime(clockid_t id, struct timespec *time)
{
    int result = REAL(clock_gettime)(id, time);
    struct slot clock;
    if (is_broken(CLOCK) && result == 0 && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)
        && read_slot(CLOCK, &clock))
        *time = shown(&clock, *time);
    return result;
}

int timespec_get(struct timespec *time, int base)
{
    return base == TIME_UTC && clock_gettime(CLOCK_REALTIME, time) == 0 ? base : 0;
}

int gettimeofday(struct timeval *restrict time, void *restrict zone)
{
    struct timespec now;
    int result = clock_gettime(CLOCK_REALTIME, &now);
    if (result == 0)
        *time = (struct timeval){.tv_sec = now.tv_sec, .tv_usec = now.tv_nsec / 1000};
    if (zone) /* unused since 1993 */
        *(struct timezone *)zone = (struct timezone){0, 0};
    return result;
}

time_t time(time_t *seconds)
{
    struct timespec now;
    if (clock_gettime(CLOCK_REALTIME_COARSE, &now) != 0)
        return (time_t)-1;
    if (seconds)
        *seconds = now.tv_sec;
    return now.tv_sec;
}

int clock_nanosleep(clockid_t id, int flags, const struct timespec *time, struct timespec *left)
{
    struct timespec true_time;
    if (is_broken(CLOCK) && id == CLOCK_REALTIME && flags == TIMER_ABSTIME)
        time = deadline(time, &true_time);
    return REAL(clock_nanosleep)(id, flags, time, left);
}

int pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex, const struct timespec *time)
{
    struct timespec true_time;
    if (is_broken(CLOCK))
        time = deadline(time, &true_time);
    return REAL(pthread_cond_timedwait)(condition, mutex, time);
}

int pthread_mutex_timedlock(pthread_mutex_t *mutex, const struct timespec *time)
{
    struct timespec true_time;
    if (is_broken(CLOCK))
        time = deadline(time, &true_time);
    return REAL(pthread_mutex_timedlock)(mutex, time);
}

int sem_timedwait(sem_t *semaphore, const struct timespec *time)
{
    struct timespec true_time;
    if (is_broken(CLOCK))
        time = deadline(time, &true_time);
    return REAL(sem_timedwait)(semaphore, time);
}

/* Waits of gRPC's threads (abseil) are futexes without libc. The kernel ignores what a call does not use. */
long syscall(long number, ...)
{
    long arguments[6];
    va_list list;
    va_start(list, number);
    for (int index = 0; index < 6; index++)
        arguments[index] = va_arg(list, long);
    va_end(list);
    struct timespec true_time;
    if (is_broken(CLOCK) && number == SYS_futex && (arguments[1] & FUTEX_CLOCK_REALTIME)
        && (arguments[1] & FUTEX_CMD_MASK) == FUTEX_WAIT_BITSET)
        arguments[3] = (long)deadline((const struct timespec *)arguments[3], &true_time);
    return REAL(syscall)(number, arguments[0], arguments[1], arguments[2], arguments[3], arguments[4],
                         arguments[5]);
}
