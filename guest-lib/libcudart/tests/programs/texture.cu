// SPDX-License-Identifier: Apache-2.0 OR MIT
// Texture and surface objects over linear memory, pitched memory, arrays and mipmapped arrays.
#include "check.h"

__global__ void fetch1(cudaTextureObject_t t, float *out, int n) {
    if (threadIdx.x < n) out[threadIdx.x] = tex1Dfetch<float>(t, threadIdx.x);
}
__global__ void sample2(cudaTextureObject_t t, float *out, int w, int h, float dx, float scale) {
    int x = threadIdx.x, y = threadIdx.y;
    if (x < w && y < h) out[y * w + x] = tex2D<float>(t, (x + dx) * scale, (y + dx) * scale);
}
__global__ void store(cudaSurfaceObject_t s) { surf2Dwrite<float>(threadIdx.x + 10.0f * threadIdx.y, s, threadIdx.x * 4, threadIdx.y); }

static void show(const float *d, int n) {
    float h[64];
    int e = cudaMemcpy(h, d, n * 4, cudaMemcpyDeviceToHost);
    double sum = 0;
    for (int i = 0; i < n; i++) sum = sum * 1.25 + h[i];
    SHOW("%d: %g %g %g sum %.6g", e, h[0], h[1], h[n - 1], sum);
}

static void show(const cudaTextureDesc &t) {
    SHOW("address %d %d %d filter %d read %d srgb %d normalized %d aniso %u mip %d %g %g %g trilinear %d cubemap %d", t.addressMode[0],
         t.addressMode[1], t.addressMode[2], t.filterMode, t.readMode, t.sRGB, t.normalizedCoords, t.maxAnisotropy,
         t.mipmapFilterMode, t.mipmapLevelBias, t.minMipmapLevelClamp, t.maxMipmapLevelClamp, t.disableTrilinearOptimization, t.seamlessCubemap);
}

int main() {
    float h[64], *d = nullptr, *out = nullptr;
    for (int i = 0; i < 64; i++) h[i] = i * 0.5f;
    T(cudaMalloc(&d, 256));
    T(cudaMalloc(&out, 256));
    T(cudaMemcpy(d, h, 256, cudaMemcpyHostToDevice));
    cudaResourceDesc r = {}, r2;
    cudaTextureDesc t = {}, t2;
    cudaTextureObject_t tex = 0;
    r.resType = cudaResourceTypeLinear;
    r.res.linear.devPtr = d;
    r.res.linear.desc = cudaCreateChannelDesc<float>();
    r.res.linear.sizeInBytes = 256;
    t.readMode = cudaReadModeElementType;
    T(cudaCreateTextureObject(&tex, &r, &t, nullptr));
    fetch1<<<1, 64>>>(tex, out, 64);
    show(out, 64);
    T(cudaGetTextureObjectResourceDesc(&r2, tex));
    SHOW("%d %d %d %zu", r2.resType, r2.res.linear.desc.x, r2.res.linear.desc.f, r2.res.linear.sizeInBytes);
    T(cudaGetTextureObjectTextureDesc(&t2, tex));
    show(t2);
    T(cudaDestroyTextureObject(tex));

    cudaChannelFormatDesc f1 = cudaCreateChannelDesc<float>();
    cudaArray_t a = nullptr;
    T(cudaMallocArray(&a, &f1, 8, 8, cudaArraySurfaceLoadStore));
    T(cudaMemcpy2DToArray(a, 0, 0, h, 32, 32, 8, cudaMemcpyHostToDevice));
    r = {};
    r.resType = cudaResourceTypeArray;
    r.res.array.array = a;
    t = {};
    t.addressMode[0] = cudaAddressModeClamp;
    t.addressMode[1] = cudaAddressModeMirror;
    t.filterMode = cudaFilterModeLinear;
    t.normalizedCoords = 1;
    t.borderColor[1] = 0.25f;
    t.maxAnisotropy = 2;
    t.mipmapLevelBias = 0.5f;
    t.maxMipmapLevelClamp = 3;
    T(cudaCreateTextureObject(&tex, &r, &t, nullptr));
    sample2<<<1, dim3(8, 8)>>>(tex, out, 8, 8, 0.25f, 1.0f / 8);
    show(out, 64);
    T(cudaGetTextureObjectTextureDesc(&t2, tex));
    show(t2);
    T(cudaGetTextureObjectResourceDesc(&r2, tex));
    SHOW("%d %d", r2.resType, r2.res.array.array == a);
    cudaResourceViewDesc view = {};
    T(cudaGetTextureObjectResourceViewDesc(&view, tex));
    T(cudaDestroyTextureObject(tex));
    view = {};
    view.format = cudaResViewFormatFloat1;
    view.width = 8;
    view.height = 8;
    t = {};
    t.addressMode[0] = t.addressMode[1] = cudaAddressModeClamp;
    T(cudaCreateTextureObject(&tex, &r, &t, &view));
    sample2<<<1, dim3(8, 8)>>>(tex, out, 8, 8, 0, 1);
    show(out, 64);
    T(cudaGetTextureObjectResourceViewDesc(&view, tex));
    SHOW("%d %zu %zu", view.format, view.width, view.height);
    T(cudaDestroyTextureObject(tex));
    cudaSurfaceObject_t surface = 0;
    T(cudaCreateSurfaceObject(&surface, &r));
    store<<<1, dim3(8, 8)>>>(surface);
    LAUNCHED("store");
    T(cudaMemcpy2DFromArray(h, 32, a, 0, 0, 32, 8, cudaMemcpyDeviceToHost));
    SHOW("%g %g", h[1], h[63]);
    T(cudaGetSurfaceObjectResourceDesc(&r2, surface));
    SHOW("%d %d", r2.resType, r2.res.array.array == a);
    T(cudaDestroySurfaceObject(surface));

    // Pitched, bytes read as normalised floats.
    unsigned char bytes[16 * 8], *p = nullptr;
    size_t pitch = 0;
    for (int i = 0; i < 128; i++) bytes[i] = (unsigned char)(2 * i);
    T(cudaMallocPitch(&p, &pitch, 16, 8));
    T(cudaMemcpy2D(p, pitch, bytes, 16, 16, 8, cudaMemcpyHostToDevice));
    r = {};
    r.resType = cudaResourceTypePitch2D;
    r.res.pitch2D.devPtr = p;
    r.res.pitch2D.desc = cudaCreateChannelDesc<unsigned char>();
    r.res.pitch2D.width = 16;
    r.res.pitch2D.height = 8;
    r.res.pitch2D.pitchInBytes = pitch;
    t = {};
    t.addressMode[0] = t.addressMode[1] = cudaAddressModeBorder;
    t.readMode = cudaReadModeNormalizedFloat;
    T(cudaCreateTextureObject(&tex, &r, &t, nullptr));
    sample2<<<1, dim3(8, 8)>>>(tex, out, 8, 8, 0, 1);
    show(out, 64);
    T(cudaGetTextureObjectTextureDesc(&t2, tex));
    show(t2);
    T(cudaGetTextureObjectResourceDesc(&r2, tex));
    SHOW("%d %d %d %zu %zu %d", r2.resType, r2.res.pitch2D.desc.x, r2.res.pitch2D.desc.f, r2.res.pitch2D.width, r2.res.pitch2D.height,
         r2.res.pitch2D.pitchInBytes == pitch);
    T(cudaDestroyTextureObject(tex));

    // What is refused.
    t = {};
    t.filterMode = cudaFilterModeLinear;
    T(cudaCreateTextureObject(&tex, &r, &t, nullptr));
    t = {};
    t.readMode = cudaReadModeNormalizedFloat;
    r.res.pitch2D.desc = cudaCreateChannelDesc<int>();
    T(cudaCreateTextureObject(&tex, &r, &t, nullptr));
    r.res.pitch2D.desc = {7, 0, 0, 0, cudaChannelFormatKindUnsigned};
    T(cudaCreateTextureObject(&tex, &r, &t, nullptr));
    r.res.pitch2D.desc = cudaCreateChannelDesc<float>();
    T(cudaCreateTextureObject(&tex, &r, &t, nullptr));
    T(cudaCreateTextureObject(nullptr, &r, &t, nullptr));
    T(cudaCreateTextureObject(&tex, nullptr, &t, nullptr));
    T(cudaCreateTextureObject(&tex, &r, nullptr, nullptr));
    r.resType = (cudaResourceType)9;
    T(cudaCreateTextureObject(&tex, &r, &t, nullptr));
    r = {};
    T(cudaCreateTextureObject(&tex, &r, &t, nullptr));
    T(cudaCreateSurfaceObject(&surface, &r));
    T(cudaDestroyTextureObject(0));
    T(cudaDestroySurfaceObject(0));
    T(cudaFreeArray(a));
    return 0;
}
