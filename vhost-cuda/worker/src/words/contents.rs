// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Bulk input and output that consists of a list of values.

use virtio_cuda_protocol::cuda::{GraphEdge, NODE_LINK_BYTES, NodeLink, Reader, Wire, Writer};

use crate::call::CallContext;
use crate::gpu::{CuResult, CudaError, Edges, Links};

/// The maximum bytes of edges or parameters in one call.
const MAX_BULK_BYTES: u64 = 16 << 20;
/// Room in bytes for the parameters of any kind of node, without the data after them.
const MAX_STRUCT_BYTES: usize = 512;

/// Returns the bulk input, if it is not too long.
pub fn bulk(cx: &CallContext<'_>) -> CuResult<Vec<u8>> {
    if cx.bulk_in.bytes() > MAX_BULK_BYTES {
        return Err(CudaError::INVALID_VALUE);
    }
    Ok(cx.bulk_in.contents()?.into_owned().0)
}

/// Takes a value from bulk input.
pub fn take<T: Wire>(reader: &mut Reader<'_>) -> CuResult<T> {
    T::take(reader).map_err(|_| CudaError::INVALID_VALUE)
}

/// Encodes a value as bulk output.
pub fn encode<T: Wire>(value: &T) -> CuResult<Vec<u8>> {
    let mut room = [0; MAX_STRUCT_BYTES];
    let mut writer = Writer::new(&mut room);
    value.put(&mut writer).map_err(|_| CudaError::INVALID_VALUE)?;
    let used = writer.used();
    Ok(room[..used].to_vec())
}

/// Writes as many values as there is room for.
pub fn put_all<T: Wire>(cx: &mut CallContext<'_>, values: impl IntoIterator<Item = T>) -> CuResult<u32> {
    let room = cx.bulk_out.room() as usize;
    let (mut bytes, mut count) = (Vec::new(), 0u32);
    for value in values {
        let one = encode(&value)?;
        count += 1;
        if bytes.len() + one.len() <= room {
            bytes.extend_from_slice(&one);
        }
    }
    cx.bulk_out.put(&bytes)?;
    Ok(count)
}

/// Takes `count` links and looks their nodes up.
pub fn links(cx: &CallContext<'_>, reader: &mut Reader<'_>, count: usize) -> CuResult<Links> {
    if count > reader.rest().len() / NODE_LINK_BYTES {
        return Err(CudaError::INVALID_VALUE);
    }
    let mut links = Links::default();
    for _ in 0..count {
        let link: NodeLink = take(reader)?;
        links.nodes.push(cx.node(link.node)?);
        links.edges.push(link.data);
    }
    Ok(links)
}

/// Returns the edges of the bulk input.
pub fn edges(cx: &CallContext<'_>) -> CuResult<Edges> {
    let bytes = bulk(cx)?;
    let mut reader = Reader::new(&bytes);
    let mut edges = Edges::default();
    while !reader.rest().is_empty() {
        let edge: GraphEdge = take(&mut reader)?;
        edges.from.push(cx.node(edge.from)?);
        edges.to.nodes.push(cx.node(edge.to)?);
        edges.to.edges.push(edge.data);
    }
    Ok(edges)
}

pub fn all_links(cx: &CallContext<'_>) -> CuResult<Links> {
    let bytes = bulk(cx)?;
    links(cx, &mut Reader::new(&bytes), bytes.len() / NODE_LINK_BYTES)
}
