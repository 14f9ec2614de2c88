// SPDX-License-Identifier: GPL-2.0-only
/* Several users: what one of them does must not keep the device from the others. Needs root. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "driver_test.h"

enum { ALICE = 1000, BOB = 1001, SUBORDINATE = 100000 };

static void become(uid_t uid)
{
	CHECK_OK(setgroups(0, NULL));
	CHECK_OK(setresgid(uid, uid, uid));
	CHECK_OK(setresuid(uid, uid, uid));
	/* so that /proc/self is its own */
	CHECK_OK(prctl(PR_SET_DUMPABLE, 1));
}

/* Runs a check as another user, in a process of its own. */
static void as_user(uid_t uid, void (*check)(void))
{
	int status = -1;
	pid_t child = fork();

	if (!child) {
		failures = 0;
		become(uid);
		check();
		fflush(stdout);
		_exit(failures != 0);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0);
}

/* A process of another user that has done something and keeps it until it is told to end. */
struct holder {
	pid_t child;
	int end;
};

static struct holder start_holder(uid_t uid, void (*take)(void))
{
	int ready[2], end[2];
	struct holder holder;
	char word = 0;

	CHECK(!pipe(ready) && !pipe(end));
	holder.child = fork();
	if (!holder.child) {
		failures = 0;
		close(end[1]);
		become(uid);
		take();
		fflush(stdout);
		word = failures ? 'n' : 'y';
		CHECK(write(ready[1], &word, 1) == 1);
		CHECK(read(end[0], &word, 1) == 0);
		_exit(0);
	}
	close(ready[1]);
	close(end[0]);
	CHECK(read(ready[0], &word, 1) == 1 && word == 'y');
	close(ready[0]);
	holder.end = end[1];
	return holder;
}

static void end_holder(struct holder holder)
{
	close(holder.end);
	waitpid(holder.child, NULL, 0);
}

static void echoes(void)
{
	int fd = open_device();

	CHECK_OK(ioctl_call(fd, &(struct cuda_call){ 0 }));
	close(fd);
}

/* What the device was told of the opener: its user, and the one who is charged. */
struct told {
	uint64_t uid, charged_uid;
};

static struct told told(void)
{
	struct told who = { ~0ull, ~0ull };
	struct cuda_call c = op_call(OP_WHO, 0, 0, &who, sizeof(who));
	int fd = open_device();

	CHECK_OK(ioctl_call(fd, &c));
	close(fd);
	return who;
}

static uint64_t told_uid(void)
{
	struct told who = told();

	CHECK(who.charged_uid == who.uid);
	return who.uid;
}

static void is_alice(void)
{
	CHECK(told_uid() == ALICE);
}

static void is_alice_in_a_namespace(void)
{
	int fd;

	/* fails in a chroot */
	CHECK_OK(unshare(CLONE_NEWUSER));
	fd = open("/proc/self/uid_map", O_WRONLY);
	CHECK(fd >= 0 && write(fd, "0 1000 1", 8) == 8);
	close(fd);
	CHECK(getuid() == 0);
	CHECK(told_uid() == ALICE);
}

/* The device is told who a user is, not who it is in a namespace of its own. */
void namespaces(void)
{
	CHECK(told_uid() == 0);
	as_user(ALICE, is_alice);
	as_user(ALICE, is_alice_in_a_namespace);
}

static int open_all(int *fd, int most)
{
	int n = 0;

	while (n < most && (fd[n] = open(DEVICE, O_RDWR | O_CLOEXEC)) >= 0)
		n++;
	CHECK(n == most || errno == EDQUOT);
	return n;
}

static void take_all_sessions(void)
{
	int fd[128], n = open_all(fd, 128), again;

	printf("# a user has %d sessions\n", n);
	CHECK(n == 32);
	/* closing makes room at once */
	for (int i = 0; i < n; i++)
		close(fd[i]);
	again = open_all(fd, 128);
	CHECK(again == n);
}

/* One user cannot have all sessions. */
void user_sessions(void)
{
	struct holder alice = start_holder(ALICE, take_all_sessions);

	as_user(BOB, echoes);
	echoes();
	end_holder(alice);
}

/* Runs `check` as the second user of a namespace that `owner` has made, as newuidmap(1) lets every user do. */
static void as_subordinate(uid_t owner, void (*check)(void))
{
	int made[2], mapped[2], status = -1;
	char path[64], map[64], word = 0;
	pid_t child;
	int fd, length;

	CHECK(!pipe(made) && !pipe(mapped));
	child = fork();
	if (!child) {
		failures = 0;
		become(owner);
		CHECK_OK(unshare(CLONE_NEWUSER));
		CHECK(write(made[1], "", 1) == 1 && read(mapped[0], &word, 1) == 1);
		CHECK_OK(setresuid(1, 1, 1));
		check();
		fflush(stdout);
		_exit(failures != 0);
	}
	CHECK(read(made[0], &word, 1) == 1);
	snprintf(path, sizeof(path), "/proc/%d/uid_map", child);
	length = snprintf(map, sizeof(map), "0 %u 1\n1 %u 1\n", owner, SUBORDINATE);
	fd = open(path, O_WRONLY);
	CHECK(fd >= 0 && write(fd, map, length) == length);
	close(fd);
	CHECK(write(mapped[1], "", 1) == 1);
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	for (int i = 0; i < 2; i++) {
		close(made[i]);
		close(mapped[i]);
	}
}

static void take_twenty_sessions(void)
{
	static int fd[20];

	CHECK(open_all(fd, 20) == 20);
}

static void has_the_other_twelve(void)
{
	struct told who = told();
	int fd[32];

	CHECK(who.uid == SUBORDINATE && who.charged_uid == ALICE);
	CHECK(open_all(fd, 32) == 12);
}

static void has_no_owner_but_itself(void)
{
	struct told who = told();
	int fd[64];

	CHECK(who.uid == SUBORDINATE && who.charged_uid == SUBORDINATE);
	CHECK(open_all(fd, 64) == 32);
}

/* A user's subordinate users have no sessions of their own. Those of root's namespaces are users of their own. */
void subordinate_users(void)
{
	struct holder alice = start_holder(ALICE, take_twenty_sessions);

	as_subordinate(ALICE, has_the_other_twelve);
	as_subordinate(0, has_no_owner_but_itself);
	end_holder(alice);
}

static void on_alarm(int sig)
{
	(void)sig;
}

static void run_on(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	CHECK_OK(sched_setaffinity(0, sizeof(set), &set));
}

/* Calls that are never answered, until another one does not fit into the ring of each processor. */
static void fill_rings(void)
{
	struct sigaction action = { .sa_handler = on_alarm };
	int cpus = sysconf(_SC_NPROCESSORS_ONLN), files = 0;

	sigaction(SIGALRM, &action, NULL);
	for (int cpu = 0; cpu < cpus; cpu++) {
		unsigned int per_file = limits().max_outstanding, sent = 0;
		int full = 0;

		run_on(cpu);
		while (!full) {
			int fd = open_device();

			files++;
			if (fd < 0)
				return;
			for (unsigned int i = 0; i < per_file && !full; i++) {
				struct cuda_call c = op_call(OP_HOLD, 0, 0, NULL, 0);

				for (int try = 0; try < 3 && !c.ticket; try++) {
					ualarm(2000, 2000);
					CHECK_ERR(ioctl_call(fd, &c), EINTR);
				}
				ualarm(0, 0);
				full = !c.ticket;
				sent += !full;
			}
		}
		printf("# %u calls in the ring of processor %d, %d files\n", sent, cpu, files);
		CHECK(sent >= 4);
	}
}

static void is_answered_everywhere(void)
{
	struct sigaction action = { .sa_handler = on_alarm };
	int cpus = sysconf(_SC_NPROCESSORS_ONLN), fd = open_device();

	/* without SA_RESTART: a call that hangs ends with EINTR */
	sigaction(SIGALRM, &action, NULL);
	for (int cpu = 0; cpu < cpus; cpu++) {
		run_on(cpu);
		for (int i = 0; i < 10 && !failures; i++) {
			alarm(20);
			CHECK_OK(ioctl_call(fd, &(struct cuda_call){ 0 }));
			alarm(0);
		}
	}
	close(fd);
}

/* One user's calls cannot take all places in the rings. */
void user_rings(void)
{
	struct holder alice = start_holder(ALICE, fill_rings);

	as_user(BOB, is_answered_everywhere);
	end_holder(alice);
	as_user(ALICE, is_answered_everywhere);
}

static unsigned long long vm_pin(void)
{
	unsigned long long kib = ~0ull;
	char line[256];
	FILE *f = fopen("/proc/self/status", "r");

	CHECK(f);
	while (f && fgets(line, sizeof(line), f))
		sscanf(line, "VmPin: %llu kB", &kib);
	if (f)
		fclose(f);
	return kib << 10;
}

/* Has the device keep the same pages again and again, until that is refused or the sum reaches `most`. */
static unsigned long long keep_up_to(int fd, unsigned long long most)
{
	static unsigned char *p;
	size_t step = 16 * MIB;
	unsigned long long kept = 0;

	if (!p)
		p = map(step);
	while (kept + step <= most) {
		struct cuda_call c = op_call(OP_ECHO, 0, 0, NULL, 0);

		c.out_addr = PTR(p);
		c.out_bytes = step;
		c.flags = CALL_KEEP;
		if (ioctl_call(fd, &c)) {
			CHECK(errno == EDQUOT);
			break;
		}
		kept += step;
	}
	return kept;
}

static unsigned long long ram(void)
{
	return (unsigned long long)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
}

static void pin_a_share(void)
{
	int fd = open_device(), other = open_device();
	unsigned long long kept;

	CHECK(vm_pin() == 0);
	/* less than one file may: the rest is the other file's */
	kept = keep_up_to(fd, ram() / 4);
	CHECK(kept > ram() / 5 && vm_pin() == kept);
	kept += keep_up_to(other, ram());
	printf("# a user's files keep %llu of %llu MiB\n", kept >> 20, ram() >> 20);
	CHECK(kept > ram() / 5 * 2 && kept <= ram() / 2 && vm_pin() == kept);
	CHECK(keep_up_to(fd, 16 * MIB) == 0);
}

static void pin_something(void)
{
	int fd = open_device();

	CHECK(keep_up_to(fd, 64 * MIB) == 64 * MIB);
	close(fd);
	for (int i = 0; i < 500 && vm_pin(); i++)
		usleep(10000);
	CHECK(vm_pin() == 0);
}

/* The limit of pinned memory is the user's, not each file's; root may exceed it, but not that of all users. */
void user_pins(void)
{
	struct rlimit none = { 0, 0 }, unlimited = { RLIM_INFINITY, RLIM_INFINITY };
	struct holder alice;
	unsigned long long kept;
	int fd;

	CHECK_OK(setrlimit(RLIMIT_MEMLOCK, &none));
	alice = start_holder(ALICE, pin_a_share);
	as_user(BOB, pin_something);
	fd = open_device();
	kept = keep_up_to(fd, ram());
	printf("# then root keeps %llu MiB\n", kept >> 20);
	CHECK(kept > ram() / 5 && kept <= ram() / 10 * 3);
	close(fd);
	end_holder(alice);
	CHECK_OK(setrlimit(RLIMIT_MEMLOCK, &unlimited));
}

static void pin_up_to_the_limit(void)
{
	int fd = open_device(), other = open_device();

	CHECK(keep_up_to(fd, 16 * MIB) == 16 * MIB);
	CHECK(keep_up_to(other, 64 * MIB) == 16 * MIB);
	/* copies are no locked memory */
	CHECK(sum_of(fd, map(16 * MIB), 16 * MIB) == 0);
	close(fd);
	close(other);
}

static void has_three_sessions(void)
{
	int fd[8];

	CHECK(open_all(fd, 8) == 3);
}

/* With memlock_strict=1 max_user_sessions=3. */
void strict(void)
{
	struct rlimit limit = { 32 * MIB, 32 * MIB };
	int fd = open_device();

	CHECK_OK(setrlimit(RLIMIT_MEMLOCK, &limit));
	as_user(ALICE, pin_up_to_the_limit);
	/* CAP_IPC_LOCK */
	CHECK(keep_up_to(fd, 64 * MIB) == 64 * MIB);
	close(fd);
	as_user(BOB, has_three_sessions);
}

static void cannot_read_statistics(void)
{
	CHECK_ERR(open(STATISTICS "/requests", O_RDONLY), EACCES);
}

/* What all users together do is root's to know. */
void statistics(void)
{
	int fd = open(STATISTICS "/requests", O_RDONLY);

	CHECK(fd >= 0);
	close(fd);
	as_user(ALICE, cannot_read_statistics);
}

static void maps_unanswered_area(void)
{
	struct timespec a, b;
	int fd = open_device();

	/* the wait is killable */
	alarm(60);
	clock_gettime(CLOCK_MONOTONIC, &a);
	CHECK(mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, UNANSWERED_AREA) == MAP_FAILED && errno == ETIMEDOUT);
	clock_gettime(CLOCK_MONOTONIC, &b);
	CHECK(b.tv_sec - a.tv_sec >= 5 && b.tv_sec - a.tv_sec < 60);
	/* the device has the area: its name is in use, and the session goes on */
	CHECK(mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, UNANSWERED_AREA) == MAP_FAILED && errno == EEXIST);
	CHECK(mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0) != MAP_FAILED);
	CHECK_OK(ioctl_call(fd, &(struct cuda_call){ 0 }));
	close(fd);
}

/* mmap(2) does not wait for ever for a device that does not answer. */
void unanswered_area(void)
{
	as_user(ALICE, maps_unanswered_area);
}
