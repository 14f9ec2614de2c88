/* SPDX-License-Identifier: GPL-2.0-only */
/* The interface of the device file (protocol/src/uapi.rs), the operations of the echo backend, checks. */
#ifndef DRIVER_TEST_H
#define DRIVER_TEST_H

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define DEVICE "/dev/virtio-cuda"
#define STATISTICS "/sys/class/misc/virtio-cuda/statistics"
#define MIB (1ul << 20)
#define PTR(p) ((uint64_t)(uintptr_t)(p))

struct cuda_info {
	uint32_t protocol_version, max_payload_bytes;
	uint64_t max_bulk_bytes, max_pinned_bytes;
	uint32_t max_outstanding, reserved;
};

struct cuda_call {
	uint64_t payload, reply;
	uint32_t payload_bytes, reply_bytes;
	uint64_t in_addr, in_bytes, out_addr, out_bytes;
	uint32_t flags, reserved;
	uint64_t ticket, tag;
};

#define CUDA_INFO _IOR(0xC7, 0, struct cuda_info)
#define CUDA_CALL _IOWR(0xC7, 1, struct cuda_call)
#define CUDA_UNPIN _IOW(0xC7, 2, uint64_t)
#define CUDA_FRESH _IOW(0xC7, 3, uint64_t)
#define CALL_KEEP 1
#define CALL_TRACK 2
#define CALL_READ 4
enum { REPLY_OK, REPLY_INVALID, REPLY_SESSION_LOST, REPLY_NO_RESOURCES, REPLY_VERSION };
enum { EVENT_SESSION_LOST = 1, EVENT_WAKE = 2 };

/*
 * A payload for the echo backend: 64-bit words, the first of which is one of these. An empty payload is OP_ECHO.
 * "fill with s" writes bytes (s + 1) % 253, (s + 2) % 253, ...; the sums are those of checksum() below.
 */
enum {
	OP_ECHO,	/* answers the payload */
	OP_SUM_FILL,	/* fills the out buffer with word 1; answers the sum of the in buffer, the number of entries */
	OP_DELAY,	/* after word 1 ms: fills with word 2, answers the plain sum of the in buffer */
	OP_HOLD,	/* never answers */
	OP_KEPT,	/* the memory of tag word 1: answers its sum and entries, fills it with word 2 */
	OP_WAKE,	/* sends word 2 wake events with values from word 1 on */
	OP_LOSE,	/* ends the session as if its worker had died */
	OP_STATUS,	/* answers with status word 1 */
	OP_LIE,		/* answers a header with payload_bytes word 1, and returns the chain with length word 2 */
	OP_DIE,		/* the backend exits */
	OP_COUNTS,	/* answers the number of held calls, of sessions */
	OP_TWICE,	/* returns the chain twice */
	OP_WHO,		/* answers the user that OPEN named */
};

/* The echo backend does not answer when an area of this offset is shared, until the session is closed. */
#define UNANSWERED_AREA 0x5eed000

/* Of the test that runs. */
extern int failures;

#define CHECK(condition) do { \
		int saved_ = errno; \
		if (!(condition)) { \
			failures++; \
			printf("# %s:%d: %s (errno %s)\n", __func__, __LINE__, #condition, strerror(saved_)); \
		} \
		errno = saved_; \
	} while (0)
#define CHECK_OK(call) do { \
		if ((call) < 0) { \
			failures++; \
			printf("# %s:%d: %s: %s\n", __func__, __LINE__, #call, strerror(errno)); \
		} \
	} while (0)
#define CHECK_ERR(call, error) do { \
		long rc_ = (call); \
		if (rc_ >= 0 || errno != (error)) { \
			failures++; \
			printf("# %s:%d: %s: %ld, %s instead of %s\n", __func__, __LINE__, #call, rc_, \
			       rc_ < 0 ? strerror(errno) : "success", #error); \
		} \
	} while (0)

static inline int open_device(void)
{
	int fd = open(DEVICE, O_RDWR | O_CLOEXEC);

	CHECK(fd >= 0);
	return fd;
}

static inline void *map(size_t bytes)
{
	return mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

static inline int ioctl_call(int fd, struct cuda_call *call)
{
	return ioctl(fd, CUDA_CALL, call);
}

static inline int unpin(int fd, uint64_t tag)
{
	return ioctl(fd, CUDA_UNPIN, &tag);
}

static inline int is_fresh(int fd, uint64_t tag)
{
	return ioctl(fd, CUDA_FRESH, &tag);
}

static inline struct cuda_info limits(void)
{
	struct cuda_info info = { 0 };
	int fd = open_device();

	CHECK_OK(ioctl(fd, CUDA_INFO, &info));
	close(fd);
	return info;
}

/* A call with a payload of three words; the words are good until the thread's next op_call. */
static inline struct cuda_call op_call(uint64_t op, uint64_t a, uint64_t b, void *reply, uint32_t bytes)
{
	static __thread uint64_t words[3];

	words[0] = op;
	words[1] = a;
	words[2] = b;
	return (struct cuda_call){ .payload = PTR(words), .payload_bytes = sizeof(words),
				   .reply = PTR(reply), .reply_bytes = bytes };
}

static inline uint64_t checksum(const unsigned char *p, size_t bytes)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < bytes; i++)
		sum += p[i] * ((i + 1) % 251 + 1);
	return sum;
}

static inline int is_filled(const unsigned char *p, size_t bytes, uint64_t seed)
{
	for (size_t i = 0; i < bytes; i++)
		if (p[i] != (seed + 1 + i) % 253)
			return 0;
	return 1;
}

static inline uint64_t sum_of(int fd, const void *p, size_t bytes)
{
	uint64_t answer[2] = { 0, 0 };
	struct cuda_call c = op_call(OP_SUM_FILL, 0, 0, answer, sizeof(answer));

	c.in_addr = PTR(p);
	c.in_bytes = bytes;
	CHECK_OK(ioctl_call(fd, &c));
	return answer[0];
}

/* The tests, by file. */
/* calls.c */
void info(void);
void echo(void);
void arguments(void);
void replies(void);
void threads(void);
void quota(void);
void latency(void);
/* buffers.c */
void bulk(void);
void scattered(void);
void file_mappings(void);
void huge_pages(void);
/* kept.c */
void keep(void);
void keep_to_read(void);
void track(void);
void pin_quota(void);
void shared_area(void);
/* process.c */
void events(void);
void signals(void);
void killed(void);
void forked(void);
void many_files(void);
void full_rings(void);
/* stress.c */
void stress(void);
/* users.c */
void namespaces(void);
void user_sessions(void);
void subordinate_users(void);
void user_rings(void);
void user_pins(void);
void strict(void);
void statistics(void);
void unanswered_area(void);
/* link.c */
void lost(void);
void reopen(void);
void nodevice(void);
void die(void);
void broken(void);

struct test {
	const char *name;
	void (*run)(void);
	int alone;	/* needs nobody's help */
};

static inline int run_tests(const struct test *tests, int argc, char **argv)
{
	int bad = 0;

	for (const struct test *t = tests; t->name; t++) {
		int wanted = argc < 2 && t->alone;
		struct timespec a, b;

		for (int i = 1; i < argc; i++)
			wanted |= !strcmp(argv[i], t->name);
		if (!wanted)
			continue;
		failures = 0;
		clock_gettime(CLOCK_MONOTONIC, &a);
		t->run();
		clock_gettime(CLOCK_MONOTONIC, &b);
		printf("%s %s # %.2f s\n", failures ? "not ok" : "ok", t->name,
		       b.tv_sec - a.tv_sec + (b.tv_nsec - a.tv_nsec) / 1e9);
		bad += failures != 0;
	}
	printf("# %d failed\n", bad);
	return bad != 0;
}

#endif
