/* The minimal server that accepts produced batches, with which a broker's CPU time is compared.
 *
 *   server LOG CHECKED
 *
 * It listens on a free port of 127.0.0.1 and prints it.  It implements as much of the protocol as a producer needs
 * (ApiVersions 0, Metadata 1, Produce 3 to 7; one broker, any topic, partition 0), and makes the same system calls as
 * the broker: epoll_wait, one recv into a buffer shared by all connections, one pwrite for each batch, and one send for
 * all responses to the requests of that read.  If a frame does not fit into the buffer, the rest is received directly
 * into its place.  Base offset and leader epoch are written into each batch; if CHECKED is 1, its CRC-32C is verified.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <nmmintrin.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

enum { CONNECTIONS_MAX = 1024, SCRATCH_BYTES = 1 << 18, STUB_BYTES = 8192, FRAME_BYTES_MAX = 100 << 20 };
enum { PRODUCE = 0, METADATA = 3, API_VERSIONS = 18 };
enum { CORRUPT = 2, UNSUPPORTED_VERSION = 35 };
enum { HEADER_BYTES = 61, EPOCH_AT = 12, MAGIC_AT = 16, CRC_AT = 17, CHECKED_AT = 21, LAST_DELTA_AT = 23 };

struct connection {
    unsigned char stub[STUB_BYTES]; /* the start of a frame, copied in front of the data of the next read */
    size_t stub_bytes;
    unsigned char *frame; /* a frame longer than the buffer; its memory is reused for the next one */
    size_t frame_room, filled;
    size_t frame_bytes; /* 0 if there is no such frame */
};

static unsigned char scratch[SCRATCH_BYTES], answers[SCRATCH_BYTES];
static struct connection *connections[CONNECTIONS_MAX];
static int log_fd, is_checked, port;
static uint64_t next_offset, log_end;

static void die(const char *what, const char *why) {
    fprintf(stderr, "server: %s: %s\n", what, why);
    exit(1);
}

/* --- CRC-32C: three streams at once, because the instruction takes three cycles and one can start in each cycle --- */

enum { LONG = 4096, SHORT = 256 };
static uint32_t after_long[4][256], after_short[4][256];

/* Table of the CRC after appending a number of zero bytes, for each value of each byte of the CRC. */
static void make_shift(uint32_t table[4][256], size_t zeros) {
    for (int byte = 0; byte < 4; byte++)
        for (uint32_t value = 0; value < 256; value++) {
            uint64_t crc = value << byte * 8;
            for (size_t i = 0; i < zeros; i += 8) crc = _mm_crc32_u64(crc, 0);
            table[byte][value] = (uint32_t)crc;
        }
}

static uint64_t shift(uint32_t table[4][256], uint64_t crc) {
    return table[0][crc & 255] ^ table[1][crc >> 8 & 255] ^ table[2][crc >> 16 & 255] ^ table[3][crc >> 24 & 255];
}

static uint64_t word(const unsigned char *data) {
    uint64_t value;
    memcpy(&value, data, sizeof value);
    return value;
}

static const unsigned char *three_streams(const unsigned char *data, const unsigned char *end, uint64_t *crc,
                                          uint32_t table[4][256], ptrdiff_t bytes) {
    for (; end - data >= 3 * bytes; data += 3 * bytes) {
        uint64_t a = *crc, b = 0, c = 0;
        for (ptrdiff_t i = 0; i < bytes; i += 8) {
            a = _mm_crc32_u64(a, word(data + i));
            b = _mm_crc32_u64(b, word(data + bytes + i));
            c = _mm_crc32_u64(c, word(data + 2 * bytes + i));
        }
        *crc = shift(table, shift(table, a) ^ b) ^ c;
    }
    return data;
}

static uint32_t crc32c(const unsigned char *data, size_t size) {
    const unsigned char *end = data + size;
    uint64_t crc = 0xffffffff;
    data = three_streams(data, end, &crc, after_long, LONG);
    data = three_streams(data, end, &crc, after_short, SHORT);
    for (; end - data >= 8; data += 8) crc = _mm_crc32_u64(crc, word(data));
    for (; data < end; data++) crc = _mm_crc32_u8((uint32_t)crc, *data);
    return ~(uint32_t)crc;
}

/* --- numbers and strings --- */

struct reader {
    unsigned char *at, *end;
};

static unsigned char *take(struct reader *from, size_t size) {
    if ((size_t)(from->end - from->at) < size) die("request", "ends too early");
    return (from->at += size) - size;
}

static uint64_t number(const unsigned char *data, int bytes) {
    uint64_t value = 0;
    while (bytes--) value = value << 8 | *data++;
    return value;
}

static uint64_t take_number(struct reader *from, int bytes) { return number(take(from, bytes), bytes); }

/* Read a string that is preceded by its length; null is returned as empty. */
static size_t take_string(struct reader *from, unsigned char **text) {
    int16_t size = (int16_t)take_number(from, 2);
    *text = take(from, size < 0 ? 0 : size);
    return size < 0 ? 0 : size;
}

static unsigned char *put(unsigned char *to, uint64_t value, int bytes) {
    for (int i = bytes - 1; i >= 0; i--, value >>= 8) to[i] = (unsigned char)value;
    return to + bytes;
}

static unsigned char *put_string(unsigned char *to, const void *text, size_t size) {
    to = put(to, size, 2);
    memcpy(to, text, size);
    return to + size;
}

/* --- requests: each function reads what follows the header, and writes the response --- */

static int append(unsigned char *batch, size_t size) {
    if (size < HEADER_BYTES || batch[MAGIC_AT] != 2 || number(batch + 8, 4) != size - 12) die("Produce", "not a batch");
    if (is_checked && crc32c(batch + CHECKED_AT, size - CHECKED_AT) != number(batch + CRC_AT, 4)) return CORRUPT;
    put(batch, next_offset, 8);
    put(batch + EPOCH_AT, 0, 4);
    if (pwrite(log_fd, batch, size, log_end) != (ssize_t)size) die("pwrite", strerror(errno));
    next_offset += number(batch + LAST_DELTA_AT, 4) + 1;
    log_end += size;
    return 0;
}

static unsigned char *produce(struct reader *request, int version, unsigned char *to) {
    unsigned char *name;
    take_string(request, &name); /* transactional id */
    take(request, 2 + 4);        /* acks, timeout */
    if (take_number(request, 4) != 1) die("Produce", "not one topic");
    size_t name_bytes = take_string(request, &name);
    if (take_number(request, 4) != 1 || take_number(request, 4) != 0) die("Produce", "not partition 0 alone");
    size_t size = take_number(request, 4);
    uint64_t base_offset = next_offset;
    int error = append(take(request, size), size);
    to = put_string(put(to, 1, 4), name, name_bytes);
    to = put(put(put(to, 1, 4), 0, 4), error, 2);
    to = put(put(to, base_offset, 8), (uint64_t)-1, 8); /* log append time */
    if (version >= 5) to = put(to, 0, 8);               /* log start offset */
    return put(to, 0, 4);                               /* throttle time */
}

static unsigned char *metadata(struct reader *request, int version, unsigned char *to) {
    (void)version;
    int32_t count = (int32_t)take_number(request, 4);
    to = put(put(to, 1, 4), 0, 4); /* one broker, 0 */
    to = put(put_string(to, "127.0.0.1", 9), port, 4);
    to = put(put(to, (uint64_t)-1, 2), 0, 4); /* rack, controller */
    to = put(to, count < 0 ? 0 : count, 4);
    while (count-- > 0) {
        unsigned char *name;
        size_t name_bytes = take_string(request, &name);
        if (name_bytes > 255 || count > 100) die("Metadata", "more than is wanted here");
        to = put(put_string(put(to, 0, 2), name, name_bytes), 0, 1);
        to = put(put(put(put(to, 1, 4), 0, 2), 0, 4), 0, 4); /* one partition: no error, 0, leader 0 */
        to = put(put(put(put(to, 1, 4), 0, 4), 1, 4), 0, 4); /* its replicas, its in-sync replicas */
    }
    return to;
}

static unsigned char *api_versions(struct reader *request, int version, unsigned char *to) {
    /* Fetch is not served, but clients infer from its version that the broker supports record batches. */
    static const int known[][3] = {{PRODUCE, 3, 7}, {1, 4, 4}, {METADATA, 1, 1}, {API_VERSIONS, 0, 0}};
    (void)request;
    to = put(to, version ? UNSUPPORTED_VERSION : 0, 2);
    to = put(to, sizeof known / sizeof *known, 4);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        for (int j = 0; j < 3; j++) to = put(to, known[i][j], 2);
    return to;
}

static unsigned char *answer(unsigned char *data, size_t size, unsigned char *to) {
    struct reader request = {data, data + size};
    int key = (int)take_number(&request, 2), version = (int)take_number(&request, 2);
    unsigned char *body = put(to + 4, take_number(&request, 4), 4), *client;
    take_string(&request, &client);
    if (key == PRODUCE && version >= 3 && version <= 7) body = produce(&request, version, body);
    else if (key == METADATA && version == 1) body = metadata(&request, version, body);
    else if (key == API_VERSIONS) body = api_versions(&request, version, body);
    else die("request", "of an API or a version that was not offered");
    put(to, body - to - 4, 4);
    return body;
}

/* --- connections --- */

static void send_all(int fd, size_t size) {
    if (size && send(fd, answers, size, MSG_NOSIGNAL) != (ssize_t)size) die("send", "answers do not fit in the socket");
}

/* Respond to the complete frames; keep the rest. */
static unsigned char *handle(struct connection *from, unsigned char *data, size_t size, unsigned char *to) {
    while (size >= 4) {
        size_t bytes = number(data, 4) + 4;
        if (bytes > FRAME_BYTES_MAX) die("request", "too large");
        if (bytes > size) break;
        to = answer(data + 4, bytes - 4, to);
        data += bytes;
        size -= bytes;
        if (to - answers > SCRATCH_BYTES / 2) die("answers", "too many in one read");
    }
    if (size < STUB_BYTES) {
        memcpy(from->stub, data, from->stub_bytes = size);
        return to;
    }
    from->frame_bytes = number(data, 4) + 4;
    if (from->frame_room < from->frame_bytes) {
        from->frame = realloc(from->frame, from->frame_room = from->frame_bytes);
        if (!from->frame) die("realloc", strerror(errno));
    }
    memcpy(from->frame, data, from->filled = size);
    return to;
}

/* Return whether the connection is still open. */
static int read_frame(int fd, struct connection *from) {
    struct iovec parts[2] = {{from->frame + from->filled, from->frame_bytes - from->filled}, {scratch, SCRATCH_BYTES}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    ssize_t size = recvmsg(fd, &message, 0);
    if (size <= 0) return 0;
    from->filled += size;
    if (from->filled < from->frame_bytes) return 1;
    unsigned char *to = answer(from->frame + 4, from->frame_bytes - 4, answers);
    size_t behind = from->filled - from->frame_bytes;
    from->frame_bytes = 0;
    to = handle(from, scratch, behind, to);
    send_all(fd, to - answers);
    return 1;
}

static int read_some(int fd, struct connection *from) {
    if (from->frame_bytes) return read_frame(fd, from);
    size_t kept = from->stub_bytes;
    memcpy(scratch, from->stub, kept);
    ssize_t size = recv(fd, scratch + kept, SCRATCH_BYTES - kept, 0);
    if (size <= 0) return 0;
    unsigned char *to = handle(from, scratch, kept + size, answers);
    send_all(fd, to - answers);
    return 1;
}

static void watch(int epoll, int fd) {
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event)) die("epoll_ctl", strerror(errno));
}

static void accept_one(int epoll, int listener) {
    int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK), one = 1;
    if (fd < 0 || fd >= CONNECTIONS_MAX) die("accept", fd < 0 ? strerror(errno) : "too many connections");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    connections[fd] = calloc(1, sizeof **connections);
    watch(epoll, fd);
}

static void forget(int fd) {
    free(connections[fd]->frame);
    free(connections[fd]);
    close(fd);
}

static int listen_anywhere(void) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (bind(fd, (struct sockaddr *)&address, size) || listen(fd, 64)) die("listen", strerror(errno));
    getsockname(fd, (struct sockaddr *)&address, &size);
    port = ntohs(address.sin_port);
    return fd;
}

int main(int count, char **argument) {
    struct epoll_event events[64];
    if (count != 3) die("arguments", "see the head of server.c");
    log_fd = open(argument[1], O_WRONLY | O_CREAT, 0644);
    if (log_fd < 0) die(argument[1], strerror(errno));
    is_checked = atoi(argument[2]);
    make_shift(after_long, LONG);
    make_shift(after_short, SHORT);
    int listener = listen_anywhere(), epoll = epoll_create1(0);
    watch(epoll, listener);
    printf("%d\n", port);
    fflush(stdout);
    for (;;) {
        int ready = epoll_wait(epoll, events, 64, -1);
        if (ready < 0 && errno != EINTR) die("epoll_wait", strerror(errno));
        for (int i = 0; i < ready; i++) {
            int fd = events[i].data.fd;
            if (fd == listener) accept_one(epoll, listener);
            else if (!read_some(fd, connections[fd])) forget(fd);
        }
    }
}
