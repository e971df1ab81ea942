//! Feeds what a role receives and sends to its capture.

use std::time::Instant;

use bytes::Bytes;
use trunkline_capture::{CaptureError, Direction, Progress, Row, Ticket, Writer};
use trunkline_wire::{ErrorKind, Framing, Verdict};

use crate::recording::Recording;
use crate::settings::{Capture, CaptureOverflow};
use crate::signal::Waker;
use crate::trouble::Trouble;

/// What a role adds to a recording.
pub(crate) struct Tap {
    recording: Recording,
    /// The engine's number there.
    number: u64,
    /// Whether the recording ends with the role.
    is_owner: bool,
    framing: Framing,
    overflow: CaptureOverflow,
    flushes: Vec<(u64, Ticket)>,
    flushed: u64,
    pub(crate) lost: u64,
    pub(crate) troubles: Vec<Trouble>,
}

impl Tap {
    pub(crate) fn new(capture: Capture, wake: Waker) -> Self {
        let Capture { recording, is_owner, framing, overflow } = capture;
        Self {
            number: recording.join(wake),
            recording,
            is_owner,
            framing,
            overflow,
            flushes: vec![],
            flushed: 0,
            lost: 0,
            troubles: vec![],
        }
    }

    /// Whether sockets may be read.
    pub(crate) fn has_room(&self) -> bool {
        self.overflow == CaptureOverflow::Count || self.recording.pen().writer.as_ref().is_none_or(Writer::has_room)
    }

    /// Adds a message; gives the number of its row, unless it is lost.
    pub(crate) fn record(
        &mut self,
        direction: Direction,
        endpoint: Option<&str>,
        peer: Option<&Bytes>,
        frames: &[Bytes],
        verdict: &Verdict,
    ) -> Option<u64> {
        let mut pen = self.recording.pen();
        // In the order of the rows, so that time never goes back.
        let received_at_ns = pen.now_ns();
        let writer = match &mut pen.writer {
            Some(writer) if self.overflow != CaptureOverflow::Count || writer.has_room() => writer,
            _ => {
                self.lost += 1;
                self.troubles.extend(pen.losing());
                return None;
            }
        };
        let row = Row {
            received_at_ns,
            framing: verdict.label.framing.unwrap_or(self.framing),
            endpoint,
            peer: peer.map(|peer| &peer[..]),
            direction,
            topic: verdict.label.topic.as_deref().and_then(|topic| str::from_utf8(topic).ok()),
            reply_to: None,
            frames,
            error: verdict.error.map(ErrorKind::slug),
        };
        let [reply_to, message @ ..] = frames else { return Some(writer.append(&row)) };
        if self.framing != Framing::Cdt {
            return Some(writer.append(&row));
        }
        // Its subject is the topic, and a header block that is empty is none.
        let (subject, reply_to) =
            (String::from_utf8_lossy(row.peer.unwrap_or_default()), String::from_utf8_lossy(reply_to));
        let frames = if message.first().is_some_and(Bytes::is_empty) { &message[1..] } else { message };
        let reply_to = Some(&*reply_to).filter(|reply_to| !reply_to.is_empty());
        Some(writer.append(&Row { peer: None, topic: Some(&subject), reply_to, frames, ..row }))
    }

    /// What the engine calls before it waits.
    pub(crate) fn idle(&mut self) -> Option<Instant> {
        let mut pen = self.recording.pen();
        let writer = pen.writer.as_mut()?;
        writer.idle();
        writer.deadline()
    }

    pub(crate) fn flush(&mut self, number: u64, publish: bool) {
        match &mut self.recording.pen().writer {
            Some(writer) => {
                let ticket = if publish { writer.publish() } else { writer.flush() };
                self.flushes.push((number, ticket));
            }
            None => self.flushed = self.flushed.max(number),
        }
    }

    /// Checks the writer's progress. An error ends the role.
    pub(crate) fn look(&mut self) -> Result<(), CaptureError> {
        let mut pen = self.recording.pen();
        let Some(writer) = &pen.writer else {
            // Closing it, or its failure, has settled all of them.
            let last = self.flushes.drain(..).map(|(number, _)| number).max();
            self.flushed = self.flushed.max(last.unwrap_or_default());
            return Ok(());
        };
        let progress = writer.progress();
        if let Some(failure) = progress.failure {
            if self.overflow == CaptureOverflow::End {
                return Err(failure);
            }
            self.troubles.push(Trouble::Failed(failure.to_string()));
            pen.writer = None;
            return Ok(());
        }
        self.troubles.extend(pen.news(&progress));
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
        self.recording.pen().writer.as_ref().map(Writer::progress)
    }

    /// Ends the recording, or makes what this role added durable.
    pub(crate) fn close(self) -> Result<Option<Progress>, CaptureError> {
        if !self.is_owner {
            let mut pen = self.recording.pen();
            let Some(writer) = &mut pen.writer else { return Ok(None) };
            writer.flush();
            return Ok(Some(writer.progress()));
        }
        // The others do not wait for the disk.
        let writer = self.recording.pen().writer.take();
        writer.map(Writer::close).transpose()
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        self.recording.leave(self.number);
        if self.is_owner {
            // An engine that ended otherwise leaves no lock behind.
            let writer = self.recording.pen().writer.take();
            drop(writer);
        }
    }
}
