//! Writing, always in the fewest bytes.

use std::{error::Error, fmt};

use super::{TIMESTAMP_CODE, Timestamp};

/// More bytes or members than MessagePack can count: 2^32 or more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Oversize;

impl fmt::Display for Oversize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MessagePack counts no more than 4 294 967 295 bytes or members")
    }
}

impl Error for Oversize {}

/// Writes nothing, as an object.
pub fn write_nil(out: &mut Vec<u8>) {
    out.push(0xc0);
}

/// Writes true or false.
pub fn write_bool(out: &mut Vec<u8>, value: bool) {
    out.push(if value { 0xc3 } else { 0xc2 });
}

#[inline]
pub fn write_unsigned(out: &mut Vec<u8>, value: u64) {
    if let Ok(value @ 0..=0x7f) = u8::try_from(value) {
        out.push(value);
    } else {
        write_sized(out, value, [0xcc, 0xcd, 0xce, 0xcf]);
    }
}

#[inline]
pub fn write_signed(out: &mut Vec<u8>, value: i64) {
    if let Ok(value) = u64::try_from(value) {
        write_unsigned(out, value);
    } else if let Ok(value) = i8::try_from(value) {
        if value < -0x20 {
            out.push(0xd0);
        }
        out.push(value.cast_unsigned());
    } else if let Ok(value) = i16::try_from(value) {
        write_marked(out, 0xd1, value.to_be_bytes());
    } else if let Ok(value) = i32::try_from(value) {
        write_marked(out, 0xd2, value.to_be_bytes());
    } else {
        write_marked(out, 0xd3, value.to_be_bytes());
    }
}

/// Writes a number of single precision.
pub fn write_f32(out: &mut Vec<u8>, value: f32) {
    write_marked(out, 0xca, value.to_be_bytes());
}

/// Writes a number of double precision.
pub fn write_f64(out: &mut Vec<u8>, value: f64) {
    write_marked(out, 0xcb, value.to_be_bytes());
}

#[inline]
pub fn write_string(out: &mut Vec<u8>, value: &str) -> Result<(), Oversize> {
    let length = count(value.len())?;
    match u8::try_from(length) {
        Ok(length @ 0..=0x1f) => out.push(0xa0 | length),
        _ => write_sized(out, length.into(), [0xd9, 0xda, 0xdb, 0xdb]),
    }
    out.extend_from_slice(value.as_bytes());
    Ok(())
}

pub fn write_binary(out: &mut Vec<u8>, value: &[u8]) -> Result<(), Oversize> {
    write_sized(out, count(value.len())?.into(), [0xc4, 0xc5, 0xc6, 0xc6]);
    out.extend_from_slice(value);
    Ok(())
}

/// Writes the head of an array; this many objects must follow.
pub fn write_array(out: &mut Vec<u8>, members: usize) -> Result<(), Oversize> {
    write_members(out, members, 0x90, 0xdc, 0xdd)
}

/// Writes the head of a map; this many pairs of a key and a value must follow.
pub fn write_map(out: &mut Vec<u8>, pairs: usize) -> Result<(), Oversize> {
    write_members(out, pairs, 0x80, 0xde, 0xdf)
}

pub fn write_ext(out: &mut Vec<u8>, code: i8, body: &[u8]) -> Result<(), Oversize> {
    match body.len() {
        1 => out.push(0xd4),
        2 => out.push(0xd5),
        4 => out.push(0xd6),
        8 => out.push(0xd7),
        16 => out.push(0xd8),
        length => write_sized(out, count(length)?.into(), [0xc7, 0xc8, 0xc9, 0xc9]),
    }
    out.push(code.cast_unsigned());
    out.extend_from_slice(body);
    Ok(())
}

/// Writes a timestamp: in 64 bits, in 32 without nanoseconds, in 96 before 1970 and after 2514.
#[inline]
pub fn write_timestamp(out: &mut Vec<u8>, timestamp: Timestamp) {
    let (seconds, nanoseconds) = (timestamp.seconds(), timestamp.nanoseconds());
    match (u32::try_from(seconds), u64::try_from(seconds)) {
        (Ok(seconds), _) if nanoseconds == 0 => {
            out.extend_from_slice(&[0xd6, TIMESTAMP_CODE.cast_unsigned()]);
            out.extend_from_slice(&seconds.to_be_bytes());
        }
        (_, Ok(seconds)) if seconds >> 34 == 0 => {
            out.extend_from_slice(&[0xd7, TIMESTAMP_CODE.cast_unsigned()]);
            out.extend_from_slice(&(u64::from(nanoseconds) << 34 | seconds).to_be_bytes());
        }
        _ => {
            out.extend_from_slice(&[0xc7, 12, TIMESTAMP_CODE.cast_unsigned()]);
            out.extend_from_slice(&nanoseconds.to_be_bytes());
            out.extend_from_slice(&seconds.to_be_bytes());
        }
    }
}

fn count(length: usize) -> Result<u32, Oversize> {
    u32::try_from(length).map_err(|_| Oversize)
}

#[inline]
fn write_marked<const N: usize>(out: &mut Vec<u8>, marker: u8, value: [u8; N]) {
    out.push(marker);
    out.extend_from_slice(&value);
}

/// The marker of the narrowest width, then the value in that width.
#[inline]
fn write_sized(out: &mut Vec<u8>, value: u64, markers: [u8; 4]) {
    if let Ok(value) = u8::try_from(value) {
        write_marked(out, markers[0], value.to_be_bytes());
    } else if let Ok(value) = u16::try_from(value) {
        write_marked(out, markers[1], value.to_be_bytes());
    } else if let Ok(value) = u32::try_from(value) {
        write_marked(out, markers[2], value.to_be_bytes());
    } else {
        write_marked(out, markers[3], value.to_be_bytes());
    }
}

fn write_members(out: &mut Vec<u8>, members: usize, fixed: u8, two: u8, four: u8) -> Result<(), Oversize> {
    let members = count(members)?;
    if let Ok(members @ 0..=0x0f) = u8::try_from(members) {
        out.push(fixed | members);
    } else if let Ok(members) = u16::try_from(members) {
        write_marked(out, two, members.to_be_bytes());
    } else {
        write_marked(out, four, members.to_be_bytes());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut out = Vec::new();
        write(&mut out);
        out
    }

    #[test]
    fn integers_take_the_fewest_bytes() {
        let lengths = [
            (0, 1),
            (0x7f, 1),
            (0x80, 2),
            (0xff, 2),
            (0x100, 3),
            (0xffff, 3),
            (0x1_0000, 5),
            (0xffff_ffff, 5),
            (0x1_0000_0000, 9),
            (i64::MAX, 9),
            (-0x20, 1),
            (-0x21, 2),
            (-0x80, 2),
            (-0x81, 3),
            (-0x8000, 3),
            (-0x8001, 5),
            (-0x8000_0000, 5),
            (-0x8000_0001, 9),
            (i64::MIN, 9),
        ];
        for (value, length) in lengths {
            assert_eq!(written(|out| write_signed(out, value)).len(), length, "{value}");
        }
        assert_eq!(written(|out| write_unsigned(out, u64::MAX)), [0xcf, 255, 255, 255, 255, 255, 255, 255, 255]);
    }

    #[test] // req: CDTP-05
    fn a_timestamp_takes_the_width_it_needs() {
        let widths = [
            (0, 0, 6),
            (0xffff_ffff, 0, 6),
            (0, 1, 10),
            (0x1_0000_0000, 0, 10),
            (0x3_ffff_ffff, 999_999_999, 10),
            (0x4_0000_0000, 0, 15),
            (-1, 0, 15),
            (-1, 500_000_000, 15),
        ];
        for (seconds, nanoseconds, length) in widths {
            let timestamp = Timestamp::new(seconds, nanoseconds).expect("less than a second");
            let out = written(|out| write_timestamp(out, timestamp));
            assert_eq!(out.len(), length, "{seconds} {nanoseconds}");
        }
    }
}
