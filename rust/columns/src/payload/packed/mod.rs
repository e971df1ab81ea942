//! Packed layouts: fixed fields, arrays and structs in frames.

mod block;
mod gather;
mod plan;
mod walk;

use std::{iter, sync::Arc};

use arrow_array::ArrayRef;
use arrow_buffer::{Buffer, NullBuffer};

use self::{
    gather::Collected,
    plan::Plan,
    walk::{Store, Walk},
};
use super::{Fault, PayloadKind, layout::Field};
use crate::ColumnError;

pub(super) use plan::column_type;

/// A packed layout, compiled.
#[derive(Clone, Debug)]
pub(super) struct Packed {
    plan: Arc<Plan>,
    /// Whether frames beyond those of the layout are ignored.
    open: bool,
}

impl Packed {
    /// With the columns of these names alone.
    pub(super) fn new(frames: &[Vec<Field>], open: bool, is_kept: &dyn Fn(&str) -> bool) -> Self {
        Self { plan: Arc::new(Plan::new(frames, is_kept)), open }
    }

    /// The most bytes that columns take for each byte of a frame.
    pub(super) fn growth(&self) -> usize {
        self.plan.growth
    }

    /// The bytes that columns take for a row without a value.
    pub(super) fn null(&self) -> usize {
        self.plan.null
    }
}

/// The columns, being built.
#[derive(Debug)]
pub(super) struct Columns {
    packed: Packed,
    store: Store,
    /// The counts of the frames being read; none where one is below zero.
    registers: Vec<Option<u64>>,
}

impl Columns {
    pub(super) fn new(packed: &Packed, payloads: Option<&Buffer>) -> Self {
        let (store, registers) = (Store::new(&packed.plan, payloads), vec![None; packed.plan.registers]);
        Self { packed: packed.clone(), store, registers }
    }

    /// Whether these frames are of the layout.
    #[inline]
    pub(super) fn check(&mut self, frames: &[&[u8]]) -> Result<(), Fault> {
        let wanted = &self.packed.plan.frames;
        if frames.len() < wanted.len() || (frames.len() > wanted.len() && !self.packed.open) {
            return Err(Fault { kind: PayloadKind::Frames, frame: frames.len().min(wanted.len()), offset: 0 });
        }
        for (at, (frame, steps)) in iter::zip(frames, wanted).enumerate() {
            let mut walk = Walk { frame, at: 0, registers: &mut self.registers };
            walk.check(steps).map_err(|fault| Fault { frame: at, ..fault })?;
        }
        Ok(())
    }

    /// Appends a row of frames that have been checked.
    #[inline]
    pub(super) fn push(&mut self, frames: &[&[u8]]) -> Result<(), ColumnError> {
        for (frame, steps) in iter::zip(frames, &self.packed.plan.frames) {
            let mut walk = Walk { frame, at: 0, registers: &mut self.registers };
            walk.push(steps, &mut self.store)?;
        }
        Ok(())
    }

    pub(super) fn push_null(&mut self) -> Result<(), ColumnError> {
        self.packed.plan.frames.iter().try_for_each(|steps| self.store.push_null(steps))
    }

    /// The bytes they take.
    pub(super) fn bytes(&self) -> usize {
        self.store.bytes()
    }

    pub(super) fn finish(&mut self, nulls: Option<&NullBuffer>) -> Result<Vec<ArrayRef>, ColumnError> {
        let store = std::mem::take(&mut self.store);
        let mut collected = Collected::new(&self.packed.plan.blocks, store);
        self.packed.plan.nodes.iter().map(|node| collected.column(node, nulls.cloned())).collect()
    }
}
