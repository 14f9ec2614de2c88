// SPDX-License-Identifier: Apache-2.0 OR MIT

//! `libcufftw.so` for guests and for the emulator: the functions of FFTW that NVIDIA's library of this name has, over the
//! `libcufft.so` of the same version.
//!
//! A program's arrays are mostly in host memory, where their elements may be apart ([`layout`]). A plan ([`plan`]) has
//! device memory in which the elements are side by side. To execute it, the elements are moved there ([`moves`]), cuFFT
//! transforms them ([`cufft`]), and the results are moved back. Only elements of the output are written, so threads may
//! transform interleaved arrays at the same time.

mod api;
mod cufft;
mod driver;
mod error;
mod layout;
mod moves;
mod plan;
mod problem;
