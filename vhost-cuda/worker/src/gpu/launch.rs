// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Launches, and queries of the number of clusters that fit.

use std::borrow::Cow;
use std::ffi::{c_int, c_uint, c_void};

use cudarc::driver::sys::CUlaunchAttributeID;
use virtio_cuda_protocol::cuda::{LAUNCH_COOPERATIVE, LAUNCH_PRIORITY, LaunchShape};

use super::graph::{AttributeValue, launch_attribute, value_of};
use super::raw::RawLaunchAttribute;
use super::{CUfunction, CUlaunchConfig, CUstream, CuResult, Driver};

impl Driver {
    /// Launches `function`. The driver writes results into the attributes.
    pub fn launch(&self, function: CUfunction, stream: CUstream, mut launch: Launch<'_>) -> CuResult<()> {
        self.start(function, stream, &mut launch)
    }

    /// As [`Self::launch`]. Returns the node of a captured launch that device code can change, or 0.
    pub fn launch_updatable(
        &self,
        function: CUfunction,
        stream: CUstream,
        mut launch: Launch<'_>,
    ) -> CuResult<(u64,)> {
        self.start(function, stream, &mut launch)?;
        let mut answers = launch.more.iter();
        let node = answers.find(|(id, _)| {
            *id == CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE as u32
        });
        let node = node.and_then(|(_, value)| value.get(8..16)?.try_into().ok());
        Ok((node.map_or(0, u64::from_ne_bytes),))
    }

    fn start(&self, function: CUfunction, stream: CUstream, launch: &mut Launch<'_>) -> CuResult<()> {
        let Launch { shape, more, params } = launch;
        let mut attributes = launch_attributes(shape, more);
        let config = launch_config(shape, stream, &mut attributes);
        let bytes = params.len();
        let mut extra = extra(params, &bytes);
        if attributes.is_empty() {
            // The driver takes a little longer for `cuLaunchKernelEx`.
            let ([gx, gy, gz], [bx, by, bz]) = (shape.grid, shape.block);
            // SAFETY: `extra` and the parameter block live across the call, which copies what it needs of them.
            return unsafe {
                self.cuLaunchKernel(
                    function,
                    gx,
                    gy,
                    gz,
                    bx,
                    by,
                    bz,
                    shape.shared_bytes,
                    stream,
                    std::ptr::null_mut(),
                    extra.as_mut_ptr(),
                )
            };
        }
        // SAFETY: `config`, its attributes, `extra` and the parameter block live across the call, which copies
        // what it needs of them.
        unsafe {
            self.cuLaunchKernelEx(&raw const config, function, std::ptr::null_mut(), extra.as_mut_ptr())
        }?;
        let own = attributes.len() - more.len();
        for ((_, value), attribute) in more.iter_mut().zip(&attributes[own..]) {
            *value = value_of(attribute);
        }
        Ok(())
    }
}

impl Driver {
    /// Returns the number of clusters of a launch's shape that can be resident at once.
    pub fn active_clusters(&self, launch: Launch<'_>, function: CUfunction) -> CuResult<(c_int,)> {
        let mut attributes = launch_attributes(&launch.shape, &launch.more);
        let config = launch_config(&launch.shape, std::ptr::null_mut(), &mut attributes);
        // SAFETY: the structure and its attributes live across the call.
        unsafe { self.cuOccupancyMaxActiveClusters(function, &raw const config) }
    }

    /// Returns the maximum cluster size, in blocks, for a launch of that shape.
    pub fn potential_cluster_size(&self, launch: Launch<'_>, function: CUfunction) -> CuResult<(c_int,)> {
        let mut attributes = launch_attributes(&launch.shape, &launch.more);
        let config = launch_config(&launch.shape, std::ptr::null_mut(), &mut attributes);
        // SAFETY: the structure and its attributes live across the call.
        unsafe { self.cuOccupancyMaxPotentialClusterSize(function, &raw const config) }
    }
}

/// Returns the `extra` array of a launch or node, which refers the driver to a packed parameter block of `bytes`
/// bytes. The driver only reads both.
pub(super) fn extra(params: &[u8], bytes: &usize) -> [*mut c_void; 5] {
    /// `CU_LAUNCH_PARAM_END`, `_BUFFER_POINTER`, `_BUFFER_SIZE`.
    const END: *mut c_void = std::ptr::null_mut();
    const BUFFER_POINTER: *mut c_void = std::ptr::without_provenance_mut(1);
    const BUFFER_SIZE: *mut c_void = std::ptr::without_provenance_mut(2);
    debug_assert_eq!(params.len(), *bytes);
    let size = std::ptr::from_ref(bytes).cast_mut().cast();
    [BUFFER_POINTER, params.as_ptr().cast_mut().cast(), BUFFER_SIZE, size, END]
}

/// A launch without its function and stream.
#[derive(Debug)]
pub struct Launch<'c> {
    /// Grid, block and the most common attributes.
    pub shape: LaunchShape,
    /// Further attributes.
    pub more: Vec<(u32, AttributeValue)>,
    /// The parameter block in the kernel's layout.
    pub params: Cow<'c, [u8]>,
}

/// Returns the structure with these attributes, which it points to.
fn launch_config(
    shape: &LaunchShape,
    stream: CUstream,
    attributes: &mut [RawLaunchAttribute],
) -> CUlaunchConfig {
    CUlaunchConfig {
        gridDimX: shape.grid[0],
        gridDimY: shape.grid[1],
        gridDimZ: shape.grid[2],
        blockDimX: shape.block[0],
        blockDimY: shape.block[1],
        blockDimZ: shape.block[2],
        sharedMemBytes: shape.shared_bytes,
        hStream: stream,
        attrs: attributes.as_mut_ptr().cast(),
        numAttrs: attributes.len() as c_uint,
    }
}

fn launch_attributes(shape: &LaunchShape, more: &[(u32, AttributeValue)]) -> Vec<RawLaunchAttribute> {
    let attribute = |id: CUlaunchAttributeID, words: &[u32]| {
        // The union is larger than its members, and the remaining bytes must be zero.
        let mut value = [0; 64];
        for (place, word) in value.chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_ne_bytes());
        }
        launch_attribute(id as u32, &value)
    };
    let mut attributes = Vec::new();
    if shape.flags & LAUNCH_COOPERATIVE != 0 {
        attributes.push(attribute(CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &[1]));
    }
    if shape.flags & LAUNCH_PRIORITY != 0 {
        let priority = shape.priority as u32;
        attributes.push(attribute(CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PRIORITY, &[priority]));
    }
    if shape.cluster != [0; 3] {
        attributes
            .push(attribute(CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, &shape.cluster));
    }
    attributes.extend(more.iter().map(|(id, value)| launch_attribute(*id, value)));
    attributes
}
