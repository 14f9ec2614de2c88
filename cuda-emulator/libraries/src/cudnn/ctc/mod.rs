// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Connectionist temporal classification (Graves et al., 2006): the negative logarithm of the probability that a sequence of
//! distributions spells a label, over all alignments. All probabilities are logarithms.

pub mod batch;

/// The symbol between labels.
const BLANK: usize = 0;

/// Returns the logarithms of the distributions whose logarithms are `values`, up to an addend per step.
pub fn normalised(values: &[f64], alphabet: usize) -> Vec<f64> {
    let step = |step: &[f64]| -> Vec<f64> {
        let total = step.iter().copied().fold(f64::NEG_INFINITY, add);
        step.iter().map(|value| value - total).collect()
    };
    values.chunks_exact(alphabet).flat_map(step).collect()
}

/// Returns the loss for a label, and its gradient with respect to the values before they are normalised. The gradient is
/// `None` if there is no alignment: the label is too long. `values` has a distribution over the alphabet for each step;
/// the symbols of the label are below `alphabet`.
pub fn loss(values: &[f64], alphabet: usize, label: &[usize]) -> (f64, Option<Vec<f64>>) {
    // A blank before, between and after all symbols of the label.
    let between = label.iter().flat_map(|symbol| [BLANK, *symbol]);
    let path: Vec<usize> = between.chain([BLANK]).collect();
    let steps: Vec<&[f64]> = values.chunks_exact(alphabet).collect();
    let forward = sums(&steps, &path);
    let backward = {
        let (steps, path) = (steps.iter().rev().copied().collect::<Vec<_>>(), path.iter().rev().copied());
        sums(&steps, &path.collect::<Vec<_>>())
    };
    let (states, count) = (path.len(), steps.len());
    let whole = match count.checked_sub(1) {
        // Without steps only the empty label has an alignment.
        None if label.is_empty() => 0.0,
        None => f64::NEG_INFINITY,
        // An alignment ends with the last symbol or with the blank behind it.
        Some(last) => (states.saturating_sub(2)..states)
            .map(|state| forward[last * states + state])
            .fold(f64::NEG_INFINITY, add),
    };
    if whole == f64::NEG_INFINITY {
        return (f64::INFINITY, None);
    }
    let mut gradient: Vec<f64> = values.iter().map(|value| value.exp()).collect();
    for (step, values) in steps.iter().enumerate() {
        for (state, symbol) in path.iter().enumerate() {
            let back = backward[(count - 1 - step) * states + states - 1 - state];
            // Both sums contain the probability of this step. Where it is 0, no alignment is in this state.
            let through = forward[step * states + state] + back - values[*symbol];
            if through.is_finite() {
                gradient[step * alphabet + symbol] -= (through - whole).exp();
            }
        }
    }
    (-whole, Some(gradient))
}

/// Returns, for each step and state of the path, the logarithm of the sum of the probabilities of all alignments that are in
/// this state after this step.
fn sums(steps: &[&[f64]], path: &[usize]) -> Vec<f64> {
    let states = path.len();
    let mut sums = vec![f64::NEG_INFINITY; steps.len() * states];
    for (step, values) in steps.iter().enumerate() {
        for state in 0..states {
            let before = |back: usize| match (step.checked_sub(1), state.checked_sub(back)) {
                (Some(step), Some(state)) => sums[step * states + state],
                _ => f64::NEG_INFINITY,
            };
            // The blank between different symbols may be left out.
            let skips = state > 1 && path[state] != BLANK && path[state] != path[state - 2];
            let sum = match step {
                0 if state < 2 => 0.0,
                0 => f64::NEG_INFINITY,
                _ => add(add(before(0), before(1)), if skips { before(2) } else { f64::NEG_INFINITY }),
            };
            sums[step * states + state] = sum + values[path[state]];
        }
    }
    sums
}

/// Returns the logarithm of the sum of two numbers whose logarithms are given.
fn add(one: f64, other: f64) -> f64 {
    let (less, more) = if one < other { (one, other) } else { (other, one) };
    if more == f64::NEG_INFINITY { more } else { more + (less - more).exp().ln_1p() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Adds up all alignments.
    fn by_definition(values: &[f64], alphabet: usize, label: &[usize]) -> f64 {
        let steps = values.len() / alphabet;
        let mut sum = 0.0;
        for number in 0..alphabet.pow(steps as u32) {
            let symbols: Vec<usize> =
                (0..steps).map(|step| number / alphabet.pow(step as u32) % alphabet).collect();
            let mut spelled = symbols.clone();
            spelled.dedup();
            spelled.retain(|symbol| *symbol != BLANK);
            if spelled == label {
                let places = symbols.iter().enumerate();
                sum += places.map(|(step, symbol)| values[step * alphabet + symbol].exp()).product::<f64>();
            }
        }
        -sum.ln()
    }

    fn activations(count: usize) -> Vec<f64> {
        (0..count).map(|at| (at * 7 % 11) as f64 / 3.0 - 1.0).collect()
    }

    #[test]
    fn the_loss_is_that_of_all_alignments() {
        for (steps, label) in [(1, &[][..]), (1, &[2]), (4, &[1, 2]), (5, &[1, 1]), (5, &[2, 1, 2]), (4, &[])]
        {
            let values = normalised(&activations(steps * 3), 3);
            let (found, gradient) = loss(&values, 3, label);
            assert!((found - by_definition(&values, 3, label)).abs() < 1e-12, "{label:?}");
            let gradient = gradient.expect("there are alignments");
            assert!(gradient.chunks(3).all(|step| step.iter().sum::<f64>().abs() < 1e-12), "{label:?}");
        }
    }

    #[test]
    fn the_gradient_is_that_of_differences() {
        let (x, label) = (activations(15), [1, 2]);
        let (_, gradient) = loss(&normalised(&x, 3), 3, &label);
        let gradient = gradient.expect("there are alignments");
        for at in 0..15 {
            let shifted = |by: f64| {
                let mut x = x.clone();
                x[at] += by;
                loss(&normalised(&x, 3), 3, &label).0
            };
            let wanted = (shifted(1e-5) - shifted(-1e-5)) / 2e-5;
            assert!((gradient[at] - wanted).abs() < 1e-8, "{at}: {} {wanted}", gradient[at]);
        }
    }

    #[test]
    fn a_label_that_does_not_fit_has_no_alignment() {
        let values = normalised(&activations(9), 3);
        for label in [&[1, 2, 1, 2][..], &[1, 1, 1]] {
            assert_eq!(loss(&values, 3, label), (f64::INFINITY, None));
        }
        assert_eq!(loss(&[], 3, &[1]).0, f64::INFINITY);
        assert_eq!(loss(&[], 3, &[]), (0.0, Some(vec![])));
    }

    #[test]
    fn a_symbol_without_probability_is_in_no_alignment() {
        let certain = [0.0, f64::NEG_INFINITY, f64::NEG_INFINITY, 0.0];
        assert_eq!(loss(&certain, 2, &[1]), (0.0, Some(vec![0.0; 4])));
        assert_eq!(loss(&certain, 2, &[]), (f64::INFINITY, None));
    }
}
