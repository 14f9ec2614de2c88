// SPDX-License-Identifier: Apache-2.0 OR MIT
// What breaks a context: a kernel `store` that writes where nothing is.
#pragma once

#include <unistd.h>

namespace bad_input {

static const char kBadPtx[] = R"(
.version 7.0
.target sm_52
.address_size 64
.visible .entry store() {
    .reg .b64 %rd<2>;
    .reg .b32 %r<2>;
    mov.u64 %rd1, 16;
    mov.u32 %r1, 1;
    st.global.u32 [%rd1], %r1;
    ret;
}
)";

// The state is the wrong one, so that no answer would count, unless the context says that it is broken.
inline void expect_broken(int code) {
    constexpr int kIllegalAddress = 700;
    if (code != kIllegalAddress) {
        _exit(3);
    }
}

}  // namespace bad_input
