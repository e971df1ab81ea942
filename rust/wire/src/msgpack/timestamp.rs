//! The timestamp extension: three widths on the wire, one value.

/// Nanoseconds in a second.
const GIGA: i128 = 1_000_000_000;

/// A moment, as seconds since 1970 and nanoseconds after that second. Before 1970 the seconds are negative and the
/// nanoseconds still count forward, so the derived order is the order of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Timestamp {
    seconds: i64,
    nanoseconds: u32,
}

impl Timestamp {
    /// The most nanoseconds a timestamp may hold.
    pub const MAX_NANOSECONDS: u32 = 999_999_999;

    /// `None` for a second of nanoseconds or more.
    #[inline]
    pub const fn new(seconds: i64, nanoseconds: u32) -> Option<Self> {
        if nanoseconds <= Self::MAX_NANOSECONDS { Some(Self { seconds, nanoseconds }) } else { None }
    }

    /// Whole seconds since 1970, rounded down.
    #[inline]
    pub const fn seconds(self) -> i64 {
        self.seconds
    }

    /// Nanoseconds within the second.
    #[inline]
    pub const fn nanoseconds(self) -> u32 {
        self.nanoseconds
    }

    /// The timestamp in `body`, the bytes of an extension of type −1; `None` unless those are 4, 8 or 12 bytes with
    /// less than a second of nanoseconds.
    #[inline]
    pub fn from_ext(body: &[u8]) -> Option<Self> {
        let (seconds, nanoseconds) = if let Ok(ts64) = <[u8; 8]>::try_from(body) {
            let packed = u64::from_be_bytes(ts64);
            (i64::try_from(packed & 0x3_ffff_ffff).ok()?, u32::try_from(packed >> 34).ok()?)
        } else if let Ok(ts32) = <[u8; 4]>::try_from(body) {
            (i64::from(u32::from_be_bytes(ts32)), 0)
        } else {
            let (nanoseconds, seconds) = body.split_first_chunk::<4>()?;
            (i64::from_be_bytes(seconds.try_into().ok()?), u32::from_be_bytes(*nanoseconds))
        };
        Self::new(seconds, nanoseconds)
    }

    /// The moment this many nanoseconds after 1970; `None` if the seconds exceed 64 bits.
    pub fn from_nanos(nanos: i128) -> Option<Self> {
        let seconds = i64::try_from(nanos.div_euclid(GIGA)).ok()?;
        let nanoseconds = u32::try_from(nanos.rem_euclid(GIGA)).ok()?;
        Some(Self { seconds, nanoseconds })
    }

    /// Nanoseconds since 1970. Every timestamp fits.
    pub const fn nanos(self) -> i128 {
        self.seconds as i128 * GIGA + self.nanoseconds as i128
    }

    /// Nanoseconds since 1970; `None` before 1677 and after 2262, where they exceed 64 bits.
    #[inline]
    pub fn to_nanos(self) -> Option<i64> {
        // The product may overflow although the sum does not: -9 223 372 037 s + 145 224 192 ns is i64::MIN.
        match self.seconds.checked_mul(1_000_000_000) {
            Some(nanos) => nanos.checked_add(i64::from(self.nanoseconds)),
            None => i64::try_from(self.nanos()).ok(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nanoseconds_reach_both_ends_of_64_bits() {
        for nanos in [i64::MIN, i64::MIN + 1, -1, 0, 1, i64::MAX] {
            let timestamp = Timestamp::from_nanos(i128::from(nanos)).expect("fits");
            assert_eq!(timestamp.to_nanos(), Some(nanos));
        }
        let late = Timestamp::from_nanos(i128::from(i64::MAX) + 1).expect("fits");
        let early = Timestamp::from_nanos(i128::from(i64::MIN) - 1).expect("fits");
        assert_eq!((late.to_nanos(), early.to_nanos()), (None, None));
        assert_eq!(Timestamp::new(i64::MAX, 0).and_then(Timestamp::to_nanos), None);
    }

    #[test]
    fn half_a_second_before_1970_is_minus_one_second_and_a_half() {
        let timestamp = Timestamp::new(-1, 500_000_000);
        assert_eq!(timestamp.and_then(Timestamp::to_nanos), Some(-500_000_000));
        assert_eq!(Timestamp::from_nanos(-500_000_000), timestamp);
    }

    #[test]
    fn a_body_of_another_length_is_no_timestamp() {
        for length in (0..=16).filter(|length| ![4, 8, 12].contains(length)) {
            assert_eq!(Timestamp::from_ext(&vec![0; length]), None);
        }
    }
}
