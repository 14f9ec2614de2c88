// SPDX-License-Identifier: Apache-2.0 OR MIT
// CUPTI's activity and callback APIs, as profilers use them: which work the GPU did, when, and by which calls.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>

#include "busy.h"
#include "library.h"

// cupti_activity.h, cupti_callbacks.h
enum { MEMCPY = 1, MEMSET = 2, DRIVER = 4, RUNTIME = 5, KERNEL = 10, PC_SAMPLING = 30, EXTERNAL = 39 };
enum { PAGEABLE = 1, CUSTOM0 = 3, RUNTIME_DOMAIN = 2, RESOURCE_DOMAIN = 3, CONTEXT_DESTROY_STARTING = 2, MEMSET_ASYNC = 51, NOT_SUPPORTED = 27, QUEUE_EMPTY = 18 };
struct Kernel {
    uint32_t kind;
    uint8_t config[2];
    uint16_t registers;
    uint32_t partitioned[2];
    uint64_t start, end, completed;
    uint32_t device, context, stream;
    int32_t grid[3], block[3], static_shared, dynamic_shared;
    uint32_t local, local_total, correlation;
    int64_t grid_id;
    const char *name;
};
struct Copy {
    uint32_t kind;
    uint8_t direction, from, to, flags;
    uint64_t bytes, start, end;
    uint32_t device, context, stream, correlation;
};
struct Fill {
    uint32_t kind, value;
    uint64_t bytes, start, end;
    uint32_t device, context, stream, correlation;
};
struct Api {
    uint32_t kind, cbid;
    uint64_t start, end;
    uint32_t process, thread, correlation, result;
};
struct External {
    uint32_t kind, external_kind;
    uint64_t id;
    uint32_t correlation;
};
struct CallbackData {
    uint32_t site;
    const char *function;
    const void *parameters, *result;
    const char *symbol;
    void *context;
    uint32_t context_uid;
    uint64_t *data;
    uint32_t correlation;
};

struct Work {
    uint64_t start, end, bytes;
    uint32_t correlation, stream;
    std::string what;
};
static std::vector<Work> work;
static std::map<uint32_t, Api> calls;
static std::map<uint32_t, uint64_t> ids;
static int records, requests;

static void request(uint8_t **buffer, size_t *bytes, size_t *count) {
    requests++;
    // Small, so that there are several.
    *bytes = 1024;
    *buffer = (uint8_t *)aligned_alloc(8, *bytes);
    *count = 0;
}

static void take(const uint8_t *record) {
    char text[200];
    uint32_t kind;
    memcpy(&kind, record, sizeof kind);
    records++;
    if (kind == KERNEL) {
        const Kernel &k = *(const Kernel *)record;
        snprintf(text, sizeof text, "kernel %s, %d %d %d blocks of %d %d %d threads, %d bytes shared", k.name, k.grid[0], k.grid[1],
                 k.grid[2], k.block[0], k.block[1], k.block[2], k.dynamic_shared);
        work.push_back({k.start, k.end, 0, k.correlation, k.stream, text});
    } else if (kind == MEMCPY) {
        const Copy &c = *(const Copy *)record;
        const char *names[] = {"?", "to the device", "to the host"};
        const char *name = c.direction == 8 ? "on the device" : names[c.direction % 3];
        // A long copy may be told in pieces.
        if (!work.empty() && work.back().correlation == c.correlation) {
            work.back().bytes += c.bytes;
            work.back().end = c.end;
        } else
            work.push_back({c.start, c.end, c.bytes, c.correlation, c.stream,
                            std::string("copy ") + name + (c.from == PAGEABLE || c.to == PAGEABLE ? " from pageable memory" : "")});
    } else if (kind == MEMSET) {
        const Fill &f = *(const Fill *)record;
        snprintf(text, sizeof text, "fill with %u", f.value);
        work.push_back({f.start, f.end, f.bytes, f.correlation, f.stream, text});
    } else if (kind == RUNTIME) {
        const Api &a = *(const Api *)record;
        calls[a.correlation] = a;
    } else if (kind == EXTERNAL) {
        const External &e = *(const External *)record;
        if (e.external_kind == CUSTOM0) ids[e.correlation] = e.id;
    }
}

static void complete(void *, uint32_t, uint8_t *buffer, size_t, size_t valid) {
    uint8_t *record = nullptr;
    while (call("cuptiActivityGetNextRecord", buffer, valid, &record) == 0) take(record);
    free(buffer);
}

static std::string name_of(const Api &api) {
    const char *text = nullptr;
    if (call("cuptiGetCallbackName", (int)RUNTIME_DOMAIN, (int)api.cbid, &text) != 0) return "?";
    std::string name = text;
    const size_t version = name.rfind("_v");
    if (version != std::string::npos) name.resize(version);
    return name.rfind("__", 0) == 0 ? name.substr(2) : name;
}

extern "C" __global__ void first(int *values) { values[blockIdx.x * blockDim.x + threadIdx.x] += 1; }
extern "C" __global__ void second(int *values, int by) {
    extern __shared__ int shared[];
    shared[threadIdx.x] = by;
    __syncthreads();
    values[threadIdx.x] *= shared[threadIdx.x];
}
// Tells how long it ran itself.
extern "C" __global__ void wait_for(uint64_t ns, uint64_t *took) {
    *took = stay_busy(ns);
}

template <class F> static void with_id(uint64_t id, F body) {
    CHECK(call("cuptiActivityPushExternalCorrelationId", (int)CUSTOM0, id));
    body();
    uint64_t last = 0;
    CHECK(call("cuptiActivityPopExternalCorrelationId", (int)CUSTOM0, &last));
    if (last != id) printf("popped %llu, not %llu\n", (unsigned long long)last, (unsigned long long)id);
}

static int entries, exits;
static uint32_t entered;
static bool same_numbers = true;
static void told(void *data, int domain, int cbid, const CallbackData *about) {
    if (data != &entries || domain != RUNTIME_DOMAIN || cbid != MEMSET_ASYNC) printf("told of %d %d\n", domain, cbid);
    if (about->site == 0) {
        entries++;
        entered = about->correlation;
        *about->data = 77;
    } else {
        exits++;
        same_numbers = same_numbers && about->correlation == entered && *about->data == 77;
    }
}

static int ended;
static void of_contexts(void *, int domain, int cbid, void *const *context) {
    if (domain == RESOURCE_DOMAIN && cbid == CONTEXT_DESTROY_STARTING && *context) ended++;
}

static const int COUNT = 256;
static const size_t LONG = 24 << 20;
static const uint64_t WAIT = 5000000;

int main() {
    load({"libcupti.so.13", "libcupti.so.12"});
    cudaDeviceProp device;
    CHECK(cudaGetDeviceProperties(&device, 0));
    const bool emulated = strstr(device.name, "Emulator") != nullptr;

    cudaStream_t stream;
    int *values, *pinned;
    uint64_t *took;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaMalloc(&values, LONG));
    CHECK(cudaMallocHost(&pinned, COUNT * sizeof(int)));
    CHECK(cudaMallocHost(&took, sizeof *took));
    std::vector<int> pageable(LONG / sizeof(int));
    // Once before, so that nothing is compiled or loaded later.
    first<<<4, 64, 0, stream>>>(values);
    second<<<1, 32, 128, stream>>>(values, 3);
    wait_for<<<1, 1, 0, stream>>>(1000, took);
    CHECK(cudaStreamSynchronize(stream));

    uint32_t version = 0;
    CHECK(call("cuptiGetVersion", &version));
    printf("version: %s\n", version > 0 ? "known" : "0");
    const int no_callbacks = call("cuptiActivityFlushAll", 0);
    printf("flush before there are callbacks: %s\n", no_callbacks ? "refused" : "accepted");
    CHECK(call("cuptiActivityRegisterCallbacks", request, complete));
    for (int kind : {RUNTIME, EXTERNAL, MEMCPY, MEMSET, KERNEL}) CHECK(call("cuptiActivityEnable", kind));

    uint64_t before = 0, after = 0;
    CHECK(call("cuptiGetTimestamp", &before));
    with_id(1001, [&] { CHECK(cudaMemcpyAsync(values, pinned, COUNT * sizeof(int), cudaMemcpyHostToDevice, stream)); });
    with_id(1002, [&] { CHECK(cudaMemsetAsync(values, 7, COUNT * sizeof(int), stream)); });
    with_id(1003, [&] { first<<<4, 64, 0, stream>>>(values); });
    with_id(1004, [&] {
        second<<<1, 32, 128, stream>>>(values, 3);
        with_id(1005, [&] { wait_for<<<1, 1, 0, stream>>>(WAIT, took); });
    });
    with_id(1006, [&] { CHECK(cudaMemcpyAsync(pinned, values, COUNT * sizeof(int), cudaMemcpyDeviceToHost, stream)); });
    CHECK(cudaStreamSynchronize(stream));
    with_id(1007, [&] { CHECK(cudaMemcpy(values, pageable.data(), LONG, cudaMemcpyHostToDevice)); });

    cudaGraph_t graph;
    cudaGraphExec_t executable;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    first<<<2, 128, 0, stream>>>(values);
    second<<<1, 64, 256, stream>>>(values, 5);
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&executable, graph, 0));
    with_id(1008, [&] { CHECK(cudaGraphLaunch(executable, stream)); });
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaDeviceSynchronize());
    CHECK(call("cuptiGetTimestamp", &after));
    printf("buffers before the first flush: %s\n", requests ? "some" : "none");
    CHECK(call("cuptiActivityFlushAll", 0));

    std::stable_sort(work.begin(), work.end(), [](const Work &a, const Work &b) { return a.start < b.start; });
    bool inside = true, by_calls = true, in_order = true;
    const Work *last = nullptr;
    for (const Work &w : work) {
        const Api *api = calls.count(w.correlation) ? &calls[w.correlation] : nullptr;
        if (w.bytes)
            printf("%s, %llu bytes", w.what.c_str(), (unsigned long long)w.bytes);
        else
            printf("%s", w.what.c_str());
        printf(": by %s, id %llu\n", api ? name_of(*api).c_str() : "nothing", (unsigned long long)ids[w.correlation]);
        // Clocks of CPU and GPU agree to half of the quickest exchange between them, which takes longer on a busy machine.
        const uint64_t apart = 5000000;
        inside = inside && w.start + apart >= before && w.end >= w.start && w.end <= after + apart;
        by_calls = by_calls && api && api->end >= api->start && w.start + apart >= api->start;
        if (last && last->stream == w.stream) in_order = in_order && w.start >= last->end;
        last = &w;
    }
    printf("between the first call and the last: %s\n", inside ? "all" : "NOT all");
    printf("after the beginning of their calls: %s\n", by_calls ? "all" : "NOT all");
    printf("one after the other in a stream: %s\n", in_order ? "all" : "NOT all");
    for (const Work &w : work)
        if (w.what.rfind("kernel wait_for", 0) == 0) {
            const double ran = (double)(w.end - w.start), itself = (double)*took;
            // A thread of the emulator may have to wait for a processor.
            const double most = itself * 1.02 + (emulated ? 50e6 : 20e3);
            printf("as long as the kernel says: %s\n", ran >= itself * 0.98 && ran <= most ? "yes" : "NO");
            if (!(ran >= itself * 0.98 && ran <= most)) printf("%g ns, but %g\n", ran, itself);
        }
    size_t dropped = 1;
    CHECK(call("cuptiActivityGetNumDroppedRecords", nullptr, 0, &dropped));
    printf("dropped: %zu\n", dropped);

    // One function only, and one function not.
    work.clear(), calls.clear();
    CHECK(call("cuptiActivityEnableRuntimeApi", (int)MEMSET_ASYNC, 0));
    CHECK(cudaMemsetAsync(values, 1, 64, stream));
    CHECK(cudaStreamSynchronize(stream));
    CHECK(call("cuptiActivityFlushAll", 0));
    bool has = false;
    for (auto &found : calls) has = has || found.second.cbid == MEMSET_ASYNC;
    printf("a function that is disabled: %s, its work: %zu\n", has ? "TOLD" : "not told", work.size());

    // Not enabled any more: work so far is recorded.
    work.clear();
    first<<<4, 64, 0, stream>>>(values);
    CHECK(cudaStreamSynchronize(stream));
    for (int kind : {RUNTIME, EXTERNAL, MEMCPY, MEMSET, KERNEL}) CHECK(call("cuptiActivityDisable", kind));
    CHECK(call("cuptiActivityFlushAll", 0));
    printf("work before the end, flushed after it: %zu\n", work.size());
    records = 0;
    first<<<4, 64, 0, stream>>>(values);
    CHECK(cudaStreamSynchronize(stream));
    CHECK(call("cuptiActivityFlushAll", 0));
    printf("records of what is not enabled: %d\n", records);

    void *subscriber = nullptr;
    CHECK(call("cuptiSubscribe", &subscriber, told, (void *)&entries));
    CHECK(call("cuptiEnableCallback", 1, subscriber, (int)RUNTIME_DOMAIN, (int)MEMSET_ASYNC));
    CHECK(cudaMemsetAsync(values, 1, 64, stream));
    CHECK(cudaMemsetAsync(values, 2, 64, stream));
    CHECK(cudaStreamSynchronize(stream));
    CHECK(call("cuptiEnableCallback", 0, subscriber, (int)RUNTIME_DOMAIN, (int)MEMSET_ASYNC));
    CHECK(cudaMemsetAsync(values, 3, 64, stream));
    CHECK(call("cuptiUnsubscribe", subscriber));
    printf("callbacks: %d at entries, %d at exits, of the same calls: %s\n", entries, exits, same_numbers ? "yes" : "NO");

    uint64_t none = 0;
    printf("nothing to pop: %s\n", call("cuptiActivityPopExternalCorrelationId", (int)CUSTOM0, &none) == QUEUE_EMPTY ? "told" : "NOT told");
    const char *text = nullptr;
    CHECK(call("cuptiGetResultString", (int)NOT_SUPPORTED, &text));
    printf("%d is %s\n", (int)NOT_SUPPORTED, text);
    CHECK(cudaStreamSynchronize(stream));

    CHECK(call("cuptiSubscribe", &subscriber, of_contexts, nullptr));
    CHECK(call("cuptiEnableCallback", 1, subscriber, (int)RESOURCE_DOMAIN, (int)CONTEXT_DESTROY_STARTING));
    CHECK(cudaDeviceReset());
    CHECK(call("cuptiUnsubscribe", subscriber));
    printf("contexts that end: %d\n", ended);
    return 0;
}
