// SPDX-License-Identifier: GPL-2.0-only

//! Errors by number, as in the whole kernel.

use crate::ffi::c_int;
use core::{
    fmt,
    num::{NonZeroI32, TryFromIntError},
};

/// A negative error number.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Error(NonZeroI32);

/// The kernel's results.
pub type Result<T = (), E = Error> = core::result::Result<T, E>;

const MAX_ERRNO: c_int = 4095;

impl Error {
    const fn from_positive(number: c_int) -> Self {
        match NonZeroI32::new(-number) {
            Some(errno) => Self(errno),
            None => panic!("0 is no error"),
        }
    }

    /// Converts the result of a C function. A number that is not an error becomes `EINVAL`.
    pub fn from_errno(errno: c_int) -> Self {
        match NonZeroI32::new(errno) {
            Some(number) if (-MAX_ERRNO..0).contains(&errno) => Self(number),
            _ => code::EINVAL,
        }
    }

    /// Returns the negative error number.
    pub fn to_errno(self) -> c_int {
        self.0.get()
    }
}

/// Defines error numbers, and prints them by name.
macro_rules! codes {
    ($($name:ident = $number:literal,)*) => {
        /// Error numbers of the x86 user interface.
        pub mod code {
            $(
                #[allow(missing_docs)]
                pub const $name: super::Error = super::Error::from_positive($number);
            )*
        }

        impl fmt::Debug for Error {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                match -self.to_errno() {
                    $($number => formatter.write_str(stringify!($name)),)*
                    other => write!(formatter, "Error(-{other})"),
                }
            }
        }
    };
}

codes! {
    EPERM = 1, ENOENT = 2, EINTR = 4, EIO = 5, EAGAIN = 11, ENOMEM = 12, EFAULT = 14, EBUSY = 16, EEXIST = 17,
    ENODEV = 19, EINVAL = 22, ENOTTY = 25, ENOSPC = 28, ENOLINK = 67, EPROTO = 71, EOVERFLOW = 75, EOPNOTSUPP = 95,
    ETIMEDOUT = 110, EDQUOT = 122, ERESTARTSYS = 512,
}

impl From<crate::alloc::AllocError> for Error {
    fn from(_: crate::alloc::AllocError) -> Self {
        code::ENOMEM
    }
}

impl From<TryFromIntError> for Error {
    fn from(_: TryFromIntError) -> Self {
        code::EINVAL
    }
}

impl From<core::convert::Infallible> for Error {
    fn from(never: core::convert::Infallible) -> Self {
        match never {}
    }
}

/// Converts the result of a C function: 0 or a negative error number.
pub fn to_result(errno: c_int) -> Result {
    if errno < 0 {
        Err(Error::from_errno(errno))
    } else {
        Ok(())
    }
}

/// Converts a result for C: the value, or a negative error number.
pub fn from_result<T: From<i16>>(work: impl FnOnce() -> Result<T>) -> T {
    match work() {
        Ok(value) => value,
        // It fits, because error numbers are at most 4095.
        Err(error) => T::from(error.to_errno() as i16),
    }
}
