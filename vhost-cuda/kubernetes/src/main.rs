// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `vhost-cuda-plugin`: see the [library](vhost_cuda_plugin).

use std::process::ExitCode;

use clap::Parser;
use vhost_cuda_plugin::args::Args;

fn main() -> ExitCode {
    let args = Args::parse();
    env_logger::Builder::new().filter_level(args.log_level).init();
    match vhost_cuda_plugin::run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            log::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}
