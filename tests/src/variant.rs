// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The ways in which a test program is compiled. A program `NAME@VARIANT` is `tests/cuda/NAME`, compiled that way.

/// Separates a program's name from its variant.
const SEPARATOR: char = '@';
/// Options for every program of the table.
const COMMON: &[&str] = &["-std=c++17", "-O2", "-gencode", "arch=compute_90,code=[sm_90,compute_90]"];

/// One way.
#[derive(Debug)]
pub struct Variant {
    /// The text after the `@`; empty for the default.
    pub name: &'static str,
    /// Options of nvcc besides the common ones.
    flags: &'static [&'static str],
    /// The older major version of CUDA whose compiler compiles it.
    pub older: Option<u32>,
    /// nvcc links NVIDIA's static runtime, as it does by default.
    pub is_static: bool,
    /// Symbols are removed from nvcc's output.
    pub is_stripped: bool,
}

const SHARED: Variant =
    Variant { name: "", flags: &["--cudart=shared"], older: None, is_static: false, is_stripped: false };
const STATIC: Variant = Variant { name: "static", flags: &[], is_static: true, ..SHARED };

/// nvcc 11.8 refuses compilers that are newer than gcc 11, with which it works.
const OF_11: &[&str] = &["--cudart=shared", "-allow-unsupported-compiler"];

/// Every way, the usual one first.
const ALL: &[Variant] = &[
    SHARED,
    Variant { name: "12", older: Some(12), ..SHARED },
    Variant { name: "11", flags: OF_11, older: Some(11), ..SHARED },
    STATIC,
    Variant { name: "static-12", older: Some(12), ..STATIC },
    Variant { name: "static-no-pie", flags: &["-Xcompiler", "-no-pie", "-Xlinker", "-no-pie"], ..STATIC },
    Variant { name: "static-now", flags: &["-Xlinker", "-z,now"], ..STATIC },
    Variant { name: "static-cet", flags: &["-Xcompiler", "-fcf-protection=full"], ..STATIC },
    Variant { name: "static-debug", flags: &["-g", "-G"], ..STATIC },
    Variant {
        name: "static-gc",
        flags: &["-Xcompiler", "-ffunction-sections", "-Xlinker", "--gc-sections"],
        ..STATIC
    },
    Variant { name: "static-plugin", flags: &["-shared", "-Xcompiler", "-fPIC"], ..STATIC },
    Variant {
        name: "static-plugin-12",
        flags: &["-shared", "-Xcompiler", "-fPIC"],
        older: Some(12),
        ..STATIC
    },
    Variant { name: "static-stripped", is_stripped: true, ..STATIC },
    Variant { name: "static-stripped-12", older: Some(12), is_stripped: true, ..STATIC },
];

impl Variant {
    /// The source and the variant of a program; none if there is no such variant.
    pub fn of(program: &str) -> Option<(&str, &'static Self)> {
        let (source, name) = program.split_once(SEPARATOR).unwrap_or((program, ""));
        Some((source, ALL.iter().find(|variant| variant.name == name)?))
    }

    /// Returns whether a program contains NVIDIA's static runtime.
    pub fn is_static(program: &str) -> bool {
        Self::of(program).is_some_and(|(_, variant)| variant.is_static)
    }

    /// All flags for nvcc.
    pub fn flags(&self) -> impl Iterator<Item = &'static str> {
        COMMON.iter().chain(self.flags).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_have_a_source_and_a_variant() {
        let of = |program| {
            Variant::of(program).map(|(source, variant)| (source, variant.older, variant.is_static))
        };
        assert_eq!(of("sum"), Some(("sum", None, false)));
        assert_eq!(of("sum@12"), Some(("sum", Some(12), false)));
        assert_eq!(of("sum@static-12"), Some(("sum", Some(12), true)));
        assert_eq!(of("sum@nonsense"), None);
    }
}
