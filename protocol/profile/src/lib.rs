// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Events of a profile ([`event`]), tables of them ([`table`]), and timelines for Perfetto ([`timeline`]).
//!
//! Nothing in an event is trusted: it may come from a worker or a guest process that was taken over.

pub mod event;
pub mod lines;
pub mod names;
mod perfetto;
pub mod reader;
pub mod table;
pub mod timeline;
