// SPDX-License-Identifier: Apache-2.0 OR MIT
// Shared by the programs of Fourier transforms: transforms by their definition.
#pragma once

#include "library.h"

typedef std::complex<float> C;
typedef std::complex<double> Z;
static const double PI = 3.14159265358979323846;

// A transform of one line, by its definition.
static void line(std::vector<Z> &values, size_t start, size_t step, int n, int sign) {
    std::vector<Z> out(n);
    for (int k = 0; k < n; k++)
        for (int i = 0; i < n; i++) out[k] += values[start + i * step] * std::polar(1.0, sign * 2 * PI * ((long)i * k % n) / n);
    for (int k = 0; k < n; k++) values[start + k * step] = out[k];
}

static std::vector<Z> transform(std::vector<Z> values, std::vector<int> sizes, int batch, int sign) {
    size_t inner = 1, total = values.size() / batch;
    for (size_t d = sizes.size(); d-- > 0;) {
        for (int b = 0; b < batch; b++)
            for (size_t i = 0; i < total; i++)
                if (i / inner % sizes[d] == 0) line(values, b * total + i, inner, sizes[d], sign);
        inner *= sizes[d];
    }
    return values;
}

template <class T, class F> static std::vector<T> convert(const std::vector<F> &from) {
    std::vector<T> to(from.size());
    for (size_t i = 0; i < from.size(); i++) to[i] = T(from[i]);
    return to;
}

template <class T> static std::vector<T> complex_numbers(int count, int seed) {
    const auto re = numbers<double>(count, seed), im = numbers<double>(count, seed + 1);
    std::vector<T> values(count);
    for (int i = 0; i < count; i++) values[i] = T(re[i], im[i]);
    return values;
}
