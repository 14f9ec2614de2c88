// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Turns the bare kernel into a usable system.

use std::ffi::CString;
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use guest_agent::wire::PORT;
use rustix::mount::{MountFlags, mount, mount_bind_recursive};

/// The root of commands that see the host's files.
pub const HOST_ROOT: &str = "/root";
/// Our module, if xtask put one in.
const MODULE: &str = "/virtio_cuda.ko";
/// Modules to load before anything else.
const MODULES: &str = "/modules";

/// The maximum time until the port appears.
const PORT_LIMIT: Duration = Duration::from_secs(10);

type Step = fn() -> Result<()>;

/// Mounts the file systems that even the agent needs: the kernel's own ones, and modules that this kernel has not built
/// in.
pub fn mount_system() -> Result<()> {
    for (kind, target) in [("proc", "/proc"), ("sysfs", "/sys"), ("devtmpfs", "/dev")] {
        mount_at(kind, kind, target, None)?;
    }
    let mut modules: Vec<_> = fs::read_dir(MODULES)?.collect::<Result<_, _>>()?;
    modules.sort_by_key(fs::DirEntry::file_name);
    modules.iter().try_for_each(|module| insert_module(&module.path()))
}

/// Opens the serial port on which the host waits. The driver hears of its ports after it was loaded.
pub fn open_port() -> Result<File> {
    let end = Instant::now() + PORT_LIMIT;
    loop {
        match try_open_port() {
            Err(_) if Instant::now() < end => thread::sleep(Duration::from_millis(20)),
            result => return result,
        }
    }
}

fn try_open_port() -> Result<File> {
    let class = Path::new("/sys/class/virtio-ports");
    for entry in fs::read_dir(class).context("No virtio-serial device")? {
        let entry = entry?;
        let name = fs::read_to_string(entry.path().join("name")).unwrap_or_default();
        if name.trim_end() == PORT {
            let device = Path::new("/dev").join(entry.file_name());
            return File::options()
                .read(true)
                .write(true)
                .open(&device)
                .with_context(|| format!("Cannot open {}", device.display()));
        }
    }
    bail!("No serial port is called {PORT}")
}

/// Mounts the rest and loads the module; returns what did not work, for the host to judge.
pub fn prepare() -> Vec<String> {
    let steps: [(&str, Step); 5] = [
        ("file systems", mount_rest),
        ("the host's files", mount_host),
        ("loopback", loopback_up),
        ("module", load_module),
        ("link", link_device),
    ];
    let run = |(what, step): (&str, Step)| step().err().map(|error| format!("{what}: {error:#}"));
    steps.into_iter().filter_map(run).collect()
}

/// Switches the machine off; does not return.
pub fn power_off() -> ! {
    rustix::fs::sync();
    let error = rustix::system::reboot(rustix::system::RebootCommand::PowerOff);
    // The end of process 1 is a panic, which switches the machine off, too.
    panic!("Cannot switch off: {error:?}");
}

fn mount_rest() -> Result<()> {
    rustix::system::sethostname(b"guest")?;
    mount_at("debugfs", "debugfs", "/sys/kernel/debug", None)?;
    mount_at("tmpfs", "tmpfs", "/dev/shm", None)?;
    mount_at("devpts", "devpts", "/dev/pts", None)?;
    mount_at("mqueue", "mqueue", "/dev/mqueue", None)?;
    mount_at("hugetlbfs", "hugetlbfs", "/dev/hugepages", None)?;
    for (link, target) in [("fd", "/proc/self/fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")]
    {
        symlink(target, Path::new("/dev").join(link))?;
    }
    Ok(())
}

/// The host's root, read-only, with a layer of memory above it; the guest's own /proc, /sys and /dev in it.
fn mount_host() -> Result<()> {
    let options = "trans=virtio,version=9p2000.L,msize=512000,cache=loose,ro";
    mount_at("host", "9p", "/host", Some(options))?;
    mount_at("tmpfs", "tmpfs", "/layer", None)?;
    fs::create_dir_all("/layer/upper")?;
    fs::create_dir_all("/layer/work")?;
    let layers = "lowerdir=/host,upperdir=/layer/upper,workdir=/layer/work";
    mount_at("overlay", "overlay", HOST_ROOT, Some(layers))?;
    for folder in ["proc", "sys", "dev"] {
        let target = Path::new(HOST_ROOT).join(folder);
        mount_bind_recursive(Path::new("/").join(folder), &target)
            .with_context(|| format!("Cannot bind {}", target.display()))?;
    }
    Ok(())
}

fn loopback_up() -> Result<()> {
    let status = Command::new("/bin/busybox").args(["ifconfig", "lo", "up"]).status()?;
    if status.success() { Ok(()) } else { bail!("ifconfig ended with {status}") }
}

fn load_module() -> Result<()> {
    let module = Path::new(MODULE);
    if module.exists() { insert_module(module) } else { Ok(()) }
}

/// As the driver's udev rule does.
fn link_device() -> Result<()> {
    symlink("virtio-cuda", "/dev/nvidia0").context("Cannot create /dev/nvidia0")
}

fn insert_module(path: &Path) -> Result<()> {
    let module = File::open(path)?;
    let inserted = rustix::system::finit_module(&module, c"", 0);
    inserted.with_context(|| format!("Cannot load {}; see the kernel log", path.display()))
}

fn mount_at(source: &str, kind: &str, target: &str, options: Option<&str>) -> Result<()> {
    fs::create_dir_all(target)?;
    let options = options.map(CString::new).transpose()?;
    mount(source, target, kind, MountFlags::empty(), options.as_deref())
        .with_context(|| format!("Cannot mount {kind} on {target}"))
}
