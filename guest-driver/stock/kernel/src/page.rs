// SPDX-License-Identifier: GPL-2.0-only

//! Pages.

use crate::bindings;
use core::{marker::PhantomData, ops::Deref, ptr::NonNull};

/// Bytes of a page; the C side checks it.
pub const PAGE_SIZE: usize = 4096;

/// A page.
#[repr(transparent)]
pub struct Page(NonNull<bindings::page>);

impl Page {
    /// Returns a pointer for C.
    pub fn as_ptr(&self) -> *mut bindings::page {
        self.0.as_ptr()
    }
}

/// A page to which other code holds a reference.
pub struct BorrowedPage<'a>(Page, PhantomData<&'a Page>);

impl BorrowedPage<'_> {
    /// # Safety
    ///
    /// The page has a reference while the value exists.
    pub unsafe fn from_raw(page: NonNull<bindings::page>) -> Self {
        Self(Page(page), PhantomData)
    }
}

impl Deref for BorrowedPage<'_> {
    type Target = Page;

    fn deref(&self) -> &Page {
        &self.0
    }
}
