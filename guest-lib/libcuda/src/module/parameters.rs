// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The parameters of functions, queried from the device once.

use virtio_cuda_client::protocol::{FunctionId, ParamLayout, Reader, Wire};
use virtio_cuda_client::{CudaError, calls};

use crate::answer;
use crate::entry::Api;
use crate::state::modules::functions::{Function, Parameters};

/// Number of parameters in the buffer for the first reply.
const USUAL_PARAMETERS: usize = 64;
/// Bytes of a [`ParamLayout`] on the wire.
const LAYOUT_BYTES: usize = 8;
/// Maximum number of parameters: a kernel has at most 32,764 bytes of parameters, and each has at least one.
const MAX_PARAMETERS: usize = 32_764;

impl Function {
    /// Returns the layout of the parameters.
    pub fn parameters(&self, api: Api, handle: u64) -> Result<&Parameters, CudaError> {
        if let Some(parameters) = self.parameters.get() {
            return Ok(parameters);
        }
        let fetched = fetch(api, handle)?;
        Ok(self.parameters.get_or_init(|| fetched))
    }
}

fn fetch(api: Api, handle: u64) -> Result<Parameters, CudaError> {
    let (_, layouts) = answer::fetch(USUAL_PARAMETERS * LAYOUT_BYTES, |room| {
        let count = calls::function_layout(&mut api.in_context()?.output(room), FunctionId(handle))? as usize;
        if count > MAX_PARAMETERS { Err(CudaError::UNKNOWN) } else { Ok(((), (count * LAYOUT_BYTES) as u64)) }
    })?;
    parse(&layouts)
}

fn parse(bytes: &[u8]) -> Result<Parameters, CudaError> {
    let mut reader = Reader::new(bytes);
    let mut parameters = Parameters::default();
    while !reader.rest().is_empty() {
        let layout = ParamLayout::take(&mut reader).map_err(|_| CudaError::UNKNOWN)?;
        let end = layout.offset as usize + layout.bytes as usize;
        if end > MAX_PARAMETERS {
            return Err(CudaError::UNKNOWN);
        }
        parameters.block_bytes = parameters.block_bytes.max(end);
        parameters.layouts.push(layout);
    }
    Ok(parameters)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn block_ends_with_the_last_parameter() {
        // k1(float*, int, char, P{32}, short): the example of the documentation of cubins.
        let mut wire = Vec::new();
        for (offset, bytes) in [(0u32, 8u32), (8, 4), (12, 1), (16, 32), (48, 2)] {
            wire.extend(offset.to_le_bytes());
            wire.extend(bytes.to_le_bytes());
        }
        let parameters = parse(&wire).expect("valid");
        assert_eq!((parameters.layouts.len(), parameters.block_bytes), (5, 50));
        assert_eq!(parse(&[]).expect("valid").block_bytes, 0);
    }

    #[test]
    fn absurd_layout_is_refused() {
        let mut wire = u32::MAX.to_le_bytes().to_vec();
        wire.extend(1u32.to_le_bytes());
        assert!(parse(&wire).is_err());
    }
}
