// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Everything again with all code translated before it is executed, and with none: which of the two a test meets otherwise
//! depends on how long its kernels run.

use std::process::Command;

fn all_tests_with(jit: &str) {
    let program = std::env::current_exe().unwrap();
    let output = Command::new(program)
        .args(["--skip", "translated::", "--skip", "checks::", "--skip", "spans::"])
        .env("CUDA_EMULATOR_JIT", jit)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "with CUDA_EMULATOR_JIT={jit}:\n{text}");
    assert!(text.contains("forms::all_forms_agree_with_an_h200 ... ok"), "{text}");
}

#[test]
fn translated_code_does_the_same() {
    all_tests_with("always");
}

#[test]
fn the_interpreter_does_the_same() {
    all_tests_with("0");
}
