// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Our libraries, which take precedence over others of the same soname.

use std::ffi::{CStr, CString, OsStr, c_int, c_void};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// A library of ours, `libcudart.so.13` for example.
#[derive(Debug)]
struct Library {
    /// `libcudart`
    stem: String,
    /// `13`: the part of the soname that says whether two libraries are compatible.
    major: u32,
    path: CString,
}

/// The libraries in one folder.
#[derive(Debug, Default)]
struct Libraries {
    folder: PathBuf,
    all: Vec<Library>,
}

static OURS: LazyLock<Libraries> = LazyLock::new(|| own_folder().map(Libraries::of).unwrap_or_default());

/// Returns whether a file is in our folder.
pub fn is_own(file: &Path) -> bool {
    !OURS.all.is_empty() && file.parent() == Some(&OURS.folder)
}

/// Returns our file for a library that a program requests by a name or a path.
pub fn find(asked: &Path) -> Option<&'static CStr> {
    OURS.find(asked)
}

/// Returns our file for a library that one of our own requests. Only a soname counts: our libraries open NVIDIA's
/// library of the same name by its path.
pub fn find_for_ours(asked: &Path) -> Option<&'static CStr> {
    let (stem, major) = parse(asked.to_str()?)?;
    OURS.versioned(stem, major?)
}

/// Returns our library with this stem and major version.
pub fn versioned(stem: &str, major: u32) -> Option<&'static CStr> {
    OURS.versioned(stem, major)
}

impl Libraries {
    fn of(folder: PathBuf) -> Self {
        let files = fs::read_dir(&folder).into_iter().flatten().flatten();
        let library = |file: fs::DirEntry| {
            let name = file.file_name();
            let (stem, major) = parse(name.to_str()?)?;
            let path = CString::new(file.path().into_os_string().into_encoded_bytes()).ok()?;
            Some(Library { stem: stem.to_owned(), major: major?, path })
        };
        let all = files.filter_map(library).collect();
        Self { folder, all }
    }

    fn versioned(&self, stem: &str, major: u32) -> Option<&CStr> {
        let wanted = |library: &&Library| library.stem == stem && library.major == major;
        self.all.iter().find(wanted).map(|library| library.path.as_c_str())
    }

    fn find(&self, asked: &Path) -> Option<&CStr> {
        let (stem, major) = parse(asked.file_name()?.to_str()?)?;
        if !self.all.iter().any(|library| library.stem == stem) {
            return None;
        }
        if let Some(major) = major {
            return self.versioned(stem, major);
        }
        // `libcudart.so` is a link to one of several versions. A name without a folder is left to the dynamic linker's
        // search.
        if asked.as_os_str().as_bytes().contains(&b'/') {
            let file = fs::canonicalize(asked).ok()?;
            let (stem, major) = parse(file.file_name()?.to_str()?)?;
            return self.versioned(stem, major?);
        }
        let mut versions = self.all.iter().filter(|library| library.stem == stem);
        let only = versions.next()?;
        versions.next().is_none().then_some(only.path.as_c_str())
    }
}

/// Returns the stem and the major version of a library's file name: `libcudart.so.13.0.96` is (`libcudart`, 13),
/// `libcuda.so` has no version. Wheels that contain copies of libraries append eight digits of a hash to the stem
/// (`libcudart-d0da41ae.so.12`).
fn parse(name: &str) -> Option<(&str, Option<u32>)> {
    let (stem, version) = name.split_once(".so")?;
    let stem = match stem.rsplit_once('-') {
        Some((stem, hash)) if hash.len() == 8 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()) => stem,
        _ => stem,
    };
    if version.is_empty() {
        return Some((stem, None));
    }
    let major = version.strip_prefix('.')?.split('.').next()?;
    Some((stem, Some(major.parse().ok()?)))
}

/// Returns the folder that this library was loaded from.
fn own_folder() -> Option<PathBuf> {
    let mut folder = None::<PathBuf>;
    // Not dladdr: before 2.34 glibc follows a null pointer there while a program is being started.
    // SAFETY: `is_ours` gets the address of `folder`, a local, and is not called after this returns.
    unsafe { libc::dl_iterate_phdr(Some(is_ours), (&raw mut folder).cast()) };
    folder
}

/// Stores the folder of the object that contains this function, and ends the iteration there.
unsafe extern "C" fn is_ours(object: *mut libc::dl_phdr_info, _: libc::size_t, folder: *mut c_void) -> c_int {
    // SAFETY: the dynamic linker describes an object that stays loaded during this call.
    let (object, headers) = unsafe {
        let object = &*object;
        (object, std::slice::from_raw_parts(object.dlpi_phdr, object.dlpi_phnum.into()))
    };
    let here = is_ours as *const () as u64;
    let has_it = |header: &libc::Elf64_Phdr| {
        let from = object.dlpi_addr.wrapping_add(header.p_vaddr);
        header.p_type == libc::PT_LOAD && (from..from.wrapping_add(header.p_memsz)).contains(&here)
    };
    if object.dlpi_name.is_null() || !headers.iter().any(has_it) {
        return 0;
    }
    // SAFETY: the object's name ends with a NUL.
    let file = unsafe { CStr::from_ptr(object.dlpi_name) };
    let found = Path::new(OsStr::from_bytes(file.to_bytes())).parent().map(Path::to_owned);
    // SAFETY: `own_folder` gives its local.
    unsafe { *folder.cast::<Option<PathBuf>>() = found };
    1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_libraries() {
        assert_eq!(parse("libcudart.so.13"), Some(("libcudart", Some(13))));
        assert_eq!(parse("libcudart.so.12.9.79"), Some(("libcudart", Some(12))));
        assert_eq!(parse("libcudart-d0da41ae.so.12.1.105"), Some(("libcudart", Some(12))));
        assert_eq!(parse("libnvidia-ml.so.1"), Some(("libnvidia-ml", Some(1))));
        assert_eq!(parse("libcuda.so"), Some(("libcuda", None)));
        assert_eq!(parse("libcuda.sol"), None);
        assert_eq!(parse("libcuda.so.x"), None);
        assert_eq!(parse("python3"), None);
    }

    #[test]
    fn ours_win_by_name_and_by_path() -> std::io::Result<()> {
        let folders = [tempfile::tempdir()?, tempfile::tempdir()?];
        let [ours, theirs] = folders.each_ref().map(tempfile::TempDir::path);
        for name in [
            "libcudart.so.11.0",
            "libcudart.so.12",
            "libcudart.so.13",
            "libcuda.so.1",
            "libvhost-cuda-audit.so",
            "notes.txt",
        ] {
            fs::write(ours.join(name), "")?;
        }
        fs::write(theirs.join("libcudart.so.12.9.79"), "")?;
        std::os::unix::fs::symlink("libcudart.so.12.9.79", theirs.join("libcudart.so"))?;
        let libraries = Libraries::of(ours.to_owned());
        let found = |asked: &Path| {
            libraries.find(asked).map(|path| Path::new(OsStr::from_bytes(path.to_bytes())).to_owned())
        };
        assert_eq!(found(Path::new("libcudart.so.13")), Some(ours.join("libcudart.so.13")));
        assert_eq!(found(&theirs.join("libcudart.so.12.9.79")), Some(ours.join("libcudart.so.12")));
        assert_eq!(found(&theirs.join("libcudart.so")), Some(ours.join("libcudart.so.12")));
        assert_eq!(found(Path::new("libcuda.so")), Some(ours.join("libcuda.so.1")));
        // The name does not say which of the two versions is meant.
        assert_eq!(found(Path::new("libcudart.so")), None);
        assert_eq!(found(Path::new("libcudart.so.11.0")), Some(ours.join("libcudart.so.11.0")));
        for other in ["libcudart.so.10.2", "libcublas.so.13", "libc.so.6", "/", "libvhost-cuda-audit.so"] {
            assert_eq!(found(Path::new(other)), None, "{other}");
        }
        Ok(())
    }
}
