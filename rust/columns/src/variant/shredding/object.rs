//! Objects taken apart, and written again of the same parts.

use crate::variant::{Member, low, put_object_header, reading::Variant};

/// The members of an object whose values lie one after another in the order in which its names were listed, as they are
/// written here: the numbers of the names, and the values. None of a value of another kind, or of another order.
pub(super) fn members(object: Variant<'_>) -> Option<Vec<(usize, &[u8])>> {
    if !object.is_object() {
        return None;
    }
    let mut members: Vec<_> =
        object.numbered().map(|(number, member)| Some((number?, member.bytes()))).collect::<Option<_>>()?;
    members.sort_unstable_by_key(|(number, _)| *number);
    let mut end = 0;
    for (_, bytes) in members.iter_mut().rev() {
        let length = bytes.len().checked_sub(end)?;
        end = bytes.len();
        *bytes = &bytes[..length];
    }
    Some(members)
}

/// The names that a metadata lists: the next row probably has the same.
#[derive(Default)]
pub(super) struct Names {
    metadata: Vec<u8>,
    /// Where each is in the order of the names.
    ranks: Vec<usize>,
    /// Whether one is listed twice.
    pub(super) is_repeated: bool,
    /// The number of each column's name, if it is listed.
    pub(super) numbers: Vec<Option<usize>>,
    fields: Vec<Member>,
}

impl Names {
    /// Those of a variant, and of these columns.
    pub(super) fn list<'a>(&mut self, of: Variant<'_>, columns: impl Iterator<Item = &'a str>) {
        if self.metadata == of.metadata() && !self.metadata.is_empty() {
            return;
        }
        self.metadata.clear();
        self.metadata.extend_from_slice(of.metadata());
        let mut ordered: Vec<_> = (0..of.names()).collect();
        ordered.sort_by_key(|number| of.name(*number));
        self.ranks.clear();
        self.ranks.resize(ordered.len(), 0);
        for (rank, number) in ordered.iter().enumerate() {
            self.ranks[*number] = rank;
        }
        self.is_repeated = ordered.windows(2).any(|pair| of.name(pair[0]) == of.name(pair[1]));
        self.numbers.clear();
        self.numbers.extend(columns.map(|column| {
            let at = ordered.partition_point(|number| of.name(*number) < column.as_bytes());
            ordered.get(at).copied().filter(|number| of.name(*number) == column.as_bytes())
        }));
    }

    /// Writes an object of members in any order, the names of which are listed.
    pub(super) fn put_object(&mut self, members: &mut [(usize, &[u8])], out: &mut Vec<u8>) {
        members.sort_unstable_by_key(|(number, _)| *number);
        let mut end = 0;
        self.fields.clear();
        self.fields.extend(members.iter().map(|(number, bytes)| {
            let start = end;
            end += bytes.len();
            Member { name: low(*number), start: low(start), length: low(bytes.len()) }
        }));
        self.fields.sort_by_key(|field| self.ranks.get(field.name as usize));
        put_object_header(&self.fields, 0, end, out);
        for (_, bytes) in members {
            out.extend_from_slice(bytes);
        }
    }
}
