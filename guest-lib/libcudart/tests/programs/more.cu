// SPDX-License-Identifier: Apache-2.0 OR MIT
// The less used calls: copies in batches and between peers, asynchronous array copies, exported pools, shared handles, attributes.
#include <sys/wait.h>
#include <unistd.h>

#include <vector>

#include "check.h"

__global__ void bump(int *p, int by) { p[threadIdx.x] += by; }

static unsigned sum(const void *p, size_t n) {
    unsigned s = 0;
    for (size_t i = 0; i < n; i++) s = s * 31 + ((const unsigned char *)p)[i];
    return s;
}

int main() {
    std::vector<unsigned char> h(8192), g(8192);
    for (size_t i = 0; i < h.size(); i++) h[i] = (unsigned char)(i * 5 + (i >> 7));
    cudaStream_t s;
    T(cudaStreamCreate(&s));
    unsigned char *a = nullptr, *b = nullptr;
    T(cudaMalloc(&a, 8192));
    T(cudaMalloc(&b, 8192));

    // Batches
    void *targets[] = {a, a + 4096};
    const void *sources[] = {h.data(), h.data() + 4096};
    size_t sizes[] = {1000, 2000}, first = 0;
    cudaMemcpyAttributes attributes = {};
    attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
    T(cudaMemcpyBatchAsync(targets, sources, sizes, 2, &attributes, &first, 1, s));
    T(cudaStreamSynchronize(s));
    T(cudaMemcpy(g.data(), a, 8192, cudaMemcpyDeviceToHost));
    SHOW("%08x %08x", sum(g.data(), 1000), sum(g.data() + 4096, 2000));
    cudaMemcpy3DBatchOp op = {};
    op.src.type = op.dst.type = cudaMemcpyOperandTypePointer;
    op.src.op.ptr.ptr = a;
    op.dst.op.ptr.ptr = b;
    op.extent = make_cudaExtent(64, 4, 2);
    op.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
    T(cudaMemcpy3DBatchAsync(1, &op, 0, s));
    T(cudaMemcpyAsync(g.data(), b, 512, cudaMemcpyDeviceToHost, s));
    T(cudaStreamSynchronize(s));
    SHOW("%08x", sum(g.data(), 512));

    // Peers: the same device twice.
    T(cudaMemcpyPeerAsync(b, 0, a, 0, 700, s));
    cudaMemcpy3DPeerParms peer = {};
    peer.srcPtr = make_cudaPitchedPtr(a, 128, 128, 4);
    peer.dstPtr = make_cudaPitchedPtr(b + 2048, 64, 64, 4);
    peer.extent = make_cudaExtent(60, 4, 2);
    T(cudaMemcpy3DPeerAsync(&peer, s));
    T(cudaStreamSynchronize(s));
    T(cudaMemcpy3DPeer(&peer));
    T(cudaMemcpy(g.data(), b, 4096, cudaMemcpyDeviceToHost));
    SHOW("%08x %08x", sum(g.data(), 700), sum(g.data() + 2048, 60));
    int value = -1;
    T(cudaDeviceGetHostAtomicCapabilities((unsigned *)&value, nullptr, 0, 0));

    // Arrays, asynchronously
    cudaChannelFormatDesc s2 = cudaCreateChannelDesc<short2>();
    cudaArray_t array = nullptr, other = nullptr;
    T(cudaMallocArray(&array, &s2, 32, 16));
    T(cudaMallocArray(&other, &s2, 32, 16));
    T(cudaMemcpy2DToArrayAsync(array, 4, 1, h.data(), 100, 96, 10, cudaMemcpyHostToDevice, s));
    T(cudaMemcpy2DFromArrayAsync(g.data(), 96, array, 4, 1, 96, 10, cudaMemcpyDeviceToHost, s));
    T(cudaStreamSynchronize(s));
    SHOW("%08x", sum(g.data(), 960));
    cudaMemcpy3DParms c = {};
    c.srcArray = array;
    c.dstArray = other;
    c.srcPos = make_cudaPos(1, 1, 0);
    c.extent = make_cudaExtent(24, 10, 1);
    c.kind = cudaMemcpyDeviceToDevice;
    T(cudaMemcpy3DAsync(&c, s));
    T(cudaMemcpy2DFromArrayAsync(g.data(), 96, other, 0, 0, 96, 10, cudaMemcpyDeviceToHost, s));
    T(cudaStreamSynchronize(s));
    SHOW("%08x", sum(g.data(), 960));
    T(cudaMemcpy2DToArray(array, 0, 0, h.data(), 100, 96, 10, cudaMemcpyDeviceToHost));
    T(cudaMemcpy2DToArray(array, 0, 0, h.data(), 80, 96, 10, cudaMemcpyHostToDevice));
    T(cudaMemcpy2DToArray(nullptr, 0, 0, h.data(), 100, 96, 10, cudaMemcpyHostToDevice));
    T(cudaMemcpy2DToArray(array, 0, 0, h.data(), 100, 0, 10, cudaMemcpyHostToDevice));
    T(cudaGetChannelDesc(&s2, nullptr));
    cudaArrayMemoryRequirements need = {};
    T(cudaArrayGetMemoryRequirements(&need, array, 0));
    cudaArraySparseProperties sparse = {};
    T(cudaArrayGetSparseProperties(&sparse, array));
    cudaArray_t plane = nullptr;
    T(cudaArrayGetPlane(&plane, array, 0));

    // Linear filtering and normalised reading of arrays
    for (int bits : {8, 16, 32})
        for (cudaChannelFormatKind kind : {cudaChannelFormatKindSigned, cudaChannelFormatKindUnsigned, cudaChannelFormatKindFloat}) {
            cudaChannelFormatDesc desc = cudaCreateChannelDesc(bits, 0, 0, 0, kind);
            cudaArray_t t = nullptr;
            if (cudaMallocArray(&t, &desc, 16, 16)) continue;
            for (int reading : {0, 1})
                for (int filter : {0, 1}) {
                    cudaResourceDesc r = {};
                    r.resType = cudaResourceTypeArray;
                    r.res.array.array = t;
                    cudaTextureDesc td = {};
                    td.readMode = (cudaTextureReadMode)reading;
                    td.filterMode = (cudaTextureFilterMode)filter;
                    cudaTextureObject_t o = 0;
                    SHOW("bits %d kind %d reading %d filter %d: %d", bits, kind, reading, filter, cudaCreateTextureObject(&o, &r, &td, nullptr));
                    cudaDestroyTextureObject(o);
                }
            cudaFreeArray(t);
        }
    T(cudaGetLastError());

    // Pools shared by file descriptor
    cudaMemPoolProps props = {};
    props.allocType = cudaMemAllocationTypePinned;
    props.handleTypes = cudaMemHandleTypePosixFileDescriptor;
    props.location.type = cudaMemLocationTypeDevice;
    cudaMemPool_t pool = nullptr, imported = nullptr;
    T(cudaMemPoolCreate(&pool, &props));
    cudaMemAccessFlags access = cudaMemAccessFlagsProtNone;
    T(cudaMemPoolGetAccess(&access, pool, &props.location));
    SHOW("%d", access);
    cudaMemAccessDesc desc = {props.location, cudaMemAccessFlagsProtReadWrite};
    T(cudaMemPoolSetAccess(pool, &desc, 1));
    int fd = -1;
    T(cudaMemPoolExportToShareableHandle(&fd, pool, cudaMemHandleTypePosixFileDescriptor, 0));
    int *shared = nullptr, *mapped = nullptr, in = 5, out = 0;
    T(cudaMallocFromPoolAsync((void **)&shared, 4096, pool, s));
    T(cudaStreamSynchronize(s));
    T(cudaMemcpy(shared, &in, 4, cudaMemcpyHostToDevice));
    T(cudaMemPoolImportFromShareableHandle(&imported, (void *)(long)fd, cudaMemHandleTypePosixFileDescriptor, 0));
    cudaMemPoolPtrExportData data;
    T(cudaMemPoolExportPointer(&data, shared));
    T(cudaMemPoolImportPointer((void **)&mapped, imported, &data));
    T(cudaMemcpy(&out, mapped, 4, cudaMemcpyDeviceToHost));
    SHOW("%d", out);
    T(cudaFree(mapped));
    T(cudaFreeAsync(shared, s));
    T(cudaStreamSynchronize(s));
    close(fd);
    T(cudaDeviceSetMemPool(0, pool));
    T(cudaMallocAsync(&shared, 64, s));
    T(cudaFreeAsync(shared, s));
    T(cudaMemGetDefaultMemPool(&imported, &props.location, cudaMemAllocationTypePinned));
    T(cudaDeviceSetMemPool(0, imported));
    T(cudaStreamSynchronize(s));
    T(cudaMemPoolDestroy(pool));

    // Handles of memory and events
    cudaIpcMemHandle_t memory_handle;
    cudaIpcEventHandle_t event_handle;
    cudaEvent_t event;
    T(cudaIpcGetMemHandle(&memory_handle, a));
    T(cudaEventCreateWithFlags(&event, cudaEventInterprocess | cudaEventDisableTiming));
    T(cudaIpcGetEventHandle(&event_handle, event));
    T(cudaEventRecord(event, s));
    T(cudaIpcCloseMemHandle(b));

    // Attributes of launches, occupancy with flags, clusters
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(8);
    config.blockDim = dim3(64);
    config.stream = s;
    cudaLaunchAttribute launch[2] = {};
    launch[0].id = cudaLaunchAttributeClusterDimension;
    launch[0].val.clusterDim.x = 2;
    launch[0].val.clusterDim.y = launch[0].val.clusterDim.z = 1;
    launch[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    launch[1].val.programmaticStreamSerializationAllowed = 1;
    config.attrs = launch;
    config.numAttrs = 2;
    T(cudaMemsetAsync(a, 0, 256, s));
    T(cudaLaunchKernelEx(&config, bump, (int *)a, 3));
    T(cudaMemcpyAsync(&out, a, 4, cudaMemcpyDeviceToHost, s));
    T(cudaStreamSynchronize(s));
    SHOW("%d", out);
    config.numAttrs = 1;
    int clusters = -1;
    T(cudaOccupancyMaxActiveClusters(&clusters, bump, &config));
    SHOW("%d", clusters > 0);
    int blocks = -1;
    T(cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&blocks, bump, 64, 0, cudaOccupancyDisableCachingOverride));
    SHOW("%d", blocks);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
    T(cudaFuncSetSharedMemConfig(bump, cudaSharedMemBankSizeFourByte));
#pragma GCC diagnostic pop

    // Managed memory in batches
    char *managed = nullptr;
    T(cudaMallocManaged(&managed, 1 << 20));
    memset(managed, 1, 1 << 20);
    void *ranges[] = {managed, managed + (1 << 19)};
    size_t range_sizes[] = {1 << 19, 1 << 19}, index = 0;
    cudaMemLocation here = {cudaMemLocationTypeDevice, 0};
    T(cudaMemPrefetchBatchAsync(ranges, range_sizes, 2, &here, &index, 1, 0, s));
    T(cudaMemDiscardBatchAsync(ranges, range_sizes, 2, 0, s));
    T(cudaMemDiscardAndPrefetchBatchAsync(ranges, range_sizes, 2, &here, &index, 1, 0, s));
    T(cudaStreamSynchronize(s));
    int kinds[2] = {-1, -1};
    void *answers[] = {&kinds[0], &kinds[1]};
    size_t answer_sizes[] = {4, 4};
    cudaMemRangeAttribute questions[] = {cudaMemRangeAttributeReadMostly, cudaMemRangeAttributeLastPrefetchLocation};
    T(cudaMemRangeGetAttributes(answers, answer_sizes, questions, 2, managed, 1 << 20));
    SHOW("%d %d", kinds[0], kinds[1]);
    T(cudaFree(managed));

    // External objects that are none
    cudaExternalMemoryHandleDesc external = {};
    external.type = cudaExternalMemoryHandleTypeOpaqueFd;
    external.handle.fd = -1;
    external.size = 4096;
    cudaExternalMemory_t external_memory = nullptr;
    T(cudaImportExternalMemory(&external_memory, &external));
    cudaExternalSemaphoreHandleDesc semaphore = {};
    semaphore.type = cudaExternalSemaphoreHandleTypeOpaqueFd;
    semaphore.handle.fd = -1;
    cudaExternalSemaphore_t external_semaphore = nullptr;
    T(cudaImportExternalSemaphore(&external_semaphore, &semaphore));
    T(cudaSignalExternalSemaphoresAsync(nullptr, nullptr, 0, s));

    // The log
    cudaLogIterator iterator = 0;
    T(cudaLogsCurrent(&iterator, 0));
    char text[512];
    size_t length = sizeof text;
    T(cudaLogsDumpToMemory(&iterator, text, &length, 0));

    // A child process
    T(cudaDeviceSynchronize());
    fflush(stdout);
    if (pid_t child = fork()) {
        int status = 0;
        waitpid(child, &status, 0);
        SHOW("child %d", status);
    } else {
        void *p = nullptr;
        T(cudaMalloc(&p, 16));
        T(cudaGetDeviceCount(&value));
        _exit(0);
    }
    T(cudaEventDestroy(event));
    T(cudaFree(a));
    T(cudaFree(b));
    return 0;
}
