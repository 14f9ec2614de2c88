// SPDX-License-Identifier: Apache-2.0 OR MIT

use std::thread;

use super::*;
use crate::sessions::fixture::{sleeping_worker, worker_spec};

const LONG: Duration = Duration::from_secs(20);

/// Creates a pool whose workers end at once.
fn pool(warm: usize) -> WorkerPool {
    WorkerPool::start(worker_spec(), warm, None).unwrap()
}

fn idle(ready: bool) -> Idle {
    Idle { worker: sleeping_worker().0, since: Instant::now(), ready }
}

#[test]
fn a_session_is_told_when_no_worker_comes_up() {
    let pool = pool(0);
    let begun = Instant::now();
    assert!(pool.take(|| true).is_err());
    assert!(begun.elapsed() < LONG);
    assert_eq!(pool.shared.state.lock().waiting, 0);
}

#[test]
fn workers_that_nobody_waits_for_are_not_tried_without_end() {
    let begun = Instant::now();
    let pool = pool(1);
    let wait = |condition: fn(&State) -> bool| {
        while !condition(&pool.shared.state.lock()) {
            assert!(begun.elapsed() < LONG, "{:?}", pool.report());
            thread::sleep(PAUSE / 1000);
        }
    };
    // At 0 s, 1 s, 3 s, …
    wait(|state| state.started >= 3);
    assert!(begun.elapsed() >= 3 * PAUSE, "the third one was started after {:?}", begun.elapsed());
    wait(|state| state.failures >= 3);
    wait(|state| state.idle.is_empty() && state.ending.is_empty());
}

#[test]
fn a_session_that_is_wanted_no_more_waits_no_longer() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let (pool, wanted) = (pool(0), AtomicBool::new(true));
    // No worker is started, so none fails while the test waits.
    pool.shared.state.lock().not_before = Some(Instant::now() + LONG);
    thread::scope(|scope| {
        let waiter = scope.spawn(|| pool.take(|| wanted.load(Ordering::Relaxed)));
        while pool.shared.state.lock().waiting == 0 {
            thread::yield_now();
        }
        wanted.store(false, Ordering::Relaxed);
        pool.look_again();
        assert!(waiter.join().unwrap().unwrap().is_none());
    });
}

#[test]
fn workers_that_are_wanted_no_more_end_the_youngest_first() {
    let mut state = State { waiting: 3, ..State::default() };
    state.idle = [(1, idle(true)), (2, idle(false)), (3, idle(false)), (4, idle(true))].into();
    state.end_surplus(1);
    assert_eq!(state.idle.len(), 4);
    state.waiting = 1;
    state.end_surplus(1);
    assert_eq!(state.idle.keys().copied().collect::<Vec<_>>(), [1, 4]);
    state.waiting = 0;
    state.end_surplus(1);
    assert_eq!(state.idle.keys().copied().collect::<Vec<_>>(), [1]);
    assert!(state.ending.values().all(|worker| worker.process.has_ended(LONG)));
}

#[test]
fn workers_are_started_for_those_who_wait_and_then_ahead_of_need() {
    let now = Instant::now();
    let mut state = State::default();
    assert_eq!(state.next(0, now), Next::WaitUntil(None));
    assert_eq!(state.next(1, now), Next::Start);
    state.refill_at = Some(now + REFILL_DELAY);
    assert_eq!(state.next(1, now), Next::WaitUntil(Some(now + REFILL_DELAY)));
    state.waiting = 1;
    assert_eq!(state.next(1, now), Next::Start, "a session waits");
    state.idle.insert(1, idle(true));
    state.waiting = 0;
    assert_eq!(state.next(1, now), Next::WaitUntil(None));
    state.idle.clear();
    state.refill_at = None;
    state.fail(WorkerError::Ended("a test".into()), now);
    assert_eq!(state.next(1, now), Next::WaitUntil(Some(now + PAUSE)));
    for _ in 0..100 {
        state.fail(WorkerError::Ended("a test".into()), now);
    }
    assert_eq!(state.next(1, now), Next::WaitUntil(Some(now + MAX_PAUSE)));
}

#[test]
fn a_worker_that_was_not_used_goes_to_the_next_session() {
    let pool = pool(1);
    {
        let mut state = pool.shared.state.lock();
        state.no_spare_before = Some(Instant::now() + LONG);
        state.idle.clear();
        state.idle.insert(99, idle(true));
    }
    let worker = pool.take(|| true).unwrap().unwrap();
    let pid = worker.process.pid();
    pool.put_back(worker);
    assert_eq!(pool.take(|| true).unwrap().unwrap().process.pid(), pid);
}

#[test]
fn workers_of_arrived_sessions_are_replaced_later() {
    let pool = pool(0);
    let refill_at = || pool.shared.state.lock().refill_at;
    for _ in 0..2 {
        let begun = Instant::now();
        pool.arrived();
        assert!(refill_at() >= Some(begun + ARRIVAL_DELAY));
    }
    let before = refill_at();
    {
        let mut state = pool.shared.state.lock();
        state.idle.insert(99, idle(true));
        // The pool's thread ends a worker that nobody waits for, and starts no other one.
        state.waiting += 1;
        state.not_before = Some(Instant::now() + LONG);
    }
    assert!(pool.take(|| true).unwrap().is_some());
    pool.shared.state.lock().waiting -= 1;
    assert_eq!(refill_at(), before, "another session makes it no shorter");
}

#[test]
fn a_pool_that_rests_has_no_worker_in_reserve() {
    let pool = pool(1);
    let add = |number| {
        let mut state = pool.shared.state.lock();
        state.no_spare_before = Some(Instant::now() + LONG);
        state.idle.clear();
        state.idle.insert(number, idle(true));
    };
    let is_there = |number| pool.shared.state.lock().idle.contains_key(&number);
    add(98);
    let rest = pool.rest();
    let deadline = Instant::now() + LONG;
    while is_there(98) {
        assert!(Instant::now() < deadline, "it has not ended");
        std::thread::sleep(PAUSE / 1000);
    }
    drop(rest);
    add(99);
    pool.shared.wake();
    assert!(is_there(99));
}
