//! The status of a broker or a middleware.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::Serialize;
use serde_json::{Value, json};

use crate::Nanos;

/// The service of a broker, and the topic of a middleware, with its status.
pub(crate) const STATUS: &[u8] = b"trunkline.status";

/// How long an answer is reused, so that frequent requests cost no more than rare ones.
const FRESH: Duration = Duration::from_millis(100);

/// The latest answer.
#[derive(Debug, Default)]
pub(crate) struct Status(Option<(Nanos, Bytes)>);

impl Status {
    /// The current answer, or a recent one: counters as JSON. In `list`, each entry gets its name as `key`.
    pub(crate) fn at<S: Serialize>(
        &mut self,
        now: Nanos,
        stats: impl FnOnce() -> S,
        (list, key): (&str, &str),
        names: impl FnOnce(&S) -> Vec<Bytes>,
    ) -> Bytes {
        match &self.0 {
            Some((made, text)) if *made + FRESH > now => text.clone(),
            _ => {
                let stats = stats();
                let mut value = serde_json::to_value(&stats).unwrap_or_default();
                let entries = value[list].as_array_mut().into_iter().flatten();
                for (entry, name) in entries.zip(names(&stats)) {
                    entry[key] = named(&name);
                }
                let text = Bytes::from(value.to_string());
                self.0 = Some((now, text.clone()));
                text
            }
        }
    }
}

/// A name in JSON, which has only text: any other name is given as base64.
fn named(name: &[u8]) -> Value {
    str::from_utf8(name).map_or_else(|_| json!({ "base64": STANDARD.encode(name) }), Value::from)
}
