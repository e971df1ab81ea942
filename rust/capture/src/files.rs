//! The names of a capture's files. All but the segments start with a dot or an underscore, which Spark and pyarrow
//! skip; for readers that do not, what stays without a writer is [`sealed`](crate::sealed), or empty.

use std::fmt;

/// The directory of a capture's metadata.
pub(crate) const META: &str = "_capture";
/// The capture's id and numbering.
pub(crate) const MANIFEST: &str = "_capture/manifest.parquet";
/// Its next version, until it is renamed.
pub(crate) const NEXT_MANIFEST: &str = "_capture/.manifest";
/// The segment that others are being merged into.
pub(crate) const NEXT_MERGED: &str = "_capture/.merged";
/// The notes on the next segment, until they are renamed.
pub(crate) const NEXT_NOTES: &str = "_capture/.runs";

/// The name below [`META`] of a file without text that is there if the manifest may be exact.
pub(crate) const BATCHES: &str = "batches.parquet";
/// The same, until it is renamed.
pub(crate) const NEXT_BATCHES: &str = "_capture/.batches";

/// The ending of the checksums of segments that were published together, after the number of the last.
pub(crate) const SUMS: &str = ".sums.parquet";

/// An empty file whose name ends with the number of the first segment that was not copied elsewhere.
pub(crate) const SHIPPED: &str = ".shipped-";

/// The manifest of an earlier version, plain.
pub(crate) const PLAIN_MANIFEST: &str = "_capture.json";
/// The notes of an earlier version, plain.
pub(crate) const PLAIN_NOTES: &str = "_runs";

/// What a writer locks.
pub(crate) const LOCK: &str = ".lock";

/// Where an import writes until it is complete.
pub(crate) const IMPORT: &str = "_import";

/// The notes beside a segment.
pub(crate) fn notes(number: u64) -> String {
    Span::one(number).notes()
}

/// The checksums of segments that were published together.
pub(crate) fn sums(last: u64) -> String {
    format!("{META}/{last:010}{SUMS}")
}

/// The same in an earlier version.
pub(crate) fn plain_notes(number: u64) -> String {
    format!("{PLAIN_NOTES}/{number:010}.jsonl")
}

/// The segments of files of notes with these names, in order.
pub(crate) fn numbered(names: impl IntoIterator<Item = String>, ending: &str) -> Vec<u64> {
    let number = |name: String| name.strip_suffix(ending).and_then(number);
    let mut numbers: Vec<u64> = names.into_iter().filter_map(number).collect();
    numbers.sort_unstable();
    numbers
}

/// The numbers of the segments whose rows a file has: one, or several consecutive ones that were merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Span {
    pub(crate) first: u64,
    pub(crate) last: u64,
}

impl Span {
    /// A segment as it was published.
    pub(crate) fn one(number: u64) -> Self {
        Self { first: number, last: number }
    }

    pub(crate) fn contains(self, number: u64) -> bool {
        self.first <= number && number <= self.last
    }

    pub(crate) fn covers(self, other: Self) -> bool {
        self.first <= other.first && other.last <= self.last
    }

    pub(crate) fn is_merged(self) -> bool {
        self.first < self.last
    }

    /// The number of segments.
    pub(crate) fn count(self) -> u64 {
        self.last - self.first + 1
    }

    /// What is left of them without some of them, which are in order.
    pub(crate) fn without(self, parts: &[Self]) -> Vec<Self> {
        let firsts = [self.first].into_iter().chain(parts.iter().map(|part| part.last + 1));
        let ends = parts.iter().map(|part| part.first).chain([self.last + 1]);
        let left = firsts.zip(ends).filter(|(first, end)| first < end);
        left.map(|(first, end)| Self { first, last: end - 1 }).collect()
    }

    /// The file with their rows.
    pub(crate) fn file(self) -> String {
        format!("{self}.parquet")
    }

    /// The notes on it.
    pub(crate) fn notes(self) -> String {
        format!("{META}/{self}.parquet")
    }

    /// The segments in the name of a file, before its ending.
    pub(crate) fn named(name: &str) -> Option<Self> {
        match name.split_once('-') {
            None => number(name).map(Self::one),
            Some((first, last)) => {
                let span = Self { first: number(first)?, last: number(last)? };
                (span.is_merged() && span.count() <= MERGED_MAX).then_some(span)
            }
        }
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:010}", self.first)?;
        if self.is_merged() { write!(f, "-{:010}", self.last) } else { Ok(()) }
    }
}

/// The most segments that are merged into one.
pub(crate) const MERGED_MAX: u64 = 1 << 20;

/// The merged segments that have files of notes with these names, in order.
pub(crate) fn merged(names: impl IntoIterator<Item = String>) -> Vec<Span> {
    let span = |name: String| name.strip_suffix(".parquet").and_then(Span::named);
    let mut spans: Vec<Span> = names.into_iter().filter_map(span).filter(|span| span.is_merged()).collect();
    spans.sort_unstable();
    spans
}

/// The largest segment and row number. No capture reaches it; a file may claim a larger one, after which numbers would
/// overflow.
pub(crate) const NUMBER_MAX: u64 = 1 << 62;

/// The number in the name of a file, if it is written exactly as names are here.
fn number(digits: &str) -> Option<u64> {
    let number = digits.parse().ok()?;
    (format!("{number:010}") == digits && number <= NUMBER_MAX).then_some(number)
}

/// Whether a directory with these names holds a capture.
pub(crate) fn hold_capture(names: &[String]) -> bool {
    let has_manifest = names.iter().any(|name| name == META || name == PLAIN_MANIFEST);
    let Listing { segments, journals, .. } = Listing::new(names.iter().cloned());
    has_manifest || !segments.is_empty() || !journals.is_empty()
}

/// The first of these names that is no part of a capture, and that readers of the directory would see.
pub(crate) fn foreign(names: &[String]) -> Option<&String> {
    let is_segment = |name: &String| !Listing::new([name.clone()]).segments.is_empty();
    names.iter().filter(|name| !name.starts_with(['.', '_']) && !is_segment(name)).min()
}

/// A published segment.
pub(crate) fn segment(number: u64) -> String {
    Span::one(number).file()
}

/// A segment still being written, under a name that no pattern for segments matches.
pub(crate) fn partial(number: u64) -> String {
    format!(".{number:010}.partial")
}

/// The rows of the segment being written.
pub(crate) fn journal(number: u64) -> String {
    format!(".{number:010}.journal")
}

/// What a directory holds, by number and in order.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Listing {
    /// The published segments, each row in one of them.
    pub(crate) segments: Vec<Span>,
    /// Those whose rows are in a merged one as well: the merge was killed before it removed them, or is about to.
    pub(crate) covered: Vec<Span>,
    pub(crate) partials: Vec<u64>,
    pub(crate) journals: Vec<u64>,
}

impl Listing {
    pub(crate) fn new(names: impl IntoIterator<Item = String>) -> Self {
        let mut listing = Self::default();
        for name in names {
            let (hidden, visible) = match name.strip_prefix('.') {
                Some(visible) => (true, visible),
                None => (false, &*name),
            };
            let Some((numbers, kind)) = visible.split_once('.') else { continue };
            match (hidden, kind) {
                (false, "parquet") => listing.segments.extend(Span::named(numbers)),
                (true, "partial") => listing.partials.extend(number(numbers)),
                (true, "journal") => listing.journals.extend(number(numbers)),
                _ => {}
            }
        }
        // Of those with the same first number, the largest comes first.
        listing.segments.sort_unstable_by_key(|span| (span.first, u64::MAX - span.last));
        let mut last: Option<Span> = None;
        let is_covered = |span: &mut Span| {
            let is_covered = last.is_some_and(|last| last.covers(*span));
            last = if is_covered { last } else { Some(*span) };
            is_covered
        };
        listing.covered = listing.segments.extract_if(.., is_covered).collect();
        listing.partials.sort_unstable();
        listing.journals.sort_unstable();
        listing
    }

    /// Hides the segments from a number on; gives whether all before it are there, but for the oldest.
    pub(crate) fn end_at(&mut self, next_segment: u64) -> bool {
        self.segments.retain(|span| span.last < next_segment);
        let is_followed = |pair: &[Span]| pair[0].last + 1 == pair[1].first;
        self.segments.windows(2).all(is_followed)
            && self.segments.last().map_or(0, |span| span.last + 1) == next_segment
    }

    /// Whether a segment is published.
    pub(crate) fn has(&self, number: u64) -> bool {
        self.covering(Span::one(number)).is_some()
    }

    /// Those of some segments that are published, by the file they are in, in order.
    pub(crate) fn parts(&self, span: Span) -> Vec<Span> {
        let at = self.segments.partition_point(|segment| segment.last < span.first);
        let there = self.segments[at..].iter().take_while(|segment| segment.first <= span.last);
        there.map(|segment| Span { first: segment.first.max(span.first), last: segment.last.min(span.last) }).collect()
    }

    /// The published segment with the rows of these.
    pub(crate) fn covering(&self, span: Span) -> Option<Span> {
        let at = self.segments.partition_point(|segment| segment.first <= span.first);
        self.segments[..at].last().copied().filter(|segment| segment.covers(span))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_its_own_names_are_listed() {
        let names = [
            segment(42),
            segment(7),
            segment(10_000_000_000),
            partial(43),
            journal(43),
            META.into(),
            LOCK.into(),
            "part-0000.parquet".into(),
            "0000000042.parquet.crc".into(),
            "42.parquet".into(),
            "00000000x2.parquet".into(),
            "99999999999999999999999.parquet".into(),
            "18446744073709551615.parquet".into(),
            "9223372036854775808.parquet".into(),
            "00000000043.parquet".into(),
            "+000000043.parquet".into(),
            ".+000000044.journal".into(),
        ];
        let segments = [7, 42, 10_000_000_000].map(Span::one).to_vec();
        let expected = Listing { segments, covered: vec![], partials: vec![43], journals: vec![43] };
        assert_eq!(Listing::new(names), expected);
        let runs = ["0000000005.jsonl", "+5.jsonl", "5.jsonl", "00000000006.jsonl", "9223372036854775808.jsonl"];
        assert_eq!(numbered(runs.map(str::to_owned), ".jsonl"), [5]);
    }

    #[test]
    fn a_merged_segment_hides_what_it_replaces() {
        let span = |first, last| Span { first, last };
        let spans = [span(0, 0), span(0, 4), span(2, 2), span(4, 4), span(5, 5), span(7, 9), span(7, 8), span(9, 9)];
        let listing = Listing::new(spans.map(Span::file));
        assert_eq!(listing.segments, [span(0, 4), span(5, 5), span(7, 9)]);
        assert_eq!(listing.covered, [span(0, 0), span(2, 2), span(4, 4), span(7, 8), span(9, 9)]);
        let there: Vec<u64> = (0..12).filter(|number| listing.has(*number)).collect();
        assert_eq!(there, [0, 1, 2, 3, 4, 5, 7, 8, 9]);
        assert_eq!(listing.covering(span(1, 3)), Some(span(0, 4)));
        assert_eq!(listing.covering(span(3, 5)), None);
        for name in ["0000000004-0000000004", "0000000004-0000000003", "0000000000-0004000000", "0-4", "0000000000-"] {
            assert_eq!(Listing::new([format!("{name}.parquet")]), Listing::default(), "{name}");
        }
    }
}
