// SPDX-License-Identifier: Apache-2.0 OR MIT
// cuSPARSE's functions that make sparse matrices, by their public API: sums, products, other forms, sorted and smaller matrices;
// and its solvers of systems with a triangular matrix.

#include "sparse.h"

#include <algorithm>
#include <string>
#include <utility>

enum { NUMERIC = 1, SYMBOLIC = 0, ALGORITHM_1 = 1 };

static const int M = 14, N = 9, K = 11;

template <class T> static std::string name(const char *rest) { return std::string("cusparse") + Type<T>::letter + rest; }

static Handle descriptor(int base) {
    Handle made;
    CHECK(call("cusparseCreateMatDescr", &made));
    CHECK(call("cusparseSetMatIndexBase", made, base));
    return made;
}

// The sum has an element where one of the matrices has one, even if it is zero.
template <class T> static Compressed<T> sum(const std::vector<T> &a, const std::vector<T> &b, T alpha, T beta, int base) {
    Compressed<T> made;
    for (int i = 0; i < M; i++) {
        made.starts.push_back(made.count() + base);
        for (int j = 0; j < N; j++) {
            const T x = a[j * M + i], y = b[j * M + i];
            if (x != T(0) || y != T(0)) made.indices.push_back(j + base), made.values.push_back(alpha * x + beta * y);
        }
    }
    made.starts.push_back(made.count() + base);
    return made;
}

// All matrices have one base: NVIDIA's library of CUDA 13.0 takes the columns of the second one with the base of the first.
template <class T> static void sums(int base, bool on_the_device) {
    std::vector<T> a = example<T>(M, N, 1), b = example<T>(M, N, 2);
    const T alpha = 2, beta = -1;
    // An element of which nothing is left.
    a[0] = 1, b[0] = 2;
    const Compressed<T> in_a = compress(a, M, N, base), in_b = compress(b, M, N, base), wanted = sum(a, b, alpha, beta, base);
    const Arrays<T> of_a(in_a), of_b(in_b), of_c(M + 1, wanted.count());
    const Handle of_matrices = descriptor(base);
    const T *factors = on_device(std::vector<T>{alpha, beta}), *first = on_the_device ? factors : &alpha,
            *second = on_the_device ? factors + 1 : &beta;
    int count = -1, *count_place = on_the_device ? on_device(std::vector<int>{-1}) : &count;
    CHECK(call("cusparseSetPointerMode", handle, on_the_device ? (int)POINTER_DEVICE : 0));
    size_t bytes;
    CHECK(call(name<T>("csrgeam2_bufferSizeExt").c_str(), handle, M, N, first, of_matrices, in_a.count(), of_a.values, of_a.starts, of_a.indices,
               second, of_matrices, in_b.count(), of_b.values, of_b.starts, of_b.indices, of_matrices, of_c.values, of_c.starts, of_c.indices, &bytes));
    char *buffer = room<char>(bytes);
    CHECK(call("cusparseXcsrgeam2Nnz", handle, M, N, of_matrices, in_a.count(), of_a.starts, of_a.indices, of_matrices, in_b.count(), of_b.starts,
               of_b.indices, of_matrices, of_c.starts, count_place, buffer));
    CHECK(cudaStreamSynchronize(stream));
    if (on_the_device) count = back(count_place, 1)[0];
    if (count != wanted.count()) {
        printf("%d elements in place of %d\n", count, wanted.count());
        exit(1);
    }
    CHECK(call(name<T>("csrgeam2").c_str(), handle, M, N, first, of_matrices, in_a.count(), of_a.values, of_a.starts, of_a.indices, second, of_matrices,
               in_b.count(), of_b.values, of_b.starts, of_b.indices, of_matrices, of_c.values, of_c.starts, of_c.indices, buffer));
    tell(on_the_device ? "sum, with numbers on the device" : "sum", of_c.are(wanted));
    CHECK(call("cusparseSetPointerMode", handle, 0));
    CHECK(call("cusparseDestroyMatDescr", of_matrices));
    for (const Arrays<T> *one : {&of_a, &of_b, &of_c}) one->free();
    CHECK(cudaFree(buffer));
}

template <class T> static void turned(int base) {
    const std::vector<T> dense = example<T>(M, N, 1);
    const Compressed<T> from = compress(dense, M, N, base), wanted = compress(dense, M, N, base, true);
    const Arrays<T> given(from), made(N + 1, from.count());
    for (const int action : {(int)NUMERIC, (int)SYMBOLIC}) {
        size_t bytes;
        CHECK(cudaMemset(made.starts, 0, (N + 1) * sizeof(int)));
        CHECK(cudaMemset(made.indices, 0, from.count() * sizeof(int)));
        CHECK(cudaStreamSynchronize(cudaStreamLegacy));
        CHECK(call("cusparseCsr2cscEx2_bufferSize", handle, M, N, from.count(), given.values, given.starts, given.indices, made.values,
                   made.starts, made.indices, (int)Type<T>::number, action, base, (int)ALGORITHM_1, &bytes));
        char *buffer = room<char>(bytes);
        CHECK(call("cusparseCsr2cscEx2", handle, M, N, from.count(), given.values, given.starts, given.indices, made.values, made.starts,
                   made.indices, (int)Type<T>::number, action, base, (int)ALGORITHM_1, buffer));
        tell(action == NUMERIC ? "rows to columns" : "rows to columns, without values", made.are(wanted));
        CHECK(cudaFree(buffer));
    }
    given.free(), made.free();
}

template <class T> static void from_dense(int base) {
    const std::vector<T> dense = example<T>(M, N, 3);
    std::vector<T> by_rows;
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++) by_rows.push_back(dense[j * M + i]);
    Handle in_columns, in_rows;
    CHECK(call("cusparseCreateDnMat", &in_columns, (long)M, (long)N, (long)M, on_device(dense), (int)Type<T>::number, (int)ORDER_COLUMNS));
    CHECK(call("cusparseCreateDnMat", &in_rows, (long)M, (long)N, (long)N, on_device(by_rows), (int)Type<T>::number, (int)ORDER_ROWS));
    for (const char *form : {"Csr", "Csc", "Coo"}) {
        const bool is_coo = form[2] == 'o', by_columns = form[2] == 'c';
        Compressed<T> wanted = compress(dense, M, N, base, by_columns);
        if (is_coo) wanted.starts = rows_of(wanted.starts, base);
        const Arrays<T> made(wanted.starts.size(), wanted.count());
        const std::string create = std::string("cusparseCreate") + form, set = std::string("cusparse") + form + "SetPointers";
        Handle sparse, from = by_columns ? in_rows : in_columns;
        int *none = nullptr;
        T *no_values = nullptr;
        if (is_coo)
            CHECK(call(create.c_str(), &sparse, (long)M, (long)N, 0L, none, none, no_values, (int)INDEX_32I, base, (int)Type<T>::number));
        else
            CHECK(call(create.c_str(), &sparse, (long)M, (long)N, 0L, made.starts, none, no_values, (int)INDEX_32I, (int)INDEX_32I, base,
                       (int)Type<T>::number));
        size_t bytes;
        CHECK(call("cusparseDenseToSparse_bufferSize", handle, from, sparse, 0, &bytes));
        char *buffer = room<char>(bytes);
        CHECK(call("cusparseDenseToSparse_analysis", handle, from, sparse, 0, buffer));
        long rows, columns, count;
        CHECK(call("cusparseSpMatGetSize", sparse, &rows, &columns, &count));
        if (rows != M || columns != N || count != wanted.count()) {
            printf("%ld x %ld, %ld elements\n", rows, columns, count);
            exit(1);
        }
        CHECK(call(set.c_str(), sparse, made.starts, made.indices, made.values));
        CHECK(call("cusparseDenseToSparse_convert", handle, from, sparse, 0, buffer));
        tell((std::string("dense to ") + form).c_str(), made.are(wanted));
        CHECK(call("cusparseDestroySpMat", sparse));
        CHECK(cudaFree(buffer));
        made.free();
    }
    for (Handle one : {in_columns, in_rows}) CHECK(call("cusparseDestroyDnMat", one));
}

template <class T> static void products() {
    const std::vector<T> a = example<T>(M, N, 1), b = example<T>(N, K, 2);
    const T alpha = 2, beta = 0;
    std::vector<T> wanted(M * K);
    std::vector<bool> has(M * K);
    for (int i = 0; i < M; i++)
        for (int j = 0; j < K; j++)
            for (int k = 0; k < N; k++) {
                wanted[j * M + i] += alpha * a[k * M + i] * b[j * N + k];
                if (a[k * M + i] != T(0) && b[j * N + k] != T(0)) has[j * M + i] = true;
            }
    const Compressed<T> in_a = compress(a, M, N, 0), in_b = compress(b, N, K, 0);
    const Arrays<T> of_a(in_a), of_b(in_b), of_c(M + 1, M * K);
    const Handle first = described(of_a, M, N, in_a.count()), second = described(of_b, N, K, in_b.count());
    Handle third, state;
    int *none = nullptr;
    T *no_values = nullptr;
    const int type = Type<T>::number;
    CHECK(call("cusparseCreateCsr", &third, (long)M, (long)K, 0L, of_c.starts, none, no_values, (int)INDEX_32I, (int)INDEX_32I, 0, type));
    CHECK(call("cusparseSpGEMM_createDescr", &state));
    char *buffers[2];
    for (int step = 0; step < 2; step++) {
        const char *function = step ? "cusparseSpGEMM_compute" : "cusparseSpGEMM_workEstimation";
        size_t bytes = 0;
        char *nothing = nullptr;
        CHECK(call(function, handle, 0, 0, &alpha, first, second, &beta, third, type, 0, state, &bytes, nothing));
        buffers[step] = room<char>(bytes);
        CHECK(call(function, handle, 0, 0, &alpha, first, second, &beta, third, type, 0, state, &bytes, buffers[step]));
    }
    long rows, columns, count;
    CHECK(call("cusparseSpMatGetSize", third, &rows, &columns, &count));
    tell("size of a product", rows == M && columns == K && count == std::count(has.begin(), has.end(), true));
    CHECK(call("cusparseCsrSetPointers", third, of_c.starts, of_c.indices, of_c.values));
    CHECK(call("cusparseSpGEMM_copy", handle, 0, 0, &alpha, first, second, &beta, third, type, 0, state));
    CHECK(cudaStreamSynchronize(stream));
    const std::vector<int> starts = back(of_c.starts, M + 1), indices = back(of_c.indices, count), in_rows = rows_of(starts, 0);
    const std::vector<T> values = back(of_c.values, count);
    std::vector<T> dense(M * K);
    bool is_pattern = starts[0] == 0 && starts[M] == count;
    for (long at = 0; is_pattern && at < count; at++) {
        const int place = indices[at] * M + in_rows[at];
        is_pattern = has[place];
        dense[place] += values[at];
    }
    tell("elements of a product", is_pattern);
    compare("product", dense, wanted, 1e-6);
    CHECK(call("cusparseSpGEMM_destroyDescr", state));
    for (Handle one : {first, second, third}) CHECK(call("cusparseDestroySpMat", one));
    for (const Arrays<T> *one : {&of_a, &of_b, &of_c}) one->free();
    for (char *one : buffers) CHECK(cudaFree(one));
}

// op(A) X = 2 B, for a matrix and for its first column. The other triangle is not stored, and neither is a diagonal of ones.
template <class T> static void solved(bool is_upper, bool has_ones, int op) {
    const int columns = 3, type = Type<T>::number;
    std::vector<T> a = example<T>(M, M, 1);
    for (int i = 0; i < M; i++)
        for (int j = 0; j < M; j++) {
            a[j * M + i] *= T(0.125);
            if (i == j) a[j * M + i] = has_ones ? T(0) : T(4);
            if (i != j && (i < j) != is_upper) a[j * M + i] = 0;
        }
    const std::vector<T> b = example<T>(M, columns, 2);
    std::vector<T> wanted = b;
    const bool from_below = is_upper == (op == 0);
    for (int column = 0; column < columns; column++)
        for (int step = 0; step < M; step++) {
            const int i = from_below ? M - 1 - step : step;
            T rest = T(2) * b[column * M + i];
            for (int k = 0; k < M; k++) {
                const T value = op == 0 ? a[k * M + i] : op == 1 ? a[i * M + k] : conjugate(a[i * M + k]);
                if (k != i) rest -= value * wanted[column * M + k];
            }
            wanted[column * M + i] = has_ones ? rest : rest / T(4);
        }
    const Compressed<T> stored = compress(a, M, M, 0);
    const Arrays<T> arrays(stored);
    const Handle matrix = described(arrays, M, M, stored.count());
    const int fill = is_upper, diagonal = has_ones;
    CHECK(call("cusparseSpMatSetAttribute", matrix, 0, &fill, sizeof fill));
    CHECK(call("cusparseSpMatSetAttribute", matrix, 1, &diagonal, sizeof diagonal));
    const T alpha = 2;
    T *given = on_device(b), *found = on_device(std::vector<T>(M * columns)), *first = on_device(std::vector<T>(M));
    Handle db, dc, dx, dy, of_matrix, of_vector;
    CHECK(call("cusparseCreateDnMat", &db, (long)M, (long)columns, (long)M, given, type, (int)ORDER_COLUMNS));
    CHECK(call("cusparseCreateDnMat", &dc, (long)M, (long)columns, (long)M, found, type, (int)ORDER_COLUMNS));
    CHECK(call("cusparseCreateDnVec", &dx, (long)M, given, type));
    CHECK(call("cusparseCreateDnVec", &dy, (long)M, first, type));
    CHECK(call("cusparseSpSM_createDescr", &of_matrix));
    CHECK(call("cusparseSpSV_createDescr", &of_vector));
    size_t bytes;
    CHECK(call("cusparseSpSM_bufferSize", handle, op, 0, &alpha, matrix, db, dc, type, 0, of_matrix, &bytes));
    char *matrix_buffer = room<char>(bytes);
    CHECK(call("cusparseSpSM_analysis", handle, op, 0, &alpha, matrix, db, dc, type, 0, of_matrix, matrix_buffer));
    CHECK(call("cusparseSpSM_solve", handle, op, 0, &alpha, matrix, db, dc, type, 0, of_matrix));
    CHECK(call("cusparseSpSV_bufferSize", handle, op, &alpha, matrix, dx, dy, type, 0, of_vector, &bytes));
    char *vector_buffer = room<char>(bytes);
    CHECK(call("cusparseSpSV_analysis", handle, op, &alpha, matrix, dx, dy, type, 0, of_vector, vector_buffer));
    CHECK(call("cusparseSpSV_solve", handle, op, &alpha, matrix, dx, dy, type, 0, of_vector));
    CHECK(cudaStreamSynchronize(stream));
    const std::string which = std::string(is_upper ? "upper" : "lower") + (has_ones ? ", ones" : "") + (op == 2 ? ", adjoint" : op ? ", transposed" : "");
    compare((which + ": matrix").c_str(), back(found, M * columns), wanted, 1e-5);
    wanted.resize(M);
    compare((which + ": vector").c_str(), back(first, M), wanted, 1e-5);
    CHECK(call("cusparseSpSM_destroyDescr", of_matrix));
    CHECK(call("cusparseSpSV_destroyDescr", of_vector));
    CHECK(call("cusparseDestroySpMat", matrix));
    for (Handle one : {db, dc}) CHECK(call("cusparseDestroyDnMat", one));
    for (Handle one : {dx, dy}) CHECK(call("cusparseDestroyDnVec", one));
    arrays.free();
    for (void *memory : {(void *)given, (void *)found, (void *)first, (void *)matrix_buffer, (void *)vector_buffer}) CHECK(cudaFree(memory));
}

// Elements that are large enough; none is just at the limit. Of real numbers, NVIDIA's library of CUDA 13.0 leaves the rows behind the
// fourth one unwritten, so their elements are only counted.
template <class T> static void without_small(int base) {
    std::vector<T> dense = example<T>(M, N, 4);
    const Compressed<T> from = compress(dense, M, N, base);
    for (T &value : dense)
        if (std::abs(value) < 2.5) value = 0;
    const Compressed<T> wanted = compress(dense, M, N, base);
    const Arrays<T> given(from), made(M + 1, wanted.count());
    const Handle described = descriptor(base);
    int *in_rows = room<int>(M), count = -1;
    const T limit = (T)2.5;
    CHECK(call(name<T>("nnz_compress").c_str(), handle, M, described, given.values, given.starts, in_rows, &count, limit));
    std::vector<int> counts;
    for (int i = 0; i < M; i++) counts.push_back(wanted.starts[i + 1] - wanted.starts[i]);
    CHECK(cudaStreamSynchronize(stream));
    tell("large elements, counted", count == wanted.count() && count < from.count() && back(in_rows, M) == counts);
    if (Type<T>::is_complex) {
        CHECK(call(name<T>("csr2csr_compress").c_str(), handle, M, N, described, given.values, given.indices, given.starts, from.count(),
                   in_rows, made.values, made.indices, made.starts, limit));
        tell("large elements", made.are(wanted));
    }
    CHECK(call("cusparseDestroyMatDescr", described));
    given.free(), made.free();
    CHECK(cudaFree(in_rows));
}

static int *identity(int count) {
    int *permutation = room<int>(count);
    CHECK(call("cusparseCreateIdentityPermutation", handle, count, permutation));
    return permutation;
}

static void sorted_pairs(bool by_columns) {
    std::vector<std::pair<int, int>> pairs;
    for (int i = 0; i < M * N; i++)
        if (i % 3) pairs.push_back({i * 5 % (M * N) % M, i * 5 % (M * N) / M});
    std::vector<int> rows, columns;
    for (auto &one : pairs) rows.push_back(one.first), columns.push_back(one.second);
    const int count = (int)pairs.size();
    int *row_memory = on_device(rows), *column_memory = on_device(columns), *permutation = identity(count);
    size_t bytes;
    CHECK(call("cusparseXcoosort_bufferSizeExt", handle, M, N, count, row_memory, column_memory, &bytes));
    char *buffer = room<char>(bytes);
    CHECK(call(by_columns ? "cusparseXcoosortByColumn" : "cusparseXcoosortByRow", handle, M, N, count, row_memory, column_memory, permutation,
               buffer));
    CHECK(cudaStreamSynchronize(stream));
    const std::vector<int> new_rows = back(row_memory, count), new_columns = back(column_memory, count), from = back(permutation, count);
    const std::vector<int> &keys = by_columns ? new_columns : new_rows;
    bool is_right = std::is_sorted(keys.begin(), keys.end());
    std::vector<bool> used(count);
    for (int i = 0; is_right && i < count; i++) {
        is_right = from[i] >= 0 && from[i] < count && !used[from[i]] && rows[from[i]] == new_rows[i] && columns[from[i]] == new_columns[i];
        if (is_right) used[from[i]] = true;
    }
    tell(by_columns ? "pairs by columns" : "pairs by rows", is_right);
    for (void *memory : {(void *)row_memory, (void *)column_memory, (void *)permutation, (void *)buffer}) CHECK(cudaFree(memory));
}

static void sorted_lines(int base, bool by_columns) {
    const std::vector<float> dense = example<float>(M, N, 1);
    const Compressed<float> wanted = compress(dense, M, N, base, by_columns);
    Compressed<float> mixed = wanted;
    std::vector<int> places(wanted.count());
    for (int i = 0; i < wanted.count(); i++) places[i] = i;
    for (size_t line = 0; line + 1 < wanted.starts.size(); line++) {
        const int from = wanted.starts[line] - base, to = wanted.starts[line + 1] - base;
        std::reverse(mixed.indices.begin() + from, mixed.indices.begin() + to);
        std::reverse(places.begin() + from, places.begin() + to);
    }
    const Arrays<float> given(mixed);
    const Handle described = descriptor(base);
    int *permutation = identity(wanted.count());
    size_t bytes;
    CHECK(call(by_columns ? "cusparseXcscsort_bufferSizeExt" : "cusparseXcsrsort_bufferSizeExt", handle, M, N, wanted.count(), given.starts,
               given.indices, &bytes));
    char *buffer = room<char>(bytes);
    CHECK(call(by_columns ? "cusparseXcscsort" : "cusparseXcsrsort", handle, M, N, wanted.count(), described, given.starts, given.indices,
               permutation, buffer));
    CHECK(cudaStreamSynchronize(stream));
    // A reversed line is its own inverse.
    tell(by_columns ? "columns" : "rows", back(given.indices, wanted.count()) == wanted.indices && back(permutation, wanted.count()) == places);
    CHECK(call("cusparseDestroyMatDescr", described));
    given.free();
    for (void *memory : {(void *)permutation, (void *)buffer}) CHECK(cudaFree(memory));
}

template <class T> static void all() {
    printf("type %c\n", Type<T>::letter);
    for (const int base : {0, 1}) {
        for (const bool on_the_device : {false, true}) sums<T>(base, on_the_device);
        turned<T>(base);
        from_dense<T>(base);
    }
    products<T>();
    without_small<T>(0);
    for (const bool is_upper : {false, true})
        for (const bool has_ones : {false, true})
            for (const int op : {0, 1, 2})
                if (op < 2 || Type<T>::number >= 4) solved<T>(is_upper, has_ones, op);
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
    printf("sorted\n");
    for (const bool by_columns : {false, true}) {
        sorted_pairs(by_columns);
        for (const int base : {0, 1}) sorted_lines(base, by_columns);
    }
    CHECK(call("cusparseDestroy", handle));
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaDeviceSynchronize());
    printf("done\n");
    return 0;
}
