//! Values of maps, written as MessagePack, as field tables and as JSON.

use serde_json::{Map, Number, Value as Json};
use trunkline_wire::{
    msgpack::{
        Oversize, Timestamp, write_array, write_binary, write_bool, write_f32, write_f64, write_map, write_nil,
        write_signed, write_string, write_timestamp, write_unsigned,
    },
    mtl::{
        control,
        table::{Unwritable, Writer},
    },
};

use crate::variant::reading::Value;

impl Value<'_> {
    /// A decimal as a floating-point number.
    fn fraction(digits: i128, places: u8) -> f64 {
        // Parsing its text gives the nearest one.
        format!("{digits}e-{places}").parse().unwrap_or(f64::NAN)
    }

    /// Appends it to MessagePack, in the fewest bytes.
    pub(crate) fn pack(&self, out: &mut Vec<u8>) -> Result<(), Oversize> {
        match self {
            Self::Null => write_nil(out),
            Self::Boolean(value) => write_bool(out, *value),
            Self::Signed(value) => write_signed(out, *value),
            Self::Decimal(digits, places) => match (*places, u64::try_from(*digits), i64::try_from(*digits)) {
                (0, Ok(number), _) => write_unsigned(out, number),
                (0, _, Ok(number)) => write_signed(out, number),
                _ => write_f64(out, Self::fraction(*digits, *places)),
            },
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
                (Ok(digits), _) => table.decimal(*places, digits),
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
            Self::Decimal(digits, places) => Json::Number(match (*places, u64::try_from(*digits)) {
                (0, Ok(number)) => number.into(),
                _ => number(Self::fraction(*digits, *places))?,
            }),
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
