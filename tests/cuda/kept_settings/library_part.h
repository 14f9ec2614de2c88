// SPDX-License-Identifier: Apache-2.0 OR MIT
// Shared by the parts that use a library of NVIDIA's.
#pragma once

#include "../library.h"

#include "parts.h"

// Static, because each part has a library of its own.
static bool is_there(const char *name) { return dlsym(library, name) != nullptr; }

// The result of functions that a version of the library does not have.
enum { MISSING = -1 };

// The value that a getter writes behind these arguments.
template <class T, class... A> static void get(Answers &answers, const char *getter, const char *what, A... arguments) {
    T value{};
    const int result = is_there(getter) ? call(getter, arguments..., &value) : MISSING;
    answers.add(getter, what, result, value);
}

// As `get`, for a stream.
static inline void get_stream(Answers &answers, const char *getter, Handle handle, cudaStream_t stream) {
    cudaStream_t found = nullptr;
    const int result = call(getter, handle, &found);
    answers.add(getter, "", result, found == stream);
}

// Not every version of a library, nor the emulator's, has every setting: the answers tell.
template <class... A> static void set(const char *setter, A... arguments) {
    if (is_there(setter)) (void)call(setter, arguments...);
}
