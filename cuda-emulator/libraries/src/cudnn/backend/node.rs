// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Operations of graphs.

use std::ffi::c_int;

use super::super::convolution::{Direction, Geometry, Parameters};
use super::super::layout::{places, spread, spreads};
use super::super::normalisation::Shape;
use super::super::pooling::{Mode, Pooling};
use super::super::reduction::Reduction;
use super::super::{BAD_PARAM, Blend, NOT_SUPPORTED, Status};
use super::arrangement::{Concatenation, View};
use super::attention::{Attention, Inputs};
use super::descriptor::{Attributes, Kind, Made};
use super::groups::split;
use super::norm;
use super::pointwise::Pointwise;
use super::product::Product;
use super::random::Distribution;
use super::resample;
use super::tensor::Tensor;
use crate::numbers::Type;

/// An operation with its tensors, whose sizes fit.
#[derive(Debug)]
pub struct Node {
    operation: Operation,
    /// In the order in which the operation takes them. Some may be absent.
    pub inputs: Vec<Option<Tensor>>,
    /// In the order in which the operation computes them. Some may be absent.
    pub outputs: Vec<Option<Tensor>>,
    /// The factors for the results and for the old outputs.
    pub blend: Blend,
}

#[derive(Debug)]
enum Operation {
    Convolution(Direction, Geometry),
    /// And the factors of the first and second element.
    Pointwise(Pointwise, [f64; 2]),
    MatMul(Product),
    /// And the sizes, which split grouped dimensions.
    Reduction(Reduction, [Vec<usize>; 2]),
    /// The sizes fit.
    Pooling(Pooling),
    PoolingGradient(Pooling),
    View(View),
    Concatenation(Concatenation),
    /// And the seed, unless it is a tensor.
    Random(Distribution, Option<i64>),
    NormForward(Shape),
    NormBackward(Shape),
    AttentionForward(Attention),
    AttentionBackward(Attention),
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

/// The pooling of a resample descriptor.
pub fn pooling(attributes: &Attributes) -> Result<Pooling, Status> {
    let [after, before, strides, window] = [1703, 1704, 1705, 1706].map(|name| attributes.wholes(name));
    let numbers = [attributes.integer(1700)?, attributes.integer_or(1708, 0)?, attributes.integer(1702)?];
    let propagates_nan = attributes.integer_or(1707, 1)? != 0;
    resample::pooling(numbers, propagates_nan, [after?, before?, strides?, window?])
}

/// The tensors are present where there are any, and have these sizes.
fn have(tensors: &[&Option<Tensor>], dims: &[usize]) -> bool {
    tensors.iter().all(|tensor| tensor.as_ref().is_none_or(|tensor| tensor.dims() == dims))
}

/// An attention, its queries, keys, values and output; and its statistics, scale and lengths, which may be absent.
type AttentionParts = (Attention, [Tensor; 4], [Option<Tensor>; 4]);

impl Node {
    /// An operation with one result.
    fn single(operation: Operation, inputs: Vec<Tensor>, output: Tensor) -> Self {
        Self::several(operation, inputs.into_iter().map(Some).collect(), vec![Some(output)])
    }

    fn several(operation: Operation, inputs: Vec<Option<Tensor>>, outputs: Vec<Option<Tensor>>) -> Self {
        Self { operation, inputs, outputs, blend: Blend::REPLACE }
    }

    /// The present inputs.
    pub fn inputs(&self) -> impl Iterator<Item = &Tensor> {
        self.inputs.iter().flatten()
    }

    /// The present outputs.
    pub fn outputs(&self) -> impl Iterator<Item = &Tensor> {
        self.outputs.iter().flatten()
    }

    /// All tensors.
    pub fn tensors(&self) -> impl Iterator<Item = &Tensor> {
        self.inputs().chain(self.outputs())
    }

    /// The operation of a descriptor.
    pub fn new(kind: Kind, attributes: &Attributes) -> Result<Self, Status> {
        match kind {
            Kind::OperationForward => Self::convolution(Direction::Forward, attributes),
            Kind::OperationData => Self::convolution(Direction::Data, attributes),
            Kind::OperationFilter => Self::convolution(Direction::Filter, attributes),
            Kind::OperationPointwise => Self::pointwise(attributes),
            Kind::OperationMatMul => Self::product(attributes),
            Kind::OperationReduction => Self::reduction(attributes),
            Kind::OperationResampleForward => Self::pooling(attributes),
            Kind::OperationResampleBackward => Self::pooling_gradient(attributes),
            Kind::OperationReshape => Self::view(attributes),
            Kind::OperationConcatenation => Self::concatenation(attributes),
            Kind::OperationRng => Self::random(attributes),
            Kind::OperationNormForward => Self::norm_forward(attributes),
            Kind::OperationNormBackward => Self::norm_backward(attributes),
            Kind::OperationAttentionForward => Self::attention_forward(attributes),
            Kind::OperationAttentionBackward => Self::attention_backward(attributes),
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
        if ![&x, &w, &y].into_iter().all(|tensor| is_real(tensor) && tensor.offsets.is_none()) {
            return Err(NOT_SUPPORTED);
        }
        let blend =
            Blend { alpha: attributes.real_or(names[0], 1.0)?, beta: attributes.real_or(names[1], 0.0)? };
        let (inputs, output) = match direction {
            Direction::Forward => (vec![x, w], y),
            Direction::Data => (vec![w, y], x),
            Direction::Filter => (vec![x, y], w),
        };
        Ok(Self { blend, ..Self::single(Operation::Convolution(direction, geometry), inputs, output) })
    }

    fn pointwise(attributes: &Attributes) -> Result<Self, Status> {
        let mut pointwise = Pointwise::new(attributes.descriptor(750)?.attributes())?;
        let mut factors = [attributes.real_or(754, 1.0)?, attributes.real_or(755, 1.0)?];
        let (mut inputs, output) = match pointwise {
            Pointwise::Backward(_) => {
                // Gradients by the output instead of the input.
                let x = attributes.optional_tensor(751)?.ok_or(NOT_SUPPORTED)?;
                (vec![x, attributes.tensor(757)?], attributes.tensor(756)?)
            }
            Pointwise::Unary(_) | Pointwise::Forward(_) | Pointwise::Index(_) => {
                (vec![attributes.tensor(751)?], attributes.tensor(753)?)
            }
            Pointwise::Binary(_) | Pointwise::Sum => {
                (vec![attributes.tensor(751)?, attributes.tensor(752)?], attributes.tensor(753)?)
            }
            Pointwise::Select => {
                let inputs = [751, 752, 758].map(|name| attributes.tensor(name));
                (inputs.into_iter().collect::<Result<_, _>>()?, attributes.tensor(753)?)
            }
        };
        let is_outside = matches!(pointwise, Pointwise::Index(axis) if axis >= output.dims().len());
        if is_outside || !inputs.iter().all(|input: &Tensor| spreads(input.dims(), output.dims())) {
            return Err(BAD_PARAM);
        }
        if matches!(pointwise, Pointwise::Sum) && factors.contains(&0.0) {
            let read = usize::from(factors[0] == 0.0);
            pointwise = Pointwise::Unary(|a| a);
            inputs = vec![inputs.swap_remove(read)];
            factors = [factors[read], 1.0];
        }
        Ok(Self::single(Operation::Pointwise(pointwise, factors), inputs, output))
    }

    fn product(attributes: &Attributes) -> Result<Self, Status> {
        let [a, b, c] = [1520, 1521, 1522].map(|name| attributes.tensor(name));
        let (a, b, c) = (a?, b?, c?);
        let padding = attributes.descriptor(1523)?.attributes().real_or(1503, 0.0)?;
        let mut product = Product::new(a.dims(), b.dims(), c.dims()).ok_or(BAD_PARAM)?;
        product.padding = padding;
        // Numbers of rows, of columns and of products that are added up, per batch.
        let overrides = [1525, 1526, 1527].map(|name| attributes.optional_tensor(name));
        let each = per_matrix(c.dims());
        let mut inputs = vec![Some(a), Some(b)];
        for sizes in overrides {
            let sizes = sizes?;
            if sizes.as_ref().is_some_and(|sizes: &Tensor| !spreads(sizes.dims(), &each)) {
                return Err(BAD_PARAM);
            }
            inputs.push(sizes);
        }
        let operation = Operation::MatMul(product);
        Ok(Self::several(operation, inputs, vec![Some(c)]))
    }

    fn reduction(attributes: &Attributes) -> Result<Self, Status> {
        let (x, y) = (attributes.tensor(1610)?, attributes.tensor(1611)?);
        let number = attributes.descriptor(1612)?.attributes().integer(1600)?;
        let reduction = Reduction::new(i32::try_from(number).map_err(|_| BAD_PARAM)?)?;
        let sizes = split(y.dims(), x.dims()).ok_or(BAD_PARAM)?;
        Ok(Self::single(Operation::Reduction(reduction, sizes), vec![x], y))
    }

    /// The pooling of the descriptor and the factors of these names.
    fn described_pooling(attributes: &Attributes, names: [c_int; 3]) -> Result<(Pooling, Blend), Status> {
        let Made::Pooling(pooling) = &attributes.descriptor(names[0])?.made else { return Err(BAD_PARAM) };
        let (alpha, beta) = (attributes.real_or(names[1], 1.0)?, attributes.real_or(names[2], 0.0)?);
        Ok((pooling.clone(), Blend { alpha, beta }))
    }

    fn pooling(attributes: &Attributes) -> Result<Self, Status> {
        let (x, y) = (attributes.tensor(1710)?, attributes.tensor(1711)?);
        let (pooling, blend) = Self::described_pooling(attributes, [1716, 1713, 1714])?;
        // The places of the maxima in a layout of cuDNN's own.
        if attributes.has(1712) {
            return Err(NOT_SUPPORTED);
        }
        if pooling.output(x.dims())? != y.dims() {
            return Err(BAD_PARAM);
        }
        Ok(Self { blend, ..Self::single(Operation::Pooling(pooling), vec![x], y) })
    }

    /// The maxima are those of the input, if it is present.
    fn pooling_gradient(attributes: &Attributes) -> Result<Self, Status> {
        let (dx, dy) = (attributes.tensor(1720)?, attributes.tensor(1721)?);
        let (pooling, blend) = Self::described_pooling(attributes, [1725, 1723, 1724])?;
        let x = attributes.optional_tensor(1726)?;
        if pooling.mode == Mode::Max && x.is_none() {
            return Err(NOT_SUPPORTED);
        }
        if pooling.output(dx.dims())? != dy.dims() || !have(&[&x], dx.dims()) {
            return Err(BAD_PARAM);
        }
        let operation = Operation::PoolingGradient(pooling);
        Ok(Self { blend, ..Self::several(operation, vec![Some(dy), x], vec![Some(dx)]) })
    }

    fn view(attributes: &Attributes) -> Result<Self, Status> {
        let (x, y) = (attributes.tensor(2200)?, attributes.tensor(2201)?);
        if x.layout.count() != y.layout.count() {
            return Err(BAD_PARAM);
        }
        let view = View::new(&x.layout, &y.layout).ok_or(NOT_SUPPORTED)?;
        Ok(Self::single(Operation::View(view), vec![x], y))
    }

    fn concatenation(attributes: &Attributes) -> Result<Self, Status> {
        let (inputs, output) = (attributes.tensors(1801)?, attributes.tensor(1803)?);
        // An input that lies in the output already.
        if attributes.integer_or(1802, -1)? >= 0 {
            return Err(NOT_SUPPORTED);
        }
        let axis = usize::try_from(attributes.integer(1800)?).map_err(|_| BAD_PARAM)?;
        let sizes: Vec<&[usize]> = inputs.iter().map(Tensor::dims).collect();
        let concatenation = Concatenation::new(axis, &sizes, output.dims()).ok_or(BAD_PARAM)?;
        Ok(Self::single(Operation::Concatenation(concatenation), inputs, output))
    }

    fn random(attributes: &Attributes) -> Result<Self, Status> {
        let what = attributes.descriptor(2312)?.attributes();
        let distribution = match what.integer_or(2300, 0)? {
            0 => Distribution::Bernoulli(what.real_or(2305, 0.5)?),
            1 => Distribution::Uniform([what.real_or(2304, 0.0)?, what.real_or(2303, 1.0)?]),
            2 => Distribution::Normal([what.real_or(2301, 0.0)?, what.real_or(2302, 1.0)?]),
            _ => return Err(BAD_PARAM),
        };
        // The seed is a number or a tensor.
        let seed = attributes.integer_or(2311, 0).ok();
        let tensor = if seed.is_none() { attributes.optional_tensor(2311)? } else { None };
        let inputs = vec![tensor, attributes.optional_tensor(2313)?];
        if inputs.iter().flatten().any(|input| input.layout.count() != 1) {
            return Err(BAD_PARAM);
        }
        let output = vec![Some(attributes.tensor(2310)?)];
        Ok(Self::several(Operation::Random(distribution, seed), inputs, output))
    }

    fn norm_forward(attributes: &Attributes) -> Result<Self, Status> {
        let (x, y) = (attributes.tensor(2002)?, attributes.tensor(2013)?);
        let (scale, mode) = (attributes.tensor(2005)?, attributes.integer(2000)?);
        let shape = norm::shape(mode, x.dims(), scale.dims())?;
        let optional = |name| attributes.optional_tensor(name);
        let (mean, inverse, bias, epsilon) =
            (optional(2003)?, optional(2004)?, optional(2006)?, optional(2007)?);
        let (factor, old_mean, old_variance) = (optional(2008)?, optional(2009)?, optional(2010)?);
        let (new_mean, new_variance) = (optional(2011)?, optional(2012)?);
        let is_training = match attributes.integer(2001)? {
            0 => false,
            1 => true,
            _ => return Err(BAD_PARAM),
        };
        // Statistics of several devices.
        if attributes.has(2014) {
            return Err(NOT_SUPPORTED);
        }
        let running = [&old_mean, &old_variance, &new_mean, &new_variance];
        let fits = x.dims() == y.dims()
            && have(&[&bias], &shape.parameters)
            && have(&[&mean, &inverse], &shape.groups)
            && have(&running, &shape.groups)
            && have(&[&epsilon, &factor], &vec![1; x.dims().len()]);
        let is_averaged = running.iter().all(|tensor| tensor.is_some()) && factor.is_some();
        let is_plain = running.iter().all(|tensor| tensor.is_none());
        // Batch normalisation is by known statistics in inference, and all else by those of the input.
        let is_known = mode == 2 && !is_training;
        let is_complete = if is_known { mean.is_some() && inverse.is_some() } else { epsilon.is_some() };
        if !fits || !is_complete || !(is_plain || is_averaged && mode == 2 && is_training) {
            return Err(BAD_PARAM);
        }
        let (known, saved) =
            if is_known { ([mean, inverse], [None, None]) } else { ([None, None], [mean, inverse]) };
        let ([known_mean, known_inverse], [mean, inverse]) = (known, saved);
        let inputs = vec![
            Some(x),
            Some(scale),
            bias,
            epsilon,
            known_mean,
            known_inverse,
            factor,
            old_mean,
            old_variance,
        ];
        let outputs = vec![Some(y), mean, inverse, new_mean, new_variance];
        Ok(Self::several(Operation::NormForward(shape), inputs, outputs))
    }

    fn norm_backward(attributes: &Attributes) -> Result<Self, Status> {
        let [x, dy, scale, dx] = [2101, 2104, 2105, 2109].map(|name| attributes.tensor(name));
        let (x, dy, scale, dx) = (x?, dy?, scale?, dx?);
        let shape = norm::shape(attributes.integer(2100)?, x.dims(), scale.dims())?;
        let optional = |name| attributes.optional_tensor(name);
        let (mean, inverse, epsilon) = (optional(2102)?, optional(2103)?, optional(2106)?);
        let (dscale, dbias) = (optional(2107)?, optional(2108)?);
        if attributes.has(2110) {
            return Err(NOT_SUPPORTED);
        }
        let fits = x.dims() == dy.dims()
            && x.dims() == dx.dims()
            && have(&[&mean, &inverse], &shape.groups)
            && have(&[&dscale, &dbias], &shape.parameters)
            && have(&[&epsilon], &vec![1; x.dims().len()]);
        // Statistics were saved, or are computed again.
        let is_complete =
            if inverse.is_some() { mean.is_some() || !shape.is_centred } else { epsilon.is_some() };
        if !fits || !is_complete {
            return Err(BAD_PARAM);
        }
        let inputs = vec![Some(x), Some(dy), Some(scale), mean, inverse, epsilon];
        Ok(Self::several(Operation::NormBackward(shape), inputs, vec![Some(dx), dscale, dbias]))
    }

    /// The parts of an attention by their names: queries, keys, values, output and statistics; the scale and both lengths.
    fn attention(
        attributes: &Attributes,
        names: [c_int; 5],
        optional: [c_int; 3],
    ) -> Result<AttentionParts, Status> {
        let [q, k, v, o] = [names[0], names[1], names[2], names[3]].map(|name| attributes.tensor(name));
        let (q, k, v, o) = (q?, k?, v?, o?);
        let attention = Attention::new(q.dims(), k.dims(), v.dims(), o.dims()).ok_or(BAD_PARAM)?;
        let statistics = attributes.optional_tensor(names[4])?;
        let [scale, queries, keys] = optional.map(|name| attributes.optional_tensor(name));
        let (scale, queries, keys) = (scale?, queries?, keys?);
        let [per_query, per_batch] = attention.numbers();
        let fits = have(&[&statistics], &per_query) && have(&[&queries, &keys], &per_batch);
        if !fits || scale.as_ref().is_some_and(|scale| scale.layout.count() != 1) {
            return Err(BAD_PARAM);
        }
        Ok((attention, [q, k, v, o], [statistics, scale, queries, keys]))
    }

    fn attention_forward(attributes: &Attributes) -> Result<Self, Status> {
        // Masks of blocks, and keys and values in pages.
        if (2806..=2808).any(|name| attributes.has(name)) {
            return Err(NOT_SUPPORTED);
        }
        let (attention, [q, k, v, o], [statistics, scale, queries, keys]) =
            Self::attention(attributes, [2800, 2801, 2802, 2803, 2804], [2805, 2809, 2810])?;
        let inputs = vec![Some(q), Some(k), Some(v), scale, queries, keys];
        Ok(Self::several(Operation::AttentionForward(attention), inputs, vec![Some(o), statistics]))
    }

    fn attention_backward(attributes: &Attributes) -> Result<Self, Status> {
        let (attention, [q, k, v, o], [statistics, scale, queries, keys]) =
            Self::attention(attributes, [2851, 2852, 2853, 2854, 2855], [2856, 2857, 2858])?;
        let [dq, dk, dv, gradient] = [2859, 2860, 2861, 2862].map(|name| attributes.tensor(name));
        let (dq, dk, dv, gradient) = (dq?, dk?, dv?, gradient?);
        let pairs = [(&dq, &q), (&dk, &k), (&dv, &v), (&gradient, &o)];
        if statistics.is_none() || pairs.iter().any(|(gradient, of)| gradient.dims() != of.dims()) {
            return Err(BAD_PARAM);
        }
        let inputs =
            vec![Some(q), Some(k), Some(v), scale, queries, keys, Some(o), statistics, Some(gradient)];
        let outputs = vec![Some(dq), Some(dk), Some(dv)];
        Ok(Self::several(Operation::AttentionBackward(attention), inputs, outputs))
    }

    /// The elements of all results, of those of the inputs. Absent inputs have none.
    pub fn compute(&self, values: &[&[f64]]) -> Vec<Vec<f64>> {
        let value = |index: usize| values.get(index).copied().unwrap_or_default();
        match &self.operation {
            Operation::Convolution(direction, geometry) => {
                let is_double = self.tensors().any(|tensor| tensor.layout.kind == Type::F64);
                let kind = if is_double { Type::F64 } else { Type::F32 };
                vec![geometry.compute(*direction, kind, value(0), value(1))]
            }
            Operation::Pointwise(pointwise, factors) => vec![self.elements(*pointwise, *factors, values)],
            Operation::MatMul(product) => {
                let sizes = [2, 3, 4].map(|index| self.per_batch(index, value(index)));
                vec![product.multiply(value(0), value(1), sizes)]
            }
            Operation::Reduction(reduction, [to, from]) => vec![reduction.reduce(value(0), from, to)],
            // The sizes fit, so there is a result.
            Operation::Pooling(pooling) => {
                let dims = self.inputs().next().map_or(&[][..], Tensor::dims);
                vec![pooling.forward(value(0), dims).unwrap_or_default()]
            }
            Operation::PoolingGradient(pooling) => {
                let dims = self.outputs().next().map_or(&[][..], Tensor::dims);
                vec![pooling.backward(value(1), value(0), dims).unwrap_or_default()]
            }
            Operation::View(view) => vec![view.of(value(0))],
            Operation::Concatenation(concatenation) => vec![concatenation.join(values)],
            Operation::Random(distribution, seed) => {
                let number = |index: usize| value(index).first().copied().unwrap_or(0.0);
                let seed = seed.map_or_else(|| number(0), |seed| seed as f64);
                let count = self.outputs().map(|output| output.layout.count()).sum();
                vec![distribution.numbers(count, seed, number(1))]
            }
            Operation::NormForward(shape) => norm::outputs(shape, std::array::from_fn(value)),
            Operation::NormBackward(shape) => norm::gradients(shape, std::array::from_fn(value)),
            Operation::AttentionForward(attention) => attention.forward(attention_inputs(value)).into(),
            Operation::AttentionBackward(attention) => {
                attention.backward(attention_inputs(value), [value(6), value(7), value(8)]).into()
            }
        }
    }

    /// Numbers of each matrix of the first output, if there are any.
    fn per_batch(&self, index: usize, values: &[f64]) -> Option<Vec<f64>> {
        let (sizes, output) = (self.inputs.get(index)?.as_ref()?, self.outputs().next()?);
        Some(spread(values, sizes.dims(), &per_matrix(output.dims())))
    }

    /// The maximum number of elements that [`Self::compute`] allocates besides inputs and outputs, where no memory
    /// bounds them.
    pub fn temporaries(&self) -> usize {
        if !self.tensors().any(Tensor::is_unbounded) {
            return 0;
        }
        let counts = || self.tensors().map(|tensor| tensor.layout.count());
        let largest = counts().max().unwrap_or(0);
        match &self.operation {
            // All tensors in the type of the computation.
            Operation::Convolution(..) => counts().fold(0, usize::saturating_add),
            // Statistics of each element; backward also normalised elements.
            Operation::NormForward(_) => largest,
            Operation::NormBackward(_) => largest.saturating_mul(3),
            _ => 0,
        }
    }

    fn elements(&self, pointwise: Pointwise, factors: [f64; 2], values: &[&[f64]]) -> Vec<f64> {
        let to = self.outputs().next().map_or(&[][..], Tensor::dims);
        let from = |index: usize| self.inputs[index].as_ref().map_or(to, Tensor::dims);
        let mut first = spread(values[0], from(0), to);
        first.iter_mut().for_each(|value| *value = scaled(factors[0], *value));
        // Other inputs are spread over the output without a copy: a virtual one is bounded by nothing else.
        let mut join = |of: &dyn Fn(f64, f64) -> f64| {
            if from(1) == to {
                first.iter_mut().zip(values[1]).for_each(|(value, other)| *value = of(*value, *other));
                return;
            }
            let others = places(from(1), to).map(|place| values[1][place]);
            first.iter_mut().zip(others).for_each(|(value, other)| *value = of(*value, other));
        };
        match pointwise {
            Pointwise::Unary(of) => first.iter_mut().for_each(|value| *value = of(*value)),
            Pointwise::Forward(activation) => {
                first.iter_mut().for_each(|value| *value = activation.at(*value));
            }
            Pointwise::Binary(of) => join(&|a, b| of(a, scaled(factors[1], b))),
            Pointwise::Sum => join(&|a, b| a + scaled(factors[1], b)),
            Pointwise::Backward(activation) => join(&|x, dy| activation.slope(x) * dy),
            Pointwise::Select => {
                let others = places(from(1), to).zip(places(from(2), to));
                for (value, (other, choice)) in first.iter_mut().zip(others) {
                    if values[2][choice] == 0.0 {
                        *value = scaled(factors[1], values[1][other]);
                    }
                }
            }
            Pointwise::Index(axis) => {
                let inner: usize = to[axis + 1..].iter().product();
                let index = |at: usize| (at / inner % to[axis]) as f64;
                first.iter_mut().enumerate().for_each(|(at, value)| *value = index(at));
            }
        }
        first
    }
}

/// The product. It is 0 if the factor is 0: a program need not have written that tensor, as XLA does not.
fn scaled(factor: f64, value: f64) -> f64 {
    if factor == 0.0 { 0.0 } else { factor * value }
}

/// The sizes of a tensor of one number for each matrix of a tensor of these sizes.
fn per_matrix(dims: &[usize]) -> Vec<usize> {
    let mut each = dims.to_vec();
    each.iter_mut().rev().take(2).for_each(|dim| *dim = 1);
    each
}

fn attention_inputs<'a>(value: impl Fn(usize) -> &'a [f64]) -> Inputs<'a> {
    Inputs { q: value(0), k: value(1), v: value(2), scale: value(3), lengths: [value(4), value(5)] }
}
