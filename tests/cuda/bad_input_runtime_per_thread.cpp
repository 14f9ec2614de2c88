// SPDX-License-Identifier: Apache-2.0 OR MIT
// nvcc: -Xcompiler -O0
// The runtime API: the names that mean the default stream of the thread.
#define CUDA_API_PER_THREAD_DEFAULT_STREAM
#include "bad_input_table_runtime.h"
#include "bad_input_table_runtime_graphs.h"
#include "bad_input_table_runtime_memory.h"

using namespace bad_input;

static void table() {
    endings = {"_ptsz", "_ptds"};
    runtime_table();
    runtime_memory_table();
    runtime_graphs_table();
}

int main(int count, char **arguments) {
    return main_of(count, arguments, [] { set_up_runtime(table); }, runtime_is_healthy);
}
