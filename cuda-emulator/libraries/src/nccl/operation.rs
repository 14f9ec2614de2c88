// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The operations, as steps of tasks. The tasks of a step run concurrently. A step begins when the previous one has
//! ended on this rank, independent of the other ranks.

use super::element::{Kind, Operator};
use super::task::{Label, Progress, Receive, Reduce, Scale, Send, Task};
use super::{INVALID_ARGUMENT, Status};

/// A function that transfers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Function {
    AllReduce,
    Reduce,
    Broadcast,
    AllGather,
    ReduceScatter,
    AllToAll,
    Gather,
    Scatter,
    Send,
    Receive,
}

/// A scalar of `ncclRedOpCreatePreMulSum`.
#[derive(Clone, Copy, Debug)]
pub enum Scalar {
    /// Its bytes.
    Known([u8; 8]),
    /// It lies in device memory.
    At(usize),
}

/// An operator.
#[derive(Clone, Copy, Debug)]
pub struct Reduction {
    pub operator: Operator,
    /// Elements are multiplied by it first.
    pub scalar: Option<Scalar>,
}

/// One call.
#[derive(Clone, Copy, Debug)]
pub struct Operation {
    pub function: Function,
    pub send: usize,
    pub receive: usize,
    /// Elements, as the function counts them.
    pub count: usize,
    pub kind: Kind,
    /// Set for functions that reduce.
    pub reduction: Option<Reduction>,
    /// The root or the other rank; 0 for functions without one.
    pub peer: usize,
}

/// Memory: its address and its length.
type Range = (usize, usize);

impl Operation {
    /// Checks what can be checked without looking at memory.
    pub fn check(&self, rank: usize, ranks: usize) -> Result<(), Status> {
        let bytes = self.count.checked_mul(self.kind.bytes());
        let all = bytes.and_then(|bytes| bytes.checked_mul(ranks)).filter(|all| *all <= isize::MAX as usize);
        let is_good = all.is_some()
            && self.peer < ranks
            && (self.reduction.is_none() || self.kind != Kind::F8)
            && [self.reads(rank, ranks), self.writes(rank, ranks)]
                .into_iter()
                .all(|(address, bytes)| bytes == 0 || address != 0 && address.checked_add(bytes).is_some());
        if is_good { Ok(()) } else { Err(INVALID_ARGUMENT) }
    }

    fn bytes(&self) -> usize {
        self.count * self.kind.bytes()
    }

    /// Returns whether it has one sender and one receiver. Such operations of a group run concurrently.
    pub fn is_point_to_point(&self) -> bool {
        matches!(self.function, Function::Send | Function::Receive)
    }

    /// The memory that it reads.
    pub fn reads(&self, rank: usize, ranks: usize) -> Range {
        let (bytes, is_root) = (self.bytes(), rank == self.peer);
        let length = match self.function {
            Function::ReduceScatter | Function::AllToAll => bytes * ranks,
            Function::Broadcast if !is_root => 0,
            Function::Scatter if is_root => bytes * ranks,
            Function::Scatter | Function::Receive => 0,
            _ => bytes,
        };
        (self.send, length)
    }

    /// The memory that it writes.
    pub fn writes(&self, rank: usize, ranks: usize) -> Range {
        let (bytes, is_root) = (self.bytes(), rank == self.peer);
        let length = match self.function {
            Function::AllGather | Function::AllToAll => bytes * ranks,
            Function::Gather if is_root => bytes * ranks,
            Function::Reduce if is_root => bytes,
            Function::Gather | Function::Reduce | Function::Send => 0,
            _ => bytes,
        };
        (self.receive, length)
    }

    fn label(&self, bytes: usize) -> Label {
        let function = match self.function {
            // Types need not be the same, only lengths.
            Function::Send | Function::Receive => return Label { what: Function::Send as u64, bytes },
            function => function as u64,
        };
        // Scalars of the ranks are their own.
        let operator = self.reduction.map_or(0, |reduction| {
            1 + reduction.operator as u64 + if reduction.scalar.is_some() { 16 } else { 0 }
        });
        let what = function | (self.kind as u64) << 8 | operator << 16 | (self.peer as u64) << 24;
        Label { what, bytes }
    }

    /// The part of all elements that a rank reduces for the others: its offset and length in bytes.
    fn part(&self, rank: usize, ranks: usize) -> (usize, usize) {
        let each = self.count.div_ceil(ranks);
        let (start, end) = ((rank * each).min(self.count), ((rank + 1) * each).min(self.count));
        (start * self.kind.bytes(), (end - start) * self.kind.bytes())
    }

    /// The steps on a rank.
    pub fn steps(&self, rank: usize, ranks: usize, scale: Option<Scale>) -> Vec<Vec<Task>> {
        if self.count == 0 && !self.is_point_to_point() {
            return Vec::new();
        }
        let (bytes, is_root) = (self.bytes(), rank == self.peer);
        let plan = Plan { operation: self, rank, ranks, scale };
        let own = |from, to| Task::Copy { from, to, bytes };
        let others = || (0..ranks).filter(|other| *other != rank);
        match self.function {
            Function::AllReduce => {
                let place = |of| self.part(of, ranks);
                let (start, length) = place(rank);
                let mut first: Vec<Task> = others()
                    .filter(|other| place(*other).1 > 0)
                    .map(|other| plan.send_scaled(other, self.send + place(other).0, place(other).1))
                    .collect();
                let mut second: Vec<Task> = others()
                    .filter(|other| place(*other).1 > 0)
                    .map(|other| plan.receive(other, self.receive + place(other).0, place(other).1))
                    .collect();
                if length > 0 {
                    first.push(plan.reduce(self.send + start, self.receive + start, length));
                    second.extend(others().map(|other| plan.send(other, self.receive + start, length)));
                }
                vec![first, second]
            }
            Function::Reduce if is_root => vec![vec![plan.reduce(self.send, self.receive, bytes)]],
            Function::Reduce => vec![vec![plan.send_scaled(self.peer, self.send, bytes)]],
            Function::Broadcast if is_root => {
                let sends = others().map(|other| plan.send(other, self.send, bytes));
                vec![sends.chain([own(self.send, self.receive)]).collect()]
            }
            Function::Broadcast | Function::Scatter if !is_root => {
                vec![vec![plan.receive(self.peer, self.receive, bytes)]]
            }
            Function::AllGather => {
                let sends = others().map(|other| plan.send(other, self.send, bytes));
                let receives = others().map(|other| plan.receive(other, self.receive + other * bytes, bytes));
                vec![sends.chain(receives).chain([own(self.send, self.receive + rank * bytes)]).collect()]
            }
            Function::ReduceScatter => {
                let sends = others().map(|other| plan.send_scaled(other, self.send + other * bytes, bytes));
                let reduce = plan.reduce(self.send + rank * bytes, self.receive, bytes);
                vec![sends.chain([reduce]).collect()]
            }
            Function::AllToAll => {
                let sends = others().map(|other| plan.send(other, self.send + other * bytes, bytes));
                let receives = others().map(|other| plan.receive(other, self.receive + other * bytes, bytes));
                let copy = own(self.send + rank * bytes, self.receive + rank * bytes);
                vec![sends.chain(receives).chain([copy]).collect()]
            }
            Function::Gather if is_root => {
                let receives = others().map(|other| plan.receive(other, self.receive + other * bytes, bytes));
                vec![receives.chain([own(self.send, self.receive + rank * bytes)]).collect()]
            }
            Function::Gather | Function::Send => vec![vec![plan.send(self.peer, self.send, bytes)]],
            Function::Broadcast | Function::Scatter => {
                let sends = others().map(|other| plan.send(other, self.send + other * bytes, bytes));
                vec![sends.chain([own(self.send + rank * bytes, self.receive)]).collect()]
            }
            Function::Receive => vec![vec![plan.receive(self.peer, self.receive, bytes)]],
        }
    }
}

/// Creates the tasks of an operation.
struct Plan<'a> {
    operation: &'a Operation,
    rank: usize,
    ranks: usize,
    scale: Option<Scale>,
}

impl Plan<'_> {
    fn send(&self, to: usize, address: usize, bytes: usize) -> Task {
        Task::Send(Send { to, address, label: self.operation.label(bytes), scale: None, sent: None })
    }

    fn send_scaled(&self, to: usize, address: usize, bytes: usize) -> Task {
        let label = self.operation.label(bytes);
        Task::Send(Send { to, address, label, scale: self.scale, sent: None })
    }

    fn receive(&self, from: usize, address: usize, bytes: usize) -> Task {
        Task::Receive(Receive { from, address, label: self.operation.label(bytes), received: None })
    }

    fn reduce(&self, own: usize, result: usize, bytes: usize) -> Task {
        let operator = self.operation.reduction.map_or(Operator::Sum, |reduction| reduction.operator);
        Task::Reduce(Reduce {
            rank: self.rank,
            ranks: self.ranks,
            kind: self.operation.kind,
            operator,
            scale: self.scale,
            own,
            result,
            label: self.operation.label(bytes),
            state: Progress::default(),
        })
    }
}
