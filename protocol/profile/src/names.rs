// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Names in events: cleaned, bounded, and readable.

use std::fmt;

use cpp_demangle::{DemangleOptions, Symbol};

/// The maximum length of a name in bytes. Limits the memory for tables and timelines: a program chooses its names.
pub const MAX_BYTES: usize = 512;
/// The maximum length of a symbol that is demangled. Limits the memory of its parts.
const MAX_SYMBOL_BYTES: usize = 4096;

/// A text that ends after a number of bytes: a short symbol may stand for a text without end in practice.
#[derive(Default)]
struct Bounded(String);

impl fmt::Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.push_str(text);
        if self.0.len() > MAX_BYTES { Err(fmt::Error) } else { Ok(()) }
    }
}

/// Returns the printable form of a name, at most [`MAX_BYTES`] long.
pub fn clean(name: &str) -> String {
    let mut cleaned = String::with_capacity(name.len().min(MAX_BYTES));
    for letter in name.chars() {
        let letter = if letter.is_control() || is_invisible(letter) { '?' } else { letter };
        if cleaned.len() + letter.len_utf8() > MAX_BYTES {
            break;
        }
        cleaned.push(letter);
    }
    cleaned
}

/// Characters that are no control characters, but change the direction of text or cannot be seen.
fn is_invisible(letter: char) -> bool {
    matches!(letter, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// Returns the name of a kernel as in its source, from its symbol.
pub fn of_kernel(symbol: &[u8]) -> String {
    let text = String::from_utf8_lossy(symbol);
    let is_symbol = symbol.starts_with(b"_Z") && symbol.len() <= MAX_SYMBOL_BYTES;
    let demangled = is_symbol.then(|| Symbol::new(symbol).ok()).flatten().map(|symbol| {
        let mut demangled = Bounded::default();
        let options = DemangleOptions::new().no_params().no_return_type();
        // An error is the end of the room.
        let _ = symbol.structured_demangle(&mut demangled, &options);
        demangled.0
    });
    clean(demangled.as_deref().filter(|text| !text.is_empty()).unwrap_or(&text))
}

/// Returns the name of a `CUpti_ActivityMemcpyKind`: the direction of a copy.
pub fn of_direction(kind: u8) -> &'static str {
    match kind {
        1 => "host to device",
        2 => "device to host",
        3 => "host to array",
        4 => "array to host",
        5 => "array to array",
        6 => "array to device",
        7 => "device to array",
        8 => "device to device",
        9 => "host to host",
        10 => "peer to peer",
        _ => "copy",
    }
}

/// Returns the name of a `CUpti_ActivityMemoryKind`.
pub fn of_memory(kind: u8) -> &'static str {
    match kind {
        1 => "pageable",
        2 => "pinned",
        3 => "device",
        4 => "array",
        5 => "managed",
        6 => "device static",
        7 => "managed static",
        _ => "unknown",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_printable_and_short() {
        assert_eq!(clean("add_one"), "add_one");
        assert_eq!(clean("a\nb\x1b[2Jc\u{202e}d"), "a?b?[2Jc?d");
        let long = clean(&"é".repeat(MAX_BYTES));
        assert_eq!((long.len(), long.chars().count()), (MAX_BYTES, MAX_BYTES / 2));
    }

    #[test]
    fn kernels_are_named_as_in_their_source() {
        assert_eq!(of_kernel(b"_Z7add_onePfi"), "add_one");
        assert_eq!(of_kernel(b"_ZN2at6native5emptyIfEEvT_"), "at::native::empty<float>");
        assert_eq!(of_kernel(b"triton_poi_0"), "triton_poi_0");
        assert_eq!(of_kernel(b"_Z\xff\n"), "_Z\u{fffd}?");
        let nested = format!("_Z1f{}i", "P".repeat(5000));
        assert_eq!(of_kernel(nested.as_bytes()).len(), MAX_BYTES);
        // Each part names the one before it twice.
        let doubled: String = (0..60).map(|part| format!("1aIS{part:X}_S{part:X}_E")).collect();
        assert!(of_kernel(format!("_ZN1aIiiE{doubled}Ev").as_bytes()).len() <= MAX_BYTES);
    }
}
