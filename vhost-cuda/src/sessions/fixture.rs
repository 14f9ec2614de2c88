// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Workers for unit tests.

use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::Arc;

use parking_lot::Mutex;
use vhost_cuda_common::args::Sandbox;
use vhost_cuda_common::link;
use vhost_cuda_common::statistics::Statistics;

use crate::args::Speed;
use crate::sessions::messages::Messages;
use crate::sessions::process::{Process, Sockets, Worker, WorkerSpec};

/// Returns the settings for workers of a test. They run the test's program, which does not know the worker's options
/// and ends at once.
pub fn worker_spec() -> WorkerSpec {
    WorkerSpec {
        libraries: Vec::new(),
        nccl: false,
        library: "/nonexistent".into(),
        memory_limit: None,
        gpus: None,
        copy_threads: 1,
        sandbox: Sandbox::Auto,
        speed: Speed::On,
        emulated: false,
        log_level: "off".into(),
        lock: None,
        messages: Messages::start().unwrap(),
        allow_pageable_access: false,
        namespaces: false,
        named_pages: false,
        time_limit: None,
        shares: None,
    }
}

/// Returns a worker whose process only sleeps, and the worker's end of its link.
pub fn sleeping_worker() -> (Worker, UnixStream) {
    sleeping_worker_with(0)
}

/// The same, charged for `bytes` of device memory.
pub fn sleeping_worker_with(bytes: u64) -> (Worker, UnixStream) {
    let (link, theirs) = UnixStream::pair().unwrap();
    let other = || Arc::new(UnixStream::pair().unwrap().0);
    let sockets = Arc::new(Sockets { link, images: other(), exchange: other() });
    let child = Command::new("sleep").arg("60").stdin(Stdio::null()).process_group(0).spawn().unwrap();
    let process = Process::of(child).unwrap();
    let (pipe, _) = Messages::pipe().unwrap();
    let messages = Messages::start().unwrap().attach(pipe, process.pid()).unwrap();
    let (statistics, counters) = Statistics::charged(bytes).unwrap();
    let (pages, listener) = (Mutex::default(), Mutex::default());
    let (enrolment, version) = (None, link::VERSION);
    let worker =
        Worker { sockets, process, pages, listener, statistics, counters, enrolment, messages, version };
    (worker, theirs)
}
