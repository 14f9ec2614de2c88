// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The daemon: listens, and serves each connection independently.

pub mod connections;

use std::ffi::OsString;
use std::ops::Range;
use std::os::fd::FromRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use log::{Level, error, info, log, warn};
use vhost::vhost_user::Listener;
use vhost_cuda_common::args::Sandbox;
use vhost_cuda_common::confine::rights;
use vhost_cuda_common::mapping;
use vm_memory::{GuestMemoryBackend, GuestMemoryRegion};

use crate::args::{DaemonArgs, Namespaces as NamespacesOption};
use crate::cache::ImageCache;
use crate::confine::namespaces::Namespaces;
use crate::confine::{own, threads};
use crate::control::{server as control, trace};
use crate::exchange::Exchange;
use crate::front_end::device::{END_PATIENCE, Settings};
use crate::front_end::sigbus;
use crate::guest::memory::GuestPages;
use crate::hand_over::files::Leaving;
use crate::hand_over::freeze;
use crate::hand_over::main_thread::{self, Tasks};
use crate::limits::cgroup::{Cgroups, MachineLimits};
use crate::limits::descriptors::Descriptors;
use crate::metrics::{gpu_time, server, text};
use crate::replace::enter::{Entry, log_result, own_program};
use crate::replace::leave::{self, Replacer, Sockets};
use crate::sessions::endings::Endings;
use crate::sessions::library;
use crate::sessions::messages::Messages;
use crate::sessions::pool::WorkerPool;
use crate::sessions::predecessor::WorkerLock;
use crate::sessions::process::WorkerSpec;
use crate::sessions::residence::MoveError;
use crate::sessions::watchdog::{self, Limits};
use crate::shares::client::Client;
use crate::socket::remove_stale;
use crate::suspend::files::Folder;
use crate::suspend::suspender::{Options, Suspender};
use connections::{Devices, REFUSALS, accept_all};

/// The output of the capabilities option (docs/interop/vhost-user.rst of QEMU, "Backend programs").
pub const CAPABILITIES: &str = "{\n  \"type\": \"cuda\"\n}";

/// The time for all front-ends of the program before this one. Those that are left then are disconnected.
const TAKING_OVER: Duration = Duration::from_secs(15);

/// Returns the number of threads that reach half of the link's speed. The other CPUs are left to the guests.
fn default_copy_threads() -> u32 {
    let cpus = thread::available_parallelism().map_or(1, usize::from);
    (cpus / 2).clamp(1, 4) as u32
}

/// Runs the daemon until a signal ends it.
pub fn run(args: &DaemonArgs) -> anyhow::Result<()> {
    let mut entry = Entry::receive(args)?;
    match start(args, &mut entry) {
        Ok(running) => running.run(args, entry),
        Err(error) => Err(match entry {
            Some(entry) => entry.go_back(error),
            None => error,
        }),
    }
}

/// A daemon that is about to serve.
struct Running {
    program: OsString,
    tasks: Tasks,
    signals: Signals,
    emulated: bool,
    listener: UnixListener,
    socket: Option<PathBuf>,
    control: Option<UnixListener>,
    spec: WorkerSpec,
    shares: Option<Arc<Client>>,
    settings: Arc<Settings>,
}

/// Does all that may fail. Until then the program before this one can go on with what `entry` has.
fn start(args: &DaemonArgs, entry: &mut Option<Entry>) -> anyhow::Result<Running> {
    if let Some(entry) = entry {
        // It has what belongs to guests already.
        own::hide_memory()?;
        own::drop_ambient()?;
        entry.state.check(args)?;
    }
    let program = entry.as_ref().map_or_else(own_program, |entry| Ok(entry.program()))?;
    own::check_user(args.allow_root)?;
    let library = library::find(&args.device)?;
    let wanted = args.namespaces != NamespacesOption::Off && args.sandbox != Sandbox::Off;
    if !wanted && args.namespaces == NamespacesOption::Require {
        bail!("--namespaces require does not go with --sandbox off");
    }
    // While the process has one thread.
    let namespaces = if wanted { own::may_make_namespaces().map_err(Into::into) } else { Ok(()) };
    // Not before, because the maps of a user namespace can be written by a process only that is not hidden.
    own::hide_memory()?;
    let tasks = main_thread::start();
    let signals = Signals::block()?;
    sigbus::install().context("Cannot handle SIGBUS")?;
    threads::start(args.sandbox).context("Cannot start the thread for calls of confined ones")?;
    let descriptors = Descriptors::share_out(args.num_queues, args.max_sessions, args.warm_workers)?;
    let Listening { listener, socket, workers } = match entry {
        Some(entry) => listen_again(args, entry)?,
        None => listen(args)?,
    };
    info!("executing CUDA calls with {}", library.display());
    // Before workers are started, which begin in the daemon's group.
    let limits = MachineLimits { memory: args.host_memory, cpu_weight: args.cpu_weight };
    let before = entry.as_ref().and_then(|entry| entry.state.cgroups.as_deref());
    let cgroups = Cgroups::open(&args.cgroup, limits, before)?;
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
    // Before workers are started, since going back to another program leaves none behind.
    let before = entry.as_mut().and_then(|entry| Some((entry.state.control?, &mut entry.files)));
    let control = match (&args.control, before) {
        (Some(_), Some((control, files))) => Some(files.take(control)?.into()),
        (Some(path), None) => Some(control::listen(path)?),
        (None, _) => None,
    };
    let previous = match entry {
        Some(entry) => {
            entry.state.namespaces.map(|saved| Namespaces::restore(saved, &mut entry.files)).transpose()?
        }
        None => None,
    };
    let (spec, pool) = start_pool(args, spec, namespaces, previous)?;
    let contents = args.contents.as_deref().map(|path| {
        Folder::open(path).with_context(|| format!("Cannot use {} (--contents)", path.display()))
    });
    let contents = contents.transpose()?;
    let images = ImageCache::new(args.image_cache);
    let exchange = Exchange::new();
    let endings = Arc::<Endings>::default();
    let options = Options {
        after: args.suspend_after,
        idle: args.suspend_idle,
        floor: args.suspend_floor,
        most: [args.memory, args.session_memory].into_iter().flatten().min(),
        host_memory: args.suspend_memory,
        pool: args.suspend_pool,
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
        contents,
        suspend_with_machine: args.suspend_with_machine,
        images,
        exchange,
        endings,
        suspender: suspender.clone(),
        descriptors,
        record: trace::for_guest,
        pool,
    });
    Ok(Running { program, tasks, signals, emulated, listener, socket, control, spec, shares, settings })
}

impl Running {
    /// Serves until a signal ends the daemon, beginning with what the program before this one has left in `entry`.
    fn run(self, args: &DaemonArgs, entry: Option<Entry>) -> anyhow::Result<()> {
        let Self { program, tasks, signals, emulated, listener, socket, control, spec, shares, settings } =
            self;
        let suspender = settings.suspender.clone();
        let devices = Devices::default();

        let watched = devices.clone();
        sigbus::watch(move |lost| drop_those_without_memory(&watched, lost))
            .context("Cannot watch guest memory")?;
        let mut files = Leaving::default();
        let sockets = Sockets {
            listener: files.add(&listener),
            path: socket.clone(),
            control: control.as_ref().map(|control| files.add(control)),
        };
        let replacer = Replacer::new(args, program, sockets, files, settings.clone(), devices.clone())
            .context("Cannot open this program")?;
        let replacer = Arc::new(replacer);
        let asker = entry.and_then(|entry| take_over(args, entry, &spec, &settings, &devices));
        let (accepting, common, single) = (devices.clone(), settings.clone(), args.single);
        let listener = Listener::from(listener);
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
        let metrics = args.metrics.as_ref().map(|address| server::start(address, page)).transpose();
        let _metrics = match metrics {
            // Programs run already.
            Err(error) if args.take_over.is_some() => {
                error!("no metrics: {error:#}");
                None
            }
            metrics => metrics?,
        };
        let (replacing, renewed) = (replacer.clone(), devices.clone());
        let served = control::Served {
            suspender,
            replace: Arc::new(move |asker| format!("{:#}", replacing.replace(Some(asker)))),
            renew: Arc::new(move |connection, session, time| {
                let device = renewed.lock().get(&connection).cloned();
                device.ok_or(MoveError::Ended)?.renew(session, time)
            }),
        };
        let control = args.control.as_ref().zip(control);
        let _control = control.map(|(path, listener)| control::start(path, listener, served)).transpose()?;
        if args.metrics.is_some() && !emulated {
            let measured = devices.clone();
            let sessions = move || measured.lock().values().flat_map(|device| device.sessions()).collect();
            gpu_time::start(sessions).context("Cannot start the thread for GPU time")?;
        }

        if !emulated {
            let limits = Limits { session: args.session_memory, machine: args.memory };
            let (watched, common) = (devices.clone(), settings.clone());
            let machines = move || {
                watched.lock().values().map(|device| (device.connection, device.sessions())).collect()
            };
            let warm = move || common.pool.warm();
            watchdog::start(limits, machines, warm).context("Cannot start the watchdog")?;
        }

        signals.start(replacer)?;
        if args.take_over.is_some() {
            leave::end_after(0);
        }
        if let Some(asker) = asker {
            control::answer_replace(&asker, args.take_over_refused.clone());
        }
        let name = tasks.carry_out();
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
}

/// Goes on with the connections of the program before this one. Returns the client that has asked for the replacement.
fn take_over(
    args: &DaemonArgs,
    mut entry: Entry,
    spec: &WorkerSpec,
    settings: &Arc<Settings>,
    devices: &Devices,
) -> Option<UnixStream> {
    // A worker that asks for what another one has offered is answered when all offers are there.
    let _stopped = std::iter::repeat_with(freeze::stop).find_map(|stopped| stopped);
    entry.files.commit();
    let asker = entry.asker();
    let Entry { state, mut files, .. } = entry;
    connections::count_from(state.next_connection);
    let deadline = Instant::now() + TAKING_OVER;
    if let Err(error) = settings.images.restore(state.images, &mut files) {
        error!("the cache of device code begins anew: {error}");
    }
    for device in state.devices {
        let connection = device.connection;
        if let Err(error) = connections::restore(device, spec, &mut files, settings, devices, deadline) {
            error!("connection {connection}: lost, because this program cannot go on with it: {error:#}");
        }
    }
    log_result(args, &state.release, state.held_since);
    asker
}

/// Returns the guest pages that workers can map on this host, and logs what is missing for `named`.
fn guest_pages_of(args: &DaemonArgs) -> anyhow::Result<GuestPages> {
    match (args.guest_pages, mapping::can_be_guarded()) {
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
/// Returns the settings of its workers, too.
fn start_pool(
    args: &DaemonArgs,
    spec: WorkerSpec,
    unless: anyhow::Result<()>,
    mut previous: Option<Namespaces>,
) -> anyhow::Result<(WorkerSpec, WorkerPool)> {
    let warm = args.warm_workers as usize;
    if args.sandbox != Sandbox::Off && !rights::files_can_be_bounded() {
        warn!(
            "this kernel has no Landlock: a worker that a guest has taken over reaches what its namespaces and the \
             filter of system calls leave it (docs/confinement.md)"
        );
    }
    let plain = WorkerSpec { namespaces: false, ..spec.clone() };
    let pool = if spec.namespaces {
        match unless.and_then(|()| WorkerPool::start(spec.clone(), warm, previous.take())) {
            Err(error) if args.namespaces == NamespacesOption::Auto => {
                warn!(
                    "workers have no namespaces of their own, because this host does not allow it ({error:#}): a \
                     worker that a guest has taken over sees other processes and local sockets of this user"
                );
                WorkerPool::start(plain.clone(), warm, None)
            }
            result => result.context("Cannot make namespaces for workers (--namespaces require)"),
        }
    } else {
        WorkerPool::start(plain.clone(), warm, None)
    };
    Ok((plain, pool.context("Cannot start the worker pool")?))
}

/// The socket that the daemon listens on.
struct Listening {
    listener: UnixListener,
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

/// Goes on listening on the socket of the program before this one.
fn listen_again(args: &DaemonArgs, entry: &mut Entry) -> anyhow::Result<Listening> {
    let listener = UnixListener::from(entry.files.take(entry.state.listener)?);
    let path = listener.local_addr().ok().and_then(|addr| addr.as_pathname().map(Path::to_path_buf));
    // Its workers hold the file, and go on.
    let lock = args.workers_lock.clone().or_else(|| path.as_deref().map(WorkerLock::beside));
    let workers = lock.map(|path| WorkerLock::again(&path)).transpose()?;
    Ok(Listening { listener, socket: entry.state.socket(), workers })
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
            Ok(Listening { listener, socket: Some(path.clone()), workers })
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
            Ok(Listening { listener, socket: None, workers })
        }
        (None, None) => bail!("Say where to listen: --socket-path PATH (or --fd N)"),
    }
}

/// Waits for the workers of earlier daemons. Returns `None` without `--workers-lock` and without a socket path.
fn lock_of_workers(args: &DaemonArgs, socket: Option<&Path>) -> anyhow::Result<Option<WorkerLock>> {
    let path = args.workers_lock.clone().or_else(|| socket.map(WorkerLock::beside));
    path.map(|path| WorkerLock::wait(&path)).transpose()
}

/// SIGINT, SIGTERM and SIGHUP, blocked in every thread and received by one.
struct Signals(libc::sigset_t);

impl Signals {
    /// Must be called before any thread is started.
    fn block() -> anyhow::Result<Self> {
        let mut set = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: sigemptyset initialises the set that the other calls read.
        let (set, failed) = unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
                libc::sigaddset(set.as_mut_ptr(), signal);
            }
            let set = set.assume_init();
            (set, libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()))
        };
        if failed != 0 { bail!("Cannot block signals") } else { Ok(Self(set)) }
    }

    /// Waits for signals on a thread of its own. SIGHUP replaces the program, the others end the daemon.
    fn start(self, replacer: Arc<Replacer>) -> anyhow::Result<()> {
        let wait = move || {
            loop {
                match self.wait() {
                    libc::SIGHUP => error!("not replaced: {:#}", replacer.replace(None)),
                    libc::SIGINT => main_thread::end("SIGINT"),
                    _ => main_thread::end("SIGTERM"),
                }
            }
        };
        let started = thread::Builder::new().name("signals".into()).spawn(wait);
        started.map(drop).context("Cannot start the thread for signals")
    }

    /// Waits for a signal, and returns its number.
    fn wait(&self) -> i32 {
        let mut signal = 0;
        // SAFETY: the set is initialised, `signal` is a local.
        unsafe { libc::sigwait(&raw const self.0, &raw mut signal) };
        signal
    }
}
