// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Searches for the host's libraries.

use std::collections::HashMap;
use std::ffi::c_void;
use std::path::{Path, PathBuf};

use cuda_library_rows::{Body, Kind, Library};
use libloading::os::unix::{Library as File, RTLD_LAZY, RTLD_LOCAL};
use log::{debug, info, warn};

use super::handles::Handles;
use super::invoke::call_with_integers;
use super::refusal::Refusal;
use crate::gpu::CudaError;

/// Folders of distributions and of NVIDIA's packages that the dynamic linker may not know.
const USUAL_FOLDERS: [&str; 3] =
    ["/usr/local/cuda/lib64", "/usr/local/cuda/targets/x86_64-linux/lib", "/opt/cuda/lib64"];

/// A library that is loaded and never unloaded.
#[derive(Debug)]
pub struct Loaded {
    /// Its functions.
    pub rows: &'static Library,
    /// Their addresses. 0 stands for functions that the host's release does not have.
    addresses: Vec<usize>,
    /// Their numbers, by name.
    by_name: HashMap<&'static str, usize>,
    /// The handles that it has given out.
    pub handles: Handles,
}

impl Loaded {
    /// Finds a library, if possible of that major version: first in `folders`, then where the dynamic linker
    /// searches, then in the usual folders. Returns `None` and logs it if there is no such library.
    pub fn find(rows: &'static Library, folders: &[PathBuf], major: u32) -> Option<Self> {
        let found = Self::find_in(rows, folders, major);
        let found = found.or_else(|| Self::of_names(rows, &ordered(rows, major)));
        let found = found.or_else(|| Self::find_in(rows, &USUAL_FOLDERS.map(PathBuf::from), major));
        if found.is_none() {
            warn!(
                "a guest program wants {}, which this host does not have: install NVIDIA's package of it, or name its \
                 folder with --libraries",
                rows.sonames.join(" or ")
            );
        }
        found
    }

    /// Finds a library in some folders.
    pub fn find_in(rows: &'static Library, folders: &[PathBuf], major: u32) -> Option<Self> {
        let names = ordered(rows, major);
        let paths = folders.iter().flat_map(|folder| names.iter().map(move |name| folder.join(name)));
        let existing: Vec<PathBuf> = paths.filter(|path| path.is_file()).collect();
        for needed in rows.needs {
            // A library that is already loaded is found by its name, independent of its folder.
            let mut paths = folders.iter().filter_map(|folder| file_of(folder, needed));
            paths.find_map(|path| open(&path).map(std::mem::forget));
        }
        Self::of_names(rows, &existing)
    }

    fn of_names(rows: &'static Library, names: &[impl AsRef<Path>]) -> Option<Self> {
        let (name, file) = names.iter().find_map(|name| Some((name.as_ref(), open(name.as_ref())?)))?;
        let address = |name: &str| {
            // SAFETY: the symbol is only used as an address; `invoke` says when a call of it is sound.
            let symbol = unsafe { file.get::<*mut c_void>(format!("{name}\0").as_bytes()) };
            symbol.map_or(0, |symbol| symbol.into_raw() as usize)
        };
        let addresses: Vec<usize> =
            rows.functions.iter().map(|function| address(function.symbol())).collect();
        let missing = addresses.iter().filter(|address| **address == 0).count();
        info!(
            "loaded {}, which has {} of {} functions",
            name.display(),
            addresses.len() - missing,
            addresses.len()
        );
        let ends = (0..rows.handles.len()).map(|kind| end_of(rows, &addresses, kind)).collect();
        // Its functions are used until the process ends, also by its own threads.
        std::mem::forget(file);
        let numbers = rows.functions.iter().enumerate();
        let by_name = numbers.map(|(number, function)| (function.name, number)).collect();
        Some(Self { rows, addresses, by_name, handles: Handles::new(ends, structures(rows)) })
    }

    /// Returns a library whose functions have these addresses (see `Vendor::open_fake`).
    #[cfg(any(test, fuzzing))]
    pub fn fake(rows: &'static Library, address: impl Fn(Option<&str>) -> usize) -> Self {
        let addresses: Vec<usize> =
            rows.functions.iter().map(|function| address(Some(function.symbol()))).collect();
        let numbers = rows.functions.iter().enumerate().filter(|_| !rows.descriptors.is_empty());
        let by_name = numbers.map(|(number, function)| (function.name, number)).collect();
        let end = |kind| end_of(rows, &addresses, kind).map(|_| address(None));
        let ends = (0..rows.handles.len()).map(end).collect();
        Self { rows, addresses, by_name, handles: Handles::new(ends, structures(rows)) }
    }

    /// Returns the address of a function by its name.
    pub fn named(&self, name: &str) -> Option<usize> {
        self.address(*self.by_name.get(name)?)
    }

    /// Returns the address of the function with that number, or `None` if the host's release does not have it.
    pub fn address(&self, function: usize) -> Option<usize> {
        self.addresses.get(function).copied().filter(|address| *address != 0)
    }

    /// Calls the function with that name, which returns a status.
    ///
    /// Errors: the library's status, `CUDA_ERROR_NOT_FOUND` if it does not have the function.
    ///
    /// # Safety
    ///
    /// It must be a C function of these integers and addresses, which must be valid for its use of them.
    pub unsafe fn call(&self, name: &str, integers: &[u64]) -> Result<(), Refusal> {
        let function = self.named(name).ok_or(CudaError::NOT_FOUND)?;
        // SAFETY: `# Safety` promises that the function of this name is a C function of these integers and addresses.
        match unsafe { call_with_integers(function, integers) } {
            Some(status) if status == self.rows.statuses.success => Ok(()),
            Some(status) => Err(Refusal::Status(status)),
            None => Err(Refusal::Cuda(CudaError::INVALID_VALUE)),
        }
    }
}

/// Returns the function that destroys a handle of that kind, which is its only parameter.
fn end_of(rows: &Library, addresses: &[usize], kind: usize) -> Option<usize> {
    let ends = rows.functions.iter().zip(addresses).find(|(function, address)| match &function.body {
        Body::Forward(call) => {
            **address != 0 && call.parameters.len() == 1 && call.parameters[0].kind == Kind::End(kind)
        }
        _ => false,
    });
    ends.map(|(_, address)| *address)
}

/// Returns a library's file in that folder. Further numbers may follow its name: `libnvrtc-builtins.so.13` also names
/// `libnvrtc-builtins.so.13.0`.
fn file_of(folder: &Path, name: &str) -> Option<PathBuf> {
    let exact = folder.join(name);
    if exact.is_file() {
        return Some(exact);
    }
    let files = folder.read_dir().ok()?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let is_numbered = |file: &String| {
        let numbers = file.strip_prefix(name).and_then(|rest| rest.strip_prefix('.'));
        numbers.is_some_and(|numbers| numbers.split('.').all(|number| number.parse::<u32>().is_ok()))
    };
    let files = files.filter(is_numbered).map(|file| folder.join(file));
    // The shortest is the one that others look for: `.13.0` is a link to `.13.0.88`.
    files.filter(|path| path.is_file()).min_by_key(|path| path.as_os_str().len())
}

/// Returns the files of a library. Those of the major version come first.
fn ordered(rows: &Library, major: u32) -> Vec<PathBuf> {
    let ends = format!(".{major}");
    let (first, others): (Vec<&str>, Vec<&str>) = rows.sonames.iter().partition(|name| name.ends_with(&ends));
    first.into_iter().chain(others).map(PathBuf::from).collect()
}

fn open(path: &Path) -> Option<File> {
    // SAFETY: the library's constructors run here. The operator of the daemon chose the folders, or the system's
    // owner did.
    let opened = unsafe { File::open(Some(path), RTLD_LAZY | RTLD_LOCAL) };
    opened.inspect_err(|error| debug!("{}: {error}", path.display())).ok()
}

/// Returns for each kind of handles whether it is a structure.
fn structures(rows: &Library) -> Vec<bool> {
    rows.handles.iter().map(|kind| kind.structure > 0).collect()
}

#[cfg(test)]
mod tests {
    use vmm_sys_util::tempdir::TempDir;

    use super::*;

    #[test]
    fn a_file_may_have_more_numbers_than_its_name() {
        let folder = TempDir::new().unwrap();
        let make = |name: &str| std::fs::write(folder.as_path().join(name), "").unwrap();
        let file = |name: &str| file_of(folder.as_path(), name)?.file_name()?.to_str().map(String::from);
        ["liba.so.13.0.88", "liba.so.13.0", "liba.so.130", "liba.so.12.alt", "liba.alt.so.13"]
            .into_iter()
            .for_each(make);
        assert_eq!(file("liba.so.13"), Some("liba.so.13.0".to_owned()));
        assert_eq!(file("liba.so.12"), None);
        make("liba.so.13");
        assert_eq!(file("liba.so.13"), Some("liba.so.13".to_owned()));
    }
}
