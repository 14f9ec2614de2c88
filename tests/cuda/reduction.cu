// SPDX-License-Identifier: Apache-2.0 OR MIT
// Sums, minima and counts over a million integers: shared memory with barriers, warp shuffles, ballots and atomics.
#include "check.h"

#include <algorithm>
#include <vector>

struct Totals {
    unsigned long long by_shared, by_shuffle, by_atomic;
    int smallest, largest;
    unsigned even, odd_bits;
    unsigned long long histogram[16];
};

__global__ void by_shared(const int *values, int n, Totals *totals) {
    __shared__ long long partial[256];
    long long sum = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        sum += values[i];
    }
    partial[threadIdx.x] = sum;
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) {
            partial[threadIdx.x] += partial[threadIdx.x + half];
        }
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        atomicAdd(&totals->by_shared, (unsigned long long)partial[0]);
    }
}

__global__ void by_shuffle(const int *values, int n, Totals *totals) {
    long long sum = 0;
    int smallest = 0x7fffffff, largest = -0x7fffffff - 1;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        sum += values[i];
        smallest = min(smallest, values[i]);
        largest = max(largest, values[i]);
    }
    for (int delta = 16; delta > 0; delta /= 2) {
        sum += __shfl_down_sync(0xffffffff, sum, delta);
        smallest = min(smallest, __shfl_xor_sync(0xffffffff, smallest, delta));
        largest = max(largest, __shfl_xor_sync(0xffffffff, largest, delta));
    }
    if (threadIdx.x % 32 == 0) {
        atomicAdd(&totals->by_shuffle, (unsigned long long)sum);
        atomicMin(&totals->smallest, smallest);
        atomicMax(&totals->largest, largest);
    }
}

__global__ void by_atomic(const int *values, int n, Totals *totals) {
    __shared__ unsigned counts[16];
    if (threadIdx.x < 16) {
        counts[threadIdx.x] = 0;
    }
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        atomicAdd(&totals->by_atomic, (unsigned long long)(long long)values[i]);
        atomicAdd(&counts[values[i] & 15], 1u);
        const unsigned mask = __activemask();
        const unsigned even = __ballot_sync(mask, (values[i] & 1) == 0);
        if ((threadIdx.x & 31) == __ffs(mask) - 1) {
            atomicAdd(&totals->even, (unsigned)__popc(even));
        }
        if (__popc(values[i]) & 1) {
            atomicInc(&totals->odd_bits, 0xffffffff);
        }
    }
    __syncthreads();
    if (threadIdx.x < 16) {
        atomicAdd(&totals->histogram[threadIdx.x], (unsigned long long)counts[threadIdx.x]);
    }
}

int main(int argc, char **argv) {
    const int n = argc > 1 ? std::atoi(argv[1]) : 1 << 20;
    std::vector<int> values(n);
    Random(1).fill(values.data(), n * sizeof(int));
    long long sum = 0;
    unsigned even = 0, odd_bits = 0;
    unsigned long long histogram[16] = {};
    for (int value : values) {
        sum += value;
        even += (value & 1) == 0;
        odd_bits += __builtin_popcount(value) & 1;
        histogram[value & 15]++;
    }

    int *device;
    Totals *device_totals, totals = {};
    totals.smallest = 0x7fffffff;
    totals.largest = -0x7fffffff - 1;
    CHECK(cudaMalloc(&device, n * sizeof(int)));
    CHECK(cudaMalloc(&device_totals, sizeof totals));
    CHECK(cudaMemcpy(device, values.data(), n * sizeof(int), cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(device_totals, &totals, sizeof totals, cudaMemcpyHostToDevice));
    by_shared<<<32, 256>>>(device, n, device_totals);
    by_shuffle<<<32, 256>>>(device, n, device_totals);
    by_atomic<<<32, 256>>>(device, n, device_totals);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(&totals, device_totals, sizeof totals, cudaMemcpyDeviceToHost));

    std::printf("sum %lld, %lld, %lld\n", (long long)totals.by_shared, (long long)totals.by_shuffle,
                (long long)totals.by_atomic);
    std::printf("smallest %d, largest %d, even %u, odd parity %u\n", totals.smallest, totals.largest, totals.even,
                totals.odd_bits);
    REQUIRE((long long)totals.by_shared == sum);
    REQUIRE((long long)totals.by_shuffle == sum);
    REQUIRE((long long)totals.by_atomic == sum);
    REQUIRE(totals.smallest == *std::min_element(values.begin(), values.end()));
    REQUIRE(totals.largest == *std::max_element(values.begin(), values.end()));
    REQUIRE(totals.even == even && totals.odd_bits == odd_bits);
    REQUIRE(std::equal(histogram, histogram + 16, totals.histogram));
    CHECK(cudaFree(device));
    CHECK(cudaFree(device_totals));
    return 0;
}
