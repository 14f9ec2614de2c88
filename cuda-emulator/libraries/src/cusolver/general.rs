// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Eigenvalues of any square matrix (`cusolverDnXgeev`).

use super::given::Given;
use super::handle::queue;
use super::{INVALID_VALUE, Status};
use crate::handles::Handle;
use crate::lapack::general::{Eigen, decompose, decompose_real};
use crate::memory::{Array, Dense, Matrix, set_i32};
use crate::numbers::{C64, TypedAddress};
use crate::stream::{Done, Fault};

/// Queues the computation. Eigenvalues of a real matrix are complex numbers, or first all real parts and then all imaginary ones.
pub fn geev(
    handle: Handle,
    a: Given,
    w: TypedAddress,
    vectors: Option<Given>,
    info: usize,
) -> Result<(), Status> {
    let is_real = !a.kind.is_complex();
    if w.kind.real() != a.kind.real() || (!is_real && !w.kind.is_complex()) {
        return Err(INVALID_VALUE);
    }
    queue(handle, move || -> Done {
        let values = a.open()?.load();
        let found = if is_real { decompose_real(&values) } else { decompose(&values) };
        store_values(w, &found.values)?;
        if let Some(vectors) = vectors {
            let matrix = vectors.open()?;
            if is_real { store_pairs(matrix, &found) } else { matrix.store(&found.vectors) }
        }
        set_i32(info, 0, found.failed as i32)
    })
}

fn store_values(place: TypedAddress, values: &[C64]) -> Result<(), Fault> {
    let order = values.len();
    if place.kind.is_complex() {
        let places = Array::open(place, order)?;
        values.iter().enumerate().for_each(|(at, value)| places.set(at, *value));
    } else {
        let places = Array::open(place, order.checked_mul(2).ok_or(Fault)?)?;
        for (at, value) in values.iter().enumerate() {
            places.set_real(at, value.re);
            places.set_real(order + at, value.im);
        }
    }
    Ok(())
}

/// As LAPACK: of a pair of conjugates, the real part of the first vector, and its imaginary part.
fn store_pairs(matrix: Matrix, found: &Eigen) {
    matrix.store(&Dense::from(matrix.rows, matrix.columns, |row, column| {
        let value = found.values[column].im;
        let part =
            if value < 0.0 { found.vectors[(row, column - 1)].im } else { found.vectors[(row, column)].re };
        C64::new(part, 0.0)
    }));
}
