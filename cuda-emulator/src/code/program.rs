// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A loaded PTX module: its description for the driver API, and the code that [`crate::launch`] executes.

use std::collections::HashMap;

use super::Code;
pub use crate::native::Mode as Translation;
use crate::symbols::{Global, Kernel, Target};

/// One PTX module, lowered and ready to run. Immutable: launches share it.
#[derive(Debug)]
pub struct Program {
    /// The entry points by name.
    pub kernels: HashMap<String, Kernel>,
    /// The variables that need device memory, in the order that [`crate::launch::Launch::global_addresses`] follows.
    pub globals: Vec<Global>,
    pub(crate) code: Code,
}

impl Program {
    /// Sets when its functions are translated, regardless of `CUDA_EMULATOR_JIT`: for tests that compare.
    pub fn translate(&mut self, when: Translation) {
        self.code.native.set_mode(when);
    }

    /// The initial bytes of variable `index` if variable `i` of [`Self::globals`] has the address `addresses[i]`. The
    /// vector is shorter than the variable if the rest is zero.
    pub fn image(&self, index: usize, addresses: &[u64]) -> Vec<u8> {
        let Some(global) = self.globals.get(index) else { return Vec::new() };
        let mut bytes = global.init.clone();
        for relocation in &global.relocations {
            let base = match relocation.target {
                Target::Global(target) => addresses.get(target).copied().unwrap_or(0),
                Target::Function(address) => address,
            };
            let value = base.wrapping_add_signed(relocation.addend) >> (relocation.shift & 63);
            let start = relocation.offset as usize;
            let size = usize::from(relocation.size.min(8));
            if bytes.len() < start + size {
                bytes.resize(start + size, 0);
            }
            bytes[start..start + size].copy_from_slice(&value.to_le_bytes()[..size]);
        }
        bytes
    }
}
