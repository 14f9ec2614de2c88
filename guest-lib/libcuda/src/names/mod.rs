// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The search of programs for functions: by name, in private tables, and the names that do nothing.

pub mod private_tables;
pub mod proc_address;
pub mod unsupported;
pub mod vendor;
