// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The shares of programs that compete for a GPU, from the times at which their kernels ended.

use anyhow::{Result, bail};

/// The time at the beginning that is not measured, in nanoseconds. Programs start one after the other, and work that
/// the first one has queued until then (100 ms) cannot be withdrawn.
const WARM_UP: u64 = SECOND;
const SECOND: u64 = 1_000_000_000;
const TENTH: u64 = SECOND / 10;

/// A run of several machines.
#[derive(Debug, Default)]
pub struct Run {
    machines: Vec<Competitor>,
}

#[derive(Debug)]
struct Competitor {
    weight: u32,
    /// Length of its kernels in nanoseconds.
    kernel: u64,
    /// When they ended, for each process.
    processes: Vec<Vec<u64>>,
}

/// Figures of a run.
#[derive(Debug, Default, PartialEq)]
pub struct Figures {
    /// Parts of the GPU time that all used together, in percent.
    pub shares: Vec<f64>,
    /// The maximum difference of a share from its weight in a window, in percentage points.
    pub error_1s: f64,
    /// The same in shorter windows.
    pub error_100ms: f64,
    /// GPU time that was used, in percent.
    pub used: f64,
    /// Time between kernels of a process that 99 % of them keep, by machine, in milliseconds.
    pub p99_ms: Vec<f64>,
}

/// Time between kernels, in nanoseconds.
#[derive(Debug, PartialEq)]
pub struct Period {
    /// The arithmetic mean.
    pub mean: f64,
    /// The median.
    pub median: f64,
}

impl Run {
    /// Machines of these weights, with kernels of so many microseconds.
    pub fn new(machines: impl IntoIterator<Item = (u32, u32)>) -> Self {
        let machines = machines.into_iter().map(|(weight, kernel_us)| Competitor {
            weight,
            kernel: 1000 * u64::from(kernel_us),
            processes: Vec::new(),
        });
        Self { machines: machines.collect() }
    }

    /// Adds measurements of a process of a machine.
    pub fn add(&mut self, machine: usize, ends: Vec<u64>) {
        self.machines[machine].processes.push(ends);
    }

    /// The time in which all processes worked.
    fn common(&self) -> Result<(u64, u64)> {
        let all = || self.machines.iter().flat_map(|machine| &machine.processes);
        let first = all().filter_map(|ends| ends.first()).max();
        let last = all().filter_map(|ends| ends.last()).min();
        match (first, last) {
            (Some(first), Some(last)) if last.saturating_sub(*first) >= WARM_UP + SECOND => {
                Ok((first + WARM_UP, *last))
            }
            _ => bail!("The programs did not run side by side for long enough"),
        }
    }

    /// GPU time of each machine in a window. A kernel counts where it was before its end.
    fn used(&self, from: u64, to: u64) -> Vec<f64> {
        let of = |machine: &Competitor| {
            let kernel = machine.kernel;
            let part =
                |&end: &u64| end.min(to).saturating_sub(end.saturating_sub(kernel).max(from)).min(kernel);
            machine.processes.iter().flatten().map(part).sum::<u64>() as f64
        };
        self.machines.iter().map(of).collect()
    }

    fn error(&self, from: u64, to: u64, window: u64) -> f64 {
        let total: f64 = self.machines.iter().map(|machine| f64::from(machine.weight)).sum();
        let mut worst = 0.0_f64;
        for start in (from..=to.saturating_sub(window)).step_by(window as usize) {
            let used = self.used(start, start + window);
            let sum: f64 = used.iter().sum();
            for (machine, used) in self.machines.iter().zip(used) {
                let goal = f64::from(machine.weight) / total;
                worst = worst.max(100.0 * (used / sum.max(1.0) - goal).abs());
            }
        }
        worst
    }

    /// The first machine's share in each window of 1 s, in percent.
    pub fn course(&self) -> Result<Vec<f64>> {
        let (from, to) = self.common()?;
        let windows = (from..=to.saturating_sub(SECOND)).step_by(SECOND as usize);
        Ok(windows
            .map(|start| {
                let used = self.used(start, start + SECOND);
                100.0 * used.first().unwrap_or(&0.0) / used.iter().sum::<f64>().max(1.0)
            })
            .collect())
    }

    /// All figures.
    pub fn figures(&self) -> Result<Figures> {
        let (from, to) = self.common()?;
        let used = self.used(from, to);
        let sum: f64 = used.iter().sum();
        let p99 = |machine: &Competitor| {
            let mut periods = periods(&machine.processes, from, to);
            periods.sort_unstable();
            periods.get(periods.len() * 99 / 100).map_or(f64::NAN, |&period| period as f64 / 1e6)
        };
        Ok(Figures {
            shares: used.iter().map(|used| 100.0 * used / sum.max(1.0)).collect(),
            error_1s: self.error(from, to, SECOND),
            error_100ms: self.error(from, to, TENTH),
            used: 100.0 * sum / (to - from) as f64,
            p99_ms: self.machines.iter().map(p99).collect(),
        })
    }

    /// The time between kernels of all processes.
    pub fn period(&self) -> Result<Period> {
        let (from, to) = self.common()?;
        let mut periods: Vec<u64> =
            self.machines.iter().flat_map(|machine| periods(&machine.processes, from, to)).collect();
        periods.sort_unstable();
        let Some(&median) = periods.get(periods.len() / 2) else { bail!("There are no kernels") };
        Ok(Period { mean: periods.iter().sum::<u64>() as f64 / periods.len() as f64, median: median as f64 })
    }
}

fn periods(processes: &[Vec<u64>], from: u64, to: u64) -> Vec<u64> {
    let within = |ends: &Vec<u64>| {
        let ends: Vec<u64> = ends.iter().copied().filter(|end| (from..to).contains(end)).collect();
        ends.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).collect::<Vec<_>>()
    };
    processes.iter().flat_map(within).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_and_errors_are_those_of_windows() {
        let mut run = Run::new([(3, 1000), (1, 1000)]);
        // Four slots of a millisecond: three are the first one's.
        let ends = |wanted: fn(u64) -> bool| {
            (1..4000).filter(|&at| wanted(at % 4)).map(|at| at * 1_000_000).collect()
        };
        run.add(0, ends(|slot| slot != 0));
        run.add(1, ends(|slot| slot == 0));
        let figures = run.figures().unwrap();
        assert!((figures.shares[0] - 75.0).abs() < 0.1 && (figures.used - 100.0).abs() < 0.2, "{figures:?}");
        assert!(figures.error_1s < 0.2 && figures.error_100ms < 1.1, "{figures:?}");
        assert_eq!(figures.p99_ms, [2.0, 4.0]);
    }

    #[test]
    fn programs_that_do_not_meet_have_no_figures() {
        let mut run = Run::new([(1, 1), (1, 1)]);
        run.add(0, vec![0, SECOND]);
        run.add(1, vec![2 * SECOND, 9 * SECOND]);
        assert!(run.figures().is_err());
    }
}
