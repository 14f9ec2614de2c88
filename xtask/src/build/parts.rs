// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The parts of the stack, and the names of its programs' packages.

use clap::ValueEnum;

/// A part of the stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// `bin/vhost-user-cuda`.
    Daemon,
    /// `guest/lib/libcuda.so.1`, `libcudart.so.13`, `libcudart.so.12`, `libcudart.so.11.0`, `libnvidia-ml.so.1`, `libcupti.so.13`,
    /// `libcupti.so.12`, `libcufftw.so.12`, `libcufftw.so.11` and `libvhost-cuda-audit.so`;
    /// `guest/bin/vhost-cuda-run`; `guest/etc/` for people who compile in the guest.
    GuestLib,
    /// `emulator/libcuda.so.1`.
    Emulator,
    /// `emulator/libraries/` with the CPU versions of NVIDIA's libraries, CUPTI and cuFFTW, and `nvrtc/` with the fronts of NVIDIA's compilers.
    EmulatorLibraries,
    /// `module/virtio_cuda.ko`.
    Module,
    /// `guest/init`, the first process of the test guests.
    Agent,
    /// `bin/vhost-cuda-plugin`, for Kubernetes.
    Plugin,
    /// `core/virtio_cuda_core.o`, the module's Rust part for kernels without `CONFIG_RUST`; only on request.
    Core,
}

/// All of them, in an order in which each finds the libraries that it links against.
pub const ALL: [Part; 7] = [
    Part::Daemon,
    Part::Plugin,
    Part::GuestLib,
    Part::Emulator,
    Part::EmulatorLibraries,
    Part::Agent,
    Part::Module,
];

/// The parts for programs that run beside the daemon, without a guest.
pub const WITHOUT_GUEST: [Part; 4] = [Part::Daemon, Part::GuestLib, Part::Emulator, Part::EmulatorLibraries];

/// The parts for programs without NVIDIA's libraries that run beside the daemon.
pub const FIRST: [Part; 3] = [Part::Daemon, Part::GuestLib, Part::Emulator];

pub(super) const DAEMON: &str = "vhost-user-cuda";
pub(super) const PLUGIN: &str = "vhost-cuda-plugin";
pub(super) const AGENT: &str = "guest-agent";
pub(super) const LAUNCHER: &str = "vhost-cuda-run";
pub(super) const PROFILER: &str = "vhost-cuda-prof";

impl Part {
    /// Returns whether it has files of the emulator's packages.
    pub(super) fn is_of_emulator(self) -> bool {
        matches!(self, Self::Emulator | Self::EmulatorLibraries)
    }
}
