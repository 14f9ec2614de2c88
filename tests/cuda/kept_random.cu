// SPDX-License-Identifier: Apache-2.0 OR MIT
// Generators of cuRAND that give the numbers of a sequence in parts, of several kinds in turn, with pauses in between.

#include "library.h"

#include <cstdint>
#include <cstring>
#include <unistd.h>

// curand.h
enum { XORWOW = 101, MRG32K3A = 121, MTGP32 = 141, PHILOX = 161, SOBOL32 = 201 };

static const int PARTS = 12, COUNT = 4098;
static cudaStream_t stream;

static Handle make(int kind) {
    Handle generator;
    CHECK(call("curandCreateGenerator", &generator, kind));
    CHECK(call("curandSetStream", generator, stream));
    if (kind != SOBOL32) CHECK(call("curandSetPseudoRandomGeneratorSeed", generator, (unsigned long long)1234));
    return generator;
}

static std::vector<double> part(Handle generator, int number) {
    double *memory = on_device(std::vector<double>(COUNT));
    if (number == PARTS / 2) {
        // Not of all kinds.
        call("curandSetGeneratorOffset", generator, (unsigned long long)77);
    }
    switch (number % 4) {
    case 0: CHECK(call("curandGenerateUniform", generator, (float *)memory, (size_t)COUNT)); break;
    case 1: CHECK(call("curandGenerateUniformDouble", generator, memory, (size_t)COUNT)); break;
    case 2: CHECK(call("curandGenerateNormal", generator, (float *)memory, (size_t)COUNT - 2, 0.f, 1.f)); break;
    default: CHECK(call("curandGenerate", generator, (uint32_t *)memory, (size_t)COUNT / 3)); break;
    }
    CHECK(cudaStreamSynchronize(stream));
    auto values = back(memory, COUNT);
    CHECK(cudaFree(memory));
    return values;
}

int main() {
    load({"libcurand.so.10"});
    CHECK(cudaStreamCreate(&stream));
    const struct {
        const char *name;
        int kind;
    } kinds[] = {{"xorwow", XORWOW}, {"mrg32k3a", MRG32K3A}, {"mtgp32", MTGP32}, {"philox", PHILOX}, {"sobol32", SOBOL32}};
    std::vector<Handle> generators;
    std::vector<std::vector<double>> wanted;
    for (const auto &one : kinds) {
        Handle generator = make(one.kind);
        for (int i = 0; i < PARTS; i++) wanted.push_back(part(generator, i));
        CHECK(call("curandDestroyGenerator", generator));
        generators.push_back(make(one.kind));
    }
    bool right[sizeof kinds / sizeof *kinds];
    for (bool &one : right) one = true;
    for (int i = 0; i < PARTS; i++)
        for (size_t k = 0; k < generators.size(); k++) {
            usleep(20000);
            const auto values = part(generators[k], i);
            right[k] = right[k] && memcmp(values.data(), wanted[k * PARTS + i].data(), COUNT * sizeof(double)) == 0;
        }
    for (size_t k = 0; k < generators.size(); k++) {
        printf("%s: %s\n", kinds[k].name, right[k] ? "right" : "WRONG");
        CHECK(call("curandDestroyGenerator", generators[k]));
    }
    return 0;
}
