// SPDX-License-Identifier: Apache-2.0 OR MIT
// nvcc: -Xcompiler -O0
// The driver API: the names that mean the default stream of the thread.
#define CUDA_API_PER_THREAD_DEFAULT_STREAM
#include "bad_input_table_code.h"
#include "bad_input_table_graphs.h"
#include "bad_input_table_memory.h"
#include "bad_input_table_textures.h"

using namespace bad_input;

static void table() {
    endings = {"_ptsz", "_ptds"};
    code_table();
    memory_table();
    graphs_table();
    textures_table();
}

int main(int count, char **arguments) {
    return main_of(count, arguments, [] { set_up_driver(table); }, driver_is_healthy);
}
