// SPDX-License-Identifier: Apache-2.0 OR MIT
// cuSPARSE.

#include "library_part.h"

#include <array>

// cusparse.h and library_types.h
enum { INDEX_32I = 2, R_32F = 0, ROW_ORDER = 2, FILL_MODE = 0, CSR = 1 };

static Handle handle, description, sparse_vector, dense_vector, csr, csc, coo, dense_matrix;
static cudaStream_t stream;
// Two for each.
static int *indices[2];
static float *values[2];

// A matrix's pointers, which follow its three sizes.
static void ask_matrix(Answers &answers, const char *getter, Handle matrix, int types) {
    int64_t sizes[3] = {};
    void *found[3] = {};
    int kinds[4] = {};
    const int result = types == 4 ? call(getter, matrix, &sizes[0], &sizes[1], &sizes[2], &found[0], &found[1], &found[2], &kinds[0], &kinds[1], &kinds[2], &kinds[3])
                                  : call(getter, matrix, &sizes[0], &sizes[1], &sizes[2], &found[0], &found[1], &found[2], &kinds[0], &kinds[1], &kinds[2]);
    answers.add(getter, "sizes", result, sizes);
    answers.add(getter, "pointers", result, found);
    answers.add(getter, "kinds", result, kinds);
}

static void ask(Answers &answers) {
    get_stream(answers, "cusparseGetStream", handle, stream);
    get<int>(answers, "cusparseGetPointerMode", "", handle);
    for (const char *getter : {"cusparseGetMatType", "cusparseGetMatFillMode", "cusparseGetMatDiagType", "cusparseGetMatIndexBase"})
        answers.add(getter, "", 0, call(getter, description));
    get<float *>(answers, "cusparseSpVecGetValues", "", sparse_vector);
    get<float *>(answers, "cusparseDnVecGetValues", "", dense_vector);
    get<float *>(answers, "cusparseDnMatGetValues", "", dense_matrix);
    get<float *>(answers, "cusparseSpMatGetValues", "coo", coo);
    get<int>(answers, "cusparseSpMatGetStridedBatch", "csr", csr);
    int count = 0;
    int64_t stride = 0;
    int result = call("cusparseDnMatGetStridedBatch", dense_matrix, &count, &stride);
    answers.add("cusparseDnMatGetStridedBatch", "count", result, count);
    answers.add("cusparseDnMatGetStridedBatch", "stride", result, stride);
    int fill = 0;
    result = call("cusparseSpMatGetAttribute", csr, (int)FILL_MODE, (void *)&fill, sizeof fill);
    answers.add("cusparseSpMatGetAttribute", "fill", result, fill);
    // A structure of the latest versions.
    get<std::array<void *, 9>>(answers, "cusparseSpMatGetPointers", "csr", csr);
    ask_matrix(answers, "cusparseCsrGet", csr, 4);
    ask_matrix(answers, "cusparseCscGet", csc, 4);
    ask_matrix(answers, "cusparseCooGet", coo, 3);
}

static void set_all() {
    set("cusparseSetStream", handle, stream);
    set("cusparseSetPointerMode", handle, 1);
    set("cusparseSetMatType", description, 3);
    set("cusparseSetMatFillMode", description, 1);
    set("cusparseSetMatDiagType", description, 1);
    set("cusparseSetMatIndexBase", description, 1);
    set("cusparseSpVecSetValues", sparse_vector, values[1]);
    set("cusparseDnVecSetValues", dense_vector, values[1]);
    set("cusparseDnMatSetValues", dense_matrix, values[1]);
    set("cusparseDnMatSetStridedBatch", dense_matrix, 2, (int64_t)16);
    set("cusparseCsrSetPointers", csr, indices[1], indices[0], values[1]);
    set("cusparseCscSetPointers", csc, indices[1], indices[0], values[1]);
    set("cusparseCooSetPointers", coo, indices[1], indices[0], values[0]);
    set("cusparseSpMatSetValues", coo, values[1]);
    set("cusparseCsrSetStridedBatch", csr, 2, (int64_t)8, (int64_t)8);
    const int fill = 1;
    set("cusparseSpMatSetAttribute", csr, (int)FILL_MODE, (const void *)&fill, sizeof fill);
}

Part sparse_part() {
    load({"libcusparse.so.12"});
    CHECK(cudaStreamCreate(&stream));
    for (int i = 0; i < 2; i++) {
        indices[i] = on_device(std::vector<int>(64));
        values[i] = on_device(std::vector<float>(64));
    }
    CHECK(call("cusparseCreate", &handle));
    CHECK(call("cusparseCreateMatDescr", &description));
    const int64_t four = 4;
    CHECK(call("cusparseCreateSpVec", &sparse_vector, four, four, indices[0], values[0], (int)INDEX_32I, 0, (int)R_32F));
    CHECK(call("cusparseCreateDnVec", &dense_vector, four, values[0], (int)R_32F));
    CHECK(call("cusparseCreateDnMat", &dense_matrix, four, four, four, values[0], (int)R_32F, (int)ROW_ORDER));
    CHECK(call("cusparseCreateCsr", &csr, four, four, four, indices[0], indices[1], values[0], (int)INDEX_32I, (int)INDEX_32I, 0, (int)R_32F));
    (void)call("cusparseCreateCsc", &csc, four, four, four, indices[0], indices[1], values[0], (int)INDEX_32I, (int)INDEX_32I, 0, (int)R_32F);
    CHECK(call("cusparseCreateCoo", &coo, four, four, four, indices[0], indices[1], values[0], (int)INDEX_32I, 0, (int)R_32F));
    return {ask, set_all};
}
