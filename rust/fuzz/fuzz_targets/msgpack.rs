//! Any bytes as MessagePack: what can be read is written in the fewest bytes and read as the same again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use trunkline_wire::{
    ErrorKind, Fault,
    msgpack::{
        Reader, Value, write_array, write_binary, write_bool, write_ext, write_f32, write_f64, write_map, write_nil,
        write_signed, write_string, write_timestamp, write_unsigned,
    },
};

fuzz_target!(|bytes: &[u8]| {
    let mut reader = Reader::new(bytes, ErrorKind::BadHeader);
    let skipped = reader.skip(0);
    let end = reader.position();
    assert!(end <= bytes.len());
    let mut canonical = Vec::new();
    let mut again = Reader::new(bytes, ErrorKind::BadHeader);
    match skipped {
        Err(fault) => {
            assert!(fault.offset <= bytes.len());
            // Deep nesting is the reader's own limit, which whoever reads values one by one has to keep.
            if fault.kind != ErrorKind::TooDeep {
                assert_eq!(copy(&mut again, &mut canonical), Err(fault));
            }
        }
        Ok(()) => {
            copy(&mut again, &mut canonical).expect("what can be passed can be read");
            assert_eq!(again.position(), end);
            assert!(canonical.len() <= end, "canonical is shortest");
            let mut passed = Reader::new(bytes, ErrorKind::BadHeader);
            passed.pass().expect("what was checked can be passed");
            assert_eq!(passed.position(), end);

            let mut twice = Vec::new();
            let mut reader = Reader::new(&canonical, ErrorKind::BadHeader);
            copy(&mut reader, &mut twice).expect("what is written can be read");
            assert!(reader.rest().is_empty());
            assert_eq!(twice, canonical);
        }
    }
});

/// Writes what is read, value for value.
fn copy(reader: &mut Reader<'_>, out: &mut Vec<u8>) -> Result<(), Fault> {
    let mut pending = 1_u64;
    while pending > 0 {
        pending -= 1;
        match reader.value()? {
            Value::Nil => write_nil(out),
            Value::Boolean(value) => write_bool(out, value),
            Value::Signed(value) => write_signed(out, value),
            Value::Unsigned(value) => write_unsigned(out, value),
            Value::F32(value) => write_f32(out, value),
            Value::F64(value) => write_f64(out, value),
            Value::String(value) => write_string(out, value).expect("short"),
            Value::Binary(value) => write_binary(out, value).expect("short"),
            Value::Timestamp(value) => write_timestamp(out, value),
            Value::Ext(code, data) => write_ext(out, code, data).expect("short"),
            Value::Array(length) => {
                write_array(out, length as usize).expect("32 bits");
                pending += u64::from(length);
            }
            Value::Map(pairs) => {
                write_map(out, pairs as usize).expect("32 bits");
                pending += 2 * u64::from(pairs);
            }
        }
    }
    Ok(())
}
