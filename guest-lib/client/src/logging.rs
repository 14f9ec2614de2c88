// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Diagnostics on stderr, only if `VIRTIO_CUDA_LOG` requests them: the program owns its stderr.

use std::sync::Once;

/// The variable: a level (`error` to `trace`), or `1` for `info`.
pub const LOG_VARIABLE: &str = "VIRTIO_CUDA_LOG";

/// Installs the logger, once, if the variable is set.
///
/// Levels: `error` faults that make CUDA unusable; `info` opening of the session; `debug` images, allocations of
/// host memory and unsupported calls; `trace` every call.
pub fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let Ok(value) = std::env::var(LOG_VARIABLE) else { return };
        let filter = if value == "1" || value.is_empty() { "info" } else { value.as_str() };
        // Fails only if this library's own copy of `log` has a logger already, which is then good enough.
        let _ =
            env_logger::Builder::new().parse_filters(filter).target(env_logger::Target::Stderr).try_init();
    });
}
