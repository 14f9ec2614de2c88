// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs a launch of the host and the launches of its grids.

use std::collections::VecDeque;

use super::children::{Children, LaunchShape, MAX_DEPTH, Prepared, TAIL, lock};
use super::error::RuntimeError;
use super::family::{Family, KernelTask, Slot, Task};
use super::transfer::Transfer;
use crate::execute::run_grid;
use crate::launch::{Fault, FaultKind, Launch};

/// Runs a launch and everything that it launches. Returns when all of it is complete, or after the first fault.
pub(crate) fn run_launch(launch: &Launch<'_>) -> Result<(), Fault> {
    let family = Family::new(launch.device.pending_launches());
    let result = family.run_grid(launch, 0);
    family.release(launch.memory);
    result
}

impl Family {
    /// Runs a task of a grid of `launch`, `depth` levels below the host's, and its launches.
    fn run(&self, launch: &Launch<'_>, task: Task, depth: u32) -> Result<(), Fault> {
        match task {
            Task::Transfer(transfer) => carry_out(launch, &transfer),
            Task::Kernel(task) => self.run_grid(&launch_of(launch, &task)?, depth),
        }
    }

    fn run_grid(&self, launch: &Launch<'_>, depth: u32) -> Result<(), Fault> {
        // Tails of tails run here, too. Empty ones are dropped: a kernel that launches itself in its tail must not use up memory.
        let mut tails: Vec<VecDeque<Task>> = Vec::new();
        let mut tail = self.run_one(launch, depth)?;
        loop {
            if !tail.is_empty() {
                tails.push(std::mem::take(&mut tail));
            }
            let Some(last) = tails.last_mut() else { return Ok(()) };
            let next = last.pop_front();
            if last.is_empty() {
                tails.pop();
            }
            let Some(task) = next else { continue };
            self.leave(Slot::Counted);
            match task {
                Task::Transfer(transfer) => carry_out(launch, &transfer)?,
                Task::Kernel(task) => tail = self.run_one(&launch_of(launch, &task)?, depth)?,
            }
        }
    }

    /// Runs a grid and its launches, except its tail. Returns the tail.
    fn run_one(&self, launch: &Launch<'_>, depth: u32) -> Result<VecDeque<Task>, Fault> {
        let children = Children::new(self, depth);
        run_grid(launch, &children)?;
        children.run_waiting(launch)?;
        Ok(children.finish())
    }
}

impl Children<'_> {
    /// Creates a parameter buffer, and takes a slot for its launch.
    pub(crate) fn prepare(
        &self,
        launch: &Launch<'_>,
        bytes: u64,
        shape: Option<LaunchShape>,
    ) -> Result<Result<u64, RuntimeError>, Fault> {
        if self.depth >= MAX_DEPTH {
            return Ok(Err(RuntimeError::LAUNCH_MAX_DEPTH_EXCEEDED));
        }
        if bytes > super::parameters::MAX_BLOCK_BYTES {
            return Ok(Err(RuntimeError::INVALID_VALUE));
        }
        let slot = self.slot(launch)?;
        let mut prepared = lock(&self.prepared);
        let full = slot == Slot::AtOnce && prepared.len() >= launch.device.pending_launches();
        let buffer = if full { None } else { self.family.buffer(launch.memory, bytes) };
        let Some(buffer) = buffer else {
            drop(prepared);
            self.family.leave(slot);
            return Ok(Err(RuntimeError::LAUNCH_PENDING_COUNT_EXCEEDED));
        };
        prepared.insert(buffer, Prepared { slot, bytes, shape });
        Ok(Ok(buffer))
    }

    /// Takes a slot for one more launch. If there is none, the tasks that this grid has launched so far run first.
    pub(crate) fn slot(&self, launch: &Launch<'_>) -> Result<Slot, Fault> {
        if self.family.enter() {
            return Ok(Slot::Counted);
        }
        let running = lock(&self.runner);
        self.run_waiting(launch)?;
        drop(running);
        Ok(if self.family.enter() { Slot::Counted } else { Slot::AtOnce })
    }

    /// Puts a task into a stream. Gives the slot back if that fails.
    pub(crate) fn submit(
        &self,
        launch: &Launch<'_>,
        task: Task,
        slot: Slot,
        stream: u64,
    ) -> Result<Result<(), RuntimeError>, Fault> {
        let refused = if !self.is_stream(stream) {
            Some(RuntimeError::INVALID_RESOURCE_HANDLE)
        } else if self.depth >= MAX_DEPTH {
            Some(RuntimeError::LAUNCH_MAX_DEPTH_EXCEEDED)
        } else if stream == TAIL && slot == Slot::AtOnce {
            Some(RuntimeError::LAUNCH_PENDING_COUNT_EXCEEDED)
        } else {
            None
        };
        if let Some(error) = refused {
            self.family.leave(slot);
            return Ok(Err(error));
        }
        match (stream, slot) {
            (TAIL, _) => lock(&self.tail).push_back(task),
            (_, Slot::Counted) => lock(&self.waiting).push_back(task),
            (_, Slot::AtOnce) => {
                let _running = lock(&self.runner);
                self.run_waiting(launch)?;
                self.family.run(launch, task, self.depth + 1)?;
            }
        }
        Ok(Ok(()))
    }

    /// Runs the tasks that the grid has launched, except its tail. The caller holds `runner`, or the grid has ended.
    fn run_waiting(&self, launch: &Launch<'_>) -> Result<(), Fault> {
        loop {
            let Some(task) = lock(&self.waiting).pop_front() else { return Ok(()) };
            self.family.leave(Slot::Counted);
            self.family.run(launch, task, self.depth + 1)?;
        }
    }
}

/// The launch that a grid of `launch` asks for.
fn launch_of<'t>(launch: &Launch<'t>, task: &'t KernelTask) -> Result<Launch<'t>, Fault> {
    let name = &launch.program.code.functions[task.function].name;
    let kernel = launch.program.kernels.get(name);
    let kernel = kernel.ok_or_else(|| launch.failure(format!("`{name}` is not a kernel")))?;
    Ok(Launch {
        kernel,
        grid: task.grid,
        block: task.block,
        dynamic_shared: task.shared,
        params: &task.params,
        cooperative: false,
        cluster: None,
        grid_id: launch.device.next_grid_id(),
        ..*launch
    })
}

fn carry_out(launch: &Launch<'_>, transfer: &Transfer) -> Result<(), Fault> {
    transfer.run(launch.memory).map_err(|error| Fault {
        address: error.address,
        kind: FaultKind::IllegalAddress,
        ..launch.failure(format!("copy or fill by kernel `{}`: {error}", launch.kernel.name))
    })
}
