// SPDX-License-Identifier: Apache-2.0 OR MIT

//! `CUDA_MEMCPY3D` as the parameters of a node.

use cuda_abi::{CUDA_MEMCPY3D, CopyEnd3D};
use virtio_cuda_client::protocol::{
    Box3, COPY_ARRAY, COPY_DEVICE, COPY_HOST, CallbackId, CopyEnd, DevicePtr, MemcpyNode, StreamId,
};
use virtio_cuda_client::{CudaError, calls};

use crate::entry::Api;
use crate::memory::place::Place;
use crate::state::buffers::PageableCopy;
use crate::state::callbacks::Callback;
use crate::stream::callback_thread;
use crate::wire::put;

/// `CU_MEMORYTYPE_*`.
const HOST: u32 = 1;
const DEVICE: u32 = 2;
const ARRAY: u32 = 3;
const UNIFIED: u32 = 4;

/// Returns true if a copy has two valid memory types and copies at least one byte.
pub fn copies(copy: &CUDA_MEMCPY3D) -> bool {
    let is_kind = |end: &CopyEnd3D| match end.memory_type {
        1 => end.host != 0,
        2 | 4 => end.device != 0,
        3 => true,
        _ => false,
    };
    is_kind(&copy.src) && is_kind(&copy.dst) && copy.width > 0 && copy.height > 0 && copy.depth > 0
}

/// One end of a node's copy: the first byte of the box, and its position in the program's memory or array.
#[derive(Clone, Copy, Debug)]
pub struct NodeEnd {
    /// Address of the first byte.
    pub place: Place,
    /// The array, if there is one. The place is ignored then.
    pub array: Option<u64>,
    /// Bytes into the row.
    pub x: u64,
    /// First row.
    pub y: u64,
    /// First slice.
    pub z: u64,
    /// Bytes from row to row.
    pub pitch: u64,
    /// Rows from slice to slice.
    pub height: u64,
}

/// A copy of a node.
#[derive(Debug)]
pub struct NodeCopy {
    /// The description that is sent.
    pub node: MemcpyNode,
}

impl NodeCopy {
    /// Returns a copy between two ends.
    pub fn new(api: Api, dst: NodeEnd, src: NodeEnd, size: Box3) -> Result<Self, CudaError> {
        let mut copy = Self { node: MemcpyNode { size, ..MemcpyNode::default() } };
        (copy.node.src, copy.node.before) = src.on_wire(api, size, false)?;
        let dst = dst.on_wire(api, size, true).inspect_err(|_| copy.forget(api))?;
        (copy.node.dst, copy.node.after) = dst;
        Ok(copy)
    }

    /// Translates a program's copy.
    pub fn from_params(api: Api, params: &CUDA_MEMCPY3D) -> Result<Self, CudaError> {
        let (width, height, depth) = (params.width as u64, params.height as u64, params.depth as u64);
        let size = Box3 { width, height, depth };
        if width == 0 || height == 0 || depth == 0 {
            return Err(CudaError::INVALID_VALUE);
        }
        Self::new(api, NodeEnd::new(api, &params.dst, size)?, NodeEnd::new(api, &params.src, size)?, size)
    }

    /// Removes the callbacks after the creation of the node failed.
    pub fn forget(&self, api: Api) {
        for id in [self.node.before, self.node.after] {
            api.driver.callbacks.remove(id);
        }
    }
}

impl NodeEnd {
    /// Returns an end in contiguous memory.
    pub fn row(place: Place, size: Box3) -> Self {
        Self::memory(place, size.width, size.height)
    }

    /// Returns an end that starts at the first byte of its memory.
    pub fn memory(place: Place, pitch: u64, height: u64) -> Self {
        Self { place, array: None, x: 0, y: 0, z: 0, pitch, height }
    }

    fn new(api: Api, end: &CopyEnd3D, size: Box3) -> Result<Self, CudaError> {
        let (x, y, z) = (end.x as u64, end.y as u64, end.z as u64);
        if end.memory_type == ARRAY {
            if end.array == 0 {
                return Err(CudaError::INVALID_VALUE);
            }
            let (place, array) = (Place::Device(0), Some(end.array));
            return Ok(Self { place, array, x, y, z, pitch: 0, height: 0 });
        }
        let place = || {
            let (width, rows) = (x.checked_add(size.width)?, y.checked_add(size.height)?);
            // 0 stands for the smallest pitch or height that fits.
            let pitch = if end.pitch == 0 { width } else { end.pitch as u64 };
            let height = if end.height == 0 { rows } else { end.height as u64 };
            let offset = z.checked_mul(height)?.checked_add(y)?.checked_mul(pitch)?.checked_add(x)?;
            let last = (size.depth - 1).checked_mul(height)?.checked_add(size.height - 1)?;
            let span = last.checked_mul(pitch)?.checked_add(size.width)?;
            Some((offset, span, pitch, height))
        };
        let (offset, span, pitch, height) = place().ok_or(CudaError::INVALID_VALUE)?;
        let first = |base: u64| base.checked_add(offset).ok_or(CudaError::INVALID_VALUE);
        let place = match end.memory_type {
            HOST => api.host_place(first(end.host)?, span),
            DEVICE => api.device_place(first(end.device)?),
            UNIFIED => api.unified_place(first(end.device)?),
            _ => return Err(CudaError::INVALID_VALUE),
        };
        Ok(match place {
            Place::Pageable(_) => Self { place, array: None, x, y, z, pitch, height },
            _ => Self { place, array: None, x, y, z, pitch: end.pitch as u64, height: end.height as u64 },
        })
    }

    /// Returns the bytes from the program's base address to the first byte.
    fn offset(&self, size: Box3) -> u64 {
        let pitch = if self.pitch == 0 { self.x + size.width } else { self.pitch };
        let height = if self.height == 0 { self.y + size.height } else { self.height };
        (self.z * height + self.y) * pitch + self.x
    }

    fn on_wire(self, api: Api, size: Box3, to_user: bool) -> Result<(CopyEnd, CallbackId), CudaError> {
        let Self { place, array, x, y, z, pitch, height } = self;
        if let Some(array) = array {
            let end = CopyEnd { kind: COPY_ARRAY, address: DevicePtr(array), x, y, z, pitch, height };
            return Ok((end, CallbackId(0)));
        }
        let user = match place {
            Place::Pageable(user) => user,
            Place::Device(first) | Place::Pinned { device: first, .. } => {
                let kind = if matches!(place, Place::Device(_)) { COPY_DEVICE } else { COPY_HOST };
                let address = DevicePtr(first.wrapping_sub(self.offset(size)));
                return Ok((CopyEnd { kind, address, x, y, z, pitch, height }, CallbackId(0)));
            }
        };
        let copy = PageableCopy::new(api, user, pitch, height, size, to_user)?;
        let address = DevicePtr(copy.device_address(api)?);
        let callback = callback_thread::register(api, Callback::Copy(copy))?;
        let end =
            CopyEnd { kind: COPY_HOST, address, x: 0, y: 0, z: 0, pitch: size.width, height: size.height };
        Ok((end, callback))
    }
}

/// Returns the parameters of a node in the form in which a program specifies them.
pub fn of_node(api: Api, node: &MemcpyNode) -> CUDA_MEMCPY3D {
    CUDA_MEMCPY3D {
        src: end_of_wire(api, &node.src, node.before),
        dst: end_of_wire(api, &node.dst, node.after),
        width: node.size.width as usize,
        height: node.size.height as usize,
        depth: node.size.depth as usize,
    }
}

fn end_of_wire(api: Api, end: &CopyEnd, callback: CallbackId) -> CopyEnd3D {
    if let Some(Callback::Copy(copy)) = api.driver.callbacks.get(callback).as_deref() {
        let (host, pitch, height) = copy.user();
        let (pitch, height) = (pitch as usize, height as usize);
        return CopyEnd3D { memory_type: HOST, host, pitch, height, ..CopyEnd3D::ZERO };
    }
    let mut answer = CopyEnd3D {
        x: end.x as usize,
        y: end.y as usize,
        z: end.z as usize,
        pitch: end.pitch as usize,
        height: end.height as usize,
        ..CopyEnd3D::ZERO
    };
    if end.kind == COPY_ARRAY {
        (answer.memory_type, answer.array) = (ARRAY, end.address.0);
    } else if end.kind == COPY_DEVICE {
        (answer.memory_type, answer.device) = (DEVICE, end.address.0);
    } else {
        // Registered memory may have another address on the GPU.
        (answer.memory_type, answer.host) = (HOST, api.program_address(end.address.0));
    }
    answer
}

impl Api {
    /// Captures a copy with a pageable end.
    pub fn capture_copy(
        &self,
        dst: NodeEnd,
        src: NodeEnd,
        size: Box3,
        stream: StreamId,
    ) -> Result<(), CudaError> {
        let copy = NodeCopy::new(*self, dst, src, size)?;
        let mut bytes = Vec::new();
        put(&copy.node, &mut bytes)?;
        let mut call = self.in_context()?.input(&bytes);
        calls::capture_memcpy(&mut call, stream).inspect_err(|_| copy.forget(*self))
    }
}
