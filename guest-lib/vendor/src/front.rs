// SPDX-License-Identifier: Apache-2.0 OR MIT

//! A library as programs see it: opened at the first call, then one call after the other.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;

use cuda_library_rows::block::{BadSize, MAX_TEXT, SLOT};
use cuda_library_rows::{Answer, Body, Call, Kind, Library, library};
use parking_lot::Mutex;

use crate::answers::{Answers, text};
use crate::bridge;
use crate::encode::{Arguments, Slots};
use crate::handles::{Handles, Mint, State, Step};
use crate::proven::{Key, Proven};

/// Bytes of blocks that a thread keeps between calls.
const MAX_KEPT_BYTES: usize = 64 << 10;

/// A library of NVIDIA's.
#[derive(Debug)]
pub struct Front {
    name: &'static str,
    rows: OnceLock<Option<(u32, &'static Library)>>,
    opened: OnceLock<Option<Opened>>,
    handles: Handles,
    mint: Mint,
    proven: Proven,
    answers: Answers,
    /// Addresses of the library's tables, by the key of the call.
    tables: Mutex<Option<HashMap<u64, u64>>>,
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
            rows: OnceLock::new(),
            opened: OnceLock::new(),
            handles: Handles::new(),
            mint: Mint::new(),
            proven: Proven::new(),
            answers: Answers::new(),
            tables: Mutex::new(None),
            refused: Mutex::new(None),
        }
    }

    /// See [`crate::forward`].
    ///
    /// # Safety
    ///
    /// See there.
    pub unsafe fn forward(&'static self, function: usize, slots: &[u64]) -> u64 {
        let Some((_, rows)) = self.rows() else { return 0 };
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
        let Some((_, rows)) = self.rows() else { return 1 };
        let reason = match &rows.functions[function].body {
            Body::Refuse(reason) => reason,
            _ => "nobody has written it yet",
        };
        if self.refused.lock().get_or_insert_default().insert(function) {
            eprintln!("vhost-cuda: {} is not supported: {reason}.", rows.functions[function].name);
        }
        rows.statuses.not_supported
    }

    /// What is known of a handle.
    pub fn state(&self, handle: u64) -> State {
        self.handles.state(handle)
    }

    /// The number of a function.
    pub fn index(&self, name: &str) -> Option<usize> {
        self.rows()?.1.functions.iter().position(|function| function.name == name)
    }

    /// The library's number and rows, looked up once.
    fn rows(&self) -> Option<(u32, &'static Library)> {
        *self.rows.get_or_init(|| library(self.name))
    }

    fn open(&self) -> Option<Opened> {
        let (number, rows) = self.rows()?;
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
        let others = given.get(1..).unwrap_or_default();
        let success = u64::from(opened.library.statuses.success as u32);
        if let Some(place) = out_stream(call, given) {
            // SAFETY: the caller promises a place for a stream; null is not written to.
            unsafe { (place as *mut u64).as_mut() }
                .map(|place| *place = self.handles.state(handle).stream)
                .ok_or(Failure::BadSize)?;
            return Ok(success);
        }
        let state = loop {
            match self.handles.step(function, &call.facts, handle, others) {
                Step::Cross(state) => break state,
                Step::Answer(value) => {
                    if let (Some(value), Some(&place)) = (value, others.first()) {
                        // SAFETY: the caller promises a place for an enum; null is not written to.
                        unsafe { (place as *mut u32).as_mut() }
                            .map(|place| *place = value as u32)
                            .ok_or(Failure::BadSize)?;
                    }
                    return Ok(success);
                }
                Step::First(first, values) => {
                    let Body::Forward(setter) = &opened.library.functions[first].body else {
                        return Err(Failure::Internal);
                    };
                    let given: Slots = std::iter::once(handle).chain(values).collect();
                    // SAFETY: a function that sets something takes numbers and device addresses, which the program gave before.
                    unsafe { self.exchange(opened, first, setter, &given) }?;
                }
            }
        };
        // A function makes one handle at most.
        let made = call.parameters.iter().zip(given).find_map(|(parameter, &place)| {
            let Kind::New(kind) = parameter.kind else { return None };
            let is_int = opened.library.handles[kind].is_int;
            Some(Made { place, is_int, handle: self.mint.next(opened.number, is_int) })
        });
        let arguments = Arguments { number: opened.number, library: opened.library, call, given };
        // SAFETY: the caller's promise.
        let slots =
            unsafe { arguments.slots(state.device_scalars, |_| made.as_ref().map_or(0, |made| made.handle)) };
        let answer_bytes = call.answer_bytes(opened.library, &slots)?;
        let (mut block, mut answers) = take_blocks();
        let mut key = Key::new(function, call, &slots);
        key.add_birth(state.birth);
        // SAFETY: the caller's promise; the slots were made of these arguments.
        unsafe { arguments.write(&slots, &mut block, &mut key) }?;
        let key = key.get();
        let kept = if call.facts.pure { self.answers.get(key, handle) } else { None };
        if let Some(place) = table_place(call, given)
            && let Some(table) = self.tables.lock().get_or_insert_default().get(&key)
        {
            // SAFETY: the caller promises a place for an address; null is not written to.
            unsafe { (place as *mut u64).as_mut() }.map(|place| *place = *table).ok_or(Failure::BadSize)?;
            put_back_blocks(block, answers);
            return Ok(success);
        }
        let in_doubt = call.facts.wait_unless.is_some_and(|birth| birth != state.birth);
        let waits = call.answers() || answer_bytes > SLOT || in_doubt || !self.proven.contains(key);
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
        let succeeded = call.answer != Answer::Status || opened.library.statuses.is_good(value as i32);
        if waits && answers.len() >= answer_bytes {
            // SAFETY: the caller's promise.
            unsafe { arguments.read(&slots, &answers, succeeded) }?;
        }
        if waits && succeeded {
            self.proven.add(key);
            if let Some(place) = table_place(call, given)
                // SAFETY: as above; the answers have filled it.
                && let Some(table) = unsafe { (place as *const u64).as_ref() }
            {
                self.tables.lock().get_or_insert_default().insert(key, *table);
            }
            if call.facts.pure && kept.is_none() {
                self.answers.keep(key, handle, &answers);
            }
        }
        if succeeded {
            if let Some(made) = &made {
                // SAFETY: the caller promises a place for each handle.
                unsafe { made.write() };
                let of_device = || match state.birth {
                    0 => bridge::current_device().map_or(0, |device| 1 + device as u64),
                    parent => parent,
                };
                let birth = call.facts.birth.and_then(|index| slots.get(index).copied());
                let birth = birth.or_else(|| call.facts.on_device.then(of_device));
                if let Some(birth) = birth {
                    self.handles.change(made.handle, |state| state.birth = birth);
                }
            }
            self.note(call, given, handle);
        }
        if call.facts.sets {
            self.handles.set(function, &call.facts, handle, others, succeeded);
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

/// The place for a table's address among the arguments.
fn table_place(call: &Call, slots: &[u64]) -> Option<u64> {
    let index = call.parameters.iter().position(|parameter| matches!(parameter.kind, Kind::Table(_)))?;
    slots.get(index).copied()
}

/// The `13` of `libcublas.so.13`.
fn major(soname: &str) -> u32 {
    soname.rsplit('.').next().and_then(|number| number.parse().ok()).unwrap_or(0)
}
