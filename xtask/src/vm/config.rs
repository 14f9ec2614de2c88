// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The configuration of a machine.

use crate::daemon::{DaemonConfig, Device};
use crate::setup::kernel::Flavour;

/// The configuration of a machine.
#[derive(Debug, Clone)]
pub struct VmConfig {
    /// The kernel.
    pub kernel: Flavour,
    /// Memory, with a K, M or G.
    pub memory: String,
    /// Processors.
    pub cpus: u32,
    /// The daemon.
    pub daemon: DaemonConfig,
    /// More for the kernel's command line.
    pub kernel_arguments: String,
    /// More for QEMU's.
    pub qemu_arguments: Vec<String>,
    /// True for a test that plugs devices or memory, or removes them. Under TCG one thread then executes all processors: QEMU
    /// aborts in `iotlb_to_section` if one processor accesses memory while another one changes where devices' memory is.
    pub plugs: bool,
    /// The module is loaded at boot. If so it is `/virtio_cuda.ko` in the initramfs (for [`Vm::shell`]), else
    /// `/not-loaded/virtio_cuda.ko`.
    pub load_module: bool,
}

impl VmConfig {
    /// 1 GiB, 2 processors, the small kernel.
    pub fn new(device: Device) -> Self {
        Self {
            kernel: Flavour::Small,
            memory: "1G".to_owned(),
            cpus: 2,
            daemon: DaemonConfig::new(device),
            kernel_arguments: String::new(),
            qemu_arguments: Vec::new(),
            plugs: false,
            load_module: true,
        }
    }
}
