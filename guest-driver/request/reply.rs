// SPDX-License-Identifier: GPL-2.0-only

//! Checks of the device's replies. The driver does not trust the device with the driver's memory: lengths are checked
//! against the provided buffers.

use crate::{
    error::Fault,
    transport::{
        ReplyHeader,
        REPLY_INVALID,
        REPLY_NO_RESOURCES,
        REPLY_OK,
        REPLY_SESSION_LOST,
        REPLY_VERSION, //
    }, //
};
use kernel::prelude::*;

/// Returns the bytes of payload in a reply for which the device returned `used` bytes. At most `capacity` of them are
/// for the payload. An error if the device did not execute the request.
pub(crate) fn payload_bytes(
    header: ReplyHeader,
    used: u32,
    capacity: usize,
) -> Result<usize, Fault> {
    let written = (used as usize)
        .checked_sub(size_of::<ReplyHeader>())
        .ok_or(Fault::Garbled)?;
    match header.status {
        REPLY_OK => (),
        REPLY_SESSION_LOST => return Err(Fault::Lost),
        REPLY_NO_RESOURCES => return Err(Fault::Quota),
        REPLY_INVALID | REPLY_VERSION => return Err(Fault::Refused),
        _ => return Err(Fault::Garbled),
    }
    let bytes = header.payload_bytes as usize;
    if bytes > written || bytes > capacity {
        return Err(Fault::Garbled);
    }
    Ok(bytes)
}

#[kunit_tests(virtio_cuda_reply)]
mod tests {
    use super::*;

    fn check(status: u32, payload: u32, used: u32, capacity: usize) -> Result<usize, Fault> {
        let header = ReplyHeader {
            status,
            payload_bytes: payload,
        };
        payload_bytes(header, used, capacity)
    }

    #[test]
    fn accepts_what_fits() {
        assert_eq!(check(REPLY_OK, 0, 8, 0), Ok(0));
        assert_eq!(check(REPLY_OK, 24, 32, 24), Ok(24));
        assert_eq!(check(REPLY_OK, 8, 32, 24), Ok(8));
    }

    #[test]
    fn refuses_lengths_that_lie() {
        assert_eq!(check(REPLY_OK, 0, 7, 64), Err(Fault::Garbled));
        assert_eq!(check(REPLY_OK, 25, 32, 64), Err(Fault::Garbled));
        assert_eq!(check(REPLY_OK, 65, u32::MAX, 64), Err(Fault::Garbled));
        assert_eq!(check(REPLY_OK, u32::MAX, u32::MAX, 64), Err(Fault::Garbled));
    }

    #[test]
    fn names_each_status() {
        assert_eq!(check(REPLY_SESSION_LOST, 0, 8, 0), Err(Fault::Lost));
        assert_eq!(check(REPLY_NO_RESOURCES, 0, 8, 0), Err(Fault::Quota));
        assert_eq!(check(REPLY_INVALID, 0, 8, 0), Err(Fault::Refused));
        assert_eq!(check(REPLY_VERSION, 0, 8, 0), Err(Fault::Refused));
        assert_eq!(check(77, 0, 8, 0), Err(Fault::Garbled));
        assert_eq!(check(REPLY_SESSION_LOST, 0, 0, 0), Err(Fault::Garbled));
    }
}
