// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The names of all targets. The crates that have them compare their own lists with this one (`targets_have_names`).

/// Targets by the feature of this package that has them.
pub const TARGETS: [(&str, &[&str]); 4] = [
    ("daemon", &["chains", "exchange", "images", "messages", "migration", "shares"]),
    ("emulator", &["execute", "fatbin", "parse", "spans"]),
    ("guest", &["answers"]),
    ("worker", &["calls", "lanes", "saved", "vendor"]),
];

/// The targets of a feature.
pub fn of(feature: &str) -> &'static [&'static str] {
    TARGETS.iter().find(|(name, _)| *name == feature).map_or(&[], |(_, targets)| targets)
}

/// The feature that has a target.
pub fn feature(target: &str) -> Option<&'static str> {
    TARGETS.iter().find(|(_, targets)| targets.contains(&target)).map(|(feature, _)| *feature)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::corpus;

    #[test]
    fn every_target_has_inputs() {
        for target in TARGETS.iter().flat_map(|(_, targets)| *targets) {
            assert!(!corpus::read(target).unwrap_or_default().is_empty(), "{target}");
        }
    }

    #[test]
    fn every_file_of_inputs_has_a_target() {
        for file in std::fs::read_dir(corpus::file("any").parent().expect("a folder")).expect("corpora") {
            let path = file.expect("a file").path();
            let name = path.file_stem().and_then(|name| name.to_str()).expect("a name");
            assert!(feature(name).is_some(), "{} is of no target", path.display());
        }
    }
}
