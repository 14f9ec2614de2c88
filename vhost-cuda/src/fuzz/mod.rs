// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Fuzz targets: functions that take any bytes, and must not panic, crash or hang. `cargo xtask fuzz` runs them with
//! libFuzzer, and the unit tests run the saved inputs (`tests/fuzz/corpora`). This module is part of those builds
//! only.

mod chains;
mod messages;

/// A function that takes any bytes.
pub type Target = fn(&[u8]);

/// The targets by name.
pub const TARGETS: &[(&str, Target)] = &[
    ("chains", chains::run),
    ("exchange", crate::exchange::fuzz::run),
    ("images", crate::cache::fuzz::run),
    ("messages", messages::run),
    ("migration", crate::front_end::migration::fuzz),
    ("shares", crate::shares::arbiter::fuzz::run),
];

#[cfg(test)]
mod tests {
    use vhost_cuda_fuzz::{corpus, targets};

    #[test]
    fn targets_have_names() {
        let names: Vec<&str> = super::TARGETS.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, targets::of("daemon"), "tests/fuzz/src/targets.rs has the names");
    }

    #[test]
    fn corpora() {
        for (name, target) in super::TARGETS {
            corpus::replay(name, *target);
        }
    }
}
