// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Settings of all objects. Programs set each of them to something else than at first, and ask for it before and after their sessions are
//! made again. The rows of the calls say which getters there are.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use cuda_library_rows::{Effect, Getter as Function, libraries};
use vhost_cuda_tests::daemon::is_emulated;
use vhost_cuda_tests::mover::{Moved, Order};
use vhost_cuda_tests::running::Running;
use vhost_cuda_tests::suite::{Kit, Suite};
use virtio_cuda_protocol::cuda::table::{Getter, ROWS, State};

use super::moved::Two;
use super::{ONE_GPU, deepen};
use crate::control::{Controlled, finish};
use crate::{LIMIT, start};

const PROGRAM: &str = "kept_settings";
/// Parts of the program that use the driver, and those that use libraries.
const OF_DRIVER: [&str; 3] = ["contexts", "memory", "graphs"];
const OF_LIBRARIES: [&str; 6] = ["blas", "blas_lt", "dnn", "fft", "solver", "sparse"];
/// A part that keeps its session from being made again, with the reason.
const REFUSED: (&str, &str) = ("references", "references to textures and surfaces are not made again");
/// Getters that no program calls, by the beginnings of their names: a session with such an object is not made again.
const NOT_ASKED: [&str; 11] = [
    "link_image",
    "cuTexRef",
    "cuSurfRef",
    "nccl",
    "pnccl",
    "cusparseLt",
    "cusparseX",
    "cusparseSpMVDescr",
    "cusolverRf",
    "cusolverDnIRSInfos",
    "cusolverDnX",
];
/// Its answer cannot change with one device, which always has access to its own pools. `cards` compares the access of others.
const ALWAYS_SAME: &str = "cuMemPoolGetAccess";
/// The functions that the emulator's libraries have. The others return that they are not supported.
const OF_EMULATOR: &str = include_str!("../../../../cuda-emulator/libraries/names.txt");

pub fn collect(suite: &mut Suite) {
    suite.test("deep::settings", |kit| asked(kit, &OF_DRIVER)?.expect(&getters_of_driver()));
    suite.test("renewed::settings", |kit| of_each(&OF_DRIVER, |part| are_renewed(kit, part)));
    suite.test("moved::settings", |kit| of_each(&OF_DRIVER, |part| are_moved(kit, part)));
    suite.test("deep::references_are_refused", references_are_refused);
    let names =
        ["deep::settings_of_libraries", "renewed::settings_of_libraries", "moved::settings_of_libraries"];
    if is_emulated() {
        suite.test(names[0], |kit| asked(kit, &OF_LIBRARIES)?.expect(&getters_of_libraries()));
        suite.test(names[1], |kit| of_each(&OF_LIBRARIES, |part| are_renewed(kit, part)));
        suite.test(names[2], |kit| of_each(&OF_LIBRARIES, |part| are_moved(kit, part)));
    } else {
        names.iter().for_each(|name| suite.skip(*name, "not all libraries are in folders of the daemon's"));
    }
}

fn of_each(parts: &[&'static str], body: impl Fn(&str) -> Result<()>) -> Result<()> {
    parts.iter().try_for_each(|part| body(part).context(*part))
}

/// The answers of a getter: those that differ from the first ones, and the others.
#[derive(Default)]
struct Answers {
    changed: usize,
    same: Vec<String>,
}

/// The getters that a program has called.
#[derive(Default)]
struct Asked(BTreeMap<String, Answers>);

impl Asked {
    fn read(&mut self, output: &str) -> Result<()> {
        for line in output.lines().take_while(|line| *line != "begun") {
            let (getter, rest) = line.split_once('(').with_context(|| line.to_owned())?;
            let (_, values) = rest.split_once(") = ").with_context(|| line.to_owned())?;
            let (set, first) = values.split_once(", at first ").with_context(|| line.to_owned())?;
            let answers = self.0.entry(getter.to_owned()).or_default();
            if set != first && !set.starts_with("result") {
                answers.changed += 1;
            } else {
                answers.same.push(line.to_owned());
            }
        }
        Ok(())
    }

    /// Checks that each of these getters has returned something else than at first.
    fn expect(&self, getters: &BTreeSet<&str>) -> Result<()> {
        let missing: Vec<_> = getters.iter().filter(|getter| !self.0.contains_key(**getter)).collect();
        ensure!(missing.is_empty(), "rows have these getters, which the programs do not call: {missing:?}");
        for (getter, answers) in &self.0 {
            let may_change = getters.contains(getter.as_str()) && getter != ALWAYS_SAME;
            ensure!(!may_change || answers.changed > 0, "nothing was set: {:?}", answers.same);
        }
        Ok(())
    }
}

/// The getters that rows of the driver's calls name, as programs call them.
fn getters_of_driver() -> BTreeSet<&'static str> {
    let getter = |state| match state {
        State::Sets(Getter::Call(name)) => Some(name),
        _ => None,
    };
    let plain = |name: &'static str| name.strip_suffix("_v2").unwrap_or(name);
    ROWS.iter().filter_map(|row| getter(row.facts.state)).map(plain).filter(is_asked).collect()
}

/// Those of the libraries' functions that the emulator has.
fn getters_of_libraries() -> BTreeSet<&'static str> {
    let functions = libraries().flat_map(|library| library.functions.iter());
    let getters = functions.filter_map(|function| match function.effect {
        Effect::Sets(Function::Function(name)) => Some(name),
        _ => None,
    });
    let is_here = |name: &&str| OF_EMULATOR.lines().any(|line| line == *name);
    getters.filter(is_asked).filter(is_here).collect()
}

fn is_asked(name: &&str) -> bool {
    NOT_ASKED.iter().all(|start| !name.starts_with(start))
}

/// Returns the answers in the programs, whose sessions are suspended deeply.
fn asked(kit: &Kit, parts: &[&'static str]) -> Result<Asked> {
    let mut asked = Asked::default();
    for part in parts {
        asked.read(&are_made_again(kit, part).context(*part)?)?;
    }
    Ok(asked)
}

fn begin(kit: &Kit, controlled: &Controlled, part: &str) -> Result<Running> {
    let program = start(kit, &controlled.route, PROGRAM, &[part])?;
    program.wait_for_stdout("begun", LIMIT)?;
    Ok(program)
}

fn are_made_again(kit: &Kit, part: &str) -> Result<String> {
    let controlled = Controlled::start(kit, &ONE_GPU, None)?;
    let program = begin(kit, &controlled, part)?;
    for _ in 0..2 {
        let session = deepen(&controlled)?;
        ensure!(session["deep"] == true && session["not_deep"].is_null(), "{session}");
        controlled.ask(r#"{"do":"resume","all":true}"#)?;
    }
    program.signal(libc::SIGTERM);
    let outcome = program.finish(LIMIT)?;
    outcome.expect_exit(0)?;
    Ok(outcome.stdout)
}

fn are_renewed(kit: &Kit, part: &str) -> Result<()> {
    let controlled = Controlled::start(kit, &ONE_GPU, None)?;
    let program = begin(kit, &controlled, part)?;
    for count in 1..=2 {
        let answer = controlled.ask(r#"{"do":"renew","all":true}"#)?;
        ensure!(answer["sessions"][0]["renewals"] == count, "{answer}");
    }
    finish(program)
}

fn are_moved(kit: &Kit, part: &str) -> Result<()> {
    let two = Two::start(kit, &[])?;
    let program = two.program(kit, PROGRAM, &[part], "")?;
    program.wait_for_stdout("begun", LIMIT)?;
    for (to, order) in [(1, Order::StateFirst), (0, Order::MemoryFirst)] {
        let moved = two.move_surely(to, order)?;
        ensure!(matches!(moved[..], [Moved::There(_)]), "{moved:?}\n{}", two.logs());
    }
    finish(program).with_context(|| two.logs())
}

fn references_are_refused(kit: &Kit) -> Result<()> {
    let controlled = Controlled::start(kit, &ONE_GPU, None)?;
    let program = begin(kit, &controlled, REFUSED.0)?;
    let session = deepen(&controlled)?;
    ensure!(session["deep"] == false && session["not_deep"] == REFUSED.1, "{session}");
    finish(program)
}
