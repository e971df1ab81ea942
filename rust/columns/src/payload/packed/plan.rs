//! A packed layout as steps through a frame, and as columns of what they collect.
//!
//! Fields of fixed size that follow each other are one block: its bytes are copied as they are, row after row, and each
//! of its fields becomes a column in one loop at the end. The items of an array are rows of a block of their own.

use std::{collections::HashSet, ops::Range, sync::Arc};

use arrow_schema::{DataType, Field as Column, Fields};

use super::super::layout::{Field, Number, Repeat, Scalar, Type, least};
use crate::output::element_field;

/// From so many bytes on a field has its block to itself, which then is its column.
const LARGE: usize = 64;

/// The bytes of an end of a list.
const END: usize = size_of::<i32>();

/// A step through a frame. What is not kept is checked alone.
#[derive(Clone, Debug)]
pub(super) enum Step {
    /// Fields of fixed size.
    Block {
        size: usize,
        kept: Option<Kept>,
        /// The counts among them, each with its register and offset.
        counts: Vec<(usize, usize, Number)>,
        /// Those with text, and their offsets.
        texts: Vec<(usize, Fixed)>,
    },
    /// An array of items of fixed size.
    Items { size: usize, count: Count, kept: Option<Kept>, list: Option<usize>, text: Option<Fixed> },
    /// An array of other items.
    Each { least: usize, count: Count, list: Option<usize>, steps: Vec<Self> },
    /// Bytes, which may be text.
    Bytes { length: Count, column: Option<usize>, is_text: bool },
}

/// Where the bytes of a block go, and which of them.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    pub(super) block: usize,
    pub(super) range: Range<usize>,
}

/// A number of items or bytes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Count {
    Fixed(usize),
    /// That in this register.
    Register(usize),
    /// As many as are left of the frame.
    Rest,
}

/// A type of fixed size.
#[derive(Clone, Debug)]
pub(super) enum Fixed {
    Number(Number),
    Bytes(usize),
    Text(usize),
    Array(usize, Box<Self>),
    /// Fields with their offsets, and the size of all.
    Struct(Fields, Vec<(usize, Self)>, usize),
}

/// How a column is made of what the steps collect.
#[derive(Clone, Debug)]
pub(super) enum Node {
    /// A field of a block.
    Fixed {
        block: usize,
        offset: usize,
        of: Fixed,
    },
    Bytes {
        column: usize,
        is_text: bool,
    },
    /// Lists that end where a list of ends says.
    List {
        list: usize,
        item: Box<Self>,
    },
    Array {
        count: usize,
        item: Box<Self>,
    },
    Struct(Fields, Vec<Self>),
}

/// What a layout is compiled to.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    /// Those of each frame.
    pub(super) frames: Vec<Vec<Step>>,
    /// Those of the columns that are kept.
    pub(super) nodes: Vec<Node>,
    pub(super) blocks: Vec<Block>,
    pub(super) lists: usize,
    pub(super) bytes: usize,
    pub(super) registers: usize,
    /// The most bytes that are collected for each byte of a frame.
    pub(super) growth: usize,
    /// The bytes that are collected for a row without a value.
    pub(super) null: usize,
}

/// The rows of a block: which part of the fields they have.
#[derive(Clone, Debug, Default)]
pub(super) struct Block {
    pub(super) start: usize,
    pub(super) size: usize,
}

impl Plan {
    /// The columns of these frames that are kept.
    pub(super) fn new(frames: &[Vec<Field>], is_kept: &dyn Fn(&str) -> bool) -> Self {
        let mut used = HashSet::new();
        for fields in frames {
            counted(fields, &mut used);
        }
        let mut compiler = Compiler { used, scopes: vec![Vec::new()], ..Compiler::default() };
        let (mut steps, mut nodes) = (Vec::new(), Vec::new());
        for fields in frames {
            let (frame, columns) = compiler.sequence(fields, Some(is_kept));
            steps.push(frame);
            nodes.extend(columns.into_iter().flatten());
        }
        let Compiler { blocks, lists, bytes, registers, growth, .. } = compiler;
        let null = steps.iter().fold(0_usize, |all, steps| all.saturating_add(collected(steps)));
        Self { frames: steps, nodes, blocks, lists, bytes, registers, growth, null }
    }
}

/// The names of the fields that count others.
fn counted<'a>(fields: &'a [Field], used: &mut HashSet<&'a str>) {
    for field in fields {
        if let Type::Struct(fields) = &field.of {
            counted(fields, used);
        }
        let length = if let Type::Bytes { length, .. } = &field.of { length } else { &field.repeat };
        for repeat in [length, &field.repeat] {
            if let Repeat::Counted(name) = repeat {
                used.insert(name);
            }
        }
    }
}

/// The bytes that these steps collect at least.
fn collected(steps: &[Step]) -> usize {
    let of = |step: &Step| match step {
        Step::Block { kept, .. } => kept.as_ref().map_or(0, |kept| kept.range.len()),
        Step::Items { list, .. } => list.map_or(0, |_| END),
        Step::Each { list: None, count: Count::Fixed(count), steps, .. } => count.saturating_mul(collected(steps)),
        Step::Each { list, .. } => list.map_or(0, |_| END),
        Step::Bytes { column, .. } => column.map_or(0, |_| END),
    };
    steps.iter().fold(0, |all, step| all.saturating_add(of(step)))
}

#[derive(Default)]
struct Compiler<'a> {
    used: HashSet<&'a str>,
    /// The registers of the counts of each struct around, the innermost last.
    scopes: Vec<Vec<(&'a str, usize)>>,
    blocks: Vec<Block>,
    lists: usize,
    bytes: usize,
    registers: usize,
    growth: usize,
}

/// A block that is not yet complete.
#[derive(Default)]
struct Open {
    size: usize,
    kept: Option<Range<usize>>,
    counts: Vec<(usize, usize, Number)>,
    texts: Vec<(usize, Fixed)>,
}

impl<'a> Compiler<'a> {
    /// The steps through fields, and their columns: none for those that are not kept. Without a choice all are.
    fn sequence(
        &mut self,
        fields: &'a [Field],
        is_kept: Option<&dyn Fn(&str) -> bool>,
    ) -> (Vec<Step>, Vec<Option<Node>>) {
        let (mut steps, mut nodes, mut open) = (Vec::new(), Vec::new(), Open::default());
        for field in fields {
            let keep = !field.of.is_pad() && is_kept.is_none_or(|is_kept| is_kept(&field.name));
            let node = match field.size() {
                Some(size) => Some(self.fixed(field, size, keep, &mut open, &mut steps)),
                None => self.variable(field, keep, &mut open, &mut steps),
            };
            if !field.of.is_pad() {
                nodes.push(node.filter(|_| keep));
            }
        }
        self.close(&mut open, &mut steps);
        (steps, nodes)
    }

    /// Adds a field to the block, or makes one of it alone.
    fn fixed(&mut self, field: &'a Field, size: usize, keep: bool, open: &mut Open, steps: &mut Vec<Step>) -> Node {
        let of = fixed(&field.of, &field.repeat);
        if size >= LARGE {
            self.close(open, steps);
        }
        let offset = open.size;
        open.size += size;
        if keep {
            let start = open.kept.as_ref().map_or(offset, |kept| kept.start);
            open.kept = Some(start..open.size);
        }
        if let (Type::Number(number), Repeat::Once) = (&field.of, &field.repeat)
            && self.used.contains(field.name.as_str())
            && number.scalar.is_integer()
        {
            open.counts.push((self.registers, offset, *number));
            if let Some(scope) = self.scopes.last_mut() {
                scope.push((&field.name, self.registers));
            }
            self.registers += 1;
        }
        if has_text(&of) {
            open.texts.push((offset, of.clone()));
        }
        let node = Node::Fixed { block: self.blocks.len(), offset, of };
        if size >= LARGE {
            self.close(open, steps);
        }
        node
    }

    /// Ends the block.
    fn close(&mut self, open: &mut Open, steps: &mut Vec<Step>) {
        let Open { size, kept, counts, texts } = std::mem::take(open);
        if size == 0 {
            return;
        }
        let kept = self.block(kept);
        steps.push(Step::Block { size, kept, counts, texts });
    }

    /// A block of which these bytes are kept.
    fn block(&mut self, range: Option<Range<usize>>) -> Option<Kept> {
        let kept = range.map(|range| Kept { block: self.blocks.len(), range });
        let block = kept.as_ref().map(|kept| Block { start: kept.range.start, size: kept.range.len() });
        self.blocks.push(block.unwrap_or_default());
        kept
    }

    fn variable(&mut self, field: &'a Field, keep: bool, open: &mut Open, steps: &mut Vec<Step>) -> Option<Node> {
        if let (Type::Struct(fields), Repeat::Once) = (&field.of, &field.repeat) {
            return Some(self.inlined(fields, keep, open, steps));
        }
        self.close(open, steps);
        match &field.of {
            Type::Pad(length) => {
                steps.push(Step::Bytes { length: self.count(length), column: None, is_text: false });
                None
            }
            Type::Bytes { length, is_text } if length.fixed().is_none() => {
                let (length, is_text) = (self.count(length), *is_text);
                steps.push(Step::Bytes { length, column: keep.then_some(self.bytes), is_text });
                self.bytes += 1;
                Some(Node::Bytes { column: self.bytes - 1, is_text })
            }
            of @ (Type::Number(_) | Type::Bytes { .. } | Type::Struct(_)) => {
                Some(self.array(of, &field.repeat, keep, steps))
            }
        }
    }

    /// A struct of varied size that is no item of an array: its fields are as those around it.
    fn inlined(&mut self, fields: &'a [Field], keep: bool, open: &mut Open, steps: &mut Vec<Step>) -> Node {
        self.close(open, steps);
        self.scopes.push(Vec::new());
        let (within, nodes) = self.sequence(fields, Some(&|_| keep));
        self.scopes.pop();
        steps.extend(within);
        Node::Struct(columns(fields), nodes.into_iter().flatten().collect())
    }

    fn array(&mut self, of: &'a Type, repeat: &Repeat, keep: bool, steps: &mut Vec<Step>) -> Node {
        let count = self.count(repeat);
        let list = match count {
            Count::Fixed(_) => None,
            Count::Register(_) | Count::Rest => {
                self.lists += 1;
                Some(self.lists - 1)
            }
        };
        let kept_list = list.filter(|_| keep);
        let item = if let Some(size) = of.size() {
            let of = fixed(of, &Repeat::Once);
            let block = self.blocks.len();
            let kept = self.block(keep.then_some(0..size));
            let text = has_text(&of).then(|| of.clone());
            steps.push(Step::Items { size, count, kept, list: kept_list, text });
            Node::Fixed { block, offset: 0, of }
        } else {
            self.scopes.push(Vec::new());
            let fields = if let Type::Struct(fields) = of { fields.as_slice() } else { &[] };
            let (within, nodes) = self.sequence(fields, Some(&|_| keep));
            self.scopes.pop();
            let least = least(fields).max(1);
            self.growth = self.growth.max(collected(&within).div_ceil(least));
            steps.push(Step::Each { least, count, list: kept_list, steps: within });
            Node::Struct(columns(fields), nodes.into_iter().flatten().collect())
        };
        let item = Box::new(item);
        match (list, count) {
            (Some(list), _) => Node::List { list, item },
            (None, Count::Fixed(count)) => Node::Array { count, item },
            // Only a fixed count has no list.
            (None, Count::Register(_) | Count::Rest) => Node::Array { count: 1, item },
        }
    }

    fn count(&self, repeat: &Repeat) -> Count {
        match repeat {
            Repeat::Once => Count::Fixed(1),
            Repeat::Fixed(count) => Count::Fixed(*count),
            Repeat::Rest => Count::Rest,
            Repeat::Counted(name) => {
                let mut known = self.scopes.iter().rev().flat_map(|scope| scope.iter().rev());
                // The parser has checked that there is one.
                known.find(|(known, _)| known == name).map_or(Count::Fixed(0), |(_, at)| Count::Register(*at))
            }
        }
    }
}

/// A type of fixed size.
fn fixed(of: &Type, repeat: &Repeat) -> Fixed {
    let item = match of {
        Type::Number(number) => Fixed::Number(*number),
        Type::Bytes { length, is_text: true } => Fixed::Text(length.fixed().unwrap_or(0)),
        Type::Bytes { length, is_text: false } | Type::Pad(length) => Fixed::Bytes(length.fixed().unwrap_or(0)),
        Type::Struct(fields) => {
            let (mut at, mut members) = (0, Vec::new());
            for field in fields {
                if !field.of.is_pad() {
                    members.push((at, fixed(&field.of, &field.repeat)));
                }
                at += field.size().unwrap_or(0);
            }
            Fixed::Struct(columns(fields), members, at)
        }
    };
    if let Repeat::Fixed(count) = repeat { Fixed::Array(*count, Box::new(item)) } else { item }
}

impl Fixed {
    pub(super) fn size(&self) -> usize {
        match self {
            Self::Number(number) => number.scalar.width(),
            Self::Bytes(size) | Self::Text(size) | Self::Struct(_, _, size) => *size,
            Self::Array(count, item) => count * item.size(),
        }
    }
}

fn has_text(of: &Fixed) -> bool {
    match of {
        Fixed::Text(_) => true,
        Fixed::Number(_) | Fixed::Bytes(_) => false,
        Fixed::Array(_, item) => has_text(item),
        Fixed::Struct(_, members, _) => members.iter().any(|(_, member)| has_text(member)),
    }
}

/// The columns of the fields of a struct.
fn columns(fields: &[Field]) -> Fields {
    let columns = fields.iter().filter(|field| !field.of.is_pad());
    columns.map(|field| Column::new(&field.name, column_type(field), true)).collect()
}

/// The type of the column of a field.
pub(in super::super) fn column_type(field: &Field) -> DataType {
    let of = match &field.of {
        Type::Number(number) => number_type(number.scalar),
        Type::Bytes { is_text: true, .. } => DataType::Utf8,
        Type::Bytes { length, .. } | Type::Pad(length) => match length.fixed() {
            Some(length) => DataType::FixedSizeBinary(arrow_size(length)),
            None => DataType::Binary,
        },
        Type::Struct(fields) => DataType::Struct(columns(fields)),
    };
    match &field.repeat {
        Repeat::Once => of,
        Repeat::Fixed(count) => DataType::FixedSizeList(element_field(of), arrow_size(*count)),
        Repeat::Counted(_) | Repeat::Rest => DataType::List(element_field(of)),
    }
}

/// The parser refuses what is larger.
pub(super) fn arrow_size(size: usize) -> i32 {
    i32::try_from(size).unwrap_or(i32::MAX)
}

const fn number_type(scalar: Scalar) -> DataType {
    match scalar {
        Scalar::I8 => DataType::Int8,
        Scalar::I16 => DataType::Int16,
        Scalar::I32 => DataType::Int32,
        Scalar::I64 => DataType::Int64,
        Scalar::U8 => DataType::UInt8,
        Scalar::U16 => DataType::UInt16,
        Scalar::U32 => DataType::UInt32,
        Scalar::U64 => DataType::UInt64,
        Scalar::F16 => DataType::Float16,
        Scalar::F32 => DataType::Float32,
        Scalar::F64 => DataType::Float64,
        Scalar::Bool => DataType::Boolean,
    }
}

/// Shared, as a list and a fixed one have the same.
pub(super) fn item_field(of: &DataType) -> Arc<Column> {
    element_field(of.clone())
}
