//! Targets and sources over a simulated NATS that delays, loses and duplicates; their stores are maps.
#![allow(clippy::unwrap_used)] // a surprise fails the test

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;
use trunkline_wire::cdt::{
    Answer, Config, Confirm, Ended, Part, Pull, Push, Source, SourceEvent, SourceSettings, SourceVerb, Target,
    TargetEvent, TargetSettings, TargetVerb,
};
use trunkline_wire::simulation::{Network, Node, Notice, Simulation};
use trunkline_wire::{CallId, Nanos};

const SECOND: Duration = Duration::from_secs(1);

type Endpoint = (String, String);

/// The store of a target: the configurations of each endpoint, the current one last.
type Store = HashMap<Endpoint, Vec<Config>>;

struct World {
    simulation: Simulation,
    targets: Vec<Node>,
    sources: Vec<Node>,
    /// The store that all targets share.
    store: Store,
    /// The outcome of each call, by source and number.
    ended: HashMap<(Node, CallId), Ended>,
    /// The configurations that each watch has reported.
    changed: BTreeMap<CallId, Vec<String>>,
    announced: usize,
}

impl World {
    fn new(seed: u64, network: Network, targets: usize, sources: usize) -> Self {
        let mut simulation = Simulation::new(seed, network, 200_000);
        let part = |instance: &str, replica: String| Part {
            instance: instance.to_owned(),
            replica,
            unix_ms: 1_700_000_000_000,
            ..Part::default()
        };
        let targets = (0..targets)
            .map(|number| {
                let settings = TargetSettings { part: part("cdp", format!("t{number}")), ..TargetSettings::default() };
                simulation.add("target", move |_, _| Target::new(settings.clone()))
            })
            .collect();
        let sources = (0..sources)
            .map(|number| {
                let settings = SourceSettings {
                    part: part("cmx", format!("s{number}")),
                    target: "cdp".to_owned(),
                    resync: 10 * SECOND,
                    ..SourceSettings::default()
                };
                simulation.add("source", move |_, seed| Source::new(settings.clone(), seed))
            })
            .collect();
        Self {
            simulation,
            targets,
            sources,
            store: Store::new(),
            ended: HashMap::new(),
            changed: BTreeMap::new(),
            announced: 0,
        }
    }

    fn put(&mut self, endpoint: &Endpoint, config: Config) -> bool {
        let configs = self.store.entry(endpoint.clone()).or_default();
        let known = configs.iter().any(|one| one.config_id == config.config_id);
        configs.retain(|one| one.config_id != config.config_id);
        configs.push(config);
        !known
    }

    fn announce(&mut self, target: Node, endpoint: &Endpoint, config: &Config) {
        let (app_version_name, endpoint_id) = endpoint.clone();
        self.simulation
            .ask::<Target>(target, TargetVerb::Announce { app_version_name, endpoint_id, config: config.clone() });
    }

    /// Stores a configuration at a target, as its user does.
    fn put_at(&mut self, target: Node, endpoint: &Endpoint, content: &str) {
        let config = config(content);
        self.put(endpoint, config.clone());
        self.announce(target, endpoint, &config);
    }

    fn run(&mut self, until: Duration) {
        let end = self.simulation.now() + until;
        while self.simulation.run(end).unwrap() {
            while let Some(notice) = self.simulation.poll_notice() {
                let Notice::Event(node) = notice else { continue };
                if self.targets.contains(&node) {
                    self.hear_target(node);
                } else {
                    self.hear_source(node);
                }
            }
        }
    }

    fn hear_target(&mut self, node: Node) {
        let Some(event) = self.simulation.event::<Target>(node) else { return };
        let answer = match event {
            TargetEvent::Get { token, app_version_name, endpoint_id, config_id, .. } => {
                let configs = self.store.get(&(app_version_name, endpoint_id));
                let found = match config_id {
                    Some(id) => configs.and_then(|configs| configs.iter().find(|one| one.config_id == id)),
                    None => configs.and_then(|configs| configs.last()),
                };
                (token, found.cloned().map_or(Answer::Missing, Answer::Found))
            }
            TargetEvent::Put { token, app_version_name, endpoint_id, content, .. } => {
                let endpoint = (app_version_name, endpoint_id);
                let config = config(str::from_utf8(&content.unwrap()).unwrap());
                let is_new = self.put(&endpoint, config.clone());
                self.announce(node, &endpoint, &config);
                (token, Answer::Stored { config, is_new })
            }
            TargetEvent::Announced { is_sent, .. } => {
                self.announced += usize::from(is_sent);
                return;
            }
            TargetEvent::Updated { .. }
            | TargetEvent::Event(_)
            | TargetEvent::Dropped(_)
            | TargetEvent::Connection(_) => return,
        };
        self.simulation.ask::<Target>(node, TargetVerb::Answer(answer.0, answer.1));
    }

    fn hear_source(&mut self, node: Node) {
        match self.simulation.event::<Source>(node) {
            Some(SourceEvent::Ended(call, ended)) => {
                assert!(self.ended.insert((node, call), ended).is_none(), "{call:?} ended twice");
            }
            Some(SourceEvent::Changed(call, read)) => {
                self.changed.entry(call).or_default().push(read.message.config_id.to_string());
            }
            Some(SourceEvent::Event(_) | SourceEvent::Dropped(_) | SourceEvent::Connection(_)) | None => {}
        }
    }

    fn pull(&mut self, source: Node, call: u64, endpoint: &Endpoint, retries: u32) {
        let (app_version_name, endpoint_id) = endpoint.clone();
        let pull = Pull { app_version_name, endpoint_id, timeout: Some(SECOND), retries, ..Pull::default() };
        self.simulation.ask::<Source>(source, SourceVerb::Pull(CallId(call), pull));
    }
}

fn config(content: &str) -> Config {
    Config {
        config_id: format!("id of {content}"),
        content_type: "text".to_owned(),
        content: Bytes::copy_from_slice(content.as_bytes()),
    }
}

fn endpoint(number: usize) -> Endpoint {
    ("app-1".to_owned(), format!("e-{number}"))
}

fn quick() -> Network {
    Network { latency: Duration::from_millis(1), ..Network::default() }
}

// req: CDT-18, CDT-21, CDT-23, CDT-28
#[test]
fn a_pull_is_answered_with_what_there_is() {
    let mut world = World::new(1, quick(), 1, 1);
    let (target, source) = (world.targets[0], world.sources[0]);
    world.put_at(target, &endpoint(1), "first");
    world.put_at(target, &endpoint(1), "second");
    world.pull(source, 1, &endpoint(1), 0);
    world.pull(source, 2, &endpoint(2), 0);
    world.run(SECOND / 2);
    let Ended::Answered(read) = &world.ended[&(source, CallId(1))] else { panic!("{:?}", world.ended) };
    assert_eq!(read.message.config_id, "id of second");
    assert_eq!(read.message.content.as_deref(), Some(&b"second"[..]));
    assert_eq!(read.message.endpoint_id, "e-1");
    let Ended::Answered(read) = &world.ended[&(source, CallId(2))] else { panic!("{:?}", world.ended) };
    assert_eq!((read.message.status_code, &read.message.content), (404, &None));
}

// req: CDT-35
#[test]
fn where_no_target_is_a_pull_ends_at_once() {
    let mut world = World::new(2, quick(), 0, 1);
    let source = world.sources[0];
    world.pull(source, 1, &endpoint(1), 5);
    world.run(SECOND / 10);
    assert_eq!(world.ended[&(source, CallId(1))], Ended::NoTarget);
}

// req: CDT-14, CDT-34
#[test]
fn a_pull_ends_in_its_time_to_the_nanosecond() {
    let mut world = World::new(3, Network { loss: 1.0, ..quick() }, 1, 1);
    let source = world.sources[0];
    world.pull(source, 1, &endpoint(1), 2);
    world.run(Duration::from_nanos(2_999_999_999));
    assert!(world.ended.is_empty());
    world.run(Duration::from_nanos(1));
    assert_eq!(world.ended[&(source, CallId(1))], Ended::TimedOut);
    assert_eq!(world.simulation.now(), Nanos(0) + 3 * SECOND);
}

// req: CDT-32
#[test]
fn what_is_late_is_ignored_at_both_ends() {
    let slow = Network { latency: Duration::from_millis(1500), ..Network::default() };
    let mut world = World::new(4, slow, 1, 1);
    let (target, source) = (world.targets[0], world.sources[0]);
    world.pull(source, 1, &endpoint(1), 0);
    world.run(10 * SECOND);
    assert_eq!(world.ended[&(source, CallId(1))], Ended::TimedOut);
    let stats = trunkline_wire::Machine::stats(world.simulation.machine::<Target>(target).unwrap());
    assert_eq!((stats.dropped.get("expired"), stats.pulls), (Some(&1), 0));
}

// req: CDT-49
#[test]
fn a_watch_catches_up_where_every_announcement_is_lost() {
    let mut world = World::new(5, quick(), 1, 1);
    let (target, source) = (world.targets[0], world.sources[0]);
    let (app, name) = endpoint(1);
    world.simulation.ask::<Source>(source, SourceVerb::Watch(CallId(1), app, name));
    world.run(SECOND);
    world.simulation.set_network(Network { loss: 1.0, ..quick() });
    world.put_at(target, &endpoint(1), "lost");
    world.run(SECOND);
    assert!(world.changed.is_empty());
    world.simulation.set_network(quick());
    world.run(10 * SECOND);
    assert_eq!(world.changed[&CallId(1)], ["id of lost"]);
}

#[test]
fn a_source_that_ends_ends_its_calls() {
    let mut world = World::new(6, Network { loss: 1.0, ..quick() }, 1, 1);
    let source = world.sources[0];
    world.pull(source, 1, &endpoint(1), 9);
    world.simulation.close(source, SECOND / 2);
    world.run(SECOND);
    assert_eq!(world.ended[&(source, CallId(1))], Ended::Unanswered);
    assert!(!world.simulation.is_up(source));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    // req: CDT-36, CDT-39, CDT-49
    #[test]
    fn no_pull_is_answered_wrongly_and_every_watch_converges(
        seed: u64,
        loss in 0.0..0.4,
        duplication in 0.0..0.4,
        reorder: bool,
        crash in prop::option::of(0_usize..20),
        pushes in prop::collection::vec((0_usize..3, 0_usize..2), 1..20),
    ) {
        let bad = Network { loss, duplication, reorder, jitter: Duration::from_millis(200), ..quick() };
        let mut world = World::new(seed, bad, 2, 2);
        let sources = world.sources.clone();
        for number in 0..3 {
            let (app, name) = endpoint(number);
            let verb = SourceVerb::Watch(CallId(1000 + number as u64), app, name);
            world.simulation.ask::<Source>(sources[number % 2], verb);
        }
        for (number, (place, source)) in pushes.iter().enumerate() {
            let (app_version_name, endpoint_id) = endpoint(*place);
            let push = Push {
                app_version_name,
                endpoint_id,
                content: Some(Bytes::from(format!("{number} for {place}"))),
                content_type: "text".to_owned(),
                confirm: Confirm::Stored,
                timeout: Some(SECOND),
                ..Push::default()
            };
            world.simulation.ask::<Source>(sources[*source], SourceVerb::Push(CallId(number as u64), push));
            world.pull(sources[1 - source], 100 + number as u64, &endpoint(*place), 1);
            if crash == Some(number) {
                let target = world.targets[0];
                world.simulation.restart(target);
            }
            world.run(SECOND / 4);
        }
        world.run(5 * SECOND);
        for ((_, call), ended) in &world.ended {
            let Ended::Answered(read) = ended else { continue };
            let message = &read.message;
            let (place, source) = pushes[usize::try_from(call.0 % 100).unwrap()];
            prop_assert_eq!(&message.endpoint_id, &endpoint(place).1, "{} of {}", call.0, source);
            if message.status_code < 300 {
                let wanted = format!(" for {place}");
                prop_assert!(message.config_id.ends_with(&wanted), "{}", message.config_id);
            }
            if call.0 < 100 && message.status_code < 300 {
                // A confirmed push is stored.
                let configs = &world.store[&endpoint(place)];
                prop_assert!(configs.iter().any(|one| one.config_id == message.config_id));
            }
        }
        prop_assert_eq!(world.ended.len(), 2 * pushes.len());
        world.simulation.set_network(quick());
        world.run(30 * SECOND);
        for number in 0..3 {
            let current = world.store.get(&endpoint(number)).and_then(|configs| configs.last());
            let seen = world.changed.get(&CallId(1000 + number as u64)).and_then(|seen| seen.last());
            prop_assert_eq!(seen, current.map(|config| &config.config_id));
        }
    }

    // req: CDT-50
    #[test]
    fn no_message_ends_a_machine(
        seed: u64,
        messages in prop::collection::vec(
            (0_usize..6, prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..5)), 1..40
        ),
    ) {
        use trunkline_wire::{Incoming, Machine as _};
        use trunkline_wire::cdt::{Hearing, Listening};

        let mut target = Target::new(TargetSettings::default());
        let mut source = Source::new(SourceSettings::default(), [u8::try_from(seed % 251).unwrap(); 32]);
        for (number, (subject, frames)) in messages.iter().enumerate() {
            let now = Nanos(number as u64 * 1_000_000_000);
            let subject = [
                "kaa.v1.service.trunkline.cmx2cdp.ConfigRequest",
                "kaa.v1.service.trunkline.cmx2cdp.ConfigPush",
                "kaa.v1.replica.1.cmx2cdp.ConfigResponse",
                "kaa.v1.replica.1.cmx2cdp.ConfigPushResponse",
                "kaa.v1.events.x.endpoint.config.ConfigUpdated",
                "\u{fffd}",
            ][*subject];
            let frames: trunkline_wire::Frames = frames.iter().map(|frame| Bytes::copy_from_slice(frame)).collect();
            let peer = Some(Bytes::from_static(subject.as_bytes()));
            target.handle_message(
                now, Incoming { socket: Listening::Service, peer: peer.clone(), user_id: None, host: None, frames: frames.clone() }
            );
            source.handle_message(now, Incoming { socket: Hearing::Replies, peer, user_id: None, host: None, frames });
            target.handle_timeout(now);
            source.handle_timeout(now);
            while target.poll_output().is_some() {}
            while source.poll_output().is_some() {}
            while target.poll_event().is_some() {}
            while source.poll_event().is_some() {}
        }
        prop_assert_eq!(target.stats().received, messages.len() as u64);
    }
}
