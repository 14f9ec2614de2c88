// SPDX-License-Identifier: Apache-2.0 OR MIT
// cuSOLVER's dense functions by their public API: factors, solutions, eigenvalues and singular
// values, checked by what they multiply to.

#include "library.h"

typedef std::vector<double> Matrix;

static Matrix times(const Matrix &a, const Matrix &b, int m, int k, int n, bool turn_a = false, bool turn_b = false) {
    Matrix c(m * n);
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++)
            for (int l = 0; l < k; l++) c[j * m + i] += (turn_a ? a[i * k + l] : a[l * m + i]) * (turn_b ? b[l * n + j] : b[j * k + l]);
    return c;
}

static Matrix identity(int n) {
    Matrix a(n * n);
    for (int i = 0; i < n; i++) a[i * n + i] = 1;
    return a;
}

static Handle solver;
static cudaStream_t stream;
static int *info;

static double *workspace(int elements) {
    double *memory;
    CHECK(cudaMalloc(&memory, (elements + 1) * sizeof(double)));
    return memory;
}

static int done() {
    CHECK(cudaStreamSynchronize(stream));
    return back(info, 1)[0];
}

static const int N = 12, K = 3;

static void lu() {
    const Matrix a = numbers<double>(N * N, 1), x = numbers<double>(N * K, 2);
    double *da = on_device(a), *db = on_device(times(a, x, N, N, K));
    int size, *pivots = on_device(std::vector<int>(N));
    CHECK(call("cusolverDnDgetrf_bufferSize", solver, N, N, da, N, &size));
    CHECK(call("cusolverDnDgetrf", solver, N, N, da, N, workspace(size), pivots, info));
    printf("getrf: %d\n", done());
    CHECK(call("cusolverDnDgetrs", solver, 0, N, K, da, N, pivots, db, N, info));
    printf("getrs: %d\n", done());
    compare("solution by LU", back(db, N * K), x, 1e-9);
    Matrix singular(N * N);
    double *ds = on_device(singular);
    CHECK(call("cusolverDnDgetrf", solver, N, N, ds, N, workspace(size), pivots, info));
    printf("getrf of zeros: %d\n", done());
}

static void cholesky() {
    const Matrix a = numbers<double>(N * N, 3), x = numbers<double>(N * K, 4);
    Matrix positive = times(a, a, N, N, N, false, true);
    for (int i = 0; i < N; i++) positive[i * N + i] += 1;
    double *da = on_device(positive), *db = on_device(times(positive, x, N, N, K));
    int size;
    // CUBLAS_FILL_MODE_LOWER
    CHECK(call("cusolverDnDpotrf_bufferSize", solver, 0, N, da, N, &size));
    CHECK(call("cusolverDnDpotrf", solver, 0, N, da, N, workspace(size), size, info));
    printf("potrf: %d\n", done());
    CHECK(call("cusolverDnDpotrs", solver, 0, N, K, da, N, db, N, info));
    printf("potrs: %d\n", done());
    compare("solution by Cholesky", back(db, N * K), x, 1e-8);
    positive[3 * N + 3] = -1;
    double *dn = on_device(positive);
    CHECK(call("cusolverDnDpotrf", solver, 0, N, dn, N, workspace(size), size, info));
    printf("potrf of a matrix that is not positive: %d\n", done());
}

static void qr() {
    const int m = N, n = 5;
    const Matrix a = numbers<double>(m * n, 5);
    double *da = on_device(a), *tau = on_device(Matrix(n));
    int size;
    CHECK(call("cusolverDnDgeqrf_bufferSize", solver, m, n, da, m, &size));
    CHECK(call("cusolverDnDgeqrf", solver, m, n, da, m, tau, workspace(size), size, info));
    printf("geqrf: %d\n", done());
    const Matrix factors = back(da, m * n);
    Matrix r(n * n);
    for (int j = 0; j < n; j++)
        for (int i = 0; i <= j; i++) r[j * n + i] = factors[j * m + i];
    // op(Q) of the matrix gives R.
    double *dc = on_device(a);
    CHECK(call("cusolverDnDormqr_bufferSize", solver, 0, 1, m, n, n, da, m, tau, dc, m, &size));
    CHECK(call("cusolverDnDormqr", solver, 0, 1, m, n, n, da, m, tau, dc, m, workspace(size), size, info));
    printf("ormqr: %d\n", done());
    Matrix padded(m * n);
    for (int j = 0; j < n; j++)
        for (int i = 0; i <= j; i++) padded[j * m + i] = r[j * n + i];
    compare("R by its reflections", back(dc, m * n), padded, 1e-12);
    CHECK(call("cusolverDnDorgqr_bufferSize", solver, m, n, n, da, m, tau, &size));
    CHECK(call("cusolverDnDorgqr", solver, m, n, n, da, m, tau, workspace(size), size, info));
    printf("orgqr: %d\n", done());
    const Matrix q = back(da, m * n);
    compare("Q R", times(q, r, m, n, n), a, 1e-12);
    compare("Q is orthogonal", times(q, q, n, m, n, true), identity(n), 1e-12);
}

static void eigenvalues() {
    Matrix a = numbers<double>(N * N, 6);
    for (int i = 0; i < N; i++)
        for (int j = 0; j < i; j++) a[j * N + i] = a[i * N + j];
    double *da = on_device(a), *dw = on_device(Matrix(N));
    int size;
    CHECK(call("cusolverDnDsyevd_bufferSize", solver, 1, 0, N, da, N, dw, &size));
    CHECK(call("cusolverDnDsyevd", solver, 1, 0, N, da, N, dw, workspace(size), size, info));
    printf("syevd: %d\n", done());
    const Matrix v = back(da, N * N), w = back(dw, N);
    Matrix scaled = v;
    bool ascending = true;
    for (int j = 0; j < N; j++) {
        ascending = ascending && (j == 0 || w[j - 1] <= w[j]);
        for (int i = 0; i < N; i++) scaled[j * N + i] *= w[j];
    }
    printf("ascending: %s\n", ascending ? "yes" : "no");
    compare("A V = V W", times(a, v, N, N, N), scaled, 1e-11);
    compare("V is orthogonal", times(v, v, N, N, N, true), identity(N), 1e-12);
}

static void singular_values() {
    const int m = N, n = 7;
    const Matrix a = numbers<double>(m * n, 7);
    double *da = on_device(a), *ds = on_device(Matrix(n)), *du = on_device(Matrix(m * n)), *dv = on_device(Matrix(n * n));
    int size;
    CHECK(call("cusolverDnDgesvd_bufferSize", solver, m, n, &size));
    CHECK(call("cusolverDnDgesvd", solver, (signed char)'S', (signed char)'S', m, n, da, m, ds, du, m, dv, n, workspace(size), size,
               (double *)nullptr, info));
    printf("gesvd: %d\n", done());
    const Matrix s = back(ds, n), vt = back(dv, n * n);
    Matrix us = back(du, m * n);
    for (int j = 0; j < n; j++)
        for (int i = 0; i < m; i++) us[j * m + i] *= s[j];
    compare("U S V", times(us, vt, m, n, n), a, 1e-11);

    Handle parameters;
    CHECK(call("cusolverDnCreateGesvdjInfo", &parameters));
    CHECK(cudaMemcpy(da, a.data(), a.size() * sizeof(double), cudaMemcpyHostToDevice));
    CHECK(cudaStreamSynchronize(cudaStreamLegacy));
    CHECK(call("cusolverDnDgesvdj_bufferSize", solver, 1, 1, m, n, da, m, ds, du, m, dv, n, &size, parameters));
    CHECK(call("cusolverDnDgesvdj", solver, 1, 1, m, n, da, m, ds, du, m, dv, n, workspace(size), size, info, parameters));
    printf("gesvdj: %d\n", done());
    compare("singular values by Jacobi", back(ds, n), s, 1e-10);
    CHECK(call("cusolverDnDestroyGesvdjInfo", parameters));
}

int main() {
    load({"libcusolver.so.12", "libcusolver.so.11"});
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(call("cusolverDnCreate", &solver));
    CHECK(call("cusolverDnSetStream", solver, stream));
    info = on_device(std::vector<int>(1));
    lu();
    cholesky();
    qr();
    eigenvalues();
    singular_values();
    CHECK(call("cusolverDnDestroy", solver));
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaDeviceSynchronize());
    printf("done\n");
    return 0;
}
