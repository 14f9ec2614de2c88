// SPDX-License-Identifier: Apache-2.0 OR MIT

//! NVIDIA's private tables are not imitated. NVIDIA's own runtime needs them, and its callers only get
//! `cudaErrorSymbolNotFound`. This module therefore reports once what is wrong, and with which file.

use std::ffi::{CStr, OsStr, c_int, c_void};
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::Once;

use virtio_cuda_client::CudaError;
use virtio_cuda_client::logging::LOG_VARIABLE;

use crate::entry_points;
use crate::ffi::Out;

/// Maximum number of stack frames that are searched for the caller; this library has few of its own.
const FRAMES: usize = 32;

/// Returns base address and file of the object that contains an address.
fn object_of(address: *const c_void) -> Option<(*mut c_void, PathBuf)> {
    let mut found = libc::Dl_info {
        dli_fname: ptr::null(),
        dli_fbase: ptr::null_mut(),
        dli_sname: ptr::null(),
        dli_saddr: ptr::null_mut(),
    };
    // SAFETY: any address may be asked for; `found` is a local.
    if unsafe { libc::dladdr(address, &mut found) } == 0 || found.dli_fname.is_null() {
        return None;
    }
    // SAFETY: the dynamic linker's own name of the object, which is NUL-terminated.
    let file = unsafe { CStr::from_ptr(found.dli_fname) };
    Some((found.dli_fbase, PathBuf::from(OsStr::from_bytes(file.to_bytes()))))
}

/// Returns the file that called into this library.
fn caller() -> Option<PathBuf> {
    let mut frames = [ptr::null_mut(); FRAMES];
    // SAFETY: there is room for as many frames.
    let count = unsafe { libc::backtrace(frames.as_mut_ptr(), FRAMES as c_int) };
    let (own, _) = object_of(caller as *const c_void)?;
    let frames = frames.iter().take(usize::try_from(count).unwrap_or(0));
    frames.filter_map(|frame| object_of(*frame)).find(|(base, _)| *base != own).map(|(_, file)| file)
}

fn is_named(file: &Path, start: &str) -> bool {
    file.file_name().is_some_and(|name| name.as_bytes().starts_with(start.as_bytes()))
}

/// Returns whether a file is one of NVIDIA's compilers. They request a table, too, but work without it.
fn is_compiler(file: &Path) -> bool {
    ["libnvrtc.", "libnvJitLink.", "libnvvm."].iter().any(|start| is_named(file, start))
}

/// Returns whether the auditor that redirects static runtimes is in this process.
fn is_audited() -> bool {
    std::env::var_os("LD_AUDIT").is_some_and(|list| list.to_string_lossy().contains("libvhost-cuda-audit.so"))
}

/// Returns the message for the user: which file does not work here, and what to do.
fn message(caller: Option<PathBuf>, is_audited: bool) -> String {
    let Some(file) = caller else {
        return "vhost-cuda: NVIDIA's CUDA runtime works with NVIDIA's driver only. Start the program with `vhost-cuda-run`."
            .to_owned();
    };
    let what = if ["libcudart.", "libcudart-"].iter().any(|start| is_named(&file, start)) {
        "is NVIDIA's CUDA runtime, which works with NVIDIA's driver only. Start the program with `vhost-cuda-run`, or put \
         the folder of vhost-cuda's libcudart.so first in LD_LIBRARY_PATH."
    } else if is_audited {
        "asks for a table of NVIDIA's driver that vhost-cuda does not have. If its calls fail with `named symbol not found` \
         (500), it contains NVIDIA's static CUDA runtime without symbols, of a release that vhost-cuda does not know. Please \
         report this line and the one that VIRTIO_CUDA_LOG=debug prints about the file, with the name and version of the package. \
         Another version of the package may work."
    } else {
        "contains NVIDIA's static CUDA runtime, which works with NVIDIA's driver only. Start the program with \
         `vhost-cuda-run`."
    };
    format!("vhost-cuda: {} {what}", file.display())
}

/// Prints the message once. The program owns its stderr, but the error that it gets does not reveal the cause.
fn explain() {
    static ONCE: Once = Once::new();
    let caller = caller();
    if caller.as_deref().is_some_and(is_compiler) {
        return;
    }
    ONCE.call_once(|| {
        if std::env::var_os(LOG_VARIABLE).is_none_or(|level| level != "off") {
            // A failed write is ignored: the program may have no stderr.
            let _ = writeln!(io::stderr(), "{}", message(caller, is_audited()));
        }
    });
}

entry_points! {
    /// Returns a table of functions that no header declares. No id is known.
    early cuGetExportTable(_, table: Out<usize>, id: Out<[u8; 16]>) {
        table.check()?;
        // No table has this id.
        if id.get()? == [0; 16] {
            return Err(CudaError::INVALID_VALUE);
        }
        explain();
        Err(CudaError::NOT_FOUND)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_the_file_that_has_to_change() {
        let of = |file: &str, is_audited| message(Some(PathBuf::from(file)), is_audited);
        assert!(
            of("/usr/lib/libcudart.so.12", true)
                .contains("/usr/lib/libcudart.so.12 is NVIDIA's CUDA runtime")
        );
        for copy in ["libcudart-d0da41ae.so.12", "libcudart.faf08d9a.so.13"] {
            assert!(of(&format!("/opt/x/{copy}"), true).contains("is NVIDIA's CUDA runtime"), "{copy}");
        }
        assert!(
            of("/opt/x/runtime.so", false)
                .contains("/opt/x/runtime.so contains NVIDIA's static CUDA runtime")
        );
        assert!(of("/opt/x/runtime.so", false).contains("vhost-cuda-run"));
        assert!(of("/opt/x/runtime.so", true).contains("without symbols, of a release"));
        assert!(message(None, false).contains("vhost-cuda-run"));
        assert!(
            is_compiler(Path::new("/opt/lib/libnvrtc.so.13"))
                && !is_compiler(Path::new("/opt/lib/libcublas.so.13"))
        );
    }

    #[test]
    fn finds_the_objects_of_addresses() {
        let (own, _) = object_of(caller as *const c_void).expect("this program");
        let (libc, file) = object_of(libc::getpid as *const c_void).expect("a library");
        assert_ne!(own, libc);
        assert!(file.to_string_lossy().contains("libc"), "{}", file.display());
        assert!(object_of(ptr::null()).is_none());
    }
}
