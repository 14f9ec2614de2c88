// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Takes the reply to a call apart.

use virtio_cuda_protocol::cuda::{Malformed, RESULT_EARLIER, Reader, ResultHeader};
use zerocopy::FromBytes;

use crate::{ClientError, CudaError, caller};

/// The answer to a call.
#[derive(Debug)]
pub(crate) struct Answer<T> {
    /// The results, or the error of the call or of an earlier one.
    pub result: Result<T, CudaError>,
    /// `RESULT_*` bits.
    pub flags: u32,
}

impl<T> Answer<T> {
    /// The answer to a call that is not waited for, or has not been sent: it announces nothing.
    pub const fn of(result: Result<T, CudaError>) -> Self {
        Self { result, flags: 0 }
    }

    /// Reads `reply`: `take` reads the results, and `bulk` gets the bulk output in the reply.
    pub fn read(
        reply: &[u8],
        take: impl FnOnce(&mut Reader<'_>) -> Result<T, Malformed>,
        bulk: impl FnOnce(&[u8]) -> Result<(), ClientError>,
    ) -> Result<Self, ClientError> {
        let (header, rest) = ResultHeader::read_from_prefix(reply).map_err(|_| ClientError::Protocol)?;
        if let Err(error) = CudaError::check(header.result) {
            if header.flags & RESULT_EARLIER != 0 {
                caller::took(error);
            }
            return Ok(Self { result: Err(error), flags: header.flags });
        }
        let results = rest.get(..header.results_bytes as usize).ok_or(ClientError::Protocol)?;
        let mut reader = Reader::new(results);
        let value = take(&mut reader).map_err(|Malformed| ClientError::Protocol)?;
        reader.finish().map_err(|Malformed| ClientError::Protocol)?;
        let output = &rest[header.results_bytes as usize..];
        bulk(output.get(..header.bulk_out_bytes as usize).ok_or(ClientError::Protocol)?)?;
        Ok(Self { result: Ok(value), flags: header.flags })
    }
}
