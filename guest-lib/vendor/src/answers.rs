// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Cached results: those of functions that depend on their arguments only, and texts and tables to which programs have
//! pointers.

use std::collections::{HashMap, HashSet};
use std::ffi::{CStr, CString};
use std::sync::{Mutex, PoisonError};

/// Maximum number of cached results per library; later ones are requested each time.
const MAX_KEPT: usize = 1 << 10;

/// Result blocks by the key of the call and its handle.
type Blocks = HashMap<(u64, u64), Vec<u8>>;

/// The cached results of a library.
#[derive(Debug)]
pub struct Answers(Mutex<Option<Blocks>>);

impl Answers {
    /// Returns an empty cache.
    pub const fn new() -> Self {
        Self(Mutex::new(None))
    }

    /// Returns the cached results of a call.
    pub fn get(&self, key: u64, handle: u64) -> Option<Vec<u8>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).as_ref()?.get(&(key, handle)).cloned()
    }

    /// Caches the results of a call.
    pub fn keep(&self, key: u64, handle: u64, answers: &[u8]) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = kept.get_or_insert_default();
        if kept.len() < MAX_KEPT {
            kept.insert((key, handle), answers.to_vec());
        }
    }
}

static TEXTS: Mutex<Option<HashSet<&'static CStr>>> = Mutex::new(None);

/// Returns a permanent copy of a text. The host has a bounded number of them: names and descriptions of status codes.
pub fn text(bytes: &[u8]) -> &'static CStr {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    let text = CString::new(&bytes[..end]).unwrap_or_default();
    let mut texts = TEXTS.lock().unwrap_or_else(PoisonError::into_inner);
    let texts = texts.get_or_insert_default();
    if let Some(known) = texts.get(text.as_c_str()) {
        return known;
    }
    if texts.len() >= MAX_KEPT {
        return c"too many texts";
    }
    let text: &'static CStr = Box::leak(text.into_boxed_c_str());
    texts.insert(text);
    text
}

static TABLES: Mutex<Vec<&'static [u64]>> = Mutex::new(Vec::new());
/// Maximum number of permanent tables: cuRAND has six.
const MAX_TABLES: usize = 16;

/// Returns the address of a permanent table with these contents. `None`: there are too many.
pub fn table(contents: &[u8]) -> Option<u64> {
    let (words, rest) = contents.as_chunks::<8>();
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    let words: Box<[u64]> = words.iter().chain([&last]).map(|word| u64::from_le_bytes(*word)).collect();
    let mut tables = TABLES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = tables.iter().find(|known| ***known == *words) {
        return Some(known.as_ptr() as u64);
    }
    if tables.len() >= MAX_TABLES {
        return None;
    }
    let table: &'static [u64] = Box::leak(words);
    tables.push(table);
    Some(table.as_ptr() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_kept_once() {
        let first = text(b"CUBLAS_STATUS_SUCCESS");
        assert_eq!(first.as_ptr(), text(b"CUBLAS_STATUS_SUCCESS\0").as_ptr());
        assert_eq!(first, c"CUBLAS_STATUS_SUCCESS");
    }

    #[test]
    fn answers_depend_on_arguments_and_handle() {
        let answers = Answers::new();
        answers.keep(1, 16, b"answer");
        assert_eq!(answers.get(1, 16).as_deref(), Some(&b"answer"[..]));
        assert_eq!(answers.get(2, 16), None);
        assert_eq!(answers.get(1, 32), None);
    }
}
