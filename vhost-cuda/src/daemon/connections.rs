// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Front-ends that connect, and those that the program before this one was connected to.

use std::collections::HashMap;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use log::{Level, error, log, warn};
use parking_lot::Mutex;
use vhost::vhost_user::{Error as VhostUserError, Listener};
use vhost_cuda_common::budget::Charge;
use vhost_user_backend::{Error as BackendError, VhostUserDaemon};
use vm_memory::GuestMemoryBackend;

use crate::front_end::backend::Backend;
use crate::front_end::device::{Device, END_PATIENCE, SavedDevice, Settings};
use crate::front_end::relay::Relay;
use crate::guest::memory::{Memory, SharedMemory};
use crate::hand_over::files::Inherited;
use crate::hand_over::freeze;
use crate::limits::room;
use crate::limits::throttle::Throttle;
use crate::sessions::process::WorkerSpec;

/// The pause after a failed accept, for example when the process has no descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);
/// Limits messages about front-ends that connect and disconnect: each virtio-user process is one.
static CONNECTIONS: Throttle = Throttle::new(50, Duration::from_secs(10));
/// Limits messages about front-ends that could not be served.
pub(super) static REFUSALS: Throttle = Throttle::new(3, Duration::from_secs(60));
/// The number of the next connection.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// The time for a front-end to disconnect before the next one is refused. A VMM or program that is restarted connects
/// at once, while the workers of the previous one are ending.
const PARTING: Duration = Duration::from_secs(2);
/// The time for the library to handle what a front-end has said to the program before this one.
const REPLAY: Duration = Duration::from_secs(5);

/// The values that a connection's thread gets once a front-end has connected.
type Served = (VhostUserDaemon<Arc<Backend>>, Arc<Backend>);

/// Connected devices, to end them with the daemon.
pub type Devices = Arc<Mutex<HashMap<u64, Arc<Device>>>>;

/// Returns the number of the next connection, for the next program.
pub fn next() -> u64 {
    NEXT.load(Ordering::Relaxed)
}

/// Goes on counting connections where the program before this one has stopped.
pub fn count_from(next: u64) {
    NEXT.fetch_max(next, Ordering::Relaxed);
}

/// Serves the front-ends that connect, one after the other. Does not end.
pub fn accept_all(mut listener: Listener, single: bool, settings: &Arc<Settings>, devices: &Devices) {
    loop {
        wait_for_front_end(&listener);
        // The next program accepts it if this one is being replaced.
        let _permit = freeze::permit();
        let connection = NEXT.fetch_add(1, Ordering::Relaxed);
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
    let prepared = match prepare(connection, &device, devices, charge) {
        Ok(prepared) => prepared,
        Err(error) => {
            drop(listener.accept());
            return Err(error.context("refused"));
        }
    };
    let accepted = listener.accept().map_err(|error| anyhow::anyhow!("{error}"));
    let front_end: anyhow::Result<UnixStream> =
        accepted.and_then(|front_end| front_end.context("it has gone"));
    let relayed = front_end.and_then(|front_end| Ok(Relay::new(front_end)?));
    start(connection, &device, devices, prepared, relayed, |relay| Ok(relay.start(connection)?))?;
    log!(CONNECTIONS.level(Level::Info), "connection {connection}: front-end connected");
    Ok(())
}

/// Starts to serve a front-end. `begin` is called once the library has its socket.
fn start(
    connection: u64,
    device: &Arc<Device>,
    devices: &Devices,
    prepared: (Served, Sender<Served>),
    relayed: anyhow::Result<(Arc<Relay>, Listener)>,
    begin: impl FnOnce(&Arc<Relay>) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let ((mut daemon, backend), serving) = prepared;
    let started = relayed.and_then(|(relay, mut private)| {
        daemon.start(&mut private).map_err(describe)?;
        if let Some(handle) = daemon.shutdown_handle() {
            device.connected(handle, relay.clone());
        }
        devices.lock().insert(connection, device.clone());
        begin(&relay)
    });
    if let Err(error) = started {
        devices.lock().remove(&connection);
        device.abandon();
        device.hang_up();
        let _ = daemon.wait();
        drop(daemon);
        backend.close_exit_events();
        return Err(error);
    }
    // The thread waits for it.
    let _ = serving.send((daemon, backend));
    Ok(())
}

/// Goes on with a front-end of the program before this one, and with its sessions. The library handles its messages until `deadline`.
///
/// Errors: the state is wrong, or the library refuses what it has accepted before. The front-end is disconnected.
pub fn restore(
    mut saved: SavedDevice,
    spec: &WorkerSpec,
    files: &mut Inherited,
    settings: &Arc<Settings>,
    devices: &Devices,
    deadline: Instant,
) -> anyhow::Result<()> {
    let connection = saved.connection;
    let device = Device::new(connection, settings.clone());
    device.restore(&mut saved, files)?;
    let charge = settings.descriptors.budget.charge_up_to(settings.descriptors.connection);
    let prepared = prepare(connection, &device, devices, charge)?;
    let SavedDevice { relay, rings, sessions, .. } = saved;
    let relayed = Relay::restore(relay, files).map_err(Into::into);
    let next_avail: Vec<_> = rings.iter().map(|ring| ring.next_avail).collect();
    start(connection, &device, devices, prepared, relayed, |relay| {
        relay.replay(&next_avail, REPLAY.min(deadline.saturating_duration_since(Instant::now())))?;
        device.restore_sessions(sessions, spec, files);
        relay.start(connection)?;
        device.release();
        Ok(())
    })
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
