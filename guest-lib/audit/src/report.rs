// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Lines on stderr. The program owns its stderr: without `VIRTIO_CUDA_LOG` only what keeps it from working is reported.

use std::io::{self, Write as _};

/// The variable that the other libraries of the guest use for their logs, too.
const LOG_VARIABLE: &str = "VIRTIO_CUDA_LOG";

/// Reports what a person has to change.
pub fn problem(text: std::fmt::Arguments<'_>) {
    if std::env::var_os(LOG_VARIABLE).is_none_or(|level| level != "off") {
        line(text);
    }
}

/// Reports what was done, if the log's level is `debug` or `trace`.
pub fn debug(text: std::fmt::Arguments<'_>) {
    if std::env::var_os(LOG_VARIABLE).is_some_and(|level| level == "debug" || level == "trace") {
        line(text);
    }
}

fn line(text: std::fmt::Arguments<'_>) {
    // A program without a stderr misses it.
    let _ = writeln!(io::stderr(), "vhost-cuda: {text}");
}
