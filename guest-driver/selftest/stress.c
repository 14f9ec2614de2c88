// SPDX-License-Identifier: GPL-2.0-only
/*
 * Threads that do anything at all with a few open files and a piece of memory that they share, for
 * VHOST_CUDA_TEST_SECONDS (environment, default 10). What the calls answer does not matter; the driver must live, and keep nothing.
 */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>

#include "driver_test.h"

#define THREADS 6
#define FILES 4
#define ARENA (8 * MIB)
/* Nothing is here: a buffer that begins in the arena must not end in the program's own memory. */
#define GUARD (2 * MIB)
#define DEFAULT_SECONDS 10

static int files[FILES];
static unsigned char *arena;
static pthread_t threads_[THREADS];
static time_t end;
static uint64_t last_tag;
static unsigned long counts[8];

static uint64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec;
}

static uint64_t any(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

/* mostly in the arena, sometimes where no process has memory: what is written must not hit this program */
static uint64_t any_address(uint64_t *state)
{
	uint64_t r = any(state);

	switch (r % 16) {
	case 0:
		return any(state) | 1ul << 63;
	case 1:
		return any(state) % (1 << 16);
	default:
		return PTR(arena) + (r >> 8) % ARENA / (r & 16 ? 1 : 4096) * (r & 16 ? 1 : 4096);
	}
}

static uint64_t any_bytes(uint64_t *state)
{
	uint64_t r = any(state);

	return r % 32 == 0 ? r : r % 3 ? (r >> 8) % 64 * 4096 : (r >> 8) % MIB;
}

static void some_call(int fd, uint64_t *state)
{
	static const uint64_t operations[] = { OP_ECHO, OP_SUM_FILL, OP_DELAY, OP_WAKE };
	uint64_t r = any(state), answer[4];
	uint64_t operation = operations[r % 4];
	struct cuda_call call = op_call(operation, operation == OP_DELAY ? r % 4 : r, operation == OP_WAKE ? r % 8 : r,
					answer, sizeof(answer));

	if (r & 0x100) {
		call.in_addr = any_address(state);
		call.in_bytes = any_bytes(state);
	}
	if (r & 0x200) {
		call.out_addr = any_address(state);
		call.out_bytes = any_bytes(state);
	}
	if (!(r & 0x3c00))
		call.flags = any(state) & 7;
	if (!(r & 0xfc000))
		call.ticket = any(state) % 1000;
	if (!(r & 0x3f00000))
		call.payload_bytes = any(state);
	if (!(r & 0xfc000000))
		call.reply = any_address(state);
	if (ioctl_call(fd, &call) == 0 && call.tag)
		__atomic_store_n(&last_tag, call.tag, __ATOMIC_RELAXED);
}

static void some_mapping(int fd, uint64_t *state)
{
	uint64_t r = any(state);
	size_t bytes = (r % 32 + 1) * 4096;
	off_t offset = (r >> 8) % 64 * 4096 + (r % 256 == 0);
	int protection = r & 0x1000000 ? PROT_READ | PROT_WRITE : any(state) & 7;
	unsigned char *area = mmap(NULL, bytes, protection, r % 16 ? MAP_SHARED : MAP_PRIVATE, fd, offset);

	if (area == MAP_FAILED)
		return;
	if (protection & PROT_WRITE)
		area[r % bytes] = 1;
	/* the second part apart, if there is one: what is unmapped may be another thread's the next moment */
	munmap(area, 4096);
	if (bytes > 4096)
		munmap(area + 4096, bytes - 4096);
}

/* a child has the files, and may not use them */
static void some_child(int fd)
{
	pid_t child = fork();

	if (child == 0) {
		uint64_t tag = 1;

		ioctl(fd, CUDA_UNPIN, &tag);
		_exit(0);
	}
	if (child > 0)
		waitpid(child, NULL, 0);
}

static void change_arena(uint64_t *state)
{
	uint64_t r = any(state);
	unsigned char *at = arena + r % (ARENA / 4096 - 16) * 4096;
	size_t bytes = ((r >> 32) % 16 + 1) * 4096;

	switch ((r >> 40) % 3) {
	case 0:
		mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
		break;
	case 1:
		madvise(at, bytes, MADV_DONTNEED);
		break;
	default:
		mprotect(at, bytes, r & 0x10000000000000 ? PROT_READ : PROT_READ | PROT_WRITE);
	}
}

static void reopen_file(int slot)
{
	int fd = open(DEVICE, O_RDWR | O_CLOEXEC | O_NONBLOCK);

	/* threads may be in calls on the file that this closes */
	if (fd >= 0 && dup2(fd, files[slot]) >= 0)
		close(fd);
}

static void *work(void *argument)
{
	uint64_t state = 0x9e3779b97f4a7c15 * (PTR(argument) + 1);

	while ((time_t)now() < end) {
		uint64_t r = any(&state), tag = __atomic_load_n(&last_tag, __ATOMIC_RELAXED);
		int slot = r >> 8 & (FILES - 1), fd = files[slot], kind = r % 64;
		unsigned char events[256];

		if (kind < 40)
			some_call(fd, &state), kind = 0;
		else if (kind < 46)
			some_mapping(fd, &state), kind = 1;
		else if (kind < 52)
			change_arena(&state), kind = 2;
		else if (kind < 54)
			pthread_kill(threads_[(r >> 16) % THREADS], SIGUSR1), kind = 3;
		else if (kind < 56)
			(void)!read(fd, events, r >> 16 & 255), kind = 4;
		else if (kind < 60)
			tag += r >> 60 ? 0 : r >> 16, unpin(fd, tag), is_fresh(fd, tag), kind = 5;
		else if (kind < 62)
			ioctl(fd, r >> 16, any_address(&state)), kind = 5;
		else if (kind == 62 && !(r >> 61))
			some_child(fd), kind = 6;
		else if (!(r >> 61))
			reopen_file(slot), kind = 7;
		else
			continue;
		__atomic_add_fetch(&counts[kind], 1, __ATOMIC_RELAXED);
	}
	return NULL;
}

static void on_signal(int number)
{
	(void)number;
}

static long pinned_kib(void)
{
	char line[256];
	long kib = -1;
	FILE *status = fopen("/proc/self/status", "r");

	while (status && fgets(line, sizeof(line), status))
		if (sscanf(line, "VmPin: %ld", &kib) == 1)
			break;
	if (status)
		fclose(status);
	return kib;
}

void stress(void)
{
	struct sigaction action = { .sa_handler = on_signal };
	const char *seconds = getenv("VHOST_CUDA_TEST_SECONDS");
	int fd;

	sigaction(SIGUSR1, &action, NULL);
	arena = map(ARENA + GUARD);
	CHECK_OK(mprotect(arena + ARENA, GUARD, PROT_NONE));
	for (int i = 0; i < FILES; i++)
		/* without O_NONBLOCK, read would wait for events that do not come */
		files[i] = open(DEVICE, O_RDWR | O_CLOEXEC | O_NONBLOCK);
	end = now() + (seconds ? atoi(seconds) : DEFAULT_SECONDS);
	/* no thread is to look for one that is not there yet */
	for (int i = 0; i < THREADS; i++)
		threads_[i] = pthread_self();
	for (long i = 0; i < THREADS; i++)
		CHECK(pthread_create(&threads_[i], NULL, work, (void *)i) == 0);
	/* a signal to one that has ended is refused, as long as it is not joined */
	while ((time_t)now() <= end)
		sleep(1);
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_join(threads_[i], NULL) == 0);
	for (int i = 0; i < FILES; i++)
		close(files[i]);
	printf("# calls %lu, mappings %lu, changes %lu, signals %lu, reads %lu, tags and others %lu, forks %lu, reopened %lu\n",
	       counts[0], counts[1], counts[2], counts[3], counts[4], counts[5], counts[6], counts[7]);
	for (int i = 0; i < 100 && pinned_kib() > 0; i++)
		usleep(100000);
	CHECK(pinned_kib() == 0);
	fd = open_device();
	memset(mmap(arena, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0), 7, 4096);
	CHECK(sum_of(fd, arena, 4096) == checksum(arena, 4096));
	close(fd);
	munmap(arena, ARENA + GUARD);
}
