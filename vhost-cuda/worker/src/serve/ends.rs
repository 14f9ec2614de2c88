// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Guest threads that end: the guest gets its answer once the executor's thread is gone, as `pthread_join` returns then.
//!
//! The driver destroys the default stream of a thread while that ends, and holds a lock that `cuCtxSynchronize` needs. Now and then this
//! does not end (docs/migration.md, "What was tried"): then only the thread that is joined waits.

use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};

use super::lane::Waits;
use crate::run::replies::{Replies, Reply};

/// An executor that ends. It returns the last request and the answer to it.
#[derive(Debug)]
pub struct End {
    /// Its thread.
    pub thread: JoinHandle<Option<(u64, Reply)>>,
    /// It exists until the request is answered.
    pub waits: Arc<Waits>,
}

/// The way to the thread that waits for the ends of executors.
#[derive(Debug, Default)]
pub struct Ends(Option<Sender<End>>);

impl Ends {
    /// Starts the thread if there is none. Returns false if it cannot be started.
    pub fn begin(&mut self, replies: &Arc<Replies>) -> bool {
        if self.0.is_none() {
            let (sender, ends) = channel::<End>();
            let replies = replies.clone();
            let wait = move || {
                for End { thread, waits } in ends {
                    if let Ok(Some((request, reply))) = thread.join() {
                        replies.send(request, &reply);
                    }
                    drop(waits);
                }
            };
            self.0 = thread::Builder::new().name("ends".into()).spawn(wait).is_ok().then_some(sender);
        }
        self.0.is_some()
    }

    /// Has the answer sent when the thread is gone.
    pub fn note(&self, end: End) {
        if let Some(ends) = &self.0 {
            // The thread lives as long as its sender.
            let _ = ends.send(end);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use vhost_cuda_common::link::{Frame, ToWorker};
    use virtio_cuda_protocol::cuda::{CallHeader, Opcode};
    use zerocopy::IntoBytes;

    use crate::renewal::fixture::Guest;

    /// A number that no other test uses.
    const THREAD: u32 = 54321;

    /// The number of threads of this process that execute calls of [`THREAD`].
    fn threads() -> usize {
        let name = format!("guest-{THREAD}\n");
        let tasks = fs::read_dir("/proc/self/task").unwrap();
        // A thread that ends meanwhile has no name.
        tasks
            .filter(|task| {
                fs::read(task.as_ref().unwrap().path().join("comm")).is_ok_and(|its| its == name.as_bytes())
            })
            .count()
    }

    fn call(guest: &mut Guest, opcode: Opcode) -> u64 {
        let header = CallHeader { opcode: opcode as u32, thread: THREAD, ..CallHeader::default() };
        guest.submit(Frame::of_payload(ToWorker::default(), header.as_bytes().to_vec()))
    }

    #[test]
    fn the_thread_is_gone_when_the_guest_gets_its_answer() {
        let mut guest = Guest::new(false);
        for _ in 0..200 {
            let first = call(&mut guest, Opcode::cuCtxSynchronize);
            guest.answer(first);
            assert_eq!(threads(), 1);
            let last = call(&mut guest, Opcode::session_thread_exit);
            guest.result(last);
            assert_eq!(threads(), 0);
        }
    }
}
