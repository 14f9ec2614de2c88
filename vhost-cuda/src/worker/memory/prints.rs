// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether device code may print. The driver hands out what was printed only when it waits itself, so that work of such
//! code cannot be waited for by a word that the GPU writes.

use cuda_fatbin::CONTAINER_MAGIC;
use memchr::memmem::Finder;

use super::footprint::{Target, containers, each_used};

/// The function that device code prints with, as machine code and PTX name it.
const PRINTS: &[u8] = b"vprintf";

/// Returns whether code of `image` that a device of one of `targets` uses may print.
pub fn may_print(image: &[u8], targets: &[Target]) -> bool {
    let finder = Finder::new(PRINTS);
    if !image.starts_with(&CONTAINER_MAGIC.to_le_bytes()) {
        return finder.find(image).is_some();
    }
    containers(image).any(|container| {
        targets.iter().any(|&target| {
            let mut found = false;
            let used = container.and_then(|container| {
                each_used(container, target, |bytes| found |= finder.find(bytes).is_some())
            });
            // What cannot be read may do anything.
            found || used.is_none()
        })
    })
}

#[cfg(test)]
mod tests {
    use super::super::footprint::tests::container;
    use super::*;

    const TARGETS: [Target; 2] =
        [Target { architecture: 90, ptx_only: false }, Target { architecture: 120, ptx_only: false }];

    #[test]
    fn code_that_prints_is_found_where_a_device_uses_it() {
        let (prints, silent) = (&b".extern .func vprintf();"[..], &b".func printf();"[..]);
        assert!(may_print(prints, &TARGETS) && !may_print(silent, &TARGETS));
        let both = container(&[(1, 80, prints), (1, 90, silent)]);
        assert!(!may_print(&both, &TARGETS));
        let later = container(&[(1, 100, prints), (1, 90, silent)]);
        assert!(may_print(&later, &TARGETS) && !may_print(&later, &TARGETS[..1]));
        let linked = [container(&[]), later.clone(), both].concat();
        assert!(may_print(&linked, &TARGETS));
        assert!(may_print(&later[..later.len() - 1], &TARGETS[..1]), "it cannot be read");
    }
}
