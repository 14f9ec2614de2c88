// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Fuzz targets of the worker: data that a guest process can send to it. The driver is [`super::gpu::null`].

mod calls;
mod lanes;
mod saved;
pub(super) mod session;
mod vendor;

use vhost_cuda_choices::Choices;

use super::gpu::null;
use super::memory::placed;
use super::memory::quota::BLOCK;

/// A function that takes any bytes.
pub type Target = fn(&[u8]);

/// The targets by name.
pub const TARGETS: &[(&str, Target)] =
    &[("calls", calls::run), ("lanes", lanes::run), ("saved", saved::run), ("vendor", vendor::run)];

/// Takes an address near allocations of the driver's or near placed memory, or any.
fn device_address(choices: &mut Choices<'_>) -> u64 {
    match choices.byte() & 1 {
        0 => choices.address(placed::START, BLOCK),
        _ => choices.address(null::DEVICE_BASE, null::DEVICE_STEP),
    }
}

#[cfg(test)]
mod tests {
    use vhost_cuda_fuzz::{corpus, targets};

    #[test]
    fn targets_have_names() {
        let names: Vec<&str> = super::TARGETS.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, targets::of("worker"), "tests/fuzz/src/targets.rs has the names");
    }

    #[test]
    fn corpora() {
        for (name, target) in super::TARGETS {
            corpus::replay(name, *target);
        }
    }
}
