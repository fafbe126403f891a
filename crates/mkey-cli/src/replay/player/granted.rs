//! Memory registered for good, and for each registration of the recording a window of type 2 or a
//! fast registration over it, made and ended by posted work.

use super::{Player, access, no_range, peer_access, rights_of};
use crate::bench::error::{Result, RowError};
use crate::replay::script::Act;
use crate::replay::stage::Stage;
use mkey::{
    Access, Cq, Ended, Ending, FastMapping, FastMrPool, Grant, GrantOptions, Memory, Mr, Qp, Rights,
};
use std::sync::Arc;
use std::time::Duration;

/// How long the end of one may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// Places in a send queue beside those for what is open at a time.
const SPARE: u32 = 64;

/// What a domain needs for it. Fields go from the top.
struct Domain {
    fast: Option<FastMrPool>,
    near: Qp,
    _far: Qp,
    cq: Cq,
    /// By area; `None`: nothing of this domain is there.
    parents: Vec<Option<Mr>>,
}

/// What is open of a range.
enum Open {
    Window(Grant),
    Fast(FastMapping),
}

/// The player of both.
pub struct Granted<'a> {
    stage: &'a Stage,
    open: Vec<Option<Open>>,
    domains: Vec<Domain>,
    made: u64,
    bytes: u64,
}

impl<'a> Granted<'a> {
    /// By windows. Registrations that open nothing to a peer need none: the memory's own local key
    /// serves.
    pub fn windows(stage: &'a Stage) -> Result<Self> {
        Self::new(stage, false)
    }

    /// By fast registrations.
    pub fn fast(stage: &'a Stage) -> Result<Self> {
        Self::new(stage, true)
    }

    fn new(stage: &'a Stage, fast: bool) -> Result<Self> {
        let open = stage.script.ranges.iter().map(|_| None).collect();
        let mut granted = Self { stage, open, domains: Vec::new(), made: 0, bytes: 0 };
        for (number, pd) in stage.domains.iter().enumerate() {
            let most = most_open(stage, number).max(1);
            let capabilities = stage.device.capabilities();
            let depth = most.saturating_mul(2).saturating_add(SPARE).min(capabilities.max_qp_wr);
            let cq = Cq::new(&stage.device, depth.saturating_mul(2).min(capabilities.max_cqe))?;
            let near = Qp::builder(pd, &cq).depth(depth, 1).create()?;
            let far = Qp::builder(pd, &cq).depth(1, 1).create()?;
            near.connect(&far.endpoint())?;
            far.connect(&near.endpoint())?;
            let fast = match fast {
                true => Some(FastMrPool::builder(pd).entries(1).max(most).build()?),
                false => {
                    // The domain keeps them as long as its queue pairs live.
                    let _ = pd.set_grants(GrantOptions::default().max(most))?;
                    None
                }
            };
            let parents = Vec::new();
            granted.domains.push(Domain { fast, near, _far: far, cq, parents });
        }
        Ok(granted)
    }

    /// Registers the areas that the ranges of a domain lie in.
    fn parents(&mut self, domain: usize, windows: bool) -> Result<Vec<Option<Mr>>> {
        let pd = self.stage.domains.get(domain).ok_or_else(no_range)?;
        let ranges = self.stage.script.ranges.iter().enumerate();
        let mut wanted = vec![false; self.stage.areas().len()];
        for (number, _) in ranges.filter(|(_, range)| range.domain == domain) {
            if let Some(slot) = self.stage.area(number).and_then(|area| wanted.get_mut(area)) {
                *slot = true;
            }
        }
        let local = rights_of(self.stage, domain) & Rights::LOCAL_WRITE;
        let of_parent = access(local)?;
        let of_parent = if windows { of_parent.windows() } else { of_parent };
        let mut parents = Vec::with_capacity(wanted.len());
        for (arena, wanted) in self.stage.areas().iter().zip(wanted) {
            let Some(arena) = arena.as_ref().filter(|_| wanted) else {
                parents.push(None);
                continue;
            };
            let memory: Arc<dyn Memory> = arena.clone();
            parents.push(Some(Mr::builder(pd).access(of_parent).register_shared(memory)?));
            self.made += 1;
            self.bytes = self.bytes.saturating_add(arena.bytes());
        }
        Ok(parents)
    }

    fn end(&mut self, range: usize) -> Result<()> {
        let Some(open) = self.open.get_mut(range).and_then(Option::take) else { return Ok(()) };
        let of = self.stage.range(range).ok_or_else(no_range)?;
        let domain = self.domains.get(of.domain).ok_or_else(no_range)?;
        let ending: Ending = match open {
            Open::Window(grant) => grant.revoke(),
            Open::Fast(mapping) => mapping.release().map_err(|(_, error)| RowError::Verb(error))?,
        };
        match ending.wait_polling(&domain.cq, PATIENCE, |_| {})? {
            Ended::Dropped { .. } => Err(RowError::NoCompletion(PATIENCE.as_secs())),
            _ => Ok(()),
        }
    }
}

impl Player for Granted<'_> {
    fn begin(&mut self) -> Result<()> {
        for number in 0..self.domains.len() {
            let windows = self.domains.get(number).is_some_and(|domain| domain.fast.is_none());
            let parents = self.parents(number, windows)?;
            if let Some(domain) = self.domains.get_mut(number) {
                domain.parents = parents;
            }
        }
        Ok(())
    }

    #[inline]
    fn register(&mut self, range: usize) -> Result<()> {
        let of = self.stage.range(range).ok_or_else(no_range)?;
        let domain = self.domains.get(of.domain).ok_or_else(no_range)?;
        let area = self.stage.area(range).ok_or_else(no_range)?;
        let (_, offset) = self.stage.place(super::Strategy::Mw, range).ok_or_else(no_range)?;
        let parent = domain.parents.get(area).and_then(Option::as_ref).ok_or_else(no_range)?;
        let (start, len) = (offset as usize, of.len as usize);
        let slice = parent.slice(start..start.saturating_add(len))?;
        let open = match &domain.fast {
            Some(pool) => {
                let access = fast_access(of.rights)?;
                Some(Open::Fast(pool.map(&domain.near, &[slice], access)?))
            }
            None => match peer_access(of.rights) {
                Some(access) => Some(Open::Window(slice.grant(&domain.near, access)?)),
                None => None,
            },
        };
        *self.open.get_mut(range).ok_or_else(no_range)? = open;
        Ok(())
    }

    #[inline]
    fn deregister(&mut self, range: usize) -> Result<()> {
        self.end(range)
    }

    fn finish(&mut self) -> Result<()> {
        (0..self.open.len()).try_for_each(|range| self.end(range))?;
        self.domains.clear();
        Ok(())
    }

    fn made(&self) -> u64 {
        self.made
    }

    fn most_bytes(&self) -> u64 {
        self.bytes
    }
}

/// What of the rights a fast registration can have.
fn fast_access(rights: Rights) -> Result<Access> {
    const ALLOWED: Rights = Rights::LOCAL_WRITE
        .union(Rights::REMOTE_READ)
        .union(Rights::REMOTE_WRITE)
        .union(Rights::REMOTE_ATOMIC)
        .union(Rights::RELAXED_ORDERING);
    access(rights & ALLOWED)
}

/// How many registrations of a domain there were at a time.
fn most_open(stage: &Stage, domain: usize) -> u32 {
    let (mut now, mut most) = (0u32, 0u32);
    for step in &stage.script.steps {
        if stage.range(step.range).is_some_and(|range| range.domain == domain) {
            now = match step.act {
                Act::Register => now.saturating_add(1),
                Act::Deregister => now.saturating_sub(1),
            };
            most = most.max(now);
        }
    }
    most
}
