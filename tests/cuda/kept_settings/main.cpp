// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Each setting that a call of the driver or a function of NVIDIA's libraries returns: it is asked for before and after the session gets another
// worker. The argument is a part. Prints each getter with its answers, then "begun", and waits for SIGTERM.

#include "../check_driver.h"

#include "driver.h"

const char KEPT_CODE[] = R"(
.version 8.0
.target sm_80
.address_size 64
.visible .global .texref texture;
.visible .global .texref other;
.visible .global .surfref surface;
.visible .entry store(.param .u64 to, .param .u32 value)
{
    .reg .b32 %r<2>;
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [to];
    ld.param.u32 %r1, [value];
    cvta.to.global.u64 %rd1, %rd1;
    st.global.u32 [%rd1], %r1;
    ret;
}
)";

int main(int argc, char **argv) {
    REQUIRE(argc == 2);
    const std::string name = argv[1];
    const struct {
        const char *name;
        Part (*part)();
    } parts[] = {{"contexts", contexts_part}, {"memory", memory_part}, {"graphs", graphs_part}, {"references", references_part}, {"blas", blas_part},
                 {"blas_lt", blas_lt_part},   {"dnn", dnn_part},       {"fft", fft_part},       {"solver", solver_part},         {"sparse", sparse_part}};
    CHECK_DRIVER(cuInit(0));
    for (const auto &one : parts) {
        if (name != one.name) continue;
        const Part part = one.part();
        return keep_settings(part.ask, part.set);
    }
    std::fprintf(stderr, "no part \"%s\"\n", name.c_str());
    return 2;
}
