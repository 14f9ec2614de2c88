// SPDX-License-Identifier: GPL-2.0-only

//! A safe face for a misc device's file operations. `MiscDevice` of Linux 7.2's kernel crate has no `poll`
//! and no `flush`, sets no mode, and does not hold the module while a file is open.

use crate::statistics;
use core::{
    marker::PhantomData,
    pin::Pin, //
};
use kernel::{
    bindings,
    error::from_result,
    fs::{
        file::flags::O_NONBLOCK,
        File, //
    },
    mm::virt::VmaNew,
    prelude::*,
    sync::poll::PollTable,
    types::{
        ForeignOwnable,
        Opaque, //
    },
    uaccess::{
        UserSlice,
        UserSliceWriter, //
    },
};

/// What poll(2) says.
pub(crate) struct Readiness {
    /// read(2) gives something.
    pub(crate) readable: bool,
    /// Nothing more will come.
    pub(crate) hung_up: bool,
}

/// The file operations; a value is one open file.
pub(crate) trait FileOperations: Sized + Send + Sync + 'static {
    /// open(2).
    fn open() -> Result<Self>;
    /// The last close(2). Each value comes here.
    fn release(self);
    /// Each close(2), that of a dying process too.
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

/// The C side's entry points. Their contract is that of `struct file_operations`: in each, `file` is one of
/// `T`'s device, and `private_data` is what `open` has stored there, until `release`.
struct Callbacks<T>(PhantomData<T>);

#[allow(clippy::missing_safety_doc)]
impl<T: FileOperations> Callbacks<T> {
    /// # Safety
    ///
    /// `file` is open on `T`'s device and not released while `'a`.
    unsafe fn value<'a>(file: *mut bindings::file) -> &'a T {
        // SAFETY: `open` has stored a `KBox<T>`, which lives until `release`, by the caller.
        unsafe { KBox::<T>::borrow((*file).private_data) }
    }

    unsafe extern "C" fn open(inode: *mut bindings::inode, file: *mut bindings::file) -> c_int {
        from_result(|| {
            // SAFETY: The arguments are those of an open in progress.
            let refused = unsafe { bindings::nonseekable_open(inode, file) };
            kernel::error::to_result(refused)?;
            // Nothing may fail once the value is there: only `release` ends it well.
            let place = KBox::new_uninit(GFP_KERNEL)?;
            let value = KBox::write(place, T::open()?);
            // SAFETY: An open in progress owns the file's private data.
            unsafe { (*file).private_data = value.into_foreign() };
            Ok(0)
        })
    }

    unsafe extern "C" fn release(_: *mut bindings::inode, file: *mut bindings::file) -> c_int {
        // SAFETY: `open` has stored it; nobody uses the file after its release.
        let value = unsafe { KBox::<T>::from_foreign((*file).private_data) };
        KBox::into_inner(value).release();
        0
    }

    unsafe extern "C" fn flush(file: *mut bindings::file, _: bindings::fl_owner_t) -> c_int {
        // SAFETY: The file is open.
        unsafe { Self::value(file) }.flush();
        0
    }

    unsafe extern "C" fn ioctl(file: *mut bindings::file, command: c_uint, arg: c_ulong) -> c_long {
        // SAFETY: The file is open.
        let value = unsafe { Self::value(file) };
        from_result(|| value.ioctl(command, arg).map(|()| 0))
    }

    unsafe extern "C" fn mmap(
        file: *mut bindings::file,
        vma: *mut bindings::vm_area_struct,
    ) -> c_int {
        // SAFETY: The file is open.
        let value = unsafe { Self::value(file) };
        // SAFETY: The mapping is being set up.
        let (vma, page) = unsafe { (VmaNew::from_raw(vma), (*vma).vm_pgoff) };
        from_result(|| {
            let offset = (page as u64)
                .checked_mul(kernel::page::PAGE_SIZE as u64)
                .ok_or(EOVERFLOW)?;
            value.mmap(vma, offset).map(|()| 0)
        })
    }

    unsafe extern "C" fn poll(
        file: *mut bindings::file,
        table: *mut bindings::poll_table_struct,
    ) -> bindings::__poll_t {
        // SAFETY: The file is open, and this call does not hold its position lock.
        let (value, file) = unsafe { (Self::value(file), File::from_raw_file(file)) };
        // SAFETY: The table is null or valid during the call.
        let table = unsafe { PollTable::from_raw(table) };
        let ready = value.poll(file, &table);
        let mut mask = 0;
        if ready.readable {
            mask |= bindings::POLLIN | bindings::POLLRDNORM;
        }
        if ready.hung_up {
            mask |= bindings::POLLHUP | bindings::POLLERR;
        }
        mask
    }

    unsafe extern "C" fn read(
        file: *mut bindings::file,
        buffer: *mut c_char,
        bytes: usize,
        _position: *mut bindings::loff_t,
    ) -> isize {
        // SAFETY: The file is open.
        let value = unsafe { Self::value(file) };
        // SAFETY: As above.
        let block = unsafe { (*file).f_flags } & O_NONBLOCK == 0;
        let into = UserSlice::new(UserPtr::from_ptr(buffer.cast()), bytes).writer();
        from_result(|| value.read(into, block).map(|done| done as isize))
    }
}

/// A registered misc device; it ends with the value.
#[pin_data(PinnedDrop)]
pub(crate) struct Registration<T> {
    #[pin]
    misc: Opaque<bindings::miscdevice>,
    /// What `misc` points to.
    operations: KBox<bindings::file_operations>,
    _type: PhantomData<fn() -> T>,
}

// SAFETY: A misc device may be deregistered by any task.
unsafe impl<T> Send for Registration<T> {}
// SAFETY: There is nothing to do with a shared reference.
unsafe impl<T> Sync for Registration<T> {}

impl<T: FileOperations> Registration<T> {
    /// Registers `/dev/name` with the permissions `mode`.
    pub(crate) fn new(
        name: &'static CStr,
        mode: u16,
        module: &'static ThisModule,
    ) -> impl PinInit<Self, Error> {
        let operations = bindings::file_operations {
            owner: module.as_ptr(),
            open: Some(Callbacks::<T>::open),
            release: Some(Callbacks::<T>::release),
            flush: Some(Callbacks::<T>::flush),
            unlocked_ioctl: Some(Callbacks::<T>::ioctl),
            #[cfg(CONFIG_COMPAT)]
            compat_ioctl: bindings::compat_ptr_ioctl,
            mmap: Some(Callbacks::<T>::mmap),
            poll: Some(Callbacks::<T>::poll),
            read: Some(Callbacks::<T>::read),
            ..pin_init::zeroed()
        };
        try_pin_init!(Self {
            operations: KBox::new(operations, GFP_KERNEL)?,
            misc <- Opaque::try_ffi_init({
                let operations: *const bindings::file_operations = &raw const **operations;
                move |slot: *mut bindings::miscdevice| {
                    let misc = bindings::miscdevice {
                        minor: bindings::MISC_DYNAMIC_MINOR as c_int,
                        name: name.as_char_ptr(),
                        fops: operations,
                        mode,
                        groups: statistics::groups(),
                        ..pin_init::zeroed()
                    };
                    // SAFETY: `slot` is valid for writes.
                    unsafe { slot.write(misc) };
                    // SAFETY: The device is complete and pinned. It is deregistered before its memory and
                    // that of its operations go; open files hold the module, which holds both.
                    kernel::error::to_result(unsafe { bindings::misc_register(slot) })
                }
            }),
            _type: PhantomData,
        })
    }
}

#[pinned_drop]
impl<T> PinnedDrop for Registration<T> {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: `new` has registered it.
        unsafe { bindings::misc_deregister(self.misc.get()) };
    }
}
