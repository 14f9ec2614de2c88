// SPDX-License-Identifier: Apache-2.0 OR MIT
// Shared by the parts that use the driver's API.
#pragma once

// cuda.h: no warnings.
#define CUDA_ENABLE_DEPRECATED
#include "../check_driver.h"

#include "parts.h"

// A module or library with a function `store`, textures `texture` and `other`, and a surface `surface`.
extern const char KEPT_CODE[];
