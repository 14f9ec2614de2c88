// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Shares of GPU time between virtual machines ([operator's view](../../../docs/shares.md)).

pub mod policy;
