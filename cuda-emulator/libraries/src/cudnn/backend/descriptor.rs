// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Descriptors.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::sync::Arc;

use super::super::convolution::Parameters;
use super::super::pooling::Pooling;
use super::super::{BAD_PARAM, NOT_FINALIZED, NOT_SUPPORTED, Status};
use super::attribute::Attribute;
use super::graph::Graph;
use super::node::Node;
use super::pack::Pack;
use super::tensor::Tensor;

/// A `cudnnBackendDescriptorType_t`. `Other` ones exist, and cannot be finalised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Pointwise,
    Convolution,
    Engine,
    EngineConfig,
    EngineHeuristics,
    Plan,
    KnobChoice,
    OperationForward,
    OperationFilter,
    OperationData,
    OperationPointwise,
    OperationGraph,
    VariantPack,
    Tensor,
    MatMul,
    OperationMatMul,
    Reduction,
    OperationReduction,
    Resample,
    OperationResampleForward,
    OperationResampleBackward,
    OperationConcatenation,
    OperationNormForward,
    OperationNormBackward,
    OperationReshape,
    Rng,
    OperationRng,
    OperationAttentionForward,
    OperationAttentionBackward,
    Other(c_int),
}

/// The last `cudnnBackendDescriptorType_t`.
const LAST_KIND: c_int = 43;

impl Kind {
    /// The kind of that number.
    pub fn new(number: c_int) -> Option<Self> {
        Some(match number {
            0 => Self::Pointwise,
            1 => Self::Convolution,
            2 => Self::Engine,
            3 => Self::EngineConfig,
            4 => Self::EngineHeuristics,
            5 => Self::Plan,
            7 => Self::KnobChoice,
            10 => Self::OperationForward,
            11 => Self::OperationFilter,
            12 => Self::OperationData,
            13 => Self::OperationPointwise,
            15 => Self::OperationGraph,
            16 => Self::VariantPack,
            17 => Self::Tensor,
            18 => Self::MatMul,
            19 => Self::OperationMatMul,
            21 => Self::Reduction,
            22 => Self::OperationReduction,
            24 => Self::Resample,
            25 => Self::OperationResampleForward,
            26 => Self::OperationResampleBackward,
            27 => Self::OperationConcatenation,
            29 => Self::OperationNormForward,
            30 => Self::OperationNormBackward,
            31 => Self::OperationReshape,
            32 => Self::Rng,
            33 => Self::OperationRng,
            41 => Self::OperationAttentionForward,
            43 => Self::OperationAttentionBackward,
            other @ 0..=LAST_KIND => Self::Other(other),
            _ => return None,
        })
    }

    /// The descriptor is one of an operation.
    pub fn is_operation(self) -> bool {
        matches!(
            self,
            Self::OperationForward
                | Self::OperationFilter
                | Self::OperationData
                | Self::OperationPointwise
                | Self::OperationMatMul
                | Self::OperationReduction
                | Self::OperationResampleForward
                | Self::OperationResampleBackward
                | Self::OperationConcatenation
                | Self::OperationNormForward
                | Self::OperationNormBackward
                | Self::OperationReshape
                | Self::OperationRng
                | Self::OperationAttentionForward
                | Self::OperationAttentionBackward
        )
    }
}

/// The object that a finalized descriptor describes.
#[derive(Debug)]
pub enum Made {
    /// Its attributes alone.
    Plain,
    Tensor(Tensor),
    Convolution(Parameters),
    Pooling(Pooling),
    Operation(Arc<Node>),
    /// A graph, or what can execute it.
    Graph(Arc<Graph>),
    Pack(Pack),
}

/// Maximum number of descriptors of which each refers to the next one. Limits the stack that dropping them takes. A plan with a
/// ragged tensor needs seven.
const MAX_DEPTH: usize = 16;

/// A descriptor that no longer changes.
#[derive(Debug)]
pub struct Finalized {
    kind: Kind,
    /// The number of descriptors in the longest chain of references that begins here, at most [`MAX_DEPTH`].
    depth: usize,
    attributes: Attributes,
    pub made: Made,
}

/// Attributes by their names.
#[derive(Clone, Debug, Default)]
pub struct Attributes(BTreeMap<c_int, Attribute>);

impl Attributes {
    fn get(&self, name: c_int) -> Result<&Attribute, Status> {
        self.0.get(&name).ok_or(BAD_PARAM)
    }

    /// Numbers; the attribute must be set.
    pub fn integers(&self, name: c_int) -> Result<Vec<i64>, Status> {
        self.get(name)?.integers()
    }

    /// Whole numbers, which may be written as fractions; the attribute must be set.
    pub fn wholes(&self, name: c_int) -> Result<Vec<i64>, Status> {
        self.get(name)?.wholes()
    }

    /// Returns one number, or `default` if the attribute is not set.
    pub fn integer_or(&self, name: c_int, default: i64) -> Result<i64, Status> {
        match self.0.get(&name).map(Attribute::integers).transpose()?.as_deref() {
            None => Ok(default),
            Some([value]) => Ok(*value),
            Some(_) => Err(BAD_PARAM),
        }
    }

    /// One number; the attribute must be set.
    pub fn integer(&self, name: c_int) -> Result<i64, Status> {
        self.get(name)?;
        self.integer_or(name, 0)
    }

    /// Returns one number, or `default` if the attribute is not set.
    pub fn real_or(&self, name: c_int, default: f64) -> Result<f64, Status> {
        self.0.get(&name).map_or(Ok(default), Attribute::real)
    }

    /// The descriptors of an attribute, which must be set.
    pub fn descriptors(&self, name: c_int) -> Result<&[Arc<Finalized>], Status> {
        match self.get(name)? {
            Attribute::Descriptors(found) => Ok(found),
            Attribute::Plain { .. } => Err(BAD_PARAM),
            Attribute::Unfinished => Err(NOT_FINALIZED),
        }
    }

    /// The one descriptor of an attribute, which must be set.
    pub fn descriptor(&self, name: c_int) -> Result<&Arc<Finalized>, Status> {
        match self.descriptors(name)? {
            [found] => Ok(found),
            _ => Err(BAD_PARAM),
        }
    }

    /// The tensor of an attribute, which must be set.
    pub fn tensor(&self, name: c_int) -> Result<Tensor, Status> {
        self.descriptor(name)?.tensor()
    }

    /// The tensors of an attribute, which must be set.
    pub fn tensors(&self, name: c_int) -> Result<Vec<Tensor>, Status> {
        self.descriptors(name)?.iter().map(|found| found.tensor()).collect()
    }

    /// An attribute is set, and not to an empty list.
    pub fn has(&self, name: c_int) -> bool {
        match self.0.get(&name) {
            None => false,
            Some(Attribute::Descriptors(found)) => !found.is_empty(),
            Some(_) => true,
        }
    }

    /// The tensor of an attribute, if it is set.
    pub fn optional_tensor(&self, name: c_int) -> Result<Option<Tensor>, Status> {
        self.0.contains_key(&name).then(|| self.tensor(name)).transpose()
    }

    /// Builds the object of a descriptor of this kind with these attributes.
    fn made(&self, kind: Kind) -> Result<Made, Status> {
        let graph_of = |name| match &self.descriptor(name)?.made {
            Made::Graph(graph) => Ok(Made::Graph(graph.clone())),
            _ => Err(BAD_PARAM),
        };
        match kind {
            Kind::Tensor => Tensor::new(self).map(Made::Tensor),
            Kind::Convolution => super::node::parameters(self).map(Made::Convolution),
            Kind::Resample => super::node::pooling(self).map(Made::Pooling),
            Kind::Pointwise | Kind::MatMul | Kind::Reduction | Kind::Rng => Ok(Made::Plain),
            kind if kind.is_operation() => Node::new(kind, self).map(Arc::new).map(Made::Operation),
            Kind::OperationGraph => Graph::new(self).map(Arc::new).map(Made::Graph),
            Kind::EngineHeuristics => graph_of(201),
            Kind::Engine => match self.integer(1301)? {
                0 => graph_of(1300),
                // There is one engine.
                _ => Err(NOT_SUPPORTED),
            },
            Kind::EngineConfig if self.0.contains_key(&302) => Err(NOT_SUPPORTED),
            Kind::EngineConfig => graph_of(300),
            Kind::Plan => graph_of(401),
            Kind::VariantPack => Pack::new(self).map(Made::Pack),
            _ => Err(NOT_SUPPORTED),
        }
    }

    /// The depth of the deepest descriptor that they refer to.
    fn depth(&self) -> usize {
        let found = self.0.values().flat_map(|attribute| match attribute {
            Attribute::Descriptors(found) => &found[..],
            Attribute::Plain { .. } | Attribute::Unfinished => &[],
        });
        found.map(|found| found.depth).max().unwrap_or(0)
    }

    fn with(values: impl IntoIterator<Item = (c_int, Attribute)>) -> Self {
        Self(values.into_iter().collect())
    }
}

impl Finalized {
    /// Creates a descriptor of the object with these attributes.
    pub fn new(kind: Kind, attributes: Attributes) -> Result<Self, Status> {
        let depth = 1 + attributes.depth();
        if depth > MAX_DEPTH {
            return Err(BAD_PARAM);
        }
        Ok(Self { kind, depth, made: attributes.made(kind)?, attributes })
    }

    fn tensor(&self) -> Result<Tensor, Status> {
        match &self.made {
            Made::Tensor(tensor) => Ok(tensor.clone()),
            _ => Err(BAD_PARAM),
        }
    }

    /// The attributes that were set.
    pub fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    /// An attribute: one that was set, or that follows.
    fn get(&self, name: c_int) -> Result<Attribute, Status> {
        /// `CUDNN_TYPE_BACKEND_DESCRIPTOR`, `CUDNN_TYPE_NUMERICAL_NOTE`
        const NONE: [c_int; 2] = [15, 11];
        /// `CUDNN_TYPE_BEHAVIOR_NOTE`, `CUDNN_BEHAVIOR_NOTE_SUPPORTS_CUDA_GRAPH_NATIVE_API`
        const BEHAVIOUR: (c_int, c_int) = (19, 3);
        match (self.kind, name) {
            (Kind::EngineHeuristics, 202) => {
                let graph = self.attributes.get(201)?.clone();
                let engine = Attributes::with([(1300, graph), (1301, Attribute::of_integers(&[0]))]);
                let engine = Arc::new(Self::new(Kind::Engine, engine)?);
                let config = Attributes::with([(300, Attribute::Descriptors(vec![engine]))]);
                Ok(Attribute::Descriptors(vec![Arc::new(Self::new(Kind::EngineConfig, config)?)]))
            }
            // Knobs, layouts and intermediates; notes on numerics.
            (Kind::Engine, 1302 | 1304) | (Kind::EngineConfig, 301 | 302) => Ok(Attribute::none_of(NONE[0])),
            (Kind::Engine, 1303) => Ok(Attribute::none_of(NONE[1])),
            (Kind::Engine, 1305) => {
                Ok(Attribute::Plain { kind: BEHAVIOUR.0, bytes: BEHAVIOUR.1.to_ne_bytes().to_vec() })
            }
            // The number of engines.
            (Kind::OperationGraph, 802) => Ok(Attribute::of_integers(&[1])),
            // Sizes of the workspace.
            (Kind::EngineConfig, 303) | (Kind::Plan, 402) => Ok(Attribute::of_integers(&[0])),
            _ => self.attributes.0.get(&name).cloned().ok_or(NOT_SUPPORTED),
        }
    }
}

/// A `cudnnBackendDescriptor_t`.
#[derive(Debug)]
pub struct Descriptor {
    kind: Kind,
    attributes: Attributes,
    finalized: Option<Arc<Finalized>>,
}

impl Descriptor {
    pub fn new(kind: Kind) -> Self {
        Self { kind, attributes: Attributes::default(), finalized: None }
    }

    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Sets an attribute, unless the descriptor is finalised.
    pub fn set(&mut self, name: c_int, value: Attribute) -> Result<(), Status> {
        /// `CUDNN_STATUS_NOT_INITIALIZED`, which NVIDIA's library answers here.
        const IS_FINALIZED: Status = 1001;
        if self.finalized.is_some() {
            return Err(IS_FINALIZED);
        }
        // No kind has as many attributes. Bounds the memory of a descriptor.
        if self.attributes.0.len() >= 64 {
            return Err(BAD_PARAM);
        }
        self.attributes.0.insert(name, value);
        Ok(())
    }

    /// An attribute of a finalised descriptor.
    pub fn get(&self, name: c_int) -> Result<Attribute, Status> {
        self.finalized.as_ref().ok_or(NOT_FINALIZED)?.get(name)
    }

    pub fn finalize(&mut self) -> Result<(), Status> {
        self.finalized = Some(Arc::new(Finalized::new(self.kind, self.attributes.clone())?));
        Ok(())
    }

    /// Returns the object that it describes, if it is of that kind.
    pub fn finalized(&self, kind: Kind) -> Result<Arc<Finalized>, Status> {
        if self.kind != kind {
            return Err(BAD_PARAM);
        }
        self.finalized.clone().ok_or(NOT_FINALIZED)
    }

    /// Makes it describe the object of another one.
    pub fn fill(&mut self, found: Arc<Finalized>) -> Result<(), Status> {
        if self.kind != found.kind {
            return Err(BAD_PARAM);
        }
        self.finalized = Some(found);
        Ok(())
    }
}
