// SPDX-License-Identifier: Apache-2.0 OR MIT
// As check.h, for the driver API.
#pragma once

#include "check.h"

#include <cuda.h>

#define CHECK_DRIVER(call)                                                                                \
    do {                                                                                                  \
        const CUresult check_result = (call);                                                             \
        if (check_result != CUDA_SUCCESS) {                                                               \
            const char *check_name = nullptr;                                                             \
            cuGetErrorName(check_result, &check_name);                                                    \
            std::fprintf(stderr, "%s:%d: %s: result %d (%s)\n", __FILE__, __LINE__, #call,                \
                         (int)check_result, check_name ? check_name : "unknown");                         \
            std::exit(1);                                                                                 \
        }                                                                                                 \
    } while (0)

// The primary context of device 0, current in this thread.
inline CUcontext use_primary_context() {
    CUdevice device;
    CUcontext context;
    CHECK_DRIVER(cuInit(0));
    CHECK_DRIVER(cuDeviceGet(&device, 0));
    CHECK_DRIVER(cuDevicePrimaryCtxRetain(&context, device));
    CHECK_DRIVER(cuCtxSetCurrent(context));
    return context;
}
