//! Steps through a frame: first to check it, then to collect what it has.

use arrow_buffer::Buffer;

use super::{
    super::{Fault, PayloadKind},
    block::Rows,
    plan::{Count, Fixed, Kept, Plan, Step},
};
use crate::{ColumnError, output::Bytes};

/// A position in a frame, with the counts read so far.
pub(super) struct Walk<'a> {
    pub(super) frame: &'a [u8],
    pub(super) at: usize,
    pub(super) registers: &'a mut [Option<u64>],
}

/// What the steps have collected.
#[derive(Debug, Default)]
pub(super) struct Store {
    pub(super) blocks: Vec<Rows>,
    /// Where each list ends in its items.
    pub(super) lists: Vec<Vec<i32>>,
    pub(super) bytes: Vec<Bytes>,
}

impl Store {
    pub(super) fn new(plan: &Plan, payloads: Option<&Buffer>) -> Self {
        Self {
            blocks: plan.blocks.iter().map(|_| Rows::of(payloads)).collect(),
            lists: vec![vec![0]; plan.lists],
            bytes: (0..plan.bytes).map(|_| Bytes::default()).collect(),
        }
    }

    /// The bytes it takes.
    pub(super) fn bytes(&self) -> usize {
        self.blocks.iter().map(Rows::len).sum::<usize>()
            + self.lists.iter().map(|ends| size_of_val(&**ends)).sum::<usize>()
            + self.bytes.iter().map(Bytes::bytes).sum::<usize>()
    }

    #[inline]
    fn keep(&mut self, kept: &Kept, bytes: &[u8]) {
        self.blocks[kept.block].push(bytes);
    }

    #[inline]
    fn end(&mut self, list: Option<usize>, count: usize) -> Result<(), ColumnError> {
        let Some(list) = list else { return Ok(()) };
        let ends = &mut self.lists[list];
        let count = i32::try_from(count).map_err(|_| ColumnError::TooLarge)?;
        ends.push(ends.last().copied().unwrap_or(0).checked_add(count).ok_or(ColumnError::TooLarge)?);
        Ok(())
    }

    /// Appends what a row without a value has.
    pub(super) fn push_null(&mut self, steps: &[Step]) -> Result<(), ColumnError> {
        for step in steps {
            match step {
                Step::Block { kept: Some(kept), .. } => {
                    self.blocks[kept.block].push_zeros(kept.range.len());
                }
                Step::Block { .. } => {}
                Step::Each { count: Count::Fixed(count), list: None, steps, .. } => {
                    (0..*count).try_for_each(|_| self.push_null(steps))?;
                }
                Step::Items { list, .. } | Step::Each { list, .. } => self.end(*list, 0)?,
                Step::Bytes { column, .. } => {
                    if let Some(column) = column {
                        self.bytes[*column].push(Some(&[]))?;
                    }
                }
            }
        }
        Ok(())
    }
}

impl Walk<'_> {
    fn left(&self) -> usize {
        self.frame.len() - self.at
    }

    const fn fault(&self, kind: PayloadKind) -> Fault {
        Fault { kind, frame: 0, offset: self.at }
    }

    /// Checks that the frame is of these steps, and ends with them.
    #[inline]
    pub(super) fn check(&mut self, steps: &[Step]) -> Result<(), Fault> {
        self.check_steps(steps)?;
        if self.left() > 0 { Err(self.fault(PayloadKind::Long)) } else { Ok(()) }
    }

    #[inline]
    fn check_steps(&mut self, steps: &[Step]) -> Result<(), Fault> {
        steps.iter().try_for_each(|step| self.check_step(step))
    }

    #[inline]
    fn check_step(&mut self, step: &Step) -> Result<(), Fault> {
        match step {
            Step::Block { size, texts, .. } => {
                let block = self.frame.get(self.at..self.at + size).ok_or_else(|| self.fault(PayloadKind::Short))?;
                for (offset, of) in texts {
                    text(of, &block[*offset..], self.at + offset)?;
                }
                self.pass(step, *size);
            }
            Step::Items { size, count, text: texts, .. } => {
                let items = self.items(*count, *size)?;
                // The check of `items` leaves no more than there are.
                let bytes = items * size;
                if let Some(of) = texts {
                    let items = self.frame[self.at..self.at + bytes].chunks_exact(*size).enumerate();
                    items.into_iter().try_for_each(|(item, bytes)| text(of, bytes, self.at + item * size))?;
                }
                self.at += bytes;
            }
            Step::Each { least, count: Count::Rest, steps, .. } => {
                // Each takes a byte at least.
                let _ = least;
                while self.left() > 0 {
                    self.check_steps(steps)?;
                }
            }
            Step::Each { least, count, steps, .. } => {
                for _ in 0..self.items(*count, *least)? {
                    self.check_steps(steps)?;
                }
            }
            Step::Bytes { length, is_text, .. } => {
                let length = self.items(*length, 1)?;
                let bytes = &self.frame[self.at..self.at + length];
                if *is_text {
                    is_text_at(bytes, self.at)?;
                }
                self.at += length;
            }
        }
        Ok(())
    }

    /// How many items of at least this size follow; the frame has as many.
    #[inline]
    fn items(&self, count: Count, size: usize) -> Result<usize, Fault> {
        let most = self.left() / size;
        let count = match count {
            Count::Fixed(count) => Some(count),
            Count::Register(at) => self.registers[at].and_then(|count| usize::try_from(count).ok()),
            Count::Rest if !self.left().is_multiple_of(size) => {
                return Err(Fault { kind: PayloadKind::Long, frame: 0, offset: self.at + most * size });
            }
            Count::Rest => Some(most),
        };
        count.filter(|count| *count <= most).ok_or_else(|| self.fault(PayloadKind::Short))
    }

    /// Moves over a block, and reads its counts.
    #[inline]
    fn pass(&mut self, step: &Step, size: usize) {
        if let Step::Block { counts, .. } = step {
            for (register, offset, number) in counts {
                let start = self.at + offset;
                self.registers[*register] = number.count(&self.frame[start..start + number.scalar.width()]);
            }
        }
        self.at += size;
    }

    /// Collects what a frame has that has been checked.
    #[inline]
    pub(super) fn push(&mut self, steps: &[Step], store: &mut Store) -> Result<(), ColumnError> {
        steps.iter().try_for_each(|step| self.push_step(step, store))
    }

    #[inline]
    fn push_step(&mut self, step: &Step, store: &mut Store) -> Result<(), ColumnError> {
        match step {
            Step::Block { size, kept, .. } => {
                if let Some(kept) = kept {
                    store.keep(kept, &self.frame[self.at + kept.range.start..self.at + kept.range.end]);
                }
                self.pass(step, *size);
            }
            Step::Items { size, count, kept, list, .. } => {
                let items = self.items(*count, *size).unwrap_or(0);
                let bytes = &self.frame[self.at..self.at + items * size];
                if let Some(kept) = kept {
                    store.keep(kept, bytes);
                }
                self.at += bytes.len();
                store.end(*list, items)?;
            }
            Step::Each { count: Count::Rest, list, steps, .. } => {
                let mut items = 0;
                while self.left() > 0 {
                    self.push(steps, store)?;
                    items += 1;
                }
                store.end(*list, items)?;
            }
            Step::Each { least, count, list, steps } => {
                let items = self.items(*count, *least).unwrap_or(0);
                for _ in 0..items {
                    self.push(steps, store)?;
                }
                store.end(*list, items)?;
            }
            Step::Bytes { length, column, .. } => {
                let length = self.items(*length, 1).unwrap_or(0);
                if let Some(column) = column {
                    store.bytes[*column].push(Some(&self.frame[self.at..self.at + length]))?;
                }
                self.at += length;
            }
        }
        Ok(())
    }
}

/// Checks the text within a value of fixed size, which is at this offset of its frame.
fn text(of: &Fixed, bytes: &[u8], at: usize) -> Result<(), Fault> {
    match of {
        Fixed::Number(_) | Fixed::Bytes(_) => Ok(()),
        Fixed::Text(size) => is_text_at(&bytes[..*size], at),
        Fixed::Array(count, item) => {
            let size = item.size();
            (0..*count).try_for_each(|place| text(item, &bytes[place * size..], at + place * size))
        }
        Fixed::Struct(_, members, _) => {
            members.iter().try_for_each(|(offset, member)| text(member, &bytes[*offset..], at + offset))
        }
    }
}

fn is_text_at(bytes: &[u8], at: usize) -> Result<(), Fault> {
    let is_text = str::from_utf8(bytes);
    is_text.map(drop).map_err(|error| Fault { kind: PayloadKind::Text, frame: 0, offset: at + error.valid_up_to() })
}
