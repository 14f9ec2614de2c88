// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The program `vhost-cuda-libvirt`.

use std::env;
use std::process::ExitCode;

use clap::Parser;
use vhost_cuda_libvirt::args::{self, Args};
use vhost_cuda_libvirt::command;

fn main() -> ExitCode {
    match command::run(&Args::parse_from(args::words(env::args_os()))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}
