// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The program in which libFuzzer drives the target that the environment names. `cargo xtask fuzz` builds and starts it.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
mod fuzzer;

#[cfg(not(fuzzing))]
fn main() -> std::process::ExitCode {
    eprintln!("error: this program was built without libFuzzer; run: cargo xtask fuzz");
    std::process::ExitCode::FAILURE
}
