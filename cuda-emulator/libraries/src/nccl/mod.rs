// SPDX-License-Identifier: Apache-2.0 OR MIT

//! NCCL. The ranks of a communicator are of one process or of several. They share a memory file ([`segment`]);
//! every process that has the communicator's id gets it ([`identity`]).
//!
//! * [`channel`]: a ring of bytes from each rank to each other one.
//! * [`task`]: a transfer through such rings, which goes on as far as it can and never waits; [`operation`] says which transfers
//!   a collective consists of.
//! * [`communicator`]: runs the tasks of its operations, one operation after the other, in host functions of the streams.
//! * [`peers`]: waits for other ranks, and ends the wait if one of them has failed or its process has ended.
//! * [`group`], [`split`], [`api`]: the functions.
//!
//! Other ranks are not trusted. They may write any data into the file at any time, which can corrupt the data of the
//! communicator, and end it. Every index or length is checked, or stored in memory of this process.

pub(crate) mod api;
mod channel;
mod communicator;
mod counted;
mod driver;
mod element;
mod group;
mod identity;
mod operation;
mod peers;
mod segment;
mod split;
mod task;
#[cfg(test)]
mod tests;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// `ncclResult_t`
type Status = i32;

const SUCCESS: Status = 0;
const CUDA_ERROR: Status = 1;
const SYSTEM_ERROR: Status = 2;
const INVALID_ARGUMENT: Status = 4;
const INVALID_USAGE: Status = 5;
const REMOTE_ERROR: Status = 6;
const IN_PROGRESS: Status = 7;

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The body of an exported function, as a status.
fn status(result: Result<(), Status>) -> Status {
    result.err().unwrap_or(SUCCESS)
}
