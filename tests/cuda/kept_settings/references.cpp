// SPDX-License-Identifier: Apache-2.0 OR MIT
// Settings of texture and surface references.

#include "driver.h"

static CUtexref bound, linear;
static CUsurfref surface;
static CUarray array;
static CUmipmappedArray mipmap;
static CUdeviceptr memory;

static void ask_reference(Answers &answers, const char *name, CUtexref reference) {
    CUarray_format format{};
    int channels = 0;
    int result = cuTexRefGetFormat(&format, &channels, reference);
    answers.add("cuTexRefGetFormat", std::string(name) + " format", result, format);
    answers.add("cuTexRefGetFormat", std::string(name) + " channels", result, channels);
    for (int dimension = 0; dimension < 2; dimension++) {
        CUaddress_mode mode{};
        result = cuTexRefGetAddressMode(&mode, reference, dimension);
        answers.add("cuTexRefGetAddressMode", name + std::string(" ") + std::to_string(dimension), result, mode);
    }
    CUfilter_mode filter{};
    answers.add("cuTexRefGetFilterMode", name, cuTexRefGetFilterMode(&filter, reference), filter);
    answers.add("cuTexRefGetMipmapFilterMode", name, cuTexRefGetMipmapFilterMode(&filter, reference), filter);
    float bias = 0, clamp[2] = {}, color[4] = {};
    answers.add("cuTexRefGetMipmapLevelBias", name, cuTexRefGetMipmapLevelBias(&bias, reference), bias);
    result = cuTexRefGetMipmapLevelClamp(&clamp[0], &clamp[1], reference);
    answers.add("cuTexRefGetMipmapLevelClamp", name, result, clamp);
    int most = 0;
    answers.add("cuTexRefGetMaxAnisotropy", name, cuTexRefGetMaxAnisotropy(&most, reference), most);
    answers.add("cuTexRefGetBorderColor", name, cuTexRefGetBorderColor(color, reference), color);
    unsigned flags = 0;
    answers.add("cuTexRefGetFlags", name, cuTexRefGetFlags(&flags, reference), flags);
}

static void ask(Answers &answers) {
    ask_reference(answers, "bound", bound);
    ask_reference(answers, "linear", linear);
    CUarray found = nullptr;
    int result = cuTexRefGetArray(&found, bound);
    answers.add("cuTexRefGetArray", "bound", result, found == array);
    CUmipmappedArray levels = nullptr;
    result = cuTexRefGetMipmappedArray(&levels, bound);
    answers.add("cuTexRefGetMipmappedArray", "bound", result, levels == mipmap);
    CUdeviceptr address = 0;
    result = cuTexRefGetAddress(&address, linear);
    answers.add("cuTexRefGetAddress", "linear", result, address);
    found = nullptr;
    result = cuSurfRefGetArray(&found, surface);
    answers.add("cuSurfRefGetArray", "surface", result, found == array);
}

static void set() {
    const float color[4] = {0.25, 0.5, 0.75, 1};
    // It replaces the array's.
    CHECK_DRIVER(cuTexRefSetArray(bound, array, CU_TRSA_OVERRIDE_FORMAT));
    CHECK_DRIVER(cuTexRefSetMipmappedArray(bound, mipmap, CU_TRSA_OVERRIDE_FORMAT));
    CHECK_DRIVER(cuTexRefSetAddressMode(bound, 0, CU_TR_ADDRESS_MODE_MIRROR));
    CHECK_DRIVER(cuTexRefSetAddressMode(bound, 1, CU_TR_ADDRESS_MODE_BORDER));
    CHECK_DRIVER(cuTexRefSetFilterMode(bound, CU_TR_FILTER_MODE_LINEAR));
    CHECK_DRIVER(cuTexRefSetMipmapFilterMode(bound, CU_TR_FILTER_MODE_LINEAR));
    CHECK_DRIVER(cuTexRefSetMipmapLevelBias(bound, 0.5));
    CHECK_DRIVER(cuTexRefSetMipmapLevelClamp(bound, 0.5, 1.5));
    CHECK_DRIVER(cuTexRefSetMaxAnisotropy(bound, 4));
    CHECK_DRIVER(cuTexRefSetBorderColor(bound, const_cast<float *>(color)));
    CHECK_DRIVER(cuTexRefSetFlags(bound, CU_TRSF_NORMALIZED_COORDINATES));
    CHECK_DRIVER(cuTexRefSetFormat(linear, CU_AD_FORMAT_UNSIGNED_INT8, 4));
    size_t offset = 0;
    CHECK_DRIVER(cuTexRefSetAddress(&offset, linear, memory, 4096));
    CHECK_DRIVER(cuTexRefSetFlags(linear, CU_TRSF_READ_AS_INTEGER));
    CHECK_DRIVER(cuSurfRefSetArray(surface, array, 0));
}

Part references_part() {
    use_primary_context();
    CUmodule module;
    CHECK_DRIVER(cuModuleLoadData(&module, KEPT_CODE));
    CHECK_DRIVER(cuModuleGetTexRef(&bound, module, "texture"));
    CHECK_DRIVER(cuModuleGetTexRef(&linear, module, "other"));
    CHECK_DRIVER(cuModuleGetSurfRef(&surface, module, "surface"));
    const CUDA_ARRAY3D_DESCRIPTOR of_array = {64, 32, 0, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_SURFACE_LDST};
    CHECK_DRIVER(cuArray3DCreate(&array, &of_array));
    const CUDA_ARRAY3D_DESCRIPTOR of_mipmap = {64, 32, 0, CU_AD_FORMAT_FLOAT, 1, 0};
    CHECK_DRIVER(cuMipmappedArrayCreate(&mipmap, &of_mipmap, 3));
    CHECK_DRIVER(cuMemAlloc(&memory, 4096));
    return {ask, set};
}
