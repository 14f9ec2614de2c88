// SPDX-License-Identifier: GPL-2.0-only
/* Plain calls: arguments, limits, answers, many at once. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "driver_test.h"

void info(void)
{
	struct cuda_info i = limits();
	struct stat st;

	CHECK(i.protocol_version == 2);
	CHECK(i.max_payload_bytes >= 24 && i.max_bulk_bytes >= MIB);
	CHECK(i.max_outstanding >= 1 && i.reserved == 0);
	CHECK(stat(DEVICE, &st) == 0 && (st.st_mode & 0777) == 0666);
}

void echo(void)
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

void arguments(void)
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
	BAD(EINVAL, .flags = CALL_READ);
	BAD(EINVAL, .flags = 8);
	BAD(EINVAL, .flags = CALL_KEEP | CALL_TRACK | CALL_READ, .out_addr = PTR(page), .out_bytes = 4096);
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

void replies(void)
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

void threads(void)
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

void quota(void)
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

void latency(void)
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
