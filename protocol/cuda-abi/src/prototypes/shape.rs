// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR BSD-3-Clause

//! The shape of a parameter in C's calling convention. Entry points are compared with prototypes by shape.

use core::ffi::c_void;

use crate::structs::CUipcMemHandle;

/// The shape of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// An integer or a handle of this many bytes.
    Integer(usize),
    /// A floating-point number of this many bytes.
    Float(usize),
    /// A structure of this many bytes.
    Struct(usize),
    /// The address of a value of this many bytes. Sizes 0 and 1 mean the address of anything.
    Pointer(usize),
}

/// A type that parameters can have.
pub trait Parameter {
    /// The type's shape.
    const SHAPE: Shape;
}

/// Implements [`Parameter`] for values.
macro_rules! parameters {
    ($($t:ty = $shape:ident;)*) => {
        $(impl Parameter for $t { const SHAPE: Shape = Shape::$shape(size_of::<$t>()); })*
    };
}
parameters! {
    u8 = Integer;
    u16 = Integer;
    u32 = Integer;
    i32 = Integer;
    u64 = Integer;
    usize = Integer;
    f32 = Float;
    crate::CUmemLocation = Struct;
    CUipcMemHandle = Struct;
}

impl<T> Parameter for *const T {
    const SHAPE: Shape = Shape::Pointer(size_of::<T>());
}
impl<T> Parameter for *mut T {
    const SHAPE: Shape = Shape::Pointer(size_of::<T>());
}

/// Implements [`Parameter`] for pointers to functions.
macro_rules! functions {
    ($(($($p:ident),*))*) => { $(
        impl<R, $($p),*> Parameter for Option<unsafe extern "C" fn($($p),*) -> R> {
            const SHAPE: Shape = Shape::Pointer(0);
        }
        impl<R, $($p),*> Parameter for Option<extern "C" fn($($p),*) -> R> {
            const SHAPE: Shape = Shape::Pointer(0);
        }
    )* };
}
functions!(()(A)(A, B)(A, B, C)(A, B, C, D));

impl Shape {
    /// Returns whether a parameter of this shape may be declared as one of shape `given`.
    const fn fits(self, given: Self) -> bool {
        match (self, given) {
            (Self::Integer(bytes), Self::Integer(given))
            | (Self::Float(bytes), Self::Float(given))
            | (Self::Struct(bytes), Self::Struct(given)) => bytes == given,
            (Self::Pointer(bytes), Self::Pointer(given)) => bytes <= 1 || given <= 1 || bytes == given,
            // A handle may be declared as a pointer to an opaque object.
            (Self::Integer(bytes), Self::Pointer(0)) => bytes == size_of::<*const c_void>(),
            _ => false,
        }
    }
}

/// The parameters of a function.
#[derive(Clone, Copy, Debug)]
pub struct Prototype(pub(super) &'static [Shape]);

impl Prototype {
    /// Returns whether a function with these parameters has this prototype. Used in constant assertions beside its
    /// definition.
    pub const fn fits(&self, given: &[Shape]) -> bool {
        let mut index = 0;
        while index < self.0.len() && index < given.len() {
            if !self.0[index].fits(given[index]) {
                return false;
            }
            index += 1;
        }
        self.0.len() == given.len()
    }
}

/// Fails to compile if a function's parameters are not those of its prototype:
/// `check_prototype!(cuCtxSetCurrent(u64))`.
#[macro_export]
macro_rules! check_prototype {
    ($name:ident($($t:ty),* $(,)?)) => {
        const _: () = ::core::assert!(
            $crate::prototypes::$name.fits(&[$(<$t as $crate::prototypes::Parameter>::SHAPE),*]),
            ::core::concat!(::core::stringify!($name), " has other parameters in protocol/cuda-abi/src/prototypes"),
        );
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entry_points_with_other_parameters_do_not_fit() {
        use crate::prototypes::{cuCtxGetApiVersion, cuIpcCloseMemHandle, cuMemcpyHtoD_v2};
        const POINTER: Shape = Shape::Pointer(0);
        const WORD: Shape = Shape::Integer(8);
        assert!(cuMemcpyHtoD_v2.fits(&[WORD, POINTER, WORD]));
        assert!(!cuMemcpyHtoD_v2.fits(&[WORD, WORD, WORD]), "the source is an address");
        assert!(!cuMemcpyHtoD_v2.fits(&[WORD, POINTER]));
        assert!(!cuMemcpyHtoD_v2.fits(&[WORD, POINTER, Shape::Integer(4)]));
        assert!(cuCtxGetApiVersion.fits(&[POINTER, Shape::Pointer(4)]), "a context may be a pointer");
        assert!(!cuCtxGetApiVersion.fits(&[WORD, Shape::Pointer(8)]), "the version is an unsigned int");
        assert!(!cuIpcCloseMemHandle.fits(&[]));
    }
}
