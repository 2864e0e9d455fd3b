/* A closed-loop HTTP load: CONNS keep-alive connections on loopback, each with one POST in flight, one thread, epoll.
 *
 *   load PORT CONNS WARM_SECONDS SECONDS BODY_BYTES TOKENS_FILE [PATH_PREFIX]
 *
 * TOKENS_FILE holds one token a line. At the end nothing new is sent, but every answer is waited for, so that the number
 * of 200s can be compared with the records in Kafka. Prints "begin" and "end" around the measured window, for whoever
 * reads CPU times, then one line of JSON; latencies in milliseconds. Exit code 1 when a connection could not be made. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { MAX_TOKENS = 4096, TOKEN = 128, MAX_LATENCIES = 1 << 22, DRAIN_SECONDS = 15 };

struct connection {
    int fd;
    bool busy;
    char *request;
    size_t length, written;
    char answer[8192];
    size_t received;
    double since;
};

static char tokens[MAX_TOKENS][TOKEN];
static int token_count;
static uint64_t number, ok, other, broken, measured, random_state = 0x9e3779b97f4a7c15ull;
static float *latencies;
static const char *prefix = "/webhooks/";
static size_t body_bytes;
static int poller;

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void compose(struct connection *c) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    size_t head = (size_t)sprintf(c->request,
        "POST %s%s HTTP/1.1\r\nHost: room.example\r\nUser-Agent: GitHub-Hookshot/f00ba12\r\nAccept: */*\r\n"
        "Content-Type: application/json\r\nX-GitHub-Event: workflow_run\r\n"
        "X-GitHub-Delivery: 0e8b1a40-0000-11ef-8000-%012llx\r\n"
        "X-Hub-Signature-256: sha256=%064llx\r\nContent-Length: %zu\r\n\r\n",
        prefix, tokens[random_state % (uint64_t)token_count], (unsigned long long)number, (unsigned long long)number, body_bytes);
    char *body = c->request + head;
    size_t used = (size_t)sprintf(body, "{\"n\":%012llu,\"action\":\"completed\",\"log\":\"", (unsigned long long)number);
    memset(body + used, 'l', body_bytes - used);
    memcpy(body + body_bytes - 2, "\"}", 2);
    number++;
    c->length = head + body_bytes;
    c->written = c->received = 0;
}

static void watch(struct connection *c, uint32_t events, int operation) {
    struct epoll_event event = {.events = events, .data.ptr = c};
    epoll_ctl(poller, operation, c->fd, &event);
}

static bool dial(struct connection *c, int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int one = 1;
    c->fd = socket(AF_INET, SOCK_STREAM, 0);
    c->busy = false;
    if (c->fd < 0 || connect(c->fd, (struct sockaddr *)&address, sizeof address) != 0) return false;
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    watch(c, EPOLLIN, EPOLL_CTL_ADD);
    return true;
}

static void give_up(struct connection *c) {
    broken += c->busy;
    c->busy = false;
    close(c->fd);
    c->fd = -1;
}

static void write_some(struct connection *c) {
    while (c->written < c->length) {
        ssize_t n = send(c->fd, c->request + c->written, c->length - c->written, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0 && errno == EAGAIN) { watch(c, EPOLLIN | EPOLLOUT, EPOLL_CTL_MOD); return; }
        if (n <= 0) { give_up(c); return; }
        c->written += (size_t)n;
    }
}

/* Whether a whole answer is here. */
static bool read_some(struct connection *c) {
    ssize_t n = recv(c->fd, c->answer + c->received, sizeof c->answer - 1 - c->received, MSG_DONTWAIT);
    if (n < 0 && errno == EAGAIN) return false;
    if (n <= 0) { give_up(c); return false; }
    c->received += (size_t)n;
    c->answer[c->received] = 0;
    char *end = strstr(c->answer, "\r\n\r\n");
    char *size = end ? strcasestr(c->answer, "\r\ncontent-length:") : NULL;
    return size && c->received >= (size_t)(end + 4 - c->answer) + strtoul(size + 17, NULL, 10);
}

static int ascending(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static double quantile(double q) { return measured ? latencies[(size_t)((double)(measured - 1) * q)] : 0; }

int main(int argc, char **argv) {
    if (argc < 7) { fputs("usage: load PORT CONNS WARM_SECONDS SECONDS BODY_BYTES TOKENS_FILE [PATH_PREFIX]\n", stderr); return 2; }
    int port = atoi(argv[1]), count = atoi(argv[2]);
    double warm = atof(argv[3]), duration = atof(argv[4]);
    body_bytes = strtoul(argv[5], NULL, 10);
    if (argc > 7) prefix = argv[7];
    FILE *file = fopen(argv[6], "r");
    while (file && token_count < MAX_TOKENS && fscanf(file, "%127s", tokens[token_count]) == 1) token_count++;
    if (!token_count || count < 1 || count > 4096 || body_bytes < 64 || body_bytes > 1 << 20) { fputs("bad arguments\n", stderr); return 2; }
    if (file) fclose(file);
    latencies = malloc(MAX_LATENCIES * sizeof *latencies);
    struct connection *all = calloc((size_t)count, sizeof *all);
    poller = epoll_create1(0);
    double begin = seconds() + warm, stop = begin + duration;
    bool begun = false, ended = false;
    int busy = 0;
    for (int i = 0; i < count; i++) {
        all[i].request = malloc(body_bytes + 1024);
        if (!dial(&all[i], port)) { perror("connect"); return 1; }
    }
    struct epoll_event events[256];
    for (double now = seconds(); now < stop + DRAIN_SECONDS; now = seconds()) {
        if (!begun && now >= begin) { begun = true; puts("begin"); fflush(stdout); }
        if (!ended && now >= stop) { ended = true; puts("end"); fflush(stdout); }
        busy = 0;
        for (int i = 0; i < count; i++) {
            struct connection *c = &all[i];
            if (c->fd < 0 && !ended) dial(c, port);
            if (c->fd >= 0 && !c->busy && !ended) { compose(c); c->busy = true; c->since = now; write_some(c); }
            busy += c->busy;
        }
        if (ended && !busy) break;
        int n = epoll_wait(poller, events, 256, 20);
        now = seconds();
        for (int i = 0; i < n; i++) {
            struct connection *c = events[i].data.ptr;
            if (c->fd >= 0 && events[i].events & EPOLLOUT) { watch(c, EPOLLIN, EPOLL_CTL_MOD); write_some(c); }
            if (c->fd < 0 || !(events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) || !read_some(c)) continue;
            bool success = !strncmp(c->answer + 9, "200", 3);
            c->busy = false;
            ok += success;
            other += !success;
            if (success && begun && !ended && measured < MAX_LATENCIES) latencies[measured++] = (float)((now - c->since) * 1e3);
            if (strcasestr(c->answer, "\r\nconnection: close")) give_up(c);
            else if (!ended && now < stop) { compose(c); c->busy = true; c->since = now; write_some(c); }
        }
    }
    qsort(latencies, measured, sizeof *latencies, ascending);
    printf("{\"per_second\":%.1f,\"p50\":%.2f,\"p99\":%.2f,\"max\":%.2f,\"ok\":%llu,\"other\":%llu,\"broken\":%llu,\"unanswered\":%d}\n",
        (double)measured / duration, quantile(.5), quantile(.99), quantile(1), (unsigned long long)ok, (unsigned long long)other,
        (unsigned long long)broken, busy);
    return 0;
}
