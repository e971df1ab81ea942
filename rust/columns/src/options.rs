//! The options that a user may give for the columns.

use std::{collections::HashSet, error::Error, fmt, str::FromStr};

use arrow_schema::{DataType, TimeUnit};

use crate::payload::{LayoutError, Payload};

/// The handling of a row that is not a valid message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// It stays, with the reason and its bytes.
    #[default]
    Permissive,
    /// It ends the call.
    FailFast,
    /// It is left out.
    DropMalformed,
}

impl Mode {
    /// Its name for users.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Permissive => "PERMISSIVE",
            Self::FailFast => "FAILFAST",
            Self::DropMalformed => "DROPMALFORMED",
        }
    }
}

impl FromStr for Mode {
    type Err = PlanError;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        match name.to_ascii_uppercase().as_str() {
            "PERMISSIVE" => Ok(Self::Permissive),
            "FAILFAST" => Ok(Self::FailFast),
            "DROPMALFORMED" => Ok(Self::DropMalformed),
            _ => Err(PlanError::UnknownMode(name.to_owned())),
        }
    }
}

/// The type of a tag's own column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TagType {
    /// Integers of 64 bits.
    BigInt,
    /// Numbers, integers among them.
    Double,
    String,
    Boolean,
    Binary,
    /// Moments, rounded down to the microsecond.
    Timestamp,
    /// Anything, as JSON text.
    Json,
}

impl TagType {
    /// The type of the column.
    pub fn data_type(self) -> DataType {
        match self {
            Self::BigInt => DataType::Int64,
            Self::Double => DataType::Float64,
            Self::String | Self::Json => DataType::Utf8,
            Self::Boolean => DataType::Boolean,
            Self::Binary => DataType::Binary,
            Self::Timestamp => timestamp_type(),
        }
    }
}

impl FromStr for TagType {
    type Err = PlanError;

    /// By Spark's names. A narrower number is the widest of its kind, since MessagePack does not distinguish them.
    fn from_str(name: &str) -> Result<Self, Self::Err> {
        match name.to_ascii_lowercase().as_str() {
            "bigint" | "long" | "int" | "integer" | "smallint" | "short" | "tinyint" | "byte" => Ok(Self::BigInt),
            "double" | "float" | "real" => Ok(Self::Double),
            "string" => Ok(Self::String),
            "boolean" => Ok(Self::Boolean),
            "binary" => Ok(Self::Binary),
            "timestamp" | "timestamp_ltz" => Ok(Self::Timestamp),
            "json" => Ok(Self::Json),
            _ => Err(PlanError::UnknownType(name.to_owned())),
        }
    }
}

/// The type of the column of all tags without their own column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestType {
    Variant,
    /// JSON text.
    Json,
}

impl RestType {
    /// Its name for users.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Variant => "variant",
            Self::Json => "json",
        }
    }
}

impl FromStr for RestType {
    type Err = PlanError;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        match name.to_ascii_lowercase().as_str() {
            "variant" => Ok(Self::Variant),
            "json" => Ok(Self::Json),
            _ => Err(PlanError::UnknownRest(name.to_owned())),
        }
    }
}

/// The zone of all timestamps.
pub(crate) const UTC: &str = "UTC";

/// Spark's TIMESTAMP.
pub(crate) fn timestamp_type() -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, Some(UTC.into()))
}

/// The columns of the tags.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tags {
    typed: Vec<(String, TagType)>,
    rest: Option<RestType>,
}

impl Default for Tags {
    /// All of them in one VARIANT.
    fn default() -> Self {
        Self { typed: Vec::new(), rest: Some(RestType::Variant) }
    }
}

impl Tags {
    /// No columns.
    pub const NONE: Self = Self { typed: Vec::new(), rest: None };

    /// A column `tag_<name>` for each of `typed`; with `rest`, one of all others.
    pub fn new(typed: Vec<(String, TagType)>, rest: Option<RestType>) -> Result<Self, PlanError> {
        let mut seen = HashSet::new();
        match typed.iter().find(|(name, _)| !seen.insert(name.to_lowercase())) {
            Some((name, _)) => Err(PlanError::EqualNames(name.clone())),
            None => Ok(Self { typed, rest }),
        }
    }

    /// No columns but those of these names; the column of all others is `rest`.
    pub(crate) fn only(&self, is_kept: &dyn Fn(&str) -> bool) -> Self {
        let typed = self.typed.iter().filter(|(name, _)| is_kept(name)).cloned().collect();
        Self { typed, rest: self.rest.filter(|_| is_kept("rest")) }
    }

    /// The tags with their own column.
    pub fn typed(&self) -> &[(String, TagType)] {
        &self.typed
    }

    /// The type of the column of all others.
    pub const fn rest(&self) -> Option<RestType> {
        self.rest
    }
}

/// The value of an option, as a user gives it. The option determines its kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    Flag(bool),
    /// The handling of invalid messages.
    Mode(Mode),
    /// One of a few names.
    Name(String),
    /// Some of a few names.
    Names(Vec<String>),
    /// The columns of a map's values.
    Tags(Tags),
    /// The columns of payloads.
    Payload(Payload),
}

/// An option: where it is stored in the options `O` of a protocol.
#[derive(Clone, Copy, Debug)]
pub enum Setting<O> {
    Flag(fn(&mut O) -> &mut bool),
    Mode(fn(&mut O) -> &mut Mode),
    /// A [`Value::Name`], one of those allowed.
    Name {
        /// The chosen one.
        get: fn(&O) -> &'static str,
        /// Chooses another; an unknown one is refused.
        set: fn(&mut O, &str) -> Result<(), PlanError>,
    },
    /// [`Value::Names`], of those allowed.
    Names {
        /// The chosen ones.
        get: fn(&O) -> Vec<String>,
        /// Chooses others; an unknown one is refused.
        set: fn(&mut O, &[String]) -> Result<(), PlanError>,
    },
    Tags(fn(&mut O) -> &mut Tags),
    Payload(fn(&mut O) -> &mut Payload),
}

impl<O> Setting<O> {
    pub(crate) fn get(&self, options: &mut O) -> Value {
        match self {
            Self::Flag(place) => Value::Flag(*place(options)),
            Self::Mode(place) => Value::Mode(*place(options)),
            Self::Name { get, .. } => Value::Name(get(options).to_owned()),
            Self::Names { get, .. } => Value::Names(get(options)),
            Self::Tags(place) => Value::Tags(place(options).clone()),
            Self::Payload(place) => Value::Payload(place(options).clone()),
        }
    }

    pub(crate) fn set(&self, options: &mut O, name: &'static str, value: Value) -> Result<(), PlanError> {
        match (self, value) {
            (Self::Flag(place), Value::Flag(value)) => *place(options) = value,
            (Self::Mode(place), Value::Mode(value)) => *place(options) = value,
            (Self::Name { set, .. }, Value::Name(name)) => set(options, &name)?,
            (Self::Names { set, .. }, Value::Names(names)) => set(options, &names)?,
            (Self::Tags(place), Value::Tags(value)) => *place(options) = value,
            (Self::Payload(place), Value::Payload(value)) => *place(options) = value,
            (
                Self::Flag(_)
                | Self::Mode(_)
                | Self::Name { .. }
                | Self::Names { .. }
                | Self::Tags(_)
                | Self::Payload(_),
                _,
            ) => {
                return Err(PlanError::OtherKind(name));
            }
        }
        Ok(())
    }
}

/// Why options are refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlanError {
    /// No such mode.
    UnknownMode(String),
    /// No such type of tag.
    UnknownType(String),
    /// No such type for all other tags together.
    UnknownRest(String),
    /// An unknown name in an option of names: the option, the name, and the known names.
    UnknownName(&'static str, String, Vec<&'static str>),
    /// A protocol has no such option.
    NotOf(&'static str, String),
    /// The value of an option is of another kind.
    OtherKind(&'static str),
    /// Two tags whose columns would have names equal but for case, which Spark treats as equal.
    EqualNames(String),
    /// A column function makes no rows, so it cannot drop any.
    DropInFunction,
    /// The text of a layout is wrong.
    Layout(LayoutError),
    /// Each message says what its payload is, in a tag, and this protocol has none.
    NoTags(&'static str),
    /// A layout is of one protocol.
    LayoutOfEvery,
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownMode(name) => {
                write!(f, "unknown mode {name:?} (choose PERMISSIVE, FAILFAST or DROPMALFORMED)")
            }
            Self::UnknownType(name) => write!(
                f,
                "tags, properties and json: unknown type {name:?} (choose bigint, double, string, boolean, binary, timestamp \
                 or json; for all others together, variant or json)"
            ),
            Self::UnknownRest(name) => {
                write!(
                    f,
                    "tags, properties and json: {name:?} is not a type for all others together (choose variant or json)"
                )
            }
            Self::UnknownName(option, name, known) => {
                write!(f, "unknown {option} {name:?} (choose from {})", known.join(", "))
            }
            Self::NotOf(protocol, option) => {
                write!(f, "{option} does not apply to {} messages: leave it out", protocol.to_uppercase())
            }
            Self::OtherKind(option) => write!(f, "{option} takes another kind of value"),
            Self::EqualNames(name) => {
                write!(f, "two names differ from {name:?} only in case, and Spark takes them for one")
            }
            Self::Layout(error) => write!(f, "payload: {error}"),
            Self::NoTags(protocol) => write!(
                f,
                "payload=\"dtype\" reads the tag dtype of each message, which {} messages do not have: describe the bytes",
                protocol.to_uppercase()
            ),
            Self::LayoutOfEvery => {
                f.write_str("payload: the payloads of several protocols have no common columns: decode one protocol")
            }
            Self::DropInFunction => {
                f.write_str("a column function cannot drop rows: use decode() with mode DROPMALFORMED")
            }
        }
    }
}

impl Error for PlanError {}

impl From<LayoutError> for PlanError {
    fn from(error: LayoutError) -> Self {
        Self::Layout(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_equal_but_for_case_are_refused() {
        let typed = ["run", "Run"].map(|name| (name.to_owned(), TagType::BigInt)).to_vec();
        assert_eq!(Tags::new(typed, None), Err(PlanError::EqualNames("Run".to_owned())));
    }

    #[test]
    fn names_are_read_in_any_case() {
        assert_eq!("failfast".parse(), Ok(Mode::FailFast));
        assert_eq!("BIGINT".parse(), Ok(TagType::BigInt));
        assert_eq!("int".parse(), Ok(TagType::BigInt));
        assert_eq!("money".parse::<TagType>(), Err(PlanError::UnknownType("money".to_owned())));
    }
}
