// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files at one moment, to see that somebody has replaced one.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Context, Result};

/// A file at one moment. A socket that was made again is another one, also if it has the same inode.
#[derive(Debug, PartialEq, Eq)]
pub struct Identity(u64, u64, i64, i64);

/// The file at that path.
///
/// Errors: there is none.
pub fn identity(path: &Path) -> Result<Identity> {
    let file = fs::symlink_metadata(path).with_context(|| format!("Cannot find {}", path.display()))?;
    Ok(Identity(file.dev(), file.ino(), file.ctime(), file.ctime_nsec()))
}
