// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Captured calls of NVIDIA's libraries as bytes, with the calls that make their handles and have set what these were at that time. From
//! bytes that another worker has written come calls that a program could make.

use cuda_library_rows::block::SLOT;
use cuda_library_rows::{Body, Kind};
use virtio_cuda_protocol::cuda::Opcode;

use super::class::Class;
use super::kept::{Bulk, Call, Key, lives};
use super::left::{bytes_of, call_of, read};
use super::library::{called, handles_in, rule};
use super::rule::Rule;
use super::{MAX_BULK, find};
use crate::call::CallContext;
use crate::state::SessionState;

/// Returns the calls that make the handles of a call and have set what they are, in their order, and the call itself. `None` if that
/// is not known.
pub fn bytes_of_call(cx: &CallContext<'_>, arguments: &[u8], block: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    if block.len() as u64 > MAX_BULK {
        return None;
    }
    let find = |key: &Key| find(cx.session, key);
    let mut state = cx.session.recipe.0.lock();
    state.settle(&find);
    let mut calls = Vec::new();
    for classes in handles_of(arguments, block)? {
        let keys = classes.into_iter().map(|(class, id)| Key::new(class, id, cx.context));
        let known = keys.filter_map(|key| Some((key, state.kept.get(&key)?)));
        let kept = known.map(|(key, kept)| (lives(&find, &key, &kept.identity), kept));
        let (_, kept) = kept.into_iter().find(|(lives, kept)| *lives && kept.made.is_some())?;
        calls.extend(kept.calls().cloned());
    }
    drop(state);
    calls.sort_by_key(|call| call.number);
    calls.dedup_by_key(|call| call.number);
    let mut before = Vec::new();
    for call in &calls {
        let bytes = bytes_of(call)?;
        before.extend_from_slice(&u32::try_from(bytes.len()).ok()?.to_le_bytes());
        before.extend_from_slice(&bytes);
    }
    let call = Call {
        number: 0,
        opcode: Opcode::vendor_call,
        thread: cx.thread.number,
        context: cx.context,
        arguments: arguments.into(),
        results: Box::default(),
        bulk: Bulk::Bytes(block.into()),
        ends: false,
    };
    Some((before, bytes_of(&call)?))
}

/// Returns the handles of a call: each as one of its own library, or of another one whose handles it takes.
fn handles_of(arguments: &[u8], block: &[u8]) -> Option<Vec<Vec<(Class, u64)>>> {
    let (library, function) = called(arguments)?;
    let Body::Forward(call) = &function.body else { return None };
    let (slots, _) = block.as_chunks::<SLOT>();
    let mut found: Vec<_> = handles_in(arguments, block).into_iter().map(|handle| vec![handle]).collect();
    for (parameter, slot) in call.parameters.iter().zip(slots) {
        let id = u64::from_le_bytes(*slot);
        match parameter.kind {
            Kind::InStream | Kind::New(_) | Kind::End(_) => return None,
            Kind::Handle { kind, .. } if id != 0 => {
                let row = &library.handles[kind];
                if row.of.is_some() {
                    return None;
                }
                let own = Class::Handle { library: library.number, kind: kind as u32 };
                let other = row.or.as_ref().and_then(|name| cuda_library_rows::library(name));
                let other = other.map(|(number, _)| Class::Handle { library: number, kind: 0 });
                found.push([Some(own), other].into_iter().flatten().map(|class| (class, id)).collect());
            }
            _ => {}
        }
    }
    Some(found)
}

/// Reads the calls before a captured one, each with the handle that it makes or sets.
pub fn read_before(mut bytes: &[u8]) -> Option<Vec<(Key, Call)>> {
    let mut calls = Vec::new();
    while let Some((length, rest)) = bytes.split_first_chunk::<4>() {
        let (call, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        let (key, call) = call_of(call)?;
        matches!(key.class, Class::Handle { .. }).then(|| calls.push((key, call)))?;
        bytes = rest;
    }
    bytes.is_empty().then_some(calls)
}

/// Reads a captured call.
pub fn read_call(bytes: &[u8]) -> Option<Call> {
    read(bytes).filter(|call| call.opcode == Opcode::vendor_call)
}

/// Returns whether a call makes the handle that it is about.
pub fn is_making(call: &Call) -> bool {
    let rule = called(&call.arguments).and_then(|(library, function)| rule(library, function));
    matches!(rule, Some(Rule::Makes(_)))
}

/// Returns whether a call sets the stream of a handle.
pub fn is_setting_stream(call: &Call) -> bool {
    called(&call.arguments)
        .is_some_and(|(_, function)| matches!(&function.body, Body::Forward(call) if call.facts.stream_of))
}

/// Returns whether both calls are the same, whenever they were made.
pub fn is_same(one: &Call, other: &Call) -> bool {
    let bulk = |call: &Call| match &call.bulk {
        Bulk::Bytes(bytes) => Some(bytes.clone()),
        Bulk::Image(_) => None,
    };
    one.arguments == other.arguments && bulk(one) == bulk(other)
}

/// Returns the library, the function and the input of a call whose work goes to `stream`.
pub fn in_stream(call: &Call, stream: u64) -> Option<(u32, u32, Box<[u8]>)> {
    let (library, function) = called(&call.arguments)?;
    let (Body::Forward(row), Bulk::Bytes(block)) = (&function.body, &call.bulk) else { return None };
    let mut block = block.clone();
    for (index, parameter) in row.parameters.iter().enumerate() {
        if parameter.kind == Kind::Stream {
            block.get_mut(index * SLOT..(index + 1) * SLOT)?.copy_from_slice(&stream.to_le_bytes());
        }
    }
    Some((library.number, function.number, block))
}

/// Returns the library, the function and the input of a call.
pub fn as_it_is(call: &Call) -> Option<(u32, u32, Box<[u8]>)> {
    let (library, function) = called(&call.arguments)?;
    let Bulk::Bytes(block) = &call.bulk else { return None };
    Some((library.number, function.number, block.clone()))
}

/// Returns the calls that have set what a handle is now, in their order. `None` if it has ended.
pub fn settings_of(session: &SessionState, key: &Key) -> Option<Vec<Call>> {
    let find = |key: &Key| find(session, key);
    let state = session.recipe.0.lock();
    let kept = state.kept.get(key).filter(|kept| lives(&find, key, &kept.identity))?;
    let mut calls: Vec<Call> = kept.settings.values().map(|(call, _)| call.clone()).collect();
    calls.sort_by_key(|call| call.number);
    Some(calls)
}
