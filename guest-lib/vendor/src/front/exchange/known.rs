// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The latest calls of each thread that were posted, with their blocks: encoding the arguments of a small product takes as long
//! as sending them. A call with the same arguments, whose handle is in the same state, has the same block except for its scalars.

use std::cell::RefCell;

use cuda_library_rows::block::{SLOT, padded};
use smallvec::SmallVec;
use zerocopy::IntoBytes;

use super::{Exchange, Failure, Prepared};
use crate::encode::Slots;
use crate::handles::State;
use crate::proven::mix;

/// The calls that a thread keeps. A power of two: their place follows from bits of a hash. A large language model has hundreds of
/// different calls for each token.
const KEPT: usize = 256;

thread_local! {
    /// By their places.
    static CALLS: RefCell<Vec<Option<Box<Known>>>> = const { RefCell::new(Vec::new()) };
}

/// A call that was posted.
struct Known {
    /// The numbers of library and function.
    function: (u32, usize),
    given: SmallVec<[u64; 16]>,
    state: State,
    /// What is known of the handles.
    handles: u64,
    key: u64,
    stream: u64,
    block: Slots,
    scalars: SmallVec<[Scalar; 2]>,
}

/// A scalar in host memory that the library reads.
#[derive(Clone, Copy)]
struct Scalar {
    address: u64,
    /// Its size in bytes.
    bytes: usize,
    /// The position in the block, in bytes.
    place: usize,
}

/// Returns the place of a call.
fn place((_, function): (u32, usize), given: &[u64]) -> usize {
    let mixed = given.iter().fold(function as u64, |mixed, word| mixed.rotate_left(7) ^ word);
    (mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - KEPT.trailing_zeros())) as usize
}

impl Exchange<'_> {
    /// Posts the call if this thread has posted an equal one.
    pub(super) fn post_known(&self, state: State) -> Option<Result<(), Failure>> {
        let post = |calls: &RefCell<Vec<Option<Box<Known>>>>| {
            // In use if a signal's handler calls a library while this thread does.
            let mut calls = calls.try_borrow_mut().ok()?;
            let known = calls.get_mut(place(self.number(), self.given))?.as_mut()?;
            if (known.function, known.state) != (self.number(), state)
                || known.given[..] != *self.given
                || known.handles != self.handles_key()
            {
                return None;
            }
            let block = known.block.as_mut_bytes();
            for &Scalar { address, bytes, place } in &known.scalars {
                let room = &mut block[place..place + bytes];
                // SAFETY: the call has the arguments of an earlier one, and a handle in the same state. So the row says for it,
                // too, that the library reads that many bytes at the address (invariant of `Exchange`).
                unsafe { std::ptr::copy_nonoverlapping(address as *const u8, room.as_mut_ptr(), bytes) };
            }
            let words = |scalar: &Scalar| &known.block[scalar.place / SLOT..][..padded(scalar.bytes) / SLOT];
            let mixed = known.scalars.iter().flat_map(words).fold(0, |mixed, word| mix(mixed, *word));
            let work = self.work(known.key, mixed);
            Some(self.send(known.stream, work, known.block.as_bytes(), &mut []))
        };
        // The thread's variables are destroyed before those of the program may make their last calls.
        CALLS.try_with(post).ok().flatten()
    }

    /// Keeps a call that was posted.
    pub(super) fn keep(&self, prepared: &Prepared<'_>) {
        let known = Known {
            function: self.number(),
            given: self.given.into(),
            state: prepared.state,
            handles: prepared.handles,
            key: prepared.key,
            stream: self.stream(prepared),
            block: prepared.block.into(),
            scalars: self.scalars(prepared.block),
        };
        let _ = CALLS.try_with(|calls| {
            let Ok(mut calls) = calls.try_borrow_mut() else { return };
            if calls.is_empty() {
                calls.resize_with(KEPT, || None);
            }
            match &mut calls[place(self.number(), self.given)] {
                Some(place) => **place = known,
                place => *place = Some(Box::new(known)),
            }
        });
    }

    /// Returns the scalars whose contents are in the block of a plain call, which has no other contents.
    fn scalars(&self, block: &[u64]) -> SmallVec<[Scalar; 2]> {
        let mut place = self.given.len() * SLOT;
        let scalar = |&index: &usize| {
            // The size was known when the block was made.
            let bytes = self.call.memory_bytes(self.front.rows, index, block).unwrap_or(0);
            let scalar = Scalar { address: self.given_at(index), bytes, place };
            place += padded(bytes);
            (bytes > 0).then_some(scalar)
        };
        self.call.roles.reads.iter().filter_map(scalar).collect()
    }

    /// Returns the numbers of library and function.
    fn number(&self) -> (u32, usize) {
        (self.front.rows.number, self.function)
    }
}
