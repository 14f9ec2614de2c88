// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A file per target, with an input per line, in hexadecimal.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The first line of each file.
const HEAD: &str = "# SPDX-License-Identifier: Apache-2.0 OR MIT\n# Written by: cargo xtask fuzz --keep\n";
/// An input takes milliseconds. Generous, for slow and busy machines.
const TIME: Duration = Duration::from_secs(20);

/// The file of a target.
pub fn file(target: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("corpora").join(format!("{target}.hex"))
}

/// The inputs of a target.
///
/// Errors: the file's; `InvalidData` for a line that is not hexadecimal.
pub fn read(target: &str) -> io::Result<Vec<Vec<u8>>> {
    let text = fs::read_to_string(file(target))?;
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| bytes(line).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, line))).collect()
}

/// Replaces the inputs of a target.
///
/// Errors: the file's.
pub fn write(target: &str, mut inputs: Vec<Vec<u8>>) -> io::Result<()> {
    inputs.sort_by(|one, other| (one.len(), one).cmp(&(other.len(), other)));
    inputs.dedup();
    let mut text = HEAD.to_owned();
    for input in inputs.iter().filter(|input| !input.is_empty()) {
        text.extend(input.iter().map(|byte| format!("{byte:02x}")));
        text.push('\n');
    }
    fs::write(file(target), text)
}

fn bytes(line: &str) -> Option<Vec<u8>> {
    let digits = line.as_bytes().as_chunks::<2>();
    if !digits.1.is_empty() {
        return None;
    }
    let byte = |pair: &[u8; 2]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    digits.0.iter().map(byte).collect()
}

/// Runs all inputs of a target. An input that fails or takes too long is identified by its line in the file.
pub fn replay(target: &str, run: fn(&[u8])) {
    let inputs = read(target).unwrap_or_else(|error| panic!("{}: {error}", file(target).display()));
    assert!(!inputs.is_empty(), "{target} has no inputs");
    for input in inputs {
        let begun = Instant::now();
        let name = Name { target, input: &input };
        run(&input);
        assert!(begun.elapsed() < TIME, "{target}: an input takes {:?}", begun.elapsed());
        std::mem::forget(name);
    }
}

/// Prints the input whose run has panicked.
struct Name<'a> {
    target: &'a str,
    input: &'a [u8],
}

impl Drop for Name<'_> {
    fn drop(&mut self) {
        let hex: String = self.input.iter().map(|byte| format!("{byte:02x}")).collect();
        eprintln!("the input of {} that failed: {hex}", self.target);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_bytes() {
        assert_eq!(bytes("00ff10"), Some(vec![0, 255, 16]));
        assert_eq!((bytes("0"), bytes("0g"), bytes("é0")), (None, None, None));
    }
}
