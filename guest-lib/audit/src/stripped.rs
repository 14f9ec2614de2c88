// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Recognises a static CUDA runtime in an object whose symbols were removed, by the code of its public functions.

use std::fs::File;
use std::sync::LazyLock;

use cuda_runtime_signatures::{Found, InFile, Nearest, Release, Sections};

use crate::runtime::{Function, Major, Runtime};

/// With the value `symbols`, objects without symbols are left alone.
const VARIABLE: &str = "VHOST_CUDA_AUDIT";

static RELEASES: LazyLock<Vec<Release>> = LazyLock::new(cuda_runtime_signatures::all);

/// Returns the static runtime in a file.
///
/// # Errors
///
/// Fails with the nearest release if the runtime is not one of those that are known.
pub fn find(file: &File) -> Result<Option<Runtime>, Nearest<'static>> {
    if std::env::var_os(VARIABLE).is_some_and(|value| value == "symbols") {
        return Ok(None);
    }
    // Nearly all objects end here, before the releases are read.
    let Some(sections) = Sections::of(file) else { return Ok(None) };
    Ok(sections.find(&RELEASES)?.and_then(runtime))
}

fn runtime(there: InFile) -> Option<Runtime> {
    let InFile { found: Found { release, places }, address, code, writable } = there;
    let (start, last) = (*places.first()?, release.functions.last()?);
    let end = places.last()? + last.body.size();
    let function = |(function, place): (&cuda_runtime_signatures::Function, &usize)| Function {
        name: function.name.clone(),
        offset: place - start,
        size: function.body.size(),
    };
    Some(Runtime {
        major: release.major().and_then(Major::of),
        text: address + start as u64..address + end as u64,
        code: code.get(start..end)?.to_vec(),
        functions: release.functions.iter().zip(&places).map(function).collect(),
        writable,
    })
}
