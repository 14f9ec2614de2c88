// SPDX-License-Identifier: Apache-2.0 OR MIT
// Allocation, copies of every shape, memset, pointer attributes.
#include <vector>

#include "check.h"

__device__ int words[16];
__constant__ float weights[8];
__managed__ int managed_word = 41;

static unsigned sum(const void *p, size_t n) {
    unsigned s = 0;
    for (size_t i = 0; i < n; i++) s = s * 31 + ((const unsigned char *)p)[i];
    return s;
}

static void attributes(const char *what, const void *p) {
    cudaPointerAttributes a;
    memset(&a, 0x5a, sizeof a);
    int e = cudaPointerGetAttributes(&a, p);
    long rest = 0;
    for (long r : a.reserved) rest |= r;
    printf("%-30s %d type %d device %d devicePointer %s hostPointer %s reserved %s last %d\n", what, e, a.type, a.device,
           !a.devicePointer ? "null" : a.devicePointer == p ? "same" : "other",
           !a.hostPointer ? "null" : a.hostPointer == p ? "same" : "other", rest == 0 ? "zero" : "set", cudaGetLastError());
}

int main() {
    managed_word += 1;
    SHOW("managed word %d", managed_word);
    std::vector<unsigned char> h(1 << 16), g(1 << 16);
    for (size_t i = 0; i < h.size(); i++) h[i] = (unsigned char)(i * 7 + (i >> 8));
    unsigned char *d = nullptr, *e = nullptr;
    T(cudaMalloc(&d, 1 << 16));
    T(cudaMalloc(&e, 1 << 16));
    T(cudaMemcpy(d, h.data(), 1 << 16, cudaMemcpyHostToDevice));
    T(cudaMemcpy(e, d, 1 << 16, cudaMemcpyDeviceToDevice));
    T(cudaMemcpy(g.data(), e, 1 << 16, cudaMemcpyDeviceToHost));
    SHOW("%08x %08x", sum(h.data(), 1 << 16), sum(g.data(), 1 << 16));
    T(cudaMemcpy(g.data(), d + 5, 1000, cudaMemcpyDefault));
    SHOW("%08x", sum(g.data(), 1000));
    T(cudaMemcpy(g.data(), h.data() + 9, 1000, cudaMemcpyHostToHost));
    SHOW("%08x", sum(g.data(), 1000));
    T(cudaMemcpy(g.data(), h.data() + 19, 1000, cudaMemcpyDefault));
    SHOW("%08x", sum(g.data(), 1000));

    // 2D
    T(cudaMemcpy2D(d, 256, h.data(), 100, 90, 40, cudaMemcpyHostToDevice));
    T(cudaMemcpy2D(e, 300, d, 256, 90, 40, cudaMemcpyDeviceToDevice));
    T(cudaMemcpy2D(g.data(), 91, e, 300, 90, 40, cudaMemcpyDeviceToHost));
    SHOW("%08x", sum(g.data(), 91 * 40));
    T(cudaMemcpy2D(g.data(), 64, h.data(), 80, 64, 8, cudaMemcpyHostToHost));
    SHOW("%08x", sum(g.data(), 64 * 8));
    T(cudaMemcpy2D(g.data(), 64, d, 256, 64, 8, cudaMemcpyDefault));
    SHOW("%08x", sum(g.data(), 64 * 8));
    T(cudaMemcpy2D(d, 64, h.data(), 100, 90, 40, cudaMemcpyHostToDevice));
    T(cudaMemcpy2D(d, 64, h.data(), 100, 90, 1, cudaMemcpyHostToDevice));
    T(cudaMemcpy2D(d, 100, h.data(), 64, 90, 2, cudaMemcpyHostToDevice));
    T(cudaMemcpy2D(d, 256, h.data(), 100, 0, 40, cudaMemcpyHostToDevice));
    T(cudaMemcpy2D(d, 256, h.data(), 100, 90, 0, cudaMemcpyHostToDevice));
    T(cudaMemcpy2D(d, 256, h.data(), 100, 90, 4, (cudaMemcpyKind)9));
    cudaStream_t stream;
    T(cudaStreamCreate(&stream));
    T(cudaMemcpy2DAsync(d, 256, h.data(), 100, 90, 40, cudaMemcpyHostToDevice, stream));
    T(cudaMemcpy2DAsync(g.data(), 90, d, 256, 90, 40, cudaMemcpyDeviceToHost, stream));
    T(cudaStreamSynchronize(stream));
    SHOW("%08x", sum(g.data(), 90 * 40));

    // Pitched and 3D
    size_t pitch = 0;
    unsigned char *pitched = nullptr;
    T(cudaMallocPitch(&pitched, &pitch, 100, 10));
    SHOW("pitch %zu", pitch);
    T(cudaMemset2D(pitched, pitch, 0xab, 100, 10));
    T(cudaMemcpy2D(g.data(), 100, pitched, pitch, 100, 10, cudaMemcpyDeviceToHost));
    SHOW("%08x", sum(g.data(), 1000));
    T(cudaMemset2D(pitched, pitch, 0, 0, 10));
    cudaPitchedPtr volume;
    T(cudaMalloc3D(&volume, make_cudaExtent(60, 7, 5)));
    SHOW("pitch %zu xsize %zu ysize %zu", volume.pitch, volume.xsize, volume.ysize);
    T(cudaMemset3D(volume, 0x11, make_cudaExtent(60, 7, 5)));
    T(cudaMemset3D(volume, 0x22, make_cudaExtent(30, 3, 5)));
    cudaMemcpy3DParms c = {};
    c.srcPtr = volume;
    c.dstPtr = make_cudaPitchedPtr(g.data(), 60, 60, 7);
    c.extent = make_cudaExtent(60, 7, 5);
    c.kind = cudaMemcpyDeviceToHost;
    T(cudaMemcpy3D(&c));
    SHOW("%08x", sum(g.data(), 60 * 7 * 5));
    c.srcPos = make_cudaPos(10, 1, 2);
    c.dstPos = make_cudaPos(1, 2, 0);
    c.extent = make_cudaExtent(40, 3, 2);
    T(cudaMemcpy3DAsync(&c, stream));
    T(cudaStreamSynchronize(stream));
    SHOW("%08x", sum(g.data(), 60 * 7 * 5));
    c.extent = make_cudaExtent(0, 3, 2);
    T(cudaMemcpy3D(&c));
    c.extent = make_cudaExtent(40, 3, 2);
    c.kind = (cudaMemcpyKind)9;
    T(cudaMemcpy3D(&c));
    cudaMemcpy3DParms nothing = {};
    T(cudaMemcpy3D(&nothing));
    nothing.extent = make_cudaExtent(1, 1, 1);
    T(cudaMemcpy3D(&nothing));
    T(cudaMemcpy3D(nullptr));

    // Arrays
    cudaChannelFormatDesc f4 = cudaCreateChannelDesc<float4>(), u1 = cudaCreateChannelDesc<unsigned char>();
    cudaArray_t a = nullptr, b = nullptr, v = nullptr;
    T(cudaMallocArray(&a, &f4, 16, 8));
    T(cudaMallocArray(&b, &u1, 64, 0));
    T(cudaMalloc3DArray(&v, &u1, make_cudaExtent(20, 6, 4), cudaArraySurfaceLoadStore));
    cudaChannelFormatDesc got;
    cudaExtent extent;
    unsigned flags = 77;
    T(cudaArrayGetInfo(&got, &extent, &flags, a));
    SHOW("%d %d %d %d f %d extent %zu %zu %zu flags %u", got.x, got.y, got.z, got.w, got.f, extent.width, extent.height, extent.depth, flags);
    T(cudaArrayGetInfo(&got, &extent, &flags, v));
    SHOW("%d %d %d %d f %d extent %zu %zu %zu flags %u", got.x, got.y, got.z, got.w, got.f, extent.width, extent.height, extent.depth, flags);
    T(cudaGetChannelDesc(&got, b));
    SHOW("%d %d %d %d f %d", got.x, got.y, got.z, got.w, got.f);
    T(cudaMemcpy2DToArray(a, 0, 0, h.data(), 256, 256, 8, cudaMemcpyHostToDevice));
    T(cudaMemcpy2DFromArray(g.data(), 256, a, 0, 0, 256, 8, cudaMemcpyDeviceToHost));
    SHOW("%08x", sum(g.data(), 2048));
    T(cudaMemcpy2DFromArray(g.data(), 100, a, 32, 2, 64, 3, cudaMemcpyDeviceToHost));
    SHOW("%08x", sum(g.data(), 300));
    T(cudaMemcpy2DToArray(a, 250, 0, h.data(), 256, 16, 1, cudaMemcpyHostToDevice));
    c = {};
    c.srcPtr = make_cudaPitchedPtr(h.data(), 20, 20, 6);
    c.dstArray = v;
    c.extent = make_cudaExtent(20, 6, 4);
    c.kind = cudaMemcpyHostToDevice;
    T(cudaMemcpy3D(&c));
    c = {};
    c.srcArray = v;
    c.srcPos = make_cudaPos(3, 1, 1);
    c.dstPtr = make_cudaPitchedPtr(g.data(), 16, 16, 4);
    c.extent = make_cudaExtent(12, 4, 3);
    c.kind = cudaMemcpyDeviceToHost;
    T(cudaMemcpy3D(&c));
    SHOW("%08x", sum(g.data(), 16 * 4 * 2 + 12));
    c = {};
    c.srcPtr = make_cudaPitchedPtr(h.data(), 256, 16, 8);
    c.srcPos = make_cudaPos(16, 1, 0);
    c.dstArray = a;
    c.dstPos = make_cudaPos(2, 3, 0);
    c.extent = make_cudaExtent(4, 2, 1);
    c.kind = cudaMemcpyHostToDevice;
    T(cudaMemcpy3D(&c));
    T(cudaMemcpy2DFromArray(g.data(), 256, a, 0, 0, 256, 8, cudaMemcpyDeviceToHost));
    SHOW("%08x", sum(g.data(), 2048));
    // Positions count the array's elements on both sides.
    c.srcPtr = make_cudaPitchedPtr(h.data(), 512, 512, 8);
    c.srcPos = make_cudaPos(1, 1, 0);
    T(cudaMemcpy3D(&c));
    T(cudaMemcpy2DFromArray(g.data(), 256, a, 0, 0, 256, 8, cudaMemcpyDeviceToHost));
    SHOW("%d %d", g[3 * 256 + 32] == h[512 + 1], g[3 * 256 + 32] == h[512 + 16]);
    cudaArray_t a2 = nullptr;
    T(cudaMallocArray(&a2, &f4, 16, 8));
    T(cudaMemcpy2DArrayToArray(a2, 16, 1, a, 0, 0, 128, 4, cudaMemcpyDeviceToDevice));
    T(cudaMemcpy2DFromArray(g.data(), 128, a2, 16, 1, 128, 4, cudaMemcpyDeviceToHost));
    SHOW("%08x", sum(g.data(), 512));
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
    T(cudaMemcpyToArray(a, 64, 1, h.data() + 3, 700, cudaMemcpyHostToDevice));
    T(cudaMemcpyFromArray(g.data(), a, 64, 1, 700, cudaMemcpyDeviceToHost));
    SHOW("%08x", sum(g.data(), 700));
#pragma GCC diagnostic pop
    cudaChannelFormatDesc bad = {3, 0, 0, 0, cudaChannelFormatKindFloat};
    T(cudaMallocArray(&a2, &bad, 16, 8));
    cudaChannelFormatDesc uneven = {8, 16, 0, 0, cudaChannelFormatKindUnsigned};
    T(cudaMallocArray(&a2, &uneven, 16, 8));
    cudaMipmappedArray_t mip = nullptr;
    T(cudaMallocMipmappedArray(&mip, &f4, make_cudaExtent(16, 16, 0), 3));
    cudaArray_t level = nullptr;
    T(cudaGetMipmappedArrayLevel(&level, mip, 1));
    T(cudaArrayGetInfo(&got, &extent, &flags, level));
    SHOW("extent %zu %zu %zu flags %u", extent.width, extent.height, extent.depth, flags);
    T(cudaGetMipmappedArrayLevel(&level, mip, 9));
    T(cudaFreeMipmappedArray(mip));
    T(cudaFreeArray(a));
    T(cudaFreeArray(b));
    T(cudaFreeArray(v));

    // Symbols
    int in[16], out[16] = {};
    for (int i = 0; i < 16; i++) in[i] = i * 3;
    T(cudaMemcpyToSymbol(words, in, sizeof in));
    T(cudaMemcpyFromSymbol(out, words, 20, 8));
    SHOW("%d %d", out[0], out[4]);
    T(cudaMemcpyToSymbolAsync(weights, in, 16, 16, cudaMemcpyHostToDevice, stream));
    T(cudaMemcpyFromSymbolAsync(out, weights, 16, 16, cudaMemcpyDeviceToHost, stream));
    T(cudaStreamSynchronize(stream));
    SHOW("%d %d", out[0], out[3]);
    void *address = nullptr;
    size_t size = 0;
    T(cudaGetSymbolAddress(&address, words));
    T(cudaMemcpy(out, (char *)address + 4, 8, cudaMemcpyDeviceToHost));
    SHOW("%d %d", out[0], out[1]);
    T(cudaGetSymbolSize(&size, words));
    SHOW("%zu", size);
    T(cudaGetSymbolSize(&size, weights));
    SHOW("%zu", size);
    attributes("symbol", address);
    T(cudaGetSymbolAddress(&address, managed_word));
    SHOW("managed address %s", address == &managed_word ? "same" : "other");
    T(cudaGetSymbolSize(&size, managed_word));
    SHOW("%zu", size);
    int value = 7;
    T(cudaMemcpyToSymbol(managed_word, &value, 4));
    T(cudaDeviceSynchronize());
    SHOW("managed word %d", managed_word);

    // Host memory
    unsigned char *pinned = nullptr, *mapped = nullptr, *managed = nullptr, *alias = nullptr;
    T(cudaMallocHost(&pinned, 8192));
    T(cudaHostAlloc(&mapped, 8192, cudaHostAllocMapped | cudaHostAllocPortable));
    T(cudaHostGetDevicePointer(&alias, mapped, 0));
    SHOW("%s", alias == mapped ? "same" : "other");
    T(cudaHostGetFlags(&flags, mapped));
    SHOW("flags %u", flags);
    T(cudaHostGetFlags(&flags, pinned));
    SHOW("flags %u", flags);
    T(cudaHostRegister(h.data(), 8192, cudaHostRegisterMapped));
    T(cudaHostRegister(h.data(), 8192, cudaHostRegisterMapped));
    T(cudaHostGetDevicePointer(&alias, h.data(), 0));
    T(cudaMallocManaged(&managed, 8192));
    attributes("device", d);
    attributes("device + 100", d + 100);
    attributes("pinned", pinned);
    attributes("mapped", mapped);
    attributes("registered", h.data());
    attributes("managed", managed);
    attributes("managed variable", &managed_word);
    attributes("heap", g.data());
    attributes("null", nullptr);
    attributes("bogus", (void *)0x7000000000001ull);
    T(cudaHostUnregister(h.data()));
    attributes("unregistered", h.data());
    memset(managed, 3, 8192);
    T(cudaMemcpy(d, managed, 8192, cudaMemcpyDefault));
    T(cudaMemcpy(pinned, d, 8192, cudaMemcpyDefault));
    SHOW("%08x", sum(pinned, 8192));
    T(cudaMemsetAsync(d, 0x77, 8192, stream));
    T(cudaMemcpyAsync(pinned, d, 8192, cudaMemcpyDeviceToHost, stream));
    T(cudaStreamSynchronize(stream));
    SHOW("%08x", sum(pinned, 8192));
    T(cudaMemcpyAsync(e, d, 8192, cudaMemcpyDeviceToDevice, stream));
    T(cudaMemcpyAsync(mapped, e, 8192, cudaMemcpyDefault, stream));
    T(cudaStreamSynchronize(stream));
    SHOW("%08x", sum(mapped, 8192));
    cudaMemLocation here = {cudaMemLocationTypeDevice, 0}, host = {cudaMemLocationTypeHost, 0};
    T(cudaMemAdvise(managed, 8192, cudaMemAdviseSetPreferredLocation, here));
    T(cudaMemPrefetchAsync(managed, 8192, here, 0, stream));
    T(cudaMemPrefetchAsync(managed, 8192, host, 0, stream));
    T(cudaStreamSynchronize(stream));
    int last = -9;
    T(cudaMemRangeGetAttribute(&last, 4, cudaMemRangeAttributePreferredLocation, managed, 8192));
    SHOW("%d", last);
    T(cudaStreamAttachMemAsync(stream, managed));
    T(cudaStreamSynchronize(stream));
    T(cudaFree(managed));
    T(cudaFreeHost(pinned));
    T(cudaFreeHost(mapped));

    // Pools
    T(cudaMallocAsync(&address, 1024, stream));
    T(cudaMemsetAsync(address, 0x31, 1024, stream));
    T(cudaMemcpyAsync(g.data(), address, 1024, cudaMemcpyDeviceToHost, stream));
    T(cudaFreeAsync(address, stream));
    T(cudaStreamSynchronize(stream));
    SHOW("%08x", sum(g.data(), 1024));
    cudaMemPool_t pool = nullptr, current = nullptr;
    T(cudaDeviceGetDefaultMemPool(&pool, 0));
    T(cudaDeviceGetMemPool(&current, 0));
    SHOW("%s", pool == current ? "same" : "other");
    unsigned long long threshold = 1 << 20, read = 0;
    T(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold));
    T(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &read));
    SHOW("%llu", read);
    T(cudaMemPoolTrimTo(pool, 0));
    cudaMemPoolProps props = {};
    props.allocType = cudaMemAllocationTypePinned;
    props.location = here;
    cudaMemPool_t own = nullptr;
    T(cudaMemPoolCreate(&own, &props));
    T(cudaMallocFromPoolAsync(&address, 4096, own, stream));
    attributes("from pool", address);
    T(cudaFreeAsync(address, stream));
    T(cudaStreamSynchronize(stream));
    T(cudaMemPoolDestroy(own));
    T(cudaStreamDestroy(stream));
    T(cudaFree(pitched));
    T(cudaFree(volume.ptr));
    T(cudaFree(d));
    T(cudaFree(d));
    T(cudaFree(e));
    return 0;
}
