// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Tensor maps that the device has encoded before. Compilers of array programs (XLA) encode the same few maps in each step of a
//! program, and wait for each.

use std::sync::{Mutex, MutexGuard, PoisonError};

use rustc_hash::FxHashMap;
use virtio_cuda_client::protocol::{TensorDescriptor, Wire, Writer};

/// Maximum number of maps. Limits the process's memory to about a mebibyte; beyond it all are forgotten.
const MAX_MAPS: usize = 4096;
const BYTES: usize = TensorDescriptor::BYTES + <[u32; 5]>::BYTES;

/// All that a map for tiles is made of, and the context, whose device decides whether there are maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tiles {
    context: u64,
    bytes: [u8; BYTES],
}

impl Tiles {
    /// Returns `None` without a context.
    pub fn new(context: u64, tensor: &TensorDescriptor, sizes: &[u32; 5]) -> Option<Self> {
        let mut bytes = [0; BYTES];
        let mut writer = Writer::new(&mut bytes);
        tensor.put(&mut writer).and_then(|()| sizes.put(&mut writer)).ok()?;
        (context != 0).then_some(Self { context, bytes })
    }
}

/// The maps of the process.
#[derive(Debug, Default)]
pub struct TensorMaps(Mutex<FxHashMap<Tiles, [u8; 128]>>);

impl TensorMaps {
    fn lock(&self) -> MutexGuard<'_, FxHashMap<Tiles, [u8; 128]>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the map for the same tiles as before.
    pub fn get(&self, tiles: &Tiles) -> Option<[u8; 128]> {
        self.lock().get(tiles).copied()
    }

    /// Adds the device's map for these tiles.
    pub fn add(&self, tiles: Tiles, map: [u8; 128]) {
        let mut maps = self.lock();
        if maps.len() >= MAX_MAPS {
            maps.clear();
        }
        maps.insert(tiles, map);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_parameter_counts() {
        let maps = TensorMaps::default();
        let tensor = TensorDescriptor { rank: 2, dims: [8, 4, 0, 0, 0], ..TensorDescriptor::default() };
        let tiles = |context, tensor: &TensorDescriptor, side| {
            Tiles::new(context, tensor, &[side, 4, 0, 0, 0]).expect("there is a context")
        };
        maps.add(tiles(1, &tensor, 8), [7; 128]);
        assert_eq!(maps.get(&tiles(1, &tensor, 8)), Some([7; 128]));
        let elsewhere = TensorDescriptor { address: 16, ..tensor };
        let filled = TensorDescriptor { oob_fill: 1, ..tensor };
        for other in
            [tiles(2, &tensor, 8), tiles(1, &tensor, 4), tiles(1, &elsewhere, 8), tiles(1, &filled, 8)]
        {
            assert_eq!(maps.get(&other), None);
        }
        assert_eq!(Tiles::new(0, &tensor, &[0; 5]), None);
        (0..MAX_MAPS as u32).for_each(|side| maps.add(tiles(3, &tensor, side), [1; 128]));
        assert!(maps.lock().len() <= MAX_MAPS);
    }
}
