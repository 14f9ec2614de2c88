// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The callback API. A subscriber is notified of calls of the driver and the runtime API, and of objects and waits
//! ([`resources`]).

use std::cell::Cell;
use std::collections::BTreeSet;
use std::ffi::{c_char, c_void};
use std::ptr::null;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use cuda_abi::API_DRIVER;

use crate::calls::Call;
use crate::cbids::{self, COUNT};
use crate::quiet::quietly;
use crate::resources::{self, CONTEXT_CREATED, CONTEXT_DESTROY_STARTING};
use crate::result::{
    CUptiResult, INVALID_OPERATION, INVALID_PARAMETER, MULTIPLE_SUBSCRIBERS, NOT_SUPPORTED, Result, enter,
    set,
};
use crate::{driver, ids, objects, settings};

/// `CUPTI_CB_DOMAIN_DRIVER_API`
const DRIVER_API: u32 = 1;
/// `CUPTI_CB_DOMAIN_RUNTIME_API`
const RUNTIME_API: u32 = 2;
/// `CUPTI_CB_DOMAIN_RESOURCE`
pub const RESOURCE: u32 = 3;
/// `CUPTI_CB_DOMAIN_SYNCHRONIZE`
pub const SYNCHRONIZE: u32 = 4;
/// `CUPTI_CB_DOMAIN_NVTX`
const NVTX: u32 = 5;
/// `CUPTI_CB_DOMAIN_STATE`
const STATE: u32 = 6;
/// Supported domains.
static DOMAINS: [u32; 4] = [DRIVER_API, RUNTIME_API, RESOURCE, SYNCHRONIZE];
/// Exceeds the numbers of functions and resources.
const LIMIT: u32 = COUNT as u32;
/// Exceeds the numbers of events of [`RESOURCE`] and [`SYNCHRONIZE`].
const LIMITS: [u32; 2] = [22, 3];

/// `CUpti_CallbackFunc`
type Callback = unsafe extern "C" fn(*mut c_void, u32, u32, *const c_void);

/// `CUpti_CallbackData`
#[repr(C)]
struct CallbackData {
    /// 0 at the entry of a function, 1 at its exit.
    site: u32,
    function_name: *const c_char,
    function_params: *const c_void,
    function_return_value: *const i32,
    symbol_name: *const c_char,
    context: *mut c_void,
    context_uid: u32,
    /// A number that the subscriber may set at the entry and read at the exit.
    correlation_data: *mut u64,
    correlation: u32,
}
const _: () = assert!(size_of::<CallbackData>() == 72);

/// The program's function, and the contexts that were already reported to it.
struct Subscriber {
    callback: Callback,
    data: usize,
    contexts: BTreeSet<usize>,
}

/// The address of this static is the subscriber's handle.
static SUBSCRIBER: Mutex<Option<Subscriber>> = Mutex::new(None);
/// Bits of enabled callbacks, by domain.
static ENABLED: [[AtomicU64; COUNT / 64]; DOMAINS.len()] =
    [const { [const { AtomicU64::new(0) }; COUNT / 64] }; DOMAINS.len()];
/// A bit for each domain of which a callback is enabled.
static ACTIVE: AtomicU32 = AtomicU32::new(0);

thread_local! {
    /// The subscriber's number for a call, by domain: a call of the driver lies in one of the runtime.
    static DATA: [Cell<u64>; 2] = const { [const { Cell::new(0) }; 2] };
}

fn subscriber() -> MutexGuard<'static, Option<Subscriber>> {
    SUBSCRIBER.lock().unwrap_or_else(PoisonError::into_inner)
}

fn handle() -> *const c_void {
    (&raw const SUBSCRIBER).cast()
}

/// Checks a handle that the program passed.
fn check(given: *const c_void) -> Result {
    if given == handle() && subscriber().is_some() { Ok(()) } else { Err(INVALID_PARAMETER) }
}

fn place(domain: u32, cbid: u32) -> (&'static AtomicU64, u64) {
    (&ENABLED[(domain - 1) as usize][cbid as usize / 64], 1 << (cbid % 64))
}

/// Returns whether a callback is enabled.
pub fn is_enabled(domain: u32, cbid: u32) -> bool {
    if cbid >= LIMIT {
        return false;
    }
    let (word, bit) = place(domain, cbid);
    word.load(Ordering::Relaxed) & bit != 0
}

/// Returns whether any callback is enabled.
pub fn any() -> bool {
    ACTIVE.load(Ordering::Relaxed) != 0
}

/// Returns whether any callback of a domain is enabled.
pub fn any_of(domain: u32) -> bool {
    ACTIVE.load(Ordering::Relaxed) & 1 << domain != 0
}

/// Reports the beginning or, with a result, the end of a call.
pub fn tell(call: &Call, result: Option<i32>) {
    let domain = if call.api == API_DRIVER { DRIVER_API } else { RUNTIME_API };
    if is_enabled(domain, call.cbid) {
        tell_call(domain, call, result);
    }
    if result.is_some() && is_enabled(RESOURCE, CONTEXT_CREATED) {
        quietly(|| tell_new_context(driver::current_context()));
    }
}

fn tell_call(domain: u32, call: &Call, result: Option<i32>) {
    quietly(|| {
        let context = driver::current_context();
        let data = DATA.with(|data| data[(domain - 1) as usize].as_ptr());
        if result.is_none() {
            // SAFETY: this thread's cell.
            unsafe { data.write(0) };
        }
        let about = CallbackData {
            site: u32::from(result.is_some()),
            function_name: call.name.as_ptr(),
            function_params: call.arguments,
            function_return_value: result.as_ref().map_or(null(), |result| result),
            symbol_name: kernel_of(call),
            context,
            context_uid: ids::of_context(context),
            correlation_data: data,
            correlation: call.correlation,
        };
        self::call(domain, call.cbid, &raw const about);
    });
}

/// Returns the name of the kernel that a call launches; NULL if it launches none.
fn kernel_of(call: &Call) -> *const c_char {
    let name = call.name.to_bytes();
    if call.arguments.is_null() || !name.windows(6).any(|part| part == b"Launch") {
        return null();
    }
    let name = name.strip_suffix(b"_ptsz").unwrap_or(name);
    // SAFETY: the arguments of these functions are words, and the call still runs.
    let word = |index| unsafe { call.arguments.cast::<u64>().add(index).read() };
    match name {
        b"cuLaunchKernel" | b"cuLaunchCooperativeKernel" => objects::name_of(word(0)),
        b"cuLaunchKernelEx" => objects::name_of(word(1)),
        b"cudaLaunchKernel" | b"cudaLaunchCooperativeKernel" => {
            driver::runtime_name_of(word(0) as *const c_void)
        }
        b"cudaLaunchKernelExC" => driver::runtime_name_of(word(1) as *const c_void),
        _ => null(),
    }
}

/// Reports a context that the subscriber does not know yet.
pub fn tell_new_context(context: *mut c_void) {
    let is_new = |found: &mut Subscriber| found.contexts.insert(context as usize);
    if is_enabled(RESOURCE, CONTEXT_CREATED)
        && !context.is_null()
        && subscriber().as_mut().is_some_and(is_new)
    {
        resources::tell_context(CONTEXT_CREATED, context);
    }
}

/// Reports that the destruction of a context begins.
pub fn tell_context_end(context: *mut c_void) {
    quietly(|| {
        if let Some(found) = subscriber().as_mut() {
            found.contexts.remove(&(context as usize));
        }
        if is_enabled(RESOURCE, CONTEXT_DESTROY_STARTING) {
            resources::tell_context(CONTEXT_DESTROY_STARTING, context);
        }
        ids::forget_context(context);
    });
}

/// Calls the program's function with its data, without the lock on the subscriber. `about` is the structure that CUPTI defines for the
/// domain, or NULL for events without one.
pub fn call<T>(domain: u32, cbid: u32, about: *const T) {
    let Some((callback, data)) = subscriber().as_ref().map(|found| (found.callback, found.data)) else {
        return;
    };
    // SAFETY: the program subscribed with this function and its data; `about` is what it expects for the domain.
    unsafe { callback(data as *mut c_void, domain, cbid, about.cast()) };
}

/// Refuses domains of CUPTI that this library does not serve, and others.
fn check_domain(domain: u32) -> Result {
    match domain {
        _ if DOMAINS.contains(&domain) => Ok(()),
        NVTX | STATE => Err(NOT_SUPPORTED),
        _ => Err(INVALID_PARAMETER),
    }
}

/// Exceeds the numbers of a domain's callbacks.
fn limit(domain: u32) -> u32 {
    match domain {
        RESOURCE => LIMITS[0],
        SYNCHRONIZE => LIMITS[1],
        _ => LIMIT,
    }
}

fn enable(domain: u32, cbids: std::ops::Range<u32>, enabled: bool) -> Result {
    for cbid in cbids {
        let (word, bit) = place(domain, cbid);
        if enabled {
            word.fetch_or(bit, Ordering::Relaxed);
        } else {
            word.fetch_and(!bit, Ordering::Relaxed);
        }
    }
    match ENABLED[(domain - 1) as usize].iter().any(|word| word.load(Ordering::Relaxed) != 0) {
        true => ACTIVE.fetch_or(1 << domain, Ordering::Relaxed),
        false => ACTIVE.fetch_and(!(1 << domain), Ordering::Relaxed),
    };
    settings::update()
}

/// Ends the subscription.
pub fn clear() {
    *subscriber() = None;
    for word in ENABLED.iter().flatten() {
        word.store(0, Ordering::Relaxed);
    }
    ACTIVE.store(0, Ordering::Relaxed);
}

/// Sets the program's function, which is called for callbacks that are enabled later.
///
/// # Safety
///
/// `subscriber` is NULL or valid for writing; `callback` takes `data` until the subscription ends.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiSubscribe(
    subscriber: *mut *const c_void,
    callback: Option<Callback>,
    data: *mut c_void,
) -> CUptiResult {
    enter(|| {
        let callback = callback.ok_or(INVALID_PARAMETER)?;
        let mut place = self::subscriber();
        if place.is_some() {
            return Err(MULTIPLE_SUBSCRIBERS);
        }
        // SAFETY: this function's contract.
        unsafe { set(subscriber, handle()) }?;
        *place = Some(Subscriber { callback, data: data as usize, contexts: BTreeSet::new() });
        Ok(())
    })
}

/// Ends a subscription.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiUnsubscribe(subscriber: *const c_void) -> CUptiResult {
    enter(|| {
        check(subscriber)?;
        clear();
        settings::update()
    })
}

/// Enables or disables a callback.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiEnableCallback(
    enable: u32,
    subscriber: *const c_void,
    domain: u32,
    cbid: u32,
) -> CUptiResult {
    enter(|| {
        check(subscriber)?;
        check_domain(domain)?;
        if cbid == 0 || cbid >= limit(domain) {
            return Err(INVALID_PARAMETER);
        }
        self::enable(domain, cbid..cbid + 1, enable != 0)
    })
}

/// Enables or disables all callbacks of a domain.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiEnableDomain(enable: u32, subscriber: *const c_void, domain: u32) -> CUptiResult {
    enter(|| {
        check(subscriber)?;
        check_domain(domain)?;
        self::enable(domain, 1..limit(domain), enable != 0)
    })
}

/// Stores the domains whose callbacks can be enabled.
///
/// # Safety
///
/// `count` and `table` are NULL or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiSupportedDomains(count: *mut usize, table: *mut *const u32) -> CUptiResult {
    // SAFETY: this function's contract.
    enter(|| unsafe {
        set(count, DOMAINS.len())?;
        set(table, DOMAINS.as_ptr())
    })
}

/// Enables or disables all callbacks.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiEnableAllDomains(enable: u32, subscriber: *const c_void) -> CUptiResult {
    enter(|| {
        check(subscriber)?;
        DOMAINS.iter().try_for_each(|domain| self::enable(*domain, 1..limit(*domain), enable != 0))
    })
}

/// Returns whether a callback is enabled.
///
/// # Safety
///
/// `enabled` is NULL or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiGetCallbackState(
    enabled: *mut u32,
    subscriber: *const c_void,
    domain: u32,
    cbid: u32,
) -> CUptiResult {
    enter(|| {
        check(subscriber)?;
        if !DOMAINS.contains(&domain) || cbid >= LIMIT {
            return Err(INVALID_OPERATION);
        }
        // SAFETY: this function's contract.
        unsafe { set(enabled, is_enabled(domain, cbid).into()) }
    })
}

/// Returns the name of a function by its number.
///
/// # Safety
///
/// `name` is NULL or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiGetCallbackName(
    domain: u32,
    cbid: u32,
    name: *mut *const c_char,
) -> CUptiResult {
    enter(|| {
        let api = domain.checked_sub(1).filter(|_| domain <= RUNTIME_API).ok_or(INVALID_PARAMETER)?;
        let found = cbids::name(api, cbid).ok_or(INVALID_PARAMETER)?;
        // SAFETY: this function's contract.
        unsafe { set(name, found.as_ptr()) }
    })
}
