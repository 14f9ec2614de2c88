// SPDX-License-Identifier: Apache-2.0 OR MIT

//! A library as programs see it: opened at the first call, then one call after the other.

use std::cell::RefCell;
use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;

use cuda_library_rows::block::{BadSize, MAX_TEXT, SLOT};
use cuda_library_rows::{Answer, Body, Call, Kind, Library, library};
use parking_lot::Mutex;

use crate::answers::{Answers, text};
use crate::bridge;
use crate::encode::Arguments;
use crate::handles::{Handles, Mint};
use crate::proven::{Key, Proven};

/// Bytes of blocks that a thread keeps between calls.
const MAX_KEPT_BYTES: usize = 64 << 10;

/// A library of NVIDIA's.
#[derive(Debug)]
pub struct Front {
    name: &'static str,
    opened: OnceLock<Option<Opened>>,
    handles: Handles,
    mint: Mint,
    proven: Proven,
    answers: Answers,
    refused: Mutex<Option<HashSet<usize>>>,
}

/// A library that the worker has loaded.
#[derive(Debug)]
struct Opened {
    number: u32,
    library: &'static Library,
}

/// Why a call has no answer of the library.
#[derive(Clone, Copy, Debug)]
enum Failure {
    /// An argument.
    BadSize,
    /// A `CUresult`.
    Cuda(i32),
    /// This library's own mistake.
    Internal,
}

impl From<BadSize> for Failure {
    fn from(_: BadSize) -> Self {
        Self::BadSize
    }
}

thread_local! {
    /// Blocks of the thread's calls.
    static BLOCKS: RefCell<(Vec<u8>, Vec<u8>)> = const { RefCell::new((Vec::new(), Vec::new())) };
}

impl Front {
    /// The library of that name; nothing is opened yet.
    pub const fn new(name: &'static str) -> Self {
        Self {
            name,
            opened: OnceLock::new(),
            handles: Handles::new(),
            mint: Mint::new(),
            proven: Proven::new(),
            answers: Answers::new(),
            refused: Mutex::new(None),
        }
    }

    /// See [`crate::forward`].
    ///
    /// # Safety
    ///
    /// See there.
    pub unsafe fn forward(&'static self, function: usize, slots: &[u64]) -> u64 {
        let Some((_, rows)) = library(self.name) else { return 0 };
        let Body::Forward(call) = &rows.functions[function].body else { return 0 };
        let Some(opened) = self.opened.get_or_init(|| self.open()) else {
            return failed(call, rows.statuses.not_initialized);
        };
        let exchange = || {
            // SAFETY: the caller's promise.
            unsafe { self.exchange(opened, function, call, slots) }
        };
        match catch_unwind(AssertUnwindSafe(exchange)).unwrap_or(Err(Failure::Internal)) {
            Ok(value) => value,
            Err(Failure::BadSize) => failed(call, rows.statuses.invalid_value),
            Err(Failure::Cuda(bridge::OUT_OF_MEMORY)) => failed(call, rows.statuses.alloc_failed),
            Err(Failure::Cuda(bridge::NOT_FOUND)) => failed(call, rows.statuses.not_supported),
            Err(Failure::Cuda(_) | Failure::Internal) => failed(call, rows.statuses.internal_error),
        }
    }

    /// See [`crate::refuse`]. The first refusal of each function is told on stderr.
    pub fn refuse(&'static self, function: usize) -> i32 {
        let Some((_, rows)) = library(self.name) else { return 1 };
        let reason = match &rows.functions[function].body {
            Body::Refuse(reason) => reason,
            _ => "nobody has written it yet",
        };
        if self.refused.lock().get_or_insert_default().insert(function) {
            eprintln!("vhost-cuda: {} is not supported: {reason}.", rows.functions[function].name);
        }
        rows.statuses.not_supported
    }

    /// The number of a function.
    pub fn index(&self, name: &str) -> Option<usize> {
        library(self.name)?.1.functions.iter().position(|function| function.name == name)
    }

    fn open(&self) -> Option<Opened> {
        let (number, rows) = library(self.name)?;
        match bridge::open(number, major(&rows.sonames[0]), rows.digest) {
            Ok(()) => Some(Opened { number, library: rows }),
            Err(bridge::NOT_FOUND) => {
                eprintln!(
                    "vhost-cuda: the host has no {}. Its operator can install it, or name its folder with \
                     `vhost-user-cuda --libraries DIR`.",
                    rows.sonames[0]
                );
                None
            }
            Err(error) => {
                eprintln!("vhost-cuda: {} cannot be used: CUDA error {error}.", rows.sonames[0]);
                None
            }
        }
    }

    /// # Safety
    ///
    /// As for [`Self::forward`].
    unsafe fn exchange(
        &self,
        opened: &Opened,
        function: usize,
        call: &'static Call,
        given: &[u64],
    ) -> Result<u64, Failure> {
        let handle = handle_of(call, given);
        let state = self.handles.state(handle);
        let success = u64::from(opened.library.statuses.success as u32);
        if let Some(place) = out_stream(call, given) {
            // SAFETY: the caller promises a place for a stream; null is not written to.
            unsafe { (place as *mut u64).as_mut() }
                .map(|place| *place = state.stream)
                .ok_or(Failure::BadSize)?;
            return Ok(success);
        }
        let mut made = Vec::new();
        let arguments = Arguments { number: opened.number, library: opened.library, call, given };
        for (parameter, &place) in call.parameters.iter().zip(given) {
            if let Kind::New(kind) = parameter.kind {
                let is_int = opened.library.handles[kind].is_int;
                made.push(Made { place, is_int, handle: self.mint.next(opened.number, is_int) });
            }
        }
        // A function makes one handle at most.
        // SAFETY: the caller's promise.
        let slots =
            unsafe { arguments.slots(state.device_scalars, |_| made.first().map_or(0, |made| made.handle)) };
        let answer_bytes = call.answer_bytes(opened.library, &slots)?;
        let (mut block, mut answers) = take_blocks();
        let mut key = Key::new(function, call, &slots);
        // SAFETY: the caller's promise; the slots were made of these arguments.
        unsafe { arguments.write(&slots, &mut block, &mut key) }?;
        let key = key.get();
        let kept = if call.facts.pure { self.answers.get(key, handle) } else { None };
        let waits = call.answers() || answer_bytes > SLOT || !self.proven.contains(key);
        answers.clear();
        if let Some(kept) = &kept {
            answers.extend_from_slice(kept);
        } else {
            let room = match (waits, call.answer) {
                (false, _) => 0,
                (true, Answer::Text) => answer_bytes + MAX_TEXT,
                (true, _) => answer_bytes,
            };
            answers.resize(room, 0);
            bridge::call(&bridge::Arguments {
                library: opened.number,
                function: function as u32,
                stream: stream_of(call, given).unwrap_or(state.stream),
                input: block.as_ptr(),
                input_bytes: block.len(),
                output: answers.as_mut_ptr(),
                output_bytes: answers.len(),
            })
            .map_err(Failure::Cuda)?;
        }
        let value = if waits { slot(&answers)? } else { success };
        let succeeded = call.answer != Answer::Status || value as u32 == success as u32;
        if waits && answers.len() >= answer_bytes {
            // SAFETY: the caller's promise.
            unsafe { arguments.read(&slots, &answers, succeeded) }?;
        }
        if waits && succeeded {
            self.proven.add(key);
            if call.facts.pure && kept.is_none() {
                self.answers.keep(key, handle, &answers);
            }
        }
        if succeeded {
            // SAFETY: the caller promises a place for each handle.
            made.iter().for_each(|made| unsafe { made.write() });
            self.note(call, given, handle);
        }
        let value = match call.answer {
            Answer::Text => text_of(value, &answers)?,
            _ => value,
        };
        // What one large call needed is not kept.
        block.shrink_to(MAX_KEPT_BYTES);
        answers.shrink_to(MAX_KEPT_BYTES);
        put_back_blocks(block, answers);
        Ok(value)
    }

    /// Notes what a call that has succeeded did to handles.
    fn note(&self, call: &Call, given: &[u64], handle: u64) {
        for (parameter, &handle) in call.parameters.iter().zip(given) {
            if let Kind::End(_) = parameter.kind {
                self.handles.forget(handle);
            }
        }
        let second = given.get(1).copied().unwrap_or(0);
        if call.facts.pointer_mode {
            self.handles.change(handle, |state| state.device_scalars = second as u32 != 0);
        }
        if call.facts.stream_of {
            self.handles.change(handle, |state| state.stream = second);
        }
    }
}

/// The thread's blocks. Programs call also while the thread ends, when there are none any more.
fn take_blocks() -> (Vec<u8>, Vec<u8>) {
    BLOCKS.try_with(|blocks| std::mem::take(&mut *blocks.borrow_mut())).unwrap_or_default()
}

fn put_back_blocks(block: Vec<u8>, answers: Vec<u8>) {
    let _ = BLOCKS.try_with(|blocks| *blocks.borrow_mut() = (block, answers));
}

/// A handle that a call makes.
struct Made {
    /// Where the program wants it.
    place: u64,
    is_int: bool,
    handle: u64,
}

impl Made {
    /// # Safety
    ///
    /// `place` is null or has room for a handle.
    unsafe fn write(&self) {
        if self.place == 0 {
            return;
        }
        // SAFETY: the caller's promise.
        unsafe {
            if self.is_int {
                (self.place as *mut u32).write(self.handle as u32);
            } else {
                (self.place as *mut u64).write(self.handle);
            }
        }
    }
}

/// The bits of the first slot of answers.
fn slot(answers: &[u8]) -> Result<u64, Failure> {
    answers.first_chunk::<SLOT>().map(|bytes| u64::from_le_bytes(*bytes)).ok_or(Failure::BadSize)
}

/// The address of a text that the library returned; `length` is 1 more than that of the text, or 0 for null.
fn text_of(length: u64, answers: &[u8]) -> Result<u64, Failure> {
    let Some(bytes) = length.checked_sub(1) else { return Ok(0) };
    let found = answers.get(SLOT..).and_then(|rest| rest.get(..usize::try_from(bytes).ok()?));
    Ok(text(found.ok_or(Failure::BadSize)?).as_ptr() as u64)
}

/// What a function returns that has not reached the library.
fn failed(call: &Call, status: i32) -> u64 {
    match call.answer {
        Answer::Status => u64::from(status as u32),
        Answer::Text => text(b"not available: the host's library was not reached").as_ptr() as u64,
        Answer::Number(_) | Answer::Nothing => 0,
    }
}

/// The first handle among the arguments; 0 for none.
fn handle_of(call: &Call, slots: &[u64]) -> u64 {
    let first = call
        .parameters
        .iter()
        .position(|parameter| matches!(parameter.kind, Kind::Handle { .. } | Kind::End(_)));
    first.and_then(|index| slots.get(index)).copied().unwrap_or(0)
}

/// The stream among the arguments.
fn stream_of(call: &Call, slots: &[u64]) -> Option<u64> {
    let index = call.parameters.iter().position(|parameter| parameter.kind == Kind::Stream)?;
    slots.get(index).copied()
}

/// The place for the handle's stream among the arguments.
fn out_stream(call: &Call, slots: &[u64]) -> Option<u64> {
    let index = call.parameters.iter().position(|parameter| parameter.kind == Kind::OutStream)?;
    slots.get(index).copied()
}

/// The `13` of `libcublas.so.13`.
fn major(soname: &str) -> u32 {
    soname.rsplit('.').next().and_then(|number| number.parse().ok()).unwrap_or(0)
}
