// SPDX-License-Identifier: Apache-2.0 OR MIT
// Keeps the GPU busy.
#pragma once

// Returns after that many nanoseconds of the GPU's clock, and how many these were.
static __device__ unsigned long long stay_busy(unsigned long long nanoseconds) {
    unsigned long long begin, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
    do asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    while (now - begin < nanoseconds);
    return now - begin;
}
