// SPDX-License-Identifier: Apache-2.0 OR MIT

//! What calls ask before they queue work: whether it is captured, whether it may be posted, and waits for it.

mod capturing;
pub mod make;
mod posting;
mod waiting;
