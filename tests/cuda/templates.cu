// SPDX-License-Identifier: Apache-2.0 OR MIT
// Template kernels: several instances, non-type arguments and a functor.
#include "check.h"

template <typename T> struct Square {
    __device__ T operator()(T x) const { return x * x; }
};
template <typename T> struct AddN {
    T n;
    __device__ T operator()(T x) const { return x + n; }
};

template <typename T, typename Operation, int Stride> __global__ void apply(T *values, int n, Operation operation) {
    for (int i = threadIdx.x * Stride; i < n; i += blockDim.x * Stride) {
        values[i] = operation(values[i]);
    }
}

template <typename T, int Stride, typename Operation> void run(const char *label, const char *format, Operation operation) {
    const int n = 12;
    T host[n];
    for (int i = 0; i < n; i++) {
        host[i] = (T)(i + 1);
    }
    T *device;
    CHECK(cudaMalloc(&device, sizeof host));
    CHECK(cudaMemcpy(device, host, sizeof host, cudaMemcpyHostToDevice));
    apply<T, Operation, Stride><<<1, 4>>>(device, n, operation);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(host, device, sizeof host, cudaMemcpyDeviceToHost));
    CHECK(cudaFree(device));
    std::printf("%s:", label);
    for (int i = 0; i < n; i++) {
        std::printf(format, host[i]);
    }
    std::printf("\n");
}

int main() {
    run<int, 1>("int squared", " %d", Square<int>{});
    run<int, 2>("int squared, every second", " %d", Square<int>{});
    run<double, 1>("double squared", " %g", Square<double>{});
    run<float, 3>("float + 0.5, every third", " %g", AddN<float>{0.5f});
    run<long long, 1>("long long + 1e12", " %lld", AddN<long long>{1000000000000ll});
    run<short, 1>("short + 7", " %d", AddN<short>{7});
    return 0;
}
