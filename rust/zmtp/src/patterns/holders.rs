//! The holders of routing ids.

use std::cmp::Reverse;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;

use bytes::Bytes;
use foldhash::quality::RandomState;
use trunkline_wire::network;

/// The holder of a routing id: its connections, one after the other, get what is pending for it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Holder {
    /// The user that authentication found.
    pub user: Option<Bytes>,
    /// The host it connects from; none over the file system.
    pub host: Option<IpAddr>,
}

/// Holders of a site that share a quota: a user, or without one a host.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Group {
    User(Bytes),
    Host(Option<IpAddr>),
}

impl Group {
    fn of(holder: &Holder) -> Self {
        holder.user.clone().map_or_else(|| Self::Host(holder.host.map(network::host)), Self::User)
    }
}

/// The first holder of each routing id. An id stays its holder's while it is connected; of the others the latest are
/// remembered.
#[derive(Debug)]
pub(super) struct Holders {
    /// How many unconnected ones are remembered.
    most: usize,
    known: HashMap<Bytes, Known, RandomState>,
    /// The unconnected routing ids of each site, and the sites by their number; the last one loses first: one that has
    /// many addresses, or makes many keys, loses its own.
    absent: HashMap<Option<IpAddr>, Site, RandomState>,
    sites: BTreeSet<(usize, Option<IpAddr>)>,
    remembered: usize,
    /// The number of the next that leaves.
    now: u64,
}

#[derive(Debug)]
struct Known {
    holder: Holder,
    absent_since: Option<u64>,
}

/// The unconnected routing ids of a site, by when that began.
#[derive(Debug, Default)]
struct Site {
    count: usize,
    groups: HashMap<Group, BTreeMap<u64, Bytes>, RandomState>,
    /// The groups that have any; the last one loses its oldest first.
    order: BTreeSet<(usize, Reverse<u64>, Group)>,
}

impl Site {
    /// Changes a group's routing ids, and its rank in the order with them.
    fn change<T>(&mut self, group: Group, change: impl FnOnce(&mut BTreeMap<u64, Bytes>) -> T) -> T {
        let rank = |ids: &BTreeMap<u64, Bytes>| ids.first_key_value().map(|(oldest, _)| (ids.len(), Reverse(*oldest)));
        let ids = self.groups.entry(group.clone()).or_default();
        let before = rank(ids);
        let changed = change(ids);
        let after = rank(ids);
        if let Some((size, oldest)) = before {
            self.count -= size;
            self.order.remove(&(size, oldest, group.clone()));
        }
        match after {
            Some((size, oldest)) => {
                self.count += size;
                self.order.insert((size, oldest, group));
            }
            None => drop(self.groups.remove(&group)),
        }
        changed
    }
}

impl Holders {
    pub(super) fn new(most: usize) -> Self {
        Self {
            most,
            known: HashMap::default(),
            absent: HashMap::default(),
            sites: BTreeSet::new(),
            remembered: 0,
            now: 0,
        }
    }

    /// A peer claims a routing id: whether it is or becomes its holder.
    pub(super) fn claim(&mut self, id: &Bytes, holder: &Holder) -> bool {
        let since = match self.known.entry(id.clone()) {
            Entry::Vacant(vacant) => {
                vacant.insert(Known { holder: holder.clone(), absent_since: None });
                return true;
            }
            Entry::Occupied(mut known) if known.get().holder == *holder => known.get_mut().absent_since.take(),
            Entry::Occupied(_) => return false,
        };
        if let Some(since) = since {
            self.change(site(holder), |site| site.change(Group::of(holder), |ids| ids.remove(&since)));
            self.remembered -= 1;
        }
        true
    }

    /// The holder of a routing id has disconnected.
    pub(super) fn leave(&mut self, id: &Bytes) {
        let Some(known) = self.known.get_mut(id) else { return };
        let now = self.now;
        known.absent_since = Some(now);
        let (at, group) = (site(&known.holder), Group::of(&known.holder));
        self.change(at, |site| site.change(group, |ids| ids.insert(now, id.clone())));
        self.now += 1;
        self.remembered += 1;
        if self.remembered > self.most {
            self.forget();
        }
    }

    /// Forgets the oldest routing id of the group that has the most, at the site that has the most: no peer can make a
    /// role forget those of others.
    fn forget(&mut self) {
        let Some((_, at)) = self.sites.last().copied() else { return };
        let oldest = self.change(at, |site| {
            let (_, _, group) = site.order.last().cloned()?;
            site.change(group, BTreeMap::pop_first)
        });
        if let Some((_, id)) = oldest {
            self.known.remove(&id);
            self.remembered -= 1;
        }
    }

    /// Changes a site, and its rank among them.
    fn change<T>(&mut self, at: Option<IpAddr>, change: impl FnOnce(&mut Site) -> T) -> T {
        let site = self.absent.entry(at).or_default();
        let before = site.count;
        let changed = change(site);
        let after = site.count;
        self.sites.remove(&(before, at));
        if after > 0 {
            self.sites.insert((after, at));
        } else {
            self.absent.remove(&at);
        }
        changed
    }
}

fn site(holder: &Holder) -> Option<IpAddr> {
    holder.host.map(network::site)
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn holder(user: Option<u8>, host: u8) -> Holder {
        Holder { user: user.map(|user| Bytes::from(vec![user])), host: Some([10, 0, host, 1].into()) }
    }

    fn id(number: usize) -> Bytes {
        Bytes::from(number.to_string())
    }

    #[test]
    fn a_stranger_with_many_names_makes_us_forget_its_own() {
        let mut holders = Holders::new(100);
        let (honest, stranger) = (holder(None, 1), holder(None, 2));
        assert!(holders.claim(&Bytes::from("honest"), &honest));
        holders.leave(&Bytes::from("honest"));
        for number in 0..1000 {
            assert!(holders.claim(&id(number), &stranger), "there is always room for one more");
            holders.leave(&id(number));
        }
        assert_eq!((holders.known.len(), holders.remembered), (100, 100));
        assert!(!holders.claim(&Bytes::from("honest"), &stranger));
        assert!(holders.claim(&Bytes::from("honest"), &honest));
        assert!(holders.claim(&id(0), &honest), "its oldest was forgotten");
        assert!(!holders.claim(&id(999), &honest));
    }

    #[test]
    fn those_that_are_connected_are_never_forgotten() {
        let mut holders = Holders::new(0);
        for number in 0..1000 {
            assert!(holders.claim(&id(number), &holder(None, 1)));
        }
        assert!((0..1000).all(|number| !holders.claim(&id(number), &holder(None, 2))));
        (0..1000).for_each(|number| holders.leave(&id(number)));
        assert!((0..1000).all(|number| holders.claim(&id(number), &holder(None, 2))));
    }

    #[test]
    fn a_stranger_with_many_addresses_or_keys_loses_its_own() {
        let mut holders = Holders::new(100);
        let honest = Holder { user: None, host: Some([10, 0, 0, 1].into()) };
        for number in 0..10 {
            assert!(holders.claim(&id(number), &honest));
            holders.leave(&id(number));
        }
        for number in 10..1000 {
            let last = u8::try_from(number % 200).expect("a byte");
            let key = (number % 2 == 0).then(|| Bytes::from(number.to_string()));
            let stranger = Holder { user: key, host: Some([10, 0, 1, last].into()) };
            assert!(holders.claim(&id(number), &stranger));
            holders.leave(&id(number));
        }
        assert!((0..10).all(|number| holders.claim(&id(number), &honest)));
    }

    proptest! {
        #[test]
        fn what_is_kept_adds_up(operations in vec((0usize..12, prop::option::of(0u8..2), 0u8..3, any::<bool>()), 0..200)) {
            let mut holders = Holders::new(5);
            // The connected routing ids, and the known holder of each.
            let mut connected: HashMap<usize, Holder> = HashMap::new();
            for (number, user, host, leaves) in operations {
                if leaves {
                    if connected.remove(&number).is_some() {
                        holders.leave(&id(number));
                    }
                } else if !connected.contains_key(&number) && holders.claim(&id(number), &holder(user, host)) {
                    connected.insert(number, holder(user, host));
                }
                let groups = || holders.absent.values().flat_map(|site| site.groups.values());
                let absent: usize = groups().map(BTreeMap::len).sum();
                prop_assert!(absent <= 5);
                prop_assert_eq!((holders.remembered, holders.known.len()), (absent, absent + connected.len()));
                prop_assert_eq!(holders.sites.len(), holders.absent.len());
                prop_assert_eq!(holders.sites.iter().map(|(count, _)| count).sum::<usize>(), absent);
                for site in holders.absent.values() {
                    prop_assert_eq!(site.order.len(), site.groups.len());
                    prop_assert_eq!(site.order.last().map(|(size, _, _)| *size), site.groups.values().map(BTreeMap::len).max());
                }
                for (number, owner) in &connected {
                    prop_assert_eq!(&holders.known[&id(*number)].holder, owner);
                }
            }
        }
    }
}
