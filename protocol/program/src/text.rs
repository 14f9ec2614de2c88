// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Texts of the program.

use std::ffi::{CString, c_char};

/// Maximum length of a text, in bytes: names of templates are long, but not that long.
pub const MAX_TEXT_BYTES: usize = 1 << 20;

/// Returns a copy of a text; `None` if it is longer than [`MAX_TEXT_BYTES`].
///
/// Other threads of the program may write the text at the same time. So no reference to it is made, and the copy ends at its
/// own first NUL.
///
/// # Safety
///
/// `text` is a C string.
pub unsafe fn text(text: *const c_char) -> Option<CString> {
    // SAFETY: a C string by this function's contract, which is read no further than its NUL.
    let bytes = unsafe { libc::strnlen(text, MAX_TEXT_BYTES + 1) };
    if bytes > MAX_TEXT_BYTES {
        return None;
    }
    let mut copy = vec![0_u8; bytes];
    // SAFETY: `strnlen` found that many bytes before the NUL; the copy is as long, and this function's own.
    unsafe { std::ptr::copy_nonoverlapping(text.cast(), copy.as_mut_ptr(), bytes) };
    let end = copy.iter().position(|byte| *byte == 0).unwrap_or(bytes);
    copy.truncate(end);
    CString::new(copy).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_copied_up_to_a_limit() {
        for bytes in [0, 1, MAX_TEXT_BYTES, MAX_TEXT_BYTES + 1] {
            let given = CString::new(vec![b'a'; bytes]).expect("no NUL in it");
            // SAFETY: the text outlives the call.
            let copy = unsafe { text(given.as_ptr()) };
            assert_eq!(copy, (bytes <= MAX_TEXT_BYTES).then_some(given));
        }
    }
}
