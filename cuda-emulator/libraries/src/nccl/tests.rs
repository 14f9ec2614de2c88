// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Ranks as threads and as processes, without a device: the operations run where they are called.

use std::cell::RefCell;
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use std::{env, thread};

use half::{bf16, f16};

use super::communicator::Communicator;
use super::driver::{self, HANDLE_BYTES, Handle, Place};
use super::element::{Kind, Operator};
use super::identity::{self, ID_BYTES, Id};
use super::operation::{Function, Operation, Reduction, Scalar};
use super::segment::{FAILED, ROOM};
use super::split::{self, NO_COLOR};
use super::{CUDA_ERROR, INVALID_ARGUMENT, INVALID_USAGE, REMOTE_ERROR, SUCCESS, SYSTEM_ERROR, group};

/// The files that this process has offered: other processes open them by their descriptors.
static OFFERED: Mutex<Vec<OwnedFd>> = Mutex::new(Vec::new());

pub fn offer(file: &File) -> Option<Handle> {
    let own: OwnedFd = file.try_clone().ok()?.into();
    let mut handle = [0; HANDLE_BYTES];
    handle[..4].copy_from_slice(&std::process::id().to_ne_bytes());
    handle[4..8].copy_from_slice(&own.as_raw_fd().to_ne_bytes());
    OFFERED.lock().unwrap().push(own);
    Some(handle)
}

pub fn fetch(handle: &Handle) -> Option<File> {
    let number = |at: usize| u32::from_ne_bytes(handle[at..at + 4].try_into().unwrap());
    let path = format!("/proc/{}/fd/{}", number(0), number(4));
    File::options().read(true).write(true).open(path).ok()
}

pub fn withdraw(_: &Handle) {}

/// Addresses that are no longer device memory.
static FREED: Mutex<Vec<usize>> = Mutex::new(Vec::new());

thread_local! {
    /// Counts the looks of this thread at device memory.
    static LOOKS: RefCell<Arc<AtomicUsize>> = RefCell::default();
}

pub fn reaches(address: usize, bytes: usize) -> bool {
    LOOKS.with_borrow(|looks| looks.fetch_add(1, Ordering::Relaxed));
    !FREED.lock().unwrap().iter().any(|freed| (address..address + bytes).contains(freed))
}

/// An element type for tests.
trait Number: Copy + PartialEq + std::fmt::Debug + Send + Sync + 'static {
    const KIND: Kind;
    fn of(value: f64) -> Self;
    fn value(self) -> f64;
}

/// Implements [`Number`] for the types of elements, of which each converts by functions of its own.
macro_rules! numbers {
    ($($number:ty, $kind:ident, $of:expr, $value:expr;)*) => { $(
        impl Number for $number {
            const KIND: Kind = Kind::$kind;

            fn of(value: f64) -> Self {
                let of: fn(f64) -> Self = $of;
                of(value)
            }

            fn value(self) -> f64 {
                let value: fn(Self) -> f64 = $value;
                value(self)
            }
        }
    )* };
}
numbers! {
    i8, I8, |value| value as i8, f64::from;
    u8, U8, |value| value as u8, f64::from;
    i32, I32, |value| value as i32, f64::from;
    u32, U32, |value| value as u32, f64::from;
    i64, I64, |value| value as i64, |value| value as f64;
    u64, U64, |value| value as u64, |value| value as f64;
    f16, F16, f16::from_f64, f16::to_f64;
    bf16, Bf16, bf16::from_f64, bf16::to_f64;
    f32, F32, |value| value as f32, f64::from;
    f64, F64, |value| value, |value| value;
}

/// The element of a rank: small, so that sums and products of three ranks are exact in every type.
fn element(rank: usize, index: usize) -> f64 {
    ((rank * 2 + index) % 5 + 1) as f64
}

fn elements<N: Number>(rank: usize, count: usize) -> Vec<N> {
    (0..count).map(|index| N::of(element(rank, index))).collect()
}

/// Returns the combined value of all ranks at that index, computed by a simple loop.
fn reduced<N: Number>(operator: Operator, ranks: usize, index: usize) -> N {
    let all = (0..ranks).map(|rank| element(rank, index));
    N::of(match operator {
        Operator::Sum => all.sum(),
        Operator::Product => all.product(),
        Operator::Maximum => all.fold(f64::MIN, f64::max),
        Operator::Minimum => all.fold(f64::MAX, f64::min),
        Operator::Average => N::of(all.sum::<f64>() / ranks as f64).value(),
    })
}

fn operation<N: Number>(
    function: Function,
    send: &[N],
    receive: &mut [N],
    count: usize,
    peer: usize,
) -> Operation {
    let (send, receive) = (send.as_ptr() as usize, receive.as_mut_ptr() as usize);
    Operation { function, send, receive, count, kind: N::KIND, reduction: None, peer }
}

/// Runs operations, of which each must be good.
fn run(communicator: &Communicator, operations: &[Operation]) {
    for operation in operations {
        operation.check(communicator.rank, communicator.ranks).unwrap();
    }
    communicator.run(operations).unwrap();
}

fn join(id: &Id, rank: usize, ranks: usize) -> Arc<Communicator> {
    let communicator = Communicator::join(id, rank, ranks, Place::imagined(rank as i32)).unwrap();
    communicator.wait_complete().unwrap();
    communicator
}

/// Runs `body` as each rank of a new communicator, in a thread.
fn in_threads(ranks: usize, body: impl Fn(Arc<Communicator>) + Sync) {
    let id = identity::create().unwrap();
    thread::scope(|scope| {
        for rank in 0..ranks {
            let (id, body) = (&id, &body);
            scope.spawn(move || body(join(id, rank, ranks)));
        }
    });
}

/// Every collective of one type, into other buffers and in place.
fn all_collectives<N: Number>(communicator: &Communicator, count: usize) {
    let (rank, ranks) = (communicator.rank, communicator.ranks);
    let root = ranks - 1;
    for operator in
        [Operator::Sum, Operator::Product, Operator::Maximum, Operator::Minimum, Operator::Average]
    {
        let reduction = Some(Reduction { operator, scalar: None });
        let (mut buffer, mut other) = (elements::<N>(rank, count), vec![N::of(0.0); count]);
        let expected: Vec<N> = (0..count).map(|index| reduced(operator, ranks, index)).collect();
        let apart = operation(Function::AllReduce, &buffer, &mut other, count, 0);
        run(communicator, &[Operation { reduction, ..apart }]);
        assert_eq!(other, expected, "{operator:?}");
        let to_root = operation(Function::Reduce, &buffer, &mut other, count, root);
        other.fill(N::of(0.0));
        run(communicator, &[Operation { reduction, ..to_root }]);
        assert_eq!(other, if rank == root { expected.clone() } else { vec![N::of(0.0); count] });
        let address = buffer.as_mut_ptr() as usize;
        run(communicator, &[Operation { reduction, send: address, receive: address, ..apart }]);
        assert_eq!(buffer, expected, "in place");

        let mut all: Vec<N> = elements(rank, count * ranks);
        let mut part = vec![N::of(0.0); count];
        let apart = operation(Function::ReduceScatter, &all, &mut part, count, 0);
        run(communicator, &[Operation { reduction, ..apart }]);
        let expected: Vec<N> =
            (rank * count..(rank + 1) * count).map(|index| reduced(operator, ranks, index)).collect();
        assert_eq!(part, expected);
        let send = all.as_mut_ptr() as usize;
        let receive = send + rank * count * size_of::<N>();
        run(communicator, &[Operation { reduction, send, receive, ..apart }]);
        assert_eq!(all[rank * count..(rank + 1) * count], expected, "in place");
    }
    all_moves::<N>(communicator, count, root);
}

/// The collectives that only move elements.
fn all_moves<N: Number>(communicator: &Communicator, count: usize, root: usize) {
    let (rank, ranks) = (communicator.rank, communicator.ranks);
    let mut all: Vec<N> = elements(rank, count * ranks);
    let mut into = vec![N::of(0.0); count * ranks];
    let of_rank = |of: usize, index: usize| N::of(element(of, index));
    run(communicator, &[operation(Function::AllGather, &all[..count], &mut into, count, 0)]);
    let gathered: Vec<N> = (0..count * ranks).map(|index| of_rank(index / count, index % count)).collect();
    assert_eq!(into, gathered);
    into.fill(N::of(0.0));
    run(communicator, &[operation(Function::Gather, &all[..count], &mut into, count, root)]);
    assert_eq!(into, if rank == root { gathered } else { vec![N::of(0.0); count * ranks] });
    run(communicator, &[operation(Function::AllToAll, &all, &mut into, count, 0)]);
    let exchanged: Vec<N> =
        (0..count * ranks).map(|index| of_rank(index / count, rank * count + index % count)).collect();
    assert_eq!(into, exchanged);
    run(communicator, &[operation(Function::Scatter, &all, &mut into, count, root)]);
    let scattered: Vec<N> = (0..count).map(|index| of_rank(root, rank * count + index)).collect();
    assert_eq!(into[..count], scattered);
    run(communicator, &[operation(Function::Broadcast, &all, &mut into, count, root)]);
    let of_root: Vec<N> = (0..count).map(|index| of_rank(root, index)).collect();
    assert_eq!(into[..count], of_root);
    let address = all.as_mut_ptr() as usize;
    let in_place = operation(Function::Broadcast, &[], &mut all, count, root);
    run(communicator, &[Operation { send: address, ..in_place }]);
    assert_eq!(all[..count], of_root, "in place");
}

fn collectives_of_all_types(communicator: &Communicator, count: usize) {
    all_collectives::<i8>(communicator, count);
    all_collectives::<u8>(communicator, count);
    all_collectives::<i32>(communicator, count);
    all_collectives::<u32>(communicator, count);
    all_collectives::<i64>(communicator, count);
    all_collectives::<u64>(communicator, count);
    all_collectives::<f16>(communicator, count);
    all_collectives::<bf16>(communicator, count);
    all_collectives::<f32>(communicator, count);
    all_collectives::<f64>(communicator, count);
}

#[test]
fn collectives_of_all_types_and_operators_among_threads() {
    for ranks in 1..=3 {
        // One that the ranks cannot share evenly, fewer than there are ranks, and none.
        for count in [1000, 2, 0] {
            in_threads(ranks, |communicator| {
                collectives_of_all_types(&communicator, count);
                assert_eq!(communicator.error(), SUCCESS);
            });
        }
    }
}

#[test]
fn long_buffers_go_through_the_rings_in_pieces() {
    in_threads(3, |communicator| all_collectives::<f32>(&communicator, ROOM + 12_345));
}

#[test]
fn operators_with_a_scalar_multiply_first() {
    in_threads(3, |communicator| {
        let count = ROOM / 8 + 77;
        let (buffer, mut other) = (elements::<f64>(communicator.rank, count), vec![0.0; count]);
        let scalar = (communicator.rank as f64 + 0.5).to_ne_bytes();
        let number = communicator.make_operator(Kind::F64, Scalar::Known(scalar)).unwrap();
        let reduction = communicator.reduction(Kind::F64, number).unwrap();
        assert_eq!(communicator.reduction(Kind::F32, number).err(), Some(INVALID_ARGUMENT));
        let reduce = operation(Function::AllReduce, &buffer, &mut other, count, 0);
        run(&communicator, &[Operation { reduction: Some(reduction), ..reduce }]);
        for (index, value) in other.iter().enumerate() {
            let expected: f64 = (0..3).map(|rank| element(rank, index) * (rank as f64 + 0.5)).sum();
            assert_eq!(*value, expected);
        }
        communicator.end_operator(number).unwrap();
        assert_eq!(communicator.reduction(Kind::F64, number).err(), Some(INVALID_ARGUMENT));
    });
}

#[test]
fn operators_and_groups_have_limits() {
    in_threads(1, |communicator| {
        let make = || communicator.make_operator(Kind::F64, Scalar::Known([0; 8]));
        let last = (0..4096).fold(0, |_, _| make().unwrap());
        assert_eq!(make(), Err(INVALID_USAGE));
        communicator.end_operator(last).unwrap();
        assert_eq!(make(), Ok(last + 1), "no number is used twice");

        group::start();
        assert!((0..1 << 16).all(|_| group::complete(communicator.clone()).is_ok()));
        assert_eq!(group::complete(communicator.clone()), Err(INVALID_USAGE));
        group::discard();
        assert_eq!(group::complete(communicator.clone()), Ok(()), "outside a group");
    });
}

/// Memory that the program frees while its operation waits: in the first step of an operation, and in the one after it.
#[test]
fn memory_that_goes_during_a_wait_is_not_written() {
    for (function, count) in [(Function::Receive, 10), (Function::AllReduce, 2)] {
        let id = identity::create().unwrap();
        thread::scope(|scope| {
            let other = scope.spawn(|| join(&id, 1, 2));
            let communicator = join(&id, 0, 2);
            let other = other.join().unwrap();
            let (sent, mut buffer) = (vec![1_f32; count], vec![0_f32; count]);
            let sum = Some(Reduction { operator: Operator::Sum, scalar: None });
            let reduction = if function == Function::AllReduce { sum } else { None };
            let peer = if function == Function::Receive { 1 } else { 0 };
            let receives = operation(function, &sent, &mut buffer, count, peer);
            let last = &raw const buffer[count - 1] as usize;
            let looks = Arc::<AtomicUsize>::default();
            let waiting = {
                let (communicator, looks) = (communicator.clone(), looks.clone());
                scope.spawn(move || {
                    LOOKS.set(looks);
                    run(&communicator, &[Operation { reduction, ..receives }]);
                })
            };
            // At what it reads and writes before it begins, and then as often as it waits.
            while looks.load(Ordering::Relaxed) < 6 {
                thread::yield_now();
            }
            FREED.lock().unwrap().push(last);
            let mut of_other = vec![0_f32; count];
            let function = if function == Function::Receive { Function::Send } else { function };
            let sends = operation(function, &sent, &mut of_other, count, 0);
            run(&other, &[Operation { reduction, ..sends }]);
            waiting.join().unwrap();
            FREED.lock().unwrap().retain(|freed| *freed != last);
            assert_eq!(communicator.error(), CUDA_ERROR);
            assert_eq!(buffer[count - 1], 0.0, "nothing was written");
        });
    }
}

/// A ring of long messages that no channel has room for, two for each rank, and one to itself.
fn ring(communicator: &Communicator) {
    let (rank, ranks) = (communicator.rank, communicator.ranks);
    let (count, next, before) = (ROOM, (rank + 1) % ranks, (rank + ranks - 1) % ranks);
    let (first, second) = (elements::<i32>(rank, count), elements::<i32>(rank + 7, 10));
    let (mut from_first, mut from_second, mut own) = (vec![0; count], vec![0; 10], vec![0; count]);
    run(
        communicator,
        &[
            operation(Function::Send, &first, &mut [], count, next),
            operation(Function::Send, &second, &mut [], 10, next),
            operation(Function::Receive, &[], &mut from_first, count, before),
            operation(Function::Send, &first, &mut [], count, rank),
            operation(Function::Receive, &[], &mut from_second, 10, before),
            operation(Function::Receive, &[], &mut own, count, rank),
        ],
    );
    assert_eq!(communicator.error(), SUCCESS);
    assert_eq!((from_first, from_second), (elements(before, count), elements(before + 7, 10)));
    assert_eq!(own, first);
}

#[test]
fn transfers_of_a_group_run_at_once() {
    in_threads(2, |communicator| ring(&communicator));
    in_threads(3, |communicator| ring(&communicator));
}

#[test]
fn a_split_makes_communicators_by_colour_and_key() {
    in_threads(4, |communicator| {
        let rank = communicator.rank;
        // Twice, and a third time: the places of the first split are used again.
        for round in 0..3 {
            let color = if rank == 3 { NO_COLOR } else { (rank % 2) as i32 };
            let mut begun = split::begin(&communicator, color, -(rank as i32), Arc::default()).unwrap();
            begun.gather().unwrap();
            let Some(part) = begun.join().unwrap() else {
                assert_eq!(rank, 3);
                continue;
            };
            part.wait_complete().unwrap();
            assert_eq!((part.rank, part.ranks), [(1, 2), (0, 1), (0, 2)][rank], "round {round}");
            all_collectives::<f32>(&part, 50);
        }
        assert_eq!(split::begin(&communicator, -2, 0, Arc::default()).err(), Some(INVALID_ARGUMENT));
    });
}

#[test]
fn a_split_begins_when_the_last_one_was_gathered() {
    let id = identity::create().unwrap();
    let communicators = [0, 1].map(|rank| {
        let device = Place::imagined(rank as i32);
        Communicator::join(&id, rank, 2, device).unwrap()
    });
    let begin = |rank: usize| split::begin(&communicators[rank], 0, 0, Arc::default());
    let (mut first, mut second) = (begin(0).unwrap(), begin(1).unwrap());
    assert_eq!(begin(0).err(), Some(INVALID_USAGE));
    first.gather().unwrap();
    second.gather().unwrap();
    // Abandoned: the other rank, which is later, does not wait for it.
    drop(begin(0).unwrap());
    drop(begin(0).unwrap());
    let _third = begin(0).unwrap();
    let mut behind = begin(1).unwrap();
    assert_eq!(behind.gather(), Err(INVALID_USAGE));
    // A failed rank does not block the others. The next two were published before the other rank failed.
    communicators[0].fail(SYSTEM_ERROR);
    let gather = || begin(1).unwrap().gather();
    assert_eq!([gather(), gather(), gather()], [Ok(()), Ok(()), Err(REMOTE_ERROR)]);
    assert!(begin(1).is_ok());
}

#[test]
fn ids_and_ranks_are_checked() {
    let id = identity::create().unwrap();
    let on = |id, rank, ranks, device| Communicator::join(id, rank, ranks, Place::imagined(device));
    let join = |id, rank, ranks| on(id, rank, ranks, 1);
    let first = on(&id, 0, 2, 0).unwrap();
    assert!(!first.is_complete());
    assert_eq!(on(&id, 1, 2, 0).err(), Some(INVALID_USAGE), "the device is a rank's");
    assert_eq!(join(&id, 0, 2).err(), Some(INVALID_USAGE), "there is one");
    assert_eq!(join(&id, 1, 3).err(), Some(INVALID_ARGUMENT), "others say two");
    assert_eq!(join(&id, 2, 2).err(), Some(INVALID_ARGUMENT));
    assert_eq!(join(&id, 0, 65).err(), Some(INVALID_ARGUMENT));
    assert_eq!(join(&[0; ID_BYTES], 0, 1).err(), Some(INVALID_ARGUMENT));
    let mut other = id;
    other[8..72].fill(0xff);
    assert_eq!(join(&other, 0, 1).err(), Some(SYSTEM_ERROR), "nobody has offered it");
    let second = join(&id, 1, 2).unwrap();
    assert!(first.is_complete() && second.is_complete());
    drop(first);
    assert_eq!(on(&id, 0, 2, 0).err(), Some(INVALID_USAGE), "an id is good once");
}

#[test]
fn without_the_emulator_no_file_is_passed() {
    let file = File::open("/proc/self/exe").unwrap();
    assert_eq!(driver::offer(&file), None);
    assert!(driver::fetch(&[0; HANDLE_BYTES]).is_none());
    driver::withdraw(&[0; HANDLE_BYTES]);
}

#[test]
fn calls_are_checked() {
    let (send, mut receive) = ([0_f32; 4], [0_f32; 4]);
    let good = operation(Function::Reduce, &send, &mut receive, 4, 1);
    assert_eq!(good.check(0, 2), Ok(()));
    let bad = [
        Operation { peer: 2, ..good },
        Operation { send: 0, ..good },
        Operation { count: usize::MAX / 2, ..good },
        Operation { count: usize::MAX / 8, ..good },
        Operation { send: usize::MAX - 8, ..good },
        Operation {
            kind: Kind::F8,
            reduction: Some(Reduction { operator: Operator::Sum, scalar: None }),
            ..good
        },
    ];
    for operation in bad {
        assert_eq!(operation.check(0, 2), Err(INVALID_ARGUMENT), "{operation:?}");
    }
    // Only the root receives.
    assert_eq!(Operation { receive: 0, ..good }.check(0, 2), Ok(()));
    assert_eq!(Operation { receive: 0, ..good }.check(1, 2), Err(INVALID_ARGUMENT));
}

#[test]
fn another_call_of_another_rank_is_an_error_of_both() {
    in_threads(2, |communicator| {
        let (buffer, mut other) = (elements::<f32>(0, 100), vec![0.0; 200]);
        let function = if communicator.rank == 0 { Function::AllGather } else { Function::AllToAll };
        run(&communicator, &[operation(function, &buffer, &mut other, 50, 0)]);
        assert!([INVALID_USAGE, REMOTE_ERROR].contains(&communicator.error()));
    });
}

/// Runs an operation for which rank 1 does nothing; the status that rank 0 gets.
fn of_rank_alone(id: &Id) -> i32 {
    let communicator = join(id, 0, 2);
    let mut buffer = vec![0_f32; 10];
    run(&communicator, &[operation(Function::Receive, &[], &mut buffer, 10, 1)]);
    communicator.error()
}

#[test]
fn an_abort_ends_the_waits_of_all() {
    let id = identity::create().unwrap();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| of_rank_alone(&id));
        let other = join(&id, 1, 2);
        thread::sleep(Duration::from_millis(50));
        other.fail(SYSTEM_ERROR);
        assert_eq!(waiting.join().unwrap(), REMOTE_ERROR);
    });
    // The waiting rank itself aborts.
    let id = identity::create().unwrap();
    thread::scope(|scope| {
        let (sender, receiver) = std::sync::mpsc::channel();
        let id = &id;
        let waiting = scope.spawn(move || {
            let communicator = join(id, 0, 2);
            sender.send(communicator.clone()).unwrap();
            let mut buffer = vec![0_f32; 10];
            run(&communicator, &[operation(Function::Receive, &[], &mut buffer, 10, 1)]);
            communicator.error()
        });
        let _other = join(id, 1, 2);
        let communicator = receiver.recv().unwrap();
        thread::sleep(Duration::from_millis(50));
        communicator.fail(SYSTEM_ERROR);
        assert_eq!(waiting.join().unwrap(), SYSTEM_ERROR);
    });
}

#[test]
fn a_rank_that_has_left_has_sent_all() {
    let id = identity::create().unwrap();
    let (sent, mut buffer) = (elements::<i64>(1, 1000), vec![0_i64; 1000]);
    thread::scope(|scope| {
        let other = scope.spawn(|| {
            let other = join(&id, 1, 2);
            run(&other, &[operation(Function::Send, &sent, &mut [], 1000, 0)]);
        });
        let communicator = join(&id, 0, 2);
        other.join().unwrap();
        run(&communicator, &[operation(Function::Receive, &[], &mut buffer, 1000, 1)]);
        assert_eq!((communicator.error(), &buffer), (SUCCESS, &sent));
        run(&communicator, &[operation(Function::Receive, &[], &mut buffer, 1000, 1)]);
        assert_eq!(communicator.error(), REMOTE_ERROR, "it sends nothing more");
    });
}

/// Positions of the other end that no ring can have. The other rank does nothing, and exists until the end.
#[test]
fn positions_of_a_hostile_rank_are_not_believed() {
    use std::sync::atomic::Ordering::Relaxed;
    for (is_read, position) in
        [(false, u64::MAX), (false, ROOM as u64 + 1), (false, 1 << 40), (true, 1), (true, 1 << 40)]
    {
        let ended = std::sync::Barrier::new(2);
        in_threads(2, |communicator| {
            if communicator.rank == 0 {
                let mut buffer = vec![0_f32; 10];
                if is_read {
                    communicator.segment().ends(0, 1).read.store(position, Relaxed);
                    run(&communicator, &[operation(Function::Send, &[1_f32; 10], &mut [], 10, 1)]);
                } else {
                    communicator.segment().ends(1, 0).written.store(position, Relaxed);
                    run(&communicator, &[operation(Function::Receive, &[], &mut buffer, 10, 1)]);
                }
                assert_eq!(communicator.error(), REMOTE_ERROR, "{is_read} {position}");
                assert_eq!(communicator.segment().slot(0).state.load(Relaxed), FAILED);
            }
            ended.wait();
        });
    }
}

/// Contains the rank, the number of ranks and the action, for [`rank_of_another_process`].
const RANK: &str = "CUDA_NCCL_TEST_RANK";

/// Starts this program as another rank.
fn other_process(id: &Id, rank: usize, ranks: usize, what: &str) -> std::process::Child {
    let id: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
    Command::new(env::current_exe().unwrap())
        .args(["--exact", "nccl::tests::rank_of_another_process"])
        .env(RANK, format!("{rank} {ranks} {what} {id}"))
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// Does nothing in the process that runs all tests.
#[test]
fn rank_of_another_process() {
    let Ok(task) = env::var(RANK) else { return };
    let words: Vec<&str> = task.split(' ').collect();
    let mut id = [0; ID_BYTES];
    for (index, byte) in id.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&words[3][2 * index..2 * index + 2], 16).unwrap();
    }
    let communicator = join(&id, words[0].parse().unwrap(), words[1].parse().unwrap());
    match words[2] {
        "work" => work_of_a_process(&communicator),
        _ => {
            // Without a word to anybody.
            // SAFETY: a plain system call that does not return.
            unsafe { libc::_exit(3) }
        }
    }
}

fn work_of_a_process(communicator: &Arc<Communicator>) {
    collectives_of_all_types(communicator, 300);
    all_collectives::<f32>(communicator, ROOM);
    ring(communicator);
    let mut begun = split::begin(communicator, 0, -(communicator.rank as i32), Arc::default()).unwrap();
    begun.gather().unwrap();
    let part = begun.join().unwrap().unwrap();
    part.wait_complete().unwrap();
    assert_eq!(part.rank, communicator.ranks - 1 - communicator.rank);
    ring(&part);
}

#[test]
fn processes_are_ranks() {
    for ranks in [2, 3] {
        let id = identity::create().unwrap();
        let others: Vec<_> = (1..ranks).map(|rank| other_process(&id, rank, ranks, "work")).collect();
        work_of_a_process(&join(&id, 0, ranks));
        for mut other in others {
            assert!(other.wait().unwrap().success());
        }
    }
}

#[test]
fn a_process_that_ends_ends_the_waits_of_others() {
    let id = identity::create().unwrap();
    let mut other = other_process(&id, 1, 2, "end");
    let communicator = join(&id, 0, 2);
    assert_eq!(other.wait().unwrap().code(), Some(3));
    let start = Instant::now();
    let mut buffer = vec![0_f32; 10];
    run(&communicator, &[operation(Function::Receive, &[], &mut buffer, 10, 1)]);
    assert_eq!(communicator.error(), REMOTE_ERROR);
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
}
