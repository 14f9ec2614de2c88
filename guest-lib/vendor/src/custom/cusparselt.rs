// SPDX-License-Identifier: Apache-2.0 OR MIT

//! cuSPARSELt: objects in the program's memory. Their contents are defined by this project, so that a program may copy
//! them, or drop them without destroying them. The host's library checks each object when it is created or changed.

use std::sync::atomic::{AtomicBool, Ordering};

use cublaslt_descriptors::objects::Kind;
use cuda_library_rows::attributes::SPARSITY;

use crate::exports::CUSPARSELT;
use crate::{forward_named, number_in};

/// `cusparseStatus_t`
type Status = i32;

const SUCCESS: Status = 0;
const INVALID_VALUE: Status = 3;
const NOT_SUPPORTED: Status = 10;
/// Maximum number of stored search results.
const MAX_FOUND: usize = 1 << 12;
/// Bytes of the parameter `found` of a search.
const FOUND_BYTES: usize = 64;

/// Makes the host's library check contents, and stores them in the program's object if it accepts them.
/// # Safety
///
/// `handle` is null or a handle, and `object` is null or has room for an object of the kind.
unsafe fn write(kind: Kind, function: &str, handle: u64, object: u64, contents: &[u8]) -> Result<(), Status> {
    if object == 0 {
        return Err(INVALID_VALUE);
    }
    // SAFETY: the handle is one or null and `object` room for one by this function's contract, and the contents are of
    // the kind that the row says.
    unsafe {
        match forward_named(&CUSPARSELT, function, &[number_in(handle), contents.as_ptr() as u64]) {
            SUCCESS => kind.write(object, contents),
            status => Err(status),
        }
    }
}

/// The program's room for a value: null, or so many bytes.
#[derive(Clone, Copy)]
struct Room {
    address: *mut u8,
    bytes: usize,
}

/// Returns the value of an attribute: the value that was set, or else the host library's default.
///
/// # Safety
///
/// `handle` is null or a handle, and `room` is as its type says.
unsafe fn get(
    kind: Kind,
    function: &str,
    handle: u64,
    contents: &[u8],
    number: i32,
    room: Room,
) -> Result<(), Status> {
    let Room { address, bytes } = room;
    if let Some((index, attribute)) = kind.attribute(number)
        && let Some(word) = kind.descriptor.value(index, contents)
        && bytes == attribute.bytes
        && !address.is_null()
    {
        // SAFETY: not null, so `bytes` bytes by this function's contract; an attribute has at most 8.
        unsafe { std::ptr::copy_nonoverlapping(word.to_le_bytes().as_ptr(), address, bytes) };
        return Ok(());
    }
    let slots = |handle| [handle, contents.as_ptr() as u64, number as u64, address as u64, bytes as u64];
    // SAFETY: `# Safety` promises that `handle` is null or a handle, and `room` null or that long. The contents are
    // of the kind that the row says.
    checked(unsafe { forward_named(&CUSPARSELT, function, &slots(number_in(handle))) })
}

fn checked(status: Status) -> Result<(), Status> {
    if status == SUCCESS { Ok(()) } else { Err(status) }
}

fn status(result: Result<(), Status>) -> Status {
    result.err().unwrap_or(SUCCESS)
}

/// Selections have a number after their contents, which plans contain, too. A search with a plan thereby finds its
/// selection and changes it.
mod selection {
    use std::collections::{HashMap, VecDeque};
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::{LazyLock, Mutex, PoisonError};

    use super::{Kind, MAX_FOUND, Status};

    static LAST: AtomicU64 = AtomicU64::new(0);

    /// Search results, by the number of the selection.
    #[derive(Default)]
    struct Found {
        contents: HashMap<u64, Vec<u8>>,
        order: VecDeque<u64>,
    }

    static FOUND: LazyLock<Mutex<Found>> = LazyLock::new(Mutex::default);

    /// Returns a new selection's number.
    pub fn number() -> u64 {
        LAST.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Stores the result of a search.
    pub fn keep(number: u64, found: &[u8]) {
        let mut all = FOUND.lock().unwrap_or_else(PoisonError::into_inner);
        if all.contents.insert(number, found.to_vec()).is_none() {
            all.order.push_back(number);
        }
        if all.order.len() > MAX_FOUND
            && let Some(oldest) = all.order.pop_front()
        {
            all.contents.remove(&oldest);
        }
    }

    /// Returns the contents of a selection, with the result of a search if there was one.
    ///
    /// # Safety
    ///
    /// `object` is null or a selection.
    pub unsafe fn read(kind: Kind, object: u64) -> Result<Vec<u8>, Status> {
        // SAFETY: null or a selection by this function's contract; `read` refuses null.
        let (mut contents, number) = unsafe {
            let contents = kind.read(object)?;
            (contents, kind.word(object))
        };
        let all = FOUND.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = all.contents.get(&number) {
            kind.merge(found, &mut contents);
        }
        Ok(contents)
    }

    /// Removes the result of a search, because the program has set an attribute.
    pub fn forget(number: u64) {
        let mut all = FOUND.lock().unwrap_or_else(PoisonError::into_inner);
        if all.contents.remove(&number).is_some() {
            all.order.retain(|known| *known != number);
        }
    }
}

/// Initialises a dense matrix.
///
/// # Safety
///
/// The contract of NVIDIA's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusparseLtDenseDescriptorInit(
    handle: u64,
    matrix: u64,
    rows: i64,
    columns: i64,
    leading: i64,
    alignment: u32,
    kind: i32,
    order: i32,
) -> Status {
    let given =
        [rows as u64, columns as u64, leading as u64, u64::from(alignment), kind as u64, order as u64];
    status(Kind::named("mat").and_then(|mat| {
        let contents = mat.make(&given, &[]);
        // SAFETY: NVIDIA's function demands of its caller a handle and room for a matrix, or nulls.
        unsafe { write(mat, "cusparseLtDenseDescriptorInit", handle, matrix, &contents) }
    }))
}

/// Initialises a matrix with structured sparsity.
///
/// # Safety
///
/// The contract of NVIDIA's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusparseLtStructuredDescriptorInit(
    handle: u64,
    matrix: u64,
    rows: i64,
    columns: i64,
    leading: i64,
    alignment: u32,
    kind: i32,
    order: i32,
    sparsity: i32,
) -> Status {
    let given =
        [rows as u64, columns as u64, leading as u64, u64::from(alignment), kind as u64, order as u64];
    status(Kind::named("mat").and_then(|mat| {
        let mut contents = mat.make(&given, &[]);
        if let Some((index, _)) = mat.descriptor.attribute(SPARSITY) {
            mat.descriptor.set(index, sparsity as u64, &mut contents);
        }
        // SAFETY: NVIDIA's function demands of its caller a handle and room for a matrix, or nulls.
        unsafe { write(mat, "cusparseLtStructuredDescriptorInit", handle, matrix, &contents) }
    }))
}

/// Initialises a matrix product.
///
/// # Safety
///
/// The contract of NVIDIA's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusparseLtMatmulDescriptorInit(
    handle: u64,
    product: u64,
    operation_a: i32,
    operation_b: i32,
    a: u64,
    b: u64,
    c: u64,
    d: u64,
    compute: i32,
) -> Status {
    let make = || {
        let (mat, matmul) = (Kind::named("mat")?, Kind::named("matmul")?);
        // SAFETY: NVIDIA's function demands of its caller matrices, or nulls.
        let [a, b, c, d] = unsafe { [mat.read(a)?, mat.read(b)?, mat.read(c)?, mat.read(d)?] };
        let given = [operation_a as u64, operation_b as u64, compute as u64];
        let contents = matmul.make(&given, &[&a, &b, &c, &d]);
        // SAFETY: NVIDIA's function demands of its caller a handle and room for a product, or nulls.
        unsafe { write(matmul, "cusparseLtMatmulDescriptorInit", handle, product, &contents) }
    };
    status(make())
}

/// Defines functions that set and return attributes of a kind of object.
macro_rules! attributes {
    ($($kind:literal: $set:ident $get:ident;)*) => { $(
        /// Sets an attribute.
        ///
        /// # Safety
        ///
        /// The contract of NVIDIA's function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $set(
            handle: u64, object: u64, number: i32, value: *const u8, bytes: usize,
        ) -> Status {
            status(Kind::named($kind).and_then(|kind| {
                // SAFETY: NVIDIA's function demands of its caller a handle, an object of this kind, and `bytes` bytes
                // at `value`, or nulls.
                unsafe {
                    let mut contents = kind.read(object)?;
                    kind.set(&mut contents, number, value, bytes)?;
                    write(kind, stringify!($set), handle, object, &contents)
                }
            }))
        }

        /// Returns the value of an attribute.
        ///
        /// # Safety
        ///
        /// The contract of NVIDIA's function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $get(
            handle: u64, object: u64, number: i32, value: *mut u8, bytes: usize,
        ) -> Status {
            status(Kind::named($kind).and_then(|kind| {
                // SAFETY: NVIDIA's function demands of its caller a handle, an object of this kind, and room for
                // `bytes` bytes at `value`, or nulls.
                unsafe {
                    let contents = kind.read(object)?;
                    get(kind, stringify!($get), handle, &contents, number, Room { address: value, bytes })
                }
            }))
        }
    )* };
}

attributes! {
    "mat": cusparseLtMatDescSetAttribute cusparseLtMatDescGetAttribute;
    "matmul": cusparseLtMatmulDescSetAttribute cusparseLtMatmulDescGetAttribute;
}

/// Initialises a selection of an algorithm.
///
/// # Safety
///
/// The contract of NVIDIA's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusparseLtMatmulAlgSelectionInit(
    handle: u64,
    object: u64,
    product: u64,
    algorithm: i32,
) -> Status {
    let make = || {
        let (matmul, selection) = (Kind::named("matmul")?, Kind::named("selection")?);
        // SAFETY: NVIDIA's function demands of its caller a product, or null.
        let product = unsafe { matmul.read(product)? };
        let contents = selection.make(&[algorithm as u64, matmul.descriptor.mask(&product)], &[&product]);
        // SAFETY: NVIDIA's function demands of its caller a handle and room for a selection, or nulls.
        unsafe {
            write(selection, "cusparseLtMatmulAlgSelectionInit", handle, object, &contents)?;
            selection.set_word(object, selection::number());
            Ok(())
        }
    };
    status(make())
}

/// Sets an attribute of a selection.
///
/// # Safety
///
/// The contract of NVIDIA's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusparseLtMatmulAlgSetAttribute(
    handle: u64,
    object: u64,
    number: i32,
    value: *const u8,
    bytes: usize,
) -> Status {
    let set = || {
        let kind = Kind::named("selection")?;
        // SAFETY: NVIDIA's function demands of its caller a handle, a selection, and `bytes` bytes at `value`, or
        // nulls.
        unsafe {
            let mut contents = selection::read(kind, object)?;
            kind.set(&mut contents, number, value, bytes)?;
            write(kind, "cusparseLtMatmulAlgSetAttribute", handle, object, &contents)?;
            selection::forget(kind.word(object));
            Ok(())
        }
    };
    status(set())
}

/// Returns the value of an attribute of a selection.
///
/// # Safety
///
/// The contract of NVIDIA's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusparseLtMatmulAlgGetAttribute(
    handle: u64,
    object: u64,
    number: i32,
    value: *mut u8,
    bytes: usize,
) -> Status {
    status(Kind::named("selection").and_then(|kind| {
        // SAFETY: NVIDIA's function demands of its caller a handle, a selection, and room for `bytes` bytes at `value`,
        // or nulls.
        unsafe {
            let contents = selection::read(kind, object)?;
            get(
                kind,
                "cusparseLtMatmulAlgGetAttribute",
                handle,
                &contents,
                number,
                Room { address: value, bytes },
            )
        }
    }))
}

/// Initialises a plan.
///
/// # Safety
///
/// The contract of NVIDIA's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusparseLtMatmulPlanInit(
    handle: u64,
    plan: u64,
    product: u64,
    algorithm: u64,
) -> Status {
    let make = || {
        let (matmul, kind, of_plan) =
            (Kind::named("matmul")?, Kind::named("selection")?, Kind::named("plan")?);
        // SAFETY: NVIDIA's function demands of its caller a product and a selection, or nulls.
        let (product, mut chosen, number) = unsafe {
            let (product, chosen) = (matmul.read(product)?, selection::read(kind, algorithm)?);
            (product, chosen, kind.word(algorithm))
        };
        chosen[kind.descriptor.part(kind.all, 0)].copy_from_slice(&product);
        let contents = of_plan.make(&[1], &[&chosen]);
        // SAFETY: NVIDIA's function demands of its caller a handle and room for a plan, or nulls.
        unsafe {
            write(of_plan, "cusparseLtMatmulPlanInit", handle, plan, &contents)?;
            of_plan.set_word(plan, number);
            Ok(())
        }
    };
    status(make())
}

/// Returns whether there are several streams. The first such call is reported on stderr.
fn are_several(streams: i32) -> bool {
    static TOLD: AtomicBool = AtomicBool::new(false);
    if streams > 1 && !TOLD.swap(true, Ordering::Relaxed) {
        eprintln!("vhost-cuda: a product of cuSPARSELt in several streams is not supported.");
    }
    streams > 1
}

/// Computes D = activation(alpha op(A) op(B) + beta C + bias).
///
/// # Safety
///
/// The contract of NVIDIA's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusparseLtMatmul(
    handle: u64,
    plan: u64,
    alpha: u64,
    a: u64,
    b: u64,
    beta: u64,
    c: u64,
    d: u64,
    workspace: u64,
    streams: u64,
    count: i32,
) -> Status {
    if are_several(count) {
        return NOT_SUPPORTED;
    }
    let streams = if count > 0 { streams } else { 0 };
    let slots = |handle| [handle, plan, alpha, a, b, beta, c, d, workspace, streams, count as u64];
    // SAFETY: the arguments are those of NVIDIA's function, which the row describes; there is a stream if `count` says
    // so.
    unsafe { forward_named(&CUSPARSELT, "cusparseLtMatmul", &slots(number_in(handle))) }
}

/// Computes the same with all algorithms. Afterwards the plan and its selection have the fastest one.
///
/// # Safety
///
/// The contract of NVIDIA's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusparseLtMatmulSearch(
    handle: u64,
    plan: u64,
    alpha: u64,
    a: u64,
    b: u64,
    beta: u64,
    c: u64,
    d: u64,
    workspace: u64,
    streams: u64,
    count: i32,
) -> Status {
    if are_several(count) {
        return NOT_SUPPORTED;
    }
    let search = || {
        let (of_plan, kind) = (Kind::named("plan")?, Kind::named("selection")?);
        let streams = if count > 0 { streams } else { 0 };
        let mut found = [0_u8; FOUND_BYTES];
        let place = found.as_mut_ptr() as u64;
        let slots = |handle| [handle, plan, alpha, a, b, beta, c, d, workspace, streams, count as u64, place];
        // SAFETY: the arguments are those of NVIDIA's function, which the row describes; there is a stream if `count`
        // says so, and `found` is as long as the row says.
        unsafe {
            let mut contents = of_plan.read(plan)?;
            checked(forward_named(&CUSPARSELT, "cusparseLtMatmulSearch", &slots(number_in(handle))))?;
            selection::keep(of_plan.word(plan), &found);
            kind.merge(&found, &mut contents[of_plan.descriptor.part(of_plan.all, 0)]);
            of_plan.write(plan, &contents)
        }
    };
    status(search())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_selection_has_what_a_search_has_found() {
        let kind = Kind::named("selection").expect("known");
        assert!(kind.descriptor.parts[0].offset <= FOUND_BYTES);
        let mut object = [0_u64; 64];
        let place = object.as_mut_ptr() as u64;
        let (contents, number) = (vec![0; kind.descriptor.bytes], selection::number());
        let mut made = contents.clone();
        kind.descriptor.make(&[0, 0], &mut made);
        // SAFETY: `object` is as long as a selection.
        unsafe {
            assert_eq!(selection::read(kind, place), Err(INVALID_VALUE), "it was not made");
            std::ptr::copy_nonoverlapping(made.as_ptr(), place as *mut u8, made.len());
            kind.set_word(place, number);
            assert_eq!(selection::read(kind, place), Ok(made.clone()));
            let mut found = contents.clone();
            kind.descriptor.set(2, 7, &mut found);
            selection::keep(number, &found[..FOUND_BYTES]);
            let read = selection::read(kind, place).expect("made");
            assert_eq!(kind.descriptor.value(2, &read), Some(7), "CUSPARSELT_MATMUL_ALG_CONFIG_ID");
            selection::forget(number);
            assert_eq!(selection::read(kind, place), Ok(made.clone()));
            for other in 1..=MAX_FOUND as u64 + 1 {
                selection::keep(u64::MAX - other, &found[..FOUND_BYTES]);
            }
            kind.set_word(place, u64::MAX - 1);
            assert_eq!(selection::read(kind, place), Ok(made), "the oldest result is dropped");
            kind.set_word(place, u64::MAX - 2);
            let read = selection::read(kind, place).expect("made");
            assert_eq!(kind.descriptor.value(2, &read), Some(7), "the others stay");
        }
    }
}
