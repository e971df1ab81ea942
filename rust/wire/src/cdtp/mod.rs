//! CDTP: one sender streams data to one receiver over PUSH and PULL.

mod decode;
mod encode;
mod framing;
mod layout;
mod receiver;
mod runs;
mod sender;
mod variant;

pub use decode::{decode, decode_header, is_map};
pub use encode::{encode_batch, encode_header};
pub use framing::Cdtp;
pub use layout::{Batch, Head, Layout, Record};
pub use receiver::{Data, Receiver, ReceiverEvent, ReceiverSettings, ReceiverStats, ReceiverVerb, RunEnd, SenderCount};
pub use runs::{
    Boundary, Closed, Condition, Follower, MAP_BYTES, Run, RunBook, RunMessage, RunRow, SENDERS, Unfollowed,
    boundary_map,
};
pub use sender::{BatchBounds, DataOut, Sender, SenderEvent, SenderSettings, SenderStats, SenderVerb};
pub use variant::{Accept, MessageType, Settings, Variant};
