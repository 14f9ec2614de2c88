// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs a launch of the host and the launches of its grids.

use std::collections::VecDeque;

use super::grid::run_grid;
use crate::launch::{Fault, FaultKind, Launch};
use crate::nested::error::RuntimeError;
use crate::nested::transfer::Transfer;
use crate::nested::{
    Children, Family, KernelTask, LaunchShape, MAX_BLOCK_BYTES, MAX_DEPTH, Prepared, Slot, TAIL, Task, lock,
};

/// Runs a launch and everything that it launches. Returns when all of it is complete, or after the first fault.
pub(crate) fn run_launch(launch: &Launch<'_>) -> Result<(), Fault> {
    let family = Family::new(launch.device.pending_launches());
    let result = run_family(&family, launch, 0);
    family.release(launch.memory);
    result
}

/// Runs a task of a grid of `launch`, `depth` levels below the host's, and its launches.
fn run(family: &Family, launch: &Launch<'_>, task: Task, depth: u32) -> Result<(), Fault> {
    match task {
        Task::Transfer(transfer) => carry_out(launch, &transfer),
        Task::Kernel(task) => run_family(family, &launch_of(launch, &task)?, depth),
    }
}

/// Runs a grid and everything that it launches.
fn run_family(family: &Family, launch: &Launch<'_>, depth: u32) -> Result<(), Fault> {
    // Tails of tails run here, too. Empty ones are dropped: a kernel that launches itself in its tail must not use up memory.
    let mut tails: Vec<VecDeque<Task>> = Vec::new();
    let mut tail = run_one(family, launch, depth)?;
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
        family.leave(Slot::Counted);
        match task {
            Task::Transfer(transfer) => carry_out(launch, &transfer)?,
            Task::Kernel(task) => tail = run_one(family, &launch_of(launch, &task)?, depth)?,
        }
    }
}

/// Runs a grid and its launches, except its tail. Returns the tail.
fn run_one(family: &Family, launch: &Launch<'_>, depth: u32) -> Result<VecDeque<Task>, Fault> {
    let children = Children::new(family, depth);
    run_grid(launch, &children)?;
    run_waiting(&children, launch)?;
    Ok(children.finish())
}

/// Creates a parameter buffer, and takes a slot for its launch.
pub(crate) fn prepare(
    children: &Children<'_>,
    launch: &Launch<'_>,
    bytes: u64,
    shape: Option<LaunchShape>,
) -> Result<Result<u64, RuntimeError>, Fault> {
    if children.depth >= MAX_DEPTH {
        return Ok(Err(RuntimeError::LAUNCH_MAX_DEPTH_EXCEEDED));
    }
    if bytes > MAX_BLOCK_BYTES {
        return Ok(Err(RuntimeError::INVALID_VALUE));
    }
    let slot = slot(children, launch)?;
    let mut prepared = lock(&children.prepared);
    let full = slot == Slot::AtOnce && prepared.len() >= launch.device.pending_launches();
    let buffer = if full { None } else { children.family.buffer(launch.memory, bytes) };
    let Some(buffer) = buffer else {
        drop(prepared);
        children.family.leave(slot);
        return Ok(Err(RuntimeError::LAUNCH_PENDING_COUNT_EXCEEDED));
    };
    prepared.insert(buffer, Prepared { slot, bytes, shape });
    Ok(Ok(buffer))
}

/// Takes a slot for one more launch. If all slots are taken, the tasks that this grid has launched so far run first.
pub(crate) fn slot(children: &Children<'_>, launch: &Launch<'_>) -> Result<Slot, Fault> {
    if children.family.enter() {
        return Ok(Slot::Counted);
    }
    let running = lock(&children.runner);
    run_waiting(children, launch)?;
    drop(running);
    Ok(if children.family.enter() { Slot::Counted } else { Slot::AtOnce })
}

/// Puts a task into a stream. Gives the slot back if that fails.
pub(crate) fn submit(
    children: &Children<'_>,
    launch: &Launch<'_>,
    task: Task,
    slot: Slot,
    stream: u64,
) -> Result<Result<(), RuntimeError>, Fault> {
    let refused = if !children.is_stream(stream) {
        Some(RuntimeError::INVALID_RESOURCE_HANDLE)
    } else if children.depth >= MAX_DEPTH {
        Some(RuntimeError::LAUNCH_MAX_DEPTH_EXCEEDED)
    } else if stream == TAIL && slot == Slot::AtOnce {
        Some(RuntimeError::LAUNCH_PENDING_COUNT_EXCEEDED)
    } else {
        None
    };
    if let Some(error) = refused {
        children.family.leave(slot);
        return Ok(Err(error));
    }
    match (stream, slot) {
        (TAIL, _) => lock(&children.tail).push_back(task),
        (_, Slot::Counted) => lock(&children.waiting).push_back(task),
        (_, Slot::AtOnce) => {
            let _running = lock(&children.runner);
            run_waiting(children, launch)?;
            run(children.family, launch, task, children.depth + 1)?;
        }
    }
    Ok(Ok(()))
}

/// Runs the tasks that the grid has launched, except its tail. The caller holds `runner`, or the grid has ended.
fn run_waiting(children: &Children<'_>, launch: &Launch<'_>) -> Result<(), Fault> {
    loop {
        let Some(task) = lock(&children.waiting).pop_front() else { return Ok(()) };
        children.family.leave(Slot::Counted);
        run(children.family, launch, task, children.depth + 1)?;
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
