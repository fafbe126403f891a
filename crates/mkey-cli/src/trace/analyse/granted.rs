//! Rights that were granted and never used: what a mistake, or an intruder, could use all the same.

use super::ground::{ByPeers, Ground, Known, has_bytes, is_idle, names, rights};
use super::list::List;
use super::places::Place;
use mkey_core::rights::Rights;
use mkey_trace::format::{Recording, Region};
use serde::Serialize;
use std::collections::BTreeMap;

/// Rights that were granted and never used. Regions that were not used at all are not among them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Granted {
    /// Regions with a right that is known not to have been used.
    pub regions: u64,
    /// Of them, those where it is one that lets a peer in.
    pub remote: u64,
    /// By place and rights, those with the most regions first.
    pub excess: List<Excess>,
    /// Regions with a remote right of which it is not known: the peer was not traced.
    pub not_known: u64,
}

/// Regions that were registered at one place with the same rights, of which the same were never used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Excess {
    /// The place.
    pub place: Place,
    /// The rights that they had, by their names in [`Rights`].
    pub granted: Vec<&'static str>,
    /// Those that were never used.
    pub unused: Vec<&'static str>,
    /// How many regions.
    pub regions: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// What is known of the rights of a region: which were not used, and of which that can not be said.
fn judge(ground: &Ground<'_>, region: &Region, by: ByPeers) -> (Rights, Rights) {
    let granted = rights(region.access);
    let remotes = [
        (Rights::REMOTE_WRITE, by.writes),
        (Rights::REMOTE_READ, by.reads),
        (Rights::REMOTE_ATOMIC, by.atomics),
    ];
    let (mut unused, mut open) = (Rights::empty(), Rights::empty());
    let known = ground.known(region, true);
    for (right, uses) in remotes {
        let is_sink = right == Rights::REMOTE_WRITE && region.reads > 0;
        if is_sink && may_be_iwarp(ground, region) {
            continue;
        }
        if granted.contains(right) && uses == 0 {
            let into = if known == Known::Yes { &mut unused } else { &mut open };
            *into |= right;
        }
    }
    if ground.known(region, false) == Known::Yes {
        if granted.contains(Rights::MW_BIND) && region.binds == 0 {
            unused |= Rights::MW_BIND;
        }
        // Peers may write only where the owner may; so may windows.
        let writers = (Rights::REMOTE_WRITE | Rights::REMOTE_ATOMIC).difference(unused);
        let written = region.reads > 0 || region.recvs > 0 || region.binds > 0;
        if granted.contains(Rights::LOCAL_WRITE) && !written && !granted.intersects(writers) {
            unused |= Rights::LOCAL_WRITE;
        }
    }
    (unused, open)
}

/// Whether a region's device may be of iWARP, where the memory that an RDMA READ reads into needs REMOTE_WRITE: the
/// peer answers with a tagged message into it (RFC 5040). The transport is not recorded: what the device's name
/// does not tell, which is by its driver or as udev names it, may be.
fn may_be_iwarp(ground: &Ground<'_>, region: &Region) -> bool {
    const OTHERS: [&str; 11] = [
        "mlx4_", "mlx5_", "ibp", "ibs", "roce", "rxe", "bnxt_re", "hns_", "mana_", "efa_", "hfi1_",
    ];
    let device = Recording::by_id(&ground.recording.devices, region.device);
    device.is_none_or(|device| {
        !device.soft && !OTHERS.iter().any(|other| device.name.starts_with(other))
    })
}

impl Granted {
    /// Of a recording.
    pub fn of(ground: &Ground<'_>) -> Self {
        let mut all = Self::default();
        let mut groups: BTreeMap<(usize, u32, u32), (u64, u64)> = BTreeMap::new();
        let regions =
            ground.regions().filter(|(region, _, by)| has_bytes(region) && !is_idle(region, *by));
        for (region, _, by) in regions {
            let (unused, open) = judge(ground, region, by);
            all.not_known += u64::from(!open.is_empty());
            if unused.is_empty() {
                continue;
            }
            all.regions += 1;
            all.remote += u64::from(unused.intersects(Rights::REMOTE));
            let place = ground.places.number(region.reg_stack);
            let group =
                groups.entry((place, rights(region.access).bits(), unused.bits())).or_default();
            group.0 += 1;
            group.1 = group.1.saturating_add(region.len);
        }
        let mut groups: Vec<_> = groups.into_iter().collect();
        groups.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        all.excess = List::of(groups).map(|((place, granted, unused), (regions, bytes))| Excess {
            place: ground.places.get(place),
            granted: names(rights(granted)),
            unused: names(rights(unused)),
            regions,
            bytes,
        });
        all
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample::Builder;
    use super::*;
    use mkey_trace::format::Remote;

    const ALL: u32 = 0x1f;

    /// What is said of one region of these rights that was used so.
    fn of(
        access: u32,
        used: impl Fn(&mut Region),
        remote: Option<Remote>,
    ) -> (Vec<&'static str>, u64) {
        let mut builder = Builder::new();
        builder.recording.threads[0].posts = 1;
        let region = builder.region(0, 4096, 0, 1, 0);
        region.access = access;
        used(region);
        if let Some(remote) = remote {
            let process = builder.process(true);
            builder.recording.remotes.push(Remote { process, ..remote });
            builder.queue(1, "RC", &[]);
            builder.queue(process, "RC", &[("write", 1)]);
        }
        let all = Granted::of(&Ground::new(&builder.recording));
        let unused = all.excess.first.first().map(|excess| excess.unused.clone());
        (unused.unwrap_or_default(), all.not_known)
    }

    #[test]
    fn a_source_of_sends_needs_no_right() {
        assert_eq!(of(1, |region| region.sends = 1, None), (vec!["LOCAL_WRITE"], 0));
        assert_eq!(of(0, |region| region.sends = 1, None), (vec![], 0));
        assert_eq!(of(1, |region| region.recvs = 1, None), (vec![], 0));
        assert_eq!(of(1, |region| region.reads = 1, None), (vec![], 0));
        // A region that was not used at all is told of as that.
        assert_eq!(of(1, |_| (), None), (vec![], 0));
    }

    #[test]
    fn of_a_peer_that_was_not_traced_nothing_is_claimed() {
        assert_eq!(of(ALL, |region| region.sends = 1, None), (vec!["MW_BIND"], 1));
        assert_eq!(of(0x11, |region| region.binds = 1, None), (vec![], 0));
    }

    #[test]
    fn of_a_traced_peer_what_it_did_not_use_is_known() {
        let remote = |writes, reads| Remote { region: Some(1), writes, reads, ..Remote::default() };
        let idle = |_: &mut Region| ();
        assert_eq!(
            of(ALL, idle, Some(remote(1, 0))).0,
            ["REMOTE_READ", "REMOTE_ATOMIC", "MW_BIND"],
            "LOCAL_WRITE goes with REMOTE_WRITE"
        );
        assert_eq!(
            of(0xf, idle, Some(remote(0, 1))).0,
            ["LOCAL_WRITE", "REMOTE_WRITE", "REMOTE_ATOMIC"],
            "without the writers it is not needed either"
        );
        assert_eq!(of(0x7, |region| region.recvs = 1, Some(remote(0, 1))).0, ["REMOTE_WRITE"]);
    }

    #[test]
    fn where_it_may_be_iwarp_what_is_read_into_needs_remote_write() {
        for (name, soft, expected) in [
            ("mlx5_0", false, vec!["REMOTE_WRITE"]),
            ("rocep1s0", false, vec!["REMOTE_WRITE"]),
            ("mkey0", true, vec!["REMOTE_WRITE"]),
            ("irdma0", false, vec![]),
            ("rdma0", false, vec![]),
        ] {
            let mut builder = Builder::new();
            let client = builder.process(true);
            let region = builder.region(0, 4096, 0, 1, 0);
            (region.access, region.reads) = (7, 1);
            let remote = Remote { process: client, region: Some(1), reads: 1, ..Remote::default() };
            builder.recording.remotes.push(remote);
            builder.queue(1, "RC", &[("read", 1)]);
            builder.queue(client, "RC", &[("read", 1)]);
            let device = &mut builder.recording.devices[0];
            (device.name, device.soft) = (name.to_owned(), soft);
            let all = Granted::of(&Ground::new(&builder.recording));
            let unused = all.excess.first.first().map(|excess| excess.unused.clone());
            assert_eq!(unused.unwrap_or_default(), expected, "{name}");
        }
    }
}
