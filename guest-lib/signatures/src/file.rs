// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Looks for a static runtime in the sections of code of an ELF file.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use memchr::memmem;
use object::elf::{
    EM_X86_64, FileHeader64, SHF_EXECINSTR, SHF_WRITE, SHT_DYNSYM, SHT_PROGBITS, SectionHeader64,
};
use object::read::elf::{FileHeader, SectionHeader};
use object::read::{ReadCache, ReadRef};
use object::{LittleEndian, SectionIndex};

use crate::find::Scan;
use crate::{ALIGNMENT, Found, Nearest, Release};

/// Some of the functions that every release takes from the C library, the rarest first. An object without them has no runtime,
/// so its code is not read.
pub const IMPORTS: [&str; 4] = ["mkfifo", "nftw", "sem_timedwait", "pthread_rwlockattr_setpshared"];
/// Code is read in pieces of this size, which stay in a processor's cache.
const PIECE_BYTES: usize = 256 << 10;

/// A static runtime in a file.
#[derive(Debug)]
pub struct InFile<'a> {
    /// Which, and the places of its functions in `code`.
    pub found: Found<'a>,
    /// The address of `code` in the file.
    pub address: u64,
    /// Machine code around the runtime.
    pub code: Vec<u8>,
    /// Set if the code is mapped for writing.
    pub writable: bool,
}

/// A section of code.
#[derive(Debug)]
struct Code {
    address: u64,
    /// In the file.
    offset: u64,
    bytes: u64,
    writable: bool,
}

/// The sections of code of a file that may have a runtime.
#[derive(Debug)]
pub struct Sections<'a> {
    file: &'a File,
    all: Vec<Code>,
}

impl<'a> Sections<'a> {
    /// Returns the sections of code; `None` if the file is no object for this processor, or needs not all of [`IMPORTS`].
    pub fn of(file: &'a File) -> Option<Self> {
        let all = sections(&ReadCache::new(file))?;
        Some(Self { file, all })
    }

    /// Looks for one of the releases. `None` if there is none, or the file cannot be read.
    ///
    /// # Errors
    ///
    /// Fails with the nearest release if a piece of a runtime is there, and no release as a whole.
    pub fn find<'r>(&self, releases: &'r [Release]) -> Result<Option<InFile<'r>>, Nearest<'r>> {
        let scan = Scan::new(releases);
        let mut nearest: Option<Nearest> = None;
        for section in &self.all {
            match section.find(self.file, &scan) {
                Ok(Ok(found)) => return Ok(Some(found)),
                Ok(Err(other)) => nearest = nearer(nearest, other),
                Err(_) => {}
            }
        }
        nearest.map_or(Ok(None), Err)
    }
}

/// The one of which more functions are there.
fn nearer<'r>(one: Option<Nearest<'r>>, other: Option<Nearest<'r>>) -> Option<Nearest<'r>> {
    one.into_iter().chain(other).max_by_key(|nearest| nearest.functions)
}

fn sections<'data>(data: impl ReadRef<'data>) -> Option<Vec<Code>> {
    let header = FileHeader64::<LittleEndian>::parse(data).ok()?;
    let sections = header.sections(LittleEndian, data).ok()?;
    let symbols = sections.iter().find(|section| section.sh_type(LittleEndian) == SHT_DYNSYM)?;
    let names = sections.section(SectionIndex(symbols.sh_link(LittleEndian) as usize)).ok()?;
    let names = names.data(LittleEndian, data).ok()?;
    // Linkers put a name that ends like another one into that one.
    let has = |name: &str| memmem::find(names, format!("{name}\0").as_bytes()).is_some();
    let may_have = header.e_machine(LittleEndian) == EM_X86_64 && IMPORTS.into_iter().all(has);
    may_have.then(|| sections.iter().filter_map(Code::of).collect())
}

impl Code {
    fn of(section: &SectionHeader64<LittleEndian>) -> Option<Self> {
        let flags = section.sh_flags(LittleEndian);
        let has = |flag: u32| flags & u64::from(flag) != 0;
        (section.sh_type(LittleEndian) == SHT_PROGBITS && has(SHF_EXECINSTR)).then(|| Self {
            address: section.sh_addr(LittleEndian),
            offset: section.sh_offset(LittleEndian),
            bytes: section.sh_size(LittleEndian),
            writable: has(SHF_WRITE),
        })
    }

    /// Looks for anchors, and around each one for a whole release; the nearest one if there is none.
    fn find<'a>(&self, file: &File, scan: &Scan<'a>) -> io::Result<Result<InFile<'a>, Option<Nearest<'a>>>> {
        let mut piece = vec![0; PIECE_BYTES];
        let mut nearest: Option<Nearest> = None;
        // A linker aligns the section at least as the runtime's own; addresses count.
        let mut at = self.address.next_multiple_of(ALIGNMENT as u64) - self.address;
        while at < self.bytes {
            let bytes = (self.bytes - at).min(PIECE_BYTES as u64);
            let piece = &mut piece[..bytes as usize];
            file.read_exact_at(piece, self.offset + at)?;
            let Some(anchor) = scan.anchor(piece) else {
                at += bytes;
                continue;
            };
            at += anchor as u64;
            match self.around(file, scan, at)? {
                Err(other) => nearest = nearer(nearest, other),
                found => return Ok(found),
            }
            at += ALIGNMENT as u64;
        }
        Ok(Err(nearest))
    }

    /// Looks for a whole release around the anchor at `at`.
    fn around<'a>(
        &self,
        file: &File,
        scan: &Scan<'a>,
        at: u64,
    ) -> io::Result<Result<InFile<'a>, Option<Nearest<'a>>>> {
        let (before, behind) = scan.surroundings();
        let start = at.saturating_sub(before as u64);
        let end = at.saturating_add(behind as u64).min(self.bytes);
        let mut code = vec![0; (end - start) as usize];
        file.read_exact_at(&mut code, self.offset + start)?;
        Ok(scan.find(&code, (at - start) as usize).map(|found| InFile {
            found,
            address: self.address + start,
            code,
            writable: self.writable,
        }))
    }
}
