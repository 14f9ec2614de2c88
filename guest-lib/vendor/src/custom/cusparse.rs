// SPDX-License-Identifier: Apache-2.0 OR MIT

//! cuSPARSE: operations whose scalars have the type of a vector. Their rows have that type as an additional last
//! argument.

use crate::exports::CUSPARSE;
use crate::forward_named;

/// `cusparseStatus_t`
type Status = i32;

/// Returns the `cudaDataType` of scalars for vectors of a `cudaDataType`.
fn of_scalars(values: u64) -> u64 {
    match values {
        // CUDA_R_16F, CUDA_R_16BF -> CUDA_R_32F
        2 | 14 => 0,
        // CUDA_C_16F, CUDA_C_16BF -> CUDA_C_32F
        6 | 15 => 4,
        other => other,
    }
}

/// # Safety
///
/// The arguments are those of NVIDIA's function `name`; argument `vector` is a sparse vector.
unsafe fn forward(name: &str, arguments: [u64; 5], vector: usize) -> Status {
    let [a, b, c, d, e] = arguments;
    let scalars = of_scalars(CUSPARSE.state(arguments[vector]).birth);
    // SAFETY: the arguments are those of the function by this function's contract; the row has the type of the scalars
    // after them.
    unsafe { forward_named(&CUSPARSE, name, &[a, b, c, d, e, scalars]) }
}

/// Adds a sparse vector to a dense vector.
///
/// # Safety
///
/// The contract of NVIDIA's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusparseAxpby(handle: u64, alpha: u64, x: u64, beta: u64, y: u64) -> Status {
    // SAFETY: the arguments are those of the function of this name; the third is a sparse vector.
    unsafe { forward("cusparseAxpby", [handle, alpha, x, beta, y], 2) }
}

/// Applies a rotation to a sparse and a dense vector.
///
/// # Safety
///
/// The contract of NVIDIA's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusparseRot(handle: u64, c: u64, s: u64, x: u64, y: u64) -> Status {
    // SAFETY: the arguments are those of the function of this name; the fourth is a sparse vector.
    unsafe { forward("cusparseRot", [handle, c, s, x, y], 3) }
}

#[cfg(test)]
mod tests {
    use cuda_library_rows::{Body, Kind, library};

    use super::*;

    #[test]
    fn scalars_of_short_types_have_32_bits() {
        assert_eq!([2, 14, 6, 15, 0, 1, 5].map(of_scalars), [0, 0, 4, 4, 0, 1, 5]);
    }

    #[test]
    fn the_rows_have_the_vector_where_it_is_looked_for() {
        let (_, rows) = library("cusparse").expect("known");
        let sparse = rows.handles.iter().position(|kind| kind.name == "SpVec").expect("a kind");
        assert!(rows.handles[sparse].has_birth);
        for (name, vector) in [("cusparseAxpby", 2), ("cusparseRot", 3)] {
            let index = CUSPARSE.index(name).expect(name);
            let Body::Forward(call) = &rows.functions[index].body else { panic!("{name}") };
            assert_eq!(call.parameters.len(), 6);
            assert_eq!(
                call.parameters[vector].kind,
                Kind::Handle { kind: sparse, nullable: false },
                "{name}"
            );
        }
    }
}
