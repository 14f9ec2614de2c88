// SPDX-License-Identifier: Apache-2.0 OR MIT

//! What the test levels share: the table of programs, building and running them, daemons, and a front-end
//! that says whatever a test wants it to say. `docs/testing.md` says what each level needs.

pub mod backend;
pub mod cases;
pub mod daemon;
pub mod fatbin;
pub mod frontend;
pub mod program;
pub mod ring;
pub mod running;
pub mod stack;
pub mod suite;
pub mod tracer;
pub mod variant;
pub mod verdict;
