// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Fuzz targets of the worker: what a guest process can send it. The driver is [`super::gpu::null`].

pub mod calls;
pub mod lanes;
pub(super) mod session;
pub mod vendor;
