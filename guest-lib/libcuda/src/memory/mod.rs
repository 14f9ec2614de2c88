// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Memory: classification of addresses, allocation, copies.

pub mod ahead;
pub mod alloc;
pub mod attach;
pub mod boxes;
pub mod copy;
pub mod detach;
pub mod difference;
pub mod freed;
pub mod host;
pub mod managed;
pub mod moving;
pub mod nodes;
pub mod own_copies;
pub mod place;
pub mod pointer;
pub mod residency;
pub mod set;
pub mod shadow;
pub mod track;
