// SPDX-License-Identifier: Apache-2.0 OR MIT
// A worker that a guest has taken over: preloaded into workers, it waits until their sandbox is closed and then tries
// what such a worker would try. It writes a line per attempt to the worker's log.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <ucontext.h>
#include <unistd.h>

#define MAX_FD 256
#define MAX_PID 64

// The worker's log, and what the kernel says of the worker and of its mappings, opened before the sandbox closes.
static int report = -1, status = -1, maps = -1;
static int tried, worked;

static long call(long number, ...) {
    long a[6];
    va_list list;
    va_start(list, number);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(list, long);
    va_end(list);
    return syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
#define CALL(number, ...) call(number, ##__VA_ARGS__, 0L, 0L, 0L, 0L, 0L, 0L)

static void say(const char *format, ...) {
    char line[256];
    va_list list;
    va_start(list, format);
    int length = vsnprintf(line, sizeof line, format, list);
    va_end(list);
    CALL(SYS_write, (long)report, (long)line, (long)length);
}

static void result(const char *what, int done) {
    int error = errno;
    tried++;
    worked += done;
    say("D attack %s: %s (%s)\n", done ? "worked" : "refused", what, done ? "-" : strerrorname_np(error));
}

// A filter that ends the process does so by a signal, which the process may handle.
static void survive(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)info;
    ((ucontext_t *)context)->uc_mcontext.gregs[REG_RAX] = -EPERM;
}

static long number_of(const char *field, int base) {
    static char text[8192];
    ssize_t bytes = pread(status, text, sizeof text - 1, 0);
    text[bytes > 0 ? bytes : 0] = 0;
    char *at = strstr(text, field);
    return at ? strtol(at + strlen(field), NULL, base) : -1;
}

static int open_file(const char *path, int flags) {
    int fd = CALL(SYS_openat, (long)AT_FDCWD, (long)path, (long)flags, 0600L);
    return fd;
}

static int write_all(int fd, const char *text, long bytes) {
    return CALL(SYS_write, (long)fd, (long)text, bytes) == bytes;
}

static void file(const char *what, const char *path, int flags) {
    if (!path)
        return;
    result(what, open_file(path, flags) >= 0);
}

static void denied(const char *what, long returned) { result(what, returned >= 0); }

static int reads_memory(long pid) {
    char path[64];
    static char maps[4096];
    snprintf(path, sizeof path, "/proc/%ld/maps", pid);
    int fd = open_file(path, O_RDONLY);
    ssize_t bytes = fd >= 0 ? read(fd, maps, sizeof maps - 1) : 0;
    unsigned long at = bytes > 0 ? strtoul(maps, NULL, 16) : 0x400000;
    snprintf(path, sizeof path, "/proc/%ld/mem", pid);
    fd = open_file(path, O_RDWR);
    long word;
    if (fd >= 0 && pread(fd, &word, sizeof word, at) == sizeof word)
        return 1;
    struct iovec here = {&word, sizeof word}, there = {(void *)at, sizeof word};
    return CALL(SYS_process_vm_readv, pid, (long)&here, 1L, (long)&there, 1L) > 0;
}

static int takes_descriptors(long pid) {
    int process = CALL(SYS_pidfd_open, pid);
    for (long fd = 0; process >= 0 && fd < MAX_FD; fd++)
        if (CALL(SYS_pidfd_getfd, (long)process, fd) >= 0)
            return 1;
    return 0;
}

static int is_socket(int fd) {
    struct stat about;
    return fstat(fd, &about) == 0 && S_ISSOCK(about.st_mode);
}

static void process(const char *who, long pid) {
    char what[96];
#define NAME(text) (snprintf(what, sizeof what, "%s of %s", text, who), what)
    result(NAME("memory"), reads_memory(pid));
    result(NAME("descriptors"), takes_descriptors(pid));
    result(NAME("a signal"), CALL(SYS_kill, pid) == 0);
    result(NAME("tracing"), CALL(SYS_ptrace, 16L, pid) == 0);
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(0, &one);
    result(NAME("processors"), CALL(SYS_sched_setaffinity, pid, (long)sizeof one, (long)&one) == 0);
    uint64_t limit[2] = {1, 1};
    result(NAME("limits"), CALL(SYS_prlimit64, pid, 7L, (long)limit) == 0);
    int fd = 3;
    while (fd < MAX_FD && !is_socket(fd))
        fd++;
    // The kernel would send this signal when something arrives.
    int owned = CALL(SYS_fcntl, (long)fd, (long)F_SETOWN, pid) == 0;
    int chosen = CALL(SYS_fcntl, (long)fd, (long)F_SETSIG, (long)SIGUSR1) == 0;
    int on = CALL(SYS_fcntl, (long)fd, (long)F_SETFL, (long)O_ASYNC) == 0;
    result(NAME("a descriptor's signal"), owned && chosen && on);
    int number = pid, yes = 1;
    result(NAME("a descriptor's owner by ioctl"), CALL(SYS_ioctl, (long)fd, 0x8901L, (long)&number) == 0);
    result("signals of a descriptor by ioctl", CALL(SYS_ioctl, (long)fd, (long)FIOASYNC, (long)&yes) == 0);
}

static void local_socket(const char *what, const char *path, int abstract, int type) {
    if (!path)
        return;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    strncpy(address.sun_path + abstract, path, sizeof address.sun_path - 2);
    long length = offsetof(struct sockaddr_un, sun_path) + abstract + strlen(path) + !abstract;
    int fd = CALL(SYS_socket, (long)AF_UNIX, (long)type);
    result(what, fd >= 0 && CALL(SYS_connect, (long)fd, (long)&address, length) == 0);
}

static void survive_filters(void) {
    struct sigaction action = {.sa_sigaction = survive, .sa_flags = SA_SIGINFO};
    sigaction(SIGSYS, &action, NULL);
}

static void attack(void) {
    survive_filters();
    const char *victim = getenv("VHOST_CUDA_ATTACK_VICTIM"), *folder = getenv("VHOST_CUDA_ATTACK_FOLDER");
    const char *secret = getenv("VHOST_CUDA_ATTACK_SECRET"), *library = getenv("VHOST_CUDA_ATTACK_LIBRARY");
    long own = number_of("\nPid:", 10), parent = number_of("\nPPid:", 10);

    int regular = 0;
    for (int fd = 0; fd < MAX_FD; fd++) {
        struct stat about;
        int is_file = fd != status && fd != maps && fstat(fd, &about) == 0 && S_ISREG(about.st_mode);
        int is_memory = is_file && CALL(SYS_fcntl, (long)fd, (long)F_GET_SEALS) >= 0;
        // One that is empty and cannot be written says that the worker has not ended, and nothing else.
        int is_useless = about.st_size == 0 && (CALL(SYS_fcntl, (long)fd, (long)F_GETFL) & O_ACCMODE) == O_RDONLY;
        regular += is_file && !is_memory && !is_useless;
    }
    errno = 0;
    result("a file of the daemon", regular > 0);
    result("capabilities", number_of("\nCapEff:", 16) != 0);
    if (parent > 0)
        process("the daemon", parent);
    process("the first process", 1);
    process("a stranger", victim ? atol(victim) : 1);
    int others = 0;
    for (long pid = 2; pid < MAX_PID; pid++)
        others += pid != own && reads_memory(pid);
    result("memory of another worker", others > 0);
    denied("living on after the daemon", CALL(SYS_prctl, (long)PR_SET_PDEATHSIG));
    denied("core files", CALL(SYS_prctl, (long)PR_SET_DUMPABLE, 1L));

    file("reading users", "/etc/passwd", O_RDONLY);
    file("reading a file", secret, O_RDONLY);
    file("writing a file", secret, O_WRONLY);
    file("creating a file", folder, O_TMPFILE | O_RDWR);
    file("creating a file in /tmp", "/tmp/made-by-a-worker", O_CREAT | O_RDWR);
    file("changing the library of all workers", library, O_RDWR);
    file("a setting of the kernel", "/proc/sys/kernel/core_pattern", O_WRONLY);
    // NVIDIA's library names its threads so, and does not start if it cannot.
    if (open_file("/proc/thread-self/comm", O_WRONLY | O_TRUNC) < 0)
        say("D no thread can be named\n");
    // Workers are the first that the kernel ends when memory is short.
    const char *scores[] = {"/proc/self/oom_score_adj", "/proc/thread-self/oom_score_adj"};
    int spared = 0;
    for (int i = 0; i < 2; i++) {
        int score = open_file(scores[i], O_WRONLY);
        spared += score >= 0 && write_all(score, "0", 1);
    }
    result("another victim for the kernel", spared > 0);
    file("the machine's memory", "/dev/mem", O_RDWR);
    file("virtual machines", "/dev/kvm", O_RDWR);
    // Every device of the host has this one; its rights are everybody's.
    int node = open_file("/dev/null", O_RDWR);
    denied("rights of a device", CALL(SYS_fchmod, (long)node, 0666L));
    file("the host's root", "/proc/1/root/etc/passwd", O_RDONLY);
    if (secret) {
        denied("changing rights", CALL(SYS_chmod, (long)secret, 0777L));
        denied("removing a file", CALL(SYS_unlink, (long)secret));
        denied("renaming a file", CALL(SYS_rename, (long)secret, (long)"/tmp/renamed"));
        denied("linking a file", CALL(SYS_symlink, (long)"/etc/passwd", (long)secret));
    }

    local_socket("a stream socket", getenv("VHOST_CUDA_ATTACK_STREAM"), 0, SOCK_STREAM);
    local_socket("a packet socket", getenv("VHOST_CUDA_ATTACK_PACKETS"), 0, SOCK_SEQPACKET);
    local_socket("an abstract socket", getenv("VHOST_CUDA_ATTACK_ABSTRACT"), 1, SOCK_SEQPACKET);
    denied("the network", CALL(SYS_socket, (long)AF_INET, (long)SOCK_STREAM));
    denied("datagrams", CALL(SYS_socket, (long)AF_UNIX, (long)SOCK_DGRAM));
    denied("netlink", CALL(SYS_socket, (long)AF_NETLINK, (long)SOCK_RAW));

    char *nothing[] = {NULL};
    denied("a program", CALL(SYS_execve, (long)"/usr/bin/true", (long)nothing, (long)nothing));
    long child = CALL(SYS_clone, (long)SIGCHLD);
    if (child == 0)
        CALL(SYS_exit, 0L);
    denied("a process", child);
    denied("a user namespace", CALL(SYS_unshare, (long)CLONE_NEWUSER));
    denied("a mount", CALL(SYS_mount, (long)"tmpfs", (long)"/proc", (long)"tmpfs"));
    denied("another root", CALL(SYS_chroot, (long)"/proc"));
    denied("another user", CALL(SYS_setresuid, 0L, 0L, 0L));
    denied("kernel programs", CALL(SYS_bpf));
    denied("a ring of requests", CALL(SYS_io_uring_setup, 1L, (long)nothing));
    denied("faults of memory", CALL(SYS_userfaultfd));
    denied("keys", CALL(SYS_keyctl));

    // A message that would look like another one, and clear a terminal.
    say("D one\033[2J\rERROR forged\n");
    say("D attack over: %d of %d attempts worked\n", worked, tried);
}

// A session's guest memory. The process that has its descriptors shares this one's memory: the attack gives it orders
// (`Desk` in `vhost-cuda/worker/src/memory/mapper/process.rs`), and changes its code.

#define PAGE 4096L
#define MAX_FILE 24
enum { IDLE = 2, ORDERED = 3 };
static struct {
    volatile unsigned state;
    int error;
    unsigned count;
    struct {
        unsigned long arguments[6];
        long result;
    } slots[256];
} *desk;
static int (*mapper)(void *);
static long mapper_pid = -1;
static volatile int in_mapper, other_uses;

// The worker starts that process with the C library's function.
int clone(int (*run)(void *), void *stack, int flags, void *argument, ...) {
    static int (*real)(int (*)(void *), void *, int, void *, ...);
    va_list list;
    va_start(list, argument);
    void *parent = va_arg(list, void *), *storage = va_arg(list, void *), *word = va_arg(list, void *);
    va_end(list);
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "clone");
    int pid = real(run, stack, flags, argument, parent, storage, word);
    if (pid > 0 && (flags & CLONE_VM) && !(flags & CLONE_THREAD))
        desk = word, mapper = run, mapper_pid = pid;
    return pid;
}

static long raw(long number, long first, long second, long third, long fourth) {
    register long r10 __asm__("r10") = fourth;
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(first), "S"(second), "d"(third), "r"(r10)
                     : "rcx", "r11", "memory");
    return result;
}

// The attempts of the process with the attack's code. It shares the thread-local storage of a thread.
static void as_mapper(void) {
    static char message[256];
    long word = 0;
    // Another thread that has met the changed code.
    while (raw(SYS_gettid, 0, 0, 0, 0) != -EPERM)
        raw(SYS_futex, (long)&in_mapper, FUTEX_WAIT, in_mapper, 0);
    in_mapper = 1;
    for (long fd = 0; fd < MAX_FILE; fd++) {
        other_uses += raw(SYS_pread64, fd, (long)&word, 8, 0) >= 0;
        other_uses += raw(SYS_pwrite64, fd, (long)&word, 8, 0) >= 0;
        other_uses += raw(SYS_dup, fd, 0, 0, 0) >= 0;
        other_uses += raw(SYS_fallocate, fd, 3, 0, PAGE) >= 0;
        other_uses += raw(SYS_ftruncate, fd, 0, 0, 0) >= 0;
        other_uses += raw(SYS_sendmsg, fd, (long)message, 0, 0) != -EPERM;
        other_uses += raw(SYS_recvmsg, fd, (long)message, 0, 0) != -EPERM;
        other_uses += raw(SYS_close, fd, 0, 0, 0) != -EPERM;
    }
    other_uses += raw(SYS_close_range, 0, MAX_FILE, 0, 0) != -EPERM;
    other_uses += raw(SYS_clone, CLONE_VM | CLONE_FILES | CLONE_THREAD | CLONE_SIGHAND, 0, 0, 0) != -EPERM;
    other_uses += raw(SYS_prctl, PR_SET_DUMPABLE, 1, 0, 0) != -EPERM;
    other_uses += raw(SYS_kill, 1, 9, 0, 0) != -EPERM;
    in_mapper = 2;
    for (;;)
        raw(SYS_futex, (long)&in_mapper, FUTEX_WAIT, 2, 0);
}

// Makes the process go on with the attack's code after its next system call.
static void take_mapper(void) {
    unsigned char *code = (unsigned char *)mapper, *page = (unsigned char *)((long)code & -PAGE);
    if (mprotect(page, 2 * PAGE, PROT_READ | PROT_WRITE | PROT_EXEC))
        return;
    unsigned char jump[12] = {0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xe0};
    void (*target)(void) = as_mapper;
    memcpy(jump + 2, &target, 8);
    for (long at = 0; at < PAGE - (long)sizeof jump; at++)
        if (code[at] == 0x0f && code[at + 1] == 0x05)
            memcpy(code + at + 2, jump, sizeof jump), at += sizeof jump;
    CALL(SYS_futex, (long)desk, (long)FUTEX_WAKE, 1L);
    for (int i = 0; i < 5000 && in_mapper != 2; i++)
        usleep(10000);
}

static void *order(int protection, int flags, long fd, long page, long bytes) {
    unsigned long arguments[] = {0, bytes, protection, flags, fd, page * PAGE};
    memcpy(desk->slots[0].arguments, arguments, sizeof arguments);
    desk->count = 1;
    desk->state = ORDERED;
    CALL(SYS_futex, (long)desk, (long)FUTEX_WAKE, 1L);
    while (desk->state == ORDERED)
        CALL(SYS_futex, (long)desk, (long)FUTEX_WAIT, (long)ORDERED);
    long result = desk->slots[0].result;
    return result < 0 && result > -4096 ? MAP_FAILED : (void *)result;
}

// Bytes of mappings that bear the name of a front-end's memory.
static long mapped_bytes(void) {
    static char text[1 << 20];
    long bytes = 0, got = 0, more;
    while (got < (long)sizeof text - 1 && (more = pread(maps, text + got, sizeof text - 1 - got, got)) > 0)
        got += more;
    text[got] = 0;
    for (char *line = text; line && *line; line = strchr(line, '\n'), line += line != NULL) {
        char *end = strchr(line, '\n'), *name = strstr(line, "fake-frontend");
        if (!name || (end && name > end))
            continue;
        char *dash;
        unsigned long from = strtoul(line, &dash, 16), to = strtoul(dash + 1, NULL, 16);
        bytes += to - from;
    }
    return bytes;
}

// Looks whether a socket of the worker gets a file of guest memory when that changes, and at last takes the process for
// mappings, which maps nothing afterwards.
static void *watch_sockets(void *pages) {
    int received = 0;
    say("D attack watches sockets\n");
    for (int round = 0; round < 400; round++, usleep(10000))
        for (int fd = 0; fd < MAX_FD; fd++) {
            char byte, control[256];
            struct iovec part = {&byte, 1};
            struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
            if (!is_socket(fd) || recvmsg(fd, &message, MSG_PEEK | MSG_DONTWAIT) <= 0)
                continue;
            struct cmsghdr *head = CMSG_FIRSTHDR(&message);
            struct stat about;
            int file;
            if (!head || head->cmsg_type != SCM_RIGHTS)
                continue;
            memcpy(&file, CMSG_DATA(head), sizeof file);
            received += fstat(file, &about) == 0 && about.st_size == (long)pages * PAGE;
            close(file);
        }
    result("guest memory by a socket", received > 0);
    take_mapper();
    say("D the process for mappings %s the attack's code\n", in_mapper == 2 ? "runs" : "does not run");
    result("another use of the descriptors", other_uses > 0);
    say("D attack over: %d of %d attempts worked\n", worked, tried);
    return NULL;
}

static void attack_pages(void) {
    survive_filters();
    long pages = atol(getenv("VHOST_CUDA_ATTACK_PAGES")), named = atol(getenv("VHOST_CUDA_ATTACK_NAMED"));
    long bytes = mapped_bytes();
    say("D %ld bytes of guest memory are mapped\n", bytes);
    result("memory that was not named is mapped", bytes > named * PAGE);
    int found = 0, opened = 0;
    for (int fd = 0; fd < MAX_FD; fd++) {
        struct stat about;
        found += fstat(fd, &about) == 0 && about.st_size == pages * PAGE;
    }
    result("a descriptor of guest memory", found > 0);
    long own = getpid(), from = own > 64 ? own - 64 : 1;
    for (long process = from; process < own + 64; process++)
        for (int fd = 0; fd < MAX_FILE; fd++)
            for (int kind = 0; kind < 3; kind++) {
                char path[64];
                struct stat about;
                const char *paths[] = {"/proc/%ld/fd/%d", "/proc/%ld/task/%ld/fd/%d", "/proc/self/task/%ld/fd/%d"};
                if (kind == 1)
                    snprintf(path, sizeof path, paths[kind], process, process, fd);
                else
                    snprintf(path, sizeof path, paths[kind], process, fd);
                int file = open_file(path, O_RDWR);
                file = file >= 0 ? file : open_file(path, O_RDONLY);
                opened += file >= 0 && fstat(file, &about) == 0 && about.st_size == pages * PAGE;
                if (file >= 0)
                    close(file);
            }
    result("guest memory by another process's descriptor", opened > 0);
    result("the memory of another process's descriptors", mapper_pid < 0 || takes_descriptors(mapper_pid));

    long read = atol(getenv("VHOST_CUDA_ATTACK_READ")), mapped = 0, written = 0, changed = 0, more = 0;
    void *page = MAP_FAILED;
    for (long fd = 0; fd < MAX_FILE && desk; fd++) {
        // All pages around the named ones, and some of the others: each order waits for two other processes.
        for (long at = 0; at < pages; at += at < 64 ? 1 : 61) {
            void *writable = order(PROT_READ | PROT_WRITE, MAP_SHARED, fd, at, PAGE);
            written += writable != MAP_FAILED;
            page = writable != MAP_FAILED ? writable : page;
            void *readable = order(PROT_READ, MAP_SHARED, fd, at, PAGE);
            mapped += readable != MAP_FAILED;
            if (readable == MAP_FAILED || writable != MAP_FAILED)
                continue;
            changed += mprotect(readable, PAGE, PROT_READ | PROT_WRITE) == 0;
            changed += madvise(readable, PAGE, MADV_REMOVE) == 0;
        }
        more += order(PROT_READ, MAP_SHARED, fd, 0, pages * PAGE) != MAP_FAILED;
        more += order(PROT_READ | PROT_EXEC, MAP_SHARED, fd, 0, PAGE) != MAP_FAILED;
    }
    say("D the process for mappings could map %ld pages, %ld to write, of %ld and %ld\n", mapped, written, named, read);
    // Those to be written have two descriptors.
    result("mapping pages that were not named", mapped > 2 * named - read || more);
    result("writing pages that may only be read", written > named - read || changed);
    result("nothing can be mapped at all", mapped < named || written < named - read);
    void *grown = mremap(page, PAGE, 4 * PAGE, MREMAP_MAYMOVE);
    result("a mapping that grows", page == MAP_FAILED || grown != MAP_FAILED);
    pthread_t watcher;
    if (pthread_create(&watcher, NULL, watch_sockets, (void *)pages))
        say("D no thread\n");
}

__attribute__((constructor)) static void start(void) {
    char name[32] = "";
    int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    if (fd >= 0 && read(fd, name, sizeof name - 1) > 0 && !strcmp(name, "vhost-user-cuda-worker")) {
        report = fcntl(2, F_DUPFD_CLOEXEC, 3);
        status = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
        maps = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    }
    close(fd);
}

// The worker tells the daemon that it is ready, by one of these functions, after its sandbox has closed.
static void begin(void) {
    static int begun;
    // 2: a filter.
    if (status < 0)
        return;
    if (getenv("VHOST_CUDA_ATTACK_PAGES")) {
        // The first answer of a session: the process has another name since its first frame.
        if (!begun && number_of("Name:\tcuda-session", 10) >= 0) {
            begun = 1;
            attack_pages();
        }
        return;
    }
    if (!begun && number_of("\nSeccomp:", 10) == 2) {
        begun = 1;
        attack();
    }
}

ssize_t write(int fd, const void *bytes, size_t count) {
    begin();
    return syscall(SYS_write, fd, bytes, count);
}

ssize_t send(int fd, const void *bytes, size_t count, int flags) {
    begin();
    return syscall(SYS_sendto, fd, bytes, count, flags, NULL, 0);
}
