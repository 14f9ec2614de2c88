// SPDX-License-Identifier: GPL-2.0-only

//! Declarations of the functions of `glue/glue.h`. The unsafe parts of the driver use them: the files beside this one,
//! `memory/mod.rs`, `session/watch.rs` and `limits/params.rs`.

// Structures of the kernel crate may have members without bytes, as in C.
#![allow(improper_ctypes, missing_docs, non_camel_case_types)]

use kernel::{
    bindings::{
        device,
        file,
        lock_class_key,
        mm_struct,
        module,
        page,
        poll_table_struct,
        spinlock_t,
        vm_area_struct,
        wait_queue_entry,
        wait_queue_head,
        workqueue_struct, //
    },
    prelude::*,
};

/// Structures that Rust accesses through pointers only.
macro_rules! opaque {
    ($($name:ident)*) => {$(
        #[repr(C)]
        pub(crate) struct $name {
            _private: [u8; 0],
        }
    )*};
}
opaque! { virtio_device virtqueue scatterlist virtio_cuda_watch }

/// The entry points of a virtio driver.
#[repr(C)]
pub(crate) struct virtio_cuda_driver {
    pub(crate) name: *const c_char,
    pub(crate) device_id: c_uint,
    pub(crate) probe: unsafe extern "C" fn(*mut virtio_device) -> c_int,
    pub(crate) remove: unsafe extern "C" fn(*mut virtio_device),
    pub(crate) queue_interrupt: unsafe extern "C" fn(*mut c_void, c_uint),
    pub(crate) config_interrupt: unsafe extern "C" fn(*mut c_void),
}

/// The entry points of a device file.
#[repr(C)]
pub(crate) struct virtio_cuda_file_operations {
    pub(crate) open: unsafe extern "C" fn(*mut *mut c_void) -> c_int,
    pub(crate) release: unsafe extern "C" fn(*mut c_void),
    pub(crate) flush: unsafe extern "C" fn(*mut c_void),
    pub(crate) ioctl: unsafe extern "C" fn(*mut c_void, c_uint, c_ulong) -> c_long,
    pub(crate) mmap: unsafe extern "C" fn(*mut c_void, *mut vm_area_struct, u64) -> c_int,
    pub(crate) poll: unsafe extern "C" fn(*mut c_void, *mut file, *mut poll_table_struct) -> u32,
    pub(crate) read: unsafe extern "C" fn(*mut c_void, *mut c_void, usize, bool) -> isize,
}

/// The module's parameters.
#[repr(C)]
pub(crate) struct virtio_cuda_params {
    pub(crate) max_pinned_mib: u64,
    pub(crate) max_shared_mib: u64,
    pub(crate) max_outstanding: u32,
    pub(crate) max_user_sessions: u32,
    pub(crate) pinned_per_user_percent: u32,
    pub(crate) pinned_percent: u32,
    pub(crate) memlock_strict: u32,
}

pub(crate) const VIRTIO_CUDA_READ: c_uint = 0;
pub(crate) const VIRTIO_CUDA_WRITE: c_uint = 1;
pub(crate) const VIRTIO_CUDA_KEEP: c_uint = 2;
pub(crate) const VIRTIO_CUDA_KEEP_READ: c_uint = 3;
pub(crate) const VIRTIO_CUDA_READABLE: u32 = 1;
pub(crate) const VIRTIO_CUDA_HUNG_UP: u32 = 2;

extern "C" {
    pub(crate) fn virtio_cuda_register_driver(
        driver: *const virtio_cuda_driver,
        owner: *mut module,
    ) -> c_int;
    pub(crate) fn virtio_cuda_unregister_driver();
    pub(crate) fn virtio_cuda_device(vdev: *mut virtio_device) -> *mut device;
    pub(crate) fn virtio_cuda_state(vdev: *const virtio_device) -> *mut c_void;
    pub(crate) fn virtio_cuda_set_state(vdev: *mut virtio_device, state: *mut c_void);
    pub(crate) fn virtio_cuda_config_read(
        vdev: *mut virtio_device,
        offset: c_uint,
        buf: *mut c_void,
        bytes: c_uint,
    );
    pub(crate) fn virtio_cuda_config_write_le32(
        vdev: *mut virtio_device,
        offset: c_uint,
        value: u32,
    );
    pub(crate) fn virtio_cuda_find_vqs(
        vdev: *mut virtio_device,
        count: c_uint,
        vqs: *mut *mut virtqueue,
        names: *const *const c_char,
    ) -> c_int;
    pub(crate) fn virtio_cuda_del_vqs(vdev: *mut virtio_device);
    pub(crate) fn virtio_cuda_device_ready(vdev: *mut virtio_device);
    pub(crate) fn virtio_cuda_reset(vdev: *mut virtio_device);
    pub(crate) fn virtio_cuda_add(
        vq: *mut virtqueue,
        list: *mut scatterlist,
        readable: c_uint,
        token: *mut c_void,
    ) -> c_int;
    pub(crate) fn virtio_cuda_kick_prepare(vq: *mut virtqueue) -> bool;
    pub(crate) fn virtio_cuda_notify(vq: *mut virtqueue) -> bool;
    pub(crate) fn virtio_cuda_get_buf(vq: *mut virtqueue, bytes: *mut u32) -> *mut c_void;
    pub(crate) fn virtio_cuda_detach_unused_buf(vq: *mut virtqueue) -> *mut c_void;
    pub(crate) fn virtio_cuda_disable_cb(vq: *mut virtqueue);
    pub(crate) fn virtio_cuda_enable_cb(vq: *mut virtqueue) -> bool;
    pub(crate) fn virtio_cuda_is_broken(vq: *const virtqueue) -> bool;
    pub(crate) fn virtio_cuda_vring_size(vq: *const virtqueue) -> c_uint;
    pub(crate) fn virtio_cuda_spread_queue(vq: *mut virtqueue, queues: c_uint);
    pub(crate) fn virtio_cuda_sg_alloc(readable: c_uint, writable: c_uint) -> *mut scatterlist;
    pub(crate) fn virtio_cuda_sg_set(
        list: *mut scatterlist,
        index: c_uint,
        buf: *const c_void,
        bytes: c_uint,
    );
    pub(crate) fn virtio_cuda_sg_free(list: *mut scatterlist);
    pub(crate) fn virtio_cuda_pin_pages(
        start: c_ulong,
        count: c_int,
        access: c_uint,
        pages: *mut *mut page,
    ) -> c_int;
    pub(crate) fn virtio_cuda_unpin_pages(page: *mut page, count: c_ulong, dirty: bool);
    pub(crate) fn virtio_cuda_free_page(page: *mut page);
    pub(crate) fn virtio_cuda_page_to_pfn(page: *const page) -> c_ulong;
    pub(crate) fn virtio_cuda_pfn_to_page(pfn: c_ulong) -> *mut page;
    pub(crate) fn virtio_cuda_alloc_pages(order: c_uint) -> *mut page;
    pub(crate) fn virtio_cuda_ram_bytes() -> u64;
    pub(crate) fn virtio_cuda_count_pins(mm: *mut mm_struct, pages: i64);
    pub(crate) fn virtio_cuda_watch_new(
        made: *mut *mut virtio_cuda_watch,
        start: c_ulong,
        bytes: c_ulong,
        changed: unsafe extern "C" fn(*mut c_void),
        cookie: *mut c_void,
    ) -> c_int;
    pub(crate) fn virtio_cuda_watch_free(watch: *mut virtio_cuda_watch);
    pub(crate) fn virtio_cuda_watch_is_stale(watch: *const virtio_cuda_watch) -> bool;
    pub(crate) fn virtio_cuda_watch_reset(watch: *mut virtio_cuda_watch);
    pub(crate) fn virtio_cuda_count(which: c_uint, more: u64);
    pub(crate) fn virtio_cuda_params() -> *const virtio_cuda_params;
    pub(crate) fn virtio_cuda_register_chardev(
        operations: *const virtio_cuda_file_operations,
        name: *const c_char,
        mode: u32,
        owner: *mut module,
    ) -> c_int;
    pub(crate) fn virtio_cuda_deregister_chardev();
    pub(crate) fn virtio_cuda_spin_lock_init(
        lock: *mut spinlock_t,
        name: *const c_char,
        key: *mut lock_class_key,
    );
    pub(crate) fn virtio_cuda_spin_lock_irqsave(lock: *mut spinlock_t) -> c_ulong;
    pub(crate) fn virtio_cuda_spin_trylock_irqsave(
        lock: *mut spinlock_t,
        flags: *mut c_ulong,
    ) -> bool;
    pub(crate) fn virtio_cuda_spin_unlock_irqrestore(lock: *mut spinlock_t, flags: c_ulong);
    pub(crate) fn virtio_cuda_spin_assert_is_held(lock: *mut spinlock_t);
    pub(crate) fn virtio_cuda_wait_init(
        head: *mut wait_queue_head,
        name: *const c_char,
        key: *mut lock_class_key,
    );
    pub(crate) fn virtio_cuda_wait_wake_all(head: *mut wait_queue_head);
    pub(crate) fn virtio_cuda_wait_entry_init(entry: *mut wait_queue_entry);
    pub(crate) fn virtio_cuda_wait_prepare(
        head: *mut wait_queue_head,
        entry: *mut wait_queue_entry,
        killable: bool,
    );
    pub(crate) fn virtio_cuda_wait_finish(head: *mut wait_queue_head, entry: *mut wait_queue_entry);
    pub(crate) fn virtio_cuda_schedule_timeout(jiffies: c_long) -> c_long;
    pub(crate) fn virtio_cuda_signalled(killable: bool) -> bool;
    pub(crate) fn virtio_cuda_processor() -> c_uint;
    pub(crate) fn virtio_cuda_current_exiting() -> bool;
    pub(crate) fn virtio_cuda_current_name(name: *mut u8);
    pub(crate) fn virtio_cuda_current_uid() -> u32;
    pub(crate) fn virtio_cuda_charged_uid() -> u32;
    pub(crate) fn virtio_cuda_memlock_bytes() -> u64;
    pub(crate) fn virtio_cuda_may_lock_memory() -> bool;
    pub(crate) fn virtio_cuda_alloc_workqueue(name: *const c_char) -> *mut workqueue_struct;
    pub(crate) fn virtio_cuda_flush_workqueue(queue: *mut workqueue_struct);
    pub(crate) fn virtio_cuda_destroy_workqueue(queue: *mut workqueue_struct);
}
