// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Fuzz targets of the worker: data that a guest process can send to it. The driver is [`super::gpu::null`].

pub mod calls;
pub mod lanes;
pub(super) mod session;
pub mod vendor;
