// SPDX-License-Identifier: Apache-2.0 OR MIT
// cuSPARSELt by its public API: pruning, compressing and products of a matrix of which two in four neighbours are zero.

#include "library.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

// cusparseLt.h, cusparse.h, library_types.h
enum { R_16F = 2, R_8I = 3, R_32I = 10, R_16BF = 14, ORDER_ROWS = 2, COMPUTE_32I = 0, COMPUTE_32F = 2 };
enum { NUM_BATCHES = 0, BATCH_STRIDE = 1 };
enum { RELU = 0, RELU_UPPERBOUND = 1, ALPHA_VECTOR_SCALING = 5, BIAS_STRIDE = 7, BIAS_POINTER = 8 };
enum { CONFIG_ID = 0, CONFIG_MAX_ID = 1, SEARCH_ITERATIONS = 2 };
enum { TILE = 0, STRIP = 1, NO_TRANSPOSE = 0, TRANSPOSE = 1 };

// All structures of the library: those of its oldest releases are the longest.
struct Opaque {
    alignas(16) uint8_t data[16384];
};

// By rows: A is M x K, B is N x K and transposed, C and D are M x N.
static const int M = 64, N = 96, K = 128;
static Opaque handle;
static cudaStream_t stream;

template <class T> struct Type;
template <> struct Type<__half> {
    enum { number = R_16F, result = R_16F, compute = COMPUTE_32F };
    typedef __half Result;
};
template <> struct Type<__nv_bfloat16> {
    enum { number = R_16BF, result = R_16BF, compute = COMPUTE_32F };
    typedef __nv_bfloat16 Result;
};
template <> struct Type<int8_t> {
    enum { number = R_8I, result = R_32I, compute = COMPUTE_32I };
    typedef int Result;
};

template <class T> static std::vector<T> narrow(const std::vector<float> &values) {
    std::vector<T> narrowed(values.size());
    for (size_t i = 0; i < values.size(); i++) narrowed[i] = T(values[i]);
    return narrowed;
}

template <class T> static std::vector<float> wide(const std::vector<T> &values) {
    std::vector<float> widened(values.size());
    for (size_t i = 0; i < values.size(); i++) widened[i] = float(values[i]);
    return widened;
}

// Neighbours have different sizes, so that it is clear which are the larger ones.
static std::vector<float> steps(int count) {
    std::vector<float> values(count);
    for (int i = 0; i < count; i++) values[i] = float((i * 7 + i / 31 * 3) % 13 + 1) * (i % 3 ? 1 : -1);
    return values;
}

// Two of four neighbours become zero.
static std::vector<float> pruned(std::vector<float> values) {
    for (size_t i = 0; i < values.size(); i += 4) {
        int order[4] = {0, 1, 2, 3};
        std::sort(order, order + 4, [&](int a, int b) { return std::abs(values[i + a]) > std::abs(values[i + b]); });
        values[i + order[2]] = values[i + order[3]] = 0;
    }
    return values;
}

static std::vector<float> product(const float *a, const float *b) {
    std::vector<float> c(M * N);
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++)
            for (int l = 0; l < K; l++) c[i * N + j] += a[i * K + l] * b[j * K + l];
    return c;
}

template <class T> static int set(const char *function, Opaque &object, int attribute, T value) {
    return call(function, &handle, &object, attribute, (const void *)&value, sizeof value);
}

template <class T> static T get(const char *function, Opaque &object, int attribute) {
    T value{};
    CHECK(call(function, &handle, &object, attribute, (void *)&value, sizeof value));
    return value;
}

static void dense(Opaque &matrix, int rows, int columns, int type) {
    CHECK(call("cusparseLtDenseDescriptorInit", &handle, &matrix, (int64_t)rows, (int64_t)columns, (int64_t)columns, 16u, type,
               (int)ORDER_ROWS));
}

static void structured(Opaque &matrix, int rows, int columns, int type) {
    CHECK(call("cusparseLtStructuredDescriptorInit", &handle, &matrix, (int64_t)rows, (int64_t)columns, (int64_t)columns, 16u, type,
               (int)ORDER_ROWS, 0));
}

// A product and what belongs to it, as programs have it on their stack.
template <class T> struct Product {
    Opaque a, b, c, d, what, selection, plan;
    void *workspace = nullptr;

    Product() {
        structured(a, M, K, Type<T>::number);
        dense(b, N, K, Type<T>::number);
        dense(c, M, N, Type<T>::result);
        dense(d, M, N, Type<T>::result);
    }
    void batches(int count) {
        const std::pair<Opaque *, int64_t> strides[] = {{&a, M * K}, {&b, N * K}, {&c, M * N}, {&d, M * N}};
        for (const auto &[matrix, stride] : strides) {
            CHECK(set("cusparseLtMatDescSetAttribute", *matrix, NUM_BATCHES, count));
            CHECK(set("cusparseLtMatDescSetAttribute", *matrix, BATCH_STRIDE, stride));
        }
    }
    void describe() {
        CHECK(call("cusparseLtMatmulDescriptorInit", &handle, &what, (int)NO_TRANSPOSE, (int)TRANSPOSE, &a, &b, &c, &d,
                   (int)Type<T>::compute));
    }
    void select() { CHECK(call("cusparseLtMatmulAlgSelectionInit", &handle, &selection, &what, 0)); }
    void make_plan() {
        CHECK(call("cusparseLtMatmulPlanInit", &handle, &plan, &what, &selection));
        size_t bytes = 0;
        CHECK(call("cusparseLtMatmulGetWorkspace", &handle, &plan, &bytes));
        CHECK(cudaMalloc(&workspace, bytes + 16));
    }
    template <class A> int run(const char *function, const A *alpha, float beta, const void *da, const T *db, const void *dc, void *dd) {
        return call(function, &handle, &plan, (const void *)alpha, da, (const void *)db, (const void *)&beta, dc, dd, workspace, &stream, 1);
    }
    // The selection and the product are forgotten, as programs do.
    void destroy() {
        CHECK(call("cusparseLtMatmulPlanDestroy", &plan));
        for (Opaque *matrix : {&a, &b, &c, &d}) CHECK(call("cusparseLtMatDescriptorDestroy", matrix));
        CHECK(cudaFree(workspace));
    }
};

static int checked(Opaque *of, const void *matrix, bool is_product) {
    // NVIDIA's library writes it only where the pattern is wrong.
    int *valid = on_device(std::vector<int>{0});
    if (is_product)
        CHECK(call("cusparseLtSpMMAPruneCheck", &handle, of, matrix, valid, stream));
    else
        CHECK(call("cusparseLtSpMMAPruneCheck2", &handle, of, 1, (int)NO_TRANSPOSE, matrix, valid, stream));
    CHECK(cudaStreamSynchronize(stream));
    const int value = back(valid, 1)[0];
    CHECK(cudaFree(valid));
    return value;
}

template <class T> static void *compressed(Opaque &plan, const T *from) {
    size_t bytes = 0, buffer_bytes = 0;
    CHECK(call("cusparseLtSpMMACompressedSize", &handle, &plan, &bytes, &buffer_bytes));
    void *to, *buffer;
    CHECK(cudaMalloc(&to, bytes));
    CHECK(cudaMalloc(&buffer, buffer_bytes + 16));
    CHECK(call("cusparseLtSpMMACompress", &handle, &plan, (const void *)from, to, buffer, stream));
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaFree(buffer));
    return to;
}

template <class T> static void type(const char *name) {
    typedef typename Type<T>::Result R;
    printf("%s\n", name);
    const auto a = steps(M * K), b = numbers(N * K, 2), c = numbers(M * N, 3);
    T *da = on_device(narrow<T>(a)), *db = on_device(narrow<T>(b)), *pruned_a;
    R *dc = on_device(narrow<R>(c)), *dd = on_device(std::vector<R>(M * N));
    CHECK(cudaMalloc(&pruned_a, M * K * sizeof(T)));

    Product<T> one;
    one.describe();
    printf("pattern before: %d\n", checked(&one.what, da, true));
    CHECK(call("cusparseLtSpMMAPrune", &handle, &one.what, (const void *)da, (void *)pruned_a, (int)TILE, stream));
    CHECK(cudaStreamSynchronize(stream));
    auto tile = wide(back(pruned_a, M * K));
    int changed = 0, left = 0;
    for (int i = 0; i < M * K; i++) changed += tile[i] != 0 && tile[i] != a[i], left += tile[i] != 0;
    printf("pruned by tiles: %d, %d changed, %s\n", checked(&one.what, pruned_a, true), changed,
           left == M * K / 2 ? "half is left" : "WRONG: not half is left");
    CHECK(call("cusparseLtSpMMAPrune2", &handle, &one.a, 1, (int)NO_TRANSPOSE, (const void *)da, (void *)pruned_a, (int)STRIP, stream));
    CHECK(cudaStreamSynchronize(stream));
    printf("pruned by strips: %d\n", checked(&one.a, pruned_a, false));
    const auto kept = pruned(a);
    compare("values", wide(back(pruned_a, M * K)), kept, 0);

    one.select();
    one.make_plan();
    void *packed = compressed(one.plan, pruned_a);
    auto wanted = product(kept.data(), b.data());
    for (int i = 0; i < M * N; i++) wanted[i] = 0.5f * wanted[i] + 3 * c[i];
    const float alpha = 0.5f;
    CHECK(one.run("cusparseLtMatmul", &alpha, 3, packed, db, dc, dd));
    CHECK(cudaStreamSynchronize(stream));
    compare("product", wide(back(dd, M * N)), wanted, 5e-3);

    // Without a plan.
    size_t bytes = 0, buffer_bytes = 0;
    void *again, *buffer;
    CHECK(call("cusparseLtSpMMACompressedSize2", &handle, &one.a, &bytes, &buffer_bytes));
    CHECK(cudaMalloc(&again, bytes));
    CHECK(cudaMalloc(&buffer, buffer_bytes + 16));
    CHECK(call("cusparseLtSpMMACompress2", &handle, &one.a, 1, (int)NO_TRANSPOSE, (const void *)pruned_a, again, buffer, stream));
    CHECK(cudaMemsetAsync(dd, 0, M * N * sizeof(R), stream));
    CHECK(one.run("cusparseLtMatmul", &alpha, 3, again, db, dc, dd));
    CHECK(cudaStreamSynchronize(stream));
    compare("compressed without a plan", wide(back(dd, M * N)), wanted, 5e-3);

    // In a graph, with another C at each launch.
    cudaGraph_t graph;
    cudaGraphExec_t launchable;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    CHECK(one.run("cusparseLtMatmul", &alpha, 3, packed, db, dc, dd));
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&launchable, graph, 0));
    for (int round = 0; round < 2; round++) {
        const auto other = numbers(M * N, 5 + round);
        for (int i = 0; i < M * N; i++) wanted[i] += 3 * (other[i] - (round ? numbers(M * N, 5)[i] : c[i]));
        const auto narrowed = narrow<R>(other);
        CHECK(cudaMemcpyAsync(dc, narrowed.data(), M * N * sizeof(R), cudaMemcpyHostToDevice, stream));
        CHECK(cudaGraphLaunch(launchable, stream));
        CHECK(cudaStreamSynchronize(stream));
        compare("in a graph", wide(back(dd, M * N)), wanted, 5e-3);
    }
    CHECK(cudaGraphExecDestroy(launchable));
    CHECK(cudaGraphDestroy(graph));
    one.destroy();
    for (void *memory : {(void *)da, (void *)db, (void *)pruned_a, (void *)dc, (void *)dd, packed, again, buffer}) CHECK(cudaFree(memory));
}

// Bias and ReLU, of two products at once.
static void epilogue() {
    printf("bias, activation, batches\n");
    const auto a = pruned(steps(2 * M * K)), b = numbers(2 * N * K, 4), bias = numbers(2 * M, 6);
    __half *da = on_device(narrow<__half>(a)), *db = on_device(narrow<__half>(b)), *dbias = on_device(narrow<__half>(bias));
    __half *dd = on_device(std::vector<__half>(2 * M * N));
    Product<__half> two;
    two.batches(2);
    printf("%d batches, %ld apart\n", get<int>("cusparseLtMatDescGetAttribute", two.a, NUM_BATCHES),
           (long)get<int64_t>("cusparseLtMatDescGetAttribute", two.a, BATCH_STRIDE));
    two.describe();
    printf("ReLU is %s at first\n", get<int>("cusparseLtMatmulDescGetAttribute", two.what, RELU) ? "on" : "off");
    CHECK(set("cusparseLtMatmulDescSetAttribute", two.what, RELU, 1));
    CHECK(set("cusparseLtMatmulDescSetAttribute", two.what, RELU_UPPERBOUND, 500.0f));
    CHECK(set("cusparseLtMatmulDescSetAttribute", two.what, BIAS_POINTER, dbias));
    CHECK(set("cusparseLtMatmulDescSetAttribute", two.what, BIAS_STRIDE, (int64_t)M));
    const bool is_set = get<__half *>("cusparseLtMatmulDescGetAttribute", two.what, BIAS_POINTER) == dbias &&
                        get<float>("cusparseLtMatmulDescGetAttribute", two.what, RELU_UPPERBOUND) == 500;
    printf("attributes are %s\n", is_set ? "set" : "WRONG");
    two.select();
    two.make_plan();
    void *packed = compressed(two.plan, da);
    const float alpha = 1;
    CHECK(two.run("cusparseLtMatmul", &alpha, 0, packed, db, dd, dd));
    CHECK(cudaStreamSynchronize(stream));
    std::vector<float> wanted;
    for (int batch = 0; batch < 2; batch++) {
        const auto one = product(&a[batch * M * K], &b[batch * N * K]);
        for (int i = 0; i < M * N; i++) wanted.push_back(std::min(std::max(one[i] + bias[batch * M + i / N], 0.0f), 500.0f));
    }
    compare("batches", wide(back(dd, 2 * M * N)), wanted, 5e-3);
    two.destroy();
    for (void *memory : {(void *)da, (void *)db, (void *)dbias, (void *)dd, packed}) CHECK(cudaFree(memory));
}

// A factor for each row, which is set between the selection and the plan.
static void vector_of_factors() {
    const auto a = pruned(steps(M * K)), b = numbers(N * K, 7);
    std::vector<float> alpha(M);
    for (int i = 0; i < M; i++) alpha[i] = float(i % 4 + 1);
    int8_t *da = on_device(narrow<int8_t>(a)), *db = on_device(narrow<int8_t>(b));
    float *dalpha = on_device(alpha);
    int *dd = on_device(std::vector<int>(M * N));
    Product<int8_t> one;
    one.describe();
    one.select();
    CHECK(set("cusparseLtMatmulDescSetAttribute", one.what, ALPHA_VECTOR_SCALING, 1));
    one.make_plan();
    void *packed = compressed(one.plan, da);
    CHECK(one.run("cusparseLtMatmul", dalpha, 0, packed, db, dd, dd));
    CHECK(cudaStreamSynchronize(stream));
    auto wanted = product(a.data(), b.data());
    for (int i = 0; i < M * N; i++) wanted[i] *= alpha[i / N];
    compare("a factor for each row", wide(back(dd, M * N)), wanted, 0);
    one.destroy();
    for (void *memory : {(void *)da, (void *)db, (void *)dalpha, (void *)dd, packed}) CHECK(cudaFree(memory));
}

// The fastest algorithm, by the plan of the search, and by its number in another one.
static void search() {
    printf("search\n");
    const auto a = pruned(steps(M * K)), b = numbers(N * K, 8);
    __half *da = on_device(narrow<__half>(a)), *db = on_device(narrow<__half>(b));
    __half *dd = on_device(std::vector<__half>(M * N));
    const auto wanted = product(a.data(), b.data());
    const float alpha = 1;
    int found = -1;
    for (int round = 0; round < 2; round++) {
        Product<__half> one;
        one.describe();
        one.select();
        const int count = get<int>("cusparseLtMatmulAlgGetAttribute", one.selection, CONFIG_MAX_ID);
        if (round == 0)
            CHECK(set("cusparseLtMatmulAlgSetAttribute", one.selection, SEARCH_ITERATIONS, 2));
        else
            CHECK(set("cusparseLtMatmulAlgSetAttribute", one.selection, CONFIG_ID, found));
        one.make_plan();
        void *packed = compressed(one.plan, da);
        if (round == 0) {
            CHECK(one.run("cusparseLtMatmulSearch", &alpha, 0, packed, db, dd, dd));
            CHECK(cudaStreamSynchronize(stream));
            compare("the search itself", wide(back(dd, M * N)), wanted, 5e-3);
            found = get<int>("cusparseLtMatmulAlgGetAttribute", one.selection, CONFIG_ID);
            printf("its algorithm is %s\n", found >= 0 && found < count ? "one of them" : "WRONG");
        }
        CHECK(cudaMemsetAsync(dd, 0, M * N * sizeof(__half), stream));
        CHECK(one.run("cusparseLtMatmul", &alpha, 0, packed, db, dd, dd));
        CHECK(cudaStreamSynchronize(stream));
        compare(round ? "by its number" : "by its plan", wide(back(dd, M * N)), wanted, 5e-3);
        one.destroy();
        CHECK(cudaFree(packed));
    }
    for (void *memory : {(void *)da, (void *)db, (void *)dd}) CHECK(cudaFree(memory));
}

// More products than anybody keeps, each with a bias of its own, and the first ones again.
static void many() {
    const int count = 150, again = 20;
    const auto a = pruned(steps(M * K)), b = numbers(N * K, 9);
    auto bias = numbers(M + 16 * count, 10);
    for (float &value : bias) value *= 64;
    __half *da = on_device(narrow<__half>(a)), *db = on_device(narrow<__half>(b)), *dbias = on_device(narrow<__half>(bias));
    __half *dd = on_device(std::vector<__half>(M * N));
    const auto sums = product(a.data(), b.data());
    const float alpha = 1;
    void *packed = nullptr;
    int wrong = 0;
    for (int i = 0; i < count + again; i++) {
        const int offset = 16 * (i % count);
        Product<__half> one;
        one.describe();
        CHECK(set("cusparseLtMatmulDescSetAttribute", one.what, BIAS_POINTER, dbias + offset));
        one.select();
        one.make_plan();
        if (!packed) packed = compressed(one.plan, da);
        CHECK(one.run("cusparseLtMatmul", &alpha, 0, packed, db, dd, dd));
        CHECK(cudaStreamSynchronize(stream));
        const auto got = wide(back(dd, M * N));
        for (int j = 0; j < M * N; j++) wrong += std::abs(got[j] - sums[j] - bias[offset + j / N]) > 4;
        one.destroy();
    }
    printf("%d products: %d elements are wrong\n", count + again, wrong);
    for (void *memory : {(void *)da, (void *)db, (void *)dbias, (void *)dd, packed}) CHECK(cudaFree(memory));
}

static const char *answer(int status) { return status ? "refused" : "TAKEN"; }

static void mistakes() {
    Opaque matrix, product;
    auto init = [&](int rows, unsigned alignment) {
        return call("cusparseLtDenseDescriptorInit", &handle, &matrix, (int64_t)rows, (int64_t)K, (int64_t)K, alignment, (int)R_16F,
                    (int)ORDER_ROWS);
    };
    printf("-1 rows: %s\n", answer(init(-1, 16)));
    printf("an alignment of 3: %s\n", answer(init(M, 3)));
    CHECK(init(M, 16));
    printf("half an attribute: %s\n", answer(set("cusparseLtMatDescSetAttribute", matrix, NUM_BATCHES, (short)1)));
    printf("two dense factors: %s\n", answer(call("cusparseLtMatmulDescriptorInit", &handle, &product, (int)NO_TRANSPOSE, (int)TRANSPOSE,
                                                  &matrix, &matrix, &matrix, &matrix, (int)COMPUTE_32F)));
    CHECK(call("cusparseLtMatDescriptorDestroy", &matrix));
}

int main() {
    load({"libcusparseLt.so.0"});
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(call("cusparseLtInit", &handle));
    int version = -1, major = -1;
    CHECK(call("cusparseLtGetVersion", &handle, &version));
    CHECK(call("cusparseLtGetProperty", 0, &major));
    printf("version %s, major version %d\n", version > 0 ? "known" : "WRONG", major);
    type<__half>("half");
    type<__nv_bfloat16>("bfloat16");
    type<int8_t>("int8");
    epilogue();
    vector_of_factors();
    search();
    many();
    mistakes();
    CHECK(call("cusparseLtDestroy", &handle));
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaDeviceSynchronize());
}
