// SPDX-License-Identifier: Apache-2.0 OR MIT
// cuSOLVER's 64-bit API, its functions for many matrices, and eigenvalues of pairs and of matrices that are not symmetric,
// checked by what the results multiply to.

#include "library.h"

#include <cstdint>
#include <string>

typedef std::vector<double> Matrix;

static const int REAL = 1, COMPLEX = 5; // CUDA_R_64F, CUDA_C_64F
static const int LOWER = 0, UPPER = 1;
static const int N = 9, K = 3, BATCH = 3;

static Handle solver, parameters;
static cudaStream_t stream;
static int *info;

static Matrix times(const Matrix &a, const Matrix &b, int m, int k, int n, bool turn_a = false, bool turn_b = false) {
    Matrix c(m * n);
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++)
            for (int l = 0; l < k; l++) c[j * m + i] += (turn_a ? a[i * k + l] : a[l * m + i]) * (turn_b ? b[l * n + j] : b[j * k + l]);
    return c;
}

static Matrix scaled(Matrix a, const Matrix &values, int m, int n) {
    for (int j = 0; j < n; j++)
        for (int i = 0; i < m; i++) a[j * m + i] *= values[j];
    return a;
}

static Matrix symmetric(int n, int seed) {
    Matrix a = numbers<double>(n * n, seed);
    for (int i = 0; i < n; i++)
        for (int j = 0; j < i; j++) a[j * n + i] = a[i * n + j];
    return a;
}

static Matrix positive(int n, int seed) {
    const Matrix a = numbers<double>(n * n, seed);
    Matrix b = times(a, a, n, n, n, false, true);
    for (int i = 0; i < n; i++) b[i * n + i] += 1;
    return b;
}

static Matrix part(const Matrix &a, size_t from, size_t count) { return Matrix(a.begin() + from, a.begin() + from + count); }

static void *bytes(size_t count) {
    void *memory;
    CHECK(cudaMalloc(&memory, count + 1));
    return memory;
}

static void done(const char *name, int count = 1) {
    CHECK(cudaStreamSynchronize(stream));
    printf("%s:", name);
    for (int value : back(info, count)) printf(" %d", value);
    printf("\n");
}

// A function of the 64-bit API with its workspaces.
template <class... A> static void generic(const char *name, A... arguments) {
    size_t on_device = 0, on_host = 0;
    const std::string size = std::string(name) + "_bufferSize";
    CHECK(call(size.c_str(), solver, parameters, arguments..., &on_device, &on_host));
    std::vector<char> host(on_host + 1);
    CHECK(call(name, solver, parameters, arguments..., bytes(on_device), on_device, (void *)host.data(), on_host, info));
    done(name);
}

static void factors() {
    const Matrix a = numbers<double>(N * N, 1), x = numbers<double>(N * K, 2);
    double *da = on_device(a), *db = on_device(times(a, x, N, N, K));
    int64_t *pivots = on_device(std::vector<int64_t>(N));
    size_t on_device_bytes, on_host;
    CHECK(call("cusolverDnXgetrf_bufferSize", solver, parameters, (int64_t)N, (int64_t)N, REAL, da, (int64_t)N, REAL, &on_device_bytes,
               &on_host));
    std::vector<char> host(on_host + 1);
    CHECK(call("cusolverDnXgetrf", solver, parameters, (int64_t)N, (int64_t)N, REAL, da, (int64_t)N, pivots, REAL, bytes(on_device_bytes),
               on_device_bytes, (void *)host.data(), on_host, info));
    done("cusolverDnXgetrf");
    CHECK(call("cusolverDnXgetrs", solver, parameters, 0, (int64_t)N, (int64_t)K, REAL, da, (int64_t)N, pivots, REAL, db, (int64_t)N, info));
    done("cusolverDnXgetrs");
    compare("solution by LU", back(db, N * K), x, 1e-9);

    const Matrix p = positive(N, 3);
    da = on_device(p), db = on_device(times(p, x, N, N, K));
    generic("cusolverDnXpotrf", UPPER, (int64_t)N, REAL, da, (int64_t)N, REAL);
    CHECK(call("cusolverDnXpotrs", solver, parameters, UPPER, (int64_t)N, (int64_t)K, REAL, da, (int64_t)N, REAL, db, (int64_t)N, info));
    done("cusolverDnXpotrs");
    compare("solution by Cholesky", back(db, N * K), x, 1e-8);

    const int n = 4;
    const Matrix tall = numbers<double>(N * n, 4);
    double *tau = on_device(Matrix(n));
    da = on_device(tall);
    generic("cusolverDnXgeqrf", (int64_t)N, (int64_t)n, REAL, da, (int64_t)N, REAL, tau, REAL);
    Matrix r = back(da, N * n);
    for (int j = 0; j < n; j++)
        for (int i = j + 1; i < N; i++) r[j * N + i] = 0;
    compare("R R", times(r, r, n, N, n, true), times(tall, tall, n, N, n, true), 1e-12);
}

static void eigenvalues() {
    const Matrix a = symmetric(N, 5);
    double *da = on_device(a), *dw = on_device(Matrix(N));
    generic("cusolverDnXsyevd", 1, LOWER, (int64_t)N, REAL, da, (int64_t)N, REAL, dw, REAL);
    const Matrix v = back(da, N * N), w = back(dw, N);
    compare("A V = V W", times(a, v, N, N, N), scaled(v, w, N, N), 1e-11);

    // From the third to the fifth, by their numbers and by their values.
    int64_t found = 0;
    double low = (w[1] + w[2]) / 2, high = (w[4] + w[5]) / 2;
    for (int range : {1002, 1003}) {
        da = on_device(a);
        size_t on_device_bytes, on_host;
        CHECK(call("cusolverDnXsyevdx_bufferSize", solver, parameters, 1, range, LOWER, (int64_t)N, REAL, da, (int64_t)N, (void *)&low,
                   (void *)&high, (int64_t)3, (int64_t)5, &found, REAL, dw, REAL, &on_device_bytes, &on_host));
        std::vector<char> host(on_host + 1);
        CHECK(call("cusolverDnXsyevdx", solver, parameters, 1, range, LOWER, (int64_t)N, REAL, da, (int64_t)N, (void *)&low, (void *)&high,
                   (int64_t)3, (int64_t)5, &found, REAL, dw, REAL, bytes(on_device_bytes), on_device_bytes, (void *)host.data(), on_host,
                   info));
        done("cusolverDnXsyevdx");
        printf("%d values\n", (int)found);
        compare("some values", back(dw, 3), part(w, 2, 3), 1e-11);
        const Matrix some = back(da, N * 3);
        compare("A V = V W of some", times(a, some, N, N, 3), scaled(some, part(w, 2, 3), N, 3), 1e-11);
    }

    // A x = w B x
    const Matrix b = positive(N, 6);
    double *db = on_device(b);
    int size;
    da = on_device(a);
    CHECK(call("cusolverDnDsygvd_bufferSize", solver, 1, 1, LOWER, N, da, N, db, N, dw, &size));
    CHECK(call("cusolverDnDsygvd", solver, 1, 1, LOWER, N, da, N, db, N, dw, (double *)bytes(size * 8), size, info));
    done("cusolverDnDsygvd");
    const Matrix x = back(da, N * N);
    compare("A X = B X W", times(a, x, N, N, N), scaled(times(b, x, N, N, N), back(dw, N), N, N), 1e-9);
    Matrix one(N * N);
    for (int i = 0; i < N; i++) one[i * N + i] = 1;
    compare("X B X", times(x, times(b, x, N, N, N), N, N, N, true), one, 1e-9);
}

typedef std::complex<double> Complex;

// Pairs of conjugates have their vectors in two columns: the real parts and the imaginary ones.
static void general() {
    Matrix a = numbers<double>(N * N, 7);
    for (int i = 0; i + 1 < N; i += 2) a[i * N + i + 1] = 6, a[(i + 1) * N + i] = -6;
    double *da = on_device(a), *dv = on_device(Matrix(N * N));
    Complex *dw = on_device(std::vector<Complex>(N));
    generic("cusolverDnXgeev", 0, 1, (int64_t)N, REAL, da, (int64_t)N, COMPLEX, dw, REAL, dv, (int64_t)N, REAL, dv, (int64_t)N, REAL);
    const std::vector<Complex> w = back(dw, N);
    const Matrix v = back(dv, N * N);
    std::vector<Complex> left(N * N), right(N * N);
    bool pairs = true, any = false;
    for (int j = 0; j < N; j++) {
        std::vector<Complex> x(N);
        for (int i = 0; i < N; i++) {
            const double im = w[j].imag();
            if (im == 0) x[i] = v[j * N + i];
            else if (im > 0) x[i] = Complex(v[j * N + i], v[(j + 1) * N + i]);
            else x[i] = Complex(v[(j - 1) * N + i], -v[j * N + i]);
        }
        any = any || w[j].imag() != 0;
        if (w[j].imag() > 0) pairs = pairs && j + 1 < N && w[j + 1] == std::conj(w[j]);
        for (int i = 0; i < N; i++) {
            for (int l = 0; l < N; l++) left[j * N + i] += a[l * N + i] * x[l];
            right[j * N + i] = x[i] * w[j];
        }
    }
    printf("pairs: %s\n", pairs && any ? "yes" : "no");
    compare("A x = w x", left, right, 1e-10);
}

static void singular_values() {
    const int m = N, n = 5;
    const Matrix a = numbers<double>(m * n, 8);
    double *da = on_device(a), *ds = on_device(Matrix(n)), *du = on_device(Matrix(m * n)), *dv = on_device(Matrix(n * n));
    generic("cusolverDnXgesvd", (signed char)'S', (signed char)'S', (int64_t)m, (int64_t)n, REAL, da, (int64_t)m, REAL, ds, REAL, du,
            (int64_t)m, REAL, dv, (int64_t)n, REAL);
    compare("U S V", times(scaled(back(du, m * n), back(ds, n), m, n), back(dv, n * n), m, n, n), a, 1e-11);
}

static void batches() {
    Matrix all, right, x = numbers<double>(N * BATCH, 9), symmetrical, tall;
    for (int i = 0; i < BATCH; i++) {
        const Matrix p = positive(N, 10 + i), s = symmetric(N, 20 + i), t = numbers<double>(N * 4, 30 + i);
        const Matrix b = times(p, part(x, i * N, N), N, N, 1);
        all.insert(all.end(), p.begin(), p.end());
        right.insert(right.end(), b.begin(), b.end());
        symmetrical.insert(symmetrical.end(), s.begin(), s.end());
        tall.insert(tall.end(), t.begin(), t.end());
    }
    double *da = on_device(all), *db = on_device(right);
    std::vector<double *> of_a, of_b;
    for (int i = 0; i < BATCH; i++) of_a.push_back(da + i * N * N), of_b.push_back(db + i * N);
    double **pa = on_device(of_a), **pb = on_device(of_b);
    CHECK(call("cusolverDnDpotrfBatched", solver, LOWER, N, pa, N, info, BATCH));
    done("cusolverDnDpotrfBatched", BATCH);
    CHECK(call("cusolverDnDpotrsBatched", solver, LOWER, N, 1, pa, N, pb, N, info, BATCH));
    done("cusolverDnDpotrsBatched");
    compare("solutions by Cholesky", back(db, N * BATCH), x, 1e-8);

    Handle jacobi;
    int size;
    double *ds = on_device(symmetrical), *dw = on_device(Matrix(N * BATCH));
    CHECK(call("cusolverDnCreateSyevjInfo", &jacobi));
    CHECK(call("cusolverDnDsyevjBatched_bufferSize", solver, 1, LOWER, N, ds, N, dw, &size, jacobi, BATCH));
    CHECK(call("cusolverDnDsyevjBatched", solver, 1, LOWER, N, ds, N, dw, (double *)bytes(size * 8), size, info, jacobi, BATCH));
    done("cusolverDnDsyevjBatched", BATCH);
    CHECK(call("cusolverDnDestroySyevjInfo", jacobi));
    const Matrix v = back(ds, N * N * BATCH), w = back(dw, N * BATCH);
    Matrix av, vw;
    for (int i = 0; i < BATCH; i++) {
        const Matrix of_v = part(v, i * N * N, N * N);
        const Matrix l = times(part(symmetrical, i * N * N, N * N), of_v, N, N, N), r = scaled(of_v, part(w, i * N, N), N, N);
        av.insert(av.end(), l.begin(), l.end());
        vw.insert(vw.end(), r.begin(), r.end());
    }
    compare("A V = V W of each", av, vw, 1e-10);

    const int n = 4, rank = 4;
    double *dt = on_device(tall), *values = on_device(Matrix(rank * BATCH)), *du = on_device(Matrix(N * rank * BATCH)),
           *dv = on_device(Matrix(n * rank * BATCH));
    double norms[BATCH];
    CHECK(call("cusolverDnDgesvdaStridedBatched_bufferSize", solver, 1, rank, N, n, dt, N, (long long)N * n, values, (long long)rank, du, N,
               (long long)N * rank, dv, n, (long long)n * rank, &size, BATCH));
    CHECK(call("cusolverDnDgesvdaStridedBatched", solver, 1, rank, N, n, dt, N, (long long)N * n, values, (long long)rank, du, N,
               (long long)N * rank, dv, n, (long long)n * rank, (double *)bytes(size * 8), size, info, (double *)norms, BATCH));
    done("cusolverDnDgesvdaStridedBatched", BATCH);
    Matrix usv;
    for (int i = 0; i < BATCH; i++) {
        const Matrix u = scaled(part(back(du, N * rank * BATCH), i * N * rank, N * rank), part(back(values, rank * BATCH), i * rank, rank), N, rank);
        const Matrix product = times(u, part(back(dv, n * rank * BATCH), i * n * rank, n * rank), N, rank, n, false, true);
        usv.insert(usv.end(), product.begin(), product.end());
        if (!(norms[i] < 1e-6)) printf("WRONG norm %g\n", norms[i]);
    }
    compare("U S V of each", usv, tall, 1e-7);
}

int main() {
    load({"libcusolver.so.12", "libcusolver.so.11"});
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(call("cusolverDnCreate", &solver));
    CHECK(call("cusolverDnSetStream", solver, stream));
    CHECK(call("cusolverDnCreateParams", &parameters));
    info = on_device(std::vector<int>(BATCH));
    factors();
    eigenvalues();
    general();
    singular_values();
    batches();
    CHECK(call("cusolverDnDestroyParams", parameters));
    CHECK(call("cusolverDnDestroy", solver));
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaDeviceSynchronize());
    printf("done\n");
    return 0;
}
