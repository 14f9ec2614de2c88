// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One file for each family of instructions: reads modifiers and operands, picks the handler, emits drafts.

pub(super) mod arithmetic;
pub(super) mod atomics;
pub(super) mod bulk;
pub(super) mod comparison;
pub(super) mod control;
pub(super) mod conversion;
pub(super) mod logic;
pub(super) mod mbarriers;
pub(super) mod memory;
pub(super) mod moves;
pub(super) mod tensor;
pub(super) mod tensor_copies;
pub(super) mod textures;
pub(super) mod video;
pub(super) mod warpgroups;
pub(super) mod warps;
