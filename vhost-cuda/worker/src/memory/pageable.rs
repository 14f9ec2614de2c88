// SPDX-License-Identifier: Apache-2.0 OR MIT
//! GPUs that reach pageable memory: their kernels can read and write every address of the process, which here has the
//! whole memory of a virtual machine mapped.

use anyhow::{Context, bail};

use crate::gpu::Driver;

/// `CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS`: the driver migrates pages (HMM), or ...
const PAGEABLE: i32 = 88;
/// ... `CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES`: the GPU reads the CPU's page tables (ATS).
const HOST_PAGE_TABLES: i32 = 100;

/// Errors: a device of the library is such a GPU, and what to do about it.
pub fn refuse(gpu: &Driver, devices: u32) -> anyhow::Result<()> {
    for number in 0..devices as i32 {
        let (device,) = gpu.cuDeviceGet(number).context("cuDeviceGet")?;
        for attribute in [PAGEABLE, HOST_PAGE_TABLES] {
            let (value,) = gpu
                .cuDeviceGetAttribute(attribute, device)
                .with_context(|| format!("cuDeviceGetAttribute {attribute} of device {number}"))?;
            if value != 0 {
                bail!(
                    "device {number} reaches pageable memory (device attribute {attribute} is {value}): kernels of a \
                     guest process could read and write the whole memory of its virtual machine. With HMM, put \
                     `options nvidia-uvm uvm_disable_hmm=1` into /etc/modprobe.d/ and load nvidia-uvm again; to serve \
                     all the same, start the daemon with --allow-pageable-access"
                );
            }
        }
    }
    Ok(())
}
