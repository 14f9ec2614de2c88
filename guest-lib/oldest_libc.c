/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Functions that the guest's libraries use and old C libraries lack (`OLDEST_GLIBC` in xtask); linked into each library, for itself. */
#include <sys/syscall.h>
#include <unistd.h>

__attribute__((visibility("hidden"))) pid_t gettid(void)
{
	return syscall(SYS_gettid);
}
