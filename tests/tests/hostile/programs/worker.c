/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A hostile worker. The daemon is started with this library as its `--device`; its constructor runs in the worker, before
 * CUDA would come up, and never returns. It speaks to the daemon over the worker's own sockets, whose numbers are in the
 * worker's command line. ATTACK names one of the functions below, and LINK_VERSION
 * is the version of the link. The structures are those of vhost-cuda/common/src: link.rs, exchange.rs and images.rs.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

enum { TO_CALL = 1, TO_MEMORY = 5, TO_CLOSE = 6, FROM_READY = 1, FROM_FAILED = 2, FROM_REPLY = 3 };
enum { OFFER = 1, LOOK_UP = 2, ALLOCATION = 3, ASK = 1, KEEP = 2 };

struct to_worker { uint32_t kind, flags; uint64_t id, tag; uint32_t payload, ins, outs, room; };
struct from_worker { uint32_t kind, status; uint64_t id; uint32_t payload, reserved; };
struct ready { int32_t version; uint32_t devices, link_version; char name[64]; };
struct offer { uint32_t what, device; uint64_t bytes; char handle[64]; };
struct question { uint32_t kind, reserved; char token[16]; struct offer offer; };
struct answer { uint32_t found, reserved; char token[16]; struct offer offer; };
struct image { uint32_t kind, reserved; uint64_t bytes; char digest[32]; };

static int link_fd, images_fd, exchange_fd;

static int number_of(const char *option)
{
    char line[16384];
    int fd = open("/proc/self/cmdline", O_RDONLY);
    ssize_t bytes = read(fd, line, sizeof line - 1);
    close(fd);
    for (char *word = line; bytes > 0 && word < line + bytes; word += strlen(word) + 1)
        if (!strcmp(word, option))
            return atoi(word + strlen(word) + 1);
    _exit(90);
}

static void hold(void)
{
    for (;;)
        pause();
}

static int send_all(int fd, const void *data, size_t bytes, int flags)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t sent = send(fd, (const char *)data + done, bytes - done, MSG_NOSIGNAL | flags);
        if (sent <= 0)
            return -1;
        done += sent;
    }
    return 0;
}

static int receive_all(int fd, void *data, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t got = read(fd, (char *)data + done, bytes - done);
        if (got <= 0)
            return -1;
        done += got;
    }
    return 0;
}

/* Sends bytes with a descriptor. */
static int send_with(int fd, const void *data, size_t bytes, int file, int flags)
{
    struct iovec part = {(void *)data, bytes};
    union { char bytes[CMSG_SPACE(sizeof(int))]; struct cmsghdr align; } control = {0};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    message.msg_control = control.bytes;
    message.msg_controllen = sizeof control.bytes;
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(head), &file, sizeof file);
    return sendmsg(fd, &message, MSG_NOSIGNAL | flags) == (ssize_t)bytes ? 0 : -1;
}

static void say(uint32_t kind, uint64_t id, const void *payload, uint32_t bytes)
{
    struct from_worker head = {kind, 0, id, bytes, 0};
    if (send_all(link_fd, &head, sizeof head, 0) || send_all(link_fd, payload, bytes, 0))
        hold();
}

static void greet(void)
{
    struct ready ready = {13000, 1, LINK_VERSION, "a hostile worker"};
    say(FROM_READY, 0, &ready, sizeof ready);
}

/* Reads frames until one of this kind; its head. */
static struct to_worker wait_for(uint32_t kind)
{
    struct to_worker head;
    static char rest[1 << 20];
    do {
        if (receive_all(link_fd, &head, sizeof head))
            hold();
        size_t bytes = head.payload + 16 * ((size_t)head.ins + head.outs);
        if (bytes > sizeof rest || receive_all(link_fd, rest, bytes))
            hold();
    } while (head.kind != kind);
    return head;
}

static void begin(void)
{
    greet();
    wait_for(TO_MEMORY);
}

static int offer(int file)
{
    struct question question = {OFFER, 0, {0}, {ALLOCATION, 0, 4096, {0}}};
    struct answer answer = {0};
    if (send_with(exchange_fd, &question, sizeof question, file, 0) ||
        receive_all(exchange_fd, &answer, sizeof answer))
        return -1;
    return answer.found;
}

/* The daemon is to keep the worker's own ends of its sockets, so that they never end. */
__attribute__((unused)) static void keep_sockets(void)
{
    struct image keep = {KEEP, 0, 4096, {0}};
    begin();
    offer(link_fd);
    offer(exchange_fd);
    offer(images_fd);
    for (int round = 0; round < 100; round++)
        send_with(images_fd, &keep, sizeof keep, link_fd, 0);
    hold();
}

/* A process that no signal to the worker reaches holds the sockets; the worker does not end by itself, or does. */
static void give_away(int end)
{
    begin();
    if (fork() == 0) {
        setsid();
        /* Ends by itself, should nobody end it. */
        alarm(40);
        hold();
    }
    if (end)
        _exit(0);
    hold();
}

__attribute__((unused)) static void give_sockets_away(void) { give_away(0); }
__attribute__((unused)) static void die_and_leave_sockets(void) { give_away(1); }

/* Answers requests that it has not read. */
__attribute__((unused)) static void answer_unread(void)
{
    begin();
    for (uint64_t id = 1;; id++) {
        say(FROM_REPLY, id, "", 0);
        usleep(1000);
    }
}

/* Answers requests without reading them, each after it was sent: 59 at a time, as the test sends them. */
__attribute__((unused)) static void answer_and_not_read(void)
{
    int waiting = 0;
    begin();
    for (uint64_t id = 0;;) {
        usleep(300000);
        ioctl(link_fd, FIONREAD, &waiting);
        for (int answer = 0; waiting > 0 && answer < 59; answer++)
            say(FROM_REPLY, ++id, "", 0);
    }
}

__attribute__((unused)) static void half_an_answer(void)
{
    struct from_worker head = {FROM_REPLY, 0, 1, 1000, 0};
    begin();
    send_all(link_fd, &head, 10, 0);
    hold();
}

__attribute__((unused)) static void oversized_answer(void)
{
    struct from_worker head = {FROM_REPLY, 0, 0, 1 << 30, 0};
    begin();
    head.id = wait_for(TO_CALL).id;
    send_all(link_fd, &head, sizeof head, 0);
    hold();
}

__attribute__((unused)) static void greet_again(void)
{
    begin();
    greet();
    hold();
}

/* Answers a request twice. */
__attribute__((unused)) static void answer_twice(void)
{
    begin();
    uint64_t id = wait_for(TO_CALL).id;
    say(FROM_REPLY, id, "12345678", 8);
    say(FROM_REPLY, id, "12345678", 8);
    hold();
}

/* Reads nothing after its greeting. */
__attribute__((unused)) static void read_nothing(void)
{
    greet();
    hold();
}

/* Floods both other sockets and reads no answer; then says half of something. */
__attribute__((unused)) static void flood(void)
{
    struct question question = {OFFER, 0, {0}, {ALLOCATION, 0, 4096, {0}}};
    struct image ask = {ASK, 0, 4096, {0}}, keep = {KEEP, 0, 1ull << 40, {0}};
    begin();
    for (int round = 0; round < 100000; round++) {
        int file = memfd_create("flood", 0);
        int full = send_with(exchange_fd, &question, sizeof question, file, MSG_DONTWAIT);
        full &= send_all(images_fd, &ask, sizeof ask, MSG_DONTWAIT);
        full &= send_with(images_fd, &keep, sizeof keep, file, MSG_DONTWAIT);
        close(file);
        if (full)
            break;
    }
    send_all(exchange_fd, &question, 5, MSG_DONTWAIT);
    send_all(images_fd, &keep, 5, MSG_DONTWAIT);
    hold();
}

__attribute__((unused)) static void never_ready(void) { hold(); }

__attribute__((unused)) static void die_at_once(void) { _exit(1); }

/* Says for ever why it fails, at length. */
__attribute__((unused)) static void fail_at_length(void)
{
    static char text[64 << 10];
    memset(text, '\n', sizeof text);
    say(FROM_FAILED, 0, text, sizeof text);
    _exit(1);
}

__attribute__((constructor)) static void take_over(void)
{
    signal(SIGTERM, SIG_IGN);
    link_fd = number_of("--link-fd");
    images_fd = number_of("--images-fd");
    exchange_fd = number_of("--exchange-fd");
    ATTACK();
    hold();
}
