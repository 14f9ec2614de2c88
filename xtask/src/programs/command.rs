// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The command: its arguments, and its output.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;

use super::results::{Printed, Results};
use super::running::{Plan, Runner, leave_out};
use super::table::{programs, unpack};
use crate::build;
use crate::conformance::Way;
use crate::daemon::{Device, has_gpu};
use crate::paths::Paths;
use crate::run::new_log_folder;
use crate::setup::kernel::Flavour;

/// The programs to run.
#[derive(Debug, Args)]
pub struct ProgramsArguments {
    /// Only these programs, with a comma between them
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    only: Vec<String>,
    /// The ways to a device, with a comma between them: native, virtio-user, vm. The others are compared with the first
    #[arg(long, value_enum, value_delimiter = ',', default_value = "native,virtio-user")]
    ways: Vec<Way>,
    /// The GPU of virtio-user and vm: `auto` (a real one if there is one), or the path of a libcuda.so.1
    #[arg(long, default_value = "auto")]
    device: String,
    /// The Python that has PyTorch and transformers; programs of packages that it lacks are left out unless they are named
    #[arg(long, value_name = "PROGRAM", default_value = "python3")]
    python: PathBuf,
    /// Folders with NVIDIA's libraries for the daemon; else those that were installed with pip
    #[arg(long, value_name = "FOLDER")]
    libraries: Vec<PathBuf>,
    /// Number of runs per program and way, in turns
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    rounds: u32,
    /// Seconds that one program may take
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    timeout: u64,
    /// The guest's memory
    #[arg(long, default_value = "24G", value_name = "SIZE")]
    mem: String,
    /// The guest's processors
    #[arg(long, default_value_t = 8, value_name = "N")]
    smp: u32,
    /// Where programs, logs and `results.md` are put
    #[arg(long, value_name = "FOLDER")]
    folder: Option<PathBuf>,
    /// The file or folder that a program needs, as `cupy=FOLDER` or `ggml=PROGRAM`; may be repeated
    #[arg(long, value_name = "NAME=PATH", value_parser = named_path)]
    input: Vec<(String, PathBuf)>,
    /// Further arguments of the programs
    #[arg(last = true)]
    arguments: Vec<OsString>,
}

/// Splits `NAME=PATH`; the path becomes absolute.
fn named_path(text: &str) -> Result<(String, PathBuf)> {
    let (name, path) = text.split_once('=').context("It is not NAME=PATH")?;
    let path = fs::canonicalize(path).with_context(|| format!("Cannot find {path}"))?;
    Ok((name.to_owned(), path))
}

/// The place whose known failures hold on a way.
fn place(way: Way, device: &str) -> &'static str {
    match way {
        Way::Native => "everywhere",
        _ if Device(device.to_owned()).is_emulated() => "emulated",
        _ => "stack",
    }
}

/// Runs the programs. 1 if one was not as on the first way.
pub fn run(paths: &Paths, arguments: &ProgramsArguments) -> Result<u8> {
    let mut programs = programs(&arguments.only)?;
    let inputs: BTreeMap<_, _> = arguments.input.iter().cloned().collect();
    if arguments.only.is_empty() {
        leave_out(&mut programs, &arguments.python, &inputs)?;
    }
    let ways = &arguments.ways;
    if ways.is_empty() || (ways.contains(&Way::Native) && !has_gpu()) {
        bail!("There is no GPU here for the way native; name others with --ways");
    }
    build::for_programs(paths, ways.contains(&Way::Vm).then_some(Flavour::Small))?;
    let folder = arguments.folder.clone().unwrap_or_else(|| paths.target.join("programs"));
    unpack(&folder)?;
    let folder = folder.canonicalize()?;
    let plan = Plan {
        device: &arguments.device,
        python: &arguments.python,
        libraries: &arguments.libraries,
        folder: &folder,
        limit: Duration::from_secs(arguments.timeout),
        memory: &arguments.mem,
        cpus: arguments.smp,
    };
    let logs = new_log_folder(paths)?;
    let runner = Runner::new(paths, ways, &plan, &logs)?;
    let mut results = Results::default();
    for program in &programs {
        let mut printed: Vec<(Way, Printed)> = ways.iter().map(|way| (*way, Printed::default())).collect();
        let reference = folder.join(format!("{}.reference", program.name));
        for round in 0..arguments.rounds.max(1) {
            for (index, (way, printed)) in printed.iter_mut().enumerate() {
                let option = if index == 0 { "--write" } else { "--compare" };
                let mut words: Vec<OsString> = program.arguments.iter().map(OsString::from).collect();
                if program.known {
                    words.extend(["--place".into(), place(*way, &arguments.device).into()]);
                }
                if program.reference {
                    words.extend([option.into(), reference.clone().into()]);
                }
                if let Some(input) = inputs.get(&program.name) {
                    words.extend(["--input".into(), input.into()]);
                }
                words.extend_from_slice(&arguments.arguments);
                eprintln!("{} on {}, round {}", program.name, way.name(), round + 1);
                match runner.run(*way, program, &words)? {
                    Ok(output) => printed.add(&output),
                    Err(failed) => printed.failed = Some(failed),
                }
            }
        }
        results.add(&program.name, &program.what, printed);
    }
    runner.stop()?;
    let text = results.text();
    let file = folder.join("results.md");
    fs::write(&file, &text).with_context(|| format!("Cannot write {}", file.display()))?;
    println!("{text}\nIn {}; logs of the daemon: {}", file.display(), logs.display());
    Ok(u8::from(!results.all_same()))
}
