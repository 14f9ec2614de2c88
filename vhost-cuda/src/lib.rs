// SPDX-License-Identifier: Apache-2.0 OR MIT
//! vhost-user-cuda: the backend that executes the CUDA calls of virtual machines.
//!
//! One daemon serves many front-ends. A call passes these modules:
//!
//! * [`front_end`]: `backend` takes a descriptor chain from a queue, `guest::request` checks it, `device` finds its session.
//! * [`sessions`]: `session` passes it over the `link` to the session's worker, a process of its own (`process`),
//!   which `pool` has started in advance.
//! * `sessions::endings` holds the requests that wait until sessions have ended; `sessions::predecessor` waits for
//!   those of an earlier daemon.
//! * [`cache`] caches the images that workers loaded, for the next worker that needs one.
//! * The worker (`vhost-cuda/worker`) executes it with libcuda and replies; `guest::ring` answers the chain.
//!
//! [`confine`] and `worker::sandbox` isolate workers. `sessions::messages` writes their messages to the log.
//! [`limits`] bounds the host resources that guests use. [`metrics`] serves metrics of all of this to operators.
//! [`suspend`] moves device memory of idle sessions to host memory, also on request through [`control`]. [`replace`] hands all of
//! this over to a newer program.
//!
//! The daemon never loads libcuda. Guest-physical addresses appear in `guest` only.

pub mod args;
pub mod cache;
pub mod config;
pub mod confine;
pub mod control;
pub mod daemon;
pub mod exchange;
pub mod front_end;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
pub mod guest;
pub mod hand_over;
pub mod limits;
pub mod metrics;
pub mod owner;
pub mod replace;
pub mod sessions;
pub mod shares;
pub mod socket;
pub mod suspend;
