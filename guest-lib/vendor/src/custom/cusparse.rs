// SPDX-License-Identifier: Apache-2.0 OR MIT

//! cuSPARSE: operations whose scalars have the type of a vector. Their rows have that type as an additional last
//! argument. And functions of cuSPARSE 11 whose place another function has taken.

use crate::exports::CUSPARSE;
use crate::{bridge, forward_named};

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

/// Makes a descriptor by the function `name`, whose first argument is the place for it.
///
/// # Safety
///
/// The further arguments are those of the function.
unsafe fn describe<const N: usize>(name: &str, mut arguments: [u64; N]) -> Result<u64, Status> {
    let mut descriptor = 0u64;
    arguments[0] = &raw mut descriptor as u64;
    // SAFETY: the first argument is a place for a handle, the others are the function's by this function's contract.
    match unsafe { forward_named(&CUSPARSE, name, &arguments) } {
        0 => Ok(descriptor),
        status => Err(status),
    }
}

/// Gathers elements of a dense vector, which ends with its allocation: only the indices say how long it is.
///
/// # Safety
///
/// The contract of NVIDIA's functions `cusparse…gthr`.
unsafe fn gather(handle: u64, [nnz, base, kind]: [i32; 3], [y, values, indices]: [u64; 3]) -> Status {
    /// `CUSPARSE_INDEX_32I`.
    const INDEX_32: u64 = 2;
    let bytes = match kind {
        0 => 4,
        5 => 16,
        _ => 8,
    };
    let length = bridge::bytes_behind(y).map_or(u64::MAX, |behind| behind / bytes).min(i32::MAX as u64);
    let [count, base, kind] = [i64::from(nnz) as u64, base as u64, kind as u64];
    if nnz == 0 {
        return 0;
    }
    // SAFETY: the arguments of each function, by its contract; the vectors live until they are destroyed.
    unsafe {
        let dense = match describe("cusparseCreateDnVec", [0, length, y, kind]) {
            Ok(dense) => dense,
            Err(status) => return status,
        };
        let sparse =
            describe("cusparseCreateSpVec", [0, length, count, indices, values, INDEX_32, base, kind]);
        let done = match sparse {
            Ok(sparse) => {
                let done = forward_named(&CUSPARSE, "cusparseGather", &[handle, dense, sparse]);
                forward_named(&CUSPARSE, "cusparseDestroySpVec", &[sparse]);
                done
            }
            Err(status) => status,
        };
        forward_named(&CUSPARSE, "cusparseDestroyDnVec", &[dense]);
        done
    }
}

/// Gathers elements of `float`.
///
/// # Safety
///
/// The contract of NVIDIA's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusparseSgthr(
    handle: u64,
    nnz: i32,
    y: u64,
    values: u64,
    indices: u64,
    base: i32,
) -> Status {
    // SAFETY: this function's contract; CUDA_R_32F.
    unsafe { gather(handle, [nnz, base, 0], [y, values, indices]) }
}

/// Gathers elements of `double`.
///
/// # Safety
///
/// The contract of NVIDIA's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusparseDgthr(
    handle: u64,
    nnz: i32,
    y: u64,
    values: u64,
    indices: u64,
    base: i32,
) -> Status {
    // SAFETY: this function's contract; CUDA_R_64F.
    unsafe { gather(handle, [nnz, base, 1], [y, values, indices]) }
}

/// Gathers elements of `cuComplex`.
///
/// # Safety
///
/// The contract of NVIDIA's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusparseCgthr(
    handle: u64,
    nnz: i32,
    y: u64,
    values: u64,
    indices: u64,
    base: i32,
) -> Status {
    // SAFETY: this function's contract; CUDA_C_32F.
    unsafe { gather(handle, [nnz, base, 4], [y, values, indices]) }
}

/// Gathers elements of `cuDoubleComplex`.
///
/// # Safety
///
/// The contract of NVIDIA's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusparseZgthr(
    handle: u64,
    nnz: i32,
    y: u64,
    values: u64,
    indices: u64,
    base: i32,
) -> Status {
    // SAFETY: this function's contract; CUDA_C_64F.
    unsafe { gather(handle, [nnz, base, 5], [y, values, indices]) }
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
