// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A fuzz target: the questions of hostile workers to the cache of device code.

use std::io::Write;

use vhost_cuda_choices::Choices;
use vhost_cuda_common::files::{add_seals, memory_file};
use vhost_cuda_common::images::seal;

use super::*;

const MAX_BYTES: u64 = 4096;

/// Returns a file: sealed or not, of the length that the worker reports or of another one.
fn file(kind: u8, contents: &[u8]) -> Option<File> {
    match kind & 7 {
        0..=3 => seal(contents).ok(),
        4 => {
            let mut file = memory_file(c"image").ok()?;
            file.write_all(contents).ok()?;
            if kind & 8 != 0 {
                add_seals(&file, SEALS).ok()?;
            }
            Some(file)
        }
        5 => File::open("/dev/null").ok(),
        6 => File::open("/").ok(),
        _ => None,
    }
}

/// An input is a list of questions of two machines with two users each.
pub fn run(data: &[u8]) {
    let cache = ImageCache::new(MAX_BYTES);
    let mut kept: Vec<([u8; DIGEST_BYTES], Owner, u64)> = Vec::new();
    let mut choices = Choices::of(data);
    while choices.more() {
        let who = choices.byte();
        let owner = Owner { machine: Machine::Virtual(u64::from(who & 1)), uid: u32::from(who >> 1 & 1) };
        match who >> 5 {
            0..=3 => {
                let length = choices.below(64) * usize::from(1 + (who >> 2 & 7) * 8);
                let contents: Vec<u8> = choices.bytes(4).iter().copied().cycle().take(length).collect();
                let told = if choices.byte() & 3 == 3 { choices.number() } else { contents.len() as u64 };
                let Some(file) = file(choices.byte(), &contents) else { continue };
                let real = *blake3::hash(&contents).as_bytes();
                let digest = match choices.below(kept.len() + 2) {
                    known if known < kept.len() => kept[known].0,
                    other if other == kept.len() => choices.array(),
                    _ => real,
                };
                if cache.keep(file, told, Key { owner, digest }).is_ok() {
                    let is_known = kept.contains(&(digest, owner, told));
                    assert!(is_known || (told, digest) == (contents.len() as u64, real), "it is the file's");
                    kept.push((digest, owner, told));
                }
            }
            4..=6 => {
                let digest = match choices.below(kept.len() + 1) {
                    known if known < kept.len() => kept[known].0,
                    _ => choices.array(),
                };
                let bytes = if choices.byte() & 1 == 0 { choices.number() } else { 0 };
                let mut known = kept.iter().filter(|one| (one.0, one.1) == (digest, owner));
                let bytes = if bytes == 0 { known.clone().next().map_or(0, |one| one.2) } else { bytes };
                if cache.find(Key { owner, digest }, bytes).is_some() {
                    assert!(known.any(|one| one.2 == bytes), "only its owner finds an image");
                }
            }
            _ => {
                cache.forget(owner.machine);
                kept.retain(|one| one.1.machine != owner.machine);
            }
        }
        let state = cache.state.lock();
        assert!(state.bytes <= MAX_BYTES && state.images.len() <= MAX_IMAGES);
        assert_eq!(state.bytes, state.images.iter().map(|(_, image)| image.bytes).sum::<u64>());
    }
}
