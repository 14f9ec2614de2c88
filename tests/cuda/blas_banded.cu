// SPDX-License-Identifier: Apache-2.0 OR MIT
// cuBLAS's operations on bands and packed triangles, and rotations, compared with loops over full matrices.

#include "library.h"

#include <string>

typedef std::complex<double> Complex;

static const int N = 9, WIDTH = 3, LD = 5;
static Handle handle;
static cudaStream_t stream;

template <class T> static std::vector<T> result(const T *memory, int count) {
    CHECK(cudaStreamSynchronize(stream));
    return back(memory, count);
}

static double turned(double value) { return value; }
static Complex turned(Complex value) { return std::conj(value); }

template <class T> static std::vector<T> values(int count, int seed) {
    std::vector<T> all(count);
    const std::vector<double> one = numbers<double>(count, seed), two = numbers<double>(count, seed + 1);
    for (int i = 0; i < count; i++) {
        all[i] = one[i];
        if (sizeof(T) == sizeof(Complex)) ((double *)&all[i])[1] = two[i];
    }
    return all;
}

// A triangle with a diagonal that dominates; of a band if it has a width.
template <class T> static std::vector<T> triangle(bool upper, int width, int seed) {
    std::vector<T> a = values<T>(N * N, seed);
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++) {
            if (i == j) a[j * N + i] = 40 + i;
            if ((upper ? i > j : i < j) || abs(i - j) > width) a[j * N + i] = 0;
        }
    return a;
}

template <class T> static std::vector<T> symmetric(const std::vector<T> &triangle, bool upper) {
    std::vector<T> a = triangle;
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++)
            if (upper ? i > j : i < j) a[j * N + i] = turned(triangle[i * N + j]);
    return a;
}

template <class T> static std::vector<T> banded(const std::vector<T> &a, bool upper) {
    std::vector<T> band(LD * N, T(99));
    for (int j = 0; j < N; j++)
        for (int i = 0; i < N; i++)
            if ((upper ? i <= j : i >= j) && abs(i - j) <= WIDTH) band[j * LD + (upper ? WIDTH + i - j : i - j)] = a[j * N + i];
    return band;
}

template <class T> static std::vector<T> packed(const std::vector<T> &a, bool upper) {
    std::vector<T> all;
    for (int j = 0; j < N; j++)
        for (int i = upper ? 0 : j; i < (upper ? j + 1 : N); i++) all.push_back(a[j * N + i]);
    return all;
}

// op(A) x, where op is 0: nothing, 1: transposed, 2: conjugated, too.
template <class T> static std::vector<T> times(const std::vector<T> &a, const std::vector<T> &x, int rows, int columns, int op = 0) {
    std::vector<T> y(op ? columns : rows);
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < columns; j++) {
            const T value = op == 2 ? turned(a[j * rows + i]) : a[j * rows + i];
            if (op) y[j] += value * x[i];
            else y[i] += value * x[j];
        }
    return y;
}

static std::string name(const char *letter, const char *rest) { return std::string("cublas") + letter + rest + "_v2"; }

template <class T> static void triangles(const char *letter) {
    for (int upper = 0; upper < 2; upper++)
        for (int op = 0; op < 3; op++) {
            const std::vector<T> x = values<T>(N, 3);
            const std::vector<T> a = triangle<T>(upper, WIDTH, 5), full = triangle<T>(upper, N, 7);
            T *band = on_device(banded(a, upper)), *pack = on_device(packed(full, upper)), *dx = on_device(x);
            CHECK(call(name(letter, "tbmv").c_str(), handle, upper, op, 0, N, WIDTH, band, LD, dx, 1));
            compare("tbmv", result(dx, N), times(a, x, N, N, op), 1e-13);
            CHECK(call(name(letter, "tbsv").c_str(), handle, upper, op, 0, N, WIDTH, band, LD, dx, 1));
            compare("tbsv", result(dx, N), x, 1e-12);
            CHECK(call(name(letter, "tpmv").c_str(), handle, upper, op, 0, N, pack, dx, 1));
            compare("tpmv", result(dx, N), times(full, x, N, N, op), 1e-12);
            CHECK(call(name(letter, "tpsv").c_str(), handle, upper, op, 0, N, pack, dx, 1));
            compare("tpsv", result(dx, N), x, 1e-12);
        }
}

template <class T> static void matrices(const char *letter, const char *band_name, const char *pack_name, const char *update) {
    const T two = 2, three = 3;
    const double real_two = 2;
    for (int upper = 0; upper < 2; upper++) {
        const std::vector<T> x = values<T>(N, 11), y = values<T>(N, 13);
        const std::vector<T> part = triangle<T>(upper, WIDTH, 15), full = triangle<T>(upper, N, 17);
        T *dx = on_device(x), *dy = on_device(y), *band = on_device(banded(part, upper)), *pack = on_device(packed(full, upper));
        std::vector<T> wanted = times(symmetric(part, upper), x, N, N);
        for (int i = 0; i < N; i++) wanted[i] = two * wanted[i] + three * y[i];
        CHECK(call(name(letter, band_name).c_str(), handle, upper, N, WIDTH, &two, band, LD, dx, 1, &three, dy, 1));
        compare(band_name, result(dy, N), wanted, 1e-13);
        dy = on_device(y);
        wanted = times(symmetric(full, upper), x, N, N);
        for (int i = 0; i < N; i++) wanted[i] = two * wanted[i] + three * y[i];
        CHECK(call(name(letter, pack_name).c_str(), handle, upper, N, &two, pack, dx, 1, &three, dy, 1));
        compare(pack_name, result(dy, N), wanted, 1e-13);

        dy = on_device(y);
        std::vector<T> changed = full;
        for (int j = 0; j < N; j++)
            for (int i = 0; i < N; i++) changed[j * N + i] += two * x[i] * turned(x[j]);
        CHECK(call(name(letter, update).c_str(), handle, upper, N, &real_two, dx, 1, pack));
        compare(update, result(pack, N * (N + 1) / 2), packed(changed, upper), 1e-13);
        for (int j = 0; j < N; j++)
            for (int i = 0; i < N; i++) changed[j * N + i] += two * (x[i] * turned(y[j]) + y[i] * turned(x[j]));
        CHECK(call(name(letter, (std::string(update) + "2").c_str()).c_str(), handle, upper, N, &two, dx, 1, dy, 1, pack));
        compare("the same by two", result(pack, N * (N + 1) / 2), packed(changed, upper), 1e-13);
    }
}

static void general() {
    const int m = 7, n = N, below = 2, above = 1, ld = 6;
    std::vector<double> a = numbers<double>(m * n, 19), band(ld * n, 99);
    for (int j = 0; j < n; j++)
        for (int i = 0; i < m; i++)
            if (i - j > below || j - i > above) a[j * m + i] = 0;
            else band[j * ld + above + i - j] = a[j * m + i];
    double *da = on_device(band);
    const double two = 2, zero = 0;
    for (int op = 0; op < 2; op++) {
        const std::vector<double> x = numbers<double>(op ? m : n, 21);
        double *dx = on_device(x), *dy = on_device(std::vector<double>(op ? n : m));
        CHECK(call("cublasDgbmv_v2", handle, op, m, n, below, above, &two, da, ld, dx, 1, &zero, dy, 1));
        std::vector<double> wanted = times(a, x, m, n, op);
        for (double &value : wanted) value *= 2;
        compare("gbmv", result(dy, op ? n : m), wanted, 1e-14);
    }
}

static void copies() {
    for (int upper = 0; upper < 2; upper++) {
        const std::vector<double> a = triangle<double>(upper, N, 23);
        double *pack = on_device(std::vector<double>(N * (N + 1) / 2)), *full = on_device(std::vector<double>(N * N));
        CHECK(call("cublasDtrttp", handle, upper, N, on_device(a), N, pack));
        compare("trttp", result(pack, N * (N + 1) / 2), packed(a, upper), 0);
        CHECK(call("cublasDtpttr", handle, upper, N, pack, full, N));
        compare("tpttr", result(full, N * N), a, 0);
    }
}

static void rotations() {
    double a = 3, b = -4, c, s;
    CHECK(call("cublasDrotg_v2", handle, &a, &b, &c, &s));
    printf("rotg: %s\n", fabs(c * 3 - s * 4 - a) < 1e-14 && fabs(-c * 4 - s * 3) < 1e-14 ? "right" : "WRONG");
    Complex x(1, 2), y(3, -1), sine;
    const Complex old = x;
    CHECK(call("cublasZrotg_v2", handle, &x, &y, &c, &sine));
    printf("rotg of complex numbers: %s\n",
           abs(c * old + sine * Complex(3, -1) - x) < 1e-14 && abs(c * Complex(3, -1) - conj(sine) * old) < 1e-14 ? "right" : "WRONG");

    double d1 = 2, d2 = 3, x1 = 1.5, y1 = 0.5, parameters[5] = {0, 7, 0, 0, 7};
    CHECK(call("cublasDrotmg_v2", handle, &d1, &d2, &x1, (const double *)&y1, parameters));
    double *dx = on_device(std::vector<double>(N, 1.5)), *dy = on_device(std::vector<double>(N, 0.5));
    CHECK(call("cublasDrotm_v2", handle, N, dx, 1, dy, 1, (const double *)parameters));
    compare("rotm", result(dx, N), std::vector<double>(N, x1), 1e-14);
    compare("zeros of rotm", result(dy, N), std::vector<double>(N), 1e-14);
}

int main() {
    load({"libcublas.so.13", "libcublas.so.12"});
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(call("cublasCreate_v2", &handle));
    CHECK(call("cublasSetStream_v2", handle, stream));
    triangles<double>("D");
    triangles<Complex>("Z");
    matrices<double>("D", "sbmv", "spmv", "spr");
    matrices<Complex>("Z", "hbmv", "hpmv", "hpr");
    general();
    copies();
    rotations();
    CHECK(call("cublasDestroy_v2", handle));
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaDeviceSynchronize());
    printf("done\n");
    return 0;
}
