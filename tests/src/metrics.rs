// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The figures that a daemon serves, as a client reads them.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;

/// Time limit for an answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// The answer for a path at the socket, with its head.
pub fn page(socket: &Path, path: &str) -> Result<String> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    write!(stream, "GET {path} HTTP/1.0\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// The values of a metric's lines.
pub fn values(page: &str, metric: &str) -> Vec<f64> {
    let is_metric = |line: &&str| {
        line.strip_prefix(metric).is_some_and(|rest| rest.starts_with('{') || rest.starts_with(' '))
    };
    let value = |line: &str| line.rsplit_once(' ')?.1.parse().ok();
    page.lines().filter(is_metric).filter_map(value).collect()
}
