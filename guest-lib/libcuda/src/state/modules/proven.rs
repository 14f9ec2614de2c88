// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Shapes of accepted launches.

use std::sync::{Mutex, PoisonError};

use virtio_cuda_client::protocol::{LAUNCH_COOPERATIVE, LaunchShape};

use crate::state::contexts::current;

/// Maximum grid dimensions (CUDA C++ Programming Guide, "Technical Specifications per Compute Capability").
const MAX_GRID: [u32; 3] = [i32::MAX as u32, u16::MAX as u32, u16::MAX as u32];
/// Maximum number of shapes that are stored per function.
const MAX_SHAPES: usize = 8;

/// Shapes, with their contexts, in which the device has accepted a launch of a function.
#[derive(Debug, Default)]
pub struct ProvenShapes(Mutex<Vec<(u64, LaunchShape)>>);

impl ProvenShapes {
    fn key(shape: LaunchShape) -> (u64, LaunchShape) {
        // The grid matters if blocks depend on each other; otherwise its limits are the same for all functions.
        let grid = if shape.flags & LAUNCH_COOPERATIVE != 0 || shape.cluster != [0; 3] {
            shape.grid
        } else {
            [0; 3]
        };
        (current(), LaunchShape { grid, ..shape })
    }

    /// Returns whether a launch of this shape cannot fail.
    pub fn contains(&self, shape: LaunchShape) -> bool {
        let grid_fits = shape.grid.iter().zip(MAX_GRID).all(|(&blocks, most)| (1..=most).contains(&blocks));
        grid_fits && self.0.lock().unwrap_or_else(PoisonError::into_inner).contains(&Self::key(shape))
    }

    /// Records an accepted launch.
    pub fn add(&self, shape: LaunchShape) {
        let mut shapes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = Self::key(shape);
        if !shapes.contains(&key) {
            shapes.truncate(MAX_SHAPES - 1);
            shapes.insert(0, key);
        }
    }

    /// Removes all shapes after a change of the function's attributes.
    pub fn forget(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shape_is_proven_for_every_grid_unless_blocks_depend_on_each_other() {
        let shapes = ProvenShapes::default();
        let shape = LaunchShape { grid: [4, 1, 1], block: [256, 1, 1], ..Default::default() };
        assert!(!shapes.contains(shape));
        shapes.add(shape);
        assert!(shapes.contains(LaunchShape { grid: [1 << 20, 7, 9], ..shape }));
        assert!(!shapes.contains(LaunchShape { grid: [1, 0, 1], ..shape }));
        assert!(!shapes.contains(LaunchShape { grid: [1, 1 << 16, 1], ..shape }));
        assert!(!shapes.contains(LaunchShape { block: [512, 1, 1], ..shape }));
        let cooperative = LaunchShape { flags: LAUNCH_COOPERATIVE, ..shape };
        shapes.add(cooperative);
        assert!(shapes.contains(cooperative));
        assert!(!shapes.contains(LaunchShape { grid: [5, 1, 1], ..cooperative }));
        shapes.forget();
        assert!(!shapes.contains(shape));
    }
}
