// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Orders of rows and columns (section 2.5.3). All functions that reduce fill-in return the same order.

use std::ffi::c_int;

use super::super::{INVALID_VALUE, Status, status};
use super::handle::host;
use super::{Given, Place, answer, permutation};
use crate::exported::exported;
use crate::handles::Handle;
use crate::sparse::order::{reverse_cuthill_mckee, zero_free_diagonal};
use crate::stream::Fault;

/// Bytes of the buffer that a permutation asks for and does not use.
const BUFFER_BYTES: usize = 256;

fn failed(_: Fault) -> Status {
    INVALID_VALUE
}

fn given(handle: Handle, sizes: [c_int; 3], descriptor: Handle, arrays: [usize; 2]) -> Result<Given, Status> {
    Given::new(host(handle)?, sizes, descriptor, None, arrays)
}

/// Writes an order to the caller's memory.
fn answer_order(place: usize, order: &[usize]) -> Result<(), Status> {
    let values: Vec<i32> = order.iter().map(|index| *index as i32).collect();
    if place == 0 { Err(INVALID_VALUE) } else { Place::Host.set_integers(place, &values).map_err(failed) }
}

fn reduce(given: Result<Given, Status>, place: usize) -> Result<(), Status> {
    answer_order(place, &reverse_cuthill_mckee(&given?.load()?))
}

exported! {
    /// An order that reduces fill-in.
    pub unsafe extern "C" fn [cusolverSpXcsrsymrcmHost, cusolverSpXcsrsymmdqHost, cusolverSpXcsrsymamdHost]
    (handle: Handle, n: c_int, count: c_int, descriptor: Handle, starts: usize, indices: usize, order: usize) -> Status {
        status(reduce(given(handle, [n, n, count], descriptor, [starts, indices]), order))
    }
}

/// The same. Options of METIS have no effect.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusolverSpXcsrmetisndHost(
    handle: Handle,
    n: c_int,
    count: c_int,
    descriptor: Handle,
    starts: usize,
    indices: usize,
    _options: usize,
    order: usize,
) -> Status {
    status(reduce(given(handle, [n, n, count], descriptor, [starts, indices]), order))
}

fn zero_free(given: Result<Given, Status>, place: usize, found: *mut c_int) -> Result<(), Status> {
    let (order, count) = zero_free_diagonal(&given?.load()?);
    answer(found, count as c_int)?;
    answer_order(place, &order)
}

exported! {
    /// An order of rows with elements on the diagonal.
    pub unsafe extern "C" fn [cusolverSpScsrzfdHost, cusolverSpDcsrzfdHost, cusolverSpCcsrzfdHost, cusolverSpZcsrzfdHost]
    (
        handle: Handle, n: c_int, count: c_int, descriptor: Handle, _values: usize, starts: usize, indices: usize,
        order: usize, found: *mut c_int,
    ) -> Status {
        status(zero_free(given(handle, [n, n, count], descriptor, [starts, indices]), order, found))
    }
}

/// Returns the length of the buffer for a permutation.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusolverSpXcsrperm_bufferSizeHost(
    handle: Handle,
    rows: c_int,
    columns: c_int,
    count: c_int,
    descriptor: Handle,
    starts: usize,
    indices: usize,
    _p: usize,
    _q: usize,
    bytes: *mut usize,
) -> Status {
    let given = given(handle, [rows, columns, count], descriptor, [starts, indices]);
    status(given.and_then(|_| answer(bytes, BUFFER_BYTES)))
}

/// Changes the order of rows and columns of a matrix in its place, and with it a map of its elements.
fn permute(
    given: Result<Given, Status>,
    [p, q]: [usize; 2],
    map: usize,
    [starts, indices]: [usize; 2],
) -> Result<(), Status> {
    let given = given?;
    if [p, q, map].contains(&0) {
        return Err(INVALID_VALUE);
    }
    let order = |address: usize, count: usize| {
        permutation(&Place::Host.integers(address, count).map_err(failed)?).ok_or(INVALID_VALUE)
    };
    let old = Place::Host.integers(map, given.count).map_err(failed)?;
    let (matrix, elements) = given.load()?.permuted(&order(p, given.rows)?, &order(q, given.columns)?);
    let numbers =
        |values: &[usize]| -> Vec<i32> { values.iter().map(|value| *value as i32 + given.base).collect() };
    let map_values: Vec<i32> = elements.iter().map(|element| old[*element]).collect();
    for (place, values) in
        [(starts, numbers(&matrix.starts)), (indices, numbers(&matrix.indices)), (map, map_values)]
    {
        Place::Host.set_integers(place, &values).map_err(failed)?;
    }
    Ok(())
}

/// B = A(p, q).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusolverSpXcsrpermHost(
    handle: Handle,
    rows: c_int,
    columns: c_int,
    count: c_int,
    descriptor: Handle,
    starts: usize,
    indices: usize,
    p: usize,
    q: usize,
    map: usize,
    _buffer: usize,
) -> Status {
    let arrays = [starts, indices];
    status(permute(given(handle, [rows, columns, count], descriptor, arrays), [p, q], map, arrays))
}

/// Returns whether each element (i, j) has a counterpart at (j, i).
fn is_symmetric(
    place: Result<Place, Status>,
    [n, count]: [c_int; 2],
    base: Option<i32>,
    [starts, ends, indices]: [usize; 3],
    found: *mut c_int,
) -> Result<(), Status> {
    let (n, count, base) = (super::size(n)?, super::size(count)?, base.ok_or(INVALID_VALUE)?);
    if [starts, ends, indices].contains(&0) {
        return Err(INVALID_VALUE);
    }
    let place = place?;
    let load = |address: usize, count: usize| place.integers(address, count).map_err(failed);
    let (starts, ends, indices) = (load(starts, n)?, load(ends, n)?, load(indices, count)?);
    let mut elements = std::collections::HashSet::new();
    for (row, (start, end)) in starts.iter().zip(&ends).enumerate() {
        let range =
            [start, end].map(|at| usize::try_from(i64::from(*at) - i64::from(base)).unwrap_or(usize::MAX));
        for column in indices.get(range[0]..range[1].max(range[0])).ok_or(INVALID_VALUE)? {
            elements.insert((row as i64, i64::from(*column) - i64::from(base)));
        }
    }
    let is_symmetric = elements.iter().all(|(row, column)| elements.contains(&(*column, *row)));
    answer(found, c_int::from(is_symmetric))
}

/// Returns whether the positions of elements are symmetric.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusolverSpXcsrissymHost(
    handle: Handle,
    n: c_int,
    count: c_int,
    descriptor: Handle,
    starts: usize,
    ends: usize,
    indices: usize,
    found: *mut c_int,
) -> Status {
    let base = super::base(descriptor);
    status(is_symmetric(host(handle), [n, count], base, [starts, ends, indices], found))
}
