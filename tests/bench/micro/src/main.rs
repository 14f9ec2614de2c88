// SPDX-License-Identifier: Apache-2.0 OR MIT

//! `microbench NAME COUNT`: executes one piece COUNT times, for a tool that counts instructions. Without arguments it
//! lists the names.

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [name, count] = &arguments[..] else {
        for (name, _) in vhost_cuda_microbench::ALL {
            println!("{name}");
        }
        return ExitCode::SUCCESS;
    };
    let (Some(mut work), Ok(count)) = (vhost_cuda_microbench::find(name), count.parse::<u64>()) else {
        eprintln!("usage: microbench NAME COUNT");
        return ExitCode::FAILURE;
    };
    for _ in 0..count {
        work();
    }
    ExitCode::SUCCESS
}
