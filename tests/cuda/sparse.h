// SPDX-License-Identifier: Apache-2.0 OR MIT
// Shared by the programs that use cuSPARSE with several types of elements.
#pragma once

#include "library.h"

// cusparse.h, library_types.h
enum { INDEX_32I = 2, INDEX_64I = 3, ORDER_COLUMNS = 1, ORDER_ROWS = 2, POINTER_DEVICE = 1 };

static Handle handle;
static cudaStream_t stream;

template <class T> struct Type;
template <> struct Type<float> { static const bool is_complex = false; static const char letter = 'S'; static const int number = 0; };
template <> struct Type<double> { static const bool is_complex = false; static const char letter = 'D'; static const int number = 1; };
template <> struct Type<std::complex<float>> { static const bool is_complex = true; static const char letter = 'C'; static const int number = 4; };
template <> struct Type<std::complex<double>> { static const bool is_complex = true; static const char letter = 'Z'; static const int number = 5; };

static void with_imaginary(float &, int) {}
static void with_imaginary(double &, int) {}
template <class R> static void with_imaginary(std::complex<R> &value, int i) { value.imag((R)(i % 4 - 1)); }

// A dense matrix by columns, two of three elements of which are zero, and one row of which is empty.
template <class T> static std::vector<T> example(int rows, int columns, int seed) {
    std::vector<T> values = numbers<T>(rows * columns, seed);
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < columns; j++) {
            T &value = values[j * rows + i];
            if ((i + j + seed) % 3 || i == 2 || value == T(0))
                value = 0;
            else
                with_imaginary(value, i + j);
        }
    return values;
}

// Compressed rows, or the columns of the transposed matrix.
template <class T> struct Compressed {
    std::vector<int> starts, indices;
    std::vector<T> values;
    int count() const { return (int)values.size(); }
};

template <class T> static Compressed<T> compress(const std::vector<T> &dense, int rows, int columns, int base, bool by_columns = false) {
    Compressed<T> made;
    for (int line = 0; line < (by_columns ? columns : rows); line++) {
        made.starts.push_back(made.count() + base);
        for (int other = 0; other < (by_columns ? rows : columns); other++) {
            const T value = by_columns ? dense[line * rows + other] : dense[other * rows + line];
            if (value != T(0)) made.indices.push_back(other + base), made.values.push_back(value);
        }
    }
    made.starts.push_back(made.count() + base);
    return made;
}

static std::vector<int> rows_of(const std::vector<int> &starts, int base) {
    std::vector<int> rows;
    for (size_t i = 0; i + 1 < starts.size(); i++) rows.insert(rows.end(), starts[i + 1] - starts[i], (int)i + base);
    return rows;
}

template <class T> static T *room(size_t count) {
    T *memory;
    CHECK(cudaMalloc(&memory, (count + 1) * sizeof(T)));
    return memory;
}

static void tell(const char *what, bool is_right) { printf("%s: %s\n", what, is_right ? "right" : "WRONG"); }

// Arrays in device memory.
template <class T> struct Arrays {
    int *starts, *indices;
    T *values;
    explicit Arrays(const Compressed<T> &from) : starts(on_device(from.starts)), indices(on_device(from.indices)), values(on_device(from.values)) {}
    Arrays(size_t starts, size_t count) : starts(room<int>(starts)), indices(room<int>(count)), values(room<T>(count)) {}
    void free() const { for (void *memory : {(void *)starts, (void *)indices, (void *)values}) CHECK(cudaFree(memory)); }
    // Waits, and compares all three.
    bool are(const Compressed<T> &wanted) const {
        CHECK(cudaStreamSynchronize(stream));
        return back(starts, wanted.starts.size()) == wanted.starts && back(indices, wanted.indices.size()) == wanted.indices &&
               back(values, wanted.values.size()) == wanted.values;
    }
};

template <class T> static Handle described(const Arrays<T> &arrays, int rows, int columns, long count) {
    Handle made;
    CHECK(call("cusparseCreateCsr", &made, (long)rows, (long)columns, count, arrays.starts, arrays.indices, arrays.values, (int)INDEX_32I,
               (int)INDEX_32I, 0, (int)Type<T>::number));
    return made;
}

static float conjugate(float value) { return value; }
static double conjugate(double value) { return value; }
template <class R> static std::complex<R> conjugate(std::complex<R> value) { return std::conj(value); }
