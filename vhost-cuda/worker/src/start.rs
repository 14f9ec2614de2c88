// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The start of a worker: sandbox, captured output, address window, then CUDA with a context ready.

use std::ffi::CStr;
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd, FromRawFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use anyhow::Context;
use log::{error, info};
use vhost_cuda_common::args::WorkerArgs;
use vhost_cuda_common::confine::Folders;
use vhost_cuda_common::link::{self, FROM_FAILED, FROM_READY, FromWorker, NAME_BYTES, Ready};
use vhost_cuda_common::messages::letter;
use vhost_cuda_common::nvml::Nvml;
use vhost_cuda_common::statistics;
use vhost_cuda_common::timers::late_in_threads_of;
use zerocopy::IntoBytes;

use super::call::time_limit::TimeLimit;
use super::call::turns::Turns;
use super::devices;
use super::gpu::Driver;
use super::memory::mapper::Mapper;
use super::memory::pageable;
use super::memory::window::Window;
use super::objects::images::Images;
use super::run::output::Output;
use super::sandbox;
use super::sharing::Sharing;
use super::state::{Services, SessionLimits, SessionState};

/// The maximum length of a message that is sent to the daemon, in bytes.
const MAX_MESSAGE: usize = 1024;

/// The maximum `oom_score_adj` (proc_pid_oom_score_adj(5)): when the host is out of memory, the kernel ends workers before
/// other processes, above all the VMM.
const PREFERRED_VICTIM: &str = "1000";

/// The process's name (`ps -o comm`) until CUDA is up, until a session comes, and from then on.
const NAME_STARTING: &CStr = c"cuda-starting";
const NAME_WARM: &CStr = c"cuda-warm";
pub const NAME_SESSION: &CStr = c"cuda-session";

/// Starts all parts and reports that to the daemon. Returns `None` after reporting a failure.
pub fn start(args: &WorkerArgs) -> Option<(UnixStream, SessionState)> {
    set_name(NAME_STARTING);
    // SAFETY: the daemon made this socket for this process alone.
    let link = unsafe { UnixStream::from_raw_fd(args.link_fd) };
    let (kind, session, payload) = match bring_up(args) {
        Ok((session, ready)) => {
            set_name(NAME_WARM);
            (FROM_READY, Some(session), ready.as_bytes().to_vec())
        }
        Err(error) => {
            let mut message = format!("{error:#}").into_bytes();
            message.truncate(MAX_MESSAGE);
            (FROM_FAILED, None, message)
        }
    };
    let header = FromWorker { kind, ..FromWorker::default() };
    if let Err(error) = link::send_reply(&link, &header, &payload) {
        error!("worker: the daemon does not listen: {error}");
        return None;
    }
    session.map(|session| (link, session))
}

fn bring_up(args: &WorkerArgs) -> anyhow::Result<(SessionState, Ready)> {
    // Before any thread is started, and before this process's files of `/proc` belong to root. Without `/proc` the kernel
    // chooses by size.
    let _ = std::fs::write("/proc/self/oom_score_adj", PREFERRED_VICTIM);
    let folders = Folders::of(&args.library, &args.libraries);
    let bounds =
        sandbox::enter(args.sandbox, &folders, args.namespaces).context("Cannot enter the sandbox")?;
    let bounds = if args.nccl { bounds.with_sockets() } else { bounds };
    let bounds = if args.pages_fd.is_some() { bounds.with_named_pages() } else { bounds };
    // SAFETY: the daemon made this socket for this process alone.
    let pages = args.pages_fd.map(|fd| unsafe { UnixStream::from_raw_fd(fd) });
    let mapper = pages.map(|socket| Mapper::start(socket, args.lock_fd)).transpose();
    let mapper = mapper.context("Cannot start the process for mappings (--guest-pages named)")?;
    start_log(args)?;
    // SAFETY: the daemon made this file for this process alone. It is closed here; the mapping stays.
    let counters = unsafe { File::from_raw_fd(args.statistics_fd) };
    statistics::write_to(&counters).context("Cannot map the counters")?;
    drop(counters);
    let output = Output::capture().context("Cannot capture what device code prints")?;
    let window = Window::reserve().context("Cannot reserve the address window (1 TiB at 0x200000000000)")?;
    let library = args.library.display();
    let gpu = Driver::load(&args.library).with_context(|| format!("Cannot load {library}"))?;
    late_in_threads_of(args.emulated, || gpu.cuInit(0)).with_context(|| format!("cuInit of {library}"))?;
    let (driver_version,) = gpu.cuDriverGetVersion().context("cuDriverGetVersion")?;
    let (count,) = gpu.cuDeviceGetCount().context("cuDeviceGetCount")?;
    let device_count = u32::try_from(count).unwrap_or(0);
    if !args.allow_pageable_access {
        pageable::refuse(&gpu, device_count)?;
    }
    let limits = SessionLimits {
        memory: args.memory_limit,
        copy_threads: args.copy_threads as usize,
        libraries: args.libraries.clone(),
        emulated: args.emulated,
        plain: args.plain,
    };
    // SAFETY: the daemon made this socket for this process alone.
    let images = Images::new(unsafe { UnixStream::from_raw_fd(args.images_fd) });
    // SAFETY: the daemon made this socket, too, for this process alone.
    let sharing = Sharing::new(unsafe { UnixStream::from_raw_fd(args.exchange_fd) });
    let mut session =
        SessionState::new(gpu, Services { images, sharing }, output, window, device_count, limits);
    session.mapper = mapper;
    let mut device_name = [0; NAME_BYTES];
    if device_count > 0 {
        warm_up(&session, args.announce_memory).context("Cannot create the context of device 0")?;
        device_name = name_of_device_0(&session)?;
    }
    if let (Some(page), Some(bell)) = (args.share_page_fd, args.share_bell_fd) {
        let turns = Turns::new([page, bell]).context("Cannot map the page of shares")?;
        turns.name_gpus(&session.gpu, device_count).context("Cannot name GPUs for shares")?;
        session.turns = Some(turns);
    }
    session.time_limit = args.time_limit.map(|limit| TimeLimit::new(Duration::from_millis(limit)));
    if sandbox::closes(args.sandbox, args.emulated) && !args.emulated && device_count > 0 {
        open_nvml(&session, args.nccl)?;
    }
    if args.emulated {
        // Its list of system calls does not allow opening files.
        session.vendor.open_all();
        session.trace.open(driver_version);
    }
    sandbox::close(args.sandbox, args.emulated, bounds).context("Cannot close the sandbox")?;
    Ok((session, Ready { driver_version, device_count, link_version: link::VERSION, device_name }))
}

/// Lets NVML open what it needs: the sandbox allows no new files. It opens the node of a GPU when that GPU is first named.
/// NCCL names all GPUs of the host, also those that the session does not see.
fn open_nvml(session: &SessionState, nccl: bool) -> anyhow::Result<()> {
    if nccl {
        drop(Nvml::all());
    }
    for number in 0..session.devices.len() as u32 {
        let _ = devices::nvml_of(&session.gpu, session.device(number)?);
    }
    Ok(())
}

fn name_of_device_0(session: &SessionState) -> anyhow::Result<[u8; NAME_BYTES]> {
    let mut name = [0_u8; NAME_BYTES];
    let device = session.device(0)?;
    // SAFETY: the driver writes at most the length of `name`, which lives through the call.
    unsafe { session.gpu.cuDeviceGetName(name.as_mut_ptr().cast(), NAME_BYTES as i32, device) }
        .context("cuDeviceGetName")?;
    Ok(name)
}

/// Creates the primary context of device 0, which takes a third of a second, before a session waits for it.
fn warm_up(session: &SessionState, announce: Option<u32>) -> anyhow::Result<()> {
    let device = session.device(0)?;
    let meter = announce.and_then(|count| Some((count, devices::nvml_of(&session.gpu, device)?)));
    let before = meter.as_ref().and_then(|(_, nvml)| nvml.memory());
    let (raw,) = late_in_threads_of(session.emulated, || session.gpu.cuDevicePrimaryCtxRetain(device))?;
    session.contexts.lock().primary(device).warm_up(raw);
    if !session.emulated {
        session.placed.warm_up(&session.gpu, raw);
    }
    if let (Some((count, nvml)), Some(before)) = (meter, before)
        && let Some(after) = nvml.memory()
        && let each = after.used.saturating_sub(before.used)
        && each > 0
    {
        info!(
            "a warm worker holds {} MiB of the GPU's {} MiB: --warm-workers {count} holds {} MiB",
            each >> 20,
            after.total >> 20,
            (each * u64::from(count)) >> 20
        );
    }
    Ok(())
}

/// Sends messages to the daemon (`sessions::messages`) by the pipe that is this process's stderr until the
/// output is captured.
fn start_log(args: &WorkerArgs) -> anyhow::Result<()> {
    let stderr = std::io::stderr().as_fd().try_clone_to_owned().context("Cannot keep stderr")?;
    // The logger keeps it until the process ends.
    sandbox::report_to(stderr.as_raw_fd());
    let level = args.worker_log_level.parse().unwrap_or(log::LevelFilter::Info);
    env_logger::Builder::new()
        .filter_level(level)
        .format(|line, record| {
            let text = record.args().to_string().replace('\n', "; ");
            writeln!(line, "{} {text}", letter(record.level()))
        })
        .target(env_logger::Target::Pipe(Box::new(File::from(stderr))))
        .init();
    Ok(())
}

/// Sets the process's name, for `ps` and for tests that wait until workers are warm.
pub fn set_name(name: &CStr) {
    let _ = rustix::thread::set_name(name);
}
