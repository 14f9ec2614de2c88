// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The daemon: listens, and serves each connection independently.

use std::collections::HashMap;
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use log::{Level, error, info, log, warn};
use parking_lot::Mutex;
use vhost::vhost_user::{Error as VhostUserError, Listener};
use vhost_user_backend::{Error as BackendError, VhostUserDaemon};
use vm_memory::{GuestMemoryBackend, GuestMemoryRegion};

use crate::args::{DaemonArgs, GuestPages, Namespaces, Sandbox};
use crate::cache::ImageCache;
use crate::confine::{own, threads};
use crate::control::server as control;
use crate::exchange::Exchange;
use crate::front_end::backend::Backend;
use crate::front_end::device::{Device, END_PATIENCE, Settings};
use crate::front_end::memory::{Memory, SharedMemory};
use crate::front_end::sigbus;
use crate::limits::budget::Charge;
use crate::limits::cgroup::{Cgroups, MachineLimits};
use crate::limits::descriptors::Descriptors;
use crate::limits::room;
use crate::limits::throttle::Throttle;
use crate::limits::watchdog::{self, Limits};
use crate::metrics::{gpu_time, server, text};
use crate::sessions::endings::Endings;
use crate::sessions::library;
use crate::sessions::messages::Messages;
use crate::sessions::pool::WorkerPool;
use crate::sessions::predecessor::WorkerLock;
use crate::sessions::process::WorkerSpec;
use crate::shares::client::Client;
use crate::socket::remove_stale;
use crate::suspend::suspender::{Options, Suspender};
use crate::worker::{mappings_can_be_guarded, sandbox};

/// The pause after a failed accept, for example when the process has no descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);
/// Limits messages about front-ends that connect and disconnect: each virtio-user process is one.
static CONNECTIONS: Throttle = Throttle::new(50, Duration::from_secs(10));
/// Limits messages about front-ends that could not be served.
static REFUSALS: Throttle = Throttle::new(3, Duration::from_secs(60));

/// The time for a front-end to disconnect before the next one is refused. A VMM or program that is restarted connects
/// at once, while the workers of the previous one are ending.
const PARTING: Duration = Duration::from_secs(2);

/// The output of the capabilities option (docs/interop/vhost-user.rst of QEMU, "Backend programs").
pub const CAPABILITIES: &str = "{\n  \"type\": \"cuda\"\n}";

/// The values that a connection's thread gets once a front-end has connected.
type Served = (VhostUserDaemon<Arc<Backend>>, Arc<Backend>);

/// Connected devices, to end them with the daemon.
type Devices = Arc<Mutex<HashMap<u64, Arc<Device>>>>;

/// Returns the number of threads that reach half of the link's speed. The other CPUs are left to the guests.
fn default_copy_threads() -> u32 {
    let cpus = thread::available_parallelism().map_or(1, usize::from);
    (cpus / 2).clamp(1, 4) as u32
}

/// Runs the daemon until a signal ends it.
pub fn run(args: &DaemonArgs) -> anyhow::Result<()> {
    own::check_user(args.allow_root)?;
    let library = library::find(&args.device)?;
    let wanted = args.namespaces != Namespaces::Off && args.sandbox != Sandbox::Off;
    if !wanted && args.namespaces == Namespaces::Require {
        bail!("--namespaces require does not go with --sandbox off");
    }
    // While the process has one thread.
    let namespaces = if wanted { own::may_make_namespaces().map_err(Into::into) } else { Ok(()) };
    own::hide_memory()?;
    let signals = Signals::block()?;
    sigbus::install().context("Cannot handle SIGBUS")?;
    threads::start(args.sandbox).context("Cannot start the thread for calls of confined ones")?;
    let descriptors = Descriptors::share_out(args.num_queues, args.max_sessions, args.warm_workers)?;
    let Listening { listener, socket, workers } = listen(args)?;
    info!("executing CUDA calls with {}", library.display());
    // Before workers are started, which begin in the daemon's group.
    let limits = MachineLimits { memory: args.host_memory, cpu_weight: args.cpu_weight };
    let cgroups = Cgroups::open(&args.cgroup, limits)?;
    let emulated = library::is_emulator(&library);
    let libraries = library::vendor_folders(&args.libraries, emulated)?;
    let shares = args.arbiter.as_ref().map(|path| Client::start(path.clone(), args.share));
    let shares = shares.transpose().context("Cannot start the thread for shares")?;
    let guest_pages = guest_pages_of(args)?;
    let spec = WorkerSpec {
        libraries,
        nccl: args.nccl,
        sandbox: args.sandbox,
        speed: args.speed,
        emulated,
        library,
        memory_limit: args.session_memory,
        gpus: args.gpus.clone(),
        copy_threads: args.copy_threads.unwrap_or_else(default_copy_threads),
        log_level: args.log_level.clone(),
        lock: workers,
        messages: Messages::start().context("Cannot read the messages of workers")?,
        allow_pageable_access: args.allow_pageable_access,
        namespaces: wanted,
        named_pages: guest_pages != GuestPages::All,
        time_limit: args.time_limit,
        shares: shares.clone(),
    };
    let pool = start_pool(args, spec, namespaces)?;
    let images = ImageCache::new(args.image_cache);
    let exchange = Exchange::new();
    let endings = Arc::<Endings>::default();
    let options = Options {
        after: args.suspend_after,
        idle: args.suspend_idle,
        floor: args.suspend_floor,
        host_memory: args.suspend_memory,
        keep: args.keep_contents,
    };
    let suspender = Suspender::start(options, endings.clone(), shares.clone())
        .context("Cannot start the threads for suspended sessions")?;
    let settings = Arc::new(Settings {
        num_queues: args.num_queues,
        max_sessions: args.max_sessions,
        memory: args.memory,
        cgroups,
        session_rate: args.session_rate,
        max_user_sessions: args.max_user_sessions.unwrap_or((args.max_sessions / 2).max(1)),
        guest_pages,
        lose_sessions: args.lose_sessions,
        suspend_with_machine: args.suspend_with_machine,
        images,
        exchange,
        endings,
        suspender: suspender.clone(),
        descriptors,
        pool,
    });
    let devices = Devices::default();

    let watched = devices.clone();
    sigbus::watch(move |lost| drop_those_without_memory(&watched, lost))
        .context("Cannot watch guest memory")?;
    let (accepting, common, single) = (devices.clone(), settings.clone(), args.single);
    thread::Builder::new()
        .name("accept".into())
        .spawn(move || accept_all(listener, single, &common, &accepting))
        .context("Cannot start the accepting thread")?;

    let (reported, common) = (devices.clone(), settings.clone());
    let page = move || {
        let connected: Vec<_> = reported.lock().values().cloned().collect();
        let mut reports: Vec<_> = connected.iter().map(|device| device.report()).collect();
        reports.sort_by_key(|device| device.connection);
        let share = shares.as_ref().map(|shares| shares.report());
        text::write(&common.pool.report(), share.as_ref(), &reports)
    };
    let _metrics = args.metrics.as_ref().map(|address| server::start(address, page)).transpose()?;
    let _control = args.control.as_ref().map(|path| control::start(path, suspender)).transpose()?;
    if args.metrics.is_some() && !emulated {
        let measured = devices.clone();
        let sessions = move || measured.lock().values().flat_map(|device| device.sessions()).collect();
        gpu_time::start(sessions).context("Cannot start the thread for GPU time")?;
    }

    if !emulated {
        let limits = Limits { session: args.session_memory, machine: args.memory };
        let (watched, common) = (devices.clone(), settings.clone());
        let machines =
            move || watched.lock().values().map(|device| (device.connection, device.sessions())).collect();
        let warm = move || common.pool.warm();
        watchdog::start(limits, machines, warm).context("Cannot start the watchdog")?;
    }

    let name = signals.wait();
    info!("ending on {name}");
    if let Some(socket) = socket {
        let _ = std::fs::remove_file(socket);
    }
    let connected: Vec<_> = devices.lock().values().cloned().collect();
    // All are ended at once, and then waited for one after the other.
    for device in &connected {
        device.abandon();
    }
    let deadline = Instant::now() + END_PATIENCE;
    let ended: Vec<bool> = connected.iter().map(|device| device.shut_down(deadline)).collect();
    settings.pool.stop();
    if ended.iter().all(|&ended| ended) {
        Ok(())
    } else {
        bail!("Workers are left behind: the next daemon on this socket waits for them")
    }
}

/// Returns the guest pages that workers can map on this host, and logs what is missing for `named`.
fn guest_pages_of(args: &DaemonArgs) -> anyhow::Result<GuestPages> {
    match (args.guest_pages, mappings_can_be_guarded()) {
        (GuestPages::Auto, _) if args.sandbox == Sandbox::Off => Ok(GuestPages::All),
        (GuestPages::Auto, Err(error)) => {
            warn!(
                "this host does not let the daemon decide over a worker's mappings ({error}): a worker that a guest has                  taken over reaches all memory of its virtual machine"
            );
            Ok(GuestPages::All)
        }
        (GuestPages::Named, Err(error)) => {
            Err(error).context("This host does not let the daemon decide over mappings (--guest-pages named)")
        }
        (pages, _) => Ok(pages),
    }
}

/// Starts the pool, without namespaces where the host does not have them (`unless`) and the operator does not require
/// them. Logs what is missing.
fn start_pool(args: &DaemonArgs, spec: WorkerSpec, unless: anyhow::Result<()>) -> anyhow::Result<WorkerPool> {
    let warm = args.warm_workers as usize;
    if args.sandbox != Sandbox::Off && !sandbox::files_can_be_bounded() {
        warn!(
            "this kernel has no Landlock: a worker that a guest has taken over reaches what its namespaces and the \
             filter of system calls leave it (docs/confinement.md)"
        );
    }
    let without = || WorkerSpec { namespaces: false, ..spec.clone() };
    let pool = if spec.namespaces {
        match unless.and_then(|()| WorkerPool::start(spec.clone(), warm)) {
            Err(error) if args.namespaces == Namespaces::Auto => {
                warn!(
                    "workers have no namespaces of their own, because this host does not allow it ({error:#}): a \
                     worker that a guest has taken over sees other processes and local sockets of this user"
                );
                WorkerPool::start(without(), warm)
            }
            result => result.context("Cannot make namespaces for workers (--namespaces require)"),
        }
    } else {
        WorkerPool::start(without(), warm)
    };
    pool.context("Cannot start the worker pool")
}

/// The socket that the daemon listens on.
struct Listening {
    listener: Listener,
    /// The socket to remove at the end.
    socket: Option<PathBuf>,
    workers: Option<WorkerLock>,
}

/// Disconnects front-ends whose memory was lost, because their mappings no longer contain the guest's data.
fn drop_those_without_memory(devices: &Devices, lost: &[Range<usize>]) {
    let connected: Vec<_> = devices.lock().values().cloned().collect();
    for device in connected {
        let Some(memory) = device.memory() else { continue };
        let is_lost = memory.iter().any(|region| {
            let start = region.as_ptr() as usize;
            lost.iter().any(|lost| lost.start < start + region.len() as usize && start < lost.end)
        });
        if is_lost {
            let connection = device.connection;
            log!(
                REFUSALS.level(Level::Warn),
                "connection {connection}: dropped: guest memory is gone, its file was cut short"
            );
            device.abandon();
            device.hang_up();
        }
    }
}

fn listen(args: &DaemonArgs) -> anyhow::Result<Listening> {
    match (&args.socket_path, args.fd) {
        (Some(path), _) => {
            let cannot = || format!("Cannot listen on {}", path.display());
            remove_stale(path).with_context(cannot)?;
            // Before any VMM can connect, because a VMM that connects waits for the first answer.
            let workers = lock_of_workers(args, Some(path))?;
            let listener = UnixListener::bind(path).with_context(cannot)?;
            info!("listening on {}", path.display());
            Ok(Listening { listener: listener.into(), socket: Some(path.clone()), workers })
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
            let listener = unsafe { UnixListener::from_raw_fd(fd) };
            let path = listener.local_addr().ok().and_then(|addr| addr.as_pathname().map(Path::to_path_buf));
            let workers = lock_of_workers(args, path.as_deref())?;
            Ok(Listening { listener: listener.into(), socket: None, workers })
        }
        (None, None) => bail!("Say where to listen: --socket-path PATH (or --fd N)"),
    }
}

/// Waits for the workers of earlier daemons. Returns `None` without `--workers-lock` and without a socket path.
fn lock_of_workers(args: &DaemonArgs, socket: Option<&Path>) -> anyhow::Result<Option<WorkerLock>> {
    let path = args.workers_lock.clone().or_else(|| socket.map(WorkerLock::beside));
    path.map(|path| WorkerLock::wait(&path)).transpose()
}

fn accept_all(mut listener: Listener, single: bool, settings: &Arc<Settings>, devices: &Devices) {
    for connection in 1.. {
        wait_for_front_end(&listener);
        if single && !wait_turn(devices) {
            // Disconnected at once, because a waiting VMM does nothing else.
            drop(listener.accept());
            warn!(
                "connection {connection}: refused: another front-end is connected. Start a daemon for each virtual \
                 machine, or this one with --single=false"
            );
            continue;
        }
        if let Err(error) = accept(connection, &mut listener, settings, devices) {
            log!(REFUSALS.level(Level::Error), "connection {connection}: {error:#}");
            thread::sleep(ACCEPT_PAUSE);
        }
    }
}

/// Waits until a front-end connects. Resources for it are checked afterwards.
fn wait_for_front_end(listener: &Listener) {
    let mut poll = libc::pollfd { fd: listener.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one entry, which is a local. Interrupted, it is asked again; after an error accept says what is wrong.
    while unsafe { libc::poll(&raw mut poll, 1, -1) } < 0
        && std::io::Error::last_os_error().kind() == std::io::ErrorKind::Interrupted
    {}
}

/// Waits until the previous front-end has disconnected. Returns false if it stays.
fn wait_turn(devices: &Devices) -> bool {
    let deadline = Instant::now() + PARTING;
    while !devices.lock().is_empty() {
        if Instant::now() >= deadline {
            return false;
        }
        thread::sleep(PARTING / 200);
    }
    true
}

/// Waits for one front-end and starts to serve it.
fn accept(
    connection: u64,
    listener: &mut Listener,
    settings: &Arc<Settings>,
    devices: &Devices,
) -> anyhow::Result<()> {
    let shortage = match settings.descriptors.budget.charge(settings.descriptors.connection) {
        None => "descriptors".to_owned(),
        Some(charge) => match room::check() {
            Ok(()) => return serve(connection, listener, settings, devices, charge),
            Err(error) => format!("address space ({error}): {}", room::HINT),
        },
    };
    // Disconnected at once, because a waiting VMM does nothing else.
    drop(listener.accept().map_err(|error| anyhow::anyhow!("{error}"))?);
    log!(REFUSALS.level(Level::Error), "connection {connection}: refused: the daemon is out of {shortage}");
    Ok(())
}

/// As [`accept`], if there are resources for it.
fn serve(
    connection: u64,
    listener: &mut Listener,
    settings: &Arc<Settings>,
    devices: &Devices,
    charge: Charge,
) -> anyhow::Result<()> {
    let device = Device::new(connection, settings.clone());
    let ((mut daemon, backend), serving) = match prepare(connection, &device, devices, charge) {
        Ok(prepared) => prepared,
        Err(error) => {
            drop(listener.accept());
            return Err(error.context("refused"));
        }
    };
    if let Err(error) = daemon.start(listener) {
        drop(daemon);
        backend.close_exit_events();
        return Err(describe(error));
    }
    log!(CONNECTIONS.level(Level::Info), "connection {connection}: front-end connected");
    devices.lock().insert(connection, device.clone());
    if let Some(handle) = daemon.shutdown_handle() {
        device.connected(handle);
    }
    // The thread waits for it.
    let _ = serving.send((daemon, backend));
    Ok(())
}

/// Creates all that serves a front-end before one is accepted, so that a failure does no harm.
fn prepare(
    connection: u64,
    device: &Arc<Device>,
    devices: &Devices,
    charge: Charge,
) -> anyhow::Result<(Served, Sender<Served>)> {
    let (serving, served) = channel::<Served>();
    let (ending, devices) = (device.clone(), devices.clone());
    thread::Builder::new()
        .name(format!("connection-{connection}"))
        .spawn(move || {
            let Ok((mut daemon, backend)) = served.recv() else { return };
            let result = daemon.wait();
            ending.shut_down(Instant::now() + END_PATIENCE);
            // Joins the queues' threads.
            drop(daemon);
            backend.close_exit_events();
            drop(charge);
            devices.lock().remove(&connection);
            report(connection, &ending, result);
        })
        .context("Cannot start a thread for the connection")?;
    let backend = Backend::new(device.clone());
    let memory = SharedMemory::new(Memory::new());
    let name = format!("vhost-user-{connection}");
    let daemon = VhostUserDaemon::new(name, backend.clone(), memory).map_err(|error| {
        backend.end_threads();
        describe(error)
    })?;
    Ok(((daemon, backend), serving))
}

/// Formats an error of the library, which does not implement `Error`.
fn describe(error: BackendError) -> anyhow::Error {
    anyhow::anyhow!("{error}")
}

fn report(connection: u64, device: &Device, result: Result<(), BackendError>) {
    use VhostUserError as Cause;
    match result {
        Ok(())
        | Err(BackendError::HandleRequest(
            Cause::Disconnected | Cause::PartialMessage | Cause::SocketBroken(_),
        )) => log!(CONNECTIONS.level(Level::Info), "connection {connection}: front-end disconnected"),
        Err(BackendError::HandleRequest(cause)) if memory_not_shared(device, &cause) => error!(
            "connection {connection}: {cause}: the queues do not lie in memory that is shared with this process. \
             QEMU needs `-object memory-backend-memfd,id=mem,size=SIZE,share=on` and `-machine memory-backend=mem`"
        ),
        Err(cause) => log!(CONNECTIONS.level(Level::Warn), "connection {connection}: dropped: {cause}"),
    }
}

/// Returns whether the front-end set up queues without having shared the memory that contains them.
fn memory_not_shared(device: &Device, cause: &VhostUserError) -> bool {
    match cause {
        // The library's error for a queue's address when it has no memory at all.
        VhostUserError::InvalidParam => device.memory().is_none_or(|memory| memory.num_regions() == 0),
        VhostUserError::ReqHandlerError(error) => error.to_string().contains("Missing memory mapping"),
        _ => false,
    }
}

/// SIGINT and SIGTERM, blocked in every thread and received by one.
struct Signals(libc::sigset_t);

impl Signals {
    /// Must be called before any thread is started.
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

    /// Waits for a signal, and returns its name.
    fn wait(&self) -> &'static str {
        let mut signal = 0;
        // SAFETY: the set is initialised, `signal` is a local.
        unsafe { libc::sigwait(&raw const self.0, &raw mut signal) };
        if signal == libc::SIGINT { "SIGINT" } else { "SIGTERM" }
    }
}
