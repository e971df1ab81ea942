use bytes::Bytes;

/// A change of what is kept. Queues and positions have numbers of the caller's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// There is such a queue from now on, or it is described otherwise.
    Define {
        /// Its number.
        queue: u64,
        /// What the caller wants to know of it again.
        description: Vec<u8>,
    },
    /// There is no such queue any more, nor its contents; nothing changes where there is none.
    Delete {
        /// Its number.
        queue: u64,
    },
    /// The queue loses its contents.
    Purge {
        /// Its number.
        queue: u64,
    },
    /// A content, in place of another at its position; its queue must have been defined.
    Put {
        /// The number of its queue.
        queue: u64,
        /// Its place among the contents of the queue.
        position: u64,
        /// How often it has been delivered.
        attempts: u32,
        /// When it expires, in milliseconds since 1970.
        expires_at_ms: Option<u64>,
        /// Its properties, as they came.
        properties: Bytes,
        /// What it holds.
        body: Bytes,
    },
    /// A content goes; nothing changes where there is none.
    Remove {
        /// The number of its queue.
        queue: u64,
        /// Its place among the contents of the queue.
        position: u64,
    },
}

impl Op {
    /// About how many bytes it adds to a file.
    pub(crate) fn cost(&self) -> usize {
        const ROW: usize = 64;
        match self {
            Self::Define { description, .. } => ROW + description.len(),
            Self::Put { properties, body, .. } => ROW + properties.len() + body.len(),
            Self::Delete { .. } | Self::Purge { .. } | Self::Remove { .. } => ROW,
        }
    }
}

/// A content that was kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    /// The number of its queue.
    pub queue: u64,
    /// Its place among the contents of the queue.
    pub position: u64,
    /// How often it had been delivered.
    pub attempts: u32,
    /// When it expires, in milliseconds since 1970.
    pub expires_at_ms: Option<u64>,
    /// Its properties, as they came.
    pub properties: Bytes,
    /// What it holds.
    pub body: Bytes,
}

/// What a store held when it was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The queues and their descriptions, by their numbers.
    pub queues: Vec<(u64, Vec<u8>)>,
    /// The contents, by their queues and positions.
    pub contents: Vec<Content>,
    /// Whether whoever wrote it last has closed it; true of a new one.
    pub was_clean: bool,
}
