// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Combines several rounds to one value.
//!
//! Virtual machines share the cores of their host with others, and a round may lie on two halves of one core: whole
//! rounds, native ones too, are then up to a third slower. So rounds of all places take turns, and the middle one counts.

use super::report::{Measured, Metric};

/// Returns for each metric its middle round (for an even number, the one nearer to the first percentiles), with its
/// spread widened to the others' medians. Metrics of only some rounds are taken from those.
pub fn middle(rounds: Vec<Measured>) -> Measured {
    let mut rounds = rounds.into_iter();
    let Some(mut all) = rounds.next() else { return Measured::default() };
    let mut taken: Vec<Vec<Metric>> = all.metrics.drain(..).map(|metric| vec![metric]).collect();
    for round in rounds {
        for metric in round.metrics {
            match taken.iter_mut().find(|of| of[0].is_of(&metric.metric, metric.bytes)) {
                Some(of) => of.push(metric),
                None => taken.push(vec![metric]),
            }
        }
        all.skipped
            .extend(round.skipped.into_iter().filter(|skip| !all.skipped.contains(skip)).collect::<Vec<_>>());
    }
    all.metrics = taken.into_iter().map(middle_of).collect();
    all
}

fn middle_of(mut rounds: Vec<Metric>) -> Metric {
    let medians: Vec<f64> = rounds.iter().map(|metric| metric.median).collect();
    rounds.sort_by(|a, b| a.median.total_cmp(&b.median));
    let mut metric = rounds.swap_remove((rounds.len() - 1) / 2);
    if medians.len() > 1 {
        metric.p10 = medians.iter().copied().fold(metric.p10, f64::min);
        metric.p90 = medians.iter().copied().fold(metric.p90, f64::max);
        metric.rounds = medians;
    }
    metric
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::metric;
    use super::*;

    fn round(metrics: Vec<Metric>) -> Measured {
        Measured { metrics, ..Measured::default() }
    }

    #[test]
    fn the_middle_round_counts() {
        let launch = |median, cpu_us| Metric { cpu_us, ..metric("launch", 0, median) };
        let merged = middle(vec![
            round(vec![launch(6.5, 1.0), metric("copy", 64, 3.0)]),
            round(vec![launch(9.0, 2.0)]),
            round(vec![launch(6.6, 3.0), metric("copy", 4096, 4.0)]),
        ]);
        let found = merged.find("launch", 0).expect("a launch");
        assert_eq!((found.median, found.cpu_us, found.p10, found.p90), (6.6, 3.0, 6.0, 9.0));
        assert_eq!(found.rounds, [6.5, 9.0, 6.6], "in the order in which they came");
        assert_eq!(merged.metrics.len(), 3, "sizes are metrics of their own");
    }

    #[test]
    fn one_round_is_what_it_was() {
        let one = round(vec![metric("launch", 0, 9.0)]);
        assert_eq!(middle(vec![one.clone()]), one);
    }
}
