// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Groups: the calls of a thread between `ncclGroupStart` and `ncclGroupEnd` are executed together, for all ranks of
//! the thread.

use std::cell::RefCell;
use std::sync::Arc;

use super::communicator::Communicator;
use super::driver::Event;
use super::operation::{Function, Operation};
use super::split::Begun;
use super::{INVALID_USAGE, Status};
use crate::stream::Stream;

#[derive(Default)]
struct Group {
    /// The number of `ncclGroupStart` calls that are still open: groups may contain groups, and only the outermost end counts.
    depth: usize,
    joined: Vec<Arc<Communicator>>,
    splits: Vec<Begun>,
    operations: Vec<Queued>,
    /// The first error of a call of the group, which is then the group's.
    error: Option<Status>,
}

struct Queued {
    communicator: Arc<Communicator>,
    stream: Stream,
    operation: Operation,
}

/// The maximum number of communicators, splits and operations of a group together.
const MAX_CALLS: usize = 1 << 16;

thread_local! {
    static GROUP: RefCell<Group> = RefCell::default();
}

/// `ncclGroupStart`
pub fn start() {
    GROUP.with_borrow_mut(|group| group.depth += 1);
}

/// `ncclGroupEnd`
pub fn end() -> Result<(), Status> {
    let group = GROUP.with_borrow_mut(|group| {
        group.depth = group.depth.checked_sub(1).ok_or(INVALID_USAGE)?;
        Ok::<_, Status>((group.depth == 0).then(|| std::mem::take(group)))
    })?;
    group.map_or(Ok(()), Group::run)
}

/// Ends a group without running its calls.
pub fn discard() {
    GROUP.with_borrow_mut(|group| match group.depth {
        0 | 1 => *group = Group::default(),
        _ => group.depth -= 1,
    });
}

/// Notes an error of a call.
pub fn note(error: Status) {
    GROUP.with_borrow_mut(|group| {
        if group.depth > 0 {
            group.error.get_or_insert(error);
        }
    });
}

/// Runs a call now, or at the end of the thread's group if there is one.
///
/// Errors: those of the call if it runs now; `INVALID_USAGE` for a group with more than [`MAX_CALLS`].
fn now_or_later(add: impl FnOnce(&mut Group)) -> Result<(), Status> {
    let alone = GROUP.with_borrow_mut(|group| {
        if group.depth > 0 {
            if group.joined.len() + group.splits.len() + group.operations.len() >= MAX_CALLS {
                return Err(INVALID_USAGE);
            }
            add(group);
            return Ok(None);
        }
        let mut alone = Group::default();
        add(&mut alone);
        Ok(Some(alone))
    })?;
    alone.map_or(Ok(()), Group::run)
}

/// Waits for the other ranks of a communicator.
pub fn complete(communicator: Arc<Communicator>) -> Result<(), Status> {
    now_or_later(|group| group.joined.push(communicator))
}

/// Continues a split.
pub fn split(begun: Begun) -> Result<(), Status> {
    now_or_later(|group| group.splits.push(begun))
}

/// Queues an operation.
pub fn operate(communicator: Arc<Communicator>, stream: Stream, operation: Operation) -> Result<(), Status> {
    now_or_later(|group| group.operations.push(Queued { communicator, stream, operation }))
}

impl Group {
    fn run(mut self) -> Result<(), Status> {
        if let Some(error) = self.error {
            return Err(error);
        }
        // Each step of all ranks before the next one: none of this thread's ranks keeps another one waiting.
        for split in &mut self.splits {
            split.gather()?;
        }
        for split in &self.splits {
            self.joined.extend(split.join()?);
        }
        for communicator in &self.joined {
            communicator.wait_complete()?;
        }
        while let Some(first) = self.operations.first() {
            let communicator = first.communicator.clone();
            let of_it = |queued: &mut Queued| Arc::ptr_eq(&queued.communicator, &communicator);
            let operations: Vec<Queued> = self.operations.extract_if(.., of_it).collect();
            launch(&communicator, &operations)?;
        }
        Ok(())
    }
}

/// Queues all operations of a group on one communicator, in the stream of the first one. The other streams wait for them.
fn launch(communicator: &Arc<Communicator>, operations: &[Queued]) -> Result<(), Status> {
    check_own(communicator.rank, operations)?;
    let main = operations[0].stream;
    let mut others: Vec<Stream> = operations.iter().map(|queued| queued.stream).collect();
    others.sort_unstable();
    others.dedup();
    others.retain(|stream| *stream != main);
    communicator.place.enter(|| {
        for stream in &others {
            let event = Event::new()?;
            event.record(*stream)?;
            event.hold(main)?;
        }
        communicator.enqueue(main, operations.iter().map(|queued| queued.operation).collect())?;
        if !others.is_empty() {
            let event = Event::new()?;
            event.record(main)?;
            for stream in &others {
                event.hold(*stream)?;
            }
        }
        Ok(())
    })
}

/// Checks that a rank receives from itself what it sends to itself: both must be in the same group, with the same lengths.
fn check_own(rank: usize, operations: &[Queued]) -> Result<(), Status> {
    let lengths = |function| {
        let own = operations.iter().map(|queued| queued.operation);
        let own = own.filter(|operation| operation.function == function && operation.peer == rank);
        own.map(|operation| operation.count * operation.kind.bytes()).collect::<Vec<_>>()
    };
    if lengths(Function::Send) == lengths(Function::Receive) { Ok(()) } else { Err(INVALID_USAGE) }
}
