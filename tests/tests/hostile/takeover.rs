// SPDX-License-Identifier: Apache-2.0 OR MIT

//! A worker that a guest has taken over. `programs/takeover.c` runs inside of workers once their sandbox is closed, and
//! tries to reach what is not its session's.

mod daemon;

use std::fs;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;
use vhost_cuda_tests::daemon::{Daemon, DaemonOptions, children_of};
use vhost_cuda_tests::frontend::{FakeFrontend, HIGH, HIGH_BYTES};
use vhost_cuda_tests::program::bundle;
use vhost_cuda_tests::suite::{Kit, Suite};
use virtio_cuda_protocol::cuda::CallHeader;
use virtio_cuda_protocol::transport::{MemEntry, PAGE_BYTES};
use zerocopy::IntoBytes;

use crate::kills::in_session;

const SOURCE: &str = include_str!("programs/takeover.c");
/// The compiled attack in a bundle.
const PREBUILT: &str = "tests/takeover.so";
/// The maximum time that a worker may take to start and to try everything.
const LIMIT: Duration = Duration::from_secs(120);
/// The minimum number of attempts, even if some are left out because a namespace hides their targets.
const ATTEMPTS: usize = 50;

/// Attempts on guest memory.
const PAGE_ATTEMPTS: usize = 10;
/// Pages that a request names to be read and to be written; no two touch.
const READ: [u64; 2] = [7, 3];
const WRITTEN: [u64; 1] = [11];
/// A user without privileges.
const NOBODY: u32 = 65534;

/// The calls that remain to a worker with the list for GPUs where the host no namespaces (docs/confinement.md).
const WITHOUT_NAMESPACES: [&str; 2] = ["a packet socket", "an abstract socket"];

#[derive(Clone, Copy)]
enum List {
    /// The one for the emulator.
    Strict,
    /// The one for any other library: the emulator at another place.
    Gpu,
}

pub fn collect(suite: &mut Suite) {
    daemon::collect(suite);
    if bundle().is_none() && Command::new("cc").arg("--version").output().is_err() {
        suite.skip("takeover::taken_over", "there is no C compiler (cc)");
        return;
    }
    let namespaces = ["--namespaces", "require"];
    let none = ["--namespaces", "off"];
    suite.test("takeover::taken_over", move |kit| taken_over(kit, List::Strict, &namespaces, &[]));
    suite.test("takeover::taken_over_with_a_gpu", move |kit| taken_over(kit, List::Gpu, &namespaces, &[]));
    let all = ["--namespaces", "require", "--guest-pages", "all"];
    suite.test("takeover::taken_over_with_all_pages", move |kit| taken_over(kit, List::Strict, &all, &[]));
    suite.test("takeover::taken_over_without_namespaces", move |kit| {
        taken_over(kit, List::Strict, &none, &[])
    });
    suite.test("takeover::taken_over_with_named_pages", |kit| {
        taken_over_with_named_pages(kit, List::Strict, None)
    });
    suite.test("takeover::taken_over_with_a_gpu_and_named_pages", |kit| {
        taken_over_with_named_pages(kit, List::Gpu, None)
    });
    let other_user =
        ["takeover::taken_over_with_pages_of_another_user", "takeover::victims_of_an_unprivileged_daemon"];
    // SAFETY: plain system call.
    if unsafe { libc::geteuid() } == 0 {
        suite.test(other_user[0], |kit| taken_over_with_named_pages(kit, List::Gpu, Some(NOBODY)));
        suite.test(other_user[1], |kit| taken_over_as(kit, List::Gpu, &[], &[], Some(NOBODY)));
    } else {
        other_user.iter().for_each(|&name| suite.skip(name, "only root can start a daemon as another user"));
    }
    suite.test("takeover::taken_over_with_a_gpu_without_namespaces", move |kit| {
        taken_over(kit, List::Gpu, &none, &WITHOUT_NAMESPACES)
    });
}

/// With `--guest-pages named`: the worker is taken over while it answers a request that names a few pages, including
/// the process that has the descriptors. `user`: the daemon's, if not the one who owns guest memory.
fn taken_over_with_named_pages(kit: &Kit, list: List, user: Option<u32>) -> Result<()> {
    let scene = Scene::set()?;
    let library = match list {
        List::Strict => kit.stack.emulator(),
        List::Gpu => scene.copy_of(&kit.stack.emulator())?,
    };
    let arguments = ["--guest-pages", "named"].map(str::to_owned).to_vec();
    let mut environment = scene.environment(&library);
    environment.push(("VHOST_CUDA_ATTACK_PAGES".into(), (HIGH_BYTES / PAGE_BYTES).to_string()));
    environment.push(("VHOST_CUDA_ATTACK_NAMED".into(), (READ.len() + WRITTEN.len()).to_string()));
    environment.push(("VHOST_CUDA_ATTACK_READ".into(), READ.len().to_string()));
    let device = library.display().to_string();
    let options = DaemonOptions { device, arguments, environment, user, ..Default::default() };
    let mut daemon = Daemon::start(&kit.stack, &options)?;
    let mut frontend = FakeFrontend::connect(&daemon.socket())?;
    let session = frontend.open_session()?;
    let entry =
        |page: &u64| MemEntry { addr: HIGH + page * PAGE_BYTES, bytes: PAGE_BYTES as u32, reserved: 0 };
    let (ins, outs): (Vec<_>, Vec<_>) =
        (READ.iter().map(entry).collect(), WRITTEN.iter().map(entry).collect());
    let bytes = |entries: &[MemEntry]| entries.len() as u64 * PAGE_BYTES;
    // A call of an unknown function is answered like others, and its pages are mapped before that.
    let header = CallHeader {
        opcode: u32::MAX,
        bulk_in_bytes: bytes(&ins),
        bulk_out_bytes: bytes(&outs),
        ..Default::default()
    };
    frontend.carry(session, header.as_bytes(), [&ins, &outs])?;
    daemon.wait_until("the sockets are watched", LIMIT, |daemon| {
        daemon.log().contains("attack watches sockets")
    })?;
    has_nothing_of_its_mapper(&daemon)?;
    frontend.show_memory_again()?;
    daemon.wait_until("the attack is over", LIMIT, |daemon| daemon.log().contains("attack over"))?;
    let log = daemon.log();
    let worked: Vec<&str> = log.lines().filter(|line| line.contains("attack worked: ")).collect();
    ensure!(worked.is_empty(), "a worker that was taken over got\n{worked:#?}\n{log}");
    let refused = log.matches("attack refused: ").count();
    ensure!(refused == PAGE_ATTEMPTS, "{refused} attempts were made\n{log}");
    if matches!(list, List::Strict) {
        ensure!(log.contains("the process for mappings runs the attack's code"), "{log}");
    }
    FakeFrontend::behave(&daemon.socket()).context("Others are not served any more")?;
    ensure!(daemon.is_running(), "the daemon has ended\n{log}");
    scene.check()
}

/// The process that maps guest memory has that in its table, and no socket of it is in the worker's.
fn has_nothing_of_its_mapper(daemon: &Daemon) -> Result<()> {
    let mut mappers = 0;
    // That of a worker which starts has not given up the worker's descriptors yet.
    for worker in in_session(daemon) {
        for mapper in children_of(worker) {
            mappers += 1;
            let (own, its) = (open_files(worker)?, open_files(mapper)?);
            ensure!(its.iter().any(|file| file.contains("socket:")), "the mapper {mapper} has {its:?}");
            let shared: Vec<_> =
                its.iter().filter(|file| file.contains("socket:") && own.contains(file)).collect();
            ensure!(shared.is_empty(), "the worker {worker} has the mapper's {shared:?}");
            let memory = own.iter().find(|file| file.contains("fake-frontend"));
            ensure!(memory.is_none(), "the worker {worker} has {memory:?}");
        }
    }
    ensure!(mappers > 0, "no worker has a process for mappings");
    Ok(())
}

/// The targets of a process's descriptors.
fn open_files(process: u32) -> Result<Vec<String>> {
    let entries = fs::read_dir(format!("/proc/{process}/fd"))?;
    // A descriptor may be closed meanwhile.
    let targets = entries.flatten().filter_map(|entry| fs::read_link(entry.path()).ok());
    Ok(targets.map(|target| target.display().to_string()).collect())
}

/// `accepted`: attempts that may work.
fn taken_over(kit: &Kit, list: List, arguments: &[&str], accepted: &[&str]) -> Result<()> {
    taken_over_as(kit, list, arguments, accepted, None)
}

fn taken_over_as(
    kit: &Kit,
    list: List,
    arguments: &[&str],
    accepted: &[&str],
    user: Option<u32>,
) -> Result<()> {
    let scene = Scene::set()?;
    let library = match list {
        List::Strict => kit.stack.emulator(),
        List::Gpu => scene.copy_of(&kit.stack.emulator())?,
    };
    let device = library.display().to_string();
    let arguments = arguments.iter().chain(&["--warm-workers", "2"]).map(ToString::to_string).collect();
    let environment = scene.environment(&library);
    let options = DaemonOptions { device, arguments, environment, user, ..Default::default() };
    let mut daemon = Daemon::start(&kit.stack, &options)?;
    let both = |daemon: &Daemon| daemon.log().matches("attack over").count() >= 2;
    daemon.wait_until("the attacks are over", LIMIT, both)?;
    FakeFrontend::behave(&daemon.socket()).context("Others are not served any more")?;
    let log = daemon.log();
    let worked: Vec<&str> =
        log.lines().filter_map(|line| line.split_once("attack worked: ")).map(|(_, what)| what).collect();
    let accepted: Vec<&str> = accepted.iter().copied().chain(accepted_of(user)).collect();
    let unexpected: Vec<&&str> =
        worked.iter().filter(|what| !accepted.iter().any(|name| what.starts_with(name))).collect();
    ensure!(unexpected.is_empty(), "a worker that was taken over got\n{unexpected:#?}\n{log}");
    if matches!(list, List::Gpu) {
        ensure!(!log.contains("no thread can be named"), "NVIDIA's library would not start\n{log}");
    }
    let refused = log.matches("attack refused: ").count();
    ensure!(refused >= 2 * (ATTEMPTS - accepted.len()), "only {refused} attempts were made\n{log}");
    ensure!(!log.contains(['\x1b', '\r']), "a worker wrote control characters to the log\n{log:?}");
    ensure!(daemon.is_running(), "the daemon has ended\n{log}");
    scene.check()
}

/// Attempts that work in some containers: a root without CAP_SYS_RESOURCE cannot fix a worker's place among the victims,
/// and owns the file.
fn accepted_of(user: Option<u32>) -> Option<&'static str> {
    const SYS_RESOURCE: u64 = 1 << 24;
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective = effective.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).unwrap_or(0);
    // SAFETY: plain system call.
    let is_root = user.is_none() && unsafe { libc::geteuid() } == 0;
    (is_root && effective & SYS_RESOURCE == 0).then_some("another victim for the kernel")
}

/// The files and processes of the host besides the daemon.
struct Scene {
    /// Workers see it, because the linker searches there.
    shown: TempDir,
    hidden: TempDir,
    victim: Child,
    _listeners: [OwnedFd; 3],
}

impl Scene {
    fn set() -> Result<Self> {
        let folder = |prefix| tempfile::Builder::new().prefix(prefix).tempdir();
        let (shown, hidden) = (folder("vhost-cuda-shown-")?, folder("vhost-cuda-hidden-")?);
        // For a daemon of another user.
        fs::set_permissions(shown.path(), fs::Permissions::from_mode(0o755))?;
        let attack = shown.path().join("attack.so");
        match bundle() {
            Some(bundle) => drop(fs::copy(bundle.join(PREBUILT), &attack)?),
            None => compile(&hidden.path().join("attack.c"), &attack)?,
        }
        let at = |name| hidden.path().join(name);
        fs::write(at("secret"), "secret")?;
        let listeners = [
            listen(&SocketAddr::from_pathname(at("stream"))?, libc::SOCK_STREAM)?,
            listen(&SocketAddr::from_pathname(at("packets"))?, libc::SOCK_SEQPACKET)?,
            listen(&SocketAddr::from_abstract_name(abstract_name(&hidden))?, libc::SOCK_SEQPACKET)?,
        ];
        let victim = Command::new("sleep").arg("300").stdin(Stdio::null()).spawn()?;
        Ok(Self { shown, hidden, victim, _listeners: listeners })
    }

    /// The emulator at another place than the daemon expects it at.
    fn copy_of(&self, emulator: &Path) -> Result<PathBuf> {
        let copy = self.shown.path().join("libcuda.so.1");
        fs::copy(emulator, &copy)?;
        Ok(copy)
    }

    fn environment(&self, library: &Path) -> Vec<(String, String)> {
        let text = |path: PathBuf| path.display().to_string();
        let hidden = |name| text(self.hidden.path().join(name));
        [
            ("LD_PRELOAD", text(self.shown.path().join("attack.so"))),
            ("LD_LIBRARY_PATH", text(self.shown.path().into())),
            ("VHOST_CUDA_ATTACK_VICTIM", self.victim.id().to_string()),
            ("VHOST_CUDA_ATTACK_FOLDER", hidden("")),
            ("VHOST_CUDA_ATTACK_SECRET", hidden("secret")),
            ("VHOST_CUDA_ATTACK_LIBRARY", text(library.into())),
            ("VHOST_CUDA_ATTACK_STREAM", hidden("stream")),
            ("VHOST_CUDA_ATTACK_PACKETS", hidden("packets")),
            ("VHOST_CUDA_ATTACK_ABSTRACT", abstract_name(&self.hidden)),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .to_vec()
    }

    fn check(mut self) -> Result<()> {
        ensure!(self.victim.try_wait()?.is_none(), "another process of the user was ended");
        let secret = fs::read_to_string(self.hidden.path().join("secret")).unwrap_or_default();
        ensure!(secret == "secret", "another file of the user was changed: {secret:?}");
        Ok(())
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = self.victim.kill();
        let _ = self.victim.wait();
    }
}

fn compile(source: &Path, library: &Path) -> Result<()> {
    fs::write(source, SOURCE)?;
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-o"]).arg(library).arg(source);
    let output = cc.output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

fn abstract_name(folder: &TempDir) -> String {
    folder.path().display().to_string()
}

/// A listening local socket of any type, which the standard library does not make.
fn listen(address: &SocketAddr, kind: libc::c_int) -> Result<OwnedFd> {
    // SAFETY: all-zero is a valid address.
    let mut name: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    name.sun_family = libc::AF_UNIX as libc::sa_family_t;
    let (bytes, skipped) = match (address.as_pathname(), address.as_abstract_name()) {
        (Some(path), _) => (path.as_os_str().as_encoded_bytes().to_vec(), 0),
        (None, Some(name)) => (name.to_vec(), 1),
        (None, None) => bail!("an address without a name"),
    };
    ensure!(bytes.len() + 1 < name.sun_path.len(), "the temporary folder's name is too long for a socket");
    for (to, from) in name.sun_path[skipped..].iter_mut().zip(&bytes) {
        *to = *from as libc::c_char;
    }
    let length = std::mem::offset_of!(libc::sockaddr_un, sun_path) + bytes.len() + 1;
    // SAFETY: the address is a local and longer than `length`; the new descriptor is owned by the result alone.
    unsafe {
        let socket = libc::socket(libc::AF_UNIX, kind | libc::SOCK_CLOEXEC, 0);
        ensure!(socket >= 0, "{}", std::io::Error::last_os_error());
        let socket = OwnedFd::from_raw_fd(socket);
        let bound = libc::bind(socket.as_raw_fd(), (&raw const name).cast(), length as libc::socklen_t);
        ensure!(
            bound == 0 && libc::listen(socket.as_raw_fd(), 64) == 0,
            "{}",
            std::io::Error::last_os_error()
        );
        Ok(socket)
    }
}
