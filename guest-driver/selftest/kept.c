// SPDX-License-Identifier: GPL-2.0-only
/* Memory that the device keeps after a call, and shared areas. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "driver_test.h"

void keep(void)
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

/* The device keeps what the process may not write, and the file stays as it is. */
void keep_to_read(void)
{
	static const int kinds[] = { MAP_PRIVATE, MAP_SHARED };
	const size_t BYTES = 1 * MIB;
	const char *path = "/tmp/driver_test.read";
	int fd = open_device(), file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
	unsigned char *q = map(BYTES);
	unsigned long long answer[2];
	unsigned long long sum;

	for (size_t i = 0; i < BYTES; i++)
		q[i] = i * 7 % 241;
	sum = checksum(q, BYTES);
	CHECK(file >= 0 && write(file, q, BYTES) == (ssize_t)BYTES);
	for (unsigned int i = 0; i < 2; i++) {
		unsigned char *p = mmap(NULL, BYTES, PROT_READ, kinds[i], file, 0);
		struct cuda_call c = op_call(OP_SUM_FILL, 3, 0, answer, sizeof(answer));

		CHECK(p != MAP_FAILED);
		if (p == MAP_FAILED)
			continue;
		c.out_addr = PTR(p);
		c.out_bytes = BYTES;
		c.flags = CALL_KEEP;
		CHECK_ERR(ioctl_call(fd, &c), EFAULT);
		c.flags = CALL_KEEP | CALL_READ;
		CHECK_OK(ioctl_call(fd, &c));
		munmap(p, BYTES);
		for (int again = 0; again < 2; again++) {
			struct cuda_call d = op_call(OP_KEPT, c.tag, 9, answer, sizeof(answer));

			CHECK_OK(ioctl_call(fd, &d));
			CHECK(answer[0] == sum);
		}
		CHECK_OK(unpin(fd, c.tag));
		CHECK_ERR(unpin(fd, c.tag), ENOENT);
		memset(q, 0, BYTES);
		CHECK(pread(file, q, BYTES, 0) == (ssize_t)BYTES && checksum(q, BYTES) == sum);
	}
	unlink(path);
	close(file);
	munmap(q, BYTES);
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

void track(void)
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

void pin_quota(void)
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

void shared_area(void)
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
