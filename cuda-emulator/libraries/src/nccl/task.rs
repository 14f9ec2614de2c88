// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Transfers through channels. [`Task::advance`] transfers as much as it can without waiting, and returns the rank that it waits
//! for. Each message begins with a [`Label`], by which the receiver notices that the other rank has called another function.

use super::channel::Links;
use super::element::{Kind, Operator, finish, fold, scale};
#[cfg(test)]
pub use super::tests::reaches;
use super::{INVALID_USAGE, Status};
#[cfg(not(test))]
pub use crate::stream::reaches;

/// Bytes that are reduced, or multiplied, at a time.
const BLOCK: usize = 1 << 15;
const LABEL_BYTES: usize = 16;

/// The purpose and the length of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label {
    /// The function, its type, operator and root ([`super::operation`]).
    pub what: u64,
    /// The number of bytes after the label.
    pub bytes: usize,
}

impl Label {
    fn to_bytes(self) -> [u8; LABEL_BYTES] {
        let mut bytes = [0; LABEL_BYTES];
        bytes[..8].copy_from_slice(&self.what.to_ne_bytes());
        bytes[8..].copy_from_slice(&(self.bytes as u64).to_ne_bytes());
        bytes
    }

    fn send(self, to: usize, links: &mut Links) -> Result<bool, Status> {
        if links.room(to)? < LABEL_BYTES {
            return Ok(false);
        }
        // SAFETY: the array is a local.
        unsafe { links.send(to, self.to_bytes().as_ptr(), LABEL_BYTES) };
        Ok(true)
    }

    /// Errors: the message is another one.
    fn receive(self, from: usize, links: &mut Links) -> Result<bool, Status> {
        if links.available(from)? < LABEL_BYTES {
            return Ok(false);
        }
        let mut bytes = [0; LABEL_BYTES];
        // SAFETY: the array is a local.
        unsafe { links.receive(from, bytes.as_mut_ptr(), LABEL_BYTES) };
        if bytes == self.to_bytes() { Ok(true) } else { Err(INVALID_USAGE) }
    }
}

/// A scalar by which elements are multiplied before anything else.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    /// The type of elements and scalar.
    pub kind: Kind,
    /// The scalar, in the first bytes.
    pub scalar: [u8; 8],
}

/// The result of one step of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advance {
    /// It has ended.
    Done,
    /// Some bytes were transferred.
    Moved,
    /// It waits for this rank.
    Waits(usize),
}

/// A transfer. Its addresses are device memory that was checked, as much as the transfer needs; that is the contract of
/// [`Task::advance`].
#[derive(Debug)]
pub enum Task {
    Copy { from: usize, to: usize, bytes: usize },
    Send(Send),
    Receive(Receive),
    Reduce(Reduce),
}

/// Sends memory to another rank.
#[derive(Debug)]
pub struct Send {
    pub to: usize,
    pub address: usize,
    pub label: Label,
    pub scale: Option<Scale>,
    /// The number of bytes that were sent after the label; `None` before the label was sent.
    pub sent: Option<usize>,
}

/// Receives memory from another rank.
#[derive(Debug)]
pub struct Receive {
    pub from: usize,
    pub address: usize,
    pub label: Label,
    /// The number of bytes that have arrived after the label; `None` before the label has arrived.
    pub received: Option<usize>,
}

/// Combines memory of all ranks. It takes the ranks in their order, so that rounding, too, is the same each time.
#[derive(Debug)]
pub struct Reduce {
    pub rank: usize,
    pub ranks: usize,
    pub kind: Kind,
    pub operator: Operator,
    pub scale: Option<Scale>,
    /// This rank's part.
    pub own: usize,
    pub result: usize,
    pub label: Label,
    pub state: Progress,
}

/// The part of a reduction that is done; nothing at first.
#[derive(Debug, Default)]
pub struct Progress {
    /// The ranks whose label has come, by bits.
    labels: u64,
    /// Bytes that are done.
    at: usize,
    /// The rank whose part of the current block is next.
    next: usize,
    block: Vec<u8>,
    /// Bytes of that part that have come.
    filled: usize,
    sums: Vec<u64>,
}

impl Reduce {
    /// # Safety
    ///
    /// As [`Task::advance`].
    unsafe fn advance(&mut self, links: &mut Links) -> Result<Advance, Status> {
        let state = &mut self.state;
        let mut moved = false;
        while state.at < self.label.bytes {
            let bytes = BLOCK.min(self.label.bytes - state.at);
            state.block.resize(bytes, 0);
            state.sums.resize(bytes / self.kind.bytes(), 0);
            if state.next == self.ranks {
                finish(self.kind, self.operator, &state.sums, self.ranks as u32, &mut state.block);
                // SAFETY: `Task::advance` demands that the result is there, `label.bytes` long; the block has `bytes` bytes.
                unsafe {
                    std::ptr::copy_nonoverlapping(
                        state.block.as_ptr(),
                        (self.result + state.at) as *mut u8,
                        bytes,
                    );
                }
                (state.at, state.next) = (state.at + bytes, 0);
                continue;
            }
            if state.next == self.rank {
                // SAFETY: `Task::advance` demands that the own part is there, `label.bytes` long; the block has `bytes` bytes.
                unsafe {
                    std::ptr::copy_nonoverlapping(
                        (self.own + state.at) as *const u8,
                        state.block.as_mut_ptr(),
                        bytes,
                    );
                }
                if let Some(by) = self.scale {
                    scale(by.kind, by.scalar, &mut state.block);
                }
            } else {
                let from = state.next;
                if state.labels & 1 << from == 0 {
                    if !self.label.receive(from, links)? {
                        return Ok(if moved { Advance::Moved } else { Advance::Waits(from) });
                    }
                    state.labels |= 1 << from;
                }
                let some = links.available(from)?.min(bytes - state.filled);
                // SAFETY: the block has `bytes` bytes, of which as many are left.
                unsafe { links.receive(from, state.block[state.filled..].as_mut_ptr(), some) };
                state.filled += some;
                if state.filled < bytes {
                    return Ok(if moved || some > 0 { Advance::Moved } else { Advance::Waits(from) });
                }
            }
            fold(self.kind, self.operator, &mut state.sums, &state.block, state.next == 0);
            (state.next, state.filled, moved) = (state.next + 1, 0, true);
        }
        Ok(Advance::Done)
    }
}

impl Send {
    /// # Safety
    ///
    /// As [`Task::advance`].
    unsafe fn advance(&mut self, links: &mut Links) -> Result<Advance, Status> {
        let Some(sent) = &mut self.sent else {
            let is_sent = self.label.send(self.to, links)?;
            self.sent = is_sent.then_some(0);
            return Ok(if is_sent { Advance::Moved } else { Advance::Waits(self.to) });
        };
        let left = self.label.bytes - *sent;
        let mut some = links.room(self.to)?.min(left);
        let source = (self.address + *sent) as *const u8;
        match self.scale {
            // SAFETY: `Task::advance` demands memory of `label.bytes` bytes, of which `some` are left.
            None => unsafe { links.send(self.to, source, some) },
            Some(by) => {
                let mut block = [0; BLOCK];
                // Only whole elements can be multiplied.
                some = some.min(BLOCK) / by.kind.bytes() * by.kind.bytes();
                // SAFETY: `Task::advance` demands memory of `label.bytes` bytes, of which `some` are left and fit into
                // a block.
                unsafe { std::ptr::copy_nonoverlapping(source, block.as_mut_ptr(), some) };
                scale(by.kind, by.scalar, &mut block[..some]);
                // SAFETY: the block is a local.
                unsafe { links.send(self.to, block.as_ptr(), some) };
            }
        }
        *sent += some;
        Ok(match (left - some, some) {
            (0, _) => Advance::Done,
            (_, 0) => Advance::Waits(self.to),
            _ => Advance::Moved,
        })
    }
}

impl Receive {
    /// # Safety
    ///
    /// As [`Task::advance`].
    unsafe fn advance(&mut self, links: &mut Links) -> Result<Advance, Status> {
        let Some(received) = &mut self.received else {
            let has_come = self.label.receive(self.from, links)?;
            self.received = has_come.then_some(0);
            return Ok(if has_come { Advance::Moved } else { Advance::Waits(self.from) });
        };
        let left = self.label.bytes - *received;
        let some = links.available(self.from)?.min(left);
        // SAFETY: `Task::advance` demands memory of `label.bytes` bytes, of which `some` are left.
        unsafe { links.receive(self.from, (self.address + *received) as *mut u8, some) };
        *received += some;
        Ok(match (left - some, some) {
            (0, _) => Advance::Done,
            (_, 0) => Advance::Waits(self.from),
            _ => Advance::Moved,
        })
    }
}

impl Task {
    /// The ranks to whose channels it writes, and those whose it reads, by bits. Tasks that share a channel run one after the
    /// other.
    pub fn channels(&self) -> (u64, u64) {
        match self {
            Self::Copy { .. } => (0, 0),
            Self::Send(send) => (1 << send.to, 0),
            Self::Receive(receive) => (0, 1 << receive.from),
            Self::Reduce(_) => (0, u64::MAX),
        }
    }

    /// Returns whether its memory exists.
    pub fn is_there(&self) -> bool {
        let (reads, writes, bytes) = match self {
            Self::Copy { from, to, bytes } => (Some(*from), Some(*to), *bytes),
            Self::Send(send) => (Some(send.address), None, send.label.bytes),
            Self::Receive(receive) => (None, Some(receive.address), receive.label.bytes),
            Self::Reduce(reduce) => (Some(reduce.own), Some(reduce.result), reduce.label.bytes),
        };
        bytes == 0 || [reads, writes].into_iter().flatten().all(|address| reaches(address, bytes))
    }

    /// Continues the transfer as far as possible.
    ///
    /// Errors: another rank has called something else, or has written nonsense.
    ///
    /// # Safety
    ///
    /// The task's memory must exist, with the length in its label.
    pub unsafe fn advance(&mut self, links: &mut Links) -> Result<Advance, Status> {
        match self {
            Self::Copy { from, to, bytes } => {
                // SAFETY: `# Safety` promises that both are there, `bytes` long; they may overlap, or be the same.
                unsafe { std::ptr::copy(*from as *const u8, *to as *mut u8, *bytes) };
                Ok(Advance::Done)
            }
            // SAFETY: `# Safety` promises that the memory is there, as long as the label says.
            Self::Send(send) => unsafe { send.advance(links) },
            // SAFETY: `# Safety` promises that the memory is there, as long as the label says.
            Self::Receive(receive) => unsafe { receive.advance(links) },
            // SAFETY: `# Safety` promises that the memory is there, as long as the label says.
            Self::Reduce(reduce) => unsafe { reduce.advance(links) },
        }
    }
}
