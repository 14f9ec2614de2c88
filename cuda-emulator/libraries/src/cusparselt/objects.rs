// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Objects in the caller's memory.

use std::ffi::c_int;

use cublaslt_descriptors::objects::{Kind, SPARSITY};

use super::check_handle;
use super::matrix::Matrix;
use super::product::Product;
use crate::cusparse::{INVALID_VALUE, NOT_SUPPORTED, Status, status};
use crate::exported::exported;

/// `CUSPARSELT_MATMUL_ALG_CONFIG_ID`
const CONFIG_ID: u32 = 0;
/// `CUSPARSELT_MATMUL_ALG_CONFIG_MAX_ID`
const CONFIG_MAX_ID: c_int = 1;
/// Algorithms. All compute the same.
const CONFIGURATIONS: u64 = 2;

/// Creates a matrix.
///
/// # Safety
///
/// `handle` is null or a handle, and `object` null or room for a matrix.
unsafe fn make_matrix(handle: *const usize, object: u64, given: &[u64], sparsity: Option<c_int>) -> Status {
    let make = || {
        // SAFETY: `# Safety` promises that `handle` is null or a handle.
        unsafe { check_handle(handle)? };
        let kind = Kind::named("mat")?;
        let mut contents = kind.make(given, &[]);
        if let (Some(sparsity), Some((index, _))) = (sparsity, kind.descriptor.attribute(SPARSITY)) {
            if sparsity != 0 {
                return Err(INVALID_VALUE);
            }
            kind.descriptor.set(index, 0, &mut contents);
        }
        Matrix::new(kind, &contents)?;
        // SAFETY: `# Safety` promises that `object` is null or has room for a matrix.
        unsafe { kind.write(object, &contents) }
    };
    status(make())
}

/// A dense matrix.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusparseLtDenseDescriptorInit(
    handle: *const usize,
    object: u64,
    rows: i64,
    columns: i64,
    leading: i64,
    alignment: u32,
    kind: c_int,
    order: c_int,
) -> Status {
    let given =
        [rows as u64, columns as u64, leading as u64, u64::from(alignment), kind as u64, order as u64];
    // SAFETY: the caller gives a handle and room for a matrix, or nulls.
    unsafe { make_matrix(handle, object, &given, None) }
}

/// A matrix with zeros in a pattern.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusparseLtStructuredDescriptorInit(
    handle: *const usize,
    object: u64,
    rows: i64,
    columns: i64,
    leading: i64,
    alignment: u32,
    kind: c_int,
    order: c_int,
    sparsity: c_int,
) -> Status {
    let given =
        [rows as u64, columns as u64, leading as u64, u64::from(alignment), kind as u64, order as u64];
    // SAFETY: the caller gives a handle and room for a matrix, or nulls.
    unsafe { make_matrix(handle, object, &given, Some(sparsity)) }
}

/// A product.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusparseLtMatmulDescriptorInit(
    handle: *const usize,
    object: u64,
    operation_a: c_int,
    operation_b: c_int,
    a: u64,
    b: u64,
    c: u64,
    d: u64,
    compute: c_int,
) -> Status {
    let make = || {
        // SAFETY: the caller gives a handle, or null.
        unsafe { check_handle(handle)? };
        let (mat, kind) = (Kind::named("mat")?, Kind::named("matmul")?);
        // SAFETY: the caller gives matrices, or nulls.
        let [a, b, c, d] = unsafe { [mat.read(a)?, mat.read(b)?, mat.read(c)?, mat.read(d)?] };
        let given = [operation_a as u64, operation_b as u64, compute as u64];
        let contents = kind.make(&given, &[&a, &b, &c, &d]);
        Product::new(kind, &contents)?;
        // SAFETY: the caller gives room for a product, or null.
        unsafe { kind.write(object, &contents) }
    };
    status(make())
}

exported! {
    /// Sets an attribute.
    pub unsafe extern "C" fn(kind, check) [
        cusparseLtMatDescSetAttribute("mat", Matrix::new), cusparseLtMatmulDescSetAttribute("matmul", Product::new),
        cusparseLtMatmulAlgSetAttribute("selection", check_selection),
    ]
    (handle: *const usize, object: u64, number: c_int, value: *const u8, bytes: usize) -> Status {
        // SAFETY: the caller gives a handle, an object of this kind, and `bytes` bytes at `value`, or nulls.
        let set = || unsafe {
            check_handle(handle)?;
            let kind = Kind::named(kind)?;
            let mut contents = kind.read(object)?;
            kind.set(&mut contents, number, value, bytes)?;
            check(kind, &contents)?;
            kind.write(object, &contents)
        };
        status(set())
    }

    /// Returns the value of an attribute.
    pub unsafe extern "C" fn(kind) [
        cusparseLtMatDescGetAttribute("mat"), cusparseLtMatmulDescGetAttribute("matmul"),
        cusparseLtMatmulAlgGetAttribute("selection"),
    ]
    (handle: *const usize, object: u64, number: c_int, value: *mut u8, bytes: usize) -> Status {
        // SAFETY: the caller gives a handle, an object of this kind, and room for `bytes` bytes at `value`, or nulls.
        let get = || unsafe {
            check_handle(handle)?;
            let kind = Kind::named(kind)?;
            get(kind, &kind.read(object)?, number, value, bytes)
        };
        status(get())
    }
}

/// Returns the value of an attribute.
///
/// # Safety
///
/// `value` is null or has room for `bytes` bytes.
unsafe fn get(
    kind: Kind,
    contents: &[u8],
    number: c_int,
    value: *mut u8,
    bytes: usize,
) -> Result<(), Status> {
    let (_, attribute) = kind.attribute(number).ok_or(INVALID_VALUE)?;
    if value.is_null() || bytes != attribute.bytes {
        return Err(INVALID_VALUE);
    }
    let word = match (kind.descriptor.name, number) {
        ("selection", CONFIG_MAX_ID) => CONFIGURATIONS,
        _ => kind.value(contents, attribute.number),
    };
    // SAFETY: not null, so `bytes` bytes by this function's contract; an attribute has at most 8.
    unsafe { std::ptr::copy_nonoverlapping(word.to_le_bytes().as_ptr(), value, bytes) };
    Ok(())
}

fn check_selection(kind: Kind, contents: &[u8]) -> Result<(), Status> {
    let part = kind.descriptor.part(kind.all, 0);
    Product::new(Kind::named("matmul")?, &contents[part])?;
    // CUSPARSELT_MATMUL_ALG_DEFAULT is the only algorithm, and 1 means that sums are not split.
    let is_right = kind.value(contents, 100) == 0 && kind.value(contents, CONFIG_ID) < CONFIGURATIONS;
    if is_right && kind.value(contents, 3) == 1 { Ok(()) } else { Err(INVALID_VALUE) }
}

/// A selection of an algorithm.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusparseLtMatmulAlgSelectionInit(
    handle: *const usize,
    object: u64,
    product: u64,
    algorithm: c_int,
) -> Status {
    // SAFETY: the caller gives a handle, room for a selection and a product, or nulls.
    let make = || unsafe {
        check_handle(handle)?;
        let (kind, matmul) = (Kind::named("selection")?, Kind::named("matmul")?);
        let contents = kind.make(&[algorithm as u64, 0], &[&matmul.read(product)?]);
        check_selection(kind, &contents)?;
        kind.write(object, &contents)
    };
    status(make())
}

/// A plan. A search with it changes the selection, of which it keeps the address.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusparseLtMatmulPlanInit(
    handle: *const usize,
    object: u64,
    product: u64,
    selection: u64,
) -> Status {
    // SAFETY: the caller gives a handle, room for a plan, a product and a selection, or nulls.
    let make = || unsafe {
        check_handle(handle)?;
        let (kind, of_selection) = (Kind::named("plan")?, Kind::named("selection")?);
        let mut chosen = of_selection.read(selection)?;
        let part = of_selection.descriptor.part(of_selection.all, 0);
        chosen[part].copy_from_slice(&Kind::named("matmul")?.read(product)?);
        kind.write(object, &kind.make(&[1], &[&chosen]))?;
        kind.set_word(object, selection);
        Ok(())
    };
    status(make())
}

/// The product of a plan.
///
/// # Safety
///
/// `handle` is null or a handle, and `plan` null or a plan.
pub unsafe fn product_of(handle: *const usize, plan: u64) -> Result<Product, Status> {
    // SAFETY: `# Safety` promises that `handle` is null or a handle, and `plan` null or a plan.
    let (kind, contents) = unsafe {
        check_handle(handle)?;
        let kind = Kind::named("plan")?;
        (kind, kind.read(plan)?)
    };
    let of_selection = Kind::named("selection")?;
    let chosen = &contents[kind.descriptor.part(kind.all, 0)];
    Product::new(Kind::named("matmul")?, &chosen[of_selection.descriptor.part(of_selection.all, 0)])
}

/// Notes in the selection of a plan that the last configuration is the fastest.
///
/// # Safety
///
/// `plan` is a plan, whose selection is still there.
pub unsafe fn note_search(plan: u64) -> Result<(), Status> {
    let (kind, of_plan) = (Kind::named("selection")?, Kind::named("plan")?);
    let (index, _) = kind.descriptor.attribute(CONFIG_ID).ok_or(NOT_SUPPORTED)?;
    // SAFETY: `# Safety` promises a plan, whose selection is still there.
    unsafe {
        let selection = of_plan.word(plan);
        let mut contents = kind.read(selection)?;
        kind.descriptor.set(index, CONFIGURATIONS - 1, &mut contents);
        kind.write(selection, &contents)
    }
}
