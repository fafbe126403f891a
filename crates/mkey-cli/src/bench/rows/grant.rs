//! Revocable grants by posted work over memory that is registered once: a pool of
//! fast-registration regions (REG_MR, LOCAL_INV), and type 2 memory windows (BIND_MW, LOCAL_INV).

use super::region::{WRITABLE, write_all};
use super::{Context, Strategy, target};
use crate::bench::arena::{Arena, Registration};
use crate::bench::error::Result;
use crate::bench::link::{Link, MOST};
use crate::bench::measure::Samples;
use crate::bench::report::Figures;
use mkey_core::address::IoAddr;
use mkey_core::data_plane::DataPlane;
use mkey_core::device::{MrHandle, MwHandle, MwKind};
use mkey_core::key::{Key, Rkey};
use mkey_core::rights::Rights;
use mkey_core::work::{BindMw, RegMr, SendOp, Sge};
use mkey_os::mapping::PageKind;
use std::time::{Duration, Instant};

/// The two mechanisms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mechanism {
    /// Fast registration of one scatter entry.
    FastMr,
    /// A memory window of type 2.
    Window,
}

impl Mechanism {
    /// The rights of the memory that grants are made over.
    fn parent_rights(self) -> Rights {
        match self {
            Self::FastMr => WRITABLE,
            Self::Window => WRITABLE.union(Rights::MW_BIND),
        }
    }
}

/// How many grants the pool holds; more than a chain takes, so that allocating is timed on them.
const GRANTS: usize = 64;

#[derive(Clone, Copy, Debug)]
enum Object {
    FastMr(MrHandle),
    Window(MwHandle),
}

/// One region or window, and the key it has or had last.
#[derive(Clone, Copy, Debug)]
struct Grant {
    object: Object,
    key: Key,
}

struct GrantPool<'a, D: DataPlane> {
    mechanism: Mechanism,
    link: &'a Link<'a, D>,
    arena: &'a Arena,
    parent: Registration<'a, D, &'a Arena>,
    io_bytes: u64,
    /// Whether the addresses of a grant count from 0.
    zero_based: bool,
    grants: Vec<Grant>,
    allocate: Samples,
}

impl<D: DataPlane> GrantPool<'_, D> {
    fn allocate(&mut self) -> Result<()> {
        let (device, pd) = (self.link.device(), self.link.pd);
        let start = Instant::now();
        let grant = match self.mechanism {
            Mechanism::FastMr => {
                let info = device.alloc_fast_mr(pd, 1)?;
                Grant { object: Object::FastMr(info.handle), key: info.rkey.0 }
            }
            Mechanism::Window => {
                let info = device.alloc_mw(pd, MwKind::Type2)?;
                Grant { object: Object::Window(info.handle), key: info.rkey.0 }
            }
        };
        self.allocate.record(start.elapsed());
        self.grants.push(grant);
        Ok(())
    }

    /// The memory of the block at `offset`.
    #[inline]
    fn block(&self, offset: u64) -> [Sge; 1] {
        [Sge {
            address: IoAddr(self.arena.at(offset).0),
            length: u32::try_from(self.io_bytes).unwrap_or(u32::MAX),
            lkey: self.parent.info.lkey,
        }]
    }

    /// The address of a block in its grant.
    #[inline]
    fn granted_at(&self, block: &Sge) -> IoAddr {
        if self.zero_based { IoAddr(0) } else { block.address }
    }

    /// The work that grants `block` under the key after `old`.
    #[inline]
    fn make<'b>(&self, old: Key, block: &'b [Sge; 1]) -> SendOp<'b> {
        let [sge] = block;
        match self.mechanism {
            Mechanism::FastMr => SendOp::RegMr(RegMr {
                key: old.next(),
                iova: self.granted_at(sge),
                rights: WRITABLE,
                entries: block,
            }),
            Mechanism::Window => SendOp::BindMw(BindMw {
                mw: Rkey(old),
                new_key: Rkey(old.next()),
                mr: sge.lkey,
                address: sge.address,
                length: u64::from(sge.length),
                rights: Rights::REMOTE_WRITE,
            }),
        }
    }
}

impl<D: DataPlane> Strategy for GrantPool<'_, D> {
    fn io(&mut self, offsets: &[u64]) -> Result<()> {
        let nothing = SendOp::LocalInv(Key(0));
        let (mut blocks, mut work) = ([[Sge::default()]; MOST], [nothing; MOST]);
        let (mut keys, count) = ([Key::default(); MOST], offsets.len().min(MOST));
        for (block, offset) in blocks.iter_mut().zip(offsets) {
            *block = self.block(*offset);
        }
        for (((op, key), block), grant) in
            work.iter_mut().zip(&mut keys).zip(&blocks).zip(&self.grants).take(count)
        {
            *op = self.make(grant.key, block);
            *key = grant.key.next();
        }
        self.link.manage(work.get(..count).unwrap_or_default())?;
        let granted = blocks.iter().zip(&keys).take(count);
        let one = |([block], key): (&[Sge; 1], &Key)| {
            target(self.granted_at(block).0, Rkey(*key), self.io_bytes)
        };
        write_all(self.link, granted.map(one))?;
        for ((op, key), grant) in work.iter_mut().zip(&keys).zip(&mut self.grants).take(count) {
            *op = SendOp::LocalInv(*key);
            grant.key = *key;
        }
        self.link.manage(work.get(..count).unwrap_or_default())
    }

    fn memory(&self) -> Result<&Arena> {
        Ok(self.arena)
    }

    fn map_step(&self) -> Option<u64> {
        Some(self.io_bytes)
    }

    fn map(&mut self, offset: u64) -> Result<()> {
        let block = self.block(offset);
        let Some(old) = self.grants.last().map(|grant| grant.key) else { return Ok(()) };
        self.link.manage(&[self.make(old, &block)])?;
        if let Some(grant) = self.grants.last_mut() {
            grant.key = old.next();
        }
        self.link.manage(&[SendOp::LocalInv(old.next())])
    }
}

impl<D: DataPlane> Drop for GrantPool<'_, D> {
    fn drop(&mut self) {
        for grant in self.grants.drain(..) {
            // The last user is gone; what the device refuses to free ends with it.
            let _ = match grant.object {
                Object::FastMr(handle) => self.link.device().dereg_mr(handle),
                Object::Window(handle) => self.link.device().dealloc_mw(handle),
            };
        }
    }
}

/// Measures a mechanism with the memory on pages of `kind`.
///
/// # Errors
/// As the memory or the device refuses.
pub fn measure<D: DataPlane>(
    context: &Context<'_, D>,
    mechanism: Mechanism,
    kind: PageKind,
    time: Duration,
) -> Result<Figures> {
    let link = Link::connect(context.device, context.source)?;
    let rights = mechanism.parent_rights();
    let (register, arena) = context.register_all(&link, kind, rights, time / 2)?;
    let parent = arena.register(context.device, link.pd, 0, context.memory, rights)?;
    let mut pool = GrantPool {
        mechanism,
        link: &link,
        arena: &arena,
        parent,
        io_bytes: context.io.bytes,
        zero_based: mechanism == Mechanism::FastMr
            && context.device.capabilities().fast_mr_zero_based,
        grants: Vec::with_capacity(GRANTS),
        allocate: Samples::new(1),
    };
    for _ in 0..GRANTS {
        pool.allocate()?;
    }
    let figures = context.io(&mut pool, &arena, time / 2)?;
    Ok(Figures {
        register: Some(register),
        allocate: pool.allocate.summary(),
        map_is: match mechanism {
            Mechanism::FastMr => "REG_MR of one entry + LOCAL_INV, each posted and polled",
            Mechanism::Window => "BIND_MW + LOCAL_INV, each posted and polled",
        }
        .to_owned(),
        ..figures
    })
}
