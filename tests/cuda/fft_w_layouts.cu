// SPDX-License-Identifier: Apache-2.0 OR MIT
// FFTW's interface to cuFFT where NVIDIA's manual says nothing, and FFTW's own does: gaps between elements, strides in any
// order, NULL arrays at planning, threads that share a plan. Also arrays in device memory.

#include "fft_w.h"

#include <thread>

static void gaps() {
    // Two columns of four.
    const int n = 5;
    const auto input = complex_numbers<Z>(n * 4, 1);
    auto in = input;
    std::vector<Z> out(n * 4, Z(7, 7)), columns, wanted(n * 4, Z(7, 7));
    execute_once<double>(planned<double>("plan_many_dft", 1, &n, 2, in.data(), &n, 4, 2, out.data(), &n, 4, 1, FORWARD,
                                         ESTIMATE));
    for (int i = 0; i < 2 * n; i++) columns.push_back(input[i % n * 4 + i / n * 2]);
    columns = transform(columns, {n}, 2, -1);
    for (int i = 0; i < 2 * n; i++) wanted[i % n * 4 + i / n] = columns[i];
    compare("gaps", out, wanted, 1e-12);
}

static void transposed() {
    const int rows = 3, columns = 4;
    const auto input = complex_numbers<Z>(rows * columns, 2);
    auto in = input;
    std::vector<Z> out(rows * columns), wanted(rows * columns);
    const Dimension sizes[] = {{rows, columns, 1}, {columns, 1, rows}};
    execute_once<double>(
        planned<double>("plan_guru_dft", 2, &sizes[0], 0, (const Dimension *)nullptr, in.data(), out.data(), BACKWARD, ESTIMATE));
    const auto whole = transform(input, {rows, columns}, 1, 1);
    for (int i = 0; i < rows * columns; i++) wanted[i % columns * rows + i / columns] = whole[i];
    compare("transposed", out, wanted, 1e-12);
}

static void planned_without_arrays() {
    const int n = 6;
    const Plan plan = planned<double>("plan_dft_1d", n, (Z *)nullptr, (Z *)nullptr, FORWARD, ESTIMATE);
    auto in = complex_numbers<Z>(n, 3);
    std::vector<Z> out(n, Z(7, 7)), before = out;
    use<double>("execute", plan);
    use<double>("execute_dft_r2c", plan, (double *)in.data(), out.data());
    use<double>("execute", (Plan) nullptr);
    compare("nothing", out, before, 0);
    use<double>("execute_dft", plan, in.data(), out.data());
    compare("planned without arrays", out, transform(in, {n}, 1, -1), 1e-12);
    use<double>("destroy_plan", plan);
    use<double>("destroy_plan", (Plan) nullptr);
}

static void threads() {
    // Each thread has its column of one matrix.
    const int n = 64, count = 4, times = 20;
    const auto input = complex_numbers<Z>(n * count, 4);
    auto in = input;
    std::vector<Z> out(n * count), columns, wanted(n * count);
    const Dimension line = {n, count, count};
    const Plan plan =
        planned<double>("plan_guru_dft", 1, &line, 0, (const Dimension *)nullptr, in.data(), out.data(), FORWARD, ESTIMATE);
    std::vector<std::thread> all;
    for (int column = 0; column < count; column++)
        all.emplace_back([&, column] {
            for (int i = 0; i < times; i++) use<double>("execute_dft", plan, in.data() + column, out.data() + column);
        });
    for (auto &thread : all) thread.join();
    use<double>("destroy_plan", plan);
    for (int i = 0; i < n * count; i++) columns.push_back(input[i % n * count + i / n]);
    columns = transform(columns, {n}, count, -1);
    for (int i = 0; i < n * count; i++) wanted[i % n * count + i / n] = columns[i];
    compare("threads", out, wanted, 1e-12);
}

static void device_memory() {
    const int n = 16;
    auto input = complex_numbers<Z>(n, 5);
    const auto wanted = transform(input, {n}, 1, -1);
    Z *in = on_device(input), *out = on_device(std::vector<Z>(2 * n, Z(7, 7)));
    std::vector<Z> host(n), spread(2 * n, Z(7, 7));
    const Plan plan = planned<double>("plan_dft_1d", n, in, out, FORWARD, ESTIMATE);
    use<double>("execute", plan);
    compare("device memory", back(out, n), wanted, 1e-12);
    use<double>("execute_dft", plan, in, host.data());
    compare("from device memory", host, wanted, 1e-12);
    use<double>("execute_dft", plan, input.data(), in);
    compare("to device memory", back(in, n), wanted, 1e-12);
    use<double>("destroy_plan", plan);

    Z *apart = on_device(spread);
    for (int i = 0; i < n; i++) spread[2 * i] = wanted[i];
    execute_once<double>(planned<double>("plan_many_dft", 1, &n, 1, input.data(), &n, 1, n, apart, &n, 2, n, FORWARD, ESTIMATE));
    compare("gaps in device memory", back(apart, 2 * n), spread, 1e-12);
    std::vector<Z> again(n);
    execute_once<double>(planned<double>("plan_many_dft", 1, &n, 1, apart, &n, 2, n, again.data(), &n, 1, n, BACKWARD, ESTIMATE));
    compare("and back", again, times(input, n), 1e-12);

    Z *managed;
    CHECK(cudaMallocManaged(&managed, n * sizeof(Z)));
    for (int i = 0; i < n; i++) managed[i] = input[i];
    execute_once<double>(planned<double>("plan_dft_1d", n, managed, managed, FORWARD, ESTIMATE));
    compare("managed memory", std::vector<Z>(managed, managed + n), wanted, 1e-12);
    CHECK(cudaFree(managed));
    CHECK(cudaFree(apart));
    CHECK(cudaFree(in));
    CHECK(cudaFree(out));
}

int main() {
    load({"libcufftw.so.12", "libcufftw.so.11"});
    gaps();
    transposed();
    planned_without_arrays();
    threads();
    device_memory();
    printf("done\n");
    return 0;
}
