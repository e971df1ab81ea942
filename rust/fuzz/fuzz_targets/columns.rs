//! Any bytes as a column of headers: what is decoded agrees with the codec, and VARIANTs with another implementation.
#![no_main]

use std::sync::Arc;

use arrow_array::{Array, BinaryArray, RecordBatch, cast::AsArray};
use libfuzzer_sys::fuzz_target;
use parquet_variant::{Variant, VariantMetadata};
use trunkline_columns::{
    ColumnError, Mode, Parts, Payload, RestType, Rows, Shredding, TagType, Tags, cdtp::Options, decode_rows,
    decode_structs, encode_structs, unshredded,
};
use trunkline_wire::cdtp::{Cdtp, Settings, decode_header};

/// Rows are apart by this.
const BETWEEN: &[u8] = b"\xc1\xc1";

fuzz_target!(|input: &[u8]| {
    let Some((&plan, input)) = input.split_first() else { return };
    let rows = split(input);
    let header = BinaryArray::from_iter(rows.iter().map(|row| (!row.is_empty()).then_some(row)));
    let headers = Parts { header: Some(Arc::new(header)), ..Parts::default() };
    let typed = [
        ("a", TagType::BigInt),
        ("b", TagType::Double),
        ("c", TagType::String),
        ("d", TagType::Boolean),
        ("e", TagType::Binary),
        ("t", TagType::Timestamp),
        ("u", TagType::Json),
    ];
    let typed = typed[..usize::from(plan & 7)].iter().map(|(name, tag_type)| ((*name).to_owned(), *tag_type));
    let rest = [None, Some(RestType::Variant), Some(RestType::Json)][usize::from(plan >> 6).min(2)];
    let options = |mode| Options {
        settings: Settings { strict: plan & 8 == 0, ..Settings::default() },
        mode,
        tags: Tags::new(typed.clone().collect(), rest).expect("different names"),
        payload: if plan & 32 == 0 { Payload::Frames } else { Payload::None },
    };

    let settings = options(Mode::Permissive).settings;
    let decoded: Vec<_> = rows.iter().map(|row| decode_header(row, None, &settings)).collect();
    let permissive = table(&options(Mode::Permissive), &headers).expect("small").columns;
    let expected: usize = (rows.iter().zip(&decoded))
        .map(|(row, decoded)| if row.is_empty() { 1 } else { decoded.as_ref().map_or(1, |layout| layout.messages()) })
        .sum();
    assert_eq!(permissive.num_rows(), expected);
    check_variants(&permissive);

    let structs = decode_structs::<Cdtp>(&options(Mode::Permissive), &headers).expect("small");
    let _ = encode_structs::<Cdtp>(&options(Mode::Permissive), &structs);
    for (row, decoded) in decoded.iter().enumerate() {
        assert_eq!(structs.is_null(row), rows[row].is_empty());
        if let (false, Err(error)) = (rows[row].is_empty(), decoded) {
            let kinds = structs.column_by_name("error").expect("a column").as_string::<i32>();
            assert_eq!(kinds.value(row), error.kind.slug());
        }
    }

    let dropped = table(&options(Mode::DropMalformed), &headers).expect("small");
    assert!(dropped.columns.num_rows() <= expected);
    let bad = (rows.iter().zip(&decoded)).any(|(row, decoded)| !row.is_empty() && decoded.is_err());
    if bad {
        table(&options(Mode::FailFast), &headers).expect_err("a bad header");
    }
});

fn split(mut input: &[u8]) -> Vec<&[u8]> {
    let mut rows = Vec::new();
    while let Some(at) = input.windows(BETWEEN.len()).position(|window| window == BETWEEN) {
        rows.push(&input[..at]);
        input = &input[at + BETWEEN.len()..];
    }
    rows.push(input);
    rows
}

fn check_variants(batch: &RecordBatch) {
    let Some(tags) = batch.column_by_name("tags") else { return };
    let Some(tags) = tags.as_struct_opt() else { return };
    for row in (0..tags.len()).filter(|&row| tags.is_valid(row)) {
        let bytes = |column| tags.column(column).as_binary::<i32>().value(row);
        // The other implementation takes an empty name for a fault; Spark does not.
        if VariantMetadata::new(bytes(1)).iter().all(|name| !name.is_empty()) {
            Variant::try_new(bytes(1), bytes(0)).expect("a variant by the rules");
        }
    }
    let shredding = Shredding::of(tags).expect("variants");
    if let Some(shredded) = shredding.and_then(|shredding| shredding.shredded(tags).expect("variants")) {
        assert_eq!(&unshredded(&shredded).expect("shredded"), tags);
    }
}

/// All rows: so little input makes one batch of them.
fn table(options: &Options, parts: &Parts) -> Result<Rows, ColumnError> {
    decode_rows::<Cdtp>(options.clone(), parts.clone())?.next().expect("a batch")
}
