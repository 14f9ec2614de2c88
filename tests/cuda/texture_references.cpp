// SPDX-License-Identifier: Apache-2.0 OR MIT
// Texture and surface references: variables of a module that the host binds to arrays and memory. nvcc has no language for
// them any more, PTX has.
// cuda.h: no warnings.
#define CUDA_ENABLE_DEPRECATED
#include "check_driver.h"

#include <functional>
#include <vector>

static const char CODE[] = R"(
.version 8.0
.target sm_80
.address_size 64
.visible .global .texref line;
.visible .global .texref image;
.visible .global .texref levels;
.visible .global .surfref canvas;
.visible .global .u32 variable;

// out[i] = the first channel of texel i + offset of a buffer.
.visible .entry fetch(.param .u64 out, .param .u32 offset)
{
    .reg .b32 %r<4>;
    .reg .b64 %rd<4>;
    .reg .f32 %f<5>;
    ld.param.u64 %rd1, [out];
    ld.param.u32 %r2, [offset];
    cvta.to.global.u64 %rd1, %rd1;
    mov.u32 %r1, %tid.x;
    add.s32 %r3, %r1, %r2;
    tex.1d.v4.f32.s32 {%f1, %f2, %f3, %f4}, [line, {%r3}];
    mul.wide.u32 %rd2, %r1, 4;
    add.s64 %rd1, %rd1, %rd2;
    st.global.f32 [%rd1], %f1;
    ret;
}

// out[i] = the first channel at (x + i * step, y).
.visible .entry sample(.param .u64 out, .param .f32 x, .param .f32 step, .param .f32 y)
{
    .reg .b32 %r<4>;
    .reg .b64 %rd<5>;
    .reg .f32 %f<9>;
    ld.param.u64 %rd1, [out];
    ld.param.f32 %f5, [x];
    ld.param.f32 %f6, [step];
    ld.param.f32 %f7, [y];
    cvta.to.global.u64 %rd1, %rd1;
    mov.u32 %r1, %tid.x;
    cvt.rn.f32.u32 %f8, %r1;
    fma.rn.f32 %f5, %f8, %f6, %f5;
    mov.u64 %rd3, image;
    tex.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%rd3, {%f5, %f7}];
    mul.wide.u32 %rd2, %r1, 4;
    add.s64 %rd1, %rd1, %rd2;
    st.global.f32 [%rd1], %f1;
    ret;
}

// out[i] = the first channel of texel (i, 0), as an integer; then width and height.
.visible .entry integers(.param .u64 out, .param .u32 count)
{
    .reg .pred %p<2>;
    .reg .b32 %r<9>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [out];
    ld.param.u32 %r2, [count];
    cvta.to.global.u64 %rd1, %rd1;
    mov.u32 %r1, %tid.x;
    mov.u32 %r7, 0;
    tex.2d.v4.u32.s32 {%r3, %r4, %r5, %r6}, [image, {%r1, %r7}];
    mul.wide.u32 %rd2, %r1, 4;
    add.s64 %rd3, %rd1, %rd2;
    st.global.u32 [%rd3], %r3;
    setp.ne.u32 %p1, %r1, 0;
    @%p1 ret;
    txq.width.b32 %r3, [image];
    txq.height.b32 %r4, [image];
    mul.wide.u32 %rd2, %r2, 4;
    add.s64 %rd3, %rd1, %rd2;
    st.global.u32 [%rd3], %r3;
    st.global.u32 [%rd3+4], %r4;
    ret;
}

// out[level] = the first channel in the middle of the level.
.visible .entry level(.param .u64 out)
{
    .reg .b32 %r<4>;
    .reg .b64 %rd<4>;
    .reg .f32 %f<8>;
    ld.param.u64 %rd1, [out];
    cvta.to.global.u64 %rd1, %rd1;
    mov.u32 %r1, %tid.x;
    cvt.rn.f32.u32 %f5, %r1;
    mov.f32 %f6, 0f3F000000;
    tex.level.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [levels, {%f6, %f6}], %f5;
    mul.wide.u32 %rd2, %r1, 4;
    add.s64 %rd1, %rd1, %rd2;
    st.global.f32 [%rd1], %f1;
    ret;
}

// Adds 100 to each word of the surface; out = its width and height.
.visible .entry paint(.param .u64 out)
{
    .reg .b32 %r<8>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [out];
    cvta.to.global.u64 %rd1, %rd1;
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, %tid.y;
    shl.b32 %r3, %r1, 2;
    suld.b.2d.b32.trap {%r4}, [canvas, {%r3, %r2}];
    add.u32 %r4, %r4, 100;
    sust.b.2d.b32.trap [canvas, {%r3, %r2}], {%r4};
    suq.width.b32 %r5, [canvas];
    suq.height.b32 %r6, [canvas];
    st.global.u32 [%rd1], %r5;
    st.global.u32 [%rd1+4], %r6;
    ret;
}
)";

static CUmodule module_of_code;
static CUdeviceptr results;
// What is bound stays until nothing is.
static std::vector<std::function<void()>> at_the_end;

static CUtexref texture(const char *name) {
    CUtexref reference;
    CHECK_DRIVER(cuModuleGetTexRef(&reference, module_of_code, name));
    return reference;
}

static void launch(const char *name, unsigned threads, unsigned rows, std::vector<void *> parameters) {
    CUfunction function;
    CHECK_DRIVER(cuModuleGetFunction(&function, module_of_code, name));
    CHECK_DRIVER(cuLaunchKernel(function, 1, 1, 1, threads, rows, 1, 0, nullptr, parameters.data(), nullptr));
}

template <typename T>
static void print(const char *what, unsigned count) {
    std::vector<T> values(count);
    CHECK_DRIVER(cuMemcpyDtoH(values.data(), results, count * sizeof(T)));
    std::printf("%s:", what);
    for (T value : values) std::printf(" %g", (double)value);
    std::printf("\n");
}

static void fetch(const char *what, unsigned count, unsigned offset) {
    launch("fetch", count, 1, {&results, &offset});
    print<float>(what, count);
}

static void sample(const char *what, unsigned count, float x, float step, float y) {
    launch("sample", count, 1, {&results, &x, &step, &y});
    print<float>(what, count);
}

static CUarray array_2d(unsigned width, unsigned height, CUarray_format format, unsigned flags) {
    CUDA_ARRAY3D_DESCRIPTOR descriptor = {};
    descriptor.Width = width, descriptor.Height = height;
    descriptor.Format = format, descriptor.NumChannels = 1, descriptor.Flags = flags;
    CUarray array;
    CHECK_DRIVER(cuArray3DCreate(&array, &descriptor));
    return array;
}

static void fill(CUarray array, const void *from, size_t row, size_t rows) {
    CUDA_MEMCPY2D copy = {};
    copy.srcMemoryType = CU_MEMORYTYPE_HOST, copy.srcHost = from, copy.srcPitch = row;
    copy.dstMemoryType = CU_MEMORYTYPE_ARRAY, copy.dstArray = array;
    copy.WidthInBytes = row, copy.Height = rows;
    CHECK_DRIVER(cuMemcpy2D(&copy));
}

static CUdeviceptr floats(const std::vector<float> &values) {
    CUdeviceptr memory;
    CHECK_DRIVER(cuMemAlloc(&memory, values.size() * 4));
    CHECK_DRIVER(cuMemcpyHtoD(memory, values.data(), values.size() * 4));
    return memory;
}

static void linear_memory() {
    std::vector<float> values(1024);
    for (size_t index = 0; index < values.size(); index++) values[index] = (float)index;
    const CUdeviceptr first = floats(values);
    for (float &value : values) value += 5000;
    const CUdeviceptr second = floats(values);
    const CUtexref line = texture("line");
    CHECK_DRIVER(cuTexRefSetFormat(line, CU_AD_FORMAT_FLOAT, 1));
    size_t offset = 77;
    CHECK_DRIVER(cuTexRefSetAddress(&offset, line, first, 4096));
    std::printf("offset %zu\n", offset);
    CUdeviceptr bound = 0;
    CHECK_DRIVER(cuTexRefGetAddress(&bound, line));
    std::printf("address %s\n", bound == first ? "as bound" : "another");
    fetch("linear", 6, 0);
    // Another binding between launches: each sees its own.
    unsigned from = 3;
    launch("fetch", 4, 1, {&results, &from});
    CHECK_DRIVER(cuTexRefSetAddress(nullptr, line, second, 4096));
    CUdeviceptr later = results + 16;
    launch("fetch", 4, 1, {&later, &from});
    print<float>("bound anew between launches", 8);
    // From the middle: the texture begins before, and the kernel adds the rest.
    CHECK_DRIVER(cuTexRefSetAddress(&offset, line, first + 520, 256));
    std::printf("offset %zu\n", offset);
    fetch("from the middle", 4, (unsigned)(offset / 4));
    CHECK_DRIVER(cuTexRefSetAddress(nullptr, line, first, 16));
    fetch("behind the end", 6, 0);
    // 16-bit integers, read as floats of -1 to 1.
    const short shorts[4] = {0, 32767, -32767, 16384};
    CHECK_DRIVER(cuMemcpyHtoD(second, shorts, sizeof shorts));
    CHECK_DRIVER(cuTexRefSetFormat(line, CU_AD_FORMAT_SIGNED_INT16, 1));
    CHECK_DRIVER(cuTexRefSetAddress(nullptr, line, second, sizeof shorts));
    fetch("normalized shorts", 3, 0);
    at_the_end.push_back([=] { CHECK_DRIVER(cuMemFree(first)); });
    at_the_end.push_back([=] { CHECK_DRIVER(cuMemFree(second)); });
}

static void arrays() {
    float texels[2][4] = {{1, 2, 3, 4}, {11, 12, 13, 14}};
    const CUarray array = array_2d(4, 2, CU_AD_FORMAT_FLOAT, 0);
    fill(array, texels, sizeof texels[0], 2);
    const CUtexref image = texture("image");
    CHECK_DRIVER(cuTexRefSetAddressMode(image, 0, CU_TR_ADDRESS_MODE_CLAMP));
    CHECK_DRIVER(cuTexRefSetAddressMode(image, 1, CU_TR_ADDRESS_MODE_CLAMP));
    CHECK_DRIVER(cuTexRefSetFilterMode(image, CU_TR_FILTER_MODE_POINT));
    CHECK_DRIVER(cuTexRefSetFlags(image, 0));
    CHECK_DRIVER(cuTexRefSetArray(image, array, CU_TRSA_OVERRIDE_FORMAT));
    CUarray bound = nullptr;
    CHECK_DRIVER(cuTexRefGetArray(&bound, image));
    std::printf("array %s\n", bound == array ? "as bound" : "another");
    CUarray_format format;
    int channels = 0;
    CHECK_DRIVER(cuTexRefGetFormat(&format, &channels, image));
    std::printf("format %#x of %d\n", (int)format, channels);
    sample("points, clamped", 6, -0.5f, 1, 1.5f);
    CHECK_DRIVER(cuTexRefSetFilterMode(image, CU_TR_FILTER_MODE_LINEAR));
    sample("linear", 4, 1, 1, 1);
    CHECK_DRIVER(cuTexRefSetFilterMode(image, CU_TR_FILTER_MODE_POINT));
    CHECK_DRIVER(cuTexRefSetFlags(image, CU_TRSF_NORMALIZED_COORDINATES));
    CHECK_DRIVER(cuTexRefSetAddressMode(image, 0, CU_TR_ADDRESS_MODE_WRAP));
    sample("normalized, wrapped", 8, -0.875f, 0.25f, 0.25f);
    CHECK_DRIVER(cuTexRefSetAddressMode(image, 0, CU_TR_ADDRESS_MODE_MIRROR));
    sample("mirrored", 8, -0.875f, 0.25f, 0.25f);
    float color[4] = {7, 8, 9, 10}, found[4] = {};
    CHECK_DRIVER(cuTexRefSetBorderColor(image, color));
    CHECK_DRIVER(cuTexRefSetAddressMode(image, 0, CU_TR_ADDRESS_MODE_BORDER));
    CHECK_DRIVER(cuTexRefGetBorderColor(found, image));
    std::printf("border %g %g %g %g\n", found[0], found[1], found[2], found[3]);
    sample("border", 6, -0.125f, 0.25f, 0.25f);
    at_the_end.push_back([=] { CHECK_DRIVER(cuArrayDestroy(array)); });

    const unsigned char bytes[4] = {0, 255, 51, 102};
    const CUarray small = array_2d(4, 1, CU_AD_FORMAT_UNSIGNED_INT8, 0);
    fill(small, bytes, sizeof bytes, 1);
    CHECK_DRIVER(cuTexRefSetArray(image, small, CU_TRSA_OVERRIDE_FORMAT));
    CHECK_DRIVER(cuTexRefSetFlags(image, 0));
    CHECK_DRIVER(cuTexRefSetAddressMode(image, 0, CU_TR_ADDRESS_MODE_CLAMP));
    sample("bytes as floats", 2, 0.5f, 1, 0.5f);
    CHECK_DRIVER(cuTexRefSetFlags(image, CU_TRSF_READ_AS_INTEGER));
    unsigned count = 4;
    launch("integers", count, 1, {&results, &count});
    print<unsigned>("bytes as integers, width, height", 6);
    unsigned flags = 0;
    CHECK_DRIVER(cuTexRefGetFlags(&flags, image));
    std::printf("flags %u\n", flags);
    CUaddress_mode mode;
    CHECK_DRIVER(cuTexRefGetAddressMode(&mode, image, 0));
    CUfilter_mode filter;
    CHECK_DRIVER(cuTexRefGetFilterMode(&filter, image));
    std::printf("address mode %d, filter mode %d\n", (int)mode, (int)filter);
    at_the_end.push_back([=] { CHECK_DRIVER(cuArrayDestroy(small)); });
}

static void rows() {
    CUdeviceptr memory;
    size_t pitch;
    CHECK_DRIVER(cuMemAllocPitch(&memory, &pitch, 16, 3, 4));
    const float texels[3][4] = {{1, 2, 3, 4}, {21, 22, 23, 24}, {31, 32, 33, 34}};
    for (int row = 0; row < 3; row++) CHECK_DRIVER(cuMemcpyHtoD(memory + row * pitch, texels[row], 16));
    const CUtexref image = texture("image");
    CUDA_ARRAY_DESCRIPTOR descriptor = {};
    descriptor.Width = 4, descriptor.Height = 3, descriptor.Format = CU_AD_FORMAT_FLOAT, descriptor.NumChannels = 1;
    CHECK_DRIVER(cuTexRefSetFlags(image, 0));
    CHECK_DRIVER(cuTexRefSetAddress2D(image, &descriptor, memory, pitch));
    sample("second row", 4, 0.5f, 1, 1.5f);
    CHECK_DRIVER(cuTexRefSetFilterMode(image, CU_TR_FILTER_MODE_LINEAR));
    sample("between rows", 4, 0.5f, 1, 2);
    CUdeviceptr bound = 0;
    CHECK_DRIVER(cuTexRefGetAddress(&bound, image));
    std::printf("address %s\n", bound == memory ? "as bound" : "another");
    at_the_end.push_back([=] { CHECK_DRIVER(cuMemFree(memory)); });
}

static void mipmaps() {
    CUDA_ARRAY3D_DESCRIPTOR descriptor = {};
    descriptor.Width = 4, descriptor.Height = 4, descriptor.Format = CU_AD_FORMAT_FLOAT, descriptor.NumChannels = 1;
    CUmipmappedArray mipmap;
    CHECK_DRIVER(cuMipmappedArrayCreate(&mipmap, &descriptor, 3));
    for (unsigned level = 0; level < 3; level++) {
        CUarray array;
        CHECK_DRIVER(cuMipmappedArrayGetLevel(&array, mipmap, level));
        const std::vector<float> texels(16, 10.0f * (float)(level + 1));
        fill(array, texels.data(), 16 >> level, 4 >> level);
    }
    const CUtexref levels = texture("levels");
    CHECK_DRIVER(cuTexRefSetFlags(levels, CU_TRSF_NORMALIZED_COORDINATES));
    CHECK_DRIVER(cuTexRefSetFilterMode(levels, CU_TR_FILTER_MODE_LINEAR));
    CHECK_DRIVER(cuTexRefSetMipmapFilterMode(levels, CU_TR_FILTER_MODE_LINEAR));
    CHECK_DRIVER(cuTexRefSetMipmapLevelBias(levels, 0));
    CHECK_DRIVER(cuTexRefSetMipmapLevelClamp(levels, 0, 2));
    CHECK_DRIVER(cuTexRefSetMaxAnisotropy(levels, 1));
    CHECK_DRIVER(cuTexRefSetMipmappedArray(levels, mipmap, CU_TRSA_OVERRIDE_FORMAT));
    CUmipmappedArray bound = nullptr;
    CHECK_DRIVER(cuTexRefGetMipmappedArray(&bound, levels));
    std::printf("mipmapped array %s\n", bound == mipmap ? "as bound" : "another");
    launch("level", 4, 1, {&results});
    print<float>("levels", 4);
    CHECK_DRIVER(cuTexRefSetMipmapLevelBias(levels, 0.5f));
    launch("level", 4, 1, {&results});
    print<float>("levels, biased", 4);
    CHECK_DRIVER(cuTexRefSetMipmapLevelClamp(levels, 1, 1.5f));
    launch("level", 4, 1, {&results});
    print<float>("levels, biased and clamped", 4);
    float bias = 0, least = 0, greatest = 0;
    int anisotropy = 0;
    CUfilter_mode filter;
    CHECK_DRIVER(cuTexRefGetMipmapLevelBias(&bias, levels));
    CHECK_DRIVER(cuTexRefGetMipmapLevelClamp(&least, &greatest, levels));
    CHECK_DRIVER(cuTexRefGetMaxAnisotropy(&anisotropy, levels));
    CHECK_DRIVER(cuTexRefGetMipmapFilterMode(&filter, levels));
    std::printf("bias %g, clamp %g %g, anisotropy %d, filter %d\n", bias, least, greatest, anisotropy, (int)filter);
    at_the_end.push_back([=] { CHECK_DRIVER(cuMipmappedArrayDestroy(mipmap)); });
}

static void surfaces() {
    const int words[2][4] = {{1, 2, 3, 4}, {5, 6, 7, 8}};
    const CUarray array = array_2d(4, 2, CU_AD_FORMAT_SIGNED_INT32, CUDA_ARRAY3D_SURFACE_LDST);
    fill(array, words, sizeof words[0], 2);
    CUsurfref canvas;
    CHECK_DRIVER(cuModuleGetSurfRef(&canvas, module_of_code, "canvas"));
    CHECK_DRIVER(cuSurfRefSetArray(canvas, array, 0));
    CUarray bound = nullptr;
    CHECK_DRIVER(cuSurfRefGetArray(&bound, canvas));
    std::printf("array %s\n", bound == array ? "as bound" : "another");
    launch("paint", 4, 2, {&results});
    print<unsigned>("width, height", 2);
    CUDA_MEMCPY2D copy = {};
    int painted[2][4] = {};
    copy.srcMemoryType = CU_MEMORYTYPE_ARRAY, copy.srcArray = array;
    copy.dstMemoryType = CU_MEMORYTYPE_HOST, copy.dstHost = painted, copy.dstPitch = sizeof painted[0];
    copy.WidthInBytes = sizeof painted[0], copy.Height = 2;
    CHECK_DRIVER(cuMemcpy2D(&copy));
    std::printf("painted:");
    for (const auto &row : painted)
        for (int word : row) std::printf(" %d", word);
    std::printf("\n");
    at_the_end.push_back([=] { CHECK_DRIVER(cuArrayDestroy(array)); });
}

#define ANSWER(call) std::printf("%s -> %d\n", #call, (int)(call))

static void answers() {
    const CUtexref image = texture("image"), line = texture("line");
    CUtexref other = nullptr, made = nullptr;
    CUsurfref canvas = nullptr;
    CUdeviceptr address = 0;
    CUarray array = nullptr;
    CUmipmappedArray mipmap = nullptr;
    CUaddress_mode mode;
    CUfunction function;
    size_t bytes = 0;
    CHECK_DRIVER(cuModuleGetFunction(&function, module_of_code, "fetch"));
    std::printf("the same handle again: %d\n", texture("image") == image);
    ANSWER(cuModuleGetTexRef(&other, module_of_code, "nothing"));
    ANSWER(cuModuleGetTexRef(&other, module_of_code, "canvas"));
    ANSWER(cuModuleGetTexRef(&other, module_of_code, "variable"));
    ANSWER(cuModuleGetSurfRef(&canvas, module_of_code, "image"));
    ANSWER(cuModuleGetGlobal(&address, &bytes, module_of_code, "image"));
    ANSWER(cuTexRefGetArray(&array, line));
    ANSWER(cuTexRefGetMipmappedArray(&mipmap, line));
    ANSWER(cuTexRefGetAddressMode(&mode, line, 3));
    ANSWER(cuTexRefSetAddressMode(line, 3, CU_TR_ADDRESS_MODE_CLAMP));
    ANSWER(cuTexRefSetAddressMode(line, 0, (CUaddress_mode)9));
    ANSWER(cuTexRefSetFilterMode(line, (CUfilter_mode)9));
    ANSWER(cuTexRefSetFormat(line, CU_AD_FORMAT_FLOAT, 3));
    ANSWER(cuTexRefSetFormat(line, (CUarray_format)0x77, 1));
    ANSWER(cuTexRefSetFlags(line, 0x80));
    ANSWER(cuParamSetTexRef(function, CU_PARAM_TR_DEFAULT, image));
    ANSWER(cuParamSetTexRef(function, 0, image));
    CHECK_DRIVER(cuTexRefCreate(&made));
    ANSWER(cuParamSetTexRef(function, CU_PARAM_TR_DEFAULT, made)); // nothing is bound to it
    CUarray_format format = (CUarray_format)0;
    int channels = 0;
    unsigned flags = 77;
    CUfilter_mode filter;
    CHECK_DRIVER(cuTexRefGetFormat(&format, &channels, made));
    CHECK_DRIVER(cuTexRefGetFlags(&flags, made));
    CHECK_DRIVER(cuTexRefGetAddressMode(&mode, made, 0));
    CHECK_DRIVER(cuTexRefGetFilterMode(&filter, made));
    std::printf("at first: format %#x of %d, flags %u, address mode %d, filter mode %d\n", (int)format, channels, flags,
                (int)mode, (int)filter);
    ANSWER(cuTexRefGetAddress(&address, made));
    ANSWER(cuTexRefSetFormat(made, CU_AD_FORMAT_FLOAT, 4));
    ANSWER(cuTexRefSetAddress(nullptr, made, results, 64));
    ANSWER(cuTexRefSetAddress(nullptr, made, results + 4, 60));
    ANSWER(cuTexRefDestroy(made));
}

int main() {
    use_primary_context();
    CHECK_DRIVER(cuModuleLoadData(&module_of_code, CODE));
    CHECK_DRIVER(cuMemAlloc(&results, 4096));
    linear_memory();
    arrays();
    rows();
    mipmaps();
    surfaces();
    answers();
    CHECK_DRIVER(cuModuleUnload(module_of_code));
    for (const auto &clean : at_the_end) clean();
    std::printf("done\n");
    return 0;
}
