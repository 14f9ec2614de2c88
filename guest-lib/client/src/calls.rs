// SPDX-License-Identifier: Apache-2.0 OR MIT

//! A typed stub for each row of the call table, with the row's own documentation. Bulk data is set on the
//! [`Call`] beforehand.

#![allow(non_snake_case, unused_parens, clippy::needless_question_mark, clippy::too_many_arguments)]

use virtio_cuda_protocol::all_calls;
use virtio_cuda_protocol::cuda::*;

use crate::{Call, CudaError};

macro_rules! emit_stubs {
    ($($(#[$doc:meta])* $number:literal $kind:ident $name:ident ($($p:ident: $pt:ty),*) -> ($($r:ident: $rt:ty),*) [$($fact:ident)*] $(as $function:ident($($arg:expr),*))? $(entry $order:ident $(/ $per_thread:ident)?)? $(where $($range:ident: $bytes:expr),*)?;)*) => { $(
        $(#[$doc])*
        pub fn $name(call: &mut Call<'_>, $($p: $pt),*) -> Result<($($rt),*), CudaError> {
            let mut _touched = call.touched(Opcode::$name);
            $(_touched.add(&$p);)*
            call.run(
                Opcode::$name,
                &_touched,
                |_writer| {
                    $(Wire::put(&$p, _writer)?;)*
                    Ok(())
                },
                |_reader| Ok(($(<$rt as Wire>::take(_reader)?),*)),
            )
        }
    )* };
}
all_calls!(emit_stubs);
