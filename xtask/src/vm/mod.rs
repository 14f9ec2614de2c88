// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A virtual machine with our device, and the daemon beside it.
//!
//! Boot once, run many commands; see [`Vm`].

mod accelerator;
mod agent;
mod boot;
mod command;
mod config;
mod initramfs;
mod machine;
mod migration;
mod qemu_command;
mod qmp;

pub use accelerator::Accelerator;
pub use agent::{Input, Output, Running};
pub use command::{GuestCommand, with_libraries};
pub use config::VmConfig;
pub use initramfs::busybox;
pub use machine::{Survivor, Vm};
pub use migration::{Destination, OWN_FILES};
