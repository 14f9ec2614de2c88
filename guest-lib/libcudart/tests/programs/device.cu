// SPDX-License-Identifier: Apache-2.0 OR MIT
// What the runtime says about the device: every field of cudaDeviceProp, every attribute, limits, flags.
#include "check.h"

// Their header is not part of every toolkit package.
extern "C" cudaError_t cudaProfilerStart(void);
extern "C" cudaError_t cudaProfilerStop(void);

int main() {
    int n = -1;
    T(cudaRuntimeGetVersion(&n));
    SHOW("%d", n);
    T(cudaDriverGetVersion(&n));
    SHOW("%d", n >= 13000);
    n = -1;
    T(cudaGetDevice(&n));
    SHOW("%d", n);
    unsigned flags = 99;
    T(cudaGetDeviceFlags(&flags));
    SHOW("flags %u", flags);
    T(cudaSetDeviceFlags(cudaDeviceScheduleBlockingSync));
    T(cudaGetDeviceFlags(&flags));
    SHOW("flags %u", flags);
    T(cudaGetDeviceCount(&n));
    SHOW("%d", n);
    T(cudaInitDevice(0, cudaDeviceScheduleYield, cudaInitDeviceFlagsAreValid));
    T(cudaInitDevice(99, 0, 0));
    T(cudaGetDeviceFlags(&flags));
    SHOW("flags %u", flags);
    T(cudaSetDevice(0));
    T(cudaGetDeviceFlags(&flags));
    SHOW("flags %u", flags);
    T(cudaSetDeviceFlags(cudaDeviceScheduleSpin | cudaDeviceMapHost));
    T(cudaGetDeviceFlags(&flags));
    SHOW("flags %u", flags);
    T(cudaSetDeviceFlags(0));
    cudaDeviceProp p;
    memset(&p, 0, sizeof p);
    T(cudaGetDeviceProperties(&p, 0));
    SHOW("%s", p.name);
    for (size_t i = offsetof(cudaDeviceProp, uuid); i < sizeof p; i += 4)
        if (unsigned v = *(unsigned *)((char *)&p + i)) SHOW("property at %zu: %u", i, v);
    for (int a = 0; a < 200; a++) {
        int v = -77;
        int e = cudaDeviceGetAttribute(&v, (cudaDeviceAttr)a, 0);
        SHOW("attribute %d: %d %d", a, e, e ? 0 : v);
    }
    T(cudaGetLastError());
    char bus[32] = {};
    T(cudaDeviceGetPCIBusId(bus, 32, 0));
    SHOW("%s", bus);
    n = -1;
    T(cudaDeviceGetByPCIBusId(&n, bus));
    SHOW("%d", n);
    T(cudaChooseDevice(&n, &p));
    SHOW("%d", n);
    for (int l = 0; l < 8; l++) {
        size_t v = 0;
        int e = cudaDeviceGetLimit(&v, (cudaLimit)l);
        SHOW("limit %d: %d %zu", l, e, e ? 0 : v);
    }
    T(cudaGetLastError());
    T(cudaDeviceSetLimit(cudaLimitPrintfFifoSize, 2 << 20));
    size_t v = 0;
    T(cudaDeviceGetLimit(&v, cudaLimitPrintfFifoSize));
    SHOW("%zu", v);
    cudaFuncCache cache;
    T(cudaDeviceGetCacheConfig(&cache));
    SHOW("%d", cache);
    T(cudaDeviceSetCacheConfig(cudaFuncCachePreferL1));
    T(cudaDeviceGetCacheConfig(&cache));
    SHOW("%d", cache);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
    cudaSharedMemConfig shared;
    T(cudaDeviceGetSharedMemConfig(&shared));
    SHOW("%d", shared);
    T(cudaDeviceSetSharedMemConfig(cudaSharedMemBankSizeEightByte));
#pragma GCC diagnostic pop
    int least = 9, greatest = 9;
    T(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    SHOW("%d %d", least, greatest);
    size_t available = 0, total = 0;
    T(cudaMemGetInfo(&available, &total));
    SHOW("%d %d", available > 0 && available <= total, total == p.totalGlobalMem);
    for (int a = 0; a < 7; a++) {
        n = -7;
        int e = cudaDeviceGetP2PAttribute(&n, (cudaDeviceP2PAttr)a, 0, 0);
        SHOW("p2p %d: %d %d", a, e, n);
    }
    T(cudaGetLastError());
    cudaChannelFormatDesc desc = cudaCreateChannelDesc<float2>();
    T(cudaDeviceGetTexture1DLinearMaxWidth(&v, &desc, 0));
    SHOW("%zu", v);
    T(cudaCtxResetPersistingL2Cache());
    T(cudaProfilerStart());
    T(cudaProfilerStop());
    unsigned long long used = 99;
    T(cudaDeviceGetGraphMemAttribute(0, cudaGraphMemAttrUsedMemCurrent, &used));
    SHOW("%llu", used);
    T(cudaDeviceGraphMemTrim(0));
    T(cudaDeviceFlushGPUDirectRDMAWrites(cudaFlushGPUDirectRDMAWritesTargetCurrentDevice, cudaFlushGPUDirectRDMAWritesToOwner));
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    T(cudaThreadExchangeStreamCaptureMode(&mode));
    SHOW("%d", mode);
    typedef int (*Malloc)(unsigned long long *, size_t);
    for (const char *name : {"cuMemAlloc", "cuNoSuchThing", "cuMemAlloc_v2", "cuGetProcAddress", "cuGraphInstantiate"})
        for (unsigned version : {2000u, 3020u, 12000u, 13000u, 99000u}) {
            void *f = (void *)1;
            cudaDriverEntryPointQueryResult q = (cudaDriverEntryPointQueryResult)77;
            int e = cudaGetDriverEntryPointByVersion(name, &f, version, cudaEnableDefault, &q);
            SHOW("%s %u: %d status %d %s", name, version, e, q, f == (void *)1 ? "kept" : f ? "set" : "null");
            f = (void *)1;
            e = cudaGetDriverEntryPointByVersion(name, &f, version, cudaEnableDefault, nullptr);
            SHOW("%s %u: %d %s", name, version, e, f == (void *)1 ? "kept" : f ? "set" : "null");
        }
    T(cudaGetLastError());
    void *f = nullptr;
    unsigned long long address = 0;
    cudaDriverEntryPointQueryResult q;
    T(cudaGetDriverEntryPointByVersion("cuMemAlloc", &f, 13000, 77, &q));
    T(cudaGetDriverEntryPointByVersion("cuMemAlloc", &f, 13000, cudaEnablePerThreadDefaultStream, &q));
    SHOW("%d", ((Malloc)f)(&address, 64));
    T(cudaFree((void *)address));
    return 0;
}
