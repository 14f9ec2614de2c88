// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The daemon: listens, and serves each connection by itself.

use std::collections::HashMap;
use std::os::fd::FromRawFd;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, bail};
use log::{error, info, warn};
use vhost::vhost_user::{Error as VhostUserError, Listener};
use vhost_user_backend::{Error as BackendError, VhostUserDaemon};
use vm_memory::GuestMemoryBackend;

use crate::args::DaemonArgs;
use crate::backend::Backend;
use crate::cache::ImageCache;
use crate::device::{Device, Settings};
use crate::exchange::Exchange;
use crate::library;
use crate::memory::{Memory, SharedMemory};
use crate::pool::WorkerPool;
use crate::process::WorkerSpec;
use crate::sigbus;

/// Pause after a failed accept, as when the process is out of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

/// What the capabilities option prints (docs/interop/vhost-user.rst of QEMU, "Backend programs").
pub const CAPABILITIES: &str = "{\n  \"type\": \"cuda\"\n}";

/// Devices that are connected, to end them with the daemon.
type Devices = Arc<Mutex<HashMap<u64, Arc<Device>>>>;

/// Enough for half of the link's speed; the other CPUs are for the guests.
fn default_copy_threads() -> u32 {
    let cpus = thread::available_parallelism().map_or(1, usize::from);
    (cpus / 2).clamp(1, 4) as u32
}

/// Runs the daemon until a signal ends it.
pub fn run(args: &DaemonArgs) -> anyhow::Result<()> {
    let library = library::find(&args.device)?;
    let signals = Signals::block()?;
    sigbus::install().context("Cannot handle SIGBUS")?;
    let (listener, socket) = listen(args)?;
    info!("executing CUDA calls with {}", library.display());
    let spec = WorkerSpec {
        sandbox: args.sandbox,
        emulated: library::is_emulator(&library),
        library,
        memory_limit: args.memory_limit,
        copy_threads: args.copy_threads.unwrap_or_else(default_copy_threads),
        log_level: args.log_level.clone(),
    };
    let pool = WorkerPool::start(spec, args.warm_workers as usize).context("Cannot start the worker pool")?;
    let images = ImageCache::new(args.image_cache);
    let exchange = Exchange::new();
    let settings = Arc::new(Settings {
        num_queues: args.num_queues,
        max_sessions: args.max_sessions,
        max_user_sessions: args.max_user_sessions.unwrap_or((args.max_sessions / 2).max(1)),
        images,
        exchange,
        pool,
    });
    let devices = Devices::default();

    let (accepting, common) = (devices.clone(), settings.clone());
    thread::Builder::new()
        .name("accept".into())
        .spawn(move || accept_all(listener, &common, &accepting))
        .context("Cannot start the accepting thread")?;

    let name = signals.wait();
    info!("ending on {name}");
    if let Some(socket) = socket {
        let _ = std::fs::remove_file(socket);
    }
    let connected: Vec<_> = lock(&devices).values().cloned().collect();
    for device in connected {
        device.shut_down();
    }
    settings.pool.stop();
    Ok(())
}

fn listen(args: &DaemonArgs) -> anyhow::Result<(Listener, Option<PathBuf>)> {
    match (&args.socket_path, args.fd) {
        (Some(path), _) => {
            let listener = bind(path).with_context(|| format!("Cannot listen on {}", path.display()))?;
            info!("listening on {}", path.display());
            Ok((Listener::from(listener), Some(path.clone())))
        }
        (None, Some(fd)) => {
            let mut kind = 0;
            let mut bytes = size_of::<libc::c_int>() as libc::socklen_t;
            // SAFETY: both pointers are to locals of the sizes given; a bad `fd` is answered with an error.
            let failed = unsafe {
                libc::getsockopt(
                    fd,
                    libc::SOL_SOCKET,
                    libc::SO_ACCEPTCONN,
                    (&raw mut kind).cast(),
                    &raw mut bytes,
                )
            } != 0;
            if failed || kind == 0 {
                bail!("--fd {fd}: not a listening socket that this process inherited");
            }
            // SAFETY: it is open (checked above), and whoever started this process gave it for this use only.
            Ok((Listener::from(unsafe { UnixListener::from_raw_fd(fd) }), None))
        }
        (None, None) => bail!("Say where to listen: --socket-path PATH (or --fd N)"),
    }
}

/// Binds `path`. A socket there that nobody serves any more is replaced; anything else is left alone.
fn bind(path: &Path) -> std::io::Result<UnixListener> {
    use std::os::unix::fs::FileTypeExt;
    let stale = std::fs::symlink_metadata(path).is_ok_and(|meta| meta.file_type().is_socket())
        && std::os::unix::net::UnixStream::connect(path)
            .is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionRefused);
    if stale {
        std::fs::remove_file(path)?;
    }
    UnixListener::bind(path)
}

fn accept_all(mut listener: Listener, settings: &Arc<Settings>, devices: &Devices) {
    for connection in 1.. {
        if let Err(error) = accept(connection, &mut listener, settings, devices) {
            error!("connection {connection}: {error:#}");
            thread::sleep(ACCEPT_PAUSE);
        }
    }
}

/// Waits for one front-end and starts to serve it.
fn accept(
    connection: u64,
    listener: &mut Listener,
    settings: &Arc<Settings>,
    devices: &Devices,
) -> anyhow::Result<()> {
    let device = Device::new(connection, settings.clone());
    let backend = Backend::new(device.clone());
    let memory = SharedMemory::new(Memory::new());
    let name = format!("vhost-user-{connection}");
    let mut daemon = VhostUserDaemon::new(name, backend.clone(), memory).map_err(describe)?;
    if let Err(error) = daemon.start(listener) {
        drop(daemon);
        backend.close_exit_events();
        return Err(describe(error));
    }
    info!("connection {connection}: front-end connected");
    lock(devices).insert(connection, device.clone());
    let devices = devices.clone();
    thread::Builder::new()
        .name(format!("connection-{connection}"))
        .spawn(move || {
            let result = daemon.wait();
            device.shut_down();
            // Joins the queues' threads.
            drop(daemon);
            backend.close_exit_events();
            lock(&devices).remove(&connection);
            report(connection, &device, result);
        })
        .context("Cannot start a thread for the connection")?;
    Ok(())
}

/// The library's errors do not implement `Error`.
fn describe(error: BackendError) -> anyhow::Error {
    anyhow::anyhow!("{error}")
}

fn report(connection: u64, device: &Device, result: Result<(), BackendError>) {
    use VhostUserError as Cause;
    let shrunk = sigbus::take_patched();
    if shrunk > 0 {
        warn!("connection {connection}: {shrunk} pages of guest memory were gone: its file was cut short");
    }
    match result {
        Ok(())
        | Err(BackendError::HandleRequest(
            Cause::Disconnected | Cause::PartialMessage | Cause::SocketBroken(_),
        )) => info!("connection {connection}: front-end disconnected"),
        Err(BackendError::HandleRequest(cause)) if memory_not_shared(device, &cause) => error!(
            "connection {connection}: {cause}: the queues do not lie in memory that is shared with this process. \
             QEMU needs `-object memory-backend-memfd,id=mem,size=SIZE,share=on` and `-machine memory-backend=mem`"
        ),
        Err(cause) => warn!("connection {connection}: dropped: {cause}"),
    }
}

/// Whether the front-end set up queues without having shared the memory that they lie in.
fn memory_not_shared(device: &Device, cause: &VhostUserError) -> bool {
    match cause {
        // The library's answer to a queue's address when it has no memory at all.
        VhostUserError::InvalidParam => device.memory().is_none_or(|memory| memory.num_regions() == 0),
        VhostUserError::ReqHandlerError(error) => error.to_string().contains("Missing memory mapping"),
        _ => false,
    }
}

/// SIGINT and SIGTERM, blocked in every thread and taken by one.
struct Signals(libc::sigset_t);

impl Signals {
    /// To be called before any thread is started.
    fn block() -> anyhow::Result<Self> {
        let mut set = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: sigemptyset initialises the set that the other calls read.
        let (set, failed) = unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            libc::sigaddset(set.as_mut_ptr(), libc::SIGINT);
            libc::sigaddset(set.as_mut_ptr(), libc::SIGTERM);
            let set = set.assume_init();
            (set, libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()))
        };
        if failed != 0 { bail!("Cannot block signals") } else { Ok(Self(set)) }
    }

    /// Waits for one; its name.
    fn wait(&self) -> &'static str {
        let mut signal = 0;
        // SAFETY: the set is initialised, `signal` is a local.
        unsafe { libc::sigwait(&raw const self.0, &raw mut signal) };
        if signal == libc::SIGINT { "SIGINT" } else { "SIGTERM" }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
