// SPDX-License-Identifier: Apache-2.0 OR MIT
// The wall clock jumps by years, forwards and backwards, each time that it is read. Other clocks are as they are.
#define _GNU_SOURCE
#include <stdatomic.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static atomic_uint reads;

static time_t jump(void)
{
	const time_t year = 31536000;

	return (atomic_fetch_add(&reads, 1) % 2 ? 10 : -10) * year;
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
	long result = syscall(SYS_clock_gettime, clock, now);

	if (result == 0 && clock == CLOCK_REALTIME)
		now->tv_sec += jump();
	return result;
}

time_t time(time_t *place)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	if (place)
		*place = now.tv_sec;
	return now.tv_sec;
}

int gettimeofday(struct timeval *place, void *zone)
{
	struct timespec now;

	(void)zone;
	clock_gettime(CLOCK_REALTIME, &now);
	place->tv_sec = now.tv_sec;
	place->tv_usec = now.tv_nsec / 1000;
	return 0;
}
