// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Functions that prune and compress matrices.

use std::ffi::c_int;

use cublaslt_descriptors::objects::Kind;

use super::check_handle;
use super::matrix::Matrix;
use super::objects::product_of;
use super::pattern::{ALIGNMENT, Pattern};
use super::product::Product;
use crate::cublas::operation::Operation;
use crate::cusparse::{EXECUTION_FAILED, INVALID_VALUE, Status, status};
use crate::stream::{self, Done, Stream};

/// The sparse factor of a product.
///
/// # Safety
///
/// `handle` is null or a handle, and `product` null or a product.
unsafe fn of_product(handle: *const usize, product: u64) -> Result<Pattern, Status> {
    // SAFETY: `# Safety` promises that `handle` is null or a handle, and `product` null or a product.
    unsafe {
        check_handle(handle)?;
        let kind = Kind::named("matmul")?;
        Ok(Product::new(kind, &kind.read(product)?)?.pattern())
    }
}

/// A matrix as a factor.
///
/// # Safety
///
/// `handle` is null or a handle, and `matrix` null or a matrix.
unsafe fn of_matrix(handle: *const usize, matrix: u64, is_a: c_int, op: c_int) -> Result<Pattern, Status> {
    // SAFETY: `# Safety` promises that `handle` is null or a handle, and `matrix` null or a matrix.
    let matrix = unsafe {
        check_handle(handle)?;
        let kind = Kind::named("mat")?;
        Matrix::new(kind, &kind.read(matrix)?)?
    };
    Pattern::new(matrix, is_a != 0, Operation::new(op).map_err(|_| INVALID_VALUE)?)
}

/// Queues work with a pattern and two addresses, which are not null.
fn queue(
    pattern: Result<Pattern, Status>,
    addresses: [usize; 2],
    stream: Stream,
    work: impl Fn(Pattern) -> Done + Send + Sync + 'static,
) -> Status {
    let queue = || {
        let pattern = pattern?;
        if addresses.contains(&0) {
            return Err(INVALID_VALUE);
        }
        stream::queue(stream, move || work(pattern)).map_err(|_| EXECUTION_FAILED)
    };
    status(queue())
}

fn prune(
    pattern: Result<Pattern, Status>,
    from: usize,
    to: usize,
    algorithm: c_int,
    stream: Stream,
) -> Status {
    let is_known = (0..=1).contains(&algorithm);
    let pattern = pattern.and_then(|pattern| is_known.then_some(pattern).ok_or(INVALID_VALUE));
    queue(pattern, [from, to], stream, move |pattern| pattern.prune(from, to, algorithm))
}

fn check(pattern: Result<Pattern, Status>, from: usize, valid: usize, stream: Stream) -> Status {
    queue(pattern, [from, valid], stream, move |pattern| pattern.check(from, valid))
}

fn compress(pattern: Result<Pattern, Status>, from: usize, to: usize, stream: Stream) -> Status {
    queue(pattern, [from, to], stream, move |pattern| pattern.compress(from, to))
}

/// Returns the size of the compressed matrix and of the buffer for compression.
///
/// # Safety
///
/// Each is null or a place of its own for a number.
unsafe fn sizes(pattern: Result<Pattern, Status>, size: *mut usize, buffer: *mut usize) -> Status {
    // SAFETY: `# Safety` promises that each is null or a place of its own for a number.
    let places = unsafe { (size.as_mut(), buffer.as_mut()) };
    match (pattern, places) {
        (Ok(pattern), (Some(size), Some(buffer))) => {
            (*size, *buffer) = (pattern.size(), ALIGNMENT);
            status(Ok(()))
        }
        (Err(error), _) => error,
        _ => INVALID_VALUE,
    }
}

/// Sets the smaller half of neighbours to zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusparseLtSpMMAPrune(
    handle: *const usize,
    product: u64,
    from: usize,
    to: usize,
    algorithm: c_int,
    stream: Stream,
) -> Status {
    // SAFETY: the caller gives a handle and a product, or nulls.
    prune(unsafe { of_product(handle, product) }, from, to, algorithm, stream)
}

/// The same for a matrix that belongs to no product.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusparseLtSpMMAPrune2(
    handle: *const usize,
    matrix: u64,
    is_a: c_int,
    op: c_int,
    from: usize,
    to: usize,
    algorithm: c_int,
    stream: Stream,
) -> Status {
    // SAFETY: the caller gives a handle and a matrix, or nulls.
    prune(unsafe { of_matrix(handle, matrix, is_a, op) }, from, to, algorithm, stream)
}

/// Checks that the zeros form the pattern.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusparseLtSpMMAPruneCheck(
    handle: *const usize,
    product: u64,
    from: usize,
    valid: usize,
    stream: Stream,
) -> Status {
    // SAFETY: the caller gives a handle and a product, or nulls.
    check(unsafe { of_product(handle, product) }, from, valid, stream)
}

/// The same for a matrix that belongs to no product.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusparseLtSpMMAPruneCheck2(
    handle: *const usize,
    matrix: u64,
    is_a: c_int,
    op: c_int,
    from: usize,
    valid: usize,
    stream: Stream,
) -> Status {
    // SAFETY: the caller gives a handle and a matrix, or nulls.
    check(unsafe { of_matrix(handle, matrix, is_a, op) }, from, valid, stream)
}

/// The size of the compressed matrix.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusparseLtSpMMACompressedSize(
    handle: *const usize,
    plan: u64,
    size: *mut usize,
    buffer: *mut usize,
) -> Status {
    // SAFETY: the caller gives a handle and a plan, and places for numbers, or nulls.
    unsafe { sizes(product_of(handle, plan).map(|product| product.pattern()), size, buffer) }
}

/// The same for a matrix that belongs to no product.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusparseLtSpMMACompressedSize2(
    handle: *const usize,
    matrix: u64,
    size: *mut usize,
    buffer: *mut usize,
) -> Status {
    // SAFETY: the caller gives a handle and a matrix, and places for numbers, or nulls. The size is the same for A and B.
    unsafe { sizes(of_matrix(handle, matrix, 1, 0), size, buffer) }
}

/// Leaves zeros out.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusparseLtSpMMACompress(
    handle: *const usize,
    plan: u64,
    from: usize,
    to: usize,
    _buffer: usize,
    stream: Stream,
) -> Status {
    // SAFETY: the caller gives a handle and a plan, or nulls.
    let product = unsafe { product_of(handle, plan) };
    compress(product.map(|product| product.pattern()), from, to, stream)
}

/// The same for a matrix that belongs to no product.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusparseLtSpMMACompress2(
    handle: *const usize,
    matrix: u64,
    is_a: c_int,
    op: c_int,
    from: usize,
    to: usize,
    _buffer: usize,
    stream: Stream,
) -> Status {
    // SAFETY: the caller gives a handle and a matrix, or nulls.
    compress(unsafe { of_matrix(handle, matrix, is_a, op) }, from, to, stream)
}
