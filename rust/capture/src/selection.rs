//! The selection of a capture's rows.

use std::ops::RangeInclusive;
use std::path::Path;

use arrow_array::cast::AsArray as _;
use arrow_array::types::Int64Type;
use arrow_array::{Array as _, BooleanArray, RecordBatch};
use parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader, RowGroupMetaData};
use parquet::file::statistics::Statistics;

use crate::CaptureError;
use crate::guard::guarded;
use crate::names::{Names, Noted};
use crate::source::Source;
use crate::thrift::check_footer;

/// The conditions of a selected row. Those not given match any row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    pub protocol: Option<String>,
    /// Its direction, as in the column.
    pub direction: Option<String>,
    /// The routing id of the peer it came from or went to.
    pub peer: Option<Vec<u8>>,
    pub topic: Option<String>,
    /// Received at this time or later.
    pub since_ns: Option<i64>,
    /// Received before this time.
    pub until_ns: Option<i64>,
    /// Its number is in one of these.
    pub numbers: Option<Vec<RangeInclusive<i64>>>,
    /// The number of its segment is in one of these.
    pub segments: Option<Vec<RangeInclusive<i64>>>,
    /// One of its names is among each of these, by column: row groups that have none are not read, others as a whole.
    pub names: Vec<(String, Names)>,
}

impl Selection {
    /// The columns that the selection needs.
    pub(crate) fn columns(&self) -> impl Iterator<Item = &'static str> {
        let is_timed = self.since_ns.is_some() || self.until_ns.is_some();
        [
            (self.protocol.is_some(), "protocol"),
            (self.direction.is_some(), "direction"),
            (self.peer.is_some(), "peer"),
            (self.topic.is_some(), "topic"),
            (is_timed, "received_at_ns"),
            (self.numbers.is_some(), "seq"),
            (self.segments.is_some(), "segment"),
        ]
        .into_iter()
        .filter_map(|(is_needed, name)| is_needed.then_some(name))
    }

    /// Whether any row of a row group may be selected, by its statistics and the names noted of it.
    pub(crate) fn may_have(&self, metadata: &ParquetMetaData, noted: &Noted, number: usize) -> bool {
        let group = metadata.row_group(number);
        let times = bounds(group, "received_at_ns");
        let is_too_early = times.is_some_and(|(_, last)| self.since_ns.is_some_and(|since| last < since));
        let is_too_late = times.is_some_and(|(first, _)| self.until_ns.is_some_and(|until| first >= until));
        let has_none = |name: &str, wanted: &Option<Vec<RangeInclusive<i64>>>| {
            bounds(group, name).zip(wanted.as_ref()).is_some_and(|((first, last), wanted)| {
                !wanted.iter().any(|range| *range.start() <= last && *range.end() >= first)
            })
        };
        let is_outside =
            is_too_early || is_too_late || has_none("seq", &self.numbers) || has_none("segment", &self.segments);
        !is_outside && noted.may_have(number, &self.names)
    }

    /// Which rows of a batch are selected; `None` for all of them.
    pub(crate) fn rows(&self, batch: &RecordBatch) -> Option<BooleanArray> {
        self.columns().next()?;
        let is_text = |column: &str, wanted: &Option<String>, row: usize| {
            wanted.as_ref().is_none_or(|wanted| {
                let texts = batch[column].as_string::<i32>();
                texts.is_valid(row) && texts.value(row) == wanted
            })
        };
        let is_of_peer = |row: usize| {
            self.peer.as_ref().is_none_or(|wanted| {
                let peers = batch["peer"].as_binary::<i32>();
                peers.is_valid(row) && peers.value(row) == wanted
            })
        };
        let number = |column: &str, row: usize| batch[column].as_primitive::<Int64Type>().value(row);
        let is_in_time = |row: usize| {
            self.since_ns.is_none_or(|since| number("received_at_ns", row) >= since)
                && self.until_ns.is_none_or(|until| number("received_at_ns", row) < until)
        };
        let is_in = |column: &str, wanted: &Option<Vec<RangeInclusive<i64>>>, row: usize| {
            wanted.as_ref().is_none_or(|wanted| {
                let number = number(column, row);
                wanted.iter().any(|range| range.contains(&number))
            })
        };
        let wanted: Vec<bool> = (0..batch.num_rows())
            .map(|row| {
                is_in("seq", &self.numbers, row)
                    && is_in("segment", &self.segments, row)
                    && is_in_time(row)
                    && is_text("protocol", &self.protocol, row)
                    && is_text("direction", &self.direction, row)
                    && is_text("topic", &self.topic, row)
                    && is_of_peer(row)
            })
            .collect();
        Some(wanted.into())
    }
}

/// The numbers of the first and the last row of each row group of a segment; nothing if one does not say it.
pub(crate) fn row_groups(path: &Path, file: &Source) -> Result<Vec<(i64, i64)>, CaptureError> {
    check_footer(path, file)?;
    guarded(path, || {
        let metadata = ParquetMetaDataReader::new().parse_and_finish(file);
        let metadata = metadata.map_err(|error| file.failure(path, error))?;
        let groups: Option<Vec<_>> = metadata.row_groups().iter().map(|group| bounds(group, "seq")).collect();
        let is_in_order = |groups: &Vec<(i64, i64)>| groups.is_sorted_by(|(_, last), (first, _)| last < first);
        Ok(groups.filter(is_in_order).unwrap_or_default())
    })
}

/// The smallest and the largest value of a column of numbers, if the file holds them.
fn bounds(group: &RowGroupMetaData, name: &str) -> Option<(i64, i64)> {
    let column = group.columns().iter().find(|column| column.column_path().string() == name)?;
    let Statistics::Int64(found) = column.statistics()? else { return None };
    Some((*found.min_opt()?, *found.max_opt()?))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use proptest::prelude::*;
    use trunkline_wire::Framing;

    use super::*;
    use crate::{Capture, Direction, Import, Row, Settings};

    const TOPICS: [Option<&str>; 3] = [None, Some("a"), Some("b")];

    /// Rows in segments of ten or so, received every 10 ns.
    fn capture(directory: &Path, rows: usize) -> Capture {
        let mut import = Import::open(directory, Settings { segment_bytes: 60, ..Settings::default() }).unwrap();
        for (at, seq) in (0..rows).zip(0_i64..) {
            import
                .append(&Row {
                    received_at_ns: seq * 10,
                    framing: if at % 4 == 0 { Framing::Mc0 } else { Framing::Cdtp },
                    endpoint: None,
                    peer: (at % 5 == 0).then_some(b"peer"),
                    direction: if at % 2 == 0 { Direction::In } else { Direction::Out },
                    topic: TOPICS[at % 3],
                    reply_to: None,
                    frames: &[b"header".as_slice()],
                    error: None,
                })
                .unwrap();
        }
        import.commit().unwrap();
        Capture::open(directory).unwrap()
    }

    fn numbers(capture: &Capture, selection: Selection) -> Vec<i64> {
        let batches = capture.columns(&["seq"], selection).unwrap().map(Result::unwrap);
        batches
            .flat_map(|batch| {
                assert_eq!(batch.num_columns(), 1);
                batch["seq"].as_primitive::<Int64Type>().values().to_vec()
            })
            .collect()
    }

    #[test]
    fn rows_are_those_that_have_all_that_is_said() {
        let scratch = tempfile::tempdir().unwrap();
        let capture = capture(scratch.path(), 100);
        let times = prop::option::of(-50_i64..1100);
        let spans = prop::collection::vec((-5_i64..105, 0_i64..40), 0..3);
        let wanted = (
            prop::option::of(prop::sample::select(vec!["cdtp", "mc0", "dcp"])),
            prop::option::of(prop::sample::select(vec!["in", "out"])),
            prop::option::of(prop::sample::select(vec!["a", "b", "c"])),
            any::<bool>(),
            times.clone(),
            times,
            prop::option::of(spans),
        );
        proptest!(ProptestConfig::with_cases(64), |((protocol, direction, topic, of_peer, since_ns, until_ns, spans) in wanted)| {
            let spans: Option<Vec<_>> = spans.map(|spans| spans.into_iter().map(|(from, more)| from..=from + more).collect());
            let selection = Selection {
                protocol: protocol.map(str::to_owned),
                direction: direction.map(str::to_owned),
                peer: of_peer.then(|| b"peer".to_vec()),
                topic: topic.map(str::to_owned),
                since_ns,
                until_ns,
                numbers: spans.clone(),
                segments: None,
                names: Vec::new(),
            };
            let expected: Vec<i64> = (0_i64..100).filter(|seq| {
                let time = seq * 10;
                protocol.is_none_or(|protocol| protocol == if seq % 4 == 0 { "mc0" } else { "cdtp" })
                    && direction.is_none_or(|direction| direction == if seq % 2 == 0 { "in" } else { "out" })
                    && topic.is_none_or(|topic| TOPICS[usize::try_from(seq % 3).unwrap()] == Some(topic))
                    && (!of_peer || seq % 5 == 0)
                    && since_ns.is_none_or(|since| time >= since)
                    && until_ns.is_none_or(|until| time < until)
                    && spans.as_ref().is_none_or(|spans| spans.iter().any(|span| span.contains(seq)))
            }).collect();
            prop_assert_eq!(numbers(&capture, selection), expected);
        });
    }

    #[test]
    fn segments_without_a_wanted_row_are_not_read() {
        let scratch = tempfile::tempdir().unwrap();
        let capture = capture(scratch.path(), 100);
        assert!(capture.segments().len() > 4);
        // Reading the rows of the first segment shows that they are damaged.
        let first = &scratch.path().join(&capture.files()[0]);
        let mut bytes = fs::read(first).unwrap();
        bytes[4..60].fill(0xff);
        fs::write(first, bytes).unwrap();
        let spoilt = capture.batches().unwrap().next().unwrap();
        assert!(spoilt.is_err());
        let late = Selection { since_ns: Some(900), ..Selection::default() };
        assert_eq!(numbers(&capture, late), (90..100).collect::<Vec<_>>());
        let numbered = Selection { numbers: Some(vec![95..=i64::MAX]), ..Selection::default() };
        assert_eq!(numbers(&capture, numbered), (95..100).collect::<Vec<_>>());
    }
}
