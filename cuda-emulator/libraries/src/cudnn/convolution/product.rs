// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Convolutions as products of matrices: the elements under the filter become the columns of a matrix, some places of the output
//! at a time, so that the matrix stays small.

use std::ops::{AddAssign, Range};

use gemm::Parallelism;
use num_traits::{One, Zero};

use super::Geometry;

/// A type that convolutions are computed in.
pub trait Real: Copy + Default + AddAssign + Zero + One + Send + Sync + 'static {
    fn narrow(value: f64) -> Self;
    fn wide(self) -> f64;
}

impl Real for f32 {
    fn narrow(value: f64) -> Self {
        value as Self
    }
    fn wide(self) -> f64 {
        f64::from(self)
    }
}

impl Real for f64 {
    fn narrow(value: f64) -> Self {
        value
    }
    fn wide(self) -> f64 {
        self
    }
}

/// Elements of the matrix of columns, unless one column alone has more.
const COLUMNS: usize = 1 << 20;

/// A matrix in a slice: where it begins, and the distances of its rows and columns.
#[derive(Clone, Copy)]
struct Place {
    start: usize,
    rows: usize,
    columns: usize,
}

impl Place {
    /// The matrix at this place of a slice.
    fn of<S>(self, elements: S) -> View<S> {
        View { elements, at: self }
    }
}

/// A matrix in a slice of elements.
struct View<S> {
    elements: S,
    at: Place,
}

/// C = A B, or C += A B, of `m` rows, `n` columns and sums of `k` products.
fn multiply<T: Real>([m, n, k]: [usize; 3], a: View<&[T]>, b: View<&[T]>, c: View<&mut [T]>, adds: bool) {
    let last =
        |at: Place, rows: usize, columns: usize| at.start + (rows - 1) * at.rows + (columns - 1) * at.columns;
    assert!(m > 0 && n > 0 && k > 0, "no size of a tensor is zero");
    assert!(last(a.at, m, k) < a.elements.len() && last(b.at, k, n) < b.elements.len());
    assert!(last(c.at, m, n) < c.elements.len());
    // SAFETY: the last element of each matrix lies in its slice, as just checked; C overlaps neither.
    unsafe {
        gemm::gemm(
            m,
            n,
            k,
            c.elements.as_mut_ptr().add(c.at.start),
            c.at.columns as isize,
            c.at.rows as isize,
            adds,
            a.elements.as_ptr().add(a.at.start),
            a.at.columns as isize,
            a.at.rows as isize,
            b.elements.as_ptr().add(b.at.start),
            b.at.columns as isize,
            b.at.rows as isize,
            T::one(),
            T::one(),
            false,
            false,
            false,
            Parallelism::None,
        );
    }
}

/// One image and group of a tile.
struct Part<'a> {
    /// The image and the group, counted together.
    number: usize,
    outputs: Range<usize>,
    places: &'a [Option<usize>],
}

impl Geometry {
    fn sizes(&self) -> [usize; 3] {
        [self.inputs, self.taps, self.outputs].map(|sizes| sizes.iter().product())
    }

    /// Rows of the matrix of columns.
    fn rows(&self) -> usize {
        self.channels * self.sizes()[1]
    }

    /// Calls `body` for all images and groups, a tile of the output at a time.
    fn parts(&self, mut body: impl FnMut(&Part<'_>)) {
        let outputs = self.sizes()[2];
        let tile = (COLUMNS / self.rows()).clamp(1, outputs);
        for start in (0..outputs).step_by(tile) {
            let outputs = start..outputs.min(start + tile);
            let places = self.places(outputs.clone());
            for number in 0..self.batch * self.groups {
                body(&Part { number, outputs: outputs.clone(), places: &places });
            }
        }
    }

    /// The filter of the group of a part.
    fn filter_at(&self, part: &Part<'_>) -> Place {
        let start = part.number % self.groups * self.features * self.rows();
        Place { start, rows: self.rows(), columns: 1 }
    }

    /// The tile of the output of a part.
    fn output_at(&self, part: &Part<'_>) -> Place {
        let outputs = self.sizes()[2];
        Place { start: part.number * self.features * outputs + part.outputs.start, rows: outputs, columns: 1 }
    }

    /// Fills the matrix of columns from the input.
    fn gather<T: Real>(&self, part: &Part<'_>, input: &[T], columns: &mut Vec<T>) {
        let size = self.sizes()[0];
        columns.clear();
        let images = input[part.number * self.channels * size..].chunks_exact(size).take(self.channels);
        for image in images {
            columns.extend(part.places.iter().map(|place| place.map_or(T::default(), |place| image[place])));
        }
    }

    /// The output.
    pub fn forward<T: Real>(&self, input: &[T], filter: &[T]) -> Vec<T> {
        let mut output = vec![T::default(); self.batch * self.groups * self.features * self.sizes()[2]];
        let mut columns = Vec::new();
        self.parts(|part| {
            self.gather(part, input, &mut columns);
            let width = part.outputs.len();
            multiply(
                [self.features, width, self.rows()],
                self.filter_at(part).of(filter),
                Place { start: 0, rows: width, columns: 1 }.of(&columns),
                self.output_at(part).of(&mut output),
                false,
            );
        });
        output
    }

    /// The gradient of the filter.
    pub fn filter_gradient<T: Real>(&self, input: &[T], gradient: &[T]) -> Vec<T> {
        let mut filter = vec![T::default(); self.groups * self.features * self.rows()];
        let mut columns = Vec::new();
        self.parts(|part| {
            self.gather(part, input, &mut columns);
            let width = part.outputs.len();
            multiply(
                [self.features, self.rows(), width],
                self.output_at(part).of(gradient),
                Place { start: 0, rows: 1, columns: width }.of(&columns),
                self.filter_at(part).of(&mut filter),
                true,
            );
        });
        filter
    }

    /// The gradient of the input.
    pub fn data_gradient<T: Real>(&self, filter: &[T], gradient: &[T]) -> Vec<T> {
        let size = self.sizes()[0];
        let mut input = vec![T::default(); self.batch * self.groups * self.channels * size];
        let mut columns = Vec::new();
        self.parts(|part| {
            let (width, at) = (part.outputs.len(), self.filter_at(part));
            columns.resize(self.rows() * width, T::default());
            multiply(
                [self.rows(), width, self.features],
                Place { start: at.start, rows: at.columns, columns: at.rows }.of(filter),
                self.output_at(part).of(gradient),
                Place { start: 0, rows: width, columns: 1 }.of(&mut columns),
                false,
            );
            let images = input[part.number * self.channels * size..].chunks_exact_mut(size);
            for (image, columns) in images.zip(columns.chunks_exact(part.places.len())).take(self.channels) {
                for (place, value) in part.places.iter().zip(columns) {
                    if let Some(place) = place {
                        image[*place] += *value;
                    }
                }
            }
        });
        input
    }
}
