// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR BSD-3-Clause

//! Contexts, and the device resources from which green contexts are created.

use crate::c_structs;

c_structs! {
    /// `CUctxCreateParams`.
    CUctxCreateParams: 24 {
        /// The address of an array of `CUexecAffinityParam`.
        affinities: usize,
        /// Length of the array.
        affinity_count: i32,
        /// Padding.
        pad: u32,
        /// The address of a `CUctxCigParam`.
        cig: usize,
    }

    /// `CUexecAffinityParam`.
    CUexecAffinityParam: 8 (Eq) {
        /// `CU_EXEC_AFFINITY_TYPE_SM_COUNT`.
        kind: u32,
        /// Multiprocessors.
        sm_count: u32,
    }

    /// `CU_DEV_SM_RESOURCE_GROUP_PARAMS`, since CUDA 13.1.
    CUdevSmResourceGroupParams: 64 {
        /// The driver's words.
        words: [u32; 16],
    }

    /// `CUdevResource`.
    CUdevResource: 144 (Eq, Hash) {
        /// `CU_DEV_RESOURCE_TYPE_*`.
        kind: u32,
        /// Opaque contents of the driver.
        inside: [u32; 23],
        /// Multiprocessors.
        sm_count: u32,
        /// Minimum number of multiprocessors per partition.
        min_sm_count: u32,
        /// The number of multiprocessors per partition is a multiple of this.
        sm_alignment: u32,
        /// Since CUDA 13.1: `CU_DEV_SM_RESOURCE_GROUP_*` bits.
        sm_flags: u32,
        /// The rest of the union.
        rest: [u32; 8],
    }
}
