// SPDX-License-Identifier: Apache-2.0 OR MIT
// Managed memory that is attached to a stream, or to the host: the program uses it while work goes on that may not.
#include "check.h"

static const size_t kCount = 1 << 20;
// The program tries again if the machine was too slow for the time that a kernel waits.
static const int kTries = 8;
static const unsigned long long kLimit = 1500 * 1000 * 1000ull;

__global__ void add(unsigned *values, unsigned by) {
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < kCount; i += gridDim.x * blockDim.x) values[i] += by;
}

// Waits until the program sets `go`, for `kLimit` nanoseconds at most: then it sets `*late`.
__global__ void wait_for(const volatile int *go, volatile int *late) {
    unsigned long long start, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
    while (!*go) {
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
        if (now - start > kLimit) {
            *late = 1;
            return;
        }
    }
}

struct Flags {
    int go, late;
};

static unsigned *numbers(unsigned flags) {
    unsigned *values;
    CHECK(cudaMallocManaged(&values, kCount * sizeof *values, flags));
    for (size_t i = 0; i < kCount; i++) values[i] = (unsigned)i;
    return values;
}

// Calls `use` while a kernel of another stream waits for the program. Returns whether it ended before the kernel gave up.
template <class Use> static bool beside_work(Flags *flags, cudaStream_t other, Use use) {
    flags->go = flags->late = 0;
    wait_for<<<1, 1, 0, other>>>(&flags->go, &flags->late);
    CHECK(cudaGetLastError());
    use();
    *(volatile int *)&flags->go = 1;
    CHECK(cudaStreamSynchronize(other));
    return !flags->late;
}

template <class Use> static void tries(const char *what, Flags *flags, cudaStream_t other, Use use) {
    bool held = false;
    for (int i = 0; i < kTries && !held; i++) held = beside_work(flags, other, use);
    std::printf("%s: %s\n", what, held ? "used beside work" : "waits for all work");
}

int main() {
    Flags *flags;
    CHECK(cudaHostAlloc(&flags, sizeof *flags, cudaHostAllocMapped));
    cudaStream_t own, other;
    CHECK(cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    unsigned *values = numbers(cudaMemAttachGlobal);

    // Kernels are loaded before one of them waits.
    add<<<64, 128, 0, own>>>(values, 0);
    wait_for<<<1, 1, 0, other>>>((flags->go = 1, &flags->go), &flags->late);
    CHECK(cudaDeviceSynchronize());

    CHECK(cudaStreamAttachMemAsync(own, values, 0, cudaMemAttachSingle));
    CHECK(cudaStreamSynchronize(own));
    unsigned expected = 5;
    bool right = true;
    const auto use = [&] {
        add<<<64, 128, 0, own>>>(values, 1);
        CHECK(cudaStreamSynchronize(own));
        expected += 1;
        right = right && values[5] == expected;
        values[5] += 10;
        expected += 10;
    };
    tries("attached to a stream", flags, other, use);
    std::printf("contents: %s\n", right ? "right" : "wrong");

    // The program's from now on, whatever work there is.
    CHECK(cudaStreamAttachMemAsync(own, values, 0, cudaMemAttachHost));
    CHECK(cudaStreamSynchronize(own));
    tries("attached to the host", flags, other, [&] { values[7] += 1; });
    right = right && values[5] == expected && values[7] >= 8 && values[kCount - 1] >= kCount;
    std::printf("contents: %s\n", right ? "right" : "wrong");

    // Kernels of all streams may use it again.
    CHECK(cudaStreamAttachMemAsync(own, values, 0, cudaMemAttachGlobal));
    CHECK(cudaStreamSynchronize(own));
    add<<<64, 128, 0, other>>>(values, 1);
    CHECK(cudaStreamSynchronize(other));
    std::printf("attached to all: %s\n", values[5] == expected + 1 ? "right" : "wrong");

    // The end of the stream ends what is attached to it.
    CHECK(cudaStreamAttachMemAsync(own, values, 0, cudaMemAttachSingle));
    CHECK(cudaStreamDestroy(own));
    add<<<64, 128, 0, other>>>(values, 1);
    CHECK(cudaStreamSynchronize(other));
    std::printf("stream destroyed: %s\n", values[5] == expected + 2 ? "right" : "wrong");

    // Allocated for the host, then given to a stream.
    unsigned *mine = numbers(cudaMemAttachHost);
    CHECK(cudaStreamAttachMemAsync(other, mine, 0, cudaMemAttachSingle));
    add<<<64, 128, 0, other>>>(mine, 3);
    CHECK(cudaStreamSynchronize(other));
    std::printf("allocated for the host: %s\n", mine[9] == 12 ? "right" : "wrong");

    CHECK(cudaFree(mine));
    CHECK(cudaFree(values));
    CHECK(cudaStreamDestroy(other));
    CHECK(cudaFreeHost(flags));
    return 0;
}
