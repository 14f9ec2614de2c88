// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The saved inputs of the fuzz targets. The targets themselves are in the crates that they test (`vhost-cuda/src/fuzz`, `vhost-cuda/worker/src/fuzz`,
//! `cuda-emulator/testing/src/bodies`; that of the guest's library is here, since its state is a whole process's); `src/main.rs` is the program in which libFuzzer drives them.

#[cfg(any(test, all(fuzzing, feature = "guest")))]
pub mod answers;
pub mod corpus;
pub mod targets;
