// SPDX-License-Identifier: GPL-2.0-only

//! Items that every file of the driver imports.

pub use crate::{
    alloc::{flags::*, KBox, KVVec, KVec},
    current, dev_err, dev_info, dev_warn,
    error::{code::*, Error, Result},
    ffi::{c_char, c_int, c_long, c_uint, c_ulong, c_void, CStr},
    module,
    str::CStrExt as _,
    try_pin_init,
    uaccess::UserPtr,
    ThisModule,
};
pub use core::{
    mem::{size_of, size_of_val},
    pin::Pin,
};
pub use macros::kunit_tests;
pub use pinned_init::{pin_data, pin_init, pinned_drop, Init, PinInit};
pub use zerocopy::{FromBytes, IntoBytes};
pub use zerocopy_derive::{FromBytes, IntoBytes};
