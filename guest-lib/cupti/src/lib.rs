// SPDX-License-Identifier: Apache-2.0 OR MIT

//! `libcupti.so` for guests and for the emulator: the activity API and the callback API of NVIDIA's CUPTI, as
//! `torch.profiler` uses them.
//!
//! Two kinds of events become records: calls of the APIs, which libcuda and libcudart of this project report
//! ([`calls`]), and the work of GPUs, which libcuda hands over ([`driver`], [`work`]). In the guest the worker has
//! measured it, with CUPTI of the host; the emulator measures it itself. All records wait in [`queue`] until they are
//! delivered into the program's buffers ([`buffers`]).
//!
//! NVIDIA's libcuda reports nothing to this library: with it, nothing can be enabled.

mod activity;
mod attributes;
mod buffers;
mod callbacks;
mod calls;
mod cbids;
mod clock;
mod driver;
mod external;
mod ids;
mod kinds;
mod library;
mod names;
mod numbers;
mod objects;
mod pageable;
mod queue;
mod quiet;
mod resources;
mod result;
mod settings;
mod work;
