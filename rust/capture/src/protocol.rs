/// What a message speaks, as far as its split into envelope, header and payload depends on it.
///
/// MTL has two framings, so it has two members; both are recorded as `mtl`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Protocol {
    /// Endpoint configuration over NATS.
    Cdt,
    /// Data taking.
    Cdtp,
    /// The service broker.
    Dcp,
    /// The topic bus.
    Mc0,
    /// Commands and their replies.
    MtlControl,
    /// The leased binary data flow.
    MtlData,
}

impl Protocol {
    /// Every protocol, in the order of the enum.
    pub const ALL: [Self; 6] = [Self::Cdt, Self::Cdtp, Self::Dcp, Self::Mc0, Self::MtlControl, Self::MtlData];

    /// The name in the capture's `protocol` column.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cdt => "cdt",
            Self::Cdtp => "cdtp",
            Self::Dcp => "dcp",
            Self::Mc0 => "mc0",
            Self::MtlControl | Self::MtlData => "mtl",
        }
    }
}

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
