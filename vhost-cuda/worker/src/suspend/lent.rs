// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The files in which contents pass between processes, or stay.
//!
//! There are several, with the chunks in turn, because the kernel lets one thread at a time write to a file. It copies what is written to new
//! pages without clearing them first, which is several times as fast as pages of a mapping that come one after the other.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use vhost_cuda_common::parts::{FILES, Place, malformed};

use super::room::{Area, CHUNK_BYTES, Room};

/// Returns the number of the file, of `count`, in which a place is, and the place in it.
pub fn file_of(place: u64, count: usize) -> (usize, u64) {
    let (chunk, count) = (place / CHUNK_BYTES, count.max(1) as u64);
    ((chunk % count) as usize, chunk / count * CHUNK_BYTES)
}

/// Files for contents, or with contents.
#[derive(Debug, Default)]
pub struct Files {
    files: Vec<File>,
    /// True if they have saved contents, and can only be read.
    is_saved: bool,
}

impl Files {
    /// Adds the next file.
    ///
    /// Errors: there are too many.
    pub fn add(&mut self, file: File, is_saved: bool) -> io::Result<()> {
        if self.files.len() >= FILES {
            return Err(malformed("there are too many files for contents"));
        }
        self.files.push(file);
        self.is_saved |= is_saved;
        Ok(())
    }

    /// Returns the bytes of all whole chunks.
    pub fn bytes(&self) -> u64 {
        let bytes = |file: &File| file.metadata().map_or(0, |about| about.len() / CHUNK_BYTES * CHUNK_BYTES);
        self.files.iter().map(bytes).fold(0, u64::saturating_add)
    }

    /// Maps files with contents.
    ///
    /// Errors: as for [`Area::of_file`].
    pub fn map(&self) -> io::Result<Vec<Area>> {
        self.files.iter().map(|file| Area::of_file(file, self.is_saved)).collect()
    }

    /// Makes files long enough for so many chunks, and maps them for reading.
    ///
    /// Errors: there is no file, or one has a sealed length that is not enough.
    pub fn provide(&self, chunks: usize) -> io::Result<Vec<Area>> {
        let count = self.files.len();
        if count == 0 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.files.iter().zip((0..count).rev()).try_for_each(|(file, more)| {
            let bytes = ((chunks + more) / count) as u64 * CHUNK_BYTES;
            if file.metadata()?.len() < bytes { file.set_len(bytes) } else { Ok(()) }
        })?;
        self.files.iter().map(|file| Area::of_file(file, true)).collect()
    }

    /// Writes the chunk of a room to its place.
    ///
    /// Errors: as for [`Room::write_to`].
    ///
    /// # Safety
    ///
    /// As for [`Room::write_to`].
    pub unsafe fn write(&self, place: u64, room: Room) -> io::Result<()> {
        let (index, offset) = file_of(place, self.files.len());
        // SAFETY: the caller's promise.
        unsafe { room.write_to(&self.files[index], offset) }
    }

    /// Returns whether both have the same files.
    fn are(&self, other: &Self) -> bool {
        let about = |file: &File| file.metadata().map(|about| (about.dev(), about.ino())).ok();
        let is_same = |(one, other)| about(one).is_some() && about(one) == about(other);
        self.files.len() == other.files.len() && self.files.iter().zip(&other.files).all(is_same)
    }
}

/// Files to which the contents of a suspension go at once. Those that do not go there go to host memory.
#[derive(Debug)]
pub struct Offer {
    files: Files,
    next: AtomicU64,
    places: Mutex<Vec<Place>>,
}

impl Offer {
    /// Offers files without contents.
    pub fn new(files: Files) -> Self {
        Self { files, next: AtomicU64::new(0), places: Mutex::default() }
    }

    /// Writes the chunk of the device's memory at `address`. Returns false if a file does not take it.
    pub fn take(&self, address: u64, chunk: &[u8]) -> bool {
        let place = self.next.fetch_add(1, Ordering::Relaxed) * CHUNK_BYTES;
        let (index, offset) = file_of(place, self.files.files.len());
        let is_there =
            self.files.files.get(index).is_some_and(|file| file.write_all_at(chunk, offset).is_ok());
        if is_there {
            self.places.lock().push(Place { address, offset: place });
        }
        is_there
    }

    /// Returns the places of chunks that were taken.
    pub fn places(&self) -> Vec<Place> {
        self.places.lock().clone()
    }

    /// Maps the files, which are as long as the places need then, for reading.
    ///
    /// Errors: as for [`Files::provide`].
    pub fn map(&self) -> io::Result<Vec<Area>> {
        self.files.provide(self.next.load(Ordering::Relaxed) as usize)
    }

    /// Returns the places of chunks that are in `files`, and the first place behind all of them.
    pub fn places_in(&self, files: &Files) -> (Vec<Place>, u64) {
        match self.files.are(files) {
            true => (self.places(), self.next.load(Ordering::Relaxed)),
            false => (Vec::new(), 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_place_is_in_one_file() {
        for count in [1, 3, FILES] {
            let mut next = vec![0; count];
            for chunk in 0..50_u64 {
                let (index, offset) = file_of(chunk * CHUNK_BYTES, count);
                assert_eq!((index, offset), (chunk as usize % count, next[index]), "{count}");
                next[index] += CHUNK_BYTES;
            }
        }
        let (index, offset) = file_of(u64::MAX, 0);
        assert!(index == 0 && offset.is_multiple_of(CHUNK_BYTES));
    }
}
