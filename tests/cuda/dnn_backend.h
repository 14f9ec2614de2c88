// SPDX-License-Identifier: Apache-2.0 OR MIT
// Shared by the programs that use cuDNN's backend API.
#pragma once

#include "library.h"

#include <algorithm>
#include <cstdint>

// cudnn_graph.h
enum Type { HANDLE = 0, DATA_TYPE = 1, BOOLEAN = 2, INT64 = 3, FLOAT = 4, DOUBLE = 5, POINTER = 6, CONVOLUTION_MODE = 7, HEURISTIC = 8, POINTWISE_MODE = 14, DESCRIPTOR = 15, REDUCTION_OPERATOR = 18, BEHAVIOUR = 19, NORM_MODE = 27, NORM_PHASE = 28 };
enum Kind { POINTWISE = 0, CONVOLUTION = 1, ENGINE = 2, ENGINE_CONFIG = 3, HEURISTICS = 4, PLAN = 5, FORWARD = 10, FILTER_GRADIENT = 11, DATA_GRADIENT = 12, OPERATION_POINTWISE = 13, GRAPH = 15, PACK = 16, TENSOR = 17, PRODUCT = 18, OPERATION_PRODUCT = 19, REDUCTION = 21, OPERATION_REDUCTION = 22, NORM_FORWARD = 29, NORM_BACKWARD = 30, RESHAPE = 31 };
enum { DATA_FLOAT = 0, DATA_HALF = 2, DATA_INT32 = 4, DATA_BFLOAT16 = 9, DATA_BOOLEAN = 11 };
enum { ADD = 0, MULTIPLY = 1, DIVIDE = 6, SUBTRACT = 9, EXP = 13, LOG = 15, IDENTITY = 21, RELU = 100, GREATER_EQUAL = 303, LESS = 304, AND = 400, INDEX = 501, SELECT = 601 };
enum { SUM = 0, LARGEST = 3 };

typedef std::vector<int64_t> Sizes;

static Handle handle;
static cudaStream_t stream;
// Descriptors that are not destroyed.
static std::vector<Handle> created;

static Handle create(Kind kind) {
    Handle made;
    CHECK(call("cudnnBackendCreateDescriptor", (int)kind, &made));
    created.push_back(made);
    return made;
}

static void destroy(Handle descriptor) {
    created.erase(std::find(created.begin(), created.end(), descriptor));
    CHECK(call("cudnnBackendDestroyDescriptor", descriptor));
}

template <class T> static int set(Handle descriptor, int name, Type type, const std::vector<T> &values) {
    return call("cudnnBackendSetAttribute", descriptor, name, (int)type, (int64_t)values.size(), (const void *)values.data());
}

static void refer(Handle descriptor, int name, Handle other) { CHECK(set<Handle>(descriptor, name, DESCRIPTOR, {other})); }

static Handle finalized(Handle descriptor) {
    CHECK(call("cudnnBackendFinalize", descriptor));
    return descriptor;
}

// A tensor; of one number in host memory by value; ragged with offsets.
static Handle tensor(int64_t uid, const Sizes &dims, const Sizes &strides, int type, bool is_virtual = false, bool by_value = false, Handle offsets = nullptr) {
    Handle made = create(TENSOR);
    CHECK(set<int>(made, 901, DATA_TYPE, {type}));
    CHECK(set(made, 902, INT64, dims));
    CHECK(set(made, 903, INT64, strides));
    CHECK(set<int64_t>(made, 906, INT64, {uid}));
    CHECK(set<int64_t>(made, 900, INT64, {by_value ? 4 : 16}));
    CHECK(set<char>(made, 907, BOOLEAN, {is_virtual}));
    CHECK(set<char>(made, 908, BOOLEAN, {by_value}));
    if (offsets) refer(made, 913, offsets);
    return finalized(made);
}

// A tensor of N, C, H, W whose channels lie side by side.
static Handle tensor(int64_t uid, const Sizes &dims, int type, bool is_virtual = false, bool by_value = false) {
    return tensor(uid, dims, {dims[1] * dims[2] * dims[3], 1, dims[1] * dims[3], dims[1]}, type, is_virtual, by_value);
}

static Handle pointwise(int mode, std::initializer_list<std::pair<int, Handle>> tensors, int precision = DATA_FLOAT, int64_t axis = -1) {
    Handle what = create(POINTWISE), made = create(OPERATION_POINTWISE);
    CHECK(set<int>(what, 0, POINTWISE_MODE, {mode}));
    CHECK(set<int>(what, 1, DATA_TYPE, {precision}));
    if (axis >= 0) CHECK(set<int64_t>(what, 9, INT64, {axis}));
    refer(made, 750, finalized(what));
    for (const auto &[name, tensor] : tensors) refer(made, name, tensor);
    return finalized(made);
}

// Whether the engine of a configuration has a note on its behaviour.
static bool has_note(Handle config, int note) {
    Handle engine = create(ENGINE);
    int64_t count = 0;
    int notes[16];
    CHECK(call("cudnnBackendGetAttribute", config, 300, (int)DESCRIPTOR, (int64_t)1, &count, (void *)&engine));
    CHECK(call("cudnnBackendGetAttribute", engine, 1305, (int)BEHAVIOUR, (int64_t)16, &count, (void *)notes));
    destroy(engine);
    return std::find(notes, notes + std::min<int64_t>(count, 16), note) != notes + std::min<int64_t>(count, 16);
}

// The first plan of the graph of these operations, if the library has one, by an engine with this note.
static Handle find_plan(const std::vector<Handle> &operations, int note = -1) {
    Handle graph = create(GRAPH), found = nullptr;
    CHECK(set<Handle>(graph, 800, HANDLE, {handle}));
    CHECK(set(graph, 801, DESCRIPTOR, operations));
    if (call("cudnnBackendFinalize", graph) != 0) return nullptr;
    // CUDNN_HEUR_MODE_A and CUDNN_HEUR_MODE_FALLBACK
    for (int mode : {3, 2}) {
        Handle heuristics = create(HEURISTICS);
        refer(heuristics, 201, graph);
        CHECK(set<int>(heuristics, 200, HEURISTIC, {mode}));
        int64_t count = 0;
        if (call("cudnnBackendFinalize", heuristics) == 0) CHECK(call("cudnnBackendGetAttribute", heuristics, 202, (int)DESCRIPTOR, (int64_t)0, &count, (void *)nullptr));
        // One more than there are, as programs request that do not ask for the count.
        std::vector<Handle> configs(count ? count + 1 : 0);
        for (auto &config : configs) config = create(ENGINE_CONFIG);
        if (count) CHECK(call("cudnnBackendGetAttribute", heuristics, 202, (int)DESCRIPTOR, count + 1, &count, (void *)configs.data()));
        destroy(heuristics);
        for (int64_t i = 0; i < count && !found; i++) {
            if (note >= 0 && !has_note(configs[i], note)) continue;
            Handle made = create(PLAN);
            CHECK(set<Handle>(made, 400, HANDLE, {handle}));
            refer(made, 401, configs[i]);
            if (call("cudnnBackendFinalize", made) == 0)
                found = made;
            else
                destroy(made);
        }
        if (found) break;
    }
    destroy(graph);
    return found;
}

static Handle plan(const std::vector<Handle> &operations) {
    Handle made = find_plan(operations);
    if (!made) {
        printf("no plan\n");
        exit(1);
    }
    return made;
}

static Handle pack(const std::vector<int64_t> &uids, const std::vector<void *> &addresses, void *workspace) {
    Handle made = create(PACK);
    CHECK(set(made, 1000, INT64, uids));
    CHECK(set(made, 1001, POINTER, addresses));
    CHECK(set<void *>(made, 1003, POINTER, {workspace}));
    return finalized(made);
}

// Memory for what a plan stores between its kernels.
static void *workspace_of(Handle plan) {
    int64_t bytes = 0, count = 0;
    CHECK(call("cudnnBackendGetAttribute", plan, 402, (int)INT64, (int64_t)1, &count, (void *)&bytes));
    void *workspace = nullptr;
    if (bytes) CHECK(cudaMalloc(&workspace, bytes));
    return workspace;
}

// Puts a plan's work into the stream.
static void queue(Handle plan, const std::vector<int64_t> &uids, const std::vector<void *> &addresses, void *workspace) {
    Handle made = pack(uids, addresses, workspace);
    CHECK(call("cudnnBackendExecute", handle, plan, made));
    destroy(made);
}

static void execute(Handle plan, const std::vector<int64_t> &uids, const std::vector<void *> &addresses) {
    queue(plan, uids, addresses, workspace_of(plan));
    CHECK(cudaStreamSynchronize(stream));
}

// Values of a 16-bit type.
template <class T> static std::vector<T> narrow(const std::vector<float> &values) {
    std::vector<T> made;
    for (float value : values) made.push_back((T)value);
    return made;
}

template <class T> static std::vector<float> wide(const T *memory, size_t count) {
    std::vector<float> made;
    for (T value : back(memory, count)) made.push_back((float)value);
    return made;
}
