// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Compares the functions of this crate with the rows of NVIDIA's. The worker calls them by the rows: with other parameters the
//! behaviour would be undefined.

use std::any::type_name;

/// A function of C's.
trait Signature {
    /// Returns how its arguments and its result cross, in the format of `class` in `build.rs`.
    fn classes(self) -> String;
}

/// Implements [`Signature`] for functions of up to so many parameters: Rust has no generic number of them.
macro_rules! signatures {
    () => { signatures!(@one); };
    ($first:ident $($rest:ident)*) => { signatures!(@one $first $($rest)*); signatures!($($rest)*); };
    (@one $($parameter:ident)*) => {
        impl<R, $($parameter),*> Signature for unsafe extern "C" fn($($parameter),*) -> R {
            fn classes(self) -> String {
                let parameters: Vec<String> = vec![$(class::<$parameter>()),*];
                format!("{} -> {}", parameters.join(" "), class::<R>())
            }
        }
    };
}

signatures! {
    P1 P2 P3 P4 P5 P6 P7 P8 P9 P10 P11 P12 P13 P14 P15 P16 P17 P18 P19 P20 P21 P22 P23 P24 P25 P26 P27 P28 P29 P30 P31 P32 P33 P34
    P35 P36 P37 P38 P39 P40
}

/// Returns how a value of that type crosses.
fn class<T>() -> String {
    match (type_name::<T>(), size_of::<T>()) {
        ("num_complex::Complex<f64>", _) => "v8 v8".into(),
        ("num_complex::Complex<f32>" | "f64" | "f32", bytes) => format!("v{bytes}"),
        // The System V ABI for x86-64 passes longer structures in memory.
        (_, bytes @ 17..) => format!("m{bytes}"),
        (_, bytes) => format!("g{bytes}"),
    }
}

fn compare(name: &str, function: impl Signature, row: &str, wrong: &mut Vec<String>) {
    let classes = function.classes();
    if classes != row {
        wrong.push(format!("{name}: {classes}, but its row has {row}"));
    }
}

/// Calls `compare` for each function of `names.txt`.
mod of_rows {
    use super::compare;
    use crate::cublas::{
        banded::*, batched::*, gemm::*, gemm_ex::*, handle::*, level1::*, level2::*, level3::*, rotations::*,
        typed::*,
    };
    use crate::cublaslt::{algorithm::*, matmul::*, transform::*, *};
    use crate::cudnn::{
        api::activation::*, api::algorithms::*, api::arithmetic::*, api::batch_norm::*, api::convolution::*,
        api::convolution_descriptor::*, api::ctc::*, api::ctc_descriptor::*, api::filter::*, api::handle::*,
        api::pooling::*, api::tensor::*, backend::*,
    };
    use crate::cufft::api::*;
    use crate::curand::*;
    use crate::cusolver::{
        batched::*, decompose::*, factor::*, generalised::*, generic::*, handle::*, range::*,
        sparse::handle::*, sparse::low_level::*, sparse::order::*, sparse::refactor::*, sparse::solve::*,
    };
    use crate::cusparse::{
        batch::*, blocks::*, compress::*, convert::*, descriptors::*, handle::*, matrix::*, product::*,
        reused_product::*, sampled_product::*, solve::*, sort::*, sparse_product::*, sum::*, vector::*,
    };
    use crate::cusparselt::{objects::*, product::*, sparse::*, *};
    use crate::nccl::api::*;
    use crate::version::*;

    include!(concat!(env!("OUT_DIR"), "/signatures.rs"));
}

#[test]
fn functions_have_the_parameters_of_their_rows() {
    let mut wrong = Vec::new();
    assert!(of_rows::all(&mut wrong) > 800, "functions were not found");
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn other_parameters_are_noticed() {
    #[repr(C)]
    struct Structure([u8; 64]);
    extern "C" fn function(_: i32, _: f32, _: *mut f64, _: num_complex::Complex<f64>, _: Structure) -> usize {
        0
    }
    let function = function as unsafe extern "C" fn(_, _, _, _, _) -> _;
    let mut wrong = Vec::new();
    compare("f", function, "g4 v4 g8 v8 v8 m64 -> g8", &mut wrong);
    assert!(wrong.is_empty(), "{wrong:?}");
    for row in [
        "g8 v4 g8 v8 v8 m64 -> g8",
        "g4 g4 g8 v8 v8 m64 -> g8",
        "g4 v4 v8 v8 v8 m64 -> g8",
        "g4 v4 g8 v8 v8 m64 -> g4",
    ] {
        compare("f", function, row, &mut wrong);
    }
    assert_eq!(wrong.len(), 4);
}
