// SPDX-License-Identifier: Apache-2.0 OR MIT
//! QEMU's command line.

use std::path::{Path, PathBuf};
use std::process::Command;

use guest_agent::wire::PORT;
use serde_json::{Value, json};

use super::VmConfig;
use super::accelerator::Accelerator;
use crate::setup::kernel::Kernel;
use crate::setup::qemu::Qemu;

/// The PCI id of our device, for the monitor.
pub const CUDA_DEVICE: &str = "cuda0-device";
/// The chardev between QEMU and the daemon.
pub const CUDA_CHARDEV: &str = "cuda0";
/// The port that our device is plugged into: q35's root bus has no hotplug.
const ROOT_PORT: &str = "cuda0-port";

/// The files and sockets of one machine.
pub struct Files {
    /// The guest's first file system.
    pub initramfs: PathBuf,
    /// The daemon's socket.
    pub daemon: PathBuf,
    /// The socket on which we wait for the agent.
    pub agent: PathBuf,
    /// The socket on which we wait for the monitor.
    pub monitor: PathBuf,
    /// The file for the kernel's messages.
    pub console: PathBuf,
}

/// A QEMU that runs the machine.
pub fn command(
    config: &VmConfig,
    qemu: &Qemu,
    kernel: &Kernel,
    accelerator: Accelerator,
    files: &Files,
) -> Command {
    let mut command = Command::new(&qemu.binary);
    command.arg("-L").arg(&qemu.data).args([
        "-nodefaults",
        "-no-user-config",
        "-display",
        "none",
        "-no-reboot",
    ]);
    command.args(["-name", "vhost-cuda", "-msg", "timestamp=on"]).args(accelerator.arguments(config.plugs));
    command.args([
        "-machine",
        "q35,memory-backend=ram",
        "-m",
        &config.memory,
        "-smp",
        &config.cpus.to_string(),
    ]);
    command.args(["-object", &format!("memory-backend-memfd,id=ram,size={},share=on", config.memory)]);
    command.arg("-kernel").arg(&kernel.image).arg("-initrd").arg(&files.initramfs);
    // The kernel counts ticks of the timer against time when it boots, and panics where an emulated machine on a busy host
    // has too few. With KVM it does not look.
    let always = "console=ttyS0 panic=-1 oops=panic no_timer_check";
    let arguments = [always, accelerator.kernel_arguments(), &config.kernel_arguments].join(" ");
    command.args(["-append", &arguments]);
    command.args(["-chardev", &format!("file,id=console,path={}", escape(&files.console))]);
    command.args(["-serial", "chardev:console"]);
    command.args(["-qmp", &format!("unix:{}", escape(&files.monitor))]);
    command.args(["-device", "virtio-serial-pci,max_ports=2"]);
    command.args(["-chardev", &format!("socket,id=agent,path={}", escape(&files.agent))]);
    command.args(["-device", &format!("virtserialport,chardev=agent,name={PORT}")]);
    let files_of_the_host = "local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap";
    command.args(["-virtfs", files_of_the_host]);
    command.args(["-device", &format!("pcie-root-port,id={ROOT_PORT},slot=1")]);
    let socket = escape(&files.daemon);
    command.args(["-chardev", &format!("socket,id={CUDA_CHARDEV},path={socket},reconnect-ms=100")]);
    let queues = config.daemon.queues;
    let device = format!("vhost-user-cuda-pci,id={CUDA_DEVICE},bus={ROOT_PORT},chardev={CUDA_CHARDEV}");
    command.args(["-device", &format!("{device},num-queues={queues}")]);
    command.args(&config.qemu_arguments);
    command
}

/// The monitor's arguments for plugging the device in again.
pub fn device_description(config: &VmConfig) -> Value {
    json!({
        "driver": "vhost-user-cuda-pci", "id": CUDA_DEVICE, "bus": ROOT_PORT, "chardev": CUDA_CHARDEV,
        "num-queues": config.daemon.queues,
    })
}

/// The monitor's arguments for connecting to the daemon again.
pub fn chardev_description(socket: &Path) -> Value {
    let address = json!({ "type": "unix", "data": { "path": socket } });
    let backend =
        json!({ "type": "socket", "data": { "addr": address, "server": false, "reconnect-ms": 100 } });
    json!({ "id": CUDA_CHARDEV, "backend": backend })
}

/// A comma in a QEMU option is written twice.
fn escape(path: &Path) -> String {
    path.display().to_string().replace(',', ",,")
}
