// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Common parts of the test levels: the table of programs, building and running them, daemons, and a front-end that
//! sends anything that a test wants. `docs/testing.md` lists the needs of each level.

pub mod arbiter;
pub mod backend;
pub mod cases;
pub mod cluster;
pub mod control;
pub mod daemon;
pub mod effort;
pub mod fatbin;
pub mod frontend;
pub mod image;
pub mod metrics;
pub mod mover;
pub mod plugin;
pub mod program;
pub mod random_moves;
pub mod ring;
pub mod running;
pub mod runs;
pub mod stack;
pub mod suite;
pub mod tracer;
pub mod variant;
pub mod verdict;
