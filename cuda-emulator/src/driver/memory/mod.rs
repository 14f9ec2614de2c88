// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory that a program allocates or registers, and queries of addresses.

pub(super) mod allocation;
pub(super) mod host;
mod managed;
pub(super) mod place;
pub(super) mod pointer;
