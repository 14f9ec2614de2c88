// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Generators of cuRAND. The library does not return their position, so all calls count since the last one that has set it: the same calls, with
//! their lengths, bring a new generator there. They fill memory of the worker's own then.

use cuda_library_rows::block::SLOT;
use cuda_library_rows::{Body, Effect, Function, Getter, Kind, Library};

use super::library::called;

const LIBRARY: &str = "curand";
/// The maximum number of calls that are kept of a generator. Bounds the time of a resumption, and the memory of the recipe.
pub const MAX_CALLS: usize = 4096;
/// The maximum of numbers that one call fills, in bytes, and of all calls of a session. Bounds the device memory and the time of a resumption.
pub const MAX_BYTES: u64 = 1 << 30;
pub const MAX_TOTAL: u64 = 64 << 30;

/// The effect of a call on the numbers of a generator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It changes a setting.
    Set,
    /// It sets the position, whatever it was.
    Position,
    /// It gives numbers.
    Given,
}

/// Returns the effect of a function. `None` for functions of other libraries, and for those that leave the numbers as they are.
pub fn step(library: &Library, function: &Function) -> Option<Step> {
    let Body::Forward(call) = &function.body else { return None };
    let is_one = library.name == LIBRARY && matches!(function.effect, Effect::Sets(Getter::None(_)));
    (is_one && !call.facts.stream_of).then(|| match function.name.split('@').next() {
        Some("curandSetGeneratorOffset") => Step::Position,
        Some(name) if name.starts_with("curandGenerate") => Step::Given,
        _ => Step::Set,
    })
}

/// Returns the parameter of the device memory that a call fills with numbers, and its length in bytes.
pub fn output(arguments: &[u8], block: &[u8]) -> Option<(usize, u64)> {
    let (library, function) = called(arguments)?;
    step(library, function).filter(|step| *step == Step::Given)?;
    let Body::Forward(call) = &function.body else { return None };
    let place = call.parameters.iter().position(|parameter| parameter.kind == Kind::Pointer)?;
    let count = block.as_chunks::<SLOT>().0.get(place + 1).map(|count| u64::from_le_bytes(*count))?;
    let is_long = ["Double", "LongLong"].iter().any(|long| function.name.contains(long));
    Some((place, count.saturating_mul(if is_long { 8 } else { 4 })))
}

/// Returns the input of a call that fills the memory at `address` in place of that of parameter `place`.
pub fn filling(block: &[u8], place: usize, address: u64) -> Vec<u8> {
    let mut block = block.to_vec();
    if let Some(slot) = block.get_mut(place * SLOT..(place + 1) * SLOT) {
        slot.copy_from_slice(&address.to_le_bytes());
    }
    block
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_have_effects_on_numbers() {
        let (number, library) = cuda_library_rows::library(LIBRARY).unwrap();
        let of = |name: &str| library.functions.iter().find(|row| row.name == name).unwrap();
        for (name, effect) in [
            ("curandCreateGenerator", None),
            ("curandSetStream", None),
            ("curandSetPseudoRandomGeneratorSeed", Some(Step::Set)),
            ("curandSetGeneratorOffset", Some(Step::Position)),
            ("curandSetGeneratorOffset@Host", Some(Step::Position)),
            ("curandGenerateSeeds", Some(Step::Given)),
            ("curandGeneratePoisson@Host", Some(Step::Given)),
        ] {
            assert_eq!(step(library, of(name)), effect, "{name}");
        }
        let block: Vec<u8> = [64_u64, 4096, 10, 0, 0].iter().flat_map(|word| word.to_le_bytes()).collect();
        let bytes = |name: &str| output(&[number, of(name).number].map(u32::to_le_bytes).concat(), &block);
        assert_eq!(bytes("curandGenerate"), Some((1, 40)));
        assert_eq!(bytes("curandGenerateLongLong"), Some((1, 80)));
        assert_eq!(bytes("curandGenerateLogNormalDouble"), Some((1, 80)));
        assert_eq!(bytes("curandGenerateUniform@Host"), None, "host memory");
        assert_eq!(bytes("curandGenerateSeeds"), None);
        assert_eq!(filling(&block, 1, 7)[..24], [64_u64, 7, 10].map(u64::to_le_bytes).concat());
    }
}
