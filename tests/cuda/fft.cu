// SPDX-License-Identifier: Apache-2.0 OR MIT
// cuFFT by its public API: plans of one to three dimensions, in batches and layouts, of all types, in streams and graphs.

#include "fft.h"

// cufft.h
typedef int cufftHandle;
enum { CUFFT_R2C = 0x2a, CUFFT_C2R = 0x2c, CUFFT_C2C = 0x29, CUFFT_D2Z = 0x6a, CUFFT_Z2Z = 0x69 };
static const int CUFFT_FORWARD = -1, CUFFT_INVERSE = 1;

static void complex_to_complex() {
    const int n = 60, batch = 4;
    cufftHandle plan;
    CHECK(call("cufftPlan1d", &plan, n, (int)CUFFT_C2C, batch));
    const auto input = complex_numbers<C>(n * batch, 1);
    C *in = on_device(input), *out = on_device(std::vector<C>(n * batch));
    CHECK(call("cufftExecC2C", plan, in, out, CUFFT_FORWARD));
    compare("1d", back(out, n * batch), convert<C>(transform(convert<Z>(input), {n}, batch, -1)), 1e-5);
    CHECK(call("cufftExecC2C", plan, out, out, CUFFT_INVERSE));
    auto scaled = input;
    for (auto &value : scaled) value *= n;
    compare("1d and back, in place", back(out, n * batch), scaled, 1e-5);
    CHECK(call("cufftDestroy", plan));

    CHECK(call("cufftPlan2d", &plan, 6, 10, (int)CUFFT_Z2Z));
    const auto wide = complex_numbers<Z>(60, 2);
    Z *zin = on_device(wide), *zout = on_device(std::vector<Z>(60));
    CHECK(call("cufftExecZ2Z", plan, zin, zout, CUFFT_INVERSE));
    compare("2d double", back(zout, 60), transform(wide, {6, 10}, 1, 1), 1e-12);
    CHECK(call("cufftDestroy", plan));

    CHECK(call("cufftPlan3d", &plan, 3, 4, 5, (int)CUFFT_Z2Z));
    CHECK(call("cufftExecZ2Z", plan, zin, zout, CUFFT_FORWARD));
    compare("3d double", back(zout, 60), transform(wide, {3, 4, 5}, 1, -1), 1e-12);
    CHECK(call("cufftDestroy", plan));
}

static void real(cudaStream_t stream) {
    const int rows = 6, columns = 9, half = columns / 2 + 1;
    cufftHandle forward, inverse;
    CHECK(call("cufftPlan2d", &forward, rows, columns, (int)CUFFT_R2C));
    CHECK(call("cufftPlan2d", &inverse, rows, columns, (int)CUFFT_C2R));
    CHECK(call("cufftSetStream", forward, stream));
    CHECK(call("cufftSetStream", inverse, stream));
    const auto input = numbers<float>(rows * columns, 3);
    const auto whole = transform(convert<Z>(input), {rows, columns}, 1, -1);
    std::vector<C> wanted;
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < half; c++) wanted.push_back(C(whole[r * columns + c]));
    float *in = on_device(input), *again = on_device(std::vector<float>(rows * columns));
    C *out = on_device(std::vector<C>(rows * half));
    CHECK(call("cufftExecR2C", forward, in, out));
    CHECK(cudaStreamSynchronize(stream));
    compare("real 2d", back(out, rows * half), wanted, 1e-5);
    CHECK(call("cufftExecC2R", inverse, out, again));
    CHECK(cudaStreamSynchronize(stream));
    auto scaled = input;
    for (auto &value : scaled) value *= rows * columns;
    compare("real 2d and back", back(again, rows * columns), scaled, 1e-5);

    // In place: lines of real numbers are padded.
    std::vector<float> padded(rows * half * 2);
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < columns; c++) padded[r * half * 2 + c] = input[r * columns + c];
    float *both = on_device(padded);
    CHECK(call("cufftExecR2C", forward, both, (C *)both));
    CHECK(cudaStreamSynchronize(stream));
    compare("real 2d in place", back((C *)both, rows * half), wanted, 1e-5);
    CHECK(call("cufftDestroy", forward));
    CHECK(call("cufftDestroy", inverse));
}

static void layouts() {
    // Columns of a matrix: elements are 3 apart, batches 1.
    int n = 8, embed = 8;
    const int batch = 3;
    cufftHandle plan;
    size_t work;
    CHECK(call("cufftCreate", &plan));
    CHECK(call("cufftMakePlanMany", plan, 1, &n, &embed, batch, 1, &embed, 1, n, (int)CUFFT_D2Z, batch, &work));
    const auto input = numbers<double>(n * batch, 4);
    std::vector<Z> lines(n * batch), wanted;
    for (int b = 0; b < batch; b++)
        for (int i = 0; i < n; i++) lines[b * n + i] = input[i * batch + b];
    lines = transform(lines, {n}, batch, -1);
    for (int b = 0; b < batch; b++)
        for (int i = 0; i < n; i++) wanted.push_back(i <= n / 2 ? lines[b * n + i] : Z(7, 7));
    double *in = on_device(input);
    Z *out = on_device(std::vector<Z>(n * batch, Z(7, 7)));
    CHECK(call("cufftExecD2Z", plan, in, out));
    compare("columns", back(out, n * batch), wanted, 1e-12);
    CHECK(call("cufftDestroy", plan));
}

static void graphs(cudaStream_t stream) {
    const int n = 16;
    cufftHandle plan;
    CHECK(call("cufftPlan1d", &plan, n, (int)CUFFT_C2C, 1));
    CHECK(call("cufftSetStream", plan, stream));
    C *memory = on_device(complex_numbers<C>(n, 5));
    const auto before = back(memory, n);
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    CHECK(call("cufftExecC2C", plan, memory, memory, CUFFT_FORWARD));
    CHECK(call("cufftExecC2C", plan, memory, memory, CUFFT_INVERSE));
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < 2; i++) CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaStreamSynchronize(stream));
    auto wanted = before;
    for (auto &value : wanted) value *= n * n;
    compare("graph", back(memory, n), wanted, 1e-5);
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    CHECK(call("cufftDestroy", plan));
}

static void mistakes() {
    cufftHandle plan;
    printf("no such type: %d\n", call("cufftPlan1d", &plan, 8, 5, 1) != 0);
    printf("a size of 0: %d\n", call("cufftPlan1d", &plan, 0, (int)CUFFT_C2C, 1) != 0);
    printf("no such plan: %d\n", call("cufftExecC2C", (cufftHandle)12345, (C *)nullptr, (C *)nullptr, CUFFT_FORWARD) != 0);
}

int main() {
    load({"libcufft.so.12", "libcufft.so.11"});
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    complex_to_complex();
    real(stream);
    layouts();
    graphs(stream);
    mistakes();
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaDeviceSynchronize());
    printf("done\n");
    return 0;
}
