// SPDX-License-Identifier: Apache-2.0 OR MIT

//! New device memory comes into the table of addresses.

use virtio_cuda_client::CudaError;
use virtio_cuda_client::protocol::FIRST_VARIABLE;

use crate::entry::Api;
use crate::state::memory::ranges::DeviceRange;
use crate::state::modules::Variable;

impl Api {
    /// Adds device memory of the current context to the table of addresses.
    pub fn track_device(self, start: u64, bytes: u64, owner: u64) -> Result<(), CudaError> {
        self.track(self.context()?.0, start, bytes, owner, 0)
    }

    /// Adds memory from a pool to the table of addresses.
    pub fn track_pooled(self, start: u64, bytes: u64, pool: u64) -> Result<(), CudaError> {
        self.track_pooled_in(self.context()?.0, start, bytes, pool)
    }

    /// The same for a context.
    pub fn track_pooled_in(self, context: u64, start: u64, bytes: u64, pool: u64) -> Result<(), CudaError> {
        self.track(context, start, bytes, 0, pool)
    }

    fn track(self, context: u64, start: u64, bytes: u64, owner: u64, pool: u64) -> Result<(), CudaError> {
        let device = self.driver.contexts.device_of(context)?;
        let memory = &self.driver.memory;
        let id = memory.ranges.next_id();
        memory.ranges.add_device(DeviceRange {
            start,
            bytes,
            context,
            device,
            id,
            owner,
            pool,
            reachable: true,
        });
        // A number of a variable is no address.
        if start < FIRST_VARIABLE {
            memory.claims.claim(start, bytes);
        }
        Ok(())
    }

    /// Adds a variable of a module or library to the table of addresses.
    pub fn track_variable(self, variable: Variable, owner: u64) {
        let ranges = &self.driver.memory.ranges;
        // The shadow of a managed variable already classifies its address.
        if ranges.host(variable.address).is_none() && ranges.alias(variable.address).is_none() {
            // There is a current context: the variable was queried in it.
            let _ = self.track_device(variable.address, variable.bytes, owner);
        }
    }
}
