// SPDX-License-Identifier: Apache-2.0 OR MIT
// Copies of ordinary memory in one stream while another stream has not come to its own yet. Whether the second stream's
// wait for the first is said on stderr: NVIDIA's driver may let them.
#include "check.h"

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

using std::chrono::milliseconds;

static std::atomic<bool> release{false}, late{false};

static void wait_for_release(void *) {
    // Whatever goes wrong, the program ends.
    for (int waited = 0; !release; waited += 1) {
        if (waited == 5000) {
            late = true;
            return;
        }
        std::this_thread::sleep_for(milliseconds(1));
    }
}

struct Buffer {
    explicit Buffer(int first) : host(128 << 10), bytes(host.size() * sizeof(int)) {
        for (size_t i = 0; i < host.size(); i++) {
            host[i] = first + (int)i;
        }
        CHECK(cudaMalloc(&device, bytes));
    }

    bool arrived(cudaStream_t stream) {
        std::vector<int> back(host.size());
        CHECK(cudaMemcpyAsync(back.data(), device, bytes, cudaMemcpyDeviceToHost, stream));
        CHECK(cudaStreamSynchronize(stream));
        return back == host;
    }

    std::vector<int> host;
    size_t bytes;
    int *device = nullptr;
};

int main() {
    cudaStream_t held, free_one;
    CHECK(cudaStreamCreateWithFlags(&held, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithFlags(&free_one, cudaStreamNonBlocking));
    Buffer first(1), second(1000);
    CHECK(cudaLaunchHostFunc(held, wait_for_release, nullptr));

    // A copy to the device may return before the stream has come to it, or not.
    std::atomic<bool> returned{false};
    std::thread other([&] {
        CHECK(cudaMemcpyAsync(first.device, first.host.data(), first.bytes, cudaMemcpyHostToDevice, held));
        returned = true;
    });
    for (int waited = 0; !returned && waited < 500; waited++) {
        std::this_thread::sleep_for(milliseconds(1));
    }
    for (int round = 0; round < 3; round++) {
        CHECK(cudaMemcpyAsync(second.device, second.host.data(), second.bytes, cudaMemcpyHostToDevice, free_one));
        REQUIRE(second.arrived(free_one));
    }
    std::printf("the other stream's copies are done\n");
    std::fprintf(stderr, "the first stream %s\n", late ? "was waited for" : "is still held");
    release = true;
    other.join();
    REQUIRE(first.arrived(held));
    std::printf("the first stream's copy too\n");
    CHECK(cudaFree(first.device));
    CHECK(cudaFree(second.device));
    CHECK(cudaStreamDestroy(held));
    CHECK(cudaStreamDestroy(free_one));
    return 0;
}
