// SPDX-License-Identifier: Apache-2.0 OR MIT
// cuDNN's backend API: an execution that is captured, convolutions and their gradients as graphs of one operation, a graph of several
// operations with a number in host memory, mistakes, and arrays that are shorter than the program says. With the argument "kept" a plan
// whose descriptors have been destroyed, which is executed after SIGTERM, also in a graph.

#include "dnn_backend.h"

#include <csignal>
#include <cstring>
#include <cuda_fp16.h>
#include <sys/mman.h>
#include <unistd.h>

static Handle convolution() {
    Handle made = create(CONVOLUTION);
    CHECK(set<int>(made, 100, DATA_TYPE, {DATA_FLOAT}));
    CHECK(set<int>(made, 101, CONVOLUTION_MODE, {1}));
    CHECK(set<int64_t>(made, 102, INT64, {1, 1}));
    CHECK(set<int64_t>(made, 103, INT64, {2, 1}));
    CHECK(set<int64_t>(made, 104, INT64, {1, 1}));
    CHECK(set<int64_t>(made, 105, INT64, {1, 1}));
    CHECK(set<int64_t>(made, 106, INT64, {2}));
    return finalized(made);
}

static const int N = 2, C = 8, H = 6, W = 5, K = 16, R = 3, P = 3, Q = 5;

// Calls body with the places of input, weight and output for each product, channels side by side.
template <class F> static void products(F body) {
    for (int n = 0; n < N; n++)
        for (int y = 0; y < P; y++)
            for (int x = 0; x < Q; x++)
                for (int r = 0; r < R; r++)
                    for (int s = 0; s < R; s++) {
                        const int i = 2 * y - 1 + r, j = x - 1 + s;
                        if (i < 0 || i >= H || j < 0 || j >= W) continue;
                        for (int k = 0; k < K; k++)
                            for (int c = 0; c < C; c++) body(((n * H + i) * W + j) * C + c, ((k * R + r) * R + s) * C + c, ((n * P + y) * Q + x) * K + k);
                    }
}

static const auto hx = numbers(N *C *H *W, 1), hw = numbers(K *C *R *R, 2), hy = numbers(N *P *Q *K, 3);

static void single() {
    __half *x = on_device(narrow<__half>(hx)), *w = on_device(narrow<__half>(hw)), *y = on_device(narrow<__half>(hy));
    std::vector<float> wanted_x(hx.size()), wanted_w(hw.size()), wanted_y(hy.size());
    products([&](int i, int j, int o) {
        wanted_y[o] += hx[i] * hw[j];
        wanted_x[i] += hw[j] * hy[o];
        wanted_w[j] += hx[i] * hy[o];
    });
    struct {
        const char *name;
        Kind kind;
        int alpha, descriptor, x, w, y, result;
        const std::vector<float> &wanted;
    } cases[] = {
        {"forward", FORWARD, 700, 702, 704, 703, 705, 2, wanted_y},
        {"gradient of the input", DATA_GRADIENT, 706, 708, 710, 709, 711, 0, wanted_x},
        {"gradient of the filter", FILTER_GRADIENT, 712, 714, 716, 715, 717, 1, wanted_w},
    };
    for (const auto &one : cases) {
        Handle operation = create(one.kind);
        refer(operation, one.descriptor, convolution());
        refer(operation, one.x, tensor('x', {N, C, H, W}, DATA_HALF));
        refer(operation, one.w, tensor('w', {K, C, R, R}, DATA_HALF));
        refer(operation, one.y, tensor('y', {N, K, P, Q}, DATA_HALF));
        CHECK(set<float>(operation, one.alpha, FLOAT, {1}));
        CHECK(set<float>(operation, one.alpha + 1, FLOAT, {0}));
        void *places[] = {x, w, y};
        __half *result = on_device(std::vector<__half>(one.wanted.size()));
        places[one.result] = result;
        execute(plan({finalized(operation)}), {'x', 'w', 'y'}, {places[0], places[1], places[2]});
        compare(one.name, wide(result, one.wanted.size()), one.wanted, 1e-3);
    }
}

// relu(conv(x, w) * scale + bias), with a scale in host memory.
static void several() {
    const auto bias = numbers(K, 5);
    std::vector<float> wanted(hy.size());
    products([&](int i, int j, int o) { wanted[o] += hx[i] * hw[j] / 2; });
    for (size_t o = 0; o < wanted.size(); o++) wanted[o] = std::max(0.f, wanted[o] + bias[o % K]);
    Handle product = tensor(1, {N, K, P, Q}, DATA_FLOAT, true), scaled = tensor(2, {N, K, P, Q}, DATA_FLOAT, true);
    Handle shifted = tensor(3, {N, K, P, Q}, DATA_FLOAT, true), operation = create(FORWARD);
    refer(operation, 702, convolution());
    refer(operation, 704, tensor('x', {N, C, H, W}, DATA_HALF));
    refer(operation, 703, tensor('w', {K, C, R, R}, DATA_HALF));
    refer(operation, 705, product);
    CHECK(set<float>(operation, 700, FLOAT, {1}));
    CHECK(set<float>(operation, 701, FLOAT, {0}));
    Handle times = pointwise(MULTIPLY, {{751, product}, {752, tensor('s', {1, 1, 1, 1}, DATA_FLOAT, false, true)}, {753, scaled}});
    Handle plus = pointwise(ADD, {{751, scaled}, {752, tensor('b', {1, K, 1, 1}, DATA_HALF)}, {753, shifted}});
    Handle relu = pointwise(RELU, {{751, shifted}, {753, tensor('y', {N, K, P, Q}, DATA_HALF)}});
    Handle made = plan({finalized(operation), times, plus, relu});
    __half *x = on_device(narrow<__half>(hx)), *w = on_device(narrow<__half>(hw)), *b = on_device(narrow<__half>(bias)), *y = on_device(narrow<__half>(hy));
    float scale = 0.5;
    execute(made, {'x', 'w', 's', 'b', 'y'}, {x, w, &scale, b, y});
    compare("four operations", wide(y, wanted.size()), wanted, 1e-3);
    CHECK(call("cudnnBackendDestroyDescriptor", made));
}

static Handle forward_operation() {
    Handle operation = create(FORWARD);
    refer(operation, 702, convolution());
    refer(operation, 704, tensor('x', {N, C, H, W}, DATA_HALF));
    refer(operation, 703, tensor('w', {K, C, R, R}, DATA_HALF));
    refer(operation, 705, tensor('y', {N, K, P, Q}, DATA_HALF));
    CHECK(set<float>(operation, 700, FLOAT, {1}));
    CHECK(set<float>(operation, 701, FLOAT, {0}));
    return finalized(operation);
}

static Handle forward_plan() { return plan({forward_operation()}); }

// The first execution of the process, in a capture that forbids its thread to allocate memory.
static void captured() {
    __half *x = on_device(narrow<__half>(hx)), *w = on_device(narrow<__half>(hw)), *y = on_device(std::vector<__half>(hy.size()));
    std::vector<float> wanted(hy.size());
    products([&](int i, int j, int o) { wanted[o] += hx[i] * hw[j]; });
    const Handle made = forward_plan();
    void *workspace = workspace_of(made);
    cudaGraph_t graph;
    cudaGraphExec_t ready;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    queue(made, {'x', 'w', 'y'}, {x, w, y}, workspace);
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&ready, graph));
    CHECK(cudaGraphLaunch(ready, stream));
    CHECK(cudaStreamSynchronize(stream));
    compare("captured", wide(y, wanted.size()), wanted, 1e-3);
    CHECK(cudaGraphExecDestroy(ready));
    CHECK(cudaGraphDestroy(graph));
}

// A graph of CUDA's that the library makes, and gives other places.
static void populated() {
    // CUDNN_BEHAVIOR_NOTE_SUPPORTS_CUDA_GRAPH_NATIVE_API
    const Handle made = find_plan({forward_operation()}, 3);
    if (!made) {
        printf("populated: no engine makes graphs\n");
        return;
    }
    __half *x = on_device(narrow<__half>(hx)), *w = on_device(narrow<__half>(hw));
    __half *first = on_device(std::vector<__half>(hy.size())), *second = on_device(std::vector<__half>(hy.size()));
    std::vector<float> wanted(hy.size());
    products([&](int i, int j, int o) { wanted[o] += hx[i] * hw[j]; });
    void *workspace = workspace_of(made);
    cudaGraph_t graph, outer;
    cudaGraphNode_t node;
    cudaGraphExec_t ready, nested;
    cudaGraphExecUpdateResultInfo info;
    CHECK(cudaGraphCreate(&graph, 0));
    const Handle packed = pack({'x', 'w', 'y'}, {x, w, first}, workspace);
    CHECK(call("cudnnBackendPopulateCudaGraph", handle, made, packed, graph));
    destroy(packed);
    size_t nodes = 0;
    CHECK(cudaGraphGetNodes(graph, nullptr, &nodes));
    CHECK(cudaGraphInstantiate(&ready, graph, 0));
    CHECK(cudaGraphLaunch(ready, stream));
    CHECK(cudaStreamSynchronize(stream));
    compare(nodes ? "populated" : "no nodes", wide(first, wanted.size()), wanted, 1e-3);
    const Handle other = pack({'x', 'w', 'y'}, {x, w, second}, workspace);
    CHECK(call("cudnnBackendUpdateCudaGraph", handle, made, other, graph));
    destroy(other);
    CHECK(cudaGraphExecUpdate(ready, graph, &info));
    CHECK(cudaMemsetAsync(first, 0, hy.size() * sizeof *first, stream));
    CHECK(cudaGraphLaunch(ready, stream));
    CHECK(cudaStreamSynchronize(stream));
    compare("with other places", wide(second, wanted.size()), wanted, 1e-3);
    compare("the former ones", wide(first, wanted.size()), std::vector<float>(hy.size()), 0);
    // As a part of another graph.
    CHECK(cudaGraphCreate(&outer, 0));
    CHECK(cudaGraphAddChildGraphNode(&node, outer, nullptr, 0, graph));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaGraphInstantiate(&nested, outer, 0));
    CHECK(cudaMemsetAsync(second, 0, hy.size() * sizeof *second, stream));
    CHECK(cudaGraphLaunch(nested, stream));
    CHECK(cudaStreamSynchronize(stream));
    compare("in another graph", wide(second, wanted.size()), wanted, 1e-3);
    CHECK(cudaGraphExecDestroy(nested));
    CHECK(cudaGraphExecDestroy(ready));
    CHECK(cudaGraphDestroy(outer));
}

static volatile std::sig_atomic_t is_ended;

static void kept() {
    __half *x = on_device(narrow<__half>(hx)), *w = on_device(narrow<__half>(hw)), *y = on_device(std::vector<__half>(hy.size()));
    std::vector<float> wanted(hy.size());
    products([&](int i, int j, int o) { wanted[o] += hx[i] * hw[j]; });
    const Handle made = forward_plan();
    void *workspace = workspace_of(made);
    __half *captured = on_device(std::vector<__half>(hy.size()));
    const Handle packed = pack({'x', 'w', 'y'}, {x, w, captured}, workspace);
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    CHECK(call("cudnnBackendExecute", handle, made, packed));
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    const auto all = created;
    for (Handle other : all)
        if (other != made) destroy(other);
    std::signal(SIGTERM, [](int) { is_ended = 1; });
    printf("begun\n");
    fflush(stdout);
    while (!is_ended) usleep(1000);
    execute(made, {'x', 'w', 'y'}, {x, w, y});
    compare("kept", wide(y, wanted.size()), wanted, 1e-3);
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaStreamSynchronize(stream));
    compare("in a graph", wide(captured, wanted.size()), wanted, 1e-3);
}

static void mistakes() {
    const auto refused = [](const char *name, int status) { printf("%s: %s\n", name, status != 0 ? "refused" : "accepted"); };
    Handle open = create(TENSOR), none = nullptr, operation = create(FORWARD), done = tensor('x', {N, C, H, W}, DATA_HALF);
    refused("a tensor of nothing", call("cudnnBackendFinalize", open));
    refused("a change of what is finalised", set<int64_t>(done, 906, INT64, {5}));
    refused("a kind that is none", call("cudnnBackendCreateDescriptor", 999, &none));
    refer(operation, 702, convolution());
    refer(operation, 704, done);
    refer(operation, 703, tensor('w', {K, C, R, R}, DATA_HALF));
    refer(operation, 705, tensor('y', {N, K, P, Q + 1}, DATA_HALF));
    refused("sizes that do not fit", call("cudnnBackendFinalize", operation));
    Handle early = create(FORWARD);
    refer(early, 702, convolution());
    refused("a reference to what is not finalised", set<Handle>(early, 704, DESCRIPTOR, {open}));
    refer(early, 703, tensor('w', {K, C, R, R}, DATA_HALF));
    refer(early, 705, tensor('y', {N, K, P, Q}, DATA_HALF));
    refused("an operation on what is not finalised", call("cudnnBackendFinalize", early));
}

// A program may request more elements than there are, and have room for these only: the page behind them is protected.
static void room() {
    const long page = sysconf(_SC_PAGESIZE);
    char *pages = (char *)mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED || mprotect(pages + page, page, PROT_NONE) != 0) {
        printf("no memory\n");
        exit(1);
    }
    const Sizes dims = {2, 3, 4, 5};
    Handle made = tensor(1, dims, DATA_FLOAT);
    int64_t *place = (int64_t *)(pages + page) - dims.size(), count = 0;
    for (int64_t *counted : {&count, (int64_t *)nullptr}) {
        memset(place, 0, dims.size() * sizeof *place);
        CHECK(call("cudnnBackendGetAttribute", made, 902, (int)INT64, (int64_t)8, counted, (void *)place));
        if (Sizes(place, place + dims.size()) != dims || count != (int64_t)dims.size()) {
            printf("the elements of an attribute are wrong\n");
            exit(1);
        }
    }
    CHECK(call("cudnnBackendDestroyDescriptor", made));
    munmap(pages, 2 * page);
}

int main(int argc, char **) {
    load({"libcudnn.so.9"});
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(call("cudnnCreate", &handle));
    CHECK(call("cudnnSetStream", handle, stream));
    if (argc > 1) {
        kept();
        return 0;
    }
    captured();
    single();
    several();
    populated();
    mistakes();
    room();
    CHECK(call("cudnnDestroy", handle));
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaDeviceSynchronize());
    printf("done\n");
    return 0;
}
