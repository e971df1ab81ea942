//! Schemas, read from their JSON.

use std::{collections::HashMap, sync::Arc};

use arrow_schema::{DataType, Field, Fields};
use serde_json::Value as Json;

use crate::{
    options::timestamp_type,
    output::{element_field, list_type},
};

/// How deep types may be nested.
const MAX_DEPTH: usize = 32;

/// The most types of a schema, those that names stand for included.
const MAX_TYPES: usize = 100_000;

/// A record, and its JSON.
#[derive(Clone, Debug)]
pub(in super::super) struct Schema {
    text: String,
    pub(super) record: Arc<Vec<(String, Item)>>,
}

impl PartialEq for Schema {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

/// A type, and which branch of its union with null is null, if it is one.
#[derive(Clone, Debug)]
pub(super) struct Item {
    pub(super) of: Of,
    pub(super) null: Option<u64>,
}

#[derive(Clone, Debug)]
pub(super) enum Of {
    Null,
    Boolean,
    Int,
    Long,
    Float,
    Double,
    Bytes,
    String,
    Date,
    Millis,
    Micros,
    Fixed(usize),
    Enum(Arc<Vec<String>>),
    Array(Box<Item>),
    Map(Box<Item>),
    Record(Arc<Vec<(String, Item)>>),
}

impl Schema {
    pub(in super::super) fn parse(text: &str) -> Result<Self, String> {
        let json: Json = serde_json::from_str(text).map_err(|error| format!("not the JSON of a schema: {error}"))?;
        let mut reader = Reader { named: HashMap::new(), types: 0 };
        let item = reader.item(&json, None, 0)?;
        if let (Of::Record(record), None) = (item.of, item.null) {
            Ok(Self { text: json.to_string(), record })
        } else {
            Err("the schema must be of a record".to_owned())
        }
    }

    /// Its JSON, without spaces.
    pub(in super::super) fn text(&self) -> &str {
        &self.text
    }

    /// The columns of its fields.
    pub(in super::super) fn columns(&self) -> impl Iterator<Item = (&str, DataType)> {
        self.record.iter().map(|(name, item)| (name.as_str(), item.of.data_type()))
    }

    /// The most bytes of columns for each byte of a record.
    pub(in super::super) fn growth(&self) -> usize {
        self.record.iter().map(|(_, item)| item.growth()).max().unwrap_or(0)
    }

    /// The most bytes of columns for the fields that take none.
    pub(in super::super) fn null(&self) -> usize {
        self.record.iter().fold(0, |all, (_, item)| all.saturating_add(item.of.collected()))
    }
}

impl Item {
    /// The fewest bytes it takes.
    pub(super) fn least(&self) -> usize {
        if self.null.is_some() { 1 } else { self.of.least() }
    }

    #[allow(clippy::wildcard_enum_match_arm)] // all others have nothing within
    fn growth(&self) -> usize {
        let within = match &self.of {
            Of::Array(item) | Of::Map(item) => item.growth().max(item.of.collected() / item.least().max(1)),
            Of::Record(fields) => fields.iter().map(|(_, item)| item.growth()).max().unwrap_or(0),
            _ => 0,
        };
        within.max(self.of.collected() / self.least().max(1))
    }
}

impl Of {
    fn least(&self) -> usize {
        match self {
            Self::Null => 0,
            Self::Float => 4,
            Self::Double => 8,
            Self::Fixed(size) => *size,
            Self::Record(fields) => fields.iter().fold(0, |least, (_, item)| least.saturating_add(item.least())),
            Self::Boolean
            | Self::Int
            | Self::Long
            | Self::Bytes
            | Self::String
            | Self::Date
            | Self::Millis
            | Self::Micros
            | Self::Enum(_)
            | Self::Array(_)
            | Self::Map(_) => 1,
        }
    }

    /// The most bytes that columns take for a value of the fewest bytes.
    fn collected(&self) -> usize {
        match self {
            Self::Null => 0,
            Self::Boolean => 1,
            Self::Int | Self::Float | Self::Date | Self::Bytes | Self::String | Self::Array(_) | Self::Map(_) => 4,
            Self::Long | Self::Double | Self::Millis | Self::Micros => 8,
            Self::Fixed(size) => 4_usize.saturating_add(*size),
            Self::Enum(symbols) => 4 + symbols.iter().map(String::len).max().unwrap_or(0),
            Self::Record(fields) => fields.iter().fold(0, |all, (_, item)| all.saturating_add(item.of.collected())),
        }
    }

    pub(super) fn data_type(&self) -> DataType {
        match self {
            Self::Null => DataType::Null,
            Self::Boolean => DataType::Boolean,
            Self::Int => DataType::Int32,
            Self::Long => DataType::Int64,
            Self::Float => DataType::Float32,
            Self::Double => DataType::Float64,
            Self::Bytes | Self::Fixed(_) => DataType::Binary,
            Self::String | Self::Enum(_) => DataType::Utf8,
            Self::Date => DataType::Date32,
            Self::Millis | Self::Micros => timestamp_type(),
            Self::Array(item) => list_type(item.of.data_type()),
            Self::Map(item) => {
                let pair =
                    vec![Field::new("key", DataType::Utf8, false), Field::new("value", item.of.data_type(), true)];
                DataType::Map(Arc::new(Field::new("entries", DataType::Struct(pair.into()), false)), false)
            }
            Self::Record(fields) => DataType::Struct(columns(fields)),
        }
    }
}

/// The columns of the fields of a record.
pub(super) fn columns(fields: &[(String, Item)]) -> Fields {
    fields.iter().map(|(name, item)| Field::new(name, item.of.data_type(), true)).collect()
}

/// The field of the items of a list.
pub(super) fn item_field(of: &DataType) -> Arc<Field> {
    element_field(of.clone())
}

struct Reader {
    /// The types with a name; none while it is being read.
    named: HashMap<String, Option<Of>>,
    types: usize,
}

impl Reader {
    fn item(&mut self, json: &Json, namespace: Option<&str>, depth: usize) -> Result<Item, String> {
        let Json::Array(branches) = json else {
            return Ok(Item { of: self.of(json, namespace, depth)?, null: None });
        };
        let null = |branch: &Json| branch.as_str() == Some("null");
        match branches.as_slice() {
            [first, second] if null(first) != null(second) => {
                let (of, at) = if null(first) { (second, 0) } else { (first, 1) };
                let of = self.of(of, namespace, depth)?;
                Ok(Item { of, null: Some(at) })
            }
            _ => Err(format!("a union of null and one type has columns, {} has none", shown(json))),
        }
    }

    fn of(&mut self, json: &Json, namespace: Option<&str>, depth: usize) -> Result<Of, String> {
        self.types += 1;
        if depth > MAX_DEPTH {
            return Err(format!("types are nested more than {MAX_DEPTH} deep"));
        }
        if self.types > MAX_TYPES {
            return Err(format!("the schema has more than {MAX_TYPES} types"));
        }
        match json {
            Json::String(name) => self.named(name, namespace),
            Json::Object(object) => {
                let of = object.get("type").ok_or_else(|| format!("{} has no \"type\"", shown(json)))?;
                let Some(name) = of.as_str() else { return self.of(of, namespace, depth + 1) };
                self.described(name, object, namespace, depth)
            }
            Json::Null | Json::Bool(_) | Json::Number(_) | Json::Array(_) => {
                Err(format!("expected a type, not {}", shown(json)))
            }
        }
    }

    /// A type by its name.
    fn named(&mut self, name: &str, namespace: Option<&str>) -> Result<Of, String> {
        if let Some(of) = primitive(name) {
            return Ok(of);
        }
        let within = full(name, namespace);
        let known = self.named.get(&within).or_else(|| self.named.get(name));
        match known {
            Some(Some(of)) => {
                // What a name stands for counts as often as it is named.
                self.types += types(of);
                if self.types > MAX_TYPES {
                    Err(format!("the schema has more than {MAX_TYPES} types"))
                } else {
                    Ok(of.clone())
                }
            }
            Some(None) => Err(format!("{name} contains itself, which no column can hold")),
            None => Err(format!("unknown type {name:?}")),
        }
    }

    fn described(
        &mut self,
        name: &str,
        object: &serde_json::Map<String, Json>,
        namespace: Option<&str>,
        depth: usize,
    ) -> Result<Of, String> {
        let text = |key: &str| object.get(key).and_then(Json::as_str);
        let need = |key: &str| object.get(key).ok_or_else(|| format!("the {name} has no {key:?}"));
        match name {
            "array" => Ok(Of::Array(self.items("array", need("items")?, namespace, depth)?)),
            "map" => Ok(Of::Map(self.items("map", need("values")?, namespace, depth)?)),
            "record" | "error" | "enum" | "fixed" => {
                let simple = text("name").ok_or_else(|| format!("the {name} has no name"))?;
                let namespace = text("namespace").or(namespace);
                let whole = full(simple, namespace);
                if self.named.insert(whole.clone(), None).is_some() {
                    return Err(format!("{whole} is defined twice"));
                }
                let namespace = whole.rsplit_once('.').map(|(namespace, _)| namespace);
                let of = match name {
                    "enum" => Of::Enum(Arc::new(symbols(&whole, need("symbols")?)?)),
                    "fixed" => {
                        let size = need("size")?.as_u64().and_then(|size| i32::try_from(size).ok());
                        let size = size.ok_or_else(|| format!("the size of {whole} is no number of bytes"))?;
                        Of::Fixed(usize::try_from(size).unwrap_or(0))
                    }
                    _ => Of::Record(Arc::new(self.fields(&whole, need("fields")?, namespace, depth)?)),
                };
                self.named.insert(whole, Some(of.clone()));
                Ok(of)
            }
            _ => Ok(match (self.named(name, namespace)?, text("logicalType")) {
                (Of::Int, Some("date")) => Of::Date,
                (Of::Long, Some("timestamp-millis")) => Of::Millis,
                (Of::Long, Some("timestamp-micros")) => Of::Micros,
                (of, _) => of,
            }),
        }
    }

    fn items(&mut self, of: &str, json: &Json, namespace: Option<&str>, depth: usize) -> Result<Box<Item>, String> {
        let item = self.item(json, namespace, depth + 1)?;
        if item.least() == 0 && of == "array" {
            return Err("the items of an array must take a byte at least".to_owned());
        }
        Ok(Box::new(item))
    }

    fn fields(
        &mut self,
        record: &str,
        json: &Json,
        namespace: Option<&str>,
        depth: usize,
    ) -> Result<Vec<(String, Item)>, String> {
        let json = json.as_array().ok_or_else(|| format!("the fields of {record} are no list"))?;
        let mut fields: Vec<(String, Item)> = Vec::with_capacity(json.len());
        let mut names = std::collections::HashSet::new();
        for field in json {
            let name = field.get("name").and_then(Json::as_str);
            let name = name.ok_or_else(|| format!("a field of {record} has no name"))?;
            if !names.insert(name.to_lowercase()) {
                return Err(format!("two fields of {record} differ from {name:?} only in case"));
            }
            let of = field.get("type").ok_or_else(|| format!("{record}.{name} has no \"type\""))?;
            let item = self.item(of, namespace, depth + 1).map_err(|reason| located(&reason, name))?;
            fields.push((name.to_owned(), item));
        }
        if fields.is_empty() { Err(format!("{record} has no fields")) } else { Ok(fields) }
    }
}

fn located(reason: &str, name: &str) -> String {
    format!("{name}: {reason}")
}

fn primitive(name: &str) -> Option<Of> {
    Some(match name {
        "null" => Of::Null,
        "boolean" => Of::Boolean,
        "int" => Of::Int,
        "long" => Of::Long,
        "float" => Of::Float,
        "double" => Of::Double,
        "bytes" => Of::Bytes,
        "string" => Of::String,
        _ => return None,
    })
}

fn symbols(whole: &str, json: &Json) -> Result<Vec<String>, String> {
    let named = |symbol: &Json| symbol.as_str().map(str::to_owned);
    let symbols: Option<Vec<_>> = json.as_array().and_then(|symbols| symbols.iter().map(named).collect());
    symbols.ok_or_else(|| format!("the symbols of {whole} are no list of texts"))
}

/// The number of types within one.
#[allow(clippy::wildcard_enum_match_arm)] // all others have none
fn types(of: &Of) -> usize {
    1 + match of {
        Of::Array(item) | Of::Map(item) => types(&item.of),
        Of::Record(fields) => fields.iter().fold(0_usize, |all, (_, item)| all.saturating_add(types(&item.of))),
        _ => 0,
    }
}

fn full(name: &str, namespace: Option<&str>) -> String {
    match namespace {
        Some(namespace) if !namespace.is_empty() && !name.contains('.') => format!("{namespace}.{name}"),
        _ => name.to_owned(),
    }
}

/// JSON, shortened.
fn shown(json: &Json) -> String {
    const MOST: usize = 60;
    let text = json.to_string();
    let short: String = text.chars().take(MOST).collect();
    if short.len() < text.len() { format!("{short}…") } else { text }
}
