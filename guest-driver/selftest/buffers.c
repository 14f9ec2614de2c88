// SPDX-License-Identifier: GPL-2.0-only
/* Buffers that a call names: all sizes, all kinds of memory. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "driver_test.h"

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

void bulk(void)
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
void scattered(void)
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

void file_mappings(void)
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
void huge_pages(void)
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
