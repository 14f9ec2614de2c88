// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Fat binaries that are nearly right.

use arbitrary::Arbitrary;

const HEADER: usize = 16;
const ENTRY: usize = 64;

/// A container.
#[derive(Debug, Arbitrary)]
pub struct Image {
    entries: Vec<Entry>,
    changes: Vec<(u16, u8)>,
    cut: Option<u16>,
}

#[derive(Debug, Arbitrary)]
struct Entry {
    kind: u8,
    architecture: u8,
    packing: u8,
    text: Vec<u8>,
    /// Instead of the true uncompressed size.
    claimed: Option<u64>,
}

impl Entry {
    fn bytes(&self) -> Vec<u8> {
        let (flags, payload) = match self.packing % 4 {
            0 => (0_u64, self.text.clone()),
            1 => (0x2000, lz4_flex::block::compress(&self.text)),
            // Neither of these is compressed as its flags state.
            2 => (0x2000, self.text.clone()),
            _ => (0x8000, self.text.clone()),
        };
        let mut bytes = vec![0; ENTRY];
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        put(0, &u16::from(self.kind % 3).to_le_bytes());
        put(4, &(ENTRY as u32).to_le_bytes());
        put(8, &(payload.len() as u64).to_le_bytes());
        if flags != 0 {
            put(16, &(payload.len() as u32).to_le_bytes());
        }
        put(28, &u32::from(self.architecture % 128).to_le_bytes());
        put(40, &flags.to_le_bytes());
        put(56, &self.claimed.unwrap_or(self.text.len() as u64).to_le_bytes());
        bytes.extend_from_slice(&payload);
        bytes
    }
}

impl Image {
    pub fn bytes(&self) -> Vec<u8> {
        let body: Vec<u8> = self.entries.iter().flat_map(Entry::bytes).collect();
        let mut bytes = Vec::with_capacity(HEADER + body.len());
        bytes.extend_from_slice(&0xba55_ed50_u32.to_le_bytes());
        bytes.extend_from_slice(&1_u16.to_le_bytes());
        bytes.extend_from_slice(&(HEADER as u16).to_le_bytes());
        bytes.extend_from_slice(&(body.len() as u64).to_le_bytes());
        bytes.extend_from_slice(&body);
        for (at, value) in &self.changes {
            let at = usize::from(*at) % bytes.len();
            bytes[at] = *value;
        }
        if let Some(cut) = self.cut {
            bytes.truncate(usize::from(cut) % (bytes.len() + 1));
        }
        bytes
    }
}
