// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `cargo xtask`.

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    match xtask::cli::Cli::parse().run() {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
