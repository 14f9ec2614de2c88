// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The exported functions. Each has a second name, which profilers call from their wrappers.

use std::ffi::{CStr, c_char, c_int};
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use super::communicator::Communicator;
use super::counted::Counted;
use super::driver::{Place, allocate, free};
use super::element::Kind;
use super::identity::{self, Id};
use super::operation::{Function, Operation, Scalar};
use super::split::{Late, NO_COLOR, begin};
use super::{
    CUDA_ERROR, IN_PROGRESS, INVALID_ARGUMENT, INVALID_USAGE, REMOTE_ERROR, SUCCESS, SYSTEM_ERROR, Status,
    group, status,
};
use crate::exported::exported;
use crate::handles::{self, Handle};
use crate::stream::Stream;

/// `NCCL_VERSION_CODE` of the release that the rows were made against.
const VERSION: c_int = 22803;
/// `ncclScalarDevice`
const IN_DEVICE_MEMORY: c_int = 0;
/// Offset and value of `ncclConfig_t.blocking` for functions that return immediately.
const BLOCKING_OFFSET: usize = 16;
const NOT_BLOCKING: c_int = 0;

/// The last error of a function, for `ncclGetLastError`.
static LAST: AtomicI32 = AtomicI32::new(SUCCESS);

/// A registered buffer. The CPU has no use for registrations.
struct Registration {
    _counted: Counted,
}

/// The maximum number of registrations. Limits the memory of a program that never takes them back.
const MAX_REGISTRATIONS: usize = 1 << 16;
static REGISTRATIONS: AtomicUsize = AtomicUsize::new(0);

/// The maximum number of handles of communicators. A group that fails leaves its handles to the program: more than the communicators
/// that can be.
const MAX_HANDLES: usize = 1 << 12;
static HANDLES: AtomicUsize = AtomicUsize::new(0);

/// A communicator's handle.
struct Named {
    late: Late,
    _counted: Counted,
}

fn register(comm: Handle) -> Result<Handle, Status> {
    find(comm)?;
    let counted = Counted::new(&REGISTRATIONS, MAX_REGISTRATIONS).ok_or(SYSTEM_ERROR)?;
    Ok(handles::make(Registration { _counted: counted }))
}

/// The end of an exported function.
fn answer(result: Result<(), Status>) -> Status {
    let status = status(result);
    if status != SUCCESS && status != IN_PROGRESS {
        LAST.store(status, Ordering::Relaxed);
        group::note(status);
    }
    status
}

fn text(status: Status) -> &'static CStr {
    match status {
        SUCCESS => c"no error",
        CUDA_ERROR => c"unhandled cuda error",
        SYSTEM_ERROR => c"unhandled system error",
        3 => c"internal error",
        INVALID_ARGUMENT => c"invalid argument",
        INVALID_USAGE => c"invalid usage, or not supported by the emulated GPU",
        REMOTE_ERROR => c"remote process exited, or has ended the communicator",
        IN_PROGRESS => c"in progress",
        _ => c"unknown result code",
    }
}

fn find(handle: Handle) -> Result<Arc<Communicator>, Status> {
    let late = handles::with(handle, |named: &mut Named| named.late.clone());
    late.and_then(|late| late.get().cloned()).ok_or(INVALID_ARGUMENT)
}

/// # Safety
///
/// `place` is null or has room for the value.
unsafe fn put<T>(place: *mut T, value: T) -> Result<(), Status> {
    if place.is_null() {
        return Err(INVALID_ARGUMENT);
    }
    // SAFETY: not null, so `# Safety` promises room for the value.
    unsafe { place.write(value) };
    Ok(())
}

/// # Safety
///
/// `config` is null or an `ncclConfig_t`.
unsafe fn returns_at_once(config: *const u8) -> bool {
    if config.is_null() {
        return false;
    }
    // SAFETY: not null, so `# Safety` promises an `ncclConfig_t`, which begins with its length.
    let bytes = unsafe { config.cast::<usize>().read_unaligned() };
    let end = BLOCKING_OFFSET + size_of::<c_int>();
    // SAFETY: the length, which was looked at first, says that the structure has the field.
    bytes >= end && unsafe { config.add(BLOCKING_OFFSET).cast::<c_int>().read_unaligned() } == NOT_BLOCKING
}

/// Hands a communicator's handle out, and completes it, now or at the end of the thread's group. If that fails now, the handle
/// ends again and is null. One that a group has handed out is the program's to destroy.
///
/// # Safety
///
/// `place` is null or has room for a handle.
unsafe fn hand_out(
    place: *mut Handle,
    late: Late,
    complete: impl FnOnce() -> Result<(), Status>,
) -> Result<(), Status> {
    // SAFETY: `# Safety` promises that `place` is null or has room for a handle.
    unsafe { put(place, 0)? };
    let counted = Counted::new(&HANDLES, MAX_HANDLES).ok_or(SYSTEM_ERROR)?;
    let handle = handles::make(Named { late, _counted: counted });
    // SAFETY: `# Safety` promises that `place` is null or has room for a handle.
    let result = unsafe { put(place, handle) }.and_then(|()| complete());
    if result.is_err_and(|error| error != IN_PROGRESS) {
        handles::end::<Named>(handle);
        // SAFETY: `# Safety` promises that `place` is null or has room for a handle. That it is null is the error already.
        let _ = unsafe { put(place, 0) };
    }
    result
}

/// # Safety
///
/// `comm` is null or has room for a handle, and `config` is null or an `ncclConfig_t`.
unsafe fn init_rank(
    comm: *mut Handle,
    ranks: c_int,
    id: &Id,
    rank: c_int,
    config: *const u8,
) -> Result<(), Status> {
    if comm.is_null() {
        return Err(INVALID_ARGUMENT);
    }
    let number = |number: c_int| usize::try_from(number).map_err(|_| INVALID_ARGUMENT);
    let new = Communicator::join(id, number(rank)?, number(ranks)?, Place::current()?)?;
    // SAFETY: `# Safety` promises that `config` is null or an `ncclConfig_t`.
    let at_once = unsafe { returns_at_once(config) };
    let complete = |new: Arc<Communicator>| {
        if !at_once {
            group::complete(new)
        } else if new.is_complete() {
            Ok(())
        } else {
            Err(IN_PROGRESS)
        }
    };
    // SAFETY: not null, so `# Safety` promises room for a handle.
    unsafe { hand_out(comm, Arc::new(OnceLock::from(new.clone())), || complete(new)) }
}

/// # Safety
///
/// `comms` is null or has room for `count` handles, and `devices` is null or has `count` numbers.
unsafe fn init_all(comms: *mut Handle, count: c_int, devices: *const c_int) -> Result<(), Status> {
    let ranks = usize::try_from(count).ok().filter(|ranks| *ranks > 0).ok_or(INVALID_ARGUMENT)?;
    if comms.is_null() {
        return Err(INVALID_ARGUMENT);
    }
    let id = identity::create()?;
    group::start();
    let mut handed_out = 0;
    let made = (0..ranks).try_for_each(|rank| {
        // SAFETY: not null, so `# Safety` promises a device for each rank.
        let device = if devices.is_null() { rank as c_int } else { unsafe { devices.add(rank).read() } };
        let new = Communicator::join(&id, rank, ranks, Place::of(device)?)?;
        // SAFETY: `comms` is not null, so `# Safety` promises room for the handle of each rank.
        unsafe { hand_out(comms.add(rank), Arc::new(OnceLock::from(new.clone())), || group::complete(new)) }
            .inspect(|()| handed_out += 1)
    });
    if let Err(error) = made {
        group::note(error);
    }
    group::end().and(made).inspect_err(|_| {
        for rank in 0..handed_out {
            // SAFETY: `# Safety` promises room for a handle of each rank; `hand_out` has filled that of this one.
            unsafe {
                handles::end::<Named>(comms.add(rank).read());
                comms.add(rank).write(0);
            }
        }
    })
}

/// # Safety
///
/// `place` is null or has room for a handle.
unsafe fn split(comm: Handle, color: c_int, key: c_int, place: *mut Handle) -> Result<(), Status> {
    let old = find(comm)?;
    if place.is_null() {
        return Err(INVALID_ARGUMENT);
    }
    let late = Late::default();
    let begun = begin(&old, color, key, late.clone())?;
    if color == NO_COLOR {
        // SAFETY: not null, so `# Safety` promises room for a handle.
        return unsafe { put(place, 0) }.and_then(|()| group::split(begun));
    }
    // SAFETY: not null, so `# Safety` promises room for a handle.
    unsafe { hand_out(place, late, || group::split(begun)) }
}

/// The elements of an argument list: the addresses of those that are sent and received, their number, and their NCCL type.
struct Elements {
    send: usize,
    receive: usize,
    count: usize,
    kind: c_int,
}

fn operate(
    function: Function,
    Elements { send, receive, count, kind }: Elements,
    operator: Option<c_int>,
    peer: c_int,
    comm: Handle,
    stream: Stream,
) -> Result<(), Status> {
    let communicator = find(comm)?;
    let kind = Kind::new(kind).ok_or(INVALID_ARGUMENT)?;
    let reduction = operator.map(|operator| communicator.reduction(kind, operator)).transpose()?;
    let peer = usize::try_from(peer).map_err(|_| INVALID_ARGUMENT)?;
    let operation = Operation { function, send, receive, count, kind, reduction, peer };
    operation.check(communicator.rank, communicator.ranks)?;
    group::operate(communicator, stream, operation)
}

// # Safety
//
// The caller of each of these functions promises that each pointer is null or has room for its value, or for as many as `count`
// states. `ids`, `devices`, `config` and `scalar` are null or as NCCL's header requires.
exported! {
    /// Returns the version of NCCL that this implements.
    pub unsafe extern "C" fn [ncclGetVersion, pncclGetVersion]
    (version: *mut c_int) -> Status {
        answer({
            // SAFETY: `# Safety` promises that `version` is null or has room for a number.
            unsafe { put(version, VERSION) }
        })
    }

    /// Creates an id.
    pub unsafe extern "C" fn [ncclGetUniqueId, pncclGetUniqueId]
    (id: *mut Id) -> Status {
        answer({
            // SAFETY: `# Safety` promises that `id` is null or has room for an id.
            identity::create().and_then(|new| unsafe { put(id, new) })
        })
    }

    /// Creates a communicator.
    pub unsafe extern "C" fn [ncclCommInitRank, pncclCommInitRank]
    (comm: *mut Handle, ranks: c_int, id: Id128, rank: c_int) -> Status {
        answer({
            // SAFETY: `# Safety` promises that `comm` is null or has room for a handle; a null configuration may be given.
            unsafe { init_rank(comm, ranks, &id.0, rank, std::ptr::null()) }
        })
    }

    /// Creates a communicator, optionally without waiting for the others.
    pub unsafe extern "C" fn [ncclCommInitRankConfig, pncclCommInitRankConfig]
    (comm: *mut Handle, ranks: c_int, id: Id128, rank: c_int, config: *const u8) -> Status {
        answer({
            // SAFETY: `# Safety` promises that `comm` is null or has room for a handle, and `config` is null or one.
            unsafe { init_rank(comm, ranks, &id.0, rank, config) }
        })
    }

    /// Creates a communicator; the first one of several ids is enough.
    pub unsafe extern "C" fn [ncclCommInitRankScalable, pncclCommInitRankScalable]
    (comm: *mut Handle, ranks: c_int, rank: c_int, count: c_int, ids: *const Id, config: *const u8) -> Status {
        answer({
            if ids.is_null() || count < 1 {
                Err(INVALID_ARGUMENT)
            } else {
                // SAFETY: not null, so `# Safety` promises an id; `comm` is null or has room for a handle, `config` null or one.
                unsafe { init_rank(comm, ranks, &*ids, rank, config) }
            }
        })
    }

    /// Creates a communicator for each of the devices.
    pub unsafe extern "C" fn [ncclCommInitAll, pncclCommInitAll]
    (comms: *mut Handle, count: c_int, devices: *const c_int) -> Status {
        answer({
            // SAFETY: `# Safety` promises that `comms` and `devices` are null or have `count` elements.
            unsafe { init_all(comms, count, devices) }
        })
    }

    /// Makes communicators of the ranks of the same colour.
    pub unsafe extern "C" fn [ncclCommSplit, pncclCommSplit]
    (comm: Handle, color: c_int, key: c_int, new: *mut Handle, _config: *const u8) -> Status {
        answer({
            // SAFETY: `# Safety` promises that `new` is null or has room for a handle.
            unsafe { split(comm, color, key, new) }
        })
    }

    /// Returns immediately: queued operations complete by themselves.
    pub unsafe extern "C" fn [ncclCommFinalize, pncclCommFinalize]
    (comm: Handle) -> Status {
        answer(find(comm).map(drop))
    }

    /// Ends a communicator when its operations have ended.
    pub unsafe extern "C" fn [ncclCommDestroy, pncclCommDestroy]
    (comm: Handle) -> Status {
        answer(end(comm, None))
    }

    /// Ends a communicator and all its operations.
    pub unsafe extern "C" fn [ncclCommAbort, pncclCommAbort]
    (comm: Handle) -> Status {
        answer(end(comm, Some(SYSTEM_ERROR)))
    }

    /// The first error of an operation.
    pub unsafe extern "C" fn [ncclCommGetAsyncError, pncclCommGetAsyncError]
    (comm: Handle, error: *mut Status) -> Status {
        answer({
            find(comm).and_then(|communicator| {
                let known = match communicator.error() {
                    SUCCESS if !communicator.is_complete() => IN_PROGRESS,
                    error => error,
                };
                // SAFETY: `# Safety` promises that `error` is null or has room for a status.
                unsafe { put(error, known) }
            })
        })
    }

    /// The number of ranks.
    pub unsafe extern "C" fn [ncclCommCount, pncclCommCount]
    (comm: Handle, count: *mut c_int) -> Status {
        answer({
            // SAFETY: `# Safety` promises that `count` is null or has room for a number.
            find(comm).and_then(|communicator| unsafe { put(count, communicator.ranks as c_int) })
        })
    }

    /// The device of a rank.
    pub unsafe extern "C" fn [ncclCommCuDevice, pncclCommCuDevice]
    (comm: Handle, device: *mut c_int) -> Status {
        answer({
            // SAFETY: `# Safety` promises that `device` is null or has room for a number.
            find(comm).and_then(|communicator| unsafe { put(device, communicator.place.device) })
        })
    }

    /// The rank.
    pub unsafe extern "C" fn [ncclCommUserRank, pncclCommUserRank]
    (comm: Handle, rank: *mut c_int) -> Status {
        answer({
            // SAFETY: `# Safety` promises that `rank` is null or has room for a number.
            find(comm).and_then(|communicator| unsafe { put(rank, communicator.rank as c_int) })
        })
    }

    /// Device memory.
    pub unsafe extern "C" fn [ncclMemAlloc, pncclMemAlloc]
    (place: *mut u64, bytes: usize) -> Status {
        answer({
            if place.is_null() || bytes == 0 {
                Err(INVALID_ARGUMENT)
            } else {
                // SAFETY: `place` is not null, so `# Safety` promises room for an address.
                allocate(bytes).and_then(|address| unsafe { put(place, address) })
            }
        })
    }

    /// Frees device memory.
    pub unsafe extern "C" fn [ncclMemFree, pncclMemFree]
    (address: u64) -> Status {
        answer(if address == 0 { Ok(()) } else { free(address) })
    }

    /// Accepts a buffer.
    pub unsafe extern "C" fn [ncclCommRegister, pncclCommRegister]
    (comm: Handle, _buffer: usize, _bytes: usize, handle: *mut Handle) -> Status {
        answer({
            if handle.is_null() {
                Err(INVALID_ARGUMENT)
            } else {
                // SAFETY: `handle` is not null, so `# Safety` promises room for a handle.
                register(comm).and_then(|made| unsafe { put(handle, made) })
            }
        })
    }

    /// Takes that back.
    pub unsafe extern "C" fn [ncclCommDeregister, pncclCommDeregister]
    (comm: Handle, handle: Handle) -> Status {
        answer({
            find(comm).and_then(|_| handles::end::<Registration>(handle).then_some(()).ok_or(INVALID_ARGUMENT))
        })
    }

    /// Returns null, because there are no windows here.
    pub unsafe extern "C" fn [ncclCommWindowRegister, pncclCommWindowRegister]
    (comm: Handle, _buffer: usize, _bytes: usize, window: *mut usize, _flags: c_int) -> Status {
        answer({
            // SAFETY: `# Safety` promises that `window` is null or has room for a window.
            find(comm).and_then(|_| unsafe { put(window, 0) })
        })
    }

    /// The end of such a window.
    pub unsafe extern "C" fn [ncclCommWindowDeregister, pncclCommWindowDeregister]
    (comm: Handle, _window: usize) -> Status {
        answer(find(comm).map(drop))
    }

    /// Creates an operator that multiplies by a scalar before it adds.
    pub unsafe extern "C" fn [ncclRedOpCreatePreMulSum, pncclRedOpCreatePreMulSum]
    (operator: *mut c_int, scalar: *const u8, kind: c_int, residence: c_int, comm: Handle) -> Status {
        answer({
            // SAFETY: `# Safety` promises that `operator` is null or has room for a number, and a scalar of `kind` or null.
            unsafe { make_operator(operator, scalar, kind, residence, comm) }
        })
    }

    /// Ends such an operator.
    pub unsafe extern "C" fn [ncclRedOpDestroy, pncclRedOpDestroy]
    (operator: c_int, comm: Handle) -> Status {
        answer({
            find(comm).and_then(|communicator| communicator.end_operator(operator))
        })
    }

    /// Each rank gets the reduced elements.
    pub unsafe extern "C" fn [ncclAllReduce, pncclAllReduce]
    (send: usize, receive: usize, count: usize, kind: c_int, operator: c_int, comm: Handle, stream: Stream) -> Status {
        answer(operate(Function::AllReduce, Elements { send, receive, count, kind }, Some(operator), 0, comm, stream))
    }

    /// Each rank gets the elements of the root.
    pub unsafe extern "C" fn [ncclBroadcast, pncclBroadcast]
    (send: usize, receive: usize, count: usize, kind: c_int, root: c_int, comm: Handle, stream: Stream) -> Status {
        answer(operate(Function::Broadcast, Elements { send, receive, count, kind }, None, root, comm, stream))
    }

    /// The same in one buffer.
    pub unsafe extern "C" fn [ncclBcast, pncclBcast]
    (buffer: usize, count: usize, kind: c_int, root: c_int, comm: Handle, stream: Stream) -> Status {
        answer(operate(Function::Broadcast, Elements { send: buffer, receive: buffer, count, kind }, None, root, comm, stream))
    }

    /// The root gets the reduced elements.
    pub unsafe extern "C" fn [ncclReduce, pncclReduce]
    (
        send: usize, receive: usize, count: usize, kind: c_int, operator: c_int, root: c_int, comm: Handle, stream: Stream,
    ) -> Status {
        answer(operate(Function::Reduce, Elements { send, receive, count, kind }, Some(operator), root, comm, stream))
    }

    /// Each rank gets the elements of all.
    pub unsafe extern "C" fn [ncclAllGather, pncclAllGather]
    (send: usize, receive: usize, count: usize, kind: c_int, comm: Handle, stream: Stream) -> Status {
        answer(operate(Function::AllGather, Elements { send, receive, count, kind }, None, 0, comm, stream))
    }

    /// Each rank gets its part of the reduced elements.
    pub unsafe extern "C" fn [ncclReduceScatter, pncclReduceScatter]
    (send: usize, receive: usize, count: usize, kind: c_int, operator: c_int, comm: Handle, stream: Stream) -> Status {
        answer(operate(Function::ReduceScatter, Elements { send, receive, count, kind }, Some(operator), 0, comm, stream))
    }

    /// Each rank gets a part of each one.
    pub unsafe extern "C" fn [ncclAlltoAll, pncclAlltoAll]
    (send: usize, receive: usize, count: usize, kind: c_int, comm: Handle, stream: Stream) -> Status {
        answer(operate(Function::AllToAll, Elements { send, receive, count, kind }, None, 0, comm, stream))
    }

    /// The root gets the elements of all.
    pub unsafe extern "C" fn [ncclGather, pncclGather]
    (send: usize, receive: usize, count: usize, kind: c_int, root: c_int, comm: Handle, stream: Stream) -> Status {
        answer(operate(Function::Gather, Elements { send, receive, count, kind }, None, root, comm, stream))
    }

    /// Each rank gets a part of the root's.
    pub unsafe extern "C" fn [ncclScatter, pncclScatter]
    (send: usize, receive: usize, count: usize, kind: c_int, root: c_int, comm: Handle, stream: Stream) -> Status {
        answer(operate(Function::Scatter, Elements { send, receive, count, kind }, None, root, comm, stream))
    }

    /// Sends to another rank.
    pub unsafe extern "C" fn [ncclSend, pncclSend]
    (send: usize, count: usize, kind: c_int, peer: c_int, comm: Handle, stream: Stream) -> Status {
        answer(operate(Function::Send, Elements { send, receive: 0, count, kind }, None, peer, comm, stream))
    }

    /// Receives from another rank.
    pub unsafe extern "C" fn [ncclRecv, pncclRecv]
    (receive: usize, count: usize, kind: c_int, peer: c_int, comm: Handle, stream: Stream) -> Status {
        answer(operate(Function::Receive, Elements { send: 0, receive, count, kind }, None, peer, comm, stream))
    }

    /// Begins a group.
    pub unsafe extern "C" fn [ncclGroupStart, pncclGroupStart]
    () -> Status {
        answer({
            group::start();
            Ok(())
        })
    }

    /// Ends a group.
    pub unsafe extern "C" fn [ncclGroupEnd, pncclGroupEnd]
    () -> Status {
        answer(group::end())
    }

    /// Ends a group. How long it would take on a GPU is not known here.
    pub unsafe extern "C" fn [ncclGroupSimulateEnd, pncclGroupSimulateEnd]
    (_information: *mut u8) -> Status {
        answer({
            group::discard();
            Err(INVALID_USAGE)
        })
    }
}

/// An id by value, as C passes a structure of its size: in memory of the caller's.
#[repr(C)]
pub struct Id128(Id);

fn end(comm: Handle, error: Option<Status>) -> Result<(), Status> {
    if comm == 0 {
        return Ok(());
    }
    if let Ok(communicator) = find(comm) {
        communicator.release();
        if let Some(error) = error {
            communicator.fail(error);
        }
    }
    handles::end::<Named>(comm).then_some(()).ok_or(INVALID_ARGUMENT)
}

/// # Safety
///
/// `operator` must be null or have room for a number. `scalar` must be null, or the address of an element of `kind`
/// in the memory that `residence` selects.
unsafe fn make_operator(
    operator: *mut c_int,
    scalar: *const u8,
    kind: c_int,
    residence: c_int,
    comm: Handle,
) -> Result<(), Status> {
    let communicator = find(comm)?;
    let kind = Kind::new(kind).filter(|kind| *kind != Kind::F8).ok_or(INVALID_ARGUMENT)?;
    if operator.is_null() || scalar.is_null() {
        return Err(INVALID_ARGUMENT);
    }
    let scalar = if residence == IN_DEVICE_MEMORY {
        Scalar::At(scalar as usize)
    } else {
        let mut bytes = [0; 8];
        // SAFETY: not null, so `# Safety` promises an element of `kind`, of which none is longer than `bytes`.
        unsafe { std::ptr::copy_nonoverlapping(scalar, bytes.as_mut_ptr(), kind.bytes()) };
        Scalar::Known(bytes)
    };
    // SAFETY: not null, so `# Safety` promises room for a number.
    unsafe { put(operator, communicator.make_operator(kind, scalar)?) }
}

exported! {
    /// The text of an error.
    pub extern "C" fn [ncclGetErrorString, pncclGetErrorString]
    (result: Status) -> *const c_char {
        text(result).as_ptr()
    }

    /// The text of the last error.
    pub extern "C" fn [ncclGetLastError, pncclGetLastError]
    (_comm: Handle) -> *const c_char {
        match LAST.load(Ordering::Relaxed) {
            SUCCESS => c"".as_ptr(),
            error => text(error).as_ptr(),
        }
    }

    /// There is no debug output.
    pub extern "C" fn [ncclResetDebugInit, pncclResetDebugInit]
    () -> () {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_handle_of_what_is_not_completed_ends() {
        let (mut place, mut known) = (7, 0);
        let late = Late::default();
        let mut make = |result| {
            let at = &raw mut place;
            let complete = || {
                // SAFETY: a place of this test's, which has the handle now.
                known = unsafe { at.read() };
                assert!(handles::with(known, |_: &mut Named| ()).is_some());
                result
            };
            // SAFETY: `at` is the place of this test, which has room for a handle.
            let answer = unsafe { hand_out(at, late.clone(), complete) };
            // SAFETY: `at` is the place of this test, which nobody writes any more.
            (answer, unsafe { at.read() }, handles::with(known, |_: &mut Named| ()).is_some())
        };
        assert_eq!(make(Err(SYSTEM_ERROR)), (Err(SYSTEM_ERROR), 0, false));
        let (answer, handle, is_known) = make(Err(IN_PROGRESS));
        assert!(answer == Err(IN_PROGRESS) && handle != 0 && is_known);
        assert!(handles::end::<Named>(handle));
        assert_eq!(Arc::strong_count(&late), 1);

        // The number of handles is limited, because handles of failed groups are never destroyed.
        let mut made = Vec::new();
        let last = loop {
            let mut place = 7;
            // SAFETY: a place of this test's.
            match unsafe { hand_out(&raw mut place, Late::default(), || Ok(())) } {
                Ok(()) => made.push(place),
                Err(error) => break (error, place),
            }
        };
        assert_eq!((last, made.len()), ((SYSTEM_ERROR, 0), MAX_HANDLES));
        assert!(made.into_iter().all(handles::end::<Named>));
        let mut place = 7;
        // SAFETY: a place of this test's.
        assert_eq!(unsafe { hand_out(&raw mut place, Late::default(), || Ok(())) }, Ok(()));
        assert!(handles::end::<Named>(place));
    }
}
