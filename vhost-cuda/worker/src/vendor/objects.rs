// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Objects of cuSPARSELt: structures in the caller's memory that contain internal state of the library and point to
//! each other. The program's structures hold contents in this project's format ([`cuda_library_rows::attributes`]). A
//! handle keeps the library's own objects by these contents. Most of them have no function that destroys them, so the
//! worker cannot know when the program no longer needs one.

use std::collections::VecDeque;

use cuda_library_rows::attributes::{Descriptor, FIRST_ARGUMENT, SPARSITY};
use vhost_cuda_common::budget::Charge;

use super::handles::charge;
use super::invoke::call_with_integers;
use super::load::Loaded;
use super::refusal::Refusal;
use crate::gpu::{CuResult, CudaError};

/// The maximum number of objects per handle. A network uses one plan per layer. A plan with the objects that it was
/// created from has seven blocks.
const MAX_KEPT: usize = 64;

/// Memory that the library may use after a call. Its address does not change.
#[derive(Debug)]
pub struct Block {
    words: Vec<u128>,
    _charge: Charge,
}

impl Block {
    /// Allocates at least `bytes` bytes, zeroed, for one of the library's structures.
    ///
    /// Errors: `CUDA_ERROR_OUT_OF_MEMORY`.
    pub fn of(bytes: usize) -> CuResult<Self> {
        let charge = charge(bytes)?;
        Ok(Self::charged(vec![0; bytes.div_ceil(size_of::<u128>())], charge))
    }

    /// Takes memory, at its address, that was charged before.
    pub fn charged(words: Vec<u128>, charge: Charge) -> Self {
        Self { words, _charge: charge }
    }

    /// Returns its address.
    pub fn address(&mut self) -> u64 {
        self.words.as_mut_ptr() as u64
    }
}

/// An object, with those that it was created from.
///
/// # Invariants
///
/// Addresses are those of `blocks`. `ends` has functions that destroy objects, and objects that exist.
#[derive(Debug, Default)]
struct Made {
    blocks: Vec<Block>,
    /// The functions that destroy objects, in the order in which the objects were created.
    ends: Vec<(usize, u64)>,
    address: u64,
    /// The selection among them, or 0.
    selection: u64,
}

impl Made {
    /// Destroys all of them, the last object first.
    fn end(self) {
        for (function, address) in self.ends.into_iter().rev() {
            // SAFETY: by the type's invariant; nothing uses the object any more.
            let status = unsafe { call_with_integers(function, &[address]) };
            if status != Some(0) {
                log::debug!("an object of a library ended with status {status:?}");
            }
        }
    }
}

/// The objects of a handle; the most recently used one is last. Dropping them leaks the memory that the library holds
/// for them, as a program does.
#[derive(Debug, Default)]
pub struct Objects(VecDeque<Kept>);

#[derive(Debug)]
struct Kept {
    kind: usize,
    contents: Vec<u8>,
    made: Made,
}

impl Objects {
    /// Returns the address of the object with these contents, which the library creates if it does not exist. The
    /// address is valid until the next call of this function, [`Self::found`] or [`Self::end`].
    pub fn of(&mut self, loaded: &Loaded, handle: u64, kind: usize, contents: &[u8]) -> Result<u64, Refusal> {
        if let Some(kept) = self.take(kind, contents) {
            let address = kept.made.address;
            self.0.push_back(kept);
            return Ok(address);
        }
        let mut maker = Maker { loaded, handle, made: Made::default() };
        match maker.make(kind, contents) {
            Ok(address) => maker.made.address = address,
            Err(refusal) => {
                maker.made.end();
                return Err(refusal);
            }
        }
        let made = maker.made;
        let address = made.address;
        if self.0.len() >= MAX_KEPT
            && let Some(oldest) = self.0.pop_front()
        {
            oldest.made.end();
        }
        self.0.push_back(Kept { kind, contents: contents.to_vec(), made });
        Ok(address)
    }

    /// Ends the object with these contents, which a call has changed. If the call has succeeded, returns the
    /// attributes of its selection in the form of contents.
    pub fn found(
        &mut self,
        loaded: &Loaded,
        handle: u64,
        kind: usize,
        contents: &[u8],
        succeeded: bool,
    ) -> Vec<u8> {
        let Some(Kept { made, .. }) = self.take(kind, contents) else { return Vec::new() };
        let descriptors = &loaded.rows.descriptors;
        let selection = descriptors.iter().find(|known| known.name == "selection");
        let get = loaded.named("cusparseLtMatmulAlgGetAttribute");
        let mut found = Vec::new();
        if let (Some(selection), Some(get), true) = (selection, get, succeeded && made.selection != 0) {
            found.resize(selection.bytes, 0);
            for (index, attribute) in selection.attributes.iter().enumerate() {
                if attribute.number >= FIRST_ARGUMENT || attribute.is_readonly {
                    continue;
                }
                let mut value = 0_u64;
                let place = &raw mut value as u64;
                let arguments =
                    [handle, made.selection, u64::from(attribute.number), place, attribute.bytes as u64];
                // SAFETY: the library writes that many bytes of an attribute, at most 8, of a selection that exists.
                if unsafe { call_with_integers(get, &arguments) } == Some(loaded.rows.statuses.success) {
                    selection.set(index, value, &mut found);
                }
            }
        }
        made.end();
        found
    }

    /// Ends all objects.
    pub fn end(&mut self) {
        self.0.drain(..).for_each(|kept| kept.made.end());
    }

    fn take(&mut self, kind: usize, contents: &[u8]) -> Option<Kept> {
        let is_it = |kept: &Kept| kept.kind == kind && kept.contents == contents;
        let index = self.0.iter().rposition(is_it)?;
        self.0.remove(index)
    }
}

/// Makes the library create objects.
struct Maker<'a> {
    loaded: &'a Loaded,
    /// The library's handle.
    handle: u64,
    made: Made,
}

impl<'a> Maker<'a> {
    fn make(&mut self, kind: usize, contents: &[u8]) -> Result<u64, Refusal> {
        match self.loaded.rows.descriptors[kind].name {
            "mat" => self.matrix(kind, contents),
            "matmul" => self.product(kind, contents, u64::MAX),
            "selection" => self.selection(kind, contents).map(|(selection, _)| selection),
            "plan" => self.plan(kind, contents),
            _ => Err(Refusal::Cuda(CudaError::INVALID_VALUE)),
        }
    }

    fn matrix(&mut self, kind: usize, contents: &[u8]) -> Result<u64, Refusal> {
        let descriptor = self.descriptor(kind, contents)?;
        let mut given = given(descriptor, contents);
        let sparsity =
            descriptor.attribute(SPARSITY).and_then(|(index, _)| descriptor.value(index, contents));
        given.extend(sparsity);
        let init = match sparsity {
            Some(_) => "cusparseLtStructuredDescriptorInit",
            None => "cusparseLtDenseDescriptorInit",
        };
        let matrix = self.init(init, &given, Some("cusparseLtMatDescriptorDestroy"))?;
        self.set("cusparseLtMatDescSetAttribute", descriptor, contents, matrix, u64::MAX)?;
        Ok(matrix)
    }

    /// Creates a product, with the attributes of `mask` only.
    fn product(&mut self, kind: usize, contents: &[u8], mask: u64) -> Result<u64, Refusal> {
        let descriptor = self.descriptor(kind, contents)?;
        let [a, b, compute] = given(descriptor, contents)[..] else {
            return Err(Refusal::Cuda(CudaError::INVALID_VALUE));
        };
        let mut arguments = vec![a, b];
        for index in 0..descriptor.parts.len() {
            let part = descriptor.part(self.loaded.rows.descriptors, index);
            arguments.push(self.matrix(descriptor.parts[index].kind, &contents[part])?);
        }
        arguments.push(compute);
        let product = self.init("cusparseLtMatmulDescriptorInit", &arguments, None)?;
        self.set("cusparseLtMatmulDescSetAttribute", descriptor, contents, product, mask)?;
        Ok(product)
    }

    /// Creates a selection, and its product with all its attributes. The selection was created when the product had
    /// only some of them.
    fn selection(&mut self, kind: usize, contents: &[u8]) -> Result<(u64, u64), Refusal> {
        let descriptor = self.descriptor(kind, contents)?;
        let [algorithm, at_first] = given(descriptor, contents)[..] else {
            return Err(Refusal::Cuda(CudaError::INVALID_VALUE));
        };
        let (of_product, part) = self.only_part(descriptor)?;
        let product_contents = &contents[part];
        let product = self.product(of_product, product_contents, at_first)?;
        let end = Some("cusparseLtMatmulAlgSelectionDestroy");
        let selection = self.init("cusparseLtMatmulAlgSelectionInit", &[product, algorithm], end)?;
        self.made.selection = selection;
        self.set("cusparseLtMatmulAlgSetAttribute", descriptor, contents, selection, u64::MAX)?;
        let product_descriptor = &self.loaded.rows.descriptors[of_product];
        let set = "cusparseLtMatmulDescSetAttribute";
        self.set(set, product_descriptor, product_contents, product, !at_first)?;
        Ok((selection, product))
    }

    fn plan(&mut self, kind: usize, contents: &[u8]) -> Result<u64, Refusal> {
        let descriptor = self.descriptor(kind, contents)?;
        let (of_selection, part) = self.only_part(descriptor)?;
        let (selection, product) = self.selection(of_selection, &contents[part])?;
        self.init("cusparseLtMatmulPlanInit", &[product, selection], Some("cusparseLtMatmulPlanDestroy"))
    }

    fn only_part(&self, descriptor: &Descriptor) -> Result<(usize, std::ops::Range<usize>), Refusal> {
        let part = descriptor.parts.first().ok_or(Refusal::Cuda(CudaError::INVALID_VALUE))?;
        Ok((part.kind, descriptor.part(self.loaded.rows.descriptors, 0)))
    }

    /// Returns the descriptor of a kind, if the contents are those of an object that the program has created.
    fn descriptor(&self, kind: usize, contents: &[u8]) -> Result<&'a Descriptor, Refusal> {
        let rows = self.loaded.rows;
        let descriptor = &rows.descriptors[kind];
        if descriptor.is_made(contents) {
            Ok(descriptor)
        } else {
            Err(Refusal::Status(rows.statuses.invalid_value))
        }
    }

    /// Creates an object, which `end` destroys if the library has that function.
    fn init(&mut self, name: &str, arguments: &[u64], end: Option<&str>) -> Result<u64, Refusal> {
        let rows = self.loaded.rows;
        let alloc_failed = Refusal::Status(rows.statuses.alloc_failed);
        let mut block = Block::of(rows.handles[0].structure).map_err(|_| alloc_failed)?;
        let address = block.address();
        let all: Vec<u64> = [self.handle, address].into_iter().chain(arguments.iter().copied()).collect();
        // Also where it fails, because the library may have kept the address.
        self.made.blocks.push(block);
        self.call(name, &all)?;
        if let Some(end) = end.and_then(|end| self.loaded.named(end)) {
            self.made.ends.push((end, address));
        }
        Ok(address)
    }

    /// Sets the attributes of `mask` that the program has set.
    fn set(
        &self,
        name: &str,
        descriptor: &Descriptor,
        contents: &[u8],
        object: u64,
        mask: u64,
    ) -> Result<(), Refusal> {
        for (index, attribute) in descriptor.attributes.iter().enumerate() {
            let Some(value) = descriptor.value(index, contents) else { continue };
            if attribute.number >= FIRST_ARGUMENT || attribute.is_readonly || mask >> index & 1 == 0 {
                continue;
            }
            let value = value.to_le_bytes();
            let number = u64::from(attribute.number);
            self.call(name, &[self.handle, object, number, value.as_ptr() as u64, attribute.bytes as u64])?;
        }
        Ok(())
    }

    fn call(&self, name: &str, arguments: &[u64]) -> Result<(), Refusal> {
        // SAFETY: `cusparseLt.h` has these functions with these parameters: the handle, objects that this maker has
        // created in blocks that are as long as the longest of all releases, numbers, and the address of an attribute
        // with its size. Device addresses among the attributes are followed by the GPU only.
        unsafe { self.loaded.call(name, arguments) }
    }
}

/// Returns the values of the attributes that are arguments of the function that creates the descriptor.
fn given(descriptor: &Descriptor, contents: &[u8]) -> Vec<u64> {
    descriptor.given().filter_map(|index| descriptor.value(index, contents)).collect()
}

#[cfg(test)]
#[path = "objects_test.rs"]
mod tests;
