// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Exported functions that differ in their names, and in constants or a type.

/// Writes one exported function per name, all with the same parameters and the same body. It cannot be a function: each
/// name is a symbol of its own, and an instance of a generic function has no symbol.
///
/// The names of constants follow `fn`, their values follow each function's name:
///
/// ```text
/// exported! {
///     /// x = alpha x.
///     pub extern "C" fn(kind) [cublasSscal_v2(Type::F32), cublasDscal_v2(Type::F64)]
///     (handle: Handle, n: c_int, alpha: usize, x: usize, incx: c_int) -> Status { … }
/// }
/// ```
///
/// A type is given in the same way: `fn<Real> [cusolverDnSsyevdx<f32>, cusolverDnDsyevdx<f64>]`. Such a function lies in a
/// module of its name, in which the type has that name.
macro_rules! exported {
    () => {};
    (@typed $attributes:tt $keywords:tt $type:ident $constants:tt [$($name:ident $is:ty, $values:tt;)*] $function:tt) => { $(
        mod $name {
            use super::*;

            type $type = $is;

            $crate::exported::exported! { @one $attributes $keywords $name $constants $values $function }
        }
        #[allow(unused_imports, reason = "C calls the function; only tests do here")]
        pub use $name::$name;
    )* };
    (@untyped $attributes:tt $keywords:tt $constants:tt [$($name:ident $values:tt)*] $function:tt) => { $(
        $crate::exported::exported! { @one $attributes $keywords $name $constants $values $function }
    )* };
    (@one {$($attributes:tt)*} {$($keywords:tt)*} $name:ident $constants:tt $values:tt
     {$parameters:tt -> $result:ty, $body:tt}) => {
        $($attributes)*
        #[unsafe(no_mangle)]
        #[allow(unused_parens, clippy::useless_conversion, reason = "for one constant, and for one of the types")]
        $($keywords)* fn $name $parameters -> $result {
            let $constants = $values;
            $body
        }
    };
    ($(#[$attribute:meta])* $($keyword:ident)* "C" fn [$($name:ident),* $(,)?] $($rest:tt)*) => {
        $crate::exported::exported! { $(#[$attribute])* $($keyword)* "C" fn() [$($name()),*] $($rest)* }
    };
    ($(#[$attribute:meta])* $($keyword:ident)* "C" fn<$type:ident> [$($name:ident<$is:ty>),* $(,)?] $($rest:tt)*) => {
        $crate::exported::exported! { $(#[$attribute])* $($keyword)* "C" fn<$type>() [$($name<$is>()),*] $($rest)* }
    };
    ($(#[$attribute:meta])* $($keyword:ident)* "C" fn<$type:ident> $constants:tt [$($name:ident<$is:ty> $values:tt),* $(,)?]
     $parameters:tt -> $result:ty $body:block $($rest:tt)*) => {
        $crate::exported::exported! {
            @typed {$(#[$attribute])*} {$($keyword)* "C"} $type $constants [$($name $is, $values;)*] {$parameters -> $result, $body}
        }
        $crate::exported::exported! { $($rest)* }
    };
    ($(#[$attribute:meta])* $($keyword:ident)* "C" fn $constants:tt [$($name:ident $values:tt),* $(,)?]
     $parameters:tt -> $result:ty $body:block $($rest:tt)*) => {
        $crate::exported::exported! {
            @untyped {$(#[$attribute])*} {$($keyword)* "C"} $constants [$($name $values)*] {$parameters -> $result, $body}
        }
        $crate::exported::exported! { $($rest)* }
    };
}
pub(crate) use exported;
