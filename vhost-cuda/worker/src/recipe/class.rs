// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The classes of things that calls make and whose settings they change, and which of them live.

use std::sync::{Arc, Weak};

use virtio_cuda_protocol::cuda::{FIRST_HANDLE, Opcode};

use crate::objects::Object;

/// A class of things that have names of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// Settings of the session. The only name is 0.
    Session,
    /// Settings of a guest thread, by its number.
    Thread,
    /// Settings of a device, by its ordinal.
    Device,
    /// Contexts.
    Context,
    /// Streams. A default stream is a part of its context.
    Stream,
    /// Events.
    Event,
    /// Modules.
    Module,
    /// Libraries.
    Library,
    /// Functions and kernels.
    Function,
    /// Variables of libraries that have numbers.
    Variable,
    /// Arrays, planes of arrays, and levels of mipmapped arrays.
    Array,
    /// Mipmapped arrays.
    Mipmap,
    /// Texture objects, by the driver's value.
    Texture,
    /// Surface objects, by the driver's value.
    Surface,
    /// Texture references.
    TextureReference,
    /// Surface references.
    SurfaceReference,
    /// Memory pools.
    Pool,
    /// Descriptions of resources.
    Description,
    /// Graphs.
    Graph,
    /// Nodes. Their graph counts.
    Node,
    /// Executable graphs.
    Exec,
    /// User objects of graphs.
    UserObject,
    /// Links.
    Link,
    /// Handles of one of NVIDIA's libraries.
    Handle {
        /// The library's number.
        library: u32,
        /// The number of the kind in the library.
        kind: u32,
    },
}

/// An object that lives. While this exists, no other one is taken for it.
#[derive(Clone, Debug)]
pub enum Identity {
    /// It is in a table of objects.
    Object(Weak<Object>),
    /// Its name is all that there is.
    Name,
}

impl Identity {
    /// Returns that of an object.
    pub fn of(object: &Arc<Object>) -> Self {
        Self::Object(Arc::downgrade(object))
    }

    /// Returns whether nothing refers to the object any longer.
    pub fn has_ended(&self) -> bool {
        matches!(self, Self::Object(object) if object.strong_count() == 0)
    }

    /// Returns whether both are of the same object of a table.
    pub fn is_object(&self, other: &Self) -> bool {
        matches!((self, other), (Self::Object(one), Self::Object(other)) if Weak::ptr_eq(one, other))
    }

    /// Returns whether both are of the same object.
    pub fn is(&self, other: &Self) -> bool {
        self.is_object(other) || matches!((self, other), (Self::Name, Self::Name))
    }
}

impl Class {
    /// Returns the class of what a field of type `of` names in a row. `None` for values that name nothing, and for memory.
    pub fn of(opcode: Opcode, of: &str) -> Option<Self> {
        Some(match (of, opcode) {
            ("DeviceOrdinal", _) => Self::Device,
            ("ContextId", _) => Self::Context,
            ("StreamId", _) => Self::Stream,
            ("EventId", _) => Self::Event,
            ("ModuleId", _) => Self::Module,
            ("LibraryId", _) => Self::Library,
            ("FunctionId", _) => Self::Function,
            ("VariableId", _) => Self::Variable,
            ("ArrayId", _) => Self::Array,
            ("MipmappedArrayId", _) => Self::Mipmap,
            ("TexRefId", _) => Self::TextureReference,
            ("SurfRefId", _) => Self::SurfaceReference,
            ("MemoryPoolId", _) => Self::Pool,
            ("ResourceDescId", _) => Self::Description,
            ("GraphId", _) => Self::Graph,
            ("GraphNodeId", _) => Self::Node,
            ("GraphExecId", _) => Self::Exec,
            ("UserObjectId", _) => Self::UserObject,
            ("LinkId", _) => Self::Link,
            // The driver chooses these values, so they have no type of the guest's names.
            ("u64", Opcode::cuTexObjectCreate) => Self::Texture,
            ("u64", Opcode::cuSurfObjectCreate) => Self::Surface,
            _ => return None,
        })
    }

    /// Returns the reason for which objects of this class cannot be made again.
    pub fn obstacle(self) -> Option<&'static str> {
        match self {
            Self::Link => Some("links are not followed until they end"),
            _ => None,
        }
    }

    /// Returns whether others need objects of this class after these have ended: descriptors that a plan was made from.
    pub fn is_held(self) -> bool {
        matches!(self, Self::Handle { .. })
    }

    /// Returns whether calls for objects of this class are kept. The others count while they live, with [`Self::obstacle`], or are
    /// of graphs.
    pub fn is_kept(self) -> bool {
        !self.is_of_graphs() && self.obstacle().is_none()
    }

    /// Returns whether it is of graphs, which are looked at when they end and not followed ([`crate::handlers::graph::again`]).
    pub fn is_of_graphs(self) -> bool {
        matches!(self, Self::Graph | Self::Node | Self::Exec | Self::UserObject)
    }

    /// Returns whether `id` is a name in each context: that of a default stream, or the driver's number of a texture or surface.
    pub fn is_of_context(self, id: u64) -> bool {
        matches!(self, Self::Texture | Self::Surface) || self == Self::Stream && id < FIRST_HANDLE
    }
}
