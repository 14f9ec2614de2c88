// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Workers that are handed over to the next program. They are its children, too.

use std::fs::File;
use std::io::{self, PipeReader};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::process::{WaitId, WaitIdOptions, waitid};
use serde::{Deserialize, Serialize};
use vhost_cuda_common::link;
use vhost_cuda_common::statistics::Statistics;

use super::{Process, Sockets, Worker, WorkerSpec};
use crate::hand_over::files::{Inherited, Leaving, Number};
use crate::shares::client::{Client, SavedEnrolment};

/// A worker with a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SavedWorker {
    /// The version of the link that it speaks.
    version: u32,
    pid: u32,
    process: Number,
    mapper: Option<(u32, Number)>,
    link: Number,
    images: Number,
    exchange: Number,
    counters: Number,
    listener: Option<Number>,
    messages: Option<Number>,
    enrolment: Option<SavedEnrolment>,
}

impl SavedWorker {
    /// Checks that this program speaks with the worker.
    ///
    /// Errors: the worker's version, and those that this program knows.
    pub fn check_version(&self) -> Result<(), String> {
        let (version, known) = (self.version, link::VERSIONS);
        if known.contains(&version) {
            return Ok(());
        }
        Err(format!(
            "worker {} speaks version {version} of the link, and this program {} to {}: let the session end first, or \
             install a release between the two",
            self.pid,
            known.start(),
            known.end()
        ))
    }

    /// Process id of the worker.
    pub fn pid(&self) -> u32 {
        self.pid
    }
}

impl Worker {
    /// Returns what the next program needs.
    pub fn save(&self, files: &mut Leaving) -> SavedWorker {
        let Process { pid, pidfd, mapper, .. } = &self.process;
        SavedWorker {
            version: self.version,
            pid: *pid,
            process: files.add(pidfd),
            mapper: mapper.get().map(|(pid, pidfd)| (*pid, files.add(pidfd))),
            link: files.add(&self.sockets.link),
            images: files.add(&*self.sockets.images),
            exchange: files.add(&*self.sockets.exchange),
            counters: files.add(&self.counters),
            listener: self.listener.lock().as_ref().map(|listener| files.add(&**listener)),
            messages: self.messages.save(files),
            enrolment: self.enrolment.as_ref().and_then(|enrolment| enrolment.save(files)),
        }
    }

    /// Goes on with a worker of the program before this one.
    ///
    /// Errors: the state is wrong, or the worker is not a child of this process.
    pub fn restore(saved: SavedWorker, spec: &WorkerSpec, files: &mut Inherited) -> io::Result<Self> {
        let process = Process::restore(saved.pid, saved.process, saved.mapper, files)?;
        let sockets = Sockets {
            link: UnixStream::from(files.take(saved.link)?),
            images: Arc::new(files.take(saved.images)?.into()),
            exchange: Arc::new(files.take(saved.exchange)?.into()),
        };
        let counters = File::from(files.take(saved.counters)?);
        let statistics = Statistics::read(&counters)?;
        let listener = saved.listener.map(|listener| files.take(listener)).transpose()?;
        let messages = saved.messages.map(|pipe| files.take(pipe)).transpose()?;
        let messages = spec.messages.attach_again(messages.map(PipeReader::from), process.pid())?;
        let enrolment = match (&spec.shares, saved.enrolment) {
            (Some(shares), Some(saved)) => Some(Client::enrol_again(shares, saved, files)?),
            _ => None,
        };
        Ok(Self {
            sockets: Arc::new(sockets),
            process,
            statistics,
            counters,
            enrolment,
            pages: Mutex::default(),
            listener: Mutex::new(listener.map(Arc::new)),
            version: saved.version,
            messages,
        })
    }
}

impl Process {
    fn restore(
        pid: u32,
        process: Number,
        mapper: Option<(u32, Number)>,
        files: &mut Inherited,
    ) -> io::Result<Self> {
        let pidfd = files.take(process)?;
        // Neither one that has ended nor one that runs is waited for here. Other processes than children are refused.
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        match waitid(WaitId::PidFd(rustix::fd::AsFd::as_fd(&pidfd)), options) {
            Err(Errno::CHILD | Errno::BADF | Errno::INVAL) => return Err(io::ErrorKind::InvalidData.into()),
            result => drop(result?),
        }
        let mapper = mapper.map(|(pid, number)| io::Result::Ok((pid, files.take(number)?))).transpose()?;
        let mapper = mapper.map(OnceLock::from).unwrap_or_default();
        Ok(Self { pid, pidfd, reaped: Mutex::default(), mapper })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rustix::process::{PidfdFlags, getpid, pidfd_open};

    use super::*;
    use crate::hand_over::files::keep_open;
    use crate::sessions::fixture::{sleeping_worker, worker_spec};
    use crate::sessions::process::Reaped;

    const LONG: Duration = Duration::from_secs(10);

    /// Returns a worker that was left, and its descriptors.
    fn left() -> (SavedWorker, Inherited, UnixStream) {
        let (worker, link) = sleeping_worker();
        // Nobody writes into its pipe, so the daemon closes that.
        while worker.messages.save(&mut Leaving::default()).is_some() {
            std::thread::yield_now();
        }
        let mut files = Leaving::default();
        let saved = worker.save(&mut files);
        let json = serde_json::to_vec(&saved).unwrap();
        assert_eq!(serde_json::from_slice::<SavedWorker>(&json).unwrap(), saved);
        // Its descriptors stay open.
        std::mem::forget(worker);
        keep_open(&files.numbers(), true).unwrap();
        (saved, Inherited::of(&files.numbers()).unwrap(), link)
    }

    #[test]
    fn a_worker_is_the_child_of_the_next_program_too() {
        let (saved, mut files, link) = left();
        files.commit();
        saved.check_version().unwrap();
        let worker = Worker::restore(saved.clone(), &worker_spec(), &mut files).unwrap();
        assert!(worker.process.is_running());
        link::write_now(&worker.sockets.link, b"x");
        assert_eq!(rustix::io::ioctl_fionread(&link).unwrap(), 1);
        let Reaped::Ended(Some(status)) = worker.process.reap(LONG) else { panic!("it does not end") };
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(libc::SIGKILL));
        assert!(Worker::restore(saved, &worker_spec(), &mut files).is_err(), "its descriptors are taken");
    }

    #[test]
    fn what_is_no_worker_is_refused() {
        let other = pidfd_open(getpid(), PidfdFlags::empty()).unwrap();
        let mut more = Leaving::default();
        let own = more.add(&other);
        std::mem::forget(other);
        keep_open(&more.numbers(), true).unwrap();
        let mut theirs = Inherited::of(&more.numbers()).unwrap();
        assert!(Process::restore(1, own, None, &mut theirs).is_err(), "this process is no child of itself");
        let (saved, mut files, _link) = left();
        let swapped = SavedWorker { process: saved.link, ..saved.clone() };
        assert!(Worker::restore(swapped, &worker_spec(), &mut files).is_err(), "a socket is no process");
        let swapped = SavedWorker { counters: saved.link, ..saved.clone() };
        assert!(Worker::restore(swapped, &worker_spec(), &mut files).is_err(), "a socket has no counters");
        let unknown = SavedWorker { version: link::VERSION + 1, ..saved };
        let error = unknown.check_version().unwrap_err();
        assert!(error.contains(&format!("version {}", link::VERSION + 1)), "{error}");
    }
}
