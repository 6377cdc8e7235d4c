/* Puts load on a broker through librdkafka, or (for tiny requests) through plain sockets.
 *
 *   load produce  BOOTSTRAP TOPIC PARTITIONS RECORD_BYTES BATCH_BYTES TOTAL_BYTES ACKS
 *   load consume  BOOTSTRAP TOPIC PARTITIONS MESSAGES FETCH_BYTES
 *   load latency  BOOTSTRAP TOPIC RECORDS_PER_S SECONDS RECORD_BYTES ACKS LINGER_MS BATCH_BYTES
 *   load tiny     BOOTSTRAP TOPIC CONNECTIONS WINDOW SECONDS
 *
 * The environment variable LOAD_CLIENT_CONFIG contains further settings for librdkafka, one NAME=VALUE per line.
 *
 * Each mode connects, warms up, prints "ready", waits for a line on standard input, measures, and prints one JSON object.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <librdkafka/rdkafka.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static long failures;
static char first_failure[512];

static void die(const char *what, const char *why) {
    fprintf(stderr, "load: %s: %s\n", what, why);
    exit(1);
}

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static double cpu_s(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_utime.tv_sec + usage.ru_stime.tv_sec + (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

static void wait_for_go(void) {
    char line[16];
    puts("ready");
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) die("standard input", "closed before the start");
}

static void set(rd_kafka_conf_t *conf, const char *name, const char *value) {
    char why[256];
    if (rd_kafka_conf_set(conf, name, value, why, sizeof why) != RD_KAFKA_CONF_OK) die(name, why);
}

static void set_number(rd_kafka_conf_t *conf, const char *name, long value) {
    char text[32];
    snprintf(text, sizeof text, "%ld", value);
    set(conf, name, text);
}

static void delivered(rd_kafka_t *rk, const rd_kafka_message_t *message, void *opaque) {
    (void)rk;
    (void)opaque;
    if (message->err) {
        if (!failures++) snprintf(first_failure, sizeof first_failure, "%s", rd_kafka_err2str(message->err));
    } else if (message->_private) {
        *(volatile int *)message->_private = 1;
    }
}

static void set_from_environment(rd_kafka_conf_t *conf) {
    const char *given = getenv("LOAD_CLIENT_CONFIG");
    char *lines = given ? strdup(given) : NULL, *rest = lines, *line;
    while (rest && (line = strsep(&rest, "\n"))) {
        char *value = strchr(line, '=');
        if (!value) continue;
        *value++ = 0;
        set(conf, line, value);
    }
    free(lines);
}

static rd_kafka_t *new_client(rd_kafka_type_t type, rd_kafka_conf_t *conf, const char *bootstrap) {
    char why[256];
    set(conf, "bootstrap.servers", bootstrap);
    set(conf, "broker.address.family", "v4");
    set_from_environment(conf);
    rd_kafka_t *rk = rd_kafka_new(type, conf, why, sizeof why);
    if (!rk) die("rd_kafka_new", why);
    return rk;
}

static rd_kafka_t *new_producer(const char *bootstrap, long batch_bytes, const char *acks, const char *linger_ms) {
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    set_number(conf, "batch.size", batch_bytes);
    set(conf, "batch.num.messages", "1000000");
    set(conf, "queue.buffering.max.messages", "2000000");
    set(conf, "queue.buffering.max.kbytes", "524288");
    set(conf, "linger.ms", linger_ms);
    set(conf, "acks", acks);
    set(conf, "enable.idempotence", "false");
    set(conf, "max.in.flight", "5");
    set(conf, "socket.nagle.disable", "true");
    rd_kafka_conf_set_dr_msg_cb(conf, delivered);
    return new_client(RD_KAFKA_PRODUCER, conf, bootstrap);
}

static rd_kafka_topic_t *new_topic(rd_kafka_t *rk, const char *name) {
    rd_kafka_topic_t *topic = rd_kafka_topic_new(rk, name, NULL);
    if (!topic) die(name, rd_kafka_err2str(rd_kafka_last_error()));
    return topic;
}

/* Write one record to each partition, so that the connection, the metadata and the log's first page exist. */
static void warm_up(rd_kafka_t *rk, rd_kafka_topic_t *topic, int partitions, void *payload, size_t size) {
    for (int partition = 0; partition < partitions; partition++) {
        volatile int done = 0;
        int64_t deadline = now_ns() + 15000000000LL;
        if (rd_kafka_produce(topic, partition, 0, payload, size, NULL, 0, (void *)&done))
            die("produce", rd_kafka_err2str(rd_kafka_last_error()));
        while (!done && !failures) {
            if (now_ns() > deadline) die("warming up", "no acknowledgement within 15 s");
            rd_kafka_poll(rk, 10);
        }
        if (failures) die("warming up", first_failure);
    }
}

static int produce(char **argument) {
    int partitions = atoi(argument[2]);
    size_t record_bytes = strtoul(argument[3], NULL, 10);
    long total = strtol(argument[5], NULL, 10) / record_bytes;
    char *payload = malloc(record_bytes);
    for (size_t i = 0; i < record_bytes; i++) payload[i] = 'a' + (i * 31 + i / 7) % 26;
    rd_kafka_t *rk = new_producer(argument[0], atol(argument[4]), argument[6], "5");
    rd_kafka_topic_t *topic = new_topic(rk, argument[1]);
    warm_up(rk, topic, partitions, payload, record_bytes);
    wait_for_go();
    double cpu = cpu_s();
    int64_t began = now_ns();
    for (long i = 0; i < total; i++) {
        int partition = (int)(i % partitions);
        while (rd_kafka_produce(topic, partition, 0, payload, record_bytes, NULL, 0, NULL)) {
            if (rd_kafka_last_error() != RD_KAFKA_RESP_ERR__QUEUE_FULL)
                die("produce", rd_kafka_err2str(rd_kafka_last_error()));
            rd_kafka_poll(rk, 5);
        }
        if (i % 1024 == 0) rd_kafka_poll(rk, 0);
    }
    while (rd_kafka_outq_len(rk) > 0) rd_kafka_poll(rk, 5);
    double seconds = (now_ns() - began) / 1e9;
    printf("{\"messages\": %ld, \"bytes\": %ld, \"seconds\": %.6f, \"client_cpu_s\": %.6f, \"failures\": %ld}\n", total,
           total * (long)record_bytes, seconds, cpu_s() - cpu, failures);
    return failures != 0;
}

static rd_kafka_t *new_consumer(const char *bootstrap, long fetch_bytes) {
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    set_number(conf, "fetch.message.max.bytes", fetch_bytes);
    set(conf, "fetch.wait.max.ms", "500");
    set(conf, "queued.min.messages", "1000000");
    set(conf, "queued.max.messages.kbytes", "262144");
    set(conf, "check.crcs", "false");
    return new_client(RD_KAFKA_CONSUMER, conf, bootstrap);
}

static rd_kafka_queue_t *consume_all(rd_kafka_t *rk, rd_kafka_topic_t *topic, int partitions, int64_t offset) {
    rd_kafka_queue_t *queue = rd_kafka_queue_new(rk);
    for (int partition = 0; partition < partitions; partition++)
        if (rd_kafka_consume_start_queue(topic, partition, offset, queue))
            die("consume", rd_kafka_err2str(rd_kafka_last_error()));
    return queue;
}

static int consume(char **argument) {
    static rd_kafka_message_t *messages[10000];
    int partitions = atoi(argument[2]);
    long total = atol(argument[3]), count = 0, bytes = 0;
    rd_kafka_t *rk = new_consumer(argument[0], atol(argument[4]));
    rd_kafka_topic_t *topic = new_topic(rk, argument[1]);
    const struct rd_kafka_metadata *metadata;
    rd_kafka_resp_err_t error = rd_kafka_metadata(rk, 0, topic, &metadata, 15000);
    if (error) die("metadata", rd_kafka_err2str(error));
    rd_kafka_metadata_destroy(metadata);
    wait_for_go();
    double cpu = cpu_s();
    int64_t deadline = now_ns() + 60000000000LL, first = 0;
    long first_bytes = 0;
    rd_kafka_queue_t *queue = consume_all(rk, topic, partitions, RD_KAFKA_OFFSET_BEGINNING);
    while (count < total) {
        /* If fewer messages arrive than were requested, librdkafka returns them only after the timeout. */
        long wanted = !first ? 1 : total - count < 10000 ? total - count : 10000;
        ssize_t got = rd_kafka_consume_batch_queue(queue, 1000, messages, wanted);
        for (ssize_t i = 0; i < got; i++) {
            if (!messages[i]->err) {
                count++;
                bytes += messages[i]->len;
            } else if (messages[i]->err != RD_KAFKA_RESP_ERR__PARTITION_EOF && !failures++) {
                snprintf(first_failure, sizeof first_failure, "%s", rd_kafka_message_errstr(messages[i]));
            }
            rd_kafka_message_destroy(messages[i]);
        }
        if (!first && count) first = now_ns(), first_bytes = bytes;
        if (failures) die("consuming", first_failure);
        if (now_ns() > deadline) die("consuming", "not all records within 60 s");
    }
    double seconds = (now_ns() - first) / 1e9;
    printf("{\"messages\": %ld, \"bytes\": %ld, \"timed_bytes\": %ld, \"seconds\": %.6f, \"client_cpu_s\": %.6f}\n", count,
           bytes, bytes - first_bytes, seconds, cpu_s() - cpu);
    return 0;
}

struct latency_reader {
    rd_kafka_t *rk;
    rd_kafka_queue_t *queue;
    size_t record_bytes;
    long total, count;
    int64_t began_ns;
    int64_t *taken_ns;
};

static void *read_latencies(void *opaque) {
    struct latency_reader *reader = opaque;
    while (reader->count < reader->total) {
        rd_kafka_message_t *message = rd_kafka_consume_queue(reader->queue, 10000);
        if (!message) break;
        if (!message->err && message->len == reader->record_bytes) {
            int64_t sent;
            memcpy(&sent, message->payload, sizeof sent);
            if (sent >= reader->began_ns) reader->taken_ns[reader->count++] = now_ns() - sent;
        }
        rd_kafka_message_destroy(message);
    }
    return NULL;
}

static int by_size(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static int latency(char **argument) {
    long rate = atol(argument[2]), total = rate * atol(argument[3]);
    size_t record_bytes = strtoul(argument[4], NULL, 10);
    char *payload = calloc(1, record_bytes);
    rd_kafka_t *producer = new_producer(argument[0], atol(argument[7]), argument[5], argument[6]);
    rd_kafka_topic_t *to = new_topic(producer, argument[1]);
    struct latency_reader reader = {new_consumer(argument[0], 1048576), NULL, record_bytes, total, 0, 0,
                                    malloc(total * sizeof(int64_t))};
    rd_kafka_topic_t *from = new_topic(reader.rk, argument[1]);
    reader.queue = consume_all(reader.rk, from, 1, RD_KAFKA_OFFSET_BEGINNING);
    warm_up(producer, to, 1, payload, record_bytes);
    rd_kafka_message_t *first = rd_kafka_consume_queue(reader.queue, 15000);
    if (!first) die("warming up", "no record within 15 s");
    if (first->err) die("warming up", rd_kafka_message_errstr(first));
    rd_kafka_message_destroy(first);
    wait_for_go();
    double cpu = cpu_s();
    int64_t began = reader.began_ns = now_ns();
    pthread_t thread;
    pthread_create(&thread, NULL, read_latencies, &reader);
    for (long i = 0; i < total; i++) {
        int64_t due = began + i * 1000000000LL / rate, wait = due - now_ns();
        if (wait > 0) {
            struct timespec pause = {wait / 1000000000, wait % 1000000000};
            nanosleep(&pause, NULL);
        }
        int64_t stamp = now_ns();
        memcpy(payload, &stamp, sizeof stamp);
        if (rd_kafka_produce(to, 0, RD_KAFKA_MSG_F_COPY, payload, record_bytes, NULL, 0, NULL))
            die("produce", rd_kafka_err2str(rd_kafka_last_error()));
        rd_kafka_poll(producer, 0);
    }
    rd_kafka_flush(producer, 10000);
    pthread_join(thread, NULL);
    if (failures) die("producing", first_failure);
    if (reader.count < total) die("latency", "not all records came back");
    qsort(reader.taken_ns, total, sizeof(int64_t), by_size);
#define QUANTILE_US(q) (reader.taken_ns[(long)((total - 1) * (q))] / 1e3)
    printf("{\"messages\": %ld, \"seconds\": %.6f, \"client_cpu_s\": %.6f, \"p50_us\": %.1f, \"p90_us\": %.1f, "
           "\"p99_us\": %.1f, \"p999_us\": %.1f, \"max_us\": %.1f}\n",
           total, (now_ns() - began) / 1e9, cpu_s() - cpu, QUANTILE_US(0.5), QUANTILE_US(0.9), QUANTILE_US(0.99),
           QUANTILE_US(0.999), QUANTILE_US(1.0));
    return 0;
}

/* --- tiny requests: one small batch each, pipelined on plain sockets --- */

static unsigned char *put(unsigned char *to, uint64_t value, int bytes) {
    for (int i = bytes - 1; i >= 0; i--, value >>= 8) to[i] = (unsigned char)value;
    return to + bytes;
}

static uint32_t crc32c(const unsigned char *data, size_t size) {
    uint32_t crc = 0xffffffff;
    while (size--) {
        crc ^= *data++;
        for (int bit = 0; bit < 8; bit++) crc = crc & 1 ? (crc >> 1) ^ 0x82f63b78 : crc >> 1;
    }
    return ~crc;
}

/* A record batch (magic 2) of about 200 bytes with one record. */
static size_t small_batch(unsigned char *batch) {
    enum { VALUE_BYTES = 128 };
    unsigned char *p = batch + 61;
    size_t record_bytes = 1 + 1 + 1 + 1 + 2 + VALUE_BYTES + 1;
    *p++ = (unsigned char)((record_bytes << 1 & 0x7f) | 0x80); /* zigzag varint, two bytes */
    *p++ = (unsigned char)(record_bytes << 1 >> 7);
    *p++ = 0; /* attributes */
    *p++ = 0; /* timestamp delta */
    *p++ = 0; /* offset delta */
    *p++ = 1; /* null key */
    *p++ = (unsigned char)((VALUE_BYTES << 1 & 0x7f) | 0x80);
    *p++ = (unsigned char)(VALUE_BYTES << 1 >> 7);
    memset(p, 'v', VALUE_BYTES);
    p += VALUE_BYTES;
    *p++ = 0; /* headers */
    size_t size = p - batch;
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    uint64_t now_ms = (uint64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
    p = put(batch, 0, 8);             /* base offset */
    p = put(p, size - 12, 4);         /* length */
    p = put(p, (uint64_t)-1, 4);      /* leader epoch */
    p = put(p, 2, 1);                 /* magic */
    unsigned char *crc = p;
    p = put(p + 4, 0, 2);             /* attributes */
    p = put(p, 0, 4);                 /* last offset delta */
    p = put(p, now_ms, 8);            /* base timestamp */
    p = put(p, now_ms, 8);            /* max timestamp */
    p = put(p, (uint64_t)-1, 8);      /* producer id */
    p = put(p, (uint64_t)-1, 2);      /* producer epoch */
    p = put(p, (uint64_t)-1, 4);      /* base sequence */
    put(p, 1, 4);                     /* records */
    put(crc, crc32c(crc + 4, size - 21), 4);
    return size;
}

/* Produce version 7 with one batch for partition 0. */
static size_t produce_request(unsigned char *request, const char *topic) {
    unsigned char batch[512];
    size_t batch_bytes = small_batch(batch), name_bytes = strlen(topic);
    unsigned char *p = request + 4;
    p = put(p, 0, 2); /* Produce */
    p = put(p, 7, 2);
    p = put(p, 0, 4); /* correlation id, unused: responses arrive in order */
    p = put(p, 4, 2);
    memcpy(p, "tiny", 4);
    p = put(p + 4, (uint64_t)-1, 2); /* transactional id */
    p = put(p, 1, 2);                /* acks */
    p = put(p, 30000, 4);
    p = put(p, 1, 4);
    p = put(p, name_bytes, 2);
    memcpy(p, topic, name_bytes);
    p = put(p + name_bytes, 1, 4);
    p = put(p, 0, 4);
    p = put(p, batch_bytes, 4);
    memcpy(p, batch, batch_bytes);
    p += batch_bytes;
    put(request, p - request - 4, 4);
    return p - request;
}

static int connect_to(const char *bootstrap) {
    char host[256];
    snprintf(host, sizeof host, "%s", bootstrap);
    char *port = strrchr(host, ':');
    if (!port) die("bootstrap", "host:port is expected");
    *port++ = 0;
    struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM}, *found;
    if (getaddrinfo(host, port, &hints, &found)) die(bootstrap, "not found");
    int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    if (connect(fd, found->ai_addr, found->ai_addrlen)) die(bootstrap, strerror(errno));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    freeaddrinfo(found);
    return fd;
}

static void send_all(int fd, const unsigned char *data, size_t size) {
    while (size) {
        ssize_t sent = send(fd, data, size, 0);
        if (sent <= 0) die("send", strerror(errno));
        data += sent;
        size -= sent;
    }
}

struct tiny_connection {
    int fd;
    size_t got; /* bytes of the current response that have been read */
    long in_flight;
};

/* Count the responses in the data read; all have the same length and must contain error code 0. */
static long answers(struct tiny_connection *connection, const unsigned char *data, size_t size, size_t answer_bytes,
                    size_t error_at) {
    long count = 0;
    for (size_t i = 0; i < size; i++) {
        if ((connection->got == error_at || connection->got == error_at + 1) && data[i])
            die("tiny produce", "the broker answered with an error");
        if (++connection->got == answer_bytes) connection->got = 0, count++;
    }
    return count;
}

static int tiny(char **argument) {
    int connection_count = atoi(argument[2]);
    long window = atol(argument[3]), count = 0, topic_bytes = strlen(argument[1]);
    double limit_s = atof(argument[4]);
    static unsigned char request[1024], data[1 << 16];
    size_t request_bytes = produce_request(request, argument[1]);
    size_t error_at = 4 + 4 + 4 + 2 + topic_bytes + 4 + 4, answer_bytes = error_at + 2 + 8 + 8 + 8 + 4;
    unsigned char *requests = malloc(request_bytes * window);
    for (long i = 0; i < window; i++) memcpy(requests + i * request_bytes, request, request_bytes);
    struct tiny_connection *connections = calloc(connection_count, sizeof *connections);
    struct pollfd *polled = calloc(connection_count, sizeof *polled);
    for (int i = 0; i < connection_count; i++) {
        polled[i].fd = connections[i].fd = connect_to(argument[0]);
        polled[i].events = POLLIN;
        send_all(connections[i].fd, request, request_bytes);
        for (long got = 0; !got;) {
            ssize_t size = recv(connections[i].fd, data, sizeof data, 0);
            if (size <= 0) die("recv", size ? strerror(errno) : "the broker closed the connection");
            got = answers(&connections[i], data, size, answer_bytes, error_at);
        }
    }
    wait_for_go();
    double cpu = cpu_s();
    int64_t began = now_ns(), ends = began + (int64_t)(limit_s * 1e9);
    for (int i = 0; i < connection_count; i++) {
        send_all(connections[i].fd, requests, request_bytes * window);
        connections[i].in_flight = window;
    }
    long in_flight = window * connection_count;
    while (in_flight) {
        if (poll(polled, connection_count, 5000) <= 0) die("tiny produce", "no answer within 5 s");
        int going = now_ns() < ends;
        for (int i = 0; i < connection_count; i++) {
            if (!polled[i].revents) continue;
            ssize_t size = recv(connections[i].fd, data, sizeof data, 0);
            if (size <= 0) die("recv", size ? strerror(errno) : "the broker closed the connection");
            long done = answers(&connections[i], data, size, answer_bytes, error_at);
            count += done;
            in_flight -= done;
            if (going && done) {
                send_all(connections[i].fd, requests, request_bytes * done);
                in_flight += done;
            }
        }
    }
    printf("{\"messages\": %ld, \"seconds\": %.6f, \"client_cpu_s\": %.6f}\n", count, (now_ns() - began) / 1e9,
           cpu_s() - cpu);
    return 0;
}

int main(int count, char **argument) {
    struct {
        const char *name;
        int arguments;
        int (*run)(char **);
    } modes[] = {{"produce", 7, produce}, {"consume", 5, consume}, {"latency", 8, latency}, {"tiny", 5, tiny}};
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
        if (count == modes[i].arguments + 2 && !strcmp(argument[1], modes[i].name)) {
            /* The process exits here: destroying clients would only take seconds after the report. */
            int status = modes[i].run(argument + 2);
            fflush(stdout);
            _exit(status);
        }
    die("arguments", "see the head of load.c");
}
