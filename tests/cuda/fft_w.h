// SPDX-License-Identifier: Apache-2.0 OR MIT
// Shared by the programs of FFTW's interface to cuFFT: functions by their names without `fftw_` or `fftwf_`.
#pragma once

#include "fft.h"

#include <string>

// cufftw.h
typedef void *Plan;
static const int FORWARD = -1, BACKWARD = 1;
static const unsigned ESTIMATE = 1;
struct Dimension {
    int n, is, os;
};
struct Dimension64 {
    ptrdiff_t n, is, os;
};

// A function of FFTW for numbers of type T, which returns an R.
template <class T, class R = void, class... A> static R use(const char *name, A... arguments) {
    const std::string whole = std::string(sizeof(T) == 4 ? "fftwf_" : "fftw_") + name;
    auto *function = (R(*)(A...))dlsym(library, whole.c_str());
    if (!function) {
        printf("no %s\n", whole.c_str());
        exit(1);
    }
    return function(arguments...);
}

// A plan, which must be one.
template <class T, class... A> static Plan planned(const char *name, A... arguments) {
    const Plan plan = use<T, Plan>(name, arguments...);
    if (!plan) {
        printf("%s: no plan\n", name);
        exit(1);
    }
    return plan;
}

template <class T> static void execute_once(Plan plan) {
    use<T>("execute", plan);
    use<T>("destroy_plan", plan);
}

// The half of a transform of real numbers that is stored.
template <class T> static std::vector<std::complex<T>> half(const std::vector<Z> &whole, int columns) {
    std::vector<std::complex<T>> wanted;
    for (size_t i = 0; i < whole.size(); i++)
        if ((int)(i % columns) <= columns / 2) wanted.push_back(std::complex<T>(whole[i]));
    return wanted;
}

template <class T> static std::vector<T> times(std::vector<T> values, double factor) {
    for (auto &value : values) value *= factor;
    return values;
}

// Elements that are `step` apart.
template <class T> static std::vector<T> every(const std::vector<T> &values, size_t start, size_t step, int count) {
    std::vector<T> found;
    for (int i = 0; i < count; i++) found.push_back(values[start + i * step]);
    return found;
}

template <class T> static double tolerance() { return sizeof(T) == 4 ? 1e-5 : 1e-12; }
