// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Factorisations of matrices, as LAPACK defines them.

pub mod cholesky;
pub mod eigen;
pub mod general;
pub mod lu;
pub mod qr;
pub mod svd;
