// SPDX-License-Identifier: Apache-2.0 OR MIT
// nvcc: -Xcompiler -O0
// Every entry point of the driver API once, where the state is wrong: `before_init`, `no_context` (the thread has no
// current context), `destroyed` (another thread has destroyed it), or `after_error` (a kernel has written where
// nothing is); `none` of that.
#define BAD_INPUT_AS_IT_IS
#include "bad_input_broken.h"
#include "bad_input_table_code.h"
#include "bad_input_table_graphs.h"
#include "bad_input_table_memory.h"
#include "bad_input_table_textures.h"

#include <thread>

using namespace bad_input;

static CUcontext gone;

static void tables() {
    code_table();
    memory_table();
    graphs_table();
    textures_table();
}

static void before_init() {
    host = room;
    tables();
}

static void no_context() {
    set_up_driver(tables);
    CALL(cuCtxSetCurrent, nullptr);
}

static bool has_no_context() {
    CUcontext current = Handle<CUcontext>::good;
    return CALL(cuCtxGetCurrent, &current) == CUDA_SUCCESS && current == nullptr;
}

static void destroyed() {
    set_up_driver(tables);
    CALL(cuCtxCreate, &gone, nullptr, 0, 0);
    std::thread([] { CALL(cuCtxDestroy, gone); }).join();
}

static bool is_still_destroyed() {
    CUcontext current = nullptr;
    return CALL(cuCtxGetCurrent, &current) != CUDA_SUCCESS || current == gone;
}

static void after_error() {
    set_up_driver(tables);
    CUmodule module = nullptr;
    CUfunction store = nullptr;
    CALL(cuModuleLoadData, &module, kBadPtx);
    CALL(cuModuleGetFunction, &store, module, "store");
    CALL(cuLaunchKernel, store, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr);
    expect_broken(CALL(cuCtxSynchronize));
}

static bool is_still_broken() {
    return CALL(cuCtxSynchronize) != CUDA_SUCCESS;
}

int main(int count, char **arguments) {
    const std::string state = count > 1 ? arguments[1] : "";
    if (state == "before_init") {
        return main_of(count - 1, arguments + 1, before_init, [] { return true; });
    }
    if (state == "no_context") {
        return main_of(count - 1, arguments + 1, no_context, has_no_context);
    }
    if (state == "destroyed") {
        return main_of(count - 1, arguments + 1, destroyed, is_still_destroyed);
    }
    if (state == "none") {
        return main_of(count - 1, arguments + 1, [] { set_up_driver(tables); }, driver_is_healthy);
    }
    return main_of(count - 1, arguments + 1, after_error, is_still_broken);
}
