// SPDX-License-Identifier: Apache-2.0 OR MIT
//! EGL images and streams. Frames of streams are not translated between the forms of the runtime and the driver,
//! because no connection to a stream can exist.

use core::ffi::{c_int, c_uint, c_void};

use crate::abi::shared::cudaChannelFormatDesc;
use crate::abi::{cudaGraphicsResource_t, cudaStream_t};
use crate::error::{cudaError_t, cudaErrorInvalidResourceHandle, cudaErrorNotSupported};
use crate::texture::channel::Format;
use crate::{driver, state};

/// `cudaEglStreamConnection`.
type Connection = *mut c_void;

/// `cudaEglFrame`: the planes' memory, their descriptions, and three words.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Frame {
    memory: [u64; 12],
    planes: [Plane; 3],
    rest: [c_uint; 3],
}

/// `cudaEglPlaneDesc`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Plane {
    size: [c_uint; 5],
    channels: cudaChannelFormatDesc,
    reserved: [c_uint; 4],
}
const _: () = assert!(size_of::<Frame>() == 280);

api! {
    fn cudaGraphicsEGLRegisterImage(resource: *mut cudaGraphicsResource_t, image: *mut c_void, flags: c_uint) {
        state::context()?;
    } => driver::cuGraphicsEGLRegisterImage(resource, image, flags);

    fn cudaEGLStreamConsumerConnect(connection: *mut Connection, stream: *mut c_void) {
        state::context()?;
    } => driver::cuEGLStreamConsumerConnect(connection, stream);

    fn cudaEGLStreamConsumerConnectWithFlags(connection: *mut Connection, stream: *mut c_void, flags: c_uint) {
        state::context()?;
    } => driver::cuEGLStreamConsumerConnectWithFlags(connection, stream, flags);

    fn cudaEGLStreamConsumerDisconnect(connection: *mut Connection) {
        state::context()?;
    } => driver::cuEGLStreamConsumerDisconnect(connection);

    fn cudaEGLStreamConsumerAcquireFrame(
        connection: *mut Connection, resource: *mut cudaGraphicsResource_t, stream: *mut cudaStream_t,
        timeout: c_uint,
    ) {
        state::context()?;
    } => driver::cuEGLStreamConsumerAcquireFrame(connection, resource, stream, timeout);

    fn cudaEGLStreamConsumerReleaseFrame(
        connection: *mut Connection, resource: cudaGraphicsResource_t, stream: *mut cudaStream_t,
    ) {
        state::context()?;
    } => driver::cuEGLStreamConsumerReleaseFrame(connection, resource, stream);

    fn cudaEGLStreamProducerConnect(
        connection: *mut Connection, stream: *mut c_void, width: c_int, height: c_int,
    ) {
        state::context()?;
    } => driver::cuEGLStreamProducerConnect(connection, stream, width, height);

    fn cudaEGLStreamProducerDisconnect(connection: *mut Connection) {
        state::context()?;
    } => driver::cuEGLStreamProducerDisconnect(connection);

    fn cudaEGLStreamProducerPresentFrame(_connection: *mut Connection, frame: Frame, _stream: *mut cudaStream_t) {
        state::context()?;
        Format::of(&frame.planes[0].channels)?;
        Err(cudaErrorInvalidResourceHandle)
    }

    fn cudaEGLStreamProducerReturnFrame(
        _connection: *mut Connection, _frame: *mut Frame, _stream: *mut cudaStream_t,
    ) {
        state::context()?;
        Err(cudaErrorInvalidResourceHandle)
    }

    fn cudaGraphicsResourceGetMappedEglFrame(
        _frame: *mut Frame, _resource: cudaGraphicsResource_t, _index: c_uint, _level: c_uint,
    ) {
        state::context()?;
        Err(cudaErrorInvalidResourceHandle)
    }
}

/// EGL events are for other systems. NVIDIA's runtime always refuses them, without setting the last error.
#[unsafe(no_mangle)]
extern "C" fn cudaEventCreateFromEGLSync(
    _event: *mut c_void,
    _sync: *mut c_void,
    _flags: c_uint,
) -> cudaError_t {
    cudaErrorNotSupported
}
