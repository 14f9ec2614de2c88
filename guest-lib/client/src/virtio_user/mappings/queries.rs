// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Questions to the kernel about single mappings (`PROCMAP_QUERY`, since Linux 6.11). Programs have tens of thousands of mappings,
//! and to read the list of all takes the kernel milliseconds then.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use super::{FileId, Part};
use crate::transport::UserMemory;

/// `_IOWR('f', 17, struct procmap_query)`.
const PROCMAP_QUERY: libc::Ioctl = 0xc068_6611_u32 as libc::Ioctl;
/// `PROCMAP_QUERY_COVERING_OR_NEXT_VMA`.
const COVERING_OR_NEXT: u64 = 0x10;
/// `PROCMAP_QUERY_VMA_READABLE`, `_WRITABLE` and `_SHARED`.
const READABLE: u64 = 1;
const WRITABLE: u64 = 2;
const SHARED: u64 = 8;

/// `struct procmap_query` of `linux/fs.h`.
#[derive(Clone, Debug, Default)]
#[repr(C)]
struct Query {
    size: u64,
    query_flags: u64,
    query_addr: u64,
    vma_start: u64,
    vma_end: u64,
    vma_flags: u64,
    vma_page_size: u64,
    vma_offset: u64,
    inode: u64,
    dev_major: u32,
    dev_minor: u32,
    vma_name_size: u32,
    build_id_size: u32,
    vma_name_addr: u64,
    build_id_addr: u64,
}

const _: () = assert!(size_of::<Query>() == 104);

/// Asks for the mapping that contains `address`, else for the next one. Its name is written to `name`.
fn ask(maps: &File, address: usize, name: &mut [u8]) -> io::Result<Query> {
    let mut query = Query {
        size: size_of::<Query>() as u64,
        query_flags: COVERING_OR_NEXT,
        query_addr: address as u64,
        vma_name_size: name.len() as u32,
        vma_name_addr: if name.is_empty() { 0 } else { name.as_mut_ptr() as u64 },
        ..Query::default()
    };
    // SAFETY: the structure is the call's, lives across it, and names a buffer of the given length.
    match unsafe { libc::ioctl(maps.as_raw_fd(), PROCMAP_QUERY, &raw mut query) } {
        0 => Ok(query),
        _ => Err(io::Error::last_os_error()),
    }
}

fn part(maps: &File, address: usize) -> io::Result<(Part, bool)> {
    let mut query = ask(maps, address, &mut [])?;
    let mut name = String::new();
    let shared = query.vma_flags & SHARED != 0;
    if shared {
        let mut text = [0; libc::PATH_MAX as usize];
        query = ask(maps, address, &mut text)?;
        let length = (query.vma_name_size as usize).saturating_sub(1).min(text.len());
        name = String::from_utf8_lossy(&text[..length]).into_owned();
    }
    let (low, high) = (query.vma_start as usize, query.vma_end as usize);
    let part = Part {
        memory: UserMemory { address: low, bytes: high.saturating_sub(low) },
        writable: query.vma_flags & WRITABLE != 0,
        shared,
        whole: (low, high),
        offset: query.vma_offset,
        file: FileId { device: (query.dev_major, query.dev_minor), inode: query.inode },
        name,
    };
    Ok((part, query.vma_flags & READABLE != 0))
}

/// Returns the mappings from the one that contains `address` on, and for each whether it is readable. `None`: the kernel does not
/// answer such questions.
pub fn from(maps: &File, address: usize) -> Option<impl Iterator<Item = io::Result<(Part, bool)>> + '_> {
    let is_end = |error: &io::Error| error.raw_os_error() == Some(libc::ENOENT);
    let answers = ask(maps, address, &mut []).err().is_none_or(|error| is_end(&error));
    let mut at = address;
    let next = move || match part(maps, at) {
        Ok((part, is_readable)) => {
            at = part.whole.1;
            Some(Ok((part, is_readable)))
        }
        Err(error) if is_end(&error) => None,
        Err(error) => Some(Err(error)),
    };
    answers.then(|| std::iter::from_fn(next))
}
