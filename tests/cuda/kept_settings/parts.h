// SPDX-License-Identifier: Apache-2.0 OR MIT
// The parts of this program. Each makes its objects, and returns how to ask for their settings and how to set them.
#pragma once

#include "answers.h"

struct Part {
    std::function<void(Answers &)> ask;
    std::function<void()> set;
};

Part contexts_part();
Part memory_part();
Part graphs_part();
Part references_part();
Part blas_part();
Part blas_lt_part();
Part dnn_part();
Part fft_part();
Part solver_part();
Part sparse_part();
