// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Launches: a parameter buffer is made, filled by the kernel, and launched.

use super::caller::{Caller, End, for_each_thread, with_status};
use crate::code::{Handler, Instr};
use crate::execute::run::{prepare, slot, submit};
use crate::execute::state::{Flow, Machine};
use crate::nested::error::RuntimeError;
use crate::nested::{KernelTask, LaunchShape, Prepared, Slot, Task};

pub(super) fn select(name: &str) -> Option<(Handler, usize)> {
    Some(match name {
        "GetParameterBufferV2" => (get_parameter_buffer_v2, 4),
        "LaunchDeviceV2" => (launch_device_v2, 2),
        "GetParameterBuffer" => (get_parameter_buffer, 2),
        "LaunchDevice" => (launch_device, 6),
        _ => return None,
    })
}

/// A parameter buffer that a kernel has filled.
struct Filled {
    address: u64,
    prepared: Prepared,
}

impl Caller<'_, '_> {
    fn prepare(&mut self, bytes: u64, shape: Option<LaunchShape>) -> Result<u64, End> {
        let grid = self.machine.grid;
        match prepare(grid.children, grid.launch, bytes, shape) {
            Ok(buffer) => Ok(buffer?),
            Err(fault) => Err(self.fault(fault)),
        }
    }

    /// Checks a launch; how many bytes its parameters have.
    fn check(&mut self, LaunchShape { function, grid, block, shared }: LaunchShape) -> Result<u64, End> {
        let launch = self.machine.grid.launch;
        let name = &launch.program.code.functions[function].name;
        let kernel = launch.program.kernels.get(name).ok_or(RuntimeError::INVALID_DEVICE_FUNCTION)?;
        launch.device.check(kernel, grid, block, shared)?;
        Ok(kernel.param_bytes.into())
    }

    /// Launches what was checked, with the parameters that are in a buffer.
    fn launch(&mut self, shape: LaunchShape, buffer: Option<Filled>, stream: u64) -> Result<(), End> {
        let grid = self.machine.grid;
        let LaunchShape { function, grid: blocks, block, shared } = shape;
        let bytes = grid.launch.program.kernels.get(&grid.code.functions[function].name);
        let mut params = vec![0; bytes.map_or(0, |kernel| kernel.param_bytes as usize)];
        let slot = match buffer {
            Some(Filled { address, prepared: Prepared { slot, bytes, .. } }) => {
                let given = params.len().min(usize::try_from(bytes).unwrap_or(usize::MAX));
                let read = grid.launch.memory.read(address, &mut params[..given]);
                grid.children.family().give_back(address, bytes);
                read.map_err(|_| RuntimeError::INVALID_VALUE)?;
                slot
            }
            None => match slot(grid.children, grid.launch) {
                Ok(slot) => slot,
                Err(fault) => return Err(self.fault(fault)),
            },
        };
        let task = Task::Kernel(KernelTask { function, grid: blocks, block, shared, params });
        self.submit(task, slot, stream)
    }

    pub(super) fn submit(&mut self, task: Task, slot: Slot, stream: u64) -> Result<(), End> {
        let grid = self.machine.grid;
        match submit(grid.children, grid.launch, task, slot, stream) {
            Ok(done) => Ok(done?),
            Err(fault) => Err(self.fault(fault)),
        }
    }
}

/// `void *cudaGetParameterBufferV2(void *function, dim3 grid, dim3 block, unsigned shared)`
unsafe fn get_parameter_buffer_v2(machine: &mut Machine<'_>, instr: &Instr) -> Flow {
    let body = |caller: &mut Caller<'_, '_>| {
        let function = caller.argument(0);
        let function = caller.kernel(function)?;
        let (grid, block) = (caller.dimensions(1), caller.dimensions(2));
        let shape = LaunchShape { function, grid, block, shared: caller.argument(3) as u32 };
        let bytes = caller.check(shape)?;
        caller.prepare(bytes, Some(shape))
    };
    for_each_thread(machine, instr, body, |_| 0)
}

/// `cudaError_t cudaLaunchDeviceV2(void *buffer, cudaStream_t stream)`
unsafe fn launch_device_v2(machine: &mut Machine<'_>, instr: &Instr) -> Flow {
    with_status(machine, instr, |caller| {
        let (buffer, stream) = (caller.argument(0), caller.argument(1));
        let prepared = caller.machine.grid.children.take_prepared(buffer);
        let prepared = prepared.ok_or(RuntimeError::INVALID_VALUE)?;
        match prepared.shape {
            Some(shape) => caller.launch(shape, Some(Filled { address: buffer, prepared }), stream),
            None => {
                caller.machine.grid.children.discard(buffer, &prepared);
                Err(RuntimeError::INVALID_VALUE.into())
            }
        }
    })
}

/// `void *cudaGetParameterBuffer(size_t alignment, size_t size)`
unsafe fn get_parameter_buffer(machine: &mut Machine<'_>, instr: &Instr) -> Flow {
    let body = |caller: &mut Caller<'_, '_>| {
        let (alignment, bytes) = (caller.argument(0), caller.argument(1));
        if alignment > 64 {
            return Err(RuntimeError::INVALID_VALUE.into());
        }
        caller.prepare(bytes, None)
    };
    for_each_thread(machine, instr, body, |_| 0)
}

/// `cudaError_t cudaLaunchDevice(void *function, void *buffer, dim3 grid, dim3 block, unsigned shared, cudaStream_t)`
unsafe fn launch_device(machine: &mut Machine<'_>, instr: &Instr) -> Flow {
    with_status(machine, instr, |caller| {
        let (function, buffer, stream) = (caller.argument(0), caller.argument(1), caller.argument(5));
        let (grid, block) = (caller.dimensions(2), caller.dimensions(3));
        let shared = caller.argument(4) as u32;
        let prepared = caller.machine.grid.children.take_prepared(buffer);
        if prepared.is_none() && buffer != 0 {
            return Err(RuntimeError::INVALID_VALUE.into());
        }
        let checked = caller.kernel(function).map_err(End::from).and_then(|function| {
            let shape = LaunchShape { function, grid, block, shared };
            caller.check(shape).map(|_| shape)
        });
        let shape = match (checked, &prepared) {
            (Ok(shape), _) => shape,
            (Err(end), Some(prepared)) => {
                caller.machine.grid.children.discard(buffer, prepared);
                return Err(end);
            }
            (Err(end), None) => return Err(end),
        };
        caller.launch(shape, prepared.map(|prepared| Filled { address: buffer, prepared }), stream)
    })
}
