// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The program `vhost-cuda-libvirt`.

use std::process::ExitCode;

use clap::Parser;
use vhost_cuda_libvirt::args::Args;
use vhost_cuda_libvirt::command;

fn main() -> ExitCode {
    match command::run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}
