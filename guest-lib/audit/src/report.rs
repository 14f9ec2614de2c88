// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Messages on stderr. The program owns its stderr: without `VIRTIO_CUDA_LOG`, only problems that keep it from working
//! are reported.

use std::io::{self, Write as _};

/// The environment variable that also controls the logs of the other guest libraries.
const LOG_VARIABLE: &str = "VIRTIO_CUDA_LOG";

/// Reports a problem that the user has to fix.
pub fn problem(text: std::fmt::Arguments<'_>) {
    if std::env::var_os(LOG_VARIABLE).is_none_or(|level| level != "off") {
        line(text);
    }
}

/// Reports an action, if the log's level is `debug` or `trace`.
pub fn debug(text: std::fmt::Arguments<'_>) {
    if std::env::var_os(LOG_VARIABLE).is_some_and(|level| level == "debug" || level == "trace") {
        line(text);
    }
}

fn line(text: std::fmt::Arguments<'_>) {
    // A failed write is ignored: the program may have no stderr.
    let _ = writeln!(io::stderr(), "vhost-cuda: {text}");
}
