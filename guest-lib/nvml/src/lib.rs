// SPDX-License-Identifier: Apache-2.0 OR MIT
//! NVIDIA's management library for guests: what `nvidia-smi`, PyTorch and monitors ask.
//!
//! It has a session of its own with the host, so that asking for devices does not start CUDA in the process: a
//! program may do so and fork afterwards. Of the card's use it tells this virtual machine's only: the memory that its
//! processes may use and do use, their share of the GPU's time, never other machines' or the host's. What the card says of
//! itself it asks the host's library for. What the worker does not know is NVML_ERROR_NOT_SUPPORTED, as on NVIDIA's cards
//! that lack a sensor; nothing of the card can be set.
#![allow(non_camel_case_types, non_snake_case)]

#[macro_use]
mod api;
mod absent;
mod affinity;
mod card;
mod device;
mod engines;
mod error;
mod events;
mod export_table;
mod fields;
mod getters;
mod instances;
mod memory;
mod pci;
mod pointers;
mod process;
mod samples;
mod sensors;
mod state;
mod system;
mod topology;
