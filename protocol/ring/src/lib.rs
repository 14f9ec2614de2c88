// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR BSD-3-Clause

//! Lanes: how the calls of one guest thread reach its executor in the worker without a system call.
//!
//! A lane is an area of guest memory that the driver shares with the worker (`OP_SHARE`). The thread puts records
//! into it and the executor takes them out in order. The reply to a record that waits for one is written next to the
//! records. Either side polls the lane for a while before it sleeps, and announces the sleep first:
//!
//! - the executor sets [`layout::Header::sleeping`] and looks once more; a producer that finds it set clears it
//!   and sends a wake-up through the request queue;
//! - a thread whose reply does not come soon asks for it through the request queue and sleeps there.
//!
//! `docs/spec/virtio-cuda.md` has the normative text. The worker trusts nothing in a lane: see [`Consumer`].
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p virtio-cuda-ring --release` checks every interleaving of the
//! hand-off.

mod consumer;
pub mod layout;
mod memory;
pub mod order;
mod outstanding;
mod producer;
mod progress;
pub mod streaming;
mod sync;

pub use consumer::{Consumer, Corrupt, Record};
pub use layout::{Kind, LANE_BYTES, MAX_RECORD_BYTES, MAX_REPLY_BYTES};
pub use memory::LaneMemory;
pub use order::{Order, Position, Turn};
pub use outstanding::Outstanding;
pub use producer::Producer;
pub use progress::Progress;
