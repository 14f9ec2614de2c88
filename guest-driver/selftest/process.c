// SPDX-License-Identifier: GPL-2.0-only
/* What a process may do to its calls: signals, death, fork, many files; and its events. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "driver_test.h"

void events(void)
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

static void on_alarm(int sig)
{
	(void)sig;
}

void signals(void)
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

void killed(void)
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

void forked(void)
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

void many_files(void)
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
void full_rings(void)
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
