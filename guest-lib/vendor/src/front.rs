// SPDX-License-Identifier: Apache-2.0 OR MIT

//! A library as programs use it: opened at the first call; then calls are executed one by one.

mod exchange;

use std::collections::{HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, OnceLock, PoisonError};

use cuda_library_rows::block::BadSize;
use cuda_library_rows::{Answer, Body, Call, Library};

use crate::answers::{Answers, text};
use crate::bridge;
use crate::handles::{HandleSequence, Handles, State};
use crate::proven::Proven;
use exchange::Exchange;

/// One of NVIDIA's libraries.
#[derive(Debug)]
pub struct Front {
    rows: &'static Library,
    /// A bit for each number of a function: 1 if the worker has loaded the library and has the same row. Empty if it has not
    /// loaded it.
    opened: OnceLock<Box<[u8]>>,
    handles: Handles,
    new_handles: HandleSequence,
    proven: Proven,
    /// The number of calls so far that have set something of a handle.
    settings: AtomicU64,
    answers: Answers,
    /// Addresses of the library's tables, by the key of the call.
    tables: Mutex<Option<HashMap<u64, u64>>>,
    refused: Mutex<Option<HashSet<usize>>>,
}

/// The reason why a call has no result of the library.
#[derive(Clone, Copy, Debug)]
enum Failure {
    /// An invalid argument.
    BadSize,
    /// A `CUresult`.
    Cuda(i32),
    /// A bug in this library.
    Internal,
}

impl From<BadSize> for Failure {
    fn from(_: BadSize) -> Self {
        Self::BadSize
    }
}

impl Front {
    /// Returns the library with these rows; nothing is opened yet.
    pub const fn new(rows: &'static Library) -> Self {
        Self {
            rows,
            opened: OnceLock::new(),
            handles: Handles::new(),
            new_handles: HandleSequence::new(),
            proven: Proven::new(),
            settings: AtomicU64::new(0),
            answers: Answers::new(),
            tables: Mutex::new(None),
            refused: Mutex::new(None),
        }
    }

    /// Implements [`crate::forward`].
    ///
    /// # Safety
    ///
    /// The contract of [`crate::forward`].
    pub unsafe fn forward(&'static self, function: usize, slots: &[u64]) -> u64 {
        let rows = self.rows;
        let Body::Forward(call) = &rows.functions[function].body else { return 0 };
        let same = self.opened.get_or_init(|| self.open());
        let number = rows.functions[function].number as usize;
        match same.get(number / 8) {
            Some(bits) if bits >> (number % 8) & 1 != 0 => {}
            Some(_) => return failed(call, self.other_release(function)),
            None => return failed(call, rows.statuses.not_initialized),
        }
        let exchange = || {
            // SAFETY: `crate::forward` demands slots that are the arguments of the function of this row.
            unsafe { Exchange::new(self, function, call, slots).run() }
        };
        match catch_unwind(AssertUnwindSafe(exchange)).unwrap_or(Err(Failure::Internal)) {
            Ok(value) => value,
            Err(Failure::BadSize) => failed(call, rows.statuses.invalid_value),
            Err(Failure::Cuda(bridge::OUT_OF_MEMORY)) => failed(call, rows.statuses.alloc_failed),
            Err(Failure::Cuda(bridge::NOT_FOUND)) => failed(call, rows.statuses.not_supported),
            Err(Failure::Cuda(_) | Failure::Internal) => failed(call, rows.statuses.internal_error),
        }
    }

    /// Implements [`crate::forward_named`].
    ///
    /// # Safety
    ///
    /// The contract of [`crate::forward_named`].
    pub unsafe fn forward_named(&'static self, name: &str, slots: &[u64]) -> i32 {
        match self.index(name) {
            // SAFETY: `crate::forward_named` demands the arguments of the function of that name, which has this index.
            Some(function) => unsafe { self.forward(function, slots) as i32 },
            None => self.rows.statuses.not_supported,
        }
    }

    /// Implements [`crate::refuse`]. The first refusal of each function is reported on stderr.
    pub fn refuse(&'static self, function: usize) -> i32 {
        let rows = self.rows;
        let reason = match &rows.functions[function].body {
            Body::Refuse(reason) => reason,
            _ => "nobody has written it yet",
        };
        self.report(function, reason)
    }

    /// Reports a function that the worker's release lacks or knows in another form.
    #[cold]
    fn other_release(&self, function: usize) -> i32 {
        self.report(
            function,
            "the host's vhost-user-cuda is of another release, in which it differs or is missing",
        )
    }

    /// Reports on stderr, once per function, that it is not supported. Returns the status.
    fn report(&self, function: usize, reason: &str) -> i32 {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        if refused.get_or_insert_default().insert(function) {
            eprintln!("vhost-cuda: {} is not supported: {reason}.", self.rows.functions[function].name);
        }
        self.rows.statuses.not_supported
    }

    /// Returns the table that a call with this key has returned.
    fn table(&self, key: u64) -> Option<u64> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner).as_ref()?.get(&key).copied()
    }

    fn keep_table(&self, key: u64, table: u64) {
        let mut tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        tables.get_or_insert_default().insert(key, table);
    }

    /// Returns the known state of a handle.
    pub fn state(&self, handle: u64) -> State {
        self.handles.state(handle)
    }

    /// Changes the origin of a handle. The library's acceptance of calls does not carry over between origins.
    pub fn set_birth(&self, handle: u64, birth: u64) {
        self.handles.change(handle, |state| state.birth = birth);
    }

    /// Returns the number of a function.
    pub fn index(&self, name: &str) -> Option<usize> {
        self.rows.functions.iter().position(|function| function.name == name)
    }

    /// Lets the worker load the library, and reports on stderr if it cannot. Returns the bits of [`Self::opened`].
    fn open(&self) -> Box<[u8]> {
        let rows = self.rows;
        let digests: Vec<u64> = rows.digests().collect();
        match bridge::load(rows.number, major(rows.sonames[0]), &digests) {
            Ok(same) => same,
            Err(bridge::NOT_FOUND) => {
                eprintln!(
                    "vhost-cuda: the host has no {}. Its operator can install it, or name its folder with \
                     `vhost-user-cuda --libraries DIR`.",
                    rows.sonames[0]
                );
                Box::default()
            }
            Err(error) => {
                eprintln!("vhost-cuda: {} cannot be used: CUDA error {error}.", rows.sonames[0]);
                Box::default()
            }
        }
    }
}

/// Returns the value of a function whose call did not reach the library.
fn failed(call: &Call, status: i32) -> u64 {
    match call.answer {
        Answer::Status => u64::from(status as u32),
        Answer::Text => text(b"not available: the host's library was not reached").as_ptr() as u64,
        Answer::Number(_) | Answer::Nothing => 0,
    }
}

/// Returns the `13` of `libcublas.so.13`.
fn major(soname: &str) -> u32 {
    soname.rsplit('.').next().and_then(|number| number.parse().ok()).unwrap_or(0)
}
