// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The fuzzed code: for `cargo xtask fuzz`, and for the saved inputs and seeded runs of `tests/fuzz`. Each body takes
//! any bytes; what it must never do is panic, crash, run for ever, or take memory out of proportion to the bytes.

mod generator;
mod images;
mod run;
pub mod spans;
mod templates;

use arbitrary::Unstructured;
use cuda_emulator::fatbin::{self, Accepted};
use cuda_emulator::program::Program;

/// PTX text: parsed and lowered; two modules, linked, where a NUL separates them.
pub fn parse(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    match text.split_once('\0') {
        Some((first, second)) if !second.is_empty() => drop(Program::link(&[first, second])),
        _ => drop(Program::load(&text)),
    }
}

/// Bytes that choose a kernel, which is then executed.
pub fn execute(data: &[u8]) {
    let mut choices = Unstructured::new(data);
    let Ok(kernel) = choices.arbitrary::<generator::Kernel>() else { return };
    run::run(&kernel);
}

/// Bytes that choose an access to memory, which the interpreter and translated code must execute alike.
pub fn spans(data: &[u8]) {
    if let Ok(access) = Unstructured::new(data).arbitrary::<spans::Access>() {
        access.check();
    }
}

/// Fat binaries: the bytes themselves, and as changes of a good one. The result is loaded as a module.
pub fn fatbin(data: &[u8]) {
    let mut containers = vec![data.to_vec()];
    let mut choices = Unstructured::new(data);
    containers.extend(choices.arbitrary::<images::Image>().map(|image| image.bytes()).ok());
    for container in containers {
        if let Some(header) = container.first_chunk() {
            let _ = fatbin::container_bytes(header);
        }
        if let Ok(text) = fatbin::ptx(&container, Accepted { architecture: 90, newer: true }) {
            let _ = Program::load(&text);
        }
    }
}

/// The PTX text of the kernel that some bytes choose.
pub fn kernel_text(data: &[u8]) -> Option<String> {
    Unstructured::new(data).arbitrary::<generator::Kernel>().ok().map(|kernel| kernel.text())
}
