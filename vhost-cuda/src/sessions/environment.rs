// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The environment of workers. Variables that control CUDA are a program's choice. The guest's library applies those
//! of its own process, and the daemon's variables must not affect all of its guests.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::process::Command;

/// Prefixes of the names that NVIDIA's driver and libraries read.
const STEERING: [&str; 12] = [
    "CUBLAS", "CUDA_", "CUDNN_", "CUFFT", "CUFILE_", "CURAND", "CUSOLVER", "CUSPARSE", "CUTENSOR", "NCCL_",
    "NVIDIA_", "NVSHMEM_",
];
/// The operator's variables among them: the GPUs, the folder for compiled code, the multi-process service, the
/// driver's use of the hardware, and the emulator's settings.
const OPERATORS: [&str; 12] = [
    "CUDA_BINARY_LOADER_THREAD_COUNT",
    "CUDA_CACHE_",
    "CUDA_DEVICE_DEFAULT_PERSISTING_L2_CACHE_PERCENTAGE_LIMIT",
    "CUDA_DEVICE_MAX_CONNECTIONS",
    "CUDA_DEVICE_MAX_COPY_CONNECTIONS",
    "CUDA_DEVICE_ORDER",
    "CUDA_EMULATOR_",
    "CUDA_MPS_",
    "CUDA_SCALE_LAUNCH_QUEUES",
    "CUDA_VISIBLE_DEVICES",
    "NVIDIA_DRIVER_CAPABILITIES",
    "NVIDIA_VISIBLE_DEVICES",
];

/// Removes variables of the daemon's environment that the worker must not inherit.
pub fn keep_from(worker: &mut Command) {
    for (name, _) in std::env::vars_os().filter(|(name, _)| !is_inherited(name)) {
        worker.env_remove(name);
    }
}

/// Returns whether workers inherit the variable of this name.
fn is_inherited(name: &OsStr) -> bool {
    let begins = |with: &str| name.as_bytes().starts_with(with.as_bytes());
    OPERATORS.iter().any(|with| begins(with)) || !STEERING.iter().any(|with| begins(with))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_steers_programs_stays_with_the_daemon() {
        for name in [
            "CUDA_LAUNCH_BLOCKING",
            "CUDA_MODULE_LOADING",
            "CUDA_FORCE_PTX_JIT",
            "CUDA_LOG_FILE",
            "CUDA_ENABLE_COREDUMP_ON_EXCEPTION",
            "CUBLAS_WORKSPACE_CONFIG",
            "CUBLASLT_LOG_LEVEL",
            "NCCL_DEBUG",
            "NVIDIA_TF32_OVERRIDE",
        ] {
            assert!(!is_inherited(OsStr::new(name)), "{name}");
        }
        for name in [
            "PATH",
            "HOME",
            "CUDA_VISIBLE_DEVICES",
            "CUDA_DEVICE_ORDER",
            "CUDA_CACHE_PATH",
            "CUDA_MPS_PIPE_DIRECTORY",
            "CUDA_EMULATOR_DEVICES",
            "NVIDIA_VISIBLE_DEVICES",
            "VHOST_CUDA_EMULATOR",
        ] {
            assert!(is_inherited(OsStr::new(name)), "{name}");
        }
    }
}
