// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Products of batches of matrices.

use super::super::layout::places;
use super::groups::split;

/// The sizes of a product.
///
/// # Invariants
/// The matrices of a batch of the result are of `m` rows and `n` columns; those of the factors have `k` columns and rows.
#[derive(Debug)]
pub struct Product {
    m: usize,
    n: usize,
    k: usize,
    /// For each matrix of the result the places of its factors.
    factors: [Batches; 2],
    /// Number of matrices of the result.
    count: usize,
    /// The value of the elements of the result that lie outside of the overridden sizes.
    pub padding: f64,
}

/// Batches of a tensor with fewer matrices than the result has.
#[derive(Debug)]
struct Batches([Vec<usize>; 2]);

impl Batches {
    fn places(&self) -> impl Iterator<Item = usize> + '_ {
        places(&self.0[0], &self.0[1])
    }
}

impl Product {
    /// The product of tensors of these sizes, unless they do not fit.
    pub fn new(a: &[usize], b: &[usize], c: &[usize]) -> Option<Self> {
        let outer = c.len().checked_sub(2)?;
        let k = *a.last()?;
        let (m, n) = (c[outer], c[outer + 1]);
        let fits = |dims: &[usize], inner: [usize; 2]| {
            let (batches, own) = dims.split_at_checked(outer)?;
            (own == inner).then(|| split(batches, &c[..outer]))?.map(Batches)
        };
        let factors = [fits(a, [m, k])?, fits(b, [k, n])?];
        Some(Self { m, n, k, factors, count: c[..outer].iter().product(), padding: 0.0 })
    }

    /// The product. A size of each matrix may be overridden: then only that part of the factors counts.
    pub fn multiply(&self, a: &[f64], b: &[f64], [m, n, k]: [Option<Vec<f64>>; 3]) -> Vec<f64> {
        let mut c = vec![self.padding; self.count * self.m * self.n];
        let at = |sizes: &Option<Vec<f64>>, batch: usize, size: usize| {
            program_length(sizes.as_ref().map(|sizes| &sizes[batch]), size)
        };
        let batches = self.factors[0].places().zip(self.factors[1].places());
        let matrices = c.chunks_exact_mut(self.m * self.n);
        for (batch, ((first, second), matrix)) in batches.zip(matrices).enumerate() {
            let sizes = [at(&m, batch, self.m), at(&n, batch, self.n), at(&k, batch, self.k)];
            let (a, b) = (&a[first * self.m * self.k..], &b[second * self.k * self.n..]);
            self.matrix(a, b, sizes, matrix);
        }
        c
    }

    /// The part of one product that counts; the rest stays.
    fn matrix(&self, a: &[f64], b: &[f64], [m, n, k]: [usize; 3], c: &mut [f64]) {
        for (row, sums) in a.chunks_exact(self.k).zip(c.chunks_exact_mut(self.n)).take(m) {
            let sums = &mut sums[..n];
            sums.fill(0.0);
            for (factor, line) in row[..k].iter().zip(b.chunks_exact(self.n)) {
                sums.iter_mut().zip(line).for_each(|(sum, value)| *sum += factor * value);
            }
        }
    }
}

/// Returns a length that the program may have passed, at most `size`. A negative one becomes 0.
pub fn program_length(value: Option<&f64>, size: usize) -> usize {
    value.map_or(size, |value| (*value as usize).min(size))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_share_a_factor_and_sizes_are_overridden() {
        // One batch of four heads; two heads of the second factor.
        let product = Product::new(&[1, 4, 2, 3], &[1, 2, 3, 2], &[1, 4, 2, 2]).expect("they fit");
        let a: Vec<f64> = (0..24).map(f64::from).collect();
        let b: Vec<f64> = (0..12).map(|at| f64::from(at * 5 % 7)).collect();
        let wanted = |head: usize, row: usize, column: usize, depth: usize| -> f64 {
            (0..depth).map(|l| a[head * 6 + row * 3 + l] * b[head / 2 * 6 + l * 2 + column]).sum()
        };
        let plain = product.multiply(&a, &b, [None, None, None]);
        let cut = product.multiply(&a, &b, [Some(vec![1.0; 4]), Some(vec![9.0; 4]), Some(vec![2.0; 4])]);
        for head in 0..4 {
            for (row, column) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
                let at = head * 4 + row * 2 + column;
                assert_eq!(plain[at], wanted(head, row, column, 3));
                assert_eq!(cut[at], if row == 0 { wanted(head, row, column, 2) } else { 0.0 });
            }
        }
        let none = product.multiply(&a, &b, [None, Some(vec![-1.0; 4]), None]);
        assert!(none.iter().all(|value| *value == 0.0));
    }

    #[test]
    fn sizes_that_do_not_fit_are_refused() {
        for (a, b) in
            [([1, 4, 2, 2], [1, 2, 3, 2]), ([1, 4, 2, 3], [1, 3, 3, 2]), ([1, 8, 2, 3], [1, 2, 3, 2])]
        {
            assert!(Product::new(&a, &b, &[1, 4, 2, 2]).is_none(), "{a:?} {b:?}");
        }
        assert!(Product::new(&[3], &[3, 2], &[2]).is_none() && Product::new(&[], &[], &[2, 2]).is_none());
    }
}
