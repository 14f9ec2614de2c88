// SPDX-License-Identifier: Apache-2.0 OR MIT
// cuRAND's generators by their public API: distributions, seeds, offsets, streams and graphs. The numbers themselves differ
// between devices; what is printed does not.

#include <cstdint>

#include "library.h"

// curand.h
enum { DEFAULT = 100, XORWOW = 101, MRG32K3A = 121, PHILOX = 161 };

static const int COUNT = 200000;
static cudaStream_t stream;

template <class T> static void distribution(const char *name, const std::vector<T> &values, double mean, double deviation) {
    double sum = 0, squares = 0;
    for (T value : values) sum += value;
    const double found = sum / values.size();
    for (T value : values) squares += (value - found) * (value - found);
    const double spread = std::sqrt(squares / values.size());
    // Five standard errors of the mean, and 5 % of the deviation.
    const bool right = std::abs(found - mean) < 5 * deviation / std::sqrt(values.size()) && std::abs(spread / deviation - 1) < 0.05;
    printf("%s: %s\n", name, right ? "right" : "WRONG");
    if (!right) printf("mean %g, deviation %g\n", found, spread);
}

template <class T> static std::vector<T> filled(const char *name, Handle generator) {
    T *memory = on_device(std::vector<T>(COUNT));
    CHECK(call(name, generator, memory, (size_t)COUNT));
    CHECK(cudaStreamSynchronize(stream));
    auto values = back(memory, COUNT);
    CHECK(cudaFree(memory));
    return values;
}

template <class T> static std::vector<T> normal(const char *name, Handle generator, T mean, T deviation) {
    T *memory = on_device(std::vector<T>(COUNT));
    CHECK(call(name, generator, memory, (size_t)COUNT, mean, deviation));
    CHECK(cudaStreamSynchronize(stream));
    auto values = back(memory, COUNT);
    CHECK(cudaFree(memory));
    return values;
}

static Handle make(int kind) {
    Handle generator;
    CHECK(call("curandCreateGenerator", &generator, kind));
    CHECK(call("curandSetStream", generator, stream));
    CHECK(call("curandSetPseudoRandomGeneratorSeed", generator, (unsigned long long)1234));
    return generator;
}

static void distributions(int kind) {
    Handle generator = make(kind);
    const auto words = filled<uint32_t>("curandGenerate", generator);
    distribution("words", words, 4294967295.0 / 2, 4294967296.0 / std::sqrt(12.0));
    const auto uniform = filled<float>("curandGenerateUniform", generator);
    distribution("uniform", uniform, 0.5, 1 / std::sqrt(12.0));
    bool inside = true;
    for (float value : uniform) inside = inside && value > 0 && value <= 1;
    printf("above 0, up to 1: %s\n", inside ? "yes" : "no");
    distribution("uniform double", filled<double>("curandGenerateUniformDouble", generator), 0.5, 1 / std::sqrt(12.0));
    distribution("normal", normal<float>("curandGenerateNormal", generator, 3, 2), 3, 2);
    distribution("normal double", normal<double>("curandGenerateNormalDouble", generator, -1, 0.5), -1, 0.5);
    const double variance = std::exp(0.25) - 1, mean = std::exp(0.125);
    distribution("lognormal", normal<float>("curandGenerateLogNormal", generator, 0, 0.5), mean, std::sqrt(variance) * mean);
    uint32_t *memory = on_device(std::vector<uint32_t>(COUNT));
    CHECK(call("curandGeneratePoisson", generator, memory, (size_t)COUNT, 7.0));
    CHECK(cudaStreamSynchronize(stream));
    distribution("Poisson", back(memory, COUNT), 7, std::sqrt(7.0));
    CHECK(call("curandDestroyGenerator", generator));
}

static void sequences() {
    Handle first = make(DEFAULT), second = make(DEFAULT);
    const auto one = filled<uint32_t>("curandGenerate", first);
    printf("same seed: %s\n", one == filled<uint32_t>("curandGenerate", second) ? "the same" : "others");
    printf("later: %s\n", one == filled<uint32_t>("curandGenerate", second) ? "the same" : "others");
    CHECK(call("curandSetGeneratorOffset", second, 0ull));
    printf("from the beginning: %s\n", one == filled<uint32_t>("curandGenerate", second) ? "the same" : "others");
    CHECK(call("curandSetPseudoRandomGeneratorSeed", second, 99ull));
    printf("another seed: %s\n", one == filled<uint32_t>("curandGenerate", second) ? "the same" : "others");
    CHECK(call("curandDestroyGenerator", first));
    CHECK(call("curandDestroyGenerator", second));
}

static void mistakes() {
    Handle generator;
    printf("no such type: %d\n", call("curandCreateGenerator", &generator, 7));
    generator = make(PHILOX);
    float *memory = on_device(std::vector<float>(8));
    printf("an odd number of normals: %d\n", call("curandGenerateNormal", generator, memory, (size_t)7, 0.f, 1.f));
    CHECK(call("curandDestroyGenerator", generator));
}

int main() {
    load({"libcurand.so.10"});
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (int kind : {DEFAULT, XORWOW, MRG32K3A, PHILOX}) distributions(kind);
    sequences();
    mistakes();
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaDeviceSynchronize());
    printf("done\n");
    return 0;
}
