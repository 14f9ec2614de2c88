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
use crate::worker::gpu::CudaError;

/// The folders in which distributions and NVIDIA's packages put libraries that the dynamic linker may not know.
const USUAL_FOLDERS: [&str; 3] =
    ["/usr/local/cuda/lib64", "/usr/local/cuda/targets/x86_64-linux/lib", "/opt/cuda/lib64"];

/// A library that is loaded, for good.
#[derive(Debug)]
pub struct Loaded {
    /// Its functions.
    pub rows: &'static Library,
    /// Their addresses; 0 for those that the host's release does not have.
    addresses: Vec<usize>,
    /// Their numbers.
    by_name: HashMap<&'static str, usize>,
    /// The handles that it has given out.
    pub handles: Handles,
}

impl Loaded {
    /// Finds a library, if possible of that major version: in `folders`, where the dynamic linker looks, then in the usual
    /// folders. `None`: there is none, which the log says.
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
        for needed in &rows.needs {
            // What is loaded already is found by its name, wherever it lies.
            let paths = folders.iter().map(|folder| folder.join(needed));
            paths.filter(|path| path.is_file()).find_map(|path| open(&path).map(std::mem::forget));
        }
        Self::of_names(rows, &existing)
    }

    fn of_names(rows: &'static Library, names: &[impl AsRef<Path>]) -> Option<Self> {
        let (name, file) = names.iter().find_map(|name| Some((name.as_ref(), open(name.as_ref())?)))?;
        let address = |name: &str| {
            // SAFETY: the symbol is taken as an address only; `invoke` says what makes a call of it sound.
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
        // Its functions are used until the process ends, also by threads of its own.
        std::mem::forget(file);
        let numbers = rows.functions.iter().enumerate();
        let by_name = numbers.map(|(number, function)| (function.name.as_str(), number)).collect();
        Some(Self { rows, addresses, by_name, handles: Handles::new(ends, structures(rows)) })
    }

    /// A library of which the functions have these addresses: see `Vendor::open_fake`.
    #[cfg(any(test, fuzzing))]
    pub fn fake(rows: &'static Library, address: impl Fn(Option<&str>) -> usize) -> Self {
        let addresses = rows.functions.iter().map(|function| address(Some(function.symbol()))).collect();
        let numbers = rows.functions.iter().enumerate().filter(|_| !rows.descriptors.is_empty());
        let by_name = numbers.map(|(number, function)| (function.name.as_str(), number)).collect();
        let ends = rows.handles.iter().map(|_| Some(address(None))).collect();
        Self { rows, addresses, by_name, handles: Handles::new(ends, structures(rows)) }
    }

    /// The address of a function by its name.
    pub fn named(&self, name: &str) -> Option<usize> {
        self.address(*self.by_name.get(name)?)
    }

    /// The address of the function of that number; `None` if the host's release does not have it.
    pub fn address(&self, function: usize) -> Option<usize> {
        self.addresses.get(function).copied().filter(|address| *address != 0)
    }

    /// Calls the function of that name, which returns a status.
    ///
    /// Errors: the library's status, `CUDA_ERROR_NOT_FOUND` if it does not have the function.
    ///
    /// # Safety
    ///
    /// It is a C function of these integers and addresses, and they are good for what it does with them.
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

/// The function that destroys a handle of that kind, which is its only parameter.
fn end_of(rows: &Library, addresses: &[usize], kind: usize) -> Option<usize> {
    let ends = rows.functions.iter().zip(addresses).find(|(function, address)| match &function.body {
        Body::Forward(call) => {
            **address != 0 && call.parameters.len() == 1 && call.parameters[0].kind == Kind::End(kind)
        }
        _ => false,
    });
    ends.map(|(_, address)| *address)
}

/// The files of a library, that of a major version first.
fn ordered(rows: &Library, major: u32) -> Vec<PathBuf> {
    let ends = format!(".{major}");
    let (first, others): (Vec<_>, Vec<_>) = rows.sonames.iter().partition(|name| name.ends_with(&ends));
    first.into_iter().chain(others).map(PathBuf::from).collect()
}

fn open(path: &Path) -> Option<File> {
    // SAFETY: the library's constructors run here. Whoever runs the daemon chose the folders, or the system's owner did.
    let opened = unsafe { File::open(Some(path), RTLD_LAZY | RTLD_LOCAL) };
    opened.inspect_err(|error| debug!("{}: {error}", path.display())).ok()
}
/// Which kinds of handles are structures.
fn structures(rows: &Library) -> Vec<bool> {
    rows.handles.iter().map(|kind| kind.structure > 0).collect()
}
