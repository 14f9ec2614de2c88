// SPDX-License-Identifier: Apache-2.0 OR MIT
// Parts of a device's multiprocessors, green contexts that have them, and events of whole contexts.
#include "check_driver.h"

#include <cstring>

__global__ void fill(int *out, int value) {
    out[blockIdx.x * blockDim.x + threadIdx.x] = value;
}

__global__ void add(int *out, const int *a, const int *b) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = a[i] + b[i];
}

static const int THREADS = 64, BLOCKS = 8, COUNT = THREADS * BLOCKS;

static bool all_are(const int *device, int value) {
    static int host[COUNT];
    CHECK(cudaMemcpy(host, device, sizeof host, cudaMemcpyDeviceToHost));
    for (int i = 0; i < COUNT; i++)
        if (host[i] != value)
            return false;
    return true;
}

int main() {
    CUcontext primary = use_primary_context();
    CUdevice device = 0;

    // What there is, and how it can be split.
    CUdevResource all = {}, parts[2] = {}, rest = {};
    int multiprocessors;
    CHECK_DRIVER(cuDeviceGetAttribute(&multiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device));
    CHECK_DRIVER(cuDeviceGetDevResource(device, &all, CU_DEV_RESOURCE_TYPE_SM));
    std::printf("device: type %d, all %d\n", (int)all.type, (int)all.sm.smCount == multiprocessors);
    const unsigned least = all.sm.minSmPartitionSize;
    unsigned possible = 0;
    CHECK_DRIVER(cuDevSmResourceSplitByCount(nullptr, &possible, &all, nullptr, 0, least));
    std::printf("several parts: %d\n", possible >= 2);
    unsigned groups = 2;
    CHECK_DRIVER(cuDevSmResourceSplitByCount(parts, &groups, &all, &rest, 0, least));
    const bool enough = parts[0].sm.smCount >= least && parts[0].sm.smCount == parts[1].sm.smCount;
    const bool sum = parts[0].sm.smCount + parts[1].sm.smCount + rest.sm.smCount == all.sm.smCount;
    std::printf("%u parts, equal and large enough %d, nothing lost %d\n", groups, enough, sum);
    const CUresult too_many =
        cuDevSmResourceSplitByCount(nullptr, &possible, &all, nullptr, 0, all.sm.smCount + 1);
    std::printf("too many: %d\n", (int)too_many);

    CUdevResourceDesc description[2];
    CUgreenCtx green[2], other;
    for (int i = 0; i < 2; i++) {
        CHECK_DRIVER(cuDevResourceGenerateDesc(&description[i], &parts[i], 1));
        CHECK_DRIVER(cuGreenCtxCreate(&green[i], description[i], device, CU_GREEN_CTX_DEFAULT_STREAM));
    }
    std::printf("without the flag: %d\n", (int)cuGreenCtxCreate(&other, description[0], device, 0));
    CUdevResource own = {};
    CHECK_DRIVER(cuGreenCtxGetDevResource(green[0], &own, CU_DEV_RESOURCE_TYPE_SM));
    std::printf("its own: %d\n", own.sm.smCount == parts[0].sm.smCount);
    unsigned long long id[2] = {};
    CHECK_DRIVER(cuGreenCtxGetId(green[0], &id[0]));
    CHECK_DRIVER(cuGreenCtxGetId(green[1], &id[1]));
    std::printf("numbers differ: %d\n", id[0] != id[1]);

    // A stream of each, an event between them.
    CUstream stream[2], none;
    for (int i = 0; i < 2; i++)
        CHECK_DRIVER(cuGreenCtxStreamCreate(&stream[i], green[i], CU_STREAM_NON_BLOCKING, 0));
    std::printf("blocking stream: %d\n", (int)cuGreenCtxStreamCreate(&none, green[0], 0, 0));
    CUgreenCtx of = nullptr;
    CUcontext context = nullptr, converted = nullptr;
    CHECK_DRIVER(cuStreamGetGreenCtx(stream[1], &of));
    std::printf("stream: green %d", of == green[1]);
    CHECK_DRIVER(cuStreamGetCtx_v2(stream[1], &context, &of));
    std::printf(", both %d %d", context == primary, of == green[1]);
    CHECK_DRIVER(cuStreamGetCtx(stream[1], &context));
    CHECK_DRIVER(cuCtxFromGreenCtx(&converted, green[1]));
    std::printf(", converted %d\n", context == converted);

    int *a, *b, *c;
    CHECK(cudaMalloc(&a, COUNT * sizeof(int)));
    CHECK(cudaMalloc(&b, COUNT * sizeof(int)));
    CHECK(cudaMalloc(&c, COUNT * sizeof(int)));
    CUevent event;
    CHECK_DRIVER(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    fill<<<BLOCKS, THREADS, 0, (cudaStream_t)stream[0]>>>(a, 30);
    CHECK(cudaGetLastError());
    CHECK_DRIVER(cuGreenCtxRecordEvent(green[0], event));
    CHECK_DRIVER(cuGreenCtxWaitEvent(green[1], event));
    fill<<<BLOCKS, THREADS, 0, (cudaStream_t)stream[1]>>>(b, 12);
    add<<<BLOCKS, THREADS, 0, (cudaStream_t)stream[1]>>>(c, a, b);
    CHECK(cudaGetLastError());
    CHECK_DRIVER(cuStreamSynchronize(stream[1]));
    std::printf("sum %d, event %d\n", all_are(c, 42), (int)cuEventQuery(event));

    // Current like any context: what is made then belongs to the primary one, too.
    CHECK_DRIVER(cuCtxPushCurrent(converted));
    CHECK_DRIVER(cuCtxGetCurrent(&context));
    std::printf("current: %d", context == converted);
    CHECK_DRIVER(cuStreamGetGreenCtx(nullptr, &of));
    std::printf(", green of the default stream %d", of == green[1]);
    CUdevResource here = {};
    CHECK_DRIVER(cuCtxGetDevResource(converted, &here, CU_DEV_RESOURCE_TYPE_SM));
    std::printf(", resource %d\n", here.sm.smCount == parts[1].sm.smCount);
    CUdeviceptr memory;
    CUstream inner;
    CHECK_DRIVER(cuMemAlloc(&memory, COUNT * sizeof(int)));
    CHECK_DRIVER(cuStreamCreate(&inner, CU_STREAM_NON_BLOCKING));
    CHECK_DRIVER(cuStreamGetGreenCtx(inner, &of));
    std::printf("made while it is current: %d\n", of == green[1]);
    fill<<<BLOCKS, THREADS, 0, (cudaStream_t)inner>>>((int *)memory, 7);
    CHECK(cudaGetLastError());
    CHECK_DRIVER(cuCtxSynchronize());

    // Copies of ordinary memory there, small and large, waited for and in a stream.
    static char there[1 << 20], back[1 << 20];
    char *large;
    CHECK(cudaMalloc(&large, sizeof there));
    memset(there, 5, sizeof there);
    CHECK(cudaMemcpy(large, there, sizeof there, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpyAsync(back, large, sizeof back, cudaMemcpyDeviceToHost, (cudaStream_t)inner));
    CHECK_DRIVER(cuStreamSynchronize(inner));
    const bool same = memcmp(there, back, sizeof there) == 0;
    there[0] = 9;
    CHECK(cudaMemcpyAsync(large, there, 16, cudaMemcpyHostToDevice, (cudaStream_t)inner));
    CHECK_DRIVER(cuStreamSynchronize(inner));
    CHECK(cudaMemcpy(back, large, 16, cudaMemcpyDeviceToHost));
    std::printf("copies: %d %d\n", same, back[0]);
    CHECK_DRIVER(cuCtxPopCurrent(&context));
    CHECK(cudaFree(large));
    std::printf("in the primary context: %d\n", all_are((int *)memory, 7));
    CHECK_DRIVER(cuCtxGetDevResource(primary, &here, CU_DEV_RESOURCE_TYPE_SM));
    std::printf("that has all: %d\n", here.sm.smCount == all.sm.smCount);

    // Events of whole contexts: of all streams, and all later work waits.
    CUstream plain[2];
    CHECK_DRIVER(cuStreamCreate(&plain[0], CU_STREAM_NON_BLOCKING));
    CHECK(cudaMemset(a, 0, COUNT * sizeof(int)));
    CHECK(cudaMemset(c, 0, COUNT * sizeof(int)));
    // The streams do not wait for the default one, which sets the memory.
    CHECK(cudaStreamSynchronize(cudaStreamLegacy));
    fill<<<BLOCKS, THREADS, 0, (cudaStream_t)plain[0]>>>(a, 1);
    fill<<<BLOCKS, THREADS, 0, (cudaStream_t)stream[0]>>>(b, 2);
    CHECK(cudaGetLastError());
    CHECK_DRIVER(cuCtxRecordEvent(primary, event));
    CHECK_DRIVER(cuCtxWaitEvent(primary, event));
    CHECK_DRIVER(cuStreamCreate(&plain[1], CU_STREAM_NON_BLOCKING));
    add<<<BLOCKS, THREADS, 0, (cudaStream_t)plain[1]>>>(c, a, b);
    CHECK(cudaGetLastError());
    CHECK_DRIVER(cuEventSynchronize(event));
    CHECK_DRIVER(cuStreamSynchronize(plain[1]));
    std::printf("whole context: %d\n", all_are(c, 3));

    for (CUstream one : {stream[0], stream[1], inner, plain[0], plain[1]})
        CHECK_DRIVER(cuStreamDestroy(one));
    CHECK_DRIVER(cuMemFree(memory));
    CHECK_DRIVER(cuEventDestroy(event));
    for (CUgreenCtx one : green)
        CHECK_DRIVER(cuGreenCtxDestroy(one));
    CHECK(cudaFree(a));
    std::printf("done\n");
    return 0;
}
