// SPDX-License-Identifier: Apache-2.0 OR MIT
// cuBLAS beyond products of two matrices, by its public API: vectors, triangles, symmetric matrices, and factors of many
// small ones.

#include "library.h"

typedef std::vector<double> Matrix;

static const int M = 9, N = 7;
static Handle handle;
static cudaStream_t stream;
static const double ONE = 1, TWO = 2, ZERO = 0;

static Matrix result(const double *memory, int count) {
    CHECK(cudaStreamSynchronize(stream));
    return back(memory, count);
}

static void vectors() {
    const int n = 100;
    const Matrix x = numbers<double>(n, 1), y = numbers<double>(n, 2);
    double *dx = on_device(x), *dy = on_device(y), sum, wanted = 0;
    int largest, smallest;
    CHECK(call("cublasDasum_v2", handle, n, dx, 1, &sum));
    for (double value : x) wanted += fabs(value);
    printf("asum: %s\n", sum == wanted ? "right" : "WRONG");
    CHECK(call("cublasIdamax_v2", handle, n, dx, 1, &largest));
    CHECK(call("cublasIdamin_v2", handle, n, dx, 1, &smallest));
    int first_largest = 0, first_smallest = 0;
    for (int i = 0; i < n; i++) {
        if (fabs(x[i]) > fabs(x[first_largest])) first_largest = i;
        if (fabs(x[i]) < fabs(x[first_smallest])) first_smallest = i;
    }
    printf("extremes: %s\n", largest == first_largest + 1 && smallest == first_smallest + 1 ? "right" : "WRONG");
    const double c = 0.6, s = 0.8;
    CHECK(call("cublasDrot_v2", handle, n, dx, 1, dy, 1, &c, &s));
    Matrix turned(n);
    for (int i = 0; i < n; i++) turned[i] = c * x[i] + s * y[i];
    compare("rot", result(dx, n), turned, 1e-14);
    CHECK(call("cublasDswap_v2", handle, n / 2, dx, 2, dy, 2));
    CHECK(call("cublasDcopy_v2", handle, n / 2, dy, 2, dx + 1, 2));
    Matrix copied = turned;
    for (int i = 0; i < n; i += 2) copied[i] = c * y[i] - s * x[i], copied[i + 1] = turned[i];
    compare("swap and copy", result(dx, n), copied, 1e-14);
}

// cublasSetStream also takes the program's workspace away, even if it sets the stream that was set already.
static void same_stream_again() {
    const size_t bytes = 4 << 20;
    void *workspace;
    CHECK(cudaMalloc(&workspace, bytes));
    const Matrix x = numbers<double>(N, 6);
    double *dx = on_device(x);
    CHECK(call("cublasSetWorkspace_v2", handle, workspace, bytes));
    CHECK(call("cublasSetStream_v2", handle, stream));
    CHECK(call("cublasDscal_v2", handle, N, &TWO, dx, 1));
    CHECK(call("cublasSetWorkspace_v2", handle, workspace, bytes));
    for (int i = 0; i < 2; i++) CHECK(call("cublasSetStream_v2", handle, stream));
    for (int i = 0; i < 2; i++) CHECK(call("cublasDscal_v2", handle, N, &TWO, dx, 1));
    Matrix wanted = x;
    for (double &value : wanted) value *= 8;
    compare("the same stream again", result(dx, N), wanted, 0);
    CHECK(cudaFree(workspace));
}

static void matrix_and_vector() {
    const Matrix a = numbers<double>(M * N, 3), x = numbers<double>(N, 4), y = numbers<double>(M, 5);
    double *da = on_device(a), *dx = on_device(x), *dy = on_device(y);
    CHECK(call("cublasDgemv_v2", handle, 0, M, N, &TWO, da, M, dx, 1, &ONE, dy, 1));
    Matrix wanted = y;
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++) wanted[i] += 2 * a[j * M + i] * x[j];
    compare("gemv", result(dy, M), wanted, 1e-14);
    dy = on_device(y);
    CHECK(call("cublasDgemv_v2", handle, 1, M, N, &ONE, da, M, dy, 1, &ZERO, dx, 1));
    wanted.assign(N, 0);
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++) wanted[j] += a[j * M + i] * y[i];
    compare("gemv, transposed", result(dx, N), wanted, 1e-14);
    dx = on_device(x);
    CHECK(call("cublasDger_v2", handle, M, N, &TWO, dy, 1, dx, 1, da, M));
    wanted = a;
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++) wanted[j * M + i] += 2 * y[i] * x[j];
    compare("ger", result(da, M * N), wanted, 1e-14);
}

// A triangle whose solutions do not grow, with other numbers on the other side.
static Matrix triangle(int n, int seed) {
    Matrix a = numbers<double>(n * n, seed);
    for (int i = 0; i < n; i++) a[i * n + i] = 8 + i;
    return a;
}

static void triangles() {
    const Matrix a = triangle(M, 6), x = numbers<double>(M * N, 7);
    double *da = on_device(a);
    // B = op(A) X for the lower and the upper triangle.
    for (int upper = 0; upper < 2; upper++)
        for (int turned = 0; turned < 2; turned++) {
            Matrix b(M * N);
            for (int i = 0; i < M; i++)
                for (int l = 0; l < M; l++) {
                    const int row = turned ? l : i, column = turned ? i : l;
                    if (upper ? row > column : row < column) continue;
                    for (int j = 0; j < N; j++) b[j * M + i] += a[column * M + row] * x[j * M + l];
                }
            double *db = on_device(b), *dx = on_device(x), *dc = on_device(Matrix(M * N));
            CHECK(call("cublasDtrsm_v2", handle, 0, upper, turned, 0, M, N, &ONE, da, M, db, M));
            compare("trsm", result(db, M * N), x, 1e-12);
            CHECK(call("cublasDtrmm_v2", handle, 0, upper, turned, 0, M, N, &ONE, da, M, dx, M, dc, M));
            compare("trmm", result(dc, M * N), b, 1e-14);
            CHECK(call("cublasDtrsv_v2", handle, upper, turned, 0, M, da, M, dc, 1));
            Matrix first(x.begin(), x.begin() + M);
            compare("trsv", result(dc, M), first, 1e-12);
        }
}

static void symmetric() {
    const Matrix a = numbers<double>(M * N, 8), c = numbers<double>(M * M, 9);
    double *da = on_device(a), *dc = on_device(c);
    CHECK(call("cublasDsyrk_v2", handle, 1, 0, M, N, &TWO, da, M, &ONE, dc, M));
    Matrix wanted = c;
    for (int i = 0; i < M; i++)
        for (int j = i; j < M; j++)
            for (int l = 0; l < N; l++) wanted[j * M + i] += 2 * a[l * M + i] * a[l * M + j];
    compare("syrk", result(dc, M * M), wanted, 1e-14);
    double *db = on_device(a), *dout = on_device(Matrix(M * N));
    CHECK(call("cublasDsymm_v2", handle, 0, 1, M, N, &ONE, dc, M, db, M, &ZERO, dout, M));
    Matrix product(M * N);
    for (int i = 0; i < M; i++)
        for (int l = 0; l < M; l++)
            for (int j = 0; j < N; j++) product[j * M + i] += wanted[std::max(i, l) * M + std::min(i, l)] * a[j * M + l];
    compare("symm", result(dout, M * N), product, 1e-14);
}

static void sums_and_scales() {
    const Matrix a = numbers<double>(M * N, 10), b = numbers<double>(M * N, 11), x = numbers<double>(N, 12);
    double *da = on_device(a), *db = on_device(b), *dx = on_device(x), *dc = on_device(Matrix(M * N));
    CHECK(call("cublasDgeam", handle, 0, 1, M, N, &TWO, da, M, &ONE, db, N, dc, M));
    Matrix wanted(M * N);
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++) wanted[j * M + i] = 2 * a[j * M + i] + b[i * N + j];
    compare("geam", result(dc, M * N), wanted, 1e-14);
    CHECK(call("cublasDdgmm", handle, 1, M, N, da, M, dx, 1, dc, M));
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++) wanted[j * M + i] = a[j * M + i] * x[j];
    compare("dgmm", result(dc, M * N), wanted, 1e-14);
}

static void many() {
    const int n = 6, count = 4;
    std::vector<double *> as, bs, inverses;
    Matrix all_x;
    for (int i = 0; i < count; i++) {
        const Matrix a = triangle(n, 13 + i), x = numbers<double>(n, 20 + i);
        Matrix b(n);
        for (int r = 0; r < n; r++)
            for (int c = 0; c < n; c++) b[r] += a[c * n + r] * x[c];
        as.push_back(on_device(a)), bs.push_back(on_device(b)), inverses.push_back(on_device(Matrix(n * n)));
        all_x.insert(all_x.end(), x.begin(), x.end());
    }
    const Matrix original = back(as[0], n * n);
    double **da = on_device(as), **db = on_device(bs), **dc = on_device(inverses);
    int *pivots = on_device(std::vector<int>(n * count)), *info = on_device(std::vector<int>(count, 7)), host_info = 7;
    CHECK(call("cublasDgetrfBatched", handle, n, da, n, pivots, info, count));
    CHECK(call("cublasDgetrsBatched", handle, 0, n, 1, (const double **)da, n, (const int *)pivots, db, n, &host_info, count));
    CHECK(call("cublasDgetriBatched", handle, n, (const double **)da, n, (const int *)pivots, dc, n, info, count));
    CHECK(cudaStreamSynchronize(stream));
    int sum = host_info;
    for (int one : back(info, count)) sum += one;
    printf("info: %d\n", sum);
    Matrix solved;
    for (double *b : bs)
        for (double value : back(b, n)) solved.push_back(value);
    compare("getrf and getrs", solved, all_x, 1e-12);
    const Matrix inverse = back(inverses[0], n * n);
    Matrix one(n * n), identity(n * n);
    for (int i = 0; i < n; i++) {
        identity[i * n + i] = 1;
        for (int j = 0; j < n; j++)
            for (int l = 0; l < n; l++) one[j * n + i] += original[l * n + i] * inverse[j * n + l];
    }
    compare("getri", one, identity, 1e-12);
}

int main() {
    load({"libcublas.so.13", "libcublas.so.12"});
    CHECK(call("cublasCreate_v2", &handle));
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(call("cublasSetStream_v2", handle, stream));
    vectors();
    same_stream_again();
    matrix_and_vector();
    triangles();
    symmetric();
    sums_and_scales();
    many();
    CHECK(call("cublasDestroy_v2", handle));
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaDeviceSynchronize());
    printf("done\n");
    return 0;
}
