// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory that a program allocates or brings along, and what an address of it is.

pub(super) mod allocation;
pub(super) mod host;
mod managed;
pub(super) mod place;
pub(super) mod pointer;
