// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Matrices, their pruning and compression.

use std::ffi::c_int;

use cublaslt_descriptors::objects::{Kind, SPARSITY};

use super::check_handle;
use super::objects::product_of;
use super::product::Product;
use crate::cublas::operation::Operation;
use crate::cublaslt::View;
use crate::cusparse::{EXECUTION_FAILED, INVALID_VALUE, NOT_SUPPORTED, Status, status};
use crate::memory::{Array, Dense, moved, pointer, set_i32};
use crate::numbers::{C64, Type};
use crate::stream::{self, Done, Fault, Stream};

/// The size of a compressed matrix is a multiple of this, in bytes.
const ALIGNMENT: usize = 16;

/// A matrix in device memory, or several.
#[derive(Clone, Copy, Debug)]
pub struct Matrix {
    /// The type of the elements.
    pub kind: Type,
    /// Rows.
    pub rows: usize,
    /// Columns.
    pub columns: usize,
    /// Matrices.
    pub count: usize,
    /// It has zeros in a pattern.
    pub is_sparse: bool,
    leading: usize,
    is_by_rows: bool,
    stride: i64,
}

impl Matrix {
    /// The matrix of these contents.
    ///
    /// Errors: NVIDIA's for sizes and types that tensor cores do not have.
    pub fn new(of: Kind, contents: &[u8]) -> Result<Self, Status> {
        let size = |number| {
            let value = of.value(contents, number) as i64;
            usize::try_from(value).ok().filter(|value| (1..1 << 31).contains(value)).ok_or(INVALID_VALUE)
        };
        let (index, _) = of.descriptor.attribute(SPARSITY).ok_or(NOT_SUPPORTED)?;
        let is_sparse = of.descriptor.value(index, contents).is_some();
        let kind = Type::new(of.value(contents, 104) as c_int).ok_or(NOT_SUPPORTED)?;
        if !matches!(kind, Type::F16 | Type::Bf16 | Type::F32 | Type::I8 | Type::I32) {
            return Err(NOT_SUPPORTED);
        }
        // CUSPARSE_ORDER_COL, CUSPARSE_ORDER_ROW
        let is_by_rows = match of.value(contents, 105) {
            1 => false,
            2 => true,
            _ => return Err(INVALID_VALUE),
        };
        let (rows, columns, leading) = (size(100)?, size(101)?, size(102)?);
        let matrix = Self {
            kind,
            rows,
            columns,
            count: usize::try_from(of.value(contents, 0) as i32).map_err(|_| INVALID_VALUE)?,
            is_sparse,
            leading,
            is_by_rows,
            stride: of.value(contents, 1) as i64,
        };
        let inner = if is_by_rows { columns } else { rows };
        if leading < inner || matrix.count == 0 || !of.value(contents, 103).is_multiple_of(16) {
            return Err(INVALID_VALUE);
        }
        let step = if is_sparse { 32 } else { 16 } / kind.bytes();
        if rows % step != 0 || columns % step != 0 { Err(NOT_SUPPORTED) } else { Ok(matrix) }
    }

    /// The matrix of that index in a batch.
    pub fn open(&self, base: usize, index: usize) -> Result<View, Fault> {
        let base = moved(base, self.stride.wrapping_mul(index as i64), self.kind);
        View::new(self.kind, base, [self.rows, self.columns], self.leading, self.is_by_rows)
    }
}

/// A matrix with zeros in a pattern, as a factor of a product. Elements whose products are added are side by side in a line.
#[derive(Clone, Copy, Debug)]
pub struct Pattern {
    matrix: Matrix,
    is_a: bool,
    is_turned: bool,
    lines: usize,
    length: usize,
}

impl Pattern {
    /// The matrix as the factor A or B.
    pub fn new(matrix: Matrix, is_a: bool, operation: Operation) -> Result<Self, Status> {
        if !matrix.is_sparse {
            return Err(INVALID_VALUE);
        }
        let (rows, columns) = operation.stored(matrix.rows, matrix.columns);
        let (lines, length) = if is_a { (rows, columns) } else { (columns, rows) };
        Ok(Self { matrix, is_a, is_turned: operation != Operation::None, lines, length })
    }

    /// The place in the matrix of an element of a line.
    fn place(&self, line: usize, index: usize) -> (usize, usize) {
        if self.is_a == self.is_turned { (index, line) } else { (line, index) }
    }

    /// Neighbours in a line, of which half are zero.
    fn group(&self) -> usize {
        if self.matrix.kind == Type::F32 { 2 } else { 4 }
    }

    /// Bytes of one compressed matrix: values, then a byte for each group with the places of its values.
    fn compressed_bytes(&self) -> usize {
        (self.value_bytes() + self.lines * self.length / self.group()).next_multiple_of(ALIGNMENT)
    }

    fn value_bytes(&self) -> usize {
        self.lines * self.length / 2 * self.matrix.kind.bytes()
    }

    /// Bytes of all compressed matrices.
    pub fn size(&self) -> usize {
        self.matrix.count * self.compressed_bytes()
    }

    fn prune(&self, from: usize, to: usize, algorithm: c_int) -> Done {
        let group = self.group();
        for index in 0..self.matrix.count {
            let (from, to) = (self.matrix.open(from, index)?, self.matrix.open(to, index)?);
            // CUSPARSELT_PRUNE_SPMMA_STRIP works on single lines, CUSPARSELT_PRUNE_SPMMA_TILE on as many as a group is long.
            let height = if algorithm == 1 { 1 } else { group };
            for line in (0..self.lines).step_by(height) {
                for start in (0..self.length).step_by(group) {
                    let value = |y: usize, x: usize| {
                        let (row, column) = self.place(line + y, start + x);
                        from.get(row, column)
                    };
                    let sizes = |y: usize| -> Vec<f64> { (0..group).map(|x| value(y, x).re.abs()).collect() };
                    let kept = match height {
                        1 => vec![largest(&sizes(0))],
                        _ => best_tile(&(0..height).map(sizes).collect::<Vec<_>>()),
                    };
                    for (y, mask) in kept.into_iter().enumerate() {
                        for x in 0..group {
                            let new = if mask >> x & 1 == 1 { value(y, x) } else { C64::default() };
                            let (row, column) = self.place(line + y, start + x);
                            to.set(row, column, new);
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Writes 0 if the pattern is right, or 1.
    fn check(&self, from: usize, valid: usize) -> Done {
        let mut is_right = true;
        for index in 0..self.matrix.count {
            let from = self.matrix.open(from, index)?;
            for line in 0..self.lines {
                for start in (0..self.length).step_by(self.group()) {
                    is_right &= self.places(from, line, start).is_some();
                }
            }
        }
        set_i32(valid, 0, i32::from(!is_right))
    }

    /// The places of a group's values, half as many as it is long; `None`: it has more values.
    fn places(&self, from: View, line: usize, start: usize) -> Option<Vec<usize>> {
        let group = self.group();
        let is_value = |x: &usize| {
            let (row, column) = self.place(line, start + x);
            from.get(row, column) != C64::default()
        };
        let mut places: Vec<usize> = (0..group).filter(is_value).collect();
        for place in 0..group {
            if places.len() < group / 2 && !places.contains(&place) {
                places.push(place);
            }
        }
        places.sort_unstable();
        (places.len() == group / 2).then_some(places)
    }

    /// A matrix whose pattern is wrong loses values.
    fn compress(&self, from: usize, to: usize) -> Done {
        let (group, half) = (self.group(), self.group() / 2);
        for index in 0..self.matrix.count {
            let from = self.matrix.open(from, index)?;
            let to = to.checked_add(index * self.compressed_bytes()).ok_or(Fault)?;
            let values = Array::new(self.matrix.kind, to, self.lines * self.length / 2)?;
            let bytes = pointer::<u8>(to + self.value_bytes(), self.lines * self.length / group)?;
            for line in 0..self.lines {
                for start in (0..self.length).step_by(group) {
                    let first = (0..half).collect();
                    let places = self.places(from, line, start).unwrap_or(first);
                    let number = line * (self.length / group) + start / group;
                    let mut byte = 0;
                    for (at, place) in places.into_iter().enumerate() {
                        let (row, column) = self.place(line, start + place);
                        values.set(number * half + at, from.get(row, column));
                        byte |= (place as u8) << (2 * at);
                    }
                    // SAFETY: `pointer` has checked a byte for each group.
                    unsafe { bytes.add(number).write(byte) };
                }
            }
        }
        Ok(())
    }

    /// The factor of that index, of its compressed form.
    pub fn expand(&self, from: usize, index: usize) -> Result<Dense, Fault> {
        let (group, half) = (self.group(), self.group() / 2);
        let from = from.checked_add(index * self.compressed_bytes()).ok_or(Fault)?;
        let values = Array::new(self.matrix.kind, from, self.lines * self.length / 2)?;
        let bytes = pointer::<u8>(from + self.value_bytes(), self.lines * self.length / group)?;
        let (rows, columns) = if self.is_a { (self.lines, self.length) } else { (self.length, self.lines) };
        let mut dense = Dense::from(rows, columns, |_, _| C64::default());
        for number in 0..self.lines * self.length / group {
            // SAFETY: `pointer` has checked a byte for each group.
            let byte = unsafe { bytes.add(number).read() };
            let (line, start) = (number / (self.length / group), number % (self.length / group) * group);
            for at in 0..half {
                let inner = start + usize::from(byte >> (2 * at) & 3) % group;
                let (row, column) = if self.is_a { (line, inner) } else { (inner, line) };
                dense[(row, column)] = values.get(number * half + at);
            }
        }
        Ok(dense)
    }
}

/// The half of some values that is the largest, a bit for each; of equal ones the first.
fn largest(sizes: &[f64]) -> usize {
    let mut order: Vec<usize> = (0..sizes.len()).collect();
    order.sort_by(|one, other| sizes[*other].total_cmp(&sizes[*one]));
    order[..sizes.len() / 2].iter().fold(0, |mask, place| mask | 1 << place)
}

/// Of all choices with half of each line and half of each column, the one with the largest sum.
fn best_tile(sizes: &[Vec<f64>]) -> Vec<usize> {
    let side = sizes.len();
    let masks: Vec<usize> =
        (0..1 << side).filter(|mask: &usize| mask.count_ones() as usize == side / 2).collect();
    let mut best = (f64::NEG_INFINITY, vec![0; side]);
    let mut choice = vec![0; side];
    for number in 0..masks.len().pow(side as u32) {
        let mut rest = number;
        for mask in &mut choice {
            *mask = masks[rest % masks.len()];
            rest /= masks.len();
        }
        let has_half = |x: usize| choice.iter().filter(|mask| *mask >> x & 1 == 1).count() == side / 2;
        if !(0..side).all(has_half) {
            continue;
        }
        let kept = |(line, mask): (&Vec<f64>, &usize)| -> f64 {
            line.iter().enumerate().filter(|(x, _)| mask >> x & 1 == 1).map(|(_, size)| size).sum()
        };
        let sum = sizes.iter().zip(&choice).map(kept).sum();
        if sum > best.0 {
            best = (sum, choice.clone());
        }
    }
    best.1
}

/// The sparse factor of a product.
///
/// # Safety
///
/// `handle` is null or a handle, and `product` null or a product.
unsafe fn of_product(handle: *const usize, product: u64) -> Result<Pattern, Status> {
    // SAFETY: by this function's contract.
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
    // SAFETY: by this function's contract.
    let matrix = unsafe {
        check_handle(handle)?;
        let kind = Kind::named("mat")?;
        Matrix::new(kind, &kind.read(matrix)?)?
    };
    Pattern::new(matrix, is_a != 0, Operation::new(op).map_err(|_| INVALID_VALUE)?)
}

fn queue(stream: Stream, work: impl Fn() -> Done + Send + Sync + 'static) -> Result<(), Status> {
    stream::queue(stream, work).map_err(|_| EXECUTION_FAILED)
}

fn prune(
    pattern: Result<Pattern, Status>,
    from: usize,
    to: usize,
    algorithm: c_int,
    stream: Stream,
) -> Status {
    let queue = || {
        let pattern = pattern?;
        if from == 0 || to == 0 || !(0..=1).contains(&algorithm) {
            return Err(INVALID_VALUE);
        }
        queue(stream, move || pattern.prune(from, to, algorithm))
    };
    status(queue())
}

fn check(pattern: Result<Pattern, Status>, from: usize, valid: usize, stream: Stream) -> Status {
    let queue = || {
        let pattern = pattern?;
        if from == 0 || valid == 0 {
            return Err(INVALID_VALUE);
        }
        queue(stream, move || pattern.check(from, valid))
    };
    status(queue())
}

fn compress(pattern: Result<Pattern, Status>, from: usize, to: usize, stream: Stream) -> Status {
    let queue = || {
        let pattern = pattern?;
        if from == 0 || to == 0 {
            return Err(INVALID_VALUE);
        }
        queue(stream, move || pattern.compress(from, to))
    };
    status(queue())
}

/// Returns the size of the compressed matrix and of the buffer for compression.
///
/// # Safety
///
/// Both are null or places for a number.
unsafe fn sizes(pattern: Result<Pattern, Status>, size: *mut usize, buffer: *mut usize) -> Status {
    // SAFETY: by this function's contract.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_larger_half_stays() {
        assert_eq!(largest(&[1.0, 5.0, 2.0, 4.0]), 0b1010);
        assert_eq!(largest(&[1.0, 1.0, 1.0, 1.0]), 0b0011, "of equal ones the first");
        assert_eq!(largest(&[3.0, 7.0]), 0b10);
    }

    #[test]
    fn a_tile_keeps_half_of_each_line_and_column() {
        let tile = [[9.0, 8.0, 1.0, 0.0], [9.0, 7.0, 2.0, 0.0], [9.0, 8.0, 3.0, 5.0], [0.0, 1.0, 4.0, 6.0]];
        let best = best_tile(&tile.map(Vec::from));
        assert_eq!(best.len(), 4);
        assert!(best.iter().all(|mask| mask.count_ones() == 2));
        assert!((0..4).all(|x| best.iter().filter(|mask| *mask >> x & 1 == 1).count() == 2));
        let sum = |masks: &[usize]| -> f64 {
            let kept = |(line, mask): (&[f64; 4], &usize)| -> f64 {
                (0..4).filter(|x| mask >> x & 1 == 1).map(|x| line[x]).sum()
            };
            tile.iter().zip(masks).map(kept).sum()
        };
        assert_eq!(sum(&best), 51.0);
        assert_eq!(best_tile(&[vec![1.0, 2.0], vec![5.0, 3.0]]), [0b10, 0b01]);
    }

    #[test]
    fn elements_that_are_added_are_side_by_side() {
        let matrix = Matrix {
            kind: Type::F16,
            rows: 16,
            columns: 32,
            count: 1,
            is_sparse: true,
            leading: 32,
            is_by_rows: true,
            stride: 0,
        };
        let pattern = |is_a, operation| Pattern::new(matrix, is_a, operation).expect("sparse");
        for (is_a, operation, lines, place) in [
            (true, Operation::None, 16, (1, 2)),
            (true, Operation::Transpose, 32, (2, 1)),
            (false, Operation::None, 32, (2, 1)),
            (false, Operation::Transpose, 16, (1, 2)),
        ] {
            let pattern = pattern(is_a, operation);
            assert_eq!((pattern.lines, pattern.place(1, 2)), (lines, place));
            assert_eq!(pattern.size(), 16 * 32 / 2 * 2 + 16 * 32 / 4);
        }
    }
}
