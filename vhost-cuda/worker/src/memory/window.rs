// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The address window: pages of the guest process appear in it side by side, at the process's own addresses
//! where possible, so that a pointer means the same on both sides and on the GPU.

pub mod left;

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::ptr;
use std::sync::LazyLock;

use log::debug;
use virtio_cuda_protocol::cuda::{RESERVATIONS_BASE, WINDOW_BASE, WINDOW_BYTES};
use virtio_cuda_protocol::transport::PAGE_BYTES;

use super::pages::{FilePiece, map_side_by_side};
use crate::gpu::{CuResult, CudaError};

/// The default maximum of mappings of a process (`vm.max_map_count`).
const USUAL_MAPPINGS: usize = 65530;
/// The part of the window in which the worker chooses addresses; guest processes begin at its other end.
const CHOSEN_BASE: u64 = WINDOW_BASE + WINDOW_BYTES / 2;
const WINDOW_END: u64 = WINDOW_BASE + WINDOW_BYTES;
/// Maximum number of claimed parts: each takes one of the mappings that the process may have.
const MAX_CLAIMS: usize = 4096;

/// The mappings in the window.
#[derive(Debug)]
pub struct Window {
    areas: BTreeMap<u64, Area>,
    /// The addresses of areas by their tags, and by whether they are shared.
    by_tag: HashMap<(u64, bool), u64>,
    /// Addresses that the guest's process has added to the window, by first address. Each is a mapping of this process's own,
    /// inaccessible where no area is.
    claims: BTreeMap<u64, Claim>,
    /// The parts that are registered with the GPU: whole areas side by side, by the first one's address.
    registrations: BTreeMap<u64, Registration>,
    /// The pieces of each area, by its address.
    pieces_of: HashMap<u64, Box<[FilePiece]>>,
    pieces: usize,
    max_pieces: usize,
}

/// Addresses that the guest's process has added to the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Claim {
    bytes: u64,
    /// True if the driver has reserved them for the session, and gets them back.
    borrowed: bool,
}

/// Pages that appear in the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Area {
    /// Its first address.
    pub base: u64,
    /// Its bytes, whole pages.
    pub bytes: u64,
    /// The driver's tag for the pages.
    pub tag: u64,
    /// True if it is shared by `OP_SHARE`; else a call keeps it.
    pub shared: bool,
    /// True if the guest's process may write all of them.
    pub writable: bool,
}

/// A registration of areas with the GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registration {
    /// The first area's address.
    pub base: u64,
    /// Bytes of all of them.
    pub bytes: u64,
    /// The context in which it is registered, and with which the registration ends.
    pub context: u64,
    /// Its address on the GPU: `base` where the GPU shares the process's addresses.
    pub dptr: u64,
}

/// Held by tests that reserve the window: a process has only one.
#[cfg(any(test, fuzzing))]
pub static IN_USE: parking_lot::Mutex<()> = parking_lot::Mutex::new(());

impl Window {
    /// Reserves the window. To be called before CUDA takes addresses.
    pub fn reserve() -> io::Result<Self> {
        reserve_range(WINDOW_BASE, WINDOW_BYTES)?;
        Ok(Self {
            areas: BTreeMap::new(),
            by_tag: HashMap::new(),
            claims: BTreeMap::new(),
            registrations: BTreeMap::new(),
            pieces_of: HashMap::new(),
            pieces: 0,
            max_pieces: max_pieces(),
        })
    }

    /// Adds addresses behind [`RESERVATIONS_BASE`] to the window. Neither the driver nor this process may use any of them:
    /// the same step checks that and reserves them.
    ///
    /// Errors: `CUDA_ERROR_INVALID_VALUE` (no such addresses), `CUDA_ERROR_OUT_OF_MEMORY` (in use, or too many claims).
    pub fn claim(&mut self, base: u64, bytes: u64) -> CuResult<()> {
        let end = base.checked_add(bytes).filter(|_| bytes > 0).ok_or(CudaError::INVALID_VALUE)?;
        let known = base >= RESERVATIONS_BASE && end <= RESERVATIONS_BASE + WINDOW_BYTES;
        if !known || !base.is_multiple_of(PAGE_BYTES) || !bytes.is_multiple_of(PAGE_BYTES) {
            return Err(CudaError::INVALID_VALUE);
        }
        self.check_claims()?;
        reserve_range(base, bytes).map_err(|error| {
            debug!("{bytes} bytes of addresses at {base:#x} cannot be claimed: {error}");
            CudaError::OUT_OF_MEMORY
        })?;
        self.claims.insert(base, Claim { bytes, borrowed: false });
        Ok(())
    }

    fn check_claims(&self) -> CuResult<()> {
        if self.claims.len() >= MAX_CLAIMS { Err(CudaError::OUT_OF_MEMORY) } else { Ok(()) }
    }

    /// Adds addresses to the window that the driver has reserved for the session, until [`Self::unclaim`]. Pages can be mapped
    /// and registered there at the same address on the GPU, which NVIDIA's driver 580 allows.
    ///
    /// Errors: as for [`Self::claim`].
    ///
    /// # Safety
    ///
    /// The addresses must lie in one reservation of the session, with nothing mapped there, and stay so until they are
    /// unclaimed.
    pub unsafe fn borrow(&mut self, base: u64, bytes: u64) -> CuResult<()> {
        if bytes == 0 || !base.is_multiple_of(PAGE_BYTES) || !bytes.is_multiple_of(PAGE_BYTES) {
            return Err(CudaError::INVALID_VALUE);
        }
        self.check_claims()?;
        // Nothing refers to them: in a reservation without a mapping the driver keeps the addresses only (`# Safety`).
        close_range(base, bytes);
        self.claims.insert(base, Claim { bytes, borrowed: true });
        Ok(())
    }

    /// Undoes [`Self::claim`] and [`Self::borrow`].
    ///
    /// Errors: `CUDA_ERROR_INVALID_VALUE`, also if an area is there.
    pub fn unclaim(&mut self, base: u64, bytes: u64) -> CuResult<()> {
        let is_used = self.areas.range(base..base.saturating_add(bytes)).next().is_some();
        let found = self.claims.get(&base).filter(|claim| claim.bytes == bytes && !is_used);
        let claim = found.ok_or(CudaError::INVALID_VALUE)?;
        if claim.borrowed {
            // They stay mapped, inaccessible, so that nothing else in this process takes them from the driver.
            self.claims.remove(&base);
            return Ok(());
        }
        // SAFETY: the range is a claim, so a mapping of the window's own, and without areas nothing refers to it.
        if unsafe { libc::munmap(base as *mut _, bytes as usize) } != 0 {
            // It stays claimed.
            return Err(CudaError::OUT_OF_MEMORY);
        }
        self.claims.remove(&base);
        Ok(())
    }

    /// Maps `pieces` side by side, at `wanted` if that is a free place in the window, under the tag `tag`.
    ///
    /// Errors: `CUDA_ERROR_OUT_OF_MEMORY` (no place, too many pieces), `CUDA_ERROR_INVALID_VALUE` (a used tag).
    pub fn map(&mut self, pieces: &[FilePiece], wanted: u64, tag: u64, shared: bool) -> CuResult<Area> {
        let bytes = pieces.iter().map(|piece| piece.bytes).sum();
        if bytes == 0 || self.find(tag, shared).is_some() {
            return Err(CudaError::INVALID_VALUE);
        }
        if self.pieces + pieces.len() > self.max_pieces {
            return Err(CudaError::OUT_OF_MEMORY);
        }
        let base = if self.is_free(wanted, bytes) { Some(wanted) } else { self.choose(bytes) };
        let base = base.ok_or(CudaError::OUT_OF_MEMORY)?;
        let writable = pieces.iter().all(|piece| piece.writable);
        let area = Area { base, bytes, tag, shared, writable };
        // SAFETY: the range is free: it lies in the reserved window or a claim, and in no area, so that nothing but the
        // reservation is replaced.
        if let Err(error) = unsafe { map_side_by_side(pieces, base) } {
            debug!("pages of the guest cannot be mapped: {error}");
            close_range(base, bytes);
            return Err(CudaError::OUT_OF_MEMORY);
        }
        self.pieces += pieces.len();
        self.pieces_of.insert(base, pieces.into());
        self.areas.insert(base, area);
        self.by_tag.insert((tag, shared), base);
        Ok(area)
    }

    /// Checks that `bytes` bytes at `base` are areas side by side that calls keep, none of which is registered.
    ///
    /// Errors: `CUDA_ERROR_INVALID_VALUE`.
    pub fn check_unregistered(&self, base: u64, bytes: u64) -> CuResult<()> {
        let end = base.checked_add(bytes).filter(|_| bytes > 0).ok_or(CudaError::INVALID_VALUE)?;
        let mut at = base;
        while at < end {
            let area = self.areas.get(&at).filter(|area| !area.shared && self.registration(area).is_none());
            at += area.ok_or(CudaError::INVALID_VALUE)?.bytes;
        }
        if at == end { Ok(()) } else { Err(CudaError::INVALID_VALUE) }
    }

    /// Returns whether all areas in `bytes` bytes at `base` may be written.
    pub fn is_writable(&self, base: u64, bytes: u64) -> bool {
        self.areas.range(base..base.saturating_add(bytes)).all(|(_, area)| area.writable)
    }

    /// Notes that a range that [`Self::check_unregistered`] has checked is registered.
    pub fn set_registered(&mut self, registration: Registration) {
        self.registrations.insert(registration.base, registration);
    }

    /// Notes that the registration at `base` has ended.
    pub fn set_unregistered(&mut self, base: u64) {
        self.registrations.remove(&base);
    }

    /// Takes out all registrations, which end with their contexts.
    pub fn take_registrations(&mut self) -> Vec<Registration> {
        std::mem::take(&mut self.registrations).into_values().collect()
    }

    /// Returns the registration that `area` is part of.
    pub fn registration(&self, area: &Area) -> Option<Registration> {
        let (_, found) = self.registrations.range(..=area.base).next_back()?;
        (area.base - found.base < found.bytes).then_some(*found)
    }

    /// Notes that a context has ended, and its registrations with it.
    pub fn forget_context(&mut self, context: u64) {
        self.registrations.retain(|_, registration| registration.context != context);
    }

    /// Returns the area with tag `tag`.
    pub fn find(&self, tag: u64, shared: bool) -> Option<Area> {
        self.by_tag.get(&(tag, shared)).and_then(|base| self.areas.get(base)).copied()
    }

    /// Takes an area away again. It must not be registered any more.
    pub fn unmap(&mut self, base: u64) {
        if let Some(area) = self.areas.remove(&base) {
            self.by_tag.remove(&(area.tag, area.shared));
            self.pieces -= self.pieces_of.remove(&base).map_or(0, |pieces| pieces.len());
            close_range(area.base, area.bytes);
        }
    }

    fn is_free(&self, base: u64, bytes: u64) -> bool {
        let Some(end) = base.checked_add(bytes) else { return false };
        let in_claim = || {
            self.claims.range(..=base).next_back().is_some_and(|(start, claim)| end <= start + claim.bytes)
        };
        let in_window = base >= WINDOW_BASE && end <= WINDOW_END;
        if !base.is_multiple_of(PAGE_BYTES) || !(in_window || in_claim()) {
            return false;
        }
        let before = self.areas.range(..end).next_back();
        before.is_none_or(|(_, area)| area.base + area.bytes <= base)
    }

    /// The first free place in the worker's part.
    fn choose(&self, bytes: u64) -> Option<u64> {
        let mut base = CHOSEN_BASE;
        for area in self.areas.values().filter(|area| area.base + area.bytes > CHOSEN_BASE) {
            if area.base >= base.checked_add(bytes)? {
                break;
            }
            base = base.max(area.base + area.bytes);
        }
        (base.checked_add(bytes)? <= WINDOW_END).then_some(base)
    }
}

/// Reserves addresses, inaccessible, if nothing is there.
fn reserve_range(base: u64, bytes: u64) -> io::Result<()> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
    // SAFETY: with MAP_FIXED_NOREPLACE nothing that exists is replaced.
    let at = unsafe { libc::mmap(base as *mut _, bytes as usize, libc::PROT_NONE, flags, -1, 0) };
    if at == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // A kernel older than the flag takes the address as a hint.
    if at as u64 != base {
        // SAFETY: the mapping was made just above, and nothing refers to it.
        unsafe { libc::munmap(at, bytes as usize) };
        return Err(io::ErrorKind::AddrInUse.into());
    }
    Ok(())
}

/// Returns the maximum number of mappings of one session: libcuda needs some, too.
fn max_pieces() -> usize {
    static MAX_PIECES: LazyLock<usize> = LazyLock::new(|| {
        let text = std::fs::read_to_string("/proc/sys/vm/max_map_count").unwrap_or_default();
        text.trim().parse().unwrap_or(USUAL_MAPPINGS) / 4 * 3
    });
    *MAX_PIECES
}

/// Makes a range of the window inaccessible. If that fails the process ends: the guest may use the
/// pages for something else as soon as it has them back.
fn close_range(base: u64, bytes: u64) {
    if bytes == 0 {
        return;
    }
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
    // SAFETY: the range is of the window, and nothing refers to it (any more).
    let at = unsafe { libc::mmap(base as *mut _, bytes as usize, libc::PROT_NONE, flags, -1, 0) };
    if ptr::eq(at, libc::MAP_FAILED) {
        crate::end_process(&format!("guest pages cannot be unmapped: {}", io::Error::last_os_error()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::pages::GuestFile;
    use std::os::unix::fs::FileExt;
    use std::sync::Arc;
    use vmm_sys_util::tempfile::TempFile;

    fn pieces(pages: &[u64]) -> (Vec<FilePiece>, Arc<std::fs::File>) {
        let file = TempFile::new().unwrap().into_file();
        file.set_len(64 * PAGE_BYTES).unwrap();
        for page in 0..64 {
            file.write_all_at(&[page as u8], page * PAGE_BYTES).unwrap();
        }
        let file = Arc::new(file);
        let shared = GuestFile::Whole(file.clone());
        let piece = |&page: &u64| FilePiece {
            file: shared.clone(),
            offset: page * PAGE_BYTES,
            bytes: PAGE_BYTES,
            address: None,
            writable: true,
        };
        (pages.iter().map(piece).collect(), file)
    }

    /// One test for all: the window exists once in a process.
    #[test]
    fn scattered_pages_appear_side_by_side_where_wanted() {
        let _in_use = IN_USE.lock();
        let mut window = Window::reserve().unwrap();
        assert!(Window::reserve().is_err());
        let (scattered, file) = pieces(&[9, 3, 5]);
        let wanted = WINDOW_BASE + 7 * PAGE_BYTES;

        let area = window.map(&scattered, wanted, 1, false).unwrap();
        assert_eq!(area.base, wanted);
        let read = |at: u64| {
            // SAFETY: the address lies in an area that is mapped at that time.
            unsafe { ptr::read_volatile(at as *const u8) }
        };
        assert_eq!([0, 1, 2].map(|page| read(wanted + page * PAGE_BYTES)), [9, 3, 5]);
        // SAFETY: the area is mapped at this time; the file's owner sees the write.
        unsafe { ptr::write_volatile((wanted + PAGE_BYTES) as *mut u8, 77) };
        let mut byte = [0];
        file.read_exact_at(&mut byte, 3 * PAGE_BYTES).unwrap();
        assert_eq!(byte, [77]);

        // The kernel would map a whole huge page for each.
        let huge = GuestFile::Huge(file.clone());
        let huge = scattered.iter().map(|piece| FilePiece { file: huge.clone(), ..piece.clone() });
        let refused = window.map(&huge.collect::<Vec<_>>(), wanted + 16 * PAGE_BYTES, 9, false);
        assert_eq!(refused.unwrap_err(), CudaError::OUT_OF_MEMORY);

        // A used place, one outside and an unaligned one give way to a chosen one; tags are unique by kind.
        let (one, _file) = pieces(&[1]);
        assert_eq!(window.map(&one, wanted + PAGE_BYTES, 2, false).unwrap().base, CHOSEN_BASE);
        assert_eq!(window.map(&one, 0x1000, 3, false).unwrap().base, CHOSEN_BASE + PAGE_BYTES);
        assert_eq!(window.map(&one, WINDOW_END, 4, false).unwrap().base, CHOSEN_BASE + 2 * PAGE_BYTES);
        assert_eq!(window.map(&one, wanted + 1, 3, true).unwrap().base, CHOSEN_BASE + 3 * PAGE_BYTES);
        assert_eq!(window.map(&one, 0, 2, false).unwrap_err(), CudaError::INVALID_VALUE);

        let to_read: Vec<_> =
            one.iter().map(|piece| FilePiece { writable: false, ..piece.clone() }).collect();
        let to_read = window.map(&to_read, 0, 7, false).unwrap();
        assert_eq!(read(to_read.base), 1);
        // SAFETY: populating changes no contents.
        let populate = |base: u64| unsafe {
            libc::madvise(base as *mut _, PAGE_BYTES as usize, libc::MADV_POPULATE_WRITE) == 0
        };
        assert_eq!([wanted, to_read.base].map(populate), [true, false]);
        let writable = |base, pages| window.is_writable(base, pages * PAGE_BYTES);
        assert!(writable(wanted, 3) && !writable(to_read.base, 1) && !writable(to_read.base - PAGE_BYTES, 2));
        window.unmap(to_read.base);

        // A registration covers all of its pages, until its context ends.
        let behind = wanted + 3 * PAGE_BYTES;
        let next = window.map(&one, behind, 5, false).unwrap();
        let shared = window.map(&one, behind + PAGE_BYTES, 6, true).unwrap();
        for (base, pages) in [(wanted, 3), (wanted, 4), (behind, 1)] {
            assert!(window.check_unregistered(base, pages * PAGE_BYTES).is_ok(), "{pages} pages");
        }
        for (base, bytes) in [
            (wanted, 0),
            (wanted, 2 * PAGE_BYTES),
            (wanted, 5 * PAGE_BYTES),
            (wanted + PAGE_BYTES, 2 * PAGE_BYTES),
            (wanted - PAGE_BYTES, PAGE_BYTES),
            (behind + PAGE_BYTES, PAGE_BYTES),
            (wanted, u64::MAX),
        ] {
            assert!(window.check_unregistered(base, bytes).is_err(), "{base:#x}+{bytes:#x}");
        }
        let both = Registration { base: wanted, bytes: 4 * PAGE_BYTES, context: 3, dptr: wanted };
        window.set_registered(both);
        assert_eq!(
            [&area, &next, &shared].map(|area| window.registration(area)),
            [Some(both), Some(both), None]
        );
        assert!(window.check_unregistered(behind, PAGE_BYTES).is_err());
        window.forget_context(4);
        assert!(window.registration(&next).is_some());
        window.forget_context(3);
        assert!(window.registration(&next).is_none());
        window.set_registered(both);
        window.set_unregistered(wanted);
        assert!(window.registration(&area).is_none());
        for area in [next, shared] {
            window.unmap(area.base);
        }

        window.unmap(wanted);
        assert!(window.find(1, false).is_none());
        assert_eq!(window.map(&scattered, wanted, 1, false).unwrap().base, wanted);
        let many = vec![one[0].clone(); max_pieces()];
        assert_eq!(window.map(&many, 0, 9, false).unwrap_err(), CudaError::OUT_OF_MEMORY);
        // SAFETY: the range is the window's, of which nothing is used any more.
        unsafe { libc::munmap(WINDOW_BASE as *mut _, WINDOW_BYTES as usize) };
    }

    #[test]
    fn claimed_addresses_belong_to_the_window() {
        let _in_use = IN_USE.lock();
        let mut window = Window::reserve().unwrap();
        let (one, _file) = pieces(&[1]);
        let base = RESERVATIONS_BASE + (7 << 30);
        assert_eq!(window.map(&one, base, 1, false).unwrap().base, CHOSEN_BASE, "not claimed");
        window.unmap(CHOSEN_BASE);
        for (base, bytes) in [
            (base, 0),
            (base, u64::MAX),
            (base, 1),
            (base + 1, PAGE_BYTES),
            (RESERVATIONS_BASE - PAGE_BYTES, 2 * PAGE_BYTES),
            (RESERVATIONS_BASE + WINDOW_BYTES - PAGE_BYTES, 2 * PAGE_BYTES),
            (WINDOW_BASE, PAGE_BYTES),
            (0, PAGE_BYTES),
        ] {
            assert_eq!(window.claim(base, bytes), Err(CudaError::INVALID_VALUE), "{base:#x}+{bytes:#x}");
        }
        window.claim(base, 4 * PAGE_BYTES).unwrap();
        for offset in 0..4 {
            let again = window.claim(base + offset * PAGE_BYTES, PAGE_BYTES);
            assert_eq!(again, Err(CudaError::OUT_OF_MEMORY), "page {offset} is claimed");
        }
        let last = base + 3 * PAGE_BYTES;
        assert_eq!(window.map(&one, last, 1, false).unwrap().base, last);
        assert_eq!(window.map(&one, last + PAGE_BYTES, 2, false).unwrap().base, CHOSEN_BASE, "behind it");
        // SAFETY: the area is mapped at this time.
        assert_eq!(unsafe { ptr::read_volatile(last as *const u8) }, 1);
        for (base, bytes) in [(base, 4), (base, 3), (last, 1), (base + PAGE_BYTES, 3), (base, u64::MAX >> 12)]
        {
            assert!(window.unclaim(base, bytes * PAGE_BYTES).is_err(), "{base:#x}, {bytes} pages");
        }
        window.unmap(last);
        window.unclaim(base, 4 * PAGE_BYTES).unwrap();
        assert!(window.unclaim(base, 4 * PAGE_BYTES).is_err());
        assert_ne!(window.map(&one, last, 1, false).unwrap().base, last, "not claimed any more");
        // A mapping of something else is not replaced.
        reserve_range(base, PAGE_BYTES).unwrap();
        assert_eq!(window.claim(base - PAGE_BYTES, 2 * PAGE_BYTES), Err(CudaError::OUT_OF_MEMORY));
        // SAFETY: this test's own mapping, and the window, of which nothing is used any more.
        unsafe {
            libc::munmap(base as *mut _, PAGE_BYTES as usize);
            libc::munmap(WINDOW_BASE as *mut _, WINDOW_BYTES as usize);
        }
    }
}
