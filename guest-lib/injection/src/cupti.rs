// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Calls and the work of GPUs, by CUPTI's activities: ours in the guest, NVIDIA's elsewhere.

use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_void};
use std::mem::transmute;
use std::ptr::null_mut;
use std::sync::{Mutex, OnceLock, PoisonError};

use cuda_abi::{
    ACTIVITY_CONCURRENT_KERNEL, ACTIVITY_DRIVER, ACTIVITY_KERNEL, ACTIVITY_MEMCPY, ACTIVITY_MEMCPY2,
    ACTIVITY_MEMSET, ACTIVITY_RUNTIME, CUpti_ActivityAPI, CUpti_ActivityKernel, CUpti_ActivityMemcpy,
    CUpti_ActivityMemcpyPtoP, CUpti_ActivityMemset, Zero,
};
use cuda_program::Library;
use vhost_cuda_profile::event::{Event, Kind};
use vhost_cuda_profile::names;

use crate::sink::{self, Sink};

/// The newest first.
const LIBRARIES: [&str; 2] = ["libcupti.so.13", "libcupti.so.12"];
/// Kinds of calls, which need nothing of the host, and kinds of work.
const CALLS: [u32; 2] = [ACTIVITY_RUNTIME, ACTIVITY_DRIVER];
const WORK: [u32; 4] = [ACTIVITY_CONCURRENT_KERNEL, ACTIVITY_MEMCPY, ACTIVITY_MEMCPY2, ACTIVITY_MEMSET];
/// Bytes of a buffer, and its alignment.
const BUFFER: usize = 1 << 20;
const ALIGNMENT: usize = 8;
/// The maximum number of names that are remembered. Limits the program's memory.
const MAX_NAMES: usize = 1 << 16;

type Request = extern "C" fn(*mut *mut u8, *mut usize, *mut usize);
type Complete = unsafe extern "C" fn(*mut c_void, u32, *mut u8, usize, usize);

/// Functions of CUPTI.
#[derive(Debug)]
pub struct Cupti {
    register: unsafe extern "C" fn(Request, Complete) -> u32,
    enable: unsafe extern "C" fn(u32) -> u32,
    flush_all: unsafe extern "C" fn(u32) -> u32,
    next: unsafe extern "C" fn(*mut u8, usize, *mut *mut u8) -> u32,
    dropped: unsafe extern "C" fn(*mut c_void, u32, *mut usize) -> u32,
    name: unsafe extern "C" fn(u32, u32, *mut *const c_char) -> u32,
}

static CUPTI: OnceLock<Cupti> = OnceLock::new();

/// Names of functions by API and number, and of kernels by the address of their symbol.
#[derive(Default)]
struct Names {
    functions: HashMap<(u32, u32), String>,
    kernels: HashMap<usize, String>,
}

static NAMES: Mutex<Option<Names>> = Mutex::new(None);

/// Begins to record. Returns false if there is no CUPTI.
pub fn begin(sink: &Sink) -> bool {
    let Some(cupti) = find() else {
        sink.set_no_gpu(format!("there is no {}", LIBRARIES.join(" or ")));
        return false;
    };
    let cupti = CUPTI.get_or_init(|| cupti);
    // SAFETY: both functions keep CUPTI's contract.
    if unsafe { (cupti.register)(request, complete) } != 0 {
        return false;
    }
    // SAFETY: a plain call.
    let enable = |kind: &u32| unsafe { (cupti.enable)(*kind) };
    if CALLS.iter().map(enable).any(|error| error != 0) {
        return false;
    }
    if let Some(error) = WORK.iter().map(enable).find(|error| *error != 0) {
        sink.set_no_gpu(format!("CUPTI answers {error} (cupti_result.h); the host may have no CUPTI"));
    }
    true
}

fn find() -> Option<Cupti> {
    // SAFETY: the constructors of CUPTI run wherever a program loads it.
    let library = LIBRARIES.iter().find_map(|name| unsafe { Library::open(name, false) })?;
    let function = |name: &CStr| library.symbol(name).map(|symbol| symbol.as_ptr());
    // SAFETY: CUPTI's functions have these signatures (cupti_activity.h, cupti_callbacks.h), and the library stays loaded.
    unsafe {
        Some(Cupti {
            register: transmute::<*mut c_void, unsafe extern "C" fn(Request, Complete) -> u32>(function(
                c"cuptiActivityRegisterCallbacks",
            )?),
            enable: transmute::<*mut c_void, unsafe extern "C" fn(u32) -> u32>(function(
                c"cuptiActivityEnable",
            )?),
            flush_all: transmute::<*mut c_void, unsafe extern "C" fn(u32) -> u32>(function(
                c"cuptiActivityFlushAll",
            )?),
            next: transmute::<*mut c_void, unsafe extern "C" fn(*mut u8, usize, *mut *mut u8) -> u32>(
                function(c"cuptiActivityGetNextRecord")?,
            ),
            dropped: transmute::<*mut c_void, unsafe extern "C" fn(*mut c_void, u32, *mut usize) -> u32>(
                function(c"cuptiActivityGetNumDroppedRecords")?,
            ),
            name: transmute::<*mut c_void, unsafe extern "C" fn(u32, u32, *mut *const c_char) -> u32>(
                function(c"cuptiGetCallbackName")?,
            ),
        })
    }
}

/// Makes CUPTI deliver the records of all completed work.
pub fn flush() {
    let Some(cupti) = CUPTI.get() else { return };
    // SAFETY: a plain call; CUPTI calls `complete`, in this thread or another one.
    unsafe { (cupti.flush_all)(0) };
    let mut dropped = 0;
    // SAFETY: `dropped` is a local; a null context means all.
    if unsafe { (cupti.dropped)(null_mut(), 0, &raw mut dropped) } == 0
        && let Some(sink) = sink::get()
    {
        sink.add_dropped(dropped as u64);
    }
}

extern "C" fn request(buffer: *mut *mut u8, bytes: *mut usize, records: *mut usize) {
    // SAFETY: a multiple of the alignment; NULL is an answer that CUPTI knows. CUPTI passes places for three results.
    unsafe {
        *buffer = libc::aligned_alloc(ALIGNMENT, BUFFER).cast();
        *bytes = if (*buffer).is_null() { 0 } else { BUFFER };
        *records = 0;
    }
}

/// # Safety
///
/// CUPTI calls it with a buffer of [`request`], of which `valid` bytes are records.
unsafe extern "C" fn complete(
    _context: *mut c_void,
    _stream: u32,
    buffer: *mut u8,
    _bytes: usize,
    valid: usize,
) {
    if let (Some(cupti), Some(sink)) = (CUPTI.get(), sink::get()) {
        let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
        let names = names.get_or_insert_default();
        let mut record = null_mut();
        // SAFETY: the records lie in the first `valid` bytes of the buffer.
        while !buffer.is_null() && unsafe { (cupti.next)(buffer, valid, &raw mut record) } == 0 {
            let left = valid.saturating_sub(record.addr() - buffer.addr());
            // SAFETY: a record of CUPTI with that many readable bytes.
            if let Some(event) = unsafe { event(cupti, names, record, left) } {
                sink.send(event);
            }
        }
    }
    // SAFETY: allocated in `request`, and given back once; NULL is allowed.
    unsafe { libc::free(buffer.cast()) };
}

/// Returns the event of a record.
///
/// # Safety
///
/// `record` has `bytes` readable bytes, which are a record of CUPTI whose names are C strings.
unsafe fn event(cupti: &Cupti, names: &mut Names, record: *const u8, bytes: usize) -> Option<Event> {
    if bytes < size_of::<u32>() {
        return None;
    }
    // SAFETY: the record begins with its kind, is of the structure of that kind, and has `bytes` bytes.
    unsafe {
        Some(match record.cast::<u32>().read_unaligned() {
            ACTIVITY_RUNTIME | ACTIVITY_DRIVER => {
                let call: CUpti_ActivityAPI = load(record, bytes);
                let name = names.function(cupti, call.kind, call.cbid);
                let mut event = Event::new(Kind::Api, name, call.thread, [call.start, call.end]);
                event.result = call.result;
                event
            }
            ACTIVITY_KERNEL | ACTIVITY_CONCURRENT_KERNEL => {
                let kernel: CUpti_ActivityKernel = load(record, bytes);
                let name = names.kernel(kernel.name);
                work(Kind::Kernel, name, kernel.stream, [kernel.start, kernel.end], kernel.device, 0)
            }
            ACTIVITY_MEMCPY => {
                let copy: CUpti_ActivityMemcpy = load(record, bytes);
                let [direction, from, to, _] = copy.kinds;
                let name = names::of_direction(direction);
                let time = [copy.start, copy.end];
                let mut event = work(Kind::Copy, name, copy.stream, time, copy.device, copy.bytes);
                event.path = format!("{} to {}", names::of_memory(from), names::of_memory(to));
                event
            }
            ACTIVITY_MEMCPY2 => {
                let copy: CUpti_ActivityMemcpyPtoP = load(record, bytes);
                let name = names::of_direction(copy.kinds[0]);
                work(Kind::Copy, name, copy.stream, [copy.start, copy.end], copy.device, copy.bytes)
            }
            ACTIVITY_MEMSET => {
                let fill: CUpti_ActivityMemset = load(record, bytes);
                work(Kind::Fill, "fill", fill.stream, [fill.start, fill.end], fill.device, fill.bytes)
            }
            _ => return None,
        })
    }
}

fn work(kind: Kind, name: &str, stream: u32, time: [u64; 2], device: u32, bytes: u64) -> Event {
    Event { device, bytes, ..Event::new(kind, name, stream, time) }
}

/// Returns a record with zeros after its end: releases of CUPTI append fields to structures.
///
/// # Safety
///
/// `record` has `bytes` readable bytes, and `T` is valid for any bytes.
unsafe fn load<T: Zero>(record: *const u8, bytes: usize) -> T {
    let mut value = T::ZERO;
    // SAFETY: readable that far by this function's contract, and `value` has room for it.
    unsafe { std::ptr::copy_nonoverlapping(record, (&raw mut value).cast(), bytes.min(size_of::<T>())) };
    value
}

impl Names {
    /// Returns the name of a function, as programs write it.
    fn function(&mut self, cupti: &Cupti, kind: u32, number: u32) -> &str {
        let domain = if kind == ACTIVITY_DRIVER { 1 } else { 2 };
        self.functions.entry((domain, number)).or_insert_with(|| {
            let mut name = std::ptr::null();
            // SAFETY: `name` is a local.
            let found = unsafe { (cupti.name)(domain, number, &raw mut name) } == 0 && !name.is_null();
            if !found {
                return format!("function {number}");
            }
            // SAFETY: CUPTI's names are C strings that live until the process ends.
            let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
            without_version(&name).to_owned()
        })
    }

    /// Returns the name of a kernel.
    ///
    /// # Safety
    ///
    /// `symbol` is 0 or the address of a C string, which lives until the process ends.
    unsafe fn kernel(&mut self, symbol: usize) -> &str {
        if symbol == 0 {
            return "?";
        }
        if self.kernels.len() >= MAX_NAMES && !self.kernels.contains_key(&symbol) {
            return "(further kernels)";
        }
        self.kernels.entry(symbol).or_insert_with(|| {
            // SAFETY: this function's contract.
            names::of_kernel(unsafe { CStr::from_ptr(symbol as *const c_char) }.to_bytes())
        })
    }
}

/// Removes the version that CUPTI appends to names of the runtime's functions, as in `cudaLaunchKernel_v7000`.
fn without_version(name: &str) -> &str {
    match name.rsplit_once("_v") {
        Some((bare, version)) if version.len() >= 4 && version.bytes().all(|byte| byte.is_ascii_digit()) => {
            bare
        }
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_not_part_of_a_name() {
        assert_eq!(without_version("cudaLaunchKernel_v7000"), "cudaLaunchKernel");
        assert_eq!(without_version("cuMemAlloc_v2"), "cuMemAlloc_v2");
        assert_eq!(without_version("cudaMalloc"), "cudaMalloc");
    }

    extern "C" fn no_name(_: u32, _: u32, _: *mut *const c_char) -> u32 {
        1
    }

    #[test]
    fn records_become_events() {
        extern "C" fn register(_: Request, _: Complete) -> u32 {
            0
        }
        extern "C" fn number(_: u32) -> u32 {
            0
        }
        extern "C" fn next(_: *mut u8, _: usize, _: *mut *mut u8) -> u32 {
            1
        }
        extern "C" fn dropped(_: *mut c_void, _: u32, _: *mut usize) -> u32 {
            0
        }
        let cupti = Cupti { register, enable: number, flush_all: number, next, dropped, name: no_name };
        let mut names = Names::default();
        let mut event = |record: *const u8, bytes: usize| {
            // SAFETY: the records below, which have that many bytes.
            unsafe { super::event(&cupti, &mut names, record, bytes) }
        };
        let kernel = CUpti_ActivityKernel {
            kind: ACTIVITY_CONCURRENT_KERNEL,
            start: 5,
            end: 9,
            stream: 7,
            name: c"_Z3addPf".as_ptr() as usize,
            ..CUpti_ActivityKernel::ZERO
        };
        let told = event((&raw const kernel).cast(), size_of_val(&kernel)).unwrap();
        assert_eq!(told, Event::new(Kind::Kernel, "add", 7, [5, 9]));
        let copy = CUpti_ActivityMemcpy {
            kind: ACTIVITY_MEMCPY,
            kinds: [1, 2, 3, 0],
            bytes: 64,
            ..CUpti_ActivityMemcpy::ZERO
        };
        let told = event((&raw const copy).cast(), size_of_val(&copy)).unwrap();
        assert_eq!(
            (told.name.as_str(), told.path.as_str(), told.bytes),
            ("host to device", "pinned to device", 64)
        );
        let call = CUpti_ActivityAPI { kind: ACTIVITY_DRIVER, cbid: 3, result: 2, ..CUpti_ActivityAPI::ZERO };
        let told = event((&raw const call).cast(), size_of_val(&call)).unwrap();
        assert_eq!((told.name.as_str(), told.result), ("function 3", 2));
        assert_eq!(event((&raw const call).cast(), 3), None);
    }
}
