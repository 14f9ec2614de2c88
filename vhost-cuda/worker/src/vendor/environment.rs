// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Environment variables of NVIDIA's libraries: copies those of the guest's process to this process.

use std::ffi::{CStr, CString, c_char};
use std::sync::atomic::{AtomicPtr, Ordering};

use log::debug;
use parking_lot::Mutex;
use virtio_cuda_protocol::cuda::{LIBRARY_VARIABLES, asks_for_text, each_variable};

use crate::gpu::{CuResult, CudaError};

/// The maximum number of changes of the environment. Each change leaks the old array, because threads of NVIDIA's
/// libraries may still read it.
const MAX_CHANGES: usize = 64;

unsafe extern "C" {
    static mut environ: *mut *mut c_char;
}

/// The variables that were set last.
#[derive(Debug, Default)]
pub struct Variables(Mutex<(Vec<u8>, usize)>);

impl Variables {
    /// Replaces the variables of the last record by those of this one. Returns whether libraries may print because of
    /// any.
    ///
    /// Errors: `CUDA_ERROR_INVALID_VALUE` for a record with a variable that is not in the list. Nothing is set then.
    pub fn set(&self, record: &[u8]) -> CuResult<bool> {
        let (mut own, mut text) = (Vec::new(), false);
        let read = each_variable(record, |number, value| {
            text |= asks_for_text(number);
            own.push([LIBRARY_VARIABLES[number].as_bytes(), b"=", value].concat());
        });
        read.ok_or(CudaError::INVALID_VALUE)?;
        let mut state = self.0.lock();
        if state.0 == record {
            return Ok(text);
        }
        if state.1 == MAX_CHANGES {
            debug!("variables of NVIDIA's libraries are ignored after {MAX_CHANGES} changes");
            return Ok(text);
        }
        // A value does not contain a NUL.
        replace(own.into_iter().filter_map(|variable| CString::new(variable).ok()));
        *state = (record.to_vec(), state.1 + 1);
        Ok(text)
    }
}

/// Sets the process's environment to its earlier variables without those of the list, plus these variables.
///
/// `setenv` is not used: it moves the array of the environment while other threads may read it.
fn replace(own: impl Iterator<Item = CString>) {
    // SAFETY: `environ` is a variable of the C library that lives as long as the process and is aligned.
    let place = unsafe { AtomicPtr::from_ptr(&raw mut environ) };
    let (mut array, mut old) = (Vec::new(), place.load(Ordering::Acquire));
    // SAFETY: the environment is an array of C strings that ends with a null, or null itself. The worker does not
    // call setenv or putenv, and `replace` is called with a lock held and frees no array.
    while let Some(variable) = unsafe { old.as_ref() }.copied().filter(|variable| !variable.is_null()) {
        // SAFETY: `variable` is not null, so it is a C string of the environment, which is never freed.
        if !is_of_list(unsafe { CStr::from_ptr(variable) }) {
            array.push(variable);
        }
        // SAFETY: the null at the end of the array has not been reached.
        old = unsafe { old.add(1) };
    }
    array.extend(own.map(CString::into_raw));
    array.push(std::ptr::null_mut());
    // Neither this array nor the one before is ever freed: readers see one of them completely.
    place.store(array.leak().as_mut_ptr(), Ordering::Release);
}

fn is_of_list(variable: &CStr) -> bool {
    let name = variable.to_bytes().split(|byte| *byte == b'=').next().unwrap_or_default();
    LIBRARY_VARIABLES.iter().any(|known| known.as_bytes() == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(name: &CStr) -> Option<&'static CStr> {
        // SAFETY: the name is a C string, and strings of the environment are never freed.
        let value = unsafe { libc::getenv(name.as_ptr()) };
        // SAFETY: not null, so a C string of the environment, which is never freed.
        (!value.is_null()).then(|| unsafe { CStr::from_ptr(value) })
    }

    #[test]
    fn libraries_see_the_last_record() {
        let (variables, path) = (Variables::default(), value(c"PATH"));
        assert_eq!(variables.set(b"NCCL_DEBUG=INFO\0NVIDIA_TF32_OVERRIDE=0\0"), Ok(true));
        assert_eq!(value(c"NCCL_DEBUG"), Some(c"INFO"));
        assert_eq!(value(c"NVIDIA_TF32_OVERRIDE"), Some(c"0"));
        assert!(variables.set(b"NCCL_DEBUG=WARN\0LD_PRELOAD=x\0").is_err());
        assert_eq!((value(c"NCCL_DEBUG"), value(c"LD_PRELOAD")), (Some(c"INFO"), None));
        assert_eq!(variables.set(b"NVIDIA_TF32_OVERRIDE=1\0"), Ok(false));
        assert_eq!((value(c"NCCL_DEBUG"), value(c"NVIDIA_TF32_OVERRIDE")), (None, Some(c"1")));
        assert_eq!(value(c"PATH"), path);
        for change in 0..2 * MAX_CHANGES {
            variables.set(format!("NCCL_NTHREADS={change}\0").as_bytes()).unwrap();
        }
        let last = CString::new((MAX_CHANGES - 3).to_string()).unwrap();
        assert_eq!(value(c"NCCL_NTHREADS"), Some(last.as_c_str()));
    }
}
