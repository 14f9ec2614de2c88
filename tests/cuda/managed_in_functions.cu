// SPDX-License-Identifier: Apache-2.0 OR MIT
// Managed memory that functions of the program, and threads that these wait for, use between kernels, in every way in
// which the program can queue a function; and memory that the program uses while kernels run.
#include "check.h"

#include <atomic>
#include <csignal>
#include <functional>
#include <thread>
#include <vector>

#include <unistd.h>

static const size_t kCount = 1 << 20;
__managed__ int variable[4];

__global__ void add(int *values, int by) {
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < kCount; i += gridDim.x * blockDim.x) values[i] += by;
    if (blockIdx.x == 0 && threadIdx.x == 0) variable[0] += by;
}

// Tells the program that it runs, waits until the program lets it end, and writes each odd element.
__global__ void wait_and_write(volatile int *flags, int *values, int value) {
    flags[0] = 1;
    while (!flags[1]) {
    }
    for (size_t i = 1; i < kCount; i += 2) values[i] = value;
}

// Writes an element, and ends when the program lets it.
__global__ void write_and_wait(volatile int *flags) {
    variable[2] = 5;
    __threadfence_system();
    flags[0] = 1;
    while (!flags[1]) {
    }
}

static volatile int *flags;

static void wait_until_it_runs() {
    while (!flags[0]) usleep(100);
}

struct Job {
    int *values;
    int expected;
    int threads;
    std::atomic<long> wrong;
    std::atomic<bool> done;
};

// Checks each element, and doubles it.
static void check_and_double(Job *job, size_t from, size_t to) {
    long wrong = 0;
    for (size_t i = from; i < to; i++) {
        wrong += job->values[i] != job->expected;
        job->values[i] *= 2;
    }
    job->wrong += wrong;
}

static void function(void *data) {
    Job *job = static_cast<Job *>(data);
    job->wrong += variable[0] != job->expected;
    variable[0] *= 2;
    if (job->threads == 0) {
        check_and_double(job, 0, kCount);
    } else {
        std::vector<std::thread> threads;
        for (int i = 0; i < job->threads; i++) {
            threads.emplace_back(check_and_double, job, kCount * i / job->threads, kCount * (i + 1) / job->threads);
        }
        for (auto &thread : threads) thread.join();
    }
    job->done = true;
}

static void CUDART_CB callback(cudaStream_t, cudaError_t, void *data) { function(data); }

using Queue = std::function<void(cudaStream_t, Job *)>;

static void host_function(cudaStream_t stream, Job *job) { CHECK(cudaLaunchHostFunc(stream, function, job)); }
static void stream_callback(cudaStream_t stream, Job *job) { CHECK(cudaStreamAddCallback(stream, callback, job, 0)); }

static void launch_graph(cudaGraph_t graph, cudaStream_t stream) {
    cudaGraphExec_t exec;
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
}
static void node_of_graph(cudaStream_t stream, Job *job) {
    cudaGraph_t graph;
    CHECK(cudaGraphCreate(&graph, 0));
    cudaHostNodeParams params = {function, job};
    cudaGraphNode_t node;
    CHECK(cudaGraphAddHostNode(&node, graph, nullptr, 0, &params));
    launch_graph(graph, stream);
}
static void captured(cudaStream_t stream, Job *job) {
    cudaGraph_t graph;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    CHECK(cudaLaunchHostFunc(stream, function, job));
    CHECK(cudaStreamEndCapture(stream, &graph));
    launch_graph(graph, stream);
}

// A kernel, a function that reads what it wrote, and a kernel that reads what the function wrote.
static void between_kernels(const char *what, cudaStream_t stream, int *values, const Queue &queue, int threads) {
    for (size_t i = 0; i < kCount; i++) values[i] = 3;
    variable[0] = 3;
    Job job = {values, 10, threads, {0}, {false}};
    add<<<32, 256, 0, stream>>>(values, 7);
    CHECK(cudaGetLastError());
    queue(stream, &job);
    add<<<32, 256, 0, stream>>>(values, 1);
    CHECK(cudaGetLastError());
    CHECK(cudaStreamSynchronize(stream));
    long wrong = variable[0] != 21;
    for (size_t i = 0; i < kCount; i++) wrong += values[i] != 21;
    std::printf("%s, %d threads: %ld wrong inside, %ld behind\n", what, threads, job.wrong.load(), wrong);
}

// The destructor of a user object runs when a graph ends, in no stream.
static void destructor(cudaStream_t stream, int *values) {
    for (size_t i = 0; i < kCount; i++) values[i] = 3;
    variable[0] = 3;
    Job job = {values, 10, 2, {0}, {false}};
    cudaGraph_t graph;
    cudaUserObject_t object;
    CHECK(cudaGraphCreate(&graph, 0));
    CHECK(cudaUserObjectCreate(&object, &job, function, 1, cudaUserObjectNoDestructorSync));
    CHECK(cudaGraphRetainUserObject(graph, object, 1, cudaGraphUserObjectMove));
    add<<<32, 256, 0, stream>>>(values, 7);
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaGraphDestroy(graph));
    while (!job.done) usleep(100);
    add<<<32, 256, 0, stream>>>(values, 1);
    CHECK(cudaStreamSynchronize(stream));
    long wrong = variable[0] != 21;
    for (size_t i = 0; i < kCount; i++) wrong += values[i] != 21;
    std::printf("destructor: %ld wrong inside, %ld behind\n", job.wrong.load(), wrong);
}

static void write_even(int *values, int value) {
    for (size_t i = 0; i < kCount; i += 2) values[i] = value;
}
static long wrong_of(const int *values, int even, int odd) {
    long wrong = 0;
    for (size_t i = 0; i < kCount; i += 2) wrong += (values[i] != even) + (values[i + 1] != odd);
    return wrong;
}

// A function writes memory of which a kernel of another stream writes other bytes.
static void beside_another_stream(cudaStream_t stream, cudaStream_t other, int *values) {
    for (size_t i = 0; i < kCount; i++) values[i] = 0;
    flags[0] = flags[1] = 0;
    wait_and_write<<<1, 1, 0, other>>>(flags, values, 7);
    CHECK(cudaGetLastError());
    wait_until_it_runs();
    CHECK(cudaLaunchHostFunc(
        stream, [](void *values) { write_even(static_cast<int *>(values), 8); }, values));
    CHECK(cudaStreamSynchronize(stream));
    flags[1] = 1;
    CHECK(cudaStreamSynchronize(other));
    std::printf("beside another stream: %ld wrong\n", wrong_of(values, 8, 7));
    add<<<32, 256, 0, stream>>>(values, 1);
    CHECK(cudaStreamSynchronize(stream));
    std::printf("beside another stream, then a kernel: %ld wrong\n", wrong_of(values, 9, 8));
}

static volatile sig_atomic_t alarms;
static void on_alarm(int) {
    alarms = alarms + 1;
    flags[1] = 1;
}

// The program writes memory while a kernel runs that writes other bytes of it. The handler of a signal lets the kernel end.
static void while_a_kernel_runs(cudaStream_t stream, int *values, unsigned seconds) {
    for (size_t i = 0; i < kCount; i++) values[i] = 0;
    flags[0] = flags[1] = 0;
    alarms = 0;
    struct sigaction action = {};
    action.sa_handler = on_alarm;
    REQUIRE(sigaction(SIGALRM, &action, nullptr) == 0);
    wait_and_write<<<1, 1, 0, stream>>>(flags, values, 7);
    CHECK(cudaGetLastError());
    wait_until_it_runs();
    alarm(seconds);
    write_even(values, 8);
    while (!alarms) usleep(100);
    CHECK(cudaStreamSynchronize(stream));
    std::printf("while a kernel runs: %d signal, %ld wrong\n", (int)alarms, wrong_of(values, 8, 7));
    add<<<32, 256, 0, stream>>>(values, 1);
    CHECK(cudaStreamSynchronize(stream));
    std::printf("while a kernel runs, then another one: %ld wrong\n", wrong_of(values, 9, 8));
}

// The program writes elements of a variable on both sides of one that a running kernel has written.
static void variable_beside_a_kernel(cudaStream_t stream, cudaStream_t other, int *values) {
    CHECK(cudaDeviceSynchronize());
    variable[1] = variable[2] = variable[3] = 1;
    flags[0] = flags[1] = 0;
    write_and_wait<<<1, 1, 0, other>>>(flags);
    CHECK(cudaGetLastError());
    wait_until_it_runs();
    variable[1] = variable[3] = 9;
    add<<<1, 32, 0, stream>>>(values, 1);
    CHECK(cudaGetLastError());
    flags[1] = 1;
    CHECK(cudaDeviceSynchronize());
    std::printf("variable: %d %d %d\n", variable[1], variable[2], variable[3]);
}

int main() {
    int *mapped, *values, *attached;
    CHECK(cudaHostAlloc(&mapped, 2 * sizeof(int), cudaHostAllocMapped));
    flags = mapped;
    cudaStream_t stream, other;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    CHECK(cudaMallocManaged(&values, kCount * sizeof(int)));
    CHECK(cudaMallocManaged(&attached, kCount * sizeof(int)));

    // Kernels are loaded before one of them waits.
    flags[1] = 1;
    wait_and_write<<<1, 1>>>(flags, values, 0);
    write_and_wait<<<1, 1>>>(flags);
    add<<<1, 32>>>(values, 0);
    CHECK(cudaDeviceSynchronize());

    for (int threads = 0; threads <= 3; threads += 3) {
        between_kernels("host function", stream, values, host_function, threads);
        between_kernels("stream callback", stream, values, stream_callback, threads);
        between_kernels("node of a graph", stream, values, node_of_graph, threads);
        between_kernels("captured", stream, values, captured, threads);
    }
    CHECK(cudaStreamAttachMemAsync(stream, attached, 0, cudaMemAttachSingle));
    CHECK(cudaStreamSynchronize(stream));
    between_kernels("attached to the stream", stream, attached, host_function, 3);
    destructor(stream, values);
    beside_another_stream(stream, other, values);
    while_a_kernel_runs(stream, values, 3);
    variable_beside_a_kernel(stream, other, values);

    CHECK(cudaFree(attached));
    CHECK(cudaFree(values));
    CHECK(cudaFreeHost(mapped));
    return 0;
}
