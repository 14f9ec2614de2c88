// SPDX-License-Identifier: Apache-2.0 OR MIT
#![no_main]

#[path = "../bodies/mod.rs"]
mod bodies;

libfuzzer_sys::fuzz_target!(|data: &[u8]| bodies::execute(data));
