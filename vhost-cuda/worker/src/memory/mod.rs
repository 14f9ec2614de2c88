// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The memory of a session: allocations and reserved addresses, pages of the guest process, and the charges for them.

pub(super) mod allocations;
pub(super) mod array_maps;
pub(super) mod bulk;
pub(super) mod externals;
pub(super) mod footprint;
pub(super) mod formats;
pub(super) mod holds;
pub(super) mod host_memory;
pub(super) mod mapper;
pub(super) mod pageable;
pub(super) mod pages;
pub(super) mod parts;
pub(super) mod placed;
pub(super) mod pools;
pub(super) mod prints;
pub(super) mod quota;
pub(super) mod reservations;
pub(super) mod window;
