// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Workers started ahead of need: creating a CUDA context costs a third of a second.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use log::{Level, info, log};

use crate::confine::Folders;
use crate::confine::namespaces::{self, Ended, Namespaces};
use crate::process::{Worker, WorkerError, WorkerSpec};

/// Workers that are tried for one session, besides the warm ones, which may have died meanwhile.
const ATTEMPTS: usize = 3;
/// Pause after a failed fork, so that a machine out of processes is not made worse.
const PAUSE: Duration = Duration::from_secs(1);

/// What a session that took a warm worker gets to itself before the next one is warmed: bringing up CUDA holds
/// locks of the driver that the session's first calls need, too.
const REFILL_DELAY: Duration = Duration::from_millis(300);

/// Time between two errors of the same kind in the log.
const COMPLAINT_INTERVAL: Duration = Duration::from_secs(10);

/// The pool of one daemon. Its thread is the parent of all workers.
#[derive(Debug)]
pub struct WorkerPool {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    spec: WorkerSpec,
    warm: usize,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    idle: VecDeque<Result<Worker, WorkerError>>,
    waiting: usize,
    /// When a session took a worker that was not replaced yet: the first such session.
    taken: Option<Instant>,
    stopping: bool,
    greeted: bool,
    complained: Option<Instant>,
}

impl State {
    /// Whether an error may be logged: not at each try of a guest that opens session after session.
    fn may_complain(&mut self) -> bool {
        let quiet = self.complained.is_some_and(|before| before.elapsed() < COMPLAINT_INTERVAL);
        if !quiet {
            self.complained = Some(Instant::now());
        }
        !quiet
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WorkerPool {
    /// Starts the pool with `warm` workers ready ahead of need.
    ///
    /// Errors: the namespaces that `spec` asks for cannot be made, or a thread cannot be started.
    pub fn start(spec: WorkerSpec, warm: usize) -> anyhow::Result<Self> {
        let folders = spec.namespaces.then(|| Folders::of(&spec.library));
        let shared =
            Arc::new(Shared { spec, warm, state: Mutex::new(State::default()), changed: Condvar::new() });
        let pool = Self { shared: shared.clone() };
        namespaces::work_in(folders, "worker-pool", move |namespaces| refill(&shared, namespaces))?;
        Ok(pool)
    }

    /// Takes a worker that is ready, waiting for one if need be (seconds).
    ///
    /// Errors: what the last worker tried said. The reason is also logged here.
    pub fn take(&self) -> Result<Worker, WorkerError> {
        let mut last = WorkerError::Ended("the daemon is stopping".into());
        for _ in 0..ATTEMPTS + self.shared.warm {
            let Some(started) = self.next() else { break };
            match started.and_then(|worker| Ok((worker.wait_ready()?, worker))) {
                // What a worker said when it was ready outlives it.
                Ok((_, worker)) if !worker.process.is_running() => {
                    last = WorkerError::Ended("it was killed while it waited for a session".into());
                }
                Ok((ready, worker)) => {
                    self.greet(&ready);
                    return Ok(worker);
                }
                Err(error) => last = error,
            }
        }
        let level = if self.shared.lock().may_complain() { Level::Error } else { Level::Debug };
        log!(level, "No worker for a new session: {last}");
        Err(last)
    }

    /// Ends the pool: idle workers are killed, nobody gets another.
    pub fn stop(&self) {
        let mut state = self.shared.lock();
        state.stopping = true;
        let idle = std::mem::take(&mut state.idle);
        self.shared.changed.notify_all();
        drop(state);
        drop(idle);
    }

    fn next(&self) -> Option<Result<Worker, WorkerError>> {
        let mut state = self.shared.lock();
        state.waiting += 1;
        self.shared.changed.notify_all();
        while state.idle.is_empty() && !state.stopping {
            state = self.shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.waiting -= 1;
        let worker = state.idle.pop_front();
        if state.taken.is_none() {
            state.taken = Some(Instant::now());
        }
        self.shared.changed.notify_all();
        worker
    }

    fn greet(&self, ready: &crate::link::Ready) {
        let first = !std::mem::replace(&mut self.shared.lock().greeted, true);
        if first {
            let version = ready.driver_version;
            let name = String::from_utf8_lossy(&ready.device_name);
            let (name, count) = (name.trim_end_matches('\0'), ready.device_count);
            info!("CUDA driver {}.{}, {count} device(s): {name}", version / 1000, version % 1000 / 10);
        }
    }
}

impl Drop for WorkerPool {
    fn drop(&mut self) {
        self.stop();
    }
}

fn refill(shared: &Shared, namespaces: Option<&Namespaces>) -> Ended {
    let mut state = shared.lock();
    // The first one that nobody waits for says what such workers cost.
    let mut announced = shared.warm == 0;
    loop {
        if state.stopping {
            return Ended::Done;
        }
        if namespaces.is_some_and(|namespaces| !namespaces.are_there()) {
            // They have ended, too. The namespaces' end waits until they are reaped.
            state.idle.clear();
            return Ended::NamespacesLost;
        }
        let wanted = state.idle.len() < state.waiting;
        if !wanted {
            let pause = match state.taken {
                _ if state.idle.len() >= shared.warm + state.waiting => Some(Duration::MAX),
                Some(taken) => REFILL_DELAY.checked_sub(taken.elapsed()).filter(|pause| !pause.is_zero()),
                None => None,
            };
            if let Some(pause) = pause {
                state = wait(shared, state, pause);
                continue;
            }
        }
        drop(state);
        let worker = Worker::spawn(&shared.spec, (!announced).then_some(shared.warm));
        announced = true;
        let failed = worker.is_err();
        state = shared.lock();
        state.idle.push_back(worker);
        state.taken = state.taken.filter(|_| state.idle.len() < shared.warm + state.waiting);
        shared.changed.notify_all();
        if failed {
            drop(state);
            thread::sleep(PAUSE);
            state = shared.lock();
        }
    }
}

fn wait<'a>(shared: &Shared, state: MutexGuard<'a, State>, time: Duration) -> MutexGuard<'a, State> {
    if time == Duration::MAX {
        return shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
    }
    shared.changed.wait_timeout(state, time).unwrap_or_else(PoisonError::into_inner).0
}
