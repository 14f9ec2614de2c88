// SPDX-License-Identifier: GPL-2.0-only

//! A safe interface to a misc device's file operations. `MiscDevice` of Linux 7.2's kernel crate has no `poll` and no
//! `flush`, sets no mode, and does not pin the module while a file is open.

use crate::linux::bindings as glue;
use core::marker::PhantomData;
use kernel::{
    bindings,
    error::from_result,
    fs::File,
    mm::virt::VmaNew,
    prelude::*,
    sync::poll::PollTable,
    types::ForeignOwnable,
    uaccess::{
        UserSlice,
        UserSliceWriter, //
    },
};

/// The result of poll(2).
pub(crate) struct Readiness {
    /// read(2) would return data.
    pub(crate) readable: bool,
    /// No more data will follow.
    pub(crate) hung_up: bool,
}

/// The file operations; a value is one open file.
pub(crate) trait FileOperations: Sized + Send + Sync + 'static {
    /// open(2).
    fn open() -> Result<Self>;
    /// The last close(2). Called once per value.
    fn release(self);
    /// Each close(2), including those of a dying process.
    fn flush(&self);
    /// ioctl(2); `arg` is a user address.
    fn ioctl(&self, command: u32, arg: usize) -> Result;
    /// mmap(2); `offset` is in bytes.
    fn mmap(&self, vma: &VmaNew, offset: u64) -> Result;
    /// poll(2).
    fn poll(&self, file: &File, table: &PollTable<'_>) -> Readiness;
    /// read(2).
    fn read(&self, into: UserSliceWriter, block: bool) -> Result<usize>;
}

/// The entry points for C. In each, `value` is the one that `open` has created, and it is only used until `release`.
struct Callbacks<T>(PhantomData<T>);

#[allow(clippy::missing_safety_doc)]
impl<T: FileOperations> Callbacks<T> {
    /// The functions that the C side calls.
    const ENTRIES: glue::virtio_cuda_file_operations = glue::virtio_cuda_file_operations {
        open: Self::open,
        release: Self::release,
        flush: Self::flush,
        ioctl: Self::ioctl,
        mmap: Self::mmap,
        poll: Self::poll,
        read: Self::read,
    };

    /// # Safety
    ///
    /// `value` is that of a file which is open during `'a`.
    unsafe fn value<'a>(value: *mut c_void) -> &'a T {
        // SAFETY: `open` has made it of a `KBox<T>`, which lives until `release`, by the caller.
        unsafe { KBox::<T>::borrow(value) }
    }

    unsafe extern "C" fn open(value: *mut *mut c_void) -> c_int {
        from_result(|| {
            // Nothing may fail after the value was created, because only `release` ends it correctly.
            let place = KBox::new_uninit(GFP_KERNEL)?;
            let opened = KBox::write(place, T::open()?);
            // SAFETY: `value` is where an open in progress keeps it.
            unsafe { *value = opened.into_foreign() };
            Ok(0)
        })
    }

    unsafe extern "C" fn release(value: *mut c_void) {
        // SAFETY: `open` has created it; the file is not used after its release.
        let value = unsafe { KBox::<T>::from_foreign(value) };
        KBox::into_inner(value).release();
    }

    unsafe extern "C" fn flush(value: *mut c_void) {
        // SAFETY: The file is open.
        unsafe { Self::value(value) }.flush();
    }

    unsafe extern "C" fn ioctl(value: *mut c_void, command: c_uint, arg: c_ulong) -> c_long {
        // SAFETY: The file is open.
        let value = unsafe { Self::value(value) };
        from_result(|| value.ioctl(command, arg).map(|()| 0))
    }

    unsafe extern "C" fn mmap(
        value: *mut c_void,
        vma: *mut bindings::vm_area_struct,
        offset: u64,
    ) -> c_int {
        // SAFETY: The file is open, and the mapping is being set up.
        let (value, vma) = unsafe { (Self::value(value), VmaNew::from_raw(vma)) };
        from_result(|| value.mmap(vma, offset).map(|()| 0))
    }

    unsafe extern "C" fn poll(
        value: *mut c_void,
        file: *mut bindings::file,
        table: *mut bindings::poll_table_struct,
    ) -> u32 {
        // SAFETY: The file is open, and this call does not hold its position lock.
        let (value, file) = unsafe { (Self::value(value), File::from_raw_file(file)) };
        // SAFETY: The table is null or valid during the call.
        let table = unsafe { PollTable::from_raw(table) };
        let ready = value.poll(file, &table);
        let mut mask = 0;
        if ready.readable {
            mask |= glue::VIRTIO_CUDA_READABLE;
        }
        if ready.hung_up {
            mask |= glue::VIRTIO_CUDA_HUNG_UP;
        }
        mask
    }

    unsafe extern "C" fn read(
        value: *mut c_void,
        buffer: *mut c_void,
        bytes: usize,
        block: bool,
    ) -> isize {
        // SAFETY: The file is open.
        let value = unsafe { Self::value(value) };
        let into = UserSlice::new(UserPtr::from_ptr(buffer), bytes).writer();
        from_result(|| value.read(into, block).map(|done| done as isize))
    }
}

/// A registered device file, which exists as long as the value. There is at most one.
pub(crate) struct Registration(());

impl Registration {
    /// Registers `/dev/name` with the permissions `mode`.
    ///
    /// # Safety
    ///
    /// No other value exists.
    pub(crate) unsafe fn new<T: FileOperations>(
        name: &'static CStr,
        mode: u32,
        module: &'static ThisModule,
    ) -> Result<Self> {
        // SAFETY: The entries and the name are static, and the C side has no other file, by the caller. Open files
        // hold the module, which holds both.
        kernel::error::to_result(unsafe {
            glue::virtio_cuda_register_chardev(
                &Callbacks::<T>::ENTRIES,
                name.as_char_ptr(),
                mode,
                module.as_ptr(),
            )
        })?;
        Ok(Self(()))
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // SAFETY: `new` has registered it.
        unsafe { glue::virtio_cuda_deregister_chardev() }
    }
}
