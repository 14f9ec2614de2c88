// SPDX-License-Identifier: Apache-2.0 OR MIT
// cuSPARSE's generic functions by their public API: sparse matrices in three forms, times vectors and dense matrices.

#include "library.h"

// cusparse.h, library_types.h
enum { INDEX_32I = 2, R_32F = 0, ORDER_COLUMNS = 1, ORDER_ROWS = 2 };

static const int M = 14, N = 9, K = 4;
static Handle handle;
static cudaStream_t stream;
static const float TWO = 2, ONE = 1, ZERO = 0;

static std::vector<float> dense;
static std::vector<int> rows, columns, offsets, column_offsets, column_rows;
static std::vector<float> values, column_values;

static void make() {
    dense = numbers(M * N, 1);
    for (int i = 0; i < M; i++) {
        offsets.push_back(values.size());
        for (int j = 0; j < N; j++) {
            // Two of three elements are left out.
            if ((i + j) % 3) dense[j * M + i] = 0;
            if (dense[j * M + i] == 0) continue;
            rows.push_back(i), columns.push_back(j), values.push_back(dense[j * M + i]);
        }
    }
    offsets.push_back(values.size());
    for (int j = 0; j < N; j++) {
        column_offsets.push_back(column_values.size());
        for (int i = 0; i < M; i++)
            if (dense[j * M + i] != 0) column_rows.push_back(i), column_values.push_back(dense[j * M + i]);
    }
    column_offsets.push_back(column_values.size());
}

static void products(const char *form, Handle a) {
    printf("%s\n", form);
    for (int turned = 0; turned < 2; turned++) {
        const int out = turned ? N : M, in = turned ? M : N;
        const auto x = numbers(in, 2), y = numbers(out, 3), b = numbers(in * K, 4);
        std::vector<float> wanted = y, product(out * K);
        for (int i = 0; i < M; i++)
            for (int j = 0; j < N; j++) {
                const int to = turned ? j : i, from = turned ? i : j;
                wanted[to] += 2 * dense[j * M + i] * x[from];
                for (int k = 0; k < K; k++) product[to * K + k] += dense[j * M + i] * b[k * in + from];
            }
        Handle dx, dy, db, dc;
        float *y_memory = on_device(y), *c_memory = on_device(std::vector<float>(out * K));
        CHECK(call("cusparseCreateDnVec", &dx, (long)in, on_device(x), (int)R_32F));
        CHECK(call("cusparseCreateDnVec", &dy, (long)out, y_memory, (int)R_32F));
        size_t bytes;
        void *buffer;
        CHECK(call("cusparseSpMV_bufferSize", handle, turned, (const void *)&TWO, a, dx, (const void *)&ONE, dy, (int)R_32F, 0, &bytes));
        CHECK(cudaMalloc(&buffer, bytes + 1));
        CHECK(call("cusparseSpMV", handle, turned, (const void *)&TWO, a, dx, (const void *)&ONE, dy, (int)R_32F, 0, buffer));
        CHECK(cudaStreamSynchronize(stream));
        compare(turned ? "transposed, times a vector" : "times a vector", back(y_memory, out), wanted, 1e-6);
        CHECK(call("cusparseCreateDnMat", &db, (long)in, (long)K, (long)in, on_device(b), (int)R_32F, (int)ORDER_COLUMNS));
        CHECK(call("cusparseCreateDnMat", &dc, (long)out, (long)K, (long)K, c_memory, (int)R_32F, (int)ORDER_ROWS));
        CHECK(call("cusparseSpMM_bufferSize", handle, turned, 0, (const void *)&ONE, a, db, (const void *)&ZERO, dc, (int)R_32F, 0, &bytes));
        CHECK(cudaMalloc(&buffer, bytes + 1));
        CHECK(call("cusparseSpMM", handle, turned, 0, (const void *)&ONE, a, db, (const void *)&ZERO, dc, (int)R_32F, 0, buffer));
        CHECK(cudaStreamSynchronize(stream));
        compare(turned ? "transposed, times a matrix" : "times a matrix", back(c_memory, out * K), product, 1e-6);
        for (Handle one : {dx, dy}) CHECK(call("cusparseDestroyDnVec", one));
        for (Handle one : {db, dc}) CHECK(call("cusparseDestroyDnMat", one));
    }
}

static void conversions(Handle csr) {
    int *numbers_again = on_device(std::vector<int>(rows.size())), *offsets_again = on_device(std::vector<int>(offsets.size()));
    const int count = values.size();
    CHECK(call("cusparseXcsr2coo", handle, (const int *)on_device(offsets), count, M, numbers_again, 0));
    CHECK(call("cusparseXcoo2csr", handle, (const int *)numbers_again, count, M, offsets_again, 0));
    CHECK(cudaStreamSynchronize(stream));
    printf("rows: %s\n", back(numbers_again, rows.size()) == rows ? "right" : "WRONG");
    printf("offsets: %s\n", back(offsets_again, offsets.size()) == offsets ? "right" : "WRONG");
    float *memory = on_device(std::vector<float>(M * N, 5));
    Handle matrix;
    size_t bytes;
    void *buffer;
    CHECK(call("cusparseCreateDnMat", &matrix, (long)M, (long)N, (long)M, memory, (int)R_32F, (int)ORDER_COLUMNS));
    CHECK(call("cusparseSparseToDense_bufferSize", handle, csr, matrix, 0, &bytes));
    CHECK(cudaMalloc(&buffer, bytes + 1));
    CHECK(call("cusparseSparseToDense", handle, csr, matrix, 0, buffer));
    CHECK(cudaStreamSynchronize(stream));
    compare("dense", back(memory, M * N), dense, 0);
    CHECK(call("cusparseDestroyDnMat", matrix));
}

int main() {
    load({"libcusparse.so.12"});
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(call("cusparseCreate", &handle));
    CHECK(call("cusparseSetStream", handle, stream));
    make();
    const long count = values.size();
    Handle csr, csc, coo;
    CHECK(call("cusparseCreateCsr", &csr, (long)M, (long)N, count, on_device(offsets), on_device(columns), on_device(values), (int)INDEX_32I,
               (int)INDEX_32I, 0, (int)R_32F));
    CHECK(call("cusparseCreateCsc", &csc, (long)M, (long)N, count, on_device(column_offsets), on_device(column_rows),
               on_device(column_values), (int)INDEX_32I, (int)INDEX_32I, 0, (int)R_32F));
    CHECK(call("cusparseCreateCoo", &coo, (long)M, (long)N, count, on_device(rows), on_device(columns), on_device(values), (int)INDEX_32I, 0,
               (int)R_32F));
    products("by rows", csr);
    products("by columns", csc);
    products("by pairs", coo);
    conversions(csr);
    for (Handle one : {csr, csc, coo}) CHECK(call("cusparseDestroySpMat", one));
    CHECK(call("cusparseDestroy", handle));
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaDeviceSynchronize());
    printf("done\n");
    return 0;
}
