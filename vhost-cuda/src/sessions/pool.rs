// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Workers that are started in advance, because creating a CUDA context takes a third of a second.
//!
//! One thread starts all workers, and notices when one is ready or has ended. It shuts down the sockets of workers
//! that have ended, even if another process still holds the other ends.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use log::{Level, info, log};
use parking_lot::{Condvar, Mutex};
use vhost_cuda_common::confine::Folders;
use vhost_cuda_common::link::Ready;
use vmm_sys_util::epoll::{ControlOperation, Epoll, EpollEvent, EventSet};
use vmm_sys_util::eventfd::{EFD_CLOEXEC, EFD_NONBLOCK, EventFd};

use crate::confine::namespaces::{self, Ended, Namespaces, SavedNamespaces};
use crate::hand_over::files::Leaving;
use crate::hand_over::{freeze, main_thread};
use crate::limits::throttle::Throttle;
use crate::sessions::process::{Reaped, Sockets, Worker, WorkerError, WorkerSpec};
use crate::sessions::report::DaemonReport;

/// The number of workers that may fail to start while a session waits for one, before it gives up.
const ATTEMPTS: u64 = 3;
/// The time limit for a worker to initialise CUDA.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// The pause after a failed fork, which reduces the load on a machine without free processes.
const PAUSE: Duration = Duration::from_secs(1);
/// The maximum pause between two attempts to start a worker for which no session waits.
const MAX_PAUSE: Duration = Duration::from_secs(60);
/// A warm worker that has waited for at least this time is replaced at once when it ends.
const SETTLED: Duration = Duration::from_secs(2);
/// The time for all idle workers together to end when the daemon stops.
const STOP_PATIENCE: Duration = Duration::from_secs(5);

/// The time after a session took a warm worker before the next one is started. Initialising CUDA holds locks of the
/// driver that the session's first calls need, too.
const REFILL_DELAY: Duration = Duration::from_millis(300);
/// The same after a session has arrived with its machine: its memory comes back right then. Clones, whose daemons share a GPU, arrive
/// together.
const ARRIVAL_DELAY: Duration = Duration::from_secs(3);

/// The time between two errors of the same kind in the log, because a guest may open session after session.
const COMPLAINT_INTERVAL: Duration = Duration::from_secs(10);

/// The numbers of the poller's events. Those of workers come in pairs: the process and its link.
const WAKE: u64 = u64::MAX;
const LINK: u64 = 1;

/// The pool of one daemon. Its thread is the parent of all workers.
#[derive(Debug)]
pub struct WorkerPool {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    spec: WorkerSpec,
    warm: usize,
    poller: Epoll,
    wake: EventFd,
    complaints: Throttle,
    state: Mutex<State>,
    /// Signals that a worker is ready, could not be started, or is no longer wanted.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Workers without a session, in the order of their start.
    idle: BTreeMap<u64, Idle>,
    /// Workers with a session.
    given: HashMap<u64, Weak<Sockets>>,
    /// Workers that were killed and have not ended yet.
    ending: HashMap<u64, Worker>,
    started: u64,
    /// True while a process is being started that is in none of these lists.
    starting: bool,
    waiting: usize,
    /// Workers that sessions have taken are not replaced before this time.
    refill_at: Option<Instant>,
    /// The number of workers that failed to start, in total, and since the last one that succeeded.
    failures: u64,
    failures_in_a_row: u32,
    /// The reason of the last failure.
    reason: Option<Arc<WorkerError>>,
    /// No worker is started before this time, because a start has failed.
    not_before: Option<Instant>,
    /// No worker without a waiting session is started before this time.
    no_spare_before: Option<Instant>,
    stopping: bool,
    /// True while there are no workers in reserve ([`WorkerPool::rest`]).
    rests: bool,
    greeted: bool,
    /// The present namespaces, for the next program.
    namespaces: Option<(SavedNamespaces, Leaving)>,
}

#[derive(Debug)]
struct Idle {
    worker: Worker,
    since: Instant,
    ready: bool,
}

/// The next action of the pool's thread.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    Start,
    /// Wait, until this time if there is one.
    WaitUntil(Option<Instant>),
}

impl State {
    /// Returns the worker that has been ready for the longest time.
    fn take_ready(&mut self) -> Option<(u64, Worker)> {
        let &number = self.idle.iter().find(|(_, idle)| idle.ready)?.0;
        self.idle.remove(&number).map(|idle| (number, idle.worker))
    }

    /// Kills workers that are no longer needed. The last started one has cost the least so far.
    fn end_surplus(&mut self, warm: usize) {
        while self.idle.len() > warm + self.waiting {
            let starting = self.idle.iter().rev().find(|(_, idle)| !idle.ready).map(|(&number, _)| number);
            let Some(number) = starting.or_else(|| self.idle.keys().next_back().copied()) else { return };
            self.end(number);
        }
    }

    fn end(&mut self, number: u64) {
        if let Some(idle) = self.idle.remove(&number) {
            idle.worker.kill();
            self.ending.insert(number, idle.worker);
        }
    }

    fn fail(&mut self, error: WorkerError, now: Instant) {
        self.failures += 1;
        self.failures_in_a_row = self.failures_in_a_row.saturating_add(1);
        let pause = PAUSE.saturating_mul(1 << (self.failures_in_a_row - 1).min(16)).min(MAX_PAUSE);
        self.no_spare_before = Some(now + pause);
        self.reason = Some(Arc::new(error));
    }

    fn next(&self, warm: usize, now: Instant) -> Next {
        let soonest = if self.idle.len() < self.waiting {
            self.not_before
        } else if self.idle.len() < warm + self.waiting {
            self.not_before.max(self.no_spare_before).max(self.refill_at)
        } else {
            return Next::WaitUntil(self.oldest_start());
        };
        match soonest.filter(|&soonest| soonest > now) {
            None => Next::Start,
            Some(soonest) => {
                Next::WaitUntil(self.oldest_start().map_or(Some(soonest), |start| Some(soonest.min(start))))
            }
        }
    }

    /// Returns the time at which the first worker will exceed its start time limit.
    fn oldest_start(&self) -> Option<Instant> {
        self.idle.values().find(|idle| !idle.ready).map(|idle| idle.since + START_TIMEOUT)
    }
}

/// As long as it is held, the pool has no workers in reserve.
#[derive(Debug)]
pub struct Rest<'a>(&'a WorkerPool);

impl Drop for Rest<'_> {
    fn drop(&mut self) {
        self.0.shared.state.lock().rests = false;
        self.0.shared.wake();
    }
}

impl Shared {
    fn wake(&self) {
        // Fails only if 2^64 wake-ups are pending.
        let _ = self.wake.write(1);
    }

    fn watch(&self, fd: RawFd, events: EventSet, about: u64) -> io::Result<()> {
        self.poller.ctl(ControlOperation::Add, fd, EpollEvent::new(events, about))
    }

    fn forget(&self, fd: RawFd) {
        // Fails only if it is not watched any more.
        let _ = self.poller.ctl(ControlOperation::Delete, fd, EpollEvent::default());
    }
}

impl WorkerPool {
    /// Starts the pool with `warm` workers ready in advance, in namespaces of the program before this one if `previous` are given.
    ///
    /// Errors: the namespaces that `spec` requires cannot be created, or a thread cannot be started.
    pub fn start(spec: WorkerSpec, warm: usize, previous: Option<Namespaces>) -> anyhow::Result<Self> {
        let folders = spec.namespaces.then(|| Folders::of(&spec.library, &spec.libraries));
        let wake = EventFd::new(EFD_CLOEXEC | EFD_NONBLOCK)?;
        let shared = Arc::new(Shared {
            spec,
            warm,
            poller: Epoll::new()?,
            wake,
            complaints: Throttle::new(1, COMPLAINT_INTERVAL),
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        shared.watch(shared.wake.as_raw_fd(), EventSet::IN, WAKE)?;
        let pool = Self { shared: shared.clone() };
        namespaces::work_in(folders, previous, "worker-pool", move |namespaces| run(&shared, namespaces))?;
        Ok(pool)
    }

    /// Takes a ready worker, and waits for one if necessary (seconds). Returns `None` if it is no longer `wanted`,
    /// which is checked again after [`Self::look_again`].
    ///
    /// Errors: the reason of the last worker that failed. The reason is also logged here.
    pub fn take(&self, wanted: impl Fn() -> bool) -> Result<Option<Worker>, Arc<WorkerError>> {
        let mut state = self.shared.state.lock();
        let failed_before = state.failures;
        state.waiting += 1;
        self.shared.wake();
        let taken = loop {
            if state.stopping {
                break Err(Arc::new(WorkerError::Ended("the daemon is stopping".into())));
            }
            if !wanted() {
                break Ok(None);
            }
            match state.take_ready() {
                // The pool's thread has not yet noticed that it was killed, or its mapper was.
                Some((number, worker)) if !worker.process.is_running() => {
                    worker.kill();
                    state.ending.insert(number, worker);
                    self.shared.wake();
                    continue;
                }
                Some((number, worker)) => {
                    state.given.retain(|_, sockets| sockets.strong_count() > 0);
                    state.given.insert(number, worker.watched());
                    // The first one counts: a guest opens session after session.
                    state.refill_at.get_or_insert_with(|| Instant::now() + REFILL_DELAY);
                    break Ok(Some(worker));
                }
                None => {}
            }
            if let Some(reason) = state.reason.as_ref().filter(|_| state.failures - failed_before >= ATTEMPTS)
            {
                break Err(reason.clone());
            }
            self.shared.changed.wait(&mut state);
        };
        state.waiting -= 1;
        drop(state);
        self.shared.wake();
        if let Err(reason) = &taken {
            log!(
                self.shared.complaints.level(Level::Error),
                "No worker for a new session: {}",
                in_full(reason)
            );
        }
        taken
    }

    /// Delays the start of workers for which no session waits: a session has arrived with its machine.
    pub fn arrived(&self) {
        let mut state = self.shared.state.lock();
        state.refill_at = state.refill_at.max(Some(Instant::now() + ARRIVAL_DELAY));
    }

    /// Returns a worker that was not used and has no data of any guest.
    pub fn put_back(&self, worker: Worker) {
        let mut state = self.shared.state.lock();
        let sockets = worker.watched();
        let number = state.given.iter().find(|(_, given)| given.ptr_eq(&sockets)).map(|(&number, _)| number);
        if let (Some(number), false) = (number, state.stopping) {
            state.given.remove(&number);
            state.idle.insert(number, Idle { worker, since: Instant::now(), ready: true });
        } else {
            drop(state);
            drop(worker);
        }
        self.shared.changed.notify_all();
        self.shared.wake();
    }

    /// Watches a worker of the program before this one, which has a session already.
    ///
    /// Errors: those of the system calls.
    pub fn adopt(&self, worker: &Worker) -> io::Result<()> {
        let mut state = self.shared.state.lock();
        state.started += 1;
        let number = state.started;
        let end = EventSet::IN | EventSet::ONE_SHOT;
        self.shared.watch(worker.process.as_fd().as_raw_fd(), end, number * 2)?;
        state.given.insert(number, worker.watched());
        Ok(())
    }

    /// Returns whether a worker is being started, or a session waits for one.
    pub fn is_starting(&self) -> bool {
        let state = self.shared.state.lock();
        state.starting || state.waiting > 0
    }

    /// Starts workers only for sessions that wait for one, until the value is dropped.
    pub fn rest(&self) -> Rest<'_> {
        self.shared.state.lock().rests = true;
        self.shared.wake();
        Rest(self)
    }

    /// Ends all workers without a session, and waits for them. New ones are started, unless the pool rests.
    pub fn drop_idle(&self) {
        let mut state = self.shared.state.lock();
        let idle = std::mem::take(&mut state.idle);
        idle.values().for_each(|idle| idle.worker.kill());
        let ending = std::mem::take(&mut state.ending);
        drop(state);
        // Waits for each.
        drop((idle, ending));
    }

    /// Returns the namespaces of workers, if there are any, and their descriptors.
    pub fn namespaces(&self) -> Option<(SavedNamespaces, Leaving)> {
        self.shared.state.lock().namespaces.clone()
    }

    /// Wakes all waiting sessions, so that each checks whether it still needs a worker.
    pub fn look_again(&self) {
        // Locked, so that no thread is between its check and its wait.
        drop(self.shared.state.lock());
        self.shared.changed.notify_all();
    }

    /// Returns metrics of workers, for the operator.
    pub fn report(&self) -> DaemonReport {
        let state = self.shared.state.lock();
        let warm = state.idle.values().filter(|idle| idle.ready).count() as u64;
        DaemonReport {
            warm_workers: warm,
            starting_workers: state.idle.len() as u64 - warm,
            started_workers: state.started,
            failed_workers: state.failures,
        }
    }

    /// Returns the processes of workers that are ready and have no session.
    pub fn warm(&self) -> Vec<u32> {
        let state = self.shared.state.lock();
        state.idle.values().filter(|idle| idle.ready).map(|idle| idle.worker.process.pid()).collect()
    }

    /// Ends the pool: idle workers are killed, and no session gets another one.
    pub fn stop(&self) {
        let mut state = self.shared.state.lock();
        state.stopping = true;
        let numbers: Vec<u64> = state.idle.keys().copied().collect();
        for number in numbers {
            state.end(number);
        }
        let ending = std::mem::take(&mut state.ending);
        drop(state);
        self.shared.changed.notify_all();
        self.shared.wake();
        let deadline = Instant::now() + STOP_PATIENCE;
        for worker in ending.into_values() {
            if worker.process.reap(deadline.saturating_duration_since(Instant::now())) == Reaped::Stuck {
                // Its destructor would wait longer.
                std::mem::forget(worker);
            }
        }
    }
}

impl Drop for WorkerPool {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The pool's thread.
fn run(shared: &Arc<Shared>, namespaces: Option<&Namespaces>) -> Ended {
    shared.state.lock().namespaces = namespaces.map(|namespaces| {
        let mut files = Leaving::default();
        (namespaces.save(&mut files), files)
    });
    let mut events = vec![EpollEvent::default(); 64];
    // The first worker without a waiting session logs the cost of such workers.
    let mut announced = shared.warm == 0;
    loop {
        let now = Instant::now();
        let mut state = shared.state.lock();
        if state.stopping {
            return Ended::Done;
        }
        if namespaces.is_some_and(|namespaces| !namespaces.are_there()) {
            // They have ended, too, and the pool's next thread reaps them.
            let numbers: Vec<u64> = state.idle.keys().copied().collect();
            numbers.into_iter().for_each(|number| state.end(number));
            state.namespaces = None;
            return Ended::NamespacesLost;
        }
        let warm = if state.rests { 0 } else { shared.warm };
        state.end_surplus(warm);
        end_late_starters(&mut state, shared, now);
        let until = match state.next(warm, now) {
            Next::Start => {
                drop(state);
                start_one(shared, !std::mem::replace(&mut announced, true));
                continue;
            }
            Next::WaitUntil(until) => until,
        };
        drop(state);
        let timeout = until.map_or(-1, |until| {
            let milliseconds = until.saturating_duration_since(now).as_micros().div_ceil(1000);
            i32::try_from(milliseconds).unwrap_or(i32::MAX)
        });
        // An interrupted wait returns no events.
        let count = shared.poller.wait(timeout, &mut events).unwrap_or(0);
        for event in &events[..count] {
            match event.data() {
                WAKE => drop(shared.wake.read()),
                about if about & LINK != 0 => greeted(shared, about / 2),
                about => ended(shared, about / 2),
            }
        }
    }
}

fn start_one(shared: &Arc<Shared>, announce: bool) {
    let announce = announce.then_some(shared.warm);
    {
        let _permit = freeze::permit();
        shared.state.lock().starting = true;
    }
    let started = if shared.spec.namespaces {
        // Those of this thread.
        Worker::spawn(&shared.spec, announce)
    } else {
        let shared = shared.clone();
        let started = main_thread::run(move || Worker::spawn(&shared.spec, announce));
        started.unwrap_or_else(|| Err(WorkerError::Ended("the daemon is stopping".into())))
    };
    let _permit = freeze::permit();
    let now = Instant::now();
    let mut state = shared.state.lock();
    state.starting = false;
    state.started += 1;
    let number = state.started;
    let watched = started.and_then(|worker| {
        let (process, link) = (worker.process.as_fd().as_raw_fd(), worker.sockets.link.as_raw_fd());
        // Only once: the owner of the worker closes the descriptor later.
        let end = EventSet::IN | EventSet::ONE_SHOT;
        shared.watch(process, end, number * 2).map_err(WorkerError::Spawn)?;
        shared.watch(link, EventSet::IN, number * 2 + LINK).map_err(WorkerError::Spawn)?;
        Ok(worker)
    });
    match watched {
        Ok(worker) => {
            state.not_before = None;
            state.idle.insert(number, Idle { worker, since: now, ready: false });
            if state.idle.len() >= shared.warm + state.waiting {
                state.refill_at = None;
            }
        }
        Err(error) => {
            state.fail(error, now);
            state.not_before = Some(now + PAUSE);
            shared.changed.notify_all();
        }
    }
}

/// Handles a greeting of a started worker.
fn greeted(shared: &Shared, number: u64) {
    let mut state = shared.state.lock();
    let Some(idle) = state.idle.get_mut(&number).filter(|idle| !idle.ready) else { return };
    shared.forget(idle.worker.sockets.link.as_raw_fd());
    match idle.worker.greeting() {
        Ok(ready) => {
            idle.ready = true;
            if let Some(enrolment) = &idle.worker.enrolment {
                enrolment.name_gpus();
            }
            (state.failures_in_a_row, state.no_spare_before) = (0, None);
            if !std::mem::replace(&mut state.greeted, true) {
                greet(&ready);
            }
        }
        Err(error) => {
            state.end(number);
            complain(shared, &mut state, error);
        }
    }
    shared.changed.notify_all();
}

/// Handles the end of a worker.
fn ended(shared: &Shared, number: u64) {
    let mut state = shared.state.lock();
    if let Some(sockets) = state.given.remove(&number) {
        // Its session reaps it.
        if let Some(sockets) = sockets.upgrade() {
            sockets.hang_up();
        }
        return;
    }
    let idle = state.idle.remove(&number);
    let worker = match idle {
        Some(idle) => {
            idle.worker.sockets.hang_up();
            // It may have sent a reason that was not read yet.
            let error = match idle.worker.greeting() {
                Err(error) if !idle.ready => error,
                _ => WorkerError::Ended("it was killed while it waited for a session".into()),
            };
            complain(shared, &mut state, error);
            if idle.ready && idle.since.elapsed() >= SETTLED {
                // This does not mean that the next one fails.
                (state.failures_in_a_row, state.no_spare_before) = (0, None);
            }
            shared.changed.notify_all();
            Some(idle.worker)
        }
        None => state.ending.remove(&number),
    };
    drop(state);
    // Reaped at once, because it has ended.
    drop(worker);
}

fn end_late_starters(state: &mut State, shared: &Shared, now: Instant) {
    while state.oldest_start().is_some_and(|late| late <= now) {
        let Some(number) = state.idle.iter().find(|(_, idle)| !idle.ready).map(|(&number, _)| number) else {
            return;
        };
        state.end(number);
        let error = WorkerError::Ended(format!("it was not ready within {} s", START_TIMEOUT.as_secs()));
        complain(shared, state, error);
        shared.changed.notify_all();
    }
}

fn complain(shared: &Shared, state: &mut State, error: WorkerError) {
    if state.waiting == 0 {
        log!(
            shared.complaints.level(Level::Warn),
            "A warm worker was lost and will be replaced: {}",
            in_full(&error)
        );
    }
    state.fail(error, Instant::now());
}

/// Formats an error with its causes.
fn in_full(error: &WorkerError) -> String {
    match std::error::Error::source(error) {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}

fn greet(ready: &Ready) {
    let version = ready.driver_version;
    let name = String::from_utf8_lossy(&ready.device_name);
    let (name, count) = (name.trim_end_matches('\0'), ready.device_count);
    info!("CUDA driver {}.{}, {count} device(s): {name}", version / 1000, version % 1000 / 10);
}

#[cfg(test)]
#[path = "pool_test.rs"]
mod tests;
