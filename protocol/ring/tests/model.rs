// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR BSD-3-Clause

//! Every interleaving of the hand-off, also those that only a weak memory model has:
//! `RUSTFLAGS="--cfg loom" cargo test -p virtio-cuda-ring --release --test model`.

#![cfg(loom)]

mod common;
mod order;

use common::lane;
use loom::sync::{Arc, Condvar, Mutex};
use virtio_cuda_ring::{Consumer, Kind, Producer};

/// The waking part of the executor's inbox: an early wake-up is not lost.
#[derive(Default)]
struct Inbox {
    woken: Mutex<bool>,
    changed: Condvar,
}

impl Inbox {
    fn wake(&self) {
        *self.woken.lock().unwrap() = true;
        self.changed.notify_one();
    }
    fn wait(&self) {
        let mut woken = self.woken.lock().unwrap();
        while !*woken {
            woken = self.changed.wait(woken).unwrap();
        }
        *woken = false;
    }
}

/// Takes `count` records out, sleeping whenever there is none. A lost wake-up is a deadlock, which loom reports.
fn consume(mut consumer: Consumer, inbox: &Inbox, count: u64) -> Consumer {
    let mut contents = Vec::new();
    let mut got = 0;
    while got < count {
        match consumer.next(&mut contents).unwrap() {
            Some(record) => {
                got += 1;
                assert_eq!((record.number, contents[0]), (got, got as u8));
                if record.kind == Kind::Wait {
                    consumer.reply(record.number, &[got as u8]);
                }
                consumer.release();
            }
            None => {
                if consumer.sleep() {
                    inbox.wait();
                    consumer.wake();
                }
            }
        }
    }
    consumer
}

#[test]
fn no_wake_up_is_lost() {
    loom::model(|| {
        let (memory, _) = lane();
        let consumer = Consumer::set_up(memory.clone());
        let mut producer = Producer::new(memory);
        let inbox = Arc::new(Inbox::default());
        let theirs = inbox.clone();
        let executor = loom::thread::spawn(move || consume(consumer, &theirs, 2));
        for number in 1..=2 {
            if producer.push(Kind::Post, number, &[&[number as u8]]) {
                inbox.wake();
            }
        }
        executor.join().unwrap();
        assert!(producer.is_drained());
    });
}

#[test]
fn room_is_reused_only_when_it_was_read() {
    loom::model(|| {
        let (memory, _) = lane();
        let mut consumer = Consumer::set_up(memory.clone());
        let mut producer = Producer::new(memory);
        // The ring has room for two of these; the third reuses the first one's.
        let executor = loom::thread::spawn(move || {
            let mut contents = Vec::new();
            for number in 1..=3 {
                while consumer.next(&mut contents).unwrap().is_none() {
                    loom::thread::yield_now();
                }
                assert_eq!(contents, [number; 16]);
                consumer.release();
            }
        });
        for number in 1..=3_u8 {
            while producer.must_wait(16).is_some() {
                loom::thread::yield_now();
            }
            let _ = producer.push(Kind::Post, number.into(), &[&[number; 16]]);
        }
        executor.join().unwrap();
    });
}

#[test]
fn a_reply_is_read_whole() {
    loom::model(|| {
        let (memory, _) = lane();
        let consumer = Consumer::set_up(memory.clone());
        let mut producer = Producer::new(memory);
        let inbox = Arc::new(Inbox::default());
        let theirs = inbox.clone();
        let executor = loom::thread::spawn(move || consume(consumer, &theirs, 1));
        if producer.push(Kind::Wait, 1, &[&[1]]) {
            inbox.wake();
        }
        let mut room = [0];
        let bytes = loop {
            match producer.reply(1, &mut room) {
                Some(bytes) => break bytes,
                None => loom::thread::yield_now(),
            }
        };
        assert_eq!((bytes, room), (1, [1]));
        executor.join().unwrap();
    });
}

/// The second consumer finds what came while there was none, and misses no wake-up.
#[test]
fn another_consumer_goes_on_where_the_first_one_has_stopped() {
    loom::model(|| {
        let (memory, _) = lane();
        let mut first = Consumer::set_up(memory.clone());
        let mut producer = Producer::new(memory.clone());
        let inbox = Arc::new(Inbox::default());
        let theirs = inbox.clone();
        let executor = loom::thread::spawn(move || {
            let mut contents = Vec::new();
            if first.next(&mut contents).unwrap().is_some() {
                first.put_back();
            } else {
                // It is told to stop while it sleeps.
                let _ = first.sleep();
            }
            let next = Consumer::resume(memory, first.consumed()).unwrap();
            consume(next, &theirs, 2)
        });
        for number in 1..=2 {
            if producer.push(Kind::Post, number, &[&[number as u8]]) {
                inbox.wake();
            }
        }
        executor.join().unwrap();
        assert!(producer.is_drained());
    });
}
