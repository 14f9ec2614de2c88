// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Operations of graphs.

use std::ffi::c_int;

use super::super::convolution::{Direction, Geometry, Parameters};
use super::super::layout::{places, spread, spreads};
use super::super::reduction::Reduction;
use super::super::{BAD_PARAM, Blend, NOT_SUPPORTED, Status};
use super::descriptor::{Attributes, Kind, Made};
use super::pointwise::Pointwise;
use super::tensor::Tensor;
use crate::numbers::Type;

/// An operation with its tensors, whose sizes fit.
#[derive(Debug)]
pub struct Node {
    operation: Operation,
    /// In the order in which the operation takes them.
    pub inputs: Vec<Tensor>,
    pub output: Tensor,
    /// For the result, and for what the output was before.
    pub blend: Blend,
}

#[derive(Debug)]
enum Operation {
    Convolution(Direction, Geometry),
    /// And the factors of the first and second element.
    Pointwise(Pointwise, [f64; 2]),
    /// Rows, columns, and products that are added up.
    MatMul([usize; 3]),
    Reduction(Reduction),
}

/// The parameters of a convolution descriptor.
pub fn parameters(attributes: &Attributes) -> Result<Parameters, Status> {
    let [dilations, strides, after, before] = [102, 103, 104, 105].map(|name| attributes.integers(name));
    let (dilations, strides, after, before) = (dilations?, strides?, after?, before?);
    let is_reversed = match attributes.integer(101)? {
        0 => true,
        1 => false,
        _ => return Err(BAD_PARAM),
    };
    if attributes.integer(106)? != strides.len() as i64 {
        return Err(BAD_PARAM);
    }
    Parameters::new([&before, &after], &strides, &dilations, is_reversed)
}

impl Node {
    /// The operation of a descriptor.
    pub fn new(kind: Kind, attributes: &Attributes) -> Result<Self, Status> {
        match kind {
            Kind::OperationForward => Self::convolution(Direction::Forward, attributes),
            Kind::OperationData => Self::convolution(Direction::Data, attributes),
            Kind::OperationFilter => Self::convolution(Direction::Filter, attributes),
            Kind::OperationPointwise => Self::pointwise(attributes),
            Kind::OperationMatMul => Self::product(attributes),
            Kind::OperationReduction => Self::reduction(attributes),
            _ => Err(NOT_SUPPORTED),
        }
    }

    fn convolution(direction: Direction, attributes: &Attributes) -> Result<Self, Status> {
        // The names of alpha, beta and the descriptor, and of input, filter and output.
        let (names, tensors): ([c_int; 3], [c_int; 3]) = match direction {
            Direction::Forward => ([700, 701, 702], [704, 703, 705]),
            Direction::Data => ([706, 707, 708], [710, 709, 711]),
            Direction::Filter => ([712, 713, 714], [716, 715, 717]),
        };
        let [x, w, y] = tensors.map(|name| attributes.tensor(name));
        let (x, w, y) = (x?, w?, y?);
        let Made::Convolution(parameters) = &attributes.descriptor(names[2])?.made else {
            return Err(BAD_PARAM);
        };
        let geometry = Geometry::new(parameters, x.dims(), w.dims(), y.dims())?;
        let is_real = |tensor: &Tensor| !matches!(tensor.layout.kind, Type::I8 | Type::I32 | Type::I64);
        if ![&x, &w, &y].into_iter().all(is_real) {
            return Err(NOT_SUPPORTED);
        }
        let blend =
            Blend { alpha: attributes.real_or(names[0], 1.0)?, beta: attributes.real_or(names[1], 0.0)? };
        let (inputs, output) = match direction {
            Direction::Forward => (vec![x, w], y),
            Direction::Data => (vec![w, y], x),
            Direction::Filter => (vec![x, y], w),
        };
        Ok(Self { operation: Operation::Convolution(direction, geometry), inputs, output, blend })
    }

    fn pointwise(attributes: &Attributes) -> Result<Self, Status> {
        let pointwise = Pointwise::new(attributes.descriptor(750)?.attributes())?;
        let factors = [attributes.real_or(754, 1.0)?, attributes.real_or(755, 1.0)?];
        let (inputs, output) = match pointwise {
            Pointwise::Backward(_) => {
                // Gradients by the output instead of the input.
                let x = attributes.optional_tensor(751)?.ok_or(NOT_SUPPORTED)?;
                (vec![x, attributes.tensor(757)?], attributes.tensor(756)?)
            }
            Pointwise::Unary(_) | Pointwise::Forward(_) => {
                (vec![attributes.tensor(751)?], attributes.tensor(753)?)
            }
            Pointwise::Binary(_) => {
                (vec![attributes.tensor(751)?, attributes.tensor(752)?], attributes.tensor(753)?)
            }
            Pointwise::Select => {
                let inputs = [751, 752, 758].map(|name| attributes.tensor(name));
                (inputs.into_iter().collect::<Result<_, _>>()?, attributes.tensor(753)?)
            }
        };
        if !inputs.iter().all(|input: &Tensor| spreads(input.dims(), output.dims())) {
            return Err(BAD_PARAM);
        }
        Ok(Self {
            operation: Operation::Pointwise(pointwise, factors),
            inputs,
            output,
            blend: Blend::REPLACE,
        })
    }

    fn product(attributes: &Attributes) -> Result<Self, Status> {
        let [a, b, c] = [1520, 1521, 1522].map(|name| attributes.tensor(name));
        let (a, b, c) = (a?, b?, c?);
        attributes.descriptor(1523)?;
        // Sizes that are known only when the plan is executed.
        for name in 1525..=1527 {
            if attributes.optional_tensor(name)?.is_some() {
                return Err(NOT_SUPPORTED);
            }
        }
        let outer = c.dims().len().checked_sub(2).ok_or(BAD_PARAM)?;
        let [m, n] = c.dims()[outer..] else { return Err(BAD_PARAM) };
        let k = a.dims().last().copied().unwrap_or_default();
        let fits = |tensor: &Tensor, inner: [usize; 2]| {
            tensor.dims().len() == outer + 2
                && tensor.dims()[outer..] == inner
                && spreads(&tensor.dims()[..outer], &c.dims()[..outer])
        };
        if !fits(&a, [m, k]) || !fits(&b, [k, n]) {
            return Err(BAD_PARAM);
        }
        let operation = Operation::MatMul([m, n, k]);
        Ok(Self { operation, inputs: vec![a, b], output: c, blend: Blend::REPLACE })
    }

    fn reduction(attributes: &Attributes) -> Result<Self, Status> {
        let (x, y) = (attributes.tensor(1610)?, attributes.tensor(1611)?);
        let number = attributes.descriptor(1612)?.attributes().integer(1600)?;
        let reduction = Reduction::new(i32::try_from(number).map_err(|_| BAD_PARAM)?)?;
        if !spreads(y.dims(), x.dims()) {
            return Err(BAD_PARAM);
        }
        let operation = Operation::Reduction(reduction);
        Ok(Self { operation, inputs: vec![x], output: y, blend: Blend::REPLACE })
    }

    /// The elements of the output, of those of the inputs.
    pub fn compute(&self, values: &[&[f64]]) -> Vec<f64> {
        let to = self.output.dims();
        // Spread over the output.
        let input = |index: usize| spread(values[index], self.inputs[index].dims(), to);
        match &self.operation {
            Operation::Convolution(direction, geometry) => {
                let is_double =
                    self.inputs.iter().chain([&self.output]).any(|tensor| tensor.layout.kind == Type::F64);
                let kind = if is_double { Type::F64 } else { Type::F32 };
                geometry.compute(*direction, kind, values[0], values[1])
            }
            Operation::Pointwise(pointwise, factors) => {
                let mut first = input(0);
                first.iter_mut().for_each(|value| *value *= factors[0]);
                let mut join = |second: Vec<f64>, of: &dyn Fn(f64, f64) -> f64| {
                    first.iter_mut().zip(second).for_each(|(value, other)| *value = of(*value, other));
                };
                match pointwise {
                    Pointwise::Unary(of) => first.iter_mut().for_each(|value| *value = of(*value)),
                    Pointwise::Forward(activation) => {
                        first.iter_mut().for_each(|value| *value = activation.at(*value));
                    }
                    Pointwise::Binary(of) => join(input(1), &|a, b| of(a, factors[1] * b)),
                    Pointwise::Backward(activation) => join(input(1), &|x, dy| activation.slope(x) * dy),
                    Pointwise::Select => {
                        let others: Vec<f64> = input(1).into_iter().map(|value| factors[1] * value).collect();
                        for ((value, other), choice) in first.iter_mut().zip(others).zip(input(2)) {
                            if choice == 0.0 {
                                *value = other;
                            }
                        }
                    }
                }
                first
            }
            Operation::MatMul([m, n, k]) => {
                // The matrices of each batch, which may be the same for several.
                let matrices = |index: usize, size: usize| {
                    let (from, outer) = (self.inputs[index].dims(), to.len() - 2);
                    let batches = places(&from[..outer], &to[..outer]);
                    batches.map(move |batch| &values[index][batch * size..][..size])
                };
                let pairs = matrices(0, m * k).zip(matrices(1, k * n));
                pairs.flat_map(|(a, b)| multiply(a, b, [*m, *n, *k])).collect()
            }
            Operation::Reduction(reduction) => reduction.reduce(values[0], self.inputs[0].dims(), to),
        }
    }
}

/// The product of two matrices, stored by rows.
fn multiply(a: &[f64], b: &[f64], [m, n, k]: [usize; 3]) -> Vec<f64> {
    let mut c = vec![0.0; m * n];
    for (row, sums) in a.chunks_exact(k).zip(c.chunks_exact_mut(n)) {
        for (factor, line) in row.iter().zip(b.chunks_exact(n)) {
            sums.iter_mut().zip(line).for_each(|(sum, value)| *sum += factor * value);
        }
    }
    c
}
