// SPDX-License-Identifier: GPL-2.0-only
/* For a script that stops the backend, unplugs the device, and so on. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "driver_test.h"

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

void lost(void)
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
void reopen(void)
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

void nodevice(void)
{
	CHECK_ERR(open(DEVICE, O_RDWR), ENODEV);
}

void die(void)
{
	int fd = open_device();
	struct cuda_call c = op_call(OP_DIE, 0, 0, NULL, 0);

	CHECK_ERR(ioctl_call(fd, &c), ENOLINK);
	close(fd);
}

/* The device returns a chain twice: the ring is broken for good. */
void broken(void)
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
