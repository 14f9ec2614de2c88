// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The answers to the daemon's requests.

use std::os::unix::net::UnixStream;

use parking_lot::Mutex;
use vhost_cuda_common::link::{self, FROM_REPLY, FROM_WAKE, FromWorker};

/// A reply to the daemon: a `REPLY_*` and the payload.
pub type Reply = (u32, Vec<u8>);

/// The replies to the daemon.
#[derive(Debug)]
pub struct Replies {
    stream: Mutex<UnixStream>,
}

impl Replies {
    /// Sends replies to `stream`.
    pub fn new(stream: UnixStream) -> Self {
        Self { stream: Mutex::new(stream) }
    }

    /// Answers request `id`. If the daemon does not take the answer, the process ends: the daemon waits for nothing any more.
    pub fn send(&self, id: u64, (status, payload): &Reply) {
        self.write(FromWorker { kind: FROM_REPLY, status: *status, id, ..FromWorker::default() }, payload);
    }

    /// Reports that a call waits until the session is resumed.
    pub fn wake(&self) {
        self.write(FromWorker { kind: FROM_WAKE, ..FromWorker::default() }, &[]);
    }

    fn write(&self, header: FromWorker, payload: &[u8]) {
        let stream = self.stream.lock();
        if let Err(error) = link::send_reply(&stream, &header, payload) {
            crate::end_process(&format!("the daemon does not take replies: {error}"));
        }
    }
}
