//! Values of maps: read from VARIANTs and columns, and written as MessagePack, as field tables and as JSON.

use std::str;

use serde_json::{Map, Number, Value as Json};
use trunkline_wire::{
    msgpack::{
        MAX_DEPTH, Oversize, Timestamp, write_array, write_binary, write_bool, write_f32, write_f64, write_map,
        write_nil, write_signed, write_string, write_timestamp, write_unsigned,
    },
    mtl::{
        control,
        table::{Unwritable, Writer},
    },
};

use crate::variant::{Read, Variant};

/// A value.
pub(crate) enum Value<'a> {
    Null,
    Boolean(bool),
    Signed(i64),
    /// Digits, and how many of them are behind the point.
    Decimal(i128, u8),
    Float(f32),
    Double(f64),
    /// Microseconds since 1970.
    Timestamp(i64),
    Text(&'a str),
    Binary(&'a [u8]),
    Array(Vec<Self>),
    Object(Vec<(&'a str, Self)>),
}

/// Members in byte order of their names, of equal ones the last.
pub(crate) fn sorted<'a>(mut members: Vec<(&'a str, Value<'a>)>) -> Vec<(&'a str, Value<'a>)> {
    members.sort_by_key(|(name, _)| *name);
    members.reverse();
    members.dedup_by(|(one, _), (other, _)| one == other);
    members.reverse();
    members
}

impl<'a> Value<'a> {
    /// The value of a VARIANT.
    pub(crate) fn of(variant: Variant<'a>) -> Result<Self, String> {
        // Each value takes a byte at least, unless several places refer to it.
        let mut left = variant.bytes().len();
        Self::within(variant, 0, &mut left)
    }

    /// The same, `depth` values deep, of at most so many values.
    fn within(variant: Variant<'a>, depth: usize, left: &mut usize) -> Result<Self, String> {
        if depth > MAX_DEPTH {
            return Err("a VARIANT is nested too deep".to_owned());
        }
        *left = left.checked_sub(1).ok_or("a VARIANT has values in several places")?;
        Ok(match variant.read() {
            Read::Null => Self::Null,
            Read::Boolean(value) => Self::Boolean(value),
            Read::Signed(value) => Self::Signed(value),
            Read::Decimal(digits, places) => Self::Decimal(digits, places),
            Read::Float(value) => Self::Float(value),
            Read::Double(value) => Self::Double(value),
            Read::Timestamp(micros) => Self::Timestamp(micros),
            Read::Text(value) => str::from_utf8(value).map_or(Self::Binary(value), Self::Text),
            Read::Binary(value) => Self::Binary(value),
            Read::Array(members) => {
                let members = members.into_iter().map(|member| Self::within(member, depth + 1, left));
                Self::Array(members.collect::<Result<_, _>>()?)
            }
            Read::Object(members) => {
                let mut named = |(name, member)| {
                    Ok((str::from_utf8(name).map_err(|_| "a name is no text")?, Self::within(member, depth + 1, left)?))
                };
                Self::Object(members.into_iter().map(&mut named).collect::<Result<_, String>>()?)
            }
            Read::Other => {
                return Err("a VARIANT has a value, such as a date, that no message has a place for".to_owned());
            }
        })
    }

    /// A decimal as a number that has a fraction.
    fn fraction(digits: i128, places: u8) -> f64 {
        // Read as it is written, it is the nearest there is.
        format!("{digits}e-{places}").parse().unwrap_or(f64::NAN)
    }

    /// Appends it to MessagePack, in the fewest bytes.
    pub(crate) fn pack(&self, out: &mut Vec<u8>) -> Result<(), Oversize> {
        match self {
            Self::Null => write_nil(out),
            Self::Boolean(value) => write_bool(out, *value),
            Self::Signed(value) => write_signed(out, *value),
            Self::Decimal(digits, 0) if u64::try_from(*digits).is_ok() => {
                write_unsigned(out, u64::try_from(*digits).unwrap_or_default());
            }
            Self::Decimal(digits, 0) if i64::try_from(*digits).is_ok() => {
                write_signed(out, i64::try_from(*digits).unwrap_or_default());
            }
            Self::Decimal(digits, places) => write_f64(out, Self::fraction(*digits, *places)),
            Self::Float(value) => write_f32(out, *value),
            Self::Double(value) => write_f64(out, *value),
            Self::Timestamp(micros) => {
                let moment = Timestamp::from_nanos(i128::from(*micros) * 1000);
                match moment {
                    Some(moment) => write_timestamp(out, moment),
                    None => write_nil(out),
                }
            }
            Self::Text(value) => write_string(out, value)?,
            Self::Binary(value) => write_binary(out, value)?,
            Self::Array(members) => {
                write_array(out, members.len())?;
                members.iter().try_for_each(|member| member.pack(out))?;
            }
            Self::Object(members) => pack(members, out)?,
        }
        Ok(())
    }

    /// Writes it as the next value of a field table.
    fn enter(&self, table: &mut Writer) -> Result<(), Unwritable> {
        match self {
            Self::Null => table.void(),
            Self::Boolean(value) => table.boolean(*value),
            Self::Signed(value) => table.int(*value),
            Self::Decimal(digits, places) => match (i32::try_from(*digits), i64::try_from(*digits)) {
                (Ok(digits), _) if *places > 0 => table.decimal(*places, digits),
                (_, Ok(number)) if *places == 0 => table.int(number),
                _ => table.float(Self::fraction(*digits, *places)),
            },
            Self::Float(value) => table.float((*value).into()),
            Self::Double(value) => table.float(*value),
            Self::Timestamp(micros) => match u64::try_from(micros.div_euclid(1_000_000)) {
                Ok(seconds) => table.time(seconds),
                Err(_) => table.void(),
            },
            Self::Text(value) => table.text(value)?,
            Self::Binary(value) => table.bytes(value)?,
            Self::Array(members) => {
                table.array()?;
                members.iter().try_for_each(|member| member.enter(table))?;
                table.end()?;
            }
            Self::Object(members) => {
                table.table()?;
                enter(members, table)?;
                table.end()?;
            }
        }
        Ok(())
    }

    /// The same as JSON.
    fn to_json(&self) -> Result<Json, String> {
        let number = |value: f64| Number::from_f64(value).ok_or_else(|| format!("JSON has no number {value}"));
        Ok(match self {
            Self::Null => Json::Null,
            Self::Boolean(value) => Json::Bool(*value),
            Self::Signed(value) => Json::Number((*value).into()),
            Self::Decimal(digits, 0) if u64::try_from(*digits).is_ok() => {
                Json::Number(u64::try_from(*digits).unwrap_or_default().into())
            }
            Self::Decimal(digits, places) => Json::Number(number(Self::fraction(*digits, *places))?),
            Self::Float(value) => Json::Number(number((*value).into())?),
            Self::Double(value) => Json::Number(number(*value)?),
            Self::Text(value) => Json::String((*value).to_owned()),
            Self::Array(members) => Json::Array(members.iter().map(Self::to_json).collect::<Result<_, _>>()?),
            Self::Object(members) => Json::Object(to_json(members)?),
            Self::Timestamp(_) | Self::Binary(_) => return Err("JSON has no bytes and no moments".to_owned()),
        })
    }
}

/// Members as a map of MessagePack.
pub(crate) fn pack(members: &[(&str, Value<'_>)], out: &mut Vec<u8>) -> Result<(), Oversize> {
    write_map(out, members.len())?;
    for (name, member) in members {
        write_string(out, name)?;
        member.pack(out)?;
    }
    Ok(())
}

/// Members as a field table.
pub(crate) fn to_table(members: &[(&str, Value<'_>)]) -> Result<Vec<u8>, Unwritable> {
    let mut table = Writer::new();
    enter(members, &mut table)?;
    table.finish()
}

fn enter(members: &[(&str, Value<'_>)], table: &mut Writer) -> Result<(), Unwritable> {
    for (name, member) in members {
        table.name(name)?;
        member.enter(table)?;
    }
    Ok(())
}

/// Members as a JSON object.
pub(crate) fn to_json(members: &[(&str, Value<'_>)]) -> Result<control::Json, String> {
    let mut object = Map::new();
    for (name, member) in members {
        object.insert((*name).to_owned(), member.to_json()?);
    }
    Ok(object)
}
