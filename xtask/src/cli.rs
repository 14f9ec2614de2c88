// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The command line.

use anyhow::Result;
use clap::{Args, Parser, Subcommand};

use crate::bench::{self, BenchArguments};
use crate::bundle::BundleArguments;
use crate::conformance::{self, ConformanceArguments};
use crate::dkms::{self, DkmsArguments};
use crate::emulator::{self, EmulatorArguments};
use crate::explain::{self, ExplainArguments};
use crate::fuzz::{self, FuzzArguments};
use crate::instructions::{self, InstructionsArguments};
use crate::layers::{self, LayersArguments};
use crate::package::{self, PackageArguments};
use crate::paths::Paths;
use crate::programs::{self, ProgramsArguments};
use crate::run::{self, RunArguments};
use crate::setup::kernel::Flavour;
use crate::signatures::{self, SignaturesArguments};
use crate::test::{self, TestArguments};
use crate::wheels::{self, WheelsArguments};
use crate::{build, bundle, checkpatch, coverage, demo, deny, setup};

/// The commands of the vhost-cuda project.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Fetch and build what the other commands need; existing parts are left alone
    Setup(SetupArguments),
    /// Build the daemon, the libraries and the kernel module into target/stack
    Build(BuildArguments),
    /// Run the sample program in a guest, from whatever state this machine is in
    Demo(DemoArguments),
    /// Run the tests, every level that this machine allows
    Test(TestArguments),
    /// Lint and test the emulator, which the other parts only load, and keep it in the cache
    Emulator(EmulatorArguments),
    /// Compile other people's CUDA programs and compare their behaviour in every way to reach a device
    Conformance(ConformanceArguments),
    /// Let libFuzzer look for inputs that crash what reads a guest's or a worker's bytes
    Fuzz(FuzzArguments),
    /// Run Python programs and test suites natively and through the stack, and compare results and times
    Programs(ProgramsArguments),
    /// Measure the stack, beside native where there is a GPU
    Bench(BenchArguments),
    /// Count the instructions of a call's way under valgrind, and compare with the limits
    Instructions(InstructionsArguments),
    /// Write the Rust sources that follow from the rows of the call table
    Generate(GenerateArguments),
    /// Write docs/api-coverage.md from the built libraries
    ApiCoverage(CoverageArguments),
    /// Write docs/wheels.md, the page of packages that were tried
    Wheels(WheelsArguments),
    /// Pack QEMU, kernel, stack and tests into one archive for a machine without compilers and network
    Bundle(BundleArguments),
    /// Pack the driver for DKMS, with its compiled Rust part: a guest then needs gcc and its kernel's headers only
    Dkms(DkmsArguments),
    /// Build Debian packages for the host and for guests
    Package(PackageArguments),
    /// Make the data by which static runtimes without symbols are recognised, from NVIDIA's archives
    Signatures(SignaturesArguments),
    /// Check licences, sources and known vulnerabilities of the dependencies
    Deny,
    /// Check the style of the QEMU patches with QEMU's own script
    Checkpatch,
    /// Print the way of a call through the repository: prototype, row, guest, worker, driver, emulator, tests
    Explain(ExplainArguments),
    /// Check that no circle of source files, and no folder, is larger than its limit
    Layers(LayersArguments),
    /// Run a program that was compiled with nvcc in the guest: its input, output and exit status are the program's
    Run(RunArguments),
}

#[derive(Debug, Args)]
struct SetupArguments {
    /// Only these parts, with a comma between them
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<setup::Part>,
    /// Afterwards, remove kernels and QEMUs of earlier configurations, compilers and patches, and earlier releases, from the cache
    #[arg(long)]
    prune: bool,
}

#[derive(Debug, Args)]
struct BuildArguments {
    /// Only these parts, with a comma between them
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<build::Part>,
    /// The kernel that the module is for
    #[arg(long, value_enum, default_value_t)]
    kernel: Flavour,
}

#[derive(Debug, Args)]
struct DemoArguments {
    /// The GPU: `auto` (a real one if there is one), `emulated`, or the path of a libcuda.so.1
    #[arg(long, default_value = "auto")]
    device: String,
}

#[derive(Debug, Args)]
struct GenerateArguments {
    /// Only fail if a file is not up to date
    #[arg(long)]
    check: bool,
}

#[derive(Debug, Args)]
struct CoverageArguments {
    /// Only fail if the page is not up to date
    #[arg(long)]
    check: bool,
}

impl Cli {
    /// Executes the command line, and returns the exit status.
    pub fn run(self) -> Result<u8> {
        let paths = Paths::discover()?;
        match self.command {
            Command::Setup(arguments) => {
                setup::run(&paths, &arguments.only)?;
                if arguments.prune {
                    setup::prune(&paths)?;
                }
            }
            Command::Run(arguments) => return Ok(run::run(&paths, &arguments)),
            Command::Demo(arguments) => return demo::run(&paths, &arguments.device),
            Command::Test(arguments) => return test::run(&paths, &arguments),
            Command::Emulator(arguments) => emulator::run(&paths, &arguments)?,
            Command::Fuzz(arguments) => fuzz::run(&paths, &arguments)?,
            Command::Bench(arguments) => bench::run(&paths, &arguments)?,
            Command::Instructions(arguments) => instructions::run(&paths, &arguments)?,
            Command::Conformance(arguments) => return conformance::run(&paths, &arguments),
            Command::Programs(arguments) => return programs::run(&paths, &arguments),
            Command::Generate(arguments) => cuda_api_generator::run(&paths.root, arguments.check)?,
            Command::ApiCoverage(arguments) => coverage::run(&paths.root, &paths.stack, arguments.check)?,
            Command::Bundle(arguments) => bundle::run(&paths, &arguments)?,
            Command::Dkms(arguments) => dkms::run(&paths, &arguments)?,
            Command::Package(arguments) => package::run(&paths, &arguments)?,
            Command::Signatures(arguments) => signatures::run(&paths, &arguments)?,
            Command::Explain(arguments) => explain::run(&paths, &arguments)?,
            Command::Wheels(arguments) => wheels::run(&paths.root, &arguments)?,
            Command::Deny => deny::run(&paths)?,
            Command::Layers(arguments) => layers::run(&paths, &arguments)?,
            Command::Checkpatch => checkpatch::run(&paths)?,
            Command::Build(arguments) => {
                build::only(&paths, &arguments.only, arguments.kernel)?;
            }
        }
        Ok(0)
    }
}
