// SPDX-License-Identifier: GPL-2.0-only

//! Declarations of the functions of `../glue.h`, which documents them.

use crate::{
    bindings::*,
    ffi::*, //
};

extern "C" {
    pub(crate) fn stock_print(level: c_uint, text: *const u8, bytes: usize);
    pub(crate) fn stock_print_dev(level: c_uint, dev: *mut device, text: *const u8, bytes: usize);
    pub(crate) fn stock_bug(text: *const u8, bytes: usize);
    pub(crate) fn stock_kmalloc(bytes: usize, flags: c_uint) -> *mut c_void;
    pub(crate) fn stock_kfree(memory: *const c_void);
    pub(crate) fn stock_kvmalloc(bytes: usize, flags: c_uint) -> *mut c_void;
    pub(crate) fn stock_kvfree(memory: *const c_void);
    pub(crate) fn stock_copy_from_user(to: *mut c_void, from: usize, bytes: usize) -> bool;
    pub(crate) fn stock_copy_to_user(to: usize, from: *const c_void, bytes: usize) -> bool;
    pub(crate) fn stock_mutex_init(lock: *mut mutex, name: *const c_char, key: *mut lock_class_key);
    pub(crate) fn stock_mutex_lock(lock: *mut mutex);
    pub(crate) fn stock_mutex_trylock(lock: *mut mutex) -> bool;
    pub(crate) fn stock_mutex_unlock(lock: *mut mutex);
    pub(crate) fn stock_mutex_assert_is_held(lock: *mut mutex);
    pub(crate) fn stock_wait_init(
        head: *mut wait_queue_head,
        name: *const c_char,
        key: *mut lock_class_key,
    );
    pub(crate) fn stock_wait_prepare(head: *mut wait_queue_head, entry: *mut wait_queue_entry);
    pub(crate) fn stock_wait_finish(head: *mut wait_queue_head, entry: *mut wait_queue_entry);
    pub(crate) fn stock_wake_all(head: *mut wait_queue_head);
    pub(crate) fn stock_wake_pollfree(head: *mut wait_queue_head);
    pub(crate) fn stock_poll_wait(
        file: *mut file,
        head: *mut wait_queue_head,
        table: *mut poll_table_struct,
    );
    pub(crate) fn stock_schedule_timeout(jiffies: c_long) -> c_long;
    pub(crate) fn stock_msecs_to_jiffies(ms: c_uint) -> c_ulong;
    pub(crate) fn stock_ktime_ns() -> i64;
    pub(crate) fn stock_current() -> *mut task_struct;
    pub(crate) fn stock_current_mm() -> *mut mm_struct;
    pub(crate) fn stock_task_leader(task: *mut task_struct) -> *mut task_struct;
    pub(crate) fn stock_task_pid(task: *mut task_struct) -> c_int;
    pub(crate) fn stock_signal_pending() -> bool;
    pub(crate) fn stock_task_get(task: *mut task_struct);
    pub(crate) fn stock_task_put(task: *mut task_struct);
    pub(crate) fn stock_mm_grab(mm: *mut mm_struct);
    pub(crate) fn stock_mm_drop(mm: *mut mm_struct);
    pub(crate) fn stock_device_get(dev: *mut device);
    pub(crate) fn stock_device_put(dev: *mut device);
    pub(crate) fn stock_work_init(
        work: *mut work_struct,
        run: unsafe extern "C" fn(*mut work_struct),
        name: *const c_char,
        key: *mut lock_class_key,
    );
    pub(crate) fn stock_queue_work(queue: *mut workqueue_struct, work: *mut work_struct) -> bool;
    pub(crate) fn stock_xa_init(xa: *mut xarray, from_one: bool);
    pub(crate) fn stock_xa_destroy(xa: *mut xarray);
    pub(crate) fn stock_xa_lock(xa: *mut xarray);
    pub(crate) fn stock_xa_unlock(xa: *mut xarray);
    pub(crate) fn stock_xa_load(xa: *mut xarray, index: c_ulong) -> *mut c_void;
    pub(crate) fn stock_xa_store(
        xa: *mut xarray,
        index: c_ulong,
        value: *mut c_void,
        flags: c_uint,
        old: *mut *mut c_void,
    ) -> c_int;
    pub(crate) fn stock_xa_erase(xa: *mut xarray, index: c_ulong) -> *mut c_void;
    pub(crate) fn stock_xa_take_first(xa: *mut xarray) -> *mut c_void;
    pub(crate) fn stock_vma_start(vma: *const vm_area_struct) -> c_ulong;
    pub(crate) fn stock_vma_end(vma: *const vm_area_struct) -> c_ulong;
    pub(crate) fn stock_vma_flags(vma: *const vm_area_struct) -> c_uint;
    pub(crate) fn stock_vma_set(vma: *mut vm_area_struct, flag: c_uint);
    pub(crate) fn stock_vma_clear_mayexec(vma: *mut vm_area_struct);
    pub(crate) fn stock_vm_insert_page(
        vma: *mut vm_area_struct,
        address: c_ulong,
        page: *mut page,
    ) -> c_int;
}
