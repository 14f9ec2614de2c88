// SPDX-License-Identifier: Apache-2.0 OR MIT
//! NVIDIA's management library for guests, as `nvidia-smi`, PyTorch and monitoring tools use it.
//!
//! It has a separate session with the host, so that querying devices does not start CUDA in the process: a program may
//! do so and fork afterwards. It reports utilisation of this virtual machine only: the memory that its processes may
//! use and do use, and their share of the GPU's time. It never reports other machines or the host. Properties of the
//! card come from the host's library. Values that the worker cannot provide are NVML_ERROR_NOT_SUPPORTED, as on
//! NVIDIA's cards that lack a sensor. No setting of the card can be changed.
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
