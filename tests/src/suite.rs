// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The frame of a test binary: one trial per row, and every skipped test is reported.

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use libtest_mimic::{Arguments, Failed, Trial};

use crate::daemon::gpu_exists;
use crate::effort;
use crate::program::Programs;
use crate::stack::Stack;

/// The tools that every trial of a level uses.
#[derive(Debug)]
pub struct Kit {
    /// The stack under test.
    pub stack: Stack,
    /// The programs.
    pub programs: Programs,
}

/// Tests that run at the same time, on any number of cores: they mostly wait for processes. Two use 34 to 52 % of two cores.
const AT_ONCE: usize = 4;

/// All tests of a chain have asked for their turns this time after the first one.
const ALL_HAVE_ASKED: Duration = Duration::from_millis(300);

/// Held by each test while it runs.
static PROCESSORS: RwLock<()> = RwLock::new(());

/// Tests that run one at a time, in the order in which they were added, because they share a machine.
#[derive(Debug, Default)]
struct Chain {
    state: Mutex<Turns>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Turns {
    begun: Option<Instant>,
    waiting: BTreeSet<usize>,
    is_taken: bool,
}

/// The turn of a test, until it is dropped.
struct Turn<'a>(&'a Chain);

impl Chain {
    /// Waits for the turn of the test with this number: the lowest one of those that wait is the next. Each waits on a thread of its
    /// own, so that all are known that the filter of the command line lets through.
    fn turn(&self, number: usize) -> Turn<'_> {
        let mut turns = self.turns();
        turns.waiting.insert(number);
        let begun = *turns.begun.get_or_insert_with(Instant::now);
        drop(turns);
        thread::sleep(ALL_HAVE_ASKED.saturating_sub(begun.elapsed()));
        let must_wait = |turns: &mut Turns| turns.is_taken || turns.waiting.first() != Some(&number);
        let turns = self.changed.wait_while(self.turns(), must_wait);
        let mut turns = turns.unwrap_or_else(PoisonError::into_inner);
        turns.waiting.remove(&number);
        turns.is_taken = true;
        Turn(self)
    }

    fn turns(&self) -> MutexGuard<'_, Turns> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.turns().is_taken = false;
        self.0.changed.notify_all();
    }
}

/// Collects the trials of a level.
#[derive(Debug)]
pub struct Suite {
    level: &'static str,
    kit: Arc<Kit>,
    /// The chain of the tests that are added, if there is one.
    chain: Option<Arc<Chain>>,
    trials: Vec<Trial>,
    skipped: Vec<String>,
}

impl Suite {
    /// Begins another chain of tests, which runs beside those before.
    pub fn begin_chain(&mut self) {
        self.chain = Some(Arc::default());
    }

    /// Adds a test.
    pub fn test(&mut self, name: impl Into<String>, body: impl FnOnce(&Kit) -> Result<()> + Send + 'static) {
        self.add(name, move |kit| {
            let _with_others = PROCESSORS.read();
            body(kit)
        });
    }

    /// Adds a test that measures the free memory of a GPU, where there is one: then no other test of the level runs
    /// at the same time.
    pub fn test_alone_on_gpu(
        &mut self,
        name: impl Into<String>,
        body: impl FnOnce(&Kit) -> Result<()> + Send + 'static,
    ) {
        if gpu_exists() {
            self.test_alone(name, body);
        } else {
            self.test(name, body);
        }
    }

    /// Adds a test that compares speeds: no other test of the level runs beside it.
    pub fn test_alone(
        &mut self,
        name: impl Into<String>,
        body: impl FnOnce(&Kit) -> Result<()> + Send + 'static,
    ) {
        self.add(name, move |kit| {
            let _alone = PROCESSORS.write();
            body(kit)
        });
    }

    fn add(&mut self, name: impl Into<String>, body: impl FnOnce(&Kit) -> Result<()> + Send + 'static) {
        let (kit, chain, number) = (self.kit.clone(), self.chain.clone(), self.trials.len());
        self.trials.push(Trial::test(name, move || {
            let _turn = chain.as_ref().map(|chain| chain.turn(number));
            body(&kit).map_err(|error| Failed::from(format!("{error:#}")))
        }));
    }

    /// Lists a test as ignored, and reports the reason.
    pub fn skip(&mut self, name: impl Into<String>, why: &str) {
        let why = why.to_owned();
        let name = name.into();
        self.trials.push(Trial::test(name, move || Err(Failed::from(why))).with_ignored_flag(true));
    }

    /// Reports why a group of tests is skipped; each is listed by [`Suite::skip`].
    pub fn say_skipped(&mut self, what: &str, why: &str) {
        self.skipped.push(format!("skipped: {}: {what}: {why}", self.level));
    }

    /// The tools of the tests.
    pub fn kit(&self) -> &Kit {
        &self.kit
    }
}

/// As [`run`], but the tests form a chain, or several.
pub fn run_in_order(level: &'static str, collect: impl FnOnce(&mut Suite) -> Result<()>) -> ExitCode {
    run_suite(level, Some(Arc::default()), collect)
}

/// Runs the level that `collect` fills. Without a stack it fails.
pub fn run(level: &'static str, collect: impl FnOnce(&mut Suite) -> Result<()>) -> ExitCode {
    run_suite(level, None, collect)
}

fn run_suite(
    level: &'static str,
    chain: Option<Arc<Chain>>,
    collect: impl FnOnce(&mut Suite) -> Result<()>,
) -> ExitCode {
    let in_order = chain.is_some();
    let mut arguments = Arguments::from_args();
    let collected = prepare().and_then(|kit| {
        let mut suite = Suite { level, kit: Arc::new(kit), chain, trials: Vec::new(), skipped: Vec::new() };
        collect(&mut suite)?;
        Ok(suite)
    });
    match collected {
        Ok(mut suite) => {
            for line in &suite.skipped {
                println!("{line}");
            }
            if !in_order && let Ok(Some(seed)) = effort::seed() {
                fastrand::Rng::with_seed(seed).shuffle(&mut suite.trials);
            }
            // Those of a chain that wait need a thread each.
            let threads = if in_order { suite.trials.len() } else { AT_ONCE };
            arguments.test_threads.get_or_insert(threads);
            libtest_mimic::run(&arguments, suite.trials).exit_code()
        }
        Err(error) => {
            let message = format!("{error:#}");
            let trial = Trial::test(level, move || Err(Failed::from(message)));
            libtest_mimic::run(&Arguments { filter: None, ..arguments }, vec![trial]).exit_code()
        }
    }
}

fn prepare() -> Result<Kit> {
    Ok(Kit { stack: Stack::from_environment()?, programs: Programs::from_environment()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_of_a_chain_have_their_turns_in_order() {
        let chain = Chain::default();
        let order = Mutex::new(Vec::new());
        thread::scope(|scope| {
            for number in [3, 0, 2, 1] {
                let (chain, order) = (&chain, &order);
                scope.spawn(move || {
                    let _turn = chain.turn(number);
                    let before = order.lock().unwrap().len();
                    thread::sleep(Duration::from_millis(5));
                    let mut order = order.lock().unwrap();
                    assert_eq!(order.len(), before, "two at once");
                    order.push(number);
                });
            }
        });
        assert_eq!(order.into_inner().unwrap(), [0, 1, 2, 3]);
        drop(chain.turn(0));
    }
}
