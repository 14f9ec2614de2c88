// SPDX-License-Identifier: Apache-2.0 OR MIT
// Waits for work that is soon done: everything before has happened, nothing else is waited for, errors and what device
// code prints come with the wait.
#include "check.h"

#include <atomic>
#include <chrono>
#include <cstring>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

using std::chrono::microseconds;

__global__ void set(volatile int *place, int value, int steps) {
    for (volatile int i = 0; i < steps; i = i + 1) {
    }
    *place = value;
}

__global__ void fill(unsigned char *bytes, int count, int value) {
    for (int i = threadIdx.x; i < count; i += blockDim.x) bytes[i] = (unsigned char)(value + i);
}

static const int kShort = 1, kLong = 20000;
// A place for each stream, which both sides see.
static volatile int *places;

struct Streams {
    Streams() {
        CHECK(cudaStreamCreate(&all[1]));
        CHECK(cudaStreamCreateWithFlags(&all[2], cudaStreamNonBlocking));
        CHECK(cudaStreamCreateWithFlags(&all[3], cudaStreamNonBlocking));
    }
    cudaStream_t all[5] = {cudaStreamLegacy, nullptr, nullptr, nullptr, cudaStreamPerThread};
};

static void results(cudaStream_t stream, int which) {
    for (int round = 1; round <= 200; round++) {
        set<<<1, 1, 0, stream>>>(places + which, round, round % 16 ? kShort : kLong);
        CHECK(cudaStreamSynchronize(stream));
        REQUIRE(places[which] == round);
    }
}

// Of lengths around those that take another way.
static void fetches(cudaStream_t stream) {
    const int most = 70000;
    unsigned char *device;
    CHECK(cudaMalloc(&device, most));
    int value = 1;
    for (int bytes : {1, 3, 64, 4096, 16383, 16384, 16385, 65536, most}) {
        for (int round = 0; round < 20; round++, value++) {
            std::vector<unsigned char> host(bytes + 2, 77);
            fill<<<1, 64, 0, stream>>>(device, bytes, value);
            if (round % 2) {
                CHECK(cudaMemcpyAsync(host.data() + 1, device, bytes, cudaMemcpyDeviceToHost, stream));
                CHECK(cudaStreamSynchronize(stream));
            } else {
                CHECK(cudaStreamSynchronize(stream));
                CHECK(cudaMemcpy(host.data() + 1, device, bytes, cudaMemcpyDeviceToHost));
            }
            for (int i = 0; i < bytes; i++) REQUIRE(host[1 + i] == (unsigned char)(value + i));
            REQUIRE(host[0] == 77 && host[bytes + 1] == 77);
        }
    }
    CHECK(cudaFree(device));
}

// All streams whose bit is set have work when the device is waited for.
static void everything(const Streams &streams) {
    int value = 1000;
    for (int round = 0; round < 6; round++) {
        for (unsigned used = 1; used < 1u << 5; used++, value++) {
            for (int repeated = 0; repeated < 3; repeated++) {
                for (int which = 0; which < 5; which++) {
                    places[which] = 0;
                }
                for (int which = 0; which < 5; which++) {
                    if (used >> which & 1) {
                        set<<<1, 1, 0, streams.all[which]>>>(places + which, value, (which + round) % 3 ? kShort : kLong);
                    }
                }
                CHECK(cudaDeviceSynchronize());
                for (int which = 0; which < 5; which++) {
                    REQUIRE(places[which] == (used >> which & 1 ? value : 0));
                }
            }
        }
    }
}

// Work of a thread that has ended counts, too.
static void of_others(const Streams &streams) {
    for (int round = 1; round <= 30; round++) {
        places[2] = places[3] = 0;
        std::thread([&] { set<<<1, 1, 0, streams.all[3]>>>(places + 3, round, kLong); }).join();
        set<<<1, 1, 0, streams.all[2]>>>(places + 2, round, kShort);
        CHECK(cudaDeviceSynchronize());
        REQUIRE(places[2] == round && places[3] == round);
        std::thread([&] { set<<<1, 1, 0, streams.all[2]>>>(places + 2, -round, kLong); }).join();
        CHECK(cudaStreamSynchronize(streams.all[2]));
        REQUIRE(places[2] == -round);
    }
}

static void host_functions(cudaStream_t stream) {
    static int calls;
    calls = 0;
    auto function = [](void *delay) {
        std::this_thread::sleep_for(microseconds((long)delay));
        calls++;
    };
    for (int round = 1; round <= 20; round++) {
        set<<<1, 1, 0, stream>>>(places, round, kShort);
        CHECK(cudaLaunchHostFunc(stream, function, (void *)(round % 2 ? 0L : 500L)));
        CHECK(cudaStreamSynchronize(stream));
        REQUIRE(calls == round && places[0] == round);
    }
}

static std::atomic<bool> release{false}, late{false};

static void wait_for_release(void *) {
    // Whatever goes wrong, the program ends.
    for (int waited = 0; !release; waited++) {
        if (waited == 5000) {
            late = true;
            return;
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
}

// The default stream waits for a blocking one. Who waits for the blocking one does not wait for that.
static void what_came_later(cudaStream_t blocking) {
    set<<<1, 1, 0, blocking>>>(places + 1, 5, kShort);
    CHECK(cudaLaunchHostFunc(cudaStreamLegacy, wait_for_release, nullptr));
    CHECK(cudaStreamSynchronize(blocking));
    REQUIRE(places[1] == 5 && !late);
    release = true;
    CHECK(cudaDeviceSynchronize());
    REQUIRE(!late);
}

static const char *kPrints = R"(.version 7.0
.target sm_75
.address_size 64
.extern .func (.param .b32 result) vprintf (.param .b64 format, .param .b64 arguments);
.global .align 1 .b8 text[19] = {116, 104, 101, 32, 100, 101, 118, 105, 99, 101, 32, 112, 114, 105, 110, 116, 115, 10, 0};
.visible .entry prints()
{
    .reg .b32 %r<2>;
    .reg .b64 %rd<4>;
    mov.u64 %rd1, text;
    cvta.global.u64 %rd2, %rd1;
    mov.u64 %rd3, 0;
    {
        .param .b64 format;
        st.param.b64 [format], %rd2;
        .param .b64 arguments;
        st.param.b64 [arguments], %rd3;
        .param .b32 result;
        call.uni (result), vprintf, (format, arguments);
        ld.param.b32 %r1, [result];
    }
    ret;
}
)";

// Code that prints, loaded after waits that had nothing to print.
static void prints(cudaStream_t stream) {
    cudaLibrary_t library;
    cudaKernel_t kernel;
    CHECK(cudaLibraryLoadData(&library, kPrints, nullptr, nullptr, 0, nullptr, nullptr, 0));
    CHECK(cudaLibraryGetKernel(&kernel, library, "prints"));
    for (int round = 0; round < 3; round++) {
        std::printf("before\n");
        CHECK(cudaLaunchKernel((const void *)kernel, dim3(1), dim3(1), nullptr, 0, stream));
        if (round == 2) {
            CHECK(cudaDeviceSynchronize());
        } else {
            CHECK(cudaStreamSynchronize(stream));
        }
        std::printf("after\n");
    }
    results(stream, 2);
    CHECK(cudaLibraryUnload(library));
}

// The error of a kernel is that of the call that waits for it.
static int fails(char how) {
    Streams streams;
    int *device, host = 0;
    CHECK(cudaMalloc(&device, 4));
    CHECK(cudaHostAlloc((void **)&places, 64, cudaHostAllocMapped));
    results(streams.all[2], 2);
    results(cudaStreamLegacy, 0);
    CHECK(cudaDeviceSynchronize());
    cudaStream_t stream = how == 's' ? streams.all[2] : cudaStreamLegacy;
    set<<<1, 1, 0, stream>>>((int *)1024, 1, kShort);
    CHECK(cudaGetLastError());
    const cudaError_t error = how == 's'   ? cudaStreamSynchronize(stream)
                              : how == 'd' ? cudaDeviceSynchronize()
                                           : cudaMemcpy(&host, device, 4, cudaMemcpyDeviceToHost);
    std::printf("%c: error %d, then %d\n", how, (int)error, (int)cudaStreamSynchronize(stream));
    std::fflush(stdout);
    return 0;
}

int main() {
    for (char how : {'s', 'd', 'c'}) {
        std::fflush(stdout);
        const pid_t child = fork();
        REQUIRE(child >= 0);
        if (child == 0) _exit(fails(how));
        int status;
        REQUIRE(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    Streams streams;
    CHECK(cudaHostAlloc((void **)&places, 64, cudaHostAllocMapped));
    memset((void *)places, 0, 64);
    for (int which = 0; which < 5; which++) {
        results(streams.all[which], which);
        fetches(streams.all[which]);
        host_functions(streams.all[which]);
    }
    everything(streams);
    of_others(streams);
    what_came_later(streams.all[1]);
    std::printf("all that was waited for was there\n");
    prints(streams.all[2]);
    return 0;
}
