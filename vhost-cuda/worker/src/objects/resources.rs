// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Resources of devices (`CUdevResource`). The driver stores internal data in that structure, so the guest gets a
//! name for it instead.

use std::collections::{HashMap, VecDeque};

use parking_lot::Mutex;
use virtio_cuda_protocol::cuda::DeviceResource;

use crate::gpu::{CuResult, CudaError, RawDevResource};

/// The maximum number of remembered resources. CUDA has no call that frees a resource, so the oldest are dropped.
const MAX_RESOURCES: usize = 4096;
/// `CUDA_ERROR_INVALID_RESOURCE_TYPE`.
const INVALID_RESOURCE_TYPE: CudaError = CudaError(914);

/// The resources that were reported to the guest.
#[derive(Debug, Default)]
pub struct DevResources(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    by_name: HashMap<u64, RawDevResource>,
    names: HashMap<RawDevResource, u64>,
    oldest_first: VecDeque<u64>,
    created: u64,
}

impl DevResources {
    /// Returns the name of a resource. The same resource always has the same name.
    pub fn name(&self, resource: RawDevResource) -> DeviceResource {
        let mut state = self.0.lock();
        if let Some(&name) = state.names.get(&resource) {
            return resource.on_wire(name);
        }
        if state.oldest_first.len() >= MAX_RESOURCES
            && let Some(oldest) = state.oldest_first.pop_front()
            && let Some(removed) = state.by_name.remove(&oldest)
        {
            state.names.remove(&removed);
        }
        state.created += 1;
        let name = state.created;
        state.by_name.insert(name, resource);
        state.names.insert(resource, name);
        state.oldest_first.push_back(name);
        resource.on_wire(name)
    }

    /// Returns the resource of that name.
    ///
    /// Errors: `CUDA_ERROR_INVALID_RESOURCE_TYPE`, as for a structure that is not a resource.
    pub fn get(&self, name: u64) -> CuResult<RawDevResource> {
        let state = self.0.lock();
        state.by_name.get(&name).copied().ok_or(INVALID_RESOURCE_TYPE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_resources_have_one_name_and_unknown_ones_none() {
        let resources = DevResources::default();
        let first = resources.name(RawDevResource::ZERO);
        assert_eq!(resources.name(RawDevResource::ZERO).name, first.name);
        assert_eq!(resources.get(first.name), Ok(RawDevResource::ZERO));
        assert_eq!(resources.get(first.name + 1), Err(INVALID_RESOURCE_TYPE));
    }
}
