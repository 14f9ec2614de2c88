// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The messages of a hostile worker on its socket and its log: replies, readiness, lines. Also the frames that a
//! worker reads.

use vhost_cuda_common::link::{self, MAX_PAYLOAD_BYTES, Ready};
use zerocopy::FromBytes;

use crate::sessions::messages;

/// An input is a stream of replies, and a log.
pub fn run(data: &[u8]) {
    let mut stream = data;
    while let Ok(Some((header, payload))) = link::receive_reply(&mut stream) {
        assert!(payload.len() <= MAX_PAYLOAD_BYTES as usize);
        assert_eq!(payload.len(), header.payload_bytes as usize);
        let _ = Ready::read_from_bytes(&payload);
    }
    let _ = link::region_of(data);
    for line in data.split(|byte| *byte == b'\n') {
        let (_, text) = messages::parse(line);
        assert!(!text.chars().any(char::is_control), "{text:?}");
        // A byte that is not text becomes a character of three bytes.
        assert!(text.len() <= 3 * line.len());
    }
}
