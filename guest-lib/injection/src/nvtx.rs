// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Ranges and marks of NVTX: those that a program pushes, pops and sets, and those that it starts and ends ([`started`]).
//!
//! NVTX is a header that programs are compiled with. At its first use it loads the library in `NVTX_INJECTION64_PATH`, which fills
//! the header's tables of functions (`nvtxDetail/nvtxTypes.h`).

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::mem::offset_of;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use vhost_cuda_profile::event::{Event, Kind};
use vhost_cuda_profile::names::{MAX_BYTES, clean};

use crate::{sink, started, time_of_day};

/// `NVTX_ETID_CALLBACKS`
const CALLBACKS: u32 = 1;
/// `NVTX_CB_MODULE_CORE` and `NVTX_CB_MODULE_CORE2`
const CORE: u32 = 1;
const CORE2: u32 = 5;
/// `nvtxMessageType_t`
const ASCII: i32 = 1;
const UNICODE: i32 = 2;
const REGISTERED: i32 = 3;
/// The maximum depth of ranges of a thread, and the maximum number of registered texts. Limit the program's memory.
const MAX_DEPTH: usize = 1 << 10;
const MAX_TEXTS: usize = 1 << 16;
/// The result of a function without effect (`NVTX_NO_PUSH_POP_TRACKING`).
const NO_RANGE: c_int = -2;

/// `NvtxFunctionTable`: places of functions by their numbers.
type Table = *mut *mut *const c_void;

/// `NvtxExportTableCallbacks`
#[repr(C)]
struct Callbacks {
    bytes: usize,
    table: unsafe extern "C" fn(module: u32, table: *mut Table, length: *mut c_uint) -> c_int,
}

/// `nvtxEventAttributes_v2`
#[repr(C)]
#[derive(Clone, Copy)]
struct Attributes {
    version: u16,
    size: u16,
    category: u32,
    color_type: i32,
    color: u32,
    payload_type: i32,
    reserved: i32,
    payload: u64,
    message_type: i32,
    message: *const c_void,
}

const _: () = assert!(size_of::<Attributes>() == 48 && offset_of!(Attributes, message) == 40);

/// A range that has begun.
#[derive(Debug)]
struct Open {
    domain: usize,
    name: String,
    begin: u64,
}

thread_local! {
    static OPEN: RefCell<Vec<Open>> = const { RefCell::new(Vec::new()) };
    static THREAD: Cell<u32> = const { Cell::new(0) };
}

/// Registered texts by their handles, which are numbers. Domains are numbers, too.
static TEXTS: Mutex<Option<HashMap<usize, String>>> = Mutex::new(None);
static NEXT: AtomicUsize = AtomicUsize::new(1);

/// Takes NVTX's calls. Returns 1, or 0 if there is nobody to send to.
///
/// # Safety
///
/// NVTX calls it, with its own function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn InitializeInjectionNvtx2(
    export: Option<unsafe extern "C" fn(u32) -> *const c_void>,
) -> c_int {
    let (Some(export), Some(_)) = (export, sink::get()) else { return 0 };
    // SAFETY: NVTX's function, which returns NULL or a table that stays.
    let Some(callbacks) = (unsafe { export(CALLBACKS).cast::<Callbacks>().as_ref() }) else { return 0 };
    if callbacks.bytes < size_of::<Callbacks>() {
        return 0;
    }
    let core: [(usize, *const c_void); 11] = [
        (1, mark_ex as *const c_void),
        (2, mark_a as *const c_void),
        (3, mark_w as *const c_void),
        (4, start_ex as *const c_void),
        (5, start_a as *const c_void),
        (6, start_w as *const c_void),
        (7, range_end as *const c_void),
        (8, push_ex as *const c_void),
        (9, push_a as *const c_void),
        (10, push_w as *const c_void),
        (11, pop as *const c_void),
    ];
    let core2: [(usize, *const c_void); 9] = [
        (1, domain_mark_ex as *const c_void),
        (2, domain_start_ex as *const c_void),
        (3, domain_range_end as *const c_void),
        (4, domain_push_ex as *const c_void),
        (5, domain_pop as *const c_void),
        (10, register_a as *const c_void),
        (11, register_w as *const c_void),
        (12, create_domain as *const c_void),
        (13, create_domain as *const c_void),
    ];
    for (module, functions) in [(CORE, &core[..]), (CORE2, &core2[..])] {
        let (mut table, mut length) = (std::ptr::null_mut(), 0);
        // SAFETY: NVTX's function; both places are locals.
        if unsafe { (callbacks.table)(module, &raw mut table, &raw mut length) } == 0 || table.is_null() {
            return 0;
        }
        for &(number, function) in
            functions.iter().filter(|(number, _)| (1..length as usize).contains(number))
        {
            // SAFETY: the table has `length` places, each NULL or the place of a function with this number's prototype.
            unsafe {
                let place = *table.add(number);
                if !place.is_null() {
                    *place = function;
                }
            }
        }
    }
    1
}

fn thread() -> u32 {
    if THREAD.get() == 0 {
        // SAFETY: gettid has no preconditions.
        THREAD.set(unsafe { libc::gettid() }.cast_unsigned());
    }
    THREAD.get()
}

fn send(name: &str, time: [u64; 2]) {
    if let Some(sink) = sink::get() {
        sink.send(Event::new(Kind::Range, name, thread(), time));
    }
}

/// Begins a range. Returns its level.
fn begin(domain: usize, name: String) -> c_int {
    // The thread's own data may have ended.
    let level = OPEN.try_with(|open| {
        let mut open = open.try_borrow_mut().ok()?;
        if open.len() >= MAX_DEPTH {
            return None;
        }
        let level = open.iter().filter(|range| range.domain == domain).count();
        open.push(Open { domain, name, begin: time_of_day() });
        c_int::try_from(level).ok()
    });
    level.ok().flatten().unwrap_or(NO_RANGE)
}

/// Ends the innermost range of a domain. Returns its level.
fn end(domain: usize) -> c_int {
    let ended = OPEN.try_with(|open| {
        let mut open = open.try_borrow_mut().ok()?;
        let last = open.iter().rposition(|range| range.domain == domain)?;
        let range = open.remove(last);
        let level = open.iter().filter(|range| range.domain == domain).count();
        Some((range, level))
    });
    let Some((Open { name, begin, .. }, level)) = ended.ok().flatten() else { return NO_RANGE };
    send(&name, [begin, time_of_day()]);
    c_int::try_from(level).unwrap_or(NO_RANGE)
}

fn mark(name: &str) {
    let time = time_of_day();
    send(name, [time, time]);
}

/// Returns a text of the program.
///
/// # Safety
///
/// `text` is NULL or a C string.
unsafe fn narrow(text: *const c_char) -> String {
    if text.is_null() {
        return "?".into();
    }
    // SAFETY: a C string by this function's contract, which is read no further than its NUL.
    let bytes = unsafe { std::slice::from_raw_parts(text.cast::<u8>(), libc::strnlen(text, MAX_BYTES)) };
    clean(&String::from_utf8_lossy(bytes))
}

/// Returns a wide text of the program.
///
/// # Safety
///
/// `text` is NULL or a string of `wchar_t` with a NUL.
unsafe fn wide(text: *const u32) -> String {
    // SAFETY: not read behind the NUL, by this function's contract.
    let letters =
        (0..MAX_BYTES).map(|at| unsafe { text.add(at).read_unaligned() }).take_while(|letter| *letter != 0);
    match text.is_null() {
        true => "?".into(),
        false => clean(&letters.map(|letter| char::from_u32(letter).unwrap_or('?')).collect::<String>()),
    }
}

/// Returns the name in attributes.
///
/// # Safety
///
/// `attributes` is NULL or attributes of NVTX.
unsafe fn name_in(attributes: *const Attributes) -> String {
    if attributes.is_null() {
        return "?".into();
    }
    // SAFETY: attributes begin with version and size; they have `size` bytes, by this function's contract.
    let attributes = unsafe {
        let size = (&raw const (*attributes).size).read_unaligned();
        if usize::from(size) < size_of::<Attributes>() {
            return "?".into();
        }
        attributes.read_unaligned()
    };
    let message = attributes.message;
    match attributes.message_type {
        // SAFETY: a C string, by this function's contract.
        ASCII => unsafe { narrow(message.cast()) },
        // SAFETY: a wide text, by this function's contract.
        UNICODE => unsafe { wide(message.cast()) },
        REGISTERED => {
            let texts = TEXTS.lock().unwrap_or_else(PoisonError::into_inner);
            texts.as_ref().and_then(|texts| texts.get(&message.addr()).cloned()).unwrap_or_else(|| "?".into())
        }
        _ => "?".into(),
    }
}

fn register(text: String) -> *mut c_void {
    let handle = NEXT.fetch_add(1, Ordering::Relaxed);
    let mut texts = TEXTS.lock().unwrap_or_else(PoisonError::into_inner);
    let texts = texts.get_or_insert_default();
    if texts.len() < MAX_TEXTS {
        texts.insert(handle, text);
    }
    std::ptr::without_provenance_mut(handle)
}

// The functions below have the prototypes of NVTX's functions of these names, whose contracts they keep.

unsafe extern "C" fn mark_ex(attributes: *const Attributes) {
    // SAFETY: NVTX's contract.
    mark(&unsafe { name_in(attributes) });
}

unsafe extern "C" fn mark_a(text: *const c_char) {
    // SAFETY: NVTX's contract.
    mark(&unsafe { narrow(text) });
}

unsafe extern "C" fn mark_w(text: *const u32) {
    // SAFETY: NVTX's contract.
    mark(&unsafe { wide(text) });
}

unsafe extern "C" fn start_ex(attributes: *const Attributes) -> u64 {
    // SAFETY: NVTX's contract.
    started::begin(unsafe { name_in(attributes) }, time_of_day())
}

unsafe extern "C" fn start_a(text: *const c_char) -> u64 {
    // SAFETY: NVTX's contract.
    started::begin(unsafe { narrow(text) }, time_of_day())
}

unsafe extern "C" fn start_w(text: *const u32) -> u64 {
    // SAFETY: NVTX's contract.
    started::begin(unsafe { wide(text) }, time_of_day())
}

extern "C" fn range_end(id: u64) {
    if let (Some(sink), Some(event)) = (sink::get(), started::end(id, time_of_day())) {
        sink.send(event);
    }
}

unsafe extern "C" fn push_ex(attributes: *const Attributes) -> c_int {
    // SAFETY: NVTX's contract.
    begin(0, unsafe { name_in(attributes) })
}

unsafe extern "C" fn push_a(text: *const c_char) -> c_int {
    // SAFETY: NVTX's contract.
    begin(0, unsafe { narrow(text) })
}

unsafe extern "C" fn push_w(text: *const u32) -> c_int {
    // SAFETY: NVTX's contract.
    begin(0, unsafe { wide(text) })
}

extern "C" fn pop() -> c_int {
    end(0)
}

unsafe extern "C" fn domain_mark_ex(_domain: *mut c_void, attributes: *const Attributes) {
    // SAFETY: NVTX's contract.
    mark(&unsafe { name_in(attributes) });
}

unsafe extern "C" fn domain_start_ex(_domain: *mut c_void, attributes: *const Attributes) -> u64 {
    // SAFETY: NVTX's contract.
    started::begin(unsafe { name_in(attributes) }, time_of_day())
}

extern "C" fn domain_range_end(_domain: *mut c_void, id: u64) {
    range_end(id);
}

unsafe extern "C" fn domain_push_ex(domain: *mut c_void, attributes: *const Attributes) -> c_int {
    // SAFETY: NVTX's contract.
    begin(domain.addr(), unsafe { name_in(attributes) })
}

extern "C" fn domain_pop(domain: *mut c_void) -> c_int {
    end(domain.addr())
}

unsafe extern "C" fn register_a(_domain: *mut c_void, text: *const c_char) -> *mut c_void {
    // SAFETY: NVTX's contract.
    register(unsafe { narrow(text) })
}

unsafe extern "C" fn register_w(_domain: *mut c_void, text: *const u32) -> *mut c_void {
    // SAFETY: NVTX's contract.
    register(unsafe { wide(text) })
}

extern "C" fn create_domain(_name: *const c_void) -> *mut c_void {
    std::ptr::without_provenance_mut(NEXT.fetch_add(1, Ordering::Relaxed))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attributes(message_type: i32, message: *const c_void) -> Attributes {
        Attributes {
            version: 2,
            size: size_of::<Attributes>() as u16,
            category: 0,
            color_type: 0,
            color: 0,
            payload_type: 0,
            reserved: 0,
            payload: 0,
            message_type,
            message,
        }
    }

    #[test]
    fn names_are_read_in_all_their_forms() {
        let registered = register("kept".into());
        let wide = [0x61_u32, 0xe9, 0];
        for (kind, message, expected) in [
            (ASCII, c"step\n".as_ptr().cast::<c_void>(), "step?"),
            (UNICODE, wide.as_ptr().cast(), "aé"),
            (REGISTERED, registered.cast_const(), "kept"),
            (REGISTERED, std::ptr::null(), "?"),
            (ASCII, std::ptr::null(), "?"),
            (9, std::ptr::null(), "?"),
        ] {
            let attributes = attributes(kind, message);
            // SAFETY: the message is of that kind, and lives.
            assert_eq!(unsafe { name_in(&raw const attributes) }, expected);
        }
        let short = Attributes { size: 16, ..attributes(ASCII, c"step".as_ptr().cast()) };
        // SAFETY: it has more bytes than it says.
        assert_eq!(unsafe { name_in(&raw const short) }, "?");
    }

    #[test]
    fn levels_are_those_of_a_domain() {
        assert_eq!([begin(0, "a".into()), begin(7, "b".into()), begin(0, "c".into())], [0, 0, 1]);
        assert_eq!([end(0), end(7), end(7), end(0), end(0)], [1, 0, NO_RANGE, 0, NO_RANGE]);
    }
}
