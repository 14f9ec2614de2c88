// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The transforms that a plan is for, from the arguments of FFTW's planning functions.

use std::ffi::c_int;

use crate::error::{Error, Result};
use crate::layout::{Axis, Layout};

/// The maximum number of dimensions of a transform: cuFFT's.
pub const MAX_RANK: usize = 3;

const NEGATIVE: Error = Error::Arguments("a size, stride or distance is negative");
const TOO_LARGE: Error = Error::Arguments("a size or stride is too large");

/// The precision of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precision {
    /// Functions with names `fftwf_…`.
    Single,
    /// Functions with names `fftw_…`.
    Double,
}

/// The kind of transform.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Complex to complex, with the sign of the exponent.
    Complex(c_int),
    /// Real to complex.
    Forward,
    /// Complex to real.
    Inverse,
}

/// The kind of transform and the precision.
#[derive(Clone, Copy, Debug)]
pub struct Form {
    /// The kind of transform.
    pub kind: Kind,
    /// The precision of numbers.
    pub precision: Precision,
}

/// One of the arrays of transforms that are a fixed distance apart.
#[derive(Clone, Debug, Default)]
pub struct Side {
    /// The sizes of the array of which a transform is a part; `None`: it is all of it.
    pub embed: Option<Vec<i64>>,
    /// The distance of elements.
    pub stride: i64,
    /// The distance of transforms.
    pub distance: i64,
}

/// A dimension with its strides in both arrays (`fftw_iodim64`).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Dimension {
    /// The number of elements.
    pub n: isize,
    /// The stride of the input.
    pub is: isize,
    /// The stride of the output.
    pub os: isize,
}

/// Transforms of the same size.
#[derive(Clone, Debug)]
pub struct Problem {
    /// The kind of transform and the precision.
    pub form: Form,
    /// The sizes of a transform, at most [`MAX_RANK`].
    pub sizes: Vec<i64>,
    /// The number of transforms.
    pub batch: i64,
    /// The layouts of input and output.
    pub layouts: [Layout; 2],
}

impl Form {
    /// The `cufftType`.
    pub fn number(self) -> c_int {
        let single = match self.kind {
            Kind::Complex(_) => 0x29,
            Kind::Forward => 0x2a,
            Kind::Inverse => 0x2c,
        };
        if self.precision == Precision::Single { single } else { single + 0x40 }
    }

    /// The direction for cuFFT.
    pub fn direction(self) -> c_int {
        match self.kind {
            Kind::Complex(sign) => sign,
            Kind::Forward => -1,
            Kind::Inverse => 1,
        }
    }

    fn check(self) -> Result {
        match self.kind {
            Kind::Complex(sign) if sign != -1 && sign != 1 => {
                Err(Error::Arguments("the sign is not -1 or 1"))
            }
            _ => Ok(()),
        }
    }

    /// Returns whether the input and the output have real numbers.
    fn reals(self) -> [bool; 2] {
        [self.kind == Kind::Forward, self.kind == Kind::Inverse]
    }

    /// The layout of a side: [`Axis`] per dimension, the last with the number of a real transform's size.
    fn layout(self, mut axes: Vec<Axis>, real: bool) -> Result<Layout> {
        if !real && self.reals() != [false; 2] {
            let last = axes.last_mut().ok_or(TOO_LARGE)?;
            last.count = last.count / 2 + 1;
        }
        let number = if self.precision == Precision::Single { 4 } else { 8 };
        Layout::new(&axes, if real { number } else { 2 * number })
    }
}

impl Problem {
    /// The arguments of `fftw_plan_many_dft` and of the simpler functions. `in_place`: input and output are one array,
    /// whose rows of real numbers are padded unless `sides` say otherwise.
    ///
    /// Errors: they are wrong or not supported.
    pub fn many(form: Form, sizes: &[i64], batch: i64, in_place: bool, sides: [Side; 2]) -> Result<Self> {
        form.check()?;
        check_sizes(sizes, batch)?;
        let [input, output] = form.reals();
        let layout = |side: &Side, real: bool| {
            let embed = match &side.embed {
                Some(embed) => embed.clone(),
                None => whole(form, sizes, real, in_place),
            };
            form.layout(embedded(sizes, &embed, batch, side)?, real)
        };
        let layouts = [layout(&sides[0], input)?, layout(&sides[1], output)?];
        Ok(Self { form, sizes: sizes.to_vec(), batch, layouts })
    }

    /// The arguments of the `guru` functions.
    ///
    /// Errors: they are wrong or not supported.
    pub fn guru(form: Form, dimensions: &[Dimension], batch: Option<Dimension>) -> Result<Self> {
        form.check()?;
        let sizes: Vec<i64> = dimensions.iter().map(|dimension| dimension.n as i64).collect();
        let count = batch.map_or(1, |batch| batch.n as i64);
        check_sizes(&sizes, count)?;
        let [input, output] = form.reals();
        let layout = |stride: fn(&Dimension) -> isize, real: bool| {
            let all = batch.iter().chain(dimensions);
            let axes = all.map(|dimension| axis(dimension.n as i64, stride(dimension) as i64));
            form.layout(axes.collect::<Result<_>>()?, real)
        };
        let layouts = [layout(|dimension| dimension.is, input)?, layout(|dimension| dimension.os, output)?];
        Ok(Self { form, sizes, batch: count, layouts })
    }
}

fn check_sizes(sizes: &[i64], batch: i64) -> Result {
    if !(1..=MAX_RANK).contains(&sizes.len()) {
        return Err(Error::Arguments("cuFFT has transforms of one to three dimensions only"));
    }
    if batch < 1 || sizes.iter().any(|size| *size < 1) {
        return Err(Error::Arguments("a size is less than 1"));
    }
    Ok(())
}

/// The sizes of an array that has nothing but one transform.
fn whole(form: Form, sizes: &[i64], real: bool, in_place: bool) -> Vec<i64> {
    let mut sizes = sizes.to_vec();
    if let (Some(last), true) = (sizes.last_mut(), form.reals() != [false; 2]) {
        let half = *last / 2 + 1;
        *last = match (real, in_place) {
            (true, true) => half.saturating_mul(2),
            (true, false) => *last,
            (false, _) => half,
        };
    }
    sizes
}

/// The dimensions of an array, that of the transforms first.
fn embedded(sizes: &[i64], embed: &[i64], batch: i64, side: &Side) -> Result<Vec<Axis>> {
    let mut axes = Vec::with_capacity(sizes.len() + 1);
    let mut stride = side.stride;
    for (size, embed) in sizes.iter().zip(embed).rev() {
        axes.push(axis(*size, stride)?);
        // The outermost size of the array is not used: it may be anything.
        stride = stride.saturating_mul(*embed);
    }
    axes.push(axis(batch, side.distance)?);
    axes.reverse();
    Ok(axes)
}

fn axis(count: i64, stride: i64) -> Result<Axis> {
    // The stride of a single element is not used.
    let stride = if count == 1 { 0 } else { stride };
    if count < 0 || stride < 0 {
        return Err(NEGATIVE);
    }
    let size = |number: i64| usize::try_from(number).map_err(|_| TOO_LARGE);
    Ok(Axis { count: size(count)?, stride: size(stride)? })
}

#[cfg(test)]
mod tests;
