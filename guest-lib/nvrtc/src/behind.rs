// SPDX-License-Identifier: Apache-2.0 OR MIT
//! NVIDIA's library of the same name, to which ours forwards calls.

use std::env;
use std::ffi::{CStr, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::OnceLock;

use cuda_program::Library;

/// The environment variable with the folder of NVIDIA's compilers.
const VARIABLE: &str = "VHOST_CUDA_COMPILERS";
/// CUDA release to use if our file's name does not contain one.
const USUAL_RELEASE: &str = "13";
/// The folders in which distributions and NVIDIA's packages put libraries.
const USUAL_FOLDERS: [&str; 4] =
    ["/usr/local/cuda/lib64", "/opt/cuda/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/lib64"];

/// A library of NVIDIA's, opened when it is first called.
pub struct Behind {
    /// The file name without the release, for example `libnvrtc.so`.
    stem: &'static str,
    library: OnceLock<Option<Library>>,
}

/// NVIDIA's libnvrtc.
pub static NVRTC: Behind = Behind::new("libnvrtc.so");
/// NVIDIA's libnvJitLink.
pub static NVJITLINK: Behind = Behind::new("libnvJitLink.so");

impl Behind {
    const fn new(stem: &'static str) -> Self {
        Self { stem, library: OnceLock::new() }
    }

    /// Returns the address of the function `name`. `None` if the library, which is reported once, or the function is
    /// missing.
    pub fn function(&self, name: &CStr) -> Option<NonNull<c_void>> {
        self.library.get_or_init(|| self.open()).as_ref()?.symbol(name)
    }

    fn open(&self) -> Option<Library> {
        let own = own_file();
        let file = format!("{}.{}", self.stem, release(own.as_deref(), self.stem));
        if let Some(folder) = env::var_os(VARIABLE) {
            let named = Path::new(&folder).join(&file);
            let opened = open(&named);
            if opened.is_none() {
                eprintln!("{VARIABLE}: {} is not NVIDIA's {file}", named.display());
            }
            return opened;
        }
        let own = own.and_then(|own| own.canonicalize().ok());
        let is_own = |path: &PathBuf| own.is_some() && path.canonicalize().ok() == own;
        let candidates = folders().into_iter().map(|folder| folder.join(&file));
        let found = candidates.filter(|path| path.is_file() && !is_own(path)).find_map(|path| open(&path));
        // The loader's cache may have the short name; the long name would find this library itself.
        let found = found.or_else(|| open(Path::new(self.stem)));
        if found.is_none() {
            eprintln!(
                "There is no {file} of NVIDIA's in LD_LIBRARY_PATH or the usual folders; {VARIABLE} can name its folder."
            );
        }
        found
    }
}

/// Opens a library that is not one of ours.
fn open(path: &Path) -> Option<Library> {
    let library = load(path)?;
    if library.symbol(c"vhost_cuda_in_front").is_some() {
        return None;
    }
    load_builtins(path);
    Some(library)
}

/// NVRTC opens a second library by its name only. If it is already loaded, the loader finds it in any folder.
fn load_builtins(beside: &Path) {
    let Some(files) = beside.parent().and_then(|folder| folder.read_dir().ok()) else { return };
    for file in files.flatten() {
        if file.file_name().as_bytes().starts_with(b"libnvrtc-builtins.so.") {
            load(&file.path());
        }
    }
}

fn load(path: &Path) -> Option<Library> {
    // SAFETY: the libraries that are looked for are NVIDIA's, whose constructors expect nothing of us.
    unsafe { Library::open(path, false) }
}

/// Returns the file from which the loader loaded this library.
fn own_file() -> Option<PathBuf> {
    let address = crate::vhost_cuda_in_front as extern "C" fn() as *const c_void;
    // SAFETY: the structure has only pointers, for which zero is a value.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: the address is only looked up, and `info` may be written.
    if unsafe { libc::dladdr(address, &mut info) } == 0 || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: dladdr gives a text that ends with a NUL and stays while we are loaded.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    Some(PathBuf::from(std::ffi::OsStr::from_bytes(name.to_bytes())))
}

/// Returns the `13` of `…/libnvrtc.so.13`.
fn release<'a>(own: Option<&'a Path>, stem: &str) -> &'a str {
    let name = own.and_then(Path::file_name).and_then(|name| name.to_str());
    let release = name.and_then(|name| name.strip_prefix(stem)?.strip_prefix('.'));
    let release = release.and_then(|release| release.split('.').next());
    release.filter(|release| release.parse::<u32>().is_ok()).unwrap_or(USUAL_RELEASE)
}

/// Returns the library folders in the loader's order, then the usual ones of the toolkit.
fn folders() -> Vec<PathBuf> {
    let path = env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = env::split_paths(&path).collect();
    for variable in ["CUDA_HOME", "CUDA_PATH"] {
        if let Some(home) = env::var_os(variable) {
            folders.extend(["lib64", "lib"].map(|lib| Path::new(&home).join(lib)));
        }
    }
    folders.extend(USUAL_FOLDERS.map(PathBuf::from));
    folders.retain(|folder| !folder.as_os_str().is_empty());
    folders
}

/// Exports functions that call NVIDIA's of the same name, or return `$missing` if it does not exist.
macro_rules! forward {
    ($behind:expr, $missing:expr; $(($name:expr) fn $function:ident($($argument:ident: $type:ty),*);)*) => {
        $(
            #[doc = concat!("`", stringify!($function), "`, as NVIDIA's.")]
            ///
            /// # Safety
            ///
            /// The contract of NVIDIA's function.
            #[unsafe(export_name = $name)]
            pub unsafe extern "C" fn $function($($argument: $type),*) -> std::ffi::c_int {
                let name = const {
                    match std::ffi::CStr::from_bytes_with_nul(concat!($name, "\0").as_bytes()) {
                        Ok(name) => name,
                        Err(_) => panic!("a name has a NUL"),
                    }
                };
                let Some(address) = $behind.function(name) else { return $missing };
                type Function = unsafe extern "C" fn($($type),*) -> std::ffi::c_int;
                // SAFETY: NVIDIA's function of this name has these parameters.
                let function: Function = unsafe { std::mem::transmute(address.as_ptr()) };
                // SAFETY: `# Safety` promises what NVIDIA's function demands of these arguments, and it gets them
                // unchanged.
                unsafe { function($($argument),*) }
            }
        )*
    };
}
pub(crate) use forward;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_release_is_in_the_files_name() {
        let release = |name: &'static str| release(Some(Path::new(name)), "libnvrtc.so");
        assert_eq!(release("/a/libnvrtc.so.12"), "12");
        assert_eq!(release("/a/libnvrtc.so.13.0.88"), "13");
        assert_eq!(release("/a/libnvrtc.so"), USUAL_RELEASE);
        assert_eq!(release("/a/program"), USUAL_RELEASE);
    }
}
