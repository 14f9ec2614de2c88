// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR BSD-3-Clause

use super::rows::GETTERS;
use super::{Parameter, MAX_INPUTS, MAX_PARAMETERS};

#[test]
fn numbers_are_unique_and_rows_fit() {
    for (index, row) in GETTERS.iter().enumerate() {
        assert!(GETTERS[..index].iter().all(|other| other.number < row.number), "{}", row.name);
        assert!(row.parameters.len() <= MAX_PARAMETERS, "{}", row.name);
        assert!(row.bytes() > 0 && row.bytes() <= 8192, "{}", row.name);
        let inputs: usize = row
            .parameters
            .iter()
            .map(|parameter| match parameter {
                Parameter::Up(_) | Parameter::Only(_) | Parameter::Number | Parameter::Peer => 1,
                Parameter::Struct(_, _, lasts) => lasts.len(),
                _ => 0,
            })
            .sum();
        assert!(inputs <= MAX_INPUTS, "{}", row.name);
    }
}

#[test]
fn only_getters_and_nothing_of_other_machines() {
    let secret = [
        "Serial",
        "Pdi",
        "Uuid",
        "Hostname",
        "Platform",
        "Process",
        "Pids",
        "Utilization",
        "Irq",
        "GetMemoryInfo",
    ];
    for row in GETTERS {
        assert!(row.name.starts_with("nvmlDevice") || row.name.starts_with("nvmlSystemGet"), "{}", row.name);
        assert!(
            ["DeviceSet", "SystemSet", "Reset", "Clear"].iter().all(|word| !row.name.contains(word)),
            "{}",
            row.name
        );
        assert!(secret.iter().all(|word| !row.name.contains(word)), "{}", row.name);
    }
}
