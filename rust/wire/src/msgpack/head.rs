//! What the first byte of an object shows.

use rmp::Marker;

/// The kind of an object, and the layout of the rest of its head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Head {
    Nil,
    Boolean(bool),
    /// An integer, all in its first byte.
    Small(i8),
    /// An unsigned integer of this width.
    Unsigned(Width),
    /// A signed integer of this width.
    Signed(Width),
    /// A number of single precision.
    F32,
    /// A number of double precision.
    F64,
    String(Length),
    Binary(Length),
    Array(Length),
    /// Pairs of objects.
    Map(Length),
    /// An extension: its length, its type, its bytes.
    Ext(Length),
    /// The byte that the format never uses.
    Reserved,
}

impl Head {
    /// Whether it begins an integer.
    pub const fn is_integer(self) -> bool {
        matches!(self, Self::Small(_) | Self::Unsigned(_) | Self::Signed(_))
    }

    /// How many bytes follow the first, if that determines it and their content is arbitrary.
    const fn plain(self) -> Option<u8> {
        match self {
            Self::Nil | Self::Boolean(_) | Self::Small(_) => Some(0),
            Self::Unsigned(width) | Self::Signed(width) => Some(width.bytes()),
            Self::F32 => Some(4),
            Self::F64 => Some(8),
            Self::String(_) | Self::Binary(_) | Self::Array(_) | Self::Map(_) | Self::Ext(_) | Self::Reserved => None,
        }
    }

    /// The head that `byte` begins.
    #[inline]
    pub fn of(byte: u8) -> Self {
        HEADS[usize::from(byte)]
    }
}

/// The width of an integer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    /// 8 bits.
    One,
    /// 16 bits.
    Two,
    /// 32 bits.
    Four,
    /// 64 bits.
    Eight,
}

impl Width {
    const fn bytes(self) -> u8 {
        match self {
            Self::One => 1,
            Self::Two => 2,
            Self::Four => 4,
            Self::Eight => 8,
        }
    }
}

/// Where the length of an object is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// In the first byte.
    Known(u8),
    /// In the next byte.
    One,
    /// In the next two bytes.
    Two,
    /// In the next four bytes.
    Four,
}

/// One look-up per byte; two nested matches would cost as much as the rest of the reader.
static HEADS: [Head; 256] = {
    let mut heads = [Head::Reserved; 256];
    let mut byte = 0_u8;
    loop {
        heads[byte as usize] = head_of(Marker::from_u8(byte));
        if byte == 0xff {
            break heads;
        }
        byte += 1;
    }
};

/// The total length of a [plain](Head::plain) object; zero for others.
pub(super) static PLAIN: [u8; 256] = {
    let mut plain = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        if let Some(more) = HEADS[byte].plain() {
            plain[byte] = 1 + more;
        }
        byte += 1;
    }
    plain
};

const fn head_of(marker: Marker) -> Head {
    match marker {
        Marker::FixPos(value) => Head::Small(value.cast_signed()),
        Marker::FixNeg(value) => Head::Small(value),
        Marker::FixMap(length) => Head::Map(Length::Known(length)),
        Marker::FixArray(length) => Head::Array(Length::Known(length)),
        Marker::FixStr(length) => Head::String(Length::Known(length)),
        Marker::Null => Head::Nil,
        Marker::Reserved => Head::Reserved,
        Marker::False => Head::Boolean(false),
        Marker::True => Head::Boolean(true),
        Marker::Bin8 => Head::Binary(Length::One),
        Marker::Bin16 => Head::Binary(Length::Two),
        Marker::Bin32 => Head::Binary(Length::Four),
        Marker::Ext8 => Head::Ext(Length::One),
        Marker::Ext16 => Head::Ext(Length::Two),
        Marker::Ext32 => Head::Ext(Length::Four),
        Marker::F32 => Head::F32,
        Marker::F64 => Head::F64,
        Marker::U8 => Head::Unsigned(Width::One),
        Marker::U16 => Head::Unsigned(Width::Two),
        Marker::U32 => Head::Unsigned(Width::Four),
        Marker::U64 => Head::Unsigned(Width::Eight),
        Marker::I8 => Head::Signed(Width::One),
        Marker::I16 => Head::Signed(Width::Two),
        Marker::I32 => Head::Signed(Width::Four),
        Marker::I64 => Head::Signed(Width::Eight),
        Marker::FixExt1 => Head::Ext(Length::Known(1)),
        Marker::FixExt2 => Head::Ext(Length::Known(2)),
        Marker::FixExt4 => Head::Ext(Length::Known(4)),
        Marker::FixExt8 => Head::Ext(Length::Known(8)),
        Marker::FixExt16 => Head::Ext(Length::Known(16)),
        Marker::Str8 => Head::String(Length::One),
        Marker::Str16 => Head::String(Length::Two),
        Marker::Str32 => Head::String(Length::Four),
        Marker::Array16 => Head::Array(Length::Two),
        Marker::Array32 => Head::Array(Length::Four),
        Marker::Map16 => Head::Map(Length::Two),
        Marker::Map32 => Head::Map(Length::Four),
    }
}
