// SPDX-License-Identifier: Apache-2.0 OR MIT
// cuSOLVER's sparse functions by their public API: orders, systems solved by one call and step by step, and refactorization. With
// the argument `host` only those whose arrays are all in host memory.

#include "library.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>

static Handle solver, matrix_descriptor;
static void *sparse_library;
static bool only_host;

// A function of cuSPARSE, which has the descriptors.
template <class... A> static int of_sparse(const char *name, A... arguments) {
    auto *function = (int (*)(A...))dlsym(sparse_library, name);
    if (!function) {
        printf("no %s\n", name);
        exit(1);
    }
    return function(arguments...);
}

template <class T> struct Type;
template <> struct Type<float> { typedef float Real; static const char letter = 'S'; };
template <> struct Type<double> { typedef double Real; static const char letter = 'D'; };
template <> struct Type<std::complex<float>> { typedef float Real; static const char letter = 'C'; };
template <> struct Type<std::complex<double>> { typedef double Real; static const char letter = 'Z'; };

// cusolverSpDcsrluSolveHost: `Solve` of `csrlu` in memory `Host`.
template <class T> static std::string name(const char *method, const char *what, const char *memory = "") {
    return std::string("cusolverSp") + Type<T>::letter + method + what + memory;
}

template <class T> static T element(int row, int column);
template <> float element(int row, int column) { return row == column ? 6 : -1; }
template <> double element(int row, int column) { return row == column ? 6 : -1; }
template <class R> static std::complex<R> hermitian(int row, int column) {
    return row == column ? std::complex<R>(6, 0) : std::complex<R>(-1, (R)(row - column) / 8);
}
template <> std::complex<float> element(int row, int column) { return hermitian<float>(row, column); }
template <> std::complex<double> element(int row, int column) { return hermitian<double>(row, column); }

template <class T> struct Matrix {
    int n, base;
    std::vector<int> starts, columns;
    std::vector<T> values;
    int count() const { return (int)columns.size(); }
    std::vector<T> times(const std::vector<T> &x) const {
        std::vector<T> y(n);
        for (int i = 0; i < n; i++)
            for (int k = starts[i] - base; k < starts[i + 1] - base; k++) y[i] += values[k] * x[columns[k] - base];
        return y;
    }
};

// Elements on the diagonal and beside it, Hermitian and positive definite; its rows are exchanged in pairs if `swapped`.
template <class T> static Matrix<T> example(int n, int base, bool swapped = false) {
    Matrix<T> a{n, base, {base}, {}, {}};
    for (int i = 0; i < n; i++) {
        const int row = swapped ? i ^ 1 : i;
        for (int column : {row - 5, row - 1, row, row + 1, row + 5})
            if (0 <= column && column < n) {
                a.columns.push_back(column + base);
                a.values.push_back(element<T>(row, column));
            }
        a.starts.push_back(a.count() + base);
    }
    return a;
}

template <class T> static std::vector<T> solution(int n) {
    const std::vector<T> x = numbers<T>(n, 3);
    return x;
}
template <> std::vector<std::complex<float>> solution(int n) {
    std::vector<std::complex<float>> x;
    for (int i = 0; i < n; i++) x.push_back({(float)(i % 7), (float)(i % 5 - 2)});
    return x;
}
template <> std::vector<std::complex<double>> solution(int n) {
    std::vector<std::complex<double>> x;
    for (int i = 0; i < n; i++) x.push_back({(double)(i % 7), (double)(i % 5 - 2)});
    return x;
}

static const int N = 40;

template <class T> static double tolerance() { return sizeof(typename Type<T>::Real) == 4 ? 1e-4 : 1e-11; }

template <class T> static void check(const std::string &what, const std::vector<T> &got, const std::vector<T> &wanted) {
    compare(what.c_str(), got, wanted, tolerance<T>());
}

static void set_base(int base) { CHECK(of_sparse("cusparseSetMatIndexBase", matrix_descriptor, base)); }

static bool is_permutation(std::vector<int> p) {
    std::sort(p.begin(), p.end());
    for (int i = 0; i < (int)p.size(); i++)
        if (p[i] != i) return false;
    return true;
}

static void orders() {
    for (int base : {0, 1}) {
        set_base(base);
        const Matrix<double> a = example<double>(N, base), swapped = example<double>(N, base, true);
        std::vector<int> p(N), q(N);
        for (const char *order : {"symrcm", "symmdq", "symamd"}) {
            const std::string function = std::string("cusolverSpXcsr") + order + "Host";
            CHECK(call(function.c_str(), solver, N, a.count(), matrix_descriptor, a.starts.data(), a.columns.data(), p.data()));
            printf("%s: %s\n", order, is_permutation(p) ? "a permutation" : "NO permutation");
        }
        CHECK(call("cusolverSpXcsrmetisndHost", solver, N, a.count(), matrix_descriptor, a.starts.data(), a.columns.data(),
                   (const int64_t *)nullptr, q.data()));
        printf("metisnd: %s\n", is_permutation(q) ? "a permutation" : "NO permutation");

        // B = A(p, q), and the elements as the map says.
        Matrix<double> b = a;
        std::vector<int> map(a.count());
        for (int i = 0; i < a.count(); i++) map[i] = i;
        size_t bytes = 0;
        CHECK(call("cusolverSpXcsrperm_bufferSizeHost", solver, N, N, a.count(), matrix_descriptor, b.starts.data(),
                   b.columns.data(), p.data(), q.data(), &bytes));
        std::vector<char> buffer(bytes + 1);
        CHECK(call("cusolverSpXcsrpermHost", solver, N, N, a.count(), matrix_descriptor, b.starts.data(), b.columns.data(),
                   p.data(), q.data(), map.data(), buffer.data()));
        for (int i = 0; i < a.count(); i++) b.values[i] = a.values[map[i]];
        const std::vector<double> x = solution<double>(N), ax = a.times(x);
        std::vector<double> xq(N), axp(N);
        for (int i = 0; i < N; i++) xq[i] = x[q[i]], axp[i] = ax[p[i]];
        check("permuted matrix", b.times(xq), axp);

        int symmetric = -1;
        CHECK(call("cusolverSpXcsrissymHost", solver, N, a.count(), matrix_descriptor, a.starts.data(), a.starts.data() + 1,
                   a.columns.data(), &symmetric));
        printf("symmetric: %d", symmetric);
        CHECK(call("cusolverSpXcsrissymHost", solver, N, a.count(), matrix_descriptor, swapped.starts.data(),
                   swapped.starts.data() + 1, swapped.columns.data(), &symmetric));
        printf(", with swapped rows: %d\n", symmetric);

        int found = 0;
        CHECK(call("cusolverSpDcsrzfdHost", solver, N, a.count(), matrix_descriptor, swapped.values.data(), swapped.starts.data(),
                   swapped.columns.data(), p.data(), &found));
        printf("zero-free diagonal: %d, %s\n", found, is_permutation(p) ? "a permutation" : "NO permutation");
    }
}

// A matrix in the memory of a function.
template <class T> struct Placed {
    const T *values;
    const int *starts, *columns;
    Placed(const Matrix<T> &a, bool host)
        : values(host ? a.values.data() : on_device(a.values)), starts(host ? a.starts.data() : on_device(a.starts)),
          columns(host ? a.columns.data() : on_device(a.columns)) {}
};

template <class T> static void solve_at_once(const char *method, bool host, bool swapped) {
    typedef typename Type<T>::Real Real;
    set_base(1);
    const Matrix<T> a = example<T>(N, 1, swapped);
    const Placed<T> at(a, host);
    const std::vector<T> wanted = solution<T>(N), b = a.times(wanted);
    std::vector<T> x(N);
    T *right = host ? (T *)b.data() : on_device(b), *left = host ? x.data() : on_device(x);
    int singularity = 7;
    const std::string function = name<T>(method, "", host ? "Host" : "");
    CHECK(call(function.c_str(), solver, N, a.count(), matrix_descriptor, at.values, at.starts, at.columns, right, (Real)1e-10, 1,
               left, &singularity));
    check(function + ", " + std::to_string(singularity), host ? x : back(left, N), wanted);
}

static void singular() {
    set_base(0);
    const int starts[] = {0, 1, 2, 3}, columns[] = {0, 1, 1};
    const double values[] = {1, 2, 3}, b[] = {1, 1, 1};
    double x[3];
    for (const char *method : {"csrlsvlu", "csrlsvqr"}) {
        int singularity = 7;
        CHECK(call(name<double>(method, "Host").c_str(), solver, 3, 3, matrix_descriptor, values, starts, columns, b, 1e-10, 0, x,
                   &singularity));
        printf("%s of a singular matrix: %d\n", method, singularity);
    }
    const double negative[] = {1, -2, 3};
    const int diagonal[] = {0, 1, 2};
    int singularity = 7;
    CHECK(call("cusolverSpDcsrlsvcholHost", solver, 3, 3, matrix_descriptor, negative, starts, diagonal, b, 1e-10, 0, x, &singularity));
    printf("csrlsvchol of a matrix that is not positive: %d\n", singularity);
}

// LU and Cholesky's method, step by step.
template <class T> static void steps(const char *method, const char *info_name, bool host, bool swapped) {
    typedef typename Type<T>::Real Real;
    const char *memory = host ? "Host" : "";
    const bool is_lu = !strcmp(method, "csrlu");
    set_base(0);
    const Matrix<T> a = example<T>(N, 0, swapped);
    const Placed<T> at(a, host);
    Handle info;
    CHECK(call((std::string("cusolverSpCreate") + info_name).c_str(), &info));
    CHECK(call((std::string("cusolverSpX") + method + "Analysis" + memory).c_str(), solver, N, a.count(), matrix_descriptor, at.starts,
               at.columns, info));
    size_t internal = 0, work = 0;
    CHECK(call(name<T>(method, "BufferInfo", memory).c_str(), solver, N, a.count(), matrix_descriptor, at.values, at.starts,
               at.columns, info, &internal, &work));
    std::vector<char> on_host(work + 1);
    void *buffer = host ? on_host.data() : on_device(on_host);
    const std::string factor = name<T>(method, "Factor", memory);
    // Twice, as for a matrix with other elements.
    for (int i = 0; i < 2; i++)
        if (is_lu)
            CHECK(call(factor.c_str(), solver, N, a.count(), matrix_descriptor, at.values, at.starts, at.columns, info, (Real)1, buffer));
        else
            CHECK(call(factor.c_str(), solver, N, a.count(), matrix_descriptor, at.values, at.starts, at.columns, info, buffer));
    int singularity = 7;
    CHECK(call(name<T>(method, "ZeroPivot", memory).c_str(), solver, info, (Real)1e-10, &singularity));
    const std::vector<T> wanted = solution<T>(N), b = a.times(wanted);
    std::vector<T> x(N);
    T *right = host ? (T *)b.data() : on_device(b), *left = host ? x.data() : on_device(x);
    CHECK(call(name<T>(method, "Solve", memory).c_str(), solver, N, right, left, info, buffer));
    check(name<T>(method, "Solve", memory) + ", " + std::to_string(singularity), host ? x : back(left, N), wanted);
    if (is_lu) {
        int lower = 0, upper = 0;
        CHECK(call("cusolverSpXcsrluNnzHost", solver, &lower, &upper, info));
        std::vector<int> p(N), q(N);
        Matrix<T> l{N, 0, std::vector<int>(N + 1), std::vector<int>(lower), std::vector<T>(lower)};
        Matrix<T> u{N, 0, std::vector<int>(N + 1), std::vector<int>(upper), std::vector<T>(upper)};
        CHECK(call(name<T>(method, "ExtractHost").c_str(), solver, p.data(), q.data(), matrix_descriptor, l.values.data(),
                   l.starts.data(), l.columns.data(), matrix_descriptor, u.values.data(), u.starts.data(), u.columns.data(), info, buffer));
        // P A x = L U Q x
        std::vector<T> qx(N), pax(N);
        for (int i = 0; i < N; i++) qx[i] = wanted[q[i]], pax[i] = b[p[i]];
        const std::vector<T> ux = u.times(qx);
        std::vector<T> lux = l.times(ux);
        for (int i = 0; i < N; i++) lux[i] += ux[i];
        check("  its factors", lux, pax);
    } else if (!host) {
        Real *diagonal = on_device(std::vector<Real>(N));
        CHECK(call(name<T>(method, "Diag").c_str(), solver, info, diagonal));
        const std::vector<Real> values = back(diagonal, N);
        printf("  its diagonal: %s\n",
               std::all_of(values.begin(), values.end(), [](Real value) { return 1 < value && value < 3; }) ? "right" : "WRONG");
    }
    CHECK(call((std::string("cusolverSpDestroy") + info_name).c_str(), info));
}

template <class T> static void qr_steps(bool host) {
    typedef typename Type<T>::Real Real;
    const char *memory = host ? "Host" : "";
    set_base(1);
    const Matrix<T> a = example<T>(N, 1, true);
    const Placed<T> at(a, host);
    const std::string info_name = std::string("CsrqrInfo") + memory;
    Handle info;
    CHECK(call(("cusolverSpCreate" + info_name).c_str(), &info));
    CHECK(call((std::string("cusolverSpXcsrqrAnalysis") + memory).c_str(), solver, N, N, a.count(), matrix_descriptor, at.starts, at.columns, info));
    size_t internal = 0, work = 0;
    CHECK(call(name<T>("csrqr", "BufferInfo", memory).c_str(), solver, N, N, a.count(), matrix_descriptor, at.values, at.starts,
               at.columns, info, &internal, &work));
    std::vector<char> on_host(work + 1);
    void *buffer = host ? on_host.data() : on_device(on_host);
    CHECK(call(name<T>("csrqr", "Setup", memory).c_str(), solver, N, N, a.count(), matrix_descriptor, at.values, at.starts, at.columns,
               T(0), info));
    CHECK(call(name<T>("csrqr", "Factor", memory).c_str(), solver, N, N, a.count(), (T *)nullptr, (T *)nullptr, info, buffer));
    int singularity = 7;
    CHECK(call(name<T>("csrqr", "ZeroPivot", memory).c_str(), solver, info, (Real)1e-10, &singularity));
    const std::vector<T> wanted = solution<T>(N);
    std::vector<T> b = a.times(wanted), x(N);
    T *right = host ? b.data() : on_device(b), *left = host ? x.data() : on_device(x);
    CHECK(call(name<T>("csrqr", "Solve", memory).c_str(), solver, N, N, right, left, info, buffer));
    check(name<T>("csrqr", "Solve", memory) + ", " + std::to_string(singularity), host ? x : back(left, N), wanted);
    CHECK(call(("cusolverSpDestroy" + info_name).c_str(), info));
}

template <class T> static void all_of_type() {
    for (bool host : {true, false}) {
        if (!host && only_host) continue;
        if (host) solve_at_once<T>("csrlsvlu", host, true);
        solve_at_once<T>("csrlsvqr", host, true);
        solve_at_once<T>("csrlsvchol", host, false);
        if (host) steps<T>("csrlu", "CsrluInfoHost", host, true);
        steps<T>("csrchol", host ? "CsrcholInfoHost" : "CsrcholInfo", host, false);
        qr_steps<T>(host);
    }
}

struct Lu {
    int lower = 0, upper = 0;
    std::vector<int> p, q;
    Matrix<double> l, u;
};

// LU of a matrix by the steps above.
static Lu factors(const Matrix<double> &a) {
    Lu lu;
    Handle info;
    CHECK(call("cusolverSpCreateCsrluInfoHost", &info));
    CHECK(call("cusolverSpXcsrluAnalysisHost", solver, N, a.count(), matrix_descriptor, a.starts.data(), a.columns.data(), info));
    size_t internal, work;
    CHECK(call("cusolverSpDcsrluBufferInfoHost", solver, N, a.count(), matrix_descriptor, a.values.data(), a.starts.data(),
               a.columns.data(), info, &internal, &work));
    std::vector<char> buffer(work + 1);
    CHECK(call("cusolverSpDcsrluFactorHost", solver, N, a.count(), matrix_descriptor, a.values.data(), a.starts.data(),
               a.columns.data(), info, 1.0, buffer.data()));
    CHECK(call("cusolverSpXcsrluNnzHost", solver, &lu.lower, &lu.upper, info));
    lu.p.resize(N);
    lu.q.resize(N);
    lu.l = {N, 0, std::vector<int>(N + 1), std::vector<int>(lu.lower), std::vector<double>(lu.lower)};
    lu.u = {N, 0, std::vector<int>(N + 1), std::vector<int>(lu.upper), std::vector<double>(lu.upper)};
    CHECK(call("cusolverSpDcsrluExtractHost", solver, lu.p.data(), lu.q.data(), matrix_descriptor, lu.l.values.data(), lu.l.starts.data(),
               lu.l.columns.data(), matrix_descriptor, lu.u.values.data(), lu.u.starts.data(), lu.u.columns.data(), info, buffer.data()));
    CHECK(call("cusolverSpDestroyCsrluInfoHost", info));
    return lu;
}

static void prepare(Handle rf) {
    CHECK(call("cusolverRfSetNumericProperties", rf, 0.0, 0.0));
    CHECK(call("cusolverRfSetAlgs", rf, 0, 1));
    // CUSOLVERRF_MATRIX_FORMAT_CSR, CUSOLVERRF_UNIT_DIAGONAL_ASSUMED_L
    CHECK(call("cusolverRfSetMatrixFormat", rf, 0, 2));
    CHECK(call("cusolverRfSetResetValuesFastMode", rf, 1));
}

// Elements that the program frees.
static Matrix<double> taken(int count, int *starts, int *columns, double *values) {
    Matrix<double> a{N, 0, {starts, starts + N + 1}, {columns, columns + count}, {values, values + count}};
    free(starts);
    free(columns);
    free(values);
    return a;
}

// With NVIDIA's library `cusolverRfBatchAnalyze` fails, natively, too.
static void refactorization_of_batch(const Matrix<double> &a, const Matrix<double> &other, Lu &lu) {
    const std::vector<double> x = solution<double>(N);
    int *p = on_device(lu.p), *q = on_device(lu.q), *starts = on_device(a.starts), *columns = on_device(a.columns);
    Handle rf;
    CHECK(call("cusolverRfCreate", &rf));
    prepare(rf);
    const double *given[] = {a.values.data(), other.values.data()};
    CHECK(call("cusolverRfBatchSetupHost", 2, N, a.count(), a.starts.data(), a.columns.data(), given, lu.lower, lu.l.starts.data(),
               lu.l.columns.data(), lu.l.values.data(), lu.upper, lu.u.starts.data(), lu.u.columns.data(), lu.u.values.data(), lu.p.data(),
               lu.q.data(), rf));
    CHECK(call("cusolverRfBatchAnalyze", rf));
    const std::vector<double *> values = {on_device(other.values), on_device(a.values)};
    const std::vector<double *> rights = {on_device(other.times(x)), on_device(a.times(x))};
    double **value_array = on_device(values), **right_array = on_device(rights);
    double *batch_work = on_device(std::vector<double>(2 * 2 * N));
    CHECK(call("cusolverRfBatchResetValues", 2, N, a.count(), starts, columns, value_array, p, q, rf));
    CHECK(call("cusolverRfBatchRefactor", rf));
    CHECK(call("cusolverRfBatchSolve", rf, p, q, 1, batch_work, N, right_array, N));
    CHECK(cudaDeviceSynchronize());
    int zeros[2] = {7, 7};
    CHECK(call("cusolverRfBatchZeroPivot", rf, zeros));
    printf("zero pivots of a batch: %d %d\n", zeros[0], zeros[1]);
    for (double *right : rights) check("solution of a batch", back(right, N), x);
    CHECK(call("cusolverRfDestroy", rf));
}

static void refactorization(bool batch) {
    set_base(0);
    const Matrix<double> a = example<double>(N, 0);
    const std::vector<double> x = solution<double>(N);
    Matrix<double> other = a;
    for (int i = 0; i < N; i++)
        for (int k = a.starts[i]; k < a.starts[i + 1]; k++) other.values[k] *= a.columns[k] == i ? 2 : 1 + i % 3;
    Lu lu = factors(a);
    if (batch) return refactorization_of_batch(a, other, lu);
    Handle rf;
    CHECK(call("cusolverRfCreate", &rf));
    prepare(rf);
    CHECK(call("cusolverRfSetupHost", N, a.count(), a.starts.data(), a.columns.data(), a.values.data(), lu.lower, lu.l.starts.data(),
               lu.l.columns.data(), lu.l.values.data(), lu.upper, lu.u.starts.data(), lu.u.columns.data(), lu.u.values.data(), lu.p.data(),
               lu.q.data(), rf));
    CHECK(call("cusolverRfAnalyze", rf));
    int *p = on_device(lu.p), *q = on_device(lu.q), *starts = on_device(a.starts), *columns = on_device(a.columns);
    double *work = on_device(std::vector<double>(2 * N));
    for (const Matrix<double> *matrix : {&a, (const Matrix<double> *)&other}) {
        double *values = on_device(matrix->values), *right = on_device(matrix->times(x));
        CHECK(call("cusolverRfResetValues", N, a.count(), starts, columns, values, p, q, rf));
        CHECK(call("cusolverRfRefactor", rf));
        CHECK(call("cusolverRfSolve", rf, p, q, 1, work, N, right, N));
        CHECK(cudaDeviceSynchronize());
        check("solution by refactorization", back(right, N), x);
    }
    int lower, upper, both, *l_starts, *l_columns, *u_starts, *u_columns, *m_starts, *m_columns;
    double *l_values, *u_values, *m_values;
    CHECK(call("cusolverRfExtractSplitFactorsHost", rf, &lower, &l_starts, &l_columns, &l_values, &upper, &u_starts, &u_columns, &u_values));
    CHECK(call("cusolverRfExtractBundledFactorsHost", rf, &both, &m_starts, &m_columns, &m_values));
    const Matrix<double> l = taken(lower, l_starts, l_columns, l_values), u = taken(upper, u_starts, u_columns, u_values),
                         m = taken(both, m_starts, m_columns, m_values);
    const std::vector<double> ax = other.times(x);
    std::vector<double> qx(N), pax(N);
    for (int i = 0; i < N; i++) qx[i] = x[lu.q[i]], pax[i] = ax[lu.p[i]];
    const std::vector<double> ux = u.times(qx);
    std::vector<double> lux = l.times(ux), sum = l.times(qx);
    bool has_diagonal = false;
    for (int i = 0; i < N; i++)
        for (int k = l.starts[i]; k < l.starts[i + 1]; k++) has_diagonal |= l.columns[k] == i;
    for (int i = 0; i < N; i++) lux[i] += has_diagonal ? 0 : ux[i], sum[i] += ux[i] - (has_diagonal ? qx[i] : 0);
    check("split factors", lux, pax);
    check("bundled factors", m.times(qx), sum);
    CHECK(call("cusolverRfDestroy", rf));
}

int main(int argc, char **argv) {
    only_host = argc > 1 && !strcmp(argv[1], "host");
    load({"libcusolver.so.12", "libcusolver.so.11"});
    sparse_library = dlopen("libcusparse.so.12", RTLD_NOW);
    CHECK(sparse_library ? 0 : 1);
    CHECK(cudaFree(nullptr));
    CHECK(call("cusolverSpCreate", &solver));
    CHECK(of_sparse("cusparseCreateMatDescr", &matrix_descriptor));
    if (argc > 1 && !strcmp(argv[1], "batch")) {
        refactorization(true);
        return 0;
    }
    orders();
    singular();
    all_of_type<float>();
    all_of_type<double>();
    all_of_type<std::complex<float>>();
    all_of_type<std::complex<double>>();
    if (!only_host) refactorization(false);
    CHECK(of_sparse("cusparseDestroyMatDescr", matrix_descriptor));
    CHECK(call("cusolverSpDestroy", solver));
    return 0;
}
