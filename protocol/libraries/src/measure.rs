// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR BSD-3-Clause

//! Numbers that follow from other arguments of a call: lengths that a descriptor contains, and sums of lengths. Both
//! sides compute them, because the worker does not trust the guest's.

use crate::expression::Expression;
use crate::{Asked, Call, Element, Host, Kind, Number};

/// The number of elements that a function is asked for (`CUDNN_DIM_MAX`).
const ELEMENTS: usize = 8;

impl Asked {
    /// Returns whether the row `call` describes a function that can be asked for the number: its first parameter is a
    /// handle of this kind, numbers by value are lengths of its arrays, and it writes numbers, arrays of as many, or what
    /// may be null.
    pub fn is_answered_by(&self, call: &Call, kind: usize) -> bool {
        let fits = |index: usize, known: &Kind| match known {
            Kind::Handle { kind: of, .. } => index == 0 && *of == kind,
            Kind::Value(number) => index > 0 && !number.is_float(),
            Kind::Host(Host { element: Element::Number(number), count, .. }) => {
                matches!(count, None | Some(Expression::Parameter(_))) && number.bytes() <= size_of::<u64>()
            }
            Kind::Host(host) => host.nullable && index != self.result,
            _ => false,
        };
        let all = call.parameters.iter().enumerate().all(|(index, known)| fits(index, &known.kind));
        let number = self.number(call);
        all && number.is_some_and(|(number, is_array)| {
            !number.is_float() && self.element < if is_array { ELEMENTS } else { 1 }
        })
    }

    /// Asks for the number. `ask` calls the function, whose row is `call`, with these arguments.
    ///
    /// Errors: those of `ask`. `None`: the row does not describe such a function.
    pub fn ask<E>(
        &self,
        call: &Call,
        handle: u64,
        ask: impl FnOnce(&[u64]) -> Result<(), E>,
    ) -> Result<Option<i64>, E> {
        let mut memory = vec![[0_u64; ELEMENTS]; call.parameters.len()];
        let places = call.parameters.iter().zip(&mut memory).enumerate();
        let arguments: Vec<u64> = places
            .map(|(index, (parameter, place))| match &parameter.kind {
                Kind::Handle { .. } => handle,
                Kind::Host(host) if host.nullable && index != self.result => 0,
                Kind::Host(_) => place.as_mut_ptr() as u64,
                _ => ELEMENTS as u64,
            })
            .collect();
        ask(&arguments)?;
        let Some((number, _)) = self.number(call) else { return Ok(None) };
        let at = self.element * number.bytes();
        let word = memory.get(self.result).and_then(|words| words.get(at / size_of::<u64>()));
        let value = word.and_then(|word| number.integer(word >> (at % size_of::<u64>() * 8)));
        Ok(value.and_then(|value| i64::try_from(value).ok()))
    }

    /// Returns the type of the number, and whether the function writes an array of them.
    fn number(&self, call: &Call) -> Option<(Number, bool)> {
        match &call.parameters.get(self.result)?.kind {
            Kind::Host(Host { direction, element: Element::Number(number), count, .. })
                if direction.writes() =>
            {
                Some((*number, count.is_some()))
            }
            _ => None,
        }
    }
}
