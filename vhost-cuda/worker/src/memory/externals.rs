// SPDX-License-Identifier: Apache-2.0 OR MIT
//! External memory: imported allocations, and their mappings.
//!
//! Memory counts once, however often it is imported under one token, and for as long as an import or a mapping keeps it. If the
//! session itself has made it, it counts as that allocation.

use std::collections::HashMap;

use vhost_cuda_common::exchange::Token;
use virtio_cuda_protocol::cuda::FIRST_HANDLE;

use crate::gpu::{CUexternalMemory, CuResult, CudaError};
use crate::home::Home;

/// The maximum number of imports, and of mappings, per session.
const MAX_ENTRIES: usize = 1 << 16;

/// An allocation that was imported.
#[derive(Debug)]
pub struct Block {
    bytes: u64,
    /// The session's own allocation.
    own: Option<u64>,
    /// Imports and mappings.
    users: u32,
}

#[derive(Clone, Copy, Debug)]
struct Import {
    /// The driver's handle, as an integer so that the table may be shared between threads.
    raw: usize,
    token: Token,
    /// The context in which it was made, and to which its mappings belong.
    home: Home,
}

/// A buffer or mipmapped array.
#[derive(Clone, Copy, Debug)]
struct Mapping {
    token: Token,
    context: u64,
}

/// An object that nothing uses any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unused {
    /// Bytes of another session's memory.
    Foreign(u64),
    /// One use of the session's allocation of this name.
    Own(u64),
}

/// All external memory of a session.
#[derive(Debug, Default)]
pub struct Externals {
    blocks: HashMap<Token, Block>,
    imports: HashMap<u64, Import>,
    /// The buffers by address.
    buffers: HashMap<u64, Mapping>,
    /// The arrays by name.
    arrays: HashMap<u64, Mapping>,
}

impl Block {
    /// An allocation that counts as `own` or, without one, by its bytes.
    pub fn new(bytes: u64, own: Option<u64>) -> Self {
        Self { bytes, own, users: 0 }
    }
}

impl Externals {
    /// Returns whether there is no external memory.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty() && self.imports.is_empty()
    }

    /// Checks a name that the guest has chosen.
    ///
    /// Errors: `CUDA_ERROR_INVALID_VALUE`, `CUDA_ERROR_OUT_OF_MEMORY`.
    pub fn check_new(&self, name: u64) -> CuResult<()> {
        if name < FIRST_HANDLE || self.imports.contains_key(&name) {
            return Err(CudaError::INVALID_VALUE);
        }
        if self.imports.len() >= MAX_ENTRIES { Err(CudaError::OUT_OF_MEMORY) } else { Ok(()) }
    }

    /// Returns whether the memory behind a token counts already.
    pub fn is_known(&self, token: &Token) -> bool {
        self.blocks.contains_key(token)
    }

    /// Enters an import that the driver has made in the context `home`, of memory that is `block` if it was not known before.
    /// Returns true for the first import of that memory.
    pub fn import(
        &mut self,
        name: u64,
        raw: CUexternalMemory,
        token: Token,
        block: Block,
        home: Home,
    ) -> bool {
        self.imports.insert(name, Import { raw: raw as usize, token, home });
        let block = self.blocks.entry(token).or_insert(block);
        block.users += 1;
        block.users == 1
    }

    /// The driver's handle, the bytes of the whole allocation, and the context of the import.
    ///
    /// Errors: `CUDA_ERROR_INVALID_VALUE`.
    pub fn get(&self, name: u64) -> CuResult<(CUexternalMemory, u64, Home)> {
        let import = self.imports.get(&name).ok_or(CudaError::INVALID_VALUE)?;
        let block = self.blocks.get(&import.token).ok_or(CudaError::INVALID_VALUE)?;
        Ok((import.raw as CUexternalMemory, block.bytes, import.home))
    }

    /// Returns an error if a session has the maximum number of mappings.
    ///
    /// Errors: `CUDA_ERROR_OUT_OF_MEMORY`.
    pub fn check_room(&self) -> CuResult<()> {
        let full = self.buffers.len() + self.arrays.len() >= MAX_ENTRIES;
        if full { Err(CudaError::OUT_OF_MEMORY) } else { Ok(()) }
    }

    /// Notes that the external memory `name` is mapped at `dptr`.
    pub fn map_buffer(&mut self, name: u64, dptr: u64) {
        if let Some(mapping) = self.one_more(name) {
            self.buffers.insert(dptr, mapping);
        }
    }

    /// Notes that the external memory `name` is the mipmapped array `mipmap`.
    pub fn map_array(&mut self, name: u64, mipmap: u64) {
        if let Some(mapping) = self.one_more(name) {
            self.arrays.insert(mipmap, mapping);
        }
    }

    fn one_more(&mut self, name: u64) -> Option<Mapping> {
        let Import { token, home, .. } = *self.imports.get(&name)?;
        self.blocks.get_mut(&token)?.users += 1;
        Some(Mapping { token, context: home.context })
    }

    /// Forgets an import.
    pub fn destroy(&mut self, name: u64) -> Option<Unused> {
        let import = self.imports.remove(&name)?;
        self.one_less(import.token)
    }

    /// Forgets a buffer.
    pub fn unmap_buffer(&mut self, dptr: u64) -> Option<Unused> {
        let mapping = self.buffers.remove(&dptr)?;
        self.one_less(mapping.token)
    }

    /// Forgets a mipmapped array, if it is one of external memory.
    pub fn unmap_array(&mut self, mipmap: u64) -> Option<Unused> {
        let mapping = self.arrays.remove(&mipmap)?;
        self.one_less(mapping.token)
    }

    /// Forgets the objects that ended with a context.
    pub fn forget_context(&mut self, context: u64) -> Vec<Unused> {
        let imports = self.imports.extract_if(|_, import| import.home.context == context);
        let mut removed: Vec<Token> = imports.map(|(_, import)| import.token).collect();
        for mappings in [&mut self.buffers, &mut self.arrays] {
            let mappings = mappings.extract_if(|_, mapping| mapping.context == context);
            removed.extend(mappings.map(|(_, mapping)| mapping.token));
        }
        removed.into_iter().filter_map(|token| self.one_less(token)).collect()
    }

    fn one_less(&mut self, token: Token) -> Option<Unused> {
        let block = self.blocks.get_mut(&token)?;
        block.users -= 1;
        if block.users > 0 {
            return None;
        }
        let unused = block.own.map_or(Unused::Foreign(block.bytes), Unused::Own);
        self.blocks.remove(&token);
        Some(unused)
    }
}

#[cfg(test)]
mod tests {
    use vhost_cuda_common::exchange::TOKEN_BYTES;

    use super::*;

    const NAME: u64 = FIRST_HANDLE;
    const TOKEN: Token = [7; TOKEN_BYTES];

    fn import(externals: &mut Externals, name: u64, own: Option<u64>) -> bool {
        externals.check_new(name).expect("a free name");
        externals.import(
            name,
            std::ptr::without_provenance_mut(1),
            TOKEN,
            Block::new(4096, own),
            Home { context: 3, device: 0 },
        )
    }

    #[test]
    fn memory_counts_once_and_while_something_uses_it() {
        let mut externals = Externals::default();
        assert!(import(&mut externals, NAME, None));
        assert!(externals.is_known(&TOKEN) && !externals.is_known(&[8; TOKEN_BYTES]));
        assert!(!import(&mut externals, NAME + 1, None), "the same memory");
        assert!(externals.check_new(NAME).is_err() && externals.check_new(1).is_err());
        externals.map_buffer(NAME, 0x1000);
        externals.map_array(NAME + 1, 99);
        assert_eq!(externals.destroy(NAME), None);
        assert!(externals.get(NAME).is_err() && externals.get(NAME + 1).is_ok());
        assert_eq!(externals.destroy(NAME + 1), None);
        assert_eq!(externals.unmap_buffer(0x2000), None, "no buffer");
        assert_eq!(externals.unmap_buffer(0x1000), None);
        assert_eq!(externals.unmap_array(99), Some(Unused::Foreign(4096)));
        assert!(!externals.is_known(&TOKEN));
    }

    #[test]
    fn a_context_takes_its_part_along() {
        let mut externals = Externals::default();
        import(&mut externals, NAME, Some(55));
        externals.map_buffer(NAME, 0x1000);
        assert_eq!(externals.forget_context(4), [], "another one");
        assert_eq!(externals.forget_context(3), [Unused::Own(55)]);
        assert!(externals.get(NAME).is_err());
    }
}
