// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The saved inputs of the fuzz targets. The targets themselves are in the crates that they test (`vhost-cuda/src/fuzz`,
//! `cuda-emulator/fuzz/bodies`); `src/main.rs` is the program in which libFuzzer drives them.

pub mod corpus;
