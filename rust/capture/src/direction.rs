/// Which way a message went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Direction {
    /// Received.
    In,
    /// Sent.
    Out,
}

impl Direction {
    /// Both directions, in the order of the enum.
    pub const ALL: [Self; 2] = [Self::In, Self::Out];

    /// The name in the capture's `direction` column.
    pub fn name(self) -> &'static str {
        match self {
            Self::In => "in",
            Self::Out => "out",
        }
    }
}
