// SPDX-License-Identifier: Apache-2.0 OR MIT
//! vhost-user-cuda: the backend that executes the CUDA calls of virtual machines.
//!
//! One daemon serves many front-ends. The life of a call:
//!
//! * [`backend`] takes a descriptor chain from a queue, [`request`] checks it, [`device`] finds its session.
//! * [`session`] hands it over the [`link`] to the session's worker, a process of its own ([`process`],
//!   started ahead of need by [`pool`]).
//! * [`endings`] has the requests that wait until sessions have ended; [`predecessor`] waits for those of a daemon before.
//! * [`cache`] keeps the images that workers loaded, for the next worker that needs one.
//! * [`worker`] executes it with libcuda and replies; [`ring`] answers the chain.
//!
//! [`confine`] and `worker::sandbox` keep workers from everything else; [`messages`] writes what they say to the log.
//!
//! The daemon proper never loads libcuda. Guest-physical addresses appear in [`request`], [`memory`] and
//! `worker::pages` only; cudarc in `worker::gpu` only.

pub mod account;
pub mod args;
pub mod backend;
pub mod budget;
pub mod cache;
pub mod cgroup;
pub mod config;
pub mod confine;
pub mod daemon;
pub mod descriptors;
pub mod device;
pub mod endings;
pub mod environment;
pub mod events;
pub mod exchange;
#[cfg(test)]
pub mod fixture;
pub mod library;
pub mod link;
pub mod memory;
pub mod messages;
pub mod migration;
pub mod named_pages;
pub mod owner;
pub mod pool;
pub mod predecessor;
pub mod process;
pub mod request;
pub mod request_budget;
pub mod ring;
pub mod session;
pub mod sigbus;
pub mod throttle;
pub mod watchdog;
pub mod worker;
