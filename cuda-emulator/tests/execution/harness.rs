// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A device to run kernels on.

use std::sync::atomic::AtomicBool;

use cuda_emulator::execute::Printf;
use cuda_emulator::launch::{Fault, Launch, launch};
use cuda_emulator::memory::Memory;
use cuda_emulator::program::Program;

/// A module with its variables in device memory.
pub struct Device {
    pub program: Program,
    pub memory: Memory,
    pub addresses: Vec<u64>,
    pub printf: Printf,
    pub cancel: AtomicBool,
    pub dynamic_shared: u32,
    pub cooperative: bool,
    pub cluster: Option<[u32; 3]>,
    pub workers: usize,
}

impl Device {
    pub fn new(ptx: &str) -> Device {
        Device::with(Program::load(ptx).unwrap())
    }

    pub fn with(program: Program) -> Device {
        let memory = Memory::new(8 << 30).unwrap();
        let globals = &program.globals;
        let addresses: Vec<u64> =
            globals.iter().map(|g| memory.allocate(g.bytes, g.align).unwrap()).collect();
        for index in 0..globals.len() {
            memory.write(addresses[index], &program.image(index, &addresses)).unwrap();
        }
        Device {
            program,
            memory,
            addresses,
            printf: Printf::default(),
            cancel: AtomicBool::new(false),
            dynamic_shared: 0,
            cooperative: false,
            cluster: None,
            workers: 2,
        }
    }

    /// A kernel that does nothing but `body`, with parameters `p0`, `p1`, … of 64 bits and generous registers.
    pub fn kernel(body: &str) -> Device {
        Device::new(&kernel(body))
    }

    pub fn run(&self, name: &str, grid: [u32; 3], block: [u32; 3], params: &[u64]) -> Result<(), Fault> {
        let kernel = &self.program.kernels[name];
        let mut bytes = vec![0; kernel.param_bytes as usize];
        for (param, value) in kernel.params.iter().zip(params) {
            let at = param.offset as usize;
            let size = param.size.min(8) as usize;
            bytes[at..at + size].copy_from_slice(&value.to_le_bytes()[..size]);
        }
        self.run_with(name, grid, block, &bytes)
    }

    pub fn run_with(&self, name: &str, grid: [u32; 3], block: [u32; 3], params: &[u8]) -> Result<(), Fault> {
        launch(&Launch {
            program: &self.program,
            kernel: &self.program.kernels[name],
            global_addresses: &self.addresses,
            grid,
            block,
            dynamic_shared: self.dynamic_shared,
            params,
            memory: &self.memory,
            printf: &self.printf,
            cooperative: self.cooperative,
            cluster: self.cluster,
            cancel: &self.cancel,
            workers: self.workers,
            multiprocessors: 132,
            stack_bytes: 1024,
            grid_id: 1,
            device: &(),
        })
    }

    /// Device memory with `values` in it.
    pub fn upload<T: Copy>(&self, values: &[T]) -> u64 {
        let bytes = size_of_val(values);
        let base = self.memory.allocate(bytes as u64, 256).unwrap();
        // SAFETY: plain numbers, read as bytes.
        let view = unsafe { std::slice::from_raw_parts(values.as_ptr().cast::<u8>(), bytes) };
        self.memory.write(base, view).unwrap();
        base
    }

    pub fn download<T: Copy + Default>(&self, base: u64, count: usize) -> Vec<T> {
        let mut values = vec![T::default(); count];
        let bytes = count * size_of::<T>();
        // SAFETY: plain numbers, written as bytes.
        let view = unsafe { std::slice::from_raw_parts_mut(values.as_mut_ptr().cast::<u8>(), bytes) };
        self.memory.read(base, view).unwrap();
        values
    }

    pub fn variable(&self, name: &str) -> u64 {
        let index = self.program.globals.iter().position(|g| g.name == name).unwrap();
        self.addresses[index]
    }

    pub fn printed(&self) -> String {
        String::from_utf8(self.printf.drain()).unwrap()
    }
}

/// The text of a module with one kernel `k`.
pub fn kernel(body: &str) -> String {
    format!(
        ".version 8.8\n.target sm_90\n.address_size 64\n\
         .visible .entry k(.param .u64 p0, .param .u64 p1, .param .u64 p2, .param .u64 p3)\n{{\n\
         .reg .pred %p<20>; .reg .b16 %h<40>; .reg .b32 %r<40>; .reg .b64 %d<40>;\n\
         .reg .f32 %f<40>; .reg .f64 %g<40>;\n{body}\nret;\n}}\n"
    )
}

/// One block of one warp.
pub const WARP: ([u32; 3], [u32; 3]) = ([1, 1, 1], [32, 1, 1]);
