//! Accesses: sections R-KEY, R-RA, R-LOC, R-MWU, R-ODP.

use super::object::{Memory, Model, Object, OnDemand};
use mkey_core::address::{HostAddr, HostRange, IoAddr};
use mkey_core::engine::{Access, ObjectId};
use mkey_core::key::Key;
use mkey_core::refusal::{KeyKind, Refusal};
use mkey_core::rights::{Rights, Want};

/// The bytes of an access in order: host address (none: null region) and length of each stretch.
pub(super) type Bytes = Vec<(Option<u64>, u64)>;

/// Why an access does not go ahead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum No {
    Refused(Refusal),
    Fault(Absent),
    Paused,
}

/// Pages that an access needs and that are absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Absent {
    pub region: ObjectId,
    pub translation: u64,
    pub events: u64,
    pub shift: u32,
    pub range: HostRange,
}

fn right_for(want: Want) -> Rights {
    match want {
        Want::LocalWrite => Rights::LOCAL_WRITE,
        Want::RemoteRead => Rights::REMOTE_READ,
        Want::RemoteWrite => Rights::REMOTE_WRITE,
        Want::RemoteAtomic => Rights::REMOTE_ATOMIC,
        _ => Rights::empty(),
    }
}

/// How `[address, address + length)` lies to the range of an object: its distance from the first
/// byte, or by how much it is outside.
pub(super) fn place(object: &Object, key: Key, address: u64, length: u64) -> Result<u64, Refusal> {
    let wide = |x: u64| u128::from(x);
    let (start, at) = (IoAddr(object.base), IoAddr(address));
    if address < object.base {
        return Err(Refusal::BeforeStart { key, start, address: at, by: object.base - address });
    }
    let end = wide(object.base) + wide(object.length);
    let reached = wide(address) + wide(length);
    if reached > end {
        let by = u64::try_from(reached - end).unwrap_or(u64::MAX);
        return Err(Refusal::PastEnd { key, start, length: object.length, address: at, by });
    }
    Ok(address - object.base)
}

impl Model {
    /// Whether an access is allowed, its translation aside: the object and the distance from its
    /// first byte.
    pub fn allowed(&self, access: &Access) -> Result<(&Object, u64), Refusal> {
        let key = access.key;
        let remote = !matches!(access.want, Want::LocalRead | Want::LocalWrite);
        let object = self.by_index(key).ok_or(Refusal::UnknownIndex { key })?;
        let kind = object.kind;
        let (is_lkey, is_rkey) = (object.lkey == Some(key), object.rkey == key);
        match (remote, is_lkey, is_rkey) {
            (true, _, true) | (false, true, _) => {}
            (true, true, false) => return Err(Refusal::LkeyAsRkey { key }),
            (false, false, true) => return Err(Refusal::RkeyAsLkey { key }),
            (_, false, false) => return Err(Refusal::StaleVariant { key, kind }),
        }
        if !object.serves() {
            return Err(Refusal::NotValid { key, kind });
        }
        if object.pd != access.pd {
            return Err(Refusal::OtherPd { key, key_pd: object.pd, qp_pd: access.pd });
        }
        if let Memory::Window { qp: Some(key_qp), .. } = object.memory
            && key_qp != access.qp
        {
            return Err(Refusal::OtherQp { key, key_qp, qp: access.qp });
        }
        if !object.rights.contains(right_for(access.want)) {
            return Err(Refusal::RightMissing { key, want: access.want, has: object.rights });
        }
        let offset = place(object, key, access.address.0, access.length)?;
        Ok((object, offset))
    }

    /// The bytes of an access.
    pub fn access(&self, access: &Access) -> Result<Bytes, No> {
        if self.pauses > 0 {
            return Err(No::Paused);
        }
        let (object, offset) = self.allowed(access).map_err(No::Refused)?;
        self.bytes(object, offset, access.length, access.key)
    }

    fn bytes(&self, object: &Object, offset: u64, len: u64, key: Key) -> Result<Bytes, No> {
        match &object.memory {
            Memory::None => Err(No::Refused(Refusal::NotValid { key, kind: object.kind })),
            Memory::Null => Ok(vec![(None, len)]),
            Memory::Plain(host) => stretch(object, host + offset, len, key),
            Memory::OnDemand(on_demand) => stretch(object, on_demand.host + offset, len, key),
            Memory::Window { parent, offset: start, .. } => {
                self.bytes(self.parent(*parent, key)?, start + offset, len, key)
            }
            Memory::List(items) => {
                let wanted = u128::from(offset)..u128::from(offset) + u128::from(len);
                let mut all = Bytes::new();
                let mut at = 0;
                for item in items {
                    let end = at + u128::from(item.len);
                    let (from, to) = (at.max(wanted.start), end.min(wanted.end));
                    if from < to {
                        let host = item.host + (from - at) as u64;
                        let parent = self.parent(item.parent, key)?;
                        all.extend(stretch(parent, host, (to - from) as u64, key)?);
                    }
                    at = end;
                }
                Ok(all)
            }
        }
    }

    fn parent(&self, id: ObjectId, key: Key) -> Result<&Object, No> {
        let gone = No::Refused(Refusal::NotValid { key, kind: KeyKind::Region });
        self.by_id(id).filter(|parent| parent.serves()).ok_or(gone)
    }
}

/// Contiguous host memory of one region, unless pages of it are detached or absent.
fn stretch(region: &Object, host: u64, len: u64, key: Key) -> Result<Bytes, No> {
    for gone in &region.gone {
        let start = host.max(gone.range.start.0);
        let end = (u128::from(host) + u128::from(len))
            .min(u128::from(gone.range.start.0) + u128::from(gone.range.len));
        if u128::from(start) < end {
            let range = HostRange { start: HostAddr(start), len: (end - u128::from(start)) as u64 };
            let (cause, when) = (gone.cause, gone.when);
            return Err(No::Refused(Refusal::Detached { key, range, cause, when }));
        }
    }
    if let Some(on_demand) = region.on_demand()
        && let Some(range) = absent(on_demand, host, len)
    {
        return Err(No::Fault(Absent {
            region: region.id,
            translation: on_demand.translation,
            events: on_demand.events,
            shift: on_demand.shift,
            range,
        }));
    }
    Ok(vec![(Some(host), len)])
}

/// From the first to the last page of the range that is absent.
fn absent(on_demand: &OnDemand, host: u64, len: u64) -> Option<HostRange> {
    let page = 1u64 << on_demand.shift;
    let mut range: Option<(u64, u64)> = None;
    let last = host + (len - 1);
    for number in host / page..=last / page {
        if !on_demand.present.has(number) {
            let first = range.map_or(number, |(first, _)| first);
            range = Some((first, number));
        }
    }
    let (first, last) = range?;
    Some(HostRange { start: HostAddr(first * page), len: (last - first + 1) * page })
}

/// The same bytes in as few stretches as can be.
pub(super) fn joined(bytes: impl IntoIterator<Item = (Option<u64>, u64)>) -> Bytes {
    let mut all = Bytes::new();
    for (place, len) in bytes.into_iter().filter(|&(_, len)| len > 0) {
        match (all.last_mut(), place) {
            (Some((Some(host), before)), Some(place)) if *host + *before == place => *before += len,
            _ => all.push((place, len)),
        }
    }
    all
}
