// SPDX-License-Identifier: Apache-2.0 OR MIT
// A worker that a guest has taken over: preloaded into workers, it waits until their sandbox is closed and then tries
// what such a worker would try. It writes a line per attempt to the worker's log.

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
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

static void attack(void) {
    struct sigaction action = {.sa_sigaction = survive, .sa_flags = SA_SIGINFO};
    sigaction(SIGSYS, &action, NULL);
    const char *victim = getenv("ATTACK_VICTIM"), *folder = getenv("ATTACK_FOLDER");
    const char *secret = getenv("ATTACK_SECRET"), *library = getenv("ATTACK_LIBRARY");
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

    local_socket("a stream socket", getenv("ATTACK_STREAM"), 0, SOCK_STREAM);
    local_socket("a packet socket", getenv("ATTACK_PACKETS"), 0, SOCK_SEQPACKET);
    local_socket("an abstract socket", getenv("ATTACK_ABSTRACT"), 1, SOCK_SEQPACKET);
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

// A session's guest memory. What is tried in the thread that has its descriptors runs there as a signal's handler.

#define PAGE 4096L
static volatile int in_mapper, mapped_pages, mapped_more, other_uses;
static void *volatile mapped_page = MAP_FAILED;

static void as_mapper(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)info, (void)context;
    // Every other thread may ask for flags of descriptors.
    if (CALL(SYS_fcntl, 0L, (long)F_GETFD) >= 0 || errno != EPERM || in_mapper)
        return;
    in_mapper = 1;
    long pages = atol(getenv("ATTACK_PAGES")), word;
    for (long fd = 0; fd < 16; fd++) {
        for (long page = 0; page < pages; page++) {
            void *mapped = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, page * PAGE);
            mapped_pages += mapped != MAP_FAILED;
            mapped_page = mapped != MAP_FAILED ? mapped : mapped_page;
        }
        mapped_more += mmap(NULL, pages * PAGE, PROT_READ, MAP_SHARED, fd, 0) != MAP_FAILED;
        mapped_more += mmap(NULL, PAGE, PROT_READ | PROT_EXEC, MAP_SHARED, fd, 0) != MAP_FAILED;
        other_uses += CALL(SYS_pread64, fd, (long)&word, 8L) >= 0;
        other_uses += CALL(SYS_pwrite64, fd, (long)&word, 8L) >= 0;
        other_uses += CALL(SYS_dup, fd) >= 0;
        other_uses += CALL(SYS_fallocate, fd, 3L, 0L, PAGE) >= 0;
        other_uses += CALL(SYS_ftruncate, fd, 0L) >= 0;
        other_uses += CALL(SYS_sendmsg, fd) >= 0 || errno != EPERM;
    }
    other_uses += CALL(SYS_clone, (long)(CLONE_VM | CLONE_FILES | CLONE_THREAD | CLONE_SIGHAND)) >= 0;
    in_mapper = 2;
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

static void attack_pages(void) {
    long pages = atol(getenv("ATTACK_PAGES")), named = atol(getenv("ATTACK_NAMED"));
    long bytes = mapped_bytes();
    say("D %ld bytes of guest memory are mapped\n", bytes);
    result("memory that was not named is mapped", bytes > named * PAGE);
    int found = 0, opened = 0;
    for (int fd = 0; fd < MAX_FD; fd++) {
        struct stat about;
        found += fstat(fd, &about) == 0 && about.st_size == pages * PAGE;
    }
    result("a descriptor of guest memory", found > 0);
    long own = getpid();
    for (long thread = own; thread < own + 64; thread++)
        for (int fd = 0; fd < 16; fd++) {
            char path[64];
            struct stat about;
            snprintf(path, sizeof path, "/proc/self/task/%ld/fd/%d", thread, fd);
            int file = open_file(path, O_RDWR);
            file = file >= 0 ? file : open_file(path, O_RDONLY);
            opened += file >= 0 && fstat(file, &about) == 0 && about.st_size == pages * PAGE;
            if (file >= 0)
                close(file);
        }
    result("guest memory by another thread's descriptor", opened > 0);
    struct sigaction action = {.sa_sigaction = as_mapper, .sa_flags = SA_SIGINFO | SA_RESTART};
    sigaction(SIGUSR1, &action, NULL);
    for (long thread = own; thread < own + 64 && !in_mapper; thread++)
        if (thread != gettid() && CALL(SYS_tgkill, own, thread, (long)SIGUSR1) == 0)
            usleep(20000);
    for (int i = 0; i < 500 && in_mapper == 1; i++)
        usleep(10000);
    say("D the mapping thread could map %d pages of %ld\n", mapped_pages, named);
    result("the mapping thread was not found", in_mapper != 2);
    result("mapping pages that were not named", mapped_pages > named || mapped_more);
    result("nothing can be mapped at all", mapped_pages == 0);
    void *grown = mremap(mapped_page, PAGE, 4 * PAGE, MREMAP_MAYMOVE);
    result("a mapping that grows", mapped_page == MAP_FAILED || grown != MAP_FAILED);
    result("another use of the descriptors", other_uses > 0);
    say("D attack over: %d of %d attempts worked\n", worked, tried);
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
    if (getenv("ATTACK_PAGES")) {
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
