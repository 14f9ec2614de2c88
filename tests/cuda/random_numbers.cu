// SPDX-License-Identifier: Apache-2.0 OR MIT
// cuRAND's generators of host and of device memory: the numbers themselves, which are the same for both kinds of memory. With the
// argument `host` only those of host memory, which need no GPU that cuRAND has code for.

#include <cstdint>
#include <cstring>

#include "library.h"

// curand.h
enum { XORWOW = 101, MRG32K3A = 121, PHILOX = 161, SOBOL32 = 201, SOBOL64 = 203 };
typedef unsigned long long Wide;

static bool with_device;
static cudaStream_t stream;

// A generator of host memory and one of device memory, which are asked for the same.
struct Both {
    int kind;
    Handle host, device = nullptr;

    explicit Both(int kind, unsigned dimensions = 1) : kind(kind) {
        CHECK(call("curandCreateGeneratorHost", &host, kind));
        if (with_device) CHECK(call("curandCreateGenerator", &device, kind));
        // One of host memory takes a stream, too.
        set("curandSetStream", stream);
        if (kind < 200) set("curandSetPseudoRandomGeneratorSeed", (Wide)1234);
        else set("curandSetQuasiRandomGeneratorDimensions", dimensions);
    }

    ~Both() {
        CHECK(call("curandDestroyGenerator", host));
        if (device) CHECK(call("curandDestroyGenerator", device));
    }

    template <class... A> void set(const char *name, A... arguments) {
        CHECK(call(name, host, arguments...));
        if (device) CHECK(call(name, device, arguments...));
    }

    // The results of the host's generator, after a comparison with the device's. `error`: how far they may be apart.
    template <class T, class... A> std::vector<T> fill(double error, const char *name, size_t count, A... arguments) {
        std::vector<T> values(count);
        CHECK(call(name, host, values.data(), count, arguments...));
        if (!device) return values;
        T *memory = on_device(std::vector<T>(count));
        CHECK(call(name, device, memory, count, arguments...));
        CHECK(cudaStreamSynchronize(stream));
        const auto others = back(memory, count);
        CHECK(cudaFree(memory));
        size_t differ = 0;
        for (size_t i = 0; i < count; i++) {
            const double one = (double)values[i], other = (double)others[i];
            if (std::abs(one - other) > error * std::max(1.0, std::abs(one))) differ++;
        }
        if (differ) printf("%d %s: %zu of %zu differ between host and device\n", kind, name, differ, count);
        return values;
    }
};

template <class T> static Wide sum(const std::vector<T> &values) {
    Wide sum = 0xcbf29ce484222325;
    for (const T &value : values) {
        unsigned char bytes[sizeof(T)];
        memcpy(bytes, &value, sizeof(T));
        for (unsigned char byte : bytes) sum = (sum ^ byte) * 0x100000001b3;
    }
    return sum;
}

static void words(Both &both, size_t count) {
    if (both.kind == SOBOL64) {
        const auto values = both.fill<Wide>(0, "curandGenerateLongLong", count);
        printf("words %016llx %016llx %016llx, all %016llx\n", values[0], values[1], values[count - 1], sum(values));
    } else {
        const auto values = both.fill<uint32_t>(0, "curandGenerate", count);
        printf("words %08x %08x %08x, all %016llx\n", values[0], values[1], values[count - 1], sum(values));
    }
}

static void numbers(int kind) {
    printf("type %d\n", kind);
    Both both(kind, 3);
    words(both, 300000);
    const auto uniform = both.fill<float>(0, "curandGenerateUniform", 3003);
    printf("uniform %.9g %.9g, all %016llx\n", uniform[0], uniform[3002], sum(uniform));
    const auto doubles = both.fill<double>(0, "curandGenerateUniformDouble", 6006);
    printf("uniform %.17g %.17g, all %016llx\n", doubles[0], doubles[6005], sum(doubles));
    // The last bits of logarithm and sine differ, and a GPU may use its fast sine.
    const auto normal = both.fill<float>(1e-4, "curandGenerateNormal", 6000, 1.f, 2.f);
    printf("normal %.4f %.4f %.4f\n", normal[0], normal[1], normal[5999]);
    const auto normal_doubles = both.fill<double>(1e-13, "curandGenerateNormalDouble", 6000, 1.0, 2.0);
    printf("normal %.12f %.12f %.12f\n", normal_doubles[0], normal_doubles[1], normal_doubles[5999]);
    const auto log = both.fill<float>(1e-4, "curandGenerateLogNormal", 6000, 0.f, 0.5f);
    printf("lognormal %.4f %.4f %.4f\n", log[0], log[1], log[5999]);
    // Host and device may differ here: only the mean is checked.
    const auto poisson = both.fill<uint32_t>(INFINITY, "curandGeneratePoisson", 60000, 7.0);
    double mean = 0;
    for (uint32_t value : poisson) mean += value / 60000.0;
    printf("Poisson: %s\n", std::abs(mean - 7) < 0.1 ? "right" : "WRONG");
    both.set("curandSetGeneratorOffset", 1000000007ull);
    words(both, 8190);
    if (kind < 200) both.set("curandSetPseudoRandomGeneratorSeed", 99ull);
    both.set("curandSetGeneratorOffset", 5ull);
    words(both, 8190);
}

// A result of which an answer of the worker holds a part only is the same as many short ones.
static void long_results() {
    const size_t count = 9000000;
    for (int kind : {XORWOW, PHILOX}) {
        Both whole(kind), pieces(kind);
        std::vector<float> values(count), others(count);
        CHECK(call("curandGenerateNormal", whole.host, values.data(), count, 0.f, 1.f));
        for (size_t at = 0; at < count; at += count / 100)
            CHECK(call("curandGenerateNormal", pieces.host, others.data() + at, count / 100, 0.f, 1.f));
        printf("long %d: %s\n", kind, values == others ? "the same" : "OTHERS");
    }
    Both lines(SOBOL32, 3);
    std::vector<double> values(count);
    CHECK(call("curandGenerateUniformDouble", lines.host, values.data(), count));
    bool first_is_right = true;
    for (size_t i = 1; i < count / 3; i++) {
        // One bit changes from number to number, by the place of the lowest bit of the position.
        const uint32_t change = (uint32_t)(values[i] * 4294967296 - 1) ^ (uint32_t)(values[i - 1] * 4294967296 - 1);
        first_is_right = first_is_right && change == 1u << (31 - __builtin_ctzll(i));
    }
    printf("long dimensions: %s, all %016llx\n", first_is_right ? "right" : "WRONG", sum(values));
}

static void mistakes() {
    Handle generator;
    printf("no such type: %d\n", call("curandCreateGeneratorHost", &generator, 7));
    const size_t long_odd = 9000001;
    std::vector<float> values(long_odd);
    Both xorwow(XORWOW), philox(PHILOX), sobol(SOBOL32, 3);
    for (size_t count : {(size_t)7, long_odd}) {
        printf("an odd number of normals: %d", call("curandGenerateNormal", xorwow.host, values.data(), count, 0.f, 1.f));
        printf(", %d", call("curandGenerateNormal", philox.host, values.data(), count, 0.f, 1.f));
        printf(", dimensions: %d\n", call("curandGenerateUniform", sobol.host, values.data(), count));
    }
    // What was refused has taken no number.
    words(xorwow, 8);
    printf("seed of Sobol: %d\n", call("curandSetPseudoRandomGeneratorSeed", sobol.host, 1ull));
    printf("dimensions of XORWOW: %d\n", call("curandSetQuasiRandomGeneratorDimensions", xorwow.host, 2u));
    printf("dimensions: %d %d\n", call("curandSetQuasiRandomGeneratorDimensions", sobol.host, 0u),
           call("curandSetQuasiRandomGeneratorDimensions", sobol.host, 20001u));
    printf("order: %d %d\n", call("curandSetGeneratorOrdering", xorwow.host, 103), call("curandSetGeneratorOrdering", philox.host, 102));
    printf("64 bits: %d\n", call("curandGenerateLongLong", xorwow.host, (Wide *)values.data(), (size_t)8));
    printf("Poisson: %d\n", call("curandGeneratePoisson", xorwow.host, (uint32_t *)values.data(), (size_t)8, -1.0));
    printf("nothing: %d\n", call("curandGenerateUniform", xorwow.host, values.data(), (size_t)0));
}

int main(int count, char **arguments) {
    with_device = count < 2 || strcmp(arguments[1], "host") != 0;
    load({"libcurand.so.10"});
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (int kind : {XORWOW, MRG32K3A, PHILOX, SOBOL32, SOBOL64}) numbers(kind);
    long_results();
    mistakes();
    CHECK(cudaStreamDestroy(stream));
    printf("done\n");
    return 0;
}
