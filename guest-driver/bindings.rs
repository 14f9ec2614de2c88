// SPDX-License-Identifier: GPL-2.0-only

//! Generated bindings of `virtio_glue.h` (see `bindgen.mk`). Only the rooms of unsafe code use them:
//! `virtio.rs`, `irqlock.rs`, `wait.rs`, `memory.rs`, `task.rs`, `watch.rs` and `workqueue.rs`.

#![allow(
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    clippy::missing_safety_doc,
    dead_code,
    missing_docs,
    non_camel_case_types,
    non_upper_case_globals,
    non_snake_case,
    improper_ctypes,
    unreachable_pub,
    unsafe_op_in_unsafe_fn,
    unused_imports
)]

include!(concat!(env!("VIRTIO_CUDA_OBJ"), "/virtio_generated.rs"));
