// SPDX-License-Identifier: Apache-2.0 OR MIT
// cuDNN by its sub-libraries: an object of one file is used by functions of the others. With the argument "refused": functions that
// the guest's libraries have so that programs load, and that answer "not supported".
#include "library.h"

#include <cstring>

// A function of one file, which must be that file's own or one that it needs.
template <class... A> static int of(const char *file, const char *name, A... arguments) {
    library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        printf("no %s: %s\n", file, dlerror());
        exit(1);
    }
    return call(name, arguments...);
}

static void refused() {
    void *made = nullptr;
    for (const char *file : {"libcusolverMg.so.12", "libcusolverMg.so.11"})
        printf("cusolverMgCreate of %s: %d\n", file, of(file, "cusolverMgCreate", &made));
    printf("cusolverDnXpolar: %d\n", of("libcusolver.so.12", "cusolverDnXpolar", made));
    printf("cusparseSpMVOp: %d\n", of("libcusparse.so.12", "cusparseSpMVOp", made));
    printf("cufftDeviceGetVersion: %d\n", of("libcufft.so.12", "cufftDeviceGetVersion", made));
    printf("cublasLtGroupedMatrixLayoutCreate: %d\n", of("libcublasLt.so.13", "cublasLtGroupedMatrixLayoutCreate", made));
    printf("ncclParamDumpAll: %d\n", of("libnccl.so.2", "ncclParamDumpAll"));
}

int main(int count, char **arguments) {
    if (count > 1 && !strcmp(arguments[1], "refused")) {
        refused();
        return 0;
    }
    for (const char *name : {"graph", "ops", "cnn", "adv", "ext", "engines_precompiled", "engines_runtime_compiled",
                             "engines_tensor_ir", "heuristic"}) {
        char file[64];
        snprintf(file, sizeof file, "libcudnn_%s.so.9", name);
        printf("%s: %s\n", file, dlopen(file, RTLD_NOW | RTLD_LOCAL) ? "loaded" : dlerror());
    }
    for (const char *file : {"libcudnn_cnn.so.9", "libcudnn_adv.so.9"})
        printf("version of %s: %d\n", file, of(file, file[9] == 'c' ? "cudnnCnnVersionCheck" : "cudnnAdvVersionCheck"));

    Handle handle, tensor, relu;
    CHECK(of("libcudnn_graph.so.9", "cudnnCreate", &handle));
    // In the file that this one needs.
    CHECK(of("libcudnn_ops.so.9", "cudnnCreateTensorDescriptor", &tensor));
    CHECK(of("libcudnn_ops.so.9", "cudnnSetTensor4dDescriptor", tensor, 0, 0, 1, 1, 1, 4));
    CHECK(of("libcudnn.so.9", "cudnnCreateActivationDescriptor", &relu));
    CHECK(of("libcudnn_ops.so.9", "cudnnSetActivationDescriptor", relu, 1, 0, 0.0));
    float *memory = on_device<float>({-1, 2, -3, 4});
    const float one = 1, zero = 0;
    CHECK(of("libcudnn_ops.so.9", "cudnnActivationForward", handle, relu, &one, tensor, memory, &zero, tensor, memory));
    printf("without the negative ones:");
    for (float value : back(memory, 4)) printf(" %g", value);
    CHECK(of("libcudnn_ops.so.9", "cudnnDestroyActivationDescriptor", relu));
    CHECK(of("libcudnn.so.9", "cudnnDestroyTensorDescriptor", tensor));
    CHECK(of("libcudnn_graph.so.9", "cudnnDestroy", handle));
    CHECK(cudaFree(memory));
    printf("\n");
}
