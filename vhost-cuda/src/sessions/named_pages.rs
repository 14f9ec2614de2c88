// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The pages that a session's process has named, with `--guest-pages named`. Its worker may map only these, and may write
//! only those that the process may write.
//!
//! A worker maps guest memory in a process that has a descriptor table and a filter of its own (`worker::memory::mapper`).
//! Each of its `mmap` calls waits for [`guard`] here. The arguments are in registers, and nothing but [`guard`] changes
//! the table: it installs each file twice, the second time for writing. A shared mapping of a file that is open for
//! reading cannot be made writable later. So nothing changes between the check and the call, even if a guest has taken
//! over the worker and that process.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use log::debug;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use vhost_cuda_common::confine::listener::{RECEIVE, SEND, SET_FLAGS, install};
use vhost_cuda_common::mapping::{FIRST_NUMBER, MAX_FILES, REFRESH, to_read, to_write};
use virtio_cuda_protocol::transport::{
    FLAG_KEEP, FLAG_READ, MemEntry, OP_SHARE, OP_UNPIN, PAGE_BYTES, REPLY_OK,
};
use vm_memory::{GuestAddress, GuestMemoryBackend, GuestMemoryRegion};

use crate::confine::threads;
use crate::guest::memory::{FileId, Memory, SharedRegion, id_of};
use crate::guest::request::Request;
use crate::hand_over::freeze::{self, Permit};

/// `SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP`: the caller and the supervisor take turns on one CPU.
const SYNC_WAKE_UP: libc::c_ulong = 1;

/// The reason for which a worker may map pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
enum Source {
    /// A call that keeps them, until the driver unpins them.
    Kept(u64),
    /// A shared area, until the session ends.
    Shared(u64),
}

/// Whole pages of a file of guest memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct Piece {
    file: FileId,
    start: u64,
    end: u64,
}

/// The pages that one request names. Each list is sorted, and its pieces neither touch nor overlap.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Pages {
    read: Vec<Piece>,
    written: Vec<Piece>,
}

/// The pages that a session's process names at present.
#[derive(Debug, Default)]
struct Lists {
    /// Those of requests that are not answered yet, of which there are few: nearly all mappings are of these.
    requests: HashMap<u64, Pages>,
    /// All others. There may be tens of thousands.
    held: HashMap<Source, Pages>,
}

/// The pages that a session's process names at present, and the files that they are in.
#[derive(Debug, Default)]
pub struct NamedPages {
    /// Shared with [`Self::for_another_mapper`].
    lists: Arc<Mutex<Lists>>,
    files: Mutex<Files>,
}

/// The files in a mapper's table.
#[derive(Debug, Default)]
struct Files {
    /// The files of guest memory by their descriptor for reading. [`to_write`] is the other one.
    present: BTreeMap<u32, Installed>,
    /// The descriptors of files that were guest memory, and are still in the table.
    gone: Vec<u32>,
    /// The number of all numbers so far.
    count: u64,
}

/// A file with its two descriptors.
#[derive(Debug)]
struct Installed {
    /// Its number, which no other file gets.
    number: u64,
    id: FileId,
    read: Arc<File>,
    write: Arc<File>,
    /// True if it is in the table.
    there: bool,
}

/// Pages of guest memory that a session holds, for another machine with the same memory: the addresses and bytes of those that it may
/// only read, and of those that it may write.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeldPages {
    source: Source,
    read: Vec<(u64, u64)>,
    written: Vec<(u64, u64)>,
}

/// Named pages that are handed over while no request is under way.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SavedPages {
    held: Vec<(Source, Pages)>,
    /// Files in the mapper's table, by their numbers. One that was not installed yet is installed by the next program.
    present: Vec<(u64, FileId, bool)>,
    gone: Vec<u32>,
    count: u64,
}

impl SavedPages {
    /// Returns the state for the same guest memory, `regions`. Files that are not there any more are as good as removed.
    ///
    /// Errors: the state is wrong.
    pub fn restore(self, regions: &[SharedRegion]) -> io::Result<NamedPages> {
        let mut files = Files { gone: self.gone, count: self.count, ..Files::default() };
        let end = self.count.checked_mul(2).and_then(|numbers| numbers.checked_add(FIRST_NUMBER.into()));
        let end = end.ok_or(io::ErrorKind::InvalidData)?;
        let is_number =
            |number: u64| number.is_multiple_of(2) && (FIRST_NUMBER.into()..end).contains(&number);
        let are_numbers = self.present.iter().all(|&(number, ..)| is_number(number));
        let taken: HashSet<u32> = self.present.iter().map(|&(number, ..)| to_read(number)).collect();
        let are_gone = files.gone.iter().all(|&file| is_number(file.into()) && file == to_read(file.into()));
        if !(are_numbers && are_gone) || taken.len() < self.present.len() {
            return Err(io::ErrorKind::InvalidData.into());
        }
        for (number, id, there) in self.present {
            let region =
                regions.iter().find(|region| id_of(region.file.file()).is_ok_and(|known| known == id));
            match region.and_then(|region| Some((region.read_only.clone()?, region.file.arc().clone()))) {
                Some((read, write)) => {
                    let installed = Installed { number, id, read, write, there };
                    drop(files.present.insert(to_read(number), installed));
                }
                None => files.gone.push(to_read(number)),
            }
        }
        let lists = Lists { held: self.held.into_iter().collect(), ..Lists::default() };
        Ok(NamedPages { lists: Arc::new(Mutex::new(lists)), files: Mutex::new(files) })
    }
}

/// The effect of a request and of its answer on the pages that are named.
#[derive(Clone, Copy, Debug)]
pub struct Named {
    request: u64,
    then: Option<Source>,
    unpins: Option<Source>,
}

impl NamedPages {
    /// Returns the same pages, also those that are named later, for the mapper of another worker, which has no files yet.
    pub fn for_another_mapper(&self) -> Self {
        Self { lists: self.lists.clone(), files: Mutex::default() }
    }

    /// Records the pages of a request before its worker sees it.
    pub fn begin(&self, id: u64, request: &Request, memory: &Memory) -> Named {
        let header = &request.header;
        let unpins = (header.op == OP_UNPIN).then_some(Source::Kept(header.tag));
        let then = match header.op {
            OP_SHARE => Some(Source::Shared(header.tag)),
            _ if header.flags & FLAG_KEEP != 0 => Some(Source::Kept(header.tag)),
            _ => None,
        };
        let pages = Pages::of(request, memory);
        if !(pages.read.is_empty() && pages.written.is_empty()) {
            self.lists.lock().requests.insert(id, pages);
        }
        Named { request: id, then, unpins }
    }

    /// Returns what the next program needs.
    pub fn save(&self) -> SavedPages {
        let (lists, files) = (self.lists.lock(), self.files.lock());
        SavedPages {
            held: lists.held.iter().map(|(&source, pages)| (source, pages.clone())).collect(),
            present: files.present.values().map(|file| (file.number, file.id, file.there)).collect(),
            gone: files.gone.clone(),
            count: files.count,
        }
    }

    /// Returns the pages that are held, by their addresses. `None` if some are not guest memory any more.
    pub fn held(&self, memory: &Memory) -> Option<Vec<HeldPages>> {
        let places = places_of(memory);
        let addresses = |pieces: &[Piece]| {
            let mut ranges = Vec::new();
            for &(mut piece) in pieces {
                while piece.start < piece.end {
                    let range = places.iter().find_map(|place| place.range_of(&piece))?;
                    piece.start += range.1;
                    ranges.push(range);
                }
            }
            Some(ranges)
        };
        let row = |(&source, pages): (&Source, &Pages)| {
            Some(HeldPages { source, read: addresses(&pages.read)?, written: addresses(&pages.written)? })
        };
        self.lists.lock().held.iter().map(row).collect()
    }

    /// Holds pages of [`Self::held`], which are in the files of this memory now.
    pub fn hold(&self, rows: Vec<HeldPages>, memory: &Memory) {
        let mut lists = self.lists.lock();
        for HeldPages { source, read, written } in rows {
            let pages = Pages { read: pieces_at(&read, memory), written: pieces_at(&written, memory) };
            lists.held.insert(source, pages);
        }
    }

    /// Records that the request was answered, before its program learns of it. The pages that it unpins are held until then: the
    /// session may get another worker or go to another machine before its worker executes the request, and maps them there first.
    pub fn end(&self, named: Named, status: u32) {
        let mut lists = self.lists.lock();
        if let Some(source) = named.unpins {
            // Also after an error: the driver gives the pages back.
            lists.held.remove(&source);
        }
        let pages = lists.requests.remove(&named.request);
        if let (Some(pages), Some(then), REPLY_OK) = (pages, named.then, status) {
            lists.held.insert(then, pages);
        }
    }

    /// Returns true if one request names all pages of `bytes` bytes at `start` of a file, with `write` for writing.
    fn covers(&self, file: FileId, start: u64, bytes: u64, write: bool) -> bool {
        let end = start.checked_add(bytes).and_then(|end| end.checked_next_multiple_of(PAGE_BYTES));
        let Some(end) = end.filter(|_| bytes > 0) else { return false };
        let in_list = |list: &Vec<Piece>| {
            let after = list.partition_point(|piece| (piece.file, piece.start) <= (file, start));
            let found = after.checked_sub(1).map(|index| list[index]);
            found.is_some_and(|piece| piece.file == file && end <= piece.end)
        };
        let lists = self.lists.lock();
        let covers = |pages: &Pages| in_list(&pages.written) || (!write && in_list(&pages.read));
        lists.requests.values().any(covers) || lists.held.values().any(covers)
    }

    /// Records the files of guest memory from now on. [`Self::number`] has their numbers. They are in the mapper's table
    /// when it asks next.
    ///
    /// Errors: there are too many files.
    pub fn set_files(&self, regions: &[SharedRegion]) -> io::Result<()> {
        let mut files = self.files.lock();
        let named = regions.iter().filter_map(|region| Some((region, region.read_only.as_ref()?)));
        let named = named.map(|(region, read)| Ok((id_of(region.file.file())?, region.file.arc(), read)));
        let named = named.collect::<io::Result<Vec<_>>>()?;
        let present: HashSet<FileId> = named.iter().map(|(id, ..)| *id).collect();
        let Files { present: before, gone, .. } = &mut *files;
        before.retain(|&file, installed| {
            let stays = present.contains(&installed.id);
            gone.extend((!stays).then_some(file));
            stays
        });
        for (id, write, read) in named {
            if files.number(id).is_none() {
                let (read, write) = (read.clone(), write.clone());
                files.add(id, read, write)?;
            }
        }
        Ok(())
    }

    /// Returns the number of a file of guest memory, for the worker.
    pub fn number(&self, file: &File) -> Option<u64> {
        self.files.lock().number(id_of(file).ok()?)
    }

    /// Changes the table of the mapper, which waits for the answer to `call`. `nothing` takes the place of files that are
    /// not used any more.
    fn install(&self, listener: BorrowedFd<'_>, call: u64, nothing: Option<&File>) {
        let mut files = self.files.lock();
        for (&place, file) in files.present.iter_mut().filter(|(_, file)| !file.there) {
            let both = install(listener, call, &*file.read, place)
                .and_then(|()| install(listener, call, &*file.write, to_write(place)));
            match both {
                Ok(()) => file.there = true,
                Err(error) => debug!("a mapper does not get a file of guest memory: {error}"),
            }
        }
        if let Some(nothing) = nothing {
            let replaced = |&file: &u32| {
                [file, to_write(file)]
                    .into_iter()
                    .all(|place| install(listener, call, nothing, place).is_ok())
            };
            files.gone.retain(|file| !replaced(file));
        }
    }

    /// Returns true if the process may map with these arguments.
    fn is_allowed(&self, call: &libc::seccomp_notif) -> bool {
        let [_, bytes, protection, _, descriptor, offset] = call.data.args;
        let readable_or_writable = (libc::PROT_READ | libc::PROT_WRITE) as u64;
        if i64::from(call.data.nr) != libc::SYS_mmap || protection & !readable_or_writable != 0 {
            return false;
        }
        let descriptor = descriptor as u32;
        let to_read = descriptor & !1;
        let file = self.files.lock().present.get(&to_read).filter(|file| file.there).map(|file| file.id);
        file.is_some_and(|file| self.covers(file, offset, bytes, descriptor == to_write(to_read)))
    }
}

impl Files {
    fn number(&self, file: FileId) -> Option<u64> {
        self.present.values().find(|installed| installed.id == file).map(|installed| installed.number)
    }

    /// Adds a file under the next number whose descriptors no other file has.
    fn add(&mut self, id: FileId, read: Arc<File>, write: Arc<File>) -> io::Result<()> {
        if self.present.len() >= MAX_FILES as usize {
            return Err(io::Error::other("guest memory has too many files"));
        }
        loop {
            let number = u64::from(FIRST_NUMBER) + 2 * self.count;
            self.count += 1;
            if let Entry::Vacant(place) = self.present.entry(to_read(number)) {
                // An earlier file there is replaced.
                self.gone.retain(|file| file != place.key());
                place.insert(Installed { number, id, read, write, there: false });
                return Ok(());
            }
        }
    }
}

impl Pages {
    /// Returns the pages of files that a request names.
    fn of(request: &Request, memory: &Memory) -> Self {
        // The device only reads what is kept with this flag, though it is in the part for writing.
        let writes = request.header.flags & FLAG_READ == 0;
        let (kept, outs) =
            if writes { (&[][..], &request.out_entries[..]) } else { (&request.out_entries[..], &[][..]) };
        Self { read: pieces_of(&[&request.in_entries, kept], memory), written: pieces_of(&[outs], memory) }
    }
}

/// A region of guest memory, as a stretch of a file.
struct Stretch {
    file: FileId,
    start: u64,
    bytes: u64,
    address: u64,
}

impl Stretch {
    /// Returns the address of a piece's first byte, and the bytes from there on that lie in this stretch. `None` if there are none.
    fn range_of(&self, piece: &Piece) -> Option<(u64, u64)> {
        let offset = piece.start.checked_sub(self.start).filter(|_| piece.file == self.file)?;
        let bytes = self.bytes.checked_sub(offset)?.min(piece.end - piece.start);
        (bytes > 0).then_some((self.address + offset, bytes))
    }
}

fn places_of(memory: &Memory) -> Vec<Stretch> {
    let place = |region: &<Memory as GuestMemoryBackend>::R| {
        let backing = region.file_offset()?;
        let (start, address) = (backing.start(), region.start_addr().0);
        Some(Stretch { file: id_of(backing.file()).ok()?, start, bytes: region.len(), address })
    };
    memory.iter().filter_map(place).collect()
}

/// Returns the pages of files that are in `entries`.
fn pieces_of(entries: &[&[MemEntry]], memory: &Memory) -> Vec<Piece> {
    let all = entries.iter().copied().flatten();
    let ranges: Vec<_> = all.map(|entry| (entry.addr, u64::from(entry.bytes))).collect();
    pieces_at(&ranges, memory)
}

/// The same, for addresses and bytes.
fn pieces_at(ranges: &[(u64, u64)], memory: &Memory) -> Vec<Piece> {
    let mut files = HashMap::new();
    let mut pieces = Vec::new();
    for &(mut addr, mut left) in ranges {
        while left > 0 {
            let Some((region, offset)) = memory.to_region_addr(GuestAddress(addr)) else { break };
            let bytes = left.min(region.len() - offset.0);
            let file = region.file_offset().and_then(|backing| {
                let id = files.entry(region.start_addr().0).or_insert_with(|| id_of(backing.file()).ok());
                id.map(|id| (id, backing.start() + offset.0))
            });
            if let Some((file, start)) = file {
                let end = (start + bytes).next_multiple_of(PAGE_BYTES);
                pieces.push(Piece { file, start: start / PAGE_BYTES * PAGE_BYTES, end });
            }
            left -= bytes;
            let Some(next) = addr.checked_add(bytes) else { break };
            addr = next;
        }
    }
    pieces.sort_unstable();
    pieces.dedup_by(|next, last| {
        let joins = next.file == last.file && next.start <= last.end;
        last.end = if joins { last.end.max(next.end) } else { last.end };
        joins
    });
    pieces
}

/// Answers the `mmap` calls of a worker's mapper until that has ended.
pub fn guard(listener: &OwnedFd, named: &NamedPages) {
    let mut said = false;
    let nothing = File::open("/dev/null").ok();
    threads::read_foreign_bytes();
    // An older kernel takes longer for each call.
    // SAFETY: the command takes the flags as a number.
    unsafe { libc::ioctl(listener.as_raw_fd(), SET_FLAGS as _, SYNC_WAKE_UP) };
    while let Some((call, _permit)) = receive(listener) {
        named.install(listener.as_fd(), call.id, nothing.as_ref());
        let allowed = named.is_allowed(&call);
        let is_refresh = call.data.args[4] as u32 == REFRESH;
        if !allowed && !is_refresh && !std::mem::replace(&mut said, true) {
            debug!("process {}: a worker may not map what its guest's process has not named", call.pid);
        }
        let answer = libc::seccomp_notif_resp {
            id: call.id,
            val: 0,
            error: if allowed { 0 } else { -libc::EPERM },
            flags: if allowed { libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32 } else { 0 },
        };
        // SAFETY: the structure is the one that the command reads, and lives across the call. It fails if the mapper has
        // ended.
        unsafe { libc::ioctl(listener.as_raw_fd(), SEND as _, &raw const answer) };
    }
}

/// Returns the next call, or `None` if the mapper has ended.
fn receive(listener: &OwnedFd) -> Option<(libc::seccomp_notif, Permit)> {
    loop {
        let mut poll = libc::pollfd { fd: listener.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one structure, as said, which lives across the call.
        let ready = unsafe { libc::poll(&raw mut poll, 1, -1) };
        if ready > 0 && poll.revents & libc::POLLIN == 0 {
            return None;
        }
        // Held until the call is answered.
        let permit = freeze::permit();
        // SAFETY: all-zero is a valid value, and the one that the kernel wants to be handed.
        let mut call: libc::seccomp_notif = unsafe { std::mem::zeroed() };
        // SAFETY: the structure is the one that the command writes, and lives across the call.
        if ready > 0 && unsafe { libc::ioctl(listener.as_raw_fd(), RECEIVE as _, &raw mut call) } == 0 {
            return Some((call, permit));
        }
        // A signal, or the calling thread has ended.
        let error = io::Error::last_os_error().raw_os_error();
        if !matches!(error, Some(libc::EINTR | libc::ENOENT)) {
            return None;
        }
    }
}

#[cfg(test)]
#[path = "named_pages_test.rs"]
mod tests;
