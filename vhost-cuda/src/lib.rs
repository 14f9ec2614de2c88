// SPDX-License-Identifier: Apache-2.0 OR MIT
//! vhost-user-cuda: the backend that executes the CUDA calls of virtual machines.
//!
//! One daemon serves many front-ends. The life of a call:
//!
//! * [`front_end`]: `backend` takes a descriptor chain from a queue, `request` checks it, `device` finds its session.
//! * [`sessions`]: `session` hands it over the `link` to the session's worker, a process of its own (`process`,
//!   started ahead of need by `pool`).
//! * `sessions::endings` has the requests that wait until sessions have ended; `sessions::predecessor` waits for those of
//!   a daemon before.
//! * [`cache`] keeps the images that workers loaded, for the next worker that needs one.
//! * [`worker`] executes it with libcuda and replies; `front_end::ring` answers the chain.
//!
//! [`confine`] and `worker::sandbox` keep workers from everything else; `sessions::messages` writes what they say to
//! the log. [`limits`] bounds what guests take of the host.
//! [`metrics`] serves figures about all of this to operators.
//!
//! The daemon proper never loads libcuda. Guest-physical addresses appear in `front_end::{request, memory}` and
//! `worker::memory::pages` only; cudarc in `worker::gpu` only.

pub mod args;
pub mod cache;
pub mod config;
pub mod confine;
pub mod daemon;
pub mod exchange;
#[cfg(test)]
pub mod fixture;
pub mod front_end;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
pub mod limits;
pub mod metrics;
pub mod owner;
pub mod sessions;
pub mod shares;
pub mod socket;
pub mod timers;
pub mod worker;
