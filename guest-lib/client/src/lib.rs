// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The guest side of virtio-cuda: one request, one reply.
//!
//! A [`Session`] is one process's connection to the device. It goes over `/dev/virtio-cuda` ([`device`]) or, when
//! `VIRTIO_CUDA_SOCKET` names a daemon's socket, straight over vhost-user ([`virtio_user`]). The code above
//! [`transport::Transport`] does not depend on the choice. [`calls`] holds a typed stub for each row of the call table.
//!
//! The caller defines the meaning of a call: this crate knows lengths, threads and errors only.

pub mod broken;
pub mod call;
pub mod caller;
pub mod calls;
pub mod changes;
mod device;
mod error;
pub mod idle;
pub mod lane;
pub mod logging;
pub mod open;
pub mod order;
mod output;
pub mod process;
mod reply;
mod result;
mod ring;
pub mod session;
pub mod thread;
pub mod touched;
pub mod trace;
pub mod transport;
pub mod virtio_user;
mod waker;

pub use call::Call;
pub use caller::Caller;
pub use error::ClientError;
pub use result::CudaError;
pub use session::Session;
pub use virtio_cuda_protocol::cuda as protocol;
