// SPDX-License-Identifier: Apache-2.0 OR MIT

//! A communicator as one rank has it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use super::channel::Links;
use super::driver::{Event, Place, capture_of};
use super::element::{Kind, Operator};
use super::identity::{self, Id};
use super::operation::{Operation, Reduction, Scalar};
use super::peers::{self, PAUSE, Watch};
use super::segment::{ABSENT, CLAIMED, FAILED, JOINED, LEFT, MAX_RANKS, Segment};
use super::task::{Advance, Scale, Task, reaches};
use super::{CUDA_ERROR, INVALID_ARGUMENT, INVALID_USAGE, REMOTE_ERROR, SUCCESS, Status, locked};
use crate::stream::{Done, Fault, Stream, queue};

/// Numbers of operators with a scalar begin here; those of NCCL are below.
const FIRST_OPERATOR: i32 = 1 << 10;
/// The maximum number of such operators of a communicator.
const MAX_OPERATORS: usize = 1 << 12;

/// Operators with a scalar.
struct Scalars {
    known: HashMap<i32, (Kind, Scalar)>,
    /// The number of the next one: none is used twice.
    next: i32,
}

/// A communicator.
pub struct Communicator {
    segment: Arc<Segment>,
    id: Id,
    pub rank: usize,
    pub ranks: usize,
    pub place: Place,
    /// The first error of an operation.
    error: AtomicI32,
    /// Held while operations run.
    links: Mutex<Links>,
    /// The end of the operations that were queued last. Held while operations are queued.
    last: Mutex<Option<Event>>,
    scalars: Mutex<Scalars>,
    /// The number of the last split that was begun.
    pub splits: AtomicU64,
    /// The number of the last split that was gathered, or has failed.
    pub gathered: AtomicU64,
}

impl Communicator {
    /// Joins as a rank; does not wait for the others.
    pub fn join(id: &Id, rank: usize, ranks: usize, place: Place) -> Result<Arc<Self>, Status> {
        if ranks > MAX_RANKS || rank >= ranks {
            return Err(INVALID_ARGUMENT);
        }
        let segment = identity::find(id)?;
        if !segment.agree(ranks) {
            return Err(INVALID_ARGUMENT);
        }
        if !segment.occupy(place.device) {
            return Err(INVALID_USAGE);
        }
        let state = &segment.slot(rank).state;
        if state.compare_exchange(ABSENT, CLAIMED, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            segment.vacate(place.device);
            return Err(INVALID_USAGE);
        }
        peers::show(&segment, rank);
        state.store(JOINED, Ordering::Release);
        segment.ring_all(ranks);
        Ok(Arc::new(Self {
            links: Mutex::new(Links::new(segment.clone(), rank, ranks)),
            segment,
            id: *id,
            rank,
            ranks,
            place,
            error: AtomicI32::new(SUCCESS),
            last: Mutex::default(),
            scalars: Mutex::new(Scalars { known: HashMap::new(), next: FIRST_OPERATOR }),
            splits: AtomicU64::new(0),
            gathered: AtomicU64::new(0),
        }))
    }

    /// The memory that the ranks share.
    pub fn segment(&self) -> &Arc<Segment> {
        &self.segment
    }

    /// Returns whether all ranks have joined.
    pub fn is_complete(&self) -> bool {
        let is_complete = (0..self.ranks).all(|rank| peers::has_joined(&self.segment, rank));
        if is_complete {
            identity::close(&self.id);
        }
        is_complete
    }

    /// Waits until all ranks have joined.
    pub fn wait_complete(&self) -> Result<(), Status> {
        let joined = |rank| peers::has_joined(&self.segment, rank);
        let result = peers::wait_until(&self.segment, self.rank, self.ranks, joined);
        identity::close(&self.id);
        result.inspect_err(|error| self.fail(*error))
    }

    /// The first error of its operations, or `SUCCESS`.
    pub fn error(&self) -> Status {
        self.error.load(Ordering::Acquire)
    }

    /// Ends the communicator for all ranks.
    pub fn fail(&self, error: Status) {
        let _ = self.error.compare_exchange(SUCCESS, error, Ordering::AcqRel, Ordering::Relaxed);
        self.segment.slot(self.rank).state.store(FAILED, Ordering::Release);
        self.segment.ring_all(self.ranks);
    }

    /// The operator of an `ncclRedOp_t`.
    pub fn reduction(&self, kind: Kind, number: i32) -> Result<Reduction, Status> {
        if let Some(operator) = Operator::new(number) {
            return Ok(Reduction { operator, scalar: None });
        }
        match locked(&self.scalars).known.get(&number) {
            Some((of, scalar)) if *of == kind => {
                Ok(Reduction { operator: Operator::Sum, scalar: Some(*scalar) })
            }
            _ => Err(INVALID_ARGUMENT),
        }
    }

    /// Creates an operator that multiplies by a scalar before it adds.
    ///
    /// Errors: there are too many.
    pub fn make_operator(&self, kind: Kind, scalar: Scalar) -> Result<i32, Status> {
        let mut scalars = locked(&self.scalars);
        if scalars.known.len() >= MAX_OPERATORS {
            return Err(INVALID_USAGE);
        }
        let number = scalars.next;
        scalars.next = number.checked_add(1).ok_or(INVALID_USAGE)?;
        scalars.known.insert(number, (kind, scalar));
        Ok(number)
    }

    /// Ends such an operator. Operations that were given have its value.
    pub fn end_operator(&self, number: i32) -> Result<(), Status> {
        locked(&self.scalars).known.remove(&number).map(drop).ok_or(INVALID_ARGUMENT)
    }

    /// Queues operations in a stream. Operations that were queued before come first, in any stream.
    pub fn enqueue(self: &Arc<Self>, stream: Stream, operations: Vec<Operation>) -> Result<(), Status> {
        if self.error() != SUCCESS {
            return Err(self.error());
        }
        let cuda = |_| CUDA_ERROR;
        if let Some(capture) = capture_of(stream)? {
            if !self.segment.capture(capture, self.rank) {
                return Err(INVALID_USAGE);
            }
            // The work stays as long as the process, the communicator does not.
            let this = Arc::downgrade(self);
            return queue(stream, move || this.upgrade().map_or(Ok(()), |this| this.run(&operations)))
                .map_err(cuda);
        }
        let mut last = locked(&self.last);
        match &*last {
            Some(last) => last.hold(stream)?,
            None => *last = Some(Event::new()?),
        }
        let this = self.clone();
        queue(stream, move || this.run(&operations)).map_err(cuda)?;
        last.as_ref().map_or(Ok(()), |last| last.record(stream))
    }

    /// Gives up what only the calling program's threads may give up.
    pub fn release(&self) {
        *locked(&self.last) = None;
    }

    /// Runs operations. An NCCL error becomes the error of the communicator, and the stream continues.
    pub fn run(&self, operations: &[Operation]) -> Done {
        let mut links = locked(&self.links);
        let steps = match self.steps(operations) {
            Ok(steps) => steps,
            Err(fault) => {
                self.fail(CUDA_ERROR);
                return Err(fault);
            }
        };
        for step in steps {
            if let Err(error) = self.check().and_then(|()| self.run_step(step, &mut links)) {
                self.fail(error);
                break;
            }
        }
        Ok(())
    }

    /// Returns the steps of all operations, whose memory is checked. Collectives come one after the other, followed
    /// by all transfers between ranks together.
    fn steps(&self, operations: &[Operation]) -> Result<Vec<Vec<Task>>, Fault> {
        let (mut steps, mut transfers) = (Vec::new(), Vec::new());
        for operation in operations {
            for (address, bytes) in
                [operation.reads(self.rank, self.ranks), operation.writes(self.rank, self.ranks)]
            {
                if bytes > 0 && !reaches(address, bytes) {
                    return Err(Fault);
                }
            }
            let mut of_it = operation.steps(self.rank, self.ranks, scale_of(operation)?);
            if operation.is_point_to_point() {
                transfers.extend(of_it.drain(..).flatten());
            } else {
                steps.append(&mut of_it);
            }
        }
        steps.push(transfers);
        Ok(steps)
    }

    fn run_step(&self, mut tasks: Vec<Task>, links: &mut Links) -> Result<(), Status> {
        let (mut watch, mut doubted) = (Watch::default(), None);
        while !tasks.is_empty() {
            let bell = self.segment.bell(self.rank);
            // The program may have freed it since the last look, during a wait or an earlier step.
            if !tasks.iter().all(Task::is_there) {
                return Err(CUDA_ERROR);
            }
            let waits = pass(&mut tasks, links)?;
            let Some(waits) = waits else {
                doubted = None;
                continue;
            };
            self.check()?;
            // It might have done its part before it ended, so its channels were checked once more.
            if doubted.is_some_and(|ended: usize| waits & (1 << ended) != 0) {
                return Err(REMOTE_ERROR);
            }
            let awaited = (0..self.ranks).filter(|rank| *rank != self.rank && waits & (1 << rank) != 0);
            doubted = awaited.into_iter().find(|rank| watch.has_ended(&self.segment, *rank));
            if doubted.is_none() {
                self.segment.wait(self.rank, bell, PAUSE);
            }
        }
        Ok(())
    }

    /// Errors: an operation has failed here or elsewhere.
    fn check(&self) -> Result<(), Status> {
        if self.error() != SUCCESS {
            return Err(self.error());
        }
        let has_failed = |rank| self.segment.slot(rank).state.load(Ordering::Acquire) == FAILED;
        if (0..self.ranks).any(has_failed) { Err(REMOTE_ERROR) } else { Ok(()) }
    }
}

impl Drop for Communicator {
    fn drop(&mut self) {
        identity::close(&self.id);
        self.segment.vacate(self.place.device);
        let state = &self.segment.slot(self.rank).state;
        let _ = state.compare_exchange(JOINED, LEFT, Ordering::AcqRel, Ordering::Relaxed);
        self.segment.ring_all(self.ranks);
    }
}

/// Lets each task go on once. Those that have ended are removed. The ranks that the others wait for, by bits; `None`: something
/// has happened.
fn pass(tasks: &mut Vec<Task>, links: &mut Links) -> Result<Option<u64>, Status> {
    let (mut written, mut read, mut waits, mut moved) = (0_u64, 0_u64, 0_u64, false);
    let mut error = None;
    tasks.retain_mut(|task| {
        let (to, from) = task.channels();
        let is_first = error.is_none() && to & written == 0 && from & read == 0;
        (written, read) = (written | to, read | from);
        if !is_first {
            return true;
        }
        // SAFETY: its memory was there just before this pass. Device memory that is freed meanwhile stays mapped, and nothing else
        // comes to its addresses; pinned memory is freed when no work is under way.
        match unsafe { task.advance(links) } {
            Ok(Advance::Done) => {
                moved = true;
                return false;
            }
            Ok(Advance::Moved) => moved = true,
            Ok(Advance::Waits(rank)) => waits |= 1 << rank,
            Err(status) => error = Some(status),
        }
        true
    });
    match error {
        Some(status) => Err(status),
        None => Ok((!moved).then_some(waits)),
    }
}

/// The scalar of an operation, which may lie in device memory.
fn scale_of(operation: &Operation) -> Result<Option<Scale>, Fault> {
    let kind = operation.kind;
    let scalar = match operation.reduction.and_then(|reduction| reduction.scalar) {
        None => return Ok(None),
        Some(Scalar::Known(scalar)) => scalar,
        Some(Scalar::At(address)) => {
            if address == 0 || !reaches(address, kind.bytes()) {
                return Err(Fault);
            }
            let mut scalar = [0; 8];
            // SAFETY: that many bytes of device memory, as was checked.
            unsafe {
                std::ptr::copy_nonoverlapping(address as *const u8, scalar.as_mut_ptr(), kind.bytes());
            }
            scalar
        }
    };
    Ok(Some(Scale { kind, scalar }))
}
