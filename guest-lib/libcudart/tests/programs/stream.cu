// SPDX-License-Identifier: Apache-2.0 OR MIT
// Streams, events, callbacks, capture.
#include "check.h"

__global__ void spin(long long cycles) {
    long long start = clock64();
    while (clock64() - start < cycles) {}
}
__global__ void bump(int *p) { atomicAdd(p, 1); }

static void callback(cudaStream_t, cudaError_t status, void *data) { *(int *)data += 10 + status; }
static void host_function(void *data) { *(int *)data += 100; }

int main() {
    cudaStream_t s, t, low;
    T(cudaStreamCreate(&s));
    T(cudaStreamCreateWithFlags(&t, cudaStreamNonBlocking));
    int least, greatest, priority = 99;
    T(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    T(cudaStreamCreateWithPriority(&low, cudaStreamNonBlocking, greatest));
    T(cudaStreamGetPriority(low, &priority));
    SHOW("%d", priority == greatest);
    unsigned flags = 9;
    T(cudaStreamGetFlags(t, &flags));
    SHOW("%u", flags);
    T(cudaStreamGetFlags(0, &flags));
    SHOW("%u", flags);
    unsigned long long id = 0, other = 0;
    T(cudaStreamGetId(s, &id));
    T(cudaStreamGetId(t, &other));
    SHOW("%d", id != other);
    int device = -1;
    T(cudaStreamGetDevice(s, &device));
    SHOW("%d", device);
    cudaEvent_t a, b, untimed;
    T(cudaEventCreate(&a));
    T(cudaEventCreateWithFlags(&b, cudaEventBlockingSync));
    T(cudaEventCreateWithFlags(&untimed, cudaEventDisableTiming));
    T(cudaEventQuery(a));
    float ms = -1;
    T(cudaEventElapsedTime(&ms, a, b));
    T(cudaEventRecord(a, s));
    spin<<<1, 1, 0, s>>>(100000000);
    LAUNCHED("spin");
    T(cudaEventRecord(b, s));
    T(cudaEventRecordWithFlags(untimed, s, 0));
    T(cudaStreamQuery(s));
    T(cudaEventQuery(b));
    T(cudaEventElapsedTime(&ms, a, b));
    printf("peek %d\n", cudaPeekAtLastError());
    T(cudaStreamWaitEvent(t, b, 0));
    T(cudaStreamSynchronize(t));
    T(cudaEventQuery(b));
    T(cudaStreamQuery(s));
    T(cudaEventSynchronize(b));
    T(cudaEventElapsedTime(&ms, a, b));
    SHOW("%d", ms > 5 && ms < 5000);
    T(cudaEventElapsedTime(&ms, a, untimed));
    int seen = 0;
    T(cudaStreamAddCallback(s, callback, &seen, 0));
    T(cudaLaunchHostFunc(s, host_function, &seen));
    T(cudaStreamSynchronize(s));
    SHOW("%d", seen);

    // Capture
    int *d = nullptr, value = -1;
    T(cudaMalloc(&d, 4));
    T(cudaMemset(d, 0, 4));
    T(cudaDeviceSynchronize());
    cudaStreamCaptureStatus status;
    T(cudaStreamIsCapturing(s, &status));
    SHOW("%d", status);
    T(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
    T(cudaStreamIsCapturing(s, &status));
    SHOW("%d", status);
    bump<<<1, 3, 0, s>>>(d);
    LAUNCHED("captured bump");
    T(cudaMemsetAsync(d, 0, 4, s));
    bump<<<2, 4, 0, s>>>(d);
    LAUNCHED("captured bump");
    cudaGraph_t capturing = nullptr;
    const cudaGraphNode_t *tail = nullptr;
    const cudaGraphEdgeData *edges = nullptr;
    size_t tails = 99;
    id = 0;
    T(cudaStreamGetCaptureInfo(s, &status, &id, &capturing, &tail, &edges, &tails));
    SHOW("%d %d %d %zu", status, id != 0, capturing != nullptr, tails);
    cudaGraph_t graph = nullptr;
    T(cudaStreamEndCapture(s, &graph));
    size_t nodes = 0, links = 0;
    T(cudaGraphGetNodes(graph, nullptr, &nodes));
    T(cudaGraphGetEdges(graph, nullptr, nullptr, nullptr, &links));
    SHOW("%zu %zu", nodes, links);
    cudaGraphExec_t exec = nullptr;
    T(cudaGraphInstantiate(&exec, graph, 0));
    T(cudaGraphLaunch(exec, s));
    T(cudaGraphLaunch(exec, s));
    T(cudaStreamSynchronize(s));
    T(cudaMemcpy(&value, d, 4, cudaMemcpyDeviceToHost));
    SHOW("%d", value);
    T(cudaGraphExecDestroy(exec));
    T(cudaGraphDestroy(graph));
    // A call that may not be made while a stream captures.
    T(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
    T(cudaStreamSynchronize(s));
    T(cudaStreamEndCapture(s, &graph));
    T(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
    float *unwelcome = nullptr;
    T(cudaMalloc(&unwelcome, 4));
    T(cudaStreamEndCapture(s, &graph));
    cudaStreamAttrValue attribute = {};
    attribute.syncPolicy = cudaSyncPolicySpin;
    T(cudaStreamSetAttribute(s, cudaStreamAttributeSynchronizationPolicy, &attribute));
    T(cudaStreamGetAttribute(s, cudaStreamAttributeSynchronizationPolicy, &attribute));
    SHOW("%d", attribute.syncPolicy);
    T(cudaStreamCopyAttributes(t, s));
    T(cudaEventDestroy(a));
    T(cudaEventDestroy(b));
    T(cudaEventDestroy(untimed));
    T(cudaStreamDestroy(s));
    T(cudaStreamDestroy(t));
    T(cudaStreamDestroy(low));
    T(cudaFree(d));
    return 0;
}
