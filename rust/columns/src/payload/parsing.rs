//! Layouts read from text.

use std::collections::HashSet;

use super::{
    avro::Schema,
    layout::{Field, Kind, MAX_DEPTH, MAX_SIZE, Map, Number, Repeat, Scalar, Type, least},
    text::{Cursor, LayoutError},
};
use crate::{RestType, TagType, Tags};

/// The names of the columns that CDTP has itself, after `payload_`.
const TAKEN: [&str; 2] = ["frames", "bytes"];

const TYPE: &str = "a type such as u16, f64be, bool, bytes[8], utf8, pad[4] or (x f32, y f32)";

/// The layout that a text describes.
pub(super) fn parse(text: &str) -> Result<Kind, LayoutError> {
    let mut cursor = Cursor::new(text);
    let word = cursor.word();
    let mut after = cursor.clone();
    if !word.is_empty() && after.take(word) {
        match (word, after.next()) {
            ("utf8", None) => return Ok(Kind::Utf8),
            ("dtype", None) => return Ok(Kind::Dtype),
            (_, Some(':')) => return described(&cursor, after, word),
            _ => {}
        }
    }
    packed(cursor)
}

/// A layout that names a format.
fn described(start: &Cursor<'_>, mut cursor: Cursor<'_>, format: &str) -> Result<Kind, LayoutError> {
    cursor.need(":")?;
    match format {
        "msgpack" => map(cursor).map(Kind::MsgPack),
        "json" => map(cursor).map(Kind::Json),
        "avro" => {
            cursor.next();
            let schema = Schema::parse(cursor.rest()).map_err(|reason| cursor.wrong(&reason))?;
            let mut names = Names::default();
            schema.columns().try_for_each(|(name, _)| names.add(&cursor, cursor.position(), name))?;
            Ok(Kind::Avro(schema))
        }
        _ => Err(start.expected("msgpack, json or avro before ':'")),
    }
}

/// The fields of a map, as `tags` has them.
fn map(mut cursor: Cursor<'_>) -> Result<Map, LayoutError> {
    let word = cursor.word();
    if let Ok(rest) = word.parse::<RestType>() {
        let mut after = cursor.clone();
        after.take(word);
        if after.next().is_none() {
            return Ok(Map::Whole(rest));
        }
    }
    let (mut typed, mut rest, mut names) = (Vec::new(), None, Names::default());
    loop {
        cursor.next();
        let at = cursor.position();
        if cursor.take("*") {
            if rest.is_some() {
                return Err(cursor.wrong_at(at, "'*' is there twice"));
            }
            names.add(&cursor, at, "rest")?;
            let of = cursor.word();
            rest = Some(of.parse().map_err(|_| cursor.expected("variant or json, for all other fields"))?);
            cursor.take(of);
        } else {
            let name = cursor.name("the name of a field, '*', variant or json")?;
            names.add(&cursor, at, &name)?;
            cursor.take(":");
            let of = cursor.word();
            let known: TagType = of
                .parse()
                .map_err(|_| cursor.expected("a type: bigint, double, string, boolean, binary, timestamp or json"))?;
            cursor.take(of);
            typed.push((name, known));
        }
        if cursor.next().is_none() {
            break;
        }
        cursor.need(",")?;
    }
    Tags::new(typed, rest).map(Map::Fields).map_err(|error| cursor.wrong(&error.to_string()))
}

/// The names of columns, which must differ in more than case.
#[derive(Default)]
struct Names(HashSet<String>);

impl Names {
    fn add(&mut self, cursor: &Cursor<'_>, at: usize, name: &str) -> Result<(), LayoutError> {
        let lower = name.to_lowercase();
        if TAKEN.contains(&lower.as_str()) {
            let reason = format!("payload_{lower} is a column of CDTP: name the field otherwise");
            return Err(cursor.wrong_at(at, &reason));
        }
        self.add_within(cursor, at, lower)
    }

    /// A name within a struct.
    fn add_within(&mut self, cursor: &Cursor<'_>, at: usize, lower: String) -> Result<(), LayoutError> {
        let reason = format!("a name equal to '{lower}' but for case is there already, and Spark takes them for one");
        if self.0.insert(lower) { Ok(()) } else { Err(cursor.wrong_at(at, &reason)) }
    }
}

fn packed(cursor: Cursor<'_>) -> Result<Kind, LayoutError> {
    let mut parser = Parser { cursor, scopes: vec![Scope::default()] };
    let mut frames = Vec::new();
    loop {
        let fields = parser.fields()?;
        frames.push(fields);
        if parser.cursor.next().is_none() {
            break;
        }
        if !parser.cursor.take(";") {
            let is_whole = frames.last().and_then(|fields| fields.last()).is_some_and(is_rest);
            let expected =
                if is_whole { "';' or the end, after what is left of a frame," } else { "',', ';' or the end" };
            return Err(parser.cursor.expected(expected));
        }
        if parser.cursor.take("…") || parser.cursor.take("...") {
            if parser.cursor.next().is_some() {
                return Err(parser.cursor.expected("the end"));
            }
            return parser.whole(frames, true);
        }
    }
    parser.whole(frames, false)
}

/// Whether a field takes what is left of the frame.
fn is_rest(field: &Field) -> bool {
    let length = match &field.of {
        Type::Bytes { length, .. } | Type::Pad(length) => Some(length),
        Type::Number(_) | Type::Struct(_) => None,
    };
    field.repeat == Repeat::Rest || length == Some(&Repeat::Rest)
}

/// The names of a struct, or of all frames, and which of them are integers.
#[derive(Default)]
struct Scope {
    names: Names,
    counts: HashSet<String>,
}

struct Parser<'a> {
    cursor: Cursor<'a>,
    /// The innermost last.
    scopes: Vec<Scope>,
}

impl Parser<'_> {
    fn whole(&self, frames: Vec<Vec<Field>>, open: bool) -> Result<Kind, LayoutError> {
        if frames.iter().flatten().all(|field| field.of.is_pad()) {
            return Err(self.cursor.wrong("a layout needs a field that is a column"));
        }
        if frames.iter().fold(0_usize, |all, fields| all.saturating_add(least(fields))) > MAX_SIZE {
            return Err(self.cursor.wrong("the fields take more than 512 MiB"));
        }
        Ok(Kind::Packed { frames, open })
    }

    /// The fields of a frame or a struct.
    fn fields(&mut self) -> Result<Vec<Field>, LayoutError> {
        let mut fields = Vec::new();
        loop {
            let field = self.field()?;
            let is_last = is_rest(&field);
            fields.push(field);
            if is_last || !self.cursor.take(",") {
                return Ok(fields);
            }
        }
    }

    fn field(&mut self) -> Result<Field, LayoutError> {
        let at = {
            self.cursor.next();
            self.cursor.position()
        };
        if self.is_pad() {
            self.cursor.take("pad");
            return self.pad(at);
        }
        let name = self.cursor.name("the name of a field")?;
        if self.cursor.word() == "pad" {
            self.cursor.take("pad");
            return self.pad(at);
        }
        let lower = name.to_lowercase();
        let is_outermost = self.scopes.len() == 1;
        if let Some(scope) = self.scopes.last_mut() {
            if is_outermost {
                scope.names.add(&self.cursor, at, &name)?;
            } else {
                scope.names.add_within(&self.cursor, at, lower)?;
            }
        }
        let of = self.of()?;
        let may_repeat = !matches!(&of, Type::Bytes { length: Repeat::Rest | Repeat::Counted(_), .. });
        let before = self.cursor.clone();
        let repeat = if may_repeat { self.repeat()? } else { Repeat::Once };
        if repeat != Repeat::Once && of.least() == 0 {
            return Err(before.wrong("a struct of an array must take a byte at least"));
        }
        if let (Type::Number(number), Repeat::Once, Some(scope)) = (&of, &repeat, self.scopes.last_mut())
            && number.scalar.is_integer()
        {
            scope.counts.insert(name.clone());
        }
        Ok(Field { name, of, repeat })
    }

    /// Whether padding without a name is next.
    fn is_pad(&mut self) -> bool {
        if self.cursor.word() != "pad" {
            return false;
        }
        let mut after = self.cursor.clone();
        after.take("pad");
        matches!(after.next(), None | Some('[' | ',' | ';' | ')'))
    }

    fn pad(&mut self, at: usize) -> Result<Field, LayoutError> {
        let length = self.length()?;
        if let Repeat::Counted(name) = &length {
            let reason = format!("pad[{name}]: padding has a number of bytes, or takes what is left of a frame");
            return Err(self.cursor.wrong_at(at, &reason));
        }
        Ok(Field { name: String::new(), of: Type::Pad(length), repeat: Repeat::Once })
    }

    /// A type, without what makes it an array.
    fn of(&mut self) -> Result<Type, LayoutError> {
        if self.cursor.next() == Some('(') {
            return self.structs();
        }
        let word = self.cursor.word();
        let start = self.cursor.clone();
        let name = word.strip_suffix("be").unwrap_or(word);
        if let Some(scalar) = Scalar::ALL.into_iter().find(|scalar| scalar.name() == name) {
            self.cursor.take(word);
            return Ok(Type::Number(Number { scalar, is_big: name.len() < word.len() }));
        }
        if word != "bytes" && word != "utf8" {
            return Err(start.expected(TYPE));
        }
        self.cursor.take(word);
        Ok(Type::Bytes { length: self.length()?, is_text: word == "utf8" })
    }

    fn structs(&mut self) -> Result<Type, LayoutError> {
        if self.scopes.len() > MAX_DEPTH {
            return Err(self.cursor.wrong(&format!("structs are nested more than {MAX_DEPTH} deep")));
        }
        let start = self.cursor.clone();
        self.cursor.need("(")?;
        self.scopes.push(Scope::default());
        let fields = self.fields();
        self.scopes.pop();
        let fields = fields?;
        if fields.iter().all(|field| field.of.is_pad()) {
            return Err(start.wrong("a struct needs a field that is a column"));
        }
        if !self.cursor.take(")") {
            return Err(self.cursor.expected("',' or ')'"));
        }
        Ok(Type::Struct(fields))
    }

    /// How many bytes: all that are left if nothing is said.
    fn length(&mut self) -> Result<Repeat, LayoutError> {
        let here = self.cursor.clone();
        match self.repeat()? {
            Repeat::Once => self.left(&here),
            length @ (Repeat::Fixed(_) | Repeat::Counted(_) | Repeat::Rest) => Ok(length),
        }
    }

    fn repeat(&mut self) -> Result<Repeat, LayoutError> {
        let here = self.cursor.clone();
        if !self.cursor.take("[") {
            return Ok(Repeat::Once);
        }
        if self.cursor.take("]") {
            return self.left(&here);
        }
        self.cursor.next();
        let at = self.cursor.position();
        let word = self.cursor.word();
        let repeat = if word.starts_with(|first: char| first.is_ascii_digit()) {
            let count = word.parse().ok().filter(|count| (1..=MAX_SIZE).contains(count));
            let count = count.ok_or_else(|| self.cursor.expected(&format!("a number from 1 to {MAX_SIZE}")))?;
            self.cursor.take(word);
            Repeat::Fixed(count)
        } else {
            let name = self.cursor.name("a number, the name of an integer field before, or ']'")?;
            if !self.scopes.iter().any(|scope| scope.counts.contains(&name)) {
                let reason = format!("expected a number or the name of an integer field before, not '{name}'");
                return Err(self.cursor.wrong_at(at, &reason));
            }
            Repeat::Counted(name)
        };
        self.cursor.need("]")?;
        Ok(repeat)
    }

    /// What is left of the frame, which a struct cannot take.
    fn left(&self, here: &Cursor<'_>) -> Result<Repeat, LayoutError> {
        if self.scopes.len() > 1 {
            return Err(here.expected("a count such as [8] or [n] within a struct"));
        }
        Ok(Repeat::Rest)
    }
}
