// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Work of the process's first thread, the only one that goes on when the process executes another program.
//!
//! A worker without namespaces ends with the thread that has started it (`PR_SET_PDEATHSIG`). So this thread starts them.

use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, Sender, channel};

type Job = Box<dyn FnOnce() + Send>;

static JOBS: OnceLock<Sender<Task>> = OnceLock::new();

enum Task {
    Run(Job),
    End(&'static str),
}

/// The work of the first thread.
pub struct Tasks(Receiver<Task>);

impl std::fmt::Debug for Tasks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tasks")
    }
}

/// Makes [`run`] pass work to the caller of [`Tasks::carry_out`] from now on. Called once per process, by its first thread.
pub fn start() -> Tasks {
    let (jobs, tasks) = channel();
    let _ = JOBS.set(jobs);
    Tasks(tasks)
}

impl Tasks {
    /// Carries out what comes, until [`end`]. Returns the reason that it has got.
    pub fn carry_out(&self) -> &'static str {
        loop {
            match self.0.recv() {
                Ok(Task::Run(job)) => job(),
                Ok(Task::End(reason)) => return reason,
                // The sender is in a static.
                Err(_) => return "",
            }
        }
    }
}

/// Ends [`Tasks::carry_out`].
pub fn end(reason: &'static str) {
    let _ = JOBS.get().map(|jobs| jobs.send(Task::End(reason)));
}

/// Runs `work` on the first thread, and waits for its result. Returns `None` if the daemon is ending. Without a daemon, runs it on
/// the calling thread.
pub fn run<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let Some(jobs) = JOBS.get() else { return Some(work()) };
    let (done, result) = channel();
    let job = move || drop(done.send(work()));
    jobs.send(Task::Run(Box::new(job))).ok()?;
    result.recv().ok()
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn work_is_done_by_one_thread_until_the_end() {
        let (jobs, tasks) = channel();
        let done = thread::spawn(move || {
            let (done, result) = channel();
            jobs.send(Task::Run(Box::new(move || done.send(thread::current().id()).unwrap()))).unwrap();
            jobs.send(Task::End("SIGTERM")).unwrap();
            result.recv().unwrap()
        });
        assert_eq!(Tasks(tasks).carry_out(), "SIGTERM");
        assert_eq!(done.join().unwrap(), thread::current().id());
        // No daemon has been started in this process.
        assert_eq!(run(|| thread::current().id()), Some(thread::current().id()));
    }
}
