// SPDX-License-Identifier: GPL-2.0-only
/*
 * Tests of the driver against a backend that answers echo calls (README.md, "Self test").
 *
 *	driver_test NAME...	runs the named tests
 *	driver_test		runs those that need nobody's help
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "driver_test.h"

static void info(void)
{
	struct cuda_info i = limits();
	struct stat st;

	CHECK(i.protocol_version == 1);
	CHECK(i.max_payload_bytes >= 24 && i.max_bulk_bytes >= MIB);
	CHECK(i.max_outstanding >= 1 && i.reserved == 0);
	CHECK(stat(DEVICE, &st) == 0 && (st.st_mode & 0777) == 0666);
}

static void echo(void)
{
	unsigned int max = limits().max_payload_bytes;
	unsigned char *out = malloc(max), *back = malloc(max);
	int fd = open_device();

	for (unsigned int n = 8; n <= max; n = n < max && n * 3 > max ? max : n * 3) {
		struct cuda_call c = { .payload = PTR(out), .payload_bytes = n,
				       .reply = PTR(back), .reply_bytes = n };

		for (unsigned int i = 8; i < n; i++)
			out[i] = rand();
		memset(out, 0, 8);
		memset(back, 0xee, max);
		CHECK_OK(ioctl_call(fd, &c));
		CHECK(c.reply_bytes == n && !memcmp(out, back, n));
		CHECK(n == max || back[n] == 0xee);
		if (n == max)
			break;
	}
	close(fd);
	free(out);
	free(back);
}

static void arguments(void)
{
	struct cuda_info i = limits();
	struct cuda_call c;
	int fd = open_device();
	char *page = map(4096);
	char buf[64];

#define BAD(error, ...) do { \
		memset(&c, 0, sizeof(c)); \
		c = (struct cuda_call){ .reply = PTR(buf), .reply_bytes = 64, __VA_ARGS__ }; \
		CHECK_ERR(ioctl_call(fd, &c), error); \
	} while (0)

	BAD(EINVAL, .flags = 2);
	BAD(EINVAL, .reserved = 1);
	BAD(EINVAL, .payload_bytes = i.max_payload_bytes + 1, .payload = PTR(page));
	BAD(EINVAL, .reply_bytes = i.max_payload_bytes + 1);
	BAD(EINVAL, .in_addr = PTR(page), .in_bytes = i.max_bulk_bytes + 1);
	BAD(EINVAL, .out_addr = PTR(page), .out_bytes = ~0ull);
	BAD(EINVAL, .flags = CALL_KEEP);
	BAD(EINVAL, .flags = CALL_KEEP, .out_addr = PTR(page), .out_bytes = 100);
	BAD(EINVAL, .flags = CALL_KEEP, .out_addr = PTR(page) + 8, .out_bytes = 4088);
	BAD(ENOENT, .ticket = 77);
	BAD(EFAULT, .payload = 8, .payload_bytes = 8);
	BAD(EFAULT, .in_addr = 4096, .in_bytes = 8);
	BAD(EFAULT, .in_addr = ~0ull - 3, .in_bytes = 8);
	BAD(EFAULT, .in_addr = 0xffffffff81000000ull, .in_bytes = 8);
	BAD(EFAULT, .out_addr = PTR(page), .out_bytes = 8192);
	CHECK_ERR(ioctl(fd, 0x1234, 0), ENOTTY);
	CHECK_ERR(ioctl(fd, CUDA_CALL, 8), EFAULT);
	CHECK_ERR(unpin(fd, 5), ENOENT);
	CHECK_ERR(unpin(fd, 0), ENOENT);
	/* the answer has nowhere to go, the call is over nevertheless */
	c = op_call(OP_ECHO, 0, 0, NULL, 0);
	c.reply = 8;
	c.reply_bytes = 24;
	CHECK_ERR(ioctl_call(fd, &c), EFAULT);
	/* what is read-only cannot be written, but can be read */
	CHECK(!mprotect(page, 4096, PROT_READ));
	BAD(EFAULT, .out_addr = PTR(page), .out_bytes = 4096);
	CHECK(sum_of(fd, page, 4096) == 0);
	close(fd);
	CHECK_ERR(open(DEVICE "x", O_RDWR), ENOENT);
	munmap(page, 4096);
}

static void bulk_size(int fd, size_t bytes, size_t offset)
{
	unsigned char *in = map(bytes + offset), *out = map(bytes + offset + 1);
	unsigned long long answer[2];
	struct cuda_call c = op_call(OP_SUM_FILL, 7, 0, answer, sizeof(answer));

	for (size_t i = 0; i < bytes; i += 97)
		in[offset + i] = i * 31;
	out[offset + bytes] = 0x5a;
	c.in_addr = PTR(in + offset);
	c.in_bytes = bytes;
	c.out_addr = PTR(out + offset);
	c.out_bytes = bytes;
	CHECK_OK(ioctl_call(fd, &c));
	CHECK(c.reply_bytes == 16 && answer[0] == checksum(in + offset, bytes));
	CHECK(is_filled(out + offset, bytes, 7) && out[offset + bytes] == 0x5a);
	munmap(in, bytes + offset);
	munmap(out, bytes + offset + 1);
}

static void bulk(void)
{
	int fd = open_device();
	size_t most = limits().max_bulk_bytes < 64 * MIB ? limits().max_bulk_bytes : 64 * MIB;

	bulk_size(fd, 1, 0);
	bulk_size(fd, 1, 4095);
	bulk_size(fd, 2, 4095);
	bulk_size(fd, 4096, 0);
	bulk_size(fd, 4096, 1);
	bulk_size(fd, 100000, 4000);
	bulk_size(fd, most > 5 * MIB ? 5 * MIB + 3 : most - 1, 777);
	bulk_size(fd, most, 0);
	close(fd);
}

/* every second page of a file is punched out and filled again, so that frames do not lie in a row */
static void scattered(void)
{
	size_t bytes = 16 * MIB;
	int memfd = memfd_create("scattered", 0), fd = open_device();
	unsigned char *p;

	CHECK(!ftruncate(memfd, bytes));
	p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0);
	for (size_t i = 0; i < bytes; i += 4096)
		p[(i * 2654435761u) % bytes & ~4095ul] = i >> 12;
	for (size_t i = 0; i < bytes; i += 4096)
		p[i + 5] = i >> 14;
	CHECK(sum_of(fd, p, bytes) == checksum(p, bytes));
	munmap(p, bytes);
	close(memfd);
	close(fd);
}

static void file_mappings(void)
{
	const char *path = "/tmp/driver_test.file";
	int file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600), fd = open_device();
	unsigned char data[8192], *p;

	for (int i = 0; i < 8192; i++)
		data[i] = i * 7;
	CHECK(write(file, data, 8192) == 8192);
	p = mmap(NULL, 8192, PROT_READ, MAP_PRIVATE, file, 0);
	CHECK(sum_of(fd, p, 8192) == checksum(data, 8192));
	munmap(p, 8192);
	p = mmap(NULL, 8192, PROT_READ, MAP_SHARED, file, 0);
	CHECK(sum_of(fd, p, 8192) == checksum(data, 8192));
	munmap(p, 8192);
	/* code of this very program */
	CHECK(sum_of(fd, (void *)((long)file_mappings & ~4095l), 4096) != 0);
	close(file);
	unlink(path);
	close(fd);
}

/* needs /proc/sys/vm/nr_hugepages >= 4 */
static void huge_pages(void)
{
	size_t bytes = 8 * MIB;
	int fd = open_device();
	unsigned char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
				MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
	unsigned long long answer[2];
	struct cuda_call c = op_call(OP_SUM_FILL, 3, 0, answer, sizeof(answer));

	CHECK(p != MAP_FAILED);
	if (p == MAP_FAILED)
		return;
	p[12345] = 1;
	c.in_addr = c.out_addr = PTR(p);
	c.in_bytes = c.out_bytes = bytes;
	c.flags = CALL_KEEP;
	CHECK_OK(ioctl_call(fd, &c));
	CHECK(is_filled(p, bytes, 3) && answer[1] <= 8);
	CHECK_OK(unpin(fd, c.tag));
	CHECK(sum_of(fd, p + 5, bytes - 5) == checksum(p + 5, bytes - 5));
	munmap(p, bytes);
	close(fd);
}

static void *hammer(void *arg)
{
	struct { int fd; unsigned int seed; int failed; } *t = arg;

	for (int n = 0; n < 100; n++) {
		size_t bytes = 1 + rand_r(&t->seed) % 20000;
		unsigned char *p = malloc(2 * bytes);
		unsigned long long answer[2];
		struct cuda_call c = op_call(OP_SUM_FILL, n, 0, answer, sizeof(answer));

		for (size_t i = 0; i < bytes; i++)
			p[i] = rand_r(&t->seed);
		c.in_addr = PTR(p);
		c.in_bytes = bytes;
		c.out_addr = PTR(p + bytes);
		c.out_bytes = bytes;
		if (ioctl_call(t->fd, &c) || answer[0] != checksum(p, bytes) ||
		    !is_filled(p + bytes, bytes, n))
			t->failed++;
		free(p);
	}
	return NULL;
}

static void threads(void)
{
	enum { N = 64 };
	pthread_t id[N];
	struct { int fd; unsigned int seed; int failed; } t[N];
	int fd = open_device();

	for (int i = 0; i < N; i++) {
		t[i].fd = fd;
		t[i].seed = i;
		t[i].failed = 0;
		pthread_create(&id[i], NULL, hammer, &t[i]);
	}
	for (int i = 0; i < N; i++) {
		pthread_join(id[i], NULL);
		CHECK(!t[i].failed);
	}
	close(fd);
}

static void *one_delay(void *arg)
{
	struct cuda_call c = op_call(OP_DELAY, 500, 0, NULL, 0);
	unsigned long long answer;

	c.reply = PTR(&answer);
	c.reply_bytes = sizeof(answer);
	return (void *)(long)(ioctl_call(*(int *)arg, &c) ? errno : 0);
}

static void quota(void)
{
	enum { MOST = 1100 };
	static pthread_t id[MOST];
	unsigned int n = limits().max_outstanding + 1, refused = 0;
	int fd = open_device();
	void *error;

	CHECK(n <= MOST);
	for (unsigned int i = 0; i < n; i++)
		pthread_create(&id[i], NULL, one_delay, &fd);
	for (unsigned int i = 0; i < n; i++) {
		pthread_join(id[i], &error);
		CHECK(!error || error == (void *)EDQUOT);
		refused += error != NULL;
	}
	CHECK(refused >= 1);
	CHECK_OK(ioctl_call(fd, &(struct cuda_call){ 0 }));
	close(fd);
}

static void keep(void)
{
	const size_t BYTES = limits().max_bulk_bytes < 4 * MIB ? limits().max_bulk_bytes : 4 * MIB;
	unsigned long long answer[2];
	int fd = open_device();
	unsigned char *p = map(BYTES);
	struct cuda_call c = op_call(OP_SUM_FILL, 3, 0, answer, sizeof(answer));
	unsigned long long tag, before;

	memset(p, 1, BYTES);
	c.out_addr = PTR(p);
	c.out_bytes = BYTES;
	c.flags = CALL_KEEP;
	CHECK_OK(ioctl_call(fd, &c));
	tag = c.tag;
	CHECK(tag != 0 && is_filled(p, BYTES, 3));
	/* the device goes on using the pages */
	before = checksum(p, BYTES);
	c = op_call(OP_KEPT, tag, 9, answer, sizeof(answer));
	CHECK_OK(ioctl_call(fd, &c));
	CHECK(answer[0] == before && is_filled(p, BYTES, 9));
	CHECK_ERR(unpin(fd, tag + 2), ENOENT);
	CHECK_OK(unpin(fd, tag));
	CHECK_ERR(unpin(fd, tag), ENOENT);
	c = op_call(OP_KEPT, tag, 9, answer, sizeof(answer));
	CHECK_ERR(ioctl_call(fd, &c), EPROTO);
	/* refused by the device: nothing is kept */
	c = op_call(OP_STATUS, REPLY_NO_RESOURCES, 0, NULL, 0);
	c.out_addr = PTR(p);
	c.out_bytes = BYTES;
	c.flags = CALL_KEEP;
	CHECK_ERR(ioctl_call(fd, &c), EDQUOT);
	CHECK_ERR(unpin(fd, c.tag), ENOENT);
	/* closing gives back what is still kept; so does unmapping first */
	for (int i = 0; i < 8; i++) {
		c = op_call(OP_SUM_FILL, i, 0, answer, sizeof(answer));
		c.out_addr = PTR(p + i * 65536);
		c.out_bytes = 65536;
		c.flags = CALL_KEEP;
		CHECK_OK(ioctl_call(fd, &c));
	}
	munmap(p, BYTES);
	close(fd);
}

static uint64_t track_call(int fd, unsigned char *p, size_t bytes)
{
	unsigned long long answer[2];
	struct cuda_call c = op_call(OP_SUM_FILL, 3, 0, answer, sizeof(answer));

	c.out_addr = PTR(p);
	c.out_bytes = bytes;
	c.flags = CALL_KEEP | CALL_TRACK;
	CHECK_OK(ioctl_call(fd, &c));
	CHECK(is_filled(p, bytes, 3));
	CHECK_OK(is_fresh(fd, c.tag));
	return c.tag;
}

/* The driver takes tracked pages back by itself. */
static void check_gone(int fd, uint64_t tag)
{
	unsigned long long answer[2];

	CHECK_ERR(is_fresh(fd, tag), ENOENT);
	for (int i = 0; i < 100; i++) {
		struct cuda_call c = op_call(OP_KEPT, tag, 9, answer, sizeof(answer));

		if (ioctl_call(fd, &c)) {
			CHECK(errno == EPROTO);
			CHECK_ERR(unpin(fd, tag), ENOENT);
			return;
		}
		usleep(10000);
	}
	CHECK(!"the pages are given back");
}

static void track(void)
{
	const size_t BYTES = 1 * MIB;
	int fd = open_device();
	unsigned char *p = map(BYTES), *q;
	uint64_t tag, other;
	int status;
	pid_t child;

	tag = track_call(fd, p, BYTES);
	CHECK_OK(unpin(fd, tag));
	CHECK_ERR(is_fresh(fd, tag), ENOENT);
	/* what is beside it does not matter */
	tag = track_call(fd, p, BYTES / 2);
	other = track_call(fd, p + BYTES / 2, BYTES / 2);
	munmap(p + BYTES / 2, BYTES / 2);
	CHECK_OK(is_fresh(fd, tag));
	check_gone(fd, other);
	munmap(p, BYTES / 2);
	check_gone(fd, tag);
	p = map(BYTES);
	tag = track_call(fd, p, BYTES);
	CHECK_OK(madvise(p + 4096, 4096, MADV_DONTNEED));
	check_gone(fd, tag);
	tag = track_call(fd, p, BYTES);
	q = mremap(p, BYTES, BYTES, MREMAP_MAYMOVE | MREMAP_FIXED, map(BYTES));
	CHECK(q != MAP_FAILED && q != p);
	check_gone(fd, tag);
	tag = track_call(fd, q, BYTES);
	child = fork();
	if (!child)
		_exit(0);
	waitpid(child, &status, 0);
	check_gone(fd, tag);
	/* what is not tracked is never fresh; without keeping there is nothing to track */
	CHECK_ERR(is_fresh(fd, 1), ENOENT);
	CHECK_ERR(ioctl_call(fd, &(struct cuda_call){ .flags = CALL_TRACK }), EINVAL);
	/* closing ends it, whatever changes at the same time */
	track_call(fd, q, BYTES);
	close(fd);
	munmap(q, BYTES);
}

static void pin_quota(void)
{
	unsigned long long most = limits().max_pinned_bytes, kept = 0;
	size_t step = limits().max_bulk_bytes;
	int fd = open_device();
	struct cuda_call c;
	unsigned char *p;

	if (step > 32 * MIB)
		step = 32 * MIB;
	p = map(step);
	do {
		c = op_call(OP_ECHO, 0, 0, NULL, 0);
		c.out_addr = PTR(p);
		c.out_bytes = step;
		c.flags = CALL_KEEP;
		if (ioctl_call(fd, &c))
			break;
		kept += step;
	} while (kept <= most);
	CHECK(errno == EDQUOT && kept <= most && kept + step > most);
	CHECK_ERR(ioctl_call(fd, &c), EDQUOT);
	close(fd);
	munmap(p, step);
}

static void shared_area(void)
{
	unsigned long long answer[2];
	size_t bytes = 4 * MIB;
	int fd = open_device();
	unsigned char *p;
	struct cuda_call c;

	p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0x100000);
	CHECK(p != MAP_FAILED);
	CHECK(checksum(p, bytes) == 0);
	memset(p, 0x11, bytes);
	c = op_call(OP_KEPT, 0x100000, 4, answer, sizeof(answer));
	CHECK_OK(ioctl_call(fd, &c));
	CHECK(is_filled(p, bytes, 4));
	printf("# %llu pieces\n", answer[1]);
	CHECK_ERR(unpin(fd, 0x100000), ENOENT);
	CHECK(mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0x100000) == MAP_FAILED && errno == EEXIST);
	CHECK(mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0) == MAP_FAILED && errno == EINVAL);
	CHECK(mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_SHARED, fd, 0) == MAP_FAILED);
	CHECK(mmap(NULL, 1ul << 40, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED);
	CHECK(mmap(NULL, 64 * MIB, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED && errno == EDQUOT);
	CHECK(mprotect(p, bytes, PROT_EXEC) && errno == EACCES);
	/* tag 0 is a name like any other */
	CHECK(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) != MAP_FAILED);
	/* pages of the area may be named by calls, too */
	CHECK(sum_of(fd, p, 8192) == checksum(p, 8192));
	close(fd);
	/* the mapping holds the file */
	p[0] = 1;
	munmap(p, bytes);
}

static void events(void)
{
	struct { unsigned int kind, reserved; unsigned long long session, value; } e[4];
	int fd = open_device();
	struct pollfd pfd = { .fd = fd, .events = POLLIN };
	struct cuda_call c;

	CHECK(poll(&pfd, 1, 0) == 0);
	fcntl(fd, F_SETFL, O_NONBLOCK);
	CHECK_ERR(read(fd, e, sizeof(e)), EAGAIN);
	CHECK_ERR(read(fd, e, 8), EINVAL);
	c = op_call(OP_WAKE, 40, 3, NULL, 0);
	CHECK_OK(ioctl_call(fd, &c));
	CHECK(poll(&pfd, 1, 5000) == 1 && pfd.revents == POLLIN);
	fcntl(fd, F_SETFL, 0);
	for (int got = 0; got < 3;) {
		long n = read(fd, e + got, sizeof(e) - got * sizeof(e[0]));

		CHECK(n > 0 && n % sizeof(e[0]) == 0);
		if (n <= 0)
			break;
		got += n / sizeof(e[0]);
	}
	for (int i = 0; i < 3; i++)
		CHECK(e[i].kind == EVENT_WAKE && e[i].value == 40u + i);
	/* more than there are buffers */
	for (int i = 0; i < 10; i++) {
		c = op_call(OP_WAKE, 1000 + i * 20, 20, NULL, 0);
		CHECK_OK(ioctl_call(fd, &c));
		for (int got = 0; got < 20;) {
			long n = read(fd, e, sizeof(e));

			CHECK(n > 0);
			if (n <= 0)
				break;
			got += n / sizeof(e[0]);
		}
	}
	/* the end */
	c = op_call(OP_LOSE, 0, 0, NULL, 0);
	ioctl_call(fd, &c);
	CHECK(poll(&pfd, 1, 5000) == 1);
	CHECK(pfd.revents == (POLLIN | POLLHUP | POLLERR));
	CHECK(read(fd, e, sizeof(e)) == sizeof(e[0]) && e[0].kind == EVENT_SESSION_LOST);
	CHECK(read(fd, e, sizeof(e)) == 0);
	CHECK_ERR(ioctl_call(fd, &(struct cuda_call){ 0 }), ENOLINK);
	CHECK(mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED && errno == ENOLINK);
	close(fd);
}

static void replies(void)
{
	static const struct { unsigned long long payload, used; int error; } lies[] = {
		{ 0, 8, 0 }, { 0, 7, EPROTO }, { 1, 8, EPROTO }, { 65, 73, EPROTO },
		{ 0xffffffff, 0xffffffff, EPROTO }, { 64, 72, 0 },
	};
	int fd = open_device();
	char buf[64];

	for (unsigned int i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
		struct cuda_call c = op_call(OP_LIE, lies[i].payload, lies[i].used, buf, 64);

		if (lies[i].error)
			CHECK_ERR(ioctl_call(fd, &c), lies[i].error);
		else
			CHECK_OK(ioctl_call(fd, &c));
	}
	for (int status = 1; status <= 5; status++) {
		static const int error[] = { 0, EPROTO, ENOLINK, EDQUOT, EPROTO, EPROTO };
		struct cuda_call c = op_call(OP_STATUS, status, 0, buf, 64);

		if (status == REPLY_SESSION_LOST)
			continue;
		CHECK_ERR(ioctl_call(fd, &c), error[status]);
	}
	/* the last one: it makes the session lost */
	struct cuda_call c = op_call(OP_STATUS, REPLY_SESSION_LOST, 0, buf, 64);
	CHECK_ERR(ioctl_call(fd, &c), ENOLINK);
	CHECK_ERR(ioctl_call(fd, &(struct cuda_call){ 0 }), ENOLINK);
	close(fd);
}

static void on_alarm(int sig)
{
	(void)sig;
}

static void signals(void)
{
	struct sigaction action = { .sa_handler = on_alarm };
	unsigned char *p = map(MIB);
	unsigned long long answer = 0;
	int fd = open_device(), interrupted = 0;
	struct cuda_call c = op_call(OP_DELAY, 600, 21, &answer, sizeof(answer));

	sigaction(SIGALRM, &action, NULL);
	memset(p, 1, MIB);
	c.in_addr = PTR(p);
	c.in_bytes = MIB / 2;
	c.out_addr = PTR(p + MIB / 2);
	c.out_bytes = MIB / 2;
	ualarm(50000, 50000);
	while (ioctl_call(fd, &c)) {
		CHECK(errno == EINTR);
		if (errno != EINTR)
			break;
		interrupted++;
	}
	ualarm(0, 0);
	CHECK(interrupted >= 3 && c.ticket != 0);
	CHECK(answer == MIB / 2 && is_filled(p + MIB / 2, MIB / 2, 21));
	/* a ticket is good for one answer */
	CHECK_ERR(ioctl_call(fd, &c), ENOENT);
	/* one that is left alone: closing does not wait for it, its pages stay pinned until the answer */
	c = op_call(OP_DELAY, 300, 5, &answer, sizeof(answer));
	c.out_addr = PTR(p);
	c.out_bytes = MIB;
	ualarm(20000, 20000);
	CHECK_ERR(ioctl_call(fd, &c), EINTR);
	ualarm(0, 0);
	close(fd);
	munmap(p, MIB);
	usleep(500000);
}

static void killed(void)
{
	for (int i = 0; i < 20; i++) {
		pid_t child = fork();

		if (!child) {
			unsigned char *p = map(8 * MIB);
			int fd = open_device();
			struct cuda_call c = op_call(i % 2 ? OP_HOLD : OP_DELAY, 200, 0, p, 8);

			mmap(NULL, MIB, PROT_READ, MAP_SHARED, fd, 0);
			c.out_addr = PTR(p);
			c.out_bytes = 8 * MIB;
			c.flags = i % 4 < 2 ? CALL_KEEP : 0;
			ioctl_call(fd, &c);
			_exit(0);
		}
		usleep(20000 + 5000 * i);
		kill(child, SIGKILL);
		CHECK(waitpid(child, NULL, 0) == child);
	}
	usleep(300000);
}

static void forked(void)
{
	int fd = open_device(), status = -1, pipes[2];
	struct pollfd pfd = { .fd = fd, .events = POLLIN };
	pid_t child;

	CHECK(!pipe(pipes));
	child = fork();
	if (!child) {
		struct cuda_call c = { 0 };
		int bad = 0;

		bad += !(ioctl_call(fd, &c) < 0 && errno == EPERM);
		bad += !(read(fd, &c, 24) < 0 && errno == EPERM);
		bad += !(mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED && errno == EPERM);
		close(fd);
		_exit(bad);
	}
	waitpid(child, &status, 0);
	CHECK(status == 0);
	CHECK_OK(ioctl_call(fd, &(struct cuda_call){ 0 }));
	/* the opener's exit ends the session, even if a child has the file */
	if (!fork()) {
		int own = open_device();

		pfd.fd = own;
		if (!fork()) {
			char ok;

			/* POLLHUP comes when our parent is gone */
			ok = poll(&pfd, 1, 5000) == 1 && (pfd.revents & POLLHUP);
			_exit(write(pipes[1], &ok, 1) != 1);
		}
		usleep(50000);
		_exit(0);
	}
	char ok = 0;
	CHECK(read(pipes[0], &ok, 1) == 1 && ok);
	while (wait(NULL) > 0)
		;
	close(fd);
}

static void many_files(void)
{
	int fd[128], n = 0;

	while (n < 128 && (fd[n] = open(DEVICE, O_RDWR)) >= 0)
		n++;
	printf("# %d files at once\n", n);
	CHECK(n >= 8 && (n == 128 || errno == EDQUOT));
	while (n > 0)
		close(fd[--n]);
}

/* Fills the rings with calls that are never answered; then closing still works and makes room. */
static void full_rings(void)
{
	enum { FILES = 60 };
	struct sigaction action = { .sa_handler = on_alarm };
	unsigned int per_file = limits().max_outstanding, sent = 0;
	int fd[FILES], n = 0, full = 0;

	sigaction(SIGALRM, &action, NULL);
	while (n < FILES && !full) {
		fd[n] = open(DEVICE, O_RDWR);
		if (fd[n] < 0)
			break;
		n++;
		for (unsigned int i = 0; i < per_file && !full; i++) {
			struct cuda_call c = op_call(OP_HOLD, 0, 0, NULL, 0);

			/* a wait for space leaves no ticket; try three times, in case the signal came early */
			for (int try = 0; try < 3 && !c.ticket; try++) {
				/* again and again: the first may come before the call waits */
				ualarm(2000, 2000);
				CHECK_ERR(ioctl_call(fd[n - 1], &c), EINTR);
			}
			ualarm(0, 0);
			full = !c.ticket;
			sent += !full;
		}
	}
	printf("# %u calls in %d files, %s\n", sent, n, full ? "full" : "not full");
	/* the driver's own requests still go through */
	int own = open_device();
	unsigned char *p = mmap(NULL, 4096, PROT_READ, MAP_SHARED, own, 0);
	CHECK(p != MAP_FAILED);
	while (n > 0)
		close(fd[--n]);
	CHECK_OK(ioctl_call(own, &(struct cuda_call){ 0 }));
	close(own);
}

/* The rest is for a script that stops the backend, unplugs the device, and so on. */

/* Waits in calls until the link is lost. */
static void *held_call(void *arg)
{
	unsigned char *p = map(MIB);
	struct cuda_call c = op_call(OP_HOLD, 0, 0, p, 8);
	int rc;

	c.out_addr = PTR(p);
	c.out_bytes = MIB;
	rc = ioctl_call(*(int *)arg, &c);
	return (void *)(long)(rc ? errno : 0);
}

static void lost(void)
{
	enum { N = 16 };
	pthread_t id[N];
	int fd = open_device();
	unsigned char *p = map(MIB);
	struct cuda_call c = op_call(OP_ECHO, 0, 0, NULL, 0);
	struct pollfd pfd = { .fd = fd };
	unsigned long long tag;
	void *error;

	c.out_addr = PTR(p);
	c.out_bytes = MIB;
	c.flags = CALL_KEEP;
	CHECK_OK(ioctl_call(fd, &c));
	tag = c.tag;
	for (int i = 0; i < N; i++)
		pthread_create(&id[i], NULL, held_call, &fd);
	usleep(300000);
	printf("# ready to lose\n");
	fflush(stdout);
	for (int i = 0; i < N; i++) {
		pthread_join(id[i], &error);
		CHECK(error == (void *)ENOLINK);
	}
	CHECK(poll(&pfd, 1, 0) == 1 && pfd.revents == (POLLHUP | POLLERR));
	CHECK_ERR(ioctl_call(fd, &(struct cuda_call){ 0 }), ENOLINK);
	CHECK_ERR(unpin(fd, tag), ENOLINK);
	close(fd);
	munmap(p, MIB);
}

/* Opens as soon as that works again. */
static void reopen(void)
{
	for (int i = 0; i < 200; i++) {
		int fd = open(DEVICE, O_RDWR);

		if (fd >= 0) {
			CHECK_OK(ioctl_call(fd, &(struct cuda_call){ 0 }));
			close(fd);
			return;
		}
		if (errno != ENOLINK && errno != ENODEV)
			break;
		usleep(50000);
	}
	CHECK(!"no backend");
}

static void nodevice(void)
{
	CHECK_ERR(open(DEVICE, O_RDWR), ENODEV);
}

static void die(void)
{
	int fd = open_device();
	struct cuda_call c = op_call(OP_DIE, 0, 0, NULL, 0);

	CHECK_ERR(ioctl_call(fd, &c), ENOLINK);
	close(fd);
}

/* The device returns a chain twice: the ring is broken for good. */
static void broken(void)
{
	int fd = open_device();
	struct cuda_call c = op_call(OP_TWICE, 0, 0, NULL, 0);

	ioctl_call(fd, &c);
	/* A call that is sent too early could be taken for the one that is returned again. */
	usleep(100000);
	c = op_call(OP_HOLD, 0, 0, NULL, 0);
	CHECK_ERR(ioctl_call(fd, &c), ENOLINK);
	close(fd);
	CHECK_ERR(open(DEVICE, O_RDWR), ENOLINK);
}

static void latency(void)
{
	struct timespec a, b;
	int fd = open_device();
	double us;

	clock_gettime(CLOCK_MONOTONIC, &a);
	for (int i = 0; i < 10000; i++)
		CHECK_OK(ioctl_call(fd, &(struct cuda_call){ 0 }));
	clock_gettime(CLOCK_MONOTONIC, &b);
	us = (b.tv_sec - a.tv_sec) * 1e6 + (b.tv_nsec - a.tv_nsec) / 1e3;
	printf("# %.1f us a call\n", us / 10000);
	close(fd);
}

static const struct test tests[] = {
	{ "info", info, 1 }, { "echo", echo, 1 }, { "arguments", arguments, 1 }, { "bulk", bulk, 1 },
	{ "scattered", scattered, 1 }, { "file_mappings", file_mappings, 1 }, { "threads", threads, 1 },
	{ "quota", quota, 1 }, { "keep", keep, 1 }, { "track", track, 1 }, { "pin_quota", pin_quota, 1 },
	{ "shared_area", shared_area, 1 }, { "events", events, 1 }, { "replies", replies, 1 },
	{ "signals", signals, 1 }, { "killed", killed, 1 }, { "forked", forked, 1 },
	{ "many_files", many_files, 1 }, { "latency", latency, 1 }, { "full_rings", full_rings, 0 },
	{ "huge_pages", huge_pages, 0 },
	{ "lost", lost, 0 }, { "reopen", reopen, 0 }, { "nodevice", nodevice, 0 }, { "die", die, 0 },
	{ "broken", broken, 0 }, { NULL, NULL, 0 },
};

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	return run_tests(tests, argc, argv);
}
