// SPDX-License-Identifier: Apache-2.0 OR MIT
// cuSPARSE's products that keep a pattern or come in batches, by their public API: SDDMM, batches of SpMM, SpGEMMreuse, and what
// SpGEMM tells of its memory.

#include "sparse.h"

#include <algorithm>
#include <string>

static const int M = 14, N = 9, K = 11;
// cusparseSpMMAlg_t and cusparseSpGEMMAlg_t.
enum { COO_ALG4 = 5, CSR_ALG2 = 6, SPGEMM_ALG3 = 5 };

// By rows, what is given by columns.
template <class T> static std::vector<T> turned(const std::vector<T> &dense, int rows, int columns) {
    std::vector<T> made;
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < columns; j++) made.push_back(dense[j * rows + i]);
    return made;
}

// The columns in the opposite order: each row keeps its number of elements.
template <class T> static std::vector<T> mirrored(const std::vector<T> &dense, int rows, int columns) {
    std::vector<T> made;
    for (int j = columns - 1; j >= 0; j--) made.insert(made.end(), dense.begin() + j * rows, dense.begin() + (j + 1) * rows);
    return made;
}

template <class T> static std::vector<T> times(const std::vector<T> &a, const std::vector<T> &b, int m, int k, int n) {
    std::vector<T> c(m * n);
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++)
            for (int l = 0; l < k; l++) c[j * m + i] += a[l * m + i] * b[j * k + l];
    return c;
}

template <class T> static std::vector<T> joined(std::vector<T> first, const std::vector<T> &second) {
    first.insert(first.end(), second.begin(), second.end());
    return first;
}

template <class T> static Handle dense_matrix(T *memory, int rows, int columns, bool is_by_rows) {
    Handle made;
    CHECK(call("cusparseCreateDnMat", &made, (long)rows, (long)columns, (long)(is_by_rows ? columns : rows), memory, (int)Type<T>::number,
               is_by_rows ? (int)ORDER_ROWS : (int)ORDER_COLUMNS));
    return made;
}

template <class T> static void sampled(const char *what, int op_a, int op_b, Handle a, Handle b, Handle c, T alpha, T beta, const T *memory, const std::vector<T> &wanted) {
    const int type = Type<T>::number;
    size_t bytes;
    CHECK(call("cusparseSDDMM_bufferSize", handle, op_a, op_b, &alpha, a, b, &beta, c, type, 0, &bytes));
    char *buffer = room<char>(bytes);
    CHECK(call("cusparseSDDMM_preprocess", handle, op_a, op_b, &alpha, a, b, &beta, c, type, 0, buffer));
    CHECK(call("cusparseSDDMM", handle, op_a, op_b, &alpha, a, b, &beta, c, type, 0, buffer));
    CHECK(cudaStreamSynchronize(stream));
    tell(what, back(memory, wanted.size()) == wanted);
    CHECK(cudaFree(buffer));
}

// The values of alpha A B + beta C where C has elements.
template <class T> static std::vector<T> at_elements(const Compressed<T> &c, const std::vector<T> &product, T alpha, T beta) {
    const std::vector<int> rows = rows_of(c.starts, 0);
    std::vector<T> values;
    for (int at = 0; at < c.count(); at++) values.push_back(alpha * product[c.indices[at] * M + rows[at]] + beta * c.values[at]);
    return values;
}

// The matrices lie by rows.
template <class T> static void sampled_products(bool a_is_turned, bool b_is_turned) {
    const std::vector<T> a = numbers<T>(M * K, 1), b = numbers<T>(K * N, 2);
    const Compressed<T> in_c = compress(example<T>(M, N, 1), M, N, 0);
    const Arrays<T> of_c(in_c);
    // By rows, a matrix has the memory that its transposed one has by columns.
    T *of_a = on_device(a_is_turned ? a : turned(a, M, K)), *of_b = on_device(b_is_turned ? b : turned(b, K, N));
    const Handle first = a_is_turned ? dense_matrix(of_a, K, M, true) : dense_matrix(of_a, M, K, true),
                 second = b_is_turned ? dense_matrix(of_b, N, K, true) : dense_matrix(of_b, K, N, true), third = described(of_c, M, N, in_c.count());
    const std::string what = std::string("sampled product") + (a_is_turned ? ", A turned" : "") + (b_is_turned ? ", B turned" : "");
    sampled<T>(what.c_str(), a_is_turned, b_is_turned, first, second, third, 2, -1, of_c.values, at_elements<T>(in_c, times(a, b, M, K, N), 2, -1));
    for (Handle one : {first, second}) CHECK(call("cusparseDestroyDnMat", one));
    CHECK(call("cusparseDestroySpMat", third));
    of_c.free();
    for (T *memory : {of_a, of_b}) CHECK(cudaFree(memory));
}

// Two matrices, whose rows have the same numbers of elements.
template <class T> struct Pair {
    std::vector<T> dense[2];
    Compressed<T> each[2], both;
    int count;
    Pair(int rows, int columns) {
        dense[0] = example<T>(rows, columns, 1);
        dense[1] = mirrored(dense[0], rows, columns);
        for (int i = 0; i < 2; i++) each[i] = compress(dense[i], rows, columns, 0);
        both = {each[0].starts, joined(each[0].indices, each[1].indices), joined(each[0].values, each[1].values)};
        count = each[0].count();
    }
};

template <class T> static void sampled_batch() {
    const std::vector<T> a[] = {numbers<T>(M * K, 1), numbers<T>(M * K, 2)}, b[] = {numbers<T>(K * N, 3), numbers<T>(K * N, 4)};
    const Pair<T> pair(M, N);
    const Arrays<T> of_c(pair.both);
    T *of_a = on_device(joined(turned(a[0], M, K), turned(a[1], M, K))), *of_b = on_device(joined(turned(b[0], K, N), turned(b[1], K, N)));
    const Handle first = dense_matrix(of_a, M, K, true), second = dense_matrix(of_b, K, N, true), third = described(of_c, M, N, pair.count);
    CHECK(call("cusparseDnMatSetStridedBatch", first, 2, (long)(M * K)));
    CHECK(call("cusparseDnMatSetStridedBatch", second, 2, (long)(K * N)));
    CHECK(call("cusparseCsrSetStridedBatch", third, 2, 0L, (long)pair.count));
    std::vector<T> wanted;
    for (int i = 0; i < 2; i++) wanted = joined(wanted, at_elements<T>(pair.each[i], times(a[i], b[i], M, K, N), 2, 0));
    sampled<T>("batch of sampled products", 0, 0, first, second, third, 2, 0, of_c.values, wanted);
    for (Handle one : {first, second}) CHECK(call("cusparseDestroyDnMat", one));
    CHECK(call("cusparseDestroySpMat", third));
    of_c.free();
    for (T *memory : {of_a, of_b}) CHECK(cudaFree(memory));
}

// Two blocks of 4 x 4 on the diagonal.
static void sampled_blocks() {
    const int size = 8, block = 4;
    const std::vector<float> a = numbers(size * size, 1), b = numbers(size * size, 2), product = times(a, b, size, size, size);
    std::vector<float> wanted;
    for (int at = 0; at < 2; at++)
        for (int i = 0; i < block; i++)
            for (int j = 0; j < block; j++) wanted.push_back(product[(at * block + j) * size + at * block + i]);
    float *of_a = on_device(turned(a, size, size)), *of_b = on_device(turned(b, size, size)), *values = on_device(std::vector<float>(wanted.size()));
    int *starts = on_device(std::vector<int>{0, 1, 2}), *indices = on_device(std::vector<int>{0, 1});
    const Handle first = dense_matrix(of_a, size, size, true), second = dense_matrix(of_b, size, size, true);
    Handle third;
    CHECK(call("cusparseCreateBsr", &third, 2L, 2L, 2L, (long)block, (long)block, starts, indices, values, (int)INDEX_32I, (int)INDEX_32I, 0,
               (int)Type<float>::number, (int)ORDER_ROWS));
    sampled<float>("sampled product, blocks", 0, 0, first, second, third, 1, 0, values, wanted);
    for (Handle one : {first, second}) CHECK(call("cusparseDestroyDnMat", one));
    CHECK(call("cusparseDestroySpMat", third));
    for (void *memory : {(void *)of_a, (void *)of_b, (void *)values, (void *)starts, (void *)indices}) CHECK(cudaFree(memory));
}

template <class T> static void batch(bool is_coo) {
    const std::vector<T> b[] = {numbers<T>(N * K, 3), numbers<T>(N * K, 4)};
    const Pair<T> pair(M, N);
    Compressed<T> in_a = pair.both;
    const std::vector<int> rows = rows_of(in_a.starts, 0);
    if (is_coo) in_a.starts = joined(rows, rows);
    const Arrays<T> of_a(in_a);
    T *of_b = on_device(joined(b[0], b[1])), *of_c = on_device(std::vector<T>(2 * M * K));
    Handle first;
    const int type = Type<T>::number, algorithm = is_coo ? (int)COO_ALG4 : (int)CSR_ALG2;
    if (is_coo) {
        CHECK(call("cusparseCreateCoo", &first, (long)M, (long)N, (long)pair.count, of_a.starts, of_a.indices, of_a.values, (int)INDEX_32I, 0, type));
        CHECK(call("cusparseCooSetStridedBatch", first, 2, (long)pair.count));
    } else {
        first = described(of_a, M, N, pair.count);
        CHECK(call("cusparseCsrSetStridedBatch", first, 2, 0L, (long)pair.count));
    }
    const Handle second = dense_matrix(of_b, N, K, false), third = dense_matrix(of_c, M, K, false);
    CHECK(call("cusparseDnMatSetStridedBatch", second, 2, (long)(N * K)));
    CHECK(call("cusparseDnMatSetStridedBatch", third, 2, (long)(M * K)));
    int counts[2];
    long step;
    CHECK(call("cusparseSpMatGetStridedBatch", first, &counts[0]));
    CHECK(call("cusparseDnMatGetStridedBatch", second, &counts[1], &step));
    tell("sizes of a batch", counts[0] == 2 && counts[1] == 2 && step == N * K);
    const T alpha = 1, beta = 0;
    size_t bytes;
    CHECK(call("cusparseSpMM_bufferSize", handle, 0, 0, &alpha, first, second, &beta, third, type, algorithm, &bytes));
    char *buffer = room<char>(bytes);
    CHECK(call("cusparseSpMM", handle, 0, 0, &alpha, first, second, &beta, third, type, algorithm, buffer));
    CHECK(cudaStreamSynchronize(stream));
    const std::vector<T> wanted = joined(times(pair.dense[0], b[0], M, N, K), times(pair.dense[1], b[1], M, N, K));
    tell(is_coo ? "batch by pairs" : "batch by rows", back(of_c, 2 * M * K) == wanted);
    CHECK(call("cusparseDestroySpMat", first));
    for (Handle one : {second, third}) CHECK(call("cusparseDestroyDnMat", one));
    of_a.free();
    for (void *memory : {(void *)of_b, (void *)of_c, (void *)buffer}) CHECK(cudaFree(memory));
}

// The arguments of a product of two sparse matrices.
template <class T> struct Product {
    std::vector<T> a = example<T>(M, N, 1), b = example<T>(N, K, 2), dense = times(a, b, M, N, K);
    std::vector<bool> has = std::vector<bool>(M * K);
    Compressed<T> in_a = compress(a, M, N, 0), in_b = compress(b, N, K, 0);
    Arrays<T> of_a{in_a}, of_b{in_b}, of_c{M + 1, M * K};
    Handle first = described(of_a, M, N, in_a.count()), second = described(of_b, N, K, in_b.count()), third, state;
    long products = 0, count;
    std::vector<char *> buffers;

    Product() {
        for (int i = 0; i < M; i++)
            for (int j = 0; j < K; j++)
                for (int l = 0; l < N; l++)
                    if (a[l * M + i] != T(0) && b[j * N + l] != T(0)) has[j * M + i] = true, products++;
        int *none = nullptr;
        T *no_values = nullptr;
        CHECK(call("cusparseCreateCsr", &third, (long)M, (long)K, 0L, of_c.starts, none, no_values, (int)INDEX_32I, (int)INDEX_32I, 0, (int)Type<T>::number));
        CHECK(call("cusparseSpGEMM_createDescr", &state));
    }
    char *buffer(size_t bytes) {
        buffers.push_back(room<char>(bytes));
        return buffers.back();
    }
    // Asks for the number of elements, and gives memory for them.
    void give() {
        long rows, columns;
        CHECK(call("cusparseSpMatGetSize", third, &rows, &columns, &count));
        tell("size", rows == M && columns == K && count == std::count(has.begin(), has.end(), true));
        CHECK(call("cusparseCsrSetPointers", third, of_c.starts, of_c.indices, of_c.values));
    }
    // Waits, and compares C with alpha A B + added. The elements of a row may have any order.
    void compare_with(const char *what, T alpha, T added) {
        CHECK(cudaStreamSynchronize(stream));
        const std::vector<int> starts = back(of_c.starts, M + 1), indices = back(of_c.indices, count), rows = rows_of(starts, 0);
        const std::vector<T> values = back(of_c.values, count);
        bool is_right = starts[0] == 0 && starts[M] == count;
        std::vector<bool> found(M * K);
        for (long at = 0; is_right && at < count; at++) {
            const int place = indices[at] * M + rows[at];
            is_right = has[place] && !found[place] && values[at] == alpha * dense[place] + added;
            found[place] = true;
        }
        tell(what, is_right);
    }
    void free() {
        CHECK(call("cusparseSpGEMM_destroyDescr", state));
        for (Handle one : {first, second, third}) CHECK(call("cusparseDestroySpMat", one));
        for (const Arrays<T> *one : {&of_a, &of_b, &of_c}) one->free();
        for (char *one : buffers) CHECK(cudaFree(one));
    }
};

template <class T> static void reused() {
    Product<T> product;
    const Handle first = product.first, second = product.second, third = product.third, state = product.state;
    char *none = nullptr;
    size_t size = 0, sizes[3] = {};
    CHECK(call("cusparseSpGEMMreuse_workEstimation", handle, 0, 0, first, second, third, 0, state, &size, none));
    CHECK(call("cusparseSpGEMMreuse_workEstimation", handle, 0, 0, first, second, third, 0, state, &size, product.buffer(size)));
    CHECK(call("cusparseSpGEMMreuse_nnz", handle, 0, 0, first, second, third, 0, state, &sizes[0], none, &sizes[1], none, &sizes[2], none));
    char *three[] = {product.buffer(sizes[0]), product.buffer(sizes[1]), product.buffer(sizes[2])};
    CHECK(call("cusparseSpGEMMreuse_nnz", handle, 0, 0, first, second, third, 0, state, &sizes[0], three[0], &sizes[1], three[1], &sizes[2], three[2]));
    product.give();
    CHECK(call("cusparseSpGEMMreuse_copy", handle, 0, 0, first, second, third, 0, state, &size, none));
    CHECK(call("cusparseSpGEMMreuse_copy", handle, 0, 0, first, second, third, 0, state, &size, product.buffer(size)));
    CHECK(cudaStreamSynchronize(stream));
    const int type = Type<T>::number;
    T alpha = 2, beta = 0;
    CHECK(call("cusparseSpGEMMreuse_compute", handle, 0, 0, &alpha, first, second, &beta, third, type, 0, state));
    product.compare_with("first product", 2, 0);
    // All elements are 5, and A becomes -A.
    std::vector<T> fives(product.count, T(5)), opposite = product.in_a.values;
    for (T &value : opposite) value = -value;
    CHECK(cudaMemcpy(product.of_c.values, fives.data(), fives.size() * sizeof(T), cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(product.of_a.values, opposite.data(), opposite.size() * sizeof(T), cudaMemcpyHostToDevice));
    CHECK(cudaStreamSynchronize(cudaStreamLegacy));
    beta = 3;
    CHECK(call("cusparseSpGEMMreuse_compute", handle, 0, 0, &alpha, first, second, &beta, third, type, 0, state));
    product.compare_with("next product", -2, 15);
    product.free();
}

template <class T> static void estimated() {
    Product<T> product;
    const Handle first = product.first, second = product.second, third = product.third, state = product.state;
    const int type = Type<T>::number, algorithm = SPGEMM_ALG3;
    const T alpha = 2, beta = 0;
    const float fraction = 0.2f;
    char *none = nullptr;
    size_t sizes[3] = {}, *no_size = nullptr;
    long products = -1;
    CHECK(call("cusparseSpGEMM_workEstimation", handle, 0, 0, &alpha, first, second, &beta, third, type, algorithm, state, &sizes[0], none));
    CHECK(call("cusparseSpGEMM_workEstimation", handle, 0, 0, &alpha, first, second, &beta, third, type, algorithm, state, &sizes[0], product.buffer(sizes[0])));
    CHECK(call("cusparseSpGEMM_getNumProducts", state, &products));
    tell("number of products", products == product.products);
    CHECK(call("cusparseSpGEMM_estimateMemory", handle, 0, 0, &alpha, first, second, &beta, third, type, algorithm, state, fraction, &sizes[2], none, no_size));
    CHECK(call("cusparseSpGEMM_estimateMemory", handle, 0, 0, &alpha, first, second, &beta, third, type, algorithm, state, fraction, &sizes[2],
               product.buffer(sizes[2]), &sizes[1]));
    CHECK(call("cusparseSpGEMM_compute", handle, 0, 0, &alpha, first, second, &beta, third, type, algorithm, state, &sizes[1], product.buffer(sizes[1])));
    product.give();
    CHECK(call("cusparseSpGEMM_copy", handle, 0, 0, &alpha, first, second, &beta, third, type, algorithm, state));
    product.compare_with("product in chunks", 2, 0);
    product.free();
}

template <class T> static void all() {
    printf("type %c\n", Type<T>::letter);
    for (const bool a_is_turned : {false, true})
        for (const bool b_is_turned : {false, true}) sampled_products<T>(a_is_turned, b_is_turned);
    sampled_batch<T>();
    for (const bool is_coo : {false, true}) batch<T>(is_coo);
    reused<T>();
    estimated<T>();
}

int main() {
    load({"libcusparse.so.12"});
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(call("cusparseCreate", &handle));
    CHECK(call("cusparseSetStream", handle, stream));
    all<float>();
    all<double>();
    all<std::complex<float>>();
    all<std::complex<double>>();
    sampled_blocks();
    CHECK(call("cusparseDestroy", handle));
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaDeviceSynchronize());
    printf("done\n");
    return 0;
}
