// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The losses of a batch: tensors of `steps, batch, alphabet`, and labels one after the other.

use std::ffi::c_int;

use super::super::layout::Layout;
use super::super::{BAD_PARAM, NOT_SUPPORTED, Operand, Status, taken};
use super::{loss, normalised};
use crate::memory::pointer;
use crate::numbers::Type;
use crate::stream::{Done, Fault};

/// The maximum length of a label (cuDNN's manual).
pub const MAX_LABEL: c_int = 256;

/// The form of a loss.
#[derive(Clone, Copy, Debug)]
pub struct Form {
    /// True if the values are logits: probabilities follow from them by a softmax.
    pub normalises: bool,
    /// True if the gradient of a sample whose label is too long is not written.
    pub keeps: bool,
}

/// The sizes of a loss.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    steps: usize,
    batch: usize,
    alphabet: usize,
}

impl Sizes {
    /// Returns the sizes, where all tensors and numbers fit together.
    pub fn new(probs: &Layout, gradients: Option<&Layout>, algorithm: c_int) -> Result<Self, Status> {
        let [steps, batch, alphabet] = probs.dims[..] else { return Err(BAD_PARAM) };
        if gradients.is_some_and(|gradients| gradients.dims != probs.dims) {
            return Err(BAD_PARAM);
        }
        if probs.kind != Type::F32 || !(0..=1).contains(&algorithm) {
            return Err(NOT_SUPPORTED);
        }
        Ok(Self { steps, batch, alphabet })
    }

    /// Returns the bytes of the workspace for labels of up to that many symbols: sums for each step and state.
    pub fn workspace(self, longest: usize) -> Result<usize, Status> {
        let states = (2 * longest + 1) * size_of::<f64>();
        self.steps.checked_mul(self.batch).and_then(|steps| steps.checked_mul(states)).ok_or(BAD_PARAM)
    }

    /// Returns whether these can be the steps of inputs.
    fn allow(self, steps: &[c_int]) -> bool {
        steps.iter().all(|count| usize::try_from(*count).is_ok_and(|count| count <= self.steps))
    }
}

/// Returns whether these can be the lengths of labels.
fn are_lengths(lengths: &[c_int]) -> bool {
    lengths.iter().all(|length| (0..=MAX_LABEL).contains(length))
}

/// The labels of a batch.
#[derive(Clone, Debug)]
pub struct Labels {
    symbols: Vec<c_int>,
    lengths: Vec<c_int>,
    /// The steps of each input.
    steps: Vec<c_int>,
}

impl Labels {
    /// Returns labels of the caller. The steps are checked by [`Self::check_steps`], because cuDNN computes the bytes of a
    /// workspace for any.
    ///
    /// # Safety
    ///
    /// Each address is null, or that of as many numbers as cuDNN's manual says.
    pub unsafe fn of_host(
        sizes: Sizes,
        symbols: *const c_int,
        lengths: *const c_int,
        steps: *const c_int,
    ) -> Result<Self, Status> {
        // SAFETY: a number for each member of the batch by this function's contract.
        let (lengths, steps) = unsafe { (taken(lengths, sizes.batch)?, taken(steps, sizes.batch)?) };
        if !are_lengths(&lengths) {
            return Err(BAD_PARAM);
        }
        let count = lengths.iter().map(|length| *length as usize).sum();
        // SAFETY: the symbols of all labels by this function's contract; no length is negative.
        let symbols = unsafe { taken(symbols, count)? };
        let labels = Self { symbols, lengths, steps };
        if labels.are_of(sizes.alphabet) { Ok(labels) } else { Err(BAD_PARAM) }
    }

    /// Refuses more steps than there are.
    pub fn check_steps(&self, sizes: Sizes) -> Result<(), Status> {
        if sizes.allow(&self.steps) { Ok(()) } else { Err(BAD_PARAM) }
    }

    /// Reads labels from device memory.
    pub fn of_device(
        sizes: Sizes,
        longest: c_int,
        [symbols, lengths, steps]: [usize; 3],
    ) -> Result<Self, Fault> {
        let read = |place: usize, count: usize| -> Result<Vec<c_int>, Fault> {
            if count == 0 {
                return Ok(Vec::new());
            }
            let layout = Layout::new(Type::I32, &[count as i64], &[1]).map_err(|_| Fault)?;
            Ok(layout.load(place)?.into_iter().map(|number| number as c_int).collect())
        };
        let (lengths, steps) = (read(lengths, sizes.batch)?, read(steps, sizes.batch)?);
        if !are_lengths(&lengths) || !sizes.allow(&steps) || lengths.iter().any(|length| *length > longest) {
            return Err(Fault);
        }
        let symbols = read(symbols, lengths.iter().map(|length| *length as usize).sum())?;
        let labels = Self { symbols, lengths, steps };
        if labels.are_of(sizes.alphabet) { Ok(labels) } else { Err(Fault) }
    }

    /// Returns whether all symbols are of the alphabet, and none is the blank.
    fn are_of(&self, alphabet: usize) -> bool {
        self.symbols.iter().all(|symbol| *symbol > 0 && (*symbol as usize) < alphabet)
    }

    pub fn longest(&self) -> usize {
        self.lengths.iter().map(|length| *length as usize).max().unwrap_or(0)
    }
}

/// The tensors of a loss.
#[derive(Clone, Debug)]
pub struct Tensors {
    probs: Operand,
    costs: Operand,
    gradients: Option<Operand>,
    /// Address and bytes of the workspace.
    workspace: (usize, usize),
}

impl Tensors {
    pub fn new(
        sizes: Sizes,
        probs: Operand,
        costs: usize,
        gradients: Option<Operand>,
    ) -> Result<Self, Status> {
        let costs = Operand::new(Layout::new(Type::F32, &[sizes.batch as i64], &[1])?, costs)?;
        Ok(Self { probs, costs, gradients, workspace: (0, 0) })
    }

    /// Sets the workspace.
    pub fn with_workspace(mut self, base: usize, bytes: usize, needed: usize) -> Result<Self, Status> {
        if bytes < needed || (needed > 0 && base == 0) {
            return Err(BAD_PARAM);
        }
        self.workspace = (base, needed);
        Ok(self)
    }

    /// Computes the losses of a batch.
    pub fn compute(&self, sizes: Sizes, form: Form, labels: &Labels) -> Done {
        let Sizes { batch, alphabet, .. } = sizes;
        // The sums of a member of the batch take no more memory than the program has for them.
        pointer::<u8>(self.workspace.0, self.workspace.1)?;
        let values = self.probs.load()?;
        let mut gradients = self.gradients.as_ref().map(Operand::load).transpose()?;
        let (mut costs, mut symbols) = (Vec::new(), labels.symbols.iter().map(|symbol| *symbol as usize));
        for (member, (length, steps)) in labels.lengths.iter().zip(&labels.steps).enumerate() {
            let label: Vec<usize> = symbols.by_ref().take(*length as usize).collect();
            let line = |step: usize| (step * batch + member) * alphabet;
            let lines = (0..*steps as usize).flat_map(|step| &values[line(step)..line(step) + alphabet]);
            let values: Vec<f64> = match form.normalises {
                false => lines.map(|value| value.ln()).collect(),
                true => normalised(&lines.copied().collect::<Vec<_>>(), alphabet),
            };
            let (cost, gradient) = loss(&values, alphabet, &label);
            costs.push(cost);
            let Some(gradients) = gradients.as_mut() else { continue };
            if gradient.is_none() && form.keeps {
                continue;
            }
            let gradient = gradient.unwrap_or_default();
            for step in 0..sizes.steps {
                let found = gradient.get(step * alphabet..(step + 1) * alphabet);
                let place = &mut gradients[line(step)..line(step) + alphabet];
                match found {
                    Some(found) => place.copy_from_slice(found),
                    None => place.fill(0.0),
                }
            }
        }
        if let (Some(place), Some(gradients)) = (&self.gradients, gradients) {
            place.layout.store(place.base, &gradients)?;
        }
        self.costs.layout.store(self.costs.base, &costs)
    }
}
