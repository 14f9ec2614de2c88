// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Parses a descriptor chain to a bounded request, and writes a reply into its writable part.
//!
//! All data that a guest driver can put into a queue is checked here: the result of [`parse`] satisfies the limits of
//! the device and lies in the guest's memory.

use std::ops::Range;

use vhost_cuda_common::link::{MAX_BULK_BYTES, MAX_ENTRIES, MAX_PAYLOAD_BYTES};
use virtio_cuda_protocol::transport::{
    FLAG_KEEP, FLAG_READ, Hello, MemEntry, OP_CALL, OP_CLOSE, OP_HELLO, OP_OPEN, OP_SHARE, OP_UNPIN, Open,
    PAGE_BYTES, ReplyHeader, RequestHeader,
};
use virtio_queue::desc::split::Descriptor;
use vm_memory::{Address, Bytes, GuestAddress, GuestMemoryBackend, GuestMemoryRegion};
use zerocopy::{FromZeros, IntoBytes};

use crate::guest::memory::Memory;

/// The maximum number of descriptors per chain, direct or indirect. A driver may not build a longer one (virtio 1.3,
/// 2.7.5.2: not longer than the queue). Bounds the cost of a hostile chain.
const MAX_DESCRIPTORS: usize = 1024;
/// The number of entries that are read from guest memory at once.
const ENTRIES_AT_ONCE: usize = 1024;

/// The reason for refusing a chain. The guest gets `REPLY_INVALID`; the text is for the debug log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The chain itself is invalid.
    #[error("The descriptor chain is too long, loops or leaves its table")]
    Chain,
    /// A descriptor has no bytes.
    #[error("A descriptor has length 0")]
    Empty,
    /// A readable descriptor after a writable one.
    #[error("A device-readable descriptor follows a device-writable one")]
    Order,
    /// A descriptor or entry lies outside of guest memory.
    #[error("An address is outside guest memory")]
    Address,
    /// Lengths are inconsistent, or exceed a limit.
    #[error("A length is wrong or above the device's limit")]
    Length,
    /// The operation is unknown, or has invalid flags and fields.
    #[error("The operation is unknown or its fields do not fit it")]
    Operation,
}

/// A checked request.
#[derive(Debug)]
pub struct Request {
    /// The header. `op` is known, and `flags` and `session` are valid for it.
    pub header: RequestHeader,
    /// The payload, at most [`MAX_PAYLOAD_BYTES`].
    pub payload: Vec<u8>,
    /// Memory that the device reads; neighbours are merged.
    pub in_entries: Vec<MemEntry>,
    /// Memory that the device writes or maps; neighbours are merged.
    pub out_entries: Vec<MemEntry>,
}

impl Request {
    /// Returns the bytes of host memory that the request occupies while it is outstanding.
    pub fn footprint(&self) -> usize {
        size_of::<Self>()
            + self.payload.len()
            + (self.in_entries.len() + self.out_entries.len()) * size_of::<MemEntry>()
    }
    /// Returns the bytes that go to the device, and the user bytes that it may write.
    pub fn traffic(&self) -> (u64, u64) {
        let sum = |entries: &[MemEntry]| entries.iter().map(|entry| u64::from(entry.bytes)).sum::<u64>();
        (self.payload.len() as u64 + sum(&self.in_entries), sum(&self.out_entries))
    }
}

/// A piece of guest memory of a descriptor.
#[derive(Clone, Copy, Debug)]
pub struct Piece {
    addr: GuestAddress,
    bytes: u32,
}

/// The device-writable part of a chain, checked to lie in guest memory.
#[derive(Clone, Debug, Default)]
pub struct ReplySlot {
    pieces: Vec<Piece>,
}

impl ReplySlot {
    /// Returns the bytes of host memory that the slot occupies.
    pub fn footprint(&self) -> usize {
        self.pieces.capacity() * size_of::<Piece>()
    }
    /// Returns the bytes of payload that fit.
    pub fn payload_room(&self) -> u32 {
        let total: u64 = self.pieces.iter().map(|piece| u64::from(piece.bytes)).sum();
        total.saturating_sub(size_of::<ReplyHeader>() as u64).min(u64::from(MAX_PAYLOAD_BYTES)) as u32
    }
    /// Writes a reply. Returns the bytes written: 0 if not even the header fits.
    pub fn write(&self, memory: &Memory, status: u32, payload: &[u8]) -> u32 {
        let total: u64 = self.pieces.iter().map(|piece| u64::from(piece.bytes)).sum();
        if total < (size_of::<ReplyHeader>() + payload.len()) as u64 {
            return 0;
        }
        let header = ReplyHeader { status, payload_bytes: payload.len() as u32 };
        let mut reply = Vec::with_capacity(size_of::<ReplyHeader>() + payload.len());
        reply.extend_from_slice(header.as_bytes());
        reply.extend_from_slice(payload);
        let mut rest = &reply[..];
        for piece in &self.pieces {
            let (now, later) = rest.split_at(rest.len().min(piece.bytes as usize));
            if memory.write_slice(now, piece.addr).is_err() {
                return 0;
            }
            rest = later;
        }
        reply.len() as u32
    }
}

/// Returns the descriptors of a chain that another backend has taken from a queue with this table: one too many if there are too many, and none behind
/// one that cannot be read.
pub fn descriptors(memory: &Memory, table: u64, size: u16, head: u16) -> Vec<Descriptor> {
    let (mut table, mut entries, mut index) = (GuestAddress(table), u32::from(size), u32::from(head));
    let mut is_indirect = false;
    let mut chain = Vec::new();
    while index < entries && chain.len() <= MAX_DESCRIPTORS {
        let place = table.checked_add(u64::from(index) * size_of::<Descriptor>() as u64);
        let Some(descriptor) = place.and_then(|at| memory.read_obj::<Descriptor>(at).ok()) else { break };
        if descriptor.refers_to_indirect_table() {
            if is_indirect {
                break;
            }
            is_indirect = true;
            (table, entries, index) =
                (descriptor.addr(), descriptor.len() / size_of::<Descriptor>() as u32, 0);
            continue;
        }
        chain.push(descriptor);
        if !descriptor.has_next() {
            break;
        }
        index = u32::from(descriptor.next());
    }
    chain
}

/// Checks a chain. The slot is usable in either case. It is empty if no reply can be written.
pub fn parse(
    memory: &Memory,
    chain: impl Iterator<Item = Descriptor>,
) -> (Result<Request, Malformed>, ReplySlot) {
    let mut readable = Vec::new();
    let mut slot = ReplySlot::default();
    let request = split(memory, chain, &mut readable, &mut slot.pieces)
        .and_then(|()| Cursor::new(memory, &readable).request());
    let room: u64 = slot.pieces.iter().map(|piece| u64::from(piece.bytes)).sum();
    if room < size_of::<ReplyHeader>() as u64 {
        slot.pieces.clear();
        return (request.and(Err(Malformed::Length)), slot);
    }
    (request, slot)
}

/// Sorts descriptors into the two parts. The writable pieces found so far are valid even after an error.
fn split(
    memory: &Memory,
    chain: impl Iterator<Item = Descriptor>,
    readable: &mut Vec<Piece>,
    writable: &mut Vec<Piece>,
) -> Result<(), Malformed> {
    let mut more = true;
    for (count, descriptor) in chain.enumerate() {
        if count >= MAX_DESCRIPTORS {
            return Err(Malformed::Chain);
        }
        let piece = Piece { addr: descriptor.addr(), bytes: descriptor.len() };
        if piece.bytes == 0 {
            return Err(Malformed::Empty);
        }
        if !memory.check_range(piece.addr, piece.bytes as usize) {
            return Err(Malformed::Address);
        }
        if descriptor.is_write_only() {
            writable.push(piece);
        } else if writable.is_empty() {
            readable.push(piece);
        } else {
            return Err(Malformed::Order);
        }
        more = descriptor.has_next();
    }
    // The iterator simply ends when a chain loops, leaves its table or nests indirect tables.
    if more { Err(Malformed::Chain) } else { Ok(()) }
}

/// Reads the device-readable part from front to back.
struct Cursor<'a> {
    memory: &'a Memory,
    pieces: &'a [Piece],
    offset: u32,
    left: u64,
}

impl<'a> Cursor<'a> {
    fn new(memory: &'a Memory, pieces: &'a [Piece]) -> Self {
        let left = pieces.iter().map(|piece| u64::from(piece.bytes)).sum();
        Self { memory, pieces, offset: 0, left }
    }

    fn read(&mut self, mut room: &mut [u8]) -> Result<(), Malformed> {
        while !room.is_empty() {
            let piece = self.pieces.first().ok_or(Malformed::Length)?;
            let bytes = room.len().min((piece.bytes - self.offset) as usize);
            let (now, later) = room.split_at_mut(bytes);
            let addr = piece.addr.0.checked_add(u64::from(self.offset)).ok_or(Malformed::Address)?;
            self.memory.read_slice(now, GuestAddress(addr)).map_err(|_| Malformed::Address)?;
            self.offset += bytes as u32;
            self.left -= bytes as u64;
            if self.offset == piece.bytes {
                self.pieces = &self.pieces[1..];
                self.offset = 0;
            }
            room = later;
        }
        Ok(())
    }

    fn request(mut self) -> Result<Request, Malformed> {
        let mut header = RequestHeader::new_zeroed();
        self.read(header.as_mut_bytes())?;
        check_header(&header)?;
        let entry_bytes = size_of::<MemEntry>() as u64;
        let entries = u64::from(header.in_entries) + u64::from(header.out_entries);
        if self.left != u64::from(header.payload_bytes) + entries * entry_bytes {
            return Err(Malformed::Length);
        }
        let mut payload = vec![0; header.payload_bytes as usize];
        self.read(&mut payload)?;
        let kept = header.op == OP_SHARE || header.flags & FLAG_KEEP != 0;
        let in_entries = self.entries(header.in_entries, false)?;
        let out_entries = self.entries(header.out_entries, kept)?;
        Ok(Request { header, payload, in_entries, out_entries })
    }

    /// Reads `count` entries and merges neighbours. With `kept` they will be mapped, and must be whole pages.
    fn entries(&mut self, count: u32, kept: bool) -> Result<Vec<MemEntry>, Malformed> {
        let mut merged: Vec<MemEntry> = Vec::new();
        let mut total = 0;
        let mut left = count as usize;
        let mut room = vec![MemEntry::default(); left.min(ENTRIES_AT_ONCE)];
        let mut region = 0..0;
        while left > 0 {
            let chunk = &mut room[..left.min(ENTRIES_AT_ONCE)];
            self.read(chunk.as_mut_bytes())?;
            left -= chunk.len();
            for &mut entry in chunk {
                self.check_entry(&entry, kept, &mut region)?;
                total += u64::from(entry.bytes);
                if total > MAX_BULK_BYTES {
                    return Err(Malformed::Length);
                }
                match merged.last_mut() {
                    // The sum stays below MAX_BULK_BYTES, so it fits.
                    Some(last) if last.addr + u64::from(last.bytes) == entry.addr => {
                        last.bytes += entry.bytes
                    }
                    _ => merged.push(entry),
                }
            }
        }
        Ok(merged)
    }

    /// `region` is the one that contained the last entry, which mostly contains the next one, too.
    fn check_entry(&self, entry: &MemEntry, kept: bool, region: &mut Range<u64>) -> Result<(), Malformed> {
        let bytes = u64::from(entry.bytes);
        if bytes == 0 || entry.reserved != 0 {
            return Err(Malformed::Length);
        }
        if kept && !(entry.addr.is_multiple_of(PAGE_BYTES) && bytes.is_multiple_of(PAGE_BYTES)) {
            return Err(Malformed::Length);
        }
        let end = entry.addr.checked_add(bytes).ok_or(Malformed::Address)?;
        if region.contains(&entry.addr) && end <= region.end {
            return Ok(());
        }
        if !self.memory.check_range(GuestAddress(entry.addr), entry.bytes as usize) {
            return Err(Malformed::Address);
        }
        if let Some(found) = self.memory.find_region(GuestAddress(entry.addr)) {
            *region = found.start_addr().0..found.last_addr().0;
        }
        Ok(())
    }
}

fn check_header(header: &RequestHeader) -> Result<(), Malformed> {
    if header.payload_bytes > MAX_PAYLOAD_BYTES
        || header.in_entries > MAX_ENTRIES
        || header.out_entries > MAX_ENTRIES
    {
        return Err(Malformed::Length);
    }
    let keep = header.flags & FLAG_KEEP != 0;
    let entries = (header.in_entries, header.out_entries);
    let fits = match header.op {
        OP_HELLO => header.payload_bytes as usize == size_of::<Hello>() && entries == (0, 0),
        OP_OPEN => header.payload_bytes as usize == size_of::<Open>() && entries == (0, 0),
        OP_CLOSE | OP_UNPIN => header.payload_bytes == 0 && entries == (0, 0),
        OP_CALL => true,
        OP_SHARE => header.payload_bytes == 0 && header.in_entries == 0 && header.out_entries > 0,
        _ => false,
    };
    let flags_known = header.flags & !(FLAG_KEEP | FLAG_READ) == 0 && (keep || header.flags == 0);
    let flags_fit = flags_known && (!keep || header.op == OP_CALL) && header.reserved == 0;
    let session_fits = (header.session == 0) == matches!(header.op, OP_HELLO | OP_OPEN);
    let tag_fits = header.tag == 0 || keep || matches!(header.op, OP_UNPIN | OP_SHARE);
    // A session of 0 in another operation is an unknown session, not a malformed request.
    let session_fits = session_fits || header.session == 0;
    if fits && flags_fit && session_fits && tag_fits { Ok(()) } else { Err(Malformed::Operation) }
}

#[cfg(test)]
#[path = "request_test.rs"]
mod tests;
