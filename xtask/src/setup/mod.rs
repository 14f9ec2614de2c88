// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `cargo xtask setup`: everything the other commands need, each part once.

mod apt;
pub mod cache;
mod cargo_tool;
mod debian;
mod debian_root;
mod flavour;
pub mod inputs;
pub mod kernel;
pub mod kubernetes;
pub mod nvcc;
pub mod nvcc_older;
mod package_root;
pub mod perfetto;
mod pip;
mod prune;
pub mod qemu;
pub mod runtimes;
pub mod rust;
pub mod stock_kernel;
mod ubuntu;
pub mod zig;

use std::path::PathBuf;
use std::sync::LazyLock;

use anyhow::Result;
use clap::ValueEnum;
use clap::builder::PossibleValue;

use crate::paths::Paths;
use crate::progress::side_by_side;
use cargo_tool::CargoTool;
use kernel::Flavour;
pub use package_root::RootKind;
pub use prune::prune;
pub use ubuntu::old_root;

/// A part of the setup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Debian packages: compilers and libraries for the builds.
    Debian,
    /// NVIDIA's compiler.
    Nvcc,
    /// NVIDIA's compiler of CUDA 12 or 11, for tests of programs that it compiled; only on request.
    NvccOlder(nvcc_older::Release),
    /// rust-src, bindgen and libclang, for the kernel.
    Rust,
    /// A guest kernel; others than the small one only on request.
    Kernel(Flavour),
    /// QEMU with our device.
    Qemu,
    /// zig's C compiler, which links the guest's libraries for older C libraries.
    Zig,
    /// A root with an old C library, for tests; only on request.
    OldRoot,
    /// The programs of a cluster, for the level `kubernetes`; only on request.
    Kubernetes,
    /// Perfetto's user interface, for the level `timeline`; only on request.
    Perfetto,
}

impl ValueEnum for Part {
    fn value_variants<'a>() -> &'a [Self] {
        static ALL: LazyLock<Vec<Part>> = LazyLock::new(|| {
            let kernels = Flavour::value_variants().iter().filter(|flavour| flavour.image() == **flavour);
            let others = [
                Part::Debian,
                Part::Nvcc,
                Part::Rust,
                Part::Qemu,
                Part::Zig,
                Part::OldRoot,
                Part::Kubernetes,
                Part::Perfetto,
            ];
            let older = nvcc_older::ALL.map(Part::NvccOlder);
            others.into_iter().chain(older).chain(kernels.map(|flavour| Part::Kernel(*flavour))).collect()
        });
        &ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        let (name, help) = match self {
            Self::Debian => ("debian".to_owned(), "Debian packages: compilers and libraries for the builds"),
            Self::Nvcc => ("nvcc".to_owned(), "NVIDIA's compiler"),
            Self::NvccOlder(release) => (
                format!("nvcc{}", release.major),
                "NVIDIA's compiler of that version of CUDA; only on request",
            ),
            Self::Rust => ("rust".to_owned(), "rust-src, bindgen and libclang, for the kernel"),
            Self::Kernel(Flavour::Small) => ("kernel".to_owned(), "The small guest kernel"),
            Self::Kernel(other) => (other.step(), "That guest kernel; only on request"),
            Self::Qemu => ("qemu".to_owned(), "QEMU with our device"),
            Self::Zig => ("zig".to_owned(), "zig's C compiler, for older C libraries"),
            Self::OldRoot => ("old-root".to_owned(), "A root with an old C library; only on request"),
            Self::Kubernetes => {
                ("kubernetes".to_owned(), "The programs of a cluster of Kubernetes; only on request")
            }
            Self::Perfetto => ("perfetto".to_owned(), "Perfetto's user interface; only on request"),
        };
        Some(PossibleValue::new(name).help(help))
    }
}

/// The parts of a plain `setup`.
const USUAL: [Part; 6] =
    [Part::Debian, Part::Nvcc, Part::Rust, Part::Kernel(Flavour::Small), Part::Qemu, Part::Zig];

/// Sets up `parts`, or the usual ones if the list is empty. Debian's packages come first. Then independent parts are
/// set up concurrently.
pub fn run(paths: &Paths, parts: &[Part]) -> Result<()> {
    if paths.bundle.is_some() {
        return Ok(());
    }
    let _lock = cache::lock(&paths.cache)?;
    let parts = if parts.is_empty() { &USUAL[..] } else { parts };
    let of_chain = |chain: Chain| {
        let parts = parts.iter().filter(move |part| part.chain() == chain);
        move || parts.into_iter().try_for_each(|part| part.setup(paths))
    };
    of_chain(Chain::First)()?;
    side_by_side(vec![
        Box::new(of_chain(Chain::Kernels)),
        Box::new(of_chain(Chain::Qemu)),
        Box::new(of_chain(Chain::Downloads)),
    ])
}

/// Parts that are set up one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Chain {
    /// Parts that all others need.
    First,
    /// Kernels, after the Rust tools that they are built with.
    Kernels,
    /// QEMU.
    Qemu,
    /// Parts that are mostly downloaded.
    Downloads,
}

impl Part {
    fn chain(self) -> Chain {
        match self {
            Self::Debian => Chain::First,
            Self::Rust | Self::Kernel(_) => Chain::Kernels,
            Self::Qemu => Chain::Qemu,
            Self::Nvcc
            | Self::NvccOlder(_)
            | Self::Zig
            | Self::OldRoot
            | Self::Kubernetes
            | Self::Perfetto => Chain::Downloads,
        }
    }

    fn setup(self, paths: &Paths) -> Result<()> {
        match self {
            Self::Debian => debian::setup(paths),
            Self::Nvcc => nvcc::setup(paths),
            Self::NvccOlder(release) => release.setup(paths),
            Self::Rust => rust::setup(paths),
            Self::Kernel(flavour) => kernel::setup(paths, flavour),
            Self::Qemu => qemu::setup(paths),
            Self::Zig => zig::setup(paths),
            Self::OldRoot => ubuntu::setup_old_root(paths),
            Self::Kubernetes => kubernetes::setup(paths),
            Self::Perfetto => perfetto::setup(paths),
        }
    }
}

/// cargo-deny, for the rules of `deny.toml`. Returns the path of the executable.
pub fn deny(paths: &Paths) -> Result<PathBuf> {
    let _lock = cache::lock(&paths.cache)?;
    let tool = CargoTool { package: "cargo-deny", program: "cargo-deny", version: "0.20.2", profile: "dev" };
    tool.setup(paths)
}

/// Valgrind, for counting instructions.
pub fn valgrind(paths: &Paths) -> Result<()> {
    let _lock = cache::lock(&paths.cache)?;
    debian::setup_packages(paths, &["valgrind"])
}

/// A root in which packages are tried. Returns its path; it must be copied, not changed.
pub fn package_root(paths: &Paths, kind: RootKind) -> Result<PathBuf> {
    let _lock = cache::lock(&paths.cache)?;
    package_root::setup(paths, kind)
}

/// The part that a plain `setup` leaves out and a guest with this kernel needs.
pub fn kernel_part(flavour: Flavour) -> Option<Part> {
    let image = flavour.image();
    (image != Flavour::Small).then_some(Part::Kernel(image))
}
