// SPDX-License-Identifier: Apache-2.0 OR MIT

//! `__managed__` variables. The module owns their storage, in the worker. The program therefore gets a shadow: separate
//! memory, at the same address where that is free. Both are synchronised when one side could have changed and the other
//! is about to read. Changes of the program are sent before work is queued, and those of the GPU are fetched after a
//! call that waits. CUDA guarantees no more on devices whose `CONCURRENT_MANAGED_ACCESS` is 0, which [`crate::device`]
//! reports for every device. Memory of cudaMallocManaged does not need this: it is pinned memory, or it moves
//! ([`crate::memory::moving`]).

use std::sync::atomic::Ordering;

use virtio_cuda_client::protocol::{DevicePtr, StreamId};
use virtio_cuda_client::transport::UserMemory;
use virtio_cuda_client::{CudaError, calls};

use crate::answer;
use crate::entry::Api;
use crate::state::memory::Memory;
use crate::state::memory::ranges::{HostKind, HostRange};
use crate::state::memory::shadow::{Newer, Shadow};
use crate::state::modules::Variable;
use crate::state::moving::{Sent, Uses};

/// The maximum size of a variable in bytes. Limits the memory that a malicious worker can make the program map.
const MAX_VARIABLE: u64 = 4 << 30;

impl Shadow {
    /// Fetches the GPU's contents, except for the program's `newer` bytes.
    fn fetch(&mut self, api: Api, context: u64, newer: Option<Newer>) -> Result<(), CudaError> {
        let chunk = api.driver.session.limits().copy_bytes;
        api.with_copy_stream(context, |stream| {
            self.equal.chunks_mut(chunk).enumerate().try_for_each(|(index, piece)| {
                let address = DevicePtr(self.device + (index * chunk) as u64);
                calls::cuMemcpyDtoHAsync_v2(&mut api.in_context()?.output(piece), address, stream)
            })
        })?;
        self.show(newer);
        Ok(())
    }

    /// Sends the program's changes.
    fn send(&mut self, api: Api, context: u64) -> Result<(), CudaError> {
        let Some(changed) = self.changed() else { return Ok(()) };
        let first = changed.start;
        let mut now = vec![0; changed.len()];
        self.read(first, &mut now);
        if !api.is_idle() {
            // Work that goes on may write other bytes of it.
            api.send_difference(context, self.device + first as u64, &now, &self.equal[changed.clone()])?;
            self.equal[changed].copy_from_slice(&now);
            return Ok(());
        }
        let chunk = api.driver.session.limits().copy_bytes;
        api.with_copy_stream(context, |stream| {
            for (index, piece) in now.chunks(chunk).enumerate() {
                let address = DevicePtr(self.device + (first + index * chunk) as u64);
                let mut call = api.in_context()?.input(piece).posted();
                calls::cuMemcpyHtoDAsync_v2(&mut call, address, stream)?;
            }
            // The work may use any stream. The wait also returns an error of the posted calls.
            api.wait_for_stream(stream)
        })?;
        self.equal[changed].copy_from_slice(&now);
        Ok(())
    }
}

impl Memory {
    /// Creates the program's side of a `__managed__` variable, whose value is read in `context`. Returns the program's
    /// address.
    pub fn add_managed_variable(
        &self,
        api: Api,
        variable: Variable,
        owner: u64,
        context: impl FnOnce() -> Result<u64, CudaError>,
    ) -> Result<Variable, CudaError> {
        let mut list = self.shadows.list();
        if let Some(known) = list.iter().find(|shadow| shadow.device == variable.address) {
            return Ok(Variable { address: known.host, ..variable });
        }
        let context = context()?;
        let equal = answer::zeros(variable.bytes, MAX_VARIABLE)?;
        let host = self.shadows.place(&self.claims, variable.address, variable.bytes)?;
        let mut shadow = Shadow { host, device: variable.address, context, equal };
        // The memory may still contain the value of an earlier variable at this address, which is not a change by the
        // program.
        shadow.fetch(api, context, None)?;
        list.push(shadow);
        self.shadows.any.store(true, Ordering::Release);
        drop(list);
        self.ranges.add_host(HostRange {
            start: host,
            bytes: variable.bytes,
            device_address: variable.address,
            kind: HostKind::ManagedVariable,
            flags: 0,
            context,
            device: api.driver.contexts.device_of(context)?,
            id: self.ranges.next_id(),
            pages: UserMemory::NONE,
            window: 0,
            pinned: Vec::new(),
            owner,
            pool: None,
            moving: None,
        });
        Ok(Variable { address: host, ..variable })
    }
}

impl Api {
    /// Must be called before work that could access managed memory is queued in `stream`. The result must be held until
    /// the work is queued.
    pub fn before_work(&self, uses: Uses, stream: StreamId) -> Result<Sent, CudaError> {
        let Memory { shadows, moving, .. } = &self.driver.memory;
        let any = shadows.any.load(Ordering::Acquire);
        // A capture only records the work, which accesses memory later.
        if (any || moving.any_to_send()) && self.captures(stream) {
            return Ok(Sent::default());
        }
        if any {
            let context = self.context()?.0;
            for shadow in shadows.list().iter_mut() {
                shadow.send(*self, context)?;
            }
        }
        self.send_managed(uses)
    }

    /// Must be called once such work is queued.
    pub fn work_queued(&self) {
        self.driver.memory.visible.begin();
        self.device_work_queued();
    }

    /// Like [`Self::work_queued`], for work that changes device memory only.
    pub fn device_work_queued(&self) {
        let shadows = &self.driver.memory.shadows;
        if shadows.any.load(Ordering::Acquire) {
            shadows.stale.store(true, Ordering::Release);
        }
    }

    /// Must be called before a function of the program runs between work.
    pub fn before_function(&self) {
        if !self.variables_are_stale() {
            return;
        }
        for shadow in self.driver.memory.shadows.list().iter_mut() {
            let newer = shadow.newer();
            if let Err(error) = shadow.fetch(*self, shadow.context, newer) {
                // The context is broken: the program gets the error from its next call.
                log::debug!("Fetching a __managed__ variable for a function of the program: {error}");
            }
        }
    }

    /// Must be called after such a function, before the work behind it begins.
    pub fn after_function(&self) {
        if self.driver.memory.shadows.any.load(Ordering::Acquire) {
            for shadow in self.driver.memory.shadows.list().iter_mut() {
                if let Err(error) = shadow.send(*self, shadow.context) {
                    log::debug!("Sending a __managed__ variable after a function of the program: {error}");
                }
            }
        }
        self.end_all_sharing();
    }

    /// Must be called after a call that has waited for some of the GPU's work.
    pub fn synchronized(&self) {
        // The program does not get errors of these calls.
        let api = self.internal();
        self.driver.local_pools.settle_pools(api);
        api.end_all_sharing();
        if !self.variables_are_stale() {
            return;
        }
        for shadow in self.driver.memory.shadows.list().iter_mut() {
            // The program may have changed it after an earlier wait.
            let newer = shadow.newer();
            let fetched = self.context().and_then(|context| shadow.fetch(api, context.0, newer));
            if let Err(error) = fetched {
                // The context is broken: the program gets the error from its next call.
                log::debug!("Fetching a __managed__ variable: {error}");
                return;
            }
        }
    }

    /// Must be called at the end of a copy or fill that the program did not call as an asynchronous one. Such a call may
    /// return before the GPU has written device memory (CUDA driver API, "API synchronization behavior"), but the program
    /// may read a variable right after it. `has_waited`: the call has waited for its work.
    ///
    /// Errors: those of the work.
    pub fn end_synchronous(&self, has_waited: bool) -> Result<(), CudaError> {
        if !has_waited && self.variables_are_stale() {
            self.wait_for_stream(self.default_stream())?;
        }
        self.synchronized();
        Ok(())
    }

    /// Must be called at the end of a call that has queued a launch, a copy or a fill in `stream`. With
    /// `CUDA_LAUNCH_BLOCKING=1` it waits for the work and returns its errors.
    pub fn end_asynchronous(&self, stream: StreamId) -> Result<(), CudaError> {
        if self.driver.environment.launch_blocking && !self.captures(stream) {
            self.wait_for_stream(stream)?;
            self.synchronized();
        }
        Ok(())
    }

    /// Returns whether the GPU may have changed a variable since the last fetch.
    pub fn variables_are_stale(&self) -> bool {
        let shadows = &self.driver.memory.shadows;
        shadows.any.load(Ordering::Acquire) && shadows.stale.load(Ordering::Acquire)
    }

    /// Must be called after a call that has waited for all of the GPU's work.
    pub fn context_synchronized(&self) {
        self.synchronized();
        self.driver.memory.shadows.stale.store(false, Ordering::Release);
    }
}
