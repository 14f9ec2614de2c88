// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Families that compute: integers, floating-point numbers of all widths, logic, comparisons and conversions.

pub(crate) mod bits;
pub(crate) mod carry;
mod checked;
mod circular;
pub(crate) mod compare;
pub(crate) mod convert;
mod directed;
mod exponential;
pub(crate) mod float;
pub(crate) mod half;
pub(crate) mod integer;
pub(crate) mod round;
pub(crate) mod tiny_float;
