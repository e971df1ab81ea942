//! The fields of structs, of the types needed for writing.

use std::str;

use arrow_array::{
    Array, ArrayRef, BinaryArray, BooleanArray, Float64Array, Int64Array, ListArray, MapArray, StringArray,
    StructArray, TimestampMicrosecondArray,
    cast::AsArray,
    types::{Decimal128Type, Float64Type, Int64Type, TimestampMicrosecondType},
};
use arrow_cast::cast;
use arrow_schema::{DataType, Field, TimeUnit};

use crate::{
    ColumnError,
    variant::{
        parts,
        reading::{Value, Variant},
    },
};

/// The fields of structs, by their names.
#[derive(Clone, Copy)]
pub struct StructFields<'a>(&'a StructArray);

impl<'a> StructFields<'a> {
    pub(crate) const fn of(structs: &'a StructArray) -> Self {
        Self(structs)
    }

    fn cast(self, name: &str, data_type: &DataType) -> Result<Option<ArrayRef>, ColumnError> {
        let Some(column) = self.0.column_by_name(name) else { return Ok(None) };
        let wrong = |_| ColumnError::Input(format!("{name} is {}, it must be {data_type}", column.data_type()));
        if column.data_type() == data_type {
            Ok(Some(column.clone()))
        } else {
            cast(column, data_type).map(Some).map_err(wrong)
        }
    }

    pub(crate) fn texts(self, name: &str) -> Result<Texts, ColumnError> {
        Ok(Texts(self.cast(name, &DataType::Utf8)?.map(|column| column.as_string().clone())))
    }

    pub(crate) fn binaries(self, name: &str) -> Result<Binaries, ColumnError> {
        Ok(Binaries(self.cast(name, &DataType::Binary)?.map(|column| column.as_binary().clone())))
    }

    pub(crate) fn numbers(self, name: &str) -> Result<Numbers, ColumnError> {
        Ok(Numbers(self.cast(name, &DataType::Int64)?.map(|column| column.as_primitive::<Int64Type>().clone())))
    }

    /// Unsigned numbers of 64 bits.
    pub(crate) fn unsigned(self, name: &str) -> Result<Unsigned, ColumnError> {
        let column = self.cast(name, &DataType::Decimal128(20, 0))?;
        Ok(Unsigned(column.map(|column| column.as_primitive::<Decimal128Type>().clone())))
    }

    pub(crate) fn flags(self, name: &str) -> Result<Flags, ColumnError> {
        Ok(Flags(self.cast(name, &DataType::Boolean)?.map(|column| column.as_boolean().clone())))
    }

    /// Lists of binaries; text counts as its bytes.
    pub(crate) fn lists(self, name: &str) -> Result<Lists, ColumnError> {
        let list = DataType::List(Field::new("element", DataType::Binary, true).into());
        Ok(Lists(self.cast(name, &list)?.map(|column| column.as_list::<i32>().clone())))
    }

    /// Maps of text.
    pub(crate) fn maps(self, name: &str) -> Result<Maps, ColumnError> {
        let Some(column) = self.0.column_by_name(name) else { return Ok(Maps(None)) };
        let wrong = || ColumnError::Input(format!("{name} is {}, it must be a map", column.data_type()));
        Ok(Maps(Some(column.as_map_opt().ok_or_else(wrong)?.clone())))
    }

    /// Structs in lists.
    pub(crate) fn structs(self, name: &str) -> Result<Option<ListArray>, ColumnError> {
        let Some(column) = self.0.column_by_name(name) else { return Ok(None) };
        let wrong = || ColumnError::Input(format!("{name} is {}, it must be a list of structs", column.data_type()));
        let list = column.as_list_opt::<i32>().filter(|list| list.values().as_struct_opt().is_some());
        list.map(|list| Some(list.clone())).ok_or_else(wrong)
    }

    /// The members of maps: those in a VARIANT of this name, and those that have their own field, `<prefix>_<name>`.
    pub(crate) fn members(self, name: &str, prefix: &str) -> Result<Members, ColumnError> {
        let column = self.0.column_by_name(name);
        let rest = match column.filter(|column| *column.data_type() != DataType::Null) {
            Some(column) => {
                let wrong = || ColumnError::Input(format!("{name} is {}, it must be a VARIANT", column.data_type()));
                let variants = column.as_struct_opt().filter(|column| parts(column).is_ok());
                Some(variants.ok_or_else(wrong)?.clone())
            }
            None => None,
        };
        let mut typed = Vec::new();
        for (field, column) in self.0.fields().iter().zip(self.0.columns()) {
            let named = field.name().strip_prefix(prefix).and_then(|name| name.strip_prefix('_'));
            if let Some(named) = named {
                typed.extend(Typed::of(field.name(), column)?.map(|column| (named.to_owned(), column)));
            }
        }
        Ok(Members { name: name.to_owned(), has_rest: column.is_some(), rest, typed })
    }

    /// An invalid message: all its frames, or one of them.
    pub(crate) fn corrupt(self) -> Result<Corrupt, ColumnError> {
        const NAME: &str = "_corrupt_record";
        let is_list = self.0.column_by_name(NAME).is_some_and(|column| matches!(column.data_type(), DataType::List(_)));
        let nothing = (Lists(None), Binaries(None));
        let (lists, binaries) =
            if is_list { (self.lists(NAME)?, nothing.1) } else { (nothing.0, self.binaries(NAME)?) };
        Ok(Corrupt { lists, binaries, are_all: is_list })
    }
}

macro_rules! column {
    ($(#[doc = $doc:literal])* $name:ident, $array:ty, $item:ty) => {
        $(#[doc = $doc])*
        pub(crate) struct $name(Option<$array>);

        impl $name {
            /// The value of a row.
            pub(crate) fn at(&self, row: usize) -> Option<$item> {
                self.0.as_ref().filter(|column| column.is_valid(row)).map(|column| column.value(row))
            }
        }
    };
}

column!(Texts, StringArray, &str);
column!(Binaries, BinaryArray, &[u8]);
column!(Numbers, Int64Array, i64);
column!(Flags, BooleanArray, bool);

pub(crate) struct Unsigned(Option<arrow_array::Decimal128Array>);

impl Unsigned {
    pub(crate) fn at(&self, row: usize) -> Option<u64> {
        let column = self.0.as_ref().filter(|column| column.is_valid(row))?;
        u64::try_from(column.value(row)).ok()
    }
}

/// Lists of binaries.
pub(crate) struct Lists(Option<ListArray>);

impl Lists {
    pub(crate) fn at(&self, row: usize) -> Option<Vec<&[u8]>> {
        let column = self.0.as_ref().filter(|column| column.is_valid(row))?;
        let values = column.values().as_binary::<i32>();
        let offsets = &column.value_offsets()[row..row + 2];
        let range = offsets.iter().map(|offset| usize::try_from(*offset).unwrap_or_default()).collect::<Vec<_>>();
        Some((range[0]..range[1]).map(|at| if values.is_valid(at) { values.value(at) } else { &[][..] }).collect())
    }
}

/// Maps of text.
pub(crate) struct Maps(Option<MapArray>);

impl Maps {
    pub(crate) fn at(&self, row: usize) -> Vec<(String, String)> {
        let Some(column) = self.0.as_ref().filter(|column| column.is_valid(row)) else { return Vec::new() };
        let entries = column.value(row);
        let texts =
            |at: usize| cast(entries.column(at), &DataType::Utf8).map(|column| column.as_string::<i32>().clone());
        let (Ok(names), Ok(values)) = (texts(0), texts(1)) else { return Vec::new() };
        let pair = |at: usize| values.is_valid(at).then(|| (names.value(at).to_owned(), values.value(at).to_owned()));
        (0..entries.len()).filter_map(pair).collect()
    }
}

/// An invalid message.
pub(crate) struct Corrupt {
    lists: Lists,
    binaries: Binaries,
    /// Whether all frames of a message are kept, rather than its first.
    pub(crate) are_all: bool,
}

impl Corrupt {
    pub(crate) fn at(&self, row: usize) -> Option<Vec<&[u8]>> {
        self.lists.at(row).or_else(|| self.binaries.at(row).map(|frame| vec![frame]))
    }
}

/// The members of maps.
pub(crate) struct Members {
    name: String,
    /// Whether there is a column of all without a field of their own: else some may have been left out.
    has_rest: bool,
    rest: Option<StructArray>,
    typed: Vec<(String, Typed)>,
}

impl Members {
    /// The members of a row, in the order in which they were written; those that have only a field of their own come
    /// last.
    ///
    /// # Errors
    /// If some may be missing, or no member can hold a value of this kind. It has the name of the maps.
    pub(crate) fn at(&self, row: usize) -> Result<Vec<(&str, Value<'_>)>, String> {
        let name = &self.name;
        if !self.has_rest {
            let hint = format!("decode with {name}=\"variant\", or with \"*\": \"variant\" beside those by name");
            let are = if name.ends_with('s') { "are" } else { "is" };
            return Err(format!("{name} {are} missing: {hint}"));
        }
        self.read(row).map_err(|error| format!("{name}: {error}"))
    }

    fn read(&self, row: usize) -> Result<Vec<(&str, Value<'_>)>, String> {
        let mut members: Vec<(&str, Value<'_>)> = Vec::new();
        if let Some(rest) = self.rest.as_ref().filter(|rest| rest.is_valid(row)) {
            let (metadata, value) = parts(rest).map_err(|error| error.to_string())?;
            let value = Variant::at(metadata, value, row).read()?;
            if let Value::Object(found) = value {
                members = found;
            } else if !matches!(value, Value::Null) {
                return Err("a VARIANT of members is no object".to_owned());
            }
        }
        for (name, column) in &self.typed {
            let Some(value) = column.at(row) else { continue };
            match members.iter_mut().find(|(other, _)| other == name) {
                Some(member) => member.1 = value,
                None => members.push((name, value)),
            }
        }
        Ok(members)
    }
}

/// A typed field.
enum Typed {
    Text(StringArray),
    Binary(BinaryArray),
    Boolean(BooleanArray),
    Signed(Int64Array),
    Double(Float64Array),
    Timestamp(TimestampMicrosecondArray),
}

impl Typed {
    #[allow(clippy::wildcard_enum_match_arm)] // there are no others
    fn of(name: &str, column: &ArrayRef) -> Result<Option<Self>, ColumnError> {
        let as_type = |data_type: DataType| cast(column, &data_type);
        Ok(Some(match column.data_type() {
            DataType::Null => return Ok(None),
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => {
                Self::Text(as_type(DataType::Utf8)?.as_string().clone())
            }
            DataType::Binary | DataType::LargeBinary | DataType::BinaryView => {
                Self::Binary(as_type(DataType::Binary)?.as_binary().clone())
            }
            DataType::Boolean => Self::Boolean(column.as_boolean().clone()),
            DataType::Float32 | DataType::Float64 => {
                Self::Double(as_type(DataType::Float64)?.as_primitive::<Float64Type>().clone())
            }
            DataType::Timestamp(..) => {
                let micros = as_type(DataType::Timestamp(TimeUnit::Microsecond, None))?;
                Self::Timestamp(micros.as_primitive::<TimestampMicrosecondType>().clone())
            }
            integer if integer.is_integer() => {
                Self::Signed(as_type(DataType::Int64)?.as_primitive::<Int64Type>().clone())
            }
            other => return Err(ColumnError::Input(format!("{name} is {other}, which no message has a place for"))),
        }))
    }

    fn at(&self, row: usize) -> Option<Value<'_>> {
        match self {
            Self::Text(column) => column.is_valid(row).then(|| Value::Text(column.value(row))),
            Self::Binary(column) => column.is_valid(row).then(|| Value::Binary(column.value(row))),
            Self::Boolean(column) => column.is_valid(row).then(|| Value::Boolean(column.value(row))),
            Self::Signed(column) => column.is_valid(row).then(|| Value::Signed(column.value(row))),
            Self::Double(column) => column.is_valid(row).then(|| Value::Double(column.value(row))),
            Self::Timestamp(column) => column.is_valid(row).then(|| Value::Timestamp(column.value(row))),
        }
    }
}
