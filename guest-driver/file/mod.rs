// SPDX-License-Identifier: GPL-2.0-only

//! `/dev/virtio-cuda`: the system calls on an open file. See `uapi.rs`.

mod call;

use crate::{
    device::hub,
    linux::{
        chardev::{
            FileOperations,
            Readiness, //
        },
        task::{
            current_is_exiting,
            Process, //
        }, //
    },
    session::Session,
    transport::Event,
    uapi::{
        Call,
        Unpin,
        VIRTIO_CUDA_CALL,
        VIRTIO_CUDA_FRESH,
        VIRTIO_CUDA_INFO,
        VIRTIO_CUDA_UNPIN, //
    }, //
};
use kernel::{
    fs::File,
    mm::virt::{
        flags,
        VmaNew, //
    },
    prelude::*,
    sync::{
        poll::PollTable,
        Arc, //
    },
    uaccess::{
        UserSlice,
        UserSliceWriter, //
    },
};

/// An open file.
pub(crate) struct CudaFile {
    session: Arc<Session>,
    opener: Process,
}

impl CudaFile {
    /// Returns the session if the process has opened the file. `EPERM`: another process has, for example before a fork.
    fn session(&self) -> Result<&Arc<Session>> {
        if self.opener.is_current() {
            Ok(&self.session)
        } else {
            Err(EPERM)
        }
    }
}

/// Reads the argument of an ioctl.
fn read_arg<T: FromBytes + IntoBytes>(arg: usize) -> Result<T> {
    let mut value = T::new_zeroed();
    UserSlice::new(UserPtr::from_addr(arg), size_of::<T>())
        .reader()
        .read_slice(value.as_mut_bytes())?;
    Ok(value)
}

/// Writes the argument of an ioctl back.
fn write_arg<T: IntoBytes + zerocopy::Immutable>(arg: usize, value: &T) -> Result {
    UserSlice::new(UserPtr::from_addr(arg), size_of::<T>())
        .writer()
        .write_slice(value.as_bytes())
}

impl FileOperations for CudaFile {
    fn open() -> Result<Self> {
        let session = Session::open(hub::device()?);
        // After a signal, open(2) should be restarted.
        let session = session.map_err(|e| if e == EINTR { ERESTARTSYS } else { e })?;
        Ok(Self {
            session,
            opener: Process::current(),
        })
    }

    fn release(self) {
        self.session.close();
    }

    fn flush(&self) {
        // The session ends with its opener, even if a forked child still has the file.
        if current_is_exiting() && self.opener.is_current() {
            self.session.close();
        }
    }

    fn ioctl(&self, command: u32, arg: usize) -> Result {
        let session = self.session()?;
        match command {
            VIRTIO_CUDA_INFO => write_arg(arg, &session.device.limits.info()),
            VIRTIO_CUDA_CALL => {
                let mut value: Call = read_arg(arg)?;
                let result = call::call(session, &mut value);
                if result.is_ok() || result == Err(EINTR) {
                    write_arg(arg, &value)?;
                }
                result
            }
            VIRTIO_CUDA_UNPIN => {
                let value: Unpin = read_arg(arg)?;
                call::unpin(session, value.tag)
            }
            VIRTIO_CUDA_FRESH => {
                let value: Unpin = read_arg(arg)?;
                if session.is_fresh(value.tag) {
                    Ok(())
                } else {
                    Err(ENOENT)
                }
            }
            _ => Err(ENOTTY),
        }
    }

    fn mmap(&self, vma: &VmaNew, offset: u64) -> Result {
        let session = self.session()?;
        if vma.flags() & flags::SHARED == 0 {
            return Err(EINVAL);
        }
        vma.try_clear_mayexec()?;
        call::share(session, vma, offset)
    }

    fn poll(&self, file: &File, table: &PollTable<'_>) -> Readiness {
        let (readable, lost) = self.session.poll(file, table);
        Readiness {
            readable,
            hung_up: lost,
        }
    }

    fn read(&self, mut into: UserSliceWriter, block: bool) -> Result<usize> {
        let session = self.session()?;
        if into.len() < size_of::<Event>() {
            return Err(EINVAL);
        }
        let mut bytes = 0;
        while into.len() >= size_of::<Event>() {
            // The call only waits for the first event.
            match session.next_event(block && bytes == 0) {
                Ok(Some(event)) => into.write_slice(event.as_bytes())?,
                Ok(None) => break,
                Err(_) if bytes > 0 => break,
                Err(error) => return Err(error),
            }
            bytes += size_of::<Event>();
        }
        Ok(bytes)
    }
}
