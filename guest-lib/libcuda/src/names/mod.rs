// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Lookup of functions by programs: by name and in private tables. Also the names without a function.

pub mod private_tables;
pub mod proc_address;
pub mod unsupported;
pub mod vendor;
