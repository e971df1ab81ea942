//! Load for the benches of queues: a writer whose contents are all confirmed, and a reader that confirms them, on raw
//! sockets.
//!
//! `queues mtl|classic|quorum|nats ENDPOINT memory|durable WINDOW COUNT BYTES [SERVER_KEY]`; `TRUNKLINE_LIBZMQ` names the
//! library, and `classic` and `quorum` are queues over AMQP 0-9-1. WINDOW contents are unconfirmed at one time, and twice as many
//! unread. Prints contents a second, confirmed and read, and the microseconds up to the confirm: median, 99th
//! percentile, longest.

mod amqp;
mod jetstream;
mod mtl;
mod wire;
mod zmq;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use amqp::Amqp;
use jetstream::JetStream;
use zmq::{DEALER, Zmq};

const QUEUE: &str = "bench";

/// How long a thread waits before it checks whether all is over.
const GLANCE: Duration = Duration::from_millis(100);

/// One end of a queue.
#[allow(clippy::large_enum_variant)] // there are two
enum End {
    Mtl(Zmq, u64),
    Amqp(Amqp),
    Nats(JetStream),
}

impl End {
    fn mtl(endpoint: &str, key: Option<&str>, kind: &str) -> Self {
        let lease = mtl::lease(endpoint, key, "queue", kind, QUEUE, "full");
        let mut zmq = Zmq::new();
        let data = zmq.open(DEALER, key);
        zmq.connect(data, endpoint);
        mtl::redeem(&mut zmq, data, &lease, (kind == "Reader").then_some(QUEUE));
        Self::Mtl(zmq, 0)
    }

    fn writer(protocol: &str, endpoint: &str, is_durable: bool, key: Option<&str>) -> Self {
        match protocol {
            "mtl" => Self::mtl(endpoint, key, "Writer"),
            "nats" => {
                let mut nats = JetStream::open(endpoint);
                nats.create(is_durable);
                Self::Nats(nats)
            }
            kind => {
                let mut amqp = Amqp::open(endpoint, kind, is_durable);
                amqp.confirms();
                Self::Amqp(amqp)
            }
        }
    }

    fn reader(protocol: &str, endpoint: &str, is_durable: bool, key: Option<&str>) -> Self {
        match protocol {
            "mtl" => Self::mtl(endpoint, key, "Reader"),
            "nats" => {
                let mut nats = JetStream::open(endpoint);
                nats.consume();
                Self::Nats(nats)
            }
            kind => {
                let mut amqp = Amqp::open(endpoint, kind, is_durable);
                amqp.consume(1000);
                Self::Amqp(amqp)
            }
        }
    }

    fn write(&mut self, body: &[u8]) {
        match self {
            Self::Mtl(zmq, last) => {
                *last += 1;
                zmq.send(0, &[&mtl::content(*last), body]);
            }
            Self::Amqp(amqp) => amqp.publish(body),
            Self::Nats(nats) => nats.publish(body),
        }
    }

    fn flush(&mut self) {
        match self {
            Self::Mtl(..) => {}
            Self::Amqp(amqp) => amqp.flush(),
            Self::Nats(nats) => nats.flush(),
        }
    }

    /// Waits for confirms: each of a number, or of all up to it.
    fn confirmed(&mut self, mut confirmed: impl FnMut(u64, bool)) {
        match self {
            Self::Mtl(zmq, _) => {
                zmq.wait(GLANCE);
                while zmq.receive(0, false) {
                    match zmq.frame(0) {
                        [mtl::PING] => zmq.send(0, &[mtl::PONG, b""]),
                        header => {
                            assert_eq!(header[0], mtl::CONFIRM, "nothing but confirms");
                            confirmed(mtl::sequence(header), header[9] == 1);
                        }
                    }
                }
            }
            Self::Amqp(amqp) => amqp.confirmed(GLANCE, confirmed),
            Self::Nats(nats) => nats.confirmed(GLANCE, confirmed),
        }
    }

    /// Receives contents and confirms them all at once; gives their number.
    fn consumed(&mut self) -> usize {
        match self {
            Self::Mtl(zmq, last) => {
                zmq.wait(GLANCE);
                let before = *last;
                while zmq.receive(0, false) {
                    match zmq.frame(0) {
                        [mtl::PING] => zmq.send(0, &[mtl::PONG, b""]),
                        header => {
                            assert_eq!(mtl::sequence(header), *last + 1, "contents in their order");
                            *last += 1;
                        }
                    }
                }
                if *last > before {
                    zmq.send(0, &[&mtl::confirm(*last), b""]);
                }
                usize::try_from(*last - before).expect("not that many")
            }
            Self::Amqp(amqp) => amqp.consumed(GLANCE),
            Self::Nats(nats) => nats.consumed(GLANCE),
        }
    }

    /// Flushes and closes.
    fn close(self) {
        if let Self::Mtl(zmq, _) = self {
            zmq.close(GLANCE);
        }
    }
}

/// What a writer knows of its confirms.
struct Confirms {
    sent_at: Vec<Instant>,
    is_confirmed: Vec<bool>,
    /// The first pending one.
    open: usize,
    count: usize,
    took: Vec<Duration>,
}

impl Confirms {
    fn one(&mut self, at: usize) {
        if !std::mem::replace(&mut self.is_confirmed[at], true) {
            self.count += 1;
            self.took.push(self.sent_at[at].elapsed());
        }
    }

    fn take(&mut self, number: u64, multiple: bool) {
        let at = usize::try_from(number).expect("not that many") - 1;
        if multiple {
            (self.open..at).for_each(|before| self.one(before));
        }
        self.one(at);
        while self.is_confirmed.get(self.open) == Some(&true) {
            self.open += 1;
        }
    }
}

#[allow(clippy::print_stdout)] // the result
fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [protocol, endpoint, keeping, rest @ ..] = &arguments[..] else { panic!("see the top of this file") };
    let numbers: Vec<usize> = rest.iter().map_while(|number| number.parse().ok()).collect();
    let [window, count, bytes] = numbers[..] else { panic!("see the top of this file") };
    let (key, is_durable) = (rest.get(3).cloned(), keeping == "durable");
    let mut writer = End::writer(protocol, endpoint, is_durable, key.as_deref());
    let consumed = Arc::new(AtomicUsize::new(0));
    let reading = thread::spawn({
        let (consumed, main) = (Arc::clone(&consumed), thread::current());
        let (protocol, endpoint) = (protocol.clone(), endpoint.clone());
        move || {
            let mut reader = End::reader(&protocol, &endpoint, is_durable, key.as_deref());
            while consumed.load(Ordering::Relaxed) < count {
                consumed.fetch_add(reader.consumed(), Ordering::Release);
                main.unpark();
            }
            let end = Instant::now();
            reader.close();
            end
        }
    });
    let body = vec![0x55; bytes];
    // The first tenth warms up.
    let (warm, mut start) = (count / 10, Instant::now());
    let mut confirms = Confirms {
        sent_at: vec![],
        is_confirmed: vec![false; count],
        open: 0,
        count: 0,
        took: Vec::with_capacity(count),
    };
    while confirms.count < count {
        let sent = confirms.sent_at.len();
        let room = (confirms.count + window).min(consumed.load(Ordering::Acquire) + 2 * window).min(count);
        for _ in sent..room {
            confirms.sent_at.push(Instant::now());
            writer.write(&body);
        }
        writer.flush();
        if confirms.sent_at.len() == confirms.count {
            thread::park_timeout(GLANCE);
            continue;
        }
        let before = confirms.count;
        writer.confirmed(|number, multiple| confirms.take(number, multiple));
        if before < warm && confirms.count >= warm {
            start = Instant::now();
            confirms.took.clear();
        }
    }
    let confirmed = Instant::now();
    let end = reading.join().expect("the reader ends").max(confirmed);
    let mut took = confirms.took;
    #[allow(clippy::cast_precision_loss)] // not that many
    let rate = took.len() as f64 / (end - start).as_secs_f64();
    took.sort_unstable();
    let at = |percent: usize| took[(took.len() - 1) * percent / 100].as_secs_f64() * 1e6;
    println!("{rate:.0} {:.1} {:.1} {:.1}", at(50), at(99), at(100));
    writer.close();
}
