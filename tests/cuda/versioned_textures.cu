// SPDX-License-Identifier: Apache-2.0 OR MIT
// Descriptions of textures, which CUDA 11 has in two versions, and its texture and surface references, for which later
// versions have objects. Compiled by each compiler, this prints the same.
#include "check.h"

#include <cmath>
#include <cstring>

constexpr int SIDE = 4;

#if CUDART_VERSION < 12000
static texture<float, cudaTextureType1D, cudaReadModeElementType> line_reference;
static texture<unsigned char, cudaTextureType2D, cudaReadModeNormalizedFloat> image_reference;
static surface<void, cudaSurfaceType2D> canvas_reference;
#define LINE(x) tex1Dfetch(line_reference, x)
#define IMAGE(x, y) tex2D(image_reference, x, y)
#define DRAW(value, x, y) surf2Dwrite(value, canvas_reference, x, y)
#else
#define LINE(x) tex1Dfetch<float>(line, x)
#define IMAGE(x, y) tex2D<float>(image, x, y)
#define DRAW(value, x, y) surf2Dwrite(value, canvas, x, y)
#endif

__global__ void read_line(float *out, cudaTextureObject_t line) { out[threadIdx.x] = LINE(threadIdx.x + 1); }

__global__ void read_image(float *out, cudaTextureObject_t image) {
    const int x = threadIdx.x % SIDE, y = threadIdx.x / SIDE;
    out[threadIdx.x] = IMAGE(x + 1.0f, y + 0.5f);
}

__global__ void draw(cudaSurfaceObject_t canvas) {
    const int x = threadIdx.x % SIDE, y = threadIdx.x / SIDE;
    DRAW((unsigned char)(10 * y + x), x, y);
}

static void print(const char *what, const float *values, int count) {
    std::printf("%s:", what);
    for (int i = 0; i < count; ++i) {
        std::printf(" %g", values[i]);
    }
    std::printf("\n");
}

struct Description {
    cudaTextureDesc value;
    unsigned char guard[64];
};

static void descriptions(cudaArray_t array) {
    cudaResourceDesc resource = {};
    resource.resType = cudaResourceTypeArray;
    resource.res.array.array = array;
    Description given, found;
    std::memset(static_cast<void *>(&given), 0, sizeof given);
    std::memset(static_cast<void *>(&found), 0xa5, sizeof found);
    // Of another struct's: not a member of it in CUDA 11.
    std::memset(given.guard, 0xff, sizeof given.guard);
    given.value.filterMode = cudaFilterModeLinear;
    given.value.readMode = cudaReadModeNormalizedFloat;
    given.value.disableTrilinearOptimization = 1;
    cudaTextureObject_t texture = 0;
    CHECK(cudaCreateTextureObject(&texture, &resource, &given.value, nullptr));
    CHECK(cudaGetTextureObjectTextureDesc(&found.value, texture));
    for (unsigned char byte : found.guard) {
        REQUIRE(byte == 0xa5);
    }
    REQUIRE(found.value.filterMode == cudaFilterModeLinear && found.value.disableTrilinearOptimization == 1);
#if CUDART_VERSION < 12000
    cudaTextureDesc_v2 longer;
#else
    cudaTextureDesc longer;
#endif
    std::memset(static_cast<void *>(&longer), 0xa5, sizeof longer);
#if CUDART_VERSION < 12000
    CHECK(cudaGetTextureObjectTextureDesc_v2(&longer, texture));
#else
    CHECK(cudaGetTextureObjectTextureDesc(&longer, texture));
#endif
    std::printf("seamless: %d\n", longer.seamlessCubemap);
    CHECK(cudaDestroyTextureObject(texture));
}

int main() {
    float line[8], *device_line, *out, host[SIDE * SIDE];
    for (int i = 0; i < 8; ++i) {
        line[i] = 0.5f * i;
    }
    CHECK(cudaMalloc(&device_line, sizeof line));
    CHECK(cudaMalloc(&out, sizeof host));
    CHECK(cudaMemcpy(device_line, line, sizeof line, cudaMemcpyHostToDevice));
    const cudaChannelFormatDesc bytes = cudaCreateChannelDesc<unsigned char>();
    cudaArray_t array;
    CHECK(cudaMallocArray(&array, &bytes, SIDE, SIDE, cudaArraySurfaceLoadStore));
    cudaTextureObject_t line_object = 0, image_object = 0;
    cudaSurfaceObject_t canvas_object = 0;
#if CUDART_VERSION < 12000
    size_t offset = 1;
    CHECK(cudaBindTexture(&offset, line_reference, device_line));
    REQUIRE(offset == 0);
    image_reference.filterMode = cudaFilterModeLinear;
    image_reference.addressMode[0] = image_reference.addressMode[1] = cudaAddressModeClamp;
    CHECK(cudaBindTextureToArray(image_reference, array));
    CHECK(cudaBindSurfaceToArray(canvas_reference, array));
    const textureReference *reference = nullptr;
    CHECK(cudaGetTextureReference(&reference, &line_reference));
    REQUIRE(reference == &line_reference);
    REQUIRE(cudaGetTextureReference(&reference, &host) == cudaErrorInvalidTexture);
    REQUIRE(cudaGetLastError() == cudaErrorInvalidTexture);
    CHECK(cudaGetTextureAlignmentOffset(&offset, &line_reference));
    REQUIRE(offset == 0);
#else
    cudaResourceDesc resource = {};
    resource.resType = cudaResourceTypeLinear;
    resource.res.linear.devPtr = device_line;
    resource.res.linear.desc = cudaCreateChannelDesc<float>();
    resource.res.linear.sizeInBytes = sizeof line;
    cudaTextureDesc desc = {};
    CHECK(cudaCreateTextureObject(&line_object, &resource, &desc, nullptr));
    resource = {};
    resource.resType = cudaResourceTypeArray;
    resource.res.array.array = array;
    desc.filterMode = cudaFilterModeLinear;
    desc.readMode = cudaReadModeNormalizedFloat;
    desc.addressMode[0] = desc.addressMode[1] = cudaAddressModeClamp;
    CHECK(cudaCreateTextureObject(&image_object, &resource, &desc, nullptr));
    CHECK(cudaCreateSurfaceObject(&canvas_object, &resource));
#endif
    read_line<<<1, 6>>>(out, line_object);
    CHECK(cudaMemcpy(host, out, 6 * sizeof *host, cudaMemcpyDeviceToHost));
    print("line", host, 6);
    draw<<<1, SIDE * SIDE>>>(canvas_object);
    read_image<<<1, SIDE * SIDE>>>(out, image_object);
    CHECK(cudaMemcpy(host, out, sizeof host, cudaMemcpyDeviceToHost));
    for (float &value : host) {
        value = std::round(value * 510) / 2;
    }
    print("image", host, SIDE * SIDE);
#if CUDART_VERSION < 12000
    CHECK(cudaUnbindTexture(line_reference));
    REQUIRE(cudaGetTextureAlignmentOffset(&offset, &line_reference) == cudaErrorInvalidTextureBinding);
    REQUIRE(cudaGetLastError() == cudaErrorInvalidTextureBinding);
#else
    CHECK(cudaDestroyTextureObject(line_object));
    CHECK(cudaDestroyTextureObject(image_object));
    CHECK(cudaDestroySurfaceObject(canvas_object));
#endif
    descriptions(array);
    CHECK(cudaFreeArray(array));
    CHECK(cudaFree(out));
    CHECK(cudaFree(device_line));
    std::printf("done\n");
}
