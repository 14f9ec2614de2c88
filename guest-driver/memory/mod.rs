// SPDX-License-Identifier: GPL-2.0-only

//! Memory that requests describe by guest-physical addresses: pinned pages of a process, and areas that the driver
//! allocates and a process maps.

pub(crate) mod span;

use crate::{
    limits::users::{
        Charges,
        Ledger, //
    },
    linux::{
        bindings as glue,
        statistics::{
            Statistic,
            Stopwatch, //
        }, //
    },
    memory::span::{
        entries,
        push_frame,
        Run,
        Span, //
    },
    transport::{
        MemEntry,
        PAGE_BYTES, //
    }, //
};
use core::{
    cmp::min,
    ptr::{
        self,
        NonNull, //
    },
};
use kernel::{
    bindings,
    mm::{
        virt::VmaMixedMap,
        Mm, //
    },
    page::{
        BorrowedPage,
        PAGE_SIZE, //
    },
    prelude::*,
    sync::aref::ARef, //
};

const _: () = assert!(PAGE_SIZE as u64 == PAGE_BYTES);

/// Maximum number of pages that are pinned with one call. Limits the size of the page list.
const BATCH_PAGES: u64 = 256;
/// Areas consist of blocks of 2 MiB if possible: few entries, and few mappings in the device.
const AREA_ORDER: u32 = 9;

/// The device's access to pinned pages.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// The device reads the pages during one request.
    Read,
    /// The device writes the pages during one request.
    Write,
    /// The device maps the pages for reading and writing until they are taken back.
    Keep,
    /// The device maps the pages for reading until they are taken back.
    KeepRead,
}

impl Access {
    fn of_glue(self) -> c_uint {
        match self {
            Self::Read => glue::VIRTIO_CUDA_READ,
            Self::Write => glue::VIRTIO_CUDA_WRITE,
            Self::Keep => glue::VIRTIO_CUDA_KEEP,
            Self::KeepRead => glue::VIRTIO_CUDA_KEEP_READ,
        }
    }

    /// Returns whether the pages stay pinned after the request.
    pub(crate) fn keeps(self) -> bool {
        matches!(self, Self::Keep | Self::KeepRead)
    }

    fn writes(self) -> bool {
        matches!(self, Self::Write | Self::Keep)
    }
}

/// The number of a process's pages that stay pinned, included in its `VmPin`.
struct PinCount {
    mm: ARef<Mm>,
    pages: u64,
}

impl PinCount {
    /// Adds `pages` pages to the count of the current process. `EFAULT`: it has no memory.
    fn new(pages: u64) -> Result<Self> {
        let current = current!();
        let mm: &Mm = current.mm().ok_or(EFAULT)?;
        let this = Self {
            mm: mm.into(),
            pages,
        };
        this.add(pages as i64);
        Ok(this)
    }

    fn add(&self, pages: i64) {
        // SAFETY: `mm` is valid as long as this value. Only adds to a counter.
        unsafe { glue::virtio_cuda_count_pins(self.mm.as_raw(), pages) };
    }
}

impl Drop for PinCount {
    fn drop(&mut self) {
        self.add(-(self.pages as i64));
    }
}

/// Pinned user pages.
///
/// # Invariants
///
/// Each frame of `runs` has been pinned once by this value.
pub(crate) struct Pinned {
    runs: KVVec<Run>,
    span: Span,
    access: Access,
    _count: Option<PinCount>,
    _charges: Charges,
}

impl Pinned {
    /// Pins the pages of `span` in the current process. `EFAULT`: a part of it is missing or does not permit this
    /// access; `EDQUOT`: the limit of the file or the user is exceeded.
    pub(crate) fn new(span: Span, access: Access, ledger: &Ledger) -> Result<Self> {
        let started = Stopwatch::start();
        let bytes = span.pages.checked_mul(PAGE_BYTES).ok_or(EINVAL)?;
        let (charges, count) = match access {
            Access::Keep | Access::KeepRead => {
                (ledger.keep(bytes)?, Some(PinCount::new(span.pages)?))
            }
            Access::Read | Access::Write => (ledger.pass(bytes)?, None),
        };
        // INVARIANT: No frame yet.
        let mut this = Self {
            runs: KVVec::new(),
            span,
            access,
            _count: count,
            _charges: charges,
        };
        let batch = min(span.pages, BATCH_PAGES) as usize;
        let mut pages = KVec::from_elem(ptr::null_mut(), batch, GFP_KERNEL)?;
        let mut done = 0;
        while done < span.pages {
            let want = min(span.pages - done, batch as u64) as usize;
            let addr = span.first_page + done * PAGE_BYTES;
            done += this.pin_batch(addr, &mut pages[..want])? as u64;
        }
        Statistic::PinnedPages.add(done);
        started.count(Statistic::PinNs);
        Ok(this)
    }

    /// Pins pages from `addr` on, at least one.
    fn pin_batch(&mut self, addr: u64, pages: &mut [*mut bindings::page]) -> Result<usize> {
        // Nothing may fail between pinning a page and recording it.
        self.runs.reserve(pages.len(), GFP_KERNEL_ACCOUNT)?;
        // SAFETY: `pages` has room for as many pointers as pages are asked for. Any address may be given.
        let got = unsafe {
            glue::virtio_cuda_pin_pages(
                addr as c_ulong,
                pages.len() as c_int,
                self.access.of_glue(),
                pages.as_mut_ptr(),
            )
        };
        if got <= 0 {
            return Err(if got == 0 {
                EFAULT
            } else {
                Error::from_errno(got)
            });
        }
        for page in &pages[..got as usize] {
            // SAFETY: The page is pinned, hence valid.
            let pfn = unsafe { glue::virtio_cuda_page_to_pfn(*page) };
            // INVARIANT: Pinned above. This cannot fail: there is room.
            push_frame(&mut self.runs, pfn as u64)?;
        }
        Ok(got as usize)
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let started = Stopwatch::start();
        let dirty = self.access.writes();
        for run in &self.runs {
            // SAFETY: By the invariant these frames have page structs and a pin of ours each, which ends here.
            unsafe {
                let page = glue::virtio_cuda_pfn_to_page(run.pfn as c_ulong);
                glue::virtio_cuda_unpin_pages(page, run.pages as c_ulong, dirty);
            }
        }
        started.count(Statistic::UnpinNs);
    }
}

/// Zeroed pages of the kernel, which a process and the device map.
///
/// # Invariants
///
/// Each frame of `runs` is a page of order 0 on which this value has a reference.
pub(crate) struct Area {
    runs: KVVec<Run>,
    bytes: u64,
    _charges: Charges,
}

impl Area {
    /// Allocates `bytes` bytes, a multiple of the page size.
    pub(crate) fn new(bytes: u64, ledger: &Ledger) -> Result<Self> {
        // INVARIANT: No frame yet.
        let mut this = Self {
            runs: KVVec::new(),
            bytes,
            _charges: ledger.share(bytes)?,
        };
        let mut left = bytes / PAGE_BYTES;
        let mut order = AREA_ORDER;
        while left > 0 {
            order = min(order, left.ilog2());
            match this.add_block(order) {
                Ok(()) => left -= 1 << order,
                Err(error) if order == 0 => return Err(error),
                Err(_) => order -= 1,
            }
        }
        Ok(this)
    }

    /// Allocates `1 << order` contiguous pages.
    fn add_block(&mut self, order: u32) -> Result {
        // Nothing may fail between allocating a page and recording it.
        self.runs.reserve(1, GFP_KERNEL_ACCOUNT)?;
        // SAFETY: Allocating has no condition.
        let page = unsafe { glue::virtio_cuda_alloc_pages(order) };
        if page.is_null() {
            return Err(ENOMEM);
        }
        // SAFETY: The page is ours.
        let first = unsafe { glue::virtio_cuda_page_to_pfn(page) } as u64;
        for pfn in first..first + (1 << order) {
            // INVARIANT: Each is a separate page. This cannot fail: there is room.
            push_frame(&mut self.runs, pfn)?;
        }
        Ok(())
    }

    /// Maps the pages at `start`.
    pub(crate) fn map(&self, vma: &VmaMixedMap, start: usize) -> Result {
        let mut addr = start;
        for run in &self.runs {
            for pfn in run.pfn..run.pfn + u64::from(run.pages) {
                // SAFETY: By the invariant the frame has a page struct.
                let page = unsafe { glue::virtio_cuda_pfn_to_page(pfn as c_ulong) };
                let page = NonNull::new(page).ok_or(EFAULT)?;
                // SAFETY: `self` has a reference on the page; the mapping takes its own.
                let page = unsafe { BorrowedPage::from_raw(page) };
                vma.vm_insert_page(addr, &page)?;
                addr += PAGE_SIZE;
            }
        }
        Ok(())
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        for run in &self.runs {
            for pfn in run.pfn..run.pfn + u64::from(run.pages) {
                // SAFETY: By the invariant a page of order 0 with a reference of ours. A process that still
                // maps it has its own.
                unsafe {
                    glue::virtio_cuda_free_page(glue::virtio_cuda_pfn_to_page(pfn as c_ulong));
                }
            }
        }
    }
}

/// Memory that the device may write or map.
pub(crate) enum Memory {
    /// Pages of a process.
    Pinned(Pinned),
    /// Pages that the driver allocated.
    Area(Area),
}

/// Lists the pieces of memory for a request.
pub(crate) trait Entries {
    /// Returns the frames, the offset into the first one, and the length in bytes.
    fn layout(&self) -> (&[Run], u32, u64);

    /// Returns the number of entries.
    fn count(&self) -> usize {
        self.layout().0.len()
    }

    /// Returns the entries.
    fn entries(&self) -> impl Iterator<Item = MemEntry> {
        let (runs, offset, bytes) = self.layout();
        entries(runs, offset, bytes)
    }
}

impl Entries for Pinned {
    fn layout(&self) -> (&[Run], u32, u64) {
        (&self.runs, self.span.offset, self.span.bytes)
    }
}

impl Entries for Memory {
    fn layout(&self) -> (&[Run], u32, u64) {
        match self {
            Self::Pinned(pinned) => pinned.layout(),
            Self::Area(area) => (&area.runs, 0, area.bytes),
        }
    }
}
