//! Headers of 58 bytes on average, four tags each, as in the Spark measurements: time for each row on one core.
#![allow(clippy::unwrap_used)] // our own input is right

use std::{hint::black_box, sync::Arc};

use arrow_array::{ArrayRef, BinaryArray, Int32Array};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use trunkline_columns::{PROTOCOLS, Parts, RestType, TagType, Tags, Value};
use trunkline_wire::{
    cdtp::{MessageType, Settings, Variant, decode_header, encode_header},
    msgpack::{Timestamp, write_bool, write_f64, write_map, write_string, write_unsigned},
};

const ROWS: u64 = 10_000;

fn header(number: u64) -> Vec<u8> {
    let mut tags = Vec::new();
    write_map(&mut tags, 4).unwrap();
    write_string(&mut tags, "run").unwrap();
    write_unsigned(&mut tags, 7 + number / 1000);
    write_string(&mut tags, "dtype").unwrap();
    write_string(&mut tags, "u1").unwrap();
    write_string(&mut tags, "ok").unwrap();
    write_bool(&mut tags, !number.is_multiple_of(3));
    write_string(&mut tags, "x").unwrap();
    write_f64(&mut tags, 1.5 / (1.0 + f64::from(u32::try_from(number).unwrap())));
    let mut header = Vec::new();
    let timestamp = Timestamp::new(1_795_251_125, u32::try_from(number * 1001).unwrap()).unwrap();
    encode_header(&mut header, Variant::S, "Detector.one", timestamp, MessageType::Dat, number, &tags).unwrap();
    header
}

fn benches(criterion: &mut Criterion) {
    let headers: Vec<_> = (0..ROWS).map(header).collect();
    let mean = headers.iter().map(Vec::len).sum::<usize>() / headers.len();
    let input = Parts {
        header: Some(Arc::new(BinaryArray::from_iter_values(&headers))),
        n_frames: Some(Arc::new(Int32Array::from_value(2, headers.len())) as ArrayRef),
        ..Parts::default()
    };
    let typed =
        [("run", TagType::BigInt), ("dtype", TagType::String), ("ok", TagType::Boolean), ("x", TagType::Double)]
            .map(|(name, tag_type)| (name.to_owned(), tag_type));
    // As in the package: a decoder with options that are known only at run time.
    let decoder = |tags| PROTOCOLS[0].decoder(vec![("tags", Value::Tags(tags))]).unwrap();
    let typed = |count: usize, rest| decoder(Tags::new(typed[..count].to_vec(), rest).unwrap());

    let mut group = criterion.benchmark_group(format!("cdtp-{mean}-bytes"));
    group.throughput(Throughput::Elements(ROWS));
    group.bench_function("decode_header", |bencher| {
        let settings = Settings::default();
        bencher.iter(|| {
            headers.iter().filter(|header| decode_header(black_box(header), Some(2), &settings).is_ok()).count()
        });
    });
    for (name, decoder) in [
        ("rows/no-tags", decoder(Tags::NONE)),
        ("rows/one-typed-tag", typed(1, None)),
        ("rows/four-typed-tags", typed(4, None)),
        ("rows/variant", decoder(Tags::default())),
        ("rows/json", decoder(Tags::new(vec![], Some(RestType::Json)).unwrap())),
        ("rows/one-typed-tag-and-variant", typed(1, Some(RestType::Variant))),
    ] {
        group.bench_function(name, |bencher| {
            bencher.iter(|| decoder.decode_rows(black_box(&input).clone(), None).unwrap().count());
        });
    }
    let decoder = typed(1, None);
    group.bench_function("structs/one-typed-tag", |bencher| {
        bencher.iter(|| decoder.decode_structs(black_box(&input)).unwrap());
    });
    group.finish();
}

criterion_group!(all, benches);
criterion_main!(all);
