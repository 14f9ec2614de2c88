// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Ranges and marks of NVTX: those that a program pushes, pops and sets, and those that it starts and ends ([`started`]).
//!
//! NVTX is a header that programs are compiled with. At its first use it loads the library in `NVTX_INJECTION64_PATH`, which fills
//! the header's tables of functions (`nvtxDetail/nvtxTypes.h`).

use std::cell::{Cell, RefCell};
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::ptr::null_mut;

use vhost_cuda_profile::event::Kind;

use crate::texts::{Attributes, Text, name_category, narrow, register, text_of, wide};
use crate::{sink, started, time_of_day};

/// `NVTX_ETID_CALLBACKS`
const CALLBACKS: u32 = 1;
/// `NVTX_CB_MODULE_CORE` and `NVTX_CB_MODULE_CORE2`
const CORE: u32 = 1;
const CORE2: u32 = 5;
/// The maximum depth of ranges of a thread. Limits the program's memory.
const MAX_DEPTH: usize = 1 << 10;
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

/// A range that has begun.
#[derive(Debug)]
struct Open {
    domain: usize,
    text: Text,
    begin: u64,
}

thread_local! {
    static OPEN: RefCell<Vec<Open>> = const { RefCell::new(Vec::new()) };
    static THREAD: Cell<u32> = const { Cell::new(0) };
}

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
    let core: [(usize, *const c_void); 13] = [
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
        (12, name_category_a as *const c_void),
        (13, name_category_w as *const c_void),
    ];
    let core2: [(usize, *const c_void); 11] = [
        (1, domain_mark_ex as *const c_void),
        (2, domain_start_ex as *const c_void),
        (3, domain_range_end as *const c_void),
        (4, domain_push_ex as *const c_void),
        (5, domain_pop as *const c_void),
        (8, domain_name_category_a as *const c_void),
        (9, domain_name_category_w as *const c_void),
        (10, register_a as *const c_void),
        (11, register_w as *const c_void),
        (12, create_domain_a as *const c_void),
        (13, create_domain_w as *const c_void),
    ];
    for (module, functions) in [(CORE, &core[..]), (CORE2, &core2[..])] {
        let (mut table, mut length) = (null_mut(), 0);
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

fn send(text: Text, time: [u64; 2]) {
    if let Some(sink) = sink::get() {
        sink.send(text.event(Kind::Range, thread(), time));
    }
}

/// Begins a range. Returns its level.
fn begin(domain: usize, text: Text) -> c_int {
    // The thread's own data may have ended.
    let level = OPEN.try_with(|open| {
        let mut open = open.try_borrow_mut().ok()?;
        if open.len() >= MAX_DEPTH {
            return None;
        }
        let level = open.iter().filter(|range| range.domain == domain).count();
        open.push(Open { domain, text, begin: time_of_day() });
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
    let Some((Open { text, begin, .. }, level)) = ended.ok().flatten() else { return NO_RANGE };
    send(text, [begin, time_of_day()]);
    c_int::try_from(level).unwrap_or(NO_RANGE)
}

fn mark(text: Text) {
    let time = time_of_day();
    send(text, [time, time]);
}

// The functions below have the prototypes of NVTX's functions of these names, whose contracts they keep.

unsafe extern "C" fn mark_ex(attributes: *const Attributes) {
    // SAFETY: NVTX's contract.
    mark(unsafe { text_of(null_mut(), attributes) });
}

unsafe extern "C" fn mark_a(text: *const c_char) {
    // SAFETY: NVTX's contract.
    mark(unsafe { narrow(text) }.into());
}

unsafe extern "C" fn mark_w(text: *const u32) {
    // SAFETY: NVTX's contract.
    mark(unsafe { wide(text) }.into());
}

unsafe extern "C" fn start_ex(attributes: *const Attributes) -> u64 {
    // SAFETY: NVTX's contract.
    started::begin(unsafe { text_of(null_mut(), attributes) }, time_of_day())
}

unsafe extern "C" fn start_a(text: *const c_char) -> u64 {
    // SAFETY: NVTX's contract.
    started::begin(unsafe { narrow(text) }.into(), time_of_day())
}

unsafe extern "C" fn start_w(text: *const u32) -> u64 {
    // SAFETY: NVTX's contract.
    started::begin(unsafe { wide(text) }.into(), time_of_day())
}

extern "C" fn range_end(id: u64) {
    if let (Some(sink), Some(event)) = (sink::get(), started::end(id, time_of_day())) {
        sink.send(event);
    }
}

unsafe extern "C" fn push_ex(attributes: *const Attributes) -> c_int {
    // SAFETY: NVTX's contract.
    begin(0, unsafe { text_of(null_mut(), attributes) })
}

unsafe extern "C" fn push_a(text: *const c_char) -> c_int {
    // SAFETY: NVTX's contract.
    begin(0, unsafe { narrow(text) }.into())
}

unsafe extern "C" fn push_w(text: *const u32) -> c_int {
    // SAFETY: NVTX's contract.
    begin(0, unsafe { wide(text) }.into())
}

extern "C" fn pop() -> c_int {
    end(0)
}

unsafe extern "C" fn domain_mark_ex(domain: *mut c_void, attributes: *const Attributes) {
    // SAFETY: NVTX's contract.
    mark(unsafe { text_of(domain, attributes) });
}

unsafe extern "C" fn domain_start_ex(domain: *mut c_void, attributes: *const Attributes) -> u64 {
    // SAFETY: NVTX's contract.
    started::begin(unsafe { text_of(domain, attributes) }, time_of_day())
}

extern "C" fn domain_range_end(_domain: *mut c_void, id: u64) {
    range_end(id);
}

unsafe extern "C" fn domain_push_ex(domain: *mut c_void, attributes: *const Attributes) -> c_int {
    // SAFETY: NVTX's contract.
    begin(domain.addr(), unsafe { text_of(domain, attributes) })
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

unsafe extern "C" fn create_domain_a(name: *const c_char) -> *mut c_void {
    // SAFETY: NVTX's contract.
    register(unsafe { narrow(name) })
}

unsafe extern "C" fn create_domain_w(name: *const u32) -> *mut c_void {
    // SAFETY: NVTX's contract.
    register(unsafe { wide(name) })
}

unsafe extern "C" fn name_category_a(category: u32, name: *const c_char) {
    // SAFETY: NVTX's contract.
    name_category(null_mut(), category, unsafe { narrow(name) });
}

unsafe extern "C" fn name_category_w(category: u32, name: *const u32) {
    // SAFETY: NVTX's contract.
    name_category(null_mut(), category, unsafe { wide(name) });
}

unsafe extern "C" fn domain_name_category_a(domain: *mut c_void, category: u32, name: *const c_char) {
    // SAFETY: NVTX's contract.
    name_category(domain, category, unsafe { narrow(name) });
}

unsafe extern "C" fn domain_name_category_w(domain: *mut c_void, category: u32, name: *const u32) {
    // SAFETY: NVTX's contract.
    name_category(domain, category, unsafe { wide(name) });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_those_of_a_domain() {
        let text = |name: &str| Text::from(name.to_owned());
        assert_eq!([begin(0, text("a")), begin(7, text("b")), begin(0, text("c"))], [0, 0, 1]);
        assert_eq!([end(0), end(7), end(7), end(0), end(0)], [1, 0, NO_RANGE, 0, NO_RANGE]);
    }
}
