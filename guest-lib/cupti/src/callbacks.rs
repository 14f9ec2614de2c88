// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The callback API. A subscriber is notified of calls of the driver and the runtime API, without their parameters, and
//! of contexts that begin or end.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::ffi::{c_char, c_void};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use cuda_abi::API_DRIVER;

use crate::calls::{Call, quietly};
use crate::cbids::{self, COUNT};
use crate::driver;
use crate::result::{
    CUptiResult, INVALID_OPERATION, INVALID_PARAMETER, MULTIPLE_SUBSCRIBERS, NOT_SUPPORTED, Result, enter,
    set,
};

/// `CUPTI_CB_DOMAIN_DRIVER_API`
const DRIVER_API: u32 = 1;
/// `CUPTI_CB_DOMAIN_RUNTIME_API`
const RUNTIME_API: u32 = 2;
/// `CUPTI_CB_DOMAIN_RESOURCE`
const RESOURCE: u32 = 3;
/// Supported domains.
const DOMAINS: [u32; 3] = [DRIVER_API, RUNTIME_API, RESOURCE];
/// `CUPTI_CBID_RESOURCE_CONTEXT_CREATED`
const CONTEXT_CREATED: u32 = 1;
/// `CUPTI_CBID_RESOURCE_CONTEXT_DESTROY_STARTING`
const CONTEXT_DESTROY_STARTING: u32 = 2;
/// Exceeds the numbers of functions and resources.
const LIMIT: u32 = COUNT as u32;

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

/// `CUpti_ResourceData`
#[repr(C)]
struct ResourceData {
    context: *mut c_void,
    stream: *mut c_void,
    descriptor: *mut c_void,
}

/// The program's function, and the contexts that were already reported to it.
struct Subscriber {
    callback: Callback,
    data: usize,
    contexts: BTreeSet<usize>,
}

/// The address of this static is the subscriber's handle.
static SUBSCRIBER: Mutex<Option<Subscriber>> = Mutex::new(None);
/// Bits of enabled callbacks, by domain.
static ENABLED: [[AtomicU64; COUNT / 64]; 3] = [const { [const { AtomicU64::new(0) }; COUNT / 64] }; 3];

thread_local! {
    static DATA: Cell<u64> = const { Cell::new(0) };
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

fn is_enabled(domain: u32, cbid: u32) -> bool {
    if cbid >= LIMIT {
        return false;
    }
    let (word, bit) = place(domain, cbid);
    word.load(Ordering::Relaxed) & bit != 0
}

/// Returns whether any callback is enabled.
pub fn any() -> bool {
    ENABLED.iter().flatten().any(|word| word.load(Ordering::Relaxed) != 0)
}

/// Reports the beginning or, with a result, the end of a call.
pub fn tell(call: &Call, result: Option<i32>) {
    let domain = if call.api == API_DRIVER { DRIVER_API } else { RUNTIME_API };
    if is_enabled(domain, call.cbid) {
        tell_call(domain, call, result);
    }
    if result.is_some() && is_enabled(RESOURCE, CONTEXT_CREATED) {
        tell_context();
    }
}

fn tell_call(domain: u32, call: &Call, result: Option<i32>) {
    let Some((callback, data)) = subscriber().as_ref().map(|found| (found.callback, found.data)) else {
        return;
    };
    if result.is_none() {
        DATA.set(0);
    }
    quietly(|| {
        let about = CallbackData {
            site: u32::from(result.is_some()),
            function_name: call.name.as_ptr(),
            function_params: null(),
            function_return_value: result.as_ref().map_or(null(), |result| result),
            symbol_name: null(),
            context: driver::current_context(),
            context_uid: 0,
            correlation_data: DATA.with(Cell::as_ptr),
            correlation: call.correlation,
        };
        // SAFETY: the program subscribed with this function and its data; `about` is what it expects for the domain.
        unsafe { callback(data as *mut c_void, domain, call.cbid, (&raw const about).cast()) };
    });
}

fn tell_context() {
    quietly(|| {
        let context = driver::current_context();
        let told = {
            let mut subscriber = subscriber();
            let Some(found) = subscriber.as_mut().filter(|_| !context.is_null()) else { return };
            found.contexts.insert(context as usize).then_some((found.callback, found.data))
        };
        tell_resource(told, CONTEXT_CREATED, context);
    });
}

/// Reports that the destruction of a context begins.
pub fn tell_context_end(context: *mut c_void) {
    quietly(|| {
        let told = subscriber().as_mut().map(|found| {
            found.contexts.remove(&(context as usize));
            (found.callback, found.data)
        });
        if is_enabled(RESOURCE, CONTEXT_DESTROY_STARTING) {
            tell_resource(told, CONTEXT_DESTROY_STARTING, context);
        }
    });
}

/// Calls the program's function with its data, without the lock on the subscriber.
fn tell_resource(told: Option<(Callback, usize)>, cbid: u32, context: *mut c_void) {
    let Some((callback, data)) = told else { return };
    let about = ResourceData { context, stream: null_mut(), descriptor: null_mut() };
    // SAFETY: the program subscribed with this function and its data; `about` is what it expects for the domain.
    unsafe { callback(data as *mut c_void, RESOURCE, cbid, (&raw const about).cast()) };
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
    driver::update()
}

/// Ends the subscription.
pub fn clear() {
    *subscriber() = None;
    for word in ENABLED.iter().flatten() {
        word.store(0, Ordering::Relaxed);
    }
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
        driver::update()
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
        let served = [CONTEXT_CREATED, CONTEXT_DESTROY_STARTING];
        if !DOMAINS.contains(&domain) || domain == RESOURCE && !served.contains(&cbid) {
            return Err(NOT_SUPPORTED);
        }
        if cbid == 0 || cbid >= LIMIT {
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
        if !DOMAINS.contains(&domain) {
            return Err(NOT_SUPPORTED);
        }
        self::enable(domain, 1..LIMIT, enable != 0)
    })
}

/// Enables or disables all callbacks.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiEnableAllDomains(enable: u32, subscriber: *const c_void) -> CUptiResult {
    enter(|| {
        check(subscriber)?;
        DOMAINS.iter().try_for_each(|domain| self::enable(*domain, 1..LIMIT, enable != 0))
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
