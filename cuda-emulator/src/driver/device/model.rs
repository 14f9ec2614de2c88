// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The model of each emulated device, from the environment, and the limits that follow from its compute capability.

use std::env;

use cuda_environment::{NamedTwice, VisibleDevices};

use crate::driver::result::{CUresult, CuResult};
use crate::fatbin::Accepted;

/// The maximum number of devices in CUDA_EMULATOR_DEVICES. Each takes a terabyte of address space.
const MAX_DEVICES: usize = 8;
/// The name of each device.
const NAME: &str = "CUDA Emulator (CPU)";
/// The default size of device memory in bytes.
const MEMORY: u64 = 8 << 30;
/// The default number of multiprocessors: enough for programs that spread work over them, few enough for grids of a
/// few blocks per multiprocessor.
const MULTIPROCESSORS: u32 = 16;
/// The maximum number of multiprocessors, which keeps `%nsmid` and grids that fill the device reasonable.
const MAX_MULTIPROCESSORS: u32 = 1024;
/// Compute capability times ten.
const ARCHITECTURE: u32 = 90;

/// One device's description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Model {
    pub(crate) name: String,
    /// Bytes.
    pub(crate) memory: u64,
    pub(crate) multiprocessors: u32,
    /// Compute capability times ten.
    pub(crate) architecture: u32,
    /// True if the environment has set the compute capability: PTX for newer devices is refused, as on hardware.
    pub(crate) strict: bool,
    pub(crate) pageable: Pageable,
    /// The number among all emulated devices, some of which `CUDA_VISIBLE_DEVICES` may hide.
    pub(crate) number: u8,
}

/// The attributes by which a device reports access to pageable memory. Its kernels can access the memory of the
/// process in any case. The setting is for tests of programs that query the attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pageable {
    No,
    /// The driver migrates pages.
    Hmm,
    /// The device reads the CPU's page tables.
    Ats,
}

impl Pageable {
    fn parse(text: &str) -> Option<Pageable> {
        match text.trim() {
            "no" => Some(Pageable::No),
            "hmm" => Some(Pageable::Hmm),
            "ats" => Some(Pageable::Ats),
            _ => None,
        }
    }
}

/// The limits of a multiprocessor and its blocks, by the table "Technical Specifications per Compute Capability" of the
/// CUDA programming guide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// The maximum number of resident threads.
    pub(crate) threads: u32,
    /// The maximum number of resident blocks.
    pub(crate) blocks: u32,
    /// Shared memory, bytes.
    pub(crate) shared: u32,
    /// The maximum shared memory that a block may request, in bytes.
    pub(crate) shared_optin: u32,
    /// The shared memory of each block that the driver reserves, in bytes.
    pub(crate) shared_reserved: u32,
}

impl Limits {
    /// Returns `None` for an unknown compute capability.
    pub(crate) fn of(architecture: u32) -> Option<Limits> {
        let (threads, blocks, shared, shared_optin, shared_reserved) = match architecture {
            50 | 53 | 60 | 62 => (2048, 32, 64, 48, 0),
            52 | 61 => (2048, 32, 96, 48, 0),
            70 | 72 => (2048, 32, 96, 96, 0),
            75 => (1024, 16, 64, 64, 0),
            80 => (2048, 32, 164, 163, 1),
            86 => (1536, 16, 100, 99, 1),
            87 => (1536, 16, 164, 163, 1),
            89 => (1536, 24, 100, 99, 1),
            90 | 100 | 103 => (2048, 32, 228, 227, 1),
            110 => (1536, 24, 228, 227, 1),
            120 => (1536, 24, 100, 99, 1),
            _ => return None,
        };
        let (shared, shared_optin) = (shared << 10, shared_optin << 10);
        Some(Limits { threads, blocks, shared, shared_optin, shared_reserved: shared_reserved << 10 })
    }
}

impl Model {
    /// cuDeviceGetUuid. guest-lib/nvrtc recognises the emulator by it.
    pub(crate) fn uuid(&self) -> [u8; 16] {
        let mut uuid = *b"CUDA-Emulator\0\0\0";
        uuid[15] = self.number;
        uuid
    }

    /// Returns the PTX versions that it executes. Many wheels contain only PTX of the newest architecture, so a
    /// device without a configured compute capability accepts that, too.
    pub(crate) fn accepted(&self) -> Accepted {
        Accepted { architecture: self.architecture, newer: !self.strict }
    }

    /// The number of its PCI bus.
    pub(crate) fn pci_bus(&self) -> u32 {
        u32::from(self.number) + 1
    }

    /// Returns its limits. Models have only known compute capabilities.
    pub(crate) fn limits(&self) -> Limits {
        Limits::of(self.architecture).unwrap_or(Limits {
            threads: 1024,
            blocks: 16,
            shared: 48 << 10,
            shared_optin: 48 << 10,
            shared_reserved: 0,
        })
    }
}

/// Parses a size: bytes, or a number with K, M, G or T.
fn parse_size(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let shift = match text[digits.len()..].to_ascii_uppercase().as_str() {
        "" => 0,
        "K" | "KIB" => 10,
        "M" | "MIB" => 20,
        "G" | "GIB" => 30,
        "T" | "TIB" => 40,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// Parses "8.6" to 86.
fn parse_architecture(text: &str) -> Option<u32> {
    let (major, minor) = text.trim().split_once('.')?;
    let (major, minor) = (major.parse::<u32>().ok()?, minor.parse::<u32>().ok()?);
    let architecture = major.checked_mul(10)?.checked_add(minor).filter(|_| minor < 10)?;
    Limits::of(architecture).map(|_| architecture)
}

/// Returns a setting for one device: values for several devices are separated by commas, and the last one applies to
/// all further ones.
fn setting<T>(
    read: &impl Fn(&str) -> Option<String>,
    name: &str,
    index: usize,
    default: T,
    parse: impl Fn(&str) -> Option<T>,
) -> T {
    let Some(text) = read(name) else { return default };
    let Some(own) = text.split(',').take(index + 1).last() else { return default };
    parse(own).unwrap_or_else(|| {
        log::error!("{name}={text}: `{own}` is not understood and ignored");
        default
    })
}

fn models_from(read: &impl Fn(&str) -> Option<String>) -> Vec<Model> {
    let count = setting(read, "CUDA_EMULATOR_DEVICES", 0, 1, |text| {
        text.trim().parse().ok().filter(|count| *count <= MAX_DEVICES)
    });
    let number =
        |text: &str| text.trim().parse().ok().filter(|number| (1..=MAX_MULTIPROCESSORS).contains(number));
    let name = |text: &str| Some(text.trim().to_owned()).filter(|name| !name.is_empty());
    let chosen = |index| {
        setting(read, "CUDA_EMULATOR_COMPUTE_CAPABILITY", index, None, |text| {
            parse_architecture(text).map(Some)
        })
    };
    let model = |index| Model {
        name: setting(read, "CUDA_EMULATOR_NAME", index, NAME.to_owned(), name),
        memory: setting(read, "CUDA_EMULATOR_MEMORY", index, MEMORY, parse_size),
        multiprocessors: setting(read, "CUDA_EMULATOR_MULTIPROCESSORS", index, MULTIPROCESSORS, number),
        architecture: chosen(index).unwrap_or(ARCHITECTURE),
        strict: chosen(index).is_some(),
        pageable: setting(read, "CUDA_EMULATOR_PAGEABLE", index, Pageable::No, Pageable::parse),
        number: index as u8,
    };
    (0..count).map(model).collect()
}

/// Returns the devices of the environment that the program may see.
pub(crate) fn models(visible: &VisibleDevices) -> CuResult<Vec<Model>> {
    let all = models_from(&|name| env::var(name).ok());
    let uuids: Vec<_> = all.iter().map(Model::uuid).collect();
    let chosen =
        visible.choose(all.len(), &uuids).map_err(|NamedTwice| CUresult::CUDA_ERROR_INVALID_DEVICE)?;
    let models: Vec<_> = chosen.into_iter().map(|at| all[at].clone()).collect();
    if models.is_empty() { Err(CUresult::CUDA_ERROR_NO_DEVICE) } else { Ok(models) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        assert_eq!(parse_size("512"), Some(512));
        assert_eq!(parse_size("2G"), Some(2 << 30));
        assert_eq!(parse_size("3 MiB"), None);
        assert_eq!(parse_size("3MiB"), Some(3 << 20));
        assert_eq!(parse_size("99999999999T"), None);
        assert_eq!(parse_size("G"), None);
    }

    #[test]
    fn devices_take_their_part_of_a_list_or_the_last() {
        let settings = [
            ("CUDA_EMULATOR_DEVICES", "3"),
            ("CUDA_EMULATOR_MEMORY", "1G,2G"),
            ("CUDA_EMULATOR_NAME", "Small, Large"),
            ("CUDA_EMULATOR_COMPUTE_CAPABILITY", "7.5,11.1,12.0"),
            ("CUDA_EMULATOR_MULTIPROCESSORS", "4"),
            ("CUDA_EMULATOR_PAGEABLE", "no,hmm,ats"),
        ];
        let read = |name: &str| {
            settings.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        };
        let models = models_from(&read);
        let shown: Vec<_> =
            models.iter().map(|model| (&model.name[..], model.memory >> 30, model.architecture)).collect();
        assert_eq!(shown, [("Small", 1, 75), ("Large", 2, 90), ("Large", 2, 120)]);
        let newer: Vec<_> = models.iter().map(|model| model.accepted().newer).collect();
        assert_eq!(newer, [false, true, false]);
        assert!(models.iter().all(|model| model.multiprocessors == 4));
        let pageable: Vec<_> = models.iter().map(|model| model.pageable).collect();
        assert_eq!(pageable, [Pageable::No, Pageable::Hmm, Pageable::Ats]);
        assert_eq!(models[0].limits().threads, 1024);
        let numbers: Vec<_> = models.iter().map(|model| (model.uuid()[15], model.pci_bus())).collect();
        assert_eq!(numbers, [(0, 1), (1, 2), (2, 3)]);
        assert_eq!(models_from(&|_| None).len(), 1);
        assert!(models_from(&|name| (name == "CUDA_EMULATOR_DEVICES").then(|| "0".to_owned())).is_empty());
    }
}
