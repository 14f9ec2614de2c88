// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Names of kernels, to which records point. They stay allocated until the process ends.

use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::sync::{Mutex, PoisonError};

/// The maximum number of bytes of all names. Limits this process's memory, which a malicious worker could otherwise
/// exhaust.
const MAX_BYTES: usize = 64 << 20;
/// The name of kernels beyond that limit.
const NONE_LEFT: &CStr = c"(too many kernels)";

#[derive(Default)]
struct Names {
    known: HashMap<&'static [u8], &'static CStr>,
    bytes: usize,
}

static NAMES: Mutex<Option<Names>> = Mutex::new(None);

/// Returns the name as a C string.
pub fn keep(name: &[u8]) -> &'static CStr {
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    let names = names.get_or_insert_default();
    if let Some(known) = names.known.get(name) {
        return known;
    }
    let text: Vec<u8> = name.iter().copied().take_while(|byte| *byte != 0).collect();
    if names.bytes + text.len() > MAX_BYTES {
        return NONE_LEFT;
    }
    names.bytes += text.len() + 1;
    // The name ends before the first 0.
    let kept: &'static CStr = Box::leak(CString::new(text).unwrap_or_default().into_boxed_c_str());
    names.known.insert(kept.to_bytes(), kept);
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_kept_once() {
        let first = keep(b"kernel_of_this_test");
        assert_eq!(first, c"kernel_of_this_test");
        assert_eq!(first.as_ptr(), keep(b"kernel_of_this_test").as_ptr());
        assert_eq!(keep(b"with\0more"), c"with");
    }
}
