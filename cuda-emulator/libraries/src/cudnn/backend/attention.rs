// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Scaled dot-product attention as one operation: softmax(scale Q Kᵀ) V. The matrix of scores is computed row by row
//! and never stored, so that the tensors bound the memory.

use super::product::program_length;

/// The sizes of an attention. Several heads of queries may share one of keys and one of values.
#[derive(Debug)]
pub struct Attention {
    batches: usize,
    heads: usize,
    /// Heads of keys and of values. Both divide `heads`.
    shared: [usize; 2],
    queries: usize,
    keys: usize,
    /// Elements of a query and of a key, and of a value.
    depths: [usize; 2],
}

/// Inputs of both directions: queries, keys, values, and what may be absent (empty): the scale, and the numbers of queries and
/// keys of each batch.
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'a> {
    pub q: &'a [f64],
    pub k: &'a [f64],
    pub v: &'a [f64],
    pub scale: &'a [f64],
    pub lengths: [&'a [f64]; 2],
}

/// A row of the matrix of scores.
struct Row<'a> {
    /// Its number among the rows of all heads.
    at: usize,
    query: &'a [f64],
    /// The first element of its keys and of its values.
    starts: [usize; 2],
    /// Number of keys that count.
    keys: usize,
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn add(sums: &mut [f64], factor: f64, values: &[f64]) {
    sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += factor * value);
}

impl Attention {
    /// The attention of tensors of these sizes, unless they do not fit.
    pub fn new(q: &[usize], k: &[usize], v: &[usize], o: &[usize]) -> Option<Self> {
        let (&[batches, heads, queries, depth], &[_, key_heads, keys, _], &[_, value_heads, _, width]) =
            (q, k, v)
        else {
            return None;
        };
        let fits = k == [batches, key_heads, keys, depth]
            && v == [batches, value_heads, keys, width]
            && o == [batches, heads, queries, width]
            && heads % key_heads == 0
            && heads % value_heads == 0;
        let shared = [key_heads, value_heads];
        fits.then_some(Self { batches, heads, shared, queries, keys, depths: [depth, width] })
    }

    /// Sizes of a tensor of one number per query, and per batch.
    pub fn numbers(&self) -> [[usize; 4]; 2] {
        [[self.batches, self.heads, self.queries, 1], [self.batches, 1, 1, 1]]
    }

    /// Calls `body` for each row, except those of queries that do not count.
    fn rows<'a>(&self, inputs: Inputs<'a>, mut body: impl FnMut(Row<'a>)) {
        for batch in 0..self.batches {
            let keys = program_length(inputs.lengths[1].get(batch), self.keys);
            for head in 0..self.heads {
                let start = |index: usize| {
                    let shared = self.shared[index];
                    (batch * shared + head / (self.heads / shared)) * self.keys * self.depths[index]
                };
                for row in 0..program_length(inputs.lengths[0].get(batch), self.queries) {
                    let at = (batch * self.heads + head) * self.queries + row;
                    let query = &inputs.q[at * self.depths[0]..][..self.depths[0]];
                    body(Row { at, query, starts: [start(0), start(1)], keys });
                }
            }
        }
    }

    /// The scores of a row.
    fn scores(&self, row: &Row<'_>, inputs: Inputs<'_>) -> Vec<f64> {
        let scale = inputs.scale.first().copied().unwrap_or(1.0);
        let keys = inputs.k[row.starts[0]..].chunks_exact(self.depths[0]);
        keys.take(row.keys).map(|key| scale * dot(row.query, key)).collect()
    }

    /// The output, and the logarithm of the sum of each row's exponentials.
    pub fn forward(&self, inputs: Inputs<'_>) -> [Vec<f64>; 2] {
        let width = self.depths[1];
        let rows = self.batches * self.heads * self.queries;
        let (mut o, mut statistics) = (vec![0.0; rows * width], vec![0.0; rows]);
        self.rows(inputs, |row| {
            let scores = self.scores(&row, inputs);
            let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = scores.iter().map(|score| (score - largest).exp()).sum();
            statistics[row.at] = if scores.is_empty() { f64::NEG_INFINITY } else { largest + sum.ln() };
            let output = &mut o[row.at * width..][..width];
            for (score, value) in scores.iter().zip(inputs.v[row.starts[1]..].chunks_exact(width)) {
                add(output, (score - largest).exp() / sum, value);
            }
        });
        [o, statistics]
    }

    /// The gradients of queries, keys and values, by output, statistics and the output's gradient.
    pub fn backward(&self, inputs: Inputs<'_>, [o, statistics, gradient]: [&[f64]; 3]) -> [Vec<f64>; 3] {
        let [depth, width] = self.depths;
        let scale = inputs.scale.first().copied().unwrap_or(1.0);
        let [mut dq, mut dk, mut dv] = [inputs.q, inputs.k, inputs.v].map(|values| vec![0.0; values.len()]);
        self.rows(inputs, |row| {
            let gradient = &gradient[row.at * width..][..width];
            let along = dot(gradient, &o[row.at * width..][..width]);
            for (key, score) in self.scores(&row, inputs).into_iter().enumerate() {
                let (key, value) = (row.starts[0] + key * depth, row.starts[1] + key * width);
                let weight = (score - statistics[row.at]).exp();
                let slope = scale * weight * (dot(gradient, &inputs.v[value..][..width]) - along);
                add(&mut dq[row.at * depth..][..depth], slope, &inputs.k[key..][..depth]);
                add(&mut dk[key..][..depth], slope, row.query);
                add(&mut dv[value..][..width], weight, gradient);
            }
        });
        [dq, dk, dv]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const Q: [usize; 4] = [2, 4, 3, 2];
    const K: [usize; 4] = [2, 2, 5, 2];
    const V: [usize; 4] = [2, 1, 5, 3];
    const O: [usize; 4] = [2, 4, 3, 3];

    fn made(dims: [usize; 4], seed: usize) -> Vec<f64> {
        (0..dims.iter().product()).map(|at| ((at * 7 + seed) % 13) as f64 / 6.0 - 1.0).collect()
    }

    /// By definition, with matrices of scores.
    fn wanted(q: &[f64], k: &[f64], v: &[f64], lengths: [[usize; 2]; 2]) -> Vec<f64> {
        let mut o = vec![0.0; O.iter().product()];
        for (b, h) in (0..2).flat_map(|b| (0..4).map(move |h| (b, h))) {
            for i in 0..lengths[0][b] {
                let score = |j: usize| -> f64 {
                    0.7 * (0..2)
                        .map(|d| q[((b * 4 + h) * 3 + i) * 2 + d] * k[((b * 2 + h / 2) * 5 + j) * 2 + d])
                        .sum::<f64>()
                };
                let sum: f64 = (0..lengths[1][b]).map(|j| score(j).exp()).sum();
                for d in 0..3 {
                    let value = |j: usize| v[(b * 5 + j) * 3 + d];
                    o[((b * 4 + h) * 3 + i) * 3 + d] =
                        (0..lengths[1][b]).map(|j| score(j).exp() / sum * value(j)).sum();
                }
            }
        }
        o
    }

    #[test]
    fn output_and_gradients_are_by_definition() {
        let attention = Attention::new(&Q, &K, &V, &O).expect("they fit");
        let (q, k, v) = (made(Q, 1), made(K, 5), made(V, 8));
        let dy = made(O, 3);
        for (lengths, known) in
            [([[3, 3], [5, 5]], [&[][..], &[]]), ([[3, 2], [4, 1]], [&[3.0, 2.0], &[4.0, 1.0]])]
        {
            let inputs = Inputs { q: &q, k: &k, v: &v, scale: &[0.7], lengths: known };
            let [o, statistics] = attention.forward(inputs);
            for (got, wanted) in o.iter().zip(wanted(&q, &k, &v, lengths)) {
                assert!((got - wanted).abs() < 1e-12, "{got} {wanted}");
            }
            let gradients = attention.backward(inputs, [&o, &statistics, &dy]);
            let loss = |inputs: [&[f64]; 3]| -> f64 {
                wanted(inputs[0], inputs[1], inputs[2], lengths).iter().zip(&dy).map(|(y, dy)| y * dy).sum()
            };
            for (which, gradient) in gradients.iter().enumerate() {
                for at in 0..gradient.len() {
                    let shifted = |by: f64| {
                        let mut all = [q.clone(), k.clone(), v.clone()];
                        all[which][at] += by;
                        loss([&all[0], &all[1], &all[2]])
                    };
                    let difference = (shifted(1e-5) - shifted(-1e-5)) / 2e-5;
                    assert!((gradient[at] - difference).abs() < 1e-8, "{which} {at}");
                }
            }
        }
    }

    #[test]
    fn sizes_that_do_not_fit_are_refused() {
        assert!(Attention::new(&Q, &[2, 3, 5, 2], &V, &O).is_none(), "heads that do not divide");
        assert!(Attention::new(&Q, &[2, 2, 5, 3], &V, &O).is_none(), "another depth");
        assert!(Attention::new(&Q, &K, &[2, 1, 4, 3], &O).is_none(), "another number of keys");
        assert!(Attention::new(&Q, &K, &V, &Q).is_none(), "another output");
        assert!(Attention::new(&Q[1..], &K, &V, &O).is_none(), "another rank");
    }
}
