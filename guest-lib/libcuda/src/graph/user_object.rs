// SPDX-License-Identifier: Apache-2.0 OR MIT

//! User objects. The device counts their references, including those of graphs, and reports when the last one is
//! removed. The destructor then runs on this library's callback thread.

use cuda_abi::CUhostFn;
use virtio_cuda_client::protocol::UserObjectId;
use virtio_cuda_client::{CudaError, calls};

use crate::entry_points;
use crate::ffi::{HostPtr, Out};
use crate::state::callbacks::Callback;
use crate::stream::callback_thread;

entry_points! {
    /// Creates a user object.
    call cuUserObjectCreate(api, object_out: Out<u64>, ptr: HostPtr, destroy: CUhostFn, initialRefcount: u32, flags: u32) {
        object_out.check()?;
        let callback = Callback::Host(destroy.ok_or(CudaError::INVALID_VALUE)?, ptr.address());
        let callbacks = &api.driver.callbacks;
        let id = callback_thread::register(api, callback)?;
        // The object and its destructor have the same id.
        calls::cuUserObjectCreate(&mut api.call(), UserObjectId(id.0), id, initialRefcount, flags)
            .inspect_err(|_| callbacks.remove(id))?;
        object_out.set(id.0)
    }
}
