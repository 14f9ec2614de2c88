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

/// Returns whether a requested name is no soname of ours, although [`find`] has a file for it: that of a copy. The dynamic linker
/// looks among the loaded objects for the names that versions of symbols belong to, by soname and by requested name. So such a
/// name stays as it is, and the file is replaced where a folder is searched for it.
pub fn keeps_its_name(asked: &Path) -> bool {
    let ours = if has_folder(asked) { None } else { OURS.find(asked) };
    ours.is_some_and(|ours| {
        Path::new(OsStr::from_bytes(ours.to_bytes())).file_name() != Some(asked.as_os_str())
    })
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
        let mut versions = self.all.iter().filter(|library| library.stem == stem);
        let first = versions.next()?;
        if let Some(major) = major {
            return self.versioned(stem, major);
        }
        let only = versions.next().is_none().then_some(first.path.as_c_str());
        // A name without a folder is left to the dynamic linker's search if there are several versions of ours.
        if !has_folder(asked) {
            return only;
        }
        // `libcudart.so` is a link to one of several versions. A copy without a version is a file, `libcuda-40d19bb1.so`.
        let file = fs::canonicalize(asked).ok()?;
        match parse(file.file_name()?.to_str()?)? {
            (found, _) if found != stem => None,
            (_, Some(major)) => self.versioned(stem, major),
            (_, None) => only,
        }
    }
}

/// Returns whether a library is requested by a path, which the dynamic linker does not search for.
fn has_folder(asked: &Path) -> bool {
    asked.as_os_str().as_bytes().contains(&b'/')
}

/// The smallest version of NVIDIA's driver that can be mistaken for a soname's: `libcuda.so.580.95.05` is a
/// `libcuda.so.1`. No library of ours has as high a number in its soname.
const DRIVER_VERSION: u32 = 100;

/// Returns the stem and the major version of a library's file name: `libcudart.so.13.0.96` is (`libcudart`, 13),
/// `libcuda.so` has no version. Packages that contain copies of libraries append eight digits of a hash to the stem.
/// auditwheel writes `libcudart-d0da41ae.so.12`, torchvision `libcudart.faf08d9a.so.13`.
fn parse(name: &str) -> Option<(&str, Option<u32>)> {
    let (mut stem, version) = name.rsplit_once(".so")?;
    let is_hash = |text: &str| text.len() == 8 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    // A copy of a copy has two.
    while let Some((rest, _)) = stem.rsplit_once(['-', '.']).filter(|(_, hash)| is_hash(hash)) {
        stem = rest;
    }
    if stem.is_empty() {
        return None;
    }
    if version.is_empty() {
        return Some((stem, None));
    }
    let mut numbers = version.strip_prefix('.')?.split('.');
    // Not `u32::from_str` alone, which accepts a sign.
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !numbers.clone().all(is_number) {
        return None;
    }
    let major = numbers.next()?.parse().ok()?;
    Some((stem, (major < DRIVER_VERSION).then_some(major)))
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

    /// The stem and the major version.
    type Parsed = Option<(&'static str, Option<u32>)>;

    /// The names of the files in our folder.
    const OUR_NAMES: [&str; 25] = [
        "libcuda.so.1",
        "libcuda.so",
        "libcudart.so.12",
        "libcudart.so.13",
        "libcudart.so",
        "libcublas.so.12",
        "libcublas.so.13",
        "libcublasLt.so.13",
        "libcudnn.so.9",
        "libcudnn_adv.so.9",
        "libcudnn_engines_precompiled.so.9",
        "libcudnn_engines_tensor_ir.so.9",
        "libcudnn_graph.so",
        "libcufft.so.11",
        "libcufftw.so.12",
        "libcupti.so.13",
        "libcurand.so.10",
        "libcusolver.so.11",
        "libcusolverMg.so.12",
        "libcusparse.so.12",
        "libcusparseLt.so.0",
        "libnccl.so.2",
        "libnvidia-ml.so.1",
        "libnvidia-ml.so",
        "libvhost-cuda-audit.so",
    ];

    #[test]
    fn names_of_libraries() {
        let cases: &[(&str, Parsed)] = &[
            // Sonames, files and links of a toolkit.
            ("libcudart.so.13", Some(("libcudart", Some(13)))),
            ("libcudart.so.12.9.79", Some(("libcudart", Some(12)))),
            ("libcudart.so.11.0", Some(("libcudart", Some(11)))),
            ("libcublas.so.13.1.0.3", Some(("libcublas", Some(13)))),
            ("libcuda.so", Some(("libcuda", None))),
            ("libnvidia-ml.so.1", Some(("libnvidia-ml", Some(1)))),
            // The driver's files have its version.
            ("libcuda.so.580.95.05", Some(("libcuda", None))),
            ("libnvidia-ml.so.610.42", Some(("libnvidia-ml", None))),
            // Copies by auditwheel: xgboost, PyTorch, PyNvVideoCodec.
            ("libcudart-d0da41ae.so.12", Some(("libcudart", Some(12)))),
            ("libcudart-d0da41ae.so.12.1.105", Some(("libcudart", Some(12)))),
            ("libcudart-c64a25f3.so.12.3.101", Some(("libcudart", Some(12)))),
            ("libcudart-a7b20f20.so.11.0", Some(("libcudart", Some(11)))),
            ("libcuda-40d19bb1.so", Some(("libcuda", None))),
            ("libnvidia-ml-0123abcd.so.1", Some(("libnvidia-ml", Some(1)))),
            // Copies by torchvision.
            ("libcudart.faf08d9a.so.13", Some(("libcudart", Some(13)))),
            ("libnvjpeg.36e11081.so.13", Some(("libnvjpeg", Some(13)))),
            ("libcudart.00000000.so", Some(("libcudart", None))),
            // A copy of a copy.
            ("libcudart-c64a25f3.faf08d9a.so.13", Some(("libcudart", Some(13)))),
            // Other libraries, whose names only begin like one of ours.
            ("libcudart-helper.so.13", Some(("libcudart-helper", Some(13)))),
            ("libcudart.helper.so.13", Some(("libcudart.helper", Some(13)))),
            ("libcudart-faf08d9.so.13", Some(("libcudart-faf08d9", Some(13)))),
            ("libcudart-faf08d9a0.so.13", Some(("libcudart-faf08d9a0", Some(13)))),
            ("libcudart-13.so", Some(("libcudart-13", None))),
            ("libcudartfaf08d9a.so.13", Some(("libcudartfaf08d9a", Some(13)))),
            (
                "libcudart.cpython-312-x86_64-linux-gnu.so",
                Some(("libcudart.cpython-312-x86_64-linux-gnu", None)),
            ),
            // Files that are not libraries.
            ("libcudart.so.13.backup", None),
            ("libcudart.so.13~", None),
            ("libcudart.so.+13", None),
            ("libcudart.so.", None),
            ("libcudart.so..13", None),
            ("libcudart.so.4294967296", None),
            ("libcuda.sol", None),
            ("libcuda.so.x", None),
            ("libcuda.so-1", None),
            ("libcudart_static.a", None),
            (".so.13", None),
            ("-40d19bb1.so", None),
            ("python3", None),
            ("", None),
        ];
        for (name, expected) in cases {
            assert_eq!(parse(name), *expected, "{name}");
        }
        for name in OUR_NAMES {
            let (stem, version) = name.split_once(".so").expect("a library");
            let major = version.split('.').nth(1).map(|major| major.parse().expect("a number"));
            assert_eq!(parse(name), Some((stem, major)), "{name}");
        }
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
        for name in [
            "libcudart.so.12.9.79",
            "libcudart-d0da41ae.so",
            "libcuda-40d19bb1.so",
            "libcuda.so.580.95.05",
            "libother.so.1",
        ] {
            fs::write(theirs.join(name), "")?;
        }
        for (link, to) in [
            ("libcudart.so", "libcudart.so.12.9.79"),
            ("libcuda.so", "libcuda.so.580.95.05"),
            ("libcuda-00000000.so", "libother.so.1"),
        ] {
            std::os::unix::fs::symlink(to, theirs.join(link))?;
        }
        let libraries = Libraries::of(ours.to_owned());
        let found = |asked: &Path| {
            libraries.find(asked).map(|path| Path::new(OsStr::from_bytes(path.to_bytes())).to_owned())
        };
        let names = [
            ("libcudart.so.13", "libcudart.so.13"),
            ("libcudart.faf08d9a.so.13", "libcudart.so.13"),
            ("libcudart-c64a25f3.so.12.3.101", "libcudart.so.12"),
            ("libcuda.so", "libcuda.so.1"),
            ("libcuda-40d19bb1.so", "libcuda.so.1"),
            ("libcuda.so.580.95.05", "libcuda.so.1"),
        ];
        for (asked, expected) in names {
            assert_eq!(found(Path::new(asked)), Some(ours.join(expected)), "{asked}");
        }
        let paths = [
            ("libcudart.so.12.9.79", "libcudart.so.12"),
            ("libcudart.so", "libcudart.so.12"),
            ("libcudart.faf08d9a.so.13", "libcudart.so.13"),
            ("libcuda.so", "libcuda.so.1"),
            ("libcuda-40d19bb1.so", "libcuda.so.1"),
        ];
        for (asked, expected) in paths {
            assert_eq!(found(&theirs.join(asked)), Some(ours.join(expected)), "{asked}");
        }
        // The name does not say which of the two versions is meant.
        for other in ["libcudart.so", "libcudart-d0da41ae.so"] {
            assert_eq!(found(Path::new(other)), None, "{other}");
        }
        assert_eq!(found(&theirs.join("libcudart-d0da41ae.so")), None);
        // A folder of a search that has no such file.
        assert_eq!(found(&theirs.join("libcuda-11111111.so")), None);
        // A link to another library.
        assert_eq!(found(&theirs.join("libcuda-00000000.so")), None);
        assert_eq!(found(Path::new("libcudart.so.11.0")), Some(ours.join("libcudart.so.11.0")));
        for other in ["libcudart.so.10.2", "libcublas.so.13", "libc.so.6", "/", "libvhost-cuda-audit.so"] {
            assert_eq!(found(Path::new(other)), None, "{other}");
        }
        Ok(())
    }
}
