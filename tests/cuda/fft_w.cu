// SPDX-License-Identifier: Apache-2.0 OR MIT
// FFTW's interface to cuFFT by its public API, with arrays in host memory: plans of one to three dimensions, of complex and
// of real numbers, in batches and layouts, in place and with other arrays.

#include "fft_w.h"

template <class T> static void complex_numbers_of() {
    typedef std::complex<T> N;
    const auto input = complex_numbers<N>(60, 1);
    const auto wide = convert<Z>(input);
    auto in = input;
    std::vector<N> out(60);
    execute_once<T>(planned<T>("plan_dft_1d", 60, in.data(), out.data(), FORWARD, ESTIMATE));
    compare("1d", out, convert<N>(transform(wide, {60}, 1, -1)), tolerance<T>());
    execute_once<T>(planned<T>("plan_dft_1d", 60, out.data(), out.data(), BACKWARD, ESTIMATE));
    compare("1d and back, in place", out, times(input, 60), tolerance<T>());
    execute_once<T>(planned<T>("plan_dft_2d", 6, 10, in.data(), out.data(), BACKWARD, ESTIMATE));
    compare("2d", out, convert<N>(transform(wide, {6, 10}, 1, 1)), tolerance<T>());
    execute_once<T>(planned<T>("plan_dft_3d", 3, 4, 5, in.data(), out.data(), FORWARD, ESTIMATE));
    compare("3d", out, convert<N>(transform(wide, {3, 4, 5}, 1, -1)), tolerance<T>());
    const int sizes[] = {5, 3, 4};
    execute_once<T>(planned<T>("plan_dft", 3, &sizes[0], in.data(), out.data(), BACKWARD, ESTIMATE));
    compare("3d by a list", out, convert<N>(transform(wide, {5, 3, 4}, 1, 1)), tolerance<T>());
    compare("the input stays", in, input, 0);
}

template <class T> static void real_numbers_of() {
    typedef std::complex<T> N;
    const int rows = 6, columns = 9, stored = columns / 2 + 1, sizes[] = {3, 2, columns};
    const auto input = numbers<T>(rows * columns, 3);
    const auto wide = convert<Z>(input);
    const auto wanted = half<T>(transform(wide, {rows, columns}, 1, -1), columns);
    auto in = input;
    std::vector<N> out(rows * stored);
    std::vector<T> again(rows * columns);
    execute_once<T>(planned<T>("plan_dft_r2c_2d", rows, columns, in.data(), out.data(), ESTIMATE));
    compare("real 2d", out, wanted, tolerance<T>());
    execute_once<T>(planned<T>("plan_dft_c2r_2d", rows, columns, out.data(), again.data(), ESTIMATE));
    compare("real 2d and back", again, times(input, rows * columns), tolerance<T>());

    execute_once<T>(planned<T>("plan_dft_r2c_1d", columns, in.data(), out.data(), ESTIMATE));
    const std::vector<Z> first(wide.begin(), wide.begin() + columns);
    compare("real 1d", every(out, 0, 1, stored), half<T>(transform(first, {columns}, 1, -1), columns), tolerance<T>());
    execute_once<T>(planned<T>("plan_dft_c2r_1d", columns, out.data(), again.data(), ESTIMATE));
    compare("real 1d and back", every(again, 0, 1, columns), times(every(input, 0, 1, columns), columns), tolerance<T>());

    execute_once<T>(planned<T>("plan_dft_r2c", 3, &sizes[0], in.data(), out.data(), ESTIMATE));
    compare("real 3d", out, half<T>(transform(wide, {3, 2, columns}, 1, -1), columns), tolerance<T>());
    execute_once<T>(planned<T>("plan_dft_c2r_3d", 3, 2, columns, out.data(), again.data(), ESTIMATE));
    compare("real 3d and back", again, times(input, rows * columns), tolerance<T>());

    // In place: rows of real numbers are padded.
    std::vector<T> both(rows * stored * 2);
    for (int i = 0; i < rows * columns; i++) both[i / columns * stored * 2 + i % columns] = input[i];
    execute_once<T>(planned<T>("plan_dft_r2c_2d", rows, columns, both.data(), (N *)both.data(), ESTIMATE));
    compare("real 2d in place", std::vector<N>((N *)both.data(), (N *)both.data() + rows * stored), wanted, tolerance<T>());
    execute_once<T>(planned<T>("plan_dft_c2r_2d", rows, columns, (N *)both.data(), both.data(), ESTIMATE));
    std::vector<T> unpadded;
    for (int i = 0; i < rows * columns; i++) unpadded.push_back(both[i / columns * stored * 2 + i % columns]);
    compare("and back", unpadded, times(input, rows * columns), tolerance<T>());
}

template <class T> static void many_of() {
    typedef std::complex<T> N;
    // Columns of a matrix: elements are 3 apart, transforms 1.
    const int n = 8, batch = 3;
    const auto input = complex_numbers<N>(n * batch, 4);
    auto in = input;
    std::vector<N> out(n * batch);
    execute_once<T>(planned<T>("plan_many_dft", 1, &n, batch, in.data(), (const int *)nullptr, batch, 1, out.data(),
                               (const int *)nullptr, 1, n, FORWARD, ESTIMATE));
    std::vector<Z> columns;
    for (int b = 0; b < batch; b++)
        for (int i = 0; i < n; i++) columns.push_back(input[i * batch + b]);
    compare("columns", out, convert<N>(transform(columns, {n}, batch, -1)), tolerance<T>());
    execute_once<T>(planned<T>("plan_many_dft", 1, &n, batch, in.data(), &n, batch, 1, in.data(), &n, batch, 1, BACKWARD,
                               ESTIMATE));
    const auto wanted = convert<N>(transform(columns, {n}, batch, 1));
    std::vector<N> back;
    for (int b = 0; b < batch; b++)
        for (int i = 0; i < n; i++) back.push_back(in[i * batch + b]);
    compare("columns in place", back, wanted, tolerance<T>());

    // Parts of two larger matrices.
    const int sizes[] = {3, 4}, embed[] = {5, 6};
    const auto large = complex_numbers<N>(60, 5);
    in = large;
    std::vector<Z> parts;
    for (int i = 0; i < 60; i++)
        if (i % 30 / 6 < 3 && i % 6 < 4) parts.push_back(large[i]);
    execute_once<T>(planned<T>("plan_many_dft", 2, &sizes[0], 2, in.data(), &embed[0], 1, 30, out.data(), &sizes[0], 1, 12,
                               FORWARD, ESTIMATE));
    compare("parts of matrices", out, convert<N>(transform(parts, {3, 4}, 2, -1)), tolerance<T>());

    const auto real = numbers<T>(n * batch, 6);
    auto lines = real;
    std::vector<T> again(n * batch);
    execute_once<T>(planned<T>("plan_many_dft_r2c", 1, &n, batch, lines.data(), (const int *)nullptr, 1, n, out.data(),
                               (const int *)nullptr, 1, n / 2 + 1, ESTIMATE));
    compare("real lines", every(out, 0, 1, batch * (n / 2 + 1)), half<T>(transform(convert<Z>(real), {n}, batch, -1), n),
            tolerance<T>());
    execute_once<T>(planned<T>("plan_many_dft_c2r", 1, &n, batch, out.data(), (const int *)nullptr, 1, n / 2 + 1, again.data(),
                               (const int *)nullptr, 1, n, ESTIMATE));
    compare("real lines and back", again, times(real, n), tolerance<T>());
}

template <class T, class D> static void guru_of(const char *complex, const char *forward, const char *inverse) {
    typedef std::complex<T> N;
    const auto input = complex_numbers<N>(48, 7);
    auto in = input;
    std::vector<N> out(48);
    const D sizes[] = {{4, 6, 6}, {6, 1, 1}}, two = {2, 24, 24};
    execute_once<T>(planned<T>(complex, 2, &sizes[0], 1, &two, in.data(), out.data(), FORWARD, ESTIMATE));
    compare(complex, out, convert<N>(transform(convert<Z>(input), {4, 6}, 2, -1)), tolerance<T>());

    const int n = 10, batch = 3, stored = n / 2 + 1;
    const auto real = numbers<T>(n * batch, 8);
    auto lines = real;
    const D line = {n, 1, 1}, there = {batch, n, stored}, back = {batch, stored, n};
    execute_once<T>(planned<T>(forward, 1, &line, 1, &there, lines.data(), out.data(), ESTIMATE));
    compare(forward, every(out, 0, 1, batch * stored), half<T>(transform(convert<Z>(real), {n}, batch, -1), n), tolerance<T>());
    execute_once<T>(planned<T>(inverse, 1, &line, 1, &back, out.data(), lines.data(), ESTIMATE));
    compare(inverse, lines, times(real, n), tolerance<T>());
}

template <class T> static void new_arrays_of() {
    typedef std::complex<T> N;
    const int n = 12, rows = 4, stored = n / 2 + 1;
    std::vector<N> planned_in(n), planned_out(n), out(n);
    const Plan first = planned<T>("plan_dft_1d", n, planned_in.data(), planned_out.data(), FORWARD, ESTIMATE);
    const Plan second = planned<T>("plan_dft_2d", 3, 4, planned_in.data(), planned_out.data(), BACKWARD, ESTIMATE);
    for (int seed = 9; seed < 12; seed++) {
        auto in = complex_numbers<N>(n, seed);
        use<T>("execute_dft", first, in.data(), out.data());
        compare("other arrays, first plan", out, convert<N>(transform(convert<Z>(in), {n}, 1, -1)), tolerance<T>());
        use<T>("execute_dft", second, in.data(), out.data());
        compare("other arrays, second plan", out, convert<N>(transform(convert<Z>(in), {3, 4}, 1, 1)), tolerance<T>());
    }
    use<T>("destroy_plan", first);
    // Into the same memory.
    const auto last = complex_numbers<N>(n, 12);
    std::copy(last.begin(), last.end(), planned_in.begin());
    use<T>("execute", second);
    compare("after the end of the other plan", planned_out, convert<N>(transform(convert<Z>(planned_in), {3, 4}, 1, 1)),
            tolerance<T>());
    use<T>("destroy_plan", second);

    std::vector<T> real(rows * n), again(rows * n);
    std::vector<N> half_planned(rows * stored), half_out(rows * stored);
    const Plan forward = planned<T>("plan_dft_r2c_2d", rows, n, real.data(), half_planned.data(), ESTIMATE);
    const Plan inverse = planned<T>("plan_dft_c2r_2d", rows, n, half_planned.data(), real.data(), ESTIMATE);
    auto input = numbers<T>(rows * n, 13);
    use<T>("execute_dft_r2c", forward, input.data(), half_out.data());
    compare("other arrays, real", half_out, half<T>(transform(convert<Z>(input), {rows, n}, 1, -1), n), tolerance<T>());
    use<T>("execute_dft_c2r", inverse, half_out.data(), again.data());
    compare("and back", again, times(input, rows * n), tolerance<T>());
    use<T>("destroy_plan", forward);
    use<T>("destroy_plan", inverse);
}

template <class T> static void not_supported() {
    typedef std::complex<T> N;
    std::vector<N> in(64), out(64);
    const int sizes[] = {2, 2, 2, 2};
    const Dimension line = {4, 1, 1}, batches[] = {{2, 4, 4}, {2, 8, 8}};
    const Plan four = use<T, Plan>("plan_dft", 4, &sizes[0], in.data(), out.data(), FORWARD, ESTIMATE);
    const Plan empty = use<T, Plan>("plan_dft_1d", 0, in.data(), out.data(), FORWARD, ESTIMATE);
    const Plan grid = use<T, Plan>("plan_guru_dft", 1, &line, 2, &batches[0], in.data(), out.data(), FORWARD, ESTIMATE);
    printf("four dimensions, no elements, two dimensions of batches: %d %d %d\n", !four, !empty, !grid);
}

template <class T> static void other_functions() {
    typedef std::complex<T> N;
    N *memory = (N *)use<T, void *>("malloc", 8 * sizeof(N));
    for (int i = 0; i < 8; i++) memory[i] = N(i, -i);
    const auto input = std::vector<N>(memory, memory + 8);
    use<T>("set_timelimit", 1.0);
    const Plan plan = planned<T>("plan_dft_1d", 8, memory, memory, FORWARD, ESTIMATE);
    double add, multiply, both;
    use<T, double>("cost", plan);
    use<T>("flops", plan, &add, &multiply, &both);
    execute_once<T>(plan);
    const auto wanted = convert<N>(transform(convert<Z>(input), {8}, 1, -1));
    compare("memory of FFTW", std::vector<N>(memory, memory + 8), wanted, tolerance<T>());
    use<T>("free", (void *)memory);
    use<T>("cleanup");
}

template <class T> static void all() {
    complex_numbers_of<T>();
    real_numbers_of<T>();
    many_of<T>();
    guru_of<T, Dimension>("plan_guru_dft", "plan_guru_dft_r2c", "plan_guru_dft_c2r");
    guru_of<T, Dimension64>("plan_guru64_dft", "plan_guru64_dft_r2c", "plan_guru64_dft_c2r");
    new_arrays_of<T>();
    not_supported<T>();
    other_functions<T>();
}

int main() {
    load({"libcufftw.so.12", "libcufftw.so.11"});
    printf("double\n");
    all<double>();
    printf("float\n");
    all<float>();
    printf("done\n");
    return 0;
}
