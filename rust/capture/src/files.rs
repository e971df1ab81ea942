//! The names of a capture's files. Whatever is not a segment starts with a dot or an underscore, which Spark and
//! pyarrow skip; for those who do not, what stays when nobody writes is [`sealed`](crate::sealed), or empty.

/// Where a capture keeps what it knows of itself.
pub(crate) const META: &str = "_capture";
/// The last word on the capture's id and numbering.
pub(crate) const MANIFEST: &str = "_capture/manifest.parquet";
/// Its next version, until it is renamed.
pub(crate) const NEXT_MANIFEST: &str = "_capture/.manifest";
/// The notes on the next segment, until they are renamed.
pub(crate) const NEXT_NOTES: &str = "_capture/.runs";

/// The manifest as an earlier version has it, plain.
pub(crate) const PLAIN_MANIFEST: &str = "_capture.json";
/// Where an earlier version keeps them, plain.
pub(crate) const PLAIN_NOTES: &str = "_runs";

/// What a writer locks.
pub(crate) const LOCK: &str = ".lock";

/// Where an import writes until it is whole.
pub(crate) const IMPORT: &str = "_import";

/// What is written down beside a segment.
pub(crate) fn notes(number: u64) -> String {
    format!("{META}/{number:010}.parquet")
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

/// No capture comes to so many segments or rows: from a number above, which a file may state, none could go on.
pub(crate) const NUMBER_MAX: u64 = 1 << 62;

/// The number in the name of a file, if it is written just as names are here.
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
    format!("{number:010}.parquet")
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
    pub(crate) segments: Vec<u64>,
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
            let Some((number, kind)) = visible.split_once('.') else { continue };
            let Some(number) = self::number(number) else { continue };
            match (hidden, kind) {
                (false, "parquet") => listing.segments.push(number),
                (true, "partial") => listing.partials.push(number),
                (true, "journal") => listing.journals.push(number),
                _ => {}
            }
        }
        listing.segments.sort_unstable();
        listing.partials.sort_unstable();
        listing.journals.sort_unstable();
        listing
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
        let expected = Listing { segments: vec![7, 42, 10_000_000_000], partials: vec![43], journals: vec![43] };
        assert_eq!(Listing::new(names), expected);
        let runs = ["0000000005.jsonl", "+5.jsonl", "5.jsonl", "00000000006.jsonl", "9223372036854775808.jsonl"];
        assert_eq!(numbered(runs.map(str::to_owned), ".jsonl"), [5]);
    }
}
