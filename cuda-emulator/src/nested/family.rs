// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A launch of the host, and all launches that come of it.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use super::children::{Children, Slot};
use super::error::texts;
use super::parameters::Parameters;
use super::transfer::Transfer;
use crate::execute::grid::shapeless;
use crate::launch::{Fault, FaultKind, Launch, once};
use crate::memory::Memory;

/// Most launches that may be pending, whatever cudaLimitDevRuntimePendingLaunchCount says.
const MAX_PENDING: usize = 1 << 16;

/// A kernel's launch that waits.
#[derive(Debug)]
pub(crate) struct KernelTask {
    /// Index of the kernel's function.
    pub(crate) function: usize,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    /// Bytes of dynamic shared memory.
    pub(crate) shared: u32,
    pub(crate) params: Vec<u8>,
}

/// A task that waits in a stream.
#[derive(Debug)]
pub(crate) enum Task {
    Kernel(KernelTask),
    Transfer(Transfer),
}

/// The state that the grids of a family share.
pub(crate) struct Family {
    limit: usize,
    pending: AtomicUsize,
    parameters: Mutex<Parameters>,
    /// The addresses of the texts of errors in device memory, by code; the name's first.
    texts: Mutex<HashMap<u32, [u64; 2]>>,
}

impl Family {
    /// Runs a launch and everything that it launches; returns when all is complete, or at the first fault.
    pub(crate) fn launch(launch: &Launch<'_>) -> Result<(), Fault> {
        let family = Family {
            limit: launch.device.pending_launches().min(MAX_PENDING),
            pending: AtomicUsize::new(0),
            parameters: Mutex::default(),
            texts: Mutex::default(),
        };
        let result = family.run_grid(launch, 0);
        family.parameters.lock().unwrap_or_else(PoisonError::into_inner).release(launch.memory);
        for text in family.texts.lock().unwrap_or_else(PoisonError::into_inner).values().flatten() {
            launch.memory.free(*text);
        }
        result
    }

    /// Runs a task of a grid of `launch`, `depth` levels below the host's, and what it launches.
    pub(super) fn run(&self, launch: &Launch<'_>, task: Task, depth: u32) -> Result<(), Fault> {
        match task {
            Task::Transfer(transfer) => carry_out(launch, &transfer),
            Task::Kernel(task) => self.run_grid(&launch_of(launch, &task)?, depth),
        }
    }

    fn run_grid(&self, launch: &Launch<'_>, depth: u32) -> Result<(), Fault> {
        // Tails of tails are run here too, and no empty one is kept: a kernel may launch itself there without end.
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

    /// Runs a grid and what it launches, but for the tail, which it returns.
    fn run_one(&self, launch: &Launch<'_>, depth: u32) -> Result<VecDeque<Task>, Fault> {
        let children = Children::new(self, depth);
        once(launch, &children)?;
        children.run_waiting(launch)?;
        Ok(children.finish())
    }

    /// Takes one of the slots for pending launches, if one is free.
    pub(super) fn enter(&self) -> bool {
        let more = |pending: usize| (pending < self.limit).then_some(pending + 1);
        self.pending.try_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    /// Gives a slot back.
    pub(crate) fn leave(&self, slot: Slot) {
        if slot == Slot::Counted {
            self.pending.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// A parameter buffer.
    pub(super) fn buffer(&self, memory: &Memory, bytes: u64) -> Option<u64> {
        self.parameters.lock().unwrap_or_else(PoisonError::into_inner).take(memory, bytes)
    }

    /// Ends a parameter buffer.
    pub(crate) fn give_back(&self, buffer: u64, bytes: u64) {
        self.parameters.lock().unwrap_or_else(PoisonError::into_inner).give_back(buffer, bytes);
    }

    /// The device addresses of an error's name and text; 0 without memory.
    pub(crate) fn texts(&self, memory: &Memory, code: u32) -> [u64; 2] {
        // All codes without a text of their own have the same one.
        let (name, text) = texts(code);
        let code = if name == text { u32::MAX } else { code };
        let mut known = self.texts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = known.get(&code) {
            return *found;
        }
        let store = |text: &str| {
            let bytes = [text.as_bytes(), &[0]].concat();
            let Ok(place) = memory.allocate(bytes.len() as u64, 1) else { return 0 };
            // Just allocated.
            let _ = memory.write(place, &bytes);
            place
        };
        let stored = [store(name), store(text)];
        known.insert(code, stored);
        stored
    }
}

/// The launch that a grid of `launch` asks for.
fn launch_of<'t>(launch: &Launch<'t>, task: &'t KernelTask) -> Result<Launch<'t>, Fault> {
    let name = &launch.program.code.functions[task.function].name;
    let kernel = launch.program.kernels.get(name);
    let kernel = kernel.ok_or_else(|| shapeless(launch, format!("`{name}` is not a kernel")))?;
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
        ..shapeless(launch, format!("copy or fill by kernel `{}`: {error}", launch.kernel.name))
    })
}
