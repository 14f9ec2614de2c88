// SPDX-License-Identifier: Apache-2.0 OR MIT

//! When copies happen.

use virtio_cuda_client::protocol::StreamId;

/// When a copy happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timing {
    /// The call waits as `cuMemcpy` does.
    Wait,
    /// In the order of a stream.
    Stream(StreamId),
}
