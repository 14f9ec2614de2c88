// SPDX-License-Identifier: Apache-2.0 OR MIT
// nvcc: -Xcompiler -O0
// The driver API: memory.
#include "bad_input_table_memory.h"

using namespace bad_input;

int main(int count, char **arguments) {
    return main_of(count, arguments, [] { set_up_driver(memory_table); }, driver_is_healthy);
}
