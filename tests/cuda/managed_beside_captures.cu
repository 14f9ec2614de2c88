// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// One thread captures, another one uses managed memory in a stream of its own meanwhile, and frees memory that its work still uses:
// kernels and the program see what the other has written, and no capture ends.

#include "check.h"

#include <unistd.h>

#include <condition_variable>
#include <mutex>
#include <thread>

static const int kRounds = 3;
static const int kCount = 1 << 20;
static const int kShort = 1 << 10;

__managed__ int counter = 3;

__global__ void add(int *values, int count, int by) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) values[i] += by;
}

__global__ void count_on(int by) { counter += by; }

static void CUDART_CB be_slow(void *) { usleep(5000); }

// The threads take turns: the one that captures stops inside of its capture, until the other one has done a round.
class Turns {
  public:
    void pass_and_wait() {
        std::unique_lock<std::mutex> lock(mutex_);
        others_ = true;
        changed_.notify_all();
        changed_.wait(lock, [this] { return !others_; });
    }
    // Returns false if there are no more.
    bool wait() {
        std::unique_lock<std::mutex> lock(mutex_);
        changed_.wait(lock, [this] { return others_ || over_; });
        return !over_;
    }
    void pass() {
        std::lock_guard<std::mutex> lock(mutex_);
        others_ = false;
        changed_.notify_all();
    }
    void end() {
        std::lock_guard<std::mutex> lock(mutex_);
        over_ = true;
        changed_.notify_all();
    }

  private:
    std::mutex mutex_;
    std::condition_variable changed_;
    bool others_ = false;
    bool over_ = false;
};

static int differing(const int *values, int count, int first, int step) {
    int wrong = 0;
    for (int i = 0; i < count; i++) wrong += values[i] != first + i * step;
    return wrong;
}

// Counts of what was not as written.
struct Wrong {
    int kept = 0, fresh = 0, variable = 0, reused = 0, pooled = 0;
};

// Uses memory of one kind: the program writes it, a kernel adds to it, the program reads it.
static int use(int *values, int count, int first, cudaStream_t stream) {
    for (int i = 0; i < count; i++) values[i] = first + i;
    add<<<32, 64, 0, stream>>>(values, count, 7);
    CHECK(cudaGetLastError());
    CHECK(cudaStreamSynchronize(stream));
    return differing(values, count, first + 7, 1);
}

// Frees memory that queued work writes, and has other memory at once.
static int reuse(int first, cudaStream_t stream) {
    int *old, *now;
    CHECK(cudaMallocManaged(&old, kShort * sizeof(int)));
    CHECK(cudaLaunchHostFunc(stream, be_slow, nullptr));
    add<<<1, 64, 0, stream>>>(old, kShort, 7);
    CHECK(cudaGetLastError());
    CHECK(cudaFree(old));
    CHECK(cudaMallocManaged(&now, kShort * sizeof(int)));
    for (int i = 0; i < kShort; i++) now[i] = first;
    CHECK(cudaStreamSynchronize(stream));
    const int wrong = differing(now, kShort, first, 0);
    CHECK(cudaFree(now));
    return wrong;
}

// Uses memory from a pool of the host twice. Such memory may only be freed after its use.
static int pooled(cudaMemPool_t pool, int first, cudaStream_t stream) {
    int wrong = 0;
    for (int i = 0; i < 2; i++) {
        int *values;
        CHECK(cudaMallocFromPoolAsync((void **)&values, kShort * sizeof(int), pool, stream));
        CHECK(cudaStreamSynchronize(stream));
        wrong += use(values, kShort, first + i, stream);
        CHECK(cudaFree(values));
    }
    return wrong;
}

static void work(Turns &turns, cudaMemPool_t pool, Wrong &wrong) {
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    int *kept;
    CHECK(cudaMallocManaged(&kept, kCount * sizeof(int)));
    for (int round = 1; turns.wait(); round++) {
        int *fresh;
        CHECK(cudaMallocManaged(&fresh, kCount * sizeof(int)));
        wrong.kept += use(kept, kCount, round, stream);
        wrong.fresh += use(fresh, kCount, 2 * round, stream);
        CHECK(cudaFree(fresh));
        wrong.reused += reuse(round, stream);
        wrong.pooled += pooled(pool, round, stream);
        counter = 100 * round;
        count_on<<<1, 1, 0, stream>>>(7);
        CHECK(cudaGetLastError());
        CHECK(cudaStreamSynchronize(stream));
        wrong.variable += counter != 100 * round + 7;
        turns.pass();
    }
    CHECK(cudaFree(kept));
    CHECK(cudaStreamDestroy(stream));
}

// Captures two additions with a turn of the other thread between them, and executes them.
static void capture(cudaStream_t stream, cudaStreamCaptureMode mode, int *sum, Turns &turns) {
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CHECK(cudaStreamBeginCapture(stream, mode));
    add<<<1, 1, 0, stream>>>(sum, 1, 1);
    CHECK(cudaGetLastError());
    turns.pass_and_wait();
    add<<<1, 1, 0, stream>>>(sum, 1, 10);
    CHECK(cudaGetLastError());
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
}

int main() {
    int *sum, all;
    CHECK(cudaMalloc(&sum, sizeof(int)));
    CHECK(cudaMemset(sum, 0, sizeof(int)));
    cudaMemPoolProps props = {};
    props.allocType = cudaMemAllocationTypePinned;
    props.location.type = cudaMemLocationTypeHost;
    cudaMemPool_t pool;
    CHECK(cudaMemPoolCreate(&pool, &props));
    cudaMemAccessDesc access = {{cudaMemLocationTypeDevice, 0}, cudaMemAccessFlagsProtReadWrite};
    CHECK(cudaMemPoolSetAccess(pool, &access, 1));
    cudaStream_t streams[2];
    CHECK(cudaStreamCreate(&streams[0]));
    CHECK(cudaStreamCreateWithFlags(&streams[1], cudaStreamNonBlocking));
    CHECK(cudaDeviceSynchronize());
    Turns turns;
    Wrong wrong;
    std::thread other([&] { work(turns, pool, wrong); });
    for (cudaStream_t stream : streams) {
        for (cudaStreamCaptureMode mode : {cudaStreamCaptureModeRelaxed, cudaStreamCaptureModeThreadLocal}) {
            for (int round = 0; round < kRounds; round++) capture(stream, mode, sum, turns);
        }
    }
    turns.end();
    other.join();
    CHECK(cudaMemcpy(&all, sum, sizeof(int), cudaMemcpyDeviceToHost));
    std::printf("captured additions: %d\n", all);
    std::printf("wrong: %d kept, %d fresh, %d pooled, %d of the variable\n", wrong.kept, wrong.fresh, wrong.pooled,
                wrong.variable);
    std::printf("written after a free: %d\n", wrong.reused);
    for (cudaStream_t stream : streams) CHECK(cudaStreamDestroy(stream));
    CHECK(cudaMemPoolDestroy(pool));
    CHECK(cudaFree(sum));
    return 0;
}
