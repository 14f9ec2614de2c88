// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Loads PTX files and says which the emulator refuses: `cargo run -p cuda-emulator --example load FILE…`.

use std::time::Instant;

use cuda_emulator::program::Program;

fn main() {
    let (mut loaded, mut refused) = (0, 0);
    for path in std::env::args().skip(1) {
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) => {
                println!("{path}: {error}");
                continue;
            }
        };
        let start = Instant::now();
        match Program::load(&text) {
            Ok(program) => {
                loaded += 1;
                let kernels = program.kernels.len();
                println!(
                    "{path}: {kernels} kernels of {} lines in {:?}",
                    text.lines().count(),
                    start.elapsed()
                );
            }
            Err(error) => {
                refused += 1;
                println!("{path}: {error}");
            }
        }
    }
    println!("{loaded} loaded, {refused} refused");
}
