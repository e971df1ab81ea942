//! Messages as their protocols have them, with numbers at their limits.

use bytes::Bytes;
use trunkline_wire::Frames;
use trunkline_wire::cdt::{Message, Part, Settings, encode as encode_cdt, subject};
use trunkline_wire::cdtp::{MessageType, Variant, encode_batch, encode_header};
use trunkline_wire::chirp::{Datagram, Id, Kind, Service};
use trunkline_wire::dcp::{MessageType as Type, Width, encode_header as encode_dcp, encode_reply, encode_request};
use trunkline_wire::mc0::{Verb, encode as encode_mc0};
use trunkline_wire::msgpack::Timestamp;
use trunkline_wire::mtl::data::{self, Kind as Data};

use crate::Input;

/// The group that beacons are in.
pub const GROUP: &str = "group";

const EMPTY_MAP: &[u8] = b"\x80";
const TAGS: [&[u8]; 3] = [EMPTY_MAP, b"\x81\xa1k\xcf\xff\xff\xff\xff\xff\xff\xff\xff", b"\x82\xa1k\xc0\xa1k\xc3"];
const TYPES: [MessageType; 3] = [MessageType::Dat, MessageType::Bor, MessageType::Eor];
const NAMES: [&str; 3] = ["Det", "", "another"];

/// A time at a limit.
pub fn timestamp(input: &mut Input<'_>) -> Option<Timestamp> {
    let seconds = input.number()?.cast_signed();
    Some(Timestamp::new(seconds, u32::try_from(input.number()? % 1_000_000_000).ok()?).unwrap_or_default())
}

/// A message of CDTP; one in a while is none.
pub fn cdtp(input: &mut Input<'_>) -> Option<Frames> {
    let (name, message_type) = (input.pick(&NAMES)?, input.pick(&TYPES)?);
    let variant = input.pick(&[Variant::S, Variant::A, Variant::B, Variant::Two])?;
    let mut frames = Frames::new();
    if variant == Variant::Two {
        let records =
            input.several(|input| Some((input.number()?, input.pick(&TAGS)?, input.several(Input::bytes)?)))?;
        let records: Vec<_> = records.iter().map(|(sequence, tags, blocks)| (*sequence, *tags, &blocks[..])).collect();
        frames.push(encode_batch(name, message_type, &records).ok()?.into());
    } else {
        let mut header = vec![];
        let (time, sequence, tags) = (timestamp(input)?, input.number()?, input.pick(&TAGS)?);
        encode_header(&mut header, variant, name, time, message_type, sequence, tags).ok()?;
        frames.push(header.into());
        frames.push(Bytes::from_static(EMPTY_MAP));
        frames.extend(input.several(Input::bytes)?);
    }
    if input.byte()? == 0xff {
        let header = frames[0].to_vec();
        frames[0] = header[..usize::from(input.byte()?) % header.len()].to_vec().into();
    }
    Some(frames)
}

/// A service of a few.
pub fn service(input: &mut Input<'_>) -> Option<Bytes> {
    input.pick(&[&b"echo"[..], b"other", b"", b"trunkline.leaving"]).map(Bytes::from_static)
}

/// A message of DCP, from anybody to anybody; one in a while is none.
pub fn dcp(input: &mut Input<'_>) -> Option<Frames> {
    let address = |input: &mut Input<'_>| Some(Bytes::copy_from_slice(&[input.byte()? & 7]));
    let types = [Type::Register, Type::Ping, Type::Pong, Type::Request, Type::Reply, Type::Reconnect];
    let mut frames: Frames = match input.pick(&types)? {
        Type::Request => {
            let client = if input.byte()? & 1 == 0 { None } else { Some(address(input)?) };
            let metadata = input.several(address)?;
            encode_request(service(input)?, client, &metadata, &input.several(Input::bytes)?)
        }
        Type::Reply => {
            // A client knows its requests again by a number, which is often the first one's.
            let number = Bytes::copy_from_slice(&u64::from(input.byte()? & 7).to_be_bytes());
            let mut metadata = vec![number];
            metadata.extend(input.several(address)?);
            encode_reply(address(input)?, &metadata, &input.several(Input::bytes)?)
        }
        other => encode_dcp(other, Width::One).into_iter().collect(),
    };
    let register = frames.get(2).is_some_and(|kind| kind == &b"\x01"[..]);
    if register {
        frames.push(service(input)?);
    }
    if input.byte()? == 0xff {
        frames.truncate(usize::from(input.byte()?) % frames.len());
    }
    Some(frames)
}

/// A topic of a few.
pub fn topic(input: &mut Input<'_>) -> Option<Bytes> {
    input.pick(&[&b"t"[..], b"u", b"", b"\xff"]).map(Bytes::from_static)
}

/// A message of mc0, of any verb and in either style; one in a while is none.
pub fn mc0(input: &mut Input<'_>) -> Option<Frames> {
    let text = |input: &mut Input<'_>| Some(Bytes::from(input.number()?.to_string()));
    let verb = input.pick(&Verb::ALL)?;
    let mut headers = vec![];
    if input.byte()? & 1 == 0 || verb == Verb::Ok {
        headers.push((Bytes::from_static(b"ID"), text(input)?));
    }
    match verb {
        Verb::Connect if input.byte()? & 1 == 0 => headers.push((Bytes::from_static(b"TTL"), text(input)?)),
        Verb::Put | Verb::Message => headers.push((Bytes::from_static(b"TOPIC"), topic(input)?)),
        Verb::Error => {
            let texts = [&b"no"[..], b"disconnected: you do not read"];
            headers.push((Bytes::from_static(b"MESSAGE"), input.pick(&texts).map(Bytes::from_static)?));
        }
        _ => {}
    }
    let positional = match verb {
        Verb::Sub | Verb::Unsub => input.several(topic)?,
        _ => input.several(Input::bytes)?,
    };
    let mut frames = encode_mc0(verb, headers, &positional);
    match input.byte()? {
        0xff => frames.truncate(usize::from(input.byte()?) % frames.len()),
        odd if odd & 1 == 1 => drop(frames.remove(0)),
        _ => {}
    }
    Some(frames)
}

/// A resource of MTL: of those there are, or not.
pub fn resource(input: &mut Input<'_>) -> Option<&'static str> {
    input.pick(&["jobs", "logs", "jobs.dead", "resource", "", "nothing"])
}

/// A field table of MTL, good or not.
pub fn table(input: &mut Input<'_>) -> Option<&'static [u8]> {
    const TABLES: [&[u8]; 5] = [
        b"\0\0\0\0",
        b"\0\0\0\x03\x01kV",
        b"\0\0\0\x0e\x0bredeliveredV\0",
        b"\0\0\0\x0d\x0bredeliveredV",
        b"\0\0\0\x08\x01kF\0\0\0\0\0",
    ];
    input.pick(&TABLES)
}

/// A message of the data flow of MTL, of any kind; one in a while is none.
pub fn mtl(input: &mut Input<'_>, lease: impl FnOnce(&mut Input<'_>) -> Option<String>) -> Option<Frames> {
    let kind = input.pick(&Data::ALL)?;
    let mut frames = match kind {
        Data::Lease => data::lease(input.number()?, &lease(input)?),
        Data::Response => data::response(input.number()?, input.pick(&[200, 200, 400, 403, 404, 599])?),
        Data::Summon => data::summon(input.number()?, resource(input)?),
        Data::Dismiss => data::dismiss(input.number()?, resource(input)?),
        Data::Content => data::content(input.number()?, resource(input)?, table(input)?, input.bytes()?),
        Data::Confirm => data::confirm(input.number()?, input.byte()? & 1 == 0),
        Data::Reject => {
            let how = input.byte()?;
            data::reject(input.number()?, how & 1 == 0, how & 2 == 0)
        }
        Data::Ping => data::ping(),
        Data::Pong => data::pong(),
    };
    if input.byte()? == 0xff {
        let length = usize::from(input.byte()?) % frames[0].len();
        frames[0].truncate(length);
    }
    Some(frames)
}

/// A service of CHIRP.
pub fn chirp_service(input: &mut Input<'_>) -> Option<Service> {
    input.pick(&[Service::Control, Service::Heartbeat, Service::Monitoring, Service::Data])
}

/// A datagram of CHIRP; one in a while is none.
pub fn chirp(input: &mut Input<'_>) -> Option<Frames> {
    let datagram = Datagram {
        kind: input.pick(&[Kind::Request, Kind::Offer, Kind::Depart])?,
        group: Id::of(input.pick(&[GROUP, GROUP, GROUP, "another"])?),
        host: Id::of(input.pick(&["host", "a", "b", "c"])?),
        service: chirp_service(input)?,
        port: u16::try_from(input.number()? % 65536).ok()?,
    };
    let mut bytes = datagram.encode().to_vec();
    if input.byte()? == 0xff {
        bytes.truncate(usize::from(input.byte()?) % bytes.len());
    }
    Some([Bytes::from(bytes)].into_iter().collect())
}

/// How a role of CDT takes part, and the byte that says so.
pub fn cdt_part(input: &mut Input<'_>) -> Option<(u8, Part)> {
    let (how, unix_ms) = (input.byte()?, input.number()?);
    let part = Part {
        unix_ms: unix_ms.cast_signed(),
        shares_events: how & 1 != 0,
        includes_own: how & 2 != 0,
        clock_skew_ms: i64::from(how),
        ..Part::default()
    };
    Some((how, part))
}

/// A message of CDT and the subject it comes on, with one of these correlation ids or another; one in a while is none.
pub fn cdt(input: &mut Input<'_>, known: &[String]) -> Option<(Option<Bytes>, Frames)> {
    let subject = input.pick(&[
        "kaa.v1.service.x.cmx2cdp.ConfigRequest",
        "kaa.v1.service.x.cmx2cdp.ConfigPush",
        "kaa.v1.replica.x.cmx2cdp.ConfigResponse",
        "kaa.v1.replica.x.cmx2cdp.ConfigPushResponse",
        "kaa.v1.events.x.endpoint.config.ConfigNewAvailable",
        "kaa.v1.events.x.endpoint.config.ConfigUpdated",
        "kaa.v1.events.x.endpoint.config.other",
    ])?;
    let correlation = match input.byte()? % 4 {
        0 => "other".to_owned(),
        _ => input.pick(known).unwrap_or_default(),
    };
    let message = Message {
        kind: subject::parse(subject).kind.unwrap_or_default(),
        correlation_id: correlation.into(),
        timestamp_ms: (input.number()? >> 1).cast_signed(),
        timeout_ms: (input.number()? >> 1).cast_signed(),
        endpoint_message_id: "m".into(),
        app_version_name: "a".into(),
        endpoint_id: input.pick(&["e", "f"])?.into(),
        config_id: input.pick(&["v", "w", ""])?.into(),
        content_type: "t".into(),
        status_code: input.pick(&[200, 201, 404, 503, i32::MIN])?,
        originator_replica_id: input.pick(&["1", "2", ""])?.into(),
        content: if input.byte()? & 1 == 0 { None } else { Some(input.bytes()?.into()) },
        ..Message::default()
    };
    let body = match input.byte()? {
        0xff => input.bytes()?,
        0xfe => Bytes::new(),
        _ => encode_cdt(&message, &Settings::default()).into(),
    };
    let reply_to = input.pick(&[&b""[..], b"_INBOX.x", b"kaa.v1.replica.y.cmx2cdp.ConfigResponse", b"\xff"])?;
    let block = input.pick(&[&b""[..], b"", b"NATS/1.0 503\r\n\r\n", b"XX"])?;
    let frames = [Bytes::from_static(reply_to), Bytes::from_static(block), body].into_iter().collect();
    Some((Some(Bytes::from_static(subject.as_bytes())), frames))
}
