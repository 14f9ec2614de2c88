// SPDX-License-Identifier: Apache-2.0 OR MIT
// nvcc: -Xcompiler -O0
// The runtime API after a kernel has written where nothing is.
#define BAD_INPUT_AS_IT_IS
#include "bad_input_broken.h"
#include "bad_input_table_runtime.h"
#include "bad_input_table_runtime_graphs.h"
#include "bad_input_table_runtime_memory.h"

using namespace bad_input;

static void table() {
    runtime_table();
    runtime_memory_table();
    runtime_graphs_table();
    cudaLibrary_t library = nullptr;
    cudaKernel_t store = nullptr;
    cudaLibraryLoadData(&library, kBadPtx, nullptr, nullptr, 0, nullptr, nullptr, 0);
    cudaLibraryGetKernel(&store, library, "store");
    cudaLaunchKernel(store, one, one, nullptr, 0, nullptr);
    expect_broken(cudaDeviceSynchronize());
    cudaGetLastError();
}

int main(int count, char **arguments) {
    return main_of(count, arguments, [] { set_up_runtime(table); }, [] { return cudaDeviceSynchronize() != cudaSuccess; });
}
