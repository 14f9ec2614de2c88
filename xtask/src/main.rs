// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Under construction.

fn main() {}
