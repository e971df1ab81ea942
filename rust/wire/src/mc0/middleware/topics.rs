//! Which client is subscribed to which topic. Every step takes constant time.

use std::collections::HashMap;

use bytes::Bytes;
use foldhash::quality::RandomState;

use super::TopicStats;
use crate::shortened;
use crate::slab::{Slab, Slot};

/// A topic with its subscribers.
#[derive(Debug)]
pub(super) struct Topic {
    name: Bytes,
    /// Subscribers, in no order.
    pub(super) subscribers: Vec<Slot>,
    pub(super) puts: u64,
    pub(super) messages: u64,
    pub(super) bytes: u64,
}

/// The subscriptions of one client: its index among the subscribers of each topic.
pub(super) type Subscriptions = HashMap<Slot, u32, RandomState>;

/// The topics with subscribers.
#[derive(Debug)]
pub(super) struct Topics {
    all: Slab<Topic>,
    by_name: HashMap<Bytes, Slot, RandomState>,
    /// Subscriptions of all clients.
    pub(super) subscriptions: usize,
}

impl Topics {
    pub(super) fn new() -> Self {
        Self { all: Slab::new(), by_name: HashMap::default(), subscriptions: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn find(&self, name: &[u8]) -> Option<Slot> {
        self.by_name.get(name).copied()
    }

    pub(super) fn name(&self, topic: Slot) -> &Bytes {
        &self.all[topic].name
    }

    pub(super) fn get_mut(&mut self, topic: Slot) -> &mut Topic {
        &mut self.all[topic]
    }

    /// Subscribes a client, once.
    pub(super) fn subscribe(&mut self, client: Slot, subscriptions: &mut Subscriptions, name: &Bytes) {
        let topic = self.find(name).unwrap_or_else(|| {
            // A copy: the frame may be part of a larger buffer.
            let name = Bytes::copy_from_slice(name);
            let topic = Topic { name: name.clone(), subscribers: vec![], puts: 0, messages: 0, bytes: 0 };
            let slot = self.all.insert(topic);
            self.by_name.insert(name, slot);
            slot
        });
        let subscribers = &mut self.all[topic].subscribers;
        let place = u32::try_from(subscribers.len()).expect("as many slots as clients");
        if let std::collections::hash_map::Entry::Vacant(vacant) = subscriptions.entry(topic) {
            vacant.insert(place);
            subscribers.push(client);
            self.subscriptions += 1;
        }
    }

    /// Ends the subscription at this index of a topic. Returns the client that has moved there and needs its new index.
    pub(super) fn unsubscribe(&mut self, topic: Slot, place: u32) -> Option<Slot> {
        let subscribers = &mut self.all[topic].subscribers;
        subscribers.swap_remove(place as usize);
        self.subscriptions -= 1;
        let moved = subscribers.get(place as usize).copied();
        if subscribers.is_empty()
            && let Some(gone) = self.all.remove(topic)
        {
            self.by_name.remove(&gone.name);
        }
        moved
    }

    pub(super) fn stats(&self, most: usize) -> Vec<TopicStats> {
        let stats = self.all.iter().take(most).map(|topic| TopicStats {
            topic: Bytes::copy_from_slice(&shortened(&topic.name)),
            subscribers: topic.subscribers.len() as u64,
            puts: topic.puts,
            messages: topic.messages,
            bytes: topic.bytes,
        });
        stats.collect()
    }
}
