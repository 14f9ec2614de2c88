// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The pages that a session's process has named, with `--guest-pages named`. Its worker may map only these.
//!
//! A worker maps guest memory in one thread, which has a descriptor table and a filter of its own (`worker::mapper`).
//! Each of its `mmap` calls waits for [`guard`] here. The arguments are in registers, and the table belongs to the
//! waiting thread, so other threads of the worker cannot change them between the check and the call.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

use log::debug;
use parking_lot::Mutex;
use virtio_cuda_protocol::transport::{FLAG_KEEP, OP_SHARE, OP_UNPIN, PAGE_BYTES, REPLY_OK};
use vm_memory::{GuestAddress, GuestMemoryBackend, GuestMemoryRegion};

use crate::front_end::memory::{FileId, Memory};
use crate::front_end::request::Request;

/// `SECCOMP_IOCTL_NOTIF_RECV`, which `libc` does not define.
const RECEIVE: libc::c_ulong = 0xc050_2100;
/// `SECCOMP_IOCTL_NOTIF_SEND`.
const SEND: libc::c_ulong = 0xc018_2101;
/// `SECCOMP_IOCTL_NOTIF_SET_FLAGS`, since Linux 6.6.
const SET_FLAGS: libc::c_ulong = 0x4008_2104;
/// `SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP`: the caller and the supervisor take turns on one CPU.
const SYNC_WAKE_UP: libc::c_ulong = 1;

/// The reason for which a worker may map pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Source {
    /// A request, until it is answered.
    Request(u64),
    /// A call that keeps them, until the driver unpins them.
    Kept(u64),
    /// A shared area, until the session ends.
    Shared(u64),
}

/// Whole pages of a file of guest memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Piece {
    file: FileId,
    start: u64,
    end: u64,
}

/// The pages that a session's process names at present.
#[derive(Debug, Default)]
pub struct NamedPages {
    /// Each list is sorted, and its pieces neither touch nor overlap.
    lists: Mutex<HashMap<Source, Vec<Piece>>>,
}

/// The effect of a request's answer on the pages that the request names.
#[derive(Clone, Copy, Debug)]
pub struct Named {
    request: u64,
    then: Option<Source>,
}

impl NamedPages {
    /// Records the pages of a request before its worker sees it. Pages that the request unpins are removed.
    pub fn begin(&self, id: u64, request: &Request, memory: &Memory) -> Named {
        let header = &request.header;
        let mut lists = self.lists.lock();
        if header.op == OP_UNPIN {
            lists.remove(&Source::Kept(header.tag));
        }
        let then = match header.op {
            OP_SHARE => Some(Source::Shared(header.tag)),
            _ if header.flags & FLAG_KEEP != 0 => Some(Source::Kept(header.tag)),
            _ => None,
        };
        let pieces = pieces_of(request, memory);
        if !pieces.is_empty() {
            lists.insert(Source::Request(id), pieces);
        }
        Named { request: id, then }
    }

    /// Records that the request was answered.
    pub fn end(&self, named: Named, status: u32) {
        let mut lists = self.lists.lock();
        let pieces = lists.remove(&Source::Request(named.request));
        if let (Some(pieces), Some(then), REPLY_OK) = (pieces, named.then, status) {
            lists.insert(then, pieces);
        }
    }

    /// Returns true if one request names all pages of `bytes` bytes at `start` of a file.
    fn covers(&self, file: FileId, start: u64, bytes: u64) -> bool {
        let end = start.checked_add(bytes).and_then(|end| end.checked_next_multiple_of(PAGE_BYTES));
        let Some(end) = end.filter(|_| bytes > 0) else { return false };
        self.lists.lock().values().any(|list| {
            let after = list.partition_point(|piece| (piece.file, piece.start) <= (file, start));
            let found = after.checked_sub(1).map(|index| list[index]);
            found.is_some_and(|piece| piece.file == file && end <= piece.end)
        })
    }
}

/// Returns the pages of files that a request names.
fn pieces_of(request: &Request, memory: &Memory) -> Vec<Piece> {
    let mut files = HashMap::new();
    let mut pieces = Vec::new();
    for entry in request.in_entries.iter().chain(&request.out_entries) {
        let (mut addr, mut left) = (entry.addr, u64::from(entry.bytes));
        while left > 0 {
            let Some((region, offset)) = memory.to_region_addr(GuestAddress(addr)) else { break };
            let bytes = left.min(region.len() - offset.0);
            let file = region.file_offset().and_then(|backing| {
                let id = files.entry(region.start_addr().0).or_insert_with(|| file_id(backing.file()).ok());
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

fn file_id(file: &fs::File) -> io::Result<FileId> {
    file.metadata().map(|meta| (meta.dev(), meta.ino()))
}

/// Answers the `mmap` calls of a worker's mapper until the worker has ended.
pub fn guard(listener: &OwnedFd, named: &NamedPages) {
    let mut said = false;
    // An older kernel takes longer for each call.
    // SAFETY: the command takes the flags as a number.
    unsafe { libc::ioctl(listener.as_raw_fd(), SET_FLAGS as _, SYNC_WAKE_UP) };
    while let Some(call) = receive(listener) {
        let allowed = is_allowed(&call, named);
        if !allowed && !std::mem::replace(&mut said, true) {
            debug!("process {}: a worker may not map what its guest's process has not named", call.pid);
        }
        let answer = libc::seccomp_notif_resp {
            id: call.id,
            val: 0,
            error: if allowed { 0 } else { -libc::EPERM },
            flags: if allowed { libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32 } else { 0 },
        };
        // SAFETY: the structure is the one that the command reads, and lives across the call. It fails if the thread that
        // asks has ended.
        unsafe { libc::ioctl(listener.as_raw_fd(), SEND as _, &raw const answer) };
    }
}

/// Returns the next call, or `None` if the worker has ended.
fn receive(listener: &OwnedFd) -> Option<libc::seccomp_notif> {
    loop {
        let mut poll = libc::pollfd { fd: listener.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one structure, as said, which lives across the call.
        let ready = unsafe { libc::poll(&raw mut poll, 1, -1) };
        if ready > 0 && poll.revents & libc::POLLIN == 0 {
            return None;
        }
        // SAFETY: all-zero is a valid value, and the one that the kernel wants to be handed.
        let mut call: libc::seccomp_notif = unsafe { std::mem::zeroed() };
        // SAFETY: the structure is the one that the command writes, and lives across the call.
        if ready > 0 && unsafe { libc::ioctl(listener.as_raw_fd(), RECEIVE as _, &raw mut call) } == 0 {
            return Some(call);
        }
        // A signal, or the calling thread has ended.
        let error = io::Error::last_os_error().raw_os_error();
        if !matches!(error, Some(libc::EINTR | libc::ENOENT)) {
            return None;
        }
    }
}

fn is_allowed(call: &libc::seccomp_notif, named: &NamedPages) -> bool {
    let [_, bytes, protection, _, file, offset] = call.data.args;
    if i64::from(call.data.nr) != libc::SYS_mmap || protection & libc::PROT_EXEC as u64 != 0 {
        return false;
    }
    // The id is that of the calling thread, which waits, so its table does not change.
    let Ok(about) = fs::metadata(format!("/proc/{}/fd/{}", call.pid, file as u32)) else { return false };
    named.covers((about.dev(), about.ino()), offset, bytes)
}

#[cfg(test)]
#[path = "named_pages_test.rs"]
mod tests;
