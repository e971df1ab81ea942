//! The variants of headers, and which of them are accepted.

use std::str::FromStr;

/// The four headers on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Variant {
    /// CDTP1 as specified: sender, timestamp, tags.
    S,
    /// CDTP1 of releases 0.1 to 0.3: sender, timestamp, type, sequence number, tags.
    A,
    /// CDTP1 of releases 0.4 to 0.5.1: sender, type, sequence number, tags.
    B,
    /// CDTP2, of releases from 0.6: one frame with the sender, the type and records, each with its payload.
    Two,
}

impl Variant {
    /// Every variant, oldest first.
    pub const ALL: [Self; 4] = [Self::S, Self::A, Self::B, Self::Two];

    /// Its stable name.
    pub const fn slug(self) -> &'static str {
        match self {
            Self::S => "S",
            Self::A => "A",
            Self::B => "B",
            Self::Two => "2",
        }
    }

    /// The version byte after `CDTP`.
    pub const fn version(self) -> u8 {
        match self {
            Self::S | Self::A | Self::B => 0x01,
            Self::Two => 0x02,
        }
    }
}

impl FromStr for Variant {
    type Err = ();

    fn from_str(slug: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|variant| variant.slug() == slug).ok_or(())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MessageType {
    /// Data of a run.
    Dat = 0,
    /// A run begins; the payload is its configuration.
    Bor = 1,
    /// A run ends; the payload is its metadata.
    Eor = 2,
}

impl MessageType {
    /// Every type, in the order of their numbers.
    pub const ALL: [Self; 3] = [Self::Dat, Self::Bor, Self::Eor];

    /// Its stable name.
    pub const fn slug(self) -> &'static str {
        match self {
            Self::Dat => "DAT",
            Self::Bor => "BOR",
            Self::Eor => "EOR",
        }
    }

    /// The type with this number.
    #[inline]
    pub const fn from_number(number: u64) -> Option<Self> {
        match number {
            0 => Some(Self::Dat),
            1 => Some(Self::Bor),
            2 => Some(Self::Eor),
            _ => None,
        }
    }

    /// Its number on the wire.
    pub const fn number(self) -> u64 {
        self as u64
    }
}

impl FromStr for MessageType {
    type Err = ();

    fn from_str(slug: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|kind| kind.slug() == slug).ok_or(())
    }
}

/// A set of variants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Accept(u8);

impl Accept {
    pub const ALL: Self = Self(0b1111);

    /// Those of variants with runs.
    pub const RUNS: Self = Self(Self::ALL.0 & !(1 << Variant::S as u8));

    /// Whether `variant` is in the set.
    #[inline]
    pub const fn contains(self, variant: Variant) -> bool {
        self.0 & 1 << variant as u8 != 0
    }

    /// Whether a variant of this version is in the set.
    #[inline]
    pub(super) const fn contains_version(self, version: u8) -> bool {
        match version {
            0x01 => self.contains(Variant::S) || self.contains(Variant::A) || self.contains(Variant::B),
            0x02 => self.contains(Variant::Two),
            _ => false,
        }
    }
}

impl FromIterator<Variant> for Accept {
    fn from_iter<I: IntoIterator<Item = Variant>>(variants: I) -> Self {
        Self(variants.into_iter().fold(0, |set, variant| set | 1 << variant as u8))
    }
}

/// The settings of the decoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Settings {
    /// The accepted variants; others are [`UnsupportedVersion`](crate::ErrorKind::UnsupportedVersion).
    pub accept: Accept,
    /// Whether bytes after the header are an error. If not, they are counted.
    pub strict: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self { accept: Accept::ALL, strict: true }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slugs_name_their_variant() {
        for variant in Variant::ALL {
            assert_eq!(variant.slug().parse(), Ok(variant));
        }
        for kind in MessageType::ALL {
            assert_eq!(kind.slug().parse(), Ok(kind));
            assert_eq!(MessageType::from_number(kind.number()), Some(kind));
        }
        assert_eq!("s".parse::<Variant>(), Err(()));
    }

    #[test]
    fn a_set_holds_what_was_put_in() {
        let accept: Accept = [Variant::S, Variant::Two].into_iter().collect();
        let held = Variant::ALL.map(|variant| accept.contains(variant));
        assert_eq!(held, [true, false, false, true]);
        assert_eq!(Variant::ALL.into_iter().collect::<Accept>(), Accept::ALL);
        assert_eq!(Variant::ALL.map(|variant| Accept::RUNS.contains(variant)), [false, true, true, true]);
        let ones: Accept = [Variant::B].into_iter().collect();
        assert!(ones.contains_version(1) && !ones.contains_version(2));
    }
}
