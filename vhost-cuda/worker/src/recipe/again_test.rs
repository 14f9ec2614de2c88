// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sessions whose objects end and are made again.

use super::*;
use crate::gpu::null;
use crate::suspend::deep::deepen;
use crate::suspend::suspended::Suspended;

const FAILURE: u32 = 999;
const STREAM: u64 = FIRST_HANDLE + 16;
const EVENT: u64 = FIRST_HANDLE + 32;
const MODULE: u64 = FIRST_HANDLE + 48;
const FUNCTION: u64 = FIRST_HANDLE + 64;

/// A suspended session without memory, with objects of several kinds.
fn suspended() -> Guest {
    let mut guest = Guest { session: FuzzSession::with_devices(1), thread: ThreadState::default() };
    for _ in 0..3 {
        guest.retain();
    }
    guest.name(Opcode::cuStreamCreateWithPriority, STREAM, &[1, 0]);
    guest.name(Opcode::cuEventCreate, EVENT, &[2]);
    guest.call_with(Opcode::cuModuleLoadData, (1, CONTEXT), &MODULE.to_le_bytes(), b"// text").unwrap();
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
    let is_done = now.deep.as_mut().unwrap().make_again(guest.session.state).is_ok();
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
        let told = deepen(guest.session.state);
        assert_eq!((told.calls, told.obstacle), (6, None));
        assert_ended(&guest);
        assert_eq!(deepen(guest.session.state).obstacle, None, "they have ended already");
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
fn what_would_be_lost_stays() {
    let refused = |make: &dyn Fn(&mut Guest)| {
        let mut guest = suspended();
        guest.session.state.gate.open();
        make(&mut guest);
        guest.session.state.gate.suspend();
        let before = guest.calls().len();
        let told = deepen(guest.session.state);
        assert_eq!(told.calls, 0);
        assert_eq!((guest.calls().len(), retains(&guest)), (before, 3), "nothing has ended");
        *guest.session.state.suspension.suspended.lock() = None;
        told.obstacle.unwrap()
    };
    let other = name(9);
    let load = |guest: &mut Guest, text: &[u8]| {
        guest.call_with(Opcode::cuModuleLoadData, (1, CONTEXT), &other.to_le_bytes(), text).unwrap();
    };
    let device = 0_u32.to_le_bytes();
    for (expected, make) in [
        (
            "times of events",
            &(|guest: &mut Guest| guest.name(Opcode::cuEventCreate, other, &[0])) as &dyn Fn(&mut Guest),
        ),
        ("graphs", &|guest: &mut Guest| guest.name(Opcode::cuGraphCreate, other, &[0])),
        ("variables", &|guest: &mut Guest| load(guest, b".global .u32 x;")),
        ("variables", &|guest: &mut Guest| {
            load(guest, b".extern .func (.param .b64 r) malloc (.param .b64 n);")
        }),
        ("pools", &|guest: &mut Guest| {
            guest.call(Opcode::cuDeviceGetDefaultMemPool, &[&device, &other.to_le_bytes()]).unwrap();
        }),
    ] {
        let told = refused(make);
        assert!(told.contains(expected), "{expected}: {told}");
    }
    let guest = suspended();
    *guest.session.state.suspension.suspended.lock() = None;
    assert_eq!(deepen(guest.session.state).obstacle.as_deref(), Some("it is not suspended"));
}
