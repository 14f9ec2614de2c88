// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Modules and libraries.

mod compiling;
pub mod image;
pub mod link;
mod linked;
pub mod variable;
