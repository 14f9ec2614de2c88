// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Functions that calls use before they queue work: they find out whether the work is captured and whether the call may be posted, or
//! wait for earlier work.

mod capturing;
pub mod make;
mod posting;
mod waiting;
