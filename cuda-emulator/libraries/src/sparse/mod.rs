// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Sparse matrices of our own: factors, solutions and orders. All is computed in complex doubles.

pub mod cholesky;
pub mod lu;
pub mod matrix;
pub mod order;
pub mod qr;
