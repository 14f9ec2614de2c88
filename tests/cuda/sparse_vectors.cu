// SPDX-License-Identifier: Apache-2.0 OR MIT
// cuSPARSE's operations on a sparse and a dense vector, by their public API: sums, rotations and products. With the argument
// `captured`: what a product answers while its stream captures, with its result in device and in host memory.

#include <cuda_fp16.h>

#include "sparse.h"

#include <string>

static const int SIZE = 21, COUNT = 6;
// They are not sorted.
static const int PLACES[COUNT] = {7, 0, 19, 3, 20, 11};
enum { HALF = 2 }; // CUDA_R_16F

template <class T> static std::vector<T> vector_of(int count, int seed) {
    std::vector<T> values = numbers<T>(count, seed);
    for (int i = 0; i < count; i++) with_imaginary(values[i], i);
    return values;
}

// A sparse and a dense vector in device memory.
template <class V> struct Vectors {
    V *of_x, *of_y;
    void *indices;
    Handle x, y;
    template <class I> Vectors(const std::vector<V> &some, const std::vector<V> &all, int type, int base, I) : of_x(on_device(some)), of_y(on_device(all)) {
        std::vector<I> places;
        for (int place : PLACES) places.push_back(place + base);
        indices = on_device(places);
        const int index = sizeof(I) == 8 ? (int)INDEX_64I : (int)INDEX_32I;
        CHECK(call("cusparseCreateSpVec", &x, (long)SIZE, (long)COUNT, indices, of_x, index, base, type));
        CHECK(call("cusparseCreateDnVec", &y, (long)SIZE, of_y, type));
    }
    // Waits, and compares both.
    bool are(const std::vector<V> &some, const std::vector<V> &all) const {
        CHECK(cudaStreamSynchronize(stream));
        return back(of_x, COUNT) == some && back(of_y, SIZE) == all;
    }
    void free() const {
        CHECK(call("cusparseDestroySpVec", x));
        CHECK(call("cusparseDestroyDnVec", y));
        for (void *memory : {(void *)of_x, (void *)of_y, indices}) CHECK(cudaFree(memory));
    }
};

// Host or device memory with two scalars and room for a result.
template <class T> struct Scalars {
    std::vector<T> values;
    T *memory;
    Scalars(T first, T second, bool on_the_device) : values{first, second, T(0)}, memory(on_the_device ? on_device(values) : nullptr) {
        CHECK(call("cusparseSetPointerMode", handle, on_the_device ? (int)POINTER_DEVICE : 0));
    }
    T *at(int index) { return memory ? memory + index : &values[index]; }
    T result() const {
        CHECK(cudaStreamSynchronize(stream));
        return memory ? back(memory, 3)[2] : values[2];
    }
    void free() const {
        CHECK(call("cusparseSetPointerMode", handle, 0));
        if (memory) CHECK(cudaFree(memory));
    }
};

template <class T, class I> static void all(int base, bool on_the_device) {
    const std::vector<T> x = vector_of<T>(COUNT, 1), y = vector_of<T>(SIZE, 2);
    const T alpha = 3, beta = -2;
    Scalars<T> scalars(alpha, beta, on_the_device);
    const Vectors<T> given(x, y, Type<T>::number, base, I());

    for (int op : {0, 2}) {
        if (op && !Type<T>::is_complex) continue;
        T wanted = 0;
        for (int i = 0; i < COUNT; i++) wanted += (op ? conjugate(x[i]) : x[i]) * y[PLACES[i]];
        size_t bytes;
        CHECK(call("cusparseSpVV_bufferSize", handle, op, given.x, given.y, scalars.at(2), (int)Type<T>::number, &bytes));
        char *buffer = room<char>(bytes);
        CHECK(call("cusparseSpVV", handle, op, given.x, given.y, scalars.at(2), (int)Type<T>::number, buffer));
        tell(op ? "product, conjugated" : "product", scalars.result() == wanted);
        CHECK(cudaFree(buffer));
    }

    std::vector<T> sum = y;
    for (T &value : sum) value *= beta;
    for (int i = 0; i < COUNT; i++) sum[PLACES[i]] += alpha * x[i];
    CHECK(call("cusparseAxpby", handle, scalars.at(0), given.x, scalars.at(1), given.y));
    tell("sum", given.are(x, sum));

    // By the sum, which is in the dense vector now.
    std::vector<T> some = x, rest = sum;
    for (int i = 0; i < COUNT; i++) {
        some[i] = alpha * x[i] + beta * sum[PLACES[i]];
        rest[PLACES[i]] = alpha * sum[PLACES[i]] - beta * x[i];
    }
    CHECK(call("cusparseRot", handle, scalars.at(0), scalars.at(1), given.x, given.y));
    tell("rotation", given.are(some, rest));
    given.free();
    scalars.free();
}

static std::vector<__half> halves(const std::vector<float> &values) {
    std::vector<__half> made;
    for (float value : values) made.push_back(__float2half(value));
    return made;
}

static std::vector<float> floats(const std::vector<__half> &values) {
    std::vector<float> made;
    for (__half value : values) made.push_back(__half2float(value));
    return made;
}

// Vectors of 16 bits have scalars and results of 32 bits.
static void short_ones() {
    const std::vector<float> x = numbers(COUNT, 3), y = numbers(SIZE, 4);
    const float alpha = 2, beta = -1;
    const Vectors<__half> given(halves(x), halves(y), HALF, 0, int());
    float result = 0, wanted = 0;
    for (int i = 0; i < COUNT; i++) wanted += x[i] * y[PLACES[i]];
    size_t bytes;
    CHECK(call("cusparseSpVV_bufferSize", handle, 0, given.x, given.y, &result, (int)Type<float>::number, &bytes));
    char *buffer = room<char>(bytes);
    CHECK(call("cusparseSpVV", handle, 0, given.x, given.y, &result, (int)Type<float>::number, buffer));
    CHECK(cudaStreamSynchronize(stream));
    tell("product of 16 bits", result == wanted);
    std::vector<float> sum = y;
    for (float &value : sum) value *= beta;
    for (int i = 0; i < COUNT; i++) sum[PLACES[i]] += alpha * x[i];
    CHECK(call("cusparseAxpby", handle, &alpha, given.x, &beta, given.y));
    CHECK(cudaStreamSynchronize(stream));
    tell("sum of 16 bits", floats(back(given.of_y, SIZE)) == sum);
    CHECK(cudaFree(buffer));
    given.free();
}

template <class T> static void of_type() {
    printf("type %c\n", Type<T>::letter);
    for (const bool on_the_device : {false, true}) {
        all<T, int>(0, on_the_device);
        all<T, int>(1, on_the_device);
        all<T, long>(0, on_the_device);
    }
}

static void captured() {
    const std::vector<float> some = vector_of<float>(COUNT, 3), all = vector_of<float>(SIZE, 5);
    Vectors<float> given(some, all, (int)Type<float>::number, 0, int());
    for (const bool on_the_device : {true, false}) {
        Scalars<float> scalars(1, 1, on_the_device);
        size_t bytes = 0;
        CHECK(call("cusparseSpVV_bufferSize", handle, 0, given.x, given.y, scalars.at(2), (int)Type<float>::number, &bytes));
        void *buffer;
        CHECK(cudaMalloc(&buffer, bytes + 1));
        CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
        const int status = call("cusparseSpVV", handle, 0, given.x, given.y, scalars.at(2), (int)Type<float>::number, buffer);
        cudaGraph_t graph;
        CHECK(cudaStreamEndCapture(stream, &graph));
        CHECK(cudaGraphDestroy(graph));
        CHECK(cudaFree(buffer));
        printf("result in %s memory: %d\n", on_the_device ? "device" : "host", status);
        scalars.free();
    }
    given.free();
}

int main(int argc, char **argv) {
    load({"libcusparse.so.12"});
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(call("cusparseCreate", &handle));
    CHECK(call("cusparseSetStream", handle, stream));
    if (argc > 1 && std::string(argv[1]) == "captured") {
        captured();
        return 0;
    }
    of_type<float>();
    of_type<double>();
    of_type<std::complex<float>>();
    of_type<std::complex<double>>();
    short_ones();
    CHECK(call("cusparseDestroy", handle));
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaDeviceSynchronize());
    printf("done\n");
    return 0;
}
