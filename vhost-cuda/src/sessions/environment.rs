// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The environment of workers: what is listed here, and nothing else of the daemon's. That may have secrets of the host, which a
//! worker that was taken over could read. Variables that control CUDA are a program's choice: the guest's library applies those of
//! its own process, and the daemon's must not affect all of its guests.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::process::Command;

/// The names that workers inherit.
const NAMES: [&str; 10] = [
    // The GPUs, the driver's use of the hardware, and what a container runtime has chosen.
    "CUDA_BINARY_LOADER_THREAD_COUNT",
    "CUDA_DEVICE_DEFAULT_PERSISTING_L2_CACHE_PERCENTAGE_LIMIT",
    "CUDA_DEVICE_MAX_CONNECTIONS",
    "CUDA_DEVICE_MAX_COPY_CONNECTIONS",
    "CUDA_DEVICE_ORDER",
    "CUDA_SCALE_LAUNCH_QUEUES",
    "CUDA_VISIBLE_DEVICES",
    "NVIDIA_DRIVER_CAPABILITIES",
    "NVIDIA_VISIBLE_DEVICES",
    // For the report of a panic.
    "RUST_BACKTRACE",
];
/// Prefixes of further names: the folder for compiled code, the emulator's settings, the multi-process service, the dynamic linker,
/// which needs the same folders for the worker as for the daemon, and this program's own settings.
const PREFIXES: [&str; 5] = ["CUDA_CACHE_", "CUDA_EMULATOR_", "CUDA_MPS_", "LD_", "VHOST_CUDA_"];
/// Ends of further names: the settings of a build with a sanitizer.
const SANITIZER: &str = "SAN_OPTIONS";

/// Gives a worker what it inherits of the daemon's environment.
pub fn keep_from(worker: &mut Command) {
    worker.env_clear().envs(std::env::vars_os().filter(|(name, _)| is_inherited(name)));
}

/// Returns whether workers inherit the variable of this name.
fn is_inherited(name: &OsStr) -> bool {
    let name = name.as_bytes();
    NAMES.iter().any(|known| name == known.as_bytes())
        || PREFIXES.iter().any(|prefix| name.starts_with(prefix.as_bytes()))
        || name.ends_with(SANITIZER.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_listed_is_inherited() {
        for name in [
            "PATH",
            "HOME",
            "USER",
            "NOTIFY_SOCKET",
            "AWS_SECRET_ACCESS_KEY",
            "SSH_AUTH_SOCK",
            "CUDA_LAUNCH_BLOCKING",
            "CUDA_MODULE_LOADING",
            "CUDA_FORCE_PTX_JIT",
            "CUDA_LOG_FILE",
            "CUDA_ENABLE_COREDUMP_ON_EXCEPTION",
            "CUDA_VISIBLE_DEVICES_OF_ANOTHER",
            "CUBLAS_WORKSPACE_CONFIG",
            "CUBLASLT_LOG_LEVEL",
            "NCCL_DEBUG",
            "NVIDIA_TF32_OVERRIDE",
        ] {
            assert!(!is_inherited(OsStr::new(name)), "{name}");
        }
        for name in [
            "CUDA_VISIBLE_DEVICES",
            "CUDA_DEVICE_ORDER",
            "CUDA_CACHE_PATH",
            "CUDA_MPS_PIPE_DIRECTORY",
            "CUDA_EMULATOR_DEVICES",
            "NVIDIA_VISIBLE_DEVICES",
            "LD_LIBRARY_PATH",
            "VHOST_CUDA_EMULATOR",
            "ASAN_OPTIONS",
        ] {
            assert!(is_inherited(OsStr::new(name)), "{name}");
        }
    }

    #[test]
    fn the_environment_of_a_worker_is_cleared() {
        let mut worker = Command::new("/usr/bin/env");
        keep_from(&mut worker);
        let output = worker.env("CUDA_VISIBLE_DEVICES", "1").output().unwrap();
        let lines = String::from_utf8(output.stdout).unwrap();
        assert!(lines.lines().any(|line| line == "CUDA_VISIBLE_DEVICES=1"), "{lines}");
        // Every test has these.
        assert!(std::env::var_os("PATH").is_some());
        assert!(!lines.lines().any(|line| line.starts_with("PATH=")), "{lines}");
    }
}
