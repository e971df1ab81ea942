//! Feeds what a role receives and sends to its capture.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use trunkline_capture::{CaptureError, Direction, LowSpace, Progress, Row, Ticket, Writer};
use trunkline_wire::{ErrorKind, Framing, Verdict};

/// What a role does when its capture cannot keep up, or fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CaptureOverflow {
    /// Goes on, and counts the rows that are lost.
    #[default]
    Count,
    /// Stops reading until there is room; goes on, and counts, when the capture fails.
    Block,
    /// Stops reading until there is room; ends when the capture fails.
    End,
}

/// What the user of a capture should know while it goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The disk has little room left.
    LowSpace(LowSpace),
    /// Rows are lost from now on, since the disk cannot keep up.
    Losing,
    /// The rows of an open run are deleted, since what is kept leaves no room for them.
    RunsLetGo,
    /// Senders come whose runs cannot be followed beside the others'.
    RunsUnfollowed,
    /// The capture has ended; the role goes on without.
    Failed(String),
}

/// A capture that is being written, and where its rows come from.
pub(crate) struct Tap {
    writer: Option<Writer>,
    framing: Framing,
    overflow: CaptureOverflow,
    /// The wall clock at `origin`; rows are stamped with monotonic time, which never goes back.
    wall_ns: i64,
    origin: Instant,
    flushes: Vec<(u64, Ticket)>,
    flushed: u64,
    pub(crate) lost: u64,
    low_space: Option<LowSpace>,
    /// What was told of runs once.
    is_let_go_told: bool,
    is_unfollowed_told: bool,
    pub(crate) troubles: Vec<Trouble>,
}

impl Tap {
    pub(crate) fn new(writer: Writer, framing: Framing, overflow: CaptureOverflow) -> Self {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            writer: Some(writer),
            framing,
            overflow,
            wall_ns: i64::try_from(wall.as_nanos()).unwrap_or(i64::MAX),
            origin: Instant::now(),
            flushes: vec![],
            flushed: 0,
            lost: 0,
            low_space: None,
            is_let_go_told: false,
            is_unfollowed_told: false,
            troubles: vec![],
        }
    }

    /// Whether sockets may be read.
    pub(crate) fn has_room(&self) -> bool {
        self.overflow == CaptureOverflow::Count || self.writer.as_ref().is_none_or(Writer::has_room)
    }

    pub(crate) fn record(
        &mut self,
        direction: Direction,
        endpoint: Option<&str>,
        peer: Option<&Bytes>,
        frames: &[Bytes],
        verdict: &Verdict,
    ) {
        let writer = match &mut self.writer {
            Some(writer) if self.overflow != CaptureOverflow::Count || writer.has_room() => writer,
            writer => {
                if writer.is_some() && self.lost == 0 {
                    self.troubles.push(Trouble::Losing);
                }
                self.lost += 1;
                return;
            }
        };
        let elapsed = i64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(i64::MAX);
        writer.append(&Row {
            received_at_ns: self.wall_ns.saturating_add(elapsed),
            framing: verdict.label.framing.unwrap_or(self.framing),
            endpoint,
            peer: peer.map(|peer| &peer[..]),
            direction,
            topic: verdict.label.topic.as_deref().and_then(|topic| str::from_utf8(topic).ok()),
            reply_to: None,
            frames: verdict.label.shown.as_deref().unwrap_or(frames),
            error: verdict.error.map(ErrorKind::slug),
        });
    }

    /// What the engine calls before it waits.
    pub(crate) fn idle(&mut self) -> Option<Instant> {
        let writer = self.writer.as_mut()?;
        writer.idle();
        writer.deadline()
    }

    pub(crate) fn flush(&mut self, number: u64, publish: bool) {
        match &mut self.writer {
            Some(writer) => {
                let ticket = if publish { writer.publish() } else { writer.flush() };
                self.flushes.push((number, ticket));
            }
            None => self.flushed = self.flushed.max(number),
        }
    }

    /// Looks at how far the writer has come. An error ends the role.
    pub(crate) fn look(&mut self) -> Result<(), CaptureError> {
        let Some(writer) = &self.writer else { return Ok(()) };
        let progress = writer.progress();
        if let Some(failure) = progress.failure {
            if self.overflow == CaptureOverflow::End {
                return Err(failure);
            }
            self.troubles.push(Trouble::Failed(failure.to_string()));
            self.writer = None;
            return Ok(());
        }
        let level = |low_space: Option<LowSpace>| low_space.map(|low_space| low_space.is_critical);
        if let Some(low_space) = progress.low_space
            && level(progress.low_space) > level(self.low_space)
        {
            self.troubles.push(Trouble::LowSpace(low_space));
        }
        self.low_space = progress.low_space;
        if progress.let_go > 0 && !self.is_let_go_told {
            self.is_let_go_told = true;
            self.troubles.push(Trouble::RunsLetGo);
        }
        if progress.unfollowed > 0 && !self.is_unfollowed_told {
            self.is_unfollowed_told = true;
            self.troubles.push(Trouble::RunsUnfollowed);
        }
        let done = progress.done;
        self.flushes.retain(|&(number, ticket)| {
            if ticket <= done {
                self.flushed = self.flushed.max(number);
            }
            ticket > done
        });
        Ok(())
    }

    pub(crate) fn flushed(&self) -> u64 {
        self.flushed
    }

    pub(crate) fn progress(&self) -> Option<Progress> {
        self.writer.as_ref().map(Writer::progress)
    }

    pub(crate) fn close(mut self) -> Result<Option<Progress>, CaptureError> {
        self.writer.take().map(Writer::close).transpose()
    }
}
