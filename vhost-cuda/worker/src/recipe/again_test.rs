// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sessions whose objects end and are made again.

use std::cell::Cell;

use cuda_library_rows::block::PRESENT;

use super::*;
use crate::gpu::null;
use crate::handlers::graph::again::{describe, make};
use crate::memory::bulk::BulkOut;
use crate::serve::again::make_calls;
use crate::suspend::deep::{deepen, make_graphs};
use crate::suspend::suspended::Suspended;
use crate::vendor::Vendor;

const FAILURE: u32 = 999;
const STREAM: u64 = FIRST_HANDLE + 16;
const EVENT: u64 = FIRST_HANDLE + 32;
const MODULE: u64 = FIRST_HANDLE + 48;
const FUNCTION: u64 = FIRST_HANDLE + 64;

thread_local! {
    /// The handles of libraries that have been made, and those that have ended.
    static HANDLES: Cell<(u32, u32)> = const { Cell::new((0, 0)) };
    /// The workspace that plans need.
    static WORKSPACE: Cell<i64> = const { Cell::new(64) };
}

extern "C" fn create(place: *mut u64) -> i32 {
    let (made, ended) = HANDLES.get();
    HANDLES.set((made + 1, ended));
    // SAFETY: the worker gives a place for a handle.
    unsafe { place.write(0x5000) };
    0
}

extern "C" fn create_of_type(_: i32, place: *mut u64) -> i32 {
    create(place)
}

/// The getter of attributes. That of the workspace is a plan's.
extern "C" fn get(_: u64, name: i32, _: i32, _: i64, _: *mut i64, place: *mut i64) -> i32 {
    if name == 402 {
        // SAFETY: the worker gives a place for a number.
        unsafe { place.write(WORKSPACE.get()) };
    }
    0
}

extern "C" fn end() -> i32 {
    let (made, ended) = HANDLES.get();
    HANDLES.set((made, ended + 1));
    0
}

extern "C" fn accept() -> i32 {
    0
}

extern "C" fn refuse() -> i32 {
    7
}

/// Opens libraries that accept anything.
fn open(vendor: &Vendor) {
    for name in ["cublas", "cudnn", "curand"] {
        let (number, _) = cuda_library_rows::library(name).unwrap();
        vendor.open_fake(number as usize, |name| match name {
            Some("cudnnBackendCreateDescriptor") => create_of_type as *const () as usize,
            Some("cudnnBackendGetAttribute") => get as *const () as usize,
            Some(name) if name.contains("Create") => create as *const () as usize,
            Some("cublasSetAtomicsMode") => refuse as *const () as usize,
            Some(_) => accept as *const () as usize,
            None => end as *const () as usize,
        });
    }
}

fn call_library(guest: &mut Guest, library: &str, function: &str, slots: &[u64]) {
    let (number, rows) = cuda_library_rows::library(library).unwrap();
    let function = rows.functions.iter().find(|row| row.name == function).unwrap();
    let arguments = [number, function.number].map(u32::to_le_bytes).concat();
    let block: Vec<u8> = slots.iter().flat_map(|slot| slot.to_le_bytes()).collect();
    guest.call_for_answers(Opcode::vendor_call, (1, CONTEXT), &arguments, &block, 64).unwrap();
}

/// A suspended session without memory, with objects of several kinds.
fn suspended() -> Guest {
    let mut guest = Guest { session: FuzzSession::with_devices(1, open), thread: ThreadState::default() };
    for _ in 0..3 {
        guest.retain();
    }
    guest.name(Opcode::cuStreamCreateWithPriority, STREAM, &[1, 0]);
    guest.name(Opcode::cuEventCreate, EVENT, &[0]);
    guest
        .call_with(Opcode::cuModuleLoadData, (1, CONTEXT), &MODULE.to_le_bytes(), b".global .u32 x;")
        .unwrap();
    let arguments = [MODULE, FUNCTION].map(u64::to_le_bytes).concat();
    guest.call_with(Opcode::cuModuleGetFunction, (1, CONTEXT), &arguments, b"kernel\0").unwrap();
    guest.call(Opcode::cuCtxSetCacheConfig, &[&1_u32.to_le_bytes()]).unwrap();
    guest.session.state.gate.suspend();
    *guest.session.state.suspension.suspended.lock() = Some(Suspended::default());
    guest
}

fn opcodes(calls: &[Call]) -> Vec<(Opcode, &[u8])> {
    calls.iter().map(|call| (call.opcode, &call.arguments[..])).collect()
}

fn retains(guest: &Guest) -> u32 {
    guest.session.state.contexts.lock().primary(0).retains
}

/// Resumes as far as objects go.
fn make_again(guest: &Guest) -> bool {
    let mut suspended = guest.session.state.suspension.suspended.lock();
    let now = suspended.as_mut().unwrap();
    let is_done = now.deep.as_mut().unwrap().make_again(guest.session.state, make_calls).is_ok();
    if is_done {
        now.deep = None;
    }
    is_done
}

fn assert_ended(guest: &Guest) {
    let state = guest.session.state;
    assert!(state.contexts.all().is_empty() && state.contexts.lock().is_empty());
    assert!(state.objects.streams.get(STREAM).is_err() && state.objects.functions.get(FUNCTION).is_err());
    assert_eq!(retains(guest), 0);
}

#[test]
fn objects_end_and_are_made_again_whatever_fails() {
    for fails in 0.. {
        let guest = suspended();
        let before = guest.calls();
        assert_eq!(before.len(), 6);
        let told = deepen(guest.session.state, describe);
        assert_eq!((told.calls, told.obstacle), (6, None));
        assert_ended(&guest);
        assert_eq!(deepen(guest.session.state, describe).obstacle, None, "they have ended already");
        null::script(0, fails, FAILURE);
        let is_done = make_again(&guest);
        null::script(0, 0, 0);
        assert!(is_done || fails > 0);
        if !is_done {
            assert_ended(&guest);
            assert!(make_again(&guest), "{fails}");
        }
        assert_eq!(retains(&guest), 3);
        assert_eq!(opcodes(&guest.calls()), opcodes(&before), "{fails}");
        assert!(guest.session.state.objects.functions.get(FUNCTION).is_ok());
        *guest.session.state.suspension.suspended.lock() = None;
        if is_done && fails > 0 {
            assert!(fails > 6, "each call of the driver has failed once");
            return;
        }
    }
}

#[test]
fn what_outlives_its_context_is_made_again() {
    const LIBRARY: u64 = MODULE;
    for comes_back in [false, true] {
        let mut guest = Guest { session: FuzzSession::with_devices(1, open), thread: ThreadState::default() };
        guest.retain();
        guest
            .call_with(Opcode::cuLibraryLoadData, (1, CONTEXT), &LIBRARY.to_le_bytes(), b".global .u32 x;")
            .unwrap();
        guest.release();
        if comes_back {
            guest.retain();
        }
        let before = guest.calls();
        assert_eq!((before[0].opcode, before[0].context.0), (Opcode::cuLibraryLoadData, CONTEXT));
        guest.session.state.gate.suspend();
        *guest.session.state.suspension.suspended.lock() = Some(Suspended::default());
        // The second time as the first one has noted it.
        for _ in 0..2 {
            assert_eq!(deepen(guest.session.state, describe).obstacle, None);
            assert!(guest.session.state.objects.libraries.get(LIBRARY).is_err());
            assert!(make_again(&guest), "its context comes back: {comes_back}");
            assert!(guest.session.state.objects.libraries.get(LIBRARY).is_ok());
            assert_eq!(opcodes(&guest.calls()), opcodes(&before));
        }
        *guest.session.state.suspension.suspended.lock() = None;
    }
}

#[test]
fn what_would_be_lost_stays() {
    let refused = |make: &dyn Fn(&mut Guest)| {
        let mut guest = suspended();
        guest.session.state.gate.open();
        make(&mut guest);
        guest.session.state.gate.suspend();
        let before = guest.calls().len();
        let told = deepen(guest.session.state, describe);
        assert_eq!(told.calls, 0);
        assert_eq!((guest.calls().len(), retains(&guest)), (before, 3), "nothing has ended");
        *guest.session.state.suspension.suspended.lock() = None;
        told.obstacle.unwrap()
    };
    let other = name(9);
    let load = |guest: &mut Guest, text: &[u8]| {
        guest.call_with(Opcode::cuModuleLoadData, (1, CONTEXT), &other.to_le_bytes(), text).unwrap();
    };
    for (expected, make) in [
        (
            "conditional",
            &(|guest: &mut Guest| {
                guest.name(Opcode::cuGraphCreate, other, &[0]);
                guest.name(Opcode::cuGraphConditionalHandleCreate, other, &[0, 0]);
            }) as &dyn Fn(&mut Guest),
        ),
        ("addresses", &|guest: &mut Guest| load(guest, b".global .u64 x = y;")),
        ("heaps", &|guest: &mut Guest| load(guest, b".extern .func (.param .b64 r) malloc (.param .b64 n);")),
    ] {
        let told = refused(make);
        assert!(told.contains(expected), "{expected}: {told}");
    }
    let told = refused(&|guest| {
        call_library(guest, "curand", "curandCreatePoissonDistribution", &[4_f64.to_bits(), PRESENT]);
    });
    assert_eq!(told, "curand: NVIDIA's libraries keep state of their own");
    let guest = suspended();
    *guest.session.state.suspension.suspended.lock() = None;
    assert_eq!(deepen(guest.session.state, describe).obstacle.as_deref(), Some("it is not suspended"));
}

#[test]
fn pools_and_their_thresholds_are_made_again() {
    const RELEASE_THRESHOLD: u32 = 4;
    let mut guest = suspended();
    let [standard, own] = [9, 10].map(name);
    guest.session.state.gate.open();
    let device = 0_u32.to_le_bytes();
    guest.call(Opcode::cuDeviceGetDefaultMemPool, &[&device, &standard.to_le_bytes()]).unwrap();
    guest.name(Opcode::cuMemPoolCreate, own, &[1, 1, 0, 0, 0, 0]);
    let threshold = [&own.to_le_bytes()[..], &RELEASE_THRESHOLD.to_le_bytes(), &77_u64.to_le_bytes()];
    guest.call(Opcode::cuMemPoolSetAttribute, &threshold).unwrap();
    guest.call(Opcode::cuDeviceSetMemPool, &[&device, &own.to_le_bytes()]).unwrap();
    guest.session.state.gate.suspend();
    let before = guest.calls();
    assert_eq!(before.len(), 6 + 4);
    assert_eq!(deepen(guest.session.state, describe).obstacle, None);
    assert!(guest.session.state.objects.pools.get(own).is_err());
    assert!(make_again(&guest));
    assert_eq!(data(&guest.calls()), data(&before));
    assert!([standard, own].iter().all(|pool| guest.session.state.objects.pools.get(*pool).is_ok()));
    *guest.session.state.suspension.suspended.lock() = None;
}

/// The descriptors end once more when the plan is there.
#[test]
fn a_plan_keeps_the_calls_for_what_it_was_made_from() {
    let mut guest = suspended();
    let [handle, heuristics, config, plan, other] = [9, 10, 11, 12, 13].map(name);
    guest.session.state.gate.open();
    let mut call = |function: &str, slots: &[u64]| call_library(&mut guest, "cudnn", function, slots);
    call("cudnnCreate", &[handle]);
    call("cudnnBackendCreateDescriptor", &[4, heuristics]);
    call("cudnnBackendFinalize", &[heuristics]);
    call("cudnnBackendCreateDescriptor", &[3, config]);
    call("cudnnBackendCreateDescriptor", &[3, other]);
    call("cudnnBackendGetAttribute", &[heuristics, 202, 15, 2, 0, PRESENT, other, config]);
    // The plan does not need this one, but the call above does.
    call("cudnnBackendDestroyDescriptor", &[other]);
    call("cudnnBackendCreateDescriptor", &[5, plan]);
    call("cudnnBackendSetAttribute", &[plan, 400, 0, 1, PRESENT, handle]);
    call("cudnnBackendSetAttribute", &[plan, 401, 15, 1, PRESENT, config]);
    call("cudnnBackendFinalize", &[plan]);
    call("cudnnBackendDestroyDescriptor", &[heuristics]);
    call("cudnnBackendDestroyDescriptor", &[config]);
    guest.session.state.gate.suspend();
    let (number, _) = cuda_library_rows::library("cudnn").unwrap();
    for _ in 0..2 {
        let before = guest.calls();
        assert_eq!(before.len(), 6 + 6 + 2 + 3);
        assert_eq!(deepen(guest.session.state, describe).obstacle, None);
        WORKSPACE.set(65);
        assert!(!make_again(&guest), "it is another plan");
        WORKSPACE.set(64);
        assert!(make_again(&guest));
        assert_eq!(data(&guest.calls()), data(&before));
        let there = [(0, handle), (1, heuristics), (1, config), (1, other), (1, plan)]
            .map(|(kind, id)| guest.session.state.vendor.handle(number, kind, id).is_some());
        assert_eq!(there, [true, false, false, false, true]);
        *guest.session.state.suspension.suspended.lock() = Some(Suspended::default());
    }
    *guest.session.state.suspension.suspended.lock() = None;
    guest.session.state.gate.open();
    call_library(&mut guest, "cudnn", "cudnnBackendDestroyDescriptor", &[plan]);
    assert_eq!(guest.calls().len(), 6 + 1);
}

#[test]
fn handles_of_libraries_end_and_are_made_again() {
    HANDLES.set((0, 0));
    let mut guest = suspended();
    let handle = name(9);
    guest.session.state.gate.open();
    call_library(&mut guest, "cublas", "cublasCreate_v2", &[handle]);
    call_library(&mut guest, "cublas", "cublasSetMathMode", &[handle, 1]);
    call_library(&mut guest, "cublas", "cublasSetStream_v2", &[handle, STREAM]);
    call_library(&mut guest, "cublas", "cublasSetMathMode", &[handle, 2]);
    call_library(&mut guest, "cublas", "cublasGetVersion_v2", &[handle, 1]);
    // The library has refused it, and would do so again.
    call_library(&mut guest, "cublas", "cublasSetAtomicsMode", &[handle, 9]);
    guest.session.state.gate.suspend();
    let before = guest.calls();
    assert_eq!(before.len(), 6 + 3, "the last one of each setting");
    assert_eq!(deepen(guest.session.state, describe).obstacle, None);
    assert_ended(&guest);
    let has_handle = |guest: &Guest| guest.session.state.vendor.handle(0, 0, handle).is_some();
    assert_eq!((HANDLES.get(), has_handle(&guest)), ((1, 1), false));
    for fails in 1.. {
        null::script(0, fails, FAILURE);
        let is_done = make_again(&guest);
        null::script(0, 0, 0);
        assert_eq!(has_handle(&guest), is_done, "what was made has ended");
        if is_done {
            break;
        }
    }
    let (made, ended) = HANDLES.get();
    assert_eq!(made, ended + 1);
    assert_eq!(data(&guest.calls()), data(&before));
    let bulk = |calls: &[Call]| calls.iter().map(|call| format!("{:?}", call.bulk)).collect::<Vec<_>>();
    assert_eq!(bulk(&guest.calls()), bulk(&before));
    *guest.session.state.suspension.suspended.lock() = None;
    // Its settings end with the handle.
    guest.session.state.gate.open();
    call_library(&mut guest, "cublas", "cublasDestroy_v2", &[handle]);
    assert_eq!(guest.calls().len(), 6);
}

/// A suspended session with a graph that only its executable graph needs, and a user object of both.
fn with_graph(guest: &mut Guest) -> (u64, u64, u64) {
    let [graph, exec, object] = [9, 10, 11].map(name);
    guest.session.state.gate.open();
    guest.name(Opcode::cuGraphCreate, graph, &[0]);
    let id = object.to_le_bytes();
    guest.call(Opcode::cuUserObjectCreate, &[&id, &id, &2_u32.to_le_bytes(), &1_u32.to_le_bytes()]).unwrap();
    let one = 1_u32.to_le_bytes();
    guest.call(Opcode::cuGraphRetainUserObject, &[&graph.to_le_bytes(), &id, &one, &one]).unwrap();
    let names = [exec, graph, 0].map(u64::to_le_bytes).concat();
    guest.call(Opcode::cuGraphInstantiateWithFlags, &[&names]).unwrap();
    guest.name(Opcode::cuGraphDestroy, graph, &[]);
    guest.session.state.gate.suspend();
    (graph, exec, object)
}

/// Ends all objects, with a graph that has no nodes: this driver has other nodes each time.
fn deepen_without_nodes(state: &'static SessionState) -> Vec<u8> {
    for seed in 0.. {
        null::script(seed, 0, 0);
        if deepen(state, describe).obstacle.is_none() {
            let mut suspended = state.suspension.suspended.lock();
            let now = suspended.as_mut().unwrap();
            // The number of nodes of the only graph, behind the head and the user object.
            if now.graphs[40 + 16 + 8..][..8] == [0; 8] {
                return now.graphs.clone();
            }
            assert!(now.deep.as_mut().unwrap().make_again(state, make_calls).is_ok());
            (now.deep, now.graphs) = (None, Vec::new());
        }
    }
    unreachable!()
}

#[test]
fn graphs_end_and_are_made_again_whatever_fails() {
    let mut guest = suspended();
    let state = guest.session.state;
    let (graph, exec, object) = with_graph(&mut guest);
    let bytes = deepen_without_nodes(state);
    assert!(state.graphs.rows().is_ok_and(|(graphs, execs)| graphs.is_empty() && execs.is_empty()));
    assert!(state.objects.user_objects.rows().is_empty());
    null::script(0, 0, 0);
    assert!(make_again(&guest));
    for end in 1..bytes.len() {
        assert!(make_graphs(state, &mut bytes[..end].to_vec(), make).is_err(), "{end} of {}", bytes.len());
    }
    assert!(make_graphs(state, &mut [&bytes[..], &[0]].concat(), make).is_err(), "bytes are left");
    for fails in 1.. {
        null::script(0, fails, FAILURE);
        let mut graphs = bytes.clone();
        let made = make_graphs(state, &mut graphs, make);
        null::script(0, 0, 0);
        if made.is_ok() {
            assert!(graphs.is_empty() && fails > 6, "each call of the driver has failed once");
            break;
        }
        assert_eq!(graphs, bytes, "it can be repeated");
        assert!(state.objects.user_objects.rows().is_empty());
    }
    let (graphs, execs) = state.graphs.rows().unwrap();
    assert!(graphs.len() == 1 && graphs[0].is_hidden && graphs[0].user_objects == [(object, 1)]);
    assert!(execs.len() == 1 && execs[0].name.0 == exec && execs[0].graph == graphs[0].name);
    assert_eq!(state.objects.user_objects.rows(), [(object, 1)]);
    *state.suspension.suspended.lock() = None;
    state.gate.open();
    assert!(guest.call(Opcode::cuGraphDestroy, &[&graph.to_le_bytes()]).is_err());
    guest.name(Opcode::cuGraphExecDestroy, exec, &[]);
    assert!(state.graphs.rows().unwrap().0.is_empty());
}

#[test]
fn generators_give_their_numbers_again() {
    let mut guest = suspended();
    let generator = name(9);
    guest.session.state.gate.open();
    let mut call = |function: &str, others: &[u64]| {
        call_library(&mut guest, "curand", function, &[&[generator], others].concat());
    };
    call("curandCreateGenerator", &[101]);
    call("curandSetPseudoRandomGeneratorSeed", &[1]);
    call("curandGenerate", &[4096, 10]);
    call("curandSetGeneratorOffset", &[64]);
    for function in ["curandGenerateUniform", "curandGenerate", "curandGenerateUniform"] {
        call(function, &[4096, 10]);
    }
    call("curandSetPseudoRandomGeneratorSeed", &[1]);
    call("curandSetStream", &[STREAM]);
    guest.session.state.gate.suspend();
    let (number, rows) = cuda_library_rows::library("curand").unwrap();
    let functions = |guest: &Guest| -> Vec<&str> {
        let calls = guest.calls();
        let called = calls.iter().filter_map(|call| library::called(&call.arguments));
        called.filter(|(rows, _)| rows.number == number).map(|(_, function)| function.name).collect()
    };
    let wanted =
        [0, 7, 8, 18, 16, 18, 7, 6].map(|number| rows.functions[rows.numbered(number).unwrap()].name);
    assert_eq!(functions(&guest), wanted, "those since the position was set, in their order");
    let before = guest.calls();
    for _ in 0..2 {
        assert_eq!(deepen(guest.session.state, describe).obstacle, None);
        assert!(make_again(&guest));
        assert_eq!(data(&guest.calls()), data(&before));
        *guest.session.state.suspension.suspended.lock() = Some(Suspended::default());
    }
    *guest.session.state.suspension.suspended.lock() = None;
    guest.session.state.gate.open();
    for _ in 0..generators::MAX_CALLS {
        call_library(&mut guest, "curand", "curandGenerate", &[generator, 4096, 10]);
    }
    guest.session.state.gate.suspend();
    *guest.session.state.suspension.suspended.lock() = Some(Suspended::default());
    let told = deepen(guest.session.state, describe).obstacle.unwrap();
    assert_eq!(told, "curand: a generator has given too many numbers");
}

#[test]
fn captured_calls_keep_what_their_handles_were() {
    let mut guest = suspended();
    let session = guest.session.state;
    let handle = name(9);
    session.gate.open();
    call_library(&mut guest, "cublas", "cublasCreate_v2", &[handle]);
    call_library(&mut guest, "cublas", "cublasSetStream_v2", &[handle, STREAM]);
    call_library(&mut guest, "cublas", "cublasSetMathMode", &[handle, 1]);
    let (number, rows) = cuda_library_rows::library("cublas").unwrap();
    let function = rows.functions.iter().find(|row| row.name == "cublasSgemm_v2").unwrap();
    let arguments = [number, function.number].map(u32::to_le_bytes).concat();
    let block = |handle: u64| [handle.to_le_bytes(), [0; 8]].concat();
    let cx = CallContext {
        session,
        thread: &mut guest.thread,
        context: ContextId(CONTEXT),
        api_call: 0,
        bulk_in: BulkIn::Inline(&[]),
        bulk_out: BulkOut::inline(0),
        kept: None,
    };
    assert!(captured::bytes_of_call(&cx, &arguments, &block(name(10))).is_none(), "no such handle");
    let (before, call) = captured::bytes_of_call(&cx, &arguments, &block(handle)).unwrap();
    call_library(&mut guest, "cublas", "cublasSetMathMode", &[handle, 2]);
    let calls = captured::read_before(&before).unwrap();
    let class = Class::Handle { library: number, kind: 0 };
    assert!(calls.iter().all(|(key, _)| (key.class, key.id) == (class, handle)));
    let calls: Vec<Call> = calls.into_iter().map(|(_, call)| call).collect();
    assert_eq!(calls.iter().map(captured::is_making).collect::<Vec<_>>(), [true, false, false]);
    assert_eq!(calls.iter().map(captured::is_setting_stream).collect::<Vec<_>>(), [false, true, false]);
    let now = captured::settings_of(session, &Key::new(class, handle, ContextId(CONTEXT))).unwrap();
    let is_set = |call: &Call| now.iter().any(|other| captured::is_same(call, other));
    assert_eq!(calls.iter().map(is_set).collect::<Vec<_>>(), [false, true, false], "of another mode now");
    let (_, _, other) = captured::in_stream(&calls[1], 77).unwrap();
    assert_eq!(other[8..], 77_u64.to_le_bytes());
    assert_eq!(captured::read_call(&call).unwrap().arguments[..], arguments[..]);
    // Of what another worker writes nothing is trusted.
    for end in 1..before.len() {
        assert!(captured::read_before(&before[..end]).is_none_or(|calls| calls.len() < 3));
    }
    assert!(captured::read_before(&[&(call.len() as u32).to_le_bytes()[..], &call].concat()).is_none());
    assert!((0..call.len()).all(|end| {
        captured::read_call(&call[..end]).is_none_or(|call| matches!(call.bulk, Bulk::Bytes(_)))
    }));
}
