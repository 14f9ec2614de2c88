// SPDX-License-Identifier: GPL-2.0-only

//! Attributes of the `kernel` crate that `macro_rules` cannot express.

use proc_macro::TokenStream;

/// Removes the tests: KUnit needs the kernel's own crate.
#[proc_macro_attribute]
pub fn kunit_tests(_name: TokenStream, _tests: TokenStream) -> TokenStream {
    TokenStream::new()
}
