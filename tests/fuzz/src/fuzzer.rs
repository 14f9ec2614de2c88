// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The targets of all crates, for libFuzzer.

use std::sync::OnceLock;

#[cfg(feature = "emulator")]
use cuda_emulator_testing::bodies as emulator;
use libfuzzer_sys::fuzz_target;

/// The option with the target's name. libFuzzer ignores options that begin with two dashes.
const OPTION: &str = "--target=";

type Target = fn(&[u8]);

#[cfg(feature = "emulator")]
const OF_EMULATOR: &[(&str, Target)] = &[
    ("execute", emulator::execute),
    ("fatbin", emulator::fatbin),
    ("parse", emulator::parse),
    ("spans", emulator::spans),
];
#[cfg(not(feature = "emulator"))]
const OF_EMULATOR: &[(&str, Target)] = &[];
#[cfg(feature = "daemon")]
use vhost_cuda::fuzz::TARGETS as OF_DAEMON;
#[cfg(not(feature = "daemon"))]
const OF_DAEMON: &[(&str, Target)] = &[];
#[cfg(feature = "guest")]
const OF_GUEST: &[(&str, Target)] = &[("answers", vhost_cuda_fuzz::answers::run)];
#[cfg(not(feature = "guest"))]
const OF_GUEST: &[(&str, Target)] = &[];
#[cfg(feature = "worker")]
use vhost_cuda_worker::fuzz::TARGETS as OF_WORKER;
#[cfg(not(feature = "worker"))]
const OF_WORKER: &[(&str, Target)] = &[];

static TARGET: OnceLock<Target> = OnceLock::new();

fn chosen() -> Target {
    let name =
        std::env::args().find_map(|word| Some(word.strip_prefix(OPTION)?.to_owned())).unwrap_or_default();
    let mut all = OF_EMULATOR.iter().chain(OF_DAEMON).chain(OF_GUEST).chain(OF_WORKER);
    match all.find(|(known, _)| *known == name) {
        Some((_, target)) => *target,
        None => panic!("{OPTION}{name} is no target"),
    }
}

fuzz_target!(|data: &[u8]| TARGET.get_or_init(chosen)(data));
