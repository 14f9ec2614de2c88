// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR BSD-3-Clause

//! Structures of the management library, as in `nvml.h` of CUDA 13.0.

use crate::c_structs;

c_structs! {
    /// `nvmlMemory_t`, in bytes.
    nvmlMemory_t: 24 (Eq, Default) {
        /// All memory.
        total: u64,
        /// Memory that is not in use.
        free: u64,
        /// Memory in use by any process.
        used: u64,
    }

    /// `nvmlProcessInfo_v2_t`.
    nvmlProcessInfo_v2_t: 24 (Eq, Default) {
        /// The process.
        pid: u32,
        /// Padding.
        pad: u32,
        /// Bytes in use.
        used: u64,
        /// The MIG instance.
        gpu_instance: u32,
        /// The compute instance in it.
        compute_instance: u32,
    }

    /// `nvmlFieldValue_t`.
    nvmlFieldValue_t: 40 (Eq, Default) {
        /// `NVML_FI_*`.
        field: u32,
        /// The part of the device that the field describes.
        scope: u32,
        /// Microseconds since 1970.
        time: i64,
        /// Microseconds that the query took.
        latency: i64,
        /// `nvmlValueType_t`.
        kind: u32,
        /// `nvmlReturn_t`.
        result: u32,
        /// The union.
        value: u64,
    }

    /// `nvmlMarginTemperature_v1_t`.
    nvmlMarginTemperature_v1_t: 8 (Eq, Default) {
        /// `NVML_STRUCT_VERSION`.
        version: u32,
        /// Degrees Celsius.
        degrees: i32,
    }
}
