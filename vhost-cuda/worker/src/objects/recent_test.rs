// SPDX-License-Identifier: Apache-2.0 OR MIT

use std::sync::atomic::AtomicBool;
use std::thread;

use virtio_cuda_protocol::cuda::FIRST_HANDLE;

use super::*;
use crate::objects::{Held, Table};

/// An object that records its end, and has a field that tests can read.
fn object(ended: &Arc<AtomicBool>) -> Arc<Object> {
    let ended = ended.clone();
    let raw = std::ptr::without_provenance_mut::<u8>(8);
    Arc::new(Object::new(raw).ends_by(move |_| {
        ended.store(true, Ordering::SeqCst);
        Ok(())
    }))
}

/// A table with one object.
fn table() -> (Table, Arc<AtomicBool>) {
    let (table, ended) = (Table::default(), Arc::default());
    table.reserve(FIRST_HANDLE).unwrap().fill(object(&ended)).unwrap();
    (table, ended)
}

#[test]
fn an_object_that_no_call_uses_ends_with_its_name() {
    let (table, ended) = table();
    let mut held = Held::default();
    for _ in 0..2 {
        held.named(&table, FIRST_HANDLE).unwrap();
        held.release();
    }
    assert_eq!(Object::destroy(table.remove(FIRST_HANDLE).unwrap()), Ok(()));
    assert!(ended.load(Ordering::SeqCst), "an idle executor does not keep it");
    assert!(held.named(&table, FIRST_HANDLE).is_err());
}

#[test]
fn an_object_that_a_call_uses_ends_with_the_call() {
    let (table, ended) = table();
    let mut held = Held::default();
    for known in [false, true] {
        assert!(!ended.load(Ordering::SeqCst), "{known}");
        held.named(&table, FIRST_HANDLE).unwrap();
        if known {
            break;
        }
        held.release();
    }
    Object::destroy(table.remove(FIRST_HANDLE).unwrap()).unwrap();
    assert!(!ended.load(Ordering::SeqCst));
    assert!(held.named(&table, FIRST_HANDLE).is_err(), "its name is gone for the call, too");
    held.release();
    assert!(ended.load(Ordering::SeqCst));
}

#[test]
fn a_name_that_is_given_again_is_the_new_object() {
    let (table, first) = table();
    let mut held = Held::default();
    held.named(&table, FIRST_HANDLE).unwrap();
    held.release();
    let old = table.remove(FIRST_HANDLE).unwrap();
    let new = object(&Arc::default());
    table.reserve(FIRST_HANDLE).unwrap().fill(new.clone()).unwrap();
    assert!(Arc::ptr_eq(&held.named(&table, FIRST_HANDLE).unwrap(), &new));
    drop(old);
    assert!(first.load(Ordering::SeqCst));
}

#[test]
fn objects_of_one_place_are_used_side_by_side() {
    let table = Table::default();
    let key = |name| (std::ptr::from_ref(&table).addr(), name);
    let same: Vec<u64> =
        (FIRST_HANDLE..).filter(|name| place_of(key(*name)) == place_of(key(FIRST_HANDLE))).take(3).collect();
    for name in &same {
        table.reserve(*name).unwrap().fill(object(&Arc::default())).unwrap();
    }
    let mut held = Held::default();
    for _ in 0..2 {
        let found: Vec<_> = same.iter().map(|name| held.named(&table, *name).unwrap()).collect();
        let right =
            found.iter().zip(&same).all(|(found, name)| Arc::ptr_eq(found, &table.get(*name).unwrap()));
        assert!(right);
        drop(found);
        held.release();
    }
}

#[test]
fn a_context_is_kept_until_names_of_contexts_change() {
    let ended = Arc::default();
    let context = object(&ended);
    let mut held = Held::default();
    held.keep_context(5, 1, context.clone(), || false);
    held.release();
    assert!(!held.context(5, 1), "there was a change meanwhile");
    held.keep_context(5, 2, context.clone(), || true);
    held.release();
    assert!(held.context(5, 2) && !held.context(5, 3) && !held.context(6, 2));
    held.release();
    revoke_contexts();
    assert!(!held.context(5, 2));
    drop(context);
    assert!(ended.load(Ordering::SeqCst));
}

#[test]
fn an_executor_that_ends_gives_back_what_it_has() {
    let (table, ended) = table();
    let mut held = Held::default();
    held.named(&table, FIRST_HANDLE).unwrap();
    held.release();
    drop(held);
    assert_eq!(Object::destroy(table.remove(FIRST_HANDLE).unwrap()), Ok(()));
    assert!(ended.load(Ordering::SeqCst));
}

/// Executors use an object, while another thread destroys it and makes the next one of the same name.
#[test]
fn no_call_uses_an_object_that_has_ended() {
    const ROUNDS: usize = 10_000;
    let table = Table::default();
    let over = AtomicBool::new(false);
    // The memory that an object's handle points to: whether the object has ended.
    let make = || {
        let flag = Arc::into_raw(Arc::new(AtomicBool::new(false)));
        let address = flag.addr();
        let object = Object::new(flag.cast_mut()).ends_by(move |_| {
            // SAFETY: the flags below are freed after all threads have ended.
            unsafe { &*(address as *const AtomicBool) }.store(true, Ordering::SeqCst);
            Ok(())
        });
        (Arc::new(object), address)
    };
    let mut flags = Vec::with_capacity(ROUNDS);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut held = Held::default();
                while !over.load(Ordering::Relaxed) {
                    if let Ok(object) = held.named(&table, FIRST_HANDLE) {
                        // SAFETY: the flags are freed after all threads have ended.
                        let ended = unsafe { &*object.raw::<AtomicBool>() };
                        assert!(!ended.load(Ordering::SeqCst), "a call uses it");
                    }
                    held.release();
                }
            });
        }
        for _ in 0..ROUNDS {
            let (object, flag) = make();
            flags.push(flag);
            table.reserve(FIRST_HANDLE).unwrap().fill(object).unwrap();
            for _ in 0..flags.len() % 64 {
                std::hint::spin_loop();
            }
            Object::destroy(table.remove(FIRST_HANDLE).unwrap()).unwrap();
        }
        over.store(true, Ordering::Relaxed);
    });
    for flag in flags {
        // SAFETY: created above, and used by no thread any longer.
        let flag = unsafe { Arc::from_raw(flag as *const AtomicBool) };
        assert!(flag.load(Ordering::SeqCst), "each has ended");
    }
}
