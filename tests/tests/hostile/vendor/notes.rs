// SPDX-License-Identifier: Apache-2.0 OR MIT

//! cuSOLVER's sparse functions: lengths that follow from earlier calls with an object, and numbers in host memory that the library
//! follows. The library checks neither.

use anyhow::{Context, Result, ensure};
use cuda_library_rows::block::{PRESENT, SLOT};
use vhost_cuda_tests::frontend::CallParts;

use super::{FIRST, ROOM, call, expect_status, open, status};
use crate::Target;
use crate::calls::{INVALID_VALUE, Session};

/// `CUSOLVER_STATUS_INVALID_VALUE`
const WRONG: u64 = 3;
const SOLVER: u64 = FIRST;
const DESCRIPTOR: u64 = FIRST + 16;
const INFO: u64 = FIRST + 32;
const REFACTOR: u64 = FIRST + 48;

/// Data of numbers of 32 bits.
pub fn ints(values: &[i32]) -> Vec<u64> {
    let word = |pair: &[i32]| {
        let [low, high] = [pair[0], pair.get(1).copied().unwrap_or(0)].map(|value| u64::from(value as u32));
        low | high << 32
    };
    values.chunks(2).map(word).collect()
}

fn of(function: &str, slots: &[u64], data: &[u64]) -> CallParts {
    call("cusolver", function, slots, data)
}

/// A session with a handle and a descriptor of a matrix.
fn session(target: &mut Target) -> Result<Session> {
    let mut session = Session::open(target)?;
    for library in ["cusparse", "cusolver"] {
        session.expect(&open(library), &[0])?;
    }
    expect_status(&mut session, of("cusolverSpCreate", &[SOLVER], &[]), 0)?;
    expect_status(&mut session, call("cusparse", "cusparseCreateMatDescr", &[DESCRIPTOR], &[]), 0)?;
    Ok(session)
}

/// A diagonal matrix with two rows: its row pointers, columns and elements.
const STARTS: &[i32] = &[0, 1, 2];
const COLUMNS: &[i32] = &[0, 1];

fn values() -> [u64; 2] {
    [4.0_f64, 5.0].map(f64::to_bits)
}

fn analysis(starts: &[i32], columns: &[i32]) -> CallParts {
    let slots = [SOLVER, 2, 2, DESCRIPTOR, PRESENT, PRESENT, INFO];
    of("cusolverSpXcsrluAnalysisHost", &slots, &[ints(starts), ints(columns)].concat())
}

/// Functions that take the matrix, too, with further slots.
fn of_matrix(function: &str, n: u64, bytes_are: usize, more: &[u64]) -> CallParts {
    let slots = [&[SOLVER, n, 2, DESCRIPTOR, PRESENT, PRESENT, PRESENT, INFO], more].concat();
    let starts: Vec<i32> = (0..=n as i32).map(|row| row.min(2)).collect();
    let elements = &values()[..2 * bytes_are / SLOT];
    of(function, &slots, &[elements.to_vec(), ints(&starts), ints(COLUMNS)].concat())
}

/// The length of a buffer for another matrix of two rows and elements.
fn buffer_of(starts: &[i32], columns: &[i32]) -> CallParts {
    let slots = [SOLVER, 2, 2, DESCRIPTOR, PRESENT, PRESENT, PRESENT, INFO, PRESENT, PRESENT];
    let data = [values().to_vec(), ints(starts), ints(columns)].concat();
    of("cusolverSpDcsrluBufferInfoHost", &slots, &data)
}

fn factor(n: u64, work: u64) -> CallParts {
    of_matrix("cusolverSpDcsrluFactorHost", n, 8, &[1.0_f64.to_bits(), PRESENT, work])
}

fn solve(n: u64, work: u64) -> CallParts {
    let right = vec![0; n as usize];
    of("cusolverSpDcsrluSolveHost", &[SOLVER, n, PRESENT, PRESENT, INFO, PRESENT, work], &right)
}

fn extract([n, lower, upper, work]: [u64; 4]) -> CallParts {
    let places = [PRESENT; 3];
    let slots = [
        &[SOLVER, PRESENT, PRESENT, DESCRIPTOR][..],
        &places,
        &[DESCRIPTOR],
        &places,
        &[INFO, PRESENT, n, lower, upper, work],
    ];
    of("cusolverSpDcsrluExtractHost", &slots.concat(), &[])
}

/// A call whose numbers are not those that the worker has noted is refused, in whatever order calls come.
pub fn noted_lengths(target: &mut Target) -> Result<()> {
    let mut session = session(target)?;
    expect_status(&mut session, of("cusolverSpCreateCsrluInfoHost", &[INFO], &[]), 0)?;
    for early in [factor(2, 512), solve(2, 512), extract([2, 0, 2, 512])] {
        expect_status(&mut session, early, WRONG)?;
    }
    expect_status(&mut session, analysis(STARTS, COLUMNS), 0)?;
    let buffer = |n: u64| of_matrix("cusolverSpDcsrluBufferInfoHost", n, 8, &[PRESENT, PRESENT]);
    expect_status(&mut session, factor(2, 512), WRONG)?;
    expect_status(&mut session, buffer(3), WRONG)?;
    // Another matrix than the analysis has seen, and the same one with another index base.
    for (starts, columns) in [(STARTS, &[1, 0][..]), (&[0, 2, 2], COLUMNS)] {
        expect_status(&mut session, buffer_of(starts, columns), WRONG)?;
    }
    let base = |base| call("cusparse", "cusparseSetMatIndexBase", &[DESCRIPTOR, base], &[]);
    expect_status(&mut session, base(1), 0)?;
    expect_status(&mut session, buffer_of(&[1, 2, 3], &[1, 2]), WRONG)?;
    expect_status(&mut session, base(0), 0)?;
    let answer = session.expect(&buffer(2).wants(ROOM), &[0])?;
    ensure!(status(&answer)? == 0, "no length of a buffer");
    let work = answer.bulk.get(2 * SLOT..).and_then(|rest| rest.first_chunk::<SLOT>());
    let work = u64::from_le_bytes(*work.context("a length")?);
    for forged in [0, work - 1, work + 1, 1 << 40, u64::MAX] {
        session.expect(&factor(2, forged).wants(ROOM), &[INVALID_VALUE])?;
    }
    // Elements of another type would be read from half as much memory.
    let single =
        of_matrix("cusolverSpScsrluFactorHost", 2, 4, &[u64::from(1.0_f32.to_bits()), PRESENT, work]);
    expect_status(&mut session, single, WRONG)?;
    expect_status(&mut session, solve(2, work), WRONG)?;
    expect_status(&mut session, factor(2, work), 0)?;
    expect_status(&mut session, solve(2, work), 0)?;
    for n in [0, 1, 3, 1000] {
        expect_status(&mut session, solve(n, work), WRONG)?;
    }
    let counts = of("cusolverSpXcsrluNnzHost", &[SOLVER, PRESENT, PRESENT, INFO], &[]);
    expect_status(&mut session, extract([2, 0, 2, work]), WRONG)?;
    expect_status(&mut session, counts, 0)?;
    expect_status(&mut session, extract([2, 0, 2, work]), 0)?;
    for forged in [[1, 0, 2, work], [2, 1, 2, work], [2, 0, 1, work], [2, 0, 2, 0], [3, 0, 2, work]] {
        session.expect(&extract(forged).wants(ROOM), &[INVALID_VALUE])?;
    }
    // Other factors have other lengths.
    expect_status(&mut session, factor(2, work), 0)?;
    expect_status(&mut session, extract([2, 0, 2, work]), WRONG)?;
    // The factors of one type cannot be used as another type, which has twice the bytes.
    let single_buffer = of_matrix("cusolverSpScsrluBufferInfoHost", 2, 4, &[PRESENT, PRESENT]);
    expect_status(&mut session, single_buffer, 0)?;
    let answer = session.expect(&buffer(2).wants(ROOM), &[0])?;
    ensure!(status(&answer)? == 0, "no length of a buffer");
    expect_status(&mut session, solve(2, work), WRONG)?;
    expect_status(&mut session, extract([2, 0, 2, work]), WRONG)?;
    expect_status(&mut session, factor(2, work), 0)?;
    expect_status(&mut session, solve(2, work), 0)?;
    // A call that fails leaves nothing.
    expect_status(&mut session, analysis(&[0, 3, 2], COLUMNS), WRONG)?;
    expect_status(&mut session, analysis(STARTS, COLUMNS), 0)?;
    expect_status(&mut session, solve(2, work), WRONG)?;
    expect_status(&mut session, of("cusolverRfCreate", &[REFACTOR], &[]), 0)?;
    let slots = [REFACTOR, PRESENT, PRESENT, PRESENT, PRESENT, 2, 6];
    expect_status(&mut session, of("cusolverRfExtractBundledFactorsHost", &slots, &[]), WRONG)?;
    expect_status(&mut session, of("cusolverRfBatchZeroPivot", &[REFACTOR, PRESENT, 4], &[]), WRONG)?;
    session.greet()
}

/// Row pointers, columns and orders that lead out of their arrays are refused.
pub fn out_of_arrays(target: &mut Target) -> Result<()> {
    let mut session = session(target)?;
    expect_status(&mut session, of("cusolverSpCreateCsrluInfoHost", &[INFO], &[]), 0)?;
    for (starts, columns) in [
        (&[0, 1, 3][..], COLUMNS),
        (&[1, 2, 3], COLUMNS),
        (&[0, -1, 2], COLUMNS),
        (&[0, i32::MAX, 2], COLUMNS),
        (STARTS, &[0, 2]),
        (STARTS, &[-1, 0]),
        (STARTS, &[0, i32::MIN]),
        // More elements of a column than the library has room for.
        (&[0, 2, 2], &[1, 1]),
    ] {
        expect_status(&mut session, analysis(starts, columns), WRONG)
            .with_context(|| format!("{starts:?} {columns:?}"))?;
    }
    let permute = |p: &[i32], q: &[i32]| {
        let slots = [SOLVER, 2, 2, 2, DESCRIPTOR, PRESENT, PRESENT, PRESENT, PRESENT, PRESENT, PRESENT];
        let data = [ints(STARTS), ints(COLUMNS), ints(p), ints(q), ints(&[0, 1])].concat();
        of("cusolverSpXcsrpermHost", &slots, &data)
    };
    expect_status(&mut session, permute(&[1, 0], &[0, 1]), 0)?;
    for bad in [[0, 0], [1, 2], [-1, 0], [i32::MAX, 0]] {
        expect_status(&mut session, permute(&bad, &[0, 1]), WRONG)?;
        expect_status(&mut session, permute(&[0, 1], &bad), WRONG)?;
    }
    // METIS would number from 1, so that the library, which numbers from 0, would write before its arrays.
    let order = |numbering: i64| {
        let mut options = [-1_i64; 40];
        options[17] = numbering;
        let options = options.map(|option| option as u64);
        let slots = [SOLVER, 2, 2, DESCRIPTOR, PRESENT, PRESENT, PRESENT, PRESENT];
        of("cusolverSpXcsrmetisndHost", &slots, &[ints(STARTS), ints(COLUMNS), options.to_vec()].concat())
    };
    expect_status(&mut session, order(1), WRONG)?;
    // With index base 1 the same matrix leads out of its arrays.
    expect_status(&mut session, call("cusparse", "cusparseSetMatIndexBase", &[DESCRIPTOR, 1], &[]), 0)?;
    expect_status(&mut session, analysis(STARTS, COLUMNS), WRONG)?;
    expect_status(&mut session, analysis(&[1, 2, 3], &[1, 2]), 0)?;
    session.greet()
}
