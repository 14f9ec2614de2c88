// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Calls of NVIDIA's libraries: blocks of arguments, their lengths, handles and arrays in host memory.
//!
//! An input is the number of a library, followed by calls until it ends. One function stands for all functions of the
//! library. It reads and writes every byte of host memory that the function's row describes.

use std::cell::RefCell;
use std::ffi::{CStr, c_void};

use cuda_library_rows::block::{PRESENT, SLOT, described, padded};
use cuda_library_rows::{
    Answer, Asked, Body, COUNT, Call, Direction, Kind, Library, Measure, Scratch, ScratchBytes, library_of,
};
use vhost_cuda_choices::Choices;
use vhost_cuda_common::link::{Frame, ToWorker};
use virtio_cuda_protocol::cuda::{CALL_IN_INLINE, CALL_OUT_INLINE, CallHeader, FIRST_HANDLE, Opcode};
use virtio_cuda_protocol::transport::REPLY_OK;
use zerocopy::IntoBytes;

use super::super::call::ThreadState;
use super::super::gpu::null;
use super::super::serve::execute::execute;
use super::device_address;
use super::session::FuzzSession;

const MAX_CALLS: usize = 32;
/// The maximum length of a generated array, in bytes.
const MAX_ARRAY: usize = 2048;
const INTEGERS: usize = 40;
const REGISTERS: usize = 6;
/// Bytes whose address a library returns.
static TABLE: [u8; 10 << 20] = [0; 10 << 20];

/// The state of the function that is called.
struct Current {
    rows: &'static Library,
    call: &'static Call,
    slots: Vec<u64>,
    status: i32,
    handles: u64,
}

thread_local! {
    static CURRENT: RefCell<Option<Current>> = const { RefCell::new(None) };
}

/// Creates and changes descriptors, and destroys handles.
extern "C" fn plain(_: f64, _: f64, _: f64, _: f64, _: f64, _: f64, _: f64, _: f64) -> u64 {
    0
}

/// Defines a function of as many parameters as a library's can have.
macro_rules! library_function {
    ($($name:ident)*) => {
        /// Stands for any function of a library. Functions with fewer parameters are called like this one, which does
        /// not use the others.
        #[allow(clippy::too_many_arguments)]
        unsafe extern "C" fn function(
            _: f64, _: f64, _: f64, _: f64, _: f64, _: f64, _: f64, _: f64, $($name: u64),*
        ) -> u64 {
            CURRENT.with_borrow_mut(|current| {
                // SAFETY: the caller vouches for the arguments.
                current.as_mut().map_or(0, |current| unsafe { current.answer(&[$($name),*]) })
            })
        }
    };
}
library_function!(a0 a1 a2 a3 a4 a5 a6 a7 a8 a9 b0 b1 b2 b3 b4 b5 b6 b7 b8 b9 c0 c1 c2 c3 c4 c5 c6 c7 c8 c9 d0 d1 d2 d3 d4
    d5 d6 d7 d8 d9);

impl Current {
    /// # Safety
    ///
    /// The arguments must be those of the row.
    unsafe fn answer(&mut self, integers: &[u64; INTEGERS]) -> u64 {
        let (mut in_registers, mut on_stack) = (0, REGISTERS);
        let mut next = |words: usize| {
            let place =
                if words == 1 && in_registers < REGISTERS { &mut in_registers } else { &mut on_stack };
            let at = *place;
            *place += words;
            at
        };
        for (index, parameter) in self.call.parameters.iter().enumerate() {
            let bytes = self.call.memory_bytes(self.rows, index, &self.slots).expect("it was checked");
            let argument = match &parameter.kind {
                Kind::Noted(_) | Kind::Measured(_) => continue,
                Kind::Value(number) if number.is_float() => continue,
                Kind::Structure(_) => {
                    next(bytes / SLOT);
                    continue;
                }
                _ => integers[next(1)],
            };
            if argument == 0 {
                continue;
            }
            // SAFETY: `# Safety` promises the arguments that the row says; this one belongs to `parameter`.
            unsafe { self.use_memory(index, &parameter.kind, argument, bytes) };
        }
        if self.call.answer == Answer::Text { c"text".as_ptr() as u64 } else { self.status as u64 }
    }

    /// # Safety
    ///
    /// `argument` must be as the row describes the parameter.
    unsafe fn use_memory(&mut self, index: usize, kind: &Kind, argument: u64, bytes: usize) {
        // SAFETY: `# Safety` promises what the row says of the parameter: memory of `bytes` bytes, or what its kind has there.
        unsafe {
            match kind {
                Kind::New(kind) if self.rows.handles[*kind].structure > 0 => {
                    write(argument, self.rows.handles[*kind].structure);
                }
                Kind::New(_) => {
                    self.handles += 16;
                    (argument as *mut u64).write_unaligned(0x5000 + self.handles);
                }
                Kind::Table(_) if bytes > TABLE.len() => panic!("a longer table than those of today"),
                Kind::Table(_) => (argument as *mut *const u8).write_unaligned(TABLE.as_ptr()),
                Kind::Text => assert!(CStr::from_ptr(argument as *const _).to_bytes().len() <= bytes),
                Kind::Described { kind, .. } => read(argument, self.rows.descriptors[*kind].public_bytes),
                Kind::InStream => read(argument, SLOT),
                // The number of elements is the value of an `out` number: more than there are.
                Kind::Allocated { .. } => {
                    (argument as *mut *mut c_void).write_unaligned(libc::calloc(1, bytes))
                }
                Kind::Arrays { arrays, .. } => {
                    let arrays = self.call.count(arrays, &self.slots).expect("it was checked");
                    for index in 0..arrays {
                        read((argument as *const u64).add(index).read_unaligned(), bytes / arrays);
                    }
                }
                Kind::Scratch(_) => {
                    let bytes = self.call.scratch_bytes(index, &self.slots).expect("it was checked");
                    write(argument, bytes.min(64 << 10));
                    write(argument + bytes as u64 - u64::from(bytes > 0), usize::from(bytes > 0));
                }
                _ if self.slots[index] == PRESENT => {
                    let direction = self.call.direction(index);
                    if direction.is_some_and(Direction::reads) {
                        read(argument, bytes);
                    }
                    if direction.is_some_and(Direction::writes) {
                        write(argument, bytes);
                    }
                }
                _ => {}
            }
        }
    }
}

/// # Safety
///
/// The bytes may be read.
unsafe fn read(at: u64, bytes: usize) {
    // SAFETY: `# Safety` promises that the bytes may be read.
    let all = unsafe { std::slice::from_raw_parts(at as *const u8, bytes) };
    std::hint::black_box(all.iter().fold(0_u8, |sum, byte| sum ^ byte));
}

/// # Safety
///
/// The bytes may be written.
unsafe fn write(at: u64, bytes: usize) {
    // SAFETY: `# Safety` promises that the bytes may be written.
    unsafe { std::ptr::write_bytes(at as *mut u8, 0x5a, bytes) };
}

/// Runs an input (see the module's documentation).
pub fn run(data: &[u8]) {
    let mut choices = Choices::of(data);
    let number = choices.below(COUNT);
    let rows = library_of(number).expect("below their number");
    let session = FuzzSession::with(false, true, |vendor| {
        let makes = |name: &str| {
            rows.functions.iter().any(|function| {
                let makes = match &function.body {
                    Body::Forward(call) => call.facts.makes,
                    Body::Custom | Body::Refuse(_) => true,
                };
                makes && function.name == name
            })
        };
        // These are called to query the length of another call's memory, which no row here needs.
        let forwarded = rows.functions.iter().filter_map(|function| match &function.body {
            Body::Forward(call) => Some(call.parameters),
            Body::Custom | Body::Refuse(_) => None,
        });
        let asked = forwarded.flatten().filter_map(|parameter| match &parameter.kind {
            Kind::Scratch(Scratch {
                bytes: ScratchBytes::Asked(asked) | ScratchBytes::Checked(_, asked),
                ..
            })
            | Kind::Measured(Measure::Asked(Asked { function: asked, .. })) => {
                Some(rows.functions[*asked].name)
            }
            _ => None,
        });
        let asked: Vec<&str> = asked.collect();
        // The last one is also called for the result of a search.
        let is_plain = |name: &str| {
            rows.descriptors.iter().any(|kind| kind.init == name || kind.set == name)
                || makes(name)
                || asked.contains(&name)
                || name == "cusparseLtMatmulAlgGetAttribute"
        };
        vendor.open_fake(number, |name| match name {
            Some(name) if !is_plain(name) => function as *const () as usize,
            _ => plain as *const () as usize,
        });
    });
    let mut thread = ThreadState::default();
    let mut handles = 0;
    for _ in 0..MAX_CALLS {
        if !choices.more() {
            break;
        }
        handles = call(&session, &mut thread, number, rows, handles, &mut choices);
    }
    thread.held.release();
}

/// Makes one call. Returns the number of handles that the library has given out.
fn call(
    session: &FuzzSession,
    thread: &mut ThreadState,
    number: usize,
    rows: &'static Library,
    handles: u64,
    choices: &mut Choices<'_>,
) -> u64 {
    let function = choices.below(rows.functions.len() + 1);
    let how = choices.byte();
    let mut block = Vec::new();
    if let Some(Body::Forward(call)) = rows.functions.get(function).map(|function| &function.body) {
        let slots = slots(rows, call, choices, &mut block);
        let status = if how & 0xf0 == 0xf0 { i32::from(how & 15) } else { rows.statuses.success };
        CURRENT.set(Some(Current { rows, call, slots, status, handles }));
    }
    match how & 0x0f {
        0 => block.truncate(choices.below(block.len() + 1)),
        1 => block.extend_from_slice(choices.bytes(9)),
        _ => {}
    }
    let on_wire = rows.functions.get(function).map_or(u32::MAX, |function| function.number);
    let args = [(number as u32).to_le_bytes(), on_wire.to_le_bytes()].concat();
    let header = CallHeader {
        opcode: Opcode::vendor_call as u32,
        thread: 1,
        args_bytes: args.len() as u32,
        flags: CALL_IN_INLINE | CALL_OUT_INLINE,
        bulk_in_bytes: block.len() as u64,
        bulk_out_bytes: if how & 0x20 == 0 { 0x4000 } else { 0 },
        ..CallHeader::default()
    };
    let payload = [header.as_bytes(), &args, &block].concat();
    let to_worker = ToWorker { reply_room: 0x8000, ..ToWorker::default() };
    null::script(0, 0, 0);
    let (status, _) = execute(session.state, thread, &mut Frame::of_payload(to_worker, payload));
    assert_eq!(status, REPLY_OK);
    CURRENT.take().map_or(handles, |current| current.handles)
}

/// Makes a descriptor and its parts.
fn make(rows: &Library, kind: usize, choices: &mut Choices<'_>, contents: &mut [u8]) {
    let descriptor = &rows.descriptors[kind];
    let given = descriptor.attributes.iter().filter(|attribute| attribute.is_given);
    let given: Vec<u64> = given.map(|_| choices.number()).collect();
    descriptor.make(&given, contents);
    for index in 0..descriptor.parts.len() {
        let part = descriptor.part(rows.descriptors, index);
        make(rows, descriptor.parts[index].kind, choices, &mut contents[part]);
    }
}

/// Generates slots for all parameters. `block` then has them before the data that the library reads.
fn slots(rows: &Library, call: &Call, choices: &mut Choices<'_>, block: &mut Vec<u8>) -> Vec<u64> {
    let mut descriptors = Vec::new();
    let slot = |kind: &Kind, choices: &mut Choices<'_>, descriptors: &mut Vec<Vec<u8>>| match kind {
        Kind::Value(_) => choices.number(),
        Kind::Stream | Kind::InStream => u64::from(choices.byte() & 3),
        Kind::Pointer => device_address(choices),
        Kind::Handle { .. } | Kind::New(_) | Kind::End(_) | Kind::Graph => match choices.byte() {
            name @ 0..=0xdf => FIRST_HANDLE + u64::from(name & 3),
            _ => choices.name(),
        },
        Kind::Text => u64::from(choices.byte() & 15),
        Kind::Noted(_) => choices.number(),
        // A library that writes nothing answers 0.
        Kind::Measured(_) => choices.number() & u64::from(choices.byte() & 1),
        Kind::Described { kind, .. } => {
            let descriptor = &rows.descriptors[*kind];
            let mut contents = vec![0; descriptor.crossing_bytes];
            if choices.byte() & 1 == 0 {
                make(rows, *kind, choices, &mut contents);
            }
            for _ in 0..choices.byte() & 3 {
                descriptor.set(choices.below(descriptor.attributes.len()), choices.number(), &mut contents);
            }
            let slot = described(rows, *kind, &contents);
            descriptors.push(contents);
            if choices.byte() & 7 == 7 { choices.number() } else { slot }
        }
        _ => match choices.byte() {
            0..=0xdf => PRESENT,
            0xe0..=0xef => 0,
            _ => device_address(choices),
        },
    };
    let slots: Vec<u64> =
        call.parameters.iter().map(|parameter| slot(&parameter.kind, choices, &mut descriptors)).collect();
    block.extend(slots.iter().flat_map(|slot| slot.to_le_bytes()));
    let mut descriptors = descriptors.into_iter();
    for (index, parameter) in call.parameters.iter().enumerate() {
        if !call.direction(index).is_some_and(Direction::reads) {
            continue;
        }
        let described =
            matches!(parameter.kind, Kind::Described { .. }).then(|| descriptors.next()).flatten();
        let Ok(bytes) = call.memory_bytes(rows, index, &slots) else { break };
        if bytes > MAX_ARRAY {
            break;
        }
        let start = block.len();
        match described {
            Some(contents) if bytes > 0 => block.extend_from_slice(&contents),
            Some(_) => {}
            None if choices.byte() & 1 == 0 => block.extend_from_slice(choices.bytes(bytes)),
            None => block.extend((0..bytes / SLOT).flat_map(|_| choices.name().to_le_bytes())),
        }
        block.resize(start + padded(bytes), 0);
    }
    slots
}
