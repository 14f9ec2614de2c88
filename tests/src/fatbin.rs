// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The fat binaries that nvcc put into a program.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// Head of a container: u32 magic, u16 version 1, u16 bytes of this head (16); u64 bytes that follow comes next.
const HEAD: [u8; 8] = [0x50, 0xed, 0x55, 0xba, 1, 0, 16, 0];

/// BLAKE3 of each container in the executable, as 64 hexadecimal digits.
pub fn hashes(program: &Path) -> Result<Vec<String>> {
    let image = fs::read(program).with_context(|| format!("Cannot read {}", program.display()))?;
    Ok(containers(&image).into_iter().map(|container| blake3::hash(container).to_string()).collect())
}

fn containers(image: &[u8]) -> Vec<&[u8]> {
    let starts = (0..image.len().saturating_sub(16)).step_by(8).filter(|&at| image[at..].starts_with(&HEAD));
    let whole = starts.filter_map(|at| {
        let follow = u64::from_le_bytes(image[at + 8..at + 16].try_into().ok()?);
        image.get(at..at.checked_add(16)?.checked_add(usize::try_from(follow).ok()?)?)
    });
    whole.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_containers_are_found() {
        let mut image = vec![0; 24];
        image.extend(HEAD);
        image.extend(3u64.to_le_bytes());
        image.extend(b"abc and more");
        image.extend([0; 4]);
        // One that claims to be longer than the file.
        image.extend(HEAD);
        image.extend(1000u64.to_le_bytes());
        image.extend([0; 8]);
        let found = containers(&image);
        assert_eq!(found.len(), 1);
        assert!(found[0].ends_with(b"abc") && found[0].len() == 19);
    }
}
