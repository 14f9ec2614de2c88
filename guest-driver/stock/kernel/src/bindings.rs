// SPDX-License-Identifier: GPL-2.0-only

//! Structures and constants of the kernel that Rust code uses.

#![allow(missing_docs, non_camel_case_types)]

/// Structures that Rust accesses through pointers only.
macro_rules! opaque {
    ($($name:ident)*) => {$(
        #[repr(C)]
        pub struct $name {
            _private: [u8; 0],
        }
    )*};
}

/// Structures that Rust stores by value: their size in words. `glue.c` checks that it suffices (`CHECK_ROOM`), also
/// with lockdep.
macro_rules! room {
    ($($name:ident: $words:literal,)*) => {$(
        #[repr(C, align(8))]
        pub struct $name {
            _room: [u64; $words],
        }
    )*};
}

opaque! { device file mm_struct module page poll_table_struct task_struct vm_area_struct workqueue_struct }
room! {
    lock_class_key: 4,
    mutex: 24,
    spinlock_t: 12,
    wait_queue_entry: 8,
    wait_queue_head: 16,
    work_struct: 14,
    xarray: 16,
}

impl lock_class_key {
    /// Returns the initial value of a static, all zero.
    #[allow(clippy::new_without_default)]
    pub const fn new() -> Self {
        Self { _room: [0; 4] }
    }
}

pub const EPROTO: u32 = 71;
pub const ENOLINK: u32 = 67;
pub const EDQUOT: u32 = 122;
