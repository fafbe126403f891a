//! Moves the KV cache of a sequence from one node to another: many scattered blocks on both sides,
//! one RDMA READ.
//!
//! A serving engine keeps keys and values in blocks of one large pool, and the blocks of a sequence
//! lie wherever there was room. Fast registration joins them, in their order, under one key that
//! lives as long as the transfer: no copy, no registration, one work request and one completion
//! instead of one a block. A device that gives programs no fast registration (soft-RoCE) takes two
//! copies instead: the blocks are gathered before the READ, and scattered after it.
//!
//! Both nodes are in this process, on the software RNIC, or on the device that
//! `MKEY_DEVICE` names: `cargo run --example kv_blocks`

use anyhow::{Context, Result, ensure};
use mkey::{
    Access, Cq, Device, FastMrPool, Pd, PeerAccess, Pool, PoolOptions, Qp, RemoteKey, Slice,
    SoftOptions, Work, gather, scatter,
};
use std::time::{Duration, Instant};

/// Bytes of a block: so many tokens' keys and values of one layer.
const BLOCK: usize = 64 << 10;
/// Blocks of the sequence.
const BLOCKS: usize = 24;
const PATIENCE: Duration = Duration::from_secs(10);

/// A node with its pool of blocks, connected to the other one.
struct Node {
    qp: Qp,
    cq: Cq,
    pool: Pool,
    /// `None`: the device has no fast registration.
    mappings: Option<FastMrPool>,
}

impl Node {
    fn new(device: &Device) -> Result<Self> {
        let pd = Pd::new(device)?;
        let cq = Cq::new(device, 64)?;
        let qp = Qp::builder(&pd, &cq).create()?;
        // Registered once, on the largest pages to be had. Peers get nothing by that: a mapping, or
        // a window, opens no more than the blocks that are moved.
        let access = Access::local().windows();
        let pool = Pool::new(&pd, &PoolOptions::default().slab(16 << 20).access(access))?;
        let builder = FastMrPool::builder(&pd).entries(BLOCKS as u32).max(8).ready(1);
        let has = device.capabilities().max_fast_mr_entries > 0;
        let mappings = has.then(|| builder.build()).transpose()?;
        Ok(Self { qp, cq, pool, mappings })
    }

    /// The blocks of a sequence: every third of those the pool has, so that no two adjoin.
    fn sequence(&self) -> Result<Vec<Slice>> {
        let all: Result<Vec<_>, _> = (0..3 * BLOCKS).map(|_| self.pool.alloc(BLOCK)).collect();
        Ok(all?.into_iter().step_by(3).collect())
    }
}

/// Bytes that tell which block of which sequence they are of.
fn content(block: usize) -> Vec<u8> {
    (0..BLOCK).map(|at| (at * 31 + block * 7) as u8).collect()
}

/// Joins the blocks on both sides and reads them as one; the key they were read by, and the bytes.
fn mapped(
    (prefill, offers, source): (&Node, &FastMrPool, &[Slice]),
    (decode, lands, target): (&Node, &FastMrPool, &[Slice]),
) -> Result<(RemoteKey, u32)> {
    // Prefill: the sequence's blocks under one key, which the peer may read by. The key travels in
    // a message; here it is handed over.
    let offered = offers.map(&prefill.qp, source, Access::local_read().remote_read())?;
    let key = offered.remote_key()?;

    // Decode: its own blocks under one key as well, for its own work only, and the transfer. The
    // chain is one post, and the mapping is valid before the READ starts.
    let landing = lands.prepare(&decode.qp, target, Access::local())?;
    let whole = landing.slice();
    decode.qp.post(&[landing.register(), Work::read(&whole, key)])?;
    let done = decode.cq.next(PATIENCE)?.context("the transfer hangs")?.succeeded()?;

    // Both keys end. Only then may the blocks be reused, and until then they are kept.
    drop(whole);
    for (node, mapping) in [(decode, landing), (prefill, offered)] {
        let ending = mapping.release().map_err(|(_mapping, error)| error)?;
        ending.wait_polling(&node.cq, PATIENCE, |other| eprintln!("{other:?}"))?;
    }
    Ok((key, done.byte_len))
}

/// The same by copies: gathers the blocks, grants the copy, reads it, and scatters what came.
fn copied(
    (prefill, source): (&Node, &[Slice]),
    (decode, target): (&Node, &[Slice]),
) -> Result<(RemoteKey, u32)> {
    let together = gather(source, &prefill.pool.alloc(BLOCKS * BLOCK)?)?;
    let grant = together.grant(&prefill.qp, PeerAccess::READ)?;
    let key = grant.remote_key();
    let whole = decode.pool.alloc(BLOCKS * BLOCK)?;
    decode.qp.post(&[Work::read(&whole, key)])?;
    let done = decode.cq.next(PATIENCE)?.context("the transfer hangs")?.succeeded()?;
    grant.revoke().wait_polling(&prefill.cq, PATIENCE, |other| eprintln!("{other:?}"))?;
    scatter(&whole, target)?;
    Ok((key, done.byte_len))
}

pub(crate) fn main() -> Result<()> {
    let device = match std::env::var("MKEY_DEVICE") {
        Ok(name) => Device::open(&name)?,
        Err(_) => Device::soft(SoftOptions::default())?,
    };
    let (prefill, decode) = (Node::new(&device)?, Node::new(&device)?);
    prefill.qp.connect(&decode.qp.endpoint())?;
    decode.qp.connect(&prefill.qp.endpoint())?;

    let source = prefill.sequence()?;
    for (number, block) in source.iter().enumerate() {
        block.write(0, &content(number))?;
    }
    let target = decode.sequence()?;
    let registrations = device.stats().registrations;
    let start = Instant::now();

    let (key, bytes) = match (&prefill.mappings, &decode.mappings) {
        (Some(offers), Some(lands)) => {
            mapped((&prefill, offers, &source), (&decode, lands, &target))?
        }
        _ => copied((&prefill, &source), (&decode, &target))?,
    };
    let time = start.elapsed();

    for (number, block) in target.iter().enumerate() {
        ensure!(block.to_vec()? == content(number), "block {number} is not what was sent");
    }
    let (first, last) = (source.first().context("no blocks")?, source.last().context("no blocks")?);
    println!(
        "blocks at {} to {} of the sender's pool, none beside another",
        first.iova(),
        last.iova()
    );
    println!("{key}, valid for {time:.1?} in all");
    let registrations = device.stats().registrations - registrations;
    println!(
        "{BLOCKS} blocks of {} KiB moved by 1 RDMA READ of {bytes} bytes, {registrations} registrations",
        BLOCK >> 10,
    );
    Ok(())
}
