/* Sends prebuilt requests and reads their answers, at a cost well below that of the broker.

   load PORT CONNECTIONS DEPTH DIRECTORY [AT FIRST STEP]

   DIRECTORY/frames has the requests with their sizes in front; connection n sends request n modulo their number, again
   and again. With AT, the eight bytes there count from FIRST on by STEP from request to request of a connection: the
   offset of a fetch. Each line of the standard input is a number of requests: so many are sent, each
   connection its share, with DEPTH unanswered on each, and when all are answered a line says the bytes of the answers
   and the seconds of this program's processor time. DIRECTORY/answers gets the whole first answer of each connection, and
   DIRECTORY/latencies the seconds that each request of the last number waited, as doubles. */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { SCRATCH = 1 << 20, TIMEOUT_MS = 60000, EVENTS = 256 };

struct peer {
    int socket, unanswered, is_checked;
    char *frame;
    size_t size, position;  /* of the frame that is being sent; position 0: none is */
    uint64_t number, share; /* of requests begun, and of those to send */
    unsigned char head[4];
    size_t head_read, body_left;
    char *first;            /* The first answer with its size, as far as it has come */
    size_t first_size;
    double *begun;          /* of the unanswered ones, a ring of DEPTH */
    int oldest;
};

static int depth;
static uint64_t answered, received;
static long patch_at = -1;
static uint64_t patch_first, patch_step;
static FILE *first_answers, *latencies;
static char scratch[SCRATCH];

static void fail(const char *what)
{
    fprintf(stderr, "load: %s: %s\n", what, errno ? strerror(errno) : "ended");
    exit(1);
}

static double now(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec + at.tv_nsec / 1e9;
}

/* Begin and continue requests until the socket is full, or enough are unanswered. */
static void send_some(struct peer *peer)
{
    for (;;) {
        if (peer->position == 0) {
            if (peer->unanswered == depth || peer->number == peer->share)
                return;
            if (patch_at >= 0) {
                uint64_t value = htobe64(patch_first + peer->number * patch_step);
                memcpy(peer->frame + patch_at, &value, sizeof value);
            }
            peer->begun[(peer->oldest + peer->unanswered) % depth] = now();
            peer->number++, peer->unanswered++;
        }
        ssize_t done = send(peer->socket, peer->frame + peer->position, peer->size - peer->position, MSG_NOSIGNAL);
        if (done < 0) {
            if (errno == EAGAIN)
                return;
            fail("send");
        }
        peer->position += done;
        if (peer->position < peer->size)
            continue;
        peer->position = 0;
    }
}

static void answer_read(struct peer *peer)
{
    double waited = now() - peer->begun[peer->oldest];
    fwrite(&waited, sizeof waited, 1, latencies);
    peer->oldest = (peer->oldest + 1) % depth;
    peer->unanswered--, answered++;
    peer->head_read = 0;
    if (!peer->is_checked) {
        fwrite(peer->first, 1, peer->first_size, first_answers);
        free(peer->first);
        peer->is_checked = 1;
    }
}

static void receive_some(struct peer *peer)
{
    ssize_t got = recv(peer->socket, scratch, sizeof scratch, 0);
    if (got < 0 && errno == EAGAIN)
        return;
    if (got <= 0)
        fail("the broker closed a connection");
    received += got;
    for (char *at = scratch, *end = scratch + got; at < end;) {
        if (peer->head_read < 4) {
            peer->head[peer->head_read++] = *at++;
            if (peer->head_read < 4)
                continue;
            uint32_t size;
            memcpy(&size, peer->head, 4);
            peer->body_left = ntohl(size);
            if (!peer->is_checked) {
                peer->first = malloc(4 + peer->body_left);
                memcpy(peer->first, peer->head, peer->first_size = 4);
            }
        } else {
            size_t part = end - at < (ssize_t)peer->body_left ? (size_t)(end - at) : peer->body_left;
            if (!peer->is_checked) {
                memcpy(peer->first + peer->first_size, at, part);
                peer->first_size += part;
            }
            at += part, peer->body_left -= part;
        }
        if (peer->head_read == 4 && peer->body_left == 0)
            answer_read(peer);
    }
}

static struct peer *connected(int port, int connections, int epoll, FILE *file)
{
    struct stat found;
    fstat(fileno(file), &found);
    char *frames = malloc(found.st_size);
    if (fread(frames, 1, found.st_size, file) != (size_t)found.st_size)
        fail("frames");
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    struct peer *peers = calloc(connections, sizeof *peers);
    size_t at = 0;
    for (int n = 0; n < connections; n++) {
        uint32_t size;
        memcpy(&size, frames + at, 4);
        struct peer *peer = &peers[n];
        peer->size = 4 + ntohl(size);
        peer->frame = malloc(peer->size);
        memcpy(peer->frame, frames + at, peer->size);
        at = at + peer->size == (size_t)found.st_size ? 0 : at + peer->size;
        peer->begun = calloc(depth, sizeof(double));
        peer->socket = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(peer->socket, (struct sockaddr *)&address, sizeof address) != 0)
            fail("connect");
        int yes = 1;
        setsockopt(peer->socket, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
        fcntl(peer->socket, F_SETFL, O_NONBLOCK);
        struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLET, .data.ptr = peer};
        epoll_ctl(epoll, EPOLL_CTL_ADD, peer->socket, &event);
    }
    return peers;
}

static double cpu_s(void)
{
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return used.ru_utime.tv_sec + used.ru_stime.tv_sec + (used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
}

static void run(struct peer *peers, int connections, int epoll, uint64_t count)
{
    struct epoll_event events[EVENTS];
    answered = received = 0;
    if (fflush(latencies) != 0 || ftruncate(fileno(latencies), 0) != 0)
        fail("latencies");
    rewind(latencies);
    for (int n = 0; n < connections; n++) {
        peers[n].number = 0, peers[n].share = count / connections + ((unsigned)n < count % connections);
        send_some(&peers[n]);
    }
    while (answered < count) {
        int ready = epoll_wait(epoll, events, EVENTS, TIMEOUT_MS);
        if (ready < 0 && errno == EINTR)
            continue;
        if (ready <= 0)
            errno = ready ? errno : ETIMEDOUT, fail("no answer");
        for (int n = 0; n < ready; n++) {
            struct peer *peer = events[n].data.ptr;
            if (events[n].events & ~EPOLLOUT)
                for (uint64_t before = received - 1; before != received;)
                    before = received, receive_some(peer);
            send_some(peer);
        }
    }
    fflush(first_answers), fflush(latencies);
}

static FILE *opened(const char *directory, const char *name, const char *mode)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    FILE *file = fopen(path, mode);
    if (file == NULL)
        fail(path);
    return file;
}

int main(int argc, char **argv)
{
    if (argc != 5 && argc != 8) {
        fprintf(stderr, "usage: load PORT CONNECTIONS DEPTH DIRECTORY [AT FIRST STEP]\n");
        return 2;
    }
    int connections = atoi(argv[2]), epoll = epoll_create1(0);
    depth = atoi(argv[3]);
    first_answers = opened(argv[4], "answers", "wb"), latencies = opened(argv[4], "latencies", "wb");
    if (argc == 8)
        patch_at = atol(argv[5]), patch_first = strtoull(argv[6], NULL, 10), patch_step = strtoull(argv[7], NULL, 10);
    struct peer *peers = connected(atoi(argv[1]), connections, epoll, opened(argv[4], "frames", "rb"));
    printf("connected\n"), fflush(stdout);
    for (uint64_t count; scanf("%" SCNu64, &count) == 1;) {
        double begun_s = cpu_s();
        run(peers, connections, epoll, count);
        printf("%" PRIu64 " %.6f\n", received, cpu_s() - begun_s), fflush(stdout);
    }
    return 0;
}
