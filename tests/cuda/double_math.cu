// SPDX-License-Identifier: Apache-2.0 OR MIT
// Arithmetic: the bits of every operation that IEEE 754 defines, in double and single precision, and the functions of
// the mathematics library to within the error that CUDA's documentation gives.
#include "check.h"

#include <cmath>
#include <cstring>
#include <vector>

enum { kExact = 16, kFunctions = 9 };

__global__ void exact_double(const double *a, const double *b, unsigned long long *out, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) {
        return;
    }
    const double x = a[i], y = b[i];
    const double results[kExact] = {
        x + y,           x - y,           x * y,           x / y,           sqrt(fabs(x)),   fma(x, y, -x * y),
        __dadd_rz(x, y), __dadd_ru(x, y), __dadd_rd(x, y), __dmul_rz(x, y), __dmul_ru(x, y), __ddiv_rd(x, y),
        rint(x),         floor(y),        (double)(float)x, 1.0 / y};
    for (int k = 0; k < kExact; k++) {
        out[i * kExact + k] = __double_as_longlong(results[k]);
    }
}

__global__ void exact_float(const double *a, const double *b, unsigned *out, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) {
        return;
    }
    const float x = (float)a[i], y = (float)b[i];
    const float results[kExact] = {
        x + y,           x - y,           x * y,           x / y,           sqrtf(fabsf(x)), fmaf(x, y, -x * y),
        __fadd_rz(x, y), __fadd_ru(x, y), __fadd_rd(x, y), __fmul_rz(x, y), __fmul_ru(x, y), __fdiv_rd(x, y),
        rintf(x),        truncf(y),       (float)(int)(x * 100), fminf(x, y)};
    for (int k = 0; k < kExact; k++) {
        out[i * kExact + k] = __float_as_uint(results[k]);
    }
}

__global__ void functions(const double *a, double *out, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) {
        return;
    }
    const double x = a[i];
    const double results[kFunctions] = {sin(x), cos(x), exp(x / 8), log(fabs(x) + 0.1), pow(fabs(x) + 0.5, 1.7),
                                        atan(x), tanh(x), cbrt(x), erf(x / 4)};
    for (int k = 0; k < kFunctions; k++) {
        out[i * kFunctions + k] = results[k];
    }
}

__global__ void integers(const double *a, unsigned long long *out, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) {
        return;
    }
    const long long bits = __double_as_longlong(a[i]);
    const int low = (int)bits, high = (int)(bits >> 32);
    unsigned long long mixed = bits / ((low | 1) == -1 ? 3 : (low | 1));
    mixed = mixed * 31 + (unsigned long long)(high % ((low & 1023) + 1));
    mixed = mixed * 31 + __umul64hi(bits, 0x9e3779b97f4a7c15ull);
    mixed = mixed * 31 + (unsigned)__mulhi(low, high);
    mixed = mixed * 31 + __clz(low) + 64 * __clzll(bits) + 4096 * __popcll(bits) + __ffs(high);
    mixed = mixed * 31 + __brev(low) + __byte_perm(low, high, 0x5276);
    mixed = mixed * 31 + (unsigned)__funnelshift_l(low, high, low & 31);
    mixed = mixed * 31 + (unsigned)__sad(low, high, 5u);
    mixed = mixed * 31 + (unsigned)(long long)fmin(fmax(a[i], -1e9), 1e9);
    out[i] = mixed;
}

static double distance_in_ulps(double seen, double right) {
    if (seen == right || (std::isnan(seen) && std::isnan(right))) {
        return 0;
    }
    const double ulp = std::nextafter(std::fabs(right), INFINITY) - std::fabs(right);
    return std::fabs(seen - right) / ulp;
}

int main() {
    std::vector<double> a, b;
    const double special[] = {0.0,   -0.0,  1.0,  -1.0,    0.1,      1.0 / 3,  1e-310, -5e-324, 1e308,
                              -1e308, 1e-38, 3e38, 1.5e-45, INFINITY, -INFINITY, 4097.5, 2.5,     -3.5};
    for (double x : special) {
        for (double y : special) {
            a.push_back(x);
            b.push_back(y);
        }
    }
    Random random(1);
    for (int i = 0; i < 2000; i++) {
        a.push_back(((double)(int64_t)random.next()) / (1ll << 59));
        b.push_back(((double)(int64_t)random.next()) / (1ll << 57));
    }
    const int n = (int)a.size(), blocks = (n + 127) / 128;

    double *device_a, *device_b, *device_out;
    CHECK(cudaMalloc(&device_a, n * sizeof(double)));
    CHECK(cudaMalloc(&device_b, n * sizeof(double)));
    CHECK(cudaMalloc(&device_out, n * kExact * sizeof(double)));
    CHECK(cudaMemcpy(device_a, a.data(), n * sizeof(double), cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(device_b, b.data(), n * sizeof(double), cudaMemcpyHostToDevice));

    std::vector<uint64_t> bits(n * kExact);
    exact_double<<<blocks, 128>>>(device_a, device_b, (unsigned long long *)device_out, n);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(bits.data(), device_out, bits.size() * 8, cudaMemcpyDeviceToHost));
    for (int k = 0; k < kExact; k++) {
        uint64_t hash = 0;
        for (int i = 0; i < n; i++) {
            const uint64_t word = bits[i * kExact + k];
            // Which NaN comes out is not defined.
            const bool nan = (word & 0x7fffffffffffffffull) > 0x7ff0000000000000ull;
            hash = (hash ^ (nan ? 0x7ff8000000000000ull : word)) * 0x9e3779b97f4a7c15ull;
            hash ^= hash >> 31;
        }
        std::printf("double %2d: %016llx\n", k, (unsigned long long)hash);
    }
    for (int i = 0; i < n; i++) {
        const double sum = a[i] + b[i], quotient = a[i] / b[i], root = std::sqrt(std::fabs(a[i]));
        double device_sum, device_quotient, device_root;
        std::memcpy(&device_sum, &bits[i * kExact + 0], 8);
        std::memcpy(&device_quotient, &bits[i * kExact + 3], 8);
        std::memcpy(&device_root, &bits[i * kExact + 4], 8);
        REQUIRE(device_sum == sum || (std::isnan(sum) && std::isnan(device_sum)));
        REQUIRE(device_quotient == quotient || (std::isnan(quotient) && std::isnan(device_quotient)));
        REQUIRE(device_root == root);
    }

    std::vector<uint32_t> words(n * kExact);
    exact_float<<<blocks, 128>>>(device_a, device_b, (unsigned *)device_out, n);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(words.data(), device_out, words.size() * 4, cudaMemcpyDeviceToHost));
    for (int k = 0; k < kExact; k++) {
        uint64_t hash = 0;
        for (int i = 0; i < n; i++) {
            const uint32_t word = words[i * kExact + k];
            const bool nan = (word & 0x7fffffffu) > 0x7f800000u;
            hash = (hash ^ (nan ? 0x7fc00000u : word)) * 0x9e3779b97f4a7c15ull;
            hash ^= hash >> 31;
        }
        std::printf("float %2d: %016llx\n", k, (unsigned long long)hash);
    }

    std::vector<uint64_t> mixed(n);
    integers<<<blocks, 128>>>(device_a, (unsigned long long *)device_out, n);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(mixed.data(), device_out, n * 8, cudaMemcpyDeviceToHost));
    std::printf("integers: %016llx\n", (unsigned long long)hash_bytes(mixed.data(), n * 8));

    // Functions only on the random part: moderate arguments, where a host library is right to under one ulp.
    const int first = sizeof special / sizeof *special * (sizeof special / sizeof *special);
    const char *names[kFunctions] = {"sin", "cos", "exp", "log", "pow", "atan", "tanh", "cbrt", "erf"};
    std::vector<double> seen(n * kFunctions);
    functions<<<blocks, 128>>>(device_a, device_out, n);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(seen.data(), device_out, seen.size() * 8, cudaMemcpyDeviceToHost));
    double worst[kFunctions] = {};
    for (int i = first; i < n; i++) {
        const double x = a[i];
        const double right[kFunctions] = {std::sin(x), std::cos(x), std::exp(x / 8), std::log(std::fabs(x) + 0.1),
                                          std::pow(std::fabs(x) + 0.5, 1.7), std::atan(x), std::tanh(x),
                                          std::cbrt(x), std::erf(x / 4)};
        for (int k = 0; k < kFunctions; k++) {
            worst[k] = std::fmax(worst[k], distance_in_ulps(seen[i * kFunctions + k], right[k]));
        }
    }
    for (int k = 0; k < kFunctions; k++) {
        std::printf("%s: %s\n", names[k], worst[k] <= 4 ? "within 4 ulps" : "off");
        REQUIRE(worst[k] <= 4);
    }
    CHECK(cudaFree(device_a));
    CHECK(cudaFree(device_b));
    CHECK(cudaFree(device_out));
    return 0;
}
