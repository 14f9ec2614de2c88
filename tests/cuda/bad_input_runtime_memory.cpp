// SPDX-License-Identifier: Apache-2.0 OR MIT
// nvcc: -Xcompiler -O0
// The runtime API: memory, arrays, textures.
#include "bad_input_table_runtime_memory.h"

using namespace bad_input;

int main(int count, char **arguments) {
    return main_of(count, arguments, [] { set_up_runtime(runtime_memory_table); }, runtime_is_healthy);
}
