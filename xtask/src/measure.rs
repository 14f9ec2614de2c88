// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs the benchmark in every place that this machine has.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::bench::{self, Place};
use crate::daemon::{DaemonConfig, Device};
use crate::paths::Paths;
use crate::progress::output_of;
use crate::run::new_log_folder;
use crate::setup::kernel::Flavour;
use crate::setup::nvcc::Nvcc;
use crate::virtio_user::VirtioUser;
use crate::vm::{GuestCommand, Vm, VmConfig};
use crate::{build, program, setup};

/// The benchmark, below the repository.
const PROGRAM: &str = "tests/bench/calls.cu";
/// How long it may take in a guest.
const LIMIT: Duration = Duration::from_secs(1800);

/// What to measure.
#[derive(Debug, Args)]
pub struct BenchArguments {
    /// The GPU: `auto` (a real one if there is one), `emulated`, or the path of a libcuda.so.1
    #[arg(long, default_value = "auto")]
    device: String,
    /// Fewer samples
    #[arg(long)]
    quick: bool,
    /// Write the figures to this file as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Builds, measures, prints the table.
pub fn run(paths: &Paths, arguments: &BenchArguments) -> Result<()> {
    setup::run(paths, &[])?;
    build::run(paths, &[], Flavour::Small)?;
    let program = program::compile(paths, &paths.root.join(PROGRAM))?;
    let logs = new_log_folder(paths)?;
    let options: &[&str] = if arguments.quick { &["--quick"] } else { &[] };
    let device = Device(arguments.device.clone());
    let mut results = BTreeMap::new();
    for place in [Place::Native, Place::VirtioUser, Place::Vm] {
        let output = match place {
            Place::Native if !Path::new("/dev/nvidiactl").exists() => {
                eprintln!("{:16} skipped: there is no NVIDIA GPU here (/dev/nvidiactl)", place.name());
                continue;
            }
            Place::Native => native(paths, &program, options)?,
            Place::VirtioUser => {
                let beside = VirtioUser::start(paths, DaemonConfig::new(device.clone()), &logs)?;
                let output = output_of(beside.command(paths, &program).args(options))?;
                beside.stop()?;
                output
            }
            Place::Vm => in_vm(paths, device.clone(), &program, options, &logs)?,
        };
        eprintln!("{:16} measured", place.name());
        results.insert(place, bench::parse(&output)?);
    }
    print!("{}", bench::table(&results));
    if let Some(file) = &arguments.json {
        bench::write_json(&results, file)?;
    }
    Ok(())
}

/// NVIDIA's runtime and driver.
fn native(paths: &Paths, program: &Path, options: &[&str]) -> Result<String> {
    let libraries = Nvcc::find(paths)?.libraries();
    output_of(Command::new(program).args(options).env("LD_LIBRARY_PATH", libraries))
}

fn in_vm(paths: &Paths, device: Device, program: &Path, options: &[&str], logs: &Path) -> Result<String> {
    let mut config = VmConfig::new(device);
    config.memory = "4G".to_owned();
    let vm = Vm::boot(paths, config, logs)?;
    let command = GuestCommand::new(program).arguments(options.iter().map(OsString::from)).limit(LIMIT);
    let output = vm.run(&command)?;
    vm.shut_down()?;
    if output.status != 0 {
        let error = String::from_utf8_lossy(&output.stderr);
        bail!("The benchmark ended with {} in the guest: {}", output.status, error.trim());
    }
    String::from_utf8(output.stdout).context("The benchmark printed something other than text")
}
