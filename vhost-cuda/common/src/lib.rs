// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the daemon and its workers both know.
//!
//! * [`link`] is the link between the daemon and one worker: frames with calls, moves of memory and their answers.
//!   [`recording`] and [`recipes`] have the form of some of these answers, and [`args`] is the worker's command line.
//! * [`exchange`] and [`images`] are a worker's questions to the daemon, each on a socket of its own; [`messages`] is what it
//!   writes to the log. [`files`] passes files along.
//! * [`statistics`], [`account`] and [`gates`] are memory that a worker shares with the daemon, with the other workers of
//!   its machine, and with the arbiter.
//! * [`confine`] and [`mapping`] are the confinement of workers, as far as both must know it.
//! * [`parts`] is the form of saved sessions.
//! * [`nvml`] asks NVIDIA's management library, [`family`] lists the workers of a machine, [`budget`] and [`timers`] are
//!   small helpers.
//!
//! The daemon does not trust a worker. What it reads from one is checked here or where it is used.

pub mod account;
pub mod args;
pub mod budget;
pub mod confine;
pub mod exchange;
pub mod family;
pub mod files;
pub mod gates;
pub mod images;
pub mod link;
pub mod mapping;
pub mod messages;
pub mod nvml;
pub mod parts;
pub mod recipes;
pub mod recording;
pub mod statistics;
pub mod timers;
