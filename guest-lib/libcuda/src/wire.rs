// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Encoding of nodes, edges and parameters as bulk data.

use virtio_cuda_client::CudaError;
use virtio_cuda_client::protocol::{GraphEdge, GraphNodeId, NodeLink, Reader, Wire, Writer};

use crate::ffi::{In, Out};

/// Maximum bytes of a structure.
const MAX_STRUCT_BYTES: usize = 512;
/// `CUDA_ERROR_LOSSY_QUERY`: an edge has data that the caller's function cannot return.
const LOSSY_QUERY: i32 = 917;

/// Appends a value.
pub fn put<T: Wire>(value: &T, bytes: &mut Vec<u8>) -> Result<(), CudaError> {
    let mut room = [0; MAX_STRUCT_BYTES];
    let mut writer = Writer::new(&mut room);
    value.put(&mut writer).map_err(|_| CudaError::UNKNOWN)?;
    let used = writer.used();
    bytes.extend_from_slice(&room[..used]);
    Ok(())
}

/// Decodes a value.
pub fn take<T: Wire>(reader: &mut Reader<'_>) -> Result<T, CudaError> {
    T::take(reader).map_err(|_| CudaError::UNKNOWN)
}

/// Returns the edge data of element `index`; without an array, edges have no data.
fn data_at(edges: Option<In<[u8; 8]>>, index: usize) -> Result<[u8; 8], CudaError> {
    match edges.filter(|edges| !edges.is_null()) {
        Some(edges) => edges.at(index),
        None => Ok([0; 8]),
    }
}

/// Encodes links from C arrays.
pub fn links_in(nodes: In<u64>, edges: Option<In<[u8; 8]>>, count: usize) -> Result<Vec<u8>, CudaError> {
    let mut bytes = Vec::new();
    for index in 0..count {
        let link = NodeLink { node: GraphNodeId(nodes.at(index)?), data: data_at(edges, index)? };
        put(&link, &mut bytes)?;
    }
    Ok(bytes)
}

/// Encodes edges from C arrays.
pub fn edges_in(
    from: In<u64>,
    to: In<u64>,
    edges: Option<In<[u8; 8]>>,
    count: usize,
) -> Result<Vec<u8>, CudaError> {
    let mut bytes = Vec::new();
    for index in 0..count {
        let (from, to) = (GraphNodeId(from.at(index)?), GraphNodeId(to.at(index)?));
        put(&GraphEdge { from, to, data: data_at(edges, index)? }, &mut bytes)?;
    }
    Ok(bytes)
}

/// Returns a list to a caller that requested `*count` elements in the arrays that `store` fills, or only their number
/// (`wanted` false). The rest of the arrays is filled with 0.
pub fn give_list<T: Default + Copy>(
    list: &[T],
    wanted: bool,
    count: Out<usize>,
    mut store: impl FnMut(usize, T) -> Result<(), CudaError>,
) -> Result<(), CudaError> {
    if !wanted {
        return count.set(list.len());
    }
    let room = count.get()?;
    for index in 0..room {
        store(index, list.get(index).copied().unwrap_or_default())?;
    }
    count.set(room.min(list.len()))
}

/// Refuses edge data if the caller's function cannot return it.
pub fn check_plain(data: &[u8; 8]) -> Result<(), CudaError> {
    if *data == [0; 8] {
        return Ok(());
    }
    Err(CudaError::check(LOSSY_QUERY).err().unwrap_or(CudaError::UNKNOWN))
}
