// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs compiled programs on all ways, several at a time.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::Result;

use super::built::{Built, State};
use super::compile::copy;
use super::execute::Outcome;
use super::results::{Entry, Fared, Results, cell};
use super::table::{Program, Table};
use super::verdict::{Judge, Verdict};
use super::ways::{Invocation, Ready, Way};
use crate::progress::duration;

/// The number of native runs of a program, which reveal random output.
const NATIVE_RUNS: usize = 2;

/// The programs to run, and the options.
pub struct Plan<'a> {
    /// The table.
    pub table: &'a Table,
    /// The folder of the compiled programs.
    pub programs: &'a Path,
    /// The folder for results, outputs and working folders.
    pub output: &'a Path,
    /// The ways.
    pub ways: &'a [Way],
    /// True if the GPU of daemon and guest is emulated.
    pub emulated: bool,
    /// Native runs of earlier.
    pub reference: Option<&'a Results>,
    /// Results of an earlier run, which this one does not repeat.
    pub known: Results,
    /// Time limit per program, unless the table has a longer one.
    pub limit: Duration,
    /// Programs at a time.
    pub jobs: usize,
}

/// Runs `built`; the results are in the plan's output folder after each program.
pub fn run(plan: &Plan<'_>, ready: &Ready, built: &[Built]) -> Result<Results> {
    let results = Mutex::new(plan.known.clone());
    let done = AtomicUsize::new(0);
    for_each(plan.jobs, built, |program| {
        let entry = one(plan, ready, program)?;
        let mut results = results.lock().unwrap_or_else(PoisonError::into_inner);
        eprintln!("[{}/{}] {}", done.fetch_add(1, Ordering::Relaxed) + 1, built.len(), line(&entry));
        results.put(entry);
        results.save(plan.output)
    })?;
    Ok(results.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// Calls `work` for all of `items`, on `jobs` threads; the first error ends it.
pub fn for_each<T: Sync>(jobs: usize, items: &[T], work: impl Fn(&T) -> Result<()> + Sync) -> Result<()> {
    let next = AtomicUsize::new(0);
    let worker = || {
        while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
            if let Err(error) = work(item) {
                next.store(items.len(), Ordering::Relaxed);
                return Err(error);
            }
        }
        Ok(())
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..jobs.max(1)).map(|_| scope.spawn(worker)).collect();
        let ended = workers
            .into_iter()
            .map(|worker| worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        ended.collect::<Vec<Result<()>>>().into_iter().collect()
    })
}

fn one(plan: &Plan<'_>, ready: &Ready, built: &Built) -> Result<Entry> {
    let suite = plan.table.suite(&built.suite);
    let program = suite.program(&built.name);
    let known = plan.known.find(&built.suite, &built.name).cloned();
    let known = known.map(|entry| (entry.native, entry.small, entry.ways));
    let (native, small, ways) = known.unwrap_or_default();
    let (name, state) = (built.name.clone(), state(&built.state, &program));
    let mut entry = Entry { suite: suite.name.clone(), name, built: state, native, small, ways };
    if entry.built != State::Built {
        return Ok(entry);
    }
    let subject = Subject { plan, ready, built, judge: Judge::new(&suite, &program)?, program };
    for way in plan.ways {
        if entry.ways.contains_key(way) {
            continue;
        }
        let fared = match subject.why_not(*way) {
            Some(reason) => Fared { verdict: Verdict::Skipped(reason), milliseconds: 0 },
            None => subject.on_way(*way, &mut entry)?,
        };
        entry.ways.insert(*way, fared);
    }
    Ok(entry)
}

/// The table may have learnt a reason since the program was built.
fn state(state: &State, program: &Program) -> State {
    program.skip.clone().map_or_else(|| state.clone(), State::Skipped)
}

/// A program that is being run.
struct Subject<'a> {
    plan: &'a Plan<'a>,
    ready: &'a Ready,
    built: &'a Built,
    program: Program,
    judge: Judge,
}

impl Subject<'_> {
    fn is_emulated(&self, way: Way) -> bool {
        way == Way::Emulator || (self.plan.emulated && matches!(way, Way::VirtioUser | Way::Vm))
    }

    fn why_not(&self, way: Way) -> Option<String> {
        self.program.emulator.clone().filter(|_| self.is_emulated(way))
    }

    fn is_small(&self, way: Way) -> bool {
        self.is_emulated(way) && !self.program.small.is_empty()
    }

    /// Runs and judges it. If `way` is the native one, its behaviour is stored in `entry`.
    fn on_way(&self, way: Way, entry: &mut Entry) -> Result<Fared> {
        let Built { suite, name, .. } = self.built;
        let outputs = self.plan.output.join("outputs").join(suite).join(name);
        fs::create_dir_all(&outputs)?;
        let count = if way == Way::Native { NATIVE_RUNS } else { 1 };
        let run = |small: bool| (0..count).map(|_| self.all_runs(way, small)).collect::<Result<Vec<_>>>();
        let is_small = self.is_small(way);
        let outcomes = run(is_small)?;
        fs::write(outputs.join(format!("{}.out", way.name())), &outcomes[0].stdout)?;
        fs::write(outputs.join(format!("{}.err", way.name())), &outcomes[0].stderr)?;
        let milliseconds = outcomes[0].milliseconds;
        let verdict = if way == Way::Native {
            entry.native = outcomes;
            entry.small = if self.program.small.is_empty() { Vec::new() } else { run(true)? };
            self.judge.alone(&entry.native[0])
        } else {
            let of = |entry: &Entry| if is_small { entry.small.clone() } else { entry.native.clone() };
            let earlier = self.plan.reference.and_then(|results| results.find(suite, name));
            let mut native = [Some(&*entry), earlier].into_iter().flatten().map(of);
            let native = native.find(|runs| !runs.is_empty()).unwrap_or_default();
            self.judge.beside(&outcomes[0], &native)
        };
        Ok(Fared { verdict: self.with_known_reason(way, verdict), milliseconds })
    }

    fn with_known_reason(&self, way: Way, verdict: Verdict) -> Verdict {
        let through_ours = matches!(way, Way::VirtioUser | Way::Vm) && !self.is_emulated(way);
        match (verdict, &self.program.gpu) {
            (Verdict::Failed(_), Some(reason)) if through_ours => Verdict::Known(reason.clone()),
            (verdict, _) => verdict,
        }
    }

    /// All its runs one after the other, as if they were one.
    fn all_runs(&self, way: Way, small: bool) -> Result<Outcome> {
        let Built { suite, name, .. } = self.built;
        let folder = self.plan.output.join("work").join(format!("{suite}-{name}-{}", way.name()));
        if folder.exists() {
            fs::remove_dir_all(&folder)?;
        }
        copy(&self.built.folder(self.plan.programs), &folder)?;
        let none = [Vec::new()];
        let runs = if small { &self.program.small } else { &self.program.runs };
        let runs = if runs.is_empty() { &none[..] } else { runs };
        let least = Duration::from_secs(self.program.timeout.unwrap_or(0));
        let (limit, environment) = (self.plan.limit.max(least), &self.program.env);
        let mut all = Outcome { status: Some(0), ..Outcome::default() };
        for arguments in runs {
            let invocation = Invocation { program: name, folder: &folder, arguments, environment, limit };
            let run = self.ready.run(way, &invocation)?;
            all.stdout += &run.stdout;
            all.stderr += &run.stderr;
            all.milliseconds += run.milliseconds;
            all.status = run.status;
            if run.status != Some(0) {
                break;
            }
        }
        fs::remove_dir_all(&folder)?;
        Ok(all)
    }
}

fn line(entry: &Entry) -> String {
    let ways = entry.ways.iter().map(|(way, fared)| {
        let time = duration(Duration::from_millis(fared.milliseconds));
        format!("{} {} {time}", way.name(), cell(&fared.verdict))
    });
    let text = format!("{:28} {}", entry.name, ways.collect::<Vec<_>>().join(", "));
    match entry.reason() {
        reason if reason.is_empty() => text,
        reason => format!("{text}  {reason}"),
    }
}
