// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The decision table of `plan`.

use std::cell::RefCell;

use super::*;
use crate::state::memory::staging::Size;

const DEVICE: Place = Place::Device(0x1000_0000);
const PINNED: Place = Place::Pinned { host: 0x2000_0000, device: 0x3000_0000 };
const PAGEABLE: Place = Place::Pageable(0x4000_0000);
const STREAM: StreamId = StreamId(7);

/// A process for which all facts favour a fast copy.
struct Process {
    may_post: bool,
    owns: bool,
    shows_work: bool,
    delays_copies: bool,
    is_broken: bool,
    can_keep: bool,
    threads: [usize; 2],
    is_mapped: bool,
    /// The queried facts, in order.
    asked: RefCell<Vec<&'static str>>,
}

impl Default for Process {
    fn default() -> Self {
        Self {
            may_post: true,
            owns: true,
            shows_work: false,
            delays_copies: false,
            is_broken: false,
            can_keep: true,
            threads: [4, 2],
            is_mapped: true,
            asked: RefCell::default(),
        }
    }
}

impl Process {
    fn answer<T>(&self, question: &'static str, answer: T) -> T {
        self.asked.borrow_mut().push(question);
        answer
    }

    fn asked(&self) -> String {
        self.asked.take().join(" ")
    }
}

impl Facts for Process {
    fn may_post(&self, _: StreamId) -> bool {
        self.answer("may_post", self.may_post)
    }
    fn owns(&self, _: DevicePtr, _: usize) -> bool {
        self.answer("owns", self.owns)
    }
    fn shows_work(&self) -> bool {
        self.answer("shows_work", self.shows_work)
    }
    fn delays_copies(&self) -> bool {
        self.answer("delays_copies", self.delays_copies)
    }
    fn is_broken(&self) -> bool {
        self.answer("is_broken", self.is_broken)
    }
    fn can_keep(&self, _: Transfer) -> bool {
        self.answer("can_keep", self.can_keep)
    }
    fn threads(&self) -> [usize; 2] {
        self.threads
    }
    fn is_mapped(&self, _: Transfer) -> bool {
        self.answer("is_mapped", self.is_mapped)
    }
}

/// Returns a copy of a call that waits.
fn waiting(dst: Place, src: Place, bytes: usize) -> LinearCopy {
    LinearCopy { dst, src, bytes, stream: StreamId::default(), waits: true }
}

/// Returns a copy in stream order.
fn queued(dst: Place, src: Place, bytes: usize) -> LinearCopy {
    LinearCopy { dst, src, bytes, stream: STREAM, waits: false }
}

fn first(copy: LinearCopy, process: &Process) -> Plan {
    plan(&copy, None, process)
}

/// Returns the name of a plan, with a star if its call is posted.
fn name(plan: Plan) -> &'static str {
    match plan {
        Plan::DeviceToDevice { posted: true, .. } => "device to device*",
        Plan::DeviceToDevice { .. } => "device to device",
        Plan::Address { posted: true, .. } => "address*",
        Plan::Address { .. } => "address",
        Plan::AddressAndWait { .. } => "address and wait",
        Plan::Program { .. } => "program",
        Plan::Inline { posted: true, .. } => "inline*",
        Plan::Inline { .. } => "inline",
        Plan::Cached(_) => "cached",
        Plan::Staged { .. } => "staged",
        Plan::Pages(_) => "pages",
    }
}

#[test]
fn the_kinds_of_memory_decide() {
    // Per destination and source: the plan of a call that waits for 1 KiB and for 4 MiB, and the plan in stream order.
    let table = [
        (DEVICE, DEVICE, ["device to device*", "device to device*", "address*"]),
        (DEVICE, PINNED, ["inline*", "address and wait", "address*"]),
        (PINNED, DEVICE, ["address and wait", "address and wait", "address*"]),
        (PINNED, PINNED, ["address and wait", "address and wait", "address*"]),
        (DEVICE, PAGEABLE, ["inline*", "cached", "staged"]),
        (PAGEABLE, DEVICE, ["inline", "cached", "staged"]),
        (PINNED, PAGEABLE, ["program"; 3]),
        (PAGEABLE, PINNED, ["program"; 3]),
        (PAGEABLE, PAGEABLE, ["program"; 3]),
    ];
    for (dst, src, expected) in table {
        let copies = [waiting(dst, src, 1 << 10), waiting(dst, src, 4 << 20), queued(dst, src, 4 << 20)];
        let plans = copies.map(|copy| name(first(copy, &Process::default())));
        assert_eq!(plans, expected, "{src:?} to {dst:?}");
    }
}

#[test]
fn lengths_decide_about_pageable_memory() {
    let names = |copy: fn(Place, Place, usize) -> LinearCopy, dst, src| {
        [16 << 10, (16 << 10) + 1, 64 << 10, (64 << 10) + 1, (1 << 20) - 1, 1 << 20, 8 << 20]
            .map(|bytes| name(first(copy(dst, src, bytes), &Process::default())))
    };
    assert_eq!(
        names(waiting, DEVICE, PAGEABLE),
        ["inline*", "inline*", "inline*", "staged", "staged", "cached", "cached"]
    );
    assert_eq!(
        names(waiting, PAGEABLE, DEVICE),
        ["inline", "staged", "staged", "staged", "staged", "cached", "cached"]
    );
    assert_eq!(
        names(queued, DEVICE, PAGEABLE),
        ["inline*", "inline*", "inline*", "staged", "staged", "staged", "cached"]
    );
    let pinned = |bytes| name(first(waiting(DEVICE, PINNED, bytes), &Process::default()));
    assert_eq!([16 << 10, (16 << 10) + 1].map(pinned), ["inline*", "address and wait"]);
}

#[test]
fn plans_that_are_refused_have_a_next_one() {
    let process = Process::default();
    for copy in [waiting(DEVICE, PAGEABLE, 4 << 20), waiting(PAGEABLE, DEVICE, 4 << 20)] {
        let cached = first(copy, &process);
        let staged = plan(&copy, Some(&cached), &process);
        let pages = plan(&copy, Some(&staged), &process);
        assert_eq!([cached, staged, pages].map(name), ["cached", "staged", "pages"]);
    }
    // The reply carries bytes that are not staged.
    let copy = waiting(PAGEABLE, DEVICE, 32 << 10);
    assert_eq!(name(plan(&copy, Some(&first(copy, &process)), &process)), "inline");
}

#[test]
fn the_state_of_the_process_decides() {
    let plans = |process: Process| {
        let copies = [
            waiting(DEVICE, DEVICE, 8),
            queued(DEVICE, DEVICE, 8),
            waiting(DEVICE, PAGEABLE, 8),
            queued(DEVICE, PAGEABLE, 8),
            queued(DEVICE, PAGEABLE, 1 << 20),
            waiting(DEVICE, PAGEABLE, 1 << 20),
        ];
        copies.map(|copy| name(first(copy, &process)))
    };
    let all = Process::default;
    let posted = ["device to device*", "address*", "inline*", "inline*"];
    let waits = ["device to device", "address", "inline", "inline"];
    let with = |short: [&'static str; 4], long: [&'static str; 2]| {
        let ([a, b, c, d], [e, f]) = (short, long);
        [a, b, c, d, e, f]
    };
    assert_eq!(plans(all()), with(posted, ["staged", "cached"]));
    assert_eq!(plans(Process { may_post: false, ..all() }), with(waits, ["pages", "cached"]));
    assert_eq!(plans(Process { owns: false, ..all() }), with(waits, ["pages", "cached"]));
    assert_eq!(
        plans(Process { shows_work: true, ..all() }),
        with(["device to device*", "address*", "inline", "inline*"], ["staged", "cached"])
    );
    // A later call of another thread would wait for the copy, and with it for work that may wait for that call.
    assert_eq!(
        plans(Process { delays_copies: true, ..all() }),
        with(["device to device*", "address*", "inline", "inline*"], ["staged", "cached"])
    );
    // It could still write the pinned source.
    let shows_work = Process { shows_work: true, ..all() };
    assert_eq!(name(first(waiting(DEVICE, PINNED, 8), &shows_work)), "address and wait");
    assert_eq!(plans(Process { can_keep: false, ..all() }), with(posted, ["staged", "staged"]));
    for process in [
        Process { is_broken: true, ..all() },
        Process { threads: [0, 0], ..all() },
        Process { is_mapped: false, ..all() },
    ] {
        assert_eq!(plans(process), with(posted, ["pages", "cached"]));
    }
}

#[test]
fn a_per_thread_default_stream_is_a_stream() {
    let copy = LinearCopy { stream: StreamId(2), ..waiting(DEVICE, DEVICE, 8) };
    assert_eq!(name(first(copy, &Process::default())), "address*");
}

#[test]
fn ends_and_pieces_are_those_of_the_copy() {
    let copy = queued(DEVICE, PAGEABLE, 4 << 20);
    let transfer = Transfer::to_device(0x1000_0000, 0x4000_0000, 4 << 20);
    let division = Division { piece_bytes: 512 << 10, threads: 4, size: Size::Large };
    assert_eq!(first(copy, &Process::default()), Plan::Staged { transfer, division });
    let (dst, src) = (DevicePtr(0x1000_0000), DevicePtr(0x3000_0000));
    assert_eq!(
        first(queued(DEVICE, PINNED, 8), &Process::default()),
        Plan::Address { dst, src, posted: true }
    );
    let (dst, src) = (0x2000_0000, 0x4000_0000);
    assert_eq!(first(queued(PINNED, PAGEABLE, 8), &Process::default()), Plan::Program { dst, src });
    let small = Transfer::to_device(0x1000_0000, 0x2000_0000, 8);
    let inline = Plan::Inline { transfer: small, posted: true };
    assert_eq!(first(waiting(DEVICE, PINNED, 8), &Process::default()), inline);
}

#[test]
fn only_what_is_needed_is_asked_and_the_expensive_parts_last() {
    let process = Process::default();
    let asked = |copy, refused: Option<&Plan>| {
        plan(&copy, refused, &process);
        process.asked()
    };
    assert_eq!(asked(waiting(DEVICE, PAGEABLE, 8), None), "may_post shows_work delays_copies owns");
    assert_eq!(asked(queued(DEVICE, PAGEABLE, 8), None), "may_post owns");
    assert_eq!(asked(waiting(PAGEABLE, DEVICE, 8), None), "");
    assert_eq!(asked(waiting(DEVICE, DEVICE, 8), None), "may_post owns owns");
    assert_eq!(asked(waiting(DEVICE, PINNED, 1 << 20), None), "");
    let long = waiting(PAGEABLE, DEVICE, 1 << 20);
    assert_eq!(asked(long, None), "can_keep");
    let staged = "is_broken may_post owns is_mapped";
    assert_eq!(asked(long, Some(&first(long, &Process::default()))), staged);
    let copy = queued(PAGEABLE, DEVICE, 1 << 20);
    assert_eq!(asked(copy, Some(&first(copy, &Process::default()))), "", "nothing is asked twice");
}
