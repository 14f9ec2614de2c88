// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Loads PTX files, and the PTX in programs and libraries, and lists the parts that the emulator refuses: `cargo run
//! -p cuda-emulator --example load FILE…`.

use std::error::Error;
use std::time::Instant;

use cuda_emulator::fatbin::{self, Code};
use cuda_emulator::program::Program;

/// Returns the PTX texts of a file: the file itself, or those in its fat binaries.
fn texts(bytes: Vec<u8>) -> Result<Vec<String>, Box<dyn Error>> {
    if !bytes.starts_with(&fatbin::ELF_MAGIC.to_le_bytes()) {
        return Ok(vec![String::from_utf8(bytes)?]);
    }
    let (mut texts, mut rest) = (Vec::new(), &bytes[..]);
    while let Some(header) = rest.first_chunk() {
        // Containers are aligned to 8 bytes; anything else that looks like one has an impossible length.
        let length = fatbin::container_bytes(header).ok().filter(|length| *length <= rest.len());
        if let Some(length) = length {
            let mut visit = |_, text: &[u8]| {
                let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
                texts.push(String::from_utf8_lossy(text).into_owned());
            };
            let accept = |code| matches!(code, Code::Ptx(_));
            fatbin::each_code(&rest[..length], fatbin::MAX_TEXT, accept, &mut visit)?;
        }
        let next = length.unwrap_or(8).next_multiple_of(8).min(rest.len());
        rest = &rest[next..];
    }
    Ok(texts)
}

fn main() {
    let (mut loaded, mut refused) = (0, 0);
    for path in std::env::args().skip(1) {
        let texts = match std::fs::read(&path).map_err(Into::into).and_then(texts) {
            Ok(texts) => texts,
            Err(error) => {
                println!("{path}: {error}");
                continue;
            }
        };
        for text in texts {
            let start = Instant::now();
            match Program::load(&text) {
                Ok(program) => {
                    loaded += 1;
                    let (kernels, lines) = (program.kernels.len(), text.lines().count());
                    println!("{path}: {kernels} kernels of {lines} lines in {:?}", start.elapsed());
                }
                Err(error) => {
                    refused += 1;
                    println!("{path}: {error}");
                }
            }
        }
    }
    println!("{loaded} loaded, {refused} refused");
}
